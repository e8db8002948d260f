"""Looking over somebody's shoulder: exactly what the target gets, also when it changes what it wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

import veena
from veena import testing
from veena.collab import Member
from veena.errors import AccessDenied, InvalidEvent, TimedOut
from veena.event import Event
from veena.services.member.feed import Feed
from veena.services.member.shadow import constraints_of
from veena.services.structured import StructuredEvent

PATIENCE_S = 20.0


@pytest.fixture(name="url", scope="module")
def _url() -> Iterator[str]:
    with testing.broker() as url:
        yield url


@asynccontextmanager
async def member(url: str, name: str) -> AsyncIterator[Member]:
    async with veena.connect(url, client_id=name) as client, Member(client) as joined:
        yield joined


class Source:
    """Applications that say numbers."""

    def __init__(self, client: veena.Client) -> None:
        self._client = client
        self._number = 0

    async def say(self, *applications: str) -> int:
        """One statistic of each; the number of the last one."""
        for name in applications:
            self._number += 1
            event = StructuredEvent(name, "Monitoring", "statistics", {"step": self._number}).to_event()
            await self._client.publish_event(event, reliable=True)
        return self._number


async def steps(feed: Feed, last: int) -> list[int]:
    """The numbers that come until this one."""
    found: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while last not in found:
            event = await feed.next()
            if event.headers["type_name"] == "Monitoring":
                found.append(int(str(event.properties["step"])))
    return found


def test_a_shadow_gets_what_its_target_gets_across_changes_of_what_it_wants(url: str) -> None:
    """COL-03: from then on exactly what the target receives."""

    async def main() -> None:
        async with (
            member(url, "ann") as ann,
            member(url, "ben") as ben,
            veena.connect(url, client_id="source") as client,
        ):
            source = Source(client)
            oil = await ann.monitor("oil")
            await ann.show_view()
            shadow = await ben.shadow("ann")
            assert await ben.shadow("ann") is shadow and ann.shadowing.followers == ("ben",)
            last = await source.say("gas", "oil", "sea", "oil")
            assert await steps(shadow, last) == await steps(oil, last) == [2, 4]
            gas = await ann.monitor("gas")
            last = await source.say("oil", "sea", "gas", "oil")
            got = sorted(await steps(oil, last) + await steps(gas, last - 1))
            assert await steps(shadow, last) == got == [5, 7, 8]
            await oil.close()
            last = await source.say("oil", "gas", "sea", "gas")
            assert await steps(shadow, last) == await steps(gas, last) == [10, 12]
            # An event that two of the target's subscriptions want comes to the shadow once.
            some = await ann.monitor("gas", "step > 0")
            last = await source.say("gas", "gas")
            assert await steps(gas, last) == await steps(some, last) == await steps(shadow, last) == [13, 14]
            await gas.close()
            await some.close()
            await source.say("gas", "oil")
            with pytest.raises(TimedOut):
                await shadow.next(0.2)

    asyncio.run(main())


def test_nobody_is_followed_who_does_not_want_it(url: str) -> None:
    async def main() -> None:
        async with member(url, "ann") as ann, member(url, "ben") as ben, member(url, "eve") as eve:
            feed = await ann.monitor("oil")
            with pytest.raises(AccessDenied, match="'ann' is not here, or shows its view to nobody"):
                await ben.shadow("ann")
            await ann.show_view(("ben",))
            shadow = await ben.shadow("ann")
            with pytest.raises(AccessDenied, match="does not show its view to 'eve'"):
                await eve.shadow("ann")
            assert ann.shadowing.followers == ("ben",)
            async with veena.connect(url, client_id="source") as client:
                source = Source(client)
                last = await source.say("oil")
                assert await steps(shadow, last) == await steps(feed, last)
                await ann.hide_view()
                last = await source.say("oil")
                assert await steps(feed, last) == [last]
                with pytest.raises(TimedOut):
                    await shadow.next(0.2)
            with pytest.raises(AccessDenied):
                await eve.shadow("ann")

    asyncio.run(main())


def test_conversations_of_two_are_no_part_of_the_view(url: str) -> None:
    """COL-04: what is for two is not shown to a third by way of its shadow."""

    async def main() -> None:
        async with member(url, "ann") as ann, member(url, "ben") as ben, member(url, "eve") as eve:
            await ann.show_view()
            room, talk = await ann.room("lab"), await ann.conversation("ben")
            shadow = await eve.shadow("ann")
            await ben.tell("ann", "psst")
            await ben.say("lab", "hello")
            texts = []
            async with asyncio.timeout(PATIENCE_S):
                while "hello" not in texts:
                    texts.append((await shadow.next()).properties.get("text"))
                assert (await talk.next()).properties["text"] == "psst"
            assert "psst" not in texts and room.waiting
            await shadow.close()
            async with asyncio.timeout(PATIENCE_S):
                while ann.shadowing.followers:
                    await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"", b"{", b'{"a": 1}', b"[1]", b"\xff", b'["' + b"x" * (256 << 10) + b'"]'])
def test_a_view_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidEvent):
        constraints_of(Event(body=body))
