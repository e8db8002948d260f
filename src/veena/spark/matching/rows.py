"""Rows of events as engines see them: from the matching section, or from plain columns where there is none.

`section` is what was published, byte for byte, so it is used wherever it is there. Without it the columns `topic`,
`integer`, `tags`, `xml`, `properties`, `headers`, `to` are read, those that a frame has: properties and headers as a
struct, a map or a VARIANT. A map of texts is taken as it is: its numbers are texts, and `price > 10` is unknown of a
text. The id and the priority travel in no section; they are read only if a selector asks for them.

An event with addressees is for those alone and satisfies no profile (EVT-05), as at a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veena.core.wire.section import decode_section
from veena.errors import InvalidEvent
from veena.event import DEFAULT_PRIORITY, Event, EventId
from veena.spark.matching.snapshot import HEADER_COLUMNS, InvalidProfile, ProfileSet

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

#: The columns that are read where there is no section.
PLAIN: Final = ("topic", "integer", "tags", "xml", "properties", "headers", "to")
#: What a value of a property may be in Spark.
_VALUES: Final = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "void")


@dataclass(frozen=True, slots=True)
class RowForm:
    """Which columns of a frame hold what, decided once on the driver."""

    has_section: bool
    columns: tuple[str, ...]
    #: Columns that hold JSON, because they were VARIANT.
    as_json: frozenset[str]


def read_name(column: str) -> str:
    """What a column is called on its way to a worker, where columns of the user's stand beside it."""
    return f"__veena_read_{column}"


class WrongColumns(InvalidEvent):
    """A frame of events that cannot be matched as it is."""


def row_form(events: DataFrame, profiles: ProfileSet) -> RowForm:
    """How the events of a frame are read for these profiles; raise WrongColumns when they cannot be."""
    kinds = dict(events.dtypes)
    has_section = kinds.get("section") == "binary"
    read: set[str] = {"section"} if has_section else {name for name in PLAIN if name in kinds}
    if not read:
        raise WrongColumns(
            f"events with the columns {', '.join(kinds)}: expected `section` (binary), or some of {', '.join(PLAIN)}"
        )
    for field, number in profiles.readers.items():
        column = HEADER_COLUMNS[field]
        if field == "JMSTimestamp" and has_section:
            continue
        if column not in kinds:
            raise InvalidProfile(
                f"profile {number} (selector) names {field}: select the column `{column}` of the events, too"
            )
        read.add(column)
    for name in ("properties", "headers"):
        if name in read:
            _check_values(name, events.schema[name].dataType)
    as_json = frozenset(name for name in read if kinds[name] == "variant")
    return RowForm(has_section, tuple(name for name in kinds if name in read), as_json)


def row_columns(events: DataFrame, form: RowForm) -> list[Column]:
    """The columns as workers read them."""
    from pyspark.sql import functions as F  # noqa: N812 - so it is called everywhere

    found: list[Column] = []
    for name in form.columns:
        column = events[name]
        if name in form.as_json:
            column = F.to_json(column)
        elif name == "published":
            column = F.unix_micros(column.cast("timestamp"))
        found.append(column.alias(read_name(name)))
    return found


def _check_values(name: str, kind: DataType) -> None:
    from pyspark.sql.types import MapType, StructType, VariantType

    if isinstance(kind, VariantType):
        return
    values: dict[str, DataType] = {}
    if isinstance(kind, StructType):
        values = {f"{name}.{field.name}": field.dataType for field in kind.fields}
    elif isinstance(kind, MapType):
        values = {f"{name}[...]": kind.valueType}
    else:
        raise WrongColumns(f"column {name} of type {kind.simpleString()}: expected a struct, a map or a variant")
    for place, value in values.items():
        if value.simpleString() not in _VALUES:
            raise WrongColumns(
                f"column {place} of type {value.simpleString()}: cast it to one of {', '.join(_VALUES[:-1])}"
            )


def events_of(batch: pa.RecordBatch, form: RowForm, key: tuple[str, ...]) -> Iterator[Event | None]:
    """The events of a batch in its order; None for those with addressees."""
    rows = _section_events(batch, form) if form.has_section else _plain_events(batch, form)
    number = 0
    try:
        for event in rows:
            yield event
            number += 1
    except InvalidEvent as error:
        place = ", ".join(f"{name} {batch.column(name)[number].as_py()}" for name in key)
        raise InvalidEvent(f"event at {place}: {error}") from None


def _section_events(batch: pa.RecordBatch, form: RowForm) -> Iterator[Event | None]:
    sections = batch.column(read_name("section")).to_pylist()
    priorities = _listed(batch, form, "priority", DEFAULT_PRIORITY)
    ids = _listed(batch, form, "id", None)
    for data, priority, written in zip(sections, priorities, ids, strict=True):
        if data is None:
            raise InvalidEvent("no matching section; leave the column out to match by the others")
        section = decode_section(data)
        if section.to:
            yield None
            continue
        yield Event(
            topic=section.topic,
            integer=section.integer,
            tags=section.tags,
            xml=section.xml,
            properties=section.properties,
            headers=section.headers,
            priority=DEFAULT_PRIORITY if priority is None else priority,
            event_id=None if written is None else EventId.parse(written),
            timestamp_ns=section.timestamp_ns,
        )


def _plain_events(batch: pa.RecordBatch, form: RowForm) -> Iterator[Event | None]:
    topics, integers, tags, documents = (_listed(batch, form, name, None) for name in PLAIN[:4])
    properties, headers = (_mappings(batch, form, name) for name in PLAIN[4:6])
    addressees = _listed(batch, form, "to", None)
    priorities, ids = _listed(batch, form, "priority", DEFAULT_PRIORITY), _listed(batch, form, "id", None)
    times = _listed(batch, form, "published", 0)
    columns = (topics, integers, tags, documents, properties, headers, addressees, priorities, ids, times)
    for topic, integer, tag, xml, held, header, to, priority, written, micros in zip(*columns, strict=True):
        if to:
            yield None
            continue
        yield Event(
            topic=topic,
            integer=integer,
            tags=dict(tag) if isinstance(tag, list) else tag,
            xml=xml,
            properties=held,
            headers=header,
            priority=DEFAULT_PRIORITY if priority is None else priority,
            event_id=None if written is None else EventId.parse(written),
            timestamp_ns=0 if micros is None else micros * 1000,
        )


def _listed(batch: pa.RecordBatch, form: RowForm, name: str, default: object) -> Iterable[Any]:
    """A column as Python's values, or the default for each row where there is no such column."""
    if name in form.columns:
        found: list[Any] = batch.column(read_name(name)).to_pylist()
        return found
    return repeat(default, batch.num_rows)


def _mappings(batch: pa.RecordBatch, form: RowForm, name: str) -> Iterable[Mapping[str, Any]]:
    rows = _listed(batch, form, name, None)
    if name in form.as_json:
        return map(_from_json, rows)
    return map(_mapping, rows)


def _from_json(row: str | None) -> Mapping[str, Any]:
    try:
        return {} if row is None else msgspec.json.decode(row, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"properties or headers {row!r:.80}: expected an object ({error})") from None


def _mapping(row: Any) -> Mapping[str, Any]:
    """A struct has a null where an event has no such property; a map has what it has."""
    if row is None:
        return {}
    if isinstance(row, dict):
        return {name: value for name, value in row.items() if value is not None}
    return dict(row)
