"""What a broker noted for `explain` and `trace` (`core.journal`), on disk: kept over crashes, and as tables for audits.

    Noted --> notes   (one row each: what happened to events, packed; read back at a start)
          --> stays   (one row a subscription of a client while it was here, the latest word on it)
          --> lives   (when this broker was started, and when it was last known to live)
          --> deliveries, hops, profiles   (the same facts as columns, for whoever reads them in bulk)

Notes are not worth a sync and not worth a start: nobody waits for them, and a row that cannot be read any more is left
out. Subscriptions have a table of their own because one may stand for longer than any event is remembered.

Rejected: one row a fact (an event for ten thousand clients would be ten thousand rows); making the broker's memory out
of the tables for audits (they lack what only `explain` needs, and it would tie both forms together for ever).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from zlib import crc32

import msgspec

from veena.core.boundary.stored import Noted
from veena.core.journal import MAX_GAPS, MAX_STAYS
from veena.core.wire.trace_facts import EventNote, Note, Stay, StayNote

#: What a start reads of notes: as much as the broker keeps of events in memory, with their facts.
MAX_READ_NOTES = 400_000
MAX_READ_BYTES = 128 << 20
#: Of former lives as many are kept as a broker tells the gaps of.
LIVES = MAX_GAPS + 1

_encoder = msgspec.msgpack.Encoder()
_notes = msgspec.msgpack.Decoder(tuple[EventNote, ...])
_stay = msgspec.msgpack.Decoder(Stay)

_INSERT_NOTES = "INSERT INTO notes VALUES (?, ?, ?, ?, ?)"
_SET_STAY = "INSERT OR REPLACE INTO stays VALUES (?, ?, ?, ?, ?)"
_SET_LIFE = "INSERT INTO lives VALUES (?, ?) ON CONFLICT (life_ns) DO UPDATE SET at_ns = max(at_ns, excluded.at_ns)"
#: Those that stand before those that ended, the latest first.
_STAYS = "SELECT stay FROM stays ORDER BY ended_ns <> 0, begun_ns DESC LIMIT ?"


def write_notes(connection: sqlite3.Connection, noted: Sequence[Noted], number: int) -> int:
    """Write within a transaction, numbered from there on; the number that follows."""
    rows: list[tuple[int, int, int, int, bytes]] = []
    stays: dict[tuple[int, int, int], Stay] = {}
    lives: dict[int, int] = {}
    for each in noted:
        lives[each.life_ns] = each.at_ns
        events = tuple(note for note in each.notes if type(note) is EventNote)
        stays.update((note.stay.name, note.stay) for note in each.notes if type(note) is StayNote)
        if events:
            data = _encoder.encode(events)
            rows.append((number + len(rows), each.at_ns, each.life_ns, crc32(data), data))
    connection.executemany(_INSERT_NOTES, rows)
    connection.executemany(_SET_STAY, [(*name, stay.ended_ns, _encoder.encode(stay)) for name, stay in stays.items()])
    connection.executemany(_SET_LIFE, list(lives.items()))
    return number + len(rows)


def read_notes(
    connection: sqlite3.Connection, most: int = MAX_READ_NOTES, most_bytes: int = MAX_READ_BYTES
) -> list[Noted]:
    """What a start is told, in its order: every stay, the newest notes, and where each life ended."""
    found: list[Noted] = []
    size = oldest = 0
    for number, at_ns, life_ns, checksum, data in connection.execute(
        "SELECT number, at_ns, life_ns, checksum, notes FROM notes ORDER BY number DESC LIMIT ?", (most,)
    ):
        size += len(data)
        if size > most_bytes:
            break
        oldest = number
        notes = _read(checksum, data)
        if notes is not None:
            found.append(Noted(life_ns, at_ns, notes))
    found.reverse()
    found.sort(key=lambda noted: noted.at_ns)  # notes that came alone may be written before older ones that did not
    lives = dict(connection.execute("SELECT life_ns, at_ns FROM lives ORDER BY life_ns DESC LIMIT ?", (LIVES,)))
    by_life: dict[int, list[Noted]] = {}
    for noted in found:
        by_life.setdefault(noted.life_ns, []).append(noted)
    told: list[Noted] = []
    for life_ns in sorted({**lives, **by_life}):
        rows = by_life.get(life_ns, [])
        last_ns = max(lives.get(life_ns, 0), rows[-1].at_ns if rows else life_ns)
        # Where older notes were given up, the first life that is told begins where they do.
        begins_ns = rows[0].at_ns if rows and not told and oldest else life_ns
        told += [Noted(begins_ns, each.at_ns, each.notes) for each in (*rows, Noted(life_ns, last_ns, ()))]
    stays: list[Note] = [StayNote(stay) for stay in read_stays(connection)]
    if stays:
        first = told[0] if told else Noted(0, 0, ())
        told.insert(0, Noted(first.life_ns, first.at_ns, tuple(stays)))
    return told


def read_stays(connection: sqlite3.Connection) -> list[Stay]:
    """The subscriptions that are remembered, in the order in which they began."""
    stays: list[Stay] = []
    for (data,) in connection.execute(_STAYS, (MAX_STAYS,)):
        try:
            stays.append(_stay.decode(data))
        except msgspec.MsgspecError:
            continue
    return sorted(stays, key=lambda stay: stay.name)


def trim_notes(connection: sqlite3.Connection, before_ns: int, rows: int) -> None:
    """Give up subscriptions that ended before then, and lives beyond those that are told."""
    connection.execute(
        "DELETE FROM stays WHERE (begun_ns, session, subscription) IN (SELECT begun_ns, session, subscription"
        " FROM stays WHERE ended_ns > 0 AND ended_ns < ? LIMIT ?)",
        (before_ns, rows),
    )
    connection.execute(
        "DELETE FROM lives WHERE life_ns NOT IN (SELECT life_ns FROM lives ORDER BY life_ns DESC LIMIT ?)", (LIVES,)
    )


def _read(checksum: int, data: bytes) -> tuple[EventNote, ...] | None:
    if crc32(data) != checksum:
        return None
    try:
        return _notes.decode(data)
    except msgspec.MsgspecError:
        return None
