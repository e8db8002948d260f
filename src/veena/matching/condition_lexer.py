"""The words of a selector or constraint: one pass of one compiled pattern, with the place of each word kept.

Both languages share the shapes (names, literals, symbols) and differ in keywords, in how a text literal writes its own
quote, and in the forms of numbers; a `Lexicon` holds what differs. The same fragments of pattern also cut a text at
its literals (`condition_template.py`), so the two always agree on what a literal is.

Invariant: no pattern can backtrack into another reading (the quantifiers are possessive), so the pass is linear in the
text; and every literal gets the next slot, in the order of the text.

Rejected: `\\w` for names. It lets digits such as superscripts in and keeps combining marks out; Java's rule, which JMS
takes, is the other way round, so what is not ASCII is judged by its Unicode category.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from string import ascii_letters
from typing import Final

from veena.errors import InvalidConstraint
from veena.matching.formula import Number, Scalar

#: A text this long is no predicate but a mistake or an attack; a term is rarely longer than 60 characters.
MAX_TEXT_LENGTH: Final = 16 * 1024
#: Names and literals of one text: one evaluation makes at most so many comparisons, each in time linear in the values
#: that the event has there. LIKE, the dearest of them, has bounds of its own in `like.py`.
MAX_TERMS: Final = 1000
#: Characters of one number. Conversion of decimal digits takes quadratic time.
MAX_NUMBER_LENGTH: Final = 100

#: What may not stand beside a number, and what a name is made of before its characters are judged.
NAME_CHARACTER: Final = "A-Za-z0-9_$\u0080-\U0010ffff"
_NAME: Final = rf"[A-Za-z_$\u0080-\U0010ffff][{NAME_CHARACTER}]*+"
_SPACES: Final = " \t\n\r\f"

#: By the first character of a word; what is not ASCII begins a name.
_KINDS: Final[Mapping[str, str]] = {
    "": "none",
    "'": "text",
    **dict.fromkeys("0123456789.", "number"),
    **dict.fromkeys(ascii_letters + "_$", "name"),
    **dict.fromkeys("=<>!~+-*/(),", "symbol"),
}

_NAME_STARTS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_NAME_PARTS: Final = _NAME_STARTS | {"Nd", "Mc", "Mn", "Cf"}


class Token:
    """A word of the text; not changed once made. A plain class: a text has dozens."""

    __slots__ = ("kind", "place", "slot", "text", "value")

    def __init__(self, kind: str, text: str, place: int, value: Scalar = "", slot: int = -1) -> None:
        #: name, text, number, word (a keyword, in its canonical spelling), symbol or end
        self.kind = kind
        self.text = text
        #: Among the words of the text; `position_of` has the character, which only a complaint needs.
        self.place = place
        #: Of a literal, and its place among the literals of the text; -1 for all other words.
        self.value = value
        self.slot = slot


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What one language's words look like."""

    pattern: re.Pattern[str]
    #: The literals alone, for cutting a text at them; its one group makes `split` keep them.
    literals: re.Pattern[str]
    #: How a word that may be a keyword is looked up in `words`.
    fold: Callable[[str], str]
    words: Mapping[str, str]
    #: From the literal as written to its value; both raise ValueError with the reason.
    text_value: Callable[[str], str]
    number_value: Callable[[str], Number]
    #: What to write instead of a character that has no place in the language.
    hints: Mapping[str, str]


def lexicon(
    *,
    text: str,
    number: str,
    symbols: str,
    fold: Callable[[str], str],
    words: Mapping[str, str],
    text_value: Callable[[str], str],
    number_value: Callable[[str], Number],
    hints: Mapping[str, str],
) -> Lexicon:
    """Put a language together from its fragments of pattern."""
    # A number touches neither a name nor another number, so that a search finds it where a pass from the start does.
    bounded = rf"(?<![{NAME_CHARACTER}.])(?:{number})(?![{NAME_CHARACTER}.])"
    # Each word takes the space behind it along, which saves every second step. What is no word leaves the group empty.
    pattern = rf"(?:({_NAME}|{symbols}|{text}|{bounded})|.)[{_SPACES}]*+"
    # What no literal begins with is passed over before the longer question is put.
    literals = rf"(?=['0-9.])({text}|{bounded})"
    return Lexicon(
        re.compile(pattern, re.DOTALL),
        re.compile(literals, re.DOTALL),
        fold, words, text_value, number_value, hints,
    )  # fmt: skip


def lex(text: str, lexicon: Lexicon) -> list[Token]:
    """Cut the text into tokens, the last of kind `end`; raise InvalidConstraint at what is no word."""
    check_length(text)
    tokens: list[Token] = []
    slot = terms = 0
    words, fold = lexicon.words, lexicon.fold
    found = lexicon.pattern.findall(text.lstrip(_SPACES))
    for place, word in enumerate(found):
        kind = _KINDS.get(word[:1], "name")
        if kind == "symbol":
            tokens.append(Token(kind, word, place))
            continue
        if kind == "name":
            keyword = words.get(fold(word))
            if keyword is not None:
                tokens.append(Token("word", keyword, place))
                continue
            if not word.isascii() and (offset := _misfit(word)) >= 0:
                reason = f"a name cannot hold {described(word[offset])}"
                raise InvalidConstraint(text, position_of(text, lexicon, place) + offset, reason)
            tokens.append(Token(kind, word, place))
        elif kind == "none":
            position = position_of(text, lexicon, place)
            raise InvalidConstraint(text, position, _why_bad(text, position, lexicon))
        else:
            try:
                value = lexicon.text_value(word) if kind == "text" else lexicon.number_value(word)
            except ValueError as error:
                raise InvalidConstraint(text, position_of(text, lexicon, place), str(error)) from None
            tokens.append(Token(kind, word, place, value, slot))
            slot += 1
        terms += 1
        if terms > MAX_TERMS:
            reason = f"more than {MAX_TERMS} names and literals; split the text up"
            raise InvalidConstraint(text, position_of(text, lexicon, place), reason)
    tokens.append(Token("end", "", len(found)))
    return tokens


def position_of(text: str, lexicon: Lexicon, place: int) -> int:
    """Where the word at this place begins; the length of the text for the place behind the last word."""
    start = len(text) - len(text.lstrip(_SPACES))
    match = next(islice(lexicon.pattern.finditer(text, start), place, None), None)
    return len(text) if match is None else match.start()


def check_length(text: str) -> None:
    if len(text) > MAX_TEXT_LENGTH:
        reason = f"the text has {len(text)} characters; at most {MAX_TEXT_LENGTH} are taken"
        raise InvalidConstraint(text, MAX_TEXT_LENGTH, reason)


def _misfit(word: str) -> int:
    """The offset of the first character that a name cannot hold; -1 when all fit."""
    for offset, character in enumerate(word):
        if unicodedata.category(character) not in (_NAME_PARTS if offset else _NAME_STARTS):
            return offset
    return -1


def _why_bad(text: str, position: int, lexicon: Lexicon) -> str:
    character = text[position]
    if character == "'":
        return "this text literal is not closed; it ends with a single quote"
    if character.isascii() and (character.isdigit() or character == "."):
        rest = re.compile(rf"[{NAME_CHARACTER}.]*").match(text, position)
        written = shortened(rest.group() if rest else character)
        if position and re.match(rf"[{NAME_CHARACTER}]", text[position - 1]):
            return f"{written} touches the word before it; a name has no dots, and a number stands apart"
        return f"{written} is no number"
    hint = lexicon.hints.get(character)
    return f"{described(character)} has no meaning here" + ("" if hint is None else f"; {hint}")


def described(character: str) -> str:
    """A character as a reader can see it, whatever it is."""
    code = f"U+{ord(character):04X}"
    return f"{character!r} ({code})" if character.isprintable() and not character.isascii() else repr(character)


def shortened(word: str, limit: int = 40) -> str:
    return word if len(word) <= limit else word[: limit - 3] + "..."
