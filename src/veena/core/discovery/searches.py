"""Searches through the advertisements that a broker holds, a slice at a time, so that no query holds up its events.

A search is a generator that does a part of its work and yields how much that was. Those who search take turns, users
of this broker and other brokers, so that nobody waits for all that another one asks. A slice for all of them together
has `SLICE_WORK`, and between two slices the broker does everything else. What fits into the slice of the input that
brought it is answered at once.

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
#: What one owner gets of it before it is another one's turn, and what ending a search costs.
TURN_WORK = 40_000
END_WORK = 500
#: The pause between two slices: half of the broker's time is for everything else.
PAUSE_NS = 8 * MILLISECOND_NS
#: Searches that are open: all, and those of one user here or of one broker elsewhere.
MAX_SEARCHES = 2048
MAX_OF_ONE = 512

#: What a search yields that waits for the worker (`doubts`): its turn is over, and costs a look.
WAITS = -1
WAIT_WORK = 10_000
#: Does its work in parts and yields what each was, or WAITS.
Search = Iterator[int]
#: Whose a search is: a broker, and of its own users which one.
Owner = tuple[Address, str]


@dataclass(slots=True)
class _Open:
    search: Search
    is_wanted: Callable[[int], bool]


class Searches:
    """The searches of one broker."""

    def __init__(self) -> None:
        #: By owner, whose turn it is first: each has its searches done one after the other, but for those that wait.
        self._queues: dict[Owner, deque[_Open]] = {}
        self._count = 0
        #: What is left of the present slice.
        self._left = SLICE_WORK
        #: When the next one begins.
        self._next_ns = 0
        #: The time of the present slice.
        self.now_ns = 0
        #: Searches that ended because nobody waited for them any longer, and those that were one too many.
        self.given_up = self.refused = 0

    def __len__(self) -> int:
        return self._count

    def has_room(self, owner: Owner) -> bool:
        """Whether one more search of this owner may be begun; otherwise that is counted."""
        if self._count < MAX_SEARCHES and len(self._queues.get(owner, ())) < MAX_OF_ONE:
            return True
        self.refused += 1
        return False

    def begin(self, owner: Owner, search: Search, is_wanted: Callable[[int], bool], now_ns: int) -> None:
        """Begin a search; it may be over when this returns."""
        self._queues.setdefault(owner, deque()).append(_Open(search, is_wanted))
        self._count += 1
        if self._count == 1:
            self._go_on(now_ns)

    def new_slice(self) -> None:
        """An input is over: the next may bring searches of its own."""
        if not self._count:
            self._left = SLICE_WORK

    def tick(self, now_ns: int) -> None:
        if self._count and now_ns >= self._next_ns:
            self._left = SLICE_WORK
            self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> None:
        self.now_ns = now_ns
        while self._queues and self._left > 0:
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            is_wanted = queue[0].is_wanted(now_ns)
            turn, is_over = min(self._left, TURN_WORK), not is_wanted
            while turn > 0 and not is_over:
                work = next(queue[0].search, None)
                is_over = work is None
                if work == WAITS:
                    self._left -= WAIT_WORK
                    queue.rotate(-1)  # other searches of this owner need not wait for its verdicts
                    break
                turn -= work or 0
                self._left -= work or 0
            if is_over:
                self.given_up += not is_wanted
                queue.popleft()
                self._count -= 1
                self._left -= END_WORK
            if queue:
                self._queues[owner] = queue  # behind all others
        self._next_ns = now_ns + PAUSE_NS

    def next_wakeup(self) -> int | None:
        return self._next_ns if self._count else None

    def check(self) -> None:
        assert self._count == sum(map(len, self._queues.values())) <= MAX_SEARCHES
        assert all(self._queues.values())
