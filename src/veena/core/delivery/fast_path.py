"""The short way of events that are plain: alike, published here, for clients of this broker and for nobody else.

What makes the long way long is what may be the matter with an event: other units want it, it is kept for somebody, it
was published before under another id, a client says that it has had it, a subscription is not evaluated yet, records
are made of it, its time is over. Where none of that is so, a burst (`wire.burst`) is handed over by one decision. Both
ways do the same to everybody.

The invariant: whatever is asked here changes nothing until `hand_over`.
"""

from __future__ import annotations

from veena.address import Address
from veena.core.delivery.delivery import Ends
from veena.core.delivery.match_cache import Decisions, Receivers
from veena.core.delivery.mixed_bursts import Gates, MixedBursts
from veena.core.interest.service import Profiles
from veena.core.wire.burst import EventBurst
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import Stream
from veena.errors import InvalidEvent


class PlainWay:
    """One a broker."""

    def __init__(self, host: Address, profiles: Profiles, decisions: Decisions, ends: Ends, gates: Gates) -> None:
        self._host = host
        self._origin = bytes(host)
        self._profiles = profiles
        self._records = profiles.records
        self._decisions = decisions
        self._ends = ends
        self._mixed = MixedBursts(profiles.clients, profiles.interest, gates)
        #: Take note of events of a mixed burst that their clients are handed.
        self.hand_over_mixed = ends.hand_over_mixed
        #: Take note that these get it; who is to be handed it now, and not when it reads again.
        self.hand_over = ends.hand_over_plain

    @property
    def is_held_up(self) -> bool:
        """Whether something waits for clients that do not read, or for an evaluation."""
        return bool(self._ends.outlet.clogged or self._ends.held.sessions)

    def waiting(self) -> set[int]:
        """The sessions for which something waits: new events may have to wait behind it."""
        return {*self._ends.outlet.clogged, *self._ends.held.sessions} if self.is_held_up else set()

    def state(self, now_ns: int) -> tuple[object, ...]:
        """Something that is the same as long as later best-effort events that are alike have the same receivers."""
        profiles = self._profiles
        return (
            profiles.interest.revision,
            profiles.leases.standing(now_ns),
            profiles.clients.changes,
            self._ends.changes,
            profiles.is_told,
        )

    def receivers(self, like: EventFrame, first: int, stream: Stream, now_ns: int) -> Receivers | None:
        """Who gets events like this from a sequence on; None where they are not plain."""
        if like.ttl_ms == 0 or self._records.is_on or self._decisions.is_untimely:
            return None
        try:
            decision = self._decisions.of(like, self._origin, now_ns)
        except InvalidEvent:
            return None
        if decision.to or decision.has_original or self._decisions.fault(decision):
            return None
        if self._decisions.wanted(decision, self._host, now_ns):
            return None
        receivers = self._decisions.sessions(decision, self._host)
        if receivers and (decision.doubts or not self._ends.is_plain(stream, like, first, receivers)):
            return None
        return receivers

    def receivers_of_each(
        self, burst: EventBurst, stream: Stream, first: int, state: object, now_ns: int
    ) -> list[Receivers | None] | None:
        """Who gets each event of a mixed burst; None for an event that is not plain, and where none of them is. Until
        `state` is another one this holds for the events of the burst from the sequence on."""
        like = burst.like
        if like.ttl_ms == 0 or self._records.is_on or self._decisions.is_untimely:
            return None
        if not self._decisions.is_kept or not self._ends.is_plain_stream(stream, like, first):
            return None
        found = self._mixed.receivers(burst, state, now_ns)
        if self.is_held_up:
            waiting = self.waiting()
            return [None if each and any(who in waiting for who, _ in each) else each for each in found]
        return found

    def wait(self, offset: int) -> None:
        """The reliable burst at this offset of the log is done when the places of what is handed over are on disk."""
        self._ends.waiting_bursts.append(offset)
