"""Where copies went: units that were entered in vain (I2), and how far an event came that did not arrive.

A unit is entered in vain when no client in it wanted the event when the copy came, and it is not on the way to one
that did. Units are looked at from the served ones backwards: a crossing is justified when it enters a unit that
somebody in it wants, or one that a justified crossing leaves. Clocks of brokers are not compared for that.

Above the super-cluster digests decide, which are wider than the truth: copies that were sent for such units alone are
told apart. So are those of the time around a crash: others do not know at once what went with a broker, and when it
comes back it takes everybody to want everything until it has heard of them. And so are copies for a unit that wants
the event that did not go on from where they came to, since a relay died or a link was suspected: another way was taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from veena.address import Unit, parse_address
from veena.core.interest.digest import DIGEST_LEVEL
from veena.spark.audit.tables import INTERNAL, Tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Brokers' clocks may differ so much; and copies go on for so long after a subscription has ended.
SKEW_US: Final = 1_000_000
WITHDRAWN_US: Final = 5_000_000
#: For so long after a restart a broker may not have heard what others want.
UNHEARD_US: Final = 30_000_000
_MAX_FANOUT: Final = 256

#: Why a unit was entered in vain.
DIGEST: Final = "a digest let it through"
UNHEARD: Final = "a broker had died or just come back, and it was not known who wants what"
TURNED: Final = "it was on its way to a unit that wants it, and went there another way"
ASTRAY: Final = "no client in it wanted the event, and it is not on the way to one that did"

#: What is known of an event: who wants it where since when (0), a copy (1), that it is in the archive (2), a reply (3).
_ROWS: Final = {
    "id": "string", "kind": "int", "address": "string", "at": "bigint", "text": "string", "level": "int",
    "units": "array<string>", "broker": "string",
}  # fmt: skip
_FOUND: Final = "id string, unit string, came_from string, went_to string, at bigint, broker string, why string"


@dataclass(frozen=True, slots=True)
class Crossing:
    """A copy that went over a link; `sender` is empty where the address of the broker is not known."""

    sender: Unit
    receiver: Unit
    level: int
    at: int
    units: tuple[Unit, ...] = ()

    def entered(self) -> list[Unit]:
        """The units that it went into, the largest first."""
        size = len(self.receiver)
        return [self.receiver[:count] for count in range(size - self.level, size + 1)]

    def left(self) -> list[Unit]:
        size = len(self.sender)
        return [self.sender[:count] for count in range(size - self.level, size + 1)] if self.sender else []


def in_vain(crossings: Sequence[Crossing], wanted: dict[Unit, int]) -> list[tuple[Crossing, Unit]]:
    """The units entered in vain; `wanted` says since when somebody in a unit wanted the event."""

    def is_wanted(unit: Unit, at: int) -> bool:
        since = wanted.get(unit)
        return since is not None and since <= at + SKEW_US

    on_the_way: dict[Unit, None] = {}
    waiting = list(crossings)
    while True:
        justified = [
            each for each in waiting if any(unit in on_the_way or is_wanted(unit, each.at) for unit in each.entered())
        ]
        if not justified:
            break
        for each in justified:
            on_the_way |= dict.fromkeys(each.left())
        waiting = [each for each in waiting if each not in justified]
    found: dict[Unit, Crossing] = {}
    for each in sorted(crossings, key=lambda crossing: crossing.at):
        for unit in each.entered():
            if unit not in on_the_way and not is_wanted(unit, each.at):
                found.setdefault(unit, each)
    return [(crossing, unit) for unit, crossing in found.items()]


def is_by_digest(crossing: Crossing, wanted: dict[Unit, int]) -> bool:
    """Whether the copy was for units that are known by digests, none of which wants it."""
    size = len(crossing.receiver)
    return bool(crossing.units) and all(
        size - len(unit) >= DIGEST_LEVEL and unit not in wanted for unit in crossing.units
    )


def is_turned(crossing: Crossing, wanted: dict[Unit, int]) -> bool:
    """Whether the copy was for a unit that wants the event: the way there changed behind it."""
    return any(unit in wanted and wanted[unit] <= crossing.at + SKEW_US for unit in crossing.units)


def wasted(
    tables: Tables,
    matched: DataFrame,
    stays: DataFrame,
    addresses: Mapping[str, str | None],
    outages: Sequence[tuple[int, int]],
) -> DataFrame:
    """Every unit entered in vain: which event, by which hop, and why (`_FOUND`)."""
    from pyspark.sql import functions as F  # noqa: N812

    # A group's subscription is kept at its home; its members want nothing by it.
    wanting = stays.where("address IS NOT NULL AND (shared = '' OR startswith(client, '~'))").select(
        "profile_id", "address", "scope", "begun", "ended"
    )
    wants = (
        matched.selectExpr("id", "at", "origin", "profile_id")
        .join(wanting, "profile_id")
        .where(f"ended IS NULL OR ended >= at - {WITHDRAWN_US}")
        .groupBy("id", "address", "origin", "scope")
        .agg(F.min(F.coalesce("begun", F.lit(0))).alias("at"))
        .selectExpr(
            "id", "0 AS kind", "address", "at", "origin AS text", "scope AS level", "NULL AS units", "'' AS broker"
        )
    )
    copies = tables.hops.selectExpr(
        "id",
        "1 AS kind",
        "went_to AS address",
        "unix_micros(at) AS at",
        "came_from AS text",
        "level",
        "units",
        "broker",
    )
    replies = f"exists(coalesce(`to`, array()), who -> startswith(who, '{INTERNAL}'))"
    known = tables.events.selectExpr(
        "id", f"IF({replies}, 3, 2) AS kind", "'' AS address", "unix_micros(at) AS at", "'' AS text", "0 AS level",
        "NULL AS units", "'' AS broker",
    )  # fmt: skip
    rows = [frame.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in _ROWS.items())) for frame in (
        wants, copies, known,
    )]  # fmt: skip
    together = reduce(lambda one, other: one.unionByName(other), rows)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _wasted(batches, dict(addresses), tuple(outages))

    return together.repartition("id").sortWithinPartitions("id", "kind").mapInArrow(judge, _FOUND)


def _wasted(
    batches: Iterator[pa.RecordBatch], addresses: Mapping[str, str | None], outages: Sequence[tuple[int, int]]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    texts = [(name, pa.string()) for name in ("id", "unit", "came_from", "went_to")]
    schema = pa.schema([*texts, ("at", pa.int64()), ("broker", pa.string()), ("why", pa.string())])
    for batch in _by_event(batches):
        found: list[dict[str, Any]] = []
        for rows in batch:
            found += _wasted_of(rows, addresses, outages)
        yield pa.RecordBatch.from_pylist(found, schema=schema)


def _by_event(batches: Iterator[pa.RecordBatch]) -> Iterator[list[list[dict[str, Any]]]]:
    """The rows of event after event, some events at a time."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        found: list[list[dict[str, Any]]] = []
        for row in batch.to_pylist():
            if rows and rows[0]["id"] != row["id"]:
                found.append(rows)
                rows = []
            rows.append(row)
        yield found
    yield [rows] if rows else []


def _wasted_of(
    rows: list[dict[str, Any]], addresses: Mapping[str, str | None], outages: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """The units that one event entered in vain. Of an event that is not in the archive nothing is known."""
    accepted = min((row["at"] for row in rows if row["kind"] == 2), default=None)
    hops = [row for row in rows if row["kind"] == 1]
    if accepted is None or not hops:
        return []
    wanted: dict[Unit, int] = {}
    for row in rows:
        if row["kind"] == 0 and _is_in_scope(row["address"], row["text"], row["level"]):
            address = _unit(row["address"])
            for size in range(1, len(address) + 1):
                wanted[address[:size]] = min(row["at"], wanted.get(address[:size], row["at"]))
    crossings = {_crossing(hop, addresses): hop for hop in hops}
    found: list[dict[str, Any]] = []
    for crossing, unit in in_vain(list(crossings), wanted):
        hop = crossings[crossing]
        is_unheard = any(accepted <= until and crossing.at >= since for since, until in outages)
        otherwise = TURNED if is_turned(crossing, wanted) else UNHEARD if is_unheard else ASTRAY
        found.append({
            "id": hop["id"], "unit": ".".join(map(str, unit)), "came_from": addresses.get(hop["broker"]),
            "went_to": hop["address"], "at": hop["at"], "broker": hop["broker"],
            "why": DIGEST if is_by_digest(crossing, wanted) else otherwise,
        })  # fmt: skip
    return found


def _is_in_scope(address: str, origin: str, scope: int) -> bool:
    parts = origin.split(".")
    size = len(parts) - scope
    return size <= 0 or address.split(".")[:size] == parts[:size]


def _crossing(hop: dict[str, Any], addresses: Mapping[str, str | None]) -> Crossing:
    sender = addresses.get(hop["broker"])
    units = tuple(map(_unit, hop["units"] or ()))
    return Crossing(_unit(sender or ""), _unit(hop["address"]), hop["level"], hop["at"], units)


def _unit(text: str) -> Unit:
    return parse_address(text, fanout=_MAX_FANOUT) if text else ()


# --- how far an event came ---


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of an event: from where (if that is known) to where, when, and what it was for."""

    sender: str | None
    receiver: str
    at: str
    units: tuple[str, ...]

    @property
    def hop(self) -> str:
        return f"{self.sender or '?'}>{self.receiver}"


def way(origin: str, address: str | None, copies: Sequence[Copy], is_here: bool) -> tuple[str | None, str]:
    """The hop at which an event went wrong on its way to a broker, and that in words.

    Of the copies that were for a unit that the broker is in, the one counts that came nearest to it.
    """
    if address is None:
        return None, "where the client's broker stands is not in the archive"
    if origin == address:
        return None, f"accepted at {origin}, the client's own broker"
    on_the_way = [each for each in copies if any(f"{address}.".startswith(f"{unit}.") for unit in each.units)]
    target = address.split(".")
    nearest = max(on_the_way, key=lambda each: (_shared(each.receiver.split("."), target), each.at), default=None)
    if nearest is None:
        return None, f"accepted at {origin}; no copy went from there towards {address}"
    if nearest.receiver == address:
        after = "not handed over there" if is_here else "no record of it there"
        return nearest.hop, f"hop {nearest.hop} at {nearest.at} brought it to the client's broker; {after}"
    where = f"it came as far as {nearest.receiver} (hop {nearest.hop} at {nearest.at})"
    return nearest.hop, f"{where}; no copy went on to {address}"


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
