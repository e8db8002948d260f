"""The services of a domain together, and the commands that run and ask them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import veena
import veena.testing
from tests.cli.command import veena as command
from veena import blocking
from veena.client import connect
from veena.errors import Refused
from veena.services.domain.access_service import AccessService
from veena.services.domain.aggregation import AggregationService
from veena.services.domain.services import DomainServices
from veena.services.domain.subscriptions import SubscriptionService
from veena.services.trading.registry import Registry
from veena.services.trading.resolver import Resolver
from veena.services.trading.service_types import APPLICATION

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def net() -> Iterator[veena.testing.Network]:
    with veena.testing.network({"paris": 1, "rome": 1}) as network:
        yield network


def test_a_domain_has_five_services(net: veena.testing.Network) -> None:
    """DIS-10, DIS-08, AMB-31: and each is of use to who is in the domain."""

    async def main() -> None:
        async with (
            connect(net.url("paris.1")) as client,
            connect(net.url("rome.1")) as far,
            connect(net.url("rome.1")) as user,
            DomainServices(client, "paris", links=["rome"]) as paris,
            DomainServices(far, "rome", links=["paris"]) as rome,
        ):
            services = (paris.registry, paris.resolver, paris.subscriptions, paris.aggregation, paris.access)
            kinds = (Registry, Resolver, SubscriptionService, AggregationService, AccessService)
            assert [type(each) for each in services] == list(kinds)
            assert paris.network != rome.network and (paris.name, rome.name) == ("paris", "rome")
            offer = await paris.registry.export(APPLICATION, "heat", {})
            end = time.monotonic() + PATIENCE_S
            while not (found := await Resolver(user).find("name == 'heat'")).offers:
                assert time.monotonic() < end
            assert found.offers == (offer,) and found.answered_by == "rome" and found.forwarded
            service = SubscriptionService(user)
            await service.subscribe(offer, "step > 3")
            told = rome.statistics()
            assert told.aggregation.aggregates[0].members == 1 and told.trader.forwarded >= 1
            await service.close()

    asyncio.run(main())


def test_services_that_end_up_in_another_domain_stop(net: veena.testing.Network) -> None:
    """DIS-08: their number and their aggregates are those of the domain that they began in."""

    async def main() -> None:
        async with connect(net.url("paris.1")) as client, DomainServices(client, "paris") as services:
            await client.move(net.url("rome.1"))
            with pytest.raises(Refused, match="brokers of one domain only"):
                await asyncio.wait_for(services.wait_moved(), PATIENCE_S)

    asyncio.run(main())


def test_the_commands_run_the_services_and_ask_them(net: veena.testing.Network) -> None:
    """TRD-06, DIS-13: `veena services run`, `veena trader query` and `veena trader offers`."""
    arguments = ("services", "run", "--url", net.url("paris.1"), "--domain", "paris", "--link", "rome", "--json")
    process = subprocess.Popen(
        (sys.executable, "-m", "veena.cli", *arguments), stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"] is True
        with blocking.connect(net.url("paris.1"), client_id="app") as app:
            app.advertise("plain", properties={"name": "no offer"})
            for name, load in (("oil", 1), ("gas", 2)):
                app.advertise(
                    name,
                    properties={
                        "$service_type": "Application", "$Application": True, "$reference": f"0/{name}",
                        "name": name, "network": 0, "load": load,
                    },
                )  # fmt: skip
            here = ("--url", net.url("paris.1"))
            done = command("trader", "query", "load > 1", "--properties", "load", "--json", *here)
            lines = [json.loads(line) for line in done.out.splitlines()]
            assert done.code == 0, done
            assert [(line["name"], line["properties"], line["reference"]) for line in lines[:-1]] == [
                ("gas", {"load": 2}, "0/gas")
            ]
            assert lines[-1]["answered_by"] == "paris" and lines[-1]["complete"]
            done = command("trader", "query", "name == 'oil'", *here)
            assert done.code == 0 and "oil" in done.out and "trader paris" in done.out
            done = command("trader", "offers", "--json", *here)
            assert [json.loads(line)["name"] for line in done.out.splitlines()[:-1]] == ["gas", "oil"]
            for place in (net.url("paris.1"), "veena://127.0.0.1:1"):  # nobody is at the second one
                done = command("trader", "query", "load > ", "--url", place)
                assert done.code != 0 and "position 7" in done.err
            done = command("trader", "query", "name == 'none'", "--json", *here)
            missing = json.loads(done.out.splitlines()[-1])["missing"]
            assert done.code == 1 and missing == ["trader rome (there is none)"]
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    last = json.loads(out.splitlines()[-1])
    assert last["trader"]["asked"] >= 3 and last["name"] == "paris" and process.returncode == 0
