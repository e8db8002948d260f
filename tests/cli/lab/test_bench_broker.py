"""The load that brokers are measured with: it must notice what is missing, doubled or out of order."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from veena.bench.load.generator import Load, Receiver, numbered, percentile

SIZE, AT = 24, 6


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


def _receiver() -> tuple[Receiver, socket.socket]:
    near, far = _pair()
    return Receiver(near, SIZE, AT), far


def test_messages_are_numbered_and_checked_however_reads_are_cut() -> None:
    make = numbered(b"head--" + bytes(SIZE - 6), AT)
    receiver, far = _receiver()
    with receiver.socket, far:
        data = make(0, 500) + make(500, 12)
        assert len(data) == 512 * SIZE
        counts = [receiver.take(data[at : at + 1000]) for at in range(0, len(data), 1000)]
        assert sum(counts) == receiver.got == 512


@pytest.mark.parametrize("numbers", [(0, 2), (0, 0), (1, 0)])
def test_what_is_missing_doubled_or_out_of_order_is_noticed(numbers: tuple[int, int]) -> None:
    make = numbered(b"head--" + bytes(SIZE - 6), AT)
    receiver, far = _receiver()
    with receiver.socket, far, pytest.raises(RuntimeError, match="was expected"):
        receiver.take(b"".join(make(number, 1) for number in numbers))


def test_a_broker_that_hangs_up_fails_the_run() -> None:
    receiver, far = _receiver()
    publisher, sink = _pair()
    far.close()
    with publisher, sink, receiver.socket, pytest.raises(RuntimeError, match="closed a connection"):
        Load(publisher, numbered(bytes(SIZE), AT), [receiver]).closed_loop(0.1, 10)


def test_percentiles() -> None:
    assert percentile([float(each) for each in range(101)], 99) == 99.0


def test_a_broker_is_measured(tmp_path: Path) -> None:
    """`veena bench broker --json`: rates, latency and memory of a broker in a process of its own."""
    arguments = ["bench", "broker", "--seconds", "0.1", "--receivers", "3", "--subscriptions", "100", "--json"]
    command = [sys.executable, "-m", "veena.cli", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert {"idle_mib", "per_second", "fan_out_per_second", "reliable_per_second", "p50_us", "p99_us"} <= found.keys()
    assert found["fan_out"] == 3
    assert min(found["per_second"], found["reliable_per_second"], found["p50_us"], found["idle_mib"]) > 0


def test_a_network_is_measured_by_distance() -> None:
    """`veena bench network --json`: a line for every number of links between publisher and receiver."""
    arguments = ["bench", "network", "--brokers", "3", "--seconds", "0.1", "--json"]
    result = subprocess.run(
        [sys.executable, "-m", "veena.cli", *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["links"] for each in found] == list(range(len(found)))
    assert len(found) >= 2
    assert found[0]["publisher"] == found[0]["receiver"] != found[1]["receiver"]
    assert found[0]["rate_ratio"] == found[0]["p50_ratio"] == 1.0
    assert all(min(each["per_second"], each["reliable_per_second"], each["p50_us"]) > 0 for each in found)
