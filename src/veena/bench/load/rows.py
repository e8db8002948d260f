"""A broker under each row of `content`: events a second, best effort and reliable, beside equal headers in one run.

Each row has a fresh broker with a processor of its own; the load has another one. With foreign constraints the broker
stands in a network of three super-clusters, whose other two brokers share the load's processor and hold constraints of
each kind that match none of the events; the ratio to the lone broker says what these cost.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import thread_time

from veena import matching
from veena.bench.load import sampling
from veena.bench.load.broker import HOST, RELIABLE_WINDOW, WINDOW, RunningBroker, cpu_seconds
from veena.bench.load.client import Attached, Crowd
from veena.bench.load.content import FOREIGN_KINDS, ROWS, Row, foreign
from veena.bench.load.processors import load_apart, move, starting_on
from veena.core.wire.control import Heartbeat
from veena.runtime.fleet.fleet import Fleet
from veena.runtime.networks.file import parse_network

#: Deliveries under way where an event has many receivers.
DELIVERIES = 100_000
#: A function that takes less of the time is not told.
LEAST_SHARE = 0.005
#: Events before the clock starts.
WARM = 1_000
#: How long all subscriptions of a row, or all foreign ones, may take to become active.
SUBSCRIBE_S = 60.0
#: The row that is compared with a scan.
SCANNED = "selectors-10000"
#: Events whose matching alone is timed.
MATCHED = 2_048
BATCH = 256
#: What a scan is given: it takes milliseconds an event.
SCAN_WINDOW, SCAN_WARM = 200, 5

NETWORK = """
[network]
name = "foreign"
levels = 4
fanout = 32

[[broker]]
address = "A.SC-1.C.1"

[[broker]]
address = "A.SC-2.C.2"

[[broker]]
address = "A.SC-3.C.3"

[[link]]
between = ["A.SC-1.C.1", "A.SC-2.C.2"]

[[link]]
between = ["A.SC-2.C.2", "A.SC-3.C.3"]

[[link]]
between = ["A.SC-3.C.3", "A.SC-1.C.1"]
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured with one row."""

    row: str
    about: str
    constraints: int
    #: Constraints that match an event, on average.
    matches: float
    #: Foreign constraints of each kind in the network; 0 for a lone broker.
    foreign: int = 0
    subscribe_s: float = 0.0
    per_second: float = 0.0
    deliveries_per_second: float = 0.0
    #: Of the broker, for each event.
    cpu_us: float = 0.0
    #: Events a second beside those of the row with equal headers.
    to_alike: float | None = None
    reliable_per_second: float = 0.0
    reliable_cpu_us: float = 0.0
    reliable_to_alike: float | None = None
    #: Of its CPU for an event, what the engine takes, and all the rest.
    matching_us: float | None = None
    delivering_us: float | None = None
    #: Events a second of a scan with compiled closures.
    scan_per_second: float | None = None
    to_scan: float | None = None
    #: Beside the same row at a lone broker.
    to_alone: float | None = None
    reliable_to_alone: float | None = None
    #: Where the broker's time goes: room, function, share.
    profile: list[tuple[str, str, float]] = field(default_factory=list)
    #: Why it was not measured.
    fault: str = ""

    def line(self) -> dict[str, object]:
        found = {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}
        found["profile"] = [(room, name, round(share, 4)) for room, name, share in self.profile]
        return found

    def rooms(self) -> list[tuple[str, float, list[str]]]:
        """Microseconds of an event in each room, the dearest first, and the functions that take most there."""
        spent: dict[str, float] = {}
        functions: dict[str, list[str]] = {}
        for room, name, share in self.profile:
            spent[room] = spent.get(room, 0.0) + share * self.cpu_us
            functions.setdefault(room, []).append(name)
        return [(room, spent[room], functions[room]) for room in sorted(spent, key=lambda room: -spent[room])]


def measure(names: Sequence[str], seconds: float, count: int, say: Say, is_profiled: bool = False) -> Iterator[Figures]:
    """Every row at a lone broker, then, with a `count` of foreign constraints, in the network of three."""
    rows = [ROWS[name]() for name in names]
    with load_apart() as processor:
        alone: dict[str, Figures] = {}
        for row in rows:
            with RunningBroker(processor=processor) as broker:
                found = _compared(_measured(row, broker.port, broker.pid, seconds, say), alone)
            if row.name == SCANNED and not found.fault:
                found = _apart(row, found, processor, seconds, say)
            if is_profiled and not found.fault:
                found = replace(found, profile=_profiled(row, processor, seconds, say))
            alone[row.name] = found
            yield found
        if count:
            yield from asyncio.run(_in_network(rows, seconds, count, processor, alone, say))


def _measured(row: Row, port: int, pid: int, seconds: float, say: Say, held: int = 0) -> Figures:
    found = Figures(row.name, row.about, row.constraints, row.matches, held)
    where = f"{row.name}{' with foreign constraints' if held else ''}"
    say(f"{where}: {row.constraints:,} subscriptions")
    begin = time.perf_counter()
    try:
        crowd = Crowd(HOST, port, row, SUBSCRIBE_S)
    except RuntimeError as error:
        return replace(found, fault=str(error))
    try:
        found = replace(found, subscribe_s=time.perf_counter() - begin)
        say(f"{where}: best effort")
        events, deliveries, cpu = _loop(crowd, pid, False, seconds)
        found = replace(found, per_second=events, deliveries_per_second=deliveries, cpu_us=cpu)
        say(f"{where}: reliable")
        events, _, cpu = _loop(crowd, pid, True, seconds)
        return replace(found, reliable_per_second=events, reliable_cpu_us=cpu)
    except RuntimeError as error:
        return replace(found, fault=str(error))
    finally:
        crowd.close()


def _loop(crowd: Crowd, pid: int, reliable: bool, seconds: float) -> tuple[float, float, float]:
    """Events a second, deliveries a second, microseconds of the broker's CPU for each event."""
    load = crowd.load(reliable)
    try:
        cpu = cpu_seconds(pid)
        window = RELIABLE_WINDOW if reliable else WINDOW
        rate = load.closed_loop(seconds, window, WARM, deliveries=DELIVERIES)
        cpu = cpu_seconds(pid) - cpu
        return rate.events_per_second, rate.per_second, cpu * 1e6 / max(1, load.done)
    finally:
        load.publisher.close()


def _compared(found: Figures, alone: dict[str, Figures]) -> Figures:
    """Beside equal headers at a lone broker, and beside the same row there."""
    base = alone.get("alike", found if found.row == "alike" and not found.foreign else None)
    if found.fault:
        return found
    if base is not None and base.per_second:
        found = replace(
            found,
            to_alike=found.per_second / base.per_second,
            reliable_to_alike=found.reliable_per_second / base.reliable_per_second,
        )
    lone = alone.get(found.row)
    if found.foreign and lone is not None and not lone.fault:
        found = replace(
            found,
            to_alone=found.per_second / lone.per_second,
            reliable_to_alone=found.reliable_per_second / lone.reliable_per_second,
        )
    return found


def _profiled(row: Row, processor: int | None, seconds: float, say: Say) -> list[tuple[str, str, float]]:
    """The same load of best effort once more, at a broker that counts where its time goes."""
    say(f"{row.name}: where the time goes")
    with tempfile.TemporaryDirectory(prefix="veena-") as directory:
        file = Path(directory) / "profile.json"
        with RunningBroker(processor=processor, profile=file) as broker:
            crowd = Crowd(HOST, broker.port, row, SUBSCRIBE_S)
            try:
                load = crowd.load(False)
                sampling.begin(broker.pid)
                load.closed_loop(seconds, WINDOW, deliveries=DELIVERIES)
                found = sampling.shares(broker.pid, file)
                load.publisher.close()
            finally:
                crowd.close()
    return [each for each in found if each[2] >= LEAST_SHARE]


# --- matching apart from delivering, and a scan beside both ---


def _apart(row: Row, found: Figures, processor: int | None, seconds: float, say: Say) -> Figures:
    say(f"{row.name}: matching alone")
    alone_us = matching_us(row)
    say(f"{row.name}: a scan with compiled closures")
    with _running_scan(processor) as port:
        crowd = Crowd(HOST, port, row, SUBSCRIBE_S)
        try:
            load = crowd.load(False)
            rate = load.closed_loop(seconds, SCAN_WINDOW, SCAN_WARM, deliveries=DELIVERIES)
            load.publisher.close()
        finally:
            crowd.close()
    scanned = rate.events_per_second
    return replace(
        found,
        matching_us=alone_us,
        delivering_us=max(0.0, found.cpu_us - alone_us),
        scan_per_second=scanned,
        to_scan=found.per_second / scanned,
    )


def matching_us(row: Row) -> float:
    """What the engine takes to find the clients of an event, in batches as large as a read's."""
    (kind,) = {engine for wants in row.wants for engine, _ in wants}
    engine = matching.create(kind)
    number = 0
    for client, wants in enumerate(row.wants):
        for _, constraint in wants:
            engine.add(number, constraint, 1 << client)
            number += 1
    events = row.events[:MATCHED]
    engine.destinations_batch(events[:BATCH])
    begin = thread_time()
    for at in range(0, len(events), BATCH):
        engine.destinations_batch(events[at : at + BATCH])
    return (thread_time() - begin) / len(events) * 1e6


@contextmanager
def _running_scan(processor: int | None) -> Iterator[int]:
    command = [sys.executable, "-m", "veena.bench.load.scan"]
    with starting_on(processor):
        process = subprocess.Popen(  # noqa: S603  # this interpreter, and nothing from outside
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    with process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield int(json.loads(process.stdout.readline())["port"])
        finally:
            process.stdin.close()


# --- foreign constraints ---


async def _in_network(
    rows: Sequence[Row], seconds: float, count: int, processor: int | None, alone: dict[str, Figures], say: Say
) -> list[Figures]:
    with tempfile.TemporaryDirectory(prefix="veena-") as directory:
        fleet = Fleet(parse_network(NETWORK), Path(directory))
        say("starting three brokers")
        try:
            await fleet.start()
            return await asyncio.to_thread(_foreign_rows, fleet, rows, seconds, count, processor, alone, say)
        finally:
            await fleet.stop()


def _foreign_rows(
    fleet: Fleet,
    rows: Sequence[Row],
    seconds: float,
    count: int,
    processor: int | None,
    alone: dict[str, Figures],
    say: Say,
) -> list[Figures]:
    near, *far = fleet.members
    move(near.pid, processor)
    ports = [int(member.url.rsplit(":", 1)[1]) for member in far]
    holders: list[Attached] = []
    found: list[Figures] = []
    try:
        for number, kind in enumerate(FOREIGN_KINDS):
            say(f"{count:,} foreign constraints: {kind}")
            holder = Attached(HOST, ports[number % len(ports)], f"foreign-{kind}")
            holders.append(holder)
            holder.ask(foreign(kind, count))
            holder.wait_active(SUBSCRIBE_S)
        for row in rows:
            for holder in holders:
                holder.say(Heartbeat(0, 0))
            port = int(near.url.rsplit(":", 1)[1])
            found.append(_compared(_measured(row, port, near.pid, seconds, say, count), alone))
        return found
    except RuntimeError as error:
        say(str(error))
        return [*found, Figures("foreign", "foreign constraints", 0, 0.0, count, fault=str(error))]
    finally:
        for holder in holders:
            holder.socket.close()
