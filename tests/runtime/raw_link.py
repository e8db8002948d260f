"""A broker that speaks frames over any transport and does nothing else: for tests of links."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.runtime.brokers import BRISK
from tests.runtime.streams import until
from veena.address import Address
from veena.core.boundary.stored import Identity
from veena.core.links.link import greeting
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame, Goodbye, Heartbeat
from veena.core.wire.event import EventCodec, EventFrame
from veena.runtime.transports.registry import NO_SECRETS, Secrets, connect, listen
from veena.runtime.transports.stream import Bytes, Stream
from veena.runtime.transports.url import parse_url


class RawLink:
    """One end of a link; it is silent unless it is told what to say."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.frames: list[Frame | EventFrame] = []
        self.reason: str | None = None
        #: Whether it answers heartbeats; otherwise it is given up after a while.
        self.answers = False
        self._decoder = Decoder(EventCodec(BRISK.levels, BRISK.fanout))
        self._number = 0

    def say(self, *frames: Frame) -> None:
        for frame in frames:
            self._number += 1
            self.stream.write([encode(frame, self._number)])

    def received(self, data: Bytes) -> None:
        came = [frame for _, frame in self._decoder.feed(bytes(data))]
        self.frames += came
        if self.answers:
            self.say(*(Heartbeat(frame.sent_ns, frame.sent_ns) for frame in came if isinstance(frame, Heartbeat)))

    def closed(self, reason: str) -> None:
        self.reason = reason

    def clogged(self) -> None: ...

    def cleared(self) -> None: ...

    def goodbyes(self) -> list[str]:
        return [frame.reason for frame in self.frames if isinstance(frame, Goodbye)]


@asynccontextmanager
async def listening(
    url: str, address: Address, *, name: str = "raw", secrets: Secrets = NO_SECRETS, grant: bytes = b""
) -> AsyncIterator[tuple[str, list[RawLink]]]:
    """A place where a broker seems to listen that greets whoever comes, and who has come."""
    came: list[RawLink] = []

    def accept(stream: Stream) -> RawLink:
        came.append(RawLink(stream))
        came[-1].answers = True
        came[-1].say(greeting(Identity(name, address, 1), BRISK, 7, (), grant))
        return came[-1]

    server = await listen(parse_url(url), accept, secrets)
    try:
        yield str(server.url), came
    finally:
        for link in came:
            link.stream.close("done")
        await server.close()


async def link_to(
    url: str,
    address: Address,
    *,
    name: str = "raw",
    incarnation: int = 1,
    nonce: int = 7,
    secrets: Secrets = NO_SECRETS,
    network: str = BRISK.network,
    grant: bytes = b"",
) -> RawLink:
    """A link over which this address was said, and the broker's Hello has come."""
    made: list[RawLink] = []

    def accept(stream: Stream) -> RawLink:
        made.append(RawLink(stream))
        return made[0]

    await connect(parse_url(url), accept, secrets)
    made[0].say(greeting(Identity(name, address, incarnation), replace(BRISK, network=network), nonce, (), grant))
    await until(lambda: made[0].frames)
    return made[0]
