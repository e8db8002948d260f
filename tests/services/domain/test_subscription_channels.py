"""The channel as consumers see it: applications kept apart, filters joined, one copy, and users who change domains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

import veena
import veena.testing
from veena.client import Client, connect
from veena.errors import InvalidConstraint, LocalProtocolError, TimedOut
from veena.services.domain.aggregation import AggregationService
from veena.services.domain.subscriptions import SubscriptionService
from veena.services.structured import StructuredEvent
from veena.services.trading.registry import Registry
from veena.services.trading.service_types import APPLICATION

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def net() -> Iterator[veena.testing.Network]:
    with veena.testing.network({"paris": 1, "rome": 1}) as network:
        yield network


async def state(client: Client, application: str, step: int, reliable: bool = True) -> None:
    event = StructuredEvent(application, "Monitoring", "state", {"step": step}).to_event()
    await client.publish_event(event, reliable=reliable)


async def until(is_right: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_right():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_two_applications_on_one_channel_are_kept_apart(net: veena.testing.Network) -> None:
    """NTF-01, NTF-03: by their names; events come as they are produced, without being asked for."""

    async def main() -> None:
        async with connect(net.url("paris.1")) as both, connect(net.url("paris.1")) as user:
            registry, service = Registry(both), SubscriptionService(user)
            offers = [await registry.export(APPLICATION, name, {}) for name in ("oil", "gas")]
            got: list[tuple[str, int]] = []
            for offer in offers:

                def heard(event: veena.Event, name: str = offer.name) -> None:
                    got.append((name, int(str(event.properties["step"]))))

                await service.subscribe(offer, "step < 10", callback=heard)
            for step in range(3):
                await state(both, "oil", step)
                await state(both, "gas", step + 5)
            await until(lambda: len(got) == 6)
            assert sorted(got) == [("gas", 5), ("gas", 6), ("gas", 7), ("oil", 0), ("oil", 1), ("oil", 2)]

    asyncio.run(main())


def test_two_filters_of_a_consumer_are_joined_and_an_event_comes_once(net: veena.testing.Network) -> None:
    """NTF-02, NTF-04: an event that satisfies both is one copy."""

    async def main() -> None:
        async with connect(net.url("paris.1")) as app, connect(net.url("rome.1")) as user:
            offer = await Registry(app).export(APPLICATION, "oil", {})
            wanted = await SubscriptionService(user).subscribe(
                offer, ["step > 2", "step < 4", "$type_name == 'Steering'"]
            )
            for step in (1, 3, 5):
                await state(app, "oil", step)
            assert [(await wanted.next(PATIENCE_S)).properties["step"] for _ in range(3)] == [1, 3, 5]
            with pytest.raises(TimedOut):
                await wanted.next(0.1)
            with pytest.raises(InvalidConstraint) as caught:
                await SubscriptionService(user).subscribe(offer, ["step > 2", "step >"])
            assert caught.value.position == 6

    asyncio.run(main())


def test_who_changes_domains_goes_on_watching(net: veena.testing.Network) -> None:
    """DIS-14, DIS-15: local in the first domain, remote and aggregated in the second, and back."""

    async def main() -> None:
        async with (
            connect(net.url("paris.1")) as app,
            connect(net.url("paris.1")) as user,
            connect(net.url("rome.1")) as client,
            AggregationService(client) as aggregation,
        ):
            offer = await Registry(app).export(APPLICATION, "oil", {})
            service = SubscriptionService(user)
            wanted = await service.subscribe(offer, "step >= 0")
            assert wanted.scope == 1 and service.statistics().local == 1
            await user.move(net.url("rome.1"))
            assert await wanted.wait_active(PATIENCE_S) and wanted.scope == 2
            await until(lambda: service.statistics().aggregated == 1)
            assert [each.members for each in aggregation.statistics().aggregates] == [1]
            await state(app, "oil", 7)
            assert (await wanted.next(PATIENCE_S)).properties["step"] == 7
            await user.move(net.url("paris.1"))
            assert await wanted.wait_active(PATIENCE_S)
            await state(app, "oil", 8)
            assert (await wanted.next(PATIENCE_S)).properties["step"] == 8
            await until(lambda: service.statistics().aggregated == 0)
            await service.unsubscribe(wanted)

    asyncio.run(main())


def test_what_is_durable_keeps_its_scope(net: veena.testing.Network) -> None:
    """DIS-06: it reaches the whole system from the start, and what was missed comes where its user reappears."""

    async def main() -> None:
        async with connect(net.url("paris.1")) as app:
            offer = await Registry(app).export(APPLICATION, "oil", {})
            async with connect(net.url("paris.1"), client_id="traveller") as user:
                wanted = await SubscriptionService(user).subscribe(offer, "step >= 0", durable="oil")
                assert wanted.scope == 2
                with pytest.raises(LocalProtocolError, match="keeps its scope"):
                    wanted.rescope(1)
            for step in range(5):
                await state(app, "oil", step)
            async with connect(net.url("rome.1"), client_id="traveller") as user:
                wanted = await SubscriptionService(user).subscribe(offer, "step >= 0", durable="oil")
                assert [(await wanted.next(PATIENCE_S)).properties["step"] for _ in range(5)] == [0, 1, 2, 3, 4]
                await wanted.delete()

    asyncio.run(main())
