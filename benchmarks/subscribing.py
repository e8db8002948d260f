"""What a subscription costs a broker that has a hundred thousand, and whether anybody else notices.

    python benchmarks/subscribing.py [--only selectors tags xpaths] [--count N] [--json] [--check]

Each kind has a broker process of its own. Four clients subscribe, each with a window of subscriptions under way: the
selectors are ranges and equalities on one topic, the tag profiles name two to four tags, the XPaths test values of
elements. Beside them another client, a process of its own, publishes 1,000 events a second to itself, first on the idle
broker, then while the four subscribe; every hundredth of its events is of the kind that the others subscribe to.

Printed is for each thousand subscriptions what it took of the clock and of the broker's CPU; then the ratio of the last
thousand's CPU to the first one's, the broker's longest step, and the other client's p99, idle and under the load. What
the broker imports for the first of a kind counts for none. `--check` exits with 1 where the last thousand costs more
than three times the first, a step takes more than 50 ms, or (selectors and tags) fewer than 2,000 are made a second.
The p99 is printed only: it says something on a machine with a processor for each process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from veena.bench.progress import progress
from veena.bench.steps.stage import LEVELS, Peer, staged
from veena.core.wire.client import AskSubscribe, TellActive
from veena.core.wire.control import Frame, Heartbeat
from veena.core.wire.event import EventFrame
from veena.event import Event

CLIENTS = 4
#: Subscriptions between two signs of life, and how many of these are under way for each client.
CHUNK = 50
WINDOW = 4
THOUSAND = 1000
#: The other client's events: one a millisecond, and every so many-th one is of the measured kind.
PERIOD_S = 0.001
MEETS = 100
IDLE_S = 5.0
#: The bars.
MOST_GROWTH, MOST_STEP_MS, LEAST_A_SECOND = 3.0, 50.0, 2000.0
TICKS = os.sysconf("SC_CLK_TCK")

Made = tuple[str, object]


def selector(number: int, chance: random.Random) -> Made:
    """A range, an equality, or both, on one topic; no two are alike."""
    low = chance.randrange(100_000)
    width = 1 + chance.randrange(500)
    text = (
        f"price BETWEEN {low} AND {low + width} AND size > {number}",
        f"sym = 's{number}'",
        f"sym = 's{chance.randrange(5000)}' AND price > {low} AND size <= {number}",
    )[number % 3]
    return "selector", ["quotes", text]


def tags(number: int, chance: random.Random) -> Made:
    """Two to four tags, one of them perhaps with any value."""
    makes = f"Make=m{chance.randrange(300)},Model=x{number}"
    colour = ("", f",Color=c{chance.randrange(12)}", ",Color=*")[number % 3]
    return "tags", makes + colour + (f",Doors={number % 5}" if number % 2 else "")


def xpath(number: int, chance: random.Random) -> Made:
    """A value of an element, or of two of one parent."""
    text = (
        f"/order/item[price > {chance.randrange(100_000)}][sku = 's{number}']",
        f"/order/customer = 'c{number}'",
        f"//item[@code = '{number}']",
    )[number % 3]
    return "xpath", [text, {}]


@dataclass(frozen=True, slots=True)
class Kind:
    make: Callable[[int, random.Random], Made]
    count: int
    #: An event that the constraints are asked about and that none of them takes.
    event: Event
    least_a_second: float


KINDS = {
    "selectors": Kind(
        selector, 100_000, Event(topic="quotes", properties={"price": -1, "sym": "none", "size": 0}), LEAST_A_SECOND
    ),
    "tags": Kind(tags, 100_000, Event(tags="Make=none,Model=none,Color=none,Doors=9"), LEAST_A_SECOND),
    "xpaths": Kind(
        xpath, 10_000, Event(xml="<order><customer>none</customer><item code='none'><price>0</price></item></order>"), 0
    ),
}


@dataclass(slots=True)
class Found:
    kind: str
    count: int
    #: By thousand: seconds on the clock, and of the broker's CPU.
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    per_second: float = 0.0
    growth: float = 0.0
    longest_ms: float = 0.0
    step: str = ""
    over_limit: int = 0
    refused: list[str] = field(default_factory=list)
    active_s: float = 0.0
    idle_p99_ms: float = 0.0
    loaded_p99_ms: float = 0.0
    loaded_worst_ms: float = 0.0

    def faults(self) -> list[str]:
        found = list(self.refused)
        if self.growth > MOST_GROWTH:
            found.append(f"the last thousand costs {self.growth:.1f} x the first")
        if self.longest_ms > MOST_STEP_MS:
            found.append(f"a step of {self.longest_ms:.0f} ms")
        if self.per_second < KINDS[self.kind].least_a_second:
            found.append(f"{self.per_second:.0f} subscriptions a second")
        return found


# --- the other client ---


class Timed(Peer):
    """A client that knows how long its own events took."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.took: list[float] = []

    def _take(self, frame: Frame | EventFrame) -> None:
        if isinstance(frame, EventFrame):
            self.took.append(time.perf_counter() - float(frame.event().body))
        super()._take(frame)


async def publish_to_itself(url: str, kind: str) -> None:
    """Publish at a steady rate until standard input ends; a line on it asks for what the last events took."""
    peer = await Timed.dial(url)
    await peer.attach("other")
    peer.say(AskSubscribe(1, "topic", msgspec.msgpack.encode("mine")))
    await peer.quiet()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    pace = asyncio.create_task(_publish(peer, KINDS[kind].event))
    print("{}", flush=True)
    while (await lines.readline()).strip():
        took, peer.took = sorted(peer.took), []
        print(json.dumps({"p99": took[len(took) * 99 // 100] if took else 0.0, "worst": took[-1] if took else 0.0}))
        sys.stdout.flush()
    pace.cancel()


async def _publish(peer: Timed, meets: Event) -> None:
    number, due = 0, time.perf_counter()
    while True:
        number += 1
        due += PERIOD_S
        if number % MEETS == 0:
            peer.publish(meets)
        else:
            peer.publish(Event(topic="mine", body=repr(time.perf_counter()).encode()))
        await asyncio.sleep(max(due - time.perf_counter(), 0))


class Other:
    """The process of the other client."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str, kind: str) -> Other:
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--other", url, kind,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        return cls(process)

    async def took(self) -> dict[str, float]:
        """What its events took since this was asked last."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"took\n")
        answer: dict[str, float] = json.loads(await self._process.stdout.readline())
        return answer

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


# --- the four ---


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Count:
    """Subscriptions that were answered, and what each thousand of them took."""

    def __init__(self, pid: int, found: Found, say: Callable[[str], None]) -> None:
        self.answered = 0
        self._pid, self._found, self._say = pid, found, say
        self._at, self._cpu = time.perf_counter(), cpu_of(pid)

    def add(self, count: int) -> None:
        before = self.answered // THOUSAND
        self.answered += count
        if self.answered // THOUSAND > before:
            now, cpu = time.perf_counter(), cpu_of(self._pid)
            self._found.seconds.append(now - self._at)
            self._found.cpu.append(cpu - self._cpu)
            self._say(
                f"{self._found.kind} {self.answered:,} of {self._found.count:,}: {self._found.cpu[-1]:.2f} s of CPU"
                f" for the last thousand"
            )
            self._at, self._cpu = now, cpu


class Subscriber(Peer):
    """A client that counts what it is answered, and keeps none of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.echoes = self.active = 0

    def _take(self, frame: Frame | EventFrame) -> None:
        if isinstance(frame, Heartbeat):
            self.echoes += 1
        elif isinstance(frame, TellActive):
            self.active += frame.level == LEVELS
        else:
            super()._take(frame)


async def subscribe(peer: Subscriber, asked: list[AskSubscribe], count: Count) -> None:
    """Subscribe to all of these, with a window; each chunk ends with a heartbeat, which is answered in its order."""
    sent = done = 0
    chunks = [asked[first : first + CHUNK] for first in range(0, len(asked), CHUNK)]
    while done < len(chunks):
        while sent < len(chunks) and sent < done + WINDOW:
            peer.say(*chunks[sent], Heartbeat(1, 0))
            sent += 1
        await peer.until(lambda done=done: peer.echoes > done)  # type: ignore[misc]
        count.add(len(chunks[done]))
        done += 1


async def measure(kind: str, count: int, folder: Path, say: Callable[[str], None]) -> Found:
    found, known, chance = Found(kind, count), KINDS[kind], random.Random(1)
    asked: list[list[AskSubscribe]] = [[] for _ in range(CLIENTS)]
    for number in range(count):
        engine, constraint = known.make(number, chance)
        client = number % CLIENTS
        asked[client].append(AskSubscribe(len(asked[client]) + 1, engine, msgspec.msgpack.encode(constraint)))
    async with staged(folder) as stage:
        peers = [await Subscriber.dial(stage.url) for _ in range(CLIENTS)]
        for number, peer in enumerate(peers):
            await peer.attach(f"many/{number}")
        other = await Other.start(stage.url, kind)
        warm = await stage.client("warm")  # what the broker imports for the first of a kind is no cost of a thousand
        engine, constraint = known.make(count, chance)
        warm.say(AskSubscribe(1, engine, msgspec.msgpack.encode(constraint)))
        await warm.quiet()
        say(f"{kind} idle for {IDLE_S:g} s")
        await asyncio.sleep(IDLE_S)
        found.idle_p99_ms = 1000 * (await other.took())["p99"]
        await stage.tell("forget")
        counted, began = Count(stage.pid, found, say), time.perf_counter()
        await asyncio.gather(*(subscribe(*each, counted) for each in zip(peers, asked, strict=True)))
        found.per_second = count / (time.perf_counter() - began)
        took = await other.took()
        found.loaded_p99_ms, found.loaded_worst_ms = 1000 * took["p99"], 1000 * took["worst"]
        began = time.perf_counter()
        for peer, wanted in zip(peers, asked, strict=True):
            await peer.until(lambda peer=peer, wanted=wanted: peer.active + len(peer.refusals) >= len(wanted))  # type: ignore[misc]
        found.active_s = time.perf_counter() - began
        steps = await stage.tell("tell")
        found.longest_ms, found.step = 1000 * steps["longest_ever_s"], steps["longest_cause"]
        found.over_limit = steps["over_limit"]
        found.refused = list(dict.fromkeys(reason for peer in peers for reason in peer.refusals))[:3]
        await other.stop()
        for peer in peers:
            peer.close()
    first, last = found.cpu[0], found.cpu[-1]
    found.growth = last / first if first else 0.0
    return found


# --- telling ---


def show(found: list[Found]) -> None:
    console = Console()
    for each in found:
        table = Table("subscriptions", "a second", "broker's CPU, us each", title=each.kind)
        step = max(1, len(each.cpu) // 10)
        for at in sorted({*range(0, len(each.cpu), step), len(each.cpu) - 1}):
            per_second = f"{THOUSAND / each.seconds[at]:,.0f}"
            table.add_row(f"{(at + 1) * THOUSAND:,}", per_second, f"{each.cpu[at] * 1e6 / THOUSAND:,.0f}")
        console.print(table)
        console.print(
            f"{each.per_second:,.0f} a second; the last thousand costs {each.growth:.2f} x the first; all active"
            f" {each.active_s:.1f} s later\nlongest step {each.longest_ms:.1f} ms ({each.step}), {each.over_limit}"
            f" above 50 ms\nanother client's p99 {each.idle_p99_ms:.2f} ms idle, {each.loaded_p99_ms:.2f} ms meanwhile"
            f" (longest {each.loaded_worst_ms:.0f} ms)"
        )
        for fault in each.faults():
            console.print(f"[red]{fault}[/]")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--count", type=int, help="so many of each kind")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--other", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.other:
        asyncio.run(publish_to_itself(*given.other))
        return 0
    found: list[Found] = []
    with progress() as say, tempfile.TemporaryDirectory() as temporary:
        for kind in given.only:
            count = given.count or KINDS[kind].count
            found.append(asyncio.run(measure(kind, count, Path(temporary) / kind, say)))
    if given.as_json:
        print(json.dumps([asdict(each) for each in found]))
    else:
        show(found)
    return int(given.check and any(each.faults() for each in found))


if __name__ == "__main__":
    sys.exit(main())
