"""How often something is told: at once after a quiet time, gathered under load (PPP-05)."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from veena.core.messages.pace import AT_ONCE, Pace

GATHER_NS = 100
INTERVAL_NS = 150


def told_at(changes: list[int]) -> list[int]:
    """When changes at these times are told."""
    pace, due, told = Pace(GATHER_NS), None, list[int]()
    for now in changes:
        while due is not None and due < now:
            pace.told(due)
            told.append(due)
            due = None
        if due is None:
            due = pace.next_ns(now)
        if due <= now:
            pace.told(now)
            told.append(now)
            due = None
    return told if due is None else [*told, due]


def test_after_a_quiet_time_some_go_at_once() -> None:
    """Whoever asks for a few things in turn waits for none of them."""
    begins = 10_000
    assert told_at([begins + each for each in range(AT_ONCE)]) == [begins + each for each in range(AT_ONCE)]


def test_under_load_an_interval_lies_between() -> None:
    """Changes that come ten in an interval go out together."""
    told = told_at(list(range(0, 100 * INTERVAL_NS, INTERVAL_NS // 10)))
    gathered = told[AT_ONCE:]
    assert {after - before for before, after in itertools.pairwise(gathered)} == {INTERVAL_NS}


@given(st.lists(st.integers(0, 200), max_size=80))
def test_never_more_than_the_allowance_and_none_is_late(pauses: list[int]) -> None:
    """In any time no more than the allowance and one an interval; none waits longer than one interval."""
    now, changes = 0, []
    for pause in pauses:
        now += pause
        changes.append(now)
    told = told_at(changes)
    for first in range(len(told)):
        for last in range(first, len(told)):
            assert last - first + 1 <= AT_ONCE + (told[last] - told[first]) / INTERVAL_NS
    for change in changes:
        assert any(change <= each <= change + INTERVAL_NS for each in told)


def test_what_can_wait_is_gathered_and_no_sooner_than_the_rest() -> None:
    pace = Pace(GATHER_NS)
    assert pace.later_ns(1_000) == 1_000 + GATHER_NS
    for _ in range(AT_ONCE):
        pace.told(1_000)
    assert pace.later_ns(1_000) == pace.next_ns(1_000) == 1_000 + INTERVAL_NS
