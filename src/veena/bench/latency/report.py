"""The latency experiment for people: a table a match rate, the papers' cells beside ours, trends, and figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from veena.bench.latency import papers as latency_papers
from veena.bench.latency.experiment import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 120
CAPTION = (
    "match: per cent of the events that each subscriber wants; rate: events a second by their timestamps; bytes: the"
    " six pairs and the body on the wire; latency in milliseconds at the measuring subscriber, var in their square;"
    " events/s: at that subscriber, shown at match 100 % alone"
)
COLUMNS = (
    "match", "rate", "bytes", "at", "hops", "events", "got", "mean", "var", "min", "p50", "p99", "max", "events/s",
    "missing",
)  # fmt: skip


def show(rows: Sequence[Row], environment: dict[str, str]) -> None:
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(_cells(rows))
    console.print(CAPTION, highlight=False)
    console.print(_beside(rows))
    places = Table("", "ours", "the paper's", title="Environment", title_justify="left", box=SIMPLE_HEAD)
    for what, theirs in latency_papers.THEIR_ENVIRONMENT.items():
        places.add_row(what, environment[what], theirs)
    console.print(places)
    for trend in latency_papers.trends(rows):
        console.print(trend.text, highlight=False)
    rises = [latency_papers.rise(rows, flooding=flooding) for flooding in (False, True)]
    for rise, how in zip(rises, ("", " with flooding"), strict=True):
        if rise is not None:
            text = f"median latency at the highest match rate{how}: {rise:.2f} times that at the lowest"
            console.print(text, highlight=False)
    if (found := latency_papers.saturation(rows)) is not None:
        console.print(found.text, highlight=False)
    tallies = {row.cell: row.tally for row in rows}.values()
    faults = latency_papers.faults(rows)
    verdict = (
        f"{sum(each.expected for each in tallies):,} deliveries counted, {sum(each.missing for each in tallies):,}"
    )
    console.print(f"{verdict} missing", highlight=False, style="bold red" if faults else None)
    for fault in faults:
        console.print(fault, style="bold red", highlight=False)


def _cells(rows: Sequence[Row]) -> Table:
    table = Table(title="Latency", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        match = f"{'flooded ' if row.cell.flooding else ''}{row.cell.match_percent} %"
        latency = row.latency
        times = ["-"] * 6
        if latency is not None:
            numbers = (latency.mean, latency.variance, latency.min, latency.p50, latency.p99, latency.max)
            times = [_number(each) for each in numbers]
        shown = _number(row.throughput) if row.is_throughput_shown else ""
        table.add_row(
            match, _number(row.rate), str(row.bytes), row.place, str(row.hops), str(row.events), str(row.received),
            *times, shown, str(row.tally.missing), style="red" if row.faults else None,
        )  # fmt: skip
    return table


def _beside(rows: Sequence[Row]) -> Table:
    table = Table(title="The paper's printed cells, of its first topology", title_justify="left", box=SIMPLE_HEAD)
    columns = ("match", "printed", "mean", "var", "events/s", "ours", "mean", "var", "events/s")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for printed, row in latency_papers.beside(rows):
        theirs = (printed.mean_ms, printed.variance_ms2, printed.throughput)
        latency = row.latency
        throughput = row.throughput if printed.throughput is not None else None
        ours = (None, None, None) if latency is None else (latency.mean, latency.variance, throughput)
        table.add_row(
            f"{printed.match_percent} %", f"{printed.per_second:g}/s, {printed.size} B", *map(_number, theirs),
            f"{row.rate:.0f}/s, {row.bytes} B", *map(_number, ours),
        )  # fmt: skip
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


# --- files ---


def write(rows: Sequence[Row], environment: dict[str, str], out: Path) -> list[Path]:
    """`latency.json` and the figures, in this folder."""
    files = [out / "latency.json", out / "latency.png", out / "throughput.png"]
    files[0].write_text(json.dumps(latency_papers.report(rows, environment), indent=1) + "\n", encoding="utf-8")
    caption = f"{environment['brokers']}; {environment['runtime']}"
    _draw_latency(rows, files[1], caption)
    _draw_throughput(rows, files[2], caption)
    if len({row.hops for row in rows}) > 1:
        files.append(out / "hops.png")
        _draw_hops(rows, files[3], caption)
    return files


def _figure(width: float, height: float, rows: int, columns: int) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=True)


def _finish(figure: Any, panels: Any, path: Path, caption: str) -> None:
    for axes in panels.flat:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=7)
    figure.supxlabel(caption, fontsize=7, color="#5b6875")
    figure.savefig(str(path), metadata={"Software": None})


def _draw_latency(rows: Sequence[Row], path: Path, caption: str) -> None:
    """Mean latency at each match rate: over the rate, a line a size; and over the size, a line a rate."""
    first = rows[0].place
    shown = [row for row in rows if row.place == first and row.latency is not None and not row.cell.flooding]
    matches = sorted({row.cell.match_percent for row in shown}, reverse=True) or [100]
    figure, panels = _figure(3.6 * len(matches) + 0.6, 6.4, 2, len(matches))
    sizes, rates = _colours(row.cell.size for row in shown), _colours(row.cell.per_second for row in shown)
    for above, below, match in zip(panels[0], panels[1], matches, strict=True):
        own = [row for row in shown if row.cell.match_percent == match]
        above.set_title(f"match {match} %", loc="left", fontsize=10)
        for size in sorted({row.cell.size for row in own}):
            points = [(row.rate, row) for row in own if row.cell.size == size]
            _line(above, points, f"{size} bytes", sizes[size])
        for rate in sorted({row.cell.per_second for row in own}):
            at_rate: list[tuple[float, Row]] = [(row.bytes, row) for row in own if row.cell.per_second == rate]
            _line(below, at_rate, f"{rate:g}/s", rates[rate])
        above.set_xscale("log")
        above.set_xlabel("events/s")
        below.set_xlabel("bytes")
    _plain_log(panels[0][0])
    for axes in panels[:, 0]:
        axes.set_ylabel("mean latency (ms)")
    _finish(figure, panels, path, caption)


def _plain_log(axes: Axes) -> None:
    """A logarithmic axis of latencies, for all panels that share it, with 1, 2, 5, 10 instead of powers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _colours(keys: Iterable[float]) -> dict[float, str]:
    """One for each size or rate, the same in all panels."""
    return {key: f"C{number % 10}" for number, key in enumerate(sorted(set(keys)))}


def _line(axes: Axes, points: Sequence[tuple[float, Row]], label: str, colour: str) -> None:
    drawn = sorted((x, row.latency.mean) for x, row in points if row.latency is not None)
    # A cell that stands alone, as some of the papers' printed ones do, is a mark without a line and without a name.
    name = label if len(drawn) > 1 else None
    axes.plot([x for x, _ in drawn], [y for _, y in drawn], "o-", color=colour, markersize=3, linewidth=1, label=name)


def _draw_throughput(rows: Sequence[Row], path: Path, caption: str) -> None:
    """At match 100 %: what the measuring subscriber gets a second over what is published."""
    first = rows[0].place
    figure, panels = _figure(6, 4.4, 1, 1)
    axes = panels[0][0]
    shown = [row for row in rows if row.is_throughput_shown and row.place == first and not row.cell.flooding]
    for size in sorted({row.cell.size for row in shown}):
        points = sorted((row.cell.per_second, row.throughput) for row in shown if row.cell.size == size)
        axes.plot([x for x, _ in points], [y for _, y in points], "o-", markersize=4, label=f"{size} bytes")
    ends = [pick((row.cell.per_second for row in shown), default=1.0) for pick in (min, max)]
    axes.plot(ends, ends, "--", color="#8a93a0", linewidth=1, label="all that was asked for")
    axes.plot([492], [480.76], "*", color="#c0392b", markersize=10, label="the paper's most: 480.76")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("events/s that the publisher is asked for")
    axes.set_ylabel("received events/s, match 100 %")
    _finish(figure, panels, path, caption)


def _draw_hops(rows: Sequence[Row], path: Path, caption: str) -> None:
    """Mean latency by the brokers on the way, a line a rate, for the largest size."""
    timed = [row for row in rows if row.latency is not None and not row.cell.flooding]
    matches = sorted({row.cell.match_percent for row in timed}, reverse=True) or [100]
    figure, panels = _figure(3.6 * len(matches) + 0.6, 3.8, 1, len(matches))
    rates = _colours(row.cell.per_second for row in timed)
    for axes, match in zip(panels[0], matches, strict=True):
        own = [row for row in timed if row.cell.match_percent == match]
        size = max((row.cell.size for row in own), default=0)
        for rate in sorted({row.cell.per_second for row in own}):
            points: list[tuple[float, Row]] = [
                (row.hops, row) for row in own if row.cell.per_second == rate and row.cell.size == size
            ]
            _line(axes, points, f"{rate:g}/s", rates[rate])
        axes.set_title(f"match {match} %, {size} bytes", loc="left", fontsize=10)
        axes.set_xlabel("brokers on the way")
        axes.set_ylabel("mean latency (ms)")
        axes.set_ylim(bottom=0)
    _finish(figure, panels, path, caption)
