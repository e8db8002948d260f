"""What the portal makes of the record and of another's view, without a browser."""

from __future__ import annotations

import pytest

from veena.dashboard.pages.shadow import names_of
from veena.dashboard.sessions.record import row_of
from veena.dashboard.sessions.shoulder import MAX_APPLICATIONS, MAX_LINES, Followed
from veena.event import Event, EventId, Value

BROKER = "veena/access/paris.1"


def event(kind: str, name: str, publisher: str, domain: str = "heat", **fields: Value) -> Event:
    headers: dict[str, Value] = {"domain_name": domain, "type_name": kind, "event_name": name}
    return Event(headers=headers, properties=dict(fields), event_id=EventId(publisher, 1, 1, 1), timestamp_ns=5)


def test_the_record_says_who_came_who_was_refused_and_who_steered() -> None:
    """DIC-11: in words, with the place where it happened."""
    told = [
        event("Access", "login", BROKER, "paris.1", by="ann", user="ann", category="senior"),
        event("Access", "login", BROKER, "paris.1", by="bo", user="bo"),
        event("Access", "refused", BROKER, "paris.1", by="joe", action="publish", reason="no rule allows it"),
        event("Access", "authorise", "services", "3", by="ann", category="senior", publish="Steering", read="Access"),
        event("Monitoring", "record", "sim", by="ann", action="take", answer="done"),
    ]
    rows = [row_of(each) for each in told]
    assert [(row.who, row.where, row.what) for row in rows if row is not None] == [
        ("ann", "paris.1", "came in as senior"),
        ("bo", "paris.1", "came in"),
        ("joe", "paris.1", "refused to publish: no rule allows it"),
        ("ann", "domain 3", "may publish Steering; may read Access"),
        ("ann", "heat", "take"),
    ]


@pytest.mark.parametrize(
    "left_out",
    [
        event("Access", "login", "mallory", by="ann", category="senior"),
        event("Access", "refused", "sim", by="ann", action="attach", reason="x"),
        event("Access", "login", BROKER, by="ann/portal-0123456789ab/at-01234567"),
        event("Access", "refused", BROKER, by="portal-0123", action="attach", reason="x"),
        event("Access", "something", BROKER, by="ann"),
    ],
)
def test_what_no_broker_said_and_what_the_portal_causes_is_no_part_of_it(left_out: Event) -> None:
    assert row_of(left_out) is None


class _Feed:
    """Nothing comes of it."""

    is_active = True

    async def next(self, timeout: float | None = None) -> Event:
        raise AssertionError

    async def close(self) -> None:
        return None


def test_a_view_shows_fields_states_and_what_was_said_and_is_bounded() -> None:
    """COL-03: of however many applications and words."""
    followed = Followed("ann/portal-1", _Feed())
    field = event("Monitoring", "field", "sim", dtype="<f4", shape="2x2", step=7)
    followed.hear(Event(headers=field.headers, properties=field.properties, body=bytes(16), event_id=field.event_id))
    assert followed.picture is not None and followed.caption == "heat, step 7"
    followed.hear(event("Monitoring", "field", "sim", dtype="nonsense", shape="2x2"))
    assert "nonsense" in followed.caption
    for number in range(2 * MAX_APPLICATIONS):
        followed.hear(event("Monitoring", "state", "sim", f"app{number}", state="paused", step=number, driver="bob"))
        followed.hear(event("Monitoring", "statistics", "sim", mean=1.0))
    assert len(followed.states) == MAX_APPLICATIONS and followed.states["app3"] == "paused, step 3, bob drives"
    assert not followed.lines
    for number in range(2 * MAX_LINES):
        followed.hear(event("Collaboration", "message", "bob", text=f"{number} " + "x" * 1000))
    followed.hear(event("Monitoring", "record", "sim", by="bob", action="take", answer="done"))
    assert len(followed.lines) == MAX_LINES and max(len(line.text) for line in followed.lines) <= 300
    assert (followed.lines[-1].by, followed.lines[-1].text) == ("bob", "heat: take")


def test_who_is_there_twice_is_told_apart() -> None:
    assert names_of(["ann/portal-aaaa", "bob/portal-1", "ann/portal-bbbb"]) == {
        "ann/portal-aaaa": "ann (aaaa)",
        "bob/portal-1": "bob",
        "ann/portal-bbbb": "ann (bbbb)",
    }
