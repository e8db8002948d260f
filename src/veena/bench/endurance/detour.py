"""A link that can be cut: bytes between two brokers go through here, until somebody cuts the line.

A broker that dials through a detour gets the other one while the line is whole. Cut, what is open breaks without a
word, as when a cable is pulled, and new connections are dropped until it is mended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType

CHUNK = 1 << 16


class Detour:
    """A port on loopback that leads to another one, while it is not cut."""

    def __init__(self, target: str) -> None:
        """`target` is the URL where the dialled broker listens, `tcp://host:port`."""
        host, _, port = target.partition("://")[2].rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None
        self._is_cut = False
        self.carried = 0
        self.url = ""

    async def __aenter__(self) -> Detour:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        self._is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = None
        beyond: asyncio.StreamWriter | None = None
        try:
            if self._is_cut:
                return
            far, beyond = await asyncio.open_connection(self._host, self._port)
            self._writers[beyond] = None
            there = asyncio.create_task(self._carry(reader, beyond))
            back = asyncio.create_task(self._carry(far, writer))
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            there.cancel()
            back.cancel()
        except OSError:  # the broker beyond is not there now: the one that dials tries again
            pass
        finally:
            for each in (writer, beyond):
                if each is not None:
                    self._writers.pop(each, None)
                    each.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                self.carried += len(data)
                writer.write(data)
                await writer.drain()
