"""Event frames: what a publisher gives is what a subscriber gets, and a relay touches only the routing header."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.address import pack_words, words
from veena.core.wire import codec as wire
from veena.core.wire import section as sections
from veena.core.wire.event import (
    COPY_BELOW,
    LATE,
    MAX_PUBLISHER_BYTES,
    NO_TTL,
    REDELIVERED,
    RELIABLE,
    EventCodec,
    EventFrame,
)
from veena.core.wire.header import HEADER_SIZE, MAX_EVENT_DATAGRAM, MAX_FRAME, MAX_LINK_FRAME
from veena.core.wire.outgoing import OutgoingFrames
from veena.core.wire.section import (
    MAX_HEADERS,
    MAX_INTEGER_BYTES,
    MAX_PROPERTIES,
    MAX_TAGS,
    MAX_TO,
    decode_section,
    encode_fields,
    encode_section,
)
from veena.errors import InvalidEvent, LocalProtocolError, RemoteProtocolError
from veena.event import Event, EventId, lane
from veena.matching.simple.topic import MAX_TOPIC_LENGTH

CODEC = EventCodec(4, 32)
ID = EventId("alice", 1, 1_700_000_000_000_000_000, 5)
U64_MAX = (1 << 64) - 1

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(),
    TEXT,
    st.binary(max_size=12),
    st.none(),
)
CLIENTS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)
EVENTS = st.builds(
    Event,
    topic=st.none() | TEXT,
    integer=st.none() | st.integers(0, (1 << 32) - 1),
    tags=st.none() | st.dictionaries(NAMES, TEXT, max_size=4),
    xml=st.none() | TEXT | st.binary(max_size=20),
    properties=st.dictionaries(NAMES, VALUES, max_size=5),
    headers=st.dictionaries(NAMES, VALUES, max_size=3),
    body=st.binary(max_size=60),
    priority=st.integers(0, 9),
    ttl=st.none() | st.integers(1, NO_TTL - 1).map(lambda ms: ms / 1000),
    to=st.lists(CLIENTS, max_size=3),
    event_id=st.builds(EventId, CLIENTS, *[st.integers(0, U64_MAX)] * 2, st.integers(0, (1 << 32) - 1)),
    timestamp_ns=st.integers(-(1 << 63), (1 << 63) - 1),
    redelivered=st.booleans(),
)


def decoded(data: bytes, codec: EventCodec = CODEC) -> EventFrame:
    ((_, frame),) = wire.Decoder(codec).feed(data)
    assert isinstance(frame, EventFrame)
    return frame


def exactly(values: Mapping[str, Any]) -> list[tuple[str, type, Any]]:
    """Order, types and values, NaN equal to itself and -0.0 apart from 0.0."""
    return [
        (name, type(value), struct.pack(">d", value) if isinstance(value, float) else value)
        for name, value in values.items()
    ]


@settings(max_examples=200)
@given(EVENTS, st.booleans(), st.none() | st.tuples(*[st.integers(0, 1000)] * 3))
def test_frames_of_one_publisher_are_those_of_any_other(
    event: Event, reliable: bool, original: tuple[int, int, int] | None
) -> None:
    """What is made quickly has the bytes of what is made field by field, and of what is checked field by field."""
    assert event.event_id is not None
    publisher, incarnation, stamp, sequence = event.event_id
    codec = EventCodec(4, 32)
    frames = OutgoingFrames(codec, publisher, incarnation, (0, 1, 2, 3))
    slow = codec.frame(event, reliable=reliable, origin=(0, 1, 2, 3), original=original)
    assert frames.encode(event, stamp, sequence, reliable, original) == codec.encode(slow, 0)
    assert encode_fields(event, original) == sections._checked_fields(event, original)


@settings(max_examples=200)
@given(EVENTS, st.data())
def test_an_event_round_trips(event: Event, data: st.DataObject) -> None:
    """EVT-03: headers, payload, computed destinations and traces. EVT-04: order and types. UID-02: the id."""
    levels, fanout = data.draw(st.sampled_from([(1, 32), (4, 32), (4, 64), (8, 64)]))
    codec = EventCodec(levels, fanout)
    vectors = st.integers(0, (1 << levels * fanout) - 1)
    origin = data.draw(st.none() | st.tuples(*[st.integers(0, fanout - 1)] * levels))
    to_serve, served, reliable = data.draw(vectors), data.draw(vectors), data.draw(st.booleans())
    sent = codec.encode_event(event, 7, reliable=reliable, origin=origin, to_serve=to_serve, served=served)
    ((number, frame),) = wire.Decoder(codec).feed(sent)
    assert number == 7 and isinstance(frame, EventFrame)
    got = frame.event()
    assert (frame.to_serve, frame.served, frame.origin_address) == (to_serve, served, origin)
    assert (frame.reliable, frame.redelivered, frame.late) == (reliable, event.redelivered, False)
    assert frame.id == event.event_id == got.event_id
    assert frame.lane_number == lane(reliable, event.priority).number
    assert exactly(got.properties) == exactly(event.properties)
    assert exactly(got.headers) == exactly(event.headers)
    assert (got.tags is None) == (event.tags is None)
    assert list(got.tag_values.items()) == list(event.tag_values.items())
    for field in ("topic", "integer", "xml", "body", "priority", "ttl", "to", "timestamp_ns", "redelivered"):
        assert getattr(got, field) == getattr(event, field)
        assert type(getattr(got, field)) is type(getattr(event, field))
    assert codec.encode(frame, 7) == sent


def test_the_integer_topic_is_four_bytes() -> None:
    """MAT-40: whatever its value; beyond four bytes an event cannot even be made."""
    without = encode_section(Event(timestamp_ns=0))
    for integer in (0, 1, 255, 65_536, (1 << 32) - 1):
        section = encode_section(Event(integer=integer, timestamp_ns=0))
        assert len(section) == len(without) + 4
        assert section[9:13] == integer.to_bytes(4, "big")
        assert decode_section(section).integer == integer
    with pytest.raises(InvalidEvent, match="four bytes"):
        Event(integer=1 << 32)


@pytest.mark.parametrize(("levels", "fanout", "size"), [(4, 32, 16), (4, 64, 32), (3, 32, 12), (8, 64, 64)])
def test_vectors_have_one_word_a_level(levels: int, fanout: int, size: int) -> None:
    """DST-01, DST-03, DST-10: destinations and traces alike; 16 bytes each for a super-super-cluster system."""
    codec = EventCodec(levels, fanout)
    unit = tuple(range(1, levels + 1))
    vector = int.from_bytes(pack_words(words(unit, levels, fanout), fanout), "big")
    assert vector.bit_count() == levels
    plain = codec.encode_event(Event(event_id=ID, timestamp_ns=0), 1)
    data = codec.encode_event(Event(event_id=ID, timestamp_ns=0), 1, to_serve=vector, served=vector)
    assert codec.vector_size == size and len(data) == len(plain)
    served_at = codec.header_size - size
    assert (
        data[served_at : served_at + size]
        == data[served_at - size : served_at]
        == pack_words(words(unit, levels, fanout), fanout)
    )
    frame = decoded(data, codec)
    # Bit level * fanout + identifier; the identifiers are written highest level first.
    for index, identifier in enumerate(unit):
        assert frame.to_serve >> (levels - 1 - index) * fanout & (1 << fanout) - 1 == 1 << identifier


def test_a_relay_changes_the_header_and_nothing_else() -> None:
    """ERP-03, ERP-09: ttl and vectors change; the tail is the same object, unread and not encoded again."""
    frame = CODEC.frame(
        Event(topic="t", body=b"b" * 9000, event_id=ID, ttl=2),
        reliable=True,
        origin=(0, 1, 2, 6),
        to_serve=0xFF,
        served=1,
    )
    incoming = decoded(CODEC.encode(frame, 1))
    stripped = incoming.served >> 32 << 32
    header = CODEC.header(
        incoming, 99, to_serve=0x0F, served=stripped | 1 << 40, ttl_ms=1500, flags=incoming.flags | REDELIVERED
    )
    assert len(header) == CODEC.header_size == 86
    outgoing = decoded(b"".join((header, incoming.tail)))
    assert (outgoing.to_serve, outgoing.served, outgoing.ttl_ms) == (0x0F, 1 << 40, 1500)
    assert outgoing.redelivered and outgoing.reliable and not incoming.redelivered
    assert (outgoing.id, outgoing.origin_address, outgoing.tail) == (incoming.id, (0, 1, 2, 6), incoming.tail)
    assert incoming._section is None and outgoing._section is None


def test_a_long_body_is_not_copied() -> None:
    """The body of a decoded event is a window on the read buffer; a short one is bytes of its own."""
    data = CODEC.encode_event(Event(body=b"x" * COPY_BELOW, event_id=ID), 1)
    body = decoded(data).event().body
    assert isinstance(body, memoryview) and body.obj is data and body.readonly
    assert isinstance(decoded(CODEC.encode_event(Event(body=b"x", event_id=ID), 1)).event().body, bytes)
    decoder = wire.Decoder(CODEC)
    assert decoder.feed(data[:1000]) == []
    ((_, frame),) = decoder.feed(data[1000:])
    assert isinstance(frame, EventFrame) and isinstance(frame.body, memoryview)
    assert frame.body.readonly and frame.body == b"x" * COPY_BELOW


def test_a_client_sends_no_routing_information() -> None:
    """ERP-02: no origin, nothing to serve, an empty trace, until the accepting broker fills them in."""
    frame = decoded(CODEC.encode_event(Event(topic="t", event_id=ID), 1))
    assert (frame.origin_address, frame.to_serve, frame.served) == (None, 0, 0)


def test_the_ttl_is_what_remains() -> None:
    assert decoded(CODEC.encode_event(Event(event_id=ID), 1)).event().ttl is None
    assert decoded(CODEC.encode_event(Event(event_id=ID, ttl=0.0001), 1)).ttl_ms == 1
    frame = decoded(CODEC.encode_event(Event(event_id=ID, ttl=90), 1))
    assert frame.ttl_ms == 90_000
    for ttl in (5_000_000, math.inf):
        with pytest.raises(InvalidEvent, match="leave it out"):
            CODEC.encode_event(Event(event_id=ID, ttl=ttl), 1)


def test_a_repeated_publication_names_its_original() -> None:
    """DUP-08: a roaming publisher repeats under a new incarnation and says which id it was."""
    frame = CODEC.frame(Event(event_id=ID), original=(U64_MAX, 7, 9))
    assert decoded(CODEC.encode(frame, 1)).section.original == (U64_MAX, 7, 9)
    assert decoded(CODEC.encode_event(Event(event_id=ID), 1)).section.original is None


def test_values_of_subclasses_become_plain() -> None:
    """What NumPy or an enum made of a float, int or text arrives as float, int or text."""

    class Word(str):
        __slots__ = ()

    properties: dict[str, Any] = {"f": np.float64(1.5), "w": Word("x"), "v": memoryview(b"y"), "t": True}
    section = decode_section(encode_section(Event(properties=properties)))
    assert exactly(section.properties) == [
        ("f", float, struct.pack(">d", 1.5)),
        ("w", str, "x"),
        ("v", bytes, b"y"),
        ("t", bool, True),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"topic": "a\ud800"}, "topic: the character at position 1 is half of a surrogate pair"),
        ({"properties": {"a": "\udfff"}}, "property 'a': the character at position 0"),
        ({"headers": {"\ud800": 1}}, "name of header"),
        ({"tags": {"Make": "\ud800"}}, "tag 'Make'"),
        ({"to": ["bob", "\ud800"]}, r"to\[1\]"),
        ({"xml": "<\ud800/>"}, "xml"),
        ({"properties": {"a": [1]}}, r"property 'a' is \[1\], a list: convert it"),
        ({"headers": {"a": np.int64(1)}}, "header 'a' is .*, a int64: convert it"),
        ({"properties": {"a": 1 << 8 * MAX_INTEGER_BYTES}}, f"at most {MAX_INTEGER_BYTES}"),
        ({"properties": {"": 1}}, "length >= 1 - at .*properties"),
        ({"properties": {"n" * 256: 1}}, "length <= 255"),
        ({"properties": {3: 1}}, "str"),
        ({"properties": {str(i): i for i in range(MAX_PROPERTIES + 1)}}, f"<= {MAX_PROPERTIES} - at `properties`"),
        ({"headers": {str(i): i for i in range(MAX_HEADERS + 1)}}, f"<= {MAX_HEADERS} - at `headers`"),
        ({"tags": {str(i): "" for i in range(MAX_TAGS + 1)}}, f"<= {MAX_TAGS} - at `tags`"),
        ({"to": ["c"] * (MAX_TO + 1)}, f"<= {MAX_TO} - at `to`"),
        ({"to": [""]}, "at `to"),
        ({"topic": "t" * (MAX_TOPIC_LENGTH + 1)}, f"<= {MAX_TOPIC_LENGTH} - at `topic`"),
        ({"topic": 5}, "at `topic`"),
        ({"timestamp_ns": 1 << 63}, "timestamp_ns"),
        ({"body": b"x" * (1 << 20)}, "publish a reference instead"),
        ({"event_id": None}, "without an id"),
        ({"event_id": EventId("", 1, 1, 1)}, "1 to 255 characters"),
        ({"event_id": EventId("\ud800", 1, 1, 1)}, "surrogate"),
    ],
)
def test_what_must_not_be_published_is_refused_by_name(fields: dict[str, Any], expected: str) -> None:
    """EVT-04: the message names the field, before anything is sent."""
    with pytest.raises(InvalidEvent, match=expected):
        CODEC.encode_event(Event(**{"event_id": ID, **fields}), 1)


def test_the_largest_of_everything_is_published() -> None:
    """Every bound at its edge, in one event."""
    event = Event(
        topic="\U0001f600" * MAX_TOPIC_LENGTH,
        tags={f"{i:255}": "v" for i in range(MAX_TAGS)},
        properties={f"{i:255}": -(1 << 8 * MAX_INTEGER_BYTES - 1) for i in range(MAX_PROPERTIES)},
        headers={f"{i:255}": None for i in range(MAX_HEADERS)},
        to=["\U0001f600" * 255] * MAX_TO,
        event_id=EventId("\U0001f600" * 255, U64_MAX, U64_MAX, (1 << 32) - 1),
    )
    codec = EventCodec(4, 32, MAX_FRAME)
    ((_, frame),) = wire.Decoder(codec, MAX_FRAME).feed(codec.encode_event(event, 1))
    assert isinstance(frame, EventFrame) and frame.event() == event
    assert frame.publisher_length == MAX_PUBLISHER_BYTES


def test_wrong_use_is_reported_here() -> None:
    frame = CODEC.frame(Event(event_id=ID))
    for wrong in ({"to_serve": 1 << 128}, {"served": -1}, {"ttl_ms": 1 << 32}, {"flags": 1 << 16}):
        with pytest.raises(LocalProtocolError, match="event frame 1"):
            CODEC.header(frame, 1, **{"to_serve": 0, "served": 0, "ttl_ms": 1, "flags": 0, **wrong})
    for origin in ((0, 1, 2), (0, 1, 2, 32), (0, 1, 2, -1)):
        with pytest.raises(LocalProtocolError, match="origin"):
            CODEC.frame(Event(event_id=ID), origin=origin)
    for levels, fanout, max_frame in (
        (0, 32, 1024),
        (9, 32, 1024),
        (4, 33, 1024),
        (4, 32, MAX_LINK_FRAME + 1),
        (4, 32, 16),
    ):
        with pytest.raises(LocalProtocolError, match="expected"):
            EventCodec(levels, fanout, max_frame)


# --- hostile event frames ---

GOOD = CODEC.encode_event(
    Event(topic="quotes", properties={"price": 12.5, "big": 1 << 70}, body=b"body", event_id=ID, ttl=5),
    1,
    reliable=True,
    origin=(0, 1, 2, 6),
)


def patched(offset: int, replacement: bytes) -> bytes:
    return GOOD[:offset] + replacement + GOOD[offset + len(replacement) :]


@pytest.mark.parametrize(
    ("offset", "replacement", "expected"),
    [
        (6, b"\x80\x00", "flags"),
        (6, b"\x0a\x00", "priority above 9"),
        (6, b"\x00\x40", "flags"),
        (40, b"\x00\x00", "add up"),
        (42, b"\xff\xff\xff\xff", "add up"),
        (46, b"\xff\xff\xff\xff", "add up"),
        (50, b"\x00\x01\x02\x20", "origin 0.1.2.32"),
        (50, b"\xff\x01\x02\x03", "origin"),
    ],
)
def test_a_bad_routing_header_closes_the_link(offset: int, replacement: bytes, expected: str) -> None:
    """The sum of the lengths must be the frame's length; unknown flags and impossible origins are refused."""
    with pytest.raises(RemoteProtocolError, match=expected):
        wire.Decoder(CODEC).feed(patched(offset, replacement))


def test_an_empty_publisher_is_refused() -> None:
    section = len(encode_section(Event(timestamp_ns=0)))
    data = bytearray(CODEC.encode_event(Event(event_id=EventId("a", 1, 2, 3), timestamp_ns=0), 1))
    data[40:46] = struct.pack(">HI", 0, section + 1)
    with pytest.raises(RemoteProtocolError, match="publisher id of 0 bytes"):
        wire.Decoder(CODEC).feed(bytes(data))


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    """A damaged frame closes the link or is an InvalidEvent when it is read; nothing else ever escapes."""
    outcomes = {"link": 0, "event": 0, "other": 0}
    for bit in range(8 * len(GOOD)):
        data = bytearray(GOOD)
        data[bit // 8] ^= 1 << bit % 8
        try:
            for _, frame in wire.Decoder(CODEC).feed(bytes(data)):
                assert isinstance(frame, EventFrame)
                frame.event()
                outcomes["other"] += 1
        except RemoteProtocolError:
            outcomes["link"] += 1
        except InvalidEvent:
            outcomes["event"] += 1
    assert all(outcomes.values())


def with_section(section: bytes) -> bytes:
    """The good frame with other bytes for its matching section."""
    frame = decoded(GOOD)
    tail = b"alice" + section + b"body"
    copy = EventFrame(frame.flags, 0, 1, 2, 3, frame.origin, 0, 0, len(b"alice"), len(section), tail)
    return CODEC.encode(copy, 1)


FIXED = struct.pack(">Bq", 0, 0)
FIELDS: list[Any] = ["t", None, None, {}, {}, []]


def msgpack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize(
    "section",
    [
        b"",
        FIXED,
        FIXED[:5],
        b"\x02" + FIXED[1:] + msgpack(FIELDS),
        b"\x01" + FIXED[1:] + b"\x00\x00",
        FIXED + msgpack(FIELDS[:5]),
        FIXED + msgpack(FIELDS) + b"\x00",
        FIXED + msgpack({}),
        FIXED + b"\x91" * 100_000,
        FIXED + b"\xdd\xff\xff\xff\xff",
        FIXED + b"\xdd\x00\x00\x00\x08" + msgpack([*FIELDS, None])[1:] + b"\x91" * 100_000,
        FIXED + msgpack([*FIELDS[:3], {"a": [1]}, {}, []]),
        FIXED + msgpack([*FIELDS[:3], {"a": {}}, {}, []]),
        FIXED + msgpack([*FIELDS[:3], {"a": b"bytes"}, {}, []]),
        FIXED + msgpack([*FIELDS[:3], {"a": msgspec.msgpack.Ext(3, b"")}, {}, []]),
        FIXED + msgpack([*FIELDS[:3], {"a": msgspec.msgpack.Ext(2, b"")}, {}, []]),
        FIXED + msgpack([*FIELDS[:3], {"a": msgspec.msgpack.Ext(2, b"\x01" * 1025)}, {}, []]),
        FIXED + msgpack([*FIELDS[:2], msgspec.msgpack.Ext(2, b"\x01"), {}, {}, []]),
        FIXED + msgpack([*FIELDS[:3], {1: 2}, {}, []]),
        FIXED + msgpack([*FIELDS[:3], {}, {}, [""]]),
        FIXED + msgpack(["t", {"a": 1}, *FIELDS[2:]]),
        FIXED + b"\x96\xa2\xed\xa0" + msgpack(FIELDS)[3:],
        FIXED + b"\x96\xd9\xff" + b"t",
        FIXED + b"\x93\xc0\xc0\xc0" + b"\xdf\xff\xff\xff\xff",
    ],
)
def test_a_bad_matching_section_is_the_publishers_fault(section: bytes) -> None:
    """A relay passes it on unread; who reads it gets InvalidEvent and keeps the link."""
    frame = decoded(with_section(section))
    assert frame.body == b"body" and frame.publisher == "alice"
    with pytest.raises(InvalidEvent, match="matching section of"):
        frame.event()


def test_a_publisher_that_is_no_text_is_the_publishers_fault() -> None:
    frame = decoded(GOOD.replace(b"alice", b"\xff\xff\xff\xff\xff"))
    with pytest.raises(InvalidEvent, match="no UTF-8"):
        frame.event()
    section = encode_section(Event())
    long = EventFrame(0, 0, 1, 2, 3, b"\xff" * 4, 0, 0, 256, len(section), b"p" * 256 + section)
    with pytest.raises(InvalidEvent, match="256 characters"):
        decoded(CODEC.encode(long, 1)).event()


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_arbitrary_sections_raise_nothing_else(section: bytes) -> None:
    for data in (section, FIXED + section):
        frame = decoded(with_section(data))
        with contextlib.suppress(InvalidEvent):
            assert frame.event().event_id == EventId("alice", 1, 2, 3)


def test_an_event_in_a_datagram_is_small() -> None:
    """1,200 bytes with everything, so that no path cuts it up."""
    room = MAX_EVENT_DATAGRAM - len(CODEC.encode_event(Event(integer=1, event_id=ID, timestamp_ns=0), 1))
    fits, too_long = (
        CODEC.encode_event(Event(integer=1, event_id=ID, timestamp_ns=0, body=b"v" * size), 3)
        for size in (room, room + 1)
    )
    assert len(fits) == MAX_EVENT_DATAGRAM
    number, frame = wire.decode_datagram(fits, CODEC)
    assert number == 3 and isinstance(frame, EventFrame) and frame.event().integer == 1
    with pytest.raises(RemoteProtocolError, match="expected 16 to 1200"):
        wire.decode_datagram(too_long, CODEC)
    for data in (b"", GOOD[: HEADER_SIZE - 1], GOOD[:-1], GOOD + b"\x00", GOOD + GOOD):
        with pytest.raises(RemoteProtocolError, match="datagram of"):
            wire.decode_datagram(data, CODEC)


def test_late_and_reliable_are_apart() -> None:
    """Design: what comes after its backlog is marked; the mark changes no lane."""
    frame = CODEC.frame(Event(event_id=ID, priority=9), reliable=True)
    header = CODEC.header(frame, 1, to_serve=0, served=0, ttl_ms=NO_TTL, flags=frame.flags | LATE)
    late = decoded(header + bytes(frame.tail))
    assert late.late and late.flags & RELIABLE and late.lane_number == frame.lane_number == 5


def test_an_event_is_no_larger_on_a_higher_gateway() -> None:
    """GKP-06, ERP-09: what is known of lower levels is stripped, and the frame has the same size or less."""
    codec = EventCodec(4, 32)
    event = Event(topic="quotes", event_id=EventId("alice", 1, 2, 3), body=b"x" * 100)
    everything = (1 << 128) - 1
    sizes = []
    for level in range(4):
        kept = everything >> (32 * level) << (32 * level)
        sent = codec.encode_event(event, 1, origin=(0, 0, 0, 1), to_serve=kept, served=kept)
        sizes.append(len(sent))
        ((_, frame),) = wire.Decoder(codec).feed(sent)
        assert isinstance(frame, EventFrame)
        assert frame.served & ((1 << 32 * level) - 1) == 0
    assert sizes == sorted(sizes, reverse=True)
