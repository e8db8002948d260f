"""What members of one group were denied, and the events that none of the members may have (`groups`).

Whether a member may have an event is known only where it is attached: its broker tests rights when it hands the event
over, and gives back what it may not hand over. Rights look at nothing but an event's restriction (`eligibility`), so a
member that gave back one event is dealt none that is restricted alike. It gives back one event of each restriction, not
each event.

An event that no member may have is *parked*: it takes no room from others. It is offered again when somebody joins,
when the rights of a member change, and when the last member leaves. A parked event that was denied for the retention
is to become a dead letter, and so is the oldest where too many are parked.

The invariant: no event is parked while a member is there that may have it; what is parked is within the bounds.

Rejected: remembering single events by member. A member without rights would give back every event of a busy topic, and
what is remembered would grow with both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veena.address import Address
from veena.core.durable.cursor import MAX_PARKED
from veena.core.interest.eligibility import Restriction
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import EventKey, event_key

#: A member: where it is, and its number there.
Member = tuple[Address, int]

#: Bytes of parked events of one group; their number is bounded by the inbox (`cursor`).
MAX_PARKED_BYTES = 16 << 20
#: Restrictions that are remembered for the members of one group together, and for each member in any case. Beyond that
#: a member's oldest is forgotten, and costs one more event that is given back.
MAX_DENIED = 100_000
MIN_DENIED = 8


@dataclass(frozen=True, slots=True)
class Parked:
    """An event that no member may have, and since when that is known."""

    frame: EventFrame
    since_ns: int


class Denials:
    """One group's."""

    def __init__(self) -> None:
        self._denied: dict[Member, dict[Restriction, None]] = {}
        #: How often events were given back since they were parked last.
        self._returns: dict[EventKey, int] = {}
        self.parked: dict[EventKey, Parked] = {}
        self._bytes = 0
        #: Since when events that were parked before and are offered again have been denied.
        self._since: dict[EventKey, int] = {}

    def __bool__(self) -> bool:
        """Whether anybody was denied anything."""
        return bool(self._denied)

    # --- members ---

    def deny(self, member: Member, restriction: Restriction) -> None:
        """A member gave back an event that is restricted like this."""
        denied = self._denied.setdefault(member, {})
        denied[restriction] = None
        if len(denied) > max(MIN_DENIED, MAX_DENIED // len(self._denied)):
            del denied[next(iter(denied))]

    def may_have(self, member: Member, restriction: Restriction) -> bool:
        """Whether a member may have an event that is restricted like this, as far as is known."""
        return restriction not in self._denied.get(member, ())

    def forget(self, member: Member) -> None:
        """A member has left, or has other rights."""
        self._denied.pop(member, None)

    def given_back(self, key: EventKey) -> None:
        """A member gave back a reliable event."""
        self._returns[key] = self._returns.get(key, 0) + 1

    def was_tried(self, key: EventKey, members: int) -> bool:
        """Whether so many members gave an event back, also where it was forgotten who they are."""
        return self._returns.get(key, 0) >= members

    # --- events that no member may have ---

    def park(self, frame: EventFrame, now_ns: int) -> None:
        """No member may have this."""
        key = event_key(frame)
        self._returns.pop(key, None)
        self.parked[key] = Parked(frame, self._since.pop(key, now_ns))
        self._bytes += len(frame.tail)

    def offer_again(self, *, is_empty: bool) -> list[EventFrame]:
        """The parked events, which are parked no more; with nobody there, as if nobody had denied them."""
        found = list(self.parked.items())
        self.parked, self._bytes = {}, 0
        self._since = {} if is_empty else self._since | {key: each.since_ns for key, each in found}
        return [each.frame for _, each in found]

    def taken(self, keys: Iterable[EventKey]) -> None:
        """Members have these for good."""
        for key in keys if self._since or self._returns else ():
            self._since.pop(key, None)
            self._returns.pop(key, None)

    def overdue(self, before_ns: int) -> list[EventFrame]:
        """The parked events that were denied before then, or that there is no room for; parked no more."""
        found: list[EventFrame] = []
        for key, each in list(self.parked.items()):
            if each.since_ns <= before_ns or self._is_too_much:
                found.append(each.frame)
                self._bytes -= len(each.frame.tail)
                del self.parked[key]
        return found

    @property
    def _is_too_much(self) -> bool:
        return len(self.parked) > MAX_PARKED or self._bytes > MAX_PARKED_BYTES

    def next_wakeup(self, retention_ns: int) -> int | None:
        """When something is to become a dead letter."""
        if self._is_too_much:
            return next(iter(self.parked.values())).since_ns
        return min((each.since_ns + retention_ns for each in self.parked.values()), default=None)

    def check(self) -> None:
        assert self._bytes == sum(len(each.frame.tail) for each in self.parked.values())
        assert all(len(denied) <= MAX_DENIED for denied in self._denied.values())
