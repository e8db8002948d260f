"""What `veena demo` leaves: tables, a picture, a summary and one page."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veena.bench.endurance.live import Rate
    from veena.cli.demo.pipeline import PipelineStory
    from veena.sim.runs.story import Story


def summary(story: Story, rates: list[Rate], clients: int, past: PipelineStory | None) -> dict[str, Any]:
    latencies = [each for rate in rates for each in rate.latencies]
    return {
        "brokers": len(story.network.brokers),
        "clients": clients,
        "events": sum(rate.events for rate in rates),
        "expected": sum(rate.expected for rate in rates),
        "delivered": sum(rate.delivered for rate in rates),
        "missing": sum(rate.missing for rate in rates),
        "duplicates": sum(rate.duplicates for rate in rates),
        "out_of_order": sum(rate.out_of_order for rate in rates),
        "latency_ms": {"p50": _percentile(latencies, 50), "p99": _percentile(latencies, 99)},
        "rates": [_rate(rate) for rate in rates],
        "links": len(story.network.links),
        "frames_until_quiet": story.frames,
        "wrong_maps": story.wrong_maps,
        "ways": [{"when": way.when, "brokers": way.brokers} for way in story.ways],
        "bad_day": {
            "seed": story.bad_day.seed,
            "faults": story.bad_day.faults,
            "sound": story.bad_day.is_sound,
            "trace_hash": story.bad_day.trace_hash,
        },
        "pipeline": None if past is None else past.report(),
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "match_percent": rate.match_percent,
        "events": rate.events,
        "expected": rate.expected,
        "delivered": rate.delivered,
        "missing": rate.missing,
        "duplicates": rate.duplicates,
        "out_of_order": rate.out_of_order,
        "spurious": rate.spurious,
        "seconds": rate.seconds,
        "latency_ms": {"p50": rate.percentile(50), "p99": rate.percentile(99)},
    }


def _percentile(values: list[float], percent: int) -> float | None:
    from statistics import quantiles

    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 2) if len(values) > 1 else None


def draw_latency(rates: list[Rate], path: Path) -> None:
    """How long deliveries took at each match rate, as boxes from the lower to the upper quartile."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.boxplot([rate.latencies or [0.0] for rate in rates], showfliers=False)
    axes.set_xticks(range(1, len(rates) + 1), [f"{rate.match_percent} %" for rate in rates])
    axes.set_xlabel("events that each subscriber wants")
    axes.set_ylabel("milliseconds")
    axes.set_title("From publishing to the subscriber")
    axes.set_ylim(bottom=0)
    figure.savefig(path, dpi=120)


HEADS = ("match", "events", "due", "got", "missing", "twice", "disorder", "p50 ms", "p99 ms")


def _cells(rate: Rate) -> list[str]:
    counts = (rate.events, rate.expected, rate.delivered, rate.missing, rate.duplicates, rate.out_of_order)
    return [f"{rate.match_percent} %", *map(str, counts), *(f"{rate.percentile(each) or 0:.1f}" for each in (50, 99))]


def show(story: Story, rates: list[Rate], clients: int, past: PipelineStory | None, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    live = Table(title=f"{len(story.network.brokers)} brokers as processes, {clients} clients: every delivery checked")
    for head in HEADS:
        live.add_column(head, justify="right")
    for rate in rates:
        live.add_row(*_cells(rate))
    maps = Table(title=f"{story.network.name}: what each broker knows, and what it took to learn it")
    for column in story.rows[0]:
        maps.add_column(column, justify="left" if column == "broker" else "right")
    for row in story.rows:
        maps.add_row(*map(str, row.values()))
    ways = Table("when", "next hops", title=f"from {story.ways[0].brokers[0]} to {story.ways[0].brokers[-1]}")
    for way in story.ways:
        ways.add_row(way.when, " > ".join(way.brokers))
    console.print(maps, ways, live)
    if past is None:
        console.print("no archive, audit and analysis: install veena\\[spark] for them", highlight=False)
    else:
        audit = Table(*AUDITED, title="on Spark: the archive's audit, from events, profiles, deliveries and hops")
        audit.add_row(*_audited(past))
        console.print(audit)
    console.print(f"a bad day in the simulator, seed {story.bad_day.seed}:", highlight=False)
    for fault in story.bad_day.faults:
        console.print(f"  {fault}", highlight=False)
    verdict = "every event delivered once and in order, every map right again"
    console.print(f"[green]{verdict}" if story.bad_day.is_sound else "[red]not as it should be: see the report")
    console.print(f"report: {out / 'report.html'}", highlight=False)


#: What of an audit is shown.
AUDITED = ("events", "profiles", "expected", "delivered", "missing", "duplicates", "spurious", "wasted_units")


def _audited(past: PipelineStory) -> list[str]:
    return [str(getattr(past.audit, name)) for name in AUDITED]


def _on_spark(past: PipelineStory | None) -> str:
    if past is None:
        return "<p>Without Spark there is no archive, audit and analysis: install <code>veena[spark]</code>.</p>"
    rows = ", ".join(f"{count} {html.escape(table)}" for table, count in past.rows.items())
    pictures = "".join(f'<img src="{html.escape(name)}" alt="{html.escape(name)}">' for name in past.pictures)
    return (
        f"<p>Archived: {rows}. All of it is in <code>archive/</code>; <a href='audit.html'>the audit</a>,"
        f" <a href='analysis/analysis.html'>the analysis</a>.</p>{_table(list(AUDITED), [_audited(past)])}{pictures}"
    )


def page(story: Story, rates: list[Rate], clients: int, picture: str, past: PipelineStory | None) -> str:
    ways = [[way.when, " > ".join(way.brokers)] for way in story.ways]
    faults = "".join(f"<li>{html.escape(fault)}</li>" for fault in story.bad_day.faults)
    verdict = "Everything was right again." if story.bad_day.is_sound else "Not everything was right again."
    maps = _table(list(story.rows[0]), [list(map(str, row.values())) for row in story.rows])
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Veena: {html.escape(story.network.name)}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1d2733}}
table{{border-collapse:collapse;margin:1rem 0}}td,th{{padding:.2rem .8rem;border-bottom:1px solid #dde3ea;
text-align:left}}svg,img{{max-width:100%;height:auto}}</style>
<h1>{html.escape(story.network.name)}</h1>
<p>{len(story.network.brokers)} brokers, {len(story.network.links)} links.</p>
{picture}
<h2>As processes, with {clients} clients</h2>{_table(list(HEADS), [_cells(rate) for rate in rates])}
<img src="latency.png" alt="Latency by match rate">
<h2>The same on Spark</h2>{_on_spark(past)}
<h2>The way from broker to broker</h2>{_table(["when", "brokers"], ways)}
<h2>What each broker knows</h2><p>The maps were built from connection messages alone: {story.frames} frames until
nothing was under way.</p>{maps}
<h2>A bad day in the simulator (seed {story.bad_day.seed})</h2><ul>{faults}</ul><p>{verdict}</p>
</html>
"""


def _table(heads: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(each)}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
