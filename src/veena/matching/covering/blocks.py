"""Many ranges of one shape: which of them contain a point, or lie above it, in every column.

The columns are those of `form.Plain.bounds`, where lower is wider: a row covers another one exactly when it is not
above it in any column. So "what covers this" and "what does this cover" are the same question with the signs turned:
which rows are nowhere above a point, which are nowhere below it.

Rows stand in blocks of up to `BLOCK`, each with the least and the greatest value of every column, and a question looks
only into blocks that may hold an answer. A full block is split at the median of the column that tells its rows apart
best, as in a k-d tree, so that blocks stay small in every column.

The invariant: `_least` and `_greatest` enclose every row of their block. They may be too wide after rows were removed;
that costs a look. Rejected: one array for all rows. A question then takes 150 us at a hundred thousand rows. Rejected:
sorted arrays. They answer in one column, and most selectors name two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK = 192
_FIRST = 8

Floats = NDArray[np.float64]
Bounds = tuple[float, ...]


class Blocks:
    """Rows of as many columns, each with its key."""

    __slots__ = ("_columns", "_counts", "_greatest", "_keys", "_least", "_rows")

    def __init__(self, columns: int) -> None:
        self._columns = columns
        #: By block: its rows, a column beside the other, and their keys.
        self._rows: list[Floats] = []
        self._keys: list[list[bytes]] = []
        self._counts = 0
        self._least: Floats = np.full((columns, _FIRST), np.inf)
        self._greatest: Floats = np.full((columns, _FIRST), -np.inf)
        self._open_block(np.empty((columns, 0)), [])

    def __len__(self) -> int:
        return self._counts

    def _open_block(self, rows: Floats, keys: list[bytes]) -> None:
        number = len(self._rows)
        if number == self._least.shape[1]:
            self._least = np.hstack((self._least, np.full(self._least.shape, np.inf)))
            self._greatest = np.hstack((self._greatest, np.full(self._greatest.shape, -np.inf)))
        held = np.empty((self._columns, BLOCK))
        held[:, : len(keys)] = rows
        self._rows.append(held)
        self._keys.append(keys)
        self._enclose(number)

    def _enclose(self, number: int) -> None:
        count = len(self._keys[number])
        if count:
            self._least[:, number] = self._rows[number][:, :count].min(axis=1)
            self._greatest[:, number] = self._rows[number][:, :count].max(axis=1)
        else:
            self._least[:, number], self._greatest[:, number] = np.inf, -np.inf

    def add(self, bounds: Sequence[float], key: bytes) -> None:
        point = np.array(bounds)
        number = self._nearest(point)
        while len(self._keys[number]) == BLOCK:
            self._split(number)
            number = self._nearest(point)
        keys = self._keys[number]
        self._rows[number][:, len(keys)] = point
        keys.append(key)
        self._counts += 1
        np.minimum(self._least[:, number], point, out=self._least[:, number])
        np.maximum(self._greatest[:, number], point, out=self._greatest[:, number])

    def _nearest(self, point: Floats) -> int:
        """The block that grows least when it takes this row."""
        used = len(self._rows)
        if used == 1:
            return 0
        column = point[:, None]
        with np.errstate(invalid="ignore"):  # two infinite bounds differ by nothing
            below, above = self._least[:, :used] - column, column - self._greatest[:, :used]
            missing = np.fmax(np.fmax(below, above), 0.0)
            return int(missing.sum(axis=0).argmin())

    def _split(self, number: int) -> None:
        rows, keys = self._rows[number], self._keys[number]
        column = self._telling_column(rows)
        order = np.argsort(rows[column], kind="stable")
        here, there = order[: BLOCK // 2], order[BLOCK // 2 :]
        moved, moved_keys = rows[:, there].copy(), [keys[at] for at in there.tolist()]
        rows[:, : len(here)] = rows[:, here]
        self._keys[number] = [keys[at] for at in here.tolist()]
        self._enclose(number)
        self._open_block(moved, moved_keys)

    def _telling_column(self, rows: Floats) -> int:
        """The column with the most distinct values, and of those the one that is widest beside all blocks."""
        used = len(self._rows)
        distinct = [len(np.unique(column)) for column in rows]
        most = max(distinct)
        with np.errstate(invalid="ignore", divide="ignore"):
            all_wide = self._greatest[:, :used].max(axis=1) - self._least[:, :used].min(axis=1)
            wide = np.nan_to_num((rows.max(axis=1) - rows.min(axis=1)) / all_wide, nan=0.0, posinf=1.0)
        good = [at for at in range(self._columns) if 2 * distinct[at] >= most]
        return max(good, key=lambda at: (wide[at], -at))

    def remove(self, bounds: Sequence[float], key: bytes) -> bool:
        """Take out a row, if it is there; whether it was."""
        column = np.array(bounds)[:, None]
        used = len(self._rows)
        may = np.logical_and.reduce((self._least[:, :used] <= column) & (self._greatest[:, :used] >= column))
        for number in may.nonzero()[0].tolist():
            keys = self._keys[number]
            if key in keys:
                at, last = keys.index(key), len(keys) - 1
                self._rows[number][:, at] = self._rows[number][:, last]
                keys[at] = keys[last]
                keys.pop()
                self._counts -= 1
                if not last or not last % 32:
                    self._enclose(number)
                return True
        return False

    def wider(self, bounds: Sequence[float]) -> Iterator[bytes]:
        """The keys of the rows that are nowhere above this."""
        column, used = np.array(bounds)[:, None], len(self._rows)
        may = np.logical_and.reduce(self._least[:, :used] <= column)
        for number in may.nonzero()[0].tolist():
            keys = self._keys[number]
            rows = self._rows[number][:, : len(keys)]
            for at in np.logical_and.reduce(rows <= column).nonzero()[0].tolist():
                yield keys[at]

    def narrower(self, bounds: Sequence[float], at: Sequence[int]) -> Iterator[bytes]:
        """The keys of the rows that are nowhere below this in these columns.

        It goes block by block; rows may come and go between two keys, and of those that do either answer is right."""
        column, chosen, start = np.array(bounds)[:, None], list(at), 0
        while start < len(self._rows):  # rows that a split moves meanwhile stand in a block behind all others
            used = len(self._rows)
            may = np.logical_and.reduce(self._greatest[chosen, start:used] >= column)
            for number in (may.nonzero()[0] + start).tolist():
                keys = self._keys[number][:]
                rows = self._rows[number][chosen, : len(keys)]
                for place in np.logical_and.reduce(rows >= column).nonzero()[0].tolist():
                    yield keys[place]
            start = used

    def items(self) -> Iterator[tuple[Bounds, bytes]]:
        for rows, keys in zip(self._rows, self._keys, strict=True):
            for at, key in enumerate(keys):
                yield tuple(rows[:, at].tolist()), key

    def check(self) -> None:
        assert self._counts == sum(map(len, self._keys))
        for number, keys in enumerate(self._keys):
            rows = self._rows[number][:, : len(keys)]
            assert len(keys) <= BLOCK
            assert (rows >= self._least[:, number : number + 1]).all()
            assert (rows <= self._greatest[:, number : number + 1]).all()
