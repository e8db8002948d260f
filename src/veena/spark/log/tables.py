"""The four tables of a network's past: what a broker's log holds, what `format("veena")` reads, what the archive keeps.

One row of `events` is one accepted event, read from the log of the broker that accepted it and from no other, so that
it is there once. `section` is everything that engines look at, as it was published: matching in bulk uses it and can
differ from a broker in nothing; the columns before it are the same for people and SQL. `properties` and `headers` are
maps of text there: true and false, numbers as Python writes them, bytes in hexadecimal.

The other three are there for brokers with `records` switched on: who was handed what, which copies went over which
links, and who wanted what from when to when.

A row is known by (broker, offset): the broker's permanent name, and a number of its log that is never used again.
Events of best effort (`history = "all"`) have a numbering of their own; their `offset` is negative, -1 for the first:
one column tells both apart. Numbers of 64 bits without a sign are kept with one, as Spark has no others.
"""

from __future__ import annotations

from typing import Final

#: Column -> type in Spark's DDL. Later versions append.
_ID: Final = {
    "id": "string",
    "publisher": "string",
    "incarnation": "bigint",
    "stamp": "bigint",
    "sequence": "bigint",
}
_PLACE: Final = {"broker": "string", "offset": "bigint", "at": "timestamp"}

EVENTS: Final = {
    **_PLACE,
    **_ID,
    "reliable": "boolean",
    "priority": "int",
    "ttl_ms": "bigint",
    "origin": "string",
    "published": "timestamp",
    "topic": "string",
    "integer": "bigint",
    "tags": "string",
    "xml": "string",
    "to": "array<string>",
    "properties": "map<string,string>",
    "headers": "map<string,string>",
    "section": "binary",
    "body": "binary",
}
DELIVERIES: Final = {**_PLACE, **_ID, "clients": "array<string>", "mark": "string"}
HOPS: Final = {
    **_PLACE,
    **_ID,
    "came_from": "string",
    "went_to": "string",
    "level": "int",
    "units": "array<string>",
}
PROFILES: Final = {
    **_PLACE,
    "client_id": "string",
    "session": "bigint",
    "subscription": "bigint",
    "change": "string",
    "engine": "string",
    "condition": "binary",
    "scope": "int",
    "level": "int",
    "durable": "boolean",
    "shared": "string",
    "attributes": "map<string,string>",
    "ending": "string",
}
TABLES: Final = {"events": EVENTS, "deliveries": DELIVERIES, "hops": HOPS, "profiles": PROFILES}


def ddl(table: str) -> str:
    """The schema of a table as Spark reads it."""
    return ", ".join(f"`{name}` {kind}" for name, kind in TABLES[table].items())
