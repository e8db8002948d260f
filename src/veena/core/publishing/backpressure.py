"""Back-pressure: publishers are told that their broker is filling up, before it has to refuse them (QOS-01, FLT-09).

What fills it are reliable events that it has accepted and not delivered: in memory (`max_open`), and in the log for
units that cannot take them (`max_log_bytes`). At three quarters of either everybody who has published reliably here is
told to pause, and whoever begins later is told with its first event; at half of both they are told to go on. Only at
the bound an event is refused, as one that was never published. Best effort is never held up: what is too much of it is
dropped on its way, and counted there.

How many bytes the log holds is known by marks, 1,024 of them in a full log: so it is overestimated by less than a
thousandth of the bound.

The invariant: a session that was told to pause is told to go on, once, unless it left; nobody is told twice in a row.

Rejected: credits for each publisher (a thousand of them that are idle would hold the credit that one needs).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from veena.core.boundary.clients import Pause, Resume
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.settings import Settings

#: In percent of a bound: where publishers are told to pause, and where they are told to go on.
PAUSE_AT, RESUME_AT = 75, 50
MARKS = 1024


class Pressure:
    """How full one broker is, and which of its publishers know it."""

    def __init__(self, settings: Settings, effects: list[Effect]) -> None:
        self._max_open = settings.max_open
        self._max_bytes = settings.max_log_bytes
        self._effects = effects
        #: Sessions that have published reliable events, and those of them that were told to pause.
        self._publishers: dict[int, None] = {}
        self.paused: dict[int, None] = {}
        #: Whether publishers are to pause.
        self.is_high = False
        self._pause_events = -(-self._max_open * PAUSE_AT // 100)
        self._pause_bytes = -(-self._max_bytes * PAUSE_AT // 100)
        #: Of everything that was ever added, and of what is needed no more.
        self._total_bytes = self._served_bytes = 0
        #: (offset, bytes of everything before it), ascending; what is before the first one is needed no more.
        self._marks: deque[tuple[int, int]] = deque()
        #: The lowest offset that somebody else needs, such as a durable subscription; None for none.
        self.kept_from: Callable[[], int | None] = lambda: None

    @property
    def log_bytes(self) -> int:
        """What the log holds for units, and others, that have not got it yet."""
        return self._total_bytes - self._served_bytes

    def grown(self, offset: int, size: int) -> None:
        """An entry was added to the log."""
        if not self._marks or self._total_bytes - self._marks[-1][1] >= self._max_bytes // MARKS:
            self._marks.append((offset, self._total_bytes))
        self._total_bytes += size

    def needed_from(self, offset: int, next_offset: int) -> None:
        """No unit needs anything below this offset of a log that ends before `next_offset`."""
        kept = self.kept_from()
        offset = offset if kept is None else min(offset, kept)
        if offset >= next_offset:
            self._marks.clear()
        while len(self._marks) > 1 and self._marks[1][0] <= offset:
            self._marks.popleft()
        self._served_bytes = self._marks[0][1] if self._marks else self._total_bytes

    def admit(self, session: int, open_events: int) -> str | None:
        """A reliable event is published: why it cannot be taken, if so. Its publisher is told to pause in time."""
        self._publishers[session] = None
        size = self._total_bytes - self._served_bytes
        if open_events < self._pause_events and size < self._pause_bytes and not self.is_high:
            return None
        self._pause(session, open_events)
        if open_events >= self._max_open:
            return f"{open_events} events wait here already"
        if size >= self._max_bytes:
            return f"{size} bytes wait in the log already"
        return None

    def _pause(self, session: int, open_events: int) -> None:
        told = (session,) if self.is_high else tuple(self._publishers)
        self.is_high = True
        reason = (
            f"{open_events} events (of at most {self._max_open}) and {self.log_bytes} bytes of the log (of at most"
            f" {self._max_bytes}) wait to be delivered: pause until you are told to go on"
        )
        for each in told:
            if each not in self.paused:
                self.paused[each] = None
                self._effects.append(Pause(each, reason))

    def relieve(self, open_events: int) -> None:
        """Let paused publishers go on when there is room again."""
        is_low = open_events * 100 < RESUME_AT * self._max_open and self.log_bytes * 100 < RESUME_AT * self._max_bytes
        if self.is_high and is_low:
            self.is_high = False
            self._effects += map(Resume, self.paused)
            self.paused = {}

    def farewell(self, session: int) -> None:
        self._publishers.pop(session, None)
        self.paused.pop(session, None)

    def check(self) -> None:
        assert self.is_high or not self.paused
        assert self._served_bytes == (self._marks[0][1] if self._marks else self._total_bytes)
        assert list(self._marks) == sorted(self._marks)
        assert len(self._marks) <= 2 * MARKS + 2 or self._max_bytes < MARKS
