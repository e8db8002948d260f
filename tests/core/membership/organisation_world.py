"""A small deterministic world for the node organisation protocol: real machines, a queue of messages, virtual time.

It stands in for the rest of a broker: it routes, dials, and gives every broker the view that its map would show, as of
the last `refresh` (so a test can let maps lag behind). A broker's own links are always up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from veena.address import Address, Labels, Unit, ancestor, link_level
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.admission import Admission
from veena.core.membership.join import Applicant, Ask, Joined, JoinEffect, Joiner, Refused
from veena.core.membership.protocol import Answer, Effect, Member, Neighbourhood, Peer, encode_request
from veena.core.wire.control import Frame
from veena.core.wire.membership import Grant, Place

#: No test needs more; a run that does is going in circles.
MAX_STEPS = 20_000
ROOMY = ConnectionRules((8, 4, 2, 2))


@dataclass(frozen=True)
class Message:
    to: Address
    frame: Frame
    peer: Peer


@dataclass
class Guest:
    """Somebody who joins, as the driver of its broker sees it."""

    joiner: Joiner
    ip: str
    insider: Address
    rules: ConnectionRules
    dials: bool
    #: When it was told the outcome.
    ended_ns: int = 0


@dataclass
class World:
    levels: int = 4
    fanout: int = 32
    now_ns: int = 0
    brokers: dict[Address, Admission] = field(default_factory=dict)
    links: list[tuple[Address, Address]] = field(default_factory=list)
    dead: list[Address] = field(default_factory=list)
    guests: dict[int, Guest] = field(default_factory=dict)
    queue: list[Message | tuple[int, Frame]] = field(default_factory=list)
    #: Every frame that was delivered, with its receiver: a broker or the number of a guest.
    log: list[tuple[Address | int, Frame]] = field(default_factory=list)
    refused_dials: int = 0
    near: dict[Address, list[Address]] = field(default_factory=dict)
    #: What the maps show, and the views made from that.
    shown: tuple[list[Address], list[tuple[Address, Address]]] = ([], [])
    views: dict[Address, Neighbourhood] = field(default_factory=dict)

    # --- building ---

    def add(
        self, address: Address, rules: ConnectionRules = ROOMY, joined_ns: int | None = None, unit_level: int = 0
    ) -> None:
        assert address not in self.brokers, f"{address} was given twice"
        self.brokers[address] = Admission(
            address, self.fanout, rules, listen(address), joined_ns=joined_ns, unit_level=unit_level
        )
        self.near[address] = []

    def link(self, one: Address, other: Address) -> None:
        self.links.append((one, other))
        self.near[one].append(other)
        self.near[other].append(one)

    def refresh(self) -> None:
        """All maps catch up. A broker that is dead is still in them: nobody has noticed yet."""
        self.views = {}
        self.shown = (list(self.brokers), list(self.links))

    def neighbours(self, address: Address) -> list[Address]:
        return list(self.near[address])

    def neighbourhood(self, address: Address) -> Neighbourhood:
        if address not in self.views:
            self.views[address] = self._view(address, *self.shown)
        view = self.views[address]
        near = self.neighbours(address)
        return Neighbourhood(self.counts(address), tuple(near), view.members, view.gatekeepers, view.taken)

    def counts(self, address: Address) -> tuple[int, ...]:
        counts = [0] * self.levels
        for other in self.neighbours(address):
            counts[link_level(address, other)] += 1
        return tuple(counts)

    def _view(self, address: Address, brokers: list[Address], links: list[tuple[Address, Address]]) -> Neighbourhood:
        taken: dict[Unit, int] = {}
        for broker in brokers:
            for length in range(self.levels):
                if broker[:length] == address[:length]:
                    taken[broker[:length]] = taken.get(broker[:length], 0) | 1 << broker[length]
        gatekeepers: dict[int, dict[Address, None]] = {}
        for pair in links:
            for near, far in (pair, pair[::-1]):
                level = link_level(near, far)
                outside = ancestor(far, level + 1) == ancestor(address, level + 1)
                if outside and ancestor(near, level) == ancestor(address, level):
                    gatekeepers.setdefault(level, {})[far] = None
        return Neighbourhood(
            members=tuple(Member(b, listen(b)) for b in sorted(brokers) if b[:-1] == address[:-1] and b != address),
            gatekeepers={level: tuple(place(far) for far in sorted(found)) for level, found in gatekeepers.items()},
            taken=taken,
        )

    # --- joining ---

    def join(
        self, contact: Address, levels: Iterable[int], *, applicant: Applicant | None = None, ip: str = "10.1.2.3",
        rules: ConnectionRules = ROOMY, dials: bool = True,
    ) -> int:  # fmt: skip
        """Start a join; `run` brings it to an end. A guest that does not dial holds what it was granted."""
        number = len(self.guests) + 1
        applicant = applicant or Applicant(f"node-{number}")
        insider = applicant.address if applicant.address in self.brokers and not applicant.unit_level else ()
        known = self.neighbourhood(insider).places(range(self.levels)) if insider else []
        joiner = Joiner(
            applicant, encode_request(levels), place(contact), self.levels, first_number=1000 * number, known=known
        )
        self.guests[number] = Guest(joiner, ip, insider, rules, dials)
        self._guest_effects(number, joiner.start(self.now_ns))
        return number

    def result(self, guest: int) -> Joined | Refused | None:
        return self.guests[guest].joiner.result

    def joined(self, guest: int) -> Joined:
        result = self.result(guest)
        assert isinstance(result, Joined), result
        return result

    def refusal(self, guest: int) -> str:
        result = self.result(guest)
        assert isinstance(result, Refused), result
        return result.reason

    def run(self, pick: Callable[[int], int] = lambda count: 0) -> None:
        """Deliver until nothing moves; `pick` chooses the next message of so many. Time passes only when all wait."""
        for _ in range(MAX_STEPS):
            if self.queue:
                self._deliver(self.queue.pop(pick(len(self.queue))))
            elif any(guest.joiner.result is None for guest in self.guests.values()):
                self._wait()
            else:
                return
        raise AssertionError("the protocol does not come to an end")

    def _wait(self) -> None:
        machines = [guest.joiner.next_wakeup() for guest in self.guests.values()]
        machines += [broker.next_wakeup() for broker in self.brokers.values()]
        self.now_ns = max(self.now_ns + 1, min(time for time in machines if time is not None))
        for address, broker in self.brokers.items():
            if address not in self.dead:
                self._effects(address, broker.tick(self.neighbourhood(address), self.now_ns))
        for number, guest in self.guests.items():
            self._guest_effects(number, guest.joiner.tick(self.now_ns))

    def _deliver(self, item: Message | tuple[int, Frame]) -> None:
        if isinstance(item, tuple):
            number, frame = item
            self.log.append((number, frame))
            self._guest_effects(number, self.guests[number].joiner.handle(frame, self.now_ns))
            return
        if item.to in self.dead:
            if item.peer.conversation:
                number = item.peer.conversation
                self._guest_effects(number, self.guests[number].joiner.unreachable(self.now_ns))
            return
        self.log.append((item.to, item.frame))
        broker = self.brokers[item.to]
        self._effects(item.to, broker.handle(item.frame, item.peer, self.neighbourhood(item.to), self.now_ns))
        broker.check()

    def _effects(self, source: Address, effects: list[Effect]) -> None:
        for effect in effects:
            frame = through_the_wire(effect.frame)
            if isinstance(effect, Answer):
                self.queue.append((effect.conversation, frame))
            else:
                # Whoever of a larger unit is reached first: here the one that is least likely to be its registrar.
                inside = [broker for broker in self.brokers if broker[: len(effect.to)] == effect.to]
                self.queue.append(Message(max(inside, default=effect.to), frame, Peer(source)))

    def _guest_effects(self, number: int, effects: list[JoinEffect]) -> None:
        guest = self.guests[number]
        for effect in effects:
            if isinstance(effect, Joined | Refused):
                guest.ended_ns = self.now_ns
            if isinstance(effect, Ask):
                peer = Peer(guest.insider, number, guest.ip)
                self.queue.append(Message(effect.place.address, through_the_wire(effect.frame), peer))
            elif isinstance(effect, Joined) and guest.dials and not effect.new:
                if not guest.insider:
                    self.add(effect.address, guest.rules, self.now_ns)
                self._dial(guest, effect.address, effect.links)

    def _dial(self, guest: Guest, address: Address, grants: tuple[Grant, ...]) -> None:
        for grant in grants:
            assert link_level(address, grant.place.address) == grant.level
            holder = self.brokers[grant.place.address]
            if holder.claim(guest.joiner.applicant.requester, grant.level, self.now_ns):
                self.link(address, grant.place.address)
            else:
                self.refused_dials += 1

    def frames(self, kind: type[Frame]) -> list[tuple[Address | int, Frame]]:
        return [(to, frame) for to, frame in self.log if isinstance(frame, kind)]


def listen(address: Address) -> tuple[str, ...]:
    return ("tcp://" + ".".join(map(str, address)) + ":7700",)


def place(address: Address) -> Place:
    return Place(address, listen(address))


def through_the_wire(frame: Frame) -> Frame:
    """Every frame of every test obeys the bounds of its fields."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=type(frame))


# --- FIX-4: SSC-B with SC-4, SC-5, SC-6; clusters m and n in SC-6 ---

FIX_4 = {
    "SSC-B.SC-4.h": (1, 2, 3), "SSC-B.SC-4.i": (4, 5, 6),
    "SSC-B.SC-5.j": (7, 8, 9), "SSC-B.SC-5.k": (10, 11, 12), "SSC-B.SC-5.l": (13, 14, 15),
    "SSC-B.SC-6.m": (16, 17, 18), "SSC-B.SC-6.n": (19, 20, 21),
}  # fmt: skip
#: Level 1 inside the super-clusters, then the chain SC-4, SC-6, SC-5.
FIX_4_LINKS = ((2, 4), (8, 10), (11, 13), (20, 17), (6, 19), (16, 15))


def fix_4(rules: dict[int, ConnectionRules] | None = None) -> tuple[World, Labels, dict[int, Address]]:
    """The world, the labels, and the address of every broker by its number in the figure."""
    world, labels = World(), Labels()
    at: dict[int, Address] = {}
    for cluster, numbers in FIX_4.items():
        for number in numbers:
            at[number] = labels.add(f"{cluster}.{number}")
            world.add(at[number], (rules or {}).get(number, ROOMY))
        for index, number in enumerate(numbers):
            for other in numbers[:index]:
                world.link(at[other], at[number])
    for one, other in FIX_4_LINKS:
        world.link(at[one], at[other])
    world.refresh()
    return world, labels, at
