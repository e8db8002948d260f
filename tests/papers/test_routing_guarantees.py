"""What is promised of routing: nobody misses anything, nothing goes where nobody wants it, whatever changes."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tests.core.event_world import QUICK, Stage, cluster, crossed_twice, stage_of, way
from tests.core.small_networks import follow, random_network
from veena.address import Address, Unit, as_seen, contains, link_level
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.event import Event
from veena.runtime.networks.file import gatekeepers, make_network
from veena.sim.networks.baselines import Baselines
from veena.sim.world.options import Options


@pytest.fixture(scope="module")
def fix5() -> Stage:
    """The worked example. Tests share it: each has topics and bodies of its own."""
    return stage_of("fix-5")


# --- guarantees, on the 78 brokers of figure 3 ---

RATES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.99, 1.0)


class Sweep:
    """For each match rate some topics, each wanted at that share of all brokers, and an event on each."""

    def __init__(self) -> None:
        self.stage = stage = stage_of("ges-78")
        self.chance = chance = Random(78)
        names = list(stage.addresses)
        self.wanted: dict[str, list[str]] = {}
        self.origins: dict[str, str] = {}
        sessions: dict[tuple[str, str], int] = {}
        for rate, number in itertools.product(RATES, range(4)):
            topic = f"{rate}/{number}"
            self.wanted[topic] = chance.sample(names, round(rate * len(names)))
            for name in self.wanted[topic]:
                sessions[topic, name] = stage.subscribe(name, topic)
        stage.wait()
        for topic in self.wanted:
            self.origins[topic] = origin = chance.choice(names)
            stage.publish(stage.attach(origin, f"publisher of {topic}"), topic, Event(topic=topic))
        stage.wait(2 * SECOND_NS)
        self.got = {key: stage.bodies[session] for key, session in sessions.items()}

    def crossings(self, rate: float) -> int:
        return sum(len(self.stage.hops_of(topic)) for topic in self.wanted if topic.startswith(f"{rate}/"))


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return Sweep()


def test_nobody_misses_anything(sweep: Sweep) -> None:
    """GUA-02, GUA-04, PPP-03: sparse and dense interest alike, once each."""
    assert {key: len(bodies) for key, bodies in sweep.got.items()} == dict.fromkeys(sweep.got, 1)
    assert len(sweep.got) == sum(map(len, sweep.wanted.values())) > 500
    assert sweep.stage.is_idle()


def test_every_copy_is_on_the_way_to_somebody(sweep: Sweep) -> None:
    """GUA-01, GUA-03, ERP-12, PPP-02: the brokers that an event came to are those on the hops to its readers."""
    stage = sweep.stage
    hops = {broker.identity.address: broker.hops for broker in stage.world.live()}
    assert len(stage.copies) > 500
    for topic, readers in sweep.wanted.items():
        on_the_way: set[tuple[str, str]] = set()
        for name in readers:
            brokers = follow(hops, stage.addresses[sweep.origins[topic]], stage.addresses[name])
            on_the_way |= {(stage.names[one], stage.names[other]) for one, other in itertools.pairwise(brokers)}
        # Where a unit is entered its brokers are served from there, so a path may differ from that of a lone reader.
        assert len(stage.hops_of(topic)) <= len(on_the_way), topic
        assert {to for _, to in stage.hops_of(topic)} <= {to for _, to in on_the_way}, topic


def test_no_link_twice_no_broker_twice(sweep: Sweep) -> None:
    """ERP-08, ERP-10, ERP-14, DUP-01: no echo, no fork that meets again, though the network is full of cycles."""
    for topic in sweep.wanted:
        ways = sweep.stage.hops_of(topic)
        assert crossed_twice(ways) == []
        entered = Counter(to for _, to in ways)
        assert max(entered.values(), default=0) <= 1
        assert sweep.origins[topic] not in entered
    everybody = [topic for topic in sweep.wanted if topic.startswith("1.0/")]
    assert {len(sweep.stage.hops_of(topic)) for topic in everybody} == {77}


def test_what_a_copy_carries(sweep: Sweep) -> None:
    """ERP-03, ERP-04, ERP-06, ERP-09, DST-09: on a link of level l nothing below l, both ends in the trace, and nothing
    to serve that was served, but for the unit that is being entered."""
    fanout = sweep.stage.network.fanout
    assert {link_level(sweep.stage.addresses[a], sweep.stage.addresses[b]) for a, b, _ in sweep.stage.copies} == {
        *range(4)
    }, "copies cross links of every level"
    for a, b, frame in sweep.stage.copies:
        one, other = sweep.stage.addresses[a], sweep.stage.addresses[b]
        level = link_level(one, other)
        below = (1 << level * fanout) - 1
        ends = [1 << (level * fanout + end[-1 - level]) for end in (one, other)]
        assert not (frame.to_serve | frame.served) & below
        assert frame.served & sum(ends) == sum(ends)
        assert not frame.to_serve & frame.served & ~ends[1]
        assert frame.to_serve
        assert frame.origin_address == sweep.stage.addresses[sweep.origins[bytes(frame.body).decode()]]


def test_units_are_entered_through_their_gatekeepers(sweep: Sweep) -> None:
    """ERP-13: the sole exception is the units of issue. Who comes over a higher link enters lower units with it."""
    gates = gatekeepers(sweep.stage.network)
    sizes: Counter[int] = Counter()
    for topic, origin in sweep.origins.items():
        home = sweep.stage.addresses[origin]
        first: dict[Unit, Address] = {}
        for _, name in sweep.stage.hops_of(topic):
            broker = sweep.stage.addresses[name]
            for size in range(1, len(broker)):
                if not contains(broker[:size], home):
                    first.setdefault(broker[:size], broker)
        for unit, broker in first.items():
            assert any(broker in gates[level] for level in range(len(home) - len(unit), len(home)))
        sizes.update(map(len, first))
    assert set(sizes) == {1, 2, 3}, "events entered foreign units of every size"


def test_what_it_costs(sweep: Sweep) -> None:
    """GUA-04, GUA-05, GUA-13: less than flooding, less with fewer readers, and in sum within twice the optimum."""
    stage, baselines = sweep.stage, Baselines(sweep.stage.network)
    flood = 2 * len(stage.network.links) - len(stage.network.brokers) + 1
    costs = [sweep.crossings(rate) for rate in RATES]
    assert costs == sorted(costs)
    assert costs[0] == 0
    assert costs[-1] < 4 * flood
    for topic, readers in sweep.wanted.items():
        assert len(stage.hops_of(topic)) <= flood
        if readers:
            addresses = [stage.addresses[name] for name in readers]
            best = baselines.optimum(stage.addresses[sweep.origins[topic]], addresses)
            assert len(stage.hops_of(topic)) >= best, "the optimum is one"
    for rate, cost in zip(RATES[1:], costs[1:], strict=True):
        optimum = sum(
            baselines.optimum(stage.addresses[sweep.origins[topic]], [stage.addresses[name] for name in readers])
            for topic, readers in sweep.wanted.items()
            if topic.startswith(f"{rate}/")
        )
        assert cost <= 2 * optimum


def test_no_broker_knows_everything(sweep: Sweep) -> None:
    """GUA-06, I3, PPP-14: nobody holds the profiles of all, and nobody a map of all."""
    stage = sweep.stage
    total = sum(map(len, sweep.wanted.values()))
    assert len(list(stage.world.live())) == 78
    for broker in stage.world.live():
        assert broker.statistics().profiles.rows < total / 2
        assert len(broker.map.vertices()) < len(stage.addresses) / 2


# --- networks that change ---


@pytest.mark.parametrize("seed", range(3))
def test_cycles_over_every_level(seed: int) -> None:
    """ERP-14, GUA-05: everybody wants it in a network that nobody drew with care: a copy a broker, less one."""
    network = random_network(Random(2000 + seed), extra=10)
    stage = Stage(network, options=QUICK)
    readers = [stage.subscribe(name) for name in stage.addresses]
    stage.wait()
    stage.publish(stage.attach(next(iter(stage.addresses)), "p"), "e0")
    stage.wait(SECOND_NS)
    assert [stage.bodies[reader] for reader in readers] == [["e0"]] * len(readers)
    assert len(stage.hops_of("e0")) == len(network.brokers) - 1
    assert stage.is_idle()


def test_later_brokers_decide_anew() -> None:
    """SPR-09, FLT-01: a link is lost downstream while the event is on its way; the origin has not heard of it."""
    stage = Stage(cluster([(0, 1), (1, 2), (2, 4), (1, 3), (3, 4)]), options=Options(delay_ns=100 * MILLISECOND_NS))
    reader = stage.subscribe("4")
    stage.wait()
    assert stage.hop("1", "4") == "2"
    publisher = stage.attach("0", "p")
    stage.publish(publisher, "e0")
    stage.wait_ms(20)
    assert stage.hops_of("e0") == [("0", "1")]
    stage.world.cut(stage.link("1", "2"), silent=False)
    stage.wait(2 * SECOND_NS)
    assert stage.bodies[reader] == ["e0"]
    assert way(stage, "e0") == ["0", "1", "3", "4"]


def test_a_unit_out_of_reach_gets_it_when_it_is_back(fix5: Stage) -> None:
    """ERP-16, FLT-06, AMB-18: SSC-C is cut off; the event waits in the origin's log, with the unit that is outstanding;
    nobody else waits for it."""
    far, near = fix5.subscribe("26", "erp-16"), fix5.subscribe("9", "erp-16")
    fix5.wait()
    publisher = fix5.attach("6", "p16")
    links = [fix5.link("15", "25"), fix5.link("26", "29")]
    for link in links:
        fix5.world.cut(link, silent=False)
    fix5.wait(2 * SECOND_NS)
    for number in range(3):
        fix5.publish(publisher, f"erp-16 {number}", Event(topic="erp-16"))
    fix5.wait(2 * SECOND_NS)
    bodies = [f"erp-16 {number}" for number in range(3)]
    assert (fix5.bodies[near], fix5.bodies[far]) == (bodies, [])
    six = fix5.broker("6")
    assert six.statistics().origin.open == 3
    assert [fix5.units(flight.open, "6") for flight in six.events.router.duties.flights()] == [["SSC-C"]] * 3
    for link in links:
        fix5.world.heal(link)
    fix5.wait(5 * SECOND_NS)
    assert fix5.bodies[far] == bodies
    assert fix5.is_idle()


def test_both_parts_of_a_partition_go_on() -> None:
    """FLT-06: no part is told that it is the wrong one; each delivers inside, and after healing gets what it missed."""
    stage = Stage(cluster([(0, 1), (1, 2), (2, 3)]))
    readers = {name: stage.subscribe(name) for name in ("0", "1", "2", "3")}
    stage.wait()
    left, right = stage.attach("0", "left"), stage.attach("3", "right")
    stage.world.cut(stage.link("1", "2"), silent=False)
    stage.wait(SECOND_NS)
    for number in range(3):
        stage.publish(left, f"l{number}")
        stage.publish(right, f"r{number}")
    stage.wait(SECOND_NS)
    assert [stage.bodies[readers[name]] for name in ("0", "1")] == [["l0", "l1", "l2"]] * 2
    assert [stage.bodies[readers[name]] for name in ("2", "3")] == [["r0", "r1", "r2"]] * 2
    stage.world.heal(stage.link("1", "2"))
    stage.wait(10 * SECOND_NS)
    for session in readers.values():
        found = stage.bodies[session]
        assert sorted(found) == ["l0", "l1", "l2", "r0", "r1", "r2"]
        assert [body for body in found if body[0] == "l"] == ["l0", "l1", "l2"]
        assert [body for body in found if body[0] == "r"] == ["r0", "r1", "r2"]
    assert stage.is_idle()


def test_a_cluster_that_joins() -> None:
    """PPP-15: a cluster with subscribers is added; what is published in the old system then reaches them."""
    labels = ["S.C.a.1", "S.C.a.2", "S.C.b.3", "S.C.b.4"]
    whole = make_network("joining", labels, [(labels[0], labels[1]), (labels[2], labels[3])])
    old, new = (
        replace(
            whole,
            brokers=tuple(entry for entry in whole.brokers if entry.address[2] == part),
            links=tuple(link for link in whole.links if link.a[2] == part),
        )
        for part in (0, 1)
    )
    stage = Stage(old)
    publisher = stage.attach("2", "p")
    for entry in new.brokers:
        name = entry.label.rsplit(".", 1)[-1]
        stage.names[entry.address], stage.addresses[name] = name, entry.address
    stage.world.add_network(new, stage.world.settings)
    stage.wait()
    reader = stage.subscribe("4")
    stage.wait()
    stage.publish(publisher, "before")
    stage.wait(SECOND_NS)
    stage.world.add_link(stage.addresses["1"], stage.addresses["3"])
    stage.wait()
    stage.publish(publisher, "after")
    stage.wait(SECOND_NS)
    assert stage.bodies[reader] == ["after"]
    assert way(stage, "after") == ["2", "1", "3", "4"]
    seen = as_seen(stage.addresses["2"], stage.addresses["4"])
    assert len(list(stage.broker("2").profiles.table.rows(seen))) == 1


def test_a_backlog_that_was_overtaken_is_not_lost() -> None:
    """FLT-01, hard cases: x is absent, and the broker through which e1 entered its cluster keeps it. e2 comes in
    by another one and reaches x first; then e1 comes, after its turn and marked so."""
    labels = ["S.C.p.p", "S.C.c.1", "S.C.c.2", "S.C.c.x"]
    p, one, two, x = labels
    stage = Stage(
        make_network("absent", labels, [(p, one), (p, two), (one, x), (two, x), (one, two)]),
        options=Options(wire=False, dial=False),
    )
    reader = stage.subscribe("x")
    stage.wait()
    publisher = stage.attach("p", "p")
    for end in ("1", "2"):
        stage.world.cut(stage.link(end, "x"), silent=False)
    stage.publish(publisher, "e1")
    stage.wait(12 * SECOND_NS)
    assert stage.hops_of("e1") == [("p", "1")]
    assert stage.broker("p").statistics().origin.open == 0, "the cluster answers for it"
    for ends in (("p", "1"), ("1", "2")):
        stage.world.cut(stage.link(*ends), silent=False)
    stage.world.heal(stage.link("2", "x"))
    stage.wait()
    stage.publish(publisher, "e2")
    stage.wait()
    assert stage.bodies[reader] == ["e2"]
    stage.world.heal(stage.link("1", "x"))
    stage.wait(10 * SECOND_NS)
    assert stage.bodies[reader] == ["e2", "e1"]
    assert [frame.late for frame in stage.frames[reader]] == [False, True]
    assert stage.is_idle()


def test_backlogs_are_handed_over_in_order() -> None:
    """Hard cases: x finds both members again at once, gathers what they kept for it, and sees no difference."""
    labels = ["S.C.p.p", "S.C.c.1", "S.C.c.2", "S.C.c.x"]
    p, one, two, x = labels
    stage = Stage(
        make_network("absent", labels, [(p, one), (p, two), (one, x), (two, x), (one, two)]),
        options=Options(wire=False, dial=False),
    )
    reader = stage.subscribe("x")
    stage.wait()
    publisher = stage.attach("p", "p")
    for end in ("1", "2"):
        stage.world.cut(stage.link(end, "x"), silent=False)
    stage.publish(publisher, "e1")
    stage.wait(12 * SECOND_NS)
    stage.world.cut(stage.link("p", "1"), silent=False)
    stage.wait()
    stage.publish(publisher, "e2")
    stage.wait(12 * SECOND_NS)
    assert stage.hops_of("e2")[0] == ("p", "2")
    stage.link("1", "x").delay_ns = 300 * MILLISECOND_NS
    for end in ("1", "2"):
        stage.world.heal(stage.link(end, "x"))
    stage.publish(publisher, "e3")
    stage.wait(10 * SECOND_NS)
    assert stage.bodies[reader] == ["e1", "e2", "e3"]
    assert not any(frame.late for frame in stage.frames[reader])


def test_a_speaker_that_was_started_again_remembers_who_is_out_of_reach() -> None:
    """I1, FLT-06: y, whose client wants it, is cut off inside its unit; x, which speaks for the rest of the unit, is
    started again. It does not know what y wants, so its unit may want anything: the event is kept for y."""
    labels = ["S.C.c.p", "S.D.d.x", "S.D.d.y"]
    p, x, y = labels
    stage = Stage(make_network("apart", labels, [(p, x), (x, y)]))
    reader = stage.subscribe("y")
    stage.wait()
    publisher = stage.attach("p", "p")
    stage.world.cut(stage.link("x", "y"), silent=False)
    stage.wait(SECOND_NS)
    stage.world.crash(stage.addresses["x"], silent=False)
    stage.wait(SECOND_NS)
    stage.world.start(stage.addresses["x"])
    stage.wait(40 * SECOND_NS)  # longer than a new speaker waits for what the old one told
    stage.publish(publisher, "e0")
    stage.wait(5 * SECOND_NS)
    stage.world.heal(stage.link("x", "y"))
    stage.wait(10 * SECOND_NS)
    assert stage.bodies[reader] == ["e0"]
