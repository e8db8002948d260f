"""Parquet files of an archive, written in workers of Spark: from broker to file, by Arrow, without Java in between.

A file is written beside its place under another name, synced and then renamed, so that under its own name it is whole
or not there. Its name follows from what it holds: a task that is run again, or that a dead driver left running, writes
the same rows under the same name.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veena.spark.archive.manifest import File, Gap, sync_directory
from veena.spark.log.blocks import TYPES
from veena.spark.source.offsets import LOG, Span
from veena.spark.source.task import Task, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows that are compressed together: few enough to be skipped by their bounds, many enough to compress well.
ROW_GROUP: Final = 1 << 16
#: Columns whose values differ in nearly every row: a dictionary of them is work for nothing.
_DISTINCT: Final = frozenset({"offset", "at", "id", "stamp", "sequence", "published", "section", "body"})
_DAY_US: Final = 86_400_000_000


class Written(msgspec.Struct, frozen=True):
    """What one task wrote, and what it could not read any more."""

    files: tuple[File, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that go into one file a day: spans of one or more brokers."""

    tasks: tuple[Task, ...]

    @property
    def name(self) -> str:
        spans = [(task.table, *_fields(task.span)) for task in self.tasks]
        return f"part-{_digest(spans)}.parquet"


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one day that become one."""

    date: str
    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"whole-{_digest(list(self.paths))}.parquet"


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Columns of a table as Arrow has them."""
    return pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])


def on_spark(spark: SparkSession, work: Sequence[Any], act: Callable[[Any], Written]) -> list[Written]:
    """Do each piece of work as a task of its own; what each of them wrote, in order."""
    if not work:
        return []
    frame = spark.range(0, len(work), 1, len(work))
    told = frame.mapInArrow(partial(_each, tuple(work), act), "number bigint, told binary").collect()
    return [msgspec.json.decode(bytes(row.told), type=Written) for row in sorted(told, key=lambda row: row.number)]


def _each(
    work: tuple[Any, ...], act: Callable[[Any], Written], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        told = [msgspec.json.encode(act(work[number])) for number in numbers]
        yield pa.RecordBatch.from_arrays(
            [pa.array(numbers, pa.int64()), pa.array(told, pa.binary())], names=["number", "told"]
        )


def write_group(directory: str, columns: Mapping[str, str], group: Group) -> Written:
    """Read what the tasks of a group say and write it down, a file for each day."""
    gaps: list[Gap] = []
    with DayFiles(Path(directory), arrow_schema(columns), group.name) as days:
        for task in group.tasks:
            for batch in rows(task, lambda gone: gaps.append(Gap(*_fields(gone)))):
                days.add(batch)
        return Written(days.finished(), tuple(gaps))


def write_merge(directory: str, columns: Mapping[str, str], merge: Merge) -> Written:
    """Write the rows of many files into one, with the columns of today."""
    schema = arrow_schema(columns)
    with DayFiles(Path(directory), schema, merge.name) as days:
        for path in merge.paths:
            with pq.ParquetFile(Path(directory) / path) as file:
                for batch in file.iter_batches(ROW_GROUP):
                    days.add(widened(batch, schema), merge.date)
        return Written(days.finished())


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with these columns; NULL where a file is from before a column."""
    found = set(batch.schema.names)
    arrays = [
        _as(batch.column(field.name), field.type) if field.name in found else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def newest(paths: Sequence[Path], broker: str, log: str) -> int:
    """When the latest row of a log in these files was written, in nanoseconds; -1 without any."""
    from pyarrow import dataset

    latest = -1
    is_log = dataset.field("offset") >= 0 if log == LOG else dataset.field("offset") < 0
    wanted = (dataset.field("broker") == broker) & is_log
    for batch in dataset.dataset([str(path) for path in paths]).to_batches(columns=["at"], filter=wanted):
        if batch.num_rows:
            latest = max(latest, pc.max(batch.column(0)).cast(pa.int64()).as_py() * 1000)
    return latest


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type.equals(kind) else array.cast(kind)


class DayFiles:
    """The files of one task, one for each day that its rows are of."""

    def __init__(self, directory: Path, schema: pa.Schema, name: str) -> None:
        self._directory = directory
        self._schema = schema
        self._name = name
        self._writers: dict[str, tuple[pq.ParquetWriter, Path, list[int]]] = {}

    def __enter__(self) -> DayFiles:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for writer, path, _ in self._writers.values():
            writer.close()
            path.unlink(missing_ok=True)
        self._writers.clear()

    def add(self, batch: pa.RecordBatch, date: str | None = None) -> None:
        """Append rows to the files of their days; all are of `date`, if that is known."""
        if not batch.num_rows:
            return
        if date is not None:
            self._append(date, batch)
            return
        days = pc.floor(pc.divide(batch.column("at").cast(pa.int64()).cast(pa.float64()), float(_DAY_US))).cast(
            pa.int64()
        )
        bounds = pc.min_max(days).as_py()
        for day in range(bounds["min"], bounds["max"] + 1):
            part = batch if bounds["min"] == bounds["max"] else batch.filter(pc.equal(days, day))
            if part.num_rows:
                self._append(str(pa.scalar(day, pa.int32()).cast(pa.date32()).as_py()), part)

    def finished(self) -> tuple[File, ...]:
        """Close, sync and rename all files; after this they are there for good."""
        files: list[File] = []
        for date in sorted(self._writers):
            writer, path, count = self._writers.pop(date)
            writer.close()
            with path.open("rb") as file:
                os.fsync(file.fileno())
            place = self._directory / f"date={date}" / self._name
            path.replace(place)
            sync_directory(place.parent)
            files.append(File(f"date={date}/{self._name}", count[0], place.stat().st_size))
        return tuple(files)

    def _append(self, date: str, batch: pa.RecordBatch) -> None:
        if date not in self._writers:
            directory = self._directory / f"date={date}"
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f".{self._name}.{uuid.uuid4().hex}.tmp"
            repeated = [field.name for field in self._schema if field.name not in _DISTINCT]
            writer = pq.ParquetWriter(path, self._schema, compression="zstd", use_dictionary=repeated)
            self._writers[date] = (writer, path, [0])
        writer, _, count = self._writers[date]
        writer.write_batch(batch, ROW_GROUP)
        count[0] += batch.num_rows


def _fields(span: Span) -> tuple[str, str, int, int]:
    return span.broker, span.log, span.start, span.end


def _digest(what: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(what), digest_size=12).hexdigest()
