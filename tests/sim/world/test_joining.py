"""Nodes and units join real brokers over the simulated network: requests, routed questions, links, new addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from veena.address import Address, Unit, link_level
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, ConnectionRules, Settings
from veena.core.membership.join import Joined, Refused
from veena.runtime.networks.file import Network, load_network
from veena.sim.world.joining import Guest, add_unit, join
from veena.sim.world.options import CHECK_EVERY, Options
from veena.sim.world.world import World

NETWORKS = Path(__file__).parents[3] / "networks"
#: A registrar that takes office waits two minutes before it gives an identifier that an earlier one may have given.
PATIENCE_NS = 150 * SECOND_NS
#: What follows from an answer has happened after so long.
SETTLING_NS = 15 * SECOND_NS


@pytest.fixture
def network() -> Network:
    return load_network(NETWORKS / "fix-4.toml")


def started(network: Network, settings: Settings | None = None) -> World:
    """A large network: its brokers assert their invariants as seldom as in a run of that size."""
    world = World(network, 1, Options(check_every=CHECK_EVERY), settings)
    world.run_until(world.now_ns + 5 * SECOND_NS)
    return world


def answered(world: World, guest: Guest) -> Joined | Refused | None:
    """What the guest is told in the end; then its links have had time to come up, and maps to be right."""
    until_ns = world.now_ns + PATIENCE_NS
    while guest.result is None and world.now_ns < until_ns:
        world.run_until(world.now_ns + SECOND_NS)
    world.run_until(world.now_ns + SETTLING_NS)
    world.check()
    return guest.result


def outcome(world: World, guest: Guest) -> Joined:
    result = answered(world, guest)
    assert isinstance(result, Joined), result
    return result


def linked(world: World, address: Address) -> dict[int, list[Unit]]:
    """The neighbours of a broker by link level, as its own map has them."""
    found: dict[int, list[Unit]] = {}
    for link in world.links_of(address):
        assert link.session is not None, "a granted link is up"
        other = link.other(address)
        found.setdefault(link_level(address, other), []).append(other)
    return found


def test_a_member_of_the_cluster_that_is_a_gateway_too(network: Network) -> None:
    """NOP-03, NOP-07, GUA-12: `00000011` via n.21: a place in n, one link inside it, one to m; one request does it."""
    world = started(network)
    n, m = network.labels.unit("SSC-B.SC-6.n"), network.labels.unit("SSC-B.SC-6.m")
    joined = outcome(world, join(world, "s", network.labels.unit("SSC-B.SC-6.n.21"), [0, 1]))
    assert joined.address == (*n, 3)
    assert {level: [other[:3] for other in others] for level, others in linked(world, joined.address).items()} == {
        0: [n],
        1: [m],
    }
    assert world.wrong_maps() == []


def test_a_gateway_to_the_contact_from_elsewhere(network: Network) -> None:
    """NOP-08, NOP-09: `00000110` via n.21: s lands in SC-4 or SC-5, with a level-2 link to SC-6 and a level-1 link."""
    world = started(network)
    joined = outcome(world, join(world, "s", network.labels.unit("SSC-B.SC-6.n.21"), [1, 2]))
    sc6 = network.labels.unit("SSC-B.SC-6")
    assert joined.address[:2] in {network.labels.unit("SSC-B.SC-4"), network.labels.unit("SSC-B.SC-5")}
    links = linked(world, joined.address)
    assert [other[:2] for other in links[2]] == [sc6]
    assert [other[:2] for other in links[1]] == [joined.address[:2]]
    assert link_level(joined.address, network.labels.unit("SSC-B.SC-6.n.21")) == 2
    assert world.wrong_maps() == []


def test_a_full_contact_sends_the_newcomer_to_a_mate(network: Network) -> None:
    """NOP-10: n.21 is at its threshold of level-0 links, another broker of n takes the node."""
    rules = ConnectionRules((3, 2, 2, 2))
    world = started(network, Settings(network.name, network.levels, network.fanout, rules=rules))
    contact = network.labels.unit("SSC-B.SC-6.n.21")
    first = outcome(world, join(world, "s1", contact, [0]))
    second = outcome(world, join(world, "s2", contact, [0]))
    assert first.links[0].place.address == contact
    assert second.links[0].place.address != contact
    assert second.links[0].place.address[:3] == contact[:3]
    assert first.address != second.address
    assert world.wrong_maps() == []


def test_a_node_from_the_wrong_network_is_refused(network: Network) -> None:
    """NOP-01, NOP-11: the IP rule fails: a refusal that says so, and nobody gains a link."""
    rules = ConnectionRules.parse((16, 8, 4, 4), allowed=["10.0.0.0/8"])
    world = started(network, Settings(network.name, network.levels, network.fanout, rules=rules))
    links = len(world.links)
    refused = answered(world, join(world, "s", network.labels.unit("SSC-B.SC-6.n.21"), [0], ip="192.168.1.5"))
    assert isinstance(refused, Refused)
    assert "192.168.1.5" in refused.reason
    assert len(world.links) == links
    assert outcome(world, join(world, "t", network.labels.unit("SSC-B.SC-6.n.21"), [0], ip="10.1.2.3"))


def test_newcomers_never_share_an_address(network: Network) -> None:
    """Several at once, over different contacts of one cluster."""
    world = started(network)
    contacts = [network.labels.unit(f"SSC-B.SC-6.n.{node}") for node in (19, 20, 21)]
    guests = [join(world, f"s{number}", contacts[number % 3], [0]) for number in range(6)]
    world.run_until(world.now_ns + PATIENCE_NS)
    addresses = [guest.result.address for guest in guests if isinstance(guest.result, Joined)]
    assert len(addresses) == 6
    assert len(set(addresses)) == 6
    assert world.wrong_maps() == []


def test_a_dead_contact_is_a_refusal(network: Network) -> None:
    world = started(network)
    contact = network.labels.unit("SSC-B.SC-6.n.21")
    world.crash(contact, silent=True)
    assert isinstance(answered(world, join(world, "s", contact, [0])), Refused)


def test_a_super_cluster_is_added(network: Network) -> None:
    """NOP-04, NOP-14..17, GPP-14: SC-10 gets the next number in SSC-B, its inside stays, and all maps are right."""
    unit = load_network(NETWORKS / "fix-4-unit.toml")
    world = started(network)
    world.add_network(unit, Settings(unit.name, unit.levels, unit.fanout))
    world.run_until(world.now_ns + PATIENCE_NS)
    spokesman = unit.labels.unit("SC-10.v.23")
    before = [entry.address for entry in unit.brokers]
    guest = add_unit(world, spokesman, 2, network.labels.unit("SSC-B.SC-6.n.21"), [2])
    joined = outcome(world, guest)
    assert joined.new == (0, 3)
    moved = [node.address for node in world.nodes.values() if node.address[:2] == (0, 3)]
    assert moved == [(0, 3, *address[1:]) for address in before]
    assert all(node.broker is not None for node in world.nodes.values())
    assert world.wrong_maps() == []


def test_a_unit_may_not_ask_below_its_level(network: Network) -> None:
    """NOP-13, NOP-16: bit 1 set in the request of a super-cluster is refused."""
    unit = load_network(NETWORKS / "fix-4-unit.toml")
    world = started(network)
    world.add_network(unit, Settings(unit.name, unit.levels, unit.fanout))
    world.run_until(world.now_ns + PATIENCE_NS)
    spokesman = unit.labels.unit("SC-10.v.23")
    guest = add_unit(world, spokesman, 2, network.labels.unit("SSC-B.SC-6.n.21"), [1, 2])
    assert isinstance(answered(world, guest), Refused)
    assert spokesman in world.nodes


def test_a_registrar_that_was_restarted_remembers_no_gift_and_waits(network: Network) -> None:
    """NOP-19: at first its map shows nobody, not even its mates, and it cannot know what it had reserved. Until all
    that has come or lapsed it asks for patience; then the newcomer gets a place of its own."""
    world = started(network)
    contact = network.labels.unit("SSC-B.SC-6.n.19")
    world.crash(contact, silent=False)
    world.start(contact)
    early = join(world, "early", contact, [0])
    world.run_until(world.now_ns + 30 * SECOND_NS)
    assert isinstance(early.result, Refused), early.result
    assert "the registrar has just changed" in early.result.reason
    assert early.result.retry_ms > 60_000
    world.run_until(world.now_ns + early.result.retry_ms * MILLISECOND_NS)
    late = outcome(world, join(world, "late", contact, [0]))
    assert late.address not in [entry.address for entry in network.brokers]
    assert world.wrong_maps() == []
