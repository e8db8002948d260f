"""What a broker answers to a node or a unit that wants a place: the gateway, the address, or where else to ask.

The broker that is asked, the *contact*, does three things in turn. It judges the request (rules of NOP-11, NOP-13); it
finds a gateway, its own or else a cluster mate's, one mate after the other (NOP-10, NOP-12); for a newcomer it gets an
identifier from the registrar of the unit (NOP-16, NOP-19). Where one of the last two has nothing left, the answer names
gatekeepers of neighbouring units, nearest first. A broker of the network keeps its address (NOP-04).

Intuition: a gateway is promised by the broker that has it, an identifier by the one that gives them, and the contact
only carries promises between them. The invariant: every set-up request is answered exactly once within PENDING_NS, and
a promise that leads to no answer is given back. Requirements: NOP-01..04, NOP-09..14, NOP-16, NOP-19 (the GES paper,
section 3.1).

Unit addition is the same with another level: a level-l unit becomes one more sub-unit of the contact's level-(l+1) unit
by one level-l link. If it asks only for a level above its own, it gets a unit of that level for itself (AMB-5).

Rejected: passing the request on from mate to mate. It saves half the messages and loses the request with the first
mate that fails; here the contact waits a second and asks the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from veena.address import Address, Unit, ancestor, contains, format_address, level_name, link_level
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.protocol import Answer, Effect, Neighbourhood, Peer, Send, decode_request, lowest_free
from veena.core.membership.registrar import QUIET_NS, SLOT_HOLD_NS, Registrar, RegistrarFrame
from veena.core.membership.slots import Key, Slots
from veena.core.membership.validation import Kind, judge
from veena.core.wire.control import Frame
from veena.core.wire.membership import (
    MAX_PLACE_LISTEN,
    MAX_PLACES,
    MAX_RETRY_MS,
    Grant,
    IdentifierRelease,
    IdentifierReply,
    IdentifierRequest,
    Place,
    SetupAccepted,
    SetupCancel,
    SetupRedirected,
    SetupRefused,
    SetupRequest,
    SlotRelease,
    SlotReply,
    SlotRequest,
    SpokesmanRequest,
)  # fmt: skip
from veena.errors import RemoteProtocolError

#: A mate in the same cluster answers within milliseconds; after a second it is asked no more.
ASK_NS = 1_000_000_000
#: The longest that a requester waits for an answer, whatever the mates and the registrar do.
PENDING_NS = 10_000_000_000
#: Set-ups under way at one contact: twice the largest fan-out.
MAX_PENDING = 128
#: Grants remembered, as long as they are kept, so that they can be cancelled; the oldest makes room.
MAX_GRANTED = 256


@dataclass(slots=True)
class Pending:
    request: SetupRequest
    peer: Peer
    kind: Kind
    level: int
    deadline_ns: int
    #: Cluster mates that are still to be asked, and the one that was asked last, until when.
    mates: list[Address] = field(default_factory=list)
    asked: Address = ()
    asked_until_ns: int = 0
    #: Set once a gateway is found; then the identifier is awaited.
    grant: Grant | None = None
    learnt: list[Place] = field(default_factory=list)

    @property
    def key(self) -> Key:
        return self.request.requester, self.request.number

    @property
    def address(self) -> Address:
        """The requester's, where it has one in this network; a unit's spokesman shows that of its old network."""
        return self.request.address if self.kind is Kind.GATEWAY else ()


@dataclass(frozen=True, slots=True)
class Granted:
    peer: Peer
    request: SetupRequest
    #: Who keeps the gateway free, and where an identifier is reserved.
    holder: Address
    enclosing: Unit | None
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    pending: int
    slots: int
    identifiers: int
    accepted: int
    redirected: int
    refused: int


class Admission:
    """One a broker.

    `joined_ns` is when this broker joined an existing network, None when it was there first; `unit_level` is the level
    of the unit that it came with (`Joined.unit_level`): inside that, nobody gave identifiers before.
    """

    def __init__(
        self, address: Address, fanout: int, rules: ConnectionRules, listen: tuple[str, ...] = (), *,
        joined_ns: int | None = None, unit_level: int = 0,
    ) -> None:  # fmt: skip
        self.address = address
        self.levels = len(address)
        self.fanout = fanout
        self.rules = rules
        self.listen = listen[:MAX_PLACE_LISTEN]
        self.slots = Slots(rules)
        self.registrar = Registrar(address, fanout, joined_ns, unit_level)
        self._pending: dict[Key, Pending] = {}
        self._granted: dict[Key, Granted] = {}
        self._accepted = self._redirected = self._refused = 0
        self._handlers: Mapping[type[Frame], Callable[[Any, Peer, Neighbourhood, int], list[Effect]]] = {
            SetupRequest: self._on_setup, SetupCancel: self._on_cancel,
            SlotRequest: self._on_slot_request, SlotReply: self._on_slot_reply, SlotRelease: self._on_slot_release,
            IdentifierRequest: self._on_registrar_frame, IdentifierReply: self._on_identifier_reply,
            IdentifierRelease: self._on_registrar_frame, SpokesmanRequest: self._on_registrar_frame,
        }  # fmt: skip

    def handles(self, frame: Frame) -> bool:
        return type(frame) in self._handlers

    def handle(self, frame: Frame, peer: Peer, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        """Take one frame; RemoteProtocolError when this peer must not send it."""
        if not peer.address and not isinstance(frame, SetupRequest | SetupCancel):
            raise RemoteProtocolError(f"{type(frame).__name__} from a node outside the network: send a SetupRequest")
        self.registrar.observe(neighbourhood.taken, now_ns)
        return self._handlers[type(frame)](frame, peer, neighbourhood, now_ns)

    def ask_to_speak(
        self, requester: str, number: int, unit_level: int, neighbourhood: Neighbourhood, now_ns: int
    ) -> list[Effect]:
        """Before this broker has its unit of that level added elsewhere: the unit lets one broker speak (NOP-14).

        The SpokesmanReply goes to this broker's own address, also when it is the registrar itself.
        """
        ask = SpokesmanRequest(requester, number, ancestor(self.address, unit_level), self.address)
        return self.handle(ask, Peer(self.address), neighbourhood, now_ns)

    def claim(self, requester: str, level: int, now_ns: int) -> bool:
        """A link of this level comes up from a node that was granted one: True when it may stay."""
        return self.slots.claim(requester, level, now_ns)

    def tick(self, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        """Give up on mates and registrars that do not answer, and on promises that nobody claimed."""
        self.registrar.observe(neighbourhood.taken, now_ns)
        self.slots.expire(now_ns)
        self._forget_grants(now_ns)
        effects: list[Effect] = []
        for pending in list(self._pending.values()):
            if now_ns >= pending.deadline_ns:
                if pending.grant is None:
                    effects += self._give_back_slot(pending, pending.asked)
                    effects += self._nothing_free(pending, neighbourhood)
                else:
                    effects += self._give_back_slot(pending, pending.grant.place.address)
                    effects += self._release_identifier(
                        pending.request, self._enclosing(pending), neighbourhood, now_ns
                    )
                    effects += self._refuse(pending, "the registrar did not answer: ask again", QUIET_NS // 1_000_000)
            elif pending.grant is None and now_ns >= pending.asked_until_ns:
                effects += self._give_back_slot(pending, pending.asked)
                effects += self._ask_next(pending, neighbourhood, now_ns)
        return effects

    def next_wakeup(self) -> int | None:
        times = [self.registrar.next_deadline(), self.slots.next_deadline()]
        for pending in self._pending.values():
            awaited = pending.deadline_ns if pending.grant else min(pending.asked_until_ns, pending.deadline_ns)
            times.append(awaited)
        return min((time for time in times if time is not None), default=None)

    def readdress(self, address: Address, unit_level: int, now_ns: int) -> list[Effect]:
        """This broker's unit was merged: open set-ups and promises were made under the old numbers, so they end."""
        effects: list[Effect] = []
        for pending in list(self._pending.values()):
            effects += self._refuse(pending, "this unit is being renumbered: ask again", 1000)
        self.address, self.levels = address, len(address)
        self.registrar.readdress(address, unit_level, now_ns)
        self.slots.clear()
        self._granted.clear()
        return effects

    def statistics(self) -> AdmissionStatistics:
        return AdmissionStatistics(
            len(self._pending), self.slots.count(), self.registrar.count(),
            self._accepted, self._redirected, self._refused,
        )  # fmt: skip

    def check(self) -> None:
        self.registrar.check()
        assert len(self._pending) <= MAX_PENDING and len(self._granted) <= MAX_GRANTED
        for level in range(self.levels):
            assert self.slots.count(level) <= self.rules.threshold(level)

    # --- the request ---

    def _on_setup(self, request: SetupRequest, peer: Peer, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        self._forget_grants(now_ns)
        key = request.requester, request.number
        if key in self._pending and _same(self._pending[key].peer, peer):
            return []
        verdict = judge(request, peer, self.address, self.rules)
        if key in self._pending:
            verdict = f"{request.requester} is asking this already from elsewhere"
        elif key in self._granted:
            # Neither repeated nor given again: whether the first grant was used is not known here.
            verdict = f"set-up {request.number} of {request.requester} was answered before: ask with a higher number"
        elif any(_rivals(request, other.request) for other in self._pending.values()):
            verdict = "another broker of the same unit is asking already: one node speaks for a unit"
        if isinstance(verdict, str):
            self._refused += 1
            return [_reply(peer, SetupRefused(request.requester, request.number, verdict))]
        if len(self._pending) >= MAX_PENDING:
            self._refused += 1
            busy = SetupRefused(request.requester, request.number, "too many set-ups at once", PENDING_NS // 1_000_000)
            return [_reply(peer, busy)]
        kind, level = verdict
        pending = Pending(request, peer, kind, level, now_ns + PENDING_NS)
        self._pending[key] = pending
        if kind is Kind.MEMBER and lowest_free(neighbourhood.taken.get(self._enclosing(pending), 0), self.fanout) < 0:
            return self._unit_full(pending, neighbourhood)
        if kind is Kind.REACH and not self._places(pending, (level,), neighbourhood):
            return self._nowhere_to_belong(pending, neighbourhood)
        if self.slots.reserve(key, level, pending.address, neighbourhood, now_ns):
            return self._slot_found(pending, Place(self.address, self.listen), neighbourhood, now_ns)
        mates = [member for member in neighbourhood.members if member.address != pending.address]
        mates.sort(key=lambda member: (not member.may_have_room(level), member.address))
        pending.mates = [member.address for member in mates]
        return self._ask_next(pending, neighbourhood, now_ns)

    # --- the gateway ---

    def _ask_next(self, pending: Pending, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        if not pending.mates:
            return self._nothing_free(pending, neighbourhood)
        pending.asked = pending.mates.pop(0)
        pending.asked_until_ns = now_ns + ASK_NS
        request = pending.request
        ask = SlotRequest(request.requester, request.number, pending.level, pending.peer.ip, pending.address)
        return [Send(pending.asked, ask)]

    def _on_slot_request(self, ask: SlotRequest, peer: Peer, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        if peer.address[:-1] != self.address[:-1]:
            raise RemoteProtocolError("SlotRequest from another cluster: ask a broker of your own")
        key = ask.requester, ask.number
        admitted = not ask.ip or self.rules.admits(ask.ip)
        granted = admitted and self.slots.reserve(key, ask.level, ask.address, neighbourhood, now_ns)
        places = tuple(neighbourhood.places(range(1, self.levels)))[:MAX_PLACES]
        links = tuple(neighbourhood.links_at(level) + self.slots.count(level) for level in range(self.levels))
        thresholds = tuple(self.rules.threshold(level) for level in range(self.levels))
        reply = SlotReply(*key, granted, self.listen, links, thresholds, () if granted else places)
        return [Send(peer.address, reply)]

    def _on_slot_reply(self, reply: SlotReply, peer: Peer, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        pending = self._pending.get((reply.requester, reply.number))
        if pending is None or pending.grant is not None or pending.asked != peer.address:
            return []  # late: the mate was told to forget it when its time was over
        if reply.granted:
            return self._slot_found(pending, Place(peer.address, reply.listen), neighbourhood, now_ns)
        pending.learnt += reply.gatekeepers[: MAX_PLACES - len(pending.learnt)]
        return self._ask_next(pending, neighbourhood, now_ns)

    def _on_slot_release(self, frame: SlotRelease, peer: Peer, hood: Neighbourhood, now_ns: int) -> list[Effect]:
        if peer.address[:-1] == self.address[:-1]:
            self.slots.release((frame.requester, frame.number))
        return []

    def _slot_found(self, pending: Pending, place: Place, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        pending.grant = Grant(pending.level, place)
        if pending.kind is not Kind.MEMBER:
            return self._accept(pending, pending.address, neighbourhood, now_ns)
        request = pending.request
        enclosing = self._enclosing(pending)
        ask = IdentifierRequest(request.requester, request.number, request.unit, enclosing, self.address)
        return self._on_registrar_frame(ask, Peer(self.address), neighbourhood, now_ns)

    def _give_back_slot(self, pending: Pending, holder: Address) -> list[Effect]:
        """Tell whoever keeps a gateway, or may have one kept in an answer that is still under way, to let it go."""
        return self._release_slot(pending.key, holder) if holder else []

    def _release_slot(self, key: Key, holder: Address) -> list[Effect]:
        if holder == self.address:
            self.slots.release(key)
            return []
        return [Send(holder, SlotRelease(*key))]

    # --- the identifier ---

    def _on_registrar_frame(
        self, frame: RegistrarFrame, peer: Peer, neighbourhood: Neighbourhood, now_ns: int
    ) -> list[Effect]:
        """As registrar or on the way to it; an answer to this broker itself needs no message."""
        effects: list[Effect] = []
        for send in self.registrar.handle(frame, neighbourhood.taken, now_ns):
            if send.to == self.address and isinstance(send.frame, IdentifierReply):
                effects += self._on_identifier_reply(send.frame, Peer(self.address), neighbourhood, now_ns)
            else:
                effects.append(send)
        return effects

    def _on_identifier_reply(
        self, reply: IdentifierReply, peer: Peer, neighbourhood: Neighbourhood, now_ns: int
    ) -> list[Effect]:
        pending = self._pending.get((reply.requester, reply.number))
        if pending is None or pending.grant is None:
            return []  # late: the registrar was told to forget it when its time was over
        enclosing = self._enclosing(pending)
        if not contains(enclosing, peer.address) or reply.identifier >= self.fanout:
            raise RemoteProtocolError(
                f"identifier {reply.identifier} is none that {format_address(peer.address)} can give here"
            )
        if reply.identifier >= 0:
            below = pending.level - pending.request.unit_level
            address = (*enclosing, reply.identifier, *(0,) * below)
            return self._accept(pending, address, neighbourhood, now_ns)
        effects = self._give_back_slot(pending, pending.grant.place.address)
        if reply.retry_ms:
            return effects + self._refuse(pending, reply.reason, reply.retry_ms)
        return effects + self._unit_full(pending, neighbourhood)

    def _release_identifier(
        self, request: SetupRequest, enclosing: Unit, neighbourhood: Neighbourhood, now_ns: int
    ) -> list[Effect]:
        frame = IdentifierRelease(request.requester, request.number, request.unit, enclosing, self.address)
        return self._on_registrar_frame(frame, Peer(self.address), neighbourhood, now_ns)

    def _enclosing(self, pending: Pending) -> Unit:
        """The unit that gets one more sub-unit."""
        return ancestor(self.address, pending.level + 1)

    # --- the answer ---

    def _accept(self, pending: Pending, address: Unit, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        assert pending.grant is not None
        request = pending.request
        if pending.kind is Kind.MEMBER:
            others = [level for level in decode_request(request.vector).levels if level != pending.level]
            places = self._places(pending, others, neighbourhood)
        else:
            places = self._places(pending, (pending.level,), neighbourhood) if pending.kind is Kind.REACH else ()
        answer = SetupAccepted(request.requester, request.number, address, pending.grant, places)
        while len(self._granted) >= MAX_GRANTED:
            del self._granted[next(iter(self._granted))]
        enclosing = self._enclosing(pending) if pending.kind is Kind.MEMBER else None
        self._granted[pending.key] = Granted(
            pending.peer, request, pending.grant.place.address, enclosing, now_ns + SLOT_HOLD_NS
        )
        self._accepted += 1
        return self._finish(pending, answer)

    def _forget_grants(self, now_ns: int) -> None:
        self._granted = {key: granted for key, granted in self._granted.items() if granted.deadline_ns > now_ns}

    def _nothing_free(self, pending: Pending, neighbourhood: Neighbourhood) -> list[Effect]:
        """NOP-10, third branch: no gateway of this level left in the cluster."""
        last = {Kind.MEMBER: self.levels - 1, Kind.REACH: pending.level - 1, Kind.GATEWAY: pending.level}[pending.kind]
        reason = f"no broker of this cluster has a level-{pending.level} gateway free"
        return self._redirect(pending, range(1, last + 1), reason, neighbourhood)

    def _unit_full(self, pending: Pending, neighbourhood: Neighbourhood) -> list[Effect]:
        """NOP-19: the block limit is reached, so only another enclosing unit can help."""
        kind = level_name(pending.level + 1) if pending.level + 1 < self.levels else "network"
        reason = f"the {kind} holds {self.fanout} {level_name(pending.level)}s already"
        return self._redirect(pending, range(pending.level + 1, self.levels), reason, neighbourhood)

    def _nowhere_to_belong(self, pending: Pending, neighbourhood: Neighbourhood) -> list[Effect]:
        """NOP-12: a gateway *to* this unit needs a member of another one; who is nearer to it may know one."""
        reason = f"no other {level_name(pending.level)} is known that could take the node"
        return self._redirect(pending, range(1, pending.level), reason, neighbourhood)

    def _redirect(
        self, pending: Pending, levels: Iterable[int], reason: str, neighbourhood: Neighbourhood
    ) -> list[Effect]:
        places = self._places(pending, levels, neighbourhood)
        if not places:
            return self._refuse(pending, reason, 0)
        self._redirected += 1
        request = pending.request
        return self._finish(pending, SetupRedirected(request.requester, request.number, reason, places))

    def _refuse(self, pending: Pending, reason: str, retry_ms: int) -> list[Effect]:
        self._refused += 1
        return self._finish(pending, SetupRefused(*pending.key, reason, min(retry_ms, MAX_RETRY_MS)))

    def _finish(self, pending: Pending, answer: Frame) -> list[Effect]:
        del self._pending[pending.key]
        return [_reply(pending.peer, answer)]

    def _places(
        self, pending: Pending, levels: Iterable[int], neighbourhood: Neighbourhood
    ) -> tuple[Place, ...]:  # fmt: skip
        """Gatekeepers at these levels, nearest first: this broker's own knowledge, then what mates told."""
        places: dict[Address, Place] = {}
        for level in levels:
            for place in neighbourhood.places((level,)):
                places.setdefault(place.address, place)
            for place in pending.learnt:
                if len(place.address) != self.levels or place.address == self.address:
                    continue
                if link_level(self.address, place.address) == level:
                    places.setdefault(place.address, place)
        return tuple(places.values())[:MAX_PLACES]

    def _on_cancel(self, frame: SetupCancel, peer: Peer, neighbourhood: Neighbourhood, now_ns: int) -> list[Effect]:
        """Give back what was promised; only who was promised can ask for that."""
        key = frame.requester, frame.number
        granted = self._granted.get(key)
        if granted is None or not _same(granted.peer, peer):
            return []
        del self._granted[key]
        effects = self._release_slot(key, granted.holder)
        if granted.enclosing is not None:
            effects += self._release_identifier(granted.request, granted.enclosing, neighbourhood, now_ns)
        return effects


def _reply(peer: Peer, frame: Frame) -> Effect:
    return Answer(peer.conversation, frame) if peer.conversation else Send(peer.address, frame)


def _same(one: Peer, other: Peer) -> bool:
    """Whether two frames may come from one node, perhaps over a new connection."""
    return one.address == other.address and one.ip == other.ip


def _rivals(one: SetupRequest, other: SetupRequest) -> bool:
    """Two spokesmen of one unit (NOP-14)."""
    return one.unit == other.unit and one.requester != other.requester
