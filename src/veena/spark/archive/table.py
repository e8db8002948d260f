"""One table of an archive while it is written: a streaming query that says how far to go, and batches that go there.

Exactly once, and why this is the simplest way to it. A streaming query over all brokers decides how far each batch
goes, and its checkpoint remembers that. What a batch writes are the rows from where the *manifest* stands to there,
read by tasks straight from brokers into files whose names follow from their ranges; then one manifest replaces the
other. So:

- killed before that, the batch comes again: the same ranges give the same files, and what lies about is not listed;
- killed after that, the batch comes again and finds nothing to do, as the manifest stands at its end already;
- a checkpoint that is lost or old does no harm: ranges begin where the manifest stands.

No state, no comparing of ids. Only then are brokers told that they may give the rows up.

*Rejected*: Spark's own file sink. Its log of files is known to Spark alone, so other readers see torn files and batches
that did not finish; and every row would pass through Java and back into columns (what that costs was not measured).
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from veena.errors import PipelineError
from veena.spark.archive.compact import compact, without_old
from veena.spark.archive.files import Group, newest, on_spark, write_group
from veena.spark.archive.manifest import MAX_GAPS, Gap, Manifest, commit, load, sweep, table_directory
from veena.spark.launch.queries import told_briefly
from veena.spark.log.tables import TABLES
from veena.spark.source.batch import task_of
from veena.spark.source.brokers import Brokers, Seen
from veena.spark.source.offsets import Places, Span, decode, encode, pieces, spans
from veena.spark.source.options import ROWS_PER_TASK, parse
from veena.spark.source.pushdown import Pushed
from veena.spark.source.task import Task, data_loss

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Fewer rows than this are not worth a task of their own.
ROWS_MIN: Final = 20_000
ROWS_PER_BATCH: Final = 2_000_000
CHECKPOINTS: Final = "_checkpoints"

_logger = logging.getLogger("veena.spark")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is archived where."""

    out: Path
    #: As for `format("veena")`: url, user, caFile and so on.
    options: dict[str, str]
    rows_per_batch: int = ROWS_PER_BATCH
    rows_per_task: int = ROWS_PER_TASK
    compact: bool = False
    #: Go on behind rows that brokers gave up before they were archived, and list them in the manifest.
    accept_loss: bool = False


@dataclass(frozen=True, slots=True)
class TableReport:
    """How far one table has come."""

    table: str
    rows: int
    files: int
    bytes: int
    #: In this run.
    rows_added: int = 0
    batches: int = 0
    gaps: tuple[Gap, ...] = ()
    #: Brokers that did not answer when it began, or did not take the last commit, and why.
    away: dict[str, str] = field(default_factory=dict)


class TableArchive:
    """One table: `open` it, `start` its query, and look at `report` meanwhile."""

    def __init__(self, plan: Plan, table: str) -> None:
        self.table = table
        self._plan = plan
        self._options = parse(
            {
                **plan.options,
                "table": table,
                "rowsPerTask": str(plan.rows_per_task),
                "failOnDataLoss": str(not plan.accept_loss).lower(),
            }
        )
        self._brokers = Brokers(self._options)
        self._manifest = Manifest(table, "")
        self._rows_before = 0
        self._batches = 0
        self._away: dict[str, str] = {}

    @property
    def checkpoint(self) -> Path:
        return self._plan.out / CHECKPOINTS / self.table

    @property
    def report(self) -> TableReport:
        now = self._manifest
        added = now.rows - self._rows_before
        return TableReport(
            self.table, now.rows, len(now.files), now.bytes, added, self._batches, now.gaps, dict(self._away)
        )

    def open(self) -> None:
        """Find where the archive stands; a new one begins with the first row that each broker keeps."""
        found = load(self._plan.out, self.table)
        seen = self._brokers.seen(self._options.retry_s)
        self._away = dict(seen.away)
        if found is None:
            first = {place: kept.first for place, kept in seen.logs.items()}
            found = Manifest(self.table, f"archive-{uuid.uuid4().hex[:12]}", offsets=_told(first))
            commit(self._plan.out, found)
        self._manifest = self._mended(found, seen)
        self._rows_before = self._manifest.rows
        sweep(self._plan.out, self._manifest)

    def start(self, spark: SparkSession, trigger_s: float | None) -> StreamingQuery:
        """Begin the query; without a trigger it ends when everything that is there now is archived."""
        # Without a checkpoint the query begins here; of a broker that is away it begins at the first row that is kept,
        # and batches go on from the manifest all the same.
        known = self._brokers.known()
        begin = {name: offset for name, offset in self._manifest.offsets.items() if name in known}
        stream = (
            spark.readStream.format("veena")
            .options(**self._plan.options)
            .option("table", self.table)
            .option("columns", "offset")
            .option("startingOffsets", json.dumps(begin) if begin else "earliest")
            .option("maxRowsPerBatch", str(self._plan.rows_per_batch))
            .load()
        )
        writer = (
            stream.writeStream.queryName(f"veena-archive-{self.table}")
            .option("checkpointLocation", f"file://{self.checkpoint.absolute()}")
            .foreachBatch(told_briefly(self._batch))
        )
        if trigger_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds").start()

    def compact_now(self, spark: SparkSession) -> None:
        """Merge small files, whether there is anything new or not."""
        found = load(self._plan.out, self.table)
        if found is not None:
            self._manifest = compact(spark, self._plan.out, found)

    def close(self) -> None:
        self._brokers.close()

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Bring the archive to where this batch of the query ends. The frame itself is not read."""
        spark = frame.sparkSession
        end = decode(offsets_of(self.checkpoint, number))
        begun = decode(self._manifest.offsets)
        # A log that is new begins where the query first saw it: nothing of it is read before that is committed.
        start = {place: begun.get(place, offset) for place, offset in end.items()}
        whole = spans(start, end)
        if not whole and not end.keys() - begun.keys():
            return
        reached = begun | {place: max(start[place], offset) for place, offset in end.items()}
        self._commit(self._written(spark, whole), reached)
        self._batches += 1
        if self._plan.compact:
            self._manifest = compact(spark, self._plan.out, self._manifest)

    def _written(self, spark: SparkSession, whole: list[Span]) -> Manifest:
        """The manifest with the rows of these spans in it, not committed yet."""
        self._brokers.find({span.broker for span in whole}, self._options.retry_s)
        columns = tuple(TABLES[self.table])
        rows_per_task = _share(whole, self._plan.rows_per_task, _cores(spark))
        tasks = [
            task_of(self._options, span, self._brokers, columns, Pushed()) for span in pieces(whole, rows_per_task)
        ]
        directory = str(table_directory(self._plan.out, self.table).absolute())
        written = on_spark(spark, grouped(tasks, rows_per_task), partial(write_group, directory, TABLES[self.table]))
        now = without_old(self._plan.out, self._manifest)
        return msgspec.structs.replace(
            now,
            files=now.files + tuple(file for each in written for file in each.files),
            gaps=(now.gaps + tuple(gap for each in written for gap in each.gaps))[-MAX_GAPS:],
        )

    def _commit(self, manifest: Manifest, reached: Places) -> None:
        manifest = msgspec.structs.replace(
            manifest,
            commits=manifest.commits + 1,
            columns=manifest.columns | TABLES[self.table],
            offsets=_told(reached),
        )
        commit(self._plan.out, manifest)
        self._manifest = manifest
        self._away = self._brokers.commit(manifest.reader, reached)
        for broker, why in sorted(self._away.items()):
            _logger.warning("broker %s keeps what is archived until the next commit: %s", broker, why)

    def _mended(self, manifest: Manifest, seen: Seen) -> Manifest:
        """Where logs are shorter than what was archived of them, a broker came back without all of its store.

        What it writes now has offsets that were used before. It begins with the first row that is later than the last
        one in the archive: all of a new store, or what follows on the rows that a power cut left.
        """
        places = decode(manifest.offsets)
        replaced = {place: kept for place, kept in seen.logs.items() if kept.next < places.get(place, 0)}
        if not replaced:
            return manifest
        gone = [Span(*place, kept.next, places[place]) for place, kept in replaced.items()]
        if not self._plan.accept_loss:
            raise data_loss(self.table, gone[0], "its log is shorter than what is archived of it: was it replaced?")
        # The checkpoint knows the old offsets; the manifest is all that is needed.
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        directory = table_directory(self._plan.out, self.table)
        paths = [directory / file.path for file in manifest.files]
        for place in replaced:
            after = newest(paths, *place) + 1000  # files have microseconds: no row twice
            places[place] = self._brokers.offset_at(place, after, self._options.retry_s)
        mended = msgspec.structs.replace(
            manifest,
            commits=manifest.commits + 1,
            offsets=_told(places),
            gaps=(manifest.gaps + tuple(Gap(each.broker, each.log, each.end, each.end) for each in gone))[-MAX_GAPS:],
        )
        commit(self._plan.out, mended)
        return mended


def grouped(tasks: list[Task], rows: int) -> list[Group]:
    """Tasks in their order, as many to a group as have so many rows together: a file each would be many small ones."""
    groups: list[Group] = []
    gathered: list[Task] = []
    size = 0
    for task in tasks:
        if gathered and size + len(task.span) > rows:
            groups.append(Group(tuple(gathered)))
            gathered, size = [], 0
        gathered.append(task)
        size += len(task.span)
    return [*groups, Group(tuple(gathered))] if gathered else groups


def offsets_of(checkpoint: Path, batch: int) -> object:
    """How far a batch goes, as the query's checkpoint has it: written before the batch begins, and never changed."""
    path = checkpoint / "offsets" / str(batch)
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise PipelineError(f"{path}: not there, though batch {batch} runs; is the archive on a shared disk?") from None
    if not lines or lines[0] != "v1":
        raise PipelineError(f"{path}: offsets in a form that this Veena does not know; use the pyspark it asks for")
    return json.loads(lines[-1])


def _told(places: Places) -> dict[str, int | dict[str, int]]:
    return msgspec.convert(encode(places), dict[str, int | dict[str, int]])


def _cores(spark: SparkSession) -> int:
    return int(spark.sparkContext.defaultParallelism)


def _share(whole: list[Span], rows_per_task: int, cores: int) -> int:
    """Rows of a task: all cores have work, and none has too little to be worth it."""
    total = sum(map(len, whole))
    return min(rows_per_task, max(ROWS_MIN, -(-total // max(1, cores))))
