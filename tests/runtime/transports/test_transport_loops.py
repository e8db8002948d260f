"""Streams on both event loops, asyncio's and uvloop's: what differs between them must not be seen by brokers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from veena.runtime.transports.stream import Bytes, Listener, Stream
from veena.runtime.transports.tcp import connect_tcp
from veena.runtime.transports.url import parse_url

PATIENCE_S = 20.0


class Ear:
    """Listens to one stream, and knows how it ended."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def received(self, data: Bytes) -> None: ...

    def clogged(self) -> None: ...

    def cleared(self) -> None: ...

    def closed(self, reason: str) -> None:
        self.over.set_result(reason)


async def _give_up_when_it_is_made() -> str:
    """Stop connecting in the moment in which the connection is there; how its stream ended."""
    loop = asyncio.get_running_loop()
    failed: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: failed.append(context))
    ears: list[Ear] = []

    def accept(stream: Stream) -> Listener:
        connecting.cancel()
        ears.append(Ear(stream))
        return ears[-1]

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = parse_url(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        connecting = asyncio.ensure_future(connect_tcp(url, accept, None))
        with pytest.raises(asyncio.CancelledError):
            await connecting
        (ear,) = ears
        reason = await asyncio.wait_for(ear.over, PATIENCE_S)
        ear.stream.write([b"x" * 10, b"y" * 100_000, b"z"])
        ear.stream.abort("again")
        await asyncio.sleep(0)
    assert not failed, failed
    return reason


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_is_given_up_when_it_is_made_ends(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """FLT-02: on a busy machine the patience may end between the two; the broker must not write to it for ever."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(_give_up_when_it_is_made())
