"""The broker's side of a conversation: who is let in, what it may do, how much, and what hostile clients cost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.runtime.client_brokers import PATIENCE_S, QUICK, Site, bodies, nothing_more, run, until
from tests.runtime.wording import Wording
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.wire.client import (
    AskRequest,
    AskSubscribe,
    AskWatch,
    ClientHello,
    ClientWelcome,
    Farewell,
    Matched,
    TellDenied,
    TellRefused,
)
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame, Heartbeat, Hello
from veena.core.wire.event import COPY, EventCodec, EventFrame
from veena.core.wire.header import HEADER, VERSION
from veena.errors import AccessDenied, Overloaded, RefusalCode, Refused
from veena.event import Event, EventId
from veena.runtime.access.limits import Bucket, Limits
from veena.runtime.access.users import User, Users, hash_password, parse_users

HELLO = ClientHello(VERSION, VERSION, "mallory")


class Raw:
    """A client that says what it wants, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.decoder = Decoder()
        self.frames: list[Frame | EventFrame] = []

    @classmethod
    async def dial(cls, site: Site) -> Raw:
        host, _, port = site.url.removeprefix("veena://").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    @classmethod
    async def attach(cls, site: Site, hello: ClientHello = HELLO) -> tuple[Raw, ClientWelcome]:
        raw = await cls.dial(site)
        raw.say(hello)
        welcome = await raw.hear()
        assert isinstance(welcome, ClientWelcome)
        raw.decoder = Decoder(EventCodec(welcome.levels, welcome.fanout))
        return raw, welcome

    def say(self, *frames: Frame) -> None:
        self.writer.write(b"".join(encode(frame, 0) for frame in frames))

    async def hear(self) -> Frame | EventFrame:
        """The next frame; EOFError at the end."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.frames:
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError
                self.frames += [frame for _, frame in self.decoder.feed(data)]
        return self.frames.pop(0)

    async def last_words(self) -> Farewell:
        """What the broker says before it closes."""
        while True:
            frame = await self.hear()
            if isinstance(frame, Farewell):
                with pytest.raises(EOFError):
                    await self.hear()
                self.writer.close()
                return frame

    def close(self) -> None:
        self.writer.close()


def event_bytes(welcome: ClientWelcome, event: Event, sequence: int = 0, publisher: str = "mallory") -> bytes:
    codec = EventCodec(welcome.levels, welcome.fanout)
    stamped = replace(event, event_id=EventId(publisher, welcome.incarnation, 1, sequence))
    return codec.encode_event(stamped, 0, reliable=True)


USERS = """
[user.alice]
password = "{alice}"
roles = ["trader"]
clients = ["alice", "desk-*"]

[user.boss]
password = "{alice}"
roles = ["everything"]

[role.trader]
rules = [
  {{ deny = "*", topic = "quotes.secret.*" }},
  {{ allow = ["publish", "subscribe"], topic = "quotes.*" }},
  {{ allow = "subscribe", engine = "tags" }},
  {{ deny = "publish", type = "Steering" }},
  {{ allow = "publish", topic = "orders" }},
]

[role.everything]
rules = [{{ allow = "*" }}]
"""


@pytest.fixture(scope="module")
def users_text() -> str:
    return USERS.format(alice=hash_password("open sesame"))


def test_wrong_passwords_and_foreign_ids_are_not_let_in(users_text: str, wording: Wording) -> None:
    """CLI-06: the publisher id is the authenticated client's; whoever is nobody gets a reason and nothing else."""

    async def scenario() -> None:
        async with Site(users=parse_users(users_text)) as site:
            async with site.client("alice", user="alice", password="open sesame") as alice:
                assert alice.is_connected
            async with site.client("desk-7", user="alice", password="open sesame") as desk:
                assert desk.is_connected
            for client_id, user, password, message in (
                ("alice", "alice", "wrong", "does not exist here, or the password is wrong"),
                ("alice", "nobody", "open sesame", "does not exist here, or the password is wrong"),
                ("alice", "", "", "name a user and give its password or token, or show a certificate"),
                ("nobody", "", "", "name a user and give its password or token, or show a certificate"),
                ("bob", "alice", "open sesame", "may not attach as client 'bob'"),
                ("alice", "boss", "open sesame", "may not attach as client 'alice'"),
            ):
                with pytest.raises(AccessDenied, match=wording.of(message)):
                    await site.client(client_id, user=user, password=password).open()
            statistics = site.clients.statistics()
            assert (statistics.attached, statistics.refused) == (2, 6)

    run(scenario())


def test_rules_decide_the_first_that_fits(users_text: str, wording: Wording) -> None:
    """SEC: publish, subscribe, scope and watch are allowed or denied by topic, engine and type; the rest is denied."""

    async def scenario() -> None:
        async with (
            Site(users=parse_users(users_text)) as site,
            site.client("alice", user="alice", password="open sesame") as alice,
            site.client("boss", user="boss", password="open sesame") as boss,
        ):
            near = {"scope": "cluster"}
            quotes = await alice.subscribe(topic="quotes.ibm", scope="cluster")
            cars = await alice.subscribe(tags="Make=Ford", scope="cluster")
            for wanted, message in (
                ({"topic": "quotes.ibm"}, "end at the cluster"),
                ({"topic": "quotes.secret.x", **near}, "'quotes.secret.x'"),
                ({"topic": "orders", **near}, "'orders'"),
                ({"constraint": "load > 1", **near}, "engine 'constraint'"),
            ):
                with pytest.raises(AccessDenied, match=wording.of(message)):
                    await alice.subscribe(**wanted)  # type: ignore[arg-type]
            await alice.publish(topic="orders", body=b"buy", reliable=True)
            for content in (
                {"topic": "quotes.secret.x"},
                {"topic": "orders", "headers": {"type_name": "Steering"}},
                {"topic": "weather"},
                {"properties": {"a": 1}},
            ):
                with pytest.raises(AccessDenied, match=wording.of("do not allow to publish")):
                    await alice.publish(reliable=True, **content)
            with pytest.raises(AccessDenied, match=wording.of("do not allow to publish")):
                await alice.request(topic="weather")
            with pytest.raises(AccessDenied, match=wording.of("watch")):
                await alice.watch(Event(topic="quotes.ibm"))
            with pytest.raises(AccessDenied, match=wording.of("ask")):
                await alice.query(sql="SELECT name FROM adverts")
            with pytest.raises(AccessDenied, match=wording.of("advertise")):
                await alice.advertise("printer", properties={"a": 1})
            # An event that alice may not read does not reach her by another engine.
            await boss.publish(topic="quotes.secret.x", tags="Make=Ford", body=b"secret", reliable=True)
            await boss.publish(topic="quotes.ibm", tags="Make=Ford", body=b"open", reliable=True)
            assert await bodies(cars, 1) == ["open"]
            assert await bodies(quotes, 1) == ["open"]
            assert site.clients.statistics().withheld == 1
            everything = await boss.subscribe(constraint="a > 0")
            assert everything.is_active

    run(scenario())


def test_what_a_durable_subscription_may_not_read_does_not_wait_for_ever(users_text: str) -> None:
    async def scenario() -> None:
        async with (
            Site(users=parse_users(users_text)) as site,
            site.client("boss", user="boss", password="open sesame") as boss,
            site.client("alice", user="alice", password="open sesame") as alice,
        ):
            cars = await alice.subscribe(tags="Make=Ford", scope="cluster", durable="cars")
            await boss.publish(topic="quotes.secret.x", tags="Make=Ford", body=b"secret", reliable=True)
            await boss.publish(topic="quotes.x", tags="Make=Ford", body=b"open", reliable=True)
            assert await bodies(cars, 1) == ["open"]
            assert site.driver.statistics().durables.kept == 2
            await until(lambda: site.driver.statistics().durables.acknowledged == 2)

    run(scenario())


def test_a_broker_vouches_for_clearances_not_the_client(users_text: str) -> None:
    """PRF-03: with users, what a client is cleared for stands in the file; its own word does not count."""
    text = users_text.replace("[user.boss]", "[user.boss]\nclearances = ['secret']", 1)

    async def scenario() -> None:
        async with (
            Site(users=parse_users(text)) as site,
            site.client("alice", user="alice", password="open sesame", attributes={"clearances": "secret"}) as alice,
            site.client("boss", user="boss", password="open sesame") as boss,
        ):
            mine = await alice.subscribe(topic="quotes.x", scope="cluster")
            his = await boss.subscribe(topic="quotes.x")
            await boss.publish(topic="quotes.x", headers={"clearance": "secret"}, body=b"secret", reliable=True)
            await boss.publish(topic="quotes.x", body=b"open", reliable=True)
            assert await bodies(mine, 1) == ["open"]
            assert await bodies(his, 2) == ["secret", "open"]

    run(scenario())


def test_limits_of_one_client(wording: Wording) -> None:
    """FLT-09: subscriptions, connections, frames and unaccepted events are bounded, each with a clear refusal."""
    limits = Limits(subscriptions=2, connections=1, max_frame=4096, unaccepted=2)

    async def scenario() -> None:
        async with Site(users=Users(limits=limits)) as site, site.client("alice") as alice:
            for topic in ("a", "b"):
                await alice.subscribe(topic=topic, wait=0.5)
            with pytest.raises(Refused, match=wording.of("2 subscriptions")):
                await alice.subscribe(topic="c")
            with pytest.raises(Exception, match=wording.of("'alice' has 1 connections already")):
                await site.client("alice", timeout=0.3).open()
            with pytest.raises(Exception, match="at most 4096 are allowed here"):
                await alice.publish(topic="a", body=bytes(5000), reliable=True)
            assert site.peer is not None
            site.peer.holds = []
            waiting = asyncio.create_task(alice.publish_many([Event(topic="a")] * 2, reliable=True))
            await until(lambda: alice.statistics().unaccepted == 2)
            with pytest.raises(Overloaded, match=r"2 events .* not accepted yet"):
                await alice.publish(topic="a", reliable=True, block=False)
            site.peer.release()
            assert len(await waiting) == 2
            async with site.client("bob") as bob:
                assert bob.is_connected

    run(scenario())


def test_a_rate_is_held_by_not_reading() -> None:
    """FLT-09: whoever is too fast is slowed down; nothing is lost and others are not affected."""
    limits = Limits(events_per_second=1000)
    fast = Users({"fast": User(password=hash_password("x"), limits=limits)})

    async def scenario() -> None:
        async with Site(users=fast) as site, site.client("fast", user="fast", password="x") as client:
            loop = asyncio.get_running_loop()
            wanted = await client.subscribe(topic="t")
            began = loop.time()
            for number in range(2500):
                await client.publish(topic="t", body=b"%d" % number)
            got = await bodies(wanted, 2500)
            # Two thousand are allowed at once. What one read brought is taken whole; the next read waits for it.
            await client.publish(topic="t", body=b"2500")
            got += await bodies(wanted, 1)
            assert got == [str(number) for number in range(2501)]
            assert loop.time() - began > 0.3, "beyond the burst, a thousand a second"

    run(scenario())


def test_a_bucket() -> None:
    bucket = Bucket(10, 0.0)
    assert bucket.take(20, 0.0) == 0
    assert bucket.take(5, 0.0) == pytest.approx(0.5)
    assert bucket.take(0, 0.5) == pytest.approx(0.0)
    assert bucket.take(20, 100.0) == 0, "never more than two seconds' worth"
    assert bucket.take(1, 100.0) > 0


def test_hostile_frames_cost_their_sender_alone() -> None:
    """FLT-09: each fault ends one conversation with a reason; deliveries of others go on."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="quotes")
            faults: list[tuple[bytes | Frame, str]] = [
                (HEADER.pack(1 << 30, VERSION, 16, 0, 0), "expected 16 to"),
                (HEADER.pack(20, VERSION, 200, 0, 0) + b"\xff" * 4, "no such kind"),
                (HEADER.pack(20, 9, 66, 0, 0) + b"\xff" * 4, "version 9"),
                (HEADER.pack(20, VERSION, 66, 0, 0) + b"\xff" * 4, "AskSubscribe of 4 bytes"),
                (Hello(VERSION, VERSION, "x", 1, 32, (0,), 1, 1, 1), "Hello has no place"),
                (HELLO, "ClientHello has no place"),
                (Matched((1,)), "Matched has no place"),
            ]
            for fault, message in faults:
                raw, _ = await Raw.attach(site)
                raw.writer.write(fault if isinstance(fault, bytes) else encode(fault, 0))
                word = await raw.last_words()
                assert word.why is RefusalCode.PROTOCOL and message in word.reason
            raw, welcome = await Raw.attach(site)
            raw.say(AskWatch(1), AskRequest(2, 1000))
            assert "its event is missing" in (await raw.last_words()).reason
            raw, welcome = await Raw.attach(site)
            data = bytearray(event_bytes(welcome, Event(topic="quotes")))
            data[7] |= COPY
            raw.writer.write(data)
            assert "a client sets priority and reliable alone" in (await raw.last_words()).reason
            raw = await Raw.dial(site)
            raw.say(HELLO, AskSubscribe(1, "topic", b"\xa1x"))
            assert isinstance(await raw.hear(), ClientWelcome)
            raw.close()
            assert site.clients.statistics().at_fault == len(faults) + 2
            await alice.publish(topic="quotes", body=b"still here", reliable=True)
            assert await bodies(wanted, 1) == ["still here"]
            await until(lambda: site.clients.statistics().clients == 1)
            site.driver.broker.check()

    run(scenario())


def test_what_is_wrong_in_itself_is_refused_and_the_conversation_goes_on() -> None:
    """A bad constraint or event is its sender's mistake, not the end."""

    async def scenario() -> None:
        async with Site() as site:
            raw, welcome = await Raw.attach(site)
            raw.say(AskSubscribe(1, "nonsense", b"\xa1x"), AskSubscribe(2, "topic", b"\xc1"))
            raw.writer.write(event_bytes(welcome, Event(topic="quotes"), publisher="alice"))
            refused = [await raw.hear() for _ in range(3)]
            assert [type(frame) for frame in refused] == [TellRefused, TellRefused, TellDenied]
            assert [frame.why for frame in refused] == [RefusalCode.INVALID] * 3  # type: ignore[union-attr]
            assert "expected one of integer" in refused[0].reason  # type: ignore[union-attr]
            assert "constraint of subscription 2" in refused[1].reason  # type: ignore[union-attr]
            assert "expected publisher 'mallory'" in refused[2].reason  # type: ignore[union-attr]
            raw.say(Heartbeat(5, 0))
            echo = await raw.hear()
            assert isinstance(echo, Heartbeat) and echo.echo_ns == 5
            raw.close()

    run(scenario())


def test_half_open_clients_and_strangers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-09: a client that sends nothing is gone after three of its heartbeats, one that sends half a hello sooner."""
    monkeypatch.setattr("veena.runtime.clients.service.CHECK_S", 0.02)

    async def scenario() -> None:
        async with Site() as site:
            site.limits.identify_s = 0.1
            raw, _ = await Raw.attach(site, ClientHello(VERSION, VERSION, "quiet", heartbeat_ms=30))
            slow = await Raw.dial(site)
            slow.writer.write(encode(HELLO, 0)[:-1])
            assert (await raw.last_words()).reason.startswith("nothing came for 0.09 seconds")
            with suppress(ConnectionError):
                assert await slow.reader.read() == b"", "half a hello tells nothing, and gets no answer"
            slow.close()
            await until(lambda: site.clients.statistics().lost == 1)
            assert site.clients.everybody == {}
            assert site.driver.statistics().profiles.sessions == 0

    run(scenario())


def test_a_client_that_never_reads_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-03, FLT-09: what waits for it is bounded, others go on, and at last it is closed."""
    monkeypatch.setattr("veena.runtime.clients.service.CHECK_S", 0.02)
    settings = replace(QUICK, session_bytes=5_000_000, slow_ns=300 * MILLISECOND_NS)

    async def scenario() -> None:
        async with Site(settings=settings) as site, site.client("writer") as writer, site.client("bob") as bob:
            raw, _ = await Raw.attach(site)
            raw.say(AskSubscribe(1, "topic", b"\xa1t", 1))
            wanted = await bob.subscribe(topic="t")
            body = bytes(100_000)
            for _ in range(200):
                await writer.publish(topic="t", body=body, reliable=True)
            for _ in range(200):
                await wanted.next(PATIENCE_S)
            outlet = site.driver.statistics().outlet
            assert outlet.clogged == 1 or site.clients.statistics().lost == 1
            assert outlet.waiting_bytes <= 5_000_000
            await until(lambda: site.clients.statistics().lost == 1)
            await until(lambda: site.driver.statistics().outlet.waiting_bytes == 0)
            frames = [await raw.hear()]
            while type(frames[-1]) is not Farewell:
                frames.append(await raw.hear())
            assert frames[-1].why is RefusalCode.SLOW
            assert "read nothing for 0.3 seconds" in frames[-1].reason
            raw.close()

    run(scenario())


def test_a_slow_application_is_told_what_it_missed() -> None:
    """CLI-03: what an application does not take waits, within bounds; what is dropped is counted, in order."""
    settings = replace(QUICK, session_bytes=500_000)

    async def scenario() -> None:
        async with Site(settings=settings) as site, site.client("writer") as writer, site.client("slow") as slow:
            wanted = await slow.subscribe(topic="t")
            for number in range(6000):
                await writer.publish(topic="t", body=b"%d" % number)
            await until(lambda: site.driver.statistics().outlet.clogged == 1)
            for number in range(6000, 9000):
                await writer.publish(topic="t", body=b"%d" % number)
            await until(lambda: site.driver.statistics().outlet.dropped > 1000)
            told: list[int] = []
            wanted.on_dropped = told.append
            got: list[int] = []
            while not got or got[-1] != 8999:
                got += [int(body) for body in await bodies(wanted, 1)]
            assert got == [*range(6000), *range(9000 - (len(got) - 6000), 9000)], "the oldest are dropped"
            assert wanted.dropped == slow.statistics().dropped == sum(told) == 9000 - len(got)

    run(scenario())


def test_a_durable_subscription_loses_nothing_however_slow() -> None:
    """CLI-03, CLI-07: it is read from the log as fast as the application takes it."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer, site.client("slow") as slow:
            wanted = await slow.subscribe(topic="t", durable=True)
            sent = [b"%d" % number for number in range(3000)]
            await writer.publish_many([Event(topic="t", body=body) for body in sent], reliable=True)
            assert wanted.waiting < 1100
            assert await bodies(wanted, 3000) == [body.decode() for body in sent]
            assert await nothing_more(wanted)

    run(scenario())


def test_the_bytes_of_an_event_are_the_same_for_everybody() -> None:
    """Design §9: the subscriptions stand in a frame before the event, and only when they change."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer:
            readers: list[Raw] = []
            for name in ("one", "two"):
                raw, _ = await Raw.attach(site, ClientHello(VERSION, VERSION, name))
                raw.say(AskSubscribe(len(readers) + 7, "topic", b"\xa1t", 1))
                await raw.hear()
                readers.append(raw)
            await writer.publish(topic="t", body=b"first", reliable=True)
            await writer.publish(topic="t", body=b"second", reliable=True)
            heard = [[await raw.hear() for _ in range(3)] for raw in readers]
            for number, frames in zip((7, 8), heard, strict=True):
                assert frames[0] == Matched((number,))
                assert [bytes(frame.body) for frame in frames[1:]] == [b"first", b"second"]  # type: ignore[union-attr]
            assert heard[0][1].tail == heard[1][1].tail  # type: ignore[union-attr]
            for raw in readers:
                raw.close()

    run(scenario())


def test_a_thousand_clients_at_one_broker() -> None:
    """CLI-09: no cap on attached clients; each gets its event."""

    async def scenario() -> None:
        async with Site() as site:
            clients = [site.client(f"client-{number}", reachable=True) for number in range(1000)]
            for client in clients:
                await client.open()
            assert site.clients.statistics().clients == 1000
            await asyncio.gather(*(client.subscribe(topic="all", scope="cluster", wait=0) for client in clients))
            subscription = await clients[0].subscribe(topic="mine")
            await clients[1].publish(topic="mine", body=b"x", reliable=True)
            assert await bodies(subscription, 1) == ["x"]
            before = site.clients.statistics().delivered
            await clients[2].publish(topic="all", reliable=True)
            await until(lambda: site.clients.statistics().delivered == before + 1000)
            await asyncio.gather(*(client.close() for client in clients))
            await until(lambda: site.clients.everybody == {})

    run(scenario())
