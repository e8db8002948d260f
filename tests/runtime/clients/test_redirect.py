"""Who is attached to a broker, and clients that are told to go to another one, with all that is kept for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import veena.testing
from tests.runtime.client_brokers import PATIENCE_S, run, until
from tests.runtime.raw_client import attach
from tests.runtime.wording import Wording
from veena.client import Client, Subscription, connect
from veena.core.wire.control import Heartbeat
from veena.core.wire.event import EventFrame
from veena.core.wire.explain import MAX_SENT_AWAY
from veena.errors import AccessDenied, Refused
from veena.runtime.access.users import hash_password
from veena.runtime.clients.traffic import LONGEST_S, MAX_PUBLISHERS, SAMPLED, Audience, Heard, Traffic
from veena.testing.networks import AsyncNetwork, Network

EVENTS = 60
Settings = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    settings: Settings = {"broker": {"place": "Syracuse"}, "locator": {"regions": {"127.0.0.0/8": "a"}}}
    with veena.testing.network({"a": 1, "b": 1}, settings=settings) as net:
        yield net


async def _clients(client: Client) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in (await client.clients())["clients"]}


def test_a_broker_says_who_is_attached_and_how_far_away(network: Network) -> None:
    """FUT-06: places by their own word and by the operator's, measured round trips, traffic, audience."""

    async def scenario() -> None:
        url = network.url("a.1")
        boston = connect(url, client_id="boston", attributes={"place": "Boston"}, heartbeat=0.05)
        async with boston, connect(url, client_id="asker") as asker:
            events = await boston.subscribe(topic="who")
            await boston.subscribe(topic="kept", durable=True)
            for _ in range(4 * SAMPLED):
                await asker.publish(topic="who", body=b"x" * 100)
                await events.next(PATIENCE_S)
            async with asyncio.timeout(PATIENCE_S):
                while (await _clients(asker))["boston"]["round_trip_ms"] is None:
                    await asyncio.sleep(0.01)
                while not (report := await asker.clients())["brokers"]:  # others tell in time where they listen
                    await asyncio.sleep(0.01)
            assert (report["broker"], report["place"], report["total"]) == ("a.1", "Syracuse", 2)
            assert report["urls"], "where it listens"
            found = (await _clients(asker))["boston"]
            assert (found["place"], found["region"], found["ip"]) == ("Boston", "a", "127.0.0.1")
            assert 0 <= found["round_trip_ms"] < 1000 * PATIENCE_S and found["bytes_out"] > 4 * SAMPLED * 100
            assert (found["subscriptions"], found["durable"]) == (2, 1)
            assert (await _clients(asker))["asker"]["published"] == 4 * SAMPLED
            heard = {each["publisher"]: each for each in report["heard"]}
            assert heard["asker"]["origin"] == "a.1" and 0 < heard["asker"]["copies"] <= 5 * SAMPLED

    run(scenario())


def test_clients_that_are_sent_away_lose_nothing_and_get_nothing_twice(network: Network, wording: Wording) -> None:
    """FUT-07, GUA-01, DUP-08: subscribers and their publisher are moved while events go on."""

    async def scenario() -> None:
        here, there = network.url("a.1"), network.url("b.1")
        # Names of its own: what is kept elsewhere for a client that comes back has to come first, which takes a second.
        mover = f"mover-{'plain' if wording.is_plain else 'curt'}"
        async with AsyncExitStack() as stack:
            readers = [await _reader(stack, here, f"{mover}-{n}") for n in range(3)]
            source = await stack.enter_async_context(connect(here, client_id="source"))
            admin = await stack.enter_async_context(connect(here))
            publishing = asyncio.create_task(_publish(source))
            await until(lambda: len(readers[0][2]) > EVENTS // 4)
            names = [client.client_id for client, _, _ in readers]
            answer = await admin.send_away([*names, "nobody"], there, reason="nearer")
            assert answer.sent == tuple(names) and answer.absent == ("nobody",)
            assert (await admin.send_away(["source"], there)).sent == ("source",)
            await publishing
            await until(lambda: all(len(got) >= EVENTS for _, _, got in readers))
            assert [got for _, _, got in readers] == [list(range(EVENTS))] * 3
            everybody = [source, *(client for client, _, _ in readers)]
            await until(lambda: all(client.is_connected and client.broker != admin.broker for client in everybody))
            assert all(client.statistics().connections == 2 for client in everybody), "they stay where they were sent"

    run(scenario())


async def _reader(stack: AsyncExitStack, url: str, name: str) -> tuple[Client, Subscription, list[int]]:
    client = await stack.enter_async_context(connect(url, client_id=name))
    subscription = await client.subscribe(topic="moving", durable=True, wait=PATIENCE_S)
    got: list[int] = []

    async def read() -> None:
        while True:
            got.append(int(str((await subscription.next(None)).properties["number"])))

    task = asyncio.create_task(read())
    stack.callback(task.cancel)
    return client, subscription, got


async def _publish(source: Client) -> None:
    for number in range(EVENTS):
        await source.publish(topic="moving", properties={"number": number}, reliable=True)
        await asyncio.sleep(0.01)


def test_who_finds_nobody_where_it_was_sent_comes_back(network: Network, wording: Wording) -> None:
    async def scenario() -> None:
        url = network.url("a.1")
        async with connect(url, client_id="lost") as client, connect(url) as admin:
            assert (await admin.send_away(["lost"], "veena://127.0.0.1:9")).sent == ("lost",)
            await until(lambda: client.is_connected and client.statistics().connections == 2)
            assert client.broker == admin.broker
            with pytest.raises(Refused, match=wording.of("ftp")):
                await admin.send_away(["lost"], "ftp://example.org")
            many = [f"c{number}" for number in range(MAX_SENT_AWAY + 1)]
            assert (await admin.send_away(many, url)).absent == tuple(many), "as many frames as it takes"

    run(scenario())


def test_sending_clients_away_needs_a_right(tmp_path: Path, wording: Wording) -> None:
    """Who may ask how a broker is doing may not for that reason move its clients."""
    users = tmp_path / "users.toml"
    users.write_text(
        "\n".join(
            f'[user.{name}]\npassword = "{hash_password("pw")}"\nroles = ["{name}"]\n'
            f'[role.{name}]\nrules = [{{ allow = ["publish", "status"{more}] }}]\n'
            for name, more in (("watcher", ""), ("mover", ', "move"'))
        )
    )

    async def scenario(net: AsyncNetwork) -> None:
        watcher = connect(net.url(), user="watcher", password="pw")
        mover = connect(net.url(), user="mover", password="pw")
        async with watcher, mover:
            with pytest.raises(AccessDenied, match=wording.of("allow 'move'")):
                await watcher.send_away([mover.client_id], net.url())
            assert {each["user"] for each in (await watcher.clients())["clients"]} == {"watcher", "mover"}
            assert (await mover.send_away(["x"], net.url())).absent == ("x",)

    async def start() -> None:
        settings = {"auth": {"users_file": str(users)}}
        async with veena.testing.network(brokers=1, settings=settings) as net:
            await scenario(net)

    run(start())


def test_a_round_trip_is_believed_when_it_can_be_true() -> None:
    traffic = Traffic()
    traffic.measured(-1.0)
    traffic.measured(LONGEST_S + 1)
    assert traffic.round_trip_s is None, "a client that echoes what it was never sent"
    traffic.measured(0.08)
    traffic.measured(0.16)
    assert traffic.round_trip_s == pytest.approx(0.09), "a busy moment is no distance"
    traffic.measured(0.04)
    assert traffic.round_trip_s == 0.04


def test_an_audience_is_a_sample_and_bounded() -> None:
    def frame(publisher: str, origin: bytes) -> EventFrame:
        return EventFrame(0, 0, 1, 1, 1, origin, 0, 0, len(publisher), 0, publisher.encode())

    audience = Audience()
    for _ in range(2):
        audience.sample(frame("p", b"\x00\x01"), 3)
    assert audience.heard() == [Heard("p", (0, 1), 2 * SAMPLED * 3)]
    for number in range(MAX_PUBLISHERS):
        audience.sample(frame(f"p{number}", b"\xff\xff"), 1)
    found = audience.heard()
    assert len(found) == MAX_PUBLISHERS and "p" not in {each.publisher for each in found}
    assert found[-1].origin is None and all(one.publisher != other.publisher for one, other in pairwise(found))
    broken = EventFrame(0, 0, 1, 1, 1, b"\x00\x01", 0, 0, 1, 0, b"\xff")
    audience.sample(broken, 1)
    assert audience.heard() == found, "what has no readable publisher is left out"


def test_a_heartbeat_that_asks_for_nothing_is_not_answered(network: Network) -> None:
    """Else two ends that answer each other would never stop; and what is echoed is measured."""

    async def scenario() -> None:
        raw = await attach(network.url("a.1"), "raw", 2)
        async with connect(network.url("a.1")) as asker:
            raw.say(Heartbeat(7, 0))
            await until(lambda: any(isinstance(frame, Heartbeat) for frame in raw.frames))
            (first,) = [frame for frame in raw.frames if isinstance(frame, Heartbeat)]
            assert first.echo_ns == 7 and (await _clients(asker))["raw"]["round_trip_ms"] is None
            raw.say(Heartbeat(0, first.sent_ns), Heartbeat(8, 0))
            await until(lambda: len([frame for frame in raw.frames if isinstance(frame, Heartbeat)]) == 2)
            assert raw.frames[-1].echo_ns == 8, "the one between was not answered"  # type: ignore[attr-defined]
            assert (await _clients(asker))["raw"]["round_trip_ms"] >= 0
            raw.stream.abort("done")

    run(scenario())
