"""`veena experiment latency`: the papers' main experiment on 22 real brokers."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from veena.errors import ConfigError

if TYPE_CHECKING:
    from veena.bench.latency.experiment import Plan, Row
    from veena.runtime.networks.file import Network

#: The first topology of the GES paper, beside the sources.
NETWORK = Path(__file__).parents[4] / "networks" / "ges-22.toml"


def latency(
    network: Annotated[
        Path | None,
        typer.Option(help="A network file; without it ges-22. With ges-22-linked three subscribers measure."),
    ] = None,
    match: Annotated[
        list[int] | None, typer.Option(help="A match rate in per cent, any number of times: 100, 50, 33, 25, 10, 5.")
    ] = None,
    size: Annotated[list[int] | None, typer.Option(help="An event's bytes, 30 to 500, any number of times.")] = None,
    rate: Annotated[list[float] | None, typer.Option(help="Events a second, any number of times.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Seconds a cell, up to 16,384 events or 4 MiB.", min=0.1, max=600)
    ] = None,
    publisher: Annotated[str | None, typer.Option(help="The publisher's broker; in the papers 22.")] = None,
    measure: Annotated[
        list[str] | None, typer.Option(help="A measuring subscriber's broker, any number of times; in the papers 10.")
    ] = None,
    flooding: Annotated[
        bool, typer.Option("--flooding", help="Each cell also with events that go to everybody, whatever they want.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A few cells of half a second.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where latency.json and the figures go.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line a cell.")] = False,
) -> None:
    """Latency and throughput over match rate, publish rate and size: 22 brokers as processes, 102 clients."""
    from veena.bench import report_folder
    from veena.bench.latency import papers as latency_papers
    from veena.bench.latency import report as latency_report
    from veena.bench.latency.experiment import QUICK, Plan
    from veena.runtime.networks.file import load_network

    plan = QUICK if quick else Plan()
    if size or rate:  # the user's own cells, without those that the papers print
        plan = replace(plan, extra=())
    plan = replace(
        plan, match_rates=tuple(match or plan.match_rates), rates=tuple(rate or plan.rates),
        sizes=tuple(size or plan.sizes), seconds=seconds or plan.seconds, flooding=flooding,
    )  # fmt: skip
    plan.cells()  # what is wrong with them is said before brokers are started
    if network is None and not NETWORK.exists():
        raise ConfigError("--network", "ges-22.toml", "is not installed", "name a network file")
    chosen = load_network(network or NETWORK, connected=True)
    if out is not None:
        report_folder.prepare(out)
    rows, clients = _run(chosen, plan, publisher, measure or [], as_json=as_json)
    environment = latency_papers.our_environment(len(chosen.brokers), clients)
    if out is not None:
        latency_report.write(rows, environment, out)
    if not as_json:
        latency_report.show(rows, environment)
        if out is not None:
            print(f"figures and latency.json are in {out}")
    if latency_papers.faults(rows):
        raise typer.Exit(1)


def _run(
    network: Network, plan: Plan, publisher: str | None, measuring: list[str], *, as_json: bool
) -> tuple[list[Row], int]:
    """The rows, and how many clients there were."""
    from rich.console import Console
    from rich.progress import Progress

    from veena.bench.latency.experiment import LatencyNetwork

    with (
        TemporaryDirectory(prefix="veena-experiment-") as directory,
        Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress,
    ):
        task = progress.add_task("starting brokers", total=plan.estimate_s())

        def on_cell(found: list[Row], seconds: float) -> None:
            progress.update(task, advance=seconds)
            if as_json:
                for row in found:
                    print(json.dumps(row.plain()), flush=True)

        def say(text: str) -> None:
            progress.update(task, description=text)

        async def whole() -> tuple[list[Row], int]:
            async with LatencyNetwork(network, Path(directory), say, publisher, measuring) as live:
                return await live.measure(plan, on_cell), live.clients

        return asyncio.run(whole())
