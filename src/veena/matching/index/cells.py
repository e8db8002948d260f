"""What all events of a neighbourhood share: the destinations that any value between two checkpoints surely leads to.

The OR of destinations needs no list of rows, only one row for each destination, and where thousands of rows hang under
one value the same wide ranges answer for all events nearby. So the values of a segment with a single range are cut into
cells at checkpoints taken from its own bounds. Rows that hold at both ends of a cell hold of every value in it; the OR
of their destinations is remembered, and the next event in the cell looks it up (DST-06, DST-07). Where it lacks a
destination, the rows are walked as ever, but only for what is missing.

The invariant: what is remembered of a cell is a part of what every value in it leads to. Rows that come can only add to
that; when a row goes, or leads to fewer destinations, the cells in its range are forgotten, unless the row lies where
nobody has looked: the first rows of a segment mostly suffice.
Rejected: remembering the answer for each value that was seen. Values of prices and times are all different, cells are
not. Also rejected: keeping the masks exact as rows go, which takes a count for each cell and destination. And cells of
several ranges: with four of them hardly any row holds in the whole of a cell that is coarse enough to be met again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

import numpy as np

from veena.matching.index.bitmap import Floats

#: Where a range is several cells wide, nearly all rows that hold of a value hold in its cell; 64 masks are 2 kB.
CHECKPOINTS = 64
#: Bounds looked at to choose the checkpoints.
SAMPLE = 512
#: Events that a segment answers in the plain way before it has cells: making them takes longer than one such answer.
FIRST_ASKED = 16
#: And those after it had to forget, or looked in vain for a row for each destination; twice as many each further time,
#: up to the limit. Where rows go as fast as events come, or few of them hold at all, looking at cells is a waste.
PATIENCE, MAX_PATIENCE = 8, 4096
_QUANTILES = np.linspace(0.0, 1.0, CHECKPOINTS)


class Cells:
    """The cells of one segment whose rows have one range each."""

    __slots__ = ("_checkpoints", "_masks", "_patience", "_rest", "_seen")

    def __init__(self, bounds: Floats) -> None:
        step = max(1, bounds.shape[1] // SAMPLE)
        sample = np.concatenate((bounds[0, ::step], -bounds[1, ::step]))
        finite = np.sort(sample[np.isfinite(sample)])
        chosen = finite[(_QUANTILES * (len(finite) - 1)).astype(np.int64)] if len(finite) else finite
        #: Ascending; cell n lies between the checkpoints n - 1 and n, both of them included.
        self._checkpoints: list[float] = [-inf, *dict.fromkeys(chosen.tolist()), inf]
        #: None where nobody has looked yet.
        self._masks: list[int | None] = [None] * (len(self._checkpoints) + 1)
        #: By cell: no row from this slot on was looked at. Rows never move up, so what is known rests on those below.
        self._seen = [0] * len(self._masks)
        self._patience = 0
        #: How long to be patient the next time.
        self._rest = PATIENCE

    def forget(self, slot: int, low: float, high: float) -> None:
        """The row of that slot and range is about to go, or leads to fewer destinations."""
        # Those that the range ends in are asked too, needlessly but for a bound that is a checkpoint.
        first, last = bisect_left(self._checkpoints, low), bisect_right(self._checkpoints, high)
        seen = self._seen
        for cell in range(first, min(last + 1, len(seen))):
            if slot < seen[cell]:
                self._masks[cell] = None
                seen[cell] = 0
                self._patience = max(self._patience, PATIENCE)

    def forget_all(self) -> None:
        self._masks = [None] * len(self._masks)
        self._seen = [0] * len(self._masks)
        self._patience = max(self._patience, PATIENCE)

    def cell(self, low: float, high: float) -> int:
        """The cell of a value, given as the doubles around it; -1 when it is to be answered in the plain way."""
        if self._patience:
            self._patience -= 1
            return -1
        cell = bisect_right(self._checkpoints, low)
        # Of infinity itself, and of a whole number with a checkpoint between its two doubles.
        return cell if cell < len(self._checkpoints) and high <= self._checkpoints[cell] else -1

    def mask(self, cell: int) -> int | None:
        """Destinations of every value in the cell; None when they have to be looked for."""
        return self._masks[cell]

    def ends(self, cell: int) -> list[float]:
        """What rows are tested against to find those that hold in the whole cell."""
        return [self._checkpoints[cell - 1], -self._checkpoints[cell]]

    def learn(self, cell: int, mask: int, seen: int, *, is_all: bool) -> None:
        """What the rows in the first `seen` slots say of a cell, and whether that is every destination there is."""
        self._masks[cell] = mask
        self._seen[cell] = seen
        if is_all:
            self._rest = PATIENCE
        else:
            self._patience = self._rest
            self._rest = min(2 * self._rest, MAX_PATIENCE)
