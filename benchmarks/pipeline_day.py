"""200,000 events, 5,000 profiles of all engines, 22 broker processes, archived while it runs, kills; then the audit.

    python benchmarks/pipeline_day.py [--events 200000] [--profiles 5000] [--rate 500] [--directory DIR] [--json]

Where it stands is told on standard error, on a terminal in one line, otherwise every ten seconds. Ctrl-C (or TERM) ends
it with what was reached. Exit code 1 when the audit found anything, did not see what the clients saw, or did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from veena.bench.endurance.day import Day, Plan, shown
from veena.bench.progress import progress
from veena.runtime.networks.file import load_network

NETWORK = Path(__file__).parents[1] / "networks" / "ges-22.toml"


def main() -> int:
    usual = Plan()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, default=NETWORK)
    parser.add_argument("--events", type=int, default=usual.events)
    parser.add_argument("--profiles", type=int, default=usual.profiles)
    parser.add_argument("--clients", type=int, default=usual.clients)
    parser.add_argument("--rate", type=float, default=usual.per_second, help="events a second; 0 for as fast as can be")
    parser.add_argument("--driver-kills", type=int, default=usual.driver_kills)
    parser.add_argument("--broker-kills", type=int, default=usual.broker_kills)
    parser.add_argument("--master", default=usual.master, help="where Spark runs")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--directory", type=Path, help="where everything is left; otherwise it is removed")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    plan = Plan(
        events=given.events, profiles=given.profiles, clients=given.clients, per_second=given.rate,
        driver_kills=given.driver_kills, broker_kills=given.broker_kills, master=given.master, seed=given.seed,
    )  # fmt: skip
    network = load_network(given.network, connected=True)
    signal.signal(signal.SIGTERM, _interrupt)
    with progress() as say, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        day = Day(network, given.directory or Path(temporary), plan, say)
        outcome = day.outcome
        try:
            asyncio.run(day.run())
        except KeyboardInterrupt:
            print("interrupted; this is what was reached:", file=sys.stderr)
    if given.as_json:
        print(json.dumps(outcome.as_dict()))
    else:
        table = Table("what", "found", title=f"{network.name}: a day with its archive, seed {plan.seed}")
        for name, value in shown(outcome, plan).items():
            table.add_row(name, value)
        Console().print(table)
    return 0 if outcome.is_sound else 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
