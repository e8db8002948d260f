"""Where a network should grow: clients far from their broker, publishers far from their audience, links (FUT-06..09).

From one look at a network (`Snapshot`) come proposals, each with the reason in numbers:

| kind | when | what |
|---|---|---|
| `broker` | many clients of one place are far from their brokers, no broker is there | start one there, let them roam |
| `roam` | the same, and a broker is there already | let them roam to it |
| `publisher` | most of a publisher's audience is at another broker | let it roam there |
| `drop` | a link is slow, and the network holds without it, or with a faster one instead | take it away |
| `link` | ways are longer than the logarithm of the network's size | the links that shorten them most |

The intuition is the papers' example: ten clients in Boston at the broker in Syracuse use the same line ten times for
one event. A broker in Boston gets one copy, and hands it on ten times at home. How far a client is, is measured (round
trips of heartbeats); where it is, is its own word (attribute `place`), the operator's (`[locator] regions`), or the
network that its address belongs to.

Estimates are from what went over the clients' connections since they attached: of clients that want the same, one copy
remains; of those that want different things, as many as there are different things. So what is said to be saved is what
can be saved at best, and the text says "up to".

Rejected: carrying out proposals unasked. Whether a machine can be had in Boston is for people to say.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median

from veena.address import Address, Labels, link_level
from veena.runtime.networks.model import BrokerEntry, LinkEntry, Network
from veena.runtime.networks.rewire import MAX_BROKERS, improve
from veena.runtime.networks.statistics import graph_of, pathlength
from veena.services.adviser.facts import BrokerFacts, ClientFacts, Limits, Proposal, Snapshot, slug

#: A slow link has a round trip of so many times the median of all links.
SLOW_TIMES = 4
#: A publisher is judged by so many copies, and sent where more than this part of them was handed over.
MIN_COPIES = 64
MAJORITY = 0.5
#: New links that are proposed at a time: each changes what the next one is worth.
MAX_LINKS = 5
#: Proposals of one look: more than anybody decides about at once.
MAX_PROPOSALS = 100


def advise(snapshot: Snapshot, limits: Limits | None = None) -> tuple[Proposal, ...]:
    """What to do, the largest saving first: places, publishers, then links."""
    bounds = limits or Limits()
    places = sorted(_places(snapshot, bounds), key=lambda each: (-_saved(each), each.place))
    # Who is to go anyway, with its place, is no publisher that goes elsewhere.
    going = {client for each in places for ids in (each.clients or {}).values() for client in ids}
    publishers = [each for each in _publishers(snapshot) if not going.intersection(*(each.clients or {}).values())]
    found = [*places, *publishers, *_links(snapshot, bounds)][:MAX_PROPOSALS]
    return tuple(replace(each, number=number) for number, each in enumerate(found, 1))


def _saved(proposal: Proposal) -> int:
    before, after = proposal.bytes or (0, 0)
    return before - after


# --- places ---


def _places(snapshot: Snapshot, limits: Limits) -> Iterator[Proposal]:
    by_label = {broker.label: broker for broker in snapshot.brokers}
    crowds: dict[str, list[ClientFacts]] = {}
    for client in snapshot.clients:
        home = by_label.get(client.broker)
        if home is not None and client.where and _is_far(client, home, limits):
            crowds.setdefault(client.where, []).append(client)
    for where, crowd in crowds.items():
        if len(crowd) >= limits.many:
            yield _place(snapshot, where, crowd)


def _is_far(client: ClientFacts, home: BrokerFacts, limits: Limits) -> bool:
    if client.place and home.is_at(client.place):
        return False  # another broker there would be no nearer
    if client.round_trip_ms is not None:
        return client.round_trip_ms >= limits.far_ms
    # Not measured yet: another place is far, by what both say of themselves.
    return bool(client.place) and bool(home.place) and not home.is_at(client.place)


def _place(snapshot: Snapshot, where: str, crowd: list[ClientFacts]) -> Proposal:
    clients: dict[str, tuple[str, ...]] = {}
    for client in crowd:
        clients[client.broker] = (*clients.get(client.broker, ()), client.id)
    largest = max(clients, key=lambda label: len(clients[label]))
    sizes = [client.bytes_out for client in crowd]
    trips = [client.round_trip_ms for client in crowd if client.round_trip_ms is not None]
    away = f", {median(trips):.0f} ms away" if trips else ""
    reason = (
        f"{len(crowd)} clients in {where} are at {' and '.join(clients)}{away}:"
        f" up to {len(crowd)} copies of an event go that way, 1 is enough"
    )
    common = Proposal(
        0, "roam", "", reason, _note(crowd), where, "", (), clients, (len(crowd), 1), (sum(sizes), max(sizes)),
    )  # fmt: skip
    here = _brokers_at(snapshot, where, crowd, clients)
    if here is not None:
        return replace(common, broker=here.label, title=f"Clients in {where} to the broker that is there")
    label = new_label(largest, where, {broker.label for broker in snapshot.brokers})
    return replace(common, kind="broker", broker=label, links=((label, largest),), title=f"A broker in {where}")


def _brokers_at(
    snapshot: Snapshot, where: str, crowd: list[ClientFacts], clients: Mapping[str, tuple[str, ...]]
) -> BrokerFacts | None:
    """The least busy broker of a place, if one is there that is not the one they are far from."""
    regions = {client.region for client in crowd if client.region}
    found = [
        broker
        for broker in snapshot.brokers
        if broker.label not in clients
        and (broker.is_at(where) or any(f"{broker.label}.".startswith(f"{region}.") for region in regions))
    ]
    return min(found, key=lambda broker: (broker.clients, broker.label), default=None)


def _note(crowd: list[ClientFacts]) -> str:
    plain = sum(client.subscriptions > client.durable for client in crowd)
    if not plain:
        return ""
    return f"{plain} of them have subscriptions that are not durable: these miss what is published while they move"


def new_label(near: str, place: str, taken: set[str]) -> str:
    """A label for a broker in a cluster of its own, named after its place, beside the cluster of another broker."""
    parts = near.split(".")
    name = slug(place)
    stem, numbers = ([*parts[:-2], name], range(1, len(taken) + 2)) if len(parts) > 1 else ([], range(0))
    for number in numbers:
        if (label := ".".join((*stem, str(number)))) not in taken:
            return label
    return next(label for n in range(len(taken) + 1) if (label := f"{name}-{n}" if n else name) not in taken)


# --- publishers ---


def _publishers(snapshot: Snapshot) -> Iterator[Proposal]:
    attached = {client.id: client for client in snapshot.clients}
    running = {broker.label for broker in snapshot.brokers}
    heard: dict[str, dict[str, int]] = {}
    for each in snapshot.hearings:
        by_broker = heard.setdefault(each.publisher, {})
        by_broker[each.broker] = by_broker.get(each.broker, 0) + each.copies
    for publisher, by_broker in heard.items():
        client = attached.get(publisher)
        total = sum(by_broker.values())
        best = max(by_broker, key=lambda label: by_broker[label])
        if client is None or total < MIN_COPIES or best == client.broker or best not in running:
            continue
        part = by_broker[best] / total
        if part > MAJORITY:
            title = f"{publisher} to where its audience is"
            reason = f"of the copies of what it publishes at {client.broker}, {part:.0%} are handed over at {best}"
            who = {client.broker: (publisher,)}
            yield Proposal(0, "publisher", title, reason, _note([client]), client.where, best, (), who)


# --- links ---


def _links(snapshot: Snapshot, limits: Limits) -> Iterator[Proposal]:
    network = _network(snapshot)
    if network is None:
        return
    trips = [link.round_trip_ms for link in snapshot.links if link.round_trip_ms is not None]
    slow_ms = max(limits.slow_link_ms, SLOW_TIMES * median(trips)) if trips else math.inf
    label = {broker.address: broker.label for broker in network.brokers}
    better = improve(network, slow_ms=slow_ms / 2, delay_of=_Delays(network))
    for link in better.dropped:
        ends = ((label[link.a], label[link.b]),)
        title = f"Drop the link {ends[0][0]} - {ends[0][1]}"
        reason = f"a round trip over it takes {2 * link.delay_ms:.0f} ms, and the network holds without it"
        yield Proposal(0, "drop", title, reason, links=ends)
    kept = tuple(link for link in network.links if link not in better.dropped)
    before = pathlength(graph_of(replace(network, links=kept)))
    for at, link in enumerate(better.added[:MAX_LINKS], 1):
        after = pathlength(graph_of(replace(network, links=(*kept, *better.added[:at]))))
        ends = ((label[link.a], label[link.b]),)
        title = f"A link {ends[0][0]} - {ends[0][1]}"
        if math.isinf(before):
            yield Proposal(0, "link", title, "nothing else joins these parts of the network", links=ends)
        else:
            reason = f"the average way between two brokers falls from {before:.2f} to {after:.2f} links"
            yield Proposal(0, "link", title, reason, links=ends, pathlength=(before, after))
        before = after


def _network(snapshot: Snapshot) -> Network | None:
    """What was seen, as a network; nothing can be said of links where some brokers were not seen."""
    brokers = {broker.label: broker for broker in snapshot.brokers}
    ends = {end for link in snapshot.links for end in (link.a, link.b)}
    if not 2 < len(brokers) <= MAX_BROKERS or snapshot.silent or not ends <= brokers.keys():
        return None
    joined: dict[tuple[str, str], LinkEntry] = {}
    for link in snapshot.links:
        a, b = brokers[link.a].address, brokers[link.b].address
        pair = (min(link.a, link.b), max(link.a, link.b))
        joined[pair] = LinkEntry(a, b, link_level(a, b), delay_ms=(link.round_trip_ms or 0.0) / 2)
    entries = tuple(BrokerEntry(broker.label, broker.address, broker.urls) for broker in brokers.values())
    levels = len(entries[0].address)
    return Network("seen", levels, 64, Labels(levels, 64), entries, tuple(joined.values()))


class _Delays:
    """What a link that does not exist would take: no more than the fastest way of today."""

    def __init__(self, network: Network) -> None:
        self._near: dict[Address, list[tuple[Address, float]]] = {each.address: [] for each in network.brokers}
        for link in network.links:
            self._near[link.a].append((link.b, link.delay_ms))
            self._near[link.b].append((link.a, link.delay_ms))
        self._from: dict[Address, dict[Address, float]] = {}

    def __call__(self, a: Address, b: Address) -> float:
        if a not in self._from:
            self._from[a] = self._ways(a)
        return self._from[a].get(b, math.inf)

    def _ways(self, start: Address) -> dict[Address, float]:
        found: dict[Address, float] = {}
        queue: list[tuple[float, Address]] = [(0.0, start)]
        while queue:
            so_far, at = heapq.heappop(queue)
            if at in found:
                continue
            found[at] = so_far
            for other, delay_ms in self._near[at]:
                if other not in found:
                    heapq.heappush(queue, (so_far + delay_ms, other))
        return found
