"""The events of a store as columns: ranges of the log, or of the events of best effort, taken apart many at a time.

An event frame begins with a header of one size, so the headers of thousands of frames are one NumPy array; what lies
behind them is cut out by their lengths. SQLite joins the frames itself, in one step: the interpreter's lock is taken
once a block and not once a row, so a reader neither waits for the loop at every row nor keeps it waiting.

What is here was published here: entries that are kept for others (inboxes, backlogs) and what brokers write to each
other are left out, so that every event is in the table of one broker.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from veena.core.messages.addresses import INTERNAL
from veena.core.wire.event import BACKLOG, EventCodec
from veena.core.wire.section import TIME_OFFSET, TIME_SIZE
from veena.errors import StoreError
from veena.runtime.export.columns import (
    Block,
    Buffers,
    Numbers,
    cut,
    cut_column,
    is_regular,
    joins_bytes,
    number_column,
    parsed_numbers,
)
from veena.runtime.store.faults import DROP_DAMAGED

_INTERNAL = ord(INTERNAL)
#: Of the rows that should fit so many are tried first.
SLACK = 0.95
#: Frames behind each other; their lengths, checksums, offsets and times.
_Columns = tuple[bytes, Numbers, Numbers, Numbers, Numbers]


@dataclass(frozen=True, slots=True)
class EventSource:
    """A table of events: its name and those of its columns."""

    table: str
    offset: str
    at: str
    where: str

    def range(self, what: str) -> str:
        return f"SELECT {what} FROM {self.table} WHERE {self.offset} >= ? AND {self.offset} < ?"  # noqa: S608 (ours)


RELIABLE_EVENTS = EventSource("log", "offset", "accepted_ns", " AND inboxes IS NULL")
PASSED_EVENTS = EventSource("passed", "number", "at_ns", "")


@lru_cache(maxsize=16)
def header_type(levels: int, vector_size: int) -> np.dtype[Any]:
    """The header of an event frame, as `EventCodec` packs it."""
    return np.dtype([
        ("length", ">u4"), ("version", "u1"), ("kind", "u1"), ("flags", ">u2"), ("number", ">u8"), ("ttl", ">u4"),
        ("incarnation", ">u8"), ("stamp", ">u8"), ("sequence", ">u4"), ("publisher", ">u2"), ("matching", ">u4"),
        ("body", ">u4"), ("origin", "u1", (levels,)), ("to_serve", "u1", (vector_size,)),
        ("served", "u1", (vector_size,)),
    ])  # fmt: skip


class EventRows:
    """Event frames behind each other in one buffer, with what their headers say."""

    def __init__(self, data: bytes, starts: Numbers, headers: NDArray[Any], offsets: Numbers, at: Numbers) -> None:
        self.data = data
        self.starts = starts
        self.headers = headers
        self.offsets = offsets
        self.at = at
        self.publisher_lengths = headers["publisher"].astype(np.int64)
        self.section_lengths = headers["matching"].astype(np.int64)
        self.publishers = starts + headers.dtype.itemsize
        self.sections = self.publishers + self.publisher_lengths

    def __len__(self) -> int:
        return len(self.starts)

    def where(self, mask: NDArray[np.bool_]) -> EventRows:
        """Those rows alone."""
        if mask.all():
            return self
        return EventRows(self.data, self.starts[mask], self.headers[mask], self.offsets[mask], self.at[mask])

    def distinct_sections(self) -> tuple[list[bytes], Numbers]:
        """The different matching sections, their times of publication left out; and which of them each row has."""
        skip = TIME_OFFSET + TIME_SIZE
        data, starts, lengths = self.data, self.sections, self.section_lengths
        marks = data_at(data, starts)
        if is_regular(starts, lengths) and not marks.any():
            first = data[int(starts[0]) + skip : int(starts[0] + lengths[0])]
            if cut(data, starts + skip, lengths - skip) == first * len(starts):
                return [b"\0" + first], np.zeros(len(starts), np.int64)
        # A key is the rest of a section behind a mark of which fields are there; most have none.
        found: dict[bytes, int] = {}
        places = zip((starts + skip).tolist(), (starts + lengths).tolist(), strict=True)
        rests = [data[start:end] for start, end in places]
        if marks.any():
            rests = [data[at : at + TIME_OFFSET] + rest for at, rest in zip(starts.tolist(), rests, strict=True)]
        codes = [found.setdefault(rest, len(found)) for rest in rests]
        if not marks.any():
            return [b"\0" + rest for rest in found], np.array(codes, np.int64)
        return list(found), np.array(codes, np.int64)

    def topics(self) -> tuple[Numbers, Numbers]:
        """Where each topic begins and its length, -1 for none: it is the first field behind the fixed part."""
        data = np.frombuffer(self.data, np.uint8)
        at = self.sections + TIME_OFFSET + TIME_SIZE + 1
        at = np.minimum(at + 4 * (data[self.sections] != 0), len(data) - 3)
        mark, second = data[at].astype(np.int64), data[at + 1].astype(np.int64)
        is_short, is_long, is_longer = mark >> 5 == 0b101, mark == 0xD9, mark == 0xDA
        lengths = np.select(
            [is_short, is_long, is_longer], [mark & 31, second, second << 8 | data[at + 2].astype(np.int64)], -1
        )
        return at + 1 + is_long + 2 * is_longer, lengths

    def published(self) -> Numbers:
        """Nanoseconds since 1970."""
        return gather(self.data, self.sections + TIME_OFFSET, np.dtype(">i8")).astype(np.int64)


def gather(data: bytes, starts: Numbers, kind: np.dtype[Any]) -> NDArray[Any]:
    """A value of fixed size at each of these places."""
    if not len(starts):
        return np.empty(0, kind)
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), kind.itemsize)
    return np.ascontiguousarray(windows[starts]).view(kind).reshape(len(starts))


def data_at(data: bytes, starts: Numbers) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)[starts]


class EventReader:
    """Reads one table of events over one connection, which one thread uses at a time."""

    def __init__(self, connection: sqlite3.Connection, codec: EventCodec, source: EventSource, path: str) -> None:
        self._connection = connection
        self._source = source
        self._path = path
        self._header = header_type(codec.levels, codec.vector_size)
        assert self._header.itemsize == codec.header_size
        self._joins = joins_bytes(connection)
        #: Bytes of a frame, lately: so the first guess at how many fit into a block is mostly right.
        self._average = 256.0

    def block(
        self,
        start: int,
        end: int,
        columns: tuple[str, ...],
        sieve: Callable[[EventRows], EventRows],
        max_rows: int,
        max_bytes: int,
        with_times: bool = True,
    ) -> Block:
        """The next rows of a range, as far as one block goes; `with_times` if a column or a test needs `at`."""
        execute, source = self._connection.execute, self._source
        found = execute(f"SELECT min({source.offset}) FROM {source.table} WHERE {source.offset} >= ?", (start,))  # noqa: S608
        first = found.fetchone()[0]
        if first is None or first >= end:
            return Block(
                0, 0, end, _make(EventRows(b"", _NONE, np.empty(0, self._header), _NONE, _NONE), columns), True
            )
        count = max(1, min(max_rows, int(SLACK * max_bytes / self._average)))
        while True:
            until = min(first + count, end)
            rows, size = execute(source.range("count(*), total(length(frame))"), (first, until)).fetchone()
            self._average = max(size / max(rows, 1), 1.0)
            if size <= max_bytes or count == 1:
                break
            count = max(1, min(count - 1, int(SLACK * count * max_bytes / size)))
        events = self._read(first, until, with_times)
        kept = sieve(events.where(self._own(events)))
        return Block(len(kept), len(events), until, _make(kept, columns), until >= end)

    def _read(self, first: int, until: int, with_times: bool) -> EventRows:
        read = self._joined if self._joins else self._one_by_one
        data, lengths, checksums, offsets, at = read(first, until, with_times)
        starts = np.cumsum(lengths) - lengths
        # A step of Python for each: a call for all of them would keep the interpreter's lock for milliseconds.
        places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        wrong = np.array([crc32(data[start:end]) for start, end in places], np.int64) != checksums
        if wrong.any():
            offset = int(offsets[int(np.argmax(wrong))])
            raise StoreError(
                self._path, f"the event at offset {offset} is damaged (its checksum is wrong)", DROP_DAMAGED
            )
        if (np.diff(offsets) < 0).any():  # so that a day on which it joins in another order costs nothing but this
            order = np.argsort(offsets)
            starts, offsets, at = starts[order], offsets[order], at[order]
        return EventRows(data, starts, gather(data, starts, self._header), offsets, at)

    def _joined(self, first: int, until: int, with_times: bool) -> _Columns:
        """All of it in one step of SQLite. It does not say so, but it joins in the order in which it reads."""
        source = self._source
        what = (
            "CAST(group_concat(frame, '') AS BLOB), group_concat(length(frame)), group_concat(coalesce(checksum, -1)),"
            f" group_concat({source.offset}), {f'group_concat({source.at})' if with_times else 'NULL'}"
        )
        row = self._connection.execute(source.range(what) + source.where, (first, until)).fetchone()
        lengths, checksums, offsets = map(parsed_numbers, row[1:4])
        return row[0] or b"", lengths, checksums, offsets, parsed_numbers(row[4]) if with_times else offsets

    def _one_by_one(self, first: int, until: int, with_times: bool) -> _Columns:
        """The same where SQLite is too old for that: a step a row."""
        source = self._source
        at = source.at if with_times else source.offset
        what = f"frame, length(frame), coalesce(checksum, -1), {source.offset}, {at}"
        rows = self._connection.execute(source.range(what) + source.where, (first, until)).fetchall()
        frames, *others = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        lengths, checksums, offsets, times = (np.array(each, np.int64) for each in others)
        return b"".join(frames), lengths, checksums, offsets, times

    def _own(self, events: EventRows) -> NDArray[np.bool_]:
        """Which of these were published here, by a client."""
        if not len(events):
            return np.empty(0, bool)
        mask: NDArray[np.bool_] = (events.headers["flags"] & BACKLOG) == 0
        return np.asarray(mask & (data_at(events.data, events.publishers) != _INTERNAL), bool)


_NONE: Numbers = np.empty(0, np.int64)


# --- columns ---


def _make(rows: EventRows, columns: tuple[str, ...]) -> list[bytes]:
    return [buffer for name in columns for buffer in _MAKERS[name](rows)]


def _topics(rows: EventRows) -> Buffers:
    if not len(rows):
        return cut_column(rows.data, rows.starts, rows.starts)
    starts, lengths = rows.topics()
    has = lengths >= 0
    _, offsets, data = cut_column(rows.data, starts, np.maximum(lengths, 0))
    return (b"" if has.all() else np.packbits(has, bitorder="little").tobytes()), offsets, data


def _header(name: str) -> Callable[[EventRows], Buffers]:
    return lambda rows: number_column(rows.headers[name])


_MAKERS: dict[str, Callable[[EventRows], Buffers]] = {
    "offset": lambda rows: number_column(rows.offsets),
    "at": lambda rows: number_column(rows.at),
    "publisher": lambda rows: cut_column(rows.data, rows.publishers, rows.publisher_lengths),
    "incarnation": _header("incarnation"),
    "stamp": _header("stamp"),
    "sequence": _header("sequence"),
    "flags": _header("flags"),
    "ttl": _header("ttl"),
    "origin": lambda rows: cut_column(
        rows.headers["origin"].tobytes(),
        np.arange(len(rows), dtype=np.int64) * rows.headers["origin"].shape[1],
        np.full(len(rows), rows.headers["origin"].shape[1], np.int64),
    ),
    "published": lambda rows: number_column(rows.published()),
    "topic": _topics,
    "section": lambda rows: cut_column(rows.data, rows.sections, rows.section_lengths),
    "body": lambda rows: cut_column(
        rows.data, rows.sections + rows.section_lengths, rows.headers["body"].astype(np.int64)
    ),
}
