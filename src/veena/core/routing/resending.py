"""Sending again, in slices: the events that are open for units whose hop has changed (design rule 5).

When the hop of a unit changes, every event that is open for it goes over the new hop, in order, before anything newer.
That can be thousands of events for each of many units, and a neighbour decides how often its links come and go. So the
router sends them in rounds and slices:

    hop changes --> the unit is *behind*: new reliable events for it stay open and are not sent
    round begins --> the open events of all units that are behind, sorted once; a new event goes to the end of the round
    slice by slice --> each event of the round goes over the hop that its units have at that moment
    round is over --> its units are behind no longer

A unit whose hop changes again while a round is under way leaves the round and waits for the next one. At most `SLICE`
events go in one step. `BURST` events may go at once; after that the rate is one every `COST_NS`, so that sending again
takes a part of the broker's time at most, whatever its neighbours do.

The invariant: while a unit is behind, nothing for it is sent but by the round, and the round holds every open event of
each unit that it is for, or has sent it over the present hop.

Rejected: sending all of it in one step (with 8,000 open events a step took 0.2 s, and a hostile neighbour caused 150 of
them a second); a round for each unit (a hop that serves many units would get a copy for each of them).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veena.core.delivery.in_flight import Flight
from veena.core.routing.duties import Duties

#: Events of one step.
SLICE: Final = 128
#: Events that may go as fast as steps follow each other, before the rate counts.
BURST: Final = 2048
#: The rate beyond that: one event in so many nanoseconds, 8,333 a second.
COST_NS: Final = 120_000
#: With the rate reached, so many go together: a step has a price of its own.
LEAST: Final = 32
#: To find what is open takes about this part of the work of sending it.
LOOK: Final = 8


class Resending:
    """The units of one broker that are behind, and the round under way."""

    def __init__(self) -> None:
        #: The units that are behind, as bits.
        self.behind = 0
        #: Those of them that the present round is for.
        self._units = 0
        self._round: deque[tuple[Flight, int]] = deque()
        #: All work so far is paid for at this time.
        self._paid_ns = 0

    def begin(self, units: int) -> None:
        """The hops of these units have changed."""
        self.behind |= units
        self._units &= ~units

    def admit(self, flight: Flight, duties: int) -> int:
        """Of new duties those that may be sent now; the others wait for their turn."""
        late = duties & self._units
        if late:
            self._round.append((flight, late))
        return duties & ~self.behind

    def take(self, duties: Duties, now_ns: int) -> list[tuple[Flight, int]]:
        """The events to send in this step, each with its units; call `finish` when they are sent."""
        self._paid_ns = max(self._paid_ns, now_ns)
        if now_ns < self._due_ns():
            return []
        if not self._units:
            # Whatever is left belongs to units whose hop has changed since: the new round has it again.
            self._units = self.behind
            found = duties.open(self._units)
            self._round = deque((flight, flight.open & self._units) for flight in found)
            self._pay(len(duties) // LOOK)
        room = max(LEAST, (now_ns + BURST * COST_NS - self._paid_ns) // COST_NS)
        pieces: list[tuple[Flight, int]] = []
        while self._round and len(pieces) < min(room, SLICE):
            flight, mask = self._round.popleft()
            open_now = flight.open & mask & self._units
            if open_now:
                pieces.append((flight, open_now))
        self._pay(len(pieces))
        return pieces

    def finish(self) -> None:
        """What `take` gave is sent: a round with nothing left is over."""
        if not self._round:
            self.behind &= ~self._units
            self._units = 0

    def _pay(self, events: int) -> None:
        self._paid_ns += events * COST_NS

    def _due_ns(self) -> int:
        return self._paid_ns - (BURST - LEAST) * COST_NS

    def next_wakeup(self) -> int | None:
        """When the next slice may go; None if nobody is behind."""
        return self._due_ns() if self.behind else None

    def check(self) -> None:
        assert not self._units & ~self.behind, "a round is for units that are behind"
        assert self._units or not self._round or self.behind, "what waits belongs to somebody"
