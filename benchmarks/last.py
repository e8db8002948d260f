"""How much memory the ends' `last` takes: what a broker remembers of streams so that nobody gets an event twice.

    python benchmarks/last.py [--incarnations 100000] [--only transient|reliable] [--json] [--check]

One publisher restarts again and again and publishes one event each time; a client of the broker wants them all. Every
incarnation is a stream of its own, and the broker keeps the last place of each, up to a bound. Two runs: with transient
events, of which nothing but the last places is kept, and with reliable ones, where it is also kept for a while who got
which event. Printed is the memory of the whole broker beyond what it had before the first one, on the way to where
every bound is reached, and beyond. `--check` exits with 1 when more streams are held than the bound, or when memory
still grows after that.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import tracemalloc
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from veena.core.boundary.inputs_effects import Arrived, ClientUp, Effect, Store, Stored, Subscribe
from veena.core.broker import Broker
from veena.core.delivery.delivery import MAX_RECENT, MAX_STREAMS
from veena.core.wire.event import EventCodec
from veena.event import Event, EventId
from veena.runtime.networks.model import make_network
from veena.sim.world.options import Options
from veena.sim.world.world import World

SESSION = 1
#: Frames that come at once.
BATCH = 100
#: After so many reliable ones nothing more is added without something being forgotten.
RELIABLE_FULL = MAX_RECENT + MAX_STREAMS
#: Rows of a table.
STEPS = 8
#: Memory may be so much more when everything is full: a dict that is added to at one end and deleted from at the other
#: is laid out anew now and then, with more room or less.
SLACK = 1.25


def settle(broker: Broker, effects: list[Effect], now_ns: int) -> None:
    """The disk answers at once, and forgets: only the broker's memory is looked at."""
    pending = [effect for effect in effects if isinstance(effect, Store)]
    while pending:
        effects = [effect for store in pending for effect in broker.handle(Stored(store.ticket), now_ns)]
        pending = [effect for effect in effects if isinstance(effect, Store)]


def measure(reliable: bool, full: int) -> list[dict[str, Any]]:
    """Memory at `STEPS` points on the way to `full` incarnations, and at two beyond."""
    network = make_network("last", ("x.y.z.a", "x.y.z.b"), (("x.y.z.a", "x.y.z.b"),))
    world = World(network, 1, Options(wire=False, check=False))
    origin, end = (entry.address for entry in network.brokers)
    world.give(end, ClientUp(SESSION, "listener"))
    world.give(end, Subscribe(SESSION, 1, "topic", "news", network.levels))
    world.run_until(10_000_000_000)
    broker, now_ns = world.broker(end), world.now_ns
    link = broker.statistics().links[0]
    number, bit = link.channel.received + 1, broker.profiles.interest.bit(end)
    codec = EventCodec(network.levels, network.fanout)
    rows: list[dict[str, Any]] = []
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    step = full // STEPS // BATCH * BATCH
    for first in track(range(1, (STEPS + 2) * step, BATCH), console=Console(stderr=True), transient=True):
        frames = []
        for incarnation in range(first, first + BATCH):
            event = Event(topic="news", body=b"", event_id=EventId("restless", incarnation, now_ns, 1))
            frames.append((number, codec.frame(event, reliable=reliable, origin=origin, to_serve=bit)))
            number += 1
        settle(broker, broker.handle(Arrived(link.link, tuple(frames)), now_ns), now_ns)
        heard = first + BATCH - 1
        if heard % step == 0:
            settle(broker, broker.tick(now_ns), now_ns)
            gc.collect()
            held = (tracemalloc.get_traced_memory()[0] - before) / 1024
            streams = broker.events.ends.statistics().streams
            rows.append({"reliable": reliable, "incarnations": heard, "streams": streams, "kib": held})
    tracemalloc.stop()
    return rows


def is_bounded(rows: list[dict[str, Any]]) -> bool:
    return all(row["streams"] <= MAX_STREAMS for row in rows) and rows[-1]["kib"] <= SLACK * rows[STEPS - 1]["kib"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--incarnations", type=int, default=MAX_STREAMS)
    parser.add_argument("--only", choices=("transient", "reliable"), help="one of the two runs")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    # Of reliable events it is kept who got them, and of those that are too old for this up to where they were.
    tables = []
    if arguments.only != "reliable":
        tables.append(measure(False, arguments.incarnations))
    if arguments.only != "transient":
        tables.append(measure(True, max(arguments.incarnations, RELIABLE_FULL)))
    if arguments.json:
        print(
            json.dumps(
                {
                    "python": platform.python_version(),
                    "max_streams": MAX_STREAMS,
                    "rows": [row for rows in tables for row in rows],
                }
            )
        )
    else:
        for rows in tables:
            kind = "reliable" if rows[0]["reliable"] else "transient"
            table = Table(title=f"{kind} events; the last places of at most {MAX_STREAMS:,} streams are kept")
            for name in ("incarnations", "streams", "kib"):
                table.add_column(name, justify="right")
            for row in rows:
                table.add_row(*(f"{row[name]:,.0f}" for name in ("incarnations", "streams", "kib")))
            Console().print(table)
    return int(arguments.check and not all(map(is_bounded, tables)))


if __name__ == "__main__":
    sys.exit(main())
