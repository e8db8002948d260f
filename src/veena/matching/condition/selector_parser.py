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
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from veena.matching.condition.lexer import MAX_NUMBER_LENGTH, Lexicon, Word, lexicon, shortened
from veena.matching.condition.like import MAX_GAPPED_LIKES, PatternError
from veena.matching.condition.parser import AND, OR, ExpressionParser, Node
from veena.matching.condition.tree import (
    Attribute,
    Between,
    Condition,
    Like,
    Literal,
    Not,
    NullTest,
    Number,
    like_pattern,
)

_NOT, _TEST, _SUM, _PRODUCT, _SIGN = range(AND + 1, AND + 6)

#: The header fields that a selector may name; they come from the event's header.
HEADER_NAMES: Final = frozenset(
    {"JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"}
)


def parse_selector(text: str, words: Sequence[Word] | None = None) -> Condition:
    """The condition that a selector stands for; an empty or blank one is always true (MAT-21).

    `words` are those of the text, where they are known already.
    """
    return _SelectorParser(text, SELECTOR_LEXICON, words).parse()


def _check_header_name(name: str) -> None:
    if name not in HEADER_NAMES and not name.startswith(("JMSX", "JMS_")):
        allowed = ", ".join(sorted(HEADER_NAMES))
        raise ValueError(f"{shortened(name)}: of the header a selector may name only {allowed}")


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
    symbols=("<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "(", ")", ","),
    words=("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"),
    fold=str.upper,
    reserved="JMS",
    check_reserved=_check_header_name,
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


_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


#: The spelling of comparisons, and the one in the tree.
SELECTOR_MEANINGS: Final[Mapping[Word, str]] = {symbol: symbol for symbol in _COMPARISONS}


class _SelectorParser(ExpressionParser):
    levels: ClassVar[Mapping[Word, int]] = {
        "OR": OR, "AND": AND,
        "=": _TEST, "<>": _TEST, "<": _TEST, "<=": _TEST, ">": _TEST, ">=": _TEST,
        "BETWEEN": _TEST, "IN": _TEST, "LIKE": _TEST, "IS": _TEST, "NOT": _TEST,
        "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT,
    }  # fmt: skip

    def __init__(self, text: str, lexicon: Lexicon, words: Sequence[Word] | None = None) -> None:
        super().__init__(text, lexicon, words)
        self._gapped_likes = 0

    def prefix(self, word: str, place: int) -> Node:
        match word:
            case "(":
                return self.nested(place, 0)
            case "+" | "-":
                return self.sign(word, _SIGN)
            case "NOT":
                return Not(self.condition(self.nested(place, _NOT), place + 1))
            case "TRUE" | "FALSE":
                return Literal(word == "TRUE")
            case "NULL":
                raise self.error(place, "NULL equals nothing; write x IS NULL or x IS NOT NULL")
        raise self.expected_operand(place)

    def infix(self, left: Node, place: int, operator: str, level: int) -> Node:
        if operator in _COMPARISONS:
            return self.comparison(left, place, operator, level, operator)
        match operator:
            case "BETWEEN":
                return self._between(left, place, operator, outside=False)
            case "IS":
                return self._null_test(self.attribute(left, place, operator))
            case "NOT":
                return self._negated(left, place)
            case "IN":
                return self.members(self.attribute(left, place, operator))
            case "LIKE":
                return self._like(self.attribute(left, place, operator))
        return self.arithmetic(left, place, operator, level)

    def remedy(self, word: Word) -> str:
        return "; equal is written =, not equal <>" if word in ("=", "<", ">") else ""

    def _negated(self, left: Node, place: int) -> Node:
        """The rest of `x NOT BETWEEN`, `x NOT IN` or `x NOT LIKE`."""
        if self.takes("BETWEEN"):
            return self._between(left, place, "BETWEEN", outside=True)
        if self.takes("IN"):
            return Not(self.members(self.attribute(left, place, "IN")))
        if self.takes("LIKE"):
            return Not(self._like(self.attribute(left, place, "LIKE")))
        raise self.error(self.at, "expected BETWEEN, IN or LIKE after NOT")

    def _between(self, left: Node, place: int, operator: str, *, outside: bool) -> Condition:
        operand = self.number(left, place, operator)
        place = self.at
        low = self.number(self.simple(_TEST), place, operator)
        self.expect("AND", "between the two bounds of BETWEEN")
        place = self.at
        return Between(operand, low, self.number(self.simple(_TEST), place, operator), outside)

    def _null_test(self, attribute: Attribute) -> Condition:
        negated = self.takes("NOT")
        self.expect("NULL", "after IS NOT" if negated else "or NOT NULL after IS")
        test = NullTest(attribute)
        return Not(test) if negated else test

    def _like(self, attribute: Attribute) -> Condition:
        place = self.at
        pattern = self.take()
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise self.error(place, "LIKE takes a pattern in single quotes, for example 'IB%'")
        escape: Literal | None = None
        if self.takes("ESCAPE"):
            word = self.take()
            if not isinstance(word, Literal) or not isinstance(word.value, str) or len(word.value) != 1:
                raise self.error(place + 2, "ESCAPE takes exactly one character, for example ESCAPE '!'")
            escape = word
        term = Like(attribute, pattern, escape)
        try:
            prepared = like_pattern(term)
        except PatternError as error:
            raise self.error(place, error.reason, _written_offset(pattern.value, error.offset)) from None
        self._gapped_likes += prepared.is_gapped
        if self._gapped_likes > MAX_GAPPED_LIKES:
            reason = f"more than {MAX_GAPPED_LIKES} LIKE patterns of one text have _ inside a piece between two %"
            raise self.error(place, f"{reason}; split the text up")
        return term


def _written_offset(pattern: str, offset: int) -> int:
    """From a place in the pattern to one in the text, where it begins after a quote and holds its quotes doubled."""
    return 1 + offset + pattern[:offset].count("'")
