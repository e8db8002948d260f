"""Digests that were replaced while the unit that told them was in two parts (I1, design §5)."""

from __future__ import annotations

from veena import Event
from veena.address import Address
from veena.core.boundary.settings import Settings
from veena.core.interest.constraint import make_want
from veena.core.interest.digest import DigestTest, event_atoms, make_part
from veena.core.interest.leases import Leases
from veena.core.interest.receipts import Claims
from veena.core.interest.split_digests import Superseded
from veena.core.interest.table import InterestTable
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import Claim, Digest

UNIT = (0, 1)
HERE: Address = (0, 1, 0, 0)
THERE: Address = (0, 1, 0, 1)
SUCCESSOR: Address = (0, 1, 0, 2)
SYSTEM = 4


def superseded() -> tuple[Superseded, Claims]:
    network, settings = NetworkMap((0, 0, 0, 0)), Settings()
    claims = Claims(network, Leases(network, InterestTable(network.host), settings, (), 0))
    return Superseded(claims), claims


def speaks(claims: Claims, teller: Address, serial: int = 1, *, resigns: bool = False) -> None:
    claims.learn(Claim(UNIT, teller, serial, 0, True, resigns, False, ()), 1, 0)


def digest(number: int, speaker: Address, topic: str) -> Digest:
    return Digest(UNIT, (number, speaker, number), (make_part(SYSTEM, [make_want("topic", topic, SYSTEM)]),))


def wants_quotes(effective: Digest) -> bool:
    return any(DigestTest(part).may_want(event_atoms(Event(topic="quotes"))) for part in effective.parts)


def test_a_replaced_digest_counts_while_its_speaker_is_heard() -> None:
    """A unit in two parts: what the other part wants is wanted until its speaker resigns, and the rest knows all."""
    found, claims = superseded()
    for teller in (HERE, THERE):
        speaks(claims, teller)
    one, other, third = digest(1, HERE, "quotes"), digest(2, THERE, "news"), digest(3, THERE, "sports")
    assert wants_quotes(found.effective(None, one, 0))
    assert wants_quotes(found.effective(one, other, 0))
    assert wants_quotes(found.effective(other, third, 0))
    speaks(claims, HERE, 2, resigns=True)
    assert not wants_quotes(found.effective(third, digest(4, THERE, "news"), 0))
    assert len(found) == 0


def test_a_replaced_digest_counts_while_a_successor_of_its_speaker_is_heard() -> None:
    """Who takes an office and finds everything told tells nothing: the digest of the one before is its own."""
    found, claims = superseded()
    speaks(claims, HERE)
    one = digest(1, HERE, "quotes")
    found.effective(None, one, 0)
    speaks(claims, HERE, 2, resigns=True)
    for teller in (SUCCESSOR, THERE):
        speaks(claims, teller)
    assert wants_quotes(found.effective(one, digest(2, THERE, "news"), 0))
    speaks(claims, THERE, 2, resigns=True)
    assert not wants_quotes(found.effective(digest(2, THERE, "news"), digest(3, SUCCESSOR, "news"), 0))
