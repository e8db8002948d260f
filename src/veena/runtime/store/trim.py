"""Giving up the oldest rows, a few at a time between commits, so that no publisher waits long for it.

What goes is decided in `retention`; this is how it goes. Numbers go on where they were even when a table is
empty after that: the next ones are kept apart.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from veena.runtime.store.audit_records import BLOCK, TABLES
from veena.runtime.store.positions import SPARSE_BELOW, Standing, table_of_reader
from veena.runtime.store.retention import TRIM_AT, Need, Old, Retention, cut
from veena.runtime.store.rows import unpack_inboxes
from veena.runtime.store.trace import trim_notes

#: Rows of one table that go at a time, some milliseconds; more where more come.
ROWS = 1000
#: Of what was left behind for durable subscriptions so many times as many are looked through.
SWEPT = 10
#: Places of streams that the clients have had are looked through once in so many times.
PLACES_EVERY = 12
_SET_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_NO_LIMIT = 1 << 62

#: Table of records -> what a row takes, and the notes that go with it.
_RECORD_SIZES = {
    "passed": ("length(frame) + 40", "passed_by"),
    "deliveries": ("length(clients) + 80", "consumed"),
    "hops": ("100", None),
    "profiles": ("length(condition) + 100", None),
    "notes": ("length(notes) + 40", None),
}


class Trimmer:
    """What is given up of one store. Each call is one transaction that its caller begins and ends."""

    def __init__(self, standing: Standing, rules: Retention, keeps_history: bool, remember_ns: int) -> None:
        self._standing = standing
        self._rules = rules
        self._log_rules = rules if keeps_history else replace(rules, age_ns=0)
        self._remember_ns = remember_ns
        self._rounds = 0
        #: From where what was left behind is looked through next.
        self._swept = 0
        #: Entries that went, for good; and what was needed when that was looked at last.
        self.trimmed = 0
        self.needed_from = standing.needed_from()

    def run(self, connection: sqlite3.Connection, now_ns: int, rows: int = ROWS) -> bool:
        """Give up what is to go now, at most so many rows of each table; whether there may be more."""
        more = [self._trim_records(connection, table, now_ns, rows) for table in TABLES]
        more.append(self._trim_log(connection, now_ns, rows))
        if self._rounds % PLACES_EVERY == 0:
            before_ns = now_ns - self._remember_ns
            for table in ("had", "skips"):
                connection.execute(
                    f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE heard_ns < ? LIMIT ?)",  # noqa: S608
                    (before_ns, ROWS),
                )
            trim_notes(connection, now_ns - self._rules.age_ns, ROWS)
        self._rounds += 1
        return any(more)

    def _trim_log(self, connection: sqlite3.Connection, now_ns: int, limit: int) -> bool:
        """Give up the oldest entries, and leave those behind that durable subscriptions need: a subscription that
        nobody reads holds up what is kept for it, and nothing else."""
        standing = self._standing
        self.needed_from = standing.needed_from()
        need = Need(standing.units_need_from(), standing.wanted_from())
        cursors = standing.cursors_of_inboxes()
        found = connection.execute("SELECT value FROM meta WHERE name = ?", (SPARSE_BELOW,)).fetchone()
        begins = 0 if found is None else int(found[0])
        more = self._sweep(connection, begins, need, cursors, SWEPT * limit)
        rows = connection.execute(
            "SELECT offset, accepted_ns, length(frame), peak_ns, inboxes FROM log WHERE offset >= ? AND offset < ?"
            " ORDER BY offset LIMIT ?",
            (begins, need.needed_from, limit),
        ).fetchall()
        needed = {row[0]: None for row in rows if _is_needed(row[0], row[4], cursors)}
        old = [Old(row[0], row[1], 0 if row[0] in needed else row[2]) for row in rows]
        below = cut(old, used_bytes(connection), need, self._log_rules, now_ns)
        if below is None:
            return more
        passed = [row for row in rows if row[0] < below.below]
        gone = [row for row in passed if row[0] not in needed]
        self._delete(connection, [(row[0], row[4]) for row in gone])
        connection.execute("DELETE FROM produced WHERE block < ?", (below.below // BLOCK,))
        connection.execute(_SET_META, ("next_offset", standing.next_offset))
        connection.execute(_SET_META, (SPARSE_BELOW, below.below))
        connection.execute(_SET_META, ("given_up_ns", passed[-1][3]))
        readers = {name: at for name, at in standing.readers.items() if table_of_reader(name) is None}
        self._count_lost(connection, readers, [row[0] for row in gone])
        return len(passed) == limit or more

    def _sweep(
        self, connection: sqlite3.Connection, begins: int, need: Need, cursors: dict[int, int], limit: int
    ) -> bool:
        """Give up what was left behind and is needed no more, by and by; whether there may be more of it."""
        rows = connection.execute(
            "SELECT offset, inboxes FROM log WHERE offset >= ? AND offset < ? ORDER BY offset LIMIT ?",
            (self._swept, begins, limit),
        ).fetchall()
        is_over = used_bytes(connection) > self._rules.max_bytes * TRIM_AT // 100
        gone = [
            row for row in rows if not _is_needed(row[0], row[1], cursors) and (is_over or row[0] < need.wanted_from)
        ]
        self._delete(connection, gone)
        self._swept = rows[-1][0] + 1 if len(rows) == limit else 0
        return bool(gone) and len(rows) == limit

    def _delete(self, connection: sqlite3.Connection, gone: list[tuple[int, bytes | None]]) -> None:
        listed = [(inbox, offset) for offset, inboxes in gone for inbox in unpack_inboxes(inboxes)]
        connection.executemany("DELETE FROM inbox WHERE inbox = ? AND offset = ?", listed)
        connection.executemany("DELETE FROM log WHERE offset = ?", [(offset,) for offset, _ in gone])
        self.trimmed += len(gone)

    def _count_lost(self, connection: sqlite3.Connection, readers: dict[str, int], gone: list[int]) -> None:
        """What of these rows a reader had not committed."""
        lost = self._standing.lost
        for name, committed in readers.items():
            missed = sum(number >= committed for number in gone)
            if missed:
                lost[name] += missed
                connection.execute("UPDATE readers SET lost = ? WHERE name = ?", (lost[name], name))

    def _trim_records(self, connection: sqlite3.Connection, table: str, now_ns: int, limit: int) -> bool:
        size, notes = _RECORD_SIZES[table]
        rows = connection.execute(
            f"SELECT number, at_ns, {size} FROM {table} ORDER BY number LIMIT ?",  # noqa: S608 (a table of ours)
            (limit,),
        ).fetchall()
        readers = self._standing.readers_of(table)
        need = Need(_NO_LIMIT, min(readers.values(), default=_NO_LIMIT))
        found = cut([Old(*row) for row in rows], used_bytes(connection), need, self._rules, now_ns)
        if found is None:
            return False
        connection.execute(f"DELETE FROM {table} WHERE number < ?", (found.below,))  # noqa: S608
        self._count_lost(connection, readers, [row[0] for row in rows if row[0] < found.below])
        if notes is not None:
            connection.execute(f"DELETE FROM {notes} WHERE block < ?", (found.below // BLOCK,))  # noqa: S608
        connection.execute(_SET_META, (f"next_{table}", self._standing.next_number.get(table, 0)))
        return found.below > rows[-1][0] and len(rows) == limit


def _is_needed(offset: int, inboxes: bytes | None, cursors: dict[int, int]) -> bool:
    """Whether a durable subscription has not acknowledged an entry yet."""
    return any(offset >= cursors.get(inbox, _NO_LIMIT) for inbox in unpack_inboxes(inboxes))


def used_bytes(connection: sqlite3.Connection) -> int:
    """How much of the file is in use: what went before leaves room inside it."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
