"""Profiles that ask the same question of the same place, and how a document answers it.

A group is one list of probes at one anchor; its profiles differ in constants only. The constants that must be equal to
something are keys of dictionaries, those that bound a number go to a table (`tables`), and the others (`!=`,
`contains`, negated equality) are tested one distinct constant at a time. A question of one probe pools the values of
all elements, since any of them will do. With several probes the same element must satisfy all, so each element is a
view of its own; views that another one beats in every bound are dropped, which leaves a handful of hundreds.

The values that all groups of an anchor look at are collected in one pass over the element, and a group is visited only
when what it needs is there at all. The invariant: a group in `Anchor.groups` has a profile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from veena.matching.base.engine import Holder
from veena.matching.base.work import PYTHON_WORK, Meter
from veena.matching.xpath.reads import Element, Finding, Read, ReadPath, Reads, leaf_values, read_of
from veena.matching.xpath.shape import RANGES, TEXT_OPERATORS, PathStep, Probe
from veena.matching.xpath.substrings import Words
from veena.matching.xpath.tables import Direction, Table, View, filled_tables, make_table

Constants = tuple[float | str, ...]
_SEARCHES = ("contains", "starts-with")
_LOOKED_UP = ("=#", "='", *_SEARCHES)

#: Up to this many combinations of values are looked up; beyond it the keys are tested instead.
MAX_COMBINATIONS = 64

#: Views that each further one is compared with, which bounds the work for thousands that nobody beats.
MAX_RIVALS = 32


def is_pooled(probes: tuple[Probe, ...]) -> bool:
    """Whether any element will do: one probe that is satisfied by one of many nodes."""
    return len(probes) == 1 and not probes[0].negated and probes[0].reduction == "each"


def _direction(probe: Probe) -> Direction:
    """`x > K` holds for the constants below x; `not(x > K)` for those from x on."""
    upward, inclusive = probe.operator[0] == ">", probe.operator.endswith("=")
    return (upward != probe.negated, inclusive != probe.negated)


def holds(operator: str, constant: float | str, texts: list[str]) -> bool:
    """The tests on texts that no dictionary answers."""
    if operator == "contains":
        return any(str(constant) in text for text in texts)
    if operator == "starts-with":
        return any(text.startswith(str(constant)) for text in texts)
    return any(text != constant for text in texts) if operator == "!='" else constant in texts


class Group:
    """One list of probes at one anchor, and the tables of its constants."""

    def __init__(self, probes: tuple[Probe, ...], reads: list[Read], destinations: dict[int, int]) -> None:
        self.probes = probes
        self.reads = reads
        self._destinations = destinations
        self._presence: list[tuple[Read, bool]] = []
        self._equal: list[int] = []
        #: For each of `_equal` that searches texts, the constants in use, since a text holds many of them.
        self._words: dict[int, Words] = {}
        #: For each bound: what is read, whether its largest number counts, and what counts when there is none.
        self._extremes: list[tuple[Read, str, bool, float | None]] = []
        self._ranges: list[int] = []
        self._rest: list[int] = []
        directions: list[Direction] = []
        #: What must be there for the group to have a chance; None when nothing must.
        self.access: Read | None = None
        for at, probe in enumerate(probes):
            operator, negated, read = probe.operator, probe.negated, reads[at]
            if operator == "exists":
                self._presence.append((read, negated))
            elif operator in RANGES:
                largest = operator[0] == ">"
                nothing = None if not negated else -math.inf if largest else math.inf
                self._extremes.append((read, probe.reduction, largest, nothing))
                self._ranges.append(at)
                directions.append(_direction(probe))
            elif operator in _LOOKED_UP and not negated:
                self._equal.append(at)
                if operator in _SEARCHES:
                    self._words[at] = Words(operator == "contains")
            else:
                self._rest.append(at)
            if self.access is None and not negated and probe.reduction == "each":
                self.access = read
        self._directions = tuple(directions)
        self._tables: dict[Constants, dict[Constants, Table]] = {}
        #: How many tables there are.
        self._count = 0
        self.pooled = is_pooled(probes)

    def __len__(self) -> int:
        return sum(len(table) for tables in self._tables.values() for table in tables.values())

    def _keys(self, constants: Constants) -> tuple[Constants, Constants, View]:
        return (
            tuple([constants[at] for at in self._equal]),
            tuple([constants[at] for at in self._rest]),
            tuple([float(constants[at]) for at in self._ranges]),
        )

    def add(self, constants: Constants, profile_id: int, destination: int) -> None:
        equal, rest, bounds = self._keys(constants)
        tables = self._tables.get(equal)
        if tables is None:
            tables = self._tables[equal] = {}
            self._count_words(equal, 1)
        table = tables.get(rest)
        if table is None:
            table = tables[rest] = make_table(self._directions, self._destinations)
            self._count += 1
        table.add(bounds, profile_id, destination)

    def remove(self, constants: Constants, profile_id: int, destination: int) -> bool:
        """Whether the group is empty now."""
        equal, rest, bounds = self._keys(constants)
        tables = self._tables[equal]
        table = tables[rest]
        table.remove(bounds, profile_id, destination)
        if not len(table):
            del tables[rest]
            self._count -= 1
            if not tables:
                del self._tables[equal]
                self._count_words(equal, -1)
        return not self._tables

    def tables(self) -> Iterator[tuple[Constants, Table]]:
        """Every table with the constants that are its key, those of `textual`."""
        for equal, tables in self._tables.items():
            for rest, table in tables.items():
                yield (*equal, *rest), table

    @property
    def textual(self) -> list[bool]:
        """For each constant of a table's key, whether it is a text rather than a number."""
        return [self.probes[at].operator in TEXT_OPERATORS for at in (*self._equal, *self._rest)]

    @property
    def bounds(self) -> int:
        return len(self._directions)

    def fill(self, keys: list[Constants], sizes: list[int], bounds: list[list[float]], holders: list[Holder]) -> None:
        """Make an empty group that of these tables: a key each, and so many of the rows."""
        split = len(self._equal)
        made = filled_tables(self._directions, self._destinations, sizes, bounds, holders)
        for key, table in zip(keys, made, strict=True):
            equal = key[:split]
            tables = self._tables.get(equal)
            if tables is None:
                tables = self._tables[equal] = {}
                if self._words:
                    self._count_words(equal, 1)
            tables[key[split:]] = table
            self._count += 1

    def _count_words(self, equal: Constants, uses: int) -> None:
        for at, constant in zip(self._equal, equal, strict=True):
            words = self._words.get(at)
            if words is not None:
                words.change(str(constant), uses)

    def _effort(self, findings: list[Finding]) -> int:
        """What Python looks at in `hits`, at most, but for the words that it searches texts for."""
        count = len(findings)
        if self._rest:  # each of the texts found may be compared with each constant
            texts = sum(1 + sum(map(len, finding.texts.values())) for finding in findings)
            return texts * (1 + self._count)
        return count * (1 + min(count, MAX_RIVALS)) if len(self._ranges) > 1 else count

    def hits(self, findings: list[Finding], meter: Meter) -> list[tuple[Table, list[View]]]:
        """The tables whose keys some finding satisfies, with the views to put to them; raise OverBudget."""
        meter.take(PYTHON_WORK * self._effort(findings))
        found: dict[tuple[Constants, Constants], tuple[Table, list[View]]] = {}
        for finding in findings:
            view = self._view(finding)
            if view is None:
                continue
            candidates = self._candidates(finding, meter)
            meter.take(PYTHON_WORK * len(candidates))
            for equal in candidates:
                for rest, table in self._tables[equal].items():
                    if self._rest and not self._rest_holds(rest, finding):
                        continue
                    hit = found.get((equal, rest))
                    if hit is None:
                        found[equal, rest] = (table, [view])
                    else:
                        hit[1].append(view)
        if len(self._ranges) > 1:
            return [(table, self._best(views)) for table, views in found.values()]
        return list(found.values())

    def _view(self, finding: Finding) -> View | None:
        """The most favourable number a bound; None when a bound or a presence cannot hold."""
        for read, negated in self._presence:
            if (read in finding.texts) == negated:
                return None
        bounds: list[float] = []
        for read, reduction, largest, nothing in self._extremes:
            extremes = finding.extremes_of(read, reduction)
            if extremes is not None:
                bounds.append(extremes[largest])
            elif nothing is not None:
                bounds.append(nothing)
            else:
                return None
        return tuple(bounds)

    def _candidates(self, finding: Finding, meter: Meter) -> list[Constants]:
        if not self._equal:
            return [()] if self._tables else []
        if len(self._equal) == 1 and not self._words:
            at = self._equal[0]
            read, probe = self.reads[at], self.probes[at]
            found: list[str] | list[float] = (
                finding.texts_of(read, probe.reduction)
                if probe.operator == "='"
                else finding.numbers_of(read, probe.reduction)
            )
            if len(found) == 1:
                return [(found[0],)] if (found[0],) in self._tables else []
        choices: list[dict[float | str, None]] = []
        combinations = 1
        for at in self._equal:
            read, probe, words = self.reads[at], self.probes[at], self._words.get(at)
            values: dict[float | str, None]
            if words is not None:
                texts = dict.fromkeys(finding.texts_of(read, probe.reduction))
                meter.take(sum(map(words.effort, texts)))
                values = dict.fromkeys(word for text in texts for word in words.within(text))
            elif probe.operator == "='":
                values = dict.fromkeys(finding.texts_of(read, probe.reduction))
            else:
                values = dict.fromkeys(finding.numbers_of(read, probe.reduction))
            if not values:
                return []
            choices.append(values)
            combinations *= len(values)
        if combinations > MAX_COMBINATIONS:
            meter.take(PYTHON_WORK * min(combinations, len(self._tables)))
        if combinations > MAX_COMBINATIONS and combinations > len(self._tables):
            return [key for key in self._tables if all(map(_is_in, key, choices))]
        if len(choices) == 1:
            return [(value,) for value in choices[0] if (value,) in self._tables]
        return [key for key in product(*choices) if key in self._tables]

    def _rest_holds(self, rest: Constants, finding: Finding) -> bool:
        for at, constant in zip(self._rest, rest, strict=True):
            probe, read = self.probes[at], self.reads[at]
            if probe.operator in ("=#", "!=#"):
                numbers = finding.numbers_of(read, probe.reduction)
                held = any((number == constant) == (probe.operator == "=#") for number in numbers)
            else:
                held = holds(probe.operator, constant, finding.texts_of(read, probe.reduction))
            if held == probe.negated:
                return False
        return True

    def _best(self, views: list[View]) -> list[View]:
        """Without views that another one beats in every bound; the best by the first bound beat most."""
        signs = [1.0 if upward else -1.0 for upward, _ in self._directions]
        oriented = sorted({tuple(s * v for s, v in zip(signs, view, strict=True)) for view in views}, reverse=True)
        front: list[View] = []
        for view in oriented:
            if not any(all(map(float.__ge__, better, view)) for better in front[:MAX_RIVALS]):
                front.append(view)
        return [tuple(s * v for s, v in zip(signs, view, strict=True)) for view in front]


def _is_in(value: float | str, choices: dict[float | str, None]) -> bool:
    return value in choices


class Anchor:
    """A place in documents and the groups that look at it."""

    def __init__(self, path: tuple[PathStep, ...], destinations: dict[int, int]) -> None:
        self.path = path
        self.groups: dict[tuple[Probe, ...], Group] = {}
        self._destinations = destinations
        self._reads = Reads()
        #: What the groups read, pooled or for single elements, with its number and the number of its users.
        self._numbers: dict[tuple[ReadPath, bool], tuple[Read, int]] = {}
        self._last_read = 0
        #: By what must be found; the key None has those that must always be asked.
        self._pooled: dict[str, list[Group]] = {}
        self._single: dict[Read | None, list[Group]] = {}

    def add(self, probes: tuple[Probe, ...], constants: Constants, profile_id: int, destination: int) -> None:
        self.group(probes).add(constants, profile_id, destination)

    def group(self, probes: tuple[Probe, ...]) -> Group:
        """The group of these probes; a new one is to be given a profile at once."""
        group = self.groups.get(probes)
        if group is None:
            group = self.groups[probes] = self._attached(probes)
        return group

    def remove(self, probes: tuple[Probe, ...], constants: Constants, profile_id: int, destination: int) -> bool:
        """Whether no group is left."""
        group = self.groups[probes]
        if group.remove(constants, profile_id, destination):
            del self.groups[probes]
            self._detach(group)
        return not self.groups

    def _attached(self, probes: tuple[Probe, ...]) -> Group:
        pooled = is_pooled(probes)
        group = Group(probes, [self._retain(read_of(probe), pooled) for probe in probes], self._destinations)
        if pooled:
            self._pooled.setdefault(read_of(probes[0])[1], []).append(group)
        elif probes:
            self._single.setdefault(group.access, []).append(group)
        return group

    def _detach(self, group: Group) -> None:
        for probe in group.probes:
            self._release(read_of(probe), group.pooled)
        if group.pooled:
            leaf = read_of(group.probes[0])[1]
            self._pooled[leaf].remove(group)
            if not self._pooled[leaf]:
                del self._pooled[leaf]
        elif group.probes:
            self._single[group.access].remove(group)
            if not self._single[group.access]:
                del self._single[group.access]

    def _retain(self, path: ReadPath, pooled: bool) -> Read:
        read, users = self._numbers.get((path, pooled), (0, 0))
        if not users:
            self._last_read += 1
            read = self._last_read
            if not pooled:
                self._reads.change(path, read, wanted=True)
        self._numbers[path, pooled] = (read, users + 1)
        return read

    def _release(self, path: ReadPath, pooled: bool) -> None:
        read, users = self._numbers[path, pooled]
        if users > 1:
            self._numbers[path, pooled] = (read, users - 1)
            return
        del self._numbers[path, pooled]
        if not pooled:
            self._reads.change(path, read, wanted=False)

    def hits(self, elements: list[Element], document: bool, meter: Meter) -> Iterator[tuple[Table, list[View]]]:
        """Every table that may be satisfied; `document`: the anchor is the document above its root element."""
        plain = self.groups.get(())
        if plain is not None:
            yield from plain.hits([Finding()], meter)
        for leaf, groups in self._pooled.items():
            pool = Finding()
            meter.take(PYTHON_WORK * len(elements))
            texts = [text for element in elements for text in leaf_values(element, leaf)]
            if texts:
                pool.texts[groups[0].reads[0]] = texts
                meter.take(PYTHON_WORK * len(texts))
                for group in groups:
                    yield from group.hits([pool], meter)
        if not self._single:
            return
        by_access: dict[Read | None, list[Finding]] = {None: []}
        for element in elements:
            finding = Finding()
            if document:
                self._enter_document(element, finding.texts, meter)
            else:
                self._reads.collect(element, finding.texts, meter)
            meter.take(PYTHON_WORK * (1 + len(finding.texts)))
            by_access[None].append(finding)
            for read in finding.texts:
                by_access.setdefault(read, []).append(finding)
        for access, findings in by_access.items():
            for group in self._single.get(access, ()):
                yield from group.hits(findings, meter)

    def _enter_document(self, root: Element, texts: dict[Read, list[str]], meter: Meter) -> None:
        self._reads.enter(root, texts, meter)
        for test, following in self._reads.below.items():
            meter.take(PYTHON_WORK + meter.document)
            for element in root.iter(test):
                following.collect(element, texts, meter)
