"""A broker as a member of its network: who is let in, and what happens when its unit moves.

This joins the machines of the node organisation protocol (`admission`, `renumbering`) to the broker's map and links.
They ask for a view of the neighbourhood; here it is made from what the broker knows anyway:

- *identifiers in use* are those of every unit that a connection was ever heard of, lost ones included while they are
  remembered, so that a broker that is down for an hour finds its place free;
- *gatekeepers* beyond the gates are asked for when a newcomer comes (`gateway_directory`).

Frames for another broker travel inside `Routed`, hop by hop along the routing cache. One that finds no way is dropped:
every question of the protocol has a time-out and can be asked again.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address
from veena.core.boundary.inputs_effects import Merged
from veena.core.boundary.settings import ConnectionRules
from veena.core.boundary.stored import Identity
from veena.core.links.link import Link
from veena.core.membership.admission import Admission, AdmissionStatistics
from veena.core.membership.gateway_directory import Gates
from veena.core.membership.protocol import Answer, Member, Neighbourhood, Peer
from veena.core.membership.protocol import Send as SendTo
from veena.core.membership.renumbering import Readdressed, Renegotiation
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import Frame
from veena.core.wire.membership import GateReply, GateRequest, Renumber, SetupRequest, SpokesmanReply

MembershipEffect = SendTo | Answer | Readdressed


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of a broker that its membership looks at."""

    network: NetworkMap
    table: ConnectionTable
    links: list[Link]


class Membership:
    """One a broker."""

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
