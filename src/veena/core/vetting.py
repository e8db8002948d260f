"""What enters over a link of level 2 or above: statements of other units, each checked for its signature first.

Where a statement enters a super-cluster it is checked, and inside it nobody checks again. So whoever passes a statement
on over such a link answers for it: its super-cluster has looked, or somebody in it has signed. Two kinds of faults are
told apart (`signatures.Fault`):

- *What everybody sees*: no signature, one that does not fit, or a signer outside of the unit. The neighbour or its
  super-cluster is the liar. It loses the link, and the reason says so.
- *What brokers may see differently*: a certificate that has expired or was revoked, an authority that is not believed,
  an address that nothing binds to a name; and a claim after others that are not known here. The statement is dropped,
  the link stays. Where something is missing, the neighbour is asked for everything.

Nothing is checked that is not news, and each signature once. A link has a purse of checks that fills with time; when it
is empty, what comes over that link waits, in order, and other links do not (`links.early`).

The invariant: what `enter` lets through over such a link was said by brokers of the units that it is about, or is known
already.
"""

from __future__ import annotations

from dataclasses import dataclass

from veena.address import Address, Unit, format_address
from veena.core.boundary.inputs_effects import Effect, StatementRefused
from veena.core.boundary.settings import SECOND_NS
from veena.core.boundary.signing import Fault, FaultCode, Verifier
from veena.core.interest.digest import DIGEST_LEVEL
from veena.core.interest.receipts import Record
from veena.core.interest.service import Profiles
from veena.core.links.link import Link
from veena.core.topology.connection_table import ConnectionTable
from veena.core.trust.proof_store import ProofStore, cost_of
from veena.core.trust.signatures import HIGH, LOW, SIGNED_LEVEL, Statements, folding_hash, state_hash
from veena.core.wire.control import ConnectionRecord, Connections, Cost, Frame
from veena.core.wire.interest import Claim, Digest, Have, Interest
from veena.core.wire.signatures import HASH_BYTES, ConnectionProof, Credentials, DigestProof, Proofs, Signature
from veena.errors import NotSigned

#: Checks of one link: at once, which takes some 30 ms, and in a second.
PURSE = 192
CHECKS_A_SECOND = 500
#: What a credential costs that was not seen before: its certificate and its grant have signatures, too.
CREDENTIAL_CHECKS = 4
NO_PROOFS = Proofs()


@dataclass(slots=True)
class _Purse:
    checks: float
    filled_ns: int


class Vetting:
    """One a broker whose network signs."""

    def __init__(
        self,
        host: Address,
        statements: Statements,
        profiles: Profiles,
        table: ConnectionTable,
        store: ProofStore,
        verifier: Verifier,
        effects: list[Effect],
    ) -> None:
        self._host, self._statements = host, statements
        self._profiles, self._table, self._store = profiles, table, store
        self._verifier = verifier
        self._effects = effects
        #: By link: what it may still ask for, and when something was last refused.
        self._purses: dict[int, _Purse] = {}
        self._refused_ns: dict[int, int] = {}
        self.checked = self.refused = 0

    def closed(self, link: Link) -> None:
        for each in (self._purses, self._refused_ns):
            each.pop(link.number, None)

    # --- rationing ---

    def wait_for(self, link: Link, checks: int, now_ns: int) -> int:
        """How long so many checks have to wait, in nanoseconds."""
        if link.level < SIGNED_LEVEL:
            return 0
        purse = self._purses.setdefault(link.number, _Purse(PURSE, now_ns))
        purse.checks = min(PURSE, purse.checks + (now_ns - purse.filled_ns) * CHECKS_A_SECOND / SECOND_NS)
        purse.filled_ns = now_ns
        return int(max(0.0, checks - purse.checks) * SECOND_NS / CHECKS_A_SECOND)

    def _spend(self, link: Link, checks: int) -> None:
        purse = self._purses.get(link.number)
        if purse is not None:
            purse.checks -= checks

    def credentials_came(self, link: Link, frame: Credentials) -> None:
        for credential in frame.credentials:
            if self._store.credential(credential.hash()) is None:
                self._spend(link, CREDENTIAL_CHECKS)
                self._store.keep_credential(credential)

    # --- entering ---

    def enter(self, link: Link, frame: Frame, proofs: Proofs, now_ns: int) -> tuple[Frame, Proofs]:
        """What of a frame counts, and the signatures to keep of it; raise NotSigned for a lie that is plain."""
        if link.level < SIGNED_LEVEL:
            return frame, proofs
        try:
            if isinstance(frame, Interest):
                return self._enter_digests(link, frame, proofs, now_ns)
            if isinstance(frame, Have):
                return self._enter_claims(link, frame, proofs, now_ns)
            assert isinstance(frame, Connections)
            return self._enter_connections(link, frame, proofs, now_ns)
        except NotSigned:
            self.refused += 1
            raise

    def _enter_digests(self, link: Link, frame: Interest, proofs: Proofs, now_ns: int) -> tuple[Interest, Proofs]:
        if frame.rows:
            raise NotSigned(f"rows of {format_address(frame.rows[0].unit)}: between super-clusters digests are told")
        found: list[Digest] = []
        signed: list[DigestProof] = []
        by_unit = {proof.unit: proof for proof in proofs.digests}
        for digest in frame.digests:
            known = self._profiles.table.digest(digest.unit)
            if known is not None and known.version >= digest.version:
                continue
            what = f"the digest of {format_address(digest.unit)}"
            proof = by_unit.get(digest.unit)
            if proof is None or proof.version != digest.version:
                raise NotSigned(f"{what} has no signature: its speaker signs it")
            fault = self._fault_of_digest(link, digest, proof, now_ns)
            if fault is None:
                found.append(digest)
                signed.append(proof)
            else:
                self._refuse(link, what, fault, now_ns)
        return Interest((), tuple(found)), Proofs(digests=tuple(signed))

    def _fault_of_digest(self, link: Link, digest: Digest, proof: DigestProof, now_ns: int) -> Fault | None:
        signer, scopes = proof.signature.signer, [part.scope for part in digest.parts]
        if len(digest.unit) > self._statements.levels - DIGEST_LEVEL:
            return None  # no digest at all: who takes it in says so
        if signer != digest.version[1] or signer[: len(digest.unit)] != digest.unit:
            return Fault(
                FaultCode.FORGED, f"{format_address(signer)} has signed it, who did not tell it", is_plain=True
            )
        if len(proof.foldings) != len(scopes):
            return Fault(
                FaultCode.FORGED, f"it has {len(scopes)} parts, and {len(proof.foldings)} are signed", is_plain=True
            )
        for part, hashes in zip(digest.parts, proof.foldings, strict=True):
            at = hashes.find(folding_hash(part.signed))
            if at < 0 or at % HASH_BYTES:
                return Fault(
                    FaultCode.FORGED, "it is not what its speaker has signed, nor a folding of that", is_plain=True
                )
        statement = self._statements.digest(signer, digest.unit, digest.version, scopes, proof.foldings)
        return self._verify(link, proof.signature, statement, now_ns)

    def _enter_claims(self, link: Link, frame: Have, proofs: Proofs, now_ns: int) -> tuple[Have, Proofs]:
        found: list[Claim] = []
        signed = {(each.who, each.teller, each.serial): each for each in proofs.claims}
        #: What is known after the claims of this frame that were taken.
        after: dict[tuple[Unit, Address], Record] = {}
        claims = self._profiles.claims
        for claim in frame.claims:
            key = (claim.who, claim.teller)
            if claims.is_old(claim):
                continue
            what = f"a claim of {format_address(claim.who)}"
            proof = signed.get((*key, claim.serial))
            if proof is None:
                raise NotSigned(f"{what} has no signature: its teller signs it")
            if proof.signature.signer != claim.teller or claim.teller[: len(claim.who)] != claim.who:
                fault: Fault | None = Fault(
                    FaultCode.FORGED, f"{format_address(proof.signature.signer)} has signed it", is_plain=True
                )
            else:
                statement = self._statements.claim(claim, proof.state)
                fault = self._verify(link, proof.signature, statement, now_ns)
            if fault is None:
                before = after.get(key) or claims.record(*key)
                record = claims.after(claim, before)
                if state_hash(record.marks) == proof.state:
                    after[key] = record
                    found.append(claim)
                    continue
                is_all = claim.complete and (before is None or claim.serial > before.serial)
                fault = Fault(
                    FaultCode.INCOMPLETE, "it was altered, or follows others that are not known here", is_plain=is_all
                )
                link.ask_again(now_ns)
            self._refuse(link, what, fault, now_ns)
        return Have(tuple(found)), proofs

    def _enter_connections(
        self, link: Link, frame: Connections, proofs: Proofs, now_ns: int
    ) -> tuple[Connections, Proofs]:
        by_id = {proof.id: proof for proof in proofs.connections}
        found: list[ConnectionRecord] = []
        signed: list[ConnectionProof] = []
        for record in frame.records:
            proof = by_id.get(record.id) or ConnectionProof(record.id)
            entered = self._enter_connection(link, record, proof, now_ns)
            if entered is not None:
                found.append(entered[0])
                signed.append(entered[1])
        return Connections(tuple(found), frame.complete), Proofs(connections=tuple(signed))

    def _enter_connection(
        self, link: Link, record: ConnectionRecord, proof: ConnectionProof, now_ns: int
    ) -> tuple[ConnectionRecord, ConnectionProof] | None:
        """A copy with nothing in it that is not signed, or known; None for one that does not count."""
        known = self._table.record(record.id)
        what = f"connection {record.id:x} of {' and '.join(map(format_address, self._statements.coarsest(record)))}"
        if known is not None and self._statements.coarsest(known) != self._statements.coarsest(record):
            self._refuse(
                link, what, Fault(FaultCode.INCOMPLETE, "its id is that of another connection", is_plain=False), now_ns
            )
            return None
        costs: list[Cost] = [record.low_cost, record.high_cost]
        kept: list[tuple[Signature, ...]] = [(), ()]
        for end, signatures in ((LOW, proof.low), (HIGH, proof.high)):
            if known is not None and not self._is_news(link, record, known, end, signatures):
                costs[end] = cost_of(known, end)
                continue
            fault = self._fault_of_end(link, record, end, signatures, now_ns)
            if fault is not None:
                self._refuse(link, what, fault, now_ns)
                return None
            kept[end] = signatures
        is_withdrawn = not record.up and (known is None or known.up)
        if is_withdrawn:
            fault = self._fault_of_withdrawal(link, record, proof.down, now_ns)
            if fault is not None:
                self._refuse(link, what, fault, now_ns)
                return None
        low, high = kept
        entered = ConnectionRecord(record.id, record.level, record.low, record.high, record.up, *costs)
        return entered, ConnectionProof(record.id, low, high, proof.down if is_withdrawn else ())

    def _is_news(
        self, link: Link, record: ConnectionRecord, known: ConnectionRecord, end: int, signatures: tuple[Signature, ...]
    ) -> bool:
        """Whether a copy says more of an end than is known, or has the signature that is missing."""
        cost, before = cost_of(record, end), cost_of(known, end)
        unit = record.high if end else record.low
        if record.id == link.connection and self._host[: len(unit)] == unit:
            return False  # what this end says the host knows best
        if cost != before:
            return cost > before
        is_missing = self._store.connection(record.id).of(end, cost) is None
        return is_missing and (bool(signatures) or record.id == link.connection)

    def _fault_of_end(
        self, link: Link, record: ConnectionRecord, end: int, signatures: tuple[Signature, ...], now_ns: int
    ) -> Fault | None:
        unit = record.high if end else record.low
        if not signatures:
            return Fault(FaultCode.UNSIGNED, f"it has no signature of its end in {format_address(unit)}", is_plain=True)
        (signature,) = signatures
        if signature.signer[: len(unit)] != unit:
            reason = f"{format_address(signature.signer)} has signed for {format_address(unit)}, and is outside"
            return Fault(FaultCode.ELSEWHERE, reason, is_plain=True)
        return self._verify(link, signature, self._statements.end(signature.signer, record, end), now_ns)

    def _fault_of_withdrawal(
        self, link: Link, record: ConnectionRecord, signatures: tuple[Signature, ...], now_ns: int
    ) -> Fault | None:
        if not signatures:
            return Fault(FaultCode.UNSIGNED, "nobody has signed that it is over", is_plain=True)
        (signature,), size = signatures, self._statements.levels - record.level
        if signature.signer[:size] not in self._statements.coarsest(record):
            return Fault(
                FaultCode.ELSEWHERE,
                f"{format_address(signature.signer)} withdrew it, and is at neither end",
                is_plain=True,
            )
        return self._verify(link, signature, self._statements.withdrawal(signature.signer, record), now_ns)

    def _verify(self, link: Link, signature: Signature, statement: bytes, now_ns: int) -> Fault | None:
        if len(signature.signer) != self._statements.levels:
            return Fault(FaultCode.FORGED, f"{format_address(signature.signer)} is no broker's address", is_plain=True)
        credential = self._store.credential(signature.credential)
        if credential is None:
            link.ask_again(now_ns)
            return Fault(FaultCode.INCOMPLETE, "the credential of its signer has not come", is_plain=False)
        self._spend(link, 1)
        self.checked += 1
        wall_ns = self._profiles.epochs.wall_ns(now_ns)
        return self._verifier.why_not(credential, signature, statement, wall_ns)

    # --- what is refused ---

    def _refuse(self, link: Link, what: str, fault: Fault, now_ns: int) -> None:
        reason = f"{what}: {fault.reason}"
        if fault.is_plain:
            raise NotSigned(f"{reason}; who passes it on to another unit must have looked")
        self.refused += 1
        if now_ns >= self._refused_ns.get(link.number, -SECOND_NS) + SECOND_NS:
            self._refused_ns[link.number] = now_ns
            self._effects.append(StatementRefused(link.number, fault.code, reason))
