"""Seed after seed, several at a time in processes of their own; reports come in the order of the seeds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from functools import partial

from veena.runtime.networks.file import Network
from veena.sim.runs.run import Report, run_seed
from veena.sim.runs.workers import worker_pool

#: Seeds given out ahead of the one whose report is next, for each process.
AHEAD = 2


def soak(
    first: int,
    faults: str,
    network: Network | None = None,
    *,
    seeds: int = 0,
    seconds: float = 0,
    jobs: int = 1,
    events: int | None = None,
    brokers: int | None = None,
    guests: int = 0,
    narrow: int = 0,
    breaks: int = 0,
    liars: int = 0,
    signed: bool = False,
    costly: bool = False,
) -> Generator[Report, None, None]:
    """The reports of `seeds` seeds, or of those that begin within `seconds`; to close it breaks off what runs."""
    end = time.monotonic() + seconds if seconds else None
    given = 0
    run = partial(
        run_seed, faults=faults, network=network, events=events, brokers=brokers, guests=guests, narrow=narrow,
        breaks=breaks, costly=costly, liars=liars, signed=signed,
    )  # fmt: skip

    def is_more() -> bool:
        return (not seeds or given < seeds) and (end is None or time.monotonic() < end)

    if jobs == 1:
        while is_more():
            yield run(first + given)
            given += 1
        return
    with worker_pool(jobs) as pool:
        waiting: deque[Future[Report]] = deque()
        while waiting or is_more():
            while len(waiting) < AHEAD * jobs and is_more():
                waiting.append(pool.submit(run, first + given))
                given += 1
            if waiting:
                yield waiting.popleft().result()
