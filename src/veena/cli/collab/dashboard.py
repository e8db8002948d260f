"""`veena dashboard`: the portal, as a web server for browsers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli.connection import SECURE, CaOption, UrlOption, trust
from veena.errors import ConfigError

if TYPE_CHECKING:
    from veena.client import Client
    from veena.dashboard.sessions.collaboratory import Adviser, Member

#: Rows of each kind that a page gets of the archive.
MAX_ARCHIVED = 500


def dashboard(
    url: UrlOption = None,
    listen: Annotated[str, typer.Option("--listen", help="host:port; port 0 takes a free one.")] = "127.0.0.1:7790",
    certificate: Annotated[Path | None, typer.Option("--certificate", help="For https: the portal's chain.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="For https: the key of the certificate.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Open it to other machines without TLS, or without users.")
    ] = False,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option("--trusted-proxy", help="Believe X-Forwarded-For and -Proto of this address or network; several."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", help="Where a proxy shows the pages, such as https://portal.example.org; several."),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option("--control", help="The control.json of a running `veena network up`, for the adviser's page."),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option("--archive", help="An archive of `veena pipeline archive`, for the page with one's history."),
    ] = None,
    live: Annotated[
        Path | None,
        typer.Option("--live", help="The --out of a running `veena pipeline analyze --follow`, for the traffic page."),
    ] = None,
    ca: CaOption = None,
) -> None:
    """Pages for browsers: topology, traffic, traces, discovery, and the collaboratory. People sign in on the page.

    They sign in as users of the broker, and see and do what their roles allow; where the broker has no users, a name is
    enough. Beyond this machine it needs --certificate and --key, and a broker with users.
    """
    try:
        from veena.dashboard.portal import Listening, Parts, serve
    except ImportError as error:
        raise ConfigError(
            "dashboard", "package", f"is not complete: {error}", "install it by `pip install 'veena[dashboard]'`"
        ) from None
    from veena.client.client import DEFAULT_URL
    from veena.dashboard.pages.live_panel import LiveFile
    from veena.dashboard.sessions.signing import Door
    from veena.runtime.config.reader import split_place

    host, port = split_place(listen)
    if port is None:
        raise ConfigError("dashboard", "--listen", f"is {listen!r}", "write host:port, such as 127.0.0.1:7790")
    urls = tuple(url or [DEFAULT_URL])
    is_secure = any(each.startswith(SECURE) for each in urls)
    tls = trust(ca) if is_secure else None

    past = None if archive is None else _Archive(archive).history
    watched = None if live is None else LiveFile(live)
    parts = Parts(_member_of, lambda dial: _adviser(urls, dial, control), past, watched)
    with suppress(KeyboardInterrupt, asyncio.CancelledError):  # the web server hears signals itself
        listening = Listening(host, port, certificate, key, insecure, tuple(trusted_proxy or ()), tuple(origin or ()))
        asyncio.run(serve(listening, Door(urls, tls), parts, _say))


def _say(place: str) -> None:
    print(f"the portal is at {place}", flush=True)
    print("Ctrl-C ends it", file=sys.stderr, flush=True)


async def _member_of(client: Client) -> Member:
    from veena.services.member.member import Member

    return await Member(client).open()


class _Archive:
    """What people ask of the archive: one after the other, because each question takes all of a Spark."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise ConfigError("dashboard", "--archive", f"names {directory}, which is no directory", "check the path")
        self._directory = directory
        self._turn = asyncio.Lock()

    async def history(self, client: str) -> list[dict[str, Any]]:
        async with self._turn:
            return await asyncio.to_thread(archived_history, self._directory, client)


def archived_history(archive: Path, client: str, limit: int = MAX_ARCHIVED) -> list[dict[str, Any]]:
    """What a client consumed and produced by the archive, the newest first."""
    from pyspark.sql import functions as F  # noqa: N812

    from veena.spark.analyze.history import KINDS, history
    from veena.spark.launch.session import session

    spark = session("local[2]", "veena-dashboard")  # it may not take all of the machine
    found: list[dict[str, Any]] = []
    for kind in KINDS:
        rows = history(spark, str(archive), client, kind).orderBy(F.desc("at")).limit(limit).collect()
        found += [{"kind": kind, **row.asDict()} for row in rows]
    return sorted(found, key=lambda row: row["at"], reverse=True)


def _adviser(urls: Sequence[str], dial: Callable[[str], Client], control: Path | None) -> Adviser:
    from veena.runtime.fleet.control import FleetControl
    from veena.services.adviser.live import Adviser

    return Adviser(urls, dial, None if control is None else FleetControl(control))


def register(root: typer.Typer) -> None:
    root.command()(dashboard)
