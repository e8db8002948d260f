"""Match, archive and audit of given data, on whatever session: run here on `local[2]`, and by itself on a cluster.

    python -m tests.spark.cluster_job MASTER DIRECTORY      # answers in DIRECTORY/answers.json

Everything that it answers is plain JSON in a fixed order, so two sessions can be compared by `==`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from veena.bench.matching.workloads import find
from veena.core.wire.section import encode_section
from veena.spark.archive import archive
from veena.spark.archive.table import Plan
from veena.spark.audit.audit import audit
from veena.spark.launch.session import session
from veena.spark.matching.bulk import destinations, match
from veena.spark.matching.snapshot import Profile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("topic", "integer", "tags", "selector", "constraint", "xpath")
#: Profiles and events of each engine.
PROFILES, EVENTS = 60, 60
#: What is archived.
KEPT = ("events",)
#: Few tasks, executors whose Java starts fast, and no task before both workers are there.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "200s",
}


def write_events(path: Path) -> None:
    """Events of every engine, in four files."""
    random = Random(7)
    drawn = [event for engine in ENGINES for event in _events(engine, random)]
    path.mkdir()
    for number in range(4):
        at = range(number, len(drawn), 4)
        columns = {
            "broker": pa.array(["b"] * len(at)),
            "offset": pa.array(at, pa.int64()),
            "section": pa.array([encode_section(drawn[i]) for i in at], pa.binary()),
            "topic": pa.array([drawn[i].topic for i in at], pa.string()),
            "integer": pa.array([drawn[i].integer for i in at], pa.int64()),
            "to": pa.nulls(len(at), pa.list_(pa.string())),
        }
        pq.write_table(pa.table(columns), path / f"{number}.parquet")


def _events(engine: str, random: Random) -> Iterator[Any]:
    for _ in range(EVENTS):
        yield find(engine, None)[0].event(random, PROFILES)


def profiles() -> list[Profile]:
    """Profiles of every engine, ids by the hundred of their engine, destinations of up to 40 bits."""
    random = Random(8)
    return [
        Profile(100 * place + i, engine, find(engine, None)[0].constraint(random, i), 1 << (7 * place + i) % 40)
        for place, engine in enumerate(ENGINES)
        for i in range(PROFILES)
    ]


def answers(spark: SparkSession, directory: Path, out: Path) -> dict[str, Any]:
    """All that can be compared; `directory` has the events, the planted archive and the URL of a network."""
    events = spark.read.parquet(str(directory / "events"))
    wanted = profiles()
    archive.run(spark, Plan(out, {"url": (directory / "url").read_text()}), KEPT)
    return {
        "where": _where(spark),
        "pairs": _rows(match(events, wanted)),
        "arrays": _rows(match(events.drop("topic", "integer"), wanted, as_arrays=True)),
        "vectors": _rows(destinations(events, wanted)),
        "wide": [[*row[:-1], row[-1].hex()] for row in _rows(destinations(events, _wide(wanted)))],
        "archive": {table: sorted(map(repr, archive.read(spark, out, table).collect())) for table in KEPT},
        "audit": audit(spark, str(directory / "planted")).report(),
    }


def _wide(wanted: list[Profile]) -> list[Profile]:
    return [each._replace(destination=each.destination << 60) for each in wanted]


def _rows(frame: Any) -> list[list[Any]]:
    return sorted(list(row) for row in frame.collect())


def _where(spark: SparkSession) -> list[list[str]]:
    """From where workers import this package, and in which directories they run."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        import veena.event

        for _ in batches:
            time.sleep(0.5)  # or one worker would do all of them
            yield pa.RecordBatch.from_pydict({"code": [veena.event.__file__], "at": [os.getcwd()]})

    return _rows(spark.range(0, 4, 1, 4).mapInArrow(look, "code string, at string").distinct())


def main(master: str, directory: Path) -> None:
    spark = session(master, memory="512m", conf=QUICK)
    try:
        found = answers(spark, directory, directory / "on-cluster")
    finally:
        spark.stop()
    (directory / "answers.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
