"""The loss of a broker, a process that is killed, loses no offer."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import pytest

import veena.testing
from veena.client import connect
from veena.services.trading.registry import Registry
from veena.services.trading.resolver import Found, Resolver
from veena.services.trading.service_types import APPLICATION
from veena.services.trading.trader import Trader

PATIENCE_S = 30.0


async def until(resolver: Resolver, is_right: Callable[[Found], bool]) -> Found:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = await resolver.find()
        if is_right(found):
            return found
        assert time.monotonic() < end, found


def names(found: Found) -> list[str]:
    return sorted(offer.name for offer in found.offers)


@pytest.mark.timeout(120)
def test_a_broker_that_is_killed_takes_no_offer_with_it() -> None:
    """DIS-02, DIS-12, TRD-08: controllers of the domain hold the offers of others; the applications of the dead broker
    attach elsewhere and offer again, and so does a trader, which has no table to lose."""

    async def main() -> None:
        async with veena.testing.network({"paris": 3}, processes=True) as net:
            urls = {broker: net.url(broker) for broker in net.brokers}
            async with (
                connect([urls["paris.1"], urls["paris.2"]], client_id="its-own") as own,
                connect([urls["paris.1"], urls["paris.3"]], client_id="trader") as its_trader,
                Trader(its_trader, "paris"),
                connect(urls["paris.3"], client_id="another") as other,
                connect(urls["paris.2"], client_id="user") as user,
            ):
                for client, name in ((own, "own"), (other, "other")):
                    await Registry(client).export(APPLICATION, name, {})
                resolver = Resolver(user)
                found = await until(resolver, lambda found: names(found) == ["other", "own"])
                assert found.answered_by == "paris"
                home = own.broker
                await net.kill("paris.1")
                assert "other" in names(await resolver.find()), "what the others hold is found at once"
                await own.wait_connected(PATIENCE_S)
                assert own.broker != home
                while True:
                    answer = await user.query(constraint="name == 'own'")
                    if answer.rows and answer.rows[0].home == own.broker:
                        break
                await its_trader.wait_connected(PATIENCE_S)
                found = await until(resolver, lambda found: found.answered_by == "paris")
                assert names(found) == ["other", "own"] and its_trader.broker != home

    asyncio.run(asyncio.wait_for(main(), 100))


PUBLISHER = """
import asyncio, sys
from veena.client import connect
from veena.services.trading.registry import Registry

async def main():
    async with connect(sys.argv[1], client_id="killed") as client:
        await Registry(client).export("Application", "killed", {}, lease=0.5)
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_an_application_that_is_killed_vanishes_with_its_lease() -> None:
    """DIS-02, FUT-13: without a word of goodbye."""

    async def main() -> None:
        async with veena.testing.broker() as url, connect(url) as user:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PUBLISHER, url, stdout=asyncio.subprocess.PIPE
            )
            assert process.stdout is not None and await process.stdout.readline() == b"ready\n"
            resolver = Resolver(user)
            assert names(await resolver.find()) == ["killed"]
            process.kill()
            await process.wait()
            await until(resolver, lambda found: not found.offers)

    asyncio.run(asyncio.wait_for(main(), 60))
