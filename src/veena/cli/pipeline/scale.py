"""`veena pipeline scale`: what the hierarchy does with a million brokers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli import EXIT_BROKEN
from veena.cli.completion import toml_files
from veena.cli.pipeline.group import JsonOption, MasterOption, MemoryOption, UiPortOption
from veena.errors import PipelineError

if TYPE_CHECKING:
    from veena.runtime.networks.file import Network
    from veena.spark.scale.network import Shape
    from veena.spark.scale.scale import Report, Task

#: The exact simulator's share: following an event through more brokers one by one takes too long.
CHECKED_BROKERS_MAX = 3_000


def scale(
    fanout: Annotated[int, typer.Option("--fanout", min=1, max=64, help="Sub-units of every unit.")] = 32,
    levels: Annotated[int, typer.Option("--levels", min=1, max=8, help="4: brokers up to super-super-clusters.")] = 4,
    long_links: Annotated[
        float, typer.Option("--long-links", help="Extra links between large units, as a share of the brokers.")
    ] = 0.0,
    network: Annotated[
        Path | None, typer.Option("--network", help="A network file instead.", autocompletion=toml_files)
    ] = None,
    interest: Annotated[
        list[str] | None, typer.Option("--interest", help="10%, local:1 or zipf; any number of times.")
    ] = None,
    events: Annotated[int, typer.Option("--events", min=1, help="Events of each interest.")] = 8,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Pairs of brokers whose ways are measured.")] = 20_000,
    topics: Annotated[int, typer.Option("--topics", min=1, help="Topics of the Zipf interest.")] = 10_000,
    interests: Annotated[int, typer.Option("--interests", min=1, help="Subscriptions at each broker.")] = 10,
    zipf: Annotated[float, typer.Option("--zipf", min=0, help="Exponent of the topics' popularity.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Network, wants and publishers follow from this number.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="Where scale.json and scale.png go.")] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help=f"Compare with the exact simulator (up to {CHECKED_BROKERS_MAX:,} brokers)."),
    ] = False,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Path lengths, copies, load of controllers and stored profiles of a hierarchy of any size, beside flooding.

    Without options: 32^4 = 1,048,576 brokers. With --check the exact simulator computes the same on the same network;
    exit code 1 when a number differs.
    """
    from veena.runtime.networks.file import load_network
    from veena.spark.launch.progress import watch
    from veena.spark.launch.session import session
    from veena.spark.scale.interest import USUAL, Popularity
    from veena.spark.scale.interest import interest as read
    from veena.spark.scale.network import regular, shape_of
    from veena.spark.scale.scale import Task
    from veena.spark.scale.scale import scale as work_out

    if master.startswith("sc://"):
        raise PipelineError(f"--master {master}: tables go to executors, which Spark Connect cannot do; take another")
    popularity = Popularity(topics, interests, zipf)
    task = Task(tuple(read(text, popularity) for text in interest or USUAL), popularity, events, pairs, seed)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    given = load_network(network, connected=True) if network is not None else None
    brokers = len(given.brokers) if given is not None else fanout**levels
    if check and brokers > CHECKED_BROKERS_MAX:
        raise PipelineError(f"--check: {brokers:,} brokers, the exact simulator takes up to {CHECKED_BROKERS_MAX:,}")
    shape = shape_of(given) if given is not None else regular(fanout, levels, seed, long_links)
    spark = session(master, "veena pipeline scale", memory=memory, ui_port=ui_port)
    with watch(spark, f"{shape.brokers:,} brokers"):
        report = work_out(spark, shape, task)
    differences = _differences(given, shape, task, report, fanout, long_links) if check else None
    _tell(report, differences, out, as_json)


def _tell(report: Report, differences: list[str] | None, out: Path | None, as_json: bool) -> None:
    from veena.spark.scale import report as scale_report

    if out is not None:
        (out / "scale.json").write_text(json.dumps(report.plain(), indent=2) + "\n", encoding="utf-8")
        scale_report.draw(report, out / "scale.png")
    if as_json:
        print(json.dumps({**report.plain(), "differences": differences}))
    else:
        scale_report.show(report)
        if differences == []:
            print("the exact simulator finds the same numbers")
    for difference in differences or ():
        print(f"veena: {difference}", file=sys.stderr)
    if differences or any(line.entered_twice for line in report.crossings):
        raise typer.Exit(EXIT_BROKEN)


def _differences(
    given: Network | None, shape: Shape, task: Task, report: Report, fanout: int, long_links: float
) -> list[str]:
    """Where the exact simulator, asked for the same events and pairs on the same network, finds other numbers."""
    import numpy as np

    from veena.address import DEFAULT_FANOUT
    from veena.sim.networks.generate import generate
    from veena.sim.networks.whole_view import WholeView
    from veena.spark.scale.interest import pairs

    if given is None:
        most = max(DEFAULT_FANOUT, 64 if fanout > DEFAULT_FANOUT else 0)
        given = generate(shape.brokers, task.seed, shape.levels, most, cluster=fanout, long_links=long_links)
    view = WholeView(given)
    addresses = sorted(broker.address for broker in given.brokers)
    found: list[str] = []
    for kind, line in zip(task.interests, report.crossings, strict=True):
        exact = 0
        for number in range(task.events):
            origin, wanting = kind.shot(shape, task.seed, number)
            exact += len(view.crossings(addresses[origin], [addresses[at] for at in np.flatnonzero(wanting)]))
        if exact != line.crossings:
            found.append(f"{line.interest}: {line.crossings} copies here, {exact} in the simulator")
    starts, ends = pairs(shape, task.seed, np.arange(task.pairs))
    ways = [len(view.crossings(addresses[a], [addresses[b]])) for a, b in zip(starts, ends, strict=True)]
    whole = report.paths[-1]
    if (sum(ways) / len(ways), max(ways)) != (whole.hops_mean, whole.hops_max):
        found.append(
            f"hops {whole.hops_mean}, at most {whole.hops_max} here; {sum(ways) / len(ways)}, {max(ways)} there"
        )
    return found


def register(group: typer.Typer) -> None:
    group.command("scale")(scale)
