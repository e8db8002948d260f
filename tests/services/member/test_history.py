"""What a member remembers of itself is bounded, whatever others send."""

from __future__ import annotations

from veena.event import Event, EventId
from veena.services.member.history import History


def event(number: int, text: str = "") -> Event:
    return Event(properties={"text": text}, event_id=EventId("ann", 1, 1, number))


def test_the_oldest_go_when_there_are_too_many() -> None:
    """DIS-07: in order, the last ones."""
    history = History(limit=3)
    for number in (1, 2, 4, 3, 5):
        history.note_consumed(event(number))
        history.note_produced(event(number), f"ann:1:1:{number}")
    assert [EventId.parse(each.id).sequence for each in history.consumed] == [4, 3, 5]
    assert [EventId.parse(each.id).sequence for each in history.produced] == [3, 4, 5]


def test_the_oldest_go_when_they_are_too_long() -> None:
    """DIS-07: who sends long texts fills nobody's memory; the last one is always there."""
    history = History(limit=100, max_bytes=250)
    for number in range(10):
        history.note_consumed(event(number, "x" * 100))
        history.note_produced(event(number, "x" * 100), f"ann:1:1:{number}")
    for kept in (history.consumed, history.produced):
        assert [EventId.parse(each.id).sequence for each in kept] == [8, 9]
        assert sum(each.size for each in kept) <= 250
    history.note_consumed(event(10, "x" * 1000))
    assert [EventId.parse(each.id).sequence for each in history.consumed] == [10]
