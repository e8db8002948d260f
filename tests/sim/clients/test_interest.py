"""Profiles climb: who comes to know what units want, and who does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from veena import Event
from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import ClientDown, ClientRefused, ClientUp, Input, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS
from veena.core.membership.join import Joined
from veena.core.topology.controllers import targets
from veena.core.wire.interest import STANDING, Interest
from veena.matching.base.engine import Constraint
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.networks.generate import generate
from veena.sim.world.joining import join
from veena.sim.world.network import Delivery
from veena.sim.world.options import CHECK_EVERY, Options
from veena.sim.world.world import World

NETWORKS = Path(__file__).parents[3] / "networks"
SYSTEM, CLUSTER = 4, 1
QUOTE = Event(topic="quotes", properties={"price": 12})


@pytest.fixture
def fix2() -> World:
    return up(load_network(NETWORKS / "fix-2.toml"))


def up(network: Network) -> World:
    """A network at rest, which is large: its brokers assert their invariants as seldom as in a run of that size."""
    world = World(network, 1, Options(wire=False, check_every=CHECK_EVERY))
    world.run_until(world.now_ns + 5 * SECOND_NS)
    world.check()
    return world


def give(world: World, at: Address, *inputs: Input) -> None:
    for each in inputs:
        world.give(at, each)
    world.run_until(world.now_ns + 5 * SECOND_NS)


def at(world: World, label: str) -> Address:
    return world.network.labels.unit(label)


def rows(world: World, broker: str, unit: str) -> list[object]:
    """The constraints that a broker has heard of a unit."""
    found = world.broker(at(world, broker)).profiles.table.rows(at(world, unit))
    return sorted((row.payload for row in found), key=repr)


def wanting(world: World, broker: Address, event: Event, origin: Address | None = None) -> list[Unit]:
    """The units around a broker that it believes to want the event."""
    found = world.broker(broker)
    vector = found.profiles.interest.destinations(event, origin or broker, world.now_ns)
    return [u for u in found.map.vertices() if u != broker and vector & found.profiles.interest.bit(u)]


def test_a_profile_climbs_to_the_controllers_of_every_level(fix2: World) -> None:
    """PRF-05, PGR-16, PPP-01, PPP-04, PPP-05, PPP-07: from 21 inside n, from n inside SC-3, from SC-3 at 1 and 10,
    relabelled each time: a broker's destinations are clients, in a cluster they are brokers, then clusters, then
    super-clusters."""
    n21 = at(fix2, "SSC-A.SC-3.n.21")
    give(fix2, n21, ClientUp(1, "alice"), Subscribe(1, 1, "topic", "quotes", SYSTEM))
    for controller in ("19", "20"):
        assert len(rows(fix2, f"SSC-A.SC-3.n.{controller}", "SSC-A.SC-3.n.21")) == 1
    assert len(rows(fix2, "SSC-A.SC-3.m.16", "SSC-A.SC-3.n")) == 1
    assert rows(fix2, "SSC-A.SC-3.m.16", "SSC-A.SC-3.m") == []
    for controller in ("SSC-A.SC-1.h.1", "SSC-A.SC-2.k.10"):
        broker = at(fix2, controller)
        assert wanting(fix2, broker, QUOTE) == [at(fix2, "SSC-A.SC-3")]
        assert wanting(fix2, broker, Event(topic="news")) == []
    far = at(fix2, "SSC-B.SC-4.o.22")
    assert wanting(fix2, far, QUOTE) == [at(fix2, "SSC-A")]
    assert fix2.broker(n21).profiles.clients.matching(QUOTE, far) == {1: [1]}
    assert wanting(fix2, at(fix2, "SSC-A.SC-3.n.19"), QUOTE) == [n21]
    assert wanting(fix2, at(fix2, "SSC-A.SC-3.m.16"), QUOTE) == [at(fix2, "SSC-A.SC-3.n")]


@pytest.mark.parametrize(
    ("engine", "constraint", "event"),
    [
        ("topic", "quotes", Event(topic="quotes")),
        ("integer", 7, Event(integer=7)),
        ("tags", "make=ford,colour=*", Event(tags="make=ford,colour=red")),
        ("selector", ("quotes", "price > 10"), QUOTE),
        ("constraint", "price > 10", Event(properties={"price": 12})),
        ("xpath", "/menu/drink[price > 1]", Event(xml="<menu><drink><price>2</price></drink></menu>")),
    ],
)
def test_the_kind_of_a_constraint_selects_the_engine(
    fix2: World, engine: str, constraint: Constraint, event: Event
) -> None:
    """PRF-01, PRF-02: from a topic to XPath; each is asked where its field is there, at every level."""
    n21 = at(fix2, "SSC-A.SC-3.n.21")
    give(fix2, n21, ClientUp(1, "alice"), Subscribe(1, 1, engine, constraint, SYSTEM))
    for broker, unit in (("SSC-A.SC-3.n.19", n21), ("SSC-A.SC-3.m.16", n21[:3]), ("SSC-A.SC-1.h.1", n21[:2])):
        assert wanting(fix2, at(fix2, broker), event) == [unit]
        assert wanting(fix2, at(fix2, broker), Event(topic="news", integer=8, tags="make=vw,colour=red")) == []
    assert fix2.broker(n21).profiles.clients.matching(event, n21) == {1: [1]}


def test_larger_units_tell_of_more_profiles(fix2: World) -> None:
    """PPP-17: one profile at each broker; a broker tells of its own, a cluster of its brokers', and so on upwards."""
    for number, entry in enumerate(fix2.network.brokers):
        give(fix2, entry.address, ClientUp(1, f"client-{number}"), Subscribe(1, 1, "topic", f"t-{number}", SYSTEM))
    told = [0, 0, 0]
    for size, level in ((4, 0), (3, 1), (2, 2)):
        unit = at(fix2, "SSC-A.SC-3.n.19")[:size]
        members = [entry.address for entry in fix2.network.brokers if entry.address[:size] == unit]
        (speaker,) = [each for each in members if level in fix2.broker(each).profiles.speakers.levels()]
        told[level] = fix2.broker(speaker).profiles.statistics().transitions[level]
        assert told[level] >= len(members)
    assert told[0] == 1 < told[1] == 3 < told[2]


def test_a_new_gatekeeper_is_a_target_and_has_what_was_told_before_it_came() -> None:
    """PPP-16, PPP-11: s comes into n with a gate to m; it learns what n's brokers, SC-6's clusters and the units
    beyond want, and what changes afterwards."""
    world = up(load_network(NETWORKS / "fix-4.toml"))
    n21, m, sc4 = (at(world, f"SSC-B.{unit}") for unit in ("SC-6.n.21", "SC-6.m", "SC-4"))
    mate = next(e.address for e in world.network.brokers if e.address[:3] == m)
    beyond = next(e.address for e in world.network.brokers if e.address[:2] == sc4)
    for number, broker in enumerate((n21, mate, beyond)):
        give(world, broker, ClientUp(1, f"c-{number}"), Subscribe(1, 1, "topic", f"t-{number}", SYSTEM))
    guest = join(world, "s", n21, [0, 1])
    world.run_until(world.now_ns + 30 * SECOND_NS)
    assert isinstance(guest.result, Joined)
    s = guest.result.address
    assert s in targets(world.broker(n21).map, 0)
    for number, unit in enumerate((n21, m, sc4)):
        assert wanting(world, s, Event(topic=f"t-{number}")) == [unit]
    give(world, n21, Unsubscribe(1, 1), Subscribe(1, 2, "topic", "news", SYSTEM))
    assert wanting(world, s, Event(topic="t-0")) == []
    assert wanting(world, s, Event(topic="news")) == [n21]


def test_no_broker_holds_the_profiles_of_all(fix2: World) -> None:
    """PPP-08, PPP-14, GUA-06, I3: one profile at each broker; rows stay in the super-cluster."""
    for number, entry in enumerate(fix2.network.brokers):
        fix2.give(entry.address, ClientUp(1, f"client-{number}"))
        fix2.give(entry.address, Subscribe(1, 1, "topic", f"topic-{number}", SYSTEM))
    fix2.run_until(fix2.now_ns + 5 * SECOND_NS)
    for number, entry in enumerate(fix2.network.brokers):
        for broker in fix2.live():
            host = broker.identity.address
            if host != entry.address:
                shared = next(i for i, (a, b) in enumerate(zip(host, entry.address, strict=True)) if a != b)
                assert wanting(fix2, host, Event(topic=f"topic-{number}")) == [entry.address[: shared + 1]]
    sizes = [len(broker.profiles.table) for broker in fix2.live()]
    assert max(sizes) < len(fix2.network.brokers)


def test_what_leaves_a_cluster_is_bounded_by_distinct_widest_constraints() -> None:
    """AGG-01, PPP-05: 10,000 clients with 100 constraints: 100 transitions; 1,000 more under a wider one: none."""
    network = make_network("two", ["S.C.a.1", "S.C.a.2", "S.C.b.3"], [("S.C.a.1", "S.C.a.2"), ("S.C.a.2", "S.C.b.3")])
    world = World(network, 1, Options(wire=False, check=False))
    world.run_until(world.now_ns + 5 * SECOND_NS)
    a1, b3 = network.labels.unit("S.C.a.1"), network.labels.unit("S.C.b.3")
    told: list[int] = []
    world.on_delivery = lambda delivery: told.append(_rows_in(delivery)) if delivery.to == b3 else None
    for client in range(10_000):
        world.give(a1, ClientUp(client, f"client-{client}"))
        world.give(
            a1, Subscribe(client, 1, "selector", ("quotes", f"price > {client % 100} AND lot = {client % 100}"), 4)
        )
    world.run_until(world.now_ns + 5 * SECOND_NS)
    assert sum(told) == 100
    world.give(a1, Subscribe(0, 2, "topic", "news", 4))
    world.run_until(world.now_ns + 5 * SECOND_NS)
    told.clear()
    for client in range(1000):
        world.give(a1, Subscribe(client, 3, "selector", ("news", f"page = {client}"), 4))
    world.run_until(world.now_ns + 5 * SECOND_NS)
    assert sum(told) == 0
    assert wanting(world, b3, Event(topic="news", properties={"page": 7})) == [network.labels.unit("S.C.a")]
    world.give(a1, Unsubscribe(0, 2))
    world.run_until(world.now_ns + 5 * SECOND_NS)
    assert sum(told) == 1001
    assert wanting(world, b3, Event(topic="news", properties={"page": 7})) == [network.labels.unit("S.C.a")]
    assert wanting(world, b3, Event(topic="news", properties={"page": 1007})) == []


def _rows_in(delivery: Delivery) -> int:
    """The transitions in it; marks at the end of batches are none."""
    frames = [frame for _, frame in delivery.frames if isinstance(frame, Interest)]
    return sum(row.kind != STANDING for frame in frames for row in frame.rows)


def test_scope_limits_how_far_a_profile_climbs(fix2: World) -> None:
    """PRF-10: scope cluster: known inside n alone, and only for events published there."""
    n21, n19, m16 = (at(fix2, f"SSC-A.SC-3.{x}") for x in ("n.21", "n.19", "m.16"))
    give(fix2, n21, ClientUp(1, "alice"), Subscribe(1, 1, "topic", "quotes", CLUSTER))
    assert wanting(fix2, n19, QUOTE) == [n21]
    assert wanting(fix2, n19, QUOTE, origin=m16) == []
    assert wanting(fix2, m16, QUOTE) == []
    assert fix2.broker(n21).profiles.clients.matching(QUOTE, n19) == {1: [1]}
    assert fix2.broker(n21).profiles.clients.matching(QUOTE, m16) == {}


@pytest.mark.parametrize("leaves", [Unsubscribe(1, 1), ClientDown(1)])
def test_profiles_go_when_they_are_removed_or_the_client_is_lost(fix2: World, leaves: Input) -> None:
    """PRF-07: nobody up the tree routes there any more."""
    n21 = at(fix2, "SSC-A.SC-3.n.21")
    give(fix2, n21, ClientUp(1, "alice"), Subscribe(1, 1, "topic", "quotes", SYSTEM))
    give(fix2, n21, leaves)
    assert all(wanting(fix2, broker.identity.address, QUOTE) == [] for broker in fix2.live())


def test_a_restarted_broker_corrects_what_its_earlier_life_said(fix2: World) -> None:
    """PPP-06: its clients did not come back; what it said before is withdrawn under a new epoch."""
    n21 = at(fix2, "SSC-A.SC-3.n.21")
    give(fix2, n21, ClientUp(1, "alice"), Subscribe(1, 1, "topic", "quotes", SYSTEM))
    fix2.crash(n21, silent=False)
    fix2.run_until(fix2.now_ns + 2 * SECOND_NS)
    fix2.start(n21)
    fix2.run_until(fix2.now_ns + 30 * SECOND_NS)
    assert all(wanting(fix2, broker.identity.address, QUOTE) == [] for broker in fix2.live())


def test_another_speaker_goes_on_where_one_died(fix2: World) -> None:
    """TOP-18, FLT-04: 19 spoke for n; 20 does when 19 is dead, and tells only what changed."""
    n19, n20, n21 = (at(fix2, f"SSC-A.SC-3.n.{x}") for x in (19, 20, 21))
    m16 = at(fix2, "SSC-A.SC-3.m.16")
    assert 1 in fix2.broker(n19).profiles.speakers.levels()
    give(fix2, n21, ClientUp(1, "alice"), Subscribe(1, 1, "topic", "quotes", SYSTEM))
    fix2.crash(n19, silent=True)
    fix2.run_until(fix2.now_ns + 30 * SECOND_NS)
    assert 1 in fix2.broker(n20).profiles.speakers.levels()
    assert fix2.broker(n20).profiles.statistics().transitions[1] == 0, "nothing had changed"
    give(fix2, n21, Subscribe(1, 2, "topic", "news", SYSTEM))
    assert wanting(fix2, m16, Event(topic="news")) == [at(fix2, "SSC-A.SC-3.n")]
    give(fix2, n21, Unsubscribe(1, 1))
    assert wanting(fix2, m16, QUOTE) == []


def test_wants_stay_in_their_context() -> None:
    """I4: the wants of a level-l unit cross no link above level l."""
    world = World(generate(80, 5), 1, Options(wire=False, check_every=CHECK_EVERY))
    crossed: list[tuple[int, int]] = []

    def listen(delivery: Delivery) -> None:
        link = delivery.session.link
        level = next(3 - i for i, (a, b) in enumerate(zip(link.a, link.b, strict=True)) if a != b)
        for _, frame in delivery.frames:
            if isinstance(frame, Interest):
                crossed.extend((level, 4 - len(row.unit)) for row in frame.rows)
                crossed.extend((level, 4 - len(digest.unit)) for digest in frame.digests)

    world.on_delivery = listen
    for entry in world.network.brokers:
        world.give(entry.address, ClientUp(1, entry.label))
        world.give(entry.address, Subscribe(1, 1, "topic", entry.label, SYSTEM))
    world.run_until(world.now_ns + 10 * SECOND_NS)
    assert {unit for _, unit in crossed} == {0, 1, 2, 3}
    assert all(unit >= link for link, unit in crossed)


def test_a_client_that_asks_wrongly_is_told_why(fix2: World) -> None:
    """Nothing changes, and only this client hears of it."""
    broker = fix2.broker(at(fix2, "SSC-A.SC-3.n.21"))
    broker.handle(ClientUp(1, "alice"), fix2.now_ns)
    before = broker.statistics()
    for given, message in (
        (Subscribe(1, 1, "selector", ("q", "price >"), SYSTEM), "price >"),
        (Subscribe(1, 1, "topic", "q", 9), "scope 9"),
        (Subscribe(7, 1, "topic", "q", SYSTEM), "session 7 is not open"),
        (Unsubscribe(1, 5), "no subscription 5"),
        (ClientUp(1, "bob"), "open already"),
    ):
        (effect,) = broker.handle(given, fix2.now_ns)
        assert isinstance(effect, ClientRefused)
        assert message in effect.reason
    assert broker.statistics() == before


def test_a_unit_that_has_not_spoken_wants_all(fix2: World) -> None:
    """Never narrower than the truth: before its speaker was heard a unit may want anything."""
    network = load_network(NETWORKS / "fix-1.toml")
    world = World(network, 1, Options(wire=False, delay_ns=40_000_000))
    host = network.brokers[0].address
    seen = False
    while world.now_ns < 4 * SECOND_NS and not seen:
        world.run_until(world.now_ns + 5_000_000)
        broker = world.broker(host)
        unknown = [u for u in broker.map.vertices() if u != host and not broker.profiles.table.has_spoken(u)]
        if unknown:
            seen = True
            assert set(unknown) <= set(wanting(world, host, QUOTE))
    assert seen
    world.run_until(world.now_ns + 5 * SECOND_NS)
    assert wanting(world, host, QUOTE) == []
