"""A reliable event on its way to its broker's disk: what `Pipeline.publish` returns, and how the outbox knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Protocol

from veena.errors import VeenaError
from veena.event import Event, EventId


class Owner(Protocol):
    """Somebody who counts the events that are not accepted yet."""

    def settled(self, receipt: Receipt) -> None: ...


class Receipt:
    """One reliable event. Await it for its id; it raises what kept the event from being accepted.

    A future is made only for who waits: most receipts are never awaited one by one.
    """

    __slots__ = ("_future", "error", "event", "event_id", "is_done", "number", "original", "owner", "size", "waits")

    def __init__(self, event: Event, size: int, waits: bool, number: int, owner: Owner | None = None) -> None:
        self.event = event
        self.size = size
        #: Whether it is sent again when its broker is busy.
        self.waits = waits
        #: Events are sent in the order of these.
        self.number = number
        self.owner = owner
        #: The id that it had first, if it was sent before.
        self.original: tuple[int, int, int] | None = None
        #: Its id on the present connection; None before it is sent there.
        self.event_id: EventId | None = None
        self.is_done = False
        self.error: VeenaError | None = None
        self._future: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "under way" if not self.is_done else "accepted" if self.error is None else f"refused: {self.error}"
        return f"<Receipt {self.id or self.number}: {state}>"

    @property
    def id(self) -> str | None:
        """Its id once it is accepted; None before, and when it was not."""
        return str(self.event_id) if self.is_done and self.error is None else None

    def __await__(self) -> Generator[object, None, str]:
        yield from self.wait().__await__()
        if self.error is not None:
            self.owner = None  # who awaits it knows
            raise self.error
        return str(self.event_id)

    async def wait(self) -> None:
        """Until it is accepted or refused."""
        if not self.is_done:
            if self._future is None:
                self._future = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._future)  # others may wait for it as well

    def settle(self, error: VeenaError | None) -> None:
        self.is_done, self.error = True, error
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        if self.owner is not None:
            self.owner.settled(self)
