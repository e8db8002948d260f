"""Clients of a simulated network: who wants what, drawn from the seed, and the judge of what brokers believe of it.

A client attaches to a broker, subscribes, changes its mind, roams, and comes back after its broker was restarted,
presenting what it had. Every subscription is kept with its times, because afterwards the judge asks who was entitled to
which event. It also asks brokers about drawn events: a unit where somebody wants the event must be in the vector; one
where nobody does must not be, except where digests let it through.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from veena import matching
from veena.address import Address
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Had, Subscribe, Unsubscribe
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.event_id import Place, Stream
from veena.event import Event
from veena.matching.base.engine import Constraint, Engine
from veena.sim.world.world import World

#: Events that each broker is asked about.
QUESTIONS = 6
MAX_WISHES = 3
#: Every so manieth client would rather be cut off than miss something when it does not read.
IMPATIENT = 4
#: How long brokers may take to hear that a subscription has left or is no more.
WITHDRAWN_NS = 20 * SECOND_NS
#: How long a client whose broker died waits before it tries again.
AWAY_NS = (100 * MILLISECOND_NS, 4 * SECOND_NS)


class Wish(NamedTuple):
    """What a client wants, and how far around it."""

    engine: str
    constraint: Constraint
    scope: int


@dataclass(slots=True, eq=False)
class Subscription:
    """A wish while its client is with one broker: from subscribing to its end."""

    client: Client
    broker: Address
    session: int
    number: int
    wish: Wish
    engine: Engine
    begun_ns: int
    ended_ns: int | None = None
    #: Since when it is acknowledged for its scope.
    active_ns: int | None = None
    #: Its client is elsewhere: brokers may believe either.
    is_former: bool = False

    def matches(self, event: Event, origin: Address) -> bool:
        size = len(origin) - self.wish.scope
        return origin[:size] == self.broker[:size] and bool(self.engine.match(event))


@dataclass(slots=True, eq=False)
class Client:
    """One client; `session` is 0 while it is with no broker."""

    name: str
    broker: Address
    wishes: list[Wish]
    slow: Literal["drop", "disconnect"] = "drop"
    session: int = 0
    #: The life of its broker that knows it.
    incarnation: int = 0
    back_ns: int = 0
    next_number: int = 1
    subscriptions: dict[int, Subscription] = field(default_factory=dict)
    had: Had = field(default_factory=dict)
    #: Former ids, not given again since, of events that it got from a roaming publisher.
    skips: dict[tuple[Stream, Place], None] = field(default_factory=dict)


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
        #: Every subscription that there ever was.
        self.history: list[Subscription] = []
        #: What is wanted beside: the stays of durable subscriptions.
        self.others: list[Subscription] = []
        #: Open sessions, and those of them that do not read.
        self.sessions: dict[int, Client] = {}
        self.clogged: dict[int, None] = {}
        addresses = list(world.nodes)
        self.clients = [
            Client(
                f"client-{n}",
                chance.choice(addresses),
                self._draw_wishes(chance.choice((1, 1, MAX_WISHES))),
                "disconnect" if n % IMPATIENT == 0 else "drop",
            )
            for n in range(clients)
        ]

    def _draw_wishes(self, most: int) -> list[Wish]:
        levels, chance = self._world.network.levels, self._chance
        return [
            Wish(
                *draw_subscription(chance, self._world.options.costly),
                chance.choice((levels, levels, chance.randint(1, levels))),
            )
            for _ in range(chance.randint(1, most))
        ]

    # --- coming and going ---

    def attach(self) -> None:
        """Clients whose broker died notice it; those whose broker lives again, or who are due, attach and subscribe."""
        now_ns = self._world.now_ns
        for client in self.clients:
            broker = self._world.nodes[client.broker].broker
            if client.session and (broker is None or broker.identity.incarnation != client.incarnation):
                self._detach(client)
                client.back_ns = now_ns + self._chance.randint(*AWAY_NS)
            if not client.session and broker is not None and now_ns >= client.back_ns:
                client.session, client.incarnation = self._world.new_session(), broker.identity.incarnation
                self.sessions[client.session] = client
                up = ClientUp(client.session, client.name, dict(client.had), frozenset(client.skips), slow=client.slow)
                self._world.give(client.broker, up)
                for wish in client.wishes:
                    self._subscribe(client, wish)

    def _detach(self, client: Client) -> None:
        for number in list(client.subscriptions):
            client.subscriptions.pop(number).ended_ns = self._world.now_ns
        self.sessions.pop(client.session, None)
        self.clogged.pop(client.session, None)
        client.session = 0

    def cut_off(self, session: int) -> None:
        """A broker closed a client's connection."""
        client = self.sessions.get(session)
        if client is not None:
            self._world.give(client.broker, ClientDown(session))
            self._detach(client)
            client.back_ns = self._world.now_ns + self._chance.randint(*AWAY_NS)

    def _subscribe(self, client: Client, wish: Wish) -> None:
        number, client.next_number = client.next_number, client.next_number + 1
        subscription = Subscription(
            client, client.broker, client.session, number, wish, create_engine(wish), self._world.now_ns
        )
        client.subscriptions[number] = subscription
        self.history.append(subscription)
        self._world.give(client.broker, Subscribe(client.session, number, *wish))

    def churn(self, count: int) -> None:
        """Some clients change their mind, leave and come back, or roam."""
        for client in self._chance.sample(self.clients, min(count, len(self.clients))):
            if not client.session:
                continue
            what = self._chance.choice(("mind", "leave", "roam"))
            if what == "mind":
                if client.session in self.clogged:
                    continue  # what waits for it is for what it wanted before
                number = self._chance.choice(list(client.subscriptions))
                client.subscriptions.pop(number).ended_ns = self._world.now_ns
                self._world.give(client.broker, Unsubscribe(client.session, number))
                client.wishes = [each.wish for each in client.subscriptions.values()] + self._draw_wishes(1)
                self._subscribe(client, client.wishes[-1])
                continue
            self._world.give(client.broker, ClientDown(client.session, self._chance.random() < 0.5))
            self._detach(client)
            if what == "leave":
                client.wishes = self._draw_wishes(MAX_WISHES)
            else:
                client.broker = self._chance.choice(list(self._world.nodes))
        self.attach()

    def move(self, client: Client, broker: Address) -> None:
        """Let a client go elsewhere; it attaches there when it looks next."""
        if client.session:
            self._world.give(client.broker, ClientDown(client.session))
            self._detach(client)
        client.broker = broker

    def activated(self, session: int, number: int, level: int) -> None:
        """A broker says how far a subscription is acknowledged."""
        client = self.sessions.get(session)
        subscription = client.subscriptions.get(number) if client is not None else None
        if subscription is None:
            return
        if level < subscription.wish.scope:
            subscription.active_ns = None
        elif subscription.active_ns is None:
            subscription.active_ns = self._world.now_ns

    # --- what brokers believe ---

    def judge(self) -> Judgement:
        """Ask every live broker about some events."""
        asked = narrower = wider = false_positives = 0
        live = [each for client in self.clients for each in client.subscriptions.values()]
        nodes = self._world.nodes
        live += [each for each in self.others if each.ended_ns is None and nodes[each.broker].broker is not None]
        oracle = self._world.oracle()
        for broker in list(self._world.live()):
            host, interest = broker.identity.address, broker.profiles.interest
            for _ in range(QUESTIONS):
                event = draw_event(self._chance)
                matching_now = [each for each in live if each.matches(event, host)]
                wanting = [each.broker for each in matching_now if not each.is_former]
                former = [each.broker for each in matching_now if each.is_former]
                vector = interest.destinations(event, host, nodes[host].time(self._world.now_ns))
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
                    if not wanted and any(address[: len(unit)] == unit for address in former):
                        continue
                    exact = len(host) - len(unit) < 2
                    wider += told and not wanted and exact
                    false_positives += told and not wanted and not exact
        return Judgement(asked, narrower, wider, false_positives)


def create_engine(wish: Wish) -> Engine:
    engine = matching.create(wish.engine)
    engine.add(1, wish.constraint, 1)
    return engine


#: What stands for wishes in these languages where subscriptions are to be costly: as many as there are others.
COSTLY = ("integer", "tags", "xpath")


def draw_subscription(chance: Random, costly: bool = False) -> tuple[str, Constraint]:
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
    if costly and engine in COSTLY:
        return "xpath", f"//drink[price > {number}][//price]"
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
