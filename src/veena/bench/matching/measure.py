"""How fast an engine is beside a scan of its profiles, measured in one run.

Engine and scan take turns, pass by pass, and the median of the passes counts, so that whatever else the machine does
falls on both. Each pass has events of its own, because a broker seldom sees an event twice and an engine may remember
what it found near a value. The clock is the CPU time of this thread: what neighbours take away does not count, and on a
quiet machine it is the wall's. The answers are compared on the way: a fast wrong answer ends the run.

The garbage collector is off while events and changes are timed: when it runs, it walks over everything that the process
holds, the benchmark's own million profiles included. What it adds to the dearest change, a constraint of a new form, is
measured beside it (`add_new_collected_us`); it runs while snapshots are taken and loaded.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from time import thread_time
from typing import Any

from veena import matching
from veena.bench.matching.workloads import Workload
from veena.errors import VeenaError
from veena.event import Event
from veena.matching.base.engine import Constraint, Engine

DESTINATIONS = 32
#: Memory is measured on a build of its own, because tracing it makes a build five times slower.
MEMORY_PROFILES_MAX = 100_000
#: Constraints of new forms added; they stay few, because each is a table of its own.
NOVELTIES = 1000
#: Each makes all profiles once more, up to a million.
SNAPSHOTS_MAX = 3
#: Said after each step, for a progress bar.
Say = Callable[[str], None]


class WrongAnswer(VeenaError):
    """An engine and the scan of its profiles disagree."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    events: int = 300
    passes: int = 7
    #: Events in a pass of the scan.
    scan_events: int = 3
    changes: int = 2_000


QUICK = Effort(events=60, passes=3, scan_events=2, changes=300)


@dataclass(frozen=True, slots=True)
class Result:
    """One line of `veena bench matching --json`."""

    engine: str
    workload: str
    profiles: int
    events: int
    #: Matching profiles an event, as a part of all.
    match_rate: float
    us_per_event: float
    scan_us_per_event: float
    ratio_to_scan: float
    mask_us_per_event: float
    add_us: float
    remove_us: float
    bytes_per_profile: float
    build_s: float
    #: To take a snapshot of all profiles, and to make an engine of it.
    snapshot_ms: float
    load_ms: float
    #: Fewer than `profiles` when the scan was timed on a part of them and scaled.
    scan_profiles: int
    #: One plain dict look-up, for the engines that promise to be no more than three.
    dict_us_per_event: float | None = None
    #: Adding a constraint of a form that the engine has not seen, parsing included.
    add_new_us: float | None = None
    #: The same with the garbage collector running, as it does for users.
    add_new_collected_us: float | None = None

    def line(self) -> dict[str, Any]:
        """What is not measured is left out, and so is `scan_profiles` where all were scanned."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        if self.scan_profiles == self.profiles:
            del fields["scan_profiles"]
        return {name: _rounded(value) for name, value in fields.items()}


def measure(workload: Workload, profiles: int, effort: Effort, say: Say, seed: int = 1) -> Result:
    random = Random(seed)
    constraints = [workload.constraint(random, index) for index in range(profiles)]
    spare = [workload.constraint(random, profiles + index) for index in range(min(effort.changes, profiles))]
    rounds = [[workload.event(random, profiles) for _ in range(effort.events)] for _ in range(effort.passes + 1)]
    say("build")
    bytes_per_profile = _memory(workload.engine, constraints[:MEMORY_PROFILES_MAX])
    engine = matching.create(workload.engine)
    started = thread_time()
    for index, constraint in enumerate(constraints):
        engine.add(index, constraint, 1 << index % DESTINATIONS)
    build_s = thread_time() - started
    say("scan")
    scanned = constraints[: workload.scan_profiles_max]
    tests = [workload.scan(constraint) for constraint in scanned]
    say("match")
    with _quiet_collector():
        times = _passes(workload, engine, tests, rounds, effort)
        if workload.name == "unique":
            times |= _look_ups(workload, engine, constraints, effort)
        matched = sum(len(engine.match(event)) for event in rounds[0])
    say("snapshot")
    snapshot_ms, load_ms = _snapshot(workload, engine, rounds[0][0], effort)
    say("change")
    add_us, remove_us = _changes(engine, spare, profiles)
    novel = _novelties(engine, workload.novel, profiles + len(spare)) if workload.novel else (None, None)
    scan_us = times["scan"] * len(constraints) / len(scanned)
    return Result(
        engine=workload.engine, workload=workload.name, profiles=profiles, events=effort.events,
        match_rate=matched / effort.events / profiles, us_per_event=times["match"], scan_us_per_event=scan_us,
        ratio_to_scan=scan_us / times["match"], mask_us_per_event=times["mask"], add_us=add_us, remove_us=remove_us,
        bytes_per_profile=bytes_per_profile, build_s=build_s, snapshot_ms=snapshot_ms, load_ms=load_ms,
        scan_profiles=len(scanned), dict_us_per_event=times.get("dict"), add_new_us=novel[0],
        add_new_collected_us=novel[1],
    )  # fmt: skip


def _passes(
    workload: Workload, engine: Engine, tests: list[Callable[[Any], bool]], rounds: list[list[Event]], effort: Effort
) -> dict[str, float]:
    """Median microseconds an event of match, destinations and scan, which take turns."""
    match, mask, scan = [], [], []
    for events in rounds:
        match.append(per_event_us(engine.match, events))
        mask.append(per_event_us(engine.destinations, events))
        some = events[: effort.scan_events]
        scan.append(per_event_us(lambda event: _scan(workload, tests, event), some))
        _compare(workload, engine, tests, some[0])
    # The first pass fills caches.
    return {"match": median(match[1:]), "mask": median(mask[1:]), "scan": median(scan[1:])}


def _scan(workload: Workload, tests: list[Callable[[Any], bool]], event: Event) -> list[int]:
    view = workload.view(event)
    return [index for index, test in enumerate(tests) if test(view)]


def _compare(workload: Workload, engine: Engine, tests: list[Callable[[Any], bool]], event: Event) -> None:
    expected = _scan(workload, tests, event)
    found = engine.match(event)
    if [index for index in found if index < len(tests)] != expected:
        raise WrongAnswer(f"engine {workload.engine} on workload {workload.name}: not what a scan says of {event!r}")
    destinations = 0
    for index in found:
        destinations |= 1 << index % DESTINATIONS
    if engine.destinations(event) != destinations:
        raise WrongAnswer(f"engine {workload.engine} on workload {workload.name}: destinations of {event!r}")


def per_event_us(call: Callable[[Any], Any], events: list[Any]) -> float:
    started = thread_time()
    for event in events:
        call(event)
    return (thread_time() - started) / len(events) * 1e6


def _look_ups(workload: Workload, engine: Engine, constraints: list[Constraint], effort: Effort) -> dict[str, float]:
    """Microseconds of both modes, and of one look-up of the event's value in a plain dict driven from C.

    All take events that were never seen before, because that is what a broker meets: caches are cold.
    """
    plain = {constraint: index for index, constraint in enumerate(constraints)}
    random = Random(len(constraints))
    times: dict[str, list[float]] = {"match": [], "mask": [], "dict": []}
    for _ in range(effort.passes):
        size = 10 * effort.events
        fresh = [workload.event(random, len(constraints)) for _ in range(3 * size)]
        times["match"].append(per_event_us(engine.match, fresh[:size]))
        times["mask"].append(per_event_us(engine.destinations, fresh[size : 2 * size]))
        started = thread_time()
        deque(map(plain.get, map(workload.view, fresh[2 * size :])), maxlen=0)
        times["dict"].append((thread_time() - started) / size * 1e6)
    return {name: median(taken) for name, taken in times.items()}


def _changes(engine: Engine, spare: list[Constraint], profiles: int) -> tuple[float, float]:
    """Microseconds to add one more profile and to remove one, at full size, half of the latter from the middle."""
    with _quiet_collector():
        started = thread_time()
        for offset, constraint in enumerate(spare):
            engine.add(profiles + offset, constraint, 1 << offset % DESTINATIONS)
        added = thread_time()
        for offset in range(len(spare)):
            engine.remove(profiles + offset if offset % 2 else offset * (profiles // len(spare)))
        return (added - started) / len(spare) * 1e6, (thread_time() - added) / len(spare) * 1e6


def _snapshot(workload: Workload, engine: Engine, event: Event, effort: Effort) -> tuple[float, float]:
    """Median milliseconds of taking and of loading a snapshot; the collector runs as it does for users."""
    taken, loaded = [], []
    for _ in range(min(effort.passes, SNAPSHOTS_MAX)):
        started = thread_time()
        snapshot = engine.snapshot()
        taken.append(thread_time() - started)
        started = thread_time()
        again = matching.from_snapshot(snapshot)
        loaded.append(thread_time() - started)
        if again.match(event) != engine.match(event) or again.destinations(event) != engine.destinations(event):
            raise WrongAnswer(f"engine {workload.engine} on workload {workload.name}: after a snapshot, of {event!r}")
        del again
    return median(taken) * 1e3, median(loaded) * 1e3


def _novelties(engine: Engine, novel: Callable[[int], Constraint], first: int) -> tuple[float, float]:
    """Microseconds to add a constraint of a new form, without the garbage collector and with it."""
    constraints = [novel(number) for number in range(2 * NOVELTIES)]
    with _quiet_collector():
        quiet = _added_us(engine, constraints[:NOVELTIES], first)
    return quiet, _added_us(engine, constraints[NOVELTIES:], first + NOVELTIES)


def _added_us(engine: Engine, constraints: list[Constraint], first: int) -> float:
    started = thread_time()
    for offset, constraint in enumerate(constraints):
        engine.add(first + offset, constraint, 1)
    return (thread_time() - started) / len(constraints) * 1e6


def _memory(engine_name: str, constraints: list[Constraint]) -> float:
    """Bytes a profile with distinct constraints; the texts themselves are not counted."""
    distinct = list(dict.fromkeys(constraints))
    matching.create(engine_name).add(0, distinct[0], 1)  # imports are not counted either
    gc.collect()
    tracemalloc.start()
    try:
        engine = matching.create(engine_name)
        for index, constraint in enumerate(distinct):
            engine.add(index, constraint, 1 << index % DESTINATIONS)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / len(distinct)
    finally:
        tracemalloc.stop()


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Without the garbage collector's walks over a million objects, which fall on whoever happens to run."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
