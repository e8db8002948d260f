"""What brokers sign of what they tell other units, and who checks it (design §14).

Inside a super-cluster members are trusted to speak. What crosses a link of level 2 or above is signed by the broker
whose word it is, with the key of its certificate. Relays gather statements anew, so a signature is of one statement,
travels with it, and holds whatever frames it came in:

- *A digest*: its speaker signs unit, version, and for each part the hashes of all its foldings. Folding is
  deterministic, so a relay that has less room folds further, and what it passes on can still be checked.
- *A claim*: its teller signs what is known after it: serial, flags, and a hash of all marks. Its age changes on the way
  and is outside.
- *A connection*: each end signs its coarsest form (id, level, the two units) and the cost that this end announces. Both
  signatures are needed, so nobody can invent a link to a unit that knows nothing of it. A withdrawal is signed by an
  end, or on its behalf by a broker of that end's unit, and travels with the signatures of both ends: an id belongs to
  the two units that made it.

Who signs and who checks is given to the core (`boundary.signing`).

The invariant: no two statements have the same bytes, whatever their kind, their network and their signer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from veena.address import Address, Unit
from veena.core.wire.control import ConnectionRecord
from veena.core.wire.interest import Claim, Version
from veena.core.wire.signatures import HASH_BYTES

#: Statements of units from this level on are signed: the lowest that crosses links between super-clusters.
SIGNED_LEVEL: Final = 2
#: The two ends of a connection, in the order of its record.
LOW, HIGH = 0, 1

_encode = msgspec.msgpack.Encoder().encode


def folding_hash(data: bytes) -> bytes:
    """The hash of one folding of a part of a digest."""
    return blake2b(data, digest_size=HASH_BYTES, person=b"veena-folding").digest()


def state_hash(marks: Mapping[Unit, Mapping[Address, tuple[int, int]]]) -> bytes:
    """The hash of all that somebody claims to have, in whatever order it was told."""
    told = sorted((unit, speaker, pair) for unit, speakers in marks.items() for speaker, pair in speakers.items())
    return blake2b(_encode(told), digest_size=HASH_BYTES, person=b"veena-marks").digest()


@dataclass(frozen=True, slots=True)
class Statements:
    """What is signed in one network: the bytes of each kind of statement, the same for who signs and who checks."""

    network: str
    levels: int

    def digest(
        self, signer: Address, unit: Unit, version: Version, scopes: Sequence[int], foldings: Sequence[bytes]
    ) -> bytes:
        return _encode(("digest", self.network, signer, unit, version, tuple(scopes), tuple(foldings)))

    def claim(self, claim: Claim, state: bytes) -> bytes:
        return _encode(("claim", self.network, claim.teller, claim.who, claim.serial, claim.whole, claim.last, state))

    def end(self, signer: Address, record: ConnectionRecord, end: int) -> bytes:
        """What one end of a connection says of it."""
        cost = record.high_cost if end else record.low_cost
        return _encode(("connection", self.network, signer, record.id, record.level, self.coarsest(record), end, cost))

    def withdrawal(self, signer: Address, record: ConnectionRecord) -> bytes:
        return _encode(("withdrawal", self.network, signer, record.id, record.level, self.coarsest(record)))

    def coarsest(self, record: ConnectionRecord) -> tuple[Unit, Unit]:
        """The two units that a connection joins, as those see it who are outside of both."""
        size = self.levels - record.level
        return record.low[:size], record.high[:size]
