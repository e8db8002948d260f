"""A part of the past on the network again: any SQL over an archive, in the order of its time, once (`replay_rows`).

    replay(spark, "archive", "SELECT * FROM events WHERE topic = 'quotes'", "veena://127.0.0.1:7700", run="monday")

What the SQL finds is kept as files beside the archive (`_replays/RUN`), so that a run means the same rows in the same
order from its first to its last, whatever is archived or compacted meanwhile. Rows are published in windows, each of
them a batch whose number is the place of its last row (`staging_client`). So the broker knows how many rows are out,
and a run that was stopped, or killed, goes on behind them: nothing is missing and nothing comes twice.

A row goes out at once, or with `speed` when it is its time: gaps between events are as they were, divided by it. `rate`
holds them to so many a second. One process publishes, in order; Spark does the selecting.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veena.errors import PipelineError
from veena.spark.archive.archive import existing, read
from veena.spark.launch.failures import reason
from veena.spark.log.connection import Access
from veena.spark.log.tables import TABLES
from veena.spark.sink.replay_rows import COLUMNS, TIMES, Redirection, check_columns, event_of
from veena.spark.sink.staging_client import StageClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows of one window: few enough that progress is seen, many enough that two syncs each cost little.
WINDOW_ROWS: Final = 2000
#: What is due so soon goes along, so that there are at most some twenty windows a second.
SOON_S: Final = 0.05
#: A wait is cut into pieces, so that who stops the run is heard.
WAIT_S: Final = 0.1
MAX_RATE: Final = 1e9
MAX_SPEED: Final = 1e9
#: Names of topics that a dry run shows.
TOPICS_SHOWN: Final = 20
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast rows go out: as they come, at `speed` times the time they had, at most `rate` a second."""

    speed: float | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        for name, value, most in (("speed", self.speed, MAX_SPEED), ("rate", self.rate, MAX_RATE)):
            if value is not None and not 0 < value <= most:
                raise PipelineError(f"--{name} {value:g}: use a number above 0, at most {most:g}")


@dataclass(frozen=True, slots=True)
class Run:
    """What is kept of a run beside its rows."""

    run: str
    sql: str
    rows: int
    topic: str | None
    to: tuple[str, ...]
    #: The permanent name of the broker that knows how far it is; empty before it is asked.
    broker: str = ""
    #: Rows that were out when somebody last looked; the broker knows it better.
    published: int = 0
    done: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to: its rows, those that were out before, those that went out now."""

    run: str
    rows: int
    before: int
    published: int
    seconds: float

    @property
    def left(self) -> int:
        return self.rows - self.before - self.published


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would publish."""

    rows: int
    first: str | None
    last: str | None
    topics: dict[str, int]


def select(spark: SparkSession, archive: str | PathLike[str], sql: str) -> DataFrame:
    """What the SQL finds in the tables of an archive; PipelineError where no events can be made of it."""
    for table in TABLES:
        read(spark, archive, table).createOrReplaceTempView(table)
    try:
        found = spark.sql(sql)
    except Exception as error:  # every way in which Spark says that SQL is wrong; one line of it says all
        raise PipelineError(f"SQL {sql!r:.200}: {reason(str(error))}") from None
    check_columns(dict(found.dtypes))
    return found


def preview(spark: SparkSession, archive: str | PathLike[str], sql: str) -> Preview:
    """How many events the SQL finds, of when, and of which topics; nothing is published or kept."""
    from pyspark.sql import functions as F  # noqa: N812

    found = select(spark, archive, sql)
    when = next((name for name in TIMES if name in found.columns), None)
    span = (F.min(when), F.max(when)) if when else (F.lit(None), F.lit(None))
    rows, first, last = found.agg(F.count("*"), *(each.cast("string") for each in span)).first() or (0, None, None)
    topics: dict[str, int] = {}
    if "topic" in found.columns:
        counted = found.groupBy("topic").count().orderBy(F.desc("count"), "topic").limit(TOPICS_SHOWN)
        topics = {row["topic"]: row["count"] for row in counted.collect() if row["topic"] is not None}
    return Preview(rows, first, last, topics)


def begun(
    archive: str | PathLike[str], run: str, sql: str | None, topic: str | None = None, to: tuple[str, ...] = ()
) -> Path | None:
    """The directory of a run that was begun with these words, or is given none; None for one that is to be begun."""
    directory = existing(archive) / "_replays" / _checked(run)
    if not (directory / "run.json").exists():
        if sql is None:
            raise PipelineError(f"run {run!r} is not known in {directory.parent}: give --sql to begin it")
        return None
    kept = load(directory)
    if (sql, topic, to) not in ((kept.sql, kept.topic, kept.to), (None, None, ())):
        raise PipelineError(
            f"run {run!r} was begun with other words ({kept.sql!r:.200}): leave out --sql, --topic and --to to go on"
            " with it, or give another --run"
        )
    return directory


def prepare(
    spark: SparkSession,
    archive: str | PathLike[str],
    sql: str | None,
    run: str | None = None,
    topic: str | None = None,
    to: tuple[str, ...] = (),
) -> Path:
    """Keep what a run is to publish, or find what was kept; the directory of the run."""
    name = run or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    known = begun(archive, name, sql, topic, to)
    if known is not None:
        return known
    assert sql is not None
    directory = existing(archive) / "_replays" / name
    found = select(spark, archive, sql)
    when = next((each for each in TIMES if each in found.columns), None)
    if when is not None:
        found = found.orderBy(when, "id")
    rows = found.select(*(each for each in COLUMNS if each in found.columns))
    shutil.rmtree(directory, ignore_errors=True)  # of a run that was killed before it had all its rows
    directory.mkdir(parents=True)
    rows.write.parquet((directory / "rows").absolute().as_uri())
    _save(directory, Run(name, sql, sum(_counts(directory)), topic, tuple(to)))
    return directory


def publish(
    directory: Path,
    url: str,
    access: Access | None = None,
    pace: Pace | None = None,
    *,
    tell: Callable[[int, int], None] = lambda done, rows: None,
    is_over: Callable[[], bool] = lambda: False,
    timeout: float = 30.0,
) -> Report:
    """Publish what a run still has to, until its end or until `is_over`; `tell` is told how far it is."""
    run, pace = load(directory), pace or Pace()
    began = time.monotonic()
    if run.done:
        return Report(run.run, run.rows, run.rows, 0, 0.0)
    who = access or Access()
    who = replace(who, client_id=who.client_id or f"{who.user or 'spark'}/replay")
    with StageClient(url, who, timeout) as client:
        if run.broker not in ("", client.broker):
            raise PipelineError(
                f"run {run.run!r} was begun at broker {run.broker!r}, which alone knows how far it is: go on there, not"
                f" at {client.broker!r}"
            )
        run = replace(run, broker=client.broker)
        _save(directory, run)
        before = done = client.published(_query(run)) + 1
        if done < run.published:
            raise PipelineError(
                f"run {run.run!r}: {run.published} rows were published, but broker {run.broker!r} knows of {done} only;"
                " its store was emptied, or the run is too old: begin another one, with what is left in its SQL"
            )
        where = Redirection(run.run, run.topic, run.to)
        for window in _windows(directory, done, pace, is_over):
            last = done + len(window) - 1
            part = client.part(_query(run), last)
            for row in window:
                event, reliable = event_of(row, where)
                part.add(event, reliable=reliable)
            client.publish(_query(run), last, [part.finish()])
            done = last + 1
            tell(done, run.rows)
    _save(directory, replace(run, published=done, done=done >= run.rows))
    if done >= run.rows:
        shutil.rmtree(directory / "rows", ignore_errors=True)
    return Report(run.run, run.rows, before, done - before, time.monotonic() - began)


def replay(
    spark: SparkSession,
    archive: str | PathLike[str],
    sql: str | None,
    url: str,
    *,
    run: str | None = None,
    topic: str | None = None,
    to: tuple[str, ...] = (),
    speed: float | None = None,
    rate: float | None = None,
    access: Access | None = None,
) -> Report:
    """Publish what the SQL finds in an archive again; with the name of a run that was stopped, what is left of it."""
    pace = Pace(speed, rate)
    return publish(prepare(spark, archive, sql, run, topic, to), url, access, pace)


def load(directory: Path) -> Run:
    """What is kept of a run."""
    try:
        found = json.loads((directory / "run.json").read_text())
        return Run(**{**found, "to": tuple(found["to"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PipelineError(f"{directory / 'run.json'}: cannot be read ({error}); remove {directory}") from None


# --- windows ---


def _windows(directory: Path, done: int, pace: Pace, is_over: Callable[[], bool]) -> Iterator[list[dict[str, Any]]]:
    """Rows that go out together, each when it is their time."""
    window: list[dict[str, Any]] = []
    began = time.monotonic()
    first_ns: int | None = None
    for sent, row in enumerate(_rows(directory, done)):
        due = began if pace.rate is None else began + sent / pace.rate
        if pace.speed is not None:
            at_ns = _time_ns(row)
            first_ns = at_ns if first_ns is None else first_ns
            due = max(due, began + (at_ns - first_ns) / 1e9 / pace.speed)
        if window and (len(window) >= WINDOW_ROWS or due > time.monotonic() + SOON_S):
            yield window
            window = []
        if not window and not _wait(due, is_over):
            return
        window.append(row)
    if window:
        yield window


def _wait(due: float, is_over: Callable[[], bool]) -> bool:
    """Until it is time; False when the run is to end before."""
    while not is_over():
        left = due - time.monotonic()
        if left <= 0:
            return True
        time.sleep(min(left, WAIT_S))
    return False


def _time_ns(row: dict[str, Any]) -> int:
    at = next((row[name] for name in TIMES if row.get(name) is not None), None)
    if at is None:
        raise PipelineError(f"event {row['id']} has no time: select `published` or `at` to replay with --speed")
    since: timedelta = at - datetime.fromtimestamp(0, at.tzinfo)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def _files(directory: Path) -> list[Path]:
    """In the order of the rows: Spark numbers the files of what it has sorted."""
    return sorted((directory / "rows").glob("part-*.parquet"))


def _counts(directory: Path) -> Iterator[int]:
    from pyarrow.parquet import read_metadata

    return (read_metadata(file).num_rows for file in _files(directory))


def _rows(directory: Path, skip: int) -> Iterator[dict[str, Any]]:
    from pyarrow.parquet import ParquetFile

    for file in _files(directory):
        with ParquetFile(file) as rows:
            if skip >= rows.metadata.num_rows:
                skip -= rows.metadata.num_rows
                continue
            for batch in rows.iter_batches(batch_size=WINDOW_ROWS):
                yield from batch.slice(min(skip, batch.num_rows)).to_pylist()
                skip = max(0, skip - batch.num_rows)


# --- names and files ---


def _query(run: Run) -> str:
    return f"replay/{run.run}"


def _checked(run: str) -> str:
    if not _RUN.fullmatch(run):
        raise PipelineError(f"run {run!r:.80}: name it by 1 to 64 letters, digits, dots, dashes and underscores")
    return run


def _save(directory: Path, run: Run) -> None:
    """Whole or not at all."""
    beside = directory / "run.json.new"
    beside.write_text(json.dumps(asdict(run)) + "\n")
    os.replace(beside, directory / "run.json")
