"""A world that keeps what a witness of everything saw: the evidence that explanations of brokers are held against.

It sees what brokers are given and what they say at their boundary, which copies cross which link, and what breaks and
heals. It never looks into a broker.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import NamedTuple

from veena.address import Address, Unit
from veena.core.boundary import Accepted, Active, ClientDown, Input
from veena.core.broker import Broker
from veena.core.event_frame import EventFrame
from veena.core.service_boundary import SessionClear, SessionClogged
from veena.event import EventId
from veena.runtime.network_file import Network
from veena.sim.network import VirtualLink
from veena.sim.options import Options
from veena.sim.world import ClientEffect, MakeBroker, World


class Crossing(NamedTuple):
    """A copy that was written to a link."""

    at_ns: int
    sender: Address
    receiver: Address
    to_serve: int


class WatchedWorld(World):
    """A world with a witness."""

    def __init__(self, network: Network, seed: int, options: Options, make_broker: MakeBroker = Broker) -> None:
        #: When something broke or healed, and which broker died when.
        self.disturbed_ns: list[int] = []
        self.crashes: dict[Address, list[int]] = defaultdict(list)
        self.crossings: dict[EventId, list[Crossing]] = defaultdict(list)
        self.accepted: dict[EventId, tuple[int, Address]] = {}
        #: (session, subscription) -> level -> since when it is acknowledged up to it.
        self.levels: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        #: When a session did not read: (from, to), to 0 while it lasts.
        self.clogged: dict[int, list[list[int]]] = defaultdict(list)
        super().__init__(network, seed, options, make_broker=make_broker)

    # --- what is given and said ---

    def give(self, address: Address, given: Input) -> None:
        if isinstance(given, SessionClogged):
            self.clogged[given.session].append([self.now_ns, 0])
        elif isinstance(given, SessionClear | ClientDown) and self.clogged.get(given.session):
            self.clogged[given.session][-1][1] = self.now_ns
        super().give(address, given)

    def heard(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Accepted):
            self.accepted[effect.id] = (self.now_ns, address)
        elif isinstance(effect, Active):
            self.levels[effect.session, effect.subscription].setdefault(effect.level, self.now_ns)

    def crossed(self, sender: Address, receiver: Address, frame: EventFrame) -> None:
        self.crossings[frame.id].append(Crossing(self.now_ns, sender, receiver, frame.to_serve))

    def was_clogged(self, session: int, at_ns: int) -> bool:
        return any(start <= at_ns and (not end or at_ns <= end) for start, end in self.clogged.get(session, ()))

    def was_sent(self, event_id: EventId, sender: Address, unit: Unit) -> bool:
        """Whether a broker ever sent a copy on for this unit."""
        bit = 1 << ((self.network.levels - len(unit)) * self.network.fanout + unit[-1])
        return any(each.sender == sender and each.to_serve & bit for each in self.crossings.get(event_id, ()))

    # --- what breaks ---

    def start(self, address: Address) -> None:
        self.disturbed_ns.append(self.now_ns)
        super().start(address)

    def crash(self, address: Address, silent: bool) -> None:
        self.disturbed_ns.append(self.now_ns)
        self.crashes[address].append(self.now_ns)
        super().crash(address, silent)

    def connect(self, link: VirtualLink) -> None:
        self.disturbed_ns.append(self.now_ns)
        super().connect(link)

    def cut(self, link: VirtualLink, silent: bool) -> None:
        self.disturbed_ns.append(self.now_ns)
        super().cut(link, silent)

    def heal(self, link: VirtualLink) -> None:
        self.disturbed_ns.append(self.now_ns)
        super().heal(link)

    def is_disturbed(self, from_ns: int, to_ns: int) -> bool:
        """Whether anything broke, healed or came up in that time."""
        return any(from_ns <= each <= to_ns for each in self.disturbed_ns)

    def has_crashed(self, address: Address, from_ns: int, to_ns: int) -> bool:
        return any(from_ns <= each <= to_ns for each in self.crashes.get(address, ()))

    def any_live(self, chance: Random) -> Address | None:
        live = [address for address, node in self.nodes.items() if node.broker is not None]
        return chance.choice(live) if live else None
