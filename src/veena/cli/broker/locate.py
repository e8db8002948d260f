"""`veena locate`: which broker a client would be sent to, and why."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli.connection import SECURE, CaOption, JsonOption, UserOption, password_of, run, trust
from veena.cli.plain import cell

if TYPE_CHECKING:
    from veena.core.wire.locator import AskLocate, Located
    from veena.runtime.transports.registry import Secrets

Answer = list[tuple["Located", int | None]]


def locate(
    url: Annotated[
        str, typer.Argument(envvar="VEENA_URL", help="A locator, such as veena+locator://127.0.0.1:7700.")
    ] = "veena+locator://127.0.0.1:7700",
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the way to each broker, and ask again with that.")
    ] = False,
    own: Annotated[bool, typer.Option("--own", help="Ask any broker about itself: its load and its room.")] = False,
    client_id: Annotated[str | None, typer.Option("--client-id", help="Ask as this client.")] = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a locator where to connect: the nearest broker that has room comes first."""
    run(_locate(url, measure, own, client_id or user or f"locate-{uuid.uuid4().hex}", user, ca, as_json))


async def _locate(
    url: str, measure: bool, own: bool, client_id: str, user: str, ca: Path | None, as_json: bool
) -> None:
    from veena.core.wire.locator import AskLocate
    from veena.runtime.locator.client import ask, locator_url
    from veena.runtime.transports.registry import Secrets

    is_secure = url.startswith(SECURE)
    tls = trust(ca) if is_secure else None
    secrets = Secrets(client=tls)
    place = locator_url(url) or url
    who = (client_id, user, password_of(user), os.environ.get("VEENA_TOKEN", ""))
    found = await ask(place, AskLocate(*who, own), secrets)
    times: dict[str, int] = {}
    if measure:
        question = AskLocate(*who, True)
        measured = await asyncio.gather(*(_time(broker, question, secrets) for broker in found))
        times = {broker.urls[0]: each for broker, each in zip(found, measured, strict=True) if each is not None}
        found = await ask(place, AskLocate(*who, own, "", tuple(times.items())), secrets)
    _show([(broker, times.get(broker.urls[0])) for broker in found], as_json)


async def _time(broker: Located, question: AskLocate, secrets: Secrets) -> int | None:
    """Microseconds that a question and its answer take; None when there is none."""
    from veena.errors import VeenaError
    from veena.runtime.locator.client import ask

    began = time.monotonic_ns()
    try:
        await ask(broker.urls[0], question, secrets)
    except VeenaError:
        return None
    return (time.monotonic_ns() - began) // 1000


def _show(answer: Answer, as_json: bool) -> None:
    from veena.address import format_address

    if as_json:
        for broker, microseconds in answer:
            line = {
                "url": broker.urls[0],
                "urls": broker.urls,
                "name": broker.name,
                "address": format_address(broker.address),
                "load": broker.load / 1000,
                "clients": broker.clients,
                "room": broker.room,
                "round_trip_ms": None if microseconds is None else microseconds / 1000,
            }
            print(json.dumps(line), flush=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("url", "broker", "address", "load", "clients", "room", "round trip")
    for broker, microseconds in answer:
        told = "" if microseconds is None else f"{microseconds / 1000:.1f} ms"
        cells = (f"{broker.load / 10:.1f} %", str(broker.clients), str(broker.room), told)
        table.add_row(cell(broker.urls[0]), cell(broker.name), format_address(broker.address), *cells)
    Console().print(table)


def register(root: typer.Typer) -> None:
    root.command()(locate)
