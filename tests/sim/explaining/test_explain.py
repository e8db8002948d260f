"""Explanations in random runs, each held against an oracle that saw everything; and that the oracle can say no."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from veena.core.broker import Broker
from veena.core.wire.trace_facts import What
from veena.sim.explaining.questions import ExplainReport, explain_seed

#: Seeds with 14 brokers.
RUNS = ((2, "none"), (12, "crash"), (63, "all"))


@pytest.fixture(scope="module")
def reports() -> list[ExplainReport]:
    return [explain_seed(seed, faults, brokers=14) for seed, faults in RUNS]


def test_every_answer_is_right(reports: list[ExplainReport]) -> None:
    """Every non-delivery explained: the reason is the one that the oracle knows."""
    for report in reports:
        assert report.broken is None, report.seed
        assert report.wrong == (), report.seed
        assert report.asked == report.right >= 60
        assert report.plausible <= report.exact
        assert report.unknown_to_all <= report.asked // 20, "who is asked and alive knows, but for what died"


def test_most_reasons_come_up(reports: list[ExplainReport]) -> None:
    """What is common surely, and some of what is rare."""
    reasons = sum((Counter(report.reasons) for report in reports), Counter())
    assert {"delivered", "denied", "not-subscribed", "not-matched", "expired", "dropped"} <= set(reasons)
    assert {"shared", "dead-letter", "no-route"} & set(reasons)
    assert len(reasons) >= 11


def test_the_oracle_believes_no_lie(reports: list[ExplainReport]) -> None:
    """A wrong level, term, hop, policy, group or time, and one reason in the place of another, are found out."""
    told = sum((Counter(report.lies) for report in reports), Counter())
    wanted = {
        "a moment later", "another term", "expired for dropped", "dropped for expired", "expired a moment later",
        "another hop", "no way", "another rule", "unknown for known",
    }  # fmt: skip
    assert wanted <= set(told)
    assert [report.believed for report in reports] == [{}] * len(reports)


class Forgetful(Broker):
    """A broker that does not note whom it hands events."""

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        records = self.events.records
        noting = records.note

        def note(frame: object, what: What, now_ns: int, **more: object) -> None:
            if what is not What.DELIVERED:
                noting(frame, what, now_ns, **more)  # type: ignore[arg-type]

        records.note = note  # type: ignore[method-assign]


def test_an_oracle_that_cannot_fail_would_show_nothing(reports: list[ExplainReport]) -> None:
    """With a planted fault answers are wrong, and the oracle says so; where it believes a lie no run is sound."""
    report = explain_seed(2, "none", Forgetful, brokers=14)
    assert report.broken is None
    assert report.right < report.asked
    assert any("it was handed over" in wrong for wrong in report.wrong)
    assert reports[0].is_sound
    assert not replace(reports[0], believed={"another term": 1}).is_sound
