"""What the interest map costs a broker: state and control messages in networks of 78, 500 and 3,000 simulated brokers.

    python benchmarks/interest.py [--brokers 78 500 3000] [--constraints 100] [--scoped 0.0] [--cpu-minutes 60]
                                  [--json] [--check]

The wants are those of `interest_state.py`: 100 constraints a broker of 20,000, by Zipf's law. The brokers are the real
ones, on a virtual clock. Printed are

- what a broker holds when everything has been told, by the highest unit that it is a controller of;
- what the telling cost, from brokers that know their maps and no wants to the end;
- bursts: many changes within one virtual second, and how many a second the busiest broker's CPU would take;
- single changes: how many brokers hear of a want that is new to its cluster, super-cluster and so on;
- at rest: what is said although nothing changes.

`--check` makes the bounds exit codes: at most 128 KiB of digests a broker, rows only of units inside the super-cluster.
Parts of a network that would begin after `--cpu-minutes` are left out. A row that a broker holds takes about 480 bytes
in all, so that 3,000 brokers with 20 million rows need some 11 GiB, and the better part of an hour of an idle core;
`interest_state.py` finds what they hold in the end without messages, in seconds. Times are of this machine; the rest is
the same everywhere.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

# A script beside this one: mypy knows it as benchmarks.interest_state, Python by the directory of the script it runs.
from interest_state import (  # type: ignore[import-not-found]
    CATALOGUE,
    MAX_DIGEST_KIB,
    Wishes,
    draw_network,
    let_through,
    print_table,
    wish,
)
from rich.console import Console
from rich.progress import Progress, TaskID

from veena.address import Address
from veena.core.boundary.inputs_effects import ClientUp, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.broker import Broker
from veena.core.topology.controllers import controllers
from veena.core.topology.network_map import NetworkMap
from veena.core.wire import codec as wire
from veena.core.wire.control import Connections, Frame, Heartbeat, Hello, Received
from veena.core.wire.interest import Interest
from veena.runtime.networks.file import Network
from veena.sim.world.network import Delivery
from veena.sim.world.options import Options
from veena.sim.world.timed_broker import TimedBroker
from veena.sim.world.world import World

#: So rare that none happens here: leases and the like tell nothing of wants.
NEVER_NS = 3600 * SECOND_NS
#: Rare, and not counted; speakers wait for one before they make their first claim.
HEARTBEAT_NS = 60 * SECOND_NS
#: Frames about links and maps.
OTHER_FRAMES = (Heartbeat, Received, Hello, Connections)
ROLES = ("plain", "cluster", "super-cluster", "super-super-cluster")
#: Brokers of a role whose memory is measured.
SAMPLE = 8
#: How often each kind of single change is tried.
TRIES = 5
#: Changes within a virtual second.
BURSTS = (10, 100, 1000)
SESSION = 1


# --- the world and its observer ---


@dataclass(slots=True)
class Ear:
    """Counts the control messages about wants, and whom they reach."""

    frames: int = 0
    size: int = 0
    rows: int = 0
    digests: int = 0
    last_ns: int = 0
    by_type: Counter[str] = field(default_factory=Counter)
    #: Brokers that were told of a want or a digest.
    reached: set[Address] = field(default_factory=set)

    def hear(self, delivery: Delivery) -> None:
        for number, frame in delivery.frames:
            if isinstance(frame, OTHER_FRAMES) or not isinstance(frame, Frame):
                continue
            self.frames += 1
            self.by_type[type(frame).__name__] += 1
            self.size += len(wire.encode(frame, number))
            self.last_ns = delivery.at_ns
            if isinstance(frame, Interest):
                self.rows += len(frame.rows)
                self.digests += len(frame.digests)
                self.reached.add(delivery.to)


def patient(network: Network) -> Settings:
    """Settings under which nothing happens by itself."""
    return Settings(
        network.name,
        network.levels,
        network.fanout,
        heartbeat_ns=HEARTBEAT_NS,
        load_check_ns=NEVER_NS,
        suspect_after_ns=2 * NEVER_NS,
        confirm_after_ns=2 * NEVER_NS,
        answer_within_ns=2 * NEVER_NS,
        lease_ns=12 * NEVER_NS,
        reconcile_ns=4 * NEVER_NS,
        tombstone_ns=16 * NEVER_NS,
    )


def listen(world: World) -> Ear:
    """A new ear, and CPU counters at zero."""
    ear = Ear(last_ns=world.now_ns)
    world.on_delivery = ear.hear
    for broker in world.live():
        assert isinstance(broker, TimedBroker)
        broker.cpu_ns = 0
    return ear


def settle(world: World, ear: Ear) -> None:
    """Run until two virtual seconds pass in which nothing is told: no batch waits for longer than half of one."""
    while True:
        told = ear.frames
        world.run_until(world.now_ns + 2 * SECOND_NS)
        if ear.frames == told:
            return


def cpu_ms(world: World) -> list[float]:
    return [broker.cpu_ns / 1e6 for broker in world.live() if isinstance(broker, TimedBroker)]


# --- state ---


def role(broker: Broker) -> str:
    """The highest unit that the broker is a controller of."""
    return ROLES[max(level for level in range(len(ROLES)) if broker.map.host in controllers(broker.map, level))]


def footprint_kib(broker: Broker) -> float:
    """Memory of everything that the profiles of one broker refer to, as if no other broker shared it."""
    apart = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, NetworkMap, Settings)
    seen: set[int] = set()
    pending: list[Any] = [broker.profiles]
    size = 0
    while pending:
        thing = pending.pop()
        if id(thing) in seen or isinstance(thing, apart):
            continue
        seen.add(id(thing))
        size += sys.getsizeof(thing)
        pending.extend(gc.get_referents(thing))
    return size / 1024


def false_positives(brokers: list[Broker]) -> float:
    """The share of the digests held that let through an event that nobody wants."""
    tables = [broker.profiles.table for broker in brokers]
    found = [table.digest(unit) for table in tables for unit in table.units()]
    share: float = let_through([list(digest.parts) for digest in found if digest is not None])
    return share


def misplaced_rows(broker: Broker) -> int:
    """Rows of units that are neither brokers of the cluster nor clusters of the super-cluster; what a gatekeeper knows
    of the unit beyond its link is counted apart, as far rows."""
    host, table = broker.identity.address, broker.profiles.table
    inside = len(host) - 2
    return sum(
        sum(1 for _ in table.rows(unit))
        for unit in dict.fromkeys(table.units())
        if len(unit) <= inside or unit[:inside] != host[:inside]
    )


def state(world: World, chance: Random) -> list[dict[str, Any]]:
    by_role: dict[str, list[Broker]] = {}
    for broker in world.live():
        by_role.setdefault(role(broker), []).append(broker)
    by_role = {name: by_role[name] for name in ROLES if name in by_role}
    everyone = [broker for brokers in by_role.values() for broker in brokers]
    return [_held(name, brokers, chance) for name, brokers in (("all", everyone), *by_role.items())]


def _held(name: str, brokers: list[Broker], chance: Random) -> dict[str, Any]:
    statistics = [broker.profiles.statistics() for broker in brokers]
    sample = chance.sample(brokers, min(SAMPLE, len(brokers)))
    digests = [entry.digest_bytes / 1024 for entry in statistics]
    return {
        "role": name,
        "brokers": len(brokers),
        "rows_mean": fmean(entry.rows for entry in statistics),
        "rows_max": max(entry.rows for entry in statistics),
        "rows_misplaced": sum(map(misplaced_rows, brokers)),
        "far_rows_max": max(broker.profiles.beyond.statistics().rows for broker in brokers),
        "digest_kib_mean": fmean(digests),
        "digest_kib_max": max(digests),
        "digest_false_positives": false_positives(sample),
        "connections_mean": fmean(len(broker.table) for broker in brokers),
        "memory_kib_sampled": fmean(map(footprint_kib, sample)),
    }


# --- control messages ---


def spread(world: World, wishes: Wishes, constraints: int) -> dict[str, Any]:
    """Everybody subscribes at once."""
    ear, begin_ns = listen(world), world.now_ns
    for number, address in enumerate(world.nodes):
        world.give(address, ClientUp(SESSION, f"client-{number}"))
        for _ in range(constraints):
            subscribe(world, wishes, address, wishes.new_at(address))
    settle(world, ear)
    size, cpu = len(world.nodes), cpu_ms(world)
    return {
        "frames_per_broker": ear.frames / size,
        "kib_per_broker": ear.size / 1024 / size,
        "rows_received_per_broker": ear.rows / size,
        "digests_received_per_broker": ear.digests / size,
        "cpu_ms_mean": fmean(cpu),
        "cpu_ms_max": max(cpu),
        "virtual_seconds": (ear.last_ns - begin_ns) / SECOND_NS,
        "frames_by_type": dict(sorted(ear.by_type.items())),
    }


def subscribe(world: World, wishes: Wishes, broker: Address, number: int) -> None:
    wishes.of.setdefault(broker, {})[number] = None
    engine, constraint = wish(number)
    world.give(broker, Subscribe(SESSION, number, engine, constraint, wishes.scope()))


def unsubscribe(world: World, wishes: Wishes, broker: Address, number: int) -> None:
    del wishes.of[broker][number]
    world.give(broker, Unsubscribe(SESSION, number))


def known_within(wishes: Wishes, broker: Address, level: int) -> dict[int, None]:
    """The topics that are wanted in the broker's unit of this level and in no smaller unit of its."""
    inside: dict[int, None] = {}
    nearer: dict[int, None] = {}
    outer, inner = broker[: len(broker) - level], broker[: len(broker) - level + 1]
    for address, numbers in wishes.of.items():
        if address[: len(inner)] == inner:
            nearer.update(numbers)
        elif address[: len(outer)] == outer:
            inside.update(numbers)
    return {number: None for number in inside if number % 10 < 5 and number not in nearer}


def single_changes(world: World, wishes: Wishes, chance: Random) -> list[dict[str, Any]]:
    """One want more, and away again; each kind several times at different brokers."""
    levels, addresses = world.network.levels, list(world.nodes)
    cases: list[tuple[str, int | None]] = [("covered by a wider one of the same broker", None)]
    names = ("broker", *ROLES[1:], "top unit")
    for level in range(1, levels + 1):
        where = "in the system" if level == levels else f"in its {names[level]}"
        cases.append((f"new to its {names[level - 1]}, known {where}", level))
    cases.append(("new to the system", levels + 1))
    return [_single(world, wishes, chance, name, level, addresses) for name, level in cases]


def _single(
    world: World, wishes: Wishes, chance: Random, name: str, level: int | None, addresses: list[Address]
) -> dict[str, Any]:
    added: list[Ear] = []
    removed: list[Ear] = []
    for broker in chance.sample(addresses, len(addresses)):
        if len(added) == TRIES:
            break
        number = _candidate(wishes, chance, broker, level)
        if number is not None:
            for change, ears in ((subscribe, added), (unsubscribe, removed)):
                ears.append(listen(world))
                change(world, wishes, broker, number)
                settle(world, ears[-1])
    return {
        "change": name,
        "tries": len(added),
        "reached_mean": fmean(len(ear.reached) for ear in added) if added else 0.0,
        "reached_max": max((len(ear.reached) for ear in added), default=0),
        "frames_mean": fmean(ear.frames for ear in added) if added else 0.0,
        "kib_mean": fmean(ear.size for ear in added) / 1024 if added else 0.0,
        "reached_by_removal_mean": fmean(len(ear.reached) for ear in removed) if removed else 0.0,
    }


def _candidate(wishes: Wishes, chance: Random, broker: Address, level: int | None) -> int | None:
    """A wish whose subscription at this broker is a change of that kind."""
    own = wishes.of[broker]
    if level is None:
        found = [number + 5 for number in own if number % 10 < 3 and number + 5 not in own]
    elif level <= len(broker):
        found = list(known_within(wishes, broker, level))
    else:
        fresh = CATALOGUE + 10 * chance.randrange(CATALOGUE)
        found = [] if any(fresh in numbers for numbers in wishes.of.values()) else [fresh]
    return chance.choice(found) if found else None


def burst(world: World, wishes: Wishes, chance: Random, changes: int) -> dict[str, Any]:
    """So many changes within a virtual second, at brokers drawn by chance: half come, half go."""
    addresses = list(world.nodes)
    ear, begin_ns = listen(world), world.now_ns
    for change in range(changes):
        broker = chance.choice(addresses)
        when = begin_ns + change * SECOND_NS // changes
        world.at(when, lambda broker=broker, more=change % 2: _change(world, wishes, chance, broker, more))  # type: ignore[misc]
    settle(world, ear)
    cpu = cpu_ms(world)
    return {
        "changes_in_a_second": changes,
        "frames_per_change": ear.frames / changes,
        "frames_per_change_and_broker": ear.frames / changes / len(addresses),
        "kib_per_change": ear.size / 1024 / changes,
        "cpu_ms_per_change_busiest": max(cpu) / changes,
        "cpu_ms_per_change_mean": fmean(cpu) / changes,
        "absorbed_per_second": 1000 * changes / max(cpu),
    }


def _change(world: World, wishes: Wishes, chance: Random, broker: Address, more: int) -> None:
    if more:
        subscribe(world, wishes, broker, wishes.new_at(broker))
    else:
        unsubscribe(world, wishes, broker, chance.choice(list(wishes.of[broker])))


def at_rest(network: Network) -> dict[str, Any]:
    """Signs of life and the like when nothing changes, under the default settings; heartbeats of links not counted."""
    world = World(network, 1, Options(wire=False, check=False), make_broker=TimedBroker)
    world.run_until(world.now_ns + 2 * world.settings.lease_ns)
    ear, begin_ns = listen(world), world.now_ns
    world.run_until(begin_ns + world.settings.lease_ns)
    minutes = (world.now_ns - begin_ns) / SECOND_NS / 60
    return {
        "frames_per_broker_and_minute": ear.frames / len(world.nodes) / minutes,
        "kib_per_broker_and_minute": ear.size / 1024 / len(world.nodes) / minutes,
        "cpu_ms_per_broker_and_minute": fmean(cpu_ms(world)) / minutes,
        "frames_by_type": dict(sorted(ear.by_type.items())),
    }


# --- one network, and the report ---


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for cycles. All brokers live in one process here, and it would go through tens of
    millions of objects in the name of whichever broker is at work; one that runs alone has some thousand times fewer.
    Brokers leave no cycles behind when they take in wants, so that nothing piles up meanwhile."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def measure(
    size: int, constraints: int, scoped: float, cpu_minutes: float, progress: Progress, task: TaskID
) -> dict[str, Any]:
    """All parts, or as many as begin within so much CPU time."""
    network = draw_network(size)
    begin = time.process_time()
    found: dict[str, Any] = {"network": network.name, "brokers": len(network.brokers), "links": len(network.links)}

    def run(parts: dict[str, Callable[[], Any]]) -> None:
        for name, part in parts.items():
            progress.update(task, advance=1, description=f"{network.name}: {name}")
            if time.process_time() - begin <= 60 * cpu_minutes:
                with uncollected():
                    found[name] = part()

    run(_parts_with_wants(network, constraints, scoped, Random(size)))
    gc.collect()  # one world at a time: brokers and their world refer to each other
    run({"at_rest": lambda: at_rest(network)})
    return found | {"cpu_seconds": time.process_time() - begin}


def _parts_with_wants(
    network: Network, constraints: int, scoped: float, chance: Random
) -> dict[str, Callable[[], Any]]:
    """What is measured of one world, in this order."""
    world = World(network, 1, Options(wire=False, check=False), patient(network), make_broker=TimedBroker)
    # Speakers of units make their first claims a heartbeat after they took office, and before that nothing climbs.
    world.run_until(HEARTBEAT_NS + SECOND_NS)
    settle(world, listen(world))
    wishes = Wishes(chance, scoped, network.levels)
    return {
        "spread": lambda: spread(world, wishes, constraints),
        "state": lambda: state(world, chance),
        "bursts": lambda: [burst(world, wishes, chance, count) for count in BURSTS],
        "single_changes": lambda: single_changes(world, wishes, chance),
    }


def broken_bounds(results: list[dict[str, Any]]) -> list[str]:
    found = []
    for result in results:
        if "state" not in result:
            found.append(f"{result['network']}: not measured within the CPU time given")
            continue
        everyone = result["state"][0]
        if everyone["digest_kib_max"] > MAX_DIGEST_KIB:
            found.append(f"{result['network']}: a broker holds {everyone['digest_kib_max']:.0f} KiB of digests")
        if everyone["rows_misplaced"]:
            found.append(f"{result['network']}: {everyone['rows_misplaced']} rows of units outside the super-cluster")
    return found


def show(results: list[dict[str, Any]]) -> None:
    for part, title in (
        ("state", "what a broker holds, by the highest unit that it controls"),
        ("spread", "from maps without wants until everything is told"),
        ("single_changes", "one want more, one want less"),
        ("bursts", "many changes within a second"),
        ("at_rest", "nothing changes"),
    ):
        rows = [
            {"network": result["network"]} | row
            for result in results
            if part in result
            for row in (result[part] if isinstance(result[part], list) else [result[part]])
        ]
        if rows:
            print_table(title, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, nargs="+", default=[78, 500, 3000])
    parser.add_argument("--constraints", type=int, default=100)
    parser.add_argument("--scoped", type=float, default=0.0)
    parser.add_argument("--cpu-minutes", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("networks", total=5 * len(arguments.brokers))
        results = [
            measure(size, arguments.constraints, arguments.scoped, arguments.cpu_minutes, progress, task)
            for size in arguments.brokers
        ]
    if arguments.json:
        print(json.dumps({"python": platform.python_version(), "networks": results}))
    else:
        show(results)
    broken = broken_bounds(results)
    for text in broken:
        print(text, file=sys.stderr)
    return int(arguments.check and bool(broken))


if __name__ == "__main__":
    sys.exit(main())
