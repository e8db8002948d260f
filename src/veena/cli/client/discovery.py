"""`veena advertise` and `veena query`: offer something, and find what others offer."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli.client.pub_sub import properties_of
from veena.cli.connection import CaOption, ClientIdOption, JsonOption, UrlOption, UserOption, client, run
from veena.cli.plain import cell

if TYPE_CHECKING:
    from veena.client import Client
    from veena.client.questions import Found, QueryAnswer

Realm = Annotated[str, typer.Option("--realm", help="cluster, super-cluster, super-super-cluster or system.")]


def advertise(
    name: Annotated[str, typer.Argument(help="The name of the offer: one of this client's own.")],
    prop: Annotated[list[str] | None, typer.Option("--property", "-p", help="name=value; again for more.")] = None,
    xml: Annotated[Path | None, typer.Option("--xml", help="A file with an XML document.")] = None,
    scope: Annotated[
        str, typer.Option(help="How far around it can be found: cluster, super-cluster, ... system.")
    ] = "system",
    seconds: Annotated[float | None, typer.Option("--for", min=0, help="Stop after so many seconds.")] = None,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
) -> None:
    """Offer something for as long as this command runs."""
    document = None if xml is None else xml.read_bytes()
    found = properties_of(prop or ())

    async def stand() -> None:
        async with client(url, client_id, user, ca) as connected:
            await connected.advertise(name, properties=found, xml=document, scope=scope)  # type: ignore[arg-type]
            print(f"{name} stands; Ctrl-C withdraws it", file=sys.stderr, flush=True)
            try:
                await asyncio.sleep(seconds if seconds is not None else 10**9)
            finally:
                await connected.withdraw(name)

    run(stand(), is_endless=seconds is None)


def query(
    sql: Annotated[str | None, typer.Argument(help="SELECT ... FROM adverts WHERE ...")] = None,
    xpath: Annotated[str | None, typer.Option("--xpath", help="An XPath over documents instead.")] = None,
    constraint: Annotated[
        str | None, typer.Option("--constraint", help="The Trader Constraint Language over properties instead.")
    ] = None,
    realm: Realm = "system",
    ids: Annotated[bool, typer.Option("--ids", help="Only who offers it, and under which name.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds to wait for answers.")] = 2.0,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find advertisements; exit code 1 when a part of the network did not answer in time (it is named)."""
    asked = {"sql": sql, "xpath": xpath, "constraint": constraint}
    run(_ask(client(url, client_id, user, ca), asked, realm, not ids, timeout, as_json))


async def _ask(
    client: Client, asked: dict[str, str | None], realm: str, full: bool, timeout: float, as_json: bool
) -> None:
    async with client:
        answer = await client.query(
            sql=asked["sql"], xpath=asked["xpath"], constraint=asked["constraint"],
            realm=realm, full=full, timeout=timeout,
        )  # fmt: skip
    silent = [".".join(map(str, unit)) for unit in answer.silent]
    if as_json:
        for row in answer.rows:
            print(json.dumps({"client": row.client, "name": row.name, **_values(answer.columns, row)}, default=str))
        counts = {"matched": answer.matched, "undecided": answer.undecided}
        print(json.dumps({**counts, "silent": silent, "complete": answer.complete}))
    else:
        _show(answer)
        for unit in silent:
            print(f"no answer from {unit}", file=sys.stderr)
        if answer.undecided:
            told = f"{answer.undecided} advertisements may match or not: the XPath costs too much on their documents"
            print(f"{told}; name the elements on the way instead of // and *", file=sys.stderr)
    if not answer.complete:
        raise typer.Exit(1)


def _values(columns: tuple[str, ...], row: Found) -> dict[str, object]:
    if row.values is not None:
        return dict(zip(columns, row.values, strict=True))
    found: dict[str, object] = dict(row.properties or {})
    if row.xml is not None:
        found["xml"] = row.xml if isinstance(row.xml, str) else row.xml.decode(errors="replace")
    return found


def _show(answer: QueryAnswer) -> None:
    from rich.console import Console
    from rich.table import Table

    rows = [_values(answer.columns, row) for row in answer.rows]
    columns = answer.columns or tuple(dict.fromkeys(name for values in rows for name in values))
    # What stands in front anyhow is shown again only where a property of that name says something else.
    own = [{"client": row.client, "name": row.name} for row in answer.rows]
    columns = tuple(
        name
        for name in columns
        if name not in ("client", "name")
        or any(values.get(name) != ids.get(name) for values, ids in zip(rows, own, strict=True))
    )
    table = Table("client", "name", *map(cell, columns), title=f"{answer.matched} found")
    for row, values in zip(answer.rows, rows, strict=True):
        table.add_row(cell(row.client), cell(row.name), *(cell(values.get(column, "")) for column in columns))
    Console().print(table)


def register(root: typer.Typer) -> None:
    root.command()(advertise)
    root.command()(query)
