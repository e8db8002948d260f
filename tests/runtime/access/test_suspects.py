"""How long senders are refused whose frames broke the core, on a clock that the test moves."""

from __future__ import annotations

from veena.runtime.access.suspects import FIRST_S, FORGET_S, LONGEST_S, MAX_SUSPECTS, Suspects


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_time_doubles_up_to_a_bound_and_is_forgotten() -> None:
    """FLT-01: a sender that goes on is let in more and more seldom; one that stops is as good as any other."""
    clock = Clock()
    suspects = Suspects(clock)
    assert suspects.why_not("x") is None
    expected = FIRST_S
    for _ in range(30):
        assert suspects.caught("x") == expected
        assert suspects.refused() == 1
        clock.now += expected - 0.5
        assert "come again in 0 seconds" in str(suspects.why_not("x")) or "1 seconds" in str(suspects.why_not("x"))
        clock.now += 0.5
        assert suspects.why_not("x") is None and suspects.refused() == 0
        expected = min(2 * expected, LONGEST_S)
    assert expected == LONGEST_S
    clock.now += FORGET_S + 1
    assert suspects.caught("x") == FIRST_S
    assert suspects.why_not("y") is None


def test_the_table_is_bounded() -> None:
    suspects = Suspects(Clock())
    suspects.caught("first")
    suspects.caught("second")
    suspects.caught("first")
    for number in range(MAX_SUSPECTS - 1):
        suspects.caught(f"other {number}")
    assert len(suspects) == MAX_SUSPECTS
    assert suspects.why_not("second") is None, "it was caught longest ago"
    assert suspects.why_not("first") is not None
