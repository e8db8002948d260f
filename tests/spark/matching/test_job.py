"""`veena pipeline match`: from files to files, and where profiles come from."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from veena import Event
from veena.cli import EXIT_BROKEN
from veena.cli.pipeline import match as pipeline_match
from veena.core.wire.section import encode_section
from veena.errors import PipelineError
from veena.runtime.store.rows import pack_condition
from veena.spark.log.tables import ddl
from veena.spark.matching.bulk import KEY
from veena.spark.matching.job import run_match
from veena.spark.matching.profiles import StoredProfiles, read_lines, standing
from veena.spark.matching.snapshot import Profile, profile_set

LINES = """
{"id": 1, "engine": "selector", "condition": ["q", "x > 1"]}
{"id": 2, "engine": "topic", "condition": "q", "destination": 4}

{"id": 3, "engine": "xpath", "condition": ["/p:a", {"p": "urn:p"}]}
{"id": 4, "engine": "integer", "condition": 9}
"""


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Four events in a Parquet file."""
    made = [
        Event(topic="q", properties={"x": 1}),
        Event(topic="q", properties={"x": 2}),
        Event(topic="other", integer=8),
        Event(xml='<a xmlns="urn:p"/>'),
    ]
    rows = {
        "broker": ["b"] * 4,
        "offset": pa.array(range(4), pa.int64()),
        "section": [encode_section(event) for event in made],
    }
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table(rows), path)
    return path


def test_profiles_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "profiles.jsonl"
    path.write_text(LINES)
    assert read_lines(path) == [
        Profile(1, "selector", ("q", "x > 1")),
        Profile(2, "topic", "q", 4),
        Profile(3, "xpath", ("/p:a", {"p": "urn:p"})),
        Profile(4, "integer", 9),
    ]
    for wrong in ('{"id": 1, "engine": "topic"}', "[1]", '{"id": "x", "engine": "topic", "condition": "q"}', "\x80"):
        path.write_text('{"id": 1, "engine": "topic", "condition": "q"}\n' + wrong)
        with pytest.raises(PipelineError, match=r"line 2: .*expected for example"):
            read_lines(path)


def test_a_change_of_the_files_is_another_version(tmp_path: Path) -> None:
    path = tmp_path / "profiles.jsonl"
    path.write_text("a")
    stored = StoredProfiles(path)
    before = stored.version()
    assert stored.version() == before
    path.write_text("ab")
    assert stored.version() != before
    assert StoredProfiles(tmp_path).version() == StoredProfiles(tmp_path).version() != before


def test_pairs_and_counts_are_written(spark: SparkSession, tmp_path: Path, events: Path) -> None:
    path = tmp_path / "profiles.jsonl"
    path.write_text(LINES + '{"id": 5, "engine": "topic", "condition": ""}')
    stored, frame = StoredProfiles(path), spark.read.parquet(str(events))
    report = run_match(spark, frame, stored, tmp_path / "one", key=KEY, on_error="skip")
    assert (report.events, report.profiles, report.rejected) == (4, 4, 1)
    assert (report.pairs, report.matched_profiles) == (4, 3)
    pairs = spark.read.parquet(str(tmp_path / "one" / "matches")).select("offset", "profile_id").collect()
    assert sorted(map(tuple, pairs)) == [(0, 2), (1, 1), (1, 2), (3, 3)]
    assert spark.read.parquet(str(tmp_path / "one" / "rejected")).collect()[0]["profile_id"] == 5
    counted = run_match(spark, frame, stored, tmp_path / "two", key=KEY, counts=True, on_error="skip")
    assert (counted.pairs, counted.matched_profiles) == (4, 3)
    counts = spark.read.parquet(str(tmp_path / "two" / "counts")).collect()
    assert dict(map(tuple, counts)) == {1: 1, 2: 2, 3: 1, 4: 0}
    with pytest.raises(PipelineError, match="not an empty directory"):
        run_match(spark, frame, stored, tmp_path / "one", key=KEY)


def test_the_profiles_of_a_time(spark: SparkSession) -> None:
    """Those that were made by then and not removed; a subscription that came back counts."""
    names = ["at", "session", "subscription", "change", "engine", "condition", "client_id", "broker", "offset"]
    wanted = pack_condition("q")
    rows = [
        (1, 1, 1, "added", "topic", wanted),
        (2, 1, 1, "active", "topic", wanted),
        (3, 1, 2, "added", "selector", pack_condition(("q", "x > 1"))),
        (4, 1, 1, "removed", "topic", wanted),
        (4, 2, 1, "added", "to", pack_condition("alice")),
        (4, 2, 0, "attached", "", None),
        (5, 1, 1, "added", "topic", wanted),
    ]
    made = [
        dict(
            zip(names, (datetime.fromtimestamp(row[0], UTC), *row[1:], "alice", "b", number), strict=True),
        )
        for number, row in enumerate(rows)
    ]
    table = spark.createDataFrame([], ddl("profiles")).unionByName(
        spark.createDataFrame(
            [tuple(row[name] for name in names) for row in made],
            "at timestamp, session bigint, subscription bigint, change string, engine string, condition binary,"
            " client_id string, broker string, offset bigint",
        ),
        allowMissingColumns=True,
    )
    expected = {None: [1, 2], 4: [2], 2: [1]}
    for at, subscriptions in expected.items():
        found = standing(table, None if at is None else datetime.fromtimestamp(at, UTC))
        assert sorted(row["subscription"] for row in found.collect()) == subscriptions
    chosen = profile_set(standing(table))
    assert chosen.sizes == {"topic": 1, "selector": 1}
    assert chosen.ids.tolist() == [1, 2]


def test_the_command_says_what_it_needs(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    pipeline_match.register(app)
    for arguments, reason in (
        (["--out", "x"], "where are the events"),
        (["--out", "x", "--events", "e", "--archive", "a"], "where are the events"),
        (["--out", "x", "--events", "e"], "--events needs --profiles"),
        (["--out", "x", "--archive", "a", "--as-of", "noon"], "expected a time"),
    ):
        ended = CliRunner().invoke(app, arguments)
        assert ended.exit_code == EXIT_BROKEN
        assert isinstance(ended.exception, PipelineError)
        assert reason in str(ended.exception)


def test_a_line_of_the_report_can_be_read(
    spark: SparkSession, tmp_path: Path, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import typer

    path = tmp_path / "profiles.jsonl"
    path.write_text(LINES)
    app = typer.Typer()
    pipeline_match.register(app)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # this process needs its session after the command
    arguments = ["--events", str(events), "--profiles", str(path), "--out", str(tmp_path / "out"), "--json"]
    arguments += ["--master", str(spark.sparkContext.master)]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, ended.output
    report = json.loads(ended.stdout)
    assert (report["events"], report["profiles"], report["pairs"]) == (4, 4, 4)
