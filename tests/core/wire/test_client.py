"""The frames of a conversation: they read back, keep their bounds, and cost a hostile sender its own bytes only."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.core.wire import client as client_frames
from veena.core.wire import codec as wire
from veena.core.wire.client import (
    MAX_SHOWN,
    Acknowledged,
    AskAdvertise,
    AskQuery,
    AskSubscribe,
    ClientHello,
    ClientWelcome,
    Farewell,
    FoundRow,
    Matched,
    Places,
    TellAccepted,
    TellAdvertRefused,
    TellAnswer,
    TellDenied,
    TellRedirect,
    TellRefused,
    TellUnanswered,
    runs_of,
    show,
    shown,
)
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame
from veena.core.wire.event_id import Place, Stream
from veena.core.wire.header import HEADER, HEADER_SIZE, VERSION
from veena.errors import LocalProtocolError, RefusalCode, RemoteProtocolError

EXAMPLES: list[Frame] = [
    ClientHello(
        1, 1, "alice", "user", "secret", had=(("bob", 1, 4, 5, 6),), skips=(Places("bob", 1, 4, ((5, 1, 9),)),)
    ),
    ClientWelcome(1, 7, "~0.0.0.0/!ab", "veena", 4, 32, 1 << 20, (0, 0, 0, 1), "b1"),
    AskSubscribe(1, "selector", b"\x92\xa1q\xa5a > 1", 0, "name", "manual", home=(0, 0, 0, 1), since_ns=5),
    Acknowledged(1, (("alice", 1, 2, 3),)),
    AskAdvertise("printer", 1, b"\x80", b"<a/>", True),
    AskQuery(1, "sql", "SELECT * FROM adverts", 4, namespaces=(("a", "urn:a"),)),
    AskQuery(1, "constraint", "name == 'oil'", 4, columns=("name", "network"), limit=10),
    TellAccepted(((1, 0, 999), (2, 0, 0))),
    Matched((1, 2, 3)),
    Matched(()),
    TellAnswer(1, ("a",), (FoundRow("c", "n", (0, 0, 0, 1), b"\x91\x01"),), True),
    TellRedirect(("veena://10.0.0.1:7700",), "drain"),
    Farewell(RefusalCode.DENIED, "no"),
]


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda frame: type(frame).__name__)
def test_frames_read_back(frame: Frame) -> None:
    """IOP-08: one array each, in the kinds 64 to 95."""
    data = encode(frame, 0)
    assert Decoder().feed(data) == [(0, frame)]
    assert 64 <= data[5] <= 95


def test_every_frame_of_the_module_has_a_kind() -> None:
    found = {
        each
        for each in vars(client_frames).values()
        if isinstance(each, type) and issubclass(each, Frame) and each.__module__ == client_frames.__name__
    }
    assert found == {frame for kind, frame in wire.KINDS.items() if 64 <= kind <= 91 or kind == 117}


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (ClientHello, (1, 1, ""), "client_id"),
        (ClientHello, (1, 1, "a", "", "", "", (), (), False, (), "drop", 60_001), "heartbeat_ms"),
        (ClientHello, (1, 1, "a", "", "", "", (), (), False, (("a", "b"),) * 33), "attributes"),
        (ClientHello, (1, 1, "a", "", "", "", (), (), False, (), "never"), "slow"),
        (AskSubscribe, (1, "", b"x"), "engine"),
        (AskSubscribe, (1, "topic", bytes(30_000)), "constraint"),
        (AskSubscribe, (1 << 32, "topic", b"x"), "subscription"),
        (AskSubscribe, (1, "topic", b"x", 9), "scope"),
        (TellRedirect, ((),), "urls"),
        (Farewell, ("because",), "why"),
    ],
)
def test_bounds_are_kept_by_both_sides(kind: type[Frame], fields: tuple[object, ...], message: str) -> None:
    """FLT-09: what must not be sent is not, and from others it is refused with the name of the field."""
    with pytest.raises(LocalProtocolError, match=message):
        encode(kind(*fields), 0)
    with pytest.raises(RemoteProtocolError, match=message):
        Decoder().feed(raw(kind, fields))


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (ClientHello, (2, 1, "a"), "version_low 2 is above version_high 1"),
        (ClientHello, (1, 1, "a", "", "", "", (), (("p", 1, 0, ((1, 1, MAX_SHOWN),)),) * 2), "shown one by one"),
        (ClientWelcome, (1, 1, "r", "n", 4, 32, 1, (0, 0, 0)), "does not fit"),
        (ClientWelcome, (1, 1, "r", "n", 2, 32, 1, (0, 40)), "does not fit"),
    ],
)
def test_rules_between_fields_are_kept(kind: type[Frame], fields: tuple[object, ...], message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        Decoder().feed(raw(kind, fields))


def raw(kind: type[Frame], fields: tuple[object, ...]) -> bytes:
    number = next(number for number, each in wire.KINDS.items() if each is kind)
    payload = msgspec.msgpack.encode(fields)
    return HEADER.pack(HEADER_SIZE + len(payload), VERSION, number, 0, 0) + payload


def test_runs_that_claim_too_much_are_refused_before_they_are_counted_out() -> None:
    """A frame of thirty bytes must not become four billion places."""
    for runs in (((1, 0, (1 << 32) - 1),), ((1, 5, 4),)):
        with pytest.raises(ValueError, match=r"runs of more than|ends before it begins"):
            Places("p", 1, 0, runs)


@pytest.mark.parametrize("code", ["sometime", "", "BUSY", 1, None])
def test_a_code_that_nobody_knows_is_a_fault(code: object) -> None:
    """Both sides speak one version, so a peer with a code of its own breaks the rules; nobody guesses what it means."""
    for kind, fields in (
        (TellRefused, (1, code, "no")),
        (TellDenied, (1, 1, code, "no")),
        (TellAdvertRefused, ("a", code, "no")),
        (TellUnanswered, (1, 0, code, "no")),
        (Farewell, (code, "no")),
    ):
        with pytest.raises(RemoteProtocolError, match="why"):
            Decoder().feed(raw(kind, fields))


def test_the_words_of_the_codes_stay() -> None:
    """They are on the wire, in JSON and in programs of users."""
    assert [str(code) for code in RefusalCode] == [
        "denied", "invalid", "limit", "work", "busy", "starting", "store", "moved", "unwanted", "expired", "protocol",
        "slow", "closing", "quarantined", "clock", "bye",
    ]  # fmt: skip


def test_a_hello_of_any_version_can_be_read() -> None:
    """A client of the future is told what this side speaks."""
    data = bytearray(encode(ClientHello(7, 9, "future"), 0))
    data[4] = 9
    ((_, hello),) = Decoder().feed(bytes(data))
    assert hello == ClientHello(7, 9, "future")


places = st.tuples(st.integers(0, 3), st.integers(0, 40))
events = st.tuples(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 5)), places)


@settings(max_examples=100)
@given(st.sets(events, max_size=300))
def test_events_shown_are_the_events_that_were_had(had: set[tuple[Stream, Place]]) -> None:
    found = show(sorted(had))
    assert set(shown(found)) == had and sum(1 for _ in shown(found)) == len(had)
    assert Decoder().feed(encode(ClientHello(1, 1, "a", skips=found), 0)) == [(0, ClientHello(1, 1, "a", skips=found))]


@settings(max_examples=100)
@given(st.sets(places, max_size=200))
def test_runs_are_as_few_as_can_be(had: set[Place]) -> None:
    runs = runs_of(sorted(had))
    assert [(stamp, number) for stamp, first, last in runs for number in range(first, last + 1)] == sorted(had)
    assert len(runs) == sum((stamp, number - 1) not in had for stamp, number in had)


@settings(max_examples=300)
@given(st.integers(64, 95), st.binary(max_size=200))
def test_random_payloads_are_frames_or_faults(kind: int, payload: bytes) -> None:
    """FLT-09: nothing but RemoteProtocolError, whatever comes."""
    data = HEADER.pack(16 + len(payload), 1, kind, 0, 0) + payload
    found: object = None
    with suppress(RemoteProtocolError):
        ((_, found),) = Decoder().feed(data)
    assert found is None or type(found) is wire.KINDS[kind]
