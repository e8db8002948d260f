"""How far each unit around an origin has been served: a cursor for each, below which it has everything.

Cursors are written a while after something was served, all of them together: what a crash makes the broker send again
is at most what was served in between, and ends drop it. A unit that lacks something and whose cursor stands still is
*stuck*: dead, out of reach, or slower than anybody waits for. How old the events are that it lacks does not matter: who
works off a backlog gets on.

The invariant: a cursor never passes what its unit does not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from veena.core.boundary.stored import Entry, Progress
from veena.core.boundary.tickets import Ledger

#: How often cursors are written: what a crash makes this broker send again.
PROGRESS_NS = 1_000_000_000
#: A unit's bit and a lane: a flood in one lane must not park the others behind it in the log.
Way = tuple[int, int]


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


#: How finely the age of a log entry is known, and for how many of the last ones.
MARK_NS = 1_000_000_000
MAX_MARKS = 8192


class LogAges:
    """How old the entries of a log are, without looking at them: a mark a second, for the last of them.

    A mark is (time, first offset after it): so old is that offset at least.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._marks: deque[tuple[int, int]] = deque(
            (entry.accepted_ns, entry.offset) for entry in entries[:: max(1, len(entries) // MAX_MARKS)]
        )
        self._appended_ns = entries[-1].accepted_ns if entries else 0

    def appended(self, offset: int, now_ns: int) -> None:
        self._appended_ns = now_ns
        if not self._marks or now_ns >= self._marks[-1][0] + MARK_NS:
            self._marks.append((now_ns, offset))
            if len(self._marks) > MAX_MARKS:
                self._marks.popleft()

    @property
    def oldest_ns(self) -> int | None:
        return self._marks[0][0] if self._marks else None

    def is_before(self, offset: int, before_ns: int) -> bool:
        """Whether the entry at this offset was appended before then, as far as is known."""
        return next((since for since, first in self._marks if first >= offset), self._appended_ns) < before_ns
