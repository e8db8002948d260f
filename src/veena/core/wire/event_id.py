"""The ids of an event as frames carry them: who published it, in which stream, and where in that stream.

A *stream* is what one publisher sends in one incarnation through one lane; within it, events have an order. A *key* is
the id of one event. A publisher that roams repeats its last events at the next broker under new ids, and the frame
then names the original place too. Hence `ids_of` gives up to two places and `first_key` the older id.
"""

from __future__ import annotations

from veena.core.wire.event import EventFrame

#: (publisher, incarnation, lane number): within one, events have an order.
Stream = tuple[str, int, int]
#: Publisher, incarnation, timestamp, sequence: an event's id as it stands in the frame.
EventKey = tuple[bytes, int, int, int]
#: (timestamp, sequence) of an event in its stream.
Place = tuple[int, int]


def event_key(frame: EventFrame) -> EventKey:
    """The id of this copy of the event; `first_key` is the same for a repeated one."""
    return (bytes(frame.tail[: frame.publisher_length]), frame.incarnation, frame.timestamp, frame.sequence)


def first_key(frame: EventFrame) -> EventKey:
    """The id that an event had first: an event that a roaming publisher repeats is the same event."""
    original = frame.section.original
    publisher = event_key(frame)[0]
    return event_key(frame) if original is None else (publisher, *original)


def stream_of(frame: EventFrame) -> Stream:
    """The stream that this copy of the event belongs to."""
    return (frame.publisher, frame.incarnation, frame.lane_number)


def ids_of(frame: EventFrame) -> tuple[tuple[Stream, Place], ...]:
    """The place of an event in its stream, and that of its original where a roaming publisher repeats it."""
    stream, place = stream_of(frame), (frame.timestamp, frame.sequence)
    original = frame.section.original
    if original is None:
        return ((stream, place),)
    return ((stream, place), ((stream[0], original[0], stream[2]), (original[1], original[2])))
