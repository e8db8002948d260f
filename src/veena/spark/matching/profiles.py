"""Where the profiles of a bulk match come from: a file of JSON lines, Parquet, or the past of a network.

    {"id": 1, "engine": "selector", "condition": ["quotes", "price > 10"]}

A line has an id, an engine, a condition as `subscribe` takes it (a pair as a list) and perhaps a `destination`. Parquet
has the columns of `match`. An archive has who wanted what from when to when: its profiles are those that stood at a
time, numbered in the order of broker, session and subscription.

A stored set changes; `version` says when, without reading it: by the names, sizes and times of its files.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from veena.errors import PipelineError
from veena.matching.base.engine import Constraint
from veena.spark.matching.snapshot import Profile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A line is one profile, and no constraint has more than some kilobytes: a longer one is another kind of file.
LINE_BYTES_MAX: Final = 1 << 20
_ID: Final = ("broker", "session", "subscription")


class ProfileStore(Protocol):
    """A stored set of profiles that may change."""

    def version(self) -> str:
        """Another text whenever the profiles may be others."""
        ...

    def load(self, spark: SparkSession) -> DataFrame | list[Profile]: ...


@dataclass(frozen=True, slots=True)
class StoredProfiles:
    """A file of JSON lines, a Parquet file or directory, or the directory of an archive."""

    path: Path
    #: The time at which profiles of an archive stood; None for the end of it.
    as_of: datetime | None = None

    def version(self) -> str:
        root = self.path / "profiles" if self.is_archive else self.path
        files = sorted(root.rglob("*")) if root.is_dir() else [root]
        digest = hashlib.blake2b(digest_size=16)
        try:
            for file in files:
                state = file.stat()
                digest.update(f"{file} {state.st_size} {state.st_mtime_ns}\n".encode())
        except FileNotFoundError:  # replaced while it was looked at: another version
            return f"changing at {file}"
        return digest.hexdigest()

    @property
    def is_archive(self) -> bool:
        return (self.path / "profiles").is_dir()

    def load(self, spark: SparkSession) -> DataFrame | list[Profile]:
        if not self.path.exists():
            raise PipelineError(f"profiles {self.path}: no such file or directory")
        if self.is_archive:
            return standing(_archived(spark, self.path), self.as_of)
        if self.as_of is not None:
            raise PipelineError(f"profiles {self.path}: only an archive knows what stood at {self.as_of}")
        if self.path.is_dir() or self.path.suffix == ".parquet":
            return spark.read.parquet(str(self.path))
        return read_lines(self.path)


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    engine: str
    condition: int | str | tuple[str, str | dict[str, str]]
    destination: int = 1


def read_lines(path: Path) -> list[Profile]:
    """The profiles of a file of JSON lines; raise PipelineError with the number of a line that is none."""
    decoder = msgspec.json.Decoder(_Line)
    found: list[Profile] = []
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX + 1), b""), 1):
            if not line.strip():
                continue
            try:
                if len(line) > LINE_BYTES_MAX:
                    raise msgspec.ValidationError(f"more than {LINE_BYTES_MAX:,} bytes")
                read = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise PipelineError(
                    f"profiles {path}, line {number}: {error}; expected for example"
                    ' {"id": 1, "engine": "selector", "condition": ["quotes", "price > 10"]}'
                ) from None
            found.append(Profile(read.id, read.engine, cast("Constraint", read.condition), read.destination))
    return found


def _archived(spark: SparkSession, archive: Path) -> DataFrame:
    from veena.spark.archive.archive import read

    found: Any = read(spark, str(archive), "profiles")
    return found  # type: ignore[no-any-return]


def standing(profiles: DataFrame, as_of: datetime | None = None) -> DataFrame:
    """The subscriptions that stood at a time, as `match` takes them; with client, broker, session and subscription.

    What is addressed to a client by its id is no constraint of an engine and is left out.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    rows = profiles.where("engine NOT IN ('', 'to') AND change IN ('added', 'active', 'removed')")
    if as_of is not None:
        rows = rows.where(F.col("at") <= F.lit(as_of))
    kept = F.struct("change", "client_id", "engine", "condition")
    last = (
        rows.groupBy(*_ID).agg(F.max_by(kept, F.struct("at", "offset")).alias("row")).where("row.change <> 'removed'")
    )
    numbered = F.row_number().over(Window.orderBy(*_ID)).cast("bigint").alias("profile_id")
    return last.select(numbered, "row.engine", "row.condition", "row.client_id", *_ID)
