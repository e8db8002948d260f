"""`veena pipeline match`: which profiles do stored events satisfy."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli.pipeline.group import JsonOption, MasterOption, MemoryOption, UiPortOption
from veena.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def match(
    out: Annotated[Path, typer.Option("--out", help="An empty directory for the pairs, as Parquet.")],
    archive: Annotated[Path | None, typer.Option("--archive", help="The archive with the events.")] = None,
    events: Annotated[Path | None, typer.Option("--events", help="Or Parquet files with events.")] = None,
    profiles: Annotated[
        Path | None,
        typer.Option("--profiles", help="JSON lines, Parquet or an archive; by default the archive of the events."),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="The archive's profiles of this time, as 2026-11-16T08:00:00.")
    ] = None,
    key: Annotated[str, typer.Option("--key", help="The columns that identify an event.")] = "broker,offset",
    counts: Annotated[bool, typer.Option("--counts", help="Only how many events satisfy each profile.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Leave wrong profiles out instead of ending.")] = False,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Match stored events with profiles, by the engines of the brokers: the same verdicts, in bulk.

    A line of a file of profiles: {"id": 1, "engine": "selector", "condition": ["quotes", "price > 10"]}
    """
    from veena.spark.launch.progress import watch
    from veena.spark.launch.session import session
    from veena.spark.matching.job import run_match
    from veena.spark.matching.profiles import StoredProfiles

    if (archive is None) == (events is None):
        raise PipelineError("where are the events? Give either --archive DIR or --events PATH")
    where = profiles or archive
    if where is None:
        raise PipelineError("--events needs --profiles: a file of JSON lines, Parquet, or an archive")
    stored = StoredProfiles(where, None if as_of is None else _time(as_of))
    spark = session(master, "veena-match", memory=memory, ui_port=ui_port)
    try:
        with watch(spark, "matching"):
            frame = _events(spark, archive, events)
            names = tuple(name.strip() for name in key.split(","))
            report = run_match(
                spark, frame, stored, out, key=names, counts=counts, on_error="skip" if skip else "raise"
            )
    finally:
        spark.stop()
    if as_json:
        print(json.dumps(asdict(report)))
        return
    left = f", {report.rejected:,} left out" if report.rejected else ""
    print(f"{report.events:,} events, {report.profiles:,} profiles{left}: {report.pairs:,} pairs")
    print(f"{report.matched_profiles:,} profiles are satisfied by some event; {report.seconds:.1f} s; {report.out}")


def _events(spark: SparkSession, archive: Path | None, events: Path | None) -> DataFrame:
    if archive is not None:
        from veena.spark.archive.archive import read

        return read(spark, archive, "events")
    if events is None or not events.exists():
        raise PipelineError(f"--events {events}: no such file or directory")
    return spark.read.parquet(str(events))


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(
            f"--as-of {text!r}: expected a time as 2026-11-16T08:00:00, in UTC unless it says"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def register(group: typer.Typer) -> None:
    group.command("match")(match)
