"""Numbers that no honest client sends, against real brokers with real disks: they cost the session that sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
import pytest

import veena
from tests.core.wire.test_bounds import edges, payload_of, replaced
from tests.core.wire.test_wire_frames import kind_of, payload_as
from tests.runtime.client_brokers import bodies, run, until
from tests.runtime.raw_client import RawClient, attach
from veena.client import Client
from veena.core.boundary.inputs_effects import Read, Subscribe
from veena.core.wire import codec as wire
from veena.core.wire.bounds import integers_of
from veena.core.wire.client import AskSubscribe, Farewell
from veena.core.wire.control import Frame, Heartbeat
from veena.runtime.access.users import parse_users
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config

BEYOND = 1 << 63
USERS = f"""
[user.admin]
tokens = ["sha256:{sha256(b"admin").hexdigest()}"]
roles = ["all"]

[user.mallory]
tokens = ["sha256:{sha256(b"mallory").hexdigest()}"]
roles = ["few"]

[role.all]
rules = [{{ allow = "*" }}]

[role.few]
rules = [{{ allow = "subscribe", topic = "public.x" }}]
"""
#: What clients send.
ASKS = [cls for cls in wire.KINDS.values() if cls.__name__.startswith("Ask")]


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[Node, Node]]:
    """Two brokers of a cluster, each with a store of its own and with users."""
    nodes: list[Node] = []
    try:
        for at in range(2):
            dial = f'dial = ["{nodes[0].urls[0]}"]' if nodes else ""
            text = f'[broker]\nname = "n{at}"\naddress = "0.0.0.{at}"\nlisten = ["veena://127.0.0.1:0"]\n'
            nodes.append(Node(parse_config(f"{text}[links]\nheartbeat_s = 0.2\nretry_s = 0.02\n{dial}\n")))
            await nodes[-1].start()
            nodes[-1].clients.users = parse_users(USERS)
        one, other = nodes
        await until(lambda: (0, 0, 0, 1) in one.driver.reached and (0, 0, 0, 0) in other.driver.reached)
        yield one, other
    finally:
        for node in nodes:
            await node.stop()


def admin(node: Node, name: str) -> Client:
    return veena.connect(node.urls[0], client_id=f"admin/{name}", user="admin", token="admin")


async def say(client: RawClient, cls: type[Frame], fields: list[Any]) -> None:
    """Send a frame that this code would not write."""
    client.stream.write([payload_as(kind_of(cls), fields)])


async def answered(client: RawClient) -> None:
    """Wait until the broker has dealt with everything that this client sent, or has sent it away."""
    client.frames.clear()
    client.say(Heartbeat(1, 0))
    await until(lambda: client.reason is not None or any(isinstance(frame, Heartbeat) for frame in client.frames))


async def durable_and_since_work(nodes: tuple[Node, Node], turn: str) -> None:
    """At every broker: a durable subscription gets what it missed, and `since` reads all logs."""
    before = datetime.now().astimezone() - timedelta(hours=1)
    topic = f"public.{turn}"
    for node in nodes:
        async with admin(node, f"{turn}-{node.config.name}") as client:
            await client.subscribe(topic=topic, durable="kept")
    for node in nodes:
        async with admin(node, "writer") as writer:
            await writer.publish(topic=topic, body=node.config.name.encode(), reliable=True)
    for node in nodes:
        async with admin(node, f"{turn}-{node.config.name}") as client:
            kept = await client.subscribe(topic=topic, durable="kept")
            assert sorted(await bodies(kept, 2)) == ["n0", "n1"]
            past = await client.subscribe(topic=topic, since=before)
            assert sorted(await bodies(past, 2)) == ["n0", "n1"]


def test_a_time_beyond_64_bits_stops_no_durable_delivery() -> None:
    """One AskSubscribe of 55 bytes, by a user who may read one topic, ended the reading of the log everywhere.

    The frame asks for the past since 2^63 nanoseconds, which no disk can compare.
    """

    async def scenario() -> None:
        async with two_nodes() as nodes:
            await durable_and_since_work(nodes, "before")
            mallory = await attach(nodes[0].urls[0], "mallory/1", user="mallory", token="mallory")
            fields = msgspec.msgpack.decode(msgspec.msgpack.encode(AskSubscribe(1, "topic", b"\xa8public.x", 1)))
            await say(mallory, AskSubscribe, [*fields[:9], BEYOND])
            farewell = await mallory.wait(Farewell)
            assert "AskSubscribe of 3" in farewell.reason and f"since_ns is {BEYOND}, allowed are 0" in farewell.reason
            await durable_and_since_work(nodes, "refused")
            assert [node.why_not_ready() for node in nodes] == [None, None]

    run(scenario())


def test_a_time_that_comes_past_the_frames_stops_no_durable_delivery() -> None:
    """The same where the check of frames is passed by: an input of the core, and a question to each disk."""

    async def scenario() -> None:
        async with two_nodes() as nodes:
            again = await attach(nodes[0].urls[0], "mallory/2", user="mallory", token="mallory")
            (session,) = nodes[0].clients.sessions
            nodes[0].driver.give(Subscribe(session, 1, "topic", "public.x", 1, since_ns=BEYOND))
            for node in nodes:
                node.store.submit(Read(1 << 40, 0, 10, 0, BEYOND))
                node.store.submit(Read(1 << 41, BEYOND, 10))
            await durable_and_since_work(nodes, "planted")
            assert again.reason is None
            assert [node.why_not_ready() for node in nodes] == [None, None]
            assert [node.supervisor.statistics().failed for node in nodes] == [2, 2]

    run(scenario())


def test_every_number_of_a_client_at_its_edges_leaves_the_broker_whole(caplog: pytest.LogCaptureFixture) -> None:
    """What a frame may hold, the code behind it takes: no exception anywhere, and an honest client is served."""

    async def scenario() -> None:
        async with two_nodes() as nodes:
            node = nodes[0]
            sent = 0
            for cls in ASKS:
                raw = await attach(node.urls[0], f"admin/{cls.__name__}", user="admin", token="admin")
                for integer in integers_of(cls):
                    for value, is_allowed in edges(integer):
                        if is_allowed:
                            if raw.reason is not None:
                                raw = await attach(node.urls[0], f"admin/{sent}", user="admin", token="admin")
                            await say(raw, cls, replaced(payload_of(cls), integer.steps, value))
                            await answered(raw)
                            sent += 1
            assert sent > 100
            await durable_and_since_work(nodes, "after")
            assert node.why_not_ready() is None

    run(scenario())
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_limit_beyond_any_integer_is_none() -> None:
    """One question broke the core of every broker that was asked; each blamed the neighbour that had passed it on."""

    async def scenario() -> None:
        async with two_nodes() as nodes:
            async with admin(nodes[0], "owner") as owner, admin(nodes[1], "asker") as asker:
                await owner.advertise("offer", properties={"n": 5})
                async with asyncio.timeout(20):
                    while not (await asker.query(sql=f"SELECT n FROM adverts LIMIT {'9' * 40}", realm="cluster")).rows:
                        pass
            assert [node.why_not_ready() for node in nodes] == [None, None]
            assert [len(node.driver.statistics().links) for node in nodes] == [1, 1]
            assert [node.driver.life for node in nodes] == [0, 0]

    run(scenario())
