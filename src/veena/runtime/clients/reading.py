"""Whether a client reads what it is sent, and what the core is told of it.

Its stream is full, or it has asked its broker to pause: then the core is told to hand over nothing more
(`SessionClogged`), and when neither is so any longer that it may go on (`SessionClear`). The core is told at once and
not in the next turn of the loop: what a hundred publishers send in this turn would be written before its end.

Whoever takes something now and then, however little, reads. What counts is what the other end's machine has taken, so
what the kernel here holds counts as untaken: it takes several MiB at once, and asks for more only when a third of that
is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from veena.core.boundary.clients import SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import Input
from veena.runtime.clients.traffic import Traffic
from veena.runtime.transports.stream import Stream


class Reading:
    """One client's."""

    def __init__(
        self, stream: Stream, traffic: Traffic, give: Callable[[Input], None], is_unwritten: Callable[[], bool]
    ) -> None:
        """`is_unwritten` says whether what was handed over is not written yet."""
        self._stream = stream
        self._is_unwritten = is_unwritten
        self._traffic = traffic
        self._give = give
        #: 0 until the core knows the client, and after it has left.
        self.session = 0
        #: Why the core hands it nothing now.
        self._clogs: set[str] = set()
        self._asks_room = False
        #: What it had taken in all when this was looked at last, and when that had changed.
        self._taken = 0
        self._took = 0.0

    def clog(self, why: str) -> None:
        is_new = not self._clogs
        self._clogs.add(why)
        if is_new and self.session:
            self._give(SessionClogged(self.session))

    def unclog(self, why: str) -> None:
        if why in self._clogs:
            self._clogs.discard(why)
            if not self._clogs and self.session:
                self._give(SessionClear(self.session))

    def ask_room(self) -> None:
        """The core has more for it: say when there is room, after what was handed over is written."""
        if not self._asks_room:
            self._asks_room = True
            asyncio.get_running_loop().call_soon(self._tell_room)

    def _tell_room(self) -> None:
        if self._is_unwritten():
            asyncio.get_running_loop().call_soon(self._tell_room)
            return
        self._asks_room = False
        if not self._clogs and self.session:  # else it is told when there is room again
            self._give(SessionClear(self.session))

    def begin(self, now: float) -> int:
        """Its stream is full: look from now on whether it takes anything; the bytes that it has not taken."""
        untaken = self._stream.untaken
        self._took, self._taken = now, self._traffic.bytes_out - untaken
        return untaken

    def why_over(self, now: float, patience: float) -> str | None:
        """Why it does not count as reading, of whom nothing was taken for longer than that."""
        untaken = self._stream.untaken
        before, self._taken = self._taken, self._traffic.bytes_out - untaken
        if self._taken > before:
            self._took = now
        if now - self._took <= patience:
            return None
        return (
            f"it has read nothing for {patience:g} seconds, and {untaken} bytes wait for it: read on, or raise"
            " [limits] slow_s"
        )
