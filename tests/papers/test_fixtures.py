"""The reconstructed networks: that they are what the papers' figures and texts say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from veena.runtime.networks.file import Network, gatekeepers, load_network
from veena.runtime.networks.statistics import clustering_coefficient, graph_of, pathlength, shortest_way

NETWORKS = Path(__file__).parent.parent.parent / "networks"


def _load(name: str) -> Network:
    return load_network(NETWORKS / f"{name}.toml", connected=True)


def _broker(network: Network, number: int) -> tuple[int, ...]:
    (found,) = (broker.address for broker in network.brokers if broker.label.endswith(f".{number}"))
    return found


def _way(network: Network, start: int, end: int) -> list[int]:
    way = shortest_way(network, _broker(network, start), _broker(network, end))
    return [int(network.labels.label(broker).rsplit(".", 1)[-1]) for broker in way]


def _links(network: Network, level: int) -> list[tuple[str, str]]:
    last = [
        tuple(sorted((network.labels.label(end).rsplit(".", 1)[-1] for end in (link.a, link.b)), key=int))
        for link in network.links
        if link.level == level
    ]
    return sorted((a, b) for a, b in last)


def test_fix_1_has_four_clusters_and_four_links_between_them() -> None:
    """FIX-1, TOP-06: A is linked with B, C and D, and B with C, each pair of gatekeepers its own."""
    network = _load("fix-1")
    ends = sorted(
        "".join(sorted(network.labels.label(end).split(".")[2] for end in (link.a, link.b)))
        for link in network.links
        if link.level == 1
    )
    assert ends == ["AB", "AC", "AD", "BC"]
    assert len(gatekeepers(network)[1]) == 8


def test_fix_3_and_ges_78_are_one_network() -> None:
    """FIX-3: 78 brokers and 108 links under two names."""
    one, other = _load("fix-3"), _load("ges-78")
    assert (one.brokers, one.links) == (other.brokers, other.links)
    assert (len(one.brokers), len(one.links)) == (78, 108)


def test_fix_4_has_the_contact_broker_and_room_for_the_unit() -> None:
    """FIX-4: SSC-B with SC-4 to SC-6, m and n in SC-6, contact n.21; SC-10 with v and w stands alone."""
    network, unit = _load("fix-4"), _load("fix-4-unit")
    supers = [network.labels.label(each) for each in network.labels.units() if len(each) == 2]
    assert supers == ["SSC-B.SC-4", "SSC-B.SC-5", "SSC-B.SC-6"]
    clusters = [network.labels.label(each) for each in network.labels.units() if len(each) == 3]
    assert [label for label in clusters if "SC-6" in label] == ["SSC-B.SC-6.m", "SSC-B.SC-6.n"]
    assert network.labels.unit("SSC-B.SC-6.n.21")
    assert unit.levels == 3
    assert [unit.labels.label(each) for each in unit.labels.units() if len(each) == 2] == ["SC-10.v", "SC-10.w"]
    assert unit.labels.unit("SC-10.v.23")


def test_fix_5_is_what_broker_6_sees() -> None:
    """FIX-5: the links of levels 1 to 3, with SSC-B and SSC-D joined twice; cluster c is a mesh of 4, 5 and 6."""
    network = _load("fix-5")
    assert _links(network, 1) == [("1", "8"), ("11", "14"), ("18", "20"), ("4", "7")]
    assert _links(network, 2) == [("13", "17"), ("5", "10"), ("9", "16")]
    tops = sorted(
        "".join(sorted(network.labels.label(end[:1])[-1] for end in (link.a, link.b)))
        for link in network.links
        if link.level == 3
    )
    assert tops == ["AB", "AB", "AC", "BD", "BD", "CD"]
    assert {("4", "5"), ("4", "6"), ("5", "6")} <= set(_links(network, 0))


def test_fix_5_joined_adds_one_broker_and_one_link() -> None:
    """FIX-5, GPP-15: SC-4 with broker 99 is linked to SSC-A.SC-1.c.6 at level 2; nothing else moves."""
    before, after = _load("fix-5"), _load("fix-5-joined")
    assert {broker.label for broker in after.brokers} - {broker.label for broker in before.brokers} == {
        "SSC-A.SC-4.x.99"
    }
    known = {broker.label: broker.address for broker in after.brokers}
    assert all(known[broker.label] == broker.address for broker in before.brokers)
    (new,) = set(after.links) - set(before.links)
    assert new.level == 2
    assert {new.a, new.b} == {known["SSC-A.SC-4.x.99"], known["SSC-A.SC-1.c.6"]}


def test_nine_brokers_from_22_to_10_in_the_first_test_network() -> None:
    """EXP-01, EXP-17, FIX-14: 22 brokers; the way passes nine, both ends counted."""
    network = _load("ges-22")
    assert (len(network.brokers), len(network.links)) == (22, 21)
    assert _way(network, 22, 10) == [22, 1, 2, 3, 4, 5, 7, 9, 10]


@pytest.mark.parametrize(("end", "hops"), [(10, 4), (1, 2), (22, 1)])
def test_four_brokers_at_most_in_the_second(end: int, hops: int) -> None:
    """EXP-18, FIX-20: to 10, 1 and 22 there are 4, 2 and 1 hops; 22, 1, 8, 10 is the way."""
    network = _load("ges-22-linked")
    way = _way(network, 22, end)
    assert len(way) == hops
    assert way == [*[22, 1, 8, 10][: hops - 1], end]


def test_both_named_links_matter() -> None:
    """EXP-18: with the link between super-clusters alone it is five brokers, with 8-10 alone still nine."""
    network = _load("ges-22")
    one, eight, ten = (_broker(network, number) for number in (1, 8, 10))
    linked = {frozenset((link.a, link.b)): link for link in _load("ges-22-linked").links}
    for ends, hops in ((frozenset((one, eight)), 5), (frozenset((eight, ten)), 9)):
        more = Network(
            network.name,
            network.levels,
            network.fanout,
            network.labels,
            network.brokers,
            (*network.links, linked[ends]),
        )
        assert len(_way(more, 22, 10)) == hops


def test_the_second_network_is_the_more_clannish_and_the_shorter() -> None:
    """EXP-20: clustering 0.0 and 0.674, pathlength 4.745 and 3.545."""
    first, second = graph_of(_load("ges-22")), graph_of(_load("ges-22-linked"))
    assert clustering_coefficient(first) == 0.0
    assert clustering_coefficient(second) == pytest.approx(0.674, abs=0.0005)
    assert pathlength(first) == pytest.approx(4.745, abs=0.0005)
    assert pathlength(second) == pytest.approx(3.545, abs=0.0005)


def test_the_second_network_holds_the_first() -> None:
    """FIX-20: ten links more, one of them of level 2 between SC-5 and SC-6."""
    first, second = _load("ges-22"), _load("ges-22-linked")
    new = set(second.links) - set(first.links)
    assert set(first.links) < set(second.links) and len(new) == 10
    assert sorted(link.level for link in new) == [0] * 9 + [2]
