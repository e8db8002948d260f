"""Streams inside one process, for tests and for brokers and clients that share one.

Bytes go over in the next turn of the event loop, all that was written in between as one read: so it behaves like a
socket, with neither recursion nor a copy per write.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from veena.runtime.transports.certificate import Certificate
from veena.runtime.transports.strangers import Stranger
from veena.runtime.transports.stream import CLOSED, Bytes, Listener, Stream
from veena.runtime.transports.tcp import HIGH_WATER, LOW_WATER, MAX_WAITING, Accept
from veena.runtime.transports.url import Url

#: Who listens under a name, in this process.
_listening: dict[str, Accept] = {}


class MemoryStream:
    """One end of a pair."""

    def __init__(self, name: str) -> None:
        self.peer = f"memory:{name}"
        self.ip = ""
        self.proven: str | None = None
        self.certificate: Certificate | None = None
        self.stranger: Stranger | None = None
        self.other: MemoryStream | None = None
        self.listener: Listener | None = None
        #: What was written here and has not been read over there.
        self._parts: list[Bytes] = []
        self._waiting = 0
        self._is_clogged = self._is_closing = self._is_paused = self._is_scheduled = self._is_over = False

    def write(self, parts: Sequence[Bytes]) -> None:
        if self._is_closing or self.other is None:
            return
        self._parts += parts
        self._waiting += sum(map(len, parts))
        if self._waiting > MAX_WAITING:
            self.abort(f"the peer does not read: more than {MAX_WAITING >> 20} MiB wait for it")
            return
        if self._waiting > HIGH_WATER and not self._is_clogged:
            self._is_clogged = True
            if self.listener is not None:
                self.listener.clogged()
        self._schedule()

    def close(self, reason: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._schedule()
            asyncio.get_running_loop().call_soon(self._end, reason)

    def abort(self, reason: str) -> None:
        if not self._is_over:
            self._is_closing = True
            self._parts.clear()
            self._waiting = 0
            self._schedule()
            asyncio.get_running_loop().call_soon(self._end, reason)

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def untaken(self) -> int:
        return self._waiting

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        if self.other is not None:
            self.other._schedule()  # two ends of one pipe

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._is_scheduled = False
        other = self.other
        if other is None or (other._is_paused and not self._is_closing):
            return
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._waiting = 0
            if other.listener is not None and not other._is_closing:
                other.listener.received(data)
        if self._is_clogged and self._waiting <= LOW_WATER:
            self._is_clogged = False
            if self.listener is not None:
                self.listener.cleared()
        if self._is_closing:
            other._end(CLOSED)

    def _end(self, reason: str) -> None:
        self._is_closing = self._is_over = True
        if self.listener is not None:
            listener, self.listener = self.listener, None
            listener.closed(reason)
            if self.other is not None:
                self._schedule()


class MemoryServer:
    """A name that is listened on."""

    def __init__(self, url: Url) -> None:
        self.url = url

    def renew(self, context: ssl.SSLContext | None) -> None:
        """Nobody listens in between."""

    async def close(self) -> None:
        _listening.pop(self.url.host, None)


async def listen_memory(url: Url, accept: Accept) -> MemoryServer:
    if url.host in _listening:
        raise OSError(f"{url} is listened on already")
    _listening[url.host] = accept
    return MemoryServer(url)


async def connect_memory(url: Url, accept: Accept) -> Stream:
    there = _listening.get(url.host)
    if there is None:
        raise ConnectionRefusedError(f"nobody listens on {url}")
    near, far = MemoryStream(url.host), MemoryStream(url.host)
    near.other, far.other = far, near
    far.listener = there(far)
    near.listener = accept(near)
    return near
