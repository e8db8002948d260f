"""A condition as closures: `compile_condition(condition, negated)` answers is-TRUE or is-FALSE, and nothing else.

Three-valued logic needs two answers, not three: AND is true when every part is true and false when some part is false,
so NOT only swaps the question that is put to the parts. Unknown answers no to both. That is also how an index sees a
condition (formula.py), so these closures judge what an index cannot, and are the scan that an index is measured
against (MAT-22). The common terms, a property against a constant, have closures of their own.

Invariant: `compile_condition(c, False)(a)` is `evaluate(c, a) is True`, and with True `... is False`.

Rejected: generating Python source and compiling it. Twice as fast to run and five times as slow to make, and no text
of a stranger is ever handed to `exec`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from veena.matching.condition.like import is_beyond_like
from veena.matching.condition.tree import (
    Arithmetic,
    Attribute,
    Attributes,
    Between,
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    In,
    Like,
    Literal,
    Negation,
    Not,
    Operand,
    Scalar,
    Term,
    calculate,
    compare,
    evaluate,
    folded,
    is_number,
    like_pattern,
)

Check = Callable[[Attributes], bool]
Read = Callable[[Attributes], object]

#: `literal operator attribute` turned round.
MIRRORED: Final[Mapping[str, str]] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_TESTS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compile_condition(condition: Condition, negated: bool = False) -> Check:
    """A function that says whether the condition is TRUE of some attributes, or with `negated` whether it is FALSE."""
    if isinstance(condition, Not):
        return compile_condition(condition.part, not negated)
    if isinstance(condition, Conjunction | Disjunction):
        checks = tuple([compile_condition(part, negated) for part in condition.parts])
        return _every(checks) if isinstance(condition, Conjunction) != negated else _some(checks)
    if isinstance(condition, Comparison):
        return _comparison(condition, negated)
    if isinstance(condition, Between) and not condition.outside:
        low = Comparison(">=", condition.operand, condition.low)
        high = Comparison("<=", condition.operand, condition.high)
        return compile_condition(Conjunction((low, high)), negated)
    if isinstance(condition, In):
        return _in(condition, negated)
    if isinstance(condition, Like):
        return _like(condition, negated)
    return _interpreted(condition, negated)


def _every(checks: tuple[Check, ...]) -> Check:
    if len(checks) == 2:
        first, second = checks
        return lambda attributes: first(attributes) and second(attributes)

    def every(attributes: Attributes) -> bool:
        for check in checks:  # noqa: SIM110 - all() with a generator costs twice as much here
            if not check(attributes):
                return False
        return True

    return every


def _some(checks: tuple[Check, ...]) -> Check:
    def some(attributes: Attributes) -> bool:
        for check in checks:  # noqa: SIM110 - as above
            if check(attributes):
                return True
        return False

    return some


def _interpreted(term: Term, negated: bool) -> Check:
    wanted = not negated
    return lambda attributes: evaluate(term, attributes) is wanted


def _comparison(term: Comparison, negated: bool) -> Check:
    left, right, symbol = folded(term.left), folded(term.right), term.operator
    if isinstance(left, Literal) and isinstance(right, Attribute):
        left, right, symbol = right, left, MIRRORED[symbol]
    if isinstance(left, Attribute) and isinstance(right, Literal):
        check = _against_constant(left.name, symbol, right.value, term.collated)
        return _present_but_not(left.name, check) if negated else check
    wanted, collated = not negated, term.collated
    read_left, read_right = _reader(left), _reader(right)
    return lambda attributes: compare(symbol, read_left(attributes), read_right(attributes), collated) is wanted


def _against_constant(name: str, symbol: str, constant: Scalar, collated: bool) -> Check:
    """Whether the attribute is of the constant's kind and compares with it as asked."""
    test = _TESTS[symbol]
    if isinstance(constant, str):
        if symbol == "=":
            return lambda attributes: attributes.get(name) == constant

        def on_text(attributes: Attributes) -> bool:
            value = attributes.get(name)
            return isinstance(value, str) and test(value, constant)

        return on_text if collated or symbol == "<>" else _never
    if isinstance(constant, bool):

        def on_truth(attributes: Attributes) -> bool:
            value = attributes.get(name)
            return isinstance(value, bool) and test(value, constant)

        return on_truth if collated or symbol in {"=", "<>"} else _never

    def on_number(attributes: Attributes) -> bool:
        value = attributes.get(name)
        kind = value.__class__
        return (kind is float or kind is int or is_number(value)) and test(value, constant)

    return on_number


def _never(attributes: Attributes) -> bool:
    return False


def _present_but_not(name: str, check: Check) -> Check:
    return lambda attributes: attributes.get(name) is not None and not check(attributes)


def _in(term: In, negated: bool) -> Check:
    name = term.attribute.name
    values = frozenset(literal.value for literal in term.values)
    if isinstance(term.values[0].value, str):

        def check(attributes: Attributes) -> bool:
            value = attributes.get(name)
            return isinstance(value, str) and value in values

    else:

        def check(attributes: Attributes) -> bool:
            value = attributes.get(name)
            return is_number(value) and value in values

    return _present_but_not(name, check) if negated else check


def _like(term: Like, negated: bool) -> Check:
    name = term.attribute.name
    matches = like_pattern(term).matches

    def check(attributes: Attributes) -> bool:
        value = attributes.get(name)
        return isinstance(value, str) and matches(value)

    def denial(attributes: Attributes) -> bool:
        value = attributes.get(name)
        return value is not None and not is_beyond_like(value) and not check(attributes)

    return denial if negated else check


def _reader(operand: Operand) -> Read:
    operand = folded(operand)
    if isinstance(operand, Literal):
        value = operand.value
        return lambda attributes: value
    if isinstance(operand, Attribute):
        name = operand.name
        return lambda attributes: attributes.get(name)
    if isinstance(operand, Negation):
        inner = _reader(operand.operand)
        return lambda attributes: _negative(inner(attributes))
    return _calculation(operand)


def _negative(value: object) -> object:
    return -value if is_number(value) else None


def _calculation(operand: Arithmetic) -> Read:
    symbol, left, right = operand.operator, _reader(operand.left), _reader(operand.right)
    return lambda attributes: calculate(symbol, left(attributes), right(attributes))
