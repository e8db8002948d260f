"""Processes that run seeds end with whoever started them, in the middle of a seed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

import pytest

from tests.runtime.processes import Started, is_alive, until
from tests.runtime.processes import veena as started
from tests.tiers import few
from veena.sim.runs.soak import soak
from veena.sim.runs.workers import worker_pool

JOBS = 2
#: A seed of these takes many minutes: who ends before was ended.
LONG = ("--faults", "none", "--brokers", "300", "--jobs", str(JOBS))
COMMANDS = {"soak": ("sim", "soak", "--seeds", "4", "--events", "200000", *LONG), "explain": ("sim", "explain", *LONG)}
#: CPU seconds by which a worker is past its imports and in its seed.
BUSY_S = 1.5

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked for in /proc")


def workers(parent: int) -> list[int]:
    """The processes in which a command runs its seeds."""
    listed = [text for path in Path(f"/proc/{parent}/task").glob("*/children") for text in path.read_text().split()]
    return [int(pid) for pid in listed if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def strays() -> Iterator[list[int]]:
    """What a test has found; none of it outlives the test."""
    found: list[int] = []
    yield found
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def at_work(command: Started, strays: list[int]) -> None:
    until(lambda: len(workers(command.process.pid)) == JOBS)
    strays += workers(command.process.pid)
    until(lambda: all(cpu_s(pid) > BUSY_S for pid in strays))


@pytest.mark.parametrize("number", few([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
def test_workers_end_with_a_soak_however_it_is_ended(number: int, strays: list[int]) -> None:
    with started(*COMMANDS["soak"]) as command:
        at_work(command, strays)
        assert command.end(number) == (-number if number == signal.SIGKILL else 128 + number)
        until(lambda: not any(map(is_alive, strays)))


def test_workers_end_at_ctrl_c_in_a_terminal_which_tells_them_too(tmp_path: Path, strays: list[int]) -> None:
    with started(*COMMANDS["soak"], errors=tmp_path / "errors") as command:
        at_work(command, strays)
        os.killpg(command.process.pid, signal.SIGINT)
        assert command.process.wait(60) == 128 + signal.SIGINT
        until(lambda: not any(map(is_alive, strays)))
    assert "Traceback" not in (tmp_path / "errors").read_text()


@pytest.mark.parametrize("number", few([signal.SIGTERM, signal.SIGKILL]))
def test_workers_end_with_questions_to_simulated_runs(number: int, strays: list[int]) -> None:
    with started(*COMMANDS["explain"]) as command:
        at_work(command, strays)
        command.end(number)
        until(lambda: not any(map(is_alive, strays)))


def test_reports_come_from_processes_as_from_this_one() -> None:
    given = {"seeds": 2, "events": 5, "brokers": 3}
    alone = [report.trace_hash for report in soak(4, "none", **given)]  # type: ignore[arg-type]
    assert [report.trace_hash for report in soak(4, "none", jobs=JOBS, **given)] == alone  # type: ignore[arg-type]


def test_a_worker_that_is_lost_is_told() -> None:
    with pytest.raises(BrokenProcessPool), worker_pool(1) as pool:
        pool.submit(os._exit, 3).result(60)
