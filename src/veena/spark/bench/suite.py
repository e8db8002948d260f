"""How fast the pipeline is, always beside something plainer in the same run (`veena bench pipeline`).

Four sections: `match`, bulk matching beside the same engines in plain processes; `read`, the source beside a socket
that is read into Arrow without a broker; `archive`, Parquet beside throwing rows away; `push`, what brokers send of
their rows when they test a filter. A figure is a ratio with its bar
(`Figure`); both sides take turns and the median of the rounds counts, so that whatever else the machine does falls on
both. The answers are compared on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from veena.errors import VeenaError
from veena.event import Event
from veena.matching.base.engine import Constraint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECTIONS: Final = ("match", "read", "archive", "push")
CORES: Final = 2
#: Said before each step, for who waits.
Say = Callable[[str], None]


class WrongAnswer(VeenaError):
    """The two sides of a comparison found different things."""


@dataclass(frozen=True, slots=True)
class Load:
    """Profiles and events of one engine, drawn from a seed."""

    engine: str
    name: str
    constraint: Callable[[Random, int], Constraint]
    #: An event for this many profiles.
    event: Callable[[Random, int], Event]
    profiles: int
    events: int


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    rounds: int = 3
    #: By what sizes are divided.
    divisor: int = 1


QUICK: Final = Effort(rounds=1, divisor=10)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of `veena bench pipeline --json`."""

    section: str
    name: str
    #: The pipeline's speed as a part of the other side's.
    ratio: float
    #: What it must reach; None for a figure that is only told.
    bar: float | None
    #: Rates and whatever else explains it.
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def is_short(self) -> bool:
        return self.bar is not None and self.ratio < self.bar

    def line(self) -> dict[str, Any]:
        return {name: _rounded(value) for name, value in asdict(self).items()}


def measure(sections: tuple[str, ...], loads: list[Load], effort: Effort, say: Say) -> Iterator[Figure]:
    """Measure these sections in a session of this benchmark's own."""
    from veena.spark.launch.session import session

    say("starting Spark")
    spark = session(f"local[{CORES}]", app="veena-bench")
    spark.sparkContext.setLogLevel("ERROR")  # what it warns of is wanted here
    try:
        if "match" in sections:
            from veena.spark.bench.match import measure_match

            yield from measure_match(spark, loads, effort, say)
        if {"read", "archive"} & set(sections):
            from veena.spark.bench.read import measure_read

            yield from measure_read(spark, sections, effort, say)
        if "push" in sections:
            from veena.spark.bench.push import measure_push

            yield from measure_push(spark, effort, say)
    finally:
        spark.stop()


def taken(frame: DataFrame) -> float:
    """Seconds to compute all rows of a frame and throw them away."""
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def in_turn(rounds: int, *runs: Callable[[], float]) -> list[float]:
    """The median seconds of each, taking turns."""
    times = [[run() for run in runs] for _ in range(rounds)]
    return [median(column) for column in zip(*times, strict=True)]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
