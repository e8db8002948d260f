"""`veena pipeline history`, `profiles`, `adverts`: who got and published what, who wanted what, what was offered."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli.connection import CaOption, UrlOption, UserOption, password_of
from veena.cli.pipeline.group import JsonOption, MasterOption, MemoryOption, UiPortOption, check_there
from veena.cli.plain import cell
from veena.errors import PipelineError

if TYPE_CHECKING:
    from veena.spark.analyze.adverts import ArchivedAnswer

ArchiveOption = Annotated[Path, typer.Option("--archive", help="The directory of the archive.")]
_WHEN = "as 2026-11-16T08:30 (UTC unless it says otherwise)"


def history(
    client: Annotated[str, typer.Argument(help="The client's id.")],
    archive: ArchiveOption,
    produced: Annotated[bool, typer.Option("--produced", help="What it published.")] = False,
    consumed: Annotated[bool, typer.Option("--consumed", help="What it was handed; both without either.")] = False,
    since: Annotated[str | None, typer.Option(help=f"Not before, {_WHEN}.")] = None,
    until: Annotated[str | None, typer.Option(help=f"Before, {_WHEN}.")] = None,
    limit: Annotated[int, typer.Option(help="How many are shown, the oldest first.", min=1)] = 1000,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a client consumed and produced, in order, wherever it was attached."""
    from veena.spark.analyze.history import KINDS
    from veena.spark.analyze.history import history as past
    from veena.spark.launch.progress import watch
    from veena.spark.launch.session import session

    wanted = [
        kind for kind, asked in zip(KINDS, (consumed, produced), strict=True) if asked or not (produced or consumed)
    ]
    times = _time(since, "since"), _time(until, "until")
    check_there(archive)
    spark = session(master, "veena-history", memory=memory, ui_port=ui_port)
    found: list[dict[str, Any]] = []
    for kind in wanted:
        with watch(spark, f"what {client} {kind}"):
            rows = past(spark, str(archive), client, kind, *times).limit(limit).collect()
        found += [{"kind": kind, **row.asDict()} for row in rows]
    _show(found, ("kind", "at", "broker", "id", "topic", "publisher", "mark"), as_json)


def profiles(
    archive: ArchiveOption,
    as_of: Annotated[str, typer.Option("--as-of", help=f"The time, {_WHEN}.")],
    client: Annotated[str | None, typer.Option(help="Only of this client.")] = None,
    limit: Annotated[int, typer.Option(help="How many are shown.", min=1)] = 1000,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """The subscriptions that stood at a time."""
    from veena.spark.analyze.history import constraint_text, profiles_as_of
    from veena.spark.launch.progress import watch
    from veena.spark.launch.session import session

    at = _time(as_of, "as-of")
    assert at is not None
    check_there(archive)
    spark = session(master, "veena-profiles", memory=memory, ui_port=ui_port)
    frame = profiles_as_of(spark, str(archive), at)
    with watch(spark, f"profiles as of {at.isoformat()}"):
        chosen = frame if client is None else frame.where(frame["client"] == client)
        rows = [row.asDict() for row in chosen.limit(limit).collect()]
    for row in rows:
        row["constraint"] = constraint_text(row["engine"], row.pop("condition"))
    names = ("client", "broker", "engine", "constraint", "scope", "durable", "shared", "begun", "is_acknowledged")
    _show([{name: row[name] for name in names} for row in rows], names, as_json)


def adverts(
    archive: ArchiveOption,
    url: UrlOption = None,
    sql: Annotated[str | None, typer.Option("--sql", help="SELECT ... FROM adverts WHERE ...")] = None,
    xpath: Annotated[str | None, typer.Option("--xpath", help="An XPath over documents instead.")] = None,
    realm: Annotated[str, typer.Option(help="cluster, super-cluster, super-super-cluster or system.")] = "system",
    as_of: Annotated[str | None, typer.Option("--as-of", help=f"The last snapshot before, {_WHEN}.")] = None,
    user: UserOption = "",
    ca: CaOption = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a snapshot of what is advertised; with --sql or --xpath ask the last one instead."""
    from veena.client.client import DEFAULT_URL
    from veena.spark.analyze.adverts import query, snapshot_adverts, store_adverts
    from veena.spark.launch.session import session
    from veena.spark.log.connection import Access

    if sql or xpath:
        spark = session(master, "veena-adverts", memory=memory, ui_port=ui_port)
        answer = query(spark, archive, sql=sql, xpath=xpath, realm=realm, as_of=_time(as_of, "as-of"))
        _answer(answer, as_json)
        return
    token = os.environ.get("VEENA_TOKEN", "")
    access = Access(user=user, password=password_of(user), token=token, ca_file=str(ca or ""))
    table = snapshot_adverts(url or DEFAULT_URL, access)
    path = store_adverts(archive, table)
    silent = table.schema.metadata[b"silent"].decode().split()
    _tell({"snapshot": str(path), "adverts": table.num_rows, "silent": silent}, as_json)


def _answer(answer: ArchivedAnswer, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for found in answer.rows:
        values = dict(zip(answer.columns, found.values, strict=True)) if found.values is not None else found.properties
        row = {"client": found.client, "name": found.name, **(values or {})}
        if found.xml is not None:
            row["xml"] = found.xml if isinstance(found.xml, str) else found.xml.decode(errors="replace")
        rows.append(row)
    names = tuple(dict.fromkeys(name for row in rows for name in row)) or ("client", "name")
    _show(rows, names, as_json)
    _tell({"matched": answer.matched, "taken": answer.taken.isoformat(), "silent": list(answer.silent)}, as_json)


def _time(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(f"--{option} {text!r}: give a time, {_WHEN}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _tell(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
    else:
        print(", ".join(f"{name}: {value}" for name, value in found.items() if value not in ("", [])))


def _show(rows: Iterable[dict[str, Any]], names: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print(json.dumps(row, default=_text))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*names)
    for row in rows:
        table.add_row(*(cell(_text(row.get(name, ""))) for name in names))
    Console().print(table)


def _text(value: object) -> str:
    return value.astimezone(UTC).isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def register(group: typer.Typer) -> None:
    group.command()(history)
    group.command()(profiles)
    group.command()(adverts)
