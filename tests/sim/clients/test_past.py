"""Subscriptions that want their past as well: joined to what comes, without gap or repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.durable_world import Reader
from tests.core.event_world import QUICK, Stage, cluster
from tests.sim.clients.test_durable import publish, two_sites
from veena.core.boundary.clients import CaughtUp
from veena.core.boundary.inputs_effects import ClientDown, Subscribe
from veena.core.boundary.settings import SECOND_NS


class Listener:
    """Hears what brokers tell clients, beside the stage itself."""

    def __init__(self, stage: Stage) -> None:
        self.caught_up: list[CaughtUp] = []
        before = stage.world.on_client

        def hear(address: tuple[int, ...], effect: object) -> None:
            if isinstance(effect, CaughtUp):
                self.caught_up.append(effect)
            assert before is not None
            before(address, effect)  # type: ignore[arg-type]

        stage.world.on_client = hear


def subscribe_since(stage: Stage, at: str, since_ns: int, scope: int = 4) -> int:
    session = stage.attach(at, f"late-{at}-{stage.world.now_ns}")
    given = Subscribe(session, 1, "topic", "quotes", scope, since_ns=since_ns)
    stage.world.give(stage.addresses[at], given)
    return session


def test_since_is_joined_to_live_without_gap_or_repeat() -> None:
    """Design §7: every origin streams from T on, then live follows, while publishers go on."""
    stage = Stage(two_sites(), options=QUICK)
    heard = Listener(stage)
    publishers = {name: stage.attach(name, f"publisher-{name}") for name in ("x0", "z1")}
    stage.wait()
    sent: dict[str, list[str]] = {name: [] for name in publishers}

    def tell(rounds: int) -> None:
        for _ in range(rounds):
            for name, session in publishers.items():
                body = f"{name}:{len(sent[name])}"
                stage.publish(session, body)
                sent[name].append(body)
            stage.wait_ms(40)

    tell(20)
    since_ns = stage.world.now_ns
    skipped = len(sent["x0"])
    tell(50)
    session = subscribe_since(stage, "w1", since_ns)
    tell(150)
    stage.wait(5 * SECOND_NS)
    for name in publishers:
        got = [body for body in stage.bodies[session] if body.startswith(name)]
        assert got == sent[name][skipped:]
    assert not any(frame.late for frame in stage.frames[session])
    assert [(each.session, each.silent, each.gone_ns) for each in heard.caught_up] == [(session, (), 0)]
    stage.wait(20 * SECOND_NS)
    statistics = stage.broker("w1").statistics()
    assert statistics.durables.durables == 0, "it is an ordinary subscription now"
    assert statistics.profiles.subscriptions == 1


def test_a_durable_subscription_with_a_past() -> None:
    """`durable` and `since` together: the past first, then what comes, also while it is away."""
    stage = Stage(cluster([(1, 2), (2, 3)]))
    publisher = stage.attach("3", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 10)
    stage.wait()
    reader = Reader(stage, "alice", since_ns=0)
    reader.attach("1")
    stage.wait(5 * SECOND_NS)
    sent += publish(stage, publisher, 10, 10)
    stage.wait()
    reader.leave()
    sent += publish(stage, publisher, 20, 10)
    stage.wait()
    reader.attach("1")
    stage.wait()
    reader.read()
    assert reader.bodies == sent, "and the past is not asked for twice"


def test_units_that_do_not_answer_are_named() -> None:
    """A site that is cut off: the rest of the past comes, and the client is told what is not there."""
    stage = Stage(two_sites(), options=replace(QUICK, dial=False))
    heard = Listener(stage)
    publishers = {name: stage.attach(name, f"publisher-{name}") for name in ("x0", "z1")}
    stage.wait()
    for name, session in publishers.items():
        publish(stage, session, 0 if name == "x0" else 100, 5)
    stage.wait()
    stage.world.cut(stage.link("x1", "y1"), silent=True)
    session = subscribe_since(stage, "w1", 0)
    stage.wait(60 * SECOND_NS)
    assert stage.bodies[session] == ["0", "1", "2", "3", "4"]
    (told,) = heard.caught_up
    assert told.silent == (stage.addresses["z1"][:2],)
    stage.world.heal(stage.link("x1", "y1"))
    stage.wait(30 * SECOND_NS)
    assert len(stage.bodies[session]) == 5, "it was told that this part is not to come"
    publish(stage, publishers["z1"], 105, 1)
    stage.wait()
    assert stage.bodies[session][5:] == ["105"]


def test_scope_limits_the_past_as_it_limits_the_present() -> None:
    """A cluster's subscription gets the cluster's past."""
    stage = Stage(two_sites(), options=QUICK)
    near, far = stage.attach("w0", "near"), stage.attach("x0", "far")
    stage.wait()
    publish(stage, near, 0, 3)
    publish(stage, far, 100, 3)
    stage.wait()
    session = subscribe_since(stage, "w1", 0, scope=1)
    stage.wait(5 * SECOND_NS)
    assert stage.bodies[session] == ["0", "1", "2"]


def test_a_client_that_goes_meanwhile_leaves_nothing_behind() -> None:
    stage = Stage(cluster([(1, 2)]))
    publisher = stage.attach("2", "publisher")
    publish(stage, publisher, 0, 3)
    stage.wait()
    session = subscribe_since(stage, "1", 0)
    stage.world.give(stage.addresses["1"], ClientDown(session))
    stage.wait(20 * SECOND_NS)
    statistics = stage.broker("1").statistics()
    assert statistics.durables.durables == statistics.profiles.subscriptions == 0
    assert stage.bodies[session] == []


def test_a_broker_that_answers_late_is_not_left_out() -> None:
    """Somebody in every unit has answered, and one further away has not: what it sends then comes all the same."""
    stage = Stage(two_sites(), options=replace(QUICK, dial=False))
    heard = Listener(stage)
    publishers = {name: stage.attach(name, f"publisher-{name}") for name in ("y1", "z1")}
    stage.wait()
    for at, session in enumerate(publishers.values()):
        publish(stage, session, 100 * at, 3)
    stage.wait()
    slow = [link for link in stage.world.links if stage.addresses["z1"] in (link.a, link.b)]
    for link in slow:
        link.slowness = 900
    session = subscribe_since(stage, "w1", 0)
    stage.wait(30 * SECOND_NS)
    assert sorted(stage.bodies[session], key=int) == ["0", "1", "2", "100", "101", "102"]
    (told,) = heard.caught_up
    assert told.silent == ()


def test_what_is_older_than_the_past_and_comes_later_is_marked() -> None:
    """An event of before the time asked for waited for a broker that was cut off; later ones came from the log."""
    stage = Stage(cluster([(1, 2)]), options=replace(QUICK, dial=False))
    publisher = stage.attach("2", "publisher")
    early = stage.attach("1", "early")
    stage.world.give(stage.addresses["1"], Subscribe(early, 1, "topic", "quotes", 4))
    stage.wait()
    link = stage.link("1", "2")
    stage.world.cut(link, silent=False)
    stage.publish(publisher, "0")
    stage.wait_ms(100)
    since_ns = stage.world.now_ns
    stage.publish(publisher, "1")
    stage.wait_ms(100)
    session = subscribe_since(stage, "1", since_ns)
    stage.wait_ms(100)
    stage.world.heal(link)
    stage.wait(40 * SECOND_NS)
    assert sorted(stage.bodies[session]) in (["0", "1"], ["1"])
    marked = [bytes(frame.body) for frame in stage.frames[session] if frame.late]
    in_order = [bytes(frame.body) for frame in stage.frames[session] if not frame.late]
    assert in_order == sorted(in_order), (in_order, marked)


@pytest.mark.parametrize("came", ["from the log", "by itself"])
def test_what_came_with_the_past_does_not_come_again_under_another_id(came: str) -> None:
    """DUP-02, I1: a publisher that roams repeats an event when the subscription is an ordinary one already."""
    stage = Stage(cluster([(1, 2), (2, 3)]))
    publisher = stage.attach("3", "publisher")
    stage.wait()
    if came == "from the log":
        event_id = stage.publish(publisher, "one")
        stage.wait()
        session = subscribe_since(stage, "1", 0)
    else:
        session = subscribe_since(stage, "1", 0)
        stage.wait_ms(300)
        event_id = stage.publish(publisher, "one")
        assert stage.broker("1").statistics().durables.durables == 1, "its past is still being read"
    stage.wait(60 * SECOND_NS)
    assert stage.bodies[session] == ["one"]
    assert stage.broker("1").statistics().durables.durables == 0, "it is an ordinary subscription now"
    stage.leave(publisher)
    moved = stage.attach("2", "publisher")
    stage.publish(moved, "one", original=(event_id.incarnation, event_id.timestamp, event_id.sequence))
    stage.publish(moved, "two")
    stage.wait()
    assert stage.bodies[session] == ["one", "two"]
