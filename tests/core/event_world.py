"""Small worlds of real brokers with clients in them: who published what, who got what, over which links it went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import (
    Accepted,
    ClientDown,
    ClientUp,
    DeadLetter,
    Deliver,
    LinkLoad,
    Publish,
    PublishRefused,
    Subscribe,
    Welcome,
)
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.broker import Broker
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId, IdGenerator
from veena.matching.base.engine import Constraint
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.world.network import VirtualLink
from veena.sim.world.options import ALWAYS_CHECKED, CHECK_EVERY, Options
from veena.sim.world.world import ClientEffect, MakeBroker, World

NETWORKS = Path(__file__).parents[2] / "networks"
#: Maps, wants and their marks have spread through the papers' networks after so long.
SETTLING_NS = 3 * SECOND_NS
#: For larger networks: their brokers are checked elsewhere.
QUICK = Options(wire=False, check=False)
QUOTES = Event(topic="quotes")


def usual(network: Network) -> Options:
    """Brokers assert their invariants as often as in a run of this size."""
    return Options(wire=False, check_every=1 if len(network.brokers) <= ALWAYS_CHECKED else CHECK_EVERY)


class Stage:
    """A world, and the clients of a test. Brokers are named by the last part of their label where that is enough."""

    def __init__(
        self,
        network: Network,
        *,
        seed: int = 1,
        options: Options | None = None,
        settings: Settings | None = None,
        make_broker: MakeBroker = Broker,
        settling_ns: int = SETTLING_NS,
    ) -> None:
        self.network = network
        self.settling_ns = settling_ns
        self.world = World(network, seed, options or usual(network), settings, make_broker)
        self.world.on_client = self._heard
        self.world.on_crossing = self._crossed
        short = {entry.address: entry.label.rsplit(".", 1)[-1] for entry in network.brokers}
        is_unique = len(set(short.values())) == len(short)
        self.names = short if is_unique else {entry.address: entry.label for entry in network.brokers}
        self.addresses = {name: address for address, name in self.names.items()}
        #: By session: the bodies of the events that it got, in order, and their frames.
        self.bodies: dict[int, list[str]] = {}
        self.frames: dict[int, list[EventFrame]] = {}
        self.accepted: list[EventId] = []
        self.refused: list[PublishRefused] = []
        self.dead: list[DeadLetter] = []
        #: Every copy that was written to a link: sender, receiver, the copy.
        self.copies: list[tuple[str, str, EventFrame]] = []
        self._codec = EventCodec(network.levels, network.fanout)
        self._ids: dict[int, IdGenerator] = {}
        self._homes: dict[int, Address] = {}
        self._welcomed: dict[int, int] = {}
        self.wait()

    # --- time ---

    def wait(self, time_ns: int = 0) -> None:
        """Let time pass: by default until maps and wants have spread."""
        self.world.run_until(self.world.now_ns + (time_ns or self.settling_ns))

    def wait_ms(self, milliseconds: int) -> None:
        self.wait(milliseconds * MILLISECOND_NS)

    # --- brokers and links ---

    def broker(self, name: str) -> Broker:
        return self.world.broker(self.addresses[name])

    def link(self, one: str, other: str) -> VirtualLink:
        ends = {self.addresses[one], self.addresses[other]}
        return next(link for link in self.world.links if {link.a, link.b} == ends)

    def make_dear(self, one: str, other: str) -> None:
        """Load a link until everybody avoids it."""
        session = self.link(one, other).session
        assert session is not None
        for end, handle in session.handles.items():
            self.world.give(end, LinkLoad(handle, 0.95))
        self.wait(6 * SECOND_NS)  # loads are looked at every five seconds

    def hop(self, at: str, to: str | Unit) -> str | None:
        """The neighbour to which a broker sends what is for a unit."""
        hop = self.broker(at).hops.hop(self.addresses[to] if isinstance(to, str) else to)
        return None if hop is None else self.names[hop.neighbour]

    # --- clients ---

    def attach(self, name: str, client_id: str, **up: object) -> int:
        session = self.world.new_session()
        self._homes[session] = self.addresses[name]
        self.bodies[session], self.frames[session] = [], []
        self.world.give(self.addresses[name], ClientUp(session, client_id, **up))  # type: ignore[arg-type]
        self._ids[session] = IdGenerator(client_id, self._welcomed[session])
        return session

    def leave(self, session: int, lost: bool = False) -> None:
        self.world.give(self._homes[session], ClientDown(session, lost))

    def subscribe(self, name: str, constraint: Constraint = "quotes", *, engine: str = "topic", scope: int = 0) -> int:
        """A client with one subscription; its wants need time to spread."""
        session = self.attach(name, f"reader-{name}-{self.world.now_ns}-{len(self.bodies)}")
        given = Subscribe(session, 1, engine, constraint, scope or self.network.levels)
        self.world.give(self.addresses[name], given)
        return session

    def publish(
        self,
        session: int,
        body: str,
        event: Event = QUOTES,
        *,
        reliable: bool = True,
        original: tuple[int, int, int] | None = None,
        ahead_ns: int = 0,
    ) -> EventId:
        """Publish by a clock that may be ahead."""
        now_ns = self.world.now_ns
        event_id = self._ids[session].next(now_ns)
        stamped = replace(event, event_id=event_id, timestamp_ns=now_ns + ahead_ns, body=body.encode())
        frame = self._codec.frame(stamped, reliable=reliable, original=original)
        self.world.give(self._homes[session], Publish(session, frame))
        return event_id

    def incarnation(self, session: int) -> int:
        return self._welcomed[session]

    def _heard(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Welcome):
            self._welcomed[effect.session] = effect.incarnation
        elif isinstance(effect, Accepted):
            self.accepted.append(effect.id)
        elif isinstance(effect, PublishRefused):
            self.refused.append(effect)
        elif isinstance(effect, DeadLetter):
            self.dead.append(effect)
        elif isinstance(effect, Deliver):
            for session, _ in effect.receivers:
                self.bodies[session].append(bytes(effect.frame.body).decode())
                self.frames[session].append(effect.frame)

    # --- ways ---

    def _crossed(self, sender: Address, receiver: Address, frame: EventFrame) -> None:
        self.copies.append((self.names[sender], self.names[receiver], frame))

    def hops_of(self, body: str) -> list[tuple[str, str]]:
        """The links that an event was written to, in order."""
        return [(a, b) for a, b, frame in self.copies if bytes(frame.body) == body.encode()]

    def copy_over(self, one: str, other: str) -> EventFrame:
        """The only copy that went from one broker to another."""
        found = [frame for a, b, frame in self.copies if (a, b) == (one, other)]
        assert len(found) == 1, f"{len(found)} copies from {one} to {other}"
        return found[0]

    def units(self, vector: int, at: str) -> list[str]:
        """The labels of the units that a vector names where it is read."""
        host, fanout = self.addresses[at], self.network.fanout
        return [
            self.network.labels.label((*host[: len(host) - 1 - place // fanout], place % fanout))
            for place in range(self.network.levels * fanout)
            if vector >> place & 1
        ]

    def is_idle(self) -> bool:
        """Whether no broker owes an event to anybody."""
        return all(
            len(broker.events.router.duties) == 0 and broker.events.origin.statistics().open == 0
            for broker in self.world.live()
        )


def cluster(links: Sequence[tuple[int, int]]) -> Network:
    """Brokers of one cluster, named by their numbers."""
    numbers = sorted({number for link in links for number in link})
    return make_network("small", [f"S.C.c.{n}" for n in numbers], [(f"S.C.c.{a}", f"S.C.c.{b}") for a, b in links])


def crossed_twice(ways: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    """The links, whichever way, that occur more than once."""
    links = [tuple(sorted(way)) for way in ways]
    return sorted({link for link in links if links.count(link) > 1})


def stage_of(name: str, settings: Settings | None = None) -> Stage:
    network = load_network(NETWORKS / f"{name}.toml", connected=True)
    return Stage(network, options=QUICK, settings=settings)


def way(stage: Stage, topic: str) -> list[str]:
    """The brokers that an event with one destination passed, one after the other."""
    ways = stage.hops_of(topic)
    assert all(one[1] == other[0] for one, other in pairwise(ways)), "one way, without forks"
    return [ways[0][0], *(to for _, to in ways)]
