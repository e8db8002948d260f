"""The desk between those who steer and the computation: pure decisions, time as an argument."""

from __future__ import annotations

import pytest

from veena.errors import InvalidEvent
from veena.services.application.desk import MAX_PENDING, Answer, Command, Desk, Verb
from veena.services.application.parameters import Parameter, ParameterView, pack_views, unpack_views
from veena.services.structured import Scalar

SECOND = 10**9


def desk() -> Desk:
    return Desk(
        {
            "speed": Parameter(1.0, low=0, high=10),
            "mode": Parameter("slow", choices=("slow", "fast")),
            "found": Parameter(0, read_only=True),
        },
        lock_timeout_ns=10 * SECOND,
    )


def ask(one: Desk, verb: Verb, by: str, now_s: float = 0.0, to: str = "", **values: Scalar) -> Answer | None:
    return one.ask(Command(verb, by, values, to), round(now_s * SECOND))


def refused(answer: Answer | None) -> str:
    assert answer is not None and not answer.is_done
    return answer.reason


def test_a_change_waits_for_the_boundary_and_holds_from_then_on() -> None:
    """COL-02: a command never disturbs a step."""
    one = desk()
    assert ask(one, "take", "alice") == Answer("done", driver="alice", state="running")
    one.boundary(0)
    assert ask(one, "change", "alice", speed=3, mode="fast") is None
    assert one["speed"] == 1.0 and one.look(0)[0] == "interacting"
    [(command, answer)] = one.boundary(1)
    assert (command.by, answer.is_done, answer.state) == ("alice", True, "computing")
    assert one.values == {"speed": 3.0, "mode": "fast", "found": 0}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"speed": 11}, "'speed': 11 is out of bounds; expected float, 0 to 10"),
        ({"speed": "3"}, "'3' is no float"),
        ({"speed": True}, "True is no float"),
        ({"speed": float("nan")}, "nan is no float"),
        ({"mode": "quick"}, "none of its choices; expected one of 'slow', 'fast'"),
        ({"found": 1}, "'found' is read-only"),
        ({"speeed": 1}, "'speeed' does not exist here; there are: speed, mode, found"),
        ({"state": "asleep"}, "paused, running, stopped"),
        ({}, "nothing is to be changed"),
        ({"mode": "fast", "speed": 11}, "'speed': 11 is out of bounds"),
    ],
)
def test_what_a_parameter_cannot_be_is_refused_with_what_it_can_be(values: dict[str, Scalar], reason: str) -> None:
    """COL-02: rejected changes are explained, and nothing of them is done."""
    one = desk()
    ask(one, "take", "alice")
    before = one.values
    assert reason in refused(one.ask(Command("change", "alice", values), 0))
    assert one.boundary(1) == [] and one.values == before


def test_only_the_driver_changes_and_a_refusal_names_it() -> None:
    one = desk()
    assert "nobody drives" in refused(ask(one, "change", "alice", speed=2))
    ask(one, "take", "alice")
    for verb in ("take", "release", "hand_over", "change"):
        assert "'alice' drives" in refused(ask(one, verb, "bob", to="bob", speed=2))
    assert "needs `to`" in refused(ask(one, "hand_over", "alice"))
    handed = ask(one, "hand_over", "alice", to="bob")
    assert handed is not None and handed.driver == "bob"
    assert "'bob' drives" in refused(ask(one, "change", "alice", speed=2))
    assert ask(one, "change", "bob", speed=2) is None


def test_the_wheel_may_change_hands_while_a_change_waits() -> None:
    """Who may is asked again when it is done: the new driver's program is not changed by the former one."""
    one = desk()
    ask(one, "take", "alice")
    assert ask(one, "change", "alice", speed=2, mode="fast") is None
    ask(one, "hand_over", "alice", to="bob")
    [(_, answer)] = one.boundary(1)
    assert "'bob' drives" in answer.reason
    assert one.values["speed"] == 1.0 and one.values["mode"] == "slow"


def test_a_silent_driver_loses_the_wheel_and_a_question_is_a_sign_of_life() -> None:
    one = desk()
    ask(one, "take", "alice")
    ask(one, "query", "alice", 8)
    assert "'alice' drives" in refused(ask(one, "take", "bob", 12))
    taken = ask(one, "take", "bob", 19)
    assert taken is not None and taken.driver == "bob"
    assert [record.action for record in one.records if record.is_granted] == ["take", "expire", "take"]


def test_pause_resume_and_stop_are_changes_of_the_state() -> None:
    """COL-01: four states, and every change of them is told once."""
    one = desk()
    assert one.untold(0)[0] == ["running"]
    one.boundary(0)
    ask(one, "take", "alice")
    ask(one, "change", "alice", state="paused")
    one.boundary(1)
    assert one.is_paused
    assert ask(one, "change", "alice", speed=5) is None  # a paused program can be changed
    one.boundary(2)
    assert one["speed"] == 5.0 and one.is_paused
    ask(one, "change", "alice", state="running")
    one.boundary(3)
    ask(one, "change", "alice", state="stopped")
    [(_, answer)] = one.boundary(4)
    assert one.is_stopped and answer.state == "stopped"
    assert one.untold(5)[0] == ["computing", "interacting", "paused", "computing", "interacting", "running"]
    assert one.untold(5) == ([], [])
    assert "has been stopped" in refused(ask(one, "change", "alice", speed=1))


def test_the_record_says_who_steered_what() -> None:
    one = desk()
    ask(one, "change", "bob", speed=4)
    ask(one, "take", "alice")
    ask(one, "change", "alice", speed=3, mode="fast")
    one.boundary(1)
    rows = [(each.by, each.action, each.parameter, each.value, each.is_granted) for each in one.untold(2)[1]]
    assert rows == [
        ("bob", "change", "speed", 4, False),
        ("alice", "take", "", None, True),
        ("alice", "change", "speed", 3, True),
        ("alice", "change", "mode", "fast", True),
    ]


def test_what_waits_is_bounded_and_who_waits_at_the_end_is_told() -> None:
    one = desk()
    ask(one, "take", "alice")
    for _ in range(MAX_PENDING):
        assert ask(one, "change", "alice", speed=1) is None
    assert "ask again" in refused(ask(one, "change", "alice", speed=1))
    told = one.end()
    assert len(told) == MAX_PENDING and "has ended" in told[0][1].reason


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Parameter([1]), "one of bool, int, float, text"),  # type: ignore[arg-type]
        (lambda: Parameter(1, kind="number"), "kind 'number'"),  # type: ignore[arg-type]
        (lambda: Parameter("a", low=0), "for numbers"),
        (lambda: Parameter(2.0, high=1), "out of bounds"),
        (lambda: Parameter("a", choices=("b",)), "none of its choices"),
        (lambda: Desk({"state": Parameter(1)}), "'state' is how a program is paused"),
        (lambda: Desk({"a b": Parameter(1)}), "as of a Python variable"),
        (lambda: Desk({"a": 1}), r"write Parameter\(value"),  # type: ignore[dict-item]
        (lambda: Desk({f"p{n}": Parameter(1) for n in range(300)}), "at most 256"),
        (lambda: unpack_views(b"[{}]"), "shows no parameters"),
    ],
)
def test_parameters_that_cannot_be_are_refused(wrong: object, message: str) -> None:
    with pytest.raises(InvalidEvent, match=message):
        wrong()  # type: ignore[operator]


def test_a_query_shows_everything_that_is_needed_to_steer() -> None:
    answer = ask(desk(), "query", "anybody")
    assert answer is not None and answer.is_done
    shown = unpack_views(pack_views(tuple(answer.parameters.values())))
    assert shown["speed"] == ParameterView("speed", 1.0, "float", 0, 10)
    assert shown["mode"].choices == ("slow", "fast") and shown["found"].read_only
