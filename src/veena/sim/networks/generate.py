"""Networks of any size, drawn from a seed: hierarchical small worlds, as the papers ask for (TOP-14).

A cluster is a ring whose brokers also link to their second and third neighbours: clannish, and whole after any single
loss. The sub-units of a larger unit are joined by a random tree and extra edges, so that no unit depends on one other;
each such adjacency is two links at different brokers, where there are so many. So what a broker hears of is bounded by
the units of its map, however large the network is.

`long_links` adds links between large units, a share of the brokers they serve. Ways then grow with the logarithm of the
size up to any size (8 hops instead of 16 at 6,561 brokers), but everybody hears of every one of these links: state then
grows with the network. Up to about a thousand brokers both shapes are small worlds (TOP-14, TOP-15).

Gateways gather at few brokers, up to a limit each. Spread evenly they make clusters loose and ways a fourth longer
(measured: 0.46 against 0.51, and 8.5 against 7.1 hops at 2,187 brokers), since every change of level costs extra hops.

That is the `DENSE` shape. `SPARSE` has 1.7 links a broker instead of 3.4: a cluster is a ring of five or six with one
chord, and fewer edges are added to the trees. Ways are longer, and it matters more which parts of them are shared. The
bars of the crossing experiment come from networks of this shape, 502 brokers with 892 links and 2,912 with 4,970; of
the same sizes these have 900 and 5,030.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from veena.address import DEFAULT_FANOUT, DEFAULT_LEVELS, FANOUTS, MAX_LEVELS, Labels, Unit, capacity
from veena.errors import InvalidAddress
from veena.runtime.networks.file import BrokerEntry, LinkEntry, Network


@dataclass(frozen=True, slots=True)
class Shape:
    """How the inside of units is drawn."""

    #: Comes before the size in the name of a network.
    name: str
    #: Brokers that clusters aim at; None: it grows with the network.
    cluster: int | None
    #: Ring neighbours on each side.
    reach: int
    #: Links drawn across the ring, as a share of its brokers.
    chords: float
    #: Extra adjacencies beyond the tree, as a share of the sub-units.
    extra: float


#: A reach of three keeps the coefficient of a plain cluster at 0.6; gateways lower it a little.
DENSE = Shape("generated", cluster=None, reach=3, chords=0.0, extra=0.6)
SPARSE = Shape("sparse", cluster=6, reach=1, chords=0.25, extra=0.5)

#: Clusters grow slowly with the network: 4 brokers at 27, 14 at 5,000, and no more than this while the levels suffice.
CLUSTER_TARGET = 20
CLUSTER_MIN = 3
#: Gateways that gather at one broker before the next one is used.
GATEWAYS = 4
#: Links of an adjacency where the units have so many brokers: one may fail.
PARALLEL = 2

PREFIXES = ("", "c-", "SC-", "SSC-")


def generate(
    brokers: int,
    seed: int,
    levels: int = DEFAULT_LEVELS,
    fanout: int = DEFAULT_FANOUT,
    *,
    name: str | None = None,
    cluster: int | None = None,
    long_links: float = 0.0,
    shape: Shape = DENSE,
) -> Network:
    """A connected network of exactly so many brokers; the same arguments give the same network.

    `cluster` overrides the size that clusters aim at; `long_links` is the share of brokers, of each larger unit, that
    its sub-units are joined by in addition (0.06 is plenty).
    """
    _check(brokers, levels, fanout, cluster)
    if not 0 <= long_links <= 1:
        raise InvalidAddress(f"long_links {long_links}: expected a share from 0 to 1")
    size, branching = _sizes(brokers, levels, fanout, cluster or shape.cluster)
    plan = _Plan(levels, size, branching, long_links, shape, random.Random(seed), [], [], [0] * brokers)
    _fill(plan, (), range(brokers), levels)
    labels = Labels(levels, fanout)
    entries = tuple(BrokerEntry(label, labels.add(label)) for label in _named(plan.addresses, levels))
    links = tuple(LinkEntry(plan.addresses[a], plan.addresses[b], level) for a, b, level in plan.links)
    return Network(name or f"{shape.name}-{brokers}-{seed}", levels, fanout, labels, entries, links)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A network while it is drawn; brokers are places 0, 1, ... and a unit is a range of them."""

    levels: int
    cluster: int
    branching: int
    long_links: float
    shape: Shape
    chance: random.Random
    addresses: list[Unit]
    links: list[tuple[int, int, int]]
    #: Gateways of each broker so far.
    gateways: list[int]


def _check(brokers: int, levels: int, fanout: int, cluster: int | None) -> None:
    if not 1 <= levels <= MAX_LEVELS:
        raise InvalidAddress(f"levels {levels}: expected 1 to {MAX_LEVELS}")
    if fanout not in FANOUTS:
        raise InvalidAddress(f"fanout {fanout}: expected one of {', '.join(map(str, FANOUTS))}")
    if not 1 <= brokers <= capacity(fanout, levels - 1):
        raise InvalidAddress(f"{brokers} brokers: {levels} levels of {fanout} hold 1 to {capacity(fanout, levels - 1)}")
    if cluster is not None and not 1 <= cluster <= fanout:
        raise InvalidAddress(f"clusters of {cluster}: expected 1 to {fanout}")


def _sizes(brokers: int, levels: int, fanout: int, cluster: int | None) -> tuple[int, int]:
    """Brokers a cluster, and sub-units of each larger unit, at most."""
    if levels == 1:
        return brokers, 1
    size = cluster or min(max(CLUSTER_MIN, round(1.7 * brokers**0.25)), CLUSTER_TARGET)
    size = max(size, math.ceil(brokers / fanout ** (levels - 1)))
    clusters = math.ceil(brokers / size)
    branching = 1
    while branching ** (levels - 1) < clusters:
        branching += 1
    return size, branching


def _fill(plan: _Plan, unit: Unit, places: range, level: int) -> None:
    """Draw the inside of one unit: its sub-units first, then the links that join them."""
    if level == 1:
        plan.addresses.extend((*unit, number) for number in range(len(places)))
        plan.links.extend((places[a], places[b], 0) for a, b in _ring(len(places), plan))
        return
    size = plan.cluster * plan.branching ** (level - 2)
    parts = _divided(places, math.ceil(len(places) / size))
    for number, part in enumerate(parts):
        _fill(plan, (*unit, number), part, level - 1)
    adjacencies = _adjacencies(len(parts), plan)
    if not adjacencies:
        return
    share = math.ceil(plan.long_links * len(places) / len(adjacencies))
    for a, b in adjacencies:
        count = min(max(PARALLEL, share), len(parts[a]), len(parts[b]))
        ends = zip(_gateways(plan, parts[a], count), _gateways(plan, parts[b], count), strict=True)
        plan.links.extend((one, other, level - 1) for one, other in ends)


def _ring(size: int, plan: _Plan) -> list[tuple[int, int]]:
    """A ring and chords; a small one is a full mesh."""
    steps = range(1, plan.shape.reach + 1)
    edges = {tuple(sorted((at, (at + step) % size))) for at in range(size) for step in steps if step % size}
    wanted = min(len(edges) + int(plan.shape.chords * size), size * (size - 1) // 2)
    while len(edges) < wanted:
        edges.add(tuple(sorted(plan.chance.sample(range(size), 2))))
    return [(a, b) for a, b in sorted(edges)]


def _divided(places: range, parts: int) -> list[range]:
    """As even as can be."""
    cuts = [len(places) * at // parts for at in range(parts + 1)]
    return [places[a:b] for a, b in itertools.pairwise(cuts)]


def _adjacencies(units: int, plan: _Plan) -> list[tuple[int, int]]:
    """A random tree over the units, then extra edges."""
    chance = plan.chance
    found = {(chance.randrange(at), at): None for at in range(1, units)}
    wanted = min(len(found) + round(plan.shape.extra * units), units * (units - 1) // 2)
    while len(found) < wanted:
        a, b = sorted(chance.sample(range(units), 2))
        found[(a, b)] = None
    return list(found)


def _gateways(plan: _Plan, places: range, count: int) -> Sequence[int]:
    """Different brokers of a unit: of a few drawn, first those that are gateways already and may hold one more."""
    drawn = plan.chance.sample(places, min(len(places), 4 * count))
    held = plan.gateways
    chosen = sorted(drawn, key=lambda place: (held[place] >= GATEWAYS, -held[place]))[:count]
    for place in chosen:
        held[place] += 1
    return chosen


def _named(addresses: Sequence[Unit], levels: int) -> list[str]:
    """Label paths; units of a level are numbered through the network, as the papers number theirs."""
    counts = [0] * levels
    names: dict[Unit, str] = {(): ""}
    for address in addresses:
        for depth in range(1, levels + 1):
            unit = address[:depth]
            if unit not in names:
                level = levels - depth
                counts[level] += 1
                prefix = PREFIXES[level] if level < len(PREFIXES) else f"L{level}-"
                names[unit] = f"{names[unit[:-1]]}.{prefix}{counts[level]}".lstrip(".")
    return [names[address] for address in addresses]
