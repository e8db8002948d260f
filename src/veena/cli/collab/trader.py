"""`veena trader`: which applications there are, by constraints over what they offer."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli.connection import CaOption, ClientIdOption, JsonOption, UrlOption, UserOption, client, run
from veena.cli.plain import cell

if TYPE_CHECKING:
    from veena.client import Client
    from veena.services.trading.offers import Found, Offer

app = typer.Typer(help="Find offers of applications by constraints.", no_args_is_help=True)

TypeOption = Annotated[str, typer.Option("--type", help="The service type; offers of types below it too.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for answers.")]


@app.command()
def query(
    constraint: Annotated[str, typer.Argument(help="Such as \"name == 'heat' and category == 'junior'\".")] = "",
    properties: Annotated[str | None, typer.Option("--properties", help="Only these, by commas.")] = None,
    service_type: TypeOption = "Application",
    domain: Annotated[int | None, typer.Option("--domain", min=0, help="Only in the domain of this number.")] = None,
    limit: LimitOption = 100,
    timeout: TimeoutOption = 2.0,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the trader of one's own domain, which asks linked ones when it finds nothing.

    Exit code 1 when somebody who was asked did not answer in time (it is named).
    """
    wanted = None if properties is None else tuple(name.strip() for name in properties.split(",") if name.strip())

    async def ask() -> None:
        from veena.services.trading.resolver import Resolver
        from veena.services.trading.service_types import ServiceTypes

        # Whoever wrote it wrong hears of that, whether or not a broker is there.
        ServiceTypes.standard().check_constraint(service_type, constraint)
        async with client(url, client_id, user, ca) as connected:
            found = await Resolver(connected).find(
                constraint, service_type=service_type, domain=domain, properties=wanted, limit=limit, timeout=timeout
            )
        _show(found, as_json)

    run(ask())


@app.command()
def offers(
    service_type: TypeOption = "Application",
    limit: LimitOption = 1000,
    timeout: TimeoutOption = 2.0,
    url: UrlOption = None,
    client_id: ClientIdOption = None,
    user: UserOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every offer in the whole system, as the mesh's own registry has them."""
    run(_offers(client(url, client_id, user, ca), service_type, limit, timeout, as_json))


async def _offers(connected: Client, service_type: str, limit: int, timeout: float, as_json: bool) -> None:
    from veena.services.trading.federation import Central
    from veena.services.trading.messages import Question

    async with connected:
        question = Question("offers", service_type, "", limit=limit, deadline_ms=round(timeout * 1000))
        found = await Central(connected).find(question)
    _show(found, as_json)


def _show(found: Found, as_json: bool) -> None:
    if as_json:
        for offer in found.offers:
            print(json.dumps(asdict(offer)))
        told = {"found": len(found.offers), "forwarded": found.forwarded, "missing": found.missing}
        print(json.dumps({**told, "complete": found.complete, "answered_by": found.answered_by}))
    else:
        _table(found)
        for each in found.missing:
            print(f"no answer from {each}", file=sys.stderr)
    if found.missing:
        raise typer.Exit(1)


def _table(found: Found) -> None:
    from rich.console import Console
    from rich.table import Table

    values = [_values(offer) for offer in found.offers]
    columns = list(dict.fromkeys(name for each in values for name in each if name not in ("name", "network")))
    who = f"trader {found.answered_by}" if found.answered_by else "the mesh"
    where = ", asked other domains" if found.forwarded else ""
    title = f"{len(found.offers)} found by {who}{where}{'; there are more' if found.truncated else ''}"
    table = Table("name", "type", "reference", "client", *map(cell, columns), title=cell(title))
    for offer, each in zip(found.offers, values, strict=True):
        table.add_row(
            *map(cell, (offer.name, offer.service_type, offer.reference, offer.client)),
            *(cell(each.get(name, "")) for name in columns),
        )  # fmt: skip
    Console().print(table)


def _values(offer: Offer) -> dict[str, Any]:
    return {**offer.properties, **offer.details}


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="trader")
