"""Groups through the client: one of them gets each event, and the loss of a member loses nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.client_brokers import PATIENCE_S, Site, run, two_sites, until
from veena.client import Subscription, connect
from veena.errors import LocalProtocolError


def worked(subscription: Subscription, done: list[str]) -> asyncio.Task[None]:
    """Take events for ever."""

    async def work() -> None:
        async for event in subscription:
            done.append(bytes(event.body).decode())  # noqa: PERF401 - as they come

    return asyncio.create_task(work())


def test_each_event_is_for_one_member_wherever_it_is() -> None:
    """Two members at one broker, one at another: every event once, all of them at work."""

    async def scenario() -> None:
        async with two_sites() as (one, two), connect(one.url) as a, connect(one.url) as b, connect(two.url) as c:
            done: list[list[str]] = [[], [], []]
            tasks = []
            for client, mine in zip((a, b, c), done, strict=True):
                subscription = await client.subscribe(topic="work", group="workers", wait=PATIENCE_S)
                tasks.append(worked(subscription, mine))
            async with connect(two.url) as publisher:
                for number in range(60):
                    await publisher.publish(topic="work", body=f"{number}".encode(), reliable=True)
            await until(lambda: sum(map(len, done)) >= 60)
            for task in tasks:
                task.cancel()
            assert sorted((body for mine in done for body in mine), key=int) == [f"{n}" for n in range(60)]
            assert all(done), "everybody works"

    run(scenario())


def test_what_a_member_did_not_acknowledge_goes_to_another() -> None:
    async def scenario() -> None:
        async with Site() as site, connect(site.url) as publisher:
            async with connect(site.url) as idle:
                held = await idle.subscribe(topic="work", group="workers", ack="manual", wait=PATIENCE_S)
                for number in range(5):
                    await publisher.publish(topic="work", body=f"{number}".encode(), reliable=True)
                events = [await held.next(PATIENCE_S) for _ in range(5)]
                await held.ack(events[0])
            async with connect(site.url) as other:
                heir = await other.subscribe(topic="work", group="workers", wait=PATIENCE_S)
                got = [await heir.next(PATIENCE_S) for _ in range(4)]
                assert [bytes(event.body) for event in got] == [b"1", b"2", b"3", b"4"]
                assert all(event.redelivered for event in got)

    run(scenario())


def test_a_group_has_no_past() -> None:
    async def scenario() -> None:
        async with Site() as site, connect(site.url) as client:
            with pytest.raises(LocalProtocolError, match="no past"):
                await client.subscribe(topic="work", group="workers", since=0.0)

    run(scenario())
