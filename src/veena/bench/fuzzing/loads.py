"""Honest traffic in the place of an attacker: as many frames and bytes a second, over as many connections.

Clients publish events with properties that differ, each to a topic of its own, which it also wants; every fifth frame
subscribes or unsubscribes. In the place of a hostile neighbour a real broker hands on the same events over its link. In
the place of hostile requests a monitor asks for the pages in turn.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veena.bench.fuzzing.attackers import CONNECTIONS, FANOUT, LEVELS
from veena.bench.fuzzing.channel import PATIENCE_S, Channel, WebSocketChannel
from veena.bench.fuzzing.pace import Pace
from veena.core.wire.client import AskSubscribe, AskUnsubscribe, ClientHello, ClientWelcome
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.event import EventCodec
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.event import Event, EventId

PAGES: Final = ("/healthz", "/readyz", "/metrics", "/statusz")
#: Every so many frames one is about subscriptions.
CONTROL_EVERY: Final = 5
#: What an event frame without a body takes, about.
EVENT_BYTES: Final = 180
#: Of a thousand events so many have another set of values.
VALUES: Final = 100


class HonestClient:
    """One connection that publishes what it wants itself."""

    def __init__(self, channel: Channel, reader: Channel | None, name: str, frame_bytes: float) -> None:
        self._channel, self._reader = channel, reader
        self._name = name
        self._body = bytes(max(0, round(frame_bytes * CONTROL_EVERY / (CONTROL_EVERY - 1)) - EVENT_BYTES))
        self._codec = EventCodec(LEVELS, FANOUT)
        self._incarnation = _greet(channel, name)
        self._sent = self._subscription = 0
        if reader is not None:
            _greet(reader, f"{name}-reads")
        self._subscribe(reader or channel, name)

    def send(self) -> int:
        """One frame; how many bytes it has."""
        self._sent += 1
        if self._sent % CONTROL_EVERY or self._reader is not None:
            data = self._event()
        elif self._sent % (2 * CONTROL_EVERY):
            data = self._subscribe_frame(f"{self._name}.{self._sent % VALUES}")
        else:
            data = encode(AskUnsubscribe(self._subscription), 0)
        self._channel.send(data)
        self._channel.take()
        if self._reader is not None:
            self._reader.take()
        return len(data)

    def _event(self) -> bytes:
        at = self._sent % VALUES
        event = Event(
            topic=self._name,
            properties={"price": at / 7, "symbol": f"S{at}", "lot": at},
            body=self._body,
            event_id=EventId(self._name, self._incarnation, 1, self._sent),
        )
        return self._codec.encode_event(event, 0, reliable=not self._sent % 4)

    def _subscribe(self, channel: Channel, topic: str) -> None:
        channel.send(self._subscribe_frame(topic))
        channel.take(PATIENCE_S)

    def _subscribe_frame(self, topic: str) -> bytes:
        self._subscription += 1
        return encode(AskSubscribe(self._subscription, "topic", msgspec.msgpack.encode(topic)), 0)


def load_clients(dial: type[Channel], places: list[tuple[str, int]], pace: Pace, frame_bytes: float) -> None:
    """Clients at the first place; with two places, they publish at the second and read at the first."""
    clients = []
    for at in range(CONNECTIONS):
        reader = dial(*places[0]) if len(places) > 1 else None
        clients.append(HonestClient(dial(*places[-1]), reader, f"load-{at}", frame_bytes))
    pace.connections = len(clients)
    pace.begin()
    while not pace.is_over:
        for client in clients:
            pace.sent(client.send())


def load_monitor(place: tuple[str, int], pace: Pace) -> None:
    """A monitor that asks for one page after the other."""
    while not pace.is_over:
        channel = Channel(*place)
        page = PAGES[pace.connections % len(PAGES)]
        request = f"GET {page} HTTP/1.1\r\nHost: {place[0]}:{place[1]}\r\n\r\n".encode()
        channel.send(request)
        while channel.take(PATIENCE_S):
            pass
        channel.close()
        pace.connections += 1
        pace.sent(len(request))


def load(door: str, places: list[tuple[str, int]], pace: Pace, frame_bytes: float) -> None:
    """The honest traffic for a door."""
    if door == "http":
        load_monitor(places[0], pace)
    else:
        load_clients(WebSocketChannel if door == "websocket" else Channel, places, pace, frame_bytes)


def _greet(channel: Channel, client_id: str) -> int:
    channel.send(encode(ClientHello(VERSION_LOW, VERSION, client_id), 0))
    decoder = Decoder()
    while channel.is_open and (data := channel.take(PATIENCE_S)):
        for _, frame in decoder.feed(data):
            if isinstance(frame, ClientWelcome):
                return frame.incarnation
    raise ConnectionError(f"{client_id}: the broker did not welcome an honest client")
