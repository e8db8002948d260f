"""Looking over somebody's shoulder: a replica of another member's subscriptions (COL-03).

Who agrees to be followed shows its view, which is the constraints of what it gets. A follower subscribes to the same,
so brokers hand it what they hand the target: nothing is published again, nothing passes through the target, and what
the follower itself may not read it does not get.

    follower                                 target (has shown its view)
       | -- view, to = target, follow ------> |
       | <- answer: constraints, number ----- |
       |    subscribes to all of them         |
       | <- view, number + 1 ---------------- |  before it subscribes to something new
       |    subscribes, then answers -------> |  now it subscribes
       | <- view, number + 2 ---------------- |  after it has unsubscribed

So from the answer on a follower gets all that the target gets. Between the two halves of a change it may get a little
more: what matches the constraint that the target is just about to add, or has just dropped.

Conversations between two and answers to commands are no part of a view.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from veena.client.subscription import Subscription
from veena.core.wire.header import DECODE_ERRORS
from veena.errors import AccessDenied, InvalidEvent, Unanswered, VeenaError
from veena.event import Event, Value
from veena.services.member.feed import Feed
from veena.services.structured import RELIABILITY, StructuredEvent
from veena.services.wording import any_of, quoted

if TYPE_CHECKING:
    from veena.services.member.member import Member

#: The domain of events that are about no application.
COLLABORATORY = "collaboratory"
#: How long a change of the view waits for the followers, and how often one may be silent before it counts as gone.
FOLLOW_S = 2.0
MAX_SILENCES = 3
MAX_FOLLOWERS = 100
MAX_VIEW_BYTES = 256 << 10

logger = logging.getLogger("veena.services")
_constraints_in = msgspec.json.Decoder(tuple[str, ...])
_constraints_out = msgspec.json.Encoder()


@dataclass(slots=True, eq=False)
class _Followed:
    """Somebody whose view this member has."""

    feed: Feed
    #: Tells of changes of the view.
    changes: Subscription | None = None
    number: int = -1
    constraints: tuple[str, ...] = field(default=())


class Shadowing:
    """Whom one member follows, and who follows it."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._view: dict[str, str] = {}
        self._number = 0
        #: None while nobody may follow; empty for everybody.
        self._allowed: tuple[str, ...] | None = None
        self._asked: Subscription | None = None
        #: By client id: how often it did not answer.
        self._followers: dict[str, int] = {}
        self._followed: dict[str, _Followed] = {}

    # --- being followed ---

    @property
    def followers(self) -> tuple[str, ...]:
        return tuple(self._followers)

    @property
    def view(self) -> tuple[str, ...]:
        """The constraints of what the member gets."""
        return tuple(self._view.values())

    async def show(self, to: tuple[str, ...] | None = None) -> None:
        """Let these follow, or everybody."""
        self._allowed = () if to is None else tuple(to)
        if self._asked is None:
            me = quoted(self._member.client_id)
            wanted = f"$type_name == 'Collaboration' and $event_name == 'view' and to == {me}"
            self._asked = await self._member.client.subscribe(constraint=wanted, on_event=self._hear_follower)

    async def hide(self) -> None:
        """Let nobody follow any longer: those who do get nothing more from now on."""
        self._allowed = None
        asked, self._asked = self._asked, None
        if asked is not None:
            await asked.close()
        if self._followers:
            shown, self._view = self._view, {}
            await self._announce()
            self._view = shown
            self._followers.clear()

    async def add(self, purpose: str, constraint: str) -> None:
        """The member is about to want something more."""
        self._view[purpose] = constraint
        await self._announce()

    async def remove(self, purpose: str) -> None:
        """The member wants something no longer."""
        if self._view.pop(purpose, None) is not None:
            await self._announce()

    async def _announce(self) -> None:
        """Tell the followers, and wait until they have it."""
        self._number += 1
        if not self._followers:
            return
        told = self._shown({"number": self._number})
        event = told.to_event()
        try:
            answers = await self._member.client.request(
                answers=len(self._followers), timeout=FOLLOW_S,
                properties=event.properties, headers=event.headers, body=event.body,
            )  # fmt: skip
        except Unanswered:
            answers = []
        heard = {answer.event_id.publisher for answer in answers if answer.event_id is not None}
        for each in list(self._followers):
            self._followers[each] = 0 if each in heard else self._followers[each] + 1
            if self._followers[each] >= MAX_SILENCES:
                del self._followers[each]
        if len(heard) < len(self._followers):
            await self._member.publish(told)

    def _shown(self, fields: Mapping[str, Value]) -> StructuredEvent:
        remainder = _constraints_out.encode(self.view)
        told = {"by": self._member.client_id, **fields}
        return StructuredEvent(COLLABORATORY, "Collaboration", "view", told, remainder, {RELIABILITY: "reliable"})

    async def _hear_follower(self, event: Event) -> None:
        assert event.event_id is not None
        who = event.event_id.publisher
        if event.properties.get("wish") == "leave":
            self._followers.pop(who, None)
            return
        if self._allowed is None or (self._allowed and who not in self._allowed):
            reason = f"{self._member.client_id!r} does not show its view to {who!r}: ask for it"
            told = self._shown({"answer": "refused", "reason": reason, "number": self._number})
            told = StructuredEvent(told.domain, told.type, told.name, told.fields)
        elif len(self._followers) >= MAX_FOLLOWERS and who not in self._followers:
            told = StructuredEvent(
                COLLABORATORY, "Collaboration", "view",
                {"by": self._member.client_id, "answer": "refused", "reason": f"{MAX_FOLLOWERS} follow already"},
            )  # fmt: skip
        else:
            self._followers[who] = 0
            told = self._shown({"answer": "done", "number": self._number})
        answer = told.to_event()
        if "reply-to" in event.headers:
            await self._member.client.reply(
                event, body=answer.body, properties=answer.properties, headers=answer.headers
            )

    # --- following ---

    async def follow(self, other: str) -> Feed:
        """Get what the other one gets from now on; raise AccessDenied when it does not want that."""
        known = self._followed.get(other)
        if known is not None:
            return known.feed
        feed = Feed(f"shadow {other}", self._member.history(), on_close=self._left)
        followed = self._followed[other] = _Followed(feed)
        mine = f"$type_name == 'Collaboration' and $event_name == 'view' and by == {quoted(other)} and not exist to"
        try:
            followed.changes = await self._member.client.subscribe(constraint=mine, on_event=self._hear_change)
            view = await self._ask(other)
            await self._apply(followed, view)
        except BaseException:
            await feed.close()
            raise
        return feed

    async def _ask(self, other: str) -> Event:
        fields = {"by": self._member.client_id, "to": other, "wish": "follow"}
        event = StructuredEvent(COLLABORATORY, "Collaboration", "view", fields).to_event()
        try:
            view = await self._member.client.request(
                timeout=FOLLOW_S, properties=event.properties, headers=event.headers
            )
        except Unanswered:
            raise AccessDenied(f"{other!r} is not here, or shows its view to nobody: ask for it") from None
        if view.event_id is None or view.event_id.publisher != other or view.properties.get("answer") != "done":
            raise AccessDenied(str(view.properties.get("reason") or f"{other!r} does not show its view"))
        return view

    async def _hear_change(self, event: Event) -> None:
        assert event.event_id is not None
        followed = self._followed.get(event.event_id.publisher)
        if followed is None:
            return
        try:
            await self._apply(followed, event)
        except VeenaError as error:
            logger.warning("the view of %s cannot be followed: %s", event.event_id.publisher, error)
            return
        if "reply-to" in event.headers:
            await self._member.client.reply(event, properties={"number": followed.number})

    async def _apply(self, followed: _Followed, event: Event) -> None:
        """Want what the view says; it is there when this returns."""
        number = event.properties.get("number")
        if not isinstance(number, int) or number <= followed.number:
            return
        constraints = constraints_of(event)
        if constraints != followed.constraints:
            wanted = None
            if constraints:
                wanted = await self._member.client.subscribe(constraint=any_of(constraints))
            await followed.feed.replace(wanted)
        followed.number, followed.constraints = number, constraints

    async def _left(self, feed: Feed, for_good: bool) -> None:
        other = feed.purpose.removeprefix("shadow ")
        followed = self._followed.pop(other, None)
        if followed is not None and followed.changes is not None:
            await followed.changes.close()
            fields = {"by": self._member.client_id, "to": other, "wish": "leave"}
            await self._member.publish(StructuredEvent(COLLABORATORY, "Collaboration", "view", fields))

    async def close(self) -> None:
        for followed in list(self._followed.values()):
            await followed.feed.close()


def constraints_of(event: Event) -> tuple[str, ...]:
    """The constraints that a view shows; raise InvalidEvent when it shows none."""
    if len(event.body) > MAX_VIEW_BYTES:
        raise InvalidEvent(f"a view of {len(event.body)} bytes: at most {MAX_VIEW_BYTES}")
    try:
        return _constraints_in.decode(event.body)
    except DECODE_ERRORS as error:
        raise InvalidEvent(f"view {event.id}: expected a list of constraints ({error})") from None
