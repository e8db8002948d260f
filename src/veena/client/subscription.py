"""A subscription as the application sees it: events to wait for, to poll, or to be called with (CLI-08).

Events wait here until the application takes them. Above `HIGH` the broker is asked to hand over no more, and below
`LOW` to go on: so what a slow application does not take waits at its broker, within the broker's bounds, or in its log
when the subscription is durable. Answers and acceptances still come meanwhile.

A subscription outlives its connection: it is made again wherever the client attaches next, and shows what it has had.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, Protocol

from veena.address import Address, level_name
from veena.client.batch import Batch
from veena.client.memory import Key, Memory
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import ids_of
from veena.errors import InvalidEvent, LocalProtocolError, NotConnected, TimedOut, VeenaError
from veena.event import Event, EventId, lane
from veena.matching.base.engine import Constraint

#: Events and bytes that wait for the application: where the broker is asked to pause, and to go on.
HIGH_EVENTS, LOW_EVENTS = 4096, 1024
HIGH_BYTES, LOW_BYTES = 16 << 20, 4 << 20
#: What comes although the broker was asked to pause was on its way: some MiB in the buffers of sockets, a quarter of a
#: million of the smallest events. Beyond this, which no broker that heeds the pause reaches, the oldest is dropped.
MAX_EVENTS = 1 << 19
#: Events that the application has and has not acknowledged yet.
MAX_HELD = 4096


#: Events of a batch, unless the application says otherwise.
BATCH_EVENTS = 1_000


class Serves(Protocol):
    """The client, as far as its subscriptions use it."""

    def crowded(self, who: Subscription, is_crowded: bool) -> None: ...
    def acknowledge(self, who: Subscription, ids: Sequence[EventId]) -> None: ...
    async def leave(self, who: Subscription, for_good: bool) -> None: ...
    def rescope(self, who: Subscription) -> None: ...
    @property
    def levels(self) -> int: ...


class Subscription:
    """What a client wants, and the events that came for it. Use it as `async for event in subscription`."""

    def __init__(
        self,
        client: Serves,
        number: int,
        engine: str,
        constraint: Constraint,
        scope: int,
        durable: str = "",
        ack: Literal["auto", "manual"] = "auto",
        since_ns: int = 0,
        group: str = "",
    ) -> None:
        self._client = client
        self.number = number
        self.engine = engine
        self.constraint = constraint
        #: The name of a durable subscription; empty for any other.
        self.durable = durable
        #: The group that shares it, each event for one member; empty for none.
        self.group = group
        self.ack_mode: Literal["auto", "manual"] = ack
        #: How far it reaches; 0 for the whole system.
        self.reach = scope
        self.since_ns = since_ns
        #: For a subscription with a past: all of it has come; units that did not answer; where the past begins.
        self.is_caught_up = False
        self.silent: tuple[tuple[int, ...], ...] = ()
        self.gone_ns = 0
        #: Events that never came because the application did not take them in time, and whom to tell how many more.
        self.dropped = 0
        self.on_dropped: Callable[[int], None] | None = None
        #: Why its broker suspended it, with a code and a remedy; None while it did not. With the code `limit` no more
        #: is kept for a durable subscription at the moment. With `work` evaluating it costs too much: one that goes
        #: with its session has ended, a durable one stays where it is until somebody subscribes to it again.
        self.suspension: VeenaError | None = None
        #: Events for it that were never kept, because its user had too much kept already.
        self.not_kept = 0
        #: Up to which level brokers have acknowledged it; 0 before any has.
        self.state = 0
        #: Where a durable subscription was kept last.
        self.home: Address | None = None
        self.memory: Memory | None = Memory() if (durable and not group) or since_ns else None
        self.is_sent = False
        self._queue: deque[EventFrame] = deque()
        self._bytes = 0
        self._is_crowded = False
        self._held: dict[EventId, tuple[Key, ...]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._changes: deque[asyncio.Future[None]] = deque()
        self._error: VeenaError | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        if self.suspension is not None:
            state = f"suspended: {self.suspension.code}"
        else:
            state = f"acknowledged: {self._reached()}"
        return f"<Subscription {self.number} {self.engine} {self.constraint!r:.80} {state}, {len(self._queue)} waiting>"

    def _reached(self) -> str:
        reached = "nothing" if not self.state else "system" if self.is_active and not self.reach else ""
        return reached or level_name(self.state)

    @property
    def scope(self) -> int:
        """How far it reaches, as a level: 1 is the cluster."""
        return self.reach or self._client.levels

    @property
    def is_closed(self) -> bool:
        """Whether nothing more comes: it was closed, refused, or its client was closed."""
        return self._is_closed

    @property
    def is_over(self) -> bool:
        """Whether it was closed on this side: iterating over it ends without an error."""
        return self._is_closed and self._error is None

    @property
    def is_active(self) -> bool:
        """Whether every broker in its scope that matters knows of it."""
        return self.state >= self.scope

    @property
    def is_suspended(self) -> bool:
        """Whether its broker does not serve it at the moment: `suspension` says why, and what to do."""
        return self.suspension is not None

    @property
    def waiting(self) -> int:
        """Events that wait for the application."""
        return len(self._queue)

    # --- the application's side ---

    async def next(self, timeout: float | None = None) -> Event:
        """The next event; raise TimedOut when none comes within so many seconds."""
        await self._wait_event(timeout)
        return self._take(1)[0]

    async def _wait_event(self, timeout: float | None) -> None:
        """Until one waits; raise TimedOut when none comes within so many seconds."""
        while not self._queue:
            self._check_open()
            try:
                async with asyncio.timeout(timeout):
                    await self._arrival()
            except TimeoutError:
                raise TimedOut(f"no event for {self!r} within {timeout} seconds") from None

    async def _arrival(self) -> None:
        """Until something comes, or it is over."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not waiter.cancelled():
                self._wake()  # it was woken and does not take the event: somebody else may
            raise

    def poll(self) -> Event | None:
        """An event that is there already, or None."""
        return self._take(1)[0] if self._queue else None

    def take(self, at_most: int = 1 << 20) -> list[Event]:
        """Everything that is there already."""
        return self._take(at_most)

    async def next_batch(self, max: int = BATCH_EVENTS, wait: float = 0.0, timeout: float | None = None) -> Batch:  # noqa: A002  # a plain name
        """What is there, at least one event and at most `max`; raise TimedOut when none comes within `timeout` seconds.

        Fewer than `max` are waited for up to `wait` seconds longer, so that batches grow.
        """
        if not 1 <= max <= HIGH_EVENTS:
            raise LocalProtocolError(f"max {max}: expected 1 to {HIGH_EVENTS} events of one batch")
        if wait < 0:
            raise LocalProtocolError(f"wait {wait}: expected seconds, or 0 to take what is there")
        await self._wait_event(timeout)
        if wait and len(self._queue) < max:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    while len(self._queue) < max and not self._is_closed:
                        await self._arrival()
            if not self._queue:  # somebody else took it, or it comes again after a reconnection
                return await self.next_batch(max, wait, timeout)
        return Batch(self.ack, self._take(max))

    def batches(self, max: int = BATCH_EVENTS, wait: float = 0.0) -> Batches:  # noqa: A002  # a plain name
        """For `async for batch in subscription.batches()`: lists of events, as `next_batch` gives them."""
        return Batches(self, max, wait)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        try:
            return await self.next()
        except NotConnected:
            if self.is_over:
                raise StopAsyncIteration from None
            raise

    async def ack(self, *events: Event) -> None:
        """With `ack="manual"`: the application is done with these events; they do not come again."""
        if not (self.durable or self.group) or self.ack_mode != "manual":
            raise LocalProtocolError(f"{self!r} needs no ack: only durable or shared ones with ack='manual' do")
        if any(event.event_id is None for event in events):
            raise InvalidEvent("an event without an id was not received, and cannot be acknowledged")
        ids: dict[EventId, None] = {}
        for event in events:
            assert event.event_id is not None
            publisher, incarnation, *place = event.event_id
            stream = (publisher, incarnation, lane(True, event.priority).number)
            known = self._held.pop(event.event_id, ((stream, (place[0], place[1])),))
            if self.memory is not None:
                self.memory.remember(known)
            ids[event.event_id] = None
        if self._queue and (again := [frame for frame in self._queue if frame.id in ids]):
            self._bytes -= sum(len(frame.tail) for frame in again)
            self._queue = deque(frame for frame in self._queue if frame.id not in ids)
        self._client.acknowledge(self, list(ids))

    async def close(self) -> None:
        """Receive no more. A durable subscription is kept for the next time."""
        if not self._is_closed:
            await self._client.leave(self, for_good=False)
            self.ended(None)

    def rescope(self, scope: int) -> None:
        """Reach another way around from now on: a level, 1 for the cluster, or 0 for the whole system."""
        if self.durable or self.group:
            raise LocalProtocolError(f"{self!r}: what is durable or shared keeps its scope; make another one")
        if scope != self.reach and not self._is_closed:
            self.reach = scope
            self._client.rescope(self)

    async def delete(self) -> None:
        """End it for good, durable or not."""
        if not self._is_closed:
            await self._client.leave(self, for_good=True)
            self.ended(None)

    async def wait_active(self, timeout: float | None) -> bool:
        """Wait until it is acknowledged for its scope; whether it is. Raise if it was refused."""
        try:
            async with asyncio.timeout(timeout):
                while not self.is_active:
                    self._check_open()
                    change = asyncio.get_running_loop().create_future()
                    self._changes.append(change)
                    await change
        except TimeoutError:
            self._check_open()
        return self.is_active

    async def wait_caught_up(self, timeout: float | None = None) -> bool:
        """For a subscription with `since`: wait until all of the past has come; whether it has."""
        try:
            async with asyncio.timeout(timeout):
                while not self.is_caught_up:
                    self._check_open()
                    change = asyncio.get_running_loop().create_future()
                    self._changes.append(change)
                    await change
        except TimeoutError:
            pass
        return self.is_caught_up

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise NotConnected(f"{self!r} is closed")

    def _take(self, at_most: int) -> list[Event]:
        """The first events that wait; the broker hears once of all that need no further word."""
        queue = self._queue
        frames = [queue.popleft() for _ in range(min(at_most, len(queue)))]
        self._bytes -= sum(len(frame.tail) for frame in frames)
        if self._is_crowded and len(queue) <= LOW_EVENTS and self._bytes <= LOW_BYTES:
            self._is_crowded = False
            self._client.crowded(self, False)
        events = [frame.event() for frame in frames]
        if self.durable or self.group:
            if self.ack_mode == "auto":
                self._client.acknowledge(self, [frame.id for frame in frames if frame.reliable])
            else:
                return [self._hold(frame, event) for frame, event in zip(frames, events, strict=True)]
        return events

    def _hold(self, frame: EventFrame, event: Event) -> Event:
        """Remember an event until the application acknowledges it."""
        if not frame.reliable:
            return event
        event_id = frame.id
        if event_id in self._held and not event.redelivered:  # it came by way of another broker
            event = replace(event, redelivered=True)
        self._held[event_id] = ids_of(frame)
        if len(self._held) > MAX_HELD:
            del self._held[next(iter(self._held))]
        return event

    # --- the client's side ---

    def put(self, frame: EventFrame) -> None:
        """An event came for it."""
        if self._is_closed or (self.memory is not None and self._was_had(frame)):
            return
        self._queue.append(frame)
        self._bytes += len(frame.tail)
        if self._waiters:
            self._wake()
        if not self._is_crowded and (len(self._queue) >= HIGH_EVENTS or self._bytes >= HIGH_BYTES):
            self._is_crowded = True
            self._client.crowded(self, True)
        elif len(self._queue) > MAX_EVENTS:
            self._bytes -= len(self._queue.popleft().tail)
            self.missed(1)

    def missed(self, count: int) -> None:
        """So many events will not come."""
        self.dropped += count
        if self.on_dropped is not None:
            self.on_dropped(count)

    def _was_had(self, frame: EventFrame) -> bool:
        """Whether it came before; of a durable subscription that is told to the broker again."""
        memory = self.memory
        assert memory is not None
        if not self.durable:
            if memory.is_past(frame) and not frame.late:
                return True
        elif frame.reliable:
            keys = ids_of(frame)
            if memory.knows(keys):
                self._client.acknowledge(self, (frame.id,))
                return True
            if self.ack_mode == "auto":
                memory.remember(keys)
        memory.pass_by(frame)
        return False

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def changed(self) -> None:
        """Its state is another one."""
        while self._changes:
            change = self._changes.popleft()
            if not change.done():
                change.set_result(None)

    def detached(self) -> None:
        """The connection is gone; what the broker will hand over again is forgotten here."""
        self.state, self.is_sent = 0, False
        if self.group or (self.durable and self.ack_mode == "manual"):
            self._queue.clear()
            self._bytes = 0
            if self._is_crowded:
                self._is_crowded = False
                self._client.crowded(self, False)

    def ended(self, error: VeenaError | None) -> None:
        """It is over; what has come can still be taken."""
        if self._is_closed:
            return
        self._is_closed, self._error = True, error
        if self._is_crowded:
            self._is_crowded = False
            self._client.crowded(self, False)
        self.changed()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def queued(self) -> Sequence[EventFrame]:
        """What has come and was not taken yet."""
        return self._queue


class Batches:
    """The batches of a subscription until it is over: `async for batch in subscription.batches()`."""

    def __init__(self, subscription: Subscription, at_most: int, wait: float) -> None:
        self._subscription = subscription
        self._at_most, self._wait = at_most, wait

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> Batch:
        try:
            return await self._subscription.next_batch(self._at_most, self._wait)
        except NotConnected:
            if self._subscription.is_over:
                raise StopAsyncIteration from None
            raise
