"""A broker as a member of its network: who is let in, and what happens when its unit moves.

This joins the machines of the node organisation protocol (`admission`, `renumbering`) to the broker's map and links.
They ask for a view of the neighbourhood; here it is made from what the broker knows anyway:

- *identifiers in use* are those of every unit that a connection was ever heard of, lost ones included while they are
  remembered, so that a broker that is down for an hour finds its place free;
- *gatekeepers* beyond the gates are asked for when a newcomer comes (`gateway_directory`).

`Membership` decides, and `Reception` sends what it says: answers on the conversation that asked, frames to brokers near
and far (`relay`), news of a renumbering to neighbours alone, because addresses are what it changes.

Frames for another broker travel inside `Routed`, hop by hop along the routing cache. One that finds no way is dropped:
every question of the protocol has a time-out and can be asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veena.address import Address
from veena.core.boundary.inputs_effects import AskToSpeak, Effect, MaySpeak, Merged, Restart
from veena.core.boundary.settings import ConnectionRules
from veena.core.boundary.stored import Identity
from veena.core.links.link import Link
from veena.core.links.relay import Courier
from veena.core.membership.admission import Admission, AdmissionStatistics
from veena.core.membership.gateway_directory import Gates
from veena.core.membership.protocol import Answer, Member, Neighbourhood, Peer
from veena.core.membership.protocol import Send as SendTo
from veena.core.membership.renumbering import Readdressed, Renegotiation
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import Frame, Routed
from veena.core.wire.membership import GateReply, GateRequest, Renumber, SetupRequest, SpokesmanReply
from veena.errors import VeenaError

MembershipEffect = SendTo | Answer | Readdressed


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of a broker that its membership looks at."""

    network: NetworkMap
    table: ConnectionTable
    links: list[Link]


class Membership:
    """The machines of the node organisation protocol of one broker; they send nothing themselves."""

    def __init__(
        self,
        identity: Identity,
        fanout: int,
        rules: ConnectionRules,
        listen: tuple[str, ...],
        joined_ns: int | None,
        now_ns: int,
    ) -> None:
        self.name, address = identity.name, identity.address
        # Whoever was restarted knows neither its mates yet nor what it had reserved: as registrar it is a new one.
        since_ns = joined_ns if identity.incarnation <= 1 else now_ns
        self._admission = Admission(address, fanout, rules, listen, joined_ns=since_ns)
        self._renegotiation = Renegotiation(address, fanout)
        self._gates = Gates(address)

    def handles(self, frame: Frame) -> bool:
        return self._admission.handles(frame) or isinstance(frame, Renumber | SpokesmanReply | GateRequest | GateReply)

    def handle(self, frame: Frame, peer: Peer, around: Surroundings, now_ns: int) -> list[MembershipEffect]:
        if isinstance(frame, SetupRequest):
            asked = self._gates.hold(frame, peer, around.network, now_ns)
            if asked is not None:
                return [*asked, *self._answer_ready(around, now_ns)]
        elif isinstance(frame, GateRequest):
            return list(self._gates.asked(frame, around.network, around.links))
        elif isinstance(frame, GateReply):
            self._gates.answered(frame, peer.address, around.network)
            return self._answer_ready(around, now_ns)
        elif isinstance(frame, Renumber):
            near = [link.neighbour for link in around.links if link.neighbour is not None]
            return list(self._renegotiation.handle(frame, peer.address, near, (), now_ns))  # type: ignore[arg-type]
        return list(self._admission.handle(frame, peer, self._neighbourhood(around), now_ns))

    def _answer_ready(self, around: Surroundings, now_ns: int) -> list[MembershipEffect]:
        """Let admission judge the newcomers whose wait for the gates is over."""
        effects: list[MembershipEffect] = []
        for held in self._gates.ready(now_ns):
            effects += self._admission.handle(held.request, held.peer, self._neighbourhood(around), now_ns)
        return effects

    def claim(self, requester: str, level: int, now_ns: int) -> bool:
        """A link came up: whether it was granted, and so is no longer kept free for that node."""
        return self._admission.claim(requester, level, now_ns)

    def ask_to_speak(self, number: int, unit_level: int, around: Surroundings, now_ns: int) -> list[MembershipEffect]:
        return list(self._admission.ask_to_speak(self.name, number, unit_level, self._neighbourhood(around), now_ns))

    def merged(self, given: Merged, around: Surroundings, now_ns: int) -> list[MembershipEffect]:
        """The unit that this broker speaks for has a new place."""
        near = [link.neighbour for link in around.links if link.neighbour is not None]
        frame = Renumber(self.name, given.number, given.old, given.new, given.network)
        return list(self._renegotiation.begin(frame, near, (), now_ns))  # type: ignore[arg-type]

    def tick(self, around: Surroundings, now_ns: int) -> list[MembershipEffect]:
        due = self.next_wakeup()
        if due is None or now_ns < due:
            return []
        return [*self._answer_ready(around, now_ns), *self._admission.tick(self._neighbourhood(around), now_ns)]

    def next_wakeup(self) -> int | None:
        due = (self._admission.next_wakeup(), self._gates.next_wakeup())
        return min((time for time in due if time is not None), default=None)

    def statistics(self) -> AdmissionStatistics:
        return self._admission.statistics()

    def check(self) -> None:
        self._admission.check()

    def _neighbourhood(self, around: Surroundings) -> Neighbourhood:
        """What admission needs to know, as plain data."""
        network, links = around.network, around.links
        host = network.host
        counts = [0] * network.levels
        near: dict[Address, tuple[str, ...]] = {}
        for link in links:
            if link.neighbour is not None:
                counts[link.level] += 1
                near[link.neighbour] = link.listen
        taken = {host[:size]: 1 << host[size] for size in range(network.levels)}
        for record in around.table.everything():
            for end in (record.low, record.high):
                if host[: len(end) - 1] == end[:-1]:
                    taken[end[:-1]] |= 1 << end[-1]
        mates = [unit for unit in network.siblings(0) if unit != host]
        return Neighbourhood(
            tuple(counts),
            tuple(near),
            tuple(Member(mate, near.get(mate, ())) for mate in mates),
            self._gates.places(links, network.levels),
            taken,
        )


class Reception:
    """Where newcomers and members are attended to; one a broker.

    `links` are all of its links by number, `open_links` the greeted ones by connection.
    """

    def __init__(
        self,
        identity: Identity,
        network_name: str,
        membership: Membership,
        courier: Courier,
        surroundings: tuple[NetworkMap, ConnectionTable],
        links: dict[int, Link],
        open_links: dict[int, Link],
    ) -> None:
        self.identity = identity
        self._network_name = network_name
        self.membership = membership
        self.courier = courier
        #: What else comes from afar, and who takes it: frame, origin, time.
        self.routed: dict[type[Frame], Callable[[Frame, Address, int], None]] = {}
        self.map, self._table = surroundings
        self._links = links
        self._open = open_links
        #: Questions whether this broker may speak for its unit that are not answered yet.
        self._asked: dict[int, None] = {}

    def handles(self, frame: Frame) -> bool:
        return self.membership.handles(frame)

    def take(self, frame: Frame, link: Link, now_ns: int) -> list[Effect]:
        """A frame that came over a link, from a neighbour or from somebody without an address."""
        return self._consult(frame, Peer(link.neighbour or (), link.number, link.ip), now_ns)

    def take_routed(self, frame: Routed, now_ns: int) -> list[Effect]:
        """A frame that came from afar, or is on its way to there."""
        inner = self.courier.take(frame, now_ns)
        if inner is None or isinstance(inner, Renumber):
            return []
        handler = self.routed.get(type(inner))
        if handler is None and not self.handles(inner):
            return []
        try:
            if handler is not None:
                handler(inner, frame.origin, now_ns)
                return []
            return self._consult(inner, Peer(frame.origin), now_ns)
        except VeenaError:
            return []  # the fault of its origin: the neighbour who passed it on is innocent

    def ask_to_speak(self, given: AskToSpeak, now_ns: int) -> list[Effect]:
        self._asked[given.number] = None
        asked = self.membership.ask_to_speak(given.number, given.unit_level, self._around(), now_ns)
        return self._follow(asked, now_ns)

    def merged(self, given: Merged, now_ns: int) -> list[Effect]:
        return self._follow(self.membership.merged(given, self._around(), now_ns), now_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        return self._follow(self.membership.tick(self._around(), now_ns), now_ns)

    def _around(self) -> Surroundings:
        return Surroundings(self.map, self._table, list(self._open.values()))

    def _consult(self, frame: Frame, peer: Peer, now_ns: int) -> list[Effect]:
        if isinstance(frame, SpokesmanReply):
            if frame.number not in self._asked:
                return []  # an answer to nothing that was asked here
            del self._asked[frame.number]
            return [MaySpeak(frame.number, frame.granted, frame.reason)]
        if not self.handles(frame):
            return []  # an answer to this broker itself, which never asks to be let in
        return self._follow(self.membership.handle(frame, peer, self._around(), now_ns), now_ns)

    def _follow(self, decided: list[MembershipEffect], now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for each in decided:
            if isinstance(each, Answer):
                link = self._links.get(each.conversation)
                if link is not None:
                    link.send(each.frame, now_ns)
            elif isinstance(each, SendTo):
                effects += self._send(each, now_ns)
            else:
                identity = Identity(self.identity.name, each.address, self.identity.incarnation)
                effects.append(Restart(identity, each.network or self._network_name))
        return effects

    def _send(self, each: SendTo, now_ns: int) -> list[Effect]:
        if isinstance(each.frame, Renumber):
            for link in self._open.values():
                if link.neighbour == each.to:
                    link.send(each.frame, now_ns)
        elif not self.courier.is_here(each.to):
            self.courier.send(each.to, each.frame, now_ns)
        else:
            return self._consult(each.frame, Peer(self.identity.address), now_ns)
        return []
