"""Whole simulated runs: sound under every kind of fault, the same for the same seed, and not blind to planted bugs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sim.canaries import (
    FirstName,
    NoDetours,
    NoExchange,
    NoReconciling,
    SecretCost,
    SilentLoss,
    with_table,
)
from veena.core import map as map_module
from veena.core.boundary import LinkLoad
from veena.core.broker import Broker
from veena.core.dissemination import ConnectionTable
from veena.core.settings import SECOND_NS, Settings
from veena.runtime.network_file import make_network
from veena.sim.options import FAULTS
from veena.sim.run import Report, run_seed, settling_ns
from veena.sim.world import World

#: Seeds that draw networks of at most twelve brokers.
SMALL = (2, 6, 10, 14, 19, 28, 31, 32, 37, 42, 43, 46, 49, 55, 57, 66, 67, 69, 70, 72)


def regressions() -> list[tuple[int, str]]:
    lines = (Path(__file__).parent / "regressions.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.partition("#")[0].split() for line in lines]
    return [(int(entry[0]), entry[1]) for entry in entries if entry]


def verdict(report: Report) -> str:
    return f"{report.broken or ''} maps {report.wrong_maps[:5]} hops {report.wrong_hops[:5]} faults {report.faults}"


@pytest.mark.parametrize("seed", SMALL)
def test_a_seed_with_all_faults_is_sound(seed: int) -> None:
    """FLT-01, FLT-08, GUA-11, FUT-10, BNM-10: cuts, bounces, loads, crashes, partitions; then every map is right."""
    report = run_seed(seed, "all")
    assert report.is_sound, verdict(report)
    assert len(report.faults) == report.options["fault_count"] >= 3


@pytest.mark.parametrize(("seed", "faults"), regressions(), ids=str)
def test_a_seed_that_once_failed(seed: int, faults: str) -> None:
    report = run_seed(seed, faults)
    assert report.is_sound, verdict(report)


@pytest.mark.parametrize("faults", FAULTS)
def test_each_kind_of_fault_alone(faults: str) -> None:
    """FLT-01: the plan holds what was asked for and nothing else."""
    words = {
        "links": ("cut", "bounce", "load"),
        "crash": ("crash",),
        "partition": ("partition",),
        "none": (),
        "all": (),
    }
    report = run_seed(10, faults)
    assert report.is_sound, verdict(report)
    assert bool(report.faults) == (faults != "none")
    if words[faults]:
        assert all(any(word in fault for word in words[faults]) for fault in report.faults)


# --- determinism ---


def told(seed: int, hash_seed: str) -> dict[str, Any]:
    """The report of the command line in a process of its own."""
    command = [sys.executable, "-c", "from veena.cli import main; main()", "sim", "run", "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--faults", "all", "--json"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_same_seed_is_the_same_run() -> None:
    """The fingerprint of a run depends on the seed alone: not on the process, not on PYTHONHASHSEED."""
    here = run_seed(10, "all")
    assert run_seed(10, "all") == here
    for hash_seed in ("0", "1"):
        report = told(10, hash_seed)
        assert report["trace_hash"] == here.trace_hash
        assert report["faults"] == list(here.faults)
        assert report["steps"] == here.steps
    assert run_seed(14, "all").trace_hash != here.trace_hash


# --- canaries ---

#: A planted bug, and seeds of which at least one must catch it.
CANARIES: dict[type[ConnectionTable], tuple[int, ...]] = {
    SilentLoss: (2, 6, 10),
    NoExchange: (2, 6, 10),
    NoReconciling: (19, 33, 12),
    FirstName: (2, 7, 13),
}


@pytest.mark.parametrize("table", CANARIES, ids=lambda table: table.__name__)
def test_a_planted_bug_is_found(table: type[ConnectionTable]) -> None:
    """A simulator that finds nothing wrong with these brokers would find nothing."""
    caught = (seed for seed in CANARIES[table] if not run_seed(seed, "all", make_broker=with_table(table)).is_sound)
    seed = next(caught, None)
    assert seed is not None
    assert run_seed(seed, "all", make_broker=with_table(ConnectionTable)).is_sound, "the planting itself is harmless"


def test_dropped_detour_copies_are_found() -> None:
    """GPP-19: in a cluster that is in two pieces only the detour copy tells 8 of c's link to SC-2."""
    brokers = ["S.1.c.5", "S.1.c.6", "S.1.d.7", "S.1.a.8", "S.2.e.9"]
    links = [("S.1.c.5", "S.2.e.9"), ("S.1.c.5", "S.1.d.7"), ("S.1.d.7", "S.1.c.6"), ("S.1.c.6", "S.1.a.8")]
    split = make_network("split", brokers, links)
    assert run_seed(1, "none", split, with_table(NoDetours)).wrong_maps == ("S.1.a.8",)
    assert run_seed(1, "none", split).is_sound


def test_detour_copies_as_vertices_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPP-19: the printed rules alone put the own unit into the map."""
    assert all(run_seed(seed, "all").broken is None for seed in (2, 6))
    monkeypatch.setattr(map_module, "is_fine", lambda record, own: True)
    reports = [run_seed(seed, "all").broken or "" for seed in (2, 6)]
    assert any("no vertex for a unit that the host is in" in broken for broken in reports)


@pytest.mark.parametrize(("table", "cost"), [(ConnectionTable, 17), (SecretCost, 1)])
def test_a_secret_cost_is_found(table: type[ConnectionTable], cost: int) -> None:
    """LCM-03, BNM-09: one end is loaded; the other end learns it over the link itself, there is no other way."""
    network = make_network("bridge", ["S.C.a.1", "S.C.b.2"], [("S.C.a.1", "S.C.b.2")])
    world = World(network, 1, make_broker=with_table(table))
    world.run_until(3 * SECOND_NS)
    session = world.links[0].session
    assert session is not None
    world.give(world.links[0].a, LinkLoad(session.handles[world.links[0].a], 0.95))
    world.run_until(world.now_ns + 10 * SECOND_NS)
    assert [edge.cost for edge in world.broker(world.links[0].b).map.edges()] == [cost]


def test_a_broken_invariant_is_a_report_not_a_crash() -> None:
    """What a broker asserts ends the run; the seed and its options are still told."""

    class Fragile(Broker):
        def check(self) -> None:
            if len(self.map.vertices()) > 1:
                raise AssertionError("fragile")

    report = run_seed(2, "none", make_broker=Fragile)
    assert report.broken == "AssertionError: fragile"
    assert not report.is_sound
    assert report.options["brokers"] == 8


def test_settling_covers_every_time_out() -> None:
    """Liveness is judged after suspicion, confirmation and two reconciliations could have passed."""
    settings = Settings()
    assert settling_ns(settings) > settings.suspect_after_ns + settings.confirm_after_ns + 2 * settings.reconcile_ns
    assert settling_ns(settings) > settings.cost_hold_ns + settings.load_check_ns
