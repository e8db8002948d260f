"""The papers' main experiment, live: latency and throughput over match rate, publish rate and size (EXP-01..19).

22 brokers, a process each; one publisher at 22, one measuring subscriber at 10, five subscribers at each of the other
20, so 102 clients. In the second topology there are three measuring subscribers, 4, 2 and 1 brokers away, and five
subscribers at every broker (EXP-18). Publisher and measuring subscribers live in this process and share its monotonic
clock (EXP-03): the event's timestamp is that clock's, so no drift and no step of the wall clock is measured. The other
subscribers are a process of their own (`crowd`); every delivery to them is counted, none is timed.

Events are best effort, as the papers' were: nothing waits for a disk. All brokers and clients run on one machine; the
papers had one for each broker, so what saturates here is the machine, there it was a broker.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from veena.bench.latency import cells as cells_
from veena.bench.latency.cells import MATCH_RATES, Cell, Latency, Tally, judge, summed
from veena.bench.manned_fleet import MannedFleet, Say
from veena.client import Client
from veena.client.subscription import Subscription
from veena.core.wire.event import EventCodec
from veena.errors import ConfigError, VeenaError
from veena.runtime.networks.file import Network

#: Subscribers that are not measured, at each broker that has any.
CROWD = 5
#: Where the papers put them, by the last part of a broker's label.
PUBLISHER = "22"
MEASURING = {"ges-22": ("10",), "ges-22-linked": ("10", "1", "22")}
#: How long nothing may come before what is due counts as missing.
PATIENCE_S = 20.0
POLL_S = 0.01
#: Events that nobody counts, at each match rate: the first ones find cold caches.
WARM_PER_SECOND, WARM_S = 100.0, 0.3
CLIENT = "publisher"

#: The papers' printed cells (match rate, events a second, bytes) that the grid lacks, and some to see saturation by
#: (EXP-14): what took the papers' network to its limit does not take this one there.
EXTRA = (
    Cell(100, 1, 50), Cell(100, 952, 450), Cell(100, 492, 75), Cell(50, 952, 350), Cell(25, 961, 400),
    Cell(10, 952, 400), Cell(5, 877, 450), Cell(100, 2000, 75),
    Cell(100, 4000, 75), Cell(100, 8000, 75),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    match_rates: tuple[int, ...] = MATCH_RATES
    rates: tuple[float, ...] = (20, 100, 492, 952)
    sizes: tuple[int, ...] = (30, 50, 200, 500)
    #: For a cell at least; slow ones take longer, until enough events have come.
    seconds: float = 2.0
    flooding: bool = False
    extra: tuple[Cell, ...] = EXTRA

    def cells(self) -> list[Cell]:
        """In the order in which they are measured; cells with the same subscriptions follow each other."""
        ways = (False, True) if self.flooding else (False,)
        grid = [
            Cell(match, rate, size, way)
            for match in self.match_rates for rate in self.rates for size in self.sizes for way in ways
        ]  # fmt: skip
        grid += [cell for cell in self.extra if cell.match_percent in self.match_rates]
        return [cell.check() for cell in sorted(dict.fromkeys(grid), key=_order)]

    def estimate_s(self) -> float:
        return sum(self.seconds_of(cell) for cell in self.cells())

    def seconds_of(self, cell: Cell) -> float:
        return cell.events(self.seconds) / cell.per_second


QUICK = Plan((100, 50, 10), (50, 492, 952), (50, 450), 0.5, extra=())


def _order(cell: Cell) -> tuple[bool, int, float, int]:
    return cell.flooding, -cell.match_percent, cell.per_second, cell.size


@dataclass(frozen=True, slots=True)
class Row:
    """What one measuring subscriber saw in one cell; the counts are of all subscribers."""

    cell: Cell
    place: str
    #: Brokers on the way, both ends counted (EXP-17).
    hops: int
    events: int
    burst: int
    pause_ms: float
    #: Events a second by their timestamps (EXP-06).
    rate: float
    #: Of pairs and body, and of the whole frame, on the wire (EXP-07).
    bytes: int
    frame_bytes: int
    received: int
    latency: Latency | None
    #: Events a second at this subscriber.
    throughput: float
    tally: Tally

    @property
    def faults(self) -> list[str]:
        return self.tally.faults(self.cell.match_percent)

    @property
    def is_throughput_shown(self) -> bool:
        """At lower match rates only what is relevant comes, which says nothing of what could (EXP-15)."""
        return self.cell.match_percent == 100

    def plain(self) -> dict[str, Any]:
        cell, tally = self.cell, self.tally
        row = {
            "match_percent": cell.match_percent, "flooding": cell.flooding, "size": self.bytes,
            "frame_bytes": self.frame_bytes, "asked_per_second": cell.per_second, "burst": self.burst,
            "pause_ms": self.pause_ms, "per_second": self.rate, "at": self.place, "hops": self.hops,
            "events": self.events, "received": self.received,
            "latency_ms": None if self.latency is None else _rounded(asdict(self.latency)),
            "throughput": self.throughput if self.is_throughput_shown else None,
            "expected": tally.expected, "delivered": tally.delivered, "missing": tally.missing,
            "duplicates": tally.duplicates, "out_of_order": tally.out_of_order, "spurious": tally.spurious,
            "share_percent": [round(tally.share_min, 3), round(tally.share_max, 3)],
        }  # fmt: skip
        return _rounded(row)


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


@dataclass(slots=True)
class _Reader:
    """A measuring subscriber."""

    place: str
    hops: int
    client: Client
    wanted: int = 0
    subscription: Subscription | None = None
    #: Number, arrival, nanoseconds since the timestamp.
    got: list[tuple[int, int, int]] = field(default_factory=list)

    async def read(self) -> None:
        assert self.subscription is not None
        while True:
            events = (await self.subscription.next(None), *self.subscription.take())
            now_ns = time.monotonic_ns()
            self.got += [(cells_.number_of(each.body), now_ns, now_ns - each.timestamp_ns) for each in events]


class LatencyNetwork(MannedFleet):
    """Brokers as processes, the papers' clients on them, and what they measure."""

    def __init__(
        self,
        network: Network,
        directory: Path,
        say: Say,
        publisher: str | None = None,
        measuring: Sequence[str] = (),
        crowd: int = CROWD,
    ) -> None:
        self.publisher, self.measuring = places(network, publisher, measuring)
        super().__init__(network, directory, say)
        self._crowded = crowd_places(network, self.publisher, self.measuring, crowd)
        self._chance = Random(22)
        self._first = 0
        self._crowd: asyncio.subprocess.Process | None = None
        self._readers: list[_Reader] = []
        self._wanted: list[int] = []

    @property
    def clients(self) -> int:
        return 1 + len(self._readers) + len(self._crowded)

    async def _attach(self) -> None:
        self._client = await self._connect(self.publisher, CLIENT)
        hops = hops_from(self.fleet.network, self.publisher)
        for label in self.measuring:
            client = await self._connect(label, f"measuring-{_short(label)}")
            self._readers.append(_Reader(_short(label), hops[label], client))
        await self._start_crowd()

    # --- the crowd ---

    async def _start_crowd(self) -> None:
        pipe = asyncio.subprocess.PIPE
        module = "veena.bench.latency.crowd"
        self._crowd = await asyncio.create_subprocess_exec(sys.executable, "-m", module, stdin=pipe, stdout=pipe)
        self._stack.push_async_callback(self._stop_crowd)
        ends = [(*_end(self._at[label].url), f"{_short(label)}-{n}") for n, label in enumerate(self._crowded)]
        await self._order({"attach": ends})

    async def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        crowd = self._crowd
        assert crowd is not None and crowd.stdin is not None and crowd.stdout is not None
        crowd.stdin.write(json.dumps(order).encode() + b"\n")
        await crowd.stdin.drain()
        if not (line := await crowd.stdout.readline()):
            raise VeenaError("the process of the other subscribers has ended: see what it said above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _stop_crowd(self) -> None:
        assert self._crowd is not None and self._crowd.stdin is not None
        self._crowd.stdin.close()
        try:
            await asyncio.wait_for(self._crowd.wait(), PATIENCE_S)
        except TimeoutError:
            self._crowd.kill()
            await self._crowd.wait()

    # --- measuring ---

    async def measure(self, plan: Plan, on_cell: Callable[[list[Row], float], None]) -> list[Row]:
        """All cells of a plan; `on_cell` gets the rows of each, and the seconds that were planned for it."""
        rows: list[Row] = []
        for (flooding, match), group in groupby(plan.cells(), lambda cell: cell.group):
            self._say(f"match rate {match} %{', flooding' if flooding else ''}: subscribing")
            await self._subscribe(match, flooding)
            tasks = [asyncio.create_task(reader.read()) for reader in self._readers]
            try:
                await self._cell(Cell(match, WARM_PER_SECOND, cells_.SIZE_MIN, flooding), WARM_S)
                for cell in group:
                    self._say(f"match rate {match} %, {cell.per_second:g} events/s of {cell.size} bytes")
                    found = await self._cell(cell, plan.seconds)
                    on_cell(found, plan.seconds_of(cell))
                    rows += found
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return rows

    async def _subscribe(self, match: int, flooding: bool) -> None:
        values = cells_.values_of(match)
        wanted = cells_.wanted_values(values, len(self._readers) + len(self._crowded), self._chance)
        for reader in self._readers:
            if reader.subscription is not None:
                await reader.subscription.close()
            reader.wanted, reader.got = wanted.pop(0), []
            tags = cells_.profile(reader.wanted, flooding=flooding)
            reader.subscription = await reader.client.subscribe(tags=tags, wait=PATIENCE_S)
            if not reader.subscription.is_active:
                raise VeenaError(f"no word from all brokers on a subscription within {PATIENCE_S:g} s: they are busy")
        self._wanted = wanted
        profiles = [cells_.profile(value, flooding=flooding) for value in wanted]
        answer = await self._order({"want": profiles, "patience_s": PATIENCE_S})
        if answer["active"] != len(profiles):
            raise VeenaError(f"{answer['active']} of {len(profiles)} subscriptions are active: the brokers are busy")

    async def _cell(self, cell: Cell, seconds: float) -> list[Row]:
        count = cell.events(seconds)
        values = cells_.drawn_values(cells_.values_of(cell.match_percent), count, self._chance)
        first, self._first = self._first, self._first + count
        stamps = await self._publish(cell, values, first)
        due = [count if cell.flooding else values.count(reader.wanted) for reader in self._readers]
        await self._until_came(due)
        order = {
            "values": values, "first": first, "wanted": self._wanted, "flooding": cell.flooding,
            "patience_s": PATIENCE_S,
        }  # fmt: skip
        others = Tally(**await self._order({"collect": order})) if self._crowded else None
        return self._rows(cell, values, first, stamps, others)

    async def _publish(self, cell: Cell, values: Sequence[int], first: int) -> list[int]:
        """In bursts with a pause between their begins; the timestamps."""
        burst, pause_s = cell.pace()
        stamps: list[int] = []
        begin = time.perf_counter()
        for at in range(0, len(values), burst):
            await asyncio.sleep(max(0.0, begin + at // burst * pause_s - time.perf_counter()))
            for number, value in enumerate(values[at : at + burst], first + at):
                stamps.append(time.monotonic_ns())
                await self._client.publish_event(cells_.event(number, value, cell.size, stamps[-1]))
        return stamps

    async def _until_came(self, due: Sequence[int]) -> None:
        """Until the measuring subscribers have everything; what does not come is counted later."""
        seen = -1
        with suppress(TimeoutError):
            while any(len(reader.got) < count for reader, count in zip(self._readers, due, strict=True)):
                count = sum(len(reader.got) for reader in self._readers)
                if count != seen:
                    seen, deadline = count, time.monotonic() + PATIENCE_S
                if time.monotonic() > deadline:
                    raise TimeoutError
                await asyncio.sleep(POLL_S)

    def _rows(
        self, cell: Cell, values: Sequence[int], first: int, stamps: Sequence[int], others: Tally | None
    ) -> list[Row]:
        burst, pause_s = cell.pace()
        network = self.fleet.network
        content, frame = cells_.wire_sizes(cell.size, EventCodec(network.levels, network.fanout), CLIENT)
        tallies = [
            judge(values, first, reader.wanted, [number for number, _, _ in reader.got], flooding=cell.flooding)
            for reader in self._readers
        ]
        everybody = summed(tallies if others is None else [*tallies, others])
        rows = []
        for reader in self._readers:
            chosen = [
                got
                for got in reader.got
                if 0 <= got[0] - first < len(values) and values[got[0] - first] == reader.wanted
            ]
            latency = Latency.of([took_ns / 1e6 for _, _, took_ns in chosen])
            # From the first publication on: what is still under way when the last one is published counts against it.
            throughput = cells_.per_second([stamps[0], *(arrived_ns for _, arrived_ns, _ in chosen[1:])])
            rows.append(Row(
                cell, reader.place, reader.hops, len(values), burst, 1000 * pause_s, cells_.per_second(stamps),
                content, frame, len(chosen), latency, throughput, everybody,
            ))  # fmt: skip
            reader.got.clear()
        return rows


# --- where everybody is ---


def places(network: Network, publisher: str | None, measuring: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The labels of the publisher's broker and the measuring ones; without a word the papers', else first and last."""
    labels = [entry.label for entry in network.brokers]
    is_papers = network.name in MEASURING
    at = _label(network, publisher or PUBLISHER) if publisher or is_papers else labels[0]
    names = measuring or MEASURING.get(network.name, (labels[-1],))
    return at, tuple(dict.fromkeys(_label(network, name) for name in names))


def crowd_places(network: Network, publisher: str, measuring: Sequence[str], crowd: int = CROWD) -> list[str]:
    """A label a subscriber: everywhere where several measure, else at brokers where nobody measures or publishes."""
    taken = () if len(measuring) > 1 else (publisher, *measuring)
    return [entry.label for entry in network.brokers if entry.label not in taken for _ in range(crowd)]


def hops_from(network: Network, publisher: str) -> dict[str, int]:
    """Brokers on the shortest way to each broker, both ends counted."""
    labels = {entry.address: entry.label for entry in network.brokers}
    neighbours: dict[str, list[str]] = {label: [] for label in labels.values()}
    for link in network.links:
        neighbours[labels[link.a]].append(labels[link.b])
        neighbours[labels[link.b]].append(labels[link.a])
    hops = {publisher: 1}
    todo = deque([publisher])
    while todo:
        here = todo.popleft()
        for other in neighbours[here]:
            if other not in hops:
                hops[other] = hops[here] + 1
                todo.append(other)
    return hops


def _label(network: Network, name: str) -> str:
    found = [entry.label for entry in network.brokers if name in (entry.label, _short(entry.label))]
    if len(found) != 1:
        reason = "there is no such broker" if not found else f"{len(found)} brokers end so"
        known = ", ".join(entry.label for entry in network.brokers[:8])
        raise ConfigError(network.name, f"broker {name}", reason, f"name one of {known} ...")
    return found[0]


def _short(label: str) -> str:
    return label.rpartition(".")[2]


def _end(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("://")[2].rpartition(":")
    return host, int(port)
