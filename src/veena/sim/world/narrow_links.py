"""Links that take only so many bytes a second: the world's part of a slow wire, and of the driver that fills it.

A sender writes to an idle link at once; what it is given while the link is busy leaves behind that. When all has left,
the sending broker is told that there is room for one more event (`LinkRoom`): so at most one event, and what control
there is, lies between a broker's choice and the wire, and the order of the rest is the broker's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veena.address import Address
from veena.core.boundary.inputs_effects import LinkRoom, Numbered
from veena.core.boundary.settings import SECOND_NS
from veena.sim.world.network import Session, VirtualLink

if TYPE_CHECKING:
    from veena.sim.world.world import World


def limit(world: World, link: VirtualLink, capacity: int | None) -> None:
    """Let so many bytes a second pass in each direction from now on, and over every later connection."""
    link.capacity = capacity
    if link.session is not None:
        for end in (link.a, link.b):
            tell_room(world, link.session, end)


def occupy(world: World, session: Session, sender: Address, frames: tuple[Numbered, ...]) -> int:
    """When the frames of one write have left their sender, behind what it was given before."""
    capacity = session.link.capacity
    if capacity is None:
        return world.now_ns
    size = sum(len(world.passage.encode(frame, number)) for number, frame in frames)
    left_ns = max(world.now_ns, session.busy_until_ns.get(sender, 0)) + size * SECOND_NS // capacity
    session.busy_until_ns[sender] = left_ns
    world.at(left_ns, lambda: tell_room(world, session, sender))
    return left_ns


def tell_room(world: World, session: Session, end: Address) -> None:
    """A sender that has nothing left to send takes one more event; where there is no capacity, any number."""
    if session.alive and session.busy_until_ns.get(end, 0) <= world.now_ns:
        world.give(end, LinkRoom(session.handles[end], None if session.link.capacity is None else 1))
