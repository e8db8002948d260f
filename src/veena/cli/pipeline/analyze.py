"""`veena pipeline analyze`: how a network did, from its archive; or how it does, from its brokers."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
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
    from pyspark.sql import SparkSession

#: How often a query that follows is looked at.
_POLL_S = 0.5
#: Before a query that found a broker away is begun again; it has waited for that broker already.
_PAUSE_S = 2.0


def analyze(
    archive: Annotated[Path | None, typer.Option("--archive", help="The directory of an archive.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where analysis.json, the pictures and analysis.html go.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", help="Latency counts from when an event was published, or accepted.")
    ] = "published",
    follow: Annotated[
        bool, typer.Option("--follow", help="Watch running brokers instead: live.json in --out, until Ctrl-C.")
    ] = False,
    window: Annotated[
        str, typer.Option("--window", help="With --follow: a row of figures for so long.")
    ] = "10 seconds",
    delay: Annotated[
        str, typer.Option("--delay", help="With --follow: how long to wait for late rows.")
    ] = "10 seconds",
    url: UrlOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Latency, throughput, hops, load, topics and slow subscribers, as tables, pictures and one HTML page.

    With --follow the same is told of running brokers (records = "deliveries" or "all"), window by window.
    """
    from veena.spark.analyze.live import seconds_of
    from veena.spark.archive.archive import existing
    from veena.spark.launch.session import session

    if follow and (archive is not None or out is None):
        raise PipelineError("--follow reads from brokers: give --url and --out, and no --archive")
    if not follow and archive is None:
        raise PipelineError("--archive is missing: make an archive with `veena pipeline archive`, or use --follow")
    if since not in ("published", "accepted"):
        raise PipelineError(f"--since {since!r}: expected published or accepted")
    # What is wrong is said before Spark takes its seconds to start, and not after it has worked.
    options = reading_options(url, user, ca) if follow else {}
    if follow:
        seconds_of("--window", window)
        seconds_of("--delay", delay)
        _check_brokers(options)
    elif archive is not None:
        existing(archive)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    conf = _follow_settings(master) if follow else {}
    spark = session(master, "veena pipeline analyze", memory=memory, ui_port=ui_port, conf=conf)
    if follow:
        assert out is not None
        _follow(spark, options, out, window, delay, as_json)
    else:
        _analyze(spark, str(archive), since, out, as_json)


def _follow_settings(master: str) -> dict[str, str]:
    """A join of streams keeps four stores a partition, each written for every batch: here as few as there are cores."""
    from veena.spark.launch.session import OWN_STREAMS, cores_of, is_local

    settings = OWN_STREAMS | {
        "spark.sql.adaptive.enabled": "false"
    }  # not for streams that remember: Spark would warn each time
    return settings | ({"spark.sql.shuffle.partitions": str(cores_of(master))} if is_local(master) else {})


def _analyze(spark: SparkSession, archive: str, since: str, out: Path | None, as_json: bool) -> None:
    from veena.spark.analyze import report as analyze_report
    from veena.spark.analyze.analyze import analyze as work_out
    from veena.spark.analyze.frames import past
    from veena.spark.launch.progress import watch

    with watch(spark, f"analysing {archive}"):
        found = work_out(past(spark, archive), "accepted" if since == "accepted" else "published")
    written = analyze_report.write(found, out) if out is not None else []
    if as_json:
        print(json.dumps(found.plain(), default=str))
        return
    analyze_report.show(found)
    for path in written:
        print(path)


def _follow(spark: SparkSession, options: dict[str, str], out: Path, window: str, delay: str, as_json: bool) -> None:
    """Until a signal comes; a query that ended because a broker was away is begun again and goes on where it was."""
    from veena.spark.analyze.live import NAME, joined
    from veena.spark.analyze.live import follow as start
    from veena.spark.launch.failures import is_passing, reason
    from veena.spark.launch.queries import stop

    reader = spark.readStream.format("veena").options(**options).option("startingOffsets", "latest")
    over = threading.Event()
    if not as_json:
        print(f"{out / NAME} is kept up to date, a row every {window}; Ctrl-C ends it", flush=True)
    with ended_by_signals(over):
        while not over.is_set():
            frames = [reader.option("table", table).load() for table in ("events", "deliveries")]
            query = start(joined(frames[0], frames[1], delay), out, window, tell=_told if as_json else None)
            while query.isActive and not over.wait(_POLL_S):
                pass
            stop(query)
            error = query.exception()
            if error is None or over.is_set():
                return
            if not is_passing(error):
                raise PipelineError(f"following stopped: {reason(str(error))}")
            print(f"veena: following goes on in {_PAUSE_S:g} s: {reason(str(error))}", file=sys.stderr, flush=True)
            over.wait(_PAUSE_S)


def _told(windows: dict[str, Any]) -> None:
    print(json.dumps(windows), flush=True)


def _check_brokers(options: dict[str, str]) -> None:
    """Refuse brokers that are not there, or keep no deliveries, before Spark starts."""
    from veena.spark.source.brokers import Brokers
    from veena.spark.source.options import parse

    brokers = Brokers(parse({**options, "table": "deliveries"}))
    try:
        brokers.seen()
    finally:
        brokers.close()


def register(group: typer.Typer) -> None:
    group.command("analyze")(analyze)
