"""Random sequences of joins: addresses stay unique, thresholds and fan-out hold, everything ends; small worlds grow."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.membership.organisation_world import World
from veena.address import FANOUTS, Address, link_level
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.join import Applicant, Joined, Refused
from veena.core.membership.registrar import IDENTIFIER_HOLD_NS

#: A request of any kind; what makes no sense is refused, and that is an end as well.
REQUESTS = ((0,), (0,), (0,), (0, 1), (1,), (2,), (1, 2), (0, 1, 2), (3,))
#: A join asks at most 64 brokers, each of which asks at most 63 mates and a registrar within 2 x levels messages.
MESSAGES_A_JOIN_MAX = 64 * (2 + 2 * 63 + 2 * 8) + 64 * 16


def small_world(draw: Callable[[int], int], fanout: int) -> World:
    """A network of one to four clusters in two super-clusters, with tight thresholds."""
    world = World(fanout=fanout)
    clusters = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)][: 1 + draw(4)]
    for index, cluster in enumerate(clusters):
        size = 1 + draw(3)
        for number in range(size):
            world.add((*cluster, number), ConnectionRules((1 + draw(4), draw(3), draw(3), draw(2))))
            if number:
                world.link((*cluster, number - 1), (*cluster, number))
        if index:
            world.link((*clusters[index - 1], 0), (*cluster, 0))
    world.refresh()
    return world


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), fanout=st.sampled_from(FANOUTS), joins=st.integers(1, 30), lag=st.integers(1, 12))
def test_random_joins_are_safe_and_end(seed: int, fanout: int, joins: int, lag: int) -> None:
    """NOP-02, NOP-14, NOP-19: many joins in flight, maps that lag, messages in any order, brokers that are dead."""
    chance = random.Random(seed)
    world = small_world(chance.randrange, fanout)
    before = {broker: world.counts(broker) for broker in world.brokers}
    if chance.random() < 0.3 and len(world.brokers) > 1:
        world.dead.append(chance.choice(list(world.brokers)))
    for index in range(joins):
        contact = chance.choice([broker for broker in world.brokers if broker not in world.dead])
        rules = ConnectionRules((1 + chance.randrange(4), chance.randrange(3), chance.randrange(3)))
        applicant = None
        if chance.random() < 0.2:  # a broker that is in the network already, or a unit
            inside = chance.choice([broker for broker in world.brokers if broker not in world.dead])
            unit = Applicant(f"unit-{index}", f"unit-{index}", 1 + chance.randrange(2), (0, 0, 0, 0))
            applicant = chance.choice([Applicant(f"inside-{inside}", address=inside), unit])
        world.join(contact, chance.choice(REQUESTS), applicant=applicant, rules=rules, dials=chance.random() < 0.8)
        if index % lag == 0:
            world.run(chance.randrange)
        if chance.random() < 0.3 or world.now_ns > 100_000_000_000 * (index + 1):
            world.refresh()
    world.run(chance.randrange)
    for guest in world.guests.values():
        result = guest.joiner.result
        assert isinstance(result, Joined) or (isinstance(result, Refused) and result.reason)
    assert len(world.log) <= joins * MESSAGES_A_JOIN_MAX
    assert world.refused_dials == 0, "what was granted can be dialled at once"
    _check_identifiers(world)
    for broker in world.brokers:
        _check_thresholds(world, broker, before.get(broker, (0,) * world.levels))


def _check_identifiers(world: World) -> None:
    """No two newcomers hold one address or one unit's path at the same time."""
    held: dict[Address, int] = {}
    for guest in sorted(world.guests.values(), key=lambda guest: guest.ended_ns):
        result = guest.joiner.result
        if isinstance(result, Joined) and not guest.insider:
            unit = result.new or result.address
            free_ns = held.get(unit, -1)
            assert guest.ended_ns > free_ns, f"{unit} was given to two"
            held[unit] = guest.ended_ns + IDENTIFIER_HOLD_NS
            assert max(unit) < world.fanout


def _check_thresholds(world: World, broker: Address, before: tuple[int, ...]) -> None:
    """Links that others made to it and gateways kept stay within the thresholds; what it dials is its own affair."""
    admission = world.brokers[broker]
    admission.check()
    own = [0] * world.levels
    for guest in world.guests.values():
        result = guest.joiner.result
        if isinstance(result, Joined) and guest.dials and result.address == broker:
            for grant in result.links:
                own[grant.level] += 1
    for level, count in enumerate(world.counts(broker)):
        taken = count - own[level] + admission.slots.count(level)
        assert taken <= max(admission.rules.threshold(level), before[level])


@pytest.mark.parametrize("fanout", FANOUTS)
def test_nop_19_a_network_of_one_cluster_fills_to_the_block_limit(fanout: int) -> None:
    """NOP-19, TOP-07, AMB-1: the founder and limit - 1 more; the next one hears the limit."""
    world = World(fanout=fanout)
    world.add((0, 0, 0, 0), ConnectionRules((4,)))
    world.refresh()
    for index in range(fanout - 1):
        guest = world.join((0, 0, 0, index // 2), (0,), rules=ConnectionRules((4,)))
        world.run()
        assert world.joined(guest).address == (0, 0, 0, index + 1)
        world.refresh()
    over = world.join((0, 0, 0, 3), (0,))
    world.run()
    assert f"the cluster holds {fanout} brokers already" in world.refusal(over)
    world.now_ns += IDENTIFIER_HOLD_NS
    again = world.join((0, 0, 0, 3), (0,))
    world.run()
    assert isinstance(world.result(again), Refused), "time frees nothing that the map shows"


# --- NOP-18: small worlds ---


def clustering_coefficient(near: dict[Address, list[Address]]) -> float:
    """The mean over all nodes of links among neighbours to possible ones (TOP-11)."""
    total = 0.0
    for neighbours in near.values():
        pairs = [(a, b) for index, a in enumerate(neighbours) for b in neighbours[:index]]
        total += sum(b in near[a] for a, b in pairs) / len(pairs) if pairs else 0.0
    return total / len(near)


def pathlength(near: dict[Address, list[Address]]) -> float:
    """The mean number of hops between two nodes (TOP-11)."""
    total = 0
    for start in near:
        hops = {start: 0}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            for there in near[here]:
                if there not in hops:
                    hops[there] = hops[here] + 1
                    queue.append(there)
        assert len(hops) == len(near), "the network is connected"
        total += sum(hops.values())
    return total / (len(near) * (len(near) - 1))


def random_graph(nodes: list[Address], links: int, chance: random.Random) -> dict[Address, list[Address]]:
    """As many nodes and links; a random chain first, so that it is connected."""
    order = list(nodes)
    chance.shuffle(order)
    pairs = {tuple(sorted(pair)) for pair in pairwise(order)}
    while len(pairs) < links:
        pairs.add(tuple(sorted(chance.sample(nodes, 2))))
    near: dict[Address, list[Address]] = {node: [] for node in nodes}
    for one, other in sorted(pairs):
        near[one].append(other)
        near[other].append(one)
    return near


def grow(seed: int, clusters: int, size: int) -> World:
    """Random joins under a policy: mostly into clusters of `size`, links to all mates, a long link now and then."""
    chance = random.Random(seed)
    world = World()
    rules = ConnectionRules((size - 1, 4, 4, 4))
    world.add((0, 0, 0, 0), rules)
    world.refresh()
    while len(world.brokers) < clusters * size:
        contact = list(world.brokers)[-1] if len(world.brokers) % size else chance.choice(list(world.brokers))
        mates = [broker for broker in world.brokers if broker[:-1] == contact[:-1]]
        if len(mates) >= size:
            unit = chance.choice([1, 2]) if len(world.brokers) > 2 * size else 1
            founder = Applicant(f"node-{len(world.guests)}", "", unit, (0, 0, 0, 0))
            guest = world.join(contact, (unit,), applicant=founder, rules=rules)
            world.run()
            joined = world.joined(guest)
            world.add(joined.address, rules, world.now_ns, joined.unit_level)
            (grant,) = joined.links
            assert world.brokers[grant.place.address].claim(founder.requester, unit, world.now_ns)
            world.link(joined.address, grant.place.address)
        else:
            guest = world.join(contact, (0,), rules=rules)
            world.run()
            newcomer = world.joined(guest).address
            world.refresh()
            for mate in mates:
                if mate not in world.neighbours(newcomer):
                    _more(world, newcomer, mate)
        world.refresh()
    for broker in chance.sample(list(world.brokers), clusters * size // 4):  # a few long links
        other = chance.choice(list(world.brokers))
        if other[:-1] != broker[:-1] and other not in world.neighbours(broker):
            _more(world, broker, other)
            world.refresh()
    return world


def _more(world: World, broker: Address, other: Address) -> None:
    applicant = Applicant(f"more-{len(world.guests)}", address=broker)
    world.join(other, (link_level(broker, other),), applicant=applicant)
    world.run()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nop_18_joins_grow_a_small_world(seed: int) -> None:
    """NOP-18, TOP-14: clusters plus a few long links: coefficient > 0.5, pathlength < 2 x a random graph's."""
    world = grow(seed, clusters=12, size=6)
    near = {broker: world.neighbours(broker) for broker in world.brokers}
    degree = sum(map(len, near.values())) / len(near)
    chance = random.Random(seed)
    peer = random_graph(list(near), len(world.links), chance)
    assert clustering_coefficient(near) > 0.5 > 2 * clustering_coefficient(peer), degree
    assert pathlength(near) < 2 * pathlength(peer)


def test_the_measures_are_right() -> None:
    """TOP-11: K4 has (1, 1.0), a ring of six (1.8, 0)."""
    four = [(0, 0, 0, number) for number in range(4)]
    k4: dict[Address, list[Address]] = {a: [b for b in four if b != a] for a in four}
    six = [(0, 0, 0, number) for number in range(6)]
    ring: dict[Address, list[Address]] = {a: [six[i - 1], six[(i + 1) % 6]] for i, a in enumerate(six)}
    assert (pathlength(k4), clustering_coefficient(k4)) == (1.0, 1.0)
    assert pathlength(ring) == pytest.approx(1.8) and clustering_coefficient(ring) == 0.0
