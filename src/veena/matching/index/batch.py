"""Many events against an index at once: each run of rows is compared with all events that meet it by one operation.

What an event alone costs is mostly the fixed price of a few dozen small steps. A batch pays it once: the values that
rows test are pulled out of all events as columns, events that have the same value meet the rows under it together, and
rows and events are compared as a table of truth values. Where that table would be tiny, a loop is sooner done; where
rows are so many that the fixed price does not count, each event is compared with them by itself.

The invariant: for every event, the owners found are those that `Index.owners` finds for it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

import numpy as np
from numpy.typing import NDArray

from veena.matching.condition.like import MAX_LIKE_TEXT
from veena.matching.index.bitmap import Floats
from veena.matching.index.features import ALWAYS, doubles_around
from veena.matching.index.index import Index, Scope
from veena.matching.index.rows import EXACT_INTEGER, NUMBER, PRESENCE, TEXT, TRUTH, access_key, prefix_key
from veena.matching.index.segments import Segment

#: Rows times events that are compared by one operation: as many truth values as stay in a near cache.
CELLS = 1 << 17
#: Rows of one segment from which on each event is compared with them by itself.
MANY_ROWS = 2048
#: Rows times events up to which a loop takes less than the calls.
FEW_CELLS = 24

Attributes = Mapping[str, object]
Places = NDArray[np.int64]
Owners = NDArray[np.int32]


class Batch:
    """Some events and their values, as columns."""

    def __init__(self, index: Index, attributes: Sequence[Attributes]) -> None:
        self._index = index
        self._attributes = attributes
        self._columns: dict[str, list[object]] = {}
        self._lists: dict[int, tuple[list[float], list[float]]] = {}
        self._arrays: dict[int, tuple[Floats, Floats]] = {}
        #: What formulas say of events, by number of the formula and place of the event.
        self._verdicts: dict[tuple[int, int], bool] = {}
        self._places: list[Places] = []
        self._owners: list[Owners] = []
        #: The same of pairs that were found one by one.
        self._few: tuple[list[int], list[int]] = ([], [])

    def matches(self, scope: Scope) -> tuple[Places, Owners]:
        """The place of an event and an owner that it satisfies, for every such pair; one may come several times where
        owners have several rows."""
        everything = list(range(len(self._attributes)))
        self._meet(scope, None, everything, "")
        for name in scope.access or ():
            self._meet_values(scope, name)
        if self._few[0]:
            self._places.append(np.array(self._few[0], dtype=np.int64))
            self._owners.append(np.array(self._few[1], dtype=np.int32))
        if not self._places:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return np.concatenate(self._places), np.concatenate(self._owners)

    # --- who meets what ---

    def _meet(self, scope: Scope, key: object, places: list[int], name: str) -> None:
        access = scope.open if not name or scope.access is None else scope.access[name]
        for segment in access.chain(key):
            self._compare(segment, places)

    def _meet_values(self, scope: Scope, name: str) -> None:
        assert scope.access is not None
        access = scope.access[name]
        groups: dict[object, list[int]] = {}
        for place, value in enumerate(self._column(name)):
            if value is None or not isinstance(value, str | bool | int | float):
                continue
            groups.setdefault(access_key(value), []).append(place)
            if access.lengths is not None and isinstance(value, str) and len(value) <= MAX_LIKE_TEXT:
                for length in access.lengths:
                    groups.setdefault(prefix_key(value[:length]), []).append(place)
        for key, places in groups.items():
            self._meet(scope, key, places, name)

    def _column(self, name: str) -> list[object]:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = [each.get(name) for each in self._attributes]
        return found

    # --- what a feature is of every event ---

    def _values(self, feature: int) -> tuple[list[float], list[float]]:
        """What is tested against lower and against upper bounds; NaN where an event has no such feature."""
        found = self._lists.get(feature)
        if found is None:
            found = self._lists[feature] = self._read(feature)
        return found

    def _read(self, feature: int) -> tuple[list[float], list[float]]:
        if feature == ALWAYS:
            zeros = [0.0] * len(self._attributes)
            return zeros, zeros
        name, kind = self._index.features.keys[feature]
        values = self._column(name)
        if kind == PRESENCE:
            found = [0.0 if value is None else 1.0 for value in values]
        elif kind == TRUTH:
            found = [float(value) if isinstance(value, bool) else nan for value in values]
        elif kind == TEXT:
            codes = self._index.features.codes(feature)
            found = [float(codes.get(value, nan)) if isinstance(value, str) else nan for value in values]
        else:
            assert kind == NUMBER
            lows: list[float] = []
            highs: list[float] = []
            for value in values:
                if type(value) is float:
                    low = high = value
                elif type(value) is int and -EXACT_INTEGER <= value <= EXACT_INTEGER:
                    low = high = float(value)
                elif isinstance(value, int | float) and not isinstance(value, bool):
                    low, high = doubles_around(value)
                else:
                    low = high = nan
                lows.append(low)
                highs.append(high)
            return lows, highs
        return found, found

    def _arrays_of(self, feature: int) -> tuple[Floats, Floats]:
        """The same as arrays, upper ones with the sign turned."""
        found = self._arrays.get(feature)
        if found is None:
            lows, highs = self._values(feature)
            found = self._arrays[feature] = np.array(lows), -np.array(highs)
        return found

    # --- rows and events ---

    def _compare(self, segment: Segment, places: list[int]) -> None:
        table, count = segment.table, segment.count
        if table.sides or not table.has_rest:
            self._index.steps += 1
        if not table.is_mixed and count > MANY_ROWS:
            at, where = self._by_event(segment, places)
        elif count * len(places) <= FEW_CELLS or not table.sides:
            self._loop(segment, places)
            return
        else:
            at, where = self._tables(segment, places)
        if not len(at):
            return
        at = at + segment.start
        if table.has_rest:
            numbers = segment.page.rests.take(at).tolist()
            kept = np.array(
                [self._holds(number, place) for number, place in zip(numbers, where.tolist(), strict=True)],
                dtype=np.bool_,
            )
            at, where = at[kept], where[kept]
        self._places.append(where)
        self._owners.append(segment.page.owners.take(at))

    def _holds(self, number: int, place: int) -> bool:
        verdict = self._verdicts.get((number, place))
        if verdict is None:
            verdict = self._verdicts[number, place] = self._index.rests.judge(number, self._attributes[place])
        return verdict

    def _loop(self, segment: Segment, places: list[int]) -> None:
        """One by one."""
        table, page, start, count = segment.table, segment.page, segment.start, segment.count
        where, owned = self._few
        owners: list[int] = page.owners[start : start + count].tolist()
        rests: list[int] = page.rests[start : start + count].tolist() if table.has_rest else []
        if table.sides:
            bounds: list[list[float]] = page.bounds[:, start : start + count].tolist()
            named = page.features[:, start : start + count].tolist() if table.is_mixed else None
        for slot, owner in enumerate(owners):
            passing = places
            features: Sequence[int] = ()
            if table.sides:
                features = table.features if named is None else [column[slot] for column in named]
            for number, feature in enumerate(features):
                low, high = bounds[2 * number][slot], bounds[2 * number + 1][slot]
                lows, highs = self._values(feature)
                passing = [place for place in passing if low <= lows[place] and high <= -highs[place]]
                if not passing:
                    break
            if rests:
                passing = [place for place in passing if self._holds(rests[slot], place)]
            where += passing
            owned += [owner] * len(passing)

    def _by_event(self, segment: Segment, places: list[int]) -> tuple[Places, Places]:
        """Each event by itself, against the columns or the bits of a large segment."""
        sides = [self._values(feature) for feature in segment.table.features]
        slots: list[Places] = [np.empty(0, dtype=np.int64)]
        asked: list[int] = []
        for place in places:
            values: list[float] = []
            for lows, highs in sides:
                values += (lows[place], -highs[place])
            if any(value != value for value in values):  # noqa: PLR0124 - NaN: the event has no such feature
                continue
            slots.append(segment.hits(values, 0, segment.count))
            asked.append(place)
        sizes = [len(each) for each in slots[1:]]
        return np.concatenate(slots), np.repeat(np.array(asked, dtype=np.int64), sizes)

    def _tables(self, segment: Segment, places: list[int]) -> tuple[Places, Places]:
        """All rows against all events, a piece of the events at a time."""
        rows = slice(segment.start, segment.start + segment.count)
        bounds = segment.page.bounds[:, rows]
        everything = np.array(places, dtype=np.int64)
        if not segment.table.is_mixed:
            everything = self._possible(segment, bounds, everything)
        piece = max(1, CELLS // segment.count)
        slots: list[Places] = [np.empty(0, dtype=np.int64)]
        found: list[Places] = [np.empty(0, dtype=np.int64)]
        for at in range(0, len(everything), piece):
            some = everything[at : at + piece]
            passed = self._mixed(segment, some) if segment.table.is_mixed else self._own(segment, bounds, some)
            hit, of = passed.nonzero()
            slots.append(hit)
            found.append(some[of])
        return np.concatenate(slots), np.concatenate(found)

    def _possible(self, segment: Segment, bounds: Floats, some: Places) -> Places:
        """The events whose values lie within the widest bound of every side: any others satisfy no row."""
        for number, feature in enumerate(segment.table.features):
            for side, values in enumerate(self._arrays_of(feature)):
                some = some[values[some] >= bounds[2 * number + side].min()]
                if not len(some):
                    return some
        return some

    def _own(self, segment: Segment, bounds: Floats, some: Places) -> NDArray[np.bool_]:
        passed: NDArray[np.bool_] | None = None
        for number, feature in enumerate(segment.table.features):
            for side, values in enumerate(self._arrays_of(feature)):
                here = bounds[2 * number + side][:, None] <= values[some][None, :]
                passed = here if passed is None else np.logical_and(passed, here, out=passed)
        assert passed is not None
        return passed

    def _mixed(self, segment: Segment, some: Places) -> NDArray[np.bool_]:
        rows = slice(segment.start, segment.start + segment.count)
        page = segment.page
        passed: NDArray[np.bool_] | None = None
        for number in range(segment.table.sides // 2):
            features, of_row = np.unique(page.features[number, rows], return_inverse=True)
            arrays = [self._arrays_of(feature) for feature in features.tolist()]
            for side in (0, 1):
                values = np.stack([array[side][some] for array in arrays])
                here = page.bounds[2 * number + side, rows][:, None] <= values[of_row]
                passed = here if passed is None else np.logical_and(passed, here, out=passed)
        assert passed is not None
        return passed
