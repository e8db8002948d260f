"""`docs/WIRE.md` says what the code does: its tables and its examples are read and compared.

Run this file as a program to write the tables of the control frames anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from veena.core.links.link import connection_id
from veena.core.topology import connection
from veena.core.wire import codec as wire
from veena.core.wire import control as frames
from veena.core.wire import header as wire_header
from veena.core.wire import section as wire_section
from veena.core.wire.control import Hello
from veena.core.wire.event import MAX_PUBLISHER_BYTES, EventCodec, EventFrame
from veena.core.wire.header import VERSION
from veena.errors import RefusalCode
from veena.event import Event, EventId
from veena.matching.simple.topic import MAX_TOPIC_LENGTH

DOCUMENT = Path(__file__).parents[3] / "docs" / "WIRE.md"
BEGIN = "<!-- kinds: written by tests/core/wire/test_wire_document.py -->\n"
END = "<!-- /kinds -->\n"

HELLO = Hello(
    VERSION, VERSION, "ges-22", 4, 32, (1, 0, 2, 21), 3, 0x0123456789ABCDEF, 1000, ("tcp://10.0.0.1:7700",), "n21"
)
EVENT = Event(
    topic="quotes",
    integer=1234,
    tags={"sym": "IBM"},
    properties={"price": 12.5, "big": 1 << 64, "raw": b"\x01"},
    headers={"lang": "en"},
    body=b"hello",
    ttl=5,
    to=("bob",),
    event_id=EventId("alice", 2, 1_700_000_000_000_000_000, 7),
    timestamp_ns=1_700_000_000_123_456_789,
)


def power(number: int) -> str:
    """A long number as a power of two."""
    if number < 0:
        return f"-{power(-number)}"
    if number < 1 << 31:
        return str(number)
    if number & (number + 1) == 0:
        return f"2^{number.bit_length()} - 1"
    assert number & (number - 1) == 0, f"no words for {number}"
    return f"2^{number.bit_length() - 1}"


def described(kind: inspect.Type) -> str:
    """A field's type in words."""
    match kind:
        case inspect.IntType():
            top = kind.le
            return f"{power(kind.ge or 0)} to {power((1 << 64) - 1 if top is None else top)}"
        case inspect.StrType():
            return f"text of {kind.min_length or 0} to {kind.max_length} characters"
        case inspect.BytesType():
            is_fixed = kind.min_length == kind.max_length
            return f"{kind.max_length} bytes" if is_fixed else f"at most {kind.max_length} bytes"
        case inspect.BoolType():
            return "boolean"
        case inspect.EnumType():
            assert kind.cls is RefusalCode, "its members stand in a table of their own"
            return "code of a refusal"
        case inspect.LiteralType():
            return " or ".join(map(str, kind.values))
        case inspect.TupleType():
            return f"[{', '.join(map(described, kind.item_types))}]"
        case inspect.VarTupleType():
            return f"{kind.min_length or 0} to {kind.max_length} of ({described(kind.item_type)})"
        case inspect.StructType():
            return kind.cls.__name__
        case inspect.NoneType():
            return "nil"
        case inspect.UnionType():
            return " or ".join(map(described, kind.types))
    raise AssertionError(f"no words for {kind}")


def structs_in(kind: inspect.Type) -> list[type[Any]]:
    match kind:
        case inspect.StructType():
            return [kind.cls]
        case inspect.VarTupleType():
            return structs_in(kind.item_type)
        case inspect.TupleType():
            return [cls for item in kind.item_types for cls in structs_in(item)]
    return []


def fields_of(cls: type[Any]) -> tuple[inspect.Field, ...]:
    kind = inspect.type_info(cls)
    assert isinstance(kind, inspect.StructType)
    return kind.fields


def table(title: str, cls: type[Any]) -> str:
    lines = [f"### {title}", ""]
    meaning = vars(cls).get("__doc__")
    if meaning:
        assert meaning.split("\n")[0].endswith((".", "?")), f"the first line of {cls.__name__} is no whole sentence"
        lines += [meaning.split("\n")[0], ""]
    lines += ["| # | field | type | when left out |", "|---|---|---|---|"]
    for index, field in enumerate(fields_of(cls)):
        default = "" if field.default is msgspec.NODEFAULT else msgspec.json.encode(field.default).decode()
        lines.append(f"| {index} | {field.name} | {described(field.type)} | {default} |")
    return "\n".join(lines) + "\n"


def expected_tables() -> str:
    parts = [table(f"Kind {kind}: {cls.__name__}", cls) for kind, cls in wire.KINDS.items()]
    records: list[type[Any]] = []
    pending: list[type[Any]] = list(wire.KINDS.values())
    for cls in pending:
        for inner in (inner for field in fields_of(cls) for inner in structs_in(field.type)):
            if inner not in records:
                records.append(inner)
                pending.append(inner)
    parts += [table(f"Record: {cls.__name__}", cls) for cls in records]
    return "\n" + "\n".join(parts) + "\n"


def example(name: str) -> bytes:
    """The bytes of an example, its remarks left out."""
    found = re.search(rf"```{name}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found, f"no block {name} in {DOCUMENT}"
    return bytes.fromhex("".join(line.partition("|")[0] for line in found[1].splitlines()))


def test_the_tables_of_control_frames_are_true() -> None:
    """IOP-08: every kind with its number, fields, order, bounds and defaults."""
    stated = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    assert stated == expected_tables(), f"run `python {Path(__file__).relative_to(DOCUMENT.parents[1])}` to renew it"


def test_the_table_of_codes_is_complete() -> None:
    """IOP-08: another implementation reads there what each code asks of it."""
    stated = DOCUMENT.read_text().partition("**Codes of refusals.**")[2].partition("\n\n**")[0]
    assert re.findall(r"^\| `(\w+)` \|", stated, re.MULTILINE) == list(RefusalCode)


def test_the_hello_of_the_document_is_what_is_sent() -> None:
    assert wire.encode(HELLO, 1) == example("hex-hello")
    assert wire.Decoder().feed(example("hex-hello")) == [(1, HELLO)]


def test_the_event_of_the_document_is_what_is_sent() -> None:
    """DST-01, DST-02, DST-10: brokers 19 and 20 together, one word a level."""
    to_serve = 1 << 64 | 1 << 32 + 3 | 1 << 20 | 1 << 19
    served = 1 << 64 | 1 << 21
    codec = EventCodec(4, 32)
    sent = codec.encode_event(EVENT, 42, reliable=True, origin=(1, 0, 2, 21), to_serve=to_serve, served=served)
    assert sent == example("hex-event")
    ((number, frame),) = wire.Decoder(codec).feed(example("hex-event"))
    assert number == 42 and isinstance(frame, EventFrame)
    assert frame.event() == EVENT
    assert (frame.to_serve, frame.served, frame.origin_address) == (to_serve, served, (1, 0, 2, 21))


def test_the_connection_id_of_the_document_is_true() -> None:
    """Both ends compute it, so a foreign implementation must get the same."""
    other = msgspec.structs.replace(HELLO, address=(1, 0, 2, 20), incarnation=1, nonce=1)
    stated = re.search(r"give the id `([0-9a-f]{16})`", " ".join(DOCUMENT.read_text().split()))
    assert stated and int(stated[1], 16) == connection_id(HELLO, other) == connection_id(other, HELLO)
    assert connection.STEP_COSTS == (0, 4, 16) and connection.ABSENT == frames.MAX_STEP


def test_the_layout_tables_are_true() -> None:
    """The offsets and sizes of the document are those of the example's fields."""
    text = DOCUMENT.read_text()
    rows = {
        cells[2]: (int(cells[0]), int(cells[1]))
        for cells in re.findall(r"^\| (\d+) \| (\d+) \| ([a-z ]+) \|", text, re.MULTILINE)
    }
    data = example("hex-event")

    def value(name: str, base: int = 0) -> int:
        offset, size = rows[name]
        return int.from_bytes(data[base + offset : base + offset + size], "big")

    assert (value("length"), value("version"), value("kind"), value("number")) == (
        len(data),
        VERSION,
        wire_header.EVENT,
        42,
    )
    assert value("flags") == 0x0401 and value("ttl") == 5000
    assert (value("incarnation"), value("timestamp"), value("sequence")) == tuple(EVENT.event_id or ())[1:]
    lengths = value("publisher length"), value("matching length"), value("body length")
    start = 50 + 4 + 2 * 16
    assert start + sum(lengths) == len(data) and start == EventCodec(4, 32).header_size
    section = start + lengths[0]
    assert value("present", section) == 1 and value("published", section) == EVENT.timestamp_ns
    assert value("integer", section) == 1234 and rows["integer"][1] == 4


def test_the_bounds_in_the_text_are_true() -> None:
    """A changed constant must be changed in the document too."""
    text = " ".join(DOCUMENT.read_text().split())
    assert (wire_header.DEFAULT_MAX_FRAME, wire_header.MAX_FRAME) == (1 << 20, 16 << 20)
    for words in (
        "1 MiB unless configured, never more than 16 MiB",
        f"control frame has at most {wire_header.MAX_CONTROL_FRAME // 1024} KiB",
        f"an event frame has at most {wire_header.MAX_EVENT_DATAGRAM:,} bytes",
        f"a control frame {wire_header.MAX_DATAGRAM:,}",
        f"one vector for each range, {frames.MAX_VECTORS // 1024} KiB together",
        f"1 to {MAX_PUBLISHER_BYTES:,} bytes",
        f"| {MAX_TOPIC_LENGTH} characters |",
        f"{wire_section.MAX_TAGS} tags, names of 1 to {wire_section.MAX_NAME_LENGTH} characters",
        f"{wire_section.MAX_PROPERTIES} properties",
        f"{wire_section.MAX_HEADERS} headers",
        f"{wire_section.MAX_TO} of 1 to 255 characters",
        f"1 to {wire_section.MAX_INTEGER_BYTES:,} bytes",
        f"wire format of Veena, version {wire_header.VERSION}",
    ):
        assert words in text, words


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + expected_tables() + END + rest.partition(END)[2])
