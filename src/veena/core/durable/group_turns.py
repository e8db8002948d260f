"""Whose turn it is in one group: deals events out to members, and takes back what a member left or may not have.

A member has few events at once (`ROOM`). The next event goes to whoever has least, and among those to the one whose
turn was longest ago. An event is passed by others only where nobody who may have it has room.

What a member is handed without a mark is in the order of its stream: redelivered is what others may have had, and late
is what lay in a backlog for its broker and was overtaken there, or was given back.

The invariant: every reliable event that was put here and is not taken waits, is parked, or is with exactly one member,
who was not known to be denied it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from veena.core.durable.group_denials import Denials, Member
from veena.core.interest.eligibility import Restriction, restriction_of
from veena.core.wire.event import REDELIVERED, EventFrame
from veena.core.wire.event_id import EventKey, event_key

#: Events that one member has at once: few, so that they are dealt out evenly.
ROOM = 32
#: Members of one group, and of all groups at one broker.
MAX_MEMBERS = 10_000


@dataclass(slots=True)
class Place:
    """A member as the home knows it."""

    heard_ns: int
    #: How often its rights had changed when it was heard of last.
    rights: int = 0
    given: dict[EventKey, EventFrame] = field(default_factory=dict)


class Turns:
    """One group's."""

    def __init__(self) -> None:
        #: Whose turn was longest ago comes first.
        self.members: dict[Member, Place] = {}
        self.waiting: deque[EventFrame] = deque()
        #: What members gave back and others may have: dealt out before what waits.
        self._returned: deque[EventFrame] = deque()
        self.denials = Denials()

    # --- members ---

    def hear(self, member: Member, rights: int, now_ns: int) -> bool:
        """A member is there, with rights that have changed so often; True for a new one. Beyond MAX_MEMBERS none is
        taken in."""
        place = self.members.get(member)
        if place is not None:
            place.heard_ns = now_ns
            if place.rights != rights:
                place.rights = rights
                self.denials.forget(member)
                self._offer_again(is_empty=False)
            return False
        if len(self.members) >= MAX_MEMBERS:
            return False
        self.members[member] = Place(now_ns, rights)
        self._offer_again(is_empty=False)
        return True

    def part(self, member: Member) -> int:
        """A member is gone: what it had waits for others, marked as redelivered; how much that was."""
        given = self.members.pop(member).given
        for frame in reversed(given.values()):
            again = frame.copy(frame.to_serve, frame.served, frame.ttl_ms)
            again.flags |= REDELIVERED
            self.waiting.appendleft(again)
        self.denials.forget(member)
        if not self.members:
            self._offer_again(is_empty=True)
        return len(given)

    def _offer_again(self, *, is_empty: bool) -> None:
        """Somebody may have what was parked."""
        self._returned += map(EventFrame.late_copy, self.denials.offer_again(is_empty=is_empty))

    def taken(self, member: Member, keys: Iterable[EventKey]) -> list[EventKey]:
        """A member has these for good; those of them that were with it."""
        place = self.members.get(member)
        found = [] if place is None else [key for key in keys if place.given.pop(key, None) is not None]
        self.denials.taken(found)
        return found

    def hand_back(self, member: Member, frame: EventFrame) -> None:
        """A member may not have an event: it is for another one, and the member is dealt none like it."""
        self.denials.deny(member, _restriction(frame))
        given = self.members[member].given.pop(event_key(frame), None) if frame.reliable else None
        if given is not None:
            self.denials.given_back(event_key(frame))
            self._returned.append(given.late_copy())

    # --- dealing ---

    def next_for(self, frame: EventFrame) -> Member | None:
        """Whose turn it is to get an event."""
        return self._next(_restriction(frame) if self.denials else None)

    def _next(self, restriction: Restriction | None) -> Member | None:
        """Of those who may have such an event, and have least, the one whose turn was longest ago."""
        found = list(self.members.items())
        if restriction is not None:
            found = [each for each in found if self.denials.may_have(each[0], restriction)]
        if not found:
            return None
        member, place = min(found, key=lambda each: len(each[1].given))
        del self.members[member]
        self.members[member] = place
        return member

    def deal(self, now_ns: int) -> Iterator[tuple[Member | None, EventFrame]]:
        """Deal out what waits, as far as there is room; with None what is parked, because nobody may have it."""
        if self.denials or self._returned:
            yield from self._deal_by_rights(now_ns)
            return
        while self.waiting and self._has_room():
            member, frame = self._next(None), self.waiting.popleft()
            assert member is not None
            yield self._hold(member, frame)

    def _deal_by_rights(self, now_ns: int) -> Iterator[tuple[Member | None, EventFrame]]:
        """The same where members were denied something. An event for which nobody has room is passed by those that
        others may have, and is late then."""
        full: dict[Restriction, None] = {}
        for queue in (self._returned, self.waiting):
            passed: list[EventFrame] = []
            is_overtaken = False
            while queue and self._has_room():
                frame = queue.popleft()
                restriction = _restriction(frame)
                if restriction in full:
                    passed.append(frame)
                    continue
                member, key = self._next(restriction), event_key(frame)
                if member is None or self.denials.was_tried(key, len(self.members)):
                    self.denials.park(frame, now_ns)
                    yield None, frame
                elif len(self.members[member].given) >= ROOM:
                    full[restriction] = None
                    passed.append(frame)
                else:
                    is_overtaken = bool(passed)
                    yield self._hold(member, frame)
            queue.extendleft(each.late_copy() if is_overtaken else each for each in reversed(passed))

    def _hold(self, member: Member, frame: EventFrame) -> tuple[Member, EventFrame]:
        """Keep an event for a member until it acknowledges it."""
        self.members[member].given[event_key(frame)] = frame
        return member, frame

    def _has_room(self) -> bool:
        return any(len(place.given) < ROOM for place in self.members.values())


def _restriction(frame: EventFrame) -> Restriction:
    section = frame.section
    return restriction_of(section.topic, section.headers)
