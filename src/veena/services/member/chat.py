"""Talking: rooms, notes on pictures, who is there, and conversations between two (COL-04).

A room is a name; an application's name is the room of those who work on it. Messages and annotations are reliable, so
that who is away and keeps the room gets them later. Presence is said again and again and forgotten by itself: whoever
vanished without a word is gone from the list a little later.

A conversation between two is a room of its own, into which only what these two publish is let. Each of the two
subscribes to what the other one says there; nobody else gets it. It is not a secret, though: whoever may read
Collaboration events could ask for that room too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from veena.client.subscription import Subscription
from veena.errors import InvalidEvent, NotConnected, VeenaError
from veena.event import Event, Value
from veena.services.member.feed import Feed
from veena.services.structured import RELIABILITY, StructuredEvent, check_name
from veena.services.wording import quoted

if TYPE_CHECKING:
    from veena.services.member.member import Member

#: How often a member says that it is in its rooms, and after what silence it is not there any more.
PRESENCE_S = 10.0
ABSENT_S = 3 * PRESENCE_S
#: People in one room that are remembered.
MAX_PRESENT = 1000
#: What the feed of a room is for.
ROOM = "room "
#: A client id has no such character at its beginning, so no room is called like this by chance.
PAIR = "&"

logger = logging.getLogger("veena.services")


class Talk:
    """What one member says and hears."""

    def __init__(self, member: Member) -> None:
        self._member = member
        #: By room: who was heard of, and when.
        self._heard: dict[str, dict[str, float]] = {}
        #: By room: its events, and who tells that it is there.
        self._entered: dict[str, tuple[Feed, Subscription]] = {}
        self._telling: asyncio.Task[None] | None = None

    # --- rooms ---

    async def say(self, room: str, text: str) -> str:
        return await self._publish("message", room, {"text": text})

    async def annotate(self, application: str, text: str, x: float, y: float, step: int | None = None) -> str:
        place: dict[str, Value] = {"text": text, "x": x, "y": y, **({} if step is None else {"step": step})}
        return await self._publish("annotation", application, place)

    async def enter(self, room: str) -> Feed:
        """A room's events from now on, or from when the member was here last if it keeps them."""
        if room in self._entered:
            return self._entered[room][0]
        wanted = f"$type_name == 'Collaboration' and room == {quoted(room)}"
        feed = await self._member.feed(f"{ROOM}{room}", wanted)
        self._heard[room] = {}
        presence = await self._member.client.subscribe(
            constraint=f"{wanted} and $event_name == 'presence'", on_event=self._hear_presence
        )
        self._entered[room] = (feed, presence)
        await self._say_here(room)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._keep_telling())
        return feed

    def present(self, room: str) -> list[str]:
        """Who is there, oneself too, in the order of coming."""
        heard, now = self._heard.get(room, {}), time.monotonic()
        for each in [each for each, at in heard.items() if now - at > ABSENT_S]:
            del heard[each]
        return list(heard)

    async def left(self, purpose: str) -> None:
        """A feed was closed; if it was a room's, the others are told."""
        room = purpose.removeprefix(ROOM)
        _, presence = self._entered.pop(room, (None, None)) if purpose.startswith(ROOM) else (None, None)
        if presence is not None:
            await presence.close()
            self._heard.pop(room, None)
            if self._member.client.is_connected:
                await self._publish("presence", room, {"state": "away"})

    async def close(self) -> None:
        """Leave all rooms."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
            self._telling = None
        for feed, _ in list(self._entered.values()):
            await feed.close()

    # --- two ---

    async def tell(self, other: str, text: str) -> str:
        return await self._publish("message", pair(self._member.client_id, other), {"text": text})

    async def conversation(self, other: str) -> Feed:
        """What the other one says to this member; it is no part of the view that others may follow."""
        room = pair(self._member.client_id, other)
        wanted = f"$type_name == 'Collaboration' and room == {quoted(room)} and by == {quoted(other)}"
        return await self._member.feed(f"conversation {other}", wanted, is_shown=False, by=(other,))

    # --- inside ---

    async def _publish(self, name: str, room: str, fields: dict[str, Value]) -> str:
        check_name("room", room)
        qos = {} if name == "presence" else {RELIABILITY: "reliable"}
        told = {"room": room, "by": self._member.client_id, **fields}
        return await self._member.publish(StructuredEvent(room, "Collaboration", name, told, qos=qos))

    async def _say_here(self, room: str) -> None:
        await self._publish("presence", room, {"state": "here"})

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(PRESENCE_S)
            for room in list(self._entered):
                try:
                    await self._say_here(room)
                except NotConnected:
                    return
                except VeenaError as error:
                    logger.info("presence in %s: %s", room, error)

    async def _hear_presence(self, event: Event) -> None:
        """Who comes is remembered and greeted, so that a newcomer learns at once who is there."""
        assert event.event_id is not None
        who, room = event.event_id.publisher, event.properties.get("room")
        heard = self._heard.get(room) if isinstance(room, str) else None
        if heard is None or not isinstance(room, str):
            return
        if event.properties.get("state") == "away":
            heard.pop(who, None)
            return
        is_new = who not in heard
        heard[who] = time.monotonic()
        if len(heard) > MAX_PRESENT:
            del heard[next(iter(heard))]
        if is_new and who != self._member.client_id and room in self._entered:
            await self._say_here(room)


def pair(one: str, other: str) -> str:
    """The room of two, whoever of them names it."""
    if one == other:
        raise InvalidEvent(f"a conversation of {one!r} with itself: name somebody else")
    first, second = sorted((one, other))
    return f"{PAIR}{len(first)}:{first}:{second}"
