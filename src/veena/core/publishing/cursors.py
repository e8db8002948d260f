"""How far each unit around an origin has been served: a cursor for each, below which it has everything.

Cursors are written a while after something was served, all of them together: what a crash makes the broker send again
is at most what was served in between, and ends drop it. A unit that lacks something and whose cursor stands still is
*stuck*: dead, out of reach, or slower than anybody waits for. How old the events are that it lacks does not matter: who
works off a backlog gets on.

The invariant: a cursor never passes what its unit does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from veena.core.boundary.stored import Progress
from veena.core.boundary.tickets import Ledger
from veena.core.publishing.pending import Way

#: How often cursors are written: what a crash makes this broker send again.
PROGRESS_NS = 1_000_000_000


class Cursors:
    """The cursors of one log, by the unit's bit."""

    def __init__(self, ledger: Ledger, known: Mapping[int, int]) -> None:
        self._ledger = ledger
        self._cursors = dict(known)
        #: Units that lack something and have not got on, and since which look.
        self._still_ns: dict[int, int] = {}
        #: When they are to be looked at; None while there is no reason to.
        self.due_ns: int | None = None

    def of(self, bit: int, otherwise: int = 0) -> int:
        return self._cursors.get(bit, otherwise)

    def begin(self, bit: int) -> None:
        """A unit is served from now on."""
        self._cursors.setdefault(bit, 0)

    def move_soon(self, now_ns: int) -> None:
        """Something was served, or is to be looked at."""
        if self.due_ns is None:
            self.due_ns = now_ns + PROGRESS_NS

    def move(self, still_open: Iterable[tuple[Way, int]], synced: int, now_ns: int) -> int:
        """Each unit lacks what is at these offsets and later, and has all else that is on disk; the least cursor."""
        self.due_ns = None
        lowest = dict.fromkeys(self._cursors, synced)
        for (bit, _), offset in still_open:
            lowest[bit] = min(lowest.get(bit, synced), offset)
        moved = tuple((bit, cursor) for bit, cursor in lowest.items() if cursor != self._cursors.get(bit))
        for bit, cursor in lowest.items():
            if cursor >= synced or cursor != self._cursors.get(bit):
                self._still_ns.pop(bit, None)
            else:
                self._still_ns.setdefault(bit, now_ns)
        self._cursors.update(moved)
        if moved:
            self._ledger.write(Progress(moved))
        return min(self._cursors.values(), default=synced)

    def stuck(self, before_ns: int) -> int:
        """The units that lack something and have not got on since before then."""
        vector = 0
        for bit, since_ns in self._still_ns.items():
            if since_ns <= before_ns:
                vector |= bit
        return vector
