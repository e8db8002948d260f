"""One selector or constraint, compiled and ready to be asked: for those who have a predicate and no broker.

    compile_selector("price > 10 AND sym LIKE 'IB%'").matches({"price": 12, "sym": "IBM"})    # True

An engine does not use these: it indexes normal forms (MAT-20, TRD-09).
"""

from __future__ import annotations

from veena.errors import InvalidConstraint
from veena.matching.condition.closures import compile_condition
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.explain import explain_condition
from veena.matching.condition.selector_parser import parse_selector
from veena.matching.condition.tree import Attributes, Condition


class CompiledCondition:
    """A predicate over properties. Immutable; safe to share."""

    __slots__ = ("_check", "_trader", "condition", "text")

    def __init__(self, text: str, condition: Condition, trader: bool) -> None:
        self.text = text
        self.condition = condition
        self._trader = trader
        self._check = compile_condition(condition)

    def matches(self, attributes: Attributes) -> bool:
        """Whether the predicate is true of the properties; unknown is no match."""
        return self._check(attributes)

    def explain(self, attributes: Attributes) -> str:
        """The first term that is false or unknown, with the values it saw."""
        return explain_condition(self.condition, attributes, self._trader)

    def __repr__(self) -> str:
        return f"CompiledCondition({self.text!r})"


def compile_selector(text: str) -> CompiledCondition:
    """A JMS message selector; raises InvalidConstraint with the position of what is wrong."""
    return CompiledCondition(text, parse_selector(_checked(text)), trader=False)


def compile_constraint(text: str) -> CompiledCondition:
    """A constraint of the Trader Constraint Language; raises InvalidConstraint with the position of what is wrong."""
    return CompiledCondition(text, parse_constraint(_checked(text)), trader=True)


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise InvalidConstraint(str(text), 0, f"expected a text, found {type(text).__name__}")
    return text
