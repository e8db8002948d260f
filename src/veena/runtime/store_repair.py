"""Looking through a whole store, and giving up what is damaged in it and nothing else.

A page that SQLite cannot read ends in an error when the file is opened: for that there are backups. What this finds
beyond are events whose checksum is wrong. Each belongs to one entry or one second copy: the rest of the file is as good
as before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

from veena.errors import StoreError
from veena.runtime.store_faults import explained
from veena.runtime.store_file import MAX_FAULTS, check, connect, open_file, store_path
from veena.runtime.store_schema import check_ours

#: Nobody waits for a broker that starts here.
PATIENT_SECONDS = 3600.0
#: The tables that hold events, with the column that addresses them.
_HOLDERS = (("log", "offset"), ("kept", "number"), ("passed", "number"))


def faults(path: Path, seconds: float = PATIENT_SECONDS) -> list[str]:
    """Everything that is wrong with a store, whether a broker has it open or not; [] when it is whole."""
    file = store_path(path)
    try:
        with closing(connect(file, read_only=True)) as connection:
            check_ours(connection, file)
            found, is_whole = check(connection, "integrity_check", seconds)
            damaged = [f"{table} {number}: the checksum is wrong" for table, number in _damaged(connection)]
    except sqlite3.Error as error:
        return [str(explained(error, file))]
    except StoreError as error:
        return [str(error)]
    found += damaged[:MAX_FAULTS]
    return found if is_whole else [*found, f"not all was looked at within {seconds:g} seconds"]


def repair(path: Path) -> list[str]:
    """Give up the events that are damaged; which these were. No broker may have the store open."""
    file = open_file(path, PATIENT_SECONDS)
    try:
        connection = file.connection
        damaged = list(_damaged(connection))
        connection.execute("BEGIN IMMEDIATE")
        for table, number in damaged:
            column = dict(_HOLDERS)[table]
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
    for table, column in _HOLDERS:
        for number, checksum, data in connection.execute(f"SELECT {column}, checksum, frame FROM {table}"):  # noqa: S608
            if crc32(data) != checksum:
                yield table, number
