"""Routes in the papers' networks, and the nine brokers where cheapest paths decided anew go in a circle."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest

from tests.core.small_networks import follow, hops_at, map_at, pairs, random_network
from veena.address import Address, Unit, contains
from veena.core.boundary.inputs_effects import LinkLoad
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.broker import Broker
from veena.core.links.link import LinkState
from veena.core.topology.connection import ABSENT, step
from veena.core.topology.paths import cheapest_paths
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.runs.run import wrong_hops
from veena.sim.world.map_view import converged
from veena.sim.world.network import VirtualLink
from veena.sim.world.options import Options
from veena.sim.world.world import World

NETWORKS = Path(__file__).parents[2] / "networks"
FILES = sorted(NETWORKS.glob("*.toml"))


def nine_brokers() -> Network:
    """Two chains of four one-broker clusters side by side, joined at one end, and a third unit at the other."""
    chain_1 = [f"S.SC-1.c{number}.1" for number in range(1, 5)]
    chain_2 = [f"S.SC-2.d{number}.1" for number in range(1, 5)]
    end = "S.SC-3.e1.1"
    links = [*itertools.pairwise(chain_1), *itertools.pairwise(chain_2)]
    links += [(chain_1[0], chain_2[0]), (chain_1[3], end), (chain_2[3], end)]
    return make_network("nine", [*chain_1, *chain_2, end], links)


def test_cheapest_paths_decided_anew_go_in_a_circle() -> None:
    """SPR-09: at c1 the way through SC-2 looks cheaper (6 against 8), at d1 the way through SC-1 does."""
    network = nine_brokers()
    unit = network.labels.unit
    links = pairs(network)
    target, at = unit("S.SC-3"), unit("S.SC-1.c1.1")
    way = [at]
    while not contains(target, at) and way.count(at) < 2:
        path = cheapest_paths(map_at(at, links))[target]
        assert path.cost == 6
        at = next(b if a == at else a for a, b in links if at in (a, b) and contains(path.hop, b if a == at else a))
        way.append(at)
    assert [network.labels.label(broker) for broker in way] == ["S.SC-1.c1.1", "S.SC-2.d1.1", "S.SC-1.c1.1"]


def test_hops_level_by_level_do_not() -> None:
    """SPR-04, SPR-09: each broker stays in its own super-cluster, whose link to SC-3 is one step away at that level."""
    network = nine_brokers()
    hops = {entry.address: hops_at(entry.address, pairs(network)) for entry in network.brokers}
    for name in ("SC-1.c", "SC-2.d"):
        way = follow(hops, network.labels.unit(f"S.{name}1.1"), network.labels.unit("S.SC-3"))
        labels = [network.labels.label(broker) for broker in way]
        assert labels == [*(f"S.{name}{number}.1" for number in range(1, 5)), "S.SC-3.e1.1"]
    assert wrong_hops(converged(network)) == []


def test_the_way_from_22_to_10() -> None:
    """EXP-18: with the link between SC-5 and SC-6 it takes four brokers."""
    network = load_network(NETWORKS / "ges-22-linked.toml")
    world = converged(network)
    hops = {broker.identity.address: broker.hops for broker in world.live()}
    way = follow(hops, network.labels.unit("SSC-B.SC-5.h.22"), network.labels.unit("SSC-B.SC-6.m.10"))
    assert [network.labels.label(broker).rsplit(".", 1)[-1] for broker in way] == ["22", "1", "8", "10"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_pair_of_every_network_file(path: Path) -> None:
    """SPR-10, TOP-05: from messages alone, the next hops lead from every broker to every other one."""
    network = load_network(path)
    hops = {broker.identity.address: broker.hops for broker in converged(network).live()}
    lost = [(a, b) for a in hops for b in hops if a != b and follow(hops, a, b)[-1] != b]
    assert lost == []


@pytest.mark.parametrize("seed", range(6))
def test_every_pair_of_a_cyclic_network_by_messages(seed: int) -> None:
    """SPR-09, GPP-20: the same on networks that nobody drew with care."""
    network = random_network(Random(1000 + seed), extra=12)
    hops = {broker.identity.address: broker.hops for broker in converged(network, seed).live()}
    assert [(a, b) for a in hops for b in hops if a != b and follow(hops, a, b)[-1] != b] == []


# --- what changes a route, in the worked example ---


@pytest.fixture
def fix5() -> tuple[World, dict[str, Unit]]:
    network = load_network(NETWORKS / "fix-5.toml", connected=True)
    world = World(network, 1, Options(wire=False, check=False, ordered=False))
    world.run_until(5 * SECOND_NS)
    names = {network.labels.label(unit).rsplit(".", 1)[-1]: unit for unit in network.labels.units()}
    return world, names


def link_between(world: World, one: Unit, other: Unit) -> VirtualLink:
    return next(
        link
        for link in world.links
        if (contains(one, link.a) and contains(other, link.b)) or (contains(one, link.b) and contains(other, link.a))
    )


def neighbour(broker: Broker, unit: Unit) -> Address | None:
    hop = broker.hops.hop(unit)
    return None if hop is None else hop.neighbour


def test_a_level_2_change_keeps_lower_entries(fix5: tuple[World, dict[str, Unit]]) -> None:
    """SPR-06: at 6, the loss of 5-SC-2 has levels 2 and 3 computed again, levels 0 and 1 not."""
    world, names = fix5
    six = world.broker(names["6"])
    low = [names[name] for name in ("4", "5", "a", "b")]
    high = [names[name] for name in ("SC-2", "SC-3", "SSC-B", "SSC-C", "SSC-D")]
    kept = [six.hops.hop(unit) for unit in low]
    for unit in high:
        six.hops.hop(unit)
    computed = six.hops.recomputed
    world.cut(link_between(world, names["5"], names["SC-2"]), silent=False)
    world.run_until(world.now_ns + SECOND_NS)
    again = [six.hops.hop(unit) for unit in low]
    assert all(one is other for one, other in zip(again, kept, strict=True))
    assert six.hops.recomputed == computed
    assert [neighbour(six, unit) for unit in high] == [names["4"]] * 5, "SC-2 is reached over b and SC-3 now"
    assert six.hops.recomputed == computed + len(high)


def test_a_suspected_link_is_in_no_path_until_cleared(fix5: tuple[World, dict[str, Unit]]) -> None:
    """SPR-08, FLT-02: 4-b falls silent, routes over it vanish; heard again, they return over the same connection."""
    world, names = fix5
    six, link = world.broker(names["6"]), link_between(world, names["4"], names["b"])
    before = {name: six.hops.hop(names[name]) for name in ("a", "b", "SC-3", "SSC-B", "SSC-C")}
    session = link.session
    world.cut(link, silent=True)
    world.run_until(world.now_ns + 4500 * MILLISECOND_NS)
    suspected = [s for s in world.broker(names["4"]).statistics().links if s.state is LinkState.SUSPECTED]
    assert len(suspected) == 1
    assert six.hops.hop(names["a"]) is None
    assert six.hops.hop(names["b"]) is None
    for name in ("SC-3", "SSC-B", "SSC-C"):
        assert neighbour(six, names[name]) == names["5"], "over SC-2"
    assert names["b"] not in cheapest_paths(six.map)
    world.heal(link)
    world.run_until(world.now_ns + 2 * SECOND_NS)
    assert {name: six.hops.hop(names[name]) for name in before} == before
    assert link.session is session, "no new connection was needed"


def square() -> tuple[World, list[Address]]:
    """A square: from 0 to 3 over 1 or over 2; the lower id is preferred."""
    labels = [f"S.C.c.{number}" for number in range(4)]
    joined = [(labels[a], labels[b]) for a, b in ((0, 1), (1, 3), (0, 2), (2, 3))]
    world = World(make_network("square", labels, joined), 1, Options())
    world.run_until(8 * SECOND_NS)
    return world, list(world.nodes)


def test_a_failed_link_is_avoided() -> None:
    """SPR-11, TOP-16."""
    world, brokers = square()
    zero = world.broker(brokers[0])
    assert neighbour(zero, brokers[3]) == brokers[1]
    world.cut(link_between(world, brokers[1], brokers[3]), silent=False)
    world.run_until(world.now_ns + SECOND_NS)
    assert neighbour(zero, brokers[3]) == brokers[2]


def test_a_clogged_link_is_avoided_while_there_is_another() -> None:
    """SPR-11, LCM-03, BNM-09: at the next load check; without another way it is used nevertheless."""
    world, brokers = square()
    zero, link = world.broker(brokers[0]), link_between(world, brokers[1], brokers[3])
    assert link.session is not None
    for end, handle in link.session.handles.items():
        world.give(end, LinkLoad(handle, 0.95))
    world.run_until(world.now_ns + 6 * SECOND_NS)
    assert neighbour(zero, brokers[3]) == brokers[2]
    world.cut(link_between(world, brokers[2], brokers[3]), silent=False)
    world.run_until(world.now_ns + SECOND_NS)
    assert neighbour(zero, brokers[3]) == brokers[1]


def test_a_slow_node_is_avoided() -> None:
    """SPR-11, FLT-03: 1 speaks, but answers too late: its links are announced as absent, not as closed."""
    world, brokers = square()
    zero = world.broker(brokers[0])
    for link in world.links_of(brokers[1]):
        link.delay_ns = 3300 * MILLISECOND_NS
    world.run_until(world.now_ns + 5500 * MILLISECOND_NS)
    assert neighbour(zero, brokers[3]) == brokers[2]
    known = [record for record in zero.table.everything() if record.high == brokers[1] and record.low == brokers[0]]
    assert [(record.up, step(record)) for record in known] == [(True, ABSENT)]
