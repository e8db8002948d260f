"""The source beside a plain socket, and the archive beside throwing rows away: the sections `read` and `archive`.

A broker serves a log that was filled before. The plain side is a source of the same kind without a broker: a process
sends length-prefixed frames from memory, and a loop in Python makes Arrow of them; what anybody would write first. Both
run as streams of the same batches to `noop`; the rate is that of all batches but the first, which starts workers.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from veena.address import DEFAULT_FANOUT, DEFAULT_LEVELS
from veena.core.boundary.stored import Entry
from veena.core.wire.event import EventCodec
from veena.errors import PipelineError
from veena.event import Event, EventId
from veena.spark.bench.suite import CORES, Effort, Figure, Say

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Rows of the log, in how many batches they are read, and in blocks of how many the plain side sends them.
ROWS: Final = 1_000_000
BATCHES: Final = 5
BLOCK_ROWS: Final = 10_000
BODY_BYTES: Final = 100
READ_BAR: Final = 0.5
PROPERTIES_BAR: Final = 0.2
ARCHIVE_BAR: Final = 0.4
#: Entries that are written to the log at once.
_CHUNK: Final = 10_000
#: A query that does nothing for so long will not end.
_PATIENCE_S: Final = 300.0
#: Lengths of id, topic and body, as the plain process sends them.
FRAME: Final = struct.Struct("<HHI")
RANGE: Final = struct.Struct("<QQ")


def measure_read(spark: SparkSession, sections: Sequence[str], effort: Effort, say: Say) -> Iterator[Figure]:
    rows = ROWS // effort.divisor
    directory = Path(tempfile.mkdtemp(prefix="veena-bench-"))
    try:
        say(f"filling a log with {rows:,} events")
        fill(directory / "broker", rows)
        with ReadProcess("veena.cli", "broker", "run", "--json", "--until-stdin-closes", "--listen",
                         "veena://127.0.0.1:0", "--data", str(directory / "broker")) as broker:  # fmt: skip
            url = str(json.loads(broker.line())["url"])
            broker.line()  # it is ready
            options = {
                "url": url,
                "maxRowsPerBatch": str(rows // BATCHES),
                "rowsPerTask": str(rows // BATCHES // CORES),
            }
            if "read" in sections:
                yield from _read(spark, options, rows, effort, say, directory)
            else:
                say("warming up")
                _run(spark.readStream.format("veena").options(**options).load(), rows, directory / "warm")
            if "archive" in sections:
                yield _archive(spark, options, rows, effort, say, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _read(
    spark: SparkSession, options: dict[str, str], rows: int, effort: Effort, say: Say, directory: Path
) -> Iterator[Figure]:
    block_rows = min(BLOCK_ROWS, rows // BATCHES // CORES)
    with ReadProcess("veena.spark.bench.plain_socket", str(rows), str(BODY_BYTES), str(block_rows)) as plain:
        port = plain.line().strip()
        spark.dataSource.register(SocketSource)
        socket_options = {"port": port, "rows": str(rows)}
        kinds = {
            "socket": ("veena_bench_socket", socket_options),
            "narrow": ("veena", options | {"columns": "id,topic,body"}),
            "wide": ("veena", options | {"columns": "id,topic,body,properties"}),
        }
        rates: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(effort.rounds):
            for name, (form, given) in kinds.items():
                say(f"reading by {form}, {name}, round {number + 1}")
                stream = spark.readStream.format(form).options(**given).load()
                rates[name].append(_rate(stream, rows, directory / f"checkpoint-{name}-{number}"))
    found = {name: median(each) for name, each in rates.items()}
    for name, label, bar in (("narrow", "id, topic, body", READ_BAR), ("wide", "with properties", PROPERTIES_BAR)):
        detail = {"rows": rows, "source_rows_s": found[name], "socket_rows_s": found["socket"]}
        yield Figure("read", label, found[name] / found["socket"], bar, detail)


def _archive(
    spark: SparkSession, options: dict[str, str], rows: int, effort: Effort, say: Say, directory: Path
) -> Figure:
    from veena.spark.archive.archive import run
    from veena.spark.archive.table import Plan

    thrown: list[float] = []
    written: list[float] = []
    for number in range(effort.rounds):
        say(f"archive and noop, round {number + 1}")
        started = time.perf_counter()
        stream = spark.readStream.format("veena").options(**options).load()
        _run(stream, rows, directory / f"noop-{number}")
        thrown.append(time.perf_counter() - started)
        plan = Plan(
            directory / f"archive-{number}", {"url": options["url"]}, int(options["maxRowsPerBatch"]),
            int(options["rowsPerTask"]),
        )  # fmt: skip
        started = time.perf_counter()
        report = run(spark, plan, ("events",))
        written.append(time.perf_counter() - started)
        if report.tables[0].rows != rows:
            raise PipelineError(f"{report.tables[0].rows:,} rows in the archive of {rows:,}")
    detail = {"rows": rows, "archive_rows_s": rows / median(written), "noop_rows_s": rows / median(thrown)}
    return Figure("archive", "to Parquet, to noop", median(thrown) / median(written), ARCHIVE_BAR, detail)


def _rate(stream: DataFrame, rows: int, checkpoint: Path) -> float:
    """Rows a second of all batches but the first."""
    batches = _run(stream, rows, checkpoint)
    later = [batch for batch in batches if batch["numInputRows"]][1:]
    return float(sum(each["numInputRows"] for each in later) / sum(each["batchDuration"] for each in later) * 1000)


def _run(stream: DataFrame, rows: int, checkpoint: Path) -> list[dict[str, Any]]:
    """Read as many rows as there are, and throw them away; what Spark says of each batch."""
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            batches = [json.loads(each.json) for each in query.recentProgress]
            if sum(batch["numInputRows"] for batch in batches) >= rows:
                return batches
            error = query.exception()
            if error is not None or time.monotonic() > deadline:
                raise PipelineError(f"the stream ended early: {error or f'no end after {_PATIENCE_S:.0f} s'}")
            time.sleep(0.05)
    finally:
        query.stop()


def fill(data: Path, rows: int) -> None:
    """Write a broker's log without the broker: it would take as long as everything else."""
    from veena.runtime.store.store import Store

    data.mkdir()
    codec = EventCodec(DEFAULT_LEVELS, DEFAULT_FANOUT)
    now = time.time_ns()
    with Store(data, lambda answers: None) as store:
        for first in range(0, rows, _CHUNK):
            at = range(first, min(first + _CHUNK, rows))
            store.save(
                *(
                    Entry(offset, codec.frame(_event(offset, now), reliable=True, origin=(0, 0, 0, 0)), now)
                    for offset in at
                )
            )


def _event(number: int, now: int) -> Event:
    return Event(
        topic=f"topic/{number % 1000}",
        properties={"price": number / 8, "symbol": f"S{number % 500}", "count": number, "live": True},
        body=(b"%d " % number).ljust(BODY_BYTES, b"x"),
        event_id=EventId("bench", 1, 1 + number // 1_000_000, number % 1_000_000),
        timestamp_ns=now,
    )


class ReadProcess:
    """A Python module in a process that ends when its standard input closes."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and nothing from outside
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._command = " ".join(arguments)

    def line(self) -> str:
        assert self._process.stdout is not None
        found = self._process.stdout.readline()
        if not found:
            raise PipelineError(
                f"python -m {self._command}: ended with {self._process.wait()}; run it by hand to see why"
            )
        return found

    def __enter__(self) -> ReadProcess:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                stack.enter_context(pipe)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class SocketSource(DataSource):
    """The plain side, as Spark sees it."""

    @classmethod
    def name(cls) -> str:
        return "veena_bench_socket"

    def schema(self) -> str:
        return "id string, topic string, body binary"

    def streamReader(self, schema: Any) -> _SocketReader:  # noqa: N802
        return _SocketReader(int(self.options["port"]), int(self.options["rows"]))


class _SocketReader(DataSourceStreamReader):
    def __init__(self, port: int, rows: int) -> None:
        self._port, self._rows, self._told = port, rows, 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        self._told = min(self._rows, self._told + self._rows // BATCHES)
        return {"at": self._told}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        share = -(-(end["at"] - start["at"]) // CORES)
        return [InputPartition((at, min(at + share, end["at"]))) for at in range(start["at"], end["at"], max(share, 1))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        start, end = partition.value
        with socket.create_connection(("127.0.0.1", self._port)) as connection, connection.makefile("rb") as stream:
            connection.sendall(RANGE.pack(start, end))
            while size := int.from_bytes(stream.read(4), "little"):
                yield _batch(stream.read(size))


def _batch(data: bytes) -> pa.RecordBatch:
    import pyarrow as pa

    ids, topics, bodies = [], [], []
    at, unpack, header = 0, FRAME.unpack_from, FRAME.size
    while at < len(data):
        id_length, topic_length, body_length = unpack(data, at)
        first = at + header
        second = first + id_length
        third = second + topic_length
        at = third + body_length
        ids.append(data[first:second])
        topics.append(data[second:third])
        bodies.append(data[third:at])
    columns = [pa.array(ids, pa.binary()).cast(pa.string()), pa.array(topics, pa.binary()).cast(pa.string())]
    return pa.RecordBatch.from_arrays([*columns, pa.array(bodies, pa.binary())], names=["id", "topic", "body"])
