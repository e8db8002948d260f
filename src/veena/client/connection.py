"""One connection of a client to a broker: dial, greet, write in batches, notice when it is dead.

What is sent within one turn of the event loop is one write; what a read brings is dealt with at once, all of it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence

from veena.core.wire.client import ClientHello, ClientWelcome, Farewell, TellRedirect, code_of
from veena.core.wire.codec import Decoder, Numbered, encode
from veena.core.wire.control import MAX_REASON, Frame, Goodbye, Heartbeat
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.header import MAX_FRAME
from veena.errors import (
    NotConnected,
    OtherVersion,
    RefusalCode,
    Refused,
    RemoteProtocolError,
    VeenaError,
    refusal,
)
from veena.runtime.locator.client import Judge, anybody
from veena.runtime.transports.registry import Secrets, connect
from veena.runtime.transports.stream import CLOSED, Bytes, Stream
from veena.runtime.transports.url import parse_url

#: Bytes that are written at once without waiting for the end of the turn.
WRITE_NOW = 64 * 1024
#: A broker that says nothing for so many heartbeats is gone.
MISSED_HEARTBEATS = 3
#: A broker that does not let the client in for one of these is not asked again, nor is another one.
FINAL = (RefusalCode.DENIED, RefusalCode.PROTOCOL)
#: What is said of a peer that ended the connection before it said anything, as those do that expect something else.
HUNG_UP = "it hung up without a word: is it a broker, and is the URL's scheme right (veenas:// for TLS)?"
#: The same inside TLS, where a broker that refuses a client's certificate has no other way to say so.
HUNG_UP_IN_TLS = (
    "it hung up without a word: is it a broker, and if it asks for certificates, does the client show a good one that"
    " is not revoked (VEENA_CERTIFICATE for commands, `tls` in programs)?"
)
#: What OpenSSL says of a certificate whose authority it was not given: 18 to 21 of X509_verify_cert_error(3).
OF_NO_TRUSTED_AUTHORITY = range(18, 22)


class Redirected(VeenaError):
    """The broker has sent the client elsewhere."""

    def __init__(self, urls: Sequence[str], reason: str) -> None:
        super().__init__(reason or "sent to another broker")
        self.urls = tuple(urls)


class Connection:
    """A way to one broker."""

    def __init__(self, url: str, hello: ClientHello, hear: Callable[[list[Numbered]], None]) -> None:
        self.url = url
        self.round_trip_s: float | None = None
        self._hello = hello
        self._hear = hear
        self._decoder = Decoder(max_frame=MAX_FRAME)
        self._stream: Stream | None = None
        self._parts: list[Bytes] = []
        self._size = 0
        self._is_scheduled = False
        self.is_clogged = False
        #: Called when what was written has gone.
        self.on_room: Callable[[], None] = lambda: None
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._welcome: asyncio.Future[ClientWelcome] = loop.create_future()
        self._closed: asyncio.Future[str] = loop.create_future()
        self._heard = loop.time()
        self._has_heard = False
        self._echoes: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, secrets: Secrets, patience_s: float, judge: Judge = anybody) -> ClientWelcome:
        """Dial and greet; raise what keeps that from working, AccessDenied when the broker does not let it in."""
        try:
            async with asyncio.timeout(patience_s):
                self._stream = await connect(parse_url(self.url), self._accept, secrets)
                judge(self.url, self._stream)
                self._stream.write((encode(self._hello, 0),))
                welcome = await asyncio.shield(self._welcome)
        except TimeoutError:
            self.abort("no answer")
            raise NotConnected(f"{self.url} did not answer within {patience_s:g} seconds") from None
        except NotConnected:
            self.abort("given up")
            raise
        except OSError as error:
            raise NotConnected(f"{self.url}: {self._shown(error)}") from None
        except BaseException:
            self.abort("given up")
            raise
        self._beat()
        return welcome

    def _shown(self, error: OSError) -> str:
        """What keeps it from dialling, and what to do where that is known."""
        reason = error.strerror or str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = "trust its authority's file, by --ca in commands and `tls` in programs"
            is_foreign = error.verify_code in OF_NO_TRUSTED_AUTHORITY
            return f"its certificate is refused here ({error.verify_message}){'; ' + remedy if is_foreign else ''}"
        if isinstance(error, ConnectionRefusedError):
            return f"{reason}: does a broker run there?"
        return self._hung_up if reason in ("", CLOSED) else reason

    @property
    def _hung_up(self) -> str:
        return HUNG_UP_IN_TLS if parse_url(self.url).is_secure else HUNG_UP

    def _accept(self, stream: Stream) -> Connection:
        self._stream = stream
        return self

    # --- the stream's side ---

    def received(self, data: Bytes) -> None:
        self._heard = self._loop.time()
        self._has_heard = True
        try:
            frames = self._decoder.feed(data if isinstance(data, bytes) else bytes(data))
            if self._welcome.done():
                self._hear(frames)
                return
            for at, (_, frame) in enumerate(frames):
                if isinstance(frame, EventFrame):
                    raise RemoteProtocolError("an event before the welcome")
                self._greeted(frame)
                if self._welcome.done() and at + 1 < len(frames) and not self._welcome.exception():
                    raise RemoteProtocolError("the broker sent more than a welcome before it was asked for anything")
        except VeenaError as error:
            if isinstance(error, OtherVersion) and not self._welcome.done():
                self._fail(Refused(f"{self.url}: {error}", code=error.code))
            self.close(Farewell(RefusalCode.PROTOCOL, str(error)[:MAX_REASON]), str(error))

    def _greeted(self, frame: Frame) -> None:
        """What comes before the welcome, and the welcome."""
        if self._welcome.done():
            return
        if isinstance(frame, ClientWelcome):
            self._decoder = Decoder(EventCodec(frame.levels, frame.fanout, MAX_FRAME), MAX_FRAME)
            self._welcome.set_result(frame)
        elif isinstance(frame, TellRedirect):
            self._fail(Redirected(frame.urls, frame.reason))
        elif isinstance(frame, Farewell) and frame.why in FINAL:
            self._fail(refusal(frame.why, frame.reason))
        elif isinstance(frame, Farewell | Goodbye):
            self._fail(NotConnected(f"{self.url}: {frame.reason}", code=code_of(frame)))
        else:
            raise RemoteProtocolError(f"{type(frame).__name__} instead of a welcome")

    def _fail(self, fault: VeenaError) -> None:
        self._welcome.set_exception(fault)
        self._welcome.exception()  # who waited may have gone

    def closed(self, reason: str) -> None:
        if not self._welcome.done():
            is_silent = not self._has_heard and reason == CLOSED
            self._fail(NotConnected(f"{self.url}: {self._hung_up if is_silent else reason}"))
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed.done():
            self._closed.set_result(reason)
        self.on_room()

    def clogged(self) -> None:
        self.is_clogged = True

    def cleared(self) -> None:
        self.is_clogged = False
        self.on_room()

    # --- writing ---

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self.write(encode(frame, 0))

    def write(self, *parts: Bytes) -> None:
        """Let these be written, in order, at the end of this turn of the loop or when enough has come together."""
        self._parts += parts
        self._size += sum(map(len, parts))
        if self._size >= WRITE_NOW:
            self.flush()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self.flush()

    def flush(self) -> None:
        if self._parts and self._stream is not None:
            parts, self._parts, self._size = self._parts, [], 0
            self._stream.write(parts)

    # --- life ---

    def _beat(self) -> None:
        """Say that this side is there, and see whether the other one is."""
        interval_s = self._hello.heartbeat_ms / 1000
        if self._loop.time() - self._heard > MISSED_HEARTBEATS * interval_s:
            self.abort(f"nothing came for {MISSED_HEARTBEATS * interval_s:g} seconds")
            return
        self.send(Heartbeat(time.monotonic_ns(), 0))
        self._timer = self._loop.call_later(interval_s, self._beat)

    def heard_heartbeat(self, frame: Heartbeat) -> None:
        if frame.echo_ns:
            if (waiting := self._echoes.pop(frame.echo_ns, None)) is not None and not waiting.done():
                waiting.set_result(None)
            self.round_trip_s = (time.monotonic_ns() - frame.echo_ns) / 1e9
            if frame.sent_ns:
                self.send(Heartbeat(0, frame.sent_ns))  # the broker measures the way as well

    async def wait_read(self) -> None:
        """Until the broker has read what was written before, and what it says to that is here."""
        sent_ns = time.monotonic_ns()
        self._echoes[sent_ns] = waiting = self._loop.create_future()
        self.send(Heartbeat(sent_ns, 0))
        try:
            await asyncio.wait({waiting, self._closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._echoes.pop(sent_ns, None)
        if not waiting.done():
            raise NotConnected(f"{self.url}: {self._closed.result()}")

    def close(self, farewell: Farewell | None, reason: str) -> None:
        """Send what was written and a last word, then close."""
        if self._stream is not None and not self._closed.done():
            if farewell is not None:
                self._parts.append(encode(farewell, 0))
            self.flush()
            self._stream.close(reason)

    def abort(self, reason: str) -> None:
        if self._stream is not None:
            self._stream.abort(reason)
        elif not self._closed.done():
            self.closed(reason)

    async def wait_closed(self) -> str:
        """Why it is over."""
        return await asyncio.shield(self._closed)
