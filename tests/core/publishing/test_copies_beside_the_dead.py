"""With `copies = 2` a dead or slow broker holds up nobody: what it alone lacks is bounded, the oldest is given up."""

from __future__ import annotations

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.scripted_events import (
    accepted,
    asked,
    numbers,
    origin,
    patient,
    peer,
    publication,
    publish,
    released,
)
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.wire.control import Done
from veena.core.wire.event import LATE
from veena.runtime.networks.file import make_network
from veena.sim.world.options import Options

TWO = patient(copies=2, takeover_ns=5 * SECOND_NS, absent_after_ns=5 * SECOND_NS)
#: Copies for the absent, and all that a holder keeps; far fewer than are published here.
FOR_ABSENT, KEPT = 10, 100
EVENTS = 161
#: An absence is noticed after so long, and what is given up then is forgotten.
NOTICED_NS = 16 * SECOND_NS


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veena.core.publishing.replica_sender.MAX_FOR_ABSENT", FOR_ABSENT)
    monkeypatch.setattr("veena.core.publishing.replica_holder.MAX_KEPT", KEPT)


def three_mates() -> tuple[Stage, int, int]:
    """Three brokers, all linked; a publisher at 0 and a reader at 2."""
    options = Options(wire=False, dial=False)  # or who is cut off would find the others by itself
    stage = Stage(cluster([(0, 1), (0, 2), (1, 2)]), options=options, settings=Settings("small", copies=2))
    reader, publisher = stage.subscribe("2"), stage.attach("0", "p")
    stage.wait()
    return stage, reader, publisher


def separate(stage: Stage) -> None:
    """2 is out of reach, and everybody knows."""
    for other in ("0", "1"):
        stage.world.cut(stage.link(other, "2"), silent=False)
    stage.wait(SECOND_NS)


def publish_steadily(stage: Stage, publisher: int, pause_ms: int = 200) -> list[str]:
    bodies = [f"e{number}" for number in range(EVENTS)]
    for body in bodies:
        stage.publish(publisher, body)
        stage.wait_ms(pause_ms)
    stage.wait(NOTICED_NS)
    return bodies


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize(("pause_ms", "kept"), [(200, KEPT), (50, KEPT), (1, KEPT), (100, 30)])
def test_publishers_go_on_beside_a_dead_mate(pause_ms: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hard cases, dead broker, FLT-04: it counts as wanting all, and does not fill the holders of its mates for good,
    whether or not they are full before its death is noticed."""
    monkeypatch.setattr("veena.core.publishing.replica_holder.MAX_KEPT", kept)
    stage, _, publisher = three_mates()
    stage.world.crash(stage.addresses["2"], silent=True)
    publish_steadily(stage, publisher, pause_ms)
    stage.wait(20 * SECOND_NS)
    assert len(stage.accepted) == EVENTS
    told = stage.broker("0").statistics().copies
    assert (told.waiting, told.held, told.given_up) == (0, FOR_ABSENT, EVENTS - FOR_ABSENT)
    assert stage.broker("1").statistics().copies.kept == FOR_ABSENT


@pytest.mark.usefixtures("small_bounds")
def test_who_was_out_of_reach_gets_all_of_it() -> None:
    """I1: what was given up is on the origin's disk still; and nothing is held when all is served."""
    stage, reader, publisher = three_mates()
    separate(stage)
    bodies = publish_steadily(stage, publisher)
    assert len(stage.accepted) == EVENTS
    for other in ("0", "1"):
        stage.world.heal(stage.link(other, "2"))
    stage.wait(20 * SECOND_NS)
    assert stage.bodies[reader] == bodies
    assert stage.broker("0").statistics().copies.held == stage.broker("1").statistics().copies.kept == 0
    assert stage.is_idle()


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("how", ["lost", "killed", "cut off"])
def test_the_newest_come_from_their_holder_the_rest_when_the_origin_is_back(how: str) -> None:
    """I5 with `copies = 2`, and its bound: while 2 is out of reach the origin goes too. Its holder has the newest,
    and publishes them; what the origin brings later is older, and was not had."""
    stage, reader, publisher = three_mates()
    separate(stage)
    bodies = publish_steadily(stage, publisher)
    if how == "cut off":
        stage.world.cut(stage.link("0", "1"), silent=False)
    else:
        stage.world.crash(stage.addresses["0"], silent=False)
    stage.wait(10 * SECOND_NS)
    stage.world.heal(stage.link("1", "2"))
    stage.wait(20 * SECOND_NS)
    assert stage.bodies[reader] == bodies[-FOR_ABSENT:]
    if how == "lost":
        return
    if how == "killed":
        stage.world.start(stage.addresses["0"])
    for other in ("1", "2"):
        stage.world.heal(stage.link("0", other))
    stage.wait(30 * SECOND_NS)
    assert sorted(stage.bodies[reader]) == sorted(bodies)
    assert all(frame.flags & LATE for frame in stage.frames[reader][FOR_ABSENT:])
    stage.publish(stage.attach("0", "q"), "later")
    stage.wait(5 * SECOND_NS)
    assert stage.bodies[reader][-1] == "later"


@pytest.mark.usefixtures("small_bounds")
def test_a_slow_mate_counts_as_absent() -> None:
    """Hard cases, slow broker: its link is open, and it answers nothing."""
    host, slow, incarnation = origin(TWO)
    holder = peer(host, 3)
    slow.wants("quotes")
    holder.wants("alerts")
    host.sync()
    taken: list[int] = []
    effects: list[Effect] = []
    kept = 0
    for sequence in range(1, EVENTS + 1):
        now_ns = sequence * SECOND_NS
        effects = [*publish(host, 1, publication(sequence, incarnation), now_ns=now_ns), *host.run(now_ns, now_ns)]
        for number in asked(effects, holder):
            taken += accepted(holder.hand(Done(((number, number),)), now_ns=now_ns))
            kept += 1
        kept -= len(released(effects, holder))
        assert kept <= FOR_ABSENT + 16
    told = host.statistics().copies
    assert told.waiting <= 1 and len(taken) >= EVENTS - 6, "all but what the slow one was asked to hold at first"
    assert told.given_up >= EVENTS - FOR_ABSENT - 16


@pytest.mark.usefixtures("small_bounds")
def test_what_somebody_present_lacks_is_not_given_up() -> None:
    """I5: of what a unit in reach has yet to get two disks have it, however much and however late that is: one that
    gets on is not absent."""
    host, slow, incarnation = origin(TWO)
    away, holder = peer(host, 3), peer(host, 1)
    slow.wants("quotes")
    away.wants("quotes")
    holder.wants("alerts")
    host.sync()
    away.leave()
    taken: list[int] = []
    gone: list[int] = []
    for sequence in range(1, KEPT):
        effects = publish(host, 1, publication(sequence, incarnation))
        for number in asked(effects, holder):
            effects = holder.hand(Done(((number, number),)))
            assert accepted(effects) == [sequence]
            taken += numbers(effects, slow.link)
    assert host.statistics().copies.held == len(taken) == KEPT - 1
    for served, number in enumerate(taken, 1):  # one in four seconds
        now_ns = 4 * served * SECOND_NS
        gone += released(host.run(now_ns - 4 * SECOND_NS, now_ns), holder)
        assert len(gone) <= max(0, served - 1 - FOR_ABSENT), "only what the slow one has"
        slow.hand(Done(((number, number),)), now_ns=now_ns)
    end_ns = 4 * KEPT * SECOND_NS
    gone += released(host.run(end_ns, end_ns + 4 * SECOND_NS), holder)
    assert gone == list(range(1, KEPT - FOR_ABSENT))


@pytest.mark.usefixtures("small_bounds")
def test_the_living_of_a_cluster_with_a_dead_broker_are_present() -> None:
    """I5: who entered b answers for its dead only after a while. b2 lives, and lacks what waits behind that: when the
    origin is lost it gets it from the holder."""
    names = ["S.C.a.a1", "S.C.a.a2", "S.C.b.b1", "S.C.b.b2", "S.C.b.b3"]
    a1, a2, b1, b2, b3 = names
    links = [(a1, a2), (a1, b1), (b1, b2), (b1, b3), (b2, b3), (a2, b2)]
    stage = Stage(
        make_network("small", names, links),
        options=Options(wire=False, dial=False),
        settings=Settings("small", copies=2),
    )
    reader, publisher = stage.subscribe("b2"), stage.attach("a1", "p")
    stage.wait()
    stage.world.crash(stage.addresses["b3"], silent=False)
    stage.wait(8 * SECOND_NS)
    bodies = [f"e{number}" for number in range(KEPT - 1)]
    for body in bodies:
        stage.publish(publisher, body)
        stage.wait_ms(100)
    assert len(stage.accepted) == len(bodies)
    stage.world.crash(stage.addresses["a1"], silent=False)
    stage.wait(60 * SECOND_NS)
    assert stage.bodies[reader] == bodies


@pytest.mark.usefixtures("small_bounds")
def test_a_link_that_comes_and_goes_leaves_no_copies_behind() -> None:
    """`replica_sender`: a holder that has no link just then is told later what it may forget."""
    stage = Stage(
        cluster([(0, 1), (0, 2), (0, 3), (1, 2)]),
        options=Options(wire=False, dial=False),
        settings=Settings("small", copies=2),
    )
    stage.world.crash(stage.addresses["3"], silent=False)
    stage.wait(NOTICED_NS)
    publisher = stage.attach("0", "p")
    for flap in range(12):
        for number in range(KEPT // 5):
            stage.publish(publisher, f"{flap}.{number}")
        stage.wait(NOTICED_NS)
        link = stage.link("0", ("1", "2")[flap % 2])
        stage.world.cut(link, silent=False)
        stage.wait(2 * SECOND_NS)
        stage.world.heal(link)
        stage.wait(2 * SECOND_NS)
    stage.wait(NOTICED_NS)
    assert len(stage.accepted) == 12 * (KEPT // 5)
    told = {name: stage.broker(name).statistics().copies for name in "012"}
    assert told["1"].kept + told["2"].kept == told["0"].held == FOR_ABSENT


def test_copies_are_asked_for_in_a_ring() -> None:
    """`replica_sender`: of a cluster whose brokers are all linked, none holds the copies of everybody."""
    stage = Stage(
        cluster([(one, other) for one in range(4) for other in range(one)]), settings=Settings("small", copies=2)
    )
    stage.subscribe("3")
    stage.wait()
    publishers = [stage.attach(str(name), f"p{name}") for name in range(4)]
    for publisher in publishers:
        stage.publish(publisher, "e")
    stage.wait_ms(200)
    kept = {name: stage.world.nodes[stage.addresses[name]].disk.kept.values() for name in "0123"}
    askers = {name: [stage.names[frame.origin_address or ()] for frame in frames] for name, frames in kept.items()}
    assert askers == {"1": ["0"], "2": ["1"], "3": ["2"], "0": ["3"]}


def test_who_holds_a_copy_again_is_not_told_to_forget_it() -> None:
    """I5: 1 holds e0, then 2 does while 1 has no link, then 1 again. What 1 was to be told meanwhile is void."""
    stage = Stage(
        cluster([(0, 1), (0, 2), (0, 3), (1, 2)]),
        options=Options(wire=False, dial=False),
        settings=Settings("small", copies=2),
    )
    stage.world.cut(stage.link("0", "3"), silent=False)
    stage.wait(SECOND_NS)
    stage.publish(stage.attach("0", "p"), "e0")
    for lost in ("1", "2"):
        stage.wait(3 * SECOND_NS)
        stage.world.cut(stage.link("0", lost), silent=False)
    stage.wait(SECOND_NS)
    stage.world.heal(stage.link("0", "1"))
    stage.wait(5 * SECOND_NS)
    assert stage.broker("0").statistics().copies.held == stage.broker("1").statistics().copies.kept == 1
