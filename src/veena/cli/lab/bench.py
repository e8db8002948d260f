"""`veena bench`: how fast, as ratios measured side by side."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli import EXIT_BROKEN, EXIT_USAGE
from veena.cli.lab.bench_broker import broker_command

if TYPE_CHECKING:
    from veena.bench.matching.measure import Result
    from veena.bench.matching.workloads import Workload

bench = typer.Typer(help="Measure: matching, a broker or a network under load.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    bench.command("broker")(broker_command)
    app.add_typer(bench, name="bench")


@bench.callback()
def nouns() -> None:
    """Measure the parts of Veena on this machine."""


@bench.command("matching")
def matching_command(
    engine: Annotated[str | None, typer.Option(help="One engine; without it all of them.")] = None,
    workload: Annotated[str | None, typer.Option(help="One workload of the engine.")] = None,
    profiles: Annotated[int | None, typer.Option(min=10, max=5_000_000, help="How many profiles are stored.")] = None,
    run_all: Annotated[bool, typer.Option("--all", help="Every row of the table of bars.")] = False,
    quick: Annotated[bool, typer.Option(help="A tenth of the profiles, fewer passes.")] = False,
    check: Annotated[bool, typer.Option(help="Exit with 1 when a row misses its bar.")] = False,
    order: Annotated[bool, typer.Option(help="One constraint, one event: the engines by cost.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line a run.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the runs into this file.")] = None,
) -> None:
    """An engine beside a scan of its profiles by compiled closures, in the same run."""
    if order:
        _order(as_json, check)
        return
    if check and quick:
        print("veena: --check: the bars are for full sizes; leave out --quick", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE)
    results = _measure(_runs(engine, workload, profiles, run_all, quick), quick, as_json)
    if not as_json:
        from rich.console import Console

        from veena.bench.matching.report import table

        Console().print(table(results))
    if plot is not None:
        from veena.bench.matching.report import plot as draw

        draw(results, plot)
    if check:
        from veena.bench.matching.bars import shortfalls

        missed = shortfalls(results)
        for line in missed:
            print(line, file=sys.stderr)
        if missed:
            raise typer.Exit(EXIT_BROKEN)


def _runs(
    engine: str | None, workload: str | None, profiles: int | None, run_all: bool, quick: bool
) -> list[tuple[Workload, int]]:
    """Which workloads at which sizes: the rows of the bars, or one engine's at the size that was asked for."""
    from veena.bench.matching import workloads
    from veena.bench.matching.bars import BARS

    known = tuple(dict.fromkeys(found.engine for found in workloads.WORKLOADS))
    if engine is not None and engine not in known:
        print(f"veena: --engine {engine!r}: expected one of {', '.join(known)}", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE)
    if engine is None and workload is not None:
        print("veena: --workload needs --engine", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE)
    runs: list[tuple[Workload, int]] = []
    try:
        if run_all or engine is None:
            for bar in BARS:
                if engine in (None, bar.engine):
                    runs += [(found, profiles or bar.profiles) for found in workloads.find(bar.engine, bar.workload)]
        else:
            runs = [(found, profiles or 100_000) for found in workloads.find(engine, workload)]
    except ValueError as error:
        print(f"veena: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE) from None
    return [(found, max(size // 10, 1_000) if quick and not profiles else size) for found, size in runs]


def _measure(runs: list[tuple[Workload, int]], quick: bool, as_json: bool) -> list[Result]:
    from rich.console import Console
    from rich.progress import Progress

    from veena.bench.matching.measure import QUICK, Effort, measure

    results: list[Result] = []
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("matching", total=4 * len(runs))
        for workload, size in runs:

            def say(step: str, label: str = f"{workload.engine} {workload.name} {size:,}") -> None:
                progress.update(task, advance=1, description=f"{label}: {step}")

            result = measure(workload, size, QUICK if quick else Effort(), say)
            results.append(result)
            if as_json:
                print(json.dumps(result.line()), flush=True)
    return results


@bench.command("network")
def network_command(
    network: Annotated[Path | None, typer.Option(help="A network file; otherwise a generated one.")] = None,
    brokers: Annotated[int, typer.Option(min=1, max=100, help="Brokers of the generated network.")] = 8,
    seconds: Annotated[float, typer.Option(min=0.1, max=60, help="How long each rate is measured.")] = 1.0,
    links: Annotated[
        int | None, typer.Option(min=0, help="The farthest receiver, in links; the last by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts, a line a distance.")] = False,
) -> None:
    """Broker processes under load: rate and latency by the number of links between publisher and receiver.

    Every delivery is counted and compared; bodies have 100 bytes. Reliable means synced and acknowledged.
    """
    import asyncio
    import tempfile

    from rich.console import Console
    from rich.table import Table

    from veena.bench.load.network import measure
    from veena.bench.matching.report import machine
    from veena.runtime.networks.file import load_network
    from veena.sim.networks.generate import generate

    chosen = generate(brokers, seed=1) if network is None else load_network(network, connected=True)
    with Console(stderr=True).status("starting") as status, tempfile.TemporaryDirectory(prefix="veena-") as directory:
        try:
            found = asyncio.run(measure(chosen, Path(directory), seconds, links, status.update))
        except (RuntimeError, OSError) as error:
            print(f"veena: {error}", file=sys.stderr)
            raise typer.Exit(EXIT_BROKEN) from None
    if as_json:
        for each in found:
            print(json.dumps(each.line()))
        return
    table = Table(title=f"{chosen.name}, {len(chosen.brokers)} brokers; {machine()}", title_justify="left")
    for head in ("links", "receiver at", "events/s", "to 0 links", "reliable/s", "p50 us", "to 0 links", "p99 us"):
        table.add_column(head, justify="left" if head == "receiver at" else "right")
    for each in found:
        table.add_row(
            str(each.links), each.receiver, f"{each.per_second:,.0f}", f"{each.rate_ratio:.2f}",
            f"{each.reliable_per_second:,.0f}", f"{each.p50_us:,.0f}", f"{each.p50_ratio:.1f}", f"{each.p99_us:,.0f}",
        )  # fmt: skip
    Console().print(table)


@bench.command("pipeline")
def pipeline_command(
    section: Annotated[list[str] | None, typer.Option(help="match, read, archive or push; without it all.")] = None,
    engine: Annotated[list[str] | None, typer.Option(help="Only these engines in the section match.")] = None,
    quick: Annotated[bool, typer.Option(help="A tenth of the sizes, one round, four engines.")] = False,
    check: Annotated[bool, typer.Option(help="Exit with 1 when a figure misses its bar.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line a figure.")] = False,
) -> None:
    """Spark with two cores beside something plainer: the same engine in plain processes, a socket without a broker."""
    from rich.console import Console

    from veena.bench.matching.workloads import find
    from veena.cli.lab.bench_pipeline import LOADS, QUICK_LOADS, table
    from veena.errors import VeenaError
    from veena.spark.bench.suite import QUICK, SECTIONS, Effort, Load, measure

    wanted = tuple(section or SECTIONS)
    unknown = [name for name in wanted if name not in SECTIONS]
    unknown += [name for name in engine or () if name not in {load[0] for load in LOADS}]
    if unknown or (check and quick):
        reason = f"{unknown[0]!r} is no section and no engine" if unknown else "--check: the bars are for full sizes"
        print(f"veena: {reason}; see veena bench pipeline --help", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE)
    loads = []
    for name, workload, profiles, events in LOADS:
        if name in engine if engine else not quick or (name, workload) in QUICK_LOADS:
            (found,) = find(name, workload)
            loads.append(Load(name, workload, found.constraint, found.event, profiles, events))
    figures = []
    is_whole = True
    with Console(stderr=True).status("starting") as status:
        try:
            for figure in measure(wanted, loads, QUICK if quick else Effort(), status.update):
                figures.append(figure)
                if as_json:
                    print(json.dumps(figure.line()), flush=True)
        except (VeenaError, KeyboardInterrupt) as error:  # what was measured by then is shown
            is_whole = False
            print(f"veena: {error or 'interrupted'}", file=sys.stderr)
    if not as_json:
        Console().print(table(figures))
    short = [figure for figure in figures if figure.is_short]
    for figure in short if check else []:
        print(f"{figure.section} {figure.name}: {figure.ratio:.2f} x, the bar is {figure.bar} x", file=sys.stderr)
    if (short and check) or not is_whole:
        raise typer.Exit(EXIT_BROKEN)


def _order(as_json: bool, check: bool) -> None:
    from veena.bench.matching.cost_order import cost_order, out_of_order

    costs = cost_order()
    if as_json:
        print(json.dumps(dict(costs)))
    else:
        from rich.console import Console
        from rich.table import Table

        from veena.bench.matching.report import machine

        table = Table("engine", "us an event", title=machine(), title_justify="left")
        for name, cost in costs:
            table.add_row(name, f"{cost:.3g}")
        Console().print(table)
    wrong = out_of_order(costs)
    for line in wrong if check else []:
        print(line, file=sys.stderr)
    if wrong and check:
        raise typer.Exit(EXIT_BROKEN)
