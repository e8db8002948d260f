"""The archive: everything that a network's brokers log, as Parquet by table and day, each row once.

    veena pipeline archive --url veena://127.0.0.1:7700 --out archive --once

    from veena.spark.archive import archive
    events = archive.read(spark, "archive", "events")      # a DataFrame, with the column `date` at the end
    paths = archive.files("archive", "events")             # for DuckDB, pandas, Arrow: exactly what counts

Events are read from the log of the broker that accepted them and from no other, so nothing has to be compared. How each
row gets there once is told in `table`, what counts as being there in `manifest`.

A broker that is away is left for later: the others go on. Only a batch that was begun with it waits for it, as a batch
cannot change. One process at a time writes an archive; any number read it.
"""

from __future__ import annotations

import fcntl
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veena.errors import PipelineError, Refused
from veena.spark.archive.compact import compact, without_old
from veena.spark.archive.manifest import commit, load, table_directory
from veena.spark.archive.table import Plan, TableArchive, TableReport
from veena.spark.launch.failures import is_passing, reason
from veena.spark.launch.queries import stop
from veena.spark.log.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How often queries are looked after.
LOOK_S: Final = 0.2
#: Before a query that found a broker away is begun again, doubled each time from the first to the second.
PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 15.0
#: How long one that has an end waits for brokers that are away; one without an end waits for ever.
PATIENCE_S: Final = 120.0
#: What means something in a path that Spark is given.
_GLOB: Final = re.compile(r"([\[\]{}*?\\])")

_logger = logging.getLogger("veena.spark")


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    out: str
    seconds: float
    tables: tuple[TableReport, ...]


def read(spark: SparkSession, archive: str | PathLike[str], table: str = "events") -> DataFrame:
    """A table of an archive as it was committed last, with the day of each row in `date`.

    Columns that came later than a row are NULL in it. The DataFrame keeps to the files of now, whatever is archived or
    compacted meanwhile; compaction leaves them for a quarter of an hour.
    """
    root = existing(archive)
    manifest = load(root, table)
    columns = TABLES[table] | (manifest.columns if manifest is not None else {})
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items()) + ", `date` date"
    if manifest is None or not manifest.files:
        return spark.createDataFrame([], schema)
    directory = table_directory(root, table).absolute()
    paths = [_GLOB.sub(r"\\\1", str(directory / file.path)) for file in manifest.files]
    return spark.read.schema(schema).option("basePath", str(directory)).parquet(*paths)


def files(archive: str | PathLike[str], table: str = "events") -> list[Path]:
    """The files of a table that count, for readers other than Spark."""
    root = existing(archive)
    manifest = load(root, table)
    return [] if manifest is None else [table_directory(root, table) / file.path for file in manifest.files]


def existing(archive: str | PathLike[str]) -> Path:
    """The directory of an archive; raises PipelineError where there is none."""
    root = directory_of(archive)
    if not any((root / table / "_manifest.json").exists() for table in TABLES):
        raise PipelineError(f"{root}: there is no archive; make one with `veena pipeline archive --out {root}`")
    return root


def directory_of(archive: str | PathLike[str]) -> Path:
    """A path as it was given; raises PipelineError for what is not on a disk of this machine."""
    text = str(archive)
    if "://" in text and not text.startswith("file://"):
        remedy = "give a directory that this machine and all workers see under one path"
        raise PipelineError(f"archive {text!r}: files are renamed into place, which needs a file system; {remedy}")
    return Path(text.removeprefix("file://"))


def run(
    spark: SparkSession,
    plan: Plan,
    tables: Sequence[str] | None = None,
    *,
    trigger_s: float | None = None,
    tell: Callable[[TableReport], None] = lambda report: None,
    over: threading.Event | None = None,
) -> Report:
    """Archive until everything that is there now is archived, or with a trigger until `over` is set.

    Without `tables` it is all that brokers keep now: what they record beside events is up to their configuration.
    """
    began = time.monotonic()
    over = over or threading.Event()
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise PipelineError(
            "an archive is committed by the process that runs it, which a Spark Connect server is not: "
            "use --master local[*] or spark://HOST:PORT, or run it by spark-submit"
        )
    with locked(plan.out):
        archives: list[TableArchive] = []
        try:
            for table in TABLES if tables is None else tables:
                archives.append(TableArchive(plan, table))
                try:
                    archives[-1].open()
                except Refused as error:
                    if tables is not None:
                        raise
                    _logger.info("%s are not archived: %s", table, error)
                    archives.pop().close()
                else:
                    tell(archives[-1].report)
            _look_after([_Watched(each) for each in archives], spark, trigger_s, tell, over)
            if plan.compact:
                for each in archives:
                    each.compact_now(spark)
        finally:
            for each in archives:
                each.close()
    return Report(str(plan.out), time.monotonic() - began, tuple(each.report for each in archives))


def merge(spark: SparkSession, archive: str | PathLike[str], tables: Sequence[str] = tuple(TABLES)) -> Report:
    """Merge small files of an archive that nobody writes now; no broker is asked."""
    began = time.monotonic()
    root = existing(archive)
    reports: list[TableReport] = []
    with locked(root):
        for table in tables:
            manifest = load(root, table)
            if manifest is not None:
                kept = without_old(root, manifest)
                if kept is not manifest:
                    commit(root, kept)
                now = compact(spark, root, kept)
                reports.append(TableReport(table, now.rows, len(now.files), now.bytes, gaps=now.gaps))
    return Report(str(root), time.monotonic() - began, tuple(reports))


@dataclass(slots=True, eq=False)
class _Watched:
    """A table and its query, which may have to be begun again."""

    archive: TableArchive
    query: StreamingQuery | None = None
    begin_at: float = 0.0
    pause_s: float = PAUSE_S
    away_since: float | None = None
    batches: int = 0
    is_done: bool = False


def _look_after(
    watched: list[_Watched],
    spark: SparkSession,
    trigger_s: float | None,
    tell: Callable[[TableReport], None],
    over: threading.Event,
) -> None:
    """Keep all queries going until they are done, or it is over."""
    try:
        while not over.is_set() and not all(each.is_done for each in watched):
            for each in watched:
                if each.query is None and not each.is_done and time.monotonic() >= each.begin_at:
                    if any(_is_starting(other) for other in watched):
                        continue  # each starts a Python of its own: one after the other, or none is up in time
                    try:
                        each.query = each.archive.start(spark, trigger_s)
                    except Exception as error:  # Spark asks a Python for the schema, which may fail as any task may
                        _fail(each, error, trigger_s)
                _look_at(each, trigger_s)
                report = each.archive.report
                if report.batches != each.batches:
                    each.batches, each.pause_s, each.away_since = report.batches, PAUSE_S, None
                    tell(report)
            over.wait(LOOK_S)
    finally:
        for each in watched:
            # A Spark that was stopped from outside has nothing left to stop, and what was committed is there.
            with suppress(Exception):
                if each.query is not None and each.query.isActive:
                    stop(each.query)


def _is_starting(each: _Watched) -> bool:
    query = each.query
    return query is not None and query.isActive and "nitializing" in str(query.status.get("message", ""))


def _look_at(each: _Watched, trigger_s: float | None) -> None:
    query = each.query
    if query is None or query.isActive:
        return
    error = query.exception()
    each.query = None
    if error is None:
        each.is_done = True
    else:
        _fail(each, error, trigger_s)


def _fail(each: _Watched, error: Exception, trigger_s: float | None) -> None:
    """Begin again after a while, if it may pass; raise PipelineError otherwise."""
    now = time.monotonic()
    each.away_since = each.away_since or now
    has_time = trigger_s is not None or now - each.away_since < PATIENCE_S
    if not has_time or not is_passing(error):
        raise PipelineError(f"archiving {each.archive.table} stopped: {reason(str(error))}") from None
    _logger.warning("archiving %s goes on in %.1f s: %s", each.archive.table, each.pause_s, reason(str(error)))
    each.begin_at = now + each.pause_s
    each.pause_s = min(2 * each.pause_s, PAUSE_S_MAX)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Nobody else writes this archive meanwhile; who is killed lets go of it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "_lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(f"archive {out}: another process writes it; stop that one, or choose another") from None
        yield
