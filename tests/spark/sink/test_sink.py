"""The sink of `format("veena")`: rows become events, wrong ones are named, batches are published once (EVT-02)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType

import veena.blocking
import veena.testing
from tests.runtime.processes import until
from veena.blocking import Subscription
from veena.errors import ConfigError, InvalidEvent
from veena.event import Event
from veena.spark.sink.rows import RowReader, check_schema
from veena.spark.sink.sink import stream_writer, writer
from veena.testing.networks import Network

#: Schemas are read by Spark, also where no frame is.
pytestmark = pytest.mark.usefixtures("spark")

PATIENCE_S = 60.0
URL = "veena://127.0.0.1:7700"


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with veena.testing.network(brokers=1) as running:
        yield running


@contextmanager
def reading(network: Network, topic: str) -> Iterator[Subscription]:
    with veena.blocking.connect(network.url(), client_id=f"reader-{topic}") as reader:
        yield reader.subscribe(topic=topic)


def struct(ddl: str) -> StructType:
    found = DataType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def taken(found: Subscription, count: int) -> list[Event]:
    return [found.next(timeout=PATIENCE_S) for _ in range(count)]


def published(network: Network) -> int:
    """Events that the broker has released, when nothing waits any more."""
    until(lambda: not network.statistics("a.1").staging.releasing)
    return network.statistics("a.1").staging.released_rows


# --- batch and stream ---


def test_a_frame_is_published_as_it_says(spark: SparkSession, network: Network) -> None:
    """Every kind of value, from both partitions; `transaction` makes of two runs one."""
    rows = spark.range(4, numPartitions=2).selectExpr(
        "'prices' AS topic",
        "concat('body ', id) AS body",
        "named_struct('n', id, 'price', id / 2.0D, 'sym', 'IBM', 'ok', id > 1, 'none', CAST(NULL AS STRING))"
        " AS properties",
        "map('lang', 'en') AS headers",
        "map('Make', 'Ford') AS tags",
        "id AS integer",
        "CAST(id AS INT) AS priority",
        "60.0D AS ttl",
    )
    with reading(network, "prices") as found:
        for _ in range(2):
            _write(rows, network, transaction="prices of today")
        events = sorted(taken(found, 4), key=lambda event: event.integer or 0)
        assert [bytes(event.body) for event in events] == [b"body 0", b"body 1", b"body 2", b"body 3"]
        assert [dict(event.properties) for event in events] == [
            {"n": n, "price": n / 2, "sym": "IBM", "ok": n > 1} for n in range(4)
        ]
        assert all(dict(event.headers) == {"lang": "en"} and event.tag_values == {"Make": "Ford"} for event in events)
        assert [event.priority for event in events] == [0, 1, 2, 3]
        assert all(event.ttl is not None and 0 < event.ttl <= 60 for event in events)
        before = published(network)
        _write(rows.limit(1), network)
        assert len(taken(found, 1)) == 1, "a job without a name is new each time"
        assert published(network) == before + 1


def _write(rows: DataFrame, network: Network, **options: str) -> None:
    rows.write.format("veena").option("url", network.url()).options(**options).mode("append").save()


def test_a_batch_of_a_stream_that_is_run_again_publishes_nothing(
    spark: SparkSession, network: Network, tmp_path: Path
) -> None:
    """A driver that dies after the broker published, and before Spark has noted it, leaves what this test makes: a
    batch without its commit. Spark runs it again; ids and their number stay."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for file in range(3):
        (source / f"{file}.txt").write_text("".join(f"{file}.{line}\n" for line in range(4)))

    def run() -> None:
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        query = (
            lines.select(F.lit("lines").alias("topic"), F.col("value").alias("body"))
            .writeStream.format("veena")
            .options(url=network.url(), checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(2 * PATIENCE_S))

    before = published(network)
    with reading(network, "lines") as found:
        run()
        events = taken(found, 12)
        assert sorted(bytes(event.body).decode() for event in events) == [
            f"{file}.{line}" for file in range(3) for line in range(4)
        ]
        ids = [event.event_id for event in events if event.event_id is not None]
        assert len({each.incarnation for each in ids}) == 1 and len(set(ids)) == 12
        for name in ("2", ".2.crc"):
            (checkpoint / "commits" / name).unlink()
        repeated = network.statistics("a.1").staging.repeated
        run()
        assert network.statistics("a.1").staging.repeated > repeated, "it was run again"
        assert published(network) == before + 12
        (source / "3.txt").write_text("last\n")
        run()
        assert [bytes(event.body) for event in taken(found, 1)] == [b"last"], "and goes on"


def test_an_error_of_a_task_names_the_row_and_publishes_nothing(spark: SparkSession, network: Network) -> None:
    rows = spark.range(3, numPartitions=1).selectExpr("'odd' AS topic", "CAST(9 * id AS INT) AS priority")
    before = published(network)
    with pytest.raises(Exception, match="row 2 of this task: priority 18: expected 0"):
        _write(rows, network)
    assert published(network) == before
    assert network.statistics("a.1").staging.parts == 0, "what was staged is dropped"


# --- columns and options ---


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("topic string, colour string", r"column colour \(string\): is no part of an event .*\.drop\('colour'\)"),
        ("topic string, id string, offset bigint", r"column id \(string\), offset \(bigint\): says where .*'id', 'off"),
        ("topic int", r"column topic \(int\): expected string; cast it"),
        ("integer string", r"column integer \(string\): expected int or bigint"),
        (
            "properties map<string,decimal(10,2)>",
            r"properties \(map<string,decimal\(10,2\)>\): .*cast it to double or s",
        ),
        ("properties struct<at: timestamp>", r"properties \(struct<at:timestamp>\): .*cast it to string or bigint"),
        ("properties map<int,string>", r"properties \(map<int,string>\): expected map<string, string"),
        ("body array<tinyint>", r"column body \(array<tinyint>\): expected binary or string"),
        ("`to` map<string,string>", r"column to \(map<string,string>\): expected array<string> or string"),
        ("reliable int", r"column reliable \(int\): expected boolean"),
        ("topic string, ttl double, ttl_ms bigint", r"columns ttl and ttl_ms: both say"),
    ],
)
def test_wrong_columns_are_named_with_their_type_and_a_remedy(schema: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_schema(struct(schema))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "option url = '': no broker is named"),
        ({"url": "nowhere"}, "option url = 'nowhere'"),
        ({"url": "veena+locator://127.0.0.1:7700"}, "a locator may name another broker the next time"),
        ({"url": URL, "topic": "t"}, "option topic = 't': there is no such option for writing"),
        ({"url": URL, "batch": "3"}, "a batch of nothing; set transaction too"),
        ({"url": URL, "transaction": "t", "batch": "x"}, "option batch = 'x': it is no number of a batch"),
        ({"url": URL, "retrySeconds": "soon"}, "option retrySeconds = 'soon': it is no time"),
        ({"url": URL, "password": "secret"}, "a password without a user"),
    ],
)
def test_wrong_options_are_named_with_a_remedy(options: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        writer(options, struct("topic string"), False)
    assert "secret" not in str(error.value)


def test_what_was_published_cannot_be_overwritten_and_a_stream_has_no_transaction() -> None:
    schema = struct("topic string")
    with pytest.raises(ConfigError, match="events that were published cannot be taken back"):
        writer({"url": URL}, schema, True)
    with pytest.raises(ConfigError, match="a stream is known by its checkpoint; leave it out"):
        stream_writer({"url": URL, "transaction": "t"}, schema, False)


def test_values_become_fields_of_events(spark: SparkSession) -> None:
    """Maps, lists, text as bytes, variants; what is null is not there."""
    schema = struct(
        "topic string, body string, properties map<string,double>, `to` array<string>, ttl_ms bigint, reliable boolean"
    )
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["a", None],
            "body": ["é", None],
            "properties": pa.array([[("x", 1.5), ("y", None)], None], pa.map_(pa.string(), pa.float64())),
            "to": [["bob"], None],
            "ttl_ms": [1500, None],
            "reliable": [False, None],
        }
    )
    (first, is_reliable), (second, is_second_reliable) = RowReader(schema).events(batch)
    assert (first.topic, first.body, first.to, first.ttl) == ("a", "é".encode(), ("bob",), 1.5)
    assert dict(first.properties) == {"x": 1.5, "y": None}
    assert (is_reliable, is_second_reliable) == (False, True)
    assert (second.topic, second.body, second.to, second.ttl, dict(second.properties)) == (None, b"", (), None, {})
    variant = spark.sql('SELECT parse_json(\'{"n": 1, "s": "x", "ok": true}\') AS properties')
    [(event, _)] = RowReader(variant.schema).events(variant.toArrow().to_batches()[0])
    assert dict(event.properties) == {"n": 1, "s": "x", "ok": True}
    list_of_null = pa.RecordBatch.from_pydict({"to": [["bob"], ["bob", None]]})
    with pytest.raises(InvalidEvent, match="row 1 of this task, column to: null among the client ids"):
        list(RowReader(struct("`to` array<string>")).events(list_of_null))
