"""Publishing: ids, acceptance, waiting for room, and repeating what was not accepted when a connection was lost.

A reliable event stays here until its broker says that it is on disk. If the connection is lost before, the event is
repeated at the next broker under the incarnation that is given there, and names the id that it had first: ends that
have had it under that one drop it (design §6, roaming publisher). So it is delivered once, whatever happened to the
first attempt.

Reliable events are taken in the order in which they were published, also by tasks that publish at the same time: who
has to wait for room is not overtaken by who comes later, and what a broker could not take for the moment goes before
what was not sent yet.

A best-effort event is handed to the socket and forgotten.

Of many events as many are encoded and written at once as one turn of the loop may take. When one of them is wrong, or
nothing more may be sent, those before it were sent and none behind it, and the error says so (`of_batch`).
"""

from __future__ import annotations

import asyncio
import time
from bisect import insort
from collections import deque
from collections.abc import Sequence

from veena.client.connection import Connection
from veena.client.receipt import Owner, Receipt
from veena.core.wire.client import ClientWelcome, Run
from veena.core.wire.codec import encode
from veena.core.wire.control import Frame
from veena.core.wire.event import EventCodec
from veena.core.wire.event_id import Place
from veena.core.wire.outgoing import OutgoingFrames
from veena.core.wire.section import encode_fields
from veena.errors import InvalidEvent, NotConnected, Overloaded, RefusalCode, StoreError, VeenaError, refusal
from veena.event import Event, EventId, IdGenerator

#: Bytes of events that are not accepted yet.
MAX_BYTES = 64 << 20
#: What an event takes beside its body and document, about.
OVERHEAD = 512
#: Before anything is known of a broker's own limit.
DEFAULT_UNACCEPTED = 4096
#: How long to wait before an event is sent again that a broker could not take for the moment.
RETRY_S = 0.1
#: Bytes of best-effort events after which others are given a turn of the loop, and events that are encoded at once.
TURN_BYTES = 256 * 1024
TURN_EVENTS = 1024


class Outbox:
    """What one client publishes."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._connection: Connection | None = None
        self._frames: OutgoingFrames | None = None
        self._ids: IdGenerator | None = None
        self._max_unaccepted = DEFAULT_UNACCEPTED
        #: In the order in which they were published: those on their way by their place, and those still to be sent.
        self._sent: dict[Place, Receipt] = {}
        self._unsent: deque[Receipt] = deque()
        self._bytes = 0
        self._pause: str | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        #: Held by whoever hands over reliable events: others stand in line behind it.
        self._line = asyncio.Lock()
        #: How many hold it or stand in line.
        self._in_line = 0
        self._taken = 0
        self._turn = 0
        self._error: VeenaError | None = None
        self.accepted = self.denied = self.repeated = self.published = 0

    @property
    def unaccepted(self) -> int:
        return len(self._sent) + len(self._unsent)

    # --- the application's side ---

    async def publish(self, event: Event, reliable: bool, block: bool, before: Frame | None = None) -> str:
        """Send an event, when there is room; its id. A reliable one is on its broker's disk then."""
        if reliable:
            return await (await self.hand_over(event, block))
        while (reason := self._why_not_now()) is not None:
            await self._wait(reason, block)
        event_id = self._send_best_effort(event, before)
        if self._turn >= TURN_BYTES:
            self._turn = 0
            await asyncio.sleep(0)
        return event_id

    async def publish_many(self, events: Sequence[Event], reliable: bool, block: bool) -> list[str]:
        """Send many events; their ids when all are sent, or accepted."""
        if reliable:
            return await self._publish_many_reliable(events, block)
        ids: list[str] = []
        try:
            while len(ids) < len(events):
                while (reason := self._why_not_now()) is not None:
                    await self._wait(reason, block)
                self._send_some(events, ids)
                await asyncio.sleep(0)
        except VeenaError as error:
            raise of_batch(error, len(ids), len(events), ids) from None
        return ids

    async def _publish_many_reliable(self, events: Sequence[Event], block: bool) -> list[str]:
        self._check_line(block)
        receipts: list[Receipt] = []
        failed: VeenaError | None = None
        self._in_line += 1
        try:
            async with self._line:
                for event in events:
                    check_event(event)
                    while (reason := self._why_not_take(event)) is not None:
                        await self._wait(reason, block)
                    receipts.append(self._take(event, block))
        except VeenaError as error:
            failed = error
        finally:
            self._in_line -= 1
        at = len(receipts)
        for number, receipt in enumerate(receipts):
            await receipt.wait()
            if receipt.error is not None and (failed is None or at == len(receipts)):
                failed, at = receipt.error, number
        ids = [receipt.id for receipt in receipts]
        if failed is not None:
            raise of_batch(failed, at, len(events), ids) from None
        return [each for each in ids if each is not None]

    async def hand_over(self, event: Event, block: bool, owner: Owner | None = None) -> Receipt:
        """Take a reliable event, in its turn and when there is room."""
        if not self._in_line and self._why_not_take(check_event(event)) is None:
            return self._take(event, block, owner)
        self._check_line(block)
        self._in_line += 1
        try:
            async with self._line:
                while (reason := self._why_not_take(event)) is not None:
                    await self._wait(reason, block)
                return self._take(event, block, owner)
        finally:
            self._in_line -= 1

    def _check_line(self, block: bool) -> None:
        if not block and self._in_line:
            raise _overloaded("others wait to publish before it")

    def _take(self, event: Event, waits: bool, owner: Owner | None = None) -> Receipt:
        size = len(event.body) + len(event.xml or b"") + OVERHEAD
        self._taken += 1
        receipt = Receipt(event, size, waits, self._taken, owner)
        if self._is_free:
            self._send(receipt)
        else:
            encode_fields(event)  # whoever publishes what is wrong hears so at once
            self._unsent.append(receipt)
        self._bytes += size
        return receipt

    @property
    def _is_free(self) -> bool:
        """Whether a reliable event can be sent at once, behind all that were published before it."""
        return self._connection is not None and not self._unsent and self._retry is None

    def _why_not_now(self) -> str | None:
        """Why a best-effort event cannot be sent now."""
        self._check_open()
        if self._connection is None:
            return "there is no connection"
        return "the connection takes no more for now" if self._connection.is_clogged else None

    def _why_not_take(self, event: Event) -> str | None:
        """Why a reliable event cannot be taken now."""
        self._check_open()
        if self._pause is not None:
            return self._pause or "the broker asked to pause"
        if self.unaccepted >= self._max_unaccepted or (self._bytes + len(event.body) > MAX_BYTES and self._bytes):
            return f"{self.unaccepted} events of {self._bytes} bytes are not accepted yet"
        if self._connection is not None and self._connection.is_clogged:
            return "the connection takes no more for now"
        return None

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self, reason: str, block: bool) -> None:
        if not block:
            raise _overloaded(reason)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """There may be room."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # --- sending ---

    def _stamp(self) -> EventId:
        assert self._ids is not None
        return self._ids.next(time.time_ns())

    def _send_best_effort(self, event: Event, before: Frame | None) -> str:
        assert self._frames is not None and self._connection is not None
        event_id = self._stamp()
        frame = self._frames.encode(event, event_id.timestamp, event_id.sequence)
        self._turn += len(frame)
        self.published += 1
        if before is not None:
            self._connection.write(encode(before, 0))
        self._connection.write(frame)
        return str(event_id)

    def _send_some(self, events: Sequence[Event], ids: list[str]) -> None:
        """Write the events of which there are no ids yet, as many as one turn may take."""
        assert self._frames is not None and self._connection is not None
        make, stamp = self._frames.encode, self._stamp
        frames: list[bytes] = []
        size = 0
        try:
            for event in events[len(ids) : len(ids) + TURN_EVENTS]:
                event_id = stamp()
                frame = make(check_event(event), event_id.timestamp, event_id.sequence)
                frames.append(frame)
                ids.append(str(event_id))
                size += len(frame)
                if size >= TURN_BYTES:
                    break
        finally:  # what is before a wrong event is sent
            self.published += len(frames)
            if frames:
                self._connection.write(b"".join(frames))

    def send_sample(self, event: Event, before: Frame) -> None:
        """An event that only shows what is meant."""
        self._send_best_effort(event, before)

    def _send(self, receipt: Receipt) -> None:
        """Write an event that was taken; raise InvalidEvent for one that cannot be sent."""
        assert self._frames is not None and self._connection is not None
        event_id = self._stamp()
        place = (event_id.timestamp, event_id.sequence)
        frame = self._frames.encode(receipt.event, *place, True, receipt.original)
        receipt.event_id = event_id
        self.published += 1
        self._sent[place] = receipt
        self._connection.write(frame)

    def _send_unsent(self) -> None:
        while self._unsent and self._connection is not None and self._retry is None:
            receipt = self._unsent.popleft()
            try:
                self._send(receipt)
            except VeenaError as error:  # such as one that is too large for this broker
                self._settle(receipt, error)

    # --- the broker's side ---

    def attached(self, connection: Connection, welcome: ClientWelcome) -> None:
        """A broker has let this client in: repeat what is not accepted, then go on."""
        codec = EventCodec(welcome.levels, welcome.fanout, welcome.max_frame)
        # Frames that say where the broker is can be handed on as they come.
        self._frames = OutgoingFrames(codec, self._client_id, welcome.incarnation, welcome.address)
        self._ids = IdGenerator(self._client_id, welcome.incarnation)
        self._max_unaccepted = max(1, welcome.max_unaccepted)
        self._connection = connection
        self._pause = None
        self._send_unsent()
        self.wake()

    def detached(self) -> None:
        """The connection is gone: everything that was not accepted has to be sent again, first of all."""
        self._connection = None
        self._cancel_retry()
        sent, self._sent = list(self._sent.values()), {}
        for entry in sent:
            if entry.original is None and entry.event_id is not None:
                entry.original = (entry.event_id.incarnation, entry.event_id.timestamp, entry.event_id.sequence)
            entry.event_id = None
        self._unsent = deque(sorted((*sent, *self._unsent), key=_number_of))
        self.repeated += len(sent)

    def hear_accepted(self, runs: Sequence[Run]) -> None:
        for timestamp, first, last in runs:
            if last - first > len(self._sent):
                found = [place for place in self._sent if place[0] == timestamp and first <= place[1] <= last]
            else:
                found = [(timestamp, sequence) for sequence in range(first, last + 1)]
            for place in found:
                entry = self._sent.pop(place, None)
                if entry is not None:
                    self.accepted += 1
                    self._settle(entry, None)
        self.wake()

    def hear_denied(self, timestamp: int, sequence: int, why: RefusalCode, reason: str) -> bool:
        """An event was not accepted; False when nobody waits for that."""
        entry = self._sent.pop((timestamp, sequence), None)
        if entry is None:
            self.denied += 1
            return False
        if why.is_passing and entry.waits:
            entry.event_id = None
            insort(self._unsent, entry, key=_number_of)
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
            return True
        self.denied += 1
        self._settle(entry, _error_of(why, reason))
        self.wake()
        return True

    def _try_again(self) -> None:
        self._retry = None
        self._send_unsent()
        self.wake()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def pause(self, reason: str) -> None:
        self._pause = reason

    def resume(self) -> None:
        self._pause = None
        self.wake()

    def close(self, error: VeenaError) -> None:
        """Nothing more is sent; who waits is told."""
        self._error = error
        self._connection = None
        self._cancel_retry()
        for entry in (*self._sent.values(), *self._unsent):
            self._settle(entry, NotConnected(f"not known whether it was accepted: {error}"))
        self._sent.clear()
        self._unsent.clear()
        self.wake()

    def _settle(self, entry: Receipt, error: VeenaError | None) -> None:
        self._bytes -= entry.size
        if not entry.is_done:
            entry.settle(error)


def check_event(event: Event) -> Event:
    if not isinstance(event, Event):
        raise InvalidEvent(f"{event!r:.80} is a {type(event).__name__}: expected a veena.Event")
    return event


def of_batch(error: VeenaError, at: int, count: int, ids: Sequence[str | None]) -> VeenaError:
    """The same error, of one event of many: which one, and which were published nevertheless."""
    published = (*ids, *(None for _ in range(count - len(ids))))
    done = sum(each is not None for each in published)
    error.args = (f"event {at} of {count} ({done} were published, see `published` of this error): {error}",)
    error.published = published
    return error


def _number_of(entry: Receipt) -> int:
    return entry.number


def _error_of(why: RefusalCode, reason: str) -> VeenaError:
    """What `publish` raises for an event that the broker refused."""
    if why.is_passing:
        return Overloaded(reason, code=why)
    return StoreError.told(reason) if why is RefusalCode.STORE else refusal(why, reason)


def _overloaded(reason: str) -> Overloaded:
    return Overloaded(f"it cannot be published now: {reason}; wait and try again, or publish with block=True")
