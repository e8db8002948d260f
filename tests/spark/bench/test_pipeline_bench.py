"""The plain sides of `veena bench pipeline` do the same work as Spark's; bars are told from what is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from typer.testing import CliRunner

from tests.spark.stored import write_archive
from veena import matching
from veena.bench.matching.workloads import find
from veena.cli import EXIT_USAGE
from veena.cli.lab.bench import bench
from veena.cli.lab.bench_pipeline import LOADS, table
from veena.spark.archive.manifest import File, Manifest, commit
from veena.spark.bench.aggregate import BESIDE_MIB, aggregate
from veena.spark.bench.cores import below, confined
from veena.spark.bench.match import _Match, _Processes, _sql_row
from veena.spark.bench.push import measure_push
from veena.spark.bench.read import ReadProcess, _SocketReader, fill
from veena.spark.bench.suite import Effort, Figure, Load
from veena.spark.log.tables import TABLES
from veena.spark.matching.snapshot import Profile, profile_set


@pytest.mark.parametrize("engine", ["topic", "xpath"])
def test_plain_processes_find_what_the_engine_finds(engine: str, tmp_path: Path) -> None:
    workload = find(engine, None)[0]
    load = Load(engine, workload.name, workload.constraint, workload.event, 1000, 1000)
    measured = _Match(cast("Any", None), load, Effort(), lambda step: None, tmp_path)
    random = Random(1)
    profiles = [Profile(number, engine, workload.constraint(random, number)) for number in range(1000)]
    state = random.getstate()
    measured._write_events(random)
    random.setstate(state)
    alone = matching.create(engine)
    for profile in profiles:
        assert not isinstance(profile.condition, bytes)
        alone.add(profile.profile_id, profile.condition, 1)
    expected = sum(len(alone.match(workload.event(random, 1000))) for _ in range(1000))
    chosen = profile_set(profiles)
    with _Processes(measured._judge(chosen), chosen, tmp_path) as plain:
        assert plain.pairs() == expected > 0
        assert plain.seconds() > 0
        assert plain.engine_us() > 0


def test_the_plain_socket_sends_every_row_once() -> None:
    with ReadProcess("veena.spark.bench.plain_socket", "100", "20", "10") as process:
        reader = _SocketReader(int(process.line()), 100)
        rows: list[dict[str, Any]] = []
        for partition in reader.partitions({"at": 0}, {"at": 100}):
            assert isinstance(partition, InputPartition)
            for batch in reader.read(partition):
                rows += batch.to_pylist()
    assert [row["id"] for row in rows] == [f"bench:1:1:{number}" for number in range(100)]
    assert {len(row["body"]) for row in rows} == {20}


def test_a_log_is_filled_without_a_broker(tmp_path: Path) -> None:
    from veena.runtime.store.store import Store

    fill(tmp_path / "data", 25)
    with Store(tmp_path / "data", lambda answers: None) as store:
        assert store.statistics().next_offset == 25


def test_selectors_are_the_same_in_sql() -> None:
    """The cross join gets texts and bounds of a selector as columns."""
    row = _sql_row(Profile(1, "selector", ("q", "(sym = 'S1' OR sym = 'S2') AND b BETWEEN 0.25 AND 0.5")))
    assert row == (1, 1, "S1", "S2", [0.25], [0.5])
    for _, name, _, _ in (load for load in LOADS if load[0] == "selector"):
        workload = find("selector", name)[0]
        kinds = {_sql_row(Profile(n, "selector", workload.constraint(Random(n), n)))[1] for n in range(40)}
        assert kinds == ({0} if name == "eq001" else {0, 1, 2, 3, 4})


def test_figures_know_their_bars() -> None:
    detail = {"spark_events_s": 12345.678, "overhead_us": 1.0, "engine_us": 30.0, "java_us": 8.0, "python_us": 40.0}
    short = Figure("match", "x", 0.5, 0.8, detail)
    assert short.is_short
    assert not Figure("match", "x", 0.8, 0.8).is_short
    assert not Figure("match", "x", 0.1, None).is_short
    assert short.line()["detail"]["spark_events_s"] == 12350.0
    met = Figure("match", "x, 1 to 2 cores", 1.7, 1.6, {"processes_ratio": 1.9})
    shown = table([short, met, Figure("push", "x", 100.0, 90.0, {"looked_at": 100, "sent": 1})])
    assert list(shown.columns[2].cells) == ["0.8 short", "1.6 met", "90 met"]
    told = list(map(str, shown.columns[3].cells))
    assert "Java 8.0 us" in told[0] and "1.90 x" in told[1] and "sent 1" in told[2]


def test_a_filter_of_one_in_a_hundred_sends_one_in_a_hundred(spark: SparkSession) -> None:
    """ORD-02: by the broker's own counters, a selector and a pushed WHERE send what they find, and nothing else."""
    selector, pushed, plain = measure_push(spark, Effort(rounds=1, divisor=50), lambda step: None)
    for figure in (selector, pushed):
        assert (figure.detail["looked_at"], figure.detail["sent"], figure.detail["found"]) == (2000, 20, 20)
        assert not figure.is_short
    assert plain.detail["sent"] == 2000


def test_processes_are_confined_to_one_core_for_a_while() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        free = os.sched_getaffinity(process.pid)
        with confined([process.pid]):
            assert len(os.sched_getaffinity(process.pid)) == 1
        assert os.sched_getaffinity(process.pid) == free
        assert process.pid in below([os.getpid()])
        process.stdin.close()


def test_an_archive_is_aggregated_within_the_memory_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    """DIS-21: every row is counted, and Java takes no more than it was given (here the 1 GiB of all tests)."""
    at = datetime(2026, 11, 16, tzinfo=UTC)
    rows = [
        {
            "broker": "a.1", "offset": n, "at": at, "id": f"p:1:1:{n}", "publisher": "p", "incarnation": 1, "stamp": 1,
            "sequence": n, "reliable": True, "priority": 4, "origin": "0.0.0", "published": at,
            "topic": f"t{n % 50}", "to": [], "properties": {}, "headers": {}, "section": b"", "body": b"x" * 10,
        }
        for n in range(20_000)
    ]  # fmt: skip
    written = write_archive({"events": rows}, tmp_path) / "events" / "rows.parquet"
    kept = File("date=2026-11-16/part-0.parquet", len(rows), written.stat().st_size)
    (tmp_path / "events" / kept.path).parent.mkdir()
    written.rename(tmp_path / "events" / kept.path)
    commit(tmp_path, Manifest("events", "archive-test", columns=TABLES["events"], files=(kept,)))
    found = aggregate(spark, str(tmp_path), 1024)
    numbers = (found.events, found.distinct, found.topics, found.fewest, found.most, found.body_bytes)
    assert numbers == (20_000, 20_000, 50, 400, 400, 200_000)
    assert 0 < found.java_mib <= found.memory_mib + BESIDE_MIB, found
    assert not replace(found, java_mib=found.memory_mib + BESIDE_MIB + 1.0).is_within_bound


@pytest.mark.parametrize("arguments", [["--section", "reading"], ["--engine", "sql"], ["--quick", "--check"]])
def test_the_command_refuses_what_it_does_not_know(arguments: list[str]) -> None:
    assert CliRunner().invoke(bench, ["pipeline", *arguments]).exit_code == EXIT_USAGE
