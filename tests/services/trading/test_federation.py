"""Traders linked in a ring: questions find what is far away, end in cycles, and survive a trader that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

import veena
import veena.testing
from veena.client import connect
from veena.errors import Unanswered
from veena.services.trading import federation
from veena.services.trading.federation import Federation
from veena.services.trading.messages import Question
from veena.services.trading.offers import Found, Offer
from veena.services.trading.registry import Registry
from veena.services.trading.resolver import Resolver
from veena.services.trading.service_types import APPLICATION
from veena.services.trading.trader import Trader

DOMAINS = ("a", "b", "c", "d", "e")
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def net() -> Iterator[veena.testing.Network]:
    with veena.testing.network(dict.fromkeys(DOMAINS, 1)) as network:
        yield network


def neighbours(domain: str) -> list[str]:
    at = DOMAINS.index(domain)
    return [DOMAINS[at - 1], DOMAINS[(at + 1) % len(DOMAINS)]]


def test_a_ring_of_five_answers_when_one_is_killed(net: veena.testing.Network) -> None:
    """TRD-08, FUT-14: one of the traders is a process of its own and is killed without a word."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            traders = {}
            for domain in "abcd":
                client = await stack.enter_async_context(connect(net.url(f"{domain}.1")))
                traders[domain] = await stack.enter_async_context(Trader(client, domain, links=neighbours(domain)))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "veena.cli", "services", "run", "--url", net.url("e.1"), "--domain", "e"),
                *("--link", "a", "--link", "d", "--json"),
                stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": ""},
            )  # fmt: skip
            try:
                assert process.stdout is not None
                ready = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
                assert ready["ready"] and ready["domain"] == "e"
                app = await stack.enter_async_context(connect(net.url("d.1")))
                user = await stack.enter_async_context(connect(net.url("a.1")))
                offer = await Registry(app).export(APPLICATION, "far", {"hops": 2})
                found = await asked_until(user, offer)
                assert found.forwarded and found.complete and found.answered_by == "a"
                resolver = Resolver(user)
                before = sum(trader.statistics().asked for trader in traders.values())
                nothing = await resolver.find("name == 'nowhere'")
                assert not nothing.offers and nothing.complete, "everybody was asked, and it ended"
                asked = sum(trader.statistics().asked for trader in traders.values()) - before
                assert len(traders) <= asked <= 2 * len(DOMAINS), "each trader is asked by at most its two neighbours"
            finally:
                process.send_signal(signal.SIGKILL)
                await process.wait()
            began = time.monotonic()
            found = await asked_until(user, offer)
            assert found.offers == (offer,), "the other way round the ring"
            nothing = await Resolver(user).find("name == 'nowhere'")
            assert any(each.startswith("trader e") for each in nothing.missing), "the dead one is named"
            assert time.monotonic() - began < PATIENCE_S

    asyncio.run(main())


async def asked_until(user: veena.Client, offer: Offer) -> Found:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = await Resolver(user).find(f"name == '{offer.name}'", timeout=4.0)
        if found.offers:
            return found
        assert time.monotonic() < end, found


def test_hops_are_limited(net: veena.testing.Network) -> None:
    """TRD-08: a chain a-b-c of links is as far as the question may go."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            for domain, links in (("a", ["b"]), ("b", ["c"]), ("c", ["a"])):
                client = await stack.enter_async_context(connect(net.url(f"{domain}.1")))
                await stack.enter_async_context(Trader(client, domain, links=links))
            app = await stack.enter_async_context(connect(net.url("c.1")))
            user = await stack.enter_async_context(connect(net.url("a.1")))
            offer = await Registry(app).export(APPLICATION, "third", {})
            await asked_until(user, offer)
            resolver = Resolver(user)
            assert not (await resolver.find("name == 'third'", hops=0)).offers
            assert not (await resolver.find("name == 'third'", hops=1)).offers
            assert (await resolver.find("name == 'third'", hops=2)).offers == (offer,)

    asyncio.run(main())


def test_a_link_that_hangs_is_skipped_within_the_deadline_and_then_left_alone(net: veena.testing.Network) -> None:
    """TRD-08: it is named; the next question does not wait for it."""

    async def main() -> None:
        async with connect(net.url("a.1")) as client, connect(net.url("b.1")) as hanging:
            await hanging.subscribe(constraint="$event_name == 'resolve' and $domain_name == 'mute'")
            links = Federation(client, ("a", "0"), ["mute", "a", "0"])
            assert links.links == ("mute",), "nobody is linked to itself"
            began = time.monotonic()
            found = await links.find(Question("one", APPLICATION, "name == 'x'", deadline_ms=1000))
            assert not found.offers and found.missing == ("trader mute (no answer in time)",)
            took = time.monotonic() - began
            assert took < 1.0 + federation.SETTLE_S, "the asker had given a second"
            found = await links.find(Question("two", APPLICATION, "name == 'x'", deadline_ms=1000))
            assert found.missing == ("trader mute (it did not answer lately)",)
            assert links.statistics().link_asks == 1 and links.statistics().link_failures == 1
            with pytest.raises(Unanswered):
                await client.request(headers={"domain_name": "nobody"}, timeout=0.2)

    asyncio.run(main())


def test_two_instances_of_every_trader_in_a_ring_answer_as_one(net: veena.testing.Network) -> None:
    """TRD-08: the same question comes by both instances and both ways round; nothing found is lost for that."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            traders = []
            for domain in DOMAINS:
                for _ in range(2):
                    client = await stack.enter_async_context(connect(net.url(f"{domain}.1")))
                    trader = Trader(client, domain, links=neighbours(domain))
                    traders.append(await stack.enter_async_context(trader))
            user = await stack.enter_async_context(connect(net.url("a.1")))
            far = [await stack.enter_async_context(connect(net.url(f"{domain}.1"))) for domain in "cd"]
            for number, app in enumerate(far):
                await Registry(app).export(APPLICATION, f"far{number}", {})
            resolver = Resolver(user)
            for number in (0, 1, 0, 1):
                end = time.monotonic() + PATIENCE_S
                while not (found := await resolver.find(f"name == 'far{number}'", timeout=4.0)).offers:
                    assert time.monotonic() < end, found
                assert found.complete and found.forwarded
            forwarded = sum(trader.statistics().forwarded for trader in traders)
            nothing = await resolver.find("name == 'nowhere'", timeout=4.0)
            assert not nothing.offers and nothing.complete
            passed_on = sum(trader.statistics().forwarded for trader in traders) - forwarded
            assert passed_on <= len(traders), "each instance passes a question on once at most"

    asyncio.run(main())
