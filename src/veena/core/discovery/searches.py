"""Searches through the advertisements that a broker holds, a slice at a time, so that no query holds up its events.

A search is a generator that does a part of its work and yields how much that was. Searches take turns; a slice for all
of them together has `SLICE_WORK`, and between two slices the broker does everything else. What fits into the slice of
the input that brought it is answered at once.

A search ends without an answer when nobody waits for it any longer: its deadline is over, or who asked has gone. One
too many is refused at once, by the answer that its unit is silent.

The invariant: an input, and a tick, does no more than one slice; there is one more slice as long as a search is open.
Rejected: a thread (it would need a copy of the advertisements, or locks around all of them).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from veena.address import Address
from veena.core.boundary.settings import MILLISECOND_NS

#: The work of one slice, as `matching.base.work` counts it: some 10 ms at worst, and one evaluation more.
SLICE_WORK = 400_000
#: The pause between two slices: half of the broker's time is for everything else.
PAUSE_NS = 8 * MILLISECOND_NS
#: Searches that are open: all, and those that one broker asked for.
MAX_SEARCHES = 512
MAX_OF_BROKER = 128

#: Does its work in parts and yields what each was.
Search = Iterator[int]


@dataclass(slots=True)
class _Open:
    asker: Address
    search: Search
    is_wanted: Callable[[int], bool]


class Searches:
    """The searches of one broker."""

    def __init__(self) -> None:
        self._open: deque[_Open] = deque()
        self._of_broker: dict[Address, int] = {}
        #: What is left of the present slice.
        self._left = SLICE_WORK
        #: When the next one begins.
        self._next_ns = 0
        #: Searches that ended because nobody waited for them any longer, and those that were one too many.
        self.given_up = self.refused = 0

    def __len__(self) -> int:
        return len(self._open)

    def has_room(self, asker: Address) -> bool:
        """Whether one more search of this broker may be begun; otherwise that is counted."""
        if len(self._open) < MAX_SEARCHES and self._of_broker.get(asker, 0) < MAX_OF_BROKER:
            return True
        self.refused += 1
        return False

    def begin(self, asker: Address, search: Search, is_wanted: Callable[[int], bool], now_ns: int) -> None:
        """Begin a search; it may be over when this returns."""
        self._open.append(_Open(asker, search, is_wanted))
        self._of_broker[asker] = self._of_broker.get(asker, 0) + 1
        if len(self._open) == 1:
            self._go_on(now_ns)

    def new_slice(self) -> None:
        """An input is over: the next may bring searches of its own."""
        if not self._open:
            self._left = SLICE_WORK

    def tick(self, now_ns: int) -> None:
        if self._open and now_ns >= self._next_ns:
            self._left = SLICE_WORK
            self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> None:
        while self._open and self._left > 0:
            first = self._open[0]
            is_wanted = first.is_wanted(now_ns)
            work = next(first.search, None) if is_wanted else None
            self._open.rotate(-1)
            if work is not None:
                self._left -= work
                continue
            self.given_up += not is_wanted
            self._open.pop()
            left = self._of_broker.pop(first.asker) - 1
            if left:
                self._of_broker[first.asker] = left
        self._next_ns = now_ns + PAUSE_NS

    def next_wakeup(self) -> int | None:
        return self._next_ns if self._open else None

    def check(self) -> None:
        assert len(self._open) == sum(self._of_broker.values()) <= MAX_SEARCHES
