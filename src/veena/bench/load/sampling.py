"""Where a broker's processor time goes: `python -m veena.bench.load.sampling FILE broker run ...`.

A timer of the process's own CPU time interrupts it a thousand times a second and counts the function that runs; what C
code does on behalf of a function counts for that function. SIGUSR1 begins to count, SIGUSR2 writes the counts to the
file. Both cost the broker some percent, which is why rates are measured without this.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.001
#: How long the broker may take to write its counts.
PATIENCE_S = 10.0
#: Rooms are told by two names: `core/wire`, `runtime/clients`; what is not of Veena by this one.
OUTSIDE = "event loop and sockets"


def room_of(file: str) -> str:
    """The room of a function, by its file."""
    _, found, inside = file.rpartition("/veena/")
    if not found or inside.startswith("bench/"):
        return OUTSIDE
    parts = inside.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


class Sampler:
    """The counts of one process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._counts: Counter[tuple[str, str]] = Counter()

    def begin(self, *_: object) -> None:
        self._counts.clear()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def end(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        found = [(room, name, count) for (room, name), count in self._counts.most_common()]
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        fresh.replace(self._file)

    def sample(self, number: int, frame: FrameType | None) -> None:
        if frame is not None:
            code = frame.f_code
            self._counts[room_of(code.co_filename), code.co_qualname] += 1


def begin(pid: int) -> None:
    os.kill(pid, signal.SIGUSR1)


def shares(pid: int, file: Path) -> list[tuple[str, str, float]]:
    """Room, function and share of the time since `begin`, the largest first."""
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        if time.monotonic() > deadline:
            raise RuntimeError("the broker wrote no profile")
        time.sleep(0.01)
    counts = json.loads(file.read_text())
    whole = sum(count for *_, count in counts) or 1
    return [(room, name, count / whole) for room, name, count in counts]


def main() -> None:
    sampler = Sampler(Path(sys.argv[1]))
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.signal(signal.SIGUSR1, sampler.begin)
    signal.signal(signal.SIGUSR2, sampler.end)
    sys.argv = ["veena", *sys.argv[2:]]
    runpy.run_module("veena.cli", run_name="__main__")


if __name__ == "__main__":
    main()
