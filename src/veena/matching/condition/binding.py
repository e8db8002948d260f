"""Putting other literals into a condition that has been parsed: the tree stays, the constants change.

The parsers give every literal of the text a slot, in the order of the text. `bound` makes the same tree with the
constants of another text in these slots; what has no slot (names, TRUE and FALSE) stays as it is (MAT-22).

Invariant: the tree is what the parser would give for the text whose literals these are, provided that each constant is
of the kind that its slot had; the one rule that looks at more than the kind, that of LIKE patterns, is applied again.

Rejected: trees whose literals are looked up when an event is judged. Each judgement would pay for what is done once.
"""

from __future__ import annotations

from collections.abc import Sequence

from veena.matching.condition.tree import (
    Arithmetic,
    Attribute,
    Between,
    Comparison,
    Condition,
    Conjunction,
    Contains,
    Disjunction,
    In,
    Like,
    Literal,
    MemberOf,
    Negation,
    Not,
    Operand,
    Scalar,
    like_pattern,
)


def bound(condition: Condition, constants: Sequence[Scalar]) -> Condition:
    """The condition with these literals; ValueError for a LIKE pattern that they make meaningless."""
    if isinstance(condition, Comparison):
        left, right = _operand(condition.left, constants), _operand(condition.right, constants)
        return Comparison(condition.operator, left, right, condition.collated)
    if isinstance(condition, Conjunction):
        return Conjunction(tuple([bound(part, constants) for part in condition.parts]))
    if isinstance(condition, Disjunction):
        return Disjunction(tuple([bound(part, constants) for part in condition.parts]))
    if isinstance(condition, Between):
        operand, low = _operand(condition.operand, constants), _operand(condition.low, constants)
        return Between(operand, low, _operand(condition.high, constants), condition.outside)
    if isinstance(condition, Not):
        return Not(bound(condition.part, constants))
    if isinstance(condition, In):
        return In(condition.attribute, tuple([_literal(value, constants) for value in condition.values]))
    if isinstance(condition, Like):
        escape = None if condition.escape is None else _literal(condition.escape, constants)
        like = Like(condition.attribute, _literal(condition.pattern, constants), escape)
        like_pattern(like)
        return like
    if isinstance(condition, Contains):
        return Contains(_operand(condition.part, constants), _operand(condition.whole, constants))
    if isinstance(condition, MemberOf):
        return MemberOf(_operand(condition.item, constants), condition.attribute)
    return condition


def _operand(operand: Operand, constants: Sequence[Scalar]) -> Operand:
    if isinstance(operand, Attribute):
        return operand
    if isinstance(operand, Literal):
        return _literal(operand, constants)
    if isinstance(operand, Arithmetic):
        return Arithmetic(operand.operator, _operand(operand.left, constants), _operand(operand.right, constants))
    return Negation(_operand(operand.operand, constants))


def _literal(literal: Literal, constants: Sequence[Scalar]) -> Literal:
    if literal.slot < 0:
        return literal
    value = constants[literal.slot]
    if not literal.has_minus:
        return Literal(value, literal.slot)
    assert not isinstance(value, str), "the parsers let no text stand behind a sign"
    return Literal(-value, literal.slot, True)
