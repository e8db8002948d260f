"""The hierarchy at a million brokers: ways, copies, load of controllers and stored profiles, worked out on Spark.

The tables of routes are made once and go to every worker as a broadcast. Then there are three jobs:

- *paths*: pairs of brokers drawn by chance, a row each, walked hop by hop; grouped by the level at which the two part;
- *crossings*: events of each kind of interest, each followed through the whole network; what each controller sent is
  added up over events;
- *state*: every subscription of every broker as a row (broker, topic); level by level the distinct ones are what a unit
  wants, and what the units of one larger unit want is what its controllers keep (PPP, AGG).

Up to some thousand brokers the simulator computes ways from the same topology by code of its own, and finds the same
numbers, copy by copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from veena.address import level_name
from veena.errors import PipelineError
from veena.spark.scale.interest import Interest, Popularity, pairs, subscriptions
from veena.spark.scale.network import Ints, Shape
from veena.spark.scale.routes import Routes, path_lengths, routes, walk

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

EVENTS_MAX: Final = 100_000
PAIRS_MAX: Final = 100_000_000
#: Brokers of a task when subscriptions are drawn: some megabytes of rows.
_BROKERS_A_TASK: Final = 65_536
#: Pairs of a task: long enough to be worth a task, short enough for a bar to move.
_PAIRS_A_TASK: Final = 5_000
_EVENT_ROW: Final = (
    "kind int, event int, wanting long, crossings long, by_level array<long>, hops long, hops_max int, twice long, "
    "brokers array<int>, copies array<int>"
)


@dataclass(frozen=True, slots=True)
class PathLine:
    """Ways between brokers that part at one level; `all` together last."""

    apart: str
    pairs: int
    hops_mean: float
    hops_max: int


@dataclass(frozen=True, slots=True)
class CrossingLine:
    """What events of one interest cost; means are over events."""

    interest: str
    events: int
    wanting_mean: float
    crossings: int
    crossings_mean: float
    #: Copies over links inside clusters, between clusters, between super-clusters, ...
    by_level: tuple[int, ...]
    flooding: int
    #: Copies of a flood for each copy here.
    saved: float | None
    #: From the origin to the brokers that want the event.
    hops_mean: float | None
    hops_max: int
    #: (event, broker) with more than one copy in: must be 0.
    entered_twice: int


@dataclass(frozen=True, slots=True)
class LoadLine:
    """Copies that the controllers of one level sent, an event."""

    interest: str
    controllers: str
    count: int
    copies_mean: float
    copies_max: float
    #: What a flood asks of the busiest of them: one copy to each neighbour but one.
    flooding_max: int


@dataclass(frozen=True, slots=True)
class StateLine:
    """What there is to know of the units of one level."""

    unit: str
    count: int
    controllers_mean: float
    #: Links between its sub-units, which all brokers inside hear of.
    links_mean: float
    links_max: int
    #: Rows (sub-unit, constraint) that each of its controllers keeps.
    profiles_mean: float
    profiles_max: int


@dataclass(frozen=True, slots=True)
class Report:
    network: str
    brokers: int
    links: int
    levels: int
    #: Subscriptions in all, without repetition at a broker: what a broker would keep that knew the whole system.
    profiles: int
    paths: tuple[PathLine, ...]
    crossings: tuple[CrossingLine, ...]
    loads: tuple[LoadLine, ...]
    state: tuple[StateLine, ...]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be worked out."""

    interests: tuple[Interest, ...]
    popularity: Popularity
    events: int = 8
    pairs: int = 20_000
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.events <= EVENTS_MAX:
            raise PipelineError(f"events {self.events}: expected 1 to {EVENTS_MAX:,} an interest")
        if not 1 <= self.pairs <= PAIRS_MAX:
            raise PipelineError(f"pairs {self.pairs}: expected 1 to {PAIRS_MAX:,}")


def scale(spark: SparkSession, shape: Shape, task: Task, say: Callable[[str], None] = lambda text: None) -> Report:
    """Work all of it out."""
    say("tables of routes")
    table = routes(shape)
    shared = spark.sparkContext.broadcast(table)
    try:
        say("paths")
        found_paths = paths(spark, shared, shape, task)
        say("crossings")
        per_event = events(spark, shared, task).persist()
        found_crossings = crossing_lines(per_event, shape, task)
        say("load of controllers")
        found_loads = load_lines(per_event, shape, task)
        per_event.unpersist()
        say("stored profiles")
        total, found_state = state(spark, shared, shape, task)
    finally:
        shared.unpersist()
    return Report(
        shape.name,
        shape.brokers,
        shape.links,
        shape.levels,
        total,
        found_paths,
        found_crossings,
        found_loads,
        found_state,
    )


def paths(spark: SparkSession, shared: Broadcast[Routes], shape: Shape, task: Task) -> tuple[PathLine, ...]:
    """How long ways are, by the level at which the two brokers part."""
    import pyarrow as pa
    from pyspark.sql import functions as sql

    seed, levels = task.seed, shape.levels

    def walked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = shared.value
        for batch in batches:
            start, end = pairs(table.shape, seed, batch.column(0).to_numpy())
            apart = sum(
                (table.shape.units[size][start] != table.shape.units[size][end]) for size in range(1, levels + 1)
            )
            hops = path_lengths(table, start, end)
            yield pa.RecordBatch.from_pydict({"level": np.asarray(apart, dtype=np.int32), "hops": hops})

    parts = max(1, -(-task.pairs // _PAIRS_A_TASK))
    rows = (
        spark.range(0, task.pairs, 1, parts)
        .mapInArrow(walked, "level int, hops int")
        .groupBy("level")
        .agg(sql.count("*").alias("pairs"), sql.sum("hops").alias("hops"), sql.max("hops").alias("most"))
        .orderBy("level")
        .collect()
    )
    lines = [PathLine(_apart_name(row["level"]), row["pairs"], row["hops"] / row["pairs"], row["most"]) for row in rows]
    count = sum(row["pairs"] for row in rows)
    lines.append(PathLine("all", count, sum(row["hops"] for row in rows) / count, max(row["most"] for row in rows)))
    return tuple(lines)


def _apart_name(level: int) -> str:
    return "the same broker" if level == 0 else f"other {level_name(level - 1)}"


def events(spark: SparkSession, shared: Broadcast[Routes], task: Task) -> DataFrame:
    """A row an event of each interest, with what it cost; each task has events of all interests, so tasks are alike."""
    import pyarrow as pa

    kinds = task.interests

    def followed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = shared.value
        reach = gatekeeper_levels(table.shape)
        for batch in batches:
            for each in batch.column(0).to_pylist():
                kind, number = each % len(kinds), each // len(kinds)
                row = follow(table, reach, kinds[kind], task.seed, number)
                yield pa.RecordBatch.from_pylist([{"kind": kind, "event": number, **row}], schema=schema)

    longs, ints = pa.list_(pa.int64()), pa.list_(pa.int32())
    kinds_of_columns = {"kind": pa.int32(), "event": pa.int32(), "wanting": pa.int64(), "crossings": pa.int64()}
    kinds_of_columns |= {"by_level": longs, "hops": pa.int64(), "hops_max": pa.int32(), "twice": pa.int64()}
    schema = pa.schema({**kinds_of_columns, "brokers": ints, "copies": ints})
    return spark.range(0, task.events * len(kinds), 1, task.events).mapInArrow(followed, _EVENT_ROW)


def follow(table: Routes, reach: Ints, interest: Interest, seed: int, number: int) -> dict[str, Any]:
    """One event through the whole network: counts, and the copies that controllers sent."""
    shape = table.shape
    origin, wanting = interest.shot(shape, seed, number)
    by_level = np.zeros(shape.levels, dtype=np.int64)
    sent = np.zeros(shape.brokers, dtype=np.int32)
    entered = np.zeros(shape.brokers, dtype=np.int32)
    entered[origin] = 1
    hops = hops_max = 0
    for hop, copies in enumerate(walk(table, origin, wanting), 1):
        apart = np.zeros(len(copies.sender), dtype=np.int64)
        for size in range(1, shape.levels + 1):
            apart += shape.units[size][copies.sender] != shape.units[size][copies.receiver]
        by_level += np.bincount(apart - 1, minlength=shape.levels)
        np.add.at(sent, copies.sender, 1)
        np.add.at(entered, copies.receiver, 1)
        served = int(wanting[copies.receiver].sum())
        hops += hop * served
        hops_max = hop if served else hops_max
    busy = np.flatnonzero((sent > 0) & (reach > 0))
    return {
        "wanting": int(wanting.sum()),
        "crossings": int(by_level.sum()),
        "by_level": by_level,
        "hops": hops,
        "hops_max": hops_max,
        "twice": int((entered > 1).sum()),
        "brokers": busy.astype(np.int32),
        "copies": sent[busy],
    }


def gatekeeper_levels(shape: Shape) -> Ints:
    """The highest level of each broker's links: a controller of level l has a link of level l."""
    reach = np.zeros(shape.brokers, dtype=np.int32)
    for ends in (shape.link_a, shape.link_b):
        np.maximum.at(reach, ends, shape.link_level.astype(np.int32))
    return reach


def crossing_lines(per_event: DataFrame, shape: Shape, task: Task) -> tuple[CrossingLine, ...]:
    from pyspark.sql import functions as sql

    levels = [sql.sum(sql.col("by_level")[level]).alias(f"level_{level}") for level in range(shape.levels)]
    sums = [sql.sum(name).alias(name) for name in ("wanting", "crossings", "hops", "twice")]
    rows = (
        per_event.groupBy("kind").agg(*sums, *levels, sql.max("hops_max").alias("hops_max")).orderBy("kind").collect()
    )
    flooding = shape.flooding * task.events
    return tuple(
        CrossingLine(
            interest=task.interests[row["kind"]].text,
            events=task.events,
            wanting_mean=row["wanting"] / task.events,
            crossings=row["crossings"],
            crossings_mean=row["crossings"] / task.events,
            by_level=tuple(row[f"level_{level}"] for level in range(shape.levels)),
            flooding=flooding,
            saved=flooding / row["crossings"] if row["crossings"] else None,
            hops_mean=row["hops"] / row["wanting"] if row["wanting"] else None,
            hops_max=row["hops_max"],
            entered_twice=row["twice"],
        )
        for row in rows
    )


def load_lines(per_event: DataFrame, shape: Shape, task: Task) -> tuple[LoadLine, ...]:
    """What controllers sent, by the highest level of their links."""
    from pyspark.sql import functions as sql

    reach = gatekeeper_levels(shape)
    degree = np.bincount(np.concatenate([shape.link_a, shape.link_b]), minlength=shape.brokers)
    sent = sql.explode(sql.arrays_zip("brokers", "copies")).alias("pair")
    sums = per_event.select("kind", sent).groupBy("kind", "pair.brokers").agg(sql.sum("pair.copies").alias("copies"))
    found: Any = sums.toPandas()
    lines: list[LoadLine] = []
    for kind, interest in enumerate(task.interests):
        mine = found[found["kind"] == kind]
        brokers, copies = mine["brokers"].to_numpy(), mine["copies"].to_numpy()
        for level in range(1, shape.levels):
            count = int((reach == level).sum())
            chosen = copies[reach[brokers] == level] if len(brokers) else copies
            if count:
                lines.append(
                    LoadLine(
                        interest.text,
                        level_name(level),
                        count,
                        float(chosen.sum()) / count / task.events,
                        float(chosen.max(initial=0)) / task.events,
                        int(degree[reach == level].max()) - 1,
                    )
                )
    return tuple(lines)


def state(
    spark: SparkSession, shared: Broadcast[Routes], shape: Shape, task: Task
) -> tuple[int, tuple[StateLine, ...]]:
    """The subscriptions in all, and level by level what controllers keep."""
    from pyspark.sql import functions as sql

    wants = _subscriptions(spark, shared, shape, task).persist()
    total = wants.count()
    kept: list[tuple[float, int]] = []
    held: list[DataFrame] = []
    for size in range(shape.levels - 1, -1, -1):
        rows = wants.groupBy(f"u{size}").count()
        mean = sql.sum("count") / shape.count(size)
        found = rows.agg(mean.alias("mean"), sql.max("count").alias("most")).collect()[0]
        kept.append((float(found["mean"]), int(found["most"])))
        held.append(wants)
        wants = wants.select("topic", *(f"u{each}" for each in range(size + 1))).distinct().persist()
    for frame in (*held, wants):
        frame.unpersist()
    return total, tuple(_state_line(shape, level, *kept[level - 1]) for level in range(1, shape.levels + 1))


def _subscriptions(spark: SparkSession, shared: Broadcast[Routes], shape: Shape, task: Task) -> DataFrame:
    """Each broker's topics, each once, with the units that the broker is in."""
    import pyarrow as pa

    popularity, seed, levels = task.popularity, task.seed, shape.levels

    def drawn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        units = shared.value.shape.units
        for batch in batches:
            brokers = batch.column(0).to_numpy()
            topics = np.sort(subscriptions(popularity, seed, brokers), axis=1)
            fresh = np.ones(topics.shape, dtype=np.bool_)
            fresh[:, 1:] = topics[:, 1:] != topics[:, :-1]
            places = np.repeat(brokers, popularity.interests)[fresh.reshape(-1)]
            columns = {f"u{size}": units[size][places] for size in range(levels + 1)}
            yield pa.RecordBatch.from_pydict({"topic": topics.reshape(-1)[fresh.reshape(-1)], **columns})

    schema = ", ".join(["topic int", *(f"u{size} int" for size in range(levels + 1))])
    parts = max(1, -(-shape.brokers // _BROKERS_A_TASK))
    return spark.range(0, shape.brokers, 1, parts).mapInArrow(drawn, schema)


def _state_line(shape: Shape, level: int, profiles_mean: float, profiles_max: int) -> StateLine:
    size = shape.levels - level
    inside = shape.link_level == level - 1
    links = np.bincount(shape.units[size][shape.link_a[inside]], minlength=shape.count(size))
    gates: Sequence[int] | Ints = np.unique(
        np.concatenate([ends[shape.link_level == level] for ends in (shape.link_a, shape.link_b)])
    )
    return StateLine(
        level_name(level) if size else "network",
        shape.count(size),
        len(gates) / shape.count(size),
        float(links.mean()),
        int(links.max()),
        profiles_mean,
        profiles_max,
    )
