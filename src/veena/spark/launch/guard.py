"""Runs one command and ends it, and all that it started, when this program's standard input closes.

`veena cluster up` holds the other end: however it ends, even by `kill -9`, the operating system closes that end and
nothing is left behind. A program by itself, run by its path with nothing of the package imported: it starts at
once. On Linux the kernel could send a signal at the parent's death; this works elsewhere too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

#: A Java that was asked to end gets so long for its own tidying.
PATIENCE_S = 8.0


def main(command: list[str]) -> None:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603

    def follow() -> None:
        code = child.wait()
        _end_group(child.pid, signal.SIGKILL)
        os._exit(code if code >= 0 else 128 - code)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.close(0))
    threading.Thread(target=follow, daemon=True).start()
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    _end_group(child.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(PATIENCE_S)
    _end_group(child.pid, signal.SIGKILL)


def _end_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


if __name__ == "__main__":
    main(sys.argv[1:])
