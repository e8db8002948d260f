"""How a node, or the one spokesman of a unit, gets the place it wants: whom it asks, in which order, until when.

A request is worked off as a list of *goals*, one gateway each. A *from* request: be a member here, then a gateway for
every other bit, asked of the gatekeepers that the member's answer named (NOP-07). A *to* request: first reserve the
gateway to the addressee's unit, then be a member of one of the neighbouring units named in the answer, then the rest
(NOP-08, NOP-12). A broker that has an address only asks for gateways (NOP-04). For each goal there is a queue of
brokers; an answer accepts, refuses, or adds brokers to the queue.

Intuition: like house-hunting with a list that grows by what neighbours say, and nothing is signed until all rooms are
found. The invariant: it ends in exactly one `Joined` or `Refused`; on `Refused` everything granted on the way has been
given back; no broker is asked twice for one goal, MAX_ASKS bounds the whole and JOIN_NS its time.

Requirements: NOP-03, NOP-04, NOP-06..10, NOP-12, NOP-14..16 (the GES paper, section 3.1.1).

Rejected: letting the contact find all gateways itself. It would need the thresholds of units whose inside it must not
know; the requester walks instead, and each broker speaks for its own cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from veena.address import Address, Unit, ancestor, format_address, link_level
from veena.core.membership.protocol import decode_request, encode_request
from veena.core.wire.control import Frame
from veena.core.wire.membership import (
    Grant,
    Place,
    SetupAccepted,
    SetupCancel,
    SetupRedirected,
    SetupRefused,
    SetupRequest,
)
from veena.errors import LocalProtocolError

#: Answers that one join waits for: every cluster of a super-cluster of 64, which is a long search already.
MAX_ASKS = 64
#: A contact answers within its PENDING_NS of 10 s; some more for the way.
REPLY_NS = 12_000_000_000
#: A join as a whole: shorter than a gateway is kept (registrar.SLOT_HOLD_NS), so what was granted first can be dialled.
JOIN_NS = 45_000_000_000


@dataclass(frozen=True, slots=True)
class Ask:
    """Dial this broker (or reuse the conversation) and send it the frame; the answer comes back to `handle`."""

    place: Place
    frame: Frame


@dataclass(frozen=True, slots=True)
class Joined:
    """The place is granted: dial every link within what is left of the minute it is kept.

    For a merged unit `old` and `new` are its paths before and after; a node that comes alone, or stays, has neither.
    Units up to `unit_level` came along or were made for it: a new cluster of one, a super-cluster of its own.
    """

    address: Address
    links: tuple[Grant, ...]
    old: Unit = ()
    new: Unit = ()
    unit_level: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str
    #: Above 0: the same request may succeed after this time.
    retry_ms: int = 0


JoinEffect = Ask | Joined | Refused


class Aim(Enum):
    #: A gateway *to* the contact's unit, before there is an address.
    REACH = 1
    #: A place in a unit, with an address.
    MEMBER = 2
    #: One more gateway, with an address.
    GATEWAY = 3


@dataclass(slots=True)
class Goal:
    aim: Aim
    level: int
    queue: list[Place] = field(default_factory=list)
    seen: dict[Address, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who wants to join: a node (unit_level 0) or a unit by its spokesman; a stand-alone node has no `address`."""

    requester: str
    #: The permanent id of the unit; empty for a node, which is its own.
    unit: str = ""
    unit_level: int = 0
    address: Address = ()


class Joiner:
    """One join, from `start` to `Joined` or `Refused`.

    The contact's address and the network's levels are in its Hello. `first_number` must be at least MAX_ASKS above that
    of the last join under this permanent id, also after a restart: a number is never used twice, and nanoseconds of a
    wall clock do. `known` are gatekeepers that a broker of the network knows itself, for bits that are not about the
    contact.
    """

    def __init__(
        self, applicant: Applicant, vector: int, contact: Place, levels: int, *,
        first_number: int, known: Iterable[Place] = (),
    ) -> None:  # fmt: skip
        if applicant.unit_level and len(applicant.address) <= applicant.unit_level:
            raise LocalProtocolError(
                f"address {format_address(applicant.address)!r} has no unit of level {applicant.unit_level}"
            )
        self.applicant = applicant
        self.levels = levels
        self.contact = contact
        self.wanted = decode_request(vector)
        self._number = first_number - 1
        self._goals = self._plan()
        self._goals[0].queue.append(contact)
        self._goals[0].seen[contact.address] = None
        self._known = list(known)
        self._links: list[Grant] = []
        #: Who granted under which number: they are told when it comes to nothing.
        self._granted: list[tuple[Place, int]] = []
        self._address: Address = () if applicant.unit_level else applicant.address
        self._new: Unit = ()
        self._unit_level = 0
        self._asked: Place | None = None
        self._last_asked: Address = ()
        #: Asked, and given up on: should they grant yet, it goes back.
        self._overdue: dict[int, Place] = {}
        self._reply_until_ns = 0
        self._end_ns = 0
        self.asks = 0
        self.result: Joined | Refused | None = None
        self._last = Refused("nobody to ask")

    def start(self, now_ns: int) -> list[JoinEffect]:
        if self._end_ns:
            raise LocalProtocolError("this join has started already: make a new Joiner for another one")
        self._end_ns = now_ns + JOIN_NS
        return self._ask_next(now_ns)

    def handle(self, frame: Frame, now_ns: int) -> list[JoinEffect]:
        """Take an answer; one that nobody waits for any more changes nothing, a grant in it is given back."""
        if not isinstance(frame, SetupAccepted | SetupRedirected | SetupRefused):
            raise LocalProtocolError(f"{type(frame).__name__} is no answer to a set-up request")
        if frame.requester != self.applicant.requester:
            return []
        if self.result is not None or self._asked is None or frame.number != self._number:
            late = self._overdue.pop(frame.number, None)
            return [self._cancel(late, frame.number)] if late and isinstance(frame, SetupAccepted) else []
        place, self._asked = self._asked, None
        if isinstance(frame, SetupAccepted):
            return self._on_accepted(frame, place, now_ns)
        retry_ms = 0
        if isinstance(frame, SetupRedirected):
            self._enqueue(self._goals[0], frame.gatekeepers)
        else:
            retry_ms = frame.retry_ms
        self._last = Refused(f"{format_address(place.address)}: {frame.reason}", retry_ms)
        return self._ask_next(now_ns)

    def tick(self, now_ns: int) -> list[JoinEffect]:
        if self.result is not None or self._asked is None:
            return []
        if now_ns >= self._end_ns:
            self._give_up_on(self._asked)
            return self._fail(Refused("the join took too long", 1000))
        if now_ns >= self._reply_until_ns:
            self._give_up_on(self._asked)
            self._last = Refused(f"{format_address(self._last_asked)} does not answer", 1000)
            return self._ask_next(now_ns)
        return []

    def unreachable(self, now_ns: int) -> list[JoinEffect]:
        """The broker that was asked last cannot be dialled, or its connection broke."""
        if self._asked is None:
            return []
        self._reply_until_ns = now_ns
        return self.tick(now_ns)

    def next_wakeup(self) -> int | None:
        return min(self._reply_until_ns, self._end_ns) if self._asked is not None else None

    # --- goals ---

    def _plan(self) -> list[Goal]:
        levels, highest = list(self.wanted.levels), self.wanted.highest
        if self.applicant.unit_level:
            member = self.applicant.unit_level if self.applicant.unit_level in levels else highest
            return [Goal(Aim.MEMBER, member)] + [Goal(Aim.GATEWAY, level) for level in levels if level != member]
        if self.applicant.address:
            # A *from* request names a cluster mate first, a *to* request a broker that differs at the highest bit.
            ordered = levels if self.wanted.is_from else levels[::-1]
            return [Goal(Aim.GATEWAY, level) for level in ordered]
        if self.wanted.is_from:
            return [Goal(Aim.MEMBER, 0)] + [Goal(Aim.GATEWAY, level) for level in levels[1:]]
        return [Goal(Aim.REACH, highest), Goal(Aim.MEMBER, 0)] + [Goal(Aim.GATEWAY, level) for level in levels[:-1]]

    def _suits(self, goal: Goal, place: Place) -> bool:
        """Whether a gateway there would have the level that this goal is about."""
        there = place.address
        if len(there) != self.levels:
            return False
        if goal.aim is Aim.REACH:
            # Any broker of the unit that the first contact lies in will do.
            unit = ancestor(self.contact.address, goal.level)
            return there[: len(unit)] == unit
        if goal.aim is Aim.GATEWAY:
            return there != self._address and link_level(self._address, there) == goal.level
        reached = self._links[0] if self._links else None
        return reached is None or self._level_to(reached, there) == reached.level

    @staticmethod
    def _level_to(reached: Grant, there: Address) -> int:
        return -1 if there == reached.place.address else link_level(reached.place.address, there)

    def _enqueue(self, goal: Goal, places: Iterable[Place]) -> None:
        for place in places:
            if place.address not in goal.seen and len(goal.seen) < MAX_ASKS and self._suits(goal, place):
                goal.seen[place.address] = None
                goal.queue.append(place)

    def _vector(self, goal: Goal) -> int:
        if goal.aim is Aim.MEMBER and self._links:
            # The highest bit is served; what remains is a *from* request to the neighbouring unit.
            return encode_request((0, *self.wanted.levels[:-1]))
        if goal.aim is Aim.GATEWAY:
            return encode_request((goal.level,))
        return encode_request(self.wanted.levels)

    # --- asking ---

    def _ask_next(self, now_ns: int) -> list[JoinEffect]:
        goal = self._goals[0]
        if not goal.queue or self.asks >= MAX_ASKS:
            return self._fail(self._last)
        place = goal.queue.pop(0)
        self.asks += 1
        self._number += 1
        self._asked = place
        self._last_asked = place.address
        self._reply_until_ns = now_ns + REPLY_NS
        applicant = self.applicant
        member = goal.aim is Aim.MEMBER
        request = SetupRequest(
            applicant.requester, self._number, self._vector(goal),
            applicant.unit_level if member else 0, applicant.unit or applicant.requester,
            applicant.address if member and applicant.unit_level else self._address,
        )  # fmt: skip
        return [Ask(place, request)]

    def _on_accepted(self, frame: SetupAccepted, place: Place, now_ns: int) -> list[JoinEffect]:
        goal = self._goals[0]
        self._granted.append((place, frame.number))
        problem = self._problem(goal, frame)
        if problem:
            return self._fail(Refused(f"{format_address(place.address)}: {problem}"))
        self._links.append(frame.grant)
        if goal.aim is Aim.MEMBER:
            self._settle(frame.address)
            self._unit_level = goal.level
        self._known += frame.gatekeepers
        del self._goals[0]
        if not self._goals:
            old = ancestor(self.applicant.address, self.applicant.unit_level) if self.applicant.unit_level else ()
            self.result = Joined(self._address, tuple(self._links), old, self._new, self._unit_level)
            return [self.result]
        following = self._goals[0]
        self._enqueue(following, frame.gatekeepers if following.aim is Aim.MEMBER else self._known)
        if not following.queue:
            self._last = Refused(f"no broker is known that could give a level-{following.level} gateway")
        return self._ask_next(now_ns)

    def _problem(self, goal: Goal, frame: SetupAccepted) -> str:
        """What is wrong with a grant, for a contact may err: its level, its place, or the address it gives."""
        there = frame.grant.place.address
        if frame.grant.level != goal.level or len(there) != self.levels:
            return f"granted a level-{frame.grant.level} gateway at {format_address(there)} for level {goal.level}"
        if goal.aim is not Aim.MEMBER:
            return "" if self._suits(goal, frame.grant.place) else f"granted {format_address(there)}, of another level"
        unit = frame.address
        if len(unit) != self.levels - self.applicant.unit_level:
            return f"gave {format_address(unit)}, no address of a level-{self.applicant.unit_level} unit"
        outer = ancestor(there, goal.level + 1)
        if unit[: len(outer)] != outer or unit[len(outer)] == there[len(outer)]:
            return f"gave {format_address(unit)} for a level-{goal.level} link to {format_address(there)}"
        if self._links and self._level_to(self._links[0], unit) != self._links[0].level:
            return f"gave {format_address(unit)}, not next to {format_address(self._links[0].place.address)}"
        return ""

    def _settle(self, unit: Unit) -> None:
        level = self.applicant.unit_level
        self._address = unit if not level else (*unit, *self.applicant.address[-level:])
        self._new = unit if level else ()

    # --- ending ---

    def _fail(self, refusal: Refused) -> list[JoinEffect]:
        self.result = refusal
        cancels: list[JoinEffect] = [self._cancel(place, number) for place, number in self._granted]
        return [*cancels, refusal]

    def _cancel(self, place: Place, number: int) -> JoinEffect:
        return Ask(place, SetupCancel(self.applicant.requester, number))

    def _give_up_on(self, place: Place) -> None:
        self._overdue[self._number] = place
        self._asked = None
