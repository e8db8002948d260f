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
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from veena.address import Address
from veena.client import client as asynchronous
from veena.client import subscription as asynchronous_subscription
from veena.client.arguments import Content
from veena.client.client import ANSWER_S, DEFAULT_URL, ClientStatistics
from veena.client.explain import REPORT_S, Explanation, SentAway, TraceAnswer
from veena.client.questions import QueryAnswer
from veena.client.questions import Watch as AsyncWatch
from veena.core.boundary.discovery import DEFAULT_LEASE_S, Scalar
from veena.errors import LocalProtocolError, NotConnected, VeenaError
from veena.event import Event, EventId, Value

__all__ = ["Client", "Subscription", "Watch", "connect"]

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
        if threading.current_thread() is self._thread:
            work.close()
            raise LocalProtocolError("called in the thread of this client: return from on_event first")
        if self._loop.is_closed():
            work.close()
            raise NotConnected("this client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

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
