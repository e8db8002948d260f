"""Veena beside nats-server, mosquitto and ActiveMQ: the same load, in the same minutes, as ratios.

    python benchmarks/peers_race.py [--row NAME ...] [--seconds 2] [--repeat 3] [--json] [--check] [--realtime]

Brokers whose programs are not on the PATH are left out (Debian: apt-get install nats-server mosquitto activemq). All
run on 127.0.0.1 as they come, without persistence and with TCP_NODELAY; bodies have 100 bytes. The rows are those of
`veena bench broker --row`: one load, one seed, the same values. What a protocol cannot say is left out: NATS and MQTT
carry properties (headers, user properties) but select nothing by them; ActiveMQ selects over STOMP, where a header is a
text, so that ranges of prices are put as ranges of JMSExpiration, and it delivers an event once for each selector that
matches. Reliable is synced at Veena, QoS 1 with every message acknowledged at mosquitto; the others have no equal here.

Rates are closed loops, each the best of `--repeat` runs taken in turns, so that what else the machine does hits all of
them. The load has the first processor and the broker, whichever it is, the last one. The latency is that of 1,000
events a second, from the send to the read: p50 and p99 of all events of all turns together. On a shared machine one and
the same broker's median moves by half from second to second, so the least of a few medians would tell who had the
luckiest one.

`--realtime` runs broker and load before everything else on the machine (needs the right to do so).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veena.bench.load.broker import RELIABLE_WINDOW, WINDOW, RunningBroker, free_port, memory_mib
from veena.bench.load.client import Crowd
from veena.bench.load.content import BODY, ROWS, TOPIC, Row, Want
from veena.bench.load.generator import NUMBER, TAIL, Load, Make, Receiver, body, everything, numbered, percentile
from veena.bench.load.processors import load_apart, starting_on
from veena.bench.load.rows import DELIVERIES, WARM
from veena.bench.progress import progress
from veena.event import Event

HOST = "127.0.0.1"
START_S = 60.0
#: Topics of one SUBSCRIBE.
TOPICS_AT_ONCE = 50


def _connected(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), START_S)


def _exactly(found: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = found.recv(size - len(data))
        assert more, "the broker has closed the connection"
        data += more
    return data


def _until(found: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        more = found.recv(65536)
        assert more, f"the broker has closed the connection: {data[-200:]!r}"
        data += more
    return data


def _texts(event: Event) -> dict[str, str]:
    """Properties and tags as protocols have them that only know text, in one width."""
    found = {name: f"{value:08.4f}" if isinstance(value, float) else str(value) for name, value in _pairs(event)}
    return {name: f"{text:>05}" if name == "qty" else text for name, text in found.items()}


def _pairs(event: Event) -> list[tuple[str, object]]:
    return [*event.properties.items(), *event.tag_values.items()]


class Attached(ABC):
    """The clients of a row at one broker."""

    @abstractmethod
    def load(self, reliable: bool) -> Load: ...

    @abstractmethod
    def close(self) -> None: ...


class Sockets(Attached):
    """Subscribers over plain sockets; a subclass speaks its protocol."""

    def __init__(self, port: int, row: Row, reliable: bool) -> None:
        self.port, self.row = port, row
        self.readers = [self.subscribed(number, wants, reliable) for number, wants in enumerate(row.wants)]

    @abstractmethod
    def subscribed(self, number: int, wants: list[Want], reliable: bool) -> socket.socket: ...

    @abstractmethod
    def publisher(self, reliable: bool) -> tuple[socket.socket, Make]: ...

    #: Whether an event comes once, however many subscriptions of a client match it.
    once = True

    def answer(self, reliable: bool) -> Callable[[NDArray[np.uint8], NDArray[np.int64]], bytes] | None:
        return None

    def load(self, reliable: bool) -> Load:
        found, make = self.publisher(reliable)
        pool, answer = len(self.row.events), self.answer(reliable)
        due = [self.row.due(number, self.once) for number in range(len(self.readers))]
        receivers = [Receiver(each, due[at], pool, answer) for at, each in enumerate(self.readers)]
        return Load(found, make, receivers)

    def close(self) -> None:
        for each in self.readers:
            each.close()


class Veena(Attached):
    def __init__(self, port: int, row: Row, reliable: bool) -> None:
        self._crowd = Crowd(HOST, port, row)

    def load(self, reliable: bool) -> Load:
        return self._crowd.load(reliable)

    def close(self) -> None:
        self._crowd.close()


# --- MQTT: 3.1.1, or 5 where events have properties ---


class Mqtt(Sockets):
    """QoS 0, or QoS 1 with every message acknowledged by its receivers."""

    def __init__(self, port: int, row: Row, reliable: bool) -> None:
        self._five = any(_pairs(event) for event in row.events[:1])
        super().__init__(port, row, reliable)

    def _connect(self, name: str) -> socket.socket:
        found = _connected(self.port)
        content = b"\x00\x04MQTT" + (b"\x05" if self._five else b"\x04") + b"\x02\x00\x3c"
        content += (b"\x00" if self._five else b"") + _text(name)
        found.sendall(b"\x10" + _varint(len(content)) + content)
        kind, size = _exactly(found, 2)
        assert kind == 0x20 and _exactly(found, size)[1] == 0, "mosquitto refused the connection"
        return found

    def subscribed(self, number: int, wants: list[Want], reliable: bool) -> socket.socket:
        found = self._connect(f"reader-{number}-{reliable}")
        for at in range(0, len(wants), TOPICS_AT_ONCE):
            content = struct.pack(">H", 1 + at) + (b"\x00" if self._five else b"")
            for _, topic in wants[at : at + TOPICS_AT_ONCE]:
                content += _text(str(topic)) + bytes((int(reliable),))
            found.sendall(b"\x82" + _varint(len(content)) + content)
            kind, size = _exactly(found, 2)
            assert kind == 0x90 and max(_exactly(found, size)[2:]) == int(reliable), "mosquitto refused a subscription"
        return found

    def publisher(self, reliable: bool) -> tuple[socket.socket, Make]:
        pool = [self._message(event, reliable) for event in self.row.events]
        size = len(pool[0])
        make = numbered(pool, size - NUMBER.itemsize)
        return self._connect(f"publisher-{reliable}"), _with_packet_ids(make, size, self._id_at) if reliable else make

    def _message(self, event: Event, reliable: bool) -> bytes:
        topic = _text(event.topic or TOPIC) + (b"\x00\x01" if reliable else b"")
        listed = b"".join(b"\x26" + _text(name) + _text(value) for name, value in _texts(event).items())
        properties = _varint(len(listed)) + listed if self._five else b""
        content = topic + properties + bytes(event.body)
        head = bytes((0x30 | int(reliable) << 1,)) + _varint(len(content))
        self._id_at = len(head) + len(topic) - 2
        #: How many bytes before its mark a message has its packet's id.
        self._id_before_mark = 2 + len(properties) + len(event.body) - TAIL
        return head + content

    def answer(self, reliable: bool) -> Callable[[NDArray[np.uint8], NDArray[np.int64]], bytes] | None:
        if not reliable:
            return None

        def answer(data: NDArray[np.uint8], marks: NDArray[np.int64]) -> bytes:
            acks = np.empty((len(marks), 4), np.uint8)
            acks[:, 0], acks[:, 1] = 0x40, 2
            acks[:, 2], acks[:, 3] = data[marks - self._id_before_mark], data[marks - self._id_before_mark + 1]
            return acks.tobytes()

        return answer


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _varint(number: int) -> bytes:
    data = b""
    while True:
        number, digit = divmod(number, 128)
        data += bytes((digit | (128 if number else 0),))
        if not number:
            return data


def _with_packet_ids(make: Make, size: int, at: int) -> Make:
    def make_with_ids(first: int, count: int) -> bytes:
        rows = np.frombuffer(bytearray(make(first, count)), np.uint8).reshape(count, size)
        ids = (np.arange(first, first + count) % 65535 + 1).astype(">u2")
        rows[:, at : at + 2] = ids.view(np.uint8).reshape(count, 2)
        return rows.tobytes()

    return make_with_ids


# --- NATS ---


class Nats(Sockets):
    def _connect(self) -> socket.socket:
        found = _connected(self.port)
        _until(found, b"\r\n")
        found.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nPING\r\n')
        _until(found, b"PONG\r\n")
        return found

    def subscribed(self, number: int, wants: list[Want], reliable: bool) -> socket.socket:
        found = self._connect()
        found.sendall(b"".join(f"SUB {topic} {at}\r\n".encode() for at, (_, topic) in enumerate(wants)) + b"PING\r\n")
        _until(found, b"PONG\r\n")
        return found

    def publisher(self, reliable: bool) -> tuple[socket.socket, Make]:
        pool = [self._message(event) for event in self.row.events]
        return self._connect(), numbered(pool, len(pool[0]) - 2 - NUMBER.itemsize)

    @staticmethod
    def _message(event: Event) -> bytes:
        texts = _texts(event)
        if not texts:
            return f"PUB {event.topic} {BODY}\r\n".encode() + bytes(event.body) + b"\r\n"
        listed = "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in texts.items()) + "\r\n"
        head = f"HPUB {event.topic} {len(listed)} {len(listed) + BODY}\r\n{listed}"
        return head.encode() + bytes(event.body) + b"\r\n"


# --- STOMP, with JMS selectors ---

#: What prices are put on: times far from now, in milliseconds.
EXPIRES = 4_000_000_000_000


class Stomp(Sockets):
    once = False

    def _connect(self) -> socket.socket:
        found = _connected(self.port)
        found.sendall(b"CONNECT\naccept-version:1.1\nhost:/\nheart-beat:0,0\n\n\0")
        assert b"CONNECTED" in _until(found, b"\0")
        return found

    def subscribed(self, number: int, wants: list[Want], reliable: bool) -> socket.socket:
        found = self._connect()
        frames = []
        for at, (kind, constraint) in enumerate(wants):
            lines = [f"id:{at}", "ack:auto", "activemq.prefetchSize:1000"]
            if kind == "topic":
                lines.append(f"destination:/topic/{constraint}")
            else:
                lines += [f"destination:/topic/{TOPIC}", f"selector:{_jms(kind, constraint)}"]
            lines += ["receipt:all"] if at == len(wants) - 1 else []
            frames.append("SUBSCRIBE\n" + "\n".join(lines) + "\n\n\0")
        found.sendall("".join(frames).encode())
        assert b"RECEIPT" in _until(found, b"receipt-id:all"), "ActiveMQ refused a subscription"
        return found

    def publisher(self, reliable: bool) -> tuple[socket.socket, Make]:
        pool = [self._message(event) for event in self.row.events]
        return self._connect(), numbered(pool, len(pool[0]) - 1 - NUMBER.itemsize)

    @staticmethod
    def _message(event: Event) -> bytes:
        texts = _texts(event)
        if "price" in texts:
            texts["expires"] = str(_expires(str(texts["price"])))
        lines = [f"destination:/topic/{event.topic or TOPIC}", f"content-length:{BODY}"]
        lines += [f"{name}:{value}" for name, value in texts.items()]
        return ("SEND\n" + "\n".join(lines) + "\n\n").encode() + bytes(event.body) + b"\0"


def _expires(price: str) -> int:
    return EXPIRES + round(float(price) * 10_000)


def _jms(kind: str, constraint: object) -> str:
    """A constraint of a row as a selector over texts."""
    if kind == "tags":
        pairs = [pair.split("=") for pair in str(constraint).split(",")]
        return " AND ".join(f"{name} = '{value}'" for name, value in pairs if value != "*")
    assert isinstance(constraint, tuple)
    words = str(constraint[1]).split()
    if words[0] != "price":
        return f"{words[0]} = {words[2]}" if words[2].startswith("'") else f"{words[0]} = '{words[2]}'"
    if words[1] == "<":
        return f"JMSExpiration < {_expires(words[2])}"
    return f"JMSExpiration BETWEEN {_expires(words[2])} AND {_expires(words[4])}"


# --- the brokers ---


@dataclass(slots=True)
class Runner:
    """A broker that runs, how to load it, and with which rows."""

    name: str
    pid: int
    port: int
    attach: Callable[[int, Row, bool], Attached]
    rows: tuple[str, ...]
    is_reliable: bool
    results: dict[str, list[float]] = field(default_factory=dict)
    #: Microseconds that each event took.
    took: list[float] = field(default_factory=list)


FAN_OUT = "1 -> 100"
PLAIN = ("alike", FAN_OUT, "topics", "varying")
SELECTING = (*PLAIN, "selector", "selectors-1000", "tags", "selectors-10000")

ACTIVEMQ = """<beans xmlns="http://www.springframework.org/schema/beans"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://www.springframework.org/schema/beans
  http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
 <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="localhost" persistent="false"
  advisorySupport="false" dataDirectory="{directory}/data">
  <destinationPolicy><policyMap><policyEntries>
   <policyEntry topic="&gt;" producerFlowControl="true" memoryLimit="64mb"/>
  </policyEntries></policyMap></destinationPolicy>
  <transportConnectors>
   <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}?transport.tcpNoDelay=true"/>
  </transportConnectors>
 </broker></beans>
"""
ACTIVEMQ_HOME = Path("/usr/share/activemq")


def _start(stack: ExitStack, name: str, command: list[str], port: int) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return process.pid
        time.sleep(0.05)
    raise RuntimeError(f"{name} does not listen on port {port}")


def start_all(stack: ExitStack, directory: Path, processor: int | None) -> list[Runner]:
    """Veena, and those of the others that are installed."""
    veena = stack.enter_context(RunningBroker(processor=processor))
    runners = [Runner("veena", veena.pid, veena.port, Veena, (*SELECTING, "xpath"), is_reliable=True)]
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    mosquitto, server, java = (shutil.which(name, path=path) for name in ("mosquitto", "nats-server", "java"))
    with starting_on(processor):
        if server:
            port, config = free_port(), directory / "nats.conf"
            config.write_text(f'host: "127.0.0.1"\nport: {port}\nwrite_deadline: "60s"\nping_interval: "10m"\n')
            pid = _start(stack, "nats-server", [server, "-c", str(config)], port)
            runners.append(Runner("nats-server", pid, port, Nats, PLAIN, is_reliable=False))
        if mosquitto:
            port, config = free_port(), directory / "mosquitto.conf"
            config.write_text(
                f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n"
                "max_inflight_messages 0\nset_tcp_nodelay true\nlog_type error\n"
            )
            pid = _start(stack, "mosquitto", [mosquitto, "-c", str(config)], port)
            runners.append(Runner("mosquitto", pid, port, Mqtt, PLAIN, is_reliable=True))
        if java and (ACTIVEMQ_HOME / "bin/activemq.jar").exists():
            port, config = free_port(), directory / "activemq.xml"
            config.write_text(ACTIVEMQ.format(directory=directory, port=port))
            places = {"home": ACTIVEMQ_HOME, "base": directory, "conf": directory, "data": directory / "data"}
            command = [java, "-Xms512M", "-Xmx3G", *(f"-Dactivemq.{name}={place}" for name, place in places.items())]
            command += ["-jar", str(ACTIVEMQ_HOME / "bin/activemq.jar"), "start", f"xbean:file:{config}"]
            pid = _start(stack, "activemq", command, port)
            runners.append(Runner("activemq", pid, port, Stomp, SELECTING, is_reliable=False))
    return runners


# --- the race ---

#: Turns of a second, one broker after the other, in which a run takes latencies.
TURNS = 5
#: Figure, other broker, and what the ratio to it must be: at least, or (below 0) at most.
BARS = (
    ("alike", "mosquitto", 2.0),
    (FAN_OUT, "nats-server", 1.0),
    ("alike, reliable", "mosquitto", 0.5),
    ("selectors-10000", "activemq", 15.0),
    ("p50 us", "mosquitto", -1.5),
    ("p99 us", "mosquitto", -3.0),
)


def fan_out() -> Row:
    """Equal headers to a hundred receivers."""
    events = [Event(topic=TOPIC, body=body(BODY))]
    wants: list[list[Want]] = [[("topic", TOPIC)] for _ in range(100)]
    return Row(FAN_OUT, "equal headers to a hundred receivers", events, wants, [[everything(1)] for _ in wants])


def race(runners: list[Runner], rows: Sequence[Row], seconds: float, repeat: int, say: Callable[[str], None]) -> None:
    for runner in runners:
        runner.results["idle MiB"] = [memory_mib(runner.pid)]
    for row in rows:
        for reliable in (False, True) if row.name != FAN_OUT else (False,):
            _row(runners, row, reliable, seconds, repeat, say)
    alike = ROWS["alike"]()
    for runner in runners * TURNS * repeat:
        say(f"latency: {runner.name}")
        attached = runner.attach(runner.port, alike, False)
        load = attached.load(False)
        runner.took += load.paced(1000, 1000, 200)
        load.close()
    for runner in runners:
        for percent in (50, 99):
            runner.results[f"p{percent} us"] = [percentile(runner.took, percent)]


def _row(
    runners: list[Runner], row: Row, reliable: bool, seconds: float, repeat: int, say: Callable[[str], None]
) -> None:
    """One row at every broker that knows it, in turns."""
    name = f"{row.name}, reliable" if reliable else row.name
    attached: list[tuple[Runner, Attached, Load]] = []
    for runner in runners:
        if row.name in runner.rows and (runner.is_reliable or not reliable):
            say(f"{name}: {row.constraints:,} subscriptions at {runner.name}")
            try:
                there = runner.attach(runner.port, row, reliable)
            except (RuntimeError, OSError) as error:
                print(f"{name} at {runner.name}: not measured: {error}", file=sys.stderr)
            else:
                attached.append((runner, there, there.load(reliable)))
    for _ in range(repeat):
        for runner, _, load in attached:
            say(f"{name}: {runner.name}")
            window = RELIABLE_WINDOW if reliable else WINDOW
            deliveries = window if row.name == FAN_OUT else DELIVERIES
            warm = load.done + min(WARM, 20 if row.constraints >= 10_000 else WARM)
            try:
                rate = load.closed_loop(seconds, window, warm, deliveries)
            except (RuntimeError, OSError) as error:
                print(f"{name} at {runner.name}: not measured: {error}", file=sys.stderr)
                continue
            count = rate.per_second if row.name == FAN_OUT else rate.events_per_second
            runner.results.setdefault(name, []).append(count)
    for _, there, load in attached:
        load.close()
        there.close()


def best(runner: Runner, what: str) -> float | None:
    found = runner.results.get(what)
    return None if not found else min(found) if what.endswith((" us", "MiB")) else max(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {FAN_OUT: fan_out, **ROWS}
    parser.add_argument("--row", action="append", choices=known, help="again for more; all without it")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a ratio misses its bar")
    parser.add_argument("--realtime", action="store_true")
    arguments = parser.parse_args()
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    chosen = [known[name]() for name in (arguments.row or ["alike", FAN_OUT, *list(ROWS)[1:]])]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processor = stack.enter_context(load_apart())
        runners = start_all(stack, directory, processor)
        race(runners, chosen, arguments.seconds, arguments.repeat, stack.enter_context(progress()))
    names = list(dict.fromkeys(what for runner in runners for what in runner.results))
    if arguments.json:
        print(json.dumps({runner.name: {what: best(runner, what) for what in names} for runner in runners}))
    else:
        print(f"{'':28}" + "".join(f"{runner.name:>14}" for runner in runners))
        for what in sorted(names, key=lambda what: what.endswith("reliable")):
            cells = [best(runner, what) for runner in runners]
            print(f"{what:28}" + "".join(f"{'-' if cell is None else format(cell, ',.0f'):>14}" for cell in cells))
    return 1 if _missed(runners, arguments.json) and arguments.check else 0


def _missed(runners: list[Runner], is_quiet: bool) -> int:
    """How many ratios miss their bars."""
    missed = 0
    by_name = {runner.name: runner for runner in runners}
    for what, other, bar in BARS:
        mine, theirs = best(runners[0], what), best(by_name[other], what) if other in by_name else None
        if mine is None or theirs is None:
            continue
        ratio = mine / theirs
        is_met = ratio >= bar if bar > 0 else ratio <= -bar
        missed += not is_met
        if not is_quiet:
            asked = f"at least {bar:g}" if bar > 0 else f"at most {-bar:g}"
            print(f"{what}: {ratio:.2f} x {other} ({asked}{'' if is_met else ': MISSED'})")
    return missed


if __name__ == "__main__":
    sys.exit(main())
