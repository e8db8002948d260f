"""What all commands that talk to a broker have in common: where it is, who asks, and Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import ssl
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.errors import LocalProtocolError
from veena.runtime.transports.certificate import first_name
from veena.runtime.transports.secret_files import check_secret

if TYPE_CHECKING:
    from veena.client import Client

#: How the URLs of brokers inside TLS begin.
SECURE = ("veenas", "tls", "wss")


def split_given(given: list[str] | None) -> list[str] | None:
    """The URLs of a command line or of $VEENA_URL, where blanks or commas separate them, or both."""
    from veena.errors import ConfigError
    from veena.runtime.transports.url import split_urls

    if not given:
        return given
    text = re.sub(r"\s*,\s*", ",", " ".join(given).strip())
    try:
        return [url for each in text.split() for url in split_urls(each)]
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


UrlOption = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        "-u",
        envvar="VEENA_URL",
        help="A broker, such as veena://127.0.0.1:7700; several in turn, or separated by commas.",
        callback=split_given,
    ),
]
ClientIdOption = Annotated[str | None, typer.Option("--client-id", help="The client's id; a new one without.")]
UserOption = Annotated[str, typer.Option("--user", envvar="VEENA_USER", help="Sign in as this user.")]
CaOption = Annotated[Path | None, typer.Option("--ca", help="Trust brokers with certificates of this authority.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for scripts, a line each.")]


class _Teller(logging.Handler):
    """Says on standard error what becomes of the connection: who waits for events is to know why none come."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"veena: {record.getMessage()}", file=sys.stderr, flush=True)


_log = logging.getLogger("veena.client")
_teller = _Teller()


def password_of(user: str) -> str:
    """$VEENA_PASSWORD, or asked for; nothing without a user, or with a token or certificate that shows who it is."""
    password = os.environ.get("VEENA_PASSWORD", "")
    if user and not password and not os.environ.get("VEENA_TOKEN") and not os.environ.get("VEENA_CERTIFICATE"):
        if not _has_terminal():
            raise LocalProtocolError(f"--user {user}: nobody can be asked for the password; set VEENA_PASSWORD")
        password = str(typer.prompt("password", hide_input=True, err=True))
    return password


def _has_terminal() -> bool:
    """Whether there is somebody to ask, also where standard input is a file."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def trust(ca: Path | None) -> ssl.SSLContext:
    """TLS with brokers whose certificates this authority signed; without one, those that the system trusts.

    A certificate to show to brokers that ask for one is $VEENA_CERTIFICATE, its key $VEENA_KEY or in the same file.
    """
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # ssl.SSLError is one
        reason = "holds no certificate" if isinstance(error, ssl.SSLError) else f"cannot be read ({error.strerror})"
        raise LocalProtocolError(f"--ca {ca}: {reason}; name a PEM file with the authority's certificate") from None
    shown, key = os.environ.get("VEENA_CERTIFICATE"), os.environ.get("VEENA_KEY")
    if shown:
        check_secret(Path(key or shown))
        try:
            context.load_cert_chain(shown, key or None)
        except OSError as error:
            reason = "do not belong together" if isinstance(error, ssl.SSLError) else str(error.strerror)
            named = f"VEENA_CERTIFICATE {shown}, VEENA_KEY {key or shown}"
            raise LocalProtocolError(f"{named}: {reason}; name PEM files of a certificate and its key") from None
    return context


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

    urls = split_given(url) or [DEFAULT_URL]
    is_secure = any(each.startswith(SECURE) for each in urls)
    tls = trust(ca) if is_secure else None
    given = password_of(user) if password is None else password
    token, shown = os.environ.get("VEENA_TOKEN", ""), os.environ.get("VEENA_CERTIFICATE")
    if is_secure and shown and not (user or client_id or token):
        user = first_name(Path(shown))  # a client is whom its certificate names
    return connect(
        urls,
        client_id=client_id,
        user=user,
        password=given,
        token=token,
        tls=tls,
        timeout=CONNECT_S if timeout is None else timeout,
    )


def run(work: Coroutine[Any, Any, None], *, is_endless: bool = False) -> None:
    """Do it until it is done, or until it is told to stop: Ctrl-C, SIGTERM, SIGHUP.

    Either way it takes leave of its broker. To be stopped is an ordinary end of what has no other; anything else was
    broken off, and exits as a shell says that: with 128 and the signal's number.
    """
    told: list[int] = []
    _log.setLevel(logging.INFO)
    _log.addHandler(_teller)
    try:
        asyncio.run(_stoppable(work, told))
    except KeyboardInterrupt:
        told.append(signal.SIGINT)
    except asyncio.CancelledError:
        if not told:
            raise
    if told and not is_endless:
        raise typer.Exit(128 + told[0])


async def _stoppable(work: Coroutine[Any, Any, None], told: list[int]) -> None:
    task = asyncio.current_task()
    assert task is not None

    def stop(number: int) -> None:
        told.append(number)
        task.cancel()

    is_main = threading.current_thread() is threading.main_thread()  # no other thread is told
    for number in (signal.SIGTERM, signal.SIGHUP) if is_main else ():
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` has it ignored
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
    await work
