"""What the threads of the log service do: answer one question of one reader, over a connection of their own.

Every block is a transaction of its own, so that nobody who reads for hours keeps SQLite's write-ahead log from being
carried over. Whether rows were given up is looked at in the same transaction as the rows: what is read is whole, or the
reader is told of the gap.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from veena.core.wire.event import EventCodec
from veena.core.wire.log_tables import LogTest
from veena.runtime.export.columns import Block
from veena.runtime.export.events import PASSED_EVENTS, RELIABLE_EVENTS, EventReader, EventRows
from veena.runtime.export.records import RecordReader
from veena.runtime.store.file import connect
from veena.runtime.store.positions import SPARSE_BELOW


@dataclass(frozen=True, slots=True)
class Keys:
    """How a table is numbered: its name, and its columns of number and time."""

    table: str
    offset: str
    at: str
    #: In `meta`, once something of the table was given up: what comes next.
    following: str


KEYS = {
    "events": Keys("log", "offset", "peak_ns", "next_offset"),
    "passed": Keys("passed", "number", "at_ns", "next_passed"),
    "deliveries": Keys("deliveries", "number", "at_ns", "next_deliveries"),
    "hops": Keys("hops", "number", "at_ns", "next_hops"),
    "profiles": Keys("profiles", "number", "at_ns", "next_profiles"),
}


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows were given up that a read would have come to."""

    asked: int
    first: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a read is about."""

    table: str
    columns: tuple[str, ...]
    sieve: Callable[[EventRows], EventRows]
    tests: tuple[LogTest, ...]
    max_rows: int
    max_bytes: int


class LogReading:
    """The tables of one store, for one thread."""

    def __init__(self, path: Path, codec: EventCodec) -> None:
        self._connection = connect(path, read_only=True)
        self._events = {
            "events": EventReader(self._connection, codec, RELIABLE_EVENTS, str(path)),
            "passed": EventReader(self._connection, codec, PASSED_EVENTS, str(path)),
        }

        self._records = RecordReader(self._connection)

    def close(self) -> None:
        self._connection.close()

    def ends(self, table: str) -> tuple[int, int]:
        """The first row that is kept, and what comes next."""
        with self._moment():
            return self._ends(table)

    def offset_at(self, table: str, at_ns: int) -> int:
        """The first row of that time or later. Times of records may be out of order by as much as they waited."""
        keys = KEYS[table]
        with self._moment():
            low, high = self._ends(table)
            while low < high:
                middle = (low + high) // 2
                found = self._connection.execute(
                    f"SELECT {keys.offset}, {keys.at} FROM {keys.table} WHERE {keys.offset} >= ?"  # noqa: S608 (ours)
                    f" ORDER BY {keys.offset} LIMIT 1",
                    (middle,),
                ).fetchone()
                if found is None or found[1] >= at_ns:
                    high = middle
                else:
                    low = int(found[0]) + 1
            return low

    def block(self, wanted: Wanted, start: int, end: int) -> Block | Gap:
        """The next rows of a read."""
        with self._moment():
            first, following = self._ends(wanted.table)
            if start < first and start < end and self._was_cut(wanted.table):
                return Gap(start, first)
            events = self._events.get(wanted.table)
            end = min(end, following)
            if events is not None:
                with_times = "at" in wanted.columns or any(test.column == "at" for test in wanted.tests)
                return events.block(
                    start, end, wanted.columns, wanted.sieve, wanted.max_rows, wanted.max_bytes, with_times
                )  # fmt: skip
            return self._records.block(
                wanted.table, start, end, wanted.columns, wanted.tests, wanted.max_rows,
                wanted.max_bytes,
            )  # fmt: skip

    def _ends(self, table: str) -> tuple[int, int]:
        keys = KEYS[table]
        first, last = self._connection.execute(
            f"SELECT (SELECT min({keys.offset}) FROM {keys.table}), (SELECT max({keys.offset}) FROM {keys.table})"  # noqa: S608
        ).fetchone()
        noted = self._connection.execute("SELECT value FROM meta WHERE name = ?", (keys.following,)).fetchone()
        following = max(0 if last is None else last + 1, 0 if noted is None else noted[0])
        first = following if first is None else first
        if table == "events":  # below that there is nothing but what is kept for durable subscriptions
            begins = self._connection.execute("SELECT value FROM meta WHERE name = ?", (SPARSE_BELOW,)).fetchone()
            first = max(first, 0 if begins is None else begins[0])
        return first, following

    def _was_cut(self, table: str) -> bool:
        """Whether something was given up: otherwise the first numbers were never used."""
        found = self._connection.execute("SELECT 1 FROM meta WHERE name = ?", (KEYS[table].following,)).fetchone()
        return found is not None

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """Everything inside sees the same state."""
        self._connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
