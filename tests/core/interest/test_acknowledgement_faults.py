"""What is acknowledged is known wherever it must be, during any run with faults (ACT-02, I1)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.core.interest.test_activation import SYSTEM, Listening
from veena import Event
from veena.address import Address, as_seen
from veena.core.boundary.inputs_effects import Unsubscribe
from veena.core.boundary.settings import SECOND_NS
from veena.sim.networks.generate import generate
from veena.sim.runs.faults import heal_everything, plan_faults
from veena.sim.world.options import draw
from veena.sim.world.world import World


@pytest.mark.parametrize(("seed", "faults"), [(1, "links"), (2, "crash"), (3, "partition"), (0, "all"), (4, "all")])
def test_whatever_is_acknowledged_is_known_wherever_it_must_be(seed: int, faults: str) -> None:
    """I1, ACT-02, FLT-08: during the run every broker of the unit that knows the subscriber's unit serves it."""
    chance = Random(seed)
    network = generate(chance.randint(5, 12), seed=chance.getrandbits(32))
    options = replace(draw(chance, faults, len(network.brokers)), wire=False, check=False, fault_time_ns=20 * SECOND_NS)
    listening = Listening(network, options, seed)
    world = listening.world
    plan_faults(world)
    subscribed: dict[tuple[Address, int], tuple[str, int]] = {}
    wrong: list[tuple[Address, Address, str]] = []
    for step in range(240):
        if step == 120:
            heal_everything(world)
        listening.run(0.25)
        for at, session in [key for key, (_, life) in subscribed.items() if _life(world, key[0]) != life]:
            del subscribed[at, session]
        at = chance.choice(list(world.nodes))
        if len(subscribed) < 8 and world.nodes[at].broker is not None:
            listening.subscribe(at, step, f"topic-{step % 6}")
            subscribed[at, step] = (f"topic-{step % 6}", _life(world, at))
        elif subscribed and chance.random() < 0.2 and step < 160:
            at, session = chance.choice(list(subscribed))
            del subscribed[at, session]
            world.give(at, Unsubscribe(session, 1))
        for (at, session), (topic, _) in subscribed.items():
            level = max(listening.levels(at, session), default=0)
            wrong += [(x, at, topic) for x in _unaware(listening, at, level, Event(topic=topic))]
    assert wrong == []
    assert subscribed
    if not options.permanent:
        assert all(listening.levels(*key)[-1:] == [SYSTEM] for key in subscribed)


def _life(world: World, at: Address) -> int:
    broker = world.nodes[at].broker
    return 0 if broker is None else broker.identity.incarnation


def _unaware(listening: Listening, at: Address, level: int, event: Event) -> list[Address]:
    """The live brokers of the subscriber's unit of this level that know its unit and would not serve it."""
    inside = [b for b in listening.world.live() if level and b.identity.address[: 4 - level] == at[: 4 - level]]
    return [
        x.identity.address
        for x in inside
        if as_seen(x.identity.address, at) in x.profiles.leases.known()
        and not listening.knows(x.identity.address, at, event)
    ]
