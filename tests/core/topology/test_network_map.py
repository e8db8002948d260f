"""The broker network map: vertices, edges and what is in reach."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.small_networks import map_at, random_network
from veena.address import Address, Unit, contains
from veena.core.boundary.inputs_effects import Effect, Input, Reachable, Unreachable
from veena.core.boundary.settings import SECOND_NS
from veena.core.broker import Broker
from veena.core.topology.connection import ABSENT, NO_COST
from veena.core.topology.network_map import EdgeView, NetworkMap
from veena.core.wire.control import ConnectionRecord
from veena.runtime.networks.file import load_network
from veena.sim.world.map_view import converged
from veena.sim.world.options import Options
from veena.sim.world.world import World

NETWORKS = Path(__file__).parents[3] / "networks"
HOST: Address = (0, 0, 0, 0)
NEAR, CLUSTER, FAR = (0, 0, 0, 1), (0, 0, 1), (0, 1)


def record(number: int, low: Unit, high: Unit, *, up: bool = True, step: int = 0) -> ConnectionRecord:
    level = 4 - min(len(low), len(high))
    return ConnectionRecord(number, level, low, high, up, NO_COST, (1, step) if step else NO_COST)


def test_a_map_begins_with_its_broker() -> None:
    """BNM-04, TOP-22: one broker alone has a map, with itself in it."""
    network = NetworkMap(HOST)
    network.check()
    assert (network.vertices(), network.edges(), network.siblings(0)) == ([HOST], [], [HOST])
    assert [network.own(level) for level in range(4)] == [HOST, (0, 0, 0), (0, 0), (0,)]


def lower_links(network: NetworkMap, unit: Unit) -> list[Unit]:
    """L_UL: neighbours of the same or a lower level."""
    return sorted(other for other in network.neighbours(unit) if len(other) >= len(unit))


def higher_links(network: NetworkMap, unit: Unit) -> list[Unit]:
    """L_D: neighbours of a higher level."""
    return sorted(other for other in network.neighbours(unit) if len(other) < len(unit))


def test_links_are_sorted_by_direction() -> None:
    """BNM-05, BNM-06: the same or a lower level in L_UL, a higher one in L_D; equals in each other's L_UL."""
    network = NetworkMap(HOST)
    for number, (low, high) in enumerate([(HOST, NEAR), (HOST, CLUSTER), (CLUSTER, (0, 0, 2)), (CLUSTER, FAR)]):
        assert network.apply(record(number, low, high)) == 4 - len(high)
    assert lower_links(network, CLUSTER) == [HOST, (0, 0, 2)]
    assert higher_links(network, CLUSTER) == [FAR]
    assert lower_links(network, (0, 0, 2)) == [CLUSTER]
    assert higher_links(network, (0, 0, 2)) == []
    assert higher_links(network, HOST) == [CLUSTER]
    assert lower_links(network, FAR) == [CLUSTER]
    network.check()


def test_a_vertex_is_a_unit_and_its_level() -> None:
    """GPP-04: cluster 2 and super-cluster 2 are two vertices, each with its own cost."""
    network = NetworkMap(HOST)
    network.apply(record(1, HOST, (0, 0, 2)))
    network.apply(record(2, HOST, (0, 2)))
    assert network.edges() == [EdgeView(HOST, (0, 0, 2), 1, 1, 1), EdgeView(HOST, (0, 2), 2, 2, 1)]


def test_weights_are_the_matrix_plus_the_lightest_step() -> None:
    """BNM-07, LCM-03, GPP-11: (x, y) of the matrix; of parallel connections the least loaded counts."""
    network = NetworkMap(HOST)
    network.apply(record(1, HOST, CLUSTER, step=2))
    assert network.edges() == [EdgeView(HOST, CLUSTER, 1, 17, 1)]
    network.apply(record(2, HOST, CLUSTER, step=1))
    assert network.edges() == [EdgeView(HOST, CLUSTER, 1, 5, 2)]
    network.apply(record(2, HOST, CLUSTER))
    assert network.edges() == [EdgeView(HOST, CLUSTER, 1, 1, 2)]
    network.check()


def test_an_absent_connection_is_no_part_of_an_edge() -> None:
    """SPR-08, BNM-10: suspected or clogged, it vanishes; cleared, it is back."""
    network = NetworkMap(HOST)
    network.apply(record(1, HOST, NEAR))
    network.apply(record(2, HOST, NEAR))
    network.apply(record(1, HOST, NEAR, step=ABSENT))
    assert network.edges() == [EdgeView(HOST, NEAR, 0, 0, 1)]
    network.apply(record(2, HOST, NEAR, step=ABSENT))
    assert network.vertices() == [HOST]
    network.apply(record(2, HOST, NEAR))
    assert network.edges() == [EdgeView(HOST, NEAR, 0, 0, 1)]
    network.check()


def test_only_a_change_of_the_map_is_reported() -> None:
    """GPP-10: a repeat, a detour copy, the end of what was never placed: no level, no new version."""
    network = NetworkMap(HOST)
    assert network.apply(record(1, HOST, CLUSTER)) == 1
    version = network.version
    assert network.apply(record(1, HOST, CLUSTER)) is None
    assert network.apply(record(2, (0, 0, 0), CLUSTER)) is None
    assert network.apply(record(3, NEAR, CLUSTER, up=False)) is None
    assert network.forget(99) is None
    assert network.version == version
    assert network.edges() == [EdgeView(HOST, CLUSTER, 1, 1, 1)]
    assert network.apply(record(1, HOST, CLUSTER, step=1)) == 1
    assert network.forget(1) == 1
    assert network.version == version + 2
    network.check()


def test_finer_names_move_a_connection() -> None:
    """GPP-19: when the finer copy comes, the edge stands where it belongs and nowhere else."""
    network = NetworkMap(HOST)
    network.apply(record(1, HOST, NEAR))
    network.apply(record(2, (0, 0, 2), FAR))
    network.apply(record(3, NEAR, (0, 0, 2)))
    assert network.apply(record(2, NEAR, FAR)) == 2
    assert [(edge.a, edge.b) for edge in network.edges() if edge.level == 2] == [(NEAR, FAR)]
    network.check()


def test_what_cannot_be_reached_is_not_shown() -> None:
    """BNM-10, SPR-01: an island, and a vertex that only a climb and a descent would reach."""
    network = NetworkMap(HOST)
    network.apply(record(1, (0, 0, 1), (0, 0, 2)))
    assert (network.vertices(), network.edges()) == ([HOST], [])
    network.apply(record(2, HOST, FAR))
    network.apply(record(3, (0, 0, 1), FAR))
    assert network.vertices() == [HOST, FAR]
    assert network.edges() == [EdgeView(HOST, FAR, 2, 2, 1)]


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_taking_everything_away_leaves_nothing(seed: int) -> None:
    """BNM-10: after every connection is gone, in any order, the host stands alone."""
    chance = Random(seed)
    network = random_network(chance)
    links = [(link.a, link.b) for link in network.links]
    seen = map_at(chance.choice(network.brokers).address, links)
    for number in chance.sample(range(len(links)), len(links)):
        seen.forget(number)
        seen.check()
    assert (seen.vertices(), seen.edges()) == ([seen.host], [])


def expected_size(host: Address, brokers: list[Address]) -> int:
    """Brokers of the cluster, other clusters, other super-clusters and so on."""
    return len({broker[: size + 1] for broker in brokers for size in range(4) if broker[:size] == host[:size]}) - 3


@pytest.mark.parametrize("seed", range(8))
def test_maps_are_small_and_agree(seed: int) -> None:
    """BNM-01, BNM-02, GPP-13, GPP-20: built by messages; all brokers of a context see the same links of its level."""
    network = random_network(Random(seed))
    world = converged(network, seed)
    views: dict[Unit, Counter[tuple[Unit, Unit]]] = {}
    for broker in world.live():
        host = broker.identity.address
        assert len(broker.map.vertices()) == expected_size(host, list(world.nodes))
        for level in range(4):
            links: Counter[tuple[Unit, Unit]] = Counter()
            for edge in broker.map.edges():
                assert edge.level >= broker.map.level(max(edge.a, edge.b, key=len))
                if edge.level == level:
                    ends = sorted(unit[: 4 - level] for unit in (edge.a, edge.b))
                    links[ends[0], ends[1]] += edge.links
            context = host[: 3 - level]
            assert views.setdefault(context, links) == links, "one context, one view"
    assert world.wrong_maps() == []


class Witness(Broker):
    """A broker that remembers which units it lost and found."""

    def handle(self, given: Input, now_ns: int) -> list[Effect]:
        effects = super().handle(given, now_ns)
        self.__dict__.setdefault("seen", []).extend(e for e in effects if isinstance(e, Reachable | Unreachable))
        return effects

    def forget(self) -> None:
        self.__dict__["seen"] = []

    def reported(self) -> list[Effect]:
        return list(self.__dict__.get("seen", []))


def fix_1() -> tuple[World, dict[str, Unit]]:
    network = load_network(NETWORKS / "fix-1.toml", connected=True)
    world = World(network, 1, Options(wire=False, check=False), make_broker=Witness)
    world.run_until(5 * SECOND_NS)
    return world, {name: network.labels.unit(f"SSC-A.SC-1.{name}") for name in "ABCD"}


def cut(world: World, one: Unit, other: Unit) -> dict[Unit, list[Effect]]:
    """What the brokers of each cluster report, all the same, when the link between two clusters goes."""
    for broker in world.live():
        assert isinstance(broker, Witness)
        broker.forget()
    link = next(link for link in world.links if {link.a[:3], link.b[:3]} == {one, other})
    world.cut(link, silent=False)
    world.run_until(world.now_ns + SECOND_NS)
    found: dict[Unit, list[Effect]] = {}
    for broker in world.live():
        assert isinstance(broker, Witness)
        assert found.setdefault(broker.identity.address[:3], broker.reported()) == broker.reported()
    return found


@pytest.mark.replaces
def test_a_broker_reports_what_came_into_reach() -> None:
    """BNM-12: each unit once, when it is first reached."""
    world, units = fix_1()
    broker = world.broker((*units["D"], 0))
    assert isinstance(broker, Witness)
    reported = broker.reported()
    assert all(isinstance(effect, Reachable) for effect in reported)
    expected = [(*units["D"], 1), (*units["D"], 2), *(units[name] for name in "ABC")]
    assert sorted(effect.unit for effect in reported if isinstance(effect, Reachable)) == sorted(expected)


@pytest.mark.replaces
def test_the_only_link_of_a_cluster_is_cut() -> None:
    """TOP-05, TOP-06, BNM-12, CTX-03: without A-D, D is cut off, and both sides say so."""
    world, units = fix_1()
    assert all(set(units.values()) <= {broker.identity.address[:3], *broker.map.vertices()} for broker in world.live())
    reports = cut(world, units["A"], units["D"])
    for name in "ABC":
        assert reports[units[name]] == [Unreachable(units["D"])]
    assert sorted(e.unit for e in reports[units["D"]] if isinstance(e, Unreachable)) == [units[n] for n in "ABC"]
    assert len(reports[units["D"]]) == 3
    assert all(contains(units["D"], unit) for unit in world.broker((*units["D"], 0)).map.vertices())
    link = next(link for link in world.links if link.cut)
    world.heal(link)
    world.run_until(world.now_ns + SECOND_NS)
    witness = world.broker((*units["B"], 0))
    assert isinstance(witness, Witness)
    assert witness.reported() == [Unreachable(units["D"]), Reachable(units["D"])]


@pytest.mark.replaces
def test_a_cluster_with_another_way_stays_in_reach() -> None:
    """TOP-06, TOP-16, BNM-12: without A-B, B is reached through C; nobody reports a partition."""
    world, units = fix_1()
    reports = cut(world, units["A"], units["B"])
    assert all(effects == [] for effects in reports.values())
    one = world.broker((*units["A"], 0))
    hop = one.hops.hop(units["B"])
    assert hop is not None
    assert hop.neighbour == (*units["A"], 1), "the broker of A with the link to C"
