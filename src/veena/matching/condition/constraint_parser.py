"""Reading the Trader Constraint Language (TRD-06, TRD-09, DIS-03): from text to a condition, or an exact complaint.

The grammar is the OMG's (CosTrading, appendix B): `==` and its kin, `and or not`, `part ~ whole`, `item in sequence`,
`exist name`, arithmetic, groups. Its precedence is not SQL's: `not` binds more tightly than any comparison, so a
comparison under it needs a group, and the parser says so. Keywords are written as the OMG writes them. A constraint
that names a missing property does not match, under `not` either, unless it is guarded by `exist`: that is what
three-valued logic gives. docs/SELECTORS.md has the points that the specification leaves open.

Rejected: translating the text to a selector. `~`, sequences, ordered text and the precedence of `not` have no
counterpart there, and the positions of errors would be those of another text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from veena.matching.condition.lexer import MAX_NUMBER_LENGTH, Word, lexicon, shortened
from veena.matching.condition.parser import AND, OR, ExpressionParser, Node
from veena.matching.condition.tree import Attribute, Condition, Contains, Exist, Literal, MemberOf, Not, Number

_COMPARE, _IN, _SUBSTRING, _SUM, _PRODUCT, _FACTOR = range(AND + 1, AND + 7)

#: The trader's spelling, and the one in the tree.
CONSTRAINT_MEANINGS: Final[Mapping[Word, str]] = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def parse_constraint(text: str, words: Sequence[Word] | None = None) -> Condition:
    """The condition that a constraint stands for; an empty or blank one is always true.

    `words` are those of the text, where they are known already.
    """
    return _ConstraintParser(text, CONSTRAINT_LEXICON, words).parse()


def _text_value(written: str) -> str:
    inner = written[1:-1]
    if "\\" not in inner:
        return inner
    for match in _ESCAPED.finditer(inner):
        if match.group(1) not in "'\\":
            raise ValueError(f"{shortened(match.group())}: a backslash stands before a quote or another backslash only")
    return _ESCAPED.sub(r"\1", inner)


def _number_value(written: str) -> Number:
    if len(written) > MAX_NUMBER_LENGTH:
        raise ValueError(f"a number has at most {MAX_NUMBER_LENGTH} characters, this one {len(written)}")
    if written.isdigit():
        return int(written)
    approximate = float(written)
    if math.isinf(approximate):
        raise ValueError(f"{shortened(written)} is too large for an approximate number")
    return approximate


CONSTRAINT_LEXICON: Final = lexicon(
    text=r"'[^'\\]*+(?:\\.[^'\\]*+)*+'",
    number=r"(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?",
    symbols=("==", "!=", "<=", ">=", "<", ">", "~", "+", "-", "*", "/", "(", ")", ","),
    words=("and", "or", "not", "in", "exist", "TRUE", "FALSE"),
    fold=str,
    text_value=_text_value,
    number_value=_number_value,
    hints={
        "=": "write == for equal",
        '"': "text stands in single quotes",
        "!": "write != for not equal, not for negation",
        "&": "write and",
        "|": "write or",
        ".": "a property has one name, without components",
    },
)


class _ConstraintParser(ExpressionParser):
    levels: ClassVar[Mapping[Word, int]] = {
        "or": OR, "and": AND,
        "==": _COMPARE, "!=": _COMPARE, "<": _COMPARE, "<=": _COMPARE, ">": _COMPARE, ">=": _COMPARE,
        "in": _IN, "~": _SUBSTRING,
        "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT,
    }  # fmt: skip
    joint: ClassVar[str] = "and"
    collated = True

    def prefix(self, word: str, place: int) -> Node:
        match word:
            case "(":
                return self.nested(place, 0)
            case "+" | "-":
                return self.sign(word, _FACTOR)
            case "not":
                return Not(self.condition(self.nested(place, _FACTOR), place + 1))
            case "exist":
                name = self.take()
                if not isinstance(name, Attribute):
                    raise self.error(place + 1, "exist takes the name of a property")
                return Exist(name)
            case "TRUE" | "FALSE":
                return Literal(word == "TRUE")
        raise self.expected_operand(place)

    def infix(self, left: Node, place: int, operator: str, level: int) -> Node:
        if isinstance(left, Not):
            raise self.error(self.at - 1, f"not binds more tightly than {operator}; write not ( ... )")
        match operator:
            case "+" | "-" | "*" | "/":
                return self.arithmetic(left, place, operator, level)
            case "~":
                part = self.operand(left, place, operator)
                place = self.at
                return Contains(part, self.operand(self.expression(level + 1), place, operator))
            case "in":
                return self._member(left, place, operator)
        return self.comparison(left, place, operator, level, CONSTRAINT_MEANINGS[operator])

    def remedy(self, word: Word) -> str:
        folded = word.name.lower() if isinstance(word, Attribute) else ""
        return f"; this language writes {folded}" if folded in self.levels else ""

    def _member(self, left: Node, place: int, operator: str) -> Condition:
        """The rest of `item in sequence`, or of `name in (literal, ...)`, which is Veena's addition."""
        if self.words[self.at] == "(":
            return self.members(self.attribute(left, place, operator))
        item = self.operand(left, place, operator)
        name_place = self.at
        name = self.take()
        if not isinstance(name, Attribute):
            raise self.error(name_place, "in takes the name of a property that is a sequence, or (literal, ...)")
        return MemberOf(item, name)
