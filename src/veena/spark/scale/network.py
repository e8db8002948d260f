"""A network as arrays: millions of brokers in some tens of megabytes, to be sent to every worker.

Brokers are places 0, 1, ... in the order of their addresses, so that the brokers of a unit lie side by side, and so do
the sub-units of a unit. A unit is known by (size, index): the length of its address, and its place among the units of
that size. Within a unit its sub-units are numbered from 0; the order of these numbers is that of the identifiers, and
order is all that the rules of routing ask for.

`regular(32, 4, seed)` is the full hierarchy of 32^4 brokers. It draws the same network as the simulator's generator
does for that size with full clusters, link by link; tests hold them together.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from veena.address import MAX_LEVELS
from veena.errors import PipelineError
from veena.runtime.networks.file import Network

Ints = npt.NDArray[np.int32]

#: The workers hold some 50 bytes a broker, and numbers of brokers are of 32 bits.
BROKERS_MAX: Final = 1 << 24
#: A word of 64 bits names the sub-units of a unit.
FANOUT_MAX: Final = 64
#: As the simulator's generator: ring neighbours on each side, edges beyond the tree, links of an adjacency, gateways
#: that gather at one broker.
RING_REACH: Final = 3
EXTRA_SHARE: Final = 0.6
PARALLEL: Final = 2
GATEWAYS: Final = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Brokers, units and links of one network."""

    name: str
    levels: int
    #: For each size s from 0 to `levels`: the index of the size-s unit that each broker is in. Size 0 is the network.
    units: tuple[Ints, ...]
    #: For each size s below `levels`, where the sub-units of each unit begin among those of size s + 1; then the end.
    first: tuple[Ints, ...]
    #: The two ends of each link as places, and the level at which they differ.
    link_a: Ints
    link_b: Ints
    link_level: npt.NDArray[np.int8]

    @property
    def brokers(self) -> int:
        return len(self.units[0])

    @property
    def links(self) -> int:
        """Pairs of brokers that are joined, however often."""
        return int(self.link_a.size)

    @property
    def flooding(self) -> int:
        """Crossings when each broker passes on what is new to all neighbours but one: 2E - N + 1."""
        return 2 * self.links - self.brokers + 1

    def count(self, size: int) -> int:
        """How many units have addresses of this length."""
        return int(self.units[size][-1]) + 1

    def number(self, size: int) -> Ints:
        """The number of each broker's unit of this size within the unit around it."""
        return self.units[size] - self.first[size - 1][self.units[size - 1]]


def regular(fanout: int, levels: int, seed: int, long_links: float = 0.0) -> Shape:
    """The full hierarchy: every unit has `fanout` sub-units; clusters are rings, larger units random small worlds.

    `long_links` is the share of brokers, of each larger unit, by which its sub-units are joined in addition.
    """
    if not 0 <= long_links <= 1:
        raise PipelineError(f"long_links {long_links}: expected a share from 0 to 1")
    if not 1 <= levels <= MAX_LEVELS:
        raise PipelineError(f"levels {levels}: expected 1 to {MAX_LEVELS}")
    if not 1 <= fanout <= FANOUT_MAX:
        raise PipelineError(f"fanout {fanout}: expected 1 to {FANOUT_MAX}")
    if fanout**levels > BROKERS_MAX:
        raise PipelineError(f"{fanout}^{levels} brokers: expected at most {BROKERS_MAX:,}; take fewer levels")
    brokers = fanout**levels
    places = np.arange(brokers, dtype=np.int32)
    units = tuple((places // fanout ** (levels - size)).astype(np.int32) for size in range(levels + 1))
    first = tuple(np.arange(0, fanout ** (size + 1) + 1, fanout, dtype=np.int32) for size in range(levels))
    ring = np.array(_ring(fanout), dtype=np.int32).reshape(-1, 2)
    inside = (ring[None, :, :] + np.arange(0, brokers, fanout, dtype=np.int32)[:, None, None]).reshape(-1, 2)
    wider = np.array(_wider_links(fanout, levels, seed, long_links), dtype=np.int32).reshape(-1, 3)
    return Shape(
        f"{fanout}^{levels}",
        levels,
        units,
        first,
        np.concatenate([inside[:, 0], wider[:, 0]]),
        np.concatenate([inside[:, 1], wider[:, 1]]),
        np.concatenate([np.zeros(len(inside), np.int8), wider[:, 2].astype(np.int8)]),
    )


def shape_of(network: Network) -> Shape:
    """Any network file in this form."""
    if len(network.brokers) > BROKERS_MAX:
        raise PipelineError(
            f"network {network.name!r}: {len(network.brokers):,} brokers, expected at most {BROKERS_MAX:,}"
        )
    addresses = sorted(broker.address for broker in network.brokers)
    place = {address: at for at, address in enumerate(addresses)}
    units: list[Ints] = []
    first: list[Ints] = []
    for size in range(network.levels + 1):
        index: dict[tuple[int, ...], int] = {}
        units.append(np.array([index.setdefault(address[:size], len(index)) for address in addresses], dtype=np.int32))
        if size:
            starts: dict[tuple[int, ...], int] = {}
            for unit, at in index.items():
                starts.setdefault(unit[:-1], at)
            first.append(np.array([*starts.values(), len(index)], dtype=np.int32))
    joined: dict[tuple[int, int], int] = {}
    for link in network.links:
        a, b = sorted((place[link.a], place[link.b]))
        joined[a, b] = link.level
    ends = np.array(list(joined), dtype=np.int32).reshape(-1, 2)
    level = np.array(list(joined.values()), dtype=np.int8)
    return Shape(network.name, network.levels, tuple(units), tuple(first), ends[:, 0], ends[:, 1], level)


def _ring(size: int) -> list[tuple[int, int]]:
    edges = {
        (min(at, other), max(at, other))
        for at in range(size)
        for step in range(1, RING_REACH + 1)
        if (other := (at + step) % size) != at
    }
    return sorted(edges)


def _wider_links(fanout: int, levels: int, seed: int, long_links: float) -> list[tuple[int, int, int]]:
    """The links between clusters and larger units; sub-units are drawn before the unit that they make up."""
    chance = random.Random(seed)
    held = [0] * fanout**levels
    links: dict[tuple[int, int], int] = {}

    def fill(start: int, level: int) -> None:
        if level == 1:
            return
        size = fanout ** (level - 1)
        for part in range(fanout):
            fill(start + part * size, level - 1)
        adjacencies = _adjacencies(fanout, chance)
        share = math.ceil(long_links * fanout * size / max(1, len(adjacencies)))
        for a, b in adjacencies:
            count = min(max(PARALLEL, share), size)
            near = _gateways(range(start + a * size, start + (a + 1) * size), count, held, chance)
            far = _gateways(range(start + b * size, start + (b + 1) * size), count, held, chance)
            for one, other in zip(near, far, strict=True):
                links[one, other] = level - 1

    fill(0, levels)
    return [(a, b, level) for (a, b), level in links.items()]


def _adjacencies(units: int, chance: random.Random) -> list[tuple[int, int]]:
    found = {(chance.randrange(at), at): None for at in range(1, units)}
    wanted = min(len(found) + round(EXTRA_SHARE * units), units * (units - 1) // 2)
    while len(found) < wanted:
        a, b = sorted(chance.sample(range(units), 2))
        found[(a, b)] = None
    return list(found)


def _gateways(places: range, count: int, held: list[int], chance: random.Random) -> list[int]:
    drawn = chance.sample(places, min(len(places), 4 * count))
    chosen = sorted(drawn, key=lambda place: (held[place] >= GATEWAYS, -held[place]))
    for place in itertools.islice(chosen, count):
        held[place] += 1
    return chosen[:count]
