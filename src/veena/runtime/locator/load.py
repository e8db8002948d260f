"""How much a broker has to do, as a part of what it serves well.

Two things are counted where a limit is configured (`[load]`): clients that are attached, and events a second that come
from clients or go to them. The larger of the two parts is the load; above 1 a broker has more than it should.

Rejected: processor time and delays of the event loop. They say how busy the machine is, with whatever; an operator can
neither choose nor foresee them, and a broker that moves clients because of somebody else's work helps nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veena.core.wire.locator import FULL, MAX_LOAD

#: Rates are taken over at least so long.
MEASURE_S = 1.0
#: A broker has room up to this part of its limit: who is full does not send its clients to who is nearly so.
ROOMY = 0.8


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """What a broker serves well; 0 for no limit, and clients then count against its connections."""

    clients: int = 0
    events_per_second: int = 0
    connections: int = 20_000


@dataclass(frozen=True, slots=True)
class Load:
    """One look at a broker."""

    clients: int
    events_per_second: float
    limits: LoadLimits

    @property
    def part(self) -> float:
        """1.0 is all that it serves well."""
        limits = self.limits
        found = self.clients / (limits.clients or limits.connections)
        if limits.events_per_second:
            found = max(found, self.events_per_second / limits.events_per_second)
        return found

    @property
    def thousandths(self) -> int:
        return min(MAX_LOAD, round(FULL * self.part))

    @property
    def is_limited(self) -> bool:
        return bool(self.limits.clients or self.limits.events_per_second)

    @property
    def room(self) -> int:
        """How many more clients it can take and still have room, if they do as the others do."""
        if self.part >= ROOMY:
            return 0
        limits = self.limits
        found = int(ROOMY * (limits.clients or limits.connections)) - self.clients
        if limits.events_per_second and self.clients and self.events_per_second:
            each = self.events_per_second / self.clients
            found = min(found, int((ROOMY * limits.events_per_second - self.events_per_second) / each))
        return max(0, found)

    @property
    def excess(self) -> int:
        """How many clients are too many."""
        if self.part <= 1.0 or not self.is_limited:
            return 0
        return max(1, self.clients - int(self.clients / self.part))


class Gauge:
    """Counters become rates."""

    def __init__(self, clients: Callable[[], int], events: Callable[[], int], clock: Callable[[], float]) -> None:
        self._clients = clients
        self._events = events
        self._clock = clock
        self._since, self._before = clock(), events()
        self._rate = 0.0

    def read(self, limits: LoadLimits) -> Load:
        now = self._clock()
        if now - self._since >= MEASURE_S:
            counted = self._events()
            # A core that was made anew counts from 0.
            self._rate = max(0, counted - self._before) / (now - self._since)
            self._since, self._before = now, counted
        return Load(self._clients(), self._rate, limits)
