"""A world that keeps what a witness of everything saw: the evidence that explanations of brokers are held against.

It sees what brokers are given and what they say at their boundary, what they write to their logs and for whom, which
copies are written to which connection and when the other end has them in order, what breaks and heals. When an event
comes to a broker it looks which units that broker takes to want it and which of them there is a way to; it sees when a
router ends the life of an event, stops it at a gate or loses its way to a unit; and after every input what waits for
clients that do not read. What brokers note for those who ask (`core.journal`) is what is to be tested: it is never read
here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from random import Random

from veena.address import Address, Unit
from veena.core.boundary.clients import SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import (
    Accepted,
    Active,
    Arrived,
    ClientDown,
    ClientUp,
    DeadLetter,
    Deliver,
    Effect,
    Input,
    Publish,
    Send,
    Store,
    Subscribe,
    Unsubscribe,
)
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.boundary.stored import Entry
from veena.core.broker import Broker
from veena.core.delivery.delivery import Outcome
from veena.core.delivery.in_flight import LOG, Flight
from veena.core.wire.event import COPY, NO_TTL, EventFrame
from veena.core.wire.event_id import EventKey, event_key
from veena.errors import InvalidEvent
from veena.event import EventId
from veena.runtime.networks.file import Network
from veena.sim.explaining.evidence import Coming, Crossing, Ending, Logged, Membership, Release, Why
from veena.sim.world.network import Session, VirtualLink
from veena.sim.world.node import Node
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, MakeBroker, World


@dataclass(slots=True, eq=False)
class _Incoming:
    """What one end of a connection has got: the next number that it can hand up, and what came early."""

    next: int = 1
    early: dict[int, EventFrame | None] = field(default_factory=dict)


class WatchedWorld(World):
    """A world with a witness."""

    def __init__(self, network: Network, seed: int, options: Options, make_broker: MakeBroker = Broker) -> None:
        #: When something broke or healed, and which broker died when.
        self.disturbed_ns: list[int] = []
        self.crashes: dict[Address, list[int]] = defaultdict(list)
        self.crossings: dict[EventKey, list[Crossing]] = defaultdict(list)
        self.comings: dict[EventKey, list[Coming]] = defaultdict(list)
        self.logged: dict[EventKey, list[Logged]] = defaultdict(list)
        #: What came out of logs.
        self.read: dict[EventKey, list[Coming]] = defaultdict(list)
        self.buried: dict[EventKey, list[Ending]] = defaultdict(list)
        #: Where its life ended on the way, and where it was stopped because a unit was found not to want it.
        self.expired: dict[EventKey, list[Ending]] = defaultdict(list)
        self.stopped: dict[EventKey, list[Ending]] = defaultdict(list)
        #: Who was in a group, and those who are.
        self.memberships: list[Membership] = []
        self._members: dict[tuple[Address, int, int], Membership] = {}
        self._names: dict[int, str] = {}
        self.accepted: dict[EventId, tuple[int, Address]] = {}
        #: (session, subscription) -> level -> since when it is acknowledged up to it.
        self.levels: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        #: When a session did not read: (from, to), to 0 while it lasts.
        self.clogged: dict[int, list[list[int]]] = defaultdict(list)
        #: By broker and session: what waits for it now, and until when that lives.
        self.queues: dict[Address, dict[int, dict[EventKey, int | None]]] = {}
        #: Since when a session's connection is being closed because it does not read.
        self.given_up_ns: dict[int, int] = {}
        self.releases: dict[tuple[int, EventKey], list[Release]] = defaultdict(list)
        self.handed: dict[tuple[int, EventKey], int] = {}
        #: What the devices of clients can do, by client.
        self.attributes: dict[str, dict[str, str]] = {}
        #: (session, event) -> when a rule forbade it, and which.
        self.denied: dict[tuple[int, EventKey], tuple[int, str]] = {}
        #: Since when units are out of a broker's reach.
        self.lost_ns: dict[tuple[Address, Unit], int] = {}
        #: Whether routers can be watched: they cannot where they are compiled.
        self.sees_routers = True
        self._far_ends: dict[int, tuple[Address, int]] = {}
        self._connections: dict[int, Session] = {}
        self._last_number: dict[int, int] = defaultdict(int)
        self._written: dict[tuple[int, int], Crossing] = {}
        self._incoming: dict[int, _Incoming] = defaultdict(_Incoming)
        super().__init__(network, seed, options, make_broker=make_broker)

    # --- what is given and said ---

    def give(self, address: Address, given: Input) -> None:
        node = self.nodes.get(address)
        if node is None or node.broker is None:
            return
        broker = node.broker
        if isinstance(given, SessionClogged):
            self.clogged[given.session].append([self.now_ns, 0])
        elif isinstance(given, SessionClear | ClientDown) and self.clogged.get(given.session):
            self.clogged[given.session][-1][1] = self.now_ns
        elif isinstance(given, ClientUp) and given.client_id in self.attributes:
            given = replace(given, attributes=self.attributes[given.client_id])
        self._watch_groups(address, given)
        is_open = isinstance(given, Arrived) and given.link in broker._links
        super().give(address, given)
        if isinstance(given, Arrived):
            self._arrived(broker, given, is_open)
        elif isinstance(given, Publish) and not given.frame.reliable:
            self._published(broker, given.frame)

    def _watch_groups(self, address: Address, given: Input) -> None:
        if isinstance(given, ClientUp):
            self._names[given.session] = given.client_id
        elif isinstance(given, Subscribe) and given.group:
            found = Membership(self._names[given.session], address, given, self.now_ns)
            self.memberships.append(found)
            self._members[address, given.session, given.subscription] = found
        elif isinstance(given, Unsubscribe):
            self._leave((address, given.session, given.subscription))
        elif isinstance(given, ClientDown):
            for name in [each for each in self._members if each[:2] == (address, given.session)]:
                self._leave(name)

    def _leave(self, name: tuple[Address, int, int]) -> None:
        found = self._members.pop(name, None)
        if found is not None:
            found.ended_ns = self.now_ns

    def heard(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Accepted):
            self.accepted[effect.id] = (self.now_ns, address)
            self._accepted_from_log(address, _key(effect.id))
        elif isinstance(effect, Active):
            self.levels[effect.session, effect.subscription].setdefault(effect.level, self.now_ns)
        elif isinstance(effect, Deliver):
            for session, _ in effect.receivers:
                self.handed.setdefault((session, event_key(effect.frame)), self.now_ns)
        elif isinstance(effect, DeadLetter):
            self.buried[_key(effect.id)].append(Ending(self.now_ns, address, effect.units))

    def was_clogged(self, session: int, at_ns: int) -> bool:
        return any(start <= at_ns and (not end or at_ns <= end) for start, end in self.clogged.get(session, ()))

    # --- what waits for clients ---

    def _after(self, node: Node, effects: list[Effect]) -> None:
        broker = node.broker
        super()._after(node, effects)
        if broker is not None and (broker.events.outlet.clogged or self.queues.get(node.address)):
            self._look_at_queues(broker, node.address)

    def _look_at_queues(self, broker: Broker, address: Address) -> None:
        """Who does not read is in the broker's list; who was there and is not reads again, or has left."""
        clogged, before = broker.events.outlet.clogged, self.queues.get(address, {})
        self.queues[address] = {
            session: {event_key(each.frame): each.deadline_ns for lane in queue.lanes._queues for each in lane}
            for session, queue in clogged.items()
        }
        for session, queue in clogged.items():
            if queue.is_given_up:
                self.given_up_ns.setdefault(session, self.now_ns)
        for session, waited in before.items():
            left = self.queues[address].get(session, {})
            for key, deadline_ns in waited.items():
                if key not in left:
                    why: Why = "left" if session not in broker.profiles.clients else "oldest"
                    if session in self.given_up_ns:
                        why = "disconnected"
                    if deadline_ns is not None and deadline_ns <= self.now_ns and why != "left":
                        why = "expired"  # that is looked for before anything else has to go
                    if self.handed.get((session, key)) != self.now_ns:
                        self.releases[session, key].append(Release(self.now_ns, why))

    # --- events on their way ---

    def _send(self, sender: Address, effect: Send) -> None:
        far_end = self._far_ends.get(effect.link)
        for number, frame in effect.frames if far_end is not None else ():
            if type(frame) is EventFrame and not frame.flags & COPY and number > self._last_number[effect.link]:
                assert far_end is not None
                self._last_number[effect.link] = number
                crossing = Crossing(self.now_ns, sender, far_end[0], effect.link, self.units(sender, frame.to_serve))
                self.crossings[event_key(frame)].append(crossing)
                self._written[far_end[1], number] = crossing
        super()._send(sender, effect)

    def _arrived(self, broker: Broker, given: Arrived, is_open: bool) -> None:
        """Over a transport that does not keep order an end hands up what it has without a gap.

        What comes over a connection that its broker has given up is not read.
        """
        incoming = self._incoming[given.link]
        for number, frame in given.frames:
            if number >= incoming.next:
                incoming.early[number] = frame if type(frame) is EventFrame and not frame.flags & COPY else None
        while incoming.next in incoming.early:
            ready = incoming.early.pop(incoming.next)
            if ready is not None and is_open:
                crossing = self._written.pop((given.link, incoming.next))
                crossing.came_ns = self.now_ns
                self._came(broker, ready, crossing)
            incoming.next += 1

    def _published(self, broker: Broker, frame: EventFrame) -> None:
        """A best-effort event goes on at once."""
        address = broker.identity.address
        wanted = self._wanted(broker, frame, address) | 1 << address[-1]
        self._note_coming(broker, frame, None, wanted)

    def _came(self, broker: Broker, frame: EventFrame, crossing: Crossing | None) -> None:
        """Over a link: for a unit that this broker is in it finds out who in there wants it."""
        address, fanout = broker.identity.address, self.network.fanout
        duties = frame.to_serve
        own = sum(1 << (level * fanout + unit) for level, unit in enumerate(reversed(address)))
        named = duties & own
        if named & self._refused(broker, frame, crossing):
            self._note_coming(broker, frame, crossing, duties & ~named, named)
            return
        if named:
            level = (named.bit_length() - 1) // fanout
            inside = self._wanted(broker, frame, frame.origin_address or address) & ((1 << level * fanout) - 1)
            duties = duties & ~named | 1 << address[-1] | (inside if level else 0)
        self._note_coming(broker, frame, crossing, duties)

    def _refused(self, broker: Broker, frame: EventFrame, crossing: Crossing | None) -> int:
        """The units for which a broker takes nothing from where a copy came."""
        link = None if crossing is None else broker._links.get(self._far_ends[crossing.handle][1])
        if link is None or link.connection is None or not frame.reliable:
            return 0
        return broker.events.router.refusals.refusing(link.connection)

    def _wanted(self, broker: Broker, frame: EventFrame, origin: Address) -> int:
        try:
            return broker.profiles.interest.destinations(frame.event(), origin, self.now_ns)
        except InvalidEvent:
            return 0

    def _note_coming(
        self, broker: Broker, frame: EventFrame, crossing: Crossing | None, duties: int, refused: int = 0
    ) -> None:
        address, router = broker.identity.address, broker.events.router
        units = self.units(address, duties)
        wayless = tuple(unit for unit in units if unit != address and not router.has_hop(router.bit(unit)))
        deadline_ns = None if frame.ttl_ms == NO_TTL else self.now_ns + frame.ttl_ms * MILLISECOND_NS
        is_held = frame.reliable and broker.events.ends.next_wakeup() is not None
        found = Coming(self.now_ns, address, frame.lane_number, crossing, units, wayless, is_held, deadline_ns)
        self.comings[event_key(frame)].append(replace(found, refused=self.units(address, refused)))

    def units(self, address: Address, mask: int) -> tuple[Unit, ...]:
        """The units that the bits of a broker's vectors stand for."""
        found = []
        while mask:
            bit = mask & -mask
            mask ^= bit
            level, number = divmod(bit.bit_length() - 1, self.network.fanout)
            found.append((*address[: len(address) - 1 - level], number))
        return tuple(found)

    def is_connected(self, crossing: Crossing) -> bool:
        """Whether the connection that a copy was written to is open, for both ends."""
        ends = {crossing.handle: crossing.sender, self._far_ends[crossing.handle][1]: crossing.receiver}
        brokers = {handle: self.nodes[at].broker for handle, at in ends.items()}
        return all(broker is not None and handle in broker._links for handle, broker in brokers.items())

    def is_in_flight(self, crossing: Crossing) -> bool:
        """Whether a copy may still come: its connection lives, or its sender does not know that it does not."""
        if crossing.came_ns is not None:
            return False
        if self._connections[crossing.handle].alive:
            return True
        broker = self.nodes[crossing.sender].broker
        return broker is not None and crossing.handle in broker._links

    # --- logs ---

    def _store(self, node: Node, broker: Broker, effect: Store) -> None:
        for write in effect.writes:
            if type(write) is Entry:
                frame = write.frame
                units = self.units(node.address, frame.to_serve)
                deadline_ns = None if frame.ttl_ms == NO_TTL else write.accepted_ns + frame.ttl_ms * MILLISECOND_NS
                found = Logged(
                    self.now_ns, node.address, write.offset, frame.lane_number, units,
                    _keepers(broker, write.inboxes), deadline_ns,
                )  # fmt: skip
                self.logged[event_key(frame)].append(found)
        super()._store(node, broker, effect)

    def _accepted_from_log(self, address: Address, key: EventKey) -> None:
        """A reliable event is accepted, for all units that its log has it for."""
        mine = [each for each in self.logged[key] if each.broker == address]
        if mine:
            units = tuple(dict.fromkeys(unit for each in mine for unit in each.units))
            held = self.broker(address).events.ends.next_wakeup() is not None
            deadline_ns = min((each.deadline_ns for each in mine if each.deadline_ns is not None), default=None)
            self.comings[key].append(Coming(self.now_ns, address, mine[0].lane, None, units, (), held, deadline_ns))

    # --- what breaks ---

    def start(self, address: Address) -> None:
        self.disturbed_ns.append(self.now_ns)
        self.lost_ns = {pair: at_ns for pair, at_ns in self.lost_ns.items() if pair[0] != address}
        super().start(address)
        try:
            self._watch_reach(self.broker(address))
            self._watch_router(self.broker(address))
        except AttributeError:
            self.sees_routers = False

    def _watch_router(self, broker: Broker) -> None:
        """Remember what comes out of logs, where the lives of events end, and where they are stopped."""
        router, address = broker.events.router, broker.identity.address
        expire, looks_again, lose, take = router.expire, router.looks_again, broker.events._on_lost, router.take
        deliver, read_back = broker.events.ends.deliver, broker.events.origin._read_back

        def taking(source: int, number: int, frame: EventFrame, now_ns: int) -> None:
            if source == LOG:
                until_ns = None if frame.ttl_ms == NO_TTL else now_ns + frame.ttl_ms * MILLISECOND_NS
                is_held = broker.events.ends.next_wakeup() is not None
                units = self.units(address, frame.to_serve)
                found = Coming(now_ns, address, frame.lane_number, None, units, (), is_held, until_ns, True)
                self.read[event_key(frame)].append(found)
            take(source, number, frame, now_ns)

        def expiring(flight: Flight, now_ns: int, duties: int = 0) -> None:
            ending = Ending(now_ns, address, self.units(address, flight.open | duties))
            self.expired[event_key(flight.frame)].append(ending)
            expire(flight, now_ns, duties)

        def looking(connection: int, flight: Flight, now_ns: int) -> bool:
            is_wanted = looks_again(connection, flight, now_ns)
            if not is_wanted:
                link = router._links[connection]
                assert link.neighbour is not None
                unit = link.neighbour[: len(address) - link.level]
                self.stopped[event_key(flight.frame)].append(Ending(now_ns, address, (unit,)))
            return is_wanted

        def losing(frame: EventFrame, expired: bool, now_ns: int) -> None:
            if expired:
                ending = Ending(now_ns, address, self.units(address, frame.to_serve))
                self.expired[event_key(frame)].append(ending)
            lose(frame, expired, now_ns)

        def delivering(flight: Flight, now_ns: int) -> Outcome:
            outcome = deliver(flight, now_ns)
            if outcome is Outcome.EXPIRED:
                self.expired[event_key(flight.frame)].append(Ending(now_ns, address, (address,)))
            return outcome

        def reading_back(entry: Entry, bit: int, now_ns: int) -> None:
            key = event_key(entry.frame)
            before = len(self.read.get(key, ()))
            read_back(entry, bit, now_ns)
            is_too_old = now_ns - entry.accepted_ns > self.settings.retention_ns
            if not is_too_old and len(self.read.get(key, ())) == before:
                self.stopped[key].append(Ending(now_ns, address, self.units(address, bit)))

        broker.events.origin._read_back = reading_back  # type: ignore[method-assign]
        router.expire, router.looks_again = expiring, looking  # type: ignore[method-assign]
        broker.events._on_lost, router.take = losing, taking  # type: ignore[method-assign]
        broker.events.ends.deliver = delivering  # type: ignore[method-assign]

    def _watch_reach(self, broker: Broker) -> None:
        """Remember since when units are out of reach."""
        events, address = broker.events, broker.identity.address
        tell = events.reach_changed

        def watched(found: list[Unit], lost: list[Unit], now_ns: int) -> None:
            for unit in found:
                self.lost_ns.pop((address, unit), None)
            for unit in lost:
                self.lost_ns[address, unit] = now_ns
            tell(found, lost, now_ns)

        events.reach_changed = watched  # type: ignore[method-assign]

    def crash(self, address: Address, silent: bool) -> None:
        self.disturbed_ns.append(self.now_ns)
        self.crashes[address].append(self.now_ns)
        for session, waited in self.queues.pop(address, {}).items():
            for key in waited:
                self.releases[session, key].append(Release(self.now_ns, "left"))
        for name in [each for each in self._members if each[0] == address]:
            self._leave(name)
        super().crash(address, silent)

    def connect(self, link: VirtualLink) -> None:
        self.disturbed_ns.append(self.now_ns)
        before = link.session
        super().connect(link)
        if link.session is not None and link.session is not before:
            self._known(link.session)

    def _known(self, session: Session) -> None:
        (one, handle), (other, far_handle) = session.handles.items()
        self._far_ends[handle], self._far_ends[far_handle] = (other, far_handle), (one, handle)
        self._connections[handle] = self._connections[far_handle] = session

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


def _key(event_id: EventId) -> EventKey:
    return (event_id.publisher.encode(), *event_id[1:])


def _keepers(broker: Broker, inboxes: tuple[int, ...]) -> tuple[str, ...]:
    """Whose these inboxes are."""
    found = broker.events.sessions.durables.all.values() if inboxes else ()
    return tuple(each.client_id for each in found if any(inbox.number in inboxes for inbox in each.inboxes))
