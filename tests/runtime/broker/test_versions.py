"""Sides of different wire versions refuse each other over real sockets, and say both versions and the remedy."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from tests.runtime.brokers import BRISK, Place
from tests.runtime.client_brokers import Site, run
from tests.runtime.store_desk import NOBODY, Desk, entry
from veena.client import connect
from veena.core.boundary.stored import Identity
from veena.core.links.link import greeting
from veena.core.wire.client import ClientHello, Farewell
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import Frame, Goodbye, Hello
from veena.core.wire.header import HEADER, HEADER_SIZE, VERSION
from veena.errors import RefusalCode, Refused
from veena.runtime.store.file import store_path
from veena.runtime.transports.url import parse_url

OTHERS = (VERSION - 1, VERSION + 1)
PATIENCE_S = 20


def hello(version: int) -> bytes:
    """The Hello of a broker that speaks this version alone, written in it."""
    mine = greeting(Identity("x", (0, 0, 0, 9), 1), BRISK, 7, ())
    return encode(msgspec.structs.replace(mine, version_low=version, version_high=version), 1, version)


async def frames_of(reader: asyncio.StreamReader) -> list[Frame]:
    """All that comes until the other side closes."""
    async with asyncio.timeout(PATIENCE_S):
        data = await reader.read()
    return [frame for _, frame in Decoder().feed(data) if isinstance(frame, Frame)]


async def say(url: str, data: bytes) -> list[Frame]:
    parsed = parse_url(url)
    reader, writer = await asyncio.open_connection(parsed.host, parsed.port)
    try:
        writer.write(data)
        return await frames_of(reader)
    finally:
        writer.close()


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[tuple[str, asyncio.Queue[list[Frame]]]]:
    """A port that answers the first bytes with these; its URL, and what each visitor said before it left."""
    heard: asyncio.Queue[list[Frame]] = asyncio.Queue()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.read(1 << 16)
            writer.write(data)
            rest = await reader.read()
            heard.put_nowait([frame for _, frame in Decoder().feed(first + rest) if isinstance(frame, Frame)])
        finally:
            writer.close()

    server = await asyncio.start_server(visit, "127.0.0.1", 0)
    async with server:
        yield f"veena://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


@pytest.mark.parametrize("other", OTHERS)
def test_a_broker_refuses_a_neighbour_of_another_version(other: int) -> None:
    """IOP-08: the last frame names both versions, whoever dialled."""
    reason = f"the peer speaks wire version {other}, this broker wire version {VERSION}: upgrade the older one"

    async def scenario() -> None:
        place = Place((0, 0, 0, 0), "veena://127.0.0.1:0")
        await place.start()
        try:
            first, last = await say(place.url, hello(other))
            assert isinstance(first, Hello) and isinstance(last, Goodbye)
            assert last.reason == reason
            assert not place.reaches([(0, 0, 0, 9)])
        finally:
            await place.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))

    async def dialling() -> None:
        async with answering(hello(other)) as (url, heard):
            place = Place((0, 0, 0, 0), "veena://127.0.0.1:0")
            place.neighbours.append(Place((0, 0, 0, 9), url))
            await place.start()
            try:
                frames = await asyncio.wait_for(heard.get(), PATIENCE_S)
                assert isinstance(frames[-1], Goodbye) and frames[-1].reason == reason
            finally:
                await place.stop()

    asyncio.run(asyncio.wait_for(dialling(), 60))


@pytest.mark.parametrize("other", OTHERS)
def test_a_broker_refuses_a_client_of_another_version(other: int) -> None:
    """IOP-08: the Farewell names both versions and what to do."""

    async def scenario() -> None:
        async with Site() as site:
            (last,) = await say(site.url, encode(ClientHello(other, other, "c"), 0, other))
            assert isinstance(last, Farewell)
            for words in (f" {other}", f" {VERSION}", "upgrade the older one"):
                assert words in last.reason

    run(scenario())


@pytest.mark.parametrize("other", OTHERS)
def test_a_client_gives_up_at_a_broker_of_another_version(other: int) -> None:
    """IOP-08: with the broker's words where it can read them, else with its own; it does not try again and again."""
    said = f"the client speaks wire version {VERSION}, this broker wire version {other}: upgrade the older one"
    own = f"frame of wire version {other}; this side speaks wire version {VERSION}: upgrade the older one"
    #: A Farewell as another version might have it.
    strange = HEADER.pack(HEADER_SIZE + 2, other, 91, 0, 0) + b"\x91\xc0"

    async def scenario() -> None:
        for answer, reason in ((encode(Farewell(RefusalCode.PROTOCOL, said), 0, other), said), (strange, own)):
            async with answering(answer) as (url, _):
                with pytest.raises(Refused) as caught:
                    await connect(url, client_id="c", timeout=PATIENCE_S).open()
                assert reason in str(caught.value)
                assert caught.value.code is RefusalCode.PROTOCOL, "whoever noticed it"

    run(scenario())


def test_a_store_keeps_events_of_an_older_wire_version(tmp_path: Path) -> None:
    """FLT-07: a broker that was upgraded reads its log; the version of the tables says what it can read."""
    with Desk(tmp_path) as desk:
        desk.stored(entry(0, to_serve=1))
    connection = sqlite3.connect(store_path(tmp_path))
    (data,) = connection.execute("SELECT frame FROM log").fetchone()
    assert data[4] == VERSION
    older = data[:4] + bytes((VERSION - 1,)) + data[5:]
    connection.execute("UPDATE log SET frame = ?, checksum = ?", (older, crc32(older)))
    connection.commit()
    connection.close()
    with Desk(tmp_path) as desk:
        (found,) = desk.store.load(NOBODY).entries
        assert found.frame.id == entry(0).frame.id and bytes(found.frame.body) == bytes(entry(0).frame.body)
