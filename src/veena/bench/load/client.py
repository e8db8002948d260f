"""Veena's side of the load: clients that attach and subscribe over plain sockets, and the bytes of their events."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from veena.bench.load.content import TOPIC, Row, Want
from veena.bench.load.generator import NUMBER, Load, Make, Receiver, body, everything, numbered
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
from veena.core.wire.header import VERSION, VERSION_LOW
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

    def wait(self, kind: type[T], patience_s: float = PATIENCE_S) -> T:
        """The next frame of this kind."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            while self._frames:
                frame = self._frames.popleft()
                if isinstance(frame, kind):
                    return frame
                if isinstance(frame, TellRefused):
                    raise RuntimeError(f"{self.client_id}: {frame.reason}")
            if select.select((self.socket,), (), (), max(0.0, deadline - time.monotonic()))[0]:
                self._read()
        raise RuntimeError(f"{self.client_id}: no {kind.__name__} came within {patience_s:.0f} seconds")

    def _read(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise RuntimeError(f"{self.client_id}: the broker has closed the connection")
        self._frames += [frame for _, frame in self._decoder.feed(data)]

    def subscribe(self, topics: list[str], first: int = 1) -> None:
        """Want these topics, and wait until everybody knows of all of them."""
        self.ask([("topic", topic) for topic in topics], first)
        self.wait_active()

    def ask(self, wants: Sequence[Want], first: int = 1) -> None:
        """Want these."""
        self._waiting.update(range(first, first + len(wants)))
        for at in range(0, len(wants), BATCH):
            batch = enumerate(wants[at : at + BATCH], first + at)
            self.say(*(AskSubscribe(number, kind, msgspec.msgpack.encode(want)) for number, (kind, want) in batch))
            while select.select((self.socket,), (), (), 0)[0]:
                self._read()

    def wait_active(self, patience_s: float = PATIENCE_S) -> None:
        """Until everybody knows of all that was asked for."""
        while self._waiting:
            told = self.wait(TellActive, patience_s)
            if told.level == self.welcome.levels:
                self._waiting.discard(told.subscription)

    @property
    def waiting(self) -> int:
        """Subscriptions that somebody does not know of yet."""
        return len(self._waiting)

    def encoded(self, events: Sequence[Event], reliable: bool) -> list[bytes]:
        """Events as frames of this client."""
        event_id = EventId(self.client_id, self.welcome.incarnation, 1, 0)
        return [
            self.codec.encode_event(
                replace(event, event_id=event_id), 0, reliable=reliable, origin=self.welcome.address
            )
            for event in events
        ]

    def make(self, events: Sequence[Event], reliable: bool) -> Make:
        """What sends these in turn."""
        pool = self.encoded(events, reliable)
        return numbered(pool, len(pool[0]) - NUMBER.itemsize, SEQUENCE_AT)


class Crowd:
    """The clients of a row, attached and subscribed to a broker; its loads follow one another."""

    def __init__(self, host: str, port: int, row: Row, patience_s: float = PATIENCE_S) -> None:
        self._host, self._port, self._row = host, port, row
        self._clients: list[Attached] = []
        self.receivers: list[Receiver] = []
        deadline = time.monotonic() + patience_s
        try:
            for number, wants in enumerate(row.wants):
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{number} of {len(row.wants)} clients could ask within {patience_s:.0f} seconds"
                    )
                client = Attached(host, port, f"reader-{number}")
                self._clients.append(client)
                client.ask(wants)
            for number, client in enumerate(self._clients):
                client.wait_active(max(0.0, deadline - time.monotonic()))
                self.receivers.append(Receiver(client.socket, row.due(number), len(row.events)))
        except BaseException:
            self.close()
            raise

    def load(self, reliable: bool) -> Load:
        """One more publisher, whose first message is everybody's next."""
        publisher = Attached(self._host, self._port, f"publisher-{'reliable' if reliable else 'best'}")
        for receiver in self.receivers:
            receiver.renew()
        return Load(publisher.socket, publisher.make(self._row.events, reliable), self.receivers)

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()


def load(
    host: str,
    port: int,
    receivers: int,
    size: int = 100,
    reliable: bool = False,
    topic: str = TOPIC,
    receiving: int | None = None,
) -> Load:
    """A publisher and so many receivers of one topic, attached and subscribed; `receiving` is their broker's port."""
    readers = [Attached(host, receiving or port, f"reader-{number}") for number in range(receivers)]
    for reader in readers:
        reader.ask([("topic", topic)])
    for reader in readers:
        reader.wait_active()
    publisher = Attached(host, port, "publisher")
    make = publisher.make([Event(topic=topic, body=body(size))], reliable)
    return Load(publisher.socket, make, [Receiver(reader.socket, everything(1)) for reader in readers])
