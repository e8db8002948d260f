"""Which rows of a large segment are worth testing: a few bit rows ANDed, instead of every column read.

Each side of each range has `CHECKPOINTS` values taken from the rows themselves, and for each of them one bit a row:
whether the row's bound is at or below it. For an event the bit row of the next checkpoint above its value holds all
rows that pass this side and few that do not; the AND over all sides leaves candidates, which the columns then judge.
At 100,000 rows of four ranges that is 8 bit rows of 12.5 kB instead of 6.4 MB of columns (the idea of REIN, with bits
for what passes instead of marks on what fails).

The invariant: for every row below `covered`, its bits say `bound <= checkpoint`; the rows above are the tail, which is
tested by its columns until `cover` takes it in, a piece at a time, whoever comes by first, so that nothing large is
ever built at once. Drifting data make more candidates, never wrong ones.
Rejected: two bit rows a side, surely and possibly passing (more work in every measurement); a byte for the rank of each
bound (cheaper to keep, twice as slow to read).
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf

import numpy as np
from numpy.typing import NDArray

#: Each one more halves the needless candidates of a side and costs a bit a row and side; at 32 the candidates of four
#: ranges that pass a row in 10,000 are under ten in 10,000.
CHECKPOINTS = 32
#: A tail of this many rows costs an event a few microseconds, and is due to be taken in.
TAIL = 512
#: Rows taken in at a time: at most half a millisecond of work.
PIECE = 4096
#: Rows looked at to choose the checkpoints.
SAMPLE = 4096
_BELOW = np.arange(CHECKPOINTS, dtype=np.uint8)[:, None]
#: Row j: the bits of a bound between checkpoints j-1 and j.
_PATTERNS = (np.arange(CHECKPOINTS + 1)[:, None] <= np.arange(CHECKPOINTS)[None, :]).astype(np.uint8)

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]


class Bitmap:
    """The bit rows of one segment whose bounds are columns of doubles, `bound <= value` on every side."""

    __slots__ = ("_bits", "_checkpoints", "_sample", "_words", "covered")

    def __init__(self, bounds: Floats, count: int, capacity: int) -> None:
        #: Rows below this are in the bits; a multiple of 8, since rows enter by whole bytes.
        self.covered = 0
        self._sample = count
        step = max(1, count // SAMPLE)
        quantiles = np.linspace(0.0, 1.0, CHECKPOINTS + 1)[1:-1]
        self._checkpoints: list[list[float]] = []
        for side in bounds:
            sample = np.sort(side[:count:step])
            chosen = sample[(quantiles * (len(sample) - 1)).astype(np.int64)]
            self._checkpoints.append([*chosen.tolist(), inf])
        self._allocate(len(bounds), capacity)

    @property
    def is_stale(self) -> bool:
        """Whether so many rows came since the checkpoints were chosen that they deserve a new choice."""
        return self.covered >= 4 * self._sample

    def is_behind(self, count: int) -> bool:
        """Whether the tail of a segment of `count` rows has grown long enough to be taken in."""
        return count - self.covered >= TAIL

    def grow(self, capacity: int) -> None:
        """Make room for rows up to `capacity`; there may be enough, since a segment that shrinks keeps its bits."""
        old = self._bits
        if capacity <= 8 * old.shape[1]:
            return
        self._allocate(len(self._checkpoints), capacity)
        self._bits[:, : old.shape[1]] = old

    def cover(self, bounds: Floats, count: int) -> None:
        """Take in rows from `covered` on towards `count`, as far as they fill bytes, and a piece at most."""
        start = self.covered
        end = min(count & ~7, start + PIECE)
        for side, checkpoints in enumerate(self._checkpoints):
            ranks = np.searchsorted(checkpoints, bounds[side, start:end]).astype(np.uint8)
            rows = slice(side * CHECKPOINTS, (side + 1) * CHECKPOINTS)
            self._bits[rows, start >> 3 : end >> 3] = np.packbits(ranks <= _BELOW, axis=1, bitorder="little")
        self.covered = end

    def write(self, slot: int, bounds: Floats) -> None:
        """Another row has come to stand at a covered slot."""
        ranks = [bisect_left(points, bound) for points, bound in zip(self._checkpoints, bounds.tolist(), strict=True)]
        bit = 1 << (slot & 7)
        column = self._bits[:, slot >> 3]
        column &= np.uint8(255 - bit)
        column |= _PATTERNS[ranks].ravel() * np.uint8(bit)

    def drop_last(self, count: int) -> None:
        """The segment has shrunk to `count` rows."""
        self.covered = min(self.covered, count & ~7)

    def candidates(self, values: list[float], start: int, end: int) -> Slots:
        """The covered rows in [start, end) that may pass every side; `start` is a multiple of 64."""
        end = min(end, self.covered)
        if start >= end:
            return np.empty(0, dtype=np.int64)
        first, last = start >> 6, (end + 63) >> 6
        left: NDArray[np.uint64] | None = None
        words = self._words
        for side, value in enumerate(values):
            rank = bisect_left(self._checkpoints[side], value)
            if rank == CHECKPOINTS - 1:
                continue  # every row is at or below infinity
            row = words[side * CHECKPOINTS + rank, first:last]
            left = row.copy() if left is None else np.bitwise_and(left, row, out=left)
        if left is None:
            return np.arange(start, end)
        slots = _ones(left)
        if start:
            slots += start
        # The last word may hold bits of rows that are gone or not covered yet.
        return slots[: int(slots.searchsorted(end))] if end & 63 else slots

    def _allocate(self, sides: int, capacity: int) -> None:
        self._bits = np.zeros((sides * CHECKPOINTS, (capacity + 63) // 64 * 8), dtype=np.uint8)
        self._words: NDArray[np.uint64] = self._bits.view(np.uint64)


def _ones(words: NDArray[np.uint64]) -> Slots:
    """The positions of the ones, ascending."""
    octets = words.view(np.uint8)
    occupied = octets.view(np.bool_).nonzero()[0]
    inside = np.unpackbits(octets[occupied], bitorder="little").view(np.bool_).nonzero()[0]
    slots: Slots = (occupied[inside >> 3] << 3) + (inside & 7)
    return slots
