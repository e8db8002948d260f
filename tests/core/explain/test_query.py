"""Explain and trace: every reason on a small stage (design: every delivery traced, every non-delivery explained)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.durable_world import Reader
from tests.core.event_world import QUOTES
from tests.core.explain_world import AskingStage
from veena.core.boundary.clients import SessionClear, SessionClogged
from veena.core.boundary.explain import Denied, Explain, Explained, ExplainRefused, Reason
from veena.core.boundary.inputs_effects import Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS
from veena.core.delivery.session_queue import OVERHEAD
from veena.core.explain.path import hops_of
from veena.core.messages.kinds import Told
from veena.core.wire.trace_facts import Fact, What
from veena.errors import RefusalCode
from veena.event import Event, EventId
from veena.runtime.networks.file import make_network

SUPER = make_network(
    "explained",
    ["S.A.a.1", "S.A.b.2", "S.B.c.3"],
    [("S.A.a.1", "S.A.b.2"), ("S.A.b.2", "S.B.c.3")],
)


def test_delivered_when_and_by_which_way() -> None:
    """ERP-03, ERP-15: the hops with their times, and when it was handed over."""
    stage = AskingStage()
    session = stage.reader("3", "reader")
    publisher = stage.attach("1", "publisher")
    event = stage.publish(publisher, "x")
    stage.wait_ms(100)
    answer = stage.explained(event, "reader")
    verdict = answer.verdict
    assert (verdict.reason, verdict.broker, verdict.subscriptions) == (Reason.DELIVERED, stage.addresses["3"], (1,))
    assert stage.bodies[session] == ["x"]
    ways = [(stage.names[hop.sender], stage.names[hop.receiver]) for hop in verdict.way]
    assert ways == [("1", "2"), ("2", "3")]
    times = [verdict.accepted_ns, *(time for hop in verdict.way for time in (hop.sent_ns, hop.entered_ns))]
    assert times == sorted(times)
    assert 0 < times[0] <= times[-1] <= verdict.at_ns
    assert answer.silent == ()


def test_trace_shows_every_hop_and_every_receiver() -> None:
    stage = AskingStage()
    for name in ("2", "3"):
        stage.reader(name, f"reader-{name}")
    event = stage.publish(stage.attach("1", "publisher"), "x", reliable=False)
    stage.wait_ms(100)
    traced = stage.traced(event)
    assert [(stage.names[hop.sender], stage.names[hop.receiver]) for hop in traced.hops] == [("1", "2"), ("2", "3")]
    assert all(hop.entered_ns > hop.sent_ns for hop in traced.hops)
    assert [(stage.names[each.broker], each.client_id) for each in traced.handed] == [
        ("2", "reader-2"),
        ("3", "reader-3"),
    ]
    assert (stage.names[traced.origin], traced.silent) == ("1", ())


def test_the_term_that_failed_or_was_unknown() -> None:
    """MAT: the engine's own words."""
    stage = AskingStage()
    stage.reader("3", "reader", ("quotes", "price > 10"), "selector")
    publisher = stage.attach("1", "publisher")
    cheap = stage.publish(publisher, "x", Event(topic="quotes", properties={"price": 3}))
    bare = stage.publish(publisher, "y", QUOTES)
    other = stage.publish(publisher, "z", Event(topic="weather"))
    stage.wait_ms(100)
    verdicts = [stage.why(each, "reader") for each in (cheap, bare, other)]
    assert {verdict.reason for verdict in verdicts} == {Reason.NOT_MATCHED}
    assert "price" in verdicts[0].text
    assert "is false" in verdicts[0].text
    assert "unknown" in verdicts[1].text
    assert "topic" in verdicts[2].text
    assert len({verdict.text for verdict in verdicts}) == 3


def test_the_nearest_subscription_counts() -> None:
    """A client with several: the one that the event came nearest to."""
    stage = AskingStage(SUPER)
    session = stage.reader("3", "reader", "weather")
    stage.world.give(stage.addresses["3"], Subscribe(session, 2, "topic", "quotes", 1))
    stage.wait()
    event = stage.publish(stage.attach("1", "publisher"), "x")
    stage.wait_ms(100)
    verdict = stage.why(event, "reader")
    assert (verdict.reason, verdict.subscriptions, verdict.level) == (Reason.OUT_OF_SCOPE, (2,), 1)
    assert verdict.unit == stage.addresses["3"][:3]


def test_not_subscribed_before_after_or_at_all() -> None:
    stage = AskingStage()
    publisher = stage.attach("1", "publisher")
    session = stage.reader("3", "early")
    stage.world.give(stage.addresses["3"], Unsubscribe(session, 1))
    stage.wait()
    event = stage.publish(publisher, "x")
    stage.wait_ms(100)
    stage.reader("3", "late")
    for client in ("early", "late", "stranger"):
        assert stage.why(event, client).reason is Reason.NOT_SUBSCRIBED
    assert "unsubscribed" in stage.why(event, "early").text
    assert "after" in stage.why(event, "late").text
    assert stage.why(event, "early").at_ns < stage.why(event, "late").at_ns


def test_left_before_it_came() -> None:
    stage = AskingStage()
    session = stage.reader("3", "reader")
    event = stage.publish(stage.attach("1", "publisher"), "x", replace(QUOTES))
    stage.leave(session)  # before the disk has answered, let alone the links
    stage.wait_ms(200)
    assert stage.bodies[session] == []
    verdict = stage.why(event, "reader")
    assert verdict.reason is Reason.NOT_SUBSCRIBED
    assert "left" in verdict.text


def test_not_active_yet() -> None:
    """ACT-02: at which level, and who did not know."""
    stage = AskingStage()
    session = stage.attach("3", "reader")
    publisher = stage.attach("1", "publisher")
    stage.world.give(stage.addresses["3"], Subscribe(session, 1, "topic", "quotes", 4))
    event = stage.publish(publisher, "x", reliable=False)
    stage.wait_ms(500)
    assert stage.bodies[session] == []
    verdict = stage.why(event, "reader")
    assert (verdict.reason, verdict.level, verdict.unit) == (Reason.NOT_ACTIVE, 1, stage.addresses["3"])
    assert verdict.broker == stage.addresses["1"]


def test_unfit() -> None:
    """PRF-03: the device or the clearance."""
    stage = AskingStage()
    stage.reader("3", "reader", attributes={"device": "pager"})
    event = stage.publish(stage.attach("1", "publisher"), "x", Event(topic="quotes", headers={"needs": "video"}))
    stage.wait_ms(100)
    assert stage.why(event, "reader").reason is Reason.UNFIT


def test_expired_while_there_was_no_way() -> None:
    stage = AskingStage(asker="3")
    stage.reader("3", "reader")
    publisher = stage.attach("1", "publisher")
    stage.world.cut(stage.link("1", "2"), silent=False)
    stage.wait_ms(100)
    event = stage.publish(publisher, "x", Event(topic="quotes", ttl=1.0))
    stage.wait(2 * SECOND_NS)
    stage.world.heal(stage.link("1", "2"))
    stage.wait(5 * SECOND_NS)
    verdict = stage.why(event, "reader")
    assert verdict.reason is Reason.EXPIRED
    assert verdict.at_ns >= verdict.accepted_ns + SECOND_NS


def test_no_route_since_when_then_delivered() -> None:
    """BNM-12: the unit, and since when it cannot be reached; who is silent is named."""
    stage = AskingStage(asker="2")
    session = stage.reader("3", "reader")
    publisher = stage.attach("1", "publisher")
    other = stage.attach("2", "other")
    since_ns = stage.world.now_ns
    stage.world.cut(stage.link("2", "3"), silent=False)
    stage.wait_ms(500)
    event = stage.publish(publisher, "x")
    lost = stage.publish(other, "y", reliable=False)
    stage.wait_ms(500)
    unknown = stage.explained(event, "reader")  # the reader's broker is cut off: nobody else knows of it
    assert (unknown.verdict.reason, unknown.silent) == (Reason.UNKNOWN, (stage.addresses["3"],))
    assert (unknown.verdict.unit, unknown.verdict.broker) == (stage.addresses["3"], stage.addresses["1"])
    assert since_ns <= unknown.verdict.at_ns <= stage.world.now_ns
    stage.world.heal(stage.link("2", "3"))
    stage.wait(4 * SECOND_NS)
    assert stage.bodies[session] == ["x"]
    assert stage.why(event, "reader").reason is Reason.DELIVERED
    dropped = stage.why(lost, "reader")
    assert (dropped.reason, dropped.broker, dropped.unit) == (
        Reason.DROPPED,
        stage.addresses["2"],
        stage.addresses["3"],
    )
    assert "best effort" in dropped.text
    assert dropped.at_ns > since_ns


def test_no_route_while_the_clients_broker_can_be_asked() -> None:
    """The origin is in the part that the asker is in; the reader's broker hears the question by another way."""
    stage = AskingStage(asker="1")
    stage.reader("3", "reader")
    publisher = stage.attach("1", "publisher")
    link = stage.link("2", "3")
    cut_ns = stage.world.now_ns
    stage.world.cut(link, silent=False)
    stage.wait_ms(300)
    event = stage.publish(publisher, "x")
    stage.wait_ms(100)
    explainer = stage.broker("1").events.explainer
    parts = {stage.addresses[name]: stage.broker(name).events.explainer for name in ("1", "2", "3")}
    told = {at: each.answer((_key(event),), "reader") for at, each in parts.items()}
    verdict = explainer.combine(told, "reader", (), stage.world.now_ns)
    assert (verdict.reason, verdict.unit) == (Reason.NO_ROUTE, stage.addresses["3"])
    assert cut_ns <= verdict.at_ns <= verdict.accepted_ns


def test_slow_consumers_wait_and_are_dropped_by_policy() -> None:
    """FLT-09."""
    stage = AskingStage(session_bytes=OVERHEAD + 100)
    session = stage.reader("3", "reader")
    publisher = stage.attach("1", "publisher")
    stage.world.give(stage.addresses["3"], SessionClogged(session))
    events = [stage.publish(publisher, body) for body in "ab"]
    stage.wait_ms(200)
    dropped, waiting = (stage.why(event, "reader") for event in events)
    assert (dropped.reason, waiting.reason) == (Reason.DROPPED, Reason.WAITING)
    assert "oldest" in dropped.text
    assert "does not read" in waiting.text
    stage.world.give(stage.addresses["3"], SessionClear(session))
    assert stage.bodies[session] == ["b"]
    assert stage.why(events[1], "reader").reason is Reason.DELIVERED
    assert stage.why(events[0], "reader").reason is Reason.DROPPED


def test_disconnected_for_being_slow() -> None:
    stage = AskingStage(session_bytes=OVERHEAD + 100)
    session = stage.reader("3", "reader", slow="disconnect")
    stage.world.give(stage.addresses["3"], SessionClogged(session))
    publisher = stage.attach("1", "publisher")
    events = [stage.publish(publisher, body) for body in "ab"]
    stage.wait_ms(200)
    for event in events:
        verdict = stage.why(event, "reader")
        assert verdict.reason is Reason.DROPPED
        assert "closed" in verdict.text


def test_kept_for_a_durable_subscription_wherever_it_goes() -> None:
    """CLI-05, CLI-07: kept while its client is away, delivered where it comes back, and known over a restart."""
    stage = AskingStage()
    reader = Reader(stage, "reader")
    reader.attach("3")
    stage.wait()
    stage.leave(reader.session)
    publisher = stage.attach("1", "publisher")
    event = stage.publish(publisher, "x")
    missed = stage.publish(publisher, "y", reliable=False)
    stage.wait_ms(200)
    kept = stage.why(event, "reader")
    assert (kept.reason, kept.broker) == (Reason.KEPT, stage.addresses["3"])
    assert "'mine'" in kept.text
    dropped = stage.why(missed, "reader")
    assert dropped.reason is Reason.DROPPED
    assert "not there" in dropped.text
    stage.world.crash(stage.addresses["3"], silent=False)
    stage.world.start(stage.addresses["3"])
    stage.wait()
    assert stage.why(event, "reader").reason is Reason.KEPT
    reader.attach("2")
    stage.wait(8 * SECOND_NS)
    assert stage.bodies[reader.session] == ["x"]
    delivered = stage.why(event, "reader")
    assert (delivered.reason, delivered.broker) == (Reason.DELIVERED, stage.addresses["2"])


def test_one_of_a_group_got_it() -> None:
    """A member that did not is told that the event is for one of its group."""
    stage = AskingStage()
    sessions: list[int] = []
    for name in ("2", "3"):
        session = stage.attach(name, f"member-{name}")
        given = Subscribe(session, 1, "topic", "quotes", 4, group="workers")
        stage.world.give(stage.addresses[name], given)
        stage.wait()
        sessions.append(session)
    event = stage.publish(stage.attach("1", "publisher"), "x")
    stage.wait_ms(500)
    assert sorted(map(len, (stage.bodies[session] for session in sessions))) == [0, 1]
    reasons = {stage.why(event, f"member-{name}").reason for name in ("2", "3")}
    assert reasons == {Reason.DELIVERED, Reason.SHARED}
    other = stage.publish(stage.attach("1", "other"), "y", Event(topic="weather"))
    stage.wait_ms(100)
    assert stage.why(other, "member-2").reason is Reason.NOT_MATCHED


def test_had_before() -> None:
    """DUP: the client says when it attaches that it has had it."""
    stage = AskingStage()
    publisher = stage.attach("1", "publisher")
    event = EventId("publisher", stage.incarnation(publisher), 0, 0)
    later = stage.world.now_ns + 3600 * SECOND_NS
    had = {("publisher", event.incarnation, 4): (later, 0)}
    stage.reader("3", "reader", had=had)
    event = stage.publish(publisher, "x")
    stage.wait_ms(100)
    assert stage.why(event, "reader").reason is Reason.HAD


def test_dead_letter() -> None:
    stage = AskingStage(asker="3", retention_ns=10 * SECOND_NS, tombstone_ns=40 * SECOND_NS)
    stage.reader("3", "reader")
    publisher = stage.attach("1", "publisher")
    stage.world.cut(stage.link("1", "2"), silent=False)
    stage.wait_ms(100)
    event = stage.publish(publisher, "x")
    stage.wait(15 * SECOND_NS)
    assert [letter.id for letter in stage.dead] == [event]
    stage.world.heal(stage.link("1", "2"))
    stage.wait(5 * SECOND_NS)
    verdict = stage.why(event, "reader")
    assert verdict.reason is Reason.DEAD_LETTER
    assert "retention" in verdict.text


def test_denied_by_a_rule() -> None:
    """SEC: a driver that tests rights says that it withheld what was delivered, and by which rule; not for others."""
    stage = AskingStage()
    session = stage.reader("3", "reader")
    stage.reader("3", "other")
    event = stage.publish(stage.attach("1", "publisher"), "x")
    stage.wait_ms(100)
    broker = stage.broker("3")
    record = broker.events.records.find(_key(event))
    assert record is not None
    frame = broker.events.explainer.read(record.frame)
    assert stage.why(event, "reader").reason is Reason.DELIVERED
    stage.world.give(broker.identity.address, Denied(session, frame, "rule 3: deny subscribe"))
    verdict = stage.why(event, "reader")
    assert (verdict.reason, verdict.text) == (Reason.DENIED, "denied: rule 3: deny subscribe")
    assert [(hop.sender, hop.receiver) for hop in verdict.way][-1][1] == broker.identity.address
    assert stage.why(event, "other").reason is Reason.DELIVERED
    stage.world.give(broker.identity.address, Denied(session + 100, frame, "nobody's"))
    assert stage.why(event, "reader").text == verdict.text


def test_a_second_copy_of_what_waits_for_a_client_changes_nothing() -> None:
    """What comes again while the first copy waits for a client that does not read was not had by it."""
    stage = AskingStage()
    session = stage.reader("3", "reader")
    broker = stage.broker("3")
    stage.world.give(broker.identity.address, SessionClogged(session))
    event = stage.publish(stage.attach("1", "publisher"), "x")
    stage.wait_ms(100)
    record = broker.events.records.find(_key(event))
    assert record is not None
    broker.events.records.note(broker.events.explainer.read(record.frame), What.HAD, stage.world.now_ns)
    verdict = stage.why(event, "reader")
    assert verdict.reason is Reason.WAITING
    assert "does not read" in verdict.text


def test_copies_of_one_event_over_one_connection_are_told_apart() -> None:
    """A way is told with the times of the copies that went it, also where two went over the same connection."""
    told = Told(1, "all", 0, (), (), facts=tuple(_copy(What.SENT, at_ns, 7) for at_ns in (10, 20, 30)))
    beyond = Told(1, "all", 0, (), (), facts=tuple(_copy(What.TAKEN, at_ns, 7) for at_ns in (12, 22)))
    hops = list(hops_of({(0, 0, 0, 1): beyond}, (0, 0, 0, 0), told))
    assert [(hop.sent_ns, hop.entered_ns) for hop in hops] == [(10, 12), (20, 22), (30, 0)]


def _copy(what: What, at_ns: int, connection: int) -> Fact:
    return Fact(at_ns, what, ((0, 0, 0, 1),), (0, 0, 0, 1), connection)


def test_an_event_that_was_repeated_under_a_later_id_is_the_same_event() -> None:
    stage = AskingStage()
    stage.reader("3", "reader")
    publisher = stage.attach("1", "publisher")
    first = stage.publish(publisher, "x")
    stage.wait_ms(100)
    again = stage.attach("2", "publisher")
    second = stage.publish(again, "x", original=first[1:])
    stage.wait_ms(100)
    verdicts = [stage.why(each, "reader") for each in (first, second)]
    assert [verdict.reason for verdict in verdicts] == [Reason.DELIVERED] * 2
    assert verdicts[0].at_ns == verdicts[1].at_ns


def test_addressees_and_others() -> None:
    """EVT-05, RTE-04."""
    stage = AskingStage()
    named = stage.attach("3", "named", reachable=True)
    stage.reader("2", "reader")
    stage.wait()
    event = stage.publish(stage.attach("1", "publisher"), "x", Event(topic="quotes", to=("named",)))
    stage.wait_ms(100)
    assert stage.bodies[named] == ["x"]
    assert stage.why(event, "named").reason is Reason.DELIVERED
    other = stage.why(event, "reader")
    assert (other.reason, other.text) == (Reason.NOT_MATCHED, "failed: the event is addressed to others")


def test_without_records_nothing_is_known() -> None:
    stage = AskingStage(records="off")
    stage.reader("3", "reader")
    event = stage.publish(stage.attach("1", "publisher"), "x")
    stage.wait_ms(100)
    verdict = stage.why(event, "reader")
    assert verdict.reason is Reason.UNKNOWN
    assert "3 of 3 brokers records are off" in verdict.text


def test_with_deliveries_alone_hops_are_not_known() -> None:
    stage = AskingStage(records="deliveries")
    stage.reader("3", "reader")
    session = stage.attach("3", "late")
    publisher = stage.attach("1", "publisher")
    stage.world.give(stage.addresses["3"], Subscribe(session, 1, "topic", "weather", 4))
    event = stage.publish(publisher, "x")
    unwanted = stage.publish(publisher, "y", Event(topic="weather"), reliable=False)
    stage.wait_ms(300)
    delivered = stage.why(event, "reader")
    assert (delivered.reason, delivered.way) == (Reason.DELIVERED, ())
    verdict = stage.why(unwanted, "late")
    assert verdict.reason is Reason.UNKNOWN
    assert 'records = "all"' in verdict.text


@pytest.mark.parametrize(("deadline_ms", "wrong"), [(0, "deadline 0 ms"), (10**6, "deadline 1000000 ms")])
def test_what_is_asked_for_must_make_sense(deadline_ms: int, wrong: str) -> None:
    stage = AskingStage()
    answer = stage.ask(Explain(stage.asker, 9, EventId("a", 1, 2, 3), "b", deadline_ms))
    assert isinstance(answer, ExplainRefused)
    assert answer.why is RefusalCode.INVALID and wrong in answer.reason


def test_who_may_not_ask_is_refused() -> None:
    stage = AskingStage()
    stage.broker("1").events.explainer.may_explain = lambda session: False
    answer = stage.ask(Explain(stage.asker, 9, EventId("a", 1, 2, 3), "b"))
    assert isinstance(answer, ExplainRefused)
    assert answer.why is RefusalCode.DENIED


def test_an_unknown_event_is_said_to_be_unknown() -> None:
    stage = AskingStage()
    answer = stage.explained(EventId("nobody", 1, 2, 3), "reader")
    assert (answer.verdict.reason, answer.silent) == (Reason.UNKNOWN, ())


def test_questions_are_bounded_and_end_with_their_session() -> None:
    stage = AskingStage(asker="2")
    stage.world.cut(stage.link("2", "3"), silent=True)
    askers = [stage.attach("2", name) for name in ("another", "a third", "a fourth")]
    for at, asker in enumerate(askers):
        for number in range(35):
            ask = Explain(asker, 1000 * (at + 1) + number, EventId("a", 1, 2, number), "b")
            stage.world.give(stage.addresses["2"], ask)
    refused = {number: each.why for number, each in stage.answers.items() if isinstance(each, ExplainRefused)}
    full = dict.fromkeys([*range(2032, 2035), *range(3000, 3035)], RefusalCode.BUSY)
    assert refused == dict.fromkeys(range(1032, 1035), RefusalCode.LIMIT) | full
    for asker in askers:
        stage.leave(asker)
    stage.wait(3 * SECOND_NS)
    assert not [answer for answer in stage.answers.values() if isinstance(answer, Explained)]
    assert stage.explained(EventId("a", 1, 2, 3), "b").silent == (stage.addresses["3"],)


def _key(event: EventId) -> tuple[bytes, int, int, int]:
    return (event.publisher.encode(), *event[1:])
