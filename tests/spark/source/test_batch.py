"""format("veena") in Spark: found by itself, once and as a stream, filters at the brokers, over checkpoints."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

import veena
import veena.testing

COUNT = 60


def publish(url: str, count: int = COUNT, client_id: str = "alice") -> list[str]:
    async def all_of_them() -> list[str]:
        async with veena.connect(url, client_id=client_id) as client:
            events = (
                client.publish(topic=f"t{n % 4}", properties={"n": n}, body=bytes([n]), priority=n % 3, reliable=True)
                for n in range(count)
            )
            return [str(each) for each in await asyncio.gather(*events)]

    return asyncio.run(all_of_them())


@pytest.fixture(scope="module")
def network() -> Iterator[veena.testing.Network]:
    with veena.testing.network(brokers=2) as net:
        for label, url in zip(net.brokers, net.urls, strict=True):
            publish(url, client_id=label)
        yield net


def load(spark: SparkSession, net: veena.testing.Network, **options: str) -> DataFrame:
    return spark.read.format("veena").options(url=net.url(), **options).load()


def sent(net: veena.testing.Network) -> int:
    """Rows that brokers have sent to readers so far."""
    return sum(net.statistics(each).tables.total.rows_sent for each in net.brokers)


def explained(frame: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as told:
        frame.explain("formatted")
    return told.getvalue()


def test_a_query_over_the_network(spark: SparkSession, network: veena.testing.Network) -> None:
    """ORD-02: typed columns, of all brokers, without registration."""
    events = load(spark, network)
    assert events.count() == 2 * COUNT
    (row,) = events.where("broker = 'a.2' AND properties['n'] = '7'").collect()
    assert (row.topic, row.priority, row.body, row.offset, row.reliable) == ("t3", 1, b"\x07", 7, True)
    assert row.properties == {"n": "7"} and row.publisher == "a.2" and row.id.startswith("a.2:")
    per_topic = {each.topic: each["count"] for each in events.groupBy("topic").count().collect()}
    assert per_topic == {f"t{n}": 2 * COUNT // 4 for n in range(4)}


def test_filters_and_columns_are_the_brokers_work(spark: SparkSession, network: veena.testing.Network) -> None:
    """Pushed filters show in explain() and in what brokers sent; the answers are Spark's own."""
    condition = "topic = 't1' AND priority >= 1 AND broker = 'a.1' AND offset < 50"
    columns = "broker,offset,topic,priority"
    before = sent(network)
    expected = load(spark, network, columns=columns).where(condition).collect()
    assert sent(network) - before == 2 * COUNT, "Spark filters by itself unless it is told otherwise"
    before = sent(network)
    pushed = load(spark, network, columns=columns, pushFilters="true").where(condition)
    assert "EqualTo(topic,t1)" in explained(pushed) and "GreaterThanOrEqual(priority,1)" in explained(pushed)
    assert "ReadSchema: struct<broker:string,offset:bigint,topic:string,priority:int>" in explained(pushed)
    assert sorted(pushed.collect()) == sorted(expected)
    assert 0 < sent(network) - before == len(expected)
    before = sent(network)
    assert load(spark, network, selector="n < 1", columns="id").count() == 2
    assert sent(network) - before == 2


def test_a_session_with_the_settings_of_spark_reads_too(spark: SparkSession, network: veena.testing.Network) -> None:
    """Only who asks for pushed filters needs the setting for them, and is told its name."""
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        assert load(spark, network).where("topic = 't1'").count() == 2 * COUNT // 4
        with pytest.raises(AnalysisException, match=setting):
            load(spark, network, pushFilters="true").where("topic = 't1'").count()
    finally:
        spark.conf.set(setting, "true")


def test_a_wrong_option_says_so_before_anything_is_read(spark: SparkSession) -> None:
    reading = spark.read.format("veena")
    with pytest.raises(AnalysisException, match=r"option table = 'evnts': there is no such table; use one of events"):
        reading.options(url="veena://127.0.0.1:1", table="evnts").load()


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, network: veena.testing.Network, tmp_path: Path
) -> None:
    """No row lost, none twice, over a restart of the query with a broker killed in between."""

    def run() -> list[Row]:
        stream = spark.readStream.format("veena").options(url=network.url(), columns="id", maxRowsPerBatch="70").load()
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(120)
        return spark.read.parquet(str(tmp_path / "out")).collect()

    first = run()
    assert len(first) == len(set(first)) == 2 * COUNT
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) == 2
    network.kill("a.2")
    network.restart("a.2")
    later = publish(network.url("a.2"), 5, client_id="bob")
    second = run()
    assert len(second) == len(set(second)) == 2 * COUNT + 5
    assert {row.id for row in second} - {row.id for row in first} == set(later)
