"""Rows as columns, in the layout that `core.wire.log_tables` describes: made with NumPy, and cut into frames.

A column is a list of buffers: a bitmap of the rows that have a value (empty where all have), then its numbers, or its
offsets and its bytes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veena.core.wire.codec import encode
from veena.core.wire.log_tables import ALIGNMENT, MAX_PART, TellBlock, TellBlockPart

Numbers = NDArray[np.int64]
Buffers = tuple[bytes, ...]

_PADDING = bytes(ALIGNMENT)


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a table, and where the next ones are."""

    rows: int
    looked: int
    next: int
    buffers: Sequence[bytes]
    #: Nothing more is there of what was asked for.
    last: bool


def number_column(values: NDArray[Any]) -> Buffers:
    """Numbers of any width; those of 64 bits without a sign keep their bits."""
    return b"", values.astype("<i8", copy=False).tobytes()


def bytes_column(values: Sequence[bytes | None]) -> Buffers:
    """Values one by one, some of which may be missing."""
    has = np.fromiter((value is not None for value in values), bool, len(values))
    if has.all():
        there: Sequence[bytes] = values  # type: ignore[assignment]
        validity = b""
    else:
        there = [value or b"" for value in values]
        validity = np.packbits(has, bitorder="little").tobytes()
    lengths = np.fromiter(map(len, there), np.int64, len(there))
    return validity, _offsets(lengths), b"".join(there)


def joined_column(data: bytes, lengths: Numbers) -> Buffers:
    """Values that are joined already, -1 for the length of one that is missing."""
    has = lengths >= 0
    validity = b"" if has.all() else np.packbits(has, bitorder="little").tobytes()
    return validity, _offsets(np.maximum(lengths, 0)), data


def cut_column(data: bytes, starts: Numbers, lengths: Numbers) -> Buffers:
    """Pieces of one buffer. Where all have one length and one distance, which is usual, no row is touched alone."""
    return b"", _offsets(lengths), cut(data, starts, lengths)


def cut(data: bytes, starts: Numbers, lengths: Numbers) -> bytes:
    rows = len(starts)
    if not rows or not lengths.any():
        return b""
    length = int(lengths[0])
    distance = is_regular(starts, lengths)
    if distance:
        view = np.frombuffer(data, np.uint8)
        first = int(starts[0])
        return np.lib.stride_tricks.as_strided(view[first:], (rows, length), (distance, 1), writeable=False).tobytes()
    ends = (starts + lengths).tolist()
    return b"".join([data[start:end] for start, end in zip(starts.tolist(), ends, strict=True)])


def is_regular(starts: Numbers, lengths: Numbers) -> int:
    """The distance from piece to piece, if all pieces are of one length and at one distance; else 0."""
    if len(starts) < 2 or (lengths != lengths[0]).any():
        return 0
    distances = np.diff(starts)
    distance = int(distances[0])
    return distance if distance > 0 and (distances == distance).all() else 0


def _offsets(lengths: Numbers) -> bytes:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets.astype("<i4").tobytes()


#: What tells whether this SQLite joins bytes that hold zeros: old ones end at the first.
_JOINS = "SELECT CAST(group_concat(x, '') AS BLOB) FROM (SELECT x'610062' AS x UNION ALL SELECT x'00ff')"
_JOINED = bytes.fromhex("61006200ff")


def joins_bytes(connection: sqlite3.Connection) -> bool:
    """Whether SQLite can join the values of a column, whatever is in them."""
    return bool(connection.execute(_JOINS).fetchone()[0] == _JOINED)


def parsed_numbers(text: str | int | None) -> Numbers:
    """Numbers that SQLite has joined by commas."""
    return np.fromstring(str(text), np.int64, sep=",") if text is not None else np.empty(0, np.int64)


def block_frames(number: int, block: Block) -> list[bytes]:
    """A block as the bytes of its frames."""
    sizes = tuple(map(len, block.buffers))
    parts: list[bytes] = []
    for buffer in block.buffers:
        parts.append(buffer)
        parts.append(_PADDING[: -len(buffer) % ALIGNMENT])
    data = b"".join(parts)
    starts = range(0, max(len(data), 1), MAX_PART)
    last = starts[-1]
    first = TellBlock(
        number, block.rows, block.looked, block.next, sizes, data[:MAX_PART], last > 0, block.last
    )  # fmt: skip
    return [
        encode(first, 0),
        *(encode(TellBlockPart(number, data[at : at + MAX_PART], at != last), 0) for at in starts[1:]),
    ]
