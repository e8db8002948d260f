"""One bulk match from files to files: `veena pipeline match`.

OUT/matches/    broker, offset, profile_id; or counts/: profile_id, events
OUT/profiles/   who is behind a profile_id, where the profiles came from an archive
OUT/rejected/   profiles that were left out, where that was asked for
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veena.errors import PipelineError
from veena.spark.matching.bulk import match
from veena.spark.matching.profiles import StoredProfiles
from veena.spark.matching.snapshot import ProfileSet, profile_set

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How a condition is written for people, in the table of who is behind a profile.
_WHO: Final = ("profile_id", "client_id", "broker", "session", "subscription", "engine", "condition")


@dataclass(frozen=True, slots=True)
class MatchReport:
    """What `veena pipeline match --json` prints."""

    events: int
    profiles: int
    rejected: int
    #: Events with a profile that they satisfy.
    pairs: int
    #: Profiles that some event satisfies.
    matched_profiles: int
    seconds: float
    out: str


def run_match(
    spark: SparkSession,
    events: DataFrame,
    stored: StoredProfiles,
    out: Path,
    *,
    key: tuple[str, ...],
    counts: bool = False,
    on_error: str = "raise",
) -> MatchReport:
    """Match these events with these profiles and write what was found to an empty directory."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PipelineError(f"{out}: not an empty directory; name another one, or remove what is there")
    started = time.monotonic()
    loaded = stored.load(spark)
    profiles = profile_set(loaded, on_error)
    pairs = match(events, profiles, key=key)
    if counts:
        _counts(spark, pairs, profiles).write.parquet(str(out / "counts"))
        summary = spark.read.parquet(str(out / "counts")).selectExpr("sum(events)", "count_if(events > 0)")
    else:
        pairs.write.parquet(str(out / "matches"))
        summary = spark.read.parquet(str(out / "matches")).selectExpr("count(*)", "count(distinct profile_id)")
    found, matched = summary.collect()[0]
    if not isinstance(loaded, list) and set(_WHO) <= set(loaded.columns):
        loaded.select(*_WHO).coalesce(1).write.parquet(str(out / "profiles"))
    if profiles.rejected:
        profiles.rejected_frame(spark).coalesce(1).write.parquet(str(out / "rejected"))
    return MatchReport(
        events.count(),
        len(profiles),
        len(profiles.rejected),
        found or 0,
        matched,
        time.monotonic() - started,
        str(out),
    )


def _counts(spark: SparkSession, pairs: DataFrame, profiles: ProfileSet) -> DataFrame:
    """How many events satisfy each profile, those that none does with them."""
    import pyarrow as pa

    everybody = spark.createDataFrame(pa.table({"profile_id": pa.array(profiles.ids, pa.int64())}))
    counted = pairs.groupBy("profile_id").count()
    return everybody.join(counted, "profile_id", "left").selectExpr("profile_id", "coalesce(count, 0L) AS events")
