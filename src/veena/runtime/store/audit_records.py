"""What is written beside the log for audits and for history: deliveries, hops, changes of profiles, best effort.

Nobody waits for a record. Records go along with the next transaction, and are written unsynced when there is none for a
while; when too many wait they are dropped, and that is counted.

A client's history (DIS-07) is found by blocks: for each client the store notes in which blocks of `BLOCK` rows there is
something of it, once a block. So a busy client costs one row in 256, and a question reads only blocks with an answer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from zlib import crc32

import msgspec

from veena.address import Address, Unit, format_address
from veena.core.boundary.stored import Noted
from veena.core.wire.event import EventCodec, EventFrame
from veena.errors import ConfigError
from veena.event import EventId
from veena.matching.base.engine import Constraint
from veena.runtime.store.positions import Standing
from veena.runtime.store.rows import Row, pack_condition
from veena.runtime.store.schema import signed
from veena.runtime.store.trace import write_notes

#: Of a subscription; of a client; of the broker itself, with its address and what it keeps as `attributes`.
Change = Literal["added", "active", "removed", "attached", "detached", "started", "lost"]
#: The marks of deliveries that were made; other marks say what else became of an event here.
HANDED = ("", "redelivered", "late")
#: Rows that one note of a client's history covers; a power of two.
BLOCK = 256
#: Clients whose last block is remembered, so that it is not noted again.
MAX_REMEMBERED = 1 << 16
#: The tables of records, each numbered for itself; their second column is the time.
TABLES = ("passed", "deliveries", "hops", "profiles", "notes")


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event was handed to these clients of this broker."""

    at_ns: int
    id: EventId
    clients: tuple[str, ...]
    #: "redelivered" where it was handed over before and not acknowledged, "late" where later ones came first; "denied"
    #: takes the row before it back: a rule of access forbade it at the last moment. The rest were not handed over:
    #: "had" by their own word, "withheld" while they did not read, "dropped" or "expired"; "came" has no clients.
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Hop:
    """A copy of an event went over a link; `came_from` is None where it was published."""

    at_ns: int
    id: EventId
    came_from: Address | None
    went_to: Address
    level: int
    #: What this copy was for.
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """A client wants something, all brokers that matter up to a level know it, or it no longer does."""

    at_ns: int
    client_id: str
    subscription: int
    change: Change
    engine: str
    constraint: Constraint
    scope: int
    session: int = 0
    #: Acknowledged up to this level so far.
    level: int = 0
    durable: bool = False
    #: The group that shares it.
    group: str = ""
    #: What the client's device can do and what it is cleared for.
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: How it ended.
    ending: str = ""


@dataclass(frozen=True, slots=True)
class Passed:
    """A best-effort event that was published here."""

    at_ns: int
    frame: EventFrame


Record = Delivery | Hop | ProfileChange | Passed | Noted
Records = Literal["off", "deliveries", "all"]
History = Literal["reliable", "all", "none"]

_RECORDED: dict[str, tuple[type[Record], ...]] = {
    "off": (),
    "deliveries": (Delivery,),
    "all": (Delivery, Hop, ProfileChange),
}
_HISTORIES = ("reliable", "all", "none")


def kept_records(records: str, history: str) -> tuple[type[Record], ...]:
    """Which records these settings ask for."""
    if records not in _RECORDED:
        raise ConfigError("settings", "store.records", repr(records), 'use "off", "deliveries" or "all"')
    if history not in _HISTORIES:
        raise ConfigError("settings", "store.history", repr(history), 'use "reliable", "all" or "none"')
    return (*_RECORDED[records], Passed) if history == "all" else _RECORDED[records]


class RecordWriter:
    """Rows of records, numbered on, and the notes of who is in them."""

    def __init__(
        self,
        codec: EventCodec,
        standing: Standing,
        notes_published: bool,
        audited: Callable[[Sequence[Noted]], list[Record]] = lambda noted: [],
        lost: Callable[[int, int], list[Record]] = lambda count, at_ns: [],
    ) -> None:
        """`audited` makes the records that follow from what the broker noted, `lost` one of how many were given up."""
        self.lost = lost
        self._codec = codec
        self._standing = standing
        self._notes_published = notes_published
        self._audited = audited
        self._noted: dict[str, dict[bytes, int]] = {"produced": {}, "passed_by": {}, "consumed": {}}

    def published(self, connection: sqlite3.Connection, found: Iterable[tuple[bytes, int]]) -> None:
        """Note who published entries of the log."""
        if self._notes_published:
            self._note(connection, "produced", found)

    def write(self, connection: sqlite3.Connection, records: Sequence[Record]) -> dict[str, int]:
        """Write records within a transaction; what follows in each table once it is committed."""
        following: dict[str, int] = {}
        noted = [each for each in records if type(each) is Noted]
        if noted:
            following["notes"] = write_notes(connection, noted, self._next("notes"))
            records = [*records, *self._audited(noted)]
        passed = [each for each in records if type(each) is Passed]
        rows: list[Row] = []
        senders: list[tuple[bytes, int]] = []
        for number, event in enumerate(passed, self._next("passed")):
            data, frame = self._codec.encode(event.frame, 0), event.frame
            rows.append((number, event.at_ns, crc32(data), data))
            senders.append((bytes(frame.tail[: frame.publisher_length]), number))
        self._insert(connection, "passed", rows, following)
        self._note(connection, "passed_by", senders)
        deliveries = [each for each in records if type(each) is Delivery]
        rows, receivers = [], []
        for number, handed in enumerate(deliveries, self._next("deliveries")):
            rows.append(
                (number, handed.at_ns, *_id_row(handed.id), msgspec.msgpack.encode(handed.clients), handed.mark)
            )
            receivers += [(client.encode(), number) for client in handed.clients]
        self._insert(connection, "deliveries", rows, following)
        self._note(connection, "consumed", receivers)
        self._insert(connection, "hops", [
            (number, hop.at_ns, *_id_row(hop.id), None if hop.came_from is None else format_address(hop.came_from),
             format_address(hop.went_to), hop.level, " ".join(map(format_address, hop.units)))
            for number, hop in enumerate((each for each in records if type(each) is Hop), self._next("hops"))
        ], following)  # fmt: skip
        self._insert(connection, "profiles", [
            (number, each.at_ns, each.client_id, each.subscription, each.change, each.engine,
             pack_condition(each.constraint), each.scope, each.session, each.level, each.durable, each.group,
             msgspec.msgpack.encode(dict(each.attributes)) if each.attributes else None, each.ending)
            for number, each in enumerate(
                (each for each in records if type(each) is ProfileChange), self._next("profiles")
            )
        ], following)  # fmt: skip
        return following

    def failed(self) -> None:
        """The transaction was rolled back, and the notes with it."""
        for noted in self._noted.values():
            noted.clear()

    def _next(self, table: str) -> int:
        return self._standing.next_number.get(table, 0)

    @staticmethod
    def _insert(connection: sqlite3.Connection, table: str, rows: list[Row], following: dict[str, int]) -> None:
        if rows:
            places = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 (a table of ours)
            last = rows[-1][0]
            assert isinstance(last, int)
            following[table] = last + 1

    def _note(self, connection: sqlite3.Connection, table: str, found: Iterable[tuple[bytes, int]]) -> None:
        noted = self._noted[table]
        fresh: list[tuple[bytes, int]] = []
        for client, number in found:
            block = number // BLOCK
            if noted.get(client) != block:
                noted[client] = block
                fresh.append((client, block))
        if fresh:
            connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", fresh)  # noqa: S608 (as above)
        if len(noted) > MAX_REMEMBERED:
            noted.clear()


def _id_row(event_id: EventId) -> tuple[str, int, int, int]:
    publisher, incarnation, stamp, sequence = event_id
    return (publisher, signed(incarnation), signed(stamp), sequence)
