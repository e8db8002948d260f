"""A world of real core brokers on a virtual clock: the simulator's heart.

Everything that happens is an entry in one queue, ordered by time and then by the order in which it was entered; all
chance comes from one seeded generator. So a seed is a run, and `trace_hash` is its `fingerprint`. The brokers are the
ones that run in production; the world plays their clock, their network, their disk and their bad luck.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import fields, replace
from heapq import heappop, heappush
from itertools import islice
from random import Random

from veena.address import Address, link_level
from veena.core.boundary.clients import AskRoom, SessionClear, SessionClogged
from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.core.boundary.inputs_effects import (
    Arrived,
    ClientDown,
    ClockSet,
    Close,
    Dial,
    Effect,
    Input,
    LinkDown,
    LinkUp,
    LogRead,
    MaySpeak,
    Numbered,
    Read,
    Restart,
    Send,
    Store,
    Stored,
    ToClient,
)
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.boundary.stored import Disk, Identity
from veena.core.broker import Broker
from veena.core.trust.signatures import SIGNED_LEVEL
from veena.core.wire.control import Heartbeat, Received
from veena.core.wire.event import COPY, EventFrame
from veena.matching.base.work import EVALUATION_WORK
from veena.runtime.networks.file import Network
from veena.sim.world.dialling import Partition, dial, listen_address
from veena.sim.world.evaluator import Evaluator
from veena.sim.world.fingerprint import Fingerprint
from veena.sim.world.keyring import KeyRing
from veena.sim.world.map_oracle import Oracle
from veena.sim.world.narrow_links import occupy, tell_room
from veena.sim.world.network import Delivery, Session, VirtualLink, deliveries
from veena.sim.world.node import Counters, Node
from veena.sim.world.options import Options
from veena.sim.world.passage import Passage

MakeBroker = Callable[..., Broker]
#: The whole world is checked after so many steps, and so many for each of its brokers; single brokers as often as the
#: options say.
STEPS_BETWEEN_CHECKS = 1000
STEPS_BETWEEN_CHECKS_A_BROKER = 50
#: A driver that lost a link dials again after about this time.
REDIAL_NS = SECOND_NS
#: How long a synced write takes at least, and how much longer it may take; a read takes the least.
DISK_NS = MILLISECOND_NS
DISK_JITTER_NS = 4 * MILLISECOND_NS
#: How long a broker reads its disk before a new core begins.
RENEWAL_NS = 100 * MILLISECOND_NS
#: What the options count of what may wait for a client: an event of this world, with what holds it.
OUTLET_BYTES = 600
#: What brokers of a costly world spend on one evaluation in their loop: next to nothing.
COSTLY_WORK = 40
#: What a broker tells a client, or of its event.
ClientEffect = ToClient


def _settings_of(network: Network, options: Options) -> Settings:
    return Settings(
        network.name,
        network.levels,
        network.fanout,
        tombstone_ns=options.tombstone_ns,
        copies=options.copies,
        session_bytes=options.outlet * OUTLET_BYTES,
        records=options.records,
        retention_ns=options.retention_ns,
        standby_ns=options.standby_ns,
        evaluation_work=COSTLY_WORK if options.costly else EVALUATION_WORK,
    )


class World:
    """Brokers, links and the queue of what happens next."""

    def __init__(
        self,
        network: Network,
        seed: int,
        options: Options | None = None,
        settings: Settings | None = None,
        make_broker: MakeBroker = Broker,
        ring: KeyRing | None = None,
    ) -> None:
        self.network = network
        self.options = options or Options()
        self.settings = settings or _settings_of(network, self.options)
        self.chance = Random(seed)
        self.now_ns = SECOND_NS
        self.counters = Counters()
        self.nodes = {
            entry.address: Node(entry.address, None, Disk(Identity(entry.label, entry.address, 0)))
            for entry in network.brokers
        }
        self.links = [
            VirtualLink(entry.a, entry.b, self.options.delay_ns + int(entry.delay_ms * MILLISECOND_NS))
            for entry in network.links
        ]
        #: What separates brokers now, whatever links there are or will be.
        self.partitions: list[Partition] = []
        #: When a broker that dialled another was last connected to it.
        self.dialled_ns = 0
        #: Called with every delivery: what a test wants to see on its way.
        self.on_delivery: Callable[[Delivery], None] | None = None
        #: Called with every event that is written to a link for the first time: sender, receiver, frame.
        self.on_crossing: Callable[[Address, Address, EventFrame], None] | None = None
        #: Called with what a broker tells a client; it must not give that broker anything before the present step ends.
        self.on_client: Callable[[Address, ClientEffect], None] | None = None
        #: Called once with the answer to a broker's question whether it may speak for its unit.
        self.on_may_speak: dict[Address, Callable[[MaySpeak], None]] = {}
        #: Conversations with nodes that have no address: who listens, by the contact's link number.
        self._visitors: dict[int, Callable[[tuple[Numbered, ...]], None]] = {}
        self._make_broker = make_broker
        #: The keys of the brokers, where they sign.
        self.ring = ring or (KeyRing(seed) if self.options.signed else None)
        self.passage = Passage(network.levels, network.fanout)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._entered = 0
        self._check_at = STEPS_BETWEEN_CHECKS
        #: Whether a broker is given more than signs of life; after those alone its invariants can wait.
        self._is_news = True
        self._handles = 0
        self._clients = 0
        self._sessions: dict[int, Session] = {}
        #: Clients' sessions whose drivers have no room, as they said.
        self._clogged: dict[int, None] = {}
        #: Frames on the way that are more than a sign of life: none means that nothing new can happen.
        self._news_under_way = 0
        self._fingerprint = Fingerprint()
        #: What evaluates for all brokers.
        self.evaluator = Evaluator(seed, self.at)
        for address in self.nodes:
            self.start(address)

    # --- the queue ---

    def at(self, when_ns: int, action: Callable[[], None]) -> None:
        self._entered += 1
        heappush(self._queue, (when_ns, self._entered, action))

    def run_until(self, when_ns: int) -> None:
        """Let time pass."""
        while self._queue and self._queue[0][0] <= when_ns:
            self._step()
        self.now_ns = max(self.now_ns, when_ns)

    def run_until_quiet(self, limit_ns: int) -> bool:
        """Run until no news is under way; whether that happened before the limit."""
        quiet_since: int | None = None
        while self._queue and self._queue[0][0] <= limit_ns:
            self._step()
            if self._news_under_way:
                quiet_since = None
            elif quiet_since is None:
                quiet_since = self.now_ns
            elif self.now_ns - quiet_since > 2 * (
                DISK_NS + DISK_JITTER_NS + self.options.delay_ns + self.options.jitter_ns
            ):
                return True
        return not self._news_under_way

    def _step(self) -> None:
        when, _, action = heappop(self._queue)
        self.now_ns = when
        action()
        self.counters.steps += 1
        if self.counters.steps >= self._check_at:
            self._check_at += max(STEPS_BETWEEN_CHECKS, STEPS_BETWEEN_CHECKS_A_BROKER * len(self.nodes))
            if self.options.check:
                self.check()

    # --- brokers ---

    def start(self, address: Address) -> None:
        """Start a broker's process with what its disk holds."""
        node = self.nodes[address]
        assert node.broker is None
        disk = node.disk
        identity = Identity(disk.identity.name, address, disk.identity.incarnation + 1)
        node.base_ns = max(node.clock_ns, -self.now_ns)  # no time is before 1970
        node.broker = self._make_broker(
            identity,
            node.settings or self.settings,
            self.chance.getrandbits,
            node.time(self.now_ns),
            listen=(listen_address(address),),
            joined_ns=None if node.joined_ns is None else node.time(node.joined_ns),
            wall_offset_ns=node.wall_offset_ns,
            signing=None if self.ring is None else self.ring.signing(address),
            disk=replace(
                disk, **{each.name: copy(getattr(disk, each.name)) for each in fields(disk) if each.name != "identity"}
            ),
        )
        node.wake_ns = None
        self._after(node, node.broker.tick(node.time(self.now_ns)))
        for link in self.links_of(address):
            self.connect(link)

    def crash(self, address: Address, silent: bool) -> None:
        """Kill a broker's process; its neighbours' sockets notice, or do not if the machine died with it.

        What was on its way to the disk may have got there, unanswered, up to any point.
        """
        node = self.nodes[address]
        node.broker = None
        for store in list(node.unsynced)[: self.chance.randint(0, len(node.unsynced))]:
            _sync(node.disk, store)
        node.unsynced.clear()
        for link in self.links_of(address):
            if link.session is not None:
                self._end(link.session, tell=() if silent else (link.other(address),), reason="connection reset")

    def _renew(self, address: Address) -> None:
        """End a core that raised an exception which nobody foresaw, its change half made, and begin another one.

        As a running broker does it (`runtime.broker.renewal`): nothing of the input is carried out, every connection
        ends, what is on its way to the disk gets there. The frame is gone; its sender still owes what it brought.
        """
        node = self.nodes[address]
        node.breaks = False
        self.counters.renewals += 1
        while node.unsynced:
            _sync(node.disk, node.unsynced.popleft())
        self.crash(address, silent=False)

        def begin() -> None:
            if node.broker is None and not node.lost:
                self.start(address)

        self.at(self.now_ns + RENEWAL_NS, begin)

    def give(self, address: Address, given: Input) -> None:
        """Hand an input to a broker, if it lives."""
        node = self.nodes.get(address)
        if node is not None and node.broker is not None:
            self._fingerprint.given(self.now_ns, address, given)
            if type(given) is SessionClogged:
                self._clogged[given.session] = None
            elif type(given) is SessionClear or type(given) is ClientDown:
                self._clogged.pop(given.session, None)
            effects = node.broker.handle(given, node.time(self.now_ns))
            if node.breaks and type(given) is Arrived and self._is_news:
                self._renew(address)
            else:
                self._after(node, effects)

    def new_session(self) -> int:
        """A number for a client's conversation, never used before."""
        self._clients += 1
        return self._clients

    def live(self) -> Iterator[Broker]:
        return (node.broker for node in self.nodes.values() if node.broker is not None)

    def broker(self, address: Address) -> Broker:
        broker = self.nodes[address].broker
        assert broker is not None, "this broker is down"
        return broker

    def _after(self, node: Node, effects: list[Effect]) -> None:
        broker = node.broker
        assert broker is not None
        for effect in effects:
            if type(effect) is Send:
                self._send(node.address, effect)
            elif type(effect) is Close:
                self._closed(node.address, effect)
            elif type(effect) is Store:
                self._store(node, broker, effect)
            elif type(effect) is Read:
                self._read(node, broker, effect)
            elif type(effect) is Evaluate:
                self._evaluate(node, broker, effect)
            elif isinstance(effect, ClientEffect):
                self._tell_client(node.address, effect)
            elif type(effect) is Dial:
                dial(self, node.address, effect)
            elif type(effect) is MaySpeak:
                self.on_may_speak.pop(node.address)(effect)
            elif type(effect) is Restart:
                self._restart(node, effect)
                return
        node.steps += self._is_news
        if self._is_news and self.options.check and node.steps % self.options.check_every == 0:
            broker.check()
        due = broker.next_wakeup()
        due = None if due is None else due - node.base_ns
        if due is not None and (node.wake_ns is None or due < node.wake_ns):
            node.wake_ns = due
            self.at(max(due, self.now_ns), lambda: self._wake(node, broker, due))

    def _wake(self, node: Node, broker: Broker, due: int) -> None:
        if node.broker is broker and node.wake_ns == due:
            node.wake_ns = None
            self._after(node, broker.tick(node.time(self.now_ns)))

    def flush(self, address: Address) -> None:
        """Let a broker send what it has said."""
        node = self.nodes[address]
        if node.broker is not None:
            self._after(node, node.broker.tick(node.time(self.now_ns)))

    def set_clock(self, address: Address, clock_ns: int) -> None:
        """Set a broker's wall clock so far from the true time; its core goes by that from its next start on."""
        node = self.nodes[address]
        node.clock_ns = clock_ns
        self.give(address, ClockSet(node.wall_offset_ns))

    def _tell_client(self, address: Address, effect: ClientEffect) -> None:
        self._fingerprint.told(self.now_ns, address, effect)
        if type(effect) is AskRoom:
            self.at(self.now_ns, lambda: self._tell_room(address, effect.session))
            return
        if self.on_client is not None:
            self.on_client(address, effect)

    def _tell_room(self, address: Address, session: int) -> None:
        """A driver says that there is room, unless its client has ceased to read."""
        if session not in self._clogged:
            self.give(address, SessionClear(session))

    def _store(self, node: Node, broker: Broker, effect: Store) -> None:
        """Sync in the order of tickets, after a while; what a crash overtakes is lost."""

        def written() -> None:
            if node.broker is broker:
                assert node.unsynced.popleft() is effect
                _sync(node.disk, effect)
                self.give(node.address, Stored(effect.ticket))

        node.unsynced.append(effect)
        node.synced_ns = max(node.synced_ns, self.now_ns + DISK_NS + self.chance.randrange(DISK_JITTER_NS))
        self.at(node.synced_ns, written)

    def _read(self, node: Node, broker: Broker, effect: Read) -> None:
        def found() -> None:
            if node.broker is broker:
                entries = node.disk.entries
                start = bisect_left(entries, effect.offset, key=lambda entry: entry.offset)
                wanted = (
                    entry
                    for entry in islice(entries, start, None)
                    if (not effect.inbox or effect.inbox in entry.inboxes) and entry.accepted_ns >= effect.since_ns
                )
                self.give(node.address, LogRead(effect.ticket, tuple(islice(wanted, effect.limit))))

        self.at(self.now_ns + DISK_NS, found)

    def _evaluate(self, node: Node, broker: Broker, effect: Evaluate) -> None:
        def give(answer: Evaluated) -> None:
            if node.broker is broker:
                self.give(node.address, answer)

        self.evaluator.evaluate(node.address, effect, self.now_ns, give)

    def _restart(self, node: Node, effect: Restart) -> None:
        """Start a broker again under its new address, in its new network, when its old connections are closed."""
        node.broker = None
        node.unsynced.clear()

        def begin() -> None:
            old, new = node.address, effect.identity.address
            node.address, node.disk.identity, node.settings, node.joined_ns = new, effect.identity, None, self.now_ns
            self.nodes = {each.address: each for each in self.nodes.values()}
            for link in self.links:
                link.a, link.b = (new if end == old else end for end in (link.a, link.b))
            self.start(new)

        self.at(self.now_ns + REDIAL_NS, begin)

    # --- nodes without an address ---

    def visit(self, contact: Address, ip: str, listener: Callable[[tuple[Numbered, ...]], None]) -> int:
        """Open a connection to a broker; its link number, under which frames can be given to it."""
        self._handles += 1
        self._visitors[self._handles] = listener
        self.give(contact, LinkUp(self._handles, True, ip))
        return self._handles

    def leave(self, handle: int) -> None:
        """Close it."""
        if self._visitors.pop(handle, None) is not None:
            for address in list(self.nodes):
                self.give(address, LinkDown(handle, "the visitor left"))

    def add_network(self, network: Network, settings: Settings) -> None:
        """Put the brokers and links of another network beside this one, at addresses of their own."""
        for entry in network.brokers:
            assert entry.address not in self.nodes
            self.nodes[entry.address] = Node(
                entry.address, None, Disk(Identity(entry.label, entry.address, 0)), settings=settings
            )
        self.links += [VirtualLink(entry.a, entry.b, self.options.delay_ns) for entry in network.links]
        for entry in network.brokers:
            self.start(entry.address)

    def add_link(self, one: Address, other: Address) -> VirtualLink:
        """A link that was granted; it comes up when both ends live."""
        link = VirtualLink(one, other, self.options.delay_ns)
        self.links.append(link)
        if one in self.nodes:
            self.connect(link)
        return link

    # --- links ---

    def links_of(self, address: Address) -> list[VirtualLink]:
        return [link for link in self.links if address in (link.a, link.b)]

    def connect(self, link: VirtualLink) -> None:
        """Make a session if both ends live and none is there."""
        ends = [self.nodes.get(end) for end in (link.a, link.b)]
        if link.cut or link.session is not None or any(node is None or node.broker is None for node in ends):
            return
        self._handles += 2
        handles = {link.a: self._handles - 1, link.b: self._handles}
        session = link.session = Session(link, handles)
        for end, handle in handles.items():
            self._sessions[handle] = session
            self.give(end, LinkUp(handle, self.options.ordered, dialled=link.dialled and end == link.a))
            if link.capacity is not None:
                tell_room(self, session, end)

    def cut(self, link: VirtualLink, silent: bool) -> None:
        """Let nothing pass any more; the ends' sockets notice, or do not."""
        link.cut = True
        if link.session is not None and not silent:
            self._end(link.session, tell=(link.a, link.b), reason="connection reset")

    def heal(self, link: VirtualLink) -> None:
        link.cut = False
        if link.session is not None:
            stalled, link.session.stalled = link.session.stalled, []
            for delivery, news in stalled:
                self._arrive(delivery, news)
        self.connect(link)

    def bounce(self, link: VirtualLink) -> None:
        """Lose the connection and what is on the way, and have a new one at once."""
        if link.session is not None:
            self._end(link.session, tell=(link.a, link.b), reason="connection reset")
            self.connect(link)

    def _end(self, session: Session, tell: tuple[Address, ...], reason: str) -> None:
        session.alive = False
        self._news_under_way -= sum(news for _, news in session.stalled)
        session.stalled.clear()
        if session.link.session is session:
            session.link.session = None
        for end, handle in session.handles.items():
            self._sessions.pop(handle, None)
            if end in tell:
                self.give(end, LinkDown(handle, reason))

    def _closed(self, closer: Address, effect: Close) -> None:
        session = self._sessions.get(effect.link)
        if session is None:
            return
        link = session.link
        other = link.other(closer)

        def gone() -> None:
            self._end(session, tell=(other,), reason="closed by the peer")
            self.at(self.now_ns + REDIAL_NS, lambda: self.connect(link))

        # What was written before the close still arrives, as over a real socket.
        latest_ns = self.now_ns + link.slowness * (link.delay_ns + self.options.jitter_ns)
        self.at(max(latest_ns, session.last_arrival_ns.get(other, 0)), gone)

    def _send(self, sender: Address, effect: Send) -> None:
        listener = self._visitors.get(effect.link)
        if listener is not None:
            self.at(self.now_ns + self.options.delay_ns, lambda: listener(effect.frames))
            return
        session = self._sessions.get(effect.link)
        if session is None or not session.alive:
            return
        frames, lying = effect.frames, self.nodes[sender].lying
        if lying is not None and link_level(sender, session.link.other(sender)) >= SIGNED_LEVEL:
            frames = lying.altered(frames)
        self._note_crossings(session, sender, frames)
        left_ns = occupy(self, session, sender, frames)
        for delivery in deliveries(session, sender, frames, now_ns=left_ns, options=self.options, chance=self.chance):
            self.counters.frames += len(delivery.frames)
            news = not all(type(frame) is Received or type(frame) is Heartbeat for _, frame in delivery.frames)
            self._news_under_way += news
            self.at(delivery.at_ns, lambda delivery=delivery, news=news: self._arrive(delivery, news))  # type: ignore[misc]

    def _note_crossings(self, session: Session, sender: Address, frames: tuple[Numbered, ...]) -> None:
        """Events that are written for the first time: a number that was there before is sent again by the channel."""
        for number, frame in self.passage.each_event(frames):
            if frame.flags & COPY:
                continue  # a copy to keep, for the case that this disk is lost, is no event on its way
            if number > session.last_event.get(sender, 0):
                session.last_event[sender] = number
                if self.on_crossing is not None:
                    self.on_crossing(sender, session.link.other(sender), frame)

    def _arrive(self, delivery: Delivery, news: bool) -> None:
        self._news_under_way -= news
        session = delivery.session
        if not session.alive:
            return
        if session.link.cut:
            if self.options.ordered:  # a stalled stream: it arrives when the link heals, if the session lives
                self._news_under_way += news
                session.stalled.append((delivery, news))
            return
        if self.on_delivery is not None:
            self.on_delivery(delivery)
        frames = delivery.frames
        if self.options.wire:
            counted, frames = self.passage.through(frames)
            self._fingerprint.came(counted)
        self._is_news = news
        self.give(delivery.to, Arrived(session.handles[delivery.to], frames))
        self._is_news = True

    # --- judgement ---

    def oracle(self) -> Oracle:
        """The judge, told which brokers live and which links work."""
        working = [
            link
            for link in self.links
            if not link.cut and self.nodes[link.a].broker is not None and self.nodes[link.b].broker is not None
        ]
        proper = [(link.a, link.b) for link in working if not link.dialled]
        dialled = [(link.a, link.b) for link in working if link.dialled]
        return Oracle((broker.identity.address for broker in self.live()), proper, dialled)

    def check(self) -> None:
        """Assert the invariants of the whole world: no map larger than its contexts allow (BNM-01, I3)."""
        for broker in self.live():
            broker.check()
            host = broker.identity.address
            for level in range(self.network.levels):
                assert len(broker.map.siblings(level)) <= self.network.fanout, "a map holds at most fan-out a level"
            assert all(unit[:-1] == host[: len(unit) - 1] for unit in broker.map.reachable())

    def wrong_maps(self) -> list[Address]:
        """The live brokers whose map differs from the oracle's."""
        oracle = self.oracle()
        return [
            broker.identity.address
            for broker in self.live()
            if not oracle.agrees(
                broker.identity.address, [(e.a, e.b, e.level, e.cost, e.links) for e in broker.map.edges()]
            )
        ]

    def trace_hash(self) -> str:
        return self._fingerprint.hexdigest()


def _sync(disk: Disk, store: Store) -> None:
    for write in store.writes:
        disk.write(write)
