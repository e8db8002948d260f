"""The matching section of an event frame: everything of an event that an engine may look at, and nothing else.

It is made once, where the event is published, and read only where somebody matches; a relay passes it on unread. A
fixed part comes first: which fields are there, the time of publication, and the integer topic in exactly four bytes
(MAT-40). The rest is one msgpack array, read by C code with the bounds in its types. Maps keep their order (EVT-04).

msgpack has one gap, integers beyond 64 bits; they are an extension type. Bytes are another one, because "text or bytes"
is no type that can be checked while reading; a check afterwards would first build whatever a hostile sender nested.

The invariant: `decode(encode(event))` has equal fields in equal order, with the type of every value kept (EVT-03). A
section that cannot be read is an InvalidEvent, the fault of its publisher; the relay that handed it on stays linked.

Rejected: a layout of our own for the attributes (a loop in Python for each of them); JSON (no bytes, no NaN, and large
integers are at the mercy of the reader).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.msgpack import Ext

from veena.core.wire.control import U32, U64, ClientId
from veena.core.wire.header import DECODE_ERRORS, explain
from veena.errors import InvalidEvent
from veena.event import Event, Value
from veena.matching.simple.topic import MAX_TOPIC_LENGTH

#: Names of tags, properties and headers.
MAX_NAME_LENGTH = 255
MAX_TAGS = 256
MAX_PROPERTIES = 1024
MAX_HEADERS = 256
#: Client ids in an event's own list of destinations; for more, publish to a topic.
MAX_TO = 4096
#: An integer of 8,192 bits: any key or count, and still quick to compare and print.
MAX_INTEGER_BYTES = 1024

#: Extension types inside the section.
BYTES = 1
INTEGER = 2

_HAS_INTEGER = 1
#: fields present, time of publication in nanoseconds since 1970.
_FIXED = struct.Struct(">Bq")
_FIXED_WITH_INTEGER = struct.Struct(">BqI")
#: Where a section has the time of publication: two events may differ in it and still be for the same receivers.
TIME_OFFSET = 1
TIME_SIZE = 8

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
WireValue = bool | int | float | str | Ext | None
#: (incarnation, timestamp, sequence) under which a roaming publisher sent the same event before.
Original = tuple[U64, U64, U32]


class _Fields(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Later versions append here, with a default."""

    topic: Annotated[str, Meta(max_length=MAX_TOPIC_LENGTH)] | None
    tags: Annotated[dict[Name, str], Meta(max_length=MAX_TAGS)] | None
    xml: str | Ext | None
    properties: Annotated[dict[Name, WireValue], Meta(max_length=MAX_PROPERTIES)]
    headers: Annotated[dict[Name, WireValue], Meta(max_length=MAX_HEADERS)]
    to: Annotated[tuple[ClientId, ...], Meta(max_length=MAX_TO)]
    original: Original | None = None


class Section(NamedTuple):
    """A matching section that has been read."""

    timestamp_ns: int
    integer: int | None
    topic: str | None
    tags: Mapping[str, str] | None
    xml: str | bytes | None
    properties: dict[str, Value]
    headers: dict[str, Value]
    to: tuple[str, ...]
    original: Original | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Fields)

#: Types that need no look at the value.
_PLAIN = frozenset({bool, float, str, type(None)})
#: The same, and integers, of which only large ones need one.
_PLAIN_OR_INTEGER = _PLAIN | {int}
_TEXT = frozenset({str})
_INT64_MIN = -(1 << 63)
_UINT64_MAX = (1 << 64) - 1


def encode_section(event: Event, original: Original | None = None) -> bytes:
    """The bytes of everything that engines see; raise InvalidEvent for what must not be published."""
    data = encode_fields(event, original)
    try:
        if event.integer is None:
            return _FIXED.pack(0, event.timestamp_ns) + data
        return _FIXED_WITH_INTEGER.pack(_HAS_INTEGER, event.timestamp_ns, event.integer) + data
    except struct.error:
        raise fault_of_time(event) from None


def fault_of_time(event: Event) -> InvalidEvent:
    return InvalidEvent(f"timestamp_ns {event.timestamp_ns}: expected nanoseconds that fit 64 bits")


def encode_fields(event: Event, original: Original | None = None) -> bytes:
    """The same behind the fixed part: everything but time and integer."""
    topic, tags, xml, headers = event.topic, event.tags, event.xml, event.headers
    if (topic is None or type(topic) is str) and (xml is None or type(xml) is str) and not event.to:
        properties = event.properties
        # What has plain values and text as names needs no extension, and what is short keeps every bound by being so.
        if _is_plain(properties) and (not headers or _is_plain(headers)) and (tags is None or _is_text(tags)):
            try:
                data = _encoder.encode((topic, tags, xml, properties, headers, (), original))
            except (TypeError, OverflowError, ValueError):
                return _checked_fields(event, original)
            if len(data) - (len(xml) if xml else 0) <= MAX_NAME_LENGTH:
                return data
    return _checked_fields(event, original)


def _is_plain(values: Mapping[str, Value]) -> bool:
    """Whether msgpack has every value, as far as that can be told by its type."""
    return type(values) is dict and (
        not values or (_PLAIN_OR_INTEGER.issuperset(map(type, values.values())) and _has_names(values))
    )


def _is_text(tags: Mapping[str, str] | str) -> bool:
    return type(tags) is dict and _TEXT.issuperset(map(type, tags.values())) and _has_names(tags)


def _has_names(values: Mapping[str, object]) -> bool:
    return _TEXT.issuperset(map(type, values)) and "" not in values


def _checked_fields(event: Event, original: Original | None) -> bytes:
    tags = event.tags
    assert not isinstance(tags, str), "an Event holds its tags as a mapping"
    fields = _Fields(
        event.topic,
        None if tags is None else dict(tags),
        Ext(BYTES, event.xml) if isinstance(event.xml, bytes) else event.xml,
        _outward("property", event.properties),
        _outward("header", event.headers),
        tuple(event.to),
        original,
    )
    try:
        data = _encoder.encode(fields)
        # The types hold the bounds; reading it back is the one check that cannot differ from the receiver's.
        _decoder.decode(data)
    except (*DECODE_ERRORS, TypeError, OverflowError) as error:
        raise InvalidEvent(_explain(event, error)) from None
    return data


def decode_section(data: bytes | memoryview) -> Section:
    """Read a section; raise InvalidEvent when it is none."""
    integer: int | None = None
    try:
        present, timestamp_ns = _FIXED.unpack_from(data)
        offset = _FIXED.size
        if present == _HAS_INTEGER:
            _, _, integer = _FIXED_WITH_INTEGER.unpack_from(data)
            offset = _FIXED_WITH_INTEGER.size
        elif present:
            raise ValueError(f"unknown fields {present:#x}")
        fields = _decoder.decode(data[offset:])
        xml = fields.xml
        return Section(
            timestamp_ns,
            integer,
            fields.topic,
            fields.tags,
            _document(xml) if isinstance(xml, Ext) else xml,
            _inward(fields.properties),
            _inward(fields.headers),
            fields.to,
            fields.original,
        )
    except (*DECODE_ERRORS, struct.error) as error:
        raise InvalidEvent(f"matching section of {len(data)} bytes: {explain(error, _Fields)}") from None


def _outward(kind: str, values: Mapping[str, Value]) -> dict[str, WireValue]:
    return {
        name: value if type(value) in _PLAIN else _extended(kind, name, value)  # type: ignore[misc]
        for name, value in values.items()
    }


def _extended(kind: str, name: str, value: object) -> WireValue:
    """A value that msgpack may not have, or of a subclass of what it has."""
    if isinstance(value, int):
        value = int(value)
        if _INT64_MIN <= value <= _UINT64_MAX:
            return value
        size = (value + (value < 0)).bit_length() // 8 + 1  # two's complement with its sign bit
        if size > MAX_INTEGER_BYTES:
            raise InvalidEvent(
                f"{kind} {name[:80]!r}: an integer of {size} bytes; at most {MAX_INTEGER_BYTES} are allowed"
            )
        return Ext(INTEGER, value.to_bytes(size, "big", signed=True))
    if isinstance(value, bytes | bytearray | memoryview):
        return Ext(BYTES, bytes(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    raise InvalidEvent(
        f"{kind} {name!r} is {value!r:.80}, a {type(value).__name__}:"
        " convert it to one of bool, int, float, str, bytes, None"
    )


def _inward(values: dict[str, WireValue]) -> dict[str, Value]:
    if Ext in map(type, values.values()):
        for name, value in values.items():
            if isinstance(value, Ext):
                values[name] = _plain(value)  # type: ignore[assignment]
    return values  # type: ignore[return-value]


def _plain(value: Ext) -> int | bytes:
    data = bytes(value.data)
    if value.code == BYTES:
        return data
    if value.code == INTEGER and 0 < len(data) <= MAX_INTEGER_BYTES:
        return int.from_bytes(data, "big", signed=True)
    raise ValueError(f"extension type {value.code} of {len(data)} bytes is no value")


def _document(value: Ext) -> bytes:
    if value.code != BYTES:
        raise ValueError(f"xml of extension type {value.code}")
    return bytes(value.data)


def _explain(event: Event, error: Exception) -> str:
    """Name the field that cannot be sent; only reached when something is wrong."""
    fields: list[tuple[str, object]] = [("topic", event.topic), ("xml", event.xml)]
    fields += [(f"to[{index}]", client) for index, client in enumerate(event.to)]
    for kind, values in (("tag", event.tag_values), ("property", event.properties), ("header", event.headers)):
        for name, value in values.items():
            fields += [(f"name of {kind} {name!r}", name), (f"{kind} {name!r}", value)]
    for label, text in fields:
        if isinstance(text, str):
            try:
                text.encode()
            except UnicodeEncodeError as bad:
                return (
                    f"{label}: the character at position {bad.start} is half of a surrogate pair, which no text holds;"
                    f" send such data as bytes"
                )
    return f"event: {explain(error, _Fields)}"
