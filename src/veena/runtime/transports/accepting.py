"""Taking connections from listening sockets: each is a stranger from its first moment, TLS handshake included.

The broker takes connections itself, since the servers of event loops tell of a connection after its handshake only,
and drop or forget those for which the system has no descriptor. Here such a shortage is counted and logged, the oldest
stranger gives way, and a moment later the socket is looked at again: the connections that wait are not lost.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from veena.runtime.supervision import once
from veena.runtime.transports.strangers import Stranger, Strangers

#: Connections that wait to be accepted.
BACKLOG = 1024
#: Connections taken in one turn of the loop: more would hold up those that are there.
AT_ONCE = 64
#: How long no connection is taken after the system had no descriptor for one: those that were told to go need a turn.
PAUSE_S = 0.05
#: What an unfinished handshake of TLS has this process hold, measured: OpenSSL's state and two buffers.
TLS_BYTES = 48 * 1024


class Acceptor:
    """The sockets of one place that is listened on."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make: Callable[[Stranger], asyncio.Protocol],
        context: ssl.SSLContext | None,
        strangers: Strangers,
        patience_s: float,
    ) -> None:
        #: What the next handshake is done with; may be replaced while the broker runs.
        self.context = context
        self._sockets = list(sockets)
        self._make = make
        self._strangers = strangers
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._greeting: set[asyncio.Task[None]] = set()
        self._is_closed = False
        for each in self._sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
            self._loop.add_reader(each.fileno(), self._ready, each)

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Take no more connections; those that are there stay."""
        if not self._is_closed:
            self._is_closed = True
            for each in self._sockets:
                self._loop.remove_reader(each.fileno())
                each.close()

    def _ready(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # it went away while it waited
                continue
            except OSError as error:
                self._strangers.short_of_descriptors(error.strerror or str(error))
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(PAUSE_S, self._look_again, listening)
                return
            self._take(connection, address)

    def _look_again(self, listening: socket.socket) -> None:
        if self._is_closed:
            return
        try:
            self._loop.add_reader(listening.fileno(), self._ready, listening)
        except OSError as error:  # nobody would look at this socket ever again
            self._strangers.short_of_descriptors(error.strerror or str(error))
            self._loop.call_later(PAUSE_S, self._look_again, listening)

    def _take(self, connection: socket.socket, address: tuple[object, ...]) -> None:
        connection.setblocking(False)

        def cut(reason: str) -> None:
            # Whoever does the handshake has the descriptor, and finds the connection at its end.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

        stranger = self._strangers.enter(shown(address), cut)
        if stranger.is_over:
            connection.close()
            return
        task = once("the greeting of a connection", self._greet(connection, stranger))
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    async def _greet(self, connection: socket.socket, stranger: Stranger) -> None:
        is_secure = self.context is not None
        if is_secure:
            stranger.hold(TLS_BYTES)
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(stranger),
                connection,
                ssl=self.context,
                ssl_handshake_timeout=self._patience_s if is_secure else None,
                ssl_shutdown_timeout=self._patience_s if is_secure else None,
            )
        except OSError as error:  # the errors of TLS are among them
            stranger.turn_away(f"no TLS handshake: {error}" if is_secure else str(error))
            connection.close()
        except BaseException:
            stranger.gone()
            connection.close()
            raise


def shown(address: tuple[object, ...]) -> str:
    """The address of a peer as `host:port`."""
    host = str(address[0])
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"


async def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets for every address of a host that this machine has, all with one port; raise OSError if there is none."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    faults: list[OSError] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        chosen = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_bound(socket.socket(family, kind, protocol), (address[0], chosen, *address[2:])))
        except OSError as error:
            faults.append(error)
    taken = [error for error in faults if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)]
    if sockets and (not taken or port == 0):
        return sockets
    for each in sockets:
        each.close()
    raise (taken or faults)[0]


def _bound(made: socket.socket, address: tuple[object, ...]) -> socket.socket:
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
