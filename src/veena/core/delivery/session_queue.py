"""The way out to clients that do not read as fast as events come: bounded queues, and who is told (FLT-09, CLI-03).

A driver says when what is on its way to a session is above its mark (`SessionClogged`) and when it is below it again
(`SessionClear`). In between events for that session wait here, by lane, up to `max_outlet_events` and
`max_outlet_bytes`, and all clogged sessions together up to `MAX_BYTES`. Where that is too much, what has outlived its
time to live goes first; then it is as the client asked when it attached:

- `drop`: the oldest event of the lowest band goes, best effort first, and is counted. When the client reads again it
  is told the count, then it is handed what waited, the lanes by turns, higher bands first, each in its order (QOS-03);
- `disconnect`: its connection is closed, and the reason says what to do.

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

from veena.core.boundary.clients import CloseSession, Dropped, SessionClear, SessionClogged
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
#: What an event that waits costs beside its bytes.
OVERHEAD = 256
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
    #: What the client is to be told of.
    dropped: int = 0
    #: Its connection is being closed: nothing more is kept for it.
    is_given_up: bool = False


class Outlet:
    """The sessions of one broker that do not read."""

    def __init__(self, settings: Settings, clients: Clients, effects: list[Effect], records: Records) -> None:
        self._records = records
        self._clients = clients
        self._max_events = settings.max_outlet_events
        self._max_bytes = settings.max_outlet_bytes
        self._effects = effects
        #: Sessions with the policy `disconnect`.
        self._impatient: dict[int, None] = {}
        #: Whether there is any is the only question on the way of every event.
        self.clogged: dict[int, _Queue] = {}
        self._bytes = 0
        self._dropped = self._expired = self._disconnected = 0
        #: For whoever reads from the log for a session.
        self.on_clear: list[OnClear] = []

    def is_clogged(self, session: int) -> bool:
        return session in self.clogged

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
            self.clogged.setdefault(given.session, _Queue())

    def clear(self, given: SessionClear, now_ns: int) -> None:
        """Hand over what waited."""
        queue = self.clogged.get(given.session)
        if queue is None or queue.is_given_up:
            return
        del self.clogged[given.session]
        self._bytes -= queue.lanes.bytes
        gone = queue.lanes.expire(now_ns)
        self._expired += len(gone)
        self._note(given.session, gone, What.EXPIRED, "", now_ns)
        if queue.dropped:
            self._effects.append(Dropped(given.session, queue.dropped))
        waiting = queue.lanes.take()
        while waiting is not None:
            self._effects.append(Deliver(waiting.frame_now(now_ns), ((given.session, waiting.note),)))
            waiting = queue.lanes.take()
        for tell in self.on_clear:
            tell(given.session, now_ns)

    def withhold(self, flight: Flight, frame: EventFrame, receivers: Receivers, now_ns: int) -> Receivers:
        """Let an event wait for those that are clogged; the others."""
        for session in [session for session in receivers if session in self.clogged]:
            self._put(session, frame, flight.deadline_ns, tuple(receivers[session]), now_ns)
        return {session: found for session, found in receivers.items() if session not in self.clogged}

    def withhold_plain(self, frames: list[EventFrame], receivers: Sessions, origin: bytes, now_ns: int) -> Sessions:
        """Let events that are alike wait for those that are clogged; the others."""
        clogged = [receiver for receiver in receivers if receiver[0] in self.clogged]
        if not clogged:
            return receivers
        for each in frames:
            frame = each.copy(each.to_serve, each.served, each.ttl_ms)
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
            queue.dropped += 1
            self._dropped += 1

    def _is_too_much(self, lanes: Lanes[tuple[int, ...]]) -> bool:
        return lanes.events > self._max_events or lanes.bytes > self._max_bytes or self._bytes > MAX_BYTES

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
            f" {self._max_events} events and {self._max_bytes} bytes are kept: read faster, or attach with"
            " slow='drop', or subscribe durably"
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
            assert queue.lanes.events <= self._max_events
            assert queue.lanes.bytes <= self._max_bytes
