"""The runs that were sent over links and are not acknowledged, by the numbers of their frames.

An acknowledgement names numbers as ranges with exceptions. Where it names all events of a run, the run is done there;
where it names some of them, the run is parted, and each event counts by itself (`router.Router.on_done`).

The invariant: a run that is not parted is found here for each connection in its `sent`, and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container

from veena.core.delivery.in_flight import Flight, Run
from veena.core.routing.duties import Duties
from veena.core.wire.control import Done


class SentRuns:
    """The runs that were sent over one connection, by the numbers of their frames, ascending."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return len(self._runs)

    def all(self) -> list[Run]:
        return list(self._runs)

    def add(self, number: int, run: Run) -> None:
        assert not self._numbers or number > self._numbers[-1], "numbers ascend"
        self._numbers.append(number)
        self._runs.append(run)

    def remove(self, number: int) -> None:
        at = bisect_left(self._numbers, number)
        assert self._numbers[at] == number
        del self._numbers[at], self._runs[at]

    def done(self, frame: Done) -> tuple[list[Run], list[Run]]:
        """The runs that an acknowledgement names, all events of them or only some. Those done wholly are taken out."""
        whole: list[Run] = []
        partly: dict[Run, None] = {}
        for at, (first, last) in enumerate(frame.ranges):
            begin = max(0, bisect_right(self._numbers, first) - 1)
            end = bisect_right(self._numbers, last, begin)
            vector = int.from_bytes(frame.exceptions[at], "little") if frame.exceptions else 0
            left: list[int] = []
            for place in range(begin, end):
                number, run = self._numbers[place], self._runs[place]
                beyond = number + run.count
                is_missed = number >= first and vector >> (number - first) & ((1 << run.count) - 1)
                if first <= number and beyond <= last + 1 and not is_missed:
                    whole.append(run)
                    continue
                if beyond > first:
                    partly[run] = None
                left.append(place)
            self._numbers[begin:end] = [self._numbers[place] for place in left]
            self._runs[begin:end] = [self._runs[place] for place in left]
        return whole, list(partly)

    def check(self, connection: int) -> None:
        assert self._numbers == sorted(self._numbers)
        for number, run in zip(self._numbers, self._runs, strict=True):
            assert run.sent[connection][0] == number, "a run knows what was sent of it"


class RunsByLink:
    """The same for all connections of one broker. `sent` has the copies that went one by one, by connection."""

    def __init__(self, duties: Duties, sent: dict[int, dict[int, tuple[Flight, int]]]) -> None:
        self._duties = duties
        self._singles = sent
        self._runs: dict[int, SentRuns] = {}
        duties.on_parted.append(self._parted)

    def add(self, connection: int, number: int, run: Run, duties: int) -> None:
        """A run has gone over a connection, with this number as that of its first event."""
        run.sent[connection] = (number, duties)
        if connection not in self._runs:
            self._runs[connection] = SentRuns()
        self._runs[connection].add(number, run)

    def done(self, connection: int, frame: Done, now_ns: int) -> None:
        """An acknowledgement came; what it says of runs that it names in part, flights are to be asked for."""
        runs = self._runs.get(connection)
        whole, partly = runs.done(frame) if runs is not None else ([], [])
        for run in partly:
            self._duties.part(run)
        for run in whole:
            _, duties = run.sent.pop(connection)
            self._duties.complete_run(run, duties, now_ns)
        self._forget_empty(connection)

    def part(self, connection: int, duties: int) -> None:
        """Part the runs that were sent over a connection for any of these units."""
        runs = self._runs.get(connection)
        for run in runs.all() if runs is not None else ():
            if run.sent[connection][1] & duties:
                self._duties.part(run)
        self._forget_empty(connection)

    def _parted(self, run: Run) -> None:
        """The copies of a run are known one by one from now on."""
        assert run.flights is not None
        for connection, (number, duties) in run.sent.items():
            self._runs[connection].remove(number)
            copies = {number + at: (flight, duties) for at, flight in enumerate(run.flights)}
            self._singles.setdefault(connection, {}).update(copies)
        run.sent = {}

    def _forget_empty(self, connection: int) -> None:
        if connection in self._runs and not len(self._runs[connection]):
            del self._runs[connection]

    def check(self, connections: Container[int]) -> None:
        for connection, runs in self._runs.items():
            assert connection in connections or not len(runs)
            runs.check(connection)
