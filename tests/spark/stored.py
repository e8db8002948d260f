"""The four tables of brokers' stores as Parquet, straight from their SQLite files: an archive without a network.

It is written apart from what brokers serve to readers, so that tests of what reads an archive do not rest on that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from veena.address import format_address
from veena.core.wire.event import BACKLOG, NO_TTL, EventCodec
from veena.event import EventId
from veena.runtime.store.schema import unsigned
from veena.spark.log.tables import TABLES

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
Rows = list[dict[str, Any]]


def stored_tables(directory: Path) -> dict[str, Rows]:
    """The rows of every store under a directory, by table."""
    found: dict[str, Rows] = {name: [] for name in TABLES}
    for path in sorted(directory.rglob("veena.db")):
        with closing(sqlite3.connect(path)) as connection:
            broker = connection.execute("SELECT name FROM identity").fetchone()[0]
            for name, read in (
                ("events", _events),
                ("deliveries", _deliveries),
                ("hops", _hops),
                ("profiles", _profiles),
            ):
                found[name] += [{"broker": broker, **row} for row in read(connection)]
    return found


def write_archive(tables: dict[str, Rows], directory: Path) -> Path:
    """Write rows as an archive without a manifest."""
    for name, rows in tables.items():
        schema = pa.schema([(column, _ARROW[kind]) for column, kind in TABLES[name].items()])
        (directory / name).mkdir(parents=True, exist_ok=True)
        given = [{column: _given(row.get(column)) for column in TABLES[name]} for row in rows]
        pq.write_table(pa.Table.from_pylist(given, schema=schema), directory / name / "rows.parquet")
    return directory


def _given(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def _time(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1000)


def _id(publisher: str, incarnation: int, stamp: int, sequence: int) -> dict[str, Any]:
    text = str(EventId(publisher, unsigned(incarnation), unsigned(stamp), sequence))
    return {"id": text, "publisher": publisher, "incarnation": incarnation, "stamp": stamp, "sequence": sequence}


def _events(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    shape = dict(connection.execute("SELECT name, value FROM meta WHERE name IN ('levels', 'fanout')"))
    codec = EventCodec(shape["levels"], shape["fanout"], 16 << 20)
    for offset, at_ns, data in connection.execute("SELECT offset, accepted_ns, frame FROM log WHERE inboxes IS NULL"):
        frame = codec.read(data)
        if frame.flags & BACKLOG or frame.publisher.startswith("~"):
            continue
        event, section = frame.event(), frame.section
        assert frame.origin_address is not None
        yield {
            "offset": offset, "at": _time(at_ns), **_id(*frame.id), "reliable": frame.reliable,
            "priority": event.priority, "ttl_ms": None if frame.ttl_ms == NO_TTL else frame.ttl_ms,
            "origin": format_address(frame.origin_address), "published": _time(section.timestamp_ns),
            "topic": event.topic, "integer": event.integer, "to": list(event.to),
            "properties": {name: str(value) for name, value in event.properties.items()},
            "headers": {name: str(value) for name, value in event.headers.items()},
            "section": bytes(frame.tail[frame.publisher_length : frame.publisher_length + frame.matching_length]),
            "body": bytes(event.body),
        }  # fmt: skip


def _deliveries(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    for offset, at_ns, *name, clients, mark in connection.execute("SELECT * FROM deliveries"):
        yield {
            "offset": offset, "at": _time(at_ns), **_id(*name), "clients": msgspec.msgpack.decode(clients),
            "mark": mark,
        }  # fmt: skip


def _hops(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    for offset, at_ns, *name, came_from, went_to, level, units in connection.execute("SELECT * FROM hops"):
        yield {
            "offset": offset, "at": _time(at_ns), **_id(*name), "came_from": came_from, "went_to": went_to,
            "level": level, "units": units.split(),
        }  # fmt: skip


def _profiles(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    names = (
        "offset", "at", "client_id", "subscription", "change", "engine", "condition", "scope", "session", "level",
        "durable", "shared", "attributes", "ending",
    )  # fmt: skip
    for values in connection.execute("SELECT * FROM profiles"):
        row = dict(zip(names, values, strict=True))
        packed = row["attributes"]
        attributes = {} if packed is None else msgspec.msgpack.decode(packed)
        yield {**row, "at": _time(row["at"]), "durable": bool(row["durable"]), "attributes": attributes}
