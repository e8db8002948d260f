"""Small networks for tests of maps and routes: drawn at random, and seen from one broker without any messages."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from veena.address import Address, Unit, link_level
from veena.core.topology.connection import NO_COST
from veena.core.topology.network_map import NetworkMap
from veena.core.topology.next_hops import Hops
from veena.core.wire.control import ConnectionRecord
from veena.runtime.networks.file import Network, make_network

Pair = tuple[Address, Address]


def seen(host: Address, broker: Address) -> Unit:
    """How a host's map names a broker: the sibling of one of its own units, or the host itself."""
    size = next((at for at, (x, y) in enumerate(zip(host, broker, strict=True)) if x != y), len(host) - 1)
    return broker[: size + 1]


def record_at(host: Address, number: int, ends: Pair, step: int = 0) -> ConnectionRecord | None:
    """A link as the host must come to know it, or None if the link lies outside its contexts."""
    low, high = sorted(ends)
    level = link_level(low, high)
    size = len(host) - level - 1
    if host[:size] != low[:size]:
        return None
    cost = (1, step) if step else NO_COST
    return ConnectionRecord(number, level, seen(host, low), seen(host, high), True, cost, NO_COST)


def map_at(host: Address, links: Sequence[Pair], steps: Sequence[int] = ()) -> NetworkMap:
    """The map that a broker has when it has heard of everything; connection ids are places in `links`."""
    network = NetworkMap(host)
    for number, ends in enumerate(links):
        record = record_at(host, number, ends, steps[number] if steps else 0)
        if record is not None:
            network.apply(record)
    network.check()
    return network


def hops_at(host: Address, links: Sequence[Pair], steps: Sequence[int] = ()) -> Hops:
    """The routing cache over that map, with the host's own links open."""
    return opened(map_at(host, links, steps), links)


def opened(network: NetworkMap, links: Sequence[Pair]) -> Hops:
    hops, host = Hops(network), network.host
    for number, (a, b) in enumerate(links):
        if host in (a, b):
            hops.open(number, b if host == a else a)
    return hops


def pairs(network: Network) -> list[Pair]:
    return [(link.a, link.b) for link in network.links]


def random_network(chance: Random, levels: int = 4, extra: int = 6, largest: int = 20) -> Network:
    """Units of one to three sub-units, each whole inside, and random links besides: cycles over every level."""
    brokers = [""]
    for _ in range(levels):
        brokers = [f"{unit}.{number}" for unit in brokers for number in range(chance.randint(1, 3))]
    brokers = [broker.lstrip(".") for broker in brokers]
    # Leaving out the last brokers can empty a unit, but never parts one: links are drawn afterwards.
    brokers = brokers[: max(2, largest)]
    if len(brokers) == 1:
        brokers.append(brokers[0][:-1] + "1")
    links: list[tuple[str, str]] = []
    for size in range(levels):
        contexts = dict.fromkeys(tuple(broker.split(".")[:size]) for broker in brokers)
        for context in contexts:
            groups: dict[str, list[str]] = {}
            for broker in brokers:
                parts = broker.split(".")
                if tuple(parts[:size]) == context:
                    groups.setdefault(parts[size], []).append(broker)
            members = list(groups.values())
            for at in range(1, len(members)):
                links.append((chance.choice(members[chance.randrange(at)]), chance.choice(members[at])))  # noqa: PERF401
    for _ in range(chance.randint(0, extra)):
        one, other = chance.sample(brokers, 2)
        links.append((one, other))
    return make_network("random", brokers, links, levels)


def follow(hops: dict[Address, Hops], start: Address, unit: Unit) -> list[Address]:
    """The brokers that an event for a unit passes when each takes its own next hop; ends early where there is none.

    A broker that comes twice ends it too: the last one is then in the list twice.
    """
    way = [start]
    while way[-1][: len(unit)] != unit:
        at = way[-1]
        size = next(size for size in range(1, len(unit) + 1) if unit[:size] != at[:size])
        hop = hops[at].hop(unit[:size])
        if hop is None:
            break
        way.append(hop.neighbour)
        if hop.neighbour in way[:-1]:
            break
    return way
