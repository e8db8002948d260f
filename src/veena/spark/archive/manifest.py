"""What an archive holds: one file a table that lists exactly the committed Parquet files, replaced as a whole.

    DIR/events/_manifest.json
    DIR/events/date=2026-11-16/part-....parquet

The manifest is the truth, and the only one: a row is in the archive if and only if its offset lies below `offsets` of
its broker (and was kept there long enough). Files that it does not list are of a batch that did not finish, or were
replaced by compaction, and nobody may read them. Whoever reads by it never sees a torn file, half a batch or a row
twice, whatever was killed, and needs nothing of Spark for it: `path` is relative to the table's directory.

A version of Veena that knows more columns appends them; files from before do not have them, and `read` gives NULL.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated, Final

import msgspec

from veena.errors import PipelineError
from veena.spark.log.tables import TABLES

NAME: Final = "_manifest.json"
VERSION: Final = 1
#: An archive of more has not been compacted for a long time; the manifest is written anew for every batch.
MAX_FILES: Final = 1_000_000
#: Holes that are listed: the latest, if there are more.
MAX_GAPS: Final = 10_000

Count = Annotated[int, msgspec.Meta(ge=0)]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """One committed file: its path under the table's directory, its rows and bytes."""

    path: str
    rows: Count
    bytes: Count

    @property
    def date(self) -> str:
        """The day of its rows, as in its path."""
        return self.path.partition("/")[0].removeprefix("date=")


class Retired(msgspec.Struct, frozen=True):
    """A file that compaction replaced at that time (seconds since 1970): it stays a while for those who read it."""

    path: str
    at: float


class Gap(msgspec.Struct, frozen=True):
    """Rows that a broker had given up before they were archived: offsets `start` to `end`, not included.

    An empty one says that the log ended there and another began: the broker came back without all of its store.
    """

    broker: str
    log: str
    start: Count
    end: Count


class Manifest(msgspec.Struct, frozen=True):
    """One table of an archive as it was committed last."""

    table: str
    #: Under which name brokers know how far this archive is.
    reader: str
    version: int = VERSION
    #: How often it was committed.
    commits: Count = 0
    columns: dict[str, str] = {}
    #: The next offset of each log: see `source.offsets`.
    offsets: dict[str, int | dict[str, int]] = {}
    files: Annotated[tuple[File, ...], msgspec.Meta(max_length=MAX_FILES)] = ()
    retired: tuple[Retired, ...] = ()
    gaps: tuple[Gap, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def table_directory(archive: Path, table: str) -> Path:
    """Where the files of a table are."""
    if table not in TABLES:
        raise PipelineError(f"table {table!r}: an archive has no such table; use one of {', '.join(TABLES)}")
    return archive / table


def load(archive: Path, table: str) -> Manifest | None:
    """The last commit; None where nothing was ever committed."""
    path = table_directory(archive, table) / NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: not a manifest of an archive ({error}); restore it from a copy") from None
    if found.version > VERSION:
        raise PipelineError(f"{path}: written by a newer Veena (version {found.version}); read it with that one")
    if found.table != table:
        raise PipelineError(f"{path}: the manifest of table {found.table!r}; was it moved? Put it back")
    return found


def commit(archive: Path, manifest: Manifest) -> None:
    """Replace the manifest: after this the new one counts, whatever happens; before it the old one does."""
    if len(manifest.files) > MAX_FILES:
        raise PipelineError(
            f"{archive}: {manifest.table} has {len(manifest.files)} files; at most {MAX_FILES}: run with --compact"
        )
    directory = table_directory(archive, manifest.table)
    directory.mkdir(parents=True, exist_ok=True)
    written = directory / f"{NAME}.{os.getpid()}.tmp"
    with written.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        file.flush()
        os.fsync(file.fileno())
    written.replace(directory / NAME)
    sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Let the names in a directory survive a loss of power."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(archive: Path, manifest: Manifest) -> int:
    """Remove what no manifest lists any more: files of batches that did not finish. How many there were.

    Only for who alone writes this archive, and while no task of it runs.
    """
    directory = table_directory(archive, manifest.table)
    listed = {file.path for file in manifest.files} | {file.path for file in manifest.retired}
    removed = 0
    for path in directory.rglob("*"):
        is_ours = path.name.endswith((".parquet", ".tmp")) and path.is_file()
        if is_ours and str(path.relative_to(directory)) not in listed:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                removed += 1
    return removed
