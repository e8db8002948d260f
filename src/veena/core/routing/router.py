"""An event's way through one broker: duties, hops, acknowledgements, and sending again (design §6, ERP, DUP, RTE).

    copy in --> take --> own units: expand (interest map), deliver here (`delivery.delivery`)
                    --> other units: one copy a hop, by `topology.next_hops` alone
    Done in --> complete --> the claims that have nothing open left are acknowledged, one frame a read
    map or connection changed --> reroute: what is open goes over the new hop, in order, before anything newer

The rules, and what each is for: a duty that is already taken gets a second claim instead of an acknowledgement (else
two brokers can each rely on the other and nobody has the event); only duties are dropped, never events (else a second
copy that serves other units is lost); a hop depends on the announced map alone, never on the event (else a publisher's
events overtake each other and the end drops the slower one as old); the same neighbour over a new connection is a new
hop (else what was in flight is lost); a done duty is forgotten, and the end drops what its clients have had.

A unit that cannot be reached or entered, or for which there is no room, is refused (`hold_back`): the upstream holds
it. A newcomer cannot enter a unit of its own before it has met somebody in it (`leases`): it would find nobody there.
Best-effort events have no duties: they are passed on or dropped; the trace stops one that comes back.

The invariant: for each connection and destination, when an event is sent every earlier open one of its publisher and
lane was sent before on that connection, or everybody in the destination has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from veena.address import Address, Unit, identifiers
from veena.core.delivery.delivery import Ends, Outcome
from veena.core.delivery.in_flight import LOG, Flight, Run
from veena.core.delivery.match_cache import Decisions
from veena.core.journal import Records
from veena.core.links.link import Link
from veena.core.routing.duties import Duties
from veena.core.routing.hold_back import Refusals
from veena.core.routing.resending import Resending
from veena.core.routing.sent_runs import RunsByLink
from veena.core.topology.network_map import NetworkMap
from veena.core.topology.next_hops import Hops
from veena.core.wire.control import Done, Refused, done_with_runs
from veena.core.wire.event import ADOPTED, BACKLOG, RELIABLE, EventFrame
from veena.core.wire.event_id import EventKey, event_key
from veena.core.wire.trace_facts import What
from veena.errors import InvalidEvent, RemoteProtocolError

#: Events that a relay holds at once; beyond that it refuses. With 1 KiB each some 64 MiB.
MAX_FLIGHTS = 1 << 16
#: And their bytes: an event may have a megabyte.
MAX_FLIGHT_BYTES = 256 << 20
#: Copies of one event that wait for an answer: far more than hops change while it is under way.
MAX_CLAIMS = 4096
#: No hop: the duty waits.
NOWHERE = 0
#: Whether the unit beyond a connection wants an event: the near gatekeeper's second look.
LooksAgain = Callable[[int, Flight, int], bool]


@dataclass(slots=True)
class RouterStatistics:
    """What a broker counts of the copies that go through it, since its start."""

    flights: int = 0
    copies_in: int = 0
    copies_out: int = 0
    #: Copies that went out again because a hop changed.
    sent_again: int = 0
    expanded: int = 0
    #: Copies that came in for an own unit and found nobody who wants them.
    in_vain: int = 0
    #: Best-effort copies without a way, or that came back.
    dropped: int = 0
    expired: int = 0
    #: Duties that came while they were open already.
    repeated: int = 0
    refused: int = 0
    taken_back: int = 0
    stopped_at_gate: int = 0


class Router:
    """The duties of one broker."""

    def __init__(
        self,
        network: NetworkMap,
        hops: Hops,
        links: Mapping[int, Link],
        decisions: Decisions,
        ends: Ends,
        fanout: int,
        records: Records,
    ) -> None:
        self.records = records
        self._map = network
        self._hops = hops
        self._links = links
        self._decisions = decisions
        self._ends = ends
        self._fanout = fanout
        host = network.host
        self.me = 1 << host[-1]
        self._own = sum(1 << (level * fanout + network.own(level)[-1]) for level in range(network.levels))
        self.duties = Duties()
        #: The hop in use for each unit that was asked for, by its bit; the connection's id.
        self._hop: dict[int, int] = {}
        self._units: dict[int, Unit] = {}
        #: What was sent and is not acknowledged: connection -> frame number -> flight and duties.
        self._sent: dict[int, dict[int, tuple[Flight, int]]] = {}
        #: The same of runs.
        self.sent_runs = RunsByLink(self.duties, self._sent)
        self.refusals = Refusals(network, links, fanout)
        self.resending = Resending()
        self._version = network.version
        #: A connection came or went, or a refusal: hops have to be looked at although the map may be the same.
        self.is_stale = False
        self.looks_again: LooksAgain = lambda connection, flight, now_ns: True
        #: Whether this broker can know who is in its own unit of a level, and in those inside: otherwise it must not
        #: enter it for others.
        self.may_enter: Callable[[int, int], bool] = lambda level, now_ns: True
        self.statistics = RouterStatistics()

    # --- copies ---

    def arrived(self, link: Link, number: int, frame: EventFrame, now_ns: int) -> None:
        """A copy came over a link."""
        self.check_named(link, frame.to_serve)
        assert link.connection is not None
        self.statistics.copies_in += 1
        if frame.flags & RELIABLE:
            self.take(link.connection, number, frame, now_ns)
        else:
            self.pass_on(frame, now_ns, link.connection)

    def check_named(self, link: Link, to_serve: int) -> None:
        """Raise RemoteProtocolError where a peer names units that it can know nothing of."""
        if to_serve & ((1 << (link.level * self._fanout)) - 1):
            raise RemoteProtocolError(f"units below level {link.level} named on a link of that level")

    def take(self, source: int, number: int, frame: EventFrame, now_ns: int) -> None:
        """Take on the duties of a copy; those already taken get one more claim, those already done are answered."""
        if self.is_stale or self._map.version != self._version:
            self.reroute(now_ns)  # what is open goes first
        to_serve = frame.to_serve & ~self.refusals.refusing(source)
        key = event_key(frame)
        flight = self.duties.find(key)
        if flight is None:
            if source != LOG and (len(self.duties) >= MAX_FLIGHTS or self.duties.bytes >= MAX_FLIGHT_BYTES):
                # What was taken before stays: only from this copy on is there no room.
                self.statistics.refused += 1
                self.refusals.refuse(source, to_serve, number, self.unit, now_ns)
                to_serve = 0
            flight = Flight(key, frame, now_ns)
        elif len(flight.claims) >= MAX_CLAIMS and source != LOG:
            raise RemoteProtocolError(f"event {frame.told_id} comes again and again")
        named = to_serve & self._own
        if named and not self._may_enter(named, now_ns):
            self._refuse(source, named, now_ns)
            to_serve, named = to_serve & ~named, 0
        if named:
            to_serve = (to_serve & ~named) | self._expand(frame, named, now_ns)
        if self.records.hops:
            self._note_taken(source, frame, to_serve, now_ns)
        pending = to_serve & ~flight.done
        # This log answers for what it adopted: nobody need wait for the absent. But a copy with the mark, or one that
        # names the duty itself, may come from this very broker, over a neighbour whose hop has just changed: each would
        # rely on the other.
        if flight.adopted and not frame.flags & BACKLOG:
            pending &= ~(flight.adopted & flight.logged() & self._found_below(source))
        if not pending:
            self.duties.acknowledge(source, number)
            return
        if frame.flags & BACKLOG:
            flight.late |= pending
            flight.frame.flags |= frame.flags & ADOPTED
        fresh = self.duties.claim(flight, source, number, pending)
        self.statistics.repeated += pending != fresh
        if fresh & self.me:
            outcome = self._ends.deliver(flight, now_ns)
            self.statistics.in_vain += outcome is Outcome.NOBODY and pending == self.me
            self.statistics.expired += outcome is Outcome.EXPIRED and pending == self.me
            if outcome is not Outcome.WAITS:
                self.duties.complete(flight, self.me, now_ns)
        beyond = fresh & ~self.me
        stuck = self._forward(flight, self.resending.admit(flight, beyond) if self.resending.behind else beyond, now_ns)
        if stuck:
            self._stuck(flight, stuck, now_ns)

    def has_room(self, count: int) -> bool:
        """Whether so many more events may be under way."""
        return len(self.duties) + count <= MAX_FLIGHTS and self.duties.bytes < MAX_FLIGHT_BYTES

    def is_behind(self, mask: int) -> bool:
        """Whether something has to be sent first to one of these units."""
        return bool(self.resending.behind & mask)

    def _may_enter(self, own: int, now_ns: int) -> bool:
        """Whether this broker can find the duties inside one of its own units."""
        return self.may_enter((own.bit_length() - 1) // self._fanout, now_ns)

    def _expand(self, frame: EventFrame, named: int, now_ns: int) -> int:
        """The copy has entered an own unit: the duties inside it (rule 1)."""
        level = (named.bit_length() - 1) // self._fanout
        if level == 0:
            return self.me
        self.statistics.expanded += 1
        try:
            wanted = self._decisions.inside(frame, now_ns)
        except InvalidEvent:
            return 0  # its publisher's fault, and nobody can match it
        return self.me | wanted & ((1 << (level * self._fanout)) - 1)

    def pass_on(self, frame: EventFrame, now_ns: int, source: int = LOG) -> None:
        """A best-effort event: deliver, send on, forget."""
        flight = Flight(event_key(frame), frame, now_ns)
        to_serve = self.entered(flight, frame.to_serve, now_ns)
        if self.records.hops:
            self._note_taken(source, frame, to_serve, now_ns)
        if to_serve & self.me:
            self._ends.deliver(flight, now_ns)
        stuck = self._forward(flight, to_serve & ~self.me, now_ns)
        self.statistics.dropped += bool(stuck)
        if stuck and self.records.is_on:
            self.records.note(
                frame, What.DROPPED, now_ns, units=self.units(stuck), text="best effort: there was no way to the unit"
            )

    def entered(self, flight: Flight, to_serve: int, now_ns: int) -> int:
        """What a copy is to serve from here on: of the host's own units, what is in them."""
        if self.is_stale or self._map.version != self._version:
            self.reroute(now_ns)
        named = to_serve & self._own
        return (to_serve & ~named) | self._expand(flight.frame, named, now_ns) if named else to_serve

    # --- hops ---

    def _forward(self, flight: Flight, mask: int, now_ns: int) -> int:
        """One copy a hop (rule 3); the duties that have no hop."""
        groups, stuck = self.by_hop(mask)
        for connection, duties in groups.items():
            self._send(connection, flight, duties, now_ns)
        return stuck

    def by_hop(self, mask: int) -> tuple[dict[int, int], int]:
        """The units of a vector by the connection over which they are served; and those without one."""
        groups: dict[int, int] = {}
        stuck = 0
        while mask:
            bit = mask & -mask
            mask ^= bit
            connection = self._hop.get(bit)
            if connection is None:
                connection = self._hop[bit] = self._find(bit)
            if connection == NOWHERE:
                stuck |= bit
            else:
                groups[connection] = groups.get(connection, 0) | bit
        return groups, stuck

    def _find(self, bit: int) -> int:
        """The connection over which a unit is served now."""
        unit = self.unit(bit)
        hop = self._hops.hop(unit)
        if hop is not None and self._links[hop.connection].is_clogged:
            free = (other for other in self._hops.alternates(unit) if not self._links[other.connection].is_clogged)
            hop = next(free, hop)
        if hop is None or self.refusals.is_held(hop.connection, bit):
            return NOWHERE
        return hop.connection

    def unit(self, bit: int) -> Unit:
        """The unit that a bit of this broker's vectors stands for."""
        unit = self._units.get(bit)
        if unit is None:
            level, identifier = divmod(bit.bit_length() - 1, self._fanout)
            unit = self._units[bit] = (*self._map.own(level)[:-1], identifier)
        return unit

    def units(self, mask: int) -> tuple[Unit, ...]:
        return tuple(self.unit(1 << at) for at in identifiers(mask))

    def _note_taken(self, source: int, frame: EventFrame, duties: int, now_ns: int) -> None:
        link = self._links.get(source)
        peer = link.neighbour or () if link is not None else ()
        self.records.note(frame, What.TAKEN, now_ns, units=self.units(duties), peer=peer, connection=source)

    def _send(self, connection: int, flight: Flight, duties: int, now_ns: int) -> None:
        link, frame = self._links[connection], flight.frame
        ttl_ms = flight.ttl_ms(now_ns)
        if ttl_ms == 0:
            self.expire(flight, now_ns, duties)
            return
        duties, served = self.crossing(connection, flight, duties, frame.served, now_ns)
        if not duties:
            return
        copy = frame.copy(duties, served, ttl_ms)
        if duties & (flight.adopted | flight.late):
            copy.flags |= BACKLOG
        number = link.send(copy, now_ns)
        self.statistics.copies_out += 1
        if self.records.hops:
            assert link.neighbour is not None
            units = self.units(duties)
            self.records.note(frame, What.SENT, now_ns, units=units, peer=link.neighbour, connection=connection)
        if frame.flags & RELIABLE:
            self._sent.setdefault(connection, {})[number] = (flight, duties)

    def can_enter(self, to_serve: int, now_ns: int) -> bool:
        """Whether this broker can find all that these duties name of its own units."""
        named = to_serve & self._own
        return not named or self._may_enter(named, now_ns)

    def crossing(
        self, connection: int, flight: Flight, duties: int, served: int, now_ns: int, count: int = 1
    ) -> tuple[int, int]:
        """What copies over this connection are for, and their trace: 0 and 0 where they must not go."""
        link, frame = self._links[connection], flight.frame
        shift = link.level * self._fanout
        assert link.neighbour is not None
        far = 1 << (shift + link.neighbour[-1 - link.level])
        if link.level > 1 and duties & far and not self.looks_again(connection, flight, now_ns):
            self.statistics.stopped_at_gate += count
            if self.records.is_on:
                self.records.note(frame, What.STOPPED, now_ns, units=self.units(far), peer=link.neighbour)
            self.duties.complete(flight, far, now_ns)
            duties &= ~far
            if not duties:
                return 0, 0
        if not frame.flags & RELIABLE and served >> shift << shift & far:
            self.statistics.dropped += count  # it has been there: maps differ for a moment
            if self.records.is_on:
                text = "best effort: it came back on its way"
                self.records.note(frame, What.DROPPED, now_ns, units=self.units(duties), text=text)
            return 0, 0
        return duties, served >> shift << shift | far | 1 << (shift + self._map.own(link.level)[-1])

    def left_behind_gates(
        self, wanted: Sequence[int], ask: Callable[[int, list[int]], list[bool] | None], now_ns: int
    ) -> list[int]:
        """Of best-effort events published here, and the units that may want them: the same units, or 0 for an event of
        which no copy leaves, since every gate on its way stops it. `ask` says of a connection, for events by number,
        whether the unit beyond it wants them."""
        if self.is_stale or self._map.version != self._version:
            self.reroute(now_ns)
        left = list(wanted)
        for mask in dict.fromkeys(wanted):
            groups, stuck = self.by_hop(mask)
            if not mask or stuck:
                continue
            events = [at for at, each in enumerate(wanted) if each == mask]
            for connection, duties in groups.items():
                link = self._links[connection]
                assert link.neighbour is not None
                if link.level < 2 or duties != 1 << (link.level * self._fanout + link.neighbour[-1 - link.level]):
                    events = []  # somebody else is served over this one
                let_through = ask(connection, events) if events else None
                events = (
                    [] if let_through is None else [at for at, one in zip(events, let_through, strict=True) if not one]
                )
            for at in events:
                left[at] = 0
            self.statistics.stopped_at_gate += len(groups) * len(events)
        return left

    def reroute(self, now_ns: int) -> None:
        """Where a hop changed, begin to send again over the new one, in order, before anything newer (rule 5)."""
        self._version, self.is_stale = self._map.version, False
        changed = moved = 0
        for bit, old in self._hop.items():
            new = self._find(bit)
            if new != old:
                self._hop[bit] = new
                changed |= bit
                if not self.refusals.is_held(old, bit):  # what a refusing neighbour took before, it still serves
                    moved |= bit
        if changed:
            self._take_back(moved)
            self.resending.begin(changed & ~self.me)
            self._send_again(now_ns)
        self._reopen(now_ns)

    def _send_again(self, now_ns: int) -> None:
        """One slice of what goes over new hops."""
        for flight, duties in self.resending.take(self.duties, now_ns):
            self.statistics.sent_again += 1
            stuck = self._forward(flight, duties, now_ns)
            if stuck:
                self._stuck(flight, stuck, now_ns)
        self.resending.finish()

    def next_wakeup(self) -> int | None:
        """When there is more to send over new hops."""
        return self.resending.next_wakeup()

    def _take_back(self, moved: int) -> None:
        """Cancel what still waits to be sent the former way (DUP-06).

        All of it for these units, so that no later event is left there without the earlier ones. What is on its way
        stays where it is: a relay that has it holds it in order, and if it gets through, so much the better.
        """
        for connection in self._sent:
            self._take_back_from(connection, moved)

    def _take_back_from(self, connection: int, moved: int) -> None:
        link, sent = self._links.get(connection), self._sent.get(connection, {})
        for ticket, stripped in link.take_back(moved) if link is not None else ():
            self.statistics.taken_back += 1
            flight, duties = sent.pop(ticket)
            if duties & ~stripped:
                sent[ticket] = (flight, duties & ~stripped)

    def numbered(self, connection: int, ticket: int, number: int, now_ns: int) -> None:
        """A copy that had to wait has gone under this number, or its life was over before (0)."""
        sent = self._sent.get(connection, {})
        found = sent.pop(ticket, None)
        if found is None:
            return
        if number:
            sent[number] = found
        else:
            self.expire(found[0], now_ns)

    # --- answers ---

    def on_done(self, link: Link, frame: Done, now_ns: int) -> None:
        """The neighbour says that everything below it has these copies."""
        assert link.connection is not None
        self.sent_runs.done(link.connection, frame, now_ns)
        sent = self._sent.get(link.connection, {})
        for first, last in frame.ranges if sent else ():
            numbers = range(first, last + 1) if last - first < len(sent) else [n for n in sent if first <= n <= last]
            for number in numbers:
                if number in sent and (not frame.exceptions or frame.contains(number)):
                    flight, duties = sent.pop(number)
                    self.duties.complete(flight, duties, now_ns)

    def run_delivered(self, run: Run, now_ns: int) -> None:
        """The same as `delivered` for a run."""
        self.duties.complete_run(run, self.me, now_ns)

    def delivered(self, flights: list[Flight], now_ns: int) -> None:
        """The clients here have these, and the disk knows it."""
        for flight in flights:
            self.duties.complete(flight, self.me, now_ns)

    def expire(self, flight: Flight, now_ns: int, duties: int = 0) -> None:
        """Its time to live is over: that completes every duty."""
        if self.records.is_on:
            self.records.note(flight.frame, What.EXPIRED, now_ns, units=self.units(flight.open | duties))
        self.statistics.expired += bool(flight.open) or not flight.taken  # best effort takes nothing
        self.duties.complete(flight, flight.open, now_ns)

    def abandon(self, key: EventKey, duties: int, now_ns: int) -> None:
        """Give up duties of an event: its retention is over."""
        flight = self.duties.find(key)
        if flight is not None:
            self.duties.complete(flight, duties, now_ns)

    def overdue(self, before_ns: int) -> list[tuple[Flight, int]]:
        """Duties found here (not those that came as they are) which have been open since before then."""
        return self.duties.overdue(before_ns, lambda claim: claim.mask & self._found_below(claim.source))

    def relieve(self, key: EventKey, duties: int) -> None:
        """The own log answers for these duties now: who had them found here need not wait for them.

        Who named them itself does wait: while maps differ a duty may come back to where it was found, and an answer out
        of this log would then go round and end the log's own claim.
        """
        flight = self.duties.find(key)
        if flight is not None:
            self.duties.waive((flight,), lambda claim: duties & self._found_below(claim.source))

    def _found_below(self, source: int) -> int:
        """The units that a copy from there does not name: they are found where it enters the unit around them."""
        link = self._links.get(source)
        return 0 if link is None else ((1 << (link.level * self._fanout)) - 1) & ~self.me

    def flush(self, now_ns: int) -> None:
        """Look at the hops if something changed, and send the acknowledgements of this read: one frame a link."""
        if self.is_stale or self._map.version != self._version:
            self.reroute(now_ns)
        elif self.resending.behind:
            self._send_again(now_ns)
        for connection, owed in self.duties.take_owed().items():
            link = self._links.get(connection)
            for frame in done_with_runs(*owed) if link is not None else ():
                assert link is not None
                link.send(frame, now_ns)
        if self.refusals.is_refusing:
            self._reopen(now_ns)
        self.statistics.flights = len(self.duties)

    def sweep(self, now_ns: int) -> None:
        """End what has outlived its time while it waited."""
        for flight in self.duties.mortal():
            if flight.deadline_ns is not None and flight.deadline_ns <= now_ns:
                self.expire(flight, now_ns)

    def closed(self, connection: int, now_ns: int) -> None:
        """A connection is over: what was sent over it is open again, what came over it is claimed no more."""
        self.sent_runs.part(connection, -1)
        self._sent.pop(connection, None)
        self.refusals.closed(connection)
        self.is_stale = True
        self.duties.void(connection)

    # --- refusals ---

    def _stuck(self, flight: Flight, stuck: int, now_ns: int) -> None:
        """Duties without a hop: refuse those that came as they are; those found here, and the log's, wait."""
        for claim in list(flight.claims):
            direct = claim.mask & stuck & ~self._found_below(claim.source)
            if direct and claim.source in self._links:
                self._refuse(claim.source, direct, now_ns)

    def _refuse(self, source: int, duties: int, now_ns: int) -> None:
        """Tell an upstream to hold these units, and forget what it sent for them."""
        self.statistics.refused += 1
        self.refusals.refuse(source, duties, 0, self.unit, now_ns)
        # A copy that asked for nothing else is answered: the peer has read of the refusal before that.
        self.duties.waive(self.duties.claimed_by(source), lambda claim: duties if claim.source == source else 0)

    def on_refused(self, link: Link, frame: Refused, now_ns: int) -> None:
        """The neighbour takes no duties for these units, from a copy on: they wait until it opens."""
        assert link.connection is not None
        mask = self.refusals.hold(link, frame.units)
        self._take_back_from(link.connection, mask)  # what waits must not go behind `Held`
        self.sent_runs.part(link.connection, mask)
        sent = self._sent.get(link.connection, {})
        for number, (flight, duties) in list(sent.items()):
            if number >= frame.since and duties & mask:
                sent[number] = (flight, duties & ~mask)
                if not duties & ~mask:
                    del sent[number]
        self.is_stale = True
        self.reroute(now_ns)
        self.refusals.held(link, frame.units, now_ns)

    def on_open(self, link: Link, units: tuple[Unit, ...], now_ns: int) -> None:
        self.refusals.release(link, units)
        self.is_stale = True
        self.reroute(now_ns)

    def on_held(self, link: Link, units: tuple[Unit, ...], now_ns: int) -> None:
        self.refusals.confirmed(link, units)
        self._reopen(now_ns)

    def _reopen(self, now_ns: int) -> None:
        if self.refusals.is_refusing:
            self.refusals.reopen(lambda bit: self.is_below(2) and self._has_way(bit, now_ns), self.unit, now_ns)

    def is_below(self, part: int) -> bool:
        """Whether less is under way than such a part of what may be."""
        return len(self.duties) < MAX_FLIGHTS // part and self.duties.bytes < MAX_FLIGHT_BYTES // part

    def _has_way(self, bit: int, now_ns: int) -> bool:
        return self._may_enter(bit, now_ns) if bit & self._own else self._find(bit) != NOWHERE

    # --- queries ---

    def bit(self, unit: Unit) -> int:
        """The bit of a unit around this broker, or of the broker itself."""
        return 1 << (self._map.level(unit) * self._fanout + unit[-1])

    def is_connected(self, connection: int) -> bool:
        return connection in self._links

    def open_units(self, key: EventKey) -> list[tuple[Unit, Address | None, int, bool]]:
        """What of an event is still to be done: unit, neighbour on the way, since when, whether that one refuses."""
        flight = self.duties.find(key)
        found: list[tuple[Unit, Address | None, int, bool]] = []
        for at in identifiers(flight.open) if flight is not None else ():
            assert flight is not None
            unit = self.unit(1 << at)
            hop = None if 1 << at == self.me else self._hops.hop(unit)
            is_held = hop is not None and self.refusals.is_held(hop.connection, 1 << at)
            found.append((unit, None if hop is None else hop.neighbour, flight.since_ns, is_held))
        return found

    def has_hop(self, bit: int) -> bool:
        return bit == self.me or self._find(bit) != NOWHERE

    def check(self) -> None:
        self.duties.check()
        self.resending.check()
        self.sent_runs.check(self._links)
        for connection, sent in self._sent.items():
            assert connection in self._links or not sent
            for _, duties in sent.values():
                assert duties, "an empty copy is no copy"
