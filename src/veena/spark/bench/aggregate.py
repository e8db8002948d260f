"""An archive of any size is aggregated within a fixed memory (DIS-21): `python -m veena.spark.bench.aggregate ARCHIVE`.

Runs in a process of its own, because the heap of a Java is set when it starts and its peak counts from then on. What is
computed needs every row, and once more all ids at the same time (`count(DISTINCT id)`): a job that held them would fail
in a heap that is smaller than they are. Told is what was found, and the peak of Java and of the Python workers as the
system counted it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veena.spark.archive import archive
from veena.spark.bench.cores import below, java_process
from veena.spark.launch.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Little: Spark refuses to start with less than about 450 MiB.
MEMORY_MIB: Final = 512
#: What Java takes beside its heap (classes, compiled code, threads, buffers of Arrow and Netty), and Spark's Python.
BESIDE_MIB: Final = 768


@dataclass(frozen=True, slots=True)
class Aggregated:
    """What was found, and what it took."""

    events: int
    distinct: int
    topics: int
    #: Events of the topic that has fewest, and of the one that has most.
    fewest: int
    most: int
    body_bytes: int
    seconds: float
    #: The peak of Java, and of all Python workers together.
    java_mib: float
    workers_mib: float
    memory_mib: int

    @property
    def peak_mib(self) -> float:
        return self.java_mib + self.workers_mib

    @property
    def is_within_bound(self) -> bool:
        return self.peak_mib <= self.memory_mib + BESIDE_MIB


def aggregate(spark: SparkSession, path: str, memory_mib: int) -> Aggregated:
    """Count, sum and compare all events of an archive by topic, and count their ids."""
    from pyspark.sql import functions as F  # noqa: N812

    started = time.perf_counter()
    events = archive.read(spark, path)
    size = F.coalesce(F.length("body"), F.lit(0))
    by_topic = events.groupBy("topic").agg(F.count("*").alias("events"), F.sum(size).alias("bytes"), F.max("at"))
    (total,) = by_topic.agg(F.sum("events"), F.count("*"), F.min("events"), F.max("events"), F.sum("bytes")).collect()
    distinct = events.select("id").distinct().count()
    seconds = time.perf_counter() - started
    java = java_process(spark)
    return Aggregated(
        events=total[0] or 0, distinct=distinct, topics=total[1], fewest=total[2] or 0, most=total[3] or 0,
        body_bytes=total[4] or 0, seconds=round(seconds, 2), java_mib=peak_mib(java),
        workers_mib=sum(map(peak_mib, below([java])[1:])), memory_mib=memory_mib,
    )  # fmt: skip


def peak_mib(process: int) -> float:
    """The most memory that a process has had, by the system's count; 0 where it does not say or the process ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Aggregate an archive within a fixed memory.")
    parser.add_argument("archive")
    parser.add_argument("--memory-mib", type=int, default=MEMORY_MIB)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    spark = session(given.master, app="veena-aggregate", memory=f"{given.memory_mib}m")
    try:
        found = aggregate(spark, given.archive, given.memory_mib)
    finally:
        spark.stop()
    print(json.dumps({**asdict(found), "is_within_bound": found.is_within_bound}))


if __name__ == "__main__":
    main()
