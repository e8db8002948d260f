"""Processes that run seeds, and that end with whoever started them, however that ends.

Every worker has a thread that reads from a pipe into which nobody writes. The only other end is with the parent: when
the parent is killed the system closes it, when the parent breaks off it closes it itself, and either way the workers
are gone at once, in the middle of a seed. Rejected: PR_SET_PDEATHSIG, which only Linux has, which means the parent's
thread rather than the parent, and which says nothing when a parent that lives on wants no more.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

#: The exit code of a worker whose parent is gone; nobody is left to read it.
ORPHANED = 1


@contextmanager
def worker_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes; what was given to them is done at the end of the block, or broken off if that fails."""
    # A fresh interpreter for each: nothing of this process can make a difference.
    context = get_context("spawn")
    watched, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent, initargs=(watched,))
    try:
        yield pool
        pool.shutdown()
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)
        watched.close()


def _end_with_parent(watched: Connection) -> None:
    # Ctrl-C in a terminal is told to everybody; the parent alone decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(watched,), name="veena-parent", daemon=True).start()


def _watch(watched: Connection) -> None:
    with suppress(EOFError, OSError):
        watched.recv_bytes()
    os._exit(ORPHANED)  # not `sys.exit`: that would end this thread and wait for the seed
