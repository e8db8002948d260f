"""Nodes and units that join a simulated network, as their drivers would do it.

A guest has no address: it opens a connection to the contact it was told, reads the Hello, asks, follows what it is
told, and when it is let in starts as a broker and dials the links that were granted. A unit lets one of its brokers
speak for it; when that one is let in, the whole unit moves to its new place (NOP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from veena.address import Address
from veena.core.boundary.inputs_effects import Arrived, AskToSpeak, MaySpeak, Merged, Numbered
from veena.core.boundary.stored import Disk, Identity
from veena.core.membership.join import Applicant, Ask, Joined, JoinEffect, Joiner, Refused
from veena.core.membership.protocol import encode_request
from veena.core.wire.control import Frame, Goodbye, Heartbeat, Hello
from veena.core.wire.event import EventFrame
from veena.core.wire.membership import Grant, Place
from veena.sim.world.node import Node
from veena.sim.world.world import World

#: Numbers of one join; the next join under the same name begins beyond them.
NUMBERS = 1 << 20


@dataclass(slots=True)
class Guest:
    """One join, from the first question to a place or a refusal."""

    world: World
    joiner: Joiner
    name: str
    ip: str
    #: The address that it speaks from; () for a node that has none.
    spokesman: Address = ()
    result: Joined | Refused | None = None
    asked: list[Address] = field(default_factory=list)
    #: Called when there is a result.
    on_end: Callable[[], None] | None = None
    #: Who has, or had, the place that it was given: then it does not take it.
    clash: Node | None = None
    _handle: int = 0
    _numbers: int = 0

    def act(self, effects: list[JoinEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Ask):
                self._ask(effect.place, effect.frame)
            else:
                self.result = effect
                self._hang_up()
                if isinstance(effect, Joined):
                    settle(self, effect)
                if self.on_end is not None:
                    self.on_end()
        due = self.joiner.next_wakeup()
        if self.result is None and due is not None:
            self.world.at(max(due, self.world.now_ns), lambda: self._wake(due))

    def hear(self, frames: tuple[Numbered, ...]) -> None:
        """What the contact says on the conversation."""
        for _, frame in frames:
            if self.result is None and not isinstance(frame, Hello | Heartbeat | Goodbye | EventFrame):
                self.act(self.joiner.handle(frame, self.world.now_ns))

    def _wake(self, due: int) -> None:
        if self.result is None and self.joiner.next_wakeup() == due:
            self.act(self.joiner.tick(self.world.now_ns))

    def _ask(self, place: Place, frame: Frame) -> None:
        world = self.world
        node = world.nodes.get(place.address)
        if node is None or node.broker is None:
            world.at(world.now_ns, lambda: self.act(self.joiner.unreachable(world.now_ns)))
            return
        if not self.asked or self.asked[-1] != place.address or not self._handle:
            self._hang_up()
            self._handle, self._numbers = world.visit(place.address, self.ip, self.hear), 0
        self.asked.append(place.address)
        self._numbers += 1
        world.give(place.address, Arrived(self._handle, ((self._numbers, frame),)))

    def _hang_up(self) -> None:
        if self._handle:
            self.world.leave(self._handle)
            self._handle = 0


def join(world: World, name: str, contact: Address, levels: Iterable[int], ip: str = "10.1.2.3") -> Guest:
    """A stand-alone node asks one existing broker for gateways of these levels; level 0 is a place in its cluster."""
    return _begin(world, Guest(world, _joiner(world, Applicant(name), contact, levels), name, ip))


def add_unit(world: World, spokesman: Address, unit_level: int, contact: Address, levels: Iterable[int]) -> Guest:
    """A unit of this world, not linked to the contact's network yet, asks to become part of it."""
    node = world.nodes[spokesman]
    applicant = Applicant(node.disk.identity.name, f"unit-{node.disk.identity.name}", unit_level, spokesman)
    guest = Guest(world, _joiner(world, applicant, contact, levels), node.disk.identity.name, "10.1.2.3", spokesman)

    def answered(answer: MaySpeak) -> None:
        if answer.granted:
            _begin(world, guest)
        else:
            guest.result = Refused(answer.reason)

    world.on_may_speak[spokesman] = answered
    world.give(spokesman, AskToSpeak(world.now_ns, unit_level))
    return guest


def _joiner(world: World, applicant: Applicant, contact: Address, levels: Iterable[int]) -> Joiner:
    return Joiner(
        applicant,
        encode_request(levels),
        Place(contact),
        len(contact),
        first_number=world.now_ns // NUMBERS * NUMBERS,
    )


def _begin(world: World, guest: Guest) -> Guest:
    guest.act(guest.joiner.start(world.now_ns))
    return guest


def settle(guest: Guest, joined: Joined) -> None:
    """Take the place: a node starts as a broker, a unit moves; then the granted links are dialled."""
    world = guest.world
    if guest.spokesman:
        world.give(guest.spokesman, Merged(world.now_ns, joined.old, joined.new, world.settings.network))
        _dial(world, joined.address, joined.links)
        return
    if joined.address in world.nodes:
        guest.clash = world.nodes[joined.address]
        return
    node = Node(joined.address, None, Disk(Identity(guest.name, joined.address, 0)), joined_ns=world.now_ns)
    world.nodes[joined.address] = node
    _dial(world, joined.address, joined.links)
    world.start(joined.address)


def _dial(world: World, address: Address, grants: Iterable[Grant]) -> None:
    for grant in grants:
        world.add_link(address, grant.place.address)
