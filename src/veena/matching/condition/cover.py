"""`covers(wide, narrow)`: whether every event that makes `narrow` true makes `wide` true; no when in doubt.

Aggregation and federation drop a profile that another covers (AGG-07), so a wrong yes loses events and a wrong no only
costs a line in a table. Formulas have no NOT, which makes the rules few: ANY of the narrow side must be covered part by
part; ALL of the wide side must cover part by part; an ANY of the wide side covers if one part does; and a conjunction
is covered by a leaf if one of its own leaves, met with the others on the same property, implies it. For conjunctions of
values, sets, ranges and presence this is exact over all numbers and texts, since such a conjunction holds at most one
plain leaf a property (`formula_merge.py`).

An `Other` covers itself, and values that it is true of: `sym = 'IBM'` is covered by `sym LIKE 'IB%'`. Only text and
truth values are tried, because 5 and 5.0 are equal and yet may differ under arithmetic.

Invariant: never wrongly true; and never slow: texts beyond `MAX_TEXT` are not even read, and after `MAX_QUESTIONS`
pairs the answer is no. What was read is remembered, for a new profile is compared with each that stands.

Rejected: deciding by a solver of linear arithmetic. Exact for more shapes, but of unbounded cost on the path where
every subscription arrives.
"""

from __future__ import annotations

from typing import Final

from veena.matching.condition.closures import compile_condition
from veena.matching.condition.formula import All, Any, EqualTo, Formula, InRange, OneOf, Other, Presence
from veena.matching.condition.formula_merge import PlainLeaf, admits, conjoin, leaf_values, lower_end, upper_end
from veena.matching.condition.tree import Comparison, Contains, In, Like, MemberOf, attribute_names

#: Pairs of parts that one answer may look at; two selectors of a hundred terms each stay below.
MAX_QUESTIONS: Final = 10_000
#: Characters of a selector or constraint that is compared with others: a hundred terms. To read one of them takes a
#: millisecond, one as long as may be thirty.
MAX_TEXT: Final = 2048
#: Formulas that are remembered: those that a new one is compared with (`core.interest.cover_set`), 40 KB each at worst.
FORMULAS_KEPT: Final = 384


def covers(wide: Formula, narrow: Formula) -> bool:
    """True only if no attributes whatever make `narrow` true and `wide` not."""
    # Found out beforehand: a thousand such questions, each asked up to the bound, would take a broker's time.
    if _size(wide) * _size(narrow) > MAX_QUESTIONS:
        return False
    try:
        return _Cover().asks(wide, narrow)
    except _Doubt:
        return False


def _size(formula: Formula) -> int:
    """How many leaves it has."""
    return sum(map(_size, formula.parts)) if isinstance(formula, All | Any) else 1


class _Doubt(Exception):
    """The question is too large to be answered here."""


class _Cover:
    def __init__(self) -> None:
        #: By identity, which the caller's formulas keep for as long as the question lasts.
        self._answers: dict[tuple[int, int], bool] = {}
        self._merged: dict[int, Formula] = {}

    def asks(self, wide: Formula, narrow: Formula) -> bool:
        narrow = self._simplest(narrow)
        key = (id(wide), id(narrow))
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= MAX_QUESTIONS:
                raise _Doubt
            answer = self._answers[key] = self._answer(wide, narrow)
        return answer

    def _simplest(self, narrow: Formula) -> Formula:
        """A conjunction with one plain leaf a property; kept, so that its identity stays."""
        if not isinstance(narrow, All):
            return narrow
        merged = self._merged.get(id(narrow))
        if merged is None:
            merged = self._merged[id(narrow)] = conjoin(narrow.parts)
            self._merged[id(merged)] = merged
        return merged

    def _answer(self, wide: Formula, narrow: Formula) -> bool:
        if isinstance(narrow, Any):
            return all(self.asks(wide, part) for part in narrow.parts)
        if isinstance(wide, All):
            return all(self.asks(part, narrow) for part in wide.parts)
        if isinstance(wide, Any) and any(self.asks(part, narrow) for part in wide.parts):
            return True
        if isinstance(narrow, All):
            return any(self.asks(wide, part) for part in narrow.parts)
        if isinstance(wide, Any):
            return isinstance(narrow, EqualTo | OneOf) and _values_shared(wide, narrow)
        return implies(narrow, wide)


def _values_shared(wide: Any, narrow: EqualTo | OneOf) -> bool:
    """Whether each value of the narrow leaf makes some plain leaf of the wide side true."""
    leaves = [part for part in wide.parts if isinstance(part, PlainLeaf) and part.name == narrow.name]
    return all(any(admits(leaf, value) for leaf in leaves) for value in leaf_values(narrow))


def implies(narrow: EqualTo | OneOf | InRange | Presence | Other, wide: Formula) -> bool:
    """Whether the wide leaf is true of whatever makes the narrow leaf true."""
    if isinstance(wide, Other):
        if isinstance(narrow, Other):
            return narrow.negated == wide.negated and narrow.condition == wide.condition
        return _holds_for_values(wide, narrow)
    if isinstance(wide, All | Any):
        return False
    if isinstance(narrow, Other):
        # These terms are unknown as soon as one of their names is, in both forms.
        needs_all = isinstance(narrow.condition, Comparison | In | Like | Contains | MemberOf)
        return needs_all and wide in [Presence(name, True) for name in attribute_names(narrow.condition)]
    if wide.name != narrow.name:
        return False
    if isinstance(narrow, Presence):
        return isinstance(wide, Presence) and wide.present == narrow.present
    if isinstance(narrow, InRange):
        return _range_implies(narrow, wide)
    return all(admits(wide, value) for value in leaf_values(narrow))


def _range_implies(narrow: InRange, wide: PlainLeaf) -> bool:
    if isinstance(wide, InRange):
        return lower_end(wide) <= lower_end(narrow) and upper_end(narrow) <= upper_end(wide)
    if isinstance(wide, Presence):
        return wide.present
    is_point = narrow.low is not None and narrow.low == narrow.high
    return is_point and narrow.low is not None and admits(wide, narrow.low)


def _holds_for_values(wide: Other, narrow: PlainLeaf) -> bool:
    """Whether the narrow leaf fixes the only property of the wide one to values of which it is true."""
    values = leaf_values(narrow)
    if not values or attribute_names(wide.condition) != (narrow.name,):
        return False
    check = compile_condition(wide.condition, wide.negated)
    return all(isinstance(value, str | bool) and check({narrow.name: value}) for value in values)
