"""`veena experiment`: the papers' experiments again, with figures and the numbers beside them."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli.lab import experiment_latency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veena.bench.collaboratory.induced_roam import Outcome
    from veena.runtime.networks.file import Network

#: The networks of the GES paper, beside the sources; an installed package generates all that it measures.
NETWORKS = Path(__file__).parents[4] / "networks"
PAPERS = ("ges-22", "ges-22-linked", "ges-78")
GENERATED = (500, 3000)
#: Brokers of a cluster in generated networks: the same at both sizes, so that their tables differ by size alone.
CLUSTER = 8

experiment = typer.Typer(help="Run an experiment of the papers again.", no_args_is_help=True)
experiment.command("latency")(experiment_latency.latency)


def register(app: typer.Typer) -> None:
    app.add_typer(experiment, name="experiment")


@experiment.callback()
def nouns() -> None:
    """Run an experiment of the papers again; figures and a JSON file go into a directory."""


@experiment.command("matching")
def matching_command(
    out: Annotated[Path, typer.Option(help="Where the figures and matching.json go.")] = Path("experiment-matching"),
    quick: Annotated[bool, typer.Option(help="A few thousand subscriptions.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what matching.json holds.")] = False,
) -> None:
    """The cost of matching, 10,000 to 100,000 subscriptions: figures 5 to 9 and 11 of the NaradaBrokering paper."""
    from rich.console import Console
    from rich.progress import Progress

    from veena.bench.matching import experiment as experiment_matching

    scale = experiment_matching.QUICK if quick else experiment_matching.Scale()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("matching", total=6)
        report = experiment_matching.run(
            out, scale, lambda step: progress.update(task, advance=1, description=f"{step} is drawn")
        )
    if as_json:
        print(json.dumps(report))
        return
    for name, value in report["claims"].items():
        print(f"{name}: {value if isinstance(value, bool) else f'{value:.3g}'}")
    print(f"figures and matching.json are in {out}")


@experiment.command("crossings")
def crossings_command(
    network: Annotated[
        list[Path] | None,
        typer.Option(help="A network file, any number of times; without it those of the papers and generated ones."),
    ] = None,
    generated: Annotated[
        list[int] | None, typer.Option(help="Brokers of a generated network, any number of times.", min=1)
    ] = None,
    cluster: Annotated[
        int | None, typer.Option(help=f"Brokers of a cluster in generated networks: {CLUSTER}, sparse 6.", min=1)
    ] = None,
    sparse: Annotated[bool, typer.Option("--sparse", help="Generated networks have half as many links.")] = False,
    computed: Annotated[
        bool,
        typer.Option("--computed", help="Follow events from the whole topology, without brokers: fast at any size."),
    ] = False,
    events: Annotated[int | None, typer.Option(help="Events a row; by default 24 to 200, by size.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Networks, wants and publishers follow from this number.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Where crossings.json and crossings.png go.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 when a bar is missed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array of rows.")] = False,
) -> None:
    """Links that events cross, at match rates of 100 to 0 %, beside the optimum, flooding, TTL flooding, refinement."""
    from rich.console import Console

    from veena.sim.experiments import crossings_report as crossing_report
    from veena.sim.experiments.crossings import measure

    if out is not None:
        crossing_report.prepare(out)
    lines = []
    with Console(stderr=True).status("networks") as status:
        for each in _networks(network, generated, cluster, seed, sparse=sparse):
            name = each.name
            lines += measure(each, events, seed, lambda text: status.update(f"{name}: {text}"), computed=computed)  # noqa: B023
    rows = crossing_report.plain(lines)
    if out is not None:
        (out / "crossings.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
        crossing_report.draw(lines, out / "crossings.png")
    if as_json:
        print(json.dumps(rows))
    else:
        crossing_report.show(lines, computed=computed)
    if check and any(line.faults for line in lines):
        raise typer.Exit(1)


@experiment.command("discovery")
def discovery_command(
    network: Annotated[Path | None, typer.Option(help="A network file; without it ges-78 of the GES paper.")] = None,
    generated: Annotated[int | None, typer.Option(help="Brokers of a generated network instead.", min=1)] = None,
    adverts: Annotated[int, typer.Option(help="Advertisements in all.", min=1)] = 10_000,
    queries: Annotated[int, typer.Option(help="Queries in each language and realm.", min=1)] = 24,
    seed: Annotated[int, typer.Option(help="Services, queries and askers follow from this number.")] = 1,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 when an answer or a realm is wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Advertisements asked for by SQL and XPath: answers beside one database's, messages beside TTL flooding."""
    from rich.console import Console

    from veena.sim.experiments import discovery_report
    from veena.sim.experiments.discovery import measure

    files = [network or NETWORKS / "ges-78.toml"] if generated is None else None
    with Console(stderr=True).status("networks") as status:
        chosen = _networks(files, None if generated is None else [generated], None, seed)[0]
        lines, upkeep = measure(chosen, adverts, queries, seed, lambda text: status.update(f"{chosen.name}: {text}"))
    if as_json:
        print(json.dumps(discovery_report.plain(lines, upkeep)))
    else:
        discovery_report.show(lines, upkeep)
    if check and any(line.faults for line in lines):
        raise typer.Exit(1)


@experiment.command("collaboratory")
def collaboratory_command(
    out: Annotated[Path | None, typer.Option(help="Where collaboratory.json and collaboratory.png go.")] = None,
    quick: Annotated[bool, typer.Option(help="1, 8 and 64 users, fewer events.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 when something is missing or wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array of rows.")] = False,
) -> None:
    """Latency against the number of users, near and far, with and without aggregation: the thesis' missing chapter."""
    from rich.console import Console

    from veena.bench import report_folder
    from veena.bench.collaboratory import experiment as collaboratory
    from veena.bench.collaboratory import report as collaboratory_report

    if out is not None:
        report_folder.prepare(out)
    scale = collaboratory.QUICK if quick else collaboratory.Scale()
    with TemporaryDirectory(prefix="veena-experiment-") as directory, Console(stderr=True).status("brokers") as status:
        rows = asyncio.run(collaboratory.measure(Path(directory), scale, status.update))
    if out is not None:
        lines = json.dumps([row.plain() for row in rows], indent=2)
        (out / "collaboratory.json").write_text(lines + "\n", encoding="utf-8")
        collaboratory_report.draw(rows, out / "collaboratory.png")
    if as_json:
        print(json.dumps([row.plain() for row in rows]))
    else:
        collaboratory_report.show(rows)
    if check and any(row.faults for row in rows):
        raise typer.Exit(1)


@experiment.command("induced-roam")
def induced_roam_command(
    events: Annotated[int, typer.Option(help="Events before the roam and after it.", min=1)] = 40,
    quick: Annotated[
        bool, typer.Option(help="Boston alone: the two minutes after a roam in which stragglers are sent are skipped.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 when an event is lost or comes twice.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Ten clients in Boston at the broker in Syracuse, then at one of their own: what crosses the long line."""
    from rich.console import Console

    from veena.bench.collaboratory.induced_roam import Operator, measure
    from veena.client import connect
    from veena.services.adviser.live import Adviser

    def adviser(urls: Sequence[str], operator: Operator) -> Adviser:
        return Adviser(urls, connect, operator)

    with TemporaryDirectory(prefix="veena-experiment-") as directory, Console(stderr=True).status("brokers") as status:
        outcome = asyncio.run(measure(Path(directory), adviser, events, status.update, quick))
    if as_json:
        print(json.dumps(asdict(outcome)))
    else:
        _show_roam(outcome)
    if check and not outcome.is_sound:
        raise typer.Exit(1)


def _show_roam(outcome: Outcome) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(outcome.proposal, highlight=False, markup=False)
    for step in outcome.steps:
        console.print(f"  {step}", highlight=False, markup=False)
    table = Table(box=SIMPLE_HEAD)
    for column in ("roam", "events", "copies", "bytes", "Boston ms", "others ms"):
        table.add_column(column, justify="left" if column == "roam" else "right")
    for phase in outcome.phases:
        others = f"{phase.others_ms:.1f}" if phase.others_ms else "-"
        figures = (f"{phase.copies:.1f}", f"{phase.bytes:,.0f}", f"{phase.boston_ms:.1f}", others)
        table.add_row(phase.name, str(phase.events), *figures)
    console.print(table)
    console.print("copies and bytes: over the line to Boston, an event; ms: mean latency", highlight=False)
    console.print(
        f"{outcome.expected:,} deliveries to {outcome.clients} clients: {outcome.missing} missing, {outcome.repeated}"
        f" repeated, {outcome.out_of_order} out of order",
        highlight=False,
        style=None if outcome.is_sound else "bold red",
    )


def _networks(
    files: list[Path] | None, generated: list[int] | None, cluster: int | None, seed: int, *, sparse: bool = False
) -> list[Network]:
    from veena.runtime.networks.file import load_network
    from veena.sim.networks.generate import DENSE, SPARSE, generate

    if not files and not generated:
        files = [file for name in PAPERS if (file := NETWORKS / f"{name}.toml").exists()]
        generated = list(GENERATED)
    loaded = [load_network(file, connected=True) for file in files or ()]
    shape = SPARSE if sparse else replace(DENSE, cluster=CLUSTER)
    return loaded + [generate(size, seed, cluster=cluster, shape=shape) for size in generated or ()]
