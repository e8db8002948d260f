"""Aggregation over real brokers: one subscription leaves the domain, one copy of an event enters it (FIX-30)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

import veena
import veena.testing
from veena.client import Client, Subscription, connect
from veena.errors import InvalidConstraint, InvalidEvent, Refused, VeenaError
from veena.services.domain.aggregation import MAX_OF_CLIENT, AggregationService
from veena.services.domain.aggregation_messages import Interest, tell
from veena.services.domain.subscriptions import SubscriptionService
from veena.services.structured import StructuredEvent
from veena.services.trading.offers import Offer
from veena.services.trading.registry import Registry, network_of
from veena.services.trading.service_types import APPLICATION

PATIENCE_S = 20.0
#: Large against what a link says beside events.
BODY = b"x" * 4000
EVENTS = 40


@pytest.fixture(scope="module")
def net() -> Iterator[veena.testing.Network]:
    """FIX-30: domain L with the users, domain R with the application."""
    with veena.testing.network({"L": 1, "R": 1}) as network:
        yield network


def told(net: veena.testing.Network) -> int:
    """How many wants domain L tells outside: what stands at the remote side."""
    profiles = net.statistics("L.1").broker.profiles
    return profiles.told[profiles.speaks_for.index(1)]


def copies(net: veena.testing.Network) -> int:
    """Copies of events that came into L over its link."""
    return net.statistics("L.1").broker.router.copies_in


def link_bytes(net: veena.testing.Network) -> int:
    """Bytes that R has sent over its link to L."""
    return sum(end.bytes_out for end in net.statistics("R.1").transports)


async def until(is_right: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_right():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


class Stage:
    """Three users at L, an application at R."""

    def __init__(self, app: Client, users: list[Client], offer: Offer) -> None:
        self.app, self.users, self.offer = app, users, offer
        self.services = [SubscriptionService(user) for user in users]
        self.wanted: list[Subscription] = []

    async def subscribe(self, *constraints: str) -> None:
        for service, constraint in zip(self.services, constraints, strict=True):
            self.wanted.append(await service.subscribe(self.offer, constraint))

    async def publish(self, count: int = EVENTS, **fields: float) -> None:
        """So many events, spread over the numbers `slot` 0, 1, 2."""
        for number in range(count):
            event = StructuredEvent("heat", "Monitoring", "field", {"slot": number % 3, **fields}, BODY).to_event()
            await self.app.publish_event(event, reliable=True)

    async def received(self, *counts: int) -> None:
        for subscription, count in zip(self.wanted, counts, strict=True):
            for _ in range(count):
                await subscription.next(PATIENCE_S)
            assert subscription.poll() is None


@asynccontextmanager
async def stage(net: veena.testing.Network) -> AsyncIterator[Stage]:
    async with (
        connect(net.url("R.1")) as app,
        connect(net.url("L.1")) as u1,
        connect(net.url("L.1")) as u2,
        connect(net.url("L.1")) as u3,
    ):
        found = Stage(app, [u1, u2, u3], await Registry(app).export(APPLICATION, "heat", {}))
        await until(lambda: told(net) == 0)  # what others wanted before
        yield found
        for service in found.services:
            await service.close()


class Meter:
    """The long way from R to users who attach there themselves: it counts what comes over it."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("veena://").partition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._flows: set[asyncio.Task[None]] = set()
        self.bytes = 0

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        return f"veena://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._flows):
            task.cancel()
        await asyncio.gather(*self._flows, return_exceptions=True)

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        for work in (self._flow(reader, back, False), self._flow(there, writer, True)):
            task = asyncio.get_running_loop().create_task(work)
            self._flows.add(task)
            task.add_done_callback(self._flows.discard)

    async def _flow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counts: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                self.bytes += len(data) if counts else 0
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


def test_one_consumer_at_the_remote_side_and_a_third_of_the_bytes(net: veena.testing.Network) -> None:
    """AGG-01, AGG-02, AGG-03, DIS-15, FIX-30: three users with overlapping wishes; as three sessions at the remote
    broker they get three copies of each event over the long way, with the aggregate one."""

    async def main() -> None:
        async with stage(net) as found, connect(net.url("L.1")) as client, AggregationService(client) as service:
            await found.subscribe("slot >= 0", "slot < 3", "exist slot")
            assert told(net) == 1, "of four subscriptions one is told outside"
            assert [each.statistics().aggregated for each in found.services] == [1, 1, 1]
            (aggregate,) = service.statistics().aggregates
            assert aggregate.members == 3 and len(aggregate.texts) == 1
            crossed, sent = copies(net), link_bytes(net)
            await found.publish()
            await found.received(EVENTS, EVENTS, EVENTS)
            assert copies(net) - crossed == EVENTS, "one copy an event"
            aggregated = link_bytes(net) - sent

            meter = Meter(net.url("R.1"))
            long_way = await meter.open()
            remote = [await connect(long_way).open() for _ in range(3)]
            wanted = [await each.subscribe(constraint="$domain_name == 'heat'", scope="cluster") for each in remote]
            served, came = net.statistics("R.1").broker.ends.delivered, meter.bytes
            await found.publish()
            for each in wanted:
                for _ in range(EVENTS):
                    assert (await each.next(PATIENCE_S)).body == BODY
            assert net.statistics("R.1").broker.ends.delivered - served == 3 * EVENTS, "three copies an event"
            alone = meter.bytes - came
            assert abs(aggregated / alone - 1 / 3) < 0.05 / 3, (aggregated, alone)
            for session in remote:
                await session.close()
            await meter.close()

    asyncio.run(main())


def test_disjoint_wishes_cost_the_same_copies(net: veena.testing.Network) -> None:
    """AGG-04: each event is for one user, so one copy crosses with or without an aggregate."""

    async def main() -> None:
        async with stage(net) as found, connect(net.url("L.1")) as client, AggregationService(client):
            await found.subscribe("slot == 0", "slot == 1", "slot == 2")
            assert told(net) == 1
            crossed = copies(net)
            await found.publish(30)
            await found.received(10, 10, 10)
            assert copies(net) - crossed == 30 == sum((10, 10, 10)), "as many as three sessions there would get"

    asyncio.run(main())


def test_a_consumer_more_is_one_change_outside_or_none(net: veena.testing.Network) -> None:
    """AGG-06, DIS-22: one modify message, none where the aggregate covers it; and it shrinks when a consumer goes."""

    async def main() -> None:
        async with stage(net) as found, connect(net.url("L.1")) as client, AggregationService(client) as service:
            first, second, third = found.services
            one = await first.subscribe(found.offer, "slot < 2")
            changed = service.statistics().changed
            two = await second.subscribe(found.offer, "slot == 1")
            assert service.statistics().changed == changed and service.statistics().covered == 1
            three = await third.subscribe(found.offer, "slot == 2 and heat > 5")
            assert service.statistics().changed == changed + 1
            crossed = copies(net)
            await found.publish(6, heat=1)
            found.wanted = [one, two, three]
            await found.received(4, 2, 0)
            assert copies(net) - crossed == 4, "none that no one wants"
            await first.unsubscribe(one)
            (aggregate,) = service.statistics().aggregates
            assert aggregate.members == 2 and "slot < 2" not in aggregate.texts[0]
            found.wanted = [two, three]
            end, crossed = time.monotonic() + PATIENCE_S, -1
            while copies(net) - crossed != 4:  # the other side hears of it within moments
                assert time.monotonic() < end
                crossed = copies(net)
                await found.publish(6, heat=9)
                await found.received(2, 2)
            with pytest.raises(InvalidEvent, match="not made by this service"):
                await first.unsubscribe(one)

    asyncio.run(main())


def test_nothing_is_lost_while_the_aggregate_changes(net: veena.testing.Network) -> None:
    """AGG-06, AGG-07: make before break; while others come and go, one user gets every event once and in order."""

    async def main() -> None:
        async with stage(net) as found, connect(net.url("L.1")) as client, AggregationService(client) as service:
            wanted = await found.services[0].subscribe(found.offer, "number >= 0")
            over = asyncio.Event()
            sent = 0

            async def publish() -> None:
                nonlocal sent
                while not over.is_set():
                    event = StructuredEvent("heat", "Monitoring", "statistics", {"number": sent}).to_event()
                    await found.app.publish_event(event, reliable=True)
                    sent += 1

            publishing = asyncio.get_running_loop().create_task(publish())
            for wish in ("slot > 1", "", "number > 5", "mean < 3"):
                other = await found.services[1].subscribe(found.offer, wish)
                await found.services[1].unsubscribe(other)
            over.set()
            await publishing
            assert service.statistics().changed >= 3 and service.statistics().removed == 4
            assert [(await wanted.next(PATIENCE_S)).properties["number"] for _ in range(sent)] == list(range(sent))
            assert wanted.poll() is None

    asyncio.run(main())


def test_several_applications_of_a_domain_are_one_subscription(net: veena.testing.Network) -> None:
    """AGG-01, AGG-07, DIS-15: one for the remote domain, and still nothing crosses that no one wants; while wishes for
    other applications come and go, nothing is lost and nothing comes twice."""

    async def main() -> None:
        async with stage(net) as found, connect(net.url("L.1")) as client, AggregationService(client) as service:
            offers = [
                found.offer,
                *[await Registry(found.app).export(APPLICATION, name, {}) for name in ("oil", "gas")],
            ]
            first, second = found.services[:2]
            kept = [await first.subscribe(offer, f"slot == {at}") for at, offer in enumerate(offers[:2])]
            more = await second.subscribe(offers[1], "slot >= 1")
            (aggregate,) = service.statistics().aggregates
            assert told(net) == 1 == len(aggregate.texts)
            assert (aggregate.applications, aggregate.members, aggregate.told) == (("heat", "oil"), 3, 2)

            async def publish() -> None:
                for number in range(9):
                    for name in ("heat", "oil", "gas"):
                        fields = {"slot": number % 3}
                        event = StructuredEvent(name, "Monitoring", "statistics", fields).to_event()
                        await found.app.publish_event(event, reliable=True)

            async def received(subscription: Subscription, slots: list[int]) -> None:
                assert [(await subscription.next(PATIENCE_S)).properties["slot"] for _ in slots] == slots
                assert subscription.poll() is None

            crossed = copies(net)
            await publish()
            await received(kept[0], [0, 0, 0])
            await received(kept[1], [1, 1, 1])
            await received(more, [1, 2] * 3)
            assert copies(net) - crossed == 3 + 6, "none of gas, and of the others what is wanted"

            publishing = asyncio.get_running_loop().create_task(publish())
            changed = service.statistics().changed
            await asyncio.gather(*(second.subscribe(offer, f"slot > {at}") for at, offer in enumerate(offers)))
            await publishing
            assert service.statistics().changed > changed and len(service.statistics().aggregates) == 1
            await received(kept[0], [0, 0, 0])
            await received(kept[1], [1, 1, 1])
            await received(more, [1, 2] * 3)

    asyncio.run(main())


def test_a_local_application_is_subscribed_to_inside_the_domain(net: veena.testing.Network) -> None:
    """DIS-14, TRD-03: the network number decides; nothing is told outside."""

    async def main() -> None:
        async with connect(net.url("L.1")) as app, connect(net.url("L.1")) as user:
            offer = await Registry(app).export(APPLICATION, "near", {})
            service = SubscriptionService(user)
            await until(lambda: told(net) == 0)
            got: list[int] = []
            wanted = await service.subscribe(
                offer, "step > 1", callback=lambda event: got.append(int(str(event.properties["step"])))
            )
            assert service.is_local(offer) and told(net) == 0
            assert (service.statistics().local, service.statistics().remote) == (1, 0)
            for step in range(4):
                await app.publish_event(StructuredEvent("near", "Monitoring", "state", {"step": step}).to_event())
            await until(lambda: got == [2, 3])
            await service.unsubscribe(wanted)

    asyncio.run(main())


def test_without_the_service_the_same_events_come(net: veena.testing.Network) -> None:
    """AGG-02: when the service dies the members' own constraints climb by themselves, and nothing is lost."""

    async def main() -> None:
        async with stage(net) as found, connect(net.url("L.1")) as client:
            service = AggregationService(client)
            await service.start()
            await found.subscribe("slot == 0", "slot == 1", "slot == 2")
            assert told(net) == 1
            await service.stop()
            await found.publish(9)
            await found.received(3, 3, 3)
            await until(lambda: told(net) == 3)
            await found.publish(9)
            await found.received(3, 3, 3)

    asyncio.run(main())


def test_interests_end_with_their_leases_and_come_back_to_a_new_service(net: veena.testing.Network) -> None:
    """AGG-07: a member that is gone without a word is forgotten; one that lives tells its interest again."""

    async def main() -> None:
        async with connect(net.url("L.1")) as client, connect(net.url("R.1")) as app, connect(net.url("L.1")) as user:
            offer = await Registry(app).export(APPLICATION, "heat", {})
            members = SubscriptionService(user, lease=1.5)
            async with AggregationService(client, lease=1.5) as service:
                await tell(user, network_of(user), "subscribe", Interest(f"{user.client_id}#9", 1, "heat", "slot > 7"))
                wanted = await members.subscribe(offer, "slot < 3")
                assert service.statistics().aggregates[0].members == 2
                await until(lambda: service.statistics().expired == 1)
                await until(lambda: service.statistics().interests >= 4)
                assert [each.members for each in service.statistics().aggregates] == [1]
            async with AggregationService(client, lease=5.0) as service:
                await until(lambda: [each.members for each in service.statistics().aggregates] == [1])
                assert wanted.is_active
            await members.close()

    asyncio.run(main())


def test_interests_that_no_text_holds_together_come_and_end(net: veena.testing.Network) -> None:
    """AGG-07: members with much arithmetic are taken and forgotten as others are."""

    async def main() -> None:
        async with connect(net.url("L.1")) as client, AggregationService(client, lease=0.3) as service:
            wishes = [f"slot{' + heat' * 30} > {number}" for number in range(4)]
            await asyncio.gather(
                *(service.join(Interest(f"ann#{at}", 1, "heat", wish)) for at, wish in enumerate(wishes))
            )
            await until(lambda: not service.statistics().aggregates)
            assert (service.statistics().changed, service.statistics().expired) == (4, 4)

    asyncio.run(main())


def test_what_is_wrong_is_said(net: veena.testing.Network) -> None:
    async def main() -> None:
        async with stage(net) as found, connect(net.url("L.1")) as client, AggregationService(client) as service:
            with pytest.raises(InvalidConstraint) as caught:
                await found.services[0].subscribe(found.offer, "slot = 3")
            assert caught.value.position == 5
            user = found.users[0]
            own = f"{user.client_id}#1"
            for interest, reason in (
                (Interest(own, 1, "heat", "slot = 3"), "position 5"),
                (Interest(own, 1, "", ""), "application"),
                (Interest(own, -1, "heat", ""), "network -1"),
                (Interest("somebody#1", 1, "heat", ""), "speaks for itself alone"),
            ):
                with pytest.raises(Refused, match=reason):
                    await tell(user, service.network, "subscribe", interest)
            assert service.statistics().refused == 4 and not service.statistics().aggregates

    asyncio.run(main())


def test_nobody_fills_the_service_alone(net: veena.testing.Network) -> None:
    """A client has so many interests, in all applications together; what it ends can be asked for anew."""

    async def main() -> None:
        async with connect(net.url("L.1")) as client, AggregationService(client) as service:
            for number in range(MAX_OF_CLIENT):
                await service.join(Interest(f"eve#{number}", 1, f"app-{number % 3}"))
            await service.join(Interest("eve#0", 1, "app-0", "slot > 7"))  # it may change its mind
            more = Interest("eve#more", 1, "app-0")
            with pytest.raises(VeenaError, match=f"'eve' has {MAX_OF_CLIENT} interests here"):
                await service.join(more)
            await service.join(Interest("ann#1", 1, "app-0"))
            await service.leave(Interest("eve#1", 1, "app-1"))
            await service.join(more)

    asyncio.run(main())
