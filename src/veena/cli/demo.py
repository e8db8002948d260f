"""`veena demo`: the 22-broker network of the GES paper, as processes and in the simulator, in tables and one page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.errors import ConfigError

if TYPE_CHECKING:
    from veena.address import Unit
    from veena.bench.live import Rate
    from veena.runtime.network_file import Network

#: Per cent of the events that each subscriber wants, one after the other.
MATCH_RATES = (100, 25, 5)
EVENTS_PER_SECOND = 25.0
#: The second topology of the GES paper, beside the sources; an installed package draws one of the same size.
NETWORK = Path(__file__).parents[3] / "networks" / "ges-22-linked.toml"


def demo(
    once: Annotated[bool, typer.Option("--once", help="Run once and leave the report in --out.")] = True,
    out: Annotated[Path, typer.Option("--out", help="The folder for the report.")] = Path("out/demo"),
    events: Annotated[int, typer.Option(min=1, help="Events at each match rate.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """22 brokers as processes with 102 clients, every delivery checked; then a bad day in the simulator."""
    from rich.console import Console

    from veena.cli.demo_report import draw_latency, page, show, summary
    from veena.runtime.network_file import dump_network
    from veena.sim.drawing import draw_svg
    from veena.sim.story import tell

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("--out", str(out), f"cannot be made ({error.strerror})", "name another folder") from None
    network, start, end = _network()
    with Console(stderr=True).status("starting") as status:
        rates, clients = asyncio.run(_live(network, out / "brokers", (start, end), events, status.update))
        story = tell(network, start, end, status.update)
    picture, found = draw_svg(network), summary(story, rates, clients)
    (out / "network.toml").write_text(dump_network(network), encoding="utf-8")
    (out / "network.svg").write_text(picture, encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    draw_latency(rates, out / "latency.png")
    (out / "report.html").write_text(page(story, rates, clients, picture), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found))
    else:
        show(story, rates, clients, out)
    if story.wrong_maps or not story.bad_day.is_sound or not all(rate.is_sound for rate in rates):
        raise typer.Exit(1)


async def _live(
    network: Network, directory: Path, ends: tuple[Unit, Unit], events: int, say: Callable[[str], None]
) -> tuple[list[Rate], int]:
    """The brokers as processes: what came of the events at each match rate, and how many clients there were."""
    from veena.bench.live import LiveNetwork

    publisher, measuring = map(network.labels.label, ends)
    async with LiveNetwork(network, directory, publisher, measuring, say) as live:
        return [await live.measure(percent, events, EVENTS_PER_SECOND) for percent in MATCH_RATES], live.clients


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
