"""Bulk matching as a stream: events as they come, against a stored set of profiles that changes.

    query = veena.spark.match_stream(spark.readStream.format("veena")...load(), StoredProfiles(path), out)

Between two batches the store is asked for its version, and the profiles are read again when it is another one; within a
batch all events meet the same profiles, and each row names their version. A batch is one directory, `batch=N`, made
aside and put in its place by one rename, so nobody reads half of it. A batch that is done again after a crash takes the
place of what it had left: with Spark's checkpoint every event is matched once, whatever was killed (`kill -9` too).

A wrong profile ends the query, or with `on_error="skip"` goes to `_rejected/batch=N`, which is no data for Spark.
Rejected: Spark's own file sink behind a fixed plan. It writes once, too, but its profiles stay those of the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veena.errors import PipelineError
from veena.spark.matching.bulk import KEY, match
from veena.spark.matching.profiles import ProfileStore
from veena.spark.matching.snapshot import ProfileSet, profile_set

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Unless another trigger is asked for: often enough to be looked at, seldom enough that a batch has something to do.
TRIGGER: Final = {"processingTime": "1 second"}
#: Beside the batches; names that begin so are no data for Spark.
_CHECKPOINT: Final = "_checkpoint"
_PENDING: Final = "_pending"
_REJECTED: Final = "_rejected"


def match_stream(
    events: DataFrame,
    profiles: ProfileStore,
    out: str,
    *,
    key: Sequence[str] = KEY,
    on_error: str = "raise",
    checkpoint: str | None = None,
    trigger: Mapping[str, Any] = TRIGGER,
) -> StreamingQuery:
    """Match a stream of events and write the pairs to `out`; started, and gone on with, where its checkpoint is.

    `out` gets the columns of `key`, `profile_id`, `version` and `batch`; `checkpoint` is a directory in it unless it is
    given. `trigger` is what `DataStreamWriter.trigger` takes.
    """
    if not events.isStreaming:
        raise PipelineError("events that do not stream: use match, or spark.readStream")
    place = checkpoint or f"{out}/{_CHECKPOINT}"
    _check_pair(out, place)
    batch = _Batches(profiles, out, tuple(key), on_error)
    writer = events.writeStream.foreachBatch(batch).option("checkpointLocation", place).queryName("veena match")
    return writer.trigger(**trigger).start()


def _check_pair(out: str, checkpoint: str) -> None:
    """Batches of another checkpoint would be written over by those of this one."""
    if "://" in out or "://" in checkpoint:
        return
    if any(Path(out).glob("batch=*")) and not (Path(checkpoint) / "metadata").exists():
        raise PipelineError(f"{out} holds the matches of another stream: name its checkpoint, or an empty directory")


class _Batches:
    """What is done with each batch, in the driver."""

    def __init__(self, store: ProfileStore, out: str, key: tuple[str, ...], on_error: str) -> None:
        self._store, self._out, self._key, self._on_error = store, out, key, on_error
        self._version: str | None = None
        self._profiles: ProfileSet | None = None

    def __call__(self, events: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        profiles, spark = self._current(events.sparkSession), events.sparkSession
        name = f"batch={number}"
        pairs = match(events, profiles, key=self._key).withColumn("version", F.lit(self._version))
        self._put(spark, name, f"{self._out}/{name}", pairs)
        if profiles.rejected:
            rejected = profiles.rejected_frame(spark).withColumn("version", F.lit(self._version))
            self._put(spark, f"{_REJECTED}-{name}", f"{self._out}/{_REJECTED}/{name}", rejected)

    def _current(self, spark: SparkSession) -> ProfileSet:
        """The profiles as they are stored now."""
        version = self._store.version()
        if self._profiles is None or version != self._version:
            fresh = profile_set(self._store.load(spark), self._on_error)
            # Changed while it was read: the next batch finds another version and reads again.
            if self._profiles is not None:
                self._profiles.release()
            self._profiles, self._version = fresh, version
        return self._profiles

    def _put(self, spark: SparkSession, name: str, place: str, frame: DataFrame) -> None:
        pending = f"{self._out}/{_PENDING}/{name}"
        frame.write.mode("overwrite").parquet(pending)
        _replace(spark, pending, place)


def _replace(spark: SparkSession, pending: str, place: str) -> None:
    """Put a directory in the place of another, in whatever file system it is."""
    java: Any = spark._jvm
    assert java is not None, "a driver with a Java of its own"
    path: Callable[[str], Any] = java.org.apache.hadoop.fs.Path
    system = path(place).getFileSystem(spark._jsc.hadoopConfiguration())
    system.delete(path(place), True)
    system.mkdirs(path(place).getParent())
    if not system.rename(path(pending), path(place)):
        raise PipelineError(f"{pending}: cannot be put in the place of {place}; does this file system rename?")
