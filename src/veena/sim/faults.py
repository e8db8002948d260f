"""Bad luck, drawn from the seed: cuts, bounces, overload, crashes, partitions, and what never comes back.

Faults come first, for safety: invariants are asserted after every step. Then everything heals except what is lost for
good, for liveness: after a bounded time every map must be right again. Every fault is put into the world's queue before
the run, so the plan can be printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from veena.address import Address
from veena.core.boundary import LinkLoad
from veena.core.settings import MILLISECOND_NS, SECOND_NS
from veena.sim.network import VirtualLink
from veena.sim.world import World

#: How long a cut, a crash or a partition lasts: from less than a heartbeat to beyond every time-out.
SHORTEST_NS = 50 * MILLISECOND_NS
LONGEST_NS = 25 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned misfortune, in words."""

    at_ns: int
    what: str


Plan = Callable[[World, Random, int], str]


def plan_faults(world: World) -> list[Fault]:
    """Draw the faults of this world's options and put them into its queue."""
    options, chance = world.options, world.chance
    kinds = _KINDS[options.faults]
    begin = world.now_ns + 2 * SECOND_NS
    times = sorted(begin + chance.randrange(options.fault_time_ns) for _ in range(options.fault_count))
    return [Fault(at_ns, chance.choice(kinds)(world, chance, at_ns)) for at_ns in times]


def heal_everything(world: World) -> None:
    """End every fault that is not for ever: links work and lose nothing, brokers run, nothing is loaded."""
    world.options = replace(world.options, loss=0.0, duplication=0.0)
    for link in world.links:
        if not link.lost and link.cut:
            world.heal(link)
    for address, node in world.nodes.items():
        if node.broker is None and not node.lost:
            world.start(address)
    for link in world.links:
        _set_load(world, link, 0.0)


def _draw_time(chance: Random) -> int:
    return chance.choice((chance.randint(SHORTEST_NS, SECOND_NS), chance.randint(SECOND_NS, LONGEST_NS)))


def _cut(world: World, chance: Random, at_ns: int) -> str:
    link, silent, lasts = chance.choice(world.links), chance.random() < 0.5, _draw_time(chance)
    for_ever = chance.random() < world.options.permanent
    world.at(at_ns, lambda: _do_cut(world, [link], silent, for_ever))
    world.at(at_ns + lasts, lambda: _do_heal(world, [link]))
    how = f"{'silent ' if silent else ''}cut of {_named(world, link)}"
    return f"{how} for {'ever' if for_ever else _seconds(lasts)}"


def _bounce(world: World, chance: Random, at_ns: int) -> str:
    link = chance.choice(world.links)
    world.at(at_ns, lambda: None if link.cut else world.bounce(link))
    return f"bounce of {_named(world, link)}"


def _overload(world: World, chance: Random, at_ns: int) -> str:
    link, load, lasts = chance.choice(world.links), chance.choice((0.5, 0.8, 0.95)), _draw_time(chance)
    world.at(at_ns, lambda: _set_load(world, link, load))
    world.at(at_ns + lasts, lambda: _set_load(world, link, 0.0))
    return f"load {load} on {_named(world, link)} for {_seconds(lasts)}"


def _crash(world: World, chance: Random, at_ns: int) -> str:
    address, silent, lasts = chance.choice(list(world.nodes)), chance.random() < 0.5, _draw_time(chance)
    for_ever = chance.random() < world.options.permanent
    world.at(at_ns, lambda: _do_crash(world, address, silent, for_ever))
    world.at(at_ns + lasts, lambda: _do_start(world, address))
    how = f"{'silent ' if silent else ''}crash of {world.network.labels.label(address)}"
    return f"{how} for {'ever' if for_ever else _seconds(lasts)}"


def _partition(world: World, chance: Random, at_ns: int) -> str:
    """Cut a unit, or a random half of the brokers, off from the rest."""
    silent, lasts = chance.random() < 0.5, _draw_time(chance)
    addresses = list(world.nodes)
    unit = chance.choice(addresses)[: chance.randint(1, world.network.levels)]
    inside = {address for address in addresses if address[: len(unit)] == unit}
    if chance.random() < 0.3 or len(inside) == len(addresses):
        inside = set(chance.sample(addresses, len(addresses) // 2))
    links = [link for link in world.links if (link.a in inside) != (link.b in inside)]
    for_ever = chance.random() < world.options.permanent / 2
    world.at(at_ns, lambda: _do_cut(world, links, silent, for_ever))
    world.at(at_ns + lasts, lambda: _do_heal(world, links))
    how = f"{'silent ' if silent else ''}partition of {len(inside)} brokers"
    return f"{how} for {'ever' if for_ever else _seconds(lasts)}"


_KINDS: dict[str, tuple[Plan, ...]] = {
    "none": (),
    "links": (_cut, _cut, _bounce, _overload),
    "crash": (_crash,),
    "partition": (_partition,),
    "all": (_cut, _bounce, _overload, _crash, _partition),
}


def _do_cut(world: World, links: list[VirtualLink], silent: bool, for_ever: bool) -> None:
    for link in links:
        link.lost = link.lost or for_ever
        if not link.cut:
            world.cut(link, silent)


def _do_heal(world: World, links: list[VirtualLink]) -> None:
    for link in links:
        if link.cut and not link.lost:
            world.heal(link)


def _do_crash(world: World, address: Address, silent: bool, for_ever: bool) -> None:
    node = world.nodes[address]
    node.lost = node.lost or for_ever
    if node.broker is not None:
        world.crash(address, silent)


def _do_start(world: World, address: Address) -> None:
    node = world.nodes[address]
    if node.broker is None and not node.lost:
        world.start(address)


def _set_load(world: World, link: VirtualLink, load: float) -> None:
    if link.session is not None:
        for end, handle in link.session.handles.items():
            world.give(end, LinkLoad(handle, load))


def _named(world: World, link: VirtualLink) -> str:
    label = world.network.labels.label
    return f"{label(link.a)} - {label(link.b)}"


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / SECOND_NS:.2f} s"
