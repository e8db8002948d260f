"""Bad luck, drawn from the seed: cuts, bounces, slow and loaded links, crashes, partitions, units that fall apart,
brokers that join and leave, and what never comes back.

Faults come first, for safety: invariants are asserted after every step. Then everything heals except what is lost for
good, for liveness: after a bounded time every map must be right again. Every fault is put into the world's queue before
the run, so the plan can be printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from veena.address import Address
from veena.core.boundary.inputs_effects import Arrived, LinkLoad
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.boundary.stored import Disk, Identity
from veena.core.wire.control import Goodbye
from veena.sim.world.dialling import Partition
from veena.sim.world.map_oracle import Oracle
from veena.sim.world.narrow_links import limit
from veena.sim.world.network import VirtualLink
from veena.sim.world.world import World

#: How long a cut, a crash or a partition lasts: from less than a heartbeat to beyond every time-out.
SHORTEST_NS = 50 * MILLISECOND_NS
LONGEST_NS = 25 * SECOND_NS
#: When the first faults come: while the network starts, or when it stands.
BEGINNINGS_NS = (2 * SECOND_NS, 18 * SECOND_NS)
#: How many faults strike together, and at most how far apart.
SERIES = (1, 1, 4)
APART_NS = 800 * MILLISECOND_NS
#: At least this share of the brokers is there from the beginning.
FOUNDERS = 0.7
#: How many times longer a slow link takes: longer than a heartbeat's answer may, at times.
SLOWNESS = 20
#: Bytes a second of a narrow link: what brokers tell each other passes, events wait behind each other.
CAPACITIES = (2_000, 4_000, 16_000)
#: How far a wall clock that nobody cares for is from the true time, as a rule; and one that is plainly wrong.
SKEW_NS = 30 * SECOND_NS
WRONG_NS = 90 * SECOND_NS
#: One setting of a clock in so many is to a plainly wrong time.
WRONG_EVERY = 8
#: What is written to a link that is no longer narrow is there within this time, or its connection is given up.
DRAINED_NS = SECOND_NS


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
    begin = world.now_ns + chance.choice(BEGINNINGS_NS)
    times: list[int] = []
    while len(times) < options.fault_count:  # some come alone, some one after the other
        at_ns = begin + chance.randrange(options.fault_time_ns)
        for _ in range(min(chance.choice(SERIES), options.fault_count - len(times))):
            times.append(at_ns)
            at_ns += chance.randint(0, APART_NS)
    times.sort()
    return [Fault(at_ns, chance.choice(kinds)(world, chance, at_ns)) for at_ns in times]


def plan_narrow_links(world: World, count: int, chance: Random, times_ns: tuple[int, int]) -> list[Fault]:
    """Let so many links take few bytes for a while, within this time: events wait, and what is told of wants does not.

    They have a generator of their own, so that the other faults of a seed are the same with them and without.
    """
    found = []
    for _ in range(count):
        link, capacity, lasts = chance.choice(world.links), chance.choice(CAPACITIES), _draw_time(chance)
        at_ns = chance.randrange(*times_ns)
        world.at(at_ns, lambda link=link, capacity=capacity: limit(world, link, capacity))  # type: ignore[misc]
        world.at(at_ns + lasts, lambda link=link: _widen(world, link))  # type: ignore[misc]
        found.append(Fault(at_ns, f"{_named(world, link)} takes {capacity:,} bytes a second for {_seconds(lasts)}"))
    return found


def plan_breaks(world: World, count: int, chance: Random, times_ns: tuple[int, int]) -> list[Fault]:
    """Let the cores of so many brokers raise over a frame, within this time; they are made anew."""
    found = []
    for _ in range(count):
        address, at_ns = chance.choice(list(world.nodes)), chance.randrange(*times_ns)
        world.at(at_ns, lambda address=address: _do_break(world, address))  # type: ignore[misc]
        found.append(Fault(at_ns, f"the core of {world.network.labels.label(address)} raises over a frame"))
    return found


def plan_clocks(world: World, count: int, chance: Random, times_ns: tuple[int, int]) -> list[Fault]:
    """Let every broker's wall clock be wrong from now on, and set some of them forwards or backwards so many times.

    A broker that starts again goes by its clock for everything; one that goes on takes it for its epochs. Clocks have
    a generator of their own, so that the other faults of a seed are the same with them and without.
    """
    for address in world.nodes:
        world.set_clock(address, chance.randint(-SKEW_NS, SKEW_NS))
    found = []
    for _ in range(count):
        address, at_ns = chance.choice(list(world.nodes)), chance.randrange(*times_ns)
        most_ns = SKEW_NS if chance.randrange(WRONG_EVERY) else WRONG_NS
        clock_ns = chance.randint(-most_ns, most_ns)
        world.at(at_ns, lambda address=address, clock_ns=clock_ns: world.set_clock(address, clock_ns))  # type: ignore[misc]
        name = world.network.labels.label(address)
        found.append(Fault(at_ns, f"the clock of {name} is set {clock_ns / SECOND_NS:+.1f} s off"))
    return found


def heal_everything(world: World) -> None:
    """End every fault that is not for ever: links work and lose nothing, brokers run, nothing is loaded."""
    world.options = replace(world.options, loss=0.0, duplication=0.0)
    world.partitions = [each for each in world.partitions if each.for_ever]
    for address, node in world.nodes.items():
        if node.clock_ns:
            world.set_clock(address, 0)
    for link in world.links:
        link.slowness = 1
        _widen(world, link)
        if not link.lost and link.cut:
            world.heal(link)
    for address, node in world.nodes.items():
        node.breaks, node.lying = False, None
        if node.broker is None and not node.lost:
            world.start(address)
    for link in world.links:
        _set_load(world, link, 0.0)


def strike_broker(world: World, chance: Random, address: Address, at_ns: int) -> str:
    """Let one broker crash, or leave; like all others it may come back, or be lost."""
    return chance.choice((_crash_of, _leave_of))(world, chance, address, at_ns)


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


def _slow(world: World, chance: Random, at_ns: int) -> str:
    link, lasts = chance.choice(world.links), _draw_time(chance)
    world.at(at_ns, lambda: setattr(link, "slowness", SLOWNESS))
    world.at(at_ns + lasts, lambda: setattr(link, "slowness", 1))
    return f"{_named(world, link)} {SLOWNESS} times slower for {_seconds(lasts)}"


def _crash(world: World, chance: Random, at_ns: int) -> str:
    return _crash_of(world, chance, chance.choice(list(world.nodes)), at_ns)


def _crash_of(world: World, chance: Random, address: Address, at_ns: int) -> str:
    silent, lasts = chance.random() < 0.5, _draw_time(chance)
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
    partition = Partition(frozenset(inside), chance.random() < world.options.permanent / 2)
    _separate(world, partition, (at_ns, at_ns + lasts), silent)
    for_ever = partition.for_ever
    how = f"{'silent ' if silent else ''}partition of {len(inside)} brokers"
    return f"{how} for {'ever' if for_ever else _seconds(lasts)}"


def _separate(world: World, partition: Partition, times_ns: tuple[int, int], silent: bool) -> None:
    """Cut every link between the two sides, those included that were dialled by then; nobody dials across either."""
    links: list[VirtualLink] = []

    def strike() -> None:
        world.partitions.append(partition)
        links.extend(link for link in world.links if partition.separates(link.a, link.b))
        _do_cut(world, links, silent, partition.for_ever)

    def end() -> None:
        if not partition.for_ever and partition in world.partitions:
            world.partitions.remove(partition)
        _do_heal(world, links)

    world.at(times_ns[0], strike)
    world.at(times_ns[1], end)


def _fall_apart(world: World, chance: Random, at_ns: int) -> str:
    """Cut every link inside a unit between two parts of it; the ways around the unit stay."""
    silent, lasts = chance.random() < 0.5, _draw_time(chance)
    addresses = list(world.nodes)
    unit = chance.choice(addresses)[: chance.randint(1, world.network.levels - 1)]
    inside = [address for address in addresses if address[: len(unit)] == unit]
    part = set(chance.sample(inside, len(inside) // 2))
    links: list[VirtualLink] = []

    def strike() -> None:
        links.extend(
            link
            for link in world.links
            if link.a[: len(unit)] == link.b[: len(unit)] == unit and (link.a in part) != (link.b in part)
        )
        _do_cut(world, links, silent, False)

    world.at(at_ns, strike)
    world.at(at_ns + lasts, lambda: _do_heal(world, links))
    how = f"{'silent ' if silent else ''}splitting of {world.network.labels.label(unit)}"
    return f"{how} into {len(part)} and {len(inside) - len(part)} brokers for {_seconds(lasts)}"


def _join(world: World, chance: Random, at_ns: int) -> str:
    """A broker that was never there before comes in, at the place that it was granted; without it all units are whole.

    Otherwise there would be two networks that never knew of each other, and that is another story (`joining`).
    """
    addresses = [address for address, node in world.nodes.items() if node.broker is not None]
    address = chance.choice(addresses)
    rest = [other for other in addresses if other != address]
    links = [(link.a, link.b) for link in world.links if link.a in rest and link.b in rest]
    if len(rest) < len(world.nodes) * FOUNDERS or not Oracle(rest, links).is_whole():
        return _bounce(world, chance, at_ns)
    node = world.nodes[address]
    world.crash(address, silent=False)
    node.disk = Disk(Identity(node.disk.identity.name, address, 0))
    node.joined_ns = at_ns
    world.at(at_ns, lambda: _do_start(world, address))
    return f"{world.network.labels.label(address)} joins"


def _leave(world: World, chance: Random, at_ns: int) -> str:
    """A broker goes for good and says so; without permanent faults it comes back, as one that was restarted."""
    return _leave_of(world, chance, chance.choice(list(world.nodes)), at_ns)


def _leave_of(world: World, chance: Random, address: Address, at_ns: int) -> str:
    lasts = _draw_time(chance)
    for_ever = chance.random() < world.options.permanent
    world.at(at_ns, lambda: _do_leave(world, address, for_ever))
    world.at(at_ns + lasts, lambda: _do_start(world, address))
    return f"{world.network.labels.label(address)} leaves for {'ever' if for_ever else _seconds(lasts)}"


_KINDS: dict[str, tuple[Plan, ...]] = {
    "none": (),
    "links": (_cut, _cut, _bounce, _overload, _slow),
    "crash": (_crash, _crash, _leave),
    "partition": (_partition, _fall_apart),
    "all": (_cut, _bounce, _overload, _slow, _crash, _leave, _join, _partition, _fall_apart),
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


def _do_break(world: World, address: Address) -> None:
    node = world.nodes.get(address)
    if node is not None and node.broker is not None:
        node.breaks = True


def _do_leave(world: World, address: Address, for_ever: bool) -> None:
    if world.nodes[address].broker is not None:
        for link in world.links_of(address):
            if link.session is not None and not link.cut:
                other = link.other(address)
                world.give(other, Arrived(link.session.handles[other], ((0, Goodbye("leaving")),)))
    _do_crash(world, address, False, for_ever)


def _do_start(world: World, address: Address) -> None:
    node = world.nodes[address]
    if node.broker is None and not node.lost:
        world.start(address)


def _widen(world: World, link: VirtualLink) -> None:
    if link.capacity is None:
        return
    session = link.session
    limit(world, link, None)
    if session is not None and max(session.busy_until_ns.values(), default=0) > world.now_ns + DRAINED_NS:
        world.bounce(link)


def _set_load(world: World, link: VirtualLink, load: float) -> None:
    if link.session is not None:
        for end, handle in link.session.handles.items():
            world.give(end, LinkLoad(handle, load))


def _named(world: World, link: VirtualLink) -> str:
    label = world.network.labels.label
    return f"{label(link.a)} - {label(link.b)}"


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / SECOND_NS:.2f} s"
