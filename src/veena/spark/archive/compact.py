"""Compaction: many small files of a day become few large ones, under the eyes of those who read.

A batch leaves a file a task, so a quiet day leaves thousands. The new files are written first; then one manifest
replaces the other. Who reads by the old one still finds its files: they stay for `GRACE_S` and are removed by a later
commit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from veena.errors import PipelineError
from veena.spark.archive.files import Merge, on_spark, write_merge
from veena.spark.archive.manifest import File, Manifest, Retired, commit, table_directory
from veena.spark.log.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What a file should come to: some seconds of work for a task that reads it.
TARGET_BYTES: Final = 128 << 20
#: Fewer small files of a day are left as they are, or the same rows would be written again and again.
MIN_FILES: Final = 8
#: Longer than a query takes between looking at the manifest and opening its files, and most queries as a whole.
GRACE_S: Final = 900.0
#: Files of one merge: what a task holds open is one of them, but its list travels to it.
MAX_MERGED: Final = 2_000


def compact(
    spark: SparkSession, archive: Path, manifest: Manifest, *, min_files: int = MIN_FILES, target: int = TARGET_BYTES
) -> Manifest:
    """Merge what is small; the manifest that counts afterwards."""
    merges = list(plan(manifest.files, min_files, target))
    if not merges:
        return manifest
    directory = str(table_directory(archive, manifest.table))
    columns = manifest.columns | TABLES[manifest.table]
    written = on_spark(spark, merges, partial(write_merge, directory, columns))
    merged = {path for merge in merges for path in merge.paths}
    added = tuple(file for each in written for file in each.files)
    before = sum(file.rows for file in manifest.files if file.path in merged)
    if before != sum(file.rows for file in added):
        raise PipelineError(
            f"{directory}: {before} rows became {sum(file.rows for file in added)} in compaction, so nothing was "
            "changed; check the disk, and report it"
        )
    now = time.time()
    after = msgspec.structs.replace(
        manifest,
        columns=columns,
        commits=manifest.commits + 1,
        files=tuple(file for file in manifest.files if file.path not in merged) + added,
        retired=manifest.retired + tuple(Retired(path, now) for path in sorted(merged)),
    )
    commit(archive, after)
    return after


def plan(files: Iterable[File], min_files: int, target: int) -> Iterator[Merge]:
    """Which files of which day are merged with which: small ones in their order, up to the target."""
    days: dict[str, list[File]] = {}
    for file in files:
        if file.bytes < target // 2:
            days.setdefault(file.date, []).append(file)
    for date in sorted(days):
        if len(days[date]) < min_files:
            continue
        bundle: list[str] = []
        size = 0
        for file in days[date]:
            if bundle and (size + file.bytes > target or len(bundle) >= MAX_MERGED):
                yield Merge(date, tuple(bundle))
                bundle, size = [], 0
            bundle.append(file.path)
            size += file.bytes
        if len(bundle) > 1:
            yield Merge(date, tuple(bundle))


def without_old(archive: Path, manifest: Manifest, grace_s: float = GRACE_S) -> Manifest:
    """The same without files that were replaced long ago; they are removed. To be committed by the caller."""
    oldest = time.time() - grace_s
    gone = [file for file in manifest.retired if file.at <= oldest]
    directory = table_directory(archive, manifest.table)
    for file in gone:
        with contextlib.suppress(FileNotFoundError):
            (directory / file.path).unlink()
    kept = tuple(file for file in manifest.retired if file.at > oldest)
    return msgspec.structs.replace(manifest, retired=kept) if gone else manifest
