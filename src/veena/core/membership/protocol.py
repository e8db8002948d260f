"""The vocabulary of the node organisation protocol: what is asked for, by which rules, and what a broker must know.

A set-up request is a bit vector, one bit a level; the rightmost bit is level 0 and says *from* (a place in the
addressee's own cluster) or *to* (a gateway to it from elsewhere), bit l asks to be a level-l gatekeeper (NOP-06,
AMB-4). Every broker has connection rules: the networks it takes nodes from (NOP-01) and a threshold vector, the most
gateways it keeps at each level (NOP-02).

Identifiers in a unit are given by one broker, its *registrar*: the lowest broker of the lowest sub-unit, all the way
down. Every broker can name the next step towards it from the identifiers that its own map shows, so nobody is elected
and nobody is configured. The invariant: brokers with the same map name the same registrar, hence two requests in
flight never get one identifier. The number is the lowest free one (NOP-16, NOP-19).

Rejected: each broker giving identifiers out of a range of its own. It needs no messages, but wastes most of a fan-out
of 32. Also rejected: reading thresholds of cluster mates from the map alone; what another broker can take only that
broker knows, so it is asked, and the map only says whom first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from veena.address import FANOUTS, MAX_LEVELS, Address, Unit, identifiers
from veena.core.wire.control import Frame
from veena.core.wire.membership import MAX_PLACE_LISTEN, Place
from veena.errors import LocalProtocolError


@dataclass(frozen=True, slots=True)
class Wanted:
    """A decoded request: `is_from` is bit 0, `levels` every bit that is set, ascending."""

    levels: tuple[int, ...]

    @property
    def is_from(self) -> bool:
        return self.levels[0] == 0

    @property
    def highest(self) -> int:
        return self.levels[-1]


def encode_request(levels: Iterable[int]) -> int:
    """The bit vector that asks to be a gatekeeper at these levels; level 0 makes it a *from* request."""
    vector = 0
    for level in levels:
        if not 0 <= level < MAX_LEVELS:
            raise LocalProtocolError(f"level {level} in a set-up request: expected 0 to {MAX_LEVELS - 1}")
        vector |= 1 << level
    if not vector:
        raise LocalProtocolError("a set-up request asks for no level: name at least one, 0 for a place in the cluster")
    return vector


def decode_request(vector: int | str) -> Wanted:
    """Read a bit vector; the text form is the paper's, `00000011` with level 0 at the right."""
    if isinstance(vector, str):
        if not 1 <= len(vector) <= MAX_LEVELS or vector.strip("01"):
            raise LocalProtocolError(
                f"request {vector!r}: expected 1 to {MAX_LEVELS} digits 0 or 1, level 0 at the right"
            )
        vector = int(vector, 2)
    if not 0 < vector < 1 << MAX_LEVELS:
        raise LocalProtocolError(f"request {vector}: expected a vector of 1 to {MAX_LEVELS} bits with at least one set")
    return Wanted(tuple(identifiers(vector)))


@dataclass(frozen=True, slots=True)
class Member:
    """A broker of the same cluster, as far as its messages and the map have told."""

    address: Address
    listen: tuple[str, ...] = ()
    links: tuple[int, ...] = ()
    thresholds: tuple[int, ...] = ()

    def may_have_room(self, level: int) -> bool:
        """What was learnt may be old: this orders whom to ask, it never decides."""
        if level >= len(self.thresholds):
            return not self.thresholds
        return self.thresholds[level] > (self.links[level] if level < len(self.links) else 0)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What admission needs from the rest of the broker, as plain data made afresh from the map for each call."""

    #: This broker's own links by level, level 0 first.
    links: tuple[int, ...] = ()
    #: Brokers that this one has a link with.
    neighbours: tuple[Address, ...] = ()
    #: The other brokers of the cluster.
    members: tuple[Member, ...] = ()
    #: By level l: brokers outside this broker's level-l unit, inside its level-(l+1) unit, with a link into the former.
    gatekeepers: Mapping[int, tuple[Place, ...]] = field(default_factory=dict)
    #: For every unit that encloses this broker, () for the whole network: the vector of identifiers in use in it.
    taken: Mapping[Unit, int] = field(default_factory=dict)

    def links_at(self, level: int) -> int:
        return self.links[level] if level < len(self.links) else 0

    def places(self, levels: Iterable[int]) -> list[Place]:
        """The gatekeepers at these levels, with as many ways to reach them as an answer may name."""
        found = [place for level in levels for place in self.gatekeepers.get(level, ())]
        return [Place(place.address, place.listen[:MAX_PLACE_LISTEN]) for place in found]


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sent a frame: a broker of this network (its proven address), somebody on a new connection, or both."""

    address: Address = ()
    #: The driver's number of the connection to answer on; 0 when the frame was routed through the network.
    conversation: int = 0
    #: As the transport saw it, never as the peer says; empty when there is none.
    ip: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """Route a frame to a broker, or to whichever broker of a larger unit is reached first."""

    to: Unit
    frame: Frame


@dataclass(frozen=True, slots=True)
class Answer:
    """Send a frame back on a conversation with a node that has no address yet."""

    conversation: int
    frame: Frame


Effect = Send | Answer


def lowest_free(vector: int, fanout: int) -> int:
    """The lowest identifier that a vector does not hold, -1 when the unit is full (NOP-19)."""
    assert fanout in FANOUTS
    free = ~vector & ((1 << fanout) - 1)
    return (free & -free).bit_length() - 1


def registrar_hop(address: Address, unit: Unit, taken: Mapping[Unit, int]) -> Unit:
    """The next step from this broker towards the registrar of a unit that encloses it; its own address when it is that.

    `unit` is a proper prefix of `address`. The answer is a broker or a lower unit; whoever is reached there asks again.
    """
    assert address[: len(unit)] == unit and len(unit) < len(address)
    while len(unit) < len(address):
        own = address[len(unit)]
        vector = taken.get(unit, 0) | 1 << own
        lowest = (vector & -vector).bit_length() - 1
        if lowest != own:
            return (*unit, lowest)
        unit = (*unit, own)
    return address
