"""The share of a user, over all of its sessions, of the events that are watched."""

from __future__ import annotations

from random import Random

import pytest

from veena.address import Address
from veena.core.boundary.clients import AskWanted, Wanted
from veena.core.boundary.inputs_effects import ClientDown, ClientRefused, ClientUp, Effect, Store, Stored
from veena.core.boundary.settings import Settings
from veena.core.boundary.stored import Identity
from veena.core.broker import Broker
from veena.core.sessions import quench
from veena.core.wire.event import EventCodec
from veena.errors import RefusalCode
from veena.event import Event, EventId

HOST: Address = (0, 0, 0, 1)
CODEC = EventCodec(4, 32)


def with_sessions() -> Broker:
    """Sessions 1 and 2 are of mallory, 3 is anna's."""
    broker = Broker(Identity("host", HOST, 1), Settings(), Random(1).getrandbits, 0)
    _settle(broker, broker.tick(0))
    for session, client, user in ((1, "a", "mallory"), (2, "b", "mallory"), (3, "c", "anna")):
        _settle(broker, broker.handle(ClientUp(session, client, user=user), 0))
    return broker


def _settle(broker: Broker, effects: list[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Store):
            _settle(broker, broker.handle(Stored(effect.ticket), 0))


def _watch(broker: Broker, session: int, number: int) -> RefusalCode | None:
    frame = CODEC.frame(Event(topic=f"t.{number}", event_id=EventId("x", 1, 1, 1), timestamp_ns=1))
    (told,) = broker.handle(AskWanted(session, number, frame), 0)
    assert isinstance(told, Wanted | ClientRefused)
    return told.why if isinstance(told, ClientRefused) else None


def test_watched_events_are_shared_out_by_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """More sessions watch no more events; the same number again is no other; who goes gives room back."""
    monkeypatch.setattr(quench, "MAX_WATCHES_OF_USER", 3)
    broker = with_sessions()
    assert [_watch(broker, 1, 1), _watch(broker, 1, 2), _watch(broker, 2, 1), _watch(broker, 2, 1)] == [None] * 4
    assert _watch(broker, 2, 2) is RefusalCode.LIMIT
    assert _watch(broker, 3, 1) is None
    broker.check()
    broker.handle(ClientDown(1), 0)
    broker.tick(broker.events.quench.next_wakeup() or 0)
    assert [_watch(broker, 2, 2), _watch(broker, 2, 3), _watch(broker, 2, 4)] == [None, None, RefusalCode.LIMIT]
    broker.check()
