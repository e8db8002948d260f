"""`veena demo`: the 22-broker network of the GES paper, as processes, in the simulator and on Spark, on one page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli.completion import toml_files
from veena.cli.demo import collaboratory as demo_collaboratory
from veena.cli.demo.folder import demo_folder

if TYPE_CHECKING:
    from veena.address import Unit
    from veena.bench.endurance.live import Rate
    from veena.runtime.networks.file import Network

#: Per cent of the events that each subscriber wants, one after the other.
MATCH_RATES = (100, 25, 5)
EVENTS_PER_SECOND = 25.0
#: What it leaves: an earlier demo's goes first.
FOLDERS = ("archive", "brokers")
FILES = ("summary.json", "report.html")
#: The second topology of the GES paper, beside the sources; an installed package draws one of the same size.
NETWORK = Path(__file__).parents[4] / "networks" / "ges-22-linked.toml"


def demo(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Run once and leave the report in --out.")] = True,
    out: Annotated[Path, typer.Option("--out", help="The folder for the report.")] = Path("out/demo"),
    events: Annotated[int, typer.Option(min=1, help="Events at each match rate.")] = 100,
    file: Annotated[
        Path | None,
        typer.Option("--network", help="A network file instead of the 22 brokers.", autocompletion=toml_files),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """22 broker processes and 102 clients, each delivery checked, archived and audited on Spark; then a bad day."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console

    from veena.cli.demo import pipeline as demo_pipeline
    from veena.cli.demo.report import draw_latency, page, show, summary
    from veena.runtime.networks.file import dump_network, load_network
    from veena.sim.networks.drawing import draw_svg
    from veena.sim.runs.story import tell

    network, start, end = _network() if file is None else _ends(load_network(file, connected=True))
    with demo_folder(out, FOLDERS, FILES, FILES):
        with Console(stderr=True).status("starting") as status:
            rates, clients, rows = asyncio.run(_live(network, out, (start, end), events, status.update))
            past = demo_pipeline.look_back(out / "archive", rows, out, status.update) if rows else None
            story = tell(network, start, end, status.update)
        picture, found = draw_svg(network), summary(story, rates, clients, past)
        (out / "network.toml").write_text(dump_network(network), encoding="utf-8")
        (out / "network.svg").write_text(picture, encoding="utf-8")
        draw_latency(rates, out / "latency.png")
        (out / "report.html").write_text(page(story, rates, clients, picture, past), encoding="utf-8")
        (out / "summary.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found))
    else:
        show(story, rates, clients, past, out)
    is_sound = all(rate.is_sound for rate in rates) and story.bad_day.is_sound and not story.wrong_maps
    if not is_sound or (past is not None and not past.audit.is_clean):
        raise typer.Exit(1)


async def _live(
    network: Network, out: Path, ends: tuple[Unit, Unit], events: int, say: Callable[[str], None]
) -> tuple[list[Rate], int, dict[str, int]]:
    """The brokers as processes: what came of the events at each match rate, how many clients there were, and how many
    rows of each table are archived: none where there is no Spark."""
    from veena.bench.endurance.live import LiveNetwork
    from veena.cli.demo import pipeline as demo_pipeline

    publisher, measuring = map(network.labels.label, ends)
    records = "all" if demo_pipeline.is_there() else "off"
    async with LiveNetwork(network, out / "brokers", publisher, measuring, say, records) as live:
        rates = [await live.measure(percent, events, EVENTS_PER_SECOND) for percent in MATCH_RATES]
        rows: dict[str, int] = {}
        if records != "off":
            urls = [member.url for member in live.fleet.members]
            rows = await asyncio.to_thread(demo_pipeline.archive, urls, out / "archive", say)
        return rates, live.clients, rows


def register(main: typer.Typer) -> None:
    app = typer.Typer(invoke_without_command=True)
    app.callback()(demo)
    app.command()(demo_collaboratory.collaboratory)
    main.add_typer(app, name="demo")


def _network() -> tuple[Network, tuple[int, ...], tuple[int, ...]]:
    from veena.runtime.networks.file import load_network
    from veena.sim.networks.generate import generate

    if NETWORK.exists():
        network = load_network(NETWORK, connected=True)
        return network, network.labels.unit("SSC-B.SC-5.h.22"), network.labels.unit("SSC-B.SC-6.m.10")
    return _ends(generate(22, seed=1))


def _ends(network: Network) -> tuple[Network, tuple[int, ...], tuple[int, ...]]:
    """The network, the broker of its publisher, and that of the subscriber whose deliveries are measured."""
    return network, network.brokers[0].address, network.brokers[-1].address
