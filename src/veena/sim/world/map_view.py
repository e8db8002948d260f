"""One broker's map as people and scripts see it: built by message passing, reported with labels."""

from __future__ import annotations

from typing import Any

from veena.address import Address
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.broker import Broker
from veena.errors import VeenaError
from veena.runtime.broker.map_view import map_view as labelled_view
from veena.runtime.networks.file import Network
from veena.sim.world.options import Options
from veena.sim.world.world import World

#: The longest path of maps through any network is far below a virtual hour.
LIMIT_NS = 3600 * SECOND_NS


def converged(network: Network, seed: int = 1, options: Options | None = None) -> World:
    """A world in which all connection messages have been passed on."""
    # Heartbeats tell nothing about the map; without them a large network converges in a fraction of the steps.
    patient = Settings(
        network.name,
        network.levels,
        network.fanout,
        heartbeat_ns=LIMIT_NS,
        suspect_after_ns=2 * LIMIT_NS,
        confirm_after_ns=2 * LIMIT_NS,
        answer_within_ns=2 * LIMIT_NS,
        load_check_ns=LIMIT_NS,
        reconcile_ns=4 * LIMIT_NS,
        tombstone_ns=16 * LIMIT_NS,
        lease_ns=8 * LIMIT_NS,
    )
    world = World(network, seed, options or Options(wire=False, check=False), patient)
    if not world.run_until_quiet(world.now_ns + LIMIT_NS // 2):
        raise VeenaError(f"network {network.name!r} did not come to rest: maps were still changing")
    return world


def map_view(network: Network, broker: Broker) -> dict[str, Any]:
    """What `veena topology show --json` prints of a broker."""
    return labelled_view(broker, network.labels.label)


def show(network: Network, at: Address, seed: int = 1, options: Options | None = None) -> dict[str, Any]:
    """The view of one broker after the network has come to rest."""
    return map_view(network, converged(network, seed, options).broker(at))
