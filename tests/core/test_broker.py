"""A broker as a state machine: inputs in, effects out, compared as lists; and peers that mean harm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from tests.core.scripted_peer import HOST, Peer, closed, hello, neighbour, records, sent, started
from tests.core.topology.test_network_map import CLUSTER, FAR, NEAR, record
from veena.address import Address
from veena.core import broker as broker_module
from veena.core.boundary.inputs_effects import (
    Arrived,
    Close,
    Effect,
    LinkDown,
    LinkLoad,
    LinkUp,
    Reachable,
    Send,
    Store,
    Stored,
    StoreFailed,
    Unreachable,
)
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Identity, Known
from veena.core.broker import Broker
from veena.core.links.link import LinkState
from veena.core.topology.connection import establish
from veena.core.wire.control import (
    MAX_RECORDS,
    ConnectionRecord,
    Connections,
    Frame,
    Goodbye,
    Heartbeat,
    Hello,
    Received,
)
from veena.core.wire.membership import ClientRenumber
from veena.errors import InvalidAddress, LocalProtocolError

THIRD: Address = (0, 0, 0, 2)


def fresh() -> Broker:
    return Broker(Identity("host", HOST, 3), Settings(), lambda _: 7, 0)


# --- the disk is a peer ---


def test_nobody_is_greeted_before_the_identity_is_on_disk() -> None:
    """UID-02: the incarnation that is announced is one that a restart will know of."""
    broker = fresh()
    identity = Identity("host", HOST, 3)
    assert broker.tick(0) == [Store(1, (identity,))]
    assert broker.handle(LinkUp(1, ordered=True), 0) == []
    assert broker.handle(LinkUp(2, ordered=True), 0) == []
    broker.check()
    greetings = sent(broker.handle(Stored(1), 0))
    assert [
        (frame.network, frame.levels, frame.fanout, frame.address, frame.incarnation, frame.nonce, frame.heartbeat_ms)
        for frame in greetings
        if isinstance(frame, Hello)
    ] == [("veena", 4, 32, HOST, 3, 7, 1000)] * 2
    assert len(greetings) == 2
    broker.check()


def test_a_link_that_goes_before_the_disk_answers_is_not_greeted() -> None:
    broker = fresh()
    broker.tick(0)
    broker.handle(LinkUp(1, ordered=True), 0)
    broker.handle(LinkDown(1, "reset"), 0)
    assert broker.handle(Stored(1), 0) == []


def test_a_disk_that_fails_closes_what_waited() -> None:
    """UID-02: the reason is told, nobody was greeted."""
    broker = fresh()
    broker.tick(0)
    broker.handle(LinkUp(1, ordered=True), 0)
    effects = broker.handle(StoreFailed(1, "disk full"), 0)
    assert effects == [Close(1, "this broker could not store its identity: disk full")]


def test_a_ticket_that_was_never_given_is_an_error() -> None:
    broker = fresh()
    broker.tick(0)
    with pytest.raises(LocalProtocolError, match="ticket 9 was never given out"):
        broker.handle(Stored(9), 0)
    assert broker.handle(LinkUp(1, ordered=True), 0) == []


# --- two brokers make a link ---


def test_a_link_is_established() -> None:
    """GPP-05, GPP-14, BNM-12: both sides know the unit beyond, the exchange is empty, nothing else is said."""
    broker = started()
    peer = Peer(broker, 1, (0, 1, 0, 0))
    assert peer.greet() == [
        Reachable(FAR),
        Store(2, (Known((FAR,)),)),
        Send(1, ((2, Connections((), complete=True)),)),
    ]
    assert list(broker.table.everything()) == [establish(HOST, (0, 1, 0, 0), 2, peer.connection)]
    broker.check()


def test_a_new_link_begins_with_what_may_cross_it() -> None:
    """GPP-14, GPP-15: levels l and above, rewritten, what is down as well; the rest of the host's links hear of it."""
    broker = started()
    inner = neighbour(broker, 1, NEAR)
    inner.tell(record(50, NEAR, CLUSTER), record(51, NEAR, FAR), record(52, (0, 2), (0, 3)), record(53, NEAR, THIRD))
    inner.tell(record(52, (0, 2), (0, 3), up=False))
    outer = Peer(broker, 2, (0, 4, 0, 0))
    effects = outer.greet()
    own_unit = (0, 0)
    assert sent(effects, 2) == [Connections((record(51, own_unit, FAR), record(52, (0, 2), (0, 3), up=False)), True)]
    assert records(effects, 1) == [establish(HOST, (0, 4, 0, 0), 2, outer.connection)]


def test_a_long_exchange_is_cut_into_frames() -> None:
    broker = started()
    inner = neighbour(broker, 1, NEAR)
    for at in range(0, MAX_RECORDS + 4, MAX_RECORDS // 2):
        inner.tell(*(record(10 + number, NEAR, (0, 0, 0, 3)) for number in range(at, at + MAX_RECORDS // 2)))
    effects = Peer(broker, 2, THIRD).greet()
    frames = [frame for frame in sent(effects, 2) if isinstance(frame, Connections)]
    assert [(len(frame.records), frame.complete) for frame in frames] == [(1024, False), (513, True)]


def test_news_is_passed_on_but_not_back_and_not_outside() -> None:
    """GPP-02, GPP-06, GPP-09, GPP-10: one write a link and input; a repeat is silence."""
    broker = started()
    inner, third, gate = neighbour(broker, 1, NEAR), neighbour(broker, 2, THIRD), neighbour(broker, 3, (0, 0, 1, 0))
    local, outer = record(50, NEAR, (0, 0, 0, 3)), record(51, NEAR, FAR)
    assert inner.tell(local, outer) == [
        Reachable((0, 0, 0, 3)),
        Reachable(FAR),
        Store(5, (Known((NEAR, THIRD, (0, 0, 0, 3), (0, 0, 1), FAR)),)),
        Send(2, ((4, Connections((local, outer), complete=False)),)),
        Send(3, ((3, Connections((record(51, (0, 0, 0), FAR),), complete=False)),)),
    ]
    assert inner.tell(local, outer) == []
    assert third.tell(local) == []
    assert gate.tell(record(51, (0, 0, 0), FAR)) == []
    assert broker.statistics().records == 6
    broker.check()


def test_a_lost_link_is_told_as_far_as_it_was_known() -> None:
    """GPP-17, GPP-12, BNM-12: to those of its context; the units that only it led to are reported."""
    broker = started()
    neighbour(broker, 1, NEAR)
    neighbour(broker, 2, (0, 0, 1, 0))
    gone = neighbour(broker, 3, (0, 1, 0, 0))
    effects = broker.handle(LinkDown(3, "reset"), 0)
    told = msgspec.structs.replace(establish(HOST, (0, 1, 0, 0), 2, gone.connection), up=False)
    assert records(effects, 1) == [told]
    assert records(effects, 2) == [msgspec.structs.replace(told, low=(0, 0, 0))]
    assert [effect for effect in effects if isinstance(effect, Reachable | Unreachable)] == [Unreachable(FAR)]
    inner = started()
    neighbour(inner, 1, (0, 0, 1, 0))
    neighbour(inner, 2, NEAR)
    assert records(inner.handle(LinkDown(2, "reset"), 0)) == [], (
        "a link inside the cluster is nobody's business outside"
    )


def test_one_of_two_links_is_lost() -> None:
    """GPP-11, GPP-12, TOP-16: the edge stays with count 1, no partition; the second one removes it."""
    broker = started()
    first, second = neighbour(broker, 1, (0, 1, 0, 0)), neighbour(broker, 2, (0, 1, 0, 1))
    assert [edge.links for edge in broker.map.edges()] == [2]
    effects = first.say(Goodbye("maintenance"))
    assert closed(effects) == [(1, "the peer said goodbye: maintenance")]
    assert not any(isinstance(effect, Unreachable) for effect in effects)
    hop = broker.hops.hop(FAR)
    assert hop is not None
    assert hop.connection == second.connection
    assert Unreachable(FAR) in broker.handle(LinkDown(2, "reset"), 0)
    assert broker.map.edges() == []


def test_a_neighbour_that_was_started_again_replaces_its_old_self() -> None:
    """FLT-01, UID-02: what the old process held is over; a parallel link of the same process is not."""
    broker = started()
    old, parallel = neighbour(broker, 1, NEAR), neighbour(broker, 2, NEAR)
    assert [edge.links for edge in broker.map.edges()] == [2]
    new = Peer(broker, 3, NEAR)
    assert closed(new.say(hello(NEAR, nonce=5, incarnation=2))) == [], "they may be alive"
    now_ns = broker.settings.suspect_after_ns + 1
    assert closed(broker.tick(now_ns)) == [(link, "this neighbour was started again") for link in (1, 2)]
    assert [edge.links for edge in broker.map.edges()] == [1]
    for gone in (old, parallel):
        known = broker.table.record(gone.connection)
        assert known is not None
        assert not known.up
    broker.check()


def test_a_false_withdrawal_is_healed_by_a_new_connection() -> None:
    """GPP-01: others could not reach this end and withdrew its link; it closes it and connects again."""
    broker = started()
    inner = neighbour(broker, 1, NEAR)
    gate = neighbour(broker, 2, (0, 1, 0, 0))
    effects = inner.tell(msgspec.structs.replace(establish(HOST, (0, 1, 0, 0), 2, gate.connection), up=False))
    assert closed(effects) == [(2, "this connection was reported as lost: connect again")]
    assert sent(effects, 2) == [Goodbye("this connection was reported as lost: connect again")]
    effects = Peer(broker, 3, (0, 1, 0, 0), nonce=77).greet()
    assert Reachable(FAR) in effects
    assert [told.up for told in records(effects, 1)] == [True]


def test_a_hop_is_there_as_soon_as_its_link_is_open() -> None:
    """SPR-04: a third broker may tell of a new link before its own Hello comes, and a hop be asked for in between."""
    broker = started()
    third = neighbour(broker, 1, THIRD)
    peer = Peer(broker, 2, NEAR)
    third.tell(establish(NEAR, HOST, 0, peer.connection))
    assert broker.hops.hop(NEAR) is None
    peer.greet()
    hop = broker.hops.hop(NEAR)
    assert hop is not None
    assert (hop.neighbour, hop.connection) == (NEAR, peer.connection)


# --- inputs that are refused or ignored ---


@pytest.mark.parametrize(
    "given",
    [LinkDown(9, "x"), Arrived(9, [(1, Heartbeat(1, 1))]), LinkLoad(9, 1.0)],
    ids=lambda given: type(given).__name__,
)
def test_what_concerns_a_link_that_is_gone_is_ignored(given: LinkDown | Arrived | LinkLoad) -> None:
    broker = started()
    neighbour(broker, 1, NEAR)
    before = broker.statistics()
    assert broker.handle(given, 0) == []
    assert broker.statistics() == before


def test_a_link_number_is_used_once() -> None:
    broker = started()
    neighbour(broker, 1, NEAR)
    before = broker.statistics()
    with pytest.raises(LocalProtocolError, match="link 1 is in use"):
        broker.handle(LinkUp(1, ordered=True), 0)
    assert broker.statistics() == before
    early = fresh()
    early.handle(LinkUp(1, ordered=True), 0)
    with pytest.raises(LocalProtocolError, match="link 1 is in use"):
        early.handle(LinkUp(1, ordered=True), 0)


def test_the_number_of_links_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "MAX_LINKS", 2)
    broker = started()
    for link in (1, 2):
        broker.handle(LinkUp(link, ordered=True), 0)
    before = broker.statistics()
    assert broker.handle(LinkUp(3, ordered=True), 0) == [Close(3, "this broker has 2 links already: try another")]
    assert broker.statistics() == before
    early = fresh()
    early.tick(0)
    for link in (1, 2):
        early.handle(LinkUp(link, ordered=True), 0)
    assert closed(early.handle(LinkUp(3, ordered=True), 0)) == [(3, "this broker has 2 links already: try another")]


@pytest.mark.parametrize(("address", "error"), [((0, 0, 0), LocalProtocolError), ((0, 0, 0, 32), InvalidAddress)])
def test_a_broker_needs_an_address_of_its_network(address: Address, error: type[Exception]) -> None:
    with pytest.raises(error, match="address"):
        Broker(Identity("x", address, 1), Settings(), lambda _: 1, 0)


# --- peers that mean harm ---

Attack = Callable[[Peer], list[Effect]]


def frame(number: int, given: Frame) -> Attack:
    """A frame under a number of the attacker's choice, counted from its next one."""
    return lambda peer: peer.broker.handle(Arrived(peer.link, [(peer.number + number if number else 0, given)]), 0)


def told(given: ConnectionRecord) -> Attack:
    return frame(1, Connections((given,), complete=False))


ATTACKS: dict[str, tuple[Attack, str]] = {
    "gap": (frame(2, Connections((), complete=True)), "frame number 4 on an ordered connection; expected 3"),
    "repeat": (frame(-1, hello(NEAR)), "frame number 1 on an ordered connection"),
    "second hello": (frame(1, hello(NEAR)), "a second Hello"),
    "unnumbered": (frame(0, Connections((), complete=True)), "Connections without a frame number"),
    "future": (frame(0, Received(10**9)), "frame 1000000000 acknowledged"),
    "no place": (frame(1, ClientRenumber("x", HOST, NEAR)), "ClientRenumber has no place on this link"),
    "level": (told(ConnectionRecord(9, 7, (0,), (1,), True, (0, 0), (0, 0))), "level 7 in a network of 4"),
    "outside": (told(record(9, (0, 0, 1, 0), (0, 0, 1, 1))), "lies outside"),
    "too fine": (told(record(9, (0, 1, 5), (0, 2))), "finer than 0.0.0.0 may see"),
    "order": (told(record(9, THIRD, NEAR)), "the lower first"),
    "itself": (told(record(9, NEAR, NEAR)), "two units"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_bad_frame_costs_its_sender_the_link_and_nobody_else(name: str) -> None:
    """GPP-03, GPP-06: told why, closed; the map, the table and the other links are as if the attacker had left."""
    attack, reason = ATTACKS[name]
    broker, control = started(), started()
    for each in (broker, control):
        neighbour(each, 2, THIRD).tell(record(50, THIRD, FAR), record(51, THIRD, (0, 0, 0, 3)))
    attacker, leaver = neighbour(broker, 1, NEAR), neighbour(control, 1, NEAR)
    attacker.say(Connections((), complete=True))
    leaver.say(Connections((), complete=True))
    effects = attack(attacker)
    ((link, why),) = closed(effects)
    assert link == 1
    assert reason in why
    assert sent(effects, 1) == [Goodbye(why)]
    leaver.say(Goodbye("leaving"))
    # A counter of what was received counts the bad record; nothing else differs.
    assert replace(broker.statistics(), records=0) == replace(control.statistics(), records=0)
    assert list(broker.table.everything()) == list(control.table.everything())
    assert [link.state for link in broker.statistics().links] == [LinkState.OPEN]
    broker.check()


def test_a_link_of_a_higher_level_carries_no_lower_connections() -> None:
    """GPP-06: whoever tells of the inside of its cluster over a gateway is at fault."""
    broker = started()
    gate = neighbour(broker, 1, (0, 1, 0, 0))
    effects = gate.tell(record(9, CLUSTER, (0, 0, 2)))
    assert closed(effects) == [(1, "connection 9 of level 1 must not cross a link of level 2")]
    assert broker.table.record(9) is None


def test_what_follows_a_fault_in_one_read_is_not_looked_at() -> None:
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    effects = peer.say(Goodbye("x"), Connections((record(9, NEAR, THIRD),), complete=False))
    assert closed(effects) == [(1, "the peer said goodbye: x")]
    assert broker.table.record(9) is None


def test_an_endless_reason_is_shortened() -> None:
    broker = started()
    peer = Peer(broker, 1, NEAR)
    effects = peer.say(hello(NEAR, network="n" * 64), now_ns=0)
    assert len(closed(effects)) == 1
    goodbye = sent(effects, 1)[-1]
    assert isinstance(goodbye, Goodbye)
    assert len(goodbye.reason) <= 1024


# --- time ---


def test_a_broker_alone_comes_to_rest() -> None:
    """TOP-22: one broker alone has nobody to speak to, and soon nothing to wait for."""
    broker = started()
    wakeups = 0
    due = broker.next_wakeup()
    while due is not None and wakeups < 100:
        assert broker.tick(due) == []
        wakeups, due = wakeups + 1, broker.next_wakeup()
    assert due is None


def test_a_tombstone_expires() -> None:
    """GPP-10: an hour after the end of a connection nothing of it is left."""
    broker = started()
    peer = neighbour(broker, 1, NEAR)
    peer.say(Goodbye("x"))
    assert broker.statistics().connections == 1
    due = broker.next_wakeup()
    while due is not None:
        last = due
        broker.tick(due)
        due = broker.next_wakeup()
    assert last == Settings().tombstone_ns + 1
    assert broker.statistics().connections == 0


def test_the_risen_disown_what_they_do_not_have() -> None:
    """GPP-01: both ends of a link were started again; a third broker still tells of the old connection."""
    broker = started()
    third = neighbour(broker, 1, THIRD)
    stale = record(99, HOST, (0, 0, 0, 3))
    third.tell(stale)
    told_back: list[ConnectionRecord] = []
    for second in range(1, 10):
        third.say(Heartbeat(second, second * SECOND_NS), now_ns=second * SECOND_NS)
        told_back += records(broker.tick(second * SECOND_NS), 1)
    assert told_back == [msgspec.structs.replace(stale, up=False)]


def test_waking_up_is_never_late() -> None:
    """FLT-02: ticking exactly when asked gives the same history as ticking all the time."""
    histories: list[list[Effect]] = []
    for eager in (False, True):
        broker = started()
        for link, address in ((1, NEAR), (2, (0, 1, 0, 0))):
            neighbour(broker, link, address)
        broker.handle(LinkLoad(2, 0.95), 0)
        seen: list[Effect] = []
        for now_ns in range(0, 20 * SECOND_NS, SECOND_NS // 4):
            due = broker.next_wakeup()
            if eager or (due is not None and due <= now_ns):
                seen += broker.tick(now_ns)
        histories.append(seen)
    assert histories[0] == histories[1]
    assert len(closed(histories[0])) == 2
