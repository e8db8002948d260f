"""The tables of a store and how an older file becomes a newer one.

A file says by its application id that it is ours and by its user version which tables it has; version 0 has none. Each
migration is one transaction with the new version in it: a crash in between leaves the file as it was. A file of a newer
version is left alone.

Numbers of 64 bits without a sign (incarnations, timestamps) are stored with one, since SQLite has no others: `signed`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from veena.errors import StoreError
from veena.runtime.store.faults import explained

#: "VEEN" in the header of the file.
APPLICATION_ID = 0x5645454E

#: The statements that lead from one version to the next.
Migration = tuple[str, ...]

_VERSION_1: Migration = (
    # `peak_ns` is the latest time of acceptance so far: it never falls, so times can be searched for by halving.
    """CREATE TABLE log (offset INTEGER PRIMARY KEY, accepted_ns INTEGER NOT NULL, peak_ns INTEGER NOT NULL,
       checksum INTEGER NOT NULL, inboxes BLOB, frame BLOB NOT NULL)""",
    "CREATE TABLE inbox (inbox INTEGER, offset INTEGER, PRIMARY KEY (inbox, offset)) WITHOUT ROWID",
    # By the number of a unit's bit; not `told` where an entry is open for it and the broker has not spoken of it yet.
    "CREATE TABLE cursors (bit INTEGER PRIMARY KEY, cursor INTEGER NOT NULL, told INTEGER NOT NULL)",
    """CREATE TABLE had (publisher TEXT, incarnation INTEGER, lane INTEGER, stamp INTEGER NOT NULL,
       sequence INTEGER NOT NULL, heard_ns INTEGER NOT NULL, PRIMARY KEY (publisher, incarnation, lane))""",
    """CREATE TABLE skips (publisher TEXT, incarnation INTEGER, lane INTEGER, stamp INTEGER, sequence INTEGER,
       heard_ns INTEGER NOT NULL, PRIMARY KEY (publisher, incarnation, lane, stamp, sequence))""",
    "CREATE TABLE known (place INTEGER PRIMARY KEY, unit TEXT NOT NULL)",
    """CREATE TABLE kept (number INTEGER PRIMARY KEY, publisher BLOB NOT NULL, incarnation INTEGER NOT NULL,
       stamp INTEGER NOT NULL, sequence INTEGER NOT NULL, checksum INTEGER NOT NULL, frame BLOB NOT NULL,
       UNIQUE (publisher, incarnation, stamp, sequence))""",
    """CREATE TABLE registered (number INTEGER PRIMARY KEY, client_id TEXT NOT NULL, name TEXT NOT NULL,
       engine TEXT NOT NULL, condition BLOB NOT NULL, scope INTEGER NOT NULL, version INTEGER NOT NULL,
       inboxes BLOB NOT NULL, state TEXT NOT NULL, target TEXT, aside INTEGER NOT NULL)""",
    "CREATE TABLE reached (inbox INTEGER PRIMARY KEY, cursor INTEGER NOT NULL)",
    """CREATE TABLE floors (inbox INTEGER, publisher TEXT, incarnation INTEGER, lane INTEGER, stamp INTEGER NOT NULL,
       sequence INTEGER NOT NULL, PRIMARY KEY (inbox, publisher, incarnation, lane)) WITHOUT ROWID""",
    """CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, address TEXT NOT NULL,
       incarnation INTEGER NOT NULL)""",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    # Who reads the log from outside, how far that has come, and what was given up before it had come there.
    "CREATE TABLE readers (name TEXT PRIMARY KEY, committed INTEGER NOT NULL, lost INTEGER NOT NULL)",
    "CREATE TABLE passed (number INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, checksum INTEGER, frame BLOB NOT NULL)",
    """CREATE TABLE deliveries (number INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, publisher TEXT NOT NULL,
       incarnation INTEGER NOT NULL, stamp INTEGER NOT NULL, sequence INTEGER NOT NULL, clients BLOB NOT NULL)""",
    """CREATE TABLE hops (number INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, publisher TEXT NOT NULL,
       incarnation INTEGER NOT NULL, stamp INTEGER NOT NULL, sequence INTEGER NOT NULL, came_from TEXT,
       went_to TEXT NOT NULL, level INTEGER NOT NULL)""",
    """CREATE TABLE profiles (number INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, client_id TEXT NOT NULL,
       subscription INTEGER NOT NULL, change TEXT NOT NULL, engine TEXT NOT NULL, condition BLOB NOT NULL,
       scope INTEGER NOT NULL)""",
    # In which blocks of a table (`audit_records`) there is something that a client published, or was handed.
    "CREATE TABLE produced (client BLOB, block INTEGER, PRIMARY KEY (client, block)) WITHOUT ROWID",
    "CREATE TABLE passed_by (client BLOB, block INTEGER, PRIMARY KEY (client, block)) WITHOUT ROWID",
    "CREATE TABLE consumed (client BLOB, block INTEGER, PRIMARY KEY (client, block)) WITHOUT ROWID",
    "CREATE INDEX produced_block ON produced (block)",
    "CREATE INDEX passed_by_block ON passed_by (block)",
    "CREATE INDEX consumed_block ON consumed (block)",
)

#: What the broker noted for explaining (`trace`), and what audits need beyond the first version (`audit_rows`).
_VERSION_2: Migration = (
    """CREATE TABLE notes (number INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, life_ns INTEGER NOT NULL,
       checksum INTEGER NOT NULL, notes BLOB NOT NULL)""",
    """CREATE TABLE stays (begun_ns INTEGER, session INTEGER, subscription INTEGER, ended_ns INTEGER NOT NULL,
       stay BLOB NOT NULL, PRIMARY KEY (begun_ns, session, subscription)) WITHOUT ROWID""",
    "CREATE TABLE lives (life_ns INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL)",
    # '', 'redelivered', 'late' or 'denied'.
    "ALTER TABLE deliveries ADD COLUMN mark TEXT NOT NULL DEFAULT ''",
    # The units that the copy was for, joined by spaces.
    "ALTER TABLE hops ADD COLUMN units TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE profiles ADD COLUMN session INTEGER NOT NULL DEFAULT 0",
    # How far it was acknowledged by then: 0 is its own broker.
    "ALTER TABLE profiles ADD COLUMN level INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE profiles ADD COLUMN durable INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE profiles ADD COLUMN shared TEXT NOT NULL DEFAULT ''",
    # A msgpack map; NULL for none.
    "ALTER TABLE profiles ADD COLUMN attributes BLOB",
    "ALTER TABLE profiles ADD COLUMN ending TEXT NOT NULL DEFAULT ''",
)

#: Batches that are staged before they are published (`staging`).
_VERSION_3: Migration = (
    # What one attempt of one task staged. `turn` is 0 until its batch is published; then parts are released by turn,
    # and their rows have the incarnation, the stamp and the sequence numbers from `sequence` on.
    """CREATE TABLE staged_parts (part INTEGER PRIMARY KEY, owner TEXT NOT NULL, publisher TEXT NOT NULL,
       query TEXT NOT NULL, batch INTEGER NOT NULL, name BLOB NOT NULL, at_ns INTEGER NOT NULL,
       row_count INTEGER NOT NULL, bytes INTEGER NOT NULL, turn INTEGER NOT NULL DEFAULT 0,
       incarnation INTEGER NOT NULL DEFAULT 0, stamp INTEGER NOT NULL DEFAULT 0,
       sequence INTEGER NOT NULL DEFAULT 0)""",
    # Rows that came together, from `first` of their part on, as event frames end to end.
    """CREATE TABLE staged (number INTEGER PRIMARY KEY, part INTEGER NOT NULL, first INTEGER NOT NULL,
       row_count INTEGER NOT NULL, checksum INTEGER NOT NULL, frames BLOB NOT NULL, UNIQUE (part, first))""",
    # How far each query is, and under which incarnation its events are published.
    """CREATE TABLE staged_queries (owner TEXT, query TEXT, publisher TEXT NOT NULL, incarnation INTEGER NOT NULL,
       batch INTEGER NOT NULL, stamp INTEGER NOT NULL, used_ns INTEGER NOT NULL, lasting INTEGER NOT NULL,
       PRIMARY KEY (owner, query)) WITHOUT ROWID""",
)

#: What is advertised (`adverts`).
_VERSION_4: Migration = (
    # `home` is empty for those of the broker's own clients. `left_ns`: since when the client, or the home, is away.
    """CREATE TABLE adverts (number INTEGER PRIMARY KEY, home TEXT NOT NULL, client TEXT NOT NULL, name TEXT NOT NULL,
       left_ns INTEGER NOT NULL, checksum INTEGER NOT NULL, advert BLOB NOT NULL, UNIQUE (home, client, name))""",
)

#: To whom durable subscriptions are charged, and how much was not kept for them.
_VERSION_5: Migration = (
    "ALTER TABLE registered ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE registered ADD COLUMN missed INTEGER NOT NULL DEFAULT 0",
)

#: Migration n leads from version n to n + 1. What was released is never changed, only followed by another.
MIGRATIONS: tuple[Migration, ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5)
SCHEMA_VERSION = len(MIGRATIONS)


def check_ours(connection: sqlite3.Connection, path: Path, newest: int = SCHEMA_VERSION) -> None:
    """Raise StoreError for a file of somebody else, or of a later version. Changes nothing."""
    application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (application or tables):
        raise StoreError(
            str(path),
            f"an SQLite file of another program (application id {application:#x}, {tables} tables)",
            "give another path, or move the file away if nobody needs it",
        )
    if version > newest:
        raise StoreError(
            str(path),
            f"written by a newer Veena (version {version} of the tables; this one knows up to {newest})",
            "run the newer Veena again, or give this one another path",
        )


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the tables up to date, a transaction a version; which version the file had."""
    found = _pragma(connection, "user_version")
    for version in range(found, len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in migrations[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            told = explained(error, path)
            raise StoreError(
                str(path),
                f"could not be brought from version {version} of its tables to {version + 1}: {told.reason}",
                f"nothing was changed; {told.remedy}",
            ) from error
    return found


def signed(number: int) -> int:
    """A number of 64 bits as SQLite stores it."""
    return number - (1 << 64) if number >> 63 else number


def unsigned(number: int) -> int:
    """The number that `signed` was given."""
    return number + (1 << 64) if number < 0 else number


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
