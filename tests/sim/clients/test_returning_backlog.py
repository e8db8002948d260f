"""What a broker logs for an absent one: how it gets there when that is back, and what it must not hold up meanwhile."""

from __future__ import annotations

import pytest

from tests.core.durable_world import Reader
from tests.core.event_world import QUICK, Stage
from tests.sim.clients.test_durable import publish
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.delivery.in_flight import LOG
from veena.core.publishing import log as origin
from veena.core.routing import router
from veena.core.wire.event import BACKLOG
from veena.event import Event
from veena.runtime.networks.file import make_network


def test_a_copy_of_the_backlog_that_comes_back_waits() -> None:
    """Rule 4: maps differ for a moment, and a neighbour returns what it was sent. It is a claim: were it acknowledged,
    the neighbour would answer in turn, and nobody has the event."""
    names = ["S.C.a.a1", "S.C.b.b1", "S.C.b.b2", "S.C.b.b3"]
    links = [("S.C.a.a1", "S.C.b.b1"), ("S.C.b.b1", "S.C.b.b2"), ("S.C.b.b1", "S.C.b.b3"), ("S.C.b.b2", "S.C.b.b3")]
    stage = Stage(make_network("returning", names, links), options=QUICK)
    stage.subscribe("b2")
    publisher = stage.attach("a1", "publisher")
    stage.wait()
    stage.world.crash(stage.addresses["b2"], silent=False)
    stage.publish(publisher, "kept")
    stage.wait(10 * SECOND_NS)
    router = stage.broker("b1").events.router
    (flight,) = [each for each in router.duties.flights() if each.adopted]
    duty = router.bit(stage.addresses["b2"])
    assert [claim.source for claim in flight.claims] == [LOG]
    hop = stage.broker("b1").hops.hop(stage.addresses["b3"])
    assert hop is not None

    outside = stage.broker("b1").hops.hop(stage.addresses["a1"][:3])
    assert outside is not None
    first = flight.frame.copy(router.bit(stage.addresses["b1"][:3]), flight.frame.served, flight.frame.ttl_ms)
    router.take(outside.connection, 1000, first, stage.world.now_ns)
    assert [claim.source for claim in flight.claims] == [LOG], "who has it found here is answered by the log"
    again = flight.frame.copy(duty, flight.frame.served, flight.frame.ttl_ms)
    router.take(hop.connection, 1001, again, stage.world.now_ns)
    assert [claim.source for claim in flight.claims] == [LOG, hop.connection], "sent before it was in the log, perhaps"
    again.flags |= BACKLOG
    router.take(hop.connection, 1002, again, stage.world.now_ns)
    assert [claim.source for claim in flight.claims] == [LOG, hop.connection, hop.connection]

    stage.world.start(stage.addresses["b2"])
    stage.wait(10 * SECOND_NS)
    assert flight.open == 0


def test_a_long_backlog_goes_before_what_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """I1, FLT-05: what a broker logs for an absent unit is more than a window. When the unit is back, nothing that came
    within the last seconds, and is not in the log yet, overtakes what is."""
    monkeypatch.setattr(origin, "WINDOW", 1024)
    names = ["S.A.a.a1", "S.B.b.b1", "S.B.c.c1"]
    links = [("S.A.a.a1", "S.B.b.b1"), ("S.B.b.b1", "S.B.c.c1")]
    stage = Stage(make_network("returning", names, links), options=QUICK)
    reader = stage.subscribe("c1")
    publisher, other = stage.attach("a1", "publisher"), stage.attach("b1", "other")
    stage.wait()
    stage.world.cut(stage.link("b1", "c1"), silent=False)
    sent: dict[int, list[str]] = {publisher: [], other: []}
    for n in range(2 * origin.WINDOW):
        for session, bodies in sent.items():
            bodies.append(f"{session}.{n}")
            stage.publish(session, bodies[-1])
        stage.wait_ms(8)
    stage.world.heal(stage.link("b1", "c1"))
    stage.wait(20 * SECOND_NS)
    for session, bodies in sent.items():
        assert [body for body in stage.bodies[reader] if body.startswith(f"{session}.")] == bodies
    assert stage.broker("c1").events.ends.statistics().late == 0


def test_what_came_before_a_crash_and_was_overtaken_is_not_taken_for_had() -> None:
    """I1, I5: b1 has a backlog for b2 and is dead when that is back, which goes on with what b3 brings and is killed in
    turn. When b1 is back at last, its backlog is older than the last that b2 had in its former life."""
    names = ["S.C.a.a1", "S.C.b.b1", "S.C.b.b2", "S.C.b.b3"]
    links = [("S.C.a.a1", "S.C.b.b1"), ("S.C.a.a1", "S.C.b.b3"), ("S.C.b.b1", "S.C.b.b2"), ("S.C.b.b2", "S.C.b.b3")]
    stage = Stage(make_network("returning", names, links), options=QUICK)
    reader = Reader(stage, "alice")
    reader.attach("b2")
    publisher = stage.attach("a1", "publisher")
    stage.wait()
    reader.leave()
    stage.world.crash(stage.addresses["b2"], silent=False)
    stage.wait_ms(100)
    publish(stage, publisher, 0, 5)
    stage.wait(8 * SECOND_NS)
    stage.world.crash(stage.addresses["b1"], silent=False)
    stage.world.start(stage.addresses["b2"])
    stage.wait(8 * SECOND_NS)
    reader.attach("b2")
    publish(stage, publisher, 5, 5)
    stage.wait(10 * SECOND_NS)
    assert reader.read() == ["5", "6", "7", "8", "9"]
    reader.leave()
    stage.world.crash(stage.addresses["b2"], silent=False)
    stage.wait()
    stage.world.start(stage.addresses["b2"])
    stage.wait(8 * SECOND_NS)
    reader.attach("b2")
    stage.world.start(stage.addresses["b1"])
    stage.wait(20 * SECOND_NS)
    assert reader.read() == ["0", "1", "2", "3", "4"]
    marks = [(frame.late, frame.redelivered) for frame in reader.frames]
    assert marks == [(False, False)] * 5 + [(True, True)] * 5, "whether it was had nobody knows"
    stage.world.crash(stage.addresses["b2"], silent=False)
    stage.world.start(stage.addresses["b2"])
    stage.wait(20 * SECOND_NS)
    assert reader.read() == []


def test_an_absent_unit_keeps_no_other_one_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-03: what waits for c1 takes all the room that it may have; d1, whose link blinked, is opened again."""
    monkeypatch.setattr(router, "MAX_FLIGHTS", 256)
    monkeypatch.setattr(origin, "WINDOW", 16)
    names = ["S.A.a.a1", "S.A.b.b1", "S.A.b.c1", "S.A.d.d1"]
    links = [("S.A.a.a1", "S.A.b.b1"), ("S.A.b.b1", "S.A.b.c1"), ("S.A.b.b1", "S.A.d.d1")]
    stage = Stage(make_network("returning", names, links), options=QUICK)
    stage.subscribe("c1")
    reader = stage.subscribe("d1", "other")
    near, far = stage.attach("b1", "near"), stage.attach("a1", "far")
    stage.wait()
    stage.world.crash(stage.addresses["c1"], silent=False)
    for n in range(300):
        stage.publish(near, f"{n}")
        stage.wait_ms(20)
    stage.wait(10 * SECOND_NS)
    sent = [f"x{n}" for n in range(100)]
    for n, body in enumerate(sent):
        if n in (50, 55):
            (stage.world.heal if n == 55 else lambda link: stage.world.cut(link, silent=False))(stage.link("b1", "d1"))
        stage.publish(far, body, Event(topic="other"))
        stage.wait_ms(1)
    stage.wait(30 * SECOND_NS)
    assert stage.broker("b1").events.router.statistics.refused > 0
    assert stage.bodies[reader] == sent


def test_an_absent_unit_stops_no_publisher_before_the_log_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-03: of what a broker may have accepted and not delivered the absent take a part, and the log the rest."""
    monkeypatch.setattr(origin, "WINDOW", 64)
    links = [("S.A.a.a1", "S.B.b.b1"), ("S.A.a.a1", "S.A.d.d1")]
    network = make_network("returning", ["S.A.a.a1", "S.B.b.b1", "S.A.d.d1"], links)
    stage = Stage(network, options=QUICK, settings=Settings(max_open=400))
    stage.subscribe("b1")
    reader, publisher = stage.subscribe("d1"), stage.attach("a1", "publisher")
    stage.wait()
    stage.world.crash(stage.addresses["b1"], silent=False)
    for n in range(1000):
        stage.publish(publisher, f"{n}")
        stage.wait_ms(10)
    stage.wait()
    assert len(stage.bodies[reader]) == 1000 and not stage.refused
