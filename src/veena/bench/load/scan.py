"""A broker without an index, to compare with: `python -m veena.bench.load.scan`.

It speaks as much of Veena's wire as the load needs, asks the compiled closure of every subscription about every event,
and makes the same deliveries: one event a client, behind the numbers of its subscriptions where these change. What a
read brings is dealt with at once, and each receiver gets one write a read.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from veena import matching
from veena.core.wire.client import AskSubscribe, ClientHello, ClientWelcome, Matched, TellActive
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.header import DEFAULT_MAX_FRAME, VERSION
from veena.matching.base.engine import Constraint

LEVELS: Final = 4
FANOUT: Final = 32
READ = 64 * 1024
Test = Callable[[EventFrame], bool]


def closure(engine: str, constraint: Constraint) -> Test:
    """The compiled test of one constraint."""
    if engine == "topic":
        return lambda frame: frame.section.topic == constraint
    if engine == "selector" and isinstance(constraint, tuple | list):
        topic, text = constraint
        test: Any = matching.compile_selector(str(text)).matches
        return lambda frame: frame.section.topic == topic and test(frame.section.properties)
    raise SystemExit(f"no scan for {engine}: topics and selectors are scanned")


class Client:
    """One connection: a subscriber, a publisher, or both."""

    def __init__(self, found: socket.socket) -> None:
        self.socket = found
        self.decoder = Decoder(EventCodec(LEVELS, FANOUT, DEFAULT_MAX_FRAME))
        self.tests: list[tuple[int, Test]] = []
        self.matched: tuple[int, ...] = ()
        self.out = bytearray()


class Scan:
    """All connections, and one thread that serves them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._clients: list[Client] = []
        self._codec = EventCodec(LEVELS, FANOUT, DEFAULT_MAX_FRAME)

    def serve(self) -> None:
        """Until standard input ends."""
        server = socket.create_server(("127.0.0.1", 0))
        print(json.dumps({"port": server.getsockname()[1]}), flush=True)
        self._selector.register(server, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, ready in self._selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is server:
                    self._accept(server)
                    continue
                if ready & selectors.EVENT_READ:
                    self._read(key.data)
                if ready & selectors.EVENT_WRITE:
                    self._write(key.data)

    def _accept(self, server: socket.socket) -> None:
        found, _ = server.accept()
        found.setblocking(False)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(found)
        self._clients.append(client)
        self._selector.register(found, selectors.EVENT_READ, client)

    def _read(self, client: Client) -> None:
        try:
            data = client.socket.recv(READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(client.socket)
            self._clients.remove(client)
            client.socket.close()
            return
        for _, frame in client.decoder.feed(data):
            if isinstance(frame, EventFrame):
                self._deliver(frame)
            elif isinstance(frame, ClientHello):
                welcome = ClientWelcome(
                    VERSION, 1, "#scan", "scan", LEVELS, FANOUT, DEFAULT_MAX_FRAME, (0,) * LEVELS, "scan"
                )
                client.out += encode(welcome, 0)
            elif isinstance(frame, AskSubscribe):
                wanted = msgspec.msgpack.decode(frame.constraint)
                client.tests.append((frame.subscription, closure(frame.engine, wanted)))
                client.out += encode(TellActive(frame.subscription, LEVELS), 0)
        for each in self._clients:
            if each.out:
                self._write(each)

    def _deliver(self, frame: EventFrame) -> None:
        data = b""
        for client in self._clients:
            matched = tuple(number for number, test in client.tests if test(frame))
            if not matched:
                continue
            data = data or self._codec.encode(frame, 0)
            if matched != client.matched:
                client.matched = matched
                client.out += encode(Matched(matched), 0)
            client.out += data

    def _write(self, client: Client) -> None:
        if client.out:
            try:
                del client.out[: client.socket.send(client.out)]
            except BlockingIOError:
                pass
            except OSError:
                client.out.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.out else 0)
        if client in self._clients:
            self._selector.modify(client.socket, events, client)


if __name__ == "__main__":
    Scan().serve()
