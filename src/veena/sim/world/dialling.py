"""What happens when a broker dials another: a new link between the two, unless the network itself has come apart.

A cut link is a broken cable and stops nobody from dialling; a partition stops everything between its two sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veena.address import Address, format_address, parse_address
from veena.core.boundary.inputs_effects import Dial
from veena.sim.world.network import VirtualLink

if TYPE_CHECKING:
    from veena.sim.world.world import World

SCHEME = "sim:"


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Nothing passes between the brokers inside and the others."""

    inside: frozenset[Address]
    for_ever: bool = False

    def separates(self, one: Address, other: Address) -> bool:
        return (one in self.inside) != (other in self.inside)


def listen_address(address: Address) -> str:
    """Where a simulated broker can be dialled."""
    return SCHEME + format_address(address)


def dial(world: World, dialler: Address, effect: Dial) -> None:
    """Connect a broker to the one that it asked for, a round trip later, if that can be done then."""
    world.counters.dials += 1
    target = next(parse_address(url.removeprefix(SCHEME), fanout=world.network.fanout) for url in effect.listen)

    def connected() -> None:
        ends = [world.nodes.get(end) for end in (dialler, target)]
        if any(node is None or node.broker is None for node in ends):
            return
        if any(partition.separates(dialler, target) for partition in world.partitions):
            return
        between = [link for link in world.links_of(dialler) if link.other(dialler) == target]
        if any(link.session is not None and not link.cut for link in between):
            return
        world.counters.dialled += 1
        world.dialled_ns = world.now_ns
        link = next((link for link in between if link.dialled and not link.cut), None)
        if link is None:
            link = VirtualLink(dialler, target, world.options.delay_ns, dialled=True)
            world.links.append(link)
        world.connect(link)

    if world.options.dial:
        world.at(world.now_ns + 2 * (world.options.delay_ns + world.options.jitter_ns), connected)
