"""One broker under load: how many events a second, how late, and how much memory; as a process of its own.

What others do beside it on the same machine is the matter of `benchmarks/peers_race.py`.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from veena.bench.load.client import Attached, load
from veena.bench.load.content import BODY
from veena.bench.load.generator import percentile
from veena.bench.load.processors import starting_on

HOST = "127.0.0.1"
#: Deliveries under way in a closed loop: best effort, and reliable (a broker waits for the disk in between).
WINDOW = 20_000
RELIABLE_WINDOW = 2_000
#: Clients that hold the subscriptions whose memory is measured: one may have 65,536.
HOLDERS = 4

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured."""

    idle_mib: float
    per_second: float
    cpu_us: float
    fan_out: int
    fan_out_per_second: float
    reliable_per_second: float
    p50_us: float
    p99_us: float
    subscriptions: int
    bytes_per_subscription: float

    def line(self) -> dict[str, float | int]:
        return {name: round(value, 2) for name, value in asdict(self).items()}

    def rows(self) -> list[tuple[str, str]]:
        """For people."""
        return [
            ("idle", f"{self.idle_mib:.0f} MiB"),
            ("1 -> 1, events a second", f"{self.per_second:,.0f}"),
            ("the broker's CPU for one", f"{self.cpu_us:.2f} us"),
            (f"1 -> {self.fan_out}, deliveries a second", f"{self.fan_out_per_second:,.0f}"),
            ("reliable 1 -> 1, events a second", f"{self.reliable_per_second:,.0f}"),
            ("at 1,000 events a second: p50, p99", f"{self.p50_us:,.0f}, {self.p99_us:,.0f} us"),
            (f"each of {self.subscriptions:,} subscriptions", f"{self.bytes_per_subscription:,.0f} bytes"),
        ]


class RunningBroker:
    """A broker with its defaults, on a free port, until the end of the block."""

    def __init__(self, data: Path | None = None, processor: int | None = None, profile: Path | None = None) -> None:
        """`profile` is the file for the counts of `sampling`, where somebody asks for them."""
        program = ["veena.cli"] if profile is None else ["veena.bench.load.sampling", str(profile)]
        command = [sys.executable, "-m", *program, "broker", "run", "--json", "--listen", f"veena://{HOST}:0"]
        command += ["--until-stdin-closes"] + ([] if data is None else ["--data", str(data)])
        with starting_on(processor):
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter, and nothing from outside
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        self.pid = self._process.pid
        self.port = 0

    def __enter__(self) -> RunningBroker:
        assert self._process.stdout is not None
        listening, ready = self._process.stdout.readline(), self._process.stdout.readline()
        if not ready:
            self._process.wait()
            raise RuntimeError(f"the broker did not start: exit code {self._process.returncode}")
        self.port = int(json.loads(listening)["url"].rsplit(":", 1)[1])
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def measure(seconds: float, fan_out: int, subscriptions: int, events: int, say: Say) -> Result:
    """Everything, one after the other, on one broker; the memory of subscriptions on a second one."""
    with ExitStack() as stack:
        broker = stack.enter_context(RunningBroker())
        idle = memory_mib(broker.pid)
        say("1 -> 1")
        cpu = cpu_seconds(broker.pid)
        one, deliveries = closed_loop(broker.port, 1, seconds)
        cpu = cpu_seconds(broker.pid) - cpu
        say(f"1 -> {fan_out}")
        many, _ = closed_loop(broker.port, fan_out, seconds)
        say("1,000 events a second")
        took = paced(broker.port, events)
        say("reliable")
        reliable, _ = closed_loop(broker.port, 1, seconds, reliable=True)
    say(f"{subscriptions:,} subscriptions")
    with RunningBroker() as broker:
        held = bytes_per_subscription(broker, subscriptions)
    cpu_us = cpu * 1e6 / deliveries
    return Result(
        idle, one, cpu_us, fan_out, many, reliable, percentile(took, 50), percentile(took, 99), subscriptions, held
    )


def closed_loop(port: int, receivers: int, seconds: float, reliable: bool = False) -> tuple[float, int]:
    """Deliveries a second, and deliveries in all; raises RuntimeError for any that is missing or out of order."""
    found = load(HOST, port, receivers, BODY, reliable)
    try:
        window = RELIABLE_WINDOW if reliable else max(WINDOW, 2 * receivers)
        rate = found.closed_loop(seconds, window, max(20, 2000 // receivers), deliveries=window)
    finally:
        found.close()
    return rate.per_second, found.delivered


def paced(port: int, events: int) -> list[float]:
    found = load(HOST, port, 1, BODY)
    try:
        return found.paced(1000, events, events // 4)
    finally:
        found.close()


def bytes_per_subscription(broker: RunningBroker, count: int) -> float:
    """How much a broker grows by a subscription to a topic of its own, told and acknowledged."""
    holders = [Attached(HOST, broker.port, f"holder-{number}") for number in range(HOLDERS)]
    holders[0].subscribe(["warm"], first=1 << 20)
    before = memory_mib(broker.pid)
    share = count // HOLDERS
    for number, holder in enumerate(holders):
        holder.ask([("topic", f"sensors.{number}.{topic}") for topic in range(share)])
    for holder in holders:
        holder.wait_active()
    after = memory_mib(broker.pid)
    for holder in holders:
        holder.socket.close()
    return (after - before) * (1 << 20) / (share * HOLDERS)


def memory_mib(pid: int) -> float:
    """What a process holds in memory, as Linux counts it."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        port: int = found.getsockname()[1]
        return port
