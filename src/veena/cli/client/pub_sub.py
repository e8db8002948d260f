"""`veena pub` and `veena sub`: publish from the shell, and see what comes."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli import EXIT_BROKEN
from veena.cli.connection import CaOption, ClientIdOption, JsonOption, UrlOption, UserOption, client, run
from veena.cli.plain import one_line
from veena.cli.stdin import lines as read_lines
from veena.cli.stdin import read_all
from veena.errors import InvalidEvent, LocalProtocolError, VeenaError

if TYPE_CHECKING:
    from veena.client import Client
    from veena.event import Event, Value

#: Events that are published by one call when there are many: reliable ones are accepted while others are on their way.
BATCH = 4_000
#: How long the broker may take to read the last events.
FLUSH_S = 10.0
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def value_of(text: str) -> Value:
    """A property's value as one would write it in JSON; anything else is text."""
    with suppress(ValueError):
        value = json.loads(text)
        if value is None or isinstance(value, bool | int | float | str):
            return value
    return text


def properties_of(pairs: Iterable[str], what: str = "--property") -> dict[str, Value]:
    found: dict[str, Value] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidEvent(f"{what} {pair!r}: expected name=value")
        found[name] = value_of(value)
    return found


def namespaces_of(pairs: Iterable[str]) -> dict[str, str] | None:
    found = dict(pair.partition("=")[::2] for pair in pairs)
    if not all(found) or not all(found.values()):
        raise LocalProtocolError("--namespace: expected prefix=URI, such as m=http://example.org/menu")
    return found or None


def since_of(text: str | None) -> datetime | timedelta | None:
    """`10m` ago, or a time such as 2026-01-31T12:00."""
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    if unit in UNITS_S and number.replace(".", "", 1).isdigit():
        return timedelta(seconds=float(number) * UNITS_S[unit])
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise LocalProtocolError(f"--since {text!r}: expected 90s, 10m, 2h, 1d or a time as 2026-01-31T12:00") from None


def pub(
    body: Annotated[str | None, typer.Argument(help="The body; without, standard input is read.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Such as quotes or quotes.nyse.")] = None,
    tags: Annotated[str | None, typer.Option("--tags", help="Such as Make=Ford,Color=Red.")] = None,
    integer: Annotated[int | None, typer.Option("--integer", help="For who asks for this number.")] = None,
    xml: Annotated[Path | None, typer.Option("--xml", help="A file with an XML document.")] = None,
    prop: Annotated[list[str] | None, typer.Option("--property", "-p", help="name=value; again for more.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="name=value; again for more.")] = None,
    to: Annotated[list[str] | None, typer.Option("--to", help="Only for this client; again for more.")] = None,
    priority: Annotated[int, typer.Option(min=0, max=9, help="Higher ones overtake lower ones.")] = 4,
    ttl: Annotated[float | None, typer.Option(help="Seconds after which nobody needs it.")] = None,
    reliable: Annotated[bool, typer.Option("--reliable", "-r", help="Wait until it is on the broker's disk.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="An event for every line of standard input.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Publish it so many times.")] = 1,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish an event, or with --lines one for every line that comes in. With --json their ids are printed."""
    from veena.event import Event

    fields: dict[str, Any] = {
        "topic": topic,
        "tags": tags,
        "integer": integer,
        "xml": None if xml is None else xml.read_bytes(),
        "properties": properties_of(prop or ()),
        "headers": properties_of(header or (), "--header"),
        "to": tuple(to or ()),
        "priority": priority,
        "ttl": ttl,
    }

    if lines and (body is not None or count > 1):
        raise LocalProtocolError("--lines takes bodies from standard input, each once: leave out the body and --count")
    if not any((*(each is not None for each in (topic, tags, integer, xml)), prop, header, to)):
        raise InvalidEvent("nobody can ask for this event: give it a --topic, --tags, --integer, --xml, --property")
    bodies = read_lines() if lines else _again(read_all() if body is None else body.encode(), count)
    run(_publish(client(url, client_id, user, ca), bodies, lambda each: Event(**fields, body=each), reliable, as_json))


async def _again(body: bytes, count: int) -> AsyncIterator[list[bytes]]:
    for done in range(0, count, BATCH):
        yield [body] * min(BATCH, count - done)


async def _publish(
    client: Client,
    bodies: AsyncIterator[list[bytes]],
    event: Callable[[bytes], Event],
    reliable: bool,
    as_json: bool,
) -> None:
    published = 0
    async with client:
        async for found in bodies:
            for at in range(0, len(found), BATCH):
                ids: list[str] = []
                try:
                    ids = await client.publish_many([event(each) for each in found[at : at + BATCH]], reliable=reliable)
                except VeenaError as error:
                    ids = [each for each in error.published or () if each is not None]
                    if published:
                        print(f"{published} events were published before", file=sys.stderr)
                    raise
                finally:
                    published += len(ids)
                    if as_json and ids:
                        print("\n".join(json.dumps({"id": each}) for each in ids), flush=True)
        if published and not reliable:
            await client.flush(FLUSH_S)  # what the broker refuses is told only to who is still there
        denied = 0 if reliable else client.statistics().denied
    if denied:
        print(f"{denied} of {published} events were refused", file=sys.stderr)
        raise typer.Exit(EXIT_BROKEN)
    if not as_json and published > 1:
        print(f"{published} events published", file=sys.stderr)


def as_dict(event: Event) -> dict[str, Any]:
    """An event as JSON has it: a body that is text as text, any other in base64."""
    found: dict[str, Any] = {"id": str(event.id)}
    for name in ("topic", "integer", "tags"):
        value = getattr(event, name)
        if value is not None:
            found[name] = dict(value) if name == "tags" else value
    if event.xml is not None:
        found["xml"] = event.xml if isinstance(event.xml, str) else bytes(event.xml).decode(errors="replace")
    for name in ("properties", "headers"):
        values = getattr(event, name)
        if values:
            found[name] = {
                key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
                for key, value in values.items()
            }
    try:
        found["body"] = bytes(event.body).decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(bytes(event.body)).decode()
    if event.redelivered:
        found["redelivered"] = True
    return found


def as_line(event: Event) -> str:
    """An event as people read it, in one line."""
    parts: list[str] = [str(each) for each in (event.topic, event.integer) if each is not None]
    if event.tags:
        tags = event.tags if isinstance(event.tags, str) else ",".join(f"{k}={v}" for k, v in event.tags.items())
        parts.append(tags)
    parts += [f"{name}={value!r}" for name, value in event.properties.items()]
    body = bytes(event.body).decode(errors="backslashreplace")
    return one_line(" ".join([*parts, body] if body else parts))


def sub(
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Such as quotes: that topic alone.")] = None,
    selector: Annotated[
        str | None, typer.Option("--selector", "-s", help="SQL-92 over properties, with --topic: price > 10.")
    ] = None,
    tags: Annotated[str | None, typer.Option("--tags", help="Such as Make=Ford,Model=*.")] = None,
    integer: Annotated[int | None, typer.Option("--integer", help="Events with this number.")] = None,
    xpath: Annotated[str | None, typer.Option("--xpath", help="Over XML: /menu/softdrinks/price > 1.8.")] = None,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", help="prefix=URI for --xpath; again for more.")
    ] = None,
    constraint: Annotated[
        str | None, typer.Option("--constraint", help="Trader Constraint Language over properties: load > 0.5.")
    ] = None,
    durable: Annotated[str, typer.Option("--durable", help="Keep what comes under this name; needs --client-id.")] = "",
    group: Annotated[str, typer.Option("--group", help="Share it: of the group's members one gets each event.")] = "",
    scope: Annotated[str, typer.Option(help="cluster, super-cluster, super-super-cluster or system.")] = "system",
    since: Annotated[str | None, typer.Option("--since", help="Also the past: 10m, 2h, or a time.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many events.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Stop after so many seconds without one.")
    ] = None,
    body_only: Annotated[bool, typer.Option("--body", help="Print bodies alone, as they are.")] = False,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print events as they come, a line each; exit code 1 when --count was not reached in time."""
    wanted: dict[str, Any] = {
        "topic": topic,
        "selector": selector,
        "tags": tags,
        "integer": integer,
        "xpath": xpath,
        "namespaces": namespaces_of(namespace or ()),
        "constraint": constraint,
        "durable": durable or False,
        "group": group,
        "scope": scope,
        "since": since_of(since),
    }
    show = _show_body if body_only else _show_json if as_json else _show_line
    run(_listen(client(url, client_id, user, ca), wanted, count, timeout, show), is_endless=count is None)


def _show_body(event: Event) -> None:
    sys.stdout.buffer.write(bytes(event.body) + b"\n")
    sys.stdout.flush()


def _show_json(event: Event) -> None:
    print(json.dumps(as_dict(event)), flush=True)


def _show_line(event: Event) -> None:
    print(as_line(event), flush=True)


async def _listen(
    client: Client, wanted: dict[str, Any], count: int | None, timeout: float | None, show: Callable[[Event], None]
) -> None:
    from veena.errors import TimedOut

    async with client:
        subscription = await client.subscribe(**wanted)
        if not subscription.is_active:
            print("not every broker has heard of this subscription yet; it goes on", file=sys.stderr)
        seen = 0
        while count is None or seen < count:
            try:
                show(await subscription.next(timeout))
            except TimedOut:
                break
            seen += 1
    if count is not None and seen < count:
        print(f"{seen} of {count} events came within {timeout:g} s", file=sys.stderr)
        raise typer.Exit(EXIT_BROKEN)


def register(root: typer.Typer) -> None:
    root.command()(pub)
    root.command()(sub)
