"""What a broker logs for an absent one and sends on must not be answered by the same log when it comes back."""

from __future__ import annotations

from tests.core.event_world import QUICK, Stage
from veena.core.event_frame import BACKLOG
from veena.core.flight import LOG
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
