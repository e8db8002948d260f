"""Blocks of a broker's tables: that they say what was published, which rows are in them, and how long they are."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tests.runtime.store_desk import CODEC, NOBODY, Desk, entry
from veena import matching
from veena.core.boundary.stored import Entry
from veena.core.wire.event import BACKLOG
from veena.core.wire.log_tables import LogTest
from veena.errors import StoreError
from veena.event import Event, EventId
from veena.runtime.export.columns import Block
from veena.runtime.export.reader import Gap, LogReading, Wanted
from veena.runtime.export.row_filter import Sieve
from veena.runtime.store.audit_records import Delivery, Hop, Passed, ProfileChange, Record
from veena.runtime.store.retention import Retention
from veena.runtime.store.rows import pack_condition
from veena.spark.log.blocks import Batches
from veena.spark.log.tables import EVENTS, TABLES

NANOSECONDS = 1_794_819_494_729_961_702


def some_events(count: int, seed: int, *, alike: bool = False) -> list[Event]:
    """Events of all shapes; or such that differ in id and time alone."""
    chance = random.Random(seed)
    found: list[Event] = []
    for number in range(count):
        stamp = (1 << 63) + 5 if chance.random() < 0.5 else NANOSECONDS
        event_id = EventId("alice" if alike else chance.choice(("alice", "böb", "c" * 255)), 7, stamp, number)
        if alike:
            found.append(Event(topic="quotes", body=b"x" * 100, event_id=event_id, timestamp_ns=NANOSECONDS + number))
            continue
        found.append(
            Event(
                topic=chance.choice((None, "", "t", "quotes", "t" * 31, "t" * 32, "ü" * 100, "t" * 250)) or None,
                integer=chance.choice((None, 0, 77)),
                tags=chance.choice((None, {"Make": "Ford", "Color": "Red"})),
                xml=chance.choice((None, "<a>1</a>", b"<?xml version='1.0' encoding='latin-1'?><a>\xe4</a>")),
                properties={"price": chance.random() * 20, "sym": "IBM", "ok": True, "raw": b"\x01", "none": None}
                if chance.random() < 0.5
                else {},
                headers=chance.choice(({}, {"type_name": "Quote"})),
                body=chance.choice((b"", b"abc", bytes(300))),
                priority=chance.randrange(10),
                ttl=chance.choice((None, 2.5)),
                to=chance.choice(((), ("bob", "eve"))),
                event_id=event_id,
                timestamp_ns=NANOSECONDS + number,
            )
        )
    return found


def filled(desk: Desk, events: list[Event]) -> None:
    desk.store.load(NOBODY)
    desk.stored(
        *(
            Entry(at, CODEC.frame(event, reliable=True, origin=(0, 0, 0, 1)), NANOSECONDS + at)
            for at, event in enumerate(events)
        )
    )


def reading(desk: Desk) -> closing[LogReading]:
    return closing(LogReading(desk.store.path, CODEC))


def wanted(
    *columns: str, table: str = "events", sieve: Sieve | None = None, rows: int = 64, size: int = 1 << 20
) -> Wanted:
    return Wanted(table, columns, sieve or Sieve(CODEC), (), rows, size)


def rows_of(found: list[Block], table: str, columns: list[str]) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    batches = Batches(table, columns, "here")
    for block in found:
        data = b"".join(buffer + bytes(-len(buffer) % 64) for buffer in block.buffers)
        made += batches.batch(block.rows, [len(buffer) for buffer in block.buffers], pa.py_buffer(data)).to_pylist()
    return made


def all_blocks(log: LogReading, asked: Wanted, start: int, end: int) -> list[Block]:
    found: list[Block] = []
    while True:
        block = log.block(asked, start, end)
        assert isinstance(block, Block)
        assert block.next > start or block.last
        found.append(block)
        start = block.next
        if block.last:
            return found


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("joins", [True, False])
def test_a_block_says_of_every_event_what_was_published(
    tmp_path: Path, alike: bool, joins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EVT-03: all columns of all shapes of events, by each way of reading them."""
    if not joins:  # as with an SQLite that cannot join bytes
        monkeypatch.setattr("veena.runtime.export.columns._JOINED", b"")
    events = some_events(300, 7, alike=alike)
    with Desk(tmp_path) as desk:
        filled(desk, events)
        columns = list(EVENTS)
        needed = Batches("events", columns, "here").needed
        with reading(desk) as log:
            blocks = all_blocks(log, wanted(*needed), 0, 300)
        assert len(blocks) == 5 and sum(block.looked for block in blocks) == 300
        for at, (row, event) in enumerate(zip(rows_of(blocks, "events", columns), events, strict=True)):
            assert event.event_id is not None and row["id"] == str(event.event_id)
            assert (row["offset"], row["broker"], row["origin"]) == (at, "here", "0.0.0.1")
            assert (row["publisher"], row["sequence"]) == (event.event_id.publisher, event.event_id.sequence)
            assert (row["stamp"], row["incarnation"]) == (
                (event.event_id.timestamp + (1 << 63)) % (1 << 64) - (1 << 63),
                7,
            )
            assert (row["topic"], row["integer"], row["body"]) == (event.topic, event.integer, event.body)
            assert (row["reliable"], row["priority"]) == (True, event.priority)
            assert row["ttl_ms"] == (None if event.ttl is None else 2500)
            assert row["to"] == list(event.to)
            assert row["tags"] == (None if event.tags is None else "Make=Ford,Color=Red")
            assert row["xml"] == (
                "<?xml version='1.0' encoding='latin-1'?><a>ä</a>" if isinstance(event.xml, bytes) else event.xml
            )
            shown = {"sym": "IBM", "ok": "true", "raw": "01", "none": None}
            price = {"price": str(event.properties["price"])} if event.properties else {}
            assert row["properties"] == (list({**price, **shown}.items()) if event.properties else [])
            assert row["headers"] == list(event.headers.items())
            tail = bytes(CODEC.frame(event).tail[len(event.event_id.publisher.encode()) :])
            assert isinstance(row["section"], bytes) and tail.startswith(row["section"])
            assert [row[name].timestamp() for name in ("at", "published")] == [  # type: ignore[attr-defined]
                (NANOSECONDS + at) // 1000 / 1e6, event.timestamp_ns // 1000 / 1e6
            ]  # fmt: skip


def test_only_what_clients_published_here_is_in_the_table(tmp_path: Path) -> None:
    """What is kept for others, and what brokers write to each other, is not: each event is in one broker's table."""
    with Desk(tmp_path) as desk:
        desk.store.load(NOBODY)
        backlog = entry(2)
        backlog.frame.flags |= BACKLOG
        desk.stored(entry(0), entry(1, inboxes=(5,)), backlog, entry(3, publisher="~0.0.0.2"), entry(4))
        with reading(desk) as log:
            (block,) = all_blocks(log, wanted("offset"), 0, 5)
            assert log.ends("events") == (0, 5)
        assert [row["offset"] for row in rows_of([block], "events", ["offset"])] == [0, 4]


def test_blocks_are_bounded_by_rows_and_by_bytes(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        desk.store.load(NOBODY)
        desk.stored(*(entry(at, body=bytes(10_000)) for at in range(20)))
        with reading(desk) as log:
            blocks = all_blocks(log, wanted("body", rows=16, size=50_000), 0, 20)
            assert sum(block.rows for block in blocks) == 20
            assert all(0 < block.rows <= 4 for block in blocks)
            assert [block.rows for block in all_blocks(log, wanted("body", rows=3), 5, 12)] == [3, 3, 1]
            (single, *_) = all_blocks(log, wanted("body", size=1), 0, 20)
            assert single.rows == 1, "a row that is larger than a block is a block"
            assert all_blocks(log, wanted("body"), 30, 40)[0].rows == 0


def test_what_is_damaged_is_not_sent(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        filled(desk, some_events(10, 1, alike=True))
        path = desk.store.path
        with closing(sqlite3.connect(path)) as file:
            file.execute("UPDATE log SET frame = substr(frame, 1, 150) || x'ff' || substr(frame, 152) WHERE offset = 6")
            file.commit()
        with reading(desk) as log:
            assert all_blocks(log, wanted("body"), 0, 6)[0].rows == 6
            with pytest.raises(StoreError, match="event at offset 6 is damaged"):
                log.block(wanted("body"), 0, 10)


def test_rows_that_were_given_up_are_a_gap_with_both_ends(tmp_path: Path) -> None:
    """Design §7: a gap is reported; numbers that were never used are none."""
    with Desk(tmp_path, retention=Retention(age_ns=0), records="deliveries", now_ns=lambda: 1000) as desk:
        desk.store.load(NOBODY)
        desk.stored(*(entry(at, accepted_ns=1 if at < 6 else 2000) for at in range(10)))
        desk.store.record([Delivery(1 if at < 3 else 2000, EventId("a", 1, 2, at), ("b",)) for at in range(5)])
        desk.store.save()
        with reading(desk) as log:
            assert log.ends("events") == (0, 10)
            desk.store.commit_reader("events-job", 2)
            desk.store.commit_reader("deliveries:job", 1)
            desk.store.save()
            desk.trimmed()
            assert log.ends("events") == (2, 10), "what a reader has not committed outlives its age"
            assert log.ends("deliveries") == (1, 5)
            desk.store.forget_reader("deliveries:job")
            desk.store.commit_reader("events-job", 10)
            desk.store.save()
            desk.trimmed()
            assert log.ends("events") == (6, 10) and log.ends("deliveries") == (3, 5)
            assert log.block(wanted("offset"), 4, 10) == Gap(4, 6)
            assert log.block(wanted("offset", table="deliveries"), 0, 5) == Gap(0, 3)
            assert isinstance(log.block(wanted("offset"), 6, 10), Block)
            assert isinstance(log.block(wanted("offset", table="passed"), 0, 5), Block)


def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    with Desk(tmp_path, history="all") as desk:
        desk.store.load(NOBODY)
        desk.stored(*(entry(at, accepted_ns=100 * (at // 2)) for at in range(10)))
        desk.store.record([Passed(at * 10, entry(at).frame) for at in range(10)])
        desk.store.save()
        with reading(desk) as log:
            assert [log.offset_at("events", at) for at in (0, 1, 100, 399, 400, 401)] == [0, 2, 2, 8, 8, 10]
            assert [log.offset_at("passed", at) for at in (0, 11, 90, 91)] == [0, 2, 9, 10]
            assert log.offset_at("hops", 5) == 0


RECORDS: list[Record] = [
    Delivery(10, EventId("a", (1 << 63) + 1, 2, 0), ("böb", "eve")),
    Delivery(20, EventId("a", 1, 2, 1), (), "late"),
    Hop(30, EventId("a", 1, 2, 2), None, (0, 0, 0, 2), 0, ((0, 0, 0, 2), (0, 1))),
    Hop(40, EventId("b" * 200, 1, 2, 3), (0, 0, 0, 2), (0, 1, 0, 0), 1),
    ProfileChange(50, "eve", 3, "added", "selector", ("t", "n > 1"), 2, attributes={"device": "pager"}),
    ProfileChange(60, "eve", 3, "removed", "integer", 7, 2, 9, 1, True, "group", {}, "unsubscribed"),
]  # fmt: skip


@pytest.mark.parametrize("joins", [True, False])
def test_records_are_shown_as_they_were_written(tmp_path: Path, joins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing values, bytes with zeros and numbers without a sign, by each way of reading them."""
    if not joins:
        monkeypatch.setattr("veena.runtime.export.columns._JOINED", b"")
    with Desk(tmp_path, records="all") as desk:
        desk.store.load(NOBODY)
        desk.store.record(RECORDS)
        desk.store.save()
        found: dict[str, list[dict[str, object]]] = {}
        with reading(desk) as log:
            for table in ("deliveries", "hops", "profiles"):
                columns = list(TABLES[table])
                asked = wanted(*Batches(table, columns, "here").needed, table=table, rows=1)
                first, following = log.ends(table)
                found[table] = rows_of(all_blocks(log, asked, first, following), table, columns)
            only = Wanted("hops", ("offset",), Sieve(CODEC), (LogTest("came_from", "in", texts=("0.0.0.2",)),), 9, 999)
            (block,) = all_blocks(log, only, 0, 2)
            assert (block.rows, block.looked) == (1, 2)
    one, two = found["deliveries"]
    assert (one["clients"], one["mark"], one["incarnation"]) == (["böb", "eve"], "", 1 - (1 << 63))
    assert (two["clients"], two["mark"], two["id"], two["offset"]) == ([], "late", "a:1:2:1", 1)
    assert one["id"] == f"a:{(1 << 63) + 1}:2:0"
    one, two = found["hops"]
    assert (one["came_from"], one["went_to"], one["units"]) == (None, "0.0.0.2", ["0.0.0.2", "0.1"])
    assert (two["came_from"], two["level"], two["units"], two["publisher"]) == ("0.0.0.2", 1, [], "b" * 200)
    one, two = (row for row in found["profiles"] if row["client_id"] == "eve")
    assert (one["attributes"], one["condition"]) == ([("device", "pager")], pack_condition(("t", "n > 1")))
    assert (one["durable"], one["change"], one["scope"]) == (False, "added", 2)
    assert (two["durable"], two["session"], two["shared"], two["ending"]) == (True, 9, "group", "unsubscribed")
    assert (two["attributes"], two["condition"], two["level"]) == ([], b"\x07", 1)


SELECTORS = (
    "price > 10",
    "sym = 'IBM' AND price BETWEEN 3 AND 12",
    "ok = TRUE OR price IS NULL",
    "JMSPriority >= 5",
    "JMSMessageID LIKE 'ID:alice%' AND price < 15",
    "nothing = 1",
)


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_selector_gives_the_engines_verdict_for_every_event(tmp_path: Path, selector: str) -> None:
    """ORD-04: what is filtered for a reader is what a subscription would get."""
    events = some_events(200, 3)
    engine = matching.create("selector")
    engine.add(1, ("quotes", selector), 1)
    with Desk(tmp_path) as desk:
        filled(desk, events)
        with reading(desk) as log:
            blocks = all_blocks(log, wanted("offset", sieve=Sieve(CODEC, "quotes", selector)), 0, 200)
    found = [row["offset"] for row in rows_of(blocks, "events", ["offset"])]
    assert found == [at for at, event in enumerate(events) if engine.match(event)]
    assert sum(block.looked for block in blocks) == 200


TESTS: dict[str, tuple[LogTest, Callable[[Event], bool]]] = {
    "sequence": (
        LogTest("sequence", "lt", (50,)),
        lambda event: event.event_id is not None and event.event_id.sequence < 50,
    ),
    "priority": (LogTest("priority", "in", (2, 3)), lambda event: event.priority in (2, 3)),
    "publisher": (
        LogTest("publisher", "in", texts=("böb", "nobody")),
        lambda event: event.event_id is not None and event.event_id.publisher == "böb",
    ),
    "topic": (LogTest("topic", "ge", texts=("t" * 31,)), lambda event: (event.topic or "") >= "t" * 31),
    "published": (
        LogTest("published", "gt", (NANOSECONDS + 100,)),
        lambda event: event.timestamp_ns > NANOSECONDS + 100,
    ),
    "stamp": (
        LogTest("stamp", "lt", (0,)),
        lambda event: event.event_id is not None and event.event_id.timestamp >= 1 << 63,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TESTS))
def test_comparisons_of_columns_let_through_what_they_say(tmp_path: Path, name: str) -> None:
    events = some_events(200, 5)
    test, passes = TESTS[name]
    with Desk(tmp_path) as desk:
        filled(desk, events)
        with reading(desk) as log:
            blocks = all_blocks(log, wanted("offset", sieve=Sieve(CODEC, tests=(test,))), 0, 200)
    found = [row["offset"] for row in rows_of(blocks, "events", ["offset"])]
    assert found == [at for at, event in enumerate(events) if passes(event)] and 0 < len(found) < 200
