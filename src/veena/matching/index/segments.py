"""Where rows live: contiguous columns, one segment for each group of rows that an event meets together.

A table holds the rows that test the same features (or, where too many combinations meet, a fixed number of features
named row by row); a segment is a run of its rows with one owner column beside the bounds. Small segments share pages,
so that a cluster of one row costs no array of its own; large ones have a page to themselves and a bitmap.

Every test is `bound <= value`: upper bounds are stored with the sign turned, and so is what they are tested against.

The invariants: rows [0, count) of a segment are live and in no particular order; a removal moves the last row into
the gap; all slots are relative to the segment, so moving a segment changes no slot. Growth copies one segment of at
most `MAX_SEGMENT` rows, never a whole index.
Rejected: one growing array a table. Its doubling at a million rows is a pause of tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from veena.matching.index.bitmap import Bitmap, Floats, Slots
from veena.matching.index.cells import FIRST_ASKED, Cells
from veena.matching.index.rows import prefix_length

#: Rows of a shared page, and of the largest segment in one: above it, an array of its own costs little.
PAGE = 4096
FIRST_PAGE = 16
SHARED_SEGMENT = 1024
#: Bounds of a segment below which a bitmap does not pay: reading the columns takes less than the extra calls.
BITMAP_FROM = 1 << 16
#: Limits of the piece that is tested first when a few matches may do: below, the calls cost more than the rows.
SHORTEST_PIECE, FIRST_PIECE = 512, 1 << 12
#: Growing copies a segment, so this bounds the pause of an add: 131,072 rows of four ranges in about 5 ms.
MAX_SEGMENT = 1 << 17
#: Up to this many sides are tested one by one sooner than all at once.
FEW_SIDES = 4
#: A table without own features tests up to this many, named in each row.
MIXED_WIDTHS = (2, 4)

_NO_SLOTS: Slots = np.empty(0, dtype=np.int64)
_NO_RESTS: NDArray[np.int32] = np.empty(0, dtype=np.int32)
_NO_FEATURES: NDArray[np.int32] = np.empty((0, 0), dtype=np.int32)


class Access:
    """The rows that hang under the values of one attribute, or under none when the attribute is `""`.

    A chain is a few segments linked by `next`. Its key is what `rows` makes of a value or of a prefix. Among
    thousands of topics with a few selectors each most have one key: it stands here, and only a second one makes a dict.
    Rejected: always a dict, 290 bytes a topic for one entry.
    """

    __slots__ = ("_chains", "_first", "_key", "lengths", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        #: The only key and its chain, while there is no dict.
        self._key: object = None
        self._first: Segment | None = None
        self._chains: dict[object, Segment] | None = None
        #: How many prefixes of each length have a chain; None for none at all.
        self.lengths: dict[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        return self._first is None and self._chains is None

    def held(self) -> list[object]:
        """The keys that have a chain, in the order in which they came."""
        if self._chains is not None:
            return list(self._chains)
        return [] if self._first is None else [self._key]

    def head(self, key: object) -> Segment | None:
        """The first segment of a chain."""
        if self._chains is not None:
            return self._chains.get(key)
        return self._first if self._first is not None and self._key == key else None

    def rows(self, key: object) -> int:
        return sum(segment.count for segment in self.chain(key))

    def chain(self, key: object) -> Iterator[Segment]:
        segment = self.head(key)
        while segment is not None:
            yield segment
            segment = segment.next

    def link(self, segment: Segment) -> None:
        key = segment.key
        segment.next = self.head(key)
        if segment.next is None and (length := prefix_length(key)):
            if self.lengths is None:
                self.lengths = {}
            self.lengths[length] = self.lengths.get(length, 0) + 1
        self._put(key, segment)

    def _put(self, key: object, segment: Segment) -> None:
        """Let a chain begin with this segment."""
        if self._chains is not None:
            self._chains[key] = segment
        elif self._first is None or self._key == key:
            self._key, self._first = key, segment
        else:
            self._chains = {self._key: self._first, key: segment}
            self._key = self._first = None

    def unlink(self, segment: Segment) -> None:
        key = segment.key
        previous = self.head(key)
        assert previous is not None, "a segment outside its chain"
        if previous is segment:
            if segment.next is not None:
                self._put(key, segment.next)
            else:
                self._drop(key)
            return
        while previous.next is not segment:
            assert previous.next is not None, "a segment outside its chain"
            previous = previous.next
        previous.next = segment.next

    def _drop(self, key: object) -> None:
        """Forget a chain that is over."""
        if self._chains is None:
            self._key = self._first = None
        else:
            del self._chains[key]
            if not self._chains:
                self._chains = None
        if self.lengths is not None and (length := prefix_length(key)):
            self.lengths[length] -= 1
            if not self.lengths[length]:
                del self.lengths[length]
                if not self.lengths:
                    self.lengths = None


class Page:
    """Columns for a number of rows; each row belongs to at most one segment."""

    __slots__ = ("bounds", "features", "owners", "rests", "used")

    def __init__(self, sides: int, rows: int, has_rest: bool, is_mixed: bool) -> None:
        self.bounds: Floats = np.empty((sides, rows))
        self.owners: NDArray[np.int32] = np.empty(rows, dtype=np.int32)
        self.rests: NDArray[np.int32] = np.empty(rows, dtype=np.int32) if has_rest else _NO_RESTS
        self.features: NDArray[np.int32] = np.zeros((sides // 2, rows), dtype=np.int32) if is_mixed else _NO_FEATURES
        #: Rows given to segments, for shared pages.
        self.used = 0

    def copy(self, start: int, count: int, other: Page, other_start: int) -> None:
        """Rows of another page of the same table."""
        here, there = slice(start, start + count), slice(other_start, other_start + count)
        self.bounds[:, here] = other.bounds[:, there]
        self.owners[here] = other.owners[there]
        if len(self.rests):
            self.rests[here] = other.rests[there]
        if len(self.features):
            self.features[:, here] = other.features[:, there]

    def move(self, start: int, to: int) -> None:
        self.copy(to, 1, self, start)


class Table:
    """Rows that test the same features; `features` is empty for a mixed table, whose rows name their own."""

    __slots__ = ("_free", "_pages", "bitmaps", "features", "has_rest", "is_mixed", "segments", "sides")

    def __init__(self, features: tuple[int, ...], width: int, has_rest: bool, is_mixed: bool) -> None:
        self.features = features
        self.sides = 2 * width
        self.has_rest = has_rest
        self.is_mixed = is_mixed
        #: Segments that have rows here; a table without any is dropped.
        self.segments = 0
        self.bitmaps = 0
        self._pages: list[Page] = []
        #: Vacant runs by their length.
        self._free: dict[int, list[tuple[Page, int]]] = {}

    def page(self, rows: int) -> Page:
        return Page(self.sides, rows, self.has_rest, self.is_mixed)

    def allocate(self, rows: int) -> tuple[Page, int]:
        """A run of `rows` rows, a power of two, in a shared page."""
        if not self._pages:
            page = self.page(max(rows, FIRST_PAGE))
            self._pages.append(page)
            page.used = rows
            return page, 0
        vacant = self._free.get(rows)
        if vacant:
            return vacant.pop()
        page = self._pages[-1]
        if page.used + rows > len(page.owners):
            self._abandon(page)
            total = sum(len(known.owners) for known in self._pages[-8:])
            page = self.page(max(rows, min(PAGE, total)))
            self._pages.append(page)
        start = page.used
        page.used += rows
        return page, start

    def free(self, page: Page, start: int, rows: int) -> None:
        self._free.setdefault(rows, []).append((page, start))

    def _abandon(self, page: Page) -> None:
        """What is left at the end of a page serves smaller segments."""
        while page.used < len(page.owners):
            rows = min(SHARED_SEGMENT, 1 << ((len(page.owners) - page.used).bit_length() - 1))
            self.free(page, page.used, rows)
            page.used += rows


class Segment:
    """A run of rows of one table that an event meets together."""

    __slots__ = (
        "access",
        "asked",
        "bitmap",
        "capacity",
        "cells",
        "count",
        "key",
        "next",
        "page",
        "piece",
        "start",
        "table",
    )

    def __init__(self, table: Table, access: Access, key: object) -> None:
        self.table = table
        #: Where an event finds the segment: in the chain that starts at `access.head(key)`.
        self.access = access
        self.key = key
        self.next: Segment | None = None
        self.count = 0
        self.capacity = 1
        self.page, self.start = table.allocate(1)
        self.bitmap: Bitmap | None = None
        #: Made when it has been asked for a few times, and anew after every growth.
        self.cells: Cells | None = None
        self.asked = 0
        #: Rows to test first when any few matches may do; a multiple of 64.
        self.piece = FIRST_PIECE
        table.segments += 1

    def append(self, owner: int, bounds: Sequence[float], rest: int, features: Sequence[int]) -> int:
        """Add a row and return its slot; only the rows of a mixed table name features."""
        if self.count == self.capacity:
            self._resize(2 * self.capacity if self.capacity < 4 * PAGE else self.capacity + self.capacity // 4)
        slot = self.count
        page, at = self.page, self.start + slot
        columns = page.bounds
        for side, bound in enumerate(bounds):
            columns[side, at] = bound
        page.owners[at] = owner
        if self.table.has_rest:
            page.rests[at] = rest
        for index, feature in enumerate(features):
            page.features[index, at] = feature
        self.count = slot + 1
        bitmap = self.bitmap
        if bitmap is not None:
            if bitmap.is_behind(self.count):
                bitmap.cover(page.bounds, self.count)
        elif self.count * self.table.sides >= BITMAP_FROM:
            self._consider_bitmap()
        return slot

    def learn(self, rows: int, matches: int, enough: int) -> None:
        """The first `rows` rows had so many matches, 0 if too few; come closer to the number that has just `enough`."""
        fit = rows * enough // matches if matches else 2 * self.piece
        self.piece = min(max((3 * self.piece + fit) // 4 & ~63, SHORTEST_PIECE), MAX_SEGMENT)

    def divided(self) -> Cells | None:
        """The cells of a segment with one range a row; None while it has not been asked often enough."""
        if self.cells is None:
            self.asked += 1
            if self.asked >= FIRST_ASKED:
                self.asked = 0
                self.cells = Cells(self.page.bounds[:, self.start : self.start + self.count])
        return self.cells

    def loosen(self, slot: int) -> None:
        """The row is about to go, or its owner leads to fewer destinations: what was concluded from it is forgotten."""
        if self.cells is not None:
            low, negative_high = self.page.bounds[:, self.start + slot].tolist()
            self.cells.forget(slot, low, -negative_high)

    def remove(self, slot: int) -> int:
        """Take out a row; return the owner of the row that now stands at its slot, -1 for none."""
        last = self.count - 1
        page, start, bitmap = self.page, self.start, self.bitmap
        moved = -1
        self.loosen(slot)
        if slot != last:
            page.move(start + last, start + slot)
            moved = int(page.owners[start + slot])
            if bitmap is not None and slot < bitmap.covered:
                bitmap.write(slot, page.bounds[:, start + slot])
        self.count = last
        if bitmap is not None:
            bitmap.drop_last(last)
            if last * self.table.sides < BITMAP_FROM // 2:
                self.bitmap = None
                self.table.bitmaps -= 1
        if not last:
            self._vacate()
            self.table.segments -= 1
        elif 4 * last < self.capacity:
            self._resize(self.capacity // 2)
        return moved

    def fill(
        self,
        bounds: NDArray[np.generic],
        owners: NDArray[np.generic],
        rests: NDArray[np.generic],
        features: NDArray[np.generic],
    ) -> None:
        """Take the rows of a snapshot into an empty segment."""
        count = len(owners)
        if count > 1:
            self._resize(count)
        here = slice(self.start, self.start + count)
        self.page.bounds[:, here] = bounds
        self.page.owners[here] = owners
        if self.table.has_rest:
            self.page.rests[here] = rests
        if self.table.is_mixed:
            self.page.features[:, here] = features
        self.count = count
        self._consider_bitmap()

    def find(self, owner: int) -> int:
        """A slot of an owner that has several rows, and therefore no slot noted."""
        return int((self.page.owners[self.start : self.start + self.count] == owner).nonzero()[0][0])

    def hits(self, values: list[float], start: int, end: int) -> Slots:
        """The slots in [start, end) whose tests all hold of the values, of which none is NaN."""
        if not values:
            return np.arange(start, end)
        bitmap = self.bitmap
        if bitmap is None:
            return self._scan(values, start, end)
        if bitmap.is_behind(self.count):
            bitmap.cover(self.page.bounds, self.count)
        slots = bitmap.candidates(values, start, end)
        if len(slots):
            passed = np.logical_and.reduce(self.page.bounds.take(slots, axis=1) <= np.array(values)[:, None])
            slots = slots[passed]
        if end > bitmap.covered:
            tail = self._scan(values, max(start, bitmap.covered), end)
            slots = np.concatenate((slots, tail)) if len(slots) else tail
        return slots

    def mixed_hits(self, lows: Floats, highs: Floats, start: int, end: int) -> Slots:
        """As `hits` for a mixed table, given the values of all features; upper ones with the sign turned."""
        page, first = self.page, self.start + start
        here = slice(first, self.start + end)
        features = page.features[0, here]
        passed = page.bounds[0, here] <= lows.take(features, mode="clip")
        passed &= page.bounds[1, here] <= highs.take(features, mode="clip")
        slots: Slots = passed.nonzero()[0]
        for index in range(1, self.table.sides // 2):
            if not len(slots):
                return slots
            at = slots + first
            features = page.features[index].take(at)
            kept = page.bounds[2 * index].take(at) <= lows.take(features)
            kept &= page.bounds[2 * index + 1].take(at) <= highs.take(features)
            slots = slots[kept]
        return slots + start if start else slots

    def _scan(self, values: list[float], start: int, end: int) -> Slots:
        if start >= end:
            return _NO_SLOTS
        bounds, first, last = self.page.bounds, self.start + start, self.start + end
        passed: NDArray[np.bool_]
        if len(values) <= FEW_SIDES:
            passed = bounds[0, first:last] <= values[0]
            for side in range(1, len(values)):
                passed &= bounds[side, first:last] <= values[side]
        else:
            passed = np.logical_and.reduce(bounds[:, first:last] <= np.array(values)[:, None])
        slots: Slots = passed.nonzero()[0]
        return slots + start if start else slots

    def _resize(self, capacity: int) -> None:
        capacity = min(max(capacity, 1), MAX_SEGMENT)
        old_page, old_start, old_capacity = self.page, self.start, self.capacity
        if capacity <= SHARED_SEGMENT:
            capacity = 1 << (capacity - 1).bit_length()
            page, start = self.table.allocate(capacity)
        else:
            page, start = self.table.page(capacity), 0
        page.copy(start, self.count, old_page, old_start)
        if old_capacity <= SHARED_SEGMENT:
            self.table.free(old_page, old_start, old_capacity)
        self.page, self.start, self.capacity = page, start, capacity
        self.cells = None
        if self.bitmap is not None:
            if self.bitmap.is_stale:
                self.bitmap = Bitmap(page.bounds, self.count, capacity)
            elif capacity > old_capacity:
                self.bitmap.grow(capacity)

    def _consider_bitmap(self) -> None:
        if self.count * self.table.sides >= BITMAP_FROM and not self.table.is_mixed:
            self.bitmap = Bitmap(self.page.bounds, self.count, self.capacity)
            self.table.bitmaps += 1

    def _vacate(self) -> None:
        if self.capacity <= SHARED_SEGMENT:
            self.table.free(self.page, self.start, self.capacity)
