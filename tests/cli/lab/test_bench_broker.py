"""The load that brokers are measured with: it must notice what is missing, doubled or out of order."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from veena import matching
from veena.bench.load import content, sampling
from veena.bench.load.generator import NUMBER, Load, Make, Receiver, body, everything, numbered, percentile
from veena.bench.load.rows import Figures
from veena.bench.load.scan import closure
from veena.core.wire.event import EventCodec
from veena.event import Event, EventId

SIZE = 40


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


def _receiver(due: NDArray[np.int64], pool: int) -> tuple[Receiver, socket.socket]:
    near, far = _pair()
    return Receiver(near, due, pool), far


def _make(pool: int = 1) -> Make:
    messages = [b"head%02d" % number + body(SIZE - 6) for number in range(pool)]
    return numbered(messages, SIZE - NUMBER.itemsize)


def test_messages_are_numbered_and_checked_however_reads_are_cut() -> None:
    make = _make()
    receiver, far = _receiver(everything(1), 1)
    with receiver.socket, far:
        data = b"a greeting" + make(0, 500) + b"noise" + make(500, 12)
        counts = [receiver.take(data[at : at + 1000]) for at in range(0, len(data), 1000)]
        assert sum(counts) == receiver.got == 512


def test_each_receiver_gets_what_is_due_to_it_of_a_pool() -> None:
    make = _make(4)
    receiver, far = _receiver(np.array([1, 1, 3]), 4)
    with receiver.socket, far:
        assert receiver.take(b"".join(make(number, 1) for number in (1, 1, 3, 5, 5, 7, 9))) == 7
        with pytest.raises(RuntimeError, match="message 11 came where 9 was expected"):
            receiver.take(make(11, 1))


@pytest.mark.parametrize("numbers", [(0, 2), (0, 0), (1, 0)])
def test_what_is_missing_doubled_or_out_of_order_is_noticed(numbers: tuple[int, int]) -> None:
    make = _make()
    receiver, far = _receiver(everything(1), 1)
    with receiver.socket, far, pytest.raises(RuntimeError, match="was expected"):
        receiver.take(b"".join(make(number, 1) for number in numbers))


def test_a_broker_that_hangs_up_fails_the_run() -> None:
    receiver, far = _receiver(everything(1), 1)
    publisher, sink = _pair()
    far.close()
    with publisher, sink, receiver.socket, pytest.raises(RuntimeError, match="closed a connection"):
        Load(publisher, _make(), [receiver]).closed_loop(0.1, 10)


@pytest.mark.parametrize("name", ["selector", "selectors-1000", "tags", "xpath"])
def test_what_is_due_is_what_the_constraints_say(name: str) -> None:
    """The numbers that were drawn and the engines agree, for some clients and events."""
    row = content.ROWS[name]()
    for number in (0, len(row.wants) - 1):
        for (kind, constraint), due in zip(row.wants[number][:4], row.matching[number][:4], strict=True):
            engine = matching.create(kind)
            engine.add(0, constraint, 1)
            found = [at for at, event in enumerate(row.events[:600]) if engine.match(event)]
            assert found == [at for at in due.tolist() if at < 600]
    sizes = {len(_frame(event)) for event in row.events[:600]}
    assert len(sizes) == 1


def test_foreign_constraints_match_no_event() -> None:
    events = [event for make in content.ROWS.values() for event in make().events[:20]]
    for kind in content.FOREIGN_KINDS:
        engine = matching.create(kind)
        for number, (_, constraint) in enumerate(content.foreign(kind, 50)):
            engine.add(number, constraint, 1)
        assert not any(engine.match(event) for event in events)


def test_a_scan_says_what_an_engine_says() -> None:
    row = content.selectors(40)
    codec = EventCodec(4, 32)
    ((kind, constraint), *_), (due, *_) = row.wants[0], row.matching[0]
    test = closure(kind, constraint)
    frames = [codec.read(_frame(event)) for event in row.events[:600]]
    assert [at for at, frame in enumerate(frames) if test(frame)] == [at for at in due.tolist() if at < 600]


def _frame(event: Event) -> bytes:
    return EventCodec(4, 32).encode_event(replace(event, event_id=EventId("p", 1, 1, 0)), 0, origin=(0, 0, 0, 0))


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


def test_rows_of_events_that_differ_are_measured_beside_equal_headers() -> None:
    arguments = ["bench", "broker", "--row", "selectors-1000", "--subscribing", "1000", "--seconds", "0.1", "--json"]
    command = [sys.executable, "-m", "veena.cli", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    base, found, *subscribed = [json.loads(line) for line in result.stdout.splitlines()]
    assert (base["row"], base["to_alike"], base["reliable_to_alike"]) == ("alike", 1.0, 1.0)
    assert (found["row"], found["constraints"], found["fault"]) == ("selectors-1000", 1000, "")
    assert min(found["per_second"], found["to_alike"], found["reliable_per_second"], found["cpu_us"]) > 0
    assert [each["subscribing"] for each in subscribed] == ["topic", "selector", "tags", "xpath"]
    assert all(each["count"] == 1000 and each["per_second"] > 0 for each in subscribed)


@pytest.mark.slow
def test_rows_are_measured_with_foreign_constraints() -> None:
    arguments = ["bench", "broker", "--row", "varying", "--foreign", "20", "--profile", "--seconds", "0.2", "--json"]
    command = [sys.executable, "-m", "veena.cli", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["row"], each["foreign"]) for each in found] == [
        ("alike", 0),
        ("varying", 0),
        ("alike", 20),
        ("varying", 20),
    ]
    assert all(each["to_alone"] > 0 for each in found[2:])
    rooms = {room for room, _, _ in found[1]["profile"]}
    assert "core/wire" in rooms and sum(share for _, _, share in found[1]["profile"]) > 0.5


def test_functions_are_told_by_room() -> None:
    assert sampling.room_of("/x/src/veena/core/wire/burst.py") == "core/wire"
    assert sampling.room_of("/x/veena/event.py") == "event.py"
    assert sampling.room_of("/usr/lib/python3.11/asyncio/events.py") == sampling.OUTSIDE
    file = Figures("r", "about", 1, 1.0, cpu_us=10.0, profile=[("a", "f", 0.5), ("b", "g", 0.3), ("a", "h", 0.1)])
    assert [(room, round(us, 6), names) for room, us, names in file.rooms()] == [
        ("a", 6.0, ["f", "h"]),
        ("b", 3.0, ["g"]),
    ]


@pytest.mark.slow
def test_one_client_in_python_is_measured() -> None:
    """Each way to publish, with equal events and with varying ones: the client's own CPU is told apart."""
    command = [sys.executable, "-m", "veena.cli", "bench", "broker", "--client", "--seconds", "0.1", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert {each["events"] for each in found} == {"alike", "varying"}
    assert len({each["client"] for each in found}) == 5
    assert all(each["per_second"] > 0 and each["cpu_us"] > 0 for each in found)


def test_a_row_that_is_not_there_is_named() -> None:
    command = [sys.executable, "-m", "veena.cli", "bench", "broker", "--row", "nothing"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 2
    assert "--row 'nothing': expected one of alike" in result.stderr


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
