"""What all pages have in common: the bar at the top, who is signed in, light and dark, and news of the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import context, ui

from veena.dashboard.sessions.signing import Desk, Person

COOKIE = "veena-portal"
LOOK_COOKIE = "veena-look"
#: How often pages look whether the broker is there, and show what is new.
LOOK_S = 1.0
#: What the switch for light and dark goes through, and what it says; None follows the system.
LOOKS: dict[str, tuple[bool | None, str, str]] = {
    "auto": (None, "Auto", "light"),
    "light": (False, "Light", "dark"),
    "dark": (True, "Dark", "auto"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the bar at the top."""

    path: str
    title: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of every page of a portal."""

    desk: Desk
    entries: tuple[Entry, ...]

    def person(self, request: Request) -> Person | RedirectResponse:
        """Who asks for a page, or where to go first."""
        found = self.desk.person(request.cookies.get(COOKIE))
        if found is not None:
            return found
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/sign-in?next={quote(wanted, safe='')}", status_code=303)

    @contextmanager
    def page(self, request: Request, person: Person, title: str) -> Iterator[None]:
        """The page around what is put into it."""
        client = context.client
        client.on_connect(lambda: _opened(person))
        client.on_disconnect(lambda: _closed(person))
        ui.page_title(f"{title} · Veena")
        ui.add_head_html('<link rel="stylesheet" href="/static/portal.css"><script src="/static/portal.js"></script>')
        banner = self._bar(request, person)
        ui.skip_link("Skip to the content", target=client.content)

        def look() -> None:
            if self.desk.person(request.cookies.get(COOKIE)) is None:
                ui.navigate.to("/sign-in")
                return
            banner.set_visibility(not person.client.is_connected)

        ui.timer(LOOK_S, look)
        heading(title, "h1")
        yield

    def _bar(self, request: Request, person: Person) -> ui.element:
        with ui.header(elevated=False), ui.element("div").classes("top"):
            ui.html('<a class="brand" href="/">Veena</a>', sanitize=False)
            links = "".join(
                f'<a href="{entry.path}"{current(entry.path, request.url.path)}>{entry.title}</a>'
                for entry in self.entries
            )
            ui.html(links, sanitize=False, tag="nav").props('aria-label="Pages"')
            with ui.element("div").classes("who"):
                _look_switch(request)
                ui.label(person.name).props('title="Signed in"').classes("faint")
                form = '<form method="post" action="/sign-out"><button class="sign-out">Sign out</button></form>'
                ui.html(form, sanitize=False)
        banner = (
            ui.label("The broker does not answer. Trying to reach it again …").classes("banner").props("role=alert")
        )
        banner.set_visibility(False)
        return banner


def current(path: str, asked: str) -> str:
    is_here = asked == path or (path != "/" and asked.startswith(path + "/"))
    return ' aria-current="page"' if is_here else ""


def _look_switch(request: Request) -> None:
    name = request.cookies.get(LOOK_COOKIE, "auto")
    state = {"look": name if name in LOOKS else "auto"}
    dark = ui.dark_mode(LOOKS[state["look"]][0])
    button = ui.button(LOOKS[state["look"]][1]).props('flat dense no-caps aria-label="Light or dark"')

    def turn() -> None:
        state["look"] = LOOKS[state["look"]][2]
        dark.value, button.text = LOOKS[state["look"]][:2]
        ui.run_javascript(
            f"document.cookie = '{LOOK_COOKIE}={state['look']}; path=/; max-age=31536000; samesite=strict'"
        )

    button.on_click(turn)


def _opened(person: Person) -> None:
    person.pages += 1


def _closed(person: Person) -> None:
    person.pages = max(0, person.pages - 1)


def heading(text: str, tag: str = "h2") -> ui.html:
    """A heading; the text is not HTML."""
    return ui.html(escape(text), sanitize=False, tag=tag)


@contextmanager
def panel(title: str, *, is_live: bool = False) -> Iterator[ui.element]:
    """A part of a page with a heading of its own."""
    with ui.element("section").classes("panel").props(f'aria-label="{escape(title)}"') as found:
        heading(title)
        yield found


class Note:
    """A line that says how something went; screen readers tell it."""

    def __init__(self) -> None:
        self._label = ui.label().classes("note").props("role=status")
        self.clear()

    def say(self, text: str, kind: str = "") -> None:
        self._label.text = text
        self._label.classes(replace=f"note {kind}".strip())
        self._label.set_visibility(True)

    def clear(self) -> None:
        self._label.set_visibility(False)


def run_script(call: str, *arguments: object) -> None:
    """Call a function of static/portal.js."""
    ui.run_javascript(f"veena.{call}({', '.join(map(json.dumps, arguments))})")
