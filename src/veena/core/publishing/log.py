"""Where an event is accepted: its place in the log, and how far each unit around has been served.

*Accepted* means synced to this broker's log (GUA-02, I5). The log is the only parking place: for every unit around the
broker there is a cursor, below which the unit has everything. At most `WINDOW` events of a unit and lane are on their
way at once, and while there is no way some more; the rest stays in the log and is read back, in order. After a crash
everything from the cursors on is sent again, and the ends drop what they have had.

An event outlives neither its time to live nor the retention: what is still open then is a dead letter (`dead_letter`).

The invariant: for every unit, each offset is below its cursor, on its way, or at or above the offset from which the log
is to be read for it; and what is on its way is in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b

from veena.address import Address, Unit, identifiers
from veena.core.boundary.inputs_effects import Accepted, AcceptedRun, DeadLetter, DeliverBurst, Effect, PublishRefused
from veena.core.boundary.settings import READ_BATCH, Settings
from veena.core.boundary.stored import Disk, Entries, Entry
from veena.core.boundary.tickets import Ledger, LogReader
from veena.core.delivery.fast_path import PlainWay
from veena.core.delivery.in_flight import LOG, Flight, Run
from veena.core.interest.interest_map import InterestMap
from veena.core.publishing.backpressure import Pressure
from veena.core.publishing.cursors import MARK_NS, Cursors, LogAges, Way
from veena.core.publishing.dead_letters import dead_letter
from veena.core.publishing.pending import OriginStatistics, Pending, UnderWay
from veena.core.publishing.read_back import together
from veena.core.publishing.replica_holder import why_unreadable
from veena.core.publishing.replica_sender import Copies
from veena.core.routing.router import Router
from veena.core.routing.run_router import Plan, RunWay
from veena.core.wire.burst import EventBurst
from veena.core.wire.event import BACKLOG, EventCodec, EventFrame
from veena.core.wire.event_id import Stream, event_key
from veena.core.wire.header import link_frame
from veena.core.wire.trace_facts import What
from veena.errors import InvalidEvent, RefusalCode
from veena.event import Event

#: Events of one unit that are on their way at once.
WINDOW = 8192
#: What waits for the absent outside the log is at most such a part of what may be under way, and of what is accepted.
STAYING = 8
#: A unit that does not get on for so many times the wait for the absent is absent. More than once: who entered it
#: answers for its dead after one such wait.
STUCK = 2


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
        on_stored: Callable[[Entry, int], None],
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
        self._posts = EventCodec(settings.levels, settings.fanout, link_frame(settings.max_frame))
        self._mark = int.from_bytes(blake2b(bytes(host), digest_size=2).digest(), "big") & 0xFFF
        #: Called when an entry for inboxes is on disk.
        self._on_stored = on_stored
        self.next_offset = disk.next_offset
        #: Offsets below this are on disk.
        self._synced = self.next_offset
        self.pressure = Pressure(settings, effects)
        #: By unit bit and lane: the offsets on their way, ascending.
        self._open: dict[Way, dict[int, None]] = {}
        #: How many of these are in the log for the absent: they take no place of what is published here.
        self._adopted: Counter[Way] = Counter()
        #: The entries on their way, with the units that are still to be served.
        self._under_way: dict[int, UnderWay] = {}
        self._ages = LogAges(disk.entries)
        #: From where the log is to be read for it.
        self._parked: dict[Way, int] = {}
        self._reading: dict[Way, None] = {}
        self._cursors = Cursors(ledger, disk.cursors)
        self._ticked_ns = self._last_incarnation = 0
        #: Events of publishers, best effort included (`publishers`); and others.
        self.accepted = self._refused = self._dead = self._burst_events = 0
        self._has_failed = False
        #: Entries that are not safe yet, in order.
        self._pending: dict[int, Pending] = {}
        #: Bursts on their way to clients here, by the offset of their first entry: lane and count.
        self._bursts: dict[int, tuple[int, int]] = {}
        #: How bursts get to clients; set by whoever puts the parts together.
        self.plain: PlainWay | None = None
        #: How they get to other units; set alike.
        self.runs: RunWay | None = None
        self._copies = copies
        copies.on_copied = lambda offset, now_ns: self._is_safe(offset, False, now_ns)
        router.duties.observers.append(self._served)
        router.duties.run_observers.append(self._run_served)
        router.duties.on_parted.append(self._run_parted)
        self._recall(disk)

    def _recall(self, disk: Disk) -> None:
        """What a former life has left in the log, for units that may lack it."""
        for entry in disk.entries:
            # The clients of a former life are gone, except those for whom events are kept.
            for at in identifiers(entry.frame.to_serve & (~0 if disk.registered else ~self._router.me)):
                if entry.offset >= self._cursors.of(1 << at):
                    self._parked.setdefault((1 << at, entry.frame.lane_number), entry.offset)
            self.pressure.grown(entry.offset, len(entry.frame.tail))

    def new_incarnation(self, now_ns: int) -> int:
        """A number that is above all that were given before, here and (as far as clocks agree) elsewhere."""
        self._last_incarnation = max(now_ns // 1000 << 12 | self._mark, self._last_incarnation + (1 << 12))
        return self._last_incarnation

    def why_not_now(self, session: int, more: int = 0) -> str | None:
        """Why a reliable event of a session, or so many more, cannot be taken at the moment."""
        return self.pressure.admit(session, self._open_events + more)

    @property
    def _open_events(self) -> int:
        return len(self._under_way) + len(self._pending) + self._burst_events

    def note(self, entry: Entry, what: What, now_ns: int, mask: int = 0) -> None:
        if self._records.is_on and entry.frame.to_serve:
            units = self._router.units(mask or entry.frame.to_serve)
            self._records.note(entry.frame, what, now_ns, units=units, offset=entry.offset)

    def is_parked(self, bit: int, lane: int, offset: int) -> bool:
        """Whether a unit still has to be sent what lies there in the log."""
        return (bit, lane) in self._parked and self._parked[bit, lane] <= offset

    def open_from(self, bit: int) -> int:
        """The first offset of the log that a unit still has to be sent, or the end."""
        found = [next(iter(waiting)) for (unit, _), waiting in self._open.items() if unit == bit]
        found += [offset for (unit, _), offset in self._parked.items() if unit == bit]
        return min(found, default=self.next_offset)

    def is_open(self, bit: int, lane: int, offset: int) -> bool:
        """Whether a unit still has to be sent what lies there in the log, or it is on its way."""
        return self.is_parked(bit, lane, offset) or offset in self._open.get((bit, lane), ())

    def refuse(self, session: int, frame: EventFrame, why: RefusalCode, reason: str) -> None:
        """Tell a publisher that its event is not accepted."""
        self._refused += 1
        self._effects.append(PublishRefused(session, frame.told_id, why, reason))

    # --- the log ---

    def post(self, event: Event, reliable: bool, now_ns: int) -> None:
        """Publish an event of this broker's own (`messages.mailbox`), which may hold a whole event of somebody else."""
        wanted = self._interest.destinations(event, self._host, now_ns) | self._router.me
        frame = self._posts.frame(event, reliable=reliable, origin=self._host, to_serve=wanted, served=self._router.me)
        if reliable:
            self.append(None, frame, now_ns)
        else:
            self._router.pass_on(frame, now_ns)

    def keep(self, frame: EventFrame, inboxes: tuple[int, ...], now_ns: int) -> int:
        """Keep an event for durable subscriptions of this broker; its offset."""
        self.append(None, frame.copy(0, frame.served, frame.ttl_ms), now_ns, inboxes)
        return self.next_offset - 1

    def adopt(self, frame: EventFrame, units: tuple[Unit, ...], now_ns: int) -> None:
        """Publish an event of an origin that is gone, under its id; or for units, what was looked after for them."""
        wanted = self._interest.orphaned(frame.event(), frame.origin_address or self._host, units, now_ns)
        self.append(None, frame.copy(wanted, self._router.me, frame.ttl_ms), now_ns)

    def look_after(self, flight: Flight, mask: int, now_ns: int) -> None:
        """Keep an event for units that are absent: it is in this log from now on, and its upstreams need not wait."""
        kept = flight.frame.copy(mask, flight.frame.served, flight.ttl_ms(now_ns))
        kept.flags |= BACKLOG
        # Who is asked for a copy that nobody can read would close the link over it.
        self.append(None, kept, now_ns, doubled=self._settings.copies == 2 and why_unreadable(kept) is None)

    def append(
        self,
        session: int | None,
        frame: EventFrame,
        now_ns: int,
        inboxes: tuple[int, ...] = (),
        widens: Pending | None = None,
        doubled: bool = False,
    ) -> None:
        """Write an event to the log; a publisher's is accepted when it is there."""
        entry = Entry(self.next_offset, frame, now_ns, inboxes)
        self._grow(1, len(frame.tail), now_ns)
        needs_copy = doubled or (session is not None and self._settings.copies == 2)
        pending = Pending(session, entry, needs_copy, known=self._interest.state(now_ns), widens=widens)
        self._pending[entry.offset] = pending
        failed = lambda reason, now_ns: self._failed(pending, reason, now_ns)  # noqa: E731
        # What was taken on for others cannot be refused to anybody: it is written until it is there.
        then = lambda now_ns: self._is_safe(entry.offset, True, now_ns)  # noqa: E731
        self._ledger.write(entry, then, failed, stubborn=session is None and widens is None)
        if needs_copy:
            self._copies.ask(entry.offset, frame, now_ns)

    def _grow(self, count: int, size: int, now_ns: int) -> None:
        """So many entries are added to the log."""
        self._ages.appended(self.next_offset, now_ns)
        self.pressure.grown(self.next_offset, size)
        self.next_offset += count

    def append_burst(self, session: int, burst: EventBurst, wanted: int, now_ns: int) -> None:
        """The same for events that are alike, without holes, for clients here and these units."""
        me = self._router.me
        entries = Entries(self.next_offset, burst, now_ns, wanted | me, me)
        first = Entry(entries.offset, burst.first.copy(wanted | me, me, burst.first.ttl_ms), now_ns)
        self._grow(burst.count, len(burst.data), now_ns)
        self._burst_events += burst.count
        pending = self._pending[entries.offset] = Pending(
            session, first, False, known=self._interest.state(now_ns), burst=burst
        )
        self._ledger.write(
            entries,
            lambda now_ns: self._is_safe(entries.offset, True, now_ns),
            lambda reason, now_ns: self._failed(pending, reason, now_ns),
        )

    def _failed(self, pending: Pending, reason: str, now_ns: int) -> None:
        """The disk did not take an entry."""
        self._has_failed = True
        (pending.widens or pending).failed = pending.failed = reason
        self._settle(now_ns)

    def _accept_burst(self, pending: Pending, burst: EventBurst, now_ns: int) -> None:
        """A burst is on disk: hand it over and send it if it is still plain, otherwise go on event by event."""
        first, offset = pending.entry.frame, pending.entry.offset
        del self._pending[offset]
        stream = (first.publisher, first.incarnation, first.lane_number)
        accept = self._accept_here if first.to_serve == self._router.me else self._accept_run
        if not accept(pending, burst, stream, now_ns):
            self._burst_events -= burst.count
            entries = Entries(offset, burst, pending.entry.accepted_ns, first.to_serve, first.served).entries()
            alone = [Pending(pending.session, entry, False, False, known=pending.known) for entry in entries]
            self._pending = {each.entry.offset: each for each in alone} | self._pending

    def _burst_accepted(self, pending: Pending, burst: EventBurst) -> None:
        assert pending.session is not None
        self._synced = pending.entry.offset + burst.count
        self.accepted += burst.count
        timestamp = pending.entry.frame.timestamp
        self._effects.append(AcceptedRun(pending.session, timestamp, burst.first_sequence, burst.last_sequence))

    def _accept_here(self, pending: Pending, burst: EventBurst, stream: Stream, now_ns: int) -> bool:
        """Accept a burst for clients here; False, and nothing has changed, if it is not plain."""
        lane, offset = stream[2], pending.entry.offset
        way = (self._router.me, lane)
        assert self.plain is not None
        receivers = None
        if way not in self._parked:
            receivers = self.plain.receivers(burst.like, burst.first_sequence, stream, now_ns)
        if receivers is None:
            return False
        self._burst_accepted(pending, burst)
        self._cursors.begin(way[0])
        if not receivers:
            self._burst_events -= burst.count
        else:
            self._open.setdefault(way, {})[offset] = None
            self._bursts[offset] = (lane, burst.count)
            self.plain.wait(offset)
            last = (burst.like.timestamp, burst.last_sequence)
            left = self.plain.hand_over(
                stream, burst.like, burst.first_sequence, last, burst.count, receivers, burst, now_ns
            )
            if left:
                self._effects.append(DeliverBurst(burst, left))
        self._cursors.move_soon(now_ns)
        return True

    def _accept_run(self, pending: Pending, burst: EventBurst, stream: Stream, now_ns: int) -> bool:
        """Accept a burst that other units want as well; False, and nothing has changed, if it is not plain, or there
        is no room for it on the way to one of them."""
        frame, offset, lane = pending.entry.frame, pending.entry.offset, stream[2]
        assert self.runs is not None
        ways = [(1 << at, lane) for at in identifiers(frame.to_serve)]
        if pending.known != self._interest.state(now_ns) or any(
            way in self._parked or (way[0] != self._router.me and self._is_full(way, frame)) for way in ways
        ):
            return False
        plan = self.runs.plan(LOG, offset, burst, stream, frame.to_serve, frame.served, now_ns)
        if plan is None:
            return False
        self._burst_accepted(pending, burst)
        self._burst_events -= burst.count  # they are under way from here on
        self._take_run(pending.entry, burst, frame.to_serve, plan, now_ns)
        self._cursors.move_soon(now_ns)
        return True

    def _run_served(self, offset: int, count: int, mask: int, now_ns: int) -> None:
        """Units have all events of a run."""
        under_way = self._under_way[offset]
        lane = under_way.entry.frame.lane_number
        for at in identifiers(mask):
            self._cursors.begin(1 << at)
            waiting = self._open[1 << at, lane]
            for each in range(offset, offset + count):
                del waiting[each]
            if not waiting:
                del self._open[1 << at, lane]
        under_way.mask &= ~mask
        if not under_way.mask:
            del self._under_way[offset]
            self._burst_events -= count - 1
        self._cursors.move_soon(now_ns)

    def _run_parted(self, run: Run) -> None:
        """The events of a run are under way each by itself from now on."""
        if run.source != LOG:
            return
        under_way = self._under_way.pop(run.number)
        frame = under_way.entry.frame
        entries = Entries(run.number, run.burst, under_way.entry.accepted_ns, frame.to_serve, frame.served)
        for entry in entries.entries():
            self._under_way[entry.offset] = UnderWay(entry, under_way.mask)
        self._burst_events -= run.count - 1

    def bursts_served(self, offsets: list[int], now_ns: int) -> None:
        """The clients here have these, and the disk knows it."""
        for offset in offsets:
            lane, count = self._bursts.pop(offset)
            self._burst_events -= count
            waiting = self._open[self._router.me, lane]
            del waiting[offset]
            if not waiting:
                del self._open[self._router.me, lane]

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
        if self._has_failed:
            self._give_back()
        while self._pending:
            offset, pending = next(iter(self._pending.items()))
            if pending.needs_sync or pending.needs_copy:
                return
            if pending.burst is not None:
                self._accept_burst(pending, pending.burst, now_ns)
                continue
            if pending.known != self._interest.state(now_ns) and self._widen(pending, now_ns):
                return
            del self._pending[offset]
            self._synced = offset + 1
            self.accepted += 1
            if pending.session is not None:
                self._effects.append(Accepted(pending.session, pending.entry.frame.id))
            self.note(pending.entry, What.LOGGED if pending.session is None else What.ACCEPTED, now_ns)
            self._begin(pending.entry, now_ns)
            if pending.entry.inboxes:
                self._on_stored(pending.entry, now_ns)

    def _give_back(self) -> None:
        """Refuse what the disk did not take."""
        self._has_failed = False
        for offset, pending in [each for each in self._pending.items() if each[1].failed is not None]:
            del self._pending[offset]
            self._copies.forget(offset)
            self._burst_events -= 0 if pending.burst is None else pending.burst.count
            frames = [pending.entry.frame] if pending.burst is None else pending.burst.frames()
            for frame in frames if pending.session is not None else ():
                assert pending.session is not None
                reason = f"this broker's disk did not take it: {pending.failed}; try another broker"
                self.refuse(pending.session, frame, RefusalCode.STORE, reason)

    def _widen(self, pending: Pending, now_ns: int) -> bool:
        """Whether more units want an event than when it came: it was promised to them if they were acknowledged before
        it is accepted. The log has it once more for these, before that."""
        frame, pending.known = pending.entry.frame, self._interest.state(now_ns)
        if pending.session is None:
            return False
        wanted = self._interest.destinations(frame.event(), self._host, now_ns)
        more = wanted & ~frame.to_serve
        if more:
            pending.entry = replace(pending.entry, frame=frame.copy(frame.to_serve | more, frame.served, frame.ttl_ms))
            pending.needs_sync = True
            self._copies.widen(pending.entry.offset, pending.entry.frame)
            again = frame.copy(more, frame.served, frame.ttl_ms)
            again.flags |= BACKLOG
            self.append(None, again, now_ns, widens=pending)
        return bool(more)

    def _begin(self, entry: Entry, now_ns: int) -> None:
        """An entry is on disk: send it where there is room, leave it in the log for the rest. What is for the absent,
        if it is all here, goes before what comes later when they are back: so it stays where it can."""
        now, lane = 0, entry.frame.lane_number
        for way in ((1 << at, lane) for at in identifiers(entry.frame.to_serve)):
            if way in self._parked or (way[0] != self._router.me and self._is_full(way, entry.frame)):
                self._parked.setdefault(way, entry.offset)
            else:
                now |= way[0]
        self._send(entry, now, now_ns)
        if self._copies.is_held:
            self._cursors.move_soon(now_ns)
        if entry.frame.flags & BACKLOG:
            self._router.relieve(event_key(entry.frame), entry.frame.to_serve)

    def _is_full(self, way: Way, frame: EventFrame) -> bool:
        is_over = len(self._open.get(way, ())) - self._adopted[way] >= WINDOW
        if not frame.flags & BACKLOG and not (is_over and not self._router.has_hop(way[0])):
            return is_over
        return not self._router.is_below(STAYING) or self._open_events > self._settings.max_open // STAYING

    def _send(self, entry: Entry, mask: int, now_ns: int) -> None:
        if not mask:
            return
        frame = entry.frame
        lane = frame.lane_number
        self._router.duties.find(event_key(frame))  # a run that it is in for other units is parted
        for at in identifiers(mask):
            self._open.setdefault((1 << at, lane), {})[entry.offset] = None
            self._adopted[1 << at, lane] += frame.flags & BACKLOG > 0
        self._under_way.setdefault(entry.offset, UnderWay(entry, 0)).mask |= mask
        copy = frame.copy(mask, frame.served, frame.ttl_after(now_ns - entry.accepted_ns))
        self._router.take(LOG, entry.offset, copy, now_ns)

    def _served(self, offset: int, mask: int, now_ns: int) -> None:
        under_way = self._under_way[offset]
        lane = under_way.entry.frame.lane_number
        for at in identifiers(mask):
            self._cursors.begin(1 << at)
            waiting = self._open[1 << at, lane]
            del waiting[offset]
            self._adopted[1 << at, lane] -= under_way.entry.frame.flags & BACKLOG > 0
            if not waiting:
                del self._open[1 << at, lane]
        under_way.mask &= ~mask
        if not under_way.mask:
            del self._under_way[offset]
        self._cursors.move_soon(now_ns)

    def pump(self, now_ns: int) -> None:
        """Read back what there is room and a way for."""
        for way, offset in self._parked.items():
            if len(self._open.get(way, ())) <= WINDOW // 2 and self._router.has_hop(way[0]):
                self._read(way, offset)
        if self.pressure.is_high:
            self.pressure.relieve(self._open_events)

    def _read(self, way: Way, offset: int) -> None:
        if way not in self._reading and offset < self._synced:
            self._reading[way] = None
            self._reader.read(offset, READ_BATCH, lambda entries, now_ns: self._found(way, entries, now_ns))

    def _found(self, way: Way, entries: Sequence[Entry], now_ns: int) -> None:
        """What the log holds for a unit, and of it what is of this lane."""
        bit, lane = way
        del self._reading[way]
        below = [entry for entry in entries if entry.offset < self._synced]
        next_offset = below[-1].offset + 1 if below else self._parked[way]
        wanted = [each for each in below if each.frame.to_serve & bit and each.frame.lane_number == lane]
        for piece, burst in together(wanted, self._posts):
            if burst is None or not self._read_back_run(piece[0], burst, bit, now_ns):
                for entry in piece:
                    self._read_back(entry, bit, now_ns)
        if next_offset >= self._synced or not entries:
            del self._parked[way]
        else:
            self._parked[way] = next_offset
        self._cursors.move_soon(now_ns)

    def _read_back_run(self, first: Entry, burst: EventBurst, bit: int, now_ns: int) -> bool:
        """Parked events for one unit that go together; False, and nothing has changed, if each has to be looked at."""
        frame = first.frame
        stream = self.runs.stream(burst) if self.runs is not None and frame.reliable else None
        if bit == self._router.me or stream is None or now_ns - first.accepted_ns > self._settings.retention_ns:
            return False
        assert self.runs is not None
        if not self._interest.ever(frame.event(), frame.origin_address or self._host, now_ns) & bit:
            return False
        plan = self.runs.plan(LOG, first.offset, burst, stream, bit, frame.served, now_ns)
        if plan is not None:
            self._take_run(first, burst, bit, plan, now_ns)
        return plan is not None

    def _take_run(self, first: Entry, burst: EventBurst, mask: int, plan: Plan, now_ns: int) -> None:
        """A run is on its way to these units."""
        offsets = dict.fromkeys(range(first.offset, first.offset + burst.count))
        for at in identifiers(mask):
            self._open.setdefault((1 << at, first.frame.lane_number), {}).update(offsets)
        self._under_way[first.offset] = UnderWay(first, mask, burst)
        self._burst_events += burst.count - 1
        assert self.runs is not None
        self.runs.take(plan, now_ns)

    def _read_back(self, entry: Entry, bit: int, now_ns: int) -> None:
        """One parked event for one unit: unless it is too old, or that unit has spoken since and does not want it."""
        if now_ns - entry.accepted_ns > self._settings.retention_ns:
            self._bury(entry.frame, bit, now_ns)
        elif bit == self._router.me or (
            self._interest.ever(entry.frame.event(), entry.frame.origin_address or self._host, now_ns) & bit
        ):
            self._send(entry, bit, now_ns)
        else:
            self.note(entry, What.STOPPED, now_ns, bit)

    # --- time ---

    def tick(self, now_ns: int) -> None:
        """Give up what is too old, and write how far everybody is."""
        if now_ns >= self._ticked_ns + MARK_NS:
            self._ticked_ns = now_ns
            before_ns = now_ns - self._settings.retention_ns
            self._give_up(before_ns, now_ns)
            for way, offset in self._parked.items():
                if self._ages.is_before(offset, before_ns):  # to be read as a dead letter
                    self._read(way, offset)
        if self._cursors.due_ns is not None and now_ns >= self._cursors.due_ns:
            self._move_cursors(now_ns)

    def _give_up(self, before_ns: int, now_ns: int) -> None:
        """What was accepted before then and is still open is a dead letter."""
        for under_way in list(self._under_way.values()):
            if under_way.burst is not None and under_way.entry.accepted_ns < before_ns:
                self._router.duties.find(event_key(under_way.entry.frame))  # each for itself from here on
        for under_way in list(self._under_way.values()):
            if under_way.entry.accepted_ns >= before_ns:
                continue
            frame, mask = under_way.entry.frame, under_way.mask
            self._bury(frame, mask, now_ns)
            self._router.abandon(event_key(frame), mask, now_ns)

    def _bury(self, frame: EventFrame, mask: int, now_ns: int) -> None:
        reason = f"not delivered within the retention of {self._settings.retention_ns // 1_000_000_000} s"
        self.bury(frame, self._router.units(mask), reason, now_ns)

    def bury(self, frame: EventFrame, units: tuple[Unit, ...], reason: str, now_ns: int) -> None:
        """Give up an event for these units: it is a dead letter."""
        self._effects.append(DeadLetter(frame.id, units, reason))
        self._dead += 1
        letter = dead_letter(frame, units, reason, self._host, self._mark, self._dead, now_ns)
        wanted = self._interest.destinations(letter, self._host, now_ns) | self._router.me
        # With what a letter adds, the body of a large event may be too much.
        for each in (letter, replace(letter, body=b""), replace(letter, body=b"", headers={"event": str(frame.id)})):
            with suppress(InvalidEvent):
                best_effort = self._codec.frame(each, origin=self._host, to_serve=wanted, served=self._router.me)
                self._router.pass_on(best_effort, now_ns)
                return

    def _move_cursors(self, now_ns: int) -> None:
        waiting = [(way, next(iter(offsets))) for way, offsets in self._open.items()]
        served = self._cursors.move([*waiting, *self._parked.items()], self._synced, now_ns)
        self.pressure.needed_from(served, self.next_offset)
        if self._copies.is_held:
            absent = self._cursors.stuck(now_ns - STUCK * self._settings.absent_after_ns) & ~self._router.me
            self._copies.look(self._cursors.of, self._synced, absent)
            self._cursors.move_soon(now_ns)  # an absence is told by time alone

    def next_wakeup(self) -> int | None:
        due: list[int] = []
        if self._ages.oldest_ns is not None and (self._under_way or self._parked):
            due.append(max(self._ages.oldest_ns + self._settings.retention_ns, self._ticked_ns + MARK_NS))
        if self._cursors.due_ns is not None:
            due.append(self._cursors.due_ns)
        return min(due, default=None)

    def statistics(self) -> OriginStatistics:
        is_open = sum(1 if each.burst is None else each.burst.count for each in self._under_way.values())
        is_open += sum(count for _, count in self._bursts.values())
        return OriginStatistics(
            self.accepted, self._refused, self.next_offset, is_open, len(self._parked), self._dead,
            self.pressure.log_bytes, len(self.pressure.paused),
        )  # fmt: skip

    def check(self) -> None:
        self.pressure.check()
        for way, waiting in self._open.items():
            assert waiting, "a unit without open events has no entry"
            assert list(waiting) == sorted(waiting), "what is on its way to a unit is in order"
            if way in self._parked:
                assert next(reversed(waiting)) < self._parked[way], "the log is read for what comes later only"
