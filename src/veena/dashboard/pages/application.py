"""One application: its field as it changes, its statistics, who drives, and the talk of those who look at it."""

from __future__ import annotations

import base64
import time
from html import escape

from fastapi import Request
from fastapi.responses import Response
from nicegui import events, ui

from veena.dashboard.pages.frame import Frame, Note, panel, run_script
from veena.dashboard.pages.steering_panel import SteeringPanel
from veena.dashboard.pages.traffic import line_chart
from veena.dashboard.pictures.field import FieldPicture
from veena.dashboard.pictures.figures import clock_text
from veena.dashboard.sessions.signing import Person
from veena.dashboard.sessions.watching import Annotation, Message, Watching, short
from veena.errors import VeenaError

#: How often a page shows what is new: as fast as people see a change as one.
SHOW_S = 0.25
#: A chart is sent whole: so often is enough.
CHART_S = 1.0
#: Statistics that only say how late it is: not what one wants to see first.
CLOCKS = ("seconds", "time", "t")
#: Letters of a message.
MAX_TEXT = 1000
#: Annotations that are drawn on the field.
MAX_DRAWN = 12
MAX_WATCHED = 16


def register(frame: Frame) -> None:
    @ui.page("/applications/{application}", response_timeout=20)
    async def one(request: Request, application: str) -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, f"Application {application}"):
            try:
                watching = await watched(person, application)
            except (VeenaError, TimeoutError) as error:
                Note().say(str(error), "bad")
            else:
                _Page(person, watching).build()
        return None


async def watched(person: Person, application: str) -> Watching:
    """What this person sees of an application; the same for all pages."""
    key = f"application {application}"
    found = person.kept.get(key)
    if not isinstance(found, Watching):
        member = await person.member()
        kept = [each for each, value in person.kept.items() if isinstance(value, Watching)]
        if len(kept) >= MAX_WATCHED:
            await person.kept.pop(kept[0]).close()
        found = person.kept[key] = Watching(application, member).start()
    return found


class _Page:
    """One open page."""

    def __init__(self, person: Person, watching: Watching) -> None:
        self._person = person
        self._watching = watching
        self._chart_at = 0.0
        self._seen = {"field": -1, "statistics": -1, "records": -1, "talk": -1}

    def build(self) -> None:
        self._state = ui.label().classes("note").props("role=status aria-live=polite")
        with ui.element("div").classes("panels"):
            with panel("Field"):
                self._build_field()
            with panel("Statistics"):
                self._which = ui.select([], label="Statistic", on_change=self._show_statistics)
                self._which.props("outlined dense")
                self._chart = ui.echart(line_chart(("",), "")).classes("chart")
            self._steering = SteeringPanel(self._watching) if self._watching.member.may_steer else None
            if self._steering is not None:
                self._steering.build()
            with panel("Talk"):
                self._build_talk()
            with panel("Who steered what"):
                self._records = ui.html(sanitize=False).classes("chat").props('tabindex=0 aria-label="Record"')
        self._show()
        ui.timer(SHOW_S, self._show)

    # --- the field ---

    def _build_field(self) -> None:
        self._field = ui.interactive_image(on_mouse=self._pointed).classes("field")
        self._caption = ui.label("No field has come yet.").classes("faint")
        with ui.element("div").classes("line"):
            self._note_text = ui.input("Annotation").props("outlined dense").classes("grow")
            self._x = ui.number("x", value=0, min=0, precision=0).props("outlined dense").style("width: 80px")
            self._y = ui.number("y", value=0, min=0, precision=0).props("outlined dense").style("width: 80px")
            ui.button("Annotate", on_click=self._annotate).props("no-caps outline")
        ui.label("A click into the field sets x and y.").classes("faint")
        self._field_note = Note()

    def _pointed(self, event: events.MouseEventArguments) -> None:
        picture = self._watching.picture
        if picture is not None:
            self._x.value = min(max(int(event.image_x * picture.columns / picture.width), 0), picture.columns - 1)
            self._y.value = min(max(int(event.image_y * picture.rows / picture.height), 0), picture.rows - 1)

    async def _annotate(self) -> None:
        watching, text = self._watching, (self._note_text.value or "").strip()[:MAX_TEXT]
        if not text:
            self._field_note.say("Write what is to be noted first.", "warn")
            return
        try:
            await watching.member.annotate(
                watching.application, text, float(self._x.value or 0), float(self._y.value or 0), watching.step
            )
        except (VeenaError, TimeoutError) as error:
            self._field_note.say(str(error), "bad")
        else:
            self._note_text.value = ""
            self._field_note.clear()

    # --- the talk ---

    def _build_talk(self) -> None:
        self._present = ui.label().classes("faint")
        self._messages = ui.html(sanitize=False).classes("chat")
        self._messages.props('tabindex=0 role=log aria-label="Messages"')
        with ui.element("div").classes("line"):
            self._say = ui.input("Message").props("outlined dense").classes("grow")
            ui.button("Send", on_click=self._send).props("no-caps outline")
        self._say.on("keydown.enter", self._send)
        self._talk_note = Note()

    async def _send(self) -> None:
        text = (self._say.value or "").strip()[:MAX_TEXT]
        if not text:
            return
        try:
            await self._watching.member.say(self._watching.application, text)
        except (VeenaError, TimeoutError) as error:
            self._talk_note.say(str(error), "bad")
        else:
            self._say.value = ""
            self._talk_note.clear()

    # --- showing what is new ---

    def _show(self) -> None:
        watching = self._watching
        self._state.text = state_text(watching)
        self._present.text = "Here: " + ", ".join(map(short, watching.member.present(watching.application)))
        if self._is_new("field", watching.fields_seen):
            self._show_field()
        now = time.monotonic()
        if now >= self._chart_at and self._is_new("statistics", watching.statistics_seen):
            self._chart_at = now + CHART_S
            self._show_statistics()
        if self._is_new("records", watching.records_seen):
            self._records.content = "".join(map(message_html, watching.records))
            run_script("toEnd", self._records.html_id)
            if self._steering is not None:
                self._steering.is_stale = True
        if self._is_new("talk", watching.talk_seen):
            self._messages.content = "".join(map(message_html, watching.messages))
            self._field.content = annotations_svg(watching)
            run_script("toEnd", self._messages.html_id)
        if self._steering is not None:
            self._steering.show()

    def _is_new(self, what: str, count: int) -> bool:
        is_new = self._seen[what] != count
        self._seen[what] = count
        return is_new

    def _show_field(self) -> None:
        watching, picture = self._watching, self._watching.picture
        if picture is not None:
            self._field.set_source("data:image/png;base64," + base64.b64encode(picture.png).decode())
            self._field.content = annotations_svg(watching)
            self._caption.text = (
                f"{picture.columns} x {picture.rows} cells at step {watching.step}, from {picture.low:.4g} (dark) to"
                f" {picture.high:.4g} (bright)"
            )
        if watching.fault:
            self._caption.text = watching.fault

    def _show_statistics(self) -> None:
        readings = list(self._watching.statistics)
        names = list(dict.fromkeys(name for _, numbers in readings for name in numbers))
        if names != self._which.options:
            first = next((name for name in names if name not in CLOCKS), names[0])
            self._which.set_options(names, value=self._which.value if self._which.value in names else first)
        name = str(self._which.value)
        options = self._chart.options
        options["xAxis"]["data"] = [step for step, _ in readings]
        options["legend"]["data"] = [name]
        options["series"][0]["name"] = name
        options["series"][0]["data"] = [numbers.get(name) for _, numbers in readings]
        self._chart.update()


def state_text(watching: Watching) -> str:
    if not watching.heard_at:
        return watching.fault or "Nothing has come of it yet."
    if watching.is_silent:
        return "It has been silent for a while: it is not there any more, or in a long step."
    driver = f"{short(watching.driver)} drives" if watching.driver else "nobody drives"
    return f"{watching.state or 'running'}, step {watching.step}; {driver}"


def message_html(message: Message) -> str:
    return (
        f'<p><span class="faint">{clock_text(message.at_ns)[:8]}</span> '
        f'<span class="from" title="{escape(message.by)}">{escape(short(message.by))}</span>{escape(message.text)}</p>'
    )


def annotations_svg(watching: Watching) -> str:
    """Notes on the field: a cross at the place, and the text beside it, in the sizes of the picture."""
    picture = watching.picture
    if picture is None:
        return ""
    size = max(picture.width, picture.height) / 28
    return "".join(_mark(each, size, picture) for each in list(watching.annotations)[-MAX_DRAWN:])


def _mark(note: Annotation, size: float, picture: FieldPicture) -> str:
    x, y = (note.x + 0.5) * picture.width / picture.columns, (note.y + 0.5) * picture.height / picture.rows
    is_right = x > picture.width * 0.6
    anchor, shift = ("end", -size * 0.6) if is_right else ("start", size * 0.6)
    words = escape(f"{short(note.by)}: {note.text}"[:40])
    style = f'fill="#fff" stroke="#000" stroke-width="{size / 8:.2f}" paint-order="stroke" font-size="{size:.2f}"'
    return (
        f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{size / 3:.2f}" fill="none" stroke="#fff"'
        f' stroke-width="{size / 7:.2f}"/>'
        f'<text x="{x + shift:.2f}" y="{y + size / 3:.2f}" text-anchor="{anchor}" {style}>{words}</text>'
    )
