"""What all commands that talk to a broker have in common: where it is, who asks, and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from veena.client import Client

UrlOption = Annotated[
    list[str] | None,
    typer.Option("--url", "-u", envvar="VEENA_URL", help="A broker, such as veena://127.0.0.1:7700; several in turn."),
]
ClientIdOption = Annotated[str | None, typer.Option("--client-id", help="The client's id; a new one without.")]
UserOption = Annotated[str, typer.Option("--user", envvar="VEENA_USER", help="Sign in as this user.")]
CaOption = Annotated[Path | None, typer.Option("--ca", help="Trust brokers with certificates of this authority.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for scripts, a line each.")]


def password_of(user: str) -> str:
    """$VEENA_PASSWORD, or asked for; nothing without a user."""
    password = os.environ.get("VEENA_PASSWORD", "")
    if user and not password and not os.environ.get("VEENA_TOKEN"):
        password = str(typer.prompt("password", hide_input=True, err=True))
    return password


def client(
    url: list[str] | None,
    client_id: str | None,
    user: str,
    ca: Path | None,
    *,
    password: str | None = None,
    timeout: float | None = None,
) -> Client:
    """A client that is not connected yet."""
    from veena.client import connect
    from veena.client.client import CONNECT_S, DEFAULT_URL

    urls = url or [DEFAULT_URL]
    is_secure = any(each.startswith(("veenas", "wss")) for each in urls)
    tls = ssl.create_default_context(cafile=None if ca is None else str(ca)) if is_secure else None
    given = password_of(user) if password is None else password
    return connect(
        urls,
        client_id=client_id,
        user=user,
        password=given,
        token=os.environ.get("VEENA_TOKEN", ""),
        tls=tls,
        timeout=CONNECT_S if timeout is None else timeout,
    )


def run(work: Coroutine[Any, Any, None]) -> None:
    """Do it until it is done, or until Ctrl-C: that is an ordinary end."""
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(work)
