"""The duties of one broker: which are open, who claims them, and which copies are to be acknowledged (rules 4 and 6).

A duty is done when everybody below has the event; the copies that claimed it are acknowledged when all their duties
are. A done duty is forgotten with its flight: what comes again is taken again, and the ends drop what they have had. A
duty that nobody claims any more (its upstream's connection is over, or sends it another way) is forgotten as well: who
still wants it served sends it again.

The invariant is the flight's: every open duty is claimed, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from veena.core.delivery.in_flight import LOG, Claim, Flight
from veena.core.wire.event_id import EventKey

#: Called with an entry's offset in the log and a mask of units: these units are served.
Served = Callable[[int, int, int], None]


class Duties:
    """Flights by event, in the order in which they were taken."""

    def __init__(self) -> None:
        self._flights: dict[EventKey, Flight] = {}
        #: What the events of all flights hold in memory.
        self.bytes = 0
        #: The flights that a connection claims: when it is over, only these are looked at.
        self._claimed_by: dict[int, dict[EventKey, Flight]] = {}
        #: Copies to acknowledge with this read: connection -> frame numbers.
        self._owed: dict[int, list[int]] = {}
        #: Whom to tell of what is served: the log first, so that its cursor is right when others ask.
        self.observers: list[Served] = []

    def __len__(self) -> int:
        return len(self._flights)

    def find(self, key: EventKey) -> Flight | None:
        return self._flights.get(key)

    def flights(self) -> list[Flight]:
        return list(self._flights.values())

    def open(self, mask: int) -> list[Flight]:
        """The flights that have one of these duties open, in the order in which they are sent again (rule 5)."""
        found = [flight for flight in self._flights.values() if flight.open & mask]
        return sorted(found, key=lambda flight: flight.order)

    def claim(self, flight: Flight, source: int, number: int, pending: int) -> int:
        """A copy claims these duties; those of them that are new here."""
        if flight.key not in self._flights:
            self._flights[flight.key] = flight
            self.bytes += len(flight.frame.tail)
        fresh = pending & ~flight.taken
        flight.taken |= fresh
        flight.claims.append(Claim(source, number, pending))
        if source != LOG:
            self._claimed_by.setdefault(source, {})[flight.key] = flight
        return fresh

    def complete(self, flight: Flight, duties: int, now_ns: int) -> None:
        """These duties are done: answer every claim that has nothing else open."""
        new = duties & flight.open
        if not new:
            return
        flight.done |= new
        left: list[Claim] = []
        for claim in flight.claims:
            if claim.source == LOG and claim.mask & new:
                for tell in self.observers:
                    tell(claim.number, claim.mask & new, now_ns)
            claim.mask &= ~new
            if claim.mask:
                left.append(claim)
            else:
                self.acknowledge(claim.source, claim.number)
        self._keep(flight, left)
        if not left:
            self._forget(flight)

    def _keep(self, flight: Flight, left: list[Claim]) -> None:
        """These claims are left of a flight."""
        for claim in flight.claims:
            source = claim.source
            if source != LOG and not any(each.source == source for each in left):
                claimed = self._claimed_by.get(source)
                if claimed is not None and claimed.pop(flight.key, None) is not None and not claimed:
                    del self._claimed_by[source]
        flight.claims = left

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
            self.bytes -= len(flight.frame.tail)

    def claimed_by(self, source: int) -> list[Flight]:
        """The flights that a connection claims."""
        return list(self._claimed_by.get(source, {}).values())

    def void(self, source: int) -> None:
        """The claims of a connection do not count any more; nobody is answered."""
        for flight in self.claimed_by(source):
            self._keep(flight, [claim for claim in flight.claims if claim.source != source])
            self._forget_unclaimed(flight)

    def waive(self, flights: Iterable[Flight], waived: Callable[[Claim], int]) -> None:
        """Claims no longer ask for what `waived` says; a copy that asks for nothing else is answered."""
        for flight in flights:
            is_touched = False
            for claim in flight.claims:
                duties = claim.mask & waived(claim)
                if duties:
                    is_touched = True
                    claim.mask &= ~duties
                    if not claim.mask:
                        self.acknowledge(claim.source, claim.number)
            if is_touched:
                self._keep(flight, [claim for claim in flight.claims if claim.mask])
                self._forget_unclaimed(flight)

    def _forget_unclaimed(self, flight: Flight) -> None:
        flight.taken &= flight.claimed() | flight.done
        if not flight.claims:
            self._forget(flight)

    def overdue(self, before_ns: int, found_here: Callable[[Claim], int]) -> list[tuple[Flight, int]]:
        """Duties that have been open since before then, of those that `found_here` names in a claim."""
        found: list[tuple[Flight, int]] = []
        for flight in self._flights.values():
            if flight.since_ns > before_ns:
                break  # flights are in the order in which they were taken
            mask = 0
            for claim in flight.claims:
                mask |= found_here(claim)
            if mask & ~flight.adopted:
                found.append((flight, mask & ~flight.adopted))
        return found

    # --- answers ---

    def acknowledge(self, source: int, number: int) -> None:
        if source != LOG:
            self._owed.setdefault(source, []).append(number)

    def take_owed(self) -> dict[int, list[int]]:
        """What is to be acknowledged, by connection."""
        owed, self._owed = self._owed, {}
        return owed

    def check(self) -> None:
        for key, flight in self._flights.items():
            assert flight.key == key
            flight.check()
        assert self.bytes == sum(len(flight.frame.tail) for flight in self._flights.values())
        claimed = {(claim.source, key) for key, flight in self._flights.items() for claim in flight.claims}
        found = {(source, key) for source, flights in self._claimed_by.items() for key in flights}
        assert found == {(source, key) for source, key in claimed if source != LOG}, (
            "every claim is found by its source"
        )
