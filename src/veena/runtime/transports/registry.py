"""All transports behind two functions: `listen` and `connect`. Who uses them knows `Stream` and `Listener` alone."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Protocol

from veena.errors import ConfigError
from veena.runtime.logging.logs import Log
from veena.runtime.transports.memory import connect_memory, listen_memory
from veena.runtime.transports.strangers import Strangers
from veena.runtime.transports.stream import Listener, Stream
from veena.runtime.transports.tcp import Accept, connect_tcp, listen_tcp
from veena.runtime.transports.url import Url


class Server(Protocol):
    """A place that is listened on, with the port that it got."""

    url: Url

    def renew(self, context: ssl.SSLContext | None) -> None:
        """Do handshakes with this from now on; who is connected stays so."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Secrets:
    """What TLS needs at this end, and whom a WebSocket is opened for."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    #: Web pages that may connect, by their origin; a program sends none and is always let in.
    origins: tuple[str, ...] = ()


NO_SECRETS = Secrets()


@dataclass(slots=True)
class HandshakeBounds:
    """What those may take whose handshake is not over, where nobody bounds strangers beyond that."""

    identify_s: float = 20.0
    unidentified: int = 2048
    unidentified_bytes: int = 128 << 20
    connections: int = 1 << 20


async def listen(url: Url, accept: Accept, secrets: Secrets = NO_SECRETS, strangers: Strangers | None = None) -> Server:
    """Listen there; `accept` is called with every new stream and says who listens to it. Raises OSError.

    With `strangers`, who accepts a stream says when its other end is known (`stream.stranger`). Without, it is known
    as soon as the handshakes are over.
    """
    if url.is_secure and secrets.server is None:
        raise ConfigError("listen", str(url), "needs a certificate", "name certificate and key in [tls]")
    if url.carrier == "memory":
        return await listen_memory(url, accept)
    if strangers is None:
        strangers, accept = Strangers(HandshakeBounds(), Log()), _known_at_once(accept)
    context = secrets.server if url.is_secure else None
    if url.carrier == "ws":
        from veena.runtime.transports.websocket import listen_websocket

        return await listen_websocket(url, accept, context, secrets.origins, strangers)
    return await listen_tcp(url, accept, context, strangers)


def _known_at_once(accept: Accept) -> Accept:
    def taken(stream: Stream) -> Listener:
        if stream.stranger is not None:
            stream.stranger.known()
        return accept(stream)

    return taken


async def connect(url: Url, accept: Accept, secrets: Secrets = NO_SECRETS) -> Stream:
    """Dial it; `accept` is called once with the stream, before anything is read. Raises OSError or TimeoutError."""
    if url.carrier == "memory":
        return await connect_memory(url, accept)
    context = (secrets.client or ssl.create_default_context()) if url.is_secure else None
    if url.carrier == "ws":
        from veena.runtime.transports.websocket import connect_websocket

        return await connect_websocket(url, accept, context)
    return await connect_tcp(url, accept, context)
