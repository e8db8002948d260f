"""Where events went: crossings of links, units entered in vain, and what digests let through.

Two counts of the same thing come from different evidence. `wasted` asks the clients: a unit that an event entered
although nobody in it wanted it, and from which it did not go on to somebody who did. `false_positives` asks the copies:
an entry of a copy that was to serve nothing but large units, known by their digest, in which nobody wanted it. Without
faults the two are equal; a difference is an event that went astray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from veena.address import Address, Unit, shared
from veena.core.messages.addresses import INTERNAL
from veena.core.wire.event import EventFrame
from veena.event import EventId

#: Units of this level and above are known by digests.
DIGEST_LEVEL = 2


@dataclass(frozen=True, slots=True)
class Crossing:
    """A copy that was written to a link."""

    at_ns: int
    sender: Address
    receiver: Address
    to_serve: int

    def entered(self) -> list[Unit]:
        """The units that it came into, the largest first."""
        return _apart(self.receiver, self.sender)

    def left(self) -> list[Unit]:
        return _apart(self.sender, self.receiver)


class Crossings:
    """The ways of all events of a run."""

    def __init__(self, clock: Callable[[], int], fanout: int) -> None:
        self._clock = clock
        self._fanout = fanout
        self.by_event: dict[EventId, list[Crossing]] = {}

    def note(self, sender: Address, receiver: Address, frame: EventFrame) -> None:
        if frame.publisher.startswith(INTERNAL):
            return  # what brokers write to each other is no client's event
        crossing = Crossing(self._clock(), sender, receiver, frame.to_serve)
        self.by_event.setdefault(frame.id, []).append(crossing)

    def total(self) -> int:
        return sum(map(len, self.by_event.values()))

    def link_max(self) -> int:
        """The most often that one event crossed one link, both ways together."""
        most = 0
        for crossings in self.by_event.values():
            links = Counter((min(c.sender, c.receiver), max(c.sender, c.receiver)) for c in crossings)
            most = max(most, *links.values())
        return most

    def wasted(self, event: EventId, wanted_ns: Mapping[Unit, int]) -> dict[Unit, None]:
        """The units entered in vain; `wanted_ns` says since when somebody in a unit wanted this event.

        From the last crossing back to the first: an entry is justified by a client, or by a justified crossing that
        later left the unit.
        """
        wasted: dict[Unit, None] = {}
        on_the_way: dict[Unit, None] = {}
        for crossing in reversed(self.by_event.get(event, ())):
            justified = False
            for unit in crossing.entered():
                if unit in on_the_way or wanted_ns.get(unit, crossing.at_ns + 1) <= crossing.at_ns:
                    justified = True
                else:
                    wasted[unit] = None
            if justified:
                on_the_way |= dict.fromkeys(crossing.left())
        return wasted

    def false_positives(self, event: EventId, wanted_ns: Mapping[Unit, int]) -> dict[Unit, None]:
        """The units entered by copies that were for nothing but digests' mistakes."""
        found: dict[Unit, None] = {}
        for crossing in self.by_event.get(event, ()):
            units = self._units(crossing)
            by_digest = all(len(crossing.receiver) - len(unit) >= DIGEST_LEVEL for unit in units)
            if by_digest and not any(wanted_ns.get(unit, crossing.at_ns + 1) <= crossing.at_ns for unit in units):
                found |= dict.fromkeys(crossing.entered())
        return found

    def _units(self, crossing: Crossing) -> list[Unit]:
        """What the copy was to serve; each bit names a sub-unit of a unit that the receiver is in."""
        units: list[Unit] = []
        levels = len(crossing.receiver)
        for level in range(levels):
            word = crossing.to_serve >> level * self._fanout & (1 << self._fanout) - 1
            units += [
                (*crossing.receiver[: levels - 1 - level], number)
                for number in range(self._fanout)
                if word >> number & 1
            ]
        return units


def _apart(inside: Address, outside: Address) -> list[Unit]:
    """The units that hold one broker and not the other, the largest first."""
    return [inside[:size] for size in range(shared(inside, outside) + 1, len(inside) + 1)]
