"""Applications that can be found, here or in other domains."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.dashboard.pages.frame import Frame, Note, panel
from veena.dashboard.pictures.figures import amount
from veena.dashboard.sessions.collaboratory import Offer
from veena.dashboard.sessions.signing import Person
from veena.errors import VeenaError

#: Applications that a page lists.
MAX_LISTED = 200


def register(frame: Frame) -> None:
    @ui.page("/applications", response_timeout=20)
    async def applications(request: Request) -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "Applications"):
            page = _Page(person)
            page.build()
            ui.timer(0.01, page.find, once=True)
        return None


class _Page:
    """One open page."""

    def __init__(self, person: Person) -> None:
        self._person = person

    def build(self) -> None:
        with panel("Applications found"):
            with ui.element("div").classes("line"):
                label = "Constraint over what they say of themselves; empty for all"
                self._constraint = ui.input(label).props("outlined dense").classes("grow")
                ui.button("Find", on_click=self.find).props("no-caps")
            self._constraint.on("keydown.enter", self.find)
            self._note = Note()
            self._list = ui.html(sanitize=False)

    async def find(self) -> None:
        try:
            member = await self._person.member()
            found = await member.applications((self._constraint.value or "").strip())
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")
            self._list.content = ""
            return
        self._list.content = "".join(map(_entry, found[:MAX_LISTED]))
        none = "No application is found. One appears here as soon as it registers itself."
        self._note.say(f"{amount(len(found), 'application')} found." if found else none)


def _entry(offer: Offer) -> str:
    said = ", ".join(f"{name} {value}" for name, value in offer.properties.items() if name not in ("name", "network"))
    href = f"/applications/{quote(offer.application, safe='')}"
    return (
        f'<p><a href="{escape(href)}"><strong>{escape(offer.application)}</strong></a>'
        f' <span class="faint">in domain {offer.network}, offered by {escape(offer.client)}</span>'
        f"<br>{escape(said)}</p>"
    )
