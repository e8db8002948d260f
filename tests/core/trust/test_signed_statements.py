"""What is said of other super-clusters is signed, and checked where it enters; a liar outside has no effect."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.event_world import Stage
from tests.core.liars import Liar
from veena.address import Address
from veena.core.boundary.inputs_effects import Granted
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.interest.digest import MAX_ATOMS, fitted, foldings, make_part
from veena.core.trust.signatures import Statements, folding_hash, state_hash
from veena.core.vetting import PURSE
from veena.core.wire.control import ConnectionRecord, Connections, Frame
from veena.core.wire.interest import Claim, Digest, DigestPart, Have, Interest, Mark
from veena.core.wire.signatures import (
    ClaimProof,
    ConnectionProof,
    Credential,
    Credentials,
    DigestProof,
    Proofs,
    Signature,
)
from veena.runtime.networks.file import Network, make_network
from veena.sim.world.keyring import KeyRing
from veena.sim.world.options import Options

#: Where the liars live: in a super-cluster of their own.
LIARS: Address = (0, 3, 0, 31)
#: A unit that they lie about.
VICTIM = (0, 2)


def three_in_a_row() -> Network:
    """Super-clusters A - B - C of two brokers each; what A and C hear of each other passes B."""
    brokers = ["S.A.a.0", "S.A.a.1", "S.B.b.2", "S.B.b.3", "S.C.c.4", "S.C.c.5"]
    links = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    return make_network("row", brokers, [(brokers[a], brokers[b]) for a, b in links], 4)


def stage(*, signed: bool = True) -> Stage:
    return Stage(three_in_a_row(), options=Options(wire=True, signed=signed))


def ring(found: Stage) -> KeyRing:
    assert found.world.ring is not None
    return found.world.ring


def signatures(found: Stage, name: str) -> tuple[int, int, int]:
    told = found.broker(name).statistics().signatures
    return told.made, told.checked, told.refused


def test_an_honest_network_signs_and_refuses_nothing() -> None:
    """Wants, claims and connections cross a relay, and events take the way that they say."""
    found = stage()
    reader, writer = found.subscribe("5"), found.attach("0", "writer")
    found.wait()
    found.publish(writer, "one")
    found.wait(SECOND_NS)
    assert found.bodies[reader] == ["one"]
    assert all(signatures(found, name)[2] == 0 for name in found.addresses)
    assert signatures(found, "1")[1] > 0 and signatures(found, "2")[1] > 0
    assert signatures(found, "0")[1] == 0, "inside a super-cluster nobody checks"
    for name in ("0", "1"):
        broker = found.broker(name)
        digest = broker.profiles.table.digest(VICTIM)
        assert digest is not None and digest.parts
        proof = broker.exchange.statements.store.digest(digest.unit, digest.version)
        assert proof is not None and proof.signature.signer == digest.version[1]


def test_connections_cross_with_the_signatures_of_both_ends() -> None:
    found = stage()
    far = found.broker("0")
    (record,) = [each for each in far.table.everything() if {each.low[:2], each.high[:2]} == {(0, 1), (0, 2)}]
    proof = far.exchange.statements.store.connection(record.id).proof(record)
    assert [each.signer for each in (*proof.low, *proof.high)] == [found.addresses["3"], found.addresses["4"]]
    found.world.cut(found.link("3", "4"), silent=False)
    found.wait(SECOND_NS)
    known = far.table.record(record.id)
    assert known is not None and not known.up
    (down,) = far.exchange.statements.store.connection(record.id).proof(known).down
    assert down.signer in (found.addresses["3"], found.addresses["4"])


def test_a_withdrawal_on_behalf_of_a_dead_end_is_signed_by_its_unit() -> None:
    found = Stage(three_in_a_row(), options=Options(wire=True, signed=True, dial=False))
    far = found.broker("0")
    (record,) = [each for each in far.table.everything() if {each.low[:2], each.high[:2]} == {(0, 1), (0, 2)}]
    for name in ("3", "4"):
        found.world.crash(found.addresses[name], silent=True)
    found.wait(30 * SECOND_NS)
    known = far.table.record(record.id)
    assert known is not None and not known.up and (0, 2) not in far.map.reachable()
    (down,) = far.exchange.statements.store.connection(record.id).proof(known).down
    assert down.signer == found.addresses["2"]
    for name in ("3", "4"):
        found.world.start(found.addresses[name])
    found.wait(20 * SECOND_NS)
    assert (0, 2) in far.map.reachable()
    assert all(signatures(found, name)[2] == 0 for name in found.addresses)


# --- lies ---


class Forger:
    """A broker with a key of its own that says what others have not said."""

    def __init__(self, found: Stage, contact: str, address: Address = LIARS) -> None:
        self.liar = Liar(found, contact, address)
        self.ring, self.address = ring(found), address
        self.statements = Statements(found.world.settings.network, len(address))
        self.credential = Credential(self.ring.public_key(address), b"")

    def signature(self, statement: bytes, signer: Address | None = None) -> Signature:
        return Signature(signer or self.address, self.credential.hash(), self.ring.sign(self.address, statement))

    def digest(self, *, signer: Address | None = None, is_signed: bool = True) -> tuple[Frame, ...]:
        """The victim wants nothing."""
        frame = self.liar.wants_no_digest(VICTIM)
        (digest,) = frame.digests
        who = signer or self.address
        made = self.signature(self.statements.digest(who, VICTIM, digest.version, (), ()), who)
        proofs = Proofs(digests=(DigestProof(VICTIM, digest.version, (), made),))
        return (Credentials((self.credential,)), *([proofs] if is_signed else []), frame)

    def claim(self, *, signer: Address | None = None) -> tuple[Frame, ...]:
        """The victim's speaker speaks no longer."""
        teller = (*VICTIM, 0, 0)
        claim = Claim(VICTIM, teller, self.liar.version(teller)[2], 0, True, True, True, ())
        who = signer or self.address
        made = self.signature(self.statements.claim(claim, state_hash({})), who)
        proof = ClaimProof(VICTIM, teller, claim.serial, state_hash({}), made)
        return Credentials((self.credential,)), Proofs(claims=(proof,)), Have((claim,))

    def link(self, *, up: bool = True, of: ConnectionRecord | None = None) -> tuple[Frame, ...]:
        """The victim has a link to the liar's unit; or a link of its own is over."""
        record = of or ConnectionRecord(99, 2, VICTIM, self.address[:2], up, (0, 0), (0, 0))
        record = replace_up(record, up)
        ends = [self.signature(self.statements.end(self.address, record, end)) for end in (0, 1)]
        down = () if up else (self.signature(self.statements.withdrawal(self.address, record)),)
        proofs = Proofs(connections=(ConnectionProof(record.id, (ends[0],), (ends[1],), down),))
        return Credentials((self.credential,)), proofs, Connections((record,), False)


def replace_up(record: ConnectionRecord, up: bool) -> ConnectionRecord:
    return ConnectionRecord(record.id, record.level, record.low, record.high, up, record.low_cost, record.high_cost)


LIES: dict[str, Callable[[Forger], tuple[Frame, ...]]] = {
    "a digest that nobody signed": lambda forger: forger.digest(is_signed=False),
    "a digest that the liar signed": lambda forger: forger.digest(),
    "a digest signed in the speaker's name": lambda forger: forger.digest(signer=(*VICTIM, 0, 0)),
    "a claim that the liar signed": lambda forger: forger.claim(),
    "a claim signed in its teller's name": lambda forger: forger.claim(signer=(*VICTIM, 0, 0)),
    "a link that the other end knows nothing of": lambda forger: forger.link(),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_costs_its_link_and_has_no_effect(lie: Callable[[Forger], tuple[Frame, ...]]) -> None:
    found = stage()
    reader, writer = found.subscribe("5"), found.attach("0", "writer")
    found.wait()
    forger = Forger(found, "2")
    found.wait(100 * MILLISECOND_NS)
    before = {name: found.broker(name).profiles.table.digest(VICTIM) for name in ("0", "1", "2", "3")}
    forger.liar.say(*lie(forger))
    found.wait(SECOND_NS)
    assert (
        forger.liar.goodbyes and "must have looked" in forger.liar.goodbyes[0]
    ) or "signature" in forger.liar.goodbyes[0]
    assert {name: found.broker(name).profiles.table.digest(VICTIM) for name in before} == before
    assert 99 not in found.broker("2").table
    assert signatures(found, "2")[2] == 1
    found.publish(writer, "one")
    found.wait(SECOND_NS)
    assert found.bodies[reader] == ["one"]
    assert all(found.broker(name).profiles.statistics().lies == 0 for name in found.addresses)


def test_the_same_lie_is_believed_where_nobody_signs() -> None:
    found = stage(signed=False)
    found.subscribe("5")
    found.wait()
    liar = Liar(found, "2", LIARS)
    liar.say(liar.wants_no_digest(VICTIM))
    digest = found.broker("2").profiles.table.digest(VICTIM)
    assert not liar.goodbyes and digest is not None and not digest.parts


def test_nobody_withdraws_a_link_of_others() -> None:
    found = stage()
    contact = found.broker("2")
    (record,) = [each for each in contact.table.everything() if {each.low[:2], each.high[:2]} == {(0, 1), (0, 2)}]
    forger = Forger(found, "2")
    found.wait(100 * MILLISECOND_NS)
    forger.liar.say(*forger.link(up=False, of=record))
    found.wait(SECOND_NS)
    known = contact.table.record(record.id)
    assert forger.liar.goodbyes and known is not None and known.up


def test_the_id_of_a_link_is_not_another_ones() -> None:
    """A liar says that a link of its own, which has the id of another one, is over."""
    found = stage()
    contact = found.broker("2")
    (record,) = [each for each in contact.table.everything() if {each.low[:2], each.high[:2]} == {(0, 1), (0, 2)}]
    forger = Forger(found, "2")
    found.wait(100 * MILLISECOND_NS)
    own = ConnectionRecord(record.id, 2, (0, 2), LIARS[:2], True, (0, 0), (0, 0))
    forger.liar.say(*forger.link(up=False, of=own))
    found.wait(SECOND_NS)
    known = contact.table.record(record.id)
    assert known == record and not forger.liar.goodbyes, "which of the two lies nobody can tell from the ids"
    assert signatures(found, "2")[2] == 1


def test_an_altered_claim_is_dropped_and_asked_for_again() -> None:
    """A relay leaves out a mark: what follows does not fit, and the neighbour is asked for everything."""
    found = stage()
    teller = found.addresses["4"]
    contact = found.broker("2")
    record = contact.profiles.claims.record(VICTIM, teller)
    assert record is not None
    forger = Forger(found, "2")
    found.wait(100 * MILLISECOND_NS)
    claim = Claim(VICTIM, teller, record.serial + 1, 0, True, False, False, (Mark((0, 1), (1, (0, 1, 0, 0), 1)),))
    state = state_hash({})
    made = ring(found).sign(teller, forger.statements.claim(claim, state))
    own = Credential(ring(found).public_key(teller), b"")
    proof = ClaimProof(VICTIM, teller, claim.serial, state, Signature(teller, own.hash(), made))
    forger.liar.say(Credentials((own,)), Proofs(claims=(proof,)), Have((claim,)))
    assert signatures(found, "2")[2] == 1 and not forger.liar.goodbyes
    again = contact.profiles.claims.record(VICTIM, teller)
    assert again is not None and again.serial == record.serial


def test_a_folded_digest_is_still_the_speakers() -> None:
    """A relay that has less room folds; every folding is signed, and nothing else."""
    part = DigestPart(3, False, b"".join(number.to_bytes(8, "big") for number in range(MAX_ATOMS)))
    chain = foldings(part)
    hashes = b"".join(folding_hash(each.signed) for each in chain)
    assert len(chain) <= 16
    for limit in (4096, 2048, 1000, 100, 8):
        (folded,) = fitted((part,), limit)
        assert folding_hash(folded.signed) in hashes
    assert folding_hash(make_part(3, ()).signed) not in hashes


def test_a_flood_of_signatures_waits_and_others_do_not() -> None:
    """A neighbour of another unit says more of its own than its purse has checks: the rest is taken in later."""
    found = stage()
    forger = Forger(found, "2")
    found.wait(100 * MILLISECOND_NS)
    own = LIARS[:2]
    version = forger.liar.version(LIARS, 0)
    for number in range(3 * PURSE):
        told = (version[0], LIARS, version[2] + number)
        made = forger.signature(forger.statements.digest(LIARS, own, told, (), ()))
        proofs = Proofs(digests=(DigestProof(own, told, (), made),))
        forger.liar.say(Credentials((forger.credential,)), proofs, Interest((), (Digest(own, told, ()),)))
        if number == PURSE // 2:
            found.wait(MILLISECOND_NS)
        if forger.liar.goodbyes:
            break
    checked = found.broker("2").statistics().signatures.checked
    assert checked <= 2 * PURSE, "the loop is not held up by one neighbour"
    reader, writer = found.subscribe("5"), found.attach("0", "writer")
    found.wait()
    found.publish(writer, "one")
    found.wait(SECOND_NS)
    assert found.bodies[reader] == ["one"]


def test_another_grant_is_shown_with_everything_that_was_said() -> None:
    """What a broker has said is signed anew, so that it can be passed on when the old credential has expired."""
    found = stage()
    found.subscribe("5")
    found.wait()
    address = found.addresses["4"]
    found.world.give(address, Granted(b"another"))
    found.wait(2 * SECOND_NS)
    name = Credential(ring(found).public_key(address), b"another").hash()
    far = found.broker("0")
    digest = far.profiles.table.digest(VICTIM)
    store = far.exchange.statements.store
    assert digest is not None and digest.version[1] == address
    proof = store.digest(VICTIM, digest.version)
    assert proof is not None and proof.signature.credential == name
    (record,) = [each for each in far.table.everything() if {each.low[:2], each.high[:2]} == {(0, 1), (0, 2)}]
    kept = store.connection(record.id).proof(record)
    assert [each.credential == name for each in (*kept.low, *kept.high)] == [False, True]
    assert store.credential(name) is not None
