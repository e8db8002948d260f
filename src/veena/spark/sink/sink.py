"""The sink of `format("veena")`: rows become events, each batch as a whole and once (`staging_client`).

    frame.write.format("veena").option("url", "veena://127.0.0.1:7700").mode("append").save()
    stream.writeStream.format("veena").option("url", ...).option("checkpointLocation", ...).start()

Every task stages its rows at the broker, which has them on disk before the task is done; when all tasks are done, the
driver publishes the batch by one question. A stream's batch is known by the query's id, which its checkpoint keeps, and
its number: Spark runs a batch again when it does not know what became of it, and the broker then publishes nothing.
A batch job is known by the option `transaction`, and without one it is new each time.

All of it goes to one broker, the first of `url`: what was published is known there and nowhere else.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from veena.core.wire.staging import MAX_BATCH, MAX_QUERY_NAME
from veena.errors import ConfigError, VeenaError
from veena.runtime.locator.client import locator_url
from veena.runtime.transports.url import parse_url
from veena.spark.log.connection import Access
from veena.spark.sink.rows import RowReader, check_schema
from veena.spark.sink.staging_client import StageClient, StagedPart
from veena.spark.source.options import MAX_RETRY_S, RETRY_S, access, wrong

if TYPE_CHECKING:
    import pyarrow as pa

#: Option -> what it is for, as `docs/PIPELINE.md` lists them.
OPTIONS: Final = {
    "url": "the broker that publishes",
    "transaction": "a name under which a batch job is done once, however often it is run",
    "batch": "the number of the batch within `transaction`, 0 unless told",
    "retrySeconds": "how long a broker that does not answer is asked again",
    "user": "who publishes",
    "password": "the password of the user",
    "token": "a token instead of a password",
    "clientId": "the client id to publish as",
    "caFile": "the authority that signed the broker's certificate",
    "certFile": "the certificate to show",
    "keyFile": "the key of that certificate",
}
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}
#: What Spark itself adds, which says nothing to a broker.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
#: Where Spark tells a task which batch of which query it works for.
_QUERY_KEY: Final = "sql.streaming.queryId"
_BATCH_KEY: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and as whom."""

    url: str
    access: Access
    retry_s: float

    def connect(self) -> StageClient:
        return StageClient(self.url, self.access, self.retry_s)


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What a task has staged; no part where it had no rows."""

    query: str
    batch: int
    part: StagedPart | None


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """The sink of a batch job."""
    named = _named(options)
    _check_mode(overwrite)
    transaction = named.get("transaction", "").strip()
    if len(transaction) > MAX_QUERY_NAME - 10:
        raise wrong("transaction", transaction, f"{len(transaction)} characters", f"use at most {MAX_QUERY_NAME - 10}")
    if "batch" in named and not transaction:
        raise wrong("batch", named["batch"], "a batch of nothing", "set transaction too")
    query = f"job/{transaction}" if transaction else f"once/{uuid.uuid4().hex}"
    return BatchSink(_target(named), schema, query, _batch(named), bool(transaction))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """The sink of a stream."""
    named = _named(options)
    _check_mode(overwrite)
    for name in ("transaction", "batch"):
        if name in named:
            raise wrong(name, named[name], "a stream is known by its checkpoint", "leave it out")
    return StreamSink(_target(named), schema)


class _Sink:
    """What both kinds of sink do. It travels to the tasks, so it holds no connection."""

    def __init__(self, target: Target, schema: StructType) -> None:
        check_schema(schema)
        self._target = target
        self._schema = schema

    def _stage(self, query: str, batch: int, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        rows = RowReader(self._schema)
        with self._target.connect() as client:
            part = client.part(query, batch)
            for record_batch in batches:  # to the end, also where the batch is known: Spark waits for that
                if not part.is_known:
                    for event, reliable in rows.events(record_batch):
                        part.add(event, reliable=reliable)
            return StagedRows(query, batch, part.finish() if part.rows else None)

    def _publish(self, messages: list[StagedRows], lasting: bool) -> None:
        parts = [each.part for each in messages if each.part is not None]
        if parts:
            with self._target.connect() as client:
                client.publish(messages[0].query, messages[0].batch, parts, lasting=lasting)

    def _abandon(self, query: str, batch: int) -> None:
        with self._target.connect() as client:
            client.abandon(query, batch)


class BatchSink(_Sink, DataSourceArrowWriter):
    """Publishes a frame."""

    def __init__(self, target: Target, schema: StructType, query: str, batch: int, lasting: bool) -> None:
        super().__init__(target, schema)
        self._query = query
        self._batch = batch
        self._lasting = lasting

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return self._stage(self._query, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._publish(_staged(messages), self._lasting)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abandon(self._query, self._batch)


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """Publishes a stream, batch by batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_KEY)
        batch = None if context is None else context.getLocalProperty(_BATCH_KEY)
        if query is None or batch is None:
            raise ConfigError(
                'format("veena")', "writeStream", "this Spark does not tell tasks their query and batch", "use Spark 4"
            )
        return self._stage(f"stream/{query}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if any(each.batch != batchId for each in staged):
            raise ConfigError('format("veena")', f"batch {batchId}", "its tasks worked for another one", "run it again")
        self._publish(staged, lasting=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for each in _staged(messages)[:1]:  # of tasks that failed nothing is known: what they staged expires
            self._abandon(each.query, batchId)


def _staged(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    return [each for each in messages if isinstance(each, StagedRows)]


# --- options ---


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """Options by the names they have here; `save("veena://...")` is the option `url`."""
    options: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() in _SPARKS_OWN:
            continue
        name = "url" if key.lower() == "path" else _BY_LOWER.get(key.lower())
        if name is None:
            raise wrong(key, value, "there is no such option for writing", f"there are {', '.join(OPTIONS)}")
        if name in options:
            raise wrong(name, value, "given by option and by save(...)", "give it once")
        options[name] = value
    return options


def _check_mode(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError('format("veena")', "mode", "events that were published cannot be taken back", 'use "append"')


def _target(options: Mapping[str, str]) -> Target:
    text = options.get("url", "")
    url = next((part.strip() for part in text.split(",") if part.strip()), "")
    if not url:
        raise wrong("url", text, "no broker is named", 'set it, such as option("url", "veena://127.0.0.1:7700")')
    if locator_url(url) is not None:
        reason = "a locator may name another broker the next time, which does not know what was published"
        raise wrong("url", url, reason, "name one broker: veena://host:port")
    try:
        parse_url(url)
    except (VeenaError, ValueError) as error:
        raise wrong("url", url, str(error), "write veena://host:port") from None
    text = options.get("retrySeconds", str(RETRY_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_RETRY_S:
        raise wrong("retrySeconds", text, "it is no time", f"write seconds from 0 to {MAX_RETRY_S:g}")
    who = access(options)
    return Target(url, replace(who, client_id=who.client_id or f"{who.user or 'spark'}/sink"), seconds)


def _batch(options: Mapping[str, str]) -> int:
    text = options.get("batch", "0").strip()
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_BATCH:
        raise wrong("batch", text, "it is no number of a batch", f"write a whole number from 0 to {MAX_BATCH}")
    return int(text)
