"""Conditions in words: the text of a tree, and why an event did not match.

`text_of` writes what the parsers read, with the groups that are needed and no more, so that reading it again gives the
same tree; terms of the Trader Constraint Language come out in its spelling. `explain_condition` walks down to the first
term that is false or unknown and names it with the values it saw, which is what an operator asks first.

Rejected: keeping the positions of terms in the tree, to quote the original text. The tree would grow by a half for the
sake of spaces and the case of keywords.
"""

from __future__ import annotations

from typing import Final

from veena.matching.condition.like import MAX_LIKE_TEXT, is_beyond_like
from veena.matching.condition.tree import (
    Arithmetic,
    Attribute,
    Attributes,
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
    Term,
    Truth,
    attribute_names,
    evaluate,
)

#: Alternatives of a disjunction that an explanation goes into; the rest is counted.
_ALTERNATIVES_SHOWN: Final = 3
#: Characters of a value or term in an explanation.
_SHOWN: Final = 120

_TRADER_OPERATORS: Final = {"=": "==", "<>": "!="}


def explain_condition(condition: Condition, attributes: Attributes, trader: bool | None = None) -> str:
    """Why the condition is not true, by its first term that failed or was unknown: `price > 10 is false: price = 7`.

    `trader` chooses the spelling; without it, by the terms, some of which are written alike in both languages.
    """
    if evaluate(condition, attributes) is True:
        return "the condition is true"
    return _explained(condition, attributes, is_trader(condition) if trader is None else trader)


def text_of(condition: Condition, trader: bool | None = None) -> str:
    """A text that reads as this condition; `trader` as above."""
    return _written(condition, is_trader(condition) if trader is None else trader)


def is_trader(condition: Condition) -> bool:
    """Whether some term has the trader's spelling only."""
    if isinstance(condition, Conjunction | Disjunction):
        return any(is_trader(part) for part in condition.parts)
    if isinstance(condition, Not):
        return is_trader(condition.part)
    return isinstance(condition, Exist | Contains | MemberOf) or (
        isinstance(condition, Comparison) and condition.collated
    )


def _explained(condition: Condition, attributes: Attributes, trader: bool) -> str:
    if isinstance(condition, Conjunction):
        failed = next(part for part in condition.parts if evaluate(part, attributes) is not True)
        return _explained(failed, attributes, trader)
    if isinstance(condition, Disjunction):
        shown = [_explained(part, attributes, trader) for part in condition.parts[:_ALTERNATIVES_SHOWN]]
        more = len(condition.parts) - len(shown)
        return "no alternative holds: " + "; ".join(shown) + (f"; and {more} more" if more else "")
    verdict = "false" if evaluate(condition, attributes) is False else "unknown"
    text = _shortened(_written(condition, trader))
    names = attribute_names(condition)
    missing = [name for name in names if attributes.get(name) is None]
    shown = missing if verdict == "unknown" and missing else list(names)
    seen = ", ".join(_seen(name, attributes, trader) for name in shown)
    reason = f"{text} is {verdict}"
    if verdict == "unknown" and not missing:
        too_long = any(is_beyond_like(attributes.get(name)) for name in _like_names(condition))
        reason += f" (LIKE takes at most {MAX_LIKE_TEXT:,} characters)" if too_long else " (no such value)"
    return f"{reason}: {seen}" if seen else reason


def _like_names(condition: Condition) -> list[str]:
    """The names that LIKE terms test."""
    if isinstance(condition, Conjunction | Disjunction):
        return [name for part in condition.parts for name in _like_names(part)]
    if isinstance(condition, Not):
        return _like_names(condition.part)
    return [condition.attribute.name] if isinstance(condition, Like) else []


def _seen(name: str, attributes: Attributes, trader: bool) -> str:
    if name not in attributes:
        return f"{name} is missing"
    value = attributes[name]
    if value is None:
        return f"{name} is NULL"
    return f"{name} = {_shortened(_value_text(value, trader))}"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _value_text(value: object, trader: bool) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        inner = value.replace("\\", "\\\\").replace("'", "\\'") if trader else value.replace("'", "''")
        return f"'{inner}'"
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"a number of {value.bit_length()} bits"  # its decimal digits would take quadratic time
    return repr(value)


def _written(condition: Condition, trader: bool) -> str:
    if isinstance(condition, Conjunction | Disjunction):
        joint = "AND" if isinstance(condition, Conjunction) else "OR"
        texts: list[str] = []
        for part in condition.parts:  # a loop, since each level of the tree may cost one call only
            text = _written(part, trader)
            is_looser = isinstance(part, Disjunction) or type(part) is type(condition)
            texts.append(f"({text})" if is_looser else text)
        return f" {joint.lower() if trader else joint} ".join(texts)
    if isinstance(condition, Not):
        return _written_not(condition.part, trader)
    return _written_term(condition, trader)


def _written_not(part: Condition, trader: bool) -> str:
    if trader:
        return f"not {_written(part, trader)}" if isinstance(part, Exist | Truth) else f"not ({_written(part, trader)})"
    if isinstance(part, NullTest):
        return f"{part.attribute.name} IS NOT NULL"
    if isinstance(part, In | Like):
        return _written_term(part, trader, "NOT ")
    return f"NOT ({_written(part, trader)})"


def _written_term(term: Term, trader: bool, negation: str = "") -> str:
    if isinstance(term, Comparison):
        operator = _TRADER_OPERATORS.get(term.operator, term.operator) if trader else term.operator
        return f"{_operand(term.left, trader)} {operator} {_operand(term.right, trader)}"
    if isinstance(term, Between):
        low, high = _operand(term.low, trader), _operand(term.high, trader)
        return f"{_operand(term.operand, trader)} {'NOT ' if term.outside else ''}BETWEEN {low} AND {high}"
    if isinstance(term, In):
        values = ", ".join(_value_text(literal.value, trader) for literal in term.values)
        return f"{term.attribute.name} {negation}{'in' if trader else 'IN'} ({values})"
    if isinstance(term, Like):
        escape = "" if term.escape is None else f" ESCAPE {_value_text(term.escape.value, trader)}"
        return f"{term.attribute.name} {negation}LIKE {_value_text(term.pattern.value, trader)}{escape}"
    if isinstance(term, NullTest):
        return f"{term.attribute.name} IS NULL"
    if isinstance(term, Exist):
        return f"exist {term.attribute.name}"
    if isinstance(term, Truth):
        return _operand(term.operand, trader)
    if isinstance(term, Contains):
        return f"{_operand(term.part, trader)} ~ {_operand(term.whole, trader)}"
    return f"{_operand(term.item, trader)} in {term.attribute.name}"


def _operand(operand: Operand, trader: bool) -> str:
    if isinstance(operand, Attribute):
        return operand.name
    if isinstance(operand, Literal):
        return _value_text(operand.value, trader)
    if isinstance(operand, Negation):
        return f"-{_inner(operand.operand, trader, 3)}"
    level = _level(operand)
    return f"{_inner(operand.left, trader, level)} {operand.operator} {_inner(operand.right, trader, level + 1)}"


def _inner(operand: Operand, trader: bool, level: int) -> str:
    text = _operand(operand, trader)
    return f"({text})" if _level(operand) < level else text


def _level(operand: Operand) -> int:
    """How tightly the operand's own operator binds."""
    if isinstance(operand, Arithmetic):
        return 1 if operand.operator in "+-" else 2
    return 3
