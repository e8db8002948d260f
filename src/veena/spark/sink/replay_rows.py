"""Archived rows as events that are published again: what they say is the same, what they are is new.

The id of the original stands in the header `replay-of`, the name of the run in `replay-run`: so whoever gets one can
tell it from an original, and find that. `section`, where the SQL selects it, holds everything that engines see with the
types that it had; `topic`, `integer` and `to` are taken from their columns, so that the SQL can change them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from veena.core.wire.section import Section, decode_section
from veena.errors import InvalidEvent, PipelineError
from veena.event import Event

#: Headers of an event that was published again.
REPLAY_OF: Final = "replay-of"
REPLAY_RUN: Final = "replay-run"
#: The columns of a selection that are used; any others are not.
COLUMNS: Final = (
    "id", "at", "published", "reliable", "priority", "ttl_ms", "topic", "integer", "tags", "xml", "to", "properties",
    "headers", "section", "body",
)  # fmt: skip
#: The columns that say when an event was published, the better first.
TIMES: Final = ("published", "at")


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where replayed events go instead of where they went: to one topic, or to these clients."""

    run: str
    topic: str | None = None
    to: tuple[str, ...] = ()


def check_columns(columns: Mapping[str, str]) -> None:
    """Raise PipelineError for a selection of which no events can be made."""
    if "id" not in columns:
        raise PipelineError(f"the SQL gives {', '.join(columns)}: select `id` too, which replays are known by")
    found = [name for name in COLUMNS[6:] if name in columns]
    if not found:
        raise PipelineError(f"the SQL gives {', '.join(columns)}: select something to publish, such as topic and body")


def event_of(row: Mapping[str, Any], where: Redirection) -> tuple[Event, bool]:
    """One row as an event, and whether it is reliable."""
    section = row.get("section")
    given = _of_columns(row) if section is None else _of_section(decode_section(section), row)
    given["headers"] = {**given["headers"], REPLAY_OF: row["id"], REPLAY_RUN: where.run}
    given["body"] = row.get("body") or b""
    if where.topic is not None:
        given |= {"topic": where.topic, "integer": None, "tags": None, "to": ()}
    if where.to:
        given["to"] = where.to
    if row.get("priority") is not None:
        given["priority"] = row["priority"]
    if row.get("ttl_ms") is not None:
        given["ttl"] = max(row["ttl_ms"], 1) / 1000
    reliable = row.get("reliable")
    try:
        return Event(**given), reliable is None or bool(reliable)
    except InvalidEvent as error:
        raise PipelineError(f"event {row['id']}: {error}") from None


def _of_section(section: Section, row: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "topic": section.topic,
        "integer": section.integer,
        "tags": section.tags,
        "xml": section.xml,
        "properties": section.properties,
        "headers": section.headers,
        "to": section.to,
    }
    for name in ("topic", "integer"):
        if name in row:
            found[name] = row[name]
    if "to" in row:
        found["to"] = tuple(row["to"] or ())
    return found


def _of_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": row.get("topic"),
        "integer": row.get("integer"),
        "tags": row.get("tags"),
        "xml": row.get("xml"),
        "properties": dict(row.get("properties") or ()),
        "headers": dict(row.get("headers") or ()),
        "to": tuple(row.get("to") or ()),
    }
