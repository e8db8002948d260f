"""Lies about what a broker wants lose their effect, and what was accepted meanwhile is delivered."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.liars import Liar, draw_lie
from veena.core.boundary.inputs_effects import Subscribe, Unsubscribe
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.messages.pace import AT_ONCE
from veena.core.wire.control import Frame
from veena.runtime.networks.file import make_network

#: Short, so that tests are.
LEASE = Settings(lease_ns=9 * SECOND_NS)
LEVELS = ["S.C.c.0", "S.C.c.1", "S.C.d.0", "S.C.d.1", "S.D.c.0", "S.D.c.1"]
LINKS = [
    ("S.C.c.0", "S.C.c.1"), ("S.C.d.0", "S.C.d.1"), ("S.C.c.0", "S.C.d.0"), ("S.D.c.0", "S.D.c.1"),
    ("S.C.d.1", "S.D.c.0"),
]  # fmt: skip


def stage() -> Stage:
    """Three brokers in a row."""
    return Stage(cluster([(0, 1), (1, 2)]), settings=LEASE)


def publish(found: Stage, publisher: int, count: int, first: int = 0) -> list[str]:
    bodies = [str(each) for each in range(first, first + count)]
    for body in bodies:
        found.publish(publisher, body)
        found.wait_ms(20)
    return bodies


def slow_down(found: Stage) -> None:
    """Let all ways take so long that a lie is believed until the answer comes."""
    for link in found.world.links:
        link.delay_ns = 40 * MILLISECOND_NS


def test_what_was_accepted_while_a_neighbour_lied_is_delivered_once() -> None:
    found = stage()
    reader, publisher = found.subscribe("0"), found.attach("2", "publisher")
    slow_down(found)
    found.wait()
    liar, victim = Liar(found, "1"), found.addresses["0"]
    found.wait_ms(500)
    bodies: list[str] = []
    for at in range(40):
        liar.say(liar.wants_nothing(victim, victim))
        bodies += publish(found, publisher, 5, 5 * at)
    accepted_during = len(found.bodies[reader])
    assert len(found.accepted) == len(bodies) == 200
    assert accepted_during < 200, "the lie was believed for moments"
    liar.leave()
    found.wait(LEASE.lease_ns)
    assert sorted(found.bodies[reader], key=int) == bodies, "all of them, and none twice"
    assert found.broker("0").profiles.contradictions.count >= 40
    late = [frame for frame in found.frames[reader] if frame.late]
    in_order = [int(bytes(frame.body)) for frame in found.frames[reader] if not frame.late]
    assert late and in_order == sorted(in_order)


def test_who_subscribes_again_is_given_nothing_old() -> None:
    """An honest client that left and came back while lies were told wants what comes, and not what came."""
    found = stage()
    steady, fickle = found.subscribe("0"), found.subscribe("0")
    publisher = found.attach("2", "publisher")
    found.wait()
    liar, victim = Liar(found, "1"), found.addresses["0"]
    found.wait_ms(500)
    found.world.give(victim, Unsubscribe(fickle, 1))
    found.wait_ms(200)
    for number in range(2, 2 + AT_ONCE):  # what it says next is gathered
        found.world.give(victim, Subscribe(steady, number, "topic", f"other-{number}", 4))
        found.wait_ms(1)
    liar.say(liar.wants_nothing(victim, victim))
    found.wait_ms(5)
    bodies = publish(found, publisher, 2)
    assert found.bodies[steady] == [], "the lie is believed for a moment"
    found.world.give(victim, Subscribe(fickle, 1, "topic", "quotes", 4))
    liar.leave()
    found.wait(LEASE.lease_ns)
    assert sorted(found.bodies[steady]) == bodies
    assert found.bodies[fickle] == []
    found.publish(publisher, "new")
    found.wait_ms(200)
    assert found.bodies[fickle] == ["new"]


def test_answers_to_earlier_questions_are_not_asked_for_again() -> None:
    """An answer is an event in the log of its sender too: told again with each question, answers would multiply."""
    found = stage()
    reader, publisher = found.subscribe("0"), found.attach("2", "publisher")
    slow_down(found)
    found.wait()
    liar, victim = Liar(found, "1"), found.addresses["0"]
    found.wait_ms(500)
    rounds, count = 6, 0
    before = found.broker("2").events.origin.next_offset
    for _ in range(rounds):
        liar.say(liar.wants_nothing(victim, victim))
        found.wait_ms(5)
        count += len(publish(found, publisher, 2, count))
        found.wait(LEASE.lease_ns)
    assert found.broker("0").events.sessions.missed.asked >= 3, "it asked several times"
    assert sorted(found.bodies[reader], key=int) == [str(each) for each in range(count)]
    assert found.broker("2").events.origin.next_offset - before <= 2 * count, "each event, and one answer with it"


def lie_again_and_again(found: Stage, liar: Liar, lie: Callable[[], Frame], publisher: int, times: int) -> list[str]:
    """Lie, and publish while the lie is believed; what was published."""
    bodies: list[str] = []
    for at in range(times):
        liar.say(lie())
        found.wait_ms(5)
        bodies += publish(found, publisher, 2, 2 * at)
        found.wait_ms(200)
    return bodies


@pytest.mark.parametrize(("size", "origin"), [(4, "S.C.c.1"), (3, "S.C.d.1"), (2, "S.D.c.1")])
def test_lies_about_every_unit_lose_their_effect(size: int, origin: str) -> None:
    """About a broker, its cluster, its super-cluster; told to the one who accepts events, in the speaker's own name."""
    network = make_network("levels", LEVELS, LINKS)
    found = Stage(network, settings=LEASE)
    at = {entry.label: found.names[entry.address] for entry in network.brokers}
    reader, publisher = found.subscribe(at["S.C.c.0"]), found.attach(at[origin], "publisher")
    slow_down(found)
    found.wait(10 * SECOND_NS)
    liar, victim = Liar(found, at[origin]), found.addresses[at["S.C.c.0"]]
    found.wait_ms(500)
    unit = victim[:size]
    lie = (lambda: liar.wants_no_digest(unit)) if size == 2 else (lambda: liar.wants_nothing(unit, victim))
    bodies = lie_again_and_again(found, liar, lie, publisher, 10)
    assert len(found.bodies[reader]) < len(bodies), "they were believed for moments"
    liar.leave()
    found.wait(LEASE.lease_ns)
    assert sorted(found.bodies[reader], key=int) == bodies


@pytest.mark.parametrize("seed", range(12))
def test_lies_of_any_kind_lose_their_effect_within_a_lease(seed: int) -> None:
    """A liar at some broker, lies of some kinds about some broker: when it is gone, all that was accepted arrives."""
    chance = Random(seed)
    network = make_network("levels", LEVELS, LINKS)
    found = Stage(network, settings=LEASE, seed=seed)
    at = {entry.label: found.names[entry.address] for entry in network.brokers}
    victim, contact, origin = (at[chance.choice(LEVELS)] for _ in range(3))
    reader, publisher = found.subscribe(victim), found.attach(origin, "publisher")
    found.wait(10 * SECOND_NS)
    liar = Liar(found, contact)
    found.wait_ms(500)
    count = 0
    for _ in range(chance.randint(1, 4)):
        lie = draw_lie(liar, chance, found.addresses[victim])
        for _ in range(chance.randint(1, 20)):
            if not liar.goodbyes:
                liar.say(lie())
            found.wait_ms(chance.randint(1, 20))
            publish(found, publisher, 2, count)
            count += 2
    liar.leave()
    found.wait(LEASE.lease_ns)
    assert len(found.accepted) == count
    assert sorted(found.bodies[reader], key=int) == [str(each) for each in range(count)]


def test_a_subscription_made_after_the_liar_is_gone_gets_everything() -> None:
    """Thousands of huge epochs and numbers: refused with the link, and nobody counts from there."""
    found = stage()
    publisher = found.attach("2", "publisher")
    victim = found.addresses["0"]
    liar = Liar(found, "1")
    found.wait_ms(500)
    for at in range(2000):
        liar.say(liar.wants_nothing(victim, victim, (50 + at) * SECOND_NS))
    found.wait_ms(100)
    assert [reason for reason in liar.goodbyes if "ahead of this broker's clock" in reason], liar.goodbyes
    liar.leave()
    found.wait(SECOND_NS)
    reader = found.subscribe("0")
    found.wait()
    bodies = publish(found, publisher, 20)
    found.wait(SECOND_NS)
    assert found.bodies[reader] == bodies
    assert found.broker("1").profiles.epochs.early > 0
