"""Reading `format("veena")` once: the tables of a network, from one place in its logs to another.

The driver asks every broker how long its log is, cuts the ranges into tasks and hands over what filters it could; each
task reads its rows straight from its broker (`task`). A range never changes, so a task that is run again gives
the same rows.

A batch that misses a broker would look whole: while a broker does not answer the read fails, unless `failOnDataLoss` is
false.

Spark 4.3 tells a source in Python which filters a query has, but not which columns: all columns of the schema are read.
The option `columns`, or `.schema(...)`, says which those are, and brokers make no others.

It also plans a source in Python once for each `load()`: the filters of one query stay in force for the next query of
the same DataFrame, which then misses rows. So filters are taken only where the option `pushFilters` says that the
DataFrame is for one query; without it Spark tests them itself, and every query is right.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from veena.errors import NotConnected
from veena.spark.log.tables import TABLES
from veena.spark.source.brokers import Brokers, Seen
from veena.spark.source.offsets import LOG, Places, Span, decode, pieces, spans
from veena.spark.source.options import Bound, Options, wrong
from veena.spark.source.pushdown import Pushed, push
from veena.spark.source.task import Task, rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

_logger = logging.getLogger("veena.spark")


class VeenaReader(DataSourceReader):
    """One read of a table."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = columns_of(schema, options.table)
        self._pushed = Pushed()

    def partitions(self) -> Sequence[InputPartition]:
        options, pushed = self._options, self._pushed
        brokers = Brokers(options)
        try:
            seen = brokers.seen(options.retry_s, pushed.brokers)
            if seen.away:
                _miss(options, seen)
            start, end = begin(options, seen, brokers), finish(options, seen, brokers)
            whole = clipped(spans(start, end), pushed, brokers, options)
            made = [self._task(span, brokers) for span in pieces(whole, options.rows_per_task)]
        finally:
            brokers.close()
        return [InputPartition(task) for task in made]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a task of its own, without a value, where there are none.
        return conformed(rows(partition.value), self._schema) if partition.value is not None else iter(())

    def _task(self, span: Span, brokers: Brokers) -> Task:
        return task_of(self._options, span, brokers, self._columns, self._pushed)


class FilteringReader(VeenaReader):
    """One read whose filters brokers test.

    A class of its own: Spark refuses any reader that has this method in a session that hands over no filters
    (`spark.sql.python.filterPushdown.enabled` is false by default), and says there what to set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Remember what brokers will test; what is left for Spark."""
        self._pushed, left = push(filters, self._options.table)
        return left


def columns_of(schema: StructType, table: str) -> tuple[str, ...]:
    """The columns of a schema; raises ConfigError for those that the table does not have so."""
    for field in schema.fields:
        kind = TABLES[table].get(field.name)
        if kind != field.dataType.simpleString():
            reason = f"{table} has no such column" if kind is None else f"it is {kind}"
            names = ", ".join(f"{name} {kind}" for name, kind in TABLES[table].items())
            raise wrong(f"schema: {field.name}", field.dataType.simpleString(), reason, f"there are {names}")
    return tuple(schema.fieldNames())


def conformed(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """The same rows with exactly the types that Spark expects of this schema."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(batch.columns, wanted, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def task_of(options: Options, span: Span, brokers: Brokers, columns: tuple[str, ...], pushed: Pushed) -> Task:
    """A span as a task of its own."""
    return Task(
        span=span,
        url=brokers.url(span.broker),
        access=options.access,
        table=options.table,
        columns=columns,
        topic=options.topic,
        selector=options.selector,
        tests=pushed.tests,
        fail_on_data_loss=options.fail_on_data_loss,
        retry_s=options.retry_s,
    )


def begin(options: Options, seen: Seen, brokers: Brokers) -> Places:
    """Where reading begins."""
    return _bound("startingOffsets", options.starting, options, seen, brokers)


def finish(options: Options, seen: Seen, brokers: Brokers) -> Places:
    """Where reading ends; never beyond what is there."""
    asked = _bound("endingOffsets", options.ending, options, seen, brokers)
    return {place: min(offset, seen.logs[place].next) for place, offset in asked.items() if place in seen.logs}


def _bound(option: str, bound: Bound, options: Options, seen: Seen, brokers: Brokers) -> Places:
    if isinstance(bound, dict):
        named = decode(bound)
        unknown = sorted({broker for broker, _ in named} - set(brokers.known()))
        if unknown:
            remedy = f"name those that are there: {', '.join(sorted(brokers.known()))}"
            raise wrong(option, ", ".join(unknown), "there is no such broker", remedy)
        without = {place: kept.first if option == "startingOffsets" else kept.next for place, kept in seen.logs.items()}
        return without | named
    if bound == "earliest":
        return {place: kept.first for place, kept in seen.logs.items()}
    if bound == "latest":
        return {place: kept.next for place, kept in seen.logs.items()}
    return {place: brokers.offset_at(place, bound, options.retry_s) for place in seen.logs}


def clipped(whole: Iterable[Span], pushed: Pushed, brokers: Brokers, options: Options) -> list[Span]:
    """What filters leave of ranges: those of other brokers, other offsets and earlier times are not read at all."""
    left: list[Span] = []
    for span in whole:
        is_log = span.log == LOG
        if pushed.brokers is not None and span.broker not in pushed.brokers:
            continue
        if pushed.reliable is not None and pushed.reliable != is_log:
            continue
        start, end = span.bounds
        start = start if pushed.offset_from is None else max(start, pushed.offset_from)
        end = end if pushed.offset_to is None else min(end, pushed.offset_to)
        if pushed.at_from is not None and is_log and options.table == "events":
            # Of all logs this one alone is searched by the latest time so far, which never falls.
            start = max(start, brokers.offset_at((span.broker, span.log), pushed.at_from, options.retry_s))
        if start < end:
            left.append(Span(span.broker, span.log, *((start, end) if is_log else (-end, -start))))
    return left


def _miss(options: Options, seen: Seen) -> None:
    told = "; ".join(f"{name}: {why}" for name, why in sorted(seen.away.items()))
    if options.fail_on_data_loss:
        raise NotConnected(
            f"brokers did not answer within {options.retry_s:g} s ({told}), so their {options.table} would be missing: "
            "start them, or leave them out with option failOnDataLoss = false"
        )
    _logger.warning("brokers did not answer, their %s are missing: %s", options.table, told)
