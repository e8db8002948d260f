"""Clients that read more slowly than events come, or not at all: a broker as a process, clients over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.client_brokers import PATIENCE_S, bodies, until
from tests.runtime.processes import veena
from veena.client import Subscription, connect
from veena.errors import TimedOut
from veena.event import Event

SESSION_BYTES = 1 << 20
SLOW_S = 1.5
CONFIG = f"""
[broker]
name = "b"
listen = ["veena://127.0.0.1:0"]
[limits]
session_bytes = {SESSION_BYTES}
slow_s = {SLOW_S}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose clients have a MiB of memory each."""
    directory: Path = tmp_path_factory.mktemp("broker")
    (directory / "broker.toml").write_text(CONFIG)
    with veena("broker", "run", "--config", str(directory / "broker.toml"), "--json") as broker:
        yield broker.told()["url"]


def events(topic: str, count: int, size: int = 100, first: int = 0) -> list[Event]:
    return [Event(topic=topic, body=(b"%d" % number).ljust(size)) for number in range(first, first + count)]


async def rest(subscription: Subscription, within_s: float) -> list[int]:
    """All that comes until nothing has come for so long."""
    found: list[int] = []
    while True:
        try:
            found.append(int(bytes((await subscription.next(within_s)).body)))
        except TimedOut:
            return found


def test_a_reader_gets_all_of_a_burst_however_long(url: str) -> None:
    """CLI-03, FLT-09: a subscriber that reads all the time loses nothing of a burst of 20,000 reliable events that come
    as fast as their publisher can send; before, 4,096 were kept, whatever their size."""

    async def scenario() -> None:
        async with connect(url, client_id="p") as writer, connect(url, client_id="r") as reader:
            wanted = await reader.subscribe(topic="burst")
            sending = asyncio.create_task(writer.publish_many(events("burst", 20_000, 20), reliable=True))
            got = [int(each) for each in await bodies(wanted, 20_000)]
            await sending
            assert got == list(range(20_000))
            assert (wanted.dropped, reader.statistics().dropped) == (0, 0)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_is_dropped_of_best_effort_is_counted_by_subscription(url: str) -> None:
    """CLI-03, FLT-09: received and dropped are what was sent, for each subscription; another reader misses nothing."""

    async def scenario() -> None:
        async with (
            connect(url, client_id="p") as writer,
            connect(url, client_id="slow") as slow,
            connect(url, client_id="fast") as fast,
        ):
            both = await slow.subscribe(topic="best")
            some = await slow.subscribe(topic="best", selector="odd = 1")
            seen = await fast.subscribe(topic="best")
            told: list[int] = []
            some.on_dropped = told.append
            count = 20_000
            sent = [
                Event(topic="best", properties={"odd": number % 2}, body=b"%0100d" % number) for number in range(count)
            ]

            async def publish() -> None:
                for at in range(0, count, 500):
                    await writer.publish_many(sent[at : at + 500])
                    await asyncio.sleep(0.01)  # within what the reader takes; a burst would be on its way for seconds

            (_, others) = await asyncio.gather(publish(), bodies(seen, count))
            assert [int(each) for each in others] == list(range(count))
            await until(lambda: both.waiting >= 4096)
            got, odd = await asyncio.gather(rest(both, 1.0), rest(some, 1.0))
            assert got == sorted(set(got))
            assert odd == [number for number in got if number % 2]
            assert both.dropped > 1000
            assert len(got) + both.dropped == count
            assert len(odd) + some.dropped == count // 2
            assert some.dropped == sum(told)
            assert slow.statistics().dropped == both.dropped

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_who_reads_nothing_is_ended_and_its_durable_subscription_goes_on(url: str) -> None:
    """FLT-09, CLI-07: a client whose machine takes nothing is ended after `slow_s`, and told why; what is kept for it
    comes later, all of it and once. Nobody else notices."""

    async def scenario() -> None:
        async with connect(url, client_id="p") as writer, connect(url, client_id="other") as other:
            seen = await other.subscribe(topic="kept")
            stuck = connect(url, client_id="stuck", reconnect=False)
            await stuck.open()
            await stuck.subscribe(topic="kept", durable="d")
            await stuck.subscribe(topic="kept")
            connection = stuck._session.connection
            assert connection is not None and connection._stream is not None
            connection._stream.pause()
            count = 2500  # more than the buffers of both sockets take
            for first in range(0, count, 50):
                await writer.publish_many(events("kept", 50, 10_000, first), reliable=True)
                assert [int(each) for each in await bodies(seen, 50)] == list(range(first, first + 50))
            started = asyncio.get_running_loop().time()
            while "stuck" in str(await other.clients()):
                assert asyncio.get_running_loop().time() - started < 10 * SLOW_S
                await asyncio.sleep(0.1)
            connection._stream.resume()
            reason = await asyncio.wait_for(connection.wait_closed(), PATIENCE_S)
            assert f"read nothing for {SLOW_S:g} seconds" in reason
            await stuck.close()
            async with connect(url, client_id="stuck") as again:
                kept = await again.subscribe(topic="kept", durable="d")
                got: dict[int, bool] = {}
                while len(got) < count:
                    event = await kept.next(PATIENCE_S)
                    number = int(bytes(event.body))
                    assert number not in got
                    got[number] = event.redelivered
                assert list(got) == list(range(count))
                await kept.delete()

    asyncio.run(asyncio.wait_for(scenario(), 60))
