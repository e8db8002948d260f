"""The signatures of the statements that a broker keeps, for passing them on.

There is one for each digest, a few for each teller of claims (a frame may bring several claims of one teller), and up
to three for each connection. They go when the statement goes. The credentials that they name are kept once each.

The invariant: about twice as many entries as there are statements at most, and `MAX_CREDENTIALS` credentials. A
credential goes only when no signature that is kept names it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from veena.address import Address, Unit
from veena.core.trust.signatures import HIGH, LOW
from veena.core.wire.control import ConnectionRecord, Cost
from veena.core.wire.interest import Version
from veena.core.wire.signatures import ClaimProof, ConnectionProof, Credential, DigestProof, Signature

#: Claims of one teller whose signatures are kept: those of one read.
MAX_SERIALS = 8
#: Each has some 2 KiB. Those who sign what reaches a broker are its map's speakers and the ends of their links.
MAX_CREDENTIALS = 4096
#: Signatures of statements that are gone, before one looks for them.
SPARE = 256


@dataclass(frozen=True, slots=True)
class KeptConnection:
    """The signatures of a connection; an end's is for the cost beside it."""

    ends: tuple[tuple[Cost, Signature] | None, tuple[Cost, Signature] | None] = (None, None)
    down: Signature | None = None

    def of(self, end: int, cost: Cost) -> Signature | None:
        """The signature of an end for this cost."""
        found = self.ends[end]
        return found[1] if found is not None and found[0] == cost else None

    def proof(self, record: ConnectionRecord) -> ConnectionProof:
        """What goes with this copy of the connection."""
        low, high = self.of(LOW, record.low_cost), self.of(HIGH, record.high_cost)
        return ConnectionProof(record.id, _maybe(low), _maybe(high), () if record.up else _maybe(self.down))


UNSIGNED = KeptConnection()


class ProofStore:
    """One a broker."""

    def __init__(self) -> None:
        self._digests: dict[Unit, DigestProof] = {}
        self._claims: dict[tuple[Unit, Address], dict[int, ClaimProof]] = {}
        self._connections: dict[int, KeptConnection] = {}
        self._credentials: dict[bytes, Credential] = {}
        #: How many signatures of statements there were after the last look for those that are not needed.
        self._pruned = 0

    # --- statements ---

    def digest(self, unit: Unit, version: Version) -> DigestProof | None:
        found = self._digests.get(unit)
        return found if found is not None and found.version == version else None

    def speakers(self) -> dict[Unit, Address]:
        """Who has signed what a unit wants, as far as it is known."""
        return {unit: proof.signature.signer for unit, proof in self._digests.items()}

    def keep_digest(self, proof: DigestProof) -> None:
        """Keep the signature of a digest; the first of several for one version."""
        if self.digest(proof.unit, proof.version) is None:
            self._digests[proof.unit] = proof

    def claim(self, who: Unit, teller: Address, serial: int) -> ClaimProof | None:
        return self._claims.get((who, teller), {}).get(serial)

    def keep_claim(self, proof: ClaimProof) -> None:
        serials = self._claims.setdefault((proof.who, proof.teller), {})
        serials.setdefault(proof.serial, proof)
        while len(serials) > MAX_SERIALS:
            del serials[min(serials)]

    def connection(self, connection_id: int) -> KeptConnection:
        return self._connections.get(connection_id, UNSIGNED)

    def keep_connection(self, copy: ConnectionRecord, proof: ConnectionProof, known: ConnectionRecord) -> bool:
        """Keep what is new of a copy's signatures, if they are for what is known; whether anything was."""
        kept = self.connection(copy.id)
        ends = list(kept.ends)
        for end, signatures in ((LOW, proof.low), (HIGH, proof.high)):
            cost = cost_of(copy, end)
            if signatures and cost == cost_of(known, end) and kept.of(end, cost) is None:
                ends[end] = (cost, signatures[0])
        down = kept.down or (proof.down[0] if proof.down and not copy.up else None)
        news = KeptConnection((ends[LOW], ends[HIGH]), down)
        self._connections[copy.id] = news
        return news != kept

    def forget_signer(self, signer: Address) -> None:
        """Drop what one broker signed of wants and claims: from now on it shows another credential."""
        self._digests = {unit: each for unit, each in self._digests.items() if each.signature.signer != signer}
        for serials in self._claims.values():
            for serial in [serial for serial, each in serials.items() if each.signature.signer == signer]:
                del serials[serial]

    def prune(self, units: Container[Unit], tellers: Container[tuple[Unit, Address]], ids: Container[int]) -> None:
        """Drop the signatures of all but these, where there are many more than at the last time."""
        size = len(self._digests) + len(self._claims) + len(self._connections)
        if size <= 2 * self._pruned + SPARE:
            return
        self._digests = {unit: each for unit, each in self._digests.items() if unit in units}
        self._claims = {key: each for key, each in self._claims.items() if key in tellers}
        self._connections = {number: each for number, each in self._connections.items() if number in ids}
        self._pruned = len(self._digests) + len(self._claims) + len(self._connections)

    # --- credentials ---

    def credential(self, name: bytes) -> Credential | None:
        return self._credentials.get(name)

    def keep_credential(self, credential: Credential) -> bytes | None:
        """Keep a credential; its name, or None when there is no room for one more."""
        name = credential.hash()
        if name not in self._credentials and len(self._credentials) >= MAX_CREDENTIALS:
            named = {signature.credential: None for signature in self._signatures()}
            self._credentials = {each: found for each, found in self._credentials.items() if each in named}
            if len(self._credentials) >= MAX_CREDENTIALS:
                return None
        self._credentials[name] = credential
        return name

    def _signatures(self) -> Iterator[Signature]:
        yield from (each.signature for each in self._digests.values())
        yield from (each.signature for serials in self._claims.values() for each in serials.values())
        for kept in self._connections.values():
            yield from (end[1] for end in kept.ends if end is not None)
            if kept.down is not None:
                yield kept.down

    def check(self) -> None:
        assert len(self._credentials) <= MAX_CREDENTIALS
        assert all(len(serials) <= MAX_SERIALS for serials in self._claims.values())


def _maybe(signature: Signature | None) -> tuple[Signature, ...]:
    return () if signature is None else (signature,)


def cost_of(record: ConnectionRecord, end: int) -> Cost:
    """What an end announces."""
    return record.high_cost if end else record.low_cost
