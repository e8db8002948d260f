"""Reading a store: ranges of the log, what a restart needs, a client's history. On a connection of its own.

A start reads everything but the log, and of the log those entries that a unit has not been served (by its cursor), or
that a registered durable subscription has not acknowledged, with a few before that, which a backlog may bring again;
where one is on its way between two brokers, all that are kept for it, because what came by another way is told apart by
them. Each costs its frame and about 300 bytes until the broker is made; of its frame nothing stays after that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zlib import crc32

import msgspec

from veena.core.boundary.stored import DOUBTFUL, Disk, Entry, Identity, Registered
from veena.core.wire.event import BACKLOG, EventCodec, EventFrame
from veena.errors import RemoteProtocolError, StoreError
from veena.event import EventId
from veena.runtime.store.adverts import ATTENDED, read_adverts
from veena.runtime.store.audit_records import BLOCK, HANDED, TABLES
from veena.runtime.store.faults import DROP_DAMAGED
from veena.runtime.store.file import connect
from veena.runtime.store.positions import SPARSE_BELOW, Standing
from veena.runtime.store.rows import address_of, inboxes_of, is_moving, unpack_condition, unpack_inboxes
from veena.runtime.store.schema import signed, unsigned
from veena.runtime.store.trace import read_notes

#: Rows that one question about history returns at most.
MAX_HISTORY = 10_000
#: A limit of -1 is none.
_FROM_LOG = (
    "SELECT offset, accepted_ns, checksum, inboxes, frame FROM log"
    " WHERE offset >= ? AND accepted_ns >= ? ORDER BY offset LIMIT ?"
)
_FROM_INBOX = (
    "SELECT log.offset, accepted_ns, checksum, inboxes, frame FROM inbox CROSS JOIN log ON log.offset = inbox.offset"
    " WHERE inbox.inbox = ? AND inbox.offset >= ? AND accepted_ns >= ? ORDER BY inbox.offset LIMIT ?"
)
#: A row of these.
_EntryRow = tuple[int, int, int, bytes | None, bytes]


@dataclass(frozen=True, slots=True)
class Past:
    """An event in a client's history: when it was accepted here, or handed to the client."""

    at_ns: int
    id: EventId


class StoreQuery:
    """The reading side of a store. One thread uses it at a time; it never waits for a sync."""

    def __init__(self, path: Path, codec: EventCodec) -> None:
        self._path = path
        self._codec = codec
        self._connection = connect(path, read_only=True)

    def close(self) -> None:
        self._connection.close()

    def reset(self) -> None:
        """End what a question that failed has begun."""
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    # --- the log ---

    def entries(self, offset: int, limit: int, inbox: int = 0, since_ns: int = 0) -> tuple[list[Entry], int]:
        """Entries from an offset on, and when the log begins where older ones were given up; both at one moment."""
        execute = self._connection.execute
        execute("BEGIN")
        try:
            if inbox:
                rows = execute(_FROM_INBOX, (inbox, offset, since_ns, limit)).fetchall()
            else:
                start = self._first_since(offset, since_ns) if since_ns else offset
                rows = execute(_FROM_LOG, (start, since_ns, limit)).fetchall()
            begins_ns = self._begins_ns()
        finally:
            execute("COMMIT")
        return list(map(self._entry, rows)), begins_ns

    def _first_since(self, offset: int, since_ns: int) -> int:
        """An offset before which nothing was accepted since then: the highest time so far only rises."""
        low, high = self._connection.execute(
            "SELECT (SELECT min(offset) FROM log), (SELECT max(offset) + 1 FROM log)"
        ).fetchone()
        if low is None:
            return offset
        low = max(low, offset)
        while low < high:
            middle = (low + high) // 2
            found = self._connection.execute(
                "SELECT offset, peak_ns FROM log WHERE offset >= ? ORDER BY offset LIMIT 1", (middle,)
            ).fetchone()
            if found[1] >= since_ns:
                high = middle
            else:
                low = int(found[0]) + 1
        return int(low)

    def _begins_ns(self) -> int:
        given_up = _meta(self._connection, "given_up_ns")
        if given_up is None:
            return 0
        begins = _meta(self._connection, SPARSE_BELOW) or 0
        oldest = self._connection.execute(
            "SELECT accepted_ns FROM log WHERE offset >= ? ORDER BY offset LIMIT 1", (begins,)
        ).fetchone()
        return given_up + 1 if oldest is None else int(oldest[0])

    def _entry(self, row: _EntryRow) -> Entry:
        offset, accepted_ns, checksum, inboxes, data = row
        frame = self._frame(data, checksum, f"the event at offset {offset}")
        return Entry(offset, frame, accepted_ns, unpack_inboxes(inboxes))

    def _frame(self, data: bytes, checksum: int, name: str) -> EventFrame:
        if crc32(data) != checksum:
            raise StoreError(str(self._path), f"{name} is damaged (its checksum is wrong)", DROP_DAMAGED)
        try:
            return self._codec.read(data)
        except RemoteProtocolError as error:
            raise StoreError(str(self._path), f"{name} cannot be read ({error})", DROP_DAMAGED) from error

    # --- a start ---

    def standing(self) -> Standing:
        """How far everybody is."""
        rows = self._connection.execute
        found = Standing()
        last = rows("SELECT offset, peak_ns FROM log ORDER BY offset DESC LIMIT 1").fetchone() or (-1, 0)
        found.next_offset = max(last[0] + 1, _meta(self._connection, "next_offset") or 0)
        found.peak_ns = max(last[1], _meta(self._connection, "given_up_ns") or 0)
        found.cursors = dict(rows("SELECT bit, cursor FROM cursors"))
        found.bits = sum(1 << bit for bit in found.cursors)
        found.reached = dict(rows("SELECT inbox, cursor FROM reached"))
        for durable in self._registered():
            found.inboxes[durable.number] = inboxes_of(durable)
            if is_moving(durable):
                found.moving[durable.number] = min(map(self._first_for, inboxes_of(durable)))
        for name, committed, lost in rows("SELECT name, committed, lost FROM readers"):
            found.readers[name], found.lost[name] = committed, lost
        for table in TABLES:
            highest = rows(f"SELECT max(number) FROM {table}").fetchone()[0]  # noqa: S608 (a table of ours)
            found.next_number[table] = max(
                -1 if highest is None else highest, (_meta(self._connection, f"next_{table}") or 0) - 1
            ) + 1  # fmt: skip
        # Whether the last entries were for units is not known without reading them: assume so.
        found.last_for_units = found.next_offset - 1
        return found

    def _first_for(self, inbox: int) -> int:
        first = self._connection.execute("SELECT min(offset) FROM inbox WHERE inbox = ?", (inbox,)).fetchone()[0]
        return 1 << 62 if first is None else int(first)

    def load(self, standing: Standing, default: Identity, *, notes: bool = False) -> Disk:
        """What a restart needs; with what the broker noted for explaining, if it is to go on noting."""
        rows = self._connection.execute
        row = rows("SELECT name, address, incarnation FROM identity").fetchone()
        disk = Disk(default if row is None else Identity(row[0], address_of(row[1]), unsigned(row[2])))
        disk.next_offset = standing.next_offset
        disk.cursors = {1 << bit: cursor for bit, cursor in rows("SELECT bit, cursor FROM cursors WHERE told")}
        for publisher, incarnation, lane, stamp, sequence in rows(
            "SELECT publisher, incarnation, lane, stamp, sequence FROM had ORDER BY heard_ns, rowid"
        ):
            disk.had[publisher, unsigned(incarnation), lane] = (unsigned(stamp), sequence)
        for publisher, incarnation, lane, stamp, sequence in rows(
            "SELECT publisher, incarnation, lane, stamp, sequence FROM skips ORDER BY rowid"
        ):
            disk.skips[(publisher, unsigned(incarnation), lane), (unsigned(stamp), sequence)] = None
        disk.known = tuple(address_of(text) for (text,) in rows("SELECT unit FROM known ORDER BY place"))
        for publisher, incarnation, stamp, sequence, checksum, data in rows(
            "SELECT publisher, incarnation, stamp, sequence, checksum, frame FROM kept ORDER BY number"
        ):
            key = (bytes(publisher), unsigned(incarnation), unsigned(stamp), sequence)
            disk.kept[key] = self._frame(data, checksum, "a second copy")
        disk.registered = {each.number: each for each in self._registered()}
        disk.reached = dict(standing.reached)
        for inbox, publisher, incarnation, lane, stamp, sequence in rows("SELECT * FROM floors"):
            floor = disk.floors.setdefault(inbox, {})
            floor[publisher, unsigned(incarnation), lane] = (unsigned(stamp), sequence)
        disk.entries = sorted(self._needed(standing, disk), key=lambda entry: entry.offset)
        for held in read_adverts(self._connection):
            disk.shelved[held.home, held.advert.client, held.advert.name] = held
        disk.attended_ns = _meta(self._connection, ATTENDED) or 0
        if notes:
            disk.noted = read_notes(self._connection)
        return disk

    def _registered(self) -> Iterator[Registered]:
        for (
            number,
            client,
            name,
            engine,
            condition,
            scope,
            version,
            inboxes,
            state,
            target,
            aside,
            owner,
            missed,
        ) in self._connection.execute("SELECT * FROM registered ORDER BY number"):
            to = None if target is None else address_of(target)
            constraint = unpack_condition(condition)
            yield Registered(
                number, client, name, engine, constraint, scope, unsigned(version), unpack_inboxes(inboxes), state, to,
                aside, owner, missed,
            )  # fmt: skip

    def _needed(self, standing: Standing, disk: Disk) -> Iterator[Entry]:
        """The entries that the core has to know of."""
        seen: dict[int, None] = {}
        for durable in disk.registered.values():
            everything = is_moving(durable)
            for inbox in inboxes_of(durable):
                start = 0 if everything else max(0, disk.reached.get(inbox, 0) - DOUBTFUL)
                for row in self._connection.execute(_FROM_INBOX, (inbox, start, 0, -1)):
                    if row[0] not in seen:
                        seen[row[0]] = None
                        yield self._entry(row)
        cursors = sorted((cursor, 1 << bit) for bit, cursor in standing.cursors.items())
        lagging, at, last = 0, 0, -1
        lowest = cursors[0][0] if cursors else standing.next_offset
        for row in self._connection.execute(_FROM_LOG, (lowest, 0, -1)):
            while at < len(cursors) and cursors[at][0] <= row[0]:
                lagging |= cursors[at][1]
                at += 1
            entry = self._entry(row)
            if entry.frame.to_serve:
                last = entry.offset
            if entry.frame.to_serve & lagging and entry.offset not in seen:
                yield entry
        standing.last_for_units = last

    # --- history ---

    def history(
        self, client_id: str, kind: Literal["consumed", "produced"], since_ns: int = 0, limit: int = MAX_HISTORY
    ) -> list[Past]:
        """What a client was handed here, or published here, since then; the oldest first (DIS-07)."""
        limit = min(limit, MAX_HISTORY)
        if kind == "consumed":
            return self._take(self._consumed(client_id, since_ns), limit)
        reliable = self._take(self._produced("produced", "log", "offset", "accepted_ns", client_id, since_ns), limit)
        passed = self._take(self._produced("passed_by", "passed", "number", "at_ns", client_id, since_ns), limit)
        return sorted(reliable + passed, key=lambda past: past.at_ns)[:limit]

    @staticmethod
    def _take(found: Iterable[Past], limit: int) -> list[Past]:
        taken: list[Past] = []
        for past in found:
            if len(taken) == limit:
                break
            taken.append(past)
        return taken

    def _blocks(self, table: str, client: bytes) -> list[int]:
        rows = self._connection.execute(f"SELECT block FROM {table} WHERE client = ? ORDER BY block", (client,))  # noqa: S608
        return [block for (block,) in rows]

    def _consumed(self, client_id: str, since_ns: int) -> Iterator[Past]:
        for block in self._blocks("consumed", client_id.encode()):
            for at_ns, publisher, incarnation, stamp, sequence, clients in self._connection.execute(
                "SELECT at_ns, publisher, incarnation, stamp, sequence, clients FROM deliveries"  # noqa: S608 (our marks)
                f" WHERE number >= ? AND number < ? AND at_ns >= ? AND mark IN {HANDED} ORDER BY number",
                (block * BLOCK, (block + 1) * BLOCK, since_ns),
            ).fetchall():
                if client_id in msgspec.msgpack.decode(clients, type=list[str]):
                    yield Past(at_ns, EventId(publisher, unsigned(incarnation), unsigned(stamp), sequence))

    def _produced(self, notes: str, table: str, number: str, at: str, client_id: str, since_ns: int) -> Iterator[Past]:
        where = "AND inboxes IS NULL" if table == "log" else ""
        for block in self._blocks(notes, client_id.encode()):
            for at_ns, checksum, data in self._connection.execute(
                f"SELECT {at}, checksum, frame FROM {table} WHERE {number} >= ? AND {number} < ? AND {at} >= ? {where}"  # noqa: S608
                f" ORDER BY {number}",
                (block * BLOCK, (block + 1) * BLOCK, since_ns),
            ).fetchall():
                frame = self._frame(data, checksum, "an event")
                if frame.publisher == client_id and not frame.flags & BACKLOG:
                    yield Past(at_ns, frame.id)

    def delivered(self, event_id: EventId) -> list[tuple[int, tuple[str, ...]]]:
        """When an event was handed to which clients of this broker, as far as deliveries were recorded."""
        publisher, incarnation, stamp, sequence = event_id
        rows = self._connection.execute(
            "SELECT at_ns, clients FROM deliveries WHERE stamp = ? AND sequence = ? AND incarnation = ? AND"  # noqa: S608
            f" publisher = ? AND mark IN {HANDED} ORDER BY number",
            (signed(stamp), sequence, signed(incarnation), publisher),
        )
        return [(at_ns, msgspec.msgpack.decode(clients, type=tuple[str, ...])) for at_ns, clients in rows]


def _meta(connection: sqlite3.Connection, name: str) -> int | None:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])
