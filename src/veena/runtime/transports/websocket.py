"""WebSocket over TCP or TLS: for browsers, and through proxies that let nothing else pass.

The protocol is that of `websockets`, whose core does no I/O: RFC 6455 has many corners, this library is tested in all
of them, needs nothing else and masks in C. Here it only sits between two streams: below, bytes of HTTP and frames;
above, the same stream of Veena's frames as over TCP. Where a binary message begins and ends says nothing.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidURI
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING, OPEN
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from veena.core.wire.header import MAX_CONTROL_FRAME
from veena.errors import ConfigError
from veena.runtime.transports.strangers import Stranger, Strangers
from veena.runtime.transports.stream import CLOSED, Bytes, Listener, Stream
from veena.runtime.transports.tcp import (
    CLOSE_PATIENCE_S,
    CONNECT_PATIENCE_S,
    Accept,
    TcpServer,
    connect_tcp,
    listen_tcp,
)
from veena.runtime.transports.url import Url

#: What is asked for in the handshake.
SUBPROTOCOL = Subprotocol("veena")
#: A message is made at most so long, and twice that is taken: a peer's message is held whole before it is read.
MESSAGE_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 2 * MESSAGE_BYTES
#: The same of a stranger: the first frame of a client, which tells what it had, and a little more.
MAX_STRANGE_BYTES = MAX_CONTROL_FRAME + 1024
#: The request of a handshake, cookies and what proxies add included.
MAX_HANDSHAKE_BYTES = 16 * 1024
#: So many bytes are read at a time: in them are some thousand frames at most.
SLICE_BYTES = 16 * 1024
#: Pings, and frames without data, in a window; and of a stranger. Proxies and browsers send one in many seconds.
MAX_EMPTY = 1000
EMPTY_WINDOW_S = 10.0
MAX_STRANGE_EMPTY = 16
#: A close frame carries a reason of so many bytes.
MAX_REASON_BYTES = 123

_quiet = logging.getLogger("veena.websocket")
_quiet.setLevel(logging.WARNING)


class WebSocketStream:
    """One connection: the listener of the stream below, and a stream for the listener above."""

    def __init__(self, below: Stream, protocol: ServerProtocol | ClientProtocol, accept: Accept) -> None:
        self.peer, self.ip, self.proven = below.peer, below.ip, below.proven
        self.certificate = below.certificate
        self.stranger: Stranger | None = below.stranger
        if self.stranger is not None:
            self.stranger.on_known.append(self._known)
        self._below = below
        self._protocol = protocol
        #: Bytes of the handshake.
        self._asked = 0
        #: Frames without data that came since then.
        self._empty = 0
        self._empty_since = asyncio.get_running_loop().time()
        self._accept = accept
        self._listener: Listener | None = None
        self._is_closing = False
        self._reason = ""
        loop = asyncio.get_running_loop()
        #: Done when the handshake is; for who dials.
        self.opened: asyncio.Future[None] = loop.create_future()
        self._patience = loop.call_later(CONNECT_PATIENCE_S, self.abort, "no WebSocket handshake came in time")

    def begin(self) -> None:
        """The dialling side asks first."""
        assert isinstance(self._protocol, ClientProtocol)
        self._protocol.send_request(self._protocol.connect())
        self._flush()

    def _known(self) -> None:
        self.stranger = None
        self._protocol.max_message_size = MAX_MESSAGE_BYTES

    # --- listening below ---

    def received(self, data: Bytes) -> None:
        if self._protocol.state is CONNECTING:
            self._asked += len(data)
            if self._asked > MAX_HANDSHAKE_BYTES:
                self.abort(f"a WebSocket handshake of more than {MAX_HANDSHAKE_BYTES} bytes")
                return
        parts: list[Bytes] = []
        whole = bytes(data)
        for start in range(0, len(whole), SLICE_BYTES):
            self._protocol.receive_data(whole[start : start + SLICE_BYTES])
            for event in self._protocol.events_received():
                if isinstance(event, Frame):
                    self._take(event, parts)
                else:
                    self._shake_hands(event)
            if self._says_too_little():
                self.abort("too many WebSocket frames without data")
                return
            self._flush()
        if parts and self._listener is not None and not self._is_closing:
            self._listener.received(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._protocol.close_expected() and not self._is_closing:
            code = self._protocol.close_code if self._protocol.state is not OPEN else None
            if code not in (None, CloseCode.NORMAL_CLOSURE, CloseCode.ABNORMAL_CLOSURE):
                self._reason = self._reason or f"closed with code {code}: {self._protocol.close_reason}"
            self._is_closing = True
            self._below.close(self._reason or CLOSED)

    def _says_too_little(self) -> bool:
        """Whether more frames without data came than anybody needs: each costs as much as one with data, and no rate of
        the layers above counts it."""
        if self._empty > (MAX_STRANGE_EMPTY if self.stranger is not None else MAX_EMPTY):
            now = asyncio.get_running_loop().time()
            if self.stranger is not None or now - self._empty_since < EMPTY_WINDOW_S:
                return True
            self._empty, self._empty_since = 0, now
        return False

    def closed(self, reason: str) -> None:
        self._patience.cancel()
        self._is_closing = True
        if self._protocol.parser_exc is not None:
            self._reason = self._reason or str(self._protocol.parser_exc)
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(self._reason or reason))
            self.opened.exception()  # nobody may be waiting for it
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.closed(self._reason or reason)

    def clogged(self) -> None:
        if self._listener is not None:
            self._listener.clogged()

    def cleared(self) -> None:
        if self._listener is not None:
            self._listener.cleared()

    def _take(self, frame: Frame, parts: list[Bytes]) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            if frame.data:
                parts.append(frame.data)
            else:
                self._empty += 1
        elif frame.opcode in (Opcode.PING, Opcode.PONG):
            self._empty += 1
        elif frame.opcode is Opcode.TEXT:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "send binary messages")
            self._reason = self._reason or "a text message came: only binary ones are read"

    def _shake_hands(self, event: Request | Response) -> None:
        if isinstance(event, Request):
            assert isinstance(self._protocol, ServerProtocol)
            self._protocol.send_response(self._protocol.accept(event))
            self._flush()
        if self._protocol.handshake_exc is not None:
            self._reason = f"no WebSocket: {self._protocol.handshake_exc}"
        elif self._protocol.state is OPEN:
            self._patience.cancel()
            self._listener = self._accept(self)
            self.opened.set_result(None)

    def _flush(self) -> None:
        parts = self._protocol.data_to_send()
        if not parts:
            return
        whole = [part for part in parts if part]
        if whole:
            self._below.write(whole)
        if len(whole) < len(parts):  # an empty part means: no more is sent
            self._below.close(self._reason or "the WebSocket is closed")

    # --- the stream above ---

    def write(self, parts: Sequence[Bytes]) -> None:
        if self._is_closing or self._protocol.state is not OPEN:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        view = memoryview(data)
        for start in range(0, len(view), MESSAGE_BYTES):
            self._protocol.send_binary(view[start : start + MESSAGE_BYTES])
        self._flush()

    def close(self, reason: str) -> None:
        if self._is_closing:
            return
        self._is_closing, self._reason = True, self._reason or reason
        if self._protocol.state is OPEN:
            short = reason.encode()[:MAX_REASON_BYTES].decode("utf-8", "ignore")
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE, short)
            self._flush()
            # The peer's close frame ends it; a peer that sends none does not hold it up for long.
            self._patience = asyncio.get_running_loop().call_later(CLOSE_PATIENCE_S, self._below.abort, reason)
        else:
            self._below.close(reason)

    def abort(self, reason: str) -> None:
        self._is_closing, self._reason = True, self._reason or reason
        self._below.abort(reason)

    @property
    def waiting(self) -> int:
        return self._below.waiting

    @property
    def untaken(self) -> int:
        return self._below.untaken

    def pause(self) -> None:
        self._below.pause()

    def resume(self) -> None:
        self._below.resume()


async def listen_websocket(
    url: Url, accept: Accept, context: ssl.SSLContext | None, origins: tuple[str, ...], strangers: Strangers
) -> TcpServer:
    """Without `origins` no web page may connect: any page that a user opens could reach a broker on loopback."""
    allowed = [None, *map(Origin, origins)]

    def make(below: Stream) -> Listener:
        protocol = ServerProtocol(
            origins=allowed,
            subprotocols=[SUBPROTOCOL],
            select_subprotocol=lambda _, offered: SUBPROTOCOL if SUBPROTOCOL in offered else None,
            max_size=MAX_STRANGE_BYTES,
            logger=_quiet,
        )
        return WebSocketStream(below, protocol, accept)

    return await listen_tcp(url, make, context, strangers)


async def connect_websocket(url: Url, accept: Accept, context: ssl.SSLContext | None) -> Stream:
    made: list[WebSocketStream] = []

    def make(below: Stream) -> Listener:
        protocol = ClientProtocol(
            parse_uri(str(url)), subprotocols=[SUBPROTOCOL], max_size=MAX_MESSAGE_BYTES, logger=_quiet
        )
        made.append(WebSocketStream(below, protocol, accept))
        return made[0]

    try:
        await connect_tcp(url, make, context)
        made[0].begin()
        await made[0].opened
    except (InvalidURI, InvalidHandshake) as error:
        raise ConfigError("url", str(url), str(error), "dial a WebSocket of a broker") from None
    return made[0]
