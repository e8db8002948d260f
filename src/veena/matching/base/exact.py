"""Engines whose constraint is one value to be equal to: a dict from the value to those who want it.

One look-up tells which profiles match; another, in a dict of its own, the OR of their destinations, which is kept as
profiles come and go. Nothing depends on the number of profiles (MAT-10, MAT-40). A value that one profile wants is
stored as that profile's bare id, and its mask is that profile's destination.

The invariant: `_holders` has a value exactly when a profile wants it, and `_masks` when one of these has a destination;
a `Crowd` there has at least two ids, and `_shared` has the destinations of exactly those. An engine that is told where
values lead (`lead`) has no profiles, and `_masks` alone.
Rejected: a list of (id, destination) for each value, and the OR computed at each event: 200 bytes more a value and
work for every event that is needed only when a profile changes. Also rejected: destinations by id, which makes a mask
two look-ups, both of them cold.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Generic, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from veena.event import Event
from veena.matching.base.engine import (
    MATCHES,
    Constraint,
    Crowd,
    Engine,
    Holder,
    Snapshot,
    Statistics,
    check_profile,
    check_snapshot,
    holder_columns,
    holders_of,
    sealed,
    spread,
    uncollected,
)

SNAPSHOT_VERSION = 2

Key = TypeVar("Key", bound=Hashable)


class ExactEngine(Engine, Generic[Key]):
    """What `integer` and `topic` share; they say which values there are and where an event has its own.

    `match` and `destinations` are written out in each of them: a call to a shared method costs as much as the look-up.
    """

    def __init__(self) -> None:
        #: None, which is what an event without a value asks for, is never a key.
        self._holders: dict[Key | None, Holder] = {}
        #: The OR of the destinations of those who want a value, where there is any.
        self._masks: dict[Key | None, int] = {}
        #: Of those that came by `add`. A caller who knows it himself spares 40 bytes a profile.
        self._values: dict[int, Key] = {}
        self._count = 0
        #: The destinations of profiles in crowds, by id.
        self._shared: dict[int, int] = {}
        self._evaluations = 0

    @abstractmethod
    def _check(self, constraint: Constraint) -> Key:
        """The value that a constraint names; raise InvalidConstraint."""

    @abstractmethod
    def _value_of(self, event: Event) -> Key | None: ...

    def add(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        check_profile(profile_id, destination)
        value = self._check(constraint)
        if profile_id in self._values:
            self.remove(profile_id)
        self._values[profile_id] = value
        self._hold(profile_id, value, destination)

    def hold(self, profile_id: int, constraint: Constraint, destination: int) -> None:
        """Add a profile that is not there yet, for a caller who will say what it asked for when it goes (`drop`)."""
        check_profile(profile_id, destination)
        self._hold(profile_id, self._check(constraint), destination)

    def drop(self, profile_id: int, constraint: Constraint) -> None:
        """Remove a profile that was given to `hold`."""
        self._drop(profile_id, self._check(constraint))

    def lead(self, constraint: Constraint, destination: int) -> bool:
        """Let a value lead there too, for a caller who asks for destinations only and gives no profiles: they would
        take three times as much. False where it does already."""
        value = self._check(constraint)
        mask = self._masks.get(value, 0)
        if mask & destination:
            return False
        self._masks[value] = mask | destination
        return True

    def mislead(self, constraint: Constraint, destination: int) -> None:
        """Let a value lead there no longer."""
        value = self._check(constraint)
        mask = self._masks[value] & ~destination
        if mask:
            self._masks[value] = mask
        else:
            del self._masks[value]

    def _hold(self, profile_id: int, value: Key, destination: int) -> None:
        self._count += 1
        holder = self._holders.get(value)
        if holder is None:
            self._holders[value] = profile_id
            if destination:
                self._masks[value] = destination
            return
        if not isinstance(holder, Crowd):
            crowd = Crowd()
            self._shared[holder] = self._masks.get(value, 0)
            crowd.admit(holder, self._shared[holder])
            self._holders[value] = holder = crowd
        self._shared[profile_id] = destination
        holder.admit(profile_id, destination)
        if holder.mask:
            self._masks[value] = holder.mask

    def remove(self, profile_id: int) -> None:
        self._drop(profile_id, self._values.pop(profile_id))

    def _drop(self, profile_id: int, value: Key) -> None:
        holder = self._holders[value]
        self._count -= 1
        if not isinstance(holder, Crowd):
            del self._holders[value]
            self._masks.pop(value, None)
            return
        holder.dismiss(profile_id, self._shared.pop(profile_id))
        if holder.mask:
            self._masks[value] = holder.mask
        else:
            self._masks.pop(value, None)
        if len(holder.ids) == 1:
            self._holders[value] = holder.ids[0]
            del self._shared[holder.ids[0]]

    def explain(self, profile_id: int, event: Event) -> str:
        wanted, found = self._values[profile_id], self._value_of(event)
        if found is None:
            return f"unknown: the event has no {self.name}; the profile wants {wanted!r}"
        return MATCHES if found == wanted else f"failed: {self.name} is {found!r}, the profile wants {wanted!r}"

    def snapshot(self) -> Snapshot:
        ids, crowds = holder_columns(self._holders.values())
        columns: Snapshot = {
            "engine": self.name,
            "version": SNAPSHOT_VERSION,
            "values": cast("list[int] | list[str]", list(self._holders)),
            "crowds": crowds,
            "profiles": ids,
            "destinations": self._destinations(),
        }
        return sealed(columns)

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Self:
        check_snapshot(snapshot, cls.name, SNAPSHOT_VERSION)
        ids = cast("NDArray[np.int64]", snapshot["profiles"])
        crowds = cast("NDArray[np.int32]", snapshot["crowds"])
        values = cast("list[Key]", snapshot["values"])
        profiles: list[int] = ids.tolist()
        destinations = cast("list[int]", snapshot["destinations"])
        is_shared = crowds > 1
        engine = cls()
        with uncollected():
            engine._values = dict(zip(profiles, spread(values, crowds), strict=True))
            engine._count = len(profiles)
            for at in np.flatnonzero(np.repeat(is_shared, crowds)).tolist():
                engine._shared[profiles[at]] = destinations[at]
            holders = holders_of(ids, crowds, engine._shared)
            engine._holders = dict(zip(values, holders, strict=True))
            firsts = map(destinations.__getitem__, (np.cumsum(crowds) - crowds).tolist())
            engine._masks = dict(zip(values, firsts if engine._shared else destinations, strict=True))
            for at in np.flatnonzero(is_shared).tolist():
                engine._masks[values[at]] = cast("Crowd", holders[at]).mask
            if not all(destinations):
                engine._masks = {value: mask for value, mask in engine._masks.items() if mask}
        return engine

    def _destinations(self) -> list[int]:
        """The destination of every profile, value by value."""
        if not self._shared:
            return [self._masks.get(value, 0) for value in self._holders]
        found: list[int] = []
        for value, holder in self._holders.items():
            if isinstance(holder, Crowd):
                found += map(self._shared.__getitem__, holder.ids)
            else:
                found.append(self._masks.get(value, 0))
        return found

    def statistics(self) -> Statistics:
        return Statistics(self.name, self._count, len(self._holders), self._evaluations, {})

    def __len__(self) -> int:
        return self._count
