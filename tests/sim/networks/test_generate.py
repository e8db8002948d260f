"""Generated networks: of the size asked for, whole, safe from single losses, and the same for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from veena.address import check_unit, link_level
from veena.errors import InvalidAddress
from veena.runtime.networks.file import articulation_brokers, dump_network, gatekeepers, parse_network, partitions
from veena.sim.networks.generate import DENSE, SPARSE, Shape, generate


@settings(max_examples=60)
@given(
    st.integers(1, 600),
    st.integers(0, 2**32),
    st.integers(2, 6),
    st.sampled_from([32, 64]),
    st.sampled_from([DENSE, SPARSE]),
)
@example(1, 0, 4, 32, DENSE)
@example(2, 0, 4, 32, DENSE)
@example(3, 0, 4, 32, SPARSE)
def test_a_generated_network_is_sound(brokers: int, seed: int, levels: int, fanout: int, shape: Shape) -> None:
    """TOP-03, TOP-04, TOP-07, NOP-19: every unit whole and within its fan-out, addresses unique, levels right."""
    network = generate(brokers, seed, levels, fanout, shape=shape)
    assert len({broker.address for broker in network.brokers}) == brokers
    for broker in network.brokers:
        check_unit(broker.address, fanout)
        assert network.labels.unit(broker.label) == broker.address
    assert all(link.level == link_level(link.a, link.b) for link in network.links)
    assert len({frozenset((link.a, link.b)) for link in network.links}) == len(network.links)
    assert partitions(network) == ()
    assert generate(brokers, seed, levels, fanout, shape=shape) == network


def test_another_seed_gives_another_network() -> None:
    assert generate(100, 1).links != generate(100, 2).links


def test_a_generated_network_is_written_and_read_back() -> None:
    network = generate(300, 9)
    assert parse_network(dump_network(network)) == network


@pytest.mark.parametrize("brokers", [27, 100, 500, 1500])
def test_no_single_broker_parts_a_generated_network(brokers: int) -> None:
    """TOP-16, TOP-19: every adjacency of units is two links at different brokers."""
    assert articulation_brokers(generate(brokers, 3)) == ()
    assert articulation_brokers(generate(brokers, 3, shape=SPARSE)) == ()


def test_an_adjacency_of_units_is_two_links() -> None:
    """What a broker hears of is bounded by the units of its map; long links add to it."""
    network = generate(1500, 3)
    joined: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for link in network.links:
        if link.level:
            size = network.levels - link.level
            joined[link.a[:size], link.b[:size]] = joined.get((link.a[:size], link.b[:size]), 0) + 1
    assert set(joined.values()) == {2}
    assert len(generate(1500, 3, long_links=0.06).links) > len(network.links)
    with pytest.raises(InvalidAddress, match="share from 0 to 1"):
        generate(10, 1, long_links=2.0)


def test_few_brokers_still_form_a_hierarchy() -> None:
    """TOP-02: from 27 brokers on there are gatekeepers of every level."""
    for brokers in (27, 81, 243):
        assert all(gatekeepers(generate(brokers, 1)).values())


def test_clusters_of_thousands_have_a_dozen_brokers_or_more() -> None:
    network = generate(5000, 1)
    clusters: dict[tuple[int, ...], int] = {}
    for broker in network.brokers:
        clusters[broker.address[:-1]] = clusters.get(broker.address[:-1], 0) + 1
    assert min(clusters.values()) >= 12 and max(clusters.values()) <= 20


def test_a_network_can_be_filled_to_the_last_place() -> None:
    """TOP-07, TOP-09: as many brokers as two levels of 32 hold, and not one more."""
    network = generate(32 * 32, 1, levels=2)
    assert {broker.address for broker in network.brokers} == {(a, b) for a in range(32) for b in range(32)}
    with pytest.raises(InvalidAddress, match="hold 1 to 1024"):
        generate(1025, 1, levels=2)


@pytest.mark.parametrize(
    ("brokers", "levels", "fanout", "cluster"),
    [(0, 4, 32, None), (5, 0, 32, None), (5, 9, 32, None), (5, 4, 31, None), (5, 4, 32, 33)],
)
def test_what_cannot_be_generated_is_refused(brokers: int, levels: int, fanout: int, cluster: int | None) -> None:
    with pytest.raises(InvalidAddress, match=r"expected|hold"):
        generate(brokers, 1, levels, fanout, cluster=cluster)


def test_the_size_of_clusters_and_the_name_can_be_chosen() -> None:
    network = generate(64, 1, name="mine", cluster=8)
    assert network.name == "mine"
    assert len({broker.address[:-1] for broker in network.brokers}) == 8


@pytest.mark.parametrize(("brokers", "links"), [(502, 892), (2912, 4970)])
def test_sparse_networks_are_like_those_that_the_bars_come_from(brokers: int, links: int) -> None:
    """EXP-22: rings of five or six with one chord, and about as many links."""
    network = generate(brokers, 1, shape=SPARSE)
    assert network.name == f"sparse-{brokers}-1"
    assert abs(len(network.links) - links) < 0.02 * links
    sizes = Counter(broker.address[:-1] for broker in network.brokers)
    inside = Counter(link.a[:-1] for link in network.links if link.level == 0)
    assert {(sizes[cluster], links) for cluster, links in inside.items()} <= {(5, 6), (6, 7)}
