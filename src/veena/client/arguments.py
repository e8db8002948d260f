"""The arguments of a client's calls: what they may be, and what they mean on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Literal, TypedDict

import msgspec

from veena.address import LEVEL_NAMES, MAX_LEVELS, level_name
from veena.core.discovery.advertisement import MAX_PROPERTY_NAME
from veena.core.messages.addresses import INTERNAL
from veena.core.wire.discovery import MAX_COLUMNS
from veena.errors import InvalidConstraint, LocalProtocolError
from veena.event import Value
from veena.matching.base.engine import Constraint
from veena.matching.condition.constraint_parser import parse_constraint

#: A durable subscription without a name of its own has its constraint as its name up to this length.
MAX_TEXT_NAME = 200
_sorted = msgspec.msgpack.Encoder(order="sorted")


class Content(TypedDict, total=False):
    """What an event is made of, as `publish` takes it."""

    topic: str | None
    integer: int | None
    tags: str | Mapping[str, str] | None
    xml: str | bytes | None
    properties: Mapping[str, Value]
    headers: Mapping[str, Value]
    body: bytes | memoryview
    priority: int
    ttl: float | None
    to: Sequence[str]


def durable_name(durable: bool | str, engine: str, constraint: Constraint) -> str:
    """The name of a durable subscription: the one that was given, or the constraint's; empty for none."""
    if durable is False:
        return ""
    if durable is True:
        text = f"{engine}:{constraint if isinstance(constraint, str | int) else '|'.join(map(str, constraint))}"
        if len(text) <= MAX_TEXT_NAME and text.isprintable():
            return text
        return f"{engine}:{blake2b(_sorted.encode(constraint), digest_size=16).hexdigest()}"
    if not durable or durable.startswith(INTERNAL):
        raise LocalProtocolError(f"durable {durable!r}: expected a name that does not begin with {INTERNAL}")
    return durable


def constraint_of(
    topic: str | None,
    selector: str | None,
    tags: str | Mapping[str, str] | None,
    integer: int | None,
    xpath: str | None,
    namespaces: Mapping[str, str] | None,
    constraint: str | None,
) -> tuple[str, Constraint]:
    """The engine and the constraint that the arguments of `subscribe` name."""
    if selector is not None and topic is None:
        raise InvalidConstraint(selector, 0, "a selector needs a topic: subscribe(topic=..., selector=...)")
    if namespaces and xpath is None:
        raise InvalidConstraint(str(dict(namespaces)), 0, "namespaces are those of xpath=...")
    found: list[tuple[str, Constraint]] = []
    if topic is not None:
        found.append(("topic", topic) if selector is None else ("selector", (topic, selector)))
    if tags is not None:
        text = tags if isinstance(tags, str) else ",".join(f"{name}={value}" for name, value in tags.items())
        found.append(("tags", text))
    if integer is not None:
        found.append(("integer", integer))
    if xpath is not None:
        found.append(("xpath", (xpath, dict(namespaces)) if namespaces else xpath))
    if constraint is not None:
        found.append(("constraint", constraint))
    if len(found) != 1:
        named = f", not {' and '.join(engine for engine, _ in found)}" if found else ""
        raise InvalidConstraint("", 0, f"name one of topic, tags, integer, xpath and constraint{named}")
    return found[0]


def asked_in(
    sql: str | None, xpath: str | None, constraint: str | None, properties: Sequence[str], limit: int
) -> tuple[Literal["sql", "xpath", "constraint"], str]:
    """The language and the text that the arguments of `query` name."""
    if [sql, xpath, constraint].count(None) != 2:
        raise LocalProtocolError("a query needs sql=..., xpath=... or constraint=..., one of them")
    if constraint is None:
        if properties or limit:
            raise LocalProtocolError("properties and limit go with constraint=...: SQL names its columns and its LIMIT")
        return ("xpath", xpath or "") if sql is None else ("sql", sql)
    if isinstance(properties, str) or len(properties) > MAX_COLUMNS:
        raise LocalProtocolError(f"properties {properties!r:.80}: expected a list of at most {MAX_COLUMNS} names")
    for name in properties:
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_PROPERTY_NAME:
            raise LocalProtocolError(f"property {name!r:.80}: expected a name of 1 to {MAX_PROPERTY_NAME} characters")
    if not 0 <= limit < 1 << 32:
        raise LocalProtocolError(f"limit {limit}: expected 1 or more, or 0 for all")
    parse_constraint(constraint)  # says exactly what is wrong with it
    return "constraint", constraint


def level_of(scope: str, what: str) -> int:
    """The level of a scope or realm by its name; 0 for the whole system."""
    if scope == "system":
        return 0
    for level in range(1, MAX_LEVELS):
        if level_name(level) == scope:
            return level
    names = ", ".join((*LEVEL_NAMES[1:], "system"))
    raise LocalProtocolError(f"{what} {scope!r}: expected one of {names}")


def since_ns(since: datetime | timedelta | float | None) -> int:
    """A time as nanoseconds since 1970, at least 1; 0 for none."""
    if since is None:
        return 0
    if isinstance(since, timedelta):
        seconds = datetime.now().timestamp() - since.total_seconds()
    elif isinstance(since, datetime):
        seconds = since.timestamp()
    else:
        try:
            seconds = float(since)
        except (TypeError, ValueError):  # a text, such as the shell's 10m
            seconds = -1.0
    if not 0 <= seconds < 1 << 33:
        raise LocalProtocolError(f"since {since!r}: expected a time from 1970 on, or how long ago as a timedelta")
    return max(1, round(seconds * 1e9))
