"""What the person consumed and produced since signing in, in order; and before, where there is an archive."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.dashboard.pages.frame import Frame, Note, panel
from veena.dashboard.pages.traffic import columns
from veena.dashboard.pictures.figures import amount, clock_text
from veena.dashboard.sessions.collaboratory import Entry, Member
from veena.dashboard.sessions.record import Record
from veena.dashboard.sessions.signing import ArchiveOf, Person
from veena.errors import VeenaError

#: Rows that a page lists, the newest first.
MAX_LISTED = 500
SHOW_S = 2.0
COLUMNS: tuple[tuple[str, str], ...] = (
    ("at", "When"), ("way", "Way"), ("domain", "Application"), ("type", "Type"), ("name", "Event"), ("by", "By"),
    ("what", "What"),
)  # fmt: skip


RECORDED: tuple[tuple[str, str], ...] = (("at", "When"), ("who", "Who"), ("where", "Where"), ("what", "What"))
ARCHIVED: tuple[tuple[str, str], ...] = (
    ("at", "When"), ("kind", "Way"), ("broker", "Broker"), ("id", "Event"), ("topic", "Topic"), ("mark", "Mark"),
)  # fmt: skip


def register(frame: Frame, archive: ArchiveOf | None) -> None:
    @ui.page("/history", response_timeout=20)
    async def history(request: Request) -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "History"):
            try:
                member = await person.member()
            except (VeenaError, TimeoutError) as error:
                Note().say(str(error), "bad")
            else:
                _build(member)
                if person.record is not None:
                    _build_record(person.record)
                if archive is not None:
                    _build_archive(person, archive)
        return None


def _build(member: Member) -> None:
    with panel("What you got and sent"):
        shown = ui.select({"all": "all", "consumed": "got", "produced": "sent"}, value="all", label="Show")
        shown.props("outlined dense")
        is_quiet = ui.switch("Without fields and statistics", value=True)
        table = ui.table(columns=columns(COLUMNS), rows=[], row_key="key", pagination=20)
        table.props("flat dense")

    def show() -> None:
        table.rows = rows(member, str(shown.value), bool(is_quiet.value))

    shown.on_value_change(show)
    is_quiet.on_value_change(show)
    show()
    ui.timer(SHOW_S, show)


def _build_record(record: Record) -> None:
    with panel("Who came in, who was refused, who steered"):
        ui.label(
            "Since you signed in, newest first; of the first two what you may read, if your brokers tell it."
        ).classes("faint")
        table = ui.table(columns=columns(RECORDED), rows=[], row_key="key", pagination=20).props("flat dense")

    def show() -> None:
        table.rows = [
            {"key": at, "at": clock_text(row.at_ns), "who": row.who, "where": row.where, "what": row.what}
            for at, row in enumerate(reversed(record.rows))
        ]

    show()
    ui.timer(SHOW_S, show)


def is_own(person: str, client_id: str) -> bool:
    """Whether a client is this person's; the archive knows of all, and shows each only their own."""
    return client_id == person or client_id.startswith(person + "/")


def _build_archive(person: Person, archive: ArchiveOf) -> None:
    with panel("From the archive"):
        with ui.element("div").classes("line"):
            wanted = ui.input("Client id", value=person.name).props("outlined dense").classes("grow")
            button = ui.button("Look up").props("no-caps outline")
        ui.label(f"Yours: {person.name}, or {person.name}/ and something.").classes("faint")
        note = Note()
        table = ui.table(columns=columns(ARCHIVED), rows=[], row_key="key", pagination=20).props("flat dense")

    async def look() -> None:
        client_id = (wanted.value or "").strip()
        if not is_own(person.name, client_id):
            note.say(f"{client_id!r:.80} is not yours: use {person.name} or {person.name}/...", "bad")
            return
        button.disable()
        note.say("Looking it up; that takes a while …")
        try:
            found = await archive(client_id)
        except (VeenaError, TimeoutError) as error:
            note.say(str(error), "bad")
        else:
            table.rows = [{**row, "at": str(row["at"]), "key": at} for at, row in enumerate(found)]
            note.say(f"{amount(len(found), 'event')} of {client_id}", "good")
        button.enable()

    button.on_click(look)


def rows(member: Member, which: str, is_quiet: bool) -> list[dict[str, Any]]:
    """The history as a table, the newest first."""
    found = member.history()
    entries = [("got", entry) for entry in found.consumed] if which != "produced" else []
    entries += [("sent", entry) for entry in found.produced] if which != "consumed" else []
    entries = [each for each in entries if not is_quiet or each[1].name not in ("field", "statistics", "state")]
    entries.sort(key=lambda each: -each[1].at_ns)
    return [_row(at, way, entry) for at, (way, entry) in enumerate(entries[:MAX_LISTED])]


def _row(at: int, way: str, entry: Entry) -> dict[str, Any]:
    told = {
        name: value for name, value in entry.fields.items() if name not in ("by", "room") and value not in ("", None)
    }
    return {
        "key": at,
        "at": clock_text(entry.at_ns),
        "way": way,
        "domain": entry.domain,
        "type": entry.type,
        "name": entry.name,
        "by": entry.publisher,
        "what": ", ".join(f"{name} {value!s}" for name, value in told.items())[:300],
    }
