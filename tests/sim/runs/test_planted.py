"""Each simplification of the rules of routing is caught by runs as the soak draws them, with all of its faults.

Two things differ from `make soak`: the networks are smaller than any of its own, so that a run takes seconds, and
brokers do not assert their invariants. Seeds are tried in turn until one catches the bug, as the soak would; what each
seed finds changes with every change of timing. `test_runs.py` has a ring made for these faults, which shows more of
them in less time, and the iterated set; `make test` runs that and the last test here, `make slow` the others.
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
from veena.core.delivery.in_flight import Flight
from veena.core.routing.router import Router
from veena.core.wire.event import EventFrame
from veena.sim.runs.run import Report, run_seed
from veena.sim.world.options import Options

BROKERS = 12
#: Seeds that are tried for a bug.
TRIES = 12
#: A planted bug, the seed to begin with, one that caught it, and the size of the network.
PLANTED: dict[type[Router], tuple[int, int]] = {
    DropById: (3, BROKERS),
    AckWhatIsTaken: (11, 18),  # rare: two relays must each rely on the other
    BounceIgnored: (1, BROKERS),
    AckOnTaking: (5, BROKERS),
    EventPaths: (1, BROKERS),
    WaitingCost: (1, BROKERS),
}


def unchecked(options: Options) -> Options:
    """What brokers assert of themselves must not be what catches it."""
    return replace(options, check=False)


def soaked(seed: int, router: type[Router] = Router, brokers: int = BROKERS) -> Report:
    return run_seed(seed, "all", None, with_router(router), unchecked, brokers=brokers)


def tried(first: int = 1) -> range:
    return range(first, first + TRIES)


def is_lost(report: Report) -> bool:
    return report.broken is None and bool(report.missing or report.duplicates or report.out_of_order)


@pytest.mark.slow
@pytest.mark.parametrize("router", PLANTED, ids=lambda router: router.__name__)
def test_the_soak_catches_a_simplified_rule(router: type[Router]) -> None:
    """Rules 2, 4, 5, 6 and 7: drop by id, acknowledge what is taken, ignore a bounce, acknowledge on taking, let the
    path depend on the event, let a cost wait."""
    first, brokers = PLANTED[router]
    caught = next((seed for seed in tried(first) if is_lost(soaked(seed, router, brokers))), None)
    assert caught is not None
    report = soaked(caught, brokers=brokers)
    assert report.is_sound, report.wrong


@pytest.mark.slow
def test_the_soak_catches_sending_again_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flight, "order", property(backwards))
    assert any(is_lost(soaked(seed)) for seed in tried())


def test_the_soak_catches_one_lane_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventFrame, "lane_number", property(lambda frame: 3))
    assert any(is_lost(soaked(seed)) for seed in tried())
