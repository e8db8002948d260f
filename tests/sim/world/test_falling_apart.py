"""Units that fall apart inside while the network is whole: their parts dial each other and nothing is lost (design §6).

A path never leaves the unit that encloses both ends (SPR-01), so without dialling these parts are cut off for ever.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.event_world import NETWORKS, QUICK, Stage
from tests.tiers import few
from veena.address import Address
from veena.core.boundary.settings import SECOND_NS
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.runs.faults import _separate, heal_everything
from veena.sim.world.dialling import Partition
from veena.sim.world.map_oracle import Oracle
from veena.sim.world.network import VirtualLink
from veena.sim.world.options import Options

#: Suspicion, confirmation, a try that meets a dead broker, and the way of what was held back.
MENDED_NS = 16 * SECOND_NS


def chain() -> Network:
    """Cluster a is a chain of five; both its ends are joined to cluster b."""
    brokers = [*(f"S.C.a.{n}" for n in range(5)), "S.C.b.5", "S.C.b.6"]
    links = [(f"S.C.a.{n}", f"S.C.a.{n + 1}") for n in range(4)]
    return make_network(
        "chain", brokers, [*links, ("S.C.a.0", "S.C.b.5"), ("S.C.a.4", "S.C.b.6"), ("S.C.b.5", "S.C.b.6")]
    )


def triangle() -> Network:
    """Clusters a and b of super-cluster C are joined by one link of a.0; both are joined to super-cluster D."""
    brokers = [f"S.{unit}.{n}" for unit in ("C.a", "C.b", "D.c") for n in range(3)]
    inside = [(f"S.{unit}.{n}", f"S.{unit}.{(n + 1) % 3}") for unit in ("C.a", "C.b", "D.c") for n in range(3)]
    return make_network(
        "triangle", brokers, [*inside, ("S.C.a.0", "S.C.b.0"), ("S.C.a.1", "S.D.c.1"), ("S.C.b.2", "S.D.c.2")]
    )


def lose(stage: Stage, name: str, *, silent: bool = False, for_ever: bool = True) -> None:
    address = stage.addresses[name]
    stage.world.nodes[address].lost = for_ever
    stage.world.crash(address, silent)


def dialled_links(stage: Stage) -> list[VirtualLink]:
    return [link for link in stage.world.links if link.dialled]


def stream(bodies: list[str], publisher: str) -> list[str]:
    return [body for body in bodies if body.startswith(publisher)]


def tell_for(stage: Stage, publishers: dict[str, int], seconds: int, begin: int = 0) -> None:
    """Every publisher publishes once a second."""
    for second in range(begin, begin + seconds):
        for name, session in publishers.items():
            stage.publish(session, f"{name}:{second}")
        stage.wait(SECOND_NS)


@pytest.mark.parametrize("silent", [False, True], ids=["noticed", "silent"])
def test_a_cluster_that_loses_its_middle_becomes_whole_again(silent: bool) -> None:
    """I1, FLT: what one part publishes reaches the other once and in order, also what was published in between."""
    stage = Stage(chain(), options=Options())
    readers = {name: stage.subscribe(name) for name in "01346"}
    publishers = {name: stage.attach(name, f"publisher-{name}") for name in "045"}
    stage.wait()
    tell_for(stage, publishers, 2)
    lose(stage, "2", silent=silent)
    tell_for(stage, publishers, 5, begin=2)
    assert stage.world.counters.dials == 0, "suspicion and confirmation come first"
    assert len(stream(stage.bodies[readers["3"]], "0:")) < 7, "it is cut off"
    tell_for(stage, publishers, 20, begin=7)
    assert stage.world.oracle().is_whole()
    assert stage.world.wrong_maps() == []
    for name, session in readers.items():
        for publisher in publishers:
            expected = [f"{publisher}:{second}" for second in range(27)]
            assert stream(stage.bodies[session], f"{publisher}:") == expected, f"{publisher} to {name}"
    (link,) = dialled_links(stage)
    assert {link.a[:3], link.b[:3]} == {(0, 0, 0)}, "a link of level 0"


def test_without_dialling_the_parts_stay_apart() -> None:
    """The control: the same loss in a world where nobody answers a dial."""
    stage = Stage(chain(), options=Options(dial=False))
    reader, publisher = stage.subscribe("4"), stage.attach("0", "publisher")
    stage.wait()
    lose(stage, "2")
    stage.publish(publisher, "0:0")
    stage.wait(60 * SECOND_NS)
    assert stage.world.counters.dials > 0
    assert stage.world.oracle().broken_units() == [(0, 0, 0)]
    assert stage.bodies[reader] == []


def test_clusters_find_each_other_beside_their_super_cluster() -> None:
    """The same one level up: the only gate between two clusters is lost, another super-cluster joins them."""
    stage = Stage(triangle(), options=Options())
    readers = {name: stage.subscribe(name) for name in ("S.C.a.1", "S.C.b.1", "S.D.c.0")}
    publishers = {name: stage.attach(name, f"publisher-{name}") for name in ("S.C.a.2", "S.C.b.2")}
    stage.wait()
    lose(stage, "S.C.a.0", silent=True)
    tell_for(stage, publishers, 25)
    assert stage.world.oracle().is_whole() and stage.world.wrong_maps() == []
    for session in readers.values():
        for publisher in publishers:
            assert stream(stage.bodies[session], publisher) == [f"{publisher}:{second}" for second in range(25)]
    assert [link.a[:2] == link.b[:2] and link.a[:3] != link.b[:3] for link in dialled_links(stage)] == [True]


def test_the_proper_way_is_taken_again_when_it_is_back() -> None:
    """LCM-03: a dialled link costs a step more than any link of the network file."""
    stage = Stage(chain())
    lose(stage, "2", for_ever=False)
    stage.wait(MENDED_NS)
    (link,) = dialled_links(stage)
    assert stage.hop("1", "3") == "0" and stage.hop("0", "4") == stage.names[link.other(stage.addresses["0"])]
    stage.world.start(stage.addresses["2"])
    stage.wait(5 * SECOND_NS)
    assert stage.world.wrong_maps() == []
    assert [stage.hop(*pair) for pair in (("1", "3"), ("0", "4"), ("3", "0"))] == ["2", "1", "2"]


def needing(network: Network) -> list[Address]:
    """The brokers whose loss lets a unit fall apart inside while the rest of the network stays in one piece."""
    found = []
    for entry in network.brokers:
        rest = [other.address for other in network.brokers if other is not entry]
        links = [(link.a, link.b) for link in network.links if entry.address not in (link.a, link.b)]
        broken = Oracle(rest, links).broken_units()
        if broken and () not in broken:
            found.append(entry.address)
    return found


@pytest.mark.parametrize("which", few([0, 10, -1]))
def test_any_broker_of_the_78_may_be_lost(which: int) -> None:
    """Nearly half of the brokers of the GES paper's network hold a unit together alone; some of each kind are lost."""
    network = load_network(NETWORKS / "ges-78.toml")
    articulation = needing(network)
    assert len(articulation) == 36, f"{len(articulation)} of {len(network.brokers)}"
    lost, stage = articulation[which], Stage(network, options=QUICK)
    world = stage.world
    near = [entry.address for entry in network.brokers if entry.address[0] == lost[0] and entry.address != lost]
    far = [entry.address for entry in network.brokers if entry.address[0] != lost[0]][::9]
    readers = {address: stage.subscribe(stage.names[address]) for address in (*near, *far)}
    publishers = {f"{at}": stage.attach(stage.names[at], f"at-{at}") for at in (*near[::4], far[0])}
    stage.wait()
    lose(stage, stage.names[lost], silent=True)
    tell_for(stage, publishers, 4)
    assert world.oracle().broken_units(), "dialling is needed"
    stage.wait(MENDED_NS)
    for reader, session in readers.items():
        for publisher in publishers:
            expected = [f"{publisher}:{second}" for second in range(4)]
            assert stream(stage.bodies[session], publisher) == expected, f"{publisher} to {reader}"
    assert world.oracle().is_whole() and world.wrong_maps() == []


def separated(stage: Stage, inside: frozenset[Address], seconds: int) -> Partition:
    """A partition that begins now, in the way of the fault plan."""
    partition, now_ns = Partition(inside), stage.world.now_ns
    _separate(stage.world, partition, (now_ns, now_ns + seconds * SECOND_NS), False)
    return partition


def test_a_real_partition_is_not_bridged() -> None:
    """Dialling fails until it heals; then everything that was held back arrives, once and in order."""
    stage = Stage(chain(), options=Options())
    reader, publishers = stage.subscribe("4"), {"0": stage.attach("0", "publisher")}
    stage.wait()
    inside = frozenset(stage.addresses[name] for name in "346")
    separated(stage, inside, 40)
    tell_for(stage, publishers, 39)
    assert stage.world.counters.dials > 2 and dialled_links(stage) == []
    assert stage.bodies[reader] == []
    tell_for(stage, publishers, 20, begin=39)
    assert stage.bodies[reader] == [f"0:{second}" for second in range(59)]
    assert stage.world.partitions == []
    assert stage.world.wrong_maps() == []


def test_a_partition_cuts_what_was_dialled_before() -> None:
    """A dialled link is like any other; and parts that only dialling can join find each other after the partition."""
    stage = Stage(chain(), options=Options())
    reader, publishers = stage.subscribe("4"), {"0": stage.attach("0", "publisher")}
    stage.wait()
    lose(stage, "2")
    stage.wait(MENDED_NS)
    (link,) = dialled_links(stage)
    assert link.session is not None
    separated(stage, frozenset(stage.addresses[name] for name in "346"), 30)
    tell_for(stage, publishers, 29)
    assert link.cut and stage.bodies[reader] == []
    tell_for(stage, publishers, 15, begin=29)
    assert stage.bodies[reader] == [f"0:{second}" for second in range(44)]


def test_healing_ends_all_partitions_but_those_for_ever() -> None:
    stage = Stage(chain())
    inside = frozenset([stage.addresses["4"]])
    stage.world.partitions = [Partition(inside), Partition(inside, for_ever=True)]
    heal_everything(stage.world)
    assert [each.for_ever for each in stage.world.partitions] == [True]


def test_a_dial_to_the_dead_costs_nothing() -> None:
    """Nobody else is cut off by the loss of an end of the chain: it is dialled, in vain, and ever more rarely."""
    stage = Stage(chain())
    lose(stage, "1")
    lose(stage, "0")
    stage.wait(300 * SECOND_NS)
    counted = stage.world.counters
    assert (counted.dialled, dialled_links(stage)) == (0, [])
    first = counted.dials
    assert 2 <= first <= 2 * 3 * 10, "two dead brokers, at most three diallers"
    stage.wait(60 * SECOND_NS)
    assert counted.dials - first <= 2 * 3 * 2
    assert stage.world.wrong_maps() == []


def test_one_seed_is_one_run() -> None:
    """Dialling takes its place in the order of events: the same seed gives the same trace."""

    def trace() -> tuple[str, int]:
        stage = Stage(chain(), seed=5, options=replace(Options(), jitter_ns=20_000_000))
        stage.subscribe("4")
        lose(stage, "2")
        stage.wait(MENDED_NS)
        return stage.world.trace_hash(), stage.world.counters.dialled

    one, other = trace(), trace()
    assert one == other and one[1] == 1
