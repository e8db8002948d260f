"""Two links of one address: the old one stays while it answers, and the new one comes in as soon as it does not."""

from __future__ import annotations

import pytest

from tests.core.scripted_peer import Peer, closed, hello, neighbour, records, sent, started
from veena.address import Address
from veena.core.boundary.inputs_effects import Close, Effect, LinkDown, Reachable
from veena.core.boundary.settings import SECOND_NS
from veena.core.broker import Broker
from veena.core.links.claimants import MAX_CLAIMANTS, MAX_HELD
from veena.core.topology.connection import establish
from veena.core.wire.control import Goodbye, Heartbeat, Refresh
from veena.errors import RefusalCode

NEAR: Address = (0, 0, 0, 1)
THIRD: Address = (0, 0, 0, 2)


def knock(broker: Broker, link: int, now_ns: int, incarnation: int = 2) -> tuple[Peer, list[Effect]]:
    """Somebody says to be another life of the neighbour."""
    peer = Peer(broker, link, NEAR, now_ns, nonce=500 + link)
    return peer, peer.say(hello(NEAR, nonce=500 + link, incarnation=incarnation), now_ns=now_ns)


@pytest.mark.parametrize("incarnation", [2, 0, (1 << 64) - 1])
def test_a_link_that_answers_stays(incarnation: int) -> None:
    """FLT-01: a Hello with another's address and any incarnation closes no honest link; the sender is refused."""
    broker = started()
    honest = neighbour(broker, 1, NEAR)
    _, effects = knock(broker, 2, SECOND_NS // 2, incarnation)
    assert closed(effects) == []
    effects = honest.say(Heartbeat(7, SECOND_NS // 2), now_ns=SECOND_NS // 2 + 1)
    (refusal,) = [effect for effect in effects if isinstance(effect, Close)]
    assert (refusal.link, refusal.why) == (2, RefusalCode.DENIED)
    assert "answers over another link" in refusal.reason
    assert broker.table.record(honest.connection) is not None
    broker.check()


def test_an_answer_from_before_the_knock_proves_nothing() -> None:
    """What was under way when the neighbour died may still arrive."""
    broker = started()
    honest = neighbour(broker, 1, NEAR)
    knock(broker, 2, 2 * SECOND_NS)
    assert closed(honest.say(Heartbeat(7, SECOND_NS), now_ns=2 * SECOND_NS + 1)) == []
    assert broker.next_wakeup() is not None


def test_whoever_was_restarted_comes_in_when_the_old_link_is_silent() -> None:
    """FLT-02: what it has said meanwhile counts from then on, in its order; it need not dial again."""
    broker = started()
    old = neighbour(broker, 1, NEAR)
    new, effects = knock(broker, 2, 0)
    record = establish(NEAR, THIRD, 0, 4711)
    assert sent(effects) == [] and closed(new.tell(record)) == []
    assert broker.table.record(4711) is None, "it is not believed yet"
    now_ns = broker.settings.suspect_after_ns + 1
    due_ns = broker.next_wakeup()
    while due_ns is not None and due_ns < now_ns:
        assert closed(broker.tick(due_ns)) == []
        due_ns = broker.next_wakeup()
    effects = broker.tick(now_ns)
    assert closed(effects) == [(1, "this neighbour was started again")]
    assert broker.table.record(4711) is not None and Reachable(THIRD) in effects
    assert not any(told.up for told in records(effects) if told.id == old.connection)
    broker.check()


def test_whoever_was_restarted_comes_in_when_the_old_link_is_down() -> None:
    """FLT-01: at once."""
    broker = started()
    neighbour(broker, 1, NEAR)
    knock(broker, 2, 0)
    broker.handle(LinkDown(1, "reset"), 1)
    (link,) = broker.statistics().links
    assert (link.link, link.neighbour) == (2, NEAR)
    broker.check()


def test_a_claimant_that_leaves_is_forgotten() -> None:
    broker = started()
    neighbour(broker, 1, NEAR)
    peer, _ = knock(broker, 2, 0)
    assert [link for link, _ in closed(peer.say(Goodbye("never mind")))] == [2]
    knock(broker, 3, 1)
    broker.handle(LinkDown(3, "reset"), 2)
    assert not broker.claimants and broker.claimants.next_wakeup() is None
    broker.check()


def test_claimants_and_what_they_say_are_bounded() -> None:
    broker = started()
    neighbour(broker, 1, NEAR)
    peer, _ = knock(broker, 2, 0)
    for _ in range(MAX_HELD - 1):
        assert closed(peer.say(Refresh())) == []
    assert [link for link, _ in closed(peer.say(Refresh()))] == [2]
    for link in range(10, 10 + MAX_CLAIMANTS):
        assert closed(knock(broker, link, 0)[1]) == []
    assert [link for link, _ in closed(knock(broker, 99, 0)[1])] == [99]
    broker.check()


def test_of_two_claimants_one_comes_in_and_is_asked_about_the_other() -> None:
    broker = started()
    neighbour(broker, 1, NEAR)
    knock(broker, 2, 0)
    knock(broker, 3, 0, incarnation=3)
    broker.handle(LinkDown(1, "reset"), 1)
    assert [link.neighbour for link in broker.statistics().links] == [NEAR, None]
    assert len(broker.claimants) == 1
    broker.check()
