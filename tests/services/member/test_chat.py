"""Rooms, notes, presence, and conversations between two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

import veena
from veena import testing
from veena.collab import Member
from veena.errors import InvalidEvent
from veena.event import Value
from veena.services.member.chat import pair
from veena.services.member.feed import Feed

PATIENCE_S = 20.0


@pytest.fixture(name="url", scope="module")
def _url() -> Iterator[str]:
    with testing.broker() as url:
        yield url


@asynccontextmanager
async def member(url: str, name: str) -> AsyncIterator[Member]:
    async with veena.connect(url, client_id=name) as client, Member(client) as joined:
        yield joined


async def texts(feed: Feed, count: int) -> list[Value]:
    """The next texts; who comes and goes is passed over."""
    found: list[Value] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            event = await feed.next()
            if event.headers["event_name"] != "presence":
                found.append(event.properties["text"])
    return found


def test_what_is_said_in_a_room_comes_to_all_in_it_once_and_in_order(url: str) -> None:
    """NTF-03, DIS-16: everybody produces and consumes; a note has its place in the picture."""

    async def main() -> None:
        async with member(url, "ann") as ann, member(url, "ben") as ben, member(url, "eve") as eve:
            rooms = [await ann.room("heat"), await ben.room("heat")]
            other = await eve.room("oil")
            for number in range(3):
                await ann.say("heat", str(number))
            await ben.annotate("heat", "hot here", 0.25, 0.75, 12)
            for room in rooms:
                assert await texts(room, 4) == ["0", "1", "2", "hot here"]
            note = ben.history().consumed[-1]
            assert (note.name, note.fields["x"], note.fields["y"], note.fields["step"]) == (
                "annotation",
                0.25,
                0.75,
                12,
            )
            await eve.say("oil", "alone")
            assert await texts(other, 1) == ["alone"]
            assert await ann.room("heat") is rooms[0]

    asyncio.run(main())


def test_nobody_says_anything_in_anothers_name(url: str) -> None:
    """Who speaks is who the brokers let in; what an event says of itself (`by`) has to be that."""

    async def main() -> None:
        async with member(url, "ann") as ann, member(url, "eve") as eve:
            room = await ann.room("heat")
            header = {"domain_name": "heat", "type_name": "Collaboration", "event_name": "message"}
            said: dict[str, Value] = {"room": "heat", "by": "ann", "text": "forged"}
            await eve.client.publish(headers=header, properties=said, reliable=True)
            await eve.say("heat", "honest")
            assert await texts(room, 1) == ["honest"]

    asyncio.run(main())


def test_two_talk_and_a_third_does_not_hear_it(url: str) -> None:
    """COL-04: each of the two subscribes to what the other one says; what a third says there is not let in."""

    async def main() -> None:
        async with member(url, "ann") as ann, member(url, "ben") as ben, member(url, "eve") as eve:
            to_ann, to_ben = await ann.conversation("ben"), await ben.conversation("ann")
            rooms = [await eve.room("heat"), await eve.conversation("ann"), await eve.conversation("ben")]
            await ann.tell("ben", "psst")
            await ben.tell("ann", "what?")
            assert (await texts(to_ben, 1), await texts(to_ann, 1)) == (["psst"], ["what?"])
            # A third that knows the name of their room, and says it is ann, is not taken for ann.
            forged = {"room": pair("ann", "ben"), "by": "ann", "text": "I am ann"}
            header = {"domain_name": pair("ann", "ben"), "type_name": "Collaboration", "event_name": "message"}
            await eve.client.publish(properties=forged, headers=header, reliable=True)
            await ann.tell("ben", "the last word")
            assert await texts(to_ben, 1) == ["the last word"]
            assert [event.properties for room in rooms for event in room.take() if "text" in event.properties] == []
            with pytest.raises(InvalidEvent, match="with itself"):
                await ann.tell("ann", "hm")

    asyncio.run(main())


def test_names_of_two_never_meet_in_one_room() -> None:
    assert pair("a", "b") == pair("b", "a")
    assert len({pair("a", "b:c"), pair("a:b", "c"), pair("1:a", "b"), pair("a", "1:b")}) == 4


def test_who_is_in_a_room_is_known_to_all_in_it(url: str) -> None:
    async def main() -> None:
        async with member(url, "ann") as ann, member(url, "ben") as ben:
            await ann.room("lab")
            await ben.room("lab")
            async with asyncio.timeout(PATIENCE_S):
                while not set(ann.present("lab")) == set(ben.present("lab")) == {"ann", "ben"}:
                    await asyncio.sleep(0.01)
                await (await ben.room("lab")).close()
                while ann.present("lab") != ["ann"]:
                    await asyncio.sleep(0.01)
                assert ben.present("lab") == []
                await ben.room("lab")  # and comes again
                while set(ann.present("lab")) != {"ann", "ben"}:
                    await asyncio.sleep(0.01)
                await ben.close()
                while ann.present("lab") != ["ann"]:
                    await asyncio.sleep(0.01)
            assert ann.present("elsewhere") == []

    asyncio.run(main())
