"""Which XPaths can be indexed, and as what: a tree of steps with tests on values, brought into one form.

The boolean value of a path is "there is a node such that". So `/a/b[c>1]/d` says there is an `a` with a child `b` that
has a child `c` above 1 and a child `d`; predicates and further steps are the same thing. From that come the three
moves of this module:

- a tree of "there is" conditions with one branch only has no need for the fork: `/a/b[c>1]` is `/a/b/c` with a value
  above 1, and its elements need no telling apart;
- otherwise the element where the tree forks is the **anchor**: all conditions must hold for the same one, and each of
  them is a **probe**, a short path from the anchor and a test on what it finds;
- `or` becomes several alternatives, `not` goes to the probes (XPath has two truth values, so De Morgan holds).

The form of a text does not depend on its literals: a `Template` is made once, and binding the literals of another text
to it costs a microsecond. Whatever does not fit (positions, arithmetic, other axes, forks inside forks) has no form and
is left to libxml2.

The invariant: the alternatives hold for a document exactly when libxml2 calls the text true. Requirement ids: MAT-50,
MAT-52. Rejected: indexing only `/a/b[c op k]` literally; `[c>1]`, `/c>1` and `/c[.>1]` are one question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from veena.matching.xpath.limits import XML_NAMESPACE
from veena.matching.xpath.number import literal_number, number_of
from veena.matching.xpath.syntax import Binary, Call, Expression, Negated, Number, Path, Step, Text

#: More are cheaper in libxml2 than as as many rows of the index.
MAX_ALTERNATIVES = 8
MAX_PROBES = 8

#: (any depth below rather than child, name as lxml spells it: `b`, `{uri}b`, `*`, `{uri}*`).
PathStep = tuple[bool, str]

#: Tests on numbers that the order of constants answers, those that equality does, and the rest.
RANGES = frozenset({">", ">=", "<", "<="})
#: Tests whose constant is a text.
TEXT_OPERATORS = frozenset({"='", "!='", "contains", "starts-with"})
FLIPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}


class Probe(NamedTuple):
    """A test on what is found from an element: `price > #`."""

    steps: tuple[PathStep, ...]
    #: `.` for the string value, `text()`, `@name`, `@*`.
    leaf: str
    #: `each`: one of the nodes will do. `first`: the first node in document order, or the empty text. `count`.
    reduction: str
    #: `exists`, one of RANGES, `=#`, `!=#` on numbers, `='`, `!='`, `contains`, `starts-with` on texts.
    operator: str
    #: Which literal of the text is the constant, and with how many minus signs; -1 for none.
    literal: int
    minus: bool
    negated: bool


class Branch(NamedTuple):
    """There is an element one step away for which all conditions hold."""

    step: PathStep
    conditions: tuple[Condition, ...]


Condition = Branch | Probe
Conjunction = tuple[Condition, ...]


class Alternative(NamedTuple):
    """There is an element at the end of `anchor` for which all probes hold.

    The probes are without their literals, so that texts that differ in the order of those ask the same question.
    """

    anchor: tuple[PathStep, ...]
    probes: tuple[Probe, ...]
    #: For each probe the number of its literal, or -1, and whether a minus stands before it.
    sources: tuple[tuple[int, bool], ...]


def bind(
    probes: tuple[Probe, ...], sources: tuple[tuple[int, bool], ...], literals: list[str]
) -> tuple[float | str, ...] | None:
    """The constants of the probes; None when one is no number, which no order of constants can hold."""
    constants: list[float | str] = []
    for probe, (index, minus) in zip(probes, sources, strict=True):
        if index < 0:
            constants.append("")
            continue
        literal = literals[index]
        if probe.operator in TEXT_OPERATORS:
            constants.append(literal[1:-1])
            continue
        value = number_of(literal[1:-1]) if literal[0] in "\"'" else literal_number(literal)
        if not math.isfinite(value):
            return None
        constants.append(-value if minus else value)
    return tuple(constants)


class NotIndexable(Exception):
    """The text is for libxml2."""


def shape(expression: Expression, namespaces: Mapping[str, str]) -> tuple[Alternative, ...] | None:
    """The form of an expression that has passed the checks, or None."""
    try:
        found = _Shaper(namespaces).conjunctions(expression, top=True)
        return tuple([_anchored(conjunction) for conjunction in found])
    except NotIndexable:
        return None


def _anchored(conditions: Conjunction) -> Alternative:
    anchor: list[PathStep] = []
    while len(conditions) == 1 and isinstance(conditions[0], Branch):
        anchor.append(conditions[0].step)
        conditions = conditions[0].conditions
    probes = [_flat(condition) for condition in conditions]
    # A probe is followed anew from each element: with two `//` in it that would be depth squared, in Python.
    if len(probes) > MAX_PROBES or any(sum(below for below, _ in probe.steps) > 1 for probe in probes):
        raise NotIndexable
    # One order for all spellings of a conjunction, so that equal ones share a table.
    probes.sort(key=lambda p: (p.steps, p.leaf, p.reduction, p.operator, p.negated, p.literal))
    return Alternative(
        tuple(anchor),
        tuple([p if p.literal < 0 else _without_literal(p) for p in probes]),
        tuple([(probe.literal, probe.minus) for probe in probes]),
    )


def _without_literal(probe: Probe) -> Probe:
    return Probe(probe.steps, probe.leaf, probe.reduction, probe.operator, -1, False, probe.negated)


def _flat(condition: Condition) -> Probe:
    """A chain of branches as one probe; a fork inside is not indexable."""
    steps: list[PathStep] = []
    while isinstance(condition, Branch):
        steps.append(condition.step)
        if not condition.conditions:
            return Probe(tuple(steps), ".", "each", "exists", -1, False, False)
        if len(condition.conditions) > 1:
            raise NotIndexable
        condition = condition.conditions[0]
    if steps and (condition.negated or condition.reduction != "each"):
        raise NotIndexable
    return condition._replace(steps=(*steps, *condition.steps)) if steps else condition


class _Shaper:
    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self.namespaces = namespaces

    def conjunctions(self, expression: Expression, top: bool) -> list[Conjunction]:
        """The alternatives under which the expression is true of an element, or of the document when `top`."""
        if isinstance(expression, Binary):
            operator = expression.operator
            if operator == "and":
                return _all([self.conjunctions(expression.left, top), self.conjunctions(expression.right, top)])
            if operator in ("or", "|"):
                return _limited(self.conjunctions(expression.left, top) + self.conjunctions(expression.right, top))
            return self.comparison(expression, top)
        if isinstance(expression, Path):
            return self.located(expression, None, top)
        if isinstance(expression, Call):
            return self.call(expression, top)
        raise NotIndexable

    def call(self, call: Call, top: bool) -> list[Conjunction]:
        if call.name == "boolean":
            return self.conjunctions(call.arguments[0], top)
        if call.name == "not":
            return _negation(self.conjunctions(call.arguments[0], top))
        if call.name == "true":
            return [()]
        if call.name == "false":
            return []
        if call.name in ("contains", "starts-with"):
            text = call.arguments[1]
            if isinstance(text, Text):
                return self.reduced(call.arguments[0], "first", call.name, text.index, False, top)
        raise NotIndexable

    def comparison(self, binary: Binary, top: bool) -> list[Conjunction]:
        operator, left, right = binary.operator, binary.left, binary.right
        if operator not in FLIPPED:
            raise NotIndexable
        if isinstance(left, Text | Number | Negated):
            operator, left, right = FLIPPED[operator], right, left
        literal, minus = right, False
        while isinstance(literal, Negated):
            literal, minus = literal.operand, not minus
        if not isinstance(literal, Text | Number):
            raise NotIndexable
        numeric = isinstance(literal, Number) or minus or operator in RANGES
        if isinstance(left, Call) and left.name in ("number", "count"):
            numeric = True
        if operator in ("=", "!="):
            operator += "#" if numeric else "'"
        if isinstance(left, Path):
            return self.located(left, Probe((), ".", "each", operator, literal.index, minus, False), top)
        if isinstance(left, Call) and left.name in ("string", "number", "count") and len(left.arguments) == 1:
            reduction = "count" if left.name == "count" else "first"
            return self.reduced(left.arguments[0], reduction, operator, literal.index, minus, top)
        raise NotIndexable

    def reduced(
        self, argument: Expression, reduction: str, operator: str, literal: int, minus: bool, top: bool
    ) -> list[Conjunction]:
        """A test on the first node, or on the number of nodes, at the end of a plain path of children."""
        if isinstance(argument, Call) and argument.name == "string" and len(argument.arguments) == 1:
            if reduction == "count":
                raise NotIndexable
            argument = argument.arguments[0]
        if not isinstance(argument, Path) or (argument.absolute and not top):
            raise NotIndexable
        if any(step.predicates for step in argument.steps):
            raise NotIndexable
        found = self.located(replace(argument, absolute=False), None, top=False)
        if len(found) != 1 or len(found[0]) > 1:
            raise NotIndexable
        plain = _flat(found[0][0]) if found[0] else Probe((), ".", "each", "exists", -1, False, False)
        if plain.operator != "exists" or any(below for below, _ in plain.steps):
            raise NotIndexable
        # An element is one node: the first of it is each of it, and elements that need no telling apart pool better.
        alone = reduction == "first" and not plain.steps and plain.leaf == "."
        reduction = "each" if alone else reduction
        probe = plain._replace(reduction=reduction, operator=operator, literal=literal, minus=minus)
        if argument.absolute and not probe.steps:
            raise NotIndexable
        return [(Branch((False, "*"), (probe,)),)] if top and not argument.absolute else [(probe,)]

    def located(self, path: Path, final: Probe | None, top: bool) -> list[Conjunction]:
        if path.base is not None or (path.absolute and not (top and path.steps)):
            raise NotIndexable
        found = self.steps(path.steps, 0, final, root=path.absolute)
        if top and not path.absolute:
            # The context of the whole expression is the root element, of which there is exactly one.
            return [(Branch((False, "*"), conjunction),) for conjunction in found]
        return found

    def steps(self, steps: tuple[Step, ...], at: int, final: Probe | None, root: bool) -> list[Conjunction]:
        """The alternatives for following the rest of a path from an element (`root`: from the document)."""
        if at == len(steps):
            if root:
                raise NotIndexable
            return [(final,)] if final is not None else [()]
        step = steps[at]
        below = step.axis == "descendant"
        if step.kind == "node" and not step.predicates:
            if step.axis == "self":
                return self.steps(steps, at + 1, final, root)
            if step.axis == "descendant-or-self" and at + 1 < len(steps):
                following = steps[at + 1]
                if following.axis == "child" and following.kind == "name":
                    step, at, below = following, at + 1, True
                elif following.axis == "attribute" or (following.axis == "child" and following.kind == "text"):
                    found = self.steps(steps, at + 1, final, False)
                    deeper: list[Conjunction] = [(Branch((True, "*"), conjunction),) for conjunction in found]
                    return deeper if root else _limited(found + deeper)
        if at + 1 == len(steps) and not step.predicates and not root:
            leaf = self.leaf(step)
            if leaf:
                probe = final or Probe((), ".", "each", "exists", -1, False, False)
                return [(probe._replace(leaf=leaf),)]
        if step.kind != "name" or not (step.axis == "child" or below):
            raise NotIndexable
        parts = [self.conjunctions(predicate, top=False) for predicate in step.predicates]
        conjunctions = _all([*parts, self.steps(steps, at + 1, final, False)])
        return [(Branch((below, self.name(step)), conjunction),) for conjunction in conjunctions]

    def leaf(self, step: Step) -> str:
        if step.axis == "attribute" and step.kind == "name":
            name = self.name(step)
            return "" if name.endswith("}*") else "@" + name
        return "text()" if step.axis == "child" and step.kind == "text" else ""

    def name(self, step: Step) -> str:
        if not step.prefix:
            return step.local
        uri = XML_NAMESPACE if step.prefix == "xml" else self.namespaces[step.prefix]
        return f"{{{uri}}}{step.local}"


def _limited(conjunctions: list[Conjunction]) -> list[Conjunction]:
    if len(conjunctions) > MAX_ALTERNATIVES:
        raise NotIndexable
    return conjunctions


def _all(parts: list[list[Conjunction]]) -> list[Conjunction]:
    found: list[Conjunction] = [()]
    for part in parts:
        found = _limited([(*one, *other) for one, other in product(found, part)])
    return found


def _negation(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """Not one of them: of each conjunction some condition fails."""
    return _all([[(_opposite(condition),) for condition in conjunction] for conjunction in conjunctions])


def _opposite(condition: Condition) -> Condition:
    probe = _flat(condition)
    if not probe.negated or probe.reduction != "each":
        return probe._replace(negated=not probe.negated)
    # Twice negated: again "there is", which may be the only branch and then has to lie open.
    bare = probe._replace(steps=(), negated=False)
    inner: Conjunction = () if (bare.leaf, bare.operator) == (".", "exists") else (bare,)
    for step in reversed(probe.steps):
        inner = (Branch(step, inner),)
    return inner[0]
