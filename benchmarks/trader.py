"""Ten thousand offers: a query by constraint through the index, against a look at every offer.

    python benchmarks/trader.py [--offers 10000] [--rounds 20] [--live] [--json]

The offers are those of a registry (`veena.services.trading.offers`), held by one controller as in a broker. Each query
is asked both ways, one after the other in every round, and both must find the same. Printed are the medians, the ratio,
and which part of the offers was looked at. With `--live` the same offers are advertised by clients at a real broker,
and a user asks a trader for them: the time is that of the whole way there and back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

import veena
import veena.testing
from veena.client import connect
from veena.core.boundary.discovery import Advertise
from veena.core.discovery.advertisement import make_advert, read_properties
from veena.core.discovery.query import AdvertQuery, Choice
from veena.core.discovery.store import AdvertStore
from veena.core.wire.discovery import Advertisement
from veena.services.trading.offers import advertised, columns_for, constraint_for, make_offer
from veena.services.trading.resolver import Resolver
from veena.services.trading.service_types import APPLICATION
from veena.services.trading.trader import Trader

#: A client may advertise 4,096 times.
OFFERS_OF_A_CLIENT = 4000
AT_ONCE = 200
HOME = (0, 0, 0, 1)
FIELDS = ("CFD", "seismic", "oil", "relativity", "weather", "plasma", "ocean", "traffic")
QUERIES = (
    "name == 'application-777'",
    "field == 'oil' and network == 128",
    "cells > 990000 and category == 'junior'",
    "network in (3, 4) and load < 0.1",
    "(field == 'CFD' or field == 'plasma') and load >= 0.99",
    "'-777' ~ name",
)


def draw(count: int, chance: Random) -> list[Advertisement]:
    found = []
    for number in range(count):
        field = chance.choice(FIELDS)
        properties = {
            "name": f"application-{number}", "network": chance.randrange(256), "field": field,
            "category": chance.choice(("junior", "senior")), "cells": chance.randrange(1_000_000),
            "load": chance.random(),
        }  # fmt: skip
        offer = make_offer(APPLICATION, f"application-{number}", 1, properties, f"client-{number}")
        given = Advertise(1, offer.name, 4, advertised(offer, (APPLICATION,)))
        found.append(make_advert(given, offer.client, 4, number))
    return found


def timed(work: Callable[[], list[str]]) -> tuple[float, list[str]]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def measure(constraint: str, store: AdvertStore, adverts: list[Advertisement], rounds: int) -> dict[str, Any]:
    query = AdvertQuery(
        True, constraint_for(APPLICATION, constraint), {}, True, Choice(columns_for(["name", "network"]))
    )

    def through_index() -> list[str]:
        return sorted(advert.name for _, advert in store.find(query, lambda home, advert: True))

    def by_scan() -> list[str]:
        return sorted(advert.name for advert in adverts if query.matches(advert, HOME))

    index_s: list[float] = []
    scan_s: list[float] = []
    found: list[str] = []
    looked = store.evaluated
    for _ in range(rounds):
        seconds, found = timed(through_index)
        index_s.append(seconds)
        seconds, scanned = timed(by_scan)
        scan_s.append(seconds)
        if found != scanned:
            raise SystemExit(f"{constraint}: the index finds {len(found)}, a scan {len(scanned)}")
    index, scan = statistics.median(index_s), statistics.median(scan_s)
    return {
        "constraint": constraint,
        "found": len(found),
        "looked_at": (store.evaluated - looked) // rounds,
        "index_us": round(index * 1e6, 1),
        "scan_us": round(scan * 1e6, 1),
        "ratio": round(scan / index, 1),
    }


async def ask_live(adverts: list[Advertisement], rounds: int) -> list[dict[str, Any]]:
    """The same queries to a trader at a real broker."""
    async with veena.testing.network(brokers=1) as net, AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connect(net.url())) for _ in range(-(-len(adverts) // OFFERS_OF_A_CLIENT))
        ]
        for start in range(0, len(adverts), AT_ONCE):
            await asyncio.gather(
                *(
                    clients[number // OFFERS_OF_A_CLIENT].advertise(
                        adverts[number].name, properties=read_properties(adverts[number].properties)
                    )
                    for number in range(start, min(start + AT_ONCE, len(adverts)))
                )
            )
        user = await stack.enter_async_context(connect(net.url()))
        await stack.enter_async_context(Trader(await stack.enter_async_context(connect(net.url())), "bench"))
        resolver = Resolver(user)
        lines = []
        for constraint in QUERIES:
            looked, times, found = net.statistics("a.1").broker.discovery.evaluated, [], 0
            for _ in range(rounds):
                began = time.perf_counter()
                found = len((await resolver.find(constraint, properties=["name", "network"])).offers)
                times.append(time.perf_counter() - began)
            looked = (net.statistics("a.1").broker.discovery.evaluated - looked) // rounds
            took = round(statistics.median(times) * 1e3, 2)
            lines.append({"constraint": constraint, "found": found, "looked_at": looked, "trader_ms": took})
        return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offers", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--live", action="store_true", help="also ask a trader at a real broker")
    parser.add_argument("--json", action="store_true", help="a line a query")
    arguments = parser.parse_args()
    adverts = draw(arguments.offers, Random(arguments.seed))
    store = AdvertStore()
    for advert in adverts:
        store.put(HOME, advert)
    lines = [measure(constraint, store, adverts, arguments.rounds) for constraint in QUERIES]
    if arguments.live:
        for line, live in zip(lines, asyncio.run(ask_live(adverts, arguments.rounds)), strict=True):
            assert (live["found"], live["looked_at"]) == (line["found"], line["looked_at"]), (live, line)
            line["trader_ms"] = live["trader_ms"]
    if arguments.json:
        for line in lines:
            print(json.dumps(line))
        return
    table = Table("constraint", title=f"{arguments.offers} offers, {store.bytes / arguments.offers:.0f} bytes each")
    columns = {"found": "found", "looked_at": "looked at", "index_us": "index us", "scan_us": "scan us"}
    columns |= {"ratio": "scan / index", **({"trader_ms": "by a trader, ms"} if arguments.live else {})}
    for column in columns.values():
        table.add_column(column, justify="right")
    for line in lines:
        table.add_row(line["constraint"], *(str(line[key]) for key in columns))
    console = Console()
    console.print(table)
    console.print(f"veena {veena.__version__}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
