"""The way of runs over links: reliable events that are alike stay together, from the log of their broker to the ends.

    published here --> log (one write) --> plan --> take --> one `ReliableBurst` a hop --> `Done` with a range
    come over a link --> plan --> take --> clients here, next hops --> `Done` with a range when all duties are done

`plan` decides what `Router.take` would decide about each of the events, and changes nothing. Where they are not plain
(what `bursts.BurstWay` calls so), where one of them is under way already, where a unit is refused, behind, without a
hop or without room, or where a link takes no bursts, there is no plan: the events go one by one.

The invariant: every broker, client and log gets what it would get if the events had come one by one, in the same order.
An upstream has its answer for an event when all duties of that event are done, and its clients' places are on disk.

Rejected: a run whose events may have different duties. Each rule would have to be stated twice, and events are seldom
sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veena.address import Address
from veena.core.boundary.inputs_effects import DeliverBurst, Effect
from veena.core.delivery.delivery import Ends
from veena.core.delivery.in_flight import Flight, Run
from veena.core.delivery.match_cache import Receivers
from veena.core.interest.service import Profiles
from veena.core.links.link import Link
from veena.core.routing.burst_router import BurstWay
from veena.core.routing.router import Router
from veena.core.wire.burst import EventBurst
from veena.core.wire.control import MAX_BURST_BYTES, MAX_BURST_EVENTS, ReliableBurst
from veena.core.wire.event import PRIORITY_MASK, RELIABLE
from veena.core.wire.event_id import Stream, event_key
from veena.errors import RemoteProtocolError


@dataclass(slots=True)
class Plan:
    """What is to become of a run."""

    run: Run
    #: The first event, for the questions that are asked about one.
    flight: Flight
    stream: Stream
    origin: Address
    receivers: Receivers
    #: The units by the connection over which they are served.
    groups: dict[int, int]


class RunWay:
    """One a broker."""

    def __init__(
        self,
        host: Address,
        profiles: Profiles,
        bursts: BurstWay,
        ends: Ends,
        router: Router,
        links: Mapping[int, Link],
        effects: list[Effect],
    ) -> None:
        self._host = host
        self._profiles = profiles
        self._bursts = bursts
        self._ends = ends
        self._router = router
        self._links = links
        self._effects = effects

    def wanted(self, burst: EventBurst, stream: Stream, now_ns: int) -> int:
        """The units that want what a client published; 0 where it is not plain, or nobody elsewhere wants it."""
        decision = self._bursts.decided(burst, bytes(self._host), now_ns)
        if decision is None or not _is_run(burst) or not self._bursts.is_sound(decision):
            return 0
        if self._bursts.receivers(decision, burst, stream, self._host) is None:
            return 0
        return self._bursts.wanted(decision, now_ns)

    def arrived(self, link: Link, number: int, frame: ReliableBurst, now_ns: int) -> None:
        """A burst of reliable events came over a link; the first of them has this number."""
        assert link.connection is not None
        to_serve, served, burst = self._bursts.read(link, frame.to_serve, frame.served, frame.events, is_reliable=True)
        if burst.count != frame.count:
            raise RemoteProtocolError(f"a burst of {burst.count} reliable events that says it has {frame.count}")
        stream = self.stream(burst)
        plan = None
        if stream is not None:
            plan = self.plan(link.connection, number, burst, stream, to_serve, served, now_ns)
        if plan is not None:
            self._router.statistics.copies_in += burst.count
            self.take(plan, now_ns)
            return
        for at, each in enumerate(burst.frames()):
            self._router.arrived(link, number + at, each.copy(to_serve, served, each.ttl_ms), now_ns)

    def stream(self, burst: EventBurst) -> Stream | None:
        """The stream that the events are of; None where their publisher cannot be read."""
        return self._bursts.stream(burst)

    def plan(
        self, source: int, number: int, burst: EventBurst, stream: Stream, to_serve: int, served: int, now_ns: int
    ) -> Plan | None:
        """What becomes of reliable events from a connection or the log; None if they have to go one by one."""
        like, router = burst.like, self._router
        origin = like.origin_address
        if origin is None or not _is_run(burst) or not router.has_room(burst.count):
            return None
        decision = self._bursts.decided(burst, like.origin, now_ns)
        if decision is None or not router.can_enter(to_serve, now_ns):
            return None
        flight = Flight(event_key(burst.first), burst.first, now_ns)
        to_serve = router.entered(flight, to_serve, now_ns)
        beyond = to_serve & ~router.me
        if router.refusals.refusing(source) or router.is_behind(beyond):
            return None
        groups, stuck = router.by_hop(beyond)
        if stuck or not all(self._links[connection].takes_bursts for connection in groups):
            return None
        receivers: Receivers | None = ()
        if to_serve & router.me:
            receivers = self._bursts.receivers(decision, burst, stream, origin)
        run = Run(burst, source, number, to_serve, served, now_ns)
        if receivers is None or router.duties.is_known(run):
            return None
        return Plan(run, flight, stream, origin, receivers, groups)

    def take(self, plan: Plan, now_ns: int) -> None:
        """Take on the duties of a run, hand it over here and send it on."""
        run, router = plan.run, self._router
        if not run.taken:
            router.duties.acknowledge_run(run.source, run.number, run.count)
            return
        router.duties.claim_run(run)
        if plan.receivers:
            self._hand_over(plan, now_ns)
        elif run.taken & router.me:
            router.statistics.in_vain += run.count if run.taken == router.me else 0
            router.duties.complete_run(run, router.me, now_ns)
        for connection, units in plan.groups.items():
            self._send(connection, plan, units, now_ns)

    def _hand_over(self, plan: Plan, now_ns: int) -> None:
        run, receivers, burst = plan.run, plan.receivers, plan.run.burst
        if plan.origin != self._host:
            for session, subscriptions in receivers:
                self._profiles.observe(session, subscriptions, plan.origin)
        like = burst.like
        place = (like.timestamp, burst.last_sequence)
        left = self._ends.hand_over_plain(
            plan.stream, like, burst.first_sequence, place, burst.count, receivers, burst, now_ns, like.origin
        )
        self._ends.waiting_runs.append(run)
        if left:
            self._effects.append(DeliverBurst(burst, left))

    def _send(self, connection: int, plan: Plan, units: int, now_ns: int) -> None:
        run, router = plan.run, self._router
        crossing, served = router.crossing(connection, plan.flight, units, run.served, now_ns, run.count)
        if units & ~crossing:  # nobody beyond the gate wants it
            router.duties.complete_run(run, units & ~crossing, now_ns)
        if not crossing:
            return
        size = self._bursts.vector_size
        vectors = (crossing.to_bytes(size, "big"), served.to_bytes(size, "big"))
        number = self._links[connection].send(ReliableBurst(*vectors, run.count, bytes(run.burst.data)), now_ns)
        router.statistics.copies_out += run.count
        router.sent_runs.add(connection, number, run, crossing)


def _is_run(burst: EventBurst) -> bool:
    """Whether reliable events can be a run: several, without holes, with no mark of their own."""
    return (
        1 < burst.count <= MAX_BURST_EVENTS
        and burst.last_sequence - burst.first_sequence == burst.count - 1
        and not burst.like.flags & ~(RELIABLE | PRIORITY_MASK)
        and len(burst.data) <= MAX_BURST_BYTES
    )
