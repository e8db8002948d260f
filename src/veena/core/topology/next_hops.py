"""The next hop to a unit, level by level: where a broker sends an event (design rule 2), and the routing cache.

To unit W of level k: find the next unit X on the best path from the own level-k unit to W, in the graph of the units
of that level; then, level by level downwards, the next sub-unit on the best path towards one that links to X; at last
the neighbour. Every broker of a context sees the same graph of that context, so all of them agree on the tree of paths
to W and no event can circle, whatever it is and wherever else it goes. Paths are ordered by (sum of announced costs,
number of edges, sequence of ids).

The rejected way is SPR's cheapest path decided anew at every broker. Seen from outside, crossing a unit costs nothing
inside it; seen from inside it does: two neighbours can each think the other one nearer (`paths`).

The invariant: a hop is a function of the announced map alone, never of the event, its other destinations or what this
broker alone suspects. On its own suspicion a broker may use an `alternate`: a unit that it has a link straight into and
whose own path to W does not come back (RFC 5286, inequality 1).

The cache holds a hop a unit. A change of a level-l connection can alter the way to units of level l and above only, so
it drops those entries and keeps the rest (SPR-06); `recomputed` counts what was computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from veena.address import Address, Unit
from veena.core.topology.network_map import NetworkMap

#: (sum of announced costs, number of edges)
Distance = tuple[int, int]
_NOWHERE: Distance = (1 << 62, 0)


@dataclass(frozen=True, slots=True)
class Hop:
    """A neighbour, and which connection to it: the same neighbour over a new connection is another hop (rule 5)."""

    #: The neighbour as the map sees it: a broker of the own cluster, or the unit beyond a gateway (SPR-05).
    vertex: Unit
    neighbour: Address
    connection: int


@dataclass(frozen=True, slots=True)
class HopStatistics:
    cached: int
    recomputed: int


class Hops:
    """The routing cache of one broker over its map."""

    def __init__(self, network: NetworkMap) -> None:
        self._map = network
        #: This broker's open links: connection id -> neighbour.
        self._links: dict[int, Address] = {}
        self._cache: list[dict[Unit, Hop | None]] = [{} for _ in range(network.levels)]
        self.recomputed = 0

    def open(self, connection_id: int, neighbour: Address) -> None:
        self._links[connection_id] = neighbour

    def close(self, connection_id: int) -> None:
        self._links.pop(connection_id, None)

    def invalidate(self, level: int) -> None:
        """A connection of this level changed."""
        for cache in self._cache[level:]:
            cache.clear()

    def hop(self, unit: Unit) -> Hop | None:
        """Where to send what is for this unit; None if no path is known. The unit must not contain the host."""
        cache = self._cache[self._map.level(unit)]
        try:
            return cache[unit]
        except KeyError:
            self.recomputed += 1
            found = cache[unit] = self._compute(unit)
            return found

    def _compute(self, unit: Unit) -> Hop | None:
        target: Unit | None = unit
        for level in range(self._map.level(unit), -1, -1):
            assert target is not None
            target = _next(self._graph(level, target), self._map.own(level), target)
            if target is None:
                return None
        assert target is not None
        return self._link_into(target)

    def alternates(self, unit: Unit) -> list[Hop]:
        """Other neighbours that bring an event to the unit without ever bringing it back here, best first."""
        primary = self.hop(unit)
        found: dict[Hop, Distance] = {}
        target: Unit | None = unit
        for level in range(self._map.level(unit), -1, -1):
            if target is None:
                break
            graph, own = self._graph(level, target), self._map.own(level)
            to_target, to_own = _distances(graph, target), _distances(graph, own)
            for other in graph.get(own, {}):
                hop = self._link_into(other)
                if hop is None or hop == primary or other not in to_target:
                    continue
                through_us = _plus(to_own[other], to_target.get(own, _NOWHERE))
                if to_target[other] < through_us:
                    found.setdefault(hop, to_target[other])
            target = _next(graph, own, target)
        return sorted(found, key=lambda hop: (found[hop], hop.neighbour, hop.connection))

    def _link_into(self, unit: Unit) -> Hop | None:
        """The host's best link straight into a neighbouring vertex."""
        edge = self._map.neighbours(self._map.host).get(unit)
        if edge is None:
            return None
        usable = [(step, self._links[i], i) for i, step in edge.connections.items() if i in self._links]
        if not usable:
            return None
        _, neighbour, connection = min(usable)
        return Hop(unit, neighbour, connection)

    def _graph(self, level: int, target: Unit) -> dict[Unit, dict[Unit, int]]:
        """The units of one level around the host, and their links to a target of that level or above.

        Whatever lies inside the own unit of that level counts as that unit: the host and the finer vertices of its map.
        """
        network, own = self._map, self._map.own(level)
        size = len(own)
        graph: dict[Unit, dict[Unit, int]] = {}
        for unit in network.reachable():
            if len(unit) < size:
                continue
            near = unit if len(unit) == size and unit != network.host else own
            for other, edge in network.neighbours(unit).items():
                if other != target and len(other) != size:
                    continue
                far = own if other == network.host else other
                cost = 2 * level + edge.extra if len(far) == size else edge.extra
                for one, two in ((near, far), (far, near)):
                    links = graph.setdefault(one, {})
                    links[two] = min(cost, links.get(two, cost))
        return graph

    def statistics(self) -> HopStatistics:
        return HopStatistics(sum(map(len, self._cache)), self.recomputed)


def _next(graph: dict[Unit, dict[Unit, int]], own: Unit, target: Unit) -> Unit | None:
    """The first step of the best path: the lowest id among those that are nearest."""
    distance = _distances(graph, target)
    if own not in distance:
        return None
    return min(
        other
        for other, cost in graph[own].items()
        if other in distance and _plus(distance[other], (cost, 1)) == distance[own]
    )


def _distances(graph: dict[Unit, dict[Unit, int]], target: Unit) -> dict[Unit, Distance]:
    """(cost, edges) from every unit to the target."""
    best: dict[Unit, Distance] = {}
    queue: list[tuple[int, int, Unit]] = [(0, 0, target)]
    while queue:
        cost, edges, unit = heappop(queue)
        if unit in best:
            continue
        best[unit] = (cost, edges)
        for other, weight in graph.get(unit, {}).items():
            if other not in best:
                heappush(queue, (cost + weight, edges + 1, other))
    return best


def _plus(one: Distance, other: Distance) -> Distance:
    return (one[0] + other[0], one[1] + other[1])
