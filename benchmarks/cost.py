"""CPU time that a broker spends on one event: this tree beside another checkout of it, in turns.

    python benchmarks/cost.py [--beside TREE] [--turns 10] [--events 20000] [--json] [--check]

Each turn starts a broker as a process of its own, from each tree once, in changing order; a client of the same tree
publishes and another one reads. The cases: events that are alike; events with five properties that differ, of which a
selector takes a tenth; reliable events, which are synced. Each figure is the median of all turns. Put the other tree's
checkout anywhere, for example with `git worktree add TREE COMMIT`; it is run by this tree's interpreter, so its
dependencies have to be those of this tree. `--check` exits with 1 where this tree takes more than 1.1 times as much.
Figures of a machine that does something else mean little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve()
TREE = HERE.parent.parent
#: The cases, and how many times `--events` of each: the system counts CPU time in hundredths of a second.
CASES = {"alike": 100, "properties": 1, "reliable": 5}
#: This tree may take so many times what the other one takes.
BAR = 1.1
#: Events that are published by one call, and bytes of a body.
AT_ONCE = 500
BODY = 100
#: One in so many events with properties is taken by the selector.
TAKEN = 10
#: The publisher is at most so many batches ahead of the reader: a broker may drop best effort beyond a reader's queue.
AHEAD = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="a checkout of another version")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--events", type=int, default=20_000, help="events of a case and turn; alike ones 100 times")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(asyncio.run(measure(given.events))))
        return 0
    trees = {"this": TREE} if given.beside is None else {"this": TREE, "other": given.beside.resolve()}
    if not all((tree / "src" / "veena").is_dir() for tree in trees.values()):
        parser.error(f"--beside {given.beside}: there is no src/veena in it; name the folder of a checkout")
    found: dict[str, dict[str, list[float]]] = {name: {case: [] for case in CASES} for name in trees}
    for turn in range(given.turns):
        for name in sorted(trees, reverse=bool(turn % 2)):
            for case, cost in turn_of(trees[name], given.events).items():
                found[name][case].append(cost)
        if not given.as_json:
            print(f"turn {turn + 1} of {given.turns}", file=sys.stderr)
    medians = {name: {case: median(costs) for case, costs in cases.items()} for name, cases in found.items()}
    ratios = {case: medians["this"][case] / medians["other"][case] for case in CASES} if "other" in medians else {}
    if given.as_json:
        print(json.dumps({"median_us": medians, "ratios": ratios, "turns": found}))
    else:
        _show(medians, ratios)
    return int(given.check and any(ratio > BAR for ratio in ratios.values()))


def turn_of(tree: Path, events: int) -> dict[str, float]:
    """Microseconds of the broker's CPU for one event of each case, by a process that runs this tree's code."""
    command = [sys.executable, str(HERE), "--worker", "--events", str(events)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    run = subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    costs: dict[str, float] = json.loads(run.stdout)
    return costs


async def measure(events: int) -> dict[str, float]:
    """Every case on a broker of its own."""
    import veena
    from veena.bench.load.broker import RunningBroker, cpu_seconds

    chance, costs = Random(1), dict.fromkeys(CASES, 0.0)
    for case, times in CASES.items():
        made = [content(case, chance, number) for number in range(events)]
        selector = f"share < {1 / TAKEN}" if case == "properties" else None
        with tempfile.TemporaryDirectory() as data, RunningBroker(Path(data)) as broker:
            url = f"veena://127.0.0.1:{broker.port}"
            async with veena.connect(url, client_id="w") as writer, veena.connect(url, client_id="r") as reader:
                subscription = await reader.subscribe(topic="t", selector=selector)
                batches = [
                    [veena.Event(topic="t", properties=each, body=bytes(BODY)) for each in made[at : at + AT_ONCE]]
                    for at in range(0, events, AT_ONCE)
                ] * times
                counts = [sum(map(is_wanted, made[at : at + AT_ONCE])) for at in range(0, events, AT_ONCE)] * times
                room = asyncio.Semaphore(AHEAD)
                before = cpu_seconds(broker.pid)
                await asyncio.gather(
                    read(subscription, counts, room), publish(writer, batches, case == "reliable", room)
                )
                costs[case] = (cpu_seconds(broker.pid) - before) * 1e6 / (events * times)
    return costs


def content(case: str, chance: Random, number: int) -> dict[str, float | str]:
    """The properties of one event."""
    if case != "properties":
        return {}
    return {
        "share": chance.random(),
        "symbol": f"S{chance.randrange(500)}",
        "volume": chance.randrange(1_000_000),
        "open": chance.random() < 0.5,
        "number": number,
    }


def is_wanted(properties: dict[str, float | str]) -> bool:
    """Whether the reader's selector takes an event with these properties."""
    return "share" not in properties or float(properties["share"]) < 1 / TAKEN


async def read(subscription: object, counts: Sequence[int], room: asyncio.Semaphore) -> None:
    """Read so many events of each batch, and give the publisher room for another one after each."""
    for count in counts:
        for _ in range(count):
            await subscription.next(60)  # type: ignore[attr-defined]
        room.release()


async def publish(writer: object, batches: Sequence[Sequence[object]], reliable: bool, room: asyncio.Semaphore) -> None:
    for batch in batches:
        await room.acquire()
        await writer.publish_many(batch, reliable=reliable)  # type: ignore[attr-defined]
    await writer.flush(60)  # type: ignore[attr-defined]


def _show(medians: dict[str, dict[str, float]], ratios: dict[str, float]) -> None:
    table = Table("CPU of the broker, us an event", *medians, *(["this / other"] if ratios else []))
    for case in CASES:
        cells = [f"{cases[case]:.2f}" for cases in medians.values()]
        table.add_row(case, *cells, *([f"{ratios[case]:.2f}"] if ratios else []))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
