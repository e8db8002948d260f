"""Where newcomers and members are attended to: the machines of membership carried out over the broker's links.

`membership` decides; this sends what it says: answers on the conversation that asked, frames to brokers near and far
(`courier`), news of a renumbering to neighbours alone, because addresses are what it changes.
"""

from __future__ import annotations

from collections.abc import Callable

from veena.address import Address
from veena.core.boundary.inputs_effects import AskToSpeak, Effect, MaySpeak, Merged, Restart
from veena.core.boundary.stored import Identity
from veena.core.links.link import Link
from veena.core.links.relay import Courier
from veena.core.membership.protocol import Answer, Peer
from veena.core.membership.protocol import Send as SendTo
from veena.core.membership.service import Membership, MembershipEffect, Surroundings
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.control import Frame, Routed
from veena.core.wire.membership import Renumber, SpokesmanReply
from veena.errors import VeenaError


class Reception:
    """One a broker. `links` are all of its links by number, `open_links` the greeted ones by connection."""

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
