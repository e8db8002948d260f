"""Reading SQL-92 message selectors as JMS has them (MAT-20..22): from text to a condition, or an exact complaint.

The grammar is JMS's own: operands are names, literals and arithmetic; a term compares, or tests by BETWEEN, IN, LIKE or
IS NULL; NOT, AND and OR join terms, in this order of binding, and `NOT x = 5` is `NOT (x = 5)`. Keywords are written in
any case, names are exact. What the specification leaves open is decided in docs/SELECTORS.md.

`x NOT BETWEEN a AND b` is `x < a OR x > b`, as the specification says, and so no NOT at all; NOT IN, NOT LIKE and IS
NOT NULL are the NOT of the term.

Rejected: accepting what other brokers accept beyond the specification (`==`, `!=`, double quotes): a selector would
then mean something here and nothing elsewhere. Each of them is refused with the spelling to use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Final

from veena.matching.condition import (
    Attribute,
    Between,
    Condition,
    Like,
    Literal,
    Not,
    NullTest,
    like_pattern,
)
from veena.matching.condition_lexer import MAX_NUMBER_LENGTH, Lexicon, Token, lexicon, shortened
from veena.matching.condition_parser import ExpressionParser, Node
from veena.matching.formula import Number
from veena.matching.like import MAX_GAPPED_LIKES, PatternError

_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGN = range(1, 8)

#: The header fields that a selector may name; they come from the event's header.
HEADER_NAMES: Final = frozenset(
    {"JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"}
)

_WORDS: Final = ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE")


def parse_selector(text: str) -> Condition:
    """The condition that a selector stands for; an empty or blank one is always true (MAT-21)."""
    return _SelectorParser(text, SELECTOR_LEXICON).parse()


def _text_value(written: str) -> str:
    return written[1:-1].replace("''", "'")


def _number_value(written: str) -> Number:
    """Java's forms: hexadecimal, octal and decimal with an L, and approximate ones with an F or D."""
    if len(written) > MAX_NUMBER_LENGTH:
        raise ValueError(f"a number has at most {MAX_NUMBER_LENGTH} characters, this one {len(written)}")
    if written.isdigit():
        if written[0] != "0":
            return int(written)
    else:
        try:
            plain = float(written)  # which knows no suffix and no hexadecimal form, and refuses both
            if not math.isinf(plain):
                return plain
        except ValueError:
            pass
    lowered = written.lower()
    if lowered.startswith("0x"):
        return int(lowered.removesuffix("l"), 16)
    if "." in lowered or "e" in lowered or lowered[-1] in "fd":
        approximate = float(lowered.rstrip("fd"))
        if math.isinf(approximate):
            raise ValueError(f"{shortened(written)} is too large for an approximate number")
        return approximate
    digits = lowered.removesuffix("l")
    if digits[0] != "0":
        return int(digits)
    try:
        return int(digits, 8)
    except ValueError:
        raise ValueError(f"{shortened(written)}: a leading 0 makes an octal number, which has digits 0 to 7") from None


_DIGITS: Final = "[0-9]++"
_EXPONENT: Final = "[eE][+-]?[0-9]++"

SELECTOR_LEXICON: Final = lexicon(
    text=r"'[^']*+(?:''[^']*+)*+'",
    number=(
        rf"0[xX][0-9a-fA-F]++[lL]?|(?:{_DIGITS}\.[0-9]*+|\.{_DIGITS})(?:{_EXPONENT})?[fFdD]?"
        rf"|{_DIGITS}(?:{_EXPONENT}[fFdD]?|[fFdDlL])?"
    ),
    symbols=r"<>|<=|>=|[=<>+\-*/(),]",
    fold=str.upper,
    words={word: word for word in _WORDS},
    text_value=_text_value,
    number_value=_number_value,
    hints={
        '"': "text stands in single quotes",
        "!": "write <> for not equal, NOT for negation",
        "&": "write AND",
        "|": "write OR",
        "%": "% is a wildcard inside the pattern of LIKE only",
        ";": "a selector is one condition",
    },
)


class _SelectorParser(ExpressionParser):
    levels: ClassVar[Mapping[str, int]] = {
        "OR": _OR, "AND": _AND,
        "=": _TEST, "<>": _TEST, "<": _TEST, "<=": _TEST, ">": _TEST, ">=": _TEST,
        "BETWEEN": _TEST, "IN": _TEST, "LIKE": _TEST, "IS": _TEST, "NOT": _TEST,
        "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT,
    }  # fmt: skip

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        super().__init__(text, lexicon)
        self._gapped_likes = 0

    def prefix(self) -> Node:
        token = self.token
        self.token = next(self.rest, token)
        if token.kind == "name":
            if token.text.startswith("JMS"):
                self._check_header_name(token)
            return Attribute(token.text)
        if token.slot >= 0:
            return Literal(token.value, token.slot)
        match token.text:
            case "(":
                return self.nested(token, 0)
            case "+" | "-":
                return self.sign(token, _SIGN)
            case "NOT":
                place = self.token.place
                return Not(self.condition(self.nested(token, _NOT), place))
            case "TRUE" | "FALSE":
                return Literal(token.text == "TRUE")
            case "NULL":
                raise self.error(token.place, "NULL equals nothing; write x IS NULL or x IS NOT NULL")
        raise self.expected_operand(token)

    def infix(self, left: Node, place: int, operator: Token, level: int) -> Node:
        if operator.kind == "symbol":
            if level > _TEST:
                return self.arithmetic(left, place, operator, level)
            return self.comparison(left, place, operator, level, operator.text)
        match operator.text:
            case "IS":
                return self._null_test(self.attribute(left, place, operator))
            case "NOT":
                return self._negated(left, place)
            case "BETWEEN":
                return self._between(left, place, operator, outside=False)
            case "IN":
                return self.members(self.attribute(left, place, operator))
        return self._like(self.attribute(left, place, operator))

    def remedy(self, token: Token) -> str:
        return "; equal is written =, not equal <>" if token.text in {"=", "<", ">"} else ""

    def _negated(self, left: Node, place: int) -> Node:
        """The rest of `x NOT BETWEEN`, `x NOT IN` or `x NOT LIKE`."""
        operator = self.take()
        if operator.kind == "word" and operator.text == "BETWEEN":
            return self._between(left, place, operator, outside=True)
        if operator.kind == "word" and operator.text == "IN":
            return Not(self.members(self.attribute(left, place, operator)))
        if operator.kind == "word" and operator.text == "LIKE":
            return Not(self._like(self.attribute(left, place, operator)))
        raise self.error(operator.place, "expected BETWEEN, IN or LIKE after NOT")

    def _between(self, left: Node, place: int, operator: Token, *, outside: bool) -> Condition:
        operand = self.number(left, place, operator)
        place = self.token.place
        low = self.number(self.expression(_SUM), place, operator)
        self.expect("AND", "between the two bounds of BETWEEN")
        place = self.token.place
        return Between(operand, low, self.number(self.expression(_SUM), place, operator), outside)

    def _null_test(self, attribute: Attribute) -> Condition:
        negated = self.takes("NOT")
        self.expect("NULL", "after IS NOT" if negated else "or NOT NULL after IS")
        test = NullTest(attribute)
        return Not(test) if negated else test

    def _like(self, attribute: Attribute) -> Condition:
        pattern = self.take()
        if pattern.kind != "text":
            raise self.error(pattern.place, "LIKE takes a pattern in single quotes, for example 'IB%'")
        escape: Token | None = None
        if self.takes("ESCAPE"):
            escape = self.take()
            if escape.kind != "text" or len(str(escape.value)) != 1:
                raise self.error(escape.place, "ESCAPE takes exactly one character, for example ESCAPE '!'")
        term = Like(
            attribute,
            Literal(pattern.value, pattern.slot),
            None if escape is None else Literal(escape.value, escape.slot),
        )
        try:
            prepared = like_pattern(term)
        except PatternError as error:
            raise self.error(pattern.place, error.reason, _written_offset(pattern, error.offset)) from None
        self._gapped_likes += prepared.is_gapped
        if self._gapped_likes > MAX_GAPPED_LIKES:
            reason = f"more than {MAX_GAPPED_LIKES} LIKE patterns of one text have _ inside a piece between two %"
            raise self.error(pattern.place, f"{reason}; split the text up")
        return term

    def _check_header_name(self, token: Token) -> None:
        name = token.text
        if name not in HEADER_NAMES and not name.startswith(("JMSX", "JMS_")):
            allowed = ", ".join(sorted(HEADER_NAMES))
            raise self.error(token.place, f"{shortened(name)}: of the header a selector may name only {allowed}")


def _written_offset(pattern: Token, offset: int) -> int:
    """From a place in the pattern to one in the text, where it begins after a quote and holds its quotes doubled."""
    return 1 + offset + str(pattern.value)[:offset].count("'")
