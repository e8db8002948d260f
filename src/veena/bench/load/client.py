"""Veena's side of the load: clients that attach and subscribe over plain sockets, and the bytes of their events."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from typing import TypeVar

import msgspec

from veena.bench.load.generator import Load, Receiver, numbered
from veena.core.wire.client import (
    MAX_CLIENT_HEARTBEAT_MS,
    AskSubscribe,
    ClientHello,
    ClientWelcome,
    TellActive,
    TellRefused,
)
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.header import EVENT, HEADER, HEADER_SIZE, VERSION, VERSION_LOW
from veena.event import Event, EventId

PATIENCE_S = 30.0
T = TypeVar("T", bound=Frame)
#: Subscriptions of one write.
BATCH = 64
#: Where an event frame has its sequence.
SEQUENCE_AT = 36


class Attached:
    """One client over a plain socket, until the load takes the socket over."""

    def __init__(self, host: str, port: int, client_id: str) -> None:
        self.client_id = client_id
        self.socket = socket.create_connection((host, port), PATIENCE_S)
        self._decoder = Decoder()
        self._waiting: set[int] = set()
        self._frames: deque[Frame | EventFrame] = deque()
        self.say(ClientHello(VERSION_LOW, VERSION, client_id, heartbeat_ms=MAX_CLIENT_HEARTBEAT_MS))
        welcome = self.wait(ClientWelcome)
        self.welcome = welcome
        self.codec = EventCodec(welcome.levels, welcome.fanout)
        self._decoder = Decoder(self.codec)

    def say(self, *frames: Frame) -> None:
        self.socket.sendall(b"".join(encode(frame, 0) for frame in frames))

    def wait(self, kind: type[T]) -> T:
        """The next frame of this kind."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            while self._frames:
                frame = self._frames.popleft()
                if isinstance(frame, kind):
                    return frame
                if isinstance(frame, TellRefused):
                    raise RuntimeError(f"{self.client_id}: {frame.reason}")
            self._read()
        raise RuntimeError(f"{self.client_id}: no {kind.__name__} came")

    def _read(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise RuntimeError(f"{self.client_id}: the broker has closed the connection")
        self._frames += [frame for _, frame in self._decoder.feed(data)]

    def subscribe(self, topics: list[str], first: int = 1) -> None:
        """Want these topics, and wait until everybody knows of all of them."""
        self.ask(topics, first)
        self.wait_active()

    def ask(self, topics: list[str], first: int = 1) -> None:
        """Want these topics."""
        self._waiting.update(range(first, first + len(topics)))
        for at in range(0, len(topics), BATCH):
            batch = enumerate(topics[at : at + BATCH], first + at)
            self.say(*(AskSubscribe(number, "topic", msgspec.msgpack.encode(topic)) for number, topic in batch))
            while select.select((self.socket,), (), (), 0)[0]:
                self._read()

    def wait_active(self) -> None:
        """Until everybody knows of all that was asked for."""
        while self._waiting:
            told = self.wait(TellActive)
            if told.level == self.welcome.levels:
                self._waiting.discard(told.subscription)

    def template(self, topic: str, size: int, reliable: bool) -> bytes:
        """An event with so long a body."""
        event = Event(topic=topic, body=bytes(size), event_id=EventId(self.client_id, self.welcome.incarnation, 1, 0))
        return self.codec.encode_event(event, 0, reliable=reliable, origin=self.welcome.address)


def _before_events(data: bytes) -> int:
    """How many bytes of other frames come before the first event; -1 while that cannot be said."""
    offset = 0
    while len(data) - offset >= HEADER_SIZE:
        length, _, kind, _, _ = HEADER.unpack_from(data, offset)
        if kind == EVENT:
            return offset
        offset += length
    return -1


def load(
    host: str,
    port: int,
    receivers: int,
    size: int = 100,
    reliable: bool = False,
    topic: str = "bench",
    receiving: int | None = None,
) -> Load:
    """A publisher and so many receivers of one topic, attached and subscribed; `receiving` is their broker's port."""
    readers = [Attached(host, receiving or port, f"reader-{number}") for number in range(receivers)]
    for reader in readers:
        reader.ask([topic])
    for reader in readers:
        reader.wait_active()
    publisher = Attached(host, port, "publisher")
    template = publisher.template(topic, size, reliable)
    at = len(template) - size
    assert at > HEADER_SIZE
    return Load(
        publisher.socket,
        numbered(template, at, SEQUENCE_AT),
        [Receiver(reader.socket, len(template), at, begin=_before_events) for reader in readers],
    )
