"""Places in the logs of a network: how far each broker was read, as Spark's checkpoints keep it.

A broker has one log a table, and for `events` a second one, of best-effort events (`passed`). Offsets of a log count
up; a range of them never changes what it holds, so a batch that is planned again reads the same rows. In a checkpoint
and in `startingOffsets` they are JSON: `{"site-1": 1200}` is the next offset to read of each broker, or with best
effort `{"site-1": {"log": 1200, "passed": 40}}`.

Rows of `passed` have negative offsets in the tables, -1 for number 0; here they count up like the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

LOG: Final = "log"
PASSED: Final = "passed"

#: (broker, log): which log of which broker.
Place = tuple[str, str]
#: The next offset to read of each log.
Places = dict[Place, int]


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `end` (not included) of one log; both count up from 0, also for best effort."""

    broker: str
    log: str
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def bounds(self) -> tuple[int, int]:
        """The same as the table's column `offset` has it: from, and up to but not including."""
        return (self.start, self.end) if self.log == LOG else (-self.end, -self.start)

    def __str__(self) -> str:
        kind = "" if self.log == LOG else "best-effort "
        return f"{kind}offsets {self.start} to {self.end - 1} of broker {self.broker}"


def encode(places: Mapping[Place, int]) -> dict[str, object]:
    """As JSON for a checkpoint, in the order of the brokers' names."""
    told: dict[str, object] = {}
    for broker in sorted({broker for broker, _ in places}):
        logs = {log: places[broker, log] for log in (LOG, PASSED) if (broker, log) in places}
        told[broker] = logs if PASSED in logs else logs[LOG]
    return told


def decode(told: object) -> Places:
    """What `encode` was given; raises ValueError for what it never gives."""
    if not isinstance(told, dict):
        raise ValueError(f"offsets are an object of brokers, not {told!r:.80}")
    places: Places = {}
    for broker, value in told.items():
        for log, offset in (value if isinstance(value, dict) else {LOG: value}).items():
            if log not in {LOG, PASSED}:
                raise ValueError(f"broker {broker} has no log {log!r:.80}: there are {LOG} and {PASSED}")
            if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 63:
                raise ValueError(f"the offset of broker {broker} is a whole number from 0, not {offset!r:.80}")
            places[broker, log] = offset
    return places


def spans(start: Mapping[Place, int], end: Mapping[Place, int]) -> list[Span]:
    """What lies between two places. A log that only the later one knows begins there: it has nothing yet."""
    return [
        Span(*place, start[place], upto)
        for place, upto in sorted(end.items())
        if place in start and start[place] < upto
    ]


def limited(start: Mapping[Place, int], end: Mapping[Place, int], rows: int) -> Places:
    """As far towards `end` as so many rows go, shared evenly: what one log does not need, others get.

    A log that is new in `end` costs nothing, as it begins there.
    """
    reached = dict(end)
    waiting = sorted(spans(start, end), key=len)
    for index, span in enumerate(waiting):
        # At least one row for the last of them, or a limit below the number of logs would never move any.
        share = rows // (len(waiting) - index) if index < len(waiting) - 1 else rows
        taken = min(len(span), share)
        reached[span.broker, span.log] = span.start + taken
        rows -= taken
    return reached


def pieces(whole: Iterable[Span], rows: int) -> list[Span]:
    """Each span in the fewest pieces of at most so many rows, of about equal length."""
    cut: list[Span] = []
    for span in whole:
        count = -(-len(span) // rows)
        edges = [span.start + len(span) * index // count for index in range(count + 1)]
        cut.extend(Span(span.broker, span.log, a, b) for a, b in pairwise(edges))
    return cut
