"""The steps of a real broker's event loop while clients and neighbours do what they may, at its largest: none is long.

Measured is CPU time, by the broker itself, so that a busy machine makes no difference but for its caches; the bound is
wider than the 50 ms that `benchmarks/steps.py` checks. Before slices, some of these took seconds.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from veena.bench.steps.actions import ACTIONS, measure_all

#: Milliseconds: several times what these take, and a fraction of what they took.
BOUND_MS = 150.0
SHORT = (
    "the longest hellos",
    "XPaths over 2,000 advertisements",
    "a neighbour's queries",
    "shelves of 20,000 advertisements",
    "acknowledgements of 5,000 marks",
)


@pytest.mark.parametrize("name", SHORT)
def test_no_step_takes_long(tmp_path: Path, name: str) -> None:
    """Whatever one client or neighbour asks, others are served meanwhile."""
    (found,) = asyncio.run(measure_all([name], tmp_path))
    assert not found.fault, found.fault
    assert 0.0 < found.longest_ms < BOUND_MS, found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ACTIONS if name not in SHORT])
def test_actions_come_to_their_end(tmp_path: Path, name: str) -> None:
    """Every action of the benchmark still does what it says; how long the steps take is checked there."""
    (found,) = asyncio.run(measure_all([name], tmp_path))
    assert not found.fault, found.fault
