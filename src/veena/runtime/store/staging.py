"""Staged batches in the store: rows that wait for their batch, and how far each query is
(`core.publishing.batch_release`).

They are written by the one thread that writes everything else, so that a chunk of rows leaves its table in the very
transaction that puts its events into the log. Rows that came together stay together: one row of the table a chunk, with
a checksum.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from veena.core.boundary.staging import (
    BatchPublished,
    PartsDropped,
    QueriesForgotten,
    Staged,
    StageWrite,
    Unstaged,
)
from veena.errors import StoreError
from veena.runtime.store.faults import DROP_DAMAGED
from veena.runtime.store.file import connect
from veena.runtime.store.schema import signed, unsigned

_NEW_PART = """INSERT OR IGNORE INTO staged_parts (part, owner, publisher, query, batch, name, at_ns, row_count, bytes)
    VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)"""
_MORE = "UPDATE staged_parts SET row_count = row_count + ?, bytes = bytes + ?, at_ns = ? WHERE part = ?"
_ROWS = "INSERT INTO staged (part, first, row_count, checksum, frames) VALUES (?, ?, ?, ?, ?)"
_PUBLISH = "UPDATE staged_parts SET turn = ?, incarnation = ?, stamp = ?, sequence = ? WHERE part = ?"
#: With the bytes that are still there: of a part that is being released some have gone.
_PARTS = """SELECT part, owner, publisher, query, batch, name, at_ns, row_count,
    (SELECT coalesce(sum(length(frames)), 0) FROM staged WHERE staged.part = staged_parts.part), turn, incarnation,
    stamp, sequence FROM staged_parts ORDER BY turn, sequence, part"""
_QUERY = "INSERT OR REPLACE INTO staged_queries VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def write(connection: sqlite3.Connection, given: StageWrite) -> None:
    """One write, within a transaction that the caller has begun."""
    _WRITERS[type(given)](connection, given)


def _stage(connection: sqlite3.Connection, given: Staged) -> None:
    part = (given.part, given.owner, given.publisher, given.query, given.batch, given.name, given.at_ns)
    connection.execute(_NEW_PART, part)
    connection.execute(_ROWS, (given.part, given.first, given.rows, crc32(given.data), given.data))
    connection.execute(_MORE, (given.rows, len(given.data), given.at_ns, given.part))


def _publish(connection: sqlite3.Connection, given: BatchPublished) -> None:
    incarnation, stamp = signed(given.incarnation), signed(given.stamp)
    connection.executemany(
        _PUBLISH, [(given.turn, incarnation, stamp, sequence, part) for part, sequence in given.parts]
    )
    connection.execute(
        _QUERY,
        (given.owner, given.query, given.publisher, incarnation, given.batch, stamp, given.at_ns, given.lasting),
    )


def _drop(connection: sqlite3.Connection, given: PartsDropped) -> None:
    parts = [(part,) for part in given.parts]
    connection.executemany("DELETE FROM staged WHERE part = ?", parts)
    connection.executemany("DELETE FROM staged_parts WHERE part = ?", parts)


def _forget(connection: sqlite3.Connection, given: QueriesForgotten) -> None:
    connection.executemany("DELETE FROM staged_queries WHERE owner = ? AND query = ?", given.queries)


def _unstage(connection: sqlite3.Connection, given: Unstaged) -> None:
    connection.execute("DELETE FROM staged WHERE part = ? AND first = ?", (given.part, given.first))
    if given.last:
        connection.execute("DELETE FROM staged_parts WHERE part = ?", (given.part,))


_WRITERS: dict[type[StageWrite], Callable[[sqlite3.Connection, Any], None]] = {
    Staged: _stage,
    BatchPublished: _publish,
    PartsDropped: _drop,
    QueriesForgotten: _forget,
    Unstaged: _unstage,
}
STAGE_WRITES = tuple(_WRITERS)


@dataclass(frozen=True, slots=True)
class PartRow:
    """A part as the disk has it; `turn` is 0 before its batch is published."""

    part: int
    owner: str
    publisher: str
    query: str
    batch: int
    name: bytes
    at_ns: int
    rows: int
    bytes: int
    turn: int
    incarnation: int
    stamp: int
    sequence: int


@dataclass(frozen=True, slots=True)
class QueryRow:
    """How far a query is."""

    owner: str
    query: str
    publisher: str
    incarnation: int
    batch: int
    stamp: int
    used_ns: int
    lasting: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that came together; `last` when the part has none behind them."""

    first: int
    rows: int
    data: bytes
    last: bool


class StagingQuery:
    """Reading what is staged, on a connection of its own. One thread uses it at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path, read_only=True)

    def close(self) -> None:
        self._connection.close()

    def parts(self) -> list[PartRow]:
        rows = self._connection.execute(_PARTS).fetchall()
        return [PartRow(*row[:10], *map(unsigned, row[10:12]), *row[12:]) for row in rows]

    def queries(self) -> list[QueryRow]:
        rows = self._connection.execute("SELECT * FROM staged_queries").fetchall()
        return [
            QueryRow(owner, query, publisher, unsigned(incarnation), batch, unsigned(stamp), used_ns, bool(lasting))
            for owner, query, publisher, incarnation, batch, stamp, used_ns, lasting in rows
        ]

    def chunk(self, part: int) -> Chunk | None:
        """The first rows of a part that are still staged; raises StoreError where they are damaged."""
        found = self._connection.execute(
            "SELECT first, row_count, checksum, frames FROM staged WHERE part = ? ORDER BY first LIMIT 1", (part,)
        ).fetchone()
        if found is None:
            return None
        first, rows, checksum, data = found
        if crc32(data) != checksum:
            reason = f"staged rows from {first} on of part {part} are damaged (their checksum is wrong)"
            raise StoreError(str(self._path), reason, DROP_DAMAGED)
        behind = self._connection.execute(
            "SELECT 1 FROM staged WHERE part = ? AND first > ? LIMIT 1", (part, first)
        ).fetchone()
        return Chunk(first, rows, data, behind is None)
