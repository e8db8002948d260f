"""Who uses the cores: confine processes to one core for a while, and count what they take.

Spark with one task is not Spark on one core: Java reads and hands over rows on another one meanwhile. So what a second
core brings is measured by taking it away from everything that takes part, on the plain side as on Spark's. Only Linux
can do that; elsewhere nothing is confined and `can_confine` says so.

Seconds of processors (`Spent`) tell where the time of a job goes even on a machine that has other things to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def can_confine() -> bool:
    return hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1


def java_process(spark: SparkSession) -> int:
    """The process of the driver's Java, whose children are the Python workers."""
    java = spark.sparkContext._jvm
    assert java is not None
    return int(java.java.lang.ProcessHandle.current().pid())


@contextmanager
def confined(processes: Iterable[int]) -> Iterator[None]:
    """These processes and all below them on one core; what they start meanwhile is there too, and stays no longer."""
    roots = list(processes)
    cores = os.sched_getaffinity(0)
    _set(roots, {min(cores)})
    try:
        yield
    finally:
        _set(roots, cores)


def below(roots: Iterable[int]) -> list[int]:
    """These processes and all that descend from them."""
    children: dict[int, list[int]] = {}
    if not Path("/proc").is_dir():
        return list(roots)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = list(roots)
    for each in found:
        found += children.get(each, [])
    return found


@dataclass(slots=True)
class Spent:
    """Seconds of processors that a job took, of Spark's Java and of its Python workers."""

    java_s: float = 0.0
    python_s: float = 0.0
    runs: int = 0

    @contextmanager
    def counted(self, java: int) -> Iterator[None]:
        before = processor_s([java]), processor_s(below([java])[1:])
        yield
        self.java_s += processor_s([java]) - before[0]
        self.python_s += processor_s(below([java])[1:]) - before[1]
        self.runs += 1


def processor_s(processes: Iterable[int]) -> float:
    """What these processes have used so far; 0 where the system does not say so."""
    total = 0
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _set(roots: list[int], cores: set[int]) -> None:
    for process in below(roots):
        with suppress(OSError):  # it may have ended
            for thread in Path(f"/proc/{process}/task").iterdir():
                with suppress(OSError):
                    os.sched_setaffinity(int(thread.name), cores)
