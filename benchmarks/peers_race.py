"""Veena beside mosquitto and nats-server: the same load, in the same minutes, as ratios.

    python benchmarks/peers_race.py [--seconds 2] [--repeat 3] [--json] [--check] [--realtime]

Brokers whose programs are not on the PATH are left out (Debian: apt-get install mosquitto nats-server). All run on
127.0.0.1 as they come, without persistence and with TCP_NODELAY; bodies have 100 bytes. Rates are closed loops with at
most 20,000 deliveries under way (2,000 reliable ones), each the best of `--repeat` runs taken in turns, so that what
else the machine does hits all of them. The latency is that of 1,000 events a second, from the send to the read: p50 and
p99 of all events of all runs together, which are short and in turns. On a shared machine one and the same broker's
median moves by half from second to second, so the least of a few medians would tell who had the luckiest one. For these
turns the load has the first processor and the broker, whichever it is, the second: where a scheduler puts two processes
that wake each other changes a latency more than anything that a broker does.

`--realtime` runs broker and load before everything else on the machine (needs the right to do so).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veena.bench.load import client as broker_client
from veena.bench.load.broker import RunningBroker, free_port, memory_mib
from veena.bench.load.generator import NUMBER, TAIL, Load, Receiver, body, everything, numbered, percentile

SIZE = 100
TOPIC = "bench"
START_S = 10.0

Connect = Callable[[int, int, bool], Load]


# --- MQTT 3.1.1 ---


def _mqtt_connect(port: int, name: str) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), START_S)
    client_id = name.encode()
    body = b"\x00\x04MQTT\x04\x02\x00\x3c" + len(client_id).to_bytes(2, "big") + client_id
    found.sendall(b"\x10" + bytes((len(body),)) + body)
    assert _exactly(found, 4)[3] == 0, "mosquitto refused the connection"
    return found


def _exactly(found: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = found.recv(size - len(data))
        assert more, "the broker has closed the connection"
        data += more
    return data


def _varint(number: int) -> bytes:
    data = b""
    while True:
        number, digit = divmod(number, 128)
        data += bytes((digit | (128 if number else 0),))
        if not number:
            return data


def mqtt(port: int, receivers: int, reliable: bool) -> Load:
    """QoS 0, or QoS 1 with every message acknowledged by its receivers."""
    qos = int(reliable)
    topic = len(TOPIC).to_bytes(2, "big") + TOPIC.encode()
    readers = []
    for number in range(receivers):
        reader = _mqtt_connect(port, f"reader-{number}")
        reader.sendall(b"\x82" + bytes((len(topic) + 3,)) + b"\x00\x01" + topic + bytes((qos,)))
        assert _exactly(reader, 5)[4] == qos
        readers.append(reader)
    publisher = _mqtt_connect(port, "publisher")
    content = topic + (b"\x00\x01" if reliable else b"") + body(SIZE)
    message = bytes((0x30 | qos << 1,)) + _varint(len(content)) + content
    make = numbered([message], len(message) - NUMBER.itemsize)
    #: The packet's id stands before the body, whose last bytes are mark and number.
    before = SIZE - TAIL + 2
    if reliable:
        make = _with_packet_ids(make, len(message), len(message) - SIZE - 2)
    answer = _acknowledgements(before) if reliable else None
    return Load(publisher, make, [Receiver(reader, everything(1), answer=answer) for reader in readers])


def _with_packet_ids(make: Callable[[int, int], bytes], size: int, at: int) -> Callable[[int, int], bytes]:
    def make_with_ids(first: int, count: int) -> bytes:
        rows = np.frombuffer(bytearray(make(first, count)), np.uint8).reshape(count, size)
        ids = (np.arange(first, first + count) % 65535 + 1).astype(">u2")
        rows[:, at : at + 2] = ids.view(np.uint8).reshape(count, 2)
        return rows.tobytes()

    return make_with_ids


def _acknowledgements(before: int) -> Callable[[NDArray[np.uint8], NDArray[np.int64]], bytes]:
    """Of the packets whose ids stand so many bytes before their marks."""

    def answer(data: NDArray[np.uint8], marks: NDArray[np.int64]) -> bytes:
        acks = np.empty((len(marks), 4), np.uint8)
        acks[:, 0], acks[:, 1] = 0x40, 2
        acks[:, 2], acks[:, 3] = data[marks - before], data[marks - before + 1]
        return acks.tobytes()

    return answer


# --- NATS ---


def _nats_connect(port: int) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), START_S)
    while not found.recv(65536).endswith(b"\r\n"):
        pass
    found.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
    assert found.recv(64).startswith(b"PONG")
    return found


def nats(port: int, receivers: int, reliable: bool) -> Load:
    readers = []
    for _ in range(receivers):
        reader = _nats_connect(port)
        reader.sendall(f"SUB {TOPIC} 1\r\nPING\r\n".encode())
        assert reader.recv(64).startswith(b"PONG")
        readers.append(reader)
    publisher = _nats_connect(port)
    message = f"PUB {TOPIC} {SIZE}\r\n".encode() + body(SIZE) + b"\r\n"
    make = numbered([message], len(message) - 2 - NUMBER.itemsize)
    return Load(publisher, make, [Receiver(reader, everything(1)) for reader in readers])


# --- the brokers ---


@dataclass(slots=True)
class Runner:
    """A broker that runs, and how to load it."""

    name: str
    pid: int
    port: int
    connect: Connect
    results: dict[str, list[float]] = field(default_factory=dict)
    #: Microseconds that each event took.
    took: list[float] = field(default_factory=list)


def _wait_port(port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"nobody listens on port {port}")


def _start(stack: ExitStack, name: str, command: list[str], port: int, connect: Connect) -> Runner:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    _wait_port(port)
    return Runner(name, process.pid, port, connect)


def start_all(stack: ExitStack, directory: Path) -> list[Runner]:
    """Veena, and those of the others that are installed."""
    veena = stack.enter_context(RunningBroker())
    host = "127.0.0.1"
    runners = [
        Runner(
            "veena",
            veena.pid,
            veena.port,
            lambda port, count, reliable: broker_client.load(host, port, count, SIZE, reliable, TOPIC),
        )
    ]
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    mosquitto, server = shutil.which("mosquitto", path=path), shutil.which("nats-server", path=path)
    if mosquitto:
        port = free_port()
        config = directory / "mosquitto.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n"
            "max_inflight_messages 0\nset_tcp_nodelay true\nlog_type error\n"
        )
        runners.append(_start(stack, "mosquitto", [mosquitto, "-c", str(config)], port, mqtt))
    if server:
        port = free_port()
        config = directory / "nats.conf"
        config.write_text(f'host: "127.0.0.1"\nport: {port}\nwrite_deadline: "60s"\nping_interval: "10m"\n')
        runners.append(_start(stack, "nats-server", [server, "-c", str(config)], port, nats))
    return runners


# --- the race ---

WORK = ("idle MiB", "1 -> 1", "1 -> 100", "reliable 1 -> 1", "p50 us", "p99 us")
#: Turns of a second, one broker after the other, in which a run takes latencies.
TURNS = 5
#: Figure, other broker, and what the ratio to it must be: at least, or (below 0) at most.
BARS = (
    ("1 -> 1", "mosquitto", 2.0),
    ("1 -> 100", "nats-server", 1.0),
    ("reliable 1 -> 1", "mosquitto", 0.5),
    ("p50 us", "mosquitto", -1.5),
    ("p99 us", "mosquitto", -3.0),
)


def race(runners: list[Runner], seconds: float, repeat: int) -> None:
    for runner in runners:
        runner.results["idle MiB"] = [memory_mib(runner.pid)]
    for _ in range(repeat):
        for runner in runners:
            _closed(runner, "1 -> 1", 1, False, seconds, 20_000)
        for runner in runners:
            _closed(runner, "1 -> 100", 100, False, seconds, 20_000)
        for runner in runners:
            if runner.name != "nats-server":
                _closed(runner, "reliable 1 -> 1", 1, True, seconds, 2_000)
        for runner in runners * TURNS:
            load = runner.connect(runner.port, 1, False)
            with apart(runner.pid):
                runner.took += load.paced(1000, 1000, 200)
            load.close()
    for runner in runners:
        for percent in (50, 99):
            runner.results[f"p{percent} us"] = [percentile(runner.took, percent)]


@contextmanager
def apart(pid: int) -> Iterator[None]:
    """This process on one processor and that one on another, where there are two and the system lets us choose."""
    if not hasattr(os, "sched_setaffinity") or len(every := sorted(os.sched_getaffinity(0))) < 2:
        yield
        return
    threads = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    for place, tasks in ((every[0], [0]), (every[1], threads)):
        for task in tasks:
            os.sched_setaffinity(task, {place})
    try:
        yield
    finally:
        for task in (0, *threads):
            os.sched_setaffinity(task, every)


def _closed(runner: Runner, what: str, receivers: int, reliable: bool, seconds: float, window: int) -> None:
    load = runner.connect(runner.port, receivers, reliable)
    rate = load.closed_loop(seconds, window, max(20, 2000 // receivers), deliveries=window)
    load.close()
    runner.results.setdefault(what, []).append(rate.per_second)


def best(runner: Runner, what: str) -> float | None:
    found = runner.results.get(what)
    return None if not found else min(found) if what.endswith((" us", "MiB")) else max(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a ratio misses its bar")
    parser.add_argument("--realtime", action="store_true")
    arguments = parser.parse_args()
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runners = start_all(stack, directory)
        race(runners, arguments.seconds, arguments.repeat)
    if arguments.json:
        print(json.dumps({runner.name: {what: best(runner, what) for what in WORK} for runner in runners}))
    else:
        print(f"{'':16}" + "".join(f"{runner.name:>14}" for runner in runners))
        for what in WORK:
            cells = [best(runner, what) for runner in runners]
            print(f"{what:16}" + "".join(f"{'-' if cell is None else format(cell, ',.0f'):>14}" for cell in cells))
    missed = 0
    by_name = {runner.name: runner for runner in runners}
    for what, other, bar in BARS:
        mine, theirs = best(runners[0], what), best(by_name[other], what) if other in by_name else None
        if mine is None or theirs is None:
            continue
        ratio = mine / theirs
        is_met = ratio >= bar if bar > 0 else ratio <= -bar
        missed += not is_met
        if not arguments.json:
            asked = f"at least {bar:g}" if bar > 0 else f"at most {-bar:g}"
            print(f"{what}: {ratio:.2f} x {other} ({asked}{'' if is_met else ': MISSED'})")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
