"""What is kept and what goes: the rules by themselves, and in a real file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.store_desk import NOBODY, Desk, entry
from veena.core.boundary.stored import Forgotten, LastHad, Progress, Reached, Registered, Skip
from veena.errors import ConfigError
from veena.runtime.store.retention import MIN_BYTES, TRIM_AT, Cut, Need, Old, Retention, cut, refusal

RULES = Retention(age_ns=100, max_bytes=MIN_BYTES)
SMALL = 0
FULL = MIN_BYTES
FREE = Need(1000, 1000)
DURABLE = Registered(1, "alice", "n", "topic", "t", 1, 1, (1,), "home")


def rows(*accepted_ns: int) -> list[Old]:
    return [Old(at, each, 100) for at, each in enumerate(accepted_ns)]


def test_what_is_old_goes() -> None:
    assert cut(rows(0, 50, 200), SMALL, FREE, RULES, 160) == Cut(2, "age")
    assert cut(rows(0, 50, 200), SMALL, FREE, RULES, 99) is None
    assert cut([], FULL, FREE, RULES, 99) is None


def test_what_is_needed_stays_whatever_its_age_and_the_size() -> None:
    """FLT-05: open duties and durable cursors win."""
    assert cut(rows(0, 0, 0), FULL, Need(1, 1000), RULES, 10**9) == Cut(1, "size")
    assert cut(rows(0, 0, 0), FULL, Need(0, 1000), RULES, 10**9) is None


def test_readers_outside_win_over_age_and_lose_to_size() -> None:
    assert cut(rows(0, 0, 0), SMALL, Need(1000, 2), RULES, 10**9) == Cut(2, "age")
    assert cut(rows(0, 0, 0), FULL, Need(1000, 0), RULES, 10**9) == Cut(3, "size")


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, MIN_BYTES // 4)), max_size=30),
    st.integers(0, 2 * MIN_BYTES), st.integers(0, 40), st.integers(0, 40), st.integers(0, 400),
)  # fmt: skip
def test_no_more_goes_than_must(
    drawn: list[tuple[int, int]], used: int, needed_from: int, committed: int, now_ns: int
) -> None:
    """Each entry that goes is neither needed nor, unless the file is too large, young or unread outside."""
    oldest = [Old(at, accepted_ns, size) for at, (accepted_ns, size) in enumerate(drawn)]
    found = cut(oldest, used, Need(needed_from, committed), RULES, now_ns)
    below = 0 if found is None else found.below
    freed = 0
    for old in oldest[:below]:
        assert old.offset < needed_from
        is_over = used - freed > MIN_BYTES * TRIM_AT // 100
        assert is_over or (old.accepted_ns <= now_ns - 100 and old.offset < committed)
        freed += old.size
    if below < len(oldest):
        last = oldest[below]
        is_over = used - freed > MIN_BYTES * TRIM_AT // 100
        is_old = last.accepted_ns <= now_ns - 100 and last.offset < committed
        assert last.offset >= needed_from or not (is_over or is_old)


def test_publishers_are_refused_before_the_file_is_full() -> None:
    assert refusal(MIN_BYTES * 89 // 100, True, RULES) is None
    assert "90 %" in (refusal(MIN_BYTES * 91 // 100, True, RULES) or "")
    assert refusal(MIN_BYTES * 91 // 100, False, RULES) is None
    assert "max_bytes" in (refusal(MIN_BYTES, False, RULES) or "")


@pytest.mark.parametrize("options", [{"age_ns": -1}, {"max_bytes": 100}])
def test_rules_that_cannot_be(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="store"):
        Retention(**options)


def test_age_takes_what_nobody_needs_and_the_offsets_go_on(tmp_path: Path) -> None:
    """An empty log still knows where it goes on, and that it does not begin at the beginning."""
    clock = [0]
    options = {"retention": Retention(age_ns=100), "now_ns": lambda: clock[0]}
    with Desk(tmp_path, **options) as desk:
        desk.stored(*(entry(at, 10 + at, to_serve=1) for at in range(10)))
        clock[0] = 1000
        desk.trimmed()
        assert desk.offsets() == list(range(10)), "a unit needs them"
        desk.stored(Progress(((1, 4),)))
        desk.trimmed()
        assert desk.offsets() == [4, 5, 6, 7, 8, 9]
        assert desk.read(0).begins_ns == 14
        desk.stored(Progress(((1, 10),)))
        desk.trimmed()
        assert desk.offsets() == []
        assert desk.read(0).begins_ns == 20
    with Desk(tmp_path, **options) as desk:
        assert desk.store.load(NOBODY).next_offset == 10
        assert desk.read(0).begins_ns == 20
        desk.stored(entry(10, 1000, to_serve=1))
        assert desk.read(0).begins_ns == 1000


def test_durable_subscriptions_hold_what_is_kept_for_them(tmp_path: Path) -> None:
    """FLT-05, CLI-07: until it is acknowledged, or the subscription ends."""
    with Desk(tmp_path, retention=Retention(age_ns=0)) as desk:
        desk.stored(DURABLE, Reached(1, 0), *(entry(at, inboxes=(1,)) for at in range(5)))
        desk.trimmed()
        assert desk.offsets(inbox=1) == [0, 1, 2, 3, 4]
        desk.stored(Reached(1, 3))
        desk.trimmed()
        assert desk.offsets(inbox=1) == [3, 4]
        desk.stored(Forgotten(1))
        desk.trimmed()
        assert desk.offsets() == []
        assert desk.store.check() == []


def test_what_a_moving_subscription_has_had_stays_until_it_is_at_home(tmp_path: Path) -> None:
    """GUA-02: by its entries a broker tells what comes a second time from the former home."""
    with Desk(tmp_path, retention=Retention(age_ns=0)) as desk:
        desk.stored(entry(0), entry(1))
        desk.stored(replace(DURABLE, state="arriving"), Reached(1, 2), entry(2, inboxes=(1,)))
        desk.stored(replace(DURABLE, state="open"), entry(3, inboxes=(1,)), Reached(1, 4))
        desk.trimmed()
        assert desk.offsets() == [2, 3]
    with Desk(tmp_path, retention=Retention(age_ns=0)) as desk:
        desk.trimmed()
        assert [each.offset for each in desk.store.load(NOBODY).entries] == [2, 3]
        desk.stored(DURABLE)
        desk.trimmed()
        assert desk.offsets() == []


def test_a_cursor_that_nobody_moves_holds_up_nothing(tmp_path: Path) -> None:
    """Entries for inboxes alone go though the cursors of units stand before them."""
    with Desk(tmp_path, retention=Retention(age_ns=0)) as desk:
        desk.stored(entry(0, to_serve=1), Progress(((1, 1),)), DURABLE, Reached(1, 0))
        desk.stored(*(entry(at, inboxes=(1,)) for at in range(1, 5)), Reached(1, 5))
        desk.trimmed()
        assert desk.offsets() == []
    with Desk(tmp_path, retention=Retention(age_ns=0)) as desk:
        desk.stored(*(entry(at, inboxes=(1,)) for at in range(5, 8)), Reached(1, 8))
        assert desk.store.load(NOBODY).next_offset == 8
        desk.trimmed()
        assert desk.offsets() == []


def test_a_reader_outside_holds_what_is_old_until_the_file_is_too_large(tmp_path: Path) -> None:
    """Size wins over what Spark has not committed, and the gap is reported."""
    body = b"y" * 1000
    with Desk(tmp_path, retention=Retention(age_ns=0, max_bytes=MIN_BYTES)) as desk:
        desk.store.commit_reader("archive", 3)
        desk.stored(*(entry(at, body=body) for at in range(10)))
        desk.trimmed()
        assert desk.offsets() == [3, 4, 5, 6, 7, 8, 9]
        for at in range(10, 1000, 10):
            desk.write(*(entry(each, body=body) for each in range(at, at + 10)))
            desk.trimmed()
        statistics = desk.store.statistics()
        kept = desk.offsets()
        assert 0 < len(kept) < 990
        assert statistics.readers["archive"] == (3, kept[0] - 3)
        assert statistics.used_bytes < MIN_BYTES
    with Desk(tmp_path, retention=Retention(age_ns=0, max_bytes=MIN_BYTES)) as desk:
        assert desk.store.statistics().readers["archive"] == (3, kept[0] - 3)
        desk.store.forget_reader("archive")
        desk.store.save()
        assert desk.store.statistics().readers == {}
        desk.trimmed()
        assert desk.offsets() == []


def test_what_must_be_kept_fills_the_file_until_publishers_are_refused(tmp_path: Path) -> None:
    """FLT-09, design §7: refused at 90 %; what is accepted can still be delivered, and then there is room again."""
    body = b"y" * 5000
    with Desk(tmp_path, retention=Retention(age_ns=0, max_bytes=MIN_BYTES)) as desk:
        at = 0
        while (reason := getattr(desk.write(entry(at, to_serve=1, body=body)), "reason", None)) is None:
            at += 1
        assert "90 %" in reason
        assert desk.store.statistics().trouble is not None
        desk.trimmed()
        assert desk.offsets() == list(range(at)), "nothing that was accepted is gone"
        desk.stored(entry(at, inboxes=(1,), body=body))
        desk.stored(Progress(((1, at),)))
        desk.trimmed()
        desk.stored(entry(at + 1, to_serve=1, body=body))
        assert desk.store.statistics().trouble is None
        assert at > 100


def test_without_history_only_what_is_needed_stays(tmp_path: Path) -> None:
    with Desk(tmp_path, history="none") as desk:
        desk.stored(entry(0, to_serve=1), entry(1, to_serve=1), Progress(((1, 1),)))
        desk.trimmed()
        assert desk.offsets() == [1]


def test_places_of_quiet_streams_are_forgotten_after_their_time(tmp_path: Path) -> None:
    """DUP-08: as long as an origin may send again, and not for ever."""
    clock = [0]
    stream = ("alice", 1, 3)
    with Desk(tmp_path, now_ns=lambda: clock[0], remember_ns=100) as desk:
        desk.stored(LastHad(stream, (1, 1)), Skip(stream, (1, 2)))
        clock[0] = 90
        desk.stored(LastHad(("bob", 1, 3), (1, 1)))
    clock[0] = 150
    with Desk(tmp_path, now_ns=lambda: clock[0], remember_ns=100) as desk:
        desk.trimmed()
        found = desk.store.load(NOBODY)
        assert found.had == {("bob", 1, 3): (1, 1)}
        assert found.skips == {}


def test_a_subscription_that_nobody_reads_holds_its_own_events_and_no_others(tmp_path: Path) -> None:
    """FLT-05, FLT-09: what lies between them goes; they go when they are acknowledged, before or after a restart."""
    options = {"retention": Retention(age_ns=0)}
    with Desk(tmp_path, **options) as desk:
        desk.stored(DURABLE, Reached(1, 0), *(entry(at, inboxes=(1,) if at % 5 == 0 else ()) for at in range(20)))
        desk.trimmed()
        assert desk.offsets() == desk.offsets(inbox=1) == [0, 5, 10, 15]
        assert desk.read(0).begins_ns > entry(19).accepted_ns, "of what was published nothing is left"
        desk.stored(Reached(1, 6), *(entry(at) for at in range(20, 23)))
        desk.trimmed()
        assert desk.offsets() == [10, 15]
    with Desk(tmp_path, **options) as desk:
        assert [each.offset for each in desk.store.load(NOBODY).entries] == [10, 15]
        desk.stored(Reached(1, 15))
        desk.trimmed()
        assert desk.offsets() == [15]
        desk.stored(Forgotten(1))
        desk.trimmed()
        assert desk.offsets() == []
        assert desk.store.load(NOBODY).next_offset == 23
        assert desk.store.check() == []
