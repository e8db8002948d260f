"""Reading back from the log: one `Read` out, its `LogRead` in, and whoever asked is called with the entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veena.core.boundary.inputs_effects import Effect, LogRead, Read
from veena.core.boundary.stored import Entry

#: Called with the entries and the time.
Found = Callable[[Sequence[Entry], int], None]


class LogReader:
    """Open reads of one broker. The invariant: each is answered once."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._ticket = 0
        self._open: dict[int, Found] = {}
        #: When the oldest entry that is left was accepted, where older ones were given up.
        self.begins_ns = 0

    def read(self, offset: int, limit: int, found: Found, *, inbox: int = 0, since_ns: int = 0) -> None:
        """Read at most so many entries from an offset on: all, those for an inbox, or those accepted since then."""
        self._ticket += 1
        self._open[self._ticket] = found
        self._effects.append(Read(self._ticket, offset, limit, inbox, since_ns))

    def on_read(self, given: LogRead, now_ns: int) -> None:
        self.begins_ns = given.begins_ns
        found = self._open.pop(given.ticket, None)
        if found is not None:
            found(given.entries, now_ns)

    def __len__(self) -> int:
        return len(self._open)
