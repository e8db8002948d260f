"""Which owners' conditions are true of an event: rows met by access, tested in columns, the rest judged last.

Most profiles name a value (`sym = 'IBM'`), and an event has one value an attribute. So each row hangs under one of its
equalities, the one with the fewest rows so far (an access predicate, as in Le Subscribe), or under the beginning of a
LIKE pattern; an event looks up its own values and meets only rows that already agree with it there. Rows without any
such value stand in one place that all events of the scope meet. What is met together lies together in columns
(`segments`), is tested without a loop, and only what passes has its remaining formulas judged (`residual`).

A scope is what must agree before anything else: the topic of a selector (MAT-20).

The invariants: each row of an owner is in exactly one segment; an owner with one row has its slot noted in `_slots`,
and one with several is searched for in the segments noted in `_spread`; under one value there are at most `OWN_TABLES`
kinds of segments with features of their own, the others share mixed tables, so a value costs a bounded number of steps
plus the rows behind it.
Rejected: counting satisfied predicates per owner. It touches every satisfied predicate, hundreds of thousands an
event, where access leaves a hundred rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from math import inf

import numpy as np
from numpy.typing import NDArray

from veena.matching.base.engine import DestinationCounts
from veena.matching.condition.formula import Formula, Other
from veena.matching.condition.like import MAX_LIKE_TEXT
from veena.matching.condition.tree import Like
from veena.matching.index.bitmap import Floats, Slots
from veena.matching.index.features import ALWAYS, Features
from veena.matching.index.residual import Origin, Rests
from veena.matching.index.rows import (
    TEXT,
    Equality,
    Row,
    access_key,
    equality_test,
    formula_of,
    like_prefix,
    prefix_key,
)
from veena.matching.index.segments import MAX_SEGMENT, MIXED_WIDTHS, Access, Segment, Table

#: Tables under one value that test features of their own; each is a few microseconds for every event that has the
#: value, and a row of a mixed one about three times as long.
OWN_TABLES = 4
#: A second kind is worth a segment of its own only beside this many rows.
ROWS_OF_A_KIND = 1024

#: What pads the rows of a mixed table.
_NO_BOUNDS = (-inf,) * (2 * MIXED_WIDTHS[-1])
_NO_NAMES = (ALWAYS,) * MIXED_WIDTHS[-1]

Owners = NDArray[np.int32]
TableKey = tuple[tuple[int, ...], int, bool]


class Variant(IntEnum):
    """How the rest of a row that is stored follows from the row."""

    #: All of it.
    AS_IT_IS = 0
    #: Without the LIKE whose prefix gives access and is all that it asks.
    WITHOUT_PREFIX = 1
    #: The row with all its tests, since not all of them have columns.
    WHOLE_ROW = 2


class Scope(DestinationCounts):
    """The rows of one topic, and the destinations of those who have them."""

    __slots__ = ("access", "open")

    def __init__(self) -> None:
        super().__init__()
        #: By attribute; None while no row names a value.
        self.access: dict[str, Access] | None = None
        #: Rows that name no value, under the key None.
        self.open = Access("")


class Index:
    """Rows of owners, who are small numbers given by the caller."""

    def __init__(self, recall: Callable[[Origin], tuple[Formula, ...]]) -> None:
        self.features = Features()
        self.rests = Rests(recall)
        self.tables: dict[TableKey, Table] = {}
        #: By owner: the segment of its only row and the slot in it.
        self._segments: list[Segment | None] = []
        self._slots = array("i")
        #: The segments of owners with several rows.
        self._spread: dict[int, list[Segment]] = {}
        #: The values of all features for the event at hand, made when a mixed segment is met.
        self._lows: Floats | None = None
        self._highs: Floats = np.empty(0)
        #: Runs of rows tested so far; where only a formula decides, it is the formula that counts.
        self.steps = 0

    @property
    def has_spread(self) -> bool:
        """Whether an owner may be found more than once."""
        return bool(self._spread)

    # --- rows come and go ---

    def place(self, owner: int, scope: Scope, rows: Sequence[Row], text: str) -> None:
        """Store the rows of a new owner; `text` is where they come from."""
        while len(self._segments) <= owner:
            self._segments.append(None)
            self._slots.append(-1)
        if len(rows) == 1:
            self._segments[owner], self._slots[owner] = self._place(owner, scope, rows[0], (text, 0))
        elif rows:
            self._spread[owner] = [self._place(owner, scope, row, (text, at))[0] for at, row in enumerate(rows)]

    def withdraw(self, owner: int, scope: Scope) -> None:
        """Forget an owner's rows."""
        segment = self._segments[owner]
        if segment is not None:
            self._segments[owner] = None
            self._withdraw(segment, self._slots[owner], scope)
            return
        for spread in self._spread.pop(owner, ()):
            self._withdraw(spread, spread.find(owner), scope)

    def loosen(self, owner: int) -> None:
        """The owner leads to fewer destinations, perhaps."""
        segment = self._segments[owner]
        if segment is not None:
            segment.loosen(self._slots[owner])
        for spread in self._spread.get(owner, ()):
            if spread.cells is not None:
                spread.cells.forget_all()

    def _place(self, owner: int, scope: Scope, row: Row, origin: tuple[str, int]) -> tuple[Segment, int]:
        access, key, equalities, rest, variant = _hang(scope, row)
        acquire = self.features.acquire
        columns = [(acquire(name, kind), low, -high) for name, kind, low, high in row.tests]
        if equalities:
            columns += [self._equality_column(equality) for equality in equalities]
        if len(columns) > 1:
            columns.sort()
        named: list[int] = []
        bounds: list[float] = []
        for feature, low, negative_high in columns:
            named.append(feature)
            bounds.append(low)
            bounds.append(negative_high)
        segment = self._segment(access, key, tuple(named), bool(rest))
        table = segment.table
        if table.is_mixed and len(columns) > MIXED_WIDTHS[-1]:
            # The columns filter, and the whole row is judged again.
            for feature, low, _ in columns[MIXED_WIDTHS[-1] :]:
                self._release(feature, low)
            del named[MIXED_WIDTHS[-1] :], bounds[2 * MIXED_WIDTHS[-1] :]
            rest, variant = (formula_of(row),), Variant.WHOLE_ROW
        number = self.rests.acquire(rest, (*origin, variant)) if rest else -1
        if not table.is_mixed:
            return segment, segment.append(owner, bounds, number, ())
        padding = table.sides // 2 - len(named)
        if padding:
            bounds += _NO_BOUNDS[: 2 * padding]
            named += _NO_NAMES[:padding]
        return segment, segment.append(owner, bounds, number, named)

    def _equality_column(self, equality: Equality) -> tuple[int, float, float]:
        name, value = equality
        if not isinstance(value, str):
            test = equality_test(equality)
            return self.features.acquire(name, test.kind), test.low, -test.high
        feature = self.features.acquire(name, TEXT)
        code = self.features.acquire_code(feature, value)
        return feature, code, -code

    def _segment(self, access: Access, key: object, features: tuple[int, ...], has_rest: bool) -> Segment:
        """Where a row with these features goes: to its own kind, or among many kinds to a mixed one."""
        kinds = rows = 0
        # Whether full segments of this kind are there already; a further one belongs beside them.
        is_known = False
        first = segment = access.head(key)
        while segment is not None:
            table = segment.table
            if not table.is_mixed:
                if table.features == features and table.has_rest is has_rest:
                    if segment.count < MAX_SEGMENT:
                        return segment
                    is_known = True
                kinds += 1
            rows += segment.count
            segment = segment.next
        is_crowded = kinds >= OWN_TABLES or rows < kinds * ROWS_OF_A_KIND
        if is_crowded and features and not is_known:
            width = MIXED_WIDTHS[0] if len(features) <= MIXED_WIDTHS[0] else MIXED_WIDTHS[1]
            table = self.table((), width, has_rest or len(features) > width, is_mixed=True)
            segment = first
            while segment is not None:
                if segment.table is table and segment.count < MAX_SEGMENT:
                    return segment
                segment = segment.next
        else:
            table = self.table(features, len(features), has_rest, is_mixed=False)
        segment = Segment(table, access, key)
        access.link(segment)
        return segment

    def table(self, features: tuple[int, ...], width: int, has_rest: bool, *, is_mixed: bool) -> Table:
        """The table of this kind, made when there is none."""
        key = (features, width if is_mixed else -1, has_rest)
        table = self.tables.get(key)
        if table is None:
            table = self.tables[key] = Table(features, width, has_rest, is_mixed)
        return table

    def _withdraw(self, segment: Segment, slot: int, scope: Scope) -> None:
        table, page, at = segment.table, segment.page, segment.start + slot
        features = page.features[:, at].tolist() if table.is_mixed else table.features
        lows = page.bounds[::2, at].tolist()
        if table.has_rest:
            self.rests.release(int(page.rests[at]))
        moved = segment.remove(slot)
        if moved >= 0 and self._segments[moved] is segment:
            self._slots[moved] = slot
        if not segment.count:
            self._discard(segment, scope)
        for feature, low in zip(features, lows, strict=True):
            if feature != ALWAYS:
                self._release(feature, low)

    def _discard(self, segment: Segment, scope: Scope) -> None:
        access, table = segment.access, segment.table
        access.unlink(segment)
        if access.name and access.is_empty and scope.access is not None:
            del scope.access[access.name]
            if not scope.access:
                scope.access = None
        if not table.segments:
            self.tables.pop((table.features, table.sides // 2 if table.is_mixed else -1, table.has_rest), None)

    def _release(self, feature: int, low: float) -> None:
        if self.features.keys[feature][1] == TEXT:
            self.features.release_code(feature, low)
        self.features.release(feature)

    def note(self, segments: Sequence[Segment], owners: int) -> None:
        """Find out where the rows of owners 0 to `owners` - 1 are, after segments were filled from a snapshot."""
        slots = np.full(owners, -1, dtype=np.int32)
        holders = np.full(owners, None, dtype=np.object_)
        held = [segment.page.owners[segment.start : segment.start + segment.count] for segment in segments]
        for segment, owned in zip(segments, held, strict=True):
            slots[owned] = np.arange(segment.count, dtype=np.int32)
            holders[owned] = segment
        has_several = np.bincount(np.concatenate(held), minlength=owners) > 1 if held else slots > 0
        holders[has_several] = None
        self._segments = holders.tolist()
        self._slots = array("i", slots.tobytes())
        for segment, owned in zip(segments, held, strict=True) if has_several.any() else ():
            for owner in owned[has_several[owned]].tolist():
                self._spread.setdefault(owner, []).append(segment)

    # --- an event comes ---

    def see(self, attributes: Mapping[str, object]) -> None:
        """Turn to an event; `forget` must follow."""
        self.features.see(attributes)

    def forget(self) -> None:
        self.features.forget()
        self.rests.forget()
        self._lows = None

    def met(self, scope: Scope, attributes: Mapping[str, object]) -> Iterator[Segment]:
        """The segments that the event at hand must be tested against."""
        yield from scope.open.chain(None)
        known = scope.access
        if known is None:
            return
        for name in known if len(known) < len(attributes) else attributes:
            access, value = known.get(name), attributes.get(name)
            if access is None or not isinstance(value, str | bool | int | float):
                continue
            yield from access.chain(access_key(value))
            if access.lengths is not None and isinstance(value, str) and len(value) <= MAX_LIKE_TEXT:
                for length in access.lengths:
                    yield from access.chain(prefix_key(value[:length]))

    def candidates(self, segment: Segment, start: int, end: int) -> Slots | None:
        """The places in the page of those rows of [start, end) whose tests hold of the event at hand; None for none.

        Rows of a table with rests are true only if their formula is, too.
        """
        table = segment.table
        if table.sides or not table.has_rest:
            self.steps += 1
        if table.is_mixed:
            if self._lows is None:
                self._lows = np.array(self.features.low)
                self._highs = -np.array(self.features.high)
            slots = segment.mixed_hits(self._lows, self._highs, start, end)
        else:
            low, high = self.features.low, self.features.high
            values: list[float] = []
            for feature in table.features:
                value = low[feature]
                if value != value:  # noqa: PLR0124 - NaN: the event has no such feature
                    return None
                values.append(value)
                values.append(-high[feature])
            slots = segment.hits(values, start, end)
        if not len(slots):
            return None
        return slots + segment.start if segment.start else slots

    def sure(self, segment: Segment, values: list[float], start: int, end: int) -> Slots:
        """As `candidates`, against other values than the event's own."""
        self.steps += 1
        slots = segment.hits(values, start, end)
        return slots + segment.start if segment.start else slots

    def owners(self, segment: Segment, attributes: Mapping[str, object]) -> Owners | None:
        """The owners of the segment's rows that are true of the event at hand; None for none."""
        slots = self.candidates(segment, 0, segment.count)
        if slots is None:
            return None
        page = segment.page
        if segment.table.has_rest:
            slots = slots[self.rests.passing(page.rests.take(slots), attributes)]
        return page.owners.take(slots)


def recalled_rest(row: Row, variant: int) -> tuple[Formula, ...]:
    """The rest of a row as `Index.place` stored it."""
    if variant == Variant.WHOLE_ROW:
        return (formula_of(row),)
    return _hang(Scope(), row)[3] if variant == Variant.WITHOUT_PREFIX else row.rest


def _hang(scope: Scope, row: Row) -> tuple[Access, object, Sequence[Equality], tuple[Formula, ...], int]:
    """Where a row is to hang: the access, the key in it, what is left of its equalities and its rest, and how."""
    if row.equalities:
        chosen = row.equalities[0]
        others: Sequence[Equality] = ()
        if len(row.equalities) > 1:
            chosen = min(row.equalities, key=lambda equality: _crowding(scope, equality))
            others = [equality for equality in row.equalities if equality is not chosen]
        return access_to(scope, chosen.name), access_key(chosen.value), others, row.rest, Variant.AS_IT_IS
    for part in row.rest:
        if isinstance(part, Other) and not part.negated and isinstance(part.condition, Like):
            prefix, is_all = like_prefix(part.condition)
            if prefix:
                rest = tuple(other for other in row.rest if other is not part) if is_all else row.rest
                variant = Variant.WITHOUT_PREFIX if is_all else Variant.AS_IT_IS
                return access_to(scope, part.condition.attribute.name), prefix_key(prefix), (), rest, variant
    return scope.open, None, (), row.rest, Variant.AS_IT_IS


def access_to(scope: Scope, name: str) -> Access:
    """Where the values of an attribute are looked up, made when there is nothing yet."""
    if scope.access is None:
        scope.access = {}
    access = scope.access.get(name)
    if access is None:
        access = scope.access[name] = Access(name)
    return access


def _crowding(scope: Scope, equality: Equality) -> int:
    access = None if scope.access is None else scope.access.get(equality.name)
    return 0 if access is None else access.rows(access_key(equality.value))
