"""How many distinct constraints a broker and a unit may tell: who is refused, and who never is."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from tests.core.event_world import Stage
from veena import ConfigError
from veena.core.boundary.inputs_effects import ClientDown, ClientRefused, ClientUp, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest.constraint import Want, make_want
from veena.core.interest.cover_set import CoverSet
from veena.core.interest.quota import MAX_SHOWN, SETTLED_NS
from veena.core.interest.service import Profiles
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import Row, Version
from veena.errors import RefusalCode
from veena.event import Event
from veena.matching.base.engine import Constraint
from veena.runtime.networks.file import make_network

HOST = (0, 0, 0, 0)
FAR = (0, 0, 1)
MANY = 1000


class Bench:
    """The profiles of one broker, with clients that subscribe one after another."""

    def __init__(self, broker: int = MANY, unit: int = MANY, **settings: int) -> None:
        given = Settings(max_broker_constraints=broker, max_unit_constraints=unit, **settings)  # type: ignore[arg-type]
        self.found = Profiles(NetworkMap(HOST), given, 0)
        self.found.map_changed(0)
        self.now_ns = 0
        self._numbers = count(1)
        #: Why the last subscription was refused, in words and as a code.
        self.last = ""
        self.code: RefusalCode | None = None
        self.found.client(ClientUp(1, "alice"), 0)

    def subscribe(self, constraint: Constraint, scope: int = 4, engine: str = "topic", session: int = 1) -> int:
        """The number of a new subscription; 0 if it is refused."""
        number = next(self._numbers)
        refused = self.found.client(Subscribe(session, number, engine, constraint, scope), self.now_ns)
        self.found.check()
        self.last, self.code = (refused[0].reason, refused[0].why) if refused else ("", None)
        assert all((each.session, each.subscription) == (session, number) for each in refused) and len(refused) < 2
        return 0 if refused else number

    def unsubscribe(self, number: int) -> None:
        assert self.found.client(Unsubscribe(1, number), self.now_ns) == []
        self.found.check()

    def hear(self, unit: tuple[int, ...], want: Want, number: int, wanted: bool = True) -> None:
        """Somebody told that a unit wants this, or no longer does."""
        version: Version = (1, (*unit, 7, 7, 7, 7)[:4], number)
        row = Row(unit, want.key, version, wanted, want.kind, want.payload if wanted else b"", want.scope)
        self.found._learn(row, None, self.now_ns)
        self.found.check()

    def run(self, seconds: float = 1.0) -> None:
        until_ns = self.now_ns + int(seconds * SECOND_NS)
        due = self.found.next_wakeup()
        while due is not None and due <= until_ns:
            self.found.tick(due)
            due = self.found.next_wakeup()
        self.now_ns = until_ns
        self.found.check()

    def climbing(self) -> tuple[int, ...]:
        return self.found.statistics().climbing

    def told(self) -> list[str]:
        return sorted(str(row.payload) for row in self.found.table.rows(HOST))


def ranges(low: int, high: int) -> tuple[str, str]:
    return ("q", f"x >= {low} AND x <= {high}")


# --- one broker ---


def test_what_would_be_one_more_is_refused_and_nothing_changes() -> None:
    """The reason names limit, value and remedy; who was there before keeps what he has."""
    bench = Bench(broker=2)
    assert bench.subscribe("a") and bench.subscribe("b")
    before = bench.found.statistics()
    changes = bench.found.clients.changes
    assert not bench.subscribe("c")
    for part in ("topic 'c'", "broker_constraints = 2", "this broker", "end other subscriptions", "[limits]"):
        assert part in bench.last
    assert bench.code is RefusalCode.LIMIT
    after = bench.found.statistics()
    assert after.over_quota == before.over_quota + 1 == 1
    assert (after.climbing, after.subscriptions) == (before.climbing, before.subscriptions) == ((2, 0, 0), 2)
    assert bench.found.clients.changes == changes
    bench.run()
    assert bench.climbing() == (2, 2, 2), "the units have told it too"
    assert len(bench.told()) == 2


def test_what_makes_no_difference_is_always_let_in() -> None:
    """The same again, of another client too, and what a wider one covers: a selector of its topic, a
    narrower range, a smaller scope."""
    bench = Bench(broker=2)
    bench.found.client(ClientUp(2, "bob"), 0)
    assert bench.subscribe("a") and bench.subscribe(ranges(0, 9), engine="selector")
    assert bench.subscribe("a") and bench.subscribe("a", session=2)
    assert bench.subscribe("a", scope=2)
    assert bench.subscribe(("a", "price > 10"), engine="selector")
    assert bench.subscribe(ranges(2, 3), engine="selector")
    assert not bench.subscribe(ranges(2, 10), engine="selector")
    assert not bench.subscribe("c")
    assert bench.climbing()[0] == 2


def test_one_that_covers_others_takes_their_place() -> None:
    """A wider one instead of several is what a refusal advises."""
    bench = Bench(broker=2)
    assert bench.subscribe(("q", "x = 1"), engine="selector") and bench.subscribe(("q", "x = 2"), engine="selector")
    assert not bench.subscribe("c")
    assert bench.subscribe("q")
    assert bench.climbing()[0] == 1
    assert bench.subscribe("c") and not bench.subscribe("d")


def test_who_goes_makes_room() -> None:
    """PRF-07: at once when a subscription is ended, with the grace after a lost connection, and who is back within it
    finds his place."""
    bench = Bench(broker=2, grace_ns=5 * SECOND_NS)
    bench.found.client(ClientUp(2, "bob"), 0)
    first = bench.subscribe("a")
    assert bench.subscribe("b", session=2)
    assert not bench.subscribe("c")
    bench.unsubscribe(first)
    assert bench.subscribe("c")
    bench.found.client(ClientDown(2, lost=True), 0)
    bench.run(1)
    bench.found.client(ClientUp(3, "bob"), bench.now_ns)
    assert not bench.subscribe("d")
    assert bench.subscribe("b", session=3)
    bench.run(10)
    assert not bench.subscribe("d")
    bench.found.client(ClientDown(3, lost=True), bench.now_ns)
    bench.run(10)
    assert bench.subscribe("d")


def test_what_was_covered_climbs_whatever_the_quota_says() -> None:
    """Nobody loses what was acknowledged; nothing new is let in until there are fewer again."""
    bench = Bench(broker=2)
    wide = bench.subscribe("q")
    narrow = [bench.subscribe(("q", f"x = {number}"), engine="selector") for number in range(4)]
    assert all(narrow)
    bench.unsubscribe(wide)
    bench.run()
    assert bench.climbing()[0] == 4 == len(bench.told())
    assert not bench.subscribe("c")
    for number in narrow[:2]:
        bench.unsubscribe(number)
    assert not bench.subscribe("c"), "two are still as many as may be"
    bench.unsubscribe(narrow[2])
    assert bench.subscribe("c")


def test_attaching_takes_a_place_and_is_never_refused() -> None:
    """EVT-05: an id that can be written to is told as a want."""
    bench = Bench(broker=2)
    for session in (2, 3, 4):
        assert bench.found.client(ClientUp(session, f"client-{session}", reachable=True), 0) == []
    assert bench.climbing()[0] == 3
    assert not bench.subscribe("a")


def test_what_cannot_be_read_is_told_as_such_and_not_as_too_much() -> None:
    bench = Bench(broker=1)
    assert bench.subscribe(("q", "x = 1"), engine="selector")
    assert not bench.subscribe(("q", "x >"), engine="selector")
    assert bench.code is RefusalCode.INVALID and bench.found.statistics().over_quota == 0
    assert not bench.subscribe("x" * 1000)
    assert len(bench.last) < 400 and "x" * MAX_SHOWN not in bench.last


@pytest.mark.parametrize("engine", ["integer", "topic", "tags", "selector", "xpath", "constraint"])
@pytest.mark.parametrize("constraint", [5, "", "==", ("", ""), ("q", "x >"), ("a", {"b": "c"})])
def test_where_the_quota_is_used_up_nonsense_is_refused_as_ever(engine: str, constraint: Constraint) -> None:
    """FLT-09: a client may send any of these for any engine; the broker goes on, and says the same in both cases."""
    free, full = Bench(), Bench(broker=1, unit=1)
    assert full.subscribe("a")
    if not free.subscribe(constraint, engine=engine):
        assert not full.subscribe(constraint, engine=engine)
        assert (full.last, full.code) == (free.last, free.code)
    else:
        assert not full.subscribe(constraint, engine=engine) and "= 1 distinct constraints" in full.last


def test_what_would_be_displaced_is_what_adding_displaces() -> None:
    """Compared as far as adding compares."""
    wants = [make_want("selector", ranges(low, low + width), 4) for low in range(4) for width in range(3)]
    wants += [make_want("topic", "q", 4), make_want("topic", "other", 4), make_want("topic", "q", 2)]
    seen: dict[int | None, None] = {}
    for first in range(len(wants)):
        cover = CoverSet()
        for want in wants[first:] + wants[:first]:
            before, displaced = list(cover.told), cover.displaced(want)
            seen[None if displaced is None else len(displaced)] = None
            cover.check()
            changed = cover.add(want)
            gone = [key for key in before if key not in cover.told]
            assert changed == (displaced is not None)
            assert gone == [each.key for each in displaced or ()]
    assert all(count in seen for count in (None, 0, 1, 2))
    crowded = CoverSet()
    for number in range(1000):
        crowded.add(make_want("selector", ("q", f"x = {number}"), 4))
    assert crowded.displaced(make_want("selector", ("q", "x = 3 AND y = 1"), 4)) is None
    assert crowded.displaced(make_want("selector", ("q", "x = 3"), 4)) is None
    assert crowded.displaced(make_want("selector", ("q", "y = 3"), 4)) == []


# --- units ---


def test_a_scope_counts_as_far_as_it_goes() -> None:
    """PRF-10: one for the cluster is told of its broker alone, one for the super-cluster of its cluster too."""
    bench = Bench(unit=2)
    for number in range(3):
        assert bench.subscribe(f"near-{number}", scope=1)
    assert bench.climbing() == (3, 0, 0)
    assert bench.subscribe("a", scope=2) and bench.subscribe("b", scope=2)
    assert bench.climbing() == (5, 2, 0)
    assert not bench.subscribe("c", scope=2)
    assert "unit_constraints = 2" in bench.last and "this cluster" in bench.last
    assert bench.subscribe("near-3", scope=1)
    bench.run()
    assert bench.climbing() == (6, 2, 0)


def test_what_the_cluster_has_is_let_in() -> None:
    """Told of another broker of it; a topic stands for its selectors, a scope for smaller ones."""
    bench = Bench(unit=2)
    bench.hear((0, 0, 0), make_want("topic", "a", 4), 1)
    bench.hear((0, 0, 0), make_want("tags", "make=Ford", 3), 2)
    assert bench.climbing() == (0, 2, 2)
    assert not bench.subscribe("c")
    assert bench.subscribe("a") and bench.subscribe("a", scope=3)
    assert bench.subscribe(("a", "price > 10"), engine="selector")
    assert bench.subscribe("make=Ford", engine="tags", scope=2)
    assert not bench.subscribe("make=Ford", engine="tags"), "for the system it would be more than it is"
    assert not bench.subscribe("make=Fiat", engine="tags")
    bench.hear((0, 0, 0), make_want("topic", "a", 4), 3, wanted=False)
    assert bench.climbing()[1] == 1
    assert bench.subscribe("c")


def test_the_speaker_of_a_cluster_sees_what_covers_what() -> None:
    """It has compared the wants of all its brokers."""
    bench = Bench(unit=1)
    bench.hear((0, 0, 0, 5), make_want("selector", ranges(0, 9), 4), 1)
    bench.run()
    assert bench.climbing() == (0, 1, 1)
    assert bench.subscribe(ranges(1, 2), engine="selector")
    assert not bench.subscribe(ranges(1, 20), engine="selector")
    assert bench.subscribe(ranges(0, 20), engine="selector"), "it covers what the cluster tells"


def test_a_super_cluster_counts_what_several_clusters_want_once() -> None:
    """GUA-06: and what is wanted inside it alone does not count for it."""
    bench = Bench(unit=2)
    for number, (unit, topic, scope) in enumerate(
        [(FAR, "a", 4), ((0, 0, 2), "a", 4), (FAR, "b", 3), (FAR, "inside", 2), ((0, 0, 2), "near", 2)], 1
    ):
        bench.hear(unit, make_want("topic", topic, scope), number)
    assert bench.climbing() == (0, 0, 2)
    assert not bench.subscribe("c")
    assert "this super-cluster" in bench.last
    assert bench.subscribe("c", scope=2), "it goes no further than the super-cluster"
    assert bench.subscribe("a"), "another cluster has it"
    assert not bench.subscribe("d", scope=2), "its own cluster is full as well: two wants are on their way there"
    assert bench.climbing() == (2, 2, 2)
    bench.hear(FAR, make_want("topic", "a", 4), 8, wanted=False)
    assert bench.climbing()[2] == 2, "the other one still wants it"
    bench.hear(FAR, make_want("topic", "b", 3), 9, wanted=False)
    assert bench.climbing()[2] == 1


def test_what_another_cluster_tells_more_widely_still_counts() -> None:
    """A row of this cluster comes to those of the super-cluster, whatever others tell."""
    bench = Bench(unit=3)
    for number, topic in enumerate(("a", "b", "c"), 1):
        bench.hear(FAR, make_want("topic", topic, 4), number)
    assert not bench.subscribe(("a", "x > 1"), engine="selector") and "this super-cluster" in bench.last
    assert bench.subscribe("a")
    assert bench.subscribe(("a", "x > 1"), engine="selector"), "its own broker has the whole topic"
    bench.run()
    assert bench.climbing() == (1, 1, 3)


def test_what_was_let_in_counts_before_the_unit_has_told_it() -> None:
    """PPP-05: rows come a moment later, and a burst within it must not pass."""
    bench = Bench(unit=3)
    numbers = [bench.subscribe(f"t{number}") for number in range(5)]
    assert [bool(number) for number in numbers] == [True, True, True, False, False]
    bench.unsubscribe(numbers[0])
    assert bench.subscribe("t5"), "what nobody told is gone at once"
    bench.run()
    assert bench.climbing() == (3, 3, 3)
    bench.unsubscribe(numbers[1])
    assert not bench.subscribe("t6"), "the cluster has told it and not yet withdrawn it"
    bench.run()
    assert bench.subscribe("t6")


def test_what_the_unit_never_tells_is_not_waited_for_for_ever() -> None:
    """Somebody else's wider one covers it there."""
    bench = Bench(unit=3)
    assert bench.subscribe("t0") and bench.subscribe("t1") and bench.subscribe("t2")
    assert not bench.subscribe("t3")
    bench.now_ns = SETTLED_NS - 1
    assert not bench.subscribe("t3")
    bench.now_ns = SETTLED_NS
    assert bench.subscribe("t3")


def test_nothing_is_listed_while_the_quota_is_far_or_has_become_so() -> None:
    """What is on its way to the units is looked for when it may matter: a list of it costs memory."""
    bench = Bench(unit=10)
    numbers = [bench.subscribe(f"t{number}") for number in range(9)]
    assert bench.climbing() == (9, 0, 0)
    numbers += [bench.subscribe("t9"), bench.subscribe("t10")]
    assert bench.climbing() == (10, 10, 10) and numbers.pop() == 0
    bench.run()
    assert bench.climbing() == (10, 10, 10)
    for number in numbers[2:]:
        bench.unsubscribe(number)
    bench.run()
    bench.subscribe("t11")
    assert bench.climbing() == (3, 2, 2)


def test_a_network_of_few_levels_has_fewer_units() -> None:
    for levels, told in ((1, (2,)), (2, (1, 1)), (3, (1, 1, 1))):
        found = Profiles(NetworkMap((0,) * levels), Settings(levels=levels, max_unit_constraints=1), 0)
        found.client(ClientUp(1, "alice"), 0)
        assert found.client(Subscribe(1, 1, "topic", "a", levels), 0) == []
        assert bool(found.client(Subscribe(1, 2, "topic", "b", levels), 0)) == (levels > 1)
        assert found.statistics().climbing == told
        found.check()


@pytest.mark.parametrize("name", ["max_broker_constraints", "max_unit_constraints"])
def test_a_quota_of_nothing_is_a_mistake(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        replace(Settings(), **{name: 0})  # type: ignore[arg-type]


def test_unit_quota_in_a_network() -> None:
    """A cluster of two brokers and its neighbour. What one broker of it took is not there for the
    other; the neighbour is bounded by the super-cluster; events go on as before."""
    brokers = ["S.C.a.1", "S.C.a.2", "S.C.b.3"]
    network = make_network("quota", brokers, [("S.C.a.1", "S.C.a.2"), ("S.C.a.2", "S.C.b.3")])
    stage = Stage(network, settings=Settings(levels=4, max_unit_constraints=4))
    refused: list[str] = []
    heard = stage.world.on_client

    def listen(address: tuple[int, ...], effect: object) -> None:
        if isinstance(effect, ClientRefused):
            refused.append(effect.reason)
        assert heard is not None
        heard(address, effect)  # type: ignore[arg-type]

    stage.world.on_client = listen
    sessions = {topic: stage.subscribe("1", topic) for topic in ("a", "b", "c")}
    stage.wait()
    for name in ("1", "2", "3"):
        assert stage.broker(name).statistics().profiles.climbing[1:] == ((3, 3) if name != "3" else (0, 3))
    stage.subscribe("2", "d")
    stage.wait()
    assert refused == []
    stage.subscribe("2", "e")
    stage.subscribe("3", "e")
    assert ["this cluster" in refused[0], "this super-cluster" in refused[1]] == [True, True]
    again = stage.subscribe("2", "a"), stage.subscribe("3", "b"), stage.subscribe("3", "e", scope=2)
    assert len(refused) == 2
    stage.wait()
    publisher = stage.attach("3", "publisher")
    for topic in ("a", "b", "e"):
        stage.publish(publisher, topic, Event(topic=topic))
    stage.wait()
    assert [stage.bodies[session] for session in (sessions["a"], sessions["b"], *again)] == [
        ["a"], ["b"], ["a"], ["b"], ["e"],
    ]  # fmt: skip
    stage.leave(sessions["c"])
    stage.wait()
    stage.subscribe("2", "e")
    assert len(refused) == 2, "who left made room"


def test_what_a_lost_cluster_wanted_is_not_counted_for_ever() -> None:
    """FLT-01: its rows are forgotten with it."""
    network = make_network("quota", ["S.C.a.1", "S.C.b.2"], [("S.C.a.1", "S.C.b.2")])
    settings = Settings(retention_ns=20 * SECOND_NS, tombstone_ns=40 * SECOND_NS)
    stage = Stage(network, settings=settings)
    stage.subscribe("2", "a")
    stage.wait()
    profiles = stage.broker("1").profiles
    assert profiles.statistics().climbing == (0, 0, 1)
    stage.world.crash(stage.addresses["2"], silent=False)
    stage.wait(60 * SECOND_NS)
    assert profiles.statistics().climbing == (0, 0, 0)
    profiles.check()
