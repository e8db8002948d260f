"""What the store adds to bare SQLite: rows a second at several rows a commit, and how long one synced commit takes.

    python benchmarks/store.py [--directory DIR] [--seconds S]

Both write the same frames to the same disk in one run: first the prototype, one `executemany` a transaction on
one thread, then the store, with its tickets, checksums, notes and answers. The ratio is what counts: the rest is the
disk's. The last lines are about reading back: ranges as the core asks for them, beside a bare SELECT.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from veena.core.boundary.inputs_effects import LogRead, Read
from veena.core.boundary.inputs_effects import Store as StoreEffect
from veena.core.boundary.settings import READ_BATCH
from veena.core.boundary.stored import Entry
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId
from veena.runtime.store.file import connect
from veena.runtime.store.store import Answer, Store

CODEC = EventCodec(4, 32)
#: 86 bytes of header: with this the frame has 200 bytes.
BODY = b"x" * 86


def event_frame() -> EventFrame:
    event = Event(topic="quotes", body=BODY, event_id=EventId("alice", 7, 1000, 1), timestamp_ns=1)
    return CODEC.frame(event, reliable=True, origin=(0, 0, 0, 1), to_serve=1)


def bare(path: Path, rows: int, seconds: float) -> float:
    """Rows a second of one `executemany` a synced transaction."""
    data = CODEC.encode(event_frame(), 0)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS log (offset INTEGER PRIMARY KEY, accepted_ns, frame BLOB)")
        offset, begin = 0, time.perf_counter()
        while (taken := time.perf_counter() - begin) < seconds:
            connection.execute("BEGIN IMMEDIATE")
            found = [(at, at, data) for at in range(offset, offset + rows)]
            connection.executemany("INSERT INTO log VALUES (?, ?, ?)", found)
            connection.execute("COMMIT")
            offset += rows
    return offset / taken


class Publisher:
    """Keeps a number of tickets open at a store, as a core does that has many publishers."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path, self._take)
        self._answered = threading.Semaphore(0)
        self.found: LogRead | None = None

    def _take(self, answers: list[Answer]) -> None:
        for each in answers:
            if isinstance(each, LogRead):
                self.found = each
        self._answered.release(len(answers))

    def write(self, rows: int, seconds: float) -> float:
        """Rows a second with one row a ticket, and two transactions' worth of tickets under way."""
        frame = event_frame()
        begin, offset = time.perf_counter(), 0
        ahead = rows if rows == 1 else 2 * rows
        for _ in range(ahead):
            self.store.submit(StoreEffect(offset, (Entry(offset, frame, offset),)))
            offset += 1
        while (taken := time.perf_counter() - begin) < seconds:
            self._answered.acquire()
            self.store.submit(StoreEffect(offset, (Entry(offset, frame, offset),)))
            offset += 1
        for _ in range(ahead):
            self._answered.acquire()
        return (offset - ahead) / taken

    def read(self) -> float:
        """Entries a second, range by range."""
        offset, begin = 0, time.perf_counter()
        while True:
            self.store.submit(Read(1, offset, READ_BATCH))
            self._answered.acquire()
            assert self.found is not None
            if len(self.found.entries) < READ_BATCH:
                break
            offset = self.found.entries[-1].offset + 1
        return offset / (time.perf_counter() - begin)


def bare_read(path: Path) -> float:
    offset, begin = 0, time.perf_counter()
    with closing(connect(path, read_only=True)) as connection:
        while True:
            rows = connection.execute(
                "SELECT offset, accepted_ns, frame FROM log WHERE offset >= ? ORDER BY offset LIMIT ?",
                (offset, READ_BATCH),
            ).fetchall()
            if len(rows) < READ_BATCH:
                break
            offset = rows[-1][0] + 1
    return offset / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--directory", type=Path, default=None, help="on the disk to measure; a temporary one if not given"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(dir=given.directory))
    try:
        for rows in (1, 10, 100, 1000):
            prototype = bare(home / f"bare-{rows}.db", rows, given.seconds)
            publisher = Publisher(home / f"store-{rows}")
            with publisher.store:
                stored = publisher.write(rows, given.seconds)
                commits = publisher.store.statistics().commits
                line = {
                    "rows_a_commit": rows,
                    "bare_rows_per_s": round(prototype),
                    "bare_commit_ms": round(1000 * rows / prototype, 3),
                    "store_rows_per_s": round(stored),
                    "store_rows_a_commit": round(publisher.store.statistics().stored / commits, 1),
                    "ratio": round(stored / prototype, 2),
                }
                print(json.dumps(line), flush=True)
                if rows == 1000:
                    reading, plain = publisher.read(), bare_read(publisher.store.path)
                    line = {
                        "bare_reads_per_s": round(plain),
                        "store_reads_per_s": round(reading),
                        "ratio": round(reading / plain, 2),
                    }
                    print(json.dumps(line), flush=True)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
