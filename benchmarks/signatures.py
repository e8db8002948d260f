"""What signatures cost a network of 78 brokers: how many are made and checked, and their CPU time, for each change.

    python benchmarks/signatures.py [--changes 40] [--seed 1] [--network networks/ges-78.toml] [--json]

The brokers of `ges-78` run in the simulator, with an Ed25519 key each; the signatures are real. When all know what all
want, one client after another subscribes to a topic that nobody wants yet, and leaves again: two changes of interest.
The same is done where nobody signs. What a network at rest signs in the same virtual time (claims are signs of life,
three times a lease) is measured first and taken off.

`made`, `checked` and CPU are those of all 78 brokers together for one change. `signing_us` and `checking_us` are the
time in the library that signs and checks; `cpu_ms` is everything that the simulation did, with signatures and without.
Certificates are no part of it: a broker reads each once a minute, and remembers what it says.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from veena.address import Address
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Subscribe
from veena.core.boundary.settings import SECOND_NS
from veena.core.boundary.signing import Fault, Signing
from veena.core.wire.signatures import Credential, Signature
from veena.runtime.networks.file import Network, load_network
from veena.sim.world.keyring import KeyRing
from veena.sim.world.options import Options
from veena.sim.world.world import World

NETWORK = Path(__file__).parents[1] / "networks" / "ges-78.toml"
#: The network has learned its map, and what is wanted, after so long.
SETTLING_NS = 20 * SECOND_NS
#: A change has reached everybody whom it concerns after so long.
CHANGE_NS = 3 * SECOND_NS


#: What the table shows for one change of interest.
MEASURES = {
    "made": "made for one change",
    "checked": "checked for one change",
    "signing_us": "signing, us a change",
    "checking_us": "checking, us a change",
    "cpu_ms": "CPU of all brokers, ms a change",
}


class TimedRing(KeyRing):
    """Keys whose use is timed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.signing_s = self.checking_s = 0.0

    def signing(self, address: Address) -> Signing:
        made = super().signing(address)
        return Signing(made.signer, _TimedVerifier(self, made))

    def sign(self, address: Address, statement: bytes) -> bytes:
        began = time.perf_counter()
        made = super().sign(address, statement)
        self.signing_s += time.perf_counter() - began
        return made


class _TimedVerifier:
    def __init__(self, ring: TimedRing, signing: Signing) -> None:
        self._ring, self._verifier = ring, signing.verifier

    def why_not(self, credential: Credential, signature: Signature, statement: bytes, wall_ns: int) -> Fault | None:
        began = time.perf_counter()
        fault = self._verifier.why_not(credential, signature, statement, wall_ns)
        self._ring.checking_s += time.perf_counter() - began
        return fault


@dataclass(frozen=True, slots=True)
class Spent:
    """What all brokers together have spent so far."""

    made: int
    checked: int
    refused: int
    signing_s: float
    checking_s: float
    cpu_s: float

    def since(self, before: Spent) -> Spent:
        return Spent(
            self.made - before.made,
            self.checked - before.checked,
            self.refused - before.refused,
            self.signing_s - before.signing_s,
            self.checking_s - before.checking_s,
            self.cpu_s - before.cpu_s,
        )


def measure(network: Network, changes: int, seed: int, signed: bool, advance: Callable[[], None]) -> dict[str, Any]:
    world = World(network, seed, Options(signed=signed, check=False), ring=TimedRing(seed) if signed else None)
    chance = Random(seed)
    places = list(world.nodes)
    world.run_until(world.now_ns + SETTLING_NS)
    joined = spent(world)
    for _ in range(changes):
        world.run_until(world.now_ns + CHANGE_NS)
        advance()
    rest = spent(world).since(joined)
    begun, home, session = spent(world), places[0], 0
    for number in range(changes):
        if number % 2:
            world.give(home, ClientDown(session, False))
        else:
            home, session = chance.choice(places), world.new_session()
            world.give(home, ClientUp(session, f"reader-{number}"))
            world.give(home, Subscribe(session, 1, "topic", f"topic-{number}", network.levels))
        world.run_until(world.now_ns + CHANGE_NS)
        advance()
    busy = spent(world).since(begun)
    return {
        "signed": signed,
        "joining": {"made": joined.made, "checked": joined.checked},
        "rest_a_second": {
            "made": _each(rest.made, changes * CHANGE_NS / SECOND_NS),
            "checked": _each(rest.checked, changes * CHANGE_NS / SECOND_NS),
        },
        "made": _each(busy.made - rest.made, changes),
        "checked": _each(busy.checked - rest.checked, changes),
        "refused": busy.refused + rest.refused + joined.refused,
        "signing_us": _each(1e6 * (busy.signing_s - rest.signing_s), changes),
        "checking_us": _each(1e6 * (busy.checking_s - rest.checking_s), changes),
        "cpu_ms": _each(1e3 * (busy.cpu_s - rest.cpu_s), changes),
        "us_a_signature": _each(
            1e6 * (joined.signing_s + rest.signing_s + busy.signing_s), joined.made + rest.made + busy.made
        ),
        "us_a_check": _each(
            1e6 * (joined.checking_s + rest.checking_s + busy.checking_s), joined.checked + rest.checked + busy.checked
        ),
    }


def spent(world: World) -> Spent:
    told = [broker.exchange.statements.statistics() for broker in world.live()]
    ring = world.ring if isinstance(world.ring, TimedRing) else TimedRing(0)
    return Spent(
        sum(each.made for each in told),
        sum(each.checked for each in told),
        sum(each.refused for each in told),
        ring.signing_s,
        ring.checking_s,
        time.process_time(),
    )


def _each(amount: float, count: float) -> float:
    return amount / count if count else 0.0


def show(network: Network, rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"{network.name}: {len(network.brokers)} brokers", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column("signed" if row["signed"] else "unsigned", justify="right")
    for key, name in MEASURES.items():
        table.add_row(name, *(f"{row[key]:.1f}" for row in rows))
    for key in ("made", "checked"):
        table.add_row(f"{key} a second at rest", *(f"{row['rest_a_second'][key]:.1f}" for row in rows))
    table.add_row("refused", *(str(row["refused"]) for row in rows))
    console = Console()
    console.print(table)
    signed = rows[0]
    console.print(
        f"one signature {signed['us_a_signature']:.0f} us, one check {signed['us_a_check']:.0f} us; while the network"
        f" came together {signed['joining']['made']} were made and {signed['joining']['checked']} checked"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--network", type=Path, default=NETWORK)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    network = load_network(arguments.network, connected=True)
    with Progress(console=Console(stderr=True), transient=True, disable=arguments.json) as progress:
        task = progress.add_task(f"{len(network.brokers)} brokers", total=4 * arguments.changes)
        rows = [
            measure(network, arguments.changes, arguments.seed, signed, lambda: progress.advance(task))
            for signed in (True, False)
        ]
    if arguments.json:
        print(json.dumps({"python": platform.python_version(), "network": network.name, "rows": rows}))
    else:
        show(network, rows)


if __name__ == "__main__":
    main()
