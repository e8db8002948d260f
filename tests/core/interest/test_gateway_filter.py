"""The near gatekeeper looks again before an event crosses between sites, and never stops one that is wanted."""

from __future__ import annotations

import random

import pytest

from tests.core.scripted_peer import HOST, closed, neighbour, sent, started
from veena import Event
from veena.address import Address, link_level
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Deliver, Publish, Subscribe, Unsubscribe, Welcome
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest import gateway_export as beyond_telling
from veena.core.interest import gateway_filter as beyond
from veena.core.interest.constraint import make_want
from veena.core.interest.digest import make_part
from veena.core.interest.gateway_filter import FAR_LEASE_NS
from veena.core.wire.control import Frame
from veena.core.wire.event import EventCodec, EventFrame
from veena.core.wire.interest import (
    COMPLETE,
    MORE,
    UNKNOWN,
    DigestPart,
    FarDigest,
    FarHave,
    FarInterest,
    FarWant,
)
from veena.event import IdGenerator
from veena.runtime.networks.file import Network, make_network
from veena.sim.clients.population import draw_event, draw_subscription
from veena.sim.networks.generate import generate
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, World

SYSTEM = 4
#: Two super-clusters of two clusters each, one link between them.
SITES = make_network(
    "sites",
    ["S.A.a.1", "S.A.a.2", "S.A.b.3", "S.B.c.4", "S.B.c.5", "S.B.d.6", "S.B.d.7"],
    [
        ("S.A.a.1", "S.A.a.2"),
        ("S.A.a.2", "S.A.b.3"),
        ("S.A.a.1", "S.B.c.4"),
        ("S.B.c.4", "S.B.c.5"),
        ("S.B.c.5", "S.B.d.6"),
        ("S.B.d.6", "S.B.d.7"),
    ],
)


def at(label: str, network: Network = SITES) -> Address:
    return network.labels.unit(label)


NEAR, FAR = at("S.A.a.1"), at("S.B.c.4")


def up(network: Network = SITES, settings: Settings | None = None) -> World:
    world = World(network, 1, Options(wire=False), settings)
    world.run_until(world.now_ns + 8 * SECOND_NS)
    return world


def wait(world: World, seconds: float = 5) -> None:
    world.run_until(world.now_ns + int(seconds * SECOND_NS))


def quote(price: int) -> Event:
    return Event(topic="quotes", properties={"price": price})


def connection(world: World, near: Address = NEAR, far: Address = FAR) -> int:
    links = world.broker(near).statistics().links
    return next(link.connection for link in links if link.neighbour == far and link.connection is not None)


def crosses(world: World, event: Event, origin: Address = NEAR) -> bool:
    return world.broker(NEAR).profiles.beyond.wants(connection(world), event, origin, world.now_ns)


def subscribe(world: World, where: Address, constraint: tuple[str, str], scope: int = SYSTEM, number: int = 1) -> None:
    if number == 1:
        world.give(where, ClientUp(1, "alice"))
    world.give(where, Subscribe(1, number, "selector", constraint, scope))


# --- two sites ---


@pytest.mark.parametrize("where", ["S.B.c.4", "S.B.c.5", "S.B.d.7"])
def test_selectors_decide_what_crosses_between_sites(where: str) -> None:
    """Design §5: the digest of the far unit holds the topic alone; the gatekeeper has its rows, wherever the client is:
    at the far gate itself, in its cluster, in another one."""
    world = up()
    subscribe(world, at(where), ("quotes", "price > 10"))
    wait(world)
    interest = world.broker(NEAR).profiles.interest
    assert interest.destinations(quote(5), NEAR, world.now_ns) & interest.bit(FAR[:2]), "the digest lets it through"
    assert crosses(world, quote(12))
    assert not crosses(world, quote(5))
    assert not crosses(world, Event(topic="news"))
    statistics = world.broker(NEAR).profiles.beyond.statistics()
    assert (statistics.rows, statistics.looked, statistics.stopped) == (1, 3, 2)


def test_what_changes_is_told() -> None:
    """PRF-07, AGG-07: a wider want hides a narrower one and gives it free; what is withdrawn no longer crosses."""
    world = up()
    subscribe(world, at("S.B.d.7"), ("quotes", "price > 10"))
    subscribe(world, at("S.B.d.7"), ("quotes", ""), number=2)
    wait(world)
    assert crosses(world, quote(5))
    world.give(at("S.B.d.7"), Unsubscribe(1, 2))
    wait(world)
    assert not crosses(world, quote(5))
    assert crosses(world, quote(12))
    world.give(at("S.B.d.7"), ClientDown(1))
    wait(world)
    assert not crosses(world, quote(12))
    assert world.broker(FAR).profiles.beyond.statistics().unconfirmed == 0


def test_a_want_that_ends_on_its_side_does_not_count() -> None:
    """PRF-10: scope super-cluster: nothing from the other site is for it, and its row does not cross."""
    world = up()
    subscribe(world, at("S.B.d.7"), ("quotes", "price > 10"), scope=2)
    wait(world)
    assert not crosses(world, quote(12))
    assert world.broker(NEAR).profiles.beyond.statistics().rows == 0


def test_mail_is_looked_up_too() -> None:
    """RTE-04."""
    world = up()
    world.give(at("S.B.d.7"), ClientUp(1, "bob", reachable=True))
    subscribe(world, at("S.B.d.6"), ("quotes", ""))
    wait(world)
    assert crosses(world, Event(topic="quotes", to=["bob"]))
    assert not crosses(world, Event(topic="quotes", to=["carol"]))


def test_what_comes_out_of_the_unit_is_never_stopped() -> None:
    world = up()
    assert not crosses(world, quote(1), origin=at("S.A.b.3"))
    assert crosses(world, quote(1), origin=at("S.B.d.6"))
    assert world.broker(NEAR).profiles.beyond.wants(12345, quote(1), NEAR, world.now_ns), "an unknown link wants all"


def test_one_percent_of_a_topic_crosses() -> None:
    """Two super-clusters, one link, one topic, 1 % matching the selector of 10 equal subscribers on the far side."""
    world = up()
    got: list[int] = []
    welcome: list[int] = []
    crossed: list[EventFrame] = []

    def on_client(address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Welcome) and effect.session == 99:
            welcome.append(effect.incarnation)
        if isinstance(effect, Deliver):
            got.append(len(effect.receivers))

    def on_crossing(sender: Address, receiver: Address, frame: EventFrame) -> None:
        if (sender, receiver) == (NEAR, FAR):
            crossed.append(frame)

    world.on_client, world.on_crossing = on_client, on_crossing
    for client in range(10):
        world.give(at("S.B.d.7"), ClientUp(client, f"client-{client}"))
        world.give(at("S.B.d.7"), Subscribe(client, 1, "selector", ("quotes", "price = 0"), SYSTEM))
    publisher = at("S.A.b.3")
    world.give(publisher, ClientUp(99, "publisher"))
    wait(world)
    ids, codec = IdGenerator("publisher", welcome[0]), EventCodec(4, 32)
    for number in range(300):
        event = Event(
            topic="quotes",
            properties={"price": number % 100},
            body=bytes(1024),
            event_id=ids.next(world.now_ns + number),
        )
        world.give(publisher, Publish(99, codec.frame(event, reliable=True, origin=publisher)))
        wait(world, 0.01)
    wait(world)
    assert len(crossed) == 3
    assert got == [10, 10, 10]


# --- what is not known ---


def test_before_everything_has_come_the_unit_wants_all() -> None:
    world = World(SITES, 1, Options(wire=False))
    seen = {False: 0, True: 0}
    while world.now_ns < 8 * SECOND_NS:
        wait(world, 0.2)
        links = world.broker(NEAR).statistics().links
        if any(link.neighbour == FAR and link.connection is not None for link in links):
            seen[crosses(world, quote(1))] += 1
    assert seen[True] > 4 and seen[False] > 4


def test_when_a_part_of_the_far_unit_is_cut_off_all_of_it_wants_all() -> None:
    """Never narrower: the part may live on and want new things that cannot be heard of. Healed, it looks again."""
    world = up()
    link = next(each for each in world.links if {each.a, each.b} == {at("S.B.c.5"), at("S.B.d.6")})
    assert not crosses(world, quote(1))
    world.cut(link, silent=False)
    wait(world, 2)
    assert crosses(world, quote(1))
    subscribe(world, at("S.B.d.7"), ("quotes", "price > 10"))
    world.heal(link)
    wait(world, 10)
    assert crosses(world, quote(12))
    assert not crosses(world, quote(1))


def test_too_many_wants_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a gatekeeper is bounded: beyond that it does not look."""
    monkeypatch.setattr(beyond_telling, "MAX_FAR_ROWS", 40)
    monkeypatch.setattr(beyond_telling, "ENOUGH_ROWS", 30)
    world = up()
    world.give(at("S.B.d.7"), ClientUp(1, "alice"))
    for number in range(45):
        world.give(at("S.B.d.7"), Subscribe(1, number, "integer", number, SYSTEM))
    wait(world)
    assert crosses(world, quote(1))
    assert world.broker(NEAR).profiles.beyond.statistics().rows == 0
    for number in range(10):
        world.give(at("S.B.d.7"), Unsubscribe(1, number))
    wait(world)
    assert crosses(world, quote(1)), "35 are few enough to go on, too many to begin again"
    for number in range(10, 20):
        world.give(at("S.B.d.7"), Unsubscribe(1, number))
    wait(world)
    assert not crosses(world, quote(1))
    assert world.broker(NEAR).profiles.beyond.statistics().rows == 25


def test_with_broadcast_at_the_top_nothing_is_stopped_there() -> None:
    """PPP-14: every event must come to each unit of the highest level."""
    network = make_network("tops", ["A.a.a.1", "B.b.b.2"], [("A.a.a.1", "B.b.b.2")])
    for top, passes in (("interest", False), ("broadcast", True)):
        world = up(network, Settings("tops", 4, 32, top=top))  # type: ignore[arg-type]
        near, far = at("A.a.a.1", network), at("B.b.b.2", network)
        found = world.broker(near).profiles.beyond.wants(connection(world, near, far), quote(1), near, world.now_ns)
        assert found is passes


def test_the_word_of_the_far_end_is_good_for_a_lease() -> None:
    """A far end that no longer answers may have been told new wants, and may no longer count on this link."""
    world = up()
    gate, number = world.broker(NEAR).profiles.beyond, connection(world)
    assert not gate.wants(number, quote(1), NEAR, world.now_ns)
    assert gate.wants(number, quote(1), NEAR, world.now_ns + FAR_LEASE_NS)
    link = next(each for each in world.links if {each.a, each.b} == {NEAR, FAR})
    world.cut(link, silent=True)
    wait(world, FAR_LEASE_NS / SECOND_NS)
    assert crosses(world, quote(1)), "suspected, not closed yet"


# --- large networks ---


def test_nobody_is_forgotten_and_little_is_let_through() -> None:
    """I2: for random wants and events over every link of level 2 and above: what somebody beyond it wants crosses, and
    over links between super-clusters nothing else does."""
    network, chance = generate(50, 3), random.Random(3)
    world = World(network, 3, Options(wire=False, check=False))
    wait(world, 4)
    for number, entry in enumerate(network.brokers):
        world.give(entry.address, ClientUp(number, entry.label))
        engine, constraint = draw_subscription(chance)
        world.give(entry.address, Subscribe(number, 1, engine, constraint, chance.choice((2, 3, 4, 4, 4))))
    wait(world, 5)
    asked, stopped = {2: 0, 3: 0}, {2: 0, 3: 0}
    events = [draw_event(chance) for _ in range(60)]
    for link in world.links:
        level = link_level(link.a, link.b)
        for near, far in ((link.a, link.b), (link.b, link.a)) if level >= 2 else ():
            gate, number, unit = world.broker(near).profiles.beyond, connection(world, near, far), far[: 4 - level]
            for event in events:
                wanted = any(
                    broker.profiles.clients.matching(event, near)
                    for broker in world.live()
                    if broker.identity.address[: len(unit)] == unit
                )
                found = gate.wants(number, event, near, world.now_ns)
                assert found or not wanted
                assert level > 2 or found == wanted
                asked[level] += 1
                stopped[level] += not found
    assert all(asked.values()) and stopped[2]


# --- bad peers ---

TOPIC = make_want("topic", "quotes", 4)


@pytest.mark.parametrize(
    ("address", "frame", "message"),
    [
        ((0, 0, 1, 0), FarHave(0), "over a link of level 1"),
        ((0, 0, 0, 1), FarInterest(1, True, COMPLETE), "over a link of level 0"),
        ((0, 1, 0, 0), FarHave(7), "batch 7 was confirmed"),
        ((0, 1, 0, 0), FarInterest(1, True, COMPLETE, (FarWant(1, TOPIC.payload, 2),)), "scope 2"),
        ((0, 1, 0, 0), FarInterest(1, True, COMPLETE, (FarWant(1, TOPIC.payload, 5),)), "scope 5"),
        ((0, 1, 0, 0), FarDigest((DigestPart(1, False, b""),)), "scope [1]"),
        ((0, 1, 0, 0), FarInterest(1, True, COMPLETE, (FarWant(77, TOPIC.payload, 4),)), "no such engine"),
        ((0, 1, 0, 0), FarInterest(1, True, COMPLETE, (FarWant(1, b"\xc1", 4),)), "cannot be read"),
        ((0, 1, 0, 0), FarInterest(1, True, COMPLETE, (FarWant(3, TOPIC.payload, 4),)), "cannot be read"),
    ],
)
def test_a_peer_that_errs_loses_its_link(address: Address, frame: Frame, message: str) -> None:
    broker = started()
    peer = neighbour(broker, 1, address)
    ((link, reason),) = closed(peer.say(frame))
    assert link == 1 and message in reason
    broker.check()


def test_a_peer_that_tells_too_much_loses_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond, "MAX_FAR_ROWS", 10)
    broker = started()
    peer = neighbour(broker, 1, (0, 1, 0, 0))
    wants = [FarWant(1, make_want("topic", f"t{number}", 4).payload, 4) for number in range(11)]
    assert closed(peer.say(FarInterest(1, True, COMPLETE, tuple(wants[:10])))) == []
    assert closed(peer.say(FarInterest(2, False, COMPLETE, tuple(wants[:10])))) == [], "repeats are no news"
    ((_, reason),) = closed(peer.say(FarInterest(3, False, COMPLETE, tuple(wants))))
    assert "more than 10 wants of 0.1" in reason


def test_every_word_is_confirmed_by_number() -> None:
    """COMPLETE and UNKNOWN are answered, what is followed by more is not."""
    broker = started()
    peer = neighbour(broker, 1, (0, 1, 0, 0))
    gate, connection_id = broker.profiles.beyond, peer.connection
    event = Event(topic="news")

    def wants() -> bool:
        return gate.wants(connection_id, event, HOST, 0)

    assert sent(peer.say(FarInterest(4, True, MORE, (FarWant(1, TOPIC.payload, 4),)))) == []
    assert wants()
    (answer,) = [frame for frame in sent(peer.say(FarInterest(4, False, COMPLETE))) if isinstance(frame, FarHave)]
    assert answer.number == 4 and not wants()
    peer.say(FarDigest((make_part(4, [make_want("topic", "news", 4)]),)))
    assert wants()
    peer.say(FarDigest(()), FarInterest(5, False, COMPLETE, (), (TOPIC.key, b"unknown")))
    assert not wants() and not gate.wants(connection_id, Event(topic="quotes"), HOST, 0)
    (answer,) = [frame for frame in sent(peer.say(FarInterest(6, True, UNKNOWN))) if isinstance(frame, FarHave)]
    assert answer.number == 6 and wants()
