"""Brokers are killed and clients cut off, at random, while reliable events flow: none is lost, none comes twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from tests.runtime.client_brokers import Site, run, text, two_sites, until
from veena.client import Subscription, connect
from veena.event import Event

SECONDS = 2.5


async def _harass(sites: tuple[Site, Site], chance: Random, until_s: float) -> None:
    """Cut connections of clients, and kill brokers and start them again."""
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        await asyncio.sleep(chance.uniform(0.05, 0.3))
        site = chance.choice(sites)
        if chance.random() < 0.7:
            for who in list(site.clients.sessions.values())[:1]:
                who.stream.abort("cut")
        else:
            await site.kill()
            await asyncio.sleep(chance.uniform(0.02, 0.3))
            await site.start()


async def _read(subscription: Subscription, got: list[Event]) -> None:
    async for event in subscription:
        got.append(event)
        if subscription.ack_mode == "manual":
            await subscription.ack(event)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_and_nothing_comes_twice(seed: int) -> None:
    """CLI-03, CLI-05, FLT-05, QOS-01, I5: publisher and durable readers roam between two brokers that come and go."""

    async def scenario() -> None:
        chance = Random(seed)
        async with two_sites() as sites:
            urls = [site.url for site in sites]
            async with (
                connect(urls, client_id="writer", heartbeat=0.2) as writer,
                connect(urls[::-1], client_id="auto", heartbeat=0.2) as auto,
                connect(urls, client_id="manual", heartbeat=0.2) as manual,
            ):
                subscriptions = [
                    await auto.subscribe(topic="t", durable="d"),
                    await manual.subscribe(topic="t", durable="d", ack="manual"),
                ]
                got: list[list[Event]] = [[], []]
                reading = [asyncio.create_task(_read(*each)) for each in zip(subscriptions, got, strict=True)]
                end_s = asyncio.get_running_loop().time() + SECONDS
                trouble = asyncio.create_task(_harass(sites, chance, end_s))
                sent = 0
                while not trouble.done():
                    count = chance.randint(1, 10)
                    batch = [Event(topic="t", body=b"%d" % number) for number in range(sent, sent + count)]
                    await writer.publish_many(batch, reliable=True)
                    sent += count
                    await asyncio.sleep(chance.uniform(0, 0.03))
                await trouble
                await until(lambda: all({text(event) for event in each} >= set(map(str, range(sent))) for each in got))
                for task in reading:
                    task.cancel()
                assert max(Counter(map(text, got[0])).values()) == 1
                unmarked = Counter(text(event) for event in got[1] if not event.redelivered)
                assert max(unmarked.values()) == 1, "what may have come before is marked"

    run(scenario())


def test_ids_of_what_was_repeated_are_those_that_were_accepted() -> None:
    """UID-02: the id that `publish` returns is the one that the event arrives under."""

    async def scenario() -> None:
        async with two_sites() as sites:
            one, other = sites
            async with connect([one.url, other.url], client_id="w") as writer, other.client("r") as reader:
                wanted = await reader.subscribe(topic="t", durable="d")
                assert one.peer is not None
                one.peer.holds = []
                publishing = asyncio.create_task(writer.publish(topic="t", reliable=True))
                await until(lambda: writer.statistics().unaccepted == 1)
                await one.kill()
                event_id = await publishing
                assert (await wanted.next(10)).id == event_id

    run(scenario())
