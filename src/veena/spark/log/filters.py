"""Comparisons of columns that a broker makes before it sends a row.

They are the ones of the tables (`tables`): times in microseconds since 1970 or as datetimes, numbers with a sign, the
id as text. A broker has times in nanoseconds and the parts of an id, so a comparison is put into its words here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from veena.core.wire.log_tables import COLUMNS, LogTest
from veena.errors import InvalidEvent, LocalProtocolError
from veena.event import EventId
from veena.runtime.store.schema import signed

Comparison = Literal["=", "<", "<=", ">", ">=", "in"]
_HOW: Final[dict[str, Literal["in", "lt", "le", "gt", "ge"]]] = {
    "=": "in", "in": "in", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip
_TIMES: Final = ("at", "published")
_ID_PARTS: Final = ("publisher", "incarnation", "stamp", "sequence")
#: Table -> columns that can be compared at the broker.
FILTERED: Final[dict[str, frozenset[str]]] = {
    "events": frozenset((
        "offset", "at", "published", "id", *_ID_PARTS, "reliable", "priority", "topic",
    )),
    "deliveries": frozenset(("offset", "at", "id", *_ID_PARTS, "mark")),
    "hops": frozenset(("offset", "at", "id", *_ID_PARTS, "came_from", "went_to", "level")),
    "profiles": frozenset((
        "offset", "at", "client_id", "session", "subscription", "change", "engine", "scope", "level", "durable",
        "shared", "ending",
    )),
}  # fmt: skip

Compared = int | str | bool | datetime


class Filter(NamedTuple):
    """A column, how it is compared, and with what: one value, or a sequence of them for `in`."""

    column: str
    how: Comparison
    value: Compared | Sequence[Compared]


def can_filter(table: str, wanted: Filter) -> bool:
    """Whether a broker can make this comparison."""
    try:
        as_tests(table, (wanted,))
    except (LocalProtocolError, InvalidEvent):
        return False
    return True


def as_tests(table: str, filters: Sequence[Filter]) -> tuple[LogTest, ...] | None:
    """The same in a broker's words; None where no row can pass. LocalProtocolError for what it cannot compare."""
    found: list[LogTest] = []
    for each in filters:
        tests = _tests(table, each)
        if tests is None:
            return None
        found += tests
    return tuple(found)


def _tests(table: str, wanted: Filter) -> list[LogTest] | None:
    column, how, given = wanted
    if column not in FILTERED.get(table, ()):
        raise LocalProtocolError(
            f"filter on {column!r} of {table}: a broker compares {', '.join(sorted(FILTERED.get(table, ())))}"
        )
    if how not in _HOW:
        raise LocalProtocolError(f"filter {column} {how}: use one of {', '.join(_HOW)}")
    is_many = how == "in" and not isinstance(given, str)
    values: list[Compared] = list(given) if is_many else [given]  # type: ignore[arg-type, list-item]
    if not values:
        return None
    if column == "id":
        return _id(wanted, values)
    if column in _TIMES:
        return _times(wanted, [_microseconds(value) for value in values])
    if column == "offset" and table == "events" and any(isinstance(value, int) and value < 0 for value in values):
        raise LocalProtocolError("filter on an offset below 0: give the range to read instead")
    is_number = COLUMNS[table].get(column, "number") == "number"
    if is_number and all(isinstance(value, int) for value in values):
        return [LogTest(column, _HOW[how], numbers=tuple(int(value) for value in values))]  # type: ignore[arg-type]
    if not is_number and all(isinstance(value, str) for value in values):
        return [LogTest(column, _HOW[how], texts=tuple(map(str, values)))]
    raise LocalProtocolError(f"filter {column} {how} {given!r}: compare it with {'numbers' if is_number else 'text'}")


def _id(wanted: Filter, values: list[Compared]) -> list[LogTest] | None:
    if wanted.how not in ("=", "in") or len(values) != 1 or not isinstance(values[0], str):
        raise LocalProtocolError(f"filter id {wanted.how}: a broker finds one id (=)")
    try:
        found = EventId.parse(values[0])
    except InvalidEvent:
        return None  # no event has it
    if max(found.incarnation, found.timestamp) >> 64 or found.sequence >> 32:
        return None
    return [
        LogTest("publisher", "in", texts=(found.publisher,)),
        LogTest("incarnation", "in", numbers=(signed(found.incarnation),)),
        LogTest("stamp", "in", numbers=(signed(found.timestamp),)),
        LogTest("sequence", "in", numbers=(found.sequence,)),
    ]


def _microseconds(value: Compared) -> int:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise LocalProtocolError(f"filter on a time with {value!r}: use a datetime, or microseconds since 1970")


def _times(wanted: Filter, values: list[int]) -> list[LogTest]:
    """A row's time is cut to microseconds when it is shown: those that show as one value are a thousand."""
    if len(values) != 1:
        raise LocalProtocolError(f"filter {wanted.column} in: a broker compares a time with one value")
    low, high = values[0] * 1000, (values[0] + 1) * 1000
    limits = {
        "=": [("ge", low), ("lt", high)],
        "in": [("ge", low), ("lt", high)],
        "<": [("lt", low)],
        "<=": [("lt", high)],
        ">": [("ge", high)],
        ">=": [("ge", low)],
    }[wanted.how]
    return [LogTest(wanted.column, how, numbers=(_bounded(value),)) for how, value in limits]  # type: ignore[arg-type]


def _bounded(value: int) -> int:
    return max(-(1 << 63), min(value, (1 << 63) - 1))
