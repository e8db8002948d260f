"""The blocking reader of a broker's tables: ranges as Arrow, over lost connections, from any broker of a network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import veena
import veena.blocking
import veena.testing
from veena.core.wire.log_tables import LogTest
from veena.errors import AccessDenied, DataLost, LocalProtocolError, NotConnected, Refused, RemoteProtocolError
from veena.runtime.access.users import digest_of
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.store import writer as store_writer
from veena.spark.log.blocks import Batches, schema
from veena.spark.log.client import Access, Filter, LogClient
from veena.spark.log.filters import as_tests, can_filter
from veena.spark.log.tables import TABLES

PATIENCE_S = 30.0
CERTIFICATES = Path(__file__).parents[2] / "runtime" / "certificates"
COUNT = 60


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


async def publish(url: str, count: int = COUNT, reliable: bool = True) -> None:
    async with veena.connect(url, client_id="alice") as client:
        events = (
            client.publish(topic=f"t{n % 3}", properties={"n": n}, body=bytes([n]), reliable=reliable)
            for n in range(count)
        )
        await asyncio.gather(*events)


@pytest.fixture(scope="module")
def network() -> Iterator[veena.testing.Network]:
    settings: dict[str, dict[str, Any]] = {
        "store": {"records": "all", "history": "all"},
        "locator": {"serve": True, "refresh_s": 0.2},
    }
    with veena.testing.network({"paris": 2, "rome": 1}, settings=settings) as net:
        with veena.blocking.connect(net.url("paris.1")) as here, veena.blocking.connect(net.url("rome.1")) as there:
            wanted = [here.subscribe(topic="t0"), there.subscribe(topic="t0")]
            asyncio.run(publish(net.url("paris.1")))
            asyncio.run(publish(net.url("paris.1"), 10, reliable=False))
            for each in wanted:
                each.next(timeout=PATIENCE_S)
        yield net


@pytest.fixture
def log(network: veena.testing.Network) -> Iterator[LogClient]:
    with LogClient(network.url("paris.1"), timeout=PATIENCE_S) as client:
        yield client


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    """The bodies of these, which are numbers."""
    return [body[0] for batch in batches for body in batch.column("body").to_pylist()]


def test_a_range_is_read_with_exactly_the_columns_that_were_asked_for(log: LogClient) -> None:
    """ORD: rows by offset, in batches no longer than wanted."""
    ends = log.ends("events")
    assert (ends.first, ends.next, ends.lost) == (0, COUNT, 0)
    batches = list(log.read("events", 10, 45, columns=["body", "offset", "id"], max_rows=16))
    assert [batch.num_rows for batch in batches] == [16, 16, 3]
    assert all(batch.schema == schema("events", ["body", "offset", "id"]) for batch in batches)
    assert pa.Table.from_batches(batches).column("offset").to_pylist() == list(range(10, 45))
    assert sum(batch.num_rows for batch in log.read("events", 0, 5, columns=[])) == 5
    assert list(log.read("events", 5, 5, columns=["id"])) == []
    assert numbers(log.read("events", 0, COUNT, columns=["body"], topic="t1")) == list(range(1, COUNT, 3))
    assert numbers(log.read("events", 0, COUNT, columns=["body"], selector="n < 4 OR n = 50")) == [0, 1, 2, 3, 50]


@pytest.mark.parametrize("table", list(TABLES))
def test_tables_come_with_their_schema(log: LogClient, table: str) -> None:
    until(lambda: log.ends(table).next > 0)
    ends = log.ends(table)
    found = pa.Table.from_batches(log.read(table, ends.first, ends.next, columns=list(TABLES[table])), schema(table))
    assert found.schema == schema(table)
    found.validate(full=True)
    assert set(found.column("broker").to_pylist()) == {"paris.1"}


def test_events_of_best_effort_have_offsets_below_zero(log: LogClient) -> None:
    until(lambda: log.ends("events").passed_next == 10)
    ends = log.ends("events")
    batches = list(log.read("events", -ends.passed_next, -ends.passed_first, columns=["offset", "reliable", "body"]))
    found = pa.Table.from_batches(batches)
    assert found.column("offset").to_pylist() == list(range(-1, -11, -1)), "the oldest first"
    assert set(found.column("reliable").to_pylist()) == {False}
    assert numbers(log.read("events", -4, -2, columns=["body"])) == [2, 3]
    with pytest.raises(LocalProtocolError, match=r"-3 to 5: read those below 0 .* for themselves"):
        next(log.read("events", -3, 5, columns=["body"]))


def test_comparisons_are_made_by_the_broker(log: LogClient, network: veena.testing.Network) -> None:
    before = network.statistics("paris.1").tables.total.rows_sent
    row = next(log.read("events", 20, 21, columns=["id", "at", "sequence", "body"])).to_pylist()[0]
    for test, expected in (
        (Filter("id", "=", row["id"]), [20]),
        (Filter("id", "=", "nobody's"), []),
        (Filter("sequence", "in", [row["sequence"], row["sequence"] + 1]), [20, 21]),
        (Filter("topic", "in", ["t0", "none"]), list(range(0, COUNT, 3))),
        (Filter("reliable", "=", False), []),
        (Filter("publisher", ">", "alice"), []),
        (Filter("at", "<", datetime(2001, 1, 1, tzinfo=UTC)), []),
    ):
        assert numbers(log.read("events", 0, COUNT, columns=["body"], filters=[test])) == expected
    at: datetime = row["at"]
    same = numbers(log.read("events", 0, COUNT, columns=["body"], filters=[Filter("at", "=", at)]))
    later = numbers(log.read("events", 0, COUNT, columns=["body"], filters=[Filter("at", ">=", at)]))
    assert 20 in same and set(same) <= set(later) and later[-1] == COUNT - 1
    assert network.statistics("paris.1").tables.total.rows_sent - before == 1 + 1 + 2 + 20 + len(same) + len(later)


def test_filters_are_put_into_a_brokers_words() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    start = int(at.timestamp()) * 1_000_000_000
    assert as_tests("events", [Filter("at", "<=", at)]) == (LogTest("at", "lt", (start + 1000,)),)
    assert as_tests("events", [Filter("at", ">", at + timedelta(microseconds=1))]) == (
        LogTest("at", "ge", (start + 2000,)),
    )
    assert as_tests("events", [Filter("topic", "in", [])]) is None
    assert can_filter("hops", Filter("went_to", "=", "0.1")) and not can_filter("hops", Filter("units", "=", "0.1"))
    assert not can_filter("events", Filter("sequence", "=", "7")) and not can_filter("events", Filter("id", "<", "a"))
    with pytest.raises(LocalProtocolError, match="filter on 'body' of events: a broker compares at, id, "):
        as_tests("events", [Filter("body", "=", "x")])


def test_times_lead_to_offsets(log: LogClient) -> None:
    row = next(log.read("events", 30, 31, columns=["at"])).to_pylist()[0]
    at_ns = int(row["at"].timestamp() * 1_000_000) * 1000
    assert 0 < log.offset_at("events", at_ns) <= 30
    assert log.offset_at("events", 0) == 0 and log.offset_at("events", at_ns + 10**15) == COUNT
    assert log.passed_at(0) == 0


def test_a_read_that_is_left_does_not_disturb_what_follows(log: LogClient, network: veena.testing.Network) -> None:
    left = log.read("events", 0, COUNT, columns=["body"], max_rows=1)
    other = log.read("events", 0, COUNT, columns=["body"], max_rows=7)
    assert next(left).num_rows == 1 and next(other).num_rows == 7
    left.close()  # type: ignore[attr-defined]
    assert numbers(other) == list(range(7, COUNT))
    until(lambda: network.statistics("paris.1").tables.reads == 0)


def test_commits_are_remembered(log: LogClient, network: veena.testing.Network) -> None:
    """Design §7: they drive what is kept."""
    assert log.commit("job", "events", 25) == 0
    log.commit("job", "deliveries", 7)
    log.commit("job", "events", -3)
    kept = {"job": (25, 0), "deliveries:job": (7, 0), "passed:job": (3, 0)}
    until(lambda: network.statistics("paris.1").store.readers == kept)
    log.forget("job", "deliveries")
    log.commit("job", "events", 30)
    until(lambda: "deliveries:job" not in network.statistics("paris.1").store.readers)
    assert network.statistics("paris.1").store.readers["job"] == (30, 0)


def test_any_broker_or_locator_leads_to_all(network: veena.testing.Network) -> None:
    with LogClient(network.url("rome.1"), timeout=PATIENCE_S) as log:
        assert [each.name for each in log.brokers()] == ["rome.1", "paris.1", "paris.2"]
        assert log.broker.url == network.url("rome.1")
    with LogClient(network.url("rome.1").replace("veena://", "veena+locator://"), timeout=PATIENCE_S) as log:
        assert {each.name for each in log.brokers()} == {"rome.1", "paris.1", "paris.2"}
        assert {each.label for each in log.brokers()} == {"0.0", "0.1", "1.0"}


def test_a_read_goes_on_where_it_stood_when_its_broker_comes_back() -> None:
    """FLT: a broker that was killed in the middle costs a pause, no row and none twice."""
    with veena.testing.network(brokers=1) as net, LogClient(net.url(), timeout=PATIENCE_S) as log:
        asyncio.run(publish(net.url()))
        reading = log.read("events", 0, COUNT, columns=["body"], max_rows=2)
        found = numbers(iter([next(reading)]))
        net.kill("a.1")
        net.restart("a.1")
        assert found + numbers(reading) == list(range(COUNT))
        net.stop("a.1")
        with pytest.raises(NotConnected), LogClient(net.url(), timeout=0.2) as gone:
            gone.ends("events")


def test_what_was_given_up_is_data_loss_with_both_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "TRIM_SECONDS", 0.05)
    with (
        veena.testing.broker(settings={"store": {"path": "store", "history_s": 0.001}}) as url,
        LogClient(url, timeout=PATIENCE_S) as log,
    ):
        asyncio.run(publish(url, 5))
        until(lambda: log.ends("events").first == 5)
        with pytest.raises(DataLost, match=r"events of broker 'a\.1': offset 2 .* begins at 5; .* history_s") as told:
            list(log.read("events", 2, 5, columns=["id"]))
        assert (told.value.table, told.value.asked, told.value.first) == ("events", 2, 5)
        with pytest.raises(Refused, match="keeps no hops: set records"):
            log.ends("hops")


def test_tls_and_websockets_carry_it_too_and_ask_who_it_is(tmp_path: Path) -> None:
    """SEC-05, TRN: who is let in is the same by every door."""
    (tmp_path / "users.toml").write_text(f'[user.alice]\ntokens = ["{digest_of("secret")}"]\n')
    files = {"certificate": "broker.pem", "key": "broker.key", "authority": "authority.pem"}
    config = '[broker]\nlisten = ["veenas://127.0.0.1:0", "wss://127.0.0.1:0", "ws://127.0.0.1:0"]\n'
    config += f'[auth]\nusers_file = "{tmp_path}/users.toml"\n[tls]\n'
    config += "".join(f'{key} = "{CERTIFICATES}/{name}"\n' for key, name in files.items())
    alice = Access("alice", token="secret", ca_file=str(CERTIFICATES / "authority.pem"))
    loop = veena.blocking.LoopThread()

    async def started() -> Node:
        node = Node(parse_config(config))
        await node.start()
        return node

    node = loop.wait(started())
    try:
        for url in node.urls:
            with LogClient(url, alice, PATIENCE_S) as log:
                assert log.ends("events").next == 0
                assert [each.url for each in log.brokers()] == [url]
        with (
            pytest.raises(AccessDenied, match="token is not known here"),
            LogClient(node.urls[0], Access("alice", token="x", ca_file=alice.ca_file)) as log,
        ):
            log.ends("events")
        with (
            pytest.raises(NotConnected, match="certificate verify failed"),
            LogClient(node.urls[0], Access("alice"), 5.0) as log,
        ):
            log.ends("events")
    finally:
        loop.wait(node.stop(0.0))
        loop.stop()
    assert "secret" not in repr(alice)


def test_a_broker_that_sends_nonsense_does_not_lead_arrow_astray() -> None:
    batches = Batches("events", ["body"], "here")
    block = bytes(64) + bytes(64)
    for sizes, data, words in (
        ([0, 8], block, "2 buffers"),
        ([0, 8, 10], bytes(64), "3 buffers and 64 bytes"),
        ([0, 16, 10], block, "has 16 bytes"),
        ([0, 8, 10], b"\0\0\0\0\x7f\0\0\0" + bytes(120), "offsets that do not ascend from 0 to 10"),
        ([0, 8, 10], b"\x05\0\0\0\x0a\0\0\0" + bytes(120), "offsets that do not ascend"),
    ):
        with pytest.raises(RemoteProtocolError, match=words):
            batches.batch(1, sizes, pa.py_buffer(data))


def test_unknown_tables_and_columns_are_named_with_those_there_are(log: LogClient) -> None:
    with pytest.raises(LocalProtocolError, match="'news': there are events, deliveries, hops, profiles"):
        log.ends("news")
    with pytest.raises(LocalProtocolError, match="column 'price' of events: there are broker, offset"):
        next(log.read("events", 0, 1, columns=["price"]))
