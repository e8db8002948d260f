"""The broker network map: what one broker knows of the network's shape, built from connection messages alone.

A map has a vertex for each broker of the own cluster, each other cluster of the own super-cluster, and so on upwards:
at most levels x fan-out of them however large the network is (BNM-01). Several connections between the same two
vertices are one edge with a link count (GPP-11), weighted by the link cost matrix plus the lowest announced step among
them (BNM-07, LCM-03). A connection that is suspected or clogged (step `ABSENT`) is no part of any edge (SPR-08), and
the map that others see is what can be reached from the host, so it shows only what works (BNM-10).

A vertex's links to vertices of its own or a lower level are L_UL, those to higher levels L_D (BNM-05, BNM-06, AMB-9);
they are read off one adjacency table.

Invariants: every edge stands in both directions; an edge has at least one connection; the host is always a vertex; no
vertex is a unit that the host is in.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address, Unit
from veena.core.topology.connection import ABSENT, STEP_COSTS, is_fine, link_cost, step
from veena.core.wire.control import ConnectionRecord


class Edge:
    """All usable connections between two vertices."""

    __slots__ = ("base", "connections", "level")

    def __init__(self, base: int, level: int) -> None:
        #: Element (x, y) of the link cost matrix.
        self.base = base
        #: Level of the connections: two vertices have connections of one level only.
        self.level = level
        #: Announced step by connection id. Never empty.
        self.connections: dict[int, int] = {}

    @property
    def extra(self) -> int:
        return STEP_COSTS[min(self.connections.values())]

    @property
    def cost(self) -> int:
        return self.base + self.extra

    @property
    def count(self) -> int:
        return len(self.connections)


@dataclass(frozen=True, slots=True)
class EdgeView:
    """One edge as it is reported: `a` before `b`."""

    a: Unit
    b: Unit
    level: int
    cost: int
    links: int


class NetworkMap:
    """The map at one broker, its vertex node (BNM-04)."""

    def __init__(self, host: Address) -> None:
        self.host = host
        self.levels = len(host)
        #: Every vertex with its neighbours.
        self._edges: dict[Unit, dict[Unit, Edge]] = {host: {}}
        #: Where each usable connection stands.
        self._placed: dict[int, tuple[Unit, Unit]] = {}
        #: Counts changes; a cache is good while this stands still.
        self.version = 0
        self._reachable: dict[Unit, None] | None = None

    def level(self, unit: Unit) -> int:
        return self.levels - len(unit)

    def own(self, level: int) -> Unit:
        """The unit of this level that the host is in."""
        return self.host[: self.levels - level]

    def apply(self, record: ConnectionRecord) -> int | None:
        """Take in what is now known of a connection; the level that changed, or None if no path can differ."""
        usable = record.up and step(record) < ABSENT and is_fine(record, self.host)
        placed = self._placed.get(record.id)
        if placed is None:
            if not usable:
                return None
        elif not usable or placed != (record.low, record.high):
            self._remove(record.id, placed)
        elif self._edges[placed[0]][placed[1]].connections[record.id] == step(record):
            return None
        if usable:
            self._insert(record)
        self.version += 1
        self._reachable = None
        return record.level

    def forget(self, connection_id: int) -> int | None:
        """Drop a connection that is known no more; the level that changed."""
        placed = self._placed.get(connection_id)
        if placed is None:
            return None
        level = self._edges[placed[0]][placed[1]].level
        self._remove(connection_id, placed)
        self.version += 1
        self._reachable = None
        return level

    def _insert(self, record: ConnectionRecord) -> None:
        low, high = record.low, record.high
        edge = self._edges.setdefault(low, {}).get(high)
        if edge is None:
            edge = Edge(link_cost(self.level(low), self.level(high)), record.level)
            self._edges[low][high] = edge
            self._edges.setdefault(high, {})[low] = edge
        assert edge.level == record.level, "two vertices are joined at one level"
        edge.connections[record.id] = step(record)
        self._placed[record.id] = (low, high)

    def _remove(self, connection_id: int, placed: tuple[Unit, Unit]) -> None:
        low, high = placed
        edge = self._edges[low][high]
        del edge.connections[connection_id], self._placed[connection_id]
        if not edge.connections:
            for one, other in ((low, high), (high, low)):
                del self._edges[one][other]
                if not self._edges[one] and one != self.host:
                    del self._edges[one]

    def neighbours(self, unit: Unit) -> dict[Unit, Edge]:
        """The edges at a vertex; empty for a unit that is not in the map."""
        return self._edges.get(unit, {})

    def reachable(self) -> dict[Unit, None]:
        """The vertices from which a path leads down to the host, host first, in order of discovery.

        A path never climbs (SPR-01), so from the host's side one goes only to the same or a higher level.
        """
        if self._reachable is None:
            found: dict[Unit, None] = {self.host: None}
            frontier = [self.host]
            for unit in frontier:
                for other in self._edges[unit]:
                    if other not in found and len(other) <= len(unit):
                        found[other] = None
                        frontier.append(other)
            self._reachable = found
        return self._reachable

    def changes(self, shown: dict[Unit, None]) -> tuple[list[Unit], list[Unit]]:
        """Which units came into reach and which left it since these were."""
        reach = self.reachable()
        return [unit for unit in reach if unit not in shown], [unit for unit in shown if unit not in reach]

    def vertices(self) -> list[Unit]:
        """What the map shows: the reachable vertices in order of level, then of id."""
        return sorted(self.reachable(), key=lambda unit: (-len(unit), unit))

    def edges(self) -> list[EdgeView]:
        """What the map shows: the edges between reachable vertices, finest first."""
        shown = self.reachable()
        views = [
            EdgeView(a, b, edge.level, edge.cost, edge.count)
            for a, others in self._edges.items()
            for b, edge in others.items()
            if (-len(a), a) < (-len(b), b) and a in shown and b in shown
        ]
        return sorted(views, key=lambda view: (view.level, -len(view.a), view.a, -len(view.b), view.b))

    def siblings(self, level: int) -> list[Unit]:
        """The vertices of one level: the other sub-units of the host's enclosing unit, with the host at level 0."""
        size = self.levels - level
        return sorted(unit for unit in self._edges if len(unit) == size)

    def check(self) -> None:
        """Assert every invariant."""
        assert self.host in self._edges
        total = 0
        for unit, others in self._edges.items():
            assert unit == self.host or self.host[: len(unit)] != unit, "no vertex for a unit that the host is in"
            assert self.host[: len(unit) - 1] == unit[:-1], "every vertex is a sibling of an own unit"
            assert others or unit == self.host, "no vertex without an edge"
            level = self.level(unit)
            for other, edge in others.items():
                assert self._edges[other][unit] is edge, "an edge stands in both directions"
                assert edge.connections, "an edge has a connection"
                assert edge.base == link_cost(level, self.level(other))
                total += len(edge.connections)
        assert total == 2 * len(self._placed), "every connection is placed once"
