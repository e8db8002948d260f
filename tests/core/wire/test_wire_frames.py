"""Control frames over the wire: every kind there and back, and every bound at its edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from veena.core.wire import client as client_frames
from veena.core.wire import codec as wire
from veena.core.wire import control as frames
from veena.core.wire import discovery as discovery_frames
from veena.core.wire import explain as ask_frames
from veena.core.wire import interest as interest_frames
from veena.core.wire import locator as locator_frames
from veena.core.wire import log_tables as log_frames
from veena.core.wire import membership as setup_frames
from veena.core.wire import signatures as signature_frames
from veena.core.wire import staging as stage_frames
from veena.core.wire.client import ClientHello, ClientWelcome, Places
from veena.core.wire.control import (
    AntiEvent,
    ConnectionRecord,
    Connections,
    Done,
    Frame,
    Hello,
    Open,
    Received,
    Refused,
)
from veena.core.wire.header import EVENT, HEADER, HEADER_SIZE, MAX_CONTROL_FRAME, VERSION
from veena.errors import LocalProtocolError, RemoteProtocolError

#: Collections in generated frames; the bounds themselves have tests of their own.
MANY = 5
U64_MAX = (1 << 64) - 1

HELLO = Hello(VERSION, VERSION, "ges-22", 4, 32, (0, 1, 2, 6), 3, 7, 1000, ("tcp://127.0.0.1:7700",))
RECORD = ConnectionRecord(U64_MAX, 1, (0, 1, 2, 6), (0, 1, 3), True, (5, 3), (0, 0))


def strategy_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a type as msgspec sees it, bounds included."""
    match kind:
        case inspect.IntType():
            low = 0 if kind.ge is None else kind.ge
            return st.integers(low, U64_MAX if kind.le is None else kind.le)
        case inspect.StrType():
            return st.text(min_size=kind.min_length or 0, max_size=min(kind.max_length or MANY, 20))
        case inspect.BytesType():
            return st.binary(min_size=kind.min_length or 0, max_size=max(MANY, kind.min_length or 0))
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.UnionType():
            return st.one_of(*map(strategy_of, kind.types))
        case inspect.LiteralType():
            return st.sampled_from(list(kind.values))
        case inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case inspect.TupleType():
            return st.tuples(*map(strategy_of, kind.item_types))
        case inspect.VarTupleType():
            longest = min(kind.max_length or MANY, MANY)
            return st.lists(strategy_of(kind.item_type), min_size=kind.min_length or 0, max_size=longest).map(tuple)
        case inspect.StructType():
            return struct_strategy(kind.cls)
    raise AssertionError(f"no strategy for {kind}")


def struct_strategy(cls: type[Any]) -> st.SearchStrategy[Any]:
    kind = inspect.type_info(cls)
    assert isinstance(kind, inspect.StructType)
    fields = st.fixed_dictionaries({field.name: strategy_of(field.type) for field in kind.fields})
    repair = REPAIRS.get(cls)
    return fields.map(lambda values: cls(**(values if repair is None else repair(values))))


def ascending(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    ends = sorted({end for item in ranges for end in item})
    return tuple(zip(ends[::2], ends[1::2], strict=False))


def repaired_hello(values: dict[str, Any]) -> dict[str, Any]:
    return repaired_address(repaired_versions(values))


def repaired_versions(values: dict[str, Any]) -> dict[str, Any]:
    low, high = sorted((values["version_low"], values["version_high"]))
    return {**values, "version_low": low, "version_high": high}


def repaired_address(values: dict[str, Any]) -> dict[str, Any]:
    address = (values["address"] * values["levels"])[: values["levels"]]
    return {**values, "address": tuple(part % values["fanout"] for part in address)}


def repaired_places(values: dict[str, Any]) -> dict[str, Any]:
    """Runs of at most a hundred events."""
    runs = tuple((stamp, first, min(first + last % 100, (1 << 32) - 1)) for stamp, first, last in values["runs"])
    return {**values, "runs": runs}


def repaired_done(values: dict[str, Any]) -> dict[str, Any]:
    ranges = ascending(values["ranges"])
    vectors = [
        (int.from_bytes(vector, "little") & ((1 << min(last - first + 1, 40)) - 1)).to_bytes(5, "little")
        for (first, last), vector in zip(ranges, values["exceptions"], strict=False)
    ]
    return {"ranges": ranges, "exceptions": tuple(vectors) if len(vectors) == len(ranges) else ()}


def repaired_received(values: dict[str, Any]) -> dict[str, Any]:
    missing = ascending(values["missing"])
    return {"up_to": max([values["up_to"], *(last for _, last in missing)]), "missing": missing}


#: Rules between fields, which the types do not hold.
REPAIRS: dict[type[Any], Callable[[dict[str, Any]], dict[str, Any]]] = {
    Hello: repaired_hello,
    Done: repaired_done,
    Received: repaired_received,
    AntiEvent: lambda values: {**values, "numbers": ascending(values["numbers"])},
    ClientHello: repaired_versions,
    ClientWelcome: repaired_address,
    Places: repaired_places,
}

EVERY_KIND = pytest.mark.parametrize("cls", list(wire.KINDS.values()), ids=lambda cls: cls.__name__)


def decode_one(data: bytes) -> tuple[int, object]:
    (numbered,) = wire.Decoder().feed(data)
    return numbered


def payload_as(kind: int, payload: object) -> bytes:
    data = msgspec.msgpack.encode(payload)
    return HEADER.pack(HEADER_SIZE + len(data), VERSION, kind, 0, 1) + data


def kind_of(cls: type[Frame]) -> int:
    return next(kind for kind, frame in wire.KINDS.items() if frame is cls)


@EVERY_KIND
def test_every_kind_round_trips(cls: type[Frame]) -> None:
    """IOP-08, GPP-20, NOP-06: what is sent is what arrives, for every registered kind."""

    @settings(max_examples=60)
    @given(struct_strategy(cls), st.integers(0, U64_MAX))
    def check(frame: Frame, number: int) -> None:
        assert decode_one(wire.encode(frame, number)) == (number, frame)
        assert wire.decode_datagram(wire.encode(frame, number)) == (number, frame)

    check()


def test_every_frame_has_a_kind() -> None:
    """Adding a frame without registering it fails here, not on a live link."""
    declared = [
        value
        for module in (
            frames,
            setup_frames,
            interest_frames,
            discovery_frames,
            client_frames,
            ask_frames,
            locator_frames,
            log_frames,
            stage_frames,
            signature_frames,
        )
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Frame) and value is not Frame
    ]
    assert sorted({cls.__name__ for cls in declared}) == sorted(cls.__name__ for cls in wire.KINDS.values())
    assert EVENT not in wire.KINDS and 0 not in wire.KINDS and max(wire.KINDS) <= 255


@EVERY_KIND
def test_appended_fields_are_ignored(cls: type[Frame]) -> None:
    """Two adjacent versions work together: an old reader skips what a newer writer appends."""

    @settings(max_examples=5)
    @given(struct_strategy(cls))
    def check(frame: Frame) -> None:
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(frame))
        assert decode_one(payload_as(kind_of(cls), [*fields, {"new": [1, 2]}, None])) == (1, frame)

    check()


def test_fields_with_defaults_may_be_left_out() -> None:
    """The other half of the rule: a newer reader fills in what an older writer did not know."""
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(HELLO))
    _, hello = decode_one(payload_as(1, fields[:-4]))
    assert isinstance(hello, Hello) and (hello.listen, hello.name, hello.bursts, hello.grant) == ((), "", False, b"")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (0, 0, ">= 1"),
        (0, VERSION + 1, "above version_high"),
        (1, 256, "<= 255"),
        (2, "", "length >= 1"),
        (2, "n" * 65, "length <= 64"),
        (3, 5, "5 levels"),
        (3, 9, "<= 8"),
        (4, 33, "33"),
        (5, [0, 1, 2], "3 parts"),
        (5, [0, 1, 2, 32], "fan-out of 32"),
        (5, [0, 1, 2, 64], "<= 63 - at `address[3]`"),
        (5, [], "length >= 1"),
        (5, [0] * 9, "length <= 8"),
        (6, -1, ">= 0"),
        (7, 1.5, "float"),
        (8, 0, ">= 1"),
        (8, 3_600_001, "<= 3600000"),
        (9, [""], "length >= 1"),
        (9, ["u" * 256], "length <= 255"),
        (9, ["u"] * 17, "length <= 16"),
        (9, "tcp://x", "array"),
        (2, None, "at `network`"),
    ],
)
def test_a_hello_out_of_bounds_is_refused(field: int, value: object, expected: str) -> None:
    """A bad field is named to the peer and costs it the connection."""
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(HELLO))
    fields[field] = value
    with pytest.raises(RemoteProtocolError, match="Hello of") as caught:
        wire.Decoder().feed(payload_as(1, fields))
    assert expected in caught.value.reply


LIMITS: list[tuple[Callable[[int], Frame], int]] = [
    (lambda n: Connections((RECORD,) * n, True), frames.MAX_RECORDS),
    (lambda n: Refused(((63,) * 8,) * n), frames.MAX_UNITS),
    (lambda n: Open(((63,) * 8,) * n), frames.MAX_UNITS),
    (lambda n: Received(U64_MAX, tuple((U64_MAX - 2 * i, U64_MAX - 2 * i) for i in reversed(range(n)))), 1024),
    (lambda n: Done(tuple((U64_MAX - 2 * i, U64_MAX - 2 * i) for i in reversed(range(n)))), frames.MAX_RANGES),
    (lambda n: Done(((0, U64_MAX),), (b"\xff" * n,)), frames.MAX_VECTOR),
    (lambda n: AntiEvent((), (("\U0001f600" * 255, U64_MAX, U64_MAX, (1 << 32) - 1),) * n), frames.MAX_IDS),
    (lambda n: frames.Goodbye("\U0001f600" * n), frames.MAX_REASON),
]


@pytest.mark.parametrize(("build", "limit"), LIMITS, ids=lambda value: str(value) if isinstance(value, int) else "of")
def test_bounds_hold_at_their_edge(build: Callable[[int], Frame], limit: int) -> None:
    """The largest frame is within the limit of control frames; one more is refused on both sides."""
    data = wire.encode(build(limit), 1)
    assert len(data) <= MAX_CONTROL_FRAME
    assert decode_one(data) == (1, build(limit))
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        wire.encode(build(limit + 1), 1)
    kind = kind_of(type(build(1)))
    with pytest.raises(RemoteProtocolError):
        wire.Decoder().feed(payload_as(kind, msgspec.msgpack.decode(msgspec.msgpack.encode(build(limit + 1)))))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (5, [10, [[3, 2]]]),
        (5, [10, [[1, 4], [4, 5]]]),
        (5, [10, [[9, 11]]]),
        (6, [[[5, 6], [1, 2]]]),
        (6, [[[5, 6]], [b"", b""]]),
        (6, [[[5, 6]], [b"\x04"]]),
        (6, [[[i * 100_000, i * 100_000 + 99_999] for i in range(5)], [b"\xff" * 8192] * 5]),
        (9, [[[2, 1]]]),
        (2, [[[1, 8, [0], [1], True, [0, 0], [0, 0]]], True]),
        (2, [[[1, 1, [0], [1], 1, [0, 0], [0, 0]]], True]),
        (2, [[[1, 1, [0], [1], True, [0, 4], [0, 0]]], True]),
        (2, [[[1, 1, [0], [1], True, [0, 0, 0], [0, 0]]], True]),
        (7, [[]]),
        (7, [[[]]]),
    ],
)
def test_rules_between_fields_are_checked(kind: int, payload: object) -> None:
    with pytest.raises(RemoteProtocolError, match=wire.KINDS[kind].__name__):
        wire.Decoder().feed(payload_as(kind, payload))


def test_what_a_peer_would_refuse_is_not_sent() -> None:
    """The mistake is reported where it was made, not as a lost link on the other side."""
    with pytest.raises(LocalProtocolError, match="Goodbye number 1 cannot be sent"):
        wire.encode(frames.Goodbye("x" * 2000), 1)
    with pytest.raises(LocalProtocolError, match="surrogates"):
        wire.encode(frames.Goodbye("\ud800"), 1)
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        wire.encode(HELLO, 1 << 64)
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        wire.encode(frames.Heartbeat(1 << 64, 0), 1)
    with pytest.raises(LocalProtocolError, match="add it to KINDS"):
        wire.encode(Frame(), 1)


@settings(max_examples=150)
@given(st.sets(st.integers(0, 400) | st.integers(0, 20_000) | st.integers(0, U64_MAX), max_size=80))
def test_done_acknowledges_exactly_the_given_numbers(numbers: set[int]) -> None:
    """Ranges with exception vectors say the same as the list of numbers."""
    ordered = sorted(numbers)
    acknowledgements = frames.done(ordered)
    probes = {near for number in ordered for near in (number - 1, number, number + 1)} | {0, U64_MAX}
    for probe in sorted(probes):
        assert any(done.contains(probe) for done in acknowledgements) == (probe in numbers)
    for done in acknowledgements:
        assert decode_one(wire.encode(done, 1)) == (1, done)


def test_done_splits_what_one_frame_cannot_hold() -> None:
    """At most MAX_RANGES ranges and MAX_VECTORS bytes of exceptions a frame, and nothing is left out."""
    for numbers in (range(0, 300_000, 100), range(0, 600_000, 2)):
        acknowledgements = frames.done(numbers)
        assert len(acknowledgements) > 1
        assert all(decode_one(wire.encode(done, 1)) == (1, done) for done in acknowledgements)
        assert all(any(done.contains(n) for done in acknowledgements) == (n in numbers) for n in range(9000))
        assert any(done.contains(numbers[-1]) for done in acknowledgements)
    assert frames.done([]) == []
    assert frames.done(range(1, 1001)) == [Done(((1, 1000),))]


@pytest.mark.parametrize(
    ("mine", "theirs", "agreed"), [((1, 1), (1, 1), 1), ((1, 2), (2, 3), 2), ((2, 3), (1, 2), 2), ((1, 2), (2, 2), 2)]
)
def test_adjacent_versions_agree(mine: tuple[int, int], theirs: tuple[int, int], agreed: int) -> None:
    """Both use the lower of the two high versions."""
    one, other = (msgspec.structs.replace(HELLO, version_low=low, version_high=high) for low, high in (mine, theirs))
    assert wire.agreed_version(one, other) == wire.agreed_version(other, one) == agreed


def test_versions_too_far_apart_do_not_agree() -> None:
    old, new = (msgspec.structs.replace(HELLO, version_low=low, version_high=low + 1) for low in (1, 3))
    for one, other in ((old, new), (new, old)):
        with pytest.raises(RemoteProtocolError, match="upgrade the older one"):
            wire.agreed_version(one, other)
