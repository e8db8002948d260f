"""The index of XPaths as plain columns, and back: what is shipped to a worker so that it need not read a single text.

Anchors, their groups, the tables of those and their rows stand one after the other, each with the number of what
belongs to it. The constants of a group are columns too: first the keys of its tables, a column a probe, texts apart
from numbers, then the bounds of its rows. Rows hold profiles: so many ids each.

The invariant: filling empty anchors with what was written of others gives groups that answer as those do. Templates are
not among the columns: they are found again from a text when a profile of theirs is first added or removed. Rejected:
the texts alone, read again by the loader: twelve microseconds each, more than all else together.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from veena.matching.base.engine import Holder, Item, Snapshot
from veena.matching.xpath.groups import Anchor, Constants, Group
from veena.matching.xpath.shape import PathStep, Probe
from veena.matching.xpath.template import Namespaces


def write_anchors(anchors: Iterable[Anchor]) -> tuple[Snapshot, list[Holder]]:
    """The columns of the anchors, and the holders of all their rows."""
    paths: list[tuple[PathStep, ...]] = []
    groups: list[Group] = []
    counts: list[int] = []
    for anchor in anchors:
        paths.append(anchor.path)
        groups += anchor.groups.values()
        counts.append(len(anchor.groups))
    probes = [probe for group in groups for probe in group.probes]
    steps = [step for path in (*paths, *[probe.steps for probe in probes]) for step in path]
    rows, holders = _write_rows(groups)
    return {
        "path_lengths": [len(path) for path in paths],
        "anchor_groups": counts,
        "group_probes": [len(group.probes) for group in groups],
        "probe_lengths": [len(probe.steps) for probe in probes],
        "probe_leaves": [probe.leaf for probe in probes],
        "probe_reductions": [probe.reduction for probe in probes],
        "probe_operators": [probe.operator for probe in probes],
        "probe_negated": [int(probe.negated) for probe in probes],
        "step_below": [int(below) for below, _ in steps],
        "step_names": [name for _, name in steps],
        **rows,
    }, holders


def _write_rows(groups: list[Group]) -> tuple[Snapshot, list[Holder]]:
    holders: list[Holder] = []
    group_tables: list[int] = []
    table_rows: list[int] = []
    texts: list[str] = []
    numbers: list[float] = []
    limits: list[float] = []
    for group in groups:
        tables = list(group.tables())
        group_tables.append(len(tables))
        for textual, column in zip(group.textual, zip(*[key for key, _ in tables], strict=True), strict=True):
            if textual:
                texts += cast("tuple[str, ...]", column)
            else:
                numbers += cast("tuple[float, ...]", column)
        bounds: list[list[float]] = [[] for _ in range(group.bounds)]
        for _, table in tables:
            columns, held = table.rows()
            holders += held
            table_rows.append(len(held))
            for bound, of_table in zip(bounds, columns, strict=True):
                bound.extend(of_table)
        for bound in bounds:
            limits += bound
    rows: Snapshot = {
        "group_tables": np.array(group_tables, dtype=np.int64),
        "table_rows": np.array(table_rows, dtype=np.int64),
        "key_texts": texts,
        "key_numbers": np.array(numbers, dtype=np.float64),
        "bounds": np.array(limits, dtype=np.float64),
    }
    return rows, holders


def read_paths(snapshot: Snapshot) -> list[tuple[PathStep, ...]]:
    """Where the anchors stand, in the order in which `fill_anchors` wants them."""
    lengths = cast("list[int]", snapshot["path_lengths"])
    return _parted(_steps(snapshot), lengths, 0)


def fill_anchors(snapshot: Snapshot, anchors: list[Anchor], holders: list[Holder]) -> int:
    """Give empty anchors their groups, tables and rows; return how many of the holders that took."""
    groups = _read_groups(snapshot, anchors)
    table_counts: list[int] = cast("NDArray[np.int64]", snapshot["group_tables"]).tolist()
    table_rows: list[int] = cast("NDArray[np.int64]", snapshot["table_rows"]).tolist()
    texts = cast("list[str]", snapshot["key_texts"])
    numbers: list[float] = cast("NDArray[np.float64]", snapshot["key_numbers"]).tolist()
    limits: list[float] = cast("NDArray[np.float64]", snapshot["bounds"]).tolist()
    table = row = text = number = limit = 0
    for group, count in zip(groups, table_counts, strict=True):
        columns: list[list[str] | list[float]] = []
        for textual in group.textual:
            if textual:
                columns.append(texts[text : text + count])
                text += count
            else:
                columns.append(numbers[number : number + count])
                number += count
        keys: list[Constants] = list(zip(*columns, strict=True)) if columns else [()]
        sizes = table_rows[table : table + count]
        size = sum(sizes)
        starts = range(limit, limit + group.bounds * size, size)
        group.fill(keys, sizes, [limits[start : start + size] for start in starts], holders[row : row + size])
        table += count
        row += size
        limit += group.bounds * size
    return row


def _read_groups(snapshot: Snapshot, anchors: list[Anchor]) -> list[Group]:
    columns = (snapshot[f"probe_{name}"] for name in ("leaves", "reductions", "operators", "negated"))
    facts = zip(*cast("tuple[list[str], list[str], list[str], list[int]]", tuple(columns)), strict=True)
    start = sum(cast("list[int]", snapshot["path_lengths"]))
    paths = _parted(_steps(snapshot), cast("list[int]", snapshot["probe_lengths"]), start)
    probes = [
        Probe(steps, leaf, reduction, operator, -1, False, bool(negated))
        for steps, (leaf, reduction, operator, negated) in zip(paths, facts, strict=True)
    ]
    lists = iter(_parted(probes, cast("list[int]", snapshot["group_probes"]), 0))
    counts = cast("list[int]", snapshot["anchor_groups"])
    return [anchor.group(next(lists)) for anchor, count in zip(anchors, counts, strict=True) for _ in range(count)]


def _steps(snapshot: Snapshot) -> list[PathStep]:
    below, names = cast("list[int]", snapshot["step_below"]), cast("list[str]", snapshot["step_names"])
    return list(zip(map(bool, below), names, strict=True))


def _parted(items: list[Item], lengths: list[int], start: int) -> list[tuple[Item, ...]]:
    """Consecutive stretches of these lengths."""
    return [tuple(items[first:last]) for first, last in pairwise(accumulate(lengths, initial=start))]


class TextColumns:
    """Texts with their namespaces: few distinct sets of those, and a number for each text."""

    def __init__(self) -> None:
        self._sets: dict[Namespaces, int] = {(): 0}

    def write(self, name: str, keys: Iterable[tuple[str, Namespaces]]) -> Snapshot:
        texts: list[str] = []
        numbers: list[int] = []
        sets = self._sets
        for text, namespaces in keys:
            texts.append(text)
            numbers.append(sets.setdefault(namespaces, len(sets)))
        return {f"{name}_texts": texts, f"{name}_namespaces": np.array(numbers, dtype=np.int32)}

    def bindings(self) -> Snapshot:
        """The sets themselves; to be written last."""
        pairs = [(number, *pair) for namespaces, number in self._sets.items() for pair in namespaces]
        return {
            "binding_sets": [number for number, _, _ in pairs],
            "binding_prefixes": [prefix for _, prefix, _ in pairs],
            "binding_uris": [uri for _, _, uri in pairs],
        }


def read_texts(snapshot: Snapshot, name: str) -> list[tuple[str, Namespaces]]:
    """What `TextColumns.write` was given under this name."""
    columns = (snapshot[f"binding_{column}"] for column in ("sets", "prefixes", "uris"))
    sets: dict[int, list[tuple[str, str]]] = {}
    for number, prefix, uri in zip(*cast("tuple[list[int], list[str], list[str]]", tuple(columns)), strict=True):
        sets.setdefault(number, []).append((prefix, uri))
    namespaces = [tuple(sets.get(number, ())) for number in range(len(sets) + 1)]
    numbers: list[int] = cast("NDArray[np.int32]", snapshot[f"{name}_namespaces"]).tolist()
    return list(zip(cast("list[str]", snapshot[f"{name}_texts"]), map(namespaces.__getitem__, numbers), strict=True))
