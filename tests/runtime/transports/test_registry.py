"""TRN-01: one suite for all transports. Each test runs over TCP, TLS, mutual TLS, WebSocket, both, and in process; and
on asyncio's loop and uvloop's, which write to sockets in ways of their own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from tests.runtime.authority import Authority
from tests.runtime.streams import CERTIFICATES, Ear, Ears, secrets, until
from veena.errors import ConfigError, NotConnected
from veena.runtime.transports.registry import NO_SECRETS, Secrets, Server, connect, listen
from veena.runtime.transports.stream import Bytes, Stream
from veena.runtime.transports.tcp import HIGH_WATER, TcpStream
from veena.runtime.transports.tls import client_context, server_context
from veena.runtime.transports.url import parse_url
from veena.spark.log.connection import Access, LogWire

TRANSPORTS = {
    "tcp": ("veena://127.0.0.1:0", NO_SECRETS),
    "tls": ("veenas://127.0.0.1:0", None),
    "mutual-tls": ("tls://localhost:0", None),
    "ws": ("ws://127.0.0.1:0", NO_SECRETS),
    "wss": ("wss://localhost:0/veena", None),
    "memory": ("memory://here", NO_SECRETS),
}
Loops = Callable[[], asyncio.AbstractEventLoop]
Found = TypeVar("Found")
LOOPS: dict[str, Loops] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
EVERY = pytest.mark.parametrize("name", TRANSPORTS)


@pytest.fixture(params=LOOPS, autouse=True)
def used_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    _used[:] = [LOOPS[request.param]]
    yield
    _used.clear()


_used: list[Loops] = []


def on_loop(test: Coroutine[Any, Any, Found]) -> Found:
    with asyncio.Runner(loop_factory=_used[0]) as runner:
        return runner.run(test)


@asynccontextmanager
async def pair(name: str) -> AsyncIterator[tuple[Ear, Ear, Server]]:
    """The dialling end, the accepting end, and the server between them."""
    url, given = TRANSPORTS[name]
    used = given or secrets("required" if name == "mutual-tls" else "none")
    there, here = Ears(), Ears()
    server = await listen(parse_url(url), there, used)
    try:
        await connect(server.url, here, used)
        await until(lambda: there.all)
        yield here.all[0], there.all[0], server
    finally:
        for ear in (*here.all, *there.all):
            ear.stream.abort("the test is over")
        await until(lambda: all(ear.reason is not None for ear in (*here.all, *there.all)))
        await server.close()


def both(name: str, test: object) -> None:
    """Run `test(near, far)` in both directions."""

    async def run() -> None:
        async with pair(name) as (dialler, acceptor, _):
            await test(dialler, acceptor)  # type: ignore[operator]
        async with pair(name) as (dialler, acceptor, _):
            await test(acceptor, dialler)  # type: ignore[operator]

    on_loop(run())


@EVERY
def test_bytes_arrive_whole_and_in_order(name: str) -> None:
    async def test(near: Ear, far: Ear) -> None:
        expected = bytearray()
        for number in range(2000):
            parts: list[Bytes] = [number.to_bytes(4, "big"), memoryview(b"x" * (number % 97)), bytearray(b"y")]
            near.stream.write(parts)
            for part in parts:
                expected += part
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(far.data) >= len(expected))
        assert far.data == expected

    both(name, test)


@EVERY
def test_many_small_writes_are_few_reads(name: str) -> None:
    """What is written in one turn of the loop is read together: batches survive the way."""

    async def test(near: Ear, far: Ear) -> None:
        for _ in range(1000):
            near.stream.write([b"0123456789"])
        await until(lambda: len(far.data) == 10_000)
        assert far.reads < 500

    both(name, test)


@EVERY
def test_a_large_write_is_taken_whole(name: str) -> None:
    async def test(near: Ear, far: Ear) -> None:
        large = bytes(range(256)) * (20 * 4096)  # 20 MiB, several times what any buffer holds
        near.stream.write([b"head", memoryview(large), b"tail"])
        await until(lambda: len(far.data) == len(large) + 8)
        assert far.data == b"head" + large + b"tail"

    both(name, test)


@EVERY
def test_clogged_and_cleared_alternate(name: str) -> None:
    """A reader that pauses clogs the writer, who is told once, and once more when there is room."""

    async def test(near: Ear, far: Ear) -> None:
        far.stream.pause()
        written = 0
        while not near.marks:
            near.stream.write([b"z" * HIGH_WATER])
            written += HIGH_WATER
            await asyncio.sleep(0)
        assert near.marks == ["clogged"] and near.stream.waiting > 0
        near.stream.write([b"z" * HIGH_WATER])  # still taken
        written += HIGH_WATER
        assert near.marks == ["clogged"]
        far.stream.resume()
        await until(lambda: len(far.data) == written)
        await until(lambda: near.marks == ["clogged", "cleared"])
        assert near.stream.waiting == 0

    both(name, test)


@EVERY
def test_close_sends_what_was_written_and_says_why(name: str) -> None:
    async def test(near: Ear, far: Ear) -> None:
        body = b"last words" * 100_000
        near.stream.write([body])
        near.stream.close("done here")
        near.stream.write([b"too late"])
        near.stream.close("again")
        await until(lambda: near.reason is not None and far.reason is not None)
        assert far.data == body
        assert near.reason == "done here" and far.reason
        assert (near.ends, far.ends) == (1, 1)

    both(name, test)


@EVERY
def test_abort_ends_at_once(name: str) -> None:
    """Even when the peer does not read: nothing is waited for."""

    async def test(near: Ear, far: Ear) -> None:
        far.stream.pause()
        near.stream.write([b"z" * (8 << 20)])
        near.stream.abort("enough")
        await until(lambda: near.reason is not None)
        assert near.reason == "enough" and near.ends == 1
        far.stream.resume()
        await until(lambda: far.reason is not None)
        assert len(far.data) < 8 << 20

    both(name, test)


@EVERY
def test_both_may_close_at_once(name: str) -> None:
    async def test(near: Ear, far: Ear) -> None:
        near.stream.close("one")
        far.stream.close("other")
        await until(lambda: near.reason is not None and far.reason is not None)
        assert (near.ends, far.ends) == (1, 1)

    both(name, test)


@EVERY
def test_nobody_listens_any_more(name: str) -> None:
    async def run() -> None:
        async with pair(name) as (_, _, server):
            await server.close()
            with pytest.raises((OSError, ConnectionError)):
                await connect(server.url, Ears(), secrets())

    on_loop(run())


def test_half_closed_sockets_end() -> None:
    """A peer that sends no more has ended: what is on its way to it is sent, then the stream closes."""

    async def run() -> None:
        there = Ears()
        server = await listen(parse_url("veena://127.0.0.1:0"), there)
        reader, writer = await asyncio.open_connection(server.url.host, server.url.port)
        await until(lambda: there.all)
        writer.write(b"the whole story")
        writer.write_eof()
        there.all[0].stream.write([b"an answer"])
        assert await reader.read() == b"an answer"
        await until(lambda: there.all[0].reason is not None)
        assert there.all[0].data == b"the whole story" and there.all[0].reason == "closed by the peer"
        writer.close()
        await server.close()

    on_loop(run())


def test_mutual_tls_proves_who_connects() -> None:
    async def run() -> None:
        async with pair("mutual-tls") as (near, far, _):
            assert far.stream.proven == "broker" and near.stream.proven == "broker"
        async with pair("tls") as (near, far, _):
            assert far.stream.proven is None and near.stream.proven == "broker"

    on_loop(run())


def test_a_stranger_is_not_let_in_and_not_believed() -> None:
    async def run() -> None:
        there, here = Ears(), Ears()
        used = secrets("required")
        chain = (CERTIFICATES / "stranger.pem", CERTIFICATES / "stranger.key")
        server = await listen(parse_url("veenas://127.0.0.1:0"), there, used)
        with pytest.raises(ssl.SSLCertVerificationError):  # its authority is not the system's
            await connect(server.url, here, Secrets(client=client_context(None)))
        # TLS 1.3 tells a client only afterwards that its certificate was not taken.
        await connect(server.url, here, Secrets(client=client_context(CERTIFICATES / "authority.pem", *chain)))
        await until(lambda: here.all[0].reason is not None)
        assert not there.all
        await server.close()

    on_loop(run())


def test_a_named_authority_stands_in_for_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC: a broker with a certificate of an authority of the system was believed beside the one that is named."""
    system = Authority(tmp_path, "system")
    system.issue("elsewhere")
    monkeypatch.setenv("SSL_CERT_FILE", str(system.pem))
    chain = (tmp_path / "elsewhere.pem", tmp_path / "elsewhere.key")
    named = CERTIFICATES / "authority.pem"

    async def run() -> None:
        here = Ears()
        server = await listen(parse_url("veenas://127.0.0.1:0"), Ears(), Secrets(server_context(*chain, None, "none")))
        await connect(server.url, here, Secrets(client=client_context()))  # the system's authority, where none is named
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(server.url, here, Secrets(client=client_context(named)))
        with pytest.raises(NotConnected, match="CERTIFICATE_VERIFY_FAILED"):
            await asyncio.to_thread(LogWire, str(server.url), Access(ca_file=str(named)), 5.0)
        here.all[0].stream.close("done")
        await server.close()

    on_loop(run())


@pytest.mark.parametrize(
    "request_", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 64 + b"\n", b"POST /veena HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_websocket_is_refused(request_: bytes) -> None:
    async def run() -> None:
        there = Ears()
        server = await listen(parse_url("ws://127.0.0.1:0"), there)
        reader, writer = await asyncio.open_connection(server.url.host, server.url.port)
        writer.write(request_)
        await reader.read()
        assert not there.all
        writer.close()
        await server.close()

    on_loop(run())


def test_web_pages_need_a_permission() -> None:
    """Any page that somebody opens could otherwise speak to the broker on that machine."""

    async def status(origins: tuple[str, ...]) -> bytes:
        server = await listen(parse_url("ws://127.0.0.1:0"), Ears(), replace(NO_SECRETS, origins=origins))
        reader, writer = await asyncio.open_connection(server.url.host, server.url.port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://evil.example\r\n\r\n"
        )
        line = await reader.readline()
        writer.close()
        await server.close()
        return line

    assert b"403" in on_loop(status(()))
    assert b"101" in on_loop(status(("http://evil.example",)))


def test_a_socket_says_how_long_its_round_trip_is() -> None:
    async def run() -> None:
        async with pair("tcp") as (near, _, _):
            stream: Stream = near.stream
            assert isinstance(stream, TcpStream)
            measured = stream.round_trip()
            if measured is not None:  # only some kernels tell
                assert 0 <= measured[1] <= measured[0] < 1

    on_loop(run())


@pytest.mark.parametrize(
    "text", ["", "7700", "http://x:1", "veena://", "veena://h:99999", "tcp://h:1/x", "veena://u@h:1"]
)
def test_bad_urls_are_named(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_url(text)


def test_urls_read_back_as_they_are_written() -> None:
    for text in ("veena://127.0.0.1:7700", "wss://[::1]:443/mesh", "memory://b7", "tls://broker.example:1"):
        assert str(parse_url(text)) == text
    assert parse_url("veena://localhost").port == 7700
    assert not parse_url("veena://0.0.0.0:1").is_local and parse_url("ws://[::1]:1").is_local
