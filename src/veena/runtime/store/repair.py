"""Looking through a whole store, and giving up what is damaged in it and nothing else.

A page that SQLite cannot read ends in an error when the file is opened: for that there are backups. What this finds
beyond are events and advertisements whose checksum is wrong. Each is one row by itself: the rest of the file is as good
as before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

from veena.errors import StoreError
from veena.runtime.store.faults import DROP_DAMAGED, START_EMPTY, explained
from veena.runtime.store.file import MAX_FAULTS, check, connect, open_file, store_path
from veena.runtime.store.schema import check_ours

#: Nobody waits for a broker that starts here.
PATIENT_SECONDS = 3600.0
#: The tables whose rows have a checksum, with the column that addresses a row and the one that is checked.
_HOLDERS = (
    ("log", "offset", "frame"),
    ("kept", "number", "frame"),
    ("passed", "number", "frame"),
    ("notes", "number", "notes"),
    ("staged", "number", "frames"),
    ("adverts", "number", "advert"),
)


def faults(path: Path, seconds: float = PATIENT_SECONDS) -> list[str]:
    """Everything that is wrong with a store, whether a broker has it open or not; [] when it is whole."""
    return [error.reason for error in look(path, seconds)]


def look(path: Path, seconds: float = PATIENT_SECONDS) -> list[StoreError]:
    """The same, each fault with what to do about it."""
    file = store_path(path)
    try:
        with closing(connect(file, read_only=True)) as connection:
            check_ours(connection, file)
            found, is_whole = check(connection, "integrity_check", seconds)
            damaged = [f"{table} {number}: the checksum is wrong" for table, number in _damaged(connection)]
    except (sqlite3.Error, StoreError) as error:
        return [explained(error, file)]
    errors = [StoreError(str(file), fault, START_EMPTY) for fault in found]
    errors += [StoreError(str(file), fault, DROP_DAMAGED) for fault in damaged[:MAX_FAULTS]]
    if not is_whole:
        reason = f"not all was looked at within {seconds:g} seconds"
        errors.append(StoreError(str(file), reason, "look again when the disk has less to do"))
    return errors


def repair(path: Path) -> list[str]:
    """Give up the rows that are damaged; which these were. No broker may have the store open."""
    file = open_file(path, PATIENT_SECONDS)
    try:
        connection = file.connection
        damaged = list(_damaged(connection))
        connection.execute("BEGIN IMMEDIATE")
        for table, number in damaged:
            column = next(column for name, column, _ in _HOLDERS if name == table)
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))  # noqa: S608 (a table of ours)
            if table == "log":
                connection.execute("DELETE FROM inbox WHERE offset = ?", (number,))
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise explained(error, file.path) from error
    finally:
        file.close()
    return [f"{table} {number} was given up" for table, number in damaged]


def _damaged(connection: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    for table, column, body in _HOLDERS:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            continue  # the file is of an older version
        for number, checksum, data in connection.execute(f"SELECT {column}, checksum, {body} FROM {table}"):  # noqa: S608
            if crc32(data) != checksum:
                yield table, number
