"""What was decided about an event before, kept for the next one like it: which units want it, and which clients here.

Everything that engines look at stands in an event's matching section, so two events with the same section, priority and
origin are for the same receivers, as long as nobody's wants have changed. Publishers say the same again and again (a
topic, some headers); matching, and reading the section at all, is then one look-up.

Where a durable subscription has gone elsewhere, its old home still wants *old* events (`interest.constraint`): those
that have been under way for `OLD_NS` by the time of publication, that lay in a log, and for a while after units came
into reach all. An event from the future may be old too. A publisher's clock that is ahead by more than `OLD_NS` can
make an old event look new, if it has been under way for just as long as the clock is ahead: it is lost if its reader
has moved meanwhile.

Two things of an event are not in the key: the time of publication, which lies in the section and differs every time,
and the id. A selector may name them (`JMSTimestamp`, `JMSMessageID`); while anybody has such a one nothing is kept.
Events to named clients are not kept either: where clients are changes without any want changing.

The invariant: what is found here is what `InterestMap.destinations` and `Clients.matching` would answer now. Any change
of wants, sessions or doubts (`state`) empties it.

Rejected: keeping decisions by topic (a selector over other properties would be asked wrongly, or every engine would
have to say what it looks at); forgetting only what a change concerns (changes are rare beside events).
"""

from __future__ import annotations

from veena.address import Address, Unit
from veena.core.interest.constraint import OLD_NS
from veena.core.interest.interest_map import InterestMap
from veena.core.interest.subscriptions import Clients, Doubts
from veena.core.wire.event import BACKLOG, PRIORITY_MASK, EventFrame
from veena.core.wire.section import TIME_OFFSET, TIME_SIZE
from veena.errors import InvalidEvent
from veena.event import Event
from veena.matching.xpath.document import check_document

#: Decisions that are kept, and the longest section that is worth a look-up: some 4 MiB at most.
MAX_DECISIONS = 4096
MAX_SECTION = 1024

Receivers = tuple[tuple[int, tuple[int, ...]], ...]
_Key = tuple[bytes, bytes, int, bytes]


class Decision:
    """Who an event is for, found when it is asked for. Treat it as read-only."""

    __slots__ = ("_document", "_event", "_fault", "_receivers", "_sessions", "doubts", "has_original", "to", "wanted")

    def __init__(self, event: Event, has_original: bool) -> None:
        self._event: Event | None = event
        #: The units around; -1 before it is known.
        self.wanted = -1
        self._receivers: dict[int, list[int]] | None = None
        #: Of the receivers' subscriptions, those that nobody has evaluated yet; known with the receivers.
        self.doubts: Doubts = {}
        self._sessions: Receivers | None = None
        #: XML that nobody has looked at yet, and what was found wrong in it.
        self._document = event.xml
        self._fault = ""
        self.to = tuple(event.to)
        #: Whether it was published before under another id: what follows from that is found out for each.
        self.has_original = has_original


class Decisions:
    """The decisions of one broker."""

    def __init__(self, host: Address, clients: Clients, interest: InterestMap, is_kept: bool = True) -> None:
        self._host = host
        #: Until then every event counts as old.
        self.wary_until_ns = 0
        self._clients = clients
        self._interest = interest
        #: Whether decisions may be kept at all.
        self.is_kept = is_kept
        self._known: dict[_Key, Decision] = {}
        #: The last decision about an event with a longer section: the short way asks first, and then the long one.
        self._latest: tuple[_Key, Decision] | None = None
        self._state: tuple[tuple[int, tuple[Unit, ...]], int] = ((-1, ()), -1)
        self.asked = self.found = 0

    def of(self, frame: EventFrame, origin: bytes, now_ns: int) -> Decision:
        """What is decided about an event published at `origin`; raises InvalidEvent where it cannot be read."""
        self.asked += 1
        state = (self._interest.state(now_ns), self._clients.changes)
        if state != self._state:
            self._state = state
            self._known.clear()
            self._latest = None
        length = frame.matching_length
        if not self.is_kept or self.is_untimely:
            return _read(frame)
        start = frame.publisher_length
        section = bytes(frame.tail[start : start + length])
        mark, rest = section[:TIME_OFFSET], section[TIME_OFFSET + TIME_SIZE :]
        key = (rest, mark, frame.flags & PRIORITY_MASK, origin)
        decision = self._known.get(key)
        if decision is None and self._latest is not None and self._latest[0] == key:
            decision = self._latest[1]
        if decision is not None:
            self.found += 1
            return decision
        decision = _read(frame)
        if decision.to or decision.has_original:
            return decision
        if length > MAX_SECTION:
            self._latest = (key, decision)
        else:
            if len(self._known) >= MAX_DECISIONS:
                self._known.clear()
            self._known[key] = decision
        return decision

    @property
    def is_untimely(self) -> bool:
        """Whether somebody asks for the time or the id: events that are alike then may have other receivers."""
        return self._clients.untimely > 0 or self._interest.untimely > 0

    def fault(self, decision: Decision) -> str:
        """What keeps its publisher's broker from accepting it: XML that no engine would read. Empty for nothing."""
        document, decision._document = decision._document, None
        if document is not None:
            try:
                check_document(document)
            except InvalidEvent as error:
                decision._fault = str(error)
        return decision._fault

    def wanted(self, decision: Decision, origin: Address, now_ns: int) -> int:
        """The vector of the units around that want it."""
        if decision.wanted < 0:
            assert decision._event is not None
            decision.wanted = self._interest.destinations(decision._event, origin, now_ns)
            if decision._receivers is not None:
                decision._event = None
        return decision.wanted

    def inside(self, frame: EventFrame, now_ns: int) -> int:
        """The units around that want an event which came from elsewhere; raises InvalidEvent."""
        origin = frame.origin_address or self._host
        wanted = self.wanted(self.of(frame, frame.origin, now_ns), origin, now_ns)
        if self._interest.former and frame.reliable and self.is_old(frame, now_ns):
            wanted |= self._interest.formerly(frame.event(), origin)
        return wanted

    def is_old(self, frame: EventFrame, now_ns: int) -> bool:
        """Whether an event may have been accepted before its origin had heard of what is wanted now."""
        if frame.flags & BACKLOG or now_ns < self.wary_until_ns:
            return True
        return abs(now_ns - frame.section.timestamp_ns) >= OLD_NS

    def receivers(self, decision: Decision, origin: Address) -> dict[int, list[int]]:
        """The sessions here that it is for, or may be for (`Decision.doubts`), with their subscriptions."""
        if decision._receivers is None:
            assert decision._event is not None
            decision._receivers, decision.doubts = self._clients.judge(decision._event, origin)
            if decision.wanted >= 0:
                decision._event = None
        return decision._receivers

    def sessions(self, decision: Decision, origin: Address) -> Receivers:
        """The same as effects have it."""
        if decision._sessions is None:
            found = self.receivers(decision, origin)
            decision._sessions = tuple((session, tuple(numbers)) for session, numbers in found.items())
        return decision._sessions

    def check(self) -> None:
        assert len(self._known) <= MAX_DECISIONS


def _read(frame: EventFrame) -> Decision:
    """What engines see of an event: not its body, which would be held for as long as the decision is."""
    section = frame.section
    event = Event(
        topic=section.topic,
        integer=section.integer,
        tags=section.tags,
        xml=section.xml,
        properties=section.properties,
        headers=section.headers,
        priority=frame.priority,
        to=section.to,
        event_id=frame.id,
        timestamp_ns=section.timestamp_ns,
    )
    return Decision(event, section.original is not None)
