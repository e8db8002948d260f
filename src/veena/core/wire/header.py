"""The first sixteen bytes of every frame, which say how long it is and how to read the rest.

They never change: a version may add kinds and append fields, but a broker of any age can read the header of any other
and say what is wrong (IOP-08: nothing here is peculiar to Python). All numbers are big-endian. What goes wrong while
the rest is read is told alike for all frames (`explain`).

Rejected: variable-length integers. They save some eight bytes a frame and cost a loop in Python where this is one call;
a frame number of 32 bits, which comes round within the hour on a busy link and then needs care in every comparison.
"""

from __future__ import annotations

from struct import Struct

import msgspec

#: The version that this code prefers, and the oldest that it still speaks. Until the first release they are the same,
#: and any change of the wire raises both. From the first release on the oldest is at most one below.
VERSION = 3
VERSION_LOW = 3

#: length (whole frame), version, kind, flags, frame number of the connection.
HEADER_FORMAT = ">IBBHQ"
HEADER = Struct(HEADER_FORMAT)
HEADER_SIZE = HEADER.size

#: The kind of event frames; the kinds of control frames are in the registry of `codec`.
EVENT = 16

#: An event larger than this is refused where it is published: beyond it, send a reference.
DEFAULT_MAX_FRAME = 1 << 20
#: What the setting can be raised to; larger frames hold up everything behind them for too long.
MAX_FRAME = 16 << 20
#: What a message of brokers may add to an event that it holds (`messages.kinds`).
WRAPPING = 64 * 1024
#: The largest event frame on a link.
MAX_LINK_FRAME = MAX_FRAME + WRAPPING
#: Above what any control frame holds within the bounds of its fields, short of absurd texts; never collected beyond.
MAX_CONTROL_FRAME = 512 * 1024
#: An event in a datagram must fit every path without being cut up by IP.
MAX_EVENT_DATAGRAM = 1200
#: The largest payload of a UDP datagram over IPv4.
MAX_DATAGRAM = 65_507


def link_frame(max_frame: int) -> int:
    """The largest event frame on a link where this is the largest that a client may publish: brokers send each other
    whole events inside of theirs, and messages that have nothing to do with the size of events."""
    return max(max_frame, DEFAULT_MAX_FRAME) + WRAPPING


def spoken(low: int, high: int) -> str:
    """Versions as errors name them."""
    return f"wire version {high}" if low == high else f"wire versions {low} to {high}"


#: Everything that msgspec, or a frame's own rules under it, raises on foreign bytes. Deep nesting ends in a
#: RecursionError and bad UTF-8 in a ValueError: both are the sender's fault like any other.
DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)

#: How msgspec begins the place of a field.
_MARK = "`$["


def explain(error: Exception, struct: type[msgspec.Struct]) -> str:
    """The error's text with the place of the outermost field replaced by its name.

    msgspec counts fields (`$[2]`); people and other implementations know them by name, so the reply names them.
    """
    text = str(error)
    before, found, after = text.partition(_MARK)
    place, closed, rest = after.partition("]")
    fields = struct.__struct_fields__
    if not found or not closed or not place.isdigit() or int(place) >= len(fields):
        return text
    return f"{before}`{fields[int(place)]}{rest}"
