"""Publishers are told to pause before they are refused, and to go on when there is room."""

from __future__ import annotations

from collections.abc import Sequence

from tests.core.scripted_events import (
    EventPeer,
    Host,
    accepted,
    codes,
    give,
    numbers,
    origin,
    patient,
    peer,
    publication,
    publish,
    refusals,
)
from veena.core.boundary.clients import Pause, Resume
from veena.core.boundary.inputs_effects import ClientDown, Effect
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.publishing.backpressure import Pressure
from veena.core.wire.control import Connections, Done
from veena.errors import RefusalCode

FEW = patient(max_open=8)


def signals(effects: Sequence[Effect]) -> list[tuple[type[Effect], int]]:
    return [(type(effect), effect.session) for effect in effects if isinstance(effect, Pause | Resume)]


def told(host: Host, incarnation: int, *sequences: int, session: int = 1, publisher: str = "p") -> list[Effect]:
    given = [publication(n, incarnation, publisher=publisher) for n in sequences]
    return publish(host, session, *given)


def answer(down: EventPeer, effects: Sequence[Effect], count: int) -> list[Effect]:
    sent = numbers(effects, down.link)[:count]
    return down.hand(Done(((sent[0], sent[-1]),)))


def test_told_before_it_is_refused() -> None:
    """Back-pressure: accepted and told to pause at three quarters, refused at the bound, told to go on below half."""
    host, down, incarnation = origin(FEW)
    calm = told(host, incarnation, *range(1, 7))
    assert signals(calm) == []
    high = told(host, incarnation, 7)
    assert (signals(high), accepted(high)) == ([(Pause, 1)], [7])
    (pause,) = [effect for effect in high if isinstance(effect, Pause)]
    assert "6 events (of at most 8)" in pause.reason
    full = told(host, incarnation, 8)
    assert (signals(full), accepted(full)) == ([], [8]), "told once"
    more = told(host, incarnation, 9)
    (reason,) = refusals(more)
    assert "8 events wait here already" in reason and codes(more) == [RefusalCode.BUSY]
    assert host.statistics().origin.paused == 1
    assert signals(answer(down, calm, 4)) == [], "half is still too much"
    assert signals(down.hand(Done(((numbers(calm, down.link)[4],) * 2,)))) == [(Resume, 1)]
    assert accepted(told(host, incarnation, 10)) == [10]
    assert host.statistics().origin.paused == 0


def test_everybody_who_publishes_reliably_is_told() -> None:
    """At once those who did so before; others with their first event; who published nothing hears nothing."""
    host, _, incarnation = origin(FEW)
    second, third = host.attach(2, "q"), host.attach(3, "r")
    host.attach(4, "s")
    told(host, second, 1, session=2, publisher="q")
    publish(host, 3, publication(1, third, publisher="r", reliable=False))
    effects = told(host, incarnation, *range(2, 8))
    assert sorted(signals(effects), key=str) == [(Pause, 1), (Pause, 2)]
    assert signals(told(host, third, 2, session=3, publisher="r")) == [(Pause, 3)]


def test_who_left_is_told_nothing() -> None:
    host, down, incarnation = origin(FEW)
    effects = told(host, incarnation, *range(1, 9))
    host.handle(ClientDown(1), 0)
    assert signals(answer(down, effects, 8)) == []
    again = host.attach(5, "t")
    assert signals(told(host, again, 1, session=5, publisher="t")) == [], "the pressure is gone with the events"


def test_events_on_their_way_to_the_disk_count() -> None:
    """A disk that does not answer must not fill the memory."""
    host, _, incarnation = origin(FEW)
    given = [publication(n, incarnation) for n in range(1, 12)]
    effects = [effect for frame in given for effect in give(host, frame)]
    assert [type(effect) for effect in effects if isinstance(effect, Pause)] == [Pause]
    assert len(refusals(effects)) == 3


def test_best_effort_is_not_held_up() -> None:
    host, _, incarnation = origin(FEW)
    told(host, incarnation, *range(1, 9))
    effects = publish(host, 1, publication(1, incarnation, reliable=False))
    assert (signals(effects), accepted(effects)) == ([], [1])


def test_the_log_is_bounded_by_its_bytes() -> None:
    """What waits in the log for a unit counts, wherever in the log the others are; served, it counts no more."""
    size = len(publication(1, 1).tail)
    host, down, incarnation = origin(patient(max_log_bytes=8 * size))
    effects = told(host, incarnation, *range(1, 7))
    assert signals(effects) == []
    assert host.statistics().origin.log_bytes == 6 * size
    more = told(host, incarnation, 7, 8, 9)
    assert signals(more) == [(Pause, 1)]
    assert accepted(more) == [7, 8]
    (reason,) = refusals(more)
    assert f"{8 * size} bytes wait in the log already" in reason and codes(more) == [RefusalCode.BUSY]
    sent = numbers([*effects, *more], down.link)
    down.hand(Done(((sent[0], sent[4]),)))
    assert signals(host.run(0, 2 * SECOND_NS)) == [(Resume, 1)], "cursors are written once a second"
    assert host.statistics().origin.log_bytes == 3 * size
    down.hand(Done(((sent[5], sent[7]),)), now_ns=3 * SECOND_NS)
    host.run(3 * SECOND_NS, 5 * SECOND_NS)
    assert host.statistics().origin.log_bytes == 0


def test_a_restart_knows_how_full_the_log_is() -> None:
    size = len(publication(1, 1).tail)
    limits = patient(max_log_bytes=10 * size)
    host, _, incarnation = origin(limits)
    told(host, incarnation, *range(1, 10))
    again = Host(limits, host.kept)
    assert again.statistics().origin.log_bytes == 9 * size
    peer(again, 2).say(Connections((), complete=True))  # it knows again who wants what
    fresh = again.attach(1, "p")
    assert signals(told(again, fresh, 1)) == [(Pause, 1)]


def test_others_may_need_the_log_for_longer() -> None:
    """A durable subscription's place in the log keeps what is behind it."""
    size = len(publication(1, 1).tail)
    host, down, incarnation = origin(patient(max_log_bytes=20 * size))
    host.events.origin.pressure.kept_from = lambda: 4
    effects = told(host, incarnation, *range(1, 9))
    answer(down, effects, 8)
    host.run(0, 2 * SECOND_NS)
    assert host.statistics().origin.log_bytes == 4 * size


def test_a_large_log_has_few_marks() -> None:
    """How many bytes wait is known to a thousandth, with a thousand marks."""
    pressure = Pressure(Settings(max_log_bytes=1 << 20), [])
    for offset in range(100_000):
        pressure.grown(offset, 10)
    pressure.check()
    pressure.needed_from(50_000, 100_000)
    assert 0 <= pressure.log_bytes - 500_000 <= (1 << 20) // 1000
    pressure.needed_from(100_000, 100_000)
    assert pressure.log_bytes == 0
