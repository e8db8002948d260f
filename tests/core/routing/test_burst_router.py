"""Bursts between brokers: everybody gets what it would get if the events had come one by one."""

from __future__ import annotations

from random import Random

import pytest

from veena.address import Address, link_level
from veena.core.boundary.clients import SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import (
    Arrived,
    ClientUp,
    Close,
    Deliver,
    DeliverBurst,
    DeliverMixed,
    LinkRoom,
    Publish,
    PublishBatch,
    Subscribe,
    Welcome,
)
from veena.core.boundary.settings import SECOND_NS
from veena.core.wire.burst import EventBurst
from veena.core.wire.codec import Decoder
from veena.core.wire.control import Burst, ReliableBurst
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId
from veena.runtime.networks.file import Network
from veena.sim.networks.generate import generate
from veena.sim.world.map_view import converged
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, World

CODEC = EventCodec(4, 32)
TOPICS = ("quotes", "orders")
PUBLISHER = 1
#: Each at a broker of its own.
READERS = range(11, 19)


@pytest.fixture(scope="module")
def network() -> Network:
    return generate(14, seed=3, cluster=3)


class Mesh:
    """A network at rest with a publisher and some readers, and what these are handed."""

    def __init__(self, network: Network, chance: Random) -> None:
        self.world: World = converged(network, 1, Options(wire=True, check=True))
        self.world.on_client = self._told
        brokers = sorted(self.world.nodes)
        chance.shuffle(brokers)
        self.home, self.places = brokers[0], dict(zip(READERS, brokers[:3] + brokers[3:8], strict=True))
        self.got: dict[tuple[int, int], list[tuple[int, tuple[int, ...], bytes, bytes]]] = {}
        self.incarnation = 0
        self.bursts = 0
        self.reliable = False
        self.world.on_delivery = self._count
        self.world.give(self.home, ClientUp(PUBLISHER, "p"))
        for session, place in self.places.items():
            self.world.give(place, ClientUp(session, f"reader-{session}"))

    def _count(self, delivery: object) -> None:
        self.bursts += sum(type(frame) in (Burst, ReliableBurst) for _, frame in delivery.frames)  # type: ignore[attr-defined]

    def _told(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Welcome) and effect.session == PUBLISHER:
            self.incarnation = effect.incarnation
        elif isinstance(effect, Deliver):
            self._note([effect.frame], effect.receivers)
        elif isinstance(effect, DeliverBurst):
            self._note(effect.burst.frames(), effect.receivers)
        elif isinstance(effect, DeliverMixed):
            for receivers, start, end in effect.pieces:
                self._note(effect.burst.frames()[start:end], receivers)

    def _note(self, frames: list[EventFrame], receivers: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
        for frame in frames:
            for session, numbers in receivers:
                got = (frame.sequence, numbers, bytes(frame.body), frame.origin)
                self.got.setdefault((session, frame.lane_number), []).append(got)

    def rest(self) -> None:
        self.world.run_until(self.world.now_ns + 2 * SECOND_NS)  # wants are told in batches
        assert self.world.run_until_quiet(self.world.now_ns + 30 * SECOND_NS)

    def wants(self, session: int, number: int, topic: str, selector: str = "", scope: int = 4) -> None:
        self.world.give(self.places[session], Subscribe(session, number, "selector", (topic, selector), scope))

    def frame(self, sequence: int, topic: str = "quotes", **given: object) -> EventFrame:
        event_id = EventId("p", self.incarnation, 3, sequence)
        event = Event(topic=topic, event_id=event_id, timestamp_ns=sequence, body=b"%d" % sequence, **given)  # type: ignore[arg-type]
        return CODEC.frame(event, reliable=self.reliable)

    def publish(self, frames: list[EventFrame], alone: bool = False) -> None:
        if alone:
            for frame in frames:
                self.world.give(self.home, Publish(PUBLISHER, frame))
        else:
            found = Decoder(CODEC).feed_bursts(b"".join(CODEC.encode(frame, 0) for frame in frames))
            bursts = [each for each in found if isinstance(each, EventBurst)]
            self.world.give(self.home, PublishBatch(PUBLISHER, bursts))
        self.rest()

    def narrow(self, chance: Random, room: int | None) -> None:
        """The transport of a link has so much room for events, or any."""
        session = chance.choice([link.session for link in self.world.links if link.session is not None])
        for end, handle in session.handles.items():
            self.world.give(end, LinkRoom(handle, room))


def _some(mesh: Mesh, chance: Random, sequence: int) -> list[EventFrame]:
    frames: list[EventFrame] = []
    while len(frames) < 25:
        topic, priority, price = chance.choice(TOPICS), chance.choice((1, 5, 9)), chance.randrange(4)
        ttl = chance.choice((None, None, None, 60.0))
        for _ in range(chance.randrange(1, 10)):
            sequence += chance.choice((1, 1, 1, 2))
            frames.append(mesh.frame(sequence, topic, priority=priority, properties={"price": price}, ttl=ttl))
    return frames


@pytest.mark.parametrize("reliable", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_bursts_and_single_events_come_to_the_same(network: Network, seed: int, reliable: bool) -> None:
    """I2, DUP-03, FLT-09, QOS-03: over several hops, with lanes, slow readers, narrow and cut links."""
    outcomes = []
    for alone in (True, False):
        chance = Random(seed)
        mesh = Mesh(network, chance)
        mesh.reliable = reliable
        sequence = 0
        for turn in range(12):
            session = chance.choice(READERS)
            selector = chance.choice(("", "price > 1", "price = 2"))
            mesh.wants(session, turn, chance.choice(TOPICS), selector, chance.choice((1, 2, 4, 4)))
            action, other = chance.randrange(6), chance.choice(READERS)
            links = [link for link in mesh.world.links if link.session is not None]
            cut = chance.choice(links)
            if action == 0:
                mesh.world.give(mesh.places[other], SessionClogged(other))
            elif action == 1:
                mesh.world.give(mesh.places[other], SessionClear(other))
            elif action == 2:
                mesh.narrow(chance, chance.choice((None, 1 << 20)))
            elif action == 3:
                mesh.world.bounce(cut)
            mesh.rest()
            frames = _some(mesh, chance, sequence)
            sequence = frames[-1].sequence
            mesh.publish(frames, alone)
        for session in READERS:
            mesh.world.give(mesh.places[session], SessionClear(session))
        mesh.rest()
        outcomes.append(mesh.got)
        assert (mesh.bursts > 0) is not alone
        mesh.world.check()
    assert outcomes[0] == outcomes[1]
    assert sum(map(len, outcomes[0].values())) > 100


def _seed_at_a_gate(network: Network) -> int:
    """A seed with which the publisher's broker has a link to another super-cluster."""
    gates = {end for link in network.links for end in (link.a, link.b) if link.a[:2] != link.b[:2]}
    for seed in range(100):
        brokers = sorted(entry.address for entry in network.brokers)
        Random(seed).shuffle(brokers)
        if brokers[0] in gates:
            return seed
    raise AssertionError("this network has one super-cluster")


def test_mixed_bursts_in_a_network_come_to_the_same(network: Network) -> None:
    """I2: events that differ, of which some are wanted elsewhere."""
    outcomes = []
    for alone in (True, False):
        chance = Random(_seed_at_a_gate(network))
        mesh = Mesh(network, chance)
        near = [session for session in READERS if mesh.places[session][0] == mesh.home[0]]
        for number, session in enumerate(near):
            mesh.wants(session, 1, chance.choice(TOPICS), f"price > {60 + number} AND side = 'buy'")
            constraint = f"price > {1000 + number} or sym == 'none{number}'"
            mesh.world.give(mesh.places[session], Subscribe(session, 2, "constraint", constraint, 4))
        mesh.world.give(mesh.places[near[-1]], Subscribe(near[-1], 3, "tags", "Make=Ford", 4))
        mesh.rest()
        for turn in range(4):
            frames = [
                mesh.frame(
                    turn * 100 + at,
                    chance.choice(TOPICS),
                    properties={"price": chance.randrange(100), "side": chance.choice(("buy", "sell")), "n": at},
                    tags={"Make": chance.choice(("Ford", "VW", "VW"))} if at % 9 == 0 else None,
                )
                for at in range(1, 60)
            ]
            mesh.publish(frames, alone)
        broker = mesh.world.nodes[mesh.home].broker
        assert broker is not None
        home = broker.statistics()
        outcomes.append((mesh.got, home.router.copies_out, home.origin.accepted))
        mesh.world.check()
    assert outcomes[0] == outcomes[1]
    assert sum(map(len, outcomes[0][0].values())) > 20


def test_a_burst_crosses_a_link_as_one_frame(network: Network) -> None:
    """Whatever the number of events and of receivers beyond it."""
    mesh = Mesh(network, Random(1))
    far = max(READERS, key=lambda session: sum(a != b for a, b in zip(mesh.places[session], mesh.home, strict=True)))
    mesh.wants(far, 1, "quotes")
    mesh.rest()
    mesh.publish([mesh.frame(number) for number in range(1, 101)])
    assert [each[0] for each in mesh.got[far, 1]] == list(range(1, 101))
    assert all(each[3] == bytes(mesh.home) for each in mesh.got[far, 1])
    hops = mesh.bursts
    assert 1 <= hops <= 8
    mesh.publish([mesh.frame(number, ttl=60.0) for number in range(101, 151)])
    assert len(mesh.got[far, 1]) == 150
    assert mesh.bursts == hops, "what has a time to live is looked at one by one"


def test_a_selector_far_away_may_tell_events_apart_that_are_alike(network: Network) -> None:
    """MAT-21: as `test_plain_way` has it for one broker."""
    for session in READERS:
        mesh = Mesh(network, Random(2))
        mesh.wants(session, 1, "quotes", "JMSTimestamp > 0")
        mesh.rest()
        event = [EventId("p", mesh.incarnation, 3, n) for n in (1, 2, 3)]
        times = (1, 9_000_000, 2)
        frames = [
            CODEC.frame(Event(topic="quotes", event_id=each, timestamp_ns=time))
            for each, time in zip(event, times, strict=True)
        ]
        mesh.publish(frames)
        assert [each[0] for each in mesh.got[session, 1]] == [2]


# --- from a peer that errs ---


def _wrong(mesh: Mesh, frame: Burst) -> str:
    """The reason with which a broker closes a link between clusters that brings this frame."""
    link = next(link for link in mesh.world.links if link.session is not None and link_level(link.a, link.b) > 0)
    assert link.session is not None
    broker = mesh.world.broker(link.a)
    handle = link.session.handles[link.a]
    number = next(each for each in broker.statistics().links if each.link == handle).channel.received + 1
    effects = broker.handle(Arrived(handle, ((number, frame),)), mesh.world.now_ns)
    return next(effect.reason for effect in effects if isinstance(effect, Close))


def test_a_peer_that_errs_loses_its_link_and_is_told_why(network: Network) -> None:
    size = CODEC.vector_size
    zero = bytes(size)
    mesh = Mesh(network, Random(1))
    one, other = (CODEC.encode(mesh.frame(number, topic), 0) for number, topic in ((1, "quotes"), (2, "orders")))
    reliable = CODEC.encode(CODEC.frame(Event(topic="t", event_id=EventId("p", 1, 3, 1)), reliable=True), 0)
    for frame, words in (
        (Burst(zero[1:], zero, one), "vectors of other than"),
        (Burst(zero, zero + b"\0", one), "vectors of other than"),
        (Burst(b"\0" * (size - 1) + b"\1", zero, one), "units below level"),
        (Burst(zero, zero, b"short"), "a burst of 5 bytes"),
        (Burst(zero, zero, one[:-1]), "a burst that begins with"),
        (Burst(zero, zero, CODEC.encode(mesh.frame(1), 7)), "number 7"),
        (Burst(zero, zero, reliable), "reliable events"),
        (Burst(zero, zero, one + other), "not alike"),
        (Burst(zero, zero, one + one), "not alike, or not in order"),
    ):
        assert words in _wrong(Mesh(network, Random(1)), frame)
