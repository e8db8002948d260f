"""The frames of interest: what the sub-units of a unit want, row by row, digests of what larger units want, and who has
heard of it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.msgpack import Encoder

from veena.address import MAX_LEVELS
from veena.core.wire.control import U32, U63, Frame, UnitPath

#: A constraint as msgpack; the longest text that an engine takes is 16 KiB.
MAX_CONSTRAINT_BYTES = 20 * 1024
#: Rows in a frame: with ordinary constraints some 100 KiB.
MAX_ROWS = 256
#: One part of a digest: the share of 16 units in the 128 KiB that a broker keeps (`digest`).
MAX_DIGEST_BYTES = 8 * 1024
#: Kinds of wants: integers to clients' ids.
ALL_KINDS = (1 << 7) - 1
#: Names that a part of a digest tells, and their characters; where there are more it tells none, which stands for any.
MAX_DIGEST_NAMES = 64
MAX_NAME_CHARACTERS = 1024
DigestName = Annotated[str, Meta(min_length=1, max_length=255)]
#: Digests in a frame.
MAX_DIGESTS = 32
#: The kind of a row that tells no want but a mark: who has it has everything that its speaker told before it. Its key
#: is the speaker's address, a byte a level.
STANDING = 255
#: Epochs, versions and serial numbers end here: one more can always be written, and nobody gets here by counting.
MAX_COUNT = 1 << 62
#: Marks in one acknowledgement; more go into a second one. The vertices of a map with a few speakers each are fewer.
MAX_MARKS = 1024
#: Acknowledgements in a frame.
MAX_CLAIMS = 64

#: How far a want is told: a level, or the number of levels for the whole system; 0 where it says nothing.
Scope = Annotated[int, Meta(ge=0, le=MAX_LEVELS)]
#: What brokers count, so that the higher one wins.
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
#: (epoch, speaker, number): the higher one wins.
Version = tuple[Count, UnitPath, Count]


class Row(Struct, frozen=True, array_like=True, gc=False):
    """One want of one unit, present or gone."""

    unit: UnitPath
    key: Annotated[bytes, Meta(max_length=16)]
    version: Version
    wanted: bool
    kind: Annotated[int, Meta(ge=0, le=255)]
    payload: Annotated[bytes, Meta(max_length=MAX_CONSTRAINT_BYTES)]
    scope: Scope


_encode = Encoder().encode


class DigestPart(Struct, frozen=True, array_like=True, gc=False):
    """The wants of one scope: hashes of required atoms, or a Bloom filter over them when they are many."""

    scope: Scope
    bloom: bool
    data: Annotated[bytes, Meta(max_length=MAX_DIGEST_BYTES)]
    #: Kinds of wants that the atoms come from: bit k for kind k.
    kinds: Annotated[int, Meta(ge=0, le=ALL_KINDS)] = ALL_KINDS
    #: Names of the attributes and tags in the atoms, ascending; None for any.
    names: Annotated[tuple[DigestName, ...], Meta(max_length=MAX_DIGEST_NAMES)] | None = None

    @property
    def signed(self) -> bytes:
        """What a signature vouches for."""
        return _encode((self.kinds, self.names)) + self.data


class Digest(Struct, frozen=True, array_like=True, gc=False):
    """What a unit of level 2 or above may want; never narrower than the truth."""

    unit: UnitPath
    version: Version
    parts: Annotated[tuple[DigestPart, ...], Meta(max_length=8)]


class Interest(Frame, frozen=True):
    """News of wants."""

    rows: Annotated[tuple[Row, ...], Meta(max_length=MAX_ROWS)]
    digests: Annotated[tuple[Digest, ...], Meta(max_length=MAX_DIGESTS)] = ()


#: What a far gatekeeper says of its wants: more frames follow, these are all, or it does not know them all.
MORE: Final = 0
COMPLETE: Final = 1
UNKNOWN: Final = 2
#: Wants that are withdrawn in one frame.
MAX_REMOVED = 1024


class FarWant(Struct, frozen=True, array_like=True, gc=False):
    """One want of somebody in the unit beyond a link."""

    kind: Annotated[int, Meta(ge=0, le=255)]
    payload: Annotated[bytes, Meta(max_length=MAX_CONSTRAINT_BYTES)]
    scope: Scope


class FarInterest(Frame, frozen=True):
    """To the gatekeeper on the other side of a link of level 2 or above: what is wanted on this side."""

    number: U63
    #: Forget what was told before on this connection.
    begins: bool
    state: Literal[0, 1, 2]
    added: Annotated[tuple[FarWant, ...], Meta(max_length=MAX_ROWS)] = ()
    #: Keys of wants that are gone; what was added counts first.
    removed: Annotated[tuple[Annotated[bytes, Meta(max_length=16)], ...], Meta(max_length=MAX_REMOVED)] = ()


class FarDigest(Frame, frozen=True):
    """As FarInterest, for those parts of the unit that are known by digests: it replaces the one before."""

    parts: Annotated[tuple[DigestPart, ...], Meta(max_length=8)]


class FarHave(Frame, frozen=True):
    """The answer: everything up to this number was taken in."""

    number: U63


class Mark(Struct, frozen=True, array_like=True, gc=False):
    """Everything that the speaker in `version` has told of the unit up to that version; epoch 0 takes it back."""

    unit: UnitPath
    version: Version


class Claim(Struct, frozen=True, array_like=True, gc=False):
    """What all brokers of a unit have heard, as one of its speakers says it."""

    who: UnitPath
    teller: UnitPath
    #: The higher one of a teller is the later one.
    serial: Count
    #: How long ago it was told: what a new link begins with may be old.
    age_ms: U32
    #: Whether the teller reaches every part of the unit that it knows of.
    whole: bool
    #: Whether the teller speaks for the unit no longer.
    last: bool
    #: Whether these marks are all there are; otherwise they are what changed.
    complete: bool
    marks: Annotated[tuple[Mark, ...], Meta(max_length=MAX_MARKS)]


class Have(Frame, frozen=True):
    """Acknowledgements of wants, and signs of life of those who tell them."""

    claims: Annotated[tuple[Claim, ...], Meta(max_length=MAX_CLAIMS)]
