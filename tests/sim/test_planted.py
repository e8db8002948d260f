"""Each simplification of the rules of routing is caught by runs as the soak draws them, with all of its faults.

Two things differ from `make soak`: the networks are smaller than any of its own, so that a run takes seconds, and
brokers do not assert their invariants. The seeds are the first that caught each bug, from 1 on. `test_runs.py` has a
ring made for these faults, which shows more of them in less time, and the iterated set.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.canaries import (
    AckOnTaking,
    AckWhatIsTaken,
    BounceIgnored,
    DropById,
    EventPaths,
    WaitingCost,
    backwards,
    with_router,
)
from veena.core.event_frame import EventFrame
from veena.core.flight import Flight
from veena.core.router import Router
from veena.sim.options import Options
from veena.sim.run import Report, run_seed

BROKERS = 12
#: A planted bug, and a seed that catches it.
PLANTED: dict[type[Router], int] = {
    DropById: 3,
    AckWhatIsTaken: 10,
    BounceIgnored: 1,
    AckOnTaking: 5,
    EventPaths: 1,
    WaitingCost: 3,
}


def unchecked(options: Options) -> Options:
    """What brokers assert of themselves must not be what catches it."""
    return replace(options, check=False)


def soaked(seed: int, router: type[Router] = Router) -> Report:
    return run_seed(seed, "all", None, with_router(router), unchecked, brokers=BROKERS)


def is_lost(report: Report) -> bool:
    return report.broken is None and bool(report.missing or report.duplicates or report.out_of_order)


@pytest.mark.parametrize("seed", sorted(set(PLANTED.values())))
def test_without_a_planted_bug_these_seeds_are_sound(seed: int) -> None:
    report = soaked(seed)
    assert report.is_sound, report.wrong


@pytest.mark.parametrize("router", PLANTED, ids=lambda router: router.__name__)
def test_the_soak_catches_a_simplified_rule(router: type[Router]) -> None:
    """Rules 2, 4, 5, 6 and 7: drop by id, acknowledge what is taken, ignore a bounce, acknowledge on taking, let the
    path depend on the event, let a cost wait."""
    assert is_lost(soaked(PLANTED[router], router))


def test_the_soak_catches_sending_again_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flight, "order", property(backwards))
    assert is_lost(soaked(1))


def test_the_soak_catches_one_lane_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventFrame, "lane_number", property(lambda frame: 3))
    assert is_lost(soaked(1))
