"""The rows for audits, made from what the broker noted: who was handed what, over which links, and who wanted what.

One source for both: what `explain` answers from and what a pipeline reads in bulk (design §7, §8) cannot differ. A
delivery is one row for all clients that were handed an event at once; a copy that went over a link is a hop; a change
of a subscription (made, acknowledged up to a level, over) is a row of profiles, and so is a client that came for what
is kept for it, or went, and a start of the broker, with its address.

Rows that are no deliveries tell why there is none: a client had it by its own word, did not read, or came too late; an
event that came when nobody here wanted it any more is a row without clients. So who audits can tell what was lost from
what was not to be delivered, without a look at clocks of two brokers.

Rows of one input are one transaction, with what the core keeps of it (`LastHad`, entries of inboxes). So `kill -9`
takes both or neither: what is not on record is sent again, and a client that had it then says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from veena.address import Address, format_address, link_level
from veena.core.boundary.session_id import is_clients
from veena.core.boundary.stored import Noted
from veena.core.interest.constraint import KINDS
from veena.core.wire.event_id import EventKey
from veena.core.wire.trace_facts import ClientNote, EventNote, Fact, Stay, StayNote, What
from veena.event import EventId
from veena.runtime.store.audit_records import HANDED, Change, Delivery, Hop, ProfileChange, Record
from veena.runtime.store.rows import unpack_condition

#: Events whose neighbour is remembered until they are sent on: more than a broker has under way.
MAX_ON_THE_WAY = 1 << 16
#: For so long after the end of a subscription every event that is accepted here is said to have come, even if nobody
#: here gets it: longer than a disk takes to sync what was published before that end.
AFTER_END_NS = 10_000_000_000

#: What became of an event for one client -> the mark.
_MARKS = {
    What.DENIED: "denied",
    What.HAD: "had",
    What.WITHHELD: "withheld",
    What.DROPPED: "dropped",
    What.EXPIRED: "expired",
}


class Auditor:
    """Makes the rows of one broker; only of those kinds that are kept. Used by the writing thread alone."""

    def __init__(self, kinds: tuple[type[Record], ...]) -> None:
        self._kinds = kinds
        #: This broker; set when it is known, before the first note.
        self.host: Address = ()
        #: Whom an event came from, the oldest first.
        self._came_from: dict[EventKey, Address] = {}
        self._ended_ns = -AFTER_END_NS

    def begins(self, host: Address, at_ns: int, settings: Mapping[str, str]) -> list[Record]:
        """A life of this broker begins: under which address, and with which settings of what is kept."""
        self.host = host
        told = {"address": format_address(host), **settings}
        return [ProfileChange(at_ns, "", 0, "started", "", "", 0, attributes=told)]

    def lost(self, count: int, at_ns: int) -> list[Record]:
        """So many records were given up since this was told last: there was no room for them, or the disk failed."""
        told = ProfileChange(at_ns, "", 0, "lost", "", "", 0, attributes={"records": str(count)})
        return [told] if ProfileChange in self._kinds else []

    def rows(self, noted: Sequence[Noted]) -> list[Record]:
        """What follows from these notes."""
        found: list[Record] = []
        if Delivery in self._kinds:
            for each in noted:
                found += self._of(each)
        return [record for record in found if type(record) in self._kinds]

    def _of(self, noted: Noted) -> Iterator[Record]:
        #: Event and mark -> clients; one with several devices once.
        handed: dict[tuple[EventKey, str], tuple[int, dict[str, None]]] = {}
        came: dict[EventKey, int] = {}
        for note in noted.notes:
            if type(note) is StayNote:
                self._ended_ns = max(self._ended_ns, note.stay.ended_ns)
                yield _change(note.stay, noted.at_ns)
            elif type(note) is ClientNote:
                yield _client(note)
            elif type(note) is EventNote:
                key, fact = note.key, note.fact
                mark = fact.text if fact.what is What.DELIVERED else _MARKS.get(fact.what)
                if fact.client and is_clients(fact.session) and mark is not None:
                    handed.setdefault((key, mark), (fact.at_ns, {}))[1][fact.client] = None
                elif fact.what is What.SENT and self.host:
                    yield self._hop(key, fact)
                else:
                    self._arrive(key, fact, came)
        for (key, mark), (at_ns, clients) in handed.items():
            yield Delivery(at_ns, _id(key), tuple(clients), mark)
            if mark in HANDED:
                came.pop(key, None)
        for key, at_ns in came.items():
            yield Delivery(at_ns, _id(key), (), "came")

    def _arrive(self, key: EventKey, fact: Fact, came: dict[EventKey, int]) -> None:
        """An event came for this broker's clients, or it did not come to that: it was had, or is held."""
        if fact.what is What.TAKEN and fact.peer:
            self._remember(key, fact.peer)
            if self.host in fact.units:
                came.setdefault(key, fact.at_ns)
        elif fact.what in (What.ACCEPTED, What.TAKEN) and fact.at_ns < self._ended_ns + AFTER_END_NS:
            if self.host in fact.units:
                came.setdefault(key, fact.at_ns)
        elif fact.what in (What.HAD, What.WITHHELD):
            came.pop(key, None)

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


def _client(note: ClientNote) -> ProfileChange:
    change: Change = "attached" if note.is_here else "detached"
    return ProfileChange(note.at_ns, note.client, 0, change, "", "", 0, note.session, ending=note.ending)
