"""The frames of interest: what the sub-units of a unit want, row by row, and digests of what larger units want."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from veena.address import MAX_LEVELS
from veena.core.frames import U64, Frame, UnitPath

#: A constraint as msgpack; the longest text that an engine takes is 16 KiB.
MAX_CONSTRAINT_BYTES = 20 * 1024
#: Rows in a frame: with ordinary constraints some 100 KiB.
MAX_ROWS = 256
#: A digest of 27 units at 128 KiB a broker leaves so much for one.
MAX_DIGEST_BYTES = 8 * 1024
#: Digests in a frame.
MAX_DIGESTS = 32
#: The kind of a row that tells nothing but that its unit has spoken.
STANDING = 255

#: How far a want is told: a level, or the number of levels for the whole system; 0 where it says nothing.
Scope = Annotated[int, Meta(ge=0, le=MAX_LEVELS)]
#: (epoch, speaker, number): the higher one wins.
Version = tuple[U64, UnitPath, U64]


class Row(Struct, frozen=True, array_like=True, gc=False):
    """One want of one unit, present or gone."""

    unit: UnitPath
    key: Annotated[bytes, Meta(max_length=16)]
    version: Version
    wanted: bool
    kind: Annotated[int, Meta(ge=0, le=255)]
    payload: Annotated[bytes, Meta(max_length=MAX_CONSTRAINT_BYTES)]
    scope: Scope


class DigestPart(Struct, frozen=True, array_like=True, gc=False):
    """The wants of one scope: hashes of required atoms, or a Bloom filter over them when they are many."""

    scope: Scope
    bloom: bool
    data: Annotated[bytes, Meta(max_length=MAX_DIGEST_BYTES)]


class Digest(Struct, frozen=True, array_like=True, gc=False):
    """What a unit of level 2 or above may want; never narrower than the truth."""

    unit: UnitPath
    version: Version
    parts: Annotated[tuple[DigestPart, ...], Meta(max_length=8)]


class Interest(Frame, frozen=True):
    """News of wants."""

    rows: Annotated[tuple[Row, ...], Meta(max_length=MAX_ROWS)]
    digests: Annotated[tuple[Digest, ...], Meta(max_length=MAX_DIGESTS)] = ()
