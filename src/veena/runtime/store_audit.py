"""The rows for audits, made from what the broker noted: who was handed what, over which links, and who wanted what.

One source for both: what `explain` answers from and what a pipeline reads in bulk (design §7, §8) cannot differ. A
delivery is one row for all clients that were handed an event at once; a copy that went over a link is a hop; a change
of a subscription (made, acknowledged up to a level, over) is a row of profiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from veena.address import Address, link_level
from veena.core.disk import EventKey, Noted
from veena.core.notes import EventNote, Fact, Stay, What
from veena.core.want import KINDS
from veena.event import EventId
from veena.runtime.store_records import Change, Delivery, Hop, ProfileChange, Record
from veena.runtime.store_rows import unpack_condition

#: Events whose neighbour is remembered until they are sent on: more than a broker has under way.
MAX_ON_THE_WAY = 1 << 16


class Auditor:
    """Makes the rows of one broker; only of those kinds that are kept. Used by the writing thread alone."""

    def __init__(self, kinds: tuple[type[Record], ...]) -> None:
        self._kinds = kinds
        #: This broker; set when it is known, before the first note.
        self.host: Address = ()
        #: Whom an event came from, the oldest first.
        self._came_from: dict[EventKey, Address] = {}

    def rows(self, noted: Sequence[Noted]) -> list[Record]:
        """What follows from these notes."""
        found: list[Record] = []
        if Delivery in self._kinds:
            for each in noted:
                found += self._of(each)
        return [record for record in found if type(record) in self._kinds]

    def _of(self, noted: Noted) -> Iterator[Record]:
        #: Event and mark -> clients.
        handed: dict[tuple[EventKey, str], tuple[int, list[str]]] = {}
        for note in noted.notes:
            if type(note) is not EventNote:
                yield _change(note.stay, noted.at_ns)  # type: ignore[union-attr]
                continue
            fact = note.fact
            if fact.what is What.DELIVERED:
                handed.setdefault((note.key, fact.text), (fact.at_ns, []))[1].append(fact.client)
            elif fact.what is What.DENIED:
                handed.setdefault((note.key, "denied"), (fact.at_ns, []))[1].append(fact.client)
            elif fact.what is What.TAKEN and fact.peer:
                self._remember(note.key, fact.peer)
            elif fact.what is What.SENT and self.host:
                yield self._hop(note.key, fact)
        for (key, mark), (at_ns, clients) in handed.items():
            yield Delivery(at_ns, _id(key), tuple(clients), mark)

    def _remember(self, key: EventKey, peer: Address) -> None:
        self._came_from[key] = peer
        while len(self._came_from) > MAX_ON_THE_WAY:
            del self._came_from[next(iter(self._came_from))]

    def _hop(self, key: EventKey, fact: Fact) -> Hop:
        level = link_level(self.host, fact.peer)
        return Hop(fact.at_ns, _id(key), self._came_from.get(key), fact.peer, level, fact.units)


def _id(key: EventKey) -> EventId:
    return EventId(key[0].decode(errors="replace"), *key[1:])


def _change(stay: Stay, at_ns: int) -> ProfileChange:
    change: Change = "removed" if stay.ended_ns else "active" if stay.levels else "added"
    return ProfileChange(
        at_ns,
        stay.client,
        stay.number,
        change,
        KINDS[stay.kind],
        unpack_condition(stay.payload),
        stay.scope,
        stay.session,
        stay.levels[-1][0] if stay.levels else 0,
        stay.durable,
        stay.group,
        stay.attributes,
        stay.ending,
    )
