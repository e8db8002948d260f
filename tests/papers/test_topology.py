"""Organisation as the papers describe it: units, contexts, gatekeepers, capacity, and their worked examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from veena.address import Labels, Unit, capacity, format_address, link_level, pack_words, parse_address, words
from veena.errors import ConfigError, InvalidAddress
from veena.runtime.networks.file import (
    Network,
    articulation_brokers,
    components,
    controllers,
    gatekeeper_record,
    gatekeepers,
    load_network,
    make_network,
    parse_network,
    partitions,
)
from veena.runtime.networks.statistics import graph_of, hops_from

NETWORKS = Path(__file__).parent.parent.parent / "networks"
FIXTURES = [
    "fix-1",
    "fix-2",
    "fix-3",
    "fix-4",
    "fix-4-unit",
    "fix-5",
    "fix-5-joined",
    "ges-22",
    "ges-22-linked",
    "ges-78",
]


def _load(name: str) -> Network:
    return load_network(NETWORKS / f"{name}.toml", connected=True)


def _named(network: Network, units: tuple[Unit, ...]) -> list[str]:
    return [network.labels.label(unit).rsplit(".", 1)[-1] for unit in units]


def _cut(network: Network, one: str, other: str) -> Network:
    """Without the links between two units."""
    a, b = network.labels.unit(one), network.labels.unit(other)

    def joins(ends: tuple[Unit, Unit]) -> bool:
        return {end[: len(a)] for end in ends} == {a, b}

    left = tuple(link for link in network.links if not joins((link.a, link.b)))
    assert len(left) < len(network.links)
    return replace(network, links=left)


def test_capacity() -> None:
    """TOP-08, TOP-09: 2^24 brokers with blocks of 64, 32^4 with blocks of 32, each addressed by 16 bytes."""
    assert capacity(64, top_level=3) == 2**24 == 16_777_216
    assert capacity(32, top_level=3) == 1_048_576
    assert len(pack_words(words((31, 31, 31, 31)))) == 16


def test_the_block_limit_is_a_setting() -> None:
    """TOP-07: 32 or 64 sub-units a unit, at every level; one more is refused with a clear error."""
    for fanout in (32, 64):
        for level in range(3):
            labels = Labels(3, fanout)
            paths = [".".join(str(number) if at == level else "u" for at in range(3)) for number in range(fanout + 1)]
            for path in paths[:fanout]:
                labels.add(path)
            with pytest.raises(InvalidAddress, match=f"holds {fanout} .* one too many"):
                labels.add(paths[fanout])


def test_contexts_nest_and_are_unique() -> None:
    """CTX-01, CTX-02: a unit's context is that of its enclosing unit and its own identifier: 4, 3, 2, 1 identifiers."""
    network = _load("fix-3")
    assert len({broker.address for broker in network.brokers}) == 78
    lengths = sorted({len(unit) for unit in network.labels.units()})
    assert lengths == [1, 2, 3, 4]
    for unit in network.labels.units():
        inner, outer = network.labels.label(unit), network.labels.label(unit[:-1]) if len(unit) > 1 else ""
        assert inner.startswith(outer) and inner.count(".") == len(unit) - 1


def test_addresses_read_like_those_of_the_internet() -> None:
    """CTX-04: D.C.B.a and SSC-A.SC-1.c.6 as labels, and their numbers, both ways."""
    labels = Labels()
    for path in ("D.C.B.a", "SSC-A.SC-1.c.6"):
        assert labels.label(labels.add(path)) == path
    assert format_address(parse_address("0.1.2.6", levels=4)) == "0.1.2.6"


@pytest.mark.parametrize(
    ("other", "level"),
    [("SSC-A.SC-1.c.6", 0), ("SSC-A.SC-1.b.7", 1), ("SSC-A.SC-2.d.10", 2), ("SSC-B.SC-5.h.22", 3)],
)
def test_the_highest_context_that_differs_is_the_level(other: str, level: int) -> None:
    """CTX-05, GKP-01: a link's level; both ends become gatekeepers of it."""
    network = _load("fix-5")
    a, b = network.labels.unit("SSC-A.SC-1.c.4"), network.labels.unit(other)
    assert link_level(a, b) == link_level(b, a) == level
    linked = make_network("two", [network.labels.label(a), other], [(network.labels.label(a), other)])
    assert len(gatekeepers(linked)[level]) == 2


def test_identifiers_repeat_in_other_units() -> None:
    """CTX-06: there is a broker 6 in c and one in i, with different addresses."""
    network = _load("fix-3")
    assert network.labels.unit("SSC-A.SC-1.c.6") != network.labels.unit("SSC-B.SC-4.i.6")


def test_one_link_joins_every_broker_of_two_clusters() -> None:
    """TOP-05: any broker of either cluster reaches any of the other over a single link."""
    network = _load("fix-4-unit")
    graph = graph_of(network)
    assert sum(link.level == 1 for link in network.links) == 1
    assert all(-1 not in hops_from(graph, vertex) for vertex in range(len(graph)))


def test_figure_one_of_the_ges_paper() -> None:
    """TOP-06, CTX-03: without A-D cluster D is cut off and reported; without A-B, B is reached through C."""
    network = _load("fix-1")
    assert len(components(network)) == 1
    isolated = _cut(network, "SSC-A.SC-1.A", "SSC-A.SC-1.D")
    (partition,) = partitions(isolated)
    assert [_named(isolated, part) for part in partition.parts] == [["A", "B", "C"], ["D"]]
    assert partitions(_cut(network, "SSC-A.SC-1.A", "SSC-A.SC-1.B")) == ()


def test_several_links_give_another_route() -> None:
    """TOP-16: one of the two links between m and n may go; both may not."""
    network = _load("fix-2")
    once = _cut(network, "SSC-A.SC-3.n.19", "SSC-A.SC-3.m.18")
    assert partitions(once) == ()
    assert partitions(_cut(once, "SSC-A.SC-3.n.20", "SSC-A.SC-3.m.17"))


@pytest.mark.parametrize("name", FIXTURES)
def test_every_unit_has_a_controller(name: str) -> None:
    """TOP-17: gatekeepers, or an elected broker where a unit has no gateway; always a broker of the unit."""
    network = _load(name)
    found = controllers(network)
    assert set(found) == {unit for unit in network.labels.units() if len(unit) < network.levels}
    for unit, brokers in found.items():
        assert brokers and all(broker[: len(unit)] == unit for broker in brokers)


def test_a_lone_cluster_elects_one_broker() -> None:
    """TOP-17, TOP-22: a cluster without gateways, and a single broker, are networks."""
    lone = make_network("lone", ["A.1", "A.2"], [("A.1", "A.2")], levels=2)
    assert controllers(lone) == {(0,): ((0, 0),)}
    single = make_network("single", ["A.1"], [], levels=2)
    assert controllers(single) == {(0,): ((0, 0),)} and partitions(single) == ()
    assert articulation_brokers(single) == ()


def test_the_articulation_report() -> None:
    """TOP-19: brokers whose failure would partition, in the whole and inside units."""
    network = _load("ges-22")
    found = {network.labels.label(each.broker).rsplit(".", 1)[-1]: each for each in articulation_brokers(network)}
    # The first test network is a tree: all but its leaves part it.
    leaves = {"22", "12", "14", "16", "18", "8", "21"}
    assert set(found) == {str(number) for number in range(1, 23)} - leaves
    assert all(each.whole for each in found.values())
    assert _named(network, found["9"].units) == ["SC-6", "m"]
    joined = {network.labels.label(each.broker) for each in articulation_brokers(_load("ges-22-linked"))}
    assert len(joined) < len(found)


def test_figure_one_of_the_naradabrokering_papers() -> None:
    """TOP-18, TOP-20: 1 and 10 are controllers of SSC-A, 16 of SC-3, 19 and 20 of cluster n."""
    network = _load("fix-2")
    found = {network.labels.label(unit): _named(network, brokers) for unit, brokers in controllers(network).items()}
    assert found["SSC-A"] == ["1", "10"]
    assert found["SSC-A.SC-3"] == ["16"]
    assert found["SSC-A.SC-3.n"] == ["19", "20"]
    inside = [broker for broker in network.brokers if broker.label.startswith("SSC-A.")]
    assert sorted(int(broker.label.rsplit(".", 1)[-1]) for broker in inside) == list(range(1, 22))


def test_broker_20_is_the_gateway_from_n_to_m() -> None:
    """GKP-07: without the second link every way from 21 to m goes through 20."""
    network = _cut(_load("fix-2"), "SSC-A.SC-3.n.19", "SSC-A.SC-3.m.18")
    gateway = network.labels.unit("SSC-A.SC-3.n.20")
    context = network.labels.unit("SSC-A.SC-3")
    record = gatekeeper_record(network, gateway, 1)
    assert record is not None and record.context == context
    assert _named(network, record.peers) == ["17"]
    assert context in next(each for each in articulation_brokers(network) if each.broker == gateway).units


def test_figure_three_of_the_ges_paper() -> None:
    """TOP-21, GKP-02: 78 brokers; 12, 18 (6, 4, 6, 2) and in SC-1 4 gatekeepers of levels 3, 2 and 1."""
    network = _load("fix-3")
    counts = {length: sum(len(unit) == length for unit in network.labels.units()) for length in (1, 2, 3, 4)}
    assert counts == {1: 4, 2: 11, 3: 26, 4: 78}
    found = gatekeepers(network)
    assert (len(found[0]), len(found[2]), len(found[3])) == (78, 18, 12)
    assert [sum(broker[0] == top for broker in found[2]) for top in range(4)] == [6, 4, 6, 2]
    first = network.labels.unit("SSC-A.SC-1")
    assert sum(broker[:2] == first for broker in found[1]) == 4
    above = [broker for level in (1, 2, 3) for broker in found[level]]
    assert len(set(above)) == len(above), "a broker is gatekeeper of one level above 0 only"


def test_the_record_of_a_gatekeeper() -> None:
    """GKP-04: broker 5 serves SSC-A and knows the gatekeeper of SC-2."""
    network = _load("fix-5")
    record = gatekeeper_record(network, network.labels.unit("SSC-A.SC-1.c.5"), 2)
    assert record is not None
    assert network.labels.label(record.context) == "SSC-A"
    assert [network.labels.label(peer) for peer in record.peers] == ["SSC-A.SC-2.d.10"]


def test_gatekeepers_come_and_go_with_their_links() -> None:
    """GKP-03, GKP-05: three levels at one broker; both records end with the last link."""
    names = ["X.a.1", "X.a.2", "X.b.3", "Y.c.4"]
    links = [("X.a.1", "X.a.2"), ("X.a.1", "X.b.3"), ("X.a.1", "Y.c.4")]
    network = make_network("levels", names, links, levels=3)
    one = network.labels.unit("X.a.1")
    assert [level for level, brokers in gatekeepers(network).items() if one in brokers] == [0, 1, 2]
    without = make_network("levels", names, links[:2], levels=3)
    assert [gatekeeper_record(without, without.labels.unit(name), 2) for name in ("X.a.1", "Y.c.4")] == [None, None]


def test_gateways_of_level_three_stand_in_clusters_a_and_g() -> None:
    """GPP-18: the links from SSC-A to other super-super-clusters are in a (SC-1), g (SC-3) and e (SC-2)."""
    network = _load("fix-5")
    inside = [network.labels.label(broker) for broker in gatekeepers(network)[3] if broker[0] == 0]
    assert {label.split(".")[2] for label in inside} == {"a", "e", "g"}


def test_a_validator_refuses_what_is_not_connected() -> None:
    """TOP-03, TOP-04: a cluster in pieces, and a cluster without a way to its super-cluster."""
    loose = _cut(_load("fix-1"), "SSC-A.SC-1.A", "SSC-A.SC-1.D")
    assert [loose.labels.label(partition.context) for partition in partitions(loose)] == ["SSC-A.SC-1"]
    with pytest.raises(ConfigError, match="there is none"):
        parse_network("[network]\nlevels = 4")
