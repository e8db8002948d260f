"""A session with many subscriptions goes: nothing is for it at once, and they are dropped a few at a time."""

from __future__ import annotations

from random import Random

import pytest

from veena.address import Address
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Deliver, Effect, Publish, Store, Stored, Subscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.broker import Broker
from veena.core.interest.subscriptions import AT_ONCE
from veena.core.wire.event import EventCodec
from veena.event import Event, EventId

HOST: Address = (0, 0, 0, 1)
MANY = 5 * AT_ONCE + 7


def settle(broker: Broker, effects: list[Effect], now_ns: int = 0) -> list[Effect]:
    found = list(effects)
    for effect in effects:
        if isinstance(effect, Store):
            found += settle(broker, broker.handle(Stored(effect.ticket), now_ns), now_ns)
    return found


def with_many() -> Broker:
    broker = Broker(Identity("host", HOST, 1), Settings(), Random(1).getrandbits, 0)
    settle(broker, broker.tick(0))
    for session in (1, 2):
        settle(broker, broker.handle(ClientUp(session, f"client-{session}", reachable=True), 0))
    for number in range(MANY):
        settle(broker, broker.handle(Subscribe(1, number, "topic", f"t.{number}", 4), 0))
    return broker


def receivers(broker: Broker, topic: str, now_ns: int) -> list[int]:
    codec = EventCodec(4, 32)
    event = Event(topic=topic, event_id=EventId("client-2", 8192, now_ns, 1), timestamp_ns=1)
    found = settle(broker, broker.handle(Publish(2, codec.frame(event)), now_ns), now_ns)
    return [session for each in found if isinstance(each, Deliver) for session, _ in each.receivers]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_large_session_goes_a_few_subscriptions_at_a_time(is_lost: bool) -> None:
    """PRF-08: no step drops more than a slice; in the end everything is as if it had never been there."""
    broker = with_many()
    clients = broker.profiles.clients
    assert clients.statistics().subscriptions == MANY
    settle(broker, broker.handle(ClientDown(1, lost=is_lost), SECOND_NS), SECOND_NS)
    broker.check()
    assert receivers(broker, "t.3", SECOND_NS + 1) == [], "what is over gets nothing"
    now_ns, left, steps = SECOND_NS, MANY, 0
    while (due := broker.profiles.next_wakeup()) is not None and (clients.next_wakeup() is not None):
        now_ns = max(now_ns + 1, due)
        settle(broker, broker.tick(now_ns), now_ns)
        broker.check()
        found = clients.statistics()
        assert left - found.subscriptions <= AT_ONCE, "one step drops no more"
        left, steps = found.subscriptions, steps + 1
        assert steps < 1000
    assert left == 0 and clients.statistics().lingering == 0
    assert len(broker.profiles.speakers.own.wants.told) <= 1
    settle(broker, broker.handle(ClientUp(3, "client-1"), now_ns + 1), now_ns + 1)
    settle(broker, broker.handle(Subscribe(3, 1, "topic", "t.3", 4), now_ns + 1), now_ns + 1)
    assert receivers(broker, "t.3", now_ns + 2) == [3]
    broker.check()


def test_who_comes_back_meanwhile_gets_what_it_wants() -> None:
    broker = with_many()
    settle(broker, broker.handle(ClientDown(1, lost=True), SECOND_NS), SECOND_NS)
    settle(broker, broker.handle(ClientUp(3, "client-1", reachable=True), SECOND_NS), SECOND_NS)
    for number in range(MANY):
        settle(broker, broker.handle(Subscribe(3, number, "topic", f"t.{number}", 4), SECOND_NS), SECOND_NS)
        if not number % AT_ONCE:
            settle(broker, broker.tick(SECOND_NS), SECOND_NS)
    broker.check()
    for step in range(30):
        settle(broker, broker.tick(3 * SECOND_NS + step), 3 * SECOND_NS + step)
    assert broker.profiles.clients.statistics().subscriptions == MANY
    assert receivers(broker, "t.9", 4 * SECOND_NS) == [3]
    broker.check()
