"""A client that speaks frames over any transport and knows nothing else: for tests of brokers."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.runtime.streams import until
from veena.core.wire.client import AskSubscribe, ClientHello, ClientWelcome, TellAccepted, TellActive
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.header import VERSION, VERSION_LOW
from veena.event import Event, EventId
from veena.runtime.transports.registry import NO_SECRETS, Secrets, connect
from veena.runtime.transports.stream import Bytes, Stream
from veena.runtime.transports.url import parse_url


class RawClient:
    """A client that speaks frames, over any transport."""

    def __init__(self, stream: Stream, levels: int) -> None:
        self.stream = stream
        self.frames: list[object] = []
        self.reason: str | None = None
        self.client_id, self.incarnation = "", 0
        self.codec = EventCodec(levels, 32)
        self.decoder = Decoder(self.codec)
        self.published = 0

    def say(self, *frames: Frame) -> None:
        self.stream.write([encode(frame, 0) for frame in frames])

    def received(self, data: Bytes) -> None:
        self.frames += [frame for _, frame in self.decoder.feed(bytes(data))]

    def closed(self, reason: str) -> None:
        self.reason = reason

    def clogged(self) -> None: ...

    def cleared(self) -> None: ...

    async def subscribe(self, topic: str) -> None:
        """Want this everywhere, and wait until everybody knows."""
        self.say(AskSubscribe(1, "topic", msgspec.msgpack.encode(topic)))
        await until(lambda: any(isinstance(f, TellActive) and f.level == self.codec.levels for f in self.frames))

    def publish(self, topic: str, body: bytes) -> None:
        self.published += 1
        event_id = EventId(self.client_id, self.incarnation, 1, self.published)
        event = Event(topic=topic, body=body, event_id=event_id)
        self.stream.write([self.codec.encode_event(event, 0, reliable=True)])

    def bodies(self) -> list[bytes]:
        return [bytes(frame.body) for frame in self.frames if isinstance(frame, EventFrame)]

    async def has(self, count: int) -> None:
        await until(lambda: len(self.bodies()) >= count)

    def accepted(self) -> int:
        """How many events were accepted."""
        told = [frame for frame in self.frames if isinstance(frame, TellAccepted)]
        return sum(last - first + 1 for frame in told for _, first, last in frame.runs)

    async def wait(self, kind: type[Any]) -> Any:
        await until(lambda: any(isinstance(frame, kind) for frame in self.frames))
        return next(frame for frame in self.frames if isinstance(frame, kind))


async def attach(
    url: str,
    client_id: str,
    levels: int = 4,
    secrets: Secrets = NO_SECRETS,
    user: str = "",
    password: str = "",
    token: str = "",
) -> RawClient:
    made: list[RawClient] = []

    def accept(stream: Stream) -> RawClient:
        made.append(RawClient(stream, levels))
        return made[0]

    await connect(parse_url(url), accept, secrets)
    made[0].say(ClientHello(VERSION_LOW, VERSION, client_id, user, password, token))
    made[0].client_id, made[0].incarnation = client_id, (await made[0].wait(ClientWelcome)).incarnation
    return made[0]
