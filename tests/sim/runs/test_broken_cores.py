"""Cores that raise over a frame which nobody foresaw, in runs with all other faults: they are made anew from disk."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.cli.command import veena
from tests.tiers import few
from veena.sim.runs.run import run_seed

#: Small enough for a few seconds a run.
SMALL = 12


@pytest.mark.parametrize("seed", few([3, 1, 2, 4, 5]))
def test_nothing_is_lost_or_comes_twice(seed: int) -> None:
    """I1, I5, FLT-01: a dozen cores raise, each over a frame that brings news, with the change half made."""
    report = run_seed(seed, "all", change=lambda drawn: replace(drawn, check_every=10), brokers=SMALL, breaks=12)
    assert report.is_sound, (report.broken, report.wrong, report.wrong_maps)
    assert sum("raises over a frame" in fault for fault in report.faults) == 12
    assert report.renewals >= 6  # a broker that is down when its turn comes cannot raise
    assert report.expected and report.delivered


def test_without_them_a_seed_is_what_it_was() -> None:
    plain, broken = (
        run_seed(1, "all", change=lambda drawn: replace(drawn, check=False), brokers=6, events=60, breaks=count)
        for count in (0, 3)
    )
    assert [fault for fault in broken.faults if "raises" not in fault] == list(plain.faults)
    assert (len(broken.faults) - len(plain.faults), broken.trace_hash != plain.trace_hash) == (3, True)


def test_a_soak_with_broken_cores() -> None:
    found = veena("sim", "soak", "--seeds", "1", "--brokers", "6", "--events", "20", "--breaks", "3", "--json")
    assert found.code == 0, found.err
    told = json.loads(found.out)
    assert told["broken"] == [] and told["renewals"] > 0
