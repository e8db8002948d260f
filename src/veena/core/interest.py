"""The interest map: which units around this broker want an event, by one question (design §5).

For every vertex of the broker's own map there is what is wanted there: exact rows for the brokers of its cluster and
the clusters of its super-cluster, digests for what is larger. The rows stand in ordinary matching engines whose
destinations are the bits of the event's vector, so `destinations` says at once which brokers, clusters, super-clusters
and super-super-clusters want the event (DST-01, DST-05). Wants of different scopes stand in different engines: one of
scope s counts only for events that were published inside the client's level-s unit.

The invariant: never narrower than the truth. A unit that has not spoken yet wants all.
"""

from __future__ import annotations

from veena import matching
from veena.address import Address, Unit
from veena.core.digest import DigestTest, event_atoms
from veena.core.interest_frames import STANDING, Digest, Row
from veena.core.interest_table import InterestTable
from veena.core.map import NetworkMap
from veena.core.want import KINDS, want_of
from veena.event import Event
from veena.matching.engine import Engine


class InterestMap:
    """The wants of the vertices around one broker."""

    def __init__(self, network: NetworkMap, table: InterestTable, fanout: int) -> None:
        self._map = network
        self._table = table
        self._fanout = fanout
        self._engines: dict[tuple[int, int], Engine] = {}
        self._ids: dict[tuple[Unit, bytes], int] = {}
        self._next_id = 0
        self._digests: dict[Unit, dict[int, DigestTest]] = {}

    def bit(self, unit: Unit) -> int:
        """The vector that holds this unit alone."""
        return 1 << (self._map.level(unit) * self._fanout + unit[-1])

    def is_vertex(self, unit: Unit) -> bool:
        """Whether the unit is another one than the host's own."""
        return self._map.host[: len(unit)] != unit

    def heard(self, before: Row | None, after: Row | None) -> None:
        """A row of some unit changed."""
        for row in (before, after):
            if row is None or not row.wanted or row.kind == STANDING or not self.is_vertex(row.unit):
                continue
            slot = (row.unit, row.key)
            if row is before:
                self._engines[row.kind, row.scope].remove(self._ids.pop(slot))
            else:
                engine = self._engines.get((row.kind, row.scope))
                if engine is None:
                    engine = self._engines[row.kind, row.scope] = matching.create(KINDS[row.kind])
                self._ids[slot] = self._next_id
                self._next_id += 1
                engine.add(self._ids[slot], want_of(row).constraint, self.bit(row.unit))

    def heard_digest(self, digest: Digest) -> None:
        if self.is_vertex(digest.unit):
            self._digests[digest.unit] = {part.scope: DigestTest(part) for part in digest.parts}

    def forget(self, unit: Unit) -> None:
        self._digests.pop(unit, None)

    def destinations(self, event: Event, origin: Address) -> int:
        """The vector of units around this broker that want, or may want, an event published at `origin`."""
        vector = 0
        for (_, scope), engine in self._engines.items():
            if self._in_scope(origin, scope):
                vector |= engine.destinations(event)
        if self._digests:
            atoms = event_atoms(event)
            for unit, tests in self._digests.items():
                if any(self._in_scope(origin, scope) and test.may_want(atoms) for scope, test in tests.items()):
                    vector |= self.bit(unit)
        return vector | self._unknown()

    def _in_scope(self, origin: Address, scope: int) -> bool:
        size = self._map.levels - scope
        return origin[:size] == self._map.host[:size]

    def _unknown(self) -> int:
        """Units of the map that have not spoken: they may want anything."""
        vector = 0
        for unit in self._map.reachable():
            if unit != self._map.host and not self._table.has_spoken(unit):
                vector |= self.bit(unit)
        return vector

    def __len__(self) -> int:
        return len(self._ids)
