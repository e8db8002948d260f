"""The subscriptions of a client as a witness saw them, for the oracle of explanations."""

from __future__ import annotations

from dataclasses import dataclass, field

from veena import matching
from veena.address import Address
from veena.core.durable.groups import group_id
from veena.core.interest.constraint import KINDS, make_want
from veena.event import Event
from veena.matching.base.engine import Engine
from veena.sim.clients.durable import DurableClient, DurableClients
from veena.sim.clients.groups import Member
from veena.sim.clients.population import Client, Wish, create_engine
from veena.sim.clients.traffic import Traffic
from veena.sim.explaining.witness import WatchedWorld

#: What a device can do, and what an event asks of it.
CAPABILITIES, NEEDS = "capabilities", "needs"
#: Whom questions are about.
Somebody = Client | DurableClient | Member
#: What tells one subscription at one broker from all others.
Name = tuple[Address, int, int, int]


@dataclass(frozen=True, slots=True)
class Stood:
    """A subscription as the witness saw it."""

    client: str
    wish: Wish
    engine: Engine
    broker: Address
    session: int
    number: int
    begun_ns: int
    #: None while it stands.
    ended_ns: int | None
    durable: bool = False
    #: What the client's device can do.
    attributes: dict[str, str] = field(default_factory=dict)
    #: The id of the group that shares it.
    group: str = ""
    #: Where a durable subscription went from here, one after the other: that it was deleted is known at the last.
    later: tuple[Address, ...] = ()

    @property
    def name(self) -> Name:
        return (self.broker, self.session, self.number, self.begun_ns)

    def matches(self, event: Event) -> bool:
        return bool(self.engine.match(event))

    def fits(self, event: Event) -> bool:
        """Devices of the simulation say what they can show, and nothing else."""
        needs = event.headers.get(NEEDS)
        return needs is None or CAPABILITIES not in self.attributes or needs in self.attributes[CAPABILITIES].split(",")

    def in_scope(self, origin: Address) -> bool:
        size = len(origin) - self.wish.scope
        return origin[:size] == self.broker[:size]

    def term(self, event: Event) -> str:
        """What of its constraint is not satisfied."""
        kind = make_want(*self.wish).kind  # an empty selector is stored as its topic
        engine = self.engine
        if KINDS[kind] != self.wish.engine:
            engine = matching.create(KINDS[kind])
            engine.add(1, make_want(*self.wish).constraint, 1)
        return f"{KINDS[kind]}: {engine.explain(1, event)}"


def stays_of(somebody: Somebody, world: WatchedWorld, traffic: Traffic, durables: DurableClients) -> list[Stood]:
    """Everything that a client ever subscribed to."""
    if isinstance(somebody, Client):
        attributes = world.attributes.get(somebody.name, {})
        return [
            Stood(
                somebody.name, each.wish, each.engine, each.broker, each.session, each.number, each.begun_ns,
                each.ended_ns, attributes=attributes,
            )
            for each in traffic.population.history
            if each.client is somebody
        ]  # fmt: skip
    if isinstance(somebody, Member):
        return [_of_member(world, at) for at, each in enumerate(world.memberships) if each.client == somebody.name]
    return [
        Stood(
            somebody.name, each.wish, each.engine, stay.broker, stay.want.session, stay.want.number,
            stay.want.begun_ns, each.deleted_ns, True, later=tuple(later.broker for later in each.stays[place:]),
        )
        for each in durables.history
        if each.client is somebody
        for place, stay in enumerate(each.stays)
    ]  # fmt: skip


def _of_member(world: WatchedWorld, at: int) -> Stood:
    found = world.memberships[at]
    given = found.given
    wish = Wish(given.engine, given.constraint, given.scope)
    return Stood(
        found.client, wish, create_engine(wish), found.broker, given.session, given.subscription, found.begun_ns,
        found.ended_ns, group=group_id(given.group, make_want(*wish)),
    )  # fmt: skip
