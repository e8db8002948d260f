"""Brokers that ask to be let in while everything else happens: by the protocol of the papers, through the registrars.

Each asks some broker that lives, goes on to whom it is sent, and asks again elsewhere when it is refused. When it has a
place it is a broker like any other: clients and a publisher come to it, and it may crash, leave and come back, or be
lost for good. A place that another broker has is a fault of whoever gave it, and is reported as one. Nobody can know
that a place is kept for a founder that is still to come (`faults`), and that of a broker that is lost for good is free
when it is forgotten; brokers of a world are told apart by their addresses, so such a guest asks again for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from veena.address import Address, format_address
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.membership.join import Joined
from veena.sim.clients.traffic import Traffic
from veena.sim.runs.faults import Fault, strike_broker
from veena.sim.world.joining import Guest, join
from veena.sim.world.node import Node
from veena.sim.world.world import World

#: What a guest asks for: mostly a place in the contact's cluster, sometimes a gateway as well, or one from elsewhere.
WISHES = ((0,), (0,), (0,), (0, 1), (1, 2))
#: How long a refused guest waits before it asks somebody else, whatever it was told.
AGAIN_NS = 2 * SECOND_NS
#: How many clients come to a new broker.
COMPANY = 2
#: How long the news of a founder may take to reach the registrar.
SPREAD_NS = 2 * SECOND_NS
#: How soon after it came a new broker may be struck.
GRACE_NS = 10 * SECOND_NS


@dataclass(slots=True, eq=False)
class Newcomer:
    """One guest, over all of its tries."""

    name: str
    levels: tuple[int, ...]
    tries: int = 0
    asked_ns: int = 0
    #: Places that it was given and could not take.
    vain: int = 0
    address: Address = ()

    @property
    def permanent_id(self) -> str:
        """Under another one after a place in vain, which would be given to the same one again."""
        return f"{self.name}-{self.vain}" if self.vain else self.name


class Guests:
    """Everybody who asks to be let in during one run."""

    def __init__(self, world: World, traffic: Traffic, count: int, chance: Random) -> None:
        self._world = world
        self._traffic = traffic
        self._chance = chance
        self._until_ns = 0
        self.newcomers = [Newcomer(f"guest-{n}", chance.choice(WISHES)) for n in range(count)]
        #: What befell those who were let in.
        self.fates: list[Fault] = []
        #: Places that were given twice, in words.
        self.clashes: list[str] = []

    def plan(self, begin_ns: int, end_ns: int) -> list[Fault]:
        """Let them come within this time; nobody begins to ask after it."""
        self._until_ns = end_ns
        plan = []
        for newcomer in self.newcomers:
            at_ns = self._chance.randrange(begin_ns, end_ns)
            self._world.at(at_ns, lambda who=newcomer: self._ask(who))  # type: ignore[misc]
            plan.append(Fault(at_ns, f"{newcomer.name} asks to be let in, for gateways of levels {newcomer.levels}"))
        return plan

    @property
    def joined(self) -> int:
        """How many were let in."""
        return sum(bool(newcomer.address) for newcomer in self.newcomers)

    def _ask(self, newcomer: Newcomer) -> None:
        world = self._world
        live = [address for address, node in world.nodes.items() if node.broker is not None]
        if world.now_ns >= self._until_ns or not live:
            return
        newcomer.tries += 1
        newcomer.asked_ns = world.now_ns
        guest = join(world, newcomer.permanent_id, self._chance.choice(live), newcomer.levels)
        guest.on_end = lambda: self._ended(newcomer, guest)

    def _ended(self, newcomer: Newcomer, guest: Guest) -> None:
        world, result = self._world, guest.result
        if isinstance(result, Joined) and guest.clash is None:
            newcomer.address = result.address
            self._settle_in(newcomer)
            return
        if isinstance(result, Joined):
            newcomer.vain += 1
            if guest.clash is not None and not _is_free(guest.clash, newcomer.asked_ns - SPREAD_NS):
                where = f"{format_address(result.address)} at {world.now_ns / SECOND_NS:.3f} s"
                self.clashes.append(f"{newcomer.name} was given {where}, the place of {guest.clash.disk.identity.name}")
        pause = AGAIN_NS + self._chance.randrange(500 * MILLISECOND_NS)
        world.at(world.now_ns + pause, lambda: self._ask(newcomer))

    def _settle_in(self, newcomer: Newcomer) -> None:
        world, chance, address = self._world, self._chance, newcomer.address
        what = f"{newcomer.name} has its place at {format_address(address)} after {newcomer.tries} tries"
        self.fates.append(Fault(world.now_ns, what))
        population = self._traffic.population
        for client in chance.sample(population.clients, min(COMPANY, len(population.clients))):
            population.move(client, address)
        self._traffic.move(chance.choice(self._traffic.publishers), address)
        at_ns = world.now_ns + chance.randrange(GRACE_NS)
        if at_ns < self._until_ns and chance.random() < 0.5:
            self.fates.append(Fault(at_ns, strike_broker(world, chance, address, at_ns)))


def _is_free(node: Node, known_ns: int) -> bool:
    """Whether nobody is at this place as far as the network can know, of what was before that time."""
    return node.lost or (node.joined_ns is not None and node.joined_ns >= known_ns)
