"""Opening the file of a store: one broker at a time, ours, of a version that is known, whole.

A lock file beside it holds the process id of the broker that has it open; the lock goes with the process, however that
ends. SQLite's own exclusive mode would do the same and shut out our readers.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from veena.errors import StoreError
from veena.runtime.store.faults import START_EMPTY, explained
from veena.runtime.store.schema import check_ours, migrate

FILE_NAME = "veena.db"
#: Others (a backup, a shell) may hold SQLite's lock for a moment.
BUSY_MS = 5000
#: Pages of the write-ahead log that are carried over into the file at a time: 16 MiB, so that it is done rarely.
CHECKPOINT_PAGES = 4096
WAL_BYTES_MAX = 64 << 20
CACHE_KIB = 16 << 10
#: SQLite asks after so many of its steps whether to go on with a check.
CHECK_STEPS = 100_000
#: Faults that are named; the first few tell as much as all.
MAX_FAULTS = 10


@dataclass(slots=True)
class StoreFile:
    """An open file, locked for this process."""

    path: Path
    connection: sqlite3.Connection
    lock: int
    #: Which version of the tables was found; 0 for a new file.
    found_version: int
    #: Whether the check at the start came to its end in its time.
    is_checked: bool

    def close(self) -> None:
        """Carry the write-ahead log over and let others have the file."""
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            pass  # it is carried over at the next start
        finally:
            self.connection.close()
            os.close(self.lock)


def store_path(path: Path) -> Path:
    """The file of a store that is given by its directory or by the file itself."""
    return path / FILE_NAME if path.is_dir() or not path.suffix else path


def open_file(given: Path, check_seconds: float) -> StoreFile:
    """Open a store, make it if it is not there; raise StoreError with what is wrong and what to do."""
    path = store_path(given)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = locked(path)
    except OSError as error:
        raise explained(error, path) from error
    connection: sqlite3.Connection | None = None
    try:
        # Events may be confidential: nobody else reads the file. SQLite gives its side files the same rights.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        _sync_directory(path.parent)
        connection = connect(path)
        check_ours(connection, path)
        _prepare(connection, path)
        found = migrate(connection, path)
        faults, is_whole = check(connection, "quick_check", check_seconds)
        if faults:
            raise StoreError(str(path), f"the file is damaged ({'; '.join(faults)})", START_EMPTY)
    except (sqlite3.Error, OSError, StoreError) as error:
        if connection is not None:
            connection.close()
        os.close(lock)
        raise explained(error, path) from error
    return StoreFile(path, connection, lock, found, is_whole)


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection whose transactions are begun and ended by hand; one thread uses it at a time."""
    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(
        address, uri=True, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def check(connection: sqlite3.Connection, pragma: str, seconds: float) -> tuple[list[str], bool]:
    """What `quick_check` or `integrity_check` finds, and whether it came to its end in that time."""
    until = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > until, CHECK_STEPS)
    try:
        rows = connection.execute(f"PRAGMA {pragma}({MAX_FAULTS})").fetchall()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
            raise
        return [], False
    finally:
        connection.set_progress_handler(None, 0)
    return [str(row[0]).replace("\n", " ") for row in rows if row[0] != "ok"], True


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            str(path),
            f"this file system gives no write-ahead log (SQLite stays in mode {mode!r})",
            "put the store on a local disk; network file systems will not do",
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS, where a plain sync ends in the disk's own cache
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")


def _sync_directory(directory: Path) -> None:
    """A new file is there after a power cut only if its directory was synced."""
    if os.name == "posix":
        opened = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def locked(path: Path) -> int:
    """Take the lock beside a file; its descriptor. Raises StoreError where another process has it."""
    beside = path.with_name(path.name + ".lock")
    lock = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(lock)
    except OSError:
        holder = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        raise StoreError(
            str(path),
            f"in use by {'process ' + holder if holder.isdigit() else 'another process'}",
            "stop that broker, or give this one a store of its own",
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


if sys.platform == "win32":
    import msvcrt

    def _take(lock: int) -> None:
        # Far beyond the process id, which others are to read.
        os.lseek(lock, 1 << 20, os.SEEK_SET)
        msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
        os.lseek(lock, 0, os.SEEK_SET)
else:
    import fcntl

    def _take(lock: int) -> None:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
