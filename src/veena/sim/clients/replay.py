"""Clients that want their past: they subscribe during a run, or when it is over, with `since`, and stay.

Each attaches once, to a broker that lives, and asks for what was accepted since a drawn time before; it stays for as
long as its broker does. Some come while there are faults, some when everything has healed. What they got is kept for
the judge (`judges.replay`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from veena.address import Address, Unit
from veena.core.boundary.clients import CaughtUp
from veena.core.boundary.inputs_effects import Active, ClientRefused, ClientUp, Deliver, Had, Subscribe
from veena.core.boundary.settings import SECOND_NS
from veena.core.wire.event import EventFrame
from veena.event import EventId
from veena.matching.base.engine import Engine
from veena.sim.clients.population import WITHDRAWN_NS, Client, Subscription, Wish, create_engine, draw_subscription
from veena.sim.clients.traffic import PULSE_NS, Publication, Traffic
from veena.sim.world.world import ClientEffect, World

#: The share of them that comes when everything has healed, and how soon.
AFTERWARDS = 0.5
SOON_NS = 2 * SECOND_NS
#: A client's one subscription.
NUMBER = 1


@dataclass(slots=True, eq=False)
class PastClient:
    """One client, from its coming on."""

    name: str
    wish: Wish
    engine: Engine
    broker: Address = ()
    session: int = 0
    incarnation: int = 0
    since_ns: int = 0
    begun_ns: int = 0
    #: When its broker died with it.
    ended_ns: int | None = None
    #: Since when it is acknowledged for its scope, without interruption.
    active_ns: int | None = None
    caught_up: CaughtUp | None = None
    #: How it is wanted, as brokers see it.
    want: Subscription | None = None
    had: Had = field(default_factory=dict)
    got: dict[Publication, tuple[EventId, int]] = field(default_factory=dict)


class PastClients:
    """The clients of one world that want their past."""

    def __init__(self, world: World, traffic: Traffic, count: int, chance: Random) -> None:
        self._world = world
        self._traffic = traffic
        self._chance = chance
        levels = world.network.levels
        wishes = [Wish(*draw_subscription(chance, world.options.costly), levels) for _ in range(count)]
        self.clients = [PastClient(f"past-{n}", wish, create_engine(wish)) for n, wish in enumerate(wishes)]
        self._afterwards: list[PastClient] = []
        self.duplicates: list[str] = []
        self.late = 0

    def plan(self, begin_ns: int, end_ns: int) -> None:
        """Let them come at some time, or afterwards."""
        for client in self.clients:
            if self._chance.random() < AFTERWARDS:
                self._afterwards.append(client)
            else:
                at_ns = self._chance.randrange(begin_ns, end_ns)
                self._world.at(at_ns, lambda who=client: self._come(who, begin_ns))  # type: ignore[misc]

    def gather(self, begin_ns: int) -> None:
        """Everything has healed: let the others come."""
        for client in self._afterwards:
            at_ns = self._world.now_ns + self._chance.randrange(SOON_NS)
            self._world.at(at_ns, lambda who=client: self._come(who, begin_ns))  # type: ignore[misc]

    def pulse(self) -> None:
        """See who died with its broker, now and from now on."""
        for client in self.clients:
            if client.session:
                broker = self._world.nodes[client.broker].broker
                if broker is None or broker.identity.incarnation != client.incarnation:
                    self._end(client)
        self._world.at(self._world.now_ns + PULSE_NS, self.pulse)

    def _end(self, client: PastClient) -> None:
        self._traffic.listeners.pop(client.session, None)
        client.session, client.ended_ns = 0, self._world.now_ns
        assert client.want is not None
        client.want.ended_ns = client.ended_ns + WITHDRAWN_NS

    def _come(self, client: PastClient, begin_ns: int) -> None:
        now_ns = self._world.now_ns
        client.broker = self._chance.choice([each.identity.address for each in self._world.live()])
        client.incarnation = self._world.broker(client.broker).identity.incarnation
        client.begun_ns, client.since_ns = now_ns, self._chance.choice((0, self._chance.randint(begin_ns, now_ns)))
        client.session = self._world.new_session()
        client.want = Subscription(
            Client(client.name, client.broker, []), client.broker, client.session, NUMBER, client.wish, client.engine,
            now_ns,
        )  # fmt: skip
        self._traffic.population.others.append(client.want)
        self._traffic.listeners[client.session] = lambda address, effect: self._hear(client, effect)
        self._world.give(client.broker, ClientUp(client.session, client.name))
        self._world.give(client.broker, Subscribe(client.session, NUMBER, *client.wish, since_ns=client.since_ns))

    # --- what brokers say ---

    def _hear(self, client: PastClient, effect: ClientEffect) -> None:
        if isinstance(effect, Deliver):
            self._receive(client, effect.frame)
        elif isinstance(effect, Active):
            if effect.level < client.wish.scope:
                client.active_ns = None
            elif client.active_ns is None:
                client.active_ns = self._world.now_ns
        elif isinstance(effect, CaughtUp):
            if client.caught_up is not None:
                self._traffic.faults.append(f"{client.name} was told twice that it has its past")
            client.caught_up = effect
        elif isinstance(effect, ClientRefused):
            self._traffic.faults.append(f"{client.name}: refused: {effect.reason}")

    def _receive(self, client: PastClient, frame: EventFrame) -> None:
        publication, now_ns = self._traffic.known(frame, client.name), self._world.now_ns
        if publication is None:
            return
        if not client.engine.match(publication.event):
            self._traffic.faults.append(f"{frame.id} was handed to {client.name}, which does not want it")
        is_calm = self._world.options.faults == "none"  # otherwise it may have been on its way all the time
        if is_calm and publication.accepted_ns is not None and publication.accepted_ns + SECOND_NS < client.since_ns:
            self._traffic.faults.append(f"{frame.id} was handed to {client.name}: it is older than that one asked for")
        before = client.got.get(publication)
        if before is not None:
            self.duplicates.append(
                f"{client.name} got {before[0]} at {before[1] / SECOND_NS:.3f} s and {frame.id} at"
                f" {now_ns / SECOND_NS:.3f} s{' late' if frame.late else ''}"
            )
            return
        client.got[publication] = (frame.id, now_ns)
        self.late += frame.late
        stream, place = (frame.publisher, frame.incarnation, frame.lane_number), (frame.timestamp, frame.sequence)
        last = client.had.get(stream)
        if last is not None and place < last and not frame.late:
            self._traffic.out_of_order.append(f"{frame.id} reached {client.name} after {last}")
        client.had[stream] = place if last is None else max(place, last)


def is_silent(client: PastClient, unit: Unit) -> bool:
    """Whether a client was told that this unit, as its broker sees it, did not answer."""
    return client.caught_up is not None and unit in client.caught_up.silent
