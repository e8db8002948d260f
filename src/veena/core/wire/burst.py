"""Bursts: events of one stream that came one behind the other.

A publisher that is in a hurry sends the same header again and again. Often the matching sections are the same as well:
only the sequence, the time of publication and the body differ. What a broker decides about the first of such *alike*
events it decides about all of them, and what its clients get are the very bytes that came in. So a burst is one piece
of the read buffer with the first event taken apart, and everything that costs something (rights, matching, duplicates,
effects, writes) is paid once a burst.

Where the sections differ from event to event, a best-effort burst is *mixed*: it is still one piece of the buffer with
one event taken apart, and it lists the section and the end of each event. Who decides about it asks the engines once
for all of its events; who cannot do that takes its events in alike bursts (`alike`).

The invariant: the events of a burst have the same publisher, incarnation, stamp, flags, ttl, origin and vectors, and of
an alike one the same matching section (its time of publication apart). Their sequences ascend, and all of them would
pass `EventCodec.decode`.

Rejected: a frame object for every event, and a cache of decisions alone (five times the cost of telling that a header
is the one before).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from veena.core.wire.event import COPY_BELOW, RELIABLE, EventCodec, EventFrame
from veena.core.wire.header import HEADER, VERSION
from veena.core.wire.section import TIME_OFFSET, TIME_SIZE

#: Shapes (lengths of publisher and matching section) and events of which a stream remembers what they were like, and
#: the longest section that is worth it: a megabyte at most, less than a frame that is waited for.
MAX_SHAPES = 256
MAX_LIKES = 1024
MAX_SECTION = 512
#: Reliable events in one burst: each is written and delivered by itself, and a step deals with a whole burst.
MAX_RELIABLE = 256
#: Events of a mixed burst: some milliseconds of matching. Behind so many short bursts of one stream a reader begins to
#: make mixed ones, and alike bursts of fewer events are short.
MAX_MIXED = 512
PATIENCE, SHORT = 2, 4
#: Where an event frame has the lengths of publisher and matching section, and its origin.
SIZES_OFFSET, SIZES_END, ORIGIN_OFFSET = 40, 46, 50
_SIZES = struct.Struct(">HI")
#: And its sequence.
SEQUENCE_OFFSET = 36
_SEQUENCE = struct.Struct(">I")
#: Section, header, what lies between them, lengths.
_Parts = tuple[bytes, bytes, bytes, bytes]
_Unpack = Callable[[bytes, int], tuple[Any, ...]]


def _no_shape(data: bytes, offset: int) -> tuple[Any, ...]:
    raise AssertionError("nothing is taken apart without a shape")


_NO_SHAPE = (_no_shape, 0)


class EventBurst:
    """Events of one read; `data` are their frames as they came. Treat it as read-only."""

    __slots__ = ("_codec", "_first", "count", "data", "ends", "first_sequence", "last_sequence", "like", "sections")

    def __init__(
        self,
        like: EventFrame,
        first_sequence: int,
        count: int,
        last_sequence: int,
        data: bytes | memoryview,
        codec: EventCodec,
        first: EventFrame | None = None,
        sections: list[bytes] | None = None,
        ends: list[int] | None = None,
    ) -> None:
        #: An event that all of them are like, in all but sequence, time of publication and body; of a mixed burst also
        #: in all but the section.
        self.like = like
        self.count = count
        #: All have the stamp of that one.
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.data = data
        #: Of a mixed burst: the section of each event behind the time of publication, and where the event ends.
        self.sections = sections
        self.ends = ends
        self._codec = codec
        self._first = first

    @property
    def first(self) -> EventFrame:
        if self._first is None:
            length, _, _, flags, _ = HEADER.unpack_from(self.data)
            self._first = self._codec.decode(self.data, 0, length, flags)
        return self._first

    def frames(self) -> list[EventFrame]:
        """Every event by itself."""
        if self.count == 1:
            return [self.first]
        found = [self.first]
        offset = _length_at(self.data, 0)
        while offset < len(self.data):
            length, _, _, flags, _ = HEADER.unpack_from(self.data, offset)
            found.append(self._codec.decode(self.data, offset, length, flags))
            offset += length
        return found

    def alike(self, start: int = 0, end: int | None = None) -> list[EventBurst]:
        """The same events in alike bursts; of a mixed burst those from number `start` to `end`."""
        if self.sections is None:
            return [self]
        runs = _runs(self.sections, start, self.count if end is None else end)
        return [self.part(first, last) for first, last in runs]

    def sequence(self, at: int) -> int:
        """The sequence of event number `at` of a mixed burst."""
        assert self.ends is not None
        found: int = _SEQUENCE.unpack_from(self.data, (self.ends[at - 1] if at else 0) + SEQUENCE_OFFSET)[0]
        return found

    def part(self, at: int, end: int) -> EventBurst:
        """Of a mixed burst the events from number `at` to `end`, as an alike burst; their sections are the same, or
        make no difference to whoever gets it."""
        assert self.ends is not None
        data = self.data[self.ends[at - 1] if at else 0 : self.ends[end - 1]]
        length, _, _, flags, _ = HEADER.unpack_from(data)
        first = self._codec.decode(data, 0, length, flags)
        return EventBurst(first, first.sequence, end - at, self.sequence(end - 1), data, self._codec, first)

    def sequences(self) -> list[int]:
        """The place of every event in its stream; all have the stamp of the first."""
        if self.last_sequence - self.first_sequence == self.count - 1:
            return list(range(self.first_sequence, self.last_sequence + 1))
        return [frame.sequence for frame in self.frames()]

    def rows(self, vectors: bytes) -> list[bytes]:
        """Every frame by itself, with these vectors, to serve and served: as a log keeps it."""
        data = bytearray(self.data)
        at = ORIGIN_OFFSET + len(self.like.origin)
        found: list[bytes] = []
        offset = 0
        while offset < len(data):
            data[offset + at : offset + at + len(vectors)] = vectors
            length = _length_at(data, offset)
            found.append(bytes(data[offset : offset + length]))
            offset += length
        return found

    def is_stamped(self, origin: bytes) -> bool:
        """Whether its frames are what receivers get from a broker at `origin`: of this version and without a number."""
        _, version, _, _, number = HEADER.unpack_from(self.data)
        return self.like.origin == origin and version == VERSION and not number

    def stamped(self, origin: bytes) -> EventBurst:
        """The same as its receivers get it, from a broker at `origin`."""
        if self.is_stamped(origin):
            return self
        data = bytearray(self.data)
        offset = 0
        while offset < len(data):
            length, _, kind, flags, _ = HEADER.unpack_from(data, offset)
            HEADER.pack_into(data, offset, length, VERSION, kind, flags, 0)
            data[offset + ORIGIN_OFFSET : offset + ORIGIN_OFFSET + len(origin)] = origin
            offset += length
        first = self.first.copy(self.first.to_serve, self.first.served, self.first.ttl_ms)
        first.origin = origin
        return EventBurst(
            first, first.sequence, self.count, self.last_sequence, bytes(data), self._codec, first, self.sections,
            self.ends,
        )  # fmt: skip


class BurstReader:
    """Finds bursts in what one stream brings. An event like one that came before is known by its header and section."""

    __slots__ = ("_last", "_likes", "_mixed", "_shapes", "_short", "codec")

    def __init__(self, codec: EventCodec) -> None:
        self.codec = codec
        #: By the lengths of publisher and matching section, as they stand in the frame: how to take it apart, and the
        #: bytes before its body.
        self._shapes: dict[bytes, tuple[_Unpack, int]] = {}
        #: By the parts of a frame that must be the same.
        self._likes: dict[_Parts, EventFrame] = {}
        #: How the last frame was taken apart, what came of it, and an event that it was like.
        self._last: tuple[_Unpack, int, _Parts, EventFrame] | None = None
        #: How many short bursts came one behind the other; and how a mixed one is taken apart, by what stands between
        #: its lengths and its section.
        self._short = 0
        self._mixed: dict[int, tuple[_Unpack, int]] = {}

    def lone(self, data: bytes) -> EventBurst | None:
        """The event that is all of `data`, if it is like the last one that was read; None for everything else.

        It tells nothing that `read` does not. At a steady pace a read brings one event, and between two of them other
        programs have had the caches: then what counts is how little is touched.
        """
        if self._last is None:
            return None
        unpack, fixed, parts, like = self._last
        size = len(data)
        if not fixed <= size <= self.codec.max_frame:
            return None
        length, header, sequence, lengths, body, rest, matching = unpack(data, 0)
        if length != size or size != fixed + body or (matching, header, rest, lengths) != parts:
            return None
        return EventBurst(like, sequence, 1, sequence, data, self.codec)

    def read(self, data: bytes, start: int, end: int, length: int, flags: int) -> EventBurst:
        """The burst that begins with the frame of `length` bytes at `start`; `data` is looked at up to `end`."""
        codec = self.codec
        if self._short >= PATIENCE and not flags & RELIABLE:
            mixed = self._read_mixed(data, start, end, length, flags)
            if mixed is not None:
                return mixed
        unpack, fixed = self._shapes.get(data[start + SIZES_OFFSET : start + SIZES_END], _NO_SHAPE)
        first: EventFrame | None = None
        like: EventFrame | None = None
        if fixed and length >= fixed:
            _, header, last, lengths, body, rest, matching = unpack(data, start)
            if length == fixed + body:
                like = self._likes.get((matching, header, rest, lengths))
        if like is None:
            first = codec.decode(data, start, length, flags)
            if not TIME_OFFSET + TIME_SIZE < first.matching_length <= MAX_SECTION or length >= COPY_BELOW:
                # A long event is not copied out of the buffer; short ones are, so that nothing holds a whole read.
                whole = (
                    memoryview(data)[start : start + length] if length >= COPY_BELOW else data[start : start + length]
                )
                return EventBurst(first, first.sequence, 1, first.sequence, whole, codec, first)
            unpack, fixed = self._shape(first)
            _, header, last, lengths, _, rest, matching = unpack(data, start)
            like = self._keep((matching, header, rest, lengths), first)
        parts, longest = (matching, header, rest, lengths), codec.max_frame
        self._last = (unpack, fixed, parts, like)
        count, offset, sequence = 1, start + length, last
        most = MAX_RELIABLE if flags & RELIABLE else len(data)
        while end - offset >= fixed and count < most:
            length, header, number, lengths, body, rest, matching = unpack(data, offset)
            if (
                (matching, header, rest, lengths) != parts
                or number <= last
                or length != fixed + body
                or length > longest
                or length > end - offset
            ):
                break
            last = number
            count += 1
            offset += length
        self._short = self._short + 1 if count < SHORT and offset < end else 0
        return EventBurst(like, sequence, count, last, data[start:offset], codec, first)

    def _read_mixed(self, data: bytes, start: int, end: int, length: int, flags: int) -> EventBurst | None:
        """A mixed burst that begins here; None where the events are alike, or long, or only a few."""
        codec = self.codec
        first = codec.decode(data, start, length, flags)
        publisher_length, section_length = first.publisher_length, first.matching_length
        if not TIME_OFFSET + TIME_SIZE < section_length <= MAX_SECTION or length >= COPY_BELOW:
            return None
        shape = self._mixed.get(publisher_length)
        if shape is None:
            size = codec.header_size - ORIGIN_OFFSET + publisher_length + TIME_OFFSET
            found = struct.Struct(f">I32sIHII{size}s{TIME_SIZE}x")
            shape = self._mixed[publisher_length] = (found.unpack_from, found.size)
        unpack, fixed = shape
        base, rest = fixed - TIME_OFFSET - TIME_SIZE, TIME_OFFSET + TIME_SIZE
        sections: list[bytes] = []
        ends: list[int] = []
        _, wanted, _, _, _, _, between = unpack(data, start)
        offset, last = start, -1
        while end - offset >= fixed and len(ends) < MAX_MIXED:
            size, header, number, publisher, section, body, middle = unpack(data, offset)
            if (
                header != wanted
                or middle != between
                or number <= last
                or publisher != publisher_length
                or size != base + section + body
                or not rest < section <= MAX_SECTION
                or size >= COPY_BELOW
                or size > end - offset
                or size > codec.max_frame
            ):
                break
            last = number
            at = offset + fixed
            sections.append(data[at : at + section - rest])
            offset += size
            ends.append(offset - start)
        count = len(ends)
        if count < SHORT:
            return None
        if sections[0] == sections[1] == sections[-1]:
            self._short = 0
            return None
        return EventBurst(first, first.sequence, count, last, data[start:offset], codec, first, sections, ends)

    def _keep(self, parts: _Parts, first: EventFrame) -> EventFrame:
        """Remember what an event was like; not its body."""
        if len(self._likes) >= MAX_LIKES:
            self._likes.clear()
        like = self._likes[parts] = first.copy(first.to_serve, first.served, first.ttl_ms)
        like.tail = bytes(first.tail[: first.publisher_length + first.matching_length])
        return like

    def _shape(self, like: EventFrame) -> tuple[_Unpack, int]:
        """A frame taken apart into what may differ and what must not.

        length | version to stamp | sequence | two lengths | body length | origin to the mark of the section | section
        """
        publisher_length, matching_length = like.publisher_length, like.matching_length
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        middle = self.codec.header_size - ORIGIN_OFFSET + publisher_length + TIME_OFFSET
        rest = matching_length - TIME_OFFSET - TIME_SIZE
        shape = struct.Struct(f">I32sI6sI{middle}s{TIME_SIZE}x{rest}s")
        found = (shape.unpack_from, self.codec.header_size + publisher_length + matching_length)
        self._shapes[_SIZES.pack(publisher_length, matching_length)] = found
        return found


def _length_at(data: bytes | bytearray | memoryview, offset: int) -> int:
    length: int = HEADER.unpack_from(data, offset)[0]
    return length


def _runs(sections: list[bytes], start: int, end: int) -> list[tuple[int, int]]:
    """Where equal sections stand one behind the other between two numbers: from which to which."""
    found: list[tuple[int, int]] = []
    for at in range(start + 1, end + 1):
        if at == end or sections[at] != sections[start]:
            found.append((start, at))
            start = at
    return found
