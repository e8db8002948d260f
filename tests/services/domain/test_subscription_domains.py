"""Domains that are super-clusters: users are in several clusters of one domain, the application is in another one."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import veena.testing
from veena.client import Client, connect
from veena.services.domain.services import DomainServices
from veena.services.domain.subscriptions import SubscriptionService
from veena.services.structured import StructuredEvent
from veena.services.trading.registry import Registry, network_of
from veena.services.trading.resolver import Found, Resolver
from veena.services.trading.service_types import APPLICATION

PATIENCE_S = 20.0
EVENTS = 12
#: A ring of clusters: the application is in the one of `us` that has no link to `eu`.
SHAPE = {"eu.paris": 1, "eu.rome": 1, "us.boston": 1, "us.york": 1, "us.albany": 1}
GATES = ("us.boston.1", "us.albany.1")


async def found_by(client: Client, name: str) -> Found:
    end = time.monotonic() + PATIENCE_S
    while not (found := await Resolver(client).find(f"name == '{name}'")).offers:
        assert time.monotonic() < end
    return found


def test_one_copy_enters_a_domain_of_two_clusters() -> None:
    """ORD-03, DIS-08, DIS-13, AGG-01, AGG-02, AGG-07, FIX-30: the services of a domain serve all of its clusters, and
    by one subscription for all applications of the other domain nothing crosses that no one wants."""

    async def main() -> None:
        async with veena.testing.network(SHAPE) as net, AsyncExitStack() as stack:

            async def client(broker: str) -> Client:
                return await stack.enter_async_context(connect(net.url(broker)))

            def told() -> int:
                profiles = net.statistics("eu.paris.1").broker.profiles
                return profiles.told[profiles.speaks_for.index(2)]

            def copies(broker: str) -> int:
                return net.statistics(broker).broker.router.copies_in

            app, near = await client("us.york.1"), await client("eu.paris.1")
            users = [await client(broker) for broker in ("eu.paris.1", "eu.rome.1", "eu.rome.1")]
            eu = DomainServices(await client("eu.paris.1"), "eu", links=["us"])
            us = DomainServices(await client("us.york.1"), "us", links=["eu"])
            await stack.enter_async_context(eu)
            await stack.enter_async_context(us)
            assert eu.network == network_of(users[2]) != us.network == network_of(app)

            await Registry(near).export(APPLICATION, "near", {})
            for name in ("far", "other", "unwanted"):
                await Registry(app).export(APPLICATION, name, {})
            assert not (await found_by(users[2], "near")).forwarded, "another cluster of the same domain is local"
            found = await found_by(users[2], "far")
            assert found.forwarded and found.answered_by == "eu"

            before = told()
            wishes = ("slot >= 0", "slot < 3", "slot in (0, 1, 2)")
            wanted = []
            for user, wish in zip(users, wishes, strict=True):
                wanted.append(await SubscriptionService(user).subscribe(found.offers[0], wish))
            other = (await found_by(users[1], "other")).offers[0]
            more = await SubscriptionService(users[1]).subscribe(other, "slot == 1")
            assert eu.statistics().aggregation.aggregates[0].members == 4
            assert told() - before == 1
            crossed = copies("eu.paris.1") + copies("eu.rome.1")
            at_the_gates = sum(map(copies, GATES))
            for number in range(EVENTS):
                for name in ("unwanted", "other", "far"):
                    event = StructuredEvent(name, "Monitoring", "field", {"slot": number % 3}).to_event()
                    await app.publish_event(event, reliable=True)
            assert [(await more.next(PATIENCE_S)).properties["slot"] for _ in range(EVENTS // 3)] == [1] * (EVENTS // 3)
            for subscription in wanted:
                slots = [(await subscription.next(PATIENCE_S)).properties["slot"] for _ in range(EVENTS)]
                assert slots == [number % 3 for number in range(EVENTS)]
            assert more.poll() is None
            inside = copies("eu.paris.1") + copies("eu.rome.1") - crossed
            assert inside == 2 * (EVENTS + EVENTS // 3), "one into the domain, one inside"
            gone = sum(map(copies, GATES)) - at_the_gates
            assert gone == 2 * EVENTS, "the digest keeps what no one wants anything of at home, the gate holds the rest"

    asyncio.run(asyncio.wait_for(main(), 60))
