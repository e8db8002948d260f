"""The asyncio client: everything that an application does with a broker network (design §9; CLI-01..08).

    async with veena.connect("veena://127.0.0.1:7700", client_id="alice") as client:
        quotes = await client.subscribe(topic="quotes", selector="price > 10")
        await client.publish(topic="quotes", properties={"price": 12.5}, reliable=True)
        event = await quotes.next(timeout=1.0)

Reliable events that were accepted, and durable subscriptions, survive whatever happens to the connection: the client
attaches again by itself, at the same broker or another one. A subscription that is not durable gets what is published
while it is attached.
"""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

import msgspec

import veena
from veena import matching
from veena.address import Address
from veena.client import explain as past
from veena.client.arguments import Content, asked_in, constraint_of, durable_name, level_of, since_ns
from veena.client.callbacks import Callback, call_with_each
from veena.client.explain import Explanation, SentAway, TraceAnswer
from veena.client.pipeline import DEFAULT_WINDOW, Pipeline
from veena.client.questions import QueryAnswer, Watch
from veena.client.session import Greeting, Session
from veena.client.subscription import Subscription
from veena.core.boundary.discovery import DEFAULT_LEASE_S, Scalar
from veena.core.discovery.advertisement import MAX_LEASE_S
from veena.core.messages.addresses import INTERNAL
from veena.core.sessions.requests import CORRELATION, REPLY_TO
from veena.core.wire.client import (
    DEFAULT_CLIENT_HEARTBEAT_MS,
    MAX_CLIENT_HEARTBEAT_MS,
    AskAdvertise,
    AskQuery,
    AskRequest,
    AskWithdraw,
)
from veena.errors import InvalidEvent, LocalProtocolError, NotConnected, TimedOut
from veena.event import DEFAULT_PRIORITY, Event, EventId, Value, check_client_id
from veena.runtime.locator.client import locator_url
from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.url import parse_url, split_urls

DEFAULT_URL = "veena://127.0.0.1:7700"
#: How long `connect` tries, and how long `subscribe` waits to be acknowledged.
CONNECT_S = 10.0
SUBSCRIBE_S = 5.0
#: How long requests and queries wait for answers.
ANSWER_S = 2.0
#: Beyond the broker's own deadline: it says itself that nobody answered.
GRACE_S = 5.0

T = TypeVar("T")
_properties = msgspec.msgpack.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    #: Times that the client was let in, by brokers that it then spoke to.
    connections: int
    subscriptions: int
    published: int
    accepted: int
    denied: int
    #: Sent again after a connection was lost.
    repeated: int
    unaccepted: int
    #: Dropped by brokers because this client did not read.
    dropped: int
    round_trip_s: float | None


def connect(
    url: str | Sequence[str] = DEFAULT_URL,
    *,
    client_id: str | None = None,
    user: str = "",
    password: str = "",
    token: str = "",
    reachable: bool = False,
    tls: ssl.SSLContext | None = None,
    attributes: Mapping[str, str] | None = None,
    slow: Literal["drop", "disconnect"] = "drop",
    heartbeat: float = DEFAULT_CLIENT_HEARTBEAT_MS / 1000,
    timeout: float = CONNECT_S,
    reconnect: bool = True,
) -> Client:
    """A client, to be used as `async with veena.connect(...) as client`; `await client.open()` does as well.

    With several URLs, in a list or separated by commas, the first broker that answers is taken, also after a connection
    was lost; a URL of the form `veena+locator://host:port` is asked for the nearest broker that has room, each time
    anew. A client that is to keep durable subscriptions names itself by `client_id`; one that is `reachable` can be
    written to by that id.
    """
    urls = _checked(split_urls(url), tls)
    if not 1 <= heartbeat * 1000 <= MAX_CLIENT_HEARTBEAT_MS:
        raise LocalProtocolError(f"heartbeat {heartbeat}: expected 0.001 to {MAX_CLIENT_HEARTBEAT_MS / 1000:g} seconds")
    if slow not in ("drop", "disconnect"):
        raise LocalProtocolError(f"slow {slow!r}: use 'drop' or 'disconnect'")
    new = f"{user}/{uuid.uuid4().hex}" if user else f"client-{uuid.uuid4().hex}"  # a user may take ids below its name
    name = check_client_id(new if client_id is None else client_id)
    if name.startswith(INTERNAL):
        raise LocalProtocolError(f"client id {name!r}: ids that begin with {INTERNAL} are the brokers' own")
    greeting = Greeting(
        name,
        user,
        password,
        token,
        reachable,
        tuple((attributes or {}).items()),
        slow,
        round(heartbeat * 1000),
        f"veena-python/{veena.__version__}",
    )
    return Client(urls, greeting, Secrets(client=tls), timeout, reconnect, client_id is not None)


def _checked(urls: tuple[str, ...], tls: ssl.SSLContext | None) -> tuple[str, ...]:
    if not urls:
        raise LocalProtocolError(f"no URL: name at least one broker, such as {DEFAULT_URL}")
    for each in urls:
        if not parse_url(locator_url(each) or each).is_secure and tls is not None:
            raise LocalProtocolError(f"tls is given, but {each} is not inside TLS: use veenas:// or wss://")
    return urls


class Client:
    """A client of a broker network; made by `connect`."""

    def __init__(
        self, urls: Sequence[str], greeting: Greeting, secrets: Secrets, timeout: float, reconnect: bool, is_named: bool
    ) -> None:
        self._urls = tuple(urls)
        self._greeting = greeting
        self._secrets = secrets
        self._timeout = timeout
        self._reconnect = reconnect
        self._is_named = is_named
        self._session_: Session | None = None
        self._on_attached: list[Callable[[], None]] = []
        self._callbacks: set[asyncio.Task[None]] = set()

    async def open(self) -> Client:
        """Attach to the first broker that answers."""
        if self._session_ is None:
            session = Session(self._urls, self._greeting, self._secrets, self._reconnect)
            session.on_attached = self._on_attached
            try:
                await session.start(self._timeout)
            except BaseException:
                await session.close()
                raise
            self._session_ = session
        return self

    async def close(self) -> None:
        """Say goodbye. Durable subscriptions are kept by the broker."""
        if self._session_ is not None:
            await self._session_.close()
        for task in list(self._callbacks):
            task.cancel()
        await asyncio.gather(*self._callbacks, return_exceptions=True)

    async def __aenter__(self) -> Client:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _session(self) -> Session:
        if self._session_ is None:
            raise NotConnected("this client is not open: use `async with veena.connect(...) as client`")
        return self._session_

    @property
    def client_id(self) -> str:
        return self._greeting.client_id

    @property
    def is_connected(self) -> bool:
        return self._session_ is not None and self._session_.is_attached

    @property
    def broker(self) -> Address | None:
        """The address of the broker that it is, or was last, attached to."""
        welcome = None if self._session_ is None else self._session_.welcome
        return None if welcome is None else welcome.address

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Those that are not closed, in the order in which they were made."""
        return tuple(self._session.subscriptions.values())

    @property
    def inbox(self) -> Subscription:
        """Events that were written to this client by its id, for one that is `reachable`."""
        return self._session.inbox

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until a broker has let it in again."""
        await self._session.wait_attached(timeout)

    def on_attached(self, callback: Callable[[], None]) -> None:
        """Call this whenever a broker has let the client in; where it is then says `broker`."""
        self._on_attached.append(callback)

    async def move(self, url: str | Sequence[str], timeout: float = CONNECT_S) -> None:
        """Go to another broker: what is kept for durable subscriptions follows, and nothing comes twice."""
        self._urls = _checked(split_urls(url), self._secrets.client)
        self._session.move(self._urls)
        await self._session.wait_attached(timeout)

    def statistics(self) -> ClientStatistics:
        session = self._session
        outbox = session.outbox
        return ClientStatistics(
            session.connections,
            len(session.subscriptions),
            outbox.published,
            outbox.accepted,
            outbox.denied,
            outbox.repeated,
            outbox.unaccepted,
            session.dropped,
            None if session.connection is None else session.connection.round_trip_s,
        )

    # --- subscribing ---

    async def subscribe(
        self,
        *,
        topic: str | None = None,
        selector: str | None = None,
        tags: str | Mapping[str, str] | None = None,
        integer: int | None = None,
        xpath: str | None = None,
        namespaces: Mapping[str, str] | None = None,
        constraint: str | None = None,
        durable: bool | str = False,
        ack: Literal["auto", "manual"] = "auto",
        scope: str = "system",
        since: datetime | timedelta | float | None = None,
        group: str = "",
        wait: float = SUBSCRIBE_S,
        on_event: Callback | None = None,
    ) -> Subscription:
        """Want events: name one of topic (with or without selector), tags, integer, xpath and constraint.

        It returns when all brokers in scope that matter know of it, or after `wait` seconds with `state` below that.
        With `on_event` the function is called with every event, one after the other; otherwise take them yourself.
        Of the clients that share it as a `group` one gets each event; with `durable` events wait while none is there.
        """
        engine, wanted = constraint_of(topic, selector, tags, integer, xpath, namespaces, constraint)
        matching.create(engine).add(0, wanted, 0)  # says exactly what is wrong with it
        if ack not in ("auto", "manual"):
            raise LocalProtocolError(f"ack {ack!r}: use 'auto' or 'manual'")
        if ack == "manual" and not durable and not group:
            raise LocalProtocolError("ack='manual' needs durable=True or a group: nothing else comes again")
        if group and since is not None:
            raise LocalProtocolError("a group has no past: leave since away, or name the group durable beforehand")
        if durable is not False and not group and not self._is_named:
            raise LocalProtocolError(
                "a durable subscription is kept for a client: connect with client_id='...' (--client-id)"
            )
        session = self._session
        found = Subscription(
            session, session.new_number(), engine, wanted, level_of(scope, "scope"),
            durable_name(durable, engine, wanted), ack, since_ns(since), group,
        )  # fmt: skip
        session.add(found)
        if on_event is not None:
            task = asyncio.get_running_loop().create_task(call_with_each(found, on_event))
            self._callbacks.add(task)
            task.add_done_callback(self._callbacks.discard)
        try:
            if wait > 0:
                await found.wait_active(wait)
        except asyncio.CancelledError:
            await found.close()
            raise
        return found

    # --- publishing ---

    async def publish(
        self,
        *,
        topic: str | None = None,
        integer: int | None = None,
        tags: str | Mapping[str, str] | None = None,
        xml: str | bytes | None = None,
        properties: Mapping[str, Value] | None = None,
        headers: Mapping[str, Value] | None = None,
        body: bytes | memoryview = b"",
        priority: int = DEFAULT_PRIORITY,
        ttl: float | None = None,
        to: Sequence[str] = (),
        reliable: bool = False,
        block: bool = True,
    ) -> str:
        """Publish an event; its id. A reliable one is on its broker's disk then, any other one is with the socket.

        When it cannot be sent now, this waits, or with `block=False` raises Overloaded.
        """
        event = Event(topic, integer, tags, xml, properties or {}, headers or {}, body, priority, ttl, to)
        return await self._session.outbox.publish(event, reliable, block)

    async def publish_event(self, event: Event, *, reliable: bool = False, block: bool = True) -> str:
        """The same for an event that is there already; it gets an id of its own."""
        return await self._session.outbox.publish(event, reliable, block)

    async def publish_many(self, events: Sequence[Event], *, reliable: bool = False, block: bool = True) -> list[str]:
        """Publish many events without waiting for each: their ids, when the last one is accepted or sent.

        An error names the event that is wrong; those before it were published, those behind it were not, and its
        `published` has the id of each. When this is cancelled, reliable events that were taken go on.
        """
        return await self._session.outbox.publish_many(events, reliable, block)

    def pipeline(self, window: int = DEFAULT_WINDOW) -> Pipeline:
        """Publish reliable events without waiting for each: at most `window` of them are not accepted yet."""
        return Pipeline(self._session.outbox, window)

    @overload
    async def request(
        self, *, answers: None = None, timeout: float = ANSWER_S, **content: Unpack[Content]
    ) -> Event: ...

    @overload
    async def request(self, *, answers: int, timeout: float = ANSWER_S, **content: Unpack[Content]) -> list[Event]: ...

    async def request(
        self, *, answers: int | None = None, timeout: float = ANSWER_S, **content: Unpack[Content]
    ) -> Event | list[Event]:
        """Publish an event (`content` as for `publish`) and wait for the answer to it; raise Unanswered without one.

        With `answers=n` the result is a list of at most n of them: those that came in time, at least one.
        """
        session = self._session
        await session.wait_attached(timeout)
        assert session.welcome is not None
        number = session.new_number()
        headers = {**content.get("headers", {}), REPLY_TO: session.welcome.reply_to, CORRELATION: number}
        event = Event(**{"ttl": timeout, **content, "headers": headers})  # type: ignore[arg-type]
        future = session.questions.request(number, answers or 1)
        await session.outbox.publish(
            event, False, True, AskRequest(number, max(1, round(timeout * 1000)), answers or 1)
        )
        found = await _answer(future, timeout, f"request {number}")
        return found[0] if answers is None else found

    async def reply(
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
        reply_to = event.headers.get(REPLY_TO)
        if not isinstance(reply_to, str):
            raise InvalidEvent(f"event {event.id} is no request: it does not say where answers go")
        correlation = event.headers.get(CORRELATION)
        answer = Event(
            xml=xml, properties=properties or {}, headers={**(headers or {}), CORRELATION: correlation}, body=body,
            to=(reply_to,), priority=event.priority,
        )  # fmt: skip
        return str(await self._session.outbox.publish(answer, reliable, True))

    async def flush(self, timeout: float = ANSWER_S) -> None:
        """Wait until the broker has read all that was published: `statistics().denied` then counts what it refused."""
        session = self._session
        await session.wait_attached(timeout)
        assert session.connection is not None
        await _answer(session.connection.wait_read(), timeout, "flush")

    async def watch(self, sample: Event, *, wait: float = ANSWER_S) -> Watch:
        """Ask whether anybody wants events like this one, now and whenever that changes (quench)."""
        session = self._session
        await session.wait_attached(wait)
        watch = Watch(session.questions, session.new_number(), sample)
        session.questions.watches[watch.number] = watch
        session.say_watch(watch.number, sample)
        if wait > 0 and watch.wanted is None:
            await watch.changed(wait)
        return watch

    # --- discovery ---

    async def advertise(
        self,
        name: str,
        *,
        properties: Mapping[str, Scalar] | None = None,
        xml: str | bytes | None = None,
        scope: str = "system",
        lease: float = DEFAULT_LEASE_S,
    ) -> None:
        """Offer something under a name: it can be found in scope, while this client is attached and `lease` after."""
        if not 0 <= lease <= MAX_LEASE_S:
            raise LocalProtocolError(f"lease {lease}: expected 0 to {MAX_LEASE_S:g} seconds")
        try:
            packed = _properties.encode(dict(properties or {}))
        except (TypeError, OverflowError, ValueError) as error:
            raise LocalProtocolError(f"properties of advertisement {name!r}: {error}") from None
        document = b"" if xml is None else xml.encode() if isinstance(xml, str) else xml
        frame = AskAdvertise(
            name, level_of(scope, "scope"), packed, document, isinstance(xml, str), round(lease * 1000)
        )
        session = self._session
        await session.wait_attached(self._timeout)
        future = session.questions.advert(name)
        session.send(frame)
        await _answer(future, self._timeout, f"advertisement {name!r}")
        session.questions.standing[name] = frame

    async def withdraw(self, name: str) -> None:
        """Offer it no longer."""
        session = self._session
        session.questions.standing.pop(name, None)
        await session.wait_attached(self._timeout)
        future = session.questions.advert(name)
        session.send(AskWithdraw(name))
        await _answer(future, self._timeout, f"advertisement {name!r}")

    async def query(
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
        """Find advertisements, by SQL or a constraint over their properties or by XPath over their documents.

        With a constraint the answer has the `properties` that are named, or all, of at most `limit` advertisements.
        """
        language, text = asked_in(sql, xpath, constraint, properties, limit)
        session = self._session
        await session.wait_attached(timeout)
        number = session.new_number()
        future = session.questions.query(number)
        session.send(
            AskQuery(
                number, language, text, level_of(realm, "realm"), full, tuple(sorted((namespaces or {}).items())),
                max(1, round(timeout * 1000)), tuple(properties), limit,
            )
        )  # fmt: skip
        return await _answer(future, timeout, f"query {number}")

    # --- what became of an event, and how the broker is doing ---

    async def trace(self, event_id: EventId | str, *, timeout: float = ANSWER_S) -> TraceAnswer:
        """Which way an event went and who got it, as far as brokers remember (`records`)."""
        return await past.trace(self._session, event_id, timeout)

    async def explain(self, event_id: EventId | str, client_id: str, *, timeout: float = ANSWER_S) -> Explanation:
        """What became of an event for a client, oneself or another one: when it got it, or why not."""
        return await past.explain(self._session, event_id, client_id, timeout)

    async def status(self, *, timeout: float = past.REPORT_S) -> dict[str, Any]:
        """Everything that the broker says of itself."""
        return await past.status(self._session, timeout)

    async def topology(self, *, timeout: float = past.REPORT_S) -> dict[str, Any]:
        """The network as the broker sees it."""
        return await past.topology(self._session, timeout)

    async def clients(self, *, timeout: float = past.REPORT_S) -> dict[str, Any]:
        """Who is attached to the broker: from where, how far away, with how much traffic."""
        return await past.attached(self._session, timeout)

    async def send_away(
        self, clients: Sequence[str], url: str | Sequence[str], *, reason: str = "", timeout: float = past.REPORT_S
    ) -> SentAway:
        """Let clients of the broker go to another one, with what is kept for them; needs the right `move`."""
        return await past.send_away(self._session, clients, split_urls(url), reason, timeout)


async def _answer(future: Awaitable[T], timeout: float, what: str) -> T:
    """What the broker says; it keeps deadlines itself, so this only catches one that does not."""
    try:
        async with asyncio.timeout(timeout + GRACE_S):
            return await future
    except TimeoutError as error:
        if isinstance(error, TimedOut):
            raise
        raise TimedOut(f"{what}: the broker said nothing within {timeout + GRACE_S:g} seconds") from None
