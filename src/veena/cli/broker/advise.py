"""`veena advise`: where a running network should grow, and doing it."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli.connection import CaOption, JsonOption, UrlOption, UserOption, client, password_of, run
from veena.errors import LocalProtocolError

if TYPE_CHECKING:
    from veena.client import Client
    from veena.services.adviser.facts import Proposal, Snapshot
    from veena.services.adviser.live import Adviser

#: The defaults of the adviser, here so that `--help` need not import it; a test compares them.
MANY, FAR_MS, SLOW_LINK_MS = 3, 20.0, 100.0


def advise(
    url: UrlOption = None,
    carry_out: Annotated[
        int | None, typer.Option("--carry-out", metavar="N", min=1, help="Do what proposal N says, step by step.")
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option("--control", help="The control.json of a running `veena network up`: starts brokers and links."),
    ] = None,
    to: Annotated[str, typer.Option("--to", help="The URL of a broker that you started for the proposal.")] = "",
    many: Annotated[int, typer.Option("--many", min=1, help="Clients of one place that are worth a broker.")] = MANY,
    far_ms: Annotated[float, typer.Option("--far-ms", min=0, help="A client is far from this round trip on.")] = FAR_MS,
    slow_ms: Annotated[
        float, typer.Option("--slow-ms", min=0, help="A link is slow from this round trip on.")
    ] = SLOW_LINK_MS,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find clients far from their broker, publishers far from their audience, slow links and links worth having.

    Asks all brokers that the given one leads to (right `status`). With --carry-out clients roam to the broker that is
    proposed (right `move`); where it has to be started first, --control names who can.
    """
    from veena.client.client import DEFAULT_URL
    from veena.runtime.fleet.control import FleetControl
    from veena.services.adviser.facts import Limits
    from veena.services.adviser.live import Adviser

    password = password_of(user)

    def dial(at: str) -> AbstractAsyncContextManager[Client]:
        return client([at], None, user, ca, password=password)

    operator = None if control is None else FleetControl(control)
    adviser = Adviser(url or [DEFAULT_URL], dial, operator, Limits(many, far_ms, slow_ms))
    run(_advise(adviser, carry_out, to, as_json))


async def _advise(adviser: Adviser, carry_out: int | None, to: str, as_json: bool) -> None:
    from veena.services.adviser.rules import advise as judge

    snapshot = await adviser.look()
    found = judge(snapshot, adviser.limits)
    for place, reason in (snapshot.silent or {}).items():
        print(f"veena: {place} does not answer, so nothing is said of links: {reason}", file=sys.stderr)
    if carry_out is None:
        _show(snapshot, found, as_json)
        return
    if carry_out > len(found):
        raise LocalProtocolError(f"--carry-out {carry_out}: there are {len(found)} proposals now; look again")
    async for step in adviser.carry_out(found[carry_out - 1], to):
        print(json.dumps({"step": step}) if as_json else step, flush=True)


def _show(snapshot: Snapshot, found: tuple[Proposal, ...], as_json: bool) -> None:
    if as_json:
        for each in found:
            print(json.dumps(_plain(each)))
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    counts = {"broker": snapshot.brokers, "client": snapshot.clients, "link": snapshot.links}
    seen = ", ".join(f"{len(each)} {name}{'' if len(each) == 1 else 's'}" for name, each in counts.items())
    if not found:
        print(f"{seen}: nothing to propose")
        return
    table = Table(title=seen, box=box.SIMPLE_HEAD)
    for column in ("", "proposal", "why", "steps"):
        table.add_column(column, overflow="fold")
    for each in found:
        why = each.reason + (f" ({each.note})" if each.note else "")
        table.add_row(str(each.number), escape(each.title), escape(why), escape("; ".join(each.steps)))
    Console().print(table)


def _plain(proposal: Proposal) -> dict[str, Any]:
    return {**asdict(proposal), "steps": proposal.steps}


def register(root: typer.Typer) -> None:
    root.command()(advise)
