"""The experiment of the collaboratory for people: a table on the terminal and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from veena.bench.collaboratory.experiment import BODY, Row

CAPTION = (
    f"One application, n users in another domain, events of {BODY} bytes. Without aggregation every user's session"
    " crosses the line, with it one link between brokers does. line: what the line alone costs the average copy (delay,"
    " and sending the copies before it); copies and bytes: over the line, an event. The line is modelled: one queue"
    " with a delay and a rate. Without a rate the copies would travel side by side, and no latency would change."
)
COLOURS = {False: "#c0392b", True: "#2f7ed8"}


def show(rows: Sequence[Row]) -> None:
    console = Console()
    console.width = max(console.width, 100)
    for name in dict.fromkeys(row.line for row in rows):
        own = [row for row in rows if row.line == name]
        title = f"{name}: {own[0].delay_ms:g} ms one way, {own[0].megabits_per_second:g} Mbit/s"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        for column in ("users", "aggregation", "mean ms", "p95 ms", "line ms", "copies", "bytes", "missing"):
            table.add_column(column, justify="left" if column == "aggregation" else "right", no_wrap=True)
        for row in own:
            table.add_row(
                str(row.clients), "yes" if row.aggregated else "no", f"{row.mean_ms:.1f}", f"{row.p95_ms:.1f}",
                f"{row.line_ms:.1f}", f"{row.copies:g}", f"{row.bytes:,.0f}", str(row.expected - row.delivered),
            )  # fmt: skip
        console.print(table)
    console.print(CAPTION, highlight=False)
    for row in rows:
        for fault in row.faults:
            console.print(f"{row.line}, {row.clients} users: {fault}", style="bold red", highlight=False)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Latency over users for each line, and the bytes; needs matplotlib (extra `plot`)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.line for row in rows))
    counts = sorted({row.clients for row in rows})
    figure = Figure(figsize=(5.2 * (len(names) + 1), 4.4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(names) + 1)
    for axes, name in zip(panels, names, strict=False):
        for aggregated, label in ((False, "without aggregation"), (True, "with aggregation")):
            own = [row for row in rows if row.line == name and row.aggregated is aggregated]
            users, colour = [row.clients for row in own], COLOURS[aggregated]
            axes.plot(users, [row.mean_ms for row in own], "o-", color=colour, label=f"{label}, mean")
            axes.plot(users, [row.p95_ms for row in own], "^:", color=colour, alpha=0.7, label=f"{label}, p95")
            axes.plot(users, [row.line_ms for row in own], "--", color=colour, alpha=0.35, label="the line alone")
        first = next(row for row in rows if row.line == name)
        axes.set_title(f"{name}: {first.delay_ms:g} ms, {first.megabits_per_second:g} Mbit/s", loc="left")
        axes.set_ylabel("latency (ms)")
        axes.set_ylim(bottom=0)
    last = panels[-1]
    for aggregated, label in ((False, "without aggregation"), (True, "with aggregation")):
        own = [row for row in rows if row.line == names[-1] and row.aggregated is aggregated]
        last.plot(
            [row.clients for row in own], [row.bytes for row in own], "o-", color=COLOURS[aggregated], label=label
        )
    last.set_title("Bytes over the line, an event", loc="left")
    last.set_yscale("log")
    for axes in panels:
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_xlabel("users")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(str(path), metadata={"Software": None})
