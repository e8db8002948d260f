"""Monitoring over HTTP: `/healthz`, `/readyz`, `/metrics` for Prometheus, `/statusz` as JSON. GET and nothing else.

A server of forty lines, because that is all it takes: one request a connection, bounded in size and time, and nothing
in it can be changed from outside. It falls under the same rule as every door: beyond this machine only `insecure`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

import msgspec

from veena.errors import ConfigError
from veena.runtime.broker.statistics import NodeStatistics
from veena.runtime.config.reader import split_place

#: A request line and its headers; and how long they may take to come.
MAX_REQUEST_BYTES = 8192
REQUEST_S = 5.0
#: Requests at once: a few monitors.
MAX_REQUESTS = 64

Reply = tuple[int, str, bytes]
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_TEXT = "text/plain; charset=utf-8"


class HttpServer:
    """The monitoring of one broker."""

    def __init__(self, statistics: Callable[[], NodeStatistics], why_not_ready: Callable[[], str | None]) -> None:
        self._statistics = statistics
        self._why_not_ready = why_not_ready
        self._server: asyncio.Server | None = None
        self._requests = 0
        self.url = ""
        self._pages: dict[str, Callable[[], Reply]] = {
            "/healthz": lambda: (200, _TEXT, b"ok\n"),
            "/readyz": self._ready,
            "/metrics": self._metrics,
            "/statusz": lambda: (200, "application/json", status(statistics())),
        }

    async def start(self, place: str) -> None:
        host, port = split_place(place)
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES)
        except OSError as error:
            reason = f"cannot be listened on ({error.strerror or error})"
            raise ConfigError("[http]", f"listen {place}", reason, "choose another port") from None
        name = self._server.sockets[0].getsockname()
        self.url = f"http://{f'[{name[0]}]' if ':' in name[0] else name[0]}:{name[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._requests += 1
        try:
            if self._requests <= MAX_REQUESTS:
                async with asyncio.timeout(REQUEST_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_encode(self._answer(request)))
                async with asyncio.timeout(REQUEST_S):
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # whoever that was is gone, or not worth an answer
        finally:
            self._requests -= 1
            writer.close()

    def _answer(self, request: bytes) -> Reply:
        method, _, rest = request.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        path = rest.split(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"GET only\n"
        page = self._pages.get(path)
        if page is None:
            return 404, _TEXT, f"there are {', '.join(self._pages)}\n".encode()
        code, kind, body = page()
        return code, kind, b"" if method == "HEAD" else body

    def _metrics(self) -> Reply:
        from veena.runtime.broker.metrics import exposition  # a tenth of a second and some megabytes, for who asks

        return 200, "text/plain; version=0.0.4; charset=utf-8", exposition(self._statistics())

    def _ready(self) -> Reply:
        why = self._why_not_ready()
        return (200, _TEXT, b"ready\n") if why is None else (503, _TEXT, f"{why}\n".encode())


def status(statistics: NodeStatistics) -> bytes:
    """Everything that a broker says of itself, as JSON."""
    return msgspec.json.encode(statistics, enc_hook=_plain)


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else str(value)


def _encode(reply: Reply) -> bytes:
    code, kind, body = reply
    head = f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode() + body
