"""Where an event is accepted: its publisher, its place in the log, and how far each unit around has been served.

*Accepted* means synced to this broker's log (GUA-02, I5). The log is the only parking place: for every unit around the
broker there is a cursor, below which the unit has everything. At most `WINDOW` events of a unit and lane are on their
way at once; what is beyond stays in the log and is read back, in order, when there is room and a way. After a crash
everything from the cursors on is sent again, and the ends drop what they have had.

An event outlives neither its time to live nor the retention: what is still open then is a dead letter, published under
`DEAD_LETTERS` with the reason and named in an effect.

A publisher gets a new incarnation with every session (DUP-08), made of the time and this broker's address, so that no
two are alike. Its events must come in order: an id that is not later than the last one of its lane is refused.

The invariant: for every unit, each offset is below its cursor, on its way, or at or above the offset from which the log
is to be read for it; and what is on its way is in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from veena.address import Address, as_seen, identifiers
from veena.core.boundary import Accepted, DeadLetter, Effect, Publish, PublishRefused, Welcome
from veena.core.copies import Copies
from veena.core.disk import Disk, Entry, Place, Progress
from veena.core.event_frame import BACKLOG, NO_TTL, EventCodec, EventFrame
from veena.core.flight import LOG, MILLISECOND_NS, Flight, event_key
from veena.core.interest import InterestMap
from veena.core.ledger import Ledger
from veena.core.log_reader import LogReader
from veena.core.notes import What
from veena.core.pending import Pending, UnderWay
from veena.core.pressure import Pressure
from veena.core.router import Router
from veena.core.settings import Settings
from veena.core.whereabouts import is_internal
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
#: A unit's bit and a lane: a flood in one lane must not park the others behind it in the log.
Way = tuple[int, int]
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
    #: Bytes of the log that somebody waits for, and publishers that were told to pause.
    log_bytes: int = 0
    paused: int = 0


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
        reader: LogReader,
        effects: list[Effect],
        disk: Disk,
    ) -> None:
        self._records = router.records
        self._host = host
        self._settings = settings
        self._router = router
        self._interest = interest
        self._ledger = ledger
        self._reader = reader
        self._effects = effects
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        self._mark = int.from_bytes(blake2b(bytes(host), digest_size=2).digest(), "big") & 0xFFF
        self._last_incarnation = 0
        self._publishers: dict[int, tuple[str, int]] = {}
        #: (session, lane) -> the place of the last event that came.
        self._latest: dict[tuple[int, int], Place] = {}
        #: Called when an entry for inboxes is on disk.
        self.on_kept: Callable[[Entry, int], None] = lambda entry, now_ns: None
        self._next_offset = disk.next_offset
        #: Offsets below this are on disk.
        self._synced = self._next_offset
        self.pressure = Pressure(settings, effects)
        #: By unit bit and lane: the offsets on their way, ascending.
        self._open: dict[Way, dict[int, None]] = {}
        #: The entries on their way, with the units that are still to be served.
        self._under_way: dict[int, UnderWay] = {}
        #: (time, first offset after it), some a second apart: how old an offset is at least.
        self._marks: deque[tuple[int, int]] = deque(
            (entry.accepted_ns, entry.offset) for entry in disk.entries[:: max(1, len(disk.entries) // MAX_MARKS)]
        )
        #: From where the log is to be read for it.
        self._parked: dict[Way, int] = {}
        self._reading: dict[Way, None] = {}
        self._cursors: dict[int, int] = dict(disk.cursors)
        self._progress_at_ns: int | None = None
        self._ticked_ns = 0
        self._appended_ns = disk.entries[-1].accepted_ns if disk.entries else 0
        self._accepted = self._refused = self._dead = self._letters = 0
        #: Entries that are not safe yet, in order.
        self._pending: dict[int, Pending] = {}
        self._copies = copies
        copies.on_copied = lambda offset, now_ns: self._is_safe(offset, False, now_ns)
        copies.adopt = self.adopt
        router.duties.on_served = self._served
        for entry in disk.entries:
            # The clients of a former life are gone, except those for whom events are kept.
            for at in identifiers(entry.frame.to_serve & (~0 if disk.registered else ~router.me)):
                if entry.offset >= self._cursors.get(1 << at, 0):
                    self._parked.setdefault((1 << at, entry.frame.lane_number), entry.offset)
            self.pressure.grown(entry.offset, len(entry.frame.tail))

    # --- publishers ---

    def welcome(self, session: int, client_id: str, reply_to: str, now_ns: int) -> None:
        """A client attached: give it an incarnation that nobody has had."""
        self._publishers[session] = (client_id, self.new_incarnation(now_ns))
        self._effects.append(Welcome(session, self._last_incarnation, reply_to))

    def new_incarnation(self, now_ns: int) -> int:
        """A number that is above all that were given before, here and (as far as clocks agree) elsewhere."""
        self._last_incarnation = max(now_ns // 1000 << 12 | self._mark, self._last_incarnation + (1 << 12))
        return self._last_incarnation

    def farewell(self, session: int) -> None:
        self.pressure.farewell(session)
        self._publishers.pop(session, None)
        for lane in range(6):
            self._latest.pop((session, lane), None)

    def publish(self, given: Publish, is_ready: bool, now_ns: int) -> bool:
        """Take an event in, or say why not and return False."""
        frame = given.frame
        try:
            if not is_ready:
                raise InvalidEvent("this broker does not know yet who wants what: publish again in a moment")
            self._check(given.session, frame)
            event = frame.event()
            if event.to and any(map(is_internal, event.to)):
                raise InvalidEvent(f"event {frame.id}: ids that begin with ~ are the brokers' own; name clients")
        except InvalidEvent as error:
            self._refuse(given.session, frame, str(error))
            return False
        wanted = self._interest.destinations(event, self._host) | self._router.me
        frame = frame.copy(wanted, self._router.me, frame.ttl_ms)
        frame.origin = bytes(self._host)
        if frame.reliable:
            self._append(given.session, frame, now_ns)
        else:
            self._accepted += 1
            self._effects.append(Accepted(given.session, frame.id))
            self._note(Entry(0, frame, now_ns), What.ACCEPTED, now_ns)
            self._router.pass_on(frame, now_ns)
        return True

    def _note(self, entry: Entry, what: What, now_ns: int) -> None:
        if self._records.is_on and entry.frame.to_serve:
            units = self._router.units(entry.frame.to_serve)
            self._records.note(entry.frame, what, now_ns, units=units, offset=entry.offset)

    def is_parked(self, bit: int, lane: int, offset: int) -> bool:
        """Whether a unit still has to be sent what lies there in the log."""
        return (bit, lane) in self._parked and self._parked[bit, lane] <= offset

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
        if frame.reliable:
            reason = self.pressure.admit(session, len(self._under_way) + len(self._pending))
            if reason is not None:
                raise InvalidEvent(f"event {frame.id}: {reason}; publish it later")
        self._latest[lane] = place

    def _refuse(self, session: int, frame: EventFrame, reason: str) -> None:
        self._refused += 1
        try:
            event_id = frame.id
        except InvalidEvent:
            event_id = EventId("?", frame.incarnation, frame.timestamp, frame.sequence)
        self._effects.append(PublishRefused(session, event_id, reason))

    # --- the log ---

    def post(self, event: Event, reliable: bool, now_ns: int) -> None:
        """Publish an event of this broker's own (`post`)."""
        wanted = self._interest.destinations(event, self._host) | self._router.me
        frame = self._codec.frame(event, reliable=reliable, origin=self._host, to_serve=wanted, served=self._router.me)
        if reliable:
            self._append(None, frame, now_ns)
        else:
            self._router.pass_on(frame, now_ns)

    def keep(self, frame: EventFrame, inboxes: tuple[int, ...], now_ns: int) -> int:
        """Keep an event for durable subscriptions of this broker; its offset."""
        self._append(None, frame.copy(0, frame.served, frame.ttl_ms), now_ns, inboxes)
        return self._next_offset - 1

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def adopt(self, frame: EventFrame, now_ns: int) -> None:
        """Publish an event of an origin that is gone: it keeps its id and its origin."""
        origin = frame.origin_address or self._host
        wanted = self._interest.destinations(frame.event(), origin) | self._router.me
        if origin[:-1] != self._host[:-1]:
            # What is wanted there within a scope that ends below this broker is told to nobody here.
            wanted |= self._interest.bit(as_seen(self._host, origin))
        self._append(None, frame.copy(wanted, self._router.me, frame.ttl_ms), now_ns)

    def look_after(self, flight: Flight, mask: int, now_ns: int) -> None:
        """Keep an event for units that are absent: it is in this log from now on, and its upstreams need not wait."""
        kept = flight.frame.copy(mask, flight.frame.served, flight.ttl_ms(now_ns))
        kept.flags |= BACKLOG
        self._append(None, kept, now_ns)

    def _append(
        self,
        session: int | None,
        frame: EventFrame,
        now_ns: int,
        inboxes: tuple[int, ...] = (),
        widens: Pending | None = None,
    ) -> None:
        entry = Entry(self._next_offset, frame, now_ns, inboxes)
        self._next_offset += 1
        self._appended_ns = now_ns
        if not self._marks or now_ns >= self._marks[-1][0] + MARK_NS:
            self._marks.append((now_ns, entry.offset))
            if len(self._marks) > MAX_MARKS:
                self._marks.popleft()
        self.pressure.grown(entry.offset, len(frame.tail))
        needs_copy = session is not None and self._settings.copies == 2
        pending = Pending(session, entry, needs_copy, known=self._interest.state(), widens=widens)
        self._pending[entry.offset] = pending

        def failed(reason: str, now_ns: int) -> None:
            pending.failed = reason
            if widens is not None:
                widens.failed = reason
            self._settle(now_ns)

        # What was taken on for others cannot be refused to anybody: it is written until it is there.
        is_ours = session is None and widens is None
        then = lambda now_ns: self._is_safe(entry.offset, True, now_ns)  # noqa: E731
        self._ledger.write(entry, then, failed, stubborn=is_ours)
        if needs_copy:
            self._copies.ask(entry.offset, frame, now_ns)

    def _is_safe(self, offset: int, here: bool, now_ns: int) -> None:
        """An entry is on this disk, or on another one."""
        pending = self._pending.get(offset)
        if pending is not None:
            if here:
                (pending.widens or pending).needs_sync = pending.needs_sync = False
            else:
                pending.needs_copy = False
            self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        """Accept what is safe, in the order in which it came; refuse at once what is not to be."""
        for offset, pending in [each for each in self._pending.items() if each[1].failed is not None]:
            del self._pending[offset]
            self._copies.forget(offset)
            if pending.session is not None:
                reason = f"this broker's disk did not take it: {pending.failed}; try another broker"
                self._refuse(pending.session, pending.entry.frame, reason)
        while self._pending:
            offset, pending = next(iter(self._pending.items()))
            if pending.needs_sync or pending.needs_copy:
                return
            if pending.known != self._interest.state() and self._widen(pending, now_ns):
                return
            del self._pending[offset]
            self._synced = offset + 1
            self._accepted += 1
            if pending.session is not None:
                self._effects.append(Accepted(pending.session, pending.entry.frame.id))
            self._note(pending.entry, What.LOGGED if pending.session is None else What.ACCEPTED, now_ns)
            self._begin(pending.entry, now_ns)
            if pending.entry.inboxes:
                self.on_kept(pending.entry, now_ns)

    def _widen(self, pending: Pending, now_ns: int) -> bool:
        """Whether more units want an event than when it came: it was promised to them if they were acknowledged before
        it is accepted. The log has it once more for these, before that."""
        frame, pending.known = pending.entry.frame, self._interest.state()
        wanted = self._interest.destinations(frame.event(), self._host) if pending.session is not None else 0
        more = wanted & ~frame.to_serve
        if more:
            pending.entry = replace(pending.entry, frame=frame.copy(frame.to_serve | more, frame.served, frame.ttl_ms))
            pending.needs_sync = True
            again = frame.copy(more, frame.served, frame.ttl_ms)
            again.flags |= BACKLOG
            self._append(None, again, now_ns, widens=pending)
        return bool(more)

    def _begin(self, entry: Entry, now_ns: int) -> None:
        """An entry is on disk: send it where there is room, leave it in the log for the rest."""
        now = 0
        lane = entry.frame.lane_number
        for at in identifiers(entry.frame.to_serve):
            bit = 1 << at
            way = (bit, lane)
            if way in self._parked or (bit != self._router.me and len(self._open.get(way, ())) >= WINDOW):
                self._parked.setdefault(way, entry.offset)
            else:
                now |= bit
        self._send(entry, now, now_ns)
        if entry.frame.flags & BACKLOG:
            self._router.relieve(event_key(entry.frame), entry.frame.to_serve)

    def _send(self, entry: Entry, mask: int, now_ns: int) -> None:
        if not mask:
            return
        frame = entry.frame
        lane = frame.lane_number
        for at in identifiers(mask):
            self._open.setdefault((1 << at, lane), {})[entry.offset] = None
        self._under_way.setdefault(entry.offset, UnderWay(entry, 0)).mask |= mask
        ttl_ms = frame.ttl_ms
        if ttl_ms != NO_TTL:
            ttl_ms = max(0, ttl_ms - (now_ns - entry.accepted_ns) // MILLISECOND_NS)
        self._router.take(LOG, entry.offset, frame.copy(mask, frame.served, ttl_ms), now_ns)

    def _served(self, offset: int, mask: int, now_ns: int) -> None:
        under_way = self._under_way[offset]
        lane = under_way.entry.frame.lane_number
        for at in identifiers(mask):
            self._cursors.setdefault(1 << at, 0)
            waiting = self._open[1 << at, lane]
            del waiting[offset]
            if not waiting:
                del self._open[1 << at, lane]
        under_way.mask &= ~mask
        if not under_way.mask:
            del self._under_way[offset]
        if self._progress_at_ns is None:
            self._progress_at_ns = now_ns + PROGRESS_NS

    def pump(self, now_ns: int) -> None:
        """Read back what there is room and a way for."""
        for way, offset in self._parked.items():
            if len(self._open.get(way, ())) <= WINDOW // 2 and self._router.has_hop(way[0]):
                self._read(way, offset)
        if self.pressure.is_high:
            self.pressure.relieve(len(self._under_way) + len(self._pending))

    def _read(self, way: Way, offset: int) -> None:
        if way not in self._reading and offset < self._synced:
            self._reading[way] = None
            self._reader.read(offset, READ_BATCH, lambda entries, now_ns: self._found(way, entries, now_ns))

    def _is_too_old(self, offset: int, now_ns: int) -> bool:
        """Whether the entry at this offset has outlived its retention: to be read as a dead letter."""
        after = next((since for since, first in self._marks if first >= offset), self._appended_ns)
        return after < now_ns - self._settings.retention_ns

    def _found(self, way: Way, entries: Sequence[Entry], now_ns: int) -> None:
        """What the log holds for a unit, and of it what is of this lane."""
        bit, lane = way
        del self._reading[way]
        next_offset = self._parked[way]
        for entry in entries:
            if entry.offset >= self._synced:
                break
            next_offset = entry.offset + 1
            if entry.frame.to_serve & bit and entry.frame.lane_number == lane:
                self._read_back(entry, bit, now_ns)
        if next_offset >= self._synced or not entries:
            del self._parked[way]
        else:
            self._parked[way] = next_offset
        if self._progress_at_ns is None:
            self._progress_at_ns = now_ns + PROGRESS_NS

    def _read_back(self, entry: Entry, bit: int, now_ns: int) -> None:
        """One parked event for one unit: unless it is too old, or that unit has spoken since and does not want it."""
        if now_ns - entry.accepted_ns > self._settings.retention_ns:
            self._bury(entry.frame, bit, now_ns)
        elif bit == self._router.me or (
            self._interest.destinations(entry.frame.event(), entry.frame.origin_address or self._host) & bit
        ):
            self._send(entry, bit, now_ns)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Give up what is too old, and write how far everybody is."""
        if now_ns >= self._ticked_ns + MARK_NS:
            self._ticked_ns = now_ns
            self._give_up(now_ns - self._settings.retention_ns, now_ns)
            for way, offset in self._parked.items():
                if self._is_too_old(offset, now_ns):
                    self._read(way, offset)
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
        lowest: dict[int, int] = dict.fromkeys(self._cursors, self._synced)
        for (bit, _), waiting in self._open.items():
            lowest[bit] = min(lowest.get(bit, self._synced), next(iter(waiting)))
        for (bit, _), offset in self._parked.items():
            lowest[bit] = min(lowest.get(bit, self._synced), offset)
        cursors = [(bit, cursor) for bit, cursor in lowest.items() if cursor != self._cursors.get(bit)]
        self._cursors.update(cursors)
        if cursors:
            self._ledger.write(Progress(tuple(cursors)))
        served = min(self._cursors.values(), default=self._synced)
        self._copies.served_below(served)
        self.pressure.needed_from(served, self._next_offset)

    def next_wakeup(self) -> int | None:
        due: list[int] = []
        if self._marks and (self._under_way or self._parked):
            due.append(max(self._marks[0][0] + self._settings.retention_ns, self._ticked_ns + MARK_NS))
        if self._progress_at_ns is not None:
            due.append(self._progress_at_ns)
        return min(due, default=None)

    def statistics(self) -> OriginStatistics:
        return OriginStatistics(
            self._accepted,
            self._refused,
            self._next_offset,
            len(self._under_way),
            len(self._parked),
            self._dead,
            self.pressure.log_bytes,
            len(self.pressure.paused),
        )

    def check(self) -> None:
        self.pressure.check()
        for way, waiting in self._open.items():
            assert waiting, "a unit without open events has no entry"
            assert list(waiting) == sorted(waiting), "what is on its way to a unit is in order"
            if way in self._parked:
                assert next(reversed(waiting)) < self._parked[way], "the log is read for what comes later only"
