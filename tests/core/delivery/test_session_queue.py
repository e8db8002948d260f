"""Clients that do not read: what waits for them, what they miss, and that nobody else notices."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.scripted_events import EventPeer, Host, acknowledged, delivered, event_copy, mates, peer
from veena.core.boundary.clients import CloseSession, Dropped, SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Deliver, Effect
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.delivery.session_queue import OVERHEAD
from veena.core.wire.event import EventFrame
from veena.errors import ConfigError, LocalProtocolError
from veena.event import Event

FAST, SLOW = 1, 2
LOW, HIGH = Event(topic="quotes", priority=0), Event(topic="quotes", priority=9)


#: What an event of these tests counts, and the settings with which three of them may wait.
SIZE = OVERHEAD + len(event_copy(1, mates(0)).tail)
NARROW = Settings(session_bytes=3 * SIZE)


def audience(limits: Settings = NARROW, slow: str = "drop") -> tuple[Host, EventPeer]:
    """A broker with a client that reads and one that does not, and the neighbour that events come from."""
    host = Host(limits)
    neighbour = peer(host, 1)
    host.reader(FAST)
    host.reader(SLOW, slow=slow)
    host.sync()
    assert host.handle(SessionClogged(SLOW), 0) == []
    return host, neighbour


def here(sequence: int, event: Event | None = None, *, reliable: bool = True) -> EventFrame:
    return event_copy(sequence, mates(0), event=event, reliable=reliable)


def missed(effects: Sequence[Effect]) -> list[tuple[int, int]]:
    return [(effect.session, effect.count) for effect in effects if isinstance(effect, Dropped)]


def test_others_are_not_affected() -> None:
    """FLT-09: events wait for one session; the other has them at once, and their upstream is answered."""
    host, up = audience()
    effects = [*up.hand(here(1), here(2)), *host.sync()]
    assert delivered(effects, FAST) == [1, 2]
    assert delivered(effects, SLOW) == []
    assert acknowledged(effects, up.link) == [up.first, up.first + 1]
    effects = host.handle(SessionClear(SLOW), 0)
    assert (delivered(effects, SLOW), delivered(effects, FAST), missed(effects)) == ([1, 2], [], [])
    assert delivered(up.hand(here(3)), SLOW) == [3]


def test_an_event_for_the_slow_one_alone() -> None:
    host, up = audience()
    host.handle(ClientDown(FAST), 0)
    assert not any(isinstance(effect, Deliver) for effect in up.hand(here(1)))
    (handed,) = [effect for effect in host.handle(SessionClear(SLOW), 0) if isinstance(effect, Deliver)]
    assert handed.receivers == ((SLOW, (1,)),), "with the subscriptions that it satisfies"


@pytest.mark.parametrize("reliable", [True, False])
def test_the_oldest_are_dropped_and_counted(reliable: bool) -> None:
    """Slow consumers, `drop`: the client is told how many it missed before it is handed what waited.

    Reliable means up to the client's broker: the same holds for what is reliable.
    """
    host, up = audience()
    up.hand(*(here(n, reliable=reliable) for n in range(1, 9)))
    found = host.statistics().outlet
    assert (found.clogged, found.waiting, found.dropped) == (1, 3, 5)
    effects = host.handle(SessionClear(SLOW), 0)
    assert missed(effects) == [(SLOW, 5)]
    assert isinstance(effects[0], Dropped)
    assert delivered(effects, SLOW) == [6, 7, 8]
    host.handle(SessionClogged(SLOW), 0)
    assert missed(host.handle(SessionClear(SLOW), 0)) == [], "told once"
    assert host.statistics().outlet.waiting_bytes == 0


def test_lower_bands_are_dropped_first_and_handed_over_last() -> None:
    """QOS-03 on the last yard."""
    host, up = audience()
    up.hand(here(1, LOW), here(2, HIGH), here(3), here(4, LOW), here(5, HIGH))
    assert delivered(host.handle(SessionClear(SLOW), 0), SLOW) == [2, 5, 3]


def test_bytes_are_bounded() -> None:
    host, up = audience(Settings(session_bytes=3 * SIZE - 1))
    up.hand(*(here(n) for n in range(1, 6)))
    found = host.statistics().outlet
    assert found.waiting == 2
    assert found.waiting_bytes == 2 * SIZE


def test_all_sessions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    host, up = audience(Settings())
    host.handle(SessionClogged(FAST), 0)
    monkeypatch.setattr("veena.core.delivery.session_queue.MAX_BYTES", 7 * OVERHEAD)
    up.hand(*(here(n) for n in range(1, 20)))
    found = host.statistics().outlet
    assert found.waiting_bytes <= 7 * OVERHEAD
    assert found.waiting + found.dropped == 38


def test_an_event_larger_than_the_bound_is_dropped() -> None:
    host, up = audience(Settings(session_bytes=10))
    up.hand(here(1))
    effects = host.handle(SessionClear(SLOW), 0)
    assert (delivered(effects), missed(effects)) == ([], [(SLOW, 1)])


def test_a_client_may_rather_be_disconnected() -> None:
    """Slow consumers, `disconnect`: closed with a reason, once; nothing more is kept for it."""
    host, up = audience(slow="disconnect")
    effects = up.hand(*(here(n) for n in range(1, 9)))
    (close,) = [effect for effect in effects if isinstance(effect, CloseSession)]
    assert close.session == SLOW
    assert "4 events" in close.reason
    assert f"at most {3 * SIZE} bytes" in close.reason
    assert delivered(effects, FAST) == list(range(1, 9))
    assert host.handle(SessionClear(SLOW), 0) == [], "its connection is being closed"
    host.handle(ClientDown(SLOW, lost=True), 0)
    found = host.statistics().outlet
    assert (found.clogged, found.waiting, found.dropped, found.disconnected) == (0, 0, 8, 1)
    assert delivered(up.hand(here(9)), FAST) == [9]


def test_within_the_bound_nobody_is_disconnected() -> None:
    host, up = audience(slow="disconnect")
    assert not any(isinstance(effect, CloseSession) for effect in up.hand(here(1), here(2), here(3)))
    assert delivered(host.handle(SessionClear(SLOW), 0), SLOW) == [1, 2, 3]


def test_what_is_expired_goes_first() -> None:
    """QOS-02: an event whose time is over makes room, is counted as expired, and is not handed over."""
    host, up = audience()
    up.hand(here(1), here(2, Event(topic="quotes", ttl=0.1)), here(3, Event(topic="quotes", ttl=2.0)))
    late_ns = 500 * MILLISECOND_NS
    up.hand(here(4), now_ns=late_ns)
    found = host.statistics().outlet
    assert (found.waiting, found.dropped, found.expired) == (3, 0, 1)
    effects = host.handle(SessionClear(SLOW), late_ns)
    handed = [effect.frame for effect in effects if isinstance(effect, Deliver)]
    assert [(frame.sequence, frame.ttl_ms) for frame in handed if frame.sequence == 3] == [(3, 1500)]
    assert [frame.sequence for frame in handed] == [1, 3, 4]


def test_what_expires_while_it_waits_is_not_handed_over() -> None:
    """QOS-02, without any want of room."""
    host, up = audience()
    up.hand(here(1, Event(topic="quotes", ttl=0.1)), here(2))
    effects = host.handle(SessionClear(SLOW), 100 * MILLISECOND_NS)
    assert (delivered(effects), missed(effects)) == ([2], [])
    assert host.statistics().outlet.expired == 1


def test_a_driver_may_be_late() -> None:
    """Signals about sessions that are over, or were never clogged, change nothing."""
    host, up = audience()
    up.hand(here(1))
    host.handle(ClientDown(SLOW), 0)
    assert host.statistics().outlet.dropped == 1
    for late in (SessionClogged(SLOW), SessionClear(SLOW), SessionClear(FAST), SessionClogged(77)):
        assert host.handle(late, 0) == []
    assert host.statistics().outlet.clogged == 0


def test_whoever_reads_the_log_is_told() -> None:
    """Durable sessions stay in the log: whether one is clogged can be asked, and when it is clear others are told."""
    host, _ = audience()
    outlet = host.events.outlet
    told: list[tuple[int, int]] = []
    outlet.on_clear.append(lambda session, now_ns: told.append((session, now_ns)))
    assert (outlet.is_clogged(SLOW), outlet.is_clogged(FAST)) == (True, False)
    host.handle(SessionClear(SLOW), 5)
    assert told == [(SLOW, 5)]
    assert not outlet.is_clogged(SLOW)


def test_what_is_asked_for_must_make_sense() -> None:
    with pytest.raises(LocalProtocolError, match="slow 'wait' of ann: use 'drop' or 'disconnect'"):
        ClientUp(1, "ann", slow="wait")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="session_bytes"):
        Settings(session_bytes=0)


@settings(max_examples=40)
@given(st.integers(0, 10**9))
def test_every_event_is_accounted_for(seed: int) -> None:
    """Whatever comes and whenever the client reads: handed over or told as missed, in order within a lane."""
    chance = Random(seed)
    host, up = audience(Settings(session_bytes=chance.randint(300, 3000)))
    handed: list[EventFrame] = []
    told = 0
    for sequence in range(1, chance.randint(10, 60)):
        given = chance.choice((LOW, HIGH, Event(topic="quotes")))
        effects = up.hand(here(sequence, given, reliable=chance.random() < 0.5))
        if chance.random() < 0.2:
            effects += host.handle(chance.choice((SessionClear, SessionClogged))(SLOW), 0)
        handed += [each.frame for each in effects if isinstance(each, Deliver) and SLOW in dict(each.receivers)]
        told += sum(count for _, count in missed(effects))
    effects = host.handle(SessionClear(SLOW), 0)
    handed += [each.frame for each in effects if isinstance(each, Deliver)]
    told += sum(count for _, count in missed(effects))
    assert len(handed) + told == sequence
    assert told == host.statistics().outlet.dropped
    for lane in range(6):
        places = [frame.sequence for frame in handed if frame.lane_number == lane]
        assert places == sorted(set(places))
