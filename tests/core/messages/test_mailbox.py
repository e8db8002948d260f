"""What brokers write to each other: messages as events, read back or dropped, never a failure."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.address import Address
from veena.core.messages.kinds import (
    MESSAGES,
    Backlog,
    Deleted,
    End,
    Message,
    Move,
    decode_message,
    encode_message,
    hads,
    places,
)
from veena.core.messages.mailbox import KIND, Post
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId

HOST: Address = (0, 1, 2, 3)
CODEC = EventCodec(4, 32)


class Outbox:
    """Takes what a post publishes, as a broker's log would."""

    def __init__(self) -> None:
        self.frames: list[EventFrame] = []

    def post(self, event: Event, reliable: bool, now_ns: int) -> None:
        frame = CODEC.frame(event, reliable=reliable)
        frame.origin = bytes(HOST)
        self.frames.append(frame)

    def new_incarnation(self, now_ns: int) -> int:
        return now_ns + 1


MOVE = Move("alice", "mine", 9, 5)
streams = st.dictionaries(
    st.tuples(st.text(min_size=1, max_size=5), st.integers(0, 2**64 - 1), st.integers(0, 5)),
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)),
    max_size=4,
)


def test_a_message_arrives_as_it_was_posted() -> None:
    """CLI-05: a reliable event to one place, read at the other end with its origin and the time."""
    outbox = Outbox()
    sender, receiver = Post(HOST, outbox), Post((0, 1, 2, 4), Outbox())
    heard: list[tuple[Message, Address, int]] = []
    receiver.deals_with(Move, lambda message, origin, now_ns: heard.append((message, origin, now_ns)))
    sender.send("~0.1.2.4", MOVE, 5)
    sender.send("~0.1.2.4", Move("alice", "mine", 10, 5), 6, reliable=False)
    for frame in outbox.frames:
        receiver.arrived(frame, 77)
    assert heard == [(MOVE, HOST, 77), (Move("alice", "mine", 10, 5), HOST, 77)]
    assert [frame.reliable for frame in outbox.frames] == [True, False]
    assert outbox.frames[0].event().to == ("~0.1.2.4",)
    assert outbox.frames[0].event().headers == {KIND: "Move"}
    assert (sender.sent, receiver.received, receiver.unread) == (2, 2, 0)


def test_messages_have_ids_of_one_stream() -> None:
    """I3: one incarnation a life, and ascending ids: the router keeps their order."""
    outbox = Outbox()
    post = Post(HOST, outbox)
    for _ in range(3):
        post.send("~0.1.2.4", MOVE, 5)
    ids = [frame.id for frame in outbox.frames]
    assert ids == sorted(ids)
    assert {(each.publisher, each.incarnation) for each in ids} == {("~0.1.2.3", 6)}


def test_what_nobody_deals_with_is_counted_and_dropped() -> None:
    outbox = Outbox()
    post = Post(HOST, outbox)
    post.send("~0.1.2.3", MOVE, 5)
    post.arrived(outbox.frames[0], 6)
    assert (post.received, post.unread) == (1, 1)


@settings(max_examples=60)
@given(st.binary(max_size=60))
def test_garbage_is_counted_and_dropped(body: bytes) -> None:
    """Whatever a hostile broker posts, the handler is called with a message or not at all."""
    post = Post(HOST, Outbox())
    heard: list[Message] = []
    for kind in MESSAGES.__args__:
        post.deals_with(kind, lambda message, origin, now_ns: heard.append(message))
    frame = CODEC.frame(
        Event(to=("~0.1.2.3",), body=body, event_id=EventId("x", 1, 1, 1), timestamp_ns=1), reliable=True
    )
    post.arrived(frame, 1)
    assert post.unread + len(heard) == 1
    assert all(isinstance(message, Message) for message in heard)


@settings(max_examples=60)
@given(streams, st.binary(max_size=20), st.booleans())
def test_messages_survive_the_wire(had: dict[tuple[str, int, int], tuple[int, int]], data: bytes, flag: bool) -> None:
    messages = (MOVE, Deleted("a", "b", 3), Backlog("a", "b", data, flag, not flag), End("a", "b", 1, hads(had)))
    for message in messages:
        assert decode_message(encode_message(message)) == message
    assert places(hads(had)) == had


@pytest.mark.parametrize(
    "fields",
    [["Move", "a", "mine"], ["Move", "a", "", 1], ["Move", "a", "x" * 256, 1], ["Move", "a", "mine", -1],
     ["Nonsense"], {"client": "alice"}, 7],
    ids=repr,
)  # fmt: skip
def test_what_is_no_message_is_refused(fields: object) -> None:
    """Fields are bounded by their types; the error names what is wrong."""
    with pytest.raises(ValueError, match="message of"):
        decode_message(msgspec.msgpack.encode(fields))
