"""What a member consumed and produced, in order, as far back as is kept here (DIS-07).

Consumed is what the member took, in the order in which it took it, with the answers to its commands. Produced is what
was accepted of it, in the order of publishing: events of one publisher are ordered by their ids, so a command that is
noted when its answer comes still stands before the message that was sent while it was under way.

Brokers log the same of everybody, and the archive keeps it (`veena pipeline history`); this is the part of one member,
at hand without asking anybody.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from veena.event import Event, EventId, Value
from veena.services.structured import DOMAIN, NAME, TYPE, fixed_header

#: Events that are kept of each kind: some hours of a lively room.
MAX_HISTORY = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a history, without its remainder."""

    at_ns: int
    id: EventId
    domain: str
    type: str
    name: str
    fields: Mapping[str, Value]

    @property
    def publisher(self) -> str:
        return self.id.publisher


class History:
    """The history of one member."""

    def __init__(self, limit: int = MAX_HISTORY) -> None:
        self._consumed: deque[Entry] = deque(maxlen=max(1, limit))
        self._produced: list[tuple[tuple[int, int, int], Entry]] = []
        self._limit = max(1, limit)

    @property
    def consumed(self) -> tuple[Entry, ...]:
        return tuple(self._consumed)

    @property
    def produced(self) -> tuple[Entry, ...]:
        return tuple(entry for _, entry in self._produced)

    def note_consumed(self, event: Event) -> None:
        assert event.id is not None
        self._consumed.append(_entry(event, event.id))

    def note_produced(self, event: Event, event_id: EventId) -> None:
        place = (event_id.incarnation, event_id.timestamp, event_id.sequence)
        insort(self._produced, (place, _entry(event, event_id)), key=lambda noted: noted[0])
        if len(self._produced) > self._limit:
            del self._produced[0]


def _entry(event: Event, event_id: EventId) -> Entry:
    domain, kind, name = (str(fixed_header(event, header) or "") for header in (DOMAIN, TYPE, NAME))
    return Entry(time.time_ns(), event_id, domain, kind, name, dict(event.properties))
