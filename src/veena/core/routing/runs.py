"""The runs of one broker: reliable events that came together and are alike, with one record for all of them.

A broker that carries bursts would pay for a flight, a claim, a copy and an answer of each event. As long as nothing
differs among the events of a burst, `Run` stands for all of them. Whoever needs one of them by itself, or what is open
in order, parts the run into flights first (`duties.Duties.part`); the flights then say what the run said. So every rule
of routing is stated for flights alone, and a run changes none of them.

The invariant: a run is found by the id of each of its events, by its source and by the connections over which it was
sent; runs of one stream do not overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

from veena.core.delivery.in_flight import LOG, Run
from veena.core.wire.event_id import EventKey

#: The runs of one stamp in order of sequence: with publisher and incarnation they are found by the id of an event.
_Stamp = tuple[bytes, int, int]


def _first(run: Run) -> int:
    return run.burst.first_sequence


class Runs:
    """In the order in which they were taken."""

    def __init__(self) -> None:
        self._all: dict[Run, None] = {}
        self._by_stamp: dict[_Stamp, list[Run]] = {}
        self._by_source: dict[int, dict[Run, None]] = {}
        #: What they hold: events, and bytes.
        self.events = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._all)

    def all(self) -> list[Run]:
        return list(self._all)

    def oldest(self, before_ns: int) -> list[Run]:
        """Those that were taken before then."""
        found: list[Run] = []
        for run in self._all:
            if run.since_ns > before_ns:
                break
            found.append(run)
        return found

    def open(self, mask: int) -> list[Run]:
        """Those that have one of these duties open."""
        return [run for run in self._all if run.open & mask]

    def of_source(self, source: int) -> list[Run]:
        return list(self._by_source.get(source, ()))

    def find(self, key: EventKey) -> Run | None:
        """The run that an event is in."""
        runs = self._by_stamp.get(key[:3])
        at = bisect_right(runs, key[3], key=_first) - 1 if runs else -1
        if runs is None or at < 0:
            return None
        return runs[at] if key[3] <= runs[at].burst.last_sequence else None

    def overlaps(self, key: EventKey, last_sequence: int) -> bool:
        """Whether a run holds any of the events from this one to that sequence."""
        runs = self._by_stamp.get(key[:3])
        if not runs:
            return False
        at = bisect_right(runs, last_sequence, key=_first) - 1
        return at >= 0 and runs[at].burst.last_sequence >= key[3]

    def add(self, run: Run) -> None:
        self._all[run] = None
        runs = self._by_stamp.setdefault(run.first_key[:3], [])
        runs.insert(bisect_left(runs, _first(run), key=_first), run)
        if run.source != LOG:
            self._by_source.setdefault(run.source, {})[run] = None
        self.events += run.count
        self.bytes += run.size

    def remove(self, run: Run) -> None:
        del self._all[run]
        stamp = run.first_key[:3]
        runs = self._by_stamp[stamp]
        del runs[bisect_left(runs, _first(run), key=_first)]
        if not runs:
            del self._by_stamp[stamp]
        if run.source != LOG:
            of_source = self._by_source[run.source]
            del of_source[run]
            if not of_source:
                del self._by_source[run.source]
        self.events -= run.count
        self.bytes -= run.size

    def check(self) -> None:
        assert self.events == sum(run.count for run in self._all)
        assert self.bytes == sum(run.size for run in self._all)
        by_stamp = [run for runs in self._by_stamp.values() for run in runs]
        assert len(by_stamp) == len(self._all) and all(run in self._all for run in by_stamp)
        assert sum(map(len, self._by_source.values())) == sum(run.source != LOG for run in self._all)
        for runs in self._by_stamp.values():
            for one, other in pairwise(runs):
                assert one.burst.last_sequence < other.burst.first_sequence, "runs do not overlap"
        for run in self._all:
            assert run.flights is None and run.open, "a run that is parted or done is forgotten"
            assert not run.done & ~run.taken, "what is done was taken"
