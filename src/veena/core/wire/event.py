"""The event frame: a routing header that changes at every hop, and a tail that never does.

The header holds what routing needs and nothing that matching needs: id, lane, remaining ttl, origin, and two vectors of
one bit a unit, what this copy is *to serve* and what was *served* (the trace) (EVT-03, DST-01, DST-03, ERP-02..04). A
vector is one Python integer whose bit `level * fanout + identifier` stands for that unit, so the bits of the levels
below l are stripped by two shifts (ERP-09, DST-09), and an interest map's answer is used as it is.

Levels and fan-out are constants of the network, agreed in the Hello: the codec is built once a connection and reads the
whole header by one `struct` call. The tail (publisher, matching section, body) is kept as one piece of bytes: a relay
sends `header(...)` and the same tail, so nothing is encoded twice, and a body is never copied.

The invariant: the lengths in the header add up to the frame's; what lies in the tail is read only when asked for, and a
fault in it is an InvalidEvent, its publisher's and not the link's. An accepting broker asks at once.

Rejected: the vectors as words in a tuple (four tests where one mask does); one msgpack map for all (a relay would read
and write everything at each hop).
"""

from __future__ import annotations

import struct

from veena.address import FANOUTS, MAX_LEVELS, Address, format_address
from veena.core.wire.header import (
    DEFAULT_MAX_FRAME,
    EVENT,
    HEADER,
    HEADER_FORMAT,
    HEADER_SIZE,
    MAX_FRAME,
    MAX_LINK_FRAME,
    VERSION,
)
from veena.core.wire.section import Original, Section, decode_section, encode_section
from veena.errors import InvalidEvent, LocalProtocolError, RemoteProtocolError
from veena.event import MAX_CLIENT_ID_LENGTH, MAX_PRIORITY, Event, EventId, lane

# Flags of an event frame; all other bits are 0.
RELIABLE = 0x0001
#: The receiver may have had this copy.
REDELIVERED = 0x0002
#: It comes out of its order, after a backlog that could not be waited for.
LATE = 0x0004
#: A second copy to keep for its sender, not to route.
COPY = 0x0008
#: It lay in the log of a broker on its way while its destination was absent: it may come after later ones.
BACKLOG = 0x0010
#: It was published by somebody who took over from its origin, and who may not have all that came before it.
ADOPTED = 0x0020
#: It lies in a log, or in a message, for a subscription for which nobody has evaluated it yet. No client is handed
#: this, and no frame of a link has it.
DOUBTFUL = 0x0040
PRIORITY_SHIFT = 8
PRIORITY_MASK = 0x0F00
_KNOWN_FLAGS = RELIABLE | REDELIVERED | LATE | COPY | BACKLOG | ADOPTED | PRIORITY_MASK

#: The ttl of an event that lives for ever.
NO_TTL = (1 << 32) - 1
#: A character of a client id has at most four bytes.
MAX_PUBLISHER_BYTES = 4 * MAX_CLIENT_ID_LENGTH
#: Shorter tails are copied out of the read buffer: cheaper than a view, and a parked event then holds no buffer.
COPY_BELOW = 4096

#: The lane of every combination of `RELIABLE` and priority, by `flags & 0x0F01`.
_LANES = {
    reliable | priority << PRIORITY_SHIFT: lane(bool(reliable), priority).number
    for reliable in (0, RELIABLE)
    for priority in range(MAX_PRIORITY + 1)
}


class EventFrame:
    """One copy of an event on its way. The fields are those of the routing header; treat them as read-only."""

    __slots__ = (
        "_section",
        "flags",
        "incarnation",
        "matching_length",
        "origin",
        "publisher_length",
        "sequence",
        "served",
        "tail",
        "timestamp",
        "to_serve",
        "ttl_ms",
    )

    # By position: one is made for every event that is relayed, and by keyword the call takes several times as long.
    def __init__(
        self,
        flags: int,
        ttl_ms: int,
        incarnation: int,
        timestamp: int,
        sequence: int,
        origin: bytes,
        to_serve: int,
        served: int,
        publisher_length: int,
        matching_length: int,
        tail: bytes | memoryview,
    ) -> None:
        self.flags = flags
        #: Milliseconds left, NO_TTL for no limit. At 0 the event has expired and its duty is done.
        self.ttl_ms = ttl_ms
        self.incarnation = incarnation
        self.timestamp = timestamp
        self.sequence = sequence
        #: One byte a level; all 0xff until the accepting broker has set it (ERP-02).
        self.origin = origin
        self.to_serve = to_serve
        self.served = served
        self.publisher_length = publisher_length
        self.matching_length = matching_length
        self.tail = tail
        self._section: Section | None = None

    def copy(self, to_serve: int, served: int, ttl_ms: int) -> EventFrame:
        """One more copy, with other destinations: the tail is the same bytes."""
        return EventFrame(
            self.flags,
            ttl_ms,
            self.incarnation,
            self.timestamp,
            self.sequence,
            self.origin,
            to_serve,
            served,
            self.publisher_length,
            self.matching_length,
            self.tail,
        )

    def ttl_after(self, age_ns: int) -> int:
        """What is left of its time to live when it has waited for so long."""
        return self.ttl_ms if self.ttl_ms == NO_TTL else max(0, self.ttl_ms - age_ns // 1_000_000)

    def late_copy(self) -> EventFrame:
        """The same, marked as out of its order."""
        late = self.copy(self.to_serve, self.served, self.ttl_ms)
        late.flags |= LATE
        return late

    def doubtful_copy(self, is_doubtful: bool = True) -> EventFrame:
        """The same, marked as not evaluated yet, or as evaluated."""
        copy = self.copy(self.to_serve, self.served, self.ttl_ms)
        copy.flags = self.flags | DOUBTFUL if is_doubtful else self.flags & ~DOUBTFUL
        return copy

    @property
    def doubtful(self) -> bool:
        return bool(self.flags & DOUBTFUL)

    @property
    def reliable(self) -> bool:
        return bool(self.flags & RELIABLE)

    @property
    def redelivered(self) -> bool:
        return bool(self.flags & REDELIVERED)

    @property
    def late(self) -> bool:
        return bool(self.flags & LATE)

    @property
    def priority(self) -> int:
        return (self.flags & PRIORITY_MASK) >> PRIORITY_SHIFT

    @property
    def lane_number(self) -> int:
        """0 to 2 best effort, 3 to 5 reliable; order holds within one."""
        return _LANES[self.flags & (RELIABLE | PRIORITY_MASK)]

    @property
    def told_id(self) -> EventId:
        """The same for who talks of it, also where its publisher cannot be read."""
        try:
            return self.id
        except InvalidEvent:
            return EventId("?", self.incarnation, self.timestamp, self.sequence)

    @property
    def origin_address(self) -> Address | None:
        return None if self.origin[0] == 0xFF else tuple(self.origin)

    @property
    def publisher(self) -> str:
        try:
            publisher = str(self.tail[: self.publisher_length], "utf-8")
        except UnicodeDecodeError:
            raise InvalidEvent("publisher id is no UTF-8 text") from None
        if len(publisher) > MAX_CLIENT_ID_LENGTH:
            raise InvalidEvent(f"publisher id of {len(publisher)} characters: at most {MAX_CLIENT_ID_LENGTH}")
        return publisher

    @property
    def id(self) -> EventId:
        return EventId(self.publisher, self.incarnation, self.timestamp, self.sequence)

    @property
    def body(self) -> bytes | memoryview:
        return self.tail[self.publisher_length + self.matching_length :]

    @property
    def section(self) -> Section:
        """What engines see, read on the first use; raise InvalidEvent where it is no such thing."""
        if self._section is None:
            start = self.publisher_length
            self._section = decode_section(self.tail[start : start + self.matching_length])
        return self._section

    def event(self) -> Event:
        """The event as its publisher made it, with the ttl that is left. Raises InvalidEvent for a broken tail."""
        section = self.section
        return Event(
            topic=section.topic,
            integer=section.integer,
            tags=section.tags,
            xml=section.xml,
            properties=section.properties,
            headers=section.headers,
            body=self.body,
            priority=self.priority,
            ttl=None if self.ttl_ms == NO_TTL else max(self.ttl_ms, 1) / 1000,
            to=section.to,
            event_id=self.id,
            timestamp_ns=section.timestamp_ns,
            redelivered=self.redelivered,
            late=self.late,
        )


class EventCodec:
    """Event frames of a network with these constants."""

    def __init__(self, levels: int, fanout: int, max_frame: int = DEFAULT_MAX_FRAME) -> None:
        if not 1 <= levels <= MAX_LEVELS:
            raise LocalProtocolError(f"levels {levels}: expected 1 to {MAX_LEVELS}")
        if fanout not in FANOUTS:
            raise LocalProtocolError(f"fanout {fanout}: expected one of {', '.join(map(str, FANOUTS))}")
        self.levels = levels
        self.fanout = fanout
        self.max_frame = check_max_frame(max_frame)
        #: 16 bytes for 4 levels of 32, 32 bytes for 4 levels of 64 (DST-03).
        self.vector_size = levels * fanout // 8
        routing = f"IQQIHII{levels}s{self.vector_size}s{self.vector_size}s"
        self._routing = struct.Struct(">" + routing)
        self._whole = struct.Struct(HEADER_FORMAT + routing)
        #: Header and routing header together: 86 bytes for 4 levels of 32.
        self.header_size = self._whole.size
        self._no_origin = b"\xff" * levels
        #: The origin that was checked last: a client has one.
        self._last_origin: tuple[Address, bytes] = ((), b"")

    def decode(self, data: bytes | memoryview, offset: int, length: int, flags: int) -> EventFrame:
        """The event frame of `length` bytes at `offset`, which lie all in `data`."""
        start = offset + self.header_size
        end = offset + length
        if start > end:
            raise RemoteProtocolError(f"event frame of {length} bytes: its header alone has {self.header_size}")
        (
            ttl_ms,
            incarnation,
            timestamp,
            sequence,
            publisher_length,
            matching_length,
            body_length,
            origin,
            to_serve,
            served,
        ) = self._routing.unpack_from(data, offset + HEADER_SIZE)
        if start + publisher_length + matching_length + body_length != end:
            raise RemoteProtocolError(
                f"event frame of {length} bytes: header {self.header_size}, publisher {publisher_length}, matching"
                f" section {matching_length} and body {body_length} do not add up to it"
            )
        if not 0 < publisher_length <= MAX_PUBLISHER_BYTES:
            raise RemoteProtocolError(f"publisher id of {publisher_length} bytes: expected 1 to {MAX_PUBLISHER_BYTES}")
        if flags & ~_KNOWN_FLAGS or flags & (RELIABLE | PRIORITY_MASK) not in _LANES:
            raise RemoteProtocolError(f"event flags {flags:#06x}: unknown bits, or a priority above {MAX_PRIORITY}")
        if max(origin) >= self.fanout and origin != self._no_origin:
            raise RemoteProtocolError(f"origin {format_address(tuple(origin))} does not fit a fan-out of {self.fanout}")
        return EventFrame(
            flags,
            ttl_ms,
            incarnation,
            timestamp,
            sequence,
            origin,
            int.from_bytes(to_serve, "big"),
            int.from_bytes(served, "big"),
            publisher_length,
            matching_length,
            data[start:end] if end - start < COPY_BELOW else memoryview(data)[start:end],
        )

    def read(self, data: bytes | memoryview) -> EventFrame:
        """A whole frame as `encode` makes it, in a log or a message of brokers, and nothing behind it."""
        if len(data) < self.header_size:
            raise RemoteProtocolError(f"event frame of {len(data)} bytes: its header alone has {self.header_size}")
        length, _, kind, flags, _ = HEADER.unpack_from(data)
        if length != len(data) or kind != EVENT:
            raise RemoteProtocolError(f"{len(data)} bytes are no event frame: kind {kind}, length {length}")
        frame = self.decode(data, 0, length, flags & ~DOUBTFUL)
        frame.flags = flags
        return frame

    def header(
        self,
        frame: EventFrame,
        number: int,
        *,
        to_serve: int,
        served: int,
        ttl_ms: int,
        flags: int,
        version: int = VERSION,
    ) -> bytes:
        """The header of one more copy; write `frame.tail` behind it (both in one `writelines`)."""
        tail_length = len(frame.tail)
        size = self.vector_size
        try:
            return self._whole.pack(
                self.header_size + tail_length,
                version,
                EVENT,
                flags,
                number,
                ttl_ms,
                frame.incarnation,
                frame.timestamp,
                frame.sequence,
                frame.publisher_length,
                frame.matching_length,
                tail_length - frame.publisher_length - frame.matching_length,
                frame.origin,
                to_serve.to_bytes(size, "big"),
                served.to_bytes(size, "big"),
            )
        except (struct.error, OverflowError) as error:
            raise LocalProtocolError(
                f"event frame {number}: {error}; to_serve {to_serve:#x} and served {served:#x} have {size} bytes,"
                f" ttl {ttl_ms} four, flags {flags:#x} two"
            ) from None

    def encode(self, frame: EventFrame, number: int, version: int = VERSION) -> bytes:
        """The whole frame as it stands."""
        return b"".join(
            (
                self.header(
                    frame,
                    number,
                    to_serve=frame.to_serve,
                    served=frame.served,
                    ttl_ms=frame.ttl_ms,
                    flags=frame.flags,
                    version=version,
                ),
                frame.tail,
            )
        )

    def frame(
        self,
        event: Event,
        *,
        reliable: bool = False,
        origin: Address | None = None,
        to_serve: int = 0,
        served: int = 0,
        original: Original | None = None,
        event_id: EventId | None = None,
    ) -> EventFrame:
        """The first frame of an event, under its own id or this one; InvalidEvent for what must not be published."""
        event_id = event_id or event.event_id
        if event_id is None:
            raise InvalidEvent("event without an id: its publisher gives it one before it is sent")
        publisher = publisher_bytes(event_id.publisher)
        matching = encode_section(event, original)
        tail = b"".join((publisher, matching, event.body))
        size = self.header_size + len(tail)
        self.check_size(size, len(event.body))
        flags = event.priority << PRIORITY_SHIFT | (RELIABLE if reliable else 0)
        return EventFrame(
            flags | (REDELIVERED if event.redelivered else 0),
            ttl_ms_of(event.ttl),
            event_id.incarnation,
            event_id.timestamp,
            event_id.sequence,
            self._no_origin if origin is None else self.origin_bytes(origin),
            to_serve,
            served,
            len(publisher),
            len(matching),
            tail,
        )

    def check_size(self, size: int, body: int) -> None:
        """Raise InvalidEvent for a frame that is too large."""
        if size > self.max_frame:
            raise InvalidEvent(
                f"event of {size} bytes ({body} of them body): at most {self.max_frame} are allowed here;"
                f" publish a reference instead, or raise max_frame (up to {MAX_FRAME})"
            )

    def encode_event(
        self,
        event: Event,
        number: int,
        *,
        reliable: bool = False,
        origin: Address | None = None,
        to_serve: int = 0,
        served: int = 0,
    ) -> bytes:
        """An event as the bytes of frame `number`."""
        return self.encode(
            self.frame(event, reliable=reliable, origin=origin, to_serve=to_serve, served=served), number
        )

    def origin_bytes(self, origin: Address) -> bytes:
        if origin is self._last_origin[0]:
            return self._last_origin[1]
        if len(origin) != self.levels or not all(0 <= part < self.fanout for part in origin):
            raise LocalProtocolError(
                f"origin {format_address(origin)}: expected {self.levels} numbers from 0 to {self.fanout - 1}"
            )
        self._last_origin = (origin, bytes(origin))
        return self._last_origin[1]


def header_size(levels: int, fanout: int) -> int:
    """The bytes of an event frame before its tail."""
    return EventCodec(levels, fanout).header_size


def check_max_frame(max_frame: int) -> int:
    if not HEADER_SIZE < max_frame <= MAX_LINK_FRAME:
        reason = f"max_frame {max_frame}: expected more than {HEADER_SIZE}, at most {MAX_LINK_FRAME} bytes"
        raise LocalProtocolError(reason)
    return max_frame


def publisher_bytes(publisher: str) -> bytes:
    try:
        data = publisher.encode()
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"publisher {publisher!r}: half of a surrogate pair at position {error.start}") from None
    if not 1 <= len(publisher) <= MAX_CLIENT_ID_LENGTH:
        raise InvalidEvent(f"publisher {publisher[:80]!r}: expected 1 to {MAX_CLIENT_ID_LENGTH} characters")
    return data


def ttl_ms_of(ttl: float | None) -> int:
    if ttl is None:
        return NO_TTL
    if ttl * 1000 >= NO_TTL:
        raise InvalidEvent(f"ttl {ttl} seconds: at most {NO_TTL // 1000} (49 days); leave it out for no limit")
    return max(1, round(ttl * 1000))
