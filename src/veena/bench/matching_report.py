"""The matching benchmark for people: a table on the terminal, a plot in a file, and the machine it was run on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from veena.bench.matching import Result
from veena.errors import VeenaError

COLUMNS = ("workload", "profiles", "hits %", "match", "scan", "ratio", "mask", "add/rem", "bytes")


class PlotMissing(VeenaError):
    """Figures need matplotlib."""


def table(results: list[Result]) -> Table:
    """Narrow enough for 80 columns; times are microseconds an event, or a change."""
    shown = Table(title=machine(), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column == "workload" else "right", no_wrap=True)
    for result in results:
        shown.add_row(
            f"{result.engine} {result.workload}", short(result.profiles), f"{result.match_rate * 100:.2g}",
            brief(result.us_per_event),
            f"{result.scan_us_per_event:.0f}" + ("*" if result.scan_profiles < result.profiles else ""),
            f"{result.ratio_to_scan:.0f}", brief(result.mask_us_per_event),
            f"{result.add_us:.2g}/{result.remove_us:.2g}", f"{result.bytes_per_profile:.0f}",
        )  # fmt: skip
    notes = ["microseconds an event; mask: destinations only"]
    if any(result.scan_profiles < result.profiles for result in results):
        notes.append("* timed on a part of the profiles and scaled")
    notes += [
        f"{r.engine} {r.workload}: {r.us_per_event / r.dict_us_per_event:.2g} plain dict look-ups"
        for r in results
        if r.dict_us_per_event
    ]
    shown.caption = "\n".join(notes)
    shown.caption_justify = "left"
    return shown


def brief(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


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
