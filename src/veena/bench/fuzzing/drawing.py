"""Frames by chance: mostly such as the types allow, at the edges of their ranges, some broken, some damaged.

A frame that a decoder refuses at once tests the decoder alone. So most frames are drawn from the types of their fields,
texts and constraints from what people write, and only some get a value of another type or a damaged byte.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec
from msgspec import inspect

from veena.core.wire.codec import KINDS
from veena.core.wire.control import Frame, Routed
from veena.core.wire.event import EventCodec
from veena.core.wire.header import HEADER, HEADER_SIZE, VERSION
from veena.errors import VeenaError
from veena.event import Event, EventId

#: Shares of frames with a value that its type forbids, and with a damaged byte.
BROKEN: Final = 0.03
DAMAGED: Final = 0.01
#: Elements of a drawn list, and the share of lists that are as long as they may be.
MANY: Final = 4
LONGEST: Final = 0.005
#: msgpack's largest integer; what a field without an upper bound may hold.
HIGHEST: Final = (1 << 64) - 1
TEXTS: Final = (
    "a", "a.b", "a.*", "a.>", "quotes.nyse.ibm", "honest", "veena.dead-letters", "veena/access/x", "~b", "", " ",
    "a" * 255, "é" * 100, "\x00", "\x1b[31m", "../../etc/passwd", "' OR 1=1 --", "🜁", "topic", "xpath", "selector",
    "tags", "integer", "to", "fuzz-0", "fuzz-1", "veena://127.0.0.1:9", "tls://localhost:1", "drop", "manual",
)  # fmt: skip
#: Engine and constraint as clients write them.
CONSTRAINTS: Final[tuple[tuple[str, object], ...]] = (
    ("topic", "a.b"), ("topic", "a"), ("integer", 7), ("tags", "sym=IBM&exchange=*"), ("tags", "a=1"),
    ("selector", ("a", "price > 10 AND sym IN ('IBM', 'SUN')")), ("selector", ("a", "name LIKE '%x%y%z%'")),
    ("selector", ("a", "n BETWEEN 1 AND 2 OR NOT (m IS NULL)")), ("selector", ("a", "(" * 40 + "a = 1" + ")" * 40)),
    ("xpath", ("//a[@b > 1]", {})), ("xpath", ("/a/b[c = 'x']/d", {})), ("xpath", ("count(//a//b) > 3", {})),
    ("xpath", ("//a[.//b[.//c = 1]]", {"p": "urn:p"})), ("xpath", ("not(//*[contains(., 'x')])", {})),
)  # fmt: skip
DOCUMENTS: Final = ("<a/>", "<a b='2'><b><c>1</c></b></a>", "<a>" * 30 + "</a>" * 30, "<a>" + "<b/>" * 300 + "</a>")


class Drawing:
    """Draws frames for a network of these levels."""

    def __init__(self, chance: Random, levels: int = 4, fanout: int = 32) -> None:
        self.chance = chance
        self._levels, self._fanout = levels, fanout
        self._codec = EventCodec(levels, fanout)
        self._published = 0

    def control(self, cls: type[Frame]) -> bytes:
        """A control frame of this class, most often a valid one."""
        return self._bytes(_kind_of(cls), msgspec.msgpack.encode(self._fields(cls)))

    def of(self, kind: int, fields: list[Any]) -> bytes:
        """The frame of a kind that has these fields, as a corpus gives them."""
        return self._bytes(kind, msgspec.msgpack.encode(fields), damaged=0.0)

    def _bytes(self, kind: int, payload: bytes, damaged: float = DAMAGED) -> bytes:
        version = VERSION if self.chance.random() > BROKEN / 10 else self.chance.randrange(256)
        frame = HEADER.pack(HEADER_SIZE + len(payload), version, kind, 0, 0) + payload
        return self._damage(frame) if self.chance.random() < damaged else frame

    def _damage(self, frame: bytes) -> bytes:
        changed = bytearray(frame)
        for _ in range(self.chance.randint(1, 3)):
            changed[self.chance.randrange(len(changed))] = self.chance.randrange(256)
        return bytes(changed)

    # --- events ---

    def event(self, client_id: str, incarnation: int) -> bytes:
        """An event frame of a client: topics, tags, properties and documents as users send them, and stranger ones."""
        chance = self.chance
        self._published += chance.choice((1, 1, 1, 0, 5))
        event_id = EventId(client_id, incarnation, 1, self._published)
        try:
            event = Event(
                topic=chance.choice((None, "a", "a.b", "quotes.nyse.ibm", "honest")),
                integer=chance.choice((None, None, 7, (1 << 32) - 1)),
                tags=chance.choice(({}, {"sym": "IBM", "exchange": "NYSE"}, {"a": "1"})),
                xml=chance.choice((None, None, None, *DOCUMENTS)),
                properties={f"p{at}": self._property() for at in range(chance.choice((0, 0, 1, 3, 40)))},
                headers=chance.choice(({}, {"clearance": "secret"}, {"reply-to": "x"}, {"a": "b" * 300})),
                body=chance.randbytes(chance.choice((0, 10, 200, 3000))),
                ttl=chance.choice((None, None, 1, 0.001, 1e9)),
                to=chance.choice(((), (), ("fuzz-0",), ("nobody", "honest-reader"))),
                event_id=event_id,
                timestamp_ns=chance.choice((1, 1_700_000_000_000_000_000, (1 << 63) - 1)),
            )
            frame = self._codec.encode_event(event, 0, reliable=chance.random() < 0.5)
        except VeenaError:
            event = Event(topic="a", event_id=event_id)
            frame = self._codec.encode_event(event, 0)
        return self._damage(frame) if chance.random() < DAMAGED else frame

    def _property(self) -> Any:
        return self.chance.choice((1, -1, 10.5, float("nan"), "IBM", "x" * 500, True, None, 1 << 63, b"\x00"))

    # --- fields ---

    def _fields(self, cls: type[Any]) -> list[Any]:
        described = inspect.type_info(cls)
        assert isinstance(described, inspect.StructType)
        fields = [self._field(field.name, field.type) for field in described.fields]
        if cls is Routed:
            inner = self.chance.choice([kind for kind in KINDS.values() if kind is not Routed])
            fields[3:5] = [_kind_of(inner), msgspec.msgpack.encode(self._fields(inner))]
        by_name = {field.name: at for at, field in enumerate(described.fields)}
        if "constraint" in by_name and self.chance.random() > BROKEN:
            engine, constraint = self.chance.choice(CONSTRAINTS)
            fields[by_name["constraint"]] = msgspec.msgpack.encode(constraint)
            if "engine" in by_name:
                fields[by_name["engine"]] = engine
        if described.tag is not None:
            fields.insert(0, described.tag)
        required = sum(field.required for field in described.fields)
        return fields if self.chance.random() < 0.7 else fields[: max(required, self.chance.randint(0, len(fields)))]

    def _field(self, name: str, kind: inspect.Type) -> Any:
        if self.chance.random() < BROKEN / 5:
            return self.chance.choice((None, -1, HIGHEST, "x", b"x", [], [[]], {}, 1.5, True, [1, 2, 3], {"a": 1}))
        if name in {"level", "address", "to", "origin", "unit", "low", "high"} and isinstance(
            kind, inspect.VarTupleType
        ):
            length = self.chance.choice((self._levels, self.chance.randint(1, self._levels)))
            return [self.chance.choice((0, 0, 1, 2, self._fanout - 1)) for _ in range(length)]
        return self.value(kind)

    def value(self, kind: inspect.Type) -> Any:
        """A value that its type allows."""
        chance = self.chance
        match kind:
            case inspect.IntType():
                low, high = kind.ge or 0, HIGHEST if kind.le is None else kind.le
                near = (low, low, min(low + 1, high), high, max(high - 1, low), min(low + chance.randrange(100), high))
                return chance.choice((*near, chance.randint(low, high)))
            case inspect.FloatType():
                return chance.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
            case inspect.BoolType():
                return chance.random() < 0.5
            case inspect.StrType():
                text = chance.choice(TEXTS)[: kind.max_length]
                return text.ljust(kind.min_length or 0, "x")
            case inspect.BytesType():
                longest = HIGHEST if kind.max_length is None else kind.max_length
                return chance.randbytes(min(longest, max(kind.min_length or 0, chance.choice((0, 1, 8, 8, 200)))))
            case inspect.LiteralType():
                return chance.choice(list(kind.values))
            case inspect.EnumType():
                return chance.choice([member.value for member in kind.cls])
        return self._compound(kind)

    def _compound(self, kind: inspect.Type) -> Any:
        match kind:
            case inspect.TupleType():
                return [self.value(item) for item in kind.item_types]
            case inspect.VarTupleType() | inspect.ListType():
                return [self.value(kind.item_type) for _ in range(self._count(kind.min_length, kind.max_length))]
            case inspect.DictType():
                return {self.value(kind.key_type): self.value(kind.value_type) for _ in range(self._count(0, None))}
            case inspect.StructType():
                return self._fields(kind.cls)
            case inspect.UnionType():
                return self.value(self.chance.choice(list(kind.types)))
        return None

    def _count(self, fewest: int | None, most: int | None) -> int:
        if most is not None and self.chance.random() < LONGEST:
            return min(most, 4096)
        return max(fewest or 0, min(self.chance.randint(0, MANY), MANY if most is None else most))


def _kind_of(cls: type[Frame]) -> int:
    return next(kind for kind, each in KINDS.items() if each is cls)
