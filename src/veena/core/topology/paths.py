"""Cheapest paths over a map as the GES paper has them: what `topology show` reports as `cost` and `path`.

The path to a unit is found from that unit's vertex back to the host, over links to vertices of the same or a lower
level only (SPR-01): from outside a unit one can only come down into it, never leave it on the way. Seen from the host
that is Dijkstra over edges that never lead to a lower level; it gives the same answer as the paper's recursion with its
visited sets (SPR-02) without its forks.

Ties are decided by LCM-04: (1) lower cost, (2) larger link count on the first edge, seen from the target, where two
paths differ, (3) fewer hops, (4) lowest id. Inside a cluster every link costs nothing, so rule 2 alone could walk in
circles; there an edge counts only if it brings the path nearer to the host by hops.

These paths are for people. Events follow `next_hops`: cheapest paths decided anew at every broker can circle, because
crossing a unit costs nothing when seen from outside (the nine brokers of tests/papers/test_hops.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from veena.address import Unit
from veena.core.topology.network_map import NetworkMap


@dataclass(frozen=True, slots=True)
class Path:
    """The way to a unit, the host first."""

    cost: int
    units: tuple[Unit, ...]

    @property
    def hop(self) -> Unit:
        """The best hop of SPR-04: the vertex next to the host; the unit itself where the host has the gateway."""
        return self.units[1]


def distances(network: NetworkMap) -> dict[Unit, tuple[int, int]]:
    """(cost, fewest hops at that cost) from each reachable vertex to the host."""
    best: dict[Unit, tuple[int, int]] = {}
    queue: list[tuple[int, int, Unit]] = [(0, 0, network.host)]
    while queue:
        cost, hops, unit = heappop(queue)
        if unit in best:
            continue
        best[unit] = (cost, hops)
        for other, edge in network.neighbours(unit).items():
            if len(other) <= len(unit) and other not in best:
                heappush(queue, (cost + edge.cost, hops + 1, other))
    return best


def cheapest_paths(network: NetworkMap) -> dict[Unit, Path]:
    """The path to every vertex that can be reached, without the host itself."""
    best = distances(network)
    return {unit: _path(network, best, unit) for unit in network.vertices() if unit != network.host}


def _path(network: NetworkMap, best: dict[Unit, tuple[int, int]], target: Unit) -> Path:
    units = [target]
    at = target
    while at != network.host:
        at = min(_nearer(network, best, at))[2]
        units.append(at)
    return Path(best[target][0], tuple(reversed(units)))


def _nearer(network: NetworkMap, best: dict[Unit, tuple[int, int]], unit: Unit) -> list[tuple[int, int, Unit]]:
    """The next vertices on cheapest paths to the host, the preferred one smallest."""
    cost, hops = best[unit]
    return [
        (-edge.count, best[other][1], other)
        for other, edge in network.neighbours(unit).items()
        if len(other) >= len(unit)
        and other in best
        and best[other][0] + edge.cost == cost
        and (edge.cost > 0 or best[other][1] < hops)
    ]
