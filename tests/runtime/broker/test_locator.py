"""Locators: the nearest broker with room, clients that move when one has too many, and answers nobody may follow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import veena
import veena.testing
from tests.cli.command import veena as command
from tests.runtime.client_brokers import PATIENCE_S, nothing_more, run, text, until
from tests.runtime.wording import Wording
from veena.client.broker_list import MAX_LEARNED, Places
from veena.client.session import Greeting
from veena.core.wire.client import Farewell
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame, Heartbeat
from veena.core.wire.header import HEADER, HEADER_SIZE, VERSION
from veena.core.wire.locator import FULL, AskLocate, Located, TellLocated
from veena.errors import AccessDenied, ConfigError, NotConnected, RefusalCode, Refused, RemoteProtocolError
from veena.runtime.access.users import hash_password
from veena.runtime.broker.locator import ranked
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.config.schema import ConfigFaults
from veena.runtime.locator.client import ask
from veena.runtime.locator.load import Gauge, Load, LoadLimits
from veena.runtime.locator.regions import Regions
from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.tls import client_context

CERTIFICATES = Path(__file__).parent.parent / "certificates"
Settings = dict[str, dict[str, Any]]
SERVES: dict[str, Any] = {"serve": True, "refresh_s": 0.1}


def located(name: str, address: tuple[int, ...] = (0, 0, 0, 0), load: int = 0, room: int = 100) -> Located:
    return Located((f"veena://{name}:7700",), name, address, load, 0, room)


def as_locator(url: str) -> str:
    return url.replace("veena://", "veena+locator://")


def names(brokers: Sequence[Located]) -> list[str]:
    return [broker.name for broker in brokers]


# --- the order ---


def test_a_client_is_sent_to_its_region_and_beyond_when_that_is_full() -> None:
    """IOP-06, FUT-04: who comes from 10.2/16 gets the broker of that region; when it is full, the next nearest."""
    regions = Regions({"10.2.0.0/16": "0.1", "10.0.0.0/8": "0.0", "fd00::/8": "1"}, None, 4, 32)
    assert regions.unit_of("10.2.7.7") == regions.unit_of("::ffff:10.2.7.7") == (0, 1), "the longest prefix decides"
    assert regions.unit_of("10.3.0.1") == (0, 0) and regions.unit_of("fd00::1%eth0") == (1,)
    assert regions.unit_of("192.168.0.1") is None and regions.unit_of("memory") is None
    near, next_to_it, far = (
        located("near", (0, 1, 0, 0), 900),
        located("next", (0, 0, 3, 1), 500),
        located("far", (1, 0, 0, 0)),
    )
    everybody = [far, next_to_it, near]
    assert names(ranked(everybody, regions.unit_of("10.2.0.1"))) == ["near", "next", "far"]
    full = located("near", (0, 1, 0, 0), FULL)
    assert names(ranked([far, next_to_it, full], regions.unit_of("10.2.0.1"))) == ["next", "far", "near"]
    assert names(ranked(everybody)) == ["far", "next", "near"], "without a region the least loaded"


def test_the_way_that_a_client_measured_counts_before_load_but_only_if_it_is_much() -> None:
    brokers = [located("a", load=10), located("b", load=20), located("c", load=5)]
    ways = {"veena://a:7700": 40_000, "veena://b:7700": 1_500}
    assert names(ranked(brokers, round_trips=ways)) == ["b", "a", "c"], "who was not measured comes last"
    ways["veena://a:7700"] = 1_900
    assert names(ranked(brokers, round_trips=ways)) == ["a", "b", "c"], "half a millisecond is no distance"
    assert names(ranked(brokers, last="veena://b:7700")) == ["b", "c", "a"], "what is kept for it is there"
    assert names(ranked([*brokers[::2], located("b", load=FULL)], last="veena://b:7700")) == ["c", "a", "b"]


def test_load_is_the_larger_part_of_what_is_served_well() -> None:
    limits = LoadLimits(clients=10, events_per_second=1000)
    assert Load(5, 900, limits).part == 0.9 and Load(5, 900, limits).room == 0
    assert Load(5, 100, limits).room == 3 and Load(5, 500, limits).room == 3
    assert Load(2, 600, limits).room == 0, "each brings three hundred events a second"
    assert Load(15, 0, limits).excess == 5 and Load(10, 2000, limits).excess == 5 and Load(10, 0, limits).excess == 0
    assert Load(90, 0, LoadLimits(connections=10)).excess == 0, "without a limit nobody is sent away"
    now, count = [0.0], [0]
    gauge = Gauge(lambda: 1, lambda: count[0], lambda: now[0])
    now[0], count[0] = 2.0, 500
    assert gauge.read(limits).events_per_second == 250.0
    now[0], count[0] = 2.5, 10_000
    assert gauge.read(limits).events_per_second == 250.0, "half a second is too short to judge"


# --- real brokers ---


def test_the_network_that_a_client_comes_from_decides() -> None:
    """IOP-06, FUT-04, over sockets: two clients of two networks are sent to the brokers of two sites."""

    async def question_from(ip: str, url: str) -> list[str]:
        host, port = url.removeprefix("veena://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(ip, 0))
        writer.write(encode(AskLocate("c"), 0))
        data = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        ((_, frame),) = Decoder().feed(data)
        assert isinstance(frame, TellLocated)
        return names(frame.brokers)

    async def scenario() -> None:
        regions = {"127.0.0.2/32": "paris", "127.0.0.0/8": "rome"}
        settings: Settings = {"locator": {**SERVES, "regions": regions}}
        async with veena.testing.network({"paris": 1, "rome": 1}, settings=settings) as net:
            url = net.url("rome.1")
            await _until_known(url, 2)
            assert await question_from("127.0.0.2", url) == ["paris.1", "rome.1"]
            assert await question_from("127.0.0.3", url) == ["rome.1", "paris.1"]

    run(scenario())


async def _until_known(url: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(await ask(url, AskLocate("asker"))) < count:
            await asyncio.sleep(0.02)


def test_clients_are_spread_and_ask_again_when_their_broker_dies() -> None:
    """IOP-06, CLI-04: a crowd is not sent to one door; who loses its broker is sent to another one."""

    async def scenario() -> None:
        settings: Settings = {"locator": {"serve": True, "refresh_s": 30.0}, "load": {"clients": 100}}
        async with veena.testing.network(brokers=3, settings=settings) as net, AsyncExitStack() as stack:
            locator = as_locator(net.url("a.1"))
            await net.restart("a.1")  # now it finds everybody in its first round
            await _until_known(net.url("a.1"), 3)
            clients = [await stack.enter_async_context(veena.connect(locator)) for _ in range(6)]
            homes = [client.broker for client in clients]
            assert len(set(homes)) == 3 and max(map(homes.count, homes)) <= 3, homes
            lost = next(client for client in clients if client.broker == (0, 1))
            await net.kill("a.2")
            await until(lambda: lost.is_connected and lost.broker != (0, 1))
            assert lost.statistics().connections == 2

    run(scenario())


def test_a_broker_with_too_many_clients_sends_some_away_and_nobody_misses_anything() -> None:
    """IOP-06, CLI-05, DUP-02: durable clients go from a full broker to one with room: no loss, no repeat, in order."""

    async def scenario() -> None:
        settings: Settings = {"load": {"clients": 5}, "locator": {"refresh_s": 0.2}}
        async with veena.testing.network(brokers=2, settings=settings) as net, AsyncExitStack() as stack:
            writer = await stack.enter_async_context(veena.connect(net.url("a.2"), client_id="writer"))
            readers, wanted = [], []
            for number in range(8):
                reader = await stack.enter_async_context(veena.connect(net.url("a.1"), client_id=f"reader-{number}"))
                readers.append(reader)
                wanted.append(await reader.subscribe(topic="t", durable="all"))
            sent = 0
            while sum(reader.broker == (0, 1) and reader.is_connected for reader in readers) < 3:
                await writer.publish(topic="t", body=b"%d" % sent, reliable=True)
                sent += 1
                await asyncio.sleep(0.01)
            for _ in range(20):
                await writer.publish(topic="t", body=b"%d" % sent, reliable=True)
                sent += 1
            for subscription in wanted:
                assert [text(await subscription.next(PATIENCE_S)) for _ in range(sent)] == [str(n) for n in range(sent)]
                assert await nothing_more(subscription, 0.02)
            here, there = (net.statistics(broker) for broker in net.brokers)
            assert (here.clients.clients, there.clients.clients) == (5, 4), "as many as were too many, and no more"
            assert here.locator.moved == 3 and here.locator.load == 1.0 and there.locator.moved == 0

    run(scenario())


def test_without_room_elsewhere_everybody_stays() -> None:
    async def scenario() -> None:
        settings: Settings = {"load": {"clients": 1}, "locator": {"refresh_s": 0.05}}
        async with veena.testing.network(brokers=2, settings=settings) as net, AsyncExitStack() as stack:
            for number in range(4):
                await stack.enter_async_context(veena.connect(net.urls[number % 2]))
            await until(lambda: all(net.statistics(broker).locator.rounds > 5 for broker in net.brokers))
            assert [net.statistics(broker).locator.known for broker in net.brokers] == [1, 1]
            assert [net.statistics(broker).locator.moved for broker in net.brokers] == [0, 0]
            assert [net.statistics(broker).clients.clients for broker in net.brokers] == [2, 2]

    run(scenario())


def test_when_the_locator_dies_clients_go_on_with_what_they_have() -> None:
    """IOP-06: a locator helps to find brokers; nothing depends on it afterwards."""

    async def scenario() -> None:
        settings: Settings = {"locator": SERVES, "load": {"clients": 100}}
        async with veena.testing.network(brokers=3, settings=settings) as net, AsyncExitStack() as stack:
            url = net.url("a.1")
            await _until_known(url, 3)
            for _ in range(3):  # so that others are less loaded
                await stack.enter_async_context(veena.connect(url))
            await until(lambda: net.statistics("a.1").clients.clients == 3)
            client = await stack.enter_async_context(veena.connect(as_locator(url), client_id="c"))
            home = client.broker
            assert home != (0, 0)
            wanted = await client.subscribe(topic="t", durable="all")
            await net.kill("a.1")
            await client.publish(topic="t", body=b"1", reliable=True)
            await net.kill("a.2" if home == (0, 1) else "a.3")
            await until(lambda: client.is_connected and client.broker != home)
            await client.publish(topic="t", body=b"2", reliable=True)
            got = [text(await wanted.next(PATIENCE_S))]
            got += [text(await wanted.next(PATIENCE_S))] if got == ["1"] else []
            assert got[-1] == "2"
            with pytest.raises(NotConnected, match=r"127\.0\.0\.1:\d+: Connect call failed"):
                await veena.connect(as_locator(url), timeout=0.3).open()

    run(scenario())


def test_a_client_that_was_sent_elsewhere_finds_its_way_back_there() -> None:
    """CLI-04, FLT-04: its only URL is that of a broker that stopped; where it was sent is known as well."""

    async def scenario() -> None:
        async with veena.testing.network(brokers=2) as net, veena.connect(net.url("a.1"), client_id="c") as client:
            await net.stop("a.1")
            await until(lambda: client.is_connected and client.broker == (0, 1))
            await net.kill("a.2")
            await until(lambda: not client.is_connected)
            await net.restart("a.2")
            await until(lambda: client.is_connected and client.broker == (0, 1))
            assert client.statistics().connections == 3

    run(scenario())


# --- what must not be followed ---


@asynccontextmanager
async def answering(*frames: Frame, raw: bytes = b"") -> AsyncIterator[str]:
    """Somebody who answers every question with this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"".join(encode(frame, 0) for frame in frames) + raw)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"veena://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


def located_payload(change: Callable[[list[Any]], object]) -> bytes:
    """An answer as bytes that no honest broker would send."""
    row: list[Any] = [["veena://a:1"], "a", [0, 0], 0, 0, 0]
    change(row)
    payload = msgspec.msgpack.encode([[row]])
    return HEADER.pack(HEADER_SIZE + len(payload), VERSION, 101, 0, 0) + payload


@pytest.mark.parametrize(
    ("frames", "raw", "told"),
    [
        ((TellLocated((Located(("http://x",), "evil", (0,), 0, 0, 0),)),), b"", "names 'evil' with a wrong URL.*http"),
        ((Heartbeat(1, 0),), b"", "Heartbeat instead of an answer"),
        ((), b"HTTP/1.1 400 Bad Request\r\n\r\n", "frame"),
        ((), located_payload(lambda row: row.__setitem__(0, [])), "TellLocated"),
        ((), located_payload(lambda row: row.__setitem__(3, -1)), "TellLocated"),
        ((), located_payload(lambda row: row.pop()), "TellLocated"),
    ],
)
def test_a_wrong_answer_is_refused_and_says_whose_it_was(frames: tuple[Frame, ...], raw: bytes, told: str) -> None:
    async def scenario() -> None:
        async with answering(*frames, raw=raw) as url:
            with pytest.raises(RemoteProtocolError, match=told) as caught:
                await veena.connect(as_locator(url), timeout=PATIENCE_S).open()
            assert url in str(caught.value)
            async with veena.testing.broker() as good, veena.connect([as_locator(url), good]) as client:
                assert client.is_connected, "whoever knows another way is not kept out"

    run(scenario())


def test_a_broker_that_is_no_locator_says_so_and_noise_costs_nobody_else() -> None:
    async def scenario() -> None:
        async with veena.testing.broker() as url:
            with pytest.raises(Refused, match=r"no locator: connect to .*, or set \[locator\] serve = true"):
                await veena.connect(as_locator(url), timeout=PATIENCE_S).open()
            (own,) = await ask(url, AskLocate("c", own=True))
            assert (own.name, own.clients, own.load) == ("a.1", 0, 0) and own.room == 16_000
            host, port = url.removeprefix("veena://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(HEADER.pack(HEADER_SIZE + 3, VERSION, 100, 0, 0) + b"\xc1\xc1\xc1")
            ((_, frame),) = Decoder().feed(await asyncio.wait_for(reader.read(), PATIENCE_S))
            writer.close()
            assert isinstance(frame, Farewell) and frame.why is RefusalCode.PROTOCOL
            async with veena.connect(url) as client:
                assert client.is_connected

    run(scenario())


def test_who_asks_inside_tls_is_not_sent_outside_and_has_to_say_who_it_is(tmp_path: Path, wording: Wording) -> None:
    """SEC-05: a locator that is tapped or careless must not make clients show their passwords in the open."""
    (tmp_path / "users.toml").write_text(f'[user.alice]\npassword = "{hash_password("secret")}"\n')
    more = (
        f'[auth]\nusers_file = "{tmp_path}/users.toml"\n[locator]\nserve = true\n[tls]\nclients = "optional"\n'
        + "".join(
            f'{key} = "{CERTIFICATES}/{name}"\n'
            for key, name in (("certificate", "broker.pem"), ("key", "broker.key"), ("authority", "authority.pem"))
        )
    )
    secrets = Secrets(client=client_context(CERTIFICATES / "authority.pem"))

    async def scenario() -> None:
        for announced, told in (
            ("veena://127.0.0.1:7700", None),
            ("veenas://127.0.0.1:7700", "veenas://127.0.0.1:7700"),
        ):
            head = f'[broker]\nlisten = ["veenas://127.0.0.1:0"]\nannounce = ["{announced}"]\n'
            node = Node(parse_config(head + more))
            await node.start()
            (door,) = node._servers
            url = str(door.url).replace("tls://", "veenas://")
            try:
                with pytest.raises(AccessDenied, match=wording.of("password is wrong")):
                    await ask(url, AskLocate("alice", "alice", "guess"), secrets)
                with pytest.raises(AccessDenied, match=wording.of("name a user and give its password or token")):
                    await ask(url, AskLocate("stranger", own=True), secrets)
                question = AskLocate("alice", "alice", "secret")
                if told is None:
                    with pytest.raises(RemoteProtocolError, match="asked inside TLS and names brokers outside"):
                        await ask(url, question, secrets)
                else:
                    (broker,) = await ask(url, question, secrets)
                    assert broker.urls == (told,)
            finally:
                await node.stop(0)

    run(scenario())


def test_a_client_does_not_go_wherever_it_is_sent() -> None:
    """SEC-05: no broker can make a client leave TLS, and a wrong URL is noted, not followed."""

    async def scenario() -> None:
        greeting = Greeting("c", "", "", "", False, (), "drop", 1000, "")
        told = ["veena://b:1", "nonsense", "veena+locator://l:1", "wss://c:1"]
        inside, faults = Places(["veenas://a:1"], greeting, Secrets()), dict[str, str]()
        assert await inside.round(told, faults) == ["wss://c:1", "veenas://a:1"]
        assert "not inside TLS" in faults["veena://b:1"] and "wrong URL" in faults["nonsense"] and len(faults) == 3
        outside = Places(["veena://a:1", "veenas://a:2"], greeting, Secrets())
        assert await outside.round(told, {}) == ["veena://b:1", "wss://c:1", "veena://a:1", "veenas://a:2"]
        outside.attached("wss://c:1")
        assert await outside.round((), {}) == ["wss://c:1", "veena://a:1", "veenas://a:2"], "where it was comes first"
        outside.replace(["veena://d:1"])
        assert await outside.round((), {}) == ["veena://d:1"]
        for number in range(100):
            outside.attached(f"veena://e:{number}")
            outside.measured(f"veena://e:{number}", 0.001)
        assert len(await outside.round((), {})) == MAX_LEARNED + 1, "what is learned has a bound"

    run(scenario())


def test_a_configuration_names_what_is_wrong_with_a_locator() -> None:
    wrong = (
        '[locator]\nbrokers = ["nowhere"]\nregions = { "10.2.0.0/16" = "0.1" }\nrefresh_s = 0\n[load]\nclients = -1\n'
    )
    with pytest.raises(ConfigFaults) as caught:
        parse_config(wrong, "b.toml")
    told = str(caught.value)
    assert "line 2, [locator] brokers: has 'nowhere'" in told and "line 4, [locator] refresh_s" in told
    assert "line 6, [load] clients: is -1" in told
    for entry, reason in (
        ('"10.2.0.1/16" = "0.1"', "has host bits set"),
        ('"10.2.0.0/16" = "north"', "expected numbers"),
    ):
        with pytest.raises(ConfigError, match=reason) as fault:
            parse_config(f"[locator]\nregions = {{ {entry} }}\n", "b.toml")
        assert "line 2, [locator] regions" in str(fault.value)


def test_the_command_shows_where_a_client_would_be_sent() -> None:
    with veena.testing.network(brokers=2, settings={"locator": SERVES, "load": {"clients": 10}}) as net:
        asyncio.run(_until_known(net.url("a.1"), 2))
        shown = command("locate", as_locator(net.url("a.1")), "--measure", "--json")
        lines = [json.loads(line) for line in shown.out.splitlines()]
        assert sorted(line["name"] for line in lines) == ["a.1", "a.2"] and shown.code == 0
        assert all(line["round_trip_ms"] > 0 and line["room"] <= 8 for line in lines)
        assert {"url", "urls", "name", "address", "load", "clients", "room", "round_trip_ms"} == set(lines[0])
        assert "a.2" in command("locate", net.url("a.2"), "--own").out
    gone = command("locate", as_locator("veena://127.0.0.1:1"))
    assert gone.code == 2 and "127.0.0.1:1" in gone.err
