"""The network as a picture: units nested, links by level and load, and a way down into every unit."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.address import level_name
from veena.dashboard.pages.frame import LOOK_S, Frame, heading, panel, run_script
from veena.dashboard.pictures.figures import broker_row, bytes_text
from veena.dashboard.pictures.picture import Highlight, Picture, draw
from veena.dashboard.pictures.scene import Line, Path, Scene, label_of, path_of
from veena.dashboard.sessions.signing import Person

#: How long a page waits for a first look before it is shown empty.
FIRST_S = 4.0
LEGEND = (
    ("--level-0", "inside clusters"),
    ("--level-1", "between clusters"),
    ("--level-2", "between super-clusters"),
    ("--level-3", "between super-super-clusters"),
    ("--suspected", "suspected"),
)
LINK_COLUMNS: list[dict[Any, Any]] = [
    {"name": "a", "label": "From", "field": "a", "align": "left", "sortable": True},
    {"name": "b", "label": "To", "field": "b", "align": "left", "sortable": True},
    {"name": "level", "label": "Level", "field": "level", "sortable": True},
    {"name": "state", "label": "State", "field": "state", "align": "left", "sortable": True},
    {"name": "trip", "label": "Round trip", "field": "trip"},
    {"name": "rate", "label": "Load", "field": "rate"},
]


def register(frame: Frame) -> None:
    @ui.page("/topology", response_timeout=15)
    async def topology(request: Request, unit: str = "") -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "Topology"):
            page = _Page(person, path_of(unit))
            await page.build()
        return None


class _Page:
    """One open page."""

    def __init__(self, person: Person, asked: Path) -> None:
        self._observer = person.observer
        self._asked = asked
        self._version = -1
        self._svg = ""

    async def build(self) -> None:
        self._observer.want(self._asked)
        if not self._observer.version:
            await self._observer.wait_seen(FIRST_S)
        self._crumbs = ui.html(sanitize=False, tag="nav").props('aria-label="Where you are"')
        self._said = ui.label().classes("note warn").props("role=status")
        with ui.element("section").classes("panel").props('aria-label="Picture"'):
            self._picture = ui.html(sanitize=False)
            ui.html(_legend(), sanitize=False).classes("legend")
        with ui.element("section").classes("panel").props('aria-label="About this unit"'):
            self._about_title = heading("")
            self._about = ui.html(sanitize=False)
        with panel("Links"):
            self._links = ui.table(columns=LINK_COLUMNS, rows=[], row_key="key", pagination=10).props("flat dense")
        self._show(is_first=True)
        ui.timer(LOOK_S, self._show)

    def _show(self, is_first: bool = False) -> None:
        observer = self._observer
        observer.want(self._asked)
        self._said.set_visibility(bool(observer.denied) or not observer.version)
        self._said.text = observer.denied or "No broker has answered yet."
        if observer.version == self._version:
            return
        self._version = observer.version
        scene = observer.scene
        within, selected = _shown(scene, self._asked)
        picture = draw(scene, within, Highlight(selected=selected))
        svg = picture.svg or '<p class="faint">Nothing is known of what is inside.</p>'
        if is_first:
            self._picture.content = self._svg = svg
        elif svg != self._svg:
            self._svg = svg
            run_script("draw", self._picture.html_id, svg)
        self._crumbs.content = crumbs(scene, self._asked)
        self._about_title.content = escape(_title(scene, self._asked))
        self._about.content = _about(scene, selected or within, observer.status_of(selected) if selected else None)
        self._links.rows = _rows(scene, selected, within, picture)


def _shown(scene: Scene, asked: Path) -> tuple[Path, Path | None]:
    """The unit that is drawn, and the broker that is pointed out in it."""
    while asked and asked not in scene.members:
        asked = asked[:-1]
    if asked and len(asked) == scene.levels:
        return asked[:-1], asked
    return asked, None


def crumbs(scene: Scene, asked: Path, page: str = "/topology") -> str:
    """The way up."""
    entries = [f'<li><a href="{page}">Network</a></li>']
    for depth in range(1, len(asked) + 1):
        name = escape(asked[depth - 1])
        is_last = depth == len(asked)
        href = f"{page}?unit={quote(label_of(asked[:depth]))}"
        entries.append(
            f'<li aria-current="location">{name}</li>' if is_last else f'<li><a href="{href}">{name}</a></li>'
        )
    return f'<ol class="crumbs">{"".join(entries)}</ol>'


def _title(scene: Scene, asked: Path) -> str:
    if not asked:
        return "The network"
    level = scene.level(asked)
    return f"{(level_name(level) if level else 'broker').capitalize()} {label_of(asked)}"


def _legend() -> str:
    lines = "".join(f'<span><i style="border-color: var({colour})"></i>{text}</span>' for colour, text in LEGEND)
    return (
        f"{lines}<span>wider: more bytes a second; filled: gatekeepers; dashed boxes: closed, a click opens them</span>"
    )


def facts_list(facts: dict[str, Any]) -> str:
    rows = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    return f'<dl class="facts">{rows}</dl>'


def _about(scene: Scene, unit: Path, status: dict[str, Any] | None) -> str:
    if status is not None:
        row = broker_row(label_of(unit), status, None)
        return facts_list(
            {
                "Up for": row["up"],
                "Version": row["version"],
                "Listens on": ", ".join(status["urls"]),
                "Clients": row["clients"],
                "Subscriptions": f"{row['subscriptions']}, durable {row['durable']}",
                "Profiles known": row["profiles"],
                "Slow to read": f"{row['clogged']} clients, {row['waiting']} events waiting",
                "Log": row["log"],
                "Memory": row["memory"],
                "Records": status.get("records") or "off",
                "Trouble": status["store"]["trouble"] or "none",
            }
        )
    brokers = scene.brokers(unit)
    facts = [scene.facts[broker] for broker in brokers if broker in scene.facts]
    found: dict[str, Any] = {
        "Units inside": len(scene.members.get(unit, ())),
        "Brokers known": f"{len(brokers)}, of which {len(facts)} were asked",
        "Clients": sum(each.clients for each in facts),
        "Subscriptions": sum(each.subscriptions for each in facts),
        "Slow to read": sum(each.slow for each in facts),
    }
    silent = [label_of(broker) for broker in brokers if broker in scene.silent]
    if silent:
        found["Do not answer"] = ", ".join(silent)
    return facts_list(found)


def _rows(scene: Scene, selected: Path | None, within: Path, picture: Picture) -> list[dict[str, Any]]:
    if selected is not None:
        lines = [line for line in scene.lines if selected in (line.a, line.b)]
    else:
        inside = [line for line in scene.lines if _is_in(line.a, within) and _is_in(line.b, within)]
        lines = [*inside, *picture.outside]
    return [_row(line) for line in lines]


def _is_in(unit: Path, within: Path) -> bool:
    return unit[: len(within)] == within


def _row(line: Line) -> dict[str, Any]:
    rate = line.bytes_per_second
    used = "" if line.load is None else f"{line.load:.0%}"
    return {
        "key": f"{label_of(line.a)} {label_of(line.b)} {line.level}",
        "a": label_of(line.a),
        "b": label_of(line.b),
        "level": line.level,
        "state": "suspected" if line.is_suspected else "open" if line.is_exact else f"{line.links} behind",
        "trip": "" if line.round_trip_ms is None else f"{line.round_trip_ms:.1f} ms",
        "rate": used if rate is None else f"{bytes_text(rate)}/s, {used}",
    }
