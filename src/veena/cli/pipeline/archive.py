"""`veena pipeline archive`: what brokers log becomes Parquet files, each row once, until Ctrl-C or for once."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli.connection import CaOption, UrlOption, UserOption
from veena.cli.pipeline.group import (
    JsonOption,
    MasterOption,
    MemoryOption,
    UiPortOption,
    ended_by_signals,
    reading_options,
)
from veena.errors import PipelineError

if TYPE_CHECKING:
    from veena.spark.archive.archive import Report
    from veena.spark.archive.table import Plan, TableReport

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
#: A batch costs tenths of a second whatever it holds; and a day is the longest that anybody waits for a file.
TRIGGER_S_MIN = 0.1
TRIGGER_S_MAX = 86_400.0
#: Longer than any archive lives, and far from the first year that a date can have.
KEEP_S_MAX = 36_500 * 86_400.0


def archive(
    out: Annotated[str, typer.Option("--out", help="The directory of the archive; made if it is not there.")],
    url: UrlOption = None,
    tables: Annotated[
        str | None,
        typer.Option("--tables", help="Of events,deliveries,hops,profiles; without it all that brokers keep."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there now is archived.")] = False,
    trigger: Annotated[str, typer.Option("--trigger", help="How often, as 5s or 1m.")] = "5s",
    rows_per_batch: Annotated[
        int, typer.Option("--rows-per-batch", min=1, help="Rows of a table that are committed together, at most.")
    ] = 2_000_000,
    rows_per_task: Annotated[int, typer.Option("--rows-per-task", min=1, help="Rows of a task, at most.")] = 200_000,
    compact: Annotated[bool, typer.Option("--compact", help="Merge small files, also while archiving.")] = False,
    compact_only: Annotated[
        bool, typer.Option("--compact-only", help="Merge small files and nothing else; no broker is asked.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on behind rows that brokers have given up, and list them.")
    ] = False,
    adverts: Annotated[
        str | None,
        typer.Option("--adverts", help="Also a snapshot of what is advertised, so often, as 10m; see adverts."),
    ] = None,
    adverts_keep: Annotated[
        str | None,
        typer.Option("--adverts-keep", help="Remove snapshots that are of no use for this time, as 30d; else none."),
    ] = None,
    only_named: Annotated[bool, typer.Option("--only-named", help="Only the brokers of the URLs.")] = False,
    user: UserOption = "",
    ca: CaOption = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Archive what brokers log as Parquet, by table and day, each row once, whatever is killed meanwhile."""
    from veena.spark.archive.archive import directory_of, merge, run
    from veena.spark.archive.table import Plan
    from veena.spark.launch.session import OWN_STREAMS, session
    from veena.spark.source.options import parse

    wanted = None if tables is None else _tables(tables)
    trigger_s = None if once else _seconds(trigger, "--trigger")
    adverts_s = None if adverts is None else _seconds(adverts, "--adverts")
    keep_s = _keep_seconds(adverts_keep, adverts)
    options = reading_options(url, user, ca) | ({"brokers": "named"} if only_named else {})
    plan = Plan(directory_of(out), options, rows_per_batch, rows_per_task, compact, accept_loss)
    parse(plan.options)  # what is wrong is said before Spark starts
    plan.out.mkdir(parents=True, exist_ok=True)
    spark = session(master, "veena-archive", memory=memory, ui_port=ui_port, conf=OWN_STREAMS)
    over = threading.Event()
    if compact_only:
        report = merge(spark, plan.out, *(() if wanted is None else (wanted,)))
    else:
        with ended_by_signals(over), _adverts_kept(plan, adverts_s, keep_s), _shown(as_json) as tell:
            report = run(spark, plan, wanted, trigger_s=trigger_s, tell=tell, over=over)
    spark.stop()
    _print(report, as_json)


def _tables(text: str) -> tuple[str, ...]:
    from veena.spark.log.tables import TABLES

    wanted = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [name for name in wanted if name not in TABLES]
    if unknown or not wanted:
        raise PipelineError(f"--tables {text!r}: choose from {', '.join(TABLES)}, separated by commas")
    return wanted


def _read_time(text: str) -> float:
    """Seconds; 0 for what is no time."""
    found = _TIME.fullmatch(text.strip())
    return float(found[1]) * _SECONDS[found[2] or "s"] if found else 0.0


def _seconds(text: str, option: str) -> float:
    seconds = _read_time(text)
    if not TRIGGER_S_MIN <= seconds <= TRIGGER_S_MAX:
        raise PipelineError(f"{option} {text!r}: write a time from 100ms to 24h, as 5s, 500ms or 1m")
    return seconds


def _keep_seconds(keep: str | None, adverts: str | None) -> float | None:
    if keep is None:
        return None
    if adverts is None:
        raise PipelineError(f"--adverts-keep {keep!r}: is for snapshots; say with --adverts how often they are taken")
    seconds = _read_time(keep)
    if not 0 < seconds <= KEEP_S_MAX:
        raise PipelineError(f"--adverts-keep {keep!r}: write a time, as 12h or 30d")
    return seconds


@contextmanager
def _adverts_kept(plan: Plan, every_s: float | None, keep_s: float | None) -> Iterator[None]:
    """Snapshots of what is advertised meanwhile, the first at once; none is begun after the block, all are ended."""
    if every_s is None:
        yield
        return
    from veena.spark.analyze.adverts import keep_adverts
    from veena.spark.source.options import parse

    asked = parse(plan.options)
    over = threading.Event()
    arguments = (plan.out, asked.urls, asked.access, every_s, over, keep_s)
    thread = threading.Thread(target=keep_adverts, args=arguments, name="veena-adverts")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _shown(as_json: bool) -> Iterator[Callable[[TableReport], None]]:
    """How far each table is: lines of JSON for scripts, a live table for people, nothing where nobody looks."""
    if as_json:
        yield lambda report: print(json.dumps({"progress": _told(report)}), flush=True)
        return
    if not sys.stderr.isatty():
        yield lambda report: None
        return
    from rich.console import Console
    from rich.live import Live

    reports: dict[str, TableReport] = {}
    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:

        def tell(report: TableReport) -> None:
            reports[report.table] = report
            live.update(_grid(reports.values()))

        yield tell


def _grid(reports: Any) -> Any:
    from rich.table import Table

    grid = Table("table", "rows", "new", "files", "MiB", "batches", "lost")
    for each in reports:
        lost = sum(gap.end - gap.start for gap in each.gaps)
        size = f"{each.bytes / (1 << 20):,.1f}"
        cells = (f"{each.rows:,}", f"{each.rows_added:,}", f"{each.files:,}", size, str(each.batches), f"{lost:,}")
        grid.add_row(each.table, *cells)
    return grid


def _told(report: TableReport) -> dict[str, Any]:
    told = asdict(report)
    told["gaps"] = [{name: getattr(gap, name) for name in ("broker", "log", "start", "end")} for gap in report.gaps]
    return told


def _print(report: Report, as_json: bool) -> None:
    added = sum(each.rows_added for each in report.tables)
    if as_json:
        tables = {each.table: _told(each) for each in report.tables}
        rate = round(added / report.seconds) if report.seconds else 0
        line = {"out": report.out, "seconds": round(report.seconds, 3), "rows_per_second": rate, "tables": tables}
        print(json.dumps(line), flush=True)
        return
    from rich.console import Console

    console = Console()
    console.print(_grid(report.tables))
    console.print(f"{added:,} rows in {report.seconds:.1f} s, in {report.out}")
    for each in report.tables:
        for name, why in sorted(each.away.items()):
            console.print(f"{each.table}: broker {name} was away and is left for the next run: {why}")


def register(group: typer.Typer) -> None:
    group.command()(archive)
