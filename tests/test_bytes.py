"""The bytes of one of everything that goes over a wire or to disk, compared with `bytes.txt`.

A line of that file is a name, a space and the bytes in hexadecimal. Names are texts of their own: renaming a class or a
field in the code changes nothing here. `pytest --rewrite tests/test_bytes.py` writes the file anew; a line that changes
means that brokers, clients or stores of before cannot read it, so the version of the wire or of the store rises.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from tests.core.wire.test_wire_frames import REPAIRS
from veena.core.boundary import staging as stage_boundary
from veena.core.boundary.explain import Reason
from veena.core.boundary.stored import (
    Attended,
    Entries,
    Entry,
    Forgotten,
    Identity,
    Kept,
    Known,
    LastHad,
    Noted,
    Progress,
    Reached,
    Registered,
    Released,
    Shelved,
    Skip,
    Unshelved,
    Write,
)
from veena.core.interest.constraint import make_want, reach_want
from veena.core.messages import kinds as post_messages
from veena.core.messages.mailbox import Post
from veena.core.wire import codec as wire
from veena.core.wire import trace_facts as notes
from veena.core.wire.burst import BurstReader
from veena.core.wire.discovery import Advertisement
from veena.core.wire.event import LATE, REDELIVERED, EventCodec, EventFrame
from veena.event import Event, EventId
from veena.runtime.fleet.control import _Question
from veena.runtime.store.audit_records import Delivery, Hop, Passed, ProfileChange, Record, RecordWriter
from veena.runtime.store.positions import Standing
from veena.runtime.store.rows import Batch
from veena.runtime.store.schema import MIGRATIONS
from veena.services.application.parameters import ParameterView
from veena.services.dictionary.samples import Sample
from veena.services.trading.messages import OfferRow, Question, Reply
from veena.spark.analyze.live import Known as AnalysisState
from veena.spark.archive.files import Written
from veena.spark.archive.manifest import Manifest

BYTES = Path(__file__).with_name("bytes.txt")
CODEC = EventCodec(4, 32)
EVENT = Event(
    topic="quotes",
    integer=1234,
    tags={"sym": "IBM"},
    xml="<a/>",
    properties={"price": 12.5, "big": 1 << 64, "raw": b"\x01", "none": None, "is": True},
    headers={"lang": "en"},
    body=b"hello",
    ttl=5,
    to=("bob",),
    event_id=EventId("alice", 2, 1_700_000_000_000_000_000, 7),
    timestamp_ns=1_700_000_000_123_456_789,
)
#: Structs on a wire or on disk beside frames, messages and notes; records inside these are in their bytes.
MSGPACK: dict[str, type[Any]] = {
    "store/advertisement": Advertisement,
    "store/stay": notes.Stay,
    "services/question": Question,
    "services/offer": OfferRow,
    "services/reply": Reply,
}
JSON: dict[str, type[Any]] = {
    "services/parameter-view": ParameterView,
    "services/sample": Sample,
    "fleet/question": _Question,
    "archive/manifest": Manifest,
    "archive/written": Written,
    "analysis/state": AnalysisState,
}

Rows = Iterator[tuple[str, bytes]]


# --- one value of any type ---


def value(kind: inspect.Type, at: int) -> Any:
    """A value of a type as msgspec sees it, which depends on its place among the fields and on no name."""
    match kind:
        case inspect.IntType():
            low = 0 if kind.ge is None else kind.ge
            high = (1 << 63) if kind.le is None else kind.le
            return low + min(at + 1, high - low)
        case inspect.FloatType():
            return at + 0.5
        case inspect.BoolType():
            return True
        case inspect.StrType():
            return "abcdefghijklmnop"[at % 16] * max(kind.min_length or 0, 1)
        case inspect.BytesType():
            return bytes((at % 256,)) * max(kind.min_length or 0, 1)
        case inspect.LiteralType():
            return sorted(kind.values, key=str)[0]
        case inspect.EnumType():
            return min(kind.cls, key=lambda member: str(member.value))
        case inspect.TupleType():
            return tuple(value(item, at + number) for number, item in enumerate(kind.item_types))
        case inspect.VarTupleType():
            return tuple(value(kind.item_type, at + number) for number in range(count(kind)))
        case inspect.ListType():
            return [value(kind.item_type, at + number) for number in range(count(kind))]
        case inspect.DictType():
            return {value(kind.key_type, at): value(kind.value_type, at + 1)}
        case inspect.StructType():
            return one(kind.cls, at)
        case inspect.UnionType():
            return value(next(item for item in kind.types if not isinstance(item, inspect.NoneType)), at)
    raise AssertionError(f"no value for {kind}")


def count(kind: inspect.VarTupleType | inspect.ListType) -> int:
    return max(kind.min_length or 0, min(2, 2 if kind.max_length is None else kind.max_length))


def one(cls: type[Any], at: int = 0) -> Any:
    kind = inspect.type_info(cls)
    assert isinstance(kind, inspect.StructType)
    values = {field.name: value(field.type, at + number) for number, field in enumerate(kind.fields)}
    repair: Callable[[dict[str, Any]], dict[str, Any]] = REPAIRS.get(cls, lambda given: given)
    return cls(**repair(values))


# --- rows ---


def control_frames() -> Rows:
    for kind, cls in wire.KINDS.items():
        frame = one(cls)
        data = wire.encode(frame, 7)
        assert wire.Decoder(CODEC).feed(data) == [(7, frame)]
        yield f"frame/{kind}", data


def event_frame(event: Event = EVENT, **options: Any) -> EventFrame:
    return CODEC.frame(event, **options)


def event_frames() -> Rows:
    full = event_frame(reliable=True, origin=(1, 0, 2, 21), to_serve=1 << 64 | 1 << 35, served=1 << 21)
    roamed = event_frame(original=(1, 2, 3))
    marked = event_frame(Event(body=b"x", event_id=EventId("a", 1, 2, 3), timestamp_ns=4))
    marked.flags |= LATE | REDELIVERED
    for name, frame in (("full", full), ("original", roamed), ("marked", marked)):
        data = CODEC.encode(frame, 42)
        ((number, read),) = wire.Decoder(CODEC).feed(data)
        assert isinstance(read, EventFrame) and number == 42
        assert CODEC.encode(read, 42) == data
        yield f"event/{name}", data
    (first, second) = (plain(number) for number in (1, 2))
    both = CODEC.encode(first, 0) + CODEC.encode(second, 0)
    burst = BurstReader(CODEC).read(both, 0, len(both), len(CODEC.encode(first, 0)), first.flags)
    assert burst.count == 2
    yield "burst/as-it-goes-out", bytes(burst.stamped(bytes((0, 1, 2, 3))).data)


def plain(sequence: int) -> EventFrame:
    event_id = EventId("alice", 2, 5, sequence)
    return event_frame(Event(topic="quotes", body=b"hello", event_id=event_id, timestamp_ns=9), reliable=True)


class Outgoing:
    """What a broker publishes of its own."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def post(self, event: Event, reliable: bool, now_ns: int) -> None:
        self.events.append(event)

    def new_incarnation(self, now_ns: int) -> int:
        return 3


def messages() -> Rows:
    """Each as the event that brokers send: its header says the tag as well."""
    for tag, cls in sorted((tag, cls) for cls, tag in post_messages.TAGS.items()):
        message = one(cls)
        outgoing = Outgoing()
        Post((0, 1, 2, 3), outgoing).send("~0.1", message, 1_000_000_000)
        (event,) = outgoing.events
        assert post_messages.decode_message(event.body) == message
        yield f"message/{tag}", CODEC.encode(event_frame(event, reliable=True), 1)


def trace_notes() -> Rows:
    for cls in get_args(notes.Note):
        note = one(cls)
        data = msgspec.msgpack.encode(note)
        assert msgspec.msgpack.decode(data, type=notes.Note) == note
        yield f"note/{cls.__struct_config__.tag}", data


def constants() -> Rows:
    """What enumerations are on a wire."""
    yield "values/what-happened", msgspec.msgpack.encode(sorted(each.value for each in notes.What))
    yield "values/reason", msgspec.msgpack.encode(sorted(each.value for each in Reason))


def wants() -> Rows:
    constraints: dict[str, Any] = {
        "integer": 5, "topic": "a.b", "tags": "a=1", "selector": ("t", "x > 1"), "xpath": ("/a", {"n": "urn:x"}),
        "constraint": "x > 1",
    }  # fmt: skip
    for want in (*(make_want(engine, given, 2) for engine, given in constraints.items()), reach_want("bob", 3)):
        yield f"want/{want.kind}", bytes((want.kind, want.scope)) + want.key + want.payload


def structs() -> Rows:
    for encode, decode, found in (
        (msgspec.msgpack.encode, msgspec.msgpack.decode, MSGPACK),
        (msgspec.json.encode, msgspec.json.decode, JSON),
    ):
        for name, cls in found.items():
            data = encode(one(cls))
            assert decode(data, type=cls) == one(cls)
            yield name, data


# --- the store ---

REGISTERED = Registered(
    7, "alice", "n", "xpath", ("/a", {"n": "urn:x"}), 2, (1 << 64) - 1, (7, 9), "leaving", (0, 1, 2, 3), 11
)
BURST_DATA = CODEC.encode(plain(1), 0) + CODEC.encode(plain(2), 0)
WRITES: list[Write] = [
    Identity("n21", (1, 0, 2, 21), (1 << 64) - 1),
    Entry(0, plain(3).copy(1 << 64 | 1 << 35, 1, 5), 10, (1, 2)),
    Entries(1, BurstReader(CODEC).read(BURST_DATA, 0, len(BURST_DATA), len(BURST_DATA) // 2, plain(1).flags), 11, 3, 0),
    Progress(((1 << 3, 2),)),
    LastHad(("alice", (1 << 64) - 1, 5), (1 << 63, 7)),
    Skip(("alice", 2, 5), (3, 4)),
    Known(((0,), (0, 1, 2))),
    Kept((b"alice", 2, 5, 1), plain(1)),
    Kept((b"alice", 2, 5, 2), plain(2)),
    Released(((b"alice", 2, 5, 2),)),
    REGISTERED,
    Registered(8, "bob", "m", "integer", 5, 1, 1, (8,), "home"),
    Forgotten(8),
    Reached(7, 3, ((("alice", 2, 5), (6, 7)),)),
    Shelved((0, 1, 2, 3), one(Advertisement), 12),
    Unshelved((), "alice", "gone"),
    Attended(13),
    Noted(1, 14, (one(notes.EventNote), one(notes.StayNote), one(notes.ClientNote))),
    stage_boundary.Staged(1, "owner", "alice", "query", 3, b"\x01", 15, 0, 1, CODEC.encode(plain(1), 0)),
    stage_boundary.BatchPublished("owner", "query", 3, "alice", 2, 5, 1, 16, True, ((1, 4),)),
    stage_boundary.Staged(2, "owner", "alice", "query", 4, b"\x02", 15, 0, 1, b"x"),
    stage_boundary.Unstaged(2, 0, True),
    stage_boundary.PartsDropped((9,)),
    stage_boundary.QueriesForgotten((("nobody", "none"),)),
]
ID = EventId("alice", (1 << 64) - 1, 5, 1)
RECORDS: list[Record] = [
    Delivery(20, ID, ("bob", "carol"), "late"),
    Hop(21, ID, (0, 1, 2, 3), (0, 1, 2, 4), 1, ((0, 1), (2,))),
    ProfileChange(22, "bob", 1, "added", "selector", ("t", "x > 1"), 2, 3, 1, True, "g", {"screen": "small"}, "bye"),
    Passed(23, plain(1)),
]


def store_rows() -> Rows:
    """Every row of every table of a store after one of each write: as msgpack, with the name of its table."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for migration in MIGRATIONS:
        for statement in migration:
            connection.execute(statement)
    standing = Standing()
    batch = Batch(CODEC, standing)
    for write in WRITES:
        batch.add(write)
    connection.execute("BEGIN")
    batch.run(connection, 30)
    writer = RecordWriter(CODEC, standing, notes_published=True)
    writer.published(connection, batch.published)
    writer.write(connection, [*batch.noted, *RECORDS])
    connection.execute("INSERT INTO readers VALUES ('r', 1, 2)")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
    for table in tables:
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        assert rows, f"nothing was written into the table {table}: add a write"
        for number, row in enumerate(sorted(map(msgspec.msgpack.encode, rows))):
            yield f"store/{table}/{number}", row
    connection.close()


def all_rows() -> dict[str, str]:
    found: dict[str, str] = {}
    for make in (control_frames, event_frames, messages, trace_notes, constants, wants, structs, store_rows):
        for name, data in make():
            assert name not in found, f"two rows are called {name}"
            found[name] = data.hex()
    return found


# --- tests ---


def test_nothing_that_is_written_has_changed(request: pytest.FixtureRequest) -> None:
    """IOP-08: the bytes of one of each, as they are stored; a changed line changes the wire or the store."""
    found = all_rows()
    if request.config.getoption("--rewrite"):
        BYTES.write_text("".join(f"{name} {data}\n" for name, data in found.items()))
    stored = dict(line.split(" ") for line in BYTES.read_text().splitlines())
    assert {name: data for name, data in found.items() if stored.get(name) != data} == {}
    assert list(stored) == list(found), "if the change is meant: pytest --rewrite tests/test_bytes.py"


def test_every_write_and_record_has_its_row() -> None:
    """A new one is added above, or this fails."""
    assert {type(write) for write in WRITES} == set(get_args(Write))
    assert {type(record) for record in RECORDS} | {Noted} == set(get_args(Record))


def test_every_message_and_note_has_a_tag_of_its_own() -> None:
    """The unions are complete, and no tag stands for two."""
    declared = {cls for cls in vars(post_messages).values() if is_message(cls)}
    assert declared == set(post_messages.TAGS)
    assert len(set(post_messages.TAGS.values())) == len(post_messages.TAGS)
    tags = [cls.__struct_config__.tag for cls in get_args(notes.Note)]
    assert len(set(tags)) == len(tags) == 3


def is_message(cls: object) -> bool:
    base = post_messages.Message
    return isinstance(cls, type) and issubclass(cls, base) and cls is not base


def test_a_renamed_class_writes_the_same_bytes() -> None:
    """A class of another name with the same tag is the same message."""
    for cls, tag in post_messages.TAGS.items():
        fields = [(field.encode_name, field.type) for field in msgspec.structs.fields(cls)]
        renamed = msgspec.defstruct("Renamed", fields, frozen=True, array_like=True, tag=tag)
        values = [getattr(one(cls), name) for name, _ in fields]
        assert msgspec.msgpack.encode(renamed(*values)) == post_messages.encode_message(one(cls))


def test_no_struct_takes_its_tag_from_its_name() -> None:
    """`tag=True` would put the name of the class on the wire."""
    sources = Path(post_messages.__file__).parents[1].rglob("*.py")
    assert not [path for path in sources if "tag=True" in path.read_text()]
