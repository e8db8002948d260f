"""Events of one subscription that a program took together.

Apart from `subscription`, which can be compiled: a compiled class cannot be a list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from veena.event import Event


class Batch(list[Event]):
    """Events of one subscription that were taken together."""

    def __init__(self, ack: Callable[..., Awaitable[None]], events: Sequence[Event]) -> None:
        super().__init__(events)
        self._ack = ack

    async def ack(self) -> None:
        """With `ack="manual"`: the application is done with all of them."""
        await self._ack(*self)
