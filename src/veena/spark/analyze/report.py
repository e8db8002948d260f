"""An analysis for people: tables on the terminal, pictures, and one page that asks nothing of any other host."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veena.spark.analyze.analyze import Analysis, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Tables that are worth a terminal's lines; the page has all.
ON_SCREEN = ("match", "size", "hops", "topics", "subscribers", "links", "marks")
#: Wide enough for the tables: a narrower terminal wraps their lines, which is better than to lose digits.
WIDTH = 120
ON_PAGE = ("match", "size", "hops", "cells", "topics", "subscribers", "links", "units", "marks")
_BLUE, _GREY, _ORANGE = "#2f7ed8", "#8a93a0", "#e8833a"
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1d2733}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;border-bottom:1px solid #dde3ea;text-align:right}
td:first-child,th:first-child{text-align:left}img{max-width:100%;height:auto}dl{display:grid;
grid-template-columns:repeat(auto-fill,minmax(11rem,1fr));gap:.6rem}dt{color:#5b6875;font-size:.85em}dd{margin:0;
font-size:1.3em}"""


def write(analysis: Analysis, out: Path) -> list[Path]:
    """`analysis.json`, the pictures and `analysis.html`, in this directory."""
    out.mkdir(parents=True, exist_ok=True)
    data = out / "analysis.json"
    data.write_text(json.dumps(analysis.plain(), indent=1, default=str) + "\n", encoding="utf-8")
    pictures = [out / f"{name}.png" for name in ("latency", "throughput", "load")]
    for draw, path in zip((_draw_latency, _draw_throughput, _draw_load), pictures, strict=True):
        draw(analysis, path)
    page = out / "analysis.html"
    page.write_text(page_of(analysis, pictures), encoding="utf-8")
    return [data, *pictures, page]


def show(analysis: Analysis) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Shown

    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(_headline(analysis), highlight=False)
    if analysis.summary["before_their_event"]:
        console.print(_warning(analysis), style="yellow", highlight=False)
    for name in ON_SCREEN:
        table = analysis.tables[name]
        shown = Shown(title=table.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for number, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in table.rows:
            shown.add_row(*map(_cell, row))
        if table.rows:
            console.print(shown)


def page_of(analysis: Analysis, pictures: list[Path]) -> str:
    """The page, with its pictures inside."""
    facts = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in _facts(analysis)
    )
    images = "".join(
        f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
        for path in pictures
    )
    tables = "".join(_table(analysis.tables[name]) for name in ON_PAGE if analysis.tables[name].rows)
    warning = f"<p><b>{html.escape(_warning(analysis))}</b></p>" if analysis.summary["before_their_event"] else ""
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Veena: analysis</title><style>{_STYLE}</style>
<h1>Analysis</h1><p>{html.escape(_headline(analysis))}</p>{warning}<dl>{facts}</dl>{images}{tables}
</html>
"""


def _headline(analysis: Analysis) -> str:
    told = analysis.summary
    latency = told["latency_ms"]
    if not told["deliveries"]:
        return f'{told["events"]:,} events, and no delivery on record: brokers note them with records = "deliveries"'
    return (
        f"{told['events']:,} events from {told['publishers']:,} publishers were handed to {told['clients']:,} clients"
        f" {told['deliveries']:,} times; latency since {told['latency_since']}: mean {latency['mean']:,.2f} ms,"
        f" p50 {latency['p50']:,.2f}, p99 {latency['p99']:,.2f}"
    )


def _warning(analysis: Analysis) -> str:
    count = analysis.summary["before_their_event"]
    return f"{count:,} deliveries are older than their event: clocks differ; try --since accepted"


def _facts(analysis: Analysis) -> list[tuple[str, str]]:
    told = analysis.summary
    names = ("first", "last", "seconds", "events_per_s", "events_per_s_max", "deliveries_per_s", "bytes", "brokers")
    facts = [(name.replace("_per_s", "/s").replace("_max", ", most"), _cell(told[name])) for name in names]
    facts += [(f"latency {name}, ms", _cell(value)) for name, value in told["latency_ms"].items()]
    return [*facts, ("hops, mean", _cell(told["hops_mean"])), ("hops, most", _cell(told["hops_max"]))]


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(cell))}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<h2>{html.escape(table.title)}</h2><table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() or abs(value) >= 1000 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- pictures ---


def _axes(count: int) -> tuple[Any, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _finish(figure: Any, axes: list[Axes], path: Path) -> None:
    for each in axes:
        each.grid(alpha=0.25)
        each.spines[["top", "right"]].set_visible(False)
    figure.savefig(str(path), metadata={"Software": None})


def _draw_latency(analysis: Analysis, path: Path) -> None:
    """p50 and p99 by match rate, size and hops."""
    figure, axes = _axes(3)
    for each, name in zip(axes, ("match", "size", "hops"), strict=True):
        table = analysis.tables[name]
        rows = [row for row in table.rows if row[0] is not None]
        labels = [str(row[0]) for row in rows]
        p50, p99 = table.columns.index("p50"), table.columns.index("p99")
        each.bar(labels, [row[p99] for row in rows], color=_GREY, label="p99")
        each.bar(labels, [row[p50] for row in rows], color=_BLUE, label="p50", width=0.5)
        each.set_title(f"{table.title}, ms", loc="left", fontsize=10)
        each.set_xlabel(f"{table.columns[0]}, up to" if name != "hops" else "hops")
        if rows:
            each.legend(framealpha=1.0, fontsize=8)
    _finish(figure, axes, path)


def _draw_throughput(analysis: Analysis, path: Path) -> None:
    figure, axes = _axes(2)
    rows = analysis.tables["timeline"].rows
    seconds = [row[0] for row in rows]
    axes[0].step(seconds, [row[1] for row in rows], where="post", color=_ORANGE, label="events")
    axes[0].step(seconds, [row[2] for row in rows], where="post", color=_BLUE, label="deliveries")
    axes[0].set_title("A second", loc="left")
    axes[1].plot(seconds, [row[3] for row in rows], color=_BLUE, label="p50")
    axes[1].plot(seconds, [row[4] for row in rows], color=_GREY, label="p99")
    axes[1].set_title("Latency, ms", loc="left")
    for each in axes:
        each.set_ylim(bottom=0)
        each.set_xlabel("seconds from the first event")
        each.legend(framealpha=1.0, fontsize=8)
    _finish(figure, axes, path)


def _draw_load(analysis: Analysis, path: Path) -> None:
    """Copies over the busiest links and events of the busiest topics."""
    figure, axes = _axes(2)
    links = [(f"{row[0]} > {row[1]}", row[3]) for row in analysis.tables["links"].rows]
    topics = [(row[0], row[1]) for row in analysis.tables["topics"].rows]
    for each, title, rows in ((axes[0], "Copies over links", links), (axes[1], "Events on topics", topics)):
        each.barh([name[:40] for name, _ in rows], [count for _, count in rows], color=_BLUE)
        each.tick_params(axis="y", labelsize=7)
        each.set_title(title, loc="left")
        if rows:
            each.invert_yaxis()
    _finish(figure, axes, path)
