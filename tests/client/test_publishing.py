"""Publishing many events: in order, whoever waits (UID-07)."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.client_brokers import PATIENCE_S, Site, bodies, run
from veena.errors import Overloaded
from veena.event import Event, EventId


def test_many_events_at_once_are_accepted_in_order() -> None:
    """UID-07: a batch is one write; its ids ascend and its events come in order."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="t")
            events = [Event(topic="t", body=b"%d" % number) for number in range(500)]
            ids = await alice.publish_many(events, reliable=True)
            assert ids == sorted(ids, key=EventId.parse) and len(set(ids)) == 500
            assert await bodies(wanted, 500) == [str(number) for number in range(500)]
            more = await alice.publish_many(events)
            assert [event.id for event in [await wanted.next(PATIENCE_S) for _ in more]] == more

    run(scenario())


def test_who_waits_to_publish_is_not_overtaken() -> None:
    """UID-07: tasks that publish reliable events at the same time are served in turn, and each batch stays together."""

    async def scenario() -> None:
        async with Site() as site, site.client("alice") as alice:
            wanted = await alice.subscribe(topic="t")
            outbox = alice._session.outbox
            outbox.pause("as a broker says it that is full")
            batches = [[Event(topic="t", body=b"%d" % (10 * batch + at)) for at in range(3)] for batch in range(3)]
            early = [asyncio.create_task(alice.publish_many(batch, reliable=True)) for batch in batches[:2]]
            await asyncio.sleep(0)
            with pytest.raises(Overloaded, match="others wait to publish before it"):
                await alice.publish(topic="t", reliable=True, block=False)
            late = asyncio.create_task(alice.publish_many(batches[2], reliable=True))
            outbox.resume()  # the late one has its turn of the loop before those that are woken
            await asyncio.gather(*early, late)
            assert await bodies(wanted, 9) == [bytes(event.body).decode() for batch in batches for event in batch]

    run(scenario())
