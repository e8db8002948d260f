"""The frames that an analysis starts from: events, and a row for each event that was handed to a client.

    handed = deliveries (a row a client) joined with their events: latency, size, match rate, publish rate, hops

The *match rate* of an event is the share of clients with a subscription that got it; the *publish rate* is what the
whole network accepted in the same second. Both, and sizes, are put into bands as the papers' tables have them, so a
cell of these three is one of their measurements. Brokers' messages to each other are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

Since = Literal["published", "accepted"]

#: Ids of publishers and clients that are brokers' own (`core.messages.addresses`).
INTERNAL: Final = "~"
#: Marks of first deliveries; others are repeated, or tell why there was none (`runtime.store.audit_records`).
FIRST: Final = ("", "late")
#: Upper ends of bands: the papers' match rates and sizes, and rates of publishing.
MATCH_BANDS: Final = (0, 1, 5, 10, 25, 33, 50, 100)
SIZE_BANDS: Final = (
    50,
    75,
    100,
    150,
    200,
    250,
    300,
    350,
    400,
    450,
    500,
    1 << 10,
    1 << 12,
    1 << 14,
    1 << 16,
    1 << 20,
    1 << 24,
)
RATE_BANDS: Final = (1, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 100_000, 1_000_000)
#: A rate of half of 101 clients is 50.5 %: still the band of 50.
_SLACK: Final = 1.1
_WAY_ROW: Final = "id string, address string, hops int"


@dataclass(frozen=True, slots=True)
class Past:
    """The tables of an archive, see `tables`."""

    events: DataFrame
    deliveries: DataFrame
    hops: DataFrame
    profiles: DataFrame


def past(spark: SparkSession, archive: str) -> Past:
    """The tables of an archive as it was committed last."""
    from veena.spark.archive.archive import read

    return Past(*(read(spark, archive, table) for table in ("events", "deliveries", "hops", "profiles")))


def known_events(tables: Past) -> DataFrame:
    """Every event of a client once, with its size and how many were accepted in the same second."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    size = sql.coalesce(sql.octet_length("section"), sql.lit(0)) + sql.coalesce(sql.octet_length("body"), sql.lit(0))
    own = tables.events.where(~sql.col("publisher").startswith(INTERNAL)).select(
        "id", "publisher", "at", "published", "origin", "topic", size.alias("bytes")
    )
    second = sql.date_trunc("second", "at")
    return own.dropDuplicates(["id"]).withColumn("accepted_per_s", sql.count("*").over(Window.partitionBy(second)))


def broker_addresses(profiles: DataFrame) -> DataFrame:
    """The address of each broker, by its permanent name: as told at its last start."""
    from pyspark.sql import functions as sql

    starts = profiles.where("change = 'started'").select("broker", "at", sql.col("attributes")["address"].alias("told"))
    return starts.groupBy("broker").agg(sql.max_by("told", "at").alias("address"))


def handed_rows(tables: Past, events: DataFrame, addresses: DataFrame, since: Since) -> DataFrame:
    """A row a client and event that it was handed for the first time."""
    from pyspark.sql import functions as sql

    first = tables.deliveries.where(sql.col("mark").isin(*FIRST) | sql.col("mark").isNull())
    each = first.select("id", "broker", sql.col("at").alias("handed_at"), sql.explode("clients").alias("client"))
    each = each.where(~sql.col("client").startswith(INTERNAL))
    got = each.groupBy("id").agg(sql.count_distinct("client").alias("receivers"))
    start = sql.coalesce("published", "at") if since == "published" else sql.col("at")
    micros = sql.unix_micros("handed_at") - sql.unix_micros(start)
    ways = way_lengths(tables.hops, events, addresses)
    crossed = sql.when(sql.col("address") == sql.col("origin"), 0).otherwise(sql.col("hops"))
    matched = 100 * sql.col("receivers") / sql.greatest(sql.lit(1), sql.col("subscribers"))
    return (
        each.join(events, "id")
        .crossJoin(sql.broadcast(subscribers(tables, each)))
        .join(got, "id")
        .join(sql.broadcast(addresses), "broker", "left")
        .join(ways, ["id", "address"], "left")
        .select(
            "id", "client", "broker", "address", "handed_at", "topic", "bytes", "publisher",
            (micros / 1000).alias("ms"),
            crossed.alias("hops"),
            crossed.alias("links"),  # once more, as what is grouped by cannot be averaged too
            _band(matched, MATCH_BANDS, _SLACK).alias("match"),
            _band(sql.col("accepted_per_s"), RATE_BANDS, _SLACK).alias("rate"),
            _band(sql.col("bytes"), SIZE_BANDS).alias("size"),
        )
    )  # fmt: skip


def subscribers(tables: Past, each: DataFrame) -> DataFrame:
    """How many clients subscribed, or were handed something: one row."""
    from pyspark.sql import functions as sql

    wanted = tables.profiles.where("engine <> '' AND client_id <> ''").selectExpr("client_id AS client")
    return wanted.union(each.select("client")).agg(sql.count_distinct("client").alias("subscribers"))


def way_lengths(hops: DataFrame, events: DataFrame, addresses: DataFrame) -> DataFrame:
    """How many links each event crossed on its way to each broker that it came to."""
    from pyspark.sql import functions as sql

    copies = hops.join(sql.broadcast(addresses), "broker").select(
        "id", sql.struct("address", "went_to", "at").alias("copy")
    )
    by_event = copies.groupBy("id").agg(sql.sort_array(sql.collect_list("copy")).alias("copies"))
    return by_event.join(events.select("id", "origin"), "id").mapInArrow(_walked, _WAY_ROW)


def _walked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        found: list[tuple[str, str, int]] = []
        for row in batch.to_pylist():
            near: dict[str, list[str]] = {}
            for copy in row["copies"]:
                near.setdefault(copy["address"], []).append(copy["went_to"])
            lengths = {row["origin"]: 0}
            for at in (queue := [row["origin"]]):  # grows while it is walked
                for other in near.get(at, ()):
                    if other not in lengths:
                        lengths[other] = lengths[at] + 1
                        queue.append(other)
            found += [(row["id"], address, length) for address, length in lengths.items()]
        ids, at_, counts = zip(*found, strict=True) if found else ((), (), ())
        arrays = [pa.array(ids, pa.string()), pa.array(at_, pa.string()), pa.array(counts, pa.int32())]
        yield pa.RecordBatch.from_arrays(arrays, names=["id", "address", "hops"])


def _band(value: Column, ends: Sequence[int], slack: float = 1.0) -> Column:
    """The upper end of the band that a value is in; the last one for all above."""
    from pyspark.sql import functions as sql

    found = sql.when(value <= ends[0] * slack, ends[0])
    for end in ends[1:]:
        found = found.when(value <= end * slack, end)
    return found.otherwise(ends[-1])
