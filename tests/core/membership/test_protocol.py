"""The rules of the node organisation protocol, one by one: real machines, messages, virtual time."""

from __future__ import annotations

import msgspec
import pytest

from tests.core.membership.organisation_world import ROOMY, fix_4, listen, place
from veena.address import Address, Unit
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.admission import Admission
from veena.core.membership.join import Applicant, Joined, Refused
from veena.core.membership.protocol import (
    Answer,
    Member,
    Neighbourhood,
    Peer,
    Send,
    decode_request,
    encode_request,
    lowest_free,
    registrar_hop,
)
from veena.core.membership.registrar import IDENTIFIER_HOLD_NS, QUIET_NS, SLOT_HOLD_NS, Registrar
from veena.core.membership.slots import Slots
from veena.core.wire.membership import (
    Grant,
    SetupAccepted,
    SetupRedirected,
    SetupRefused,
    SetupRequest,
    SlotRequest,
    SpokesmanReply,
    SpokesmanRequest,
)
from veena.errors import InvalidAddress, LocalProtocolError

HOME: Address = (0, 0, 0, 0)


def lone(rules: ConnectionRules = ROOMY, fanout: int = 32) -> Admission:
    return Admission(HOME, fanout, rules, listen(HOME))


def request(name: str, levels: tuple[int, ...] = (0,), number: int = 1, unit: str = "") -> SetupRequest:
    return SetupRequest(name, number, encode_request(levels), 0, unit or name)


# --- rules and vectors ---


@pytest.mark.parametrize(
    ("ip", "expected"),
    [("192.168.1.5", False), ("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("", False), ("nonsense", False)],
)
def test_nop_01_ip_rule(ip: str, expected: bool) -> None:
    """NOP-01: 10.0.0.0/8 only."""
    rules = ConnectionRules.parse((4,), allowed=["10.0.0.0/8"])
    assert rules.admits(ip) is expected
    answer = lone(rules).handle(request("s"), Peer((), 1, ip), Neighbourhood(), 0)
    assert isinstance(answer[0].frame, SetupAccepted if expected else SetupRefused)


def test_nop_01_denied_wins_and_bad_networks_are_named() -> None:
    rules = ConnectionRules.parse((4,), allowed=["10.0.0.0/8", "fd00::/8"], denied=["10.9.0.0/16"])
    assert [rules.admits(ip) for ip in ("10.9.1.1", "10.8.1.1", "fd00::1", "fe80::1")] == [False, True, True, False]
    with pytest.raises(InvalidAddress, match=r"allowed network '10.0.0.1/8'.*10.0.0.0/8"):
        ConnectionRules.parse((4,), allowed=["10.0.0.1/8"])
    with pytest.raises(InvalidAddress, match="threshold -1 of level 1"):
        ConnectionRules((1, -1))


def test_nop_02_threshold_vector() -> None:
    """NOP-02: with (2, 1, 0, 0) the third level-0 link and the first level-2 link are refused."""
    slots = Slots(ConnectionRules((2, 1, 0, 0)))
    assert slots.reserve(("a", 1), 0, (), Neighbourhood(), 0)
    assert slots.reserve(("b", 1), 0, (), Neighbourhood(), 0)
    assert slots.claim("a", 0, 1)
    assert not slots.reserve(("c", 1), 0, (), Neighbourhood(links=(1,)), 1), "one link, one kept for b"
    assert not slots.reserve(("c", 1), 2, (), Neighbourhood(), 1)
    assert not slots.reserve(("c", 1), 7, (), Neighbourhood(), 1), "a level beyond the vector has none"


def test_nop_06_vectors_that_say_nothing_are_refused() -> None:
    for bad in ("", "000", "0021", "000000011", 0, 256):
        with pytest.raises(LocalProtocolError):
            decode_request(bad)
    with pytest.raises(LocalProtocolError, match="asks for no level"):
        encode_request(())
    with pytest.raises(LocalProtocolError, match="level 8"):
        encode_request((8,))


# --- who may ask for what ---


def test_nop_04_a_broker_of_the_network_keeps_its_address() -> None:
    """NOP-04: 18 gets a second way out, to n.21, and stays where it is."""
    world, _, at = fix_4()
    guest = world.join(at[21], (1,), applicant=Applicant("broker-18", address=at[18]))
    world.run()
    assert world.joined(guest) == Joined(at[18], (Grant(1, place(at[21])),))
    assert at[21] in world.neighbours(at[18]) and len(world.brokers) == 21


def test_nop_04_several_gateways_at_once() -> None:
    """NOP-04: a to request of a broker with an address: the contact for the highest bit, its own map for the rest."""
    world, _, at = fix_4()
    guest = world.join(at[21], (1, 2), applicant=Applicant("broker-1", address=at[1]))
    world.run()
    assert [(grant.level, grant.place.address) for grant in world.joined(guest).links] == [(2, at[21]), (1, at[4])]


def test_nop_13_no_second_cluster() -> None:
    """NOP-13: a broker of m asks to be a member of n; a stranger shows an address and asks for level 0."""
    world, _, at = fix_4()
    inside = world.join(at[21], (0,), applicant=Applicant("broker-18", address=at[18]))
    outside = world.join(at[21], (0,), applicant=Applicant("foreign", address=(5, 5, 5, 5)))
    alike = world.join(at[21], (0,), applicant=Applicant("foreign too", address=(*at[21][:-1], 30)))
    world.run()
    assert all("belongs to one cluster" in world.refusal(guest) for guest in (inside, outside, alike))


def test_nop_04_no_second_link_between_the_same_two() -> None:
    """NOP-04: 18 has links with all of m, so one more in its cluster carries nothing new."""
    world, _, at = fix_4()
    guest = world.join(at[16], (0,), applicant=Applicant("broker-18", address=at[18]))
    world.run()
    assert "level-0 gateway free" in world.refusal(guest)
    assert [to for to, _ in world.frames(SlotRequest)] == [at[17]], "18 is not asked about itself"


def test_a_claimed_address_must_be_the_proven_one() -> None:
    admission = lone()
    asks = SetupRequest("x", 1, 0b10, 0, "x", (0, 0, 1, 1))
    (answer,) = admission.handle(asks, Peer((0, 0, 2, 2), 1), Neighbourhood(), 0)
    assert isinstance(answer.frame, SetupRefused) and "is not that of the broker" in answer.frame.reason


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (SetupRequest("x", 1, 0b10000, 0, "x"), "this network has levels 0 to 3"),
        (SetupRequest("x", 1, 0b100, 0, "x", (0, 0, 1, 1)), "has level 1, not 2"),
        (SetupRequest("x", 1, 0b10, 0, "x", (0, 1)), "another network"),
        (SetupRequest("x", 1, 0b1, 0, "x", HOME), "cannot link to itself"),
    ],
)
def test_requests_that_cannot_be(asked: SetupRequest, reason: str) -> None:
    """NOP-09: the level asked for must be the level that the two addresses have."""
    (answer,) = lone().handle(asked, Peer((), 1), Neighbourhood(), 0)
    assert isinstance(answer.frame, SetupRefused) and reason in answer.frame.reason


def test_nop_11_a_bad_ip_is_refused_outright() -> None:
    """NOP-11: no forwarding in the cluster, no link anywhere."""
    strict = ConnectionRules.parse((8, 4, 2, 2), allowed=["10.0.0.0/8"])
    world, _, at = fix_4({21: strict})
    before = list(world.links)
    guest = world.join(at[21], (0,), ip="192.168.1.5")
    world.run()
    assert "192.168.1.5" in world.refusal(guest)
    assert [type(frame) for _, frame in world.log] == [SetupRequest, SetupRefused] and world.links == before


def test_a_mate_applies_its_own_ip_rule() -> None:
    """NOP-01, NOP-10: 21 is full and would take the node, 19 would not, 20 does."""
    strict = ConnectionRules.parse((8, 4, 2, 2), denied=["10.1.0.0/16"])
    world, _, at = fix_4({21: ConnectionRules((2, 4)), 19: strict})
    guest = world.join(at[21], (0,))
    world.run()
    assert world.joined(guest).links[0].place == place(at[20])


def test_nop_13_a_unit_of_this_network_cannot_be_added_again() -> None:
    asked = SetupRequest("x", 1, 0b100, 2, "unit", (0, 1, 0, 0))
    (answer,) = lone().handle(asked, Peer((0, 1, 0, 0), 1), Neighbourhood(), 0)
    assert isinstance(answer.frame, SetupRefused) and "keeps its address" in answer.frame.reason


# --- one request a unit, one identifier a node ---


def test_nop_14_two_spokesmen_at_two_contacts() -> None:
    """NOP-14: the registrar of SSC-B sees that both speak for one unit; the second is refused, whoever it is."""
    world, _, at = fix_4()
    one = world.join(at[21], (2,), applicant=Applicant("broker-23", "unit-sc-10", 2, (0, 0, 0, 1)), dials=False)
    two = world.join(at[8], (2,), applicant=Applicant("broker-26", "unit-sc-10", 2, (0, 0, 1, 1)), dials=False)
    world.run()
    results = [world.result(one), world.result(two)]
    assert sum(isinstance(result, Joined) for result in results) == 1
    (refused,) = [result for result in results if isinstance(result, Refused)]
    assert "one node speaks for a unit" in refused.reason and refused.retry_ms > 0


def test_nop_14_two_spokesmen_at_one_contact() -> None:
    """NOP-14: while the first waits for an answer, the second is refused at once."""
    admission = lone(ConnectionRules((0, 0, 0, 0)))
    hood = Neighbourhood(members=(Member((0, 0, 0, 1)),))
    unit = SetupRequest("a", 1, 0b10, 1, "unit", (0, 0, 0, 5))
    assert isinstance(admission.handle(unit, Peer((), 1), hood, 0)[0], Send)
    rival = SetupRequest("b", 1, 0b10, 1, "unit", (0, 0, 0, 6))
    (answer,) = admission.handle(rival, Peer((), 2), hood, 0)
    assert isinstance(answer, Answer) and isinstance(answer.frame, SetupRefused)
    assert admission.handle(unit, Peer((), 1), hood, 0) == [], "the same request again is no second one"


def test_nop_14_the_unit_itself_lets_one_broker_speak() -> None:
    """NOP-14: asked of the unit's own registrar, so two contacts in two networks cannot both be asked."""
    registrar = Registrar(HOME, 32, None)
    taken = {(): 1, (0,): 1, (0, 0): 1, (0, 0, 0): 0b111}

    def ask(name: str, now_ns: int) -> SpokesmanReply:
        (send,) = registrar.handle(SpokesmanRequest(name, 1, (0, 0), (0, 0, 0, 2)), taken, now_ns)
        assert send.to == (0, 0, 0, 2) and isinstance(send.frame, SpokesmanReply)
        return send.frame

    assert ask("a", 0).granted and ask("a", 1).granted
    refused = ask("b", 2)
    assert not refused.granted and "a speaks" in refused.reason and refused.retry_ms == SLOT_HOLD_NS // 1_000_000
    assert ask("b", 2 + SLOT_HOLD_NS).granted


def test_nop_14_the_right_to_speak_is_asked_of_the_lowest_broker() -> None:
    """NOP-14: the question finds its way through the unit; the lowest broker answers itself without a message."""
    world, labels, at = fix_4()
    sc_6 = labels.unit("SSC-B.SC-6")
    asked = SpokesmanRequest("broker-21", 1, sc_6, at[21])
    (step,) = world.brokers[at[21]].ask_to_speak("broker-21", 1, 2, world.neighbourhood(at[21]), 0)
    assert step == Send(labels.unit("SSC-B.SC-6.m"), msgspec.structs.replace(asked, hops=1))
    (step,) = world.brokers[at[18]].handle(step.frame, Peer(at[21]), world.neighbourhood(at[18]), 0)
    assert step == Send(at[16], msgspec.structs.replace(asked, hops=2))
    reply = world.brokers[at[16]].handle(step.frame, Peer(at[18]), world.neighbourhood(at[16]), 0)
    assert reply == [Send(at[21], SpokesmanReply("broker-21", 1, True))]
    (own,) = world.brokers[at[16]].ask_to_speak("broker-16", 1, 2, world.neighbourhood(at[16]), 0)
    assert isinstance(own, Send) and own.to == at[16]
    assert isinstance(own.frame, SpokesmanReply) and not own.frame.granted


def test_maps_that_lag_give_no_identifier_twice() -> None:
    """NOP-03, NOP-14: forty nodes ask all brokers of n at once and link; no map has caught up meanwhile."""
    world, _, at = fix_4({number: ConnectionRules((40, 4, 2, 2)) for number in (19, 20, 21)})
    guests = [world.join(at[19 + index % 3], (0,)) for index in range(25)]
    world.run()
    addresses = [world.joined(guest).address for guest in guests]
    assert sorted(addresses) == [(0, 2, 1, number) for number in range(3, 28)]


def test_thresholds_hold_between_grant_and_dial() -> None:
    """NOP-02: two contacts ask for one mate's last gateway; one of the two gets it."""
    full = ConnectionRules((2, 4))
    world, _, at = fix_4({19: ConnectionRules((3, 4)), 20: full, 21: full, **dict.fromkeys((16, 17, 18), full)})
    for number in (6, 15):  # close the ways out of SC-6 as well
        world.dead.append(at[number])
    guests = [world.join(at[20], (0,), dials=False), world.join(at[21], (0,), dials=False)]
    world.run()
    assert sorted(type(world.result(guest)).__name__ for guest in guests) == ["Joined", "Refused"]
    assert world.brokers[at[19]].slots.count(0) == 1


@pytest.mark.parametrize("fanout", [32, 64])
def test_nop_19_block_limit(fanout: int) -> None:
    """NOP-19, TOP-07, AMB-1: node number limit + 1 is directed to a neighbouring cluster, or refused with the limit."""
    admission = lone(ConnectionRules((100,)), fanout)
    full = {(): 1, (0,): 1, (0, 0): 1, (0, 0, 0): (1 << fanout) - 1}
    (refused,) = admission.handle(request("a"), Peer((), 1), Neighbourhood(taken=full), 0)
    assert isinstance(refused.frame, SetupRefused)
    assert refused.frame.reason == f"the cluster holds {fanout} brokers already"
    elsewhere = {1: (place((0, 0, 1, 0)),)}
    (directed,) = admission.handle(request("b"), Peer((), 1), Neighbourhood(taken=full, gatekeepers=elsewhere), 0)
    assert isinstance(directed.frame, SetupRedirected) and directed.frame.gatekeepers == elsewhere[1]
    one_left = {**full, (0, 0, 0): (1 << fanout) - 1 - (1 << 17)}
    (last,) = admission.handle(request("c"), Peer((), 1), Neighbourhood(taken=one_left), 0)
    assert isinstance(last.frame, SetupAccepted) and last.frame.address == (0, 0, 0, 17)
    (over,) = admission.handle(request("d"), Peer((), 1), Neighbourhood(taken=one_left), 0)
    assert isinstance(over.frame, SetupRefused), "the last one is reserved for c"
    assert admission.slots.count() == 1, "what was kept for d is given back"


def test_identifiers_are_the_lowest_free() -> None:
    assert [lowest_free(v, 32) for v in (0, 1, 0b1011, (1 << 32) - 1)] == [0, 1, 2, -1]
    assert lowest_free((1 << 32) - 1, 64) == 32


def test_every_broker_finds_the_same_registrar() -> None:
    """From any broker of FIX-4 the hops towards the registrar of any enclosing unit end at its lowest broker."""
    world, _, at = fix_4()
    for start in at.values():
        for length in range(4):
            unit, here, hops = start[:length], start, 0
            while (hop := registrar_hop(here, unit, world.neighbourhood(here).taken)) != here:
                here = max(broker for broker in at.values() if broker[: len(hop)] == hop)
                hops += 1
                assert hops <= 2 * 4
            assert here == min(broker for broker in at.values() if broker[:length] == unit)


def test_a_new_registrar_waits() -> None:
    """NOP-14: what the old registrar reserved is unknown to the new one, so it gives nothing until that has lapsed."""
    registrar = Registrar((0, 0, 0, 1), 32, None)
    with_lowest: dict[Unit, int] = {(0, 0, 0): 0b11}
    without: dict[Unit, int] = {(0, 0, 0): 0b10}
    registrar.observe(with_lowest, 0)
    verdict = registrar.reserve((0, 0, 0), "u", "u", without, 10)
    assert verdict.identifier == -1 and verdict.retry_ns == QUIET_NS
    assert registrar.reserve((0, 0, 0), "u", "u", without, 10 + QUIET_NS).identifier == 0
    newcomer = Registrar(HOME, 32, joined_ns=5)
    assert newcomer.reserve((0, 0, 0), "u", "u", {}, 6).retry_ns == QUIET_NS - 1


def test_reservations_end() -> None:
    """An identifier is free again when its time is over or it was given back, not while the map shows it."""
    registrar = Registrar(HOME, 32, None)
    assert [registrar.reserve((0, 0, 0), name, name, {}, 0).identifier for name in "abca"] == [1, 2, 3, 1]
    registrar.release((0, 0, 0), "b", "somebody else")
    registrar.release((0, 0, 0), "c", "c")
    shown: dict[Unit, int] = {(0, 0, 0): 0b11}
    assert [registrar.reserve((0, 0, 0), name, name, shown, 1).identifier for name in "bd"] == [2, 3]
    assert registrar.count() == 2, "the map has taken over for a"
    later = IDENTIFIER_HOLD_NS + 1
    assert registrar.reserve((0, 0, 0), "e", "e", shown, later).identifier == 2
    registrar.check()
