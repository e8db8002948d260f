"""Events as long as any may be, where brokers put them into messages of their own: real brokers and sockets.

With what the message adds they were longer than any event, and the broker that was to send one ended.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.runtime.client_brokers import PATIENCE_S, Site, run, two_sites, until
from tests.runtime.raw_client import attach
from veena.client import Client, Subscription
from veena.core.messages.kinds import MAX_LONE_BYTES, hads, parts_of, places
from veena.core.wire.header import DEFAULT_MAX_FRAME, WRAPPING, link_frame
from veena.errors import InvalidEvent


async def publish_longest(client: Client) -> int:
    """One reliable event with the longest body that is taken; how long that is."""
    for size in range(DEFAULT_MAX_FRAME - 60, DEFAULT_MAX_FRAME - 400, -1):
        try:
            await client.publish(topic="large", body=bytes(size), reliable=True)
        except InvalidEvent:
            continue
        return size
    raise AssertionError("nothing of that size was taken")


async def has(subscription: Subscription, size: int) -> bool:
    event = await subscription.next(PATIENCE_S)
    return event is not None and len(event.body) == size


def test_the_past_holds_the_longest_event() -> None:
    """CLI-07: a client that may publish and subscribe ended every broker in whose log such an event was."""

    async def scenario() -> None:
        async with two_sites() as (one, other), one.client("writer") as writer, other.client("reader") as reader:
            size = await publish_longest(writer)
            past = await reader.subscribe(topic="large", since=datetime.now().astimezone() - timedelta(minutes=1))
            assert await has(past, size)
            assert one.driver.statistics().links and other.driver.statistics().links

    run(scenario())


def test_a_durable_subscription_takes_the_longest_event_along() -> None:
    """CLI-05: it was kept at the broker where the client had been."""

    async def scenario() -> None:
        async with two_sites() as (one, other):
            async with one.client("reader") as reader:
                await reader.subscribe(topic="large", durable="kept")
            async with one.client("writer") as writer:
                size = await publish_longest(writer)
            async with other.client("reader") as reader:
                assert await has(await reader.subscribe(topic="large", durable="kept"), size)

    run(scenario())


@pytest.mark.slow
def test_a_member_at_another_broker_gets_the_longest_event() -> None:
    """The home of a group deals events out in messages."""

    async def scenario() -> None:
        async with two_sites() as (one, other), one.client("a") as here, other.client("b") as there:
            first = await here.subscribe(topic="large", group="g")
            second = await there.subscribe(topic="large", group="g")
            async with one.client("writer") as writer:
                sizes = [await publish_longest(writer) for _ in range(2)]
            assert await has(first, sizes[0]) and await has(second, sizes[1])

    run(scenario())


def test_names_as_long_as_any_move_too() -> None:
    """A client whose id has more than 249 characters ended its broker by one durable subscription."""
    client_id, durable, topic = "\N{GRINNING FACE}" * 255, "\N{GRINNING FACE}" * 255, "\N{GRINNING FACE}" * 1024

    async def scenario() -> None:
        async with two_sites() as (one, other):
            async with one.client(client_id) as reader:
                await reader.subscribe(topic=topic, durable=durable)
            async with one.client("writer") as writer:
                await writer.publish(topic=topic, body=b"kept", reliable=True)
            async with other.client(client_id) as reader:
                kept = await reader.subscribe(topic=topic, durable=durable)
                assert await has(kept, 4)
                await kept.delete()
                await reader.subscribe(topic=topic, group="\N{GRINNING FACE}" * 100, durable=durable)
            assert [site.driver.broker.events.sessions.post.unsent for site in (one, other)] == [0, 0]

    run(scenario())


def test_a_durable_subscription_with_thousands_of_publishers_moves() -> None:
    """Where it was tells up to where it had each stream; one client may make as many streams as it likes."""

    async def scenario() -> None:
        async with two_sites() as (one, other):
            async with one.client("reader") as reader:
                await reader.subscribe(topic="public", durable="kept")
            await _publish_once(one)
            durable = one.driver.broker.events.sessions.durables.here["reader", "kept"]
            await until(lambda: durable.last)
            (stream,) = durable.last  # as many more as an hour of publishing under other names makes
            durable.last |= {(f"{'x' * 240}{at}", stream[1], stream[2]): (1, 1) for at in range(6000)}
            async with other.client("reader") as reader:
                kept = await reader.subscribe(topic="public", durable="kept")
                assert await kept.next(PATIENCE_S) is not None
                await until(lambda: not one.driver.broker.events.sessions.durables.here)

    run(scenario())


async def _publish_once(site: Site) -> None:
    raw = await attach(site.url, "publisher")
    raw.publish("public", b"first")
    await until(lambda: raw.accepted() == 1)
    raw.stream.close("done")


def test_lists_in_messages_are_cut_by_count_and_bytes() -> None:
    assert list(parts_of(range(5), lambda each: 1, 2)) == [[0, 1], [2, 3], [4]]
    assert list(parts_of(range(5), lambda each: 4, 9, 10)) == [[0, 1], [2, 3], [4]]
    assert list(parts_of([7], lambda each: 99, 9, 10)) == [[7]], "what is too long alone is not left out"
    known = {(f"{'é' * 250}{at}", 1, 0): (at, 0) for at in range(4000)}
    told = hads(known)
    assert places(told) == dict(list(known.items())[-len(told) :]) and 1000 < len(told) < 4000
    assert sum(len(each[0].encode()) for each in told) < MAX_LONE_BYTES


@pytest.mark.parametrize("max_frame", [4096, DEFAULT_MAX_FRAME, 4 * DEFAULT_MAX_FRAME])
def test_links_take_more_than_clients_may_publish(max_frame: int) -> None:
    assert link_frame(max_frame) >= max(max_frame, MAX_LONE_BYTES) + WRAPPING
