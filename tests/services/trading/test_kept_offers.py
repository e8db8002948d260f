"""Offers on the disks of real brokers: processes that are killed, and what is found when they are back."""

from __future__ import annotations

import asyncio

import pytest

import veena.testing
from tests.services.trading.test_trader_loss import names, until
from veena.client import connect
from veena.services.trading.registry import Registry
from veena.services.trading.resolver import Resolver
from veena.services.trading.service_types import APPLICATION

LONG_S = 600.0


@pytest.mark.timeout(120)
def test_offers_outlive_the_brokers_of_their_domain() -> None:
    """TRD-05, DIS-02, DSC-01: all brokers of a domain are killed and started again: offers are found before any
    application is back, those whose lease ended are not, what is withdrawn then is gone; and with one broker lost for
    good, the home and only controller of an offer, it is still found."""

    async def main() -> None:
        async with veena.testing.network({"paris": 3}, processes=True) as net:
            urls = {broker: net.url(broker) for broker in net.brokers}
            async with (
                connect(urls["paris.1"], client_id="one") as one,
                connect(urls["paris.2"], client_id="two") as two,
                connect(urls["paris.3"], client_id="user") as user,
            ):
                await Registry(one).export(APPLICATION, "one", {}, lease=LONG_S)
                registry = Registry(two)
                await registry.export(APPLICATION, "two", {}, lease=LONG_S)
                await registry.export(APPLICATION, "brief", {}, lease=1.0)
                await until(Resolver(user), lambda found: names(found) == ["brief", "one", "two"])
                await asyncio.gather(*map(net.kill, net.brokers))
            await asyncio.gather(*map(net.restart, net.brokers))
            async with connect(urls["paris.3"], client_id="user") as user:
                resolver = Resolver(user)
                found = await until(resolver, lambda found: found.complete and {"one", "two"} <= set(names(found)))
                assert {offer.client for offer in found.offers} == {"one", "two"}
                await until(resolver, lambda found: names(found) == ["one", "two"])
                async with connect(urls["paris.2"], client_id="two") as two:
                    await two.withdraw("two")
                await until(resolver, lambda found: names(found) == ["one"])
                await net.kill("paris.1")
                lost = await until(resolver, lambda found: bool(found.missing) and bool(found.offers))
                assert names(lost) == ["one"], "by its deputy, and the lost broker is named"

    asyncio.run(asyncio.wait_for(main(), 100))
