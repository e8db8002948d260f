"""The readers behind format("veena") against real brokers, asked as Spark asks them, without a Spark."""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

import veena
import veena.testing
from pyspark_veena import DefaultSource
from veena.errors import ConfigError, DataLost, NotConnected
from veena.runtime.store import writer as store_writer
from veena.spark.log.blocks import schema
from veena.spark.log.client import LogClient
from veena.spark.source.batch import VeenaReader
from veena.spark.source.offsets import decode
from veena.spark.source.options import parse
from veena.spark.source.stream import VeenaStreamReader

PATIENCE_S = 30.0
COUNT = 40
COLUMNS = ("broker", "offset", "id", "topic", "reliable")
ALL = ReadAllAvailable()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def publish(url: str, count: int = COUNT, reliable: bool = True, client_id: str = "alice") -> list[str]:
    async def all_of_them() -> list[str]:
        async with veena.connect(url, client_id=client_id) as client:
            events = (
                client.publish(topic=f"t{n % 4}", properties={"n": n}, body=b"b", reliable=reliable)
                for n in range(count)
            )
            return [str(each) for each in await asyncio.gather(*events)]

    return asyncio.run(all_of_them())


def columns(names: Sequence[str] = COLUMNS, table: str = "events") -> StructType:
    return from_arrow_schema(schema(table, names))


def batch_reader(url: str, **options: str) -> VeenaReader:
    made = DefaultSource({"url": url, "retrySeconds": "20", **options}).reader(columns())
    assert isinstance(made, VeenaReader)
    return made


def stream_reader(url: str, **options: str) -> VeenaStreamReader:
    reader = VeenaStreamReader(parse({"url": url, "retrySeconds": "20", **options}), columns())
    opened.append(reader)
    return reader


opened: list[VeenaStreamReader] = []


@pytest.fixture(autouse=True)
def _stop_readers() -> Iterator[None]:
    yield
    while opened:
        opened.pop().stop()


def rows(reader: VeenaReader | VeenaStreamReader, partitions: Sequence[InputPartition]) -> list[dict[str, Any]]:
    """What tasks give: each gets copies of reader and partition, as in a worker."""
    found: list[dict[str, Any]] = []
    for each in partitions:
        copy: VeenaReader | VeenaStreamReader = pickle.loads(pickle.dumps(reader))
        for batch in copy.read(pickle.loads(pickle.dumps(each))):
            assert isinstance(batch, pa.RecordBatch)
            found += batch.to_pylist()
    return found


@pytest.fixture(scope="module")
def network() -> Iterator[veena.testing.Network]:
    with veena.testing.network(brokers=3, settings={"store": {"history": "all"}}) as net:
        for label, url in zip(net.brokers, net.urls, strict=True):
            publish(url, client_id=label)
            publish(url, 10, reliable=False, client_id=label)
        for url in net.urls:
            with LogClient(url) as log:
                until(lambda log=log: log.ends("events").passed_next == 10)  # type: ignore[misc]
        yield net


def test_one_url_reads_the_whole_network_once(network: veena.testing.Network) -> None:
    """ORD-02: every event is read from the log of the broker that accepted it, and from no other."""
    reader = batch_reader(network.url("a.2"))
    found = rows(reader, reader.partitions())
    assert len(found) == len({row["id"] for row in found}) == 150
    assert {row["broker"] for row in found} == {"a.1", "a.2", "a.3"}
    assert sorted({row["offset"] for row in found if not row["reliable"]}) == list(range(-10, 0))
    named = batch_reader(network.url("a.2"), brokers="named")
    assert {row["broker"] for row in rows(named, named.partitions())} == {"a.2"}


def test_a_log_is_split_by_rows(network: veena.testing.Network) -> None:
    reader = batch_reader(network.url(), rowsPerTask="15")
    partitions = reader.partitions()
    assert len(partitions) == 3 * (3 + 1)
    assert len(rows(reader, partitions)) == 150
    assert list(reader.read(InputPartition(None))) == [], "Spark's own task where there are none"


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        ({"startingOffsets": '{"a.1": 30}'}, 150 - 30),
        ({"startingOffsets": '{"a.1": {"log": 30, "passed": 10}, "a.2": 40}'}, 150 - 30 - 10 - 40),
        ({"endingOffsets": '{"a.1": 5, "a.2": 1000}'}, 150 - 35),
        ({"startingOffsets": "latest"}, 0),
        ({"startingOffsets": "2020-01-01"}, 150),
        ({"endingOffsets": "2020-01-01"}, 0),
        ({"topic": "t1"}, 3 * (10 + 3)),
        ({"selector": "n >= 38"}, 3 * 2),
        ({"topic": "t2", "selector": "n >= 38"}, 3),
    ],
)
def test_options_say_which_rows(network: veena.testing.Network, bounds: dict[str, str], count: int) -> None:
    reader = batch_reader(network.url(), **bounds)
    assert len(rows(reader, reader.partitions())) == count


def test_brokers_that_are_not_there_are_named(network: veena.testing.Network) -> None:
    with pytest.raises(ConfigError, match=r"startingOffsets = 'b\.9': there is no such broker; .*a\.1, a\.2, a\.3"):
        batch_reader(network.url(), startingOffsets='{"b.9": 1}').partitions()


def test_columns_of_a_schema_are_checked() -> None:
    wrong = StructType.fromJson({"fields": [{"name": "at", "type": "string", "nullable": True, "metadata": {}}]})
    with pytest.raises(ConfigError, match=r"schema: at = 'string': it is timestamp; there are broker string"):
        VeenaReader(parse({"url": "veena://127.0.0.1:1"}), wrong)


def test_filters_spare_rows_only_where_they_may(network: veena.testing.Network) -> None:
    """What is not asked for is left to Spark; what is taken is counted by the broker as not sent."""
    filters = [EqualTo(("topic",), "t1"), EqualTo(("broker",), "a.3"), GreaterThanOrEqual(("offset",), 0)]
    careful = batch_reader(network.url())
    assert careful.pushFilters(filters) == filters
    assert len(rows(careful, careful.partitions())) == 150
    reader = batch_reader(network.url(), pushFilters="true")
    assert reader.pushFilters(filters) == []
    partitions = reader.partitions()
    assert len(partitions) == 1
    before = network.statistics("a.3").tables.total.rows_sent
    assert {(row["topic"], row["broker"]) for row in rows(reader, partitions)} == {("t1", "a.3")}
    assert network.statistics("a.3").tables.total.rows_sent - before == COUNT // 4


def test_a_stream_goes_on_where_it_stood(network: veena.testing.Network) -> None:
    reader = stream_reader(network.url(), maxRowsPerBatch="70")
    assert reader.getDefaultReadLimit() == ReadMaxRows(70)
    place, found = reader.initialOffset(), []
    while (end := stream_reader(network.url()).latestOffset(place, ReadMaxRows(70))) != place:
        batch = rows(reader, reader.partitions(place, end))
        assert len(batch) <= 70
        assert rows(stream_reader(network.url()), reader.partitions(place, end)) == batch, "as often as it is read"
        found += [row["id"] for row in batch]
        place = end
    assert len(found) == len(set(found)) == 150
    assert reader.latestOffset(place, ReadMinRows(5)) == place
    assert reader.reportLatestOffset() == place
    assert reader.partitions(place, place) == []


def test_available_now_ends_where_it_began(network: veena.testing.Network) -> None:
    reader = stream_reader(network.url(), startingOffsets="latest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    publish(network.url("a.1"), 3, client_id="late")
    assert reader.latestOffset(start, ALL) == start
    assert stream_reader(network.url()).latestOffset(start, ALL)["a.1"]["log"] == start["a.1"]["log"] + 3
    with pytest.raises(ConfigError, match=r"endingOffsets = .*a stream has no end; leave it out"):
        stream_reader(network.url(), endingOffsets="2026-11-16")


def test_a_broker_that_is_away_keeps_its_place_and_fails_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    with veena.testing.network(brokers=2) as net:
        reader = stream_reader(net.url("a.1"), brokers="network")
        start = reader.initialOffset()
        for url in net.urls:
            publish(url, 6)
        net.kill("a.2")
        with caplog.at_level(logging.WARNING, "veena.spark"):
            end = reader.latestOffset(start, ALL)
        assert end == {"a.1": 6, "a.2": 0} and "a.2 does not answer and keeps its place" in caplog.text
        both = f"{net.url('a.1')},{net.url('a.2')}"
        planned = reader.partitions({"a.2": 0}, {"a.2": 6})
        once = VeenaReader(parse({"url": both, "retrySeconds": "0.2", "failOnDataLoss": "false"}), columns())
        assert len(rows(once, once.partitions())) == 6, "who allows loss gets what is there"
        net.restart("a.2")
        assert len(rows(reader, planned)) == 6, "a batch that was planned before"
        assert reader.latestOffset(end, ALL) == {"a.1": 6, "a.2": 6}
        net.kill("a.2")
        with pytest.raises(NotConnected, match=r"no broker answers \(.*\): start one, or check option url"):
            VeenaReader(parse({"url": net.url("a.2"), "retrySeconds": "0.2"}), columns()).partitions()
        with pytest.raises(NotConnected, match=rf"did not answer .*\({net.url('a.2')}: .*failOnDataLoss = false"):
            VeenaReader(parse({"url": both, "retrySeconds": "0.2"}), columns()).partitions()
        with pytest.raises(NotConnected, match=r"brokers a\.2 are not to be found .*: start them"):
            stream_reader(net.url("a.1"), retrySeconds="0.2").partitions({"a.2": 0}, {"a.2": 6})


def test_a_broker_that_is_new_begins_with_the_first_row_that_it_keeps(network: veena.testing.Network) -> None:
    reader = stream_reader(network.url())
    end = reader.latestOffset({"a.1": {"log": 1, "passed": 1}}, ALL)
    assert decode(end)["a.2", "log"] == 0
    assert {row["broker"] for row in rows(reader, reader.partitions({"a.1": {"log": 1, "passed": 1}}, end))} == {"a.1"}


def test_rows_that_were_given_up_are_loss_with_broker_and_offsets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Design §7: size and age may win over readers; the gap is reported."""
    monkeypatch.setattr(store_writer, "TRIM_SECONDS", 0.05)
    with (
        veena.testing.broker(settings={"store": {"path": "store", "history_s": 0.001}}) as url,
        LogClient(url, timeout=PATIENCE_S) as log,
    ):
        publish(url, 8)
        until(lambda: log.ends("events").first == 8)
        reader = stream_reader(url)
        with pytest.raises(DataLost, match=r"offsets 2 to 7 of broker a\.1 in events are lost: .*failOnDataLoss"):
            rows(reader, reader.partitions({"a.1": 2}, {"a.1": 8}))
        careless = stream_reader(url, failOnDataLoss="false")
        with caplog.at_level(logging.WARNING, "veena.spark"):
            assert rows(careless, careless.partitions({"a.1": 2}, {"a.1": 8})) == []
        assert "offsets 2 to 7 of broker a.1 of events are lost" in caplog.text
        with pytest.raises(DataLost, match=r"offsets 8 to 99 of broker a\.1 .* was it replaced\?"):
            reader.latestOffset({"a.1": 100}, ALL)
        log.commit("holder", "events", 8)  # what follows is kept
        with caplog.at_level(logging.WARNING, "veena.spark"):
            begun = careless.latestOffset({"a.1": 100}, ALL)
        assert begun == {"a.1": 8} and "goes on at offset 8 of a.1" in caplog.text
        assert rows(careless, careless.partitions({"a.1": 100}, begun)) == [], "nothing twice"
        later = publish(url, 3)
        found = rows(careless, careless.partitions(begun, careless.latestOffset(begun, ALL)))
        assert [row["id"] for row in found] == later


def test_what_is_committed_may_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is named holds back age, and lets go of what it has had."""
    monkeypatch.setattr(store_writer, "TRIM_SECONDS", 0.05)
    with (
        veena.testing.broker(settings={"store": {"path": "store", "history_s": 0.001}}) as url,
        LogClient(url, timeout=PATIENCE_S) as log,
    ):
        reader = stream_reader(url, reader="job")
        reader.commit({"a.1": 0})
        publish(url, 8)
        reader.commit({"a.1": 5})
        until(lambda: log.ends("events").first == 5)
        assert len(rows(reader, reader.partitions({"a.1": 5}, {"a.1": 8}))) == 3
