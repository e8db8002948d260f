"""The demonstration: a network comes up, loses a link, finds other ways, heals, and survives a bad day.

Everything is measured in the run itself and handed back as plain data; the command line makes tables of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from veena.address import Address, link_level
from veena.core.boundary.settings import SECOND_NS
from veena.runtime.networks.file import Network
from veena.sim.runs.run import Report, run_seed, settling_ns
from veena.sim.world.network import VirtualLink
from veena.sim.world.options import Options
from veena.sim.world.routes import way
from veena.sim.world.world import World

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
    ways = [Way("all links work", _named(world, _way(world, start, end)))]
    link = _highest(world, _way(world, start, end))
    lost = f"{label(link.a)} - {label(link.b)}"
    progress(f"the link {lost} is lost")
    world.cut(link, silent=True)
    world.run_until(world.now_ns + settling_ns(world.settings))
    wrong += len(world.wrong_maps())
    ways.append(
        Way(f"{_short(label(link.a))} - {_short(label(link.b))} is lost", _named(world, _way(world, start, end)))
    )
    progress("the link heals")
    world.heal(link)
    world.run_until(world.now_ns + settling_ns(world.settings))
    wrong += len(world.wrong_maps())
    ways.append(Way("it heals", _named(world, _way(world, start, end))))
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


def _way(world: World, start: Address, end: Address) -> list[Address]:
    return way({broker.identity.address: broker for broker in world.live()}, start, end)


def _named(world: World, found: list[Address]) -> tuple[str, ...]:
    return tuple(_short(world.network.labels.label(address)) for address in found)


def _highest(world: World, found: list[Address]) -> VirtualLink:
    """The highest link on a way: its loss shows most."""
    links = [next(link for link in world.links_of(one) if link.other(one) == other) for one, other in pairwise(found)]
    return max(links, key=lambda link: link_level(link.a, link.b))


def _short(label: str) -> str:
    return label.rsplit(".", 1)[-1]
