"""What a client publishes: the event, its id, and the lane it travels in.

An id is (publisher, incarnation, timestamp, sequence) (UID-02). The timestamp is taken when the publisher starts and
again after every `MAX_SEQUENCE` events (UID-05), so the sequence needs no disk: after a crash it starts at zero under a
later timestamp (UID-04). Should the clock stand still or step back, the stamp is bumped by one instead of being used
again (UID-03, UID-06). An incarnation is given by the accepting broker on each roam and reconnection; events of two
incarnations are as unrelated as those of two publishers (DUP-08), and comparing them raises (UID-09).

Rejected: UUIDs as ids. They are unique but carry no order, and duplicates at the end are judged by order; a UUID can be
the label of an event in `headers` (UID-08).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from veena.errors import InvalidEvent, UnrelatedEvents

#: A property: what selectors and constraints can see. None is SQL's NULL.
Value = bool | int | float | str | bytes | None

#: 2^20 ids a stamp: at most one new stamp a millisecond even at a billion events a second.
MAX_SEQUENCE = 1 << 20
MAX_PRIORITY = 9
DEFAULT_PRIORITY = 4
#: An integer topic is always four bytes on the wire (MAT-40).
MAX_INTEGER = (1 << 32) - 1
MAX_CLIENT_ID_LENGTH = 255


def _is_number(text: str) -> bool:
    """Whether a text is a number of at most 64 bits, or a little more: longer ones may not even be read."""
    return text.isascii() and text.isdigit() and len(text) <= 20


class EventId(NamedTuple):
    """Unique in space and time; text form `client:incarnation:timestamp:sequence`."""

    publisher: str
    incarnation: int
    timestamp: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.publisher}:{self.incarnation}:{self.timestamp}:{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> EventId:
        parts = text.rsplit(":", 3)
        if len(parts) != 4 or not parts[0] or not all(map(_is_number, parts[1:])):
            raise InvalidEvent(f"event id {text!r}: expected client:incarnation:timestamp:sequence")
        return cls(parts[0], int(parts[1]), int(parts[2]), int(parts[3]))

    def is_related(self, other: EventId) -> bool:
        """Whether the two have an order: one publisher, one incarnation."""
        return self[:2] == other[:2]

    def is_after(self, other: EventId) -> bool:
        """Later in its publisher's order: by timestamp, then by sequence (UID-07)."""
        if not self.is_related(other):
            raise UnrelatedEvents(f"{self} and {other} come from different publishers or incarnations: no order")
        return self[2:] > other[2:]

    # A tuple's own order would quietly rank publishers by name, so the operators are the checked ones.
    def __lt__(self, other: object) -> bool:
        return isinstance(other, EventId) and other.is_after(self)

    def __gt__(self, other: object) -> bool:
        return isinstance(other, EventId) and self.is_after(other)

    def __le__(self, other: object) -> bool:
        return isinstance(other, EventId) and not self.is_after(other)

    def __ge__(self, other: object) -> bool:
        return isinstance(other, EventId) and not other.is_after(self)


class IdGenerator:
    """The ids of one publisher's incarnation, strictly ascending whatever the clock does."""

    def __init__(self, publisher: str, incarnation: int = 0, max_sequence: int = MAX_SEQUENCE) -> None:
        self.publisher = check_client_id(publisher)
        self.incarnation = incarnation
        self._max_sequence = max_sequence
        self._timestamp = 0
        self._sequence = max_sequence  # the first id takes a stamp

    def next(self, now_ns: int) -> EventId:
        if self._sequence >= self._max_sequence:
            self._timestamp = max(now_ns, self._timestamp + 1)
            self._sequence = 0
        self._sequence += 1
        return EventId(self.publisher, self.incarnation, self._timestamp, self._sequence - 1)


class UuidGenerator:
    """Labels in the manner of Gnutella (UID-08): unique, without order."""

    def __init__(self, node: int | None = None) -> None:
        self._node = node

    def next(self) -> str:
        return str(uuid.uuid1(self._node))


def check_client_id(client_id: str) -> str:
    if not client_id or len(client_id) > MAX_CLIENT_ID_LENGTH or not client_id.isprintable():
        raise InvalidEvent(f"client id {client_id[:80]!r}: expected 1 to {MAX_CLIENT_ID_LENGTH} printable characters")
    return client_id


class Lane(NamedTuple):
    """Order is promised within a lane: reliable or best effort, and one of three bands of priority."""

    reliable: bool
    #: 0 for priorities 0-3, 1 for 4-6, 2 for 7-9.
    band: int

    @property
    def number(self) -> int:
        return self.band + (3 if self.reliable else 0)


def lane(reliable: bool, priority: int) -> Lane:
    return Lane(reliable, 0 if priority < 4 else 1 if priority < 7 else 2)


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Event:
    """The only unit of interaction (EVT-01). Every engine whose field is present is asked about it.

    `properties` and `headers` keep the order they were given in (EVT-04). `body` is never matched and never copied.
    """

    topic: str | None = None
    integer: int | None = None
    #: Text such as `Make=Ford,Model=Taurus`, or a mapping; held as a mapping in the given order.
    tags: Mapping[str, str] | str | None = None
    #: A document as text or bytes; bytes keep their encoding declaration.
    xml: str | bytes | None = None
    properties: Mapping[str, Value] = field(default_factory=dict)
    headers: Mapping[str, Value] = field(default_factory=dict)
    body: bytes | memoryview = b""
    priority: int = DEFAULT_PRIORITY
    #: Seconds to live; None for ever.
    ttl: float | None = None
    #: Client ids, for an event with an internal list of destinations (EVT-05).
    to: Sequence[str] = ()
    #: Given when it is published; `id` is its text.
    event_id: EventId | None = None
    timestamp_ns: int = field(default_factory=time.time_ns)
    #: The receiver may have had it before.
    redelivered: bool = False
    #: It comes after later ones of its stream: where it lay could not be waited for.
    late: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.tags, str):
            object.__setattr__(self, "tags", parse_tags(self.tags))
        elif self.tags is not None and not isinstance(self.tags, dict | Mapping):
            raise InvalidEvent(f"tags {self.tags!r}: expected a text such as Make=Ford,Color=Red, or a mapping")
        if self.integer is not None and not (isinstance(self.integer, int) and 0 <= self.integer <= MAX_INTEGER):
            raise InvalidEvent(f"integer {self.integer!r}: an integer topic is 0 to {MAX_INTEGER} (four bytes)")
        if not isinstance(self.body, bytes | memoryview | bytearray):
            raise InvalidEvent(f"body is a {type(self.body).__name__}: expected bytes, such as 'hello'.encode()")
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise InvalidEvent(f"priority {self.priority}: expected 0 (lowest) to {MAX_PRIORITY} (highest)")
        if self.ttl is not None and not self.ttl > 0:
            raise InvalidEvent(f"ttl {self.ttl}: expected seconds above 0, or None for no limit")
        if isinstance(self.to, str):
            raise InvalidEvent(f"to {self.to!r}: expected a list of client ids, not one text")
        object.__setattr__(self, "to", tuple(self.to))

    @property
    def id(self) -> str | None:
        """`client:incarnation:timestamp:sequence`, as `publish` returns it; None before it is published."""
        return None if self.event_id is None else str(self.event_id)

    @property
    def tag_values(self) -> Mapping[str, str]:
        """The tags as a mapping, empty when there are none."""
        return _NOTHING if self.tags is None or isinstance(self.tags, str) else self.tags


def parse_tags(text: str) -> dict[str, str]:
    """Read `Make=Ford,Model=*,Color=Red` in order (MAT-30)."""
    tags: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InvalidEvent(f"tags {text!r}: {pair!r} is no tag=value pair; write for example Make=Ford,Color=Red")
        if name in tags:
            raise InvalidEvent(f"tags {text!r}: tag {name!r} stands there twice; give each tag one value")
        tags[name] = value.strip()
    return tags


class Signature:
    """The ordered, typed attributes that events of one kind have (EVT-04)."""

    def __init__(self, attributes: Iterable[tuple[str, type]]) -> None:
        self.attributes = tuple(attributes)

    def check(self, properties: Mapping[str, Value]) -> dict[str, Value]:
        """The properties in the signature's order; raise InvalidEvent on a missing, unknown or ill-typed one."""
        known = dict(self.attributes)
        for name in properties:
            if name not in known:
                raise InvalidEvent(f"attribute {name!r} is not in the signature; it has {', '.join(known)}")
        ordered: dict[str, Value] = {}
        for name, kind in self.attributes:
            if name not in properties:
                raise InvalidEvent(f"attribute {name!r} is missing; the signature wants a {kind.__name__}")
            value = properties[name]
            if type(value) is not kind:
                raise InvalidEvent(
                    f"attribute {name!r} is {value!r}, a {type(value).__name__}; the signature wants a {kind.__name__}"
                )
            ordered[name] = value
        return ordered
