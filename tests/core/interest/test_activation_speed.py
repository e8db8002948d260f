"""A subscription is active after the way to others and back, not after an interval a level (ACT-02, PPP-05)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.interest.test_acknowledgement_changes import three
from tests.core.interest.test_activation import SYSTEM, Listening, two_clusters
from veena.core.boundary.inputs_effects import Active, ClientUp, Effect, Stored, Subscribe
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.broker import Broker
from veena.core.messages.pace import AT_ONCE
from veena.core.wire.interest import Interest
from veena.runtime.networks.file import load_network, make_network
from veena.sim.world.network import Delivery
from veena.sim.world.options import Options

NETWORKS = Path(__file__).parents[3] / "networks"


def lone_broker() -> Broker:
    broker = Broker(Identity("alone", (0, 0, 0, 0), 1), Settings(), lambda bits: 7, 0)
    broker.tick(0)
    broker.handle(Stored(1), 0)
    broker.handle(ClientUp(1, "reader"), 0)
    return broker


def levels(effects: list[Effect], subscription: int) -> list[int]:
    return [each.level for each in effects if isinstance(each, Active) and each.subscription == subscription]


@pytest.mark.parametrize("scope", [1, 2, 3, 4])
def test_at_a_broker_alone_each_is_active_with_its_own_input(scope: int) -> None:
    """However many come, and whatever the allowance to tell of them is: nobody else has to hear of them."""
    broker, now = lone_broker(), 10 * SECOND_NS
    broker.tick(now)
    for number in range(10 * AT_ONCE):
        effects = broker.handle(Subscribe(1, number, "topic", f"topic-{number}", scope), now)
        assert levels(effects, number) == list(range(1, scope + 1))


def test_a_broker_that_may_not_have_met_its_neighbours_yet_does_not_say_so() -> None:
    """ACT-02: three heartbeats after a start others may still be about to call."""
    broker, settings = lone_broker(), Settings()
    effects = broker.handle(Subscribe(1, 1, "topic", "quotes", SYSTEM), MILLISECOND_NS)
    now: int | None = MILLISECOND_NS
    while now is not None and now < settings.suspect_after_ns:
        assert levels(effects, 1) == []
        now = broker.next_wakeup()
        effects = [] if now is None else broker.tick(now)
    assert levels(effects, 1) == [1, 2, 3, 4]


def test_a_unit_that_was_there_once_is_waited_for() -> None:
    """ACT-02: a level is not empty because those in it cannot be heard now."""
    listening = Listening(make_network("two", ["S.C.a.1", "S.C.a.2"], [("S.C.a.1", "S.C.a.2")]))
    here, there = listening.at("S.C.a.1"), listening.at("S.C.a.2")
    listening.world.crash(there, silent=True)
    listening.subscribe(here, 1)
    listening.run(10)
    assert listening.levels(here, 1) == []
    listening.run(listening.world.settings.lease_ns * 2 / SECOND_NS)
    assert listening.levels(here, 1) == [1, 2, 3, 4]


def test_in_a_network_it_takes_the_way_there_and_back() -> None:
    """ACT-05: no level waits for a timer after a quiet time; some subscriptions in turn are as quick."""
    for network, ways in ((two_clusters(), 6), (three(), 10)):
        delay_ns = 3 * MILLISECOND_NS
        listening = Listening(network, Options(wire=False, check=False, delay_ns=delay_ns))
        listening.run(10)
        for session, address in enumerate(listening.world.nodes):
            began_ns = listening.world.now_ns
            listening.subscribe(address, session, f"topic-{session}")
            listening.run(2)
            took_ns = listening.heard[address, session][-1][1] - began_ns
            assert listening.levels(address, session) == [1, 2, 3, 4]
            assert took_ns <= ways * delay_ns


def test_under_load_changes_go_out_together() -> None:
    """PPP-05: of a hundred changes a second, as many batches as the pace allows, and every one is active in the end."""
    listening = Listening(load_network(NETWORKS / "fix-32.toml"))
    here = listening.at("syracuse.1")
    batches: list[int] = []

    def arrived(delivery: Delivery) -> None:
        batches.extend(listening.world.now_ns for _, frame in delivery.frames if isinstance(frame, Interest))

    listening.world.give(here, ClientUp(1, "busy"))
    listening.run(5)
    listening.world.on_delivery = arrived
    for number in range(400):
        listening.world.give(here, Subscribe(1, number, "topic", f"topic-{number}", 2))
        listening.run(0.01)
    interval_ns = listening.world.settings.batch_ns[1] * 3 // 2  # both levels of the broker tell its only neighbour
    assert len(batches) <= AT_ONCE + (batches[-1] - batches[0]) / interval_ns + 1
    listening.run(5)
    listening.world.broker(here).check()
    assert sum(level == 2 for level in listening.levels(here, 1)) == 400
