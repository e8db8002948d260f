"""What an audit looks at: the tables of an archive, and what is made of the profile history.

    events      --> `survey`    what there is to look out for
    profiles    --> `stays`     a subscription while it was at one broker: made, acknowledged, over
                --> `lives`     a broker from one start to the next, and its address

A publisher that moves to another broker repeats what was not accepted under a new id that names the first. Both are the
same event, judged under the first.

A broker that was killed could not say when its clients left. The last row that it wrote before its next start is the
time up to which its subscriptions are known to have stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veena.spark.log.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

#: How a subscription ends whose broker died (`core.journal`).
CRASHED: Final = "its broker was started again"
#: Ids that only brokers have (`core.messages.addresses`).
INTERNAL: Final = "~"
#: Headers by which an event asks for a device or a clearance (`core.interest.eligibility`).
NEEDS: Final = ("needs", "needs_cpu", "clearance")

STAYS: Final = """client string, profile_id bigint, engine string, condition binary, broker string, address string,
    scope int, begun bigint, active bigint, ended bigint, durable boolean, is_crashed boolean, shared string,
    attributes map<string,string>"""


@dataclass(frozen=True, slots=True)
class Tables:
    """The four tables of `tables`."""

    events: DataFrame
    deliveries: DataFrame
    hops: DataFrame
    profiles: DataFrame


def tables_of(spark: SparkSession, archive: str | Path) -> Tables:
    """The tables of an archive; a directory without a manifest is read as it is."""
    from veena.spark.archive.archive import directory_of, existing, read
    from veena.spark.archive.manifest import load

    root = directory_of(archive)
    plain = {name: root / name for name in TABLES if load(root, name) is None and (root / name).is_dir()}
    if len(plain) < len(TABLES):
        existing(root)
    return Tables(**{
        name: spark.read.parquet(str(plain[name])) if name in plain else read(spark, archive, name) for name in TABLES
    })  # fmt: skip


# --- events ---


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is among the events."""

    events: int
    is_addressed: bool
    has_needs: bool
    #: Who accepted them.
    brokers: tuple[str, ...]
    #: Id -> the id that it had first, of those that were published before under another.
    firsts: dict[str, str]


def survey(events: DataFrame) -> Survey:
    """One look at all events; a second one at those of publishers that moved."""
    from pyspark.sql import functions as F  # noqa: N812

    needs = ", ".join(f"'{name}'" for name in NEEDS)
    by_publisher = events.groupBy("publisher").agg(
        F.count_distinct("incarnation").alias("incarnations"),
        F.count_distinct("id").alias("events"),
        F.collect_set("broker").alias("brokers"),
        F.expr("bool_or(size(`to`) > 0) AS is_addressed"),
        F.expr(f"bool_or(exists(map_keys(headers), name -> name IN ({needs}))) AS has_needs"),
    )
    row = by_publisher.selectExpr(
        "coalesce(sum(events), 0) AS events",
        "coalesce(bool_or(is_addressed), false) AS is_addressed",
        "coalesce(bool_or(has_needs), false) AS has_needs",
        "coalesce(bool_or(incarnations > 1), false) AS has_moved",
        "array_sort(array_distinct(flatten(collect_list(brokers)))) AS brokers",
    ).collect()[0]
    firsts: dict[str, str] = {}
    if row["has_moved"]:
        moved = by_publisher.where("incarnations > 1").select("publisher")
        sections = events.join(moved, "publisher", "left_semi").select("id", "publisher", "section")
        firsts = {
            each["id"]: each["first"] for each in sections.mapInArrow(_firsts, "id string, first string").collect()
        }
    brokers = tuple(row["brokers"] or ())
    return Survey(int(row["events"]), bool(row["is_addressed"]), bool(row["has_needs"]), brokers, firsts)


def _firsts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from veena.core.wire.section import decode_section
    from veena.errors import InvalidEvent
    from veena.event import EventId

    for batch in batches:
        found: list[tuple[str, str]] = []
        for row in batch.to_pylist():
            try:
                original = decode_section(row["section"]).original
            except InvalidEvent:
                continue
            if original is not None:
                found.append((row["id"], str(EventId(row["publisher"], *original))))
        yield pa.RecordBatch.from_pydict({
            "id": pa.array([each[0] for each in found], pa.string()),
            "first": pa.array([each[1] for each in found], pa.string()),
        })  # fmt: skip


# --- brokers ---


@dataclass(frozen=True, slots=True)
class Life:
    """A broker from a start of it to the next; `ended` is the last that it wrote, where another life followed.

    Times are microseconds.
    """

    broker: str
    address: str | None
    number: int = 1
    began: int = 0
    next: int | None = None
    ended: int | None = None
    #: What it kept.
    records: str = ""
    history: str = ""
    #: Records that it gave up, by its own word: for want of room, or because its disk failed.
    lost: int = 0


def lives(tables: Tables) -> list[Life]:
    """The lives of all brokers, each broker's in order. There are few: as many as brokers were started."""
    from pyspark.sql import functions as F  # noqa: N812

    told: dict[str, list[Any]] = {}
    changes = tables.profiles.where("change IN ('started', 'lost')")
    for row in sorted(changes.selectExpr("broker", "unix_micros(at) AS at", "change", "attributes").collect(), key=_at):
        if row["change"] == "started":
            told.setdefault(row["broker"], []).append([row, 0])
        elif row["broker"] in told:
            told[row["broker"]][-1][1] += int(row["attributes"]["records"])
    again = [(broker, row["at"]) for broker, rows in told.items() for row, _ in rows[1:]]
    ended: dict[tuple[str, int | None], int] = {}
    if again:
        frames = (tables.deliveries, tables.hops, tables.profiles)
        parts = [frame.selectExpr("broker", "unix_micros(at) AS at") for frame in frames]
        written = reduce(lambda one, other: one.union(other), parts)
        nexts = F.broadcast(tables.events.sparkSession.createDataFrame(again, "broker string, next bigint"))
        last = written.join(nexts, "broker").where("at < next").groupBy("broker", "next").agg(F.max("at").alias("at"))
        ended = {(row["broker"], row["next"]): row["at"] for row in last.collect()}
    found: list[Life] = []
    for broker, rows in told.items():
        starts = [int(row["at"]) for row, _ in rows]
        for number, ((row, lost), following) in enumerate(zip(rows, [*starts[1:], None], strict=True), 1):
            kept = row["attributes"]
            found.append(Life(
                broker, kept.get("address"), number, row["at"], following, ended.get((broker, following)),
                kept.get("records", ""), kept.get("history", ""), lost,
            ))  # fmt: skip
    return found


def _at(row: Row) -> int:
    return int(row["at"])


# --- subscriptions ---


def stays(profiles: DataFrame, lives: Sequence[Life]) -> DataFrame:
    """Subscriptions, each while it was at one broker (`STAYS`); times are microseconds."""
    by_broker: dict[str, list[Life]] = {}
    for life in lives:
        by_broker.setdefault(life.broker, []).append(life)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _read_stays(batches, by_broker)

    rows = profiles.where("engine <> '' AND change IN ('added', 'active', 'removed')").selectExpr(
        "broker", "session", "subscription", "unix_micros(at) AS at", "offset", "change", "level", "scope", "durable",
        "client_id AS client", "xxhash64(engine, condition) AS profile_id", "engine", "condition", "shared",
        "attributes", "ending",
    )  # fmt: skip
    key = ("broker", "session", "subscription")
    return rows.repartition(*key).sortWithinPartitions(*key, "at", "offset").mapInArrow(read, STAYS)


def _read_stays(batches: Iterator[pa.RecordBatch], lives: dict[str, list[Life]]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    texts = {name: pa.string() for name in ("client", "engine", "broker", "address", "shared")}
    numbers = {name: pa.int64() for name in ("profile_id", "begun", "active", "ended")}
    kinds: dict[str, pa.DataType] = {
        **texts, **numbers, "condition": pa.binary(), "scope": pa.int32(), "durable": pa.bool_(),
        "is_crashed": pa.bool_(), "attributes": pa.map_(pa.string(), pa.string()),
    }  # fmt: skip
    names = [part.split()[0] for part in STAYS.replace("\n", " ").split(", ")]
    schema = pa.schema([(name, kinds[name]) for name in names])
    for found in combined((row for batch in batches for row in batch.to_pylist()), lives):
        yield pa.RecordBatch.from_pylist(found, schema=schema)


#: Stays that are handed on together.
_TOGETHER: Final = 10_000


def combined(rows: Iterable[dict[str, Any]], lives: dict[str, list[Life]]) -> Iterator[list[dict[str, Any]]]:
    """Changes of subscriptions, each broker's and subscription's in order, as stays."""
    found: list[dict[str, Any]] = []
    key: tuple[Any, ...] = ()
    now: dict[str, Any] | None = None
    for row in rows:
        same = key == (row["broker"], row["session"], row["subscription"])
        if now is None or not same or row["change"] == "added":
            if now is not None:
                # Who subscribes again under the same number gives up what was there.
                found.append(_finished(now, row["at"] if same else None, lives))
            if len(found) >= _TOGETHER:
                yield found
                found = []
            key = (row["broker"], row["session"], row["subscription"])
            now = {**row, "begun": None, "active": None, "ended": None, "seen": row["at"]}
        if row["change"] == "added":
            now["begun"] = row["at"]
        elif row["change"] == "active" and row["level"] >= row["scope"] and now["active"] is None:
            now["active"] = row["at"]
        elif row["change"] == "removed" and now["ended"] is None:
            now["ended"], now["ending"] = row["at"], row["ending"]
    if now is not None:
        found.append(_finished(now, None, lives))
    yield found


def _finished(stay: dict[str, Any], replaced: int | None, lives: dict[str, list[Life]]) -> dict[str, Any]:
    """A stay with its place; the end of one whose broker died is the end of that broker's life."""
    mine = lives.get(stay["broker"], [])
    life = next((each for each in reversed(mine) if each.began <= stay["seen"]), mine[0] if mine else None)
    ended = stay["ended"] if stay["ended"] is not None else replaced
    is_crashed = stay["ending"] == CRASHED
    if is_crashed and ended is not None:
        before = next(
            (each for each in mine if each.next is not None and each.next <= ended < _after(each, mine)), None
        )
        if before is not None and before.ended is not None:
            ended = max(before.ended, stay["seen"])
    address = None if life is None else life.address
    return {**stay, "address": address, "ended": ended, "is_crashed": is_crashed, "shared": stay["shared"] or ""}


def _after(life: Life, mine: list[Life]) -> int:
    """When the life after the next began."""
    following = next((each for each in mine if each.began == life.next), None)
    return (1 << 62) if following is None or following.next is None else following.next


# --- clients ---


def sessions(profiles: DataFrame, lives: Sequence[Life]) -> DataFrame:
    """`client, attached, detached`: when clients were there, in microseconds; NULL for those who still are."""
    by_broker: dict[str, list[Life]] = {}
    for life in lives:
        by_broker.setdefault(life.broker, []).append(life)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _read_sessions(batches, by_broker)

    rows = profiles.where("change IN ('attached', 'detached')").selectExpr(
        "broker", "session", "unix_micros(at) AS at", "offset", "change", "client_id AS client"
    )
    key = ("broker", "session")
    sorted_rows = rows.repartition(*key).sortWithinPartitions(*key, "at", "offset")
    return sorted_rows.mapInArrow(read, "client string, attached bigint, detached bigint")


def _read_sessions(batches: Iterator[pa.RecordBatch], lives: dict[str, list[Life]]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    schema = pa.schema([("client", pa.string()), ("attached", pa.int64()), ("detached", pa.int64())])
    found: list[dict[str, Any]] = []
    for row in (row for batch in batches for row in batch.to_pylist()):
        if row["change"] == "attached":
            # A broker that dies takes its sessions with it.
            mine = lives.get(row["broker"], [])
            life = next((each for each in reversed(mine) if each.began <= row["at"]), None)
            ended = None if life is None or life.next is None else max(life.ended or life.next, row["at"])
            found.append({"client": row["client"], "attached": row["at"], "detached": ended})
        elif found and found[-1]["client"] == row["client"]:
            found[-1]["detached"] = row["at"]
    yield pa.RecordBatch.from_pylist(found, schema=schema)
