"""LIKE against a plain definition of what a pattern means, and its cost in executed lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.matching.condition import like as like_module
from veena.matching.condition.like import MAX_LIKE_TEXT, MAX_PATTERN_LENGTH, LikePattern, PatternError, is_beyond_like


def fits(pattern: str, text: str) -> bool:
    """By the book: which prefixes of the text each prefix of the pattern can stand for."""
    reachable = {0}
    for character in pattern:
        if character == "%":
            reachable = set(range(min(reachable), len(text) + 1)) if reachable else set()
        else:
            reachable = {end + 1 for end in reachable if end < len(text) and character in {"_", text[end]}}
    return len(text) in reachable


@settings(max_examples=1000)
@given(st.text("ab%_", max_size=10), st.text("ab", max_size=14))
def test_patterns_mean_what_they_say(pattern: str, text: str) -> None:
    """MAT-22: % is any number of characters, _ exactly one."""
    assert LikePattern(pattern).matches(text) is fits(pattern, text)


@settings(max_examples=500)
@given(
    st.lists(st.text("aab_", min_size=1, max_size=8), min_size=1, max_size=3),
    st.lists(st.sampled_from(["a" * 40, "ab", "b", "aab" * 20, "ba" * 15]), max_size=6).map("".join),
)
def test_pieces_with_gaps_are_found_leftmost_however_much_is_checked(pieces: list[str], text: str) -> None:
    """MAT-22: by runs, and by single characters once too many checks have failed."""
    pattern = f"%{'%'.join(pieces)}%"
    assert LikePattern(pattern).matches(text) is fits(pattern, text)


@settings(max_examples=300)
@given(st.text("ab%_!é漢", max_size=6))
def test_an_escaped_text_fits_itself_only(text: str) -> None:
    escaped = "".join(f"!{character}" for character in text)
    assert LikePattern(escaped, "!").matches(text)
    assert LikePattern(escaped, "!").exact == text
    assert not LikePattern(escaped, "!").matches(text + "a")
    assert not text or not LikePattern(escaped, "!").matches(text[:-1] + "#")


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "expected"),
    [
        ("12%3", None, "123", True),
        ("12%3", None, "12993", True),
        ("12%3", None, "1234", False),
        ("l_se", None, "lose", True),
        ("l_se", None, "loose", False),
        (r"\_%", "\\", "_foo", True),
        (r"\_%", "\\", "bar", False),
        ("", None, "", True),
        ("", None, "a", False),
        ("%", None, "", True),
        ("_", None, "漢", True),
        ("_", None, "𝒳", True),
        ("a%", None, "A", False),
        ("%\n%", None, "a\nb", True),
        (".*", None, "ab", False),
        ("%a_c%", None, "xxabcxx", True),
        ("%__%", None, "a", False),
        ("ab%bc", None, "abc", False),
    ],
)
def test_examples(pattern: str, escape: str | None, text: str, expected: bool) -> None:
    """MAT-22: the specification's examples, line ends, characters beyond 16 bits, overlapping ends."""
    assert LikePattern(pattern, escape).matches(text) is expected


@pytest.mark.parametrize(
    ("pattern", "escape", "offset"),
    [("ab!", "!", 2), ("a!!!", "!", 3), ("a", "", 0), ("a", "!!", 0), ("a" * (MAX_PATTERN_LENGTH + 1), None, 1024)],
)
def test_meaningless_patterns_are_refused(pattern: str, escape: str | None, offset: int) -> None:
    with pytest.raises(PatternError) as caught:
        LikePattern(pattern, escape)
    assert caught.value.offset == offset


#: What sys.settrace takes: called with the frame, the kind of step and its argument.
TraceFunction = Callable[[FrameType, str, Any], Any]


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of like.py a call executes: a cost that no clock and no other process changes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        nonlocal count
        if frame.f_code.co_filename != like_module.__file__:
            return None
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(previous)
    return count


@pytest.mark.parametrize(
    "pattern", ["%a%" * 100 + "b", "%a_a%" * 50 + "b", "%" + "_a" * 200 + "%b", "%a_" * 100 + "%c"]
)
def test_cost_grows_with_the_length_of_the_text(pattern: str) -> None:
    """MAT-22: what ruins a backtracking matcher costs at most a few lines a character, twice for twice the text."""
    prepared = LikePattern(pattern)
    short, long = "a" * 2000, "a" * 4000
    assert not prepared.matches(short)
    first, second = lines_run(lambda: prepared.matches(short)), lines_run(lambda: prepared.matches(long))
    assert second <= 2.1 * first + 1000
    assert second <= 5 * (len(long) + len(pattern))


def test_a_gap_costs_nothing_where_its_longest_run_does_not_stand() -> None:
    """MAT-22: a few lines for a text of any length."""
    prepared = LikePattern("%a_b17c%")
    assert lines_run(lambda: prepared.matches("a" * MAX_LIKE_TEXT)) < 50


def test_checks_that_pass_over_more_than_they_cost_go_on() -> None:
    """MAT-22: a run that stands now and then costs lines by its places, not by the characters between them."""
    text = ("x" * 99 + "ab") * 100
    prepared = LikePattern("%ab_c%")
    assert lines_run(lambda: prepared.matches(text)) < len(text) / 4
    assert prepared.matches(text + "_c")


@pytest.mark.parametrize("pattern", ["%", "a%", "%a", "%a%", "%a_a%", "a%_%a"])
def test_a_text_too_long_is_not_looked_at(pattern: str) -> None:
    """MAT-22: at the bound and one character beyond it."""
    text = "a" * MAX_LIKE_TEXT
    assert LikePattern(pattern).matches(text)
    assert not is_beyond_like(text)
    assert not LikePattern(pattern).matches(text + "a")
    assert is_beyond_like(text + "a")
    assert not is_beyond_like(b"a" * (MAX_LIKE_TEXT + 1))


@pytest.mark.parametrize(
    ("pattern", "is_gapped"),
    [("%a_b%", True), ("%x%a_b%", True), ("a_b%", False), ("%a_b", False), ("%_ab_%", False), ("%__%", False)],
)
def test_only_gaps_in_floating_pieces_are_dear(pattern: str, is_gapped: bool) -> None:
    """MAT-22: these are the patterns of which one text has few."""
    assert LikePattern(pattern).is_gapped is is_gapped


def test_the_counter_counts() -> None:
    prepared = LikePattern("%a_b%")
    assert lines_run(lambda: prepared.matches("a" * 1000)) > 1000
