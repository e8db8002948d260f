"""The duties of one broker: which are open, who claims them, and which copies are to be acknowledged (rules 4 and 6).

A duty is done when everybody below has the event; the copies that claimed it are acknowledged when all their duties
are. A done duty is forgotten with its flight: what comes again is taken again, and the ends drop what they have had. A
duty that nobody claims any more (its upstream's connection is over, or sends it another way) is forgotten as well: who
still wants it served sends it again.

Alike events that came together are a run (`runs`) until somebody needs one of them by itself; then the run is parted.

The invariant is the flight's: every open duty is claimed, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from veena.core.delivery.in_flight import LOG, Claim, Flight, Run
from veena.core.routing.runs import Runs
from veena.core.wire.control import Range
from veena.core.wire.event_id import EventKey

#: Called with an entry's offset in the log and a mask of units: these units are served.
Served = Callable[[int, int, int], None]
#: Called with the offset of the first entry of a run, the number of entries, a mask of units, and the time.
RunServed = Callable[[int, int, int, int], None]


class Duties:
    """Flights by event, in the order in which they were taken."""

    def __init__(self) -> None:
        self._flights: dict[EventKey, Flight] = {}
        self.runs = Runs()
        #: What the events of all flights hold in memory.
        self._bytes = 0
        #: Whether flights may stand behind younger ones, because a run was parted.
        self._is_unsorted = False
        #: The flights that a connection claims: when it is over, only these are looked at.
        self._claimed_by: dict[int, dict[EventKey, Flight]] = {}
        #: Copies to acknowledge with this read: connection -> frame numbers.
        self._owed: dict[int, tuple[list[int], list[Range]]] = {}
        #: Whom to tell of what is served: the log first, so that its cursor is right when others ask.
        self.observers: list[Served] = []
        #: The same for runs; and whom to tell that a run is parted.
        self.run_observers: list[RunServed] = []
        self.on_parted: list[Callable[[Run], None]] = []

    def __len__(self) -> int:
        return len(self._flights) + self.runs.events

    @property
    def bytes(self) -> int:
        return self._bytes + self.runs.bytes

    def find(self, key: EventKey) -> Flight | None:
        if self.runs:
            self._part_all(filter(None, (self.runs.find(key),)))
        return self._flights.get(key)

    def flights(self) -> list[Flight]:
        """All of them, each by itself."""
        self._part_all(self.runs.all())
        return list(self._flights.values())

    def mortal(self) -> list[Flight]:
        """Those whose time to live ends; runs have none."""
        return [flight for flight in self._flights.values() if flight.deadline_ns is not None]

    def open(self, mask: int) -> list[Flight]:
        """The flights that have one of these duties open, in the order in which they are sent again (rule 5)."""
        self._part_all(self.runs.open(mask))
        found = [flight for flight in self._flights.values() if flight.open & mask]
        return sorted(found, key=lambda flight: flight.order)

    def claim(self, flight: Flight, source: int, number: int, pending: int) -> int:
        """A copy claims these duties; those of them that are new here."""
        if flight.key not in self._flights:
            self._flights[flight.key] = flight
            self._bytes += len(flight.frame.tail)
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
            self._bytes -= len(flight.frame.tail)

    def claimed_by(self, source: int) -> list[Flight]:
        """The flights that a connection claims."""
        self._part_all(self.runs.of_source(source))
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
        self._part_all(self.runs.oldest(before_ns))
        if self._is_unsorted:
            self._is_unsorted = False
            self._flights = dict(sorted(self._flights.items(), key=lambda item: item[1].since_ns))
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

    # --- runs ---

    def is_known(self, run: Run) -> bool:
        """Whether any event of a run is under way already."""
        key, last = run.first_key, run.burst.last_sequence
        if self.runs.overlaps(key, last):
            return True
        of = key[:3]
        return bool(self._flights) and any((*of, each) in self._flights for each in range(key[3], last + 1))

    def claim_run(self, run: Run) -> None:
        """A burst claims the duties of each of its events; none of these is under way yet."""
        self.runs.add(run)

    def complete_run(self, run: Run, duties: int, now_ns: int) -> None:
        """These duties of all of its events are done, however they are known by now."""
        if run.flights is not None:
            for flight in run.flights:
                self.complete(flight, duties, now_ns)
            return
        new = duties & run.open
        if not new:
            return
        run.done |= new
        if not run.open:
            self.runs.remove(run)
        if run.source == LOG:
            for tell in self.run_observers:
                tell(run.number, run.count, new, now_ns)
        elif not run.open:
            self.acknowledge_run(run.source, run.number, run.count)

    def part(self, run: Run) -> None:
        """A flight for each event of a run: from now on they differ."""
        self.runs.remove(run)
        for flight in run.part():
            self._flights[flight.key] = flight
            self._bytes += len(flight.frame.tail)
            if run.source != LOG:
                self._claimed_by.setdefault(run.source, {})[flight.key] = flight
        self._is_unsorted = True
        for tell in self.on_parted:
            tell(run)

    def _part_all(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.part(run)

    # --- answers ---

    def acknowledge(self, source: int, number: int) -> None:
        if source != LOG:
            self._owed.setdefault(source, ([], []))[0].append(number)

    def acknowledge_run(self, source: int, first: int, count: int) -> None:
        self._owed.setdefault(source, ([], []))[1].append((first, first + count - 1))

    def take_owed(self) -> dict[int, tuple[list[int], list[Range]]]:
        """What is to be acknowledged, by connection: numbers, and runs of numbers."""
        owed, self._owed = self._owed, {}
        return owed

    def check(self) -> None:
        for key, flight in self._flights.items():
            assert flight.key == key
            flight.check()
        self.runs.check()
        assert self._bytes == sum(len(flight.frame.tail) for flight in self._flights.values())
        claimed = {(claim.source, key) for key, flight in self._flights.items() for claim in flight.claims}
        found = {(source, key) for source, flights in self._claimed_by.items() for key in flights}
        assert found == {(source, key) for source, key in claimed if source != LOG}, (
            "every claim is found by its source"
        )
