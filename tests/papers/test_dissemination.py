"""Who hears of a change: the brokers whose view it alters, and nobody else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiers import few
from veena.address import Address, Unit, contains
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.control import Connections
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.networks.generate import generate
from veena.sim.world.map_view import converged
from veena.sim.world.network import Delivery, VirtualLink
from veena.sim.world.options import Options
from veena.sim.world.world import World

NETWORKS = Path(__file__).parents[2] / "networks"


def listeners(world: World, change: Callable[[], None]) -> set[Address]:
    """The brokers to which a connection record is delivered because of a change, until all is quiet again."""
    heard: set[Address] = set()

    def listen(delivery: Delivery) -> None:
        if any(isinstance(frame, Connections) and frame.records for _, frame in delivery.frames):
            heard.add(delivery.to)

    world.on_delivery = listen
    change()
    assert world.run_until_quiet(world.now_ns + 100 * SECOND_NS)
    world.on_delivery = None
    return heard


def level_of(world: World, link: VirtualLink) -> int:
    shared = next(at for at, (x, y) in enumerate(zip(link.a, link.b, strict=True)) if x != y)
    return world.network.levels - 1 - shared


def link_of(world: World, network: Network, one: str, other: str) -> VirtualLink:
    a, b = network.labels.unit(one), network.labels.unit(other)
    return next(
        link for link in world.links if any(contains(a, x) and contains(b, link.other(x)) for x in (link.a, link.b))
    )


def inside(world: World, unit: Unit) -> set[Address]:
    return {address for address in world.nodes if contains(unit, address)}


@pytest.fixture(scope="module", params=few([100, 300, 1000]))
def large(request: pytest.FixtureRequest) -> World:
    """A generated network at rest. Tests leave it as they found it."""
    return converged(generate(request.param, seed=1))


@pytest.mark.parametrize("level", range(4))
def test_a_change_reaches_its_context_and_nobody_else(large: World, level: int) -> None:
    """GPP-02, GPP-06, GPP-09, GPP-17: a level-l link goes and comes: its level-(l+1) unit hears of it."""
    world = large
    link = next(link for link in world.links if level_of(world, link) == level and link.session is not None)
    context = link.a[: world.network.levels - 1 - level]
    concerned = inside(world, context)
    assert (len(concerned) == len(world.nodes)) == (level == 3), "the contexts differ in size"
    lost = listeners(world, lambda: world.cut(link, silent=False))
    assert lost <= concerned
    # Both ends know it by themselves; others are told. In an unharmed context everybody is.
    assert concerned - lost <= {link.a, link.b}
    made = listeners(world, lambda: world.heal(link))
    assert made <= concerned
    assert concerned - made <= {link.a, link.b}


def test_no_map_of_a_large_network_is_large(large: World) -> None:
    """BNM-01, BNM-10, I3: brokers of the cluster, other clusters, other super-clusters, other super-super-clusters."""
    world = large
    inner: dict[Unit, set[Unit]] = {}
    for address in world.nodes:
        for size in range(4):
            inner.setdefault(address[:size], set()).add(address[: size + 1])
    sizes: list[int] = []
    for broker in world.live():
        host = broker.identity.address
        allowed = set().union(*(inner[host[:size]] for size in range(4))) - {host[:size] for size in (1, 2, 3)}
        assert set(broker.map.vertices()) == allowed
        sizes.append(len(allowed))
    assert max(sizes) < 60, "a map of hundreds would be no abstraction"
    oracle = world.oracle()
    assert len(sizes) == len(world.nodes)
    for broker in list(world.live())[::40]:
        seen = [(edge.a, edge.b, edge.level, edge.cost, edge.links) for edge in broker.map.edges()]
        assert seen == oracle.edges(broker.identity.address)


def test_joining_a_super_cluster_is_told_in_its_own_system_only() -> None:
    """GPP-02, GPP-06, GPP-16: the link of SC-4 to broker 6 is heard of in all of SSC-A, in no other."""
    network = load_network(NETWORKS / "fix-5-joined.toml", connected=True)
    world = converged(network)
    link = link_of(world, network, "SSC-A.SC-4", "SSC-A.SC-1.c.6")
    concerned = inside(world, network.labels.unit("SSC-A"))
    newcomers = inside(world, network.labels.unit("SSC-A.SC-4"))
    lost = listeners(world, lambda: world.cut(link, silent=False))
    assert concerned - newcomers - {link.a, link.b} <= lost <= concerned - newcomers
    made = listeners(world, lambda: world.heal(link))
    assert made <= concerned
    assert newcomers <= made, "they get everything that may cross"


def test_loss_is_seen_where_the_link_was_seen() -> None:
    """GPP-17, BNM-10: without 5-SC-2 the edge is gone from every map that had it, and no other map changes."""
    network = load_network(NETWORKS / "fix-5.toml", connected=True)
    world = converged(network)
    link = link_of(world, network, "SSC-A.SC-1.c.5", "SSC-A.SC-2")
    before = {broker.identity.address: broker.map.edges() for broker in world.live()}
    world.cut(link, silent=False)
    assert world.run_until_quiet(world.now_ns + 100 * SECOND_NS)
    for broker in world.live():
        host, after = broker.identity.address, broker.map.edges()
        gone = [edge for edge in before[host] if edge not in after]
        if contains(network.labels.unit("SSC-A"), host):
            assert [edge.level for edge in gone] == [2]
            assert len(after) == len(before[host]) - 1
        else:
            assert after == before[host]
    assert world.wrong_maps() == []


def chain(length: int) -> Network:
    labels = [f"S.C.c.{number}" for number in range(length)]
    return make_network("chain", labels, list(itertools.pairwise(labels)))


def test_delay_is_proportional_to_hops() -> None:
    """TOP-10: news of a lost link crosses a chain in hops x delay, with nothing else on the way."""
    delay_ns = 7 * MILLISECOND_NS
    world = World(chain(9), 1, Options(delay_ns=delay_ns, wire=False))
    assert world.run_until_quiet(20 * SECOND_NS)
    arrived: dict[int, int] = {}
    began = world.now_ns

    def listen(delivery: Delivery) -> None:
        if any(isinstance(frame, Connections) for _, frame in delivery.frames):
            arrived[delivery.to[-1]] = world.now_ns - began

    world.on_delivery = listen
    world.cut(world.links[0], silent=False)
    world.run_until_quiet(world.now_ns + SECOND_NS)
    assert arrived == {number: (number - 1) * delay_ns for number in range(2, 9)}


# --- the dead, the risen, the wrongly reported ---


def gateway_network() -> Network:
    """Cluster a with the lonely gateway broker 3 to cluster b, b to c, c back to a: a's gate to b can die unseen."""
    labels = ["S.1.a.1", "S.1.a.2", "S.1.a.3", "S.1.b.4", "S.1.c.5", "S.2.d.6"]
    links = [("S.1.a.1", "S.1.a.2"), ("S.1.a.2", "S.1.a.3"), ("S.1.a.3", "S.2.d.6"), ("S.1.b.4", "S.1.c.5")]
    return make_network("gates", labels, [*links, ("S.1.c.5", "S.1.a.1")])


@pytest.mark.parametrize("silent", [True, False])
def test_the_dead_cannot_speak(silent: bool) -> None:
    """FLT-01, GPP-01, BNM-10: a gateway broker dies with all that lies behind it; its cluster speaks for it."""
    network = gateway_network()
    world = World(network, 1, Options())
    world.run_until(10 * SECOND_NS)
    unit = network.labels.unit
    outside = world.broker(unit("S.1.b.4"))
    assert unit("S.2") in outside.map.vertices()
    for label in ("S.1.a.3", "S.2.d.6"):
        world.crash(unit(label), silent)
    world.run_until(world.now_ns + 40 * SECOND_NS)
    assert unit("S.2") not in outside.map.vertices()
    assert world.wrong_maps() == []
    assert not any(record.up for record in outside.table.everything() if record.level == 2)


def test_the_risen_disown() -> None:
    """FLT-01, GPP-01: both ends of a link die at once and come back: the third forgets the old connection."""
    labels = [f"S.C.c.{number}" for number in range(4)]
    joined = [(labels[a], labels[b]) for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))]
    world = World(make_network("ring", labels, joined), 1, Options())
    world.run_until(10 * SECOND_NS)
    one, two = (address for address in world.nodes if address[-1] in (1, 2))
    ids = {record.id for record in world.broker(one).table.everything() if {record.low, record.high} == {one, two}}
    for address in (one, two):
        world.crash(address, silent=True)
    for address in (one, two):
        world.start(address)
    world.run_until(world.now_ns + 30 * SECOND_NS)
    for broker in world.live():
        assert not any(record.up for record in broker.table.everything() if record.id in ids)
    assert world.wrong_maps() == []
    assert [world.broker(address).identity.incarnation for address in world.nodes] == [1, 2, 2, 1]


def test_a_cluster_that_falls_apart_is_still_told_of_from_outside() -> None:
    """GPP-19, BNM-10: of two detour copies the finer one is passed on; here only 6 can tell it to 8."""
    labels = ["S.1.c.5", "S.1.c.6", "S.1.d.7", "S.1.a.8", "S.2.e.9", "S.3.f.10"]
    slow = ("S.1.d.7", "S.1.c.6")
    links = [
        ("S.1.c.5", "S.2.e.9"), ("S.2.e.9", "S.3.f.10"), ("S.3.f.10", "S.1.c.6"), ("S.1.c.5", "S.1.d.7"), slow,
        ("S.1.c.6", "S.1.a.8"),
    ]  # fmt: skip
    network = make_network("split", labels, links)
    world = World(network, 1, Options())
    link_of(world, network, *slow).delay_ns = 500 * MILLISECOND_NS
    world.run_until(30 * SECOND_NS)
    eight = world.broker(network.labels.unit("S.1.a.8"))
    assert network.labels.unit("S.2") in eight.map.neighbours(network.labels.unit("S.1.c"))
    assert world.wrong_maps() == []
