"""The audit log: who was let in, refused or sent away and what administrators did, a line of JSON each, none left out.

It stands in a file of its own, which only its owner may read. Lines are written by a thread, in batches that are forced
to the disk. A file that would grow beyond its bound is renamed to `NAME.1`, the one before to `NAME.2`, and the oldest
is deleted.

When the disk takes nothing, the broker goes on: lines wait in memory, up to MAX_WAITING_BYTES. Beyond that they are
lost and counted, and the first line after the trouble says how many. Meanwhile `/readyz` names the trouble. No half
line stays in the file.

Text from outside is escaped as JSON asks: one line stays one line.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veena.errors import ConfigError
from veena.runtime.logging.logs import Log
from veena.runtime.supervision import Supervisor

#: Lines that wait for a disk that takes nothing; some ten thousand of them.
MAX_WAITING_BYTES: Final = 8 << 20
#: How often a disk that takes nothing is tried again.
RETRY_S: Final = 1.0
#: How long the end of a broker waits for the last lines.
CLOSE_S: Final = 5.0
#: Characters of a text: a client chooses its id, and a reason may quote what it sent.
MAX_TEXT: Final = 1024
#: Bytes that are written and forced to the disk together.
BATCH_BYTES: Final = 1 << 20

Field = str | int | float | None


@dataclass(frozen=True, slots=True)
class AuditStatistics:
    #: Lines that are in the file, and lines that are lost because nothing could be written for too long.
    written: int = 0
    lost: int = 0
    #: Why nothing can be written now, if so.
    trouble: str | None = None


#: Where there is no audit log.
NO_AUDIT: Final = AuditStatistics()


class AuditLog:
    """The audit log of one broker."""

    def __init__(
        self,
        path: Path,
        *,
        broker: str,
        max_bytes: int,
        files: int,
        on_trouble: Callable[[str | None], None] = lambda told: None,
        supervisor: Supervisor | None = None,
    ) -> None:
        """Open or go on with the file; raise ConfigError where that cannot be. `on_trouble` is called by the thread."""
        self._path = path
        self._broker = broker
        self._max_bytes = max_bytes
        self._files = files
        self._on_trouble = on_trouble
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        #: Lines that could not be kept, in all and since the last line that was written.
        self._written = self._lost = self._lost_lately = 0
        self._trouble: str | None = None
        self._is_closing = False
        try:
            self._open()
        except OSError as error:
            remedy = "name a file in a directory that this user may write to"
            raise ConfigError("[audit]", f"file {path}", f"cannot be written ({error.strerror})", remedy) from None
        self._thread = (supervisor or Supervisor()).thread("veena-audit", self._run)

    def note(self, kind: str, **fields: Field) -> None:
        """Write one line, soon."""
        line = self._line(kind, fields)
        with self._changed:
            if self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
                self._lost += 1
                self._lost_lately += 1
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            self._changed.notify()

    def statistics(self) -> AuditStatistics:
        with self._changed:
            return AuditStatistics(self._written, self._lost, self._trouble)

    def close(self) -> None:
        """Write what waits, if the disk takes it."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.end(CLOSE_S)

    def _line(self, kind: str, fields: dict[str, Field]) -> bytes:
        now = time.time()
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        shown = {
            name: value[:MAX_TEXT] if isinstance(value, str) else value
            for name, value in fields.items()
            if value is not None and value != ""
        }
        return json.dumps({"time": when, "kind": kind, "broker": self._broker, **shown}).encode() + b"\n"

    # --- the thread ---

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closing:
                    self._changed.wait()
                batch, count = self._batch()
                is_closing = self._is_closing
            if not batch:
                break
            try:
                self._write(batch)
            except OSError as error:
                self._say(error.strerror or str(error))
                if is_closing:
                    break
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closing, RETRY_S)
                with suppress(OSError):  # the write will tell
                    self._reopen()
                continue
            self._taken(count, len(batch))
        with suppress(OSError):
            os.close(self._file)

    def _batch(self) -> tuple[bytes, int]:
        """The lines that are written next, into one file; they stay until the disk has them."""
        count, size, most = 0, 0, min(BATCH_BYTES, self._max_bytes)
        for line in self._waiting:
            if size and size + len(line) > most:
                break
            count, size = count + 1, size + len(line)
        return b"".join(self._waiting[at] for at in range(count)), count

    def _taken(self, count: int, size: int) -> None:
        with self._changed:
            for _ in range(count):
                self._waiting.popleft()
            self._waiting_bytes -= size
            self._written += count
            lost, self._lost_lately = self._lost_lately, 0
        self._say(None)
        if lost:
            self.note("lines were lost", count=lost)

    def _say(self, trouble: str | None) -> None:
        with self._changed:
            if self._trouble == trouble:
                return
            self._trouble = trouble
        self._on_trouble(trouble)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        found = os.fstat(self._file)
        self._is_regular = stat.S_ISREG(found.st_mode)
        self._size = found.st_size if self._is_regular else 0
        if self._is_regular and stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(self._file, 0o600)

    def _reopen(self) -> None:
        before = self._file
        self._open()
        os.close(before)

    def _write(self, batch: bytes) -> None:
        if self._is_regular and self._size and self._size + len(batch) > self._max_bytes:
            self._rotate()
        view = memoryview(batch)
        try:
            while view:
                view = view[os.write(self._file, view) :]
            if self._is_regular:
                os.fdatasync(self._file)
        except OSError:
            if self._is_regular:
                os.ftruncate(self._file, self._size)  # what was not written whole is written again
            raise
        self._size += len(batch)

    def _rotate(self) -> None:
        for number in range(self._files - 1, 0, -1):
            before = self._path if number == 1 else self._numbered(number - 1)
            with suppress(FileNotFoundError):
                before.replace(self._numbered(number))
        if self._files == 1:
            os.ftruncate(self._file, 0)
        self._reopen()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def open_audit(path: Path, broker: str, max_bytes: int, files: int, log: Log, supervisor: Supervisor) -> AuditLog:
    """The audit log of a broker in the running loop, which says in its other log when nothing can be written."""
    loop = asyncio.get_running_loop()

    def say(told: str | None) -> None:
        if told is None:
            log.info("the audit log can be written again")
        else:
            log.error("the audit log cannot be written: lines wait in memory, then they are lost", reason=told)

    def trouble(told: str | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(say, told)

    return AuditLog(path, broker=broker, max_bytes=max_bytes, files=files, on_trouble=trouble, supervisor=supervisor)
