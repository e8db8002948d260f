"""The plain sides of `veena bench pipeline` do the same work as Spark's; bars are told from what is measured."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from pyspark.sql.datasource import InputPartition
from typer.testing import CliRunner

from veena import matching
from veena.bench.workloads import find
from veena.cli import EXIT_USAGE
from veena.cli.bench import bench
from veena.cli.bench_pipeline import LOADS, table
from veena.spark.bench import Effort, Figure, Load
from veena.spark.bench_match import _Match, _Processes, _sql_row
from veena.spark.bench_read import _Process, _SocketReader, fill
from veena.spark.match_snapshot import Profile, profile_set


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
    with _Process("veena.spark.bench_socket", "100", "20", "10") as process:
        reader = _SocketReader(int(process.line()), 100)
        rows: list[dict[str, Any]] = []
        for partition in reader.partitions({"at": 0}, {"at": 100}):
            assert isinstance(partition, InputPartition)
            for batch in reader.read(partition):
                rows += batch.to_pylist()
    assert [row["id"] for row in rows] == [f"bench:1:1:{number}" for number in range(100)]
    assert {len(row["body"]) for row in rows} == {20}


def test_a_log_is_filled_without_a_broker(tmp_path: Path) -> None:
    from veena.runtime.store import Store

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
    short = Figure("match", "x", 0.5, 0.8, {"spark_events_s": 12345.678, "overhead_us": 1.0})
    assert short.is_short
    assert not Figure("match", "x", 0.8, 0.8).is_short
    assert not Figure("match", "x", 0.1, None).is_short
    assert short.line()["detail"]["spark_events_s"] == 12350.0
    assert table([short]).row_count == 1


@pytest.mark.parametrize("arguments", [["--section", "reading"], ["--engine", "sql"], ["--quick", "--check"]])
def test_the_command_refuses_what_it_does_not_know(arguments: list[str]) -> None:
    assert CliRunner().invoke(bench, ["pipeline", *arguments]).exit_code == EXIT_USAGE
