"""10^6 events of a broker's log, archived, then aggregated by Spark in 512 MiB of heap (DIS-21).

    python benchmarks/pipeline_aggregate.py [--events 1000000] [--memory-mib 512] [--json]

A broker serves a log that was filled before, `veena pipeline archive` makes an archive of it, and another Spark with
little memory counts and compares all of it by topic and counts its ids. Exit code 1 when a number is wrong or more
memory was taken than the heap and what Java and Python need beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from veena.spark.bench.aggregate import BESIDE_MIB, MEMORY_MIB
from veena.spark.bench.read import BODY_BYTES, ReadProcess, fill

#: The topics of `fill`.
TOPICS = 1000


def archived(directory: Path, events: int, say: Console) -> Path:
    """The archive of a log with so many events."""
    started = time.monotonic()
    fill(directory / "data", events)
    say.print(f"a log of {events:,} events: {time.monotonic() - started:.0f} s")
    arguments = ("broker", "run", "--json", "--until-stdin-closes", "--listen", "veena://127.0.0.1:0", "--data")
    with ReadProcess("veena.cli", *arguments, str(directory / "data")) as broker:
        url = str(json.loads(broker.line())["url"])
        broker.line()  # it is ready
        started = time.monotonic()
        command = ["pipeline", "archive", "--url", url, "--out", str(directory / "archive"), "--once"]
        subprocess.run(
            [sys.executable, "-m", "veena.cli", *command, "--tables", "events", "--master", "local[2]"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    say.print(f"its archive: {time.monotonic() - started:.0f} s")
    return directory / "archive"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--memory-mib", type=int, default=MEMORY_MIB)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="veena-bench-") as temporary:
        path = archived(Path(temporary), given.events, Console(stderr=True))
        size_mib = sum(file.stat().st_size for file in path.rglob("*.parquet")) / 2**20
        job = [sys.executable, "-m", "veena.spark.bench.aggregate", str(path), "--memory-mib", str(given.memory_mib)]
        output = subprocess.run(job, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(output.splitlines()[-1])
    topics = min(TOPICS, given.events)
    expected = (given.events, given.events, topics, given.events * BODY_BYTES)
    is_right = (found["events"], found["distinct"], found["topics"], found["body_bytes"]) == expected
    if given.as_json:
        print(json.dumps({**found, "archive_mib": round(size_mib, 1), "is_right": is_right}))
    else:
        table = Table("what", "found", title=f"{given.events:,} events in {given.memory_mib} MiB of heap")
        for name, value in found.items():
            table.add_row(name.replace("_", " "), f"{value:,}")
        table.add_row("archive", f"{size_mib:.1f} MiB of Parquet")
        table.add_row("bound", f"{given.memory_mib + BESIDE_MIB} MiB, Java and Python together")
        table.add_row("all numbers as they were published", str(is_right))
        Console().print(table)
    return 0 if is_right and found["is_within_bound"] else 1


if __name__ == "__main__":
    sys.exit(main())
