"""How many subscriptions a second a fresh broker takes, by kind: the first thousand, the last one, and all.

Four clients ask for a quarter of each thousand and wait until all of it is active.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random

from veena.bench.load.broker import HOST, RunningBroker
from veena.bench.load.client import Attached
from veena.bench.load.content import TAG_VALUES, TAGS, TOPIC, Want
from veena.bench.load.processors import load_apart
from veena.matching.base.engine import Constraint

CLIENTS = 4
STEP = 1_000
#: What is not done by then is left out: a broker that takes too long for a thousand fails the row.
PATIENCE_S = 15.0
KINDS = ("topic", "selector", "tags", "xpath")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What came of subscribing to constraints of one kind."""

    kind: str
    #: How many are active; fewer than `wanted` when there was no more patience.
    count: int
    wanted: int
    per_second: float
    #: Milliseconds of the first thousand, and of the last.
    first_ms: float
    last_ms: float

    @property
    def last_to_first(self) -> float:
        return self.last_ms / self.first_ms if self.first_ms else 0.0

    def line(self) -> dict[str, float | int | str]:
        fields = {"subscribing": self.kind, **asdict(self), "last_to_first": self.last_to_first}
        del fields["kind"]
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}


def measure(wanted: int, kinds: Sequence[str], say: Say) -> Iterator[Subscribed]:
    """Each kind at a broker of its own."""
    with load_apart() as processor:
        for kind in kinds:
            with RunningBroker(processor=processor) as broker:
                yield _subscribed(broker.port, kind, wanted, say)


def _subscribed(port: int, kind: str, wanted: int, say: Say) -> Subscribed:
    clients = [Attached(HOST, port, f"subscriber-{number}") for number in range(CLIENTS)]
    wants = drawn(kind, wanted)
    took: list[float] = []
    begin = time.perf_counter()
    try:
        for at in range(0, wanted, STEP):
            say(f"subscribing: {kind} {at:,} of {wanted:,}")
            left = PATIENCE_S - (time.perf_counter() - begin)
            start = time.perf_counter()
            some = wants[at : at + STEP]
            for number, client in enumerate(clients):
                client.ask(some[number::CLIENTS], first=at + 1)
            for client in clients:
                client.wait_active(max(0.0, left))
            took.append(time.perf_counter() - start)
    except RuntimeError:
        say(f"subscribing: {kind} takes too long")
    finally:
        for client in clients:
            client.socket.close()
    count, seconds = min(len(took) * STEP, wanted), sum(took)
    if not took:
        return Subscribed(kind, 0, wanted, 0.0, 0.0, 0.0)
    return Subscribed(kind, count, wanted, count / seconds, took[0] * 1e3, took[-1] * 1e3)


def drawn(kind: str, count: int) -> list[Want]:
    """Different constraints of one kind: half ranges and half equalities where there are such."""
    chance = Random(6)
    found: list[Want] = []
    for number in range(count):
        low = chance.uniform(10, 100)
        is_range = bool(number % 2)
        constraint: Constraint
        if kind == "topic":
            constraint = f"sensors.{number:06}"
        elif kind == "selector":
            text = f"price BETWEEN {low:.4f} AND {low + 1:.4f}" if is_range else f"sym = 'S{number:06}'"
            constraint = (TOPIC, text)
        elif kind == "tags":
            named = chance.sample(range(len(TAGS)), 2)
            values = (f"{TAGS[at]}={chance.randrange(TAG_VALUES * 100)}" for at in sorted(named))
            constraint = ",".join(values)
        else:
            test = f"@price>{low:.4f} and @price<{low + 1:.4f}" if is_range else f"@sku='S{number:06}'"
            constraint = f"/order/item[{test}]"
        found.append((kind, constraint))
    return found
