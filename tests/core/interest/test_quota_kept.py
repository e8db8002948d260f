"""What was accepted before is let in whatever a quota says: after a restart, elsewhere, in another one's place."""

from __future__ import annotations

from tests.core.durable_world import Reader
from tests.core.event_world import Stage
from veena.core.boundary.inputs_effects import ClientRefused, ClientUp, Effect, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.broker import Broker
from veena.core.durable.groups import LOST_NS
from veena.event import Event
from veena.runtime.networks.file import make_network

HOST = (0, 0, 0, 0)


def two_brokers(settings: Settings) -> Stage:
    network = make_network("quota", ["S.C.a.1", "S.C.a.2"], [("S.C.a.1", "S.C.a.2")])
    stage = Stage(network, settings=settings)
    stage.wait()
    return stage


def refusals(stage: Stage) -> int:
    return sum(broker.statistics().profiles.over_quota for broker in stage.world.live())


def test_a_durable_subscription_follows_its_client_to_a_broker_that_is_full() -> None:
    """CLI-04, CLI-05: it was accepted where it was; a new one of somebody else is refused, whatever home he names."""
    stage = two_brokers(Settings(max_broker_constraints=3))
    alice = Reader(stage, "alice", "mine")
    alice.attach("1")
    for number in range(4):
        stage.subscribe("2", f"t{number}")
    stage.wait()
    assert refusals(stage) == 1 and stage.broker("2").statistics().profiles.climbing[0] == 3
    publisher = stage.attach("1", "publisher")
    alice.leave()
    stage.publish(publisher, "kept", Event(topic="mine"))
    stage.wait()
    alice.attach("2")
    stage.wait()
    alice.read()
    assert alice.bodies == ["kept"] and refusals(stage) == 1
    mallory = Reader(stage, "mallory", "other")
    mallory.home = "1"
    mallory.attach("2")
    assert refusals(stage) == 2
    stage.world.check()


def test_another_constraint_under_the_same_name_takes_its_place() -> None:
    """PRF-09, ACT-05: where the old one makes room for it; one that was covered makes none."""
    stage = two_brokers(Settings(max_broker_constraints=3))
    stage.subscribe("1", "wide")
    alice = Reader(stage, "alice", "first")
    alice.attach("1")
    assert stage.broker("1").statistics().profiles.climbing[0] == 3  # alice's home takes a place
    alice.constraint = "second"
    alice.attach("1")
    assert refusals(stage) == 0
    alice.constraint = "wide"
    alice.attach("1")
    stage.subscribe("1", "last")
    alice.constraint = "third"
    alice.attach("1")
    assert refusals(stage) == 1
    assert stage.broker("1").events.sessions.durables.here["alice", "mine"].constraint == "wide"


def test_a_broker_starts_with_what_is_on_its_disk() -> None:
    """PRF-09: also when its quota was made smaller meanwhile."""
    stage = two_brokers(Settings())
    for number in range(3):
        Reader(stage, f"client-{number}", f"t{number}").attach("1")
    stage.wait()
    disk = stage.world.nodes[stage.addresses["1"]].disk
    assert len(disk.registered) == 3
    broker = Broker(
        disk.identity, Settings(max_broker_constraints=1, max_unit_constraints=1), lambda bits: 7, 0, disk=disk
    )
    found = broker.statistics()
    assert found.durables.durables == 3 and found.profiles.climbing[0] == 6 and found.profiles.over_quota == 0
    broker.handle(ClientUp(1, "client-0"), 0)
    assert not _refused(broker.handle(Subscribe(1, 1, "topic", "t0", 4, durable="mine"), 0))
    assert _refused(broker.handle(Subscribe(1, 2, "topic", "new", 4, durable="other"), 0))
    broker.check()


def _refused(effects: list[Effect]) -> bool:
    return any(isinstance(effect, ClientRefused) for effect in effects)


def group_of(session: int, subscription: int = 1, topic: str = "shared") -> Subscribe:
    return Subscribe(session, subscription, "topic", topic, 4, group="workers")


def lone_broker() -> Broker:
    broker = Broker(Identity("b", HOST, 1), Settings(max_broker_constraints=1), lambda bits: 7, 0)
    broker.handle(ClientUp(1, "alice"), 0)
    return broker


def test_a_group_that_cannot_be_kept_is_refused_and_its_number_is_free() -> None:
    broker = lone_broker()
    assert not _refused(broker.handle(Subscribe(1, 1, "topic", "a", 4), 0))
    assert _refused(broker.handle(group_of(1, 2), 0))
    broker.check()
    assert not _refused(broker.tick(6 * SECOND_NS)), "it is told once"
    broker.handle(Unsubscribe(1, 1), 7 * SECOND_NS)
    assert not _refused(broker.handle(group_of(1, 2), 7 * SECOND_NS))
    broker.check()


def test_a_group_that_waited_for_its_broker_is_refused_when_that_is_full_by_then() -> None:
    """A broker that has just come does not know yet whether the group is kept elsewhere."""
    broker = lone_broker()
    shared = broker.events.sessions.shared
    shared._is_ready = lambda now_ns: False
    assert not _refused(broker.handle(group_of(1), 0))
    assert not _refused(broker.handle(Subscribe(1, 2, "topic", "a", 4), 0))
    shared._is_ready = lambda now_ns: True
    assert _refused(broker.tick(6 * SECOND_NS))
    broker.check()
    assert not _refused(broker.tick(12 * SECOND_NS))


def test_the_members_of_a_group_whose_home_is_lost_keep_it_at_a_full_broker() -> None:
    """FLT-05: they were told that all is well."""
    stage = two_brokers(Settings(max_broker_constraints=2))
    first, second = stage.attach("1", "first"), stage.attach("2", "second")
    stage.world.give(stage.addresses["1"], group_of(first))
    stage.wait()
    stage.world.give(stage.addresses["2"], group_of(second))
    stage.subscribe("2", "a")
    stage.subscribe("2", "b")
    stage.wait()
    assert stage.broker("2").statistics().durables.durables == 0
    stage.world.crash(stage.addresses["1"], silent=False)
    stage.wait(LOST_NS + 30 * SECOND_NS)
    found = stage.broker("2").statistics()
    assert found.durables.durables == 1 and found.profiles.climbing[0] == 4 and found.profiles.over_quota == 0


def test_a_client_that_comes_back_finds_its_subscription_at_a_full_broker() -> None:
    """CLI-04: the broker knows it from before, though nobody tells it any more that it is kept elsewhere."""
    stage = two_brokers(Settings(max_broker_constraints=2))
    alice = Reader(stage, "alice", "mine")
    for at in ("1", "2"):
        alice.attach(at)
        stage.wait()
        alice.leave()
    stage.wait()
    for number in range(2):
        stage.subscribe("1", f"t{number}")
    sessions = stage.broker("1").events.sessions
    assert [each.is_here for each in sessions.durables.named(("alice", "mine"))] == [False]
    sessions.elsewhere.is_announced = lambda client_id: False  # type: ignore[method-assign]
    alice.attach("1")
    assert refusals(stage) == 0 and ("alice", "mine") in sessions.durables.here
    assert _refused(stage.broker("1").handle(Subscribe(alice.session, 2, "topic", "new", 4), stage.world.now_ns))


def test_a_standby_takes_what_it_has_no_room_for() -> None:
    """FLT-05: it was accepted at the home whose place it takes."""
    broker = lone_broker()
    assert not _refused(broker.handle(Subscribe(1, 1, "topic", "a", 4), 0))
    given = Subscribe(0, 1, "topic", "b", 4, durable="mine")
    broker.events.sessions.durables.stand_in(given, ("bob", "mine"), 1, 0)
    assert broker.statistics().profiles.climbing[0] == 3  # with bob's home
    broker.profiles.check()


def test_a_subscription_that_has_had_its_past_goes_on_at_a_full_broker() -> None:
    """CLI-05: it is made anew when it has all of it, and was accepted long before."""
    stage = two_brokers(Settings(max_broker_constraints=1))
    at, session = stage.addresses["1"], stage.attach("1", "alice")
    narrow = [Subscribe(session, number, "selector", ("q", f"x = {number}"), 4, since_ns=0) for number in (2, 3)]
    for given in (Subscribe(session, 1, "topic", "q", 4), *narrow):
        stage.world.give(at, given)
    stage.world.give(at, Unsubscribe(session, 1))
    publisher = stage.attach("2", "publisher")
    stage.wait(20 * SECOND_NS)
    for number in (2, 3, 2, 3):
        stage.publish(publisher, str(number), Event(topic="q", properties={"x": number}))
        stage.wait()
    assert stage.bodies[session] == ["2", "3", "2", "3"]
    found = stage.broker("1").statistics()
    assert found.durables.durables == 0, "both have had their past"
    assert (found.profiles.subscriptions, found.profiles.climbing[0], found.profiles.over_quota) == (2, 2, 0)


def test_what_a_durable_subscription_left_behind_takes_nobodys_place() -> None:
    """CLI-05: an old home goes on wanting old events; neither its quota nor its units' counts that."""
    stage = two_brokers(Settings(max_broker_constraints=4, max_unit_constraints=4))
    readers = [Reader(stage, f"client-{number}", f"t{number}") for number in range(2)]
    for reader in readers:
        reader.attach("1")
    stage.wait()
    for reader in readers:
        reader.leave()
        reader.attach("2")
    stage.wait(20 * SECOND_NS)
    old = stage.broker("1").statistics().profiles
    assert stage.broker("2").profiles.interest.former == 2 and old.climbing[0] == 0
    for reader in readers:
        reader.forget()
    stage.wait()
    assert stage.broker("1").statistics().profiles.climbing == (0, 0, 0)
    for number in range(5):
        stage.subscribe("1", f"new-{number}")
        stage.wait()
    assert refusals(stage) == 1 and stage.broker("1").statistics().profiles.climbing == (4, 4, 4)
