"""`veena demo`: the 22-broker network of the GES paper in the simulator, told in tables and one page."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.errors import ConfigError

if TYPE_CHECKING:
    from veena.runtime.network_file import Network
    from veena.sim.story import Story

#: The second topology of the GES paper, beside the sources; an installed package draws one of the same size.
NETWORK = Path(__file__).parents[3] / "networks" / "ges-22-linked.toml"


def demo(
    once: Annotated[bool, typer.Option("--once", help="Run once and leave the report in --out.")] = True,
    out: Annotated[Path, typer.Option("--out", help="The folder for the report.")] = Path("out/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Show a network come up, lose a link, heal, and survive a bad day."""
    from rich.console import Console

    from veena.runtime.network_file import dump_network
    from veena.sim.drawing import draw_svg
    from veena.sim.story import tell

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("--out", str(out), f"cannot be made ({error.strerror})", "name another folder") from None
    network, start, end = _network()
    progress = Console(stderr=True)
    with progress.status("starting") as status:
        story = tell(network, start, end, status.update)
    picture = draw_svg(network)
    summary = _summary(story)
    (out / "network.toml").write_text(dump_network(network), encoding="utf-8")
    (out / "network.svg").write_text(picture, encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (out / "report.html").write_text(_page(story, picture), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        _show(story, out)
    if story.wrong_maps or not story.bad_day.is_sound:
        raise typer.Exit(1)


def register(main: typer.Typer) -> None:
    main.command()(demo)


def _network() -> tuple[Network, tuple[int, ...], tuple[int, ...]]:
    from veena.runtime.network_file import load_network
    from veena.sim.generate import generate

    if NETWORK.exists():
        network = load_network(NETWORK, connected=True)
        return network, network.labels.unit("SSC-B.SC-5.h.22"), network.labels.unit("SSC-B.SC-6.m.10")
    network = generate(22, seed=1)
    return network, network.brokers[0].address, network.brokers[-1].address


def _summary(story: Story) -> dict[str, Any]:
    """Clients, events and latencies are null until brokers route events."""
    return {
        "brokers": len(story.network.brokers),
        "clients": None,
        "events": None,
        "expected": None,
        "delivered": None,
        "missing": None,
        "duplicates": None,
        "latency_ms": {"p50": None, "p99": None},
        "rates": [],
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
    }


def _show(story: Story, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    maps = Table(title=f"{story.network.name}: what each broker knows, and what it took to learn it")
    for column in story.rows[0]:
        maps.add_column(column, justify="left" if column == "broker" else "right")
    for row in story.rows:
        maps.add_row(*map(str, row.values()))
    ways = Table("when", "next hops", title=f"from {story.ways[0].brokers[0]} to {story.ways[0].brokers[-1]}")
    for way in story.ways:
        ways.add_row(way.when, " > ".join(way.brokers))
    console.print(maps, ways)
    console.print(f"a bad day, seed {story.bad_day.seed}:", highlight=False)
    for fault in story.bad_day.faults:
        console.print(f"  {fault}", highlight=False)
    verdict = "every map right again, every way leads to its unit, every want known"
    console.print(f"[green]{verdict}" if story.bad_day.is_sound else "[red]maps differ from the oracle's")
    console.print(f"report: {out / 'report.html'}", highlight=False)


def _page(story: Story, picture: str) -> str:
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row.values()) + "</tr>"
        for row in story.rows
    )
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in story.rows[0])
    ways = "".join(
        f"<tr><td>{html.escape(way.when)}</td><td>{html.escape(' > '.join(way.brokers))}</td></tr>"
        for way in story.ways
    )
    faults = "".join(f"<li>{html.escape(fault)}</li>" for fault in story.bad_day.faults)
    verdict = "Every map was right again." if story.bad_day.is_sound else "Maps differed from the oracle's."
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Veena: {html.escape(story.network.name)}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1d2733}}
table{{border-collapse:collapse;margin:1rem 0}}td,th{{padding:.2rem .8rem;border-bottom:1px solid #dde3ea;
text-align:left}}svg{{max-width:100%;height:auto}}</style>
<h1>{html.escape(story.network.name)}</h1>
<p>{len(story.network.brokers)} brokers, {len(story.network.links)} links. The maps were built from connection messages
alone: {story.frames} frames until nothing was under way.</p>
{picture}
<h2>The way from broker to broker</h2><table><tr><th>when</th><th>brokers</th></tr>{ways}</table>
<h2>What each broker knows</h2><table><tr>{heads}</tr>{rows}</table>
<h2>A bad day (seed {story.bad_day.seed})</h2><ul>{faults}</ul><p>{verdict}</p>
</html>
"""
