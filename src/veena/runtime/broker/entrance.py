"""Who has connected? The first whole frame tells: another broker, a client, or noise.

A header alone makes nobody known: until its first frame is whole a connection stays a stranger, and strangers are
bounded in number, bytes and time (`transports.strangers`), the handshakes of their transports included. That frame is
short, or the hello of a client that tells what it had before. Whoever is known is handed on with what has come, and is
no concern of this module any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veena.core.wire.header import HEADER, HEADER_SIZE, MAX_CONTROL_FRAME
from veena.runtime.config.schema import EntranceLimits
from veena.runtime.logging.logs import Log
from veena.runtime.transports.strangers import Strangers
from veena.runtime.transports.stream import Bytes, Listener, Stream

#: Kinds that a broker begins with: Hello, and the questions of one that has no address yet.
LINK_KINDS = frozenset((1, 32, 36))
#: What a client begins with, and who asks where to connect.
CLIENT_HELLO = 64
ASK_LOCATE = 100

#: The longest first frame. A client's hello tells what it had before, and may be as long as any control frame; a
#: broker's Hello and the other questions have a few addresses and names.
MAX_FIRST_FRAME = 64 * 1024

#: Takes a stream and what has come of it; who listens to it from now on.
TakeOver = Callable[[Stream, bytes], Listener]


@dataclass(frozen=True, slots=True)
class EntranceStatistics:
    connections: int
    unidentified: int
    accepted: int
    refused: int
    #: What strangers have this process hold, and how often the system had no descriptor for a new connection.
    unidentified_bytes: int = 0
    shortages: int = 0


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
        #: Known, or closing.
        self._inside: set[_Visitor] = set()
        #: For the transports: who has connected and is not known yet.
        self.strangers = Strangers(limits, log)
        self.strangers.closed = "this broker is starting: connect again"
        self.strangers.others = lambda: len(self._inside)
        self._accepted = 0

    def open(self) -> None:
        """Begin to let others in; who came before is turned away."""
        self.strangers.closed = ""

    def accept(self, stream: Stream) -> Listener:
        """The `accept` of every transport."""
        if stream.stranger is None:  # its transport tells of a connection only now
            stream.stranger = self.strangers.enter(stream.peer, stream.abort)
        return _Visitor(self, stream)

    def close(self, reason: str) -> None:
        """Let nobody in any more, and send away who has not said who it is."""
        self.strangers.closed = reason
        self.strangers.end_all(reason)

    def abort(self, reason: str) -> None:
        """Let nobody in any more, and break off every connection."""
        self.close(reason)
        for visitor in list(self._inside):
            visitor.stream.abort(reason)

    def statistics(self) -> EntranceStatistics:
        strangers = self.strangers
        return EntranceStatistics(
            len(self._inside) + len(strangers),
            len(strangers),
            self._accepted,
            strangers.turned_away,
            strangers.held,
            strangers.shortages,
        )

    def why_not_first(self, kind: int, length: int) -> str | None:
        """Why a frame with this header cannot be the first one; None if it can."""
        longest = MAX_CONTROL_FRAME if kind == CLIENT_HELLO else MAX_FIRST_FRAME
        if kind in self._takers and HEADER_SIZE <= length <= longest:
            return None
        return f"the first frame has kind {kind} and {length} bytes: no Hello of a broker or a client"

    def identify(self, visitor: _Visitor, kind: int, data: bytes) -> Listener:
        """Who takes over what began with these bytes, a whole frame at least."""
        self._inside.add(visitor)
        self._accepted += 1
        if visitor.stream.stranger is not None:
            visitor.stream.stranger.known()
            visitor.stream.stranger = None
        return self._takers[kind](visitor.stream, data)

    def left(self, visitor: _Visitor) -> None:
        self._inside.discard(visitor)


class _Visitor:
    """A listener until it is known who speaks; after that every call goes straight to who took over."""

    def __init__(self, entrance: Entrance, stream: Stream) -> None:
        self.stream = stream
        self._entrance = entrance
        self._begin = bytearray()
        self._then: Listener | None = None
        #: Replaced when it is known who speaks, so that a read costs no call more.
        self.received: Callable[[Bytes], None] = self._received
        self.clogged: Callable[[], None] = self._nothing
        self.cleared: Callable[[], None] = self._nothing

    def _received(self, data: Bytes) -> None:
        stranger = self.stream.stranger
        if stranger is None or stranger.is_over:
            return
        self._begin += data
        if len(self._begin) < HEADER_SIZE:
            return
        length, _, kind, _, _ = HEADER.unpack_from(self._begin)
        why_not = self._entrance.why_not_first(kind, length)
        if why_not is not None:
            stranger.turn_away(why_not)
            return
        if len(self._begin) < length:
            return
        begin, self._begin = bytes(self._begin), bytearray()
        then = self._then = self._entrance.identify(self, kind, begin)
        self.received, self.clogged, self.cleared = then.received, then.clogged, then.cleared

    def closed(self, reason: str) -> None:
        if self.stream.stranger is not None:
            self.stream.stranger.gone()
        self._entrance.left(self)
        if self._then is not None:
            self._then.closed(reason)

    def _nothing(self) -> None:
        pass
