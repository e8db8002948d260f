"""Mail: events that name their clients find them wherever they are, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from veena import Event, InvalidConstraint, matching
from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Deliver, Input, Publish, Subscribe, Welcome
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest.constraint import TO, covers, create_engine, make_want, reach_want
from veena.core.interest.cover_set import CoverSet
from veena.core.interest.digest import DigestTest, event_atoms, make_part
from veena.core.interest.recipient_engine import AddresseeEngine
from veena.core.wire.event import EventCodec
from veena.event import IdGenerator
from veena.runtime.networks.file import load_network
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, World

NETWORKS = Path(__file__).parents[3] / "networks"
MAIL = Event(topic="quotes", to=["alice"])


def up(name: str, **settings: str) -> World:
    network = load_network(NETWORKS / f"{name}.toml")
    made = Settings(network.name, network.levels, network.fanout, **settings)  # type: ignore[arg-type]
    world = World(network, 1, Options(wire=False, check=False), made)
    world.run_until(world.now_ns + 5 * SECOND_NS)
    return world


def give(world: World, at: Address, *inputs: Input, seconds: int = 3) -> None:
    for each in inputs:
        world.give(at, each)
    world.run_until(world.now_ns + seconds * SECOND_NS)


def wanting(world: World, host: Address, event: Event, origin: Address) -> list[Unit]:
    broker = world.broker(host)
    vector = broker.profiles.interest.destinations(event, origin, world.now_ns)
    return [unit for unit in broker.map.vertices() if unit != host and vector & broker.profiles.interest.bit(unit)]


def ends(world: World, event: Event, origin: Address) -> dict[Address, dict[int, list[int]]]:
    """Every broker that an event published at `origin` is for, with its sessions: destinations where it is published,
    and again for the sub-units where it enters a unit."""
    found: dict[Address, dict[int, list[int]]] = {}
    pending: list[tuple[Address, Unit]] = [(origin, ())]
    while pending:
        host, entered = pending.pop()
        found[host] = world.broker(host).profiles.clients.matching(event, origin)
        inside = [unit for unit in wanting(world, host, event, origin) if unit[: len(entered)] == entered]
        pending += [(min(each for each in world.nodes if each[: len(unit)] == unit), unit) for unit in inside]
    return {host: sessions for host, sessions in found.items() if sessions}


# --- the engine ---


def test_the_engine_finds_clients_by_id() -> None:
    engine = AddresseeEngine()
    engine.add(1, "alice", 1)
    engine.add(2, "bob", 2)
    engine.add(3, "alice", 4)
    assert engine.match(Event(to=["alice", "carol", "alice"])) == [1, 3]
    assert engine.match(Event(to=["bob", "alice"])) == [1, 2, 3]
    assert engine.destinations(Event(to=["bob", "alice"])) == 7
    assert engine.match(Event(topic="alice")) == []
    assert engine.explain(1, MAIL) == "matches"
    assert "not addressed to 'bob'" in engine.explain(2, MAIL)
    engine.remove(1)
    engine.remove(3)
    assert engine.destinations(MAIL) == 0
    for bad in (5, "", "x" * 256, "a\x00"):
        with pytest.raises(InvalidConstraint):
            engine.add(9, bad, 0)
    assert len(engine) == 1


def test_the_engine_is_not_for_subscribers() -> None:
    assert "to" not in matching.names()
    assert isinstance(create_engine(TO), AddresseeEngine)


def test_ids_cover_nothing_but_themselves() -> None:
    """A crowd of reachable clients is told one by one, without comparing each with each."""
    assert not covers(reach_want("alice", 4), reach_want("bob", 4))
    assert covers(reach_want("alice", 4), reach_want("alice", 3))
    assert not covers(make_want("topic", "alice", 4), reach_want("alice", 4))
    cover = CoverSet()
    for number in range(600):
        assert cover.add(reach_want(f"client-{number}", 4))
    assert not cover.add(reach_want("client-7", 4))
    assert len(cover.told) == 600
    assert reach_want("client-7", 4).bucket != reach_want("client-8", 4).bucket
    cover.check()


def test_digests_know_addressees() -> None:
    """An event with addressees is looked for by these, not by its topic."""
    reach, topic = make_part(4, [reach_want("alice", 4)]), make_part(4, [make_want("topic", "quotes", 4)])
    assert DigestTest(reach).may_want(event_atoms(MAIL))
    assert DigestTest(reach).may_want(event_atoms(Event(to=["bob", "alice"])))
    assert not DigestTest(reach).may_want(event_atoms(Event(to=["bob"])))
    assert not DigestTest(topic).may_want(event_atoms(MAIL))
    assert not DigestTest(reach).may_want(event_atoms(Event(topic="alice")))


# --- networks ---


def test_mail_reaches_its_client_alone_in_the_whole_system() -> None:
    """EVT-05, RTE-04: from every corner of the 78 brokers to X, though others subscribe to its topic."""
    world = up("ges-78")
    brokers = [entry.address for entry in world.network.brokers]
    home = brokers[40]
    give(world, home, ClientUp(1, "alice", reachable=True))
    for number, address in enumerate(brokers[::7]):
        world.give(address, ClientUp(100 + number, f"reader-{number}"))
        world.give(address, Subscribe(100 + number, 1, "topic", "quotes", 4))
    world.run_until(world.now_ns + 3 * SECOND_NS)
    for origin in brokers[::11]:
        assert ends(world, MAIL, origin) == {home: {1: []}}
        assert len(ends(world, Event(topic="quotes"), origin)) == len(brokers[::7])
        assert ends(world, Event(topic="quotes", to=["nobody"]), origin) == {}


def test_mail_finds_a_client_that_has_roamed() -> None:
    """RTE-05: X goes from one super-cluster to another in another super-super-cluster; mail still arrives."""
    world = up("ges-78")
    brokers = [entry.address for entry in world.network.brokers]
    home, away, origin = brokers[0], brokers[-1], brokers[33]
    assert home[0] != away[0]
    give(world, home, ClientUp(1, "alice", reachable=True))
    assert ends(world, MAIL, origin) == {home: {1: []}}
    world.give(home, ClientDown(1, lost=True))
    give(world, away, ClientUp(1, "alice", reachable=True))
    assert ends(world, MAIL, origin) == {away: {1: []}}
    world.run_until(world.now_ns + 6 * SECOND_NS)
    assert ends(world, MAIL, origin) == {away: {1: []}}
    assert wanting(world, home, MAIL, home) == [away[:1]], "nobody at home is believed to be alice any more"


def test_every_top_level_unit_gets_every_event_when_asked_to() -> None:
    """PPP-14, AMB-42, EVT-06: `top = "broadcast"`; what nobody wants goes no further than that; by default nowhere."""
    plain, broadcast = up("fix-2"), up("fix-2", top="broadcast")
    event = Event(topic="nobody wants this")
    for entry in plain.network.brokers[::4]:
        host = entry.address
        tops = sorted({(each[0],) for each in plain.nodes if each[0] != host[0]})
        assert wanting(plain, host, event, host) == []
        assert tops and wanting(broadcast, host, event, host) == tops
        assert wanting(broadcast, host, Event(to=["nobody"]), host) == tops
    assert ends(broadcast, event, plain.network.brokers[0].address) == {}


def test_mail_is_delivered_once_to_each_of_its_addressees() -> None:
    """EVT-05, RTE-04, RTE-05: published at one end of the network, delivered in two others; after roaming elsewhere."""
    world = up("ges-22")
    brokers = [entry.address for entry in world.network.brokers]
    got: list[tuple[Address, int, tuple[int, ...]]] = []
    welcome: list[int] = []

    def on_client(address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Welcome) and effect.session == 99:
            welcome.append(effect.incarnation)
        if isinstance(effect, Deliver):
            got.extend((address, *receiver) for receiver in effect.receivers)

    world.on_client = on_client
    world.give(brokers[3], ClientUp(1, "alice", reachable=True))
    world.give(brokers[20], ClientUp(2, "bob", reachable=True))
    world.give(brokers[3], ClientUp(3, "eve"))
    world.give(brokers[3], Subscribe(3, 1, "topic", "quotes", 4))
    give(world, brokers[11], ClientUp(99, "publisher"))
    ids, codec = IdGenerator("publisher", welcome[0]), EventCodec(4, 32)

    def mail(*names: str) -> None:
        event = Event(topic="quotes", to=names, event_id=ids.next(world.now_ns))
        give(world, brokers[11], Publish(99, codec.frame(event, reliable=True, origin=brokers[11])))

    mail("alice", "bob", "alice", "nobody")
    assert sorted(got) == sorted([(brokers[3], 1, ()), (brokers[20], 2, ())])
    got.clear()
    world.give(brokers[3], ClientDown(1, lost=True))
    give(world, brokers[15], ClientUp(7, "alice", reachable=True))
    mail("alice")
    assert got == [(brokers[15], 7, ())]
