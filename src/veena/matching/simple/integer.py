"""Integer topics: the meeting id of a conference, always four bytes on the wire (MAT-40, MAT-41).

A dict from the number to those who want it; see `exact`. The numbers are those of four bytes without sign, so a
constraint and an event can never differ in how they were written. Rejected: an array indexed by the number: 2^32 slots
for a few thousand meetings.
"""

from __future__ import annotations

from veena.errors import InvalidConstraint
from veena.event import MAX_INTEGER, Event
from veena.matching.base.engine import Constraint, Crowd
from veena.matching.base.exact import ExactEngine


class IntegerEngine(ExactEngine[int]):
    name = "integer"

    def _check(self, constraint: Constraint) -> int:
        return check_integer(constraint)

    def _value_of(self, event: Event) -> int | None:
        return event.integer

    def match(self, event: Event) -> list[int]:
        self._evaluations += 1
        holder = self._holders.get(event.integer)
        if holder is None:
            return []
        return holder.ids.copy() if isinstance(holder, Crowd) else [holder]

    def destinations(self, event: Event) -> int:
        self._evaluations += 1
        return self._masks.get(event.integer, 0)


def check_integer(constraint: Constraint) -> int:
    """The number; raise InvalidConstraint when it is none or does not fit into four bytes."""
    if isinstance(constraint, bool) or not isinstance(constraint, int):
        raise InvalidConstraint(str(constraint), 0, f"expected an integer, found {type(constraint).__name__}")
    if not 0 <= constraint <= MAX_INTEGER:
        raise InvalidConstraint(str(constraint), 0, f"an integer topic is 0 to {MAX_INTEGER} (four bytes)")
    return constraint


def covers(wide: Constraint, narrow: Constraint) -> bool:
    return check_integer(wide) == check_integer(narrow)
