"""Quench: a publisher is told whether anybody may want its events, and when that changes; nothing more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.core.event_world import stage_of
from tests.core.scripted_events import CODEC, Host, peer, publication, publish
from veena.address import Address
from veena.core.boundary.clients import AskWanted, Unwatch, Wanted
from veena.core.boundary.inputs_effects import ClientDown, ClientRefused, Effect, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS
from veena.core.sessions.quench import MAX_SECTION
from veena.core.wire.event import EventFrame
from veena.event import Event, EventId
from veena.sim.world.world import ClientEffect

#: The publisher's session.
ME = 9


def like(event: Event) -> EventFrame:
    """An event as a publisher shows it."""
    return CODEC.frame(
        Event(topic=event.topic, properties=event.properties, to=event.to, event_id=EventId("p", 0, 0, 1))
    )


def quotes(**properties: float) -> EventFrame:
    return like(Event(topic="quotes", properties=properties))


def answers(effects: Sequence[Effect]) -> list[tuple[int, bool]]:
    assert all(effect.session == ME for effect in effects if isinstance(effect, Wanted))
    return [(effect.number, effect.wanted) for effect in effects if isinstance(effect, Wanted)]


def alone() -> Host:
    """A broker that knows nobody, with a publisher."""
    host = Host()
    host.attach(ME, "p")
    return host


def later(host: Host, from_ns: int = 0) -> list[tuple[int, bool]]:
    return answers(host.run(from_ns, from_ns + SECOND_NS))


def test_asked_and_answered_at_once() -> None:
    """SYS-01: wanted by a client here, or not."""
    host = alone()
    host.reader(1)
    assert answers(host.handle(AskWanted(ME, 1, quotes()), 0)) == [(1, True)]
    assert answers(host.handle(AskWanted(ME, 2, like(Event(topic="news"))), 0)) == [(2, False)]
    assert later(host) == [], "nothing changed"
    assert host.statistics().quench.watches == 2


def test_told_when_it_changes() -> None:
    """SYS-01: when somebody subscribes, cancels, or leaves; by content, and gathered for a moment."""
    host = alone()
    assert answers(host.handle(AskWanted(ME, 1, quotes(price=5)), 0)) == [(1, False)]
    host.attach(1, "reader")
    assert answers(host.handle(Subscribe(1, 1, "selector", ("quotes", "price > 10"), 4), 0)) == []
    assert later(host) == [], "too dear"
    host.handle(Subscribe(1, 2, "selector", ("quotes", "price > 1"), 4), SECOND_NS)
    assert later(host, SECOND_NS) == [(1, True)]
    host.handle(Unsubscribe(1, 2), 2 * SECOND_NS)
    assert later(host, 2 * SECOND_NS) == [(1, False)]
    host.reader(2, now_ns=3 * SECOND_NS)
    assert later(host, 3 * SECOND_NS) == [(1, True)]
    host.handle(ClientDown(2), 4 * SECOND_NS)
    assert later(host, 4 * SECOND_NS) == [(1, False)]


def test_a_storm_costs_one_question_a_watch() -> None:
    """Changes are gathered; nothing is asked for events that go by."""
    host = alone()
    host.reader(1, "news")
    host.handle(AskWanted(ME, 1, quotes()), 0)
    asked = host.statistics().quench.asked
    for number in range(2, 200):
        host.handle(Subscribe(1, number, "topic", f"topic-{number}", 4), 0)
    assert host.statistics().quench.asked == asked
    assert later(host) == []
    assert host.statistics().quench.asked == asked + 1
    publish(host, ME, *(publication(n, 1) for n in range(1, 20)), now_ns=2 * SECOND_NS)
    assert later(host, 2 * SECOND_NS) == []
    assert host.statistics().quench.asked == asked + 1


def test_who_comes_and_goes_within_the_moment_is_not_told() -> None:
    host = alone()
    host.handle(AskWanted(ME, 1, quotes()), 0)
    host.reader(1)
    host.handle(Unsubscribe(1, 1), 0)
    assert later(host) == []


def test_units_around_count() -> None:
    """SYS-01, from the interest map: a unit that has not spoken may want anything, then what it says counts."""
    host = alone()
    neighbour = peer(host, 2)
    assert answers(host.handle(AskWanted(ME, 1, quotes()), 0)) == [(1, True)], "it has not spoken"
    neighbour.wants("news")
    assert later(host) == [(1, False)]
    news = AskWanted(ME, 2, like(Event(topic="news")))
    assert answers(host.handle(news, SECOND_NS)) == [(2, True)]
    neighbour.leave(now_ns=SECOND_NS)
    assert later(host, SECOND_NS) == [(1, True)], "out of reach it may want anything again"


def test_an_event_for_named_clients() -> None:
    """EVT-05: whether such a client is here."""
    host = alone()
    host.handle(AskWanted(ME, 1, like(Event(topic="quotes", to=("ann",)))), 0)
    host.attach(1, "ann", reachable=True)
    assert later(host) == [(1, True)]
    host.handle(ClientDown(1), SECOND_NS)
    assert later(host, SECOND_NS) == [(1, False)]


def test_no_longer_watched() -> None:
    host = alone()
    host.handle(AskWanted(ME, 1, quotes()), 0)
    host.handle(AskWanted(ME, 2, quotes()), 0)
    host.handle(Unwatch(ME, 1), 0)
    host.handle(Unwatch(ME, 77), 0)
    host.reader(1)
    assert later(host) == [(2, True)]
    host.handle(ClientDown(ME), 2 * SECOND_NS)
    assert later(host, 2 * SECOND_NS) == []
    assert host.statistics().quench.watches == 0


def test_a_number_may_be_given_to_another_event() -> None:
    host = alone()
    host.reader(1)
    host.handle(AskWanted(ME, 1, like(Event(topic="news"))), 0)
    assert answers(host.handle(AskWanted(ME, 1, quotes()), 0)) == [(1, True)]
    assert host.statistics().quench.watches == 1


def refused(effects: Sequence[Effect]) -> list[str]:
    return [effect.reason for effect in effects if isinstance(effect, ClientRefused)]


def test_watches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per session, per broker, and in size; a refusal names the remedy and changes nothing."""
    monkeypatch.setattr("veena.core.sessions.quench.MAX_WATCHES_OF_SESSION", 2)
    monkeypatch.setattr("veena.core.sessions.quench.MAX_WATCHES", 3)
    host = alone()
    host.attach(1, "q")
    for number in (1, 2):
        host.handle(AskWanted(ME, number, quotes()), 0)
    (reason,) = refused(host.handle(AskWanted(ME, 3, quotes()), 0))
    assert "watch 3: this session watches 2 events, its broker 2: at most 2 and 3; unwatch some" in reason
    host.handle(AskWanted(1, 1, quotes()), 0)
    assert len(refused(host.handle(AskWanted(1, 2, quotes()), 0))) == 1
    large = like(Event(topic="t" * 100, properties={"text": "x" * MAX_SECTION}))
    (reason,) = refused(host.handle(AskWanted(ME, 1, large), 0))
    assert f"at most {MAX_SECTION}" in reason
    assert host.statistics().quench.watches == 3


def test_who_is_not_there_is_refused() -> None:
    host = alone()
    (reason,) = refused(host.handle(AskWanted(55, 1, quotes()), 0))
    assert "session 55 is not open" in reason


def test_many_watches_are_asked_about_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change costs a bounded share of time at once; all are told in the end."""
    monkeypatch.setattr("veena.core.sessions.quench.CHUNK", 4)
    host = alone()
    for number in range(1, 11):
        host.handle(AskWanted(ME, number, quotes()), 0)
    host.reader(1)
    portions: list[int] = []
    due = host.next_wakeup()
    while due is not None and due < SECOND_NS:
        found = answers(host.tick(due))
        if found:
            portions.append(len(found))
        due = host.next_wakeup()
    assert portions == [4, 4, 2]


# --- in a network ---


def test_a_quenched_publisher_sends_nothing_in_vain() -> None:
    """SYS-01: 0 events while nobody anywhere wants them, all of them after one far away subscribed."""
    stage = stage_of("ges-22-linked")
    names = list(stage.addresses)
    near, far = names[0], names[-1]
    sender = stage.attach(near, "p")
    heard: list[bool] = []
    others = stage.world.on_client
    assert others is not None

    def on_client(address: Address, effect: ClientEffect) -> None:
        others(address, effect)
        if isinstance(effect, Wanted):
            heard.append(effect.wanted)

    stage.world.on_client = on_client
    stage.world.give(stage.addresses[near], AskWanted(sender, 1, quotes()))
    sent = 0

    def publish_if_wanted() -> None:
        nonlocal sent
        if heard[-1]:
            stage.publish(sender, f"{sent}")
            sent += 1

    stage.wait()
    publish_if_wanted()
    assert (heard[-1], sent, len(stage.copies)) == (False, 0, 0)
    reader = stage.subscribe(far)
    stage.wait()
    publish_if_wanted()
    stage.wait()
    assert (heard[-1], stage.bodies[reader]) == (True, ["0"])
    stage.leave(reader)
    stage.wait()
    stage.wait()
    crossings = len(stage.copies)
    publish_if_wanted()
    stage.wait()
    assert (heard[-1], sent, len(stage.copies)) == (False, 1, crossings)
