"""The interest map: which units around this broker want an event, by one question (design §5).

For every vertex of the broker's own map there is what is wanted there: exact rows for the brokers of its cluster and
the clusters of its super-cluster, digests for what is larger. The rows stand in ordinary matching engines whose
destinations are the bits of the event's vector (`UnitWants`), so `destinations` says at once which brokers, clusters,
super-clusters and super-super-clusters want the event (DST-01, DST-05). Wants of different scopes stand in different
engines: one of scope s counts only for events that were published inside the client's level-s unit.

An event with a list of addressees is for the clients that it names: of all engines only the one of client ids is asked
(EVT-05, RTE-04). With `top = "broadcast"`, as in the papers, every event goes to all other units of the highest level,
and the choice begins inside them (PPP-14); that is off by default, for the digests spare most of these crossings.

Former wants (`constraint`) stand apart: they are asked only for events that have been under way for a while.

The invariant: never narrower than the truth. A unit that has not spoken yet wants all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veena.address import Address, Unit, as_seen
from veena.core.interest.constraint import (
    CONSTRAINT,
    FORMER,
    SELECTOR,
    TAGS,
    TO,
    TOPIC,
    Want,
    create_engine,
    known_want,
)
from veena.core.interest.digest import Digested, DigestTest, Names, Outlined, event_atoms, fitted
from veena.core.interest.table import InterestTable
from veena.core.messages import addresses as whereabouts
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import STANDING, Digest, DigestPart, Row
from veena.event import Event
from veena.matching.base.engine import Constraint, Engine
from veena.matching.base.exact import ExactEngine
from veena.matching.base.work import Meter


class InterestMap:
    """The wants of the vertices around one broker."""

    def __init__(
        self, network: NetworkMap, table: InterestTable, fanout: int, top: str = "interest", meter: Meter | None = None
    ) -> None:
        #: What evaluating wants may cost: a want beyond that counts as one that asks for the event.
        self._meter = meter or Meter()
        self._map = network
        self._table = table
        self._fanout = fanout
        self._broadcasts = top == "broadcast"
        self._wants: dict[tuple[int, int], UnitWants] = {}
        self._former: dict[tuple[int, int], UnitWants] = {}
        #: Rows of such wants.
        self.former = 0
        self._count = 0
        self._digests: dict[Unit, dict[int, DigestTest]] = {}
        self._digested = Digested(self._digests, self.bit)
        #: Counts everything that was heard.
        self.revision = 0
        #: Rows that may tell events apart by time or id (`delivery.match_cache`).
        self.untimely = 0
        self._limit = table.digest_limit
        #: Counts what was heard: who keeps an answer asks again when this has changed (`quench`).
        self.changes = 0

    def bit(self, unit: Unit) -> int:
        """The vector that holds this unit alone."""
        return 1 << (self._map.level(unit) * self._fanout + unit[-1])

    def is_vertex(self, unit: Unit) -> bool:
        """Whether the unit is another one than the host's own."""
        return self._map.host[: len(unit)] != unit

    def heard(self, before: Row | None, after: Row | None) -> None:
        """A row of some unit changed."""
        self.revision += 1
        for row in (before, after):
            if row is None or not row.wanted or row.kind == STANDING or not self.is_vertex(row.unit):
                continue
            self.changes += 1
            want = known_want(row)
            self.untimely += (row is after) * want.is_untimely - (row is before) * want.is_untimely
            is_former = bool(row.kind & FORMER)
            table = self._former if is_former else self._wants
            self.former += ((row is after) - (row is before)) * is_former
            if row is before:
                table[row.kind, row.scope].remove(want, self.bit(row.unit))
                self._count -= 1
            else:
                wants = table.get((row.kind, row.scope))
                if wants is None:
                    wants = table[row.kind, row.scope] = UnitWants(row.kind, self._map.levels * self._fanout)
                wants.add(want, self.bit(row.unit))
                self._count += 1

    def heard_digest(self, digest: Digest) -> None:
        self.revision += 1
        self._digested = Digested(self._digests, self.bit)
        if self.is_vertex(digest.unit):
            self.changes += 1
            self._digests[digest.unit] = {
                part.scope: DigestTest(part) for part in self._fitted(digest.unit, digest.parts)
            }
        if self._table.digest_limit < self._limit:
            for unit, tests in self._digests.items():
                parts = self._fitted(unit, tuple(test.part for test in tests.values()))
                self._digests[unit] = {part.scope: DigestTest(part) for part in parts}
        self._limit = self._table.digest_limit

    def _fitted(self, unit: Unit, told: tuple[DigestPart, ...]) -> tuple[DigestPart, ...]:
        """Within what the table allows; its own object where it is the same, so that it is held once."""
        parts = fitted(told, self._table.digest_limit)
        known = self._table.digest(unit)
        return known.parts if known is not None and known.parts == parts else parts

    def state(self, now_ns: int) -> tuple[int, tuple[Unit, ...]]:
        """Something that is the same as long as every event has the same destinations."""
        return self.revision, self._table.doubted(now_ns)

    def forget(self, unit: Unit) -> None:
        self.revision += 1
        self._digested = Digested(self._digests, self.bit)
        self.changes += 1
        self._digests.pop(unit, None)

    def destinations(self, event: Event, origin: Address, now_ns: int) -> int:
        """The vector of units around this broker that want, or may want, an event published at `origin`."""
        vector = self._everywhere()
        addressed = bool(event.to)  # then it is for the clients it names alone (EVT-05)
        if addressed:
            places, others = whereabouts.vector(event.to, self._map.host, self._fanout, self.bit, self.vertices)
            if not others:
                return places
            vector |= places
        meter = self._meter
        meter.event()
        for (kind, scope), wants in self._wants.items():
            if (kind == TO) is addressed and self._in_scope(origin, scope):
                vector |= wants.engine.destinations_within(event, meter)
        if self._digests:
            atoms = event_atoms(event, self._digested.names)
            for unit, tests in self._digests.items():
                if any(self._in_scope(origin, scope) and test.may_want(atoms) for scope, test in tests.items()):
                    vector |= self.bit(unit)
        return vector | self._unknown(now_ns)

    # --- what is published here, many events at once (`delivery.mixed_bursts`) ---

    def engines(self) -> list[tuple[int, Engine]]:
        """What units around this broker ask for in rows, by kind; one of them may be empty."""
        return [(kind, wants.engine) for (kind, _), wants in self._wants.items()]

    @property
    def attributes(self) -> Names:
        """What digests read of events beside topic and integer."""
        return self._digested.names

    def certain(self, topic: str | None, now_ns: int) -> int:
        """The units that want, or may want, every event of this topic that is published here; some of those that want
        all of them may be missing where more than the topic decides."""
        vector = self._everywhere() | self._unknown(now_ns) | self._digested.of_topic(topic)
        for (kind, _), wants in self._wants.items():
            if kind == TOPIC and topic is not None:
                vector |= wants.engine.destinations(Event(topic=topic))
        return vector

    def wanted_batch(self, events: Sequence[Outlined], topics: Iterable[str | None], now_ns: int) -> list[int] | None:
        """For each of these events, published here, without XML and addressees, the units that want it beside those
        that are certain; None where nobody wants any."""
        found: list[int] | None = None
        for (kind, _), wants in self._wants.items():
            if kind in (TAGS, SELECTOR, CONSTRAINT) and any(map(wants.engine.concerns, topics)):
                masks = wants.engine.destinations_batch(events)  # type: ignore[arg-type]
                if any(masks):
                    found = masks if found is None else [one | other for one, other in zip(found, masks, strict=True)]
        names = self._digested.names
        if names.tags or names.names is None or names.names:
            masks = [self._digested.of_attributes(event) for event in events]
            if any(masks):
                found = masks if found is None else [one | other for one, other in zip(found, masks, strict=True)]
        return found

    def formerly(self, event: Event, origin: Address) -> int:
        """The units that wanted such an event, and still want what was accepted before everybody had heard of it."""
        vector = 0
        self._meter.event()
        for (_, scope), wants in self._former.items() if not event.to else ():
            if self._in_scope(origin, scope):
                vector |= wants.engine.destinations_within(event, self._meter)
        return vector

    def ever(self, event: Event, origin: Address, now_ns: int) -> int:
        """The units that want an old event, whether or not they would want it if it were new."""
        return self.destinations(event, origin, now_ns) | self.formerly(event, origin)

    def orphaned(self, event: Event, origin: Address, units: tuple[Unit, ...], now_ns: int) -> int:
        """Whom a broker sends an event for somebody who is gone: the units that he looked after; and where this broker
        is in one of them, or he was its origin, all that want it."""
        host, vector = self._map.host, 0
        if units and all(map(self.is_vertex, units)):
            for unit in units:
                vector |= self.bit(as_seen(host, unit))
            return vector
        vector = self.ever(event, origin, now_ns) | self.bit(host)
        if origin[:-1] != host[:-1]:
            # What is wanted there within a scope that ends below this broker is told to nobody here.
            vector |= self.bit(as_seen(host, origin))
        return vector

    def has_told(self, event: Event) -> bool:
        """Whether some unit, in reach or not, has told that it wants what is for these addressees, or its digest lets
        it through."""
        if any(kind == TO and wants.engine.destinations(event) for (kind, _), wants in self._wants.items()):
            return True
        atoms = event_atoms(event)
        return any(test.may_want(atoms) for tests in self._digests.values() for test in tests.values())

    def vertices(self) -> list[Unit]:
        """Every unit around this broker that is in reach, or has been heard of."""
        return [
            unit for unit in {**self._map.reachable(), **dict.fromkeys(self._table.units())} if self.is_vertex(unit)
        ]

    def _everywhere(self) -> int:
        """Where every event goes: with `top = "broadcast"` all other units of the highest level (PPP-14, AMB-42)."""
        vector = 0
        if self._broadcasts:
            for unit in self._map.reachable():
                if len(unit) == 1 and self.is_vertex(unit):
                    vector |= self.bit(unit)
        return vector

    def _in_scope(self, origin: Address, scope: int) -> bool:
        size = self._map.levels - scope
        return origin[:size] == self._map.host[:size]

    def _unknown(self, now_ns: int) -> int:
        """Units that have not spoken, or not for long, or cannot be heard: they may want anything (`leases`)."""
        vector = 0
        for unit in self._table.doubted(now_ns):
            vector |= self.bit(unit)
        return vector

    def __len__(self) -> int:
        return self._count


class UnitWants:
    """The wants of one kind and scope; vectors have at most `width` bits (DST-05).

    Clusters of a super-cluster mostly want the same things, and nobody asks the interest map which unit's row it was
    that matched: only where the event must go. So a want that ten units tell is one profile that leads to ten bits,
    and one more unit redirects it. A value to be equal to, a topic above all, needs no profile: the engine keeps the
    value and its vector.

    The invariant: the vector of a want is that of the units whose row of it was added and not removed. A unit has one
    row of a want, but a want may be packed in several ways, and then two rows of a unit ask for one value: such repeats
    are counted apart, since nobody but a peer that packs strangely makes them.

    Rejected: a profile for each row. It takes an id, a place in a table of ids, and from the second unit on a crowd:
    150 bytes a row, three quarters of them for rows of which nothing new is known.
    """

    def __init__(self, kind: int, width: int) -> None:
        self.engine = create_engine(kind)
        self._width = width
        self._every = (1 << width) - 1
        #: By key: the profile's id, and below it the vector.
        self._held: dict[bytes, int] = {}
        self._next_id = 0
        #: How often one unit has one value beyond the first time.
        self._repeats: dict[tuple[Constraint, int], int] = {}

    def add(self, want: Want, bit: int) -> None:
        """A unit wants this from now on; it did not before."""
        if isinstance(self.engine, ExactEngine):
            self._add_value(self.engine, want.constraint, bit)
            return
        held = self._held.get(want.key)
        if held is None:
            self.engine.add(self._next_id, want.constraint, bit)
            self._held[want.key] = self._next_id << self._width | bit
            self._next_id += 1
        else:
            self._held[want.key] = held = held | bit
            self.engine.redirect(held >> self._width, want.constraint, held & self._every)

    def remove(self, want: Want, bit: int) -> None:
        """A unit wants this no longer."""
        if isinstance(self.engine, ExactEngine):
            self._remove_value(self.engine, want.constraint, bit)
            return
        held = self._held[want.key] & ~bit
        if held & self._every:
            self._held[want.key] = held
            self.engine.redirect(held >> self._width, want.constraint, held & self._every)
        else:
            del self._held[want.key]
            self.engine.remove(held >> self._width)

    def _add_value(self, engine: ExactEngine[int] | ExactEngine[str], value: Constraint, bit: int) -> None:
        if not engine.lead(value, bit):
            self._repeats[value, bit] = self._repeats.get((value, bit), 0) + 1

    def _remove_value(self, engine: ExactEngine[int] | ExactEngine[str], value: Constraint, bit: int) -> None:
        repeats = self._repeats.get((value, bit), 0) if self._repeats else 0
        if repeats > 1:
            self._repeats[value, bit] = repeats - 1
        elif repeats:
            del self._repeats[value, bit]
        else:
            engine.mislead(value, bit)
