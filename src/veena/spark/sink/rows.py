"""Rows as events: which columns the sink of `format("veena")` takes, of which types, and what each becomes.

Types are checked when the query is made, all columns at once: what cannot be published is named with its type and what
to write instead, before any row has moved. What is wrong with a value is told with the number of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
    VariantVal,
)

from veena.errors import ConfigError, InvalidEvent
from veena.event import Event
from veena.spark.log.tables import EVENTS

_SCALARS: Final = (StringType, BooleanType, IntegralType, FloatType, DoubleType, BinaryType, NullType)
_ANY_VALUE: Final = "map<string, string | boolean | bigint | double | binary>, a struct of such values, or variant"
#: Column -> the types that it may have, in words.
COLUMNS: Final = {
    "topic": "string",
    "integer": "int or bigint, 0 to 2^32 - 1",
    "tags": "string such as 'Make=Ford,Color=Red', or map<string,string>",
    "xml": "string or binary",
    "properties": _ANY_VALUE,
    "headers": _ANY_VALUE,
    "body": "binary or string",
    "to": "array<string> or string: client ids",
    "priority": "int, 0 to 9",
    "ttl": "double or int: seconds",
    "ttl_ms": "int or bigint: milliseconds",
    "reliable": "boolean; without it every event is reliable",
}
#: How a value of another type becomes one that is taken.
_REMEDIES: Final = {
    "decimal": "cast it to double or string",
    "timestamp": "cast it to string or bigint",
    "date": "cast it to string",
    "variant": "cast it to one of these types",
}


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType | NullType)


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType | NullType)


def _is_whole(kind: DataType) -> bool:
    return isinstance(kind, IntegralType | NullType)


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, IntegralType | FloatType | DoubleType | NullType)


def _is_tags(kind: DataType) -> bool:
    is_map = isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)
    return is_map or _is_text(kind)


def _is_names(kind: DataType) -> bool:
    return _is_text(kind) or (isinstance(kind, ArrayType) and _is_text(kind.elementType))


def _is_values(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _SCALARS)
    if isinstance(kind, StructType):
        return all(isinstance(each.dataType, _SCALARS) for each in kind.fields)
    return isinstance(kind, VariantType | NullType)


_FITS: Final[dict[str, Callable[[DataType], bool]]] = {
    "topic": _is_text,
    "integer": _is_whole,
    "tags": _is_tags,
    "xml": _is_bytes,
    "properties": _is_values,
    "headers": _is_values,
    "body": _is_bytes,
    "to": _is_names,
    "priority": _is_whole,
    "ttl": _is_number,
    "ttl_ms": _is_whole,
    "reliable": lambda kind: isinstance(kind, BooleanType | NullType),
}


def check_schema(schema: StructType) -> None:
    """Raise ConfigError for columns that are no part of an event, or of another type."""
    unknown = [each.name for each in schema.fields if each.name not in COLUMNS]
    if unknown:
        shown = ", ".join(f"{name} ({schema[name].dataType.simpleString()})" for name in unknown)
        is_table = all(name in EVENTS for name in unknown)
        reason = "says where an event was, not what it is" if is_table else f"is no part of an event ({_known()})"
        raise _wrong(f"column {shown}", reason, f"leave it out: .drop({', '.join(map(repr, unknown))})")
    for each in schema.fields:
        if not _FITS[each.name](each.dataType):
            named = each.dataType.simpleString()
            remedy = next((text for part, text in _REMEDIES.items() if part in named), "cast it")
            raise _wrong(f"column {each.name} ({named})", f"expected {COLUMNS[each.name]}", remedy)
    if "ttl" in schema.names and "ttl_ms" in schema.names:
        raise _wrong("columns ttl and ttl_ms", "both say how long an event lives", ".drop('ttl_ms')")
    if not schema.fields:
        raise _wrong("columns", "there are none", f"select at least one of {_known()}")


def _known() -> str:
    return ", ".join(COLUMNS)


def _wrong(entry: str, reason: str, remedy: str) -> ConfigError:
    return ConfigError('format("veena")', entry, reason, remedy)


class RowReader:
    """Makes events of the rows of one schema."""

    def __init__(self, schema: StructType) -> None:
        check_schema(schema)
        self._readers = {each.name: _reader(each.name, each.dataType) for each in schema.fields}
        self._rows = 0

    def events(self, batch: pa.RecordBatch) -> Iterator[tuple[Event, bool]]:
        """Each row as an event, and whether it is reliable; InvalidEvent names the row."""
        names = batch.schema.names
        columns: list[Sequence[Any]] = []
        for name, column in zip(names, batch.columns, strict=True):
            values = column.to_pylist()
            reader = self._readers[name]
            columns.append(values if reader is None else self._read(name, reader, values))
        for row in zip(*columns, strict=True):
            given = {name: value for name, value in zip(names, row, strict=True) if value is not None}
            reliable = bool(given.pop("reliable", True))
            if "ttl_ms" in given:
                given["ttl"] = given.pop("ttl_ms") / 1000
            try:
                yield Event(**given), reliable
            except InvalidEvent as error:
                raise InvalidEvent(f"row {self._rows} of this task: {error}") from None
            self._rows += 1

    def _read(self, name: str, reader: Callable[[Any], Any], values: list[Any]) -> list[Any]:
        found: list[Any] = []
        for value in values:
            try:
                found.append(None if value is None else reader(value))
            except (InvalidEvent, ValueError, TypeError) as error:
                at = self._rows + len(found)
                raise InvalidEvent(f"row {at} of this task, column {name}: {error}") from None
        return found


def _reader(name: str, kind: DataType) -> Callable[[Any], Any] | None:
    """What makes a field of an event of a value; None where it is one already."""
    if name == "body" and isinstance(kind, StringType):
        return str.encode
    if name == "tags" and isinstance(kind, MapType):
        return dict
    if name == "to":
        return _one_name if isinstance(kind, StringType) else _names
    if name in ("properties", "headers"):
        if isinstance(kind, VariantType):
            return _of_variant
        return dict if isinstance(kind, MapType) else _of_struct
    return None


def _one_name(value: str) -> tuple[str, ...]:
    return (value,)


def _names(value: Sequence[str | None]) -> tuple[str, ...]:
    if None in value:
        raise InvalidEvent("null among the client ids; leave it out")
    return tuple(value)  # type: ignore[arg-type]


def _of_struct(value: Mapping[str, Any]) -> dict[str, Any]:
    """A struct has all its fields in every row: those that are null are not there."""
    return {name: each for name, each in value.items() if each is not None}


def _of_variant(value: Any) -> dict[str, Any]:
    variant = value if isinstance(value, VariantVal) else VariantVal(value["value"], value["metadata"])
    found = variant.toPython()
    if not isinstance(found, dict):
        raise InvalidEvent(f"a variant that is {type(found).__name__}; expected an object of names and values")
    return found
