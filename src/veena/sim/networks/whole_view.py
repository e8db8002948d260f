"""The ways of events, computed by somebody who sees the whole network: rule 2 once more, without brokers or messages.

In each unit there is a graph of its sub-units. To a unit W the next hop is found from the top down: the next unit X on
the best path to W in the graph of the smallest unit that holds both, then in each own unit below the next sub-unit
towards one that links to X, at last the lowest neighbour. All links of a level cost the same here, as in a network at
rest without dear links, so the best path has the fewest edges, then the lowest ids.

It shares no code with the core, as a judge should, and follows an event through 3,000 brokers in milliseconds, where to
let as many real brokers learn their maps and wants takes the best part of an hour. Where both were run they agree copy
by copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from veena.address import Address, Unit, shared
from veena.runtime.networks.file import Network


class WholeView:
    """A network at rest in which everybody knows what they may know."""

    def __init__(self, network: Network) -> None:
        self._levels = network.levels
        #: Unit -> its sub-units -> those that they link to, in order.
        self._graphs: dict[Unit, dict[Unit, list[Unit]]] = {}
        #: (unit, another unit that it links to) -> the sub-units of the first that do.
        self._exits: dict[tuple[Unit, Unit], dict[Unit, None]] = {}
        self._neighbours: dict[Address, list[Address]] = {broker.address: [] for broker in network.brokers}
        self._distances: dict[tuple[Unit, Unit], dict[Unit, int]] = {}
        self._hops: dict[tuple[Address, Unit], Address] = {}
        for address in self._neighbours:
            for size in range(self._levels):
                self._graphs.setdefault(address[:size], {}).setdefault(address[: size + 1], [])
        for link in network.links:
            self._join(link.a, link.b)
            self._join(link.b, link.a)

    def _join(self, one: Address, other: Address) -> None:
        self._neighbours[one].append(other)
        size = shared(one, other) + 1
        near = self._graphs[one[: size - 1]][one[:size]]
        if other[:size] not in near:
            near.append(other[:size])
        for inside in range(size, self._levels):
            self._exits.setdefault((one[:inside], other[:size]), {})[one[: inside + 1]] = None

    def crossings(self, origin: Address, wanting: Iterable[Address]) -> list[tuple[Address, Address]]:
        """The copies that an event makes, from broker to broker, when these brokers want it."""
        wanted = {address[:size] for address in wanting for size in range(1, self._levels + 1)}
        found: list[tuple[Address, Address]] = []
        turns = [(origin, self._expanded(origin, 0, wanted))]
        for at, units in turns:  # grows while it is walked
            by_neighbour: dict[Address, list[Unit]] = {}
            for unit in units:
                by_neighbour.setdefault(self._hop(at, unit), []).append(unit)
            for neighbour, to_serve in by_neighbour.items():
                found.append((at, neighbour))
                left: list[Unit] = []
                for unit in to_serve:
                    entered = neighbour[: len(unit)] == unit
                    left += self._expanded(neighbour, len(unit), wanted) if entered else [unit]
                turns.append((neighbour, left))
        return found

    def _expanded(self, at: Address, size: int, wanted: set[Unit]) -> list[Unit]:
        """The vertices of a broker's map, inside its own unit of that size, in which somebody wants the event."""
        return [
            unit
            for inside in range(size, self._levels)
            for unit in self._graphs[at[:inside]]
            if unit in wanted and unit != at[: inside + 1]
        ]

    def _hop(self, at: Address, unit: Unit) -> Address:
        hop = self._hops.get((at, unit))
        if hop is None:
            target = unit
            for size in range(len(unit) - 1, self._levels):
                target = self._next(at[:size], at[: size + 1], target)
            hop = min(other for other in self._neighbours[at] if other[: len(target)] == target)
            self._hops[at, unit] = hop
        return hop

    def _next(self, around: Unit, own: Unit, target: Unit) -> Unit:
        """The next sub-unit on the way through a unit, or the target where the own sub-unit links to it."""
        if own in self._exits.get((around, target), ()):
            return target
        graph = self._graphs[around]
        distance = self._distances.get((around, target))
        if distance is None:
            distance = self._distances[around, target] = self._search(around, target)
        return min(other for other in graph[own] if distance[other] < distance[own])

    def _search(self, around: Unit, target: Unit) -> dict[Unit, int]:
        """Edges from each sub-unit to the target, or to the nearest sub-unit that links to a target outside."""
        graph = self._graphs[around]
        queue = deque([target] if target in graph else self._exits[around, target])
        distance = dict.fromkeys(queue, 0)
        while queue:
            unit = queue.popleft()
            for other in graph[unit]:
                if other not in distance:
                    distance[other] = distance[unit] + 1
                    queue.append(other)
        return distance
