"""Constraints read: what texts that differ in their literals have in common, and where the literals put each of them.

Profiles come in large numbers and few kinds. The tokens of a text with the literals lifted out are its template; the
grammar, the types, the cost and the form in the index depend on the template alone and are worked out once. Binding the
literals of one more text gives its places in the index, or the text that libxml2 has to evaluate for it.

The invariant: two texts with the same template and the same namespaces mean the same but for their literals, so that
no refusal depends on a literal.
Rejected: a parsed tree for each profile. It is twenty times the work of lifting the literals, for a tree that differs
in its leaves only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from veena.errors import InvalidConstraint
from veena.matching.base.engine import Constraint
from veena.matching.xpath.comparison import Comparison, comparison_of
from veena.matching.xpath.groups import Constants
from veena.matching.xpath.limits import Cost, check, check_namespaces, searches
from veena.matching.xpath.required import required_element
from veena.matching.xpath.rewrite import rewritten
from veena.matching.xpath.shape import Alternative, PathStep, Probe, bind, shape
from veena.matching.xpath.syntax import (
    Expression,
    check_characters,
    is_literal,
    lift,
    parse,
    parse_rewritten,
    tokenise,
)

#: Prefixes and their namespaces, sorted.
Namespaces = tuple[tuple[str, str], ...]
#: Where a profile stands in the index: anchor, probes and constants of one alternative.
Place = tuple[tuple[PathStep, ...], tuple[Probe, ...], Constants]


class Template:
    """What all texts with the same tokens but for their literals have in common."""

    __slots__ = ("alternatives", "asked", "comparison", "cost", "required")

    def __init__(self, text: str, namespaces: Namespaces) -> None:
        names = dict(namespaces)
        expression = parse(text)
        check(text, expression, names)
        #: The form in the index of paths; otherwise the form as a compared query; neither for a general text.
        self.alternatives: tuple[Alternative, ...] | None = shape(expression, names)
        self.comparison: Comparison | None = None
        #: The tokens in which libxml2 is asked, with the literals of `text` where they were; None until needed.
        self.asked: list[str] | None = None
        #: What libxml2 needs for those words, and an element without which the answer is no.
        self.cost = Cost(0)
        self.required = ""
        if self.alternatives is None:
            self.ask(text, expression, names)
            self.comparison = comparison_of(text, expression, names)

    def ask(self, text: str, expression: Expression, names: dict[str, str]) -> list[str]:
        """Find the words for libxml2, and what they cost."""
        cheapest = rewritten(text, expression)
        asked = parse_rewritten(cheapest)
        if asked is None:  # more predicates than steps are read in: it is asked as it stands
            cheapest, asked = text, expression
        self.asked, self.cost = tokenise(cheapest), check(cheapest, asked, names).once
        self.required = required_element(expression, names)
        return self.asked

    def words(self, text: str, namespaces: Namespaces) -> str:
        """The text in which libxml2 is asked."""
        tokens = self.asked
        if tokens is None:
            tokens = self.ask(text, parse(text), dict(namespaces))
        # Rewriting keeps the literals in their order.
        literals = iter(lift(tokenise(text))[1])
        return " ".join([next(literals) if is_literal(token) else token for token in tokens])

    def places(self, literals: list[str]) -> list[Place] | None:
        """Where the literals put a text in the index; None when one of them has no place in an order."""
        if self.comparison is not None:
            probe, source = self.comparison.probe, self.comparison.source
            constants = bind((probe,), (source,), literals)
            return None if constants is None else [((), (probe,), constants)]
        if self.alternatives is not None and len(self.alternatives) == 1:
            only = self.alternatives[0]
            constants = bind(only.probes, only.sources, literals)
            return None if constants is None else [(only.anchor, only.probes, constants)]
        places: dict[Place, None] = {}
        for alternative in self.alternatives or ():
            constants = bind(alternative.probes, alternative.sources, literals)
            if constants is None:
                return None
            places[alternative.anchor, alternative.probes, constants] = None
        return None if self.alternatives is None else list(places)


class Bound(NamedTuple):
    """A constraint read: its template, its places in the index, and the expression to evaluate for it, if any."""

    key: tuple[str, Namespaces]
    template: Template
    #: None for a general text.
    places: list[Place] | None
    #: The text of a general constraint or of a query, in one spelling; None when the walk finds it.
    evaluated: tuple[str, Namespaces] | None
    #: How many times what libxml2 is asked costs what its template says: for literals that it searches with.
    times: int = 1


def bind_text(text: str, namespaces: Namespaces, templates: dict[tuple[str, Namespaces], Template]) -> Bound:
    """Read a text, with the template that is known for it or a new one; raise InvalidConstraint."""
    check_characters(text)
    tokens = tokenise(text)
    template_text, literals = lift(tokens)
    key = (template_text, namespaces)
    template = templates.get(key)
    if template is None:
        template = Template(text, namespaces)
    places = template.places(literals)
    if places is None:
        return Bound(key, template, None, (" ".join(tokens), namespaces), searches(tokens))
    comparison = template.comparison
    if comparison is None:
        return Bound(key, template, places, None)
    expression = tokens[comparison.first : comparison.last]
    return Bound(key, template, places, (" ".join(expression), namespaces), searches(expression))


def required_name(constraint: Constraint) -> str:
    """The name, as lxml spells it, of an element without which an XPath is false; empty where none is known, or where
    the text is no XPath."""
    text, namespaces = read_constraint(constraint)
    try:
        return required_element(parse(text), dict(namespaces))
    except (InvalidConstraint, KeyError):
        return ""


def read_constraint(constraint: Constraint) -> tuple[str, Namespaces]:
    """The text and the sorted namespaces of a constraint as `subscribe` takes it."""
    if isinstance(constraint, str):
        return constraint, ()
    if not isinstance(constraint, tuple) or len(constraint) != 2 or not isinstance(constraint[0], str):
        raise InvalidConstraint(repr(constraint), 0, "expected an XPath, or an XPath and its namespaces")
    text, namespaces = constraint
    if not namespaces:
        return text, ()
    if not isinstance(namespaces, Mapping):
        raise InvalidConstraint(text, 0, f"namespaces: expected a mapping of prefixes, found {namespaces!r:.80}")
    check_namespaces(text, namespaces)
    return text, tuple(sorted(namespaces.items()))
