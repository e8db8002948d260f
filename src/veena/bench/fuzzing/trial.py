"""One door of a real broker: an attacker at it, then as much honest traffic, and an honest client beside both.

The honest client publishes a reliable event every few milliseconds and reads it again. Its waiting time counts from
when an event was due, so a broker that stands still is seen in all events of that time and not in one. Attacker and
honest client have one processor, the broker has the other, where there are two.

A trial is sound when the broker is the same process as before, its log has no traceback, every honest event has come
once, and the 99th percentile of the waiting time under attack is at most `MOST_TIMES` that under honest traffic.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from veena.bench.fuzzing.configuration import Outcome, fuzz_configurations
from veena.bench.fuzzing.sender import Sent, Task, send
from veena.client import Client, connect
from veena.event import Event
from veena.runtime.fleet.fleet import Fleet, Member
from veena.runtime.networks.file import parse_network

DOORS: Final = ("client", "websocket", "link", "link-unbounded", "http")
#: The door for links, of a broker that takes any number of short links: to try more frames. Nobody runs such a broker,
#: so nobody asks how long the honest client waits there.
UNBOUNDED: Final = "link-unbounded"
CONFIGURATION: Final = "configuration"
NETWORK: Final = """
[network]
name = "alone"
levels = 4
[[broker]]
address = "w.e.c.b"
listen = ["tcp://127.0.0.1:0", "ws://127.0.0.1:0"]
"""
NEIGHBOUR: Final = """
[[broker]]
address = "w.e.c.n"
[[link]]
between = ["w.e.c.n", "w.e.c.b"]
"""
ANY_LINKS: Final = "[links]\nshort_links_per_s = 1000000\n"
HTTP: Final = '[http]\nlisten = "127.0.0.1:{port}"\n'
PULSE_S: Final = 0.005
PATIENCE_S: Final = 30.0
#: How much longer the honest client may wait under attack than under honest traffic.
MOST_TIMES: Final = 3.0
#: What a log has when something was not foreseen.
ALARMS: Final = ("Traceback", "unforeseen", "quarantine")

Say = Callable[[str], None]


class Phase(msgspec.Struct):
    """One sender and what the honest client saw meanwhile."""

    sent: Sent
    events: int
    missing: int
    twice: int
    p50_ms: float
    p99_ms: float
    longest_ms: float


class Trial(msgspec.Struct):
    """A door, attacked and used."""

    door: str
    seconds: float
    attack: Phase
    honest: Phase
    #: Exit code of the broker, if it has ended.
    exit_code: int | None
    alarms: list[str]
    memory_mib: float

    @property
    def times(self) -> float:
        return self.attack.p99_ms / max(self.honest.p99_ms, 0.001)

    @property
    def is_slow(self) -> bool:
        """Whether the honest client waited longer than it may."""
        return self.door != UNBOUNDED and self.times > MOST_TIMES

    @property
    def is_sound(self) -> bool:
        """Whether nothing but speed was touched."""
        lost = sum(phase.missing + phase.twice for phase in (self.attack, self.honest))
        return self.exit_code is None and not self.alarms and not lost and self.attack.events > 0

    def as_dict(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "times": round(self.times, 2), "is_sound": self.is_sound}


class Pulse:
    """The honest client."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        self._waited: list[float] = []
        self._number = self._twice = 0

    def take(self, event: Event) -> None:
        if event.event_id is None or event.event_id.publisher != "honest-writer":
            return
        due = self._due.pop(int(bytes(event.body[:8]).hex(), 16), None)
        if due is None:
            self._twice += 1
        else:
            self._waited.append(time.monotonic() - due)

    async def beat(self, writer: Client, until: asyncio.Future[Any], patience_s: float = PATIENCE_S) -> None:
        """Publish at a steady pace until that is done, then wait for what has not come."""
        begin, count = time.monotonic(), 0
        while not until.done():
            due = begin + count * PULSE_S
            if (ahead := due - time.monotonic()) > 0:
                await asyncio.sleep(ahead)
            count += 1
            self._number += 1
            self._due[self._number] = due
            body = self._number.to_bytes(8, "big") + bytes(92)
            await writer.publish(topic="honest", properties={"n": self._number}, body=body, reliable=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self._due:
                    await asyncio.sleep(PULSE_S)

    def phase(self, sent: Sent) -> Phase:
        """What was seen since the last call."""
        waited = sorted(self._waited) or [0.0]
        found = Phase(
            sent, len(self._waited), len(self._due), self._twice,
            *(round(1000 * waited[min(len(waited) - 1, int(len(waited) * share))], 2) for share in (0.5, 0.99, 1.0)),
        )  # fmt: skip
        self._waited, self._due, self._twice = [], {}, 0
        return found


class Fuzzing:
    """All doors, one after the other, each with a broker of its own."""

    def __init__(
        self, directory: Path, corpus: Path, seconds: float, *, rate: float = 1000.0, seed: int = 1, say: Say = print
    ) -> None:
        self._directory, self._corpus = directory, corpus
        self._seconds, self._rate, self._seed = seconds, rate, seed
        self._say = say

    def configurations(self) -> Outcome:
        self._say("configurations")
        return fuzz_configurations(self._corpus / "configuration.txt", self._seed, self._seconds)

    async def door(self, door: str) -> Trial:
        """Attack one door, use it, judge."""
        kind = _kind(door)
        network = parse_network(NETWORK + (NEIGHBOUR if kind == "link" else ""))
        port = _free_port()
        settings = {"http": HTTP.format(port=port), UNBOUNDED: ANY_LINKS}.get(door, "")
        fleet = Fleet(network, self._directory / door, settings=settings)
        await fleet.start()
        try:
            broker = fleet.members[0]
            places = [("127.0.0.1", port)] if door == "http" else _places(kind, fleet)
            with _Processors(broker.pid):
                async with (
                    connect(broker.url, client_id="honest-writer") as writer,
                    connect(broker.url, client_id="honest-reader") as reader,
                ):
                    pulse = Pulse()
                    await reader.subscribe(topic="honest", on_event=pulse.take)
                    return await self._both(door, places, broker, writer, pulse)
        finally:
            await fleet.stop()

    async def _both(
        self, door: str, places: list[tuple[str, int]], broker: Member, writer: Client, pulse: Pulse
    ) -> Trial:
        kind = _kind(door)
        corpus = self._corpus / f"{kind}.txt"
        self._say(f"{door}: warming up")
        warm = Task(kind, places, min(2.0, self._seconds / 2), self._rate, 200.0)
        pulse.phase(await self._beside(warm, writer, pulse))
        self._say(f"{door}: attacked")
        task = Task(kind, places[:1], self._seconds, self._rate, seed=self._seed, corpus=str(corpus))
        sent = await self._beside(task, writer, pulse)
        attack = pulse.phase(sent)
        memory = _memory(broker.pid)
        self._say(f"{door}: used")
        rate, size = sent.frames / self._seconds, sent.bytes / max(1, sent.frames)
        honest = pulse.phase(await self._beside(Task(kind, places, self._seconds, rate, size), writer, pulse))
        ended = None if broker.process is None else broker.process.returncode
        text = broker.log.read_text(encoding="utf-8", errors="replace")
        alarms = [line for line in text.splitlines() if any(alarm in line for alarm in ALARMS)]
        return Trial(door, self._seconds, attack, honest, ended, alarms[:20], memory)

    async def _beside(self, task: Task, writer: Client, pulse: Pulse) -> Sent:
        sending = asyncio.create_task(send(task))
        try:
            await pulse.beat(writer, sending)
        finally:
            if not sending.done():
                sending.cancel()
        return await sending


def _kind(door: str) -> str:
    """Who attacks and uses it."""
    return "link" if door == UNBOUNDED else door


def _places(door: str, fleet: Fleet) -> list[tuple[str, int]]:
    """Where the door is; behind it, for a link, where honest clients of the neighbour are."""
    wanted = "ws://" if door == "websocket" else "tcp://"
    urls = [next(url for url in fleet.members[0].entry.listen if url.startswith(wanted))]
    return [_place(url) for url in (*urls, *(member.url for member in fleet.members[1:]))]


def _place(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].rstrip("/").rpartition(":")
    return host, int(port)


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


class _Processors:
    """The broker on one processor, this process and its senders on another; all as before when it is over."""

    def __init__(self, pid: int) -> None:
        self._every = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        self._pid = pid

    def __enter__(self) -> None:
        if len(self._every) > 1:
            for task in Path(f"/proc/{self._pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {self._every[0]})
            os.sched_setaffinity(0, {self._every[1]})

    def __exit__(self, *error: object) -> None:
        if len(self._every) > 1:
            os.sched_setaffinity(0, set(self._every))


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), 1)
