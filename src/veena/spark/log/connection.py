"""One blocking connection of a reader to a broker: dial, greet, send frames, wait for answers by their numbers.

For processes that have no event loop and want none, such as Spark's Python workers. It is used by one thread at a time.
"""

from __future__ import annotations

import socket
import ssl
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, TypeVar

from veena.core.wire.client import (
    MAX_CLIENT_HEARTBEAT_MS,
    ClientHello,
    ClientWelcome,
    Farewell,
    TellRedirect,
    TellRefused,
    code_of,
)
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame, Goodbye
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.core.wire.locator import AskLocate, TellLocated
from veena.errors import AccessDenied, ConfigError, NotConnected, RefusalCode, Refused, RemoteProtocolError, refusal
from veena.runtime.locator.client import locator_url
from veena.runtime.pki.recipients import Recipients
from veena.runtime.transports.certificate import Certificate, first_name, of_peer
from veena.runtime.transports.tls import client_context
from veena.runtime.transports.url import Url, parse_url

#: Bytes of one read, and what the kernel may hold for this side: a block or two.
READ_BYTES: Final = 1 << 20
RECEIVE_BYTES: Final = 4 << 20
#: Frames for other numbers than the one that is waited for; a broker sends no more than it was asked for.
MAX_WAITING: Final = 4096

Answer = TypeVar("Answer", bound=Frame)


@dataclass(frozen=True, slots=True)
class Access:
    """As whom a reader comes, and what it trusts; files are paths on the machine that reads."""

    user: str = ""
    password: str = ""
    token: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    #: Left out, every connection has one of its own, which begins with the user's name.
    client_id: str = ""

    def __repr__(self) -> str:
        shown = {"user": self.user, "client_id": self.client_id, "ca_file": self.ca_file}
        return f"Access({', '.join(f'{name}={value!r}' for name, value in shown.items() if value)})"

    def context(self) -> ssl.SSLContext:
        authority, certificate, key = (
            Path(each) if each else None for each in (self.ca_file, self.cert_file, self.key_file)
        )
        return client_context(authority, certificate, key)

    def name(self) -> str:
        """A client id: a user may use its own name with anything behind a slash, as may whom a certificate names."""
        is_unnamed = self.cert_file and not (self.client_id or self.user or self.token)
        shown = first_name(Path(self.cert_file)) if is_unnamed else ""
        return self.client_id or f"{self.user or shown or 'reader'}/{uuid.uuid4().hex[:12]}"


class _Carrier(Protocol):
    """What carries the bytes."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """What has come, at least a byte; nothing when the other side has closed."""

    def certificate(self) -> Certificate | None:
        """What the other side has shown."""

    def close(self) -> None: ...


class _Tcp:
    def __init__(self, url: Url, access: Access, timeout: float) -> None:
        raw = socket.create_connection((url.host, url.port), timeout)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            raw.settimeout(timeout)
            self._socket = access.context().wrap_socket(raw, server_hostname=url.host) if url.is_secure else raw
        except BaseException:
            raw.close()
            raise

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        return self._socket.recv(READ_BYTES)

    def certificate(self) -> Certificate | None:
        return of_peer(self._socket.getpeercert()) if isinstance(self._socket, ssl.SSLSocket) else None

    def close(self) -> None:
        self._socket.close()


class _WebSocket:
    def __init__(self, url: Url, access: Access, timeout: float) -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        from veena.runtime.transports.websocket import MAX_MESSAGE_BYTES, SUBPROTOCOL

        self._fault = WebSocketException
        self._timeout = timeout
        context = access.context() if url.is_secure else None
        self._open = ExitStack()
        try:
            self._socket = self._open.enter_context(
                connect(
                    str(url), ssl=context, subprotocols=[SUBPROTOCOL], compression=None, open_timeout=timeout,
                    max_size=MAX_MESSAGE_BYTES, proxy=None,
                )
            )  # fmt: skip
        except WebSocketException as error:
            raise OSError(f"no WebSocket: {error}") from None

    def send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except self._fault as error:
            raise OSError(f"closed: {error}") from None

    def receive(self) -> bytes:
        try:
            data = self._socket.recv(self._timeout)
        except self._fault:
            return b""
        return data if isinstance(data, bytes) else data.encode()

    def certificate(self) -> Certificate | None:
        below = self._socket.socket
        return of_peer(below.getpeercert()) if isinstance(below, ssl.SSLSocket) else None

    def close(self) -> None:
        self._open.close()


def _dial(text: str, access: Access, timeout: float) -> _Carrier:
    url = parse_url(text)
    if url.carrier == "memory":
        raise ConfigError("url", repr(text), "is inside one process", "give the veena:// URL of a broker")
    try:
        return _WebSocket(url, access, timeout) if url.carrier == "ws" else _Tcp(url, access, timeout)
    except OSError as error:
        raise NotConnected(f"{text}: {error.strerror or error}") from None


class LogWire:
    """An open conversation with one broker."""

    def __init__(
        self, url: str, access: Access, timeout: float, recipients: Recipients | None = None, is_given: bool = True
    ) -> None:
        """`recipients` say who may be told who this reader is; `is_given` where its user has named the URL."""
        self.url = url
        self._timeout = timeout
        self._carrier = _dial(url, access, timeout)
        self._decoder = Decoder()
        self._came: deque[Frame] = deque()
        #: Frames that were waited for by nobody yet, by number.
        self._waiting: dict[int, deque[Frame]] = {}
        self._numbers = 0
        try:
            if recipients is not None:
                recipients.check(url, self._carrier.certificate(), is_given)
            self.welcome = self._greet(access)
        except BaseException:
            self._carrier.close()
            raise

    def __enter__(self) -> LogWire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _greet(self, access: Access) -> ClientWelcome:
        self.send(
            ClientHello(
                VERSION_LOW, VERSION, access.name(), access.user, access.password, access.token,
                heartbeat_ms=MAX_CLIENT_HEARTBEAT_MS, software="veena.spark",
            )
        )  # fmt: skip
        frame = self._next(time.monotonic() + self._timeout)
        if isinstance(frame, ClientWelcome):
            return frame
        if isinstance(frame, TellRedirect):
            raise NotConnected(f"{self.url}: {frame.reason or 'it sends everybody elsewhere'}")
        raise RemoteProtocolError(f"{self.url}: {type(frame).__name__} instead of a welcome")

    # --- frames ---

    def open(self) -> int:
        """A number for a question, whose answers are kept until it is closed."""
        self._numbers += 1
        self._waiting[self._numbers] = deque()
        return self._numbers

    def close_number(self, number: int) -> None:
        self._waiting.pop(number, None)

    def ask(self, question: Callable[[int], Frame], kind: type[Answer]) -> Answer:
        """One question, made of its number, and the one answer to it."""
        number = self.open()
        try:
            self.send(question(number))
            frame = self.wait(number)
        finally:
            self.close_number(number)
        if not isinstance(frame, kind):
            raise RemoteProtocolError(f"{self.url}: {type(frame).__name__} instead of {kind.__name__}")
        return frame

    def send(self, *frames: Frame) -> None:
        self.send_bytes(b"".join(encode(frame, 0) for frame in frames))

    def send_bytes(self, data: bytes) -> None:
        """Frames that are bytes already."""
        try:
            self._carrier.send(data)
        except OSError as error:
            raise self._lost(error) from None

    def wait(self, number: int) -> Frame:
        """The next answer to a question; raise what the broker refuses it with."""
        mine = self._waiting[number]
        deadline = time.monotonic() + self._timeout
        while not mine:
            frame = self._next(deadline)
            other = self._waiting.get(getattr(frame, "number", -1))
            if other is not None:  # otherwise nobody waits for it any more
                if len(other) >= MAX_WAITING:
                    raise RemoteProtocolError(f"{self.url}: more than {MAX_WAITING} frames that were not asked for")
                other.append(frame)
        frame = mine.popleft()
        if isinstance(frame, TellRefused):
            if frame.why.is_passing:
                raise NotConnected(f"{self.url}: {frame.reason}", code=frame.why)
            raise refusal(frame.why, frame.reason)
        return frame

    def _next(self, deadline: float) -> Frame:
        while not self._came:
            if time.monotonic() > deadline:
                raise NotConnected(f"{self.url} did not answer within {self._timeout:g} seconds")
            try:
                data = self._carrier.receive()
            except TimeoutError:
                raise NotConnected(f"{self.url} did not answer within {self._timeout:g} seconds") from None
            except OSError as error:
                raise self._lost(error) from None
            if not data:
                raise NotConnected(f"{self.url}: closed by the broker")
            for _, frame in self._decoder.feed(data):
                if not isinstance(frame, Frame):
                    raise RemoteProtocolError(f"{self.url}: an event that nobody subscribed to")
                self._came.append(frame)
        frame = self._came.popleft()
        if isinstance(frame, Farewell) and frame.why in (RefusalCode.DENIED, RefusalCode.PROTOCOL):
            raise refusal(frame.why, frame.reason)
        if isinstance(frame, Farewell | Goodbye):
            raise NotConnected(f"{self.url}: {frame.reason}", code=code_of(frame))
        return frame

    def _lost(self, error: OSError) -> NotConnected:
        return NotConnected(f"{self.url}: {error.strerror or error}")

    def close(self) -> None:
        with suppress(OSError, NotConnected):
            self.send(Farewell(RefusalCode.BYE))
        with suppress(OSError):
            self._carrier.close()


def may_follow(asked: str, told: str) -> bool:
    """Whether a URL that somebody named may be used: it is one, and does not lead from inside TLS to outside."""
    try:
        place = parse_url(told)
    except ConfigError:
        return False
    return place.is_secure or not parse_url(locator_url(asked) or asked).is_secure


def locate(url: str, access: Access, timeout: float, recipients: Recipients | None = None) -> list[str]:
    """What a locator at this URL answers: brokers to try, the best first."""
    carrier = _dial(url, access, timeout)
    try:
        if recipients is not None:
            recipients.check(url, carrier.certificate(), is_given=True)
        carrier.send(encode(AskLocate(access.name(), access.user, access.password, access.token), 0))
        decoder = Decoder()
        while True:
            data = carrier.receive()
            if not data:
                raise NotConnected(f"{url}: closed without an answer")
            for _, frame in decoder.feed(data):
                if isinstance(frame, TellLocated):
                    found = [each for broker in frame.brokers for each in broker.urls if may_follow(url, each)]
                    if not found:
                        raise RemoteProtocolError(f"{url} was asked inside TLS and names brokers outside of it only")
                    return found
                if isinstance(frame, Farewell) and frame.why is RefusalCode.DENIED:
                    raise AccessDenied(frame.reason)
                if isinstance(frame, Farewell | Goodbye):
                    raise Refused(f"{url}: {frame.reason}", code=code_of(frame))
                raise RemoteProtocolError(f"{url}: {type(frame).__name__} instead of an answer to where to connect")
    except OSError as error:
        if isinstance(error, NotConnected):
            raise
        raise NotConnected(f"{url}: {error.strerror or error}") from None
    finally:
        carrier.close()
