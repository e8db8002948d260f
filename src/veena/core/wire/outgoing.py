"""The frames of one publisher at one broker, made for the price of a few calls in C.

Within one conversation only sequence, lengths, time and content of a publisher's frames differ. Everything else is
packed once for each combination of flags, time to live and stamp, and one `struct` call makes all that stands before
the attributes.

The invariant: the bytes are those of `EventCodec.encode_event`, event by event. Rejected: a cache of whole sections by
content; what costs is looking at the content, which a cache must do as well.
"""

from __future__ import annotations

import struct

from veena.address import Address
from veena.core.wire.event import PRIORITY_SHIFT, REDELIVERED, RELIABLE, EventCodec, publisher_bytes, ttl_ms_of
from veena.core.wire.header import EVENT, HEADER_FORMAT, VERSION
from veena.core.wire.section import Original, encode_fields, fault_of_time
from veena.event import Event

#: Combinations of flags and time to live that are remembered.
MAX_HEADS = 256


class OutgoingFrames:
    """What a publisher of this name and incarnation sends to a broker at `origin`."""

    def __init__(self, codec: EventCodec, publisher: str, incarnation: int, origin: Address) -> None:
        self._codec = codec
        self._publisher = publisher_bytes(publisher)
        self._incarnation = incarnation
        self._fixed_size = codec.header_size + len(self._publisher)
        self._end = codec.origin_bytes(origin) + bytes(2 * codec.vector_size) + self._publisher
        head = struct.calcsize(HEADER_FORMAT) - 4 + struct.calcsize(">IQQ")
        before = f">I{head}sIHII{len(self._end)}s"
        self._without_integer = struct.Struct(f"{before}Bq").pack
        self._with_integer = struct.Struct(f"{before}BqI").pack
        #: What stands between the frame's length and its sequence.
        self._heads: dict[tuple[int, float | None], bytes] = {}
        self._stamp = 0

    def encode(
        self, event: Event, stamp: int, sequence: int, reliable: bool = False, original: Original | None = None
    ) -> bytes:
        """An event as a frame under this id; raise InvalidEvent for what must not be published."""
        fields = encode_fields(event, original)
        if stamp != self._stamp:
            self._heads.clear()
            self._stamp = stamp
        flags = event.priority << PRIORITY_SHIFT
        if reliable:
            flags |= RELIABLE
        if event.redelivered:
            flags |= REDELIVERED
        head = self._heads.get((flags, event.ttl)) or self._head(flags, event.ttl)
        body = event.body
        size, length = len(body), len(fields)
        section = length + (9 if event.integer is None else 13)
        whole = self._fixed_size + section + size
        if whole > self._codec.max_frame:
            self._codec.check_size(whole, size)
        try:
            if event.integer is None:
                before = self._without_integer(
                    whole, head, sequence, len(self._publisher), section, size, self._end, 0, event.timestamp_ns
                )
            else:
                before = self._with_integer(
                    whole, head, sequence, len(self._publisher), section, size, self._end, 1, event.timestamp_ns,
                    event.integer,
                )  # fmt: skip
        except struct.error:
            raise fault_of_time(event) from None
        return b"".join((before, fields, body))

    def _head(self, flags: int, ttl: float | None) -> bytes:
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        head = struct.pack(">BBHQIQQ", VERSION, EVENT, flags, 0, ttl_ms_of(ttl), self._incarnation, self._stamp)
        self._heads[flags, ttl] = head
        return head
