"""`veena explain`: what became of an event for one client, on a live network."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli import EXIT_BROKEN
from veena.cli.client.trace import EventArgument, TimeoutOption, after, claimed, clock, hop_dict, remarks
from veena.cli.connection import CaOption, ClientIdOption, JsonOption, UrlOption, UserOption, client, run

if TYPE_CHECKING:
    from veena.client import Client
    from veena.client.explain import Explanation
    from veena.event import EventId

#: The colour of a verdict's frame; yellow for everything that is neither good nor unknown.
COLOURS = {"delivered": "green", "kept": "green", "shared": "green", "unknown": "red"}
#: What the time of a verdict is; for others it is since when it is so.
WHEN = {
    **dict.fromkeys(("delivered", "expired", "dropped", "denied", "dead-letter", "had"), "when"),
    **dict.fromkeys(("not-matched", "out-of-scope", "unfit"), "subscribed"),
}


def explain(
    event_id: EventArgument,
    about: Annotated[str, typer.Argument(metavar="CLIENT_ID", help="The client that got it, or did not.")],
    timeout: TimeoutOption = 2.0,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """What became of an event for a client: delivered, when and by which way; or why not, by which term or rule.

    Any broker can be asked; it asks all others. Exit code 0 when it is known; 1 when it is not, or may be otherwise
    because a part of the network was silent (it is named); 2 when the question could not be asked.
    """
    from veena.event import EventId, check_client_id

    wanted = EventId.parse(event_id)
    check_client_id(about)
    run(_ask(client(url, client_id, user, ca), wanted, about, timeout, as_json))


async def _ask(client: Client, event_id: EventId, about: str, timeout: float, as_json: bool) -> None:
    async with client:
        found = await client.explain(event_id, about, timeout=timeout)
    if as_json:
        print(json.dumps({"event": str(event_id), "client": about, **as_dict(found)}))
    else:
        _show(event_id, about, found)
        is_short = found.reason.value in ("delivered", "kept") and not found.way and found.broker != found.origin
        for line in remarks(found, needs_hops=is_short or found.reason.value == "unknown"):
            print(line, file=sys.stderr)
    is_certain = found.reason.value in ("delivered", "kept")
    if found.reason.value == "unknown" or (found.silent and not is_certain):
        raise typer.Exit(EXIT_BROKEN)


def as_dict(found: Explanation) -> dict[str, Any]:
    """An explanation as scripts read it."""
    label = found.label
    return {
        "reason": found.reason.value,
        "text": found.text,
        "at_ns": found.at_ns or None,
        "broker": label(found.broker) if found.broker else None,
        "unit": label(found.unit) if found.unit else None,
        "level": found.level,
        "subscriptions": list(found.subscriptions),
        "way": [hop_dict(hop, label) for hop in found.way],
        "origin": label(found.origin) if found.origin else None,
        "accepted_ns": found.accepted_ns or None,
        "silent": [label(unit) for unit in found.silent],
        "records": dict(found.heard),
        "labels": {".".join(map(str, unit)): name for unit, name in found.labels.items()},
    }


def _show(event_id: EventId, about: str, found: Explanation) -> None:
    from rich.console import Console, Group
    from rich.markup import escape
    from rich.panel import Panel
    from rich.table import Table

    label, reason = found.label, found.reason.value
    rows = Table.grid(padding=(0, 2))
    rows.add_row("event", escape(str(event_id)))
    rows.add_row("client", escape(about))
    if found.accepted_ns:
        rows.add_row("accepted", f"{clock(found.accepted_ns)} at {_named(found, found.origin)}")
    if found.at_ns:
        when = WHEN.get(reason, "since")
        span = f"  ({after(found.at_ns, found.accepted_ns)})" if found.accepted_ns else ""
        rows.add_row(when, clock(found.at_ns) + span)
    if found.broker:
        rows.add_row("where", _named(found, found.broker))
    if found.unit and found.unit != found.broker:
        rows.add_row("unit", _named(found, found.unit))
    if found.subscriptions:
        rows.add_row("subscription", ", ".join(map(str, found.subscriptions)))
    told = escape(found.text if reason != "unknown" or found.accepted_ns else found.text + claimed(event_id))
    colour = COLOURS.get(reason, "yellow")
    console = Console(highlight=False)
    console.print(
        Panel(Group(f"[bold {colour}]{reason}[/]: {told}", "", rows), title="what became of it", border_style=colour)
    )
    if found.way:
        way = Table("from", "to", "level", "sent", "entered", title="the way", title_justify="left")
        for hop in found.way:
            level = hop_dict(hop, label)["level"]
            came = after(hop.entered_ns, found.accepted_ns) if hop.entered_ns else "?"
            way.add_row(
                escape(label(hop.sender)), escape(label(hop.receiver)), str(level),
                after(hop.sent_ns, found.accepted_ns), came,
            )  # fmt: skip
        console.print(way)


def _named(found: Explanation, unit: tuple[int, ...]) -> str:
    """A unit by name and address: sentences of brokers have addresses."""
    from rich.markup import escape

    from veena.address import format_address

    name, address = found.label(unit), format_address(unit)
    return escape(name if name == address else f"{name} ({address})")


def register(root: typer.Typer) -> None:
    root.command()(explain)
