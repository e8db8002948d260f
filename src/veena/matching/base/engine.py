"""What every matching engine is: profiles in, an event against all of them, two kinds of answer out (MAT-01..03).

A profile is an id, a constraint and a destination. `match` names every profile that an event satisfies; `destinations`
gives only the OR of their destinations and may therefore skip whatever leads to destinations it already has
(DST-04..08). Both always say what a scan of the profiles one by one would say.

The invariants that an engine keeps: a refused `add` changes nothing; an id has at most one constraint; identical
constraints are stored once; `match` is ascending; the same calls in the same order give the same state and the same
statistics on every machine. A snapshot is plain columns, so that it can be shipped and read anywhere without running
code that came with it.

Rejected: one class of profile with a `matches(event)` method and engines as lists of them. It is the scan that every
engine here exists to beat.
"""

from __future__ import annotations

import gc
import re
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from veena.errors import InvalidConstraint
from veena.event import Event
from veena.matching.base.work import Meter

#: What `subscribe` takes: an integer topic, a text, `(topic, selector)`, `(xpath, namespaces)`.
Constraint = int | str | tuple[str, str] | tuple[str, Mapping[str, str]]

#: A column or a single fact of a snapshot. Lists hold ints, texts or None, nothing nested.
Column = int | str | bytes | list[int] | list[str] | list[str | None] | NDArray[Any]
#: Column by name; always with `engine` (its name), `version` (of the layout) and `digest` (of all the others).
Snapshot = dict[str, Column]

#: Ids live in 64-bit columns; the sign bit stays free.
MAX_PROFILE_ID = (1 << 63) - 1
#: One bit a client of a broker (DST-08): a vector this long costs 8 kB an operation, beyond that it is a mistake.
MAX_DESTINATION_BITS = 1 << 16

#: Half of a pair of UTF-16: no character, and nothing that could be written to a wire or a file.
SURROGATE = re.compile("[\ud800-\udfff]")

#: What `explain` says of a profile that the event satisfies.
MATCHES = "matches"


@dataclass(frozen=True, slots=True)
class Statistics:
    """The size of an engine and the work it has done; `evaluations` counts steps, not profiles."""

    engine: str
    profiles: int
    #: Distinct constraints: identical ones are stored once.
    constraints: int
    #: Nodes, tables or conditions looked at by `match` and `destinations` since the engine was made.
    evaluations: int
    #: How the profiles are held now, for those who tune: sizes by the engine's own names.
    detail: Mapping[str, int]


class Engine(ABC):
    """One language of constraints and the index behind it."""

    name: ClassVar[str]

    @abstractmethod
    def add(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        """Store a profile, in place of the one that has this id; raise InvalidConstraint and change nothing."""

    @abstractmethod
    def remove(self, profile_id: int) -> None:
        """Forget a profile; raise KeyError when there is none of this id."""

    def redirect(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        """Lead a profile that is here to another destination; the constraint is the one that it has."""
        self.add(profile_id, constraint, destination)

    @abstractmethod
    def match(self, event: Event) -> list[int]:
        """The ids of all profiles that the event satisfies, ascending."""

    @abstractmethod
    def destinations(self, event: Event) -> int:
        """The OR of the destinations of all profiles that the event satisfies."""

    def concerns(self, topic: str | None) -> bool:
        """Whether an event of this topic may satisfy some profile; True when in doubt."""
        return len(self) > 0

    def match_batch(self, events: Sequence[Event]) -> list[list[int]]:
        """What `match` says of each of these events. The lists are the caller's to read and not to change."""
        return list(map(self.match, events))

    def destinations_batch(self, events: Sequence[Event]) -> list[int]:
        """What `destinations` says of each of these events."""
        return list(map(self.destinations, events))

    def match_within(self, event: Event, meter: Meter) -> tuple[list[int], list[int]]:
        """As `match`, within what the meter affords; and the ids of profiles that were not decided, ascending."""
        return self.match(event), []

    def destinations_within(self, event: Event, meter: Meter) -> int:
        """As `destinations`; what the meter does not afford counts as satisfied."""
        return self.destinations(event)

    @abstractmethod
    def explain(self, profile_id: int, event: Event) -> str:
        """`MATCHES`, or the first term that failed or was unknown; raise KeyError for an unknown id."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Everything needed to build this engine again, as plain columns."""

    @classmethod
    @abstractmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Engine:
        """An engine with the profiles of the snapshot; its statistics start anew."""

    @abstractmethod
    def statistics(self) -> Statistics: ...

    @abstractmethod
    def __len__(self) -> int:
        """The number of profiles."""


def check_profile(profile_id: int, destination: int) -> None:
    """Raise ValueError unless the two can be stored; every engine calls this first in `add`."""
    if type(profile_id) is not int or type(destination) is not int:
        raise ValueError(f"profile id {profile_id!r} and destination {destination!r}: both are whole numbers")
    if not 0 <= profile_id <= MAX_PROFILE_ID:
        raise ValueError(f"profile id {profile_id}: expected 0 to {MAX_PROFILE_ID}")
    if destination < 0 or destination.bit_length() > MAX_DESTINATION_BITS:
        raise ValueError(
            f"destination of profile {profile_id}: expected a bit vector of at most {MAX_DESTINATION_BITS} bits,"
            f" found {'a negative number' if destination < 0 else f'{destination.bit_length()} bits'}"
        )


def check_text(text: str) -> None:
    """Raise InvalidConstraint at the first character that is none; every engine asks this of a text it stores."""
    if not text.isascii() and (found := SURROGATE.search(text)) is not None:
        reason = f"{found.group()!r} is half of a character, a lone surrogate; texts are Unicode characters only"
        raise InvalidConstraint(text, found.start(), reason)


def sealed(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a digest of its columns; every engine's `snapshot` ends with this."""
    return {**snapshot, "digest": _digest(snapshot)}


def check_snapshot(snapshot: Snapshot, engine: str, version: int) -> None:
    """Raise ValueError unless the snapshot was made by this engine in this layout, and is whole.

    A column that lost its end or its type on the way would else make an engine that answers wrongly, much later.
    """
    if snapshot.get("engine") != engine or snapshot.get("version") != version:
        raise ValueError(
            f"snapshot of engine {snapshot.get('engine')!r} version {snapshot.get('version')!r}:"
            f" this is engine {engine!r} version {version}; take the snapshot anew"
        )
    if snapshot.get("digest") != _digest(snapshot):
        raise ValueError(
            f"snapshot of engine {engine!r}: damaged, its columns are not those that were written;"
            " ship it again, or take it anew"
        )


def _digest(snapshot: Snapshot) -> int:
    """Of the names, types and contents of all columns but itself. It finds accidents; a forger can compute it, too."""
    digest = 0
    for name, column in sorted(snapshot.items()):
        if name == "digest":
            continue
        if isinstance(column, np.ndarray):
            kind = f"{column.dtype.str} {column.shape}"
        else:
            kind = f"{type(column).__name__} {len(column) if isinstance(column, list) else ''}"
        digest = crc32(_content(column), crc32(f"{name} {kind}".encode("utf-8", "surrogatepass"), digest))
    return digest


def _content(column: Column) -> bytes:
    if isinstance(column, np.ndarray):
        return np.ascontiguousarray(column).tobytes()
    if not isinstance(column, list):
        return repr(column).encode()
    kinds = set(map(type, column))
    if kinds == {str}:
        return "\0".join(cast("list[str]", column)).encode("utf-8", "surrogatepass")
    if kinds == {int}:
        with suppress(OverflowError):
            return np.array(column, dtype=np.int64).tobytes()
    # Not in decimal: a destination may have 65,536 bits, and Python refuses to write that many digits.
    return ",".join([hex(item) if isinstance(item, int) else repr(item) for item in column]).encode()


@contextmanager
def uncollected() -> Iterator[None]:
    """For loading: a hundred thousand new objects, none of them garbage; looking for it takes as long as all else.

    Afterwards they count as old, which is what they will be: otherwise the next allocation would look at all of them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Together these two move what is young to the oldest generation; what a user has frozen must stay so.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if collecting:
            gc.enable()


class DestinationCounts:
    """How many profiles lead to each bit of a vector, so that a removal knows which bits go (PGR-09..11).

    The counts stand upright: bit b of `planes[i]` is bit i of the count of destination b. Adding a destination is
    adding a row of bits with carry, whatever the number of destinations: two operations on average, and 20 planes
    count a million. While every count is one, which is the usual case deep in an index, `planes` is None and `mask`
    says everything.

    The invariant: `mask` is the OR of the planes. Rejected: a dict of counts. It is 232 bytes at each of the many
    places that count a single profile, and needs a loop over the bits of a destination.
    """

    __slots__ = ("mask", "planes")

    def __init__(self) -> None:
        #: The OR of all destinations counted here.
        self.mask: int = 0
        self.planes: list[int] | None = None

    def count(self, destination: int) -> None:
        if self.planes is None and not self.mask & destination:
            self.mask |= destination
        else:
            self._carry(destination, 0)

    def count_many(self, destinations: Iterable[int]) -> None:
        """Count each of them; equal ones cost the logarithm of their number."""
        for destination, times in Counter(destinations).items():
            if times == 1:
                self.count(destination)
                continue
            for power in range(times.bit_length()):
                if times >> power & 1:
                    self._carry(destination, power)

    def discount(self, destination: int) -> None:
        """Take back what `count` was given; the caller never takes back more."""
        assert self.mask & destination == destination, "a destination that was never counted"
        if self.planes is None:
            self.mask ^= destination
        else:
            self._borrow(destination, 0)
            self._settle()

    def count_all(self, other: DestinationCounts) -> None:
        """Count all that another has counted, without going through its profiles."""
        if other.planes is None:
            self.count(other.mask)
        else:
            for power, plane in enumerate(other.planes):
                self._carry(plane, power)

    def discount_all(self, other: DestinationCounts) -> None:
        if other.planes is None:
            self.discount(other.mask)
        else:
            assert self.planes is not None, "more taken back than was counted"
            for power, plane in enumerate(other.planes):
                self._borrow(plane, power)
            self._settle()

    def _carry(self, carry: int, power: int) -> None:
        if self.planes is None:
            self.planes = [self.mask]
        planes = self.planes
        self.mask |= carry
        while carry:
            if power >= len(planes):
                planes.extend([0] * (power + 1 - len(planes)))
            plane = planes[power]
            planes[power] = plane ^ carry
            carry &= plane
            power += 1

    def _borrow(self, borrow: int, power: int) -> None:
        planes = self.planes
        assert planes is not None
        while borrow:
            plane = planes[power]
            planes[power] = plane ^ borrow
            borrow &= ~plane
            power += 1

    def _settle(self) -> None:
        planes = self.planes
        assert planes is not None
        while len(planes) > 1 and not planes[-1]:
            planes.pop()
        mask = 0
        for plane in planes:
            mask |= plane
        self.mask = mask
        if len(planes) == 1:
            self.planes = None

    def of(self, destination: int) -> int:
        """How many profiles lead to this one bit."""
        if self.planes is None:
            return 1 if self.mask & destination else 0
        return sum(1 << index for index, plane in enumerate(self.planes) if plane & destination)

    def items(self) -> Iterator[tuple[int, int]]:
        """(bit, count) by ascending bit, in the manner of the papers' {s1: 2, s2: 1}."""
        rest = self.mask
        while rest:
            lowest = rest & -rest
            yield lowest, self.of(lowest)
            rest ^= lowest


class Crowd(DestinationCounts):
    """The profiles that share one constraint: two or more ids, ascending, and their destinations.

    A constraint of one profile, the usual case, is held as the bare id: at a million profiles that is 150 MB less.
    Rejected: sorting when asked. The answer is the whole list, so keeping it sorted costs a move of memory at most.
    """

    __slots__ = ("ids",)

    def __init__(self) -> None:
        self.mask: int = 0
        self.planes: list[int] | None = None
        self.ids: list[int] = []

    def admit(self, profile_id: int, destination: int) -> None:
        ids = self.ids
        if not ids or profile_id > ids[-1]:
            ids.append(profile_id)
        else:
            insort(ids, profile_id)
        self.count(destination)

    def dismiss(self, profile_id: int, destination: int) -> None:
        del self.ids[bisect_left(self.ids, profile_id)]
        self.discount(destination)


#: Up to this many profiles are counted one by one faster than by how often each destination comes.
FEW = 16
#: Those who share a constraint: the bare id of the only one, or a crowd.
Holder = int | Crowd
Item = TypeVar("Item")


def id_column(profile_ids: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(profile_ids, dtype=np.int64)


def holder_columns(holders: Iterable[Holder]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The ids of all holders, one after the other, and how many each has."""
    ids: list[int] = []
    crowds: list[int] = []
    for holder in holders:
        if isinstance(holder, Crowd):
            ids += holder.ids
            crowds.append(len(holder.ids))
        else:
            ids.append(holder)
            crowds.append(1)
    return id_column(ids), np.array(crowds, dtype=np.int32)


def holders_of(ids: NDArray[np.int64], crowds: NDArray[np.int32], destinations: Mapping[int, int]) -> list[Holder]:
    """The holders of such columns; objects are made for crowds only."""
    ends = np.cumsum(crowds, dtype=np.int64)
    starts = ends - crowds
    holders: list[Holder] = ids[starts].tolist()
    shared = np.flatnonzero(crowds > 1)
    profiles: list[int] = ids.tolist() if len(shared) else []
    for at, start, end in zip(shared.tolist(), starts[shared].tolist(), ends[shared].tolist(), strict=True):
        crowd = holders[at] = Crowd()
        crowd.ids = profiles[start:end]
        if end - start > FEW:
            crowd.count_many([destinations[profile_id] for profile_id in crowd.ids])
        else:
            for profile_id in crowd.ids:
                crowd.count(destinations[profile_id])
    return holders


def spread(items: Sequence[Item], crowds: NDArray[np.int32]) -> Iterable[Item]:
    """Each item as often as its crowd is large: what every id of the columns above has."""
    if len(crowds) == crowds.sum():
        return items
    return map(items.__getitem__, np.repeat(np.arange(len(crowds)), crowds).tolist())
