"""A plan straight from the words of a text, for the shapes that most subscribers write.

`sym = 'IBM' AND price BETWEEN 10 AND 20 AND (size > 3 OR note IS NULL)` needs neither a tree nor an order of binding to
be understood: terms of a name and its literals stand between ANDs, and a group has ORs and nothing else. Such a text
becomes steps of a plan word by word, which takes half the time of parsing it and planning the tree. It is what a
new form costs that nobody has subscribed to before (MAT-22).

Invariant: `plan_of_words` is None, or the plan that `plan_of` makes of the parsed text. At the first word that does not
fit it gives up: whatever is rich, unusual or wrong is left to the parser, which alone complains.

Rejected: more shapes. LIKE has rules for its pattern, arithmetic and NOT have an order of binding, a literal before a
name is rare: each would be a second grammar to keep in step with the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veena.matching.condition.lexer import END, Word
from veena.matching.condition.tree import Attribute, Literal, kind_of
from veena.matching.index.plan import Draft, Equal, Plan, Range, Step, finished
from veena.matching.index.rows import PRESENCE, Test

#: A term is looked at as far as this from its name, also where the text ends before.
_BEYOND = (END,) * 4


def plan_of_words(
    text: Sequence[Word], slots: int, meanings: Mapping[Word, str], joints: tuple[str, str]
) -> Plan | None:
    """The plan of a text, given how its language writes comparisons, and AND and OR; None where it must be parsed."""
    words = (*text, *_BEYOND)
    draft, at, (all_of, any_of) = Draft(slots), 0, joints
    while True:
        is_group = words[at] == "("
        step, at = _term(words, at + is_group, meanings)
        if step is None:
            return None
        if not is_group:
            fits = draft.joins(step)
        else:
            branches: list[Step | None] = [step]
            while words[at] == any_of:
                step, at = _term(words, at + 1, meanings)
                branches.append(step)
            if len(branches) == 1 or words[at] != ")":
                return None
            at += 1
            fits = draft.spreads(branches)
        if not fits:
            return None
        if words[at] == END:
            return finished(draft)
        if words[at] != all_of:
            return None
        at += 1


def _term(words: Sequence[Word], at: int, meanings: Mapping[Word, str]) -> tuple[Step | None, int]:
    """The step of the term that begins here, and the place behind it; None for any other term."""
    name = words[at]
    if not isinstance(name, Attribute):
        return None, at
    operator, literal = words[at + 1], words[at + 2]
    meaning = meanings.get(operator)
    if meaning is not None:
        if isinstance(literal, Literal):
            return _comparison(name.name, meaning, literal), at + 3
    elif operator == "BETWEEN":
        high = words[at + 4] if words[at + 3] == "AND" else None
        if isinstance(literal, Literal) and isinstance(high, Literal) and kind_of(literal) == kind_of(high) == "number":
            return Range(name.name, literal.slot, high.slot, False, False), at + 5
    elif operator == "IS":
        wanted = 1.0 if literal == "NOT" else 0.0
        at += 3 if wanted else 2
        if words[at] == "NULL":
            return Test(name.name, PRESENCE, wanted, wanted), at + 1
    return None, at


def _comparison(name: str, meaning: str, literal: Literal) -> Step | None:
    if meaning == "=":
        return Equal(name, literal.slot, kind_of(literal))
    if meaning == "<>" or isinstance(literal.value, str):
        return None
    if meaning in {">", ">="}:
        return Range(name, literal.slot, -1, meaning == ">", False)
    return Range(name, -1, literal.slot, False, meaning == "<")
