"""Whole units that die and come back: what the others still believe of them is put right (GPP-01, BNM-10)."""

from __future__ import annotations

import pytest

from veena.core.boundary.settings import SECOND_NS
from veena.runtime.networks.file import Network, make_network
from veena.sim.runs.run import settling_ns
from veena.sim.world.options import Options
from veena.sim.world.world import World


def three_clusters(above: str) -> Network:
    """Two clusters of two, joined, and a third that knows both; below one super-cluster, or each in its own."""
    a, b, c = (f"S.{above.format(x)}.{x}" for x in "abc")
    brokers = [f"{a}.1", f"{a}.2", f"{b}.3", f"{b}.4", f"{c}.5"]
    links = [(0, 1), (2, 3), (0, 2), (1, 4), (3, 4)]
    return make_network("three", brokers, [(brokers[x], brokers[y]) for x, y in links])


@pytest.mark.parametrize("above", ["C", "C-{}"])
def test_a_connection_that_nobody_in_its_units_remembers_is_withdrawn(above: str) -> None:
    """GPP-01: both ends and all who heard of it from them died together, and the third tells them what it was told."""
    world = World(three_clusters(above), 1, Options(wire=False, check=True))
    world.run_until(world.now_ns + 8 * SECOND_NS)
    assert world.wrong_maps() == []
    *died, third = world.nodes
    for address in died:
        world.crash(address, silent=True)
    world.run_until(world.now_ns + 8 * SECOND_NS)
    for address in died:
        world.start(address)
    world.run_until(world.now_ns + settling_ns(world.settings))
    assert world.wrong_maps() == []
    known = world.broker(third).table.everything()
    between = [record for record in known if record.up and third not in (record.low, record.high)]
    assert len(between) == 1, "the link that the two clusters made anew"
