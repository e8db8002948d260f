"""Which sessions were handed which runs of a stream: the same as one note an event, for bursts.

A run is the events of one stamp from one sequence to another, without a hole. Runs of a stream come in ascending order,
since its events are handed over in order. The oldest runs are forgotten first, and it is told up to where.

The invariant: a place lies in at most one run of its stream.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from veena.core.wire.event_id import Place, Stream

#: Runs and the receivers in them that are remembered: some 20 MiB at most.
MAX_RUNS = 20_000
MAX_RUN_RECEIVERS = 1_000_000


class HandedRuns:
    """The runs of one broker."""

    def __init__(self) -> None:
        #: By stream, ascending: the first place, and (last sequence, sessions).
        self._firsts: dict[Stream, list[Place]] = {}
        self._runs: dict[Stream, list[tuple[int, tuple[int, ...]]]] = {}
        self._order: deque[Stream] = deque()
        self._receivers = 0

    def add(self, stream: Stream, stamp: int, first: int, last: int, sessions: tuple[int, ...]) -> dict[Stream, Place]:
        """Remember a run; up to where streams are forgotten for it."""
        self._firsts.setdefault(stream, []).append((stamp, first))
        self._runs.setdefault(stream, []).append((last, sessions))
        self._order.append(stream)
        self._receivers += len(sessions)
        gone: dict[Stream, Place] = {}
        while len(self._order) > MAX_RUNS or self._receivers > MAX_RUN_RECEIVERS:
            oldest = self._order.popleft()
            if oldest not in self._runs:
                continue  # the whole stream was dropped
            stamp, _ = self._firsts[oldest].pop(0)
            last, sessions = self._runs[oldest].pop(0)
            self._receivers -= len(sessions)
            gone[oldest] = (stamp, last)
            if not self._runs[oldest]:
                del self._runs[oldest], self._firsts[oldest]
        return gone

    def find(self, stream: Stream, place: Place) -> tuple[int, ...] | None:
        """The sessions that were handed this; None if it is in no run."""
        firsts = self._firsts.get(stream)
        if not firsts:
            return None
        at = bisect_right(firsts, place) - 1
        if at < 0 or firsts[at][0] != place[0]:
            return None
        last, sessions = self._runs[stream][at]
        return sessions if place[1] <= last else None

    def drop(self, stream: Stream) -> None:
        """Forget a stream that has been quiet for long."""
        for _, sessions in self._runs.pop(stream, ()):
            self._receivers -= len(sessions)
        self._firsts.pop(stream, None)

    def check(self) -> None:
        assert self._firsts.keys() == self._runs.keys()
        assert self._receivers == sum(len(sessions) for runs in self._runs.values() for _, sessions in runs)
        assert all(firsts == sorted(firsts) for firsts in self._firsts.values())
