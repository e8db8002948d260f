"""TCP, plain or inside TLS: one asyncio protocol that is the `Stream` as well.

A read is one call of the listener; a write is at most one system call for all its small parts, and large parts go as
they are, uncopied while the socket takes them. What a peer does not take is bounded: above the high mark the listener
is told, and beyond MAX_WAITING, which only somebody who does not heed that reaches, the stream is cut.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
from collections.abc import Callable, Sequence
from typing import cast

from veena.runtime.transports.accepting import Acceptor, bind, shown
from veena.runtime.transports.certificate import Certificate, of_peer
from veena.runtime.transports.strangers import Stranger, Strangers
from veena.runtime.transports.stream import CLOSED, Bytes, Listener, Stream
from veena.runtime.transports.url import Url

#: Called with a new stream before anything is read from it; who listens to it.
Accept = Callable[[Stream], Listener]

#: Waiting bytes at which the listener is told to hold back, and at which it may go on: some milliseconds of a fast
#: link, so that events of a higher priority have little before them.
HIGH_WATER = 256 * 1024
LOW_WATER = 64 * 1024
#: Waiting bytes at which a stream is given up: four of the largest frames.
MAX_WAITING = 64 << 20
#: Parts from this size on are written by themselves; smaller ones are joined, since a copy is cheaper than a call.
WRITE_ALONE = 64 * 1024
#: How long a closed stream may take to send what was written.
CLOSE_PATIENCE_S = 5.0
#: How long a connection may take to be made, TLS included.
CONNECT_PATIENCE_S = 10.0
#: In `struct tcp_info` of Linux: the smoothed and the least round trip, in microseconds.
_ROUND_TRIP, _LEAST_ROUND_TRIP, _TCP_INFO_SIZE = 68, 148, 152


class TcpStream(asyncio.Protocol):
    """One connection."""

    def __init__(self, accept: Accept) -> None:
        self.peer = ""
        self.ip = ""
        self.proven: str | None = None
        self.certificate: Certificate | None = None
        #: While it is not known who speaks, and others have made the connection.
        self.stranger: Stranger | None = None
        self._accept = accept
        self._listener: Listener | None = None
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._is_closing = self._is_over = False
        self._patience: asyncio.TimerHandle | None = None

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.ip = str(name[0])
            self.peer = shown(name)
        self.proven = _subject(transport.get_extra_info("peercert"))
        self.certificate = of_peer(transport.get_extra_info("peercert"))
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.stranger is not None:
            if self.stranger.is_over:  # while it was being made
                self.abort("turned away")
                return
            self.stranger.end = self.abort
            self.stranger.on_known.append(self._known)
        self._listener = self._accept(self)

    def _known(self) -> None:
        self.stranger = None

    def data_received(self, data: bytes) -> None:
        # Loops read up to 256 KiB at once: many small events cost one turn.
        if self._listener is None:
            return
        if self.stranger is not None:
            self.stranger.hold(len(data))
        if not self._is_closing:
            self._listener.received(data)

    def eof_received(self) -> bool:
        self._reason = self._reason or CLOSED
        return False  # what was written is sent, then the connection ends

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = self._is_over = True
        if self._patience is not None:
            self._patience.cancel()
        if self.stranger is not None:
            self.stranger.gone()
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.closed(self._reason or (f"connection lost: {exc}" if exc is not None else CLOSED))

    def pause_writing(self) -> None:
        if self._listener is not None:
            self._listener.clogged()

    def resume_writing(self) -> None:
        if self._listener is not None:
            self._listener.cleared()

    # --- the stream ---

    def write(self, parts: Sequence[Bytes]) -> None:
        if self._is_closing or self._transport is None:
            return
        try:
            if len(parts) == 1:
                self._transport.write(parts[0])
            else:
                self._write(parts, self._transport.write)
        except RuntimeError:
            # The connection has failed, and this side is told in a moment. uvloop raises where asyncio keeps silent.
            self._is_closing = True
            return
        if self._transport.get_write_buffer_size() > MAX_WAITING:
            self.abort(f"the peer does not read: more than {MAX_WAITING >> 20} MiB wait for it")

    @staticmethod
    def _write(parts: Sequence[Bytes], write: Callable[[Bytes], None]) -> None:
        if max(map(len, parts), default=0) < WRITE_ALONE:
            write(b"".join(parts))
        else:
            start = 0
            for at, part in enumerate(parts):
                if len(part) >= WRITE_ALONE:
                    if start < at:
                        write(b"".join(parts[start:at]))
                    write(part)
                    start = at + 1
            if start < len(parts):
                write(b"".join(parts[start:]))

    def close(self, reason: str) -> None:
        if self._is_closing or self._transport is None:
            return
        self._is_closing, self._reason = True, self._reason or reason
        self._transport.close()
        self._patience = asyncio.get_running_loop().call_later(CLOSE_PATIENCE_S, self._transport.abort)

    def abort(self, reason: str) -> None:
        if self._transport is not None and not self._is_over:
            self._is_closing, self._reason = True, self._reason or reason
            self._transport.abort()

    @property
    def waiting(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def untaken(self) -> int:
        """With what the kernel has and the other end has not acknowledged: several MiB go there before anything waits
        here, and it asks for more only when a third of that is gone, seconds later at a slow link."""
        raw = None if self._transport is None else self._transport.get_extra_info("socket")
        if raw is None:
            return self.waiting
        try:
            queued: int = 0
            (queued,) = struct.unpack("=i", fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(4)))
        except (OSError, ValueError):  # it is closed
            return self.waiting
        return self.waiting + max(0, queued)

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def round_trip(self) -> tuple[float, float] | None:
        """The kernel's measure in seconds: smoothed, and the least it has seen; None where it does not say."""
        raw = None if self._transport is None else self._transport.get_extra_info("socket")
        if raw is None or not hasattr(socket, "TCP_INFO"):
            return None
        try:
            info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
        except OSError:
            return None
        if len(info) < _TCP_INFO_SIZE:
            return None
        (now,) = struct.unpack_from("=I", info, _ROUND_TRIP)
        (least,) = struct.unpack_from("=I", info, _LEAST_ROUND_TRIP)
        return now / 1e6, least / 1e6


class TcpServer:
    """A place that is listened on."""

    def __init__(self, url: Url, acceptor: Acceptor) -> None:
        self.url = url
        self._acceptor = acceptor

    def renew(self, context: ssl.SSLContext | None) -> None:
        """Do handshakes with this from now on, where there are any."""
        if self._acceptor.context is not None:
            self._acceptor.context = context

    async def close(self) -> None:
        """Listen no more; the connections that are there stay."""
        self._acceptor.close()


async def listen_tcp(url: Url, accept: Accept, context: ssl.SSLContext | None, strangers: Strangers) -> TcpServer:
    def make(stranger: Stranger) -> TcpStream:
        stream = TcpStream(accept)
        stream.stranger = stranger
        return stream

    acceptor = Acceptor(await bind(url.host, url.port), make, context, strangers, CONNECT_PATIENCE_S)
    return TcpServer(url.with_port(acceptor.port), acceptor)


async def connect_tcp(url: Url, accept: Accept, context: ssl.SSLContext | None) -> Stream:
    loop = asyncio.get_running_loop()
    stream = TcpStream(accept)
    try:
        async with asyncio.timeout(CONNECT_PATIENCE_S):
            await loop.create_connection(
                lambda: stream,
                url.host,
                url.port,
                ssl=context,
                server_hostname=url.host if context is not None else None,
                ssl_shutdown_timeout=CLOSE_PATIENCE_S if context is not None else None,
            )
    except BaseException as error:
        # It may have been made a moment before its time was over. uvloop then closes it, and tells nobody.
        stream.connection_lost(error if isinstance(error, Exception) else None)
        raise
    return stream


def _subject(certificate: object) -> str | None:
    """The common name of a certificate that was verified; asyncio gives an empty one where none was asked for."""
    if not isinstance(certificate, dict):
        return None
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None
