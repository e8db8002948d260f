"""Who has connected? The first sixteen bytes tell: another broker, a client, or noise.

A stranger may say nothing for a while, but not for long, and only so many may say nothing at once: half-open
connections and slow senders are thereby bounded in number and in time, whatever they send (each costs sixteen
bytes until it is known). When there are too many, the one that has been silent for longest goes: whoever means it has
said who it is within milliseconds, so those who do not cannot keep the others out. Whoever is known is handed on with
what has come, and is no concern of this module any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from veena.core.wire.header import HEADER, HEADER_SIZE, MAX_CONTROL_FRAME
from veena.runtime.config.schema import EntranceLimits
from veena.runtime.logging.logs import Log
from veena.runtime.transports.stream import Bytes, Listener, Stream

#: Kinds that a broker begins with: Hello, and the questions of one that has no address yet.
LINK_KINDS = frozenset((1, 32, 36))
#: What a client begins with, and who asks where to connect.
CLIENT_HELLO = 64
ASK_LOCATE = 100

#: Takes a stream and what has come of it; who listens to it from now on.
TakeOver = Callable[[Stream, bytes], Listener]


@dataclass(frozen=True, slots=True)
class EntranceStatistics:
    connections: int
    unidentified: int
    accepted: int
    refused: int


class Entrance:
    """All connections that others have made to this broker."""

    def __init__(
        self,
        limits: EntranceLimits,
        links: TakeOver,
        clients: TakeOver,
        log: Log,
        questions: TakeOver | None = None,
    ) -> None:
        self.limits = limits
        self._takers: dict[int, TakeOver] = {**dict.fromkeys(LINK_KINDS, links), CLIENT_HELLO: clients}
        if questions is not None:
            self._takers[ASK_LOCATE] = questions
        self._log = log
        self._inside: set[_Visitor] = set()
        #: The oldest first.
        self._strangers: dict[_Visitor, None] = {}
        self._accepted = self._refused = 0
        #: Why nobody is let in, if so.
        self._closed = "this broker is starting: connect again"

    def open(self) -> None:
        """Begin to let others in; who came before is turned away."""
        self._closed = ""

    def accept(self, stream: Stream) -> Listener:
        """The `accept` of every transport."""
        visitor = _Visitor(self, stream)
        self._inside.add(visitor)
        self._strangers[visitor] = None
        if self._closed:
            visitor.turn_away(self._closed)
        elif len(self._inside) > self.limits.connections:
            visitor.turn_away(f"this broker has {self.limits.connections} connections: try another, or later")
        elif len(self._strangers) > self.limits.unidentified:
            reason = f"{self.limits.unidentified} connections have not said who they are, and this one for longest"
            next(iter(self._strangers)).turn_away(reason)
        return visitor

    def close(self, reason: str) -> None:
        """Let nobody in any more, and send away who has not said who it is."""
        self._closed = reason
        for visitor in list(self._strangers):
            visitor.stream.abort(reason)

    def abort(self, reason: str) -> None:
        """Let nobody in any more, and break off every connection."""
        self.close(reason)
        for visitor in list(self._inside):
            visitor.stream.abort(reason)

    def statistics(self) -> EntranceStatistics:
        return EntranceStatistics(len(self._inside), len(self._strangers), self._accepted, self._refused)

    def identify(self, visitor: _Visitor, data: bytes) -> Listener | None:
        """Who takes over what began with these bytes; None for noise."""
        length, _, kind, _, _ = HEADER.unpack_from(data)
        take_over = self._takers.get(kind)
        if take_over is None or not HEADER_SIZE <= length <= MAX_CONTROL_FRAME:
            visitor.turn_away(f"the first frame has kind {kind} and {length} bytes: no Hello of a broker or a client")
            return None
        del self._strangers[visitor]
        self._accepted += 1
        return take_over(visitor.stream, data)

    def refused(self, visitor: _Visitor, reason: str) -> None:
        self._refused += 1
        self._strangers.pop(visitor, None)
        self._log.noise("connection refused", peer=visitor.stream.peer, reason=reason)

    def left(self, visitor: _Visitor) -> None:
        self._inside.discard(visitor)
        self._strangers.pop(visitor, None)


class _Visitor:
    """A listener until it is known who speaks; after that every call goes straight to who took over."""

    def __init__(self, entrance: Entrance, stream: Stream) -> None:
        self.stream = stream
        self._entrance = entrance
        self._begin = b""
        self._then: Listener | None = None
        self._is_turned_away = False
        self._patience = asyncio.get_running_loop().call_later(entrance.limits.identify_s, self._too_late)
        #: Replaced when it is known who speaks, so that a read costs no call more.
        self.received: Callable[[Bytes], None] = self._received
        self.clogged: Callable[[], None] = self._nothing
        self.cleared: Callable[[], None] = self._nothing

    def _received(self, data: Bytes) -> None:
        if self._is_turned_away:
            return
        self._begin += data
        if len(self._begin) < HEADER_SIZE:
            return
        begin, self._begin = self._begin, b""
        then = self._entrance.identify(self, begin)
        if then is not None:
            self._patience.cancel()
            self._then = then
            self.received, self.clogged, self.cleared = then.received, then.clogged, then.cleared

    def closed(self, reason: str) -> None:
        self._patience.cancel()
        self._entrance.left(self)
        if self._then is not None:
            self._then.closed(reason)

    def turn_away(self, reason: str) -> None:
        if not self._is_turned_away:
            self._is_turned_away = True
            self._entrance.refused(self, reason)
            self.stream.abort(reason)

    def _too_late(self) -> None:
        self.turn_away(f"it did not say who it is within {self._entrance.limits.identify_s:g} s")

    def _nothing(self) -> None:
        pass
