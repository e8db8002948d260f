"""The matching benchmark for people: a table on the terminal, a plot in a file, and the machine it was run on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from veena.bench.matching.measure import Result
from veena.errors import VeenaError

COLUMNS = ("workload", "size", "hits %", "match", "scan", "ratio", "mask", "add/rem", "bytes")


class PlotMissing(VeenaError):
    """Figures need matplotlib."""


def table(results: list[Result]) -> Table:
    """Narrow enough for 80 columns; times are microseconds an event, or a change."""
    shown = Table(title=machine(), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column == "workload" else "right", no_wrap=True)
    for result in results:
        shown.add_row(
            f"{result.engine} {result.workload}", short(result.profiles), brief(result.match_rate * 100),
            compact(result.us_per_event),
            compact(result.scan_us_per_event) + ("*" if result.scan_profiles < result.profiles else ""),
            compact(result.ratio_to_scan), compact(result.mask_us_per_event),
            f"{_rough(result.add_us)}/{_rough(result.remove_us)}", f"{result.bytes_per_profile:.0f}",
        )  # fmt: skip
    notes = ["microseconds, garbage collector off; size: profiles; mask: destinations only"]
    if any(result.scan_profiles < result.profiles for result in results):
        notes.append("* timed on a part of the profiles and scaled")
    notes += [
        f"{r.engine} {r.workload}: {r.us_per_event / r.dict_us_per_event:.2g} plain dict look-ups"
        for r in results
        if r.dict_us_per_event
    ]
    notes += [
        f"{r.engine} {r.workload}: a new form {r.add_new_us:.0f} us to add, {r.add_new_collected_us:.0f} with collector"
        for r in results
        if r.add_new_us is not None and r.add_new_collected_us is not None
    ]
    shown.caption = "\n".join(notes)
    shown.caption_justify = "left"
    return shown


def brief(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:.3g}" if value < 99.95 else f"{value:.0f}"


def _rough(value: float) -> str:
    """Two digits, and more only before the point."""
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"


def compact(value: float) -> str:
    """As `brief`, with `k` for thousands and `M` for millions: at most five characters."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= 0.9995 * size:
            return brief(value / size) + letter
    return brief(value)


def short(number: int) -> str:
    """`100k`, `1M`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number % size == 0:
            return f"{number // size}{letter}"
    return str(number)


def machine() -> str:
    """CPU and versions, in one line for tables and figures."""
    packages = []
    for package in ("numpy", "lxml"):
        try:
            packages.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"{cpu_name()}, Python {platform.python_version()}, {', '.join(packages)}"


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def pyplot() -> Any:
    """matplotlib without a screen; raise PlotMissing with what to install."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise PlotMissing("figures need matplotlib: pip install 'veena[plot]'") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def plot(results: list[Result], file: Path) -> None:
    """Engine and scan side by side, one pair of bars a run, on a logarithmic axis."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(10, 1.5 + 0.45 * len(results)))
    rows = range(len(results))
    axes.barh([row - 0.27 for row in rows], [r.scan_us_per_event for r in results], 0.25, label="scan", color="0.7")
    axes.barh(rows, [r.us_per_event for r in results], 0.25, label="match", color="C0")
    axes.barh(
        [row + 0.27 for row in rows], [r.mask_us_per_event for r in results], 0.25, label="destinations", color="C2"
    )
    axes.set_yticks(list(rows), [f"{r.engine} {r.workload}\n{r.profiles:,}" for r in results], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("microseconds an event")
    axes.invert_yaxis()
    axes.legend()
    axes.set_title(machine(), fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    plt.close(figure)
