"""A broker under abuse, briefly: what is told of it is true."""

from __future__ import annotations

import asyncio
from pathlib import Path

from veena.bench.endurance.hostile import Hostile


def test_what_a_broker_says_of_each_attack_is_counted_although_its_log_is_limited(tmp_path: Path) -> None:
    """FLT-09: honest clients lose nothing, and every attacker that was turned away is counted in its own row."""
    report = asyncio.run(Hostile(tmp_path, connections=100).run())
    assert not report.missing and all(trial.deliveries for trial in report.trials)
    told = {trial.name: trial.log_lines + trial.left_out for trial in report.trials}
    assert told["half open"] >= 200 and told["slow loris"] >= 50, "after others that used up the lines"
    assert told["random bytes"] >= 150, "some are too short to be anything"
    assert told["frames at and past the limit"] >= 1
    assert told["connections opened and closed"] == 0, "who says nothing and goes is nobody's news"
    (log,) = tmp_path.glob("*/broker.log")
    assert log.read_text().count("\n") < 100, "whatever strangers do"
