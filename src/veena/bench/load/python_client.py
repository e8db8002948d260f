"""What one client in Python publishes and takes in a second: the whole way that an application pays for.

The client has one processor and the broker another. Events exist before the clock starts, as in an application that
hands on what it has; of best effort the broker has read all of them before it stops, reliable ones it has stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from veena.bench.load.broker import HOST, RunningBroker
from veena.bench.load.content import TOPIC, alike, quotes
from veena.bench.load.processors import load_apart
from veena.client import Client, connect
from veena.event import Event

WINDOW = 1_000
BATCH = 1_000
FLUSH_S = 30.0
#: Events that are published and then taken, in turns, by one process.
TAKEN = 2_000
#: Events between two looks at the clock.
TURN = 20_000

Say = Callable[[str], None]
Work = Callable[[Client, Sequence[Event]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Speed:
    """What came of one way to publish."""

    what: str
    events: str
    per_second: float
    #: Of the client, for each event.
    cpu_us: float

    def line(self) -> dict[str, float | str]:
        fields = {"client": self.what, **asdict(self)}
        del fields["what"]
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}


def measure(seconds: float, say: Say) -> Iterator[Speed]:
    """Each way to publish, with equal events and with five varying properties."""
    pools = {"alike": alike().events * BATCH, "varying": quotes().events}
    with load_apart() as processor:
        for what, work in WAYS.items():
            for name, events in pools.items():
                say(f"client: {what}, {name}")
                with RunningBroker(processor=processor) as broker:
                    yield asyncio.run(_measured(broker.port, what, work, name, events, seconds))


async def _measured(port: int, what: str, work: Work, name: str, events: Sequence[Event], seconds: float) -> Speed:
    async with connect(f"veena://{HOST}:{port}") as client:
        turn = TAKEN if work is _taken else TURN
        await work(client, events[:turn])  # subscribed, and warm
        await client.flush(FLUSH_S)
        count, at = 0, 0
        begin, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - begin < seconds:
            some = events[at : at + turn]
            await work(client, some)
            count += len(some)
            at = (at + turn) % len(events)
        await client.flush(FLUSH_S)
        took = time.perf_counter() - begin
        return Speed(what, name, count / took, (time.process_time() - cpu) * 1e6 / count)


async def _one_by_one(client: Client, events: Sequence[Event]) -> None:
    for event in events:
        await client.publish_event(event)


async def _many(client: Client, events: Sequence[Event]) -> None:
    for at in range(0, len(events), BATCH):
        await client.publish_many(events[at : at + BATCH])


async def _pipeline(client: Client, events: Sequence[Event]) -> None:
    async with client.pipeline(window=WINDOW) as pipeline:
        for event in events:
            await pipeline.publish_event(event)


async def _many_reliable(client: Client, events: Sequence[Event]) -> None:
    for at in range(0, len(events), BATCH):
        await client.publish_many(events[at : at + BATCH], reliable=True)


async def _taken(client: Client, events: Sequence[Event]) -> None:
    """Published and taken by the same client; both are paid."""
    (wanted,) = client.subscriptions or (await client.subscribe(topic=TOPIC),)
    await client.publish_many(events)
    left = len(events)
    while left:
        left -= len(await wanted.next_batch(timeout=FLUSH_S))


WAYS: dict[str, Work] = {
    "publish": _one_by_one,
    "publish_many": _many,
    "pipeline, window 1,000": _pipeline,
    "publish_many, reliable": _many_reliable,
    "published and taken in batches": _taken,
}
