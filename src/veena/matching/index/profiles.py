"""Who holds a constraint: profile ids and destinations by the small number that the index knows a constraint by.

The index speaks of owners, one for each distinct constraint. Here an owner is turned into profile ids and destinations,
in columns where it has one profile, which is the usual case, and by a `Crowd` where several profiles share it. A
destination is a number into a list of distinct vectors, since a unit has few of them and vectors may be of any length
(DST-08).

The invariant: `ids[owner]` is the id of the only profile, `SHARED` when `crowds` has the owner, and of no meaning when
the owner is free; `numbers[owner]` is the number of its destination likewise.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from veena.matching.base.engine import Crowd, Snapshot, id_column

#: Stands for "look among the crowds" in the columns.
SHARED = -1
_FIRST_CAPACITY = 64
#: Destinations of up to this many bits are joined in a column; the sign bit stays free.
WORD_BITS = 63
WORD = (1 << WORD_BITS) - 1
#: Up to this many destinations are joined one by one sooner than the distinct ones among them are found.
FEW = 8


class Profiles:
    """Profiles by id, and the profiles and destinations of each owner."""

    def __init__(self) -> None:
        self.owners: dict[int, int] = {}
        self.ids: NDArray[np.int64] = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self.numbers: NDArray[np.int32] = np.empty(_FIRST_CAPACITY, dtype=np.int32)
        self.crowds: dict[int, Crowd] = {}
        #: The destinations of profiles in crowds, by id.
        self._shared: dict[int, int] = {}
        #: The distinct destinations, and how many owners have each.
        self.vectors: list[int] = []
        #: By owner: the OR of its destinations. Of meaning only while all destinations fit a word, and how many do not.
        self._words: NDArray[np.int64] = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._wide = 0
        self._counts: list[int] = []
        self._known: dict[int, int] = {}
        self._free_vectors: list[int] = []
        self._free: list[int] = []
        self._last = 0

    def __len__(self) -> int:
        return len(self.owners)

    def new_owner(self) -> int:
        if self._free:
            return self._free.pop()
        if self._last == len(self.ids):
            capacity = self._last + self._last // 4
            self.ids = np.concatenate((self.ids, np.empty(capacity - self._last, dtype=np.int64)))
            self.numbers = np.concatenate((self.numbers, np.empty(capacity - self._last, dtype=np.int32)))
            self._words = np.concatenate((self._words, np.empty(capacity - self._last, dtype=np.int64)))
        self._last += 1
        return self._last - 1

    def attach(self, profile_id: int, owner: int, destination: int, *, is_new: bool) -> None:
        """Give a profile to an owner; the id is unknown so far."""
        self.owners[profile_id] = owner
        self._wide += destination.bit_length() > WORD_BITS
        if is_new:
            self.ids[owner] = profile_id
            self.numbers[owner] = self._number(destination)
            self._words[owner] = destination & WORD
            return
        crowd = self.crowds.get(owner)
        if crowd is None:
            crowd = self.crowds[owner] = Crowd()
            first, number = int(self.ids[owner]), int(self.numbers[owner])
            self._shared[first] = self.vectors[number]
            crowd.admit(first, self.vectors[number])
            self._release(number)
            self.ids[owner] = self.numbers[owner] = SHARED
        self._shared[profile_id] = destination
        crowd.admit(profile_id, destination)
        self._words[owner] = crowd.mask & WORD

    def detach(self, profile_id: int) -> tuple[int, int, bool]:
        """Take a profile away: its owner, its destination, and whether the owner has no profile any more."""
        owner = self.owners.pop(profile_id)
        crowd = self.crowds.get(owner)
        if crowd is None:
            number = int(self.numbers[owner])
            destination = self.vectors[number]
            self._wide -= destination.bit_length() > WORD_BITS
            self._release(number)
            self._free.append(owner)
            return owner, destination, True
        destination = self._shared.pop(profile_id)
        self._wide -= destination.bit_length() > WORD_BITS
        crowd.dismiss(profile_id, destination)
        self._words[owner] = crowd.mask & WORD
        if len(crowd.ids) == 1:
            del self.crowds[owner]
            self.ids[owner] = crowd.ids[0]
            self.numbers[owner] = self._number(self._shared.pop(crowd.ids[0]))
        return owner, destination, False

    def redirect(self, profile_id: int, destination: int) -> tuple[int, int]:
        """Lead a profile elsewhere: its owner, and where it led before."""
        owner = self.owners[profile_id]
        crowd = self.crowds.get(owner)
        if crowd is None:
            number = int(self.numbers[owner])
            before = self.vectors[number]
            self.numbers[owner] = self._number(destination)
            self._release(number)
            self._words[owner] = destination & WORD
        else:
            before = self._shared[profile_id]
            self._shared[profile_id] = destination
            crowd.count(destination)
            crowd.discount(before)
            self._words[owner] = crowd.mask & WORD
        self._wide += (destination.bit_length() > WORD_BITS) - (before.bit_length() > WORD_BITS)
        return owner, before

    def listed(self, owners: NDArray[np.int32]) -> list[int]:
        """The ids of the profiles of these owners, ascending; no owner stands there twice."""
        ids = self.ids.take(owners)
        if not self.crowds:
            ids.sort()
            listed: list[int] = ids.tolist()
            return listed
        alone = ids[ids != SHARED]
        alone.sort()
        listed = alone.tolist()
        if len(alone) < len(ids):
            for owner in owners[ids == SHARED].tolist():
                listed += self.crowds[owner].ids
            listed.sort()
        return listed

    def listed_few(self, owners: list[int]) -> list[int]:
        """The same of a few owners."""
        if not owners:
            return []
        found: list[int] = []
        for owner in owners:
            crowd = self.crowds.get(owner) if self.crowds else None
            if crowd is None:
                found.append(int(self.ids[owner]))
            else:
                found += crowd.ids
        found.sort()
        return found

    def listed_each(self, places: NDArray[np.int64], owners: NDArray[np.int32], count: int) -> list[list[int]]:
        """The ids of all profiles of the owners at each place, ascending; there are so many places."""
        if not len(places):
            return [[] for _ in range(count)]
        ids = self.ids.take(owners)
        if self.crowds:
            shared = ids == SHARED
            crowds = [self.crowds[owner].ids for owner in owners[shared].tolist()]
            sizes = [len(crowd) for crowd in crowds]
            more = np.fromiter((each for crowd in crowds for each in crowd), dtype=np.int64, count=sum(sizes))
            places = np.concatenate((places[~shared], np.repeat(places[shared], sizes)))
            ids = np.concatenate((ids[~shared], more))
        order = np.argsort(ids)
        places = places[order]
        # By place, and in one place as they are: NumPy sorts short numbers by their digits.
        order = order[np.argsort(places.astype(np.uint16) if count < 1 << 16 else places, kind="stable")]
        listed = ids[order].tolist()
        ends = np.cumsum(np.bincount(places, minlength=count)).tolist()
        return [listed[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def vector(self, owner: int) -> int:
        """The destinations of an owner."""
        number = int(self.numbers[owner])
        return self.crowds[owner].mask if number == SHARED else self.vectors[number]

    def union(self, owners: NDArray[np.int32], mask: int) -> int:
        """The mask with the destinations of these owners."""
        if not self._wide:
            return mask | int(np.bitwise_or.reduce(self._words.take(owners)))
        numbers = self.numbers.take(owners)
        if self.crowds:
            shared = numbers == SHARED
            for owner in owners[shared].tolist():
                mask |= self.crowds[owner].mask
            numbers = numbers[~shared]
        if len(numbers) > FEW:
            is_there = np.zeros(len(self.vectors), dtype=np.bool_)
            is_there[numbers] = True
            distinct = is_there.nonzero()[0].tolist()
        else:
            distinct = numbers.tolist()
        vectors = self.vectors
        for number in distinct:
            mask |= vectors[number]
        return mask

    def write(self) -> Snapshot:
        """The profiles as columns; destinations as numbers into the distinct ones."""
        held = np.fromiter(self.owners.values(), dtype=np.int32)
        numbers = self.numbers.take(held)
        vectors = self.vectors.copy()
        if self._shared:
            further = {vector: len(vectors) + at for at, vector in enumerate(dict.fromkeys(self._shared.values()))}
            vectors += further
            shared = [profile_id for profile_id in self.owners if profile_id in self._shared]
            numbers[numbers == SHARED] = [further[self._shared[profile_id]] for profile_id in shared]
        return {
            "profiles": id_column(self.owners),
            "owners": held,
            "destinations": vectors,
            "destination_numbers": numbers,
        }

    def read(self, snapshot: Snapshot, last: int) -> None:
        """Take the profiles of a snapshot, whose owners are numbers below `last`."""
        ids = cast("NDArray[np.int64]", snapshot["profiles"])
        held = cast("NDArray[np.int32]", snapshot["owners"])
        numbers = cast("NDArray[np.int32]", snapshot["destination_numbers"])
        vectors = cast("list[int]", snapshot["destinations"])
        self._last = last
        self.ids = np.empty(max(last, _FIRST_CAPACITY), dtype=np.int64)
        self.numbers = np.empty(max(last, _FIRST_CAPACITY), dtype=np.int32)
        holders = np.bincount(held, minlength=last)
        self._free = (holders == 0).nonzero()[0].tolist()
        is_alone = holders[held] == 1
        # Distinct again: a destination may stand there once for owners and once for crowds.
        renumbered = [self._number(vector) for vector in vectors]
        alone = np.array(renumbered, dtype=np.int32)[numbers[is_alone]]
        words = np.array([vector & WORD for vector in vectors], dtype=np.int64)
        wide = np.array([vector.bit_length() > WORD_BITS for vector in vectors], dtype=np.bool_)
        self._words = np.empty(max(last, _FIRST_CAPACITY), dtype=np.int64)
        self._words[held[is_alone]] = words[numbers[is_alone]]
        self._wide = int(wide[numbers[is_alone]].sum())
        self.ids[held[is_alone]] = ids[is_alone]
        self.numbers[held[is_alone]] = alone
        self.owners = dict(zip(ids.tolist(), held.tolist(), strict=True))
        for number, count in enumerate(np.bincount(alone).tolist()):
            self._counts[number] += count
        seen: set[int] = set()
        for at in (~is_alone).nonzero()[0].tolist():
            owner = int(held[at])
            self.attach(int(ids[at]), owner, vectors[numbers[at]], is_new=owner not in seen)
            seen.add(owner)
        for number in renumbered:
            self._release(number)

    def _number(self, destination: int) -> int:
        number = self._known.get(destination)
        if number is None:
            if self._free_vectors:
                number = self._free_vectors.pop()
                self.vectors[number] = destination
            else:
                number = len(self.vectors)
                self.vectors.append(destination)
                self._counts.append(0)
            self._known[destination] = number
        self._counts[number] += 1
        return number

    def _release(self, number: int) -> None:
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._known[self.vectors[number]]
            self.vectors[number] = 0
            self._free_vectors.append(number)
