"""Whether a promise that was not kept is a violation, or why nothing was to be delivered.

A record may say why not: the client had it by its own word, did not read and lost it by the rule for slow clients, a
rule of access forbade it, its time to live was over. Or the subscription ended first. For that the client's own broker
is asked, since only its clock can tell: if the event came there before the end, or a later event of its stream was
handed over, it was to be delivered; if it came after the end it was not. If it never came there, a subscription that
ended soon after the event was accepted is excused, and so is one whose broker died.

What is kept for a durable subscription waits for its client: it is missing if that client was there after it came.

`verdict` decides for one promise; `judged` asks the brokers' records, on Spark, when the event came and was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from veena.spark.audit.client import FOREVER, Promise
from veena.spark.audit.facts import promises, time_text
from veena.spark.audit.hops import Copy
from veena.spark.audit.tables import Tables

#: A copy takes no longer than this from where it was accepted to a client's broker, unless something is wrong.
ON_THE_WAY_US: Final = 10_000_000
#: Who was attached so long after an event was kept for it has read it.
READING_US: Final = 5_000_000


class Verdict(Enum):
    """What a promise came to."""

    MISSING = "missing"
    #: The client has it by its own word; the record of the delivery went with its broker.
    HAD = "had"
    DENIED = "denied"
    #: The client did not read.
    DROPPED = "dropped"
    EXPIRED = "expired"
    #: The subscription ended before the event came.
    ENDED = "ended"
    #: Kept for a client that is away, or accepted too shortly before the end of the archive.
    WAITING = "waiting"


_TOLD: Final = {
    "denied": Verdict.DENIED,
    "had": Verdict.HAD,
    "dropped": Verdict.DROPPED,
    "expired": Verdict.EXPIRED,
    "withheld": Verdict.DROPPED,
}


def verdict(promise: Promise, came: int | None, sent: int | None, until: int = FOREVER) -> tuple[Verdict, str]:
    """The verdict, and for what is missing the reason. `came` is when the subscription's broker had the event, `sent`
    when it was sent there, `until` when the archive is too near its end to say."""
    event, stay = promise.event, promise.stay
    end = FOREVER if stay.ended is None else stay.ended
    if promise.told:
        return _TOLD[promise.told], ""
    if promise.overtaken_by is not None:
        return Verdict.MISSING, f"a later event of its stream was handed over: {promise.overtaken_by}"
    if event.ttl_ms is not None and (came is None or came >= event.at + event.ttl_ms * 1000):
        return Verdict.EXPIRED, ""
    if came is not None and came >= end:
        return Verdict.ENDED, ""
    if came is not None and stay.durable and not _was_there(promise, came):
        return Verdict.WAITING, ""
    if came is not None:
        if stay.durable:
            return Verdict.MISSING, "it was kept, and not handed over to a client that was there"
        return Verdict.MISSING, "it came to the client's broker and was not handed over"
    if event.at > until:
        return Verdict.WAITING, ""
    if _was_on_its_way(promise, sent, end):
        return Verdict.ENDED, ""
    if sent is not None or event.origin == stay.address:
        return Verdict.MISSING, "it was sent to the client's broker, which has no record of it"
    return Verdict.MISSING, "it never came to the client's broker"


def _was_there(promise: Promise, came: int) -> bool:
    return any(
        attached <= came < detached or detached == FOREVER or detached >= max(attached, came) + READING_US
        for attached, detached in promise.attached
    )


def _was_on_its_way(promise: Promise, sent: int | None, end: int) -> bool:
    """Whether the subscription ended before its broker can have had the event, as far as is known."""
    event, stay = promise.event, promise.stay
    if end == FOREVER:
        return False
    if sent is not None and sent >= end:
        return True
    if stay.is_crashed:  # it may have died with what had just come
        return event.origin == stay.address or sent is None or sent >= end - ON_THE_WAY_US
    return sent is None and event.origin != stay.address and end <= event.at + ON_THE_WAY_US


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
