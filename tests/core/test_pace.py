"""How often a unit tells what it wants and what it has heard (design §5)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from veena.core.pace import MOMENTS, Pace

INTERVAL = 100
MOMENT = INTERVAL // MOMENTS


def test_a_lone_change_is_told_after_a_moment_and_the_next_after_the_interval() -> None:
    pace = Pace(INTERVAL, 0)
    pace.stir(1000)
    assert pace.due_ns == 1000 + MOMENT and not pace.is_due(1000) and pace.is_due(1000 + MOMENT)
    pace.reviewed()
    pace.rest(1000 + MOMENT)
    pace.stir(1000 + MOMENT + 1)
    assert pace.due_ns == 1000 + MOMENT + INTERVAL


def test_an_office_that_was_just_taken_waits() -> None:
    pace = Pace(INTERVAL, 1000)
    pace.stir(1001)
    assert pace.due_ns == 1000 + INTERVAL


def test_looking_again_neither_hastens_nor_delays_what_is_due() -> None:
    pace = Pace(INTERVAL, 0)
    pace.wait(1000)
    assert pace.due_ns == 1000 + INTERVAL
    pace.stir(1001)
    assert pace.due_ns == 1001 + MOMENT
    pace.wait(1002)
    assert pace.due_ns == 1001 + MOMENT


@given(st.lists(st.integers(1, 3 * INTERVAL), max_size=50))
def test_an_interval_lies_between_batches_and_no_change_waits_longer(gaps: list[int]) -> None:
    """PPP-04: a thousand changes cost as many batches as intervals went by."""
    pace, now, waits_since = Pace(INTERVAL, 0), 0, None
    batches: list[int] = []
    changes = [sum(gaps[: count + 1]) for count in range(len(gaps))]
    for now in range(sum(gaps) + 2 * INTERVAL):
        if now in changes:
            pace.stir(now)
            waits_since = now if waits_since is None else waits_since
        if pace.is_due(now):
            assert waits_since is not None and now - waits_since <= INTERVAL
            pace.reviewed()
            pace.rest(now)
            batches.append(now)
            waits_since = None
    assert waits_since is None
    assert all(after - before >= INTERVAL for before, after in pairwise(batches))
