"""Clients of a simulated network: who wants what, drawn from the seed, and the judge of what brokers believe of it.

A client attaches to a broker, subscribes, leaves, and comes back after its broker was restarted. The judge knows every
subscription and asks brokers about drawn events: a unit where somebody wants the event must be in the vector; one where
nobody does must not be, except where digests let it through.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from veena import matching
from veena.address import Address
from veena.core.boundary import ClientDown, ClientUp, Subscribe
from veena.event import Event
from veena.matching.engine import Constraint, Engine
from veena.sim.world import World

#: Events that each broker is asked about.
QUESTIONS = 6


@dataclass(slots=True)
class Client:
    """One client with one subscription."""

    name: str
    broker: Address
    engine: str
    constraint: Constraint
    scope: int
    session: int = 0
    #: The life of its broker that knows it.
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """How often brokers believed less than the truth, more than it where they should be exact, and more by a digest."""

    asked: int
    narrower: int
    wider: int
    digest_false_positives: int


class Population:
    """The clients of one world."""

    def __init__(self, world: World, clients: int, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self._sessions = 0
        addresses = list(world.nodes)
        levels = world.network.levels
        self.clients = [
            Client(
                f"client-{n}",
                chance.choice(addresses),
                *draw_subscription(chance),
                chance.choice((levels, levels, n % levels + 1)),
            )
            for n in range(clients)
        ]

    def attach(self) -> None:
        """Every client whose broker lives and does not know it attaches and subscribes."""
        for client in self.clients:
            broker = self._world.nodes[client.broker].broker
            if broker is not None and broker.identity.incarnation != client.incarnation:
                self._sessions += 1
                client.session, client.incarnation = self._sessions, broker.identity.incarnation
                self._world.give(client.broker, ClientUp(client.session, client.name))
                self._subscribe(client)

    def churn(self, count: int) -> None:
        """Some clients leave and come back at once with another wish."""
        for client in self._chance.sample(self.clients, min(count, len(self.clients))):
            if client.incarnation:
                self._world.give(client.broker, ClientDown(client.session))
                client.engine, client.constraint = draw_subscription(self._chance)
                client.incarnation = 0
        self.attach()

    def _subscribe(self, client: Client) -> None:
        self._world.give(client.broker, Subscribe(client.session, 1, client.engine, client.constraint, client.scope))

    def judge(self) -> Judgement:
        """Ask every live broker about some events."""
        asked = narrower = wider = false_positives = 0
        live = [client for client in self.clients if self._world.nodes[client.broker].broker is not None]
        profiles = [_engine(client) for client in live]
        oracle = self._world.oracle()
        for broker in list(self._world.live()):
            host, interest = broker.identity.address, broker.profiles.interest
            for _ in range(QUESTIONS):
                event = draw_event(self._chance)
                wanting = [
                    client.broker
                    for client, engine in zip(live, profiles, strict=True)
                    if host[: len(host) - client.scope] == client.broker[: len(host) - client.scope]
                    and engine.match(event)
                ]
                vector = interest.destinations(event, host)
                for unit in broker.map.vertices():
                    if unit == host:
                        continue
                    asked += 1
                    told = bool(vector & interest.bit(unit))
                    # A part of a unit that nothing joins to the host any more can neither tell nor be served.
                    wanted = any(
                        address[: len(unit)] == unit and oracle.are_joined(host, address, unit[:-1])
                        for address in wanting
                    )
                    narrower += wanted and not told
                    exact = len(host) - len(unit) < 2
                    wider += told and not wanted and exact
                    false_positives += told and not wanted and not exact
        return Judgement(asked, narrower, wider, false_positives)


def _engine(client: Client) -> Engine:
    engine = matching.create(client.engine)
    engine.add(1, client.constraint, 1)
    return engine


def draw_subscription(chance: Random) -> tuple[str, Constraint]:
    """A wish in one of the languages, over the small vocabulary of `draw_event`."""
    engine = chance.choice(("integer", "topic", "selector", "selector", "tags", "constraint", "xpath"))
    number = chance.randrange(5)
    selectors = ("", f"price > {number}", f"price BETWEEN {number} AND {number + 2}", "sym LIKE 's1%'")
    wishes: dict[str, Constraint] = {
        "integer": number,
        "topic": f"topic-{number}",
        "selector": (f"topic-{chance.randrange(3)}", chance.choice(selectors)),
        "tags": f"make=m{chance.randrange(3)},colour={chance.choice(('*', 'c1', 'c2'))}",
        "constraint": chance.choice((f"price > {number}", f"sym == 's{number}'", "not exist nothing")),
        "xpath": f"/menu/drink[price > {number}]",
    }
    return engine, wishes[engine]


def draw_event(chance: Random) -> Event:
    """An event with some of the fields that wishes are about."""
    return Event(
        topic=f"topic-{chance.randrange(6)}" if chance.random() < 0.6 else None,
        integer=chance.randrange(6) if chance.random() < 0.3 else None,
        tags=f"make=m{chance.randrange(4)},colour=c{chance.randrange(3)}" if chance.random() < 0.3 else None,
        properties={"price": chance.randrange(7), "sym": f"s{chance.randrange(20)}"} if chance.random() < 0.6 else {},
        xml=f"<menu><drink><price>{chance.randrange(7)}</price></drink></menu>" if chance.random() < 0.3 else None,
    )
