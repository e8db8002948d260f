"""The wheel of an application: one driver, whatever is asked in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veena.services.application.steering_lock import Record, SteeringLock
from veena.services.dictionary.dictionary import Dictionary
from veena.services.structured import StructuredEvent

SECOND = 10**9
LIMIT = 10 * SECOND


def shown(lock: SteeringLock) -> list[tuple[str, str, bool, str]]:
    return [(record.action, record.by, record.is_granted, record.driver) for record in lock.records]


def test_one_drives_and_the_others_are_told_who() -> None:
    """DIS-04: a second one is refused, with who drives, and what to do about it."""
    lock = SteeringLock(LIMIT)
    assert lock.driver(0) is None and lock.remaining_ns(0) is None
    assert lock.take("sue", 0).is_granted
    refused = lock.take("sam", SECOND)
    assert not refused.is_granted and refused.driver == "sue"
    assert refused.reason == "'sue' drives: ask for a hand-over, or wait; the wheel is free after 9 s of silence"
    assert lock.driver(SECOND) == "sue"
    assert lock.release("sue", SECOND).is_granted
    assert lock.take("sam", SECOND).driver == "sam"


def test_hand_over() -> None:
    lock = SteeringLock(LIMIT)
    assert lock.hand_over("sue", "sam", 0).reason == "nobody drives: take the wheel first"
    lock.take("sue", 0)
    assert not lock.hand_over("sam", "sam2", 0).is_granted
    assert lock.hand_over("sue", "sam", 9 * SECOND).driver == "sam"
    assert lock.driver(18 * SECOND) == "sam", "its time began with the hand-over"
    assert not lock.hand_over("sue", "joe", 18 * SECOND).is_granted


def test_a_hand_over_to_nobody_is_taken_back() -> None:
    """A slip of the pen does not stop everybody for the whole time-out; who has touched the wheel keeps it."""
    lock = SteeringLock(LIMIT)
    lock.take("sue", 0)
    lock.hand_over("sue", "smaug", 1)
    assert not lock.take("joe", 2).is_granted
    assert lock.take("sue", 2).driver == "sue"
    lock.hand_over("sue", "sam", 3)
    lock.touch("sam", 4)
    assert not lock.take("sue", 5).is_granted
    assert lock.hand_over("sue", "sam", 5).is_granted, "the same again is done"
    assert lock.driver(5) == "sam"


def test_silence_ends_it() -> None:
    """A driver that is not heard of for the time-out drives no longer; any sign of it begins its time anew."""
    lock = SteeringLock(LIMIT)
    lock.take("sue", 0)
    lock.touch("sue", 9 * SECOND)
    lock.touch("sam", 18 * SECOND)
    assert lock.remaining_ns(18 * SECOND) == SECOND
    assert lock.driver(19 * SECOND - 1) == "sue"
    assert lock.driver(19 * SECOND) is None
    assert lock.take("sam", 20 * SECOND).is_granted
    assert not lock.steer("sue", "alpha", 1.0, 20 * SECOND).is_granted
    assert shown(lock)[1] == ("expire", "sue", True, "")
    assert lock.records[1].reason == "nothing was heard of 'sue' for 10 s"


def test_a_program_that_said_it_is_there_and_stops_saying_so_has_gone() -> None:
    lock = SteeringLock(LIMIT, absent_ns=3 * SECOND)
    lock.take("sue", 0)
    lock.stay("sam", SECOND)
    assert lock.driver(9 * SECOND) == "sue", "who never says so is given the whole time"
    lock.touch("sue", 9 * SECOND)
    for at in (10, 12, 14):
        lock.stay("sue", at * SECOND)
    assert lock.remaining_ns(14 * SECOND) == 5 * SECOND, "it is no sign of the driver"
    assert lock.driver(17 * SECOND - 1) == "sue"
    assert lock.driver(17 * SECOND) is None
    assert shown(lock) == [("take", "sue", True, "sue"), ("depart", "sue", True, "")]
    assert lock.records[-1].reason == "the program of 'sue' has gone: silent for 3 s"
    lock.take("sue", 18 * SECOND)
    lock.stay("sue", 18 * SECOND)
    lock.hand_over("sue", "sam", 19 * SECOND)
    assert lock.driver(28 * SECOND) == "sam", "what was said by one driver does not count for the next"


def test_everything_may_be_said_twice() -> None:
    """An answer that was lost makes a client repeat its wish: it is done, once, and written down once."""
    lock = SteeringLock(LIMIT)
    for _ in range(2):
        assert lock.take("sue", 0).is_granted
    for _ in range(2):
        assert lock.hand_over("sue", "sam", 1).is_granted
    assert lock.hand_over("sam", "sam", 1).is_granted
    for _ in range(2):
        assert lock.release("sam", 2).is_granted
    assert lock.release("nobody", 2).is_granted
    assert [row[:2] for row in shown(lock)] == [("take", "sue"), ("hand_over", "sue"), ("release", "sam")]
    lock.take("joe", 3)
    assert not lock.hand_over("sue", "sam", 4).is_granted, "that hand-over is over"
    assert not lock.release("sue", 4).is_granted
    assert lock.driver(4) == "joe"


def test_who_steered_what_is_written_down() -> None:
    """Point 4: a record of each change, granted or not, that the standard dictionary takes as an event."""
    lock = SteeringLock(LIMIT)
    lock.steer("ann", "alpha", 0.2, 5)
    lock.take("sue", 6)
    lock.steer("sue", "alpha", 0.3, 7)
    lock.steer("sue", "name", "x" * 9999, 8)
    lock.steer("ann", "alpha", True, 9)
    changes = [(each.by, each.parameter, each.value, each.is_granted) for each in lock.untold() if each.parameter]
    assert changes == [
        ("ann", "alpha", 0.2, False),
        ("sue", "alpha", 0.3, True),
        ("sue", "name", "x" * 1000, True),
        ("ann", "alpha", True, False),
    ]
    assert lock.untold() == [], "each is told once"
    assert [record.number for record in lock.records] == [1, 2, 3, 4, 5]
    for record in lock.records:
        event = StructuredEvent("heat", "Monitoring", "record", record.fields())
        assert Dictionary.standard().check(event, "application").is_reliable


def test_records_are_bounded() -> None:
    lock = SteeringLock(LIMIT, max_records=3)
    for at in range(10):
        lock.steer("ann", "alpha", at, at)
    assert [record.number for record in lock.records] == [8, 9, 10]
    assert len(lock.untold()) == 3


def test_a_time_out_that_is_none() -> None:
    with pytest.raises(ValueError, match="timeout_ns 0"):
        SteeringLock(0)


WISHES = st.lists(
    st.tuples(
        st.sampled_from(["take", "release", "hand_over", "touch", "stay", "steer"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 6),
    ),
    max_size=60,
)


def _wish(lock: SteeringLock, verb: str, who: str, to: str, now: int) -> bool:
    match verb:
        case "take":
            return lock.take(who, now).is_granted
        case "release":
            return lock.release(who, now).is_granted
        case "hand_over":
            return lock.hand_over(who, to, now).is_granted
        case "touch":
            lock.touch(who, now)
        case "stay":
            lock.stay(who, now)
        case _:
            return lock.steer(who, "p", 1, now).is_granted
    return True


def test_a_hand_over_is_taken_back_until_the_other_has_touched_the_wheel() -> None:
    """That the other's program is there says nothing of whoever should sit before it."""
    lock = SteeringLock(100, absent_ns=50)
    lock.take("ann", 0)
    lock.hand_over("ann", "bob", 1)
    lock.stay("bob", 2)
    assert lock.take("ann", 3).is_granted and lock.driver(3) == "ann"
    lock.hand_over("ann", "bob", 4)
    lock.touch("bob", 5)
    assert not lock.take("ann", 6).is_granted and lock.driver(6) == "bob"


@given(WISHES)
def test_the_records_tell_who_drove_when(wishes: list[tuple[str, str, str, int]]) -> None:
    """At most one drives; nobody gets the wheel from another's hands; and it all can be read from the records."""
    lock, now = SteeringLock(10, absent_ns=5), 0
    untouched: tuple[str, str] | None = None
    for verb, who, to, pause in wishes:
        now += pause
        before = lock.driver(now)
        granted = _wish(lock, verb, who, to, now)
        after = lock.driver(now)
        if verb == "steer":
            assert granted == (before == who)
        if before is not None and after != before:
            given_away = verb == "take" and untouched == (who, before)
            assert given_away or (before == who and verb in ("release", "hand_over"))
        if after != before:
            untouched = (who, to) if verb == "hand_over" else None
        elif who == after and verb != "stay":  # that its program is there is no sign of the driver
            untouched = None
        assert after is None or 0 < (lock.remaining_ns(now) or 0) <= 10
    assert _replayed(lock.records) == (lock.driver(now) or "")
    times = [record.at_ns for record in lock.records]
    assert times == sorted(times)


def _replayed(records: tuple[Record, ...]) -> str:
    driver, handed = "", None
    for record in records:
        if not record.is_granted or record.action == "change":
            assert record.driver == driver
        elif record.action != "take":
            assert record.by == driver
        else:
            assert driver == "" or handed == (record.by, driver), "nobody has it, or it is taken back"
        if record.driver != driver:
            handed = (record.by, record.driver) if record.action == "hand_over" else None
        driver = record.driver
    return driver
