"""The client without async, for plain scripts: the same names, each call returns when it is done.

    with veena.blocking.connect("veena://127.0.0.1:7700", client_id="alice") as client:
        quotes = client.subscribe(topic="quotes")
        client.publish(topic="quotes", body=b"hello", reliable=True)
        print(quotes.next(timeout=1.0).body)

A thread of its own runs the event loop. Every method may be called from any thread; functions given as `on_event` are
called in that thread, and must not wait for this client there.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from veena.address import Address
from veena.client import client as asynchronous
from veena.client import pipeline as asynchronous_pipeline
from veena.client import receipt as asynchronous_receipt
from veena.client import subscription as asynchronous_subscription
from veena.client.arguments import Content
from veena.client.client import ANSWER_S, DEFAULT_URL, ClientStatistics
from veena.client.explain import REPORT_S, Explanation, SentAway, TraceAnswer
from veena.client.pipeline import DEFAULT_WINDOW, MAX_REFUSED
from veena.client.questions import QueryAnswer
from veena.client.questions import Watch as AsyncWatch
from veena.client.subscription import BATCH_EVENTS
from veena.core.boundary.discovery import DEFAULT_LEASE_S, Scalar
from veena.errors import LocalProtocolError, NotConnected, TimedOut, VeenaError
from veena.event import Event, EventId, Value

__all__ = ["Batch", "Client", "Pipeline", "Receipt", "Subscription", "Watch", "connect"]

#: How often whoever waits for room looks whether the client is still there.
LOOK_S = 0.5

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="veena-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there and wait for it; what interrupts the waiting ends the work."""
        try:
            self.check()
        except VeenaError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def check(self) -> None:
        """Raise what keeps anybody from waiting for it."""
        if threading.current_thread() is self._thread:
            raise LocalProtocolError("called in the thread of this client: return from on_event first")
        if self._loop.is_closed():
            raise NotConnected("this client is closed")

    def soon(self, function: Callable[[], None]) -> None:
        """Call it there, without waiting for it."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            raise NotConnected("this client is closed") from None

    def call(self, function: Callable[[], T]) -> T:
        """Call it there, where nothing else happens meanwhile."""

        async def called() -> T:
            return function()

        return self.wait(called())

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Subscription:
    """What a client wants, and the events that came for it. Use it as `for event in subscription`."""

    def __init__(self, loop: LoopThread, inner: asynchronous_subscription.Subscription) -> None:
        self._loop = loop
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def state(self) -> int:
        return self._inner.state

    @property
    def scope(self) -> int:
        return self._inner.scope

    @property
    def is_active(self) -> bool:
        return self._inner.is_active

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    @property
    def dropped(self) -> int:
        return self._inner.dropped

    @property
    def suspension(self) -> VeenaError | None:
        """Why its broker suspended it, with a code and a remedy; None while it did not."""
        return self._inner.suspension

    @property
    def durable(self) -> str:
        return self._inner.durable

    def next(self, timeout: float | None = None) -> Event:
        """The next event; raise TimedOut when none comes within so many seconds."""
        return self._loop.wait(self._inner.next(timeout))

    def poll(self) -> Event | None:
        """An event that is there already, or None."""
        return self._loop.call(self._inner.poll)

    def take(self, at_most: int = 1 << 20) -> list[Event]:
        """Everything that is there already."""
        return self._loop.call(lambda: self._inner.take(at_most))

    def next_batch(self, max: int = BATCH_EVENTS, wait: float = 0.0, timeout: float | None = None) -> Batch:  # noqa: A002  # a plain name
        """What is there, at least one event and at most `max`; fewer are waited for up to `wait` seconds longer."""
        return Batch(self, self._loop.wait(self._inner.next_batch(max, wait, timeout)))

    def batches(self, max: int = BATCH_EVENTS, wait: float = 0.0) -> Iterator[Batch]:  # noqa: A002  # a plain name
        """For `for batch in subscription.batches()`: lists of events, as `next_batch` gives them."""
        while True:
            try:
                yield self.next_batch(max, wait)
            except NotConnected:
                if self._inner.is_over:
                    return
                raise

    def __iter__(self) -> Iterator[Event]:
        while True:
            try:
                yield self._loop.wait(self._inner.__anext__())
            except StopAsyncIteration:
                return

    def ack(self, *events: Event) -> None:
        """With `ack="manual"`: the application is done with these events."""
        self._loop.wait(self._inner.ack(*events))

    def wait_active(self, timeout: float | None) -> bool:
        return self._loop.wait(self._inner.wait_active(timeout))

    def wait_caught_up(self, timeout: float | None = None) -> bool:
        return self._loop.wait(self._inner.wait_caught_up(timeout))

    def close(self) -> None:
        """Receive no more. A durable subscription is kept for the next time."""
        self._loop.wait(self._inner.close())

    def delete(self) -> None:
        """End it for good, durable or not."""
        self._loop.wait(self._inner.delete())


class Batch(list[Event]):
    """Events of one subscription that were taken together."""

    def __init__(self, subscription: Subscription, events: Sequence[Event]) -> None:
        super().__init__(events)
        self._subscription = subscription

    def ack(self) -> None:
        """With `ack="manual"`: the application is done with all of them."""
        self._subscription.ack(*self)


class Watch:
    """Whether anybody wants events like the one that was shown."""

    def __init__(self, loop: LoopThread, inner: AsyncWatch) -> None:
        self._loop = loop
        self._inner = inner

    @property
    def wanted(self) -> bool | None:
        return self._inner.wanted

    def changed(self, timeout: float | None = None) -> bool:
        """Wait for the next time that the answer changes; the answer."""
        return self._loop.wait(self._inner.changed(timeout))

    def close(self) -> None:
        self._loop.wait(self._inner.close())


class Receipt:
    """A reliable event on its way; made by `Pipeline.publish`."""

    def __init__(self, pipeline: Pipeline, event: Event) -> None:
        self._pipeline = pipeline
        self.event = event
        self._inner: asynchronous_receipt.Receipt | None = None
        #: What is wrong with it, found before it was handed over.
        self._error: VeenaError | None = None

    @property
    def is_done(self) -> bool:
        return self._error is not None or (self._inner is not None and self._inner.is_done)

    def result(self, timeout: float | None = None) -> str:
        """Wait for its id; raise what kept it from being accepted, or TimedOut after so many seconds."""
        return self._pipeline._loop.wait(self._result(timeout))

    async def _result(self, timeout: float | None) -> str:
        try:
            async with asyncio.timeout(timeout):
                while self._inner is None and self._error is None:
                    await self._pipeline._handed_over()
                if self._error is not None:
                    self._pipeline._faults.pop(self, None)  # who asks for it knows
                    raise self._error
                assert self._inner is not None
                return await self._inner
        except TimeoutError:
            raise TimedOut(f"the event was not accepted within {timeout} seconds") from None


class Pipeline:
    """Reliable publishing without waiting for each event; as `veena.client.pipeline`.

    Events gather in the caller's thread, a window of them at most, and go over to the client's thread together: the way
    from one thread to another costs more than an event.
    """

    def __init__(self, loop: LoopThread, inner: asynchronous_pipeline.Pipeline) -> None:
        self._loop = loop
        self._inner = inner
        self._waiting: deque[Receipt] = deque()
        self._room = threading.Semaphore(inner.window)
        self._is_announced = False
        self._task: asyncio.Task[None] | None = None
        self._faults: dict[Receipt, VeenaError] = {}

    def publish(self, **content: Unpack[Content]) -> Receipt:
        """Publish an event. It returns when there is room in the window."""
        return self.publish_event(Event(**content))

    def publish_event(self, event: Event) -> Receipt:
        """The same for an event that is there already; it gets an id of its own."""
        self._loop.check()
        while not self._room.acquire(timeout=LOOK_S):
            self._loop.check()
        receipt = Receipt(self, event)
        self._waiting.append(receipt)
        if not self._is_announced:
            self._is_announced = True
            self._loop.soon(self._begin)
        return receipt

    def flush(self) -> None:
        """Wait until all are accepted; raise the first refusal that nobody has asked for."""
        self._loop.wait(self._flush())

    async def _flush(self) -> None:
        await self._handed_over()
        await self._inner.flush()
        for receipt in list(self._faults):
            error = self._faults[receipt]
            self._faults.clear()
            raise error

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()

    # --- in the client's thread ---

    def _begin(self) -> None:
        self._is_announced = False  # before it looks what waits
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._hand_over())

    async def _hand_over(self) -> None:
        while self._waiting:
            receipt = self._waiting.popleft()
            try:
                receipt._inner = await self._inner.publish_event(receipt.event)
            except VeenaError as error:
                receipt._error = error
                if len(self._faults) < MAX_REFUSED:
                    self._faults[receipt] = error
            finally:
                self._room.release()

    async def _handed_over(self) -> None:
        """Until all that has gathered by now is with the client."""
        self._begin()
        assert self._task is not None
        await asyncio.wait({self._task})


def connect(url: str | Sequence[str] = DEFAULT_URL, **options: Any) -> Client:
    """A client, to be used as `with veena.blocking.connect(...) as client`; `options` are those of `veena.connect`."""
    return Client(asynchronous.connect(url, **options))


class Client:
    """A client of a broker network; made by `connect`."""

    def __init__(self, inner: asynchronous.Client) -> None:
        self._inner = inner
        self._loop_: LoopThread | None = None

    def open(self) -> Client:
        """Attach to the first broker that answers."""
        if self._loop_ is None:
            loop = LoopThread()
            try:
                loop.wait(self._inner.open())
            except BaseException:
                loop.stop()
                raise
            self._loop_ = loop
        return self

    def close(self) -> None:
        """Say goodbye. Durable subscriptions are kept by the broker."""
        if self._loop_ is not None:
            try:
                self._loop.wait(self._inner.close())
            except NotConnected:
                return  # closed before
            self._loop.stop()

    def __enter__(self) -> Client:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _loop(self) -> LoopThread:
        if self._loop_ is None:
            raise NotConnected("this client is not open: use `with veena.blocking.connect(...) as client`")
        return self._loop_

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    @property
    def is_connected(self) -> bool:
        return self._inner.is_connected

    @property
    def broker(self) -> Address | None:
        return self._inner.broker

    @property
    def inbox(self) -> Subscription:
        """Events that were written to this client by its id, for one that is `reachable`."""
        return Subscription(self._loop, self._inner.inbox)

    def wait_connected(self, timeout: float | None = None) -> None:
        self._loop.wait(self._inner.wait_connected(timeout))

    def move(self, url: str | Sequence[str], timeout: float = asynchronous.CONNECT_S) -> None:
        self._loop.wait(self._inner.move(url, timeout))

    def statistics(self) -> ClientStatistics:
        return self._loop.call(self._inner.statistics)

    def subscribe(self, **wanted: Any) -> Subscription:
        """Want events; the arguments are those of `veena.Client.subscribe`."""
        return Subscription(self._loop, self._loop.wait(self._inner.subscribe(**wanted)))

    def publish(self, *, reliable: bool = False, block: bool = True, **content: Unpack[Content]) -> str:
        """Publish an event; its id. The arguments are those of `veena.Client.publish`."""
        return self._loop.wait(self._inner.publish(reliable=reliable, block=block, **content))

    def publish_event(self, event: Event, *, reliable: bool = False, block: bool = True) -> str:
        return self._loop.wait(self._inner.publish_event(event, reliable=reliable, block=block))

    def publish_many(self, events: Sequence[Event], *, reliable: bool = False, block: bool = True) -> list[str]:
        return self._loop.wait(self._inner.publish_many(events, reliable=reliable, block=block))

    def pipeline(self, window: int = DEFAULT_WINDOW) -> Pipeline:
        """Publish reliable events without waiting for each: at most `window` of them are not accepted yet."""
        return Pipeline(self._loop, self._loop.call(lambda: self._inner.pipeline(window)))

    @overload
    def request(self, *, answers: None = None, timeout: float = ANSWER_S, **content: Unpack[Content]) -> Event: ...

    @overload
    def request(self, *, answers: int, timeout: float = ANSWER_S, **content: Unpack[Content]) -> list[Event]: ...

    def request(
        self, *, answers: int | None = None, timeout: float = ANSWER_S, **content: Unpack[Content]
    ) -> Event | list[Event]:
        """Publish an event and wait for the answer to it, or with `answers=n` for a list of them."""
        if answers is None:
            return self._loop.wait(self._inner.request(timeout=timeout, **content))
        return self._loop.wait(self._inner.request(answers=answers, timeout=timeout, **content))

    def reply(
        self,
        event: Event,
        *,
        body: bytes | memoryview = b"",
        properties: Mapping[str, Value] | None = None,
        headers: Mapping[str, Value] | None = None,
        xml: str | bytes | None = None,
        reliable: bool = False,
    ) -> str:
        """Answer a request."""
        work = self._inner.reply(event, body=body, properties=properties, headers=headers, xml=xml, reliable=reliable)
        return self._loop.wait(work)

    def flush(self, timeout: float = ANSWER_S) -> None:
        """Wait until the broker has read all that was published."""
        self._loop.wait(self._inner.flush(timeout))

    def watch(self, sample: Event, *, wait: float = ANSWER_S) -> Watch:
        """Ask whether anybody wants events like this one."""
        return Watch(self._loop, self._loop.wait(self._inner.watch(sample, wait=wait)))

    def advertise(
        self,
        name: str,
        *,
        properties: Mapping[str, Scalar] | None = None,
        xml: str | bytes | None = None,
        scope: str = "system",
        lease: float = DEFAULT_LEASE_S,
    ) -> None:
        """Offer something under a name."""
        self._loop.wait(self._inner.advertise(name, properties=properties, xml=xml, scope=scope, lease=lease))

    def withdraw(self, name: str) -> None:
        self._loop.wait(self._inner.withdraw(name))

    def query(
        self,
        *,
        sql: str | None = None,
        xpath: str | None = None,
        namespaces: Mapping[str, str] | None = None,
        constraint: str | None = None,
        properties: Sequence[str] = (),
        limit: int = 0,
        realm: str = "system",
        full: bool = True,
        timeout: float = ANSWER_S,
    ) -> QueryAnswer:
        """Find advertisements, by SQL or a constraint over their properties or by XPath over their documents."""
        work = self._inner.query(
            sql=sql, xpath=xpath, namespaces=namespaces, constraint=constraint, properties=properties, limit=limit,
            realm=realm, full=full, timeout=timeout,
        )  # fmt: skip
        return self._loop.wait(work)

    def trace(self, event_id: EventId | str, *, timeout: float = ANSWER_S) -> TraceAnswer:
        """Which way an event went and who got it."""
        return self._loop.wait(self._inner.trace(event_id, timeout=timeout))

    def explain(self, event_id: EventId | str, client_id: str, *, timeout: float = ANSWER_S) -> Explanation:
        """What became of an event for a client."""
        return self._loop.wait(self._inner.explain(event_id, client_id, timeout=timeout))

    def status(self, *, timeout: float = REPORT_S) -> dict[str, Any]:
        """Everything that the broker says of itself."""
        return self._loop.wait(self._inner.status(timeout=timeout))

    def topology(self, *, timeout: float = REPORT_S) -> dict[str, Any]:
        """The network as the broker sees it."""
        return self._loop.wait(self._inner.topology(timeout=timeout))

    def clients(self, *, timeout: float = REPORT_S) -> dict[str, Any]:
        """Who is attached to the broker: from where, how far away, with how much traffic."""
        return self._loop.wait(self._inner.clients(timeout=timeout))

    def send_away(
        self, clients: Sequence[str], url: str | Sequence[str], *, reason: str = "", timeout: float = REPORT_S
    ) -> SentAway:
        """Let clients of the broker go to another one, with what is kept for them; needs the right `move`."""
        return self._loop.wait(self._inner.send_away(clients, url, reason=reason, timeout=timeout))
