"""A line between two places: set delay, set rate, and a count of what went over it.

Connections go through doors, ports on loopback that lead to brokers beyond the line. All doors share the line: bytes of
all connections leave one after the other, as fast as the rate allows, and arrive a set delay later, as over a cable
with one queue. So what ten sessions carry ten times takes ten times as long, which a delay alone does not show.

Copies are counted by a mark that events have in their body, wherever reads and writes cut the stream.

Timers of the event loop are exact to a millisecond, and so is the line.

What is not modelled: loss, other people's traffic, the shares that congestion control gives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import cast

HOST = "127.0.0.1"
#: When so much time's worth of bytes waits for the line, its doors read no more.
QUEUE_S = 1.0
#: A piece that the line sends at once; what a packet holds, about: connections take turns by it.
PIECE = 1500


class Line:
    """Two directions, each with its own queue; made by `async with`."""

    def __init__(self, delay_s: float, bits_per_second: float, mark: bytes = b"") -> None:
        self.delay_s = delay_s
        self.seconds_per_byte = 8 / bits_per_second
        self.mark = mark
        #: Since the start: bytes of both directions, and marks.
        self.carried = 0
        self.copies = 0
        #: When the line is free again: towards the brokers, and from them.
        self.free = [0.0, 0.0]
        self.ends: dict[_End, None] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Line:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.close()
        for end in list(self.ends):
            end.abort()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        while self.ends:  # until their sockets are closed
            await asyncio.sleep(0)

    async def door(self, target: str) -> str:
        """The URL by which a broker, `tcp://host:port`, is reached over this line."""
        host, _, port = target.partition("://")[2].rpartition(":")
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Outer(self, host.strip("[]"), int(port)), HOST, 0)
        self._servers.append(server)
        return f"tcp://{HOST}:{server.sockets[0].getsockname()[1]}"


class _End(asyncio.Protocol):
    """One side of a connection over the line; what comes in here goes out at the other side, later."""

    direction = 1

    def __init__(self, line: Line) -> None:
        self.line = line
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        #: What is under way: when it arrives, and what; None for the end of the stream.
        self._under_way: deque[tuple[float, bytes | None]] = deque()
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.line.ends[self] = None

    def data_received(self, data: bytes) -> None:
        line, now = self.line, self._loop.time()
        self._count(data)
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            line.free[self.direction] = gone = max(now, line.free[self.direction]) + len(piece) * line.seconds_per_byte
            self._arrives(gone + line.delay_s, piece)
        waiting_s = line.free[self.direction] - now
        if waiting_s > QUEUE_S and self.transport is not None:
            self.transport.pause_reading()
            self._loop.call_later(waiting_s - QUEUE_S / 2, self._read_again)

    def _read_again(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def _count(self, data: bytes) -> None:
        line = self.line
        line.carried += len(data)
        if line.mark:
            seen = self._tail + data
            line.copies += seen.count(line.mark)
            # Short enough to hold no whole mark: none is counted twice.
            self._tail = seen[-(len(line.mark) - 1) :]

    def _arrives(self, when: float, piece: bytes | None) -> None:
        self._under_way.append((when, piece))
        if len(self._under_way) == 1:
            self._loop.call_at(when, self._deliver)

    def _deliver(self) -> None:
        # What this was called for has arrived, whatever a clock of whole milliseconds says.
        now = max(self._loop.time(), self._under_way[0][0])
        pieces: list[bytes] = []
        while self._under_way and self._under_way[0][0] <= now:
            piece = self._under_way.popleft()[1]
            if piece is None:
                self._write(pieces)
                if self.other is not None and self.other.transport is not None:
                    self.other.transport.close()
                return
            pieces.append(piece)
        self._write(pieces)
        if self._under_way:
            self._loop.call_at(self._under_way[0][0], self._deliver)

    def _write(self, pieces: list[bytes]) -> None:
        out = None if self.other is None else self.other.transport
        if pieces and out is not None and not out.is_closing():
            out.write(b"".join(pieces))

    def connection_lost(self, exc: Exception | None) -> None:
        self.line.ends.pop(self, None)
        self._arrives(self._loop.time() + self.line.delay_s, None)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Inner(_End):
    """The side of the broker: what comes in here goes to who dialled."""

    direction = 0


class _Outer(_End):
    """The side of who dials."""

    def __init__(self, line: Line, host: str, port: int) -> None:
        super().__init__(line)
        self._place = (host, port)
        #: What was said before there was a way on.
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = self._loop.create_task(self._go_in())
        self.line.tasks.add(task)
        task.add_done_callback(self.line.tasks.discard)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            super().data_received(data)

    async def _go_in(self) -> None:
        try:
            # The handshake crosses the line as well, there and back.
            await asyncio.sleep(2 * self.line.delay_s)
            _, inner = await self._loop.create_connection(lambda: _Inner(self.line), *self._place)
        except OSError:  # nobody is there now: who dials tries again
            self.abort()
            return
        if self not in self.line.ends:
            inner.abort()
            return
        inner.other, self.other = self, inner
        for data in self._early:
            super().data_received(data)
