"""Which advertisements a query may be about, without looking at all of them.

An inverted index: for every field (a column of SQL, an element or an attribute of a document) who has it, who has it
with this value, and its numbers in order. A condition is turned into *sources*, lists of advertisements of which every
match is surely in one: equality and ranges look their values up, AND takes its cheapest part, OR takes all of its
parts, and whatever the index cannot say is left open. The exact test of the query then judges the candidates and nobody
else.

The invariant: no advertisement that matches is missing from the sources (DSC-04); they may hold others. What has more
values than are worth keeping, or longer ones, stands among the sources of every question about that field.

Rejected: answering from the index alone (two semantics that would have to agree to the last NULL), and one matching
engine a query (engines are built for many conditions and one document, here it is the other way round).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any

from lxml import etree

from veena.address import Address
from veena.core.boundary.discovery import Scalar
from veena.core.discovery.advertisement import columns_of, document_of
from veena.core.wire.discovery import Advertisement
from veena.matching.condition.formula import All, EqualTo, Formula, InRange, OneOf, Presence
from veena.matching.condition.formula import Any as AnyOf
from veena.matching.condition.tree import Comparison, Contains, In, Like, MemberOf, Number, attribute_names
from veena.matching.xpath.document import parse_document
from veena.matching.xpath.number import number_of
from veena.matching.xpath.reads import string_value
from veena.matching.xpath.shape import FLIPPED, RANGES, Probe
from veena.matching.xpath.syntax import Binary, Call, Expression, Path, Step, Text
from veena.matching.xpath.syntax import Number as XPathNumber
from veena.matching.xpath.template import Bound, Place

#: Texts up to here are kept as values; longer ones are no keys but descriptions.
MAX_INDEXED_TEXT = 128
#: Values of one advertisement in the index: a few times what a description has. One with more is always looked at.
MAX_INDEXED_VALUES = 512

#: Kind of field and name: `p` a property or a built-in column, `e` an element, `a` an attribute.
Field = tuple[str, str]
#: Numbers of advertisements, in an order.
Postings = dict[int, None]
#: Every match is in one of them; None where that cannot be said.
Sources = list[Postings] | None

#: Kinds of values: they keep 1 and TRUE apart, while 1 and 1.0 are one. The last two stand for no value.
_TEXT, _TRUTH, _NUMBER, _UNKEPT, _THERE = "text", "truth", "number", "unkept", "there"
Key = tuple[Field, str, Scalar]

_NOBODY: Postings = {}
#: Every advertisement with a document has this element.
ANY_DOCUMENT: Field = ("e", "")


class AdvertIndex:
    """Advertisements by number, and who has what."""

    def __init__(self) -> None:
        self._present: dict[Field, Postings] = {}
        self._equal: dict[Key, Postings] = {}
        #: The distinct numbers of a field, ascending.
        self._numbers: dict[Field, list[Number]] = {}
        #: The distinct texts of a property, ascending: what LIKE asks for often has a beginning.
        self._texts: dict[Field, list[str]] = {}
        #: Those with a value of the field that is not kept.
        self._unkept: dict[Field, Postings] = {}
        #: Those with more values than are kept: part of every source.
        self._dense: Postings = {}

    def add(self, number: int, advert: Advertisement, home: Address) -> None:
        keys = _keys(advert, home)
        if len(keys) > MAX_INDEXED_VALUES:
            self._dense[number] = None
            return
        for field in dict.fromkeys(field for field, _, _ in keys):
            self._present.setdefault(field, {})[number] = None
        for key in keys:
            field, kind, value = key
            if kind == _UNKEPT:
                self._unkept.setdefault(field, {})[number] = None
            elif kind != _THERE:
                if key not in self._equal:
                    self._sort_in(field, value)
                self._equal.setdefault(key, {})[number] = None

    def remove(self, number: int, advert: Advertisement, home: Address) -> None:
        """Take out what `add` put in for the same advertisement."""
        if self._dense.pop(number, self) is None:
            return
        keys = _keys(advert, home)
        for field in dict.fromkeys(field for field, _, _ in keys):
            _discard(self._present, field, number)
        for key in keys:
            field, kind, value = key
            if kind == _UNKEPT:
                _discard(self._unkept, field, number)
            elif kind != _THERE and _discard(self._equal, key, number):
                self._sort_out(field, value)

    def _sort_in(self, field: Field, value: Scalar) -> None:
        if isinstance(value, str):
            if field[0] == "p":
                insort(self._texts.setdefault(field, []), value)
        elif not isinstance(value, bool):
            insort(self._numbers.setdefault(field, []), value)

    def _sort_out(self, field: Field, value: Scalar) -> None:
        if isinstance(value, str):
            if field[0] == "p":
                texts = self._texts[field]
                del texts[bisect_left(texts, value)]
                if not texts:
                    del self._texts[field]
        elif not isinstance(value, bool):
            numbers = self._numbers[field]
            del numbers[bisect_left(numbers, value)]
            if not numbers:
                del self._numbers[field]

    # --- questions ---

    def present(self, field: Field) -> list[Postings]:
        return [self._present.get(field, _NOBODY), self._dense]

    def equal(self, field: Field, value: Scalar) -> list[Postings]:
        if isinstance(value, str) and len(value) > MAX_INDEXED_TEXT:
            return self.present(field)
        return [self._equal.get((field, _kind(value), value), _NOBODY), *self._left_out(field)]

    def between(self, field: Field, low: Number | None, high: Number | None) -> list[Postings]:
        """Those with a number from `low` to `high`, both included; None for no bound."""
        numbers = self._numbers.get(field, [])
        start = 0 if low is None else bisect_left(numbers, low)
        end = len(numbers) if high is None else bisect_right(numbers, high)
        found = [self._equal[field, _NUMBER, value] for value in numbers[start:end]]
        return [*found, *self._left_out(field)]

    def spread(self, field: Field, low: Number | None, high: Number | None) -> int:
        """How many different numbers of the field lie there: at least so many advertisements have one."""
        numbers = self._numbers.get(field, [])
        return (len(numbers) if high is None else bisect_right(numbers, high)) - (
            0 if low is None else bisect_left(numbers, low)
        )

    def beginning(self, field: Field, prefix: str) -> list[Postings]:
        """Those with a text of a property that begins so."""
        texts = self._texts.get(field, [])
        start = bisect_left(texts, prefix)
        found = takewhile(lambda text: text.startswith(prefix), islice(texts, start, None))
        return [*(self._equal[field, _TEXT, text] for text in found), *self._left_out(field)]

    def _left_out(self, field: Field) -> list[Postings]:
        return [self._unkept.get(field, _NOBODY), self._dense]

    def check(self) -> None:
        for field, numbers in self._numbers.items():
            assert numbers == sorted(numbers)
            assert all((field, _NUMBER, value) in self._equal for value in numbers)
        for field, texts in self._texts.items():
            assert texts == sorted(texts)
            assert all((field, _TEXT, text) in self._equal for text in texts)
        for postings in (*self._present.values(), *self._equal.values(), *self._unkept.values()):
            assert postings, "nothing is kept for nobody"


def _discard(table: dict[Any, Postings], key: Field | Key, number: int) -> bool:
    """Drop one entry; whether it was the last."""
    postings = table[key]
    del postings[number]
    if not postings:
        del table[key]
    return not postings


# --- what an advertisement has ---


def _keys(advert: Advertisement, home: Address) -> dict[Key, None]:
    keys: dict[Key, None] = {}
    for name, value in columns_of(advert, home).items():
        keys[_key(("p", name), value)] = None
    if not advert.xml:
        return keys
    keys[ANY_DOCUMENT, _THERE, ""] = None
    for element in parse_document(document_of(advert)).iter(etree.Element):
        if len(keys) > MAX_INDEXED_VALUES:
            break
        _note(keys, ("e", str(element.tag)), string_value(element))
        for attribute, text in element.attrib.items():
            _note(keys, ("a", str(attribute)), str(text))
    return keys


def _note(keys: dict[Key, None], field: Field, text: str) -> None:
    """A text of a document stands for its number too."""
    key = _key(field, text)
    keys[key] = None
    if key[1] == _TEXT and not math.isnan(number := number_of(text)):
        keys[field, _NUMBER, number] = None


def _key(field: Field, value: Scalar) -> Key:
    if isinstance(value, str) and len(value) > MAX_INDEXED_TEXT:
        return field, _UNKEPT, ""
    return field, _kind(value), value


def _kind(value: Scalar) -> str:
    return _TEXT if isinstance(value, str) else _TRUTH if isinstance(value, bool) else _NUMBER


# --- what a condition asks for ---


def cheapest(sources: Iterable[Sources]) -> Sources:
    """Of several that all hold every match, the one with the fewest candidates."""
    known = [each for each in sources if each is not None]
    return min(known, key=lambda each: sum(map(len, each)), default=None)


def joined(sources: Iterable[Sources]) -> Sources:
    """Whoever is in any of them."""
    found: list[Postings] = []
    for each in sources:
        if each is None:
            return None
        found += each
    return found


def sql_sources(formula: Formula, index: AdvertIndex) -> Sources:
    """Where every advertisement is that a condition, of a WHERE or a constraint, can be true of."""
    if isinstance(formula, All):
        return _all_sources(formula, index)
    if isinstance(formula, AnyOf):
        return joined(sql_sources(part, index) for part in formula.parts)
    if isinstance(formula, EqualTo):
        return index.equal(("p", formula.name), formula.value)
    if isinstance(formula, OneOf):
        return joined(index.equal(("p", formula.name), value) for value in formula.values)
    if isinstance(formula, InRange):
        return index.between(("p", formula.name), formula.low, formula.high)
    if isinstance(formula, Presence):
        return index.present(("p", formula.name)) if formula.present else None
    if isinstance(formula.condition, Like) and not formula.negated:
        return index.beginning(("p", formula.condition.attribute.name), _beginning(formula.condition))
    if isinstance(formula.condition, Comparison | In | Like | Contains | MemberOf):
        # A comparison with what is missing is unknown, and so is its NOT.
        return cheapest(index.present(("p", name)) for name in attribute_names(formula.condition))
    return None


def _all_sources(formula: All, index: AdvertIndex) -> Sources:
    """The cheapest part; ranges last, and only while they can be cheaper: to gather a wide one takes its length."""
    ranges = [part for part in formula.parts if isinstance(part, InRange)]
    found = cheapest(sql_sources(part, index) for part in formula.parts if not isinstance(part, InRange))
    for part in ranges:
        if found is None or index.spread(("p", part.name), part.low, part.high) < sum(map(len, found)):
            found = cheapest([found, sql_sources(part, index)])
    return found


def _beginning(like: Like) -> str:
    """What every text that fits the pattern begins with."""
    special = "%_" if like.escape is None else f"%_{like.escape.value}"
    return "".join(takewhile(lambda character: character not in special, str(like.pattern.value)))


def xpath_sources(bound: Bound, expression: Expression, namespaces: Mapping[str, str], index: AdvertIndex) -> Sources:
    """Where every advertisement is whose document an XPath can be true of."""
    anywhere = index.present(ANY_DOCUMENT)
    if bound.places is not None and bound.evaluated is None:
        return joined(cheapest([anywhere, *_place_sources(place, index)]) for place in bound.places)
    return cheapest([anywhere, _general(expression, namespaces, index)])


def _place_sources(place: Place, index: AdvertIndex) -> Iterator[Sources]:
    anchor, probes, constants = place
    for _, name in anchor:
        yield _named(name, index)
    last = anchor[-1][1] if anchor else "*"
    for probe, constant in zip(probes, constants, strict=True):
        if not probe.negated and probe.reduction != "count":
            yield _probe_sources(probe, constant, last, index)


def _probe_sources(probe: Probe, constant: float | str, anchor: str, index: AdvertIndex) -> Sources:
    """Who has what a probe looks for; without a node the first of them is the empty text, which is equal to itself."""
    if probe.reduction == "first" and constant == "":
        return None
    found = [_named(name, index) for _, name in probe.steps]
    name = probe.steps[-1][1] if probe.steps else anchor
    if probe.leaf.startswith("@"):
        field: Field = ("a", probe.leaf[1:])
    elif probe.leaf == ".":
        field = ("e", name)
    else:
        return cheapest(found)
    if field[1].endswith("*"):
        return cheapest(found)
    if probe.operator == "='":
        found.append(index.equal(field, constant))
    elif probe.operator == "=#":
        assert isinstance(constant, float)
        found.append(index.between(field, constant, constant))
    elif probe.operator in RANGES:
        assert isinstance(constant, float)
        low, high = (constant, None) if probe.operator.startswith(">") else (None, constant)
        found.append(index.between(field, low, high))
    elif constant != "" or probe.operator == "exists":
        found.append(index.present(field))
    return cheapest(found)


def _named(name: str, index: AdvertIndex) -> Sources:
    return None if name.endswith("*") else index.present(("e", name))


def _general(expression: Expression, namespaces: Mapping[str, str], index: AdvertIndex) -> Sources:
    """For what only libxml2 can judge: a path finds nothing in a document without the names along it, nor where one of
    its predicates cannot hold, and no comparison holds without a node that has the value. The rest may find anything.
    """
    if isinstance(expression, Path) and expression.base is None:
        tests = [test for step in expression.steps for test in step.predicates]
        return cheapest(
            [
                *(_step_sources(step, namespaces, index) for step in expression.steps),
                *(_general(test, namespaces, index) for test in tests),
            ]
        )
    if isinstance(expression, Binary):
        sides = (expression.left, expression.right)
        if expression.operator == "and":
            return cheapest(_general(side, namespaces, index) for side in sides)
        if expression.operator in ("or", "|"):
            return joined(_general(side, namespaces, index) for side in sides)
        if expression.operator in FLIPPED:
            return _compared(expression, namespaces, index)
    if isinstance(expression, Call) and expression.name == "boolean":
        return _general(expression.arguments[0], namespaces, index)
    return None


def _step_sources(step: Step, namespaces: Mapping[str, str], index: AdvertIndex) -> Sources:
    field = _field(step, namespaces)
    return None if field is None else index.present(field)


def _field(step: Step, namespaces: Mapping[str, str]) -> Field | None:
    """What a step finds, if it is elements or attributes of one name."""
    if step.kind != "name" or step.local == "*" or step.axis == "namespace" or step.prefix == "xml":
        return None
    name = f"{{{namespaces[step.prefix]}}}{step.local}" if step.prefix else step.local
    return "a" if step.axis == "attribute" else "e", name


def _compared(test: Binary, namespaces: Mapping[str, str], index: AdvertIndex) -> Sources:
    """`path operator literal`, either way round: some node at the end of the path has such a value."""
    operator, path, literal = test.operator, test.left, test.right
    if isinstance(path, XPathNumber | Text):
        operator, path, literal = FLIPPED[operator], literal, path
    if not isinstance(path, Path) or not isinstance(literal, XPathNumber | Text):
        return None
    around = _general(path, namespaces, index)
    field = _field(path.steps[-1], namespaces) if path.base is None and path.steps else None
    if field is None:
        return around
    if operator == "=" and isinstance(literal, Text):
        return cheapest([around, index.equal(field, literal.value)])
    value = number_of(literal.value if isinstance(literal, Text) else literal.spelling)
    if operator == "!=" or not math.isfinite(value):
        return around
    # libxml2 may read a long literal one bit apart.
    margin = abs(value) * 1e-9
    low = None if operator.startswith("<") else value - margin
    high = None if operator.startswith(">") else value + margin
    return cheapest([around, index.between(field, low, high)])
