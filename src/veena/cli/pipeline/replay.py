"""`veena pipeline replay`: what SQL finds in an archive is published again, once, to its end or until Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli.connection import CaOption, UserOption, password_of
from veena.cli.pipeline.group import JsonOption, MasterOption, MemoryOption, UiPortOption, ended_by_signals
from veena.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veena.spark.log.connection import Access
    from veena.spark.sink.replay import Preview, Report

UrlOption = Annotated[
    str | None,
    typer.Option("--url", "-u", envvar="VEENA_URL", help="The broker that publishes: a run stays with one broker."),
]

#: Master, memory and port of the page.
Where = tuple[str, str | None, int | None]


def replay(
    archive: Annotated[Path, typer.Option("--archive", help="The directory of the archive.")],
    sql: Annotated[
        str | None, typer.Option("--sql", help="Which events, such as: SELECT * FROM events WHERE topic = 'x'")
    ] = None,
    url: UrlOption = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Publish all of them to this topic.")] = None,
    to: Annotated[
        list[str] | None, typer.Option("--to", help="Only for this client, whatever they were for; may be repeated.")
    ] = None,
    as_is: Annotated[bool, typer.Option("--as-is", help="One behind the other, without waiting: the default.")] = False,
    speed: Annotated[
        float | None, typer.Option("--speed", help="With the gaps that they had, divided by this: 1.0 as it was.")
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", help="At most so many a second, as 500 or 500/s.")] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="The name of this run: by it a run that was stopped goes on.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be published.")] = False,
    user: UserOption = "",
    ca: CaOption = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish archived events again, with their old ids in the header `replay-of`; each once, also if it is stopped."""
    from veena.client.client import DEFAULT_URL
    from veena.spark.sink.replay import Pace, publish

    if as_is and speed is not None:
        raise PipelineError("--as-is and --speed: give one; --as-is does not wait for anything")
    if topic is not None and to:
        raise PipelineError("--topic and --to: give one; events go to a topic or to named clients")
    if sql is None and (run is None or dry_run):
        raise PipelineError("--sql is missing: say which events, or name a run that was stopped with --run")
    pace = Pace(speed, None if rate is None else _rate(rate))
    access = _access(user, ca)
    spark = (master, memory, ui_port)
    if dry_run:
        assert sql is not None
        _preview(archive, sql, spark, as_json)
        return
    directory = _prepared(archive, sql, run, topic, tuple(to or ()), spark, as_json)
    over = Event()
    with ended_by_signals(over), _shown(as_json, directory.name) as tell:
        report = publish(directory, url or DEFAULT_URL, access, pace, tell=tell, is_over=over.is_set)
    _print(report, archive, as_json)
    if report.left:
        raise typer.Exit(1)


def _preview(archive: Path, sql: str, where: Where, as_json: bool) -> None:
    from veena.spark.sink.replay import preview

    with _spark(where, "looking", as_json) as spark:
        found = preview(spark, archive, sql)
    _print_preview(found, as_json)


def _prepared(
    archive: Path,
    sql: str | None,
    run: str | None,
    topic: str | None,
    to: tuple[str, ...],
    where: Where,
    as_json: bool,
) -> Path:
    """The rows of the run; one that was begun before needs no Spark."""
    from veena.spark.sink.replay import begun, prepare

    known = None if run is None else begun(archive, run, sql, topic, to)
    if known is not None:
        return known
    with _spark(where, "selecting", as_json) as spark:
        return prepare(spark, archive, sql, run, topic, to)


@contextmanager
def _spark(where: Where, title: str, as_json: bool) -> Iterator[SparkSession]:
    from veena.spark.launch.progress import watch
    from veena.spark.launch.session import session

    master, memory, ui_port = where
    spark = session(master, "veena-replay", memory=memory, ui_port=ui_port)
    try:
        with watch(spark, title, shown=False if as_json else None):
            yield spark
    finally:
        spark.stop()


def _rate(text: str) -> float:
    try:
        return float(text.removesuffix("/s"))
    except ValueError:
        raise PipelineError(f"--rate {text!r}: write events a second, as 500 or 500/s") from None


def _access(user: str, ca: Path | None) -> Access:
    from veena.spark.log.connection import Access

    return Access(
        user=user,
        password=password_of(user),
        token=os.environ.get("VEENA_TOKEN", ""),
        ca_file="" if ca is None else str(ca.absolute()),
    )


@contextmanager
def _shown(as_json: bool, run: str) -> Iterator[Callable[[int, int], None]]:
    """How far the run is: a bar for people, lines for scripts, nothing where nobody looks."""
    if as_json:
        yield lambda done, rows: print(json.dumps({"progress": {"run": run, "done": done, "rows": rows}}), flush=True)
        return
    if not sys.stderr.isatty():
        yield lambda done, rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"replay {run}", total=None)
        yield lambda done, rows: bar.update(task, completed=done, total=rows)


def _print(report: Report, archive: Path, as_json: bool) -> None:
    rate = report.published / report.seconds if report.seconds else 0.0
    if as_json:
        line = {
            "run": report.run, "rows": report.rows, "before": report.before, "published": report.published,
            "left": report.left, "seconds": round(report.seconds, 3), "rows_per_second": round(rate),
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        return
    print(f"run {report.run}: {report.published:,} of {report.rows:,} events in {report.seconds:.1f} s ({rate:,.0f}/s)")
    if report.before:
        print(f"{report.before:,} were published before")
    if report.left:
        print(f"{report.left:,} are left: veena pipeline replay --archive {archive} --run {report.run} goes on")


def _print_preview(found: Preview, as_json: bool) -> None:
    if as_json:
        line = {"rows": found.rows, "first": found.first, "last": found.last, "topics": found.topics}
        print(json.dumps(line), flush=True)
        return
    print(f"{found.rows:,} events" + ("" if found.first is None else f" from {found.first} to {found.last}"))
    for topic, count in found.topics.items():
        print(f"{count:>12,}  {topic}")


def register(group: typer.Typer) -> None:
    group.command()(replay)
