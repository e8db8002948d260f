"""Everything that is on record about each client, brought together and judged on Spark (`client`).

    stays, sessions, matched events, deliveries --> one frame, by client --> `judge` --> findings

The rows of one client lie behind each other in one partition; a task judges client after client. A client's rows are in
memory at once, some 300 bytes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veena.spark.audit.client import FOREVER, GROUP, Findings, Matched, Promise, Row, Stay, judge
from veena.spark.audit.tables import INTERNAL, NEEDS, Survey, Tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: What a row is about.
_STAY, _SESSION, _MATCHED, _ROW = range(4)
#: Column -> type; a row has those of its kind.
_COLUMNS: Final = {
    "client": "string", "kind": "int", "profile_id": "bigint", "id": "string", "at": "bigint", "offset": "bigint",
    "broker": "string", "text": "string", "publisher": "string", "incarnation": "bigint", "stamp": "bigint",
    "sequence": "bigint", "lane": "int", "scope": "int", "begun": "bigint", "active": "bigint", "ended": "bigint",
    "flag": "boolean", "is_crashed": "boolean", "shared": "string", "ttl_ms": "bigint", "about": "map<string,string>",
}  # fmt: skip
#: What is found: `n` counts, `packed` is the Promise.
FOUND: Final = """kind string, client string, event string, reason string, broker string, at bigint, n bigint,
    homes array<string>, address string, packed binary"""
#: Findings that are handed on together.
_TOGETHER: Final = 10_000

_encoder = msgspec.msgpack.Encoder()
promises = msgspec.msgpack.Decoder(Promise)


def matched_events(tables: Tables, stays: DataFrame, survey: Survey) -> DataFrame:
    """Every event with every condition that it satisfies: by the broker's engines, or by name where it is addressed."""
    from veena.spark.matching.bulk import match

    needs = ", ".join(f"'{name}'" for name in NEEDS)
    narrow = (
        "id", "unix_micros(at) AS at", "reliable", "ttl_ms", "origin", "publisher", "incarnation", "stamp", "sequence",
        "IF(reliable, 3, 0) + CASE WHEN priority <= 3 THEN 0 WHEN priority <= 6 THEN 1 ELSE 2 END AS lane",
        f"IF(exists(map_keys(headers), name -> name IN ({needs})), headers, NULL) AS about",
    )  # fmt: skip
    seen = tables.events.where(f"NOT startswith(publisher, '{INTERNAL}')")
    open_to_all = seen.where("size(coalesce(`to`, array())) = 0").selectExpr(*narrow, "topic", "integer", "section")
    conditions = stays.where("engine <> 'to'").select("profile_id", "engine", "condition").distinct()
    key = [text.rpartition(" ")[2] for text in narrow]
    found = match(open_to_all, conditions, key=key, on_error="skip")
    if not survey.is_addressed:
        return found
    named = seen.where("size(coalesce(`to`, array())) > 0").selectExpr(*narrow, "explode(`to`) AS client")
    reachable = stays.where("engine = 'to'").select("client", "profile_id").distinct()
    return found.unionByName(named.join(reachable, "client").select(*key, "profile_id"))


def facts(tables: Tables, stays: DataFrame, matched: DataFrame, sessions: DataFrame) -> DataFrame:
    """All rows about all clients."""
    of_stays = stays.selectExpr(
        "client", f"{_STAY} AS kind", "profile_id", "broker", "address AS text", "scope", "begun", "active", "ended",
        "durable AS flag", "is_crashed", "shared", "attributes AS about",
    )  # fmt: skip
    members = stays.where(f"shared <> '' AND NOT startswith(client, '{INTERNAL}') AND begun IS NOT NULL").selectExpr(
        "shared AS client", f"{_SESSION} AS kind", "begun", "ended"
    )
    there = sessions.selectExpr("client", f"{_SESSION} AS kind", "attached AS begun", "detached AS ended")
    wanting = stays.select("client", "profile_id").distinct()
    events = matched.join(wanting, "profile_id").selectExpr(
        "client", f"{_MATCHED} AS kind", "profile_id", "id", "at", "reliable AS flag", "ttl_ms", "origin AS text",
        "publisher", "incarnation", "lane", "stamp", "sequence", "about",
    )  # fmt: skip
    rows = tables.deliveries.where("size(clients) > 0").selectExpr(
        "explode(clients) AS client", f"{_ROW} AS kind", "id", "unix_micros(at) AS at", "offset", "broker",
        "mark AS text",
    )  # fmt: skip
    return reduce(lambda one, other: one.unionByName(other), map(_widened, (of_stays, members, there, events, rows)))


def _widened(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(*(
        f"CAST({f'`{name}`' if name in frame.columns else 'NULL'} AS {kind}) AS `{name}`"
        for name, kind in _COLUMNS.items()
    ))  # fmt: skip


def findings(facts: DataFrame, firsts: Mapping[str, str]) -> DataFrame:
    """What is found about every client (`FOUND`)."""

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _judged(batches, firsts)

    return facts.repartition("client").sortWithinPartitions("client", "kind").mapInArrow(judged, FOUND)


@dataclass(slots=True)
class _Client:
    name: str
    stays: list[Stay] = field(default_factory=list)
    sessions: list[tuple[int, int]] = field(default_factory=list)
    matched: list[Matched] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def _judged(batches: Iterator[pa.RecordBatch], firsts: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    found: list[dict[str, Any]] = []
    sums: dict[str, int] = {}
    for client in _clients(batches, firsts):
        result = judge(client.name, client.stays, client.matched, client.rows, client.sessions)
        _add_up(sums, client, result)
        found += _told(client.name, result)
        if len(found) >= _TOGETHER:
            yield _batch(found)
            found = []
    yield _batch([*found, *({"kind": "sum", "reason": name, "n": n} for name, n in sums.items())])


def _clients(batches: Iterator[pa.RecordBatch], firsts: Mapping[str, str]) -> Iterator[_Client]:
    client: _Client | None = None
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in _COLUMNS}
        for at, name in enumerate(columns["client"]):
            if client is None or client.name != name:
                if client is not None:
                    yield client
                client = _Client(name)
            _ADD[columns["kind"][at]](client, columns, at, firsts)
    if client is not None:
        yield client


def _add_stay(client: _Client, row: dict[str, list[Any]], at: int, firsts: Mapping[str, str]) -> None:
    client.stays.append(Stay(
        row["profile_id"][at], row["broker"][at], row["text"][at], row["scope"][at], row["begun"][at],
        row["active"][at], row["ended"][at], row["flag"][at], row["is_crashed"][at], row["shared"][at],
        dict(row["about"][at] or ()),
    ))  # fmt: skip


def _add_session(client: _Client, row: dict[str, list[Any]], at: int, firsts: Mapping[str, str]) -> None:
    ended = row["ended"][at]
    client.sessions.append((row["begun"][at], FOREVER if ended is None else ended))


def _add_matched(client: _Client, row: dict[str, list[Any]], at: int, firsts: Mapping[str, str]) -> None:
    name, about = row["id"][at], row["about"][at]
    client.matched.append(Matched(
        row["profile_id"][at], name, firsts.get(name, name), row["at"][at], row["flag"][at], row["ttl_ms"][at],
        row["text"][at], row["publisher"][at], row["incarnation"][at], row["lane"][at],
        (row["stamp"][at], row["sequence"][at]), dict(about) if about else None,
    ))  # fmt: skip


def _add_row(client: _Client, row: dict[str, list[Any]], at: int, firsts: Mapping[str, str]) -> None:
    name = row["id"][at]
    client.rows.append(
        Row(name, firsts.get(name, name), row["at"][at], row["offset"][at], row["broker"][at], row["text"][at])
    )


_ADD: Final = {_STAY: _add_stay, _SESSION: _add_session, _MATCHED: _add_matched, _ROW: _add_row}


def _add_up(sums: dict[str, int], client: _Client, found: Findings) -> None:
    shares = "group_" if client.name.startswith(GROUP) else ""
    for name, value in (
        ("stays", len(client.stays)), ("promised", found.promised), ("kept", found.kept), ("handed", found.handed),
        ("late", found.late), ("redelivered", found.redelivered),
    ):  # fmt: skip
        sums[shares + name] = sums.get(shares + name, 0) + value


def _told(client: str, found: Findings) -> Iterator[dict[str, Any]]:
    for promise in found.open:
        stay = promise.stay
        yield {
            "kind": "open", "client": client, "event": promise.event.first, "broker": stay.broker,
            "at": promise.event.at, "n": 1, "homes": list(promise.homes) or [stay.broker], "address": stay.address,
            "packed": _encoder.encode(promise),
        }  # fmt: skip
    for first, rows, extra in found.duplicates:
        times = "; ".join(f"{time_text(row.at)} at {row.broker}" for row in rows)
        last = rows[-1]
        yield _finding(
            "duplicate", client, first, f"handed over {len(rows)} times: {times}", last.broker, last.at, extra
        )
    for row, reason in found.spurious:
        yield _finding("spurious" if reason else "unmatched", client, row.first, reason, row.broker, row.at)
    for row, later in found.disordered:
        reason = f"handed over after {later}, without a mark"
        yield _finding("out_of_order", client, row.first, reason, row.broker, row.at)
    for group, first, is_plain in found.shared:
        yield _finding("shared", group, first, client, "", 0, int(is_plain))


def time_text(at_us: int) -> str:
    """Microseconds since 1970 as people read them."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(sep=" ")


def _finding(kind: str, client: str, event: str, reason: str, broker: str, at: int, n: int = 1) -> dict[str, Any]:
    return {"kind": kind, "client": client, "event": event, "reason": reason, "broker": broker, "at": at, "n": n}


def _batch(found: list[dict[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    texts = [(name, pa.string()) for name in ("kind", "client", "event", "reason", "broker")]
    schema = pa.schema([
        *texts, ("at", pa.int64()), ("n", pa.int64()), ("homes", pa.list_(pa.string())), ("address", pa.string()),
        ("packed", pa.binary()),
    ])  # fmt: skip
    return pa.RecordBatch.from_pylist(found, schema=schema)
