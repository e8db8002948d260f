"""Files and manifests of an archive, without a Spark: whole or not there, whoever is killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import veena
import veena.testing
from veena.cli.pipeline import archive as pipeline_archive
from veena.errors import NotConnected, PipelineError, VeenaError
from veena.spark.archive import archive
from veena.spark.archive.compact import plan, without_old
from veena.spark.archive.files import DayFiles, Group, Merge, arrow_schema, write_group, write_merge
from veena.spark.archive.manifest import File, Gap, Manifest, Retired, commit, load, sweep
from veena.spark.archive.table import grouped, offsets_of
from veena.spark.launch.failures import brief, is_passing, reason
from veena.spark.log.client import Access
from veena.spark.log.tables import TABLES
from veena.spark.source.offsets import LOG, Span
from veena.spark.source.task import Task

PATIENCE_S = 30.0
COUNT = 30
NARROW = {"broker": "string", "offset": "bigint", "at": "timestamp"}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    async def publish(url: str) -> None:
        async with veena.connect(url, client_id="alice") as client:
            await asyncio.gather(*(client.publish(topic="t", body=bytes([n]), reliable=True) for n in range(COUNT)))

    with veena.testing.broker() as url:
        asyncio.run(publish(url))
        yield url


def task(url: str, start: int = 0, end: int = COUNT, retry_s: float = PATIENCE_S) -> Task:
    return Task(Span("a.1", LOG, start, end), url, Access(), "events", tuple(TABLES["events"]), retry_s=retry_s)


def rows_of(days: list[datetime], first: int = 0) -> pa.RecordBatch:
    offsets = list(range(first, first + len(days)))
    return pa.RecordBatch.from_pydict(
        {"broker": ["a"] * len(days), "offset": offsets, "at": days}, schema=arrow_schema(NARROW)
    )


def test_the_same_ranges_make_the_same_file(url: str, tmp_path: Path) -> None:
    group = Group((task(url, 0, 10), task(url, 10, COUNT)))
    first = write_group(str(tmp_path), TABLES["events"], group)
    assert write_group(str(tmp_path), TABLES["events"], group) == first
    (file,) = first.files
    assert file.rows == COUNT and file.date == datetime.now(UTC).date().isoformat()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [file.path]
    found = pq.read_table(tmp_path / file.path, partitioning=None)
    assert found.column("offset").to_pylist() == list(range(COUNT))
    assert found.schema.names == list(TABLES["events"])
    assert Group((task(url, 0, 11), task(url, 11, COUNT))).name != group.name


def test_a_broker_that_goes_leaves_no_file_behind(url: str, tmp_path: Path) -> None:
    with veena.testing.broker() as gone:
        pass
    group = Group((task(url), task(gone, retry_s=0.1)))
    with pytest.raises(NotConnected):
        write_group(str(tmp_path), TABLES["events"], group)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_rows_go_to_the_files_of_their_days(tmp_path: Path) -> None:
    days = [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 11, 16, tzinfo=UTC),
        datetime(2026, 11, 15, 23, 59, 59, 999_999, UTC),
        datetime(2026, 11, 16, 23, tzinfo=UTC),
    ]
    with DayFiles(tmp_path, arrow_schema(NARROW), "x.parquet") as files:
        files.add(rows_of(days))
        files.add(rows_of(days[1:2], first=9))
        assert list(tmp_path.rglob("x.parquet")) == [], "nothing is there before it is whole"
        finished = files.finished()
    assert [(file.date, file.rows) for file in finished] == [("1969-12-31", 1), ("2026-11-15", 1), ("2026-11-16", 3)]
    whole = pq.read_table(tmp_path / "date=2026-11-16" / "x.parquet", partitioning=None)
    assert whole.column("offset").to_pylist() == [1, 3, 9]


def test_who_is_killed_while_writing_leaves_nothing_that_anybody_would_read(tmp_path: Path) -> None:
    """A torn file has a name that no reader looks for, and is swept away by the next run."""
    program = (
        "import sys, pyarrow as pa; from pathlib import Path; from veena.spark.archive.files import *\n"
        "schema = arrow_schema({'broker': 'string', 'offset': 'bigint', 'at': 'timestamp'})\n"
        "with DayFiles(Path(sys.argv[1]), schema, 'x.parquet') as files:\n"
        "    while True:\n"
        "        files.add(pa.RecordBatch.from_arrays([pa.array(['a'] * 70000), pa.array(range(70000)),\n"
        "            pa.array([0] * 70000, schema.field('at').type)], schema=schema))\n"
    )
    directory = tmp_path / "events"
    writer = subprocess.Popen([sys.executable, "-c", program, str(directory)])
    try:
        until(lambda: any(path.stat().st_size > 4096 for path in directory.rglob("*.tmp")))
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    assert list(directory.rglob("*.parquet")) == []
    assert sweep(tmp_path, Manifest("events", "r")) == 1
    assert [path for path in directory.rglob("*") if path.is_file()] == []


def test_files_from_before_a_column_are_widened_when_they_are_merged(tmp_path: Path) -> None:
    at = [datetime(2026, 11, 16, tzinfo=UTC)] * 2
    paths = []
    for index in range(2):
        with DayFiles(tmp_path, arrow_schema(NARROW), f"{index}.parquet") as files:
            files.add(rows_of(at, first=2 * index))
            paths += [file.path for file in files.finished()]
    merge = Merge("2026-11-16", tuple(paths))
    (file,) = write_merge(str(tmp_path), NARROW | {"later": "map<string,string>"}, merge).files
    assert pq.read_table(tmp_path / file.path, partitioning=None).to_pylist() == [
        {"broker": "a", "offset": offset, "at": at[0], "later": None} for offset in range(4)
    ]


def test_small_files_of_a_day_are_merged_up_to_the_target() -> None:
    def named(date: str, sizes: list[int]) -> list[File]:
        return [File(f"date={date}/{index}", 1, size) for index, size in enumerate(sizes)]

    files = named("1", [10, 200, 40, 40, 10]) + named("2", [1, 1]) + named("3", [49] * 3)
    merged = [(merge.date, [path[-1] for path in merge.paths]) for merge in plan(files, 3, 100)]
    assert merged == [("1", ["0", "2", "3", "4"]), ("3", ["0", "1"])]


def test_spans_of_many_brokers_share_a_file() -> None:
    tasks = [task("veena://127.0.0.1:1", 0, end) for end in (5, 4, 3, 20, 1)]
    assert [[len(each.span) for each in group.tasks] for group in grouped(tasks, 10)] == [[5, 4], [3], [20], [1]]
    assert grouped([], 10) == []


def test_a_manifest_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Whoever reads while it is written sees one or the other, never less."""
    over = threading.Event()

    def write() -> None:
        for number in range(150):
            files = tuple(File(f"date=1/{index}", number, 1) for index in range(number))
            commit(tmp_path, Manifest("events", "r", commits=number, files=files))
        over.set()

    commit(tmp_path, Manifest("events", "r"))
    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not over.is_set():
        found = load(tmp_path, "events")
        assert found is not None and len(found.files) == found.commits
        assert all(file.rows == found.commits for file in found.files)
        seen.append(found.commits)
    writer.join()
    assert seen == sorted(seen) and len(set(seen)) > 1
    assert [path.name for path in (tmp_path / "events").iterdir()] == ["_manifest.json"]


def test_retired_files_stay_for_their_time(tmp_path: Path) -> None:
    directory = tmp_path / "events" / "date=1"
    directory.mkdir(parents=True)
    for name in ("now", "old", "fresh", "orphan"):
        (directory / f"{name}.parquet").write_bytes(b"")
    manifest = Manifest(
        "events",
        "r",
        files=(File("date=1/now.parquet", 1, 1),),
        retired=(Retired("date=1/old.parquet", time.time() - 100), Retired("date=1/fresh.parquet", time.time())),
    )
    assert sweep(tmp_path, manifest) == 1
    after = without_old(tmp_path, manifest, grace_s=50)
    assert [file.path for file in after.retired] == ["date=1/fresh.parquet"]
    assert sorted(path.stem for path in directory.iterdir()) == ["fresh", "now"]


def test_a_manifest_that_is_none_is_refused_with_its_name(tmp_path: Path) -> None:
    directory = tmp_path / "events"
    directory.mkdir()
    path = directory / "_manifest.json"
    for text, words in (
        (b"{", "not a manifest of an archive"),
        (b'{"table": "hops", "reader": "r"}', "the manifest of table 'hops'; was it moved"),
        (b'{"table": "events", "reader": "r", "version": 99}', "written by a newer Veena"),
    ):
        path.write_bytes(text)
        with pytest.raises(PipelineError, match=f"{path}: {words}"):
            load(tmp_path, "events")
    with pytest.raises(PipelineError, match=r"table 'event': an archive has no such table; use one of events"):
        load(tmp_path, "event")


def test_manifests_are_plain_json_for_others(tmp_path: Path) -> None:
    commit(tmp_path, Manifest("events", "r", files=(File("date=1/x.parquet", 3, 9),), gaps=(Gap("a", LOG, 1, 2),)))
    told = msgspec.json.decode((tmp_path / "events" / "_manifest.json").read_bytes())
    assert told["files"] == [{"path": "date=1/x.parquet", "rows": 3, "bytes": 9}]
    assert told["gaps"] == [{"broker": "a", "log": "log", "start": 1, "end": 2}]
    assert archive.files(tmp_path) == [tmp_path / "events" / "date=1" / "x.parquet"]
    assert archive.files(tmp_path, "hops") == []


def test_an_archive_is_written_by_one_and_is_somewhere(tmp_path: Path) -> None:
    with (
        archive.locked(tmp_path / "a"),
        pytest.raises(PipelineError, match="another process writes it"),
        archive.locked(tmp_path / "a"),
    ):
        pass
    with pytest.raises(PipelineError, match=r"there is no archive; make one with `veena pipeline archive --out"):
        archive.files(tmp_path / "b")
    with pytest.raises(PipelineError, match=r"s3://x.*needs a file system; give a directory"):
        archive.directory_of("s3://x/y")


def test_offsets_of_a_batch_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"conf": {}}\n{"a": 7}')
    (tmp_path / "offsets" / "4").write_text("v9\n{}")
    assert offsets_of(tmp_path, 3) == {"a": 7}
    with pytest.raises(PipelineError, match="in a form that this Veena does not know"):
        offsets_of(tmp_path, 4)
    with pytest.raises(PipelineError, match="not there, though batch 5 runs"):
        offsets_of(tmp_path, 5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            """[STREAM_FAILED] Query terminated: py4j.Py4JException: Traceback (most recent call last):
              File "x.py", line 1
            veena.errors.NotConnected: no broker answers: start one

                at java.lang.Thread
            === Streaming Query ===
            Identifier: x""",
            "no broker answers: start one",
        ),
        ("org.apache.spark.SparkException: x\nbuiltins.ValueError: wrong\n\tat y", "builtins.ValueError: wrong"),
        ("Python worker failed to connect back.", "Python worker failed to connect back."),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'. SQLSTATE: 42601 (line 1)",
            "[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'.",
        ),
        (
            """An error occurred while calling o29.parquet.
: org.apache.spark.SparkException: [FAILED_READ_FILE] No Parquet.
\tat org.apache.spark.X
\tSuppressed: org.apache.spark.SparkException: Exception thrown in awaitResult
Caused by: java.io.IOException: deeper""",
            "[FAILED_READ_FILE] No Parquet.",
        ),
        ("", "for no reason that is known"),
    ],
)
def test_a_failure_says_what_python_said(text: str, told: str) -> None:
    assert reason(text) == told


def test_a_long_failure_is_told_briefly_and_whether_it_may_pass() -> None:
    long = "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: x\n" + "\tat y\n" * 5000
    told = brief(RuntimeError(f"{long}veena.errors.NotConnected: no broker answers\n{long}"))
    assert str(told) == "no broker answers [errors.NotConnected]" and is_passing(told)
    assert str(brief(RuntimeError(long))) == "x" and not is_passing(brief(RuntimeError(long)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trigger", "5y"], r"--trigger '5y': write a time from 100ms to 24h"),
        (["--trigger", "1ms"], r"--trigger '1ms'"),
        (["--adverts", "2d"], r"--adverts '2d': write a time from 100ms to 24h"),
        (["--adverts-keep", "30d"], r"--adverts-keep '30d': .* say with --adverts how often"),
        (["--adverts", "10m", "--adverts-keep", "0d"], r"--adverts-keep '0d': write a time, as 12h or 30d"),
        (["--tables", "events,foo"], r"--tables 'events,foo': choose from events, deliveries"),
        (["--url", "http://a"], r"option url = 'http://a'.*write veena://host:port"),
        (["--out", "hdfs://a/b"], r"archive 'hdfs://a/b': files are renamed into place"),
    ],
)
def test_a_wrong_command_is_refused_before_spark_starts(arguments: list[str], words: str) -> None:
    app = typer.Typer()
    pipeline_archive.register(app)
    told = CliRunner().invoke(app, ["--out", "archive", *arguments])
    assert told.exit_code and isinstance(told.exception, VeenaError)
    assert re.search(words, str(told.exception))
