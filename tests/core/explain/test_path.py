"""The way of an event, followed in what brokers tell: cases in which several copies tell different stories."""

from __future__ import annotations

from veena.address import Address
from veena.core.boundary.explain import Reason, Verdict
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.explain.path import Trail, follow, path_to
from veena.core.explain.verdict import judge
from veena.core.messages.kinds import OpenDuty, Told
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.trace_facts import MOVED, Fact, Stay, What
from veena.event import Event, EventId

ORIGIN: Address = (0, 0, 0, 0)
RELAY: Address = (0, 0, 0, 1)
GATE: Address = (0, 1, 0, 0)
HOME: Address = (0, 1, 0, 1)
UNIT = (0, 1)
STAY = Stay("reader", 7, 1, 1, b"\xa6quotes", 4, begun_ns=1)
CODEC = EventCodec(4, 32)


def frame(ttl: float | None = None) -> EventFrame:
    event = Event(topic="quotes", ttl=ttl, event_id=EventId("publisher", 1, 5, 1))
    return CODEC.frame(event, reliable=True, origin=ORIGIN)


def told(*facts: Fact, stays: tuple[Stay, ...] = (), duties: tuple[OpenDuty, ...] = (), data: bytes = b"") -> Told:
    return Told(1, "all", 0, (), (), stays, data, None, facts, duties)


def followed(parts: dict[Address, Told], stay: Stay = STAY) -> Verdict:
    return follow(Trail(parts, frame(), (), 10_000), HOME, stay, ORIGIN)


def accepted(at_ns: int = 10) -> Fact:
    return Fact(at_ns, What.ACCEPTED, (UNIT,), offset=1)


def sent(at_ns: int, peer: Address, connection: int, unit: tuple[int, ...] = UNIT) -> Fact:
    return Fact(at_ns, What.SENT, (unit,), peer, connection)


def taken(at_ns: int, peer: Address, connection: int, *units: tuple[int, ...]) -> Fact:
    return Fact(at_ns, What.TAKEN, units, peer, connection)


def test_who_only_passes_on_and_had_no_way_does_not_decide_what_is_wanted() -> None:
    """It took nothing on: its neighbour sends the event another way."""
    parts = {ORIGIN: told(accepted(), sent(11, RELAY, 3)), RELAY: told(taken(12, ORIGIN, 3)), HOME: told(stays=(STAY,))}
    assert followed(parts).reason is Reason.WAITING
    entered = told(taken(12, ORIGIN, 4, GATE))
    inside = {ORIGIN: told(accepted(), sent(11, GATE, 4)), GATE: entered, HOME: told(stays=(STAY,))}
    verdict = followed(inside)
    assert (verdict.reason, verdict.broker, verdict.at_ns) == (Reason.NOT_ACTIVE, GATE, 12)


def test_who_refused_the_unit_of_both_does_not_decide_what_is_wanted_there() -> None:
    """A newcomer at the gate passes on what is for others: what is for its own unit waits, and its life may end."""
    copy = Fact(11, What.SENT, (UNIT, (1,)), GATE, 4)
    expired = Fact(30, What.EXPIRED, (UNIT,))
    parts = {
        ORIGIN: told(accepted(), copy, expired),
        GATE: told(taken(12, ORIGIN, 4, (1,))),
        HOME: told(stays=(STAY,)),
    }
    verdict = followed(parts)
    assert (verdict.reason, verdict.broker, verdict.at_ns) == (Reason.EXPIRED, ORIGIN, 30)


def test_a_life_that_ends_while_word_is_awaited_is_not_why() -> None:
    """Where nobody wanted it, nearer to the client, its way had ended before."""
    expired = Fact(30, What.EXPIRED, (UNIT,))
    parts = {
        ORIGIN: told(accepted(), sent(11, GATE, 4), expired),
        GATE: told(taken(12, ORIGIN, 4, GATE)),
        HOME: told(stays=(STAY,)),
    }
    assert followed(parts).reason is Reason.NOT_ACTIVE
    late = {**parts, GATE: told(taken(31, ORIGIN, 4, GATE))}
    assert followed(late).reason is Reason.EXPIRED


def test_the_first_who_sees_a_life_end_counts() -> None:
    """So a client that was there then is not told that it left before."""
    parts = {
        ORIGIN: told(accepted(), sent(11, GATE, 4), Fact(30, What.EXPIRED, (UNIT,)), Fact(90, What.EXPIRED, (UNIT,))),
        GATE: told(taken(12, ORIGIN, 4, HOME)),
        HOME: told(stays=(STAY,)),
    }
    ended = Stay("reader", 7, 1, 1, b"\xa6quotes", 4, begun_ns=1, ended_ns=60, ending="left")
    for stay in (STAY, ended):
        verdict = followed(parts, stay)
        assert (verdict.reason, verdict.at_ns) == (Reason.EXPIRED, 30)


def test_what_is_under_way_to_where_a_durable_subscription_was_is_still_under_way() -> None:
    """The way that is missing is told, not only that the event will follow."""
    duty = OpenDuty(UNIT, "route", (), 20)
    moved = Stay("reader", -7, 1, 1, b"\xa6quotes", 4, begun_ns=1, ended_ns=50, ending=MOVED, durable=True)
    stands = Stay("reader", -9, 1, 1, b"\xa6quotes", 4, begun_ns=40, durable=True)
    parts = {
        ORIGIN: told(accepted(), duties=(duty,)),
        RELAY: told(stays=(stands,)),
        HOME: told(stays=(moved,)),
    }
    verdict = followed(parts, moved)
    assert (verdict.reason, verdict.unit, verdict.at_ns) == (Reason.NO_ROUTE, UNIT, 20)


def test_a_life_that_is_over_follows_no_subscription() -> None:
    """Where it ended on the way is told, not that it would have gone on to where a durable subscription has gone."""
    moved = Stay("reader", -7, 1, 1, b"\xa6quotes", 4, begun_ns=1, ended_ns=20, ending=MOVED, durable=True)
    stands = Stay("reader", -9, 1, 1, b"\xa6quotes", 4, begun_ns=15, durable=True)
    parts = {
        ORIGIN: told(accepted(), Fact(30, What.EXPIRED, (UNIT,))),
        RELAY: told(stays=(stands,)),
        HOME: told(stays=(moved,)),
    }
    verdict = followed(parts, moved)
    assert (verdict.reason, verdict.broker, verdict.at_ns) == (Reason.EXPIRED, ORIGIN, 30)


def test_a_way_is_told_by_the_copies_that_came_first_and_in_time() -> None:
    """A copy that came after the event was handed over is not how it came; clocks of brokers between may differ."""
    parts = {
        ORIGIN: told(accepted(), sent(11, RELAY, 3), sent(12, GATE, 4)),
        RELAY: told(taken(5000, ORIGIN, 3, UNIT), sent(5001, GATE, 5)),
        GATE: told(taken(20, RELAY, 5, HOME), taken(40, ORIGIN, 4, HOME), sent(21, HOME, 6, HOME)),
        HOME: told(taken(22, GATE, 6, HOME)),
    }
    way = path_to(parts, HOME, 22)
    assert [(hop.sender, hop.receiver) for hop in way] == [(ORIGIN, RELAY), (RELAY, GATE), (GATE, HOME)]
    assert path_to(parts, HOME, 21) == ()
    assert path_to(parts, ORIGIN, 99) == ()


def test_a_way_whose_first_copy_is_not_told_is_not_made_up() -> None:
    """The origin answered before it sent the copy that was passed on: a later one is not how it came."""
    parts = {
        ORIGIN: told(accepted(), sent(40, GATE, 4)),
        GATE: told(sent(21, HOME, 6, HOME), taken(45, ORIGIN, 4, HOME)),
        HOME: told(taken(22, GATE, 6, HOME)),
    }
    assert path_to(parts, HOME, 22) == ()


def test_a_life_is_counted_from_where_its_frame_was_read() -> None:
    """The origin does not answer: what a relay has tells how much of the life was left when it was there."""
    at_ns = 4_000 * MILLISECOND_NS
    data = CODEC.encode(frame(6.0), 0)
    duty = OpenDuty(HOME, "route", (), at_ns)
    logged = Fact(at_ns, What.LOGGED, (HOME,), offset=1)
    parts = {GATE: told(logged, duties=(duty,), data=data), HOME: told(stays=(STAY,))}
    for now_ms, reason in ((9_000, Reason.NO_ROUTE), (10_000, Reason.EXPIRED)):
        verdict = judge(parts, frame(6.0), "reader", (ORIGIN,), now_ms * MILLISECOND_NS)
        assert verdict.reason is reason
    assert verdict.at_ns == 10_000 * MILLISECOND_NS


def test_a_durable_subscription_that_went_where_nobody_answers_is_not_taken_to_have_ended() -> None:
    """Nobody is missed where a broker is gone for good: that it moved is known, and where it was then is not."""
    moved = Stay("reader", -7, 1, 1, b"\xa6quotes", 4, begun_ns=1, ended_ns=5, ending=MOVED, durable=True)
    later = Stay("reader", -9, 1, 1, b"\xa6quotes", 4, begun_ns=50, durable=True)
    parts = {ORIGIN: told(accepted()), RELAY: told(stays=(later,)), HOME: told(stays=(moved,))}
    assert judge(parts, frame(), "reader", (), 10_000).reason is Reason.UNKNOWN
    deleted = {**parts, HOME: told(stays=(replace_ending(moved, "left"),))}
    assert judge(deleted, frame(), "reader", (), 10_000).reason is Reason.NOT_SUBSCRIBED


def test_what_is_known_of_one_subscription_counts_more_than_what_is_not_known_of_another() -> None:
    """A durable subscription has two stays that wanted it: its later home saw what became of it."""
    dropped = Fact(25, What.DROPPED, client="reader", session=-9, text="best effort: the client was not there")
    moved = Stay("reader", -7, 1, 1, b"\xa6quotes", 4, begun_ns=1, ended_ns=50, ending=MOVED, durable=True)
    later = Stay("reader", -9, 1, 1, b"\xa6quotes", 4, begun_ns=2, durable=True)
    parts = {
        ORIGIN: told(accepted(), sent(11, GATE, 4), sent(11, RELAY, 3, RELAY)),
        RELAY: told(taken(24, ORIGIN, 3, RELAY), dropped, stays=(later,)),
        HOME: told(stays=(moved,)),
    }
    verdict = judge(parts, frame(), "reader", (GATE,), 10_000)
    assert (verdict.reason, verdict.broker, verdict.at_ns) == (Reason.DROPPED, RELAY, 25)


def replace_ending(stay: Stay, ending: str) -> Stay:
    return Stay(stay.client, stay.session, 1, 1, stay.payload, 4, stay.begun_ns, stay.ended_ns, ending, durable=True)
