"""The same figures while a network runs: windows of time over streams of events and deliveries.

A delivery is joined with its event; both have a watermark, so what is remembered of either is bounded by `delay` and
LATENCY_MAX. What a batch joined is counted by window and added to what is known of that window, so a window shows after
seconds and is right when `delay` has passed. To let Spark finish windows behind the join was tried: it tells them only
LATENCY_MAX later, as a join may give rows that old.

The last windows stand in one small JSON file that is replaced as a whole, for a dashboard or any other reader:
`{"updated", "window_s", "windows": [{"start", "deliveries", "deliveries_per_s", "latency_ms": {"mean", "variance",
"p50", "p95", "p99", "max"}}]}`, the oldest first. Percentiles are within 5 %, the width of the bins in which latencies
are counted.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veena.errors import PipelineError
from veena.spark.analyze.frames import FIRST, INTERNAL
from veena.spark.launch.queries import told_briefly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

#: Windows that are kept: an hour of ten-second ones.
WINDOWS_MAX: Final = 360
#: A delivery that comes later than this after its event is not joined with it: it would have to be remembered so long.
LATENCY_MAX: Final = "10 minutes"
#: Clocks of two brokers may differ by so much.
SKEW: Final = "5 seconds"
#: Latencies are told apart by so much, from a hundredth of a millisecond up.
BIN_WIDTH: Final = 1.05
BIN_LEAST_MS: Final = 0.01
NAME: Final = "live.json"
_TIME = re.compile(r"([1-9]\d*) (second|minute|hour)s?")
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600}


class Window(msgspec.Struct):
    """What is known of one window."""

    deliveries: int = 0
    sum_ms: float = 0.0
    sum_squares: float = 0.0
    max_ms: float = -math.inf
    #: Number of a bin -> deliveries in it.
    bins: dict[int, int] = {}

    def add(self, number: int, deliveries: int, sum_ms: float, sum_squares: float, max_ms: float) -> None:
        self.deliveries += deliveries
        self.sum_ms += sum_ms
        self.sum_squares += sum_squares
        self.max_ms = max(self.max_ms, max_ms)
        self.bins[number] = self.bins.get(number, 0) + deliveries

    def quantile(self, share: float) -> float:
        """The upper end of the bin in which this share of the deliveries is reached, and no more than the largest."""
        left = share * self.deliveries
        for number in sorted(self.bins):
            left -= self.bins[number]
            if left <= 0:
                return min(self.max_ms, BIN_LEAST_MS * BIN_WIDTH ** (number + 1))
        return self.max_ms

    def plain(self, start: int, seconds: int) -> dict[str, Any]:
        mean = self.sum_ms / self.deliveries
        latency = {
            "mean": mean,
            "variance": max(0.0, self.sum_squares / self.deliveries - mean * mean),
            **{name: self.quantile(share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))},
            "max": self.max_ms,
        }
        return {
            "start": _text(datetime.fromtimestamp(start, UTC)),
            "deliveries": self.deliveries,
            "deliveries_per_s": self.deliveries / seconds,
            "latency_ms": {name: round(value, 3) for name, value in latency.items()},
        }


class Known(msgspec.Struct):
    """All windows by the second at which they start, and the last batch that is in them."""

    seconds: int
    batch: int = -1
    windows: dict[int, Window] = {}

    def add(self, batch: int, rows: Iterable[Any]) -> bool:
        """Take a batch in, unless it was before: after a crash Spark may give the last one again."""
        if batch <= self.batch:
            return False
        for row in rows:
            window = self.windows.setdefault(row["start"], Window(bins={}))
            window.add(row["bin"], row["deliveries"], row["sum_ms"], row["sum_squares"], row["max_ms"])
        for start in sorted(self.windows)[:-WINDOWS_MAX]:
            del self.windows[start]
        self.batch = batch
        return True

    def plain(self) -> dict[str, Any]:
        windows = [self.windows[start].plain(start, self.seconds) for start in sorted(self.windows)]
        return {"updated": _text(datetime.now(UTC)), "window_s": self.seconds, "windows": windows}


def joined(events: DataFrame, deliveries: DataFrame, delay: str = "10 seconds") -> DataFrame:
    """A row an event and client as it is handed out, with the time that it took since it was published."""
    from pyspark.sql import functions as sql

    seconds_of("delay", delay)
    own = events.where(~sql.col("publisher").startswith(INTERNAL)).select(
        "id", "at", sql.coalesce("published", "at").alias("published")
    )
    first = deliveries.where(sql.col("mark").isin(*FIRST) | sql.col("mark").isNull()).select(
        sql.col("id").alias("handed"), sql.col("at").alias("handed_at"), "clients"
    )
    near = f"handed = id AND handed_at >= at - INTERVAL {SKEW} AND handed_at <= at + INTERVAL {LATENCY_MAX}"
    pairs = own.withWatermark("at", delay).join(first.withWatermark("handed_at", delay), sql.expr(near))
    ms = (sql.unix_micros("handed_at") - sql.unix_micros("published")) / 1000
    return pairs.select("handed_at", sql.explode("clients").alias("client"), ms.alias("ms"))


def follow(
    rows: DataFrame,
    out: Path,
    window: str = "10 seconds",
    *,
    once: bool = False,
    trigger: str = "2 seconds",
    tell: Callable[[dict[str, Any]], None] | None = None,
) -> StreamingQuery:
    """Keep the file up to date, and `tell` the same; a query begun again with the same `out` goes on where it was."""
    from pyspark.sql import functions as sql

    seconds = seconds_of("window", window)
    checkpoint = out.absolute() / "live-checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    state = checkpoint / "windows.json"
    known = _known(state, seconds)
    bins = sql.floor(sql.log(sql.greatest(sql.col("ms"), sql.lit(BIN_LEAST_MS)) / BIN_LEAST_MS) / math.log(BIN_WIDTH))
    start = sql.floor(sql.unix_seconds("handed_at") / seconds) * seconds

    def told(batch: DataFrame, number: int) -> None:
        counted = batch.groupBy(start.alias("start"), bins.alias("bin")).agg(
            sql.count("*").alias("deliveries"),
            sql.sum("ms").alias("sum_ms"),
            sql.sum(sql.col("ms") * sql.col("ms")).alias("sum_squares"),
            sql.max("ms").alias("max_ms"),
        )
        if known.add(number, counted.collect()):
            _replace(state, msgspec.json.encode(known))
            windows = known.plain()
            _replace(out / NAME, json.dumps(windows).encode() + b"\n")
            if tell is not None:
                tell(windows)

    writer = rows.writeStream.outputMode("append").foreachBatch(told_briefly(told))
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger)).start()


def seconds_of(name: str, text: str) -> int:
    """`10 seconds`, `1 minute` as seconds."""
    given = _TIME.fullmatch(text)
    if given is None:
        raise PipelineError(f"{name} {text!r}: expected a time such as 10 seconds or 1 minute")
    return int(given.group(1)) * _SECONDS[given.group(2)]


def _known(state: Path, seconds: int) -> Known:
    if not state.exists():
        return Known(seconds, windows={})
    try:
        known = msgspec.json.decode(state.read_bytes(), type=Known)
    except msgspec.DecodeError as error:
        raise PipelineError(f"{state}: cannot be read ({error}); remove {state.parent} to begin anew") from None
    if known.seconds != seconds:
        raise PipelineError(
            f"{state}: has windows of {known.seconds} s, asked for are {seconds} s; take another --out, or that window"
        )
    return known


def _replace(path: Path, data: bytes) -> None:
    written = path.with_suffix(".tmp")
    written.write_bytes(data)
    os.replace(written, path)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
