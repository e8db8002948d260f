"""Over the shoulder: choose a member, and see what it sees, live; or let others see what you see (COL-03)."""

from __future__ import annotations

import base64
import time
from collections import Counter
from html import escape

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.dashboard.pages.application import message_html
from veena.dashboard.pages.frame import Frame, Note, panel, run_script
from veena.dashboard.sessions.shoulder import Followed, Shoulder
from veena.dashboard.sessions.signing import Person
from veena.dashboard.sessions.watching import SILENT_S, short
from veena.errors import VeenaError

#: How often a page shows what is new.
SHOW_S = 0.25


def register(frame: Frame) -> None:
    @ui.page("/shadow", response_timeout=20)
    async def shadow(request: Request) -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "Over the shoulder"):
            try:
                shoulder = await shoulder_of(person)
            except (VeenaError, TimeoutError) as error:
                Note().say(str(error), "bad")
            else:
                _Page(shoulder).build()
        return None


async def shoulder_of(person: Person) -> Shoulder:
    """One for all pages of a person."""
    found = person.kept.get("shoulder")
    if not isinstance(found, Shoulder):
        found = person.kept["shoulder"] = Shoulder(await person.member())
    await found.enter()
    return found


class _Page:
    """One open page."""

    def __init__(self, shoulder: Shoulder) -> None:
        self._shoulder = shoulder
        self._seen: tuple[Followed | None, int] = (None, -1)
        self._fields_seen = -1

    def build(self) -> None:
        with ui.element("div").classes("panels"):
            with panel("Whom to follow"):
                with ui.element("div").classes("line"):
                    self._who = ui.select({}, label="Member").props("outlined dense").classes("grow")
                    ui.button("Follow", on_click=self._follow).props("no-caps")
                    ui.button("Stop", on_click=self._stop).props("no-caps outline")
                ui.label("Who has opened this page is listed, and can be followed if it agrees.").classes("faint")
                self._note = Note()
            with panel("Your own view"):
                self._switch = ui.switch("Let others see what I see", value=self._shoulder.is_shown)
                self._switch.on_value_change(self._agree)
                ui.label(
                    "They get the events that you get, as far as they may read them; no conversations of two."
                ).classes("faint")
            with panel("What is seen there"):
                self._state = ui.label().classes("note").props("role=status aria-live=polite")
                self._field = ui.image().classes("field").props('alt="Field" no-transition no-spinner')
                self._field.set_visibility(False)
                self._caption = ui.label().classes("faint")
                self._states = ui.html(sanitize=False)
                self._lines = ui.html(sanitize=False).classes("chat").props('tabindex=0 role=log aria-label="Events"')
        self._show()
        ui.timer(SHOW_S, self._show)

    # --- doing ---

    async def _follow(self) -> None:
        who = self._who.value
        if not who:
            self._note.say("Choose somebody.", "warn")
            return
        try:
            await self._shoulder.follow(str(who))
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")
        else:
            self._note.say(f"You see what {short(str(who))} sees from now on.", "good")

    async def _stop(self) -> None:
        await self._shoulder.stop()
        self._note.clear()

    async def _agree(self) -> None:
        try:
            await self._shoulder.show(bool(self._switch.value))
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")

    # --- showing ---

    def _show(self) -> None:
        others = names_of(self._shoulder.others())
        if others != self._who.options:
            self._who.set_options(others, value=self._who.value if self._who.value in others else None)
        followed = self._shoulder.followed
        self._state.text = state_text(followed)
        if self._seen == (followed, followed.seen if followed is not None else 0):
            return
        if self._seen[0] is not followed:
            self._fields_seen = -1
        self._seen = (followed, followed.seen if followed is not None else 0)
        self._show_field(followed)
        states = {} if followed is None else followed.states
        self._states.content = "".join(
            f"<p><strong>{escape(name)}</strong> {escape(text)}</p>" for name, text in sorted(states.items())
        )
        lines = "".join(map(message_html, followed.lines)) if followed is not None else ""
        if lines != self._lines.content:
            self._lines.content = lines
            run_script("toEnd", self._lines.html_id)

    def _show_field(self, followed: Followed | None) -> None:
        picture = None if followed is None else followed.picture
        self._caption.text = "" if followed is None else followed.caption
        self._field.set_visibility(picture is not None)
        if picture is not None and followed is not None and followed.fields_seen != self._fields_seen:
            self._fields_seen = followed.fields_seen
            self._field.set_source("data:image/png;base64," + base64.b64encode(picture.png).decode())


def names_of(client_ids: list[str]) -> dict[str, str]:
    """Names to choose from; of somebody who is there twice each with the end of its client id."""
    names = Counter(map(short, client_ids))
    return {each: short(each) if names[short(each)] == 1 else f"{short(each)} ({each[-4:]})" for each in client_ids}


def state_text(followed: Followed | None) -> str:
    if followed is None:
        return "You follow nobody."
    who = short(followed.who)
    if not followed.feed.is_active:
        return f"{who} shows nothing now."
    if not followed.heard_at:
        return f"{who} has got nothing since you follow."
    silent = time.monotonic() - followed.heard_at
    return f"What {who} sees now." if silent < SILENT_S else f"{who} has got nothing for {silent:.0f} s."
