"""What a client consumed and produced, and who wanted what at a time, from an archive (DIS-07).

    history(spark, "archive", "alice", "consumed")         what alice was handed, wherever she was, in order
    profiles_as_of(spark, "archive", at)                   every subscription that stood then

A broker answers the same for itself as long as it remembers (`Store.history`); the archive does for all brokers, and
for as long as it is kept. What a rule of access took back was not consumed.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from veena.errors import PipelineError
from veena.runtime.store.audit_records import HANDED
from veena.spark.audit.client import GROUP
from veena.spark.audit.tables import Tables, lives, stays, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind = Literal["consumed", "produced"]
KINDS: Final[tuple[Kind, ...]] = ("consumed", "produced")


def history(
    spark: SparkSession,
    archive: str | Tables,
    client: str,
    kind: Kind,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """`at, broker, id, topic, publisher, mark` of a client's events, the oldest first; `since` <= at < `until`."""
    if kind not in KINDS:
        raise PipelineError(f"kind {kind!r}: use {' or '.join(map(repr, KINDS))}")
    tables = archive if isinstance(archive, Tables) else tables_of(spark, archive)
    found = _consumed(tables, client) if kind == "consumed" else _produced(tables, client)
    return _between(found, since, until).orderBy("at", "broker", "offset").drop("offset")


def _consumed(tables: Tables, client: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    mine = tables.deliveries.where(F.array_contains("clients", client))
    denied = mine.where("mark = 'denied'").select("broker", "id").distinct()
    handed = mine.where(F.col("mark").isin(*HANDED)).join(F.broadcast(denied), ["broker", "id"], "left_anti")
    topics = tables.events.select("id", "topic").join(handed.select("id"), "id", "left_semi").dropDuplicates(["id"])
    return handed.join(topics, "id", "left").select("at", "broker", "offset", "id", "topic", "publisher", "mark")


def _produced(tables: Tables, client: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return tables.events.where(F.col("publisher") == client).selectExpr(
        "at", "broker", "offset", "id", "topic", "publisher", "IF(reliable, '', 'best effort') AS mark"
    )


def _between(frame: DataFrame, since: datetime | None, until: datetime | None) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    if since is not None:
        frame = frame.where(F.col("at") >= F.lit(since))
    return frame if until is None else frame.where(F.col("at") < F.lit(until))


def profiles_as_of(spark: SparkSession, archive: str | Tables, at: datetime) -> DataFrame:
    """The subscriptions that stood at a time, with `is_acknowledged` for their scope, by client.

    What a client shares with a group is its own row; the subscription that the group keeps is none.
    """
    tables = archive if isinstance(archive, Tables) else tables_of(spark, archive)
    all_stays = stays(tables.profiles, lives(tables))
    when = round(at.timestamp() * 1_000_000)
    stood = all_stays.where(
        f"begun <= {when} AND (ended IS NULL OR ended > {when}) AND NOT startswith(client, '{GROUP}')"
    )
    return stood.selectExpr(
        "client", "broker", "address", "engine", "condition", "scope", "durable", "shared",
        "timestamp_micros(begun) AS begun", f"coalesce(active <= {when}, false) AS is_acknowledged", "attributes",
    ).orderBy("client", "begun")  # fmt: skip


def constraint_text(engine: str, condition: bytes) -> str:
    """A stored condition as people write it."""
    from veena.runtime.store.rows import unpack_condition

    given = unpack_condition(bytes(condition))
    if isinstance(given, tuple):
        first, second = given
        if engine == "selector":
            return f"{first}: {second}"
        names = second if isinstance(second, dict) else {}
        return f"{first} {' '.join(f'{prefix}={uri}' for prefix, uri in names.items())}".rstrip()
    return str(given)
