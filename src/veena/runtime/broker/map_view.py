"""One broker's map as people and scripts see it, with the names of units; and live, with what its links measure.

The same form for a simulated broker (`veena topology show`) and for one that runs (`veena topology live`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from veena.address import Unit, link_level
from veena.core.broker import Broker
from veena.core.links.link import LinkState, LinkStatistics
from veena.core.topology.connection import ABSENT, STEP_COSTS, link_cost, step
from veena.core.topology.controllers import controllers, targets
from veena.core.topology.paths import cheapest_paths
from veena.runtime.links.end import EndStatistics

Label = Callable[[Unit], str]


def map_view(broker: Broker, label: Label) -> dict[str, Any]:
    """What `veena topology show --json` prints of a broker."""
    count = broker.map.levels
    levels: list[list[str]] = [[] for _ in range(count)]
    for unit in broker.map.vertices():
        levels[broker.map.level(unit)].append(label(unit))
    routes: dict[str, Any] = {}
    for unit, path in cheapest_paths(broker.map).items():
        hop = broker.hops.hop(unit)
        routes[label(unit)] = {
            "cost": path.cost,
            "path": [label(step) for step in path.units],
            "hop": None if hop is None else label(hop.vertex),
        }
    return {
        "at": label(broker.identity.address),
        "levels": levels,
        "edges": [
            {"a": label(edge.a), "b": label(edge.b), "level": edge.level, "cost": edge.cost, "links": edge.links}
            for edge in broker.map.edges()
        ],
        "routes": routes,
        "targets": {str(level): [label(unit) for unit in targets(broker.map, level)] for level in range(count - 1)},
        "controllers": {
            str(level): [label(unit) for unit in controllers(broker.map, level)] for level in range(1, count)
        },
    }


def live_view(broker: Broker, ends: Sequence[EndStatistics], label: Label) -> dict[str, Any]:
    """The map, this broker's own links as they are now, and connections of others that nobody uses at present."""
    by_link = {end.link: end for end in ends}
    links = [
        _link(broker, link, by_link.get(link.link), label)
        for link in broker.statistics().links
        if link.neighbour is not None and link.state is not LinkState.CLOSED
    ]
    absent = [
        {"a": label(record.low), "b": label(record.high), "level": record.level}
        for record in broker.table.everything()
        if record.up and step(record) >= ABSENT
    ]
    return {
        **map_view(broker, label),
        "links": sorted(links, key=lambda each: (each["level"], each["to"])),
        # Suspected of being dead, or so loaded that they are kept out of every path.
        "absent": sorted(absent, key=lambda each: (each["level"], each["a"], each["b"])),
        # Who has signed what these units want; empty where nobody signs.
        "signed": {label(unit): label(signer) for unit, signer in broker.exchange.statements.store.speakers().items()},
        # Brokers of the units around, where they can be asked about what is inside.
        "contacts": {
            label(unit): [{"broker": label(place.address), "urls": list(place.listen)} for place in places]
            for unit in broker.map.vertices()
            if (places := broker.contacts.places(unit))
        },
    }


def _link(broker: Broker, link: LinkStatistics, end: EndStatistics | None, label: Label) -> dict[str, Any]:
    assert link.neighbour is not None
    host = broker.identity.address
    level = link_level(host, link.neighbour)
    record = None if link.connection is None else broker.table.record(link.connection)
    announced = 0 if record is None else step(record)
    return {
        "to": label(link.neighbour),
        "level": level,
        "state": link.state.value,
        "suspected": link.state is LinkState.SUSPECTED,
        "round_trip_ms": _round_trip_ms(link, end),
        # Its far end is a unit of the link's level; None where it is kept out of every path.
        "cost": None if announced >= ABSENT else link_cost(0, level) + STEP_COSTS[announced],
        "load": None if end is None else round(end.utilisation, 3),
        "waiting": link.waiting,
        "peer": None if end is None else end.peer,
        "dialled": None if end is None else end.own,
    }


def _round_trip_ms(link: LinkStatistics, end: EndStatistics | None) -> float | None:
    """As the transport measures it; an answer to a heartbeat waits for the other end's next one."""
    if end is not None and end.round_trip_s is not None:
        return round(end.round_trip_s * 1e3, 3)
    return None if link.round_trip_ns is None else round(link.round_trip_ns / 1e6, 3)
