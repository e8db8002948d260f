"""Tickets of the disk: what is written in one input is one `Store`, and what waits for it is called when it is synced.

The invariant: nothing that depends on a write happens before its ticket was answered, and tickets are answered once,
in their order. A write that failed calls what the writer left for that case: nothing was kept. One that nobody can be
refused for, because its event was taken on for others, is *stubborn*: it is written again until the disk takes it.

Reading back from the log is alike (`LogReader`): one `Read` out, its `LogRead` in, and whoever asked gets the entries.
A read that failed calls what the reader left for that case; without that it is given to the disk again later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from veena.core.boundary.inputs_effects import Effect, LogRead, Read, ReadFailed, Store
from veena.core.boundary.stored import Entry, Write
from veena.errors import LocalProtocolError

#: Called with the time at which the disk answered.
Then = Callable[[int], None]
#: Called with the reason and the time.
Otherwise = Callable[[str, int], None]
Waiting = tuple[Then | None, Otherwise | None]


class Ledger:
    """Writes on their way to the disk."""

    def __init__(self) -> None:
        self._writes: list[Write] = []
        self._waiting: list[Waiting] = []
        self._open: dict[int, list[Waiting]] = {}
        self._ticket = 0
        #: Stubborn writes that failed.
        self._again: list[tuple[Write, Then | None]] = []

    def write(
        self, write: Write, then: Then | None = None, otherwise: Otherwise | None = None, *, stubborn: bool = False
    ) -> None:
        self._writes.append(write)
        if stubborn:
            self._waiting.append((then, lambda reason, now_ns: self._again.append((write, then))))
        elif then is not None or otherwise is not None:
            self._waiting.append((then, otherwise))

    def write_again(self) -> None:
        """Try stubborn writes again that have failed."""
        again, self._again = self._again, []
        for write, then in again:
            self.write(write, then, stubborn=True)

    def flush(self) -> list[Store]:
        """Everything that was written since the last time, under one ticket."""
        if not self._writes:
            return []
        self._ticket += 1
        self._open[self._ticket] = self._waiting
        store = Store(self._ticket, tuple(self._writes))
        self._writes, self._waiting = [], []
        return [store]

    def stored(self, ticket: int, now_ns: int) -> None:
        for then, _ in self._take(ticket):
            if then is not None:
                then(now_ns)

    def failed(self, ticket: int, reason: str, now_ns: int) -> None:
        for _, otherwise in self._take(ticket):
            if otherwise is not None:
                otherwise(reason, now_ns)

    def _take(self, ticket: int) -> list[Waiting]:
        if ticket not in self._open:
            raise LocalProtocolError(f"ticket {ticket} was never given out, or was answered before")
        return self._open.pop(ticket)

    def __len__(self) -> int:
        """Tickets that are not answered yet."""
        return len(self._open)


#: Called with the entries and the time.
Found = Callable[[Sequence[Entry], int], None]


class _OpenRead(NamedTuple):
    """A read, and what is called when it was answered, or has failed."""

    read: Read
    found: Found
    otherwise: Otherwise | None


class LogReader:
    """Open reads of one broker. The invariant: each is answered once."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._ticket = 0
        self._open: dict[int, _OpenRead] = {}
        #: Those that failed and are read again.
        self._again: list[_OpenRead] = []
        #: When the oldest entry that is left was accepted, where older ones were given up.
        self.begins_ns = 0

    def read(
        self,
        offset: int,
        limit: int,
        found: Found,
        *,
        inbox: int = 0,
        since_ns: int = 0,
        otherwise: Otherwise | None = None,
    ) -> None:
        """Read at most so many entries from an offset on: all, those for an inbox, or those accepted since then."""
        self._ticket += 1
        read = Read(self._ticket, offset, limit, inbox, since_ns)
        self._open[self._ticket] = _OpenRead(read, found, otherwise)
        self._effects.append(read)

    def on_read(self, given: LogRead, now_ns: int) -> None:
        self.begins_ns = given.begins_ns
        opened = self._open.pop(given.ticket, None)
        if opened is not None:
            opened.found(given.entries, now_ns)

    def on_failed(self, given: ReadFailed, now_ns: int) -> None:
        opened = self._open.pop(given.ticket, None)
        if opened is None:
            return
        if opened.otherwise is not None:
            opened.otherwise(given.reason, now_ns)
        else:
            self._again.append(opened)

    @property
    def must_read_again(self) -> bool:
        """Whether some read has failed that nobody gives up."""
        return bool(self._again)

    def read_again(self) -> None:
        """Give the disk the reads again that have failed."""
        again, self._again = self._again, []
        for read, found, _ in again:
            self.read(read.offset, read.limit, found, inbox=read.inbox, since_ns=read.since_ns)

    def __len__(self) -> int:
        return len(self._open) + len(self._again)
