"""How long a subscription takes to be active, by scope and size of network, and what a change costs in messages.

    python benchmarks/activation.py [--brokers 1 3 22] [--subscriptions 30] [--nats-python PYTHON] [--json] [--check]

Real broker processes on this machine, and one client of the Python library at a broker of the network. A time is that
from the call of `subscribe` until it returns: then all brokers in scope that matter know of the subscription. The
client pauses between two, so that each comes after a quiet time, as most do; the first ones are not counted. Beside the
broker alone stands nats-server, where it is on the PATH (Debian: apt-get install nats-server) and `--nats-python` names
a Python that has `nats-py`: its `subscribe` and `flush`, in the same run. A hop is half of what an event and its answer
need between clients of two neighbours.

Messages are counted in the simulator, which runs the same brokers on a virtual clock: frames about interest that they
send one another, for each of 100 changes a second at brokers drawn by chance.
`--check` exits with 1 when a
bar is missed: a broker alone at most 3 times nats-server, the system at most 20 hops a level.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

import veena
from veena.address import Address
from veena.client import Client, connect
from veena.core.boundary.inputs_effects import ClientUp, Subscribe, Unsubscribe
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.interest import FarDigest, FarHave, FarInterest, Have, Interest
from veena.runtime.fleet.fleet import Fleet, Member
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.world.options import Options
from veena.sim.world.world import World

NETWORK = Path(__file__).parent.parent / "networks" / "ges-22-linked.toml"
SCOPES = ("cluster", "super-cluster", "super-super-cluster", "system")
ABOUT_INTEREST = (Interest, Have, FarInterest, FarDigest, FarHave)
#: Longer than any broker gathers news after the last.
PAUSE_S = 1.0
WARM = 3
ALONE_MAX, LEVEL_MAX = 3.0, 20.0
#: So many subscriptions stand under load before some are taken back.
STANDING = 50
HOPS = 200

NATS = """
import asyncio, sys, time, nats
async def main():
    client = await nats.connect(sys.argv[1])
    async def got(message): ...
    for number, line in enumerate(sys.stdin):
        began = time.perf_counter()
        await client.subscribe(f"topic.{number}", cb=got)
        await client.flush()
        print(time.perf_counter() - began, flush=True)
    await client.close()
asyncio.run(main())
"""


def network_of(brokers: int) -> Network:
    """A network of so many brokers: of four levels, like the larger one."""
    if brokers == 22:
        return load_network(NETWORK)
    labels = [f"A.S.c.{number}" for number in range(1, brokers + 1)]
    links = [(one, other) for at, one in enumerate(labels) for other in labels[at + 1 :]]
    return make_network("activation", labels, links)


# --- times ---


async def times(client: Client, scope: str, count: int, progress: Progress, task: TaskID, alone: bool) -> list[float]:
    """How long each of so many subscriptions took, in seconds."""
    found: list[float] = []
    for number in range(count + WARM):
        await asyncio.sleep(PAUSE_S / 10 if alone else PAUSE_S)
        began = time.perf_counter()
        await client.subscribe(topic=f"{scope}.{number}.{began}", scope=scope)
        found.append(time.perf_counter() - began)
        progress.advance(task)
    return found[WARM:]


async def hop(one: Client, other: Client) -> float:
    """Half of the time that an event and its answer need between clients of two neighbours."""
    there = await other.subscribe(topic="hop.there")
    back = await one.subscribe(topic="hop.back")
    took: list[float] = []
    for _ in range(HOPS):
        began = time.perf_counter()
        await one.publish(topic="hop.there", body=b"?", reliable=False)
        await there.next(10.0)
        await other.publish(topic="hop.back", body=b"!", reliable=False)
        await back.next(10.0)
        took.append(time.perf_counter() - began)
    return median(took) / 2


async def nats_times(python: str, count: int, progress: Progress, task: TaskID) -> list[float]:
    """What nats-py's `subscribe` and `flush` take."""
    server = shutil.which("nats-server", path="/usr/sbin:/usr/local/bin:/usr/bin")
    if server is None:
        return []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = await asyncio.create_subprocess_exec(
        server, "-a", "127.0.0.1", "-p", str(port), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        await _until_open(port)
        client = await asyncio.create_subprocess_exec(
            python, "-c", NATS, f"nats://127.0.0.1:{port}", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert client.stdin is not None and client.stdout is not None
        found: list[float] = []
        for _ in range(count + WARM):
            await asyncio.sleep(PAUSE_S / 10)
            client.stdin.write(b"\n")
            found.append(float(await client.stdout.readline()))
            progress.advance(task)
        client.stdin.close()
        await client.wait()
        return found[WARM:]
    finally:
        running.terminate()
        await running.wait()


async def _until_open(port: int) -> None:
    async with asyncio.timeout(20.0):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


# --- messages ---


def messages(network: Network, rate: int, seconds: int) -> float:
    """Frames about interest that simulated brokers send one another for each of so many changes a second, anywhere."""
    world, chance = World(network, 1, Options(wire=False, check=False, delay_ns=MILLISECOND_NS // 2)), Random(5)
    brokers, sent = list(world.nodes), Counter[str]()
    for number, address in enumerate(brokers):
        world.give(address, ClientUp(1, f"client-{number}"))
    world.run_until(30 * SECOND_NS)
    world.on_delivery = lambda delivery: sent.update(
        type(frame).__name__ for _, frame in delivery.frames if isinstance(frame, ABOUT_INTEREST)
    )
    began_ns, standing = world.now_ns, list[tuple[Address, int]]()
    for number in range(rate * seconds):
        world.run_until(began_ns + number * SECOND_NS // rate)
        if len(standing) > STANDING and chance.random() < 0.5:
            address, gone = standing.pop(chance.randrange(len(standing)))
            world.give(address, Unsubscribe(1, gone))
        else:
            standing.append((chance.choice(brokers), number))
            world.give(standing[-1][0], Subscribe(1, number, "topic", f"load-{number}", network.levels))
    world.run_until(began_ns + seconds * SECOND_NS)
    return sent.total() / (rate * seconds)


# --- one size ---


async def measure(
    brokers: int, arguments: argparse.Namespace, directory: Path, progress: Progress
) -> list[dict[str, Any]]:
    network = network_of(brokers)
    fleet = Fleet(network, directory / str(brokers))
    lines: list[dict[str, Any]] = []
    try:
        await fleet.start()
        first, beside = fleet.members[0], _neighbour(fleet)
        async with connect(first.url) as client, connect(beside.url) as other:
            await client.subscribe(topic="first")  # until the brokers have waited for neighbours long enough
            hop_ms = 1e3 * await hop(client, other) if beside is not first else 0.0
            for level, scope in enumerate(SCOPES, 1):
                task = progress.add_task(f"{brokers} brokers, {scope}", total=arguments.subscriptions + WARM)
                took = await times(client, scope, arguments.subscriptions, progress, task, alone=brokers == 1)
                lines.append(
                    {
                        "brokers": brokers,
                        "scope": scope,
                        "levels": level,
                        "median_ms": 1e3 * median(took),
                        "hop_ms": hop_ms,
                    }
                )
        if brokers == 1 and arguments.nats_python:
            task = progress.add_task("nats-server", total=arguments.subscriptions + WARM)
            took = await nats_times(arguments.nats_python, arguments.subscriptions, progress, task)
            for line in lines if took else ():
                line["nats_ms"] = 1e3 * median(took)
    finally:
        await fleet.stop()
    for line in lines:
        line["messages_a_change"] = messages(network, arguments.changes, arguments.seconds)
    return lines


def _neighbour(fleet: Fleet) -> Member:
    """A broker with a link to the first one; the first one itself where it is alone."""
    first = fleet.members[0].entry.address
    ends = [set(map(tuple, (link.a, link.b))) for link in fleet.network.links]
    return next((each for each in fleet.members if {first, each.entry.address} in ends), fleet.members[0])


def ratio(line: dict[str, Any]) -> float | None:
    """What the bars are about: of nats-server's time, or of a hop's for each level."""
    if line["brokers"] > 1:
        return float(line["median_ms"] / (line["hop_ms"] * line["levels"]))
    return float(line["median_ms"] / line["nats_ms"]) if "nats_ms" in line else None


def is_met(line: dict[str, Any]) -> bool:
    found = ratio(line)
    return found is None or found <= (ALONE_MAX if line["brokers"] == 1 else LEVEL_MAX)


async def run(arguments: argparse.Namespace, progress: Progress) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        return [
            line
            for brokers in arguments.brokers
            for line in await measure(brokers, arguments, Path(directory), progress)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 3, 22])
    parser.add_argument("--subscriptions", type=int, default=30, help="measured for each scope")
    parser.add_argument("--changes", type=int, default=100, help="a second, under load")
    parser.add_argument("--seconds", type=int, default=10, help="of load, in the time of the simulator")
    parser.add_argument("--nats-python", default="", help="a Python that has nats-py")
    parser.add_argument("--json", action="store_true", help="a line a scope")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    arguments = parser.parse_args()
    with Progress(console=Console(stderr=True)) as progress:
        lines = asyncio.run(run(arguments, progress))
    if arguments.json:
        for line in lines:
            print(json.dumps(line))
    else:
        show(lines, arguments)
    if arguments.check and not all(map(is_met, lines)):
        sys.exit(1)


def show(lines: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    table = Table("brokers", "scope", title="until a subscription is active")
    for column in ("median ms", "nats-server ms", "hop ms", "ratio", f"messages a change at {arguments.changes}/s"):
        table.add_column(column, justify="right")
    for line in lines:
        found = ratio(line)
        table.add_row(
            str(line["brokers"]), line["scope"], f"{line['median_ms']:.2f}",
            f"{line['nats_ms']:.2f}" if "nats_ms" in line else "-", f"{line['hop_ms']:.2f}" if line["hop_ms"] else "-",
            "-" if found is None else f"{found:.1f}", f"{line['messages_a_change']:.2f}",
        )  # fmt: skip
    console = Console()
    console.print(table)
    console.print(f"veena {veena.__version__}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
