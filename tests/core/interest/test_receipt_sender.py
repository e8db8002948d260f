"""What a broker claims for its units, office by office (ACT)."""

from __future__ import annotations

from veena.address import Address, Unit
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest.gateway_filter import Beyond
from veena.core.interest.leases import Leases
from veena.core.interest.receipt_sender import Claimant
from veena.core.interest.receipts import Claims
from veena.core.interest.table import InterestTable, mark_key
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import STANDING, Claim, Row

HOST: Address = (0, 0, 0, 0)
BESIDE: Address = (0, 0, 1, 0)
CLUSTER: Unit = HOST[:3]
OTHER: Unit = BESIDE[:3]


class Claiming:
    """One broker's claims, and those of a broker of the next cluster that is told of them."""

    def __init__(self, incarnation: int = 1) -> None:
        network, settings = NetworkMap(HOST), Settings()
        self.table = InterestTable(HOST)
        self.now_ns = 0
        self.leases = Leases(network, self.table, settings, (), 0)
        self.claims = Claims(network, self.leases)
        beyond = Beyond(network, self.table)
        self.claimant = Claimant(network, self.table, self.leases, self.claims, settings, beyond, incarnation)

    def run(self, levels: list[int], seconds: int) -> list[Claim]:
        """What is told meanwhile."""
        for _ in range(10 * seconds):
            self.now_ns += SECOND_NS // 10
            self.claimant.review(levels, self.now_ns)
        self.claimant.check()
        return [claim for claim, _ in self.claims.take_news()]


def leases_at(network: NetworkMap) -> Leases:
    return Leases(network, InterestTable(network.host), Settings(), (), 0)


def newcomer() -> Claims:
    network = NetworkMap(BESIDE)
    return Claims(network, leases_at(network))


def hear(claims: Claims, told: list[Claim]) -> None:
    for claim in told:
        if claim.who == CLUSTER:
            claims.check_claim(claim)
            claims.learn(claim, 1, 0)


def test_who_takes_an_office_again_claims_everything_anew() -> None:
    """ACT: a claim of one who resigned is told to no newcomer, who would take the next one for all there is."""
    claiming = Claiming()
    claiming.table.learn(Row(OTHER, mark_key(BESIDE), (1, BESIDE, 7), True, STANDING, b"", 0), 1, 0)
    before, beside = newcomer(), newcomer()
    hear(before, claiming.run([0, 1], 2))
    hear(before, claiming.run([0], 1))
    assert before.of(CLUSTER, 0) is None, "it has resigned"
    assert [claim.who for claim in claiming.claims.everything(claiming.now_ns)] == [HOST]
    told = claiming.run([0, 1], 2)
    for claims in (before, beside):
        hear(claims, told)
        assert claims.of(CLUSTER, 0) == {OTHER: {BESIDE: (7, 1)}}


def test_the_first_claim_of_a_new_life_does_not_build_on_an_earlier_one() -> None:
    """ACT: nor is what an earlier life claimed known to all that are there now."""
    claiming = Claiming()
    claiming.table.learn(Row(OTHER, mark_key(BESIDE), (1, BESIDE, 7), True, STANDING, b"", 0), 1, 0)
    told = claiming.run([0, 1], 2)
    second = Claiming(2)
    second.table.learn(Row(OTHER, mark_key(BESIDE), (1, BESIDE, 7), True, STANDING, b"", 0), 1, 0)
    for claim in told:
        second.claimant.heard_own(claim, 0)
    second.claims.take_news()
    beside = newcomer()
    hear(beside, second.run([0, 1], 2))
    assert beside.of(CLUSTER, 0) == {OTHER: {BESIDE: (7, 1)}}


def test_who_was_alone_for_long_claims_everything_anew() -> None:
    """ACT: alone it gives no sign, and its own claim grows too old to count."""
    claiming = Claiming()
    claiming.table.learn(Row(OTHER, mark_key(BESIDE), (1, BESIDE, 7), True, STANDING, b"", 0), 1, 0)
    claiming.run([0, 1], 2)
    claiming.now_ns += 2 * claiming.leases.patience_ns
    beside = newcomer()
    told = claiming.run([0, 1], 1)
    assert [claim.complete for claim in told if claim.who == CLUSTER][:1] == [True]
    hear(beside, told)
    assert beside.of(CLUSTER, 0) == {OTHER: {BESIDE: (7, 1)}}


def test_a_unit_that_two_speak_for_may_have_another_part() -> None:
    """GPP-01, BNM-10: whether the other is in reach or not; who resigned, or was not heard for long, is none."""
    network = NetworkMap(BESIDE)
    leases = leases_at(network)
    claims = Claims(network, leases)
    one, other = BESIDE, (0, 0, 1, 1)
    claims.learn(Claim(OTHER, one, 1, 0, True, False, True, ()), 1, 0)
    assert not claims.others_speak(OTHER, 0)
    claims.learn(Claim(OTHER, other, 1, 0, True, False, True, ()), 1, 0)
    assert claims.others_speak(OTHER, 0)
    claims.learn(Claim(OTHER, one, 2, 0, True, True, True, ()), 1, 0)
    assert claims.others_speak(OTHER, 0), "one, and out of reach"
    assert not claims.others_speak(OTHER, leases.patience_ns)
