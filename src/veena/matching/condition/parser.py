"""What the two grammars share: operators by precedence, groups, arithmetic, and the question what is a condition.

A parser climbs by precedence: `expression(level)` takes a prefix, then every infix operator that binds at least as
tightly as `level`. A group may hold an operand or a condition (`(a + 1) * 2 > 5`, `(a > 1) AND b`), so a node is
either, and each operator says which it wants; that is how the position of a misplaced one is known. A place is the
number of a word; only a complaint needs the character that the word begins at.

Invariant: no text, however written, makes the tree deeper than a few hundred levels. Groups, NOT and signs are bounded
by `MAX_NESTING`, arithmetic by `MAX_ARITHMETIC`, and AND and OR hold any number of parts on one level; so neither
parsing nor judging can meet Python's limit of recursion.

Rejected: one method for each level of the grammar. It reads like the specification but takes eight calls for each
pair of parentheses, and 64 of them would then come close to that limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from veena.errors import InvalidConstraint
from veena.matching.condition.lexer import END, Lexicon, Word, lex, position_of, shortened, written
from veena.matching.condition.tree import (
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
    folded,
    kind_of,
)

#: Groups, NOT and signs inside each other. Nobody reads more than a handful.
MAX_NESTING: Final = 64
#: Operators + - * / in one text: each is a level of the tree.
MAX_ARITHMETIC: Final = 64

#: The levels that join conditions; every other operator binds more tightly.
OR, AND = 1, 2

Node = Operand | Condition
#: A tuple, since a union would be built anew for every question.
_OPERANDS: Final = (Literal, Attribute, Arithmetic, Negation)
_NO_NUMBERS: Final = (str, bool)
_EQUALITIES: Final = frozenset({"=", "<>"})


class ExpressionParser(ABC):
    """One text on its way to a condition. A language gives the levels of its infix operators and what they make."""

    #: By the spelling of a symbol or keyword; a higher level binds more tightly. No name and no literal has one.
    levels: ClassVar[Mapping[Word, int]] = {}
    #: How AND is written.
    joint: ClassVar[str] = "AND"
    #: Whether text and truth values have an order (see `Comparison.collated`).
    collated = False

    def __init__(self, text: str, lexicon: Lexicon, words: Sequence[Word] | None = None) -> None:
        self.text = text
        self._lexicon = lexicon
        self.words = lex(text, lexicon) if words is None else words
        #: The place of the next word, not yet taken.
        self.at = 0
        # Of the instance, because Python finds those of a class only after a search.
        self._levels = self.levels
        self._depth = 0
        self._arithmetic = 0

    def parse(self) -> Condition:
        if self.words[0] == END:
            return ALWAYS
        node = self.expression(0)
        if self.words[self.at] != END:
            reason = f"{self._seen(self.at)} was not expected here{self.remedy(self.words[self.at])}"
            raise self.error(self.at, reason)
        return self.condition(node, 0)

    def expression(self, level: int) -> Node:
        start = self.at
        word = self.words[start]
        self.at = start + 1
        left: Node = self.prefix(word, start) if isinstance(word, str) else word
        while (binding := self._levels.get(operator := self.words[self.at], -1)) >= level:
            assert isinstance(operator, str), "only symbols and keywords have a level"
            self.at += 1
            if binding > AND:
                left = self.infix(left, start, operator, binding)
                continue
            # `a AND b AND c` is one node with three parts. Taken here, not in a method: one call less a group.
            parts = [self.condition(left, start) if isinstance(left, _OPERANDS) else left]
            while True:
                place = self.at
                part = self.expression(binding + 1)
                parts.append(self.condition(part, place) if isinstance(part, _OPERANDS) else part)
                if self.words[self.at] != operator:
                    break
                self.at += 1
            left = Conjunction(tuple(parts)) if binding == AND else Disjunction(tuple(parts))
        return left

    @abstractmethod
    def prefix(self, word: str, place: int) -> Node:
        """What begins with a symbol or keyword, which has been taken: a group, or an operator before its operand."""

    @abstractmethod
    def infix(self, left: Node, place: int, operator: str, level: int) -> Node:
        """What `left operator ...` makes; the operator has just been taken, `place` is where `left` begins."""

    def remedy(self, word: Word) -> str:
        """What to write instead of a word that does not fit, or nothing."""
        return ""

    # -- pieces that both languages use

    def take(self) -> Word:
        """The next word; the end can be taken again and again."""
        word = self.words[self.at]
        if word != END:
            self.at += 1
        return word

    def takes(self, spelling: str) -> bool:
        """Take the next word if it is this symbol or keyword."""
        if self.words[self.at] != spelling:
            return False
        self.at += 1
        return True

    def expect(self, spelling: str, why: str) -> None:
        if not self.takes(spelling):
            raise self.error(self.at, f"expected {spelling} {why}, found {self._seen(self.at)}")

    def nested(self, operator: int, level: int) -> Node:
        """What stands inside a group, or after NOT or a sign; `operator` is the place of what opened it."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error(operator, f"nested deeper than {MAX_NESTING} levels")
        node = self.expression(level)
        self._depth -= 1
        if self.words[operator] == "(":
            self.expect(")", "to close the group")
        return node

    def sign(self, operator: str, level: int) -> Node:
        place = self.at
        operand = self.operand(self.nested(place - 1, level), place, operator)
        if isinstance(operand, Literal) and isinstance(operand.value, _NO_NUMBERS):
            reason = f"{operator} works on numbers, and this is a {kind_of(operand)}; leave the sign out"
            raise self.error(place, reason)
        if operator == "-":
            return Negation(operand)
        # The value of `+x` is that of x where x is a number, and there is none where it is a text: as of `--x`.
        return Negation(Negation(operand)) if isinstance(operand, Attribute) else operand

    def arithmetic(self, left: Node, place: int, operator: str, level: int) -> Operand:
        self._arithmetic += 1
        if self._arithmetic > MAX_ARITHMETIC:
            raise self.error(self.at - 1, f"more than {MAX_ARITHMETIC} arithmetic operators in one text")
        first = self.number(left, place, operator)
        place = self.at
        return Arithmetic(operator, first, self.number(self.expression(level + 1), place, operator))

    def comparison(self, left: Node, place: int, operator: str, level: int, meaning: str) -> Condition:
        first = left if isinstance(left, _OPERANDS) else self.operand(left, place, operator)
        right_place = self.at
        right = self.simple(level)
        second = right if isinstance(right, _OPERANDS) else self.operand(right, right_place, operator)
        if meaning not in _EQUALITIES and not self.collated:
            self.number(first, place, operator)
            self.number(second, right_place, operator)
        if isinstance(first, Negation) or isinstance(second, Negation):
            first, second = self._signed(first, place, second), self._signed(second, right_place, first)
        return Comparison(meaning, first, second, self.collated)

    def _signed(self, operand: Operand, place: int, other: Operand) -> Operand:
        """One side of a comparison, which may have a sign; without a `+` that says nothing beside a number."""
        if not isinstance(operand, Negation):
            return operand
        constant = folded(other)
        if not isinstance(constant, Literal):
            return operand
        if isinstance(constant.value, _NO_NUMBERS):
            reason = f"a sign works on numbers, and this is compared with a {kind_of(constant)}; leave the sign out"
            raise self.error(place, reason)
        inner = operand.operand
        return inner.operand if isinstance(inner, Negation) and isinstance(inner.operand, Attribute) else operand

    def simple(self, level: int) -> Node:
        """What binds more tightly than `level`: mostly a literal, for which there is no need to climb."""
        word = self.words[self.at]
        if not isinstance(word, Literal) or self._levels.get(self.words[self.at + 1], -1) > level:
            return self.expression(level + 1)
        self.at += 1
        return word

    def members(self, attribute: Attribute) -> Condition:
        """The rest of `IN (literal, ...)`."""
        self.expect("(", "after IN, for example ('a', 'b')")
        values: list[Literal] = []
        while True:
            place = self.at
            literal = self._member_literal()
            if values and kind_of(values[0]) != kind_of(literal):
                reason = f"a list holds literals of one kind: this is a {kind_of(literal)}, the first a "
                raise self.error(place, reason + str(kind_of(values[0])))
            values.append(literal)
            if not self.takes(","):
                break
        self.expect(")", "to close the list")
        return In(attribute, tuple(values))

    def _member_literal(self) -> Literal:
        """A text, or a number with or without a sign."""
        sign = "-" if self.takes("-") else "+" if self.takes("+") else ""
        place = self.at
        literal = self.take()
        if not isinstance(literal, Literal):
            raise self.error(place, f"a list holds literals only, found {self._seen(place)}")
        if not sign:
            return literal
        value = literal.value
        if isinstance(value, str):
            raise self.error(place, f"{sign} works on numbers, and this is a text")
        return Literal(-value, literal.slot, True) if sign == "-" else literal

    # -- what a node must be

    def condition(self, node: Node, place: int) -> Condition:
        if not isinstance(node, _OPERANDS):
            return node
        if isinstance(node, Attribute) or (isinstance(node, Literal) and isinstance(node.value, bool)):
            return Truth(node)
        raise self.error(place, f"a {kind_of(node)} alone is no condition; compare it with something")

    def operand(self, node: Node, place: int, operator: str) -> Operand:
        if isinstance(node, _OPERANDS):
            return node
        chained = f"; comparisons do not chain: write a < b {self.joint} b < c"
        reason = f"{operator} works on values, and this is a condition"
        raise self.error(place, reason + (chained if isinstance(node, Comparison) else ""))

    def number(self, node: Node, place: int, operator: str) -> Operand:
        operand = node if isinstance(node, _OPERANDS) else self.operand(node, place, operator)
        if isinstance(operand, Literal) and isinstance(operand.value, _NO_NUMBERS):
            raise self.error(place, f"{operator} works on numbers, and this is a {kind_of(operand)}")
        return operand

    def attribute(self, node: Node, place: int, operator: str) -> Attribute:
        if not isinstance(node, Attribute):
            raise self.error(place, f"{operator} works on a property's name, which must stand here")
        return node

    def error(self, place: int, reason: str, offset: int = 0) -> InvalidConstraint:
        """The complaint about the word at this place, or about a character inside it."""
        return InvalidConstraint(self.text, position_of(self.text, self._lexicon, place) + offset, reason)

    def expected_operand(self, place: int) -> InvalidConstraint:
        reason = f"expected a name, a literal or a group, found {self._seen(place)}"
        return self.error(place, reason + self.remedy(self.words[place]))

    def _seen(self, place: int) -> str:
        word = self.words[place]
        if isinstance(word, str):
            return word or "the end of the text"
        return shortened(written(self.text, self._lexicon, place))
