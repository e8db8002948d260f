"""The way out to clients that do not read as fast as events come: bounded queues, and who is told (FLT-09, CLI-03).

A driver says when what is on its way to a session is above its mark (`SessionClogged`) and when it is below it again
(`SessionClear`). In between events for that session wait here, by lane, up to `session_bytes`, and all clogged
sessions together up to `MAX_BYTES`; no number of events is a bound. Where that is too much, what has outlived its time
to live goes first; then it is as the client asked when it attached:

- `drop`: the oldest event of the lowest band goes, best effort first, and is counted, by subscription. When the client
  reads again it is told the counts, then it is handed what waited, the lanes by turns, higher bands first, each in its
  order (QOS-03);
- `disconnect`: its connection is closed, and the reason says what to do.

What waited is handed over in slices: after each the driver is asked whether there is room for more (`AskRoom`), so that
a long queue never lies in the driver's buffers. Meanwhile new events wait behind it.

This holds for reliable events as well: reliable means up to the client's broker. A client that must miss nothing has a
durable subscription, which is read from the log when there is room (`is_clogged`, `on_clear`) and never waits here.
Others are not affected by a clogged session, and publishers are not slowed down by it.

The invariant: a session that is not clogged has nothing waiting here; what waits is within the bounds.

Rejected: back-pressure from consumers to publishers (one client that stops would stop everybody); dropping the newest
(a client that looks again after an hour would see the news of an hour ago).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from veena.core.boundary.clients import AskRoom, CloseSession, Dropped, SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import ClientUp, Deliver, Effect
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.delivery.in_flight import Flight
from veena.core.interest.subscriptions import Clients
from veena.core.journal import Records
from veena.core.links.lanes import Lanes, Waiting
from veena.core.wire.event import NO_TTL, EventFrame
from veena.core.wire.trace_facts import What

#: What waits for all clogged sessions of a broker. An event that waits for many counts for each of them, although its
#: bytes are there once.
MAX_BYTES = 256 << 20
#: What an event that waits costs beside its bytes: the objects that hold it, measured.
OVERHEAD = 384
#: What is handed over at once: as much as a driver's buffer takes before it is full.
SLICE_BYTES = 256 << 10
#: The number under which a client counts what is addressed to itself.
INBOX = 0
DISCONNECTED = "slow consumer: its connection is closed"

Receivers = dict[int, list[int]]
Sessions = tuple[tuple[int, tuple[int, ...]], ...]
#: Told that a session reads again: session, now.
OnClear = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class OutletStatistics:
    clogged: int
    waiting: int
    waiting_bytes: int
    #: Since the start: dropped for want of room, expired while they waited, sessions closed because of it.
    dropped: int
    expired: int
    disconnected: int


@dataclass(slots=True)
class _Queue:
    lanes: Lanes[tuple[int, ...]] = field(default_factory=Lanes)
    #: What the client is to be told of: how many events it missed, and how many of each of its subscriptions.
    dropped: int = 0
    missed: dict[int, int] = field(default_factory=dict)
    #: Its connection is being closed: nothing more is kept for it.
    is_given_up: bool = False
    #: The driver has room, as far as is known: what waits is being handed over.
    is_open: bool = False


class Outlet:
    """The sessions of one broker that do not read."""

    def __init__(self, settings: Settings, clients: Clients, effects: list[Effect], records: Records) -> None:
        self._records = records
        self._clients = clients
        self._max_bytes = settings.session_bytes
        self._effects = effects
        #: Sessions with the policy `disconnect`.
        self._impatient: dict[int, None] = {}
        #: Sessions for which new events wait. Whether there is any is the only question on the way of every event.
        self.clogged: dict[int, _Queue] = {}
        self._bytes = 0
        self._dropped = self._expired = self._disconnected = 0
        #: For whoever reads from the log for a session.
        self.on_clear: list[OnClear] = []

    def is_clogged(self, session: int) -> bool:
        """Whether the driver has no room for a session."""
        queue = self.clogged.get(session)
        return queue is not None and not queue.is_open

    def attach(self, given: ClientUp) -> None:
        if given.slow == "disconnect":
            self._impatient[given.session] = None

    def detach(self, session: int, now_ns: int) -> None:
        """A session is over; what waited for it counts as dropped."""
        self._impatient.pop(session, None)
        queue = self.clogged.pop(session, None)
        if queue is not None:
            self._bytes -= queue.lanes.bytes
            self._dropped += queue.lanes.events
            if self._records.is_on:
                self._note_all(session, queue, "slow consumer: it left before it read it", now_ns)

    def clog(self, given: SessionClogged, now_ns: int) -> None:
        if given.session in self._clients:  # it may have left before the driver knew
            self.clogged.setdefault(given.session, _Queue()).is_open = False

    def clear(self, given: SessionClear, now_ns: int) -> None:
        """Hand over a slice of what waited, all of it at last."""
        session = given.session
        queue = self.clogged.get(session)
        if queue is None or queue.is_given_up:
            return
        queue.is_open = True
        before = queue.lanes.bytes
        gone = queue.lanes.expire(now_ns)
        self._expired += len(gone)
        self._note(session, gone, What.EXPIRED, "", now_ns)
        if queue.dropped:
            self._effects.append(Dropped(session, queue.dropped, tuple(queue.missed.items())))
            queue.dropped, queue.missed = 0, {}
        left = SLICE_BYTES
        while left > 0 and queue.lanes.events:
            waiting = queue.lanes.take()
            assert waiting is not None
            left -= waiting.size
            self._effects.append(Deliver(waiting.frame_now(now_ns), ((session, waiting.note),)))
        self._bytes -= before - queue.lanes.bytes
        if queue.lanes.events:
            self._effects.append(AskRoom(session))
        else:
            del self.clogged[session]
        for tell in self.on_clear:
            tell(session, now_ns)

    def hand(
        self, session: int, frame: EventFrame, deadline_ns: int | None, found: tuple[int, ...], now_ns: int
    ) -> None:
        """Hand an event to one session, or let it wait if that is clogged."""
        if session in self.clogged:
            self._put(session, compact(frame), deadline_ns, found, now_ns)
        else:
            self._effects.append(Deliver(frame, ((session, found),)))

    def withhold(self, flight: Flight, frame: EventFrame, receivers: Receivers, now_ns: int) -> Receivers:
        """Let an event wait for those that are clogged; the others."""
        frame = compact(frame)
        for session in [session for session in receivers if session in self.clogged]:
            self._put(session, frame, flight.deadline_ns, tuple(receivers[session]), now_ns)
        return {session: found for session, found in receivers.items() if session not in self.clogged}

    def withhold_plain(self, frames: list[EventFrame], receivers: Sessions, origin: bytes, now_ns: int) -> Sessions:
        """Let events that are alike wait for those that are clogged; the others."""
        clogged = [receiver for receiver in receivers if receiver[0] in self.clogged]
        if not clogged:
            return receivers
        for each in frames:
            frame = compact(each.copy(each.to_serve, each.served, each.ttl_ms))
            frame.origin = origin
            deadline_ns = None if frame.ttl_ms == NO_TTL else now_ns + frame.ttl_ms * MILLISECOND_NS
            for session, found in clogged:
                self._put(session, frame, deadline_ns, found, now_ns)
        return tuple(receiver for receiver in receivers if receiver[0] not in self.clogged)

    def _put(
        self, session: int, frame: EventFrame, deadline_ns: int | None, found: tuple[int, ...], now_ns: int
    ) -> None:
        queue = self.clogged[session]
        if queue.is_given_up:
            self._dropped += 1
            if self._records.is_on:
                self._records.note(frame, What.DROPPED, now_ns, session=session, text=DISCONNECTED)
            return
        lanes = queue.lanes
        size = len(frame.tail) + OVERHEAD
        lanes.put(frame, size, deadline_ns, found)
        self._bytes += size
        if self._records.is_on:
            self._records.note(frame, What.WITHHELD, now_ns, session=session, until_ns=deadline_ns)
        if self._is_too_much(lanes):
            gone = lanes.expire(now_ns)
            self._expired += len(gone)
            self._bytes -= sum(waiting.size for waiting in gone)
            self._note(session, gone, What.EXPIRED, "", now_ns)
        if self._is_too_much(lanes) and session in self._impatient:
            self._give_up(session, queue, now_ns)
            return
        while lanes.events and self._is_too_much(lanes):
            oldest = lanes.drop_oldest()
            self._bytes -= oldest.size
            self._note(session, [oldest], What.DROPPED, "slow consumer: the oldest is dropped", now_ns)
            self._count(queue, oldest.note)

    def _count(self, queue: _Queue, found: tuple[int, ...]) -> None:
        """An event is dropped: who reads it, and which of its subscriptions, is told."""
        self._dropped += 1
        queue.dropped += 1
        for subscription in found or (INBOX,):
            queue.missed[subscription] = queue.missed.get(subscription, 0) + 1

    def _is_too_much(self, lanes: Lanes[tuple[int, ...]]) -> bool:
        return lanes.bytes > self._max_bytes or self._bytes > MAX_BYTES

    def _note(self, session: int, gone: list[Waiting[tuple[int, ...]]], what: What, text: str, now_ns: int) -> None:
        if self._records.is_on:
            for waiting in gone:
                self._records.note(waiting.frame, what, now_ns, session=session, text=text)

    def _note_all(self, session: int, queue: _Queue, text: str, now_ns: int) -> None:
        while queue.lanes.events:
            self._note(session, [queue.lanes.drop_oldest()], What.DROPPED, text, now_ns)

    def _give_up(self, session: int, queue: _Queue, now_ns: int) -> None:
        events, size = queue.lanes.events, queue.lanes.bytes
        queue.is_given_up = True
        if self._records.is_on:
            self._note_all(session, queue, DISCONNECTED, now_ns)
        queue.lanes = Lanes()
        self._bytes -= size
        self._dropped += events
        self._disconnected += 1
        reason = (
            f"slow: {events} events of {size} bytes wait for this client, which does not read; at most"
            f" {self._max_bytes} bytes are kept: read faster, or attach with slow='drop', or subscribe durably"
        )
        self._effects.append(CloseSession(session, reason))

    def statistics(self) -> OutletStatistics:
        waiting = sum(queue.lanes.events for queue in self.clogged.values())
        return OutletStatistics(
            len(self.clogged), waiting, self._bytes, self._dropped, self._expired, self._disconnected
        )

    def check(self) -> None:
        assert self._bytes == sum(queue.lanes.bytes for queue in self.clogged.values()) <= MAX_BYTES
        for queue in self.clogged.values():
            queue.lanes.check()
            assert queue.lanes.bytes <= self._max_bytes


def compact(frame: EventFrame) -> EventFrame:
    """The same event in bytes of its own: a view would keep alive the whole read that it came with."""
    tail = frame.tail
    if isinstance(tail, memoryview):
        frame = frame.copy(frame.to_serve, frame.served, frame.ttl_ms)
        frame.tail = bytes(tail)
    return frame
