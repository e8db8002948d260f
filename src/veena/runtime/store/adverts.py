"""Advertisements in the store: what a broker holds of them, its own and those of its units
(`core.discovery.persistence`).

A row is one advertisement, or the withdrawal of one, as it goes over a link, with a checksum. They are state: written
again as they are now where the disk failed. One that is damaged is left out at a start, for an offer is not worth a
broker; `store check` names it, and its home or its client says it again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from zlib import crc32

import msgspec

from veena.address import Address, format_address, parse_address
from veena.core.boundary.stored import ShelfKey, Shelved
from veena.core.wire.discovery import Advertisement
from veena.errors import VeenaError

#: The table `meta` has when the broker was last known to live under this name.
ATTENDED = "attended_ns"

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Advertisement)

SET_ADVERT = """INSERT INTO adverts (home, client, name, left_ns, checksum, advert) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (home, client, name)
    DO UPDATE SET left_ns = excluded.left_ns, checksum = excluded.checksum, advert = excluded.advert"""
DELETE_ADVERT = "DELETE FROM adverts WHERE home = ? AND client = ? AND name = ?"
_ADVERTS = "SELECT home, left_ns, checksum, advert FROM adverts ORDER BY number"


def advert_row(given: Shelved) -> tuple[str, str, str, int, int, bytes]:
    data = _encoder.encode(given.advert)
    return (*key_row((given.home, given.advert.client, given.advert.name)), given.left_ns, crc32(data), data)


def key_row(key: ShelfKey) -> tuple[str, str, str]:
    home, client, name = key
    return (format_address(home) if home else "", client, name)


def read_adverts(connection: sqlite3.Connection) -> Iterator[Shelved]:
    """All that can be read, in the order in which each was first held."""
    for home, left_ns, checksum, data in connection.execute(_ADVERTS):
        if crc32(data) != checksum:
            continue
        try:
            address: Address = parse_address(home, fanout=256) if home else ()
            yield Shelved(address, _decoder.decode(data), left_ns)
        except (msgspec.MsgspecError, VeenaError):
            continue
