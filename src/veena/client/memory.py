"""What a client has had: shown when it attaches again, so that nothing is handed to it twice (design §6, last yard)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from veena.core.wire.client import MAX_SHOWN, MAX_STREAMS, Last, Places, show
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import Place, Stream

#: What may be shown of each kind in one frame: two of them and a password are well below a control frame's limit.
MAX_BYTES = 192 * 1024
#: The numbers of an event or a stream as msgpack, at most.
NUMBERS_BYTES = 32

T = TypeVar("T")
#: Of an event: its stream and its place in it.
Key = tuple[Stream, Place]


class Memory:
    """The last place of each stream, and events one by one, the newest of both."""

    __slots__ = ("events", "had")

    def __init__(self) -> None:
        self.had: dict[Stream, Place] = {}
        self.events: dict[Key, None] = {}

    def pass_by(self, frame: EventFrame) -> None:
        """An event of a stream came."""
        stream = (frame.publisher, frame.incarnation, frame.lane_number)
        place = (frame.timestamp, frame.sequence)
        had = self.had
        if place > had.get(stream, (-1, -1)):
            had.pop(stream, None)  # so that the streams stay in the order of use
            had[stream] = place
            if len(had) > MAX_STREAMS:
                del had[next(iter(had))]

    def is_past(self, frame: EventFrame) -> bool:
        """Whether an event is not later than the last one of its stream."""
        stream = (frame.publisher, frame.incarnation, frame.lane_number)
        return (frame.timestamp, frame.sequence) <= self.had.get(stream, (-1, -1))

    def remember(self, keys: Iterable[Key]) -> None:
        """These events were had, under all these ids."""
        for key in keys:
            self.events[key] = None
        while len(self.events) > MAX_SHOWN:
            del self.events[next(iter(self.events))]

    def knows(self, keys: Iterable[Key]) -> bool:
        return any(key in self.events for key in keys)

    def lasts(self) -> tuple[Last, ...]:
        """The last places, the newest that one frame has room for."""
        streams = _fitting(reversed(self.had), lambda stream: stream)
        return tuple((*stream, *self.had[stream]) for stream in streams)

    def shown(self) -> tuple[Places, ...]:
        """The events, the newest that one frame has room for."""
        return show(_fitting(reversed(self.events), lambda key: key[0]))


def _fitting(found: Iterable[T], stream_of: Callable[[T], Stream]) -> list[T]:
    """As many as `MAX_BYTES` hold, oldest first."""
    taken: list[T] = []
    size = 0
    for each in found:
        size += len(stream_of(each)[0].encode()) + NUMBERS_BYTES
        if size > MAX_BYTES:
            break
        taken.append(each)
    return taken[::-1]
