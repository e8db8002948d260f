"""A field of numbers as a picture: a PNG with a palette, written here, because it needs little and runs often."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from veena.errors import InvalidEvent

#: Pixels on a side; larger fields are shown with fewer cells.
MAX_SIDE = 512
#: Bytes of one field: more than a broker passes on in an event.
MAX_BYTES = 64 << 20
#: From cold to hot, even in brightness, and told apart by who does not see red and green.
ANCHORS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
#: Cells that are no number.
NOTHING = (120, 120, 120)
#: Colours in use; the last of the 256 is for what is no number.
SHADES = 255


@dataclass(frozen=True, slots=True)
class FieldPicture:
    png: bytes
    #: Of the picture, and of the field.
    width: int
    height: int
    columns: int
    rows: int
    low: float
    high: float


def field_picture(dtype: str, shape: str, data: bytes) -> FieldPicture:
    """The picture of a field as applications publish it; raise InvalidEvent where it is none."""
    cells = _cells(dtype, shape, data)
    rows, columns = cells.shape
    step = max(1, math.ceil(max(rows, columns) / MAX_SIDE))
    shown = cells[::step, ::step].astype(np.float64)
    is_number = np.isfinite(shown)
    numbers = shown[is_number]
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 0.0)
    span = high - low
    scaled = np.zeros(shown.shape) if span <= 0 else (np.where(is_number, shown, low) - low) / span
    shades = np.minimum(scaled * SHADES, SHADES - 1).astype(np.uint8)
    shades[~is_number] = SHADES
    return FieldPicture(_png(shades), shown.shape[1], shown.shape[0], columns, rows, low, high)


def _cells(dtype: str, shape: str, data: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.generic]]:
    try:
        kind = np.dtype(dtype)
        sides = [int(side) for side in shape.split("x")]
    except (TypeError, ValueError):
        raise InvalidEvent(f"field of {dtype!r:.20} and {shape!r:.20}: expected a dtype and a shape as 96x96") from None
    if kind.kind not in "fiub" or not 1 <= len(sides) <= 2 or not all(0 < side <= 1 << 20 for side in sides):
        raise InvalidEvent(f"field of {dtype!r:.20} and {shape!r:.20}: only rows and columns of numbers are shown")
    if math.prod(sides) * kind.itemsize != len(data) or len(data) > MAX_BYTES:
        raise InvalidEvent(f"field of {len(data)} bytes: {shape} of {kind} has {math.prod(sides) * kind.itemsize}")
    return np.frombuffer(data, kind).reshape(-1, sides[-1])


def _palette() -> bytes:
    found = bytearray()
    for at in range(SHADES):
        place = at / (SHADES - 1) * (len(ANCHORS) - 1)
        below = min(int(place), len(ANCHORS) - 2)
        low, high = list(pairwise(ANCHORS))[below]
        found += bytes(round(a + (b - a) * (place - below)) for a, b in zip(low, high, strict=True))
    return bytes(found + bytes(NOTHING))


PALETTE = _palette()


def _png(shades: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """An image with a palette, a byte a pixel; each row begins with a zero, for no filter."""
    height, width = shades.shape
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = shades
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", PALETTE),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
