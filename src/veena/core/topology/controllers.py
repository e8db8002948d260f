"""Who keeps the gates: gatekeepers, the controllers of a unit, and where a change of profiles goes.

A broker with a level-l link is a gatekeeper of its level-l unit, and every broker is one of level 0 (GKP-01..03). The
gatekeepers of a unit are its controllers; a unit without any elects the lowest address in it (TOP-17, AMB-21), so every
unit has at least one as long as it lives. From afar a gatekeeper is seen as coarsely as the map sees it: node 6 of the
worked example knows that `4`, `b` and `a` hold gates, not which broker of `b`.

What the controllers of a cluster hold for it must not be lost with one broker. Where there is only one, the broker that
would be elected without it is its *deputy* and holds the same; so whoever takes the place of a lost controller knows
what it knew. Larger units have no deputies: their brokers see each other by units, and would not agree on one.

The targets of a change at level l are the gates of the enclosing unit: the lower-level ends of links into level-(l+1)
vertices. Lateral links are left out (PPP-09, AMB-46).
"""

from __future__ import annotations

from veena.address import Unit
from veena.core.topology.network_map import NetworkMap


def targets(network: NetworkMap, level: int) -> list[Unit]:
    """Where a change at this level goes: the gates of the host's unit of the level above (PPP-09, PPP-10)."""
    gates: dict[Unit, None] = {}
    for unit in network.reachable():
        if network.level(unit) == level + 1:
            for other in network.neighbours(unit):
                if len(other) > len(unit):
                    gates[other] = None
    return sorted(gates, key=lambda unit: (-len(unit), unit))


def controllers(network: NetworkMap, level: int) -> list[Unit]:
    """The controllers of the host's unit of this level, named as the map sees them; never empty (TOP-17)."""
    if level == 0:
        return [network.host]
    own = network.own(level)
    gates = [unit for unit in targets(network, level - 1) if unit[: len(own)] == own]
    if gates:
        return gates
    return [min(unit for unit in network.reachable() if unit[: len(own)] == own)]


def holders(network: NetworkMap, level: int) -> list[Unit]:
    """The controllers of the host's unit of this level; of a cluster that has only one the deputy too (TOP-17)."""
    found = controllers(network, level)
    if level != 1 or len(found) > 1:
        return found
    own = network.own(1)
    others = [unit for unit in network.reachable() if unit[: len(own)] == own and unit != found[0]]
    return [*found, min(others)] if others else found


def is_holder(network: NetworkMap, level: int) -> bool:
    """Whether the host itself is one of them."""
    return network.host in holders(network, level)
