"""What aggregation saves and what it costs, by how much the users' wishes overlap (AGG-04, AGG-05).

    python benchmarks/aggregation.py [--users 3] [--events 300] [--json]

Two domains of real brokers; the users are in one, the application in the other. Every user wants a window of a third of
the values of a property, and the windows overlap by 0 to 100 %. Each load is run twice: with the users as sessions at
the remote broker, as if there were no brokers of their own, and with the aggregation service of their domain. Copies
over the way between the domains are counted by the brokers. Match operations are constraints that an event is compared
with: without aggregation each user's at the remote side; with it the aggregate's parts there, and each user's again for
what comes in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from contextlib import AsyncExitStack
from typing import Any

from rich.console import Console
from rich.table import Table

import veena
import veena.testing
from veena.client import Client, Subscription, connect
from veena.services.domain.aggregate import within
from veena.services.domain.aggregation import AggregationService
from veena.services.domain.subscriptions import SubscriptionService
from veena.services.structured import StructuredEvent
from veena.services.trading.offers import Offer
from veena.services.trading.registry import Registry
from veena.services.trading.service_types import APPLICATION

OVERLAPS = (0, 25, 50, 75, 100)
#: Values that one user wants, and how long an event is waited for.
WINDOW = 100
PATIENCE_S = 20.0


def windows(users: int, overlap: int) -> list[tuple[int, int]]:
    step = WINDOW * (100 - overlap) // 100
    return [(user * step, user * step + WINDOW) for user in range(users)]


def constraint(window: tuple[int, int]) -> str:
    return f"slot >= {window[0]} and slot < {window[1]}"


async def publish(app: Client, wanted: list[Subscription], wishes: list[tuple[int, int]], count: int) -> int:
    """Publish values from all of the range, and wait until every user has got all of its own; how many that were."""
    slots = [number * users_range(wishes) // count for number in range(count)]
    for slot in slots:
        event = StructuredEvent("sim", "Monitoring", "statistics", {"slot": slot}, b"x" * 200).to_event()
        await app.publish_event(event, reliable=True)
    delivered = 0
    for subscription, (low, high) in zip(wanted, wishes, strict=True):
        for _ in range(sum(low <= slot < high for slot in slots)):
            await subscription.next(PATIENCE_S)
            delivered += 1
    return delivered


def users_range(wishes: list[tuple[int, int]]) -> int:
    """All events lie among so many values, whatever the overlap."""
    return WINDOW * len(wishes)


async def run(net: veena.testing.AsyncNetwork, users: int, overlap: int, count: int) -> dict[str, Any]:
    wishes = windows(users, overlap)
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(connect(net.url("R.1")))
        offer = await Registry(app).export(APPLICATION, "sim", {})
        alone = await without(net, app, wishes, count)
        service = await stack.enter_async_context(
            AggregationService(await stack.enter_async_context(connect(net.url("L.1"))))
        )
        crossed, delivered = await aggregated(net, app, offer, wishes, count)
        (aggregate,) = service.statistics().aggregates
    if delivered != alone:
        raise SystemExit(f"{delivered} events with aggregation and {alone} without: they must be the same")
    return {
        "overlap": overlap,
        "events": count,
        "delivered": delivered,
        "copies_alone": alone,
        "copies_aggregated": crossed,
        "copies_ratio": round(crossed / alone, 3),
        "matches_alone": count * users,
        "matches_aggregated": count * aggregate.told + crossed * users,
    }


async def without(net: veena.testing.AsyncNetwork, app: Client, wishes: list[tuple[int, int]], count: int) -> int:
    """The users attach to the remote broker themselves; how many copies it sends them."""
    async with AsyncExitStack() as stack:
        users = [await stack.enter_async_context(connect(net.url("R.1"))) for _ in wishes]
        wanted = [
            await user.subscribe(constraint=within("sim", constraint(wish)), scope="cluster")
            for user, wish in zip(users, wishes, strict=True)
        ]
        before = net.statistics("R.1").broker.ends.delivered
        await publish(app, wanted, wishes, count)
        return net.statistics("R.1").broker.ends.delivered - before


async def aggregated(
    net: veena.testing.AsyncNetwork, app: Client, offer: Offer, wishes: list[tuple[int, int]], count: int
) -> tuple[int, int]:
    """The users are in their own domain; copies that come into it, and events that they get."""
    async with AsyncExitStack() as stack:
        users = [await stack.enter_async_context(connect(net.url("L.1"))) for _ in wishes]
        services = [SubscriptionService(user) for user in users]
        wanted = [
            await service.subscribe(offer, constraint(wish)) for service, wish in zip(services, wishes, strict=True)
        ]
        before = net.statistics("L.1").broker.router.copies_in
        delivered = await publish(app, wanted, wishes, count)
        return net.statistics("L.1").broker.router.copies_in - before, delivered


async def measure(users: int, count: int) -> list[dict[str, Any]]:
    async with veena.testing.network({"L": 1, "R": 1}) as net:
        return [await run(net, users, overlap, count) for overlap in OVERLAPS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=3)
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--json", action="store_true", help="a line an overlap")
    arguments = parser.parse_args()
    lines = asyncio.run(measure(arguments.users, arguments.events))
    if arguments.json:
        for line in lines:
            print(json.dumps(line))
        return
    table = Table("overlap", title=f"{arguments.users} users, {arguments.events} events")
    columns = ("copies_alone", "copies_aggregated", "copies_ratio", "matches_alone", "matches_aggregated")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for line in lines:
        table.add_row(f"{line['overlap']} %", *(str(line[column]) for column in columns))
    console = Console()
    console.print(table)
    console.print(f"veena {veena.__version__}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
