"""`veena topology`: look at a network file, judge it, draw it, make a new one; or look at a network that runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from veena.cli.completion import brokers, toml_files
from veena.cli.connection import CaOption, UserOption
from veena.cli.plain import cell
from veena.errors import ConfigError, InvalidAddress

app = typer.Typer(help="The shape of a network: maps, routes, gates, partitions.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(help="A network file.", autocompletion=toml_files)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command()
def show(
    file: FileArgument,
    at: Annotated[
        str, typer.Option("--at", help="The broker whose map to show, such as SSC-A.SC-1.c.6.", autocompletion=brokers)
    ],
    as_json: JsonOption = False,
) -> None:
    """The map of one broker, built by message passing: edges, cheapest paths, next hops, targets."""
    from veena.runtime.networks.file import load_network
    from veena.sim.world.map_view import show as show_map

    network = load_network(file, connected=True)
    try:
        address = network.labels.unit(at)
    except InvalidAddress as error:
        raise ConfigError(str(file), f"--at {at}", str(error), "name a broker of this network") from None
    if len(address) != network.levels:
        raise ConfigError(str(file), f"--at {at}", "is a larger unit", f"name a broker in it, such as {at}.…")
    view = show_map(network, address)
    if as_json:
        typer.echo(json.dumps(view))
    else:
        _show_view(view)


@app.command()
def live(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", envvar="VEENA_URL", help="A broker; veena://127.0.0.1:7700 without.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that it has to answer.")] = 5.0,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """The network as a running broker sees it now: its links with round trip, load and cost, and its map."""
    from veena.cli.connection import client, run

    async def ask() -> None:
        async with client([url] if url else None, None, user, ca, timeout=timeout) as connected:
            view = await connected.topology(timeout=timeout)
        if as_json:
            typer.echo(json.dumps(view))
        else:
            _show_links(view)
            _show_view(view)

    run(ask())


@app.command()
def check(file: FileArgument, as_json: JsonOption = False) -> None:
    """Validate a network file; list partitions, brokers whose loss would cause one, and who controls what."""
    from veena.runtime.networks.file import (
        articulation_brokers,
        check_connected,
        controllers,
        gatekeepers,
        load_network,
        partitions,
    )

    network = load_network(file)
    label = network.labels.label
    apart = partitions(network)
    report: dict[str, Any] = {
        "name": network.name,
        "levels": network.levels,
        "brokers": len(network.brokers),
        "links": len(network.links),
        "gatekeepers": {str(level): len(found) for level, found in gatekeepers(network).items()},
        "partitions": [
            {"unit": label(p.context) if p.context else "", "parts": [[label(u) for u in part] for part in p.parts]}
            for p in apart
        ],
        "articulation_brokers": [
            {
                "broker": label(found.broker),
                "whole": found.whole,
                "units": [label(u) if u else "" for u in found.units],
            }
            for found in articulation_brokers(network)
        ],
        "controllers": {label(unit): [label(a) for a in found] for unit, found in controllers(network).items()},
    }
    if as_json:
        typer.echo(json.dumps(report))
        if apart:
            raise typer.Exit(2)
        return
    check_connected(network, str(file), file.read_text(encoding="utf-8"))
    _show_check(report)


@app.command()
def draw(
    file: FileArgument,
    out: Annotated[Path, typer.Option("--out", help="A file that ends in .svg or .png.")],
    within: Annotated[str, typer.Option(help="Draw only this unit, such as SSC-A.SC-1.")] = "",
) -> None:
    """A picture that nests clusters in super-clusters and shows gateways by level."""
    from veena.runtime.networks.file import load_network
    from veena.sim.networks.drawing import draw_png, draw_svg

    network = load_network(file)
    unit = network.labels.unit(within) if within else ()
    if out.suffix not in {".svg", ".png"}:
        raise ConfigError("--out", str(out), "ends in neither .svg nor .png", "name the kind of picture by its ending")
    _prepare(out)
    if out.suffix == ".svg":
        out.write_text(draw_svg(network, unit), encoding="utf-8")
    else:
        draw_png(network, out, unit)
    typer.echo(f"{out}: {len(network.brokers)} brokers, {len(network.links)} links")


@app.command()
def generate(
    brokers: Annotated[int, typer.Option(help="How many brokers.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same network.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where to write it; otherwise to standard output.")] = None,
    levels: Annotated[int, typer.Option(help="Levels of the hierarchy.")] = 4,
    fanout: Annotated[int, typer.Option(help="Most sub-units in a unit: 32 or 64.")] = 32,
    long_links: Annotated[float, typer.Option(help="Share of brokers that join large units in addition.")] = 0.0,
) -> None:
    """Make a hierarchical small-world network as a network file."""
    from veena.runtime.networks.file import dump_network
    from veena.sim.networks.generate import generate as make

    text = dump_network(make(brokers, seed, levels, fanout, long_links=long_links))
    if out is None:
        typer.echo(text, nl=False)
        return
    _prepare(out)
    out.write_text(text, encoding="utf-8")
    typer.echo(f"{out}: {brokers} brokers")


@app.command()
def statistics(file: FileArgument, as_json: JsonOption = False) -> None:
    """Pathlength and clustering coefficient of a network."""
    from veena.runtime.networks.file import load_network
    from veena.runtime.networks.statistics import statistics as measure

    found = measure(load_network(file), sample=500)
    values = {name: getattr(found, name) for name in found.__dataclass_fields__}
    if as_json:
        values = {name: None if value == float("inf") else value for name, value in values.items()}
        typer.echo(json.dumps(values))
    else:
        for name, value in values.items():
            typer.echo(f"{name:<24} {value:.3f}" if isinstance(value, float) else f"{name:<24} {value}")


@app.command()
def growth(
    out: Annotated[Path, typer.Option("--out", help="The picture, a .png file.")] = Path("out/growth.png"),
    largest: Annotated[int, typer.Option(help="The largest network: a power of 3.")] = 19_683,
    as_json: JsonOption = False,
) -> None:
    """How pathlength grows while networks grow threefold: the logarithm that the papers promise."""
    from veena.sim.networks.growth import fit_logarithm, plot_growth

    sizes = [size for size in (3**power for power in range(3, 14)) if size <= largest]
    _prepare(out)
    with typer.progressbar(length=len(sizes), label="networks", file=sys.stderr) as bar:
        found = plot_growth(out, sizes, progress=lambda _: bar.update(1))
    fit = fit_logarithm(found)
    if as_json:
        typer.echo(json.dumps([{name: getattr(row, name) for name in row.__dataclass_fields__} for row in found]))
        return
    for row in found:
        typer.echo(f"{row.brokers:>7} brokers  pathlength {row.pathlength:6.2f}  clustering {row.clustering:5.3f}")
    typer.echo(f"pathlength = {fit.slope:.2f} log2(n) {fit.offset:+.2f}, R2 = {fit.r_squared:.3f}\n{out}")


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="topology")


def _prepare(out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("ab"):
            pass
    except OSError as error:
        raise ConfigError("--out", str(out), f"cannot be written ({error.strerror})", "name another file") from None


def _show_view(view: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    edges = Table(title=f"the map at {view['at']}")
    for column in ("from", "to", "level", "cost", "links"):
        edges.add_column(column, justify="right" if column in {"level", "cost", "links"} else "left")
    for edge in view["edges"]:
        edges.add_row(cell(edge["a"]), cell(edge["b"]), str(edge["level"]), str(edge["cost"]), str(edge["links"]))
    routes = Table(title="ways to units")
    for column in ("unit", "cost", "cheapest path", "next hop"):
        routes.add_column(column, justify="right" if column == "cost" else "left")
    for unit, route in view["routes"].items():
        path = " > ".join(step.rsplit(".", 1)[-1] for step in route["path"])
        routes.add_row(cell(unit), str(route["cost"]), cell(path), cell(route["hop"] or "none"))
    console.print(edges, routes)
    for level, found in view["targets"].items():
        console.print(f"a change at level {level} goes to: {cell(', '.join(found) or 'nobody')}", highlight=False)


def _show_links(view: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    links = Table(title=f"the links of {view['at']}")
    for column in ("to", "level", "state", "round trip", "cost", "load", "waiting"):
        links.add_column(column, justify="left" if column in {"to", "state"} else "right")
    for link in view["links"]:
        trip, load = link["round_trip_ms"], link["load"]
        links.add_row(
            escape(link["to"]),
            str(link["level"]),
            f"[red]{link['state']}[/]" if link["suspected"] else link["state"],
            "not measured yet" if trip is None else f"{trip:.2f} ms",
            "absent" if link["cost"] is None else str(link["cost"]),
            "" if load is None else f"{load:.0%}",
            str(link["waiting"]),
        )
    console.print(links)
    for edge in view["absent"]:
        text = f"suspected or overloaded, in no path: {edge['a']} - {edge['b']} at level {edge['level']}"
        console.print(text, style="red", highlight=False, markup=False)


def _show_check(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{report['name']}: {report['brokers']} brokers, {report['links']} links", highlight=False)
    table = Table("unit", "controllers")
    for unit, found in report["controllers"].items():
        table.add_row(unit, ", ".join(found))
    console.print(table)
    critical = Table("broker", "its loss would part", title="articulation brokers")
    for entry in report["articulation_brokers"]:
        units = ", ".join(unit or "the highest units" for unit in entry["units"])
        critical.add_row(entry["broker"], f"the network; {units}" if entry["whole"] else units)
    console.print(critical if report["articulation_brokers"] else "no single broker's loss would part anything")
