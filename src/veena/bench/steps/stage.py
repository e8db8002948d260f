"""Where actions are measured: a broker's process, raw clients and neighbours beside it, and what each action took."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from veena.address import Address
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Identity
from veena.core.links.link import greeting
from veena.core.wire.client import (
    Acknowledged,
    ClientHello,
    ClientWelcome,
    Farewell,
    TellAdvertRefused,
    TellDenied,
    TellRefused,
)
from veena.core.wire.codec import Decoder, encode
from veena.core.wire.control import MAX_IDS, Frame, Goodbye, Heartbeat, Hello
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.header import MAX_FRAME, VERSION, VERSION_LOW
from veena.event import Event, EventId

#: What no step should exceed, in seconds of CPU time.
LIMIT_S = 0.05
#: How long an action waits for what it has caused.
PATIENCE_S = 60.0
READ_BYTES = 1 << 18
#: The measured broker, and its neighbours.
LEVELS = 4
HOME: Address = (0, 0, 0, 1)

_Frame = TypeVar("_Frame", bound=Frame)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one action did to the event loop."""

    action: str
    longest_ms: float
    #: What the longest step was.
    step: str
    over_limit: int
    #: How often the broker refused, and the last reason: an action that is refused measures little.
    refused: int = 0
    reason: str = ""
    fault: str = ""

    @property
    def is_within(self) -> bool:
        return self.longest_ms <= LIMIT_S * 1000 and not self.fault


class Peer:
    """A connection that speaks frames: a client, or a neighbour."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._decoder = Decoder(EventCodec(LEVELS, 32, MAX_FRAME), MAX_FRAME)
        #: What has come, but for events, of which only the number counts.
        self.frames: list[Frame] = []
        self.events = 0
        self.refusals: list[str] = []
        #: The subscription whose events are acknowledged when they come; 0 for none.
        self.acknowledges = 0
        self._had: list[EventId] = []
        self.why_over = ""
        self._came = asyncio.Event()
        self._number = 0
        self._answers_heartbeats = False
        self._reading = asyncio.create_task(self._read(reader))
        self.client_id, self.incarnation = "", 0
        self.sent = 0

    @classmethod
    async def dial(cls, url: str) -> Self:
        host, _, port = url.partition("://")[2].rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=READ_BYTES))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                for _, frame in self._decoder.feed(data):
                    self._take(frame)
                for at in range(0, len(self._had), MAX_IDS):
                    some = tuple(tuple(each) for each in self._had[at : at + MAX_IDS])
                    self.say(Acknowledged(self.acknowledges, some))  # type: ignore[arg-type]
                self._had.clear()
                self._came.set()
        self.why_over = self.why_over or "closed"
        self._came.set()

    def _take(self, frame: Frame | EventFrame) -> None:
        if isinstance(frame, EventFrame):
            self.events += 1
            if self.acknowledges:
                self._had.append(frame.id)
            return
        if isinstance(frame, Farewell | Goodbye):
            self.why_over = frame.reason
        if isinstance(frame, TellRefused | TellDenied | TellAdvertRefused):
            self.refusals.append(frame.reason)
        if isinstance(frame, Heartbeat) and self._answers_heartbeats:
            self.say(Heartbeat(frame.sent_ns, frame.sent_ns))
        else:
            self.frames.append(frame)

    # --- speaking ---

    async def attach(self, client_id: str, **hello: Any) -> None:
        """Be this client; where there are users, the user that the id begins with, whose token is its name."""
        self.client_id = client_id
        user = client_id.partition("/")[0]
        hello = {"user": user, "token": user, "heartbeat_ms": 60_000, **hello}
        self.say(ClientHello(VERSION_LOW, VERSION, client_id, **hello))
        (welcome,) = await self.hear(ClientWelcome)
        self.incarnation = welcome.incarnation

    def say(self, *frames: Frame) -> None:
        """Frames one behind the other: numbered on a link, with number 0 on a session."""
        if self.why_over:
            raise ConnectionError(self.why_over)
        parts = []
        for frame in frames:
            self._number += self._answers_heartbeats
            parts.append(encode(frame, self._number))
        self._writer.write(b"".join(parts))

    def publish(self, *events: Event, reliable: bool = False) -> None:
        """Events of this client; each gets an id."""
        codec = EventCodec(LEVELS, 32, MAX_FRAME)
        parts = []
        for event in events:
            self.sent += 1
            place = EventId(self.client_id, self.incarnation, 1, self.sent)
            parts.append(codec.encode_event(replace(event, event_id=place), 0, reliable=reliable))
        self._writer.write(b"".join(parts))

    async def drained(self) -> None:
        await self._writer.drain()

    # --- hearing ---

    async def until(self, is_so: Callable[[], object]) -> None:
        """Until something is so of what has come."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                if self.why_over:
                    raise ConnectionError(self.why_over)
                self._came.clear()
                await self._came.wait()

    async def hear(self, *kinds: type[Frame], count: int = 1) -> list[Any]:
        """Until so many frames of these kinds have come; they are taken out of `frames`."""
        await self.until(lambda: sum(isinstance(frame, kinds) for frame in self.frames) >= count)
        found = [frame for frame in self.frames if isinstance(frame, kinds)]
        self.frames = [frame for frame in self.frames if not isinstance(frame, kinds)]
        return found

    async def quiet(self) -> None:
        """Until the broker has dealt with everything said so far: it answers frames in their order."""
        await self.drained()
        self.say(Heartbeat(1, 0))
        await self.until(lambda: any(isinstance(f, Heartbeat) and f.echo_ns == 1 for f in self.frames))
        self.frames = [frame for frame in self.frames if not isinstance(frame, Heartbeat)]

    def close(self) -> None:
        self._reading.cancel()
        self._writer.close()


class Stage:
    """A broker's process and what is measured of it."""

    def __init__(self, url: str, http: str, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.url, self.http, self.folder = url, http, folder
        self._process = process
        self.pid = process.pid
        self.peers: list[Peer] = []
        self.refusals: list[str] = []
        #: What the action that runs now took, in its parts that count.
        self.steps: list[dict[str, Any]] = []

    # --- connections ---

    async def client(self, client_id: str, **hello: Any) -> Peer:
        """Attach; where there are users, as the user that the id begins with, whose token is its name."""
        peer = await Peer.dial(self.url)
        self.peers.append(peer)
        await peer.attach(client_id, **hello)
        return peer

    async def clients(self, prefix: str, count: int) -> list[Peer]:
        """Many of them, some at a time."""
        found: list[Peer] = []
        for first in range(0, count, 50):
            names = range(first, min(first + 50, count))
            found += await asyncio.gather(*(self.client(f"{prefix}/{number}") for number in names))
        return found

    async def neighbour(self, address: Address, settings: Settings | None = None) -> Peer:
        peer = await Peer.dial(self.url)
        self.peers.append(peer)
        peer._answers_heartbeats = True
        name = ".".join(map(str, address))
        peer.say(greeting(Identity(name, address, 1), settings or Settings(), 7, ()))
        await peer.hear(Hello)
        return peer

    def hang_up(self, peers: Iterable[Peer] | None = None) -> None:
        for peer in list(self.peers if peers is None else peers):
            peer.close()
            self.refusals += peer.refusals
            if peer in self.peers:
                self.peers.remove(peer)

    # --- measuring ---

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        """What is done inside counts for the action; everything beside it is preparation."""
        await self.tell("forget")
        yield
        self.steps.append(await self.tell("tell"))

    async def tell(self, line: str) -> dict[str, Any]:
        """A line to the broker's process; its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer

    async def page(self, path: str) -> bytes:
        """A page of the broker's monitoring."""
        host, _, port = self.http.partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            data = await reader.read()
        writer.close()
        return data

    async def status(self) -> dict[str, Any]:
        """What the broker says of itself."""
        found: dict[str, Any] = json.loads((await self.page("/statusz")).partition(b"\r\n\r\n")[2])
        return found


Action = Callable[[Stage], Awaitable[None]]


@asynccontextmanager
async def staged(folder: Path, settings: Callable[[Path], str] | None = None) -> AsyncIterator[Stage]:
    """A broker for one action; `settings` writes further ones, and what they name, for its folder."""
    folder.mkdir(parents=True)
    extra = "" if settings is None else settings(folder)
    config = folder / "broker.toml"
    config.write_text(
        f'[broker]\nname = "measured"\naddress = "{".".join(map(str, HOME))}"\nlisten = ["veena://127.0.0.1:0"]\n'
        f'[store]\npath = "{folder}/store"\n[http]\nlisten = "127.0.0.1:0"\n'
        # How fast a user may be changes how often there are steps, and not how long they take.
        f"[limits.client]\ncontrol_per_second = 0\n{extra}"
    )
    with (folder / "broker.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "veena.bench.steps.host", str(config),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError((folder / "broker.log").read_text()[-2000:])
        told = json.loads(line)
        stage = Stage(told["url"], told["http"], process, folder)
        yield stage
        stage.hang_up()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def measure(name: str, action: Action, folder: Path, settings: Callable[[Path], str] | None = None) -> Measured:
    """Run an action against a broker of its own."""
    fault = ""
    steps: list[dict[str, Any]] = []
    refusals: list[str] = []
    peers: list[Peer] = []
    try:
        async with staged(folder, settings) as stage:
            steps, refusals, peers = stage.steps, stage.refusals, stage.peers
            await action(stage)
    except (OSError, TimeoutError, RuntimeError, ValueError) as error:
        why = "; ".join(dict.fromkeys(peer.why_over for peer in peers if peer.why_over))
        fault = f"{type(error).__name__}: {error} {why}"[:300]
    worst = max(steps, key=lambda each: each["longest_ever_s"], default={})
    return Measured(
        name,
        round(1000 * worst.get("longest_ever_s", 0.0), 1),
        worst.get("longest_cause", ""),
        sum(each["over_limit"] for each in steps),
        len(refusals),
        refusals[-1][:200] if refusals else "",
        fault,
    )
