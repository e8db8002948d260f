"""The ways of events through a network of arrays: the rules of routing for millions of brokers at once.

The next hop towards a unit W is found from the top down (rule 2 of routing): the next unit X on the best path to W in
the graph of the unit that holds both, then in each own unit below the next sub-unit towards one that links to X, at
last the lowest neighbour in it. Best means fewest edges, then lowest numbers. Two tables say all of that:

- `inner[pattern, own, target]`: within a unit, the next sub-unit from one to another. Units with equal graphs share a
  pattern; the 32,768 rings of a full hierarchy are one.
- `outer[row, own]`: within a unit, the next sub-unit towards one that links to a unit outside; STRAIGHT where it does.

`walk` follows one event: each broker groups what is still to be served by next hop and sends one copy a hop; where a
copy enters a unit that it was for, it is expanded to the sub-units in which somebody wants the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from veena.spark.scale.network import Ints, Shape

Bits = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

#: In `outer`: the sub-unit links to the target itself.
STRAIGHT: Final = 255
#: In either table: no way leads there.
NO_WAY: Final = 254


@dataclass(frozen=True, slots=True)
class Routes:
    """Everything that a next hop follows from."""

    shape: Shape
    #: For each size below `levels`: the pattern of each unit's graph.
    pattern: tuple[Ints, ...]
    inner: Bytes
    #: Sorted (unit, outer target) -> row of `outer`; see `_key`.
    outer_keys: Longs
    outer: Bytes
    #: Sorted (broker, target outside its cluster that it links to) -> the lowest neighbour there.
    exit_keys: Longs
    exit_to: Ints

    def hops(self, at: Ints, size: Ints, index: Ints) -> Ints:
        """The neighbour that each of these brokers sends to for the unit beside it, which must not hold the broker."""
        shape = self.shape
        target_size, target = size.astype(np.int32), index.astype(np.int32)
        for around in range(shape.levels):
            unit = shape.units[around][at]
            own = shape.units[around + 1][at] - shape.first[around][unit]
            within = target_size == around + 1
            beyond = target_size <= around
            if around == 0:
                beyond[:] = False
            if within.any():
                start = shape.first[around][unit[within]]
                step = self.inner[self.pattern[around][unit[within]], own[within], target[within] - start]
                target[within] = start + step
            # A target inside was just looked up; those outside are narrowed to the next sub-unit towards them.
            if beyond.any():
                keys = self._key(around, unit[beyond], target_size[beyond], target[beyond])
                step = self.outer[np.searchsorted(self.outer_keys, keys), own[beyond]]
                turned = step != STRAIGHT
                places = np.flatnonzero(beyond)[turned]
                target[places] = shape.first[around][unit[places]] + step[turned]
                target_size[places] = around + 1
        found = target.copy()  # a broker of the own cluster
        outside = target_size < shape.levels
        if outside.any():
            keys = self._key(shape.levels, at[outside], target_size[outside], target[outside])
            found[outside] = self.exit_to[np.searchsorted(self.exit_keys, keys)]
        return found

    def _key(self, size: int, unit: Ints, target_size: Ints, target: Ints) -> Longs:
        return _key(self.shape, size, unit, target_size, target)


def _key(shape: Shape, size: int, unit: Ints, target_size: Ints, target: Ints) -> Longs:
    """One number for (unit of this size, target)."""
    base = _bases(shape)
    keys: Longs = (base[size] + unit.astype(np.int64)) * base[-1] + base[target_size] + target
    return keys


def _bases(shape: Shape) -> Longs:
    """Where the units of each size begin when all are numbered through."""
    return np.cumsum([0, *(shape.count(size) for size in range(shape.levels + 1))], dtype=np.int64)


def routes(shape: Shape) -> Routes:
    """Work out the tables of a network."""
    masks = [_graphs(shape, size) for size in range(shape.levels)]
    known, inverse = _distinct(np.concatenate(masks))
    splits = np.cumsum([len(mask) for mask in masks])[:-1]
    pattern = tuple(part.astype(np.int32) for part in np.split(inverse.reshape(-1), splits))
    width = known.shape[1]
    sources = np.left_shift(np.uint64(1), np.arange(width, dtype=np.uint64))
    inner = np.empty((len(known), width, width), dtype=np.uint8)
    for target in range(width):
        inner[:, :, target] = _towards(known, np.full(len(known), sources[target], dtype=np.uint64))
    outer_keys, outer_units, outer_masks = _outer(shape)
    outer = np.empty((len(outer_keys), width), dtype=np.uint8)
    for size in range(1, shape.levels):
        chosen = outer_units[:, 0] == size
        graphs = known[pattern[size][outer_units[chosen, 1]]]
        outer[chosen] = _towards(graphs, outer_masks[chosen])
    exit_keys, exit_to = _exits(shape)
    return Routes(shape, pattern, inner, outer_keys, outer, exit_keys, exit_to)


def _distinct(rows: Bits) -> tuple[Bits, Longs]:
    """The different rows, and which of them each is; as bytes they compare faster than number by number."""
    packed = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    return rows[first], inverse.reshape(-1)


def _directed(shape: Shape, *, inside: bool) -> tuple[Ints, Ints, Ints]:
    """Every link inside clusters, or between them, both ways, with the size at which the two ends part."""
    chosen = (shape.link_level == 0) == inside
    a, b = shape.link_a[chosen], shape.link_b[chosen]
    size = shape.levels - shape.link_level[chosen].astype(np.int32)
    return np.concatenate([a, b]), np.concatenate([b, a]), np.concatenate([size, size])


def _graphs(shape: Shape, size: int) -> Bits:
    """For each unit of this size and each of its sub-units: the sub-units that it links to, as bits."""
    one, other, parting = _directed(shape, inside=size == shape.levels - 1)
    chosen = parting == size + 1
    a, b = one[chosen], other[chosen]
    widest = max(int(np.diff(first).max()) for first in shape.first)
    masks = np.zeros((shape.count(size), widest), dtype=np.uint64)
    numbers = shape.number(size + 1)
    np.bitwise_or.at(
        masks, (shape.units[size][a], numbers[a]), np.left_shift(np.uint64(1), numbers[b].astype(np.uint64))
    )
    return masks


def _outer(shape: Shape) -> tuple[Longs, Ints, Bits]:
    """(unit, unit outside that it links to): sorted keys, (size, index) of the unit, its sub-units that link there."""
    one, other, parting = _directed(shape, inside=False)
    keys: list[Longs] = [np.empty(0, np.int64)]
    units: list[Ints] = [np.empty((0, 2), np.int32)]
    masks: list[Bits] = [np.empty(0, np.uint64)]
    for size in range(1, shape.levels):
        numbers = shape.number(size + 1)
        for target_size in range(1, size + 1):
            chosen = parting == target_size
            a, b = one[chosen], other[chosen]
            unit = shape.units[size][a]
            sizes = np.full(len(a), target_size, np.int32)
            found, first, inverse = np.unique(
                _key(shape, size, unit, sizes, shape.units[target_size][b]), return_index=True, return_inverse=True
            )
            mask = np.zeros(len(found), dtype=np.uint64)
            np.bitwise_or.at(mask, inverse, np.left_shift(np.uint64(1), numbers[a].astype(np.uint64)))
            keys.append(found)
            units.append(np.stack([np.full(len(found), size, np.int32), unit[first]], axis=1))
            masks.append(mask)
    order = np.argsort(np.concatenate(keys))
    return np.concatenate(keys)[order], np.concatenate(units)[order], np.concatenate(masks)[order]


def _exits(shape: Shape) -> tuple[Longs, Ints]:
    """(broker, unit outside its cluster that it links to) -> its lowest neighbour there."""
    one, other, parting = _directed(shape, inside=False)
    order = np.argsort(other, kind="stable")
    one, other, parting = one[order], other[order], parting[order]
    target = np.empty_like(one)
    for size in range(1, shape.levels):
        target[parting == size] = shape.units[size][other[parting == size]]
    keys, first = np.unique(_key(shape, shape.levels, one, parting, target), return_index=True)
    return keys, other[first]


def _towards(graphs: Bits, sources: Bits) -> Bytes:
    """In each graph, for each vertex: the lowest neighbour that is nearer to the sources; STRAIGHT at a source."""
    width = graphs.shape[1]
    bit = np.left_shift(np.uint64(1), np.arange(width, dtype=np.uint64))
    steps = np.full(graphs.shape, NO_WAY, dtype=np.uint8)
    steps[(sources[:, None] & bit) != 0] = STRAIGHT
    known, ring = sources.copy(), sources.copy()
    while ring.any():
        after = np.zeros_like(ring)
        for vertex in range(width):
            nearer = graphs[:, vertex] & ring
            new = (nearer != 0) & (known & bit[vertex] == 0)
            steps[new, vertex] = _lowest(nearer[new])
            after[new] |= bit[vertex]
        known |= after
        ring = after
    return steps


def _lowest(bits: Bits) -> Bytes:
    """The number of the lowest bit that is set; a power of two is exact as a float."""
    lowest = bits & (~bits + np.uint64(1))
    return np.log2(lowest.astype(np.float64)).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Copies:
    """One round of copies of an event: all that are so many hops from the origin."""

    sender: Ints
    receiver: Ints


def walk(table: Routes, origin: int, wanting: Flags) -> Iterator[Copies]:
    """The copies that an event makes when these brokers want it, hop by hop."""
    shape = table.shape
    wanted = [np.empty(0, np.bool_)]
    chosen = np.flatnonzero(wanting)
    for size in range(1, shape.levels + 1):
        flags = np.zeros(shape.count(size), dtype=np.bool_)
        flags[shape.units[size][chosen]] = True
        wanted.append(flags)
    at, size_, index = _expanded(shape, np.array([origin], np.int32), np.zeros(1, np.int32), wanted)
    while at.size:
        near = table.hops(at, size_, index)
        copies = np.unique(at.astype(np.int64) * shape.brokers + near)
        yield Copies((copies // shape.brokers).astype(np.int32), (copies % shape.brokers).astype(np.int32))
        entered = _unit(shape, near, size_) == index
        more = _expanded(shape, near[entered], size_[entered], wanted)
        at = np.concatenate([near[~entered], more[0]])
        size_ = np.concatenate([size_[~entered], more[1]])
        index = np.concatenate([index[~entered], more[2]])


def _expanded(shape: Shape, at: Ints, size: Ints, wanted: list[Flags]) -> tuple[Ints, Ints, Ints]:
    """For each broker: the vertices of its map, inside its own unit of that size, in which somebody wants the event."""
    parts: list[tuple[Ints, Ints, Ints]] = []
    for around in range(shape.levels):
        inside = at[size <= around]
        start = shape.first[around][shape.units[around][inside]]
        counts = shape.first[around][shape.units[around][inside] + 1] - start
        brokers = np.repeat(inside, counts)
        offsets = np.arange(len(brokers)) - np.repeat(np.cumsum(counts) - counts, counts)
        child = (np.repeat(start, counts) + offsets).astype(np.int32)
        keep = wanted[around + 1][child] & (child != shape.units[around + 1][brokers])
        parts.append((brokers[keep], np.full(int(keep.sum()), around + 1, np.int32), child[keep]))
    at_, size_, index_ = zip(*parts, strict=True)
    return np.concatenate(at_), np.concatenate(size_), np.concatenate(index_)


def _unit(shape: Shape, at: Ints, size: Ints) -> Ints:
    found = np.empty_like(at)
    for each in range(1, shape.levels + 1):
        chosen = size == each
        found[chosen] = shape.units[each][at[chosen]]
    return found


def path_lengths(table: Routes, start: Ints, end: Ints) -> Ints:
    """The hops of an event from each of these brokers to the other, by the same rules."""
    shape = table.shape
    at = start.astype(np.int32).copy()
    lengths = np.zeros(len(at), dtype=np.int32)
    going = np.flatnonzero(at != end)
    while going.size:
        here, there = at[going], end[going]
        size = np.zeros(len(here), dtype=np.int32)
        for each in range(shape.levels, 0, -1):
            size[shape.units[each][here] != shape.units[each][there]] = each
        at[going] = table.hops(here, size, _unit(shape, there, size))
        lengths[going] += 1
        going = going[at[going] != there]
    return lengths
