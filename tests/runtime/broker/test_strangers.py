"""Connections that do not say who they are: bounded in number, bytes and descriptors, and no bar to others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.runtime.processes import veena as started
from tests.runtime.raw_client import attach
from tests.runtime.streams import CERTIFICATES, secrets, until
from tests.tiers import few
from veena.core.wire.client import ClientHello
from veena.core.wire.codec import encode
from veena.core.wire.header import HEADER, HEADER_SIZE, VERSION, VERSION_LOW
from veena.runtime.access.users import digest_of
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.transports.url import Url, parse_url

TLS = f'[tls]\ncertificate = "{CERTIFICATES}/broker.pem"\nkey = "{CERTIFICATES}/broker.key"\n'
CLIENT_HELLO = 64
#: What a client's hello may be at most.
HALF_MIB = 512 * 1024


@asynccontextmanager
async def broker(scheme: str, limits: str) -> AsyncIterator[Node]:
    text = f'[broker]\nlisten = ["{scheme}://127.0.0.1:0"]\n{TLS}[limits]\n{limits}'
    node = Node(parse_config(text))
    await node.start()
    try:
        yield node
    finally:
        await node.stop(drain_s=0.1)


async def silent(url: Url) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A TCP connection and nothing more: for TLS and WebSocket it never finishes, nor begins, its handshake."""
    return await asyncio.open_connection(url.host, url.port)


async def is_open(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.2):
            return await reader.read(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


async def upgraded(url: Url) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection after the handshake of WebSocket; frames are made by `ping`."""
    reader, writer = await silent(url)
    writer.write(
        f"GET / HTTP/1.1\r\nHost: {url.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def frame_of(opcode: int, data: bytes) -> bytes:
    """A short WebSocket frame, masked by nothing."""
    return bytes([0x80 | opcode, 0x80 | len(data)]) + bytes(4) + data


@pytest.mark.parametrize("is_known", [False, True], ids=["stranger", "client"])
@pytest.mark.parametrize(
    "flood", [frame_of(9, b"x" * 100), frame_of(10, b""), frame_of(2, b"")], ids=["ping", "pong", "empty"]
)
def test_frames_that_say_nothing_end_a_websocket(flood: bytes, is_known: bool) -> None:
    """SEC: answers to pings piled up for who does not read them, and nobody counted frames without data."""

    async def run() -> None:
        async with broker("ws", "") as node, asyncio.timeout(20):
            reader, writer = await upgraded(parse_url(node.urls[0]))
            if is_known:
                hello = encode(ClientHello(VERSION_LOW, VERSION, "mallory"), 0)
                writer.write(frame_of(2, hello))
                await until(lambda: node.statistics().clients.clients == 1)
            writer.write(flood * (500 if is_known else 10))
            honest = await attach(node.urls[0], "honest")
            assert honest.reason is None and not reader.at_eof()
            writer.write(flood * 2000)
            with suppress(ConnectionError):
                while await reader.read(1 << 16):
                    pass
            await until(lambda: node.statistics().clients.clients == 1)
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("scheme", ["veena", "veenas", "ws", "wss"])
def test_silent_connections_keep_nobody_out(scheme: str) -> None:
    """SEC, FLT: on every transport the oldest silent connection gives way, whatever handshake it does not finish."""

    async def run() -> None:
        async with broker(scheme, "unidentified = 8\nidentify_s = 300\n") as node:
            url = parse_url(node.urls[0])
            idle = [await silent(url) for _ in range(12)]
            await until(lambda: node.statistics().entrance.refused >= 4)
            assert node.statistics().entrance.unidentified == 8, "unfinished handshakes are counted"
            for at in range(3):
                await attach(node.urls[0], f"honest-{at}", secrets=secrets())
            assert node.statistics().clients.clients == 3
            found = await asyncio.gather(*(is_open(reader) for reader, _ in idle))
            assert found[0] is False and found == sorted(found), "the oldest had to go, and nobody else"
            for _, writer in idle:
                writer.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("scheme", ["veena", "veenas", "ws", "wss"])
def test_handshakes_and_silence_end_in_time(scheme: str) -> None:
    """The time to say who it is begins with the connection, and not with the end of its handshake."""

    async def run() -> None:
        async with broker(scheme, "identify_s = 0.2\n") as node:
            reader, writer = await silent(parse_url(node.urls[0]))
            async with asyncio.timeout(5):
                with suppress(ConnectionError):
                    await reader.read()
            await until(lambda: node.statistics().entrance.connections == 0)
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def hello_begun(size: int) -> bytes:
    """The header of a hello of half a MiB, and so much of it."""
    return HEADER.pack(HALF_MIB, VERSION, CLIENT_HELLO, 0, 0) + bytes(size - HEADER_SIZE)


def message(data: bytes) -> bytes:
    """A WebSocket message of a client, whose end is missing."""
    return b"\x82\xff" + (HALF_MIB).to_bytes(8, "big") + bytes(4) + data


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize("scheme", ["veena", "ws"])
def test_what_strangers_send_is_bounded_in_total(scheme: str) -> None:
    """A header makes nobody known: 40 connections send 300 KiB of a first frame each, and 1 MiB is held of it."""

    async def run() -> None:
        async with broker(scheme, "unidentified_bytes = 1048576\nidentify_s = 300\n") as node:
            url, open_ = parse_url(node.urls[0]), []
            most = 0
            for _ in range(40):
                reader, writer = await silent(url)
                if scheme == "ws":
                    writer.write(UPGRADE)
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(message(hello_begun(300 * 1024)))
                else:
                    writer.write(hello_begun(300 * 1024))
                before = node.statistics().entrance
                await until(lambda before=before: node.statistics().entrance != before)  # type: ignore[misc]
                most = max(most, node.statistics().entrance.unidentified_bytes)
                open_.append(writer)
            await until(lambda: node.statistics().entrance.unidentified <= 4)
            assert 0 < most <= 1 << 20
            assert node.statistics().entrance.accepted == 0, "half a frame tells nothing"
            await attach(node.urls[0], "honest")
            for writer in open_:
                writer.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("scheme", ["veena", "veenas", "ws", "wss"])
def test_hundreds_of_half_open_connections_hold_no_more_than_they_may(scheme: str) -> None:
    """SEC: 400 connections with the header of a long frame, or in the middle of a handshake, took 200 MiB for 10 s."""
    bound = 1 << 20

    async def run() -> None:
        async with broker(scheme, f"unidentified_bytes = {bound}\nidentify_s = 300\n") as node:
            url, held, open_ = parse_url(node.urls[0]), [], []
            for _ in range(400):
                open_.append(socket.create_connection((url.host, url.port), 30))
                if scheme == "veena":
                    open_[-1].send(hello_begun(8 * 1024))
                elif scheme == "ws":
                    open_[-1].send(UPGRADE[:-2] + b"Cookie: " + b"x" * 7 * 1024)
                await asyncio.sleep(0)
                held.append(node.statistics().entrance.unidentified_bytes)

            def all_came() -> bool:
                found = node.statistics().entrance
                held.append(found.unidentified_bytes)
                return found.unidentified + found.refused == 400 and found.refused > 200

            await until(all_came)
            assert 0 < max(held) <= bound and node.statistics().entrance.accepted == 0
            await attach(node.urls[0], "honest", secrets=secrets())
            for each in open_:
                each.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    ("kind", "length", "is_taken"),
    [(64, HALF_MIB, True), (64, HALF_MIB + 1, False), (1, 64 * 1024, True), (1, 64 * 1024 + 1, False), (64, 15, False)],
)
def test_first_frames_are_short(kind: int, length: int, is_taken: bool) -> None:
    """Only a client that tells what it had before may begin with a long frame."""

    async def run() -> None:
        async with broker("veena", "") as node:
            reader, writer = await silent(parse_url(node.urls[0]))
            writer.write(HEADER.pack(length, VERSION, kind, 0, 0))
            assert await is_open(reader) is is_taken
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_websocket_request_is_short() -> None:
    async def run() -> None:
        async with broker("ws", "") as node:
            reader, writer = await silent(parse_url(node.urls[0]))
            writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (at, b"x" * 4000) for at in range(5)))
            assert not await is_open(reader)
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("scheme", few(["veenas", "ws"]))
def test_without_descriptors_newcomers_get_in_and_the_log_says_so(scheme: str, tmp_path: Path) -> None:
    """FLT: a broker with 44 descriptors and 200 silent connections serves who says who it is, and goes on so."""
    config = tmp_path / "broker.toml"
    config.write_text(
        f'[broker]\nlisten = ["{scheme}://127.0.0.1:0"]\n{TLS}[limits]\nidentify_s = 300\n'
        '[http]\nlisten = "127.0.0.1:0"\n'
    )
    log = tmp_path / "log"
    with started("broker", "run", "--config", str(config), "--json", errors=log, descriptors=44) as process:
        url = process.told()["url"]
        place = parse_url(url)
        idle = [socket.create_connection((place.host, place.port), 30) for _ in range(200)]

        async def come_and_go(name: str) -> None:
            for at in range(5):
                who = await attach(url, f"{name}-{at}", secrets=secrets())
                who.stream.close("done")
                await until(lambda who=who: who.reason is not None)  # type: ignore[misc]

        asyncio.run(asyncio.wait_for(come_and_go("meanwhile"), 60))
        for each in idle:
            each.close()
        asyncio.run(asyncio.wait_for(come_and_go("afterwards"), 60))
        assert process.end() == 0
    told = log.read_text()
    assert "no descriptor for a new connection" in told and "Traceback" not in told


def test_no_user_takes_all_descriptors(tmp_path: Path) -> None:
    """FLT: one user attached until nobody else could, no monitor was answered and no file could be read."""
    users = tmp_path / "users.toml"
    users.write_text("".join(f'[user.{name}]\ntokens = ["{digest_of(name)}"]\n' for name in ("mallory", "honest")))
    users.chmod(0o600)
    config = tmp_path / "broker.toml"
    config.write_text(
        f'[broker]\nlisten = ["veena://127.0.0.1:0"]\n[auth]\nusers_file = "{users}"\n[http]\nlisten = "127.0.0.1:0"\n'
    )
    log = tmp_path / "log"
    with started("broker", "run", "--config", str(config), "--json", errors=log, descriptors=160) as broker_:
        url = broker_.told()["url"]

        async def scenario() -> None:
            raws = [await attach(url, f"mallory/{number}", user="mallory", token="mallory") for number in range(72)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(attach(url, "mallory/more", user="mallory", token="mallory"), 0.5)
            raws.append(await attach(url, "honest", user="honest", token="honest"))
            for raw in raws:
                raw.stream.close("done")
            await until(lambda: all(raw.reason is not None for raw in raws))

        asyncio.run(asyncio.wait_for(scenario(), 60))
        assert broker_.end() == 0
    told = log.read_text()
    assert "'mallory' has 72 connections already, of at most 72" in told and "Traceback" not in told
