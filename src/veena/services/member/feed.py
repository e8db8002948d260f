"""What a member gets: events to wait for or to take, noted in its history as they are taken.

It looks like a subscription. What is wanted may change meanwhile (a shadow follows its target): the new subscription
stands before the old one goes, and an event that came for both comes once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from veena.client.subscription import Subscription
from veena.errors import NotConnected, TimedOut
from veena.event import Event, EventId
from veena.services.member.history import History
from veena.services.structured import TYPE, fixed_header

#: Ids that are remembered so that an event that came for two subscriptions comes once: far more than come while a
#: subscription is replaced.
MAX_REMEMBERED = 4096


class Feed:
    """Events of one purpose, such as a room or an application's monitoring."""

    def __init__(
        self,
        purpose: str,
        history: History,
        accepts: Callable[[Event], bool] | None = None,
        on_close: Callable[[Feed, bool], Awaitable[None]] | None = None,
    ) -> None:
        #: What it is for: `monitor heat`, `room heat`.
        self.purpose = purpose
        self._history = history
        self._accepts = accepts or is_honest
        self._on_close = on_close
        #: The one that brings events now.
        self.subscription: Subscription | None = None
        #: It, behind older ones, which are closed and hold what came for them.
        self._subscriptions: list[Subscription] = []
        self._seen: dict[EventId, None] = {}
        self._changed = asyncio.Event()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Feed {self.purpose!r}, {self.waiting} waiting>"

    @property
    def waiting(self) -> int:
        """Events that are there already."""
        return sum(each.waiting for each in self._subscriptions)

    @property
    def dropped(self) -> int:
        """Events that never came because they were not taken in time."""
        return sum(each.dropped for each in self._subscriptions)

    @property
    def is_active(self) -> bool:
        """Whether every broker that matters knows of it."""
        return self.subscription is not None and self.subscription.is_active

    async def replace(self, subscription: Subscription | None) -> None:
        """From now on these events; what came for the former ones can still be taken."""
        former, self.subscription = self.subscription, subscription
        if subscription is not None:
            self._subscriptions.append(subscription)
        if former is not None:
            await former.close()
        self._changed.set()

    # --- taking ---

    async def next(self, timeout: float | None = None) -> Event:
        """The next event; raise TimedOut when none comes within so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            event = self.poll()
            if event is not None:
                return event
            if self._is_closed:
                raise NotConnected(f"{self!r} is closed")
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            current = self.subscription
            self._changed.clear()
            if current is None:
                await self._wait_changed(left)
                continue
            try:
                event = await current.next(left)
            except NotConnected:
                if current is self.subscription and not self._is_closed:
                    raise
                continue
            if self._admit(event):
                return event

    def poll(self) -> Event | None:
        """An event that is there already, or None."""
        for each in list(self._subscriptions):
            while (event := each.poll()) is not None:
                if self._admit(event):
                    return event
            if each is not self.subscription:
                self._subscriptions.remove(each)
        return None

    def take(self, at_most: int = 1 << 20) -> list[Event]:
        """Everything that is there already."""
        taken: list[Event] = []
        while len(taken) < at_most and (event := self.poll()) is not None:
            taken.append(event)
        return taken

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        try:
            return await self.next()
        except NotConnected:
            if self._is_closed:
                raise StopAsyncIteration from None
            raise

    # --- the end ---

    async def close(self) -> None:
        """Want it no longer for now; what is kept for an absent member goes on being kept."""
        await self._end(for_good=False)

    async def delete(self) -> None:
        """Want it no longer at all."""
        await self._end(for_good=True)

    async def _end(self, for_good: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        current = self.subscription
        if current is not None:
            await (current.delete() if for_good else current.close())
        if self._on_close is not None:
            await self._on_close(self, for_good)
        self._changed.set()

    # --- inside ---

    async def _wait_changed(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            raise TimedOut(f"no event for {self!r} within {timeout} seconds") from None

    def _admit(self, event: Event) -> bool:
        """Whether it is new and meant for here; then it counts as consumed."""
        assert event.event_id is not None
        if event.event_id in self._seen or not self._accepts(event):
            return False
        self._seen[event.event_id] = None
        if len(self._seen) > MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._history.note_consumed(event)
        return True


def is_honest(event: Event) -> bool:
    """Whether somebody who says something says it in its own name (`by`); who did is what the brokers say."""
    assert event.event_id is not None
    return fixed_header(event, TYPE) != "Collaboration" or event.properties.get("by") == event.event_id.publisher
