"""A box for queries: what clients advertise, found by SQL, XPath or a constraint."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from veena.client.questions import Found, QueryAnswer
from veena.dashboard.pages.frame import Frame, Note, panel
from veena.dashboard.pages.traffic import columns
from veena.dashboard.pictures.figures import amount
from veena.dashboard.sessions.signing import Person
from veena.errors import InvalidConstraint, VeenaError

ANSWER_S = 3.0
#: Rows and columns that a page shows, and letters of one value.
MAX_ROWS = 500
MAX_COLUMNS = 20
MAX_LETTERS = 300
LANGUAGES = {"sql": "SQL", "xpath": "XPath", "constraint": "Constraint"}
EXAMPLES = {
    "sql": "SELECT * FROM adverts LIMIT 50",
    "xpath": "//service[@kind='simulation']",
    "constraint": "load < 0.5 and exist name",
}
REALMS = ("system", "super-super-cluster", "super-cluster", "cluster")


def register(frame: Frame) -> None:
    @ui.page("/discovery", response_timeout=15)
    async def discovery(request: Request) -> Response | None:
        person = frame.person(request)
        if isinstance(person, Response):
            return person
        with frame.page(request, person, "Discovery"):
            _Page(person).build()
        return None


class _Page:
    """One open page."""

    def __init__(self, person: Person) -> None:
        self._person = person

    def build(self) -> None:
        with panel("Find what is offered"):
            with ui.element("div").classes("line"):
                self._language = ui.select(LANGUAGES, value="sql", label="Language").props("outlined dense")
                self._realm = ui.select(list(REALMS), value="system", label="Where").props("outlined dense")
            self._text = ui.textarea("Query", value=EXAMPLES["sql"]).props("outlined autogrow spellcheck=false")
            self._language.on_value_change(self._turned)
            ui.button("Find", on_click=self.find).props("no-caps")
            self._note = Note()
        self._result = ui.element("div")

    def _turned(self) -> None:
        if not self._text.value or self._text.value in EXAMPLES.values():
            self._text.value = EXAMPLES[str(self._language.value)]

    async def find(self) -> None:
        self._result.clear()
        self._note.clear()
        text = (self._text.value or "").strip()
        asked: dict[str, Any] = {str(self._language.value): text}
        try:
            answer = await self._person.client.query(**asked, realm=str(self._realm.value), timeout=ANSWER_S)
        except InvalidConstraint as error:
            self._note.say(f"{error}", "bad")
            return
        except (VeenaError, TimeoutError) as error:
            self._note.say(str(error), "bad")
            return
        said = f"{amount(answer.matched, 'advertisement')} found"
        if answer.silent:
            said += f"; no answer from {', '.join('.'.join(map(str, unit)) for unit in answer.silent)}"
        if answer.truncated or len(answer.rows) > MAX_ROWS:
            said += "; not all are shown"
        if answer.undecided:
            said += f"; {answer.undecided} could not be decided: the XPath costs too much on them"
        self._note.say(said, "good" if answer.complete else "warn")
        with self._result:
            if answer.rows:
                self._show(answer)

    def _show(self, answer: QueryAnswer) -> None:
        rows = [found_row(answer.columns, row) for row in answer.rows[:MAX_ROWS]]
        names = list(dict.fromkeys(name for row in rows for name in row))[:MAX_COLUMNS]
        with panel("Found"):
            shown = [{**row, "key": at} for at, row in enumerate(rows)]
            table = ui.table(columns=columns(tuple((n, n) for n in names)), rows=shown, row_key="key", pagination=20)
            table.props("flat dense")


def found_row(named: tuple[str, ...], row: Found) -> dict[str, str]:
    """One advertisement as a row: who offers it, its name, and what was asked for."""
    if row.values is not None:
        values: dict[str, Any] = dict(zip(named, row.values, strict=True))
    else:
        values = dict(row.properties or {})
        if row.xml is not None:
            values["xml"] = row.xml if isinstance(row.xml, str) else row.xml.decode(errors="replace")
    shown = {name: "" if value is None else str(value)[:MAX_LETTERS] for name, value in values.items()}
    return {"client": row.client, "name": row.name} | {name: text for name, text in shown.items() if text}
