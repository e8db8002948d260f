"""Where the other brokers of a test's network reach a broker: a relay that can be told to let nobody through.

Every broker announces its door instead of the port that it listens on, so that links, and what brokers dial of
themselves when they miss each other, go through doors. A link begins with a Hello, which says who dials: so a door
knows between which two brokers a connection is, and a cut between two units holds whoever dials whom. Clients connect
to the broker itself; those that a broker sends elsewhere come through a door, which cuts do not concern.
"""

from __future__ import annotations

import asyncio
from typing import cast

from veena.address import Address, Unit, contains
from veena.core.wire.codec import Decoder
from veena.core.wire.control import Hello
from veena.errors import VeenaError

HOST = "127.0.0.1"
#: A Hello is shorter than this; whoever has not said it by then is no broker.
MAX_FIRST = 64 * 1024


class Cuts:
    """Which units do not hear of each other."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[Unit, Unit], None] = {}

    def add(self, one: Unit, other: Unit) -> None:
        self._pairs[one, other] = None

    def remove(self, one: Unit, other: Unit) -> None:
        self._pairs.pop((one, other), None)
        self._pairs.pop((other, one), None)

    def clear(self) -> None:
        self._pairs.clear()

    def separate(self, one: Address, other: Address) -> bool:
        return any(
            (contains(a, one) and contains(b, other)) or (contains(a, other) and contains(b, one))
            for a, b in self._pairs
        )

    def __len__(self) -> int:
        return len(self._pairs)


class Door:
    """The door of one broker."""

    def __init__(self, address: Address, cuts: Cuts) -> None:
        self.address = address
        self.cuts = cuts
        #: The port that its broker listens on; 0 while it does not.
        self.target = 0
        self.visits: dict[Visit, None] = {}
        self._server: asyncio.Server | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Where it is."""
        self._server = await asyncio.get_running_loop().create_server(lambda: Visit(self), HOST, 0)
        return f"tcp://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    def check(self) -> None:
        """Break what must not be any more."""
        for visit in list(self.visits):
            if visit.dialler is not None and self.cuts.separate(visit.dialler, self.address):
                visit.end()

    def joins(self, other: Address) -> bool:
        """Whether that broker has a connection to this one."""
        return any(visit.dialler == other for visit in self.visits)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for visit in list(self.visits):
            visit.end()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class _Side(asyncio.Protocol):
    """One of the two connections that a way through a door consists of; what comes here goes out at the other."""

    def __init__(self) -> None:
        self.other: _Side | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.hold(True)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.hold(False)

    def hold(self, held: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            (self.transport.pause_reading if held else self.transport.resume_reading)()

    def connection_lost(self, exc: Exception | None) -> None:
        """What was said last still goes out."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Visit(_Side):
    """Somebody at a door, and the way on to the broker behind it."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door
        self._first = bytearray()
        self._is_known = False
        #: The broker that dials; None for a client, or while that is not known.
        self.dialler: Address | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._door.visits[self] = None

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._first += data
        if not self._is_known:
            self._identify()

    def _identify(self) -> None:
        """Who it is stands in its first frame; noise is the broker's to deal with."""
        try:
            frames = Decoder(max_frame=MAX_FIRST).feed(bytes(self._first))
            if not frames:
                return
            hello = frames[0][1]
        except VeenaError:
            hello = None
        self._is_known = True
        if isinstance(hello, Hello):
            self.dialler = hello.address
            if self._door.cuts.separate(hello.address, self._door.address):
                self.end()
                return
        self.hold(True)
        task = asyncio.get_running_loop().create_task(self._go_in())
        self._door.tasks.add(task)
        task.add_done_callback(self._door.tasks.discard)

    async def _go_in(self) -> None:
        try:
            if not self._door.target:
                raise ConnectionRefusedError("the broker does not run")
            _, inner = await asyncio.get_running_loop().create_connection(_Side, HOST, self._door.target)
        except OSError:
            self.end()
            return
        if self not in self._door.visits:
            inner.abort()
            return
        assert inner.transport is not None
        inner.transport.write(bytes(self._first))
        inner.other, self.other = self, inner
        self.hold(False)

    def end(self) -> None:
        self._door.visits.pop(self, None)
        self.abort()
        if self.other is not None:
            self.other.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.visits.pop(self, None)
        super().connection_lost(exc)
