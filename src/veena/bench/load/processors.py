"""The load on one processor and the broker on another, where there are two and the system lets us choose.

Where a scheduler puts two processes that wake each other changes a figure more than anything that a broker does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def load_apart() -> Iterator[int | None]:
    """This process, and whoever it starts, on the first processor; what it gives is the one for the broker."""
    if not hasattr(os, "sched_setaffinity") or len(every := sorted(os.sched_getaffinity(0))) < 2:
        yield None
        return
    os.sched_setaffinity(0, {every[0]})
    try:
        yield every[-1]
    finally:
        os.sched_setaffinity(0, every)


@contextmanager
def starting_on(processor: int | None) -> Iterator[None]:
    """What is started meanwhile runs on this processor."""
    if processor is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def move(pid: int, processor: int | None) -> None:
    """Let a process that runs, with all its threads, go on there."""
    if processor is None:
        return
    for path in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(path.name), {processor})
