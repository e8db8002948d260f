"""What brokers hold of the interest map when everything has been told, found without any message.

    python benchmarks/interest_state.py [--brokers 78 500 3000] [--constraints 100] [--scoped 0.0] [--json] [--check]

Every broker's clients want 100 different constraints of 20,000, drawn by Zipf's law: half are topics, three tenths
selectors on such topics, two tenths tags; `--scoped 0.2` lets a fifth of them be told no further than a cluster, a
super-cluster or a super-super-cluster. Each unit's are gathered once with the brokers' own cover sets and digests, so a
network that takes half an hour to simulate takes seconds; where both were run they agree, but for the one row by which
each speaker marks how far it has told.

A second table has the worst case that addresses allow at fan-out 32: 64 units around a broker, each telling filters in
all its scopes. It shows what they would take as they are, and what they take folded into 128 KiB, with the share of
events nobody wants that one digest lets through. `--check` exits with 1 when a broker would hold more than that.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from veena.address import Address, Unit
from veena.core.interest.constraint import Want, make_want
from veena.core.interest.cover_set import CoverSet
from veena.core.interest.digest import (
    DIGEST_LEVEL,
    DigestTest,
    digest_limit,
    event_atoms,
    fitted,
    make_part,
    merge_digests,
    size_of,
)
from veena.core.interest.table import InterestTable
from veena.core.wire.interest import Digest, DigestPart
from veena.event import Event
from veena.matching.base.engine import Constraint
from veena.runtime.networks.file import Network, load_network
from veena.sim.networks.generate import generate

CATALOGUE = 20_000
MAX_DIGEST_KIB = 128.0
#: Wants of a unit and scope in the worst case.
CROWDED = (300, 600, 2_000, 6_000)
#: Events that each digest is asked about.
QUESTIONS = 200
NETWORKS = Path(__file__).parent.parent / "networks"


def wish(number: int) -> tuple[str, Constraint]:
    """Constraint `number` of the catalogue, the most popular one first."""
    kind = number % 10
    if kind < 5:
        return "topic", topic(number)
    if kind < 8:  # on a topic of about the same popularity, so that one often covers the other
        return "selector", (topic(number - 5), f"price > {number % 97} AND size < {number % 31}")
    return "tags", f"make=m{number},colour={'*' if kind == 8 else f'c{number % 7}'}"


def topic(number: int) -> str:
    return f"market/topic-{number}"


class Wishes:
    """Draws by Zipf's law, and keeps who wants what."""

    def __init__(self, chance: Random, scoped: float, levels: int) -> None:
        self._chance = chance
        self._scoped = scoped
        self._levels = levels
        self._weights = list(accumulate(1 / rank for rank in range(1, CATALOGUE + 1)))
        #: Broker -> number of the wish -> nothing; the number is the client's subscription as well.
        self.of: dict[Address, dict[int, None]] = {}

    def number(self) -> int:
        return bisect(self._weights, self._chance.random() * self._weights[-1])

    def new_at(self, broker: Address) -> int:
        """A wish that this broker's clients do not have."""
        while True:
            number = self.number()
            if number not in self.of.setdefault(broker, {}):
                return number

    def scope(self) -> int:
        return self._chance.randint(1, self._levels - 1) if self._chance.random() < self._scoped else self._levels


def draw_network(size: int) -> Network:
    return load_network(NETWORKS / "ges-78.toml") if size == 78 else generate(size, seed=1)


def computed(network: Network, constraints: int, scoped: float) -> dict[str, Any]:
    """What brokers hold in the end, found unit by unit with their own cover sets and digests: no broker, no message."""
    levels = network.levels
    wishes = Wishes(Random(len(network.brokers)), scoped, levels)
    sets: dict[Unit, CoverSet] = {}
    for entry in network.brokers:
        for _ in range(constraints):
            number = wishes.new_at(entry.address)
            wishes.of[entry.address][number] = None
            sets.setdefault(entry.address, CoverSet()).add(make_want(*wish(number), wishes.scope()))
    for level in (1, 2):
        for unit in [unit for unit in sets if len(unit) == levels - level + 1]:
            climbing = sets.setdefault(unit[:-1], CoverSet())
            for want in sets[unit].told.values():
                if want.scope > level:
                    climbing.add(want)
    units = dict.fromkeys(entry.address[:size] for entry in network.brokers for size in range(1, levels - 1))
    around = Counter(unit[:-1] for unit in units)  # units that are known by digests, by the unit around them
    limits = {unit: digest_limit(sum(around[unit[:size]] for size in range(levels - 2))) for unit in units}
    digests = {unit: fitted(_parts(wants), limits[unit]) for unit, wants in sets.items() if len(unit) == levels - 2}
    for level in range(3, levels):
        for parent in dict.fromkeys(unit[:-1] for unit in digests if len(unit) == levels - level + 1):
            merged = merge_digests(*(parts for unit, parts in digests.items() if unit[:-1] == parent))
            digests[parent] = fitted([part for part in merged if part.scope > level], limits[parent])
    rows: Counter[Unit] = Counter()  # by the unit around
    sizes: Counter[Unit] = Counter()
    for unit, wants in sets.items():
        rows[unit[:-1]] += len(wants.told) if len(unit) > levels - 2 else 0
    for unit, parts in digests.items():
        sizes[unit[:-1]] += size_of(parts)
    held = [sum(rows[entry.address[:size]] for size in range(levels)) for entry in network.brokers]
    kib = [sum(sizes[entry.address[:size]] for size in range(levels)) / 1024 for entry in network.brokers]
    return {
        "network": network.name,
        "brokers": len(held),
        "rows_mean": fmean(held),
        "rows_max": max(held),
        "digest_kib_mean": fmean(kib),
        "digest_kib_max": max(kib),
        "false_positives_super_cluster": let_through([p for u, p in digests.items() if len(u) == levels - 2]),
        "false_positives_above": let_through([p for u, p in digests.items() if len(u) < levels - 2]),
    }


def _parts(wants: CoverSet) -> list[DigestPart]:
    by_scope: dict[int, list[Want]] = {}
    for want in wants.told.values():
        by_scope.setdefault(want.scope, []).append(want)
    return [make_part(scope, by_scope[scope]) for scope in sorted(by_scope)]


def worst(atoms: int) -> dict[str, Any]:
    """A full network of fan-out 32 in which every unit wants so many different things in each scope."""
    host, fanout = (0, 0, 0, 0), 32
    filters = {
        scope: make_part(scope, [make_want("topic", f"{scope}/{number}", scope) for number in range(atoms)])
        for scope in range(DIGEST_LEVEL + 1, len(host) + 1)
    }
    table, told = InterestTable(host), []
    for level in range(DIGEST_LEVEL, len(host)):
        parts = tuple(filters[scope] for scope in range(level + 1, len(host) + 1))
        for number in range(fanout):
            unit = (*host[: len(host) - level - 1], number)
            table.learn_digest(Digest(unit, (1, (*unit, *(0,) * level), 1), parts), None)
            told.append(parts)
    kept = [digest.parts for digest in map(table.digest, table.units()) if digest is not None]
    return {
        "units": len(told),
        "wants_in_each_scope": atoms,
        "kib_told": sum(map(size_of, told)) / 1024,
        "kib_kept": sum(map(size_of, kept)) / 1024,
        "false_positives_told": let_through(told[::fanout]),
        "false_positives_kept": let_through(kept[::fanout]),
    }


def let_through(digests: Sequence[Sequence[DigestPart]]) -> float:
    """The share of digests that let through an event that nobody wants."""
    tests = [[DigestTest(part) for part in parts] for parts in digests]
    events = [event_atoms(Event(topic=f"nobody/{number}")) for number in range(QUESTIONS)]
    told = sum(any(test.may_want(atoms) for test in parts) for parts in tests for atoms in events)
    return told / (len(tests) * len(events)) if tests else 0.0


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title)
    columns = [name for name in rows[0] if name != "frames_by_type"]
    for name in columns:
        table.add_column(name.replace("_", " "), justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(_text(row[name]) for name in columns))
    Console(width=max(170, Console().width)).print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, nargs="+", default=[78, 500, 3000])
    parser.add_argument("--constraints", type=int, default=100)
    parser.add_argument("--scoped", type=float, default=0.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    rows = [computed(draw_network(size), arguments.constraints, arguments.scoped) for size in arguments.brokers]
    crowded = [worst(atoms) for atoms in CROWDED]
    if arguments.json:
        print(json.dumps({"python": platform.python_version(), "rows": rows, "worst": crowded}))
    else:
        print_table("what a broker holds, computed", rows)
        print_table("digests in a full network of fan-out 32", crowded)
    most = max([*(row["digest_kib_max"] for row in rows), *(row["kib_kept"] for row in crowded)])
    return int(arguments.check and most > MAX_DIGEST_KIB)


if __name__ == "__main__":
    sys.exit(main())
