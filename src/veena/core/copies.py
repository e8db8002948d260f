"""A second copy of every accepted event, at another broker: with `copies = 2` no single lost disk loses one (I5).

    origin: COPY frame --> a neighbour, of its own cluster if it has one there --> Done when the neighbour's disk has it
            all its units served --> Release
    holder: keeps it until it is released; when its origin has been out of reach for `takeover_ns`, publishes it itself

A broker that looks after an event for units that are absent has it in its log, and everybody upstream forgets it. So it
asks for a second copy as well, with the mark of a backlog and the units that it is for (in its own vector); a holder
that takes over sends it there. Such copies are bounded (`MAX_FOR_ABSENT`): what a long absence brings beyond that is on
one disk. *Rejected*: leaving it with the origin, whose window the absent would fill.

Of another cluster a holder sees the cluster, not its brokers: there an origin is out of reach when its link is gone.
A takeover may be wrong, since from outside a cut link and a lost disk look alike. Then both send the event, and the
ends drop what they have had: each of the two sends a publisher's events in order, so no end sees a gap. An origin that
loses its holder before the answer asks the next neighbour; without any nothing is accepted until there is one. A holder
that does not answer for `takeover_ns` (its disk, or its place for copies, is full; it is slow) is passed over for a
while, and so is one for whom the event itself is looked after; where there is nobody else it is asked again.

The invariant: an event that waits for its copy is on its way to a holder, or there is none to ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from veena.address import Address, Unit, as_seen, contains, identifiers
from veena.core.disk import EventKey, Kept, Released
from veena.core.event_frame import BACKLOG, COPY, NO_TTL, EventFrame
from veena.core.flight import MILLISECOND_NS, event_key
from veena.core.frames import MAX_IDS, Done, Release
from veena.core.ledger import Ledger
from veena.core.link import Link, LinkState
from veena.core.map import NetworkMap
from veena.core.settings import SECOND_NS, Settings
from veena.errors import InvalidEvent, RemoteProtocolError

#: Copies that one broker holds for others, and their bytes; beyond that it does not answer, and the origin waits.
MAX_KEPT = 100_000
MAX_KEPT_BYTES = 256 << 20
#: Copies that one broker has others hold of what it looks after for the absent, and their bytes: a tenth, so that a
#: holder has room for all of its neighbours and for what they publish.
MAX_FOR_ABSENT = 10_000
MAX_FOR_ABSENT_BYTES = 24 << 20
#: For how long a holder that did not answer is asked only if there is no other.
PASSED_OVER_NS = 60 * SECOND_NS
#: How keys of what is looked after begin: no client's id does, for that is printable.
ASKER = b"\0"

#: Called with the log offset of an event whose copy is safe.
Copied = Callable[[int, int], None]
#: Publishes an event of an origin that is gone; or sends it to units for which somebody looked after it who is gone.
Adopt = Callable[[EventFrame, tuple[Unit, ...], int], None]


class Copies:
    """Both sides of it, at one broker."""

    def __init__(
        self,
        network: NetworkMap,
        links: Mapping[int, Link],
        settings: Settings,
        ledger: Ledger,
        kept: dict[EventKey, EventFrame],
    ) -> None:
        self._map = network
        self._links = links
        self._settings = settings
        self._ledger = ledger
        self._kept = dict(kept)
        self._kept_bytes = sum(len(frame.tail) for frame in kept.values())
        #: When each copy came, oldest first; after a restart, the time of the first look.
        self._since_ns: dict[EventKey, int] = {}
        #: Origins out of reach, and since when.
        self._missing_ns: dict[Address, int] = {}
        #: What waits for its copy, in order: offset -> frame.
        self._waiting: dict[int, EventFrame] = {}
        #: connection -> frame number (below zero while it waits for room) -> offset, and when it was sent.
        self._asked: dict[int, dict[int, tuple[int, int]]] = {}
        #: Connections over which nobody is asked until then, if there is another.
        self._passed_over: dict[int, int] = {}
        #: Who holds an open event of ours; and the offsets of these by the units that they are for.
        self._holders: dict[int, tuple[Address, EventFrame]] = {}
        self._held_for: dict[int, dict[int, None]] = {}
        #: How often an event is looked after here for the absent, with a copy elsewhere; and the bytes of all of them.
        self._for_absent: Counter[EventKey] = Counter()
        self._for_absent_bytes = 0
        self._releases: dict[Address, list[EventFrame]] = {}
        #: The connection to the neighbour that holds our copies.
        self._present: int | None = None
        self.on_copied: Copied = lambda offset, now_ns: None
        self.adopt: Adopt = lambda frame, units, now_ns: None
        #: Answers the frame of that number on a connection.
        self.acknowledge: Callable[[int, int], None] = lambda connection, number: None

    # --- the origin's side ---

    def ask(self, offset: int, frame: EventFrame, now_ns: int) -> None:
        """Find a second place for an event."""
        self._waiting[offset] = frame
        if frame.flags & BACKLOG:
            self._for_absent[event_key(frame)] += 1
            self._for_absent_bytes += len(frame.tail)
            units = units_of(frame.to_serve, self._map.host, self._settings.fanout)
            for connection, link in self._links.items():
                if link.neighbour is not None and any(contains(unit, link.neighbour) for unit in units):
                    self._passed_over[connection] = now_ns + PASSED_OVER_NS
        holder = self._holder(now_ns)
        if holder is not None and holder.connection == self._present:
            self._send(holder, offset, frame, now_ns)
        else:
            self.changed(now_ns)

    def has_room(self, frame: EventFrame) -> bool:
        """Whether there may be a second copy of one more event that is looked after for the absent. Others would refuse
        one that nobody can read."""
        is_room = len(self._for_absent) < MAX_FOR_ABSENT and self._for_absent_bytes < MAX_FOR_ABSENT_BYTES
        return is_room and _why_unreadable(frame) is None

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
        """The nearest neighbour by level; of several the one that holds copies already, then the lowest."""
        open_links = [
            link for link in self._links.values() if link.state is LinkState.OPEN and link.neighbour is not None
        ]
        return min(open_links, key=lambda link: self._rank(link, now_ns), default=None)

    def _rank(self, link: Link, now_ns: int) -> tuple[bool, int, bool, Address, int]:
        assert link.connection is not None and link.neighbour is not None
        is_last = self._passed_over.get(link.connection, 0) > now_ns
        return (is_last, link.level, link.connection != self._present, link.neighbour, link.number)

    def _send(self, link: Link, offset: int, frame: EventFrame, now_ns: int) -> None:
        assert link.connection is not None
        copy = frame.copy(frame.to_serve if frame.flags & BACKLOG else 0, frame.served, frame.ttl_ms)
        copy.flags |= COPY
        self._asked.setdefault(link.connection, {})[link.send(copy, now_ns)] = (offset, now_ns)

    def on_done(self, link: Link, frame: Done, now_ns: int) -> None:
        assert link.connection is not None
        assert link.neighbour is not None
        asked = self._asked.get(link.connection, {})
        for number in [number for number in asked if frame.contains(number)]:
            offset, _ = asked.pop(number)
            copied = self._waiting.pop(offset, None)
            if copied is not None:
                self._hold(offset, link.neighbour, copied)
                self.on_copied(offset, now_ns)
            elif offset in self._holders:  # held twice for a while: the former holder may forget it
                former, copied = self._holders[offset]
                if former != link.neighbour:
                    self._releases.setdefault(former, []).append(copied)
                self._holders[offset] = (link.neighbour, copied)

    def numbered(self, connection: int, ticket: int, number: int) -> None:
        """A copy that had to wait for room has gone under this number."""
        asked = self._asked.get(connection, {})
        found = asked.pop(ticket, None)
        if found is not None:
            asked[number] = found

    def changed(self, now_ns: int) -> None:
        """A connection came or went. A new holder is given everything that is open, in order: what any one of them may
        have to publish has no gap."""
        link = self._holder(now_ns)
        if link is None and self._waiting:
            # Nothing was sent, and a neighbour that is only suspected comes back without a new connection.
            self._present = None
        if link is None or link.connection == self._present:
            return
        self._present = link.connection
        self._asked = {connection: asked for connection, asked in self._asked.items() if connection in self._links}
        self._passed_over = {connection: at for connection, at in self._passed_over.items() if at > now_ns}
        held = {offset: frame for offset, (_, frame) in self._holders.items()}
        for offset, frame in sorted((held | self._waiting).items(), key=lambda item: item[0]):
            self._send(link, offset, frame, now_ns)

    def _hurry(self, now_ns: int) -> None:
        """Who has not answered for long is passed over; where nobody else is there, what was sent is sent again."""
        former = self._present
        asked = {} if former is None else self._asked.get(former, {})
        overdue = [number for number, (_, at_ns) in asked.items() if now_ns - at_ns >= self._settings.takeover_ns]
        if former is None or not overdue:
            return
        self._passed_over[former] = now_ns + PASSED_OVER_NS
        self.changed(now_ns)
        if self._present != former:
            return
        for number in overdue:
            if number > 0:
                offset, _ = asked.pop(number)
                if offset in self._waiting:
                    self._send(self._links[former], offset, self._waiting[offset], now_ns)

    def forget(self, offset: int) -> None:
        """It was not accepted after all."""
        frame = self._waiting.pop(offset, None)
        if frame is not None and frame.flags & BACKLOG:
            self._is_last_for_absent(frame)
        self._release(offset)

    def served(self, cursors: Mapping[int, int], synced: int) -> None:
        """Each unit has everything below its cursor, and one without has all that is on disk: holders may
        forget what all of its units have."""
        for mask, offsets in list(self._held_for.items()):
            until = min(cursors.get(1 << at, synced) for at in identifiers(mask))
            if next(iter(offsets)) < until:
                for offset in [offset for offset in offsets if offset < until]:
                    self._release(offset)

    def _release(self, offset: int) -> None:
        if offset not in self._holders:
            return
        holder, frame = self._unhold(offset)
        if not frame.flags & BACKLOG or self._is_last_for_absent(frame):
            self._releases.setdefault(holder, []).append(frame)

    def _is_last_for_absent(self, frame: EventFrame) -> bool:
        """Count an event that is looked after no more for some units: whether it is not for others either, whose copy
        has the same key."""
        key = event_key(frame)
        self._for_absent_bytes -= len(frame.tail)
        self._for_absent[key] -= 1
        if not self._for_absent[key]:
            del self._for_absent[key]
        return key not in self._for_absent

    # --- the holder's side ---

    def keep(self, link: Link, number: int, frame: EventFrame) -> None:
        """Keep a copy for a neighbour, and answer when it is on disk."""
        connection = link.connection
        assert connection is not None
        assert link.neighbour is not None
        key = event_key(frame)
        if frame.flags & BACKLOG:
            key = looked_after(link.neighbour, key)
        elif frame.origin_address != link.neighbour:
            raise RemoteProtocolError(f"a copy of an event of {frame.origin_address}: an origin asks for its own alone")
        why = _why_unreadable(frame)
        if why is not None:
            raise RemoteProtocolError(f"a copy to keep of an event that could never be published: {why}")
        before = self._kept.get(key)
        if before is not None:
            frame = before.copy(before.to_serve | frame.to_serve, before.served, before.ttl_ms)
        elif len(self._kept) >= MAX_KEPT or self._kept_bytes >= MAX_KEPT_BYTES:
            return
        else:
            self._kept_bytes += len(frame.tail)
        self._kept[key] = frame
        self._ledger.write(Kept(key, frame), lambda now_ns: self.acknowledge(connection, number))

    def release(self, link: Link, frame: Release) -> None:
        """Forget copies that who asked for them, and nobody else, says are needed no more."""
        if link.neighbour is None:
            return
        keys = [(name.encode(), incarnation, stamp, sequence) for name, incarnation, stamp, sequence in frame.ids]
        found = [key for key in keys if key in self._kept and self._kept[key].origin_address == link.neighbour]
        found += [key for key in (looked_after(link.neighbour, key) for key in keys) if key in self._kept]
        if found:
            self._drop(found)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Release what is served everywhere; take over from those who are gone; ask for what nobody was asked for."""
        if self._is_stranded:
            self.changed(now_ns)
        self._hurry(now_ns)
        self._send_releases(now_ns)
        for key in self._kept:
            self._since_ns.setdefault(key, now_ns)
        old = [key for key, since in self._since_ns.items() if now_ns - since > self._settings.retention_ns]
        if old:
            self._drop(old)
        self._watch(now_ns)

    def _send_releases(self, now_ns: int) -> None:
        releases, self._releases = self._releases, {}
        for holder, frames in releases.items():
            link = next((each for each in self._links.values() if each.neighbour == holder), None)
            if link is None:
                continue
            # What is looked after again by now, for other units, was asked for under the same key before this.
            ids = [tuple(frame.id) for frame in frames if not frame.flags & BACKLOG or not self._is_for_absent(frame)]
            for at in range(0, len(ids), MAX_IDS):
                link.send(Release(tuple(ids[at : at + MAX_IDS])), now_ns)  # type: ignore[arg-type]

    def _is_for_absent(self, frame: EventFrame) -> bool:
        return event_key(frame) in self._for_absent

    def _drop(self, keys: list[EventKey]) -> list[EventFrame]:
        self._ledger.write(Released(tuple(keys)))
        for key in keys:
            self._since_ns.pop(key, None)
        dropped = [self._kept.pop(key) for key in keys if key in self._kept]
        self._kept_bytes -= sum(len(frame.tail) for frame in dropped)
        return dropped

    def _watch(self, now_ns: int) -> None:
        reach = self._map.reachable()
        neighbours = [link.neighbour for link in self._links.values()]
        for asker in dict.fromkeys(asker_of(key, frame) for key, frame in self._kept.items()):
            seen = as_seen(self._map.host, asker)
            if seen in reach if len(seen) == len(asker) else asker in neighbours:
                self._missing_ns.pop(asker, None)
            elif now_ns - self._missing_ns.setdefault(asker, now_ns) >= self._settings.takeover_ns:
                del self._missing_ns[asker]
                self._take_over(asker, now_ns)

    def _take_over(self, asker: Address, now_ns: int) -> None:
        keys = [key for key, frame in self._kept.items() if asker_of(key, frame) == asker]
        ages_ms = [(now_ns - self._since_ns.get(key, now_ns)) // MILLISECOND_NS for key in keys]
        for frame, age_ms in zip(self._drop(keys), ages_ms, strict=True):
            ttl_ms = frame.ttl_ms if frame.ttl_ms == NO_TTL else max(0, frame.ttl_ms - age_ms)
            units = units_of(frame.to_serve, asker, self._settings.fanout) if frame.flags & BACKLOG else ()
            original = frame.copy(0, frame.served, ttl_ms)
            original.flags = original.flags & ~COPY | BACKLOG  # another holder's may have come first: then it is late
            self.adopt(original, units, now_ns)

    @property
    def is_busy(self) -> bool:
        """Whether there is something to look after, now and then."""
        return bool(self._kept or self._releases or self._waiting)

    @property
    def _is_stranded(self) -> bool:
        """Whether something waits that nobody was asked to hold."""
        return bool(self._waiting) and self._present is None

    def __len__(self) -> int:
        return len(self._kept)


def looked_after(asker: Address, key: EventKey) -> EventKey:
    """The key of an event that a broker looks after for others: its origin may have asked for a copy of it too."""
    return (ASKER + bytes(asker) + key[0], *key[1:])


def asker_of(key: EventKey, frame: EventFrame) -> Address:
    """Whom a copy is kept for: its origin, or who looks after it."""
    origin = frame.origin_address
    assert origin is not None
    return tuple(key[0][1 : 1 + len(origin)]) if frame.flags & BACKLOG else origin


def _why_unreadable(frame: EventFrame) -> str | None:
    """Why a copy could not be published by its holder."""
    if frame.origin_address is None or not frame.reliable:
        return "it has no origin, or is best effort"
    if bool(frame.flags & BACKLOG) != bool(frame.to_serve):
        return "a backlog is for units, and nothing else is"
    if frame.tail[: len(ASKER)] == ASKER:
        return "its publisher's id is not printable"
    try:
        frame.event()
    except InvalidEvent as error:
        return str(error)
    return None


def units_of(vector: int, address: Address, fanout: int) -> tuple[Unit, ...]:
    """The units that a vector names as seen from an address."""
    return tuple((*address[: len(address) - 1 - at // fanout], at % fanout) for at in identifiers(vector))
