"""`veena bench broker`: one broker under load, as ratios within one run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli import EXIT_BROKEN, EXIT_USAGE

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from veena.bench.load.rows import Figures
    from veena.bench.load.subscribing import Subscribed

#: Rooms of a row that are told.
ROOMS = 6
#: What the tables fit.
COLUMNS = 100
#: What `--all` asks for.
ALL_FOREIGN, ALL_SUBSCRIBING = 1_000, 10_000


def broker_command(
    seconds: Annotated[float, typer.Option(min=0.1, max=60, help="How long each rate is measured.")] = 2.0,
    receivers: Annotated[int, typer.Option(min=1, max=1000, help="Receivers of each event in the fan-out.")] = 100,
    subscriptions: Annotated[
        int, typer.Option(min=100, max=200_000, help="Subscriptions whose memory is measured.")
    ] = 100_000,
    row: Annotated[list[str] | None, typer.Option(help="Rows by what events and interests are like.")] = None,
    foreign: Annotated[
        int, typer.Option(min=0, max=10_000, help="The rows also in a network with so many foreign constraints a kind.")
    ] = 0,
    subscribing: Annotated[
        int, typer.Option(min=0, max=100_000, help="Also so many subscriptions of each kind: how many a second.")
    ] = 0,
    client: Annotated[bool, typer.Option("--client", help="Also what one client in Python publishes.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also where the broker's time goes, by room, in each row.")
    ] = False,
    run_all: Annotated[
        bool, typer.Option("--all", help="Every row, alone and with foreign ones, subscribing, client; 6 minutes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts, a line a row.")] = False,
) -> None:
    """A broker in a process of its own, loaded over plain sockets: rates, latency and memory.

    Every delivery is counted and compared; bodies have 100 bytes. Best effort unless it says reliable, which is synced.
    With --row, --foreign, --subscribing, --client or --all: events that differ; broker and load have a processor each.
    """
    from veena.bench.load.content import ROWS
    from veena.bench.progress import progress

    names = list(ROWS) if run_all or (foreign and not row) else list(row or ())
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        print(f"veena: --row {unknown[0]!r}: expected one of {', '.join(ROWS)}", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE)
    with progress() as say:
        try:
            if not names and not subscribing and not client:
                _summary(seconds, receivers, subscriptions, as_json, say)
                return
            is_whole = _rows(
                names, seconds, foreign or (ALL_FOREIGN if run_all else 0), profile or run_all, as_json, say
            )
            is_whole &= _subscribing(subscribing or (ALL_SUBSCRIBING if run_all else 0), as_json, say)
            if client or run_all:
                _client(seconds, as_json, say)
        except (RuntimeError, OSError) as error:
            print(f"veena: {error}", file=sys.stderr)
            raise typer.Exit(EXIT_BROKEN) from None
    if not is_whole:
        raise typer.Exit(EXIT_BROKEN)


def _summary(seconds: float, receivers: int, subscriptions: int, as_json: bool, say: Callable[[str], None]) -> None:
    from rich.console import Console
    from rich.table import Table

    from veena.bench.load.broker import measure
    from veena.bench.matching.report import machine

    found = measure(seconds, receivers, subscriptions, max(100, round(1000 * seconds)), say)
    if as_json:
        print(json.dumps(found.line()))
        return
    table = Table("", "", title=machine(), title_justify="left", show_header=False)
    for name, value in found.rows():
        table.add_row(name, value)
    Console().print(table)


def _console() -> Console:
    """As wide as the tables, also where the width is not known."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=COLUMNS)


def _rows(
    names: list[str], seconds: float, foreign: int, profile: bool, as_json: bool, say: Callable[[str], None]
) -> bool:
    """Whether every row was measured."""
    from veena.bench.load.rows import measure

    # Rows are measured beside the first one, equal headers.
    names = ["alike", *(name for name in names if name != "alike")] if names else []
    found = []
    for each in measure(names, seconds, foreign, say, profile) if names else ():
        found.append(each)
        if as_json:
            print(json.dumps(each.line()), flush=True)
    if found and not as_json:
        console = _console()
        for count in dict.fromkeys(each.foreign for each in found):
            console.print(_table([each for each in found if each.foreign == count], count))
        for line in _notes(found):
            console.print(line)
        if profile:
            console.print(_profile(found))
    return not any(each.fault for each in found)


def _table(found: list[Figures], foreign: int) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from veena.bench.matching.report import machine

    where = f"{foreign:,} foreign constraints a kind" if foreign else machine()
    table = Table(title=where, title_justify="left", box=SIMPLE_HEAD)
    ratio = "x alone" if foreign else "x alike"
    for head in ("row", "matches", "events/s", ratio, "CPU us", "deliveries/s", "reliable/s", ratio):
        table.add_column(head, justify="left" if head == "row" else "right", no_wrap=True)
    for each in found:
        rates = (each.to_alone, each.reliable_to_alone) if foreign else (each.to_alike, each.reliable_to_alike)
        best, reliable = ("" if rate is None else f"{rate:.3f}" for rate in rates)
        cells = (
            f"{each.per_second:,.0f}", best, f"{each.cpu_us:.2f}", f"{each.deliveries_per_second:,.0f}",
            f"{each.reliable_per_second:,.0f}", reliable,
        )  # fmt: skip
        table.add_row(each.row, f"{each.matches:.3g}", *(cells if not each.fault else ()))
    return table


def _profile(found: list[Figures]) -> Table:
    """Microseconds of an event by row and room."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="where the broker's time goes", title_justify="left", box=SIMPLE_HEAD)
    for head in ("row", "room", "us an event", "functions"):
        table.add_column(head, justify="right" if head == "us an event" else "left", no_wrap=head != "functions")
    for each in found:
        for at, (room, us, functions) in enumerate(each.rooms()[:ROOMS]):
            table.add_row("" if at else each.row, room, f"{us:.2f}", ", ".join(functions[:3]))
    return table


def _notes(found: list[Figures]) -> list[str]:
    """What a table has no column for."""
    faults = [f"{each.row}: not measured: {each.fault}" for each in found if each.fault]
    scans = [
        f"{each.row}: of {each.cpu_us:,.0f} us an event matching takes {each.matching_us:,.0f}, delivering"
        f" {each.delivering_us:,.0f}; a scan makes {each.scan_per_second:,.1f} events/s: {each.to_scan:.1f} x"
        for each in found
        if each.to_scan is not None
    ]
    return faults + scans


def _client(seconds: float, as_json: bool, say: Callable[[str], None]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from veena.bench.load.python_client import measure

    table = Table(title="one client in Python", title_justify="left", box=SIMPLE_HEAD)
    for head in ("way", "events", "a second", "client's CPU us"):
        table.add_column(head, justify="left" if head in ("way", "events") else "right", no_wrap=True)
    for each in measure(seconds, say):
        if as_json:
            print(json.dumps(each.line()), flush=True)
        table.add_row(each.what, each.events, f"{each.per_second:,.0f}", f"{each.cpu_us:.2f}")
    if not as_json:
        _console().print(table)


def _subscribing(wanted: int, as_json: bool, say: Callable[[str], None]) -> bool:
    """Whether all became active."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from veena.bench.load.subscribing import KINDS, measure

    found: list[Subscribed] = []
    for each in measure(wanted, KINDS, say) if wanted else ():
        found.append(each)
        if as_json:
            print(json.dumps(each.line()), flush=True)
    if found and not as_json:
        table = Table(title="subscribing, four clients", title_justify="left", box=SIMPLE_HEAD)
        for head in ("kind", "active", "a second", "first 1,000 ms", "last 1,000 ms", "last to first"):
            table.add_column(head, justify="left" if head == "kind" else "right", no_wrap=True)
        for each in found:
            table.add_row(
                each.kind, f"{each.count:,} of {each.wanted:,}", f"{each.per_second:,.0f}", f"{each.first_ms:,.0f}",
                f"{each.last_ms:,.0f}", f"{each.last_to_first:.2f}",
            )  # fmt: skip
        _console().print(table)
    return all(each.count >= each.wanted for each in found)
