"""Blocks of a broker's tables as Arrow: the buffers that came are wrapped, and what people see is made of them.

Columns that a broker has are taken as they are, without a loop over rows. The rest are made here, where there are many
processes and not in the one broker that all of them read from: the id as text by Arrow's own functions, properties and
headers by reading the matching section. Equal sections, their time apart, are read once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.msgpack import Ext

from veena.address import format_address
from veena.core.wire.event import NO_TTL, PRIORITY_MASK, PRIORITY_SHIFT, RELIABLE
from veena.core.wire.log_tables import COLUMNS, padded
from veena.core.wire.section import BYTES, TIME_OFFSET, TIME_SIZE
from veena.errors import RemoteProtocolError
from veena.matching.base.engine import uncollected
from veena.spark.log.tables import TABLES

#: Spark's types as Arrow's.
TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
#: Sections that are remembered while one table is read, and the longest that is worth it.
MAX_SECTIONS: Final = 1 << 14
MAX_SECTION: Final = 512
#: What lies before the fields of a section: its mark and its time.
_BEFORE: Final = TIME_OFFSET + TIME_SIZE
#: The integer, then the fields of `wire_section`: topic, tags, xml, properties, headers, to; later versions add more.
_Section = tuple[Any, ...]
_NO_SECTION: Final[_Section] = (None, None, None, None, {}, {}, ())
_DECLARED = re.compile(rb"""^(?:\xef\xbb\xbf)?<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")

Columns = Mapping[str, pa.Array]
_clients = msgspec.msgpack.Decoder(list[str])
_attributes = msgspec.msgpack.Decoder(dict[str, str])
_decode = msgspec.msgpack.Decoder().decode

#: Columns that are made of others -> those others.
_MADE_OF: Final[dict[str, tuple[str, ...]]] = {
    "broker": (),
    "id": ("publisher", "incarnation", "stamp", "sequence"),
    "reliable": ("flags",),
    "priority": ("flags",),
    "ttl_ms": ("ttl",),
    "integer": ("section",),
    "tags": ("section",),
    "xml": ("section",),
    "to": ("section",),
    "properties": ("section",),
    "headers": ("section",),
}


def schema(table: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of a table, or of some of its columns in this order."""
    kinds = TABLES[table]
    return pa.schema([(name, TYPES[kinds[name]]) for name in (kinds if columns is None else columns)])


class Batches:
    """Makes record batches of one table with these columns."""

    def __init__(self, table: str, columns: Sequence[str], broker: str, is_passed: bool = False) -> None:
        self.schema = schema(table, columns)
        self._kinds = COLUMNS[table]
        self._columns = tuple(columns)
        self._broker = broker
        self._is_passed = is_passed
        #: What a broker is asked for; something always, since rows without columns would have no number.
        needed = dict.fromkeys(each for name in columns for each in _MADE_OF.get(name, (name,)))
        self.needed = tuple(needed) or ("offset",)
        self._known: dict[bytes, _Section] = {}

    def batch(self, rows: int, sizes: Sequence[int], data: pa.Buffer) -> pa.RecordBatch:
        """The rows of one block; raise RemoteProtocolError where it is not what was asked for."""
        given = self._wrapped(rows, sizes, data)
        with uncollected():
            return self._made_of(rows, given)

    def _made_of(self, rows: int, given: Columns) -> pa.RecordBatch:
        sections = self._sections(given["section"]) if "section" in given and self._needs_sections() else []
        made = [self._made(name, rows, given, sections) for name in self._columns]
        if not made:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(made, schema=self.schema)

    def _needs_sections(self) -> bool:
        return any(_MADE_OF.get(name) == ("section",) for name in self._columns)

    def _wrapped(self, rows: int, sizes: Sequence[int], data: pa.Buffer) -> dict[str, pa.Array]:
        count = sum(2 if self._kinds[name] == "number" else 3 for name in self.needed)
        if len(sizes) != count or sum(map(padded, sizes)) != data.size:
            raise RemoteProtocolError(
                f"a block of {len(sizes)} buffers and {data.size} bytes: expected {count} buffers"
            )
        buffers: list[pa.Buffer] = []
        at = 0
        for size in sizes:
            buffers.append(data.slice(at, size))
            at += padded(size)
        found: dict[str, pa.Array] = {}
        taken = 0
        for name in self.needed:
            is_number = self._kinds[name] == "number"
            width = 2 if is_number else 3
            validity, *others = buffers[taken : taken + width]
            taken += width
            if len(others[0]) != (8 * rows if is_number else 4 * (rows + 1)) or 0 < len(validity) < -(-rows // 8):
                raise RemoteProtocolError(f"column {name!r} of a block of {rows} rows has {len(others[0])} bytes")
            if not is_number:
                _check_offsets(name, others[0], len(others[1]))
            kind = pa.int64() if is_number else pa.binary()
            found[name] = pa.Array.from_buffers(kind, rows, [validity if len(validity) else None, *others])
        return found

    def _made(self, name: str, rows: int, given: Columns, sections: list[_Section]) -> pa.Array:
        if name == "broker":
            return pa.repeat(pa.scalar(self._broker, pa.string()), rows)
        if name == "offset" and self._is_passed:
            return pc.subtract(-1, given["offset"])
        made = _MAKERS.get(name)
        if made is not None:
            return made(given)
        of_section = _OF_SECTION.get(name)
        if of_section is not None:
            return of_section(sections)
        return _as(given[name], self.schema.field(name).type)

    def _sections(self, array: pa.Array) -> list[_Section]:
        """Each row's section; one that cannot be read says nothing."""
        known = self._known
        found: list[_Section] = []
        for data in array.to_pylist():
            rest = data[_BEFORE:]
            section = known.get(rest) if not data[0] else None
            if section is None:
                section = _read(data, rest)
                if len(rest) <= MAX_SECTION and not data[0]:
                    if len(known) >= MAX_SECTIONS:
                        known.clear()
                    known[rest] = section
            found.append(section)
        return found


def _read(data: bytes, rest: bytes) -> _Section:
    """A section, which a broker has checked when it accepted the event: so its types are not looked at again."""
    try:
        if not data[0]:
            return (None, *_decode(rest))
        return (int.from_bytes(rest[:4], "big"), *_decode(rest[4:]))
    except (msgspec.DecodeError, IndexError, TypeError):
        return _NO_SECTION


def _check_offsets(name: str, offsets: pa.Buffer, size: int) -> None:
    """Arrow trusts offsets: a broker that errs must not lead it astray."""
    values = np.frombuffer(offsets, "<i4")
    if values[0] != 0 or values[-1] != size or (np.diff(values) < 0).any():
        raise RemoteProtocolError(f"column {name!r} of a block: offsets that do not ascend from 0 to {size}")


# --- made of what came ---


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pc.cast(pc.divide(array, 1000), kind)
    if pa.types.is_string(kind):
        return pc.cast(array, kind)
    return array if array.type == kind else pc.cast(array, kind)


def _text(array: pa.Array) -> pa.Array:
    """Numbers of 64 bits without a sign as text. Few are different in a block, mostly."""
    encoded = array.dictionary_encode()
    words = pc.cast(encoded.dictionary.view(pa.uint64()), pa.string())
    return words.take(encoded.indices)


def _id(given: Columns) -> pa.Array:
    return pc.binary_join_element_wise(
        pc.cast(given["publisher"], pa.string()),
        _text(given["incarnation"]),
        _text(given["stamp"]),
        pc.cast(given["sequence"], pa.string()),
        ":",
    )


def _flags(given: Columns) -> Any:
    return given["flags"].to_numpy(zero_copy_only=False)


def _origins(given: Columns) -> pa.Array:
    encoded = given["origin"].dictionary_encode()
    words = [None if data[0] == 0xFF else format_address(tuple(data)) for data in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(encoded.indices)


def _ttl(given: Columns) -> pa.Array:
    left = given["ttl"].to_numpy(zero_copy_only=False)
    return pa.array(left, pa.int64(), mask=left == NO_TTL)


def _by_value(name: str, kind: pa.DataType, decode: Callable[[bytes], object]) -> Callable[[Columns], pa.Array]:
    """Decoded once for each different value."""

    def made(given: Columns) -> pa.Array:
        encoded = given[name].dictionary_encode()
        words = pa.array([decode(data) for data in encoded.dictionary.to_pylist()], kind)
        return words.take(encoded.indices)

    return made


_MAKERS: Final[dict[str, Callable[[Columns], pa.Array]]] = {
    "id": _id,
    "reliable": lambda given: pa.array((_flags(given) & RELIABLE) != 0, pa.bool_()),
    "priority": lambda given: pa.array(((_flags(given) & PRIORITY_MASK) >> PRIORITY_SHIFT).astype(np.int32)),
    "origin": _origins,
    "ttl_ms": _ttl,
    "clients": _by_value("clients", TYPES["array<string>"], _clients.decode),
    "units": _by_value("units", TYPES["array<string>"], lambda data: data.decode().split()),
    "attributes": lambda given: pa.array(
        [{} if data is None else _attributes.decode(data) for data in given["attributes"].to_pylist()],
        TYPES["map<string,string>"],
    ),
    "durable": lambda given: pc.not_equal(given["durable"], 0),
}


# --- made of matching sections ---


def _extended(value: Ext) -> str:
    return bytes(value.data).hex() if value.code == BYTES else str(int.from_bytes(value.data, "big", signed=True))


#: A property or header as the tables show it, by its type.
_TEXT: Final[dict[type[Any], Callable[[Any], str | None]]] = {
    str: lambda value: value,
    type(None): lambda value: None,
    bool: lambda value: "true" if value else "false",
    int: str,
    float: str,
    Ext: _extended,
}


def _xml(document: str | Ext | None) -> str | None:
    if not isinstance(document, Ext):
        return document
    value = bytes(document.data)
    declared = _DECLARED.match(value)
    encoding = (
        "utf-16" if value[:2] in (b"\xff\xfe", b"\xfe\xff") else declared[1].decode() if declared else "utf-8-sig"
    )
    try:
        return value.decode(encoding, "replace")
    except LookupError:
        return value.decode("utf-8", "replace")


def _map(maps: Sequence[Mapping[str, Any]]) -> pa.Array:
    offsets = np.zeros(len(maps) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, maps), np.int32, len(maps)), out=offsets[1:])
    names = [name for each in maps for name in each]
    text = _TEXT
    values = [text[type(value)](value) for each in maps for value in each.values()]
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )


_OF_SECTION: Final[dict[str, Callable[[list[_Section]], pa.Array]]] = {
    "integer": lambda sections: pa.array([each[0] for each in sections], pa.int64()),
    "tags": lambda sections: pa.array(
        [
            None if each[2] is None else ",".join(f"{name}={value}" for name, value in each[2].items())
            for each in sections
        ],
        pa.string(),
    ),
    "xml": lambda sections: pa.array([_xml(each[3]) for each in sections], pa.string()),
    "to": lambda sections: pa.array([each[6] for each in sections], TYPES["array<string>"]),
    "properties": lambda sections: _map([each[4] for each in sections]),
    "headers": lambda sections: _map([each[5] for each in sections]),
}
