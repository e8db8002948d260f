"""Latency in a collaboratory against its number of users, near and far, with aggregation and without (EXP-40).

The DISCOVER thesis announces this experiment for a chapter that it lacks. Two domains: an application publishes in one,
users watch it from the other, and one line joins the two.

- Without aggregation each user has a session of its own with the application's domain: every event crosses the line
  once a user.
- With it the users are at a broker of their own domain, whose link crosses the line: one copy comes, and is handed out
  at home.

Brokers are processes, sessions and links are sockets; the line is modelled (`line`): a delay, and a rate that all
connections share. The rate matters: over a line with a delay alone the copies of one event travel side by side, and
aggregation changes the bytes but no latency. Beside each row stands what the line alone costs: the delay, and for the
average copy the time that the copies before it and itself need to be sent.

Everything runs on one machine, so times need no synchronised clocks, and small differences are the machine's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from veena.bench.collaboratory.line import Line
from veena.client import Client, connect
from veena.client.subscription import Subscription
from veena.event import Event
from veena.runtime.fleet.fleet import Fleet
from veena.runtime.networks.file import make_network

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
#: The line's delay one way in milliseconds, and its rate in bits a second.
LINES = {"LAN": (1.0, 100e6), "WAN": (80.0, 10e6)}
#: A piece of a field, and how often: the copies for 64 users take less time than there is between two events.
BODY = 2000
PER_SECOND = 8.0
EVENTS = 20
#: Events that nobody counts: the first ones find cold caches.
WARM = 2
#: How long the last event may take.
PATIENCE_S = 20.0
HOME, AWAY = "here.users.1", "there.application.1"
MARK = b"\x00veena-collaboratory\x00"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scale:
    clients: tuple[int, ...] = CLIENTS
    events: int = EVENTS
    per_second: float = PER_SECOND


QUICK = Scale((1, 8, 64), 8)


@dataclass(frozen=True, slots=True)
class Row:
    line: str
    delay_ms: float
    megabits_per_second: float
    aggregated: bool
    clients: int
    events: int
    expected: int
    delivered: int
    mean_ms: float
    p95_ms: float
    #: What the line alone costs the average copy.
    line_ms: float
    #: Over the line, an event.
    copies: float
    bytes: float

    @property
    def faults(self) -> list[str]:
        """What contradicts the model: losses, copies that are not as many as they should be."""
        found = [f"{self.expected - self.delivered} deliveries are missing"] if self.delivered < self.expected else []
        copies = 1 if self.aggregated else self.clients
        return found + ([f"{self.copies:g} copies instead of {copies}"] if self.copies != copies else [])

    def plain(self) -> dict[str, Any]:
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


async def measure(
    directory: Path, scale: Scale, say: Say, lines: Mapping[str, tuple[float, float]] | None = None
) -> list[Row]:
    """All rows, a network for each line."""
    rows: list[Row] = []
    for name, (delay_ms, rate) in (lines or LINES).items():
        say(f"{name}: starting brokers")
        async with Line(delay_ms / 1000, rate, MARK) as line:
            rows += await _over(line, name, directory / name, scale, say)
    return rows


async def _over(line: Line, name: str, directory: Path, scale: Scale, say: Say) -> list[Row]:
    network = make_network("collaboratory", (AWAY, HOME), [(HOME, AWAY)], levels=3)
    fleet = Fleet(network, directory)
    far = await line.door(fleet.network.brokers[0].listen[0])
    fleet.divert(HOME, AWAY, far)
    rows: list[Row] = []
    try:
        await fleet.start()
        there, here = fleet.members
        async with connect(there.url, client_id="application") as application:
            for count in scale.clients:
                for aggregated in (False, True):
                    how = "with aggregation" if aggregated else "without"
                    say(f"{name}: {count} users {how}")
                    url = here.url if aggregated else far
                    rows.append(await _row(line, name, application, url, count, aggregated, scale))
    finally:
        await fleet.stop()
    return rows


async def _row(line: Line, name: str, application: Client, url: str, count: int, aggregated: bool, scale: Scale) -> Row:
    topic = f"monitoring-{name}-{count}-{aggregated}"
    async with AsyncExitStack() as stack:
        users = await asyncio.gather(*(_user(stack, url, topic, number) for number in range(count)))
        latencies: list[list[float]] = [[] for _ in users]
        tasks = [asyncio.create_task(_watch(*pair)) for pair in zip(users, latencies, strict=True)]
        try:
            await _publish(application, topic, WARM, scale)
            await _until(lambda: all(len(each) >= WARM for each in latencies))
            before = line.copies, line.carried
            await _publish(application, topic, scale.events, scale)
            await _until(lambda: all(len(each) >= WARM + scale.events for each in latencies))
            copies, carried = line.copies - before[0], line.carried - before[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    found = [ms for each in latencies for ms in each[WARM:]]
    return _summed(line, name, aggregated, count, scale.events, found, copies, carried)


def _summed(
    line: Line, name: str, aggregated: bool, count: int, events: int, found: Sequence[float], copies: int, carried: int
) -> Row:
    a_copy_ms = 1000 * line.seconds_per_byte * carried / max(copies, 1)
    at_once = 1 if aggregated else count
    return Row(
        name,
        1000 * line.delay_s,
        8 / line.seconds_per_byte / 1e6,
        aggregated,
        count,
        events,
        count * events,
        len(found),
        fmean(found) if found else 0.0,
        quantiles(found, n=20, method="inclusive")[-1] if len(found) > 1 else 0.0,
        1000 * line.delay_s + a_copy_ms * (at_once + 1) / 2,
        copies / events,
        carried / events,
    )


async def _user(stack: AsyncExitStack, url: str, topic: str, number: int) -> Subscription:
    client = await stack.enter_async_context(connect(url, client_id=f"{topic}-user-{number}", timeout=PATIENCE_S))
    return await client.subscribe(topic=topic, wait=PATIENCE_S)


async def _watch(subscription: Subscription, latencies: list[float]) -> None:
    while True:
        events = (await subscription.next(None), *subscription.take())
        now_ns = time.time_ns()
        latencies += [(now_ns - event.timestamp_ns) / 1e6 for event in events]


async def _publish(application: Client, topic: str, events: int, scale: Scale) -> None:
    begin = time.perf_counter()
    body = MARK + bytes(BODY - len(MARK))
    for number in range(events):
        await asyncio.sleep(max(0.0, begin + number / scale.per_second - time.perf_counter()))
        await application.publish_event(Event(topic=topic, properties={"step": number}, body=body))


async def _until(condition: Callable[[], bool]) -> None:
    with suppress(TimeoutError):  # what is missing shows in the row
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.005)
