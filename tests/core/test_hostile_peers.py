"""What one hostile neighbour can do: lose its own link. Others keep theirs, and the broker its address and its map."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from tests.core.scripted_peer import HOST, closed, neighbour, sent, started
from veena.address import Address
from veena.core.boundary.inputs_effects import Arrived, Effect, LinkUp, MaySpeak, Restart
from veena.core.boundary.settings import SECOND_NS, ConnectionRules, Settings
from veena.core.interest.constraint import make_want
from veena.core.topology import connection_table as dissemination
from veena.core.wire.codec import enclose
from veena.core.wire.control import ConnectionRecord, Frame, Routed
from veena.core.wire.interest import Interest, Row
from veena.core.wire.membership import (
    GateReply,
    GateRequest,
    Place,
    Renumber,
    SetupRequest,
    SlotReply,
    SpokesmanReply,
)

FAR: Address = (5, 0, 0, 0)
MATE: Address = (0, 0, 0, 1)
THIRD: Address = (0, 0, 0, 2)


def routed(frame: Frame, origin: Address, to: Address = HOST) -> Routed:
    return Routed(to, origin, 3, *enclose(frame))


def restarts(effects: list[Effect]) -> list[Restart]:
    return [effect for effect in effects if isinstance(effect, Restart)]


@pytest.mark.parametrize("origin", [FAR, MATE])
def test_a_renumbering_does_not_come_from_afar(origin: Address) -> None:
    """NOP-15: it changes addresses, so it is believed of neighbours only; an origin is easily forged."""
    broker = started()
    peer = neighbour(broker, 1, FAR)
    neighbour(broker, 2, MATE)
    for frame in (Renumber("x", 1, (), (7,), "evil"), Renumber("x", 2, (0, 0, 0), (9, 9, 9))):
        assert restarts(peer.say(routed(frame, origin))) == []
    assert broker.identity.address == HOST


@pytest.mark.parametrize(
    ("address", "frame"),
    [
        (FAR, Renumber("x", 1, (0, 0, 0), (0, 0, 9))),
        (MATE, Renumber("x", 1, (), (7,), "evil")),
        (MATE, Renumber("x", 1, (0, 0), (0, 3, 3))),
    ],
    ids=["stranger", "everything", "another level"],
)
def test_a_neighbour_may_renumber_its_own_unit_only(address: Address, frame: Renumber) -> None:
    broker = started()
    peer = neighbour(broker, 1, address)
    effects = peer.say(frame)
    assert restarts(effects) == []
    assert [link for link, _ in closed(effects)] == [1]


def test_answers_to_nothing_are_not_believed() -> None:
    """NOP-14: no permission to speak, no gates, that were not asked for."""
    broker = started()
    peer = neighbour(broker, 1, MATE)
    effects = peer.say(routed(SpokesmanReply("x", 99, True), FAR), SpokesmanReply("x", 98, True))
    assert not any(isinstance(effect, MaySpeak) for effect in effects)
    evil = tuple(Place((0, 0, 9, number), ("tcp://10.6.6.6:1",)) for number in range(4))
    peer.say(GateReply((0, 0, 0), evil), GateReply((9,), evil), GateReply((0, 0, 0, 0, 0), evil))
    broker.handle(LinkUp(7, ordered=True, ip="10.0.0.7"), 0)
    (level_one,) = sent(peer.say(GateRequest((0, 0, 0), MATE)), 1)
    assert "10.6.6.6" not in repr(level_one)


def test_gates_are_told_inside_the_unit_only() -> None:
    broker = started()
    neighbour(broker, 1, (0, 0, 1, 0))
    peer = neighbour(broker, 2, MATE)
    assert sent(peer.say(GateRequest((0, 0, 0), FAR))) == []


def test_a_lie_about_a_level_costs_nobody_the_link() -> None:
    """GPP-03: of two copies that cannot both be true the first stays; the bearer of the second is innocent."""
    broker = started()
    liar, honest = neighbour(broker, 1, (0, 1, 0, 0)), neighbour(broker, 2, MATE)
    liar.tell(ConnectionRecord(4711, 3, (0,), (1,), True, (0, 0), (0, 0)))
    assert closed(honest.tell(ConnectionRecord(4711, 2, (0, 1), (0, 2), True, (0, 0), (0, 0)))) == []
    assert broker.table.dropped == 1


def test_a_full_table_drops_what_comes_and_keeps_own_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dissemination, "MAX_CONNECTIONS", 40)
    broker = started()
    liar, honest = neighbour(broker, 1, (1, 0, 0, 0)), neighbour(broker, 2, MATE)
    liar.tell(*(ConnectionRecord(1000 + n, 3, (2,), (3,), True, (0, 0), (0, 0)) for n in range(100)))
    assert len(broker.table) == 40
    assert closed(honest.tell(ConnectionRecord(5, 0, MATE, THIRD, True, (0, 0), (0, 0)))) == []
    third = neighbour(broker, 3, THIRD)
    assert third.connection in {record.id for record in broker.table.everything()}
    assert broker.hops.hop(THIRD) is not None


def test_a_cost_told_in_another_s_name_is_answered_with_a_new_connection() -> None:
    """LCM-03: whoever hears that it said what it never said makes a new connection, which nobody has lied about."""
    broker = started()
    honest, liar = neighbour(broker, 2, MATE), neighbour(broker, 1, THIRD)
    worst = ((1 << 64) - 1, 3)
    effects = liar.tell(ConnectionRecord(honest.connection, 0, HOST, MATE, True, worst, (0, 0)))
    assert [link for link, _ in closed(effects)] == [2]
    neighbour(broker, 3, MATE)
    hop = broker.hops.hop(MATE)
    assert hop is not None
    assert hop.neighbour == MATE


@pytest.mark.parametrize(
    ("to", "origin"),
    [((*HOST, 1), MATE), ((*MATE, 1), MATE), ((0, 0, 0, 40), MATE), (HOST, (0, 0, 0)), (HOST, (0, 0, 0, 40))],
)
def test_paths_that_no_broker_writes_cost_the_link(to: Address, origin: Address) -> None:
    """NOP-10: whoever passes them on has not checked them, so no next hop is ever looked for."""
    broker = started()
    peer, cached = neighbour(broker, 1, MATE), broker.hops.statistics().cached
    assert [link for link, _ in closed(peer.say(Routed(to, origin, 3, 47, b"")))] == [1]
    assert broker.hops.statistics().cached <= cached


def test_a_frame_in_the_name_of_its_receiver_changes_nothing() -> None:
    """NOP-10: a broker that answered one would answer itself; the neighbour that passed it on may be innocent."""
    broker = started()
    peer = neighbour(broker, 1, MATE)
    effects = peer.say(routed(SetupRequest("x", 1, 1, 0, "x"), HOST), routed(SpokesmanReply("x", 1, True), HOST))
    assert closed(effects) == [] and sent(effects) == []
    assert broker.reception.membership.statistics().refused == 0


def test_a_mate_that_names_the_contact_as_its_own_gate() -> None:
    """NOP-10: the newcomer is answered, nothing escapes."""
    broker = started(settings=Settings(rules=ConnectionRules((2, 1, 1, 1))))
    mates = [neighbour(broker, 1, MATE), neighbour(broker, 2, THIRD)]
    broker.handle(LinkUp(3, ordered=True, ip="10.0.0.9"), 0)
    broker.handle(Arrived(3, [(1, SetupRequest("new", 1, 1, 0, "new"))]), 0)
    broker.tick(SECOND_NS)
    for mate in mates:
        mate.say(routed(SlotReply("new", 1, False, (), (), (), (Place(HOST),)), mate.address), now_ns=SECOND_NS)
    broker.check()
    assert closed(broker.tick(SECOND_NS + 1)) == []


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x05", b"\xa0", b"\x92\xa1q\xa3x >", b"\xa3abc" * 2])
def test_a_want_that_no_engine_can_read_costs_its_bearer_the_link(payload: bytes) -> None:
    """PRF-04: its key is the right hash of it, and still it is none; nothing of its frame is taken."""
    broker = started()
    peer = neighbour(broker, 1, MATE)
    good, version = make_want("topic", "quotes", 4), (1, MATE, 1)
    for kind in (1, 3):
        key = blake2b(bytes((kind, 4)) + payload, digest_size=16, person=b"veena-want").digest()
        rows = (
            Row(MATE, good.key, version, True, good.kind, good.payload, 4),
            Row(MATE, key, version, True, kind, payload, 4),
        )
        effects = peer.say(Interest(rows))
        assert [link for link, _ in closed(effects)] == [1]
        assert list(broker.profiles.table.rows(MATE)) == []
        broker.check()
        peer = neighbour(broker, 1, MATE)


@pytest.mark.parametrize("scope", [0, 5, 8])
def test_a_want_told_farther_than_the_network_goes_is_refused(scope: int) -> None:
    """PRF-10: a scope is a level above the unit's own, up to the number of levels."""
    broker = started()
    want = make_want("topic", "quotes", scope)
    row = Row(MATE, want.key, (1, MATE, 1), True, want.kind, want.payload, scope)
    assert [link for link, _ in closed(neighbour(broker, 1, MATE).say(Interest((row,))))] == [1]
    assert list(broker.profiles.table.rows(MATE)) == []


def test_wants_of_a_unit_beyond_the_fan_out_are_refused() -> None:
    """DST-01: its bit would be another unit's, one level up."""
    broker = started()
    peer = neighbour(broker, 1, MATE)
    row = Row((0, 0, 0, 40), b"", (1, MATE, 1), True, 255, b"", 0)
    assert [link for link, _ in closed(peer.say(Interest((row,))))] == [1]
