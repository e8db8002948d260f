"""Giving up the oldest rows, a few at a time between commits, so that no publisher waits long for it.

What goes is decided in `retention`; this is how it goes. Numbers go on where they were even when a table is
empty after that: the next ones are kept apart.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from veena.runtime.store.audit_records import BLOCK, TABLES
from veena.runtime.store.positions import Standing, table_of_reader
from veena.runtime.store.retention import Need, Old, Retention, cut
from veena.runtime.store.rows import unpack_inboxes
from veena.runtime.store.trace import trim_notes

#: Rows of one table that go at a time, some milliseconds; more where more come.
ROWS = 1000
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
        standing = self._standing
        self.needed_from = standing.needed_from()
        need = Need(self.needed_from, standing.wanted_from())
        rows = connection.execute(
            "SELECT offset, accepted_ns, length(frame), peak_ns, inboxes FROM log WHERE offset < ?"
            " ORDER BY offset LIMIT ?",
            (need.needed_from, limit),
        ).fetchall()
        found = cut([Old(*row[:3]) for row in rows], used_bytes(connection), need, self._log_rules, now_ns)
        if found is None:
            return False
        gone = [row for row in rows if row[0] < found.below]
        connection.execute("DELETE FROM log WHERE offset < ?", (found.below,))
        listed = [(inbox, row[0]) for row in gone for inbox in unpack_inboxes(row[4])]
        connection.executemany("DELETE FROM inbox WHERE inbox = ? AND offset = ?", listed)
        connection.execute("DELETE FROM produced WHERE block < ?", (found.below // BLOCK,))
        connection.execute(_SET_META, ("next_offset", standing.next_offset))
        connection.execute(_SET_META, ("given_up_ns", gone[-1][3]))
        readers = {name: at for name, at in standing.readers.items() if table_of_reader(name) is None}
        self._count_lost(connection, readers, [row[0] for row in gone])
        self.trimmed += len(gone)
        return len(gone) == limit

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


def used_bytes(connection: sqlite3.Connection) -> int:
    """How much of the file is in use: what went before leaves room inside it."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
