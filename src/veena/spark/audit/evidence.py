"""What brokers have on record about promises that were not kept: when the event came, and when it was sent there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from veena.spark.audit.facts import promises, time_text
from veena.spark.audit.hops import Copy
from veena.spark.audit.tables import Tables
from veena.spark.audit.verdict import verdict

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_JUDGED: Final = """client string, event string, verdict string, reason string, broker string, address string,
    origin string, at bigint, came boolean"""


def judged(open_promises: DataFrame, tables: Tables, firsts: Mapping[str, str], until: int) -> DataFrame:
    """The verdict on each promise that was not kept (`_JUDGED`)."""
    from pyspark.sql import functions as F  # noqa: N812

    pair = ["event", "client"]
    homes = open_promises.selectExpr(*pair, "explode(homes) AS broker")
    # Whoever takes back or had an event does not say that it came there then.
    rows = tables.deliveries.where("mark NOT IN ('had', 'denied')")
    came = (
        _as_first(rows.selectExpr("id", "broker", "unix_micros(at) AS at"), firsts)
        .join(homes, ["event", "broker"])
        .groupBy(*pair)
        .agg(F.min("at").alias("came"))
    )
    hops = _as_first(tables.hops.selectExpr("id", "went_to AS address", "unix_micros(at) AS at"), firsts)
    sent = (
        hops.join(open_promises.select(*pair, "address"), ["event", "address"])
        .groupBy(*pair)
        .agg(F.min("at").alias("sent"))
    )
    known = open_promises.select(*pair, "packed").join(came, pair, "left").join(sent, pair, "left")

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _judged(batches, until)

    return known.mapInArrow(judge, _JUDGED)


def _as_first(frame: DataFrame, firsts: Mapping[str, str]) -> DataFrame:
    """A frame by `event`, the id under which it is judged, instead of `id`."""
    from pyspark.sql import functions as F  # noqa: N812

    if not firsts:
        return frame.withColumnRenamed("id", "event")
    names = F.broadcast(frame.sparkSession.createDataFrame(list(firsts.items()), "id string, event string"))
    return frame.join(names, "id", "left").withColumn("event", F.coalesce("event", "id")).drop("id")


def _judged(batches: Iterator[pa.RecordBatch], until: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    texts = [(name, pa.string()) for name in ("client", "event", "verdict", "reason", "broker", "address", "origin")]
    schema = pa.schema([*texts, ("at", pa.int64()), ("came", pa.bool_())])
    for batch in batches:
        found: list[dict[str, Any]] = []
        for row in batch.to_pylist():
            promise = promises.decode(row["packed"])
            said, reason = verdict(promise, row["came"], row["sent"], until)
            found.append({
                "client": row["client"], "event": row["event"], "verdict": said.value, "reason": reason,
                "broker": promise.stay.broker, "address": promise.stay.address, "origin": promise.event.origin,
                "at": promise.event.at, "came": row["came"] is not None,
            })  # fmt: skip
        yield pa.RecordBatch.from_pylist(found, schema=schema)


def copies_of(
    events: Sequence[str], tables: Tables, firsts: Mapping[str, str], addresses: Mapping[str, str | None]
) -> dict[str, list[Copy]]:
    """The copies of these events, in the order of time."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = [(each,) for each in dict.fromkeys(events)]
    wanted = F.broadcast(tables.hops.sparkSession.createDataFrame(rows, "event string"))
    copies = _as_first(tables.hops.selectExpr("id", "broker", "went_to", "units", "unix_micros(at) AS at"), firsts)
    found: dict[str, list[Copy]] = {}
    for row in copies.join(wanted, "event").orderBy("at").collect():
        copy = Copy(addresses.get(row["broker"]), row["went_to"], time_text(row["at"]), tuple(row["units"] or ()))
        found.setdefault(row["event"], []).append(copy)
    return found
