"""The options of `format("veena")` for reading: read once, checked in full, told apart from what Spark adds.

Names are taken in any case, as Spark's own are. A wrong option is refused when the table is loaded, before any broker
is asked: the error names the option, its value and what to write instead.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from veena.errors import ConfigError, InvalidConstraint, VeenaError
from veena.spark.log.tables import TABLES

if TYPE_CHECKING:
    from veena.spark.log.client import Access

FORMAT: Final = 'format("veena")'
#: Meant to take a task well longer than starting it does; not tuned by measurement.
ROWS_PER_TASK: Final = 200_000
#: As long as a broker that was killed takes to be back, with room to spare.
RETRY_S: Final = 30.0
#: A broker's URLs are given by hand; a network of more is found through any of them.
MAX_URLS: Final = 256
MAX_ROWS: Final = 1 << 40
MAX_RETRY_S: Final = 86_400.0

#: Option -> what it is for, as `docs/PIPELINE.md` lists them.
OPTIONS: Final = {
    "url": "one or more brokers, or a locator, separated by commas",
    "table": "events, deliveries, hops or profiles",
    "columns": "the columns to read, separated by commas; the others are not sent",
    "topic": "events of this topic only",
    "selector": "events that this selector accepts only",
    "pushFilters": "whether brokers test what a WHERE says; see docs/PIPELINE.md",
    "brokers": "network (all that can be found) or named (those of the URLs)",
    "startingOffsets": "earliest, latest, a time, or JSON",
    "endingOffsets": "latest, a time, or JSON",
    "maxRowsPerBatch": "rows of a micro-batch",
    "rowsPerTask": "rows of a task",
    "failOnDataLoss": "whether rows that are gone end the query",
    "retrySeconds": "how long a broker that does not answer is asked again",
    "reader": "commit what is done with to the brokers, under this name",
    "user": "who reads",
    "password": "the password of the user",
    "token": "a token instead of a password",
    "clientId": "the client id to read as",
    "caFile": "the authority that signed the brokers' certificates",
    "certFile": "the certificate to show",
    "keyFile": "the key of that certificate",
}
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}

#: Where reading begins or ends: at a named end, at a time (ns since 1970), or at offsets by broker.
Bound = Literal["earliest", "latest"] | int | dict[str, object]


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader was asked for."""

    urls: tuple[str, ...]
    access: Access = field(repr=False)
    table: str = "events"
    columns: tuple[str, ...] = ()
    topic: str | None = None
    selector: str | None = None
    push_filters: bool = False
    named_only: bool = False
    starting: Bound = "earliest"
    ending: Bound = "latest"
    rows_per_batch: int | None = None
    rows_per_task: int = ROWS_PER_TASK
    fail_on_data_loss: bool = True
    retry_s: float = RETRY_S
    reader: str | None = None


def wrong(option: str, value: object, reason: str, remedy: str) -> ConfigError:
    """The error of an option: names it, its value, what is wrong and what to write instead."""
    shown = "***" if option in {"password", "token"} else repr(value)
    return ConfigError(FORMAT, f"option {option} = {shown:.200}", reason, remedy)


def parse(given: Mapping[str, str]) -> Options:
    """The options of a read; raises ConfigError for the first wrong one."""
    options = _named(given)
    table = options.get("table", "events").strip()
    if table not in TABLES:
        raise wrong("table", table, "there is no such table", f"use one of {', '.join(TABLES)}")
    _check_filters(options, table)
    return Options(
        urls=_urls(options),
        access=access(options),
        table=table,
        columns=_columns(options, table),
        topic=options.get("topic"),
        selector=options.get("selector"),
        push_filters=_choice(options, "pushFilters", ("false", "true")) == "true",
        named_only=_choice(options, "brokers", ("network", "named")) == "named",
        starting=_bound(options, "startingOffsets", "earliest"),
        ending=_bound(options, "endingOffsets", "latest"),
        rows_per_batch=_count(options, "maxRowsPerBatch"),
        rows_per_task=_count(options, "rowsPerTask") or ROWS_PER_TASK,
        fail_on_data_loss=_choice(options, "failOnDataLoss", ("true", "false")) == "true",
        retry_s=_seconds(options),
        reader=_reader(options),
    )


def access(options: Mapping[str, str]) -> Access:
    """Who reads, and by which certificates."""
    from veena.spark.log.client import Access

    if "keyFile" in options and "certFile" not in options:
        raise wrong("keyFile", options["keyFile"], "a key without its certificate", "set certFile too")
    if "password" in options and "user" not in options:
        raise wrong("password", "", "a password without a user", "set user too")
    return Access(
        user=options.get("user", ""),
        password=options.get("password", ""),
        token=options.get("token", ""),
        client_id=options.get("clientId", ""),
        ca_file=options.get("caFile", ""),
        cert_file=options.get("certFile", ""),
        key_file=options.get("keyFile", ""),
    )


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """Options by the names they have here; `load("veena://...")` is the option `url`."""
    options: dict[str, str] = {}
    for key, value in given.items():
        name = "url" if key.lower() == "path" else _BY_LOWER.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), _BY_LOWER, 1, 0.5)
            remedy = f"did you mean {_BY_LOWER[near[0]]}?" if near else f"there are {', '.join(OPTIONS)}"
            raise wrong(key, value, "there is no such option for reading", remedy)
        if name in options:
            raise wrong(name, value, "given by option and by load(...)", "give it once")
        options[name] = value
    return options


def _urls(options: Mapping[str, str]) -> tuple[str, ...]:
    from veena.runtime.locator.client import locator_url
    from veena.runtime.transports.url import parse_url

    text = options.get("url", "")
    urls = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not urls:
        raise wrong("url", text, "no broker is named", 'set it, such as option("url", "veena://127.0.0.1:7700")')
    if len(urls) > MAX_URLS:
        raise wrong("url", text, f"{len(urls)} brokers", f"name at most {MAX_URLS}: the others are found through them")
    for url in urls:
        try:
            parse_url(locator_url(url) or url)
        except (VeenaError, ValueError) as error:
            raise wrong("url", url, str(error), "write veena://host:port, or veena+locator://host:port") from None
    return urls


def _columns(options: Mapping[str, str], table: str) -> tuple[str, ...]:
    if "columns" not in options:
        return tuple(TABLES[table])
    columns = tuple(part.strip() for part in options["columns"].split(",") if part.strip())
    unknown = [name for name in columns if name not in TABLES[table]]
    if unknown or not columns or len(set(columns)) < len(columns):
        reason = f"{table} has no {', '.join(unknown)}" if unknown else "name each column once, and at least one"
        raise wrong("columns", options["columns"], reason, f"choose from {', '.join(TABLES[table])}")
    return columns


def _check_filters(options: Mapping[str, str], table: str) -> None:
    from veena.matching import compile_selector

    for option in ("topic", "selector"):
        if option in options and table != "events":
            raise wrong(option, options[option], f"only events have it, not {table}", "leave it out, or read events")
    if options.get("topic") == "":
        raise wrong("topic", "", "a topic has at least one character", "leave it out to read all topics")
    if "selector" in options:
        try:
            compile_selector(options["selector"])
        except InvalidConstraint as error:
            raise wrong("selector", options["selector"], str(error), "see docs/SELECTORS.md") from None


def _bound(options: Mapping[str, str], option: str, without: Literal["earliest", "latest"]) -> Bound:
    text = options.get(option, without).strip()
    if text == "latest" or (text == "earliest" and option == "startingOffsets"):
        return "latest" if text == "latest" else "earliest"
    if text.startswith("{"):
        return _offsets(option, text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        ends = "earliest, latest" if option == "startingOffsets" else "latest"
        remedy = f'use {ends}, a time such as 2026-11-16T08:00:00Z, or JSON such as {{"site-1": 1200}}'
        raise wrong(option, text, "it says no place in a log", remedy) from None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def _offsets(option: str, text: str) -> dict[str, object]:
    from veena.spark.source.offsets import decode

    try:
        found = json.loads(text)
        decode(found)
    except ValueError as error:
        remedy = '{"site-1": 1200}, or {"site-1": {"log": 1200, "passed": 40}} with best-effort events'
        raise wrong(option, text, str(error), f"write {remedy}") from None
    return dict(found)


def _count(options: Mapping[str, str], option: str) -> int | None:
    if option not in options:
        return None
    text = options[option].strip()
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= MAX_ROWS:
        raise wrong(option, text, "it is no count of rows", f"write a whole number from 1 to {MAX_ROWS}")
    return int(text)


def _seconds(options: Mapping[str, str]) -> float:
    text = options.get("retrySeconds", str(RETRY_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_RETRY_S:
        raise wrong("retrySeconds", text, "it is no time", f"write seconds from 0 to {MAX_RETRY_S:g}")
    return seconds


def _choice(options: Mapping[str, str], option: str, choices: tuple[str, ...]) -> str:
    """One of the choices, the first of them where none was made."""
    text = options.get(option, choices[0]).strip().lower()
    if text not in choices:
        raise wrong(option, options[option], "it is neither", f"write {' or '.join(choices)}")
    return text


def _reader(options: Mapping[str, str]) -> str | None:
    name = options.get("reader")
    if name is not None and not 1 <= len(name) <= 64:
        raise wrong("reader", name, f"{len(name)} characters", "name it in 1 to 64 characters")
    return name
