"""What a day with its archive (`benchmarks/pipeline_day.py`) calls sound, and how far it says it came."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from veena.bench.endurance.day import PHASES, Day, Outcome, Plan, shown

SOUND = {"events": 10, "delivered": 5, "missing": 0, "duplicates": 0, "spurious": 0, "tolerated": ["long"]}


def outcome(**audit: int) -> Outcome:
    return Outcome(events=10, received=5, phase=PHASES[-1], audit_exit=0, audit={**SOUND, **audit})


def test_a_day_is_sound_if_its_audit_saw_everything_and_found_nothing() -> None:
    assert outcome().is_sound
    told = outcome().as_dict()
    assert told["is_sound"] and "tolerated" not in told["audit"] and told["phase"] == "audit"
    assert shown(outcome(), Plan())["audit: delivered"] == "5"


@pytest.mark.parametrize("audit", [{"missing": 1}, {"duplicates": 1}, {"spurious": 1}, {"events": 9}, {"delivered": 0}])
def test_a_day_is_not_sound_otherwise(audit: dict[str, int]) -> None:
    assert not outcome(**audit).is_sound


def test_a_day_that_was_interrupted_is_not_sound_and_tells_how_far_it_came() -> None:
    reached = Outcome(events=7, phase="publishing", publishing_s=3.5)
    assert not reached.is_sound
    assert shown(reached, Plan())["ended in"].startswith("publishing")


def test_a_phase_that_does_not_end_is_timed(tmp_path: Path) -> None:
    day = Day(cast("Any", None), tmp_path, Plan())
    with pytest.raises(KeyboardInterrupt), day._phase("settling"):
        raise KeyboardInterrupt
    assert day.outcome.phase == "settling" and day.outcome.settling_s >= 0
