"""Monitoring of a real broker over HTTP: idle connections bar no monitor, and pages of other sites read nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.runtime.streams import until
from veena.runtime.broker import http
from veena.runtime.broker.node import Node
from veena.runtime.config.reader import parse_config
from veena.runtime.config.schema import ConfigFaults

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def broker(listen: str = "127.0.0.1:0", more: str = "") -> AsyncIterator[tuple[str, int]]:
    """Where the monitoring of a broker listens."""
    node = Node(parse_config(f'[broker]\nlisten = ["veena://127.0.0.1:0"]\n[http]\nlisten = "{listen}"\n{more}'))
    await node.start()
    try:
        await until(lambda: node.why_not_ready() is None)
        host, _, port = (node.http_url or "").removeprefix("http://").rpartition(":")
        yield host.strip("[]"), int(port)
    finally:
        await node.stop(drain_s=0.1)


async def ask(place: tuple[str, int], path: str, *headers: str, version: str = "HTTP/1.1") -> tuple[int, str]:
    """The code and the body of the answer; 0 where none comes."""
    reader, writer = await asyncio.open_connection(*place)
    try:
        writer.write("\r\n".join([f"GET {path} {version}", *headers, "", ""]).encode("latin-1"))
        data = await reader.read()
    except ConnectionError:
        data = b""
    finally:
        writer.close()
    return (int(data.split()[1]), data.partition(b"\r\n\r\n")[2].decode()) if data else (0, "")


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.05):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_idle_connections_keep_no_monitor_out(sent: bytes) -> None:
    """SEC: connections that never finish a request, held open, made a load balancer take the broker for dead."""

    async def run() -> None:
        async with broker() as place:
            idle: list[Connection] = []
            for _ in range(2 * http.MAX_REQUESTS):
                idle.append(await asyncio.open_connection(*place))
                idle[-1][1].write(sent)
                if len(idle) in (http.MAX_REQUESTS, http.MAX_REQUESTS + 1, 2 * http.MAX_REQUESTS):
                    for path, body in (("/healthz", "ok\n"), ("/readyz", "ready\n")):
                        assert await ask(place, path, "Host: 127.0.0.1") == (200, body)
            found = await asyncio.gather(*(ended(reader) for reader, _ in idle))
            assert found == sorted(found, reverse=True) and 0 < sum(found) < len(idle), "the oldest had to go"
            for _, writer in idle:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for _, writer in idle), return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_who_takes_no_answer_keeps_no_monitor_out() -> None:
    """SEC: connections that ask for a long page and do not read it."""

    async def run() -> None:
        async with broker() as place:
            deaf: list[socket.socket] = []
            for _ in range(3 * http.MAX_REQUESTS):
                deaf.append(socket.create_connection(place, 30))
                deaf[-1].send(b"GET /statusz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await ask(place, "/readyz", "Host: localhost") == (200, "ready\n")
            for each in deaf:
                each.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_request_that_does_not_end_is_ended() -> None:
    async def run() -> None:
        async with broker() as place:
            reader, writer = await asyncio.open_connection(*place)
            writer.write(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * http.MAX_REQUEST_BYTES)
            await until(lambda: reader.at_eof() or reader.exception() is not None)
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_page_of_another_site_reads_nothing() -> None:
    """SEC: `evil.example` leads a browser here (DNS rebinding); names that are surely this broker's are answered."""

    async def run() -> None:
        async with broker(more='hosts = ["mesh-1.example.org"]\n') as place:
            own = ("127.0.0.1", "127.0.0.1:7780", "LOCALHOST:1", "localhost.", "a.localhost", "[::1]:7780", "127.0.0.9")
            for name in (*own, "mesh-1.example.org:7780", "Mesh-1.Example.org"):
                assert await ask(place, "/healthz", f"Host: {name}") == (200, "ok\n"), name
            foreign = (
                "evil.example",
                "127.0.0.1.evil.example",
                "localhost.evil.example",
                "10.1.2.3",
                "",
                "[",
                "%",
                "::",
            )
            for name in foreign:
                for path in ("/healthz", "/readyz", "/metrics", "/statusz", "/nothing"):
                    code, told = await ask(place, path, f"Host: {name}")
                    assert code == 421 and "[http] hosts" in told and "veena_" not in told, (name, path)
            for headers in ((), ("Host: localhost", "Host: evil.example")):
                code, told = await ask(place, "/statusz", *headers)
                assert code == 400 and "send one" in told
            assert await ask(place, "/healthz", version="HTTP/1.0") == (200, "ok\n"), "old monitors send no Host"
            code, _ = await ask(place, "/healthz", "Host: evil.example", version="HTTP/1.0")
            assert code == 421

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_broker_is_asked_under_the_host_that_it_listens_on() -> None:
    async def run() -> None:
        async with broker("localhost:0") as place:
            assert await ask(place, "/healthz", "Host: localhost") == (200, "ok\n")
            code, _ = await ask(place, "/healthz", "Host: evil.example")
            assert code == 421

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("host", ["http://mesh-1", "mesh 1", ""])
def test_what_is_no_host_is_told(host: str) -> None:
    with pytest.raises(ConfigFaults, match=r"\[http\] hosts"):
        parse_config(f'[http]\nlisten = "127.0.0.1:0"\nhosts = ["{host}"]\n')
