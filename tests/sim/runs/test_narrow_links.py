"""Links that take few bytes for a while, in runs with all other faults: events wait while news of wants pass them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.cli.command import veena
from tests.tiers import few
from veena.sim.runs.run import Report, run_seed
from veena.sim.world.options import Options

#: Small enough for a few seconds a run.
SMALL = 12


def roaming(options: Options) -> Options:
    """Durable clients that move while events wait; invariants after every tenth step."""
    durables, absences = max(options.durables, 4), max(options.absences, 12)
    return replace(options, durables=durables, absences=absences, events=300, check_every=10)


def run(seed: int, narrow: int = 12, brokers: int = SMALL) -> Report:
    return run_seed(seed, "all", None, change=roaming, brokers=brokers, narrow=narrow)


@pytest.mark.parametrize(("seed", "brokers"), few([(24, 12), (2, 16), (1, 12)]), ids=str)
def test_nothing_is_lost_behind_narrow_links(seed: int, brokers: int) -> None:
    """FLT-01, FLT-03, I1, I5. Seed 24 lost 15 events of a durable client whose old home withdrew while they waited;
    seed 2 with 16 brokers lost two that a broker looked after for another one when its disk was lost (`copies = 2`)."""
    report = run(seed, brokers=brokers)
    assert report.is_sound, (report.broken, report.wrong, report.wrong_maps)
    assert sum("bytes a second for" in fault for fault in report.faults) == report.options["narrow"] == 12


def test_without_narrow_links_a_seed_is_what_it_was() -> None:
    """They take nothing from the chance of others: nothing else is drawn differently."""
    plain, narrow = (
        run_seed(1, "all", change=lambda drawn: replace(drawn, check=False), brokers=6, events=60, narrow=count)
        for count in (0, 3)
    )
    assert [fault for fault in narrow.faults if "bytes a second" not in fault] == list(plain.faults)
    assert (len(narrow.faults) - len(plain.faults), narrow.trace_hash != plain.trace_hash) == (3, True)


def test_a_soak_with_narrow_links() -> None:
    found = veena("sim", "soak", "--seeds", "1", "--brokers", "6", "--events", "20", "--narrow", "2", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["broken"] == []


@pytest.mark.parametrize("option", [("--narrow", "2"), ("--faults", "all")], ids=" ".join)
def test_without_links_nothing_strikes_them(option: tuple[str, str]) -> None:
    found = veena("sim", "run", "--seed", "1", "--brokers", "1", *option)
    assert (found.code, found.out) == (2, "")
    assert option[0] in found.err and "use two brokers or more" in found.err
