"""The judge of the simulator, judged: by hand on parted networks, and by agreement on whole ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.core.small_networks import map_at, pairs, random_network
from veena.address import Address, Unit
from veena.runtime.networks.file import load_network, make_network
from veena.sim.world.map_oracle import Oracle
from veena.sim.world.map_view import converged

NETWORKS = Path(__file__).parents[3] / "networks"


def oracle_of(brokers: str, links: str) -> tuple[Oracle, dict[str, Unit]]:
    """Brokers as `S.C.a.1 ...`, links as pairs of their last parts."""
    labels = brokers.split()
    last = {label.rsplit(".", 1)[-1]: label for label in labels}
    ends = links.split()
    network = make_network("hand", labels, [(last[a], last[b]) for a, b in zip(ends[::2], ends[1::2], strict=True)])
    names = {network.labels.label(unit).rsplit(".", 1)[-1]: unit for unit in network.labels.units()}
    return Oracle((entry.address for entry in network.brokers), pairs(network)), names


def seen(oracle: Oracle, names: dict[str, Unit], host: str) -> dict[str, tuple[int, int, int]]:
    """Edge -> (level, cost, links)."""
    label = {unit: name for name, unit in names.items()}
    return {f"{label[a]} {label[b]}": (level, cost, links) for a, b, level, cost, links in oracle.edges(names[host])}


def test_a_whole_network_by_hand() -> None:
    """GPP-20, BNM-01, GPP-11, GPP-13: each link named as coarsely as the host needs it, parallel ones counted."""
    oracle, names = oracle_of("S.C.a.1 S.C.a.2 S.C.b.3 S.C.b.4 S.D.e.5", "1 2 3 4 1 3 2 4 2 5 1 3")
    assert seen(oracle, names, "1") == {"1 2": (0, 0, 1), "1 b": (1, 1, 2), "2 b": (1, 1, 1), "2 D": (2, 2, 1)}
    assert seen(oracle, names, "3") == {"3 4": (0, 0, 1), "3 a": (1, 1, 2), "4 a": (1, 1, 1), "a D": (2, 3, 1)}
    assert seen(oracle, names, "5") == {"5 C": (2, 2, 1)}
    assert oracle.is_whole()


def test_a_parted_network_by_hand() -> None:
    """BNM-10, BNM-12: what lies beyond the gap is not in the map, on either side."""
    oracle, names = oracle_of("S.C.a.1 S.C.b.2 S.C.c.3 S.C.d.4", "1 2 3 4")
    assert seen(oracle, names, "1") == {"1 b": (1, 1, 1)}
    assert seen(oracle, names, "4") == {"4 c": (1, 1, 1)}
    assert not oracle.is_whole()


def test_a_cluster_that_fell_apart_by_hand() -> None:
    """SPR-01, BNM-12: 1 and 2 meet only over b; what 2 alone holds is not shown to 1, though news of it can come."""
    oracle, names = oracle_of("S.C.a.1 S.C.a.2 S.C.b.3 S.D.e.4", "1 3 2 3 2 4")
    assert seen(oracle, names, "1") == {"1 b": (1, 1, 1)}
    assert seen(oracle, names, "2") == {"2 b": (1, 1, 1), "2 D": (2, 2, 1)}
    assert seen(oracle, names, "3") == {"3 a": (1, 1, 2), "a D": (2, 3, 1)}
    assert not oracle.is_whole()


def test_a_broker_alone() -> None:
    """TOP-22."""
    oracle = Oracle([(0, 0, 0, 0)], [])
    assert oracle.edges((0, 0, 0, 0)) == []
    assert oracle.is_whole()


@pytest.mark.parametrize("seed", range(10))
def test_it_agrees_with_the_core_on_networks_without_faults(seed: int) -> None:
    """GPP-20: built by messages, derived from the whole topology, and seen without messages: three times the same."""
    network = random_network(Random(500 + seed), extra=10)
    world = converged(network, seed)
    assert world.wrong_maps() == []
    oracle = world.oracle()
    assert oracle.is_whole()
    for address in world.nodes:
        edges = map_at(address, pairs(network)).edges()
        assert [(edge.a, edge.b, edge.level, edge.cost, edge.links) for edge in edges] == oracle.edges(address)


def test_it_agrees_on_the_78_brokers_of_the_example() -> None:
    """GPP-20 (FIX-3)."""
    world = converged(load_network(NETWORKS / "fix-3.toml"))
    assert len(world.nodes) == 78
    assert world.wrong_maps() == []


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_on_networks_that_start_in_pieces(seed: int) -> None:
    """BNM-12: a third of the links is missing, units are in pieces; nobody claims what it cannot reach."""
    chance = Random(seed)
    whole = random_network(chance, extra=8)
    kept = [link for link in whole.links if chance.random() > 0.35]
    labels = {entry.address: entry.label for entry in whole.brokers}
    parted = make_network("parted", labels.values(), [(labels[link.a], labels[link.b]) for link in kept])
    world = converged(parted, seed)
    assert world.wrong_maps() == []


def test_it_notices_a_wrong_map() -> None:
    """The judge is not asleep: one edge too few, one too many, one link miscounted."""
    network = random_network(Random(3), extra=4)
    world = converged(network)
    broker = next(broker for broker in world.live() if len(broker.map.edges()) > 1)
    first = next(
        iter(record for record in broker.table.everything() if broker.identity.address in (record.low, record.high))
    )
    broker.map.forget(first.id)
    assert world.wrong_maps() == [broker.identity.address]
    world.links.pop()
    wrong: list[Address] = world.wrong_maps()
    assert len(wrong) > 1
