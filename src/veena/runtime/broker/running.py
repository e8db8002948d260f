"""The file by which commands on this machine find a running broker, and see that it has read its configuration again.

`broker.pid` stands in the directory of the store. Its broker holds a lock on it for as long as it lives, so a file that
was left behind by a crash is not mistaken for a running broker, whatever process has that number now.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from veena.errors import ConfigError

FILE_NAME: Final = "broker.pid"
#: How long a broker may take to read its configuration again, and how often a command looks.
RELOAD_S: Final = 20.0
LOOK_S: Final = 0.05


class RunningMark:
    """The mark of one broker that runs."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._reloads = 0
        with suppress(OSError):  # another broker has it, and the lock of the store will say so
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write("")

    def reloaded(self, fault: str = "") -> None:
        """The configuration was read again, or could not be."""
        self._reloads += 1
        self._write(fault)

    def close(self) -> None:
        with suppress(OSError):
            self._path.unlink()
        os.close(self._file)

    def _write(self, fault: str) -> None:
        data = json.dumps({"pid": os.getpid(), "reloads": self._reloads, "fault": fault}).encode()
        with suppress(OSError):  # a full disk is no reason to fail: a command that waits for this says so
            os.pwrite(self._file, data + b" " * max(0, os.fstat(self._file).st_size - len(data)), 0)


def reload_running(directory: Path, patience_s: float = RELOAD_S) -> int | None:
    """Have the broker with this store read its configuration again; its process, or None where none runs.

    Raises ConfigError with what is wrong when it did not take the configuration over.
    """
    path = directory / FILE_NAME
    before = _read(path)
    if before is None or not _is_locked(path):
        return None
    pid = int(before["pid"])
    os.kill(pid, signal.SIGHUP)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        now = _read(path)
        if now is None or not _is_locked(path):
            return None  # it stopped meanwhile: at its next start it reads the file
        if now["reloads"] > before["reloads"]:
            if now["fault"]:
                raise ConfigError(str(path), f"process {pid}", now["fault"], "mend that, and send it SIGHUP")
            return pid
        time.sleep(LOOK_S)
    remedy = "look at its log; a broker that hangs is to be restarted"
    raise ConfigError(str(path), f"process {pid}", f"did not read its configuration within {patience_s:g} s", remedy)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"pid", "reloads", "fault"} <= found.keys() else None


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
