"""How fast one reader gets a broker's events as Arrow: rows a second, and what a row costs the broker and the reader.

    python benchmarks/log_reading.py --events 400000

One broker as a process with so many events of 100 bytes in its log, one reader in this process. Three workloads: all
events alike, 200 topics with bodies of different lengths, and the same with three properties that differ in each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veena.core.boundary.stored import Entry, Identity
from veena.core.wire.event import EventCodec
from veena.event import Event, EventId
from veena.runtime.store.store import Store
from veena.spark.log.client import LogClient

CODEC = EventCodec(4, 32)
HERE = Identity("bench", (0, 0, 0, 0), 1)
CONFIG = '[broker]\nname = "bench"\naddress = "0.0.0.0"\nlisten = ["tcp://127.0.0.1:0"]\n[store]\npath = "store"\n'
WORKLOADS = ("alike", "topics", "properties")
READS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("id, topic, body", {"columns": ["id", "topic", "body"]}),
    ("with properties", {"columns": ["id", "topic", "body", "properties"]}),
    ("1 % by selector", {"columns": ["id", "topic", "body"], "selector": ""}),
)
#: Entries that are written at once.
WRITTEN = 5000


def event(workload: str, number: int) -> Event:
    is_alike = workload == "alike"
    return Event(
        topic="quotes" if is_alike else f"quotes.{number % 200}",
        properties={"price": number / 7, "sym": "IBM", "n": number} if workload == "properties" else {},
        body=b"x" * (100 if is_alike else 90 + number % 20),
        event_id=EventId("alice", 7, 1000, number),
        timestamp_ns=time.time_ns(),
    )


def fill(directory: Path, workload: str, events: int) -> None:
    with Store(directory, lambda answers: None) as store:
        store.load(HERE)
        for first in range(0, events, WRITTEN):
            store.save(
                *(
                    Entry(at, CODEC.frame(event(workload, at), reliable=True, origin=HERE.address), time.time_ns())
                    for at in range(first, min(first + WRITTEN, events))
                )
            )


@contextmanager
def broker(directory: Path) -> Iterator[tuple[str, int]]:
    """Its URL and its process."""
    (directory / "broker.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "veena.cli", "broker", "run", "--json", "--until-stdin-closes"]
    with subprocess.Popen(
        [*command, "--config", str(directory / "broker.toml")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdin is not None
        yield json.loads(process.stdout.readline())["url"], process.pid
        process.stdin.close()


def cpu_s(pid: int) -> float:
    """What a process has used; Linux alone says so here."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--workload", choices=WORKLOADS, nargs="*", default=list(WORKLOADS))
    given = parser.parse_args()
    for workload in given.workload:
        with tempfile.TemporaryDirectory(prefix="veena-bench-") as name:
            fill(Path(name) / "store", workload, given.events)
            with broker(Path(name)) as (url, pid), LogClient(url) as log:
                ends = log.ends("events")
                sum(batch.num_rows for batch in log.read("events", 0, ends.next, columns=["id"]))  # warm
                for title, asked in READS:
                    if "selector" in asked and workload != "properties":
                        continue
                    options = {**asked, **({"selector": f"n < {given.events // 100}"} if "selector" in asked else {})}
                    began, own, its = time.perf_counter(), time.process_time(), cpu_s(pid)
                    rows = sum(batch.num_rows for batch in log.read("events", 0, ends.next, **options))
                    taken = time.perf_counter() - began
                    print(
                        f"{workload:10} {title:16} {given.events / taken:>9,.0f} rows/s looked at, {rows:>7,} sent;"
                        f" us a row: broker {(cpu_s(pid) - its) / given.events * 1e6:.2f},"
                        f" reader {(time.process_time() - own) / given.events * 1e6:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
