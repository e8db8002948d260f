"""Next hops level by level: every way arrives, alternates never come back, the cache forgets what it must."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.small_networks import Pair, follow, hops_at, map_at, opened, pairs, random_network, record_at
from tests.core.topology.test_network_map import FAR, HOST, NEAR, record
from veena.address import Address, Unit
from veena.core.topology.network_map import NetworkMap
from veena.core.topology.next_hops import Hop, Hops

THIRD: Address = (0, 0, 0, 2)


def drawn(seed: int, *, loaded: bool) -> tuple[list[Address], list[Pair], dict[Address, Hops]]:
    chance = Random(seed)
    network = random_network(chance, extra=10)
    links = pairs(network)
    steps = [chance.choice((0, 0, 1, 2)) if loaded else 0 for _ in links]
    brokers = [entry.address for entry in network.brokers]
    return brokers, links, {broker: hops_at(broker, links, steps) for broker in brokers}


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.booleans())
def test_every_way_arrives(seed: int, loaded: bool) -> None:
    """SPR-04, SPR-09, SPR-10: all pairs, on cyclic networks with random loads, every broker entered at most once."""
    brokers, links, hops = drawn(seed, loaded=loaded)
    known = {frozenset(pair) for pair in links}
    for start in brokers:
        for end in brokers:
            if start != end:
                way = follow(hops, start, end)
                assert way[-1] == end, f"{start} to {end}: {way}"
                assert all(frozenset(step) in known for step in pairwise(way))


def test_an_alternate_never_brings_it_back() -> None:
    """SPR-11: from an alternate neighbour the usual next hops lead to the unit, and not through the host (RFC 5286)."""
    alternates = 0

    @settings(max_examples=60)
    @given(st.integers(0, 10**6), st.booleans())
    def none_leads_back(seed: int, loaded: bool) -> None:
        nonlocal alternates
        brokers, links, hops = drawn(seed, loaded=loaded)
        for host in brokers:
            for unit in map_at(host, links).vertices():
                if unit == host:
                    continue
                found = hops[host].alternates(unit)
                assert hops[host].hop(unit) not in found
                assert len(set(found)) == len(found)
                for hop in found:
                    way = follow(hops, hop.neighbour, unit)
                    assert way[-1][: len(unit)] == unit
                    assert host not in way, f"{host} to {unit} over {hop.neighbour}: {way}"
                alternates += len(found)

    none_leads_back()
    assert alternates > 100, "hardly any unit has an alternate hop in these networks: the test shows nothing"


def ring(size: int) -> dict[Address, Hops]:
    brokers: list[Address] = [(0, 0, 0, number) for number in range(size)]
    links = [(brokers[at], brokers[(at + 1) % size]) for at in range(size)]
    return {broker: hops_at(broker, links) for broker in brokers}


def test_alternates_in_rings() -> None:
    """RFC 5286: in a triangle each stands in for the other; in a square only towards the opposite corner."""
    triangle, square = ring(3), ring(4)
    assert [hop.neighbour for hop in triangle[HOST].alternates(NEAR)] == [THIRD]
    assert square[HOST].alternates(NEAR) == [], "the other neighbour is no nearer to it without us"
    assert [hop.neighbour for hop in square[HOST].alternates(THIRD)] == [(0, 0, 0, 3)]


def test_no_alternate_without_a_way() -> None:
    hops = hops_at(HOST, [(HOST, NEAR)])
    assert hops.alternates(NEAR) == []
    assert hops.hop(THIRD) is None
    assert hops.alternates(THIRD) == []


def test_a_hop_is_a_connection() -> None:
    """Rule 5: the same neighbour over a new connection is another hop; of parallel ones the least loaded is taken."""
    network = NetworkMap(HOST)
    hops = Hops(network)
    for number, load in ((8, 1), (9, 0)):
        hops.open(number, NEAR)
        network.apply(record(number, HOST, NEAR, step=load))
    hops.invalidate(0)
    assert hops.hop(NEAR) == Hop(NEAR, NEAR, 9)
    network.apply(record(9, HOST, NEAR, up=False))
    hops.close(9)
    hops.invalidate(0)
    assert hops.hop(NEAR) == Hop(NEAR, NEAR, 8)
    assert Hop(NEAR, NEAR, 9) != Hop(NEAR, NEAR, 8)


def test_a_link_that_is_not_open_is_no_hop() -> None:
    """A connection at the host that others tell of is no way out before its own link is there."""
    network = NetworkMap(HOST)
    network.apply(record(1, HOST, NEAR))
    hops = Hops(network)
    assert hops.hop(NEAR) is None
    hops.open(1, NEAR)
    hops.invalidate(0)
    assert hops.hop(NEAR) == Hop(NEAR, NEAR, 1)


def test_the_hop_at_a_gateway_is_the_unit_beyond() -> None:
    """SPR-05: the vertex is the far unit, the neighbour the broker that the link leads to."""
    links: list[Pair] = [(HOST, (0, 1, 4, 5))]
    assert hops_at(HOST, links).hop(FAR) == Hop(FAR, (0, 1, 4, 5), 0)


def test_cost_comes_before_length_and_length_before_ids() -> None:
    """Rule 2: paths are ordered by announced cost, then edges, then ids."""
    square: list[Pair] = [(HOST, NEAR), (NEAR, (0, 0, 0, 3)), (HOST, THIRD), (THIRD, (0, 0, 0, 3))]
    end: Unit = (0, 0, 0, 3)

    def neighbour(links: list[Pair], steps: tuple[int, ...]) -> Address | None:
        hop = hops_at(HOST, links, steps).hop(end)
        return None if hop is None else hop.neighbour

    assert neighbour(square, (0, 0, 0, 0)) == NEAR
    assert neighbour(square, (0, 1, 0, 0)) == THIRD
    assert neighbour(square, (1, 1, 2, 0)) == NEAR
    assert neighbour([*square, (HOST, end)], (0, 0, 0, 0, 0)) == end
    assert neighbour([*square, (HOST, end)], (0, 0, 0, 0, 1)) == NEAR


LEVELLED: list[Pair] = [
    (HOST, NEAR), (HOST, (0, 0, 1, 0)), (NEAR, (0, 0, 2, 0)), ((0, 0, 1, 1), (0, 0, 2, 1)),
    (NEAR, (0, 1, 0, 0)), ((0, 0, 1, 0), (0, 2, 0, 0)), (HOST, (1, 0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("level", range(4))
def test_a_change_drops_its_own_level_and_above(level: int) -> None:
    """SPR-06: entries for units below the level of the change are not computed again."""
    hops = hops_at(HOST, LEVELLED)
    units = [unit for unit in map_at(HOST, LEVELLED).vertices() if unit != HOST]
    assert [4 - len(unit) for unit in units] == [0, 1, 1, 2, 2, 3]
    before = [hops.hop(unit) for unit in units]
    assert hops.statistics().recomputed == 6
    hops.invalidate(level)
    kept = sum(4 - len(unit) < level for unit in units)
    assert hops.statistics().cached == kept
    assert [hops.hop(unit) for unit in units] == before
    assert hops.statistics().recomputed == 6 + 6 - kept
    assert [hops.hop(unit) for unit in units] == before
    assert hops.statistics().recomputed == 12 - kept


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_what_the_cache_keeps_is_still_right(seed: int) -> None:
    """SPR-06: after random changes, invalidated by level, every hop equals one computed from nothing."""
    chance = Random(seed)
    network = random_network(chance)
    links = pairs(network)
    host = chance.choice(network.brokers).address
    steps = [0] * len(links)
    seen = map_at(host, links)
    hops = opened(seen, links)
    units = [unit for unit in seen.vertices() if unit != host]
    for _ in range(6):
        for unit in units:
            hops.hop(unit)
        number = chance.randrange(len(links))
        steps[number] = chance.choice([step for step in range(4) if step != steps[number]])
        told = record_at(host, number, links[number], steps[number])
        level = None if told is None else seen.apply(told)
        if level is not None:
            hops.invalidate(level)
        fresh = hops_at(host, links, steps)
        assert [hops.hop(unit) for unit in units] == [fresh.hop(unit) for unit in units]


def test_a_cluster_between_costs_what_its_level_says() -> None:
    """Rule 2, LCM-02: two idle links between clusters are dearer than one, and cheaper than one that is loaded."""
    links: list[Pair] = [(HOST, (0, 0, 1, 0)), ((0, 0, 1, 0), (0, 0, 2, 0)), (NEAR, (0, 0, 2, 0)), (HOST, NEAR)]

    def neighbour(step: int) -> Address:
        hop = hops_at(HOST, links, (0, 0, step, 0)).hop((0, 0, 2))
        assert hop is not None
        return hop.neighbour

    assert [neighbour(step) for step in range(3)] == [NEAR, (0, 0, 1, 0), (0, 0, 1, 0)]


def test_a_long_way_round_is_dearer_than_a_little_load() -> None:
    """Rule 2, LCM-02: four links between clusters cost 8, a loaded one 6; inside a cluster the way round is free."""
    clusters: list[Address] = [(0, 0, number, 0) for number in range(5)]
    brokers: list[Address] = [(0, 0, 0, number) for number in range(5)]

    def neighbour(ring: list[Address], unit: Unit, step: int) -> Address:
        links = [(ring[0], ring[4]), *pairwise(ring)]
        hop = hops_at(HOST, links, (step, 0, 0, 0, 0)).hop(unit)
        assert hop is not None
        return hop.neighbour

    assert [neighbour(clusters, (0, 0, 4), step) for step in range(3)] == [clusters[4], clusters[4], clusters[1]]
    assert [neighbour(brokers, brokers[4], step) for step in range(3)] == [brokers[4], brokers[1], brokers[1]]
