"""Writes of the core as rows: many writes become one batch, a batch one `executemany` a table.

A batch holds for each table what the writes leave in the end, deletions apart from what is inserted after them; so it
says the same as the writes one by one (`Disk.write`), whatever their order. Frames are stored whole, as they go over a
link, each with a checksum: SQLite would not notice a bit that turned over inside one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from struct import pack, unpack
from typing import Any
from zlib import crc32

import msgspec

from veena.address import Address, format_address, identifiers, parse_address
from veena.core.boundary.staging import Staged, StageWrite
from veena.core.boundary.stored import (
    Attended,
    Entries,
    Entry,
    Forgotten,
    Identity,
    Kept,
    Known,
    LastHad,
    Noted,
    Progress,
    Reached,
    Registered,
    Released,
    ShelfKey,
    Shelved,
    Skip,
    Unshelved,
    Write,
)
from veena.core.durable.subscription import State
from veena.core.wire.event import BACKLOG, EventCodec, EventFrame
from veena.core.wire.event_id import EventKey, Place, Stream
from veena.matching.base.engine import Constraint
from veena.runtime.store import staging as store_staging
from veena.runtime.store.adverts import ATTENDED, DELETE_ADVERT, SET_ADVERT, advert_row
from veena.runtime.store.adverts import key_row as advert_key
from veena.runtime.store.positions import Standing
from veena.runtime.store.schema import signed

#: What the core holds in memory as well, so that the latest of it can be written later where the disk failed.
STATE = (Identity, Known, Progress, Registered, Reached, Forgotten, Shelved, Unshelved)
#: What is not worth a sync of its own.
UNSYNCED = (Noted, Attended)

Row = tuple[int | str | bytes | None, ...]

#: Rows of the log go in by statements for so many at once: each is one step for SQLite, outside the interpreter's lock,
#: where `executemany` would take the lock again for every row.
_INSERT_LOG = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)"
_LOG_CHUNKS = {rows: _INSERT_LOG + ", (?, ?, ?, ?, ?, ?)" * (rows - 1) for rows in (512, 64, 8, 1)}
_LOG_COLUMNS = 6
_INSERT_INBOX = "INSERT INTO inbox VALUES (?, ?)"
_OPEN_CURSOR = "INSERT OR IGNORE INTO cursors VALUES (?, ?, 0)"
_SET_CURSOR = "INSERT OR REPLACE INTO cursors VALUES (?, ?, 1)"
_SET_HAD = """INSERT INTO had VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (publisher, incarnation, lane)
    DO UPDATE SET stamp = excluded.stamp, sequence = excluded.sequence, heard_ns = excluded.heard_ns"""
_INSERT_SKIP = "INSERT OR IGNORE INTO skips VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_KNOWN = "INSERT INTO known VALUES (?, ?)"
_DELETE_KEPT = "DELETE FROM kept WHERE publisher = ? AND incarnation = ? AND stamp = ? AND sequence = ?"
_SET_KEPT = """INSERT INTO kept (publisher, incarnation, stamp, sequence, checksum, frame) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (publisher, incarnation, stamp, sequence)
    DO UPDATE SET checksum = excluded.checksum, frame = excluded.frame"""
_SET_REGISTERED = "INSERT OR REPLACE INTO registered VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SET_REACHED = "INSERT OR REPLACE INTO reached VALUES (?, ?)"
_SET_FLOOR = "INSERT OR REPLACE INTO floors VALUES (?, ?, ?, ?, ?, ?)"
_SET_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_SET_IDENTITY = "INSERT OR REPLACE INTO identity VALUES (1, ?, ?, ?)"


class Batch:
    """What one transaction writes."""

    def __init__(self, codec: EventCodec, standing: Standing) -> None:
        self._codec = codec
        self._standing = standing
        #: What is only true once it is committed.
        self._first_offset = self._next_offset = standing.next_offset
        self._peak_ns = standing.peak_ns
        self._last_for_units = standing.last_for_units
        self._bits = standing.bits
        self.size = 0
        #: All rows of the log in one list, column by column.
        self._log: list[int | bytes | None] = []
        self._inbox: list[tuple[int, int]] = []
        #: (publisher, offset) of what was published here.
        self.published: list[tuple[bytes, int]] = []
        self._opened: dict[int, int] = {}
        self._cursors: dict[int, int] = {}
        self._had: dict[Stream, Place] = {}
        self._skips: dict[tuple[Stream, Place], None] = {}
        self._known: Known | None = None
        self._identity: Identity | None = None
        self._released: dict[EventKey, None] = {}
        self._kept: dict[EventKey, EventFrame] = {}
        self._forgotten: dict[int, None] = {}
        self._registered: dict[int, Registered] = {}
        self._unreached: dict[int, None] = {}
        self._reached: dict[int, int] = {}
        self._floors: dict[int, dict[Stream, Place]] = {}
        self._unshelved: dict[ShelfKey, None] = {}
        self._shelved: dict[ShelfKey, Shelved] = {}
        self._attended: Attended | None = None
        #: What is written as records are.
        self.noted: list[Noted] = []
        #: What becomes of staged batches, in order.
        self._staging: list[StageWrite] = []

    def add(self, write: Write) -> None:
        """One write after those before it."""
        _ADD[type(write)](self, write)

    def _entry(self, write: Entry) -> None:
        frame, offset = write.frame, write.offset
        data = self._codec.encode(frame, 0)
        self.size += len(data)
        self._peak_ns = max(self._peak_ns, write.accepted_ns)
        inboxes = write.inboxes
        packed = None
        if inboxes:
            packed = pack(f"<{len(inboxes)}q", *inboxes)
            self._inbox += [(inbox, offset) for inbox in inboxes]
        elif not frame.flags & BACKLOG:
            self.published.append((bytes(frame.tail[: frame.publisher_length]), offset))
        self._log += (offset, write.accepted_ns, self._peak_ns, crc32(data), packed, data)
        if frame.to_serve:
            self._last_for_units = offset
            new = frame.to_serve & ~self._bits
            if new:
                self._bits |= new
                self._opened.update(dict.fromkeys(identifiers(new), offset))
        self._next_offset = offset + 1

    def _entries(self, write: Entries) -> None:
        """A burst: its frames are the bytes that came in, with their units filled in."""
        size = self._codec.vector_size
        vectors = write.to_serve.to_bytes(size, "big") + write.served.to_bytes(size, "big")
        first, offset = write.burst.first, write.offset
        publisher = bytes(first.tail[: first.publisher_length])
        self.size += len(write.burst.data)
        accepted_ns = write.accepted_ns
        peak_ns = self._peak_ns = max(self._peak_ns, accepted_ns)
        log, published = self._log, self.published
        for data in write.burst.rows(vectors):
            log += (offset, accepted_ns, peak_ns, crc32(data), None, data)
            published.append((publisher, offset))
            offset += 1
        self._last_for_units = offset - 1
        new = write.to_serve & ~self._bits
        if new:
            self._bits |= new
            self._opened.update(dict.fromkeys(identifiers(new), write.offset))
        self._next_offset = offset

    def _progress(self, write: Progress) -> None:
        for bit, cursor in write.cursors:
            self._cursors[bit.bit_length() - 1] = cursor
            self._bits |= bit

    def _last_had(self, write: LastHad) -> None:
        self._had[write.stream] = write.place

    def _skip(self, write: Skip) -> None:
        self._skips[write.stream, write.place] = None

    def _set_known(self, write: Known) -> None:
        self._known = write

    def _set_identity(self, write: Identity) -> None:
        self._identity = write

    def _keep(self, write: Kept) -> None:
        self._kept[write.key] = write.frame
        self.size += len(write.frame.tail)

    def _release(self, write: Released) -> None:
        for key in write.keys:
            self._released[key] = None
            self._kept.pop(key, None)

    def _register(self, write: Registered) -> None:
        self._registered[write.number] = write

    def _reach(self, write: Reached) -> None:
        self._reached[write.inbox] = write.cursor
        if write.floor:
            self._floors.setdefault(write.inbox, {}).update(write.floor)

    def _forget(self, write: Forgotten) -> None:
        made = self._registered.pop(write.number, None)
        before = self._standing.inboxes.get(write.number, ())
        self._forgotten[write.number] = None
        for inbox in before if made is None else inboxes_of(made):
            self._unreached[inbox] = None
            self._reached.pop(inbox, None)
            self._floors.pop(inbox, None)

    def _shelve(self, write: Shelved) -> None:
        self._shelved[write.home, write.advert.client, write.advert.name] = write
        self.size += len(write.advert.properties) + len(write.advert.xml)

    def _unshelve(self, write: Unshelved) -> None:
        key = (write.home, write.client, write.name)
        self._unshelved[key] = None
        self._shelved.pop(key, None)

    def _attend(self, write: Attended) -> None:
        self._attended = write

    def _note(self, write: Noted) -> None:
        self.noted.append(write)

    def _stage(self, write: StageWrite) -> None:
        self._staging.append(write)
        self.size += len(write.data) if isinstance(write, Staged) else 0

    # --- the transaction ---

    def run(self, connection: sqlite3.Connection, now_ns: int) -> None:
        """All of it, within a transaction that the caller has begun."""
        many = connection.executemany
        at = 0
        for rows, statement in _LOG_CHUNKS.items():
            size = rows * _LOG_COLUMNS
            while len(self._log) - at >= size:
                connection.execute(statement, self._log[at : at + size])
                at += size
        for statement, found in self._tables(now_ns):
            if found:
                many(statement, found)
        if self._known is not None:
            connection.execute("DELETE FROM known")
            many(_INSERT_KNOWN, [(at, format_address(unit)) for at, unit in enumerate(self._known.units)])
        if self._identity is not None:
            mine = self._identity
            connection.execute(_SET_IDENTITY, (mine.name, format_address(mine.address), signed(mine.incarnation)))
        if self._attended is not None:
            connection.execute(_SET_META, (ATTENDED, self._attended.at_ns))
        for write in self._staging:
            store_staging.write(connection, write)

    def _tables(self, now_ns: int) -> Iterable[tuple[str, Sequence[tuple[object, ...]]]]:
        """Statements for all but the log with their rows, deletions first."""
        yield _INSERT_INBOX, self._inbox
        yield _OPEN_CURSOR, list(self._opened.items())
        yield _SET_CURSOR, list(self._cursors.items())
        yield _SET_HAD, [(*stream_row(stream), *place_row(place), now_ns) for stream, place in self._had.items()]
        yield _INSERT_SKIP, [(*stream_row(stream), *place_row(place), now_ns) for stream, place in self._skips]
        yield _DELETE_KEPT, [key_row(key) for key in self._released]
        yield _SET_KEPT, [(*key_row(key), *self._checked(frame)) for key, frame in self._kept.items()]
        yield "DELETE FROM registered WHERE number = ?", [(number,) for number in self._forgotten]
        yield _SET_REGISTERED, [registered_row(each) for each in self._registered.values()]
        yield "DELETE FROM reached WHERE inbox = ?", [(inbox,) for inbox in self._unreached]
        yield "DELETE FROM floors WHERE inbox = ?", [(inbox,) for inbox in self._unreached]
        yield _SET_REACHED, list(self._reached.items())
        floors = chain.from_iterable(
            ((inbox, *each) for each in floor.items()) for inbox, floor in self._floors.items()
        )
        yield DELETE_ADVERT, [advert_key(key) for key in self._unshelved]
        yield SET_ADVERT, [advert_row(held) for held in self._shelved.values()]
        yield _SET_FLOOR, [(inbox, *stream_row(stream), *place_row(place)) for inbox, stream, place in floors]

    def _checked(self, frame: EventFrame) -> tuple[int, bytes]:
        data = self._codec.encode(frame, 0)
        return crc32(data), data

    def committed(self) -> None:
        """It is on disk: stand by it."""
        standing = self._standing
        standing.next_offset, standing.peak_ns = self._next_offset, self._peak_ns
        standing.last_for_units, standing.bits = self._last_for_units, self._bits
        for bit, offset in self._opened.items():
            standing.cursors.setdefault(bit, offset)
        standing.cursors.update(self._cursors)
        for number in self._forgotten:
            standing.inboxes.pop(number, None)
            standing.moving.pop(number, None)
        for number, made in self._registered.items():
            standing.inboxes[number] = inboxes_of(made)
            if is_moving(made):
                standing.moving.setdefault(number, self._first_offset)
            else:
                standing.moving.pop(number, None)
        for inbox in self._unreached:
            standing.reached.pop(inbox, None)
        standing.reached.update(self._reached)


_ADD: dict[type[Write], Callable[[Batch, Any], None]] = {
    Identity: Batch._set_identity,
    Entry: Batch._entry,
    Entries: Batch._entries,
    Progress: Batch._progress,
    LastHad: Batch._last_had,
    Skip: Batch._skip,
    Known: Batch._set_known,
    Kept: Batch._keep,
    Released: Batch._release,
    Registered: Batch._register,
    Reached: Batch._reach,
    Forgotten: Batch._forget,
    Shelved: Batch._shelve,
    Unshelved: Batch._unshelve,
    Attended: Batch._attend,
    Noted: Batch._note,
    **dict.fromkeys(store_staging.STAGE_WRITES, Batch._stage),
}


def inboxes_of(durable: Registered) -> tuple[int, ...]:
    return (*durable.inboxes, durable.aside) if durable.aside else durable.inboxes


_MOVING = (State.ARRIVING.value, State.OPEN.value)


def is_moving(durable: Registered) -> bool:
    """Whether the core tells by the entries for it what has come by another way already."""
    return durable.state in _MOVING


def stream_row(stream: Stream) -> tuple[str, int, int]:
    publisher, incarnation, lane = stream
    return (publisher, signed(incarnation), lane)


def place_row(place: Place) -> tuple[int, int]:
    return (signed(place[0]), place[1])


def key_row(key: EventKey) -> tuple[bytes, int, int, int]:
    publisher, incarnation, stamp, sequence = key
    return (publisher, signed(incarnation), signed(stamp), sequence)


def pack_condition(constraint: Constraint) -> bytes:
    """A constraint in any engine's form: a number, a text, or a pair of a text and a text or a map."""
    if isinstance(constraint, tuple):
        first, second = constraint
        return msgspec.msgpack.encode((first, second if isinstance(second, str) else dict(second)))
    return msgspec.msgpack.encode(constraint)


def unpack_condition(data: bytes) -> Constraint:
    return msgspec.msgpack.decode(data, type=int | str | tuple[str, str | dict[str, str]])


def unpack_inboxes(data: bytes | None) -> tuple[int, ...]:
    return unpack(f"<{len(data) // 8}q", data) if data else ()


def registered_row(given: Registered) -> Row:
    return (
        given.number,
        given.client_id,
        given.name,
        given.engine,
        pack_condition(given.constraint),
        given.scope,
        signed(given.version),
        pack(f"<{len(given.inboxes)}q", *given.inboxes),
        given.state,
        None if given.to is None else format_address(given.to),
        given.aside,
        given.owner,
        given.missed,
    )


def address_of(text: str) -> Address:
    return parse_address(text, fanout=256)
