"""Order and completeness over a transport that loses, repeats and reorders frames (TRN-05, AMB-39, DUP-03).

Every frame of a connection has a number. Over an ordered transport (TCP, in-process) the number is only checked. Over
any other the receiver holds back what came early, the sender keeps what is unacknowledged and sends it again, later and
later. So whoever sits above sees each frame once, in order, or a link that closes: never a gap.

Invariants: frames are handed up in order of number without gap or repeat; `_unacknowledged` and `_early` stay below
their bounds; a frame leaves `_unacknowledged` only when the peer has it.

Events that find the window full wait above, in lanes (`link`); only control frames wait here, in their order.

Rejected: one sequence per publisher, as the GES paper has it. Control needs order too, and one sequence per connection
is what the acknowledgements of events refer to.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from veena.core.boundary.inputs_effects import Numbered
from veena.core.wire.control import MAX_RANGES, Frame, Received, ReliableBurst
from veena.core.wire.event import EventFrame
from veena.errors import LocalProtocolError, RemoteProtocolError

#: Frames on their way at once: 4,096 of 1 KiB fill a gigabit link with a round trip of 30 ms.
WINDOW = 4096
#: Frames that wait for room in the window. A peer that lets this fill up is closed instead of eating memory.
MAX_WAITING = 65_536
#: Retransmission gives way to new frames: at most so many old ones a tick.
MAX_BURST = 64
MAX_BACKOFF = 8

AnyFrame = Frame | EventFrame


def _numbers_of(frame: AnyFrame) -> int:
    """How many numbers a frame takes: a burst of reliable events has one for each of them."""
    return frame.count if type(frame) is ReliableBurst else 1


@dataclass(slots=True)
class _Sent:
    frame: AnyFrame
    again_at_ns: int
    pause_ns: int


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    sent: int
    received: int
    retransmitted: int
    repeated: int
    unacknowledged: int
    waiting: int


class Channel:
    """One connection's two sequences."""

    def __init__(self, ordered: bool, retransmit_ns: int) -> None:
        self._ordered = ordered
        self._retransmit_ns = retransmit_ns
        self._next_out = 1
        self._next_in = 1
        #: By number, ascending: dicts keep the order in which frames were sent.
        self._unacknowledged: dict[int, _Sent] = {}
        self._waiting: deque[AnyFrame] = deque()
        self._early: dict[int, AnyFrame] = {}
        self._owes_acknowledgement = False
        self._retransmitted = 0
        self._repeated = 0

    @property
    def next_number(self) -> int:
        """The number that the next frame given to `send` has, now or when there is room for it."""
        return self._next_out + len(self._waiting)

    def send(self, frame: AnyFrame, now_ns: int) -> list[Numbered]:
        """What to transmit for this frame now; nothing while the window is full."""
        assert self._ordered or type(frame) is not ReliableBurst, "events go one by one where frames may be lost"
        if self._ordered:
            number = self._next_out
            self._next_out += _numbers_of(frame)
            return [(number, frame)]
        if len(self._unacknowledged) >= WINDOW:
            if len(self._waiting) >= MAX_WAITING:
                raise LocalProtocolError(f"the peer has not taken {MAX_WAITING} waiting frames")
            self._waiting.append(frame)
            return []
        return [self._transmit(frame, now_ns)]

    @property
    def has_room(self) -> bool:
        """Whether the next frame goes at once."""
        return self._ordered or len(self._unacknowledged) < WINDOW

    def _transmit(self, frame: AnyFrame, now_ns: int) -> Numbered:
        number = self._next_out
        self._next_out += 1
        self._unacknowledged[number] = _Sent(frame, now_ns + self._retransmit_ns, self._retransmit_ns)
        return (number, frame)

    def arrive(self, number: int, frame: AnyFrame) -> list[Numbered]:
        """The frames that are now next in order."""
        if self._ordered:
            if number != self._next_in:
                raise RemoteProtocolError(f"frame number {number} on an ordered connection; expected {self._next_in}")
            self._next_in += _numbers_of(frame)
            return [(number, frame)]
        if type(frame) is ReliableBurst:
            raise RemoteProtocolError("a burst of reliable events over a transport that loses frames: send each alone")
        self._owes_acknowledgement = True
        if number < self._next_in or number in self._early:
            self._repeated += 1
            return []
        if number >= self._next_in + WINDOW:
            return []  # beyond what an honest peer may have on its way; it will come again
        self._early[number] = frame
        ready: list[Numbered] = []
        while self._next_in in self._early:
            ready.append((self._next_in, self._early.pop(self._next_in)))
            self._next_in += 1
        return ready

    def acknowledged(self, frame: Received, now_ns: int) -> list[Numbered]:
        """Forget what the peer has; what waited for room goes out."""
        if frame.up_to >= self._next_out:
            raise RemoteProtocolError(f"frame {frame.up_to} acknowledged, but only {self._next_out - 1} were sent")
        missing = iter(frame.missing)
        hole = next(missing, None)
        for number in [n for n in self._unacknowledged if n <= frame.up_to]:
            while hole is not None and hole[1] < number:
                hole = next(missing, None)
            if hole is None or number < hole[0]:
                del self._unacknowledged[number]
        out: list[Numbered] = []
        while self._waiting and len(self._unacknowledged) < WINDOW:
            out.append(self._transmit(self._waiting.popleft(), now_ns))
        return out

    def acknowledgement(self) -> Received | None:
        """One for everything that has come since the last one."""
        if not self._owes_acknowledgement:
            return None
        self._owes_acknowledgement = False
        up_to = self._next_in - 1
        missing: list[tuple[int, int]] = []
        for number in sorted(self._early):
            if number > up_to + 1:
                if len(missing) == MAX_RANGES:
                    break
                missing.append((up_to + 1, number - 1))
            up_to = number
        return Received(up_to, tuple(missing))

    def tick(self, now_ns: int) -> list[Numbered]:
        """What has waited too long for its acknowledgement, oldest first."""
        again: list[Numbered] = []
        for number, sent in self._unacknowledged.items():
            if sent.again_at_ns <= now_ns:
                sent.pause_ns = min(2 * sent.pause_ns, MAX_BACKOFF * self._retransmit_ns)
                sent.again_at_ns = now_ns + sent.pause_ns
                again.append((number, sent.frame))
                if len(again) == MAX_BURST:
                    break
        self._retransmitted += len(again)
        return again

    def next_wakeup(self) -> int | None:
        return min((sent.again_at_ns for sent in self._unacknowledged.values()), default=None)

    def statistics(self) -> ChannelStatistics:
        return ChannelStatistics(
            self._next_out - 1,
            self._next_in - 1,
            self._retransmitted,
            self._repeated,
            len(self._unacknowledged),
            len(self._waiting),
        )

    def check(self) -> None:
        assert len(self._unacknowledged) <= WINDOW
        assert len(self._early) <= WINDOW
        assert all(number > self._next_in for number in self._early), "what is next has been handed up"
        assert list(self._unacknowledged) == sorted(self._unacknowledged)
