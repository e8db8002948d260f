"""The crossing experiment for people: a table on the terminal, a picture, and plain values for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from veena.errors import ConfigError, VeenaError
from veena.sim.experiments.crossings import RATES, Line
from veena.sim.networks.baselines import JXTA_TTL

COLUMNS = (
    "interest", "events", "crossings", "optimum", "ratio", "bar", "p95", "flood", "tree", f"TTL {JXTA_TTL}", "misses",
    "refine", "thrown", "link", "twice", "vain", "missing",
)  # fmt: skip
CAPTION = (
    "Event frames over links, an event on average. ratio: sum of crossings / sum of optima, the smallest of three"
    " Steiner heuristics; bar: the most it may be; p95: of single events. flood: 2E-N+1; tree: N-1; TTL: a flood of so"
    " many hops, and the deliveries it misses; refine: to all subscribers of the row's topics, and what their clients"
    " throw away. link: the most crossings of one link by one event; twice, vain: brokers entered twice, or for nobody,"
    " in all; missing: deliveries, in all."
)
COMPUTED = "Computed from the whole topology by the rules of routing, without brokers or messages."
#: Wide enough for the tables: a narrower terminal wraps their lines, which is better than to lose digits.
WIDTH = 150
COLOURS = ("#2f7ed8", "#e8833a", "#3a9e5c", "#8a4fbf", "#c0392b", "#27313c")


def show(lines: Sequence[Line], *, computed: bool = False) -> None:
    """Print the tables, and what is worse than it may be."""
    console = Console()
    console.width = max(console.width, WIDTH)
    for table in tables(lines):
        console.print(table)
    console.print(f"{COMPUTED} {CAPTION}" if computed else CAPTION, highlight=False)
    for line in lines:
        for fault in line.faults:
            console.print(f"{line.network}, {line.interest}: {fault}", style="bold red", highlight=False)


def tables(lines: Sequence[Line]) -> list[Table]:
    """One table a network."""
    found: dict[str, Table] = {}
    for line in lines:
        table = found.get(line.network)
        if table is None:
            title = f"{line.network}: {line.brokers:,} brokers, {line.links:,} links"
            table = found[line.network] = Table(
                title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
            )
            for column in COLUMNS:
                table.add_column(column, justify="left" if column == "interest" else "right", no_wrap=True)
        table.add_row(*_cells(line), style="bold red" if line.faults else None)
    return list(found.values())


def _cells(line: Line) -> list[str]:
    def mean(total: int) -> str:
        value = total / line.events
        return f"{value:,.0f}" if value.is_integer() or value >= 1000 else f"{value:,.1f}"

    return [
        line.interest,
        str(line.events),
        mean(line.crossings),
        mean(line.optimum),
        "-" if line.ratio is None else f"{line.ratio:.3f}",
        f"{line.bar:.2f}" if line.optimum else "none",
        "-" if line.p95 is None else f"{line.p95:.2f}",
        *(mean(total) for total in (line.flooding, line.tree, line.ttl_flooding, line.ttl_missed)),
        *(mean(total) for total in (line.refinement, line.thrown_away)),
        *(str(count) for count in (line.crossings_per_link_max, line.entered_twice, line.in_vain, line.missing)),
    ]


def plain(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Rows for scripts: sums, the ratio, and what is worse than it may be."""
    return [{**asdict(line), "ratio": line.ratio, "faults": line.faults} for line in lines]


def prepare(out: Path) -> None:
    """Make the folder, and complain now about what would be missing after minutes of measuring."""
    if find_spec("matplotlib") is None:
        raise VeenaError("figures need matplotlib: pip install 'veena[plot]'")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("--out", str(out), f"cannot be made ({error.strerror})", "name another folder") from None


def draw(lines: Sequence[Line], path: Path) -> None:
    """The ratios over the match rate, and what is saved against flooding, as a PNG; needs matplotlib (extra `plot`)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    rates = [rate for rate in RATES if rate]
    left.plot(rates, [RATES[rate] for rate in rates], "_--", color="#8a93a0", markersize=14, label="most allowed")
    for number, network in enumerate(dict.fromkeys(line.network for line in lines)):
        by_rate = {f"{rate} %": rate for rate in RATES}
        own = [line for line in lines if line.network == network and line.interest in by_rate]
        colour = COLOURS[number % len(COLOURS)]
        ratios = [(by_rate[line.interest], line.ratio) for line in own if line.ratio is not None]
        left.plot(*zip(*ratios, strict=True), "o-", color=colour, label=network)
        shares = [(by_rate[line.interest], line.crossings / line.flooding) for line in own if line.flooding]
        right.plot(*zip(*shares, strict=True), "o-", color=colour, label=network)
    left.set_title("Crossings / optimum", loc="left")
    left.set_ylim(bottom=0.95)
    left.set_xscale("log")
    left.set_xticks(rates, [f"{rate}" for rate in rates])
    left.minorticks_off()
    right.set_title("Crossings / those of flooding", loc="left")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("brokers that want the event (%)")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(str(path), metadata={"Software": None})
