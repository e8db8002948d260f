"""The signatures of statements: made for what this broker says of its units, and passed on with what others say.

Only statements of units of level 2 and above are signed: those that cross links between super-clusters. They are signed
when they first go out, over whatever link, so that they can be passed on from there. Over a link of level 2 or above
nothing goes that has not all its signatures, because it would cost that link (`vetting`): a connection waits here until
the other end's signature has come over the connection itself, and is told again then.

Everything here is empty, and no frame is changed, in a network without an authority.

The invariant: this broker signs what it has said itself, in this life, and nothing that others said in its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from veena.address import Address
from veena.core.boundary.inputs_effects import Effect
from veena.core.boundary.settings import Settings
from veena.core.boundary.signing import Signing
from veena.core.interest.digest import foldings
from veena.core.interest.service import Profiles
from veena.core.links.link import Link
from veena.core.topology.connection import with_cost
from veena.core.topology.connection_table import ConnectionTable
from veena.core.trust.proof_store import ProofStore, cost_of
from veena.core.trust.signatures import HIGH, LOW, SIGNED_LEVEL, Statements, folding_hash, state_hash
from veena.core.vetting import CREDENTIAL_CHECKS, NO_PROOFS, Vetting
from veena.core.wire.control import ConnectionRecord, Connections, Frame
from veena.core.wire.interest import Claim, Digest, Have, Interest
from veena.core.wire.signatures import (
    MAX_CREDENTIALS,
    MAX_SIGNED_RECORDS,
    ClaimProof,
    ConnectionProof,
    Credential,
    Credentials,
    DigestProof,
    Proofs,
    Signature,
)


@dataclass(frozen=True, slots=True)
class SignatureStatistics:
    """Signatures that this broker made and checked, and statements that it refused for theirs."""

    made: int = 0
    checked: int = 0
    refused: int = 0


class StatementSigner:
    """One a broker; without `signing` it lets everything through as it is."""

    def __init__(
        self,
        host: Address,
        settings: Settings,
        profiles: Profiles,
        table: ConnectionTable,
        by_connection: Mapping[int, Link],
        signing: Signing | None,
        grant: bytes,
        effects: list[Effect],
    ) -> None:
        self._host = host
        self._statements = Statements(settings.network, len(host))
        self._profiles, self._table, self._links = profiles, table, by_connection
        self._signing, self._grant = signing, grant
        self.store = ProofStore()
        self._vetting = (
            None
            if signing is None
            else Vetting(host, self._statements, profiles, table, self.store, signing.verifier, effects)
        )
        #: What the host shows with what it signs.
        self._own: bytes | None = None
        #: By link: the signatures for the frame that comes next, and the credentials that were told.
        self._pending: dict[int, Proofs] = {}
        self._told: dict[int, dict[bytes, None]] = {}
        self.made = 0

    def statistics(self) -> SignatureStatistics:
        found = self._vetting
        return (
            SignatureStatistics(self.made)
            if found is None
            else SignatureStatistics(self.made, found.checked, found.refused)
        )

    def is_far(self, link: Link) -> bool:
        """Whether nothing unsigned may cross this link."""
        return self._vetting is not None and link.level >= SIGNED_LEVEL

    # --- what comes ---

    def wait_for(self, link: Link, frame: Frame, now_ns: int) -> int:
        """How long a frame has to wait until its signatures may be checked, in nanoseconds."""
        if self._vetting is None:
            return 0
        checks = self._pending.get(link.number, NO_PROOFS).count()
        if isinstance(frame, Credentials):
            checks = CREDENTIAL_CHECKS * len(frame.credentials)
        return self._vetting.wait_for(link, checks, now_ns)

    def credentials_came(self, link: Link, frame: Credentials) -> None:
        if self._vetting is not None:
            self._vetting.credentials_came(link, frame)

    def proofs_came(self, link: Link, frame: Proofs) -> None:
        if self._vetting is not None:
            self._pending[link.number] = frame

    def enter(self, link: Link, frame: Frame, now_ns: int) -> tuple[Frame, Proofs]:
        """What of a frame with statements counts, and what is to be kept of its signatures when it was taken."""
        if self._vetting is None:
            return frame, NO_PROOFS
        return self._vetting.enter(link, frame, self._pending.pop(link.number, NO_PROOFS), now_ns)

    def keep(self, link: Link, frame: Frame, proofs: Proofs) -> None:
        """A frame was taken: keep the signatures of what is known by it now."""
        if proofs is NO_PROOFS:
            return
        table, claims = self._profiles.table, self._profiles.claims
        for digest in proofs.digests:
            known = table.digest(digest.unit)
            if known is not None and known.version == digest.version:
                self.store.keep_digest(digest)
        for claim in proofs.claims:
            record = claims.record(claim.who, claim.teller)
            if record is not None and record.serial >= claim.serial:
                self.store.keep_claim(claim)
        copies = {record.id: record for record in frame.records} if isinstance(frame, Connections) else {}
        for proof in proofs.connections:
            now, copy = self._table.record(proof.id), copies.get(proof.id)
            if now is not None and copy is not None and self.store.keep_connection(copy, proof, now):
                self._table.tell_again(proof.id, link.number)
        self.store.prune(table.digests, claims.tellers_known(), self._table)

    def refreshed(self, link: Link) -> None:
        """A neighbour asks for everything: credentials, too."""
        self._told.pop(link.number, None)

    def closed(self, link: Link) -> None:
        self._told.pop(link.number, None)
        self._pending.pop(link.number, None)
        if self._vetting is not None:
            self._vetting.closed(link)

    # --- what goes ---

    def signed(self, link: Link, frames: Iterable[Frame]) -> Iterable[Frame]:
        """These frames for this link, with signatures before them; without what must not cross it."""
        return frames if self._vetting is None else self._sign(link, frames)

    def _sign(self, link: Link, frames: Iterable[Frame]) -> Iterator[Frame]:
        for frame in frames:
            if isinstance(frame, Interest):
                yield from self._sign_digests(link, frame)
            elif isinstance(frame, Have):
                yield from self._sign_claims(link, frame)
            elif isinstance(frame, Connections):
                yield from self._sign_connections(link, frame)
            else:
                yield frame

    def _sign_digests(self, link: Link, frame: Interest) -> Iterator[Frame]:
        found = [(digest, self._digest_proof(digest)) for digest in frame.digests]
        if self.is_far(link):
            found = [each for each in found if each[1] is not None]
        proofs = Proofs(digests=tuple(proof for _, proof in found if proof is not None))
        yield from self._introduced(link, proofs)
        if frame.rows or found:
            yield Interest(frame.rows, tuple(digest for digest, _ in found))

    def _sign_claims(self, link: Link, frame: Have) -> Iterator[Frame]:
        found = [(claim, self._claim_proof(claim)) for claim in frame.claims]
        if self.is_far(link):
            found = [each for each in found if each[1] is not None]
        yield from self._introduced(link, Proofs(claims=tuple(proof for _, proof in found if proof is not None)))
        if found:
            yield Have(tuple(claim for claim, _ in found))

    def _sign_connections(self, link: Link, frame: Connections) -> Iterator[Frame]:
        if all(record.level < SIGNED_LEVEL for record in frame.records):
            yield frame
            return
        found = [(record, self._connection_proof(record)) for record in frame.records]
        if self.is_far(link):
            found = [each for each in found if self._may_cross(link, *each)]
        for at in range(0, max(len(found), int(frame.complete)), MAX_SIGNED_RECORDS):
            part = found[at : at + MAX_SIGNED_RECORDS]
            proofs = tuple(proof for _, proof in part if proof.signatures())
            yield from self._introduced(link, Proofs(connections=proofs))
            is_last = at + MAX_SIGNED_RECORDS >= len(found)
            yield Connections(tuple(record for record, _ in part), frame.complete and is_last)

    def _may_cross(self, link: Link, record: ConnectionRecord, proof: ConnectionProof) -> bool:
        """Whether a connection has all signatures; of the link itself that of the host is enough."""
        if record.id == link.connection:
            is_low = self._host[: len(record.low)] == record.low
            return bool(proof.low if is_low else proof.high)
        return bool(proof.low and proof.high and (record.up or proof.down))

    def _introduced(self, link: Link, proofs: Proofs) -> Iterator[Frame]:
        """The frames with these signatures, behind the credentials that the neighbour has not been told."""
        signatures = [each.signature for each in proofs.digests] + [each.signature for each in proofs.claims]
        for ends in proofs.connections:
            signatures += ends.signatures()
        told = self._told.setdefault(link.number, {})
        names = dict.fromkeys(each.credential for each in signatures if each.credential not in told)
        wanted = [found for name in names if (found := self.store.credential(name)) is not None]
        told.update(names)
        for at in range(0, len(wanted), MAX_CREDENTIALS):
            yield Credentials(tuple(wanted[at : at + MAX_CREDENTIALS]))
        if signatures:
            yield proofs

    # --- what this broker says itself ---

    def _signature(self, statement: bytes) -> Signature | None:
        assert self._signing is not None
        if self._own is None:
            self._own = self.store.keep_credential(Credential(self._signing.signer.certificate, self._grant))
        if self._own is None:
            return None  # thousands of others sign what is kept here: this broker is heard when some of them go
        self.made += 1
        return Signature(self._host, self._own, self._signing.signer.sign(statement))

    def _signatures(self, statement: bytes) -> tuple[Signature, ...]:
        made = self._signature(statement)
        return () if made is None else (made,)

    def _digest_proof(self, digest: Digest) -> DigestProof | None:
        known = self.store.digest(digest.unit, digest.version)
        if known is not None or not self._profiles.speakers.has_told(digest.unit, digest.version):
            return known
        hashes = tuple(b"".join(folding_hash(each.signed) for each in foldings(part)) for part in digest.parts)
        scopes = [part.scope for part in digest.parts]
        signature = self._signature(self._statements.digest(self._host, digest.unit, digest.version, scopes, hashes))
        if signature is None:
            return None
        proof = DigestProof(digest.unit, digest.version, hashes, signature)
        self.store.keep_digest(proof)
        return proof

    def _claim_proof(self, claim: Claim) -> ClaimProof | None:
        if self._statements.levels - len(claim.who) < SIGNED_LEVEL:
            return None
        claims = self._profiles.claims
        record, known = claims.record(claim.who, claim.teller), self.store.claim(claim.who, claim.teller, claim.serial)
        if known is not None:
            # One that was made here of what is known must be all that its teller has said.
            is_whole = not claim.complete or state_hash(claims.after(claim, None).marks) == known.state
            return known if is_whole else None
        if claim.teller != self._host or record is None or record.serial != claim.serial:
            return None
        state = state_hash(record.marks)
        signature = self._signature(self._statements.claim(claim, state))
        if signature is None:
            return None
        proof = ClaimProof(claim.who, claim.teller, claim.serial, state, signature)
        self.store.keep_claim(proof)
        return proof

    def _connection_proof(self, copy: ConnectionRecord) -> ConnectionProof:
        """The signatures of a connection, the host's own made now where they are missing."""
        if copy.level < SIGNED_LEVEL:
            return ConnectionProof(copy.id)
        record = self._table.record(copy.id) or copy
        kept, link = self.store.connection(copy.id), self._links.get(copy.id)
        if record.up and link is not None and link.neighbour is not None:
            end = LOW if self._host < link.neighbour else HIGH
            cost = cost_of(record, end)
            if cost == link.cost and kept.of(end, cost) is None:
                made = self._signatures(self._statements.end(self._host, record, end))
                low, high = (made, ()) if end == LOW else ((), made)
                self.store.keep_connection(record, ConnectionProof(copy.id, low, high), record)
        if not record.up and kept.down is None and self._table.has_withdrawn(copy.id):
            size = self._statements.levels - record.level
            assert self._host[:size] in self._statements.coarsest(record), (
                "nobody withdraws what is no end of its units"
            )
            made = self._signatures(self._statements.withdrawal(self._host, record))
            self.store.keep_connection(record, ConnectionProof(copy.id, down=made), record)
        return self.store.connection(copy.id).proof(copy)

    # --- another key, or another grant ---

    def renewed(self, signing: Signing | None, grant: bytes, now_ns: int) -> list[ConnectionRecord]:
        """Show this from now on. What the host has said is signed anew: the connections that it has to tell for that
        are returned, digests are told when their interval is over, claims whenever they are."""
        self._grant = grant
        self._own = None
        if self._vetting is None:
            return []
        self._signing = signing or self._signing
        self.store.forget_signer(self._host)
        self._profiles.speakers.tell_again(now_ns)
        found: list[ConnectionRecord] = []
        for connection, link in self._links.items():
            record = self._table.record(connection)
            if record is not None and link.level >= SIGNED_LEVEL and link.neighbour is not None:
                link.cost = (link.cost[0] + 1, link.cost[1])
                found.append(with_cost(record, self._host, link.neighbour, link.cost))
        return found

    def check(self) -> None:
        self.store.check()
