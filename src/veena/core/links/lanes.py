"""Events that wait for room, by lane: who goes first, and who is dropped first (QOS-01..03, FLT-09).

There are six lanes: three bands of priority, each reliable and best effort. A later event of a higher band goes before
waiting ones of a lower band; within a lane the order of arrival stays. No lane starves: each has a credit of bytes, by
band 16 to 4 to 1. The highest waiting lane that has credit left goes; when none has, all are given theirs again. So a
lane that uses less than its share never waits for a lower one, and one that would take everything leaves the lower ones
theirs.

What has outlived its time to live is not taken. Where there are too many, the oldest of the lowest band goes.

The invariant: what is taken of a lane is its oldest; a lane that waits is passed over by at most the credits of all
others, and one event of each. `events` and `bytes` are those of the queues.

Rejected: strict priority (a flood above stops everything below for ever); turns by number of events (a lane of large
events would take the link from a lane of small ones).
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.wire.event import COPY, EventFrame

#: What whoever lets an event wait wants to know of it again.
Note = TypeVar("Note")

LANES = 6
#: The order of turns: by band, and in a band reliable before best effort. Who is dropped: the other way round.
TURNS = (5, 2, 4, 1, 3, 0)
DROPS = (0, 3, 1, 4, 2, 5)
#: Bytes that a lane may send in a round: some small events for the lowest band, 4 and 16 times that for the others.
QUANTUM = 4096
CREDITS = tuple(QUANTUM * (1, 4, 16)[lane % 3] for lane in range(LANES))
BEST_EFFORT = (0, 1, 2)


class Waiting(Generic[Note]):
    """An event that waits, with its size on the way out and the time at which its life is over."""

    # Not a dataclass: one with slots is made twice, which a compiled generic class does not allow.
    __slots__ = ("deadline_ns", "frame", "note", "size")

    def __init__(self, frame: EventFrame, size: int, deadline_ns: int | None, note: Note) -> None:
        self.frame = frame
        self.size = size
        self.deadline_ns = deadline_ns
        self.note = note

    def frame_now(self, now_ns: int) -> EventFrame:
        """The frame with the time to live that is left."""
        if self.deadline_ns is None:
            return self.frame
        left_ms = max(0, self.deadline_ns - now_ns) // MILLISECOND_NS
        if left_ms == self.frame.ttl_ms:
            return self.frame
        return self.frame.copy(self.frame.to_serve, self.frame.served, left_ms)


class Lanes(Generic[Note]):
    """Six queues with turns."""

    def __init__(self) -> None:
        self._queues: tuple[deque[Waiting[Note]], ...] = tuple(deque() for _ in range(LANES))
        self._bytes = [0] * LANES
        self._credit = list(CREDITS)
        self.events = 0
        #: No life is over before this time.
        self._earliest_ns: int | None = None

    @property
    def bytes(self) -> int:
        return sum(self._bytes)

    def best_effort(self) -> tuple[int, int]:
        """How many best-effort events wait, and their bytes."""
        return sum(len(self._queues[lane]) for lane in BEST_EFFORT), sum(self._bytes[lane] for lane in BEST_EFFORT)

    def put(self, frame: EventFrame, size: int, deadline_ns: int | None, note: Note) -> None:
        """Let an event wait behind those of its lane; its life is over at the deadline."""
        if deadline_ns is not None and (self._earliest_ns is None or deadline_ns < self._earliest_ns):
            self._earliest_ns = deadline_ns
        lane = frame.lane_number
        self._queues[lane].append(Waiting(frame, size, deadline_ns, note))
        self._bytes[lane] += size
        self.events += 1

    def take(self) -> Waiting[Note] | None:
        """The event whose turn it is."""
        if not self.events:
            return None
        while True:
            for lane in TURNS:
                if self._queues[lane] and self._credit[lane] > 0:
                    waiting = self._pop(lane)
                    self._credit[lane] -= waiting.size
                    return waiting
            self._refill()

    def _refill(self) -> None:
        """So many rounds as it takes until a waiting lane has credit; nobody saves more than one round."""
        rounds = min(-self._credit[lane] // CREDITS[lane] + 1 for lane, queue in enumerate(self._queues) if queue)
        for lane, queue in enumerate(self._queues):
            credit = self._credit[lane] + rounds * CREDITS[lane] if queue else CREDITS[lane]
            self._credit[lane] = min(credit, CREDITS[lane])

    def _pop(self, lane: int) -> Waiting[Note]:
        waiting = self._queues[lane].popleft()
        self._bytes[lane] -= waiting.size
        self.events -= 1
        return waiting

    def drop_oldest(self, lanes: tuple[int, ...] = DROPS) -> Waiting[Note]:
        """Drop the oldest event of the first of these lanes in which any waits; there is one."""
        return self._pop(next(lane for lane in lanes if self._queues[lane]))

    def expire(self, now_ns: int) -> list[Waiting[Note]]:
        """Take out the events whose time to live is over. Cheap while there can be none."""
        if self._earliest_ns is None or now_ns < self._earliest_ns:
            return []
        gone: list[Waiting[Note]] = []
        left: list[int] = []
        for lane in range(LANES):
            queue = self._queues[lane]
            kept: list[Waiting[Note]] = []
            for waiting in queue:
                deadline_ns = waiting.deadline_ns
                if deadline_ns is not None and deadline_ns <= now_ns:
                    gone.append(waiting)
                    continue
                kept.append(waiting)
                if deadline_ns is not None:
                    left.append(deadline_ns)
            if len(kept) != len(queue):
                self._replace(lane, kept)
        self._earliest_ns = min(left, default=None)
        return gone

    def take_back(self, duties: int) -> list[tuple[Note, int]]:
        """Strip these units from the reliable events; the notes of those that this concerns, and what was stripped.

        An event that is for nobody else is gone: the two have met (DUP-06). Best effort has no duties: it stays; so do
        second copies, which are not on their way to the units that they name (`publishing.replica_sender`).
        """
        found: list[tuple[Note, int]] = []
        for lane in range(LANES):
            if lane in BEST_EFFORT or not self._queues[lane]:
                continue
            kept: list[Waiting[Note]] = []
            for waiting in self._queues[lane]:
                frame = waiting.frame
                stripped = 0 if frame.flags & COPY else frame.to_serve & duties
                if stripped:
                    found.append((waiting.note, stripped))
                    if stripped == frame.to_serve:
                        continue
                    waiting.frame = frame.copy(frame.to_serve & ~duties, frame.served, frame.ttl_ms)
                kept.append(waiting)
            self._replace(lane, kept)
        return found

    def _replace(self, lane: int, kept: list[Waiting[Note]]) -> None:
        queue = self._queues[lane]
        self.events += len(kept) - len(queue)
        queue.clear()
        queue.extend(kept)
        self._bytes[lane] = sum(waiting.size for waiting in kept)

    def check(self) -> None:
        assert self.events == sum(map(len, self._queues))
        for lane, queue in enumerate(self._queues):
            assert self._bytes[lane] == sum(waiting.size for waiting in queue)
            assert self._credit[lane] <= CREDITS[lane]
            assert all(waiting.frame.lane_number == lane for waiting in queue)
