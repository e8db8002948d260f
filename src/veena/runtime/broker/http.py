"""Monitoring over HTTP: `/healthz`, `/readyz`, `/metrics` for Prometheus, `/statusz` as JSON. GET and nothing else.

A small server, because that is all it takes: one request a connection, bounded in size and time, and nothing in it can
be changed from outside. Beyond this machine it opens only with `plaintext`. Who connects and asks nothing is a stranger
(`transports.strangers`): with one too many the oldest goes, so that idle connections keep no monitor out. The same
holds for those that do not take their answer.

**Host.** A page of another site can have its own name lead to this machine (DNS rebinding), and its script then reads
what is here as if it were that site's. The browser still sends the name of the site as `Host`. So a request is answered
only for names that are surely this broker's: loopback names, the address that the connection came to, the host that
`[http] listen` names, and those of `[http] hosts`. HTTP/1.0 knows no `Host`, and no browser speaks it.
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from veena.errors import ConfigError
from veena.runtime.broker.statistics import NodeStatistics
from veena.runtime.config.reader import split_place
from veena.runtime.logging.logs import Log
from veena.runtime.steps import Steps
from veena.runtime.transports.accepting import Acceptor, bind
from veena.runtime.transports.strangers import Stranger, Strangers

#: A request line and its headers; and how long they may take to come, and the answer to go.
MAX_REQUEST_BYTES: Final = 8192
REQUEST_S: Final = 5.0
#: Connections without a whole request, and answers on their way, at once: a few monitors.
MAX_REQUESTS: Final = 64
#: Characters of a foreign name that are shown.
MAX_SHOWN: Final = 100

Reply = tuple[int, str, bytes]
_REASONS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 421: "Misdirected Request",
    503: "Service Unavailable",
}  # fmt: skip
_TEXT = "text/plain; charset=utf-8"


@dataclass(slots=True)
class _Bounds:
    identify_s: float = REQUEST_S
    unidentified: int = MAX_REQUESTS
    unidentified_bytes: int = 2 * MAX_REQUESTS * MAX_REQUEST_BYTES
    connections: int = 2 * MAX_REQUESTS


class HttpServer:
    """The monitoring of one broker."""

    def __init__(
        self,
        statistics: Callable[[], NodeStatistics],
        why_not_ready: Callable[[], str | None],
        log: Log,
        hosts: Callable[[], Sequence[str]] = tuple,
        steps: Steps | None = None,
    ) -> None:
        """`hosts` returns further names under which requests are answered."""
        self._statistics = statistics
        self._why_not_ready = why_not_ready
        self._hosts = hosts
        self.steps = steps or Steps(log)
        self._own_host = ""
        self._strangers = Strangers(_Bounds(), log)
        self._strangers.others = lambda: len(self._answering)
        #: Those whose answer is on its way, the oldest first.
        self._answering: dict[_Visit, None] = {}
        self._acceptor: Acceptor | None = None
        self.url = ""
        self._pages: dict[str, Callable[[], Reply]] = {
            "/healthz": lambda: (200, _TEXT, b"ok\n"),
            "/readyz": self._ready,
            "/metrics": self._metrics,
            "/statusz": lambda: (200, "application/json", status(statistics())),
        }

    async def start(self, place: str) -> None:
        host, port = split_place(place)
        assert port is not None, "the reader of configurations has looked"
        self._own_host = _plain_name(host)
        try:
            sockets = await bind(host, port)
        except OSError as error:
            reason = f"cannot be listened on ({error.strerror or error})"
            raise ConfigError("[http]", f"listen {place}", reason, "choose another port") from None
        name = sockets[0].getsockname()
        self._acceptor = Acceptor(sockets, lambda stranger: _Visit(self, stranger), None, self._strangers, REQUEST_S)
        self.url = f"http://{f'[{name[0]}]' if ':' in name[0] else name[0]}:{name[1]}"

    async def close(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        self._strangers.end_all("this broker is stopping")
        for visit in list(self._answering):
            visit.abort("this broker is stopping")

    def answering(self, visit: _Visit) -> None:
        self._answering[visit] = None
        if len(self._answering) > MAX_REQUESTS:
            next(iter(self._answering)).abort("it does not take its answer, and others wait")

    def left(self, visit: _Visit) -> None:
        self._answering.pop(visit, None)

    def answer(self, request: bytes, local: str) -> bytes:
        """What goes back for a request that came to this address of this machine."""
        lines = request.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target, _, version = rest.partition(" ")
        path = target.partition("?")[0]
        reply: Reply | None = (405, _TEXT, b"GET only\n") if method not in ("GET", "HEAD") else None
        reply = reply or self._why_not_host(lines[1:], version, local)
        if reply is None:
            page = self._pages.get(path)
            reply = (404, _TEXT, f"there are {', '.join(self._pages)}\n".encode()) if page is None else page()
        code, kind, body = reply
        return _encode((code, kind, b"" if method == "HEAD" else body))

    def _why_not_host(self, headers: list[str], version: str, local: str) -> Reply | None:
        """The answer to who asks for another host's pages; None for this one's."""
        named = [
            value.strip() for name, _, value in (line.partition(":") for line in headers) if name.lower() == "host"
        ]
        if not named and version == "HTTP/1.0":
            return None
        if len(named) != 1:
            return 400, _TEXT, f"{len(named)} Host headers came: send one\n".encode()
        host = _plain_name(named[0])
        if host == "localhost" or host.endswith(".localhost") or host == self._own_host:
            return None
        if host in map(_plain_name, self._hosts()) or _is_here(host, local):
            return None
        told = f"Host {host[:MAX_SHOWN]!r} is not known as a name of this broker: ask by its address, or name that host"
        return 421, _TEXT, f"{told} in [http] hosts\n".encode()

    def _metrics(self) -> Reply:
        from veena.runtime.broker.metrics import exposition  # a tenth of a second and some megabytes, for who asks

        return 200, "text/plain; version=0.0.4; charset=utf-8", exposition(self._statistics())

    def _ready(self) -> Reply:
        why = self._why_not_ready()
        return (200, _TEXT, b"ready\n") if why is None else (503, _TEXT, f"{why}\n".encode())


class _Visit(asyncio.Protocol):
    """One connection: a request comes, its answer goes, and that is all."""

    def __init__(self, server: HttpServer, stranger: Stranger) -> None:
        self._server = server
        self._stranger = stranger
        self._transport: asyncio.Transport | None = None
        self._request = bytearray()
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._stranger.is_over:  # while it was being made
            self.abort("turned away")
        else:
            self._stranger.end = self.abort

    def data_received(self, data: bytes) -> None:
        if self._stranger.is_over:  # it has asked already
            return
        self._request += data
        self._stranger.hold(len(data))
        end = self._request.find(b"\r\n\r\n")
        if max(end, 0 if end >= 0 else len(self._request)) > MAX_REQUEST_BYTES:
            self._stranger.turn_away(f"a request of more than {MAX_REQUEST_BYTES} bytes")
        elif end >= 0 and not self._stranger.is_over:
            self._stranger.known()
            self._reply(bytes(self._request[:end]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._stranger.gone()
        self._server.left(self)

    def abort(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _reply(self, request: bytes) -> None:
        assert self._transport is not None
        local = self._transport.get_extra_info("sockname")
        self._server.answering(self)
        self._patience = asyncio.get_running_loop().call_later(REQUEST_S, self._transport.abort)
        with self._server.steps.step(str(request[:60].split(b"\r", 1)[0], "latin-1"), "monitoring"):
            answer = self._server.answer(request, str(local[0]) if local else "")
        self._transport.write(answer)
        self._transport.close()


def status(statistics: NodeStatistics) -> bytes:
    """Everything that a broker says of itself, as JSON."""
    return msgspec.json.encode(statistics, enc_hook=_plain)


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else str(value)


def _plain_name(host: str) -> str:
    """A host as it is compared: without port, brackets, case, and the dot of a whole name."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name = host if host.count(":") > 1 else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _is_here(host: str, local: str) -> bool:
    """Whether this is a loopback address, or the one that a connection came to."""
    try:
        asked, here = (ipaddress.ip_address(each.partition("%")[0]) for each in (host, local))
    except ValueError:
        return False
    return asked.is_loopback or _without_mapping(asked) == _without_mapping(here)


def _without_mapping(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _encode(reply: Reply) -> bytes:
    code, kind, body = reply
    head = f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return (
        f"{head}X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n".encode() + body
    )
