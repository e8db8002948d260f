"""The wheel of an application: who drives, taking and giving it, and parameters with what they may be.

Only those see it whom the broker lets steer. A value is checked here against what the application said of it, so that a
slip of the finger is told at once; whether it holds, the application says, and its refusals are shown as they are.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from nicegui import ui

from veena.dashboard.pages.frame import Note, panel
from veena.dashboard.sessions.collaboratory import Answer, ParameterView, Scalar
from veena.dashboard.sessions.watching import Watching, short
from veena.errors import VeenaError

#: How often parameters are asked for while nobody says that they changed.
AGAIN_S = 10.0


def expected(view: ParameterView) -> str:
    """What a parameter may be, in words."""
    if view.choices:
        return "one of " + ", ".join(map(str, view.choices))
    if view.low is not None and view.high is not None:
        return f"{view.low:g} to {view.high:g}"
    if view.low is not None:
        return f"{view.low:g} or more"
    return f"{view.high:g} or less" if view.high is not None else view.kind


def parsed(view: ParameterView, text: object) -> Scalar:
    """What was put in as a value of the parameter; raise ValueError with the reason."""
    value: Scalar
    try:
        if view.kind == "bool":
            value = bool(text)
        elif view.kind == "int":
            value = int(str(text))
        elif view.kind == "float":
            value = float(str(text))
        else:
            value = str(text)
    except ValueError:
        raise ValueError(f"{text!r:.40} is no {view.kind}: expected {expected(view)}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{text!r:.40} is no number: expected {expected(view)}")
    if view.choices and value not in view.choices:
        raise ValueError(f"{value!r:.40} is none of the choices: expected {expected(view)}")
    if isinstance(value, str) or view.kind not in ("int", "float"):
        return value
    if (view.low is not None and value < view.low) or (view.high is not None and value > view.high):
        raise ValueError(f"{value:g} is out of bounds: expected {expected(view)}")
    return value


class SteeringPanel:
    """The wheel on one page."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        #: Somebody has changed something: ask for the values.
        self.is_stale = True
        self._asked_at = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._inputs: dict[str, Any] = {}
        self._views: dict[str, ParameterView] = {}
        self._driver = ""

    def build(self) -> None:
        with panel("Steering"):
            self._who = ui.label().classes("faint")
            with ui.element("div").classes("line"):
                member, name = self._watching.member, self._watching.application
                ui.button("Take the wheel", on_click=partial(self._do, member.take, "taken")).props("no-caps")
                ui.button("Release", on_click=partial(self._do, member.release, "released")).props("no-caps outline")
                ui.button("Pause", on_click=partial(self._do, member.pause, "paused")).props("no-caps outline")
                ui.button("Resume", on_click=partial(self._do, member.resume, "resumed")).props("no-caps outline")
            with ui.element("div").classes("line"):
                self._to = ui.select({}, label="Hand over to").props("outlined dense").classes("grow")
                ui.button("Hand over", on_click=self._hand_over).props("no-caps outline")
            self._note = Note()
            self._rows = ui.element("div").style("display: flex; flex-direction: column; gap: 10px")
            with self._rows:
                ui.label(f"Asking {name} what can be steered …").classes("faint")

    # --- showing ---

    def show(self) -> None:
        """Called again and again by the page."""
        watching = self._watching
        driver = watching.driver or self._driver
        own = watching.member.client_id
        who = "You drive." if driver == own else f"{short(driver)} drives." if driver else "Nobody drives."
        if self._who.text != who:
            self._who.text = who
        others = {each: short(each) for each in watching.member.present(watching.application) if each != own}
        if others != self._to.options:
            self._to.set_options(others, value=self._to.value if self._to.value in others else None)
        now = asyncio.get_running_loop().time()
        is_idle = self._asking is None or self._asking.done()
        if is_idle and (self.is_stale or now - self._asked_at > AGAIN_S) and watching.heard_at:
            self.is_stale, self._asked_at = False, now
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        try:
            answer = await self._watching.member.query(self._watching.application)
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")
            return
        if not answer.is_done:
            self._note.say(f"Refused: {answer.reason}", "bad")
            return
        self._driver = answer.driver
        before, self._views = self._views, dict(answer.parameters)
        if list(before) != list(self._views):
            self._make_rows()
            return
        for name, view in self._views.items():
            # What somebody is typing stays, unless the value itself has changed.
            if name in self._inputs and view.value != before[name].value:
                self._inputs[name].value = view.value

    def _make_rows(self) -> None:
        self._rows.clear()
        self._inputs = {}
        with self._rows:
            for view in self._views.values():
                with ui.element("div").classes("line"):
                    self._make_row(view)

    def _make_row(self, view: ParameterView) -> None:
        unit = f" [{view.unit}]" if view.unit else ""
        label = f"{view.name}{unit}, {expected(view)}"
        if view.read_only:
            ui.label(f"{view.name}{unit}: {view.value}")
            return
        found: Any
        if view.kind == "bool":
            found = ui.switch(view.name, value=bool(view.value))
        elif view.choices:
            found = ui.select(list(view.choices), value=view.value, label=label).props("outlined dense")
        else:
            kind = "inputmode=decimal" if view.kind in ("int", "float") else ""
            found = ui.input(label, value=str(view.value)).props(f"outlined dense {kind}")
            found.on("keydown.enter", partial(self._set, view.name))
        found.classes("grow")
        if view.about:
            found.tooltip(view.about)
        self._inputs[view.name] = found
        ui.button("Set", on_click=partial(self._set, view.name)).props(
            f'no-caps outline dense aria-label="Set {view.name}"'
        )

    # --- doing ---

    async def _set(self, name: str) -> None:
        view, member = self._views[name], self._watching.member
        try:
            value = parsed(view, self._inputs[name].value)
        except ValueError as error:
            self._note.say(f"{name}: {error}", "bad")
            return
        await self._do(lambda application: member.change(application, **{name: value}), f"{name} = {value}")

    async def _hand_over(self) -> None:
        member, to = self._watching.member, self._to.value
        if not to:
            self._note.say("Choose who is to drive.", "warn")
            return
        await self._do(lambda application: member.hand_over(application, str(to)), f"handed over to {short(str(to))}")

    async def _do(self, command: Callable[[str], Awaitable[Answer]], done: str) -> None:
        try:
            answer = await command(self._watching.application)
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")
            return
        if answer.is_done:
            self._driver = self._watching.driver = answer.driver
            self._note.say(f"Done: {done}", "good")
        else:
            self._note.say(f"Refused: {answer.reason}", "bad")
        self.is_stale = True
