"""The decoder as a stream: however bytes are cut, whatever they hold, and however long they claim to be."""

from __future__ import annotations

import contextlib
import tracemalloc
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.core.wire import codec as wire
from veena.core.wire import control as frames
from veena.core.wire.control import Connections, Done, Frame, Goodbye, Heartbeat, Hello
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.header import (
    EVENT,
    HEADER,
    HEADER_SIZE,
    MAX_CONTROL_FRAME,
    MAX_DATAGRAM,
    MAX_FRAME,
    MAX_LINK_FRAME,
    VERSION,
)
from veena.errors import LocalProtocolError, OtherVersion, RemoteProtocolError
from veena.event import Event, EventId

CODEC = EventCodec(4, 32)
RECORD = frames.ConnectionRecord(9, 1, (0, 1, 2, 6), (0, 1, 3), True, (5, 3), (0, 0))
MANY_FRAMES: list[Frame | Event] = [
    Hello(VERSION, VERSION, "ges-22", 4, 32, (0, 1, 2, 6), 3, 7, 1000, ("tcp://127.0.0.1:7700",)),
    Connections((RECORD,) * 3, True),
    Event(topic="quotes", properties={"price": 12.5}, body=b"short", event_id=EventId("alice", 1, 2, 3)),
    Heartbeat(1, 0),
    Event(integer=7, body=bytes(range(256)) * 20, event_id=EventId("bob", 1, 2, 3)),
    Done(((1, 2), (4, 9)), (b"", b"\x02")),
    Goodbye("bye"),
]


def encoded(item: Frame | Event, number: int) -> bytes:
    return CODEC.encode_event(item, number) if isinstance(item, Event) else wire.encode(item, number)


PIECES = [encoded(item, number) for number, item in enumerate(MANY_FRAMES, 1)]
STREAM = b"".join(PIECES)
ENDS = [sum(map(len, PIECES[: count + 1])) for count in range(len(PIECES))]


def comparable(numbered: list[wire.Numbered]) -> list[tuple[int, object]]:
    return [
        (number, CODEC.encode(frame, number) if isinstance(frame, EventFrame) else frame) for number, frame in numbered
    ]


AT_ONCE = comparable(wire.Decoder(CODEC).feed(STREAM))


def raw(kind: int, payload: bytes = b"", *, length: int | None = None, version: int = VERSION, flags: int = 0) -> bytes:
    return HEADER.pack(HEADER_SIZE + len(payload) if length is None else length, version, kind, flags, 1) + payload


def feed_all(decoder: wire.Decoder, parts: list[bytes]) -> None:
    for part in parts:
        decoder.feed(part)


def test_one_read_gives_all_its_frames() -> None:
    assert [number for number, _ in AT_ONCE] == list(range(1, 8))
    assert [frame for _, frame in AT_ONCE if isinstance(frame, Frame)] == [
        item for item in MANY_FRAMES if isinstance(item, Frame)
    ]


@settings(max_examples=150)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12).map(sorted))
def test_cuts_make_no_difference(cuts: list[int]) -> None:
    """TRN-01: a stream read in pieces gives the same frames as read at once."""
    decoder = wire.Decoder(CODEC)
    got: list[wire.Numbered] = []
    for start, end in pairwise([0, *cuts, len(STREAM)]):
        got += decoder.feed(STREAM[start:end])
    assert comparable(got) == AT_ONCE
    assert decoder.buffered == 0


def test_one_byte_at_a_time() -> None:
    decoder = wire.Decoder(CODEC)
    got = [numbered for index in range(len(STREAM)) for numbered in decoder.feed(STREAM[index : index + 1])]
    assert comparable(got) == AT_ONCE


def test_a_truncated_stream_gives_what_is_complete() -> None:
    """At every length: the frames that are whole, no error, and at most one partial frame kept."""
    for length in range(len(STREAM) + 1):
        decoder = wire.Decoder(CODEC)
        whole = [end for end in ENDS if end <= length]
        assert len(decoder.feed(STREAM[:length])) == len(whole)
        assert decoder.buffered == length - (whole[-1] if whole else 0)


@pytest.mark.parametrize("data", PIECES, ids=[type(item).__name__ for item in MANY_FRAMES])
def test_a_frame_cut_short_by_its_length_field_is_refused(data: bytes) -> None:
    """A frame whose length says less than its contents need is broken, at every length."""
    for length in range(HEADER_SIZE, len(data) if len(data) < 300 else 300):
        decoder = wire.Decoder(CODEC)
        with pytest.raises(RemoteProtocolError):
            decoder.feed(length.to_bytes(4, "big") + data[4:length])


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_arbitrary_bytes_raise_nothing_else(reads: list[bytes]) -> None:
    decoder = wire.Decoder(CODEC)
    with contextlib.suppress(RemoteProtocolError):
        for data in reads:
            decoder.feed(data)
            assert decoder.buffered <= sum(map(len, reads))


@settings(max_examples=300)
@given(st.sampled_from([*wire.KINDS, EVENT]), st.binary(max_size=150), st.sampled_from([0, 0, 1, 0x0400]))
def test_arbitrary_payloads_raise_nothing_else(kind: int, payload: bytes, flags: int) -> None:
    """Behind a correct header anything may follow."""
    with contextlib.suppress(RemoteProtocolError):
        ((number, frame),) = wire.Decoder(CODEC).feed(raw(kind, payload, flags=flags))
        assert number == 1 and isinstance(frame, Frame | EventFrame)


def test_every_flipped_bit_raises_nothing_else() -> None:
    data = b"".join(PIECES[:4])
    survived = refused = 0
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            wire.Decoder(CODEC).feed(bytes(damaged))
            survived += 1
        except RemoteProtocolError as error:
            assert 0 < len(error.reply) <= frames.MAX_REASON  # noqa: PT017
            refused += 1
    assert survived and refused


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (raw(0), "kind 0"),
        (raw(255), "kind 255"),
        (
            raw(3, version=VERSION + 1),
            f"wire version {VERSION + 1}; this side speaks wire version {VERSION}: upgrade the",
        ),
        (
            raw(3, version=VERSION - 1),
            f"wire version {VERSION - 1}; this side speaks wire version {VERSION}: upgrade the",
        ),
        (raw(4, b"\x92\xc0\xc0", version=VERSION + 1), f"wire version {VERSION + 1}; this side speaks"),
        (raw(3, version=0), "version 0"),
        (raw(3, b"\x92\x01\x01", flags=1), "control frames have none"),
        (raw(3, length=0), "0 bytes"),
        (raw(3, length=HEADER_SIZE - 1), "15 bytes"),
        (raw(3, length=MAX_CONTROL_FRAME + 1), "expected 16 to"),
        (raw(EVENT, length=(1 << 20) + 1), "expected 16 to 1048576"),
        (raw(EVENT, length=(1 << 32) - 1), "expected 16 to 1048576"),
        (raw(EVENT, b"\x00" * 40), "its header alone has 86"),
        (raw(3), "truncated"),
        (raw(3, b"\x92\x01\x01\xc0"), "trailing"),
        (raw(3, b"\x91\x01"), "at least length 2"),
        (raw(3, b"\x82\x01\x01\x02\x02"), "got `object`"),
        (raw(3, b"\x92\xa1\x31\x01"), "at `sent_ns`"),
        (raw(3, b"\x92\xcb" + b"\x00" * 8 + b"\x01"), "got `float`"),
        (raw(3, b"\x91" * 200_000), "Heartbeat"),
        (raw(3, b"\x94\x01\x01" + b"\x91" * 200_000), "recursion"),
        (raw(3, b"\xdd\xff\xff\xff\xff\x01\x01"), "truncated"),
        (raw(2, b"\x92\xdd\xff\xff\xff\xff"), "at `records`"),
        (raw(2, b"\x92\xdd\x00\x00\x04\x01" + b"\xc0" * 1025 + b"\xc3"), "at `records`"),
        (raw(4, b"\x91\xdb\xff\xff\xff\xff"), "truncated"),
        (raw(4, b"\x91\xa2\xff\xfe"), "utf-8"),
        (raw(4, b"\x91\xa3\xed\xa0\x80"), "utf-8"),
        (raw(4, b"\x91\xc4\x01a"), "got `bytes`"),
        (raw(4, b"\xc1"), "Goodbye"),
    ],
)
@pytest.mark.parametrize("cut", [0, 3, HEADER_SIZE, HEADER_SIZE + 1])
def test_bad_frames_are_refused_with_a_reason(data: bytes, expected: str, cut: int) -> None:
    """Whole or in pieces; the reply says what was wrong, and the decoder stays dead."""
    decoder = wire.Decoder(CODEC)
    parts = [data[:cut], data[cut:]] if cut < len(data) else [data]
    with pytest.raises(RemoteProtocolError, match=expected) as caught:
        feed_all(decoder, parts)
    assert decoder.buffered == 0
    for more in (b"", PIECES[0]):
        with pytest.raises(RemoteProtocolError) as again:
            decoder.feed(more)
        assert again.value.reply == caught.value.reply


def test_a_hello_of_a_later_version_is_read() -> None:
    """The Hello says which versions its sender speaks, so it is read whatever its header says."""
    later = raw(1, PIECES[0][HEADER_SIZE:], version=9)
    assert wire.Decoder().feed(later) == [(1, MANY_FRAMES[0])]
    assert wire.decode_datagram(later) == (1, MANY_FRAMES[0])
    assert wire.Decoder().feed(later[:20]) == []


def test_events_wait_for_the_codec() -> None:
    """A client learns levels and fan-out from the Hello; an event before that cannot be read."""
    with pytest.raises(RemoteProtocolError, match="before the Hello"):
        wire.Decoder().feed(PIECES[2])
    decoder = wire.Decoder()
    decoder.feed(PIECES[0])
    decoder.codec = CODEC
    ((number, _),) = decoder.feed(PIECES[2])
    assert number == 3


@pytest.mark.parametrize("max_frame", [0, -1, HEADER_SIZE, MAX_LINK_FRAME + 1])
def test_the_limit_has_limits(max_frame: int) -> None:
    with pytest.raises(LocalProtocolError, match="max_frame"):
        wire.Decoder(max_frame=max_frame)


def test_the_limit_is_exact() -> None:
    """A frame of exactly `max_frame` bytes passes, one byte more does not; the whole frame counts."""
    data = PIECES[4]
    assert len(wire.Decoder(CODEC, len(data)).feed(data)) == 1
    with pytest.raises(RemoteProtocolError, match="expected 16 to"):
        wire.Decoder(CODEC, len(data) - 1).feed(data)


def test_a_datagram_may_hold_a_long_control_frame() -> None:
    """All of a full Connections frame; only events are held to what no path cuts up."""
    full = wire.encode(Connections((RECORD,) * frames.MAX_RECORDS, True), 5)
    assert 1200 < len(full) <= MAX_DATAGRAM
    assert wire.decode_datagram(full)[0] == 5


def peak(data: list[bytes], max_frame: int = MAX_FRAME) -> int:
    decoder = wire.Decoder(CODEC, max_frame)
    tracemalloc.start()
    try:
        with contextlib.suppress(RemoteProtocolError):
            feed_all(decoder, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        raw(EVENT, length=MAX_FRAME) + b"x",
        raw(EVENT, length=(1 << 32) - 1) + b"x",
        raw(2, b"\x92\xdd\xff\xff\xff\xff"),
        raw(4, b"\x91\xdb\xff\xff\xff\xff"),
        raw(6, b"\x92\x90\xdd\x0f\xff\xff\xff"),
        raw(3, b"\xdd\xff\xff\xff\xff\x01\x01"),
    ],
)
def test_claimed_lengths_cost_nothing(data: bytes) -> None:
    """Memory follows the bytes that came, not the length that was claimed."""
    assert peak([data]) < 64 * 1024
    assert peak([data[:HEADER_SIZE], data[HEADER_SIZE:]]) < 64 * 1024


def test_a_flood_of_nested_arrays_is_not_built() -> None:
    """Small items that would each become an object are refused at the first, or skipped: no 60-fold growth."""
    payload = b"\x94\x01\x01\xdd\x00\x07\x00\x00" + b"\x90" * 0x70000 + b"\xc0"
    assert len(wire.Decoder().feed(raw(3, payload))) == 1
    assert peak([raw(3, payload)]) < 3 * len(payload)


def test_a_slow_frame_is_kept_once() -> None:
    """A long frame in many reads: the buffer holds its bytes and nothing beside them."""
    data = CODEC.encode_event(Event(body=b"x" * 900_000, event_id=EventId("a", 1, 2, 3)), 1)
    parts = [data[at : at + 9000] for at in range(0, len(data), 9000)]
    assert peak(parts, 1 << 20) < 3 * len(data)


def test_numbered_events_survive_msgpack_of_their_neighbours() -> None:
    """Frames of both layouts stand side by side in one read without touching each other."""
    heartbeat = raw(3, msgspec.msgpack.encode([1, 2]))
    got = wire.Decoder(CODEC).feed(heartbeat + PIECES[4] + heartbeat + PIECES[2])
    assert [type(frame) for _, frame in got] == [Heartbeat, EventFrame, Heartbeat, EventFrame]
    last = got[-1][1]
    assert isinstance(last, EventFrame) and last.event() == MANY_FRAMES[2]


def test_another_protocol_is_not_taken_for_another_version() -> None:
    """FLT-09: whoever dialled a web server is asked for its URL, not told to upgrade."""
    with pytest.raises(RemoteProtocolError, match="is the URL right") as caught:
        wire.Decoder().feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert not isinstance(caught.value, OtherVersion)
    with pytest.raises(OtherVersion, match=f"version 9; .*version {VERSION}"):
        wire.Decoder().feed(HEADER.pack(HEADER_SIZE, 9, 200, 0, 0))
