"""Clients that come and go: what was published meanwhile is kept for them, wherever they come back."""

from __future__ import annotations

import pytest

from tests.core.durable_world import Reader
from tests.core.event_world import QUICK, Stage, cluster
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.runtime.networks.file import Network, make_network


def two_sites() -> Network:
    """Two super-clusters of two clusters with two brokers each, joined by one link."""
    brokers = [
        f"S.{site}.{name}"
        for site, names in (("A", "wx"), ("B", "yz"))
        for name in names
        for name in (f"{name}.{name}0", f"{name}.{name}1")
    ]
    links = [(f"S.{s}.{c}.{c}0", f"S.{s}.{c}.{c}1") for s, cs in (("A", "wx"), ("B", "yz")) for c in cs]
    between = [("S.A.w.w0", "S.A.x.x0"), ("S.B.y.y0", "S.B.z.z0"), ("S.A.x.x1", "S.B.y.y1")]
    return make_network("two-sites", brokers, [*links, *between])


def publish(stage: Stage, session: int, first: int, count: int) -> list[str]:
    bodies = [f"{n}" for n in range(first, first + count)]
    for body in bodies:
        stage.publish(session, body)
    return bodies


def test_who_was_away_gets_everything_in_order() -> None:
    """FLT-05, CLI-07: offline for 100 matching events, then 100 in order."""
    stage = Stage(cluster([(1, 2), (2, 3)]))
    reader = Reader(stage, "alice")
    reader.attach("1")
    publisher = stage.attach("3", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 5)
    stage.wait()
    assert reader.read() == sent
    reader.leave()
    sent += publish(stage, publisher, 5, 100)
    stage.wait()
    reader.attach("1")
    stage.wait()
    reader.read()
    assert reader.bodies == sent
    assert not any(frame.redelivered for frame in reader.frames)


def test_it_survives_the_crash_of_its_home() -> None:
    """FLT-05, I5: the home is killed with what it keeps, and events come while it is down."""
    stage = Stage(cluster([(1, 2), (2, 3)]))
    reader = Reader(stage, "alice")
    reader.attach("1")
    publisher = stage.attach("3", "publisher")
    stage.wait()
    reader.leave()
    sent = publish(stage, publisher, 0, 20)
    stage.wait()
    stage.world.crash(stage.addresses["1"], silent=True)
    sent += publish(stage, publisher, 20, 20)
    stage.wait(12 * SECOND_NS)
    stage.world.start(stage.addresses["1"])
    sent += publish(stage, publisher, 40, 20)
    stage.wait(10 * SECOND_NS)
    reader.attach("1")
    stage.wait()
    reader.read()
    assert sorted(reader.bodies, key=int) == sent
    assert [body for frame, body in zip(reader.frames, reader.bodies, strict=True) if not frame.late] == [
        body for body in sent if body in {b for f, b in zip(reader.frames, reader.bodies, strict=True) if not f.late}
    ]


@pytest.mark.parametrize("knows_home", [True, False], ids=["knows", "asks"])
def test_offline_for_a_thousand_and_back_at_another_site(knows_home: bool) -> None:
    """CLI-04, CLI-05, FLT-05: 1,000 events, in order, once, at another super-cluster, whether the client knows where
    it was before or not."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice", knows_home=knows_home)
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 10)
    stage.wait()
    reader.leave()
    sent += publish(stage, publisher, 10, 1000)
    stage.wait()
    reader.attach("z1")
    stage.wait(2 * SECOND_NS)
    for _ in range(10):
        reader.read()
        stage.wait(SECOND_NS)
    sent += publish(stage, publisher, 1010, 10)
    stage.wait()
    reader.read()
    assert reader.bodies == sent
    assert not any(frame.late for frame in reader.frames)
    assert stage.broker("w1").statistics().durables.durables == 1, "it is remembered for stragglers"
    assert stage.is_idle()


def test_events_during_the_move_come_once_and_in_order() -> None:
    """Hard cases: a publisher goes on while the client roams from X to Y to Z and back to X."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice")
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    sent: list[str] = []
    for place in ("z0", "y1", "w1", "x1", "z0", "w1"):
        for _ in range(10):
            sent += publish(stage, publisher, len(sent), 3)
            stage.wait_ms(70)
        reader.leave()
        for _ in range(3):
            sent += publish(stage, publisher, len(sent), 3)
            stage.wait_ms(70)
        reader.attach(place)
        for _ in range(20):
            sent += publish(stage, publisher, len(sent), 3)
            stage.wait_ms(70)
            reader.read()
    stage.wait(20 * SECOND_NS)
    reader.read()
    assert sorted(reader.bodies, key=int) == sent, "each once"
    assert [body for body, frame in zip(reader.bodies, reader.frames, strict=True) if not frame.late] == sent


def test_a_home_that_is_down_forwards_when_it_is_back() -> None:
    """X dead: what it keeps comes later, with a mark where it is out of order."""
    stage = Stage(two_sites(), options=QUICK)
    reader = Reader(stage, "alice")
    reader.attach("w1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    reader.leave()
    kept = publish(stage, publisher, 0, 10)
    stage.wait()
    stage.world.crash(stage.addresses["w1"], silent=True)
    stage.wait()
    reader.attach("z1")
    stage.wait(10 * SECOND_NS)
    live = publish(stage, publisher, 10, 10)
    stage.wait()
    assert reader.read() == live, "it does not wait for ever"
    stage.world.start(stage.addresses["w1"])
    stage.wait(15 * SECOND_NS)
    assert reader.read() == kept
    assert all(frame.late for frame in reader.frames[10:])


def test_manual_acknowledgement_and_redelivery() -> None:
    """What was not acknowledged comes again, marked; what was does not."""
    stage = Stage(cluster([(1, 2)]))
    reader = Reader(stage, "alice", ack="manual", remembers=False)
    reader.acknowledges = False
    reader.attach("1")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 6)
    stage.wait()
    frames = stage.frames[reader.session]
    assert reader.read() == sent
    reader.acknowledge([frames[0].id, frames[2].id, frames[3].id])
    reader.leave()
    reader.attach("1")
    stage.wait()
    again = stage.frames[reader.session]
    assert [bytes(frame.body).decode() for frame in again] == ["1", "4", "5"]
    assert all(frame.redelivered for frame in again)


def test_what_is_not_acknowledged_waits_in_the_log() -> None:
    """QOS: the window of a reader that does not acknowledge is bounded, and nothing is lost."""
    stage = Stage(cluster([(1, 2)]), options=QUICK)
    reader = Reader(stage, "alice")
    reader.acknowledges = False
    reader.attach("1")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 3000)
    stage.wait()
    assert len(stage.frames[reader.session]) == 1024
    reader.acknowledges, reader._seen = True, 0
    for _ in range(8):
        reader.read()
        stage.wait()
    assert reader.bodies == sent


def test_two_devices_of_one_client() -> None:
    """CLI-02: both get what comes while both are there, each once; what one acknowledged a third is not given."""
    stage = Stage(cluster([(1, 2)]))
    one, two = Reader(stage, "alice"), Reader(stage, "alice")
    one.attach("1")
    two.attach("1")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 5)
    stage.wait()
    assert one.read() == sent
    assert two.read() == sent
    three = Reader(stage, "alice")
    three.attach("1")
    stage.wait()
    assert three.read() == []


def test_another_constraint_keeps_the_cursor_and_forget_ends_it() -> None:
    """Design §9: another constraint under a name replaces it and keeps the cursor; delete ends it."""
    stage = Stage(cluster([(1, 2)]))
    reader = Reader(stage, "alice")
    reader.attach("1")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    reader.leave()
    sent = publish(stage, publisher, 0, 3)
    stage.wait()
    reader.constraint = "news"
    reader.attach("1")
    stage.wait()
    publish(stage, publisher, 3, 3)
    stage.wait()
    assert reader.read() == sent
    reader.forget()
    stage.wait()
    assert stage.broker("1").statistics().durables.durables == 0
    assert stage.broker("1").profiles.statistics().subscriptions == 0


def test_names_are_checked_and_internal_ids_refused() -> None:
    """A client's mistake is refused with its reason."""
    settings = Settings()
    stage = Stage(cluster([(1, 2)]), settings=settings)
    refusals: list[str] = []
    heard = stage.world.on_client
    assert heard is not None

    def listen(address: tuple[int, ...], effect: object) -> None:
        if hasattr(effect, "reason"):
            refusals.append(effect.reason)
        heard(address, effect)  # type: ignore[arg-type]

    stage.world.on_client = listen
    reader = Reader(stage, "alice", "a >", engine="selector")
    reader.attach("1")
    assert len(refusals) == 1
    assert stage.broker("1").statistics().durables.durables == 0
    with pytest.raises(KeyError):
        stage.attach("1", "~home/bob")
    assert "begin with ~" in refusals[1]
