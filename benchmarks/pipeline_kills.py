"""An archive whose driver and brokers are killed at random: every row is there once, no reader sees a torn file.

    python benchmarks/pipeline_kills.py [--kills 20] [--brokers 3] [--rate 500] [--seed 1] [--json]

Brokers and driver are processes and are ended by `kill -9`: the driver, a broker, or both. Meanwhile events are
published, and somebody reads the archive by its manifest all the time. In the end every event that a broker
acknowledged must be in the archive once, and those it did not answer for at most once. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console

import veena.testing
from veena import blocking
from veena.core.wire.section import decode_section
from veena.errors import VeenaError
from veena.event import EventId
from veena.spark.archive import archive
from veena.spark.archive.manifest import load

#: Longer than starting a Spark takes on a busy machine.
PATIENCE_S = 300.0
#: How long a broker that was killed stays away.
AWAY_S = 1.0

Key = tuple[str, int]


class Publisher(threading.Thread):
    """Publishes at one broker, as fast as it should, and knows what was acknowledged."""

    def __init__(self, name: str, url: str, per_second: float) -> None:
        super().__init__(name=name)
        self.url = url
        self.pause_s = 1 / per_second
        self.acknowledged: list[int] = []
        self.tried = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(VeenaError), blocking.connect(self.url, client_id=self.name, timeout=5.0) as client:
                while not self.over.wait(self.pause_s):
                    number, self.tried = self.tried, self.tried + 1
                    client.publish(topic=f"t{number % 10}", properties={"n": number}, body=b"b" * 100, reliable=True)
                    self.acknowledged.append(number)


class Onlooker(threading.Thread):
    """Reads the archive by its manifest over and over, as another program would."""

    def __init__(self, out: Path) -> None:
        super().__init__(name="onlooker")
        self.out = out
        self.torn: list[str] = []
        self.looked = 0
        self.over = threading.Event()
        self._seen: set[str] = set()

    def run(self) -> None:
        while not self.over.wait(0.02):
            manifest = load(self.out, "events")
            for file in manifest.files if manifest is not None else ():
                if file.path in self._seen:
                    continue
                self._seen.add(file.path)
                self.looked += 1
                try:
                    rows = pq.read_table(self.out / "events" / file.path, columns=["id"], partitioning=None).num_rows
                except Exception as error:  # whatever a reader would see
                    self.torn.append(f"{file.path}: {error}")
                    continue
                if rows != file.rows:
                    self.torn.append(f"{file.path}: {rows} rows instead of {file.rows}")


class Driver:
    """`veena pipeline archive` as a process, begun again after each kill."""

    def __init__(self, urls: tuple[str, ...], out: Path) -> None:
        self.command = [
            sys.executable,
            "-m",
            "veena.cli",
            "pipeline",
            "archive",
            "--out",
            str(out),
            "--tables",
            "events",
        ]
        for url in urls:
            self.command += ["--url", url]
        self.command += ["--rows-per-batch", "500", "--compact", "--memory", "1g", "--json"]
        self.out = out
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        with (self.out.parent / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, *more], start_new_session=True, stdout=subprocess.DEVNULL, stderr=log
            )

    def kill(self) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_commits(self, count: int) -> None:
        """Until so many commits are made beyond those of now; a driver that ended by itself is a failure."""
        assert self.process is not None
        until, deadline = self.commits() + count, time.monotonic() + PATIENCE_S
        while self.commits() < until:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the driver got nowhere: see {self.out.parent / 'driver.log'}")
            time.sleep(0.02)

    def commits(self) -> int:
        manifest = load(self.out, "events")
        return 0 if manifest is None else manifest.commits


def run(brokers: int, kills: int, per_second: float, seed: int, directory: Path) -> dict[str, object]:
    """Everything, and what was found."""
    chance = random.Random(seed)
    out = directory / "archive"
    killed: Counter[str] = Counter()
    with veena.testing.network(brokers=brokers, processes=True, directory=directory / "network") as net:
        publishers = [
            Publisher(f"p-{label}", url, per_second / brokers) for label, url in zip(net.brokers, net.urls, strict=True)
        ]
        onlooker, driver = Onlooker(out), Driver(net.urls, out)
        for thread in (*publishers, onlooker):
            thread.start()
        try:
            driver.start("--trigger", "200ms")
            for _ in range(kills):
                driver.wait_commits(1)
                time.sleep(chance.uniform(0, 1.5))
                what = chance.choice(("driver", "broker", "both"))
                killed[what] += 1
                victim = chance.choice(net.brokers)
                if what != "driver":
                    net.kill(victim)
                if what != "broker":
                    driver.kill()
                    driver.start("--trigger", "200ms")
                if what != "driver":
                    time.sleep(chance.uniform(0, AWAY_S))
                    net.restart(victim)
            driver.wait_commits(1)
            driver.kill()
        finally:
            for publisher in publishers:
                publisher.over.set()
            for publisher in publishers:
                publisher.join()
            if driver.process is not None:
                driver.kill()
        driver.start("--once")
        assert driver.process is not None
        code = driver.process.wait(PATIENCE_S)
        onlooker.over.set()
        onlooker.join()
    return {"killed": dict(killed), "last_exit_code": code, **judged(out, publishers, onlooker)}


def judged(out: Path, publishers: list[Publisher], onlooker: Onlooker) -> dict[str, object]:
    """What the archive holds against what was published.

    A client whose broker died before it answered repeats the event under a new id that names the first one: two rows of
    the log, both of which must be archived. They are no duplicates; any other second row of an event is one.
    """
    rows: dict[Key, list[tuple[str, str | None]]] = {}
    ids: Counter[str] = Counter()
    places: Counter[tuple[str, int]] = Counter()
    for path in archive.files(out):
        columns = ["id", "publisher", "properties", "broker", "offset", "section"]
        for row in pq.read_table(path, columns=columns, partitioning=None).to_pylist():
            ids[row["id"]] += 1
            places[row["broker"], row["offset"]] += 1
            original = decode_section(row["section"]).original
            first = None if original is None else str(EventId(row["publisher"], *original))
            rows.setdefault((row["publisher"], int(dict(row["properties"])["n"])), []).append((row["id"], first))
    repeats = sum(first is not None for each in rows.values() for _, first in each)
    unexplained = sum(max(0, sum(first is None for _, first in each) - 1) for each in rows.values())
    wanted = {(publisher.name, number) for publisher in publishers for number in publisher.acknowledged}
    tried = {(publisher.name, number) for publisher in publishers for number in range(publisher.tried)}
    manifest = load(out, "events")
    assert manifest is not None
    return {
        "acknowledged": len(wanted),
        "archived": sum(ids.values()),
        "repeated_by_clients": repeats,
        "missing": len(wanted - rows.keys()),
        "duplicates": sum(count - 1 for count in (*ids.values(), *places.values())) + unexplained,
        "unknown": len(rows.keys() - tried),
        "commits": manifest.commits,
        "files": len(manifest.files),
        "gaps": len(manifest.gaps),
        "files_looked_at": onlooker.looked,
        "torn": onlooker.torn,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rate", type=float, default=500.0, help="events a second, of all publishers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where everything is left; otherwise it is removed")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    began = time.monotonic()
    with Console(stderr=True).status(f"{given.kills} kills"), tempfile.TemporaryDirectory() as temporary:
        directory = (given.directory or Path(temporary)).absolute()
        found = run(given.brokers, given.kills, given.rate, given.seed, directory)
    found["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(found) if given.as_json else "\n".join(f"{name}: {value}" for name, value in found.items()))
    is_sound = not any(found[name] for name in ("missing", "duplicates", "unknown", "torn", "last_exit_code", "gaps"))
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
