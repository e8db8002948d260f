"""Filters of a query that brokers test themselves, so that rows that fail them are never sent.

Spark hands over the simple conditions of a `WHERE` (`pyspark.sql.datasource.Filter`), all of which must hold. Each is

- *taken*: ranges (`broker`, `offset`, `reliable`) or comparisons at the brokers (`log.filters`) answer it exactly, and
  Spark does not ask again; or
- *left*: Spark tests it alone. That is so for elements of `properties`, as Spark has no filter for parts of a map: the
  option `selector` is there for them.

A condition that is taken must give what Spark's own would, also for NULL: only comparisons with values are, and none is
true of NULL in either place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from veena.core.wire.log_tables import MAX_TEST_TEXT, MAX_TEST_VALUES, MAX_TESTS
from veena.errors import VeenaError
from veena.event import EventId
from veena.spark.log.filters import Comparison, can_filter
from veena.spark.log.filters import Filter as Test

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

#: Columns that hold a value in every row: Spark asks for `IS NOT NULL` beside each comparison.
_PLACE: Final = frozenset({"broker", "offset", "at"})
_ID: Final = frozenset({"id", "publisher", "incarnation", "stamp", "sequence"})
_ALWAYS: Final = {
    "events": _PLACE | _ID | {"reliable", "priority", "published"},
    "deliveries": _PLACE | _ID,
    "hops": _PLACE | _ID,
    "profiles": _PLACE | {"client_id", "session", "subscription", "change", "engine"},
}
_HOW: Final[dict[str, Comparison]] = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "In": "in",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
#: An id is four tests.
_TESTS_OF_ID: Final = 4


@dataclass(frozen=True, slots=True)
class Pushed:
    """What all taken filters come to."""

    #: None: of any broker.
    brokers: frozenset[str] | None = None
    #: The column `offset`: from, and up to but not including.
    offset_from: int | None = None
    offset_to: int | None = None
    #: None: both logs of events.
    reliable: bool | None = None
    #: Rows of this time (ns) or later: tested too, but it also tells where to begin.
    at_from: int | None = None
    tests: tuple[Test, ...] = ()


def push(filters: Iterable[Filter], table: str) -> tuple[Pushed, list[Filter]]:
    """What brokers will test, and the filters that Spark still has to."""
    pushed = Pushed()
    left: list[Filter] = []
    # What is not NULL follows from the comparisons, wherever Spark puts it.
    for each in sorted(filters, key=lambda each: type(each).__name__ == "IsNotNull"):
        with_it = _with(pushed, each, table)
        if with_it is None:
            left.append(each)
        else:
            pushed = with_it
    return pushed, left


def _with(pushed: Pushed, each: Filter, table: str) -> Pushed | None:
    """The same with one filter more; None where Spark has to test it."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    column = path[0] if len(path) == 1 else ""
    kind = type(each).__name__
    if kind == "IsNotNull":
        is_tested = any(test.column == column for test in pushed.tests)
        return pushed if is_tested or column in _ALWAYS[table] else None
    how = _HOW.get(kind)
    value = getattr(each, "value", None)
    values = list(value) if kind == "In" and value is not None else [value]
    if how is None or not 1 <= len(values) <= MAX_TEST_VALUES or any(each is None for each in values):
        return None
    if column == "broker":
        return _broker(pushed, how, values)
    if column == "offset":
        return _offset(pushed, how, values)
    if column == "reliable" and table == "events":
        return _reliable(pushed, how, values)
    return _tested(pushed, table, column, how, values)


def _broker(pushed: Pushed, how: Comparison, values: Sequence[Any]) -> Pushed | None:
    if how not in {"=", "in"}:
        return None
    named = frozenset(values)
    return replace(pushed, brokers=named if pushed.brokers is None else pushed.brokers & named)


def _offset(pushed: Pushed, how: Comparison, values: Sequence[Any]) -> Pushed | None:
    value = values[0]
    if len(values) > 1 or type(value) is not int:
        return None
    low = {"=": value, "in": value, ">": value + 1, ">=": value}.get(how)
    high = {"=": value + 1, "in": value + 1, "<": value, "<=": value + 1}.get(how)
    if low is not None and (pushed.offset_from is None or low > pushed.offset_from):
        pushed = replace(pushed, offset_from=low)
    if high is not None and (pushed.offset_to is None or high < pushed.offset_to):
        pushed = replace(pushed, offset_to=high)
    return pushed


def _reliable(pushed: Pushed, how: Comparison, values: Sequence[Any]) -> Pushed | None:
    if how not in {"=", "in"} or len(values) > 1 or not isinstance(values[0], bool):
        return None
    if pushed.reliable is not None and pushed.reliable != values[0]:
        return replace(pushed, brokers=frozenset())
    return replace(pushed, reliable=values[0])


def _tested(pushed: Pushed, table: str, column: str, how: Comparison, values: Sequence[Any]) -> Pushed | None:
    """A comparison that brokers make."""
    test = Test(column, how, tuple(values) if how == "in" else values[0])
    room = MAX_TESTS - sum(_TESTS_OF_ID if each.column == "id" else 2 for each in pushed.tests)
    if room < _TESTS_OF_ID or any(isinstance(each, str) and len(each) > MAX_TEST_TEXT for each in values):
        return None
    if not can_filter(table, test) or (column == "id" and not _is_plain(values[0])):
        return None
    if column == "at" and how in {"=", ">", ">="} and isinstance(values[0], datetime):
        pushed = replace(pushed, at_from=max(_nanoseconds(values[0]), pushed.at_from or 0))
    return replace(pushed, tests=(*pushed.tests, test))


def _is_plain(value: Any) -> bool:
    """Whether an id is written as ids are: brokers compare its numbers, Spark its letters."""
    try:
        return bool(str(EventId.parse(value)) == value)
    except (VeenaError, AttributeError):
        return False


def _nanoseconds(at: datetime) -> int:
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
