"""Who publishes at this broker, and what becomes of it first: checked, decided about, and sent on its way.

A publisher gets a new incarnation with every session (DUP-08), made of the time and this broker's address, so that no
two are alike. Its events must come in order: an id that is not later than the last one of its lane is refused.

A reliable event goes to the log (`log`), a best-effort one to the router. There is a *short way* for best effort:
events for clients of this broker alone, for which nothing else has to be remembered, are handed over in the bursts in
which they came (`wire.burst`), by what was decided about the first of them; and where other brokers want them too they
go on as bursts (`routing.burst_router`). Whatever is not plain goes the long way, event by event; both ways do the same
to everybody, the short one only sooner.

The invariant: of a session and lane, only later events than all before are taken.
"""

from __future__ import annotations

from veena.address import Address
from veena.core.boundary.inputs_effects import (
    Accepted,
    Deliver,
    DeliverBurst,
    DeliverMixed,
    Effect,
    Publish,
    PublishBatch,
    Welcome,
)
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Entry
from veena.core.delivery.fast_path import PlainWay
from veena.core.delivery.match_cache import Decisions, Receivers
from veena.core.interest.service import Profiles
from veena.core.messages.addresses import is_internal
from veena.core.publishing.log import Origin
from veena.core.routing.burst_router import BurstWay
from veena.core.routing.router import Router
from veena.core.wire.burst import EventBurst
from veena.core.wire.event import COPY_BELOW, NO_TTL, RELIABLE, EventFrame
from veena.core.wire.event_id import Place, Stream
from veena.core.wire.trace_facts import What
from veena.errors import InvalidEvent, RefusalCode

#: What a session's events were like, as far as it is remembered who gets them.
MAX_GRANTS = 1024
#: Their stream, who gets them, and whether they go out as they came: the same for all that are like the one event.
Grants = dict[EventFrame, tuple[Stream, Receivers, bool]]


class Publishers:
    """The publishers of one broker."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        profiles: Profiles,
        decisions: Decisions,
        origin: Origin,
        router: Router,
        plain: PlainWay,
        bursts: BurstWay,
        effects: list[Effect],
    ) -> None:
        self._host = host
        self._origin_bytes = bytes(host)
        self._profiles = profiles
        self._records = profiles.records
        self._decisions = decisions
        self._origin = origin
        self._router = router
        self._plain = plain
        self._hand_over = plain.hand_over
        self._bursts = bursts
        self._copies = settings.copies
        self._effects = effects
        #: Client id, the same as bytes, and incarnation of each session.
        self._publishers: dict[int, tuple[str, bytes, int]] = {}
        #: By session, with the state in which they were found.
        self._granted: dict[int, tuple[tuple[object, ...], Grants]] = {}
        #: (session, lane) -> the place of the last event that came.
        self._latest: dict[tuple[int, int], Place] = {}

    def welcome(self, session: int, client_id: str, reply_to: str, now_ns: int) -> None:
        """A client attached: give it an incarnation that nobody has had."""
        incarnation = self._origin.new_incarnation(now_ns)
        self._publishers[session] = (client_id, client_id.encode(), incarnation)
        self._effects.append(Welcome(session, incarnation, reply_to))

    def farewell(self, session: int) -> None:
        self._origin.pressure.farewell(session)
        self._publishers.pop(session, None)
        self._granted.pop(session, None)
        for lane in range(6):
            self._latest.pop((session, lane), None)

    # --- events ---

    def publish(self, given: Publish, now_ns: int) -> RefusalCode | None:
        """Take an event in, or refuse it to its publisher; the code of the refusal."""
        frame = given.frame
        receivers = None if frame.reliable else self._short_way(given.session, frame, None, {}, now_ns)
        if receivers is None:
            return self._long_way(given.session, frame, now_ns)
        self._effects.append(Accepted(given.session, frame.id))
        if receivers:
            self._effects.append(Deliver(self._stamped(frame, self._router.me), receivers))
        return None

    def publish_batch(self, given: PublishBatch, now_ns: int) -> bool:
        """The same for many; nobody waits to hear that a best-effort event was accepted, so that is not said.

        True if all of them took the fast path: nothing is left to be done about them.
        """
        session, took_fast_path = given.session, True
        grants = self._grants(session, now_ns)
        for burst in given.bursts:
            receivers: Receivers | None
            if burst.sections is not None:
                took_fast_path = self._publish_mixed(session, burst, now_ns) and took_fast_path
                grants = self._grants(session, now_ns)
                continue
            is_reliable = burst.like.flags & RELIABLE
            if is_reliable:
                took_fast_path = False
                receivers = () if self._append(session, burst, now_ns) else None
            else:
                receivers = self._short_way(session, burst.like, burst, grants, now_ns)
            if receivers:
                self._effects.append(DeliverBurst(burst.stamped(self._origin_bytes), receivers))
            elif receivers is None:
                took_fast_path = False
                if not is_reliable and self._carry(session, burst, now_ns):
                    continue
                for frame in burst.frames():
                    self._long_way(session, frame, now_ns)
                grants = self._grants(session, now_ns)
        return took_fast_path

    def _publish_mixed(self, session: int, burst: EventBurst, now_ns: int) -> bool:
        """Take a mixed burst: what is plain goes out in one effect, all else in alike bursts between. Whether all of it
        was plain."""
        at, is_all = 0, True
        while at < burst.count:
            stream = self._stream(session, burst.like, burst.sequence(at), now_ns)
            state, waiting = self._plain.state(now_ns), self._plain.waiting()
            found = None
            if stream is not None:
                found = self._plain.receivers_of_each(burst, stream, burst.sequence(at), state, now_ns)
            if stream is None or found is None:
                self.publish_batch(PublishBatch(session, burst.alike(at)), now_ns)
                return False
            while at < burst.count:
                end = _next(found, at, is_plain=True)
                if end > at:
                    self._hand_over_mixed(session, stream, burst, found, at, end, now_ns)
                at = _next(found, end, is_plain=False)
                if at > end:
                    is_all = False
                    self.publish_batch(PublishBatch(session, burst.alike(end, at)), now_ns)
                    if self._plain.state(now_ns) != state or self._plain.waiting() != waiting:
                        break
        return is_all

    def _hand_over_mixed(
        self,
        session: int,
        stream: Stream,
        burst: EventBurst,
        found: list[Receivers | None],
        start: int,
        end: int,
        now_ns: int,
    ) -> None:
        """Hand over the plain events of a mixed burst from number `start` to `end`."""
        pieces: list[tuple[Receivers, int, int]] = []
        first, receivers, delivered, last = start, found[start], 0, -1
        for at in range(start + 1, end + 1):
            following = found[at] if at < end else None
            if following is receivers and at < end:
                continue
            if receivers:
                pieces.append((receivers, first, at))
                delivered += len(receivers) * (at - first)
                last = at - 1
            first, receivers = at, following
        if pieces:
            place = (burst.like.timestamp, burst.sequence(last))
            self._plain.hand_over_mixed(stream, place, delivered, now_ns)
            self._effects.append(DeliverMixed(burst.stamped(self._origin_bytes), pieces))
        self._latest[session, stream[2]] = (burst.like.timestamp, burst.sequence(end - 1))
        self._origin.accepted += end - start

    def again(self, session: int, burst: EventBurst, now_ns: int) -> Receivers | None:
        """Take a best-effort burst about whose like everything was decided before, and that can go out as it came; who
        is to be handed it. None, and nothing has changed, for any other; also while somebody does not read, since what
        waits for him may be too much, and more follows from that."""
        like, granted = burst.like, self._granted.get(session)
        if (
            self._plain.is_held_up
            or granted is None
            or like not in granted[1]
            or not granted[1][like][2]
            or granted[0] != self._plain.state(now_ns)
        ):
            return None
        return self._short_way(session, like, burst, granted[1], now_ns)

    def _grants(self, session: int, now_ns: int) -> Grants:
        """By what an event of this session is like: its stream and who gets it, as long as nothing has changed."""
        state = self._plain.state(now_ns)
        granted = self._granted.get(session)
        if granted is not None and granted[0] == state and len(granted[1]) < MAX_GRANTS:
            return granted[1]
        grants: Grants = {}
        if session in self._publishers:
            self._granted[session] = (state, grants)
        return grants

    def _stamped(self, frame: EventFrame, to_serve: int) -> EventFrame:
        """A frame as it leaves this broker (ERP-02)."""
        frame = frame.copy(to_serve, self._router.me, frame.ttl_ms)
        frame.origin = self._origin_bytes
        return frame

    def _stream(self, session: int, like: EventFrame, first: int, now_ns: int) -> Stream | None:
        """The stream of events that are in order and say the truth about their publisher; None for any other."""
        client_id, publisher, incarnation = self._publishers.get(session, ("", b"", -1))
        if like.incarnation != incarnation or like.tail[: like.publisher_length] != publisher:
            return None
        lane = like.lane_number
        latest = self._latest.get((session, lane))
        if latest is not None and latest >= (like.timestamp, first):
            return None
        if like.to_serve or like.served or not self._profiles.is_ready(now_ns):
            return None
        return client_id, incarnation, lane

    def _short_way(
        self, session: int, like: EventFrame, burst: EventBurst | None, grants: Grants, now_ns: int
    ) -> Receivers | None:
        """Take a best-effort event, or a burst of such; who is to be handed it.

        None, and nothing has changed, for what is not plain: the long way says what is wrong with it, if anything is.
        """
        first, last, count = (
            (like.sequence, like.sequence, 1)
            if burst is None
            else (burst.first_sequence, burst.last_sequence, burst.count)
        )
        granted = grants.get(like)
        if granted is not None:
            stream, receivers, _ = granted
            if self._latest[session, stream[2]] >= (like.timestamp, first):
                return None
        else:
            found = self._stream(session, like, first, now_ns)
            wanted = None if found is None else self._plain.receivers(like, first, found, now_ns)
            if found is None or wanted is None:
                return None
            stream, receivers = found, wanted
            if burst is not None and len(like.tail) < COPY_BELOW:
                grants[like] = (stream, receivers, burst.is_stamped(self._origin_bytes))
        place = (like.timestamp, last)
        if receivers:
            receivers = self._hand_over(stream, like, first, place, count, receivers, burst, now_ns)
        self._latest[session, stream[2]] = place
        self._origin.accepted += count
        return receivers

    def _append(self, session: int, burst: EventBurst, now_ns: int) -> bool:
        """Take a burst of reliable events into the log as it is; False, and nothing has changed, if it is not plain."""
        like, first, last = burst.like, burst.first_sequence, burst.last_sequence
        if last - first != burst.count - 1 or like.ttl_ms != NO_TTL or self._copies != 1:
            return False
        stream = self._stream(session, like, first, now_ns)
        if stream is None or self._plain.receivers(like, first, stream, now_ns) is None:
            return False
        if self._origin.why_not_now(session, burst.count) is not None:
            return False
        self._latest[session, stream[2]] = (like.timestamp, last)
        self._origin.append_burst(session, burst.stamped(self._origin_bytes), now_ns)
        return True

    def _carry(self, session: int, burst: EventBurst, now_ns: int) -> bool:
        """Take a burst that other brokers want as well; False, and nothing has changed, if it is not plain."""
        stream = self._stream(session, burst.like, burst.first_sequence, now_ns)
        if stream is None or not self._bursts.publish(burst, stream, now_ns):
            return False
        self._latest[session, stream[2]] = (burst.like.timestamp, burst.last_sequence)
        self._origin.accepted += burst.count
        return True

    def _long_way(self, session: int, frame: EventFrame, now_ns: int) -> RefusalCode | None:
        try:
            if not self._profiles.is_ready(now_ns):
                reason = "this broker does not know yet who wants what: publish again in a moment"
                raise InvalidEvent(reason, code=RefusalCode.STARTING)
            self._check(session, frame)
            decision = self._decisions.of(frame, self._origin_bytes, now_ns)
            if decision.to and any(map(is_internal, decision.to)):
                raise InvalidEvent(f"event {frame.id}: ids that begin with ~ are the brokers' own; name clients")
            fault = self._decisions.fault(decision)
            if fault:
                raise InvalidEvent(f"event {frame.id}: {fault}")
        except InvalidEvent as error:
            self._origin.refuse(session, frame, error.code, str(error))
            return error.code
        frame = self._stamped(frame, self._decisions.wanted(decision, self._host, now_ns) | self._router.me)
        if frame.reliable:
            self._origin.append(session, frame, now_ns)
        else:
            self._origin.accepted += 1
            self._effects.append(Accepted(session, frame.id))
            self._origin.note(Entry(0, frame, now_ns), What.ACCEPTED, now_ns)
            self._router.pass_on(frame, now_ns)
        return None

    def _check(self, session: int, frame: EventFrame) -> None:
        client_id, publisher, incarnation = self._publishers.get(session, ("", b"", -1))
        if frame.tail[: frame.publisher_length] != publisher or frame.incarnation != incarnation:
            raise InvalidEvent(
                f"event {frame.id} of session {session}: expected publisher {client_id!r} and the incarnation"
                f" {incarnation} that it was given"
            )
        place, lane = (frame.timestamp, frame.sequence), (session, frame.lane_number)
        if place <= self._latest.get(lane, (-1, -1)):
            raise InvalidEvent(f"event {frame.id}: not later than the one before it in its lane; give it a new id")
        if frame.to_serve or frame.served:
            raise InvalidEvent(f"event {frame.id} names units: destinations are the broker's to compute")
        if frame.reliable:
            reason = self._origin.why_not_now(session)
            if reason is not None:
                raise InvalidEvent(f"event {frame.id}: {reason}; publish it later", code=RefusalCode.BUSY)
        self._latest[lane] = place


def _next(found: list[Receivers | None], at: int, *, is_plain: bool) -> int:
    """Behind the events from number `at` on that are plain, or that are not."""
    while at < len(found) and (found[at] is not None) is is_plain:
        at += 1
    return at
