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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from veena.errors import InvalidConstraint
from veena.matching.base.engine import check_text
from veena.matching.condition.tree import Attribute, Literal, Number, Scalar

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

_LITERAL_STARTS: Final = frozenset("'0123456789.")
_NAME_STARTS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_NAME_PARTS: Final = _NAME_STARTS | {"Nd", "Mc", "Mn", "Cf"}


#: A word as the parsers take it: a name and a literal are already what they become in the tree, and a symbol or a
#: keyword is its canonical spelling. No name is spelt like a keyword.
Word = str | Attribute | Literal
#: Stands behind the last word.
END: Final = ""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What one language's words look like."""

    pattern: re.Pattern[str]
    #: The literals alone, for cutting a text at them; its one group makes `split` keep them.
    literals: re.Pattern[str]
    #: Symbols and keywords by their canonical spelling.
    fixed: Mapping[str, str]
    #: From a keyword as written to its canonical spelling.
    fold: Callable[[str], str]
    #: How names begin that the language keeps for itself, nothing for none; the check complains of them by ValueError.
    reserved: str
    check_reserved: Callable[[str], object]
    #: From the literal as written to its value; both raise ValueError with the reason.
    text_value: Callable[[str], str]
    number_value: Callable[[str], Number]
    #: What to write instead of a character that has no place in the language.
    hints: Mapping[str, str]


def lexicon(
    *,
    text: str,
    number: str,
    symbols: tuple[str, ...],
    words: tuple[str, ...],
    fold: Callable[[str], str],
    text_value: Callable[[str], str],
    number_value: Callable[[str], Number],
    hints: Mapping[str, str],
    reserved: str = "",
    check_reserved: Callable[[str], object] = str.isascii,
) -> Lexicon:
    """Put a language together from its fragments of pattern."""
    # A number touches neither a name nor another number, so that a search finds it where a pass from the start does.
    bounded = rf"(?<![{NAME_CHARACTER}.])(?:{number})(?![{NAME_CHARACTER}.])"
    longer = [re.escape(symbol) for symbol in symbols if len(symbol) > 1]
    single = re.escape("".join(symbol for symbol in symbols if len(symbol) == 1))
    # Each word takes the space behind it along, which saves every second step. What is no word leaves the group empty.
    pattern = rf"(?:({_NAME}|{'|'.join(longer)}|[{single}]|{text}|{bounded})|.)[{_SPACES}]*+"
    # What no literal begins with is passed over before the longer question is put.
    literals = rf"(?=['0-9.])({text}|{bounded})"
    return Lexicon(
        re.compile(pattern, re.DOTALL),
        re.compile(literals, re.DOTALL),
        {word: word for word in (*symbols, *words)},
        fold, reserved, check_reserved, text_value, number_value, hints,
    )  # fmt: skip


def lex(text: str, lexicon: Lexicon, values: Sequence[Scalar] | None = None) -> list[Word]:
    """Cut the text into words, with `END` behind the last; raise InvalidConstraint at what is no word.

    `values` are those of the literals, where they are known already.
    """
    check_length(text)
    words: list[Word] = lexicon.pattern.findall(text.lstrip(_SPACES))
    fixed, reserved = lexicon.fixed, lexicon.reserved
    # Asked once a text rather than once a name.
    is_plain = text.isascii() and END not in words and (not reserved or reserved not in text)
    place = slot = 0
    try:
        for place, word in enumerate(words):
            # Most words are symbols and keywords in their usual spelling, which stay as they are.
            if word in fixed:
                continue
            assert isinstance(word, str)
            first = word[:1]
            if first in _LITERAL_STARTS:
                if values is not None:
                    value = values[slot]
                else:
                    value = lexicon.text_value(word) if first == "'" else lexicon.number_value(word)
                words[place] = Literal(value, slot)
                slot += 1
            elif (keyword := fixed.get(lexicon.fold(word))) is not None:
                words[place] = keyword
            else:
                if not is_plain:
                    _check_name(text, lexicon, place, word)
                words[place] = Attribute(word)
    except ValueError as error:
        raise InvalidConstraint(text, position_of(text, lexicon, place), str(error)) from None
    if len(words) > MAX_TERMS:
        _check_terms(text, lexicon, words)
    words.append(END)
    return words


def _check_terms(text: str, lexicon: Lexicon, words: list[Word]) -> None:
    terms = [place for place, word in enumerate(words) if not isinstance(word, str)]
    if len(terms) > MAX_TERMS:
        reason = f"more than {MAX_TERMS} names and literals; split the text up"
        raise InvalidConstraint(text, position_of(text, lexicon, terms[MAX_TERMS]), reason)


def _check_name(text: str, lexicon: Lexicon, place: int, word: str) -> None:
    """Complain unless the word is a name that may be used; an empty one was no word at all."""
    if lexicon.reserved and word.startswith(lexicon.reserved):
        lexicon.check_reserved(word)
    if word and (word.isascii() or (offset := _misfit(word)) < 0):
        return
    position = position_of(text, lexicon, place)
    if not word:
        raise InvalidConstraint(text, position, _why_bad(text, position, lexicon))
    raise InvalidConstraint(text, position + offset, f"a name cannot hold {described(word[offset])}")


def written(text: str, lexicon: Lexicon, place: int) -> str:
    """The word at this place as it stands in the text."""
    found: list[str] = lexicon.pattern.findall(text.lstrip(_SPACES))
    return found[place] if place < len(found) else END


def position_of(text: str, lexicon: Lexicon, place: int) -> int:
    """Where the word at this place begins; the length of the text for the place behind the last word."""
    start = len(text) - len(text.lstrip(_SPACES))
    match = next(islice(lexicon.pattern.finditer(text, start), place, None), None)
    return len(text) if match is None else match.start()


def check_length(text: str) -> None:
    if len(text) > MAX_TEXT_LENGTH:
        reason = f"the text has {len(text)} characters; at most {MAX_TEXT_LENGTH} are taken"
        raise InvalidConstraint(text, MAX_TEXT_LENGTH, reason)
    check_text(text)


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
        found = shortened(rest.group() if rest else character)
        if position and re.match(rf"[{NAME_CHARACTER}]", text[position - 1]):
            return f"{found} touches the word before it; a name has no dots, and a number stands apart"
        return f"{found} is no number"
    hint = lexicon.hints.get(character)
    return f"{described(character)} has no meaning here" + ("" if hint is None else f"; {hint}")


def described(character: str) -> str:
    """A character as a reader can see it, whatever it is."""
    code = f"U+{ord(character):04X}"
    return f"{character!r} ({code})" if character.isprintable() and not character.isascii() else repr(character)


def shortened(word: str, limit: int = 40) -> str:
    return word if len(word) <= limit else word[: limit - 3] + "..."
