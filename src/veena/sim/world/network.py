"""The virtual network: links with delay, loss, repetition and overtaking, and what their ends are told.

A link of the network file carries one session at a time. A session is what a socket is in the world outside: it begins
with both ends being told `LinkUp` under new numbers and ends with `LinkDown`, a `Close`, or in silence. Frames belong
to their session; what is on the way when it ends is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from veena.address import Address
from veena.core.boundary.inputs_effects import Numbered
from veena.sim.world.options import Options


@dataclass(slots=True)
class Session:
    """One connection over a link; `handles` are the link numbers that its two ends know it by."""

    link: VirtualLink
    handles: dict[Address, int]
    alive: bool = True
    #: Over an ordered transport: what a cut holds up, in order, and whether it is news.
    stalled: list[tuple[Delivery, bool]] = field(default_factory=list)
    #: Over an ordered transport: no frame arrives before one that was sent earlier.
    last_arrival_ns: dict[Address, int] = field(default_factory=dict)
    #: By sender, over a link with a capacity: until when it sends what it was given.
    busy_until_ns: dict[Address, int] = field(default_factory=dict)
    #: By sender, the number of the last event that was written.
    last_event: dict[Address, int] = field(default_factory=dict)


@dataclass(slots=True)
class VirtualLink:
    """A link of the network file."""

    a: Address
    b: Address
    delay_ns: int
    #: Cut: nothing passes.
    cut: bool = False
    #: Never to come back.
    lost: bool = False
    #: How many times longer everything takes.
    slowness: int = 1
    #: Bytes a virtual second that pass in each direction; None for any number.
    capacity: int | None = None
    #: Made because its end `a` dialled the other.
    dialled: bool = False
    session: Session | None = None

    def other(self, end: Address) -> Address:
        return self.b if end == self.a else self.a


@dataclass(frozen=True, slots=True)
class Delivery:
    """Frames that will arrive at an end of a session."""

    session: Session
    to: Address
    frames: tuple[Numbered, ...]
    at_ns: int


def deliveries(
    session: Session,
    sender: Address,
    frames: tuple[Numbered, ...],
    *,
    now_ns: int,
    options: Options,
    chance: Random,
) -> list[Delivery]:
    """When the frames of one write arrive, if they do."""
    link = session.link
    to = link.other(sender)
    if options.ordered:
        # A stalled stream loses nothing: the write is lost only if the session ends.
        at_ns = now_ns + _delay(link, options, chance)
        at_ns = max(at_ns, session.last_arrival_ns.get(to, 0))
        session.last_arrival_ns[to] = at_ns
        return [Delivery(session, to, frames, at_ns)]
    if link.cut:
        return []
    found: list[Delivery] = []
    for numbered in frames:
        if chance.random() < options.loss:
            continue
        found.append(Delivery(session, to, (numbered,), now_ns + _delay(link, options, chance)))
        if chance.random() < options.duplication:
            found.append(Delivery(session, to, (numbered,), now_ns + _delay(link, options, chance)))
    return found


def _delay(link: VirtualLink, options: Options, chance: Random) -> int:
    return link.slowness * (link.delay_ns + (chance.randrange(options.jitter_ns) if options.jitter_ns else 0))
