"""Networks in which a simpler rule loses events: ours delivers, the simpler one does not (design §6, DUP, ERP, SPR).

Each rule of routing has a small network that needs it. Every test runs that network with real brokers twice: as they
are, and with one rule replaced by the simpler one that the papers, or common sense, would suggest. The second run shows
that the first one proves something.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core.event_world import Stage, cluster, crossed_twice
from tests.core.routing.simpler_rules import (
    AcknowledgesTheTaken,
    CheapestHops,
    DropsById,
    IgnoresBounces,
    NeverSendsAgain,
    SendsAgainBackwards,
    SlowNews,
    SpreadsTheLoad,
    TakesCustody,
    hold_news,
    let_news_go,
    use,
)
from veena.core.boundary.inputs_effects import LinkLoad
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.routing.router import Router
from veena.core.topology.next_hops import Hops
from veena.core.topology.paths import cheapest_paths
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.world.options import Options

#: Brokers, routers and worlds of these tests are subclasses of the program's.
pytestmark = pytest.mark.replaces

NETWORKS = Path(__file__).parents[3] / "networks"


RULE = pytest.mark.parametrize("rule", [Router, DropsById])


def everybody_else(stage: Stage, publisher: str) -> dict[str, int]:
    """A reader at each other broker."""
    readers = {name: stage.subscribe(name) for name in stage.addresses if name != publisher}
    stage.wait()
    return readers


def missing(stage: Stage, readers: dict[str, int], bodies: Sequence[str]) -> list[str]:
    """The readers that did not get exactly these, in this order."""
    return [name for name, session in readers.items() if stage.bodies[session] != list(bodies)]


# --- hops decided anew ---


def nine_brokers() -> Network:
    """Two chains of one-broker clusters, joined at one end; a third unit at the other end of both."""
    chain_1, chain_2 = (
        [f"S.SC-{n}.{letter}{at}.{letter}{at}" for at in range(1, 5)] for n, letter in ((1, "c"), (2, "d"))
    )
    end = "S.SC-3.e1.e1"
    links = [*itertools.pairwise(chain_1), *itertools.pairwise(chain_2)]
    links += [(chain_1[0], chain_2[0]), (chain_1[3], end), (chain_2[3], end)]
    return make_network("nine", [*chain_1, *chain_2, end], links)


@pytest.mark.parametrize("hops", [Hops, CheapestHops])
def test_an_event_for_the_third_unit(monkeypatch: pytest.MonkeyPatch, hops: type[Hops]) -> None:
    """SPR-09, ERP-14: c1 and d1 each think the other one nearer; the duty waits in both, for ever."""
    use(monkeypatch, hops=hops)
    stage = Stage(nine_brokers())
    reader = stage.subscribe("e1")
    stage.wait()
    publisher = stage.attach("c1", "p")
    stage.publish(publisher, "e0")
    stage.wait(20 * SECOND_NS)
    if hops is Hops:
        assert stage.bodies[reader] == ["e0"]
        assert stage.hops_of("e0") == [("c1", "c2"), ("c2", "c3"), ("c3", "c4"), ("c4", "e1")]
        assert stage.is_idle()
    else:
        assert stage.bodies[reader] == []
        assert stage.hops_of("e0")[:2] == [("c1", "d1"), ("d1", "c1")]
        assert not stage.is_idle(), "a black hole: each waits for the other's acknowledgement"


def ten_brokers() -> Network:
    """The same, but the chains end at two units, each of them with a gate to the next super-super-cluster."""
    chain_1, chain_2 = (
        [f"S.SC-{n}.{letter}{at}.{letter}{at}" for at in range(1, 5)] for n, letter in ((1, "c"), (2, "d"))
    )
    x, y, far = "S.SC-3.x.x", "S.SC-4.y.y", "T.SC-5.t.t"
    links = [*itertools.pairwise(chain_1), *itertools.pairwise(chain_2), (chain_1[0], chain_2[0])]
    return make_network(
        "ten", [*chain_1, *chain_2, x, y, far], [*links, (chain_1[3], y), (chain_2[3], x), (x, far), (y, far)]
    )


def test_the_nearest_controller_decided_anew() -> None:
    """ERP-11, AMB-42: "any gate of level 3" has no fixed goal. At c1 the one beyond d1 is nearest, at d1 the one beyond
    c1; here an event has a unit for its goal, and every broker agrees on the way there."""
    stage = Stage(ten_brokers())
    unit = stage.network.labels.unit
    gates = [unit("S.SC-3"), unit("S.SC-4")]
    nearest = {
        name: min(gates, key=lambda gate: cheapest_paths(stage.broker(name).map)[gate].cost) for name in ("c1", "d1")
    }
    assert nearest == {"c1": unit("S.SC-3"), "d1": unit("S.SC-4")}
    assert cheapest_paths(stage.broker("c1").map)[nearest["c1"]].hop == unit("S.SC-2")
    assert cheapest_paths(stage.broker("d1").map)[nearest["d1"]].hop == unit("S.SC-1")
    reader = stage.subscribe("t")
    stage.wait()
    stage.publish(stage.attach("c1", "p"), "e0")
    stage.publish(stage.attach("d1", "q"), "f0")
    stage.wait(SECOND_NS)
    assert sorted(stage.bodies[reader]) == ["e0", "f0"]
    assert stage.hops_of("e0") == [("c1", "c2"), ("c2", "c3"), ("c3", "c4"), ("c4", "y"), ("y", "t")]
    assert stage.hops_of("f0") == [("d1", "d2"), ("d2", "d3"), ("d3", "d4"), ("d4", "x"), ("x", "t")]


def seven_brokers() -> Network:
    """The digit is the super-cluster, the letter a cluster of one broker."""
    names = ["a1", "a2", "b2", "c2", "a3", "a4", "b4"]
    links = ["a1-c2", "a1-a4", "a2-b2", "a2-a3", "a2-b4", "b2-c2", "a3-a4", "a4-b4"]
    label = {name: f"S.SC-{name[1]}.{name}.{name}" for name in names}
    pairs = [(label[link[:2]], label[link[3:]]) for link in links]
    return make_network("seven", list(label.values()), pairs)


@pytest.mark.parametrize(
    ("rule", "hops"), [(Router, Hops), (DropsById, Hops), (Router, CheapestHops), (DropsById, CheapestHops)]
)
def test_everybody_wants_it(monkeypatch: pytest.MonkeyPatch, rule: type[Router], hops: type[Hops]) -> None:
    """DUP-09 is false, GUA-01: with cheapest paths decided anew a unit is entered twice, with different duties; whoever
    drops the second copy by its id loses them, without any fault."""
    use(monkeypatch, rule, hops)
    stage = Stage(seven_brokers())
    readers = everybody_else(stage, "a3")
    stage.publish(stage.attach("a3", "p"), "e0")
    stage.wait(5 * SECOND_NS)
    ways = stage.hops_of("e0")
    if hops is Hops:
        assert missing(stage, readers, ["e0"]) == []
        assert len(ways) == 6
        assert crossed_twice(ways) == []
    elif rule is Router:
        assert missing(stage, readers, ["e0"]) == []
        assert crossed_twice(ways) == [("a4", "b4")]
    else:
        assert "a1" in missing(stage, readers, ["e0"])


def test_22_publishes_and_only_10_wants_it() -> None:
    """EXP-18, ERP-12: climbing to a controller and back would cross the link 1-2 twice (22, 2, 1, 2, 3, ...)."""
    stage = Stage(load_network(NETWORKS / "ges-22-linked.toml"), options=Options(wire=False, check=False))
    reader = stage.subscribe("10")
    stage.wait()
    stage.publish(stage.attach("22", "p"), "e0")
    stage.wait(SECOND_NS)
    assert stage.bodies[reader] == ["e0"]
    assert stage.hops_of("e0") == [("22", "1"), ("1", "8"), ("8", "10")]


# --- faults ---


@RULE
def test_a_cut_with_the_copy_on_its_way(monkeypatch: pytest.MonkeyPatch, rule: type[Router]) -> None:
    """DUP-02, DUP-09, ERP-10: 0 sends {1} to 1 and {3} to 2; 0-2 is cut; 0 sends {3} to 1, which has seen the event."""
    use(monkeypatch, rule)
    stage = Stage(cluster([(0, 1), (0, 2), (2, 3), (1, 3)]), options=Options(wire=False, delay_ns=50 * MILLISECOND_NS))
    stage.make_dear("1", "3")
    readers = {name: stage.subscribe(name) for name in ("1", "3")}
    stage.wait()
    publisher = stage.attach("0", "p")
    assert (stage.hop("0", "1"), stage.hop("0", "3")) == ("1", "2")
    stage.publish(publisher, "e0")
    stage.wait_ms(20)
    assert stage.hops_of("e0") == [("0", "1"), ("0", "2")]
    stage.world.cut(stage.link("0", "2"), silent=False)
    stage.wait()
    stage.publish(publisher, "e1")
    stage.wait()
    assert missing(stage, readers, ["e0", "e1"]) == ([] if rule is Router else ["3"])
    if rule is Router:
        assert stage.hops_of("e0") == [("0", "1"), ("0", "2"), ("0", "1"), ("1", "3")]
        assert stage.is_idle()
    else:
        assert stage.bodies[readers["3"]] == ["e1"], "lost for good: what comes later hides it"


@pytest.mark.parametrize("rule", [Router, IgnoresBounces, NeverSendsAgain])
def test_a_new_connection_to_the_same_neighbour(monkeypatch: pytest.MonkeyPatch, rule: type[Router]) -> None:
    """Rule 5: what was on its way over the old connection is gone, although the neighbour is the same."""
    use(monkeypatch, rule)
    stage = Stage(cluster([(0, 1)]), options=Options(wire=False, delay_ns=50 * MILLISECOND_NS))
    reader = stage.subscribe("1")
    stage.wait()
    publisher = stage.attach("0", "p")
    stage.publish(publisher, "e0")
    stage.wait_ms(20)
    assert stage.hops_of("e0") == [("0", "1")]
    stage.world.bounce(stage.link("0", "1"))
    stage.wait()
    stage.publish(publisher, "e1")
    stage.wait()
    assert stage.bodies[reader] == (["e0", "e1"] if rule is Router else ["e1"])


@pytest.mark.parametrize("rule", [Router, AcknowledgesTheTaken, TakesCustody])
def test_a_duty_that_comes_back(monkeypatch: pytest.MonkeyPatch, rule: type[Router]) -> None:
    """Rules 4 and 6: 0 sends {3} to 1; 1 loses 3 and sends it back to 0, which has taken it. If 0 answers at once, 1 is
    done, so 0 is done, and nobody has the event. If 1 answered when it took it, the same."""
    use(monkeypatch, rule)
    stage = Stage(
        cluster([(0, 1), (1, 3), (0, 2), (2, 3)]),
        options=Options(wire=False, delay_ns=50 * MILLISECOND_NS),
        make_broker=SlowNews,
    )
    stage.make_dear("0", "2")
    reader = stage.subscribe("3")
    stage.wait()
    assert stage.hop("0", "3") == "1"
    publisher = stage.attach("0", "p")
    hold_news(stage, "1", "3")
    stage.publish(publisher, "e0")
    stage.wait_ms(80)
    assert stage.hops_of("e0") == [("0", "1"), ("1", "3")]
    stage.world.cut(stage.link("1", "3"), silent=False)
    stage.wait_ms(500)
    assert ("1", "0") in stage.hops_of("e0")
    assert stage.bodies[reader] == []
    let_news_go(stage, "1", "3")
    stage.wait()
    stage.publish(publisher, "e1")
    stage.wait()
    assert stage.bodies[reader] == (["e0", "e1"] if rule is Router else ["e1"])
    assert stage.is_idle()


@pytest.mark.parametrize("rule", [Router, TakesCustody])
def test_a_relay_dies_with_what_it_has_taken(monkeypatch: pytest.MonkeyPatch, rule: type[Router]) -> None:
    """I5: relays keep nothing, so whoever lets go of an event before its end has it depends on their luck."""
    use(monkeypatch, rule)
    stage = Stage(cluster([(0, 1), (1, 2)]), options=Options(wire=False, delay_ns=50 * MILLISECOND_NS))
    reader = stage.subscribe("2")
    stage.wait()
    publisher = stage.attach("0", "p")
    stage.world.cut(stage.link("1", "2"), silent=True)
    stage.publish(publisher, "e0")
    stage.wait_ms(500)
    stage.world.crash(stage.addresses["1"], silent=False)
    stage.world.heal(stage.link("1", "2"))
    stage.wait(SECOND_NS)
    stage.world.start(stage.addresses["1"])
    stage.wait()
    stage.publish(publisher, "e1")
    stage.wait()
    assert stage.bodies[reader] == (["e0", "e1"] if rule is Router else ["e1"])


@pytest.mark.parametrize("rule", [Router, SpreadsTheLoad])
def test_a_path_that_depends_on_the_event(monkeypatch: pytest.MonkeyPatch, rule: type[Router]) -> None:
    """Rule 2, DUP-03: one publisher's events overtake each other, and the end takes the slower ones for had."""
    use(monkeypatch, rule)
    stage = Stage(cluster([(0, 1), (1, 3), (0, 2), (2, 3)]))
    stage.link("0", "2").delay_ns = 200 * MILLISECOND_NS
    reader = stage.subscribe("3")
    stage.wait()
    publisher = stage.attach("0", "p")
    bodies = [f"e{number}" for number in range(8)]
    for body in bodies:
        stage.publish(publisher, body)
        stage.wait_ms(10)
    stage.wait()
    assert stage.bodies[reader] == (bodies if rule is Router else ["e0", "e2", "e4", "e6", "e7"])
    assert stage.is_idle()


@pytest.mark.parametrize("rule", [Router, SendsAgainBackwards, NeverSendsAgain])
def test_what_is_open_goes_again_in_order(monkeypatch: pytest.MonkeyPatch, rule: type[Router]) -> None:
    """Rule 5, DUP-05: three events are on their way when their hop changes; they go first, and in order."""
    use(monkeypatch, rule)
    stage = Stage(cluster([(0, 1), (1, 3), (0, 2), (2, 3)]), options=Options(wire=False, delay_ns=50 * MILLISECOND_NS))
    stage.make_dear("0", "2")
    reader = stage.subscribe("3")
    stage.wait()
    publisher = stage.attach("0", "p")
    for body in ("e0", "e1", "e2"):
        stage.publish(publisher, body)
    stage.wait_ms(20)
    stage.world.cut(stage.link("0", "1"), silent=False)
    for body in ("e3", "e4"):
        stage.publish(publisher, body)
    stage.wait()
    expected = {
        Router: ["e0", "e1", "e2", "e3", "e4"],
        SendsAgainBackwards: ["e2", "e3", "e4"],
        NeverSendsAgain: ["e3", "e4"],
    }
    assert stage.bodies[reader] == expected[rule]


# --- a full link that nobody has been told of ---


def test_a_clogged_link_is_avoided_where_nothing_can_come_back() -> None:
    """Rule 2, RFC 5286: a broker leaves a full link before it may announce it, if the neighbour does not return."""
    stage = Stage(cluster([(0, 1), (0, 2), (1, 2)]))
    reader, publisher = stage.subscribe("1"), stage.attach("0", "p")
    stage.wait()
    link = stage.link("0", "1")
    assert link.session is not None
    stage.world.give(link.a, LinkLoad(link.session.handles[link.a], 0.95))
    stage.publish(publisher, "e0")
    stage.wait_ms(100)
    assert stage.hop("0", "1") == "1", "nothing was announced yet"
    assert [(one, other) for one, other, _ in stage.copies] == [("0", "2"), ("2", "1")]
    assert stage.bodies[reader] == ["e0"]
    stage.world.give(link.a, LinkLoad(link.session.handles[link.a], 0.1))
    stage.publish(publisher, "e1")
    stage.wait_ms(100)
    assert stage.copies[-1][:2] == ("0", "1")
    assert stage.bodies[reader] == ["e0", "e1"]


def test_a_clogged_link_is_used_where_there_is_no_other() -> None:
    stage = Stage(cluster([(0, 1), (1, 2)]))
    reader, publisher = stage.subscribe("2"), stage.attach("0", "p")
    stage.wait()
    link = stage.link("0", "1")
    assert link.session is not None
    stage.world.give(link.a, LinkLoad(link.session.handles[link.a], 0.95))
    stage.publish(publisher, "e0")
    stage.wait_ms(100)
    assert stage.bodies[reader] == ["e0"]
