"""Where an event is accepted: its publisher, its place in the log, and how far each unit around has been served.

*Accepted* means synced to this broker's log (GUA-02, I5). The log is the only parking place: for every unit around the
broker there is a cursor, below which the unit has everything. At most `WINDOW` events of a unit are on their way at
once; what is beyond stays in the log and is read back, in order, when there is room and a way. After a crash everything
from the cursors on is sent again, and the ends drop what they have had.

An event outlives neither its time to live nor the retention: what is still open then is a dead letter, published under
`DEAD_LETTERS` with the reason and named in an effect.

A publisher gets a new incarnation with every session (DUP-08), made of the time and this broker's address, so that no
two are alike. Its events must come in order: an id that is not later than the last one of its lane is refused.

The invariant: for every unit, each offset is below its cursor, on its way, or at or above the offset from which the log
is to be read for it; and what is on its way is in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from hashlib import blake2b

from veena.address import Address, identifiers
from veena.core.boundary import Accepted, DeadLetter, Effect, LogRead, Publish, PublishRefused, Read, Welcome
from veena.core.copies import Copies
from veena.core.disk import Disk, Entry, Place, Progress
from veena.core.event_frame import BACKLOG, NO_TTL, EventCodec, EventFrame
from veena.core.flight import LOG, MILLISECOND_NS, Flight, event_key
from veena.core.interest import InterestMap
from veena.core.ledger import Ledger
from veena.core.router import Router
from veena.core.settings import Settings
from veena.errors import InvalidEvent
from veena.event import Event, EventId

#: Events of one unit that are on their way at once.
WINDOW = 1024
#: Entries that are read back at once.
READ_BATCH = 256
#: How often cursors are written: what a crash makes this broker send again.
PROGRESS_NS = 1_000_000_000
#: How finely the age of a log entry is known, and for how many of the last ones.
MARK_NS = 1_000_000_000
MAX_MARKS = 8192
#: Where events go that could not be delivered in time.
DEAD_LETTERS = "veena.dead-letters"


@dataclass(frozen=True, slots=True)
class OriginStatistics:
    accepted: int
    refused: int
    next_offset: int
    #: Log entries that are not served everywhere, and units that wait for their part of the log to be read.
    open: int
    parked: int
    dead_letters: int


@dataclass(slots=True)
class _Pending:
    """An entry on its way to this disk, and to another one where two copies are asked for."""

    session: int | None
    entry: Entry
    needs_copy: bool
    needs_sync: bool = True
    failed: str | None = None


@dataclass(slots=True)
class _UnderWay:
    """An entry that was sent, with the units that do not have it yet."""

    entry: Entry
    mask: int


class Origin:
    """The events that one broker has accepted."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        router: Router,
        copies: Copies,
        interest: InterestMap,
        ledger: Ledger,
        effects: list[Effect],
        disk: Disk,
    ) -> None:
        self._host = host
        self._settings = settings
        self._router = router
        self._interest = interest
        self._ledger = ledger
        self._effects = effects
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        self._mark = int.from_bytes(blake2b(bytes(host), digest_size=2).digest(), "big") & 0xFFF
        self._last_incarnation = 0
        self._publishers: dict[int, tuple[str, int]] = {}
        #: (session, lane) -> the place of the last event that came.
        self._latest: dict[tuple[int, int], Place] = {}
        self._next_offset = disk.next_offset
        #: Offsets below this are on disk.
        self._synced = self._next_offset
        #: By unit bit: the offsets on their way, ascending.
        self._open: dict[int, dict[int, None]] = {}
        #: The entries on their way, with the units that are still to be served.
        self._under_way: dict[int, _UnderWay] = {}
        #: (time, first offset after it), some a second apart: how old an offset is at least.
        self._marks: deque[tuple[int, int]] = deque(
            (entry.accepted_ns, entry.offset) for entry in disk.entries[:: max(1, len(disk.entries) // MAX_MARKS)]
        )
        #: By unit bit: from where the log is to be read for it.
        self._parked: dict[int, int] = {}
        self._reading: dict[int, int] = {}
        self._ticket = 0
        self._cursors: dict[int, int] = dict(disk.cursors)
        self._progress_at_ns: int | None = None
        self._ticked_ns = 0
        self._appended_ns = disk.entries[-1].accepted_ns if disk.entries else 0
        self._accepted = self._refused = self._dead = 0
        self._letters = 0
        #: Entries that are not safe yet, in order.
        self._pending: dict[int, _Pending] = {}
        self._copies = copies
        copies.on_copied = lambda offset, now_ns: self._is_safe(offset, False, now_ns)
        copies.adopt = self.adopt
        router.duties.on_served = self._served
        for entry in disk.entries:
            for at in identifiers(entry.frame.to_serve & ~router.me):  # the clients of a former life are gone
                if entry.offset >= self._cursors.get(1 << at, 0):
                    self._parked.setdefault(1 << at, entry.offset)

    # --- publishers ---

    def welcome(self, session: int, client_id: str, now_ns: int) -> None:
        """A client attached: give it an incarnation that nobody has had."""
        self._last_incarnation = max(now_ns // 1000 << 12 | self._mark, self._last_incarnation + (1 << 12))
        self._publishers[session] = (client_id, self._last_incarnation)
        self._effects.append(Welcome(session, self._last_incarnation))

    def farewell(self, session: int) -> None:
        self._publishers.pop(session, None)
        for lane in range(6):
            self._latest.pop((session, lane), None)

    def publish(self, given: Publish, is_ready: bool, now_ns: int) -> None:
        """Take an event in, or say why not."""
        frame = given.frame
        try:
            if not is_ready:
                raise InvalidEvent("this broker does not know yet who wants what: publish again in a moment")
            self._check(given.session, frame)
            event = frame.event()
        except InvalidEvent as error:
            self._refuse(given.session, frame, str(error))
            return
        wanted = self._interest.destinations(event, self._host) | self._router.me
        frame = frame.copy(wanted, self._router.me, frame.ttl_ms)
        frame.origin = bytes(self._host)
        if frame.reliable:
            self._append(given.session, frame, now_ns)
        else:
            self._accepted += 1
            self._effects.append(Accepted(given.session, frame.id))
            self._router.pass_on(frame, now_ns)

    def _check(self, session: int, frame: EventFrame) -> None:
        client_id, incarnation = self._publishers.get(session, ("", -1))
        if frame.publisher != client_id or frame.incarnation != incarnation:
            raise InvalidEvent(
                f"event {frame.id} of session {session}: expected publisher {client_id!r} and the incarnation"
                f" {incarnation} that it was given"
            )
        place, lane = (frame.timestamp, frame.sequence), (session, frame.lane_number)
        if place <= self._latest.get(lane, (-1, -1)):
            raise InvalidEvent(f"event {frame.id}: not later than the one before it in its lane; give it a new id")
        if frame.to_serve or frame.served:
            raise InvalidEvent(f"event {frame.id} names units: destinations are the broker's to compute")
        if frame.reliable and len(self._under_way) >= self._settings.max_open:
            raise InvalidEvent(f"event {frame.id}: {len(self._under_way)} events wait here already; publish it later")
        self._latest[lane] = place

    def _refuse(self, session: int, frame: EventFrame, reason: str) -> None:
        self._refused += 1
        try:
            event_id = frame.id
        except InvalidEvent:
            event_id = EventId("?", frame.incarnation, frame.timestamp, frame.sequence)
        self._effects.append(PublishRefused(session, event_id, reason))

    # --- the log ---

    def adopt(self, frame: EventFrame, now_ns: int) -> None:
        """Publish an event of an origin that is gone: it keeps its id and its origin."""
        origin = frame.origin_address or self._host
        wanted = self._interest.destinations(frame.event(), origin) | self._router.me
        self._append(None, frame.copy(wanted, self._router.me, frame.ttl_ms), now_ns)

    def look_after(self, flight: Flight, mask: int, now_ns: int) -> None:
        """Keep an event for units that are absent: it is in this log from now on, and its upstreams need not wait."""
        kept = flight.frame.copy(mask, flight.frame.served, flight.ttl_ms(now_ns))
        kept.flags |= BACKLOG
        self._append(None, kept, now_ns)

    def _append(self, session: int | None, frame: EventFrame, now_ns: int) -> None:
        entry = Entry(self._next_offset, frame, now_ns)
        self._next_offset += 1
        self._appended_ns = now_ns
        if not self._marks or now_ns >= self._marks[-1][0] + MARK_NS:
            self._marks.append((now_ns, entry.offset))
            if len(self._marks) > MAX_MARKS:
                self._marks.popleft()
        needs_copy = session is not None and self._settings.copies == 2
        self._pending[entry.offset] = _Pending(session, entry, needs_copy)

        def failed(reason: str, now_ns: int) -> None:
            self._pending[entry.offset].failed = reason
            self._settle(now_ns)

        self._ledger.write(entry, lambda now_ns: self._is_safe(entry.offset, True, now_ns), failed)
        if needs_copy:
            self._copies.ask(entry.offset, frame, now_ns)

    def _is_safe(self, offset: int, here: bool, now_ns: int) -> None:
        """An entry is on this disk, or on another one."""
        pending = self._pending.get(offset)
        if pending is not None:
            if here:
                pending.needs_sync = False
            else:
                pending.needs_copy = False
            self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        """Accept what is safe, in the order in which it came."""
        while self._pending:
            offset, pending = next(iter(self._pending.items()))
            if pending.failed is None and (pending.needs_sync or pending.needs_copy):
                return
            del self._pending[offset]
            self._synced = offset + 1
            if pending.failed is not None:
                self._copies.forget(offset)
                if pending.session is not None:
                    reason = f"this broker's disk did not take it: {pending.failed}; try another broker"
                    self._refuse(pending.session, pending.entry.frame, reason)
                continue
            self._accepted += 1
            if pending.session is not None:
                self._effects.append(Accepted(pending.session, pending.entry.frame.id))
            self._begin(pending.entry, now_ns)

    def _begin(self, entry: Entry, now_ns: int) -> None:
        """An entry is on disk: send it where there is room, leave it in the log for the rest."""
        now = 0
        for at in identifiers(entry.frame.to_serve):
            bit = 1 << at
            if bit in self._parked or (bit != self._router.me and len(self._open.get(bit, ())) >= WINDOW):
                self._parked.setdefault(bit, entry.offset)
            else:
                now |= bit
        self._send(entry, now, now_ns)
        if entry.frame.flags & BACKLOG:
            self._router.relieve(event_key(entry.frame), entry.frame.to_serve)

    def _send(self, entry: Entry, mask: int, now_ns: int) -> None:
        if not mask:
            return
        for at in identifiers(mask):
            self._open.setdefault(1 << at, {})[entry.offset] = None
        self._under_way.setdefault(entry.offset, _UnderWay(entry, 0)).mask |= mask
        frame = entry.frame
        ttl_ms = frame.ttl_ms
        if ttl_ms != NO_TTL:
            ttl_ms = max(0, ttl_ms - (now_ns - entry.accepted_ns) // MILLISECOND_NS)
        self._router.take(LOG, entry.offset, frame.copy(mask, frame.served, ttl_ms), now_ns)

    def _served(self, offset: int, mask: int, now_ns: int) -> None:
        for at in identifiers(mask):
            self._cursors.setdefault(1 << at, 0)
            waiting = self._open[1 << at]
            del waiting[offset]
            if not waiting:
                del self._open[1 << at]
        under_way = self._under_way[offset]
        under_way.mask &= ~mask
        if not under_way.mask:
            del self._under_way[offset]
        if self._progress_at_ns is None:
            self._progress_at_ns = now_ns + PROGRESS_NS

    def pump(self, now_ns: int) -> None:
        """Read back what there is room and a way for."""
        for bit, offset in self._parked.items():
            if len(self._open.get(bit, ())) <= WINDOW // 2 and self._router.has_hop(bit):
                self._read(bit, offset)

    def _read(self, bit: int, offset: int) -> None:
        if bit not in self._reading and offset < self._synced:
            self._ticket += 1
            self._reading[bit] = self._ticket
            self._effects.append(Read(self._ticket, offset, READ_BATCH))

    def _is_too_old(self, offset: int, now_ns: int) -> bool:
        """Whether the entry at this offset has outlived its retention: to be read as a dead letter."""
        after = next((since for since, first in self._marks if first >= offset), self._appended_ns)
        return after < now_ns - self._settings.retention_ns

    def on_read(self, given: LogRead, now_ns: int) -> None:
        bits = [bit for bit, ticket in self._reading.items() if ticket == given.ticket]
        for bit in bits:
            del self._reading[bit]
            next_offset = self._parked[bit]
            for entry in given.entries:
                if entry.offset >= self._synced:
                    break
                next_offset = entry.offset + 1
                if entry.frame.to_serve & bit:
                    self._read_back(entry, bit, now_ns)
            if next_offset >= self._synced or not given.entries:
                del self._parked[bit]
            else:
                self._parked[bit] = next_offset
        if self._progress_at_ns is None:
            self._progress_at_ns = now_ns + PROGRESS_NS

    def _read_back(self, entry: Entry, bit: int, now_ns: int) -> None:
        """One parked event for one unit: unless it is too old, or that unit has spoken since and does not want it."""
        if now_ns - entry.accepted_ns > self._settings.retention_ns:
            self._bury(entry.frame, bit, now_ns)
        elif self._interest.destinations(entry.frame.event(), entry.frame.origin_address or self._host) & bit:
            self._send(entry, bit, now_ns)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Give up what is too old, and write how far everybody is."""
        if now_ns >= self._ticked_ns + MARK_NS:
            self._ticked_ns = now_ns
            self._give_up(now_ns - self._settings.retention_ns, now_ns)
            for bit, offset in self._parked.items():
                if self._is_too_old(offset, now_ns):
                    self._read(bit, offset)
        if self._progress_at_ns is not None and now_ns >= self._progress_at_ns:
            self._progress_at_ns = None
            self._write_progress()

    def _give_up(self, before_ns: int, now_ns: int) -> None:
        """What was accepted before then and is still open is a dead letter."""
        for under_way in list(self._under_way.values()):
            if under_way.entry.accepted_ns >= before_ns:
                continue
            frame, mask = under_way.entry.frame, under_way.mask
            self._bury(frame, mask, now_ns)
            self._router.abandon(event_key(frame), mask, now_ns)

    def _bury(self, frame: EventFrame, mask: int, now_ns: int) -> None:
        self._dead += 1
        units = tuple(self._router.unit(1 << at) for at in identifiers(mask))
        reason = f"not delivered within the retention of {self._settings.retention_ns // 1_000_000_000} s"
        self._effects.append(DeadLetter(frame.id, units, reason))
        self._letters += 1
        letter = Event(
            topic=DEAD_LETTERS,
            headers={"reason": reason, "event": str(frame.id)},
            properties={"units": ",".join(".".join(map(str, unit)) for unit in units)},
            body=bytes(frame.body),
            id=EventId(f"{DEAD_LETTERS}.{'.'.join(map(str, self._host))}", self._mark, now_ns, self._letters),
            timestamp_ns=now_ns,
        )
        wanted = self._interest.destinations(letter, self._host) | self._router.me
        best_effort = self._codec.frame(letter, origin=self._host, to_serve=wanted, served=self._router.me)
        self._router.pass_on(best_effort, now_ns)

    def _write_progress(self) -> None:
        cursors: list[tuple[int, int]] = []
        for bit in {**self._open, **self._parked, **self._cursors}:
            waiting = self._open.get(bit)
            cursor = min(
                next(iter(waiting)) if waiting else self._synced,
                self._parked.get(bit, self._synced),
            )
            if cursor != self._cursors.get(bit):
                self._cursors[bit] = cursor
                cursors.append((bit, cursor))
        if cursors:
            self._ledger.write(Progress(tuple(cursors)))
        self._copies.served_below(min(self._cursors.values(), default=self._synced))

    def next_wakeup(self) -> int | None:
        due: list[int] = []
        if self._marks and (self._under_way or self._parked):
            due.append(max(self._marks[0][0] + self._settings.retention_ns, self._ticked_ns + MARK_NS))
        if self._progress_at_ns is not None:
            due.append(self._progress_at_ns)
        return min(due, default=None)

    def statistics(self) -> OriginStatistics:
        return OriginStatistics(
            self._accepted, self._refused, self._next_offset, len(self._under_way), len(self._parked), self._dead
        )

    def check(self) -> None:
        for bit, waiting in self._open.items():
            assert waiting, "a unit without open events has no entry"
            assert list(waiting) == sorted(waiting), "what is on its way to a unit is in order"
            if bit in self._parked:
                assert next(reversed(waiting)) < self._parked[bit], "the log is read for what comes later only"
