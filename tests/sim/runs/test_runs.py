"""Whole simulated runs: sound under every kind of fault, the same for the same seed, and not blind to planted bugs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.sim.canaries import (
    AckOnTaking,
    AckWhatIsTaken,
    BounceIgnored,
    DropById,
    EventPaths,
    FirstName,
    NoDetours,
    NoExchange,
    NoReconciling,
    SecretCost,
    SilentLoss,
    WaitingCost,
    backwards,
    with_router,
    with_table,
)
from tests.tiers import few, slow
from veena.core.boundary.inputs_effects import LinkLoad
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.broker import Broker
from veena.core.delivery.in_flight import Flight
from veena.core.routing.router import Router
from veena.core.topology import network_map as map_module
from veena.core.topology.connection_table import ConnectionTable
from veena.core.wire.event import EventFrame
from veena.runtime.networks.file import make_network
from veena.sim.runs.run import Report, run_seed, settling_ns
from veena.sim.world.options import FAULTS, Options
from veena.sim.world.world import MakeBroker, World

ROOT = Path(__file__).parents[3]
#: Small enough for a second or two, large enough for three levels.
SMALL = 10
#: Enough to compare two runs.
TINY = 6
#: Checked seeds here, two of them every time; the soak runs many more, on larger networks.
SEEDS = (101, 105, 102, 103, 104, *range(106, 113))
#: Seeds of these whose brokers assert their invariants after every step. That is two thirds of the time of a run; the
#: others do it after every tenth step and at the end, and are judged by the same oracles.
ALWAYS_CHECKED = range(101, 105)
#: Regressions of larger networks run in `make slow`.
QUICK_BROKERS = 10


def regressions() -> list[Any]:
    lines = (Path(__file__).parent.parent / "regressions.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.partition("#")[0].split() for line in lines]
    runs = [(int(entry[0]), entry[1], int(entry[2])) for entry in entries if entry]
    return [run if run[2] <= QUICK_BROKERS else slow(run) for run in runs]


def sparing(options: Options) -> Options:
    """The same run with invariants asserted after every tenth step of a broker, and at the end."""
    return replace(options, check_every=max(options.check_every, 10))


def unchecked(options: Options) -> Options:
    """The same run for those who look at its trace alone."""
    return replace(options, check=False)


def verdict(report: Report) -> str:
    return (
        f"{report.broken or ''} {report.wrong} maps {report.wrong_maps[:5]} hops {report.wrong_hops[:5]}"
        f" interest {report.interest_narrower} {report.interest_wider} faults {report.faults}"
    )


@pytest.mark.parametrize("seed", few(SEEDS, 2))
def test_a_seed_with_all_faults_is_sound(seed: int) -> None:
    """FLT-01, FLT-08, GUA-11, FUT-10, BNM-10, I1, I5: cuts, bounces, loads, crashes, partitions, losses; then every map
    is right, and everybody has had what was promised, once and in order."""
    report = run_seed(seed, "all", change=None if seed in ALWAYS_CHECKED else sparing, brokers=SMALL)
    assert report.is_sound, verdict(report)
    planned = report.options["fault_count"] + report.options["roams"] + report.options["clocks"]
    assert len(report.faults) == planned >= 3


@pytest.mark.parametrize(("seed", "faults", "brokers"), regressions(), ids=str)
def test_a_seed_that_once_failed(seed: int, faults: str, brokers: int) -> None:
    report = run_seed(seed, faults, change=sparing, brokers=brokers)
    assert report.is_sound, verdict(report)


@pytest.mark.parametrize("faults", FAULTS)
def test_each_kind_of_fault_alone(faults: str) -> None:
    """FLT-01: the plan holds what was asked for and nothing else."""
    words = {
        "links": ("cut", "bounce", "load", "slower", "roams"),
        "crash": ("crash", "leaves", "roams"),
        "partition": ("partition", "splitting", "roams"),
        "none": (),
        "all": (),
    }
    report = run_seed(10, faults, change=sparing, brokers=6, events=60)
    assert report.is_sound, verdict(report)
    assert bool(report.faults) == (faults != "none")
    if words[faults]:
        assert all(any(word in fault for word in words[faults]) for fault in report.faults)


# --- determinism ---


def told(seed: int, hash_seed: str) -> dict[str, Any]:
    """The report of the command line in a process of its own."""
    command = [sys.executable, "-c", "from veena.cli import main; main()", "sim", "run", "--seed", str(seed)]
    command += ["--brokers", str(TINY), "--events", "60"]
    done = subprocess.run(
        [*command, "--faults", "all", "--json"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_same_seed_is_the_same_run() -> None:
    """The fingerprint of a run depends on the seed alone: not on the process, not on PYTHONHASHSEED."""
    here = run_seed(10, "all", change=unchecked, brokers=TINY, events=60)
    assert run_seed(10, "all", change=unchecked, brokers=TINY, events=60) == here
    for hash_seed in ("0", "1"):
        report = told(10, hash_seed)
        assert report["trace_hash"] == here.trace_hash
        assert report["faults"] == list(here.faults)
        assert report["steps"] == here.steps
        assert report["delivered"] == here.delivered
    assert run_seed(14, "all", change=unchecked, brokers=TINY, events=60).trace_hash != here.trace_hash


# --- canaries ---

#: A planted bug, and seeds of which at least one must catch it; the first one did, in the least time.
CANARIES: dict[type[ConnectionTable], tuple[int, ...]] = {
    SilentLoss: (1, 2, 3),
    NoExchange: (4, 1, 2),
    FirstName: (4, 1, 3),
}
#: The same for the ways of events, in the ring: each simplification of the rules of routing loses events.
ROUTERS: dict[type[Router], tuple[int, ...]] = {
    DropById: (1, 2, 3),
    AckWhatIsTaken: (5, 20, 21),
    AckOnTaking: (3, 2, 4),
    BounceIgnored: (2, 3, 4),
    WaitingCost: (1, 2, 3),
    EventPaths: (1, 2, 3),
}


@cache
def harmless_in_the_ring(seed: int) -> bool:
    """Whether the same ring loses nothing when the router is planted that every broker has."""
    return not lost(ring_stress(seed, with_router(Router)))


@cache
def harmless_to_maps(seed: int) -> bool:
    return maps_only(seed, with_table(ConnectionTable), sparing).is_sound


def ring_stress(
    seed: int, make_broker: MakeBroker = Broker, more: Callable[[Options], Options] = lambda options: options
) -> Report:
    """A ring of six with one chord whose links fail all the time, events on their way at every moment: a second a run.

    There are always two ways around, and news takes long enough for brokers to disagree on the better one.
    """
    names = [f"S.C.c.{number}" for number in range(6)]
    links = [(names[at], names[(at + 1) % 6]) for at in range(6)]
    ring = make_network("ring", names, [*links, (names[0], names[3])])

    def change(options: Options) -> Options:
        return replace(
            more(options),
            fault_count=60,
            fault_time_ns=40 * SECOND_NS,
            permanent=0.0,
            ordered=True,
            loss=0.0,
            duplication=0.0,
            delay_ns=60 * MILLISECOND_NS,
            jitter_ns=40 * MILLISECOND_NS,
            clients=20,
            copies=1,
            churn=0,
            roams=0,
            check_every=10,
            dial=False,
        )

    return run_seed(seed, "links", ring, make_broker, change, events=300)


@pytest.mark.parametrize("seed", few(range(1, 21)))
def test_nothing_is_lost_in_a_ring_that_fails_all_the_time(seed: int) -> None:
    """Rules 4, 5 and 6: duties, sending again, acknowledgements (I1)."""
    report = ring_stress(seed)
    assert report.is_sound, verdict(report)
    assert (report.expected or 0) > 100


@pytest.mark.parametrize("table", CANARIES, ids=lambda table: table.__name__)
def test_a_planted_bug_is_found(table: type[ConnectionTable]) -> None:
    """A simulator that finds nothing wrong with these brokers would find nothing."""
    caught = (seed for seed in CANARIES[table] if not maps_only(seed, with_table(table), sparing).is_sound)
    seed = next(caught, None)
    assert seed is not None
    assert harmless_to_maps(seed), "the planting itself is harmless"


def maps_only(
    seed: int, make_broker: MakeBroker = Broker, change: Callable[[Options], Options] | None = None
) -> Report:
    return run_seed(seed, "all", None, make_broker, change, brokers=SMALL, events=0)


def test_nobody_speaking_for_the_dead_is_found() -> None:
    """FLT-08: a gateway broker that is lost for good is taken from maps elsewhere by those who miss it."""

    def maps(table: type[ConnectionTable], seed: int) -> tuple[str, ...]:
        def change(options: Options) -> Options:
            return replace(sparing(options), permanent=0.6, clients=1, churn=0, durables=0)

        return run_seed(seed, "crash", None, with_table(table), change, brokers=16, events=0).wrong_maps

    assert any(maps(NoReconciling, seed) for seed in (11, 19))
    assert not any(maps(ConnectionTable, seed) for seed in (11, 19))


@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: router.__name__)
def test_a_simplified_rule_of_routing_is_found(router: type[Router]) -> None:
    """Rules 2, 4, 5, 6, 7: what each is for."""
    caught = (seed for seed in ROUTERS[router] if lost(ring_stress(seed, with_router(router))))
    seed = next(caught, None)
    assert seed is not None
    assert harmless_in_the_ring(seed), "the planting itself is harmless"


def lost(report: Report) -> bool:
    return report.broken is not None or bool(report.missing or report.duplicates or report.out_of_order)


def test_sending_again_out_of_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 5: in order, before anything newer; otherwise the end drops the earlier one as had."""
    monkeypatch.setattr(Flight, "order", property(backwards))
    assert any(lost(ring_stress(seed)) for seed in (1, 2, 3))


def test_one_lane_for_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A best-effort event would hide the reliable one that waits for its commit."""
    monkeypatch.setattr(EventFrame, "lane_number", property(lambda frame: 3))
    assert any(lost(run_seed(seed, "none", change=unchecked, brokers=SMALL)) for seed in (1, 3, 5))


def test_the_order_of_a_set_is_found() -> None:
    """A broker that iterates a set of texts is another one in every process: the trace tells."""
    code = (
        "from tests.sim.canaries import SetIteration, with_router\n"
        "from dataclasses import replace\n"
        "from veena.sim.runs.run import run_seed\n"
        "options = {'change': lambda drawn: replace(drawn, check=False), 'brokers': 12, 'events': 80}\n"
        "print(run_seed(1, 'none', None, with_router(SetIteration), **options).trace_hash)"
    )
    hashes = (
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)}, cwd=ROOT, capture_output=True, text=True, timeout=120,
            check=True,
        ).stdout
        for seed in range(4)
    )  # fmt: skip
    first = next(hashes)
    assert len(first) > 10
    assert any(other != first for other in hashes)


def test_dropped_detour_copies_are_found() -> None:
    """GPP-19: in a cluster that is in two pieces only the detour copy tells 8 of c's link to SC-2."""
    brokers = ["S.1.c.5", "S.1.c.6", "S.1.d.7", "S.1.a.8", "S.2.e.9"]
    links = [("S.1.c.5", "S.2.e.9"), ("S.1.c.5", "S.1.d.7"), ("S.1.d.7", "S.1.c.6"), ("S.1.c.6", "S.1.a.8")]
    split = make_network("split", brokers, links)
    # Without dialling: 8 would call SC-2 itself, and the canary would live.
    bad = run_seed(1, "none", split, with_table(NoDetours), lambda options: replace(options, dial=False), events=0)
    assert bad.wrong_maps == ("S.1.a.8",)
    assert run_seed(1, "none", split, events=0).wrong_maps == ()


def test_detour_copies_as_vertices_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPP-19: the printed rules alone put the own unit into the map."""
    assert all(maps_only(seed, change=sparing).broken is None for seed in (2, 6))
    monkeypatch.setattr(map_module, "is_fine", lambda record, own: True)
    reports = (maps_only(seed, change=sparing).broken or "" for seed in (2, 6))
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

    report = run_seed(2, "none", make_broker=Fragile, brokers=8)
    assert report.broken == "AssertionError: fragile"
    assert not report.is_sound
    assert report.missing is None
    assert report.options["brokers"] == 8


def test_settling_covers_every_time_out() -> None:
    """Liveness is judged after suspicion, confirmation and two reconciliations could have passed."""
    settings = Settings()
    assert settling_ns(settings) > settings.suspect_after_ns + settings.confirm_after_ns + 2 * settings.reconcile_ns
    assert settling_ns(settings) > settings.cost_hold_ns + settings.load_check_ns
