"""Selectors that differ only in their literals are parsed once.

Subscribers write the same few shapes over and over: `sym = 'IBM' AND price > 90`, `sym = 'SUN' AND price > 12`. One
pass of one pattern cuts a text at its literals; what is left, with a mark for the kind of each literal, is the key of
its *template*, and the literals are its *constants*. The first text with a key is parsed; each later one only puts its
constants into the slots of that tree (MAT-22).

    key, constants = template(text, SELECTOR)              # about 3 us
    known = Template.of(parse_selector(text), len(constants)) # once a key
    rows = known.rows(constants)                           # the same as rows_of(normal_form(parse_selector(text)))

`Templates` does all of it with a bounded memory: an engine calls `Templates(SELECTOR).rows(text)` and nothing else.

Invariant: `bind` gives what parsing the text gives, and a text that parsing refuses is refused, with the same position.
That holds because the kind of every literal is in the key, and the only rules that look at a literal's value (numbers
too large, the escape character of a pattern) are looked at again when it is bound, or, where it takes counting (LIKE
patterns with a gap), by parsing the text. A text that holds the mark itself
has fewer constants than its key has slots, and goes to the parser.

Rejected: the text as the key of a cache. It helps only those who subscribe to exactly the same, whom the engine
stores once anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from veena.matching.condition.constraint_parser import CONSTRAINT_LEXICON, CONSTRAINT_MEANINGS, parse_constraint
from veena.matching.condition.lexer import Lexicon, Word, check_length, lex
from veena.matching.condition.like import MAX_GAPPED_LIKES
from veena.matching.condition.normal_form import normal_form
from veena.matching.condition.selector_parser import SELECTOR_LEXICON, SELECTOR_MEANINGS, parse_selector
from veena.matching.condition.tree import Condition, Conjunction, Disjunction, Like, Not, Scalar, bound
from veena.matching.index.plan import Plan, plan_of, plan_of_words
from veena.matching.index.rows import Row, rows_of

#: Templates that one engine remembers. A thousand shapes serve a million subscribers; a client that makes up new ones
#: only pushes the oldest out.
MAX_TEMPLATES: Final = 4096

#: Texts whose rows are remembered, and the longest of these.
RECENT: Final = 256
SHORT: Final = 1024

_TEXT_MARK: Final = "\0t"
_NUMBER_MARK: Final = "\0n"


@dataclass(frozen=True, slots=True)
class Language:
    """One of the two predicate languages, as a text is read."""

    name: str
    #: Of a text, and of its words where they are known already.
    parse: Callable[..., Condition]
    lexicon: Lexicon
    #: How comparisons are written, and AND and OR.
    meanings: Mapping[Word, str]
    joints: tuple[str, str]


SELECTOR: Final = Language("selector", parse_selector, SELECTOR_LEXICON, SELECTOR_MEANINGS, ("AND", "OR"))
CONSTRAINT: Final = Language("constraint", parse_constraint, CONSTRAINT_LEXICON, CONSTRAINT_MEANINGS, ("and", "or"))


def template(text: str, language: Language = SELECTOR) -> tuple[str, tuple[Scalar, ...]]:
    """The key that all texts of this shape share, and this one's literals in order.

    Raises InvalidConstraint for a text too long and for a literal without a value; other faults show when it is parsed.
    """
    check_length(text)
    pieces = language.lexicon.literals.split(text)
    text_value, number_value = language.lexicon.text_value, language.lexicon.number_value
    constants: list[Scalar] = []
    try:
        for place in range(1, len(pieces), 2):
            written = pieces[place]
            if written[0] == "'":
                constants.append(text_value(written))
                pieces[place] = _TEXT_MARK
            else:
                constants.append(number_value(written))
                pieces[place] = _NUMBER_MARK
    except ValueError:
        language.parse(text)  # complains with the exact position
        raise
    return "".join(pieces), tuple(constants)


class Template:
    """A parsed text whose literals can be exchanged for others of the same kinds."""

    __slots__ = ("_condition", "_plan", "slots")

    def __init__(self, plan: Plan | None, condition: Condition | None, slots: int) -> None:
        self.slots = slots
        self._plan = plan
        self._condition = condition

    @classmethod
    def of(cls, condition: Condition, slots: int) -> Template:
        """The template of a parsed text with so many literals."""
        # Whether the LIKE terms are too costly depends on all patterns together, which only the parser counts.
        # Each has a literal, so few literals settle it.
        is_counted = slots > MAX_GAPPED_LIKES and _likes(condition) > MAX_GAPPED_LIKES
        plan = None if is_counted else plan_of(condition, slots)
        # Kept only where there is no plan: a tree of small objects is most of what a template would hold.
        return cls(plan, condition if plan is None and not is_counted else None, slots)

    def rows(self, constants: Sequence[Scalar]) -> list[Row] | None:
        """The rows with these literals; None where the text must be parsed, ValueError for a bad LIKE pattern."""
        if self._plan is not None:
            return self._plan.rows(constants)
        return None if self._condition is None else rows_of(normal_form(bound(self._condition, constants)))


def _likes(condition: Condition) -> int:
    """How many LIKE terms the condition has."""
    if isinstance(condition, Conjunction | Disjunction):
        return sum(_likes(part) for part in condition.parts)
    if isinstance(condition, Not):
        return _likes(condition.part)
    return isinstance(condition, Like)


class Templates:
    """The templates that one engine has met, oldest out first."""

    def __init__(self, language: Language, capacity: int = MAX_TEMPLATES) -> None:
        self.language = language
        self._capacity = capacity
        #: A plain dict would walk over all that it ever lost to find its oldest.
        self._known: OrderedDict[str, Template] = OrderedDict()
        #: The rows of the texts that were read last: whoever checks, stores and compares one reads it once.
        self._recent: dict[str, list[Row]] = {}

    def rows(self, text: str) -> list[Row]:
        """What an index stores for the text, not to be changed; raises what the language's parser raises."""
        rows = self._recent.get(text)
        if rows is None:
            rows = self._rows(text)
            if len(self._recent) >= RECENT:
                self._recent.clear()
            if len(text) <= SHORT:
                self._recent[text] = rows
        return rows

    def _rows(self, text: str) -> list[Row]:
        known, constants = self._lookup(text)
        try:
            rows = known.rows(constants)
        except ValueError:
            rows = None  # the parser knows the position
        return rows_of(normal_form(self.language.parse(text))) if rows is None else rows

    def _lookup(self, text: str) -> tuple[Template, tuple[Scalar, ...]]:
        key, constants = template(text, self.language)
        known = self._known.get(key)
        if known is None or known.slots != len(constants):
            known = self._read(text, constants)
            if len(self._known) >= self._capacity:
                self._known.popitem(last=False)
            self._known[key] = known
        return known, constants

    def _read(self, text: str, constants: Sequence[Scalar]) -> Template:
        language, slots = self.language, len(constants)
        words = lex(text, language.lexicon, constants)
        plan = plan_of_words(words, slots, language.meanings, language.joints)
        return Template.of(language.parse(text, words), slots) if plan is None else Template(plan, None, slots)

    def __len__(self) -> int:
        return len(self._known)


_shared: dict[str, Templates] = {}


def shared_templates(language: Language) -> Templates:
    """The templates of all engines of this language in the process: what one has read the others know."""
    found = _shared.get(language.name)
    if found is None:
        found = _shared[language.name] = Templates(language)
    return found
