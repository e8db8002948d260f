"""The demonstration: a network comes up, loses a link, finds other ways, heals, and survives a bad day.

Everything is measured in the run itself and handed back as plain data; the command line makes tables of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from veena.address import Address, Unit
from veena.core.settings import SECOND_NS
from veena.runtime.network_file import Network
from veena.sim.network import VirtualLink
from veena.sim.options import Options
from veena.sim.run import Report, run_seed, settling_ns
from veena.sim.world import World

#: Every seed ends well; this one has crashes, cuts and a partition, and ends in one piece.
BAD_DAY_SEED = 12


@dataclass(frozen=True, slots=True)
class Way:
    """The brokers on the way from one to another, and what brought it about."""

    when: str
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """What happened."""

    network: Network
    rows: tuple[dict[str, Any], ...]
    ways: tuple[Way, ...]
    lost_link: str
    frames: int
    bad_day: Report
    wrong_maps: int


def tell(network: Network, start: Address, end: Address, progress: Callable[[str], None]) -> Story:
    """Run the demonstration between two brokers of a network."""
    label = network.labels.label
    world = World(network, seed=1, options=Options())
    progress("brokers tell each other of their links")
    world.run_until_quiet(world.now_ns + 5 * SECOND_NS)
    frames = world.counters.frames
    rows = _rows(world)
    wrong = len(world.wrong_maps())
    ways = [Way("all links work", _way(world, start, end))]
    link = _highest(world, start, end)
    lost = f"{label(link.a)} - {label(link.b)}"
    progress(f"the link {lost} is lost")
    world.cut(link, silent=True)
    world.run_until(world.now_ns + settling_ns(world.settings))
    wrong += len(world.wrong_maps())
    ways.append(Way(f"{_short(label(link.a))} - {_short(label(link.b))} is lost", _way(world, start, end)))
    progress("the link heals")
    world.heal(link)
    world.run_until(world.now_ns + settling_ns(world.settings))
    wrong += len(world.wrong_maps())
    ways.append(Way("it heals", _way(world, start, end)))
    progress("a bad day: cuts, crashes, partitions")
    bad_day = run_seed(BAD_DAY_SEED, "all", network)
    return Story(network, rows, tuple(ways), lost, frames, bad_day, wrong)


def _rows(world: World) -> tuple[dict[str, Any], ...]:
    label = world.network.labels.label
    rows: list[dict[str, Any]] = []
    for broker in world.live():
        statistics = broker.statistics()
        rows.append(
            {
                "broker": label(statistics.address),
                "links": len(statistics.links),
                "vertices": statistics.vertices,
                "edges": statistics.edges,
                "records": statistics.records,
                "news": statistics.news,
            }
        )
    return tuple(rows)


def _way(world: World, start: Address, end: Address) -> tuple[str, ...]:
    """Follow the next hops from broker to broker."""
    at, way = start, [start]
    while at != end and len(way) <= len(world.nodes):
        hop = world.broker(at).hops.hop(_vertex(at, end))
        if hop is None:
            break
        at = hop.neighbour
        way.append(at)
    return tuple(_short(world.network.labels.label(address)) for address in way)


def _highest(world: World, start: Address, end: Address) -> VirtualLink:
    """The highest link on the way: its loss shows most."""
    at, links = start, []
    while at != end:
        hop = world.broker(at).hops.hop(_vertex(at, end))
        assert hop is not None, "the network is whole"
        links.append(next(link for link in world.links_of(at) if link.other(at) == hop.neighbour))
        at = hop.neighbour
    return max(links, key=lambda link: -_shared(link.a, link.b))


def _vertex(host: Address, broker: Address) -> Unit:
    return broker[: _shared(host, broker) + 1]


def _shared(one: Address, other: Address) -> int:
    return next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


def _short(label: str) -> str:
    return label.rsplit(".", 1)[-1]
