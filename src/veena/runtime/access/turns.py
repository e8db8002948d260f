"""Whose password is checked next: places take turns, then the names at a place, and of one name the oldest first.

Checking a password takes some 50 ms of a processor and 64 MiB, on purpose. So few are checked at once, and what waits
is bounded: for one place, and in all. A burst from one place fills its own share, where the oldest gives way to the
newest, and delays others by one check.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from veena.errors import AccessDenied, RefusalCode

#: Passwords that are checked at once, and that wait for it: of all places, and of one.
CHECKERS: Final = 2
MAX_WAITING: Final = 256
MAX_WAITING_EACH: Final = 32


@dataclass(slots=True, eq=False)
class _Waiting:
    place: str
    name: str
    turn: asyncio.Future[None]


class Turns:
    """The checks of one broker."""

    def __init__(self) -> None:
        #: By place and name; who is next stands first.
        self._places: dict[str, dict[str, deque[_Waiting]]] = {}
        self._counts: dict[str, int] = {}
        self._total = self._busy = 0
        self._threads: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return self._total

    async def check(self, place: str, name: str, before: Callable[[], None], work: Callable[[], bool]) -> bool:
        """Do `work` in a thread when it is this one's turn; `before` is called then, and may refuse by raising."""
        await self._turn(place, name)
        try:
            before()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(CHECKERS, "veena-passwords")
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._busy -= 1
            self._next()

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def _turn(self, place: str, name: str) -> None:
        if self._busy < CHECKERS:
            self._busy += 1
            return
        waiting = _Waiting(place, name, asyncio.get_running_loop().create_future())
        self._places.setdefault(place, {}).setdefault(name, deque()).append(waiting)
        self._counts[place] = self._counts.get(place, 0) + 1
        self._total += 1
        if self._counts[place] > MAX_WAITING_EACH:
            self._refuse(place)
        elif self._total > MAX_WAITING:
            self._refuse(max(self._counts, key=self._counts.__getitem__))
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting.turn.done() and not waiting.turn.cancelled() and waiting.turn.exception() is None:
                self._busy -= 1  # its turn came in the moment in which it left
                self._next()
            else:
                self._leave(waiting)
            raise

    def _next(self) -> None:
        while self._busy < CHECKERS and self._places:
            place = next(iter(self._places))
            names = self._places.pop(place)
            self._places[place] = names  # behind the others
            name = next(iter(names))
            queue = names.pop(name)
            names[name] = queue
            waiting = queue[0]
            self._leave(waiting)
            self._busy += 1
            waiting.turn.set_result(None)

    def _refuse(self, place: str) -> None:
        """Of a place that has too much waiting, the oldest goes; of its names the one with most."""
        oldest = max(self._places[place].values(), key=len)[0]
        self._leave(oldest)
        reason = "many log-ins from this address wait to be checked: try again in a moment"
        oldest.turn.set_exception(AccessDenied(reason, code=RefusalCode.BUSY))

    def _leave(self, waiting: _Waiting) -> None:
        names = self._places.get(waiting.place, {})
        queue = names.get(waiting.name)
        if queue is None or waiting not in queue:
            return
        queue.remove(waiting)
        self._total -= 1
        self._counts[waiting.place] -= 1
        if not queue:
            del names[waiting.name]
        if not names:
            del self._places[waiting.place], self._counts[waiting.place]
