"""From a condition to the formula that is indexed: NOT at the leaves, plain tests where they say exactly the same.

`normal_form` asks each part whether it is TRUE, and under a NOT whether it is FALSE; NOT swaps the question and is
gone. The is-FALSE form of a comparison is no other comparison: `NOT (x = 'a')` holds for the number 5 and
`x <> 'a'` does not, and NaN is neither above nor below 3, so such a term stays an `Other` with `negated` set. What is
exact becomes a plain leaf: a property against a constant by = < <= > >=, BETWEEN, IN, LIKE without wildcards, IS NULL,
a truth value alone.

Several tests of one property in a conjunction become one (`formula_merge.py`), and constants are folded, so
`x > 1 + 2 AND x < 10` is one range, and what can never be true is the empty `Any`.

Invariant: the formula is true of some attributes exactly when `evaluate` gives True (MAT-22), and its size is linear in
the text: nothing is multiplied out.

Beware: Python holds `EqualTo("x", 1)` and `EqualTo("x", True)` for equal, and Veena does not; a dictionary of leaves
must have the value's kind in its key.

Rejected: disjunctive normal form. Ten `(a OR b)` joined by AND are 1,024 conjunctions; an index can test the ANY after
it has found the ALL.
"""

from __future__ import annotations

from veena.matching.condition.closures import MIRRORED
from veena.matching.condition.formula import EqualTo, Formula, Other, Presence
from veena.matching.condition.formula_merge import ALWAYS_TRUE, NEVER_TRUE, conjoin, disjoin, number_range, one_of
from veena.matching.condition.tree import (
    Attribute,
    Between,
    Comparison,
    Condition,
    Conjunction,
    Contains,
    Disjunction,
    Exist,
    In,
    Like,
    Literal,
    MemberOf,
    Not,
    NullTest,
    Scalar,
    Term,
    Truth,
    attribute_names,
    evaluate,
    folded,
    is_number,
    like_pattern,
)


def normal_form(condition: Condition) -> Formula:
    """The formula that is true exactly when the condition is."""
    return _form(condition, False)


def _form(condition: Condition, negated: bool) -> Formula:
    if isinstance(condition, Not):
        return _form(condition.part, not negated)
    if isinstance(condition, Conjunction | Disjunction):
        parts = [_form(part, negated) for part in condition.parts]
        return conjoin(parts) if isinstance(condition, Conjunction) != negated else disjoin(parts)
    if isinstance(condition, Comparison):
        return _comparison(condition, negated)
    if isinstance(condition, Between):
        return _between(condition, negated)
    if isinstance(condition, Truth):
        return _truth(condition, negated)
    if isinstance(condition, NullTest | Exist):
        return Presence(condition.attribute.name, isinstance(condition, Exist) != negated)
    return _rich(condition, negated) if negated else _plain(condition)


def _comparison(term: Comparison, negated: bool) -> Formula:
    left, right, operator = folded(term.left), folded(term.right), term.operator
    if isinstance(left, Literal) and isinstance(right, Attribute):
        left, right, operator = right, left, MIRRORED[operator]
    if isinstance(left, Attribute) and isinstance(right, Literal):
        if negated or operator == "<>":
            return Other(term, negated)
        return _against_constant(left.name, operator, right.value, term)
    return _rich(term, negated)


def _against_constant(name: str, operator: str, constant: Scalar, term: Comparison) -> Formula:
    if operator == "=":
        return EqualTo(name, constant) if constant == constant else NEVER_TRUE  # noqa: PLR0124 - NaN
    if isinstance(constant, str | bool):
        return Other(term, False) if term.collated else NEVER_TRUE
    if operator in {">", ">="}:
        return number_range(name, constant, None, operator == ">", False)
    return number_range(name, None, constant, False, operator == "<")


def _rich(term: Term, negated: bool) -> Formula:
    """A term for which there is no plain leaf; without names it is the same for every event."""
    if attribute_names(term):
        return Other(term, negated)
    return ALWAYS_TRUE if evaluate(term, {}) is (not negated) else NEVER_TRUE


def _between(term: Between, negated: bool) -> Formula:
    operand, low, high = term.operand, folded(term.low), folded(term.high)
    inside = not negated and not term.outside
    if inside and isinstance(operand, Attribute) and isinstance(low, Literal) and isinstance(high, Literal):
        assert is_number(low.value) and is_number(high.value), "the parsers let no other literals in here"
        return number_range(operand.name, low.value, high.value, False, False)
    first, second = ("<", ">") if term.outside else (">=", "<=")
    parts = [
        _comparison(Comparison(first, operand, low), negated),
        _comparison(Comparison(second, operand, high), negated),
    ]
    return disjoin(parts) if term.outside != negated else conjoin(parts)


def _truth(term: Truth, negated: bool) -> Formula:
    if isinstance(term.operand, Attribute):
        return EqualTo(term.operand.name, not negated)
    return ALWAYS_TRUE if term.operand.value is not negated else NEVER_TRUE


def _plain(term: In | Like | Contains | MemberOf) -> Formula:
    if isinstance(term, In):
        return one_of(term.attribute.name, [literal.value for literal in term.values])
    if isinstance(term, Like):
        exact = like_pattern(term).exact
        return Other(term, False) if exact is None else EqualTo(term.attribute.name, exact)
    return _rich(term, False)
