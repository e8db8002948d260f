"""What it costs a broker to learn its map: networks of 100, 1,000 and 10,000 simulated brokers come to rest.

    python benchmarks/convergence.py [--sizes 100,1000,10000] [--json]

For each size: messages, CPU time and memory a broker until nothing is under way any more, then the cost of one link
change at each level, and whom it reached. The exponents say how a figure grows with the number of brokers: the slope of
a straight line through the logarithms. Nothing here is compared with a clock; ratios between rows are what counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import resource
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from veena.address import Address
from veena.core.boundary.settings import SECOND_NS
from veena.core.wire.control import Connections
from veena.sim.networks.generate import generate
from veena.sim.world.map_view import converged
from veena.sim.world.network import Delivery, VirtualLink
from veena.sim.world.world import World


class Ear:
    """Counts what a change makes brokers tell each other."""

    def __init__(self, world: World) -> None:
        self.frames = 0
        self.records = 0
        self.reached: set[Address] = set()
        world.on_delivery = self.hear

    def hear(self, delivery: Delivery) -> None:
        told = [frame for _, frame in delivery.frames if isinstance(frame, Connections) and frame.records]
        if told:
            self.frames += len(told)
            self.records += sum(len(frame.records) for frame in told)
            self.reached.add(delivery.to)


def measure(size: int) -> dict[str, Any]:
    network = generate(size, seed=1)
    gc.collect()
    memory, cpu = _memory(), time.process_time()
    world = converged(network)
    cpu = time.process_time() - cpu
    memory = _memory() - memory
    brokers = list(world.live())
    maps = [len(broker.map.reachable()) for broker in brokers]
    records = [len(broker.table) for broker in brokers]
    return {
        "brokers": size,
        "links": len(network.links),
        "frames_per_broker": world.counters.frames / size,
        "records_per_broker": sum(broker.statistics().records for broker in brokers[:: max(1, size // 500)])
        / len(brokers[:: max(1, size // 500)]),
        "cpu_ms_per_broker": 1000 * cpu / size,
        "kib_per_broker": memory / size,
        "vertices_mean": sum(maps) / size,
        "vertices_max": max(maps),
        "connections_mean": sum(records) / size,
        "changes": [change(world, level) for level in range(network.levels)],
    }


def change(world: World, level: int) -> dict[str, Any]:
    """Cut one link of this level and let the news spread."""
    link = next((link for link in world.links if _level(link) == level and not link.cut), None)
    if link is None:
        return {"level": level, "brokers_in_unit": 0, "reached": 0, "frames": 0, "records": 0, "outside": 0}
    unit = link.a[: len(link.a) - level - 1]
    inside = [address for address in world.nodes if address[: len(unit)] == unit]
    ear = Ear(world)
    world.cut(link, silent=False)
    assert world.run_until_quiet(world.now_ns + 600 * SECOND_NS)
    reached = ear.reached | {link.a, link.b}
    return {
        "level": level,
        "brokers_in_unit": len(inside),
        "reached": len(reached),
        "frames": ear.frames,
        "records": ear.records,
        "outside": sum(1 for address in reached if address[: len(unit)] != unit),
    }


def exponent(rows: list[dict[str, Any]], of: str, over: str) -> float:
    """The slope of log(of) over log(over)."""
    points = [(math.log(row[over]), math.log(row[of])) for row in rows if row[of] > 0]
    if len(points) < 2:
        return float("nan")
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def _level(link: VirtualLink) -> int:
    return next(len(link.a) - 1 - i for i, (x, y) in enumerate(zip(link.a, link.b, strict=True)) if x != y)


def _memory() -> float:
    """KiB that this process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1024


def _show(rows: list[dict[str, Any]], exponents: dict[str, float]) -> None:
    console = Console()
    table = Table(title="until nothing is under way")
    columns = [name for name in rows[0] if name != "changes"]
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{row[name]:,.1f}" if isinstance(row[name], float) else f"{row[name]:,}" for name in columns))
    changes = Table(title="one link is lost")
    for name in ("brokers", "level", "brokers in unit", "reached", "outside", "frames", "records"):
        changes.add_column(name, justify="right")
    for row in rows:
        for entry in row["changes"]:
            values = (row["brokers"], *(entry[n] for n in ("level", "brokers_in_unit", "reached", "outside")))
            changes.add_row(*(f"{value:,}" for value in (*values, entry["frames"], entry["records"])))
    console.print(table, changes)
    for name, value in exponents.items():
        console.print(f"{name}: {value:.2f}", highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("networks", total=len(sizes))
        for size in sizes:
            progress.update(task, description=f"{size:,} brokers")
            rows.append(measure(size))
            progress.advance(task)
    exponents = {
        "frames a broker grow with brokers to the power": exponent(rows, "frames_per_broker", "brokers"),
        "CPU a broker grows with brokers to the power": exponent(rows, "cpu_ms_per_broker", "brokers"),
        "connections kept grow with brokers to the power": exponent(rows, "connections_mean", "brokers"),
        "connections kept grow with vertices of the map to the power": exponent(
            rows, "connections_mean", "vertices_mean"
        ),
        "memory a broker grows with vertices of the map to the power": exponent(
            rows, "kib_per_broker", "vertices_mean"
        ),
    }
    if arguments.json:
        print(json.dumps({"python": platform.python_version(), "rows": rows, "exponents": exponents}))
    else:
        _show(rows, exponents)
    return int(any(entry["outside"] for row in rows for entry in row["changes"]))


if __name__ == "__main__":
    sys.exit(main())
