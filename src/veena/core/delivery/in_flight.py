"""An event on its way through one broker: which units it owes the event, to whom it owes an answer, what is done.

A *duty* is (event, destination unit). All duties of one event are bits of one vector, so they are taken, grouped by hop
and completed by masks. A *claim* is one copy that came in, with the duties that came with it or followed from it: it is
acknowledged when all of them are done, never before (design rule 4, 6). Several upstreams may claim the same duty. Many
alike events that came together are one `Run` as long as nothing differs among them.

The invariant: done <= taken; every duty that is taken and not done has at least one claim.
"""

from __future__ import annotations

from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.wire.burst import EventBurst
from veena.core.wire.event import NO_TTL, EventFrame
from veena.core.wire.event_id import EventKey, event_key
from veena.event import Event

#: The source of a claim that the origin's own log has; connection ids are hashes and never 0.
LOG = 0


class Claim:
    """A copy that waits for its acknowledgement: a connection and a frame number, or the log and an offset."""

    __slots__ = ("mask", "number", "source")

    def __init__(self, source: int, number: int, mask: int) -> None:
        self.source = source
        self.number = number
        self.mask = mask


class Flight:
    """One event at one broker."""

    __slots__ = ("_event", "adopted", "claims", "deadline_ns", "done", "frame", "key", "late", "since_ns", "taken")

    def __init__(self, key: EventKey, frame: EventFrame, now_ns: int) -> None:
        self.key = key
        self.frame = frame
        self.since_ns = now_ns
        self.taken = 0
        self.done = 0
        #: Duties that this broker's own log answers for, because their units are absent.
        self.adopted = 0
        #: Duties that came out of a backlog: what is sent for them says so, whatever the first copy was.
        self.late = 0
        self.claims: list[Claim] = []
        self.deadline_ns = None if frame.ttl_ms == NO_TTL else now_ns + frame.ttl_ms * MILLISECOND_NS
        self._event: Event | None = None

    @property
    def open(self) -> int:
        return self.taken & ~self.done

    def ttl_ms(self, now_ns: int) -> int:
        """What is left of its time to live; 0 when it is over."""
        if self.deadline_ns is None:
            return NO_TTL
        return max(0, (self.deadline_ns - now_ns) // MILLISECOND_NS)

    @property
    def order(self) -> tuple[int, EventKey]:
        """Within a lane and publisher by id: the order in which events are sent again (rule 5)."""
        return (self.frame.lane_number, self.key)

    def event(self) -> Event:
        """What engines see, read once; raises InvalidEvent."""
        if self._event is None:
            self._event = self.frame.event()
        return self._event

    def claimed(self) -> int:
        mask = 0
        for claim in self.claims:
            mask |= claim.mask
        return mask

    def logged(self) -> int:
        """The duties that this broker's own log claims."""
        mask = 0
        for claim in self.claims:
            if claim.source == LOG:
                mask |= claim.mask
        return mask

    def check(self) -> None:
        assert not self.done & ~self.taken, "what is done was taken"
        assert self.claims, "a flight without a claim is forgotten"
        assert self.claimed() == self.open, "every open duty is claimed, and nothing else is"


class Run:
    """Alike reliable events of one stream that came together: one flight for all of them.

    All of them have the same duties, and one copy claims them: a burst that came over a link, or entries of the log
    that follow each other. As soon as anything differs among them the run is *parted* into a flight for each event,
    which says the same. So a run has no second claim, no time to live, no backlog and no record.

    The invariant: a run stands for `count` flights with these duties, claims and copies sent.
    """

    __slots__ = ("burst", "count", "done", "flights", "number", "sent", "served", "since_ns", "source", "taken")

    def __init__(self, burst: EventBurst, source: int, number: int, taken: int, served: int, now_ns: int) -> None:
        self.burst = burst
        self.count = burst.count
        #: The connection, or the log; and the number of the first frame, or the offset of the first entry.
        self.source = source
        self.number = number
        self.taken = taken
        self.done = 0
        #: The trace that the copies came with.
        self.served = served
        self.since_ns = now_ns
        #: What was sent and is not acknowledged: connection -> number of the first frame, and duties.
        self.sent: dict[int, tuple[int, int]] = {}
        #: The flights that it was parted into.
        self.flights: list[Flight] | None = None

    @property
    def open(self) -> int:
        return self.taken & ~self.done

    @property
    def first_key(self) -> EventKey:
        return event_key(self.burst.first)

    @property
    def size(self) -> int:
        return len(self.burst.data)

    def part(self) -> list[Flight]:
        """A flight for each event, with the claim that it has."""
        assert self.flights is None, "a run is parted once"
        self.flights = []
        for at, each in enumerate(self.burst.frames()):
            frame = each.copy(self.taken, self.served, NO_TTL)
            flight = Flight(event_key(frame), frame, self.since_ns)
            flight.taken, flight.done = self.taken, self.done
            flight.claims.append(Claim(self.source, self.number + at, self.open))
            self.flights.append(flight)
        return self.flights
