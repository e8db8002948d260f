"""Every integer of every frame has a bound: the table of them all, each at its lowest and highest value and one beyond.

The table is made of the types, so a new field stands in it by itself; one without a bound fails `test_every_...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import msgspec
import pytest

from tests.core.wire.test_wire_frames import kind_of, payload_as
from tests.test_bytes import one
from veena.core.messages import kinds as messages
from veena.core.wire import codec as wire
from veena.core.wire import trace_facts as notes
from veena.core.wire.bounds import ANY, HIGHEST, Integer, Step, integers_of
from veena.core.wire.client import AskSubscribe
from veena.core.wire.control import Frame
from veena.core.wire.header import VERSION
from veena.errors import LocalProtocolError, RemoteProtocolError

FRAMES = list(wire.KINDS.values())
MESSAGES = list(get_args(messages.MESSAGES))
NOTES = list(get_args(notes.Note))
LOWEST = -(1 << 63)
NAMED = pytest.mark.parametrize("cls", FRAMES, ids=lambda cls: cls.__name__)

#: The only integers that may have all 64 bits, by the last of their names: numbers of frames, what chance drew, ids of
#: connections, and the incarnation and timestamp of an event's id or of a durable subscription. Stores keep such as
#: bits (`schema.signed`). Nobody adds to them, or who does stops at the top (`messages.kinds.MAX_VERSION`).
OF_64_BITS = {
    "ranges[][0]", "ranges[][1]", "missing[][0]", "missing[][1]", "numbers[][0]", "numbers[][1]", "up_to", "since",
    "nonce", "id", "incarnation", "timestamp", "ids[][1]", "ids[][2]", "event_id[1]", "event_id[2]", "had[][1]",
    "had[][3]", "runs[][0]", "version", "member", "keys[][1]", "keys[][2]", "connection", "closed[]", "key[1]",
    "key[2]", "first[1]", "first[2]",
}  # fmt: skip


def replaced(value: Any, steps: Sequence[Step], integer: int) -> Any:
    """A payload with this integer at the end of the steps; of lists the first element."""
    if not steps:
        return integer
    at = 0 if steps[0] is ANY else steps[0]
    return [*value[:at], replaced(value[at], steps[1:], integer), *value[at + 1 :]]


def payload_of(cls: type[Any]) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(one(cls)))


def refusal(cls: type[Frame], steps: Sequence[Step], value: int) -> str:
    """Why a broker refuses a frame with this value there; "" if it takes it."""
    told = ""
    try:
        wire.Decoder().feed(payload_as(kind_of(cls), replaced(payload_of(cls), steps, value)))
    except RemoteProtocolError as error:
        told = error.reply
    assert not told or told.startswith(f"{cls.__name__} of "), "the refusal names the frame"
    return told


def edges(integer: Integer) -> Iterator[tuple[int, bool]]:
    """Lowest and highest value, and one beyond each; msgpack has nothing beyond 2^64 - 1, nor below -2^63."""
    values = integer.allowed or (integer.low, HIGHEST if integer.high is None else integer.high)
    low, high = min(values), max(values)  # type: ignore[type-var]
    assert low is not None and high is not None
    yield from ((low, True), (high, True))
    if low > LOWEST:
        yield low - 1, False
    if high < HIGHEST:
        yield high + 1, False


@pytest.mark.parametrize("cls", [*FRAMES, *MESSAGES, *NOTES], ids=lambda cls: cls.__name__)
def test_every_integer_has_a_bound(cls: type[Any]) -> None:
    """SEC: a new field is found here by itself; 64 bits are for those alone that are stored as bits."""
    for integer in integers_of(cls):
        assert integer.allowed or integer.low is not None, f"{cls.__name__}.{integer.name}: give it a bound"
        if not integer.allowed and integer.high is None:
            last = integer.name.rpartition(".")[2]
            assert integer.low == 0 and last in OF_64_BITS, f"{cls.__name__}.{integer.name}: give it an upper bound"


def test_no_time_has_more_than_63_bits() -> None:
    """FLT-05: nanoseconds, offsets and limits go to SQLite, which stores 64 bits with a sign."""
    checked = 0
    for cls in (*FRAMES, *MESSAGES, *NOTES):
        for integer in integers_of(cls):
            if re.search(r"(_ns|_ms|offset|limit|start|end|\.stamp|gaps\[\]\[\d\])$", integer.name):
                assert integer.high is not None and integer.high < 1 << 63, f"{cls.__name__}.{integer.name}"
                checked += 1
    assert checked > 40, "the table has lost its times"


@NAMED
def test_every_integer_of_a_frame_at_its_edges(cls: type[Frame]) -> None:
    """The lowest and the highest value are within the bound; one beyond costs the connection, and says why."""
    for integer in integers_of(cls):
        for value, is_allowed in edges(integer):
            told = refusal(cls, integer.steps, value)
            # A rule between fields may refuse what the field's own bound allows.
            assert ("allowed are" in told) != is_allowed, (integer.name, value, told)
            if not is_allowed:
                assert f"{integer.name} is {value}, allowed are {integer.range}" in told


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_integer_of_a_message_at_its_edges(cls: type[messages.Message]) -> None:
    """What brokers write to each other inside events has bounds too: it crosses links of others."""
    for integer in integers_of(cls):
        for value, is_allowed in edges(integer):
            payload = replaced(payload_of(cls), integer.steps, value)
            told = ""
            try:
                messages.decode_message(msgspec.msgpack.encode(payload))
            except ValueError as error:
                told = str(error)
            assert (not told) == is_allowed, (integer.name, value, told)


def test_a_time_beyond_the_disk_is_refused_with_field_value_and_range() -> None:
    """One AskSubscribe with since_ns = 2^63 used to stop every durable delivery."""
    told = refusal(AskSubscribe, (9,), 1 << 63)
    assert f"since_ns is {1 << 63}, allowed are 0 to {(1 << 63) - 1}" in told and told.startswith("AskSubscribe of ")
    with pytest.raises(LocalProtocolError, match=f"since_ns is {1 << 63}, allowed are 0 to"):
        wire.encode(AskSubscribe(1, "topic", b"\xa1x", since_ns=1 << 63), 0, VERSION)


def test_a_long_payload_is_refused_in_fewer_words() -> None:
    """A peer cannot have a broker read half a megabyte twice for the sake of an error."""
    told = refusal(wire.KINDS[6], (), 0)
    assert told and "allowed are" not in told
    ranges = [[2 * at, 2 * at] for at in range(1000)] + [[-1, -1]]
    long = payload_as(6, [ranges, [b"x" * 80] * 1001])
    with pytest.raises(RemoteProtocolError, match=">= 0") as caught:
        wire.Decoder().feed(long)
    assert "allowed are" not in caught.value.reply
