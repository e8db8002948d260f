"""A bad minute for 22 broker processes: `kill -9`, cut links, roaming clients; every delivery is checked.

    python benchmarks/chaos.py [--network FILE] [--seconds 60] [--rate 500] [--copies 2] [--seed 1] [--json]

Where it stands is told on standard error. Exit code 1 when a delivery is missing, came twice or out of order; 2 when it
could not be carried out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from veena.bench.endurance.chaos import Chaos, Plan, shown
from veena.bench.progress import progress
from veena.errors import VeenaError
from veena.runtime.networks.file import load_network

NETWORK = Path(__file__).parents[1] / "networks" / "ges-22.toml"


def main() -> int:
    usual = Plan()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, default=NETWORK)
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="how long events are published")
    parser.add_argument("--rate", type=float, default=usual.per_second, help="events a second, of all publishers")
    parser.add_argument("--subscribers", type=int, default=usual.subscribers)
    parser.add_argument("--match", type=int, default=usual.match_percent, help="per cent of events that each wants")
    parser.add_argument("--kills", type=int, default=usual.kills)
    parser.add_argument("--cuts", type=int, default=usual.cuts)
    parser.add_argument("--roamers", type=int, default=usual.roamers)
    parser.add_argument("--copies", type=int, default=usual.copies, choices=(1, 2), help="disks for each event")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--directory", type=Path, help="where the brokers' files are left; otherwise they are removed")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    plan = Plan(
        seconds=given.seconds, per_second=given.rate, subscribers=given.subscribers, roamers=given.roamers,
        kills=given.kills, cuts=given.cuts, match_percent=given.match, copies=given.copies, seed=given.seed,
    )  # fmt: skip
    try:
        network = load_network(given.network, connected=True)
        if reason := plan.why_not(network):
            parser.error(reason)
        with progress() as say, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
            outcome = asyncio.run(Chaos(network, given.directory or Path(temporary), plan, say).run())
    except KeyboardInterrupt:
        return 130
    except (VeenaError, OSError, ExceptionGroup) as error:
        first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        print(f"not carried out: {first}", file=sys.stderr)
        return 2
    if given.as_json:
        print(json.dumps(outcome.as_dict()))
    else:
        table = Table("what", "found", title=f"{network.name}: {plan.kills} kills, {plan.cuts} cuts, seed {plan.seed}")
        for name, value in shown(outcome, plan).items():
            table.add_row(name, value)
        Console().print(table)
        for fault in outcome.faults:
            Console().print(fault, soft_wrap=True)
    return 0 if outcome.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
