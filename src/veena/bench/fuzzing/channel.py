"""One connection of a sender: blocking for a moment at most, over TCP or inside WebSocket messages."""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from typing import Final

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

#: How long the broker may take nothing before the connection is given up, and how long an answer is waited for.
PATIENCE_S: Final = 1.0
READ_BYTES: Final = 1 << 16


class Channel:
    """Bytes to a broker and back; every call returns soon, and `is_open` is False from the first failure on."""

    def __init__(self, host: str, port: int) -> None:
        self.is_open = False
        with suppress(OSError):
            self._socket = socket.create_connection((host, port), PATIENCE_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setblocking(False)
            self.is_open = True

    def send(self, data: bytes) -> None:
        """Send all of it, or give the connection up."""
        view = memoryview(data)
        while view and self.is_open:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                if not select.select([], [self._socket], [], PATIENCE_S)[1]:
                    self.close()
            except OSError:
                self.close()

    def take(self, patience_s: float = 0.0) -> bytes:
        """What has come; waits so long for something."""
        if not self.is_open:
            return b""
        try:
            if patience_s and not select.select([self._socket], [], [], patience_s)[0]:
                return b""
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self.close()
        return data

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._socket.close()


class WebSocketChannel(Channel):
    """The same inside WebSocket messages; `raw` sends bytes beside the protocol."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._protocol = ClientProtocol(parse_uri(f"ws://{host}:{port}"), subprotocols=["veena"])  # type: ignore[list-item]
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while self.is_open and not any(isinstance(event, Response) for event in self._events(PATIENCE_S)):
            if self._protocol.handshake_exc is not None:
                self.close()

    def raw(self, data: bytes) -> None:
        """Bytes that are no WebSocket frame, or not a right one."""
        super().send(data)

    def send(self, data: bytes) -> None:
        if self.is_open and self._protocol.state is OPEN:
            self._protocol.send_binary(data)
            self._flush()
        else:
            self.close()

    def take(self, patience_s: float = 0.0) -> bytes:
        return b"".join(
            bytes(event.data)
            for event in self._events(patience_s)
            if isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.CONT)
        )

    def _events(self, patience_s: float) -> list[object]:
        data = super().take(patience_s)
        if not data:
            if patience_s and self.is_open:
                self.close()  # nothing came in all that time: a handshake that is not answered
            return []
        self._protocol.receive_data(data)
        events: list[object] = list(self._protocol.events_received())
        self._flush()
        return events

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            super().send(data)
