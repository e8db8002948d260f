"""What an event costs by other means: flooding, TTL flooding, refinement at the client, one tree, and the optimum.

All are functions of the whole network, the origin and the brokers that want the event: what no broker knows, and what
its routing is to be compared with in the same run (EXP-22, SYS-10, SYS-14, GUA-05). A crossing is one copy over one
link between two brokers; links that join the same two brokers count as one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from random import Random

from veena.address import Address, format_address
from veena.errors import InvalidAddress
from veena.runtime.networks.file import Network
from veena.runtime.networks.statistics import graph_of, hops_from
from veena.sim.networks.steiner_trees import small_tree

#: The hops that a JXTA message may make by default.
JXTA_TTL = 7


@dataclass(frozen=True, slots=True)
class TtlResult:
    """What a flood with a limited range costs, and whom it does not reach."""

    crossings: int
    #: Brokers that got the event, the origin among them.
    reached: int
    #: Brokers that want it and did not get it.
    missed: int


@dataclass(frozen=True, slots=True)
class RefineResult:
    """What it costs to send an event to every subscriber of its topic and let clients refine."""

    crossings: int
    #: Brokers that got the event for clients who then threw it away.
    thrown_away: int


class Baselines:
    """The other means, on one network that hangs together."""

    def __init__(self, network: Network) -> None:
        self._graph = graph_of(network)
        self._addresses = [broker.address for broker in network.brokers]
        self._places = {address: place for place, address in enumerate(self._addresses)}
        hops = hops_from(self._graph, 0) if self._graph else []
        if -1 in hops:
            lost = format_address(self._addresses[hops.index(-1)])
            raise InvalidAddress(f"network {network.name!r}: no way leads to broker {lost}; add a link")
        self.links = sum(map(len, self._graph)) // 2

    def optimum(self, origin: Address, terminals: Iterable[Address]) -> int:
        """Crossings of the smallest tree that could be found from the origin to these brokers (GUA-05)."""
        return small_tree(self._graph, self._place(origin), map(self._place, terminals))

    def flood(self, origin: Address) -> int:
        """Crossings when each broker sends what is new to it to all neighbours but the one it came from: 2E - N + 1."""
        self._place(origin)
        return 2 * self.links - len(self._graph) + 1

    def tree(self) -> int:
        """Crossings when every event goes to every broker over one spanning tree: N - 1."""
        return len(self._graph) - 1

    def refine(self, origin: Address, terminals: Collection[Address], subscribed: Collection[Address]) -> RefineResult:
        """Every broker with a subscriber of the topic gets the event, over the smallest tree; clients refine (SYS-10).

        `terminals` are those among `subscribed` where a client wants this very event.
        """
        wanting = set(map(self._place, terminals))
        receiving = set(map(self._place, subscribed)) | wanting
        crossings = small_tree(self._graph, self._place(origin), receiving)
        return RefineResult(crossings, len(receiving) - len(wanting))

    def ttl_flood(
        self,
        origin: Address,
        terminals: Collection[Address],
        ttl: int = JXTA_TTL,
        fanout: int | None = None,
        seed: int = 0,
    ) -> TtlResult:
        """A flood of at most `ttl` hops, in rounds, as between the peers of JXTA (SYS-14, IOP-04).

        A copy carries the brokers that it has passed and is not sent back to them; what was had before is not passed on
        again. With a `fanout` each broker sends to so many of the others at most, drawn from the seed.
        """
        if ttl < 0 or (fanout is not None and fanout < 1):
            raise InvalidAddress(f"ttl {ttl}, fanout {fanout}: expected a ttl of 0 or more and a fan-out of 1 or more")
        chance = Random(seed)
        start = self._place(origin)
        had_from = {start: start}
        ring = [start]
        crossings = 0
        for _ in range(ttl):
            after: list[int] = []
            for place in ring:
                passed = _passed(had_from, place)
                near = [other for other in self._graph[place] if other not in passed]
                if fanout is not None and len(near) > fanout:
                    near = sorted(chance.sample(near, fanout))
                crossings += len(near)
                for other in near:
                    if other not in had_from:
                        had_from[other] = place
                        after.append(other)
            ring = after
        missed = sum(1 for place in set(map(self._place, terminals)) if place not in had_from)
        return TtlResult(crossings, len(had_from), missed)

    def _place(self, address: Address) -> int:
        place = self._places.get(address)
        if place is None:
            raise InvalidAddress(f"broker {format_address(address)}: there is none in this network")
        return place


def _passed(had_from: dict[int, int], place: int) -> set[int]:
    """The brokers on the way of the first copy."""
    found = {place}
    while had_from[place] != place:
        place = had_from[place]
        found.add(place)
    return found
