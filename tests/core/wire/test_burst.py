"""Events in bursts: how they are found in a stream, and that a broker does with them what it does with each alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from veena.core.wire.burst import EventBurst
from veena.core.wire.client import AskUnsubscribe
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.event import EventCodec, EventFrame
from veena.errors import RemoteProtocolError
from veena.event import Event, EventId

CODEC = EventCodec(4, 32)
ORIGIN = (0, 1, 2, 3)


def event(
    sequence: int, *, topic: str = "quotes", body: bytes = b"x", stamp: int = 7, priority: int = 4, now_ns: int = 0
) -> EventFrame:
    found = Event(
        topic=topic, body=body, priority=priority, event_id=EventId("p", 5, stamp, sequence), timestamp_ns=now_ns
    )
    return CODEC.frame(found)


def data_of(frames: list[EventFrame], number: int = 0) -> bytes:
    return b"".join(CODEC.encode(frame, number) for frame in frames)


def bursts_of(data: bytes) -> list[EventBurst]:
    found = Decoder(CODEC).feed_bursts(data)
    assert all(isinstance(each, EventBurst) for each in found)
    return [each for each in found if isinstance(each, EventBurst)]


def shown(frame: EventFrame) -> tuple[object, ...]:
    names = [name for name in EventFrame.__slots__ if name not in ("_section", "tail")]
    return (*(getattr(frame, name) for name in names), bytes(frame.tail))


def events_of(feed: Callable[[bytes], Sequence[object]], data: bytes) -> list[object] | None:
    """What a decoder reads, event by event; None where it refuses to."""
    try:
        found = feed(data)
    except RemoteProtocolError:
        return None
    events: list[object] = []
    for each in found:
        if isinstance(each, EventBurst):
            events += map(shown, each.frames())
        elif isinstance(each, tuple) and isinstance(each[1], EventFrame):
            events.append(shown(each[1]))
    return events


def test_events_that_are_alike_are_one_burst() -> None:
    """Only sequence, time of publication and body may differ."""
    frames = [event(number, body=b"y" * number, now_ns=number * 10) for number in range(1, 40, 3)]
    (burst,) = bursts_of(data_of(frames))
    assert (burst.count, burst.last_sequence) == (len(frames), 37)
    assert list(map(shown, burst.frames())) == list(map(shown, frames))
    assert burst.sequences() == [frame.sequence for frame in frames]
    assert burst.data == data_of(frames)


#: None of them goes on from events 1 and 2.
OTHERS = [
    event(9, topic="orders"),
    event(9, stamp=8),
    event(9, priority=5),
    event(2),
    event(1),
    CODEC.frame(Event(topic="quotes", ttl=1.0, event_id=EventId("p", 5, 7, 9))),
    CODEC.frame(Event(topic="quotes", event_id=EventId("q", 5, 7, 9))),
    CODEC.frame(Event(topic="quotes", event_id=EventId("p", 6, 7, 9))),
    CODEC.frame(Event(topic="quotes", event_id=EventId("p", 5, 7, 9)), reliable=True),
    CODEC.frame(Event(topic="quotes", integer=4, event_id=EventId("p", 5, 7, 9))),
    CODEC.frame(Event(topic="quotes", event_id=EventId("p", 5, 7, 9)), origin=ORIGIN),
    CODEC.frame(Event(topic="quotes", event_id=EventId("p", 5, 7, 9)), to_serve=1),
]


@pytest.mark.parametrize("other", OTHERS)
def test_events_that_differ_are_not(other: EventFrame) -> None:
    found = bursts_of(data_of([event(1), event(2), other]))
    assert [burst.count for burst in found] == [2, 1]


@pytest.mark.parametrize("other", [*OTHERS, event(3), event(3, body=bytes(400)), event(3, body=bytes(60_000))])
def test_an_event_alone_in_its_read_is_what_it_is_after_any_other(other: EventFrame) -> None:
    """However little is looked at where it is like the one before."""
    decoder = Decoder(CODEC)
    for each in (event(1), event(2), other, event(4), other):
        (found,) = decoder.feed_bursts(data_of([each]))
        assert isinstance(found, EventBurst)
        assert (found.count, found.first_sequence, found.last_sequence) == (1, each.sequence, each.sequence)
        assert (bytes(found.data), shown(found.first)) == (data_of([each]), shown(each))
        assert (found.like.id[:3], found.like.flags) == (each.id[:3], each.flags)
        assert found.like.tail[: each.publisher_length] == each.tail[: each.publisher_length]


def test_a_lone_event_that_is_too_long_is_refused() -> None:
    decoder = Decoder(CODEC, max_frame=1000)
    decoder.feed_bursts(data_of([event(1)]))
    with pytest.raises(RemoteProtocolError, match="1000"):
        decoder.feed_bursts(data_of([event(2, body=bytes(1000))]))


def test_reads_may_be_cut_anywhere() -> None:
    """TRN-01: the same events, whatever a read brings; and what stands between them keeps its place."""
    chance = Random(7)
    frames = [event(n, topic=chance.choice(("a", "b")), body=bytes(chance.randrange(300))) for n in range(1, 200)]
    data = data_of(frames[:90]) + encode(AskUnsubscribe(4), 0) + data_of(frames[90:])
    for _ in range(30):
        decoder = Decoder(CODEC)
        got: list[EventFrame | int] = []
        at = 0
        while at < len(data):
            size = chance.choice((1, 7, 90, 400, 5000, 60000))
            for each in decoder.feed_bursts(data[at : at + size]):
                got += each.frames() if isinstance(each, EventBurst) else [-1]
            at += size
        assert got.index(-1) == 90
        assert [shown(frame) for frame in got if isinstance(frame, EventFrame)] == list(map(shown, frames))


def test_a_long_event_in_pieces_is_a_burst_of_its_own() -> None:
    frames = [event(1, body=bytes(100_000)), event(2, body=b"z" * 50_000), event(3)]
    data = data_of(frames)
    decoder = Decoder(CODEC)
    got: list[EventFrame] = []
    for at in range(0, len(data), 9000):
        for each in decoder.feed_bursts(data[at : at + 9000]):
            assert isinstance(each, EventBurst)
            got += each.frames()
    assert list(map(shown, got)) == list(map(shown, frames))


@pytest.mark.parametrize("at", [0, 4, 5, 6, 40, 43, 47, 50])
def test_a_broken_frame_in_a_burst_is_refused_as_any_other(at: int) -> None:
    """ROB: whatever comes, the decoder raises RemoteProtocolError and nothing else, or reads what `feed` reads."""
    good = data_of([event(1), event(2)])
    length = len(good) // 2
    for value in (0, 1, 0x7F, 0xFF):
        broken = bytearray(good + good[length:] + data_of([event(3)]))
        broken[2 * length + at] = value
        assert events_of(Decoder(CODEC).feed_bursts, bytes(broken)) == events_of(Decoder(CODEC).feed, bytes(broken))
        # The same where it comes alone, after events that it resembles.
        decoder = Decoder(CODEC)
        decoder.feed_bursts(good)
        alone = bytes(broken[2 * length : 3 * length])
        assert events_of(decoder.feed_bursts, alone) == events_of(Decoder(CODEC).feed, alone)


def test_a_burst_as_its_receivers_get_it() -> None:
    """ERP-02: the accepting broker's address, and no number; nothing is written anew where it is so already."""
    frames = [event(number, body=b"y" * number) for number in range(1, 5)]
    (burst,) = bursts_of(data_of(frames, number=9))
    stamped = burst.stamped(bytes(ORIGIN))
    expected = [CODEC.frame(each.event(), origin=ORIGIN) for each in frames]
    assert stamped.data == data_of(expected)
    assert list(map(shown, stamped.frames())) == list(map(shown, expected))
    assert stamped.stamped(bytes(ORIGIN)) is stamped


def test_a_burst_as_the_log_keeps_it() -> None:
    frames = [event(number, body=b"y" * number) for number in range(1, 5)]
    (burst,) = bursts_of(data_of(frames))
    size = CODEC.vector_size
    rows = burst.rows((5).to_bytes(size, "big") + (3).to_bytes(size, "big"))
    assert rows == [CODEC.encode(frame.copy(5, 3, frame.ttl_ms), 0) for frame in frames]
