"""How old the entries of a log are, without looking at them: a mark a second, for the last of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from veena.core.boundary.stored import Entry

#: How finely the age of a log entry is known, and for how many of the last ones.
MARK_NS = 1_000_000_000
MAX_MARKS = 8192


class LogAges:
    """(time, first offset after it), some a second apart: how old an offset is at least."""

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
