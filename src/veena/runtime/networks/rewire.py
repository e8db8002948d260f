"""New links for a network that is too long: what to add and what to drop so that ways become short (FUT-09, FUT-10).

Three steps, each leaving every unit in one piece: parts of a unit that nothing joins are joined again, as after brokers
went away; slow links are dropped, with a fast link put in first where one was the only way; then links are added until
the average pathlength reaches a target, by default log2 of the size, which is what the hyper-cube of that size needs
between opposite corners.

Each added link is the best of some drawn pairs, judged exactly: with all distances known, the distances after adding
u - v are min(d(x, y), d(x, u) + 1 + d(v, y), d(x, v) + 1 + d(u, y)). Rejected: judging every pair, which takes time
with the fourth power of the size; on chains and rings of 32 to 96 brokers the draws needed up to two links more than
that (12 instead of 10). Rejected too: drawing far pairs first; it needed 14.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veena.address import Address, Unit, link_level
from veena.errors import InvalidAddress
from veena.runtime.networks.file import LinkEntry, Network, partitions
from veena.runtime.networks.statistics import graph_of, hops_from, pathlength

#: All distances are held at once: 2 MiB for so many brokers, and a second or two for the search.
MAX_BROKERS = 1024
#: Links of one broker, as many as the hyper-cube of 256 brokers has.
DEGREE_MAX = 8
#: Pairs that are judged for each link added.
DRAWS = 128
#: Stands for "no way"; twice of it and one still fits into the type.
_FAR = 10_000

#: An estimate of a link that does not exist yet, in milliseconds.
DelayOf = Callable[[Address, Address], float]


@dataclass(frozen=True, slots=True)
class Improvement:
    network: Network
    added: tuple[LinkEntry, ...]
    dropped: tuple[LinkEntry, ...]
    pathlength_before: float
    pathlength_after: float


def improve(
    network: Network,
    *,
    target: float | None = None,
    degree_max: int = DEGREE_MAX,
    slow_ms: float = math.inf,
    delay_of: DelayOf | None = None,
    seed: int = 0,
) -> Improvement:
    """A better network, and the difference; one that is good enough comes back as it is.

    A link slower than `slow_ms` is dropped where the network holds without it; no link is added that would be slower.
    """
    size = len(network.brokers)
    if size > MAX_BROKERS:
        raise InvalidAddress(
            f"{size} brokers: links are proposed for at most {MAX_BROKERS}; improve one unit at a time"
        )
    if degree_max < 2:
        raise InvalidAddress(f"degree_max {degree_max}: expected 2 or more, a chain needs that")
    before = pathlength(graph_of(network))
    work = _Work(network, degree_max, slow_ms, delay_of or (lambda a, b: 0.0), random.Random(seed))
    work.mend()
    work.drop_slow()
    work.shorten(math.log2(size) if target is None and size > 1 else target or 0.0)
    better = work.network
    kept = set(map(id, better.links))
    old = set(map(id, network.links))
    return Improvement(
        better,
        tuple(link for link in better.links if id(link) not in old),
        tuple(link for link in network.links if id(link) not in kept),
        before,
        pathlength(graph_of(better)),
    )


class _Work:
    """A network while links come and go. Invariant: no step leaves more partitions than it found."""

    def __init__(
        self, network: Network, degree_max: int, slow_ms: float, delay_of: DelayOf, chance: random.Random
    ) -> None:
        self.network = network
        self.degree_max = degree_max
        self.slow_ms = slow_ms
        self.delay_of = delay_of
        self.chance = chance
        self.addresses = [broker.address for broker in network.brokers]
        self.degree = dict.fromkeys(self.addresses, 0)
        for link in network.links:
            self.degree[link.a] += 1
            self.degree[link.b] += 1

    def mend(self) -> None:
        """Join the parts of units that fell apart, largest units first."""
        for partition in partitions(self.network):
            first, *others = partition.parts
            for part in others:
                pair = self._pair(first, part, self.degree_max)
                # Being in one piece matters more than the bound on links.
                pair = pair or self._pair(first, part, len(self.addresses) + self.degree_max)
                if pair:
                    self._add(*pair)

    def drop_slow(self) -> None:
        slow = [link for link in self.network.links if link.delay_ms > self.slow_ms]
        for link in sorted(slow, key=lambda link: -link.delay_ms):
            before = len(partitions(self.network))
            kept = self.network
            self._remove(link)
            if len(partitions(self.network)) > before and not self._bypass(link):
                self.network = kept
                self.degree[link.a] += 1
                self.degree[link.b] += 1

    def shorten(self, target: float) -> None:
        """Add the best of some drawn links, until the average is at the target or nothing helps."""
        size = len(self.addresses)
        pairs = size * (size - 1)
        if pairs == 0:
            return
        graph = graph_of(self.network)
        distance = np.array([hops_from(graph, at) for at in range(size)], dtype=np.int16)
        distance[distance < 0] = _FAR
        while int(distance.sum(dtype=np.int64)) / pairs > target:
            best: tuple[int, int, int, NDArray[np.int16]] | None = None
            for u, v in self._draws(distance):
                after = _with_link(distance, u, v)
                total = int(after.sum(dtype=np.int64))
                if best is None or total < best[0]:
                    best = (total, u, v, after)
            if best is None:
                return
            _, u, v, distance = best
            self._add(self.addresses[u], self.addresses[v])

    def _draws(self, distance: NDArray[np.int16]) -> list[tuple[int, int]]:
        """Pairs that may be linked and are not neighbours yet."""
        free = [at for at, address in enumerate(self.addresses) if self.degree[address] < self.degree_max]
        drawn: dict[tuple[int, int], None] = {}
        for _ in range(8 * DRAWS if len(free) > 1 else 0):
            u, v = self.chance.sample(free, 2)
            if distance[u, v] > 1 and self._fast(self.addresses[u], self.addresses[v]):
                drawn[(min(u, v), max(u, v))] = None
                if len(drawn) == DRAWS:
                    break
        return list(drawn)

    def _bypass(self, link: LinkEntry) -> bool:
        """A fast link that does what a slow one did: between the same two sub-units, or what hangs on them."""
        depth = len(link.a) - link.level
        for partition in partitions(self.network):
            if partition.context == link.a[: depth - 1]:
                near = next(part for part in partition.parts if link.a[:depth] in part)
                far = next(part for part in partition.parts if link.b[:depth] in part)
                pair = self._pair(near, far, self.degree_max) if near is not far else None
                if pair:
                    self._add(*pair)
                    return True
        return False

    def _pair(self, one: tuple[Unit, ...], other: tuple[Unit, ...], degree_max: int) -> tuple[Address, Address] | None:
        """The least loaded brokers of two groups of units that a fast link can join."""
        depth = len(one[0])
        ends = [
            sorted(
                (
                    address
                    for address in self.addresses
                    if address[:depth] in units and self.degree[address] < degree_max
                ),
                key=lambda address: (self.degree[address], address),
            )
            for units in (one, other)
        ]
        return next(((a, b) for a in ends[0] for b in ends[1] if self._fast(a, b)), None)

    def _fast(self, a: Address, b: Address) -> bool:
        return self.delay_of(a, b) <= self.slow_ms

    def _add(self, a: Address, b: Address) -> None:
        link = LinkEntry(a, b, link_level(a, b), delay_ms=self.delay_of(a, b))
        self.network = replace(self.network, links=(*self.network.links, link))
        self.degree[a] += 1
        self.degree[b] += 1

    def _remove(self, link: LinkEntry) -> None:
        self.network = replace(self.network, links=tuple(other for other in self.network.links if other is not link))
        self.degree[link.a] -= 1
        self.degree[link.b] -= 1


def _with_link(distance: NDArray[np.int16], u: int, v: int) -> NDArray[np.int16]:
    there = distance[:, u, None] + distance[v] + 1
    back = distance[:, v, None] + distance[u] + 1
    shorter: NDArray[np.int16] = np.minimum(distance, np.minimum(there, back)).astype(np.int16)
    return shorter
