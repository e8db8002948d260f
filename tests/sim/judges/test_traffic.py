"""Publishers, receivers and their judge: what a run says of its events is true, and it says so when it is bad."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from veena import Event
from veena.address import Address, identifiers
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Deliver, Subscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.wire.event_id import event_key
from veena.event import EventId
from veena.runtime.networks.file import Network, make_network
from veena.sim.clients.population import Population, Wish, draw_event
from veena.sim.clients.traffic import Publication, Receipt, Traffic
from veena.sim.judges.crossings import Crossing, Crossings
from veena.sim.judges.delivery import Deliveries, Judge, deadline_ns
from veena.sim.networks.generate import generate
from veena.sim.runs.faults import Fault
from veena.sim.runs.run import Play, draw_size, run_seed
from veena.sim.runs.soak import soak
from veena.sim.world.options import Options
from veena.sim.world.world import World

QUIET = Options(events=40, publishers=3, clients=20)
A1, A2, B1 = (0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0)


def played(options: Options = QUIET, seed: int = 4, brokers: int = 9) -> Play:
    play = Play(World(generate(brokers, seed=5), seed, options), Random(seed))
    play.run()
    return play


@pytest.fixture(scope="module")
def quiet() -> Play:
    """A run without faults; tests that change it copy what they change."""
    return played()


def judged(play: Play) -> Deliveries:
    return Judge(play.world, play.traffic, play.healed_ns).deliveries()


# --- a run without faults ---


def test_without_faults_everybody_gets_what_was_promised(quiet: Play) -> None:
    """I1: every acknowledged client, once and in order; nothing refused, late, dropped or expired."""
    found = judged(quiet)
    assert found.events == 40
    assert found.delivered == found.expected > 20
    assert (found.late, found.dropped, found.expired) == (0, 0, 0)
    assert not (found.missing or found.duplicates or found.out_of_order or found.spurious or found.unaccepted)
    assert not found.unacknowledged
    assert all(len(publication.ids) == 1 for publication in quiet.traffic.publications)


def test_without_faults_nothing_goes_astray(quiet: Play) -> None:
    """I2, GUA-05: units entered in vain are the digests' doing, no link is crossed twice, and flooding costs more."""
    judge = Judge(quiet.world, quiet.traffic, quiet.healed_ns)
    wasted, by_digest = judge.wasted_units(quiet.crossings)
    optimum, flood = judge.compared()
    assert wasted == by_digest
    assert quiet.crossings.link_max() == 1
    assert 0 < optimum <= quiet.crossings.total() < flood


def test_lanes_and_priorities_are_mixed(quiet: Play) -> None:
    lanes = {(p.reliable, p.event.priority) for p in quiet.traffic.publications}
    assert {reliable for reliable, _ in lanes} == {True, False}
    assert len(lanes) > 4


def test_a_report_measures_everything_but_what_has_no_meaning() -> None:
    """The fields of `veena sim run --json`: null for what a run cannot tell, and for nothing else."""
    quiet, stormy = (
        run_seed(4, faults, change=lambda drawn: replace(drawn, check=False), brokers=6, events=20)
        for faults in ("none", "links")
    )
    for report in (quiet, stormy):
        assert report.events == 20
        assert None not in (report.expected, report.missing, report.wasted_units, report.link_crossings)
    assert quiet.optimum_crossings is not None
    assert stormy.optimum_crossings is stormy.flood_crossings is None


def test_a_run_without_events_is_a_run() -> None:
    report = run_seed(3, "none", change=lambda drawn: replace(drawn, check=False), brokers=6, events=0)
    assert report.is_sound
    assert (report.events, report.expected, report.link_crossings, report.crossings_per_link_max) == (0, 0, 0, 0)


# --- the judge is not blind ---


def test_a_lost_delivery_is_missing(quiet: Play) -> None:
    play = with_receipts(quiet, quiet.traffic.receipts[1:])
    first = quiet.traffic.receipts[0]
    found = judged(play)
    assert len(found.missing) + found.dropped == 1
    if first.publication.reliable:
        assert str(first.id) in found.missing[0]
        assert "never came" in found.missing[0]


def test_a_delivery_after_the_deadline_is_missing(quiet: Play) -> None:
    """3 x (heartbeat + batch interval) x levels: 18 seconds with the defaults."""
    assert deadline_ns(Settings()) == 18 * SECOND_NS
    place = next(at for at, each in enumerate(quiet.traffic.receipts) if each.publication.reliable)
    receipts = list(quiet.traffic.receipts)
    receipts[place] = replace(receipts[place], at_ns=quiet.healed_ns + 18 * SECOND_NS + 1)
    found = judged(with_receipts(quiet, receipts))
    assert len(found.missing) == 1
    assert "came 18.0 s late" in found.missing[0]


def test_a_second_delivery_is_a_duplicate_under_any_id(quiet: Play) -> None:
    """DUP: the same event under the id that its publisher gave it after roaming is the same event."""
    first = quiet.traffic.receipts[0]
    again = replace(first, id=EventId(first.id.publisher, 77, 1, 1))
    assert len(judged(with_receipts(quiet, [*quiet.traffic.receipts, again])).duplicates) == 1


def with_receipts(play: Play, receipts: list[Receipt]) -> Play:
    """The same run as if this had been received."""
    found = object.__new__(Play)
    found.__dict__.update(play.__dict__)
    found.traffic = object.__new__(Traffic)
    found.traffic.__dict__.update(play.traffic.__dict__)
    found.traffic.receipts = receipts
    return found


def test_what_is_not_acknowledged_is_not_promised(quiet: Play) -> None:
    """ACT-02: a promise begins with the acknowledgement, and ends with the subscription."""
    history = quiet.traffic.population.history
    before = judged(quiet).expected
    try:
        times = [each.active_ns for each in history]
        for each in history:
            each.active_ns = None
        assert judged(quiet).expected == 0
    finally:
        for each, active_ns in zip(history, times, strict=True):
            each.active_ns = active_ns
    assert judged(quiet).expected == before


def pair() -> Network:
    return make_network("pair", ["S.C.c.1", "S.C.c.2"], [("S.C.c.1", "S.C.c.2")])


def attached(seed: int = 1, copies: int = 1) -> tuple[World, Traffic]:
    """Two brokers; a client at the second that wants topic t, a publisher at the first."""
    world = World(pair(), seed, Options(dial=False, copies=copies))
    population = Population(world, 1, Random(seed))
    population.clients[0].broker = A2
    population.clients[0].wishes = [Wish("topic", "t", 4)]
    traffic = Traffic(world, population, 1, Random(seed))
    traffic.publishers[0].broker = A1
    traffic.pulse()
    world.run_until(world.now_ns + 5 * SECOND_NS)
    return world, traffic


def publish(world: World, traffic: Traffic, *, reliable: bool = True, topic: str = "t") -> Publication:
    publication = Publication(Event(topic=topic), reliable)
    traffic.publications.append(publication)
    traffic._publish(traffic.publishers[0], publication)
    return publication


def test_whoever_did_not_want_it_makes_it_spurious() -> None:
    world, traffic = attached()
    publication = publish(world, traffic, topic="other")
    world.run_until(world.now_ns + SECOND_NS)
    assert publication.accepted_ns is not None
    client = traffic.population.clients[0]
    assert not traffic.receipts
    frame = next(node for node in world.nodes.values() if node.disk.entries).disk.entries[0].frame
    traffic._on_client(A2, Deliver(frame, ((client.session, (1,)),)))
    assert "it matches ()" in traffic.faults[0]
    traffic._on_client(A2, Deliver(frame, ((999, (1,)),)))
    assert "which is not there" in traffic.faults[1]


def test_an_earlier_event_after_a_later_one_is_out_of_order() -> None:
    world, traffic = attached()
    for _ in range(2):
        publish(world, traffic)
    world.run_until(world.now_ns + SECOND_NS)
    assert [each.id.sequence for each in traffic.receipts] == [0, 1]
    assert not traffic.out_of_order
    first = world.nodes[A1].disk.entries[0].frame
    traffic._on_client(A2, Deliver(first, ((traffic.population.clients[0].session, (1,)),)))
    assert "after" in traffic.out_of_order[0]
    assert len(judged_alone(world, traffic).duplicates) == 1


def judged_alone(world: World, traffic: Traffic) -> Deliveries:
    return Judge(world, traffic, world.now_ns).deliveries()


# --- publishers that lose their broker ---


def test_what_was_not_accepted_is_published_again_under_the_new_incarnation() -> None:
    """DUP-08: the repetition names the first id, and its client gets the event once."""
    world, traffic = attached()
    publication = publish(world, traffic)
    world.crash(A1, silent=False)
    world.start(A1)
    world.run_until(world.now_ns + 10 * SECOND_NS)
    assert len(publication.ids) == 2
    assert publication.ids[0].incarnation < publication.ids[1].incarnation
    assert publication.accepted_ns is not None
    found = judged_alone(world, traffic)
    assert (found.delivered, found.duplicates, found.unaccepted) == (found.expected, (), ())
    assert [each.publication for each in traffic.receipts] == [publication]


def test_a_roaming_publisher_takes_along_what_was_not_accepted() -> None:
    world, traffic = attached()
    publication = publish(world, traffic)
    publisher = traffic.publishers[0]
    traffic._roam(publisher)
    world.run_until(world.now_ns + 10 * SECOND_NS)
    assert len(publication.ids) == 2
    assert [each.publication for each in traffic.receipts] == [publication], "once, although both brokers had it"


def test_what_no_broker_took_is_told() -> None:
    world, traffic = attached()
    world.crash(A1, silent=False)
    world.crash(A2, silent=False)
    publish(world, traffic)
    world.run_until(world.now_ns + 10 * SECOND_NS)
    assert len(judged_alone(world, traffic).unaccepted) == 1


def test_a_client_presents_what_it_had() -> None:
    """The last yard: after a restart of its broker nothing of that comes again."""
    world, traffic = attached()
    publish(world, traffic)
    world.run_until(world.now_ns + SECOND_NS)
    seen: list[ClientUp] = []
    give = world.give

    def watched(address: Address, given: object) -> None:
        if isinstance(given, ClientUp):
            seen.append(given)
        give(address, given)  # type: ignore[arg-type]

    world.give = watched  # type: ignore[method-assign]
    world.crash(A2, silent=False)
    world.start(A2)
    world.run_until(world.now_ns + 10 * SECOND_NS)
    (receipt,) = traffic.receipts
    stream = (receipt.id.publisher, receipt.id.incarnation, 4)
    assert [each.had for each in seen if each.client_id == "client-0"] == [{stream: receipt.id[2:]}]


# --- what is excused ---


def test_what_lay_on_a_lost_disk_is_excused_by_name() -> None:
    """I5: with one copy exactly that, and named; with two it would be missing."""
    world, traffic = attached()
    link = world.links[0]
    world.cut(link, silent=True)
    publication = publish(world, traffic)
    world.run_until(world.now_ns + SECOND_NS)
    assert publication.accepted_ns is not None
    world.crash(A1, silent=True)
    world.nodes[A1].lost = True
    world.heal(link)
    world.run_until(world.now_ns + 30 * SECOND_NS)
    found = judged_alone(world, traffic)
    assert not found.missing
    assert str(publication.ids[0]) in found.excused[0]
    assert "disks that are lost" in found.excused[0]
    world.settings = replace(world.settings, copies=2)
    assert len(judged_alone(world, traffic).missing) == 1


def test_what_a_lost_disk_owed_nobody_is_missing() -> None:
    """I5: a loss excuses exactly what the lost log still owed, and what no other disk has."""
    world, traffic = attached()
    world.cut(world.links[0], silent=True)
    publication = publish(world, traffic)
    world.run_until(world.now_ns + SECOND_NS)
    world.crash(A1, silent=True)
    world.nodes[A1].lost = True
    world.run_until(world.now_ns + 30 * SECOND_NS)
    disk = world.nodes[A1].disk
    assert judged_alone(world, traffic).excused
    # As if the other broker had answered for it.
    (entry,) = [each for each in disk.entries if each.frame.id == publication.ids[0]]
    disk.cursors.update({1 << at: entry.offset + 1 for at in identifiers(entry.frame.to_serve)})
    assert len(judged_alone(world, traffic).missing) == 1
    # As if it had the second copy.
    disk.cursors.clear()
    world.nodes[A2].disk.kept[event_key(entry.frame)] = entry.frame
    assert len(judged_alone(world, traffic).missing) == 1


def test_what_is_cut_off_for_ever_is_excused() -> None:
    world, traffic = attached()
    world.cut(world.links[0], silent=False)
    world.links[0].lost = True
    publish(world, traffic)
    world.run_until(world.now_ns + 30 * SECOND_NS)
    found = judged_alone(world, traffic)
    assert not found.missing
    assert "in pieces" in found.excused[0]


def test_what_has_no_second_disk_for_ever_is_excused_by_name() -> None:
    """I5: with `copies = 2` a broker that has lost its last neighbour accepts nothing, and could not."""
    world, traffic = attached(copies=2)
    world.cut(world.links[0], silent=False)
    publication = publish(world, traffic)
    world.run_until(world.now_ns + 30 * SECOND_NS)
    found = judged_alone(world, traffic)
    assert not found.unaccepted
    assert str(publication.ids[-1]) in found.excused[0]
    assert "no other disk" in found.excused[0]
    world.links[0].cut = False
    assert len(judged_alone(world, traffic).unaccepted) == 1, "it could now"


def test_what_is_cut_off_for_a_while_is_not_excused() -> None:
    world, traffic = attached()
    world.cut(world.links[0], silent=False)
    publish(world, traffic)
    world.run_until(world.now_ns + 30 * SECOND_NS)
    world.heal(world.links[0])
    assert len(judged_alone(world, traffic).missing) == 1
    world.run_until(world.now_ns + 10 * SECOND_NS)
    assert judged_alone(world, traffic).delivered == 1


# --- where events went ---

EVENT = EventId("p", 1, 1, 1)


def went(*ways: tuple[Address, Address, int]) -> Crossings:
    crossings = Crossings(lambda: 0, 32)
    crossings.by_event[EVENT] = [Crossing(at, *way) for at, way in enumerate(ways)]
    return crossings


def wanted(*brokers: Address) -> dict[tuple[int, ...], int]:
    return {broker[:size]: 0 for broker in brokers for size in range(1, 5)}


def test_a_unit_where_nobody_wants_it_is_wasted() -> None:
    """I2: entered, nobody there, and it did not go on."""
    far = (0, 1, 0, 0)
    crossings = went((A1, far, 1 << 65))
    assert list(crossings.wasted(EVENT, wanted(A1))) == [(0, 1), (0, 1, 0), far]
    assert list(crossings.wasted(EVENT, wanted(far))) == []


def test_a_unit_on_the_way_is_not_wasted() -> None:
    far = (0, 1, 0, 0)
    crossings = went((A1, B1, 1 << 65), (B1, far, 1 << 65))
    assert list(crossings.wasted(EVENT, wanted(far))) == []
    assert list(crossings.wasted(EVENT, wanted())) == [(0, 1), (0, 1, 0), far, (0, 0, 1), B1]
    backwards = went((B1, far, 1 << 65), (A1, B1, 1 << 32))
    assert list(backwards.wasted(EVENT, wanted(far))) == [(0, 0, 1), B1], "it came back in vain"


def test_who_came_later_than_the_event_does_not_justify_it() -> None:
    late = dict.fromkeys(wanted(B1), 1)
    assert (0, 0, 1) in went((A1, B1, 1 << 33)).wasted(EVENT, late)


def test_a_digest_explains_only_large_units() -> None:
    """The other count: copies that were to serve nothing but units of level 2 and above where nobody wanted it."""
    far = (0, 1, 0, 0)
    by_digest, by_row = went((A1, far, 1 << 65)), went((A1, B1, 1 << 33))
    assert list(by_digest.false_positives(EVENT, wanted(A1))) == [(0, 1), (0, 1, 0), far]
    assert list(by_digest.false_positives(EVENT, wanted(far))) == []
    assert list(by_row.false_positives(EVENT, wanted(A1))) == [], "rows are exact: nothing excuses this one"
    assert list(by_row.wasted(EVENT, wanted(A1))) == [(0, 0, 1), B1]
    both = went((A1, B1, 1 << 65 | 1 << 33))
    assert list(both.false_positives(EVENT, wanted(B1))) == [], "it was needed for another unit too"


def test_an_event_that_crosses_a_link_both_ways_counts_twice() -> None:
    assert went((A1, A2, 2), (A2, A1, 1)).link_max() == 2
    assert went((A1, A2, 2), (A1, B1, 2)).link_max() == 1


# --- soaking ---


@pytest.mark.slow
def test_a_soak_tells_the_same_whatever_the_number_of_processes() -> None:
    """Reports come in the order of their seeds and do not depend on who made them."""
    alone = list(soak(4, "links", seeds=3, brokers=3, events=10))
    assert [report.seed for report in alone] == [4, 5, 6]
    assert list(soak(4, "links", seeds=3, brokers=3, events=10, jobs=2)) == alone


def test_a_soak_ends_in_time() -> None:
    assert list(soak(1, "none", seconds=1e-9, brokers=3)) == []


def test_networks_of_the_soak_are_22_to_300_brokers_and_mostly_small() -> None:
    sizes = [draw_size(Random(seed)) for seed in range(400)]
    assert min(sizes) >= 22
    assert 120 < max(sizes) <= 300
    assert sum(size <= 60 for size in sizes) > 280


def test_roaming_is_told_with_the_faults() -> None:
    play = Play(World(generate(6, seed=1), 1, replace(QUIET, roams=2)), Random(1))
    assert [type(fault) for fault in play.plan] == [Fault, Fault]
    assert all("roams" in fault.what for fault in play.plan)


# --- clients ---


def test_clients_change_their_mind_leave_and_roam() -> None:
    """Every subscription is kept with its times; an open one belongs to an open session."""
    world = World(generate(6, seed=1), 1)
    population = Population(world, 12, Random(2))
    seen: list[object] = []
    give = world.give
    world.give = lambda address, given: (seen.append(given), give(address, given))[1]  # type: ignore[method-assign,func-returns-value]
    population.attach()
    for _ in range(8):
        world.run_until(world.now_ns + SECOND_NS)
        population.churn(6)
    assert {type(each) for each in seen} >= {ClientUp, ClientDown, Subscribe}
    ended = [each for each in population.history if each.ended_ns is not None]
    assert ended and all(each.begun_ns <= (each.ended_ns or 0) for each in ended)
    standing = [each for client in population.clients for each in client.subscriptions.values()]
    assert len(standing) == len(population.history) - len(ended)
    assert all(population.sessions[each.session] is each.client for each in standing)


def test_drawn_events_find_drawn_wishes() -> None:
    """Neither everybody nor nobody: otherwise a run would show nothing."""
    chance = Random(1)
    world = World(generate(6, seed=1), 1)
    population = Population(world, 30, chance)
    population.attach()
    counts = [
        sum(each.matches(event, each.broker) for each in population.history)
        for event in (draw_event(chance) for _ in range(40))
    ]
    assert 0 < sum(counts) < 40 * len(population.history) / 2
    assert len(set(counts)) > 3
