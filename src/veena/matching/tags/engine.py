"""Tag=value constraints such as `Make=Ford,Model=*,Color=Red` (MAT-30..33).

A profile matches when every tag it names is in the event, with that value or, for `*`, with any. Two indexes hold the
constraints: `sets`, whose cost is the number of shapes (which tags are named), and `profile_graph`, whose cost is
the number of nodes an event reaches. Few shapes: the sets win. Many: the graph does. The engine counts shapes and
settles on one; when the count crosses the line, each later add or remove moves a few constraints over, and until that
is done both are asked. So there is never a pause for rebuilding, and never a wrong answer.

The invariant: a constraint is in exactly one of the two, in `_profiles` under every id that has it, and its pairs are
acquired once. Rejected: choosing per shape by its number of profiles: measured, a shape in the graph costs little
however many profiles it has, because shapes share nodes; it is the number of shapes that decides.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from functools import lru_cache
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from veena.event import Event
from veena.matching.base.engine import (
    MATCHES,
    Constraint,
    Engine,
    Snapshot,
    Statistics,
    check_profile,
    check_snapshot,
    sealed,
    spread,
    uncollected,
)
from veena.matching.covering.form import THERE, VALUE, Form, plain
from veena.matching.tags.pairs import ANY, PairNumbers, parse_constraint
from veena.matching.tags.profile_graph import Chain, Entry, ProfileGraph
from veena.matching.tags.sets import Shape, ShapeKey, TagSets, Values
from veena.matching.tags.snapshot import read_entries, read_graph, read_shapes, write_entries, write_graph, write_shapes

SNAPSHOT_VERSION = 2

#: More shapes than this and the graph is faster; docs/MATCHING.md has the measurement.
SHAPES_MAX = 80
#: Fewer than this and the sets are again; the gap keeps a count that wavers from moving constraints to and fro.
SHAPES_MIN = 40
#: Constraints moved at each change while the engine settles: about 10 us, and done after a quarter as many changes.
MOVES_PER_CHANGE = 4
#: Up to this many constraints a list is joined and sorted faster than NumPy wakes up.
FEW = 16


class TagsEngine(Engine):
    name = "tags"

    def __init__(self) -> None:
        self._numbers = PairNumbers()
        self._graph = ProfileGraph()
        self._sets = TagSets()
        self._shapes: dict[ShapeKey, Shape] = {}
        self._prefers_graph = False
        self._profiles: dict[int, Entry] = {}
        self._destinations: dict[int, int] = {}

    def add(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        check_profile(profile_id, destination)
        pairs = parse_constraint(constraint)
        if profile_id in self._profiles:
            self.remove(profile_id)
        entry = self._find(pairs)
        if entry is None:
            chain = self._numbers.acquire(pairs)
            entry = Entry(chain, array("q", (profile_id,)), destination)
            self._place(entry, self._shape_of(chain))
        else:
            entry.admit(profile_id, destination)
            if entry.in_graph:
                self._graph.count(entry, destination)
            else:
                self._sets.count(destination)
        self._profiles[profile_id] = entry
        self._destinations[profile_id] = destination
        self._settle()

    def remove(self, profile_id: int) -> None:
        entry = self._profiles.pop(profile_id)
        destination = self._destinations.pop(profile_id)
        if len(entry.ids) > 1:
            entry.dismiss(profile_id, destination)
            if entry.in_graph:
                self._graph.discount(entry, destination)
            else:
                self._sets.discount(destination)
        else:
            shape = self._shape_of(entry.chain)
            self._take_out(entry, shape)
            self._forget(shape)
            self._numbers.release(entry.chain)
        self._settle()

    def redirect(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        check_profile(profile_id, destination)
        entry, before = self._profiles[profile_id], self._destinations[profile_id]
        self._destinations[profile_id] = destination
        if more := destination & ~before:
            entry.count(more)
            if entry.in_graph:
                self._graph.count(entry, more)
            else:
                self._sets.count(more)
        if less := before & ~destination:
            entry.discount(less)
            if entry.in_graph:
                self._graph.discount(entry, less)
            else:
                self._sets.discount(less)

    def match(self, event: Event) -> list[int]:
        tags = event.tag_values
        found: list[Entry] = self._sets.match(tags) if len(self._sets) else []
        if len(self._graph):
            present = self._numbers.satisfied(tags)
            if present:
                found += self._graph.match(present)
        if len(found) <= FEW:
            ids: list[int] = []
            for entry in found:
                ids += entry.ids
            ids.sort()
            return ids
        packed = np.frombuffer(b"".join([entry.ids for entry in found]), dtype=np.int64)
        return cast("list[int]", np.sort(packed).tolist())

    def destinations(self, event: Event) -> int:
        tags = event.tag_values
        have = self._sets.destinations(tags) if len(self._sets) else 0
        if len(self._graph):
            present = self._numbers.satisfied(tags)
            if present:
                have = self._graph.destinations(present, have)
        return have

    def explain(self, profile_id: int, event: Event) -> str:
        tags = event.tag_values
        for tag, wanted in self._numbers.pairs(self._profiles[profile_id].chain):
            found = tags.get(tag)
            if found is None:
                return f"unknown: the event has no tag {tag!r}; the profile wants {tag}={wanted}"
            if wanted not in (ANY, found):
                return f"failed: tag {tag!r} is {found!r}, the profile wants {tag}={wanted}"
        return MATCHES

    def snapshot(self) -> Snapshot:
        in_sets = list(self._sets.entries())
        in_order = self._numbers.in_order()
        renumbered = np.zeros(max(in_order, default=0) + 1, dtype=np.int32)
        renumbered[in_order] = np.arange(len(in_order), dtype=np.int32)
        graph, entries = write_graph(self._graph, renumbered)
        entries = [entry for _, of_shape in in_sets for entry in of_shape] + entries
        ids = np.frombuffer(b"".join([entry.ids for entry in entries]), dtype=np.int64)
        columns: Snapshot = {
            "engine": self.name,
            "version": SNAPSHOT_VERSION,
            "prefers_graph": int(self._prefers_graph),
            "tags": [self._numbers.tags[number] for number in in_order],
            "values": [self._numbers.values[number] for number in in_order],
            "profiles": ids,
            "destinations": list(map(self._destinations.__getitem__, ids.tolist())),
            **write_entries(entries, renumbered),
            **write_shapes(self._shapes, {shape.key: len(of_shape) for shape, of_shape in in_sets}),
            **graph,
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
        destinations = cast("list[int]", snapshot["destinations"])
        chains = cast("NDArray[np.int32]", snapshot["chains"])
        crowds = cast("NDArray[np.int32]", snapshot["crowds"])
        tags, values = cast("list[str]", snapshot["tags"]), cast("list[str]", snapshot["values"])
        self._numbers = PairNumbers.restored(tags, values, np.bincount(chains, minlength=len(tags)).tolist())
        self._prefers_graph = bool(snapshot["prefers_graph"])
        entries = read_entries(snapshot)
        ids: list[int] = cast("NDArray[np.int64]", snapshot["profiles"]).tolist()
        self._profiles = dict(zip(ids, spread(entries, crowds), strict=True))
        self._destinations = dict(zip(ids, destinations, strict=True))
        first = at = 0
        for shape, size in read_shapes(snapshot):
            self._shapes[shape.key] = shape
            if size:
                named, valued = len(shape.key[0]), shape.key[1]
                columns = chains[at : at + size * named].reshape(size, named).T[:valued].tolist()
                self._sets.fill(
                    shape, [[values[n] for n in column] for column in columns], entries[first : first + size]
                )
                first += size
                at += size * named
        self._sets.count_many(destinations[: int(crowds[:first].sum())])
        self._graph.restore(read_graph(snapshot, entries[first:]), len(entries) - first)

    def statistics(self) -> Statistics:
        detail = {
            "shapes": len(self._shapes),
            "in_sets": len(self._sets),
            "in_graph": len(self._graph),
            "pairs": len(self._numbers),
        }
        evaluations = self._graph.visited + self._sets.visited
        return Statistics(self.name, len(self), len(self._sets) + len(self._graph), evaluations, detail)

    def __len__(self) -> int:
        return len(self._profiles)

    def _find(self, pairs: Mapping[str, str]) -> Entry | None:
        """The constraint of these pairs, if it is stored."""
        chain = self._numbers.find(pairs)
        if chain is None:
            return None
        shape = self._shapes.get(self._key_of(chain))
        if shape is None:
            return None
        entry = shape.table.get(self._values_of(chain, shape)) if shape.table else None
        return entry or (self._graph.find(chain) if len(self._graph) else None)

    def _key_of(self, chain: Chain) -> ShapeKey:
        tags, values = self._numbers.tags, self._numbers.values
        valued = len(chain)
        while valued and values[chain[valued - 1]] == ANY:
            valued -= 1
        return tuple([tags[number] for number in chain]), valued

    def _shape_of(self, chain: Chain) -> Shape:
        key = self._key_of(chain)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(key)
        return shape

    def _values_of(self, chain: Chain, shape: Shape) -> Values:
        """The key of a constraint in the table of its shape."""
        values = self._numbers.values
        found = [values[number] for number in chain[: shape.key[1]]]
        return found[0] if len(found) == 1 else tuple(found)

    def _place(self, entry: Entry, shape: Shape) -> None:
        """Put a new constraint where the engine now prefers it."""
        if len(self._shapes) > SHAPES_MAX:
            self._prefers_graph = True
        shape.uses += 1
        self._put_in(entry, shape)

    def _forget(self, shape: Shape) -> None:
        shape.uses -= 1
        if not shape.uses:
            del self._shapes[shape.key]
            if len(self._shapes) < SHAPES_MIN:
                self._prefers_graph = False

    def _put_in(self, entry: Entry, shape: Shape) -> None:
        if self._prefers_graph:
            self._graph.insert(entry)
        else:
            self._sets.insert(shape, self._values_of(entry.chain, shape), entry)

    def _take_out(self, entry: Entry, shape: Shape) -> None:
        if entry.in_graph:
            self._graph.delete(entry)
        else:
            self._sets.delete(shape, self._values_of(entry.chain, shape), entry)

    def _settle(self) -> None:
        """Move a few constraints to the preferred index."""
        astray: ProfileGraph | TagSets = self._sets if self._prefers_graph else self._graph
        for _ in range(min(MOVES_PER_CHANGE, len(astray))):
            entry = astray.any_entry()
            shape = self._shape_of(entry.chain)
            self._take_out(entry, shape)
            self._put_in(entry, shape)


def covers(wide: Constraint, narrow: Constraint) -> bool:
    """Exact: every tag that `wide` names is named by `narrow`, with the same value where `wide` has one."""
    wider, narrower = _pairs(wide), _pairs(narrow)
    if len(wider) > len(narrower):
        return False
    return all(tag in narrower and value in (ANY, narrower[tag]) for tag, value in wider.items())


def _pairs(constraint: Constraint) -> dict[str, str]:
    return _read(constraint) if isinstance(constraint, str) else parse_constraint(constraint)


@lru_cache(maxsize=4096)
def _read(text: str) -> dict[str, str]:
    """Read once, though compared with hundreds of others; never changed."""
    return parse_constraint(text)


def cover_form(constraint: Constraint) -> Form:
    """What of it is compared: a test for each tag that it names."""
    pairs = parse_constraint(constraint)
    return plain([(tag, THERE, None) if value == ANY else (tag, VALUE, value) for tag, value in pairs.items()])
