"""Subscriptions that cost more than a broker's loop may spend, in runs with all other faults.

Workers take their time and fail. What the brokers do about it is in `delivery.held_streams` for subscriptions that go
with their session, and in `durable.redelivery` for those that are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.cli.command import veena
from tests.tiers import few
from veena.core.boundary.evaluation import Evaluated
from veena.core.broker import Broker
from veena.core.delivery.evaluations import Evaluations
from veena.core.delivery.held_streams import HeldStreams
from veena.core.durable.redelivery import Handing
from veena.matching.base.verdict import Verdict
from veena.sim.runs.run import Report, run_seed

#: Small enough for a few seconds a run.
SMALL = 12


@pytest.mark.parametrize("seed", few([3, 1, 2, 4, 5, 6]))
def test_nothing_is_lost_comes_twice_or_overtakes(seed: int) -> None:
    """I1, I5: also groups, subscriptions with a past, roaming, crashes of the broker that waits for a verdict."""
    report = run_seed(seed, "all", change=lambda drawn: replace(drawn, check_every=10), brokers=SMALL, costly=True)
    assert report.is_sound, (report.broken, report.wrong, report.wrong_maps)
    assert report.evaluated > 50
    assert report.workers_lost > 0
    assert report.expected and report.delivered


def test_a_home_that_is_lost_is_replaced_with_its_doubts() -> None:
    """Who stands by for a broker takes over what was not evaluated there."""
    report = run_seed(
        4, "all", brokers=SMALL, costly=True,
        change=lambda drawn: replace(drawn, check=False, copies=2, standby_ns=20_000_000_000, durables=8),
    )  # fmt: skip
    assert report.is_sound, (report.broken, report.wrong)
    assert report.durable_delivered


# --- planted bugs ---


def forgets_verdicts(broker: Broker) -> None:
    """Events that wait for a verdict are dropped when it is there."""
    held = broker.events.held
    held._hand = lambda session, item, now_ns: None  # type: ignore[method-assign]


def does_not_wait(broker: Broker) -> None:
    """Only what is in doubt waits, and later events of its stream overtake it."""
    held = broker.events.held

    def hold(frame: Any, stream: Any, deadline_ns: Any, receivers: Any, doubts: Any, now_ns: int) -> Any:
        waiting = {session: found for session, found in receivers.items() if session in doubts}
        left = {session: found for session, found in receivers.items() if session not in doubts}
        HeldStreams.hold(held, frame, (*stream[:2], now_ns), deadline_ns, waiting, doubts, now_ns)
        return left

    held.hold = hold  # type: ignore[method-assign]


def takes_doubt_for_no(broker: Broker) -> None:
    """Kept events that the loop cannot decide are passed over."""
    handing = broker.events.sessions.durables.handing
    handing._judge = lambda *given: Verdict.FALSE  # type: ignore[method-assign]


def takes_doubt_for_yes(broker: Broker) -> None:
    """Kept events that the loop cannot decide are handed over."""
    handing = broker.events.sessions.durables.handing
    handing._judge = lambda *given: Verdict.TRUE  # type: ignore[method-assign]


def goes_on_reading(broker: Broker) -> None:
    """A reader does not wait for the verdict about an event, and never comes back to it."""
    handing = broker.events.sessions.durables.handing

    def judge(*given: Any) -> Verdict | None:
        verdict = Handing._judge(handing, *given)
        given[1].question = None
        return verdict

    handing._judge = judge  # type: ignore[assignment, method-assign]


def loses_questions(broker: Broker) -> None:
    """What a worker was asked before it ended is not asked again."""
    evaluations = broker.events.evaluations
    given = Evaluations.on_evaluated

    def on_evaluated(answer: Any, now_ns: int) -> None:
        if answer.verdict is Verdict.FAILED:
            question = evaluations._running.pop(answer.ticket)
            del evaluations._open[question.key]
        else:
            given(evaluations, answer, now_ns)

    broker._inputs = {**broker._inputs, Evaluated: on_evaluated}


@pytest.mark.parametrize(
    "plant",
    [
        forgets_verdicts,
        does_not_wait,
        takes_doubt_for_no,
        takes_doubt_for_yes,
        goes_on_reading,
        loses_questions,
    ],
)
def test_a_planted_bug_is_caught(plant: Callable[[Broker], None]) -> None:
    def make(*given: Any, **more: Any) -> Broker:
        broker = Broker(*given, **more)
        plant(broker)
        return broker

    def planted(seed: int) -> Report:
        return run_seed(
            seed, "all", None, make, lambda drawn: replace(drawn, check=False, durables=8), brokers=SMALL, costly=True
        )

    assert any(
        report.missing or report.duplicates or report.out_of_order or report.spurious
        for report in map(planted, (3, 4, 1, 5, 6, 7))
        if report.broken is None
    )


def test_without_it_a_seed_is_what_it_was() -> None:
    plain, costly = (
        run_seed(1, "all", change=lambda drawn: replace(drawn, check=False), brokers=6, events=60, costly=costly)
        for costly in (False, True)
    )
    assert plain.evaluated == 0 < costly.evaluated
    assert plain.faults == costly.faults


def test_a_soak_of_costly_subscriptions() -> None:
    found = veena("sim", "soak", "--seeds", "1", "--brokers", "6", "--events", "40", "--costly", "--json")
    assert found.code == 0, found.err
    told = json.loads(found.out)
    assert told["broken"] == []
    assert told["evaluated"] > 0
