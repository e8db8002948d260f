"""How a reader outside gets a broker's tables: what it asks for, and blocks of columns as answers (design §7, §8).

    AskLogEnds, AskLogAt   --> TellLogEnds, TellLogAt
    AskLogRead, AskLogMore --> TellBlock, TellBlockPart ..., as many blocks as the reader has room for; or TellGap
    AskLogCommit           --> TellCommitted
    AskBrokers             --> TellBrokers

A read is a range of offsets, a list of columns and tests. Rows travel as *columns*, in the layout of Apache Arrow: a
column of numbers is eight bytes a row, little-endian; one of bytes is rows + 1 offsets of four bytes and the joined
bytes; either may have one bit a row before it that says which rows have a value at all. So a reader wraps what came
without a loop over rows, and nobody makes a column that was not asked for. The columns are those that cost the broker
nothing to find; what people see (the id as text, properties as a map) is made of them by the reader.

A block is as long as it is; it is cut into parts that fit control frames. A broker sends as many blocks as it was
asked for (`AskLogRead.blocks`, then `AskLogMore`), so whoever reads slowly is waited for, and nothing piles up.

The invariant: as in `client`, whatever was decoded obeys every bound here; the sizes of a block's buffers add up
to the bytes that its parts bring, which the reader checks.

Rejected: event frames as they are (a loop in Python for each row at the reader, several times the cost); Arrow's own
stream format (the broker would need its library, for a header of some hundred bytes).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from veena.address import MAX_LEVELS
from veena.core.wire.client import MAX_URLS, Number
from veena.core.wire.control import MAX_PERMANENT_ID, MAX_URL, U32, U63, Frame
from veena.core.wire.interest import MAX_CONSTRAINT_BYTES
from veena.matching.simple.topic import MAX_TOPIC_LENGTH

#: Bytes of a block in one frame: below any control frame's limit.
MAX_PART: Final = 256 << 10
#: Rows of one block, and bytes after which it gets no more: a few milliseconds of work each.
MAX_BLOCK_ROWS: Final = 1 << 16
DEFAULT_BLOCK_ROWS: Final = 1 << 14
MAX_BLOCK_BYTES: Final = 4 << 20
DEFAULT_BLOCK_BYTES: Final = 2 << 20
#: Blocks that may be on their way to one read.
MAX_BLOCKS: Final = 16
#: More than any table has columns, and buffers of those.
MAX_COLUMNS: Final = 32
MAX_BUFFERS: Final = 3 * MAX_COLUMNS
#: Tests of one read, and values that one of them lists.
MAX_TESTS: Final = 64
MAX_TEST_VALUES: Final = 1024
MAX_TEST_TEXT: Final = 1024
MAX_READER_NAME: Final = 200
#: Brokers that one answer names; whoever wants all asks those as well.
MAX_TOLD_BROKERS: Final = 1024

#: The tables as a broker keeps them: events that were accepted here (reliable ones, and of best effort), and records.
Table = Literal["events", "passed", "deliveries", "hops", "profiles"]
Kind = Literal["number", "bytes"]

_ID: Final[dict[str, Kind]] = {
    "publisher": "bytes",
    "incarnation": "number",
    "stamp": "number",
    "sequence": "number",
}
_EVENTS: Final[dict[str, Kind]] = {
    "offset": "number",
    "at": "number",
    **_ID,
    #: As in the event frame: bit 0 for reliable, bits 8 to 11 the priority.
    "flags": "number",
    #: 2^32 - 1 for no limit.
    "ttl": "number",
    #: A byte a level.
    "origin": "bytes",
    "published": "number",
    "topic": "bytes",
    "section": "bytes",
    "body": "bytes",
}
#: Table -> the columns that can be asked for. Times are nanoseconds since 1970.
COLUMNS: Final[dict[str, dict[str, Kind]]] = {
    "events": _EVENTS,
    "passed": _EVENTS,
    "deliveries": {"offset": "number", "at": "number", **_ID, "clients": "bytes", "mark": "bytes"},
    "hops": {
        "offset": "number",
        "at": "number",
        **_ID,
        "came_from": "bytes",
        "went_to": "bytes",
        "level": "number",
        "units": "bytes",
    },
    "profiles": {
        "offset": "number",
        "at": "number",
        "client_id": "bytes",
        "session": "number",
        "subscription": "number",
        "change": "bytes",
        "engine": "bytes",
        "condition": "bytes",
        "scope": "number",
        "level": "number",
        "durable": "number",
        "shared": "bytes",
        "attributes": "bytes",
        "ending": "bytes",
    },
}

Offset = U63
I64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
ReaderName = Annotated[str, Meta(min_length=1, max_length=MAX_READER_NAME)]
Part = Annotated[bytes, Meta(max_length=MAX_PART)]


class LogTest(Struct, frozen=True, array_like=True, gc=False):
    """A row is sent if its column is one of these, or compares with the first of them in this way."""

    column: Name
    how: Literal["in", "lt", "le", "gt", "ge"]
    #: Those of a column of numbers, or of text.
    numbers: Annotated[tuple[I64, ...], Meta(max_length=MAX_TEST_VALUES)] = ()
    texts: Annotated[tuple[Annotated[str, Meta(max_length=MAX_TEST_TEXT)], ...], Meta(max_length=MAX_TEST_VALUES)] = ()


class AskLogEnds(Frame, frozen=True):
    """Which rows of a table are there?"""

    number: Number
    table: Table


class AskLogAt(Frame, frozen=True):
    """Which row is the first that was written at this time or later?"""

    number: Number
    table: Table
    at_ns: U63


class AskLogRead(Frame, frozen=True):
    """Rows with start <= offset < end that pass all tests, the oldest first: these columns, so many blocks for now."""

    number: Number
    table: Table
    start: Offset
    end: Offset
    columns: Annotated[tuple[Name, ...], Meta(max_length=MAX_COLUMNS)]
    #: Events of this topic alone; "" for any.
    topic: Annotated[str, Meta(max_length=MAX_TOPIC_LENGTH)] = ""
    #: An SQL-92 selector over properties and header; "" for none.
    selector: Annotated[str, Meta(max_length=MAX_CONSTRAINT_BYTES)] = ""
    tests: Annotated[tuple[LogTest, ...], Meta(max_length=MAX_TESTS)] = ()
    blocks: Annotated[int, Meta(ge=1, le=MAX_BLOCKS)] = 4
    max_rows: Annotated[int, Meta(ge=1, le=MAX_BLOCK_ROWS)] = DEFAULT_BLOCK_ROWS
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BLOCK_BYTES)] = DEFAULT_BLOCK_BYTES


class AskLogMore(Frame, frozen=True):
    """So many blocks more of a read; 0 ends it."""

    number: Number
    blocks: Annotated[int, Meta(ge=0, le=MAX_BLOCKS)] = 1


class AskLogCommit(Frame, frozen=True):
    """A reader has every row below this offset for good: age alone takes nothing from it that is above."""

    number: Number
    reader: ReaderName
    table: Table
    offset: Offset
    #: It reads no more: nothing is kept for it.
    over: bool = False


class AskBrokers(Frame, frozen=True):
    """Where do the other brokers listen?"""

    number: Number


class TellLogEnds(Frame, frozen=True):
    """The first row that is kept and the one that comes next; what was given up before readers had committed it."""

    number: Number
    first: Offset
    next: Offset
    lost: U63 = 0


class TellLogAt(Frame, frozen=True):
    """The first row of that time or later; the next one that will be written, where there is none."""

    number: Number
    offset: Offset


class TellBlock(Frame, frozen=True):
    """A block of rows, or its beginning: the columns as they were asked for, buffer behind buffer.

    Each buffer begins at a multiple of 64 bytes. A column has a bitmap of its values (no bytes: all are there), then
    its numbers, or its offsets and its bytes."""

    number: Number
    rows: U32
    #: Rows that were looked at for it, and where the next block begins.
    looked: U32
    next: Offset
    #: Bytes of each buffer, without what fills it up.
    sizes: Annotated[tuple[U32, ...], Meta(max_length=MAX_BUFFERS)]
    data: Part
    #: Parts follow.
    more: bool = False
    #: This was all.
    last: bool = False


class TellBlockPart(Frame, frozen=True):
    """What follows of a block; the frame without `more` is the last one."""

    number: Number
    data: Part
    more: bool = False


class TellGap(Frame, frozen=True):
    """Rows were given up before they were read: the read stands at `asked`, the first row that is kept is `first`."""

    number: Number
    asked: Offset
    first: Offset


class TellCommitted(Frame, frozen=True):
    """It is taken; how many rows were given up before that reader had them."""

    number: Number
    lost: U63 = 0


class BrokerPlace(Struct, frozen=True, array_like=True, gc=False):
    """Where a broker listens; its address and permanent name where they are known."""

    urls: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=MAX_URL)], ...], Meta(min_length=1, max_length=MAX_URLS)
    ]
    address: Annotated[tuple[Annotated[int, Meta(ge=0, le=63)], ...], Meta(max_length=MAX_LEVELS)] = ()
    name: Annotated[str, Meta(max_length=MAX_PERMANENT_ID)] = ""


class TellBrokers(Frame, frozen=True):
    """The brokers that this one knows of, itself first."""

    number: Number
    brokers: Annotated[tuple[BrokerPlace, ...], Meta(max_length=MAX_TOLD_BROKERS)]


#: Bytes to which every buffer of a block is filled up: what Arrow likes.
ALIGNMENT: Final = 64


def padded(size: int) -> int:
    """The bytes that a buffer takes in a block."""
    return -(-size // ALIGNMENT) * ALIGNMENT
