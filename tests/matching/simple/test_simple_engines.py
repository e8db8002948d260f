"""Integer and string topics."""

from __future__ import annotations

import pytest

from veena import Event, matching
from veena.errors import InvalidConstraint, InvalidEvent
from veena.matching.base.engine import MATCHES, Constraint
from veena.matching.simple.topic import MAX_TOPIC_LENGTH


def test_topics_are_equal_character_by_character() -> None:
    """MAT-10: Sports matches Sports, not sports."""
    engine = matching.create("topic")
    engine.add(1, "Sports", 1)
    assert engine.match(Event(topic="Sports")) == [1]
    assert engine.match(Event(topic="sports")) == []


@pytest.mark.parametrize("narrower", ["Sports/NBA", "Sports/Soccer/UEFA"])
def test_topics_have_no_hierarchy(narrower: str) -> None:
    """MAT-11: a subscription to Sports covers no sub-topic."""
    engine = matching.create("topic")
    engine.add(1, "Sports", 1)
    assert engine.match(Event(topic=narrower)) == []
    assert engine.destinations(Event(topic=narrower)) == 0
    assert not matching.covers("topic", "Sports", narrower)
    assert matching.covers("topic", narrower, narrower)


@pytest.mark.parametrize(
    ("engine", "constraint", "position"),
    [
        ("topic", "", 0),
        ("topic", "x" * (MAX_TOPIC_LENGTH + 1), MAX_TOPIC_LENGTH),
        ("topic", 5, 0),
        ("integer", 1 << 32, 0),
        ("integer", -1, 0),
        ("integer", True, 0),
        ("integer", "5", 0),
    ],
)
def test_what_is_no_topic_is_refused_with_its_position(engine: str, constraint: Constraint, position: int) -> None:
    """MAT-40: a meeting id above 2^32 - 1 is refused."""
    with pytest.raises(InvalidConstraint) as caught:
        matching.create(engine).add(1, constraint, 1)
    assert caught.value.position == position
    with pytest.raises(InvalidConstraint):
        matching.covers(engine, constraint, constraint)


def test_integers_are_four_bytes() -> None:
    """MAT-40: match by equality, up to the largest number of four bytes."""
    engine = matching.create("integer")
    engine.add(1, (1 << 32) - 1, 1)
    engine.add(2, 0, 2)
    assert engine.match(Event(integer=(1 << 32) - 1)) == [1]
    assert engine.match(Event(integer=0)) == [2]
    with pytest.raises(InvalidEvent, match="four bytes"):
        Event(integer=1 << 32)


def test_a_meeting_of_three_gets_the_packet() -> None:
    """MAT-41, IOP-07: the payload of an integer topic is not looked at; all three members of meeting 1234 are found."""
    engine = matching.create("integer")
    for member in (3, 1, 2):
        engine.add(member, 1234, 1 << member)
    packet = Event(integer=1234, body=b"\x80\x00RTP")
    assert engine.match(packet) == [1, 2, 3]
    assert engine.destinations(packet) == 0b1110
    engine.remove(2)
    assert engine.match(packet) == [1, 3]
    assert engine.destinations(packet) == 0b1010


def test_an_event_without_the_field_matches_nothing() -> None:
    for name, constraint in (("topic", "a"), ("integer", 1), ("tags", "A=1")):
        engine = matching.create(name)
        engine.add(1, constraint, 1)
        assert engine.match(Event()) == []
        assert engine.destinations(Event()) == 0
        assert engine.explain(1, Event()).startswith("unknown")


def test_the_answer_is_the_callers_own() -> None:
    engine = matching.create("topic")
    engine.add(1, "a", 1)
    engine.add(2, "a", 1)
    engine.match(Event(topic="a")).clear()
    assert engine.match(Event(topic="a")) == [1, 2]


def test_explanations_name_both_values() -> None:
    engine = matching.create("topic")
    engine.add(1, "a", 1)
    assert engine.explain(1, Event(topic="a")) == MATCHES
    assert engine.explain(1, Event(topic="b")) == "failed: topic is 'b', the profile wants 'a'"
    with pytest.raises(KeyError):
        engine.explain(2, Event(topic="b"))


def test_one_look_up_whatever_the_profiles() -> None:
    """DST-04, DST-07: 1,000 profiles for the same destination are one step."""
    engine = matching.create("topic")
    for index in range(1_000):
        engine.add(index, "a", 1)
    before = engine.statistics().evaluations
    assert engine.destinations(Event(topic="a")) == 1
    assert engine.statistics().evaluations - before == 1
