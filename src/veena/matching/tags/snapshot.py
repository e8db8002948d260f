"""Constraints on tags as plain columns, and back: what is shipped to a worker so that it need not build a graph anew.

Constraints stand in the order in which they are held: those of the tag sets shape by shape, then those of the profile
graph breadth first. So whatever a node leads to is found by counting, the next constraint or the next node, and no
column has to say which. The counts of nodes travel too: summing them up again would take half of the time.

The invariant: what is read is the very tree, and the very tables, that were written. What remains is what Python takes
to make the objects: a constraint is an `Entry`, a tuple and an array. Rejected: making those when an event first asks
for them. That moves the time to the first events, and makes each later look a test whether it is there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import accumulate, chain, compress, islice, pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from veena.matching.base.engine import Snapshot
from veena.matching.tags.profile_graph import Entry, Node, ProfileGraph
from veena.matching.tags.sets import Shape, ShapeKey

#: In place of a pair's number: the constraint that ends at the node itself.
_OWN = -1


def write_entries(entries: list[Entry], renumbered: NDArray[np.int32]) -> Snapshot:
    """`renumbered`: the numbers of pairs in the snapshot by those in the engine."""
    chains = [entry.chain for entry in entries]
    return {
        "chain_lengths": np.fromiter(map(len, chains), dtype=np.uint8),
        "chains": renumbered[np.fromiter(chain.from_iterable(chains), dtype=np.int32)],
        "crowds": np.fromiter([len(entry.ids) for entry in entries], dtype=np.int32),
        "in_graph": np.fromiter([entry.in_graph for entry in entries], dtype=np.bool_),
        "untested": np.fromiter([entry.untested is not None for entry in entries], dtype=np.bool_),
    }


def read_entries(snapshot: Snapshot) -> list[Entry]:
    """The constraints, with their profiles, each as it was held."""
    numbers = tuple(cast("NDArray[np.int32]", snapshot["chains"]).tolist())
    chains = [numbers[a:b] for a, b in pairwise(_ends(cast("NDArray[np.uint8]", snapshot["chain_lengths"])))]
    crowds = cast("NDArray[np.int32]", snapshot["crowds"])
    ends = _ends(crowds)
    packed = array("q", cast("NDArray[np.int64]", snapshot["profiles"]).tobytes())
    ids = [packed[a:b] for a, b in pairwise(ends)]
    destinations = cast("list[int]", snapshot["destinations"])
    in_graph: list[bool] = cast("NDArray[np.bool_]", snapshot["in_graph"]).tolist()
    tests: list[bool] = cast("NDArray[np.bool_]", snapshot["untested"]).tolist()
    untested = [whole if tested else None for whole, tested in zip(chains, tests, strict=True)]
    entries = list(map(Entry, chains, ids, map(destinations.__getitem__, ends), in_graph, untested))
    for at in np.flatnonzero(crowds > 1).tolist():
        for destination in destinations[ends[at] + 1 : ends[at + 1]]:
            entries[at].count(destination)
    return entries


def _ends(lengths: NDArray[np.uint8] | NDArray[np.int32]) -> list[int]:
    """Where stretches of these lengths begin, and where the last one ends."""
    return [0, *np.cumsum(lengths, dtype=np.int64).tolist()]


def write_shapes(shapes: Mapping[ShapeKey, Shape], sizes: Mapping[ShapeKey, int]) -> Snapshot:
    """Every shape, those with a table first in the order of `sizes`, which has the number of constraints there."""
    keys = [*sizes, *[key for key in shapes if key not in sizes]]
    return {
        "shape_tags": [tag for tags, _ in keys for tag in tags],
        "shape_lengths": [len(tags) for tags, _ in keys],
        "shape_valued": [valued for _, valued in keys],
        "shape_uses": [shapes[key].uses for key in keys],
        "shape_entries": [sizes.get(key, 0) for key in keys],
    }


def read_shapes(snapshot: Snapshot) -> Iterator[tuple[Shape, int]]:
    """The shapes, still without tables, and how many constraints each has in the sets."""
    tags = cast("list[str]", snapshot["shape_tags"])
    columns = (snapshot[f"shape_{name}"] for name in ("lengths", "valued", "uses", "entries"))
    lengths, valued, uses, sizes = cast("tuple[list[int], ...]", tuple(columns))
    for (a, b), *facts in zip(pairwise(accumulate(lengths, initial=0)), valued, uses, sizes, strict=True):
        shape = Shape((tuple(tags[a:b]), facts[0]))
        shape.uses = facts[1]
        yield shape, facts[2]


def write_graph(graph: ProfileGraph, renumbered: NDArray[np.int32]) -> tuple[Snapshot, list[Entry]]:
    """The nodes breadth first, and the constraints in the order in which they hang there."""
    nodes = [graph.root]
    sizes: list[int] = []
    numbers: list[int] = []
    below: list[Node | Entry] = []
    for node in nodes:
        children = list(node.children.values())
        if node.entry is not None:
            numbers.append(_OWN)
            below.append(node.entry)
        numbers += node.children
        below += children
        nodes += [child for child in children if isinstance(child, Node)]
        sizes.append(len(children) + (node.entry is not None))
    is_node = np.fromiter([isinstance(child, Node) for child in below], dtype=np.bool_)
    edges = np.array(numbers, dtype=np.int32)
    columns: Snapshot = {
        "node_edges": np.array(sizes, dtype=np.int32),
        "node_ends": np.fromiter([node.entry is not None for node in nodes], dtype=np.bool_),
        "node_masks": [node.mask for node in nodes],
        "node_planes": np.fromiter([len(node.planes or ()) for node in nodes], dtype=np.int32),
        "planes": [plane for node in nodes for plane in node.planes or ()],
        "edge_numbers": np.where(edges == _OWN, _OWN, renumbered[edges]),
        "edge_nodes": is_node,
    }
    return columns, cast("list[Entry]", list(compress(below, (~is_node).tolist())))


def read_graph(snapshot: Snapshot, entries: list[Entry]) -> Node:
    """The root of the tree that holds these constraints."""
    masks, planes = cast("list[int]", snapshot["node_masks"]), cast("list[int]", snapshot["planes"])
    nodes = [Node() for _ in masks]
    is_node = cast("NDArray[np.bool_]", snapshot["edge_nodes"])
    # The root stands before the first node that an edge leads to.
    places = np.where(is_node, len(entries) + np.cumsum(is_node), np.cumsum(~is_node) - 1)
    ends: list[Node | Entry] = [*entries, *nodes]
    below = map(ends.__getitem__, places.tolist())
    edges = zip(cast("NDArray[np.int32]", snapshot["edge_numbers"]).tolist(), below, strict=True)
    sizes: list[int] = cast("NDArray[np.int32]", snapshot["node_edges"]).tolist()
    counts: list[int] = cast("NDArray[np.int32]", snapshot["node_planes"]).tolist()
    first = 0
    for node, mask, size, count in zip(nodes, masks, sizes, counts, strict=True):
        node.mask = mask
        node.children = dict(islice(edges, size))
        if count:
            node.planes = planes[first : first + count]
            first += count
    for at in np.flatnonzero(cast("NDArray[np.bool_]", snapshot["node_ends"])).tolist():
        own = nodes[at].children.pop(_OWN)
        assert isinstance(own, Entry), "a node at its own end"
        nodes[at].entry = own
    return nodes[0]
