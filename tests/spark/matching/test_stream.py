"""Matching a stream: profiles change between batches, and every event is matched once whatever fails (ORD-04)."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from veena import Event
from veena.core.wire.section import encode_section
from veena.errors import PipelineError
from veena.spark.matching.profiles import StoredProfiles
from veena.spark.matching.stream import match_stream

ROW = "broker string, offset bigint, section binary"


def _write_events(directory: Path, first: int, events: list[Event]) -> None:
    directory.mkdir(exist_ok=True)
    rows = {
        "broker": ["b"] * len(events),
        "offset": pa.array(range(first, first + len(events)), pa.int64()),
        "section": [encode_section(event) for event in events],
    }
    pq.write_table(pa.table(rows), directory / f"{first}.parquet")


def _write_profiles(path: Path, conditions: dict[int, str]) -> None:
    lines = [
        json.dumps({"id": number, "engine": "selector", "condition": ["q", text]})
        for number, text in conditions.items()
    ]
    path.write_text("\n".join(lines))


def _run(spark: SparkSession, tmp: Path, on_error: str = "raise") -> None:
    stream = spark.readStream.schema(ROW).option("maxFilesPerTrigger", 1).parquet(str(tmp / "events"))
    query = match_stream(
        stream,
        StoredProfiles(tmp / "profiles.jsonl"),
        str(tmp / "out"),
        trigger={"availableNow": True},
        on_error=on_error,
    )
    query.awaitTermination(120)


def _found(spark: SparkSession, tmp: Path) -> list[tuple[int, int, int]]:
    rows = spark.read.parquet(str(tmp / "out")).select("batch", "offset", "profile_id").collect()
    return sorted(map(tuple, rows))


def test_profiles_change_between_batches_and_no_event_is_matched_twice(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that was written and not committed is done again; what it had left is replaced, by what stands now."""
    _write_events(tmp_path / "events", 0, [Event(topic="q", properties={"x": number}) for number in range(4)])
    _write_profiles(tmp_path / "profiles.jsonl", {1: "x > 1"})
    _run(spark, tmp_path)
    assert _found(spark, tmp_path) == [(0, 2, 1), (0, 3, 1)]
    _write_events(tmp_path / "events", 4, [Event(topic="q", properties={"x": number}) for number in range(2)])
    _write_profiles(tmp_path / "profiles.jsonl", {1: "x > 1", 2: "x < 1"})
    _run(spark, tmp_path)
    assert _found(spark, tmp_path) == [(0, 2, 1), (0, 3, 1), (1, 4, 2)]
    versions = spark.read.parquet(str(tmp_path / "out")).select("batch", "version").distinct().collect()
    assert len({row["version"] for row in versions}) == 2
    # As a crash leaves it between the last write and the commit.
    commits = tmp_path / "out" / "_checkpoint" / "commits"
    for file in (commits / "1", commits / ".1.crc"):
        file.unlink(missing_ok=True)
    _write_profiles(tmp_path / "profiles.jsonl", {3: "x = 1"})
    _run(spark, tmp_path)
    assert _found(spark, tmp_path) == [(0, 2, 1), (0, 3, 1), (1, 5, 3)]


def test_a_wrong_profile_ends_the_query_or_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    _write_events(tmp_path / "events", 0, [Event(topic="q", properties={"x": 2})])
    _write_profiles(tmp_path / "profiles.jsonl", {1: "x > 1", 2: "x >"})
    with pytest.raises(StreamingQueryException, match=r"profile 2 \(selector\)"):
        _run(spark, tmp_path)
    _run(spark, tmp_path, on_error="skip")
    assert _found(spark, tmp_path) == [(0, 0, 1)]
    rejected = spark.read.parquet(str(tmp_path / "out" / "_rejected" / "batch=0")).collect()
    assert [row["profile_id"] for row in rejected] == [2]


def test_a_stream_is_asked_for_and_its_own_directory(spark: SparkSession, tmp_path: Path) -> None:
    store = StoredProfiles(tmp_path / "profiles.jsonl")
    with pytest.raises(PipelineError, match="do not stream"):
        match_stream(spark.createDataFrame([], ROW), store, str(tmp_path / "out"))
    (tmp_path / "out" / "batch=0").mkdir(parents=True)
    (tmp_path / "events").mkdir()
    stream = spark.readStream.schema(ROW).parquet(str(tmp_path / "events"))
    with pytest.raises(PipelineError, match="matches of another stream"):
        match_stream(stream, store, str(tmp_path / "out"))
