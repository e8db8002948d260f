"""What members of a group were denied: remembered within bounds, and no event is dealt round and round."""

from __future__ import annotations

from veena.core.boundary.settings import SECOND_NS
from veena.core.durable.cursor import MAX_PARKED
from veena.core.durable.group_denials import MAX_DENIED, MAX_PARKED_BYTES, MIN_DENIED, Denials, Member
from veena.core.interest.eligibility import Restriction, restriction_of
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.event_id import event_key
from veena.event import Event, EventId

CODEC = EventCodec(4, 32, 16 << 20)
ALICE: Member = ((0, 0, 0, 1), 7)


def frame(number: int, body: bytes = b"") -> EventFrame:
    return CODEC.frame(Event(topic="secret", body=body, event_id=EventId("p", 1, 1, number)), reliable=True)


def restriction(topic: str) -> Restriction:
    return restriction_of(topic, {})


def test_what_decides_about_an_event() -> None:
    """Topic, the type that the engine `constraint` sees, clearance; and what a dead letter says of its event."""
    assert restriction_of("a", {"type_name": "x", "$type_name": "y", "clearance": " top "}) == (
        "a",
        "y",
        "top",
        (None,) * 3,
    )
    assert restriction_of("a", {"other": 1}) == restriction_of("a", {"other": 2})
    assert restriction_of("a", {"of_topic": "b"}) != restriction_of("a", {"of_topic": "c"})


def test_a_member_is_denied_what_is_restricted_alike_until_it_is_forgotten() -> None:
    denials = Denials()
    assert not denials
    denials.deny(ALICE, restriction("secret"))
    assert denials
    assert not denials.may_have(ALICE, restriction("secret"))
    assert denials.may_have(ALICE, restriction("open"))
    assert denials.may_have(((0, 0, 0, 2), 7), restriction("secret"))
    denials.forget(ALICE)
    assert denials.may_have(ALICE, restriction("secret"))


def test_what_is_remembered_of_members_is_bounded_and_each_has_a_share() -> None:
    denials = Denials()
    members: list[Member] = [((0, 0, 0, 1), number) for number in range(MAX_DENIED // MIN_DENIED)]
    for member in members:
        for number in range(MIN_DENIED + 2):
            denials.deny(member, restriction(str(number)))
    denials.check()
    last = members[-1]
    assert [denials.may_have(last, restriction(str(number))) for number in range(4)] == [True, True, False, False]


def test_what_is_parked_too_long_or_is_too_much_is_overdue() -> None:
    denials = Denials()
    for number in range(MAX_PARKED + 2):
        denials.park(frame(number), number)
    denials.check()
    assert denials.next_wakeup(SECOND_NS) == 0
    assert [each.sequence for each in denials.overdue(-1)] == [0, 1]
    assert denials.next_wakeup(SECOND_NS) == 2 + SECOND_NS
    assert [each.sequence for each in denials.overdue(3)] == [2, 3]
    denials.check()
    large = Denials()
    for number in range(3):
        large.park(frame(number, bytes(MAX_PARKED_BYTES // 2)), number)
    assert [each.sequence for each in large.overdue(-1)] == [0, 1], "with what is beside their bodies, two are too much"


def test_the_time_counts_from_the_first_denial_unless_nobody_is_left() -> None:
    denials = Denials()
    denials.park(frame(1), 5)
    (again,) = denials.offer_again(is_empty=False)
    denials.park(again, 9)
    assert denials.next_wakeup(0) == 5
    (again,) = denials.offer_again(is_empty=True)
    assert denials.next_wakeup(0) is None
    denials.park(again, 11)
    assert denials.next_wakeup(0) == 11


def test_an_event_is_not_given_back_more_often_than_there_are_members() -> None:
    """Also where it was forgotten who gave it back: an event that nobody may have must not go round for ever."""
    denials, key = Denials(), event_key(frame(1))
    denials.given_back(key)
    assert denials.was_tried(key, 1)
    assert not denials.was_tried(key, 2)
    denials.taken([key])
    assert not denials.was_tried(key, 1)
