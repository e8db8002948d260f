"""What a person hears of who came in, who was refused what, and who steered what: from signing in on.

Brokers tell the first two as events of type `Access`, where they are set to, and hand them to those who may read them;
applications tell what happened at their wheels. Somebody has to take these for them to be in the person's history, also
while no page is open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from veena.dashboard.sessions.collaboratory import Feed, Member
from veena.dashboard.sessions.watching import record_text
from veena.errors import NotConnected, VeenaError
from veena.event import Event
from veena.runtime.access.access_events import PUBLISHER, TYPE

#: Rows that are kept for a page, and how long before a broker that was lost is asked again.
MAX_ROWS = 500
AGAIN_S = 2.0
WANTED = f"$type_name == '{TYPE}' or ($type_name == 'Monitoring' and $event_name == 'record')"
#: Clients that the portal itself makes: to look at brokers for a person, and to ask whether a broker has users.
LOOKING = "/at-"
ASKING = "portal-"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the record."""

    at_ns: int
    who: str
    #: The application, or the broker.
    where: str
    what: str


class Record:
    """The record as one person hears it."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.rows: deque[Row] = deque(maxlen=MAX_ROWS)
        self._feed: Feed | None = None
        self._task = asyncio.get_running_loop().create_task(self._take())

    async def _take(self) -> None:
        while True:
            try:
                self._feed = await self._member.feed("the record", WANTED, is_shown=False)
                while True:
                    row = row_of(await self._feed.next())
                    if row is not None:
                        self.rows.append(row)
            except NotConnected:
                await asyncio.sleep(AGAIN_S)
            except VeenaError:  # a broker that does not allow it: then there is no record
                return

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._feed is not None:
            with suppress(VeenaError):
                await self._feed.close()


def row_of(event: Event) -> Row | None:
    """What an event says, in words; None for what nobody wants to read, or what is said to be a broker's word."""
    assert event.id is not None
    told, name = event.properties, str(event.headers.get("event_name", ""))
    by, where = str(told.get("by", "")), str(event.headers.get("domain_name", ""))
    if event.headers.get("type_name") != TYPE:
        return Row(event.timestamp_ns, by, where, record_text(event))
    if LOOKING in by or by.startswith(ASKING) or (name in ("login", "refused") and not _is_a_brokers(event)):
        return None
    if name == "login":
        category = told.get("category")
        return Row(event.timestamp_ns, by, where, f"came in as {category!s}" if category else "came in")
    if name == "refused":
        return Row(event.timestamp_ns, by, where, f"refused to {told.get('action')!s}: {told.get('reason')!s}")
    words = f"may publish {told.get('publish')!s}; may read {told.get('read')!s}"
    return Row(event.timestamp_ns, by, f"domain {where}", words) if name == "authorise" else None


def _is_a_brokers(event: Event) -> bool:
    return event.event_id is not None and event.event_id.publisher.startswith(PUBLISHER)
