"""Pathlength and clustering coefficient against the values that theory gives, and the optimiser of links."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from veena.errors import InvalidAddress
from veena.runtime.networks.file import Network, make_network, partitions
from veena.runtime.networks.rewire import improve
from veena.runtime.networks.statistics import (
    Graph,
    clustering_coefficient,
    complete_graph,
    graph_of,
    hops_from,
    is_connected,
    make_graph,
    pathlength,
    random_graph,
    ring_lattice,
    shortest_way,
    statistics,
)
from veena.sim.networks.generate import generate


def test_known_values() -> None:
    """TOP-11: four brokers all linked, and a ring of six."""
    four, six = complete_graph(4), ring_lattice(6, 2)
    assert (pathlength(four), clustering_coefficient(four)) == (1.0, 1.0)
    assert pathlength(six) == pytest.approx(1.8)
    assert clustering_coefficient(six) == 0.0


def test_graphs_without_pairs_or_ways() -> None:
    assert (pathlength(()), clustering_coefficient(())) == (0.0, 0.0)
    assert (pathlength(((),)), is_connected(())) == (0.0, True)
    apart = make_graph(3, [(0, 1)])
    assert pathlength(apart) == math.inf
    assert not is_connected(apart)


def test_a_ring_lattice_is_clannish_and_long() -> None:
    """TOP-12: pathlength about n / 2k; coefficient 3(k - 2) / 4(k - 1), rising towards 0.75."""
    lattice = ring_lattice(1000, 20)
    assert pathlength(lattice) == pytest.approx(25, rel=0.15)
    found = [clustering_coefficient(ring_lattice(1000, degree)) for degree in (4, 10, 20, 60)]
    assert found[2] == pytest.approx(0.711, abs=0.001)
    assert found == pytest.approx([3 * (k - 2) / (4 * (k - 1)) for k in (4, 10, 20, 60)])
    assert found == sorted(found) and 0.73 < found[-1] < 0.75
    with pytest.raises(InvalidAddress, match="even"):
        ring_lattice(10, 3)


def test_a_random_graph_is_short_and_loose() -> None:
    """TOP-13: pathlength about log n / log k, coefficient about k / n."""
    for seed in range(3):
        graph = random_graph(1000, 10, seed)
        assert pathlength(graph) == pytest.approx(math.log(1000) / math.log(10), rel=0.25)
        assert 0.005 < clustering_coefficient(graph) < 0.02


@pytest.mark.parametrize(("brokers", "long_links"), [(81, 0.0), (243, 0.0), (81, 0.06), (729, 0.06), (2187, 0.06)])
def test_generated_networks_are_small_worlds(brokers: int, long_links: float) -> None:
    """TOP-14: clannish like the lattice, short nearly like the random graph of the same size and degree."""
    for seed in range(2):
        found = statistics(generate(brokers, seed, long_links=long_links))
        chance = random_graph(brokers, 2 * found.links / brokers, seed)
        assert found.clustering > 0.5
        assert found.pathlength < 2 * pathlength(chance)
        assert found.clustering > 5 * clustering_coefficient(chance) > 0


@pytest.mark.parametrize("long_links", [0.0, 0.06])
def test_pathlength_grows_with_the_logarithm_of_the_size(long_links: float) -> None:
    """TOP-15: the fit of pathlength over log(size) is a line, and 27 times the brokers are less than 4 times as far."""
    sizes = [27, 81, 243, 729]
    lengths = [statistics(generate(size, 1, long_links=long_links)).pathlength for size in sizes]
    logs = [math.log(size) for size in sizes]
    mean_x, mean_y = sum(logs) / 4, sum(lengths) / 4
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(logs, lengths, strict=True))
    spread_x, spread_y = sum((x - mean_x) ** 2 for x in logs), sum((y - mean_y) ** 2 for y in lengths)
    assert covariance**2 / (spread_x * spread_y) > 0.9
    assert lengths == sorted(lengths) and lengths[-1] / lengths[0] < 4


@example(4, [(0, 1), (1, 2), (0, 2), (2, 3)])  # hangs together, with a triangle
@example(4, [(0, 1)])  # does not
@settings(max_examples=60)
@given(st.integers(2, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=80))
def test_both_values_equal_their_definitions(size: int, pairs: list[tuple[int, int]]) -> None:
    """TOP-11, by plain counting on any graph."""
    graph = make_graph(size, [(a % size, b % size) for a, b in pairs])
    hops = [hops_from(graph, vertex) for vertex in range(size)]
    if any(-1 in row for row in hops):
        assert pathlength(graph) == math.inf
    else:
        assert pathlength(graph) == pytest.approx(sum(map(sum, hops)) / (size * (size - 1)))
    shares = [
        sum(b in graph[a] for a, b in itertools.combinations(near, 2)) / math.comb(len(near), 2)
        for near in graph
        if len(near) > 1
    ]
    assert clustering_coefficient(graph) == pytest.approx(sum(shares) / len(shares) if shares else 0.0)


def test_a_sample_is_near_the_whole_and_seeded() -> None:
    graph = graph_of(generate(2000, 4))
    for measure, tolerance in ((pathlength, 0.05), (clustering_coefficient, 0.1)):
        assert measure(graph, 200, 7) == pytest.approx(measure(graph), rel=tolerance)
        assert measure(graph, 200, 7) == measure(graph, 200, 7) != measure(graph, 200, 8)
        assert measure(graph, 5000, 7) == measure(graph)


def test_more_sources_than_one_batch() -> None:
    """A ring of 5,000 is searched in two batches; its pathlength is known."""
    assert pathlength(ring_lattice(5000, 50)) == pytest.approx(
        sum(math.ceil(d / 25) for d in range(1, 2500)) * 2 / 4999, rel=0.01
    )


def test_a_way_is_inclusive_and_takes_the_lowest() -> None:
    network = make_network(
        "square", ["1", "2", "3", "4", "5"], [("1", "3"), ("1", "2"), ("2", "4"), ("3", "4")], levels=1
    )
    assert shortest_way(network, (0,), (3,)) == ((0,), (1,), (3,))
    assert shortest_way(network, (0,), (0,)) == ((0,),)
    assert shortest_way(network, (0,), (4,)) == ()


# --- proposals of links ---


def _chain(brokers: int, delays: dict[int, float] | None = None) -> Network:
    names = [f"{at // 32}.{at % 32}" for at in range(brokers)]
    network = make_network("chain", names, list(itertools.pairwise(names)), levels=2)
    slow = delays or {}
    return replace(
        network, links=tuple(replace(link, delay_ms=slow.get(at, 0.0)) for at, link in enumerate(network.links))
    )


def _degree_max(graph: Graph) -> int:
    return max(map(len, graph))


def test_a_chain_becomes_a_small_world() -> None:
    """FUT-09: a chain of 32 brokers gets an average pathlength of at most 2 log2(32), whole and with few links each."""
    chain = _chain(32)
    better = improve(chain)
    assert better.pathlength_before == 11.0
    assert better.pathlength_after <= math.log2(32) < 2 * math.log2(32)
    graph = graph_of(better.network)
    assert is_connected(graph) and _degree_max(graph) <= 8
    assert better.network.links == (*chain.links, *better.added) and not better.dropped
    assert len(better.added) < 8
    # The same seed proposes the same links.
    assert improve(chain) == better


@pytest.mark.parametrize("degree_max", [2, 3, 4])
def test_no_broker_gets_more_links_than_allowed(degree_max: int) -> None:
    """FUT-09: what cannot be reached within the bound is approached."""
    better = improve(_chain(64), target=0, degree_max=degree_max)
    assert _degree_max(graph_of(better.network)) <= degree_max
    assert better.pathlength_after < better.pathlength_before


def test_slow_links_are_dropped_and_fast_ones_made() -> None:
    """FUT-09: a slow link goes; where it was the only way, a fast one replaces it first."""
    slow = _chain(32, {10: 400.0, 20: 900.0})
    better = improve(slow, slow_ms=100)
    assert [link.delay_ms for link in better.dropped] == [400.0, 900.0]
    assert all(link.delay_ms <= 100 for link in better.network.links)
    assert not partitions(better.network) and is_connected(graph_of(better.network))


def test_a_slow_link_stays_where_nothing_faster_can_be_made() -> None:
    slow = _chain(32, {10: 400.0})
    better = improve(slow, slow_ms=100, delay_of=lambda a, b: 500.0)
    assert (better.added, better.dropped, better.network) == ((), (), slow)


def test_a_network_that_lost_brokers_is_mended() -> None:
    """FUT-10: as brokers go, what fell apart is joined, in every unit, and ways stay short."""
    network = generate(120, 5)
    gone = {broker.address for broker in network.brokers[::4]}
    left = replace(
        network,
        brokers=tuple(broker for broker in network.brokers if broker.address not in gone),
        links=tuple(link for link in network.links if not {link.a, link.b} & gone),
    )
    assert partitions(left)
    better = improve(left)
    assert not partitions(better.network)
    assert better.pathlength_after <= math.log2(len(left.brokers))


def test_bounds_of_the_optimiser() -> None:
    with pytest.raises(InvalidAddress, match="degree_max 1"):
        improve(_chain(4), degree_max=1)
    with pytest.raises(InvalidAddress, match="at most 1024"):
        improve(generate(1025, 1))
    alone = make_network("one", ["1"], [], levels=1)
    assert improve(alone).network == alone
