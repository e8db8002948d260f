"""How many gateways a broker keeps, and for whom it keeps one free until that node dials.

The intuition: a table with as many chairs a level as the threshold vector says; a guest on the way has a chair kept for
a minute. The invariant: links plus chairs kept never exceed the threshold of a level (NOP-02), however requests and
dials interleave, because only this broker counts its own chairs.

Rejected: counting at the contact. Two contacts that ask about one mate at once would both see its last free gateway.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.protocol import Neighbourhood
from veena.core.membership.registrar import SLOT_HOLD_NS

#: Gateways kept free at once: a burst of joins; whoever comes later asks a mate.
MAX_SLOTS = 256

#: A set-up: the requester's permanent id and its number for it.
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Slot:
    level: int
    deadline_ns: int


class Slots:
    def __init__(self, rules: ConnectionRules) -> None:
        self.rules = rules
        self._kept: dict[Key, Slot] = {}

    def reserve(self, key: Key, level: int, address: Address, neighbourhood: Neighbourhood, now_ns: int) -> bool:
        """Keep a gateway of this level free; `address` is the requester's where it has one."""
        self.expire(now_ns)
        if key in self._kept:
            return self._kept[key].level == level
        if address and address in neighbourhood.neighbours:
            return False  # a second link between the same two brokers carries nothing new
        kept = sum(slot.level == level for slot in self._kept.values())
        if len(self._kept) >= MAX_SLOTS or neighbourhood.links_at(level) + kept >= self.rules.threshold(level):
            return False
        self._kept[key] = Slot(level, now_ns + SLOT_HOLD_NS)
        return True

    def release(self, key: Key) -> None:
        self._kept.pop(key, None)

    def claim(self, requester: str, level: int, now_ns: int) -> bool:
        """The requester dialled: whether a gateway of this level was kept for it; the caller counts it from now."""
        self.expire(now_ns)
        for key, slot in self._kept.items():
            if key[0] == requester and slot.level == level:
                del self._kept[key]
                return True
        return False

    def expire(self, now_ns: int) -> None:
        self._kept = {key: slot for key, slot in self._kept.items() if slot.deadline_ns > now_ns}

    def clear(self) -> None:
        self._kept.clear()

    def count(self, level: int | None = None) -> int:
        return sum(level is None or slot.level == level for slot in self._kept.values())

    def next_deadline(self) -> int | None:
        return min((slot.deadline_ns for slot in self._kept.values()), default=None)
