"""What a client says it has had is noted: a home that died with its records can still tell that the event got there."""

from __future__ import annotations

from tests.core.durable_world import Reader
from tests.core.event_world import Stage, cluster
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.wire.event_id import event_key
from veena.core.wire.trace_facts import What


def test_what_a_client_had_is_noted_when_its_home_had_not_written_that_down() -> None:
    """I5: three events are handed over, the home is killed before it knows how far its client is, and comes back."""
    stage = Stage(cluster([(1, 2)]), settings=Settings(records="all"))
    reader = Reader(stage, "alice")
    reader.attach("1")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    sent = [f"{number}" for number in range(3)]
    for body in sent:
        stage.publish(publisher, body)
    stage.wait_ms(200)
    assert reader.read() == sent
    stage.world.crash(stage.addresses["1"], silent=False)
    reader.session = 0
    stage.wait(2 * SECOND_NS)
    stage.world.start(stage.addresses["1"])
    stage.wait(5 * SECOND_NS)
    reader.attach("1")
    stage.wait(5 * SECOND_NS)
    assert reader.read() == []
    records = stage.broker("1").events.records
    for frame in reader.frames:
        found = records.find(event_key(frame))
        assert found is not None
        assert "alice" in [fact.client for fact in found.facts if fact.what is What.HAD and fact.session > 0]
