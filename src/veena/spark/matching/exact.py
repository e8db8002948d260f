"""Exact topics and integers by a join: no event leaves Java for them.

The snapshot of an exact engine is grouped already: each value once, with the ids of all who want it. That is the small
side of a broadcast join, one row a value with an array, and the pairs come out of the array as the last step. Joining
plain pairs instead was measured at 0.4 of the speed.

Skew. A topic that a million profiles want is one row and one array here, so no task ever gathers its profiles. What
remains is that each of its events becomes a million rows, and that those events may lie in one file, which is one
task. Where such a topic exists, its array is cut into chunks, each event becomes one small row a chunk, those are dealt
to all tasks, and only then the chunks are looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from veena.spark.matching.snapshot import ProfileSet

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

#: Engine -> the column that its value stands in, and the type of that.
EXACT: Final = {"topic": "string", "integer": "bigint"}
#: More profiles than this behind one value and its events are dealt to all tasks, in chunks of so many: 80 kB of ids,
#: some milliseconds of work. Fewer, and dealing costs more than an uneven end of the stage.
CHUNK: Final = 10_000

IDS: Final = "__veena_{}_ids"
MASK: Final = "__veena_{}_mask"
VALUE: Final = "__veena_{}"
_WANTED: Final = "__veena_{}_wanted"
_CHUNKS: Final = "__veena_{}_chunks"
_CHUNK: Final = "__veena_{}_chunk"


@dataclass(frozen=True, slots=True)
class Groups:
    """The profiles of an exact engine by value."""

    profiles: ProfileSet
    name: str
    values: list[int] | list[str]
    sizes: NDArray[np.int64]
    ids: NDArray[np.int64]
    destinations: list[int]

    @property
    def is_skewed(self) -> bool:
        return bool(len(self.sizes)) and int(self.sizes.max()) > CHUNK

    def array(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.values, pa.string() if self.name == "topic" else pa.int64())

    def small(self, spark: SparkSession, kind: str, columns: Callable[[], dict[str, pa.Array]]) -> DataFrame:
        """A table of these groups, to be broadcast: made once for all matches with the set."""
        import pyarrow as pa
        from pyspark.sql import functions as F  # noqa: N812

        made = self.profiles.frame(spark, f"{self.name} {kind}", lambda: spark.createDataFrame(pa.table(columns())))
        return F.broadcast(made)

    def joined(self, frame: DataFrame, small: DataFrame, how: str) -> DataFrame:
        wanted = _WANTED.format(self.name)
        return frame.join(small, frame[VALUE.format(self.name)] == small[wanted], how).drop(wanted)


def groups(profiles: ProfileSet, name: str) -> Groups:
    snapshot = profiles.snapshots[name]
    return Groups(
        profiles,
        name,
        cast("list[int] | list[str]", snapshot["values"]),
        cast("NDArray[np.int32]", snapshot["crowds"]).astype(np.int64),
        profiles.ids[cast("NDArray[np.int64]", snapshot["profiles"])],
        cast("list[int]", snapshot["destinations"]),
    )


def joinable(events: DataFrame, profiles: ProfileSet) -> list[str]:
    """The exact engines of the set whose values stand in columns of the frame.

    Who is addressed stands in `to` or in the section; a frame with a section and without `to` must be read by engines.
    """
    kinds = dict(events.dtypes)
    if "section" in kinds and "to" not in kinds:
        return []
    return [name for name in EXACT if name in profiles.sizes and name in kinds]


def values(events: DataFrame, names: list[str]) -> list[Column]:
    """The columns to join by, null where an event is for its addressees alone."""
    from pyspark.sql import functions as F  # noqa: N812

    found: list[Column] = []
    for name in names:
        # Character by character, whatever the column's collation; and a bigint, so that no index is cast instead.
        column = events[name].cast("bigint") if name == "integer" else F.collate(events[name], "UTF8_BINARY")
        if "to" in events.columns:
            column = F.when(F.size(events["to"]) > 0, F.lit(None)).otherwise(column)
        found.append(column.alias(VALUE.format(name)))
    return found


def with_ids(frame: DataFrame, held: Groups, how: str) -> DataFrame:
    """The frame with an array of those who want each row's value; `how` is inner or left."""

    def columns() -> dict[str, pa.Array]:
        return {_WANTED.format(held.name): held.array(), IDS.format(held.name): _lists(held.sizes, held.ids)}

    return held.joined(frame, held.small(frame.sparkSession, "ids", columns), how)


def with_dealt_ids(frame: DataFrame, held: Groups) -> DataFrame:
    """As `with_ids` and inner, with one row a chunk of profiles, dealt to all tasks."""
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812

    spark, name = frame.sparkSession, held.name
    wanted, chunk, chunks = _WANTED.format(name), _CHUNK.format(name), _CHUNKS.format(name)
    counts = -(-held.sizes // CHUNK)

    def counted() -> dict[str, pa.Array]:
        return {wanted: held.array(), chunks: pa.array(counts, pa.int64())}

    def cut() -> dict[str, pa.Array]:
        numbers = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        owners = np.repeat(np.arange(len(counts)), counts)
        sizes = np.minimum(CHUNK, held.sizes[owners] - numbers * CHUNK)
        return {
            wanted: held.array().take(pa.array(owners)),
            chunks: pa.array(numbers, pa.int64()),
            IDS.format(name): _lists(sizes, held.ids),
        }

    dealt = held.joined(frame, held.small(spark, "counts", counted), "inner").withColumn(
        chunk, F.explode(F.sequence(F.lit(0).cast("bigint"), F.col(chunks) - 1))
    )
    dealt = dealt.drop(chunks).repartition(int(spark.conf.get("spark.sql.shuffle.partitions") or 2))
    found = held.small(spark, "chunks", cut)
    condition = (dealt[VALUE.format(name)] == found[wanted]) & (dealt[chunk] == found[chunks])
    return dealt.join(found, condition, "inner").drop(wanted, chunks, chunk)


def with_masks(frame: DataFrame, held: Groups) -> DataFrame:
    """The frame with the OR of the destinations of those who want each row's value, null for nobody."""

    def columns() -> dict[str, pa.Array]:
        import pyarrow as pa

        starts = np.cumsum(held.sizes) - held.sizes
        masks = np.bitwise_or.reduceat(np.array(held.destinations, dtype=np.int64), starts)
        return {_WANTED.format(held.name): held.array(), MASK.format(held.name): pa.array(masks, pa.int64())}

    return held.joined(frame, held.small(frame.sparkSession, "masks", columns), "left")


def _lists(sizes: NDArray[np.int64], ids: NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(ids, pa.int64()))
