"""Lies that a broker tells over its links to other super-clusters, about units that it is not in.

A *forger* says things of its own: that a unit wants nothing any more, that its speaker resigns or has heard everything,
that a link is over or that there is one, with epochs as far ahead as others believe. In a network that signs it signs
with its own key, in its own name or the speaker's, or not at all. An *alterer* passes on what others said, changed; the
signatures that it passes on stay as they are.

The liar's own core is as honest as any other: it knows what it changes, and its links work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from veena.address import Address, Unit
from veena.core.boundary.inputs_effects import Numbered
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.broker import Broker
from veena.core.links.link import Link
from veena.core.trust.signatures import SIGNED_LEVEL, Statements, state_hash
from veena.core.wire.control import ConnectionRecord, Connections, Frame
from veena.core.wire.interest import Claim, Digest, Have, Interest, Mark, Version
from veena.core.wire.signatures import (
    ClaimProof,
    ConnectionProof,
    Credential,
    Credentials,
    DigestProof,
    Proofs,
    Signature,
)
from veena.sim.world.keyring import KeyRing

MICROSECOND_NS = 1000
#: How far ahead of its clock a lie is at most. Where nobody signs, what is more than a minute ahead holds up its link,
#: and the truth behind it, for longer than others ask for what they missed: there liars stay within what is believed.
AHEAD_NS = 120 * SECOND_NS
BELIEVED_NS = 55 * SECOND_NS


@dataclass(slots=True)
class Lying:
    """What one broker does while it lies."""

    address: Address
    chance: Random
    alters: bool
    statements: Statements
    ring: KeyRing | None
    #: Lies that were told.
    told: int = 0

    def _is_own(self, unit: Unit) -> bool:
        return unit == self.address[: len(unit)]

    # --- altering ---

    def altered(self, frames: tuple[Numbered, ...]) -> tuple[Numbered, ...]:
        """What goes over a link to another super-cluster instead of these frames."""
        return tuple((number, self._alter(frame) if isinstance(frame, Frame) else frame) for number, frame in frames)

    def _alter(self, frame: Frame) -> Frame:
        if not self.alters or self.chance.random() < 0.5:
            return frame
        if isinstance(frame, Interest):
            digests = tuple(
                each if self._is_own(each.unit) else Digest(each.unit, each.version, ()) for each in frame.digests
            )
            return self._told(frame, Interest(frame.rows, digests))
        if isinstance(frame, Have):
            return self._told(
                frame, Have(tuple(each if self._is_own(each.who) else _resigned(each) for each in frame.claims))
            )
        if isinstance(frame, Connections):
            records = tuple(each if self._is_at(each) else _with_up(each, False) for each in frame.records)
            return self._told(frame, Connections(records, frame.complete))
        return frame

    def _is_at(self, record: ConnectionRecord) -> bool:
        return any(map(self._is_own, self.statements.coarsest(record)))

    def _told(self, before: Frame, after: Frame) -> Frame:
        self.told += before != after
        return after

    # --- forging ---

    def forge(self, broker: Broker, link: Link, now_ns: int) -> list[Frame]:
        """Some lie for this link, by what the broker knows; nothing where it knows too little."""
        kinds: list[Callable[[Broker, Link, int], list[Frame]]] = [
            self._wants_nothing, self._claims, self._withdraws, self._invents,
        ]  # fmt: skip
        found = self.chance.choice(kinds)(broker, link, now_ns)
        self.told += bool(found)
        return found

    def _others(self, broker: Broker, link: Link) -> list[Unit]:
        """The units of others that may be told of over a link."""
        most = len(self.address) - max(link.level, SIGNED_LEVEL)
        return [unit for unit in broker.map.vertices() if len(unit) <= most and not self._is_own(unit)]

    def _version(self, broker: Broker, speaker: Address, now_ns: int) -> Version:
        wall_ns = broker.profiles.epochs.wall_ns(now_ns) + self.chance.randrange(
            BELIEVED_NS if self.ring is None else AHEAD_NS
        )
        return wall_ns // MILLISECOND_NS, speaker, wall_ns // MICROSECOND_NS

    def _speaker(self, unit: Unit) -> Address:
        return (*unit, *(0 for _ in self.address[len(unit) :]))

    def _wants_nothing(self, broker: Broker, link: Link, now_ns: int) -> list[Frame]:
        units = self._others(broker, link)
        if not units:
            return []
        unit = self.chance.choice(units)
        known = broker.profiles.table.digest(unit)
        version = self._version(broker, self._speaker(unit) if known is None else known.version[1], now_ns)
        frame = Interest((), (Digest(unit, version, ()),))

        def signed(signer: Address, sign: Callable[[bytes], Signature]) -> Proofs:
            statement = self.statements.digest(signer, unit, version, (), ())
            return Proofs(digests=(DigestProof(unit, version, (), sign(statement)),))

        return self._with_proofs(frame, version[1], signed)

    def _claims(self, broker: Broker, link: Link, now_ns: int) -> list[Frame]:
        units = self._others(broker, link)
        if not units:
            return []
        who = self.chance.choice(units)
        tellers = broker.profiles.claims.tellers(who, now_ns) or [self._speaker(who)]
        teller, marks = self.chance.choice(tellers), tuple[Mark, ...]()
        is_last = self.chance.random() < 0.5
        for unit in units if not is_last else ():
            marks += (Mark(unit, self._version(broker, self._speaker(unit), now_ns)),)
        claim = Claim(who, teller, self._version(broker, teller, now_ns)[2], 0, True, is_last, not is_last, marks)
        state = state_hash(broker.profiles.claims.after(claim, None).marks)

        def signed(signer: Address, sign: Callable[[bytes], Signature]) -> Proofs:
            del signer
            made = sign(self.statements.claim(claim, state))
            return Proofs(claims=(ClaimProof(who, teller, claim.serial, state, made),))

        return self._with_proofs(Have((claim,)), teller, signed)

    def _withdraws(self, broker: Broker, link: Link, now_ns: int) -> list[Frame]:
        del now_ns
        found = [each for each in broker.table.everything() if each.level >= max(link.level, SIGNED_LEVEL) and each.up]
        found = [each for each in found if not self._is_at(each)]
        if not found:
            return []
        (copy,) = broker.table.copies([self.chance.choice(found)], link.level, None)
        return self._connection(_with_up(copy, False))

    def _invents(self, broker: Broker, link: Link, now_ns: int) -> list[Frame]:
        del now_ns
        units = sorted(unit for unit in self._others(broker, link) if len(unit) == len(self.address) - link.level)
        if len(units) < 2:
            return []
        low, high = sorted(self.chance.sample(units, 2))
        if low[:-1] != high[:-1]:
            return []
        return self._connection(
            ConnectionRecord(self.chance.getrandbits(64), link.level, low, high, True, (0, 0), (0, 0))
        )

    def _connection(self, record: ConnectionRecord) -> list[Frame]:
        def signed(signer: Address, sign: Callable[[bytes], Signature]) -> Proofs:
            low, high = (sign(self.statements.end(signer, record, end)) for end in (0, 1))
            down = () if record.up else (sign(self.statements.withdrawal(signer, record)),)
            return Proofs(connections=(ConnectionProof(record.id, (low,), (high,), down),))

        speaker = self._speaker(self.statements.coarsest(record)[0])
        return self._with_proofs(Connections((record,), False), speaker, signed)

    def _with_proofs(
        self, frame: Frame, speaker: Address, signed: Callable[[Address, Callable[[bytes], Signature]], Proofs]
    ) -> list[Frame]:
        """The lie with signatures of the liar's key, in its own name or the speaker's; or with none."""
        ring, signer = self.ring, self.chance.choice((None, self.address, speaker))
        if ring is None or signer is None:
            return [frame]
        credential = Credential(ring.public_key(self.address), b"")

        def sign(statement: bytes) -> Signature:
            return Signature(signer, credential.hash(), ring.forged(self.address, statement))

        return [Credentials((credential,)), signed(signer, sign), frame]


def _resigned(claim: Claim) -> Claim:
    return Claim(claim.who, claim.teller, claim.serial, claim.age_ms, claim.whole, True, claim.complete, ())


def _with_up(record: ConnectionRecord, up: bool) -> ConnectionRecord:
    return ConnectionRecord(record.id, record.level, record.low, record.high, up, record.low_cost, record.high_cost)
