"""What tests of the runtime share: a listener that remembers, certificates, and waiting with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from veena.runtime.transports.registry import Secrets
from veena.runtime.transports.stream import Bytes, Listener, Stream
from veena.runtime.transports.tls import client_context, server_context

CERTIFICATES = Path(__file__).parent / "certificates"
#: Far more than anything here takes on a busy machine: a test that needs it has failed.
PATIENCE_S = 30.0
POLL_S = 0.01


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until it is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(POLL_S)


def secrets(clients: str = "none") -> Secrets:
    """Both ends show the broker's certificate and believe the tests' authority."""
    chain = (CERTIFICATES / "broker.pem", CERTIFICATES / "broker.key")
    authority = CERTIFICATES / "authority.pem"
    return Secrets(
        server_context(*chain, authority, clients),  # type: ignore[arg-type]
        client_context(authority, *chain),
    )


class Ear:
    """A listener that remembers everything."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.data = bytearray()
        self.reads = 0
        self.reason: str | None = None
        self.ends = 0
        #: "clogged" and "cleared" in their order.
        self.marks: list[str] = []

    def received(self, data: Bytes) -> None:
        assert self.reason is None, "nothing comes after the end"
        self.reads += 1
        self.data += data

    def closed(self, reason: str) -> None:
        self.ends += 1
        self.reason = reason

    def clogged(self) -> None:
        self.marks.append("clogged")

    def cleared(self) -> None:
        self.marks.append("cleared")


class Ears:
    """The `accept` of a server: all listeners it has made."""

    def __init__(self) -> None:
        self.all: list[Ear] = []

    def __call__(self, stream: Stream) -> Listener:
        self.all.append(Ear(stream))
        return self.all[-1]
