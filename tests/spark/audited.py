"""A small network of real brokers with clients of every kind, and what it left on record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import veena
import veena.testing
from tests.spark.stored import Rows, stored_tables

SHAPE = {"eu.paris": 2, "eu.rome": 1, "us.york": 2}
QUOTES, ORDERS, JOBS = 24, 6, 6


def run_network(directory: Path) -> dict[str, Rows]:
    """Publish quotes, orders and jobs at paris.1; wait until everybody has what was promised; the four tables."""
    asyncio.run(_run(directory))
    return stored_tables(directory)


async def _run(directory: Path) -> None:
    settings = {"store": {"records": "all"}}
    async with veena.testing.network(SHAPE, settings=settings, directory=directory) as net:  # noqa: SIM117
        async with (
            veena.connect(net.url("eu.paris.1"), client_id="pub") as pub,
            veena.connect(net.url("eu.paris.2"), client_id="ann") as ann,
            veena.connect(net.url("us.york.2"), client_id="bob") as bob,
            veena.connect(net.url("eu.rome.1"), client_id="cyn") as cyn,
            veena.connect(net.url("us.york.1"), client_id="dan") as dan,
            veena.connect(net.url("us.york.2"), client_id="eve") as eve,
            veena.connect(net.url("eu.paris.1"), client_id="gus", reachable=True) as gus,
        ):
            everything = await ann.subscribe(topic="quotes")
            dear = await bob.subscribe(topic="quotes", selector="price >= 12")
            await cyn.subscribe(topic="quotes", scope="cluster")
            orders = await cyn.subscribe(topic="orders", durable="orders")
            shares = [await each.subscribe(topic="jobs", group="workers") for each in (dan, eve)]
            short = await gus.subscribe(topic="quotes")
            await _are_gates_exact(net)
            for number in range(QUOTES):
                await pub.publish(topic="quotes", properties={"price": number}, body=b"q", reliable=True)
                if number == QUOTES // 2:
                    await short.close()
            for _ in range(ORDERS):
                await pub.publish(topic="orders", body=b"o", reliable=True)
            for _ in range(JOBS):
                await pub.publish(topic="jobs", body=b"j", reliable=True)
            await pub.publish(topic="quotes", properties={"price": 99}, body=b"best effort")
            await pub.publish(topic="letters", to=["gus", "nobody"], body=b"l", reliable=True)
            for _ in range(QUOTES):
                await everything.next(timeout=30)
            for _ in range(QUOTES - 12):
                await dear.next(timeout=30)
            for _ in range(ORDERS):
                await orders.next(timeout=30)
            await asyncio.wait_for(_all_jobs(shares), 30)


async def _are_gates_exact(net: veena.testing.AsyncNetwork) -> None:
    """Until the ends of every link between super-clusters know what is wanted beyond it: a digest alone lets a quote
    through to a unit where its price suits nobody."""
    async with asyncio.timeout(30):
        for broker in net.brokers:
            while (told := net.statistics(broker).broker.profiles.beyond).exact < told.links:
                await asyncio.sleep(0.02)


async def _all_jobs(shares: list[veena.client.Subscription]) -> None:
    """Until the members have every job between them."""
    done = 0

    async def take(share: veena.client.Subscription) -> None:
        nonlocal done
        while done < JOBS:
            try:
                await share.next(timeout=0.2)
            except veena.errors.TimedOut:
                continue
            done += 1

    await asyncio.gather(*map(take, shares))
