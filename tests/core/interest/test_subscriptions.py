"""The clients of one broker: who an event is for, by subscription, by address, by device and by clearance."""

from __future__ import annotations

import tracemalloc

import pytest

from veena import ConfigError, Event, InvalidConstraint, LocalProtocolError
from veena.address import Address
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Subscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest.constraint import KINDS, TO, make_want, reach_want
from veena.core.interest.eligibility import MAX_ATTRIBUTES, Fitness
from veena.core.interest.service import Profiles
from veena.core.interest.subscriptions import AT_ONCE, MAX_LINGERING, Clients
from veena.core.topology.network_map import NetworkMap
from veena.core.trust.contradictions import MAX_YOUNG
from veena.core.wire.interest import STANDING

HOST: Address = (0, 0, 0, 0)
QUOTE = Event(topic="quotes", properties={"price": 12})
MAIL = Event(topic="quotes", to=["alice"])


def profiles(**settings: int) -> Profiles:
    return Profiles(NetworkMap(HOST), Settings(**settings), 0)  # type: ignore[arg-type]


def told(found: Profiles) -> list[str]:
    """What this broker tells others that it wants, and in how many transitions it came to that."""
    return sorted(str(KINDS[row.kind]) for row in found.table.rows(HOST) if row.kind != STANDING)


def run(found: Profiles, until_ns: int) -> None:
    """Let a broker's profiles tick whenever they ask for it."""
    due = found.next_wakeup()
    while due is not None and due <= until_ns:
        found.tick(due)
        due = found.next_wakeup()


# --- addressees ---


def test_mail_is_for_its_addressees_alone() -> None:
    """EVT-05, RTE-04: subscribers of its topic do not get it; clients that did not ask to be reachable neither."""
    clients = Clients(HOST)
    assert clients.open(1, "alice", reachable=True) == reach_want("alice", 4)
    assert clients.open(2, "bob") is None
    clients.subscribe(2, 1, "topic", "quotes", 4)
    clients.subscribe(1, 7, "topic", "quotes", 4)
    assert clients.matching(QUOTE, HOST) == {1: [7], 2: [1]}
    assert clients.matching(MAIL, HOST) == {1: []}
    assert clients.matching(Event(to=["bob", "carol"]), HOST) == {}
    clients.check()


def test_mail_comes_once_a_client() -> None:
    """EVT-05: however often it is named, and with two sessions the one that came last gets it."""
    clients = Clients(HOST)
    clients.open(9, "alice", reachable=True)
    clients.open(4, "alice", reachable=True)
    clients.open(5, "bob", reachable=True)
    assert clients.matching(Event(to=["alice", "bob", "alice"]), HOST) == {4: [], 5: []}
    assert clients.close(4) == [reach_want("alice", 4)]
    assert clients.matching(MAIL, HOST) == {9: []}
    clients.close(9)
    assert clients.matching(MAIL, HOST) == {}
    clients.check()


def test_nobody_subscribes_to_the_mail_of_others() -> None:
    clients = Clients(HOST)
    clients.open(1, "eve")
    with pytest.raises(InvalidConstraint, match="'to': expected one of integer, topic"):
        clients.subscribe(1, 1, "to", "alice", 4)
    with pytest.raises(InvalidConstraint):
        make_want("to", "alice", 4)


@pytest.mark.parametrize("client_id", ["", "x" * 256, "a\nb"])
def test_a_client_id_can_be_written(client_id: str) -> None:
    clients = Clients(HOST)
    with pytest.raises(LocalProtocolError, match="client id"):
        clients.open(1, client_id)
    assert clients.statistics().sessions == 0


def test_a_reachable_client_is_told_like_any_want() -> None:
    """RTE-04: its id is part of what the broker tells."""
    found = profiles()
    found.client(ClientUp(1, "alice", reachable=True), 0)
    run(found, SECOND_NS)
    assert told(found) == ["to"]
    assert TO == 6, "kinds keep their numbers on the wire"
    found.client(ClientDown(1), SECOND_NS)
    run(found, 2 * SECOND_NS)
    assert told(found) == []


# --- devices and clearances ---


def test_what_an_event_needs_is_asked_at_the_end() -> None:
    """PRF-03, SEC-03, FUT-05: needs video is not matched to a pager, nor what is secret to who lacks the clearance."""
    clients = Clients(HOST)
    clients.open(1, "pager", attributes={"device": "pager"})
    clients.open(2, "desk", attributes={"device": "desktop", "clearances": "secret, staff"})
    clients.open(3, "plain")
    for session in (1, 2, 3):
        clients.subscribe(session, 1, "topic", "quotes", 4)
    assert clients.matching(QUOTE, HOST) == {1: [1], 2: [1], 3: [1]}
    assert clients.matching(Event(topic="quotes", headers={"needs": "video"}), HOST) == {2: [1], 3: [1]}
    assert clients.matching(Event(topic="quotes", headers={"clearance": "secret"}), HOST) == {2: [1]}
    assert clients.matching(Event(topic="quotes", headers={"clearance": "top"}), HOST) == {}


def test_mail_also_asks_for_its_clearance() -> None:
    """PRF-03."""
    clients = Clients(HOST)
    clients.open(1, "alice", reachable=True, attributes={"device": "pager"})
    assert clients.matching(Event(to=["alice"], headers={"clearance": "secret"}), HOST) == {}
    assert clients.matching(Event(to=["alice"], headers={"needs": "video"}), HOST) == {}
    assert clients.matching(Event(to=["alice"], headers={"needs": "text"}), HOST) == {1: []}


def suits(attributes: dict[str, str], **headers: object) -> bool:
    return Fitness(attributes).suits(Event(headers=headers))  # type: ignore[arg-type]


def test_what_a_device_can_do() -> None:
    """PRF-03: a list of capabilities is taken as it is; of an unknown device nothing is known against it."""
    assert suits({"device": "pager", "capabilities": "text,video"}, needs="video")
    assert suits({"device": "toaster"}, needs="video")
    assert not suits({"capabilities": ""}, needs="text")
    assert suits({"capabilities": " text , audio "}, needs="audio,text")
    assert not suits({"capabilities": "text"}, needs="audio,text")
    assert suits({"cpu": "500"}, needs_cpu=500)
    assert not suits({"cpu": "500"}, needs_cpu="501")
    assert suits({}, needs_cpu=10**9)
    assert suits({"cpu": "1"}, needs_cpu="fast"), "what is no number asks for nothing"
    assert suits({"device": "pager"}, needs=None, clearance=None)
    assert suits({"clearances": "3"}, clearance=3)
    assert not suits({"clearances": "3"}, clearance="")


def test_who_only_wants_for_others_is_sent_nothing() -> None:
    """AGG-01: the device `none` takes no event, whatever it is and whether or not it has headers."""
    clients = Clients(HOST)
    clients.open(1, "holder", reachable=True, attributes={"device": "none"})
    clients.open(2, "plain")
    for session in (1, 2):
        clients.subscribe(session, 1, "topic", "quotes", 4)
    assert clients.matching(QUOTE, HOST) == {2: [1]}
    assert clients.matching(Event(topic="quotes", headers={"a": 1}), HOST) == {2: [1]}
    assert clients.matching(Event(to=["holder"]), HOST) == {}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"cpu": "fast"}, "'cpu' 'fast': expected a number"),
        ({"cpu": "nan"}, "expected a number"),
        ({f"a{n}": "" for n in range(MAX_ATTRIBUTES + 1)}, "at most 32"),
        ({"device": "x" * 2000}, "'device'"),
        ({"device": 5}, "'device'"),
    ],
)
def test_attributes_that_cannot_be_used_are_refused(attributes: dict[str, str], message: str) -> None:
    clients = Clients(HOST)
    with pytest.raises(LocalProtocolError, match=message):
        clients.open(1, "alice", attributes=attributes)
    assert clients.statistics().sessions == 0


def test_attributes_change_nothing_of_what_is_told() -> None:
    """PRF-03: they widen nothing and narrow nothing for other brokers."""
    plain, pager, nothing = profiles(), profiles(), profiles()
    for found, attributes in ((plain, {}), (pager, {"device": "pager"}), (nothing, {"device": "none"})):
        found.client(ClientUp(1, "alice", attributes=attributes), 0)
        found.client(Subscribe(1, 1, "topic", "quotes", 4), 0)
        run(found, SECOND_NS)
    assert list(plain.table.rows(HOST)) == list(pager.table.rows(HOST)) == list(nothing.table.rows(HOST)) != []


# --- grace ---


def test_a_lost_client_that_returns_causes_no_transitions() -> None:
    """PRF-08: its wants linger; it gets nothing meanwhile, being transient."""
    found = profiles()
    found.client(ClientUp(1, "alice", reachable=True), 0)
    found.client(Subscribe(1, 1, "topic", "quotes", 4), 0)
    run(found, SECOND_NS)
    before = found.statistics().transitions
    found.client(ClientDown(1, lost=True), 2 * SECOND_NS)
    assert found.clients.matching(QUOTE, HOST) == {} == found.clients.matching(MAIL, HOST)
    run(found, 4 * SECOND_NS)
    found.client(ClientUp(2, "alice", reachable=True), 4 * SECOND_NS)
    found.client(Subscribe(2, 1, "topic", "quotes", 4), 4 * SECOND_NS)
    run(found, 60 * SECOND_NS)
    assert found.statistics().transitions == before
    assert told(found) == ["to", "topic"]
    assert found.clients.statistics().lingering == 0
    assert found.clients.matching(QUOTE, HOST) == {2: [1]}
    found.check()


def test_a_lost_client_that_stays_away_is_removed() -> None:
    """PRF-07, PRF-08: the removal is scheduled, and takes place."""
    found = profiles()
    found.client(ClientUp(1, "alice", reachable=True), 0)
    found.client(Subscribe(1, 1, "topic", "quotes", 4), 0)
    run(found, SECOND_NS)
    found.client(ClientDown(1, lost=True), 2 * SECOND_NS)
    run(found, 7 * SECOND_NS - 1)
    assert told(found) == ["to", "topic"]
    run(found, 8 * SECOND_NS)
    assert told(found) == []
    assert found.clients.next_wakeup() is None


@pytest.mark.parametrize(("grace_ns", "lost"), [(0, True), (5 * SECOND_NS, False)])
def test_without_grace_or_with_a_goodbye_it_is_removed_at_once(grace_ns: int, lost: bool) -> None:
    """PRF-07."""
    found = profiles(grace_ns=grace_ns)
    found.client(ClientUp(1, "alice"), 0)
    found.client(Subscribe(1, 1, "topic", "quotes", 4), 0)
    run(found, SECOND_NS)
    found.client(ClientDown(1, lost=lost), SECOND_NS)
    run(found, SECOND_NS + SECOND_NS // 2)
    assert told(found) == []


def test_what_only_lingers_is_acknowledged_anew() -> None:
    """ACT-05, ACT-06: a want that stands for nobody is no sign that everybody has heard of it; a second one is."""
    found = profiles(grace_ns=60 * SECOND_NS)
    found.map_changed(0)
    levels: list[list[int]] = []
    for session in (1, 2, 3):
        at_ns = 10 * session * SECOND_NS
        found.client(ClientUp(session, "alice"), at_ns)
        found.client(Subscribe(session, 1, "topic", "quotes", 4), at_ns)
        levels.append([each.level for each in found.active(at_ns)])
        for due_ns in range(at_ns, at_ns + 5 * SECOND_NS, SECOND_NS // 20):
            found.tick(due_ns)
            found.map_changed(due_ns)
            levels[-1] += [each.level for each in found.active(due_ns)]
        found.check()
        if session == 1:
            found.client(ClientDown(session, lost=True), at_ns + 5 * SECOND_NS)
    assert levels == [[1, 2, 3, 4], [1, 2, 3, 4], [4]]


def test_a_topic_costs_a_broker_few_bytes() -> None:
    """All offices of a broker have one table, and the engines hold the same text."""
    found, count = profiles(), 3000
    found.map_changed(0)
    found.client(ClientUp(1, "alice"), 0)
    run(found, SECOND_NS)
    tracemalloc.start()
    try:
        for number in range(count):
            found.client(Subscribe(1, number, "topic", f"sensors.{number}", 4), SECOND_NS)
        for step in range(16 * 25):  # not all is told in one step
            due_ns = SECOND_NS + step // 25 * SECOND_NS // 4
            found.tick(due_ns)
            found.news()
            found.active(due_ns)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(list(found.table.rows(HOST))) == len(list(found.table.rows(HOST[:3]))) == count
    assert len(found.acknowledgements) == 0
    beginnings = 200 * MAX_YOUNG  # of so many the beginning is held, however many there are
    assert size < 320 * count + beginnings, "a table for each office would make it 800"
    found.check()


def test_what_lingers_is_bounded_and_every_want_is_handed_back_once() -> None:
    """A storm of clients that come and go: the oldest wants go first; a clock that steps back loses none."""
    clients = Clients(HOST)
    for subscription in range(10):
        clients.open(subscription, "alice")
        for number in range(MAX_LINGERING // 10):
            clients.subscribe(subscription, number, "integer", number, 4)
        assert clients.close(subscription, 100 - subscription) == []
    clients.open(99, "bob")
    for number in range(10):
        clients.subscribe(99, number, "topic", "late", 4)
    over = clients.close(99, 100)
    assert [want.constraint for want in over] == list(range(10 - MAX_LINGERING % 10))
    assert clients.next_wakeup() == 100
    assert clients.expire(99) == []
    steps = [len(clients.expire(100)) for _ in range(MAX_LINGERING // AT_ONCE)]
    assert steps == [AT_ONCE] * (MAX_LINGERING // AT_ONCE) and clients.expire(100) == []
    assert clients.next_wakeup() is None
    clients.check()


def test_a_grace_below_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="grace_ns"):
        Settings(grace_ns=-1)
    with pytest.raises(ConfigError, match="top"):
        Settings(top="flood")  # type: ignore[arg-type]
