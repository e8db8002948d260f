"""Clients with durable subscriptions in a simulated network: they acknowledge, go away, and come back elsewhere.

Each plays the library that a real client has: it keeps the last place of every stream for each subscription, and shows
it when it attaches again, with the address where it was last, if it remembers that. Some acknowledge at once, some late
and in batches, some only what their application has dealt with (`manual`). They leave with and without a word, are cut
off when their broker dies, come back there or somewhere else, and now and then ask for something else under the same
name, or delete a subscription for good. What they got is kept, with what a judge needs to know of their stays
(`judges.durable`). Second devices of the same clients read beside them (`second_devices`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from veena.address import Address
from veena.core.boundary.clients import SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import (
    Acknowledge,
    Active,
    ClientDown,
    ClientRefused,
    ClientUp,
    Deliver,
    Forget,
    Had,
    Subscribe,
    Unsubscribe,
)
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.boundary.stored import STANDBY
from veena.core.wire.event import EventFrame
from veena.core.wire.event_id import Place, Stream, ids_of
from veena.event import EventId
from veena.matching.base.engine import Engine
from veena.sim.clients.population import (
    AWAY_NS,
    WITHDRAWN_NS,
    Client,
    Subscription,
    Wish,
    create_engine,
    draw_subscription,
)
from veena.sim.clients.traffic import PULSE_NS, Publication, Traffic
from veena.sim.world.world import ClientEffect, World

MAX_SUBSCRIPTIONS = 2
#: The share of subscriptions that are acknowledged by the application, of clients that remember where they were, and of
#: absences in which a subscription is deleted, or the client reads nothing for a while instead of going.
MANUAL = 0.25
KNOWS_HOME = 0.7
#: The share of events that such an application does not deal with when it gets them first.
FAILS = 0.2
DELETES = 0.06
CLOGS = 0.15
#: How long a client is away on its own account: less than its broker notices, or long.
ABSENCES_NS = ((10 * MILLISECOND_NS, 500 * MILLISECOND_NS), (SECOND_NS, 15 * SECOND_NS))
#: Events that a client's library remembers for each subscription.
REMEMBERED = 256
#: How long clients take to acknowledge.
PAUSES_NS = (0, 0, 300 * MILLISECOND_NS, 3 * SECOND_NS)


@dataclass(slots=True, eq=False)
class Stay:
    """A durable subscription at one broker, from attaching on."""

    #: The same as brokers see it: wanted there until it is acknowledged elsewhere.
    want: Subscription
    #: When it was first acknowledged there for its scope.
    active_ns: int | None = None

    @property
    def broker(self) -> Address:
        return self.want.broker


@dataclass(slots=True, eq=False)
class Copy:
    """An event that a durable subscription was handed: the first time."""

    id: EventId
    at_ns: int
    late: bool
    is_acknowledged: bool = False


@dataclass(slots=True, eq=False)
class DurableSubscription:
    client: DurableClient
    name: str
    wish: Wish
    engine: Engine
    ack: Literal["auto", "manual"]
    stays: list[Stay] = field(default_factory=list)
    #: Its number in the present session; 0 while its client is away.
    number: int = 0
    #: Since when everything is promised to it, and until when.
    active_ns: int | None = None
    deleted_ns: int | None = None
    had: Had = field(default_factory=dict)
    #: What it got last, or acknowledged last (`manual`), under all ids that it knows of.
    skips: dict[tuple[Stream, Place], None] = field(default_factory=dict)
    #: What it got first, on whichever device, and what it got on this one.
    got: dict[Publication, Copy] = field(default_factory=dict)
    seen: dict[Publication, Copy] = field(default_factory=dict)
    #: What it will acknowledge next.
    due: list[tuple[EventFrame, Copy]] = field(default_factory=list)
    #: What it asked for before under this name, and what was kept for it when it changed its mind.
    former: list[Engine] = field(default_factory=list)
    owed: dict[Publication, None] = field(default_factory=dict)
    #: The same subscription on the client's first device, where this is another one.
    first: DurableSubscription | None = None

    def may_get(self, publication: Publication) -> bool:
        """Whether it asks for such events, or did when this one may have been kept for it."""
        asks = self.first or self
        return any(engine.match(publication.event) for engine in (asks.engine, *asks.former))

    def __str__(self) -> str:
        return f"{self.client.name}/{self.name}{'' if self.first is None else ' on a second device'}"


@dataclass(slots=True, eq=False)
class DurableClient:
    """One client; `session` is 0 while it is with no broker."""

    name: str
    broker: Address
    knows_home: bool
    pause_ns: int
    subscriptions: list[DurableSubscription] = field(default_factory=list)
    session: int = 0
    incarnation: int = 0
    back_ns: int = 0
    #: Where it attached last.
    home: Address | None = None
    next_number: int = 1
    is_clogged: bool = False


class DurableClients:
    """The durable clients of one world."""

    def __init__(self, world: World, traffic: Traffic, count: int, chance: Random) -> None:
        self._world = world
        self._traffic = traffic
        self._chance = chance
        self.clients: list[DurableClient] = []
        #: Every durable subscription that there ever was.
        self.history: list[DurableSubscription] = []
        self.duplicates: list[str] = []
        #: Called when a broker refuses something.
        self.on_refused: Callable[[DurableClient, ClientRefused], None] = self._refused
        self.redelivered = 0
        self.late = 0
        addresses = list(world.nodes)
        for number in range(count):
            client = DurableClient(
                f"durable-{number}", chance.choice(addresses), chance.random() < KNOWS_HOME, chance.choice(PAUSES_NS)
            )
            self.clients.append(client)
            for _ in range(chance.randint(1, MAX_SUBSCRIPTIONS)):
                self._draw_subscription(client)

    def _draw_subscription(self, client: DurableClient) -> None:
        wish = Wish(*draw_subscription(self._chance, self._world.options.costly), self._world.network.levels)
        name = f"wish-{len(client.subscriptions)}"
        ack: Literal["auto", "manual"] = "manual" if self._chance.random() < MANUAL else "auto"
        found = DurableSubscription(client, name, wish, create_engine(wish), ack)
        client.subscriptions.append(found)
        self.history.append(found)

    # --- coming and going ---

    def plan(self, absences: int, begin_ns: int, end_ns: int) -> None:
        """Let clients go away so many times."""
        for _ in range(absences if self.clients else 0):
            client = self._chance.choice(self.clients)
            self._world.at(self._chance.randrange(begin_ns, end_ns), lambda who=client: self._go(who))  # type: ignore[misc]

    def pulse(self) -> None:
        """Clients look whether their broker is there, now and from now on."""
        for client in self.clients:
            self._look(client)
        self._world.at(self._world.now_ns + PULSE_NS, self.pulse)

    def _look(self, client: DurableClient) -> None:
        now_ns, chance = self._world.now_ns, self._chance
        node = self._world.nodes[client.broker]
        if client.session and (node.broker is None or node.broker.identity.incarnation != client.incarnation):
            self.detach(client)
            client.back_ns = now_ns + chance.randint(*AWAY_NS)
            if node.lost or chance.random() < 0.5:
                client.broker = chance.choice(list(self._world.nodes))
        elif not client.session and node.broker is None and now_ns >= client.back_ns + AWAY_NS[1]:
            client.broker = chance.choice(list(self._world.nodes))
        if not client.session and now_ns >= client.back_ns:
            self._attach(client)

    def _attach(self, client: DurableClient) -> None:
        broker = self._world.nodes[client.broker].broker
        if broker is None:
            return
        client.session, client.incarnation = self._world.new_session(), broker.identity.incarnation
        self._traffic.listeners[client.session] = lambda address, effect: self.hear(client, address, effect)
        self._world.give(client.broker, ClientUp(client.session, client.name))
        for each in client.subscriptions:
            if each.deleted_ns is None:
                self._subscribe(client, each)
        client.home = client.broker

    def _subscribe(self, client: DurableClient, each: DurableSubscription) -> None:
        each.number, client.next_number = client.next_number, client.next_number + 1
        last = each.stays[-1].want if each.stays else None
        if last is None or (last.broker, last.wish) != (client.broker, each.wish):
            want = Subscription(
                Client(client.name, client.broker, []), client.broker, client.session, each.number, each.wish,
                each.engine, self._world.now_ns,
            )  # fmt: skip
            if last is not None and last.wish != each.wish:
                each.owed |= dict.fromkeys(self._kept(each))
            for stay in each.stays:
                stay.want.is_former = True
                if stay.broker == client.broker:
                    stay.want.ended_ns = stay.want.ended_ns or self._world.now_ns + WITHDRAWN_NS
            each.stays.append(Stay(want))
            self._traffic.population.others.append(want)
        given = Subscribe(
            client.session,
            each.number,
            *each.wish,
            durable=each.name,
            ack=each.ack,
            had=dict(each.had),
            home=client.home if client.knows_home else None,
            skips=frozenset(list(each.skips)[-REMEMBERED:]),
        )
        self._world.give(client.broker, given)

    def plan_changes(self, changes: int, begin_ns: int, end_ns: int, chance: Random) -> None:
        """Let clients ask for something else under the same name, so many times."""
        for _ in range(changes if self.clients else 0):
            client = chance.choice(self.clients)
            self._world.at(
                chance.randrange(begin_ns, end_ns),
                lambda who=client: self._change_mind(who, chance),  # type: ignore[misc]
            )

    def _change_mind(self, client: DurableClient, chance: Random) -> None:
        """Another constraint under the same name, at once or when it attaches next: what is kept stays kept."""
        found = [each for each in client.subscriptions if each.deleted_ns is None and each.stays]
        if not found:
            return
        each = chance.choice(found)
        each.former.append(each.engine)
        each.wish = Wish(*draw_subscription(chance, self._world.options.costly), self._world.network.levels)
        each.engine, each.active_ns = create_engine(each.wish), None
        if each.number and chance.random() < 0.5:
            self._world.give(client.broker, Unsubscribe(client.session, each.number))
            self._subscribe(client, each)

    def _kept(self, each: DurableSubscription) -> list[Publication]:
        """What its home has on disk for it, and it has not got."""
        disk = self._world.nodes[each.stays[-1].broker].disk
        inboxes = {
            inbox: disk.reached.get(inbox, 0)
            for found in disk.registered.values()
            if (found.client_id, found.name) == (each.client.name, each.name) and found.state != STANDBY
            for inbox in found.inboxes
        }
        ids = [
            entry.frame.id
            for entry in disk.entries
            if not entry.frame.doubtful  # that is judged by what is asked for when it is handed over
            and any(entry.offset >= inboxes[inbox] for inbox in entry.inboxes if inbox in inboxes)
        ]
        kept = [self._traffic.published(event_id) for event_id in ids]
        return [publication for publication in kept if publication is not None and publication not in each.got]

    def detach(self, client: DurableClient) -> None:
        self._traffic.listeners.pop(client.session, None)
        client.session, client.is_clogged = 0, False
        for each in client.subscriptions:
            each.number = 0
            each.due.clear()

    def _go(self, client: DurableClient) -> None:
        if not client.session:
            return
        chance = self._chance
        lasts_ns = chance.randint(*chance.choice(ABSENCES_NS))
        if chance.random() < CLOGS:
            self._clog(client, lasts_ns)
            return
        if chance.random() < DELETES:
            self._delete(client)
        if chance.random() < 0.5:
            for each in client.subscriptions:
                self.acknowledge(each)
        self._world.give(client.broker, ClientDown(client.session, chance.random() < 0.5))
        self.detach(client)
        client.back_ns = self._world.now_ns + lasts_ns
        if chance.random() < 0.6:
            client.broker = chance.choice(list(self._world.nodes))
        self._world.at(client.back_ns, lambda: None if client.session else self._look(client))

    def _clog(self, client: DurableClient, lasts_ns: int) -> None:
        session = client.session

        def clear() -> None:
            if client.session == session:
                client.is_clogged = False
                self._world.give(client.broker, SessionClear(session))

        client.is_clogged = True
        self._world.give(client.broker, SessionClogged(session))
        self._world.at(self._world.now_ns + lasts_ns, clear)

    def _delete(self, client: DurableClient) -> None:
        found = [each for each in client.subscriptions if each.deleted_ns is None]
        if found:
            each = self._chance.choice(found)
            self._world.give(client.broker, Forget(client.session, each.number))
            each.deleted_ns, each.number = self._world.now_ns, 0
            for stay in each.stays:
                stay.want.ended_ns = stay.want.ended_ns or self._world.now_ns + WITHDRAWN_NS
            each.due.clear()
            self._draw_subscription(client)

    def gather(self) -> None:
        """Everything has healed: let everybody attach, where it is or somewhere live."""
        for client in self.clients:
            live = [address for address, node in self._world.nodes.items() if node.broker is not None]
            if client.is_clogged:
                client.is_clogged = False
                self._world.give(client.broker, SessionClear(client.session))
            client.back_ns = min(client.back_ns, self._world.now_ns)
            if self._world.nodes[client.broker].broker is None:
                client.broker = self._chance.choice(live)
            self._look(client)
            if not client.session:
                client.back_ns = self._world.now_ns

    # --- what brokers say ---

    def hear(self, client: DurableClient, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Deliver):
            for session, numbers in effect.receivers:
                if session == client.session:
                    self._receive(client, effect.frame, numbers)
        elif isinstance(effect, Active):
            for each in client.subscriptions:
                if each.number == effect.subscription and effect.level >= each.wish.scope:
                    self._activated(each)
        elif isinstance(effect, ClientRefused):
            self.on_refused(client, effect)

    def _refused(self, client: DurableClient, effect: ClientRefused) -> None:
        self._traffic.faults.append(f"{client.name}: refused: {effect.reason}")

    def _activated(self, each: DurableSubscription) -> None:
        if each.first is not None:
            return
        now_ns = self._world.now_ns
        *former, present = each.stays
        if present.want.wish == each.wish:  # otherwise it has changed its mind, and nobody was told yet
            each.active_ns = each.active_ns or now_ns
        present.active_ns = present.active_ns or now_ns
        for stay in former:
            stay.want.ended_ns = stay.want.ended_ns or now_ns + WITHDRAWN_NS

    def _receive(self, client: DurableClient, frame: EventFrame, numbers: tuple[int, ...]) -> None:
        publication = self._traffic.known(frame, client.name)
        if publication is None:
            return
        if client.is_clogged:
            self._traffic.faults.append(f"{frame.id} was handed to {client.name}, which is clogged")
        for number in numbers:
            each = next((each for each in client.subscriptions if each.number == number), None)
            if each is None or not each.may_get(publication):
                self._traffic.faults.append(f"{frame.id} was handed to {client.name} for {number}, which it is not for")
            else:
                self._take(client, each, frame, publication)

    def _take(
        self, client: DurableClient, each: DurableSubscription, frame: EventFrame, publication: Publication
    ) -> None:
        now_ns = self._world.now_ns
        stream, place = (frame.publisher, frame.incarnation, frame.lane_number), (frame.timestamp, frame.sequence)
        copy = each.seen.get(publication)
        if copy is None:
            copy = each.seen[publication] = Copy(frame.id, now_ns, frame.late)
            each.got.setdefault(publication, copy)
            self.late += frame.late
            last = each.had.get(stream)
            if last is not None and place < last and not frame.late:
                self._traffic.out_of_order.append(f"{frame.id} reached {each} after {last}")
            each.had[stream] = place if last is None else max(place, last)
            if each.ack == "auto":
                each.skips |= dict.fromkeys(ids_of(frame))
        elif each.ack == "manual" and frame.redelivered and not copy.is_acknowledged:
            self.redelivered += 1
        else:
            self.duplicates.append(
                f"{each} at {self._world.network.labels.label(client.broker)} got {copy.id} at"
                f" {copy.at_ns / SECOND_NS:.3f} s and {frame.id} at {now_ns / SECOND_NS:.3f} s"
                f"{' late' if frame.late else ''}{' redelivered' if frame.redelivered else ''}"
            )
        if publication.reliable:
            each.due.append((frame, copy))
            session = client.session
            pause_ns = self._chance.randint(0, client.pause_ns)
            self._world.at(now_ns + pause_ns, lambda: self.acknowledge(each) if client.session == session else None)

    def acknowledge(self, each: DurableSubscription) -> None:
        if not each.number or not each.due or (each.first is not None and each.first.deleted_ns is not None):
            return
        client = each.client
        node = self._world.nodes[client.broker]
        if node.broker is not None and node.broker.identity.incarnation == client.incarnation:
            if each.ack == "manual":
                each.due = [due for due in each.due if self._chance.random() >= FAILS]
            for frame, copy in each.due:
                copy.is_acknowledged = True
                if each.ack == "manual":
                    each.skips |= dict.fromkeys(ids_of(frame))
            ids = tuple(frame.id for frame, _ in each.due)
            self._world.give(client.broker, Acknowledge(client.session, each.number, ids))
        each.due.clear()
