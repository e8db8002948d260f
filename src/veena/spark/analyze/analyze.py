"""How a network did, from its archive: latency, throughput, hops, load, topics and subscribers (EXP-03, EXP-08).

Latency is the time at which a broker handed an event to a client less the time at which it was published, by the
publisher's clock; `since="accepted"` counts from the acceptance by a broker instead. Both clocks should be one, or kept
together: deliveries before their event are counted and told, not hidden.

All ways of grouping are worked out in one pass (grouping sets): five jobs in all, as each costs Spark tenths of a
second whatever it holds. What is worked out from, and how match rates and sizes are told, is in `frames`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from veena.errors import PipelineError
from veena.spark.analyze.frames import Past, Since, broker_addresses, handed_rows, known_events

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Rows of the tables of the busiest and the slowest.
TOP: Final = 20
#: Links, and brokers, whose load is looked at; the busiest ones where there are more.
LOADS_MAX: Final = 100_000
#: Points of the timeline: as many as a picture can show.
TIMELINE_MAX: Final = 400
_QUANTILES: Final = (0.5, 0.95, 0.99)
#: Ways in which events and deliveries are grouped, by name; "" is all together.
_EVENT_SETS: Final = {"": (), "topic": ("topic",), "publisher": ("publisher",)}
_HANDED_SETS: Final = {
    "": (),
    "match": ("match",),
    "size": ("size",),
    "hops": ("hops",),
    "cells": ("match", "rate", "size"),
    "topic": ("topic",),
    "client": ("client",),
    "address": ("address",),
}
_LATENCY: Final = ("deliveries", "mean ms", "variance", "min", "p50", "p95", "p99", "max", "deliveries/s")
_UNITS: Final = {"match": "match %", "rate": "events/s", "size": "bytes", "hops": "hops"}

Groups = dict[str, list[Any]]

#: What is told of nothing at all: Spark gives no row then.
_NO_EVENTS: Final[dict[str, Any]] = {"events": 0, "bytes": 0, "first": None, "last": None, "events_per_s_max": 0}
_NO_DELIVERIES: Final[dict[str, Any]] = {"deliveries": 0, "before": 0} | dict.fromkeys(
    ("mean", "variance", "min", "quantiles", "max", "seconds", "hops_mean", "hops_max")
)


@dataclass(frozen=True, slots=True)
class Table:
    """A result, for people and for scripts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    #: Counts, times and the latency of all deliveries together.
    summary: dict[str, Any]
    tables: dict[str, Table]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def analyze(tables: Past, since: Since = "published") -> Analysis:
    """Work out everything."""
    if since not in ("published", "accepted"):
        raise PipelineError(f"since {since!r}: expected published or accepted")
    addresses = broker_addresses(tables.profiles)
    events = known_events(tables).persist()
    handed = handed_rows(tables, events, addresses, since).persist()
    try:
        seen = event_groups(events)
        given = handed_groups(handed, [row["topic"] for row in seen["topic"]])
        links = link_counts(tables.hops, addresses)
        found = {
            "match": _latency(given["match"], "Latency by match rate", "match"),
            "size": _latency(given["size"], "Latency by event size", "size"),
            "hops": _latency(given["hops"], "Latency by hops", "hops"),
            "cells": _latency(given["cells"], "Latency by match rate, publish rate and size", "match", "rate", "size"),
            "timeline": _timeline(events, handed, seen[""]),
            "links": Table("The busiest links", ("from", "to", "level", "copies", "events"), tuple(links[:TOP])),
            "units": _units(links, given["address"]),
            "topics": _topics(seen["topic"], given["topic"]),
            **_clients(tables.deliveries, given["client"]),
        }
        return Analysis(_summary(seen, given, since), found)
    finally:
        handed.unpersist()
        events.unpersist()


# --- one job each: rows grouped in several ways at once ---


def event_groups(events: DataFrame) -> Groups:
    """Events in all, and of the busiest topics and publishers."""
    from pyspark.sql import functions as sql

    rows = _grouped(
        events,
        _EVENT_SETS,
        sql.count("*").alias("events"),
        sql.sum("bytes").alias("bytes"),
        sql.min("at").alias("first"),
        sql.max("at").alias("last"),
        sql.max("accepted_per_s").alias("events_per_s_max"),
    )
    return _collected(rows, _EVENT_SETS, {"topic": TOP, "publisher": TOP}, sql.col("events"))


def handed_groups(handed: DataFrame, topics: Sequence[str | None]) -> Groups:
    """Latencies in all ways of looking at them; of clients the slowest, and of topics these alone."""
    from pyspark.sql import functions as sql

    named = handed.withColumn(
        "topic", sql.when(sql.col("topic").isin([topic for topic in topics if topic is not None]), sql.col("topic"))
    )
    rows = _grouped(
        named,
        _HANDED_SETS,
        sql.count("*").alias("deliveries"),
        sql.mean("ms").alias("mean"),
        sql.var_pop("ms").alias("variance"),
        sql.min("ms").alias("min"),
        sql.percentile_approx("ms", list(_QUANTILES)).alias("quantiles"),
        sql.max("ms").alias("max"),
        ((sql.unix_micros(sql.max("handed_at")) - sql.unix_micros(sql.min("handed_at"))) / 1e6).alias("seconds"),
        sql.count_if(sql.col("ms") < 0).alias("before"),
        sql.mean("links").alias("hops_mean"),
        sql.max("links").alias("hops_max"),
    )
    slowest = sql.when(sql.col("set") == "client", sql.col("quantiles")[2]).otherwise(sql.col("deliveries"))
    return _collected(rows, _HANDED_SETS, {"client": TOP, "address": LOADS_MAX}, slowest)


def _grouped(frame: DataFrame, sets: dict[str, tuple[str, ...]], *columns: Column) -> DataFrame:
    """One pass over a frame for all sets of keys; the column `set` says which a row is of."""
    from pyspark.sql import functions as sql

    keys = list(dict.fromkeys(key for each in sets.values() for key in each))
    groups = frame.groupingSets([[sql.col(key) for key in each] for each in sets.values()], *map(sql.col, keys))
    # In a grouping's number, with the bit of the first key highest, those are set that it does not have.
    bits = {key: 1 << at for at, key in enumerate(reversed(keys))}
    names = [(sum(bit for key, bit in bits.items() if key not in each), name) for name, each in sets.items()]
    named = sql.create_map(*(sql.lit(part) for pair in names for part in pair))
    return groups.agg(*columns, sql.grouping_id().cast("int").alias("number")).withColumn(
        "set", named[sql.col("number")]
    )


def _collected(rows: DataFrame, sets: dict[str, tuple[str, ...]], most: dict[str, int], measure: Column) -> Groups:
    """The rows by set, of some sets only those with the most of a measure; `groups` is how many a set had."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    keys = sorted({key for each in sets.values() for key in each})
    ranked = rows.withColumn("rank", sql.row_number().over(Window.partitionBy("set").orderBy(measure.desc(), *keys)))
    counted = ranked.withColumn("groups", sql.count("*").over(Window.partitionBy("set")))
    limit = sql.lit(LOADS_MAX)
    for name, rank in most.items():
        limit = sql.when(sql.col("set") == name, rank).otherwise(limit)
    found: Groups = {name: [] for name in sets}
    for row in counted.where(sql.col("rank") <= limit).orderBy("set", "rank").collect():
        found[row["set"]].append(row)
    return found


def link_counts(hops: DataFrame, addresses: DataFrame) -> list[tuple[str, str, int, int, int]]:
    """From, to, level, copies and events of each link, the busiest first."""
    from pyspark.sql import functions as sql

    copies = hops.join(sql.broadcast(addresses), "broker", "left").groupBy(
        sql.coalesce("address", "broker").alias("from"), sql.col("went_to").alias("to"), "level"
    )
    rows = copies.agg(sql.count("*").alias("copies"), sql.count_distinct("id").alias("events"))
    top = rows.orderBy(sql.desc("copies"), "from", "to").limit(LOADS_MAX).collect()
    return [(row["from"], row["to"], row["level"], row["copies"], row["events"]) for row in top]


# --- the tables ---


def _latency(rows: list[Any], title: str, *keys: str) -> Table:
    cells = sorted(
        ((*(row[key] for key in keys), *_latency_cells(row)) for row in rows),
        key=lambda cell: [(value is None, value or 0) for value in cell[: len(keys)]],
    )
    return Table(title, (*(_UNITS[key] for key in keys), *_LATENCY), tuple(cells))


def _latency_cells(row: Any) -> tuple[Any, ...]:
    """As the columns of `_LATENCY`; the rate is over the time from the first to the last, a second at least."""
    rate = row["deliveries"] / max(1.0, row["seconds"] or 0.0)
    quantiles = row["quantiles"] or [None] * len(_QUANTILES)
    return (row["deliveries"], *map(_rounded, (row["mean"], row["variance"], row["min"], *quantiles, row["max"], rate)))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)


def _summary(seen: Groups, given: Groups, since: Since) -> dict[str, Any]:
    events, handed = (seen[""] or [_NO_EVENTS])[0], (given[""] or [_NO_DELIVERIES])[0]
    deliveries, mean, variance, least, p50, p95, p99, most, per_s = _latency_cells(handed)
    seconds = (events["last"] - events["first"]).total_seconds() if events["events"] else 0.0
    return {
        "events": events["events"],
        "bytes": events["bytes"] or 0,
        "publishers": _groups(seen["publisher"]),
        "topics": _groups(seen["topic"]),
        "first": _text(events["first"]),
        "last": _text(events["last"]),
        "seconds": seconds,
        "events_per_s": _rounded(events["events"] / max(1.0, seconds)),
        "events_per_s_max": events["events_per_s_max"],
        "deliveries": deliveries,
        "deliveries_per_s": per_s,
        "clients": _groups(given["client"]),
        "brokers": _groups(given["address"]),
        "hops_mean": _rounded(handed["hops_mean"]),
        "hops_max": handed["hops_max"],
        "latency_since": since,
        "latency_ms": {
            "mean": mean, "variance": variance, "min": least, "p50": p50, "p95": p95, "p99": p99, "max": most,
        },
        #: Handed before they were published: the clocks of two machines differ.
        "before_their_event": handed["before"],
    }  # fmt: skip


def _groups(rows: list[Any]) -> int:
    return rows[0]["groups"] if rows else 0


def _text(at: Any) -> str | None:
    from datetime import UTC

    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timeline(events: DataFrame, handed: DataFrame, all_events: list[Any]) -> Table:
    """Events and deliveries over time, in as many equal steps as a picture can show, of a second at least."""
    from pyspark.sql import functions as sql

    row = (all_events or [_NO_EVENTS])[0]
    start = 0 if row["first"] is None else int(row["first"].timestamp())
    span = 0 if row["last"] is None else int(row["last"].timestamp()) - start
    step = max(1, -(-(span + 1) // TIMELINE_MAX))
    came = events.selectExpr("at AS when", "CAST(NULL AS double) AS ms", "1 AS event")
    rows = came.unionAll(handed.selectExpr("handed_at AS when", "ms", "0 AS event"))
    slot = (sql.floor((sql.unix_seconds("when") - start) / step) * step).alias("slot")
    counted = rows.groupBy(slot).agg(
        sql.sum("event").alias("events"),
        sql.sum(1 - sql.col("event")).alias("deliveries"),
        sql.percentile_approx("ms", [0.5, 0.99]).alias("quantiles"),
    )
    cells = [
        (row["slot"], row["events"] / step, row["deliveries"] / step, *(row["quantiles"] or (None, None)))
        for row in counted.orderBy("slot").collect()
    ]
    columns = ("second", "events/s", "deliveries/s", "p50 ms", "p99 ms")
    return Table(f"Over time, in steps of {step} s", columns, tuple(cells))


def _units(links: list[tuple[str, str, int, int, int]], by_address: list[Any]) -> Table:
    """What came into each unit, brokers and larger ones, and was handed out there."""
    copies: dict[str, int] = {}
    deliveries: dict[str, int] = {}
    for _, to, level, count, _ in links:
        for unit in _around(to)[: level + 1]:  # a link of level l leads into the receiver's units up to level l
            copies[unit] = copies.get(unit, 0) + count
    for row in by_address:
        for unit in _around(row["address"] or ""):
            deliveries[unit] = deliveries.get(unit, 0) + row["deliveries"]
    rows = [(unit, copies.get(unit, 0), deliveries.get(unit, 0)) for unit in copies.keys() | deliveries.keys() if unit]
    rows.sort(key=lambda row: (-row[1], -row[2], row[0]))
    return Table("The busiest units", ("unit", "copies in", "deliveries"), tuple(rows[:TOP]))


def _around(address: str) -> list[str]:
    """The units that hold a broker, itself first."""
    parts = address.split(".")
    return [".".join(parts[:size]) for size in range(len(parts), 0, -1)]


def _topics(seen: list[Any], given: list[Any]) -> Table:
    got = {row["topic"]: row for row in given}
    rows = []
    for row in seen:
        if row["topic"] is not None:
            handed = got.get(row["topic"])
            deliveries, mean = (0, None) if handed is None else (handed["deliveries"], _rounded(handed["mean"]))
            rows.append((row["topic"], row["events"], deliveries, row["bytes"], mean))
    return Table("The busiest topics", ("topic", "events", "deliveries", "bytes", "mean ms"), tuple(rows))


def _clients(deliveries: DataFrame, slow: list[Any]) -> dict[str, Table]:
    """The clients that got their events latest, and what became of events for clients in all."""
    from pyspark.sql import functions as sql

    names = [row["client"] for row in slow]
    each = deliveries.select(sql.coalesce("mark", sql.lit("")).alias("mark"), sql.explode("clients").alias("client"))
    named = sql.when(sql.col("client").isin(names), sql.col("client")).alias("client")
    marks: dict[str, int] = {}
    other: dict[str, int] = {}
    for row in each.groupBy("mark", named).count().collect():
        marks[row["mark"]] = marks.get(row["mark"], 0) + row["count"]
        if row["mark"] and row["client"] is not None:
            other[row["client"]] = other.get(row["client"], 0) + row["count"]
    cells = tuple(
        (row["client"], row["deliveries"], *map(_rounded, (row["mean"], row["quantiles"][2], row["max"])),
         other.get(row["client"], 0))
        for row in slow
    )  # fmt: skip
    columns = ("client", "deliveries", "mean ms", "p99", "max", "late, repeated or not given")
    told = tuple((mark or "delivered", marks[mark]) for mark in sorted(marks))
    return {
        "subscribers": Table("The slowest subscribers", columns, cells),
        "marks": Table("What became of events for clients", ("what", "clients"), told),
    }
