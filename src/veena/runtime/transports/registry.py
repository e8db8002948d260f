"""All transports behind two functions: `listen` and `connect`. Who uses them knows `Stream` and `Listener` alone."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Protocol

from veena.errors import ConfigError
from veena.runtime.transports.memory import connect_memory, listen_memory
from veena.runtime.transports.stream import Stream
from veena.runtime.transports.tcp import Accept, connect_tcp, listen_tcp
from veena.runtime.transports.url import Url


class Server(Protocol):
    """A place that is listened on, with the port that it got."""

    url: Url

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Secrets:
    """What TLS needs at this end, and whom a WebSocket is opened for."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    #: Web pages that may connect, by their origin; a program sends none and is always let in.
    origins: tuple[str, ...] = ()


NO_SECRETS = Secrets()


async def listen(url: Url, accept: Accept, secrets: Secrets = NO_SECRETS) -> Server:
    """Listen there; `accept` is called with every new stream and says who listens to it. Raises OSError."""
    if url.is_secure and secrets.server is None:
        raise ConfigError("listen", str(url), "needs a certificate", "name certificate and key in [tls]")
    if url.carrier == "memory":
        return await listen_memory(url, accept)
    context = secrets.server if url.is_secure else None
    if url.carrier == "ws":
        from veena.runtime.transports.websocket import listen_websocket

        return await listen_websocket(url, accept, context, secrets.origins)
    return await listen_tcp(url, accept, context)


async def connect(url: Url, accept: Accept, secrets: Secrets = NO_SECRETS) -> Stream:
    """Dial it; `accept` is called once with the stream, before anything is read. Raises OSError or TimeoutError."""
    if url.carrier == "memory":
        return await connect_memory(url, accept)
    context = (secrets.client or ssl.create_default_context()) if url.is_secure else None
    if url.carrier == "ws":
        from veena.runtime.transports.websocket import connect_websocket

        return await connect_websocket(url, accept, context)
    return await connect_tcp(url, accept, context)
