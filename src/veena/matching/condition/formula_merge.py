"""Joining formulas: several plain tests of one property become one, and what is settled disappears.

Tests of one property meet in a single test, whatever they are: a value and a range are the value or nothing, two
ranges are a range, and a test with IS NULL is nothing. So a conjunction holds at most one plain leaf a property, which
is what an index counts on and what makes `covers` exact for such conjunctions. A disjunction gathers the values that
one property may have.

Invariant: `conjoin(parts)` is true exactly when all parts are, `disjoin(parts)` when some part is; plain leaves come
first, in the order of the text, then what is richer.

Rejected: uniting ranges in a disjunction. It is exact only where they touch, selectors seldom have it, and the index
gains nothing from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from veena.matching.condition.formula import All, Any, EqualTo, Formula, InRange, OneOf, Other, Presence
from veena.matching.condition.tree import Number, Scalar

ALWAYS_TRUE: Final = All(())
NEVER_TRUE: Final = Any(())

PlainLeaf = EqualTo | OneOf | InRange | Presence
#: A tuple, since a union would be built anew for every question.
_RICH: Final = (Other, Any, All)


def conjoin(parts: Iterable[Formula]) -> Formula:
    """ALL of the parts, with one plain leaf a property."""
    plain: dict[str, PlainLeaf] = {}
    rich: list[Formula] = []
    for part in _flat(parts, All):
        if isinstance(part, Any) and not part.parts:
            return NEVER_TRUE
        if isinstance(part, _RICH):
            rich.append(part)
            continue
        known = plain.get(part.name)
        met = part if known is None else meet(known, part)
        if met is None:
            return NEVER_TRUE
        plain[part.name] = met
    joined: tuple[Formula, ...] = (*plain.values(), *rich)
    return joined[0] if len(joined) == 1 else All(joined)


def disjoin(parts: Iterable[Formula]) -> Formula:
    """ANY of the parts, with the values of one property and kind gathered."""
    values: dict[tuple[str, str], list[Scalar]] = {}
    gathered: dict[tuple[str, str], int] = {}
    joined: list[Formula] = []
    for part in _flat(parts, Any):
        if isinstance(part, All) and not part.parts:
            return ALWAYS_TRUE
        if not isinstance(part, EqualTo | OneOf):
            joined.append(part)
            continue
        found = [part.value] if isinstance(part, EqualTo) else list(part.values)
        key = (part.name, kind_of_value(found[0]))
        if key in values:
            values[key] += found
            joined[gathered[key]] = one_of(part.name, values[key])
        else:
            values[key] = found
            gathered[key] = len(joined)
            joined.append(part)
    return joined[0] if len(joined) == 1 else Any(tuple(joined))


def _flat(parts: Iterable[Formula], kind: type[All] | type[Any]) -> list[Formula]:
    flat: list[Formula] = []
    for part in parts:
        if isinstance(part, kind):
            flat.extend(_flat(part.parts, kind))
        else:
            flat.append(part)
    return flat


def kind_of_value(value: Scalar) -> str:
    """Values of one kind can be equal; others never are."""
    return "text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number"


def one_of(name: str, values: Iterable[Scalar]) -> Formula:
    """The attribute has one of these values, which are of one kind."""
    distinct = tuple(dict.fromkeys(values))
    if not distinct:
        return NEVER_TRUE
    return EqualTo(name, distinct[0]) if len(distinct) == 1 else OneOf(name, distinct)


def number_range(name: str, low: Number | None, high: Number | None, low_open: bool, high_open: bool) -> Formula:
    """The attribute lies between the bounds: a range, one value, or nothing."""
    met = _range_leaf(name, low, high, low_open, high_open)
    return NEVER_TRUE if met is None else met


def _range_leaf(
    name: str, low: Number | None, high: Number | None, low_open: bool, high_open: bool
) -> EqualTo | InRange | None:
    if (low is not None and low != low) or (high is not None and high != high):  # noqa: PLR0124 - NaN bounds nothing
        return None
    if low is not None and high is not None and low >= high:
        return EqualTo(name, low) if low == high and not low_open and not high_open else None
    return InRange(name, low, high, low is not None and low_open, high is not None and high_open)


def meet(left: PlainLeaf, right: PlainLeaf) -> PlainLeaf | None:
    """The leaf that is true when both leaves, of one property, are; None when there is no such value."""
    if isinstance(left, Presence) or isinstance(right, Presence):
        return _meet_presence(left, right)
    if isinstance(left, InRange) and isinstance(right, InRange):
        return _meet_ranges(left, right)
    if isinstance(left, InRange):
        left, right = right, left
    return _values_leaf(left.name, [value for value in leaf_values(left) if admits(right, value)])


def _meet_presence(left: PlainLeaf, right: PlainLeaf) -> PlainLeaf | None:
    if not isinstance(left, Presence):
        left, right = right, left
    if isinstance(left, Presence) and left.present == (not isinstance(right, Presence) or right.present):
        return right
    return None


def _meet_ranges(left: InRange, right: InRange) -> PlainLeaf | None:
    low, low_open = max(lower_end(left), lower_end(right))
    high, high_closed = min(upper_end(left), upper_end(right))
    bottom = None if left.low is None and right.low is None else low
    top = None if left.high is None and right.high is None else high
    return _range_leaf(left.name, bottom, top, low_open, not high_closed)


def lower_end(leaf: InRange) -> tuple[Number, bool]:
    """The lower bound and whether it is open: the greater pair is the tighter one. None bounds all numbers."""
    return (-math.inf, False) if leaf.low is None else (leaf.low, leaf.low_open)


def upper_end(leaf: InRange) -> tuple[Number, bool]:
    """The upper bound and whether it is closed: the smaller pair is the tighter bound."""
    return (math.inf, True) if leaf.high is None else (leaf.high, not leaf.high_open)


def leaf_values(leaf: PlainLeaf) -> tuple[Scalar, ...]:
    """The values that an EqualTo or OneOf allows; none for other leaves."""
    if isinstance(leaf, EqualTo):
        return (leaf.value,)
    return leaf.values if isinstance(leaf, OneOf) else ()


def _values_leaf(name: str, values: list[Scalar]) -> PlainLeaf | None:
    leaf = one_of(name, values)
    return leaf if isinstance(leaf, EqualTo | OneOf) else None


def admits(leaf: PlainLeaf, value: Scalar) -> bool:
    """Whether an attribute with this value makes the leaf true."""
    if isinstance(leaf, Presence):
        return leaf.present
    if isinstance(leaf, InRange):
        if isinstance(value, str | bool) or value != value:  # noqa: PLR0124 - NaN
            return False
        return lower_end(leaf) <= (value, False) and (value, True) <= upper_end(leaf)
    kind = kind_of_value(value)
    return any(value == allowed and kind_of_value(allowed) == kind for allowed in leaf_values(leaf))
