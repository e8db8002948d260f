"""A broker under test and neighbours that say exactly what a test tells them to."""

from __future__ import annotations

from veena.address import Address
from veena.core.boundary.inputs_effects import Arrived, Close, Effect, LinkUp, Send, Stored
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Identity
from veena.core.broker import Broker
from veena.core.links.link import connection_id
from veena.core.wire.control import ConnectionRecord, Connections, Frame, Heartbeat, Hello
from veena.core.wire.header import VERSION

HOST: Address = (0, 0, 0, 0)


def hello(address: Address, *, nonce: int = 9, incarnation: int = 1, network: str = "veena") -> Hello:
    return Hello(VERSION, VERSION, network, len(address), 32, address, incarnation, nonce, 1000)


def started(address: Address = HOST, settings: Settings | None = None, now_ns: int = 0) -> Broker:
    """A broker whose identity is on disk; its chance counts up from 100."""
    nonces = iter(range(100, 10_000))
    broker = Broker(Identity("host", address, 1), settings or Settings(), lambda _: next(nonces), now_ns)
    broker.tick(now_ns)
    broker.handle(Stored(1), now_ns)
    return broker


class Peer:
    """One neighbour over one ordered link."""

    def __init__(self, broker: Broker, link: int, address: Address, now_ns: int = 0, *, nonce: int = 9) -> None:
        self.broker, self.link, self.address = broker, link, address
        self.number = 0
        self.hello = hello(address, nonce=nonce)
        effects = broker.handle(LinkUp(link, ordered=True), now_ns)
        self.theirs = sent(effects, link)[0]
        assert isinstance(self.theirs, Hello)
        self.connection = connection_id(self.theirs, self.hello)

    def greet(self, now_ns: int = 0) -> list[Effect]:
        return self.say(self.hello, now_ns=now_ns)

    def say(self, *frames: Frame, now_ns: int = 0) -> list[Effect]:
        """Let frames arrive in one read."""
        numbered = [(self.number + at, frame) for at, frame in enumerate(frames, 1)]
        self.number += len(frames)
        return self.broker.handle(Arrived(self.link, numbered), now_ns)

    def tell(self, *records: ConnectionRecord, now_ns: int = 0) -> list[Effect]:
        return self.say(Connections(records, complete=False), now_ns=now_ns)


def neighbour(broker: Broker, link: int, address: Address, now_ns: int = 0) -> Peer:
    """A peer that has greeted."""
    peer = Peer(broker, link, address, now_ns, nonce=1000 + link)
    peer.greet(now_ns)
    return peer


def sent(effects: list[Effect], link: int | None = None) -> list[Frame]:
    """The frames that go out, over one link or all."""
    return [
        frame
        for effect in effects
        if isinstance(effect, Send) and link in (None, effect.link)
        for _, frame in effect.frames
        if isinstance(frame, Frame) and not isinstance(frame, Heartbeat)
    ]


def records(effects: list[Effect], link: int | None = None) -> list[ConnectionRecord]:
    """The connection records that go out."""
    return [record for frame in sent(effects, link) if isinstance(frame, Connections) for record in frame.records]


def closed(effects: list[Effect]) -> list[tuple[int, str]]:
    return [(effect.link, effect.reason) for effect in effects if isinstance(effect, Close)]
