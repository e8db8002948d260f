"""A second copy of every accepted event, at another broker: with `copies = 2` no single lost disk loses one (I5).

    asker:  COPY frame --> a neighbour, of its own cluster if it has one there --> Done when the neighbour's disk has it
            all its units served --> Release
    holder: keeps it until it is released, and publishes it when the asker is gone (`replica_holder`)

A broker that looks after an event for units that are absent has it in its log, and everybody upstream forgets it. So it
asks for a second copy as well, with the mark of a backlog and the units that it is for (in its own vector); a holder
that takes over sends it there.

What only the absent still lack is bounded (`MAX_FOR_ABSENT`), be it of an origin or of who looks after it. A unit out
of reach counts as wanting all, so a dead broker would fill the holders of its mates, and publishers would wait for it.
Beyond the bound the oldest are given up, the first to outlive their retention: what the present have got already is
then on one disk for the absent. Absent is who lacks something and gets nowhere (`cursors`). *Rejected*: holding them
all, for one dead broker must not hold up others; leaving what is looked after with its origin, whose window the absent
would fill.

An asker that loses its holder before the answer asks the next neighbour; without any nothing is accepted until there is
one. Brokers of a cluster ask in a ring, so that none holds the copies of all. A holder that does not answer for
`takeover_ns` (its disk, or its place for copies, is full; it is slow) is passed over for a while, and so is one for
whom the event itself is looked after; where there is nobody else it is asked again.

The invariant: an event that waits for its copy is on its way to a holder, or there is none to ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from veena.address import Address, contains, identifiers
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.links.link import Link, LinkState
from veena.core.publishing.replica_holder import MAX_KEPT, MAX_KEPT_BYTES, units_of
from veena.core.wire.control import MAX_IDS, Done, Release
from veena.core.wire.event import BACKLOG, COPY, EventFrame
from veena.core.wire.event_id import EventKey, event_key

#: Copies that one broker has others hold of what the absent alone lack, and their bytes. A holder that is the only
#: neighbour of 32 others has as much room again for what they publish: 1,562 events, 4 MiB.
MAX_FOR_ABSENT = MAX_KEPT // 64
MAX_FOR_ABSENT_BYTES = MAX_KEPT_BYTES // 64
#: For how long a holder that did not answer is asked only if there is no other.
PASSED_OVER_NS = 60 * SECOND_NS
#: Copies for which there was no room, asked for again at once.
MAX_AGAIN = 256
#: What a holder without a link is to be told, of all that it may forget: beyond that it keeps it for the retention.
MAX_UNTOLD = 10_000

#: Called with the log offset of an event whose copy is safe.
Copied = Callable[[int, int], None]
#: Offset, when it was sent, and the event.
Asked = tuple[int, int, EventFrame]
#: Events whose copies are needed no more.
Freed = dict[EventKey, None]


@dataclass(frozen=True, slots=True)
class CopyStatistics:
    #: Events that wait for their second copy, and those that have it and are not served everywhere.
    waiting: int
    held: int
    #: Events that only the absent lacked and that were left on one disk, since there were too many.
    given_up: int
    #: Copies that are kept here for others, and their bytes.
    kept: int = 0
    kept_bytes: int = 0


class Copies:
    """The second copies of what one broker answers for."""

    def __init__(self, host: Address, links: Mapping[int, Link], settings: Settings) -> None:
        self._host = host
        self._links = links
        self._settings = settings
        #: What waits for its copy, in order: offset -> frame.
        self._waiting: dict[int, EventFrame] = {}
        #: connection -> frame number (below zero while it waits for room) -> what was asked for.
        self._asked: dict[int, dict[int, Asked]] = {}
        #: Who is at the other end of these.
        self._askees: dict[int, Address] = {}
        #: Connections over which nobody is asked until then, if there is another.
        self._passed_over: dict[int, int] = {}
        #: Who holds an open event of ours; and the offsets of these by the units that they are for.
        self._holders: dict[int, tuple[Address, EventFrame]] = {}
        self._held_for: dict[int, dict[int, None]] = {}
        #: How often an event is looked after here for the absent, with a copy elsewhere.
        self._for_absent: Counter[EventKey] = Counter()
        self._given_up = 0
        #: What holders may forget: told with the next tick, or when there is a link to them again.
        self._releases: dict[Address, Freed] = {}
        self._untold: dict[Address, Freed] = {}
        #: The connection to the neighbour that holds our copies.
        self._present: int | None = None
        self.on_copied: Copied = lambda offset, now_ns: None

    def ask(self, offset: int, frame: EventFrame, now_ns: int) -> None:
        """Find a second place for an event."""
        self._waiting[offset] = frame
        if frame.flags & BACKLOG:
            self._for_absent[event_key(frame)] += 1
            units = units_of(frame.to_serve, self._host, self._settings.fanout)
            for connection, link in self._links.items():
                if link.neighbour is not None and any(contains(unit, link.neighbour) for unit in units):
                    self._passed_over[connection] = now_ns + PASSED_OVER_NS
        holder = self._holder(now_ns)
        if holder is not None and holder.connection == self._present:
            self._send(holder, offset, frame, now_ns)
        else:
            self.changed(now_ns)

    def widen(self, offset: int, frame: EventFrame) -> None:
        """More units want an event that was asked for."""
        if offset in self._waiting:
            self._waiting[offset] = frame
        elif offset in self._holders:
            holder = self._unhold(offset)[0]
            self._hold(offset, holder, frame)

    def _hold(self, offset: int, holder: Address, frame: EventFrame) -> None:
        self._holders[offset] = (holder, frame)
        self._held_for.setdefault(frame.to_serve, {})[offset] = None

    def _unhold(self, offset: int) -> tuple[Address, EventFrame]:
        held = self._holders.pop(offset)
        offsets = self._held_for[held[1].to_serve]
        del offsets[offset]
        if not offsets:
            del self._held_for[held[1].to_serve]
        return held

    def _holder(self, now_ns: int) -> Link | None:
        """The nearest neighbour by level; of several the one that holds copies already, then the next one in the
        ring of the unit."""
        open_links = [
            link for link in self._links.values() if link.state is LinkState.OPEN and link.neighbour is not None
        ]
        return min(open_links, key=lambda link: self._rank(link, now_ns), default=None)

    def _rank(self, link: Link, now_ns: int) -> tuple[bool, int, bool, int, Address, int]:
        assert link.connection is not None and link.neighbour is not None
        is_last = self._passed_over.get(link.connection, 0) > now_ns
        behind = (link.neighbour[-1 - link.level] - self._host[-1 - link.level]) % self._settings.fanout
        return (is_last, link.level, link.connection != self._present, behind, link.neighbour, link.number)

    def _send(self, link: Link, offset: int, frame: EventFrame, now_ns: int) -> None:
        assert link.connection is not None and link.neighbour is not None
        for freed in (self._releases, self._untold):  # it is needed again
            freed.get(link.neighbour, {}).pop(event_key(frame), None)
        copy = frame.copy(frame.to_serve if frame.flags & BACKLOG else 0, frame.served, frame.ttl_ms)
        copy.flags |= COPY
        self._askees[link.connection] = link.neighbour
        self._asked.setdefault(link.connection, {})[link.send(copy, now_ns)] = (offset, now_ns, frame)

    def on_done(self, link: Link, frame: Done, now_ns: int) -> None:
        assert link.connection is not None
        assert link.neighbour is not None
        asked = self._asked.get(link.connection, {})
        answered = _answered(asked, frame)
        for number in answered:
            offset, _, told = asked.pop(number)
            copied = self._waiting.pop(offset, None)
            if copied is not None:
                self._hold(offset, link.neighbour, copied)
                self.on_copied(offset, now_ns)
            elif offset not in self._holders:  # it came too late
                self._free(link.neighbour, told)
            else:
                self._held_twice(offset, link.neighbour)
        if asked and answered and link.connection == self._present:
            self._ask_again(link, max(answered), now_ns)

    def _held_twice(self, offset: int, holder: Address) -> None:
        """One of two holders may forget an event: not the present one."""
        former, copied = self._holders[offset]
        link = None if self._present is None else self._links.get(self._present)
        if former == holder:
            return
        if link is not None and link.neighbour == former:
            self._free(holder, copied)
        else:
            self._holders[offset] = (holder, copied)
            self._free(former, copied)

    def _ask_again(self, link: Link, answered: int, now_ns: int) -> None:
        """A holder answers in order: for what it left out there was no room. It goes before anything later, which
        cannot be accepted before it."""
        assert link.connection is not None
        asked = self._asked[link.connection]
        dropped = sorted((asked[number][0], number) for number in asked if 0 < number < answered)
        for offset, number in dropped[:MAX_AGAIN]:
            del asked[number]
            self._send_again(link, offset, now_ns)

    def _send_again(self, link: Link, offset: int, now_ns: int) -> None:
        """Ask for what was asked for in vain, unless it is there by now, or needed no more."""
        holder, frame = self._holders.get(offset, (None, self._waiting.get(offset)))
        if frame is not None and holder != link.neighbour:
            self._send(link, offset, frame, now_ns)

    def numbered(self, connection: int, ticket: int, number: int) -> None:
        """A copy that had to wait for room has gone under this number."""
        asked = self._asked.get(connection, {})
        found = asked.pop(ticket, None)
        if found is not None:
            asked[number] = found

    def changed(self, now_ns: int) -> None:
        """A connection came or went. A new holder is given everything that is open, in order: what any one of them may
        have to publish has no gap, but for what is given up."""
        for holder in [link.neighbour for link in self._links.values() if link.neighbour in self._untold]:
            assert holder is not None
            self._releases.setdefault(holder, {}).update(self._untold.pop(holder, {}))
        if not self._holders and not self._waiting:
            self._present = None  # nobody has anything that would have to be given to another
        link = self._holder(now_ns)
        if link is None and self._waiting:
            # Nothing was sent, and a neighbour that is only suspected comes back without a new connection.
            self._present = None
        if link is None or link.connection == self._present:
            return
        self._present = link.connection
        self._forget_lost_connections()
        self._passed_over = {connection: at for connection, at in self._passed_over.items() if at > now_ns}
        held = {offset: frame for offset, (_, frame) in self._holders.items()}
        for offset, frame in sorted((held | self._waiting).items(), key=lambda item: item[0]):
            self._send(link, offset, frame, now_ns)

    def _forget_lost_connections(self) -> None:
        """Who was asked over a connection that is gone may have kept it: unless it is asked again, it may forget it."""
        for connection in [each for each in self._asked if each not in self._links]:
            askee = self._askees.pop(connection)
            for offset, _, frame in self._asked.pop(connection).values():
                if offset not in self._holders or self._holders[offset][0] != askee:
                    self._free(askee, frame)

    def _hurry(self, now_ns: int) -> None:
        """Who has not answered for long is passed over; where nobody else is there, what was sent is sent again."""
        former = self._present
        asked = {} if former is None else self._asked.get(former, {})
        overdue = [number for number, (_, at_ns, _) in asked.items() if now_ns - at_ns >= self._settings.takeover_ns]
        if former is None or not overdue:
            return
        self._passed_over[former] = now_ns + PASSED_OVER_NS
        self.changed(now_ns)
        if self._present != former or former not in self._links:
            return
        sent = sorted((asked[number][0], number) for number in overdue if number > 0)
        for offset, number in sent[:MAX_AGAIN]:
            del asked[number]
            self._send_again(self._links[former], offset, now_ns)

    # --- what is needed no more ---

    def forget(self, offset: int) -> None:
        """It was not accepted after all."""
        frame = self._waiting.pop(offset, None)
        if frame is not None and frame.flags & BACKLOG:
            self._is_last_for_absent(frame)
        self._release(offset)

    def look(self, cursor: Callable[[int, int], int], synced: int, absent: int) -> None:
        """Each unit has everything below its cursor, or all that is on disk: holders may forget what all of its units
        have. Of what the absent alone lack, they forget the oldest beyond the bound."""
        lacking: list[int] = []
        for mask, offsets in list(self._held_for.items()):
            until = min(cursor(bit, synced) for bit in _bits(mask))
            for offset in [offset for offset in offsets if offset < until]:
                self._release(offset)
            if mask & absent:
                present = min((cursor(bit, synced) for bit in _bits(mask & ~absent)), default=synced)
                lacking += [offset for offset in offsets if offset < present]
        self._give_up(sorted(lacking))

    def _give_up(self, lacking: list[int]) -> None:
        """Of what the absent alone lack, leave the oldest beyond the bound on this disk alone."""
        sizes = [len(self._holders[offset][1].tail) for offset in lacking]
        over, size = max(0, len(lacking) - MAX_FOR_ABSENT), sum(sizes)
        size -= sum(sizes[:over])
        while size > MAX_FOR_ABSENT_BYTES:
            size -= sizes[over]
            over += 1
        self._given_up += over
        for offset in lacking[:over]:
            self._release(offset)

    def _release(self, offset: int) -> None:
        if offset not in self._holders:
            return
        holder, frame = self._unhold(offset)
        if not frame.flags & BACKLOG or self._is_last_for_absent(frame):
            self._free(holder, frame)

    def _free(self, holder: Address, frame: EventFrame) -> None:
        """A holder may forget an event, unless it has it for other units too."""
        key = event_key(frame)
        if key not in self._for_absent or not self._counts_on(holder, key):
            self._releases.setdefault(holder, {})[key] = None

    def _counts_on(self, holder: Address, key: EventKey) -> bool:
        """Whether what is looked after is at a holder, or on its way there."""
        if any(address == holder and event_key(frame) == key for address, frame in self._holders.values()):
            return True
        there = (asked for connection, asked in self._asked.items() if self._askees[connection] == holder)
        return any(event_key(frame) == key for asked in there for _, _, frame in asked.values())

    def _is_last_for_absent(self, frame: EventFrame) -> bool:
        """Count an event that is looked after no more for some units: whether it is not for others either, whose copy
        has the same key."""
        key = event_key(frame)
        self._for_absent[key] -= 1
        if not self._for_absent[key]:
            del self._for_absent[key]
        return key not in self._for_absent

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Release what is served everywhere; ask for what nobody was asked for, or somebody who does not answer."""
        if self._waiting and self._present is None:
            self.changed(now_ns)
        self._hurry(now_ns)
        self._send_releases(now_ns)
        for connection, asked in self._asked.items():  # who was passed over may answer later, but not for ever
            if connection != self._present:
                for number in [number for number, (_, at_ns, _) in asked.items() if now_ns - at_ns >= PASSED_OVER_NS]:
                    del asked[number]

    def _send_releases(self, now_ns: int) -> None:
        releases, self._releases = self._releases, {}
        for holder, freed in releases.items():
            link = next((each for each in self._links.values() if each.neighbour == holder), None)
            if link is None:
                untold = self._untold.setdefault(holder, {})
                untold.update(freed)
                for key in list(untold)[:-MAX_UNTOLD]:
                    del untold[key]
                continue
            ids = [(key[0].decode(), *key[1:]) for key in freed]
            for at in range(0, len(ids), MAX_IDS):
                link.send(Release(tuple(ids[at : at + MAX_IDS])), now_ns)

    @property
    def is_busy(self) -> bool:
        """Whether there is something to look after, now and then."""
        return bool(self._releases or self._waiting)

    @property
    def is_held(self) -> bool:
        """Whether somebody else holds a copy for this broker."""
        return bool(self._holders)

    def statistics(self, kept: int, kept_bytes: int) -> CopyStatistics:
        return CopyStatistics(len(self._waiting), len(self._holders), self._given_up, kept, kept_bytes)

    def check(self) -> None:
        assert sum(map(len, self._held_for.values())) == len(self._holders)


def _answered(asked: Mapping[int, Asked], frame: Done) -> list[int]:
    """The numbers among these that a frame acknowledges: most frames are about other things."""
    found: list[int] = []
    for first, last in frame.ranges if asked else ():
        numbers = range(first, last + 1) if last - first < len(asked) else list(asked)
        found += [number for number in numbers if number in asked and first <= number <= last]
    return [number for number in found if frame.contains(number)] if frame.exceptions else found


def _bits(mask: int) -> list[int]:
    return [1 << at for at in identifiers(mask)]
