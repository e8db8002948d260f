"""Events taken in batches: as many as are there, acknowledged together."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.client_brokers import PATIENCE_S, Site, nothing_more, run, text, until
from veena.client.subscription import HIGH_EVENTS
from veena.errors import LocalProtocolError, TimedOut
from veena.event import Event


def numbered(count: int, first: int = 0) -> list[Event]:
    return [Event(topic="t", body=b"%d" % number) for number in range(first, first + count)]


def test_batches_bring_every_event_once_and_in_order() -> None:
    """CLI-08: at least one event, at most so many, until the subscription is closed."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="t")
            await alice.publish_many(numbered(100))
            got: list[str] = []
            sizes: list[int] = []
            async for batch in wanted.batches(max=30):
                got += map(text, batch)
                sizes.append(len(batch))
                if len(got) == 100:
                    await wanted.close()
            assert got == [str(n) for n in range(100)]
            assert max(sizes) <= 30

    run(scenario())


def test_a_batch_waits_to_grow_but_not_for_ever() -> None:
    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="t")
            growing = asyncio.create_task(wanted.next_batch(max=5, wait=PATIENCE_S))
            for event in numbered(5):
                await alice.publish_event(event, reliable=True)
            assert [text(event) for event in await growing] == ["0", "1", "2", "3", "4"]
            await alice.publish_many(numbered(2, 5), reliable=True)
            assert [text(event) for event in await wanted.next_batch(max=50, wait=0.01)] == ["5", "6"]
            with pytest.raises(TimedOut):
                await wanted.next_batch(timeout=0.01)
            for size in (0, HIGH_EVENTS + 1):
                with pytest.raises(LocalProtocolError, match=f"max {size}: expected 1 to {HIGH_EVENTS}"):
                    await wanted.next_batch(max=size)
            with pytest.raises(LocalProtocolError, match="wait -1"):
                await wanted.next_batch(wait=-1)

    run(scenario())


def test_a_batch_is_acknowledged_as_a_whole() -> None:
    """GUA-03: with ack='manual' what was acknowledged does not come again, everything else does."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer:
            async with site.client("reader") as reader:
                wanted = await reader.subscribe(topic="t", durable="d", ack="manual")
                await writer.publish_many(numbered(300), reliable=True)
                done: list[str] = []
                while len(done) < 200:
                    batch = await wanted.next_batch(max=200 - len(done), timeout=PATIENCE_S)
                    await batch.ack()
                    done += map(text, batch)
                assert await wanted.next_batch(max=10, timeout=PATIENCE_S)  # taken, but not acknowledged
            async with site.client("reader") as reader:
                wanted = await reader.subscribe(topic="t", durable="d", ack="manual")
                got: list[Event] = []
                while len(got) < 100:
                    got += await wanted.next_batch(timeout=PATIENCE_S)
                assert done + [text(event) for event in got] == [str(n) for n in range(300)]
                assert got[0].redelivered
                assert await nothing_more(wanted)

    run(scenario())


def test_batches_of_a_durable_subscription_move_its_cursor() -> None:
    """With ack='auto' a batch that was taken does not come again."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer:
            got: list[str] = []
            for visit in range(3):
                async with site.client("reader") as reader:
                    wanted = await reader.subscribe(topic="t", durable="d")
                    await writer.publish_many(numbered(40, 40 * visit), reliable=True)
                    while len(got) < 40 * (visit + 1):
                        got += map(text, await wanted.next_batch(max=7, timeout=PATIENCE_S))
            assert got == [str(n) for n in range(120)]

    run(scenario())


def test_a_slow_reader_of_batches_loses_nothing() -> None:
    """QOS-02: while the application does not take batches its broker holds back, and goes on when it does."""

    async def scenario() -> None:
        async with Site() as site, site.client("writer") as writer, site.client("reader") as reader:
            wanted = await reader.subscribe(topic="t", durable="d")
            count = 3_000
            sending = asyncio.create_task(writer.publish_many(numbered(count), reliable=True))
            await until(lambda: wanted.waiting >= 1_000)
            got: list[str] = []
            while len(got) < count:
                got += map(text, await wanted.next_batch(max=500, timeout=PATIENCE_S))
                await asyncio.sleep(0)
            await sending
            assert got == [str(n) for n in range(count)]
            assert wanted.dropped == 0

    run(scenario())
