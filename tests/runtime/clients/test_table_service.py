"""A broker's tables for readers outside: who is waited for, what is refused, what is counted, who may read what."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import veena
import veena.blocking
import veena.testing
from tests.runtime.wording import Wording
from veena.core.wire.control import Frame
from veena.core.wire.log_tables import (
    COLUMNS,
    AskLogCommit,
    AskLogEnds,
    AskLogMore,
    AskLogRead,
    LogTest,
    Table,
    TellBlock,
    TellBlockPart,
    TellCommitted,
    TellLogEnds,
)
from veena.errors import AccessDenied, NotConnected, RefusalCode, Refused
from veena.runtime.access.users import digest_of
from veena.runtime.broker.metrics import exposition
from veena.runtime.clients import table_service as log_service
from veena.spark.log.connection import Access, LogWire

PATIENCE_S = 30.0
#: Large events: together more than the sockets of a connection hold.
LARGE = 30


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def network() -> Iterator[veena.testing.Network]:
    async def publish(url: str) -> None:
        async with veena.connect(url, client_id="alice") as client:
            events = (
                client.publish(topic="quotes", properties={"n": number}, body=b"x" * 100, reliable=True)
                for number in range(100)
            )
            await asyncio.gather(*events)

    with veena.testing.network(brokers=1) as net:
        asyncio.run(publish(net.url()))
        yield net


@pytest.fixture(scope="module")
def recorded() -> Iterator[str]:
    """A broker that keeps everything, where one event of each sort was delivered."""
    settings = {"store": {"records": "all", "history": "all"}}
    with veena.testing.broker(settings=settings) as url, veena.blocking.connect(url, client_id="alice") as client:
        quotes = client.subscribe(topic="quotes")
        for is_reliable in (True, False):
            client.publish(topic="quotes", reliable=is_reliable)
            quotes.next(timeout=PATIENCE_S)
        yield url


@pytest.fixture
def wire(network: veena.testing.Network) -> Iterator[LogWire]:
    with LogWire(network.url(), Access(), PATIENCE_S) as found:
        yield found


def ask(wire: LogWire, frame: Callable[[int], Frame]) -> Frame:
    number = wire.open()
    wire.send(frame(number))
    return wire.wait(number)


def test_a_reader_is_sent_no_more_blocks_than_it_has_room_for(network: veena.testing.Network, wire: LogWire) -> None:
    """Whoever reads slowly is waited for, and live delivery goes on meanwhile."""
    number = wire.open()
    wire.send(AskLogRead(number, "events", 0, 100, ("offset", "body"), blocks=2, max_rows=10))
    found = [wire.wait(number) for _ in range(2)]
    assert [(block.rows, block.next, block.last) for block in found if isinstance(block, TellBlock)] == [
        (10, 10, False), (10, 20, False)
    ]  # fmt: skip
    # Answers come in the order of the questions, so a block more would have come before this one.
    assert isinstance(ask(wire, lambda other: AskLogEnds(other, "events")), TellLogEnds)
    assert not wire._waiting[number]
    statistics = network.statistics("a.1").tables
    assert statistics.reads == 1
    with veena.blocking.connect(network.url()) as client:
        live = client.subscribe(topic="live")
        client.publish(topic="live", body=b"now")
        assert live.next(timeout=PATIENCE_S).body == b"now"
    wire.send(AskLogMore(number, 1))
    third = wire.wait(number)
    assert isinstance(third, TellBlock) and third.next == 30
    wire.send(AskLogMore(number, 0))
    until(lambda: network.statistics("a.1").tables.reads == 0)


def test_a_block_comes_in_parts_that_fit(wire: LogWire, network: veena.testing.Network) -> None:
    with veena.blocking.connect(network.url()) as client:
        client.publish(topic="large", body=bytes(900_000), reliable=True)
    number = wire.open()
    wire.send(AskLogRead(number, "events", 0, 1000, ("body",), topic="large"))
    first = wire.wait(number)
    assert isinstance(first, TellBlock) and first.more and first.rows == 1 and first.sizes[2] == 900_000
    parts = []
    while True:
        part = wire.wait(number)
        assert isinstance(part, TellBlockPart)
        parts.append(part)
        if not part.more:
            break
    assert len(parts) == 3


def test_what_waits_for_a_reader_that_takes_nothing_is_bounded() -> None:
    """It may ask for as much as it likes: blocks are made while they are taken, and none is lost for it."""

    async def publish(url: str) -> None:
        async with veena.connect(url) as client:
            for _ in range(LARGE):
                await client.publish(topic="large", body=bytes(900_000), reliable=True)

    with veena.testing.network(brokers=1) as net, LogWire(net.url(), Access(), PATIENCE_S) as wire:
        asyncio.run(publish(net.url()))
        number = wire.open()
        wire.send(AskLogRead(number, "events", 0, LARGE, ("body",), blocks=16, max_rows=1), AskLogMore(number, 16))
        same = 0
        with LogWire(net.url(), Access(), PATIENCE_S) as other:
            while same < 20:  # questions go through the same threads, behind whatever block is being made
                before = net.statistics("a.1").tables.total.blocks
                ask(other, lambda number: AskLogEnds(number, "events"))
                same = same + 1 if net.statistics("a.1").tables.total.blocks == before else 0
        assert net.statistics("a.1").tables.total.blocks < LARGE
        blocks = 0
        while blocks < LARGE:
            blocks += isinstance(wire.wait(number), TellBlock)
        assert net.statistics("a.1").tables.total.rows_sent == LARGE


def test_faults_are_refused_and_say_what_there_is(wire: LogWire) -> None:
    for asked, words in (
        (("bodies",), r"column 'bodies' of events: there are offset, at, publisher"),
        (("body", "body"), "name each once"),
    ):
        with pytest.raises(Refused, match=words):
            ask(wire, lambda number, asked=asked: AskLogRead(number, "events", 0, 9, asked))  # type: ignore[misc]
    with pytest.raises(Refused, match=r"selector of read \d+: .*position 7"):
        ask(wire, lambda number: AskLogRead(number, "events", 0, 9, (), selector="price >"))
    with pytest.raises(Refused, match="the end lies before the start"):
        ask(wire, lambda number: AskLogRead(number, "events", 9, 0, ()))
    with pytest.raises(Refused, match="'body' of events: those that can be tested are"):
        ask(wire, lambda number: AskLogRead(number, "events", 0, 9, (), tests=(LogTest("body", "in", texts=("x",)),)))
    with pytest.raises(Refused, match="'sequence': give numbers"):
        ask(wire, lambda number: AskLogRead(number, "events", 0, 9, (), tests=(LogTest("sequence", "in"),)))
    for table, setting in (("deliveries", '"deliveries" or "all"'), ("hops", '"all"'), ("profiles", '"all"')):
        with pytest.raises(Refused, match=f"keeps no {table}: set records = {setting}"):
            ask(wire, lambda number, table=table: AskLogEnds(number, table))  # type: ignore[misc]
    with pytest.raises(Refused, match="begin like that are a table's own"):
        ask(wire, lambda number: AskLogCommit(number, "hops:mine", "events", 5))
    assert isinstance(ask(wire, lambda number: AskLogEnds(number, "events")), TellLogEnds), "nobody is closed for it"


def test_reads_of_one_client_are_bounded_and_end_with_it(network: veena.testing.Network, wording: Wording) -> None:
    with LogWire(network.url(), Access(), PATIENCE_S) as wire:
        for _ in range(log_service.MAX_READS_EACH):
            number = wire.open()
            wire.send(AskLogRead(number, "events", 0, 100, ("offset",), blocks=1, max_rows=1))
            wire.wait(number)
        with pytest.raises(Refused, match=wording.of("reads of this client are open: end one first")) as caught:
            ask(wire, lambda number: AskLogRead(number, "events", 0, 100, ("offset",)))
        assert caught.value.code is RefusalCode.LIMIT
    until(lambda: network.statistics("a.1").tables.reads == 0)


def test_who_does_not_read_on_makes_room_for_others(
    network: veena.testing.Network, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr(log_service, "MAX_READS", 1)
    with (
        LogWire(network.url(), Access(), PATIENCE_S) as idle,
        LogWire(network.url(), Access(), PATIENCE_S) as other,
    ):
        number = idle.open()
        idle.send(AskLogRead(number, "events", 0, 100, ("offset",), blocks=1, max_rows=1))
        idle.wait(number)
        with pytest.raises(NotConnected, match=wording.of("ask again in a moment")) as caught:
            ask(other, lambda number: AskLogRead(number, "events", 0, 100, ("offset",)))
        assert caught.value.code is RefusalCode.BUSY
        monkeypatch.setattr(log_service, "IDLE_S", 0.0)
        assert isinstance(ask(other, lambda number: AskLogRead(number, "events", 0, 9, ("offset",))), TellBlock)
        with pytest.raises(NotConnected, match=wording.of("nothing more was asked of this read")):
            idle.wait(number)


def test_what_is_looked_at_and_sent_is_counted_by_reader(network: veena.testing.Network) -> None:
    """The counter that shows what a filter saves."""
    with LogWire(network.url(), Access(client_id="counted/1"), PATIENCE_S) as wire:
        block = ask(wire, lambda number: AskLogRead(number, "events", 0, 100, ("offset",), selector="n < 7"))
    assert isinstance(block, TellBlock) and (block.rows, block.looked) == (7, 100)
    counted = network.statistics("a.1").tables.readers["counted"]
    assert (counted.blocks, counted.rows_looked, counted.rows_sent) == (1, 100, 7) and counted.bytes_sent > 56
    shown = exposition(network.statistics("a.1")).decode()
    assert 'veena_reader_rows_looked_at_total{reader="counted"} 100.0' in shown
    assert 'veena_reader_rows_sent_total{reader="counted"} 7.0' in shown


USERS = """
[user.reader]
tokens = ["{reader}"]
roles = ["reader"]
[user.auditor]
clearances = ["secret"]
tokens = ["{auditor}"]
roles = ["auditor"]
[user.writer]
tokens = ["{writer}"]
roles = ["writer"]
[role.reader]
rules = [{{ allow = "subscribe", topic = "open.*" }}, {{ allow = "subscribe", type = "Quote" }}]
[role.auditor]
rules = [{{ allow = ["subscribe", "log"] }}]
[role.writer]
rules = [{{ allow = "*" }}]
"""


def test_rights_are_tested_on_every_event_as_at_delivery(tmp_path: Path) -> None:
    """SEC: nobody reads by the log what it would not be handed; records and commits need the right to the log."""
    file = tmp_path / "users.toml"
    file.write_text(USERS.format(**{name: digest_of(name) for name in ("reader", "auditor", "writer")}))
    settings = {"auth": {"users_file": str(file)}, "store": {"path": "store", "records": "all"}}
    with veena.testing.broker(settings=settings) as url:
        with veena.blocking.connect(url, client_id="writer", user="writer", token="writer") as client:
            client.publish(topic="open.one", reliable=True)
            client.publish(topic="secret", reliable=True)
            client.publish(topic="secret", headers={"type_name": "Quote"}, reliable=True)
            client.publish(topic="open.two", to=["reader/x"], reliable=True)
            client.publish(topic="open.two", to=["somebody"], reliable=True)
            client.publish(topic="open.one", headers={"clearance": "secret"}, reliable=True)
        with (
            LogWire(url, Access("reader", token="reader", client_id="reader/x"), PATIENCE_S) as reader,
            LogWire(url, Access("auditor", token="auditor", client_id="auditor/x"), PATIENCE_S) as auditor,
        ):
            for wire, expected in ((reader, [0, 2, 3]), (auditor, [0, 1, 2, 3, 4, 5])):
                block = ask(wire, lambda number: AskLogRead(number, "events", 0, 6, ("offset",)))
                assert isinstance(block, TellBlock) and block.looked == 6
                found = [int.from_bytes(block.data[at : at + 8], "little") for at in range(0, 8 * block.rows, 8)]
                assert found == expected
            with pytest.raises(AccessDenied, match=r"do not allow to read deliveries.*allow 'log'"):
                ask(reader, lambda number: AskLogEnds(number, "deliveries"))
            with pytest.raises(AccessDenied, match="allow 'log'"):
                ask(reader, lambda number: AskLogCommit(number, "job", "events", 5))
            assert isinstance(ask(auditor, lambda number: AskLogCommit(number, "job", "events", 5)), TellCommitted)
            assert isinstance(ask(auditor, lambda number: AskLogEnds(number, "deliveries")), TellLogEnds)


@pytest.mark.parametrize("table", list(COLUMNS))
def test_every_column_of_every_table_can_be_asked_for(recorded: str, table: Table) -> None:
    columns = COLUMNS[table]
    with LogWire(recorded, Access(), PATIENCE_S) as wire:

        def following() -> int:
            found = ask(wire, lambda number: AskLogEnds(number, table))
            assert isinstance(found, TellLogEnds)
            return found.next

        if table != "hops":
            until(lambda: following() > 0)
        block = ask(wire, lambda number: AskLogRead(number, table, 0, 1000, tuple(columns)))
        assert isinstance(block, TellBlock) and block.last
        assert block.rows == (0 if table == "hops" else block.looked)
        assert len(block.sizes) == sum(2 if kind == "number" else 3 for kind in columns.values())
