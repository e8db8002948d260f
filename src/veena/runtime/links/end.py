"""This end of one link: bytes to frames, one write a turn, what room there is, and how full the way out is.

**Room.** While a stream takes everything, the core is told nothing and nothing is counted. When it clogs, the core is
told that there is no room: events wait there, where they can be ordered and dropped. When it clears, room for a small
piece at a time is told, until the core has nothing that waits; then it is unbounded again.

**Load** is what `LinkLoad` asks for: the part of the time in which the way out was clogged, how much waits, and how
much longer a round trip takes than the shortest (for a queue, delay = least / (1 - load)); smoothed over some seconds.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from math import inf
from typing import Protocol

from veena.core.wire import codec as wire
from veena.core.wire.control import Done, Heartbeat, Hello, Received
from veena.core.wire.event import EventCodec, EventFrame
from veena.errors import RemoteProtocolError
from veena.runtime.steps import Steps, kinds_of
from veena.runtime.transports.stream import Bytes, Stream
from veena.runtime.transports.tcp import HIGH_WATER, LOW_WATER, TcpStream
from veena.runtime.transports.url import Url

#: What waits for the end of the turn is written before that when it is so much: the peer can begin to read.
WRITE_AT = 64 * 1024
#: Room that is told at a time while something waits: what a stream takes between its marks.
PIECE = HIGH_WATER - LOW_WATER
#: For how long the frames of a read are handed on in one step; a piece more may take as long again.
DEAL_S = 0.01
#: Frames in one piece, and how many of them each frame counts for that changes what a broker knows of others.
MAX_PIECE = 256
HEAVY = 256
_LIGHT = (EventFrame, Heartbeat, Done, Received)
#: How much of a measured load stays in the next, and which change is worth telling.
LOAD_MEMORY = 0.6
LOAD_NEWS = 0.05
#: A round trip longer than its least by this much is a queue; less is delayed acknowledgements and chance.
QUEUE_S = 0.2


@dataclass(frozen=True, slots=True)
class EndStatistics:
    """What the transport of a link knows of it."""

    link: int
    peer: str
    own: bool
    bytes_in: int
    bytes_out: int
    waiting: int
    utilisation: float
    round_trip_s: float | None


class OwnLink:
    """A neighbour that this broker dials."""

    def __init__(self, urls: tuple[Url, ...]) -> None:
        self.urls = urls
        self.over = asyncio.Event()


class Owner(Protocol):
    """All links of a broker, as far as the end of one link uses them."""

    codec: EventCodec
    steps: Steps

    def arrived(self, end: LinkEnd, frames: list[wire.Numbered]) -> None:
        """One read brought these frames."""

    def fault(self, end: LinkEnd, error: RemoteProtocolError) -> None:
        """The peer broke the rules."""

    def over(self, end: LinkEnd, reason: str) -> None:
        """The connection is closed."""

    def room(self, end: LinkEnd, size: int | None) -> None:
        """The stream takes so many more bytes of events; None: as many as there are."""


class LinkEnd:
    """This end of one connection: who listens to its stream."""

    def __init__(self, number: int, stream: Stream, own: OwnLink | None, links: Owner) -> None:
        self.number = number
        self.stream = stream
        self.own = own
        #: What the peer said first, and whether that was judged (`trust`).
        self.hello: Hello | None = None
        self.is_judged = False
        #: Whether the peer has made this connection.
        self.is_accepted = False
        self.began = time.monotonic()
        #: When the grant ends by which alone the peer may be a neighbour, in seconds since 1970.
        self.granted_until = inf
        self._links = links
        self._decoder = wire.Decoder(links.codec, links.codec.max_frame, renumber=False)
        #: Frames that wait for the next step, what is wrong with what came behind them, and why the stream is closed.
        self._rest: list[wire.Numbered] = []
        self._is_dealing = False
        self._wrong: RemoteProtocolError | None = None
        self._closed_by = ""
        self._bytes_in = self._bytes_out = 0
        self._parts: list[Bytes] = []
        self._size = 0
        #: Bytes of events that were written, ever; and what it was when room was told last.
        self.taken = 0
        self._taken_before = 0
        self._is_clogged = False
        self._clogged_since = 0.0
        self._clogged_s = 0.0
        self._measured_at = time.monotonic()
        self._load = self._told_load = 0.0

    # --- the listener ---

    def received(self, data: Bytes) -> None:
        self._bytes_in += len(data)
        is_step = self._links.steps.begin()
        frames: list[wire.Numbered] = []
        try:
            frames = self._decoder.feed(data if type(data) is bytes else bytes(data))
        except RemoteProtocolError as error:
            self._wrong = error
        try:
            self._deal(frames)
        finally:
            if is_step:
                self._links.steps.end(lambda: (kinds_of(frame for _, frame in frames), self._name))

    def _deal(self, frames: list[wire.Numbered]) -> None:
        """Hand on as much as one step has time for, in its order; nothing is read until the rest is handed on too."""
        self._rest += frames
        until = time.monotonic() + DEAL_S
        while self._rest and time.monotonic() < until:
            taken = _piece(self._rest)
            piece, self._rest = self._rest[:taken], self._rest[taken:]
            self._links.arrived(self, piece)
        if self._rest:
            if not self._is_dealing:
                self._is_dealing = True
                self.stream.pause()
                asyncio.get_running_loop().call_soon(self._deal_on)
        elif self._wrong is not None:
            wrong, self._wrong = self._wrong, None
            self._links.fault(self, wrong)

    def _deal_on(self) -> None:
        self._is_dealing = False
        rest = self._rest
        with self._links.steps.step(kinds_of(frame for _, frame in rest[:MAX_PIECE]), self._name):
            self._deal([])
        if not self._is_dealing:
            self.stream.resume()
            if self._closed_by:
                self.closed(self._closed_by)

    @property
    def _name(self) -> str:
        return f"link {self.number} to {self.stream.peer}"

    def closed(self, reason: str) -> None:
        if self._is_dealing:  # what came before the end counts
            self._closed_by = reason or "closed"
            return
        self._links.over(self, reason)
        if self.own is not None:
            self.own.over.set()

    def clogged(self) -> None:
        self._is_clogged = True
        self._clogged_since = time.monotonic()
        self._links.room(self, 0)

    def cleared(self) -> None:
        self._is_clogged = False
        self._clogged_s += time.monotonic() - self._clogged_since
        self._refill()

    # --- writing ---

    def put(self, parts: list[Bytes]) -> bool:
        """Keep this for the end of the turn; whether it is the first."""
        is_first = not self._parts
        self._parts += parts
        self._size += sum(map(len, parts))
        if self._size < WRITE_AT:
            return is_first
        self.flush()
        return False

    def flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._bytes_out += self._size
            self._size = 0
            self.stream.write(parts)

    def _refill(self) -> None:
        self._taken_before = self.taken
        self._links.room(self, PIECE)
        asyncio.get_running_loop().call_soon(self._after_refill)

    def _after_refill(self) -> None:
        if self._is_clogged:
            return  # no room was told since; when it clears this begins anew
        if self.taken - self._taken_before >= PIECE:
            self._refill()
        else:
            self._links.room(self, None)

    # --- measuring ---

    def measure(self) -> float | None:
        """The load of the way out, if it has changed by more than a little."""
        now = time.monotonic()
        clogged = self._clogged_s
        if self._is_clogged:
            clogged += now - max(self._clogged_since, self._measured_at)
            self._clogged_since = now
        share = clogged / max(now - self._measured_at, 1e-3)
        self._clogged_s, self._measured_at = 0.0, now
        waiting = min(1.0, self.stream.waiting / HIGH_WATER)
        sample = min(1.0, max(share, waiting / 2, self._queueing()))
        self._load = LOAD_MEMORY * self._load + (1 - LOAD_MEMORY) * sample
        if self._load < LOAD_NEWS / 2:
            self._load = 0.0
        if abs(self._load - self._told_load) < LOAD_NEWS and (self._load > 0.0 or self._told_load == 0.0):
            return None
        self._told_load = self._load
        return self._load

    def _queueing(self) -> float:
        measured = self.stream.round_trip() if isinstance(self.stream, TcpStream) else None
        if measured is None or measured[0] < measured[1] + QUEUE_S:
            return 0.0
        return 1.0 - (measured[1] + QUEUE_S / 2) / measured[0]

    def statistics(self) -> EndStatistics:
        measured = self.stream.round_trip() if isinstance(self.stream, TcpStream) else None
        return EndStatistics(
            self.number,
            self.stream.peer,
            self.own is not None,
            self._bytes_in,
            self._bytes_out,
            self.stream.waiting,
            self._load,
            None if measured is None else measured[0],
        )


def _piece(frames: list[wire.Numbered]) -> int:
    """How many of these frames are handed on together."""
    work = 0
    for at, (_, frame) in enumerate(frames, 1):
        work += 1 if isinstance(frame, _LIGHT) else HEAVY
        if work >= MAX_PIECE:
            return at
    return len(frames)
