"""Units entered in vain, and which of them something explains."""

from __future__ import annotations

from veena.spark.audit.hops import SKEW_US, Crossing, in_vain, is_turned

HOME = (0, 2, 0, 0)
#: Somebody in this cluster wants the event, nobody in the other one.
WANTING, OTHER = (0, 0, 2), (0, 0, 1)
WANTED = {WANTING[:size]: 0 for size in range(1, 4)} | {(*WANTING, 0): 0}
THERE = Crossing(HOME, (*WANTING, 0), 2, 20, (WANTING,))


def test_a_copy_whose_way_changed_behind_it_is_told_from_one_that_went_astray() -> None:
    """I2: a relay that dies with a copy for others was entered in vain, and not by mistake."""
    for units, is_by_turn in (((WANTING,), True), ((OTHER, WANTING), True), ((OTHER,), False), ((), False)):
        relay = Crossing(HOME, (*OTHER, 0), 2, 10, units)
        found = in_vain([relay, THERE], WANTED)
        assert found == [(relay, OTHER), (relay, (*OTHER, 0))]
        assert is_turned(relay, WANTED) is is_by_turn


def test_a_wish_that_came_later_explains_nothing() -> None:
    relay = Crossing(HOME, (*OTHER, 0), 2, 10, (WANTING,))
    assert not is_turned(relay, {WANTING: 11 + SKEW_US})


def test_a_relay_on_the_way_is_not_entered_in_vain() -> None:
    relay = Crossing(HOME, (*OTHER, 0), 2, 10, (WANTING,))
    assert in_vain([relay, Crossing((*OTHER, 0), (*WANTING, 0), 1, 20, (WANTING,))], WANTED) == []
