"""Connections whose other end has not said who it is: how many there are, what they hold, and who of them has to go.

A connection is a stranger from the moment in which the system hands it over: handshakes of TLS and WebSocket, and the
bytes before the first whole frame, belong to that time. Strangers are bounded in number, in bytes and in time. When
there are too many, the oldest has to go and not the newest: whoever means it has said who it is within milliseconds,
so those who do not cannot keep others out. The same holds when the system has no descriptors left.

Rejected: turning newcomers away while there are too many. Some hundred silent connections then lock a door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from veena.runtime.logging.logs import Log

#: Of all strangers so many, the oldest, go together when there is no descriptor left: several connections wait then.
GIVE_WAY = 8


class Bounds(Protocol):
    """What strangers may take; the values may change while a broker runs."""

    #: How long a stranger may take to say who it is.
    identify_s: float
    #: Strangers at once, and the bytes that they may have this process hold.
    unidentified: int
    unidentified_bytes: int
    #: Connections at once, whoever they are.
    connections: int


class Stranger:
    """One connection before it is known who speaks."""

    __slots__ = ("_patience", "_strangers", "end", "held", "is_over", "on_known", "peer")

    def __init__(self, strangers: Strangers, peer: str, end: Callable[[str], None]) -> None:
        self.peer = peer
        #: Ends the connection; each layer that is put on it replaces this by its own way.
        self.end = end
        #: Bytes that it has this process hold.
        self.held = 0
        #: It is known, turned away or gone.
        self.is_over = False
        #: Called when it is known who speaks: what the layers below bound for strangers alone ends then.
        self.on_known: list[Callable[[], None]] = []
        self._strangers = strangers
        self._patience: asyncio.TimerHandle | None = None

    def begin(self, identify_s: float) -> None:
        self._patience = asyncio.get_running_loop().call_later(identify_s, self._too_late, identify_s)

    def hold(self, size: int) -> None:
        """It has this process hold so many bytes more."""
        if not self.is_over:
            self.held += size
            self._strangers.grown(size)

    def known(self) -> None:
        """It has said who it is."""
        if self._over():
            for each in self.on_known:
                each()

    def gone(self) -> None:
        """The connection is closed."""
        self._over()

    def turn_away(self, reason: str) -> None:
        if self._over():
            self._strangers.refused(self, reason)
            self.end(reason)

    def _over(self) -> bool:
        if self.is_over:
            return False
        self.is_over = True
        if self._patience is not None:
            self._patience.cancel()
        self._strangers.forget(self)
        return True

    def _too_late(self, identify_s: float) -> None:
        self.turn_away(f"it did not say who it is within {identify_s:g} s")


class Strangers:
    """All strangers of one broker, whatever transport they came by."""

    def __init__(self, limits: Bounds, log: Log) -> None:
        self.limits = limits
        #: Why nobody is let in, if so.
        self.closed = ""
        #: How many connections there are beside the strangers.
        self.others: Callable[[], int] = lambda: 0
        #: Since the start: connections turned away, and times that the system had no descriptor for a new one.
        self.turned_away = self.shortages = 0
        self._log = log
        #: The oldest first.
        self._all: dict[Stranger, None] = {}
        self.held = 0

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, peer: str, end: Callable[[str], None]) -> Stranger:
        """Somebody has connected; the stranger is over at once where there is no room for it."""
        limits = self.limits
        newcomer = Stranger(self, peer, end)
        self._all[newcomer] = None
        if self.closed:
            newcomer.turn_away(self.closed)
            return newcomer
        newcomer.begin(limits.identify_s)
        if len(self._all) + self.others() > limits.connections:
            reason = f"this broker has {limits.connections} connections: try another, or later"
            next(iter(self._all)).turn_away(reason)
        elif len(self._all) > limits.unidentified:
            self._oldest_goes(f"{limits.unidentified} connections have not said who they are")
        return newcomer

    def grown(self, size: int) -> None:
        """Strangers hold so many bytes more."""
        self.held += size
        while self.held > self.limits.unidentified_bytes and self._all:
            self._oldest_goes(f"connections that have not said who they are hold {self.held} bytes")

    def short_of_descriptors(self, reason: str) -> None:
        """The system has none for a connection that waits: the oldest strangers give theirs up."""
        self.shortages += 1
        self._log.noise("no descriptor for a new connection", reason=reason, strangers=len(self._all))
        for _ in range(-(-len(self._all) // GIVE_WAY)):
            self._oldest_goes("this broker has no descriptors left for others")

    def end_all(self, reason: str) -> None:
        for each in list(self._all):
            each.turn_away(reason)

    def forget(self, stranger: Stranger) -> None:
        if self._all.pop(stranger, self) is None:
            self.held -= stranger.held

    def refused(self, stranger: Stranger, reason: str) -> None:
        self.turned_away += 1
        self._log.noise("connection refused", peer=stranger.peer, reason=reason)

    def _oldest_goes(self, why: str) -> None:
        next(iter(self._all)).turn_away(f"{why}, and this one for longest")
