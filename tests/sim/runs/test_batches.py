"""Batches of reliable events in a ring whose links fail all the time: nothing is lost, and planted bugs are found.

`tests/core/routing/test_run_router.py` has each of these bugs by itself; runs with all faults draw a few
batches, these here have many. No run has shown yet that exceptions of ranges are ignored: that has a test there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.core.routing.simpler_rules import AcknowledgesTheHalf, SendsRunsBehind
from tests.sim.canaries import with_duties
from tests.sim.runs.test_runs import lost, ring_stress, verdict
from veena.core.broker import Broker
from veena.core.routing.run_router import Plan, RunWay
from veena.sim.world.options import Options

#: A planted bug, and seeds of which at least one must catch it.
PLANTED: dict[Callable[..., Broker], tuple[int, ...]] = {
    with_duties(AcknowledgesTheHalf): (1, 2, 3, 4),
    with_duties(SendsRunsBehind): (1, 2, 3, 4),
}


def many(options: Options) -> Options:
    return replace(options, batches=60)


@pytest.mark.slow
def test_batches_go_around_the_ring_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = RunWay.take

    def note(self: RunWay, plan: Plan, now_ns: int) -> None:
        taken.append(plan.run.count)
        take(self, plan, now_ns)

    monkeypatch.setattr(RunWay, "take", note)
    report = ring_stress(2, more=many)
    assert report.is_sound, verdict(report)
    assert len(taken) > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_ring_with_many_batches_is_sound(seed: int) -> None:
    report = ring_stress(seed, more=many)
    assert report.is_sound, verdict(report)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_what_finds_no_room_is_read_back_in_order(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 12)
    report = ring_stress(seed, more=many)
    assert report.is_sound, verdict(report)


@pytest.mark.slow
@pytest.mark.parametrize("broker", PLANTED)
def test_a_planted_bug_is_found(broker: Any) -> None:
    assert any(lost(ring_stress(seed, broker, many)) for seed in PLANTED[broker])
