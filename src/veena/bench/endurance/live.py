"""A network of real brokers, a process each, with clients on all of them: who should have got what, who did, how fast.

The papers' first setting (EXP-01): one publisher at broker 22, one measuring subscriber at broker 10, five subscribers
at each of the others. A match rate of r % means that each subscriber wants r of 100 kinds of events, and every kind is
published equally often (EXP-05), so what each must get is known beforehand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import quantiles

from veena.bench.manned_fleet import MannedFleet, Say
from veena.client import Client
from veena.client.subscription import Subscription
from veena.event import Event
from veena.runtime.networks.file import Network

#: Kinds of events; a subscriber with a match rate of r % wants r of them.
KINDS = 100
#: Subscribers at each broker beside the publisher's and the measuring one's.
CROWD = 5
#: How long the last events may take to arrive before they count as missing.
PATIENCE_S = 20.0
POLL_S = 0.02
#: How long afterwards to look for what should not come.
AFTER_S = 0.3


@dataclass(slots=True)
class Rate:
    """What came of the events at one match rate."""

    match_percent: int
    events: int = 0
    expected: int = 0
    delivered: int = 0
    missing: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    spurious: int = 0
    seconds: float = 0.0
    #: In milliseconds, of all deliveries.
    latencies: list[float] = field(default_factory=list, repr=False)

    @property
    def is_sound(self) -> bool:
        return not (self.missing or self.duplicates or self.out_of_order or self.spurious)

    def percentile(self, percent: int) -> float | None:
        """A percentile of the latency in milliseconds."""
        if len(self.latencies) < 2:
            return None
        return round(quantiles(self.latencies, n=100, method="inclusive")[percent - 1], 2)


@dataclass(slots=True)
class _Reader:
    """One subscriber, and what it got."""

    subscription: Subscription
    first: int
    got: list[tuple[int, int]] = field(default_factory=list)

    def wants(self, kind: int, percent: int) -> bool:
        return (kind - self.first) % KINDS < percent

    async def read(self) -> None:
        while True:
            event = await self.subscription.next(None)
            for each in (event, *self.subscription.take()):
                self.got.append((int(str(each.properties["number"])), time.time_ns() - each.timestamp_ns))


class LiveNetwork(MannedFleet):
    """Brokers as processes, and the papers' clients on them."""

    def __init__(
        self, network: Network, directory: Path, publisher: str, measuring: str, say: Say, records: str = "off"
    ) -> None:
        super().__init__(network, directory, say, records)
        self._publisher, self._measuring = publisher, measuring
        self._clients: list[Client] = []
        self._chance = Random(22)
        self.client: Client | None = None

    @property
    def clients(self) -> int:
        return len(self._clients) + 1

    async def _attach(self) -> None:
        self.client = await self._connect(self._publisher, "publisher")
        places = [(self._measuring, "measuring")]
        for label in self._at:
            if label not in (self._publisher, self._measuring):
                places += [(label, f"{label}/{number}") for number in range(CROWD)]
        for label, name in places:
            self._clients.append(await self._connect(label, name))

    async def measure(self, percent: int, events: int, per_second: float) -> Rate:
        """Publish reliable events at a match rate and see who gets them."""
        assert self.client is not None
        topic = f"demo-{percent}"
        self._say(f"match rate {percent} %: subscribing")
        readers = list(await asyncio.gather(*(self._subscribe(client, topic, percent) for client in self._clients)))
        tasks = [asyncio.create_task(reader.read()) for reader in readers]
        kinds = [number * 37 % KINDS for number in range(events)]
        rate = Rate(percent, events)
        begin = time.perf_counter()
        try:
            await self._publish(topic, kinds, per_second, percent)
            expected = [
                {number for number, kind in enumerate(kinds) if reader.wants(kind, percent)} for reader in readers
            ]
            await _until_all_came(readers, expected)
        finally:
            rate.seconds = round(time.perf_counter() - begin, 3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(reader.subscription.close() for reader in readers))
        for reader, wanted in zip(readers, expected, strict=True):
            judge(rate, wanted, reader.got)
        return rate

    async def _subscribe(self, client: Client, topic: str, percent: int) -> _Reader:
        first = self._chance.randrange(KINDS)
        last = first + percent
        terms = [f"kind >= {first} AND kind < {min(last, KINDS)}"]
        if last > KINDS:
            terms.append(f"kind < {last - KINDS}")
        selector = None if percent >= KINDS else " OR ".join(f"({term})" for term in terms)
        return _Reader(await client.subscribe(topic=topic, selector=selector, wait=PATIENCE_S), first)

    async def _publish(self, topic: str, kinds: Sequence[int], per_second: float, percent: int) -> None:
        assert self.client is not None
        begin = time.perf_counter()
        published: list[asyncio.Task[object]] = []
        for number, kind in enumerate(kinds):
            await asyncio.sleep(max(0.0, begin + number / per_second - time.perf_counter()))
            event = Event(topic=topic, properties={"kind": kind, "number": number}, body=b"x" * 100)
            published.append(asyncio.create_task(self.client.publish_event(event, reliable=True)))
            self._say(f"match rate {percent} %: {number + 1} of {len(kinds)} events published")
        await asyncio.gather(*published)


async def _until_all_came(readers: Sequence[_Reader], expected: Sequence[set[int]]) -> None:
    """Wait for the last one, for a while; then a moment longer for what should not come."""
    with suppress(TimeoutError):  # what is missing is counted
        async with asyncio.timeout(PATIENCE_S):
            while any(len(reader.got) < len(wanted) for reader, wanted in zip(readers, expected, strict=True)):
                await asyncio.sleep(POLL_S)
    await asyncio.sleep(AFTER_S)


def judge(rate: Rate, wanted: set[int], got: Sequence[tuple[int, int]]) -> None:
    """Add to a rate what one subscriber should have got and what it got: (number, nanoseconds it took)."""
    numbers = [number for number, _ in got]
    came = set(numbers)
    rate.expected += len(wanted)
    rate.delivered += len(wanted & came)
    rate.missing += len(wanted - came)
    rate.spurious += len(came - wanted)
    rate.duplicates += len(numbers) - len(came)
    rate.out_of_order += sum(one > other for one, other in pairwise(numbers))
    rate.latencies += [took_ns / 1e6 for _, took_ns in got]
