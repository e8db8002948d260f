"""Brokers and networks as processes, started the way a user starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

#: Far more than a start takes on a busy machine.
PATIENCE_S = 60.0
POLL_S = 0.02


class Started:
    """A `veena` command that runs, and the lines that it prints."""

    def __init__(
        self,
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        errors: Path | None = None,
        descriptors: int | None = None,
        program: str = "veena.cli",
    ) -> None:
        limit = () if descriptors is None else ("sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh")
        with (errors or Path(os.devnull)).open("ab") as stderr:
            self.process = subprocess.Popen(
                [*limit, sys.executable, "-m", program, *arguments],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)

    def line(self) -> str:
        try:
            return self._lines.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError(f"no line came; exit code {self.process.poll()}") from None

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.line())
        return found

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def veena(
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    errors: Path | None = None,
    descriptors: int | None = None,
    program: str = "veena.cli",
) -> Iterator[Started]:
    """A `veena` command while it is needed; `descriptors` is how many files it may have open."""
    started = Started(*arguments, stdin=stdin, errors=errors, descriptors=descriptors, program=program)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.terminate()
            try:
                started.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                started.process.kill()
                started.process.wait()
        if started.process.stdin is not None:
            started.process.stdin.close()


def until(condition: Callable[[], object]) -> None:
    """Poll with a bound: what other processes do cannot be awaited."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return not Path("/proc/self/stat").exists()
