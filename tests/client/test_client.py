"""What an application does with a client, over real sockets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import veena
from tests.runtime.client_brokers import PATIENCE_S, Site, bodies, nothing_more, run, text, two_sites, until
from tests.runtime.streams import secrets
from tests.runtime.wording import Wording
from veena.address import format_address
from veena.client import Client, connect
from veena.errors import (
    ConfigError,
    InvalidConstraint,
    InvalidEvent,
    LocalProtocolError,
    NotConnected,
    Overloaded,
    RefusalCode,
    Refused,
    TimedOut,
    Unanswered,
)
from veena.event import Event, EventId
from veena.runtime.access.users import User, Users

ROOT = Path(__file__).parents[2]


def test_every_engine_by_the_names_of_the_api() -> None:
    """CLI-01, MAT-01: one client subscribes with each engine, publishes, and receives what matches and nothing else."""
    wanted: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ({"topic": "quotes"}, {"topic": "quotes"}, {"topic": "quote"}),
        (
            {"topic": "q", "selector": "price > 10 AND sym LIKE 'IB%'"},
            {"topic": "q", "properties": {"price": 12.5, "sym": "IBM"}},
            {"topic": "q", "properties": {"price": 9, "sym": "IBM"}},
        ),
        ({"tags": "Make=Ford,Model=*"}, {"tags": "Make=Ford,Model=T"}, {"tags": "Make=Fiat,Model=T"}),
        ({"integer": 1234}, {"integer": 1234}, {"integer": 1235}),
        (
            {"xpath": "/m:menu/drink[price > 1.8]", "namespaces": {"m": "urn:m"}},
            {"xml": "<menu xmlns='urn:m'><drink xmlns=''><price>2</price></drink></menu>"},
            {"xml": "<menu xmlns='urn:m'><drink xmlns=''><price>1</price></drink></menu>"},
        ),
        (
            {"constraint": "$type_name == 'Steering' and load > 0.5"},
            {"headers": {"type_name": "Steering"}, "properties": {"load": 0.75}},
            {"headers": {"type_name": "Steering"}, "properties": {"load": 0.25}},
        ),
    ]

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            subscriptions = await asyncio.gather(*(alice.subscribe(**constraint) for constraint, _, _ in wanted))
            assert all(each.is_active and each.state == each.scope == 4 for each in subscriptions)
            for (_, matching, other), subscription in zip(wanted, subscriptions, strict=True):
                await alice.publish(body=b"no", **other)
                event_id = await alice.publish(body=b"yes", reliable=True, **matching)
                event = await subscription.next(PATIENCE_S)
                assert (text(event), event.id) == ("yes", event_id)
                assert isinstance(event.id, str) and event.event_id == EventId.parse(event_id)
            assert [each.waiting for each in subscriptions] == [0] * len(subscriptions)

    run(scenario())


def test_pull_and_push_get_the_same_events() -> None:
    """CLI-08: by polling, by waiting, by a function and by an asynchronous function."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            pushed: list[str] = []
            awaited: list[str] = []

            def take(event: Event) -> None:
                pushed.append(text(event))
                if text(event) == "3":
                    raise ValueError("an application's mistake ends nothing")

            async def take_later(event: Event) -> None:
                await asyncio.sleep(0)
                awaited.append(text(event))

            pulled = await alice.subscribe(topic="t")
            await alice.subscribe(topic="t", on_event=take)
            await alice.subscribe(topic="t", on_event=take_later)
            iterated = await alice.subscribe(topic="t")
            sent = [str(number) for number in range(10)]
            for body in sent:
                await alice.publish(topic="t", body=body.encode(), reliable=True)
            assert pulled.poll() is not None
            assert [text(event) for event in pulled.take()] == sent[1:]
            assert pulled.poll() is None
            await until(lambda: pushed == sent and awaited == sent)
            got = []
            async for event in iterated:
                got.append(text(event))
                if len(got) == 10:
                    await iterated.close()
            assert got == sent

    run(scenario())


def test_two_devices_of_one_client_each_get_an_event_once() -> None:
    """CLI-02: two attachments of one client id."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as phone, site.client("alice") as desk:
            subscriptions = [await device.subscribe(topic="t") for device in (phone, desk)]
            await phone.publish(topic="t", body=b"x", reliable=True)
            for subscription in subscriptions:
                assert await bodies(subscription, 1) == ["x"]
                assert await nothing_more(subscription, 0.05)

    run(scenario())


def test_the_same_client_anywhere_receives_the_same() -> None:
    """CLI-04: a client receives the same wherever it attaches."""

    async def scenario() -> None:
        async with two_sites() as (one, other), one.client("writer") as writer:
            for number, site in enumerate((one, other, one)):
                async with site.client("reader") as reader:
                    wanted = await reader.subscribe(topic="t")
                    await writer.publish(topic="t", body=b"%d" % number, reliable=True)
                    assert await bodies(wanted, 1) == [str(number)]

    run(scenario())


def test_a_client_is_written_to_by_its_id_if_it_asks() -> None:
    """EVT-05, RTE-04: only one that is reachable, and nobody else."""

    async def scenario() -> None:
        async with (
            two_sites() as (one, other),
            one.client("alice") as alice,
            other.client("bob", reachable=True) as bob,
            other.client("carol") as carol,
        ):
            await alice.wait_connected()

            async def written() -> bool:
                await alice.publish(to=["bob", "carol"], body=b"psst", reliable=True)
                return not await nothing_more(bob.inbox, 0.2)

            while not await written():
                pass
            assert carol.inbox.waiting == 0

    run(scenario())


def test_requests_and_answers(wording: Wording) -> None:
    """RTE-05: one answer, several, none in time, nobody there."""

    async def scenario() -> None:
        async with two_sites() as (one, other), one.client("asker") as asker, other.client("service") as service:

            async def answer(event: Event) -> None:
                await service.reply(event, body=b"re: " + bytes(event.body), properties={"ok": True})

            await service.subscribe(topic="service", on_event=answer)
            await service.subscribe(topic="service", on_event=answer)
            await service.subscribe(topic="deaf")
            reply = await asker.request(topic="service", body=b"question", timeout=PATIENCE_S)
            assert text(reply) == "re: question" and reply.properties == {"ok": True}
            replies = await asker.request(topic="service", body=b"x", answers=2, timeout=PATIENCE_S)
            assert [text(each) for each in replies] == ["re: x"] * 2
            some = await asker.request(topic="service", body=b"y", answers=3, timeout=0.3)
            assert len(some) == 2, "those that came in time"
            with pytest.raises(Unanswered, match=wording.of("0 of 1 answers within 100 ms")) as caught:
                await asker.request(topic="deaf", timeout=0.1)
            assert caught.value.code is RefusalCode.EXPIRED
            with pytest.raises(Unanswered, match=wording.of("nobody wants it")) as caught:
                await asker.request(topic="nobody")
            assert caught.value.code is RefusalCode.UNWANTED
            with pytest.raises(InvalidEvent, match="is no request"):
                await service.reply(Event(topic="x"))

    run(scenario())


def test_advertisements_and_queries(wording: Wording) -> None:
    """DSC-01..05, TRD-06: found by SQL, a constraint and XPath from another broker, withdrawn, refused; said again
    elsewhere."""

    async def scenario() -> None:
        async with two_sites() as (one, other), one.client("asker") as asker, other.client("shop") as shop:
            await shop.advertise("printer", properties={"speed": 30, "site": "paris"})
            await shop.advertise("menu", xml="<menu><dish>soup</dish></menu>", scope="system")

            async def found(**query: Any) -> list[str]:
                return [row.name for row in (await asker.query(**query)).rows]

            async def find(expected: list[str], **query: Any) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while await found(**query) != expected:
                        await asyncio.sleep(0.02)

            await find(["printer"], sql="SELECT speed FROM adverts WHERE speed > 10")
            await find(["menu"], xpath="/menu/dish = 'soup'")
            answer = await asker.query(sql="SELECT speed, site FROM adverts WHERE speed > 10")
            while not answer.complete:  # a controller that has just begun says whom it has not heard yet
                answer = await asker.query(sql="SELECT speed, site FROM adverts WHERE speed > 10")
            assert answer.columns == ("speed", "site") and answer.rows[0].values == (30, "paris")
            assert answer.matched == 1 and answer.rows[0].home == other.address
            (row,) = (await asker.query(sql="SELECT name, client, home FROM adverts WHERE name = 'printer'")).rows
            assert row.values == ("printer", "shop", format_address(other.address))
            wanted = "speed > 10 and 'ris' ~ site"
            answer = await asker.query(constraint=wanted, properties=["site", "floor"], limit=1)
            assert answer.columns == ("site", "floor") and answer.rows[0].values == ("paris", None)
            (whole,) = (await asker.query(constraint=wanted)).rows
            assert whole.properties == {"speed": 30, "site": "paris"}
            with pytest.raises(InvalidConstraint) as caught:
                await asker.query(constraint="speed = 10")
            assert caught.value.position == 6
            for wrong in ({"properties": "site"}, {"properties": [""]}, {"limit": -1}):
                with pytest.raises(LocalProtocolError, match=next(iter(wrong))[:7]):
                    await asker.query(constraint="", **wrong)
            with pytest.raises(LocalProtocolError, match="go with constraint"):
                await asker.query(sql="SELECT * FROM adverts", limit=1)
            (menu,) = (await asker.query(xpath="/menu")).rows
            assert menu.xml == "<menu><dish>soup</dish></menu>"
            await shop.withdraw("printer")
            await find([], sql="SELECT speed FROM adverts WHERE speed > 10")
            with pytest.raises(Refused, match=wording.of("has no advertisement 'printer'")):
                await shop.withdraw("printer")
            with pytest.raises(Refused, match=wording.of("SELECT")):
                await asker.query(sql="DELETE FROM adverts")
            with pytest.raises(Refused, match=wording.of("empty")):
                await shop.advertise("nothing")
            with pytest.raises(LocalProtocolError, match="one of them"):
                await asker.query()
            other.clients.drain([one.url])
            await until(lambda: shop.broker == one.address and shop.is_connected)
            await find(["menu"], xpath="/menu/dish = 'soup'")
            assert (await asker.query(xpath="/menu")).rows[0].home == one.address

    run(scenario())


def test_a_publisher_is_told_whether_anybody_wants_its_events() -> None:
    """SYS-01: quench, now and when it changes."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer, site.client("reader") as reader:
            watch = await writer.watch(Event(topic="t"))
            assert watch.wanted is False
            changed = asyncio.create_task(watch.changed(PATIENCE_S))
            await asyncio.sleep(0)
            wanted = await reader.subscribe(topic="t")
            assert await changed is True
            changed = asyncio.create_task(watch.changed(PATIENCE_S))
            await asyncio.sleep(0)
            await wanted.close()
            assert await changed is False
            await watch.close()
            with pytest.raises(NotConnected, match="closed"):
                await watch.changed()

    run(scenario())


def test_since_brings_the_past_and_then_what_comes() -> None:
    """Design §7: everything since a time, from all brokers in scope, then live; no gap, no repeat."""

    async def scenario() -> None:
        async with two_sites() as (one, other), one.client("writer") as writer, other.client("late") as late:
            await writer.publish(topic="t", body=b"too old", reliable=True)
            since = time.time()
            for number in range(20):
                await writer.publish(topic="t", body=b"%d" % number, reliable=True)
            wanted = await late.subscribe(topic="t", since=since)
            for number in range(20, 40):
                await writer.publish(topic="t", body=b"%d" % number, reliable=True)
            assert await wanted.wait_caught_up(PATIENCE_S)
            assert wanted.silent == () and wanted.gone_ns == 0
            assert await bodies(wanted, 40) == [str(number) for number in range(40)]
            await writer.publish(topic="t", body=b"40", reliable=True)
            assert await bodies(wanted, 1) == ["40"]
            by_date = await late.subscribe(topic="t", since=datetime.fromtimestamp(since, UTC))
            by_age = await late.subscribe(topic="t", since=timedelta(seconds=time.time() - since))
            assert await bodies(by_date, 41) == await bodies(by_age, 41)
            cut = next(who for who in other.clients.sessions.values() if "late" in who.name)
            cut.stream.abort("cut")
            await writer.publish(topic="t", body=b"41", reliable=True)
            assert await bodies(wanted, 1) == ["41"], "it asks again for what it missed"
            assert await nothing_more(wanted)

    run(scenario())


def test_durable_names_and_rules() -> None:
    """CLI-07: named by the constraint or by hand; another constraint under a name replaces it and keeps the rest."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer:
            async with site.client("reader") as reader:
                by_constraint = await reader.subscribe(topic="a", selector="x > 1", durable=True)
                assert by_constraint.durable == "selector:a|x > 1"
                named = await reader.subscribe(topic="a", durable="mine")
                assert named.durable == "mine"
                await named.close()
                await by_constraint.delete()
            await writer.publish(topic="a", body=b"kept", reliable=True)
            async with site.client("reader") as reader:
                named = await reader.subscribe(topic="b", durable="mine")
                await writer.publish(topic="b", body=b"new", reliable=True)
                await writer.publish(topic="a", body=b"old", reliable=True)
                assert await bodies(named, 2) == ["kept", "new"]
                assert await nothing_more(named)
            async with site.client() as nobody:
                with pytest.raises(LocalProtocolError, match="connect with client_id"):
                    await nobody.subscribe(topic="a", durable=True)

    run(scenario())


def test_best_effort_publishing_waits_or_raises() -> None:
    """QOS-01: by choice, when the connection takes no more or is not there; a reliable event waits for the next."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer:
            for who in site.clients.sessions.values():
                who.stream.pause()
            with pytest.raises(Overloaded, match="takes no more for now"):
                await writer.publish_many([Event(topic="t", body=bytes(100_000))] * 1000, block=False)
            waiting = asyncio.create_task(writer.publish(topic="t"))
            await asyncio.sleep(0)
            assert not waiting.done()
            for who in site.clients.sessions.values():
                who.stream.resume()
            assert (await waiting).startswith("writer:")
            await site.kill()
            await until(lambda: not writer.is_connected)
            with pytest.raises(Overloaded, match="there is no connection"):
                await writer.publish(topic="t", block=False)
            reliable = asyncio.create_task(writer.publish(topic="t", reliable=True))
            await site.start()
            assert (await reliable).startswith("writer:")

    run(scenario())


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        ({"topic": "a", "selector": "price >"}, InvalidConstraint, "at position"),
        ({"xpath": "/a["}, InvalidConstraint, "at position"),
        ({"constraint": "a =="}, InvalidConstraint, "at position"),
        ({"tags": "Make"}, InvalidConstraint, "tag"),
        ({}, InvalidConstraint, "name one of topic"),
        ({"topic": "a", "integer": 1}, InvalidConstraint, "name one of topic"),
        ({"selector": "a > 1"}, InvalidConstraint, "needs a topic"),
        ({"topic": "a", "namespaces": {"a": "b"}}, InvalidConstraint, "xpath"),
        ({"topic": "a", "scope": "village"}, LocalProtocolError, "expected one of cluster"),
        ({"topic": "a", "scope": "super-super-super-super-cluster"}, Refused, "expected 1"),
        ({"topic": "a", "ack": "manual"}, LocalProtocolError, "needs durable"),
        ({"topic": "a", "ack": "never"}, LocalProtocolError, "'auto' or 'manual'"),
        ({"topic": "a", "durable": "~x"}, LocalProtocolError, "begin with ~"),
        ({"topic": "a", "since": -1}, LocalProtocolError, "from 1970 on"),
    ],
)
def test_mistakes_are_named(wanted: Mapping[str, Any], error: type[Exception], message: str) -> None:
    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            with pytest.raises(error, match=message):
                await alice.subscribe(**wanted)
            assert alice.statistics().subscriptions == 0

    run(scenario())


def test_wrong_use_of_connect_is_named() -> None:
    for options, error, message in (
        ({"url": "http://x"}, ConfigError, "unknown scheme"),
        ({"url": []}, LocalProtocolError, "no URL"),
        ({"client_id": ""}, InvalidEvent, "client id"),
        ({"client_id": "~x"}, LocalProtocolError, "begin with ~"),
        ({"heartbeat": 0}, LocalProtocolError, "heartbeat"),
        ({"tls": secrets().client}, LocalProtocolError, "is not inside TLS"),
        ({"slow": "never"}, LocalProtocolError, "'drop' or 'disconnect'"),
    ):
        with pytest.raises(error, match=message):
            connect(**options)

    async def scenario() -> None:
        with pytest.raises(NotConnected, match="async with"):
            await connect().publish(topic="x")
        async with Site() as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="t", wait=0)
            with pytest.raises(InvalidEvent, match="at most"):
                await alice.publish(topic="t", body=bytes(2 << 20), reliable=True)
            with pytest.raises(InvalidEvent, match="priority"):
                await alice.publish(topic="t", priority=10)
            with pytest.raises(LocalProtocolError, match="needs no ack"):
                await wanted.ack(Event(topic="t"))
            with pytest.raises(TimedOut, match=r"within 0\.01 seconds"):
                await wanted.next(timeout=0.01)
        with pytest.raises(NotConnected, match="closed"):
            await wanted.next()
        with pytest.raises(NotConnected, match="closed"):
            await alice.publish(topic="t")
        assert [event async for event in wanted] == []

    run(scenario())


@pytest.mark.parametrize("scheme", ["veena", "veenas", "ws", "wss", "memory"])
def test_over_every_transport(scheme: str) -> None:
    """TRN-01, TRN-04: the conversation is the same; inside TLS a certificate can stand for the password."""
    is_secure = scheme in ("veenas", "wss")
    users = Users({"broker": User(clients=("alice",))}) if is_secure else None
    place = f"{scheme}://localhost:0" if scheme != "memory" else "memory://client-test"
    certificates = secrets("required")

    async def scenario() -> None:
        async with (
            Site(users=users, url=place, secrets=certificates) as site,
            site.client("alice", tls=certificates.client if is_secure else None) as alice,
        ):
            wanted = await alice.subscribe(topic="t")
            large = bytes(range(256)) * 3000
            await alice.publish(topic="t", body=large, reliable=True)
            await alice.publish(topic="t", body=b"small", reliable=True)
            assert bytes((await wanted.next(PATIENCE_S)).body) == large
            assert await bodies(wanted, 1) == ["small"]

    run(scenario())


def test_the_first_example_runs() -> None:
    """The program of the README, against a broker that is not told of it."""

    async def scenario() -> None:
        async with Site() as site:
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(ROOT / "examples" / "hello.py"), site.url, stdout=subprocess.PIPE
            )
            told, _ = await process.communicate()
            assert (process.returncode, told) == (0, b"quotes {'price': 12.5, 'sym': 'IBM'} hello\n")

    run(scenario())


def test_importing_veena_stays_light() -> None:
    """What an application does not use is not loaded."""
    program = "import sys, veena; print(sorted({'asyncio', 'numpy', 'lxml', 'msgspec'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
    assert veena.connect is connect and veena.Client is Client
    assert set(veena.__all__) <= set(dir(veena)) | set(veena._LATER)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        veena.nonsense  # noqa: B018
