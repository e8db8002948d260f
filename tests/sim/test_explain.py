"""Explanations in random runs, each held against an oracle that saw everything; and that the oracle can say no."""

from __future__ import annotations

import pytest

from veena.core.broker import Broker
from veena.core.notes import What
from veena.sim.explaining import explain_seed


@pytest.mark.parametrize(("seed", "faults"), [(2, "none"), (8, "all"), (12, "crash"), (13, "partition")])
def test_every_answer_is_right(seed: int, faults: str) -> None:
    """Every non-delivery explained: the reason is the one that the oracle knows."""
    report = explain_seed(seed, faults, brokers=16)
    assert report.broken is None
    assert report.wrong == ()
    assert report.asked == report.right >= 30
    assert len(report.reasons) >= 4


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


def test_an_oracle_that_cannot_fail_would_show_nothing() -> None:
    """With a planted fault answers are wrong, and the oracle says so."""
    report = explain_seed(2, "none", Forgetful, brokers=16)
    assert report.broken is None
    assert report.right < report.asked
    assert any("it was handed over" in wrong for wrong in report.wrong)
