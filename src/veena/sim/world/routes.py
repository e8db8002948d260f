"""Following next hops from broker to broker, as an event would go."""

from __future__ import annotations

from collections.abc import Mapping

from veena.address import Address, Unit, as_seen
from veena.core.broker import Broker


def way(brokers: Mapping[Address, Broker], start: Address, unit: Unit) -> list[Address]:
    """The brokers from the start until one in the unit is reached, or no hop is known, or one would come again."""
    found = {start: None}
    at = start
    while at[: len(unit)] != unit:
        hop = brokers[at].hops.hop(as_seen(at, unit))
        if hop is None or hop.neighbour in found or hop.neighbour not in brokers:
            break
        at = hop.neighbour
        found[at] = None
    return list(found)
