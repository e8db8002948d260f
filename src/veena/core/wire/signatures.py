"""The frames that carry signatures of statements, and what lets their signers speak.

A statement is something that brokers tell each other of a large unit: its digest, a claim, a connection
(`trust.signatures` says what of each is signed). The frames of statements stay as they are; a `Proofs` frame goes right
before such a frame, and has the signatures of what is in it. So brokers of a network without an authority send the
same bytes as ever, and a relay that gathers statements into other frames moves their signatures along.

A signature names its signer's credential by a hash. The credential itself goes over each link once, before the first
signature that needs it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final

from msgspec import Meta, Struct

from veena.core.wire.control import MAX_GRANT, U64, Frame, UnitPath
from veena.core.wire.interest import MAX_CLAIMS, MAX_DIGESTS, Count, Version

#: A certificate with the longest names and a dozen units has some 2 KiB.
MAX_CERTIFICATE: Final = 4096
#: An ECDSA signature in DER of the curve P-256 has at most 72 bytes, one of Ed25519 has 64.
MAX_SIGNATURE: Final = 80
#: Bytes of the hash of a credential, of a digest's folding, and of what a claim leaves known.
HASH_BYTES: Final = 16
#: Foldings of one part of a digest: from 8 KiB down to 8 bytes, or from 512 hashes of atoms.
MAX_FOLDINGS: Final = 16
#: Connections in one frame where they are signed: with three signatures each some 20 ms of checks.
MAX_SIGNED_RECORDS: Final = 24
#: Credentials in one frame.
MAX_CREDENTIALS: Final = 16

Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]


class Credential(Struct, frozen=True, array_like=True, gc=False):
    """What lets a broker sign: its certificate in DER, and the grant of its address; empty without one."""

    certificate: Annotated[bytes, Meta(max_length=MAX_CERTIFICATE)]
    grant: Annotated[bytes, Meta(max_length=MAX_GRANT)]

    def hash(self) -> bytes:
        digest = blake2b(digest_size=HASH_BYTES, person=b"veena-credential")
        digest.update(len(self.certificate).to_bytes(4, "big") + self.certificate + self.grant)
        return digest.digest()


class Signature(Struct, frozen=True, array_like=True, gc=False):
    """A signature, the address of the broker that made it, and the hash of that broker's credential."""

    signer: UnitPath
    credential: Hash
    data: Annotated[bytes, Meta(max_length=MAX_SIGNATURE)]


#: One, or none.
Maybe = Annotated[tuple[Signature, ...], Meta(max_length=1)]


class DigestProof(Struct, frozen=True, array_like=True, gc=False):
    """The signature of a digest by its speaker; `foldings` has the hashes of each part at each length."""

    unit: UnitPath
    version: Version
    foldings: Annotated[tuple[Annotated[bytes, Meta(max_length=MAX_FOLDINGS * HASH_BYTES)], ...], Meta(max_length=8)]
    signature: Signature


class ClaimProof(Struct, frozen=True, array_like=True, gc=False):
    """The signature of a claim by its teller; `state` is the hash of all marks that stand after it."""

    who: UnitPath
    teller: UnitPath
    serial: Count
    state: Hash
    signature: Signature


class ConnectionProof(Struct, frozen=True, array_like=True, gc=False):
    """The signatures of a connection: by each end, with the cost that it announces, and by whoever withdrew it."""

    id: U64
    low: Maybe = ()
    high: Maybe = ()
    down: Maybe = ()

    def signatures(self) -> tuple[Signature, ...]:
        return (*self.low, *self.high, *self.down)


class Credentials(Frame, frozen=True):
    """Credentials that signatures behind this frame name."""

    credentials: Annotated[tuple[Credential, ...], Meta(max_length=MAX_CREDENTIALS)]


class Proofs(Frame, frozen=True):
    """The signatures of the statements in the next frame of wants, claims or connections."""

    digests: Annotated[tuple[DigestProof, ...], Meta(max_length=MAX_DIGESTS)] = ()
    claims: Annotated[tuple[ClaimProof, ...], Meta(max_length=MAX_CLAIMS)] = ()
    connections: Annotated[tuple[ConnectionProof, ...], Meta(max_length=MAX_SIGNED_RECORDS)] = ()

    def count(self) -> int:
        """How many signatures there are."""
        ends = sum(len(each.signatures()) for each in self.connections)
        return len(self.digests) + len(self.claims) + ends
