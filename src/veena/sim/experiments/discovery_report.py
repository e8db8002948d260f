"""The discovery experiment for people: a table on the terminal, and plain values for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from veena.address import level_name
from veena.sim.experiments.discovery import TTLS, Line, Upkeep

CAPTION = (
    "Frames over links, a query on average. asks, answers: to one controller of each unit of the realm, and straight"
    " back. looked at: of the advertisements that the asker may see, how many controllers compared with the query. TTL:"
    " a flood of so many hops and its answers, and the share of the advertisements that it finds. wrong: answers that"
    " are not those of one database of all advertisements; left realm: frames with a query outside its realm."
)
#: Wide enough for the table: a narrower terminal wraps its lines, which is better than to lose digits.
WIDTH = 156


def show(lines: Sequence[Line], upkeep: Upkeep) -> None:
    """Print the table, what keeping advertisements costs, and what is worse than it may be."""
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table(lines))
    console.print(CAPTION, highlight=False)
    adverts = lines[0].adverts
    console.print(
        f"Until every controller had them, {adverts:,} advertisements took {upkeep.climb:,} frames over links"
        f" ({upkeep.climb / adverts:.2f} each); then {upkeep.idle_per_s:,.1f} a second keep them known."
        f" The fullest broker holds {upkeep.held_max:,}.",
        highlight=False,
    )
    for line in lines:
        for fault in line.faults:
            console.print(f"{line.language}, realm {line.realm}: {fault}", style="bold red", highlight=False)


def table(lines: Sequence[Line]) -> Table:
    first = lines[0]
    title = f"{first.network}: {first.adverts:,} advertisements at {first.brokers:,} brokers"
    found = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = ["language", "realm", "queries", "found", "asks", "answers", "messages", "looked at"]
    for name in columns + [part for ttl in TTLS for part in (f"TTL {ttl}", "finds")] + ["wrong", "left realm"]:
        found.add_column(name, justify="left" if name in ("language", "realm") else "right", no_wrap=True)
    for line in lines:
        found.add_row(*_cells(line), style="bold red" if line.faults else None)
    return found


def _cells(line: Line) -> list[str]:
    def mean(total: int) -> str:
        return f"{total / line.queries:,.1f}"

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.3g} %" if whole else "-"

    floods = [
        cell
        for ttl in TTLS
        for cell in (mean(line.floods[ttl]), share(line.flood_found[ttl], line.found))
    ]  # fmt: skip
    return [
        line.language,
        realm_name(line.realm, line.levels),
        str(line.queries),
        mean(line.found),
        mean(line.asks),
        mean(line.answers),
        mean(line.messages),
        share(line.evaluated, line.visible),
        *floods,
        str(line.wrong),
        str(line.escaped),
    ]


def realm_name(realm: int, levels: int) -> str:
    return "system" if realm == levels else level_name(realm)


def plain(lines: Sequence[Line], upkeep: Upkeep) -> dict[str, Any]:
    """For scripts: sums, and what is worse than it may be."""
    rows = [{**asdict(line), "messages": line.messages, "faults": line.faults} for line in lines]
    return {"queries": rows, "upkeep": asdict(upkeep)}
