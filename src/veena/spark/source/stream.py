"""Reading `format("veena")` as a stream: batch after batch, from where the checkpoint says.

The driver keeps one of these as long as the query runs. For every batch it asks the brokers how long their logs are and
goes as far as the limit allows, evenly over all logs. What a checkpoint holds are offsets, and ranges never change, so
a batch that was planned before a crash is read again as it was.

- A broker that does not answer keeps its place: the stream goes on with the others and comes back to it. Only where
  a batch that was planned has to be read again is it waited for (`retrySeconds`), as that batch cannot change.
- A broker that is new appears in the offsets at the first row that it keeps; its rows follow in the next batch. So
  where it began stands in the checkpoint before anything of it is read.
- A log that is shorter than it was lost its tail (a power cut) or was replaced: that is loss. Where loss is allowed the
  stream goes on at the log's present end and says so. Rejected: its beginning. Offsets do not tell a log that lost a
  few rows from a new one, and reading the first again would repeat every row that it still has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from veena.errors import NotConnected
from veena.spark.source.batch import begin, columns_of, conformed, task_of
from veena.spark.source.brokers import Brokers, Seen
from veena.spark.source.offsets import Places, Span, decode, encode, limited, pieces, spans
from veena.spark.source.options import Options, wrong
from veena.spark.source.pushdown import Pushed
from veena.spark.source.task import data_loss, rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_logger = logging.getLogger("veena.spark")


class VeenaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming read of a table."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.ending != "latest":
            raise wrong(
                "endingOffsets", options.ending, "a stream has no end", "leave it out, or read once: spark.read"
            )
        self._options = options
        self._schema = schema
        self._columns = columns_of(schema, options.table)
        self._brokers_or_none: Brokers | None = None
        self._away: dict[str, str] = {}
        self._latest: Places | None = None
        self._target: Places | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get copies, which need no connections to ask how long logs are."""
        return {**self.__dict__, "_brokers_or_none": None}

    # --- what the driver asks ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        seen = self._brokers.seen(self._options.retry_s)
        if isinstance(self._options.starting, dict):
            begin(self._options, seen, self._brokers)  # names that nobody has are refused here
            return encode(decode(self._options.starting))
        if seen.away and self._options.starting != "earliest":
            told = "; ".join(f"{name}: {why}" for name, why in sorted(seen.away.items()))
            raise NotConnected(
                f"where to begin is not known of brokers that do not answer ({told}): "
                "start them, or use option startingOffsets = earliest"
            )
        return encode(begin(self._options, seen, self._brokers))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_per_batch = self._options.rows_per_batch
        return ReadAllAvailable() if rows_per_batch is None else ReadMaxRows(rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        seen = self._brokers.seen(self._options.retry_s)
        for name, why in sorted(seen.away.items()):
            _logger.warning("broker %s does not answer, what it has is left for a later run: %s", name, why)
        self._target = {place: kept.next for place, kept in seen.logs.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = decode(start)
        end = self._reachable(begun, self._look())
        if isinstance(limit, ReadMaxRows):
            end = limited(begun, end, limit.max_rows)
        if (
            isinstance(limit, ReadMinRows)
            and sum(map(len, spans(begun, end))) < limit.min_rows
            and self._target is None
        ):
            end = begun
        return encode(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else encode(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        whole = spans(decode(start), decode(end))
        self._brokers.find({span.broker for span in whole}, self._options.retry_s)
        return [InputPartition(self._task(span)) for span in pieces(whole, self._options.rows_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return conformed(rows(partition.value), self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before is done with: whoever is named as reader lets brokers give it up."""
        if self._options.reader is not None:
            for broker, why in sorted(self._brokers.commit(self._options.reader, decode(end)).items()):
                _logger.warning("broker %s did not take the commit, the next one follows: %s", broker, why)

    def stop(self) -> None:
        if self._brokers_or_none is not None:
            self._brokers_or_none.close()

    # --- how ---

    @property
    def _brokers(self) -> Brokers:
        if self._brokers_or_none is None:
            self._brokers_or_none = Brokers(self._options)
        return self._brokers_or_none

    def _task(self, span: Span) -> Any:
        return task_of(self._options, span, self._brokers, self._columns, Pushed())

    def _look(self) -> Seen:
        try:
            seen = self._brokers.seen()
        except NotConnected as error:
            _logger.warning("%s", error)
            return Seen({})
        for name, why in sorted(seen.away.items()):
            if name not in self._away:  # once for each absence
                _logger.warning("broker %s does not answer and keeps its place: %s", name, why)
        self._away = dict(seen.away)
        self._latest = (self._latest or {}) | {place: kept.next for place, kept in seen.logs.items()}
        return seen

    def _reachable(self, begun: Places, seen: Seen) -> Places:
        """How far the stream could go now."""
        end = dict(begun)
        for place, kept in seen.logs.items():
            if self._target is not None and place not in self._target:
                continue
            upto = kept.next if self._target is None else min(kept.next, self._target[place])
            if place not in begun:
                end[place] = kept.first if self._target is None else min(kept.first, upto)
            elif kept.next < begun[place]:
                end[place] = self._replaced(Span(*place, kept.next, begun[place]))
            else:
                end[place] = max(upto, begun[place])
        return end

    def _replaced(self, gone: Span) -> int:
        """Where to go on in a log that is shorter than what was read of it: no row comes twice."""
        error = data_loss(self._options.table, gone, "its log is shorter than what was read before: was it replaced?")
        if self._options.fail_on_data_loss:
            raise error
        _logger.warning(
            "%s; the stream goes on at offset %d of %s: if its log is a new one, read what lies before with spark.read",
            error, gone.start, gone.broker,
        )  # fmt: skip
        return gone.start
