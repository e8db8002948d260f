"""Aggregate: what all consumers of a domain want of one remote application, as one constraint (AGG-01, AGG-07, AMB-35).

It is the disjunction of their constraints: nothing is lost that anyone wants, and nothing comes that no one does. What
another constraint covers adds nothing and is left out, so that the aggregate is as long as the domain's interests are
different, not as its consumers are many. A consumer whose constraint is covered already changes nothing, which is what
spares the remote side the change (AGG-06, DIS-22); one that leaves takes away what was wanted for its sake alone.

The invariant: the aggregate is true of an event exactly when the constraint of some member is. `covers` may say no when
it could say yes; then the aggregate is longer than it need be, never wider or narrower.

It is told as texts that each begin with the application's name, so that digests find it by that, and that are short
enough to be compared with others by every broker (`cover.MAX_TEXT`): a longer one would not cover its members'. Nearly
always it is one text. Rejected: merging ranges into wider ones (shorter, but no longer exact).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veena import matching
from veena.errors import InvalidConstraint
from veena.matching.constraint_text import parse_constraint
from veena.matching.cover import MAX_TEXT
from veena.services.wording import quoted

#: Consumers of one domain that share an interest in one application.
MAX_MEMBERS = 1 << 16
#: Different constraints that a new one is compared with; beyond it one is told without asking who covers it.
MAX_COMPARED = 256
EVERYTHING = "TRUE"


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be told of the aggregate, and what is to be told no longer, in this order."""

    added: tuple[str, ...]
    dropped: tuple[str, ...]


def within(application: str, constraint: str = "") -> str:
    """A constraint on the events of one application; raise InvalidConstraint with the place of what is wrong."""
    parse_constraint(constraint)
    named = f"$domain_name == {quoted(application)}"
    return f"{named} and ({constraint})" if constraint.strip() else named


def either(constraints: Sequence[str]) -> str:
    """One constraint for several, of which one must hold; each is read for itself."""
    for each in constraints:
        parse_constraint(each)
    return " or ".join(f"({each.strip() or EVERYTHING})" for each in constraints) or EVERYTHING


class Aggregate:
    """The members' constraints and their disjunction."""

    def __init__(self, application: str) -> None:
        self.application = application
        self._prefix = within(application)
        self._members: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        #: The constraints that are told: every other one is covered by these.
        self._told: dict[str, None] = {}
        self._texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member: str) -> bool:
        return member in self._members

    @property
    def texts(self) -> tuple[str, ...]:
        """The aggregate: an event is wanted when one of these is true of it."""
        return self._texts

    @property
    def distinct(self) -> int:
        """How many different constraints the members have."""
        return len(self._counts)

    @property
    def told(self) -> int:
        """How many of them the aggregate consists of."""
        return len(self._told)

    def add(self, member: str, constraint: str) -> Change | None:
        """A member wants this, and no longer what it wanted before; what changes, or None when nothing does.

        Raises InvalidConstraint, and then changes nothing.
        """
        parse_constraint(constraint)
        wanted = constraint.strip() or EVERYTHING
        if self._members.get(member) == wanted:
            return None
        if member not in self._members and len(self._members) >= MAX_MEMBERS:
            raise InvalidConstraint(constraint, 0, f"{MAX_MEMBERS} members: no more can share one aggregate")
        former = self._members.get(member)
        self._members[member] = wanted
        self._counts[wanted] = self._counts.get(wanted, 0) + 1
        if self._counts[wanted] == 1 and not self._is_covered(wanted):
            self._tell(wanted)
        if former is not None:
            self._release(former)
        return self._changed()

    def remove(self, member: str) -> Change | None:
        """A member wants nothing more; what changes, or None when nothing does."""
        former = self._members.pop(member, None)
        if former is None:
            return None
        self._release(former)
        return self._changed()

    def _release(self, constraint: str) -> None:
        self._counts[constraint] -= 1
        if self._counts[constraint]:
            return
        del self._counts[constraint]
        if constraint not in self._told:
            return
        del self._told[constraint]
        for each in sorted(self._counts):
            if each not in self._told and not self._is_covered(each):
                self._tell(each)

    def _tell(self, constraint: str) -> None:
        if len(self._told) <= MAX_COMPARED:
            for other in list(self._told):
                if matching.covers("constraint", constraint, other):
                    del self._told[other]
        self._told[constraint] = None

    def _is_covered(self, constraint: str) -> bool:
        """Whether the constraints that are told are surely true of all that this one is true of."""
        if constraint in self._told or len(self._told) > MAX_COMPARED:
            return constraint in self._told
        if any(matching.covers("constraint", other, constraint) for other in self._told):
            return True
        whole = " or ".join(f"({each})" for each in self._told)
        return bool(whole) and len(whole) <= MAX_TEXT and matching.covers("constraint", whole, constraint)

    def _changed(self) -> Change | None:
        before, self._texts = self._texts, self._written()
        if before == self._texts:
            return None
        added = tuple(text for text in self._texts if text not in before)
        dropped = tuple(text for text in before if text not in self._texts)
        return Change(added, dropped)

    def _written(self) -> tuple[str, ...]:
        if EVERYTHING in self._told:
            return (self._prefix,)
        texts: list[str] = []
        parts: list[str] = []
        size = 0
        for each in sorted(self._told):
            part = f"({each})"
            if parts and size + len(part) > MAX_TEXT:
                texts.append(self._joined(parts))
                parts = []
            size = (size if parts else len(self._prefix) + len(" and ()")) + len(part) + len(" or ")
            parts.append(part)
        if parts:
            texts.append(self._joined(parts))
        return tuple(texts)

    def _joined(self, parts: list[str]) -> str:
        return f"{self._prefix} and ({' or '.join(parts)})"
