"""What the GES paper prints of this experiment, next to ours: its machines, its cells, its trends (EXP-02, EXP-09..16).

The papers' heights are those of a network of 333 MHz machines, ours those of one machine that is all brokers and
clients at once: the shapes compare. Trends are rank correlations (Spearman): their sign is the claim.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import log
from statistics import fmean, geometric_mean
from typing import Any

from veena import __version__
from veena.bench.latency.cells import spearman
from veena.bench.latency.experiment import Row
from veena.bench.matching.report import cpu_name


@dataclass(frozen=True, slots=True)
class Printed:
    """One printed cell; None where the paper has no number."""

    match_percent: int
    per_second: float
    size: int
    mean_ms: float | None = None
    variance_ms2: float | None = None
    throughput: float | None = None


#: In the order of the paper. Match 25 %: the size is printed once as 350 bytes, once as 400; 5 %: the variance alone.
PRINTED = (
    Printed(100, 1, 50, 15.54, 2.3684, 1),
    Printed(100, 952, 450, 391.85, 69_713.93, 78),
    Printed(100, 492, 75, throughput=480.76),
    Printed(50, 20, 50, 13.02, 56.8196),
    Printed(50, 952, 350, 178.66, 14_634),
    Printed(25, 20, 50, 14.40, 0.24),
    Printed(25, 961, 400, 66.6, 587.04),
    Printed(10, 20, 50, 14.40, 0.44),
    Printed(10, 952, 400, 52.0, 103),
    Printed(5, 877, 450, variance_ms2=133.76),
)

THEIR_ENVIRONMENT = {
    "brokers": "22 Sun SPARC Ultra-5, 333 MHz, 128 MB, one a broker",
    "publisher and measuring subscriber": "one Sun SPARC Ultra-5",
    "other subscribers": "one Sun SPARC Ultra-60, 360 MHz, 512 MB",
    "runtime": "Solaris, JDK 1.2.1, native threads, JIT",
}


def our_environment(brokers: int, clients: int) -> dict[str, str]:
    machine = f"{cpu_name()}, {os.cpu_count()} cores, {platform.system()}"
    return {
        "brokers": f"{brokers} processes on one machine: {machine}",
        "publisher and measuring subscriber": "one process there",
        "other subscribers": f"one process there, of {clients} clients in all",
        "runtime": f"veena {__version__}, {platform.python_implementation()} {platform.python_version()}",
    }


def nearest(printed: Printed, rows: Sequence[Row]) -> Row | None:
    """Our cell at the same match rate whose rate and size are nearest, by ratio; where nothing floods."""
    own = [row for row in rows if row.cell.match_percent == printed.match_percent and not row.cell.flooding]
    if not own:
        return None

    def distance(row: Row) -> float:
        cell = row.cell
        return abs(log(cell.per_second / printed.per_second)) + abs(log(cell.size / printed.size))

    # Rows of several measuring subscribers are equally near: the first of them is the papers'.
    return min(own, key=distance)


def beside(rows: Sequence[Row]) -> list[tuple[Printed, Row]]:
    """The papers' printed cells, each with ours."""
    return [(printed, row) for printed in PRINTED if (row := nearest(printed, rows)) is not None]


# --- trends ---


@dataclass(frozen=True, slots=True)
class Trend:
    """How a number follows another one while all else stays: the mean of the rank correlations, and their signs."""

    of: str
    over: str
    rho: float
    groups: int
    #: Series in which it rises, as the papers claim.
    rising: int

    @property
    def text(self) -> str:
        return f"{self.of} over {self.over}: rho {self.rho:+.2f}, rising in {self.rising} of {self.groups} series"


Value = Callable[[Row], float]
_OVER: dict[str, Value] = {
    "rate": lambda row: row.cell.per_second,
    "size": lambda row: row.cell.size,
    "match rate": lambda row: row.cell.match_percent,
    "hops": lambda row: row.hops,
}


def _mean(row: Row) -> float:
    assert row.latency is not None
    return row.latency.mean


def _median(row: Row) -> float:
    assert row.latency is not None
    return row.latency.p50


def _variance(row: Row) -> float:
    assert row.latency is not None
    return row.latency.variance


def trends(rows: Sequence[Row]) -> list[Trend]:
    """Of latency and variance over rate, size, match rate (EXP-16) and hops (EXP-19), where nothing floods.

    The claims are about the mean. One interruption by something else on the machine moves a mean and a variance far, so
    the median is shown too.
    """
    own = [row for row in rows if row.latency is not None and not row.cell.flooding]
    numbers = {"mean latency": _mean, "median latency": _median, "variance": _variance}
    found = [_trend(of, value, over, own) for of, value in numbers.items() for over in _OVER]
    return [trend for trend in found if trend is not None]


def _trend(of: str, value: Value, over: str, rows: Sequence[Row]) -> Trend | None:
    rhos = [rho for pairs in _series(value, over, rows) if (rho := spearman(pairs)) is not None]
    return Trend(of, over, fmean(rhos), len(rhos), sum(rho > 0 for rho in rhos)) if rhos else None


def _series(value: Value, over: str, rows: Sequence[Row]) -> list[list[tuple[float, float]]]:
    """A number over another one, in order, wherever all else is the same."""
    series: dict[tuple[float, ...], list[tuple[float, float]]] = {}
    for row in rows:
        rest = tuple(each(row) for name, each in _OVER.items() if name != over)
        series.setdefault(rest, []).append((_OVER[over](row), value(row)))
    return [sorted(pairs) for pairs in series.values()]


def rise(rows: Sequence[Row], *, flooding: bool) -> float | None:
    """How many times as long the median latency is at the highest match rate as at the lowest (EXP-21)."""
    own = [row for row in rows if row.latency is not None and row.cell.flooding is flooding]
    ratios = [pairs[-1][1] / pairs[0][1] for pairs in _series(_median, "match rate", own) if len(pairs) > 1]
    return geometric_mean(ratios) if ratios else None


# --- saturation ---


@dataclass(frozen=True, slots=True)
class Saturation:
    """The most events a second at match 100 % (EXP-14), and what became of the fastest publishing.

    Where more is asked for than is possible, the publisher is held up, so its true rate saturates too.
    """

    peak: float
    rate: float
    size: int
    fastest_asked: float
    fastest_rate: float
    fastest_throughput: float

    @property
    def ratio(self) -> float:
        return self.peak / self.rate

    @property
    def text(self) -> str:
        return (
            f"throughput: at most {self.peak:,.1f} events/s, at {self.rate:,.1f} published ({self.size} bytes): ratio"
            f" {self.ratio:.3f}; of {self.fastest_asked:,.0f}/s that were asked for {self.fastest_rate:,.1f} were"
            f" published and {self.fastest_throughput:,.1f} received. The paper: 480.76 at 492 (75 bytes): 0.977"
        )


def saturation(rows: Sequence[Row]) -> Saturation | None:
    full = [row for row in rows if row.is_throughput_shown and not row.cell.flooding and row.rate and row.throughput]
    if not full:
        return None
    peak, fastest = max(full, key=lambda row: row.throughput), max(full, key=lambda row: row.cell.per_second)
    asked = fastest.cell.per_second
    return Saturation(peak.throughput, peak.rate, peak.cell.size, asked, fastest.rate, fastest.throughput)


def report(rows: Sequence[Row], environment: dict[str, str]) -> dict[str, Any]:
    """All of it, for a file."""
    found = saturation(rows)
    return {
        "environment": {"ours": environment, "papers": THEIR_ENVIRONMENT},
        "cells": [row.plain() for row in rows],
        "papers": [{"printed": asdict(printed), "ours": row.plain()} for printed, row in beside(rows)],
        "trends": [asdict(trend) for trend in trends(rows)],
        "rise_with_match_rate": {"selective": rise(rows, flooding=False), "flooding": rise(rows, flooding=True)},
        "saturation": None if found is None else {**asdict(found), "ratio": found.ratio},
        "faults": faults(rows),
    }


def faults(rows: Sequence[Row]) -> list[str]:
    """Deliveries that are missing or wrong, and match rates that are off; a line a cell."""
    found: dict[str, None] = {}
    for row in rows:
        for fault in row.faults:
            cell = row.cell
            found[f"match rate {cell.match_percent} %, {cell.per_second:g}/s of {cell.size} bytes: {fault}"] = None
    return list(found)
