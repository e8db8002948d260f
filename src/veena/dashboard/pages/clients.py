"""Clients of the brokers in sight: where they are, what they want, and who does not read fast enough."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.dashboard.pages.frame import LOOK_S, Frame, Note, panel
from veena.dashboard.pages.traffic import columns
from veena.dashboard.pictures.figures import amount, bytes_text
from veena.dashboard.sessions.observer import Observer

#: Clients that a page lists; those that do not read come first.
MAX_LISTED = 500
COLUMNS: tuple[tuple[str, str], ...] = (
    ("id", "Client"), ("broker", "Broker"), ("user", "User"), ("place", "Place"), ("trip", "Round trip"),
    ("subscriptions", "Subscriptions"), ("durable", "Durable"), ("published", "Published"), ("out", "Got"),
    ("reads", "Reads"),
)  # fmt: skip


def register(frame: Frame) -> None:
    @ui.page("/clients", response_timeout=15)
    async def clients(request: Request) -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "Clients"):
            _build(person.observer)
        return None


def _build(observer: Observer) -> None:
    note = Note()
    with panel("Clients and what they want"):
        wanted = ui.input("Filter").props("dense outlined clearable").classes("grow")
        table = ui.table(columns=columns(COLUMNS), rows=[], row_key="key", pagination=20)
        table.props("flat dense")
        table.bind_filter_from(wanted, "value")
        count = ui.label().classes("faint")
    seen = {"version": -1}

    def show() -> None:
        observer.want(clients=True)
        if observer.denied:
            note.say(observer.denied, "warn")
        if observer.version == seen["version"]:
            return
        seen["version"] = observer.version
        found = observer.clients()
        table.rows = [client_row(each) for each in found[:MAX_LISTED]]
        slow = sum(bool(each.get("slow")) for each in found)
        count.text = f"{amount(len(found), 'client')} of the brokers in sight; {slow} slow to read"

    show()
    ui.timer(LOOK_S, show)


def client_row(client: dict[str, Any]) -> dict[str, Any]:
    trip = client.get("round_trip_ms")
    return {
        "key": f"{client['broker']} {client['id']}",
        "id": client["id"],
        "broker": client["broker"],
        "user": client["user"],
        "place": client["place"] or client["region"] or client["ip"],
        "trip": "" if trip is None else f"{trip:.1f} ms",
        "subscriptions": client["subscriptions"],
        "durable": client["durable"],
        "published": client["published"],
        "out": bytes_text(client["bytes_out"]),
        "reads": f"slowly, {amount(client['waiting'], 'event')} waiting" if client.get("slow") else "at once",
    }
