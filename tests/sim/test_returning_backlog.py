"""What a broker logs for an absent one and sends on must not be answered by the same log when it comes back."""

from __future__ import annotations

from tests.core.event_world import QUICK, Stage
from veena.core.event_frame import BACKLOG
from veena.core.flight import LOG
from veena.core.origin import WINDOW
from veena.core.settings import SECOND_NS
from veena.runtime.network_file import make_network


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


def test_a_long_backlog_goes_before_what_came_later() -> None:
    """I1, FLT-05: what a broker logs for an absent unit is more than a window. When the unit is back, nothing that came
    within the last seconds, and is not in the log yet, overtakes what is."""
    names = ["S.A.a.a1", "S.B.b.b1", "S.B.c.c1"]
    links = [("S.A.a.a1", "S.B.b.b1"), ("S.B.b.b1", "S.B.c.c1")]
    stage = Stage(make_network("returning", names, links), options=QUICK)
    reader = stage.subscribe("c1")
    publisher, other = stage.attach("a1", "publisher"), stage.attach("b1", "other")
    stage.wait()
    stage.world.cut(stage.link("b1", "c1"), silent=False)
    sent: dict[int, list[str]] = {publisher: [], other: []}
    for n in range(2 * WINDOW):
        for session, bodies in sent.items():
            bodies.append(f"{session}.{n}")
            stage.publish(session, bodies[-1])
        stage.wait_ms(8)
    stage.world.heal(stage.link("b1", "c1"))
    stage.wait(20 * SECOND_NS)
    for session, bodies in sent.items():
        assert [body for body in stage.bodies[reader] if body.startswith(f"{session}.")] == bodies
    assert stage.broker("c1").events.ends.statistics().late == 0
