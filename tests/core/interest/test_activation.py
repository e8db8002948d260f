"""Active profiles: up to which level everybody who must know of a subscription has acknowledged it (ACT)."""

from __future__ import annotations

from pathlib import Path

import pytest

from veena import Event, RemoteProtocolError
from veena.address import Address, Unit, as_seen, link_level
from veena.core.boundary.inputs_effects import Active, ClientDown, ClientUp, Subscribe, Unsubscribe
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.interest.constraint import make_want
from veena.core.interest.leases import Leases
from veena.core.interest.receipts import MAX_TELLERS, Claims, least
from veena.core.interest.service import Profiles
from veena.core.interest.table import InterestTable, mark_key
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import MAX_COUNT, STANDING, Claim, Digest, Have, Interest, Mark, Row
from veena.errors import ConfigError
from veena.runtime.networks.file import Network, load_network, make_network
from veena.sim.world.options import Options
from veena.sim.world.world import ClientEffect, World

NETWORKS = Path(__file__).parents[3] / "networks"
HOST: Address = (0, 0, 0, 0)
MATE: Address = (0, 0, 0, 1)
SYSTEM, CLUSTER = 4, 1
QUOTES = Event(topic="quotes")


class Listening:
    """A world and what its clients were told about their subscriptions, with the time."""

    def __init__(self, network: Network, options: Options | None = None, seed: int = 1) -> None:
        self.world = World(network, seed, options or Options(wire=False, check=False))
        self.heard: dict[tuple[Address, int], list[tuple[int, int]]] = {}
        self.world.on_client = self._on_client
        self.world.run_until(self.world.now_ns + 5 * SECOND_NS)

    def _on_client(self, address: Address, effect: ClientEffect) -> None:
        if isinstance(effect, Active):
            self.heard.setdefault((address, effect.session), []).append((effect.level, self.world.now_ns))

    def at(self, label: str) -> Address:
        return self.world.network.labels.unit(label)

    def subscribe(self, at: Address, session: int, topic: str = "quotes", scope: int = SYSTEM) -> None:
        self.world.give(at, ClientUp(session, f"client-{session}"))
        self.world.give(at, Subscribe(session, 1, "topic", topic, scope))

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now_ns + int(seconds * SECOND_NS))

    def levels(self, at: Address, session: int) -> list[int]:
        return [level for level, _ in self.heard.get((at, session), [])]

    def knows(self, broker: Address, subscriber: Address, event: Event = QUOTES, later_ns: int = 0) -> bool:
        profiles = self.world.broker(broker).profiles
        unit = as_seen(broker, subscriber)
        wanting = profiles.interest.destinations(event, broker, self.world.now_ns + later_ns)
        return bool(wanting & profiles.interest.bit(unit))


@pytest.fixture
def fix2() -> Listening:
    return Listening(load_network(NETWORKS / "fix-2.toml"))


def two_clusters() -> Network:
    brokers = ["S.C.a.1", "S.C.a.2", "S.C.a.3", "S.C.b.4", "S.C.b.5"]
    links = [(1, 2), (2, 3), (3, 1)]
    inner = [(f"S.C.a.{x}", f"S.C.a.{y}") for x, y in links]
    return make_network("two", brokers, [*inner, ("S.C.a.1", "S.C.b.4"), ("S.C.b.4", "S.C.b.5")])


def test_states_rise_level_by_level_and_stay(fix2: Listening) -> None:
    """ACT-05, ACT-02: cluster, super-cluster, super-super-cluster, system; when it is told, all of that unit know."""
    n21 = fix2.at("SSC-A.SC-3.n.21")
    fix2.subscribe(n21, 1)
    told = 0
    for _ in range(400):
        fix2.run(0.01)
        if len(fix2.levels(n21, 1)) > told:
            told = len(fix2.levels(n21, 1))
            assert fix2.levels(n21, 1) == list(range(1, told + 1))
            around = [
                b.identity.address for b in fix2.world.live() if b.identity.address[: 4 - told] == n21[: 4 - told]
            ]
            assert all(fix2.knows(broker, n21) for broker in around if broker != n21)
    assert fix2.levels(n21, 1) == [1, 2, 3, 4]
    assert fix2.world.broker(n21).profiles.state(1, 1) == (0, SYSTEM)
    fix2.run(60)
    assert fix2.levels(n21, 1) == [1, 2, 3, 4]


def test_on_its_way_up_a_profile_is_known_near_by_first(fix2: Listening) -> None:
    """ACT-01: with slow propagation above, the own cluster delivers already and the others do not."""
    n21, n19, far = fix2.at("SSC-A.SC-3.n.21"), fix2.at("SSC-A.SC-3.n.19"), fix2.at("SSC-B.SC-4.o.22")
    for link in fix2.world.links:
        if link_level(link.a, link.b):
            link.delay_ns = SECOND_NS
    fix2.subscribe(n21, 1)
    while not fix2.levels(n21, 1):
        fix2.run(0.01)
    assert fix2.knows(n19, n21)
    assert not fix2.knows(far, n21)
    fix2.run(20)
    assert fix2.knows(far, n21)


def test_acknowledged_ends_at_the_scope(fix2: Listening) -> None:
    """PRF-10: what is told inside the cluster alone is acknowledged there alone."""
    n21 = fix2.at("SSC-A.SC-3.n.21")
    fix2.subscribe(n21, 1, scope=CLUSTER)
    fix2.run(10)
    assert fix2.levels(n21, 1) == [1]


def test_observed_comes_from_the_first_events(fix2: Listening) -> None:
    """ACT-03, ACT-04: another cluster of the super-cluster makes it 2, another super-super-cluster system-wide."""
    n21 = fix2.at("SSC-A.SC-3.n.21")
    fix2.subscribe(n21, 1)
    profiles = fix2.world.broker(n21).profiles
    for origin, level in (
        (n21, 0),
        (fix2.at("SSC-A.SC-3.n.19"), 1),
        (fix2.at("SSC-A.SC-3.m.16"), 2),
        (fix2.at("SSC-A.SC-3.n.20"), 2),
        (fix2.at("SSC-B.SC-4.o.22"), 4),
        (fix2.at("SSC-A.SC-1.h.1"), 4),
    ):
        profiles.observe(1, (1, 9), origin)
        assert profiles.state(1, 1) == (level, 0)
    assert profiles.state(1, 9) is None


def test_a_changed_subscription_begins_anew_and_so_does_a_roaming_client(fix2: Listening) -> None:
    """ACT-05, ACT-06: reset on change; after a roam it is the new broker's units that count."""
    n21, h1 = fix2.at("SSC-A.SC-3.n.21"), fix2.at("SSC-A.SC-1.h.1")
    fix2.subscribe(n21, 1)
    fix2.run(5)
    profiles = fix2.world.broker(n21).profiles
    fix2.world.give(n21, Unsubscribe(1, 1))
    assert profiles.state(1, 1) is None
    fix2.world.give(n21, Subscribe(1, 1, "topic", "news", SYSTEM))
    assert profiles.state(1, 1) == (0, 0)
    fix2.run(5)
    assert fix2.levels(n21, 1) == [1, 2, 3, 4, 1, 2, 3, 4]
    fix2.world.give(n21, ClientDown(1))
    assert profiles.state(1, 1) is None
    fix2.subscribe(h1, 2, "news")
    assert fix2.world.broker(h1).profiles.state(2, 1) == (0, 0)
    fix2.run(5)
    assert fix2.levels(h1, 2) == [1, 2, 3, 4]


def test_a_want_that_went_and_came_back_is_acknowledged_for_its_new_row(fix2: Listening) -> None:
    """ACT-02: the old row, which everybody has, is on its way out when the new subscription comes."""
    n21 = fix2.at("SSC-A.SC-3.n.21")
    for session in range(1, 11, 2):
        fix2.subscribe(n21, session)
        fix2.run(4)
        assert fix2.levels(n21, session) == [1, 2, 3, 4]
        fix2.world.give(n21, Unsubscribe(session, 1))
        fix2.run(0.04 * session)  # the withdrawal has come up to another level each time
        fix2.subscribe(n21, 100 + session)
        for _ in range(40):
            fix2.run(0.05)
            for level in fix2.levels(n21, 100 + session)[-1:]:
                around = [b.identity.address for b in fix2.world.live()]
                assert all(fix2.knows(b, n21) for b in around if b != n21 and b[: 4 - level] == n21[: 4 - level])
        fix2.world.give(n21, Unsubscribe(100 + session, 1))
        fix2.run(4)


def test_many_subscriptions_of_few_wants_cost_a_state_a_want() -> None:
    """ACT-05: the state is the want's, and a later subscriber has it at once."""
    listening = Listening(two_clusters())
    a3 = listening.at("S.C.a.3")
    for session in range(500):
        listening.subscribe(a3, session, f"topic-{session % 5}")
    profiles = listening.world.broker(a3).profiles
    assert len(profiles.acknowledgements) == 5
    listening.run(5)
    assert all(listening.levels(a3, session) == [1, 2, 3, 4] for session in range(500))
    listening.subscribe(a3, 1000, "topic-3")
    assert listening.levels(a3, 1000) == [4]
    for session in [*range(500), 1000]:
        listening.world.give(a3, ClientDown(session))
    assert len(profiles.acknowledgements) == 0
    profiles.check()


def test_a_broker_alone_acknowledges_by_itself() -> None:
    """TOP-22: nobody else is there to hear, at once after the start and much later."""
    listening = Listening(make_network("one", ["S.C.a.1"], []))
    alone = listening.at("S.C.a.1")
    for session in (1, 2):
        listening.subscribe(alone, session, f"topic-{session}")
        listening.run(5)
        assert listening.levels(alone, session) == [1, 2, 3, 4]
        listening.run(100)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (("topic", "q"), ("selector", ("q", "price > 3"))),
        (("constraint", "price > 0"), ("constraint", "price > 5 and sym == 's1'")),
        (("tags", "make=Ford,colour=*"), ("tags", "make=Ford,colour=red")),
    ],
)
def test_a_want_that_a_wider_one_covers_is_acknowledged_by_it(wide: tuple[str, str], narrow: tuple[str, str]) -> None:
    """AGG-07: nobody is told the narrow one, at no level, wherever the wide one comes from; its atom is another one."""
    network = make_network(
        "three", ["S.C.a.1", "S.C.a.2", "S.C.b.3", "S.D.c.4"], [("S.C.a.1", "S.C.a.2"), ("S.C.a.2", "S.C.b.3"),
        ("S.C.b.3", "S.D.c.4")],
    )  # fmt: skip
    for widely in ("S.C.a.1", "S.C.a.2", "S.C.b.3"):
        listening = Listening(network)
        a1 = listening.at("S.C.a.1")
        listening.world.give(listening.at(widely), ClientUp(1, "wide"))
        listening.world.give(listening.at(widely), Subscribe(1, 1, *wide, SYSTEM))
        listening.run(5)
        listening.world.give(a1, ClientUp(2, "narrow"))
        listening.world.give(a1, Subscribe(2, 1, *narrow, SYSTEM))
        listening.run(5)
        assert listening.levels(a1, 2) == [1, 2, 3, 4]


@pytest.mark.parametrize("dead", ["a.2", "b.5"])
def test_a_dead_broker_blocks_for_a_lease_and_its_margin_only(dead: str) -> None:
    """Aggregated acknowledgements: one that died silently is waited for, then no longer, at every level."""
    listening = Listening(two_clusters())
    a3, b4 = listening.at("S.C.a.3"), listening.at("S.C.b.4")
    listening.world.crash(listening.at(f"S.C.{dead}"), silent=True)
    began = listening.world.now_ns
    listening.subscribe(a3, 1)
    listening.subscribe(b4, 2)
    listening.run(15)
    assert SYSTEM not in listening.levels(a3, 1) + listening.levels(b4, 2)
    listening.run(20)
    for at, session in ((a3, 1), (b4, 2)):
        assert listening.levels(at, session) == [1, 2, 3, 4]
        lasted = listening.heard[at, session][-1][1] - began
        settings = listening.world.settings
        assert lasted < settings.lease_ns * 4 // 3 + settings.suspect_after_ns + settings.confirm_after_ns


def test_losses_on_both_sides_block_until_one_is_back() -> None:
    """The two that are lost may be together, and one of them speak for its cluster to the other."""
    listening = Listening(two_clusters())
    a2, a3, b5 = (listening.at(f"S.C.{x}") for x in ("a.2", "a.3", "b.5"))
    for dead in (a2, b5):
        listening.world.crash(dead, silent=True)
    listening.subscribe(a3, 1)
    listening.run(60)
    assert listening.levels(a3, 1) == [1]
    listening.world.start(a2)
    listening.run(15)
    assert listening.levels(a3, 1) == [1, 2, 3, 4]


def test_a_restarted_broker_does_not_lose_what_was_acknowledged() -> None:
    """ACT-05, PPP-06: its clients come back, and at no time does anybody in reach believe less."""
    listening = Listening(two_clusters())
    a1, a3, b5 = (listening.at(f"S.C.{x}") for x in ("a.1", "a.3", "b.5"))
    listening.subscribe(a3, 1)
    listening.run(5)
    for restarted in (a1, b5):
        listening.world.crash(restarted, silent=False)
        listening.run(1)
        listening.world.start(restarted)
        for _ in range(300):
            listening.run(0.01)
            for broker in (a1, b5):
                assert listening.knows(broker, a3)
    listening.world.crash(a3, silent=False)
    listening.run(1)
    listening.world.start(a3)
    listening.subscribe(a3, 7)
    listening.run(8)
    assert listening.levels(a3, 7) == [1, 2, 3, 4]
    assert listening.knows(b5, a3)


def test_a_cut_off_part_of_a_unit_does_not_count_those_beyond_as_knowing() -> None:
    """Another part of the unit still speaks to them: they would not take what they do not hear for everything."""
    listening = Listening(two_clusters(), Options(wire=False, check=False, dial=False))
    world = listening.world
    a2, a3 = listening.at("S.C.a.2"), listening.at("S.C.a.3")
    for link in world.links_of(a3):
        world.cut(link, silent=False)
    listening.subscribe(a3, 1)
    listening.subscribe(a2, 2)
    listening.run(60)
    assert listening.levels(a3, 1) == [1], "its own cluster keeps its events; the other cluster knows nothing of it"
    assert listening.levels(a2, 2) == [1, 2, 3, 4]
    for link in world.links_of(a3):
        world.heal(link)
    listening.run(10)
    assert listening.levels(a3, 1) == [1, 2, 3, 4]


# --- leases ---


def test_a_unit_out_of_reach_or_silent_for_a_lease_wants_all() -> None:
    """Unknown or stale means wants all, and is no longer asked when it is heard again."""
    listening = Listening(two_clusters())
    a2, b4, b5 = (listening.at(f"S.C.{x}") for x in ("a.2", "b.4", "b.5"))
    assert not listening.knows(a2, b4)
    assert listening.knows(a2, b4, later_ns=listening.world.settings.lease_ns), "as if the process had stood still"
    listening.run(6)
    assert not listening.knows(a2, b4)
    for dead in (b4, b5):
        listening.world.crash(dead, silent=False)
    listening.run(1)
    assert listening.knows(a2, b4), "known, and out of reach"
    for dead in (b4, b5):
        listening.world.start(dead)
    listening.run(5)
    assert not listening.knows(a2, b4)


def leases(known: tuple[Unit, ...] = ()) -> tuple[Leases, InterestTable, NetworkMap]:
    network = NetworkMap(HOST)
    table = InterestTable(HOST)
    return Leases(network, table, Settings(), known, 0), table, network


def test_known_units_outlive_a_restart_and_are_forgotten_at_last() -> None:
    """A broker that comes back does not believe itself alone; units of another address's surroundings are dropped."""
    found, _, network = leases((MATE, (0, 1), (5,), (3, 3, 3, 3), (0,)))
    assert found.doubted(0) == (MATE, (0, 1), (5,))
    assert found.take_known() is None
    found.note((0, 0, 7), 0)
    assert found.take_known() == (MATE, (0, 0, 7), (0, 1), (5,))
    assert found.take_known() is None
    profiles = Profiles(network, Settings(retention_ns=50 * SECOND_NS, tombstone_ns=100 * SECOND_NS), 0, (MATE,))
    ready = [profiles.is_ready(0)]
    profiles.snapshot_taken(0)
    ready += [profiles.is_ready(0), Profiles(network, Settings(), 0).is_ready(0)]
    assert ready == [False, True, True]
    assert not profiles.reconcile(49 * SECOND_NS)
    assert profiles.reconcile(50 * SECOND_NS)
    assert profiles.take_known() == (HOST[:1], HOST[:2], HOST[:3]), "own units that were met, with nobody left in them"
    assert profiles.table.doubted(50 * SECOND_NS) == ()


def test_a_lease_must_outlast_a_confirmed_suspicion() -> None:
    with pytest.raises(ConfigError, match="lease_ns"):
        Settings(lease_ns=6 * SECOND_NS)


# --- marks and claims ---


def row(number: int, topic: str, epoch: int = 1, wanted: bool = True) -> Row:
    want = make_want("topic", topic, SYSTEM)
    return Row(MATE, want.key, (epoch, MATE, number), wanted, want.kind, want.payload if wanted else b"", SYSTEM)


def mark(number: int, epoch: int = 1) -> Row:
    return Row(MATE, mark_key(MATE), (epoch, MATE, number), True, STANDING, b"", 0)


def test_marks_come_behind_everything_that_they_speak_for() -> None:
    """Versions are cumulative: in news and in what a new link begins with, whatever came in between."""
    table = InterestTable(HOST)
    for item in (row(1, "a"), row(2, "b"), mark(3), row(4, "a", wanted=False), row(5, "c")):
        table.learn(item, 7, 0)
    news = [item for item, _ in table.take_news()]
    assert [item.version[2] for item in news] == [2, 4, 5, 3]
    assert [item.version[2] for item in table.everything()] == [2, 4, 5, 3]
    assert table.marks(MATE) == {MATE: (3, 1)}
    table.check()


def test_numbers_rise_through_all_lives_of_a_speaker() -> None:
    """What it says after a start is not acknowledged by what it said before, whatever the epoch."""
    network = NetworkMap(HOST)
    numbers = []
    for life in (1, 2):
        one = Profiles(network, Settings(), 0, incarnation=life)
        one.tick(SECOND_NS)
        numbers.append(one.table.marks(HOST)[HOST])
    assert numbers[0][1] == numbers[1][1] == 1000, "both lives begin at the same time of the wall"
    assert numbers[0] < numbers[1]


def profiles() -> Profiles:
    return Profiles(NetworkMap(HOST), Settings(), 0)


@pytest.mark.parametrize(
    "version",
    [(MAX_COUNT + 1, MATE, 1), (1, MATE, MAX_COUNT + 1), (1, HOST, 1), (1, (0,), 1)],
)
def test_versions_that_nobody_can_have_told_are_refused(version: tuple[int, Address, int]) -> None:
    """A hostile epoch must not drive the next speaker's beyond what can be encoded."""
    one = profiles()
    one.handle(Interest((mark(1),)), 1, 0, 0)
    with pytest.raises(RemoteProtocolError):
        one.handle(Interest((Row(MATE, mark_key(version[1]), version, True, STANDING, b"", 0),)), 1, 0, 0)
    with pytest.raises(RemoteProtocolError):
        one.handle(Interest((), (Digest(MATE, version, ()),)), 1, 0, 0)
    assert one.table.marks(MATE) == {MATE: (1, 1)}


def claim(serial: int, *marks: Mark, who: Unit = MATE, teller: Address = MATE, age_ms: int = 0) -> Claim:
    return Claim(who, teller, serial, age_ms, True, False, False, marks)


@pytest.mark.parametrize(
    "bad",
    [
        claim(1, who=(0, 1, 0)),
        claim(1, teller=HOST),
        claim(MAX_COUNT + 1),
        claim(2, Mark((0, 0, 1, 0), (1, (0, 0, 1, 0), 1))),
        claim(2, Mark((0, 1), (1, HOST, 1))),
        claim(2, Mark((0, 1), (MAX_COUNT + 1, (0, 1, 0, 0), 1))),
        claim(2, Mark((0, 40), (1, (0, 40, 0, 0), 1))),
    ],
)
def test_claims_that_cannot_be_are_refused(bad: Claim) -> None:
    one = profiles()
    one.handle_claims(Have((claim(1),)), 1, 0, 0)
    with pytest.raises(RemoteProtocolError):
        one.handle_claims(Have((claim(2), bad)), 1, 0, 0)
    known = one.claims.record(MATE, MATE)
    assert known is not None
    assert known.serial == 1, "a frame is taken whole or not at all"
    with pytest.raises(RemoteProtocolError, match="level 1"):
        one.handle_claims(Have((claim(2),)), 1, 1, 0)


def test_the_least_of_all_tellers_counts_while_they_are_heard() -> None:
    """A unit in two parts has two speakers; one that is not heard any more is not waited for."""
    found, _, network = leases()
    claims = Claims(network, found)
    unit, speaker = (0, 1), (0, 1, 0, 0)
    one, other = (0, 0, 1, 0), (0, 0, 1, 1)
    part: Unit = (0, 0, 1)
    claims.learn(claim(1, Mark(unit, (1, speaker, 9)), who=part, teller=one), 1, 0)
    claims.learn(claim(1, Mark(unit, (1, speaker, 4)), who=part, teller=other, age_ms=5000), 1, 0)
    assert claims.of(part, 0) == {unit: {speaker: (4, 1)}}
    now_ns = found.patience_ns - 1 * SECOND_NS
    assert claims.of(part, now_ns) == {unit: {speaker: (9, 1)}}
    assert [each.age_ms for each in claims.everything(now_ns)] == [now_ns // MILLISECOND_NS]
    claims.learn(claim(1, Mark(unit, (1, speaker, 11)), who=part, teller=one), 1, now_ns)
    claims.learn(claim(2, Mark(unit, (0, speaker, 0)), who=part, teller=one), 1, now_ns)
    assert claims.of(part, now_ns) == {unit: {}}
    for number in range(2 * MAX_TELLERS):
        claims.learn(claim(1, who=part, teller=(0, 0, 1, number)), 1, now_ns)
    assert len(claims) == MAX_TELLERS
    claims.check()
    claims.prune(now_ns + found.patience_ns)
    assert len(claims) == 0


def test_the_least_is_what_all_have() -> None:
    speaker: Address = (0, 1, 0, 0)
    unit: Unit = (0, 1)
    assert least([{unit: {speaker: (2, 1)}}, {unit: {speaker: (1, 9)}}]) == {unit: {speaker: (1, 9)}}
    assert least([{unit: {speaker: (2, 1)}}, {}]) == {}
