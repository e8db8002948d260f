"""Conditions and attributes for properties: few names and awkward values, so that terms meet often."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from veena.matching.condition.like import LikePattern, PatternError
from veena.matching.condition.tree import (
    Arithmetic,
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
    Negation,
    Not,
    NullTest,
    Operand,
    Scalar,
    Truth,
    folded,
)

NAMES = ("a", "b", "$c")
#: Neighbours at the edge of what a float can tell apart, and zeros of both signs.
NUMBERS = (0, 1, 2, 3, 7, 2**53, 2**53 + 1, 10**40, 0.0, 0.5, 1.0, 2.0, 2.5, float(2**53), 1e308)
TEXTS = ("", "a", "b", "ab", "aab", "a_b", "a%", "it's", "back\\slash", "ßé漢", "1", "TRUE")

#: Only events have these: no literal is negative, infinite, NaN, bytes or a sequence.
ONLY_VALUES = (None, -1, -2.5, -0.0, math.nan, math.inf, -math.inf, 10**2000, b"a", (1, "a", True), ["ab", 2.5])

attributes = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([True, False, *NUMBERS, *TEXTS, *ONLY_VALUES]))

names = st.sampled_from(NAMES).map(Attribute)
number_literals = st.sampled_from(NUMBERS).map(Literal)
text_literals = st.sampled_from(TEXTS).map(Literal)
truth_literals = st.booleans().map(Literal)
patterns = st.text("ab%_!é", max_size=6)


def _larger(inner: st.SearchStrategy[Operand]) -> st.SearchStrategy[Operand]:
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner),
        st.builds(Negation, inner),
    )


numeric: st.SearchStrategy[Operand] = st.recursive(st.one_of(names, number_literals), _larger, max_leaves=4)
operands: st.SearchStrategy[Operand] = st.one_of(names, number_literals, text_literals, truth_literals, numeric)
equality = st.sampled_from(["=", "<>"])
order = st.sampled_from(["<", "<=", ">", ">="])


def _is_pattern(term: Like) -> bool:
    try:
        LikePattern(str(term.pattern.value), None if term.escape is None else str(term.escape.value))
    except PatternError:
        return False
    return True


def _can_be_written(term: Comparison) -> bool:
    """Not what the languages refuse, a sign beside a text or truth value; nor two signs that they leave out."""
    for side, other in ((term.left, term.right), (term.right, term.left)):
        constant = folded(other)
        if isinstance(side, Negation) and isinstance(constant, Literal):
            is_plus = isinstance(side.operand, Negation) and isinstance(side.operand.operand, Attribute)
            if isinstance(constant.value, str | bool) or is_plus:
                return False
    return True


members: st.SearchStrategy[Condition] = st.builds(
    In,
    names,
    st.one_of(
        st.lists(text_literals, min_size=1, max_size=4).map(tuple),
        st.lists(number_literals, min_size=1, max_size=4).map(tuple),
    ),
)
truths: st.SearchStrategy[Condition] = st.builds(Truth, st.one_of(names, truth_literals))
selector_terms: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Comparison, equality, operands, operands).filter(_can_be_written),
    st.builds(Comparison, order, numeric, numeric).filter(_can_be_written),
    st.builds(Between, numeric, numeric, numeric, st.booleans()),
    st.builds(Between, names, number_literals, number_literals, st.booleans()),
    members,
    st.builds(Like, names, patterns.map(Literal), st.sampled_from([None, Literal("!")])).filter(_is_pattern),
    st.builds(NullTest, names),
    truths,
)
constraint_terms: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Comparison, st.one_of(equality, order), operands, operands, st.just(True)).filter(_can_be_written),
    members,
    st.builds(Contains, operands, operands),
    st.builds(MemberOf, operands, names),
    st.builds(Exist, names),
    truths,
)


def _joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    parts = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(Conjunction, parts), st.builds(Disjunction, parts))


selectors: st.SearchStrategy[Condition] = st.recursive(selector_terms, _joined, max_leaves=6)
constraints: st.SearchStrategy[Condition] = st.recursive(constraint_terms, _joined, max_leaves=6)
conditions: st.SearchStrategy[Condition] = st.one_of(selectors, constraints)
scalars: st.SearchStrategy[Scalar] = st.sampled_from([True, False, *NUMBERS, *TEXTS])
