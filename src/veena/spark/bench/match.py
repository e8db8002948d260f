"""Bulk matching beside the same engine in plain processes, as many as cores, over the same Parquet files.

Both sides run the same function on the same batches (`bulk_match.Judge`) or, for exact topics and integers, Spark joins
and the processes look up. Engines are loaded before the clock starts on both sides; `cold_s` is Spark's first run, with
what every worker does once. What remains is what Spark costs: `overhead_us` for each event and core; `java_us` and
`python_us` say where processors spent it. Both sides end with an array of ids an event; `pairs_events_s` is Spark with
one row a pair.

What a second core brings is measured by confining both sides to one core in turn (`cores`): beside Spark's ratio
stands that of the plain processes, which is what this machine gives, as cores share caches and clock. `one_task` is
Spark with both cores and one task: faster than one core, as Java works beside it. `fixed_s` is what a query takes that
finds no events (planning, starting tasks): no core makes it shorter, so it is told and not taken away.
"""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import IO, TYPE_CHECKING, Any, Final

from veena.core.wire.section import encode_section
from veena.spark.bench.cores import Spent, can_confine, confined, java_process
from veena.spark.bench.suite import CORES, Effort, Figure, Load, Say, WrongAnswer, in_turn, taken
from veena.spark.matching.bulk import KEY, Judge, match
from veena.spark.matching.rows import RowForm
from veena.spark.matching.snapshot import Packed, Profile, ProfileSet, profile_set

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Engines that take longer than this for an event are to lose little on Spark.
DEAR_US: Final = 20.0
DEAR_BAR: Final = 0.8
CHEAP_BAR: Final = 0.5
CORES_BAR: Final = 1.6
CROSS_BAR: Final = 50.0
#: Files of the events: plain processes take one after the other, tasks too.
FILES: Final = 8
#: Events drawn; more are these again, because drawing a million would take longer than matching them.
DRAWN_MAX: Final = 100_000
#: Events of the cross join: it looks at each with every profile.
CROSS_EVENTS: Final = 200
_EXACT: Final = ("integer", "topic")


def measure_match(spark: SparkSession, loads: list[Load], effort: Effort, say: Say) -> Iterator[Figure]:
    for load in loads:
        directory = Path(tempfile.mkdtemp(prefix="veena-bench-"))
        try:
            yield from _Match(spark, load, effort, say, directory).figures()
        finally:
            shutil.rmtree(directory, ignore_errors=True)


class _Match:
    """One engine."""

    def __init__(self, spark: SparkSession, load: Load, effort: Effort, say: Say, directory: Path) -> None:
        self._spark, self._load, self._effort, self._directory = spark, load, effort, directory
        self._label = f"{load.engine} {load.name}"
        self._say = say
        self._profiles = max(load.profiles // effort.divisor, 1000)
        self._events = max(load.events // effort.divisor, 1000)

    def figures(self) -> Iterator[Figure]:
        self._say(f"{self._label}: drawing")
        random = Random(1)
        profiles = [Profile(i, self._load.engine, self._load.constraint(random, i)) for i in range(self._profiles)]
        self._write_events(random)
        chosen = profile_set(profiles)
        frame = self._spark.read.parquet(str(self._directory / "events"))
        with _Processes(self._judge(chosen), chosen, self._directory) as plain:
            yield from self._against_processes(frame, chosen, plain)
        if self._load.engine == "selector":
            yield self._against_cross_join(frame, chosen, profiles)

    def _against_processes(self, frame: DataFrame, chosen: ProfileSet, plain: _Processes) -> Iterator[Figure]:
        self._say(f"{self._label}: Spark and {CORES} processes")
        cold = taken(match(frame, chosen, as_arrays=True))
        unfolding = time.perf_counter()
        found = match(frame, chosen).count()
        unfolding = time.perf_counter() - unfolding
        if found != plain.pairs():
            raise WrongAnswer(f"{self._label}: {found:,} pairs on Spark, {plain.pairs():,} in plain processes")
        alone_us = plain.engine_us()
        is_dear = alone_us >= DEAR_US
        spent = Spent()

        def run() -> float:
            with spent.counted(java_process(self._spark)):
                return taken(match(frame, chosen, as_arrays=True))

        runs = [run, plain.seconds]
        if is_dear:
            runs += self._on_one_core(frame, chosen, plain)
        on_spark, in_processes, *on_one = in_turn(self._effort.rounds, *runs)
        a_row = 1e6 / (self._events * spent.runs)
        yield Figure(
            "match", self._label, in_processes / on_spark, DEAR_BAR if is_dear else CHEAP_BAR,
            {
                "profiles": self._profiles, "events": self._events, "pairs": found, "engine_us": alone_us,
                "spark_events_s": self._events / on_spark, "processes_events_s": self._events / in_processes,
                "overhead_us": (on_spark - in_processes) * CORES / self._events * 1e6, "cold_s": cold,
                "pairs_events_s": self._events / unfolding,
                "java_us": spent.java_s * a_row, "python_us": spent.python_s * a_row,
            },
        )  # fmt: skip
        if on_one:
            spark_one, *plain_one = on_one
            nothing = frame.where("offset < 0")
            fixed = in_turn(self._effort.rounds, lambda: taken(match(nothing, chosen, as_arrays=True)))[0]
            detail = {
                "one_events_s": self._events / spark_one,
                "two_events_s": self._events / on_spark,
                "fixed_s": fixed,
            }
            if plain_one:
                one_task = taken(match(frame.coalesce(1), chosen, as_arrays=True))
                detail |= {"processes_ratio": plain_one[0] / in_processes, "one_task_events_s": self._events / one_task}
            yield Figure("match", f"{self._label}, 1 to {CORES} cores", spark_one / on_spark, CORES_BAR, detail)

    def _on_one_core(self, frame: DataFrame, chosen: ProfileSet, plain: _Processes) -> list[Callable[[], float]]:
        """The same on one core: both sides where that can be done, else one task."""
        if not can_confine():
            return [lambda: taken(match(frame.coalesce(1), chosen, as_arrays=True))]

        def on_spark() -> float:
            with confined([java_process(self._spark)]):
                return taken(match(frame, chosen, as_arrays=True))

        def in_processes() -> float:
            with confined(plain.ids()):
                return plain.seconds()

        return [on_spark, in_processes]

    def _against_cross_join(self, frame: DataFrame, chosen: ProfileSet, profiles: list[Profile]) -> Figure:
        """Every event with every profile and the condition as SQL, on a sample of the events."""
        self._say(f"{self._label}: cross join")
        few = frame.limit(CROSS_EVENTS).repartition(CORES).cache()
        table = self._spark.createDataFrame([_sql_row(profile) for profile in profiles], _SQL_ROW).cache()
        crossed = few.join(table, _sql_condition(), "inner").select(*KEY, "profile_id")
        pairs, expected = crossed.count(), match(few, chosen).count()
        if pairs != expected:
            raise WrongAnswer(f"{self._label}: {pairs:,} pairs by the cross join, {expected:,} by the engine")
        crossing, matching = in_turn(self._effort.rounds, lambda: taken(crossed), lambda: taken(match(frame, chosen)))
        few.unpersist()
        table.unpersist()
        rates = {"cross_join_events_s": CROSS_EVENTS / crossing, "spark_events_s": self._events / matching}
        ratio = rates["spark_events_s"] / rates["cross_join_events_s"]
        return Figure("match", f"{self._label} to a cross join", ratio, CROSS_BAR, rates)

    def _judge(self, chosen: ProfileSet) -> Judge:
        """What a plain process runs."""
        engine = self._load.engine
        form = RowForm(engine not in _EXACT, (engine if engine in _EXACT else "section",), frozenset())
        return Judge(chosen.name, (engine,), _Nothing(), form, KEY, KEY, "ids", 0)

    def _write_events(self, random: Random) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        drawn = [self._load.event(random, self._profiles) for _ in range(min(self._events, DRAWN_MAX))]
        share = -(-self._events // FILES)
        (self._directory / "events").mkdir()
        columns: dict[str, list[Any]] = {
            "section": [encode_section(event) for event in drawn],
            "topic": [event.topic for event in drawn],
            "integer": [event.integer for event in drawn],
            **{name: [event.properties.get(name) for event in drawn] for name in (*"abcd", "sym", "note")},
        }
        for number in range(FILES):
            at = range(number * share, min((number + 1) * share, self._events))
            rows = {name: [column[i % len(drawn)] for i in at] for name, column in columns.items()}
            table = pa.table(
                {"broker": ["b"] * len(at), "offset": list(at), **rows, "to": pa.nulls(len(at), pa.list_(pa.string()))},
            )
            pq.write_table(table.cast(_EVENTS(table.schema)), self._directory / "events" / f"{number}.parquet")


def _EVENTS(schema: Any) -> Any:  # noqa: N802
    """The schema with types where a column is all null."""
    import pyarrow as pa

    kinds = {"topic": pa.string(), "integer": pa.int64(), "sym": pa.string(), "note": pa.string()}
    kinds |= {name: pa.float64() for name in "abcd"}
    return pa.schema([(each.name, kinds.get(each.name, each.type)) for each in schema])


class _Nothing:
    """In a plain process the engines are there already."""

    @property
    def value(self) -> Packed:
        raise AssertionError("nobody asks")


#: A selector of the workloads as a row: its kind, texts and bounds.
_SQL_ROW: Final = "profile_id bigint, kind int, one string, other string, low array<double>, high array<double>"
_KINDS: Final = ("sym = ", "(sym = ", "sym LIKE ", "sym IN ", "note IS NOT NULL", "a BETWEEN ")


def _sql_row(profile: Profile) -> tuple[int, int, str, str, list[float], list[float]]:
    text = profile.condition[1]  # type: ignore[index]
    assert isinstance(text, str)
    kind = next(number for number, start in enumerate(_KINDS) if text.startswith(start))
    texts = [*re.findall("'([^']*)'", text), "", ""]
    bounds = re.findall(r"BETWEEN ([\d.]+) AND ([\d.]+)", text)
    return profile.profile_id, kind, texts[0], texts[1], [float(b[0]) for b in bounds], [float(b[1]) for b in bounds]


def _sql_condition() -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    in_b = "b BETWEEN low[0] AND high[0]"
    ranges = " AND ".join(f"{name} BETWEEN low[{at}] AND high[{at}]" for at, name in enumerate("abcd"))
    return F.expr(
        f"""CASE kind WHEN 0 THEN sym = one AND a BETWEEN low[0] AND high[0]
        WHEN 1 THEN (sym = one OR sym = other) AND {in_b} WHEN 2 THEN sym LIKE one AND {in_b}
        WHEN 3 THEN sym IN (one, other, 'T1') AND {in_b} WHEN 4 THEN note IS NOT NULL AND sym = one AND {in_b}
        ELSE {ranges} END"""
    )


class _Processes:
    """Plain Python processes with the engine loaded, each told which files to match."""

    def __init__(self, judge: Judge, chosen: ProfileSet, directory: Path) -> None:
        self._task, self._directory = (judge, chosen.ids, chosen.snapshots), directory
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> _Processes:
        task = self._directory / "task.pickle"
        task.write_bytes(pickle.dumps(self._task))
        files = sorted(map(str, (self._directory / "events").glob("*.parquet")))
        for number in range(CORES):
            command = [sys.executable, "-m", "veena.spark.bench.plain_match", str(task), *files[number::CORES]]
            self._running.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
            )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            _pipe(process.stdin).close()
            process.wait()
            _pipe(process.stdout).close()

    def _ask(self, word: str) -> list[list[float]]:
        for process in self._running:
            pipe = _pipe(process.stdin)
            pipe.write(f"{word}\n".encode())
            pipe.flush()
        answers = [_pipe(process.stdout).readline().split() for process in self._running]
        if not all(answers):
            raise WrongAnswer("a plain process of the benchmark ended; its error is above")
        return [[float(word) for word in answer] for answer in answers]

    def seconds(self) -> float:
        """How long all of them take, from the word go to the last answer."""
        started = time.perf_counter()
        self._ask("match")
        return time.perf_counter() - started

    def ids(self) -> list[int]:
        return [process.pid for process in self._running]

    def pairs(self) -> int:
        return sum(int(answer[0]) for answer in self._ask("match"))

    def engine_us(self) -> float:
        """Microseconds of an event's way through the engine alone."""
        return self._ask("alone")[0][0]


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
