"""Stored advertisements: snapshots of what a network offers, and queries over them that answer as the network does.

    snapshot_adverts(url)              --> what can be found from that broker now, as an Arrow table
    store_adverts(archive, table)      --> DIR/adverts/taken-....parquet
    trim_adverts(archive, since)       --> without those that answer nothing since then
    query(spark, archive, sql=...)     --> the answer that the network would have given there and then (DSC-04)

Advertisements stand with controllers, not in logs, so they are asked for: one query for everything, by a client like
any other. A snapshot is one file, written aside and renamed: nobody reads half of one. What it holds is what may be
found from the broker that was asked; its address goes with it, so that a smaller realm can be asked for later.

A query over the archive is read, put to each advertisement, cut and merged by the code of the brokers
(`core.discovery.query`): in every task as at a controller, in the driver as at the asker. So the answers cannot differ.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veena.address import Unit, format_address, parse_address
from veena.client.arguments import level_of
from veena.core.boundary.discovery import FoundAdvert
from veena.core.discovery.query import AdvertQuery
from veena.core.wire.discovery import Advertisement, FoundRow
from veena.errors import PipelineError, VeenaError
from veena.spark.log.connection import Access

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DIRECTORY: Final = "adverts"
#: Everything that a network has is one answer.
TIMEOUT_S: Final = 10.0
ANYBODY: Final = Access()
_logger = logging.getLogger("veena.spark")
_FANOUT_MAX: Final = 256
_PREFIX: Final = "taken-"
_ROW: Final = "row binary"
_COLUMNS: Final = "client string, name string, home string, asker string, packed binary, xml binary, is_text boolean"

_encoder = msgspec.msgpack.Encoder(order="sorted")
_rows = msgspec.msgpack.Decoder(FoundRow)


@dataclass(frozen=True, slots=True)
class ArchivedAnswer:
    """What a query found; `taken` is when the snapshot was made that answered it, `silent` what was missing then."""

    columns: tuple[str, ...]
    rows: tuple[FoundAdvert, ...]
    matched: int
    taken: datetime
    silent: tuple[str, ...]


# --- taking and keeping ---


def snapshot_adverts(url: str | Sequence[str], access: Access = ANYBODY, *, timeout: float = TIMEOUT_S) -> pa.Table:
    """Everything that can be found from a broker now; units that did not answer are named in the metadata `silent`."""
    import pyarrow as pa

    from veena import blocking

    tls = access.context() if access.ca_file or access.cert_file else None
    options: dict[str, Any] = {"client_id": access.client_id} if access.client_id else {}
    with blocking.connect(
        url, user=access.user, password=access.password, token=access.token, tls=tls, **options
    ) as client:
        answer = client.query(sql="SELECT * FROM adverts", realm="system", timeout=timeout)
        asker = client.broker
    if answer.truncated:
        raise PipelineError(
            f"{answer.matched} advertisements are more than one answer of {url} holds: ask a broker in each part"
        )
    assert asker is not None
    rows = [
        {
            "client": found.client, "name": found.name, "home": format_address(found.home),
            "asker": format_address(asker), "packed": _encoder.encode(dict(found.properties or {})),
            "properties": [(name, _text(value)) for name, value in (found.properties or {}).items()],
            "xml": found.xml.encode() if isinstance(found.xml, str) else found.xml,
            "is_text": isinstance(found.xml, str),
        }
        for found in answer.rows
    ]  # fmt: skip
    texts = [(name, pa.string()) for name in ("client", "name", "home", "asker")]
    schema = pa.schema(
        [*texts, ("packed", pa.binary()), ("properties", pa.map_(pa.string(), pa.string())), ("xml", pa.binary()),
         ("is_text", pa.bool_())],
        metadata={
            "asker": format_address(asker), "silent": " ".join(map(format_address, answer.silent)),
            "taken": datetime.now(UTC).isoformat(),
        },
    )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema)


def store_adverts(archive: str | Path, table: pa.Table) -> Path:
    """Put a snapshot into an archive; the file."""
    import pyarrow.parquet as pq

    directory = Path(archive) / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    taken = datetime.fromisoformat(table.schema.metadata[b"taken"].decode())
    path = directory / f"{_PREFIX}{taken:%Y%m%dT%H%M%S%f}.parquet"
    aside = directory / f".{path.name}.{os.getpid()}.tmp"
    pq.write_table(table, aside)
    aside.replace(path)
    return path


def keep_adverts(
    archive: str | Path,
    url: str | Sequence[str],
    access: Access,
    every_s: float,
    over: threading.Event,
    keep_s: float | None = None,
) -> None:
    """Take a snapshot so often, until `over` is set; one that is like the last before is not kept again. With `keep_s`
    those go that nothing within so many seconds needs."""
    while True:
        try:
            table = snapshot_adverts(url, access)
            if not _is_last(archive, table):
                store_adverts(archive, table)
        except (VeenaError, OSError) as error:  # the archive goes on, and so does this
            _logger.warning("no snapshot of advertisements, the next is in %g s: %s", every_s, error)
        if keep_s is not None:
            _trim(archive, keep_s)
        if over.wait(every_s):
            return


def trim_adverts(archive: str | Path, since: datetime) -> list[Path]:
    """Remove the snapshots that answer nothing since then; those that were.

    A snapshot stands for all times until the next, because one that is like it is not kept: so the last one from before
    stays, and whatever is asked for since then has an answer.
    """
    gone = [old for (_, old), (following, _) in pairwise(snapshots(archive)) if following <= since]
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def _trim(archive: str | Path, keep_s: float) -> None:
    try:
        trim_adverts(archive, datetime.now(UTC) - timedelta(seconds=keep_s))
    except OSError as error:  # the archive goes on, with more than was asked for
        _logger.warning("old snapshots of advertisements stay: %s", error)


def _is_last(archive: str | Path, table: pa.Table) -> bool:
    import pyarrow.parquet as pq

    taken = snapshots(archive)
    if not taken:
        return False
    last = pq.read_table(taken[-1][1])
    was_silent = (last.schema.metadata or {}).get(b"silent")
    return bool(last.equals(table)) and was_silent == table.schema.metadata[b"silent"]


def snapshots(archive: str | Path) -> list[tuple[datetime, Path]]:
    """The snapshots of an archive, the oldest first."""
    found = sorted((Path(archive) / DIRECTORY).glob(f"{_PREFIX}*.parquet"))
    return [
        (datetime.strptime(path.stem.removeprefix(_PREFIX), "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC), path)
        for path in found
    ]


# --- asking ---


def query(
    spark: SparkSession,
    archive: str | Path,
    *,
    sql: str | None = None,
    xpath: str | None = None,
    namespaces: Mapping[str, str] | None = None,
    realm: str = "system",
    as_of: datetime | None = None,
) -> ArchivedAnswer:
    """The answer from the last snapshot, or the last one not later than `as_of`; as `client.query` at its broker."""
    import pyarrow.parquet as pq

    if (sql is None) == (xpath is None):
        raise PipelineError("a query needs sql=... or xpath=..., one of them")
    asked = (sql is not None, sql or xpath or "", tuple(sorted((namespaces or {}).items())))
    judge = _query(asked)  # in the driver first: who wrote it wrong is told at once
    taken, path = _snapshot(archive, as_of)
    metadata = pq.read_schema(path).metadata
    around = _around(metadata[b"asker"].decode(), realm)

    def answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _answers(batches, asked, around)

    parts = spark.read.parquet(str(path)).select(*_names()).mapInArrow(answers, f"{_ROW}, matched bigint").collect()
    matched = sum(part["matched"] or 0 for part in parts)
    rows = judge.merge(_rows.decode(bytes(part["row"])) for part in parts if part["row"] is not None)
    return ArchivedAnswer(
        judge.columns, tuple(map(judge.found, rows)), matched, taken, tuple(metadata[b"silent"].decode().split())
    )


def _query(asked: tuple[bool, str, tuple[tuple[str, str], ...]]) -> AdvertQuery:
    is_sql, text, namespaces = asked
    return AdvertQuery(is_sql, text, dict(namespaces), True)


def _snapshot(archive: str | Path, as_of: datetime | None) -> tuple[datetime, Path]:
    found = [each for each in snapshots(archive) if as_of is None or each[0] <= as_of]
    if not found:
        when = "" if as_of is None else f" from before {as_of.isoformat()}"
        raise PipelineError(
            f"{Path(archive) / DIRECTORY} has no snapshot of advertisements{when}: take one with"
            " `veena pipeline adverts --url URL --archive DIR`"
        )
    return found[-1]


def _around(asker: str, realm: str) -> Unit:
    """The unit that a query does not leave."""
    address, level = parse_address(asker, fanout=_FANOUT_MAX), level_of(realm, "realm")
    return address[: max(0, len(address) - level)] if level else ()


def _answers(
    batches: Iterator[pa.RecordBatch], asked: tuple[bool, str, tuple[tuple[str, str], ...]], around: Unit
) -> Iterator[pa.RecordBatch]:
    """What one task has found, in order and up to the limit; the first row says how many match."""
    import pyarrow as pa

    judge = _query(asked)
    found: list[FoundRow] = []
    for batch in batches:
        for row in batch.to_pylist():
            home = parse_address(row["home"], fanout=_FANOUT_MAX)
            advert = Advertisement(
                row["client"], row["name"], len(home), 0, row["packed"], row["xml"] or b"", row["is_text"]
            )
            if home[: len(around)] == around and judge.matches(advert, home):
                found.append(judge.row(advert, home))
    first = len({(row.client, row.name) for row in found})
    packed = [_encoder.encode(row) for row in judge.merge(found)]
    yield pa.RecordBatch.from_pydict(
        {
            "row": pa.array([*packed, None], pa.binary()),
            "matched": pa.array([*([None] * len(packed)), first], pa.int64()),
        }
    )


def _names() -> list[str]:
    return [part.split()[0] for part in _COLUMNS.split(", ")]


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
