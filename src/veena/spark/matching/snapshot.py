"""The profiles of a bulk match: read and checked once on the driver, shipped as snapshots, held once in each worker.

A `ProfileSet` is what `match` makes of a table or a list of profiles. The broker's own engines read every constraint on
the driver, so a wrong one is found there, by its id, before a job starts. What travels are the engines' snapshots,
plain columns in one broadcast; a Python worker builds the engines from them at its first batch and keeps them for the
later tasks and queries that use the same set. Nothing is parsed twice and no verdict can differ from a broker's
(ORD-04). Inside, profiles have the numbers of their places, so that an id may be any bigint, a hash of something too.

Rejected: shipping the constraints and building engines in each worker: 15 us a profile in every worker instead of 1;
and splitting the profiles over the workers, as every event would have to visit all of them.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from veena import matching
from veena.errors import VeenaError
from veena.matching.base.engine import Constraint, Engine, Snapshot
from veena.runtime.store.rows import unpack_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Sets whose engines a Python worker keeps. Two while a stream changes from one version to the next; the others are
#: for a session that matches with several sets in turn. Each may hold hundreds of megabytes.
KEPT_SETS_MAX: Final = 4
#: Wrong profiles that an error names one by one.
NAMED_MAX: Final = 5
#: Destinations of more bits than a bigint without its sign are columns of bytes.
BIGINT_BITS: Final = 63
#: What a selector can read that is not in an event's section, and the column that holds it.
HEADER_COLUMNS: Final = {"JMSPriority": "priority", "JMSMessageID": "id", "JMSTimestamp": "published"}


class InvalidProfile(VeenaError, ValueError):
    """Profiles that no engine will store; the message names their ids and reasons."""


class Profile(NamedTuple):
    """One row of a list of profiles: the constraint as `subscribe` takes it, or packed as in the table `profiles`."""

    profile_id: int
    engine: str
    condition: Constraint | bytes
    destination: int = 1


@dataclass(frozen=True, slots=True)
class Rejected:
    """A profile that was left out, and why."""

    profile_id: int | None
    engine: str | None
    reason: str

    def __str__(self) -> str:
        return f"profile {self.profile_id} ({self.engine}): {self.reason}"


class ProfileSet:
    """Profiles that were read and checked; `match` and `destinations` take it in place of a table.

    Make one with `profile_set` when several frames are matched with the same profiles, or to see what was rejected.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        ids: NDArray[np.int64],
        rejected: Sequence[Rejected],
        readers: Mapping[str, int],
        destination_bits: int,
        has_destinations: bool,
    ) -> None:
        #: Names this set in every worker.
        self.name = uuid.uuid4().hex
        self.sizes = {name: len(engine) for name, engine in engines.items() if len(engine)}
        self.snapshots: dict[str, Snapshot] = {name: engines[name].snapshot() for name in self.sizes}
        #: The ids of the profiles by their numbers in the engines, ascending.
        self.ids = ids
        self.rejected = tuple(rejected)
        #: Header field of JMS -> the first profile whose selector names it.
        self.readers = dict(readers)
        #: The length of the longest destination.
        self.destination_bits = destination_bits
        self.has_destinations = has_destinations
        #: By application, as a new one has nothing of an old one's.
        self._carried: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._frames: dict[tuple[str, str], DataFrame] = {}

    def __len__(self) -> int:
        return sum(self.sizes.values())

    @property
    def is_wide(self) -> bool:
        """Whether destinations need bytes."""
        return self.destination_bits > BIGINT_BITS

    def carried(self, spark: SparkSession, names: Sequence[str]) -> Carrier:
        """What brings the snapshots of these engines to the workers of a session."""
        packed = Packed(self.ids, [(name, matching.ENGINES[name], self.snapshots[name]) for name in names])
        context = getattr(spark, "_sc", None)
        if context is None:  # Spark Connect has no broadcasts: the function brings them along
            return _Enclosed(packed)
        key = (str(context.applicationId), tuple(names))
        if key not in self._carried:
            self._carried[key] = context.broadcast(packed)
        carrier: Carrier = self._carried[key]
        return carrier

    def frame(self, spark: SparkSession, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """A small table made of this set, once for each application; `make` makes it."""
        context = getattr(spark, "_sc", None)
        if context is None:
            return make()
        key = (str(context.applicationId), name)
        if key not in self._frames:
            self._frames[key] = make()
        return self._frames[key]

    def release(self) -> None:
        """Give back what the executors hold of it; a frame that still needs it ships it again."""
        for broadcast in self._carried.values():
            broadcast.unpersist()

    def rejected_frame(self, spark: SparkSession) -> DataFrame:
        """The rejected profiles as a table."""
        rows = [(each.profile_id, each.engine, each.reason) for each in self.rejected]
        return spark.createDataFrame(rows, "profile_id bigint, engine string, reason string")


class Packed(NamedTuple):
    """What travels: the ids, and name, home and snapshot of each engine."""

    ids: NDArray[np.int64]
    engines: list[tuple[str, str, Snapshot]]


class Carrier(Protocol):
    """A broadcast, or what stands in for one."""

    @property
    def value(self) -> Packed: ...


class _Enclosed:
    def __init__(self, value: Packed) -> None:
        self.value = value


def profile_set(
    profiles: DataFrame | ProfileSet | Iterable[Profile | Sequence[Any] | Mapping[str, Any]],
    on_error: str = "raise",
) -> ProfileSet:
    """Read and check profiles: a table `profile_id, engine, condition[, destination]`, or a list of the same.

    A wrong one raises InvalidProfile; with `on_error="skip"` it is left out and stands in `rejected`.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error {on_error!r}: expected raise or skip")
    if isinstance(profiles, ProfileSet):
        return profiles
    has_destinations, is_bytes, rows = _rows(profiles)
    reading = _Reading()
    for profile in sorted(rows, key=_order):
        reading.add(profile)
    if reading.rejected and on_error == "raise":
        named = "; ".join(map(str, reading.rejected[:NAMED_MAX]))
        more = len(reading.rejected) - NAMED_MAX
        raise InvalidProfile(f"{named}{f'; and {more:,} more' if more > 0 else ''}")
    bits = max(reading.bits, BIGINT_BITS + 1) if is_bytes else reading.bits
    ids = np.array(reading.ids, dtype=np.int64)
    return ProfileSet(reading.engines, ids, reading.rejected, reading.readers, bits, has_destinations)


def _order(profile: Profile) -> int:
    """In the order of their ids, so that the same profiles make the same engines however they came."""
    return profile.profile_id if type(profile.profile_id) is int else -1


class _Reading:
    """The engines while they are filled."""

    def __init__(self) -> None:
        self.engines: dict[str, Engine] = {}
        self.rejected: list[Rejected] = []
        self.readers: dict[str, int] = {}
        self.bits = 0
        #: Of those that were taken, ascending.
        self.ids: list[int] = []

    def add(self, profile: Profile) -> None:
        number, name, condition, destination = profile
        try:
            if number is None or name is None or condition is None or destination is None:
                raise ValueError("a null in it; expected an id, an engine, a condition and a destination")
            if type(number) is not int or not -(1 << BIGINT_BITS) <= number < 1 << BIGINT_BITS:
                raise ValueError("an id is a whole number of 64 bits with a sign")
            if self.ids and self.ids[-1] == number:
                raise ValueError("this id is there twice; give each profile its own")
            constraint = unpack_condition(bytes(condition)) if isinstance(condition, bytes | bytearray) else condition
            engine = self.engines.get(name)
            if engine is None:
                engine = self.engines[name] = matching.create(name)
            engine.add(len(self.ids), constraint, destination)
        except (VeenaError, ValueError, TypeError, msgspec.DecodeError) as error:
            self.rejected.append(Rejected(number, name, str(error)))
            return
        self.ids.append(number)
        self.bits = max(self.bits, destination.bit_length())
        if name == "selector" and "JMS" in constraint[1]:  # type: ignore[index]
            for field in HEADER_COLUMNS:
                if field in constraint[1]:  # type: ignore[index]
                    self.readers.setdefault(field, number)


def _rows(profiles: Any) -> tuple[bool, bool, Iterator[Profile]]:
    """Whether there are destinations, whether they are bytes, and the profiles."""
    if hasattr(profiles, "toArrow"):
        return _table_rows(profiles)
    listed = [_listed(item) for item in profiles]
    return True, False, iter(listed)


def _listed(item: Profile | Sequence[Any] | Mapping[str, Any]) -> Profile:
    if isinstance(item, Profile):
        return item
    if isinstance(item, Mapping):
        known = {name: item[name] for name in Profile._fields if name in item}
        if len(known) == len(item) and len(known) >= 3:
            return Profile(**known)
    elif not isinstance(item, str | bytes) and 3 <= len(item) <= 4:
        return Profile(*item)
    raise InvalidProfile(f"profile {item!r}: expected (profile_id, engine, condition) and perhaps a destination")


def _table_rows(profiles: DataFrame) -> tuple[bool, bool, Iterator[Profile]]:
    kinds = dict(profiles.dtypes)
    wrong = [name for name in ("profile_id", "engine", "condition") if name not in kinds]
    if wrong or kinds["condition"] != "binary" or kinds.get("destination", "bigint") not in ("bigint", "int", "binary"):
        raise InvalidProfile(
            f"profiles with the columns {', '.join(f'{name} {kind}' for name, kind in kinds.items())}: expected"
            " profile_id bigint, engine string, condition binary and perhaps destination bigint or binary"
        )
    has_destinations = "destination" in kinds
    is_bytes = kinds.get("destination") == "binary"
    columns = [f"cast({name} as {kind}) as {name}" for name, kind in (("profile_id", "bigint"), ("engine", "string"))]
    if has_destinations:
        columns.append("destination" if is_bytes else "cast(destination as bigint) as destination")
    table = profiles.selectExpr(*columns, "condition").toArrow()
    found = [table.column(name).to_pylist() for name in ("profile_id", "engine", "condition")]
    if not has_destinations:
        return False, False, map(Profile, *found)
    vectors = table.column("destination").to_pylist()
    if is_bytes:
        vectors = [None if vector is None else int.from_bytes(vector, "big") for vector in vectors]
    return True, is_bytes, map(Profile, *found, vectors)


class Restored(NamedTuple):
    """A set in a worker."""

    engines: tuple[Engine, ...]
    ids: NDArray[np.int64]


#: By the name of the set and its engines: filled by the first task of a worker that needs them.
_restored: OrderedDict[tuple[str, tuple[str, ...]], Restored] = OrderedDict()


def restored(set_name: str, names: tuple[str, ...], carrier: Carrier) -> Restored:
    """The engines of a set in this worker."""
    key = (set_name, names)
    found = _restored.get(key)
    if found is None:
        ids, packed = carrier.value
        engines: list[Engine] = []
        for name, where, snapshot in packed:
            matching.register(name, where)  # an engine of the user's own is unknown here until now
            engines.append(matching.from_snapshot(snapshot))
        # PySpark keeps what a broadcast was read into; the engines have it all, so it would be held twice.
        vars(carrier).pop("_value", None)
        found = _restored[key] = Restored(tuple(engines), ids)
        while len(_restored) > KEPT_SETS_MAX:
            _restored.popitem(last=False)
    _restored.move_to_end(key)
    return found
