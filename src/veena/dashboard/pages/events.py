"""One event: the way it went, as a path on the picture, and what became of it for a client."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.address import format_address, link_level
from veena.client.explain import Explanation, TraceAnswer
from veena.dashboard.pages.frame import Frame, Note, panel
from veena.dashboard.pages.topology import facts_list
from veena.dashboard.pages.traffic import columns
from veena.dashboard.pictures.figures import after_text, amount, clock_text
from veena.dashboard.pictures.picture import Highlight, Hop, draw
from veena.dashboard.pictures.scene import Path, Scene, path_of
from veena.dashboard.sessions.signing import Person
from veena.errors import VeenaError

#: How long brokers have to answer.
ANSWER_S = 3.0
FIRST_S = 4.0
#: Hops and deliveries that are listed.
MAX_LISTED = 500
GOOD = ("delivered", "kept", "shared")
HOPS: tuple[tuple[str, str], ...] = (
    ("sender", "From"), ("receiver", "To"), ("level", "Level"), ("sent", "Sent"), ("entered", "Entered"),
)  # fmt: skip
HANDED: tuple[tuple[str, str], ...] = (("client", "Client"), ("broker", "Broker"), ("at", "When"))


def register(frame: Frame) -> None:
    @ui.page("/events", response_timeout=20)
    async def events(request: Request, event: str = "", about: str = "") -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "Events"):
            page = _Page(person)
            page.build(event, about)
            if event:
                await (page.explain() if about else page.trace())
        return None


class _Page:
    """One open page."""

    def __init__(self, person: Person) -> None:
        self._person = person

    def build(self, event: str, client: str) -> None:
        with panel("What became of an event"):
            with ui.element("div").classes("line"):
                self._event = ui.input("Event id", value=event).props("outlined dense").classes("grow")
                self._client = ui.input("Client id, to explain", value=client).props("outlined dense").classes("grow")
                ui.button("Trace", on_click=self.trace).props("no-caps")
                ui.button("Explain", on_click=self.explain).props("no-caps outline")
            ui.label("An id looks like alice:1:1765000000000000000:1; publishing returns it.").classes("faint")
            self._event.on("keydown.enter", self.trace)
            self._client.on("keydown.enter", self.explain)
            self._note = Note()
        self._result = ui.element("div").classes("panels").style("grid-template-columns: 100%")

    async def trace(self) -> None:
        self._result.clear()
        self._note.clear()
        try:
            found = await self._person.client.trace((self._event.value or "").strip(), timeout=ANSWER_S)
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")
            return
        scene = await self._scene()
        with self._result:
            _show_trace(found, scene)
        self._note.say(summary(found), "good" if found.accepted_ns else "warn")

    async def explain(self) -> None:
        self._result.clear()
        self._note.clear()
        event, client = (self._event.value or "").strip(), (self._client.value or "").strip()
        try:
            found = await self._person.client.explain(event, client, timeout=ANSWER_S)
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")
            return
        scene = await self._scene()
        reason = found.reason.value
        with self._result:
            _show_explanation(found, client, scene)
        self._note.say(f"{reason}: {found.text}", "good" if reason in GOOD else "warn")

    async def _scene(self) -> Scene:
        observer = self._person.observer
        observer.want(())
        if not observer.version:
            await observer.wait_seen(FIRST_S)
        return observer.scene


def summary(found: TraceAnswer) -> str:
    """A trace in a line."""
    if not found.accepted_ns:
        off = found.heard.get("off", 0)
        hint = f"; at {amount(off, 'broker')} records are off ([store] records)" if off else ""
        return f"Nobody who answered remembers this event{hint}."
    brokers = {hop.receiver for hop in found.hops if hop.entered_ns} | {found.origin}
    handed = amount(len(found.handed), "delivery").replace("deliverys", "deliveries")
    text = f"{handed}, {amount(len(brokers), 'broker')}, {amount(len(found.hops), 'hop')}"
    if found.silent:
        text += f"; no answer from {', '.join(map(found.label, found.silent))}"
    return text


def highlight(found: TraceAnswer | Explanation) -> Highlight:
    """The way of an event for the picture."""
    way = found.hops if isinstance(found, TraceAnswer) else found.way
    hops = tuple(Hop(_path(found, hop.sender), _path(found, hop.receiver), not hop.entered_ns) for hop in way)
    handed: dict[Path, int] = {}
    if isinstance(found, TraceAnswer):
        for each in found.handed:
            broker = _path(found, each.broker)
            handed[broker] = handed.get(broker, 0) + 1
    elif found.is_delivered and found.broker:
        handed[_path(found, found.broker)] = 1
    return Highlight(hops, handed, _path(found, found.origin) if found.origin else None)


def _path(found: TraceAnswer | Explanation, unit: tuple[int, ...]) -> Path:
    return path_of(found.label(unit))


def _picture(scene: Scene, points: Highlight) -> None:
    missing = [broker for broker in points.brokers() if broker not in scene.members]
    if not scene.members.get(()) or not points.brokers():
        return
    with panel("The way"):
        ui.html(draw(scene, (), points).svg, sanitize=False)
        text = "Numbered in the order of time; green rings handed it to clients, as many as the number says."
        if missing:
            text += f" Not in the picture: {', '.join('.'.join(each) for each in missing)}."
        ui.label(text).classes("faint")


def _table(title: str, named: tuple[tuple[str, str], ...], rows: list[dict[str, Any]]) -> None:
    if rows:
        with panel(title):
            shown = [{**row, "key": at} for at, row in enumerate(rows[:MAX_LISTED])]
            table = ui.table(columns=columns(named), rows=shown, row_key="key", pagination=15)
            table.props("flat dense")


def _hop_rows(found: TraceAnswer | Explanation) -> list[dict[str, Any]]:
    way = found.hops if isinstance(found, TraceAnswer) else found.way
    begin = found.accepted_ns
    return [
        {
            "sender": found.label(hop.sender),
            "receiver": found.label(hop.receiver),
            "level": link_level(hop.sender, hop.receiver),
            "sent": after_text(hop.sent_ns, begin),
            "entered": after_text(hop.entered_ns, begin) if hop.entered_ns else "not known to have come",
        }
        for hop in way
    ]


def _show_trace(found: TraceAnswer, scene: Scene) -> None:
    if not found.accepted_ns and not found.hops:
        return
    _picture(scene, highlight(found))
    _table("Hops", HOPS, _hop_rows(found))
    begin = found.accepted_ns
    rows = [
        {"client": each.client_id, "broker": found.label(each.broker), "at": after_text(each.at_ns, begin)}
        for each in found.handed
    ]
    _table("Handed to", HANDED, rows)
    other = [
        {"client": each.client_id, "broker": found.label(each.broker), "at": f"{each.what} {each.text}".strip()}
        for each in found.happened
    ]
    _table("What else happened", HANDED, other)


def _show_explanation(found: Explanation, client: str, scene: Scene) -> None:
    facts: dict[str, Any] = {"Client": client}
    if found.accepted_ns:
        facts["Accepted"] = f"{clock_text(found.accepted_ns)} at {found.label(found.origin)}"
    if found.at_ns:
        facts["When"] = f"{clock_text(found.at_ns)} ({after_text(found.at_ns, found.accepted_ns)})"
    if found.broker:
        facts["Where"] = f"{found.label(found.broker)} ({format_address(found.broker)})"
    if found.unit and found.unit != found.broker:
        facts["Unit"] = found.label(found.unit)
    if found.subscriptions:
        facts["Subscriptions"] = ", ".join(map(str, found.subscriptions))
    if found.silent:
        facts["No answer from"] = ", ".join(map(found.label, found.silent))
    with panel("Explanation"):
        ui.html(f"<p><strong>{escape(found.reason.value)}</strong>: {escape(found.text)}</p>", sanitize=False)
        ui.html(facts_list(facts), sanitize=False)
    _picture(scene, highlight(found))
    _table("Hops", HOPS, _hop_rows(found))
