"""Members who are away: what was published meanwhile is delivered where they appear again, in another domain too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

import veena
from veena import testing
from veena.collab import Member
from veena.services.application.application import Application
from veena.services.member.feed import Feed

PATIENCE_S = 20.0


@pytest.fixture(name="net", scope="module")
def _net() -> Iterator[testing.Network]:
    with testing.network({"L.a": 1, "R.a": 1}) as net:
        yield net


@asynccontextmanager
async def member(net: testing.Network, name: str, broker: str, keep: bool = True) -> AsyncIterator[Member]:
    async with veena.connect(net.url(broker), client_id=name) as client, Member(client, keep=keep) as joined:
        yield joined


async def texts(feed: Feed, last: str) -> list[object]:
    found: list[object] = []
    async with asyncio.timeout(PATIENCE_S):
        while last not in found:
            event = await feed.next()
            if event.headers["event_name"] == "message":
                found.append(event.properties["text"])
    return found


def test_five_messages_wait_for_who_comes_back_in_another_domain(net: testing.Network) -> None:
    """DIS-06: leaves X, 5 events, reconnects at Y: gets the 5 at Y, once and in order, and then what is new."""

    async def main() -> None:
        async with member(net, "ann", "L.a.1") as ann:
            async with member(net, "ben", "L.a.1") as ben:
                await ben.room("lab")
                await ann.say("lab", "here")
            for number in range(5):
                await ann.say("lab", f"missed {number}")
            async with member(net, "ben", "R.a.1") as ben:
                room = await ben.room("lab")
                await ann.say("lab", "again")
                assert await texts(room, "again") == ["here", *(f"missed {number}" for number in range(5)), "again"]
                await ann.say("lab", "more")
                assert await texts(room, "more") == ["more"]
            async with member(net, "ben", "L.a.1") as ben:
                await ann.say("lab", "home")
                assert await texts(await ben.room("lab"), "home") == ["home"]

    asyncio.run(main())


def test_what_an_application_did_meanwhile_waits_too(net: testing.Network) -> None:
    """DIS-06, COL-01: states and records are kept for the absent; statistics and fields are of the moment."""

    async def main() -> None:
        async with (
            veena.connect(net.url("R.a.1"), client_id="app") as client,
            Application(client, "oil") as app,
            member(net, "ann", "L.a.1") as ann,
        ):
            async with member(net, "ben", "L.a.1") as ben:
                await ben.monitor("oil")
            watched = await ann.monitor("oil", "$event_name == 'statistics'")
            await ann.take("oil")
            await ann.release("oil")
            app.publish_statistics(mean=1.0)
            assert (await watched.next(PATIENCE_S)).properties["mean"] == 1.0
            async with member(net, "ben", "R.a.1") as ben:
                feed = await ben.monitor("oil")
                seen = []
                async with asyncio.timeout(PATIENCE_S):
                    while "release" not in seen:
                        event = await feed.next()
                        seen.append(event.properties.get("action"))
                assert [each for each in seen if each] == ["take", "release"]
                assert [entry.name for entry in ben.history().consumed].count("statistics") == 0

    asyncio.run(main())


def test_who_does_not_keep_what_it_wants_begins_anew(net: testing.Network) -> None:
    async def main() -> None:
        async with member(net, "ann", "L.a.1") as ann:
            async with member(net, "guest", "L.a.1", keep=False) as guest:
                await guest.room("lab")
            await ann.say("lab", "missed")
            async with member(net, "guest", "L.a.1", keep=False) as guest:
                room = await guest.room("lab")
                await ann.say("lab", "new")
                assert await texts(room, "new") == ["new"]

    asyncio.run(main())


def test_what_is_deleted_is_kept_no_longer(net: testing.Network) -> None:
    async def main() -> None:
        async with member(net, "ann", "L.a.1") as ann:
            async with member(net, "cy", "L.a.1") as cy:
                room, long = (
                    await cy.room("lab"),
                    await cy.monitor("oil", " or ".join(f"step == {n}" for n in range(99))),
                )
                assert long.subscription is not None and len(long.subscription.durable) < 200
                await room.delete()
                await long.delete()
            await ann.say("lab", "missed")
            async with member(net, "cy", "L.a.1") as cy:
                room = await cy.room("lab")
                await ann.say("lab", "new")
                assert await texts(room, "new") == ["new"]

    asyncio.run(main())
