"""`veena services`: the services of a domain, in one process."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from veena.cli.connection import CaOption, ClientIdOption, JsonOption, UrlOption, UserOption, client, run

if TYPE_CHECKING:
    from veena.client import Client
    from veena.services.domain.services import DomainServices

app = typer.Typer(help="Registry, resolver, subscription, aggregation and access of a domain.", no_args_is_help=True)


@app.command(name="run")
def run_services(
    domain: Annotated[str, typer.Option("--domain", help="The domain's name; its network number without.")] = "",
    link: Annotated[
        list[str] | None, typer.Option("--link", help="A domain to ask when nothing is found here; again for more.")
    ] = None,
    central: Annotated[
        bool, typer.Option("--central", help="One registry for all domains instead of links between traders.")
    ] = False,
    types: Annotated[Path | None, typer.Option("--types", help="A TOML file with service types of your own.")] = None,
    seconds: Annotated[float | None, typer.Option("--for", help="Stop after so many seconds.")] = None,
    every: Annotated[
        float | None, typer.Option("--every", min=0.1, help="Print statistics every so many seconds, as JSON.")
    ] = None,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the services of the domain that the broker at --url is in, until Ctrl-C or SIGTERM.

    Several may run in a domain. The last line is what they did, as JSON.
    """
    back_end: Literal["central", "federation"] = "central" if central else "federation"
    work = _serve(client(url, client_id, user, ca), domain, tuple(link or ()), back_end, types, seconds, every, as_json)
    run(work, is_endless=True)


async def _serve(
    connected: Client,
    domain: str,
    links: tuple[str, ...],
    back_end: Literal["central", "federation"],
    types: Path | None,
    seconds: float | None,
    every: float | None,
    as_json: bool,
) -> None:
    from veena.services.domain.services import DomainServices
    from veena.services.trading.service_types_file import load_service_types

    known = None if types is None else load_service_types(types)
    async with (
        connected,
        DomainServices(connected, domain, links=links, types=known, back_end=back_end) as services,
    ):
        if as_json:
            ready = {"ready": True, "domain": services.name, "network": services.network, "links": links}
            print(json.dumps(ready), flush=True)
        else:
            told = f", linked to {', '.join(links)}" if links else ""
            print(f"domain {services.name} (network {services.network}){told}; Ctrl-C ends it", file=sys.stderr)
        try:
            await _wait(services, seconds, every)
        finally:
            _print(services)


async def _wait(services: DomainServices, seconds: float | None, every: float | None) -> None:
    async def report() -> None:
        while every is not None:
            await asyncio.sleep(every)
            _print(services)

    reporting = asyncio.get_running_loop().create_task(report())
    try:
        async with asyncio.timeout(seconds):
            await services.wait_moved()
    except TimeoutError:
        return
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)


def _print(services: DomainServices) -> None:
    print(json.dumps(asdict(services.statistics())), flush=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="services")
