"""Engines whose constraint is one value to be equal to: a dict from the value to those who want it.

A look-up tells which profiles match and, since the OR of their destinations is kept as profiles come and go, where the
event must go; nothing depends on the number of profiles (MAT-10, MAT-40). A value that one profile wants is stored as
that profile's bare id.

The invariant: `_holders` has a value exactly when a profile wants it; a `Crowd` there has at least two ids.
Rejected: a list of (id, destination) for each value, and the OR computed at each event: 200 bytes more a value and
work for every event that is needed only when a profile changes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Generic, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from veena.event import Event
from veena.matching.engine import (
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
        self._values: dict[int, Key] = {}
        self._destinations: dict[int, int] = {}
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
        holder = self._holders.get(value)
        if holder is None:
            self._holders[value] = profile_id
        elif isinstance(holder, Crowd):
            holder.admit(profile_id, destination)
        else:
            crowd = Crowd()
            crowd.admit(holder, self._destinations[holder])
            crowd.admit(profile_id, destination)
            self._holders[value] = crowd
        self._values[profile_id] = value
        self._destinations[profile_id] = destination

    def remove(self, profile_id: int) -> None:
        value = self._values.pop(profile_id)
        destination = self._destinations.pop(profile_id)
        holder = self._holders[value]
        if not isinstance(holder, Crowd):
            del self._holders[value]
            return
        holder.dismiss(profile_id, destination)
        if len(holder.ids) == 1:
            self._holders[value] = holder.ids[0]

    def explain(self, profile_id: int, event: Event) -> str:
        wanted, found = self._values[profile_id], self._value_of(event)
        if found is None:
            return f"unknown: the event has no {self.name}; the profile wants {wanted!r}"
        return MATCHES if found == wanted else f"failed: {self.name} is {found!r}, the profile wants {wanted!r}"

    def snapshot(self) -> Snapshot:
        ids, crowds = holder_columns(self._holders.values())
        return {
            "engine": self.name,
            "version": SNAPSHOT_VERSION,
            "values": cast("list[int] | list[str]", list(self._holders)),
            "crowds": crowds,
            "profiles": ids,
            "destinations": list(map(self._destinations.__getitem__, ids.tolist())),
        }

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Self:
        check_snapshot(snapshot, cls.name, SNAPSHOT_VERSION)
        ids = cast("NDArray[np.int64]", snapshot["profiles"])
        crowds = cast("NDArray[np.int32]", snapshot["crowds"])
        values = cast("list[Key]", snapshot["values"])
        profiles: list[int] = ids.tolist()
        engine = cls()
        with uncollected():
            engine._values = dict(zip(profiles, spread(values, crowds), strict=True))
            engine._destinations = dict(zip(profiles, cast("list[int]", snapshot["destinations"]), strict=True))
            engine._holders = dict(zip(values, holders_of(ids, crowds, engine._destinations), strict=True))
        return engine

    def statistics(self) -> Statistics:
        return Statistics(self.name, len(self._values), len(self._holders), self._evaluations, {})

    def __len__(self) -> int:
        return len(self._values)
