"""Abuse one broker process in every way, while two honest clients go on; see what it does and what it costs.

    python benchmarks/hostile.py [--connections 10000] [--json]

Where it stands is told on standard error. Exit code 1 when an honest client lost something, deliveries stood still, or
the memory is not back.
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

from veena.bench.endurance.hostile import Hostile
from veena.bench.progress import progress


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000, help="how many are opened and closed")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    with progress() as say, tempfile.TemporaryDirectory() as temporary:
        report = asyncio.run(Hostile(Path(temporary), say, given.connections).run())
    if given.as_json:
        print(json.dumps(report.as_dict()))
    else:
        table = Table("attack", "what became of it", "s", "log lines", "left out", "longest wait of others, s", "MiB")
        for trial in report.trials:
            waited = f"{trial.longest_wait_s:g}"
            told = (str(trial.log_lines), str(trial.left_out))
            table.add_row(trial.name, trial.outcome, f"{trial.seconds:g}", *told, waited, f"{trial.memory_mib:g}")
        Console().print(table)
        print(
            f"memory {report.before_mib} MiB before, {report.after_mib} after; honest events missing: {report.missing}"
        )
    return 0 if report.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
