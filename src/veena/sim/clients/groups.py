"""Groups of clients that share a subscription: members come and go, die with their broker, and go on elsewhere.

The first member of a group subscribes before the others, who wait until it was told that the group is acknowledged: so
there is one home, as far as brokers can know (`shared`). From then on members leave with and without a word, or only
give up the subscription, and are back later, there or elsewhere. Each acknowledges what it got, at once or after a
while. What the group got is kept, copy by copy, for the judge (`judges.groups`).

Some members may not have every second topic, nor some of them what has no topic: then the broker is told that the
event was denied, as its driver would tell it, and the event counts for another member.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from veena.address import Address
from veena.core.boundary.explain import Denied
from veena.core.boundary.inputs_effects import (
    Acknowledge,
    Active,
    ClientDown,
    ClientRefused,
    ClientUp,
    Deliver,
    Had,
    Subscribe,
    Unsubscribe,
)
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.event import EventFrame
from veena.event import Event, EventId
from veena.matching.base.engine import Engine
from veena.sim.clients.population import AWAY_NS, Client, Subscription, Wish, create_engine, draw_subscription
from veena.sim.clients.traffic import PULSE_NS, Publication, Traffic
from veena.sim.world.world import ClientEffect, World

#: How many a group has.
MEMBERS = (2, 5)
#: How long a member is away on its own account, and how long it takes to acknowledge at most.
ABSENCES_NS = ((10 * MILLISECOND_NS, 500 * MILLISECOND_NS), (SECOND_NS, 15 * SECOND_NS))
PAUSES_NS = (0, 300 * MILLISECOND_NS, 3 * SECOND_NS)


@dataclass(slots=True, eq=False)
class Copy:
    """An event that a member of a group was handed."""

    id: EventId
    member: str
    at_ns: int
    redelivered: bool
    is_acknowledged: bool = False


@dataclass(slots=True, eq=False)
class Member:
    """One client; `session` is 0 while it is with no broker, `number` while it does not share."""

    name: str
    broker: Address
    pause_ns: int
    session: int = 0
    incarnation: int = 0
    back_ns: int = 0
    number: int = 0
    next_number: int = 1
    #: Which topics it may not have, if any: those whose characters add up to a number of this parity.
    denied: int | None = None
    #: Whether it was told, in this membership, that the group is acknowledged.
    is_active: bool = False
    #: What it will acknowledge next, and the last place of each stream since it joined.
    due: list[Copy] = field(default_factory=list)
    had: Had = field(default_factory=dict)

    def may_have(self, event: Event) -> bool:
        return self.denied is None or sum((event.topic or "").encode()) % 2 != self.denied


@dataclass(slots=True, eq=False)
class Group:
    """Who shares a subscription, and what they got."""

    name: str
    wish: Wish
    engine: Engine
    members: list[Member]
    #: Since when everything is promised to it: one of them was told that it is acknowledged for its scope.
    active_ns: int | None = None
    got: dict[Publication, list[Copy]] = field(default_factory=dict)
    #: Where members ever subscribed: one of these brokers keeps the group.
    places: dict[Address, Subscription] = field(default_factory=dict)


class GroupClients:
    """The groups of one world."""

    def __init__(self, world: World, traffic: Traffic, count: int, chance: Random) -> None:
        self._world = world
        self._traffic = traffic
        self._chance = chance
        addresses = list(world.nodes)
        self.groups: list[Group] = []
        #: How often a member was not given what it may not have.
        self.denied = 0
        for number in range(count):
            wish = Wish(*draw_subscription(chance, world.options.costly), world.network.levels)
            members = [
                Member(f"group-{number}-{each}", chance.choice(addresses), chance.choice(PAUSES_NS))
                for each in range(chance.randint(*MEMBERS))
            ]
            for at, member in enumerate(members[1 : 1 + world.options.denials]):
                member.denied = at % 2
            self.groups.append(Group(f"group-{number}", wish, create_engine(wish), members))

    # --- coming and going ---

    def plan(self, partings: int, begin_ns: int, end_ns: int) -> None:
        """Let members go away so many times."""
        for _ in range(partings if self.groups else 0):
            group = self._chance.choice(self.groups)
            member = self._chance.choice(group.members)
            self._world.at(self._chance.randrange(begin_ns, end_ns), lambda g=group, m=member: self._go(g, m))  # type: ignore[misc]

    def pulse(self) -> None:
        """Members look whether their broker is there, now and from now on."""
        for group in self.groups:
            for member in group.members:
                self._look(group, member)
        self._world.at(self._world.now_ns + PULSE_NS, self.pulse)

    def _look(self, group: Group, member: Member) -> None:
        now_ns, chance = self._world.now_ns, self._chance
        node = self._world.nodes[member.broker]
        if member.session and (node.broker is None or node.broker.identity.incarnation != member.incarnation):
            self._detach(member)
            member.back_ns = now_ns + chance.randint(*AWAY_NS)
            if node.lost or chance.random() < 0.5:
                member.broker = chance.choice(list(self._world.nodes))
        elif not member.session and node.broker is None and now_ns >= member.back_ns + AWAY_NS[1]:
            member.broker = chance.choice(list(self._world.nodes))
        is_first = member is group.members[0]
        if not member.number and now_ns >= member.back_ns and (is_first or group.active_ns is not None):
            self._attach(group, member)

    def _attach(self, group: Group, member: Member) -> None:
        broker = self._world.nodes[member.broker].broker
        if broker is None:
            return
        if not member.session:
            member.session, member.incarnation = self._world.new_session(), broker.identity.incarnation
            self._traffic.listeners[member.session] = lambda address, effect: self._hear(group, member, effect)
            self._world.give(member.broker, ClientUp(member.session, member.name))
        member.number, member.next_number = member.next_number, member.next_number + 1
        if member.broker not in group.places:
            # One of these places is the home; which, is the brokers' business: they may believe either of each.
            group.places[member.broker] = Subscription(
                Client(group.name, member.broker, []), member.broker, member.session, member.number, group.wish,
                group.engine, self._world.now_ns, is_former=True,
            )  # fmt: skip
            self._traffic.population.others.append(group.places[member.broker])
        given = Subscribe(member.session, member.number, *group.wish, durable="kept", group=group.name)
        self._world.give(member.broker, given)

    def _detach(self, member: Member) -> None:
        self._traffic.listeners.pop(member.session, None)
        member.session = 0
        self._stop(member)

    def _stop(self, member: Member) -> None:
        member.number, member.is_active = 0, False
        member.due.clear()
        member.had.clear()

    def _go(self, group: Group, member: Member) -> None:
        if not member.number:
            return
        chance = self._chance
        if chance.random() < 0.5:
            self._acknowledge(member)
        if chance.random() < 0.2:
            self._world.give(member.broker, Unsubscribe(member.session, member.number))
            self._stop(member)
        else:
            self._world.give(member.broker, ClientDown(member.session, chance.random() < 0.5))
            self._detach(member)
            if chance.random() < 0.6:
                member.broker = chance.choice(list(self._world.nodes))
        member.back_ns = self._world.now_ns + chance.randint(*chance.choice(ABSENCES_NS))
        self._world.at(member.back_ns, lambda: self._look(group, member))

    def gather(self) -> None:
        """Everything has healed: let everybody be there."""
        live = [address for address, node in self._world.nodes.items() if node.broker is not None]
        for group in self.groups:
            for member in group.members:
                member.back_ns = min(member.back_ns, self._world.now_ns)
                if self._world.nodes[member.broker].broker is None:
                    member.broker = self._chance.choice(live)
                self._look(group, member)

    # --- what brokers say ---

    def _hear(self, group: Group, member: Member, effect: ClientEffect) -> None:
        if isinstance(effect, Deliver):
            for _, numbers in effect.receivers:
                self._receive(group, member, effect.frame, numbers)
        elif isinstance(effect, Active) and effect.subscription == member.number and effect.level >= group.wish.scope:
            member.is_active = True
            group.active_ns = group.active_ns or self._world.now_ns
        elif isinstance(effect, ClientRefused):
            self._traffic.faults.append(f"{member.name}: refused: {effect.reason}")

    def _receive(self, group: Group, member: Member, frame: EventFrame, numbers: tuple[int, ...]) -> None:
        publication = self._traffic.known(frame, member.name)
        if publication is None:
            return
        if numbers != (member.number,) or not group.engine.match(publication.event):
            self._traffic.faults.append(f"{frame.id} was handed to {member.name} for {numbers}, which it is not for")
            return
        if not member.may_have(publication.event):
            session, number = member.session, member.number
            self._world.at(self._world.now_ns, lambda: self._deny(member, session, number, frame))
            return
        copy = Copy(frame.id, member.name, self._world.now_ns, frame.redelivered)
        group.got.setdefault(publication, []).append(copy)
        stream, place = (frame.publisher, frame.incarnation, frame.lane_number), (frame.timestamp, frame.sequence)
        if not frame.redelivered and not frame.late:
            if place < member.had.get(stream, place):
                self._traffic.out_of_order.append(f"{frame.id} reached {member.name} after {member.had[stream]}")
            member.had[stream] = place
        if publication.reliable:
            member.due.append(copy)
            session = member.session
            at_ns = self._world.now_ns + self._chance.randint(0, member.pause_ns)
            self._world.at(at_ns, lambda: self._acknowledge(member) if member.session == session else None)

    def _deny(self, member: Member, session: int, number: int, frame: EventFrame) -> None:
        """The member may not have an event: its broker hears so, if both are still there."""
        node = self._world.nodes[member.broker]
        if member.session != session or node.broker is None:
            return
        if node.broker.identity.incarnation == member.incarnation:
            self.denied += 1
            self._world.give(member.broker, Denied(session, frame, "", (number,)))

    def _acknowledge(self, member: Member) -> None:
        node = self._world.nodes[member.broker]
        if member.number and node.broker is not None and node.broker.identity.incarnation == member.incarnation:
            due, member.due = member.due, []
            for copy in due:
                copy.is_acknowledged = True
            if due:
                ids = tuple(copy.id for copy in due)
                self._world.give(member.broker, Acknowledge(member.session, member.number, ids))
