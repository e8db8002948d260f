"""`veena trace`: the way of an event through a live network, as a tree of hops."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli import EXIT_BROKEN
from veena.cli.connection import CaOption, ClientIdOption, JsonOption, UrlOption, UserOption, client, run

if TYPE_CHECKING:
    from rich.tree import Tree

    from veena.address import Address, Unit
    from veena.client import Client
    from veena.client.explain import Explanation, TraceAnswer
    from veena.core.boundary.explain import Happened, Hop
    from veena.event import EventId

#: Clients that one broker of the tree shows without --all.
SHOWN_CLIENTS = 12
EventArgument = Annotated[
    str,
    typer.Argument(
        metavar="EVENT_ID", help="The event's id, client:incarnation:timestamp:sequence; `veena pub --json` prints it."
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.001, max=60.0, help="Seconds to wait for the brokers' answers.")
]
HOW_TO_SWITCH_ON = (
    'Switch it on with records = "all" under [store] in every broker\'s file ("deliveries" leaves out the hops), or'
    " for a network on this machine with `veena network up FILE --records all`. It holds for events from then on."
)


def trace(
    event_id: EventArgument,
    all_clients: Annotated[bool, typer.Option("--all", help="Show every client, however many got it.")] = False,
    timeout: TimeoutOption = 2.0,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """The way of an event: every hop with its level and times, who got it, and what else became of it.

    Any broker can be asked; it asks all others. Exit code 0 when the event is remembered and everybody answered, 1 when
    nobody remembers it or a part of the network was silent (it is named), 2 when the question could not be asked.
    """
    from veena.event import EventId

    wanted = EventId.parse(event_id)
    run(_ask(client(url, client_id, user, ca), wanted, timeout, as_json, None if all_clients else SHOWN_CLIENTS))


async def _ask(client: Client, event_id: EventId, timeout: float, as_json: bool, most: int | None) -> None:
    async with client:
        answer = await client.trace(event_id, timeout=timeout)
    is_known = bool(answer.origin or answer.hops or answer.handed or answer.happened)
    if as_json:
        print(json.dumps({"event": str(event_id), "known": is_known, **as_dict(answer)}))
    else:
        if is_known:
            _show(event_id, answer, most)
        else:
            print(f"nobody who answered remembers {event_id}{claimed(event_id)}")
        for line in remarks(answer, needs_hops=True):
            print(line, file=sys.stderr)
    if not is_known or answer.silent:
        raise typer.Exit(EXIT_BROKEN)


# --- what both commands say ---


def clock(at_ns: int) -> str:
    """A time of day in UTC, with the date."""
    whole = datetime.fromtimestamp(at_ns // 10**9, UTC)
    return f"{whole:%Y-%m-%d %H:%M:%S}.{at_ns % 10**9 // 1000:06d} UTC"


def after(at_ns: int, begin_ns: int) -> str:
    """How long after the event was accepted; the time itself where that is not known."""
    if not begin_ns:
        return clock(at_ns)
    span_ns = at_ns - begin_ns
    if abs(span_ns) < 10**10:
        return f"{span_ns / 1e6:+.2f} ms"
    return f"{span_ns / 1e9:+.1f} s"


def claimed(event_id: EventId) -> str:
    """What the id itself says, for events that nobody remembers."""
    return f"; by its id, {event_id.publisher} published it not before {clock(event_id.timestamp)}"


def remarks(answer: TraceAnswer | Explanation, needs_hops: bool) -> Iterable[str]:
    """What is missing in an answer, and what can be done about it."""
    total = sum(answer.heard.values())
    if answer.silent:
        units = ", ".join(map(answer.label, answer.silent))
        yield f"no answer in time from {units}: what is known there is missing; ask again, or with a longer --timeout"
    off, ends_only = answer.heard.get("off", 0), answer.heard.get("deliveries", 0)
    if off:
        yield f'{off} of {total} brokers remember nothing (records = "off"). {HOW_TO_SWITCH_ON}'
    if ends_only and needs_hops:
        yield f'{ends_only} of {total} brokers remember no hops (records = "deliveries"): use "all" to see the way'


def hop_dict(hop: Hop, label: Any) -> dict[str, Any]:
    from veena.address import link_level

    return {
        "from": label(hop.sender),
        "to": label(hop.receiver),
        "level": link_level(hop.sender, hop.receiver),
        "units": [label(unit) for unit in hop.units],
        "sent_ns": hop.sent_ns,
        "entered_ns": hop.entered_ns or None,
    }


def as_dict(answer: TraceAnswer) -> dict[str, Any]:
    """A trace as scripts read it; units by their names where the broker knows these."""
    label = answer.label
    return {
        "origin": label(answer.origin) if answer.origin else None,
        "accepted_ns": answer.accepted_ns or None,
        "hops": [hop_dict(hop, label) for hop in answer.hops],
        "delivered": [
            {
                "broker": label(each.broker),
                "client": each.client_id,
                "session": each.session,
                "subscriptions": list(each.subscriptions),
                "at_ns": each.at_ns,
            }
            for each in answer.handed
        ],
        "happened": [
            {
                "broker": label(each.broker),
                "what": each.what,
                "at_ns": each.at_ns,
                "client": each.client_id or None,
                "units": [label(unit) for unit in each.units],
                "text": each.text,
            }
            for each in answer.happened
        ],
        "silent": [label(unit) for unit in answer.silent],
        "records": dict(answer.heard),
        "labels": {".".join(map(str, unit)): name for unit, name in answer.labels.items()},
    }


# --- the tree ---


class _Tree:
    """Draws each broker once, where the event came to it first."""

    def __init__(self, answer: TraceAnswer, most: int | None) -> None:
        self._answer = answer
        self._most = most
        self._from: dict[Address, list[Hop]] = {}
        for hop in answer.hops:
            self._from.setdefault(hop.sender, []).append(hop)
        #: The hop by which a broker has it: the first that arrived.
        self._first: dict[Address, Hop] = {}
        for hop in sorted((hop for hop in answer.hops if hop.entered_ns), key=lambda hop: hop.entered_ns):
            self._first.setdefault(hop.receiver, hop)
        self._drawn: set[Address] = set()

    def draw(self, root: Tree) -> None:
        answer = self._answer
        roots: dict[Address, None] = {answer.origin: None} if answer.origin else {}
        brokers = (*self._from, *(one.broker for one in answer.handed), *(each.broker for each in answer.happened))
        for broker in brokers:
            if broker not in self._first:
                roots[broker] = None  # out of a log, or its first hop is not remembered
        for broker in roots:
            if broker not in self._drawn:
                how = "accepted" if broker == answer.origin else "from its log, or the way to it is not remembered"
                self._broker(root.add(f"[bold]{_plain(answer.label(broker))}[/]  {how}"), broker)
        for broker in brokers:  # reached only from brokers whose own way is a circle of what is remembered
            if broker not in self._drawn:
                self._broker(root.add(f"[bold]{_plain(answer.label(broker))}[/]"), broker)

    def _broker(self, node: Tree, broker: Address) -> None:
        self._drawn.add(broker)
        answer = self._answer
        handed = [one for one in answer.handed if one.broker == broker]
        for one in handed[: self._most]:
            numbers = ", ".join(map(str, one.subscriptions))
            about = f"  for subscription {numbers}" if numbers else ""
            node.add(f"[green]{_plain(one.client_id)}[/] got it {self._after(one.at_ns)}{about}")
        if self._most is not None and len(handed) > self._most:
            node.add(f"and {len(handed) - self._most:,} more clients; --all shows them")
        for each in answer.happened:
            if each.broker == broker:
                node.add(f"[yellow]{_plain(self._words(each))}[/] {self._after(each.at_ns)}")
        for hop in self._from.get(broker, ()):
            self._hop(node, hop)

    def _hop(self, node: Tree, hop: Hop) -> None:
        from veena.address import link_level

        answer = self._answer
        level = link_level(hop.sender, hop.receiver)
        came = f"entered {self._after(hop.entered_ns)}" if hop.entered_ns else "[red]not known to have come[/]"
        units = ", ".join(_plain(answer.label(unit)) for unit in hop.units)
        line = (
            f"level {level} to [bold]{_plain(answer.label(hop.receiver))}[/]  sent {self._after(hop.sent_ns)}, {came}"
        )
        is_first = self._first.get(hop.receiver) is hop and hop.receiver not in self._drawn
        if not is_first and hop.entered_ns:
            line += "  (it had come before)"
        child = node.add(f"{line}  [dim]for {units}[/]" if units and (hop.receiver,) != hop.units else line)
        if is_first:
            self._broker(child, hop.receiver)

    def _after(self, at_ns: int) -> str:
        return after(at_ns, self._answer.accepted_ns)

    def _words(self, each: Happened) -> str:
        for_whom = each.client_id or ", ".join(map(self._answer.label, each.units))
        parts = [each.what, f"for {for_whom}" if for_whom else "", f"({each.text})" if each.text else ""]
        return " ".join(part for part in parts if part)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _show(event_id: EventId, answer: TraceAnswer, most: int | None) -> None:
    from rich.console import Console
    from rich.tree import Tree

    begin = f", accepted {clock(answer.accepted_ns)}" if answer.accepted_ns else ""
    root = Tree(f"event {_plain(str(event_id))}{begin}", highlight=False)
    _Tree(answer, most).draw(root)
    console = Console(highlight=False)
    console.print(root)
    levels = [0] * (1 + max((len(hop.sender) for hop in answer.hops), default=0))
    for hop in answer.hops:
        levels[_level(hop.sender, hop.receiver)] += 1
    crossed = ", ".join(f"{count} at level {level}" for level, count in enumerate(levels) if count)
    brokers = {answer.origin, *(hop.receiver for hop in answer.hops if hop.entered_ns)} - {()}
    console.print(
        f"{len(answer.handed):,} deliveries, {len(brokers)} brokers, {len(answer.hops)} hops"
        f"{f' ({crossed})' if crossed else ''}"
    )


def _level(one: Unit, other: Unit) -> int:
    from veena.address import link_level

    return link_level(one, other)


def register(root: typer.Typer) -> None:
    root.command()(trace)
