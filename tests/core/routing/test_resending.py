"""Sending again in slices: order, what comes meanwhile, hops that change once more, and a bound on each step."""

from __future__ import annotations

import pytest

from tests.core.scripted_events import (
    EventPeer,
    Host,
    copies,
    event_copy,
    mate,
    mates,
    peer,
    publication,
    publish,
    relay,
    sequences,
)
from veena.core.boundary.settings import MILLISECOND_NS
from veena.core.routing.resending import BURST, COST_NS, SLICE
from veena.core.topology.connection import ABSENT
from veena.core.wire.control import Connections

MANY = 5 * SLICE


def _relay_with_open_events(count: int) -> tuple[Host, EventPeer, EventPeer, EventPeer]:
    host, up, down = relay(4)
    other = peer(host, 3)
    other.links_to(4)
    up.hand(*(event_copy(number, mates(4)) for number in range(1, count + 1)))
    return host, up, down, other


def test_a_step_sends_a_slice_and_the_order_stays() -> None:
    """Rule 5: however many are open, each goes once over the new hop, in order, and what is new goes behind them."""
    host, up, down, other = _relay_with_open_events(MANY)
    effects = down.hand(Connections((down.connection_to(4, step=ABSENT),), complete=False))
    sent = sequences(effects, other.link)
    assert 0 < len(sent) <= SLICE
    effects = up.hand(event_copy(MANY + 1, mates(4)))
    now_ns, steps = 0, [sequences(effects, other.link)]
    while host.events.router.resending.behind:
        due = host.next_wakeup()
        assert due is not None
        now_ns = max(now_ns, due)
        steps.append(sequences(host.tick(now_ns), other.link))
    assert all(len(step) <= SLICE for step in steps)
    assert sent + [number for step in steps for number in step] == list(range(1, MANY + 2))
    assert sequences(up.hand(event_copy(MANY + 2, mates(4)), now_ns=now_ns), other.link) == [MANY + 2]
    assert host.statistics().router.sent_again == MANY + 1


def test_best_effort_does_not_wait() -> None:
    _, up, down, other = _relay_with_open_events(MANY)
    down.hand(Connections((down.connection_to(4, step=ABSENT),), complete=False))
    effects = up.hand(event_copy(MANY + 1, mates(4), reliable=False))
    assert MANY + 1 in sequences(effects, other.link)


def test_a_hop_that_changes_in_the_middle_begins_again() -> None:
    """What had gone over the lost hop goes over the next one too, from the first that is open."""
    host, up, down, other = _relay_with_open_events(MANY)
    third = peer(host, 5)
    third.links_to(4)
    effects = down.hand(Connections((down.connection_to(4, step=ABSENT),), complete=False))
    assert sequences(effects, other.link)
    effects = other.hand(Connections((other.connection_to(4, step=ABSENT),), complete=False))
    found, now_ns = sequences(effects, third.link), 0
    while host.events.router.resending.behind:
        due = host.next_wakeup()
        assert due is not None
        now_ns = max(now_ns, due)
        effects = host.tick(now_ns)
        assert not copies(effects, other.link)
        found += sequences(effects, third.link)
    assert found == list(range(1, MANY + 1))
    assert sequences(up.hand(event_copy(MANY + 1, mates(4)), now_ns=now_ns), third.link) == [MANY + 1]


def test_hops_that_change_all_the_time_cost_a_bounded_part() -> None:
    """A neighbour that connects anew as fast as it likes makes a broker send so much again, and no more."""
    host = Host()
    down = peer(host, 2)
    incarnation = host.attach(2, "p")
    publish(host, 2, *(publication(number, incarnation) for number in range(1, 1001)))
    times = 100
    for count in range(1, times + 1):
        now_ns = count * 5 * MILLISECOND_NS
        down.leave(now_ns=now_ns)
        down = EventPeer(host, 10 + count, mate(2), nonce=count)
        down.greet(now_ns=now_ns)
        host.tick(now_ns)
    sent = host.statistics().router.sent_again
    assert BURST <= sent <= BURST + times * 5 * MILLISECOND_NS // COST_NS + SLICE


@pytest.mark.parametrize("count", [1, 100])
def test_a_few_go_at_once(count: int) -> None:
    host = Host()
    down = peer(host, 2)
    incarnation = host.attach(2, "p")
    publish(host, 2, *(publication(number, incarnation) for number in range(1, count + 1)))
    down.leave()
    again = EventPeer(host, 7, mate(2), nonce=77)
    assert sequences(again.greet(), again.link) == list(range(1, count + 1))
    assert host.events.router.resending.behind == 0
    assert sequences(publish(host, 2, publication(count + 1, incarnation)), again.link) == [count + 1]
