"""A unit that is refused: held by the upstream, opened again, and nothing lost or out of order in between."""

from __future__ import annotations

import pytest

from tests.core.event_world import Stage, cluster
from tests.core.scripted_events import (
    EventPeer,
    Host,
    acknowledged,
    copies,
    event_copy,
    frames,
    mate,
    mates,
    peer,
    publication,
    publish,
    relay,
    sequences,
)
from tests.core.scripted_peer import closed
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS
from veena.core.wire.control import Done, Frame, Held, Open, Refused


def test_a_relay_without_a_way_refuses() -> None:
    """§6, "How I5 holds": it answers refused(W) and forgets; what else the copy is for is served."""
    host, up, down = relay(4)
    effects = up.hand(event_copy(1, mates(4, 5)))
    assert frames(effects, up.link, Refused) == [Refused((mate(5),))]
    ((number, sent),) = copies(effects, down.link)
    assert sent.to_serve == mates(4)
    assert acknowledged(down.hand(Done(((number, number),))), up.link) == [up.first]
    assert len(host.events.router.duties) == 0


def test_a_way_that_is_lost_is_refused_too() -> None:
    host, up, down = relay(4)
    up.hand(event_copy(1, mates(4)), event_copy(2, mates(4)))
    effects = down.leave()
    assert frames(effects, up.link, Refused) == [Refused((mate(4),))]
    assert acknowledged(effects, up.link) == [up.first, up.first + 1], "they are no business of this broker any more"
    assert len(host.events.router.duties) == 0


def test_nothing_is_taken_between_refused_and_held() -> None:
    """`hold_back`: the way is there again at once, but e1 was dropped; were e2 taken now, e1 would come too late."""
    host, up, down = relay()
    assert frames(up.hand(event_copy(1, mates(4))), up.link, Refused) == [Refused((mate(4),))]
    effects = down.links_to(4)
    assert frames(effects, up.link, Open) == [], "the upstream has not confirmed that it holds"
    effects = up.hand(event_copy(2, mates(4)))
    assert copies(effects, down.link) == []
    assert frames(effects, up.link, Refused) == [], "told once"
    effects = up.hand(Held((mate(4),)))
    assert frames(effects, up.link, Open) == [Open((mate(4),))]
    effects = up.hand(event_copy(1, mates(4)), event_copy(2, mates(4)))
    assert sequences(effects, down.link) == [1, 2]
    assert host.statistics().router.refused == 1


def test_open_comes_when_there_is_a_way() -> None:
    host, up, down = relay()
    up.hand(event_copy(1, mates(4)))
    assert frames(up.hand(Held((mate(4),))), up.link, Open) == []
    effects = down.links_to(4)
    assert frames(effects, up.link, Open) == [Open((mate(4),))]
    host.check()


def test_an_upstream_holds_until_it_opens() -> None:
    """Rule 5 after a refusal: everything open goes again, in order; a copy's other duties are not touched."""
    host = Host()
    down = peer(host, 2)
    down.links_to(4, 5)
    incarnation = host.attach(1, "p")
    for number in (2, 4, 5):
        down.wants("quotes", unit=mate(number))
    first = publish(host, 1, publication(1, incarnation), publication(2, incarnation))
    assert [frame.to_serve for _, frame in copies(first, 2)] == [mates(2, 4, 5)] * 2
    effects = down.hand(Refused((mate(4),)))
    assert frames(effects, 2, Held) == [Held((mate(4),))]
    assert copies(effects, 2) == []
    effects = publish(host, 1, publication(3, incarnation))
    assert [frame.to_serve for _, frame in copies(effects, 2)] == [mates(2, 5)]
    down.hand(Done(((0, 1 << 20),)))
    assert [flight.open for flight in host.events.router.duties.flights()] == [mates(4)] * 3
    effects = down.hand(Open((mate(4),)))
    assert [(frame.sequence, frame.to_serve) for _, frame in copies(effects, 2)] == [
        (1, mates(4)),
        (2, mates(4)),
        (3, mates(4)),
    ]
    down.hand(Done(((0, 1 << 20),)))
    assert len(host.events.router.duties) == 0


def test_a_refusal_is_passed_on_towards_the_origin() -> None:
    """A relay whose only hop refuses has no way either."""
    host, up, down = relay(4)
    up.hand(event_copy(1, mates(4)))
    effects = down.hand(Refused((mate(4),)))
    assert frames(effects, up.link, Refused) == [Refused((mate(4),))]
    assert frames(effects, down.link, Held) == [Held((mate(4),))]
    assert frames(up.hand(Held((mate(4),))), up.link, Open) == []
    effects = down.hand(Open((mate(4),)))
    assert frames(effects, up.link, Open) == [Open((mate(4),))]
    assert len(host.events.router.duties) == 0


def test_a_connection_that_ends_takes_its_refusals_with_it() -> None:
    host, up, down = relay()
    up.hand(event_copy(1, mates(4)))
    up.leave()
    down.links_to(4)
    again = EventPeer(host, 7, mate(1), nonce=77)
    again.greet()
    assert sequences(again.hand(event_copy(1, mates(4))), down.link) == [1]


@pytest.mark.parametrize("frame", [Refused(((1, 0, 0, 0),)), Open(((0, 0, 1, 4),)), Held(((0, 0, 0, 40),))])
def test_units_that_mean_nothing_here_cost_the_link(frame: Frame) -> None:
    _, _, down = relay(4)
    effects = down.hand(frame)
    assert [link for link, _ in closed(effects)] == [down.link]


def test_a_relay_without_room_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """§6: over its bound it refuses instead of growing."""
    monkeypatch.setattr("veena.core.routing.router.MAX_FLIGHTS", 4)
    host, up, down = relay(4)
    effects = up.hand(*(event_copy(number, mates(4)) for number in range(1, 7)))
    assert sequences(effects, down.link) == [1, 2, 3, 4]
    assert frames(effects, up.link, Refused) == [Refused((mate(4),), up.first + 4)], "the first that was not taken"
    assert len(host.events.router.duties) == 4


def test_a_relay_over_its_bound_makes_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """§6: what it has taken is delivered and counts, though it refuses what comes behind: three times its room gets
    through, in order, and not by sending everything again and again."""
    monkeypatch.setattr("veena.core.routing.router.MAX_FLIGHTS", 4)
    stage = Stage(cluster([(0, 1), (1, 2)]))
    stage.link("1", "2").delay_ns = 30 * MILLISECOND_NS
    reader = stage.subscribe("2")
    stage.wait()
    publisher = stage.attach("0", "p")
    bodies = [f"e{number}" for number in range(12)]
    for body in bodies:
        stage.publish(publisher, body)
    stage.wait(5 * SECOND_NS)
    assert stage.bodies[reader] == bodies
    assert len(stage.copies) < 20 * len(bodies)
    assert stage.is_idle()


def test_the_way_is_lost_while_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 6: what was taken before the room was full counts with its upstream; if it is let go of after all, the
    upstream must hear of that before any answer, or it believes that 4 has e1 to e4."""
    monkeypatch.setattr("veena.core.routing.router.MAX_FLIGHTS", 4)
    _, up, down = relay(4)
    up.hand(*(event_copy(number, mates(4)) for number in range(1, 7)))
    up.hand(Held((mate(4),)))
    first = up.first - 6
    effects = down.leave()
    told = frames(effects, up.link, Refused, Done)
    answered = set(acknowledged(effects, up.link)) & set(range(first, first + 4))
    assert not answered or told[0] == Refused((mate(4),))
