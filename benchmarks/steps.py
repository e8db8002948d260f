"""How long one step of a broker's event loop takes, for each action of clients and neighbours at its largest size.

    python benchmarks/steps.py [--only TEXT ...] [--json] [--limit 50]

Each action has a broker process of its own. Printed is the CPU time of its longest step, and what that step was; exit
code 1 when one is above the limit, in milliseconds, or an action did not come to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from veena.bench.progress import progress
from veena.bench.steps.actions import ACTIONS, measure_all


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="actions whose names contain one of these")
    parser.add_argument("--limit", type=float, default=50.0, help="what no step may exceed, in ms")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    wanted = [name for name in ACTIONS if any(text in name for text in given.only)]
    with progress() as say, tempfile.TemporaryDirectory() as temporary:
        found = asyncio.run(measure_all(wanted, Path(temporary), say))
    if given.as_json:
        print(json.dumps([asdict(each) for each in found]))
    else:
        table = Table("action", "longest step, ms", "above 50 ms", "what it was")
        for each in sorted(found, key=lambda each: -each.longest_ms):
            told = each.step + (f" [red]{each.fault}[/]" if each.fault else "")
            table.add_row(each.action, f"{each.longest_ms:.1f}", str(each.over_limit or ""), told)
        Console().print(table)
    return 0 if all(each.longest_ms <= given.limit and not each.fault for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
