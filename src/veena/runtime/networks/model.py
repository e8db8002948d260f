"""A network on paper: its brokers and links, and what can be said of it before a single broker runs.

A link of level l joins two sub-units of one enclosing unit of level l + 1, so every link belongs to exactly one
context, and "is this unit in one piece?" is asked of each context on its own: a unit whose sub-units reach each other
only through other units is a partition (CTX-03, TOP-03, TOP-04), because routes never leave the unit.

Several links between the same two brokers are allowed; each is a connection of its own (two transports, two cables)
and counts as one, as several connections between two units do (GPP-11).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from veena.address import DEFAULT_FANOUT, DEFAULT_LEVELS, Address, Labels, Unit, link_level
from veena.errors import InvalidAddress

DEFAULT_TRANSPORT = "tcp"


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """One broker; without `listen` a port is picked when the network runs on one machine."""

    label: str
    address: Address
    listen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """One connection; `a` is the end that dials."""

    a: Address
    b: Address
    level: int
    transport: str = DEFAULT_TRANSPORT
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Network:
    """Brokers and links in the order of their file; the order gives the numbers of the addresses."""

    name: str
    levels: int
    fanout: int
    #: Follows from the brokers' labels, so two networks are compared without it.
    labels: Labels = field(compare=False, repr=False)
    brokers: tuple[BrokerEntry, ...]
    links: tuple[LinkEntry, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A unit that is not in one piece: its sub-units in groups that no link inside the unit joins."""

    context: Unit
    parts: tuple[tuple[Unit, ...], ...]


@dataclass(frozen=True, slots=True)
class Articulation:
    """A broker whose single failure would part brokers that stay alive."""

    broker: Address
    #: The network as a whole would fall apart.
    whole: bool
    #: The enclosing units that would fall apart inside, largest first; `()` is the level of the highest units.
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class GatekeeperRecord:
    """A gatekeeper of one level: the context it serves and the gatekeepers of that level it is linked to (GKP-04)."""

    context: Unit
    broker: Address
    peers: tuple[Address, ...]


def make_network(
    name: str,
    brokers: Iterable[str],
    links: Iterable[tuple[str, str]],
    levels: int = DEFAULT_LEVELS,
    fanout: int = DEFAULT_FANOUT,
) -> Network:
    """A network from label paths; raises InvalidAddress for what cannot be one."""
    labels = Labels(levels, fanout)
    entries = tuple(BrokerEntry(label, labels.add(label)) for label in brokers)
    addresses = {entry.label: entry.address for entry in entries}
    if len(addresses) != len(entries):
        raise InvalidAddress(f"network {name!r} names a broker twice: give each broker a label path of its own")
    joined: list[LinkEntry] = []
    for one, other in links:
        unknown = next((label for label in (one, other) if label not in addresses), None)
        if unknown is not None:
            raise InvalidAddress(f"link {one!r} - {other!r}: there is no broker {unknown!r}; list it among the brokers")
        a, b = addresses[one], addresses[other]
        joined.append(LinkEntry(a, b, link_level(a, b)))
    return Network(name, levels, fanout, labels, entries, tuple(joined))


def contexts(network: Network) -> dict[Unit, tuple[Unit, ...]]:
    """Every unit that holds sub-units, the network itself `()` first, with these sub-units in order of appearance."""
    members: dict[Unit, dict[Unit, None]] = {(): {}}
    for broker in network.brokers:
        for depth in range(network.levels):
            members.setdefault(broker.address[:depth], {})[broker.address[: depth + 1]] = None
    return {context: tuple(members[context]) for context in sorted(members)}


def links_by_context(network: Network) -> dict[Unit, list[LinkEntry]]:
    """Each link under the one unit in which it joins two sub-units."""
    found: dict[Unit, list[LinkEntry]] = {}
    for link in network.links:
        found.setdefault(link.a[: network.levels - 1 - link.level], []).append(link)
    return found


def partitions(network: Network) -> tuple[Partition, ...]:
    """The units that are not in one piece inside, largest units first (CTX-03); none for a sound network."""
    links = links_by_context(network)
    found: list[Partition] = []
    for context, members in contexts(network).items():
        depth = len(context) + 1
        parts = _components(members, [(link.a[:depth], link.b[:depth]) for link in links.get(context, ())])
        if len(parts) > 1:
            found.append(Partition(context, parts))
    return tuple(found)


def components(network: Network) -> tuple[tuple[Address, ...], ...]:
    """The brokers in groups that reach each other by any way at all."""
    return _components([broker.address for broker in network.brokers], [(link.a, link.b) for link in network.links])


def gatekeepers(network: Network) -> dict[int, tuple[Address, ...]]:
    """The gatekeepers of each level, ascending; every broker is one of level 0 (GKP-01, GKP-02)."""
    found: dict[int, set[Address]] = {level: set() for level in range(network.levels)}
    found[0].update(broker.address for broker in network.brokers)
    for link in network.links:
        found[link.level].update((link.a, link.b))
    return {level: tuple(sorted(found[level])) for level in range(network.levels)}


def gatekeeper_record(network: Network, broker: Address, level: int) -> GatekeeperRecord | None:
    """What this broker holds as a gatekeeper of the level; None when it has no such link (GKP-04, GKP-05)."""
    peers: dict[Address, None] = {}
    for link in network.links:
        if link.level == level and broker in (link.a, link.b):
            peers[link.b if link.a == broker else link.a] = None
    return GatekeeperRecord(broker[: network.levels - 1 - level], broker, tuple(sorted(peers))) if peers else None


def controllers(network: Network) -> dict[Unit, tuple[Address, ...]]:
    """The controllers of every unit above a broker: its gatekeepers, else its lowest broker (TOP-17, TOP-18)."""
    found: dict[Unit, set[Address]] = {}
    for link in network.links:
        if link.level > 0:
            for end in (link.a, link.b):
                found.setdefault(end[: network.levels - link.level], set()).add(end)
    lowest: dict[Unit, Address] = {}
    for address in sorted(broker.address for broker in network.brokers):
        for depth in range(1, network.levels):
            lowest.setdefault(address[:depth], address)
    return {unit: tuple(sorted(found.get(unit, (lowest[unit],)))) for unit in sorted(lowest)}


def articulation_brokers(network: Network) -> tuple[Articulation, ...]:
    """The brokers whose single failure would partition the network, or a unit inside (TOP-19), ascending."""
    addresses = [broker.address for broker in network.brokers]
    whole = _cut_vertices(addresses, [(link.a, link.b) for link in network.links])
    units: dict[Address, list[Unit]] = {}
    links = links_by_context(network)
    population: dict[Unit, int] = {}
    for address in addresses:
        for depth in range(1, network.levels + 1):
            population[address[:depth]] = population.get(address[:depth], 0) + 1
    for context, members in contexts(network).items():
        inside = links.get(context, [])
        depth = len(context) + 1
        edges = [(link.a[:depth], link.b[:depth]) for link in inside]
        cut = _cut_vertices(members, edges) if depth == network.levels else _cutting(members, inside, edges, population)
        for broker in sorted(cut):
            units.setdefault(broker, []).append(context)
    found = sorted(whole | units.keys())
    return tuple(Articulation(broker, broker in whole, tuple(units.get(broker, ()))) for broker in found)


def _cutting(
    members: tuple[Unit, ...], links: list[LinkEntry], edges: list[tuple[Unit, Unit]], population: Mapping[Unit, int]
) -> set[Address]:
    """The brokers whose loss splits a unit of level 2 or higher into more parts than it has with them."""
    before = len(_components(members, edges))
    cutting: set[Address] = set()
    for broker in {end for link in links for end in (link.a, link.b)}:
        left = [edge for link, edge in zip(links, edges, strict=True) if broker not in (link.a, link.b)]
        # A sub-unit of this broker alone vanishes with it: that parts nobody who is left.
        own = broker[: len(members[0])]
        alive = [unit for unit in members if unit != own or population[unit] > 1]
        if len(_components(alive, left)) > before:
            cutting.add(broker)
    return cutting


def _components(members: Iterable[Unit], edges: Iterable[tuple[Unit, Unit]]) -> tuple[tuple[Unit, ...], ...]:
    """Connected groups; members keep their order, groups come by their first member."""
    neighbours: dict[Unit, list[Unit]] = {member: [] for member in members}
    for a, b in edges:
        if a in neighbours and b in neighbours:
            neighbours[a].append(b)
            neighbours[b].append(a)
    group: dict[Unit, int] = {}
    count = 0
    for start in neighbours:
        if start in group:
            continue
        group[start] = count
        stack = [start]
        while stack:
            for reached in neighbours[stack.pop()]:
                if reached not in group:
                    group[reached] = count
                    stack.append(reached)
        count += 1
    groups: list[list[Unit]] = [[] for _ in range(count)]
    for member in neighbours:
        groups[group[member]].append(member)
    return tuple(map(tuple, groups))


def _cut_vertices(members: Iterable[Unit], edges: Iterable[tuple[Unit, Unit]]) -> set[Unit]:
    """Tarjan's articulation points in linear time, on a stack of its own so that a long chain is no deep recursion."""
    neighbours: dict[Unit, dict[Unit, None]] = {member: {} for member in members}
    for a, b in edges:
        neighbours[a][b] = None
        neighbours[b][a] = None
    entered: dict[Unit, int] = {}
    low: dict[Unit, int] = {}
    cut: set[Unit] = set()
    for root, ahead in neighbours.items():
        if root in entered:
            continue
        entered[root] = low[root] = len(entered)
        children_of_root = 0
        stack = [(root, root, iter(ahead))]
        while stack:
            node, parent, untried = stack[-1]
            step = next(untried, None)
            if step is None:
                stack.pop()
                if node == root:
                    continue
                low[parent] = min(low[parent], low[node])
                if parent == root:
                    children_of_root += 1
                elif low[node] >= entered[parent]:
                    cut.add(parent)
            elif step not in entered:
                entered[step] = low[step] = len(entered)
                stack.append((step, node, iter(neighbours[step])))
            elif step != parent:
                low[node] = min(low[node], entered[step])
        if children_of_root > 1:
            cut.add(root)
    return cut
