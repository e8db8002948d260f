"""A network of broker processes under load: how rate and latency change with the distance between two clients.

One publisher stays at a broker; one receiver is put at brokers 0, 1, 2 ... links away, one after the other, over plain
sockets, with every delivery counted and compared. What a link costs is then a ratio within one run. On a machine with
few processors the rate falls with each broker on the way, as they share it; the time that a broker adds does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from veena.bench.load.broker import HOST, RELIABLE_WINDOW, WINDOW
from veena.bench.load.client import load
from veena.bench.load.content import BODY
from veena.bench.load.generator import percentile
from veena.runtime.fleet.fleet import Fleet, Member
from veena.runtime.networks.file import Network

#: Events a second for the latency: far below what any broker can take.
PACE = 200

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Distance:
    """What was measured between two brokers."""

    links: int
    publisher: str
    receiver: str
    per_second: float
    reliable_per_second: float
    p50_us: float
    p99_us: float
    #: Beside both clients at one broker.
    rate_ratio: float = 1.0
    p50_ratio: float = 1.0

    def line(self) -> dict[str, float | int | str]:
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


async def measure(network: Network, directory: Path, seconds: float, farthest: int | None, say: Say) -> list[Distance]:
    """Start the network, measure at every distance from its first broker, stop it."""
    import asyncio

    fleet = Fleet(network, directory, on_up=lambda member: say(f"{member.label} is up"))
    try:
        say("starting brokers")
        await fleet.start()
        # The load is one busy thread, as for a single broker; the fleet's own events can wait meanwhile.
        return await asyncio.to_thread(_measure, fleet, seconds, farthest, say)
    finally:
        await fleet.stop()


def _measure(fleet: Fleet, seconds: float, farthest: int | None, say: Say) -> list[Distance]:
    members = {member.entry.address: member for member in fleet.members}
    first = fleet.members[0]
    places = at_each_distance(fleet.network)
    found: list[Distance] = []
    for links, address in enumerate(places[: None if farthest is None else farthest + 1]):
        say(f"{links} links: {first.label} to {members[address].label}")
        found.append(_between(links, first, members[address], seconds, found[0] if found else None))
    return found


def _between(links: int, publisher: Member, receiver: Member, seconds: float, near: Distance | None) -> Distance:
    topic = f"bench-{links}"
    rates = []
    for reliable, window in ((False, WINDOW), (True, RELIABLE_WINDOW)):
        busy = load(HOST, _port(publisher), 1, BODY, reliable, topic, _port(receiver))
        try:
            rates.append(busy.closed_loop(seconds, window, warm=500).per_second)
        finally:
            busy.close()
    calm = load(HOST, _port(publisher), 1, BODY, False, topic, _port(receiver))
    try:
        count = max(50, round(PACE * seconds))
        took = calm.paced(PACE, count, count // 4)
    finally:
        calm.close()
    p50, p99 = percentile(took, 50), percentile(took, 99)
    return Distance(
        links, publisher.label, receiver.label, rates[0], rates[1], p50, p99,
        rates[0] / near.per_second if near else 1.0, p50 / near.p50_us if near else 1.0,
    )  # fmt: skip


def at_each_distance(network: Network) -> list[tuple[int, ...]]:
    """A broker at every number of links from the first, nearest first."""
    neighbours: dict[tuple[int, ...], list[tuple[int, ...]]] = {entry.address: [] for entry in network.brokers}
    for link in network.links:
        neighbours[link.a].append(link.b)
        neighbours[link.b].append(link.a)
    first = network.brokers[0].address
    away = {first: 0}
    todo = deque([first])
    places = [first]
    while todo:
        here = todo.popleft()
        for other in sorted(neighbours[here]):
            if other not in away:
                away[other] = away[here] + 1
                todo.append(other)
                if away[other] == len(places):
                    places.append(other)
    return places


def _port(member: Member) -> int:
    return int(member.url.rsplit(":", 1)[1])
