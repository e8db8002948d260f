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
#: And what their fields may hold together: others choose how long these are.
MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a history, without its remainder."""

    at_ns: int
    #: As `publish` returned it, or the event has it.
    id: str
    publisher: str
    domain: str
    type: str
    name: str
    fields: Mapping[str, Value]
    #: About what it takes to keep the fields.
    size: int


class History:
    """The history of one member."""

    def __init__(self, limit: int = MAX_HISTORY, max_bytes: int = MAX_BYTES) -> None:
        self._consumed: deque[Entry] = deque()
        self._produced: list[tuple[tuple[int, int, int], Entry]] = []
        self._limit = max(1, limit)
        self._max_bytes = max_bytes
        self._consumed_bytes = self._produced_bytes = 0

    @property
    def consumed(self) -> tuple[Entry, ...]:
        return tuple(self._consumed)

    @property
    def produced(self) -> tuple[Entry, ...]:
        return tuple(entry for _, entry in self._produced)

    def note_consumed(self, event: Event) -> None:
        assert event.event_id is not None
        entry = _entry(event, event.event_id)
        self._consumed.append(entry)
        self._consumed_bytes += entry.size
        while len(self._consumed) > self._limit or (self._consumed_bytes > self._max_bytes and len(self._consumed) > 1):
            self._consumed_bytes -= self._consumed.popleft().size

    def note_produced(self, event: Event, written: str) -> None:
        """Published under this id."""
        event_id = EventId.parse(written)
        place = (event_id.incarnation, event_id.timestamp, event_id.sequence)
        entry = _entry(event, event_id)
        insort(self._produced, (place, entry), key=lambda noted: noted[0])
        self._produced_bytes += entry.size
        while len(self._produced) > self._limit or (self._produced_bytes > self._max_bytes and len(self._produced) > 1):
            self._produced_bytes -= self._produced.pop(0)[1].size


def _entry(event: Event, event_id: EventId) -> Entry:
    domain, kind, name = (str(fixed_header(event, header) or "") for header in (DOMAIN, TYPE, NAME))
    fields = dict(event.properties)
    size = sum(len(key) + (len(value) if isinstance(value, str | bytes) else 8) for key, value in fields.items())
    return Entry(time.time_ns(), str(event_id), event_id.publisher, domain, kind, name, fields, size)
