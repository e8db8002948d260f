"""What an adviser would change in the network, and carrying it out step by step."""

from __future__ import annotations

import uuid
from functools import partial

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.client import Client
from veena.dashboard.pages.frame import Frame, Note, heading, panel
from veena.dashboard.pictures.figures import amount
from veena.dashboard.sessions.collaboratory import Adviser, Proposal
from veena.dashboard.sessions.signing import AdviserOf
from veena.errors import VeenaError

#: Where nobody is sent, by the question whether one might.
ANYWHERE = "veena://127.0.0.1:7700"


def register(frame: Frame, adviser_of: AdviserOf) -> None:
    @ui.page("/adviser", response_timeout=20)
    async def advise(request: Request) -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "Adviser"):
            page = _Page(adviser_of(lambda url: person.connect((url,), "")), await may_move(person.client))
            page.build()
            ui.timer(0.01, page.look, once=True)
        return None


async def may_move(client: Client) -> bool:
    """Whether the broker lets this person send clients elsewhere: only such people may change the network here."""
    try:
        await client.send_away((f"nobody-{uuid.uuid4().hex}",), ANYWHERE)
    except (VeenaError, TimeoutError):
        return False
    return True


class _Page:
    """One open page."""

    def __init__(self, adviser: Adviser, may_move: bool) -> None:
        self._adviser = adviser
        self._may_move = may_move

    def build(self) -> None:
        with panel("What could be better"):
            ui.label(
                "Clients far from their broker, publishers far from their audience, slow links, and links that would"
                " shorten ways. Nothing is done unasked."
            ).classes("faint")
            if not self._may_move:
                ui.label("To carry something out you need the right `move`.").classes("faint")
            elif not self._adviser.can_carry_out:
                text = "Brokers and links cannot be changed from here; clients can be sent to brokers that run."
                ui.label(text).classes("faint")
            ui.button("Look again", on_click=self.look).props("no-caps outline")
            self._note = Note()
        self._list = ui.element("div").classes("panels")

    async def look(self) -> None:
        self._note.say("Looking at the brokers …")
        try:
            found = await self._adviser.proposals()
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")
            return
        self._list.clear()
        with self._list:
            for proposal in found:
                self._show(proposal)
        self._note.say(f"{amount(len(found), 'proposal')}." if found else "Nothing to be improved was found.", "good")

    def _show(self, proposal: Proposal) -> None:
        with ui.element("section").classes("panel"):
            heading(proposal.title)
            ui.label(proposal.reason)
            if proposal.note:
                ui.label(proposal.note).classes("faint")
            with ui.element("ol").style("margin: 0; padding-left: 20px"):
                for step in proposal.steps:
                    with ui.element("li"):
                        ui.label(step)
            if not self._may_move:
                return
            done = ui.element("ol").style("margin: 0; padding-left: 20px").props('aria-label="Done"')
            note = Note()
            button = ui.button("Carry it out").props("no-caps")
            button.on_click(partial(self._carry_out, proposal, button, done, note))

    async def _carry_out(self, proposal: Proposal, button: ui.button, done: ui.element, note: Note) -> None:
        button.disable()
        note.say("At it …")
        try:
            async for step in self._adviser.carry_out(proposal):
                with done, ui.element("li"):
                    ui.label(step)
        except (VeenaError, TimeoutError) as error:
            note.say(str(error), "bad")
            button.enable()
        else:
            note.say("Done.", "good")
