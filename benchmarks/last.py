"""How much memory the ends' `last` takes: what a broker remembers of streams so that nobody gets an event twice.

    python benchmarks/last.py [--incarnations 100000] [--json] [--check]

One publisher restarts again and again and publishes one reliable event each time; a client of the broker wants them
all. Every incarnation is a stream of its own, and the broker keeps the last place of each, up to a bound. Printed are
the streams held and the memory of everything that the ends refer to, on the way and with half as many again.
`--check` exits with 1 when more streams are held than the bound, or memory still grows beyond it.
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

from veena.core.boundary import Arrived, ClientUp, Effect, Store, Stored, Subscribe
from veena.core.broker import Broker
from veena.core.ends import MAX_STREAMS
from veena.core.event_frame import EventCodec
from veena.event import Event, EventId
from veena.runtime.topology import make_network
from veena.sim.options import Options
from veena.sim.world import World

SESSION = 1
STEPS = 10


def settle(broker: Broker, effects: list[Effect], now_ns: int) -> None:
    """The disk answers at once, and forgets: only the broker's memory is looked at."""
    pending = [effect for effect in effects if isinstance(effect, Store)]
    while pending:
        effects = [effect for store in pending for effect in broker.handle(Stored(store.ticket), now_ns)]
        pending = [effect for effect in effects if isinstance(effect, Store)]


def measure(incarnations: int) -> list[dict[str, Any]]:
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
    total = incarnations + incarnations // 2
    for incarnation in track(range(1, total + 1), console=Console(stderr=True), transient=True):
        event = Event(topic="news", body=b"", id=EventId("restless", incarnation, now_ns, 1))
        frame = codec.frame(event, reliable=True, origin=origin, to_serve=bit)
        settle(broker, broker.handle(Arrived(link.link, ((number, frame),)), now_ns), now_ns)
        number += 1
        if incarnation % (incarnations // STEPS) == 0:
            settle(broker, broker.tick(now_ns), now_ns)
            gc.collect()
            held = (tracemalloc.get_traced_memory()[0] - before) / 1024
            streams = broker.events.ends.statistics().streams
            rows.append({"incarnations": incarnation, "streams": streams, "kib": held})
    tracemalloc.stop()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--incarnations", type=int, default=MAX_STREAMS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    rows = measure(arguments.incarnations)
    if arguments.json:
        print(json.dumps({"python": platform.python_version(), "max_streams": MAX_STREAMS, "rows": rows}))
    else:
        table = Table(title=f"memory of a broker that has heard so many incarnations; at most {MAX_STREAMS:,} are kept")
        for name in rows[0]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*(f"{value:,.0f}" for value in row.values()))
        Console().print(table)
    bounded = all(row["streams"] <= MAX_STREAMS for row in rows)
    full = next((row["kib"] for row in rows if row["incarnations"] >= MAX_STREAMS), None)
    grows = full is not None and rows[-1]["kib"] > 1.1 * full
    return int(arguments.check and (not bounded or grows))


if __name__ == "__main__":
    sys.exit(main())
