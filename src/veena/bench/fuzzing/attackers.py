"""Who attacks a broker: clients over TCP and WebSocket, neighbours over links, and askers over HTTP.

Each keeps a few connections at once. A connection says who it is, most often rightly, for a stranger gets no further
than a broker's first check; then it sends what was drawn, in turn with the others, until the broker closes it or its
frames are spent. What the corpus holds is sent first, each entry over a connection of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any, Final

from veena.address import Address
from veena.bench.fuzzing.channel import PATIENCE_S, Channel, WebSocketChannel
from veena.bench.fuzzing.corpus import load_lines
from veena.bench.fuzzing.drawing import Drawing
from veena.bench.fuzzing.pace import Pace
from veena.core.wire.client import ClientHello, ClientWelcome
from veena.core.wire.codec import KINDS, Decoder, encode
from veena.core.wire.control import Heartbeat, Hello
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.errors import RemoteProtocolError

#: Connections at once, and frames that one sends at most.
CONNECTIONS: Final = 6
FRAMES: Final = 300
#: Kinds that a client and a neighbour send, each also some of the other's.
CLIENT_KINDS: Final = tuple(cls for kind, cls in KINDS.items() if kind >= 64 or kind in (3, 4))
LINK_KINDS: Final = tuple(cls for kind, cls in KINDS.items() if kind < 64)
FOREIGN: Final = 0.02
#: And of lives of a neighbour that begin under one of a few addresses.
NEAR: Final = 0.3
#: Shares of connections that send noise instead of a greeting, and a drawn greeting instead of a right one.
NOISE, DRAWN_GREETING = 0.05, 0.05
LEVELS: Final = 4
FANOUT: Final = 32
#: How long an answer is waited for that nobody needs.
GLANCE_S: Final = 0.05


class Attacker(ABC):
    """Connections to one door."""

    def __init__(self, host: str, port: int, chance: Random, pace: Pace) -> None:
        self.host, self.port = host, port
        self.chance, self.pace = chance, pace
        self.drawing = Drawing(chance, LEVELS, FANOUT)
        self._made = 0

    def run(self, corpus: Path) -> None:
        """What the corpus holds, then what is drawn until the time is over."""
        for _, entry in load_lines(corpus):
            self.replay(entry)
        self.pace.begin()
        lives = [self.life() for _ in range(CONNECTIONS)]
        while not self.pace.is_over:
            for at, life in enumerate(lives):
                if next(life, None) is None:
                    lives[at] = self.life()

    def number(self) -> int:
        """The number of a connection, the first is 1."""
        self._made += 1
        self.pace.connections += 1
        return self._made

    def dial(self) -> Channel:
        return Channel(self.host, self.port)

    @abstractmethod
    def life(self) -> Any:
        """One connection as a generator: it yields True after each frame and ends with the connection."""

    @abstractmethod
    def replay(self, entry: Any) -> None:
        """Send an entry of the corpus."""

    def send(self, channel: Channel, data: bytes) -> None:
        channel.send(data)
        self.pace.sent(len(data))
        channel.take()


class ClientAttacker(Attacker):
    """A client without a library."""

    def life(self) -> Any:
        number, channel = self.number(), self.dial()
        client_id, incarnation = f"fuzz-{number % 40}", 0
        if self.chance.random() < NOISE:
            self.send(channel, self.chance.randbytes(self.chance.randint(1, 4000)))
        elif self.chance.random() < DRAWN_GREETING:
            self.send(channel, self.drawing.control(ClientHello))
        else:
            incarnation = self.greet(channel, client_id)
        for _ in range(self.chance.randint(1, FRAMES)):
            if not channel.is_open:
                break
            self.send(channel, self.frame(client_id, incarnation))
            yield True
        channel.close()

    def frame(self, client_id: str, incarnation: int) -> bytes:
        chance = self.chance
        if chance.random() < 0.3:
            return self.drawing.event(client_id, incarnation)
        return self.drawing.control(chance.choice(LINK_KINDS if chance.random() < FOREIGN else CLIENT_KINDS))

    def greet(self, channel: Channel, client_id: str) -> int:
        """Say who it is; the incarnation that the broker gives its events, 0 for a broker that does not answer."""
        greeting = encode(ClientHello(VERSION_LOW, VERSION, client_id), 0)
        channel.send(greeting)
        self.pace.sent(len(greeting))
        decoder = Decoder()
        while channel.is_open and (data := channel.take(PATIENCE_S)):
            try:
                welcomes = [frame for _, frame in decoder.feed(data) if isinstance(frame, ClientWelcome)]
            except RemoteProtocolError:
                return 0
            if welcomes:
                return welcomes[0].incarnation
        return 0

    def replay(self, entry: Any) -> None:
        number, channel = self.number(), self.dial()
        self.greet(channel, f"fuzz-{number % 40}")
        self.send(channel, self.drawing.of(entry[0], entry[1:]))
        channel.take(GLANCE_S)
        channel.close()


class WebSocketAttacker(ClientAttacker):
    """The same inside WebSocket messages, and frames that are wrong there."""

    def dial(self) -> Channel:
        return WebSocketChannel(self.host, self.port)

    def send(self, channel: Channel, data: bytes) -> None:
        if self.chance.random() < FOREIGN and isinstance(channel, WebSocketChannel):
            head = bytes((self.chance.randrange(256), self.chance.randrange(256)))
            channel.raw(head + self.chance.randbytes(self.chance.randint(0, 20)))
        super().send(channel, data)

    def replay(self, entry: Any) -> None:
        if isinstance(entry, bytes):
            self.number()
            channel = Channel(self.host, self.port)
            channel.send(entry)
            self.pace.sent(len(entry))
            channel.take(GLANCE_S)
            channel.close()
        else:
            super().replay(entry)


class LinkAttacker(Attacker):
    """A neighbour that nobody configured.

    Some lives begin under one of a few addresses, as a neighbour that comes back does; the others, and each entry of
    the corpus, take any of half a million.
    """

    network = "alone"

    def life(self) -> Any:
        channel, address = self.dial(), self.near() if self.chance.random() < NEAR else self.anywhere()
        if self.chance.random() < DRAWN_GREETING:
            self.send(channel, self.drawing.control(Hello))
        else:
            self.greet(channel, address)
        for numbered in range(2, 2 + self.chance.randint(1, FRAMES)):
            if not channel.is_open:
                break
            self.send(channel, _numbered(self.frame(address), numbered))
            yield True
        channel.close()

    def near(self) -> Address:
        return (0, 0, 0, self.chance.randrange(8, 24))

    def anywhere(self) -> Address:
        return (*(self.chance.randrange(FANOUT) for _ in range(LEVELS - 1)), self.chance.randrange(8, 24))

    def greet(self, channel: Channel, address: Address) -> None:
        greeting = encode(self.hello(address), 1)
        channel.send(greeting)
        self.pace.sent(len(greeting))
        channel.take(PATIENCE_S)

    def hello(self, address: Address) -> Hello:
        nonce, incarnation = self.chance.getrandbits(64), self.number()
        name = _name(address)
        return Hello(VERSION_LOW, VERSION, self.network, LEVELS, FANOUT, address, incarnation, nonce, 1000, (), name)

    def frame(self, address: Address) -> bytes:
        chance = self.chance
        if chance.random() < 0.05:
            return encode(Heartbeat(1, 0), 1)
        if chance.random() < 0.2:
            return self.drawing.event(_name(address), 1)
        return self.drawing.control(chance.choice(CLIENT_KINDS if chance.random() < FOREIGN else LINK_KINDS))

    def replay(self, entry: Any) -> None:
        channel = self.dial()
        self.greet(channel, self.anywhere())
        self.send(channel, _numbered(self.drawing.of(entry[0], entry[1:]), 2))
        channel.take(GLANCE_S)
        channel.close()


class HttpAttacker(Attacker):
    """Requests that are wrong, long, broken off or slow; a few are right."""

    def life(self) -> Any:
        self.number()
        channel = self.dial()
        request = self.request()
        cuts = sorted(self.chance.randrange(len(request) + 1) for _ in range(self.chance.choice((0, 0, 1, 3))))
        for begin, end in zip((0, *cuts), (*cuts, len(request)), strict=True):
            if not channel.is_open:
                break
            channel.send(request[begin:end])
            yield True
        self.pace.sent(len(request))
        channel.take(GLANCE_S if self.chance.random() < 0.5 else 0.0)
        channel.close()

    def request(self) -> bytes:
        chance = self.chance
        method = chance.choice(("GET", "GET", "GET", "POST", "HEAD", "get", "\x00", "GET" * 500))
        path = chance.choice(("/healthz", "/readyz", "/metrics", "/statusz", "/", "*", "/%00", "//", "/" + "a" * 9000))
        version = chance.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "", "HTTP/1.1 HTTP/1.1"))
        host = chance.choice((f"127.0.0.1:{self.port}", "localhost", "evil.example", "", "a" * 300, "[::1]:x"))
        headers = chance.choice(("", "Host: twice\r\n", "X: " + "y" * 5000 + "\r\n", "A: b\r\n" * 800, "no colon\r\n"))
        end = chance.choice(("\r\n\r\n", "\r\n\r\n", "\n\n", "", "\r\n\r\n" + "x" * 10_000))
        return f"{method} {path} {version}\r\nHost: {host}\r\n{headers}{end}".encode("latin-1")

    def replay(self, entry: Any) -> None:
        self.number()
        channel = self.dial()
        data = entry if isinstance(entry, bytes) else str(entry).encode()
        self.send(channel, data)
        channel.take(GLANCE_S)
        channel.close()


def _name(address: Address) -> str:
    return "fuzz-" + "-".join(map(str, address))


def _numbered(frame: bytes, number: int) -> bytes:
    """The frame with another number in its header."""
    return frame[:8] + number.to_bytes(8, "big") + frame[16:]


ATTACKERS: Final[dict[str, type[Attacker]]] = {
    "client": ClientAttacker,
    "websocket": WebSocketAttacker,
    "link": LinkAttacker,
    "http": HttpAttacker,
}
