"""What the two grammars share: operators by precedence, groups, arithmetic, and the question what is a condition.

A parser climbs by precedence: `expression(level)` takes a prefix, then every infix operator that binds at least as
tightly as `level`. A group may hold an operand or a condition (`(a + 1) * 2 > 5`, `(a > 1) AND b`), so a node is
either, and each operator says which it wants; that is how the position of a misplaced one is known.

Invariant: no text, however written, makes the tree deeper than a few hundred levels. Groups, NOT and signs are bounded
by `MAX_NESTING`, arithmetic by `MAX_ARITHMETIC`, and AND and OR hold any number of parts on one level; so neither
parsing nor judging can meet Python's limit of recursion.

Rejected: one method for each level of the grammar. It reads like the specification but takes eight calls for each
pair of parentheses, and 64 of them would then come close to that limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from veena.errors import InvalidConstraint
from veena.matching.condition import (
    ALWAYS,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    In,
    Literal,
    Negation,
    Operand,
    Truth,
    kind_of,
)
from veena.matching.condition_lexer import Lexicon, Token, lex, position_of, shortened

#: Groups, NOT and signs inside each other. Nobody reads more than a handful.
MAX_NESTING: Final = 64
#: Operators + - * / in one text: each is a level of the tree.
MAX_ARITHMETIC: Final = 64

Node = Operand | Condition
#: A tuple, since a union would be built anew for every question.
_OPERANDS: Final = (Literal, Attribute, Arithmetic, Negation)
_NO_NUMBERS: Final = (str, bool)


class ExpressionParser(ABC):
    """One text on its way to a condition. A language gives the levels of its infix operators and what they make."""

    #: By the spelling of a symbol or keyword; a higher level binds more tightly.
    levels: ClassVar[Mapping[str, int]] = {}
    #: How AND and OR are written.
    joints: ClassVar[tuple[str, str]] = ("AND", "OR")
    #: Whether text and truth values have an order (see `Comparison.collated`).
    collated = False

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self.text = text
        self._lexicon = lexicon
        self.rest = iter(lex(text, lexicon))
        #: The next one, not yet taken.
        self.token = next(self.rest)
        self._depth = 0
        self._arithmetic = 0

    def parse(self) -> Condition:
        if self.token.kind == "end":
            return ALWAYS
        place = self.token.place
        node = self.expression(0)
        if self.token.kind != "end":
            raise self.error(
                self.token.place, f"{self._seen(self.token)} was not expected here{self.remedy(self.token)}"
            )
        return self.condition(node, place)

    def expression(self, level: int) -> Node:
        place = self.token.place
        left = self.prefix()
        levels = self.levels
        # No name and no literal is spelt like an operator, so the kind of the token need not be asked.
        while (binding := levels.get(self.token.text, -1)) >= level:
            operator = self.token
            self.token = next(self.rest, operator)
            if operator.text not in self.joints:
                left = self.infix(left, place, operator, binding)
                continue
            # `a AND b AND c` is one node with three parts. Taken here, not in a method: one call less a group.
            parts = [self.condition(left, place)]
            while True:
                start = self.token.place
                parts.append(self.condition(self.expression(binding + 1), start))
                if not self.takes(operator.text):
                    break
            left = Conjunction(tuple(parts)) if operator.text == self.joints[0] else Disjunction(tuple(parts))
        return left

    @abstractmethod
    def prefix(self) -> Node:
        """An operand, a group, or an operator that stands before what it works on."""

    @abstractmethod
    def infix(self, left: Node, place: int, operator: Token, level: int) -> Node:
        """What `left operator ...` makes; `operator` has been taken, `place` is where `left` begins."""

    def remedy(self, token: Token) -> str:
        """What to write instead of a token that does not fit, or nothing."""
        return ""

    # -- pieces that both languages use

    def take(self) -> Token:
        """The next token; the end can be taken again and again."""
        token = self.token
        self.token = next(self.rest, token)
        return token

    def takes(self, spelling: str) -> bool:
        """Take the next token if it is this symbol or keyword."""
        token = self.token
        if token.text != spelling or token.kind not in {"symbol", "word"}:
            return False
        self.token = next(self.rest, token)
        return True

    def expect(self, spelling: str, why: str) -> None:
        if not self.takes(spelling):
            raise self.error(self.token.place, f"expected {spelling} {why}, found {self._seen(self.token)}")

    def nested(self, operator: Token, level: int) -> Node:
        """What stands inside a group, or after NOT or a sign."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error(operator.place, f"nested deeper than {MAX_NESTING} levels")
        node = self.expression(level)
        self._depth -= 1
        if operator.text == "(":
            self.expect(")", "to close the group")
        return node

    def sign(self, operator: Token, level: int) -> Node:
        place = self.token.place
        operand = self.number(self.nested(operator, level), place, operator)
        return Negation(operand) if operator.text == "-" else operand

    def arithmetic(self, left: Node, place: int, operator: Token, level: int) -> Operand:
        self._arithmetic += 1
        if self._arithmetic > MAX_ARITHMETIC:
            raise self.error(operator.place, f"more than {MAX_ARITHMETIC} arithmetic operators in one text")
        first = self.number(left, place, operator)
        place = self.token.place
        return Arithmetic(operator.text, first, self.number(self.expression(level + 1), place, operator))

    def comparison(self, left: Node, place: int, operator: Token, level: int, meaning: str) -> Condition:
        first = self.operand(left, place, operator)
        right_place = self.token.place
        second = self.operand(self.expression(level + 1), right_place, operator)
        if not self.collated and meaning not in {"=", "<>"}:
            self._check_number(first, place, operator)
            self._check_number(second, right_place, operator)
        return Comparison(meaning, first, second, self.collated)

    def members(self, attribute: Attribute) -> Condition:
        """The rest of `IN (literal, ...)`."""
        self.expect("(", "after IN, for example ('a', 'b')")
        values: list[Literal] = []
        while True:
            token = self.token
            literal = self._member_literal()
            if values and kind_of(values[0]) != kind_of(literal):
                reason = f"a list holds literals of one kind: this is a {kind_of(literal)}, the first a "
                raise self.error(token.place, reason + str(kind_of(values[0])))
            values.append(literal)
            if not self.takes(","):
                break
        self.expect(")", "to close the list")
        return In(attribute, tuple(values))

    def _member_literal(self) -> Literal:
        """A text, or a number with or without a sign."""
        token = self.take()
        sign = token.text if token.kind == "symbol" and token.text in {"+", "-"} else ""
        if sign:
            token = self.take()
        if token.kind not in {"text", "number"}:
            raise self.error(token.place, f"a list holds literals only, found {self._seen(token)}")
        value = token.value
        if not sign:
            return Literal(value, token.slot)
        if isinstance(value, str):
            raise self.error(token.place, f"{sign} works on numbers, and this is a text")
        return Literal(-value, token.slot, True) if sign == "-" else Literal(value, token.slot)

    # -- what a node must be

    def condition(self, node: Node, place: int) -> Condition:
        if not isinstance(node, _OPERANDS):
            return node
        if isinstance(node, Attribute) or (isinstance(node, Literal) and isinstance(node.value, bool)):
            return Truth(node)
        raise self.error(place, f"a {kind_of(node)} alone is no condition; compare it with something")

    def operand(self, node: Node, place: int, operator: Token) -> Operand:
        if isinstance(node, _OPERANDS):
            return node
        chained = f"; comparisons do not chain: write a < b {self.joints[0]} b < c"
        reason = f"{operator.text} works on values, and this is a condition"
        raise self.error(place, reason + (chained if isinstance(node, Comparison) else ""))

    def number(self, node: Node, place: int, operator: Token) -> Operand:
        operand = node if isinstance(node, _OPERANDS) else self.operand(node, place, operator)
        if isinstance(operand, Literal):
            self._check_number(operand, place, operator)
        return operand

    def _check_number(self, operand: Operand, place: int, operator: Token) -> None:
        if isinstance(operand, Literal) and isinstance(operand.value, _NO_NUMBERS):
            raise self.error(place, f"{operator.text} works on numbers, and this is a {kind_of(operand)}")

    def attribute(self, node: Node, place: int, operator: Token) -> Attribute:
        if not isinstance(node, Attribute):
            raise self.error(place, f"{operator.text} works on a property's name, which must stand here")
        return node

    def error(self, place: int, reason: str, offset: int = 0) -> InvalidConstraint:
        """The complaint about the word at this place, or about a character inside it."""
        return InvalidConstraint(self.text, position_of(self.text, self._lexicon, place) + offset, reason)

    def expected_operand(self, token: Token) -> InvalidConstraint:
        reason = f"expected a name, a literal or a group, found {self._seen(token)}"
        return self.error(token.place, reason + self.remedy(token))

    def _seen(self, token: Token) -> str:
        return "the end of the text" if token.kind == "end" else shortened(token.text)
