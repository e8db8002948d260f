"""Shared subscriptions: one of a group gets each event, wherever the members are, and the loss of one loses nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.core.event_world import QUICK, Stage, cluster
from tests.sim.clients.test_durable import publish, two_sites
from veena.core.boundary.explain import Denied as WasDenied
from veena.core.boundary.inputs_effects import Acknowledge, Active, ClientDown, ClientRefused, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.durable.group_turns import ROOM
from veena.core.durable.groups import JOIN_NS
from veena.core.publishing.log import DEAD_LETTERS
from veena.matching.base.engine import Constraint
from veena.runtime.networks.file import make_network
from veena.sim.world.options import Options


class Worker:
    """A member that acknowledges what it has done."""

    def __init__(self, stage: Stage, at: str, group: str = "workers", *, durable: str = "") -> None:
        self.stage = stage
        self.at = at
        self.session = stage.attach(at, f"worker-{at}-{len(stage.bodies)}")
        self.done: list[str] = []
        self.levels: list[int] = []
        before = stage.world.on_client

        def hear(address: tuple[int, ...], effect: object) -> None:
            if isinstance(effect, Active) and effect.session == self.session:
                self.levels.append(effect.level)
            assert before is not None
            before(address, effect)  # type: ignore[arg-type]

        stage.world.on_client = hear
        given = Subscribe(self.session, 1, "topic", "quotes", 4, durable=durable, group=group)
        stage.world.give(stage.addresses[at], given)

    def work(self, most: int = 1 << 30) -> None:
        todo = self.stage.frames[self.session][len(self.done) :][:most]
        self.done += [bytes(frame.body).decode() for frame in todo]
        if todo:
            given = Acknowledge(self.session, 1, tuple(frame.id for frame in todo))
            self.stage.world.give(self.stage.addresses[self.at], given)

    def vanish(self) -> None:
        self.stage.world.give(self.stage.addresses[self.at], ClientDown(self.session, lost=True))


def test_each_event_is_for_one_member_in_turn() -> None:
    """One of a group gets each event, evenly, across sites; two groups get each event twice."""
    stage = Stage(two_sites(), options=QUICK)
    workers = [Worker(stage, at) for at in ("w0", "w0")]
    stage.wait()
    workers += [Worker(stage, at) for at in ("x1", "z1")]
    other = Worker(stage, "y0", "others")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    assert all(worker.levels[-1] == 4 for worker in [*workers, other])
    sent = publish(stage, publisher, 0, 40)
    for _ in range(5):
        stage.wait(SECOND_NS)
        for worker in [*workers, other]:
            worker.work()
    assert sorted((body for worker in workers for body in worker.done), key=int) == sent
    assert [len(worker.done) for worker in workers] == [10, 10, 10, 10]
    assert other.done == sent
    for worker in workers:
        assert worker.done == sorted(worker.done, key=int), "each gets its part in order"


def test_the_loss_of_a_member_loses_nothing() -> None:
    """What a member had and did not acknowledge goes to others, with a mark; also when its broker dies."""
    stage = Stage(two_sites(), options=QUICK)
    home = Worker(stage, "w0")
    stage.wait()
    near, far = Worker(stage, "w1"), Worker(stage, "z1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 30)
    stage.wait(SECOND_NS)
    near.work(3)
    near.vanish()
    stage.wait(SECOND_NS)
    stage.world.crash(stage.addresses["z1"], silent=True)
    for _ in range(30):
        stage.wait(SECOND_NS)
        home.work()
    assert sorted([*near.done, *home.done], key=int) == sent
    again = [frame for frame in stage.frames[home.session] if frame.redelivered]
    assert len(again) == 7 + 10
    assert far.done == []


def test_a_member_that_does_nothing_gets_no_more_than_its_room() -> None:
    """The others get the rest, and nothing waits for the idle one but what it has."""
    stage = Stage(cluster([(1, 2)]), options=QUICK)
    idle, busy = Worker(stage, "1"), Worker(stage, "2")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    publish(stage, publisher, 0, 500)
    for _ in range(20):
        stage.wait(SECOND_NS)
        busy.work()
    assert len(stage.frames[idle.session]) == 32
    assert len(busy.done) == 500 - 32


def test_events_wait_for_a_named_group_without_members_and_over_a_crash() -> None:
    """A durable group stays; one without a name ends a while after its last member."""
    stage = Stage(cluster([(1, 2), (2, 3)]))
    first = Worker(stage, "1", durable="kept")
    passing = Worker(stage, "1", "passing")
    publisher = stage.attach("3", "publisher")
    stage.wait()
    first.vanish()
    passing.vanish()
    sent = publish(stage, publisher, 0, 10)
    stage.wait(30 * SECOND_NS)
    assert stage.broker("1").statistics().durables.durables == 1
    stage.world.crash(stage.addresses["1"], silent=True)
    stage.wait(5 * SECOND_NS)
    stage.world.start(stage.addresses["1"])
    stage.wait(10 * SECOND_NS)
    second = Worker(stage, "2", durable="kept")
    stage.wait(10 * SECOND_NS)
    second.work()
    assert second.done == sent


def test_a_group_is_acknowledged_when_its_home_can_be_found() -> None:
    """ACT-02: what it asks for is known everywhere because others want the same; that it is kept, and where, is not.
    Who joins when the first member was told finds the home, and makes no second one."""
    stage = Stage(two_sites(), options=QUICK)
    stage.subscribe("w0")
    stage.wait()
    first = Worker(stage, "w0", durable="kept")
    assert first.levels == []
    while not first.levels or first.levels[-1] < 4:
        assert stage.world.now_ns < 60 * SECOND_NS
        stage.wait_ms(10)
    second = Worker(stage, "z1", durable="kept")
    publisher = stage.attach("x0", "publisher")
    sent = publish(stage, publisher, 0, 10)
    stage.wait()
    for worker in (first, second):
        worker.work()
    assert sorted([*first.done, *second.done], key=int) == sent
    homes = [name for name in stage.addresses if stage.broker(name).statistics().durables.durables]
    assert homes == ["w0"]


def test_two_homes_at_once_become_one() -> None:
    """Two members subscribe at the same moment at two sites: each event is for one of them soon after."""
    stage = Stage(two_sites(), options=QUICK)
    workers = [Worker(stage, "w0"), Worker(stage, "z1")]
    publisher = stage.attach("x0", "publisher")
    stage.wait(12 * SECOND_NS)
    sent = publish(stage, publisher, 0, 20)
    for _ in range(10):
        stage.wait(SECOND_NS)
        for worker in workers:
            worker.work()
    got = Counter(body for worker in workers for body in worker.done)
    assert sorted(got, key=int) == sent
    assert set(got.values()) == {1}
    homes = [name for name in stage.addresses if stage.broker(name).events.sessions.shared._groups]
    assert len(homes) == 1


def test_best_effort_events_are_dealt_out_and_not_waited_for() -> None:
    """More than a member has room for: nobody acknowledges these, and none blocks a reliable one."""
    stage = Stage(two_sites(), options=QUICK)
    near = Worker(stage, "w0")
    stage.wait()
    far = Worker(stage, "z1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    for number in range(100):
        stage.publish(publisher, f"{number}", reliable=False)
    stage.wait()
    got = sorted(stage.bodies[near.session] + stage.bodies[far.session], key=int)
    assert got == [f"{number}" for number in range(100)]
    assert len(stage.bodies[far.session]) == 50
    stage.publish(publisher, "100")
    stage.wait()
    assert "100" in stage.bodies[near.session] + stage.bodies[far.session]


def test_what_is_given_out_of_order_is_marked_late() -> None:
    """A member's broker is absent, and what it was given lies in a backlog there: it is overtaken by the next, and
    marked so. Without a mark a member gets the events of a publisher in order."""
    labels = ["S.C.p.p", "S.C.c.1", "S.C.c.2", "S.C.c.x"]
    p, one, two, x = labels
    links = [(p, one), (p, two), (one, x), (two, x), (one, two)]
    stage = Stage(make_network("absent", labels, links), options=Options(wire=False, dial=False))
    home = Worker(stage, "p", durable="kept")
    stage.wait()
    far = Worker(stage, "x", durable="kept")
    publisher = stage.attach("p", "publisher")
    stage.wait(JOIN_NS + SECOND_NS // 10)  # it has just been heard of
    home.vanish()
    for end in ("1", "2"):
        stage.world.cut(stage.link(end, "x"), silent=False)
    stage.publish(publisher, "0")
    stage.wait(11 * SECOND_NS)
    assert stage.broker("p").statistics().origin.open == 0, "the cluster answers for it"
    for ends in (("p", "1"), ("1", "2")):
        stage.world.cut(stage.link(*ends), silent=False)
    stage.world.heal(stage.link("2", "x"))
    stage.wait()
    stage.publish(publisher, "1")
    stage.wait()
    assert stage.bodies[far.session] == ["1"]
    stage.world.heal(stage.link("1", "x"))
    stage.wait(10 * SECOND_NS)
    assert [(bytes(frame.body), frame.late) for frame in stage.frames[far.session]] == [(b"1", False), (b"0", True)]


def test_leaving_by_unsubscribing() -> None:
    stage = Stage(cluster([(1, 2)]))
    one, two = Worker(stage, "1"), Worker(stage, "1")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    stage.world.give(stage.addresses["1"], Unsubscribe(one.session, 1))
    sent = publish(stage, publisher, 0, 6)
    stage.wait()
    two.work()
    assert two.done == sent
    assert stage.frames[one.session] == []


@pytest.mark.parametrize(
    ("engine", "constraint", "scope"),
    [("nonsense", "a", 4), ("selector", ("a", "price >"), 4), ("topic", "a", 9), ("topic", "a", 0)],
)
def test_a_wrong_wish_is_refused_and_the_broker_lives(engine: str, constraint: Constraint, scope: int) -> None:
    """A client's mistake costs it one refusal, also where the group's home would be elsewhere."""
    stage = Stage(cluster([(1, 2)]))
    refused: list[ClientRefused] = []
    before = stage.world.on_client

    def hear(address: tuple[int, ...], effect: object) -> None:
        if isinstance(effect, ClientRefused):
            refused.append(effect)
        assert before is not None
        before(address, effect)  # type: ignore[arg-type]

    stage.world.on_client = hear
    session = stage.attach("1", "mallory")
    stage.world.give(stage.addresses["1"], Subscribe(session, 1, engine, constraint, scope, group="workers"))
    assert [each.subscription for each in refused] == [1]
    assert stage.broker("1").statistics().durables.durables == 0


def test_a_member_after_a_restart_is_not_taken_for_one_before_it() -> None:
    """A broker is back before its members were missed: what those had is not kept for the one that joins then."""
    stage = Stage(two_sites(), options=QUICK)
    home = Worker(stage, "w0")
    stage.wait()
    before = Worker(stage, "z1")
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 20)
    stage.wait(SECOND_NS)
    assert len(stage.frames[before.session]) == 10
    stage.world.crash(stage.addresses["z1"], silent=True)
    stage.wait(SECOND_NS)
    stage.world.start(stage.addresses["z1"])
    stage.wait(2 * SECOND_NS)
    after = Worker(stage, "z1")
    for _ in range(30):
        stage.wait(SECOND_NS)
        home.work()
        after.work()
    assert sorted([*home.done, *after.done], key=int) == sent


def test_a_broker_that_was_just_restarted_makes_no_second_home() -> None:
    """It does not know yet who keeps what: it waits until others have told it."""
    stage = Stage(two_sites(), options=QUICK)
    workers = [Worker(stage, "w0")]
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    stage.world.crash(stage.addresses["z1"], silent=False)
    stage.wait(SECOND_NS)
    stage.world.start(stage.addresses["z1"])
    workers.append(Worker(stage, "z1"))
    assert not stage.broker("z1").events.sessions.shared._groups
    sent = publish(stage, publisher, 0, 20)
    for _ in range(10):
        stage.wait(SECOND_NS)
        for worker in workers:
            worker.work()
    assert sorted((body for worker in workers for body in worker.done), key=int) == sent
    assert workers[1].levels[-1] == 4
    assert not stage.broker("z1").events.sessions.shared._groups


def test_a_group_begins_although_a_broker_is_lost_for_good() -> None:
    """Who is lost may have kept it; nobody waits for that for longer than for any other answer."""
    stage = Stage(cluster([(1, 2), (2, 3), (1, 3)]), options=QUICK)
    stage.wait()
    stage.world.crash(stage.addresses["3"], silent=True)
    stage.wait(30 * SECOND_NS)
    workers = [Worker(stage, "1")]
    publisher = stage.attach("2", "publisher")
    stage.wait(40 * SECOND_NS)
    assert workers[0].levels[-1:] == [4]
    sent = publish(stage, publisher, 0, 5)
    stage.wait(5 * SECOND_NS)
    workers[0].work()
    assert workers[0].done == sent


class Denied(Worker):
    """A member that may not read what is secret: its broker's driver says so."""

    def __init__(self, stage: Stage, at: str, *, durable: str = "") -> None:
        super().__init__(stage, at, durable=durable)
        self.told = 0

    def refuse(self) -> None:
        """What the driver does with each event that was handed over since the last time."""
        frames = self.stage.frames[self.session][self.told :]
        self.told += len(frames)
        for frame in frames:
            self.stage.world.give(self.stage.addresses[self.at], WasDenied(self.session, frame, "a rule", (1,)))


@pytest.mark.parametrize("at", ["w0", "z1"], ids=["at home", "elsewhere"])
def test_what_a_member_may_not_have_goes_to_another_one(at: str) -> None:
    """SEC: it gives back one event and what was under way; then it is dealt none of the kind. Nothing comes twice,
    and what is out of its order for the other one is marked late."""
    stage = Stage(two_sites(), options=QUICK)
    honest = Worker(stage, "w0")
    stage.wait()
    mallory = Denied(stage, at)
    publisher = stage.attach("x0", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 200)
    for _ in range(30):
        stage.wait(SECOND_NS // 2)
        mallory.refuse()
        honest.work()
    assert sorted(honest.done, key=int) == sent
    assert mallory.told <= ROOM
    plain = [int(bytes(frame.body)) for frame in stage.frames[honest.session] if not frame.late]
    assert plain == sorted(plain)
    statistics = stage.broker("w0").statistics().durables
    assert (statistics.handed_back, statistics.parked) == (mallory.told, 0)


def test_what_nobody_may_have_waits_for_the_retention_also_over_a_crash() -> None:
    """It takes no room, survives its home's crash, and is a dead letter when nobody came who may have it."""
    stage = Stage(cluster([(1, 2)]), settings=Settings(retention_ns=60 * SECOND_NS))
    members = [Denied(stage, "2", durable="kept")]
    publisher = stage.attach("1", "publisher")
    letters = stage.subscribe("1", DEAD_LETTERS)
    stage.wait()
    publish(stage, publisher, 0, 5)

    def parked() -> int:
        for _ in range(10):
            stage.wait(SECOND_NS)
            for member in members:
                member.refuse()
        return stage.broker("2").statistics().durables.parked

    assert parked() == 5
    stage.world.crash(stage.addresses["2"], silent=True)
    stage.wait(5 * SECOND_NS)
    stage.world.start(stage.addresses["2"])
    members = [Denied(stage, "2", durable="kept"), Denied(stage, "1", durable="kept")]
    assert parked() == 5
    members[0].vanish()
    assert parked() == 5, "the other one may not have them either"
    stage.wait(60 * SECOND_NS)
    assert [letter.id.sequence for letter in stage.dead] == list(range(5))
    assert len(stage.frames[letters]) == 5
    statistics = stage.broker("2").statistics().durables
    assert (statistics.parked, statistics.acknowledged) == (0, 5)


def test_what_was_denied_is_nobody_s_when_the_group_is_empty() -> None:
    """Who was denied has left: however long nobody is there, what waits is not given up."""
    stage = Stage(cluster([(1, 2)]), settings=Settings(retention_ns=60 * SECOND_NS))
    mallory = Denied(stage, "1", durable="kept")
    publisher = stage.attach("2", "publisher")
    stage.wait()
    sent = publish(stage, publisher, 0, 5)
    for _ in range(3):
        stage.wait(SECOND_NS)
        mallory.refuse()
    assert stage.broker("1").statistics().durables.parked == 5
    mallory.vanish()
    stage.wait(100 * SECOND_NS)
    assert stage.dead == []
    honest = Worker(stage, "2", durable="kept")
    stage.wait(20 * SECOND_NS)
    honest.work()
    assert honest.done == sent
