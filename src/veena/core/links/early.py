"""Control frames that have to wait: they tell of a time which this broker's clock has not nearly reached
(`trust.epochs`), or need more checks of signatures than their link may ask for now (`vetting`).

Everything of the same link that belongs in one order waits behind the first such frame: rows before marks, wants before
claims, wants before the connections that bring their units into reach. Events, acknowledgements and signs of life of
the link itself go on.

When the time has come, a step deals with `MAX_WORK` at most; the rest is due at once, in the steps after it.

The invariant: of one link these frames are dealt with in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from veena.core.wire.control import Connections, Frame
from veena.core.wire.interest import MAX_ROWS, Have, Interest
from veena.core.wire.signatures import Credentials, Proofs
from veena.errors import ClockDiffers

#: The kinds of frames that keep one order.
ORDERED = (Interest, Have, Connections, Credentials, Proofs)
#: Frames of one link that wait: a minute of a quiet link. Most have 200 bytes, and a hostile one half a megabyte.
MAX_EARLY = 256
#: Statements that one step deals with: as many as are in the longest frame of wants.
MAX_WORK = MAX_ROWS


def work_of(frame: object) -> int:
    """How many statements a frame has; 1 where it has none."""
    if isinstance(frame, Interest):
        return 1 + len(frame.rows) + len(frame.digests)
    if isinstance(frame, Have):
        return 1 + sum(1 + len(claim.marks) for claim in frame.claims)
    return 1 + len(frame.records) if isinstance(frame, Connections) else 1


class EarlyFrames:
    """By link, what waits, and until when."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Frame]] = {}
        self._due_ns: dict[int, int] = {}

    def __contains__(self, link: int) -> bool:
        return link in self._waiting

    def hold(self, link: int, frame: Frame, until_ns: int | None = None) -> None:
        """Let a frame wait; the first one of a link says until when."""
        waiting = self._waiting.setdefault(link, deque())
        if until_ns is not None:
            self._due_ns[link] = until_ns
        if len(waiting) >= MAX_EARLY:
            raise ClockDiffers(
                f"{MAX_EARLY} frames wait behind one of a time that is ahead of this broker's clock, or with more"
                " signatures than it may check for one link: set both clocks, and send less"
            )
        waiting.append(frame)

    def due(self, now_ns: int) -> list[int]:
        """The links whose first frame need wait no longer."""
        return [link for link, due_ns in self._due_ns.items() if due_ns <= now_ns]

    def take(self, link: int, work: int, now_ns: int) -> Iterator[Frame]:
        """What waits for a link, up to so much work: the rest is due at once, behind what waits for others. What it is
        not asked for any more, because an earlier one waits again, stays."""
        waiting, due_ns = self._waiting.pop(link, deque()), self._due_ns.pop(link, None)
        assert due_ns is not None
        while waiting:
            if work <= 0:
                self._waiting[link], self._due_ns[link] = waiting, now_ns
                return
            frame = waiting.popleft()
            work -= work_of(frame)
            yield frame
            if link in self._waiting:
                self._waiting[link].extend(waiting)
                return

    def hurry(self, now_ns: int) -> None:
        """The clock was set: look at all of them."""
        self._due_ns = dict.fromkeys(self._due_ns, now_ns)

    def forget(self, link: int) -> None:
        self._waiting.pop(link, None)
        self._due_ns.pop(link, None)

    def next_wakeup(self) -> int | None:
        return min(self._due_ns.values(), default=None)

    def check(self) -> None:
        assert self._waiting.keys() == self._due_ns.keys()
        assert all(0 < len(waiting) <= MAX_EARLY for waiting in self._waiting.values())
