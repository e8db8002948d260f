"""Cheapest paths over a map: the same as a plain search on the directed graph, ties as written."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.small_networks import map_at, random_network
from tests.core.topology.test_network_map import CLUSTER, FAR, HOST, NEAR, record
from veena.address import Unit
from veena.core.topology.connection import ABSENT
from veena.core.topology.network_map import NetworkMap
from veena.core.topology.paths import Path, cheapest_paths, distances


def settled_costs(network: NetworkMap) -> dict[Unit, int]:
    """Costs to the host by relaxing every directed edge until nothing changes: never from low to high."""
    cost = {network.host: 0}
    for _ in network.edges():
        for edge in network.edges():
            for near, far in ((edge.a, edge.b), (edge.b, edge.a)):
                if near in cost and len(far) <= len(near):
                    cost[far] = min(cost.get(far, 1 << 30), cost[near] + edge.cost)
    return cost


@settings(max_examples=80)
@given(st.integers(0, 10**6))
def test_paths_are_the_cheapest_and_never_climb(seed: int) -> None:
    """SPR-01, SPR-02, BNM-11: on cyclic graphs with loaded links, costs equal a plain search; every path is a path."""
    chance = Random(seed)
    network = random_network(chance, extra=12)
    links = [(link.a, link.b) for link in network.links]
    steps = [chance.choice((0, 0, 0, 1, 2, ABSENT)) for _ in links]
    seen = map_at(chance.choice(network.brokers).address, links, steps)
    expected = settled_costs(seen)
    paths = cheapest_paths(seen)
    assert {unit: path.cost for unit, path in paths.items()} | {seen.host: 0} == expected
    for unit, path in paths.items():
        assert (path.units[0], path.units[-1]) == (seen.host, unit)
        assert path.hop == path.units[1]
        assert len(set(path.units)) == len(path.units), "no vertex twice"
        total = 0
        for near, far in zip(path.units, path.units[1:], strict=False):
            assert len(far) <= len(near), "seen from the unit it only comes down"
            total += seen.neighbours(near)[far].cost
        assert total == path.cost


def test_a_descent_into_another_unit_is_no_path() -> None:
    """SPR-01: b is not reached over SC-3, although both links work."""
    network = NetworkMap(HOST)
    network.apply(record(1, HOST, FAR))
    network.apply(record(2, CLUSTER, FAR))
    assert distances(network) == {HOST: (0, 0), FAR: (2, 1)}
    assert cheapest_paths(network) == {FAR: Path(2, (HOST, FAR))}


def test_a_circle_inside_a_cluster_costs_nothing_and_ends() -> None:
    """SPR-02, LCM-04: a ring of six zero-cost links; the shorter side is taken, a tie goes to the lower id."""
    ring = [(0, 0, 0, number) for number in range(6)]
    network = NetworkMap(HOST)
    for number in range(6):
        low, high = sorted((ring[number], ring[(number + 1) % 6]))
        network.apply(record(number, low, high))
    paths = cheapest_paths(network)
    assert {path.cost for path in paths.values()} == {0}
    assert paths[ring[2]].units == (ring[0], ring[1], ring[2])
    assert paths[ring[4]].units == (ring[0], ring[5], ring[4])
    assert paths[ring[3]].units == (ring[0], ring[1], ring[2], ring[3])


def tied_map(doubled: bool) -> NetworkMap:
    """Two routes of cost 4 to (0, 0, 3): over clusters 1 and 2, the second perhaps with a doubled last edge."""
    network = NetworkMap(HOST)
    network.apply(record(1, HOST, (0, 0, 1)))
    network.apply(record(2, HOST, (0, 0, 2)))
    network.apply(record(3, (0, 0, 1), (0, 0, 3)))
    network.apply(record(4, (0, 0, 2), (0, 0, 3)))
    if doubled:
        network.apply(record(5, (0, 0, 2), (0, 0, 3)))
    return network


def test_ties_go_to_the_larger_link_count_then_to_the_lowest_id() -> None:
    """LCM-04 (2), (4): the first edge seen from the target decides."""
    assert cheapest_paths(tied_map(doubled=False))[0, 0, 3] == Path(3, (HOST, (0, 0, 1), (0, 0, 3)))
    assert cheapest_paths(tied_map(doubled=True))[0, 0, 3] == Path(3, (HOST, (0, 0, 2), (0, 0, 3)))


def test_lower_cost_beats_a_larger_link_count() -> None:
    """LCM-04 (1): a doubled edge that is dearer is not taken."""
    network = tied_map(doubled=True)
    for number in (4, 5):
        network.apply(record(number, (0, 0, 2), (0, 0, 3), step=1))
    assert cheapest_paths(network)[0, 0, 3].units[1] == (0, 0, 1)


def test_fewer_hops_decide_when_counts_are_equal() -> None:
    """LCM-04 (3): to a cluster whose gate is next door, not through a third broker."""
    far, third = (0, 0, 0, 3), (0, 0, 0, 2)
    network = NetworkMap(HOST)
    for number, (low, high) in enumerate([(HOST, third), (third, NEAR), (HOST, far), (NEAR, CLUSTER), (far, CLUSTER)]):
        network.apply(record(number, *sorted((low, high), key=lambda unit: (unit[:3], unit))))
    path = cheapest_paths(network)[CLUSTER]
    assert path == Path(1, (HOST, far, CLUSTER)), "NEAR has the lower id, but is two hops away"
