"""What SQLite and the system say about a file, as an error that names the file and what to do (FLT-07)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from veena.errors import StoreError

START_EMPTY = (
    "stop the broker, keep a copy of the file with its -wal, and restore a backup; or move it away to start with an"
    " empty log (what was open is published again where copies = 2)"
)
DROP_DAMAGED = (
    "stop the broker and restore a backup; or give up what is damaged and nothing else, with `veena broker check"
    " --repair` and its --config or --data"
)
ROOM = "free some space there; the broker goes on by itself as soon as there is room"
WRITABLE = "let the broker's user write to the file and to its directory, or give it another path"

_REASONS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("the disk is full", ROOM),
    sqlite3.SQLITE_READONLY: ("it cannot be written to", WRITABLE),
    sqlite3.SQLITE_PERM: ("access is denied", WRITABLE),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", WRITABLE),
    sqlite3.SQLITE_IOERR: (
        "the disk does not do what it should",
        "look into the system's log for the device and for a quota; the broker goes on by itself when the disk does",
    ),
    sqlite3.SQLITE_CORRUPT: ("the file is damaged", START_EMPTY),
    sqlite3.SQLITE_NOTADB: (
        "this is no store of Veena, nor any SQLite file",
        "give another path, or move the file away if nobody needs it",
    ),
    sqlite3.SQLITE_BUSY: (
        "another program keeps the file locked",
        "close what has it open (a shell, a backup); the broker goes on by itself then",
    ),
}
_FINAL = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def explained(error: Exception, path: Path) -> StoreError:
    """The same fault in words for whoever runs the broker."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, sqlite3.Error):
        reason, remedy = _REASONS.get(_code(error), ("SQLite refused", "report this with the broker's log"))
        return StoreError(str(path), f"{reason} ({getattr(error, 'sqlite_errorname', 'SQLite')}: {error})", remedy)
    if isinstance(error, OSError):
        return StoreError(str(path), f"{error.strerror or error}", WRITABLE)
    return StoreError(str(path), f"{type(error).__name__}: {error}", "report this with the broker's log")


def is_final(error: Exception) -> bool:
    """Whether waiting does not help: nothing more may be written to such a file."""
    return isinstance(error, sqlite3.Error) and _code(error) in _FINAL


def _code(error: sqlite3.Error) -> int:
    """The primary code: the low byte of SQLite's extended one."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
