"""Reliable publishing without waiting for each event: at most a window of them is not accepted yet.

    async with client.pipeline(window=1_000) as pipeline:
        for price in prices:
            receipt = await pipeline.publish(topic="quotes", properties={"price": price})
    # here all of them are on the broker's disk

`publish` waits only while the window is full. Each receipt can be awaited for the id of its event; `flush`, and leaving
the block, wait for all and raise the first refusal that nobody has awaited. Events are accepted in the order in which
they were published, also over reconnections, and what a broker has accepted is never sent again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Unpack

from veena.client.arguments import Content
from veena.client.outbox import Outbox
from veena.client.receipt import Receipt
from veena.errors import LocalProtocolError, VeenaError
from veena.event import Event

#: Events of a pipeline that are not accepted yet, unless it says otherwise, and at most. A broker may allow fewer.
DEFAULT_WINDOW = 1_000
MAX_WINDOW = 1 << 16
#: Refused events that are remembered until `flush` tells of them; beyond that they are counted.
MAX_REFUSED = 1_000


class Pipeline:
    """One stream of reliable events; made by `Client.pipeline`."""

    def __init__(self, outbox: Outbox, window: int) -> None:
        if not 1 <= window <= MAX_WINDOW:
            raise LocalProtocolError(f"window {window}: expected 1 to {MAX_WINDOW} events that are not accepted yet")
        self._outbox = outbox
        self.window = window
        #: Events that are not accepted yet.
        self.under_way = 0
        self._refused: list[Receipt] = []
        self._refused_count = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def publish(self, **content: Unpack[Content]) -> Receipt:
        """Publish an event; `content` as for `Client.publish`. It returns when there is room in the window."""
        return await self.publish_event(Event(**content))

    async def publish_event(self, event: Event) -> Receipt:
        """The same for an event that is there already; it gets an id of its own."""
        while self.under_way >= self.window:
            await self._change()
        self.under_way += 1
        try:
            return await self._outbox.hand_over(event, True, self)
        except BaseException:
            self.under_way -= 1
            self._wake()
            raise

    async def flush(self) -> None:
        """Wait until all are accepted; raise the first refusal that nobody has awaited."""
        while self.under_way:
            await self._change()
        refused = [receipt for receipt in self._refused if receipt.owner is not None]
        count, self._refused, self._refused_count = self._refused_count, [], 0
        if refused:
            error = refused[0].error
            assert error is not None
            raise _told(error, count)

    async def __aenter__(self) -> Pipeline:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.flush()

    # --- the outbox's side ---

    def settled(self, receipt: Receipt) -> None:
        self.under_way -= 1
        if receipt.error is not None:
            self._refused_count += 1
            if len(self._refused) < MAX_REFUSED:
                self._refused.append(receipt)
        if self._waiters:
            self._wake()

    async def _change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


def _told(error: VeenaError, count: int) -> VeenaError:
    if count > 1:
        error.args = (f"{count} events of this pipeline were refused; the first: {error}",)
    return error
