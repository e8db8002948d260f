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
from dataclasses import dataclass, field

from veena.core.wire.codec import encode
from veena.core.wire.control import Connections, Frame
from veena.core.wire.interest import MAX_ROWS, Have, Interest
from veena.core.wire.signatures import Credentials, Proofs
from veena.errors import ClockDiffers

#: The kinds of frames that keep one order.
ORDERED = (Interest, Have, Connections, Credentials, Proofs)
#: Frames of one link that wait, a minute of a quiet link, and their bytes: most have 200, and the longest a megabyte.
MAX_EARLY = 256
MAX_EARLY_BYTES = 8 << 20
#: Statements that one step deals with: as many as are in the longest frame of wants.
MAX_WORK = MAX_ROWS


def work_of(frame: object) -> int:
    """How many statements a frame has; 1 where it has none."""
    if isinstance(frame, Interest):
        return 1 + len(frame.rows) + len(frame.digests)
    if isinstance(frame, Have):
        return 1 + sum(1 + len(claim.marks) for claim in frame.claims)
    return 1 + len(frame.records) if isinstance(frame, Connections) else 1


@dataclass(slots=True)
class _Waiting:
    """What waits for one link: frames with their bytes on the wire, and those of all together."""

    frames: deque[tuple[Frame, int]] = field(default_factory=deque)
    bytes: int = 0

    def add(self, frame: Frame, size: int) -> None:
        self.frames.append((frame, size))
        self.bytes += size

    def pop(self) -> Frame:
        frame, size = self.frames.popleft()
        self.bytes -= size
        return frame

    def extend(self, others: _Waiting) -> None:
        self.frames.extend(others.frames)
        self.bytes += others.bytes


class EarlyFrames:
    """By link, what waits, and until when."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._due_ns: dict[int, int] = {}

    def __contains__(self, link: int) -> bool:
        return link in self._waiting

    def hold(self, link: int, frame: Frame, until_ns: int | None = None) -> None:
        """Let a frame wait; the first one of a link says until when."""
        waiting = self._waiting.setdefault(link, _Waiting())
        size = len(encode(frame, 0))
        if until_ns is not None:
            self._due_ns[link] = until_ns
        if len(waiting.frames) >= MAX_EARLY or waiting.bytes + size > MAX_EARLY_BYTES:
            raise ClockDiffers(
                f"{len(waiting.frames)} frames of {waiting.bytes} bytes wait behind one of a time that is ahead of this"
                " broker's clock, or with more signatures than it may check for one link: set both clocks, and send"
                " less"
            )
        waiting.add(frame, size)

    def due(self, now_ns: int) -> list[int]:
        """The links whose first frame need wait no longer."""
        return [link for link, due_ns in self._due_ns.items() if due_ns <= now_ns]

    def take(self, link: int, work: int, now_ns: int) -> Iterator[Frame]:
        """What waits for a link, up to so much work: the rest is due at once, behind what waits for others. What it is
        not asked for any more, because an earlier one waits again, stays."""
        waiting, due_ns = self._waiting.pop(link, _Waiting()), self._due_ns.pop(link, None)
        assert due_ns is not None
        while waiting.frames:
            if work <= 0:
                self._waiting[link], self._due_ns[link] = waiting, now_ns
                return
            frame = waiting.pop()
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
        for waiting in self._waiting.values():
            assert 0 < len(waiting.frames) <= MAX_EARLY
            assert sum(size for _, size in waiting.frames) == waiting.bytes <= MAX_EARLY_BYTES
