"""Events in the papers' networks: their ways and traces, duplicates as in the tables, and what is promised of them."""

from __future__ import annotations

import pytest

from tests.core.event_world import NETWORKS, Stage, cluster, stage_of, way
from tests.core.routing.simpler_rules import NeverSendsAgain, use
from tests.core.scripted_events import Host, acknowledged, copies, delivered, event_copy, mates, peer
from tests.core.small_networks import follow
from veena.address import link_level
from veena.core.boundary.inputs_effects import Welcome
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.publishing.publishers import Publishers
from veena.core.routing.router import Router
from veena.core.wire.event import EventCodec
from veena.event import Event
from veena.runtime.networks.file import Network, load_network, make_network


@pytest.fixture(scope="module")
def fix5() -> Stage:
    """The worked example. Tests share it: each has topics and bodies of its own."""
    return stage_of("fix-5")


def send(stage: Stage, at: str, topic: str, readers: list[str], **event: object) -> dict[str, int]:
    """Let these brokers' clients want a topic, and publish on it; the event's body is the topic. The readers."""
    sessions = {name: stage.subscribe(name, topic) for name in readers}
    stage.wait()
    made = Event(topic=topic, **event)  # type: ignore[arg-type]
    stage.publish(stage.attach(at, f"publisher of {topic}"), topic, made)
    stage.wait(SECOND_NS)
    assert {name: stage.bodies[session] for name, session in sessions.items()} == {name: [topic] for name in readers}
    return sessions


def traces(stage: Stage, topic: str) -> dict[tuple[str, str], list[str]]:
    """By link, the units that a copy says have been served; labels without what all share."""
    return {
        (a, b): [label.rsplit(".", 1)[-1] for label in stage.units(frame.served, b)]
        for a, b, frame in stage.copies
        if bytes(frame.body).decode() == topic
    }


# --- the way of an event in figure 11 ---


def test_the_trace_in_the_worked_scenario(fix5: Stage) -> None:
    """ERP-15, ERP-03, ERP-07, ERP-09: published at 6 and wanted in b, SC-2 and SSC-B; each crossing drops the part of
    the trace that means nothing beyond it."""
    send(fix5, "6", "erp-15", ["7", "12", "24"])
    found = traces(fix5, "erp-15")
    assert found["6", "4"] == ["4", "6"]
    assert found["4", "7"] == ["b", "c"], "the broker part is dropped"
    assert found["5", "10"] == ["SC-1", "SC-2"], "the cluster part is dropped"
    assert found["8", "1"] == ["a", "b", "c"], "where it has been in SC-1 so far"
    assert found["2", "22"] == ["SSC-A", "SSC-B"], "everything but the highest level is dropped"
    assert fix5.copy_over("2", "22").origin_address == fix5.addresses["6"]


def test_where_it_is_to_go_in_the_worked_scenario(fix5: Stage) -> None:
    """ERP-04, ERP-05, DST-09: a gateway is told of units of its own level and above, never of what is inside them."""
    send(fix5, "6", "erp-5", ["7", "9", "12", "24"])
    to_serve = {
        (a, b): fix5.units(frame.to_serve, b) for a, b, frame in fix5.copies if bytes(frame.body).decode() == "erp-5"
    }
    assert to_serve["6", "4"] == ["SSC-A.SC-1.b", "SSC-B"]
    assert to_serve["4", "7"] == ["SSC-A.SC-1.b", "SSC-B"]
    assert to_serve["7", "9"] == ["SSC-A.SC-1.b.9"], "where b is entered its brokers are found"
    assert to_serve["7", "8"] == ["SSC-B"]
    assert to_serve["6", "5"] == to_serve["5", "10"] == ["SSC-A.SC-2"]
    assert to_serve["2", "22"] == ["SSC-B"]


def test_a_relay_to_a_higher_gateway_uses_lower_ones(fix5: Stage) -> None:
    """RTE-03, RTE-02 (ii): from c to SSC-B through b's links, though nobody in b or a wants it."""
    send(fix5, "6", "rte-3", ["23"])
    assert way(fix5, "rte-3") == ["6", "4", "7", "8", "1", "2", "22", "23"]


def test_an_event_that_matches_here_goes_in(fix5: Stage) -> None:
    """RTE-01: on arrival at d it is found that two of its brokers want it; they get it, 10 alone is only passed."""
    send(fix5, "6", "rte-1", ["11", "12"])
    assert sorted(fix5.hops_of("rte-1")) == [("10", "11"), ("10", "12"), ("5", "10"), ("6", "5")]


def test_an_event_that_does_not_match_here_goes_on(fix5: Stage) -> None:
    """RTE-02 (i): SC-3 lies beyond b; b hands it on and keeps nothing."""
    send(fix5, "6", "rte-2", ["16"])
    assert way(fix5, "rte-2") == ["6", "4", "7", "9", "16"]


def test_neither_here_nor_elsewhere(fix5: Stage) -> None:
    """RTE-02, EVT-06 (without broadcast at the top), ERP-11: nobody wants it: no error, no link crossed."""
    fix5.publish(fix5.attach("6", "p"), "nobody", Event(topic="nobody"))
    fix5.wait(SECOND_NS)
    assert fix5.hops_of("nobody") == []
    assert fix5.accepted[-1].publisher == "p"


def test_only_the_own_cluster_wants_it(fix5: Stage) -> None:
    """ERP-11, ERP-13: lower-level dissemination alone; and the cluster of issue is not entered through a gatekeeper."""
    send(fix5, "6", "erp-11", ["4", "5"])
    assert sorted(fix5.hops_of("erp-11")) == [("6", "4"), ("6", "5")]


def test_the_steps_of_routing(fix5: Stage) -> None:
    """ERP-01: match and destinations, then the next broker, each asked for by itself."""
    fix5.subscribe("12", "erp-1")
    fix5.wait()
    broker = fix5.broker("6")
    vector = broker.profiles.interest.destinations(Event(topic="erp-1"), broker.identity.address, fix5.world.now_ns)
    assert fix5.units(vector, "6") == ["SSC-A.SC-2"]
    hop = broker.hops.hop(fix5.network.labels.unit("SSC-A.SC-2"))
    assert hop is not None
    assert fix5.names[hop.neighbour] == "5"


def test_destinations_are_computed_once_a_level(fix5: Stage) -> None:
    """PPP-13: at most four computations after the origin's, and GUA-06: brokers in between compute nothing."""
    before = {name: fix5.broker(name).statistics().router.expanded for name in fix5.addresses}
    send(fix5, "6", "ppp-13", ["29"])
    after = {name: fix5.broker(name).statistics().router.expanded for name in fix5.addresses}
    computed = {name for name in after if after[name] > before[name]}
    passed = set(way(fix5, "ppp-13"))
    assert computed < passed
    assert 1 <= sum(after.values()) - sum(before.values()) <= 4
    assert {fix5.addresses[name][:1] for name in computed} == {fix5.network.labels.unit("SSC-D")}


def test_the_way_between_two_super_super_clusters_is_the_hops(fix5: Stage) -> None:
    """SPR-07 and SPR-09 as the design has them: the maps alone decide, at every broker anew; the trace is a record."""
    send(fix5, "27", "spr", ["12"])
    hops = {broker.identity.address: broker.hops for broker in fix5.world.live()}
    expected = follow(hops, fix5.addresses["27"], fix5.addresses["12"])
    assert way(fix5, "spr") == [fix5.names[address] for address in expected]


def test_only_one_super_cluster() -> None:
    """ERP-11: where there is nothing above, nothing above is named or sought."""
    stage = stage_of("fix-1")
    first, *others = stage.addresses
    send(stage, first, "everybody", others)
    assert len(stage.hops_of("everybody")) == len(others)
    two_levels = (1 << 2 * stage.network.fanout) - 1
    assert all(not frame.to_serve & ~two_levels for _, _, frame in stage.copies)


def test_every_highest_unit_gets_it_when_asked_to() -> None:
    """PPP-14, AMB-42, ERP-11 with `top = "broadcast"`: each other SSC is entered once, and goes no further; no broker
    keeps everybody's profiles."""
    network = load_network(NETWORKS / "fix-5.toml")
    stage = stage_of("fix-5", Settings(network.name, network.levels, network.fanout, top="broadcast"))
    for name in stage.addresses:
        stage.subscribe(name, f"topic of {name}")
    stage.wait()
    stage.publish(stage.attach("6", "p"), "nobody", Event(topic="nobody"))
    stage.wait(SECOND_NS)
    entered = [
        (stage.addresses[b][0], link_level(stage.addresses[a], stage.addresses[b])) for a, b in stage.hops_of("nobody")
    ]
    tops = sorted(top for top, level in entered if level == 3)
    own = stage.addresses["6"][0]
    assert tops == sorted({address[0] for address in stage.names} - {own})
    assert all(level == 3 or top in (own, *tops) for top, level in entered)
    kept = [broker.statistics().profiles.rows for broker in stage.world.live()]
    standing = max(len(broker.map.vertices()) for broker in stage.world.live())
    assert max(kept) - standing < len(stage.addresses)


# --- point to point ---


def test_mail_reaches_its_client_alone(fix5: Stage) -> None:
    """EVT-05, RTE-04: a stock quote goes to whoever wants it, a mail to whom it names, with the same topic."""
    readers = [fix5.subscribe(name, "rte-4") for name in ("1", "12", "25")]
    fix5.attach("28", "x")
    x = fix5.attach("29", "alice", reachable=True)
    fix5.wait()
    publisher = fix5.attach("6", "p4")
    fix5.publish(publisher, "mail", Event(topic="rte-4", to=["alice"]))
    fix5.publish(publisher, "quote", Event(topic="rte-4"))
    fix5.wait(SECOND_NS)
    assert fix5.bodies[x] == ["mail"]
    assert [fix5.bodies[reader] for reader in readers] == [["quote"]] * 3
    assert way(fix5, "mail")[-1] == "29"


def test_mail_finds_a_client_that_roams(fix5: Stage) -> None:
    """RTE-05: from SC-1 to SSC-C; what is published after it has settled comes to it there."""
    at_home = fix5.attach("3", "bob", reachable=True)
    fix5.wait()
    publisher = fix5.attach("20", "p5")
    fix5.publish(publisher, "first", Event(to=["bob"]))
    fix5.wait(SECOND_NS)
    fix5.leave(at_home)
    away = fix5.attach("26", "bob", reachable=True)
    fix5.wait()
    fix5.publish(publisher, "second", Event(to=["bob"]))
    fix5.wait(SECOND_NS)
    assert (fix5.bodies[at_home], fix5.bodies[away]) == (["first"], ["second"])
    assert way(fix5, "second")[-1] == "26"


# --- duplicates ---

#: Table 2: when the copies of e1 to e5 arrive at C.
FROM_A = {1: 1, 2: 4, 3: 5, 4: 7, 5: 8}
FROM_B = {1: 2, 2: 3, 3: 4, 4: 8, 5: 9}
ACCEPTED = [(1, "A", 1), (2, "B", 3), (3, "B", 4), (4, "A", 7), (5, "A", 8)]


@pytest.mark.parametrize("is_end", [True, False])
def test_table_2(is_end: bool) -> None:
    """DUP-04, DUP-01, with DUP-02 read as the design does: C's clients get each event by its first copy; as a relay C
    passes on each duty by its first copy. The five others are duplicates, and are answered like the first ones."""
    host = Host()
    host.reader(1)
    peers = {"A": peer(host, 1), "B": peer(host, 2)}
    behind = peer(host, 4)
    arrivals = sorted(
        (at_s, number, name) for name, times in (("A", FROM_A), ("B", FROM_B)) for number, at_s in times.items()
    )
    found: list[tuple[int, str, int]] = []
    for at_s, number, name in arrivals:
        effects = peers[name].hand(event_copy(number, mates(0) if is_end else mates(4)), now_ns=at_s)
        got = delivered(effects) if is_end else [frame.sequence for _, frame in copies(effects, behind.link)]
        found += [(accepted, name, at_s) for accepted in got]
    assert found == ACCEPTED
    assert len(arrivals) - len(found) == 5
    statistics = host.statistics()
    assert statistics.router.repeated + statistics.ends.repeated == 5
    if is_end:
        effects = host.sync(10)
        assert [len(acknowledged(effects, each.link)) for each in peers.values()] == [5, 5]


@pytest.mark.parametrize("rule", [Router, NeverSendsAgain])
def test_figure_12(monkeypatch: pytest.MonkeyPatch, rule: type[Router]) -> None:
    """DUP-05, DUP-06, FLT-03, ERP-17: A has sent e1 to e3 over AC and then suspects C; it sends them again by B before
    e4 and e5, with anti-events down the slow link. Without that e4 hides them when they arrive at last."""
    use(monkeypatch, rule)
    a, b, c = 0, 1, 2
    stage = Stage(cluster([(a, b), (a, c), (b, c)]))
    reader = stage.subscribe("2")
    stage.wait()
    publisher = stage.attach("0", "p")
    slow = stage.link("0", "2")
    stage.world.cut(slow, silent=True)
    for body in ("e1", "e2", "e3"):
        stage.publish(publisher, body)
    stage.wait(4 * SECOND_NS)
    assert stage.hop("0", "2") == "1", "C is suspected, and everybody knows"
    for body in ("e4", "e5"):
        stage.publish(publisher, body)
    stage.wait_ms(200)
    stage.world.heal(slow)
    stage.wait(10 * SECOND_NS)
    assert stage.bodies[reader] == (["e1", "e2", "e3", "e4", "e5"] if rule is Router else ["e4", "e5"])
    if rule is Router:
        assert stage.broker("0").statistics().router.sent_again == 3
        assert stage.is_idle()


class PlainPublishers(Publishers):
    """Knows no incarnations: a publisher is its id, wherever it is."""

    def welcome(self, session: int, client_id: str, reply_to: str, now_ns: int) -> None:
        self._publishers[session] = (client_id, client_id.encode(), 1)
        self._effects.append(Welcome(session, 1))


@pytest.mark.parametrize("scheme", [Publishers, PlainPublishers])
def test_table_3(monkeypatch: pytest.MonkeyPatch, scheme: type[Publishers]) -> None:
    """DUP-07, DUP-08, figure 13: the client publishes e1 to e3 at 2, hears that they are accepted, roams to 3 and
    publishes e4 and e5, which are at 4 before the others. The plain scheme takes those for duplicates."""
    monkeypatch.setattr("veena.core.event_side.Publishers", scheme)
    delay_ns = 100 * MILLISECOND_NS
    stage = Stage(cluster([(2, 4), (3, 4)]))
    reader = stage.subscribe("4")
    stage.wait()
    stage.link("2", "4").delay_ns = 5 * delay_ns
    at_2 = stage.attach("2", "client 1")
    for body in ("e1", "e2", "e3"):
        stage.publish(at_2, body)
    stage.wait(2 * delay_ns)
    assert len(stage.accepted) == 3
    stage.leave(at_2)
    stage.wait(delay_ns)
    at_3 = stage.attach("3", "client 1")
    assert (stage.incarnation(at_2) == stage.incarnation(at_3)) == (scheme is PlainPublishers)
    for body in ("e4", "e5"):
        stage.publish(at_3, body)
    stage.wait(delay_ns)
    assert stage.bodies[reader] == ["e4", "e5"]
    stage.wait(20 * delay_ns)
    assert stage.bodies[reader] == (["e4", "e5", "e1", "e2", "e3"] if scheme is Publishers else ["e4", "e5"])


# --- the networks of the measurements ---


def test_topology_one() -> None:
    """EXP-17: from 22 to 10 it passes nine brokers."""
    stage = stage_of("ges-22")
    send(stage, "22", "exp-17", ["10"])
    assert way(stage, "exp-17") == ["22", "1", "2", "3", "4", "5", "7", "9", "10"]


def test_topology_two() -> None:
    """EXP-18: with the two links more, subscribers at 10, 1 and 22 are 4, 2 and 1 brokers away; ERP-12: nobody else."""
    stage = stage_of("ges-22-linked")
    send(stage, "22", "exp-18", ["10"])
    assert way(stage, "exp-18") == ["22", "1", "8", "10"]
    send(stage, "22", "exp-18 b", ["1"])
    assert way(stage, "exp-18 b") == ["22", "1"]
    send(stage, "22", "exp-18 c", ["22"])
    assert stage.hops_of("exp-18 c") == []


# --- aggregation ---


def two_domains() -> Network:
    """Domain L with three brokers, domain R with one; FIX-30."""
    labels = ["S.D.L.1", "S.D.L.2", "S.D.L.3", "S.D.R.9"]
    return make_network("domains", labels, [(labels[0], labels[1]), (labels[0], labels[2]), (labels[0], labels[3])])


def sizes(stage: Stage, one: str, other: str) -> list[int]:
    """The bytes of each copy that crossed a link."""
    codec = EventCodec(stage.network.levels, stage.network.fanout)
    return [len(codec.encode(frame, 1)) for a, b, frame in stage.copies if (a, b) == (one, other)]


def test_consumers_of_a_domain_are_one_consumer() -> None:
    """AGG-01, AGG-02, AGG-03: one filter at R, one copy over the link, three deliveries; a third of the bytes of three
    mails that say the same."""
    stage = Stage(two_domains())
    users = [stage.attach(str(number), f"u{number}", reachable=True) for number in (1, 2, 3)]
    readers = [stage.subscribe(str(number)) for number in (1, 2, 3)]
    stage.wait()
    nine = stage.broker("9")
    filters = list(nine.profiles.table.rows(stage.network.labels.unit("S.D.L")))
    assert len(filters) == 4, "the topic once, and three addressees"
    application = stage.attach("9", "application")
    body = "x" * 2000
    stage.publish(application, body)
    stage.wait(SECOND_NS)
    together = sizes(stage, "9", "1")
    assert len(together) == 1
    assert [stage.bodies[reader] for reader in readers] == [[body]] * 3
    for number in (1, 2, 3):
        stage.publish(application, body, Event(topic="quotes", to=[f"u{number}"]))
    stage.wait(SECOND_NS)
    apart = sizes(stage, "9", "1")[1:]
    assert [stage.bodies[user] for user in users] == [[body]] * 3
    assert len(apart) == 3
    assert sum(together) / sum(apart) == pytest.approx(1 / 3, rel=0.05)


def test_disjoint_profiles_save_nothing() -> None:
    """AGG-04: three topics, an event for each: as many copies as there would be without aggregation."""
    stage = Stage(two_domains())
    readers = [stage.subscribe(str(number), f"topic {number}") for number in (1, 2, 3)]
    stage.wait()
    application = stage.attach("9", "application")
    for number in (1, 2, 3):
        stage.publish(application, f"e{number}", Event(topic=f"topic {number}"))
    stage.wait(SECOND_NS)
    assert len(sizes(stage, "9", "1")) == 3
    assert [stage.bodies[reader] for reader in readers] == [["e1"], ["e2"], ["e3"]]
