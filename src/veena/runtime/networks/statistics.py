"""How far and how clannish: pathlength and clustering coefficient of networks, and graphs to measure them against.

Pathlength is the average number of hops between two brokers. The clustering coefficient of a broker is the share of the
possible links among its neighbours that exist; that of a graph is the average over the brokers that have two or more
neighbours (TOP-11). A regular ring lattice is clannish and long, a random graph short and loose; a hierarchy of
clusters with a few long links is to be clannish and short: a small world (TOP-12..14).

All sources of a batch are searched at once: each broker holds one bit a source, and a round ORs what its neighbours
hold. The whole of 20,000 brokers takes seconds, so sampling is left for what is larger still.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from veena.address import Address
from veena.errors import InvalidAddress
from veena.runtime.networks.file import Network

#: Neighbours of each vertex, ascending and without repeats; the vertices are 0 to n - 1.
Graph = tuple[tuple[int, ...], ...]

#: Sources searched at once: 512 bytes a vertex, so that a million of them fit into memory.
BATCH = 4096


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    brokers: int
    links: int
    pathlength: float
    clustering: float
    degree_max: int


def make_graph(vertices: int, edges: Iterable[tuple[int, int]]) -> Graph:
    neighbours: list[set[int]] = [set() for _ in range(vertices)]
    for a, b in edges:
        if a != b:
            neighbours[a].add(b)
            neighbours[b].add(a)
    return tuple(tuple(sorted(near)) for near in neighbours)


def graph_of(network: Network) -> Graph:
    """The brokers of a network by their place in `network.brokers`; parallel links are one edge."""
    place = {broker.address: at for at, broker in enumerate(network.brokers)}
    return make_graph(len(place), ((place[link.a], place[link.b]) for link in network.links))


def statistics(network: Network, sample: int | None = None, seed: int = 0) -> GraphStatistics:
    graph = graph_of(network)
    return GraphStatistics(
        len(graph),
        len(network.links),
        pathlength(graph, sample, seed),
        clustering_coefficient(graph, sample, seed),
        max(map(len, graph), default=0),
    )


def pathlength(graph: Graph, sample: int | None = None, seed: int = 0) -> float:
    """Average hops between two vertices, from all or from `sample` of them; infinite when some pair has no path."""
    size = len(graph)
    if size < 2:
        return 0.0
    sources = _sampled(size, sample, seed)
    total = 0
    for start in range(0, len(sources), BATCH):
        reached = _hop_sum(graph, sources[start : start + BATCH])
        if reached is None:
            return math.inf
        total += reached
    return total / (len(sources) * (size - 1))


def clustering_coefficient(graph: Graph, sample: int | None = None, seed: int = 0) -> float:
    """Links among a vertex's neighbours over possible ones, averaged over the vertices that have two or more."""
    found: list[float] = []
    for vertex in _sampled(len(graph), sample, seed):
        near = graph[vertex]
        if len(near) < 2:
            continue
        friends = set(near)
        ends = sum(other in friends for neighbour in near for other in graph[neighbour])
        found.append(ends / (len(near) * (len(near) - 1)))
    return math.fsum(found) / len(found) if found else 0.0


def is_connected(graph: Graph) -> bool:
    return not graph or -1 not in hops_from(graph, 0)


def hops_from(graph: Graph, source: int) -> list[int]:
    """Hops to every vertex; -1 for one that is out of reach."""
    hops = [-1] * len(graph)
    hops[source] = 0
    queue = [source]
    for vertex in queue:  # grows while it is walked
        for near in graph[vertex]:
            if hops[near] < 0:
                hops[near] = hops[vertex] + 1
                queue.append(near)
    return hops


def shortest_way(network: Network, start: Address, end: Address) -> tuple[Address, ...]:
    """The brokers on a shortest way, both ends included: as many as the papers count hops. Empty when there is none."""
    graph = graph_of(network)
    addresses = [broker.address for broker in network.brokers]
    hops = hops_from(graph, addresses.index(end))
    vertex = addresses.index(start)
    if hops[vertex] < 0:
        return ()
    way = [vertex]
    while hops[vertex]:
        vertex = min((near for near in graph[vertex] if hops[near] == hops[vertex] - 1), key=addresses.__getitem__)
        way.append(vertex)
    return tuple(addresses[vertex] for vertex in way)


# --- graphs to compare with ---


def complete_graph(vertices: int) -> Graph:
    return make_graph(vertices, ((a, b) for a in range(vertices) for b in range(a)))


def ring_lattice(vertices: int, degree: int) -> Graph:
    """Each vertex of a ring linked to its `degree` nearest, half on each side."""
    if degree % 2 or not 0 < degree < vertices:
        raise InvalidAddress(f"degree {degree} of a ring of {vertices}: expected an even number below its size")
    reach = range(1, degree // 2 + 1)
    return make_graph(vertices, ((at, (at + step) % vertices) for at in range(vertices) for step in reach))


def random_graph(vertices: int, degree: float, seed: int) -> Graph:
    """Links drawn at random until the average degree is reached; strays are tied to the rest, so that paths exist."""
    chance = random.Random(seed)
    wanted = min(round(vertices * degree / 2), vertices * (vertices - 1) // 2)
    edges: set[tuple[int, int]] = set()
    while len(edges) < wanted:
        a, b = chance.randrange(vertices), chance.randrange(vertices)
        if a != b:
            edges.add((min(a, b), max(a, b)))
    ordered = sorted(edges)
    joined = _groups(make_graph(vertices, ordered))
    largest = max(joined, key=len, default=[])
    for group in joined:
        if group is not largest:
            ordered.append((chance.choice(group), chance.choice(largest)))
    return make_graph(vertices, ordered)


def _groups(graph: Graph) -> list[list[int]]:
    seen = [False] * len(graph)
    groups: list[list[int]] = []
    for start in range(len(graph)):
        if seen[start]:
            continue
        seen[start] = True
        group = [start]
        for vertex in group:  # grows while it is walked
            for near in graph[vertex]:
                if not seen[near]:
                    seen[near] = True
                    group.append(near)
        groups.append(group)
    return groups


def _sampled(size: int, sample: int | None, seed: int) -> Sequence[int]:
    if sample is None or sample >= size:
        return range(size)
    return sorted(random.Random(seed).sample(range(size), sample))


def _hop_sum(graph: Graph, sources: Sequence[int]) -> int | None:
    """The hops from these sources to all vertices, added up; None when one is out of reach."""
    held = [0] * len(graph)
    for bit, source in enumerate(sources):
        held[source] = 1 << bit
    known, total, hop = len(sources), 0, 0
    everything = len(sources) * len(graph)
    while known < everything:
        hop += 1
        after: list[int] = []
        for bits, near in zip(held, graph, strict=True):
            for vertex in near:
                bits |= held[vertex]  # noqa: PLW2901
            after.append(bits)
        held = after
        count = sum(map(int.bit_count, held))
        if count == known:
            return None
        total += hop * (count - known)
        known = count
    return total
