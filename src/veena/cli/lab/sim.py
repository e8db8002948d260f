"""`veena sim`: run the deterministic simulator, one seed or one after another."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli.completion import toml_files

if TYPE_CHECKING:
    from veena.runtime.networks.file import Network
    from veena.sim.runs.run import Report

#: What the table of a run shows of its events, in the order of the report.
SHOWN = (
    "events", "expected", "delivered", "missing", "duplicates", "out_of_order", "spurious", "unaccepted",
    "unacknowledged", "late",
    "dropped", "expired", "slowest_seconds", "wasted_units", "digest_false_positives", "link_crossings",
    "optimum_crossings", "flood_crossings", "crossings_per_link_max",
)  # fmt: skip
#: What is added up over the seeds of a soak.
TOTALS = ("events", "expected", "delivered", "missing", "duplicates", "out_of_order", "late", "dropped", "expired")

app = typer.Typer(help="Worlds of real brokers on a virtual clock and network.", no_args_is_help=True)

NetworkOption = Annotated[
    Path | None,
    typer.Option(
        "--network",
        help="A network file; without it a small one is generated from the seed.",
        autocompletion=toml_files,
    ),
]
FaultsOption = Annotated[str, typer.Option("--faults", help="none, links, crash, partition or all.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


EventsOption = Annotated[
    int | None, typer.Option("--events", min=0, help="Events to publish; by default 50, 150 or 300, by the seed.")
]
BrokersOption = Annotated[
    int | None,
    typer.Option("--brokers", min=1, help="Brokers of a generated network; by default 22 to 300, by the seed."),
]

GuestsOption = Annotated[
    int, typer.Option("--guests", min=0, help="Brokers that ask to be let in meanwhile, through the registrars.")
]
NarrowOption = Annotated[
    int, typer.Option("--narrow", min=0, help="How often a link takes only few bytes a second for a while.")
]
BreaksOption = Annotated[
    int, typer.Option("--breaks", min=0, help="How often a broker's core raises over a frame, and is made anew.")
]
LiarsOption = Annotated[
    int, typer.Option("--liars", min=0, help="How often a broker lies to other super-clusters about their units.")
]
SignedOption = Annotated[
    bool, typer.Option("--signed", help="Brokers sign what they say to other super-clusters, with real keys.")
]
CostlyOption = Annotated[
    bool, typer.Option("--costly", help="Many subscriptions cost more than brokers spend in their loops.")
]


@app.command()
def run(
    seed: Annotated[int, typer.Option(help="Everything that happens follows from this number.")],
    network: NetworkOption = None,
    events: EventsOption = None,
    faults: FaultsOption = "none",
    brokers: BrokersOption = None,
    guests: GuestsOption = 0,
    narrow: NarrowOption = 0,
    breaks: BreaksOption = 0,
    liars: LiarsOption = 0,
    signed: SignedOption = False,
    costly: CostlyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate one seed and judge it; exit code 1 when an invariant is broken."""
    from veena.sim.runs.run import run_seed

    report = run_seed(
        seed, faults, _load(network), events=events, brokers=brokers, guests=guests, narrow=narrow, breaks=breaks,
        costly=costly, liars=liars, signed=signed,
    )  # fmt: skip
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
    events: EventsOption = None,
    brokers: BrokersOption = None,
    guests: GuestsOption = 0,
    narrow: NarrowOption = 0,
    breaks: BreaksOption = 0,
    liars: LiarsOption = 0,
    signed: SignedOption = False,
    costly: CostlyOption = False,
    jobs: Annotated[int, typer.Option(min=1, help="Seeds at a time, each in a process of its own.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Run seed after seed; exit code 1 and the seed's number when an invariant is broken."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from veena.sim.runs import soak as soaking

    if not (0 < seconds < float("inf")) and not seeds:
        raise typer.BadParameter("say when to stop: --seconds above 0, or --seeds")
    start = first if first is not None else (1 if seeds else int(time.time()))
    reports = soaking.soak(
        start, faults, _load(network), seeds=seeds, seconds=seconds, jobs=jobs, events=events, brokers=brokers,
        guests=guests, narrow=narrow, breaks=breaks, costly=costly, liars=liars, signed=signed,
    )  # fmt: skip
    totals: Counter[str] = Counter()
    broken: list[int] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = Progress(*columns, console=Console(stderr=True), disable=as_json, transient=True)
    with _stoppable(), closing(reports), shown as progress:
        task = progress.add_task("seeds", total=seeds or None)
        for report in reports:
            totals["seeds"] += 1
            totals.update({name: getattr(report, name) or 0 for name in TOTALS})
            totals["excused"] += len(report.excused)
            totals["joined"] += report.joined
            totals["renewals"] += report.renewals
            totals["evaluated"] += report.evaluated
            if not report.is_sound:
                broken.append(report.seed)
                progress.console.print(f"seed {report.seed}: {_verdict(report)}")
            progress.update(task, advance=1, description=f"seeds, {len(broken)} broken")
    if as_json:
        typer.echo(json.dumps({**totals, "faults": faults, "broken": broken}))
    else:
        counts = ", ".join(
            f"{name.replace('_', ' ')} {totals[name]:,}"
            for name in (*TOTALS, "excused", "joined", "renewals", "evaluated")
        )
        typer.echo(f"{totals['seeds']} seeds, faults {faults}: {len(broken)} broken {broken or ''}\n{counts}")
    if broken:
        extra = {"guests": guests, "narrow": narrow, "breaks": breaks}
        given = {"network": network, "brokers": brokers, "events": events} | {k: n or None for k, n in extra.items()}
        typer.echo(f"repeat with: veena sim run --seed {broken[0]} --faults {faults}{_options(given)}", err=True)
        raise typer.Exit(1)


@app.command()
def explain(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 100,
    first: Annotated[int, typer.Option(help="The first seed.")] = 1,
    faults: FaultsOption = "all",
    brokers: BrokersOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="Seeds at a time, each in a process of its own.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Ask in simulated runs what became of events, and hold each answer against the oracle; exit code 1 if one is
    wrong."""
    from rich.console import Console
    from rich.progress import Progress

    from veena.sim.explaining.questions import explain_seeds

    totals: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong: list[dict[str, object]] = []
    reports = explain_seeds(first, seeds, faults, brokers=brokers, jobs=jobs)
    with _stoppable(), closing(reports), Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("seeds", total=seeds)
        for report in reports:
            totals.update(
                seeds=1, asked=report.asked, right=report.right, unanswered=report.unanswered, exact=report.exact,
                plausible=report.plausible, unknown_to_all=report.unknown_to_all, lies=sum(report.lies.values()),
                believed=sum(report.believed.values()),
            )  # fmt: skip
            reasons.update(report.reasons)
            if not report.is_sound:
                faulty = {"wrong": report.wrong, "broken": report.broken, "believed": report.believed}
                wrong.append({"seed": report.seed, **faulty})
            progress.update(task, advance=1, description=f"seeds, {totals['right']} of {totals['asked']} answers right")
    if as_json:
        found = {**totals, "faults": faults, "reasons": dict(sorted(reasons.items())), "wrong": wrong}
        typer.echo(json.dumps(found))
    else:
        typer.echo(
            f"{totals['seeds']} seeds, faults {faults}: {totals['right']:,} of {totals['asked']:,} answers are right"
        )
        for reason, count in reasons.most_common():
            typer.echo(f"  {reason:<15}{count:>8,}")
        typer.echo(
            f"unknown although every broker answered: {totals['unknown_to_all']:,}. Of those about wanted events"
            f" {totals['exact']:,} agree with the oracle in everything and {totals['plausible']:,} cannot be refuted.\n"
            f"lies that the oracle was told beside right answers: {totals['lies']:,}, of which it believed"
            f" {totals['believed']:,}"
        )
        for each in wrong:
            typer.echo(f"seed {each['seed']}: {each['broken'] or ''} {each['wrong']} {each['believed'] or ''}")
    if wrong:
        raise typer.Exit(1)


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="sim")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP leave the block in good order, and the command exits with 128 and the signal's number:
    1 would say that a seed is broken."""
    told: list[int] = []
    before: dict[int, Any] = {}

    def stop(number: int, _: object) -> None:
        told.append(number)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()  # no other thread is told
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if is_main else ():
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` has it ignored
            before[number] = signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt:
        if not told:
            raise
        raise typer.Exit(128 + told[0]) from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _load(path: Path | None) -> Network | None:
    from veena.runtime.networks.file import load_network

    return None if path is None else load_network(path, connected=True)


def _options(given: Mapping[str, object]) -> str:
    return "".join(f" --{name} {value}" for name, value in given.items() if value is not None)


def _verdict(report: Report) -> str:
    if report.broken is not None:
        return f"invariant broken: {report.broken}"
    if report.clashes:
        return f"an address was given twice: {report.clashes[0]}"
    if report.false_statements:
        return (
            f"{len(report.false_statements)} statements are believed that nobody signed: {report.false_statements[0]}"
        )
    if report.wrong_maps:
        return f"{len(report.wrong_maps)} maps differ from the oracle's: {', '.join(report.wrong_maps[:4])}"
    if report.wrong_hops:
        return f"{len(report.wrong_hops)} ways lead nowhere: {', '.join(report.wrong_hops[:4])}"
    if report.interest_narrower or report.interest_wider:
        return (
            f"brokers believe {report.interest_narrower} units to want less, {report.interest_wider} more than they do"
        )
    if report.wrong:
        kinds = ("missing", "duplicates", "out_of_order", "spurious", "unaccepted", "unacknowledged")
        counts = ", ".join(
            f"{getattr(report, kind)} {kind.replace('_', ' ')}" for kind in kinds if getattr(report, kind)
        )
        return f"{counts}: {report.wrong[0]}"
    if not report.is_sound:
        return (
            f"events entered {report.wasted_units} units in vain, and digests explain {report.digest_false_positives}"
        )
    ways = "every way leads to its unit" if report.hops_judged else "ways not judged: a unit is in pieces for ever"
    events = f", {report.delivered:,} deliveries as promised" if report.delivered is not None else ""
    return f"every map right, {ways}, every want known{events}"


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"seed {report.seed}", show_header=False)
    for name, value in report.options.items():
        table.add_row(name, str(value))
    for name in ("brokers", "joined", "steps", "frames", "virtual_seconds", *SHOWN, "trace_hash"):
        value = getattr(report, name)
        table.add_row(f"[bold]{name}", "[dim]not measured" if value is None else str(value))
    console.print(table)
    for fault in report.faults:
        console.print(f"  {fault}", highlight=False)
    for line in (*(f"wrong: {each}" for each in report.wrong), *(f"excused: {each}" for each in report.excused[:20])):
        console.print(f"  {line}", highlight=False, markup=False)
    console.print(f"[{'green' if report.is_sound else 'red'}]{_verdict(report)}")
