"""With `copies = 2` a dead or slow broker holds up nobody: what it alone lacks is bounded, the oldest is given up."""

from __future__ import annotations

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.scripted_events import (
    EventPeer,
    accepted,
    copies,
    frames,
    numbers,
    origin,
    patient,
    peer,
    publication,
    publish,
)
from veena.core.boundary import Effect
from veena.core.event_frame import COPY
from veena.core.frames import Done, Release
from veena.core.settings import SECOND_NS, Settings
from veena.sim.options import Options

TWO = patient(copies=2, takeover_ns=5 * SECOND_NS, absent_after_ns=5 * SECOND_NS)
#: Copies for the absent, and all that a holder keeps; far fewer than are published here.
FOR_ABSENT, KEPT = 10, 30
EVENTS = 61


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veena.core.copies.MAX_FOR_ABSENT", FOR_ABSENT)
    monkeypatch.setattr("veena.core.copies_kept.MAX_KEPT", KEPT)


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


def publish_steadily(stage: Stage, publisher: int, count: int = EVENTS) -> list[str]:
    bodies = [f"e{number}" for number in range(count)]
    for body in bodies:
        stage.publish(publisher, body)
        stage.wait_ms(200)
    stage.wait(8 * SECOND_NS)
    return bodies


def released(effects: list[Effect], holder: EventPeer) -> list[int]:
    """The sequences of the events whose copies a neighbour may forget."""
    told = frames(effects, holder.link, Release)
    return [sequence for frame in told if isinstance(frame, Release) for *_, sequence in frame.ids]


@pytest.mark.usefixtures("small_bounds")
def test_publishers_go_on_beside_a_dead_mate() -> None:
    """Hard cases, dead broker, FLT-04: it counts as wanting all, and its mates' holders do not fill up with it."""
    stage, _, publisher = three_mates()
    stage.world.crash(stage.addresses["2"], silent=True)
    stage.wait(8 * SECOND_NS)
    publish_steadily(stage, publisher)
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
def test_the_newest_survive_the_loss_of_a_disk_meanwhile() -> None:
    """I5 with `copies = 2`, and its bound: the origin is lost for good while 2 is out of reach."""
    stage, reader, publisher = three_mates()
    separate(stage)
    bodies = publish_steadily(stage, publisher)
    stage.world.crash(stage.addresses["0"], silent=False)
    stage.wait(10 * SECOND_NS)
    stage.world.heal(stage.link("1", "2"))
    stage.wait(20 * SECOND_NS)
    assert stage.bodies[reader] == bodies[-FOR_ABSENT:]


@pytest.mark.usefixtures("small_bounds")
def test_a_slow_mate_counts_as_absent() -> None:
    """Hard cases, slow broker: its link is open, and it has not answered for five seconds."""
    host, slow, incarnation = origin(TWO)
    holder = peer(host, 3)
    slow.wants("quotes")
    holder.wants("alerts")
    host.sync()
    kept = 0
    for sequence in range(1, EVENTS + 1):
        now_ns = sequence * SECOND_NS
        effects = [*publish(host, 1, publication(sequence, incarnation), now_ns=now_ns), *host.run(now_ns, now_ns)]
        for number in [number for number, frame in copies(effects, holder.link) if frame.flags & COPY]:
            holder.hand(Done(((number, number),)), now_ns=now_ns)
            kept += 1
        kept -= len(released(effects, holder))
        assert kept <= KEPT
    told = host.statistics().copies
    assert (told.waiting, told.given_up > 0, told.held <= FOR_ABSENT + 6) == (0, True, True)


@pytest.mark.usefixtures("small_bounds")
def test_what_somebody_present_lacks_is_not_given_up() -> None:
    """I5: of what a unit in reach has yet to get, two disks have it, however much that is."""
    host, down, incarnation = origin(TWO)
    away, holder = peer(host, 3), peer(host, 4)
    down.wants("quotes")
    away.wants("quotes")
    holder.wants("alerts")
    host.sync()
    away.leave()
    taken: list[int] = []
    for sequence in range(1, KEPT):
        effects = publish(host, 1, publication(sequence, incarnation))
        (number,) = (number for number, frame in copies(effects, down.link) if frame.flags & COPY)
        effects = down.hand(Done(((number, number),)))
        assert accepted(effects) == [sequence]
        taken += numbers(effects, down.link)
    effects = host.run(0, 3 * SECOND_NS)
    assert released(effects, down) == []
    assert host.statistics().copies.held == KEPT - 1
    effects = down.hand(Done(((taken[0], taken[-1]),)), now_ns=3 * SECOND_NS)
    effects += host.run(3 * SECOND_NS, 6 * SECOND_NS)
    assert released(effects, down) == list(range(1, KEPT - FOR_ABSENT))


def test_copies_are_asked_for_in_a_ring() -> None:
    """`copies`: of a cluster whose brokers are all linked, none holds the copies of everybody."""
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
