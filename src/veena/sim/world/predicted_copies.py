"""The copies that an event makes, foretold: what brokers at rest know, followed from one to the next by hand.

The rules of routing need no more than two answers of each broker: which units around it want the event, and the next
hop to each. So the way of an event through a network at rest can be written down without sending anything, and real
routing must agree with it copy by copy. It is the oracle of the crossing experiment, and tells what an event would
cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veena.address import Address, Unit
from veena.core.broker import Broker
from veena.event import Event

#: A way through a whole network is far shorter; a copy that comes so far goes round in circles.
MAX_COPIES = 1_000_000


@dataclass(frozen=True, slots=True)
class Copies:
    """What one event makes brokers do."""

    #: From broker to broker, in the order of sending within each broker's turn.
    crossings: tuple[tuple[Address, Address], ...]
    #: Brokers at which a client wants the event.
    served: tuple[Address, ...]
    #: Units that want it and to which no hop leads.
    lost: tuple[Unit, ...]


def foretell(brokers: Mapping[Address, Broker], origin: Address, event: Event, now_ns: int) -> Copies:
    """Follow an event that a client publishes at `origin`."""
    crossings: list[tuple[Address, Address]] = []
    served: list[Address] = []
    lost: list[Unit] = []
    turns: list[tuple[Address, list[Unit]]] = [(origin, [()])]
    for at, units in turns:  # grows while it is walked
        by_neighbour: dict[Address, list[Unit]] = {}
        for unit in _expanded(brokers[at], origin, units, event, now_ns):
            if unit == at:
                if brokers[at].profiles.clients.matching(event, origin):
                    served.append(at)
                continue
            hop = brokers[at].hops.hop(unit)
            if hop is None:
                lost.append(unit)
            else:
                by_neighbour.setdefault(hop.neighbour, []).append(unit)
        for neighbour, wanted in by_neighbour.items():
            crossings.append((at, neighbour))
            turns.append((neighbour, wanted))
        assert len(crossings) < MAX_COPIES, "a copy goes round in circles"
    return Copies(tuple(crossings), tuple(served), tuple(lost))


def _expanded(broker: Broker, origin: Address, units: list[Unit], event: Event, now_ns: int) -> list[Unit]:
    """Units still to be served, the host's own ones replaced by what in them wants the event (rule 1)."""
    host, interest = broker.identity.address, broker.profiles.interest
    vector: int | None = None
    found: dict[Unit, None] = {}
    for unit in units:
        if host[: len(unit)] != unit:
            found[unit] = None
            continue
        found[host] = None
        if vector is None:
            vector = interest.destinations(event, origin, now_ns)
        for other in broker.map.vertices():
            if other != host and other[: len(unit)] == unit and vector & interest.bit(other):
                found[other] = None
    return list(found)
