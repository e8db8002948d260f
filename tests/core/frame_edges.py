"""Every kind of frame with every field at its edges, as a hostile broker would write it.

Values come from the types that the wire format declares: the least and the greatest number, the shortest and the
longest text, no item, one, and one twice. Paths are those that mean something to the broker under attack: itself, its
units up to the highest, its neighbour, brokers that nobody knows, and paths that no network of this shape has.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

from veena.address import Address, Unit
from veena.core.wire.codec import KINDS, disclose
from veena.core.wire.control import Frame, Routed, UnitPath
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.interest import MAX_COUNT
from veena.core.wire.membership import PathOrNone
from veena.errors import RemoteProtocolError
from veena.event import Event, EventId

#: The longest text or bytes that are written here: bounds beyond that have tests of their own.
LONG = 300
#: Numbers that mean something: beside the bounds of their type, what people forget.
NUMBERS = (0, 1, 2, 1000, MAX_COUNT, MAX_COUNT + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
PAYLOADS = (b"", b"\x00", b"\xc0", b"\xa6quotes", b"\x05", b"\xc1", b"\x80", b"\x81\xa1p\x05", b"x" * 16)
_PATHS = (inspect.type_info(UnitPath), inspect.type_info(PathOrNone))


class Edges:
    """Values of the fields of frames, for a broker at `host` with a `neighbour`."""

    def __init__(self, host: Address, neighbour: Address) -> None:
        levels = len(host)
        beyond: list[Unit] = [host[:size] for size in range(1, levels)]
        beyond += [(*host[:-1], 31), (*host[:-1], 63), (5,) * levels, (63,) * levels, (5,), (31,), (*host, 0), (0,) * 8]
        self.paths = [host, neighbour, *beyond]

    def of(self, kind: inspect.Type) -> list[Any]:
        """All edges of a type, the plainest first."""
        if kind in _PATHS:
            return [*self.paths, *([()] if kind == _PATHS[1] else [])]
        match kind:
            case inspect.IntType():
                low = 0 if kind.ge is None else kind.ge
                high = (1 << 64) - 1 if kind.le is None else kind.le
                return list(dict.fromkeys([low, high, *(each for each in NUMBERS if low <= each <= high)]))
            case inspect.StrType():
                found = ["x", "*", "y" * min(kind.max_length or LONG, LONG), "topic"]
                return found + ([] if kind.min_length else [""])
            case inspect.BytesType():
                longest = kind.max_length or LONG
                return [each for each in PAYLOADS if (kind.min_length or 0) <= len(each) <= longest]
            case inspect.BoolType():
                return [False, True]
            case inspect.LiteralType():
                return list(kind.values)
            case inspect.EnumType():
                return list(kind.cls)[:2]
            case inspect.TupleType():
                columns = [self.of(each) for each in kind.item_types]
                return list(self._one_at_a_time(columns))
            case inspect.VarTupleType():
                items = self.of(kind.item_type)
                lists = [[], *([each] for each in items), *([each, each] for each in items[:4]), items[:6]]
                return [each for each in lists if (kind.min_length or 0) <= len(each) <= (kind.max_length or len(each))]
            case inspect.DictType():
                return [{}, {"x": "y"}]
            case inspect.UnionType():
                return [value for each in kind.types for value in self.of(each)]
            case inspect.NoneType():
                return [None]
            case inspect.StructType():
                return list(self.rows(kind.cls))
        raise AssertionError(f"no edges for {kind}")

    def rows(self, cls: type[Any]) -> Iterator[list[Any]]:
        """A struct as arrays of its fields, one of them at an edge."""
        return self._one_at_a_time(self._columns(cls))

    def _columns(self, cls: type[Any]) -> list[list[Any]]:
        kind = inspect.type_info(cls)
        assert isinstance(kind, inspect.StructType)
        return [self.of(field.type) for field in kind.fields]

    @staticmethod
    def _one_at_a_time(columns: list[list[Any]]) -> Iterator[list[Any]]:
        plain = [values[0] for values in columns]
        yield plain
        for at, values in enumerate(columns):
            for value in values[1:]:
                yield [*plain[:at], value, *plain[at + 1 :]]

    def frames(self, cls: type[Frame]) -> list[Frame]:
        """The frames of one kind that the decoder lets through, one field at an edge."""
        return _readable(cls, self.rows(cls))

    def drawn(self, cls: type[Frame], chance: Random, count: int) -> list[Frame]:
        """Frames of one kind with every field at an edge that chance chooses."""
        columns = self._columns(cls)
        return _readable(cls, ([chance.choice(values) for values in columns] for _ in range(count)))

    def routed(self, frame: Frame) -> Iterator[Routed]:
        """The frame on its way to this broker, from everywhere that an origin can name."""
        kind, payload = next(key for key, cls in KINDS.items() if cls is type(frame)), msgspec.msgpack.encode(frame)
        host, neighbour = self.paths[:2]
        for to, origin in ((host, neighbour), (host[:1], host), (host[:-1], (5,) * len(host))):
            yield Routed(to, origin, 3, kind, payload)


def _readable(cls: type[Frame], rows: Iterator[list[Any]]) -> list[Frame]:
    kind = next(key for key, each in KINDS.items() if each is cls)
    found: list[Frame] = []
    for row in rows:
        payload = msgspec.msgpack.encode(row)
        try:
            found.append(_decoded(kind, payload))
        except RemoteProtocolError:
            continue
    return found


def _decoded(kind: int, payload: bytes) -> Frame:
    if KINDS[kind] is not Routed:
        return disclose(kind, payload)
    try:
        return msgspec.msgpack.decode(payload, type=Routed)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RemoteProtocolError(str(error)) from None


def event_frames(codec: EventCodec, neighbour: Address, bodies: list[tuple[str, bytes]]) -> Iterator[EventFrame]:
    """Event frames with every flag, vector, origin and lifetime at an edge; `bodies` are (addressee, body)."""
    whole = (1 << (8 * codec.vector_size)) - 1
    vectors = (0, 1, 2, 1 << (codec.fanout - 1), 1 << codec.fanout, whole ^ (whole >> 1), whole)
    plain = Event(topic="quotes", body=b"x", event_id=EventId("evil", 1, 1, 1))
    number = 0
    for reliable in (False, True):
        for to_serve in vectors:
            for flags in (0, 0x2, 0x4, 0x8, 0x10, 0x20, 0x3E):
                number += 1
                frame = codec.frame(plain, reliable=reliable, origin=neighbour, to_serve=to_serve, served=to_serve)
                frame.sequence, frame.flags = number, frame.flags | flags
                yield frame
    for incarnation, stamp, sequence in (((1 << 64) - 1, (1 << 64) - 1, (1 << 32) - 1), (0, 0, 0)):
        frame = codec.frame(plain, reliable=True, origin=neighbour, to_serve=1, served=0)
        frame.incarnation, frame.timestamp, frame.sequence = incarnation, stamp, sequence
        yield frame
    for ttl_ms, origin in ((0, b"\xff" * codec.levels), (1, bytes(codec.levels)), (0, bytes(neighbour))):
        frame = codec.frame(plain, reliable=True, to_serve=1, served=0)
        frame.ttl_ms, frame.origin = ttl_ms, origin
        yield frame
    for broken in (b"\xff" * 40, b"\x00" * 40):
        yield EventFrame(1, 5000, 1, 1, 7, bytes(neighbour), 1, 0, 4, 20, broken)
    for to, body in bodies:
        number += 1
        message = Event(to=(to,), body=body, event_id=EventId("~evil", 1, 2, number))
        yield codec.frame(message, reliable=True, origin=neighbour, to_serve=1, served=0)
