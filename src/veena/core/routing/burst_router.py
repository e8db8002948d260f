"""The way of bursts over links: best-effort events that are alike stay together from broker to broker.

A publisher in a hurry fills a read with events that are alike (`wire.burst`). Alone, each of them would be taken
apart, decided about, copied, numbered and written at every hop. As a burst they are one frame (`Burst`): what all of
them are to serve and where they have been stands once before the bytes that their publisher sent, which nobody touches
on the way.

What is decided is what `Router.pass_on` and `Ends.deliver` decide about each of them, and where a burst is not plain
(a time to live, addressees, a second publication, records, somebody who asks for times or ids, or who has had some of
it) these do so one by one. Over a link on which events wait for room they go one by one too, since that is how lanes
share it and what is dropped.

The invariant: every broker and client gets what it would get if the events had come one by one, in the same order.

Rejected: event frames with numbers of their own on every link, stamped in place (a write for each event and hop, and
the reader finds no two headers alike). Reliable events have duties and answers beside that: `run_router`.
"""

from __future__ import annotations

from collections.abc import Mapping

from veena.address import Address
from veena.core.boundary.inputs_effects import DeliverBurst, Effect
from veena.core.boundary.settings import Settings
from veena.core.delivery.delivery import Ends
from veena.core.delivery.in_flight import Flight
from veena.core.delivery.match_cache import Decision, Decisions, Receivers
from veena.core.interest.service import Profiles
from veena.core.links.link import Link
from veena.core.routing.router import Router
from veena.core.wire.burst import BurstReader, EventBurst
from veena.core.wire.control import MAX_BURST_BYTES, Burst
from veena.core.wire.event import COPY, NO_TTL, RELIABLE, EventCodec
from veena.core.wire.event_id import Stream, event_key
from veena.core.wire.header import EVENT, HEADER, HEADER_SIZE, VERSION, VERSION_LOW
from veena.errors import InvalidEvent, RemoteProtocolError


class BurstWay:
    """One a broker."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        profiles: Profiles,
        decisions: Decisions,
        ends: Ends,
        router: Router,
        links: Mapping[int, Link],
        effects: list[Effect],
    ) -> None:
        self._host = host
        self._origin = bytes(host)
        self._codec = EventCodec(settings.levels, settings.fanout, settings.max_frame)
        self._profiles = profiles
        self._records = profiles.records
        self._decisions = decisions
        self._ends = ends
        self._router = router
        self._links = links
        self._effects = effects
        #: By connection: what came over it looked like.
        self._readers: dict[int, BurstReader] = {}

    # --- published here ---

    def publish(self, burst: EventBurst, stream: Stream, now_ns: int) -> bool:
        """Hand over and send on what a client published; False, and nothing has changed, if it is not plain."""
        decision = self.decided(burst, self._origin, now_ns)
        if decision is None or not self.is_sound(decision):
            return False
        receivers = self.receivers(decision, burst, stream, self._host)
        if receivers is None:
            return False
        wanted = self.wanted(decision, now_ns)
        burst = burst.stamped(self._origin)
        flight = Flight(event_key(burst.first), burst.first, now_ns)
        self._pass_on(burst, flight, stream, receivers, self._router.entered(flight, wanted, now_ns), self._router.me)
        return True

    # --- come over a link ---

    def arrived(self, link: Link, frame: Burst, now_ns: int) -> None:
        """A burst came over a link."""
        to_serve, served, burst = self.read(link, frame.to_serve, frame.served, frame.events)
        if self._take(burst, to_serve, served, now_ns):
            self._router.statistics.copies_in += burst.count
            return
        for each in burst.frames():
            self._router.arrived(link, 0, each.copy(to_serve, served, each.ttl_ms), now_ns)

    def closed(self, connection: int) -> None:
        self._readers.pop(connection, None)

    def read(
        self, link: Link, to_serve: bytes, served: bytes, events: bytes, *, is_reliable: bool = False
    ) -> tuple[int, int, EventBurst]:
        """Vectors and events of a burst that came over a link; raise RemoteProtocolError unless they are one."""
        assert link.connection is not None
        size = self.vector_size
        if len(to_serve) != size or len(served) != size:
            raise RemoteProtocolError(f"a burst with vectors of other than {size} bytes")
        named = int.from_bytes(to_serve, "big")
        self._router.check_named(link, named)
        return named, int.from_bytes(served, "big"), self._read(link.connection, events, is_reliable)

    def _read(self, connection: int, events: bytes, is_reliable: bool) -> EventBurst:
        if len(events) < HEADER_SIZE:
            raise RemoteProtocolError(f"a burst of {len(events)} bytes: one event has more")
        length, version, kind, flags, number = HEADER.unpack_from(events)
        if kind != EVENT or number or not VERSION_LOW <= version <= VERSION or length > len(events):
            raise RemoteProtocolError(
                f"a burst that begins with a frame of kind {kind}, version {version}, number {number}, {length} bytes"
            )
        if flags & COPY:
            raise RemoteProtocolError("a burst of second copies: each of them goes alone")
        if bool(flags & RELIABLE) is not is_reliable:
            found, name = ("best-effort", "ReliableBurst") if is_reliable else ("reliable", "Burst")
            raise RemoteProtocolError(f"{found} events in a {name}: there is a frame for each of the two kinds")
        reader = self._readers.get(connection)
        if reader is None:
            reader = self._readers[connection] = BurstReader(self._codec)
        burst = reader.read(events, 0, len(events), length, flags)
        if len(burst.data) != len(events):
            raise RemoteProtocolError("a burst of events that are not alike, or not in order")
        return burst

    def _take(self, burst: EventBurst, to_serve: int, served: int, now_ns: int) -> bool:
        """Hand over and send on what came; False, and nothing has changed, if it is not plain."""
        like = burst.like
        origin = like.origin_address
        decision = None if origin is None else self.decided(burst, like.origin, now_ns)
        if origin is None or decision is None:
            return False
        stream = self.stream(burst)
        if stream is None:
            return False
        flight = Flight(event_key(burst.first), burst.first, now_ns)
        to_serve = self._router.entered(flight, to_serve, now_ns)
        receivers: Receivers | None = ()
        if to_serve & self._router.me:
            receivers = self.receivers(decision, burst, stream, origin)
        if receivers is None:
            return False
        for session, subscriptions in receivers:
            self._profiles.observe(session, subscriptions, origin)
        self._pass_on(burst, flight, stream, receivers, to_serve & ~self._router.me, served)
        return True

    # --- both ---

    @property
    def vector_size(self) -> int:
        return self._codec.vector_size

    def stream(self, burst: EventBurst) -> Stream | None:
        """The stream that the events are of; None where their publisher cannot be read."""
        like = burst.like
        try:
            return (like.publisher, like.incarnation, like.lane_number)
        except InvalidEvent:
            return None

    def is_sound(self, decision: Decision) -> bool:
        """Whether nothing is wrong with what was published."""
        return not self._decisions.fault(decision)

    def wanted(self, decision: Decision, now_ns: int) -> int:
        """The units that want what was published here."""
        return self._decisions.wanted(decision, self._host, now_ns)

    def decided(self, burst: EventBurst, origin: bytes, now_ns: int) -> Decision | None:
        """What is decided about all of them; None where each has to be looked at."""
        if burst.like.ttl_ms != NO_TTL or self._records.is_on:
            return None
        if self._decisions.is_untimely or self._profiles.beyond.untimely:
            return None
        try:
            decision = self._decisions.of(burst.like, origin, now_ns)
        except InvalidEvent:
            return None
        return None if decision.to or decision.has_original else decision

    def receivers(self, decision: Decision, burst: EventBurst, stream: Stream, origin: Address) -> Receivers | None:
        """The clients here that get all of them; None where some may not."""
        receivers = self._decisions.sessions(decision, origin)
        if receivers and (
            decision.doubts or not self._ends.is_plain(stream, burst.like, burst.first_sequence, receivers)
        ):
            return None
        return receivers

    def _pass_on(
        self, burst: EventBurst, flight: Flight, stream: Stream, receivers: Receivers, to_serve: int, served: int
    ) -> None:
        like, now_ns = burst.like, flight.since_ns
        if receivers:
            place = (like.timestamp, burst.last_sequence)
            left = self._ends.hand_over_plain(
                stream, like, burst.first_sequence, place, burst.count, receivers, burst, now_ns, burst.first.origin
            )
            if left:
                self._effects.append(DeliverBurst(burst, left))
        groups, stuck = self._router.by_hop(to_serve)
        self._router.statistics.dropped += burst.count if stuck else 0
        for connection, units in groups.items():
            self._send(connection, burst, flight, units, served, now_ns)

    def _send(self, connection: int, burst: EventBurst, flight: Flight, units: int, served: int, now_ns: int) -> None:
        units, served = self._router.crossing(connection, flight, units, served, now_ns, burst.count)
        if not units:
            return
        link, size = self._links[connection], self._codec.vector_size
        self._router.statistics.copies_out += burst.count
        if link.takes_bursts and burst.count > 1 and len(burst.data) <= MAX_BURST_BYTES:
            link.send(Burst(units.to_bytes(size, "big"), served.to_bytes(size, "big"), bytes(burst.data)), now_ns)
            return
        for each in burst.frames():
            link.send(each.copy(units, served, each.ttl_ms), now_ns)
