"""The XPath engine: which profiles an XML event satisfies (MAT-50..52).

An XPath is asked of the whole document, with the root element as context, and the boolean value of its result decides:
a node-set that is not empty, a number that is neither zero nor NaN, a text that is not empty.

Texts are turned into *templates* by lifting their literals out (`template`); a template knows the form of its
texts (`shape`). What has a form stands in the index: one walk over the document finds the elements that anybody
looks at (`walk`), and tables of constants answer for all profiles of a group at once (`groups`,
`tables`). What has none is compiled by libxml2 once for each distinct text, or for each distinct expression that
profiles compare with constants (`comparison`), and evaluated once for all profiles that share it.

The invariants: every profile is either in the index with all its alternatives or in `_general`, never in both; a
general text is kept exactly while a profile uses it, a template at most so long; a refused `add` changes nothing. A
verdict is always that of libxml2 evaluating the text alone. Rejected: keeping bound constants with each profile.
Lifting the text again when a profile is removed costs five microseconds and saves some hundred bytes a profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Self, cast

import numpy as np
from lxml import etree
from numpy.typing import NDArray

from veena.errors import InvalidConstraint, InvalidEvent
from veena.event import Event
from veena.matching.base.engine import (
    MATCHES,
    Constraint,
    Crowd,
    DestinationCounts,
    Engine,
    Holder,
    Snapshot,
    Statistics,
    check_profile,
    check_snapshot,
    holder_columns,
    holders_of,
    id_column,
    sealed,
    uncollected,
)
from veena.matching.base.work import EVENT_WORK, TOO_MUCH, Meter, OverBudget, unlimited
from veena.matching.covering.form import Form, Rich
from veena.matching.xpath.comparison import Query
from veena.matching.xpath.cover import covers_shapes, form_of_places
from veena.matching.xpath.document import document_size, parse_document
from veena.matching.xpath.explain import explain_xpath
from veena.matching.xpath.groups import Anchor
from veena.matching.xpath.limits import Cost
from veena.matching.xpath.shape import PathStep
from veena.matching.xpath.snapshot import TextColumns, fill_anchors, read_paths, read_texts, write_anchors
from veena.matching.xpath.syntax import tokenise
from veena.matching.xpath.tables import Found, Table, View, with_profile, without_profile
from veena.matching.xpath.template import Bound, Namespaces, Template, bind_text, read_constraint
from veena.matching.xpath.walk import Walk

SNAPSHOT_VERSION = 3
#: Texts that are remembered as read for comparing: several times as many as one is compared with.
TEXTS_KEPT = 512
#: Characters of XML that are searched for a name in the time of one node.
SEARCHED_A_NODE = 8
#: Rows that NumPy compares in the time of one node.
COMPARED_A_NODE = 64


class _General:
    """A text that libxml2 evaluates, and those who wait for it."""

    __slots__ = ("cost", "evaluate", "holder", "required")

    def __init__(self, evaluate: etree.XPath, cost: Cost, required: str) -> None:
        self.evaluate = evaluate
        self.cost = cost
        self.required = required
        self.holder: Holder | None = None


class CompiledXPath:
    """One XPath by itself, for those who have one document at a time."""

    def __init__(self, text: str, namespaces: Mapping[str, str]) -> None:
        self.text = text
        self._engine = XPathEngine()
        self._engine.add(0, (text, namespaces), 1)

    def matches(self, document: str | bytes) -> bool:
        """The boolean value of the XPath on a document; a document that cannot be read matches nothing."""
        try:
            return self.matches_root(parse_document(document))
        except InvalidEvent:
            return False

    def matches_root(self, root: etree._Element) -> bool:
        return self._engine.match_root(root) != []

    def match_within(self, root: etree._Element, length: int, meter: Meter) -> tuple[list[int], list[int]]:
        """Whether a document of so many characters is matched, as `Engine.match_within` says it of profile 0."""
        return self._engine.match_read(root, length, meter)


def compile_xpath(text: str, namespaces: Mapping[str, str] | None = None) -> CompiledXPath:
    """Check and compile an XPath 1.0; raise InvalidConstraint with the position of what is wrong."""
    return CompiledXPath(text, namespaces or {})


def cover_form(constraint: Constraint) -> Form:
    """The features of an XPath by which others that cover it, or that it covers, are found."""
    text, namespaces = read_constraint(constraint)
    bound, tokens = _bound(text, namespaces)
    if bound.places is None:
        same = ("text", tuple(tokens), namespaces)
        return Rich((same,), ((same,),))
    return form_of_places(bound.places, bound.evaluated)


def covers(wide: Constraint, narrow: Constraint) -> bool:
    """Whether every document that satisfies `narrow` surely satisfies `wide`; False when in doubt."""
    (wide_text, wide_names), (narrow_text, narrow_names) = read_constraint(wide), read_constraint(narrow)
    (one, tokens), (other, other_tokens) = _bound(wide_text, wide_names), _bound(narrow_text, narrow_names)
    if wide_names == narrow_names and tokens == other_tokens:
        return True
    if one.places is None or other.places is None or one.evaluated != other.evaluated:
        return False
    return covers_shapes(one.places, other.places)


@lru_cache(maxsize=TEXTS_KEPT)
def _bound(text: str, namespaces: Namespaces) -> tuple[Bound, list[str]]:
    """Read once, though compared with many others; never changed."""
    bound = bind_text(text, namespaces, _templates)
    if len(_templates) >= TEXTS_KEPT:
        _templates.clear()
    _templates[bound.key] = bound.template
    return bound, tokenise(text)


#: Templates of texts that were compared; engines keep their own.
_templates: dict[tuple[str, Namespaces], Template] = {}


class XPathEngine(Engine):
    """Profiles of XPath 1.0 over `event.xml`."""

    name = "xpath"

    def __init__(self) -> None:
        self._constraints: dict[int, tuple[str, Namespaces]] = {}
        self._destinations: dict[int, int] = {}
        #: How many profiles use each template, and those templates that were read: a snapshot brings none.
        self._uses: dict[tuple[str, Namespaces], int] = {}
        self._templates: dict[tuple[str, Namespaces], Template] = {}
        self._walk: Walk[Anchor] = Walk()
        #: The anchor of what is asked of the document as a whole; it is there in every document.
        self._document = Anchor((), self._destinations)
        self._queries: dict[tuple[str, Namespaces], Query] = {}
        self._general: dict[tuple[str, Namespaces], _General] = {}
        #: Both by what they cost; None when one came or went.
        self._by_cost: list[Query | _General] | None = []
        self._total = DestinationCounts()
        self._evaluations = 0
        self._unreadable = 0

    def add(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        check_profile(profile_id, destination)
        text, namespaces = read_constraint(constraint)
        bound = bind_text(text, namespaces, self._templates)
        evaluated = self._evaluated(text, bound)
        if profile_id in self._constraints:
            self.remove(profile_id)
        self._constraints[profile_id] = (text, namespaces)
        self._destinations[profile_id] = destination
        self._total.count(destination)
        self._templates[bound.key] = bound.template
        self._uses[bound.key] = self._uses.get(bound.key, 0) + 1
        if bound.evaluated is not None:
            self._by_cost = None
            if isinstance(evaluated, _General):
                self._general[bound.evaluated] = evaluated
                evaluated.holder = with_profile(evaluated.holder, profile_id, destination, self._destinations)
            elif evaluated is not None:
                self._queries[bound.evaluated] = evaluated
        for path, probes, constants in bound.places or ():
            anchor = evaluated if isinstance(evaluated, Query) else self._anchor(path)
            anchor.add(probes, constants, profile_id, destination)

    def remove(self, profile_id: int) -> None:
        text, namespaces = self._constraints.pop(profile_id)
        destination = self._destinations[profile_id]
        bound = bind_text(text, namespaces, self._templates)
        self._by_cost = None
        if bound.evaluated is None:
            for path, probes, constants in bound.places or ():
                if self._anchor(path).remove(probes, constants, profile_id, destination) and path:
                    self._walk.displace(path)
        elif bound.places is None:
            general = self._general[bound.evaluated]
            assert general.holder is not None
            general.holder = without_profile(general.holder, profile_id, destination)
            if general.holder is None:
                del self._general[bound.evaluated]
        else:
            for _, probes, constants in bound.places:
                if self._queries[bound.evaluated].remove(probes, constants, profile_id, destination):
                    del self._queries[bound.evaluated]
        self._uses[bound.key] -= 1
        if self._uses[bound.key]:
            self._templates[bound.key] = bound.template
        else:
            del self._uses[bound.key]
            self._templates.pop(bound.key, None)
        self._total.discount(destination)
        del self._destinations[profile_id]

    def _evaluated(self, text: str, bound: Bound) -> _General | Query | None:
        """What libxml2 has to evaluate for a constraint: the one that stands for it already, or a new one."""
        if bound.evaluated is None:
            return None
        expression, namespaces = bound.evaluated
        template = bound.template
        if bound.places is None:
            known = self._general.get(bound.evaluated)
            if known is not None:
                return known
            # boolean() inside libxml2 spares the conversion of every node that was found.
            asked = _compiled(text, f"boolean({template.words(text, namespaces)})", namespaces)
            return _General(asked, template.cost.often(bound.times), template.required)
        query = self._queries.get(bound.evaluated)
        if query is not None:
            return query
        assert template.comparison is not None
        cost = template.comparison.cost.often(bound.times)
        return Query(_compiled(text, expression, namespaces), cost, template.required, self._destinations)

    def match(self, event: Event) -> list[int]:
        return self.match_within(event, unlimited())[0]

    def match_within(self, event: Event, meter: Meter) -> tuple[list[int], list[int]]:
        root = self._root(event)
        return ([], []) if root is None else self.match_read(root, _length(event), meter)

    def match_root(self, root: etree._Element) -> list[int]:
        """As `match`, for a document that `parse_document` has read."""
        return self.match_read(root, 0, unlimited())[0]

    def match_read(self, root: etree._Element, length: int, meter: Meter) -> tuple[list[int], list[int]]:
        """As `match_within`, for a document of so many characters that `parse_document` has read."""
        found, undecided = Found(), Found()
        try:
            for table, views in self._hits(root, length, meter):
                table.select(views, found)
        except OverBudget:
            matched = found.ascending()
            return matched, sorted(self._constraints.keys() - set(matched))
        by_cost = self._evaluated_by_cost()
        bill = _Bill(root, length, meter) if by_cost else None
        for each in by_cost:
            assert bill is not None
            if not bill.affords(each.cost):
                if bill.has(each.required):
                    for holder in each.holders() if isinstance(each, Query) else (each.holder,):
                        assert holder is not None
                        undecided.take(holder)
                continue
            self._evaluations += 1
            if isinstance(each, Query):
                try:
                    for table, views in each.answers(root, meter):
                        table.select(views, found)
                except OverBudget:
                    for holder in each.holders():
                        undecided.take(holder)
            elif _is_true(each.evaluate, root) and each.holder is not None:
                found.take(each.holder)
        matched = found.ascending()
        doubtful = undecided.ascending()
        return matched, sorted(set(doubtful).difference(matched)) if doubtful else doubtful

    def destinations(self, event: Event) -> int:
        return self.destinations_within(event, unlimited())

    def destinations_within(self, event: Event, meter: Meter) -> int:
        root = self._root(event)
        reached, total = 0, self._total.mask
        if root is None or not total:
            return 0
        length = _length(event)
        try:
            for table, views in self._hits(root, length, meter):
                reached = table.reach(views, reached)
                if reached == total:
                    return reached
        except OverBudget:
            return total
        bill: _Bill | None = None
        for each in self._evaluated_by_cost():
            mask = each.union.mask if isinstance(each, Query) else self._mask(each)
            if not mask & ~reached:
                continue
            bill = bill or _Bill(root, length, meter)
            if not bill.affords(each.cost):
                reached |= mask if bill.has(each.required) else 0
                continue
            self._evaluations += 1
            if isinstance(each, Query):
                try:
                    for table, views in each.answers(root, meter):
                        reached = table.reach(views, reached)
                except OverBudget:
                    reached |= mask
            elif _is_true(each.evaluate, root):
                reached |= mask
            if reached == total:
                break
        return reached

    def _mask(self, general: _General) -> int:
        holder = general.holder
        assert holder is not None
        return holder.mask if isinstance(holder, Crowd) else self._destinations[holder]

    def _evaluated_by_cost(self) -> list[Query | _General]:
        """What libxml2 is asked: the cheapest first, so that as much as can be is decided within a budget."""
        if self._by_cost is None:
            every: list[Query | _General] = [*self._queries.values(), *self._general.values()]
            self._by_cost = sorted(every, key=lambda each: each.cost)
        return self._by_cost

    def explain(self, profile_id: int, event: Event) -> str:
        text, namespaces = self._constraints[profile_id]
        if event.xml is None:
            return "unknown: the event has no xml"
        try:
            root = parse_document(event.xml)
        except InvalidEvent as error:
            return f"unknown: {error}"
        meter = Meter(EVENT_WORK)
        meter.begin()
        matched, undecided = CompiledXPath(text, dict(namespaces)).match_within(root, _length(event), meter)
        if undecided:
            return f"unknown: {TOO_MUCH}"
        if matched:
            return MATCHES
        meter.begin()
        bill = _Bill(root, _length(event), meter)
        return f"failed: {explain_xpath(text, dict(namespaces), root, bill.affords)}"

    def snapshot(self) -> Snapshot:
        distinct: dict[tuple[str, Namespaces], int] = {}
        numbers = [distinct.setdefault(constraint, len(distinct)) for constraint in self._constraints.values()]
        anchors, holders = write_anchors(self._anchors())
        for general in self._general.values():
            assert general.holder is not None
            holders.append(general.holder)
        holder_ids, crowds = holder_columns(holders)
        texts = TextColumns()
        columns: Snapshot = {
            "engine": self.name,
            "version": SNAPSHOT_VERSION,
            "profiles": id_column(self._constraints),
            "destinations": list(self._destinations.values()),
            "text_numbers": np.array(numbers, dtype=np.int64),
            **texts.write("constraint", distinct),
            **texts.write("template", self._uses),
            "template_uses": list(self._uses.values()),
            **texts.write("query", self._queries),
            **_cost_columns("query", list(self._queries.values())),
            **texts.write("general", self._general),
            **_cost_columns("general", list(self._general.values())),
            "general_asked": [general.evaluate.path for general in self._general.values()],
            **texts.bindings(),
            **anchors,
            "holder_ids": holder_ids,
            "crowds": crowds,
        }
        return sealed(columns)

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Self:
        check_snapshot(snapshot, cls.name, SNAPSHOT_VERSION)
        engine = cls()
        with uncollected():
            engine._load(snapshot)
        return engine

    def _load(self, snapshot: Snapshot) -> None:
        profiles: list[int] = cast("NDArray[np.int64]", snapshot["profiles"]).tolist()
        numbers: list[int] = cast("NDArray[np.int64]", snapshot["text_numbers"]).tolist()
        constraints = read_texts(snapshot, "constraint")
        self._constraints = dict(zip(profiles, map(constraints.__getitem__, numbers), strict=True))
        # The tables have this very dict.
        self._destinations.update(zip(profiles, cast("list[int]", snapshot["destinations"]), strict=True))
        self._total.count_many(self._destinations.values())
        uses = cast("list[int]", snapshot["template_uses"])
        self._uses = dict(zip(read_texts(snapshot, "template"), uses, strict=True))
        ids, crowds = cast("NDArray[np.int64]", snapshot["holder_ids"]), cast("NDArray[np.int32]", snapshot["crowds"])
        holders = holders_of(ids, crowds, self._destinations)
        for key, (cost, required) in zip(read_texts(snapshot, "query"), _read_costs(snapshot, "query"), strict=True):
            self._queries[key] = Query(_compiled(key[0], key[0], key[1]), cost, required, self._destinations)
        _, *paths = read_paths(snapshot)[: -len(self._queries) or None]
        anchors = [self._document, *map(self._anchor, paths), *self._queries.values()]
        filled = fill_anchors(snapshot, anchors, holders)
        for query in self._queries.values():
            query.count_groups()
        asked = cast("list[str]", snapshot["general_asked"])
        read = (read_texts(snapshot, "general"), asked, _read_costs(snapshot, "general"), holders[filled:])
        for key, words, (cost, required), holder in zip(*read, strict=True):
            self._general[key] = general = _General(_compiled(key[0], words, key[1]), cost, required)
            general.holder = holder
        self._by_cost = None

    def statistics(self) -> Statistics:
        anchors = list(self._anchors())
        rows = sum(len(group) for anchor in anchors for group in anchor.groups.values())
        detail = {
            "templates": len(self._uses),
            "anchors": len(anchors),
            "groups": sum(len(anchor.groups) for anchor in anchors),
            "indexed": rows,
            "queries": len(self._queries),
            "general": len(self._general),
            "states": self._walk.states,
            "moves": self._walk.moves,
            "unreadable": self._unreadable,
        }
        return Statistics(self.name, len(self), len(set(self._constraints.values())), self._evaluations, detail)

    def __len__(self) -> int:
        return len(self._constraints)

    def _anchor(self, path: tuple[PathStep, ...]) -> Anchor:
        if not path:
            return self._document
        anchor = self._walk.anchor(path)
        if anchor is None:
            anchor = Anchor(path, self._destinations)
            self._walk.place(path, anchor)
        return anchor

    def _anchors(self) -> Iterator[Anchor]:
        yield self._document
        yield from self._walk.anchors()
        yield from self._queries.values()

    def _root(self, event: Event) -> etree._Element | None:
        if event.xml is None or not self._constraints:
            return None
        try:
            return parse_document(event.xml)
        except InvalidEvent:
            self._unreadable += 1
            return None

    def _hits(self, root: etree._Element, length: int, meter: Meter) -> Iterator[tuple[Table, list[View]]]:
        """What the index answers; raise OverBudget."""
        meter.document = length // SEARCHED_A_NODE
        for anchor, elements in self._walk.visit(root, meter).items():
            for hit in anchor.hits(elements, document=False, meter=meter):
                self._evaluations += 1
                meter.take(len(hit[1]) * (1 + len(hit[0]) // COMPARED_A_NODE))
                yield hit
        if self._document.groups:
            for hit in self._document.hits([root], document=True, meter=meter):
                self._evaluations += 1
                meter.take(len(hit[1]) * (1 + len(hit[0]) // COMPARED_A_NODE))
                yield hit


class _Bill:
    """What is evaluated on one document, and whether its meter affords it."""

    __slots__ = ("_meter", "_names", "_root", "_size")

    def __init__(self, root: etree._Element, length: int, meter: Meter) -> None:
        self._root = root
        self._meter = meter
        self._size = document_size(root, length)
        self._names: set[object] | None = None

    def affords(self, cost: Cost) -> bool:
        return self._meter.affords(cost.work(self._size))

    def has(self, required: str) -> bool:
        """Whether the document has the element without which an XPath is false."""
        if not required:
            return True
        if self._names is None:
            self._names = {element.tag for element in self._root.iter()}
        return required in self._names


def _length(event: Event) -> int:
    return 0 if event.xml is None else len(event.xml)


def _cost_columns(name: str, evaluated: Sequence[Query | _General]) -> Snapshot:
    return {
        f"{name}_powers": [each.cost.power for each in evaluated],
        f"{name}_times": [each.cost.times for each in evaluated],
        f"{name}_required": [each.required for each in evaluated],
    }


def _read_costs(snapshot: Snapshot, name: str) -> list[tuple[Cost, str]]:
    powers, times = cast("list[int]", snapshot[f"{name}_powers"]), cast("list[int]", snapshot[f"{name}_times"])
    required = cast("list[str]", snapshot[f"{name}_required"])
    return list(zip(map(Cost, powers, times), required, strict=True))


def _compiled(text: str, asked: str, namespaces: Namespaces) -> etree.XPath:
    """What libxml2 is asked for a text."""
    try:
        return etree.XPath(asked, namespaces=dict(namespaces), regexp=False, smart_strings=False)
    except (etree.XPathSyntaxError, ValueError) as error:
        raise InvalidConstraint(text, 0, f"libxml2 refuses it: {error}") from None


def _is_true(evaluate: etree.XPath, root: etree._Element) -> bool:
    try:
        return bool(evaluate(root))
    except etree.XPathError:
        # Its own bounds on memory and recursion: what it cannot evaluate does not match.
        return False
