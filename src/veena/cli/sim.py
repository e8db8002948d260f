"""`veena sim`: run the deterministic simulator, one seed or one after another."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from veena.runtime.network_file import Network
    from veena.sim.run import Report

app = typer.Typer(help="Worlds of real brokers on a virtual clock and network.", no_args_is_help=True)

NetworkOption = Annotated[
    Path | None, typer.Option("--network", help="A network file; without it a small one is generated from the seed.")
]
FaultsOption = Annotated[str, typer.Option("--faults", help="none, links, crash, partition or all.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command()
def run(
    seed: Annotated[int, typer.Option(help="Everything that happens follows from this number.")],
    network: NetworkOption = None,
    events: Annotated[int, typer.Option(min=0, max=0, help="Events to publish; brokers do not route them yet.")] = 0,
    faults: FaultsOption = "none",
    as_json: JsonOption = False,
) -> None:
    """Simulate one seed and judge it; exit code 1 when an invariant is broken."""
    from veena.sim.run import run_seed

    report = run_seed(seed, faults, _load(network))
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report)))
    else:
        _show(report)
    if not report.is_sound:
        raise typer.Exit(1)


@app.command()
def soak(
    seconds: Annotated[float, typer.Option(help="Stop after so long.")] = 0,
    seeds: Annotated[int, typer.Option(min=0, help="Stop after so many seeds.")] = 0,
    first: Annotated[int | None, typer.Option(help="The first seed; by default 1, or by the clock if timed.")] = None,
    faults: FaultsOption = "all",
    network: NetworkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run seed after seed; exit code 1 and the seed's number when an invariant is broken."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from veena.sim.run import run_seed

    if not (0 < seconds < float("inf")) and not seeds:
        raise typer.BadParameter("say when to stop: --seconds above 0, or --seeds")
    loaded = _load(network)
    seed = first if first is not None else (1 if seeds else int(time.time()))
    end = time.monotonic() + seconds if seconds else None
    ran, broken = 0, []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, disable=as_json, transient=True) as progress:
        task = progress.add_task("seeds", total=seeds or None)
        while (not seeds or ran < seeds) and (end is None or time.monotonic() < end):
            report = run_seed(seed, faults, loaded)
            if not report.is_sound:
                broken.append(seed)
                progress.console.print(f"seed {seed}: {_verdict(report)}")
            ran, seed = ran + 1, seed + 1
            progress.update(task, advance=1, description=f"seeds, {len(broken)} broken")
    if as_json:
        typer.echo(json.dumps({"seeds": ran, "faults": faults, "broken": broken}))
    else:
        typer.echo(f"{ran} seeds, faults {faults}: {len(broken)} broken {broken or ''}")
    if broken:
        where = f" --network {network}" if network is not None else ""
        typer.echo(f"repeat with: veena sim run --seed {broken[0]} --faults {faults}{where}", err=True)
        raise typer.Exit(1)


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="sim")


def _load(path: Path | None) -> Network | None:
    from veena.runtime.network_file import load_network

    return None if path is None else load_network(path, connected=True)


def _verdict(report: Report) -> str:
    if report.broken is not None:
        return f"invariant broken: {report.broken}"
    if report.wrong_maps:
        return f"{len(report.wrong_maps)} maps differ from the oracle's: {', '.join(report.wrong_maps[:4])}"
    if report.wrong_hops:
        return f"{len(report.wrong_hops)} ways lead nowhere: {', '.join(report.wrong_hops[:4])}"
    if report.interest_narrower or report.interest_wider:
        return (
            f"brokers believe {report.interest_narrower} units to want less, {report.interest_wider} more than they do"
        )
    ways = "every way leads to its unit" if report.hops_judged else "ways not judged: a unit is in pieces for ever"
    return f"every map right, {ways}, every want known"


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"seed {report.seed}", show_header=False)
    for name, value in report.options.items():
        table.add_row(name, str(value))
    for name in ("brokers", "steps", "frames", "virtual_seconds", "trace_hash"):
        table.add_row(f"[bold]{name}", str(getattr(report, name)))
    console.print(table)
    for fault in report.faults:
        console.print(f"  {fault}", highlight=False)
    console.print(f"[{'green' if report.is_sound else 'red'}]{_verdict(report)}")
