"""The scale job for people: tables on the terminal, and a picture."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from veena.spark.scale.scale import Report

#: Wide enough for the tables: a narrower terminal wraps their lines, which is better than to lose digits.
WIDTH = 120
_BLUE, _GREY, _ORANGE = "#2f7ed8", "#8a93a0", "#e8833a"


def show(report: Report) -> None:
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(
        f"{report.network}: {report.brokers:,} brokers, {report.links:,} links, {report.levels} levels", style="bold"
    )
    for table in tables(report):
        console.print(table)


def tables(report: Report) -> list[Table]:
    paths = _table("Hops between two brokers", "apart", "pairs", "mean", "most")
    for path in report.paths:
        paths.add_row(path.apart, f"{path.pairs:,}", f"{path.hops_mean:.2f}", f"{path.hops_max:,}")
    crossings = _table(
        "Copies over links, an event (flooding: 2E - N + 1)",
        "interest", "events", "brokers that want it", "copies", "flooding", "saved", "hops", "most", "twice",
    )  # fmt: skip
    for line in report.crossings:
        crossings.add_row(
            line.interest, f"{line.events}", _short(line.wanting_mean), _short(line.crossings_mean),
            _short(line.flooding / line.events), "-" if line.saved is None else f"{line.saved:,.1f} x",
            "-" if line.hops_mean is None else f"{line.hops_mean:.1f}", f"{line.hops_max}", f"{line.entered_twice}",
        )  # fmt: skip
    loads = _table(
        "Copies that controllers send, an event", "interest", "controllers of", "count", "mean", "most", "flooding"
    )
    for load in (load for load in report.loads if load.copies_max):
        loads.add_row(
            load.interest, load.controllers, f"{load.count:,}", f"{load.copies_mean:.3f}", f"{load.copies_max:.2f}",
            f"{load.flooding_max}",
        )  # fmt: skip
    state = _table(
        f"What is known of a unit (a broker that knew all: {report.profiles:,} profiles, {report.links:,} links)",
        "unit", "count", "controllers", "links inside", "most", "profiles kept", "most ",
    )  # fmt: skip
    for row in report.state:
        state.add_row(
            row.unit, f"{row.count:,}", f"{row.controllers_mean:.1f}", _short(row.links_mean), f"{row.links_max:,}",
            _short(row.profiles_mean), f"{row.profiles_max:,}",
        )  # fmt: skip
    return [paths, crossings, loads, state]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:,.1f}"


def draw(report: Report, path: Path) -> None:
    """Copies beside those of flooding, hops by distance, and stored profiles by level, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{report.network}: {report.brokers:,} brokers, {report.links:,} links", x=0.01, ha="left")
    copies, hops, state = figure.subplots(1, 3)
    names = [line.interest for line in report.crossings]
    copies.barh(names, [line.flooding / line.events for line in report.crossings], color=_GREY, label="flooding")
    copies.barh(names, [line.crossings_mean for line in report.crossings], color=_BLUE, label="here", height=0.5)
    copies.set_xscale("symlog")
    copies.invert_yaxis()
    copies.set_title("Copies over links, an event", loc="left")
    copies.legend(framealpha=1.0, fontsize=8)
    shown = [line for line in report.paths if line.apart != "the same broker"]
    hops.barh([line.apart for line in shown], [line.hops_max for line in shown], color=_GREY, label="most")
    hops.barh([line.apart for line in shown], [line.hops_mean for line in shown], color=_BLUE, label="mean", height=0.5)
    hops.invert_yaxis()
    hops.set_title("Hops between two brokers", loc="left")
    hops.legend(frameon=False, fontsize=8)
    units = [row.unit for row in report.state]
    state.barh([*units, "whole system"], [*(row.profiles_mean for row in report.state), report.profiles], color=_ORANGE)
    state.set_xscale("symlog")
    state.invert_yaxis()
    state.set_title("Profiles that a controller keeps", loc="left")
    for axes in (copies, hops, state):
        axes.grid(alpha=0.25, axis="x")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(str(path), metadata={"Software": None})
