"""`veena status`: how running brokers are doing, a row each; once, or again and again."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.error import URLError
from urllib.parse import urlsplit

import typer

from veena.cli import EXIT_BROKEN
from veena.cli.connection import CaOption, JsonOption, UserOption, client, password_of, run, split_given, trust
from veena.errors import ConfigError, LocalProtocolError, VeenaError

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

#: Brokers that are asked at the same time, and how much one may say.
AT_ONCE = 16
MAX_STATUS_BYTES = 16 << 20
#: Where a broker's monitoring has its numbers.
PAGE = "/statusz"
#: Columns that a narrow terminal can do without, the first to go first; --json has them all.
EXPENDABLE = ("version", "name", "step", "profiles", "log", "memory", "up", "waiting")


def status(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL",
            envvar="VEENA_URL",
            help="Brokers, such as veena://127.0.0.1:7700, or their monitoring, such as http://127.0.0.1:7780.",
            callback=split_given,
        ),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option("--network", help="Every broker of this network file (with `listen`; see `network up --data`)."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C, with events a second.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks with --watch.")] = 2.0,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Stop watching after so many looks.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that a broker has to answer.")] = 5.0,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """How brokers are doing: clients, profiles, links, events, log, queues, memory.

    Exit code 1 when one of them did not answer; a line says why.
    """
    wanted = _targets(urls, network)
    look = _Look(wanted, user, password_of(user), ca, timeout)
    if watch:
        run(_watch(look, every, rounds, as_json), is_endless=rounds is None)
    else:
        run(_once(look, as_json))


def _targets(urls: list[str] | None, network: Path | None) -> list[str]:
    from veena.client.client import DEFAULT_URL
    from veena.runtime.transports.url import parse_url

    found = (urls or [DEFAULT_URL]) if network is None else _listening(network)
    for url in found:
        if urlsplit(url).scheme not in ("http", "https"):
            parse_url(url)  # says what is wrong with it
    return found


def _listening(file: Path) -> list[str]:
    from veena.runtime.networks.file import load_network

    found: list[str] = []
    for broker in load_network(file).brokers:
        if not broker.listen:
            remedy = "name the network.toml that `veena network up FILE --data DIR` writes to DIR, or URLs"
            raise ConfigError(str(file), f"broker {broker.label}", "says not where it listens", remedy)
        found.append(broker.listen[0])
    return found


class _Look:
    """Asks every broker once."""

    def __init__(self, urls: list[str], user: str, password: str, ca: Path | None, timeout: float) -> None:
        self._urls = urls
        self._user = user
        self._password = password
        self._ca = ca
        self._timeout = timeout
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def all(self) -> list[dict[str, Any]]:
        """A row a broker, in the order of the URLs; one that did not answer has `error` and `code`."""
        return list(await asyncio.gather(*map(self._one, self._urls)))

    async def _one(self, url: str) -> dict[str, Any]:
        async with self._turns:
            try:
                if urlsplit(url).scheme in ("http", "https"):
                    found = await asyncio.to_thread(_fetch, url, self._timeout, self._ca)
                else:
                    async with asyncio.timeout(2 * self._timeout):  # to be let in, and to be answered
                        found = await self._ask(url)
            except VeenaError as error:
                return {"url": url, "error": str(error), "code": error.code}
            except TimeoutError:
                reason = f"no answer within {self._timeout:g} s: is it overloaded, or stopped?"
                return {"url": url, "error": reason, "code": None}
        return {"url": url, **summary(found)}

    async def _ask(self, url: str) -> dict[str, Any]:
        connected = client([url], None, self._user, self._ca, password=self._password, timeout=self._timeout)
        async with connected:
            found = await connected.status(timeout=self._timeout)
        found["clients"]["clients"] -= 1  # who asks is none of those that it asks about
        return found


def _fetch(url: str, timeout: float, ca: Path | None) -> dict[str, Any]:
    from urllib.request import urlopen

    tls = trust(ca) if url.startswith("https") else None
    page = url if urlsplit(url).path.strip("/") else url.rstrip("/") + PAGE
    try:
        with urlopen(page, timeout=timeout, context=tls) as response:  # noqa: S310 (http and https alone come here)
            found: dict[str, Any] = json.loads(response.read(MAX_STATUS_BYTES))
    except URLError as error:
        raise LocalProtocolError(f"{page}: {error.reason}; name the [http] listen place of a broker") from None
    except (OSError, ValueError) as error:
        raise LocalProtocolError(f"{page}: {error}; name the [http] listen place of a broker") from None
    if "broker" not in found:
        raise LocalProtocolError(f"{page}: is not the status of a broker; name its [http] listen place")
    return found


def summary(told: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one row, out of everything that a broker says of itself."""
    broker, store, parts = told["broker"], told["store"], told.get("supervision", {})
    renewal, loop = told.get("renewal", {}), told.get("loop", {})
    links = [link for link in broker["links"] if link["state"] != "closed"]
    return {
        "address": told.get("label") or told.get("address") or ".".join(map(str, broker["address"])),
        "name": told["name"],
        "network": told["network"],
        "version": told.get("version", "?"),
        "uptime_s": told["uptime_s"],
        "clients": told["clients"]["clients"],
        "subscriptions": broker["profiles"]["subscriptions"],
        "over_quota": broker["profiles"].get("over_quota", 0),
        "lies": broker["profiles"].get("lies", 0),
        "refused_statements": broker.get("signatures", {}).get("refused", 0),
        "early": broker["profiles"].get("early", 0),
        "clock_ahead_s": broker["profiles"].get("clock_ahead_s", 0),
        "durable": broker["durables"]["durables"],
        "kept": broker["durables"].get("users", []),
        "profiles": broker["profiles"]["rows"],
        "told": broker["profiles"].get("climbing", []),
        "links": sum(link["state"] == "open" for link in links),
        "suspected": sum(link["state"] == "suspected" for link in links),
        "events_in": broker["origin"]["accepted"] + broker["router"]["copies_in"],
        "events_out": broker["ends"]["delivered"] + broker["router"]["copies_out"],
        "accepted": broker["origin"]["accepted"],
        "delivered": broker["ends"]["delivered"],
        "log_bytes": store["used_bytes"],
        "log_events": store["next_offset"],
        "waiting": {
            "units": broker["origin"]["open"],
            "links": sum(link["waiting"] for link in links),
            "clients": broker["outlet"]["waiting"],
            "disk": store["waiting"],
        },
        "memory_bytes": told.get("memory_bytes"),
        "records": told.get("records"),
        "trouble": store["trouble"] or parts.get("trouble"),
        "parts_ended": parts.get("ended", 0),
        "last_failure": parts.get("last", ""),
        "renewed": renewal.get("renewed", 0),
        "last_renewal": renewal.get("last", ""),
        "longest_step_s": loop.get("longest_s"),
        "longest_step_ever_s": loop.get("longest_ever_s"),
        "longest_step": loop.get("longest_cause", ""),
        "long_steps": loop.get("over_limit", 0),
    }


async def _once(look: _Look, as_json: bool) -> None:
    rows = await look.all()
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        from rich.console import Console

        console = Console(highlight=False)
        console.print(_drawn(console, rows, {}))
        _say_troubles(rows)
    if any("error" in row for row in rows):
        raise typer.Exit(EXIT_BROKEN)


async def _watch(look: _Look, every: float, rounds: int | None, as_json: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    before: dict[str, tuple[float, dict[str, Any]]] = {}
    console = Console(highlight=False)
    rows: list[dict[str, Any]] = []
    with Live(console=console, auto_refresh=False, transient=False) if not as_json else _Silence() as live:
        seen = 0
        while rounds is None or seen < rounds:
            if seen:
                await asyncio.sleep(every)
            rows, now = await look.all(), time.monotonic()
            rates = {row["url"]: rate for row in rows if (rate := _rate(row, before.get(row["url"]), now)) is not None}
            before = {row["url"]: (now, row) for row in rows if "error" not in row}
            if as_json:
                for row in rows:
                    print(json.dumps({**row, "rates": rates.get(row["url"])}), flush=True)
            else:
                assert isinstance(live, Live)
                live.update(_drawn(console, rows, rates), refresh=True)
            seen += 1
    if any("error" in row for row in rows):
        raise typer.Exit(EXIT_BROKEN)


class _Silence:
    """Nothing is drawn where JSON is printed."""

    def __enter__(self) -> _Silence:
        return self

    def __exit__(self, *error: object) -> None: ...


def _rate(row: dict[str, Any], before: tuple[float, dict[str, Any]] | None, now: float) -> dict[str, float] | None:
    """Events a second since the last look."""
    if before is None or "error" in row or row["uptime_s"] < before[1]["uptime_s"]:
        return None  # it was started again meanwhile: its counts began anew
    if row["renewed"] != before[1]["renewed"]:
        return None  # its core was made anew
    span = max(now - before[0], 1e-9)
    return {name: round((row[name] - before[1][name]) / span, 1) for name in ("events_in", "events_out")}


def _say_troubles(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row.get("trouble"):
            print(f"{row['address']}: {row['trouble']}", file=sys.stderr)
        elif row.get("parts_ended"):
            times, last = row["parts_ended"], row["last_failure"]
            print(f"{row['address']}: threads or tasks ended and run again: {times}, last {last}", file=sys.stderr)
        for user in (each for each in row.get("kept", ()) if each["suspended"]):
            print(
                f"{row['address']}: user {user['user']} has its share of the store: {_bytes(user['kept_bytes'])} of"
                f" {_bytes(user['share_bytes'])} wait for its durable subscriptions, {user['suspended']} of these are"
                f" suspended, {user['missed']} events were not kept",
                file=sys.stderr,
            )
        if row.get("renewed"):
            told = f"core made anew: {row['renewed']}, last after {row['last_renewal']}; see `veena broker quarantine`"
            print(f"{row['address']}: {told}", file=sys.stderr)
        if row.get("long_steps"):
            longest = f"the longest took {1000 * row['longest_step_ever_s']:.0f} ms: {row['longest_step']}"
            told = f"{row['long_steps']} steps took more than 50 ms of CPU, {longest}"
            print(f"{row['address']}: {told}", file=sys.stderr)
        if row.get("early"):
            told = f"{row['early']} frames, the last from {row['clock_ahead_s']} s ahead of this broker's clock"
            print(f"{row['address']}: the clocks of brokers differ: {told}; set all of them (NTP)", file=sys.stderr)
        if row.get("refused_statements"):
            told = f"statements of other units refused for their signatures: {row['refused_statements']}"
            print(f"{row['address']}: {told}; see docs/SECURITY.md, What brokers sign", file=sys.stderr)
        if row.get("lies"):
            told = f"others have spoken in the name of this broker or its units {row['lies']} times"
            print(f"{row['address']}: {told}; see docs/OPERATIONS.md, Clocks and lies", file=sys.stderr)


def _drawn(console: Console, rows: list[dict[str, Any]], rates: dict[str, dict[str, float]]) -> Group:
    """A table of those that answered, as much of it as there is room for, and under it why others did not."""
    from rich.console import Group
    from rich.text import Text

    answered = [row for row in rows if "error" not in row]
    silent = [Text(f"{row['url']}: {row['error']}", style="red") for row in rows if "error" in row]
    if not console.is_terminal:  # a file or a pipe has room for all
        all_of_it: list[Table | Text] = [*silent, *([_table(answered, rates, ())] if answered else [])]
        console.width = max([console.width, *(_width(console, each) for each in all_of_it)])
    if not answered:
        return Group(*silent)
    left_out = 0
    table = _table(answered, rates, ())
    while _width(console, table) > console.width and left_out < len(EXPENDABLE):
        left_out += 1
        table = _table(answered, rates, EXPENDABLE[:left_out])
    return Group(table, *silent)


def _width(console: Console, drawn: Table | Text) -> int:
    return console.measure(drawn, options=console.options.update(max_width=10_000)).maximum


def _table(rows: list[dict[str, Any]], rates: dict[str, dict[str, float]], without: tuple[str, ...]) -> Table:
    from rich import box
    from rich.table import Table

    if all(row["name"] == row["address"] for row in rows):
        without = (*without, "name")
    networks = dict.fromkeys(row["network"] for row in rows)
    table = Table(title=", ".join(networks), box=box.SIMPLE_HEAD)
    cells = [_cells(row, rates.get(row["url"], {})) for row in rows]
    for column in cells[0]:
        if column not in without:
            is_text = column in ("broker", "name", "version")
            table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for each in cells:
        table.add_row(*(text for name, text in each.items() if name not in without))
    table.caption = (
        "subs: subscriptions here (d: durable, !: refused by a quota);"
        " profiles: those told by others as well, and some that are over;"
        " in: accepted and from links;"
        " out: delivered and to links; step: CPU time of the longest turn of late;"
        " waiting: events for units / links / clients / the disk; ?: suspected"
    )
    return table


def _cells(row: dict[str, Any], rate: dict[str, float]) -> dict[str, str]:
    from rich.markup import escape

    waiting = row["waiting"]
    return {
        "broker": escape(row["address"]),
        "name": escape(row["name"]),
        "version": escape(row["version"]),
        "up": _span(row["uptime_s"]),
        "clients": str(row["clients"]),
        "subs": _subscriptions(row),
        "profiles": str(row["profiles"]),
        "links": str(row["links"]) + (f" [red]+{row['suspected']}?[/]" if row["suspected"] else ""),
        "in": _count(row["events_in"], rate.get("events_in")),
        "out": _count(row["events_out"], rate.get("events_out")),
        "log": ("[red]! [/]" if row["trouble"] else "") + _bytes(row["log_bytes"]),
        "waiting": "/".join(str(waiting[name]) for name in ("units", "links", "clients", "disk")),
        "step": "?" if row["longest_step_s"] is None else f"{1000 * row['longest_step_s']:.0f} ms",
        "memory": "?" if row["memory_bytes"] is None else _bytes(row["memory_bytes"]),
    }


def _subscriptions(row: dict[str, Any]) -> str:
    durable = f" +{row['durable']}d" if row["durable"] else ""
    return f"{row['subscriptions']}{durable}" + (f" [red]-{row['over_quota']}![/]" if row["over_quota"] else "")


def _count(number: int, rate: float | None) -> str:
    return f"{number:,}" if rate is None else f"{number:,} ({rate:,.0f}/s)"


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"


def _span(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {left}s" if minutes else f"{left}s"


def register(root: typer.Typer) -> None:
    root.command()(status)
