"""Aggregate: what all consumers of a domain want of one remote domain, as one constraint (AGG-01, AGG-07, AMB-35).

It is the disjunction of their constraints: nothing is lost that anyone wants, and nothing comes that no one does. What
another constraint on the same application covers adds nothing and is left out, so that the aggregate is as long as the
domain's interests are different, not as its consumers are many. A consumer whose constraint is covered already changes
nothing, which is what spares the remote side the change (AGG-06, DIS-22); one that leaves takes away what was wanted
for its sake alone.

The invariant: the aggregate is true of an event exactly when the constraint of some member is. `covers` may say no when
it could say yes; then the aggregate is longer than it need be, never wider or narrower.

Every part begins with an application's name, and digests find the whole by these names, so that an application that no
one asked for stays where it is. A text is short enough to be compared with others by every broker (`cover.MAX_TEXT`): a
longer one would not cover its members'. Nearly always one is enough. What is longer is divided in two by a hash of the
applications' names, and each half again as long as it has to be; the constraints on one application by their own. So
the division follows from the wishes alone: two services of a domain divide alike, and one more wish changes one text.

Rejected: filling texts one after another. They are a third fewer, but one wish more shifts all that come after it, or,
with a memory of who is where, two services divide differently and both are told. Rejected: merging ranges into wider
ones (shorter, but no longer exact).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from veena import matching
from veena.errors import InvalidConstraint
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.cover import MAX_TEXT
from veena.services.wording import quoted

#: Consumers of one domain that share an interest in one application.
MAX_MEMBERS = 1 << 16
#: Applications in one text: as many as the index of a broker has rows for it, and a digest atoms.
MAX_TOGETHER = 64
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
    """The wishes of a domain for the applications of another one, and their disjunction."""

    def __init__(self) -> None:
        self._wishes: dict[str, Wishes] = {}
        self._texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Members, one for each application that it wants something of."""
        return sum(map(len, self._wishes.values()))

    def __contains__(self, key: tuple[str, str]) -> bool:
        """Whether there is this member of this application."""
        application, member = key
        return application in self._wishes and member in self._wishes[application]

    @property
    def texts(self) -> tuple[str, ...]:
        """The aggregate: an event is wanted when one of these is true of it."""
        return self._texts

    @property
    def applications(self) -> tuple[str, ...]:
        return tuple(sorted(self._wishes))

    @property
    def distinct(self) -> int:
        """How many different constraints the members have."""
        return sum(wishes.distinct for wishes in self._wishes.values())

    @property
    def told(self) -> int:
        """How many of them the aggregate consists of."""
        return sum(len(wishes.told) for wishes in self._wishes.values())

    def add(self, application: str, member: str, constraint: str) -> Change | None:
        """A member wants this of an application, and no longer what it wanted of it before; what changes, if anything.

        Raises InvalidConstraint, and then changes nothing.
        """
        parse_constraint(constraint)  # first by itself, so that the place of a fault is that in its own text
        try:
            parse_constraint(f"({_joined(application, [constraint.strip() or EVERYTHING, EVERYTHING])})")
        except InvalidConstraint:
            raise InvalidConstraint(
                constraint, 0, "too long or too deep to be joined with those of others: say it with less"
            ) from None
        wishes = self._wishes.get(application) or Wishes()
        is_changed = wishes.add(member, constraint)
        self._wishes[application] = wishes
        return self._changed() if is_changed else None

    def remove(self, application: str, member: str) -> Change | None:
        """A member wants nothing more of an application; what changes, or None when nothing does."""
        wishes = self._wishes.get(application)
        is_changed = wishes is not None and wishes.remove(member)
        if wishes is not None and not len(wishes):
            del self._wishes[application]
        return self._changed() if is_changed else None

    def _changed(self) -> Change | None:
        before = self._texts
        parts = [(application, self._wishes[application].part(application)) for application in sorted(self._wishes)]
        self._texts = tuple(sorted(self._written(parts))) if parts else ()
        added = tuple(text for text in self._texts if text not in before)
        dropped = tuple(text for text in before if text not in self._texts)
        return Change(added, dropped) if added or dropped else None

    def _written(self, parts: list[tuple[str, str]], depth: int = 0) -> Iterator[str]:
        """One text for the parts of these applications, or several: what is wanted of one stays together if it can."""
        if len(parts) == 1:
            application, _ = parts[0]
            yield from _divided(application, self._wishes[application].widest())
        elif len(parts) <= MAX_TOGETHER and _fits(text := " or ".join(f"({part})" for _, part in parts)):
            yield text
        else:
            for bit in (0, 1):
                half = [each for each in parts if _bits(each[0]) >> depth & 1 == bit]
                if half:
                    yield from self._written(half, depth + 1)


class Wishes:
    """What the members want of one application: the widest of their constraints cover all others."""

    def __init__(self) -> None:
        self._members: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        #: The constraints that are told: every other one is covered by these.
        self.told: dict[str, None] = {}
        #: What is told as one text, until it changes.
        self._part = ""

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member: str) -> bool:
        return member in self._members

    @property
    def distinct(self) -> int:
        """How many different constraints the members have."""
        return len(self._counts)

    def widest(self) -> list[str]:
        """The constraints that are told, in order."""
        return [EVERYTHING] if EVERYTHING in self.told else sorted(self.told)

    def part(self, application: str) -> str:
        """All of them as one constraint on the application's events, however long."""
        if not self._part:
            self._part = _joined(application, self.widest())
        return self._part

    def add(self, member: str, constraint: str) -> bool:
        """A member wants this, and no longer what it wanted before; whether something else may be told then."""
        parse_constraint(constraint)
        wanted = constraint.strip() or EVERYTHING
        if self._members.get(member) == wanted:
            return False
        if member not in self._members and len(self._members) >= MAX_MEMBERS:
            raise InvalidConstraint(constraint, 0, f"{MAX_MEMBERS} members: no more can share one aggregate")
        former = self._members.get(member)
        self._members[member] = wanted
        self._counts[wanted] = self._counts.get(wanted, 0) + 1
        if self._counts[wanted] == 1 and not self._is_covered(wanted):
            self._tell(wanted)
        if former is not None:
            self._release(former)
        self._part = ""
        return True

    def remove(self, member: str) -> bool:
        """A member wants nothing more; whether it wanted something."""
        former = self._members.pop(member, None)
        if former is not None:
            self._release(former)
            self._part = ""
        return former is not None

    def _release(self, constraint: str) -> None:
        self._counts[constraint] -= 1
        if self._counts[constraint]:
            return
        del self._counts[constraint]
        if constraint not in self.told:
            return
        del self.told[constraint]
        for each in sorted(self._counts):
            if each not in self.told and not self._is_covered(each):
                self._tell(each)

    def _tell(self, constraint: str) -> None:
        if len(self.told) <= MAX_COMPARED:
            for other in list(self.told):
                if matching.covers("constraint", constraint, other):
                    del self.told[other]
        self.told[constraint] = None

    def _is_covered(self, constraint: str) -> bool:
        """Whether the constraints that are told are surely true of all that this one is true of."""
        if constraint in self.told or len(self.told) > MAX_COMPARED:
            return constraint in self.told
        if any(matching.covers("constraint", other, constraint) for other in self.told):
            return True
        whole = " or ".join(f"({each})" for each in self.told)
        return bool(whole) and _fits(whole) and matching.covers("constraint", whole, constraint)


def _divided(application: str, constraints: list[str], depth: int = 0) -> Iterator[str]:
    """One text for these constraints on an application, or several."""
    text = _joined(application, constraints)
    if len(constraints) == 1 or _fits(text):
        yield text
        return
    for bit in (0, 1):
        half = [each for each in constraints if _bits(each) >> depth & 1 == bit]
        if half:
            yield from _divided(application, half, depth + 1)


def _fits(text: str) -> bool:
    """Whether brokers read a text, and compare it with others."""
    return len(text) <= MAX_TEXT and _is_readable(text)


@lru_cache(maxsize=1 << 10)
def _is_readable(text: str) -> bool:
    """What is joined may have more operators than one text may."""
    try:
        parse_constraint(text)
    except InvalidConstraint:
        return False
    return True


@lru_cache(maxsize=1 << 14)
def _bits(text: str) -> int:
    """What a text is sorted by: no two have the same."""
    return int.from_bytes(blake2b(text.encode()).digest(), "big")


def _joined(application: str, constraints: list[str]) -> str:
    """The disjunction of constraints that have been read before."""
    named = f"$domain_name == {quoted(application)}"
    if constraints == [EVERYTHING]:
        return named
    return f"{named} and ({' or '.join(f'({each})' for each in constraints)})"
