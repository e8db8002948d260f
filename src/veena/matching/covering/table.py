"""Conjunctions of one shape: their values are looked up, their ranges stand in columns.

All rows that name the same values are a *group*. Most groups have one row, which stands in the dict itself; a few rows
are a list, and many are `Blocks`. Where a wide conjunction leaves some of the values open, the groups that have its
others are found by their rarest value; where that is not rare, or there is none, the rows are found by their ranges,
which stand in `Blocks` of the whole table too.

The invariant: a row is in the group of its values, and a group of more than one value stands under each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from operator import le

from veena.matching.covering.blocks import Blocks, Bounds
from veena.matching.covering.form import VALUE, Fit, Plain, Shape

#: Rows that are compared one by one sooner than columns are.
FEW_ROWS = 12
#: Groups that are looked at one by one, sooner than the ranges of the whole table.
FEW_GROUPS = 64

Values = tuple[object, ...]
Row = tuple[Bounds, bytes]
#: The rows of a group. A row is a tuple, so that it is told from several.
Group = Row | list[Row] | Blocks
#: The groups that have one value: the only one, or several.
Having = Values | dict[Values, None]


class Table:
    """The rows of one shape, of one kind of want."""

    __slots__ = ("_all", "_columns", "_groups", "_having", "_rows", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._columns = 2 * shape[1].count("r")
        values = shape[1].count(VALUE)
        self._groups: dict[Values, Group] = {}
        #: By number of the value: which groups have it. Without a second value the group itself is found.
        self._having: list[dict[object, Having]] = [{} for _ in range(values)] if values > 1 else []
        #: The ranges of all rows, where there are values beside them.
        self._all: Blocks | None = Blocks(self._columns) if self._columns and values else None
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, form: Plain, key: bytes) -> None:
        self._rows += 1
        group = self._groups.get(form.values)
        row = (form.bounds, key)
        if self._all is not None:
            self._all.add(*row)
        if group is None:
            self._groups[form.values] = row
            for value, having in zip(form.values, self._having, strict=False):
                known = having.get(value)
                if known is None:
                    having[value] = form.values
                elif isinstance(known, dict):
                    known[form.values] = None
                else:
                    having[value] = {known: None, form.values: None}
        elif isinstance(group, Blocks):
            group.add(*row)
        elif isinstance(group, tuple):
            self._groups[form.values] = [group, row]
        else:
            group.append(row)
            if len(group) > FEW_ROWS and self._columns:
                blocks = self._groups[form.values] = Blocks(self._columns)
                for each in group:
                    blocks.add(*each)

    def remove(self, form: Plain, key: bytes) -> None:
        """Take out a row, if it is there."""
        group = self._groups.get(form.values)
        if group is None:
            return
        before = 1 if isinstance(group, tuple) else len(group)
        after = before
        if isinstance(group, Blocks):
            group.remove(form.bounds, key)
            after = len(group)
        elif isinstance(group, list):
            group[:] = [row for row in group if row[1] != key]
            after = len(group)
        elif group[1] == key:
            after = 0
        self._rows -= before - after
        if self._all is not None and after < before:
            self._all.remove(form.bounds, key)
        if not after:
            del self._groups[form.values]
            self._bury(form.values)

    def _bury(self, values: Values) -> None:
        """A group is gone."""
        for value, having in zip(values, self._having, strict=False):
            known = having[value]
            if isinstance(known, dict):
                del known[values]
            if not isinstance(known, dict) or not known:
                del having[value]

    def wider(self, narrow: Plain, found: Fit) -> Iterator[bytes]:
        """The keys of the rows here that cover a conjunction in whose columns theirs lie so."""
        values = narrow.values
        group = self._groups.get(values if found.has_all_values else tuple([values[at] for at in found.values]))
        if group is None:
            return
        bounds = tuple([narrow.bounds[at] for at in found.bounds])
        if isinstance(group, Blocks):
            yield from group.wider(bounds)
            return
        for row, key in (group,) if isinstance(group, tuple) else group:
            if _is_below(row, bounds):
                yield key

    def narrower(self, wide: Plain, found: Fit) -> Iterator[tuple[bytes, bool] | None]:
        """The keys of the rows here that a conjunction covers whose columns lie so in theirs, and whether it surely
        does; None for what was looked at in vain, so that whoever asks can stop."""
        groups = self._having_all(wide.values, found)
        if self._all is not None and found.bounds and len(groups) > FEW_GROUPS:
            for key in self._all.narrower(wide.bounds, found.bounds):
                yield key, not wide.values
            return
        asked = list(wide.values)
        for values in tuple(groups):
            group = self._groups.get(values)
            if group is None or [values[at] for at in found.values] != asked:
                yield None
            elif isinstance(group, Blocks):
                for key in group.narrower(wide.bounds, found.bounds):
                    yield key, True
            else:
                for row, key in (group,) if isinstance(group, tuple) else tuple(group):
                    is_above = _is_below(wide.bounds, tuple([row[at] for at in found.bounds]))
                    yield (key, True) if is_above else None

    def _having_all(self, values: Values, found: Fit) -> Collection[Values]:
        """Groups among which are all that have these values; not to be kept while rows come and go."""
        if found.has_all_values:
            return (values,)
        if not values:
            return self._groups
        fewest: dict[Values, None] = {}
        for at, value in zip(found.values, values, strict=True):
            having = self._having[at].get(value)
            if having is None:
                return ()
            if isinstance(having, tuple):
                return (having,)
            if not fewest or len(having) < len(fewest):
                fewest = having
        return fewest

    def check(self) -> None:
        rows = 0
        for values, group in self._groups.items():
            if isinstance(group, Blocks):
                group.check()
            rows += 1 if isinstance(group, tuple) else len(group)
            for value, having in zip(values, self._having, strict=False):
                known = having[value]
                assert values in known if isinstance(known, dict) else known == values
        assert rows == self._rows
        if self._all is not None:
            assert len(self._all) == rows
            self._all.check()


def _is_below(row: Bounds, bounds: Bounds) -> bool:
    """Whether a row is nowhere above these."""
    return not bounds or all(map(le, row, bounds))
