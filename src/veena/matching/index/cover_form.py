"""What of a selector or a constraint is compared with others: the row that the index stores, as `covering.form` has it.

A constraint that is one row of equalities, ranges and presence is a conjunction, and its columns say all there is. Any
other has features: an attribute that a row tests, and a text that the attribute must be equal to. Whoever covers a row
tests no attribute that the row does not name, and asks for no other text.

The invariant: of two forms that are plain one covers the other exactly when `condition.cover` says so of the texts, or
when no number that an event can have tells the two apart (`x > 5` and `x >= 5.000000000000001`).
"""

from __future__ import annotations

from typing import cast

from veena.matching.condition.cover import MAX_TEXT
from veena.matching.condition.formula import Formula, InRange, OneOf, Other, Presence
from veena.matching.condition.tree import attribute_names
from veena.matching.covering.form import ABSENT, RANGE, THERE, VALUE, Feature, Form, Plain, Rich, plain
from veena.matching.index.rows import PRESENCE, Row, access_key, number_test
from veena.matching.index.template import Templates

#: A test as `covering.form.plain` takes it.
_Test = tuple[str, str, object]


def form_of(text: str, templates: Templates) -> Form:
    """The form of a text that is no longer than is compared; of a longer one only that it is the same text."""
    if len(text) > MAX_TEXT:
        return Rich(((text,),), (((text,),),))
    rows = [row for row in templates.rows(text) if _tests(row) is not None]
    if len(rows) == 1 and not rows[0].rest:
        return plain(list((_tests(rows[0]) or {}).values()))
    if not rows:
        return Rich((("never",),), ((("never",),),))
    return Rich(_offered(rows[0]), tuple(map(_required, rows)), tuple(map(_plain, rows)))


def _tests(row: Row) -> dict[str, _Test] | None:
    """The plain tests of a row, one an attribute; None where no attribute passes all of its own."""
    found: dict[str, _Test] = {}
    for name, value in row.equalities:
        if isinstance(value, str | bool):
            found[name] = (name, VALUE, access_key(value))
        else:
            test = number_test(name, value)[0]
            found[name] = (name, RANGE, (test.low, test.high))
    for name, kind, low, high in row.tests:
        test_kind = RANGE if kind != PRESENCE else THERE if low == 1.0 else ABSENT
        met = _met(found.get(name), (name, test_kind, (low, high) if test_kind == RANGE else None))
        if met is None:
            return None
        found[name] = met
    return found


def _met(one: _Test | None, other: _Test) -> _Test | None:
    """What passes both tests of an attribute passes this; None for nothing."""
    if one is None or (one[1] != ABSENT and other[1] == THERE):
        return one or other
    if one[1] == THERE and other[1] == RANGE:
        return other
    if one[1] == other[1] == RANGE:
        (low, high), (lower, higher) = cast("tuple[float, float]", one[2]), cast("tuple[float, float]", other[2])
        joined = max(low, lower), min(high, higher)
        return (one[0], RANGE, joined) if joined[0] <= joined[1] else None
    return one if one == other else None


def _plain(row: Row) -> Plain:
    """What of a row is plain; of anything richer that its attributes are there."""
    tests = _tests(row) or {}
    for part in row.rest:
        if isinstance(part, Other):
            for name in attribute_names(part.condition):
                tests.setdefault(name, (name, THERE, None))
        elif isinstance(part, InRange | OneOf):
            tests.setdefault(part.name, (part.name, THERE, None))
    return plain(list(tests.values()))


def _offered(row: Row) -> tuple[Feature, ...]:
    found: dict[Feature, None] = {}
    for name, value in row.equalities:
        found[name,] = None
        if isinstance(value, str | bool):
            found[name, access_key(value)] = None
    for test in row.tests:
        found[test.name,] = None
    for part in row.rest:
        for name in _names(part):
            found[name,] = None
    return tuple(found)


def _required(row: Row) -> tuple[Feature, ...]:
    values: list[Feature] = [
        (name, access_key(value)) for name, value in row.equalities if isinstance(value, str | bool)
    ]
    if values:
        return tuple(values)
    names = [name for name, _ in row.equalities] + [test.name for test in row.tests]
    names += [part.name for part in row.rest if isinstance(part, InRange | OneOf | Presence)]
    if not names:
        names = [name for part in row.rest if isinstance(part, Other) for name in attribute_names(part.condition)[:1]]
    return tuple([(name,) for name in names])


def _names(part: Formula) -> list[str]:
    """The attributes of a formula that is not plain."""
    if isinstance(part, Other):
        return list(attribute_names(part.condition))
    if isinstance(part, InRange | OneOf | Presence):
        return [part.name]
    return [name for each in getattr(part, "parts", ()) for name in _names(each)]
