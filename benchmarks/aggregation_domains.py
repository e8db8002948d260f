"""One aggregated subscription a remote domain against one a remote application: copies and bytes between the domains.

    python benchmarks/aggregation_domains.py [--events 40] [--json]

Two domains of real brokers; the applications are in one, the users' aggregate stands in the other. As many applications
again have nobody who wants them. Three wishes an application are disjoint or the same; together they take half of its
events. The wishes come one after another, each as one change of the aggregate, make before break. What is told outside
is what the brokers count as wants of the domain; bytes are those over the link, towards the applications' domain while
the wishes come and for one wish more, and out of it while the events do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import veena
import veena.testing
from veena.client import Client, Subscription, connect
from veena.core.interest.eligibility import NO_DEVICE
from veena.services.domain.aggregate import Aggregate, within
from veena.services.structured import StructuredEvent

APPLICATIONS = (1, 4, 16)
WISHES = 3
#: Values of `slot`; a wish is for one of the first three, or for all three of them.
SLOTS = 6
PATIENCE_S = 20.0


def wish(number: int, is_shared: bool) -> str:
    return "slot in (0, 1, 2) and $type_name == 'Monitoring'" if is_shared else f"slot == {number} and step >= 0"


class Holder:
    """Subscriptions for the aggregates of a domain: one for all applications, or one for each."""

    def __init__(self, client: Client, is_one: bool) -> None:
        self._client, self._is_one = client, is_one
        self._aggregates: dict[str, Aggregate] = {}
        self._held: dict[str, Subscription] = {}

    async def add(self, application: str, member: str, constraint: str) -> None:
        aggregate = self._aggregates.setdefault("" if self._is_one else application, Aggregate())
        change = aggregate.add(application, member, constraint)
        if change is not None:
            for text in change.added:
                self._held[text] = await self._client.subscribe(constraint=text)
            for text in change.dropped:
                await self._held.pop(text).close()


def link_bytes(net: veena.testing.AsyncNetwork, broker: str) -> int:
    return sum(end.bytes_out for end in net.statistics(broker).transports)


async def quiet(net: veena.testing.AsyncNetwork) -> None:
    """Until a withdrawal that nobody waits for has been told: two equal looks, further apart than batches are."""
    before = -1
    while before != (now := sum(net.statistics(name).broker.profiles.rows for name in ("L.1", "R.1"))):
        before = now
        await asyncio.sleep(0.4)


async def run(applications: int, is_shared: bool, is_one: bool, events: int) -> dict[str, Any]:
    names = [f"application-{number}" for number in range(applications)]
    async with (
        veena.testing.network({"L": 1, "R": 1}) as net,
        connect(net.url("R.1")) as app,
        connect(net.url("L.1"), attributes={"device": NO_DEVICE}) as client,
        connect(net.url("L.1")) as user,
    ):
        await quiet(net)
        holder, began = Holder(client, is_one), link_bytes(net, "L.1")
        wanted = []
        for name in names:
            for number in range(WISHES):
                await holder.add(name, f"u{number}", wish(number, is_shared))
                wanted.append(await user.subscribe(constraint=within(name, wish(number, is_shared))))
        await quiet(net)
        built, began = link_bytes(net, "L.1") - began, link_bytes(net, "L.1")
        await holder.add(names[0], "more", "mean > 3")
        await quiet(net)
        more = link_bytes(net, "L.1") - began
        profiles = net.statistics("L.1").broker.profiles
        crossed, out = net.statistics("L.1").broker.router.copies_in, link_bytes(net, "R.1")
        for name in (*names, *(f"unwanted-{number}" for number in range(applications))):
            for number in range(events):
                fields: dict[str, veena.event.Value] = {"slot": number % SLOTS, "step": number}
                event = StructuredEvent(name, "Monitoring", "statistics", fields, b"x" * 200).to_event()
                await app.publish_event(event, reliable=True)
        delivered = await receive(wanted, is_shared, events)
        await asyncio.sleep(0.2)  # for copies that nobody wants, should there be any
        return {
            "applications": applications,
            "wishes": "the same" if is_shared else "disjoint",
            "one_for_each": "domain" if is_one else "application",
            "told_outside": profiles.told[profiles.speaks_for.index(1)],
            "copies": net.statistics("L.1").broker.router.copies_in - crossed,
            "delivered": delivered,
            "event_bytes": link_bytes(net, "R.1") - out,
            "wish_bytes": built,
            "more_bytes": more,
        }


async def receive(wanted: list[Subscription], is_shared: bool, events: int) -> int:
    delivered, end = 0, time.monotonic() + PATIENCE_S
    for at, subscription in enumerate(wanted):
        slots = range(WISHES) if is_shared else (at % WISHES,)
        for _ in range(sum(number % SLOTS in slots for number in range(events))):
            await subscription.next(max(0.1, end - time.monotonic()))
            delivered += 1
    return delivered


async def measure(events: int) -> list[dict[str, Any]]:
    return [
        await run(applications, is_shared, is_one, events)
        for applications in APPLICATIONS
        for is_shared in (False, True)
        for is_one in (False, True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=40, help="of each application")
    parser.add_argument("--json", action="store_true", help="a line a run")
    arguments = parser.parse_args()
    lines = asyncio.run(measure(arguments.events))
    if arguments.json:
        for line in lines:
            print(json.dumps(line))
        return
    table = Table(*[name.replace("_", " ") for name in lines[0]])
    for line in lines:
        table.add_row(*map(str, line.values()))
    console = Console(width=120)
    console.print(table)
    console.print(f"veena {veena.__version__}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
