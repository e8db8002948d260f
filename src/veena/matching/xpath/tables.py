"""Who waits for a number above, below or between: the constants of one question, kept so that one look answers all.

Profiles that ask the same question with different bounds stand in one table. With one bound the constants are sorted,
and those that a value satisfies are a prefix or a suffix: one bisection, whatever their number. With several bounds
(`[price>1 and year<2004]`) they are columns, compared as wholes. Without bounds there is one holder.

Sorted constants stand in blocks of some hundred, so that an insertion moves a block and not the table; each block
keeps the ids and the running ORs of its destinations until it changes, so that no change costs more than one block.

The invariants: a key has one holder, a bare id or a `Crowd` of two or more; `keys` of a block ascend and blocks do;
caches are None exactly when they may be stale. Requirement ids: DST-04..08, EXP-33. Rejected: one sorted NumPy array
with a list of late-comers. It is faster to read by a few microseconds and pauses for a merge.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import or_
from typing import cast

import numpy as np
from numpy.typing import NDArray

from veena.matching.base.engine import Crowd, DestinationCounts, Holder

#: One number a bound: the one found in the document that satisfies most constants.
View = tuple[float, ...]
#: (constants up to the value rather than from it, the value itself included).
Direction = tuple[bool, bool]

#: Half of this is a block after a split: an insertion moves 2 kB on average.
BLOCK_SIZE = 512
#: Below this a loop is faster than NumPy.
COLUMNS_FROM = 24
LONGEST_WORD = (1 << 64) - 1


class Found:
    """The ids that an event has collected; some may stand there twice."""

    __slots__ = ("arrays", "ids")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.arrays: list[NDArray[np.int64]] = []

    def take(self, holder: Holder) -> None:
        if isinstance(holder, Crowd):
            self.ids.extend(holder.ids)
        else:
            self.ids.append(holder)

    def ascending(self) -> list[int]:
        if not self.arrays:
            return sorted(set(self.ids))
        if self.ids:
            self.arrays.append(np.array(self.ids, dtype=np.int64))
        merged = np.concatenate(self.arrays)
        merged.sort()
        if len(merged) > 1:
            merged = merged[np.concatenate(([True], merged[1:] != merged[:-1]))]
        return cast("list[int]", merged.tolist())


def with_profile(holder: Holder | None, profile_id: int, destination: int, destinations: dict[int, int]) -> Holder:
    """The holder that has this profile as well; `destinations` knows where a bare id leads."""
    if holder is None:
        return profile_id
    if not isinstance(holder, Crowd):
        crowd = Crowd()
        crowd.admit(holder, destinations[holder])
        holder = crowd
    holder.admit(profile_id, destination)
    return holder


def without_profile(holder: Holder, profile_id: int, destination: int) -> Holder | None:
    if not isinstance(holder, Crowd):
        assert holder == profile_id, "a constraint held by another profile"
        return None
    holder.dismiss(profile_id, destination)
    return holder.ids[0] if len(holder.ids) == 1 else holder


def count_holders(counts: DestinationCounts, holders: list[Holder], destinations: dict[int, int]) -> None:
    """Count the destinations of all their profiles."""
    counts.count_many([destinations[holder] for holder in holders if not isinstance(holder, Crowd)])
    for holder in holders:
        if isinstance(holder, Crowd):
            counts.count_all(holder)


class SingleTable:
    """A question without bounds: all who ask it are one holder."""

    __slots__ = ("destinations", "holder")

    def __init__(self, destinations: dict[int, int], holder: Holder | None = None) -> None:
        self.destinations = destinations
        self.holder = holder

    def __len__(self) -> int:
        return 0 if self.holder is None else 1

    def add(self, key: View, profile_id: int, destination: int) -> None:
        self.holder = with_profile(self.holder, profile_id, destination, self.destinations)

    def remove(self, key: View, profile_id: int, destination: int) -> None:
        assert self.holder is not None
        self.holder = without_profile(self.holder, profile_id, destination)

    def rows(self) -> tuple[list[list[float]], list[Holder]]:
        assert self.holder is not None
        return [], [self.holder]

    def select(self, views: list[View], found: Found) -> None:
        assert self.holder is not None
        found.take(self.holder)

    def reach(self, views: list[View], reached: int) -> int:
        holder = self.holder
        assert holder is not None
        return reached | (holder.mask if isinstance(holder, Crowd) else self.destinations[holder])


class _Block:
    __slots__ = ("holders", "ids", "keys", "masks")

    def __init__(self, keys: list[float], holders: list[Holder]) -> None:
        self.keys = keys
        self.holders = holders
        self.ids: NDArray[np.int64] | None = None
        #: The OR of the destinations from the satisfied end up to each key.
        self.masks: list[int] | None = None

    def all_ids(self) -> NDArray[np.int64]:
        if self.ids is None:
            found = Found()
            for holder in self.holders:
                found.take(holder)
            self.ids = np.array(found.ids, dtype=np.int64)
        return self.ids


class SortedTable:
    """One bound: `upward` tables answer with the constants up to a value, the others with those from it."""

    __slots__ = ("blocks", "destinations", "inclusive", "masks", "size", "tops", "upward")

    def __init__(self, directions: tuple[Direction, ...], destinations: dict[int, int]) -> None:
        self.upward, self.inclusive = directions[0]
        self.destinations = destinations
        self.blocks: list[_Block] = []
        #: The largest key of each block.
        self.tops: list[float] = []
        #: Like the masks of a block, for whole blocks.
        self.masks: list[int] | None = None
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def rows(self) -> tuple[list[list[float]], list[Holder]]:
        """What `fill` takes."""
        keys = [key for block in self.blocks for key in block.keys]
        return [keys], [holder for block in self.blocks for holder in block.holders]

    def fill(self, bounds: list[list[float]], holders: list[Holder]) -> None:
        """Make an empty table that of all these; the constants ascend."""
        self.size = len(holders)
        for start in range(0, self.size, BLOCK_SIZE // 2):
            part = slice(start, start + BLOCK_SIZE // 2)
            block = _Block(bounds[0][part], holders[part])
            self.blocks.append(block)
            self.tops.append(block.keys[-1])

    def _block_of(self, key: float) -> int:
        return min(bisect_left(self.tops, key), len(self.blocks) - 1)

    def add(self, key: View, profile_id: int, destination: int) -> None:
        constant = key[0]
        if not self.blocks:
            self.blocks.append(_Block([constant], [profile_id]))
            self.tops.append(constant)
            self.masks = None
            self.size = 1
            return
        number = self._block_of(constant)
        block = self.blocks[number]
        at = bisect_left(block.keys, constant)
        if at < len(block.keys) and block.keys[at] == constant:
            block.holders[at] = with_profile(block.holders[at], profile_id, destination, self.destinations)
        else:
            block.keys.insert(at, constant)
            block.holders.insert(at, profile_id)
            self.size += 1
            self.tops[number] = block.keys[-1]
            if len(block.keys) > BLOCK_SIZE:
                self._split(number)
        block.ids = block.masks = self.masks = None

    def _split(self, number: int) -> None:
        block = self.blocks[number]
        half = len(block.keys) // 2
        self.blocks.insert(number + 1, _Block(block.keys[half:], block.holders[half:]))
        del block.keys[half:], block.holders[half:]
        self.tops[number : number + 1] = [block.keys[-1], self.tops[number]]

    def remove(self, key: View, profile_id: int, destination: int) -> None:
        number = self._block_of(key[0])
        block = self.blocks[number]
        at = bisect_left(block.keys, key[0])
        holder = without_profile(block.holders[at], profile_id, destination)
        if holder is not None:
            block.holders[at] = holder
        else:
            del block.keys[at], block.holders[at]
            self.size -= 1
            if block.keys:
                self.tops[number] = block.keys[-1]
            else:
                del self.blocks[number], self.tops[number]
        block.ids = block.masks = self.masks = None

    def _cut(self, views: list[View]) -> tuple[int, int]:
        """The block in which the satisfied constants end (or begin), and the place in it."""
        value = views[0][0]
        if len(views) > 1:
            value = max(views)[0] if self.upward else min(views)[0]
        cut = bisect_right if self.inclusive == self.upward else bisect_left
        number = cut(self.tops, value)
        return number, cut(self.blocks[number].keys, value) if number < len(self.blocks) else 0

    def select(self, views: list[View], found: Found) -> None:
        number, at = self._cut(views)
        if self.upward:
            found.arrays.extend(block.all_ids() for block in self.blocks[:number])
            part = self.blocks[number].holders[:at] if at else []
        else:
            if number == len(self.blocks):
                return
            found.arrays.extend(block.all_ids() for block in self.blocks[number + 1 :])
            part = self.blocks[number].holders[at:]
        for holder in part:
            found.take(holder)

    def reach(self, views: list[View], reached: int) -> int:
        number, at = self._cut(views)
        if self.upward:
            if number:
                reached |= self._block_masks()[number - 1]
            if at:
                reached |= self._masks_of(self.blocks[number])[at - 1]
        elif number < len(self.blocks):
            if number + 1 < len(self.blocks):
                reached |= self._block_masks()[number + 1]
            if at < len(self.blocks[number].keys):
                reached |= self._masks_of(self.blocks[number])[at]
        return reached

    def _masks_of(self, block: _Block) -> list[int]:
        if block.masks is None:
            where = self.destinations
            block.masks = self._running([h.mask if isinstance(h, Crowd) else where[h] for h in block.holders])
        return block.masks

    def _block_masks(self) -> list[int]:
        if self.masks is None:
            end = -1 if self.upward else 0
            self.masks = self._running([self._masks_of(block)[end] for block in self.blocks])
        return self.masks

    def _running(self, masks: list[int]) -> list[int]:
        return list(accumulate(masks, or_)) if self.upward else list(accumulate(reversed(masks), or_))[::-1]


class ColumnTable:
    """Several bounds that must hold together: a column each, a row a distinct constraint."""

    __slots__ = ("columns", "destinations", "directions", "holders", "ids", "keys", "long", "masks", "places", "union")

    def __init__(self, directions: tuple[Direction, ...], destinations: dict[int, int]) -> None:
        self.directions = directions
        self.destinations = destinations
        self.keys: list[View] = []
        self.holders: list[Holder] = []
        self.places: dict[View, int] = {}
        #: One row a bound; made when there are COLUMNS_FROM keys, and grown by doubling.
        self.columns: NDArray[np.float64] = np.empty((len(directions), 0))
        #: The id of each row, or -1 for a crowd.
        self.ids: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        #: The destinations of each row, while none is longer than a word.
        self.masks: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self.long = False
        #: The OR of all destinations, exact through removals.
        self.union = DestinationCounts()

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self) -> tuple[list[list[float]], list[Holder]]:
        """What `fill` takes: a list a bound."""
        return [list(column) for column in zip(*self.keys, strict=True)], self.holders

    def fill(self, bounds: list[list[float]], holders: list[Holder]) -> None:
        """Make an empty table that of all these."""
        self.keys = list(zip(*bounds, strict=True))
        self.holders = holders
        self.places = dict(zip(self.keys, range(len(holders)), strict=True))
        count_holders(self.union, holders, self.destinations)
        self.long = self.union.mask > LONGEST_WORD
        if len(holders) >= COLUMNS_FROM:
            self.columns = np.array(bounds)
            self.ids = np.array([-1 if isinstance(h, Crowd) else h for h in holders], dtype=np.int64)
            if self.long:
                self.masks = np.empty(len(holders), dtype=np.uint64)
            else:
                self.masks = np.array([self._mask(holder) for holder in holders], dtype=np.uint64)

    def add(self, key: View, profile_id: int, destination: int) -> None:
        at = self.places.get(key)
        if at is None:
            at = self.places[key] = len(self.keys)
            self.keys.append(key)
            self.holders.append(profile_id)
        else:
            self.holders[at] = with_profile(self.holders[at], profile_id, destination, self.destinations)
        self.union.count(destination)
        self.long = self.long or destination > LONGEST_WORD
        if len(self.keys) > len(self.ids) and len(self.keys) >= COLUMNS_FROM:
            self._grow()
        elif at < len(self.ids):
            self._write(at)

    def remove(self, key: View, profile_id: int, destination: int) -> None:
        at = self.places[key]
        holder = without_profile(self.holders[at], profile_id, destination)
        self.union.discount(destination)
        if holder is None:
            del self.places[key]
            last_key, holder = self.keys.pop(), self.holders.pop()
            if at == len(self.keys):
                return
            self.keys[at] = last_key
            self.places[last_key] = at
        self.holders[at] = holder
        if at < len(self.ids):
            self._write(at)

    def _grow(self) -> None:
        size = 2 * len(self.keys)
        columns, ids, masks = self.columns, self.ids, self.masks
        filled = len(ids)
        self.columns = np.empty((len(self.directions), size))
        self.ids = np.empty(size, dtype=np.int64)
        self.masks = np.empty(size, dtype=np.uint64)
        self.columns[:, :filled], self.ids[:filled], self.masks[:filled] = columns, ids, masks
        for at in range(filled, len(self.keys)):
            self._write(at)

    def _write(self, at: int) -> None:
        holder = self.holders[at]
        self.columns[:, at] = self.keys[at]
        self.ids[at] = -1 if isinstance(holder, Crowd) else holder
        if not self.long:
            self.masks[at] = self._mask(holder)

    def _mask(self, holder: Holder) -> int:
        return holder.mask if isinstance(holder, Crowd) else self.destinations[holder]

    def _rows(self, views: list[View]) -> NDArray[np.intp] | list[int]:
        """The rows for which some view satisfies all bounds."""
        count = len(self.keys)
        if count < COLUMNS_FROM:
            return [at for at, key in enumerate(self.keys) if any(self._satisfies(view, key) for view in views)]
        held: NDArray[np.bool_] | None = None
        for view in views:
            every: NDArray[np.bool_] | None = None
            for (upward, inclusive), column, value in zip(self.directions, self.columns, view, strict=True):
                part = column[:count]
                if upward:
                    test = part <= value if inclusive else part < value
                else:
                    test = part >= value if inclusive else part > value
                every = test if every is None else np.logical_and(every, test, out=every)
            held = every if held is None or every is None else np.logical_or(held, every, out=held)
        assert held is not None
        return np.flatnonzero(held)

    def _satisfies(self, view: View, key: View) -> bool:
        for (upward, inclusive), constant, value in zip(self.directions, key, view, strict=True):
            if constant == value:
                if not inclusive:
                    return False
            elif (constant < value) != upward:
                return False
        return True

    def select(self, views: list[View], found: Found) -> None:
        rows = self._rows(views)
        if isinstance(rows, list):
            for at in rows:
                found.take(self.holders[at])
            return
        ids = self.ids[rows]
        crowds = ids < 0
        if crowds.any():
            for at in rows[crowds].tolist():
                found.take(self.holders[at])
            ids = ids[~crowds]
        found.arrays.append(ids)

    def reach(self, views: list[View], reached: int) -> int:
        union = self.union.mask
        if not union & ~reached:
            return reached
        rows = self._rows(views)
        if not isinstance(rows, list):
            if not self.long:
                return reached | int(np.bitwise_or.reduce(self.masks[rows]))
            rows = rows.tolist()
        for at in rows:
            reached |= self._mask(self.holders[at])
            if not union & ~reached:
                break
        return reached


Table = SingleTable | SortedTable | ColumnTable


def filled_tables(
    directions: tuple[Direction, ...],
    destinations: dict[int, int],
    sizes: list[int],
    bounds: list[list[float]],
    holders: list[Holder],
) -> list[Table]:
    """Tables that stand one after the other in columns, each with so many rows."""
    if not directions:
        return [SingleTable(destinations, holder) for holder in holders]
    tables: list[Table] = []
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        table = SortedTable(directions, destinations) if len(directions) == 1 else ColumnTable(directions, destinations)
        table.fill([column[part] for column in bounds], holders[part])
        tables.append(table)
        start += size
    return tables


def make_table(directions: tuple[Direction, ...], destinations: dict[int, int]) -> Table:
    if not directions:
        return SingleTable(destinations)
    return SortedTable(directions, destinations) if len(directions) == 1 else ColumnTable(directions, destinations)
