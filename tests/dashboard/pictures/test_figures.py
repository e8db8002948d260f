"""Numbers for people, rates between two readings, and fields as pictures."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest

from veena.dashboard.pictures.field import MAX_SIDE, PALETTE, SHADES, field_picture
from veena.dashboard.pictures.figures import (
    amount,
    broker_row,
    bytes_text,
    facts,
    link_rates,
    rate_text,
    rates,
    span_text,
)
from veena.errors import InvalidEvent


def status(uptime: float, accepted: int = 0, delivered: int = 0, sent: int = 0) -> dict[str, Any]:
    return {
        "uptime_s": uptime,
        "clients": {"clients": 3},
        "store": {"trouble": None, "used_bytes": 2048},
        "transports": [{"link": 4, "bytes_in": 10, "bytes_out": sent}],
        "broker": {
            "origin": {"accepted": accepted},
            "router": {"copies_in": 5, "copies_out": 7},
            "ends": {"delivered": delivered},
            "outlet": {
                "clogged": 1,
                "waiting": 9,
                "waiting_bytes": 3000,
                "dropped": 2,
                "expired": 0,
                "disconnected": 0,
            },
            "profiles": {"subscriptions": 4, "rows": 12},
            "durables": {"durables": 2},
            "links": [{"link": 4, "neighbour": [0, 1]}, {"link": 5, "neighbour": None}],
        },
    }


def test_rates_are_what_lies_between_two_readings() -> None:
    before, now = status(10.0, accepted=100, delivered=50), status(12.0, accepted=120, delivered=54)
    assert rates(now, before) == {"in": 10.0, "out": 2.0, "accepted": 10.0, "delivered": 2.0, "dropped": 0.0}
    assert rates(now, None) == {}
    assert rates(status(1.0), now) == {}, "it was started again meanwhile"
    assert link_rates(status(12.0, sent=2000), status(10.0, sent=0)) == {(0, 1): 1000.0}


def test_who_only_asks_is_no_client() -> None:
    assert facts(status(1.0), None).clients == 2
    row = broker_row("a.1", status(3700.0), None)
    assert (row["clients"], row["clogged"], row["waiting_bytes"], row["up"]) == (2, 1, "2.9 KiB", "1 h 1 min")


def test_numbers_are_said_as_people_say_them() -> None:
    assert [bytes_text(each) for each in (0, 999, 1536, 20 << 20, 3 << 30)] == [
        "0 B",
        "999 B",
        "1.5 KiB",
        "20 MiB",
        "3.0 GiB",
    ]
    assert [span_text(each) for each in (5, 65, 3700, 90000)] == ["5 s", "1 min 5 s", "1 h 1 min", "1 d 1 h"]
    assert [amount(each, "broker") for each in (0, 1, 1200)] == ["0 brokers", "1 broker", "1,200 brokers"]
    assert [rate_text(each) for each in (None, 0.0, 0.25, 1234.5)] == ["…", "0", "0.2", "1,234"]


def unpacked(png: bytes) -> tuple[int, int, bytes, np.ndarray[Any, np.dtype[np.uint8]]]:
    """Width, height, palette and indices of a PNG, read by the rules of its format; every checksum is tested."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    parts: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        length = struct.unpack(">I", png[at : at + 4])[0]
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + data)
        parts[kind] = data
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert (depth, colour) == (8, 3) and b"IEND" in parts
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return width, height, parts[b"PLTE"], rows[:, 1:]


def test_a_field_is_a_png_from_cold_to_hot() -> None:
    cells = np.array([[0.0, 5.0, 10.0], [10.0, np.nan, 0.0]], "<f4")
    found = field_picture("<f4", "2x3", cells.tobytes())
    assert (found.low, found.high, found.columns, found.rows) == (0.0, 10.0, 3, 2)
    width, height, palette, shades = unpacked(found.png)
    assert (width, height, palette) == (3, 2, PALETTE) and len(PALETTE) == 3 * 256
    assert shades.tolist() == [[0, 127, SHADES - 1], [SHADES - 1, SHADES, 0]]


def test_large_fields_are_shown_with_fewer_cells_and_flat_ones_in_one_colour() -> None:
    found = field_picture("|u1", f"{3 * MAX_SIDE}x10", bytes(3 * MAX_SIDE * 10))
    width, height, _, shades = unpacked(found.png)
    assert (width, height) == (4, MAX_SIDE) and (found.columns, found.rows) == (10, 3 * MAX_SIDE)
    assert not shades.any()


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "says"),
    [
        ("<f8", "2x2", 31, "31 bytes"),
        ("|O", "2x2", 32, "only rows and columns"),
        ("<f8", "2x2x2", 64, "only rows and columns"),
        ("what", "2x2", 32, "expected a dtype"),
        ("<f8", "two", 32, "expected a dtype"),
        ("<f8", "-2x-2", 32, "only rows and columns"),
    ],
)
def test_what_is_no_field_is_refused_with_the_reason(dtype: str, shape: str, size: int, says: str) -> None:
    with pytest.raises(InvalidEvent, match=says):
        field_picture(dtype, shape, bytes(size))
