"""Publishers and what they publish, receivers and what reaches them.

A publisher is a client with ids of its own. It hands events to its broker and keeps the reliable ones until they are
accepted; when its broker dies, or when it roams, it hands them over again under the incarnation that it is given then,
each with the id that it had first, so that nobody gets it twice. Receivers keep what they got, in order: that is all
the evidence that the judge has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from veena.address import Address
from veena.core.boundary.clients import CaughtUp, CloseSession, Dropped
from veena.core.boundary.inputs_effects import (
    Accepted,
    AcceptedRun,
    Active,
    ClientDown,
    ClientRefused,
    ClientUp,
    DeadLetter,
    Deliver,
    DeliverBurst,
    Publish,
    PublishBatch,
    PublishRefused,
    Welcome,
)
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.burst import EventBurst
from veena.core.wire.codec import Decoder
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId, IdGenerator, lane
from veena.sim.clients.population import AWAY_NS, Client, Population, draw_event
from veena.sim.world.world import ClientEffect, World

#: How often clients look whether their broker is still there.
PULSE_NS = 250 * MILLISECOND_NS
#: A publisher whose event was refused tries again after this time.
AGAIN_NS = SECOND_NS
#: Events come one by one and in bursts of one publisher.
BURSTS = (1, 1, 1, 4, 16)
#: Events of one batch, all alike but for their bodies, and how many batches follow each other closely.
BATCHES = (2, 5, 17, 40)
TRAINS = (1, 1, 2, 4)
#: How close to a fault events are published that shall be struck by it.
AROUND_NS = 500 * MILLISECOND_NS
#: The share of events with a time to live, and its bounds in seconds.
MORTAL = 0.05
LIVES = (2.0, 60.0)
#: What whoever looks after a session is told, beside events.
_FOR_LISTENERS = (Active, ClientRefused, Dropped, CloseSession, CaughtUp)


@dataclass(slots=True, eq=False)
class Publication:
    """One event of a publisher, under every id that it was sent with."""

    event: Event
    reliable: bool
    ids: list[EventId] = field(default_factory=list)
    sent_ns: int = 0
    accepted_ns: int | None = None
    #: Where it was accepted, and what the clock there showed beyond the true time.
    origin: Address = ()
    ahead_ns: int = 0

    def may_expire(self, due_ns: int) -> bool:
        """Whether its time to live may be over by then: it is counted from its acceptance on, at the latest."""
        return self.event.ttl is not None and (self.accepted_ns or 0) + int(self.event.ttl * SECOND_NS) <= due_ns


@dataclass(slots=True, eq=False)
class Publisher:
    """A client that publishes; `ids` are there when its broker has welcomed it."""

    name: str
    broker: Address
    session: int = 0
    incarnation: int = 0
    back_ns: int = 0
    ids: IdGenerator | None = None
    #: What is not accepted yet, in order; best effort only until it is sent.
    waiting: list[Publication] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Receipt:
    """An event that a client got."""

    client: Client
    publication: Publication
    id: EventId
    at_ns: int
    late: bool
    session: int = 0


class Traffic:
    """Everything that is published and received in one world."""

    def __init__(self, world: World, population: Population, publishers: int, chance: Random) -> None:
        self.population = population
        self.publications: list[Publication] = []
        self.receipts: list[Receipt] = []
        #: What must never happen, in words.
        self.faults: list[str] = []
        self.out_of_order: list[str] = []
        self.refusals: Counter[str] = Counter()
        self.dead_letters: list[DeadLetter] = []
        #: Sessions that somebody else looks after, and whom to tell.
        self.listeners: dict[int, Callable[[Address, ClientEffect], None]] = {}
        #: How many events brokers told each session that it missed.
        self.dropped: Counter[int] = Counter()
        self._world = world
        self._chance = chance
        self._codec = EventCodec(world.network.levels, world.network.fanout)
        self._by_id: dict[EventId, Publication] = {}
        self._tails: dict[EventId, bytes] = {}
        self._sessions: dict[int, Publisher] = {}
        addresses = list(world.nodes)
        self.publishers = [Publisher(f"publisher-{n}", chance.choice(addresses)) for n in range(publishers)]
        world.on_client = self._on_client

    def plan(self, events: int, begin_ns: int, end_ns: int, faults: Sequence[int]) -> None:
        """Put this many events into the world's queue, half of them around the times of faults."""
        left, chance = events, self._chance
        while left:
            publisher, count = chance.choice(self.publishers), min(left, chance.choice(BURSTS))
            at_ns = chance.randrange(begin_ns, end_ns)
            if faults and chance.random() < 0.5:
                at_ns = max(begin_ns, chance.choice(faults) + chance.randint(-AROUND_NS, AROUND_NS))
            left -= count
            for _ in range(count):
                publication = self._draw()
                self.publications.append(publication)
                self._world.at(at_ns, lambda who=publisher, what=publication: self._publish(who, what))  # type: ignore[misc]
                at_ns += chance.choice((0, MILLISECOND_NS, 20 * MILLISECOND_NS))

    def plan_batches(self, count: int, begin_ns: int, end_ns: int, faults: Sequence[int], chance: Random) -> None:
        """Put so many trains of batches of reliable events into the world's queue, half of them around faults."""
        for _ in range(count):
            publisher, event = chance.choice(self.publishers), draw_event(chance)
            event = replace(event, priority=chance.choice((0, 4, 4, 9)))
            at_ns = chance.randrange(begin_ns, end_ns)
            if faults and chance.random() < 0.5:
                at_ns = max(begin_ns, chance.choice(faults) + chance.randint(-AROUND_NS, AROUND_NS))
            for _ in range(chance.choice(TRAINS)):
                size = chance.choice(BATCHES)
                batch = [Publication(replace(event, body=chance.randbytes(8)), True) for _ in range(size)]
                self.publications += batch
                self._world.at(at_ns, lambda who=publisher, what=batch: self._publish_batch(who, what))  # type: ignore[misc]
                at_ns += chance.choice((0, MILLISECOND_NS, 20 * MILLISECOND_NS))

    def plan_roaming(self, count: int, begin_ns: int, end_ns: int) -> list[tuple[int, str]]:
        """Let publishers go elsewhere so many times; when, and who."""
        plan = []
        for _ in range(count):
            at_ns, publisher = self._chance.randrange(begin_ns, end_ns), self._chance.choice(self.publishers)
            self._world.at(at_ns, lambda who=publisher: self._roam(who))  # type: ignore[misc]
            plan.append((at_ns, f"{publisher.name} roams"))
        return sorted(plan)

    def _draw(self) -> Publication:
        chance = self._chance
        event = replace(
            draw_event(chance),
            priority=chance.choice((0, 4, 4, 4, 5, 9)),
            ttl=chance.uniform(*LIVES) if chance.random() < MORTAL else None,
            body=chance.randbytes(chance.choice((0, 8, 100))),
        )
        return Publication(event, chance.random() < 0.7)

    # --- publishers ---

    def pulse(self) -> None:
        """Clients look whether their broker is there, now and from now on."""
        self.population.attach()
        for publisher in self.publishers:
            self._attach(publisher)
        self._world.at(self._world.now_ns + PULSE_NS, self.pulse)

    def _attach(self, publisher: Publisher) -> None:
        now_ns, chance = self._world.now_ns, self._chance
        node = self._world.nodes[publisher.broker]
        if publisher.session and (node.broker is None or node.broker.identity.incarnation != publisher.incarnation):
            self._leave(publisher)
            publisher.back_ns = now_ns + chance.randint(*AWAY_NS)
            if node.lost or chance.random() < 0.2:
                publisher.broker = chance.choice(list(self._world.nodes))
        elif not publisher.session and node.broker is None and now_ns >= publisher.back_ns + AWAY_NS[1]:
            publisher.broker = chance.choice(list(self._world.nodes))
        node = self._world.nodes[publisher.broker]
        if not publisher.session and node.broker is not None and now_ns >= publisher.back_ns:
            publisher.session, publisher.incarnation = self._world.new_session(), node.broker.identity.incarnation
            self._sessions[publisher.session] = publisher
            self._world.give(publisher.broker, ClientUp(publisher.session, publisher.name))

    def _leave(self, publisher: Publisher) -> None:
        self._sessions.pop(publisher.session, None)
        publisher.session, publisher.ids = 0, None

    def move(self, publisher: Publisher, broker: Address) -> None:
        """Let a publisher go elsewhere; it attaches there when it looks next."""
        if publisher.session:
            self._world.give(publisher.broker, ClientDown(publisher.session))
            self._leave(publisher)
        publisher.broker = broker

    def _roam(self, publisher: Publisher) -> None:
        self.move(publisher, self._chance.choice(list(self._world.nodes)))
        publisher.back_ns = self._world.now_ns + self._chance.choice((0, self._chance.randint(*AWAY_NS)))
        self._attach(publisher)

    def _publish(self, publisher: Publisher, publication: Publication) -> None:
        publisher.waiting.append(publication)
        if publisher.ids is not None:
            self._send(publisher, publication)

    def _publish_batch(self, publisher: Publisher, batch: list[Publication]) -> None:
        """Publish events as a client that sends them in one write."""
        publisher.waiting += batch
        if publisher.ids is None:
            return
        data = b"".join(self._codec.encode(self._frame_of(publisher, each), 0) for each in batch)
        bursts = [each for each in Decoder(self._codec).feed_bursts(data) if isinstance(each, EventBurst)]
        self._world.give(publisher.broker, PublishBatch(publisher.session, bursts))

    def _send(self, publisher: Publisher, publication: Publication) -> None:
        frame = self._frame_of(publisher, publication)
        if not publication.reliable:
            publisher.waiting.remove(publication)
        self._world.give(publisher.broker, Publish(publisher.session, frame))

    def _frame_of(self, publisher: Publisher, publication: Publication) -> EventFrame:
        """The next copy of an event, under an id of its own."""
        assert publisher.ids is not None
        now_ns = self._world.now_ns
        event_id = publisher.ids.next(now_ns)
        frame = self._codec.frame(
            replace(publication.event, event_id=event_id, timestamp_ns=now_ns),
            reliable=publication.reliable,
            original=publication.ids[0][1:] if publication.ids else None,
        )
        publication.ids.append(event_id)
        publication.sent_ns = publication.sent_ns or now_ns
        self._by_id[event_id] = publication
        self._tails[event_id] = bytes(frame.tail)
        return frame

    def _send_waiting(self, publisher: Publisher, session: int) -> None:
        if publisher.session == session:
            for publication in list(publisher.waiting):
                self._send(publisher, publication)

    # --- what brokers say ---

    def _on_client(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, DeliverBurst):
            for frame in effect.burst.frames():
                self._on_client(address, Deliver(frame, effect.receivers))
        elif isinstance(effect, AcceptedRun):
            for sequence in range(effect.first, effect.last + 1):
                publisher = self._sessions.get(effect.session)
                if publisher is not None and publisher.ids is not None:
                    event_id = EventId(publisher.name, publisher.ids.incarnation, effect.timestamp, sequence)
                    self._answer(publisher, address, Accepted(effect.session, event_id))
        elif isinstance(effect, Deliver):
            for session, numbers in effect.receivers:
                if session in self.listeners:
                    mine = Deliver(effect.frame, ((session, numbers),))
                    self.listeners[session](address, mine)
                else:
                    self._deliver(address, effect.frame, session, numbers)
        elif isinstance(effect, _FOR_LISTENERS) and effect.session in self.listeners:
            self.listeners[effect.session](address, effect)
        elif isinstance(effect, Active):
            self.population.activated(effect.session, effect.subscription, effect.level)
        elif isinstance(effect, Dropped):
            self.dropped[effect.session] += effect.count
        elif isinstance(effect, CloseSession):
            self._world.at(self._world.now_ns, lambda: self.population.cut_off(effect.session))
        elif isinstance(effect, DeadLetter):
            self.dead_letters.append(effect)
        elif isinstance(effect, ClientRefused):
            self.faults.append(f"refused: {effect.reason}")
        elif isinstance(effect, Welcome | Accepted | PublishRefused):
            publisher = self._sessions.get(effect.session)
            if publisher is not None:
                self._answer(publisher, address, effect)

    def _answer(self, publisher: Publisher, address: Address, effect: Welcome | Accepted | PublishRefused) -> None:
        now_ns = self._world.now_ns
        if isinstance(effect, Welcome):
            publisher.ids = IdGenerator(publisher.name, effect.incarnation)
            session = publisher.session
            self._world.at(now_ns, lambda: self._send_waiting(publisher, session))
            return
        publication = self._by_id.get(effect.id)
        if publication is None or publication.accepted_ns is not None:
            self.faults.append(f"{effect.id} was never published, or answered twice: {effect}")
        elif isinstance(effect, Accepted):
            publication.accepted_ns, publication.origin = now_ns, address
            publication.ahead_ns = self._world.nodes[address].base_ns
            if publication in publisher.waiting:
                publisher.waiting.remove(publication)
        elif publication.reliable:
            self.refusals[effect.reason] += 1
            if len(publication.ids) == 1:
                publication.ids.clear()  # it was never under way: the next one is its first
            session = publisher.session
            self._world.at(now_ns + AGAIN_NS, lambda: self._again(publisher, session, publication))

    def _again(self, publisher: Publisher, session: int, publication: Publication) -> None:
        if publisher.session == session and publication in publisher.waiting:
            self._send(publisher, publication)

    # --- receivers ---

    def published(self, event_id: EventId) -> Publication | None:
        """What has this id; None for what no publisher sent."""
        return self._by_id.get(event_id)

    def known(self, frame: EventFrame, receiver: str) -> Publication | None:
        """What a frame is a copy of; a fault if it is none, or another than was published."""
        publication = self._by_id.get(frame.id)
        if publication is None:
            self.faults.append(f"{frame.id} was handed to {receiver}, and was never published")
        elif bytes(frame.tail) != self._tails[frame.id]:
            self.faults.append(f"{frame.id} reached {receiver} with other bytes than it was published with")
        return publication

    def _deliver(self, address: Address, frame: EventFrame, session: int, numbers: tuple[int, ...]) -> None:
        client = self.population.sessions.get(session)
        publication = self.known(frame, f"session {session}")
        if client is None or client.broker != address or publication is None:
            self.faults.append(f"{frame.id} was handed to session {session}, which is not there")
            return
        if session in self.population.clogged:
            self.faults.append(f"{frame.id} was handed to {client.name}, which does not read")
        origin = frame.origin_address
        event = publication.event
        asked = client.subscriptions.items()
        if self._world.options.costly:  # what waited to be evaluated is for whoever asked for it then
            asked = {n: s for n, s in asked if n in numbers or s.begun_ns <= publication.sent_ns}.items()
        due = () if origin is None else tuple(n for n, s in asked if s.matches(event, origin))
        if due != numbers or not due:
            self.faults.append(f"{frame.id} was handed to {client.name} for {numbers}: it matches {due}")
        receipt = Receipt(client, publication, frame.id, self._world.now_ns, frame.late, session)
        self.receipts.append(receipt)
        stream, place = (*frame.id[:2], lane(publication.reliable, event.priority).number), frame.id[2:]
        last = client.had.get(stream)
        if last is not None and place < last and not frame.late:
            self.out_of_order.append(f"{frame.id} reached {client.name} after {last}")
        client.had[stream] = place if last is None else max(place, last)
        original = frame.section.original
        if original is not None:
            client.skips[(stream[0], original[0], stream[2]), original[1:]] = None
