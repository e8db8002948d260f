"""Registry, trader and resolver over real brokers: offers appear and vanish with their applications, and are found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

import veena
import veena.testing
from veena.client import Client, connect
from veena.errors import InvalidConstraint, InvalidEvent, Refused
from veena.services.domain.subscriptions import SubscriptionService
from veena.services.structured import StructuredEvent
from veena.services.trading.federation import Central
from veena.services.trading.messages import Question
from veena.services.trading.registry import Registry, network_of
from veena.services.trading.resolver import Found, Resolver
from veena.services.trading.service_types import APPLICATION, TRADER, PropertyType, ServiceType, ServiceTypes
from veena.services.trading.trader import Trader

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def net() -> Iterator[veena.testing.Network]:
    """Two domains: with two levels a domain is a cluster."""
    with veena.testing.network({"paris": 2, "rome": 1}) as network:
        yield network


async def until(ask: Callable[[], Awaitable[Found]], is_right: Callable[[Found], bool]) -> Found:
    """Ask until the answer is right; what was changed a moment ago takes a second to be known everywhere."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = await ask()
        if is_right(found):
            return found
        assert time.monotonic() < end, found


def names(found: Found) -> list[str]:
    return [offer.name for offer in found.offers]


def test_offers_appear_and_vanish_with_their_applications(net: veena.testing.Network) -> None:
    """DIS-02, DIS-11, TRD-05: exported, found, withdrawn; and gone when the application leaves without a word."""

    async def main() -> None:
        async with connect(net.url("paris.2")) as user:
            resolver = Resolver(user)
            async with connect(net.url("paris.1"), client_id="app-1") as app:
                registry = Registry(app)
                offer = await registry.export(APPLICATION, "oil", {"category": "senior", "load": 0.5})
                assert offer.properties["network"] == network_of(app) and registry.names == ("oil",)
                found = await until(lambda: resolver.find("name == 'oil'"), lambda found: bool(found.offers))
                assert found.offers == (offer,) and found.complete and not found.forwarded
                await registry.export(APPLICATION, "oil", {"category": "junior"})
                await until(
                    lambda: resolver.find("name == 'oil' and category == 'junior'"), lambda found: bool(found.offers)
                )
                assert not (await resolver.find("name == 'oil' and category == 'senior'")).offers, "it was replaced"
                await registry.withdraw("oil")
                await until(lambda: resolver.find("name == 'oil'"), lambda found: not found.offers)
                await registry.export(APPLICATION, "oil", {})
                await until(lambda: resolver.find("name == 'oil'"), lambda found: bool(found.offers))
            await until(lambda: resolver.find("name == 'oil'"), lambda found: not found.offers)

    asyncio.run(main())


def test_an_offer_is_refused_by_the_name_of_its_property(net: veena.testing.Network) -> None:
    """TRD-02, TRD-03: nothing is advertised then."""

    async def main() -> None:
        async with connect(net.url("paris.1")) as app:
            registry = Registry(app)
            with pytest.raises(InvalidEvent, match="'category'"):
                await registry.export(APPLICATION, "oil", {"category": 3})
            with pytest.raises(InvalidEvent, match="one name"):
                await registry.export(APPLICATION, "oil", {"name": "gas"})
            with pytest.raises(InvalidEvent, match="network 99"):
                await registry.export(APPLICATION, "oil", {"network": 99})
            with pytest.raises(InvalidEvent, match="service type 'Nothing'"):
                await registry.export("Nothing", "oil", {})
            with pytest.raises(InvalidEvent, match="none of that name"):
                await registry.withdraw("oil")
            assert not (await app.query(constraint="name == 'oil'")).rows

    asyncio.run(main())


def test_queries_choose_type_domain_and_properties(net: veena.testing.Network) -> None:
    """TRD-04, TRD-06, DIS-13: by type of information and domain of the producer, with a usable reference."""

    async def main() -> None:
        types = ServiceTypes.standard()
        types.add(ServiceType("CFD", (PropertyType("cells", ("int",)),), APPLICATION))
        async with connect(net.url("paris.1")) as one, connect(net.url("rome.1")) as other:
            await Registry(one, types).export("CFD", "flow", {"cells": 100, "category": "junior"})
            await Registry(one).export(APPLICATION, "plain", {"category": "senior"})
            await Registry(other, types).export("CFD", "wave", {"cells": 7})
            resolver = Resolver(other, types)
            paris = network_of(one)
            found = await until(
                lambda: resolver.find(service_type="CFD", domain=paris), lambda found: bool(found.offers)
            )
            assert names(found) == ["flow"] and found.offers[0].reference == f"{paris}/flow"
            found = await until(
                lambda: Central(other).find(Question("q", APPLICATION, "")), lambda found: len(found.offers) == 3
            )
            assert sorted(names(found)) == ["flow", "plain", "wave"], "a base finds what is below it"
            here = Resolver(one)
            found = await here.find("category == 'junior'", properties=["cells", "missing"])
            assert [offer.properties for offer in found.offers] == [{"cells": 100}]
            assert names(await here.find(limit=1)) == ["flow"]

    asyncio.run(main())


def test_the_trader_answers_first_from_its_own_domain(net: veena.testing.Network) -> None:
    """TRD-07, TRD-08: a local hit is not passed on, a miss is; and no trader is asked for events."""

    async def main() -> None:
        async with (
            connect(net.url("paris.1")) as app,
            connect(net.url("paris.2")) as paris,
            connect(net.url("rome.1")) as rome,
            connect(net.url("rome.1")) as user,
            connect(net.url("paris.2")) as near,
            Trader(paris, "paris", links=["rome"]) as at_paris,
            Trader(rome, "rome", links=["paris"]) as at_rome,
        ):
            offer = await Registry(app).export(APPLICATION, "heat", {})
            resolver = Resolver(near)
            await until(lambda: resolver.find("name == 'heat'"), lambda found: bool(found.offers))
            with pytest.raises(Refused, match="choose another name"):
                await Trader(user, "paris").start()
            before = at_paris.statistics()
            found = await resolver.find("name == 'heat'")
            assert names(found) == ["heat"] and found.answered_by == "paris" and not found.forwarded
            after = at_paris.statistics()
            assert (after.asked, after.answered_locally) == (before.asked + 1, before.answered_locally + 1)
            assert after.forwarded == before.forwarded, "a local hit is not passed on"

            found = await Resolver(user).find("name == 'heat'")
            assert names(found) == ["heat"] and found.answered_by == "rome" and found.forwarded
            assert at_rome.statistics().forwarded == 1 and at_paris.statistics().asked == after.asked + 1
            found = await Resolver(user).find("name == 'nothing'")
            assert not found.offers and found.complete, "paris and rome are linked in a circle, and it ends"

            with pytest.raises(InvalidConstraint) as caught:
                await Resolver(user).find("name == ")
            assert caught.value.position == 8

            asked = at_rome.statistics().asked, at_paris.statistics().asked
            wanted = await SubscriptionService(user).subscribe(offer, "step > 2")
            for step in range(6):
                await app.publish_event(StructuredEvent("heat", "Monitoring", "state", {"step": step}).to_event())
            assert [(await wanted.next(PATIENCE_S)).properties["step"] for _ in range(3)] == [3, 4, 5]
            assert asked == (at_rome.statistics().asked, at_paris.statistics().asked)

    asyncio.run(main())


def test_a_trader_says_what_is_wrong_with_a_question(net: veena.testing.Network) -> None:
    """TRD-02: also for a type that only the trader knows; and what is no question is refused."""

    async def main() -> None:
        types = ServiceTypes.standard()
        types.add(ServiceType("Grid", (PropertyType("shape", ("complex",)),), APPLICATION))
        async with connect(net.url("paris.1")) as client, Trader(client, "paris", types=types) as trader:
            with pytest.raises(InvalidConstraint) as caught:
                await Resolver(client).find("exist shape", service_type="Grid")
            assert caught.value.position == 6
            await ask_nonsense(client, trader.network)
            assert trader.statistics().refused == 2
            with pytest.raises(InvalidEvent, match="limit"):
                await Resolver(client).find(limit=0)

    asyncio.run(main())


async def ask_nonsense(client: Client, network: int) -> None:
    from veena.services.trading.messages import content_of, read_reply

    content = content_of(str(network), "resolve", {}, b"\xc1")
    answer = await client.request(timeout=PATIENCE_S, **content)
    with pytest.raises(Refused, match="a question of"):
        read_reply(answer, Question("q", APPLICATION, ""))


def test_two_domains_that_take_a_name_at_once_do_not_both_have_it(net: veena.testing.Network) -> None:
    """TRD-06: each has looked before the other was known. The one that is refused leaves nothing behind."""

    async def main() -> None:
        named = Question("n", TRADER, "domain == 'both'")
        async with connect(net.url("paris.2")) as paris, connect(net.url("rome.1")) as rome:
            traders = Trader(paris, "both"), Trader(rome, "both")
            ends = await asyncio.gather(*(trader.start() for trader in traders), return_exceptions=True)
            refused = [end for end in ends if isinstance(end, Refused)]
            assert refused and all("choose another name" in str(end) for end in refused), ends
            assert len(refused) + ends.count(None) == 2, ends
            for trader, end in zip(traders, ends, strict=True):
                if end is None:
                    await trader.stop()
            for client in (paris, rome):
                await until(lambda: Central(client).find(named), lambda found: not found.offers)  # noqa: B023

    asyncio.run(main())


def test_of_several_instances_any_may_be_lost(net: veena.testing.Network) -> None:
    """TRD-08: each answers, the first answer is taken; when one is gone, nobody waits for it."""

    async def main() -> None:
        async with (
            connect(net.url("paris.1")) as app,
            connect(net.url("paris.2")) as user,
            connect(net.url("paris.1")) as one,
            connect(net.url("paris.2")) as other,
            Trader(one, "paris") as first,
        ):
            await Registry(app).export(APPLICATION, "twin", {})
            second = Trader(other, "paris")
            await second.start()
            resolver = Resolver(user)
            await until(lambda: resolver.find("name == 'twin'"), lambda found: bool(found.offers))
            for _ in range(6):
                assert names(await resolver.find("name == 'twin'")) == ["twin"]
            assert resolver.statistics().by_trader == resolver.statistics().asked
            assert first.statistics().asked and second.statistics().asked
            await other.close()
            found = await resolver.find("name == 'twin'")
            assert names(found) == ["twin"] and found.answered_by == "paris"
            await second.stop()

    asyncio.run(main())


def test_the_central_registry_is_behind_the_same_interface(net: veena.testing.Network) -> None:
    """AMB-33, DIS-11: one registry for all: what is registered in one domain is visible centrally, without links."""

    async def main() -> None:
        async with (
            connect(net.url("rome.1")) as app,
            connect(net.url("paris.1")) as client,
            Trader(client, "paris", back_end="central") as trader,
        ):
            registry = Registry(app)
            await registry.export(APPLICATION, "central", {})
            resolver = Resolver(client)
            found = await until(lambda: resolver.find("name == 'central'"), lambda found: bool(found.offers))
            assert found.answered_by == "paris" and not found.forwarded
            await registry.withdraw("central")
            await until(lambda: resolver.find("name == 'central'"), lambda found: not found.offers)
            assert trader.statistics().link_asks == 0

    asyncio.run(main())


def test_an_application_that_moves_to_another_domain_says_so(net: veena.testing.Network) -> None:
    """TRD-03: the network number of an offer is that of the domain where its application is."""

    async def main() -> None:
        async with connect(net.url("paris.1"), client_id="mover") as app, connect(net.url("rome.1")) as user:
            registry = Registry(app)
            await registry.export(APPLICATION, "nomad", {"load": 1})
            await app.move(net.url("rome.1"))
            rome = network_of(user)
            resolver = Resolver(user)
            found = await until(
                lambda: resolver.find(f"network == {rome} and name == 'nomad'"),
                lambda found: bool(found.offers) and registry.statistics().moved == 1,
            )
            assert found.offers[0].reference == f"{rome}/nomad"

    asyncio.run(main())
