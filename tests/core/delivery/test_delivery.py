"""The end of an event's way: once a client, in order within a lane, whatever relays and roaming publishers repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.scripted_events import (
    EventPeer,
    Host,
    acknowledged,
    copies,
    delivered,
    event_copy,
    mates,
    peer,
    publication,
    publish,
)
from veena.core.boundary.inputs_effects import Deliver, Effect, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Disk, LastHad
from veena.core.delivery.delivery import GATHER_BURST, MAX_WAITS, REST
from veena.core.wire.event import BACKLOG, EventFrame
from veena.event import Event, lane

QUOTES = Event(topic="quotes")
RETENTION_NS = 10 * SECOND_NS


def end(settings: Settings | None = None, disk: Disk | None = None, now_ns: int = 0) -> tuple[Host, EventPeer]:
    """A broker with one reader of quotes, and the neighbour that events come from."""
    host = Host(settings, disk, now_ns)
    up = peer(host, 1, now_ns=now_ns)
    host.reader(1, now_ns=now_ns)
    host.sync(now_ns)
    return host, up


def arrive(up: EventPeer, *frames: EventFrame, now_ns: int = 0) -> list[Effect]:
    """Let copies arrive, with a disk that takes everything."""
    effects = up.hand(*frames, now_ns=now_ns)
    assert isinstance(up.broker, Host)
    return [*effects, *up.broker.sync(now_ns)]


def later(host: Host, now_ns: int) -> list[Effect]:
    return [*host.tick(now_ns), *host.sync(now_ns)]


def here(sequence: int, **how: object) -> EventFrame:
    return event_copy(sequence, mates(0), **how)  # type: ignore[arg-type]


# --- last ---


def test_what_is_not_later_was_had() -> None:
    """DUP-02 (at ends only): e' > e is new, everything else a duplicate; a duplicate is answered like the first one."""
    host, up = end()
    assert delivered(arrive(up, here(1), here(2))) == [1, 2]
    effects = arrive(up, here(2), here(1), here(3))
    assert delivered(effects) == [3]
    assert sorted(acknowledged(effects, up.link)) == [up.first, up.first + 1, up.first + 2]
    assert host.statistics().ends.repeated == 2


def test_another_publisher_or_incarnation_is_another_stream() -> None:
    """DUP-08, UID-09: events of another incarnation count as those of another client."""
    host, up = end()
    effects = arrive(up, here(5), here(1, publisher="q"), here(2, incarnation=2), here(3, incarnation=2), here(4))
    assert delivered(effects) == [5, 1, 2, 3]
    assert host.statistics().ends.streams == 3


@pytest.mark.parametrize(
    ("first", "second"), [((True, 4), (False, 4)), ((True, 4), (True, 9)), ((False, 0), (False, 7))]
)
def test_lanes_do_not_hide_each_other(first: tuple[bool, int], second: tuple[bool, int]) -> None:
    """Lanes: a later best-effort or urgent event does not make the reliable one that waits a duplicate."""
    assert lane(*first) != lane(*second)
    _, up = end()
    (late, early) = (
        here(number, event=replace(QUOTES, priority=priority), reliable=reliable)
        for number, (reliable, priority) in ((1, first), (2, second))
    )
    assert delivered(arrive(up, early, late)) == [2, 1]
    assert delivered(arrive(up, early, late)) == []


def test_one_lane_keeps_its_order() -> None:
    """Lanes: priorities 4 to 6 are one lane, and within it a smaller id that comes later was had."""
    _, up = end()
    two, one = here(2, event=replace(QUOTES, priority=6)), here(1, event=replace(QUOTES, priority=4))
    assert delivered(arrive(up, two, one)) == [2]


def test_done_when_the_place_is_on_disk() -> None:
    """Rule 6, I5: clients get it at once; its upstream lets go of it when a crash cannot make it come twice."""
    host, up = end()
    effects = up.hand(here(1), here(2))
    assert delivered(effects) == [1, 2]
    assert acknowledged(effects, up.link) == []
    (store,) = host.stores
    assert store.writes == (LastHad(("p", 1, lane(True, 4).number), (1, 2)),), "one write a stream and read"
    assert acknowledged(host.sync(), up.link) == [up.first, up.first + 1]


def test_a_restart_remembers_what_clients_have_had() -> None:
    """I1, I5: `last` survives; what comes again is not handed over again, what is later is."""
    host, up = end()
    arrive(up, here(1), here(2))
    host, up = end(disk=host.kept)
    effects = arrive(up, here(1), here(2), here(3))
    assert delivered(effects) == [], "somebody may hold what comes before it"
    effects += later(host, SECOND_NS)
    assert delivered(effects) == [3]
    assert sorted(acknowledged(effects, up.link)) == [up.first, up.first + 1, up.first + 2]


def test_a_disk_that_fails_answers_nobody() -> None:
    """The upstream keeps it; when it sends it again it is done, and nobody gets it twice."""
    host, up = end()
    assert delivered(up.hand(here(1))) == [1]
    assert acknowledged(host.fail("no space"), up.link) == []
    host.check()
    up.leave()
    again = EventPeer(host, 7, up.address, nonce=77)
    again.greet()
    effects = arrive(again, here(1))
    assert delivered(effects) == []
    assert acknowledged(effects, again.link) == [again.first]


def test_best_effort_leaves_no_trace_on_disk() -> None:
    host, up = end()
    assert delivered(up.hand(here(1, reliable=False))) == [1]
    assert host.stores == []


# --- clients ---


def test_an_event_names_each_subscription_once() -> None:
    """DST-08: one hand-over a session, with every subscription that it satisfies; one Deliver for all."""
    host, up = end()
    host.handle(Subscribe(1, 2, "selector", ("quotes", "price > 10"), 4), 0)
    host.reader(2)
    dear = replace(QUOTES, properties={"price": 12})
    effects = arrive(up, here(1, event=dear), here(2))
    assert [effect.receivers for effect in effects if isinstance(effect, Deliver)] == [
        ((1, (1, 2)), (2, (1,))),
        ((1, (1,)), (2, (1,))),
    ]


def test_scope_is_tested_at_the_end() -> None:
    """PRF-04: a subscription of the cluster's scope is for events published in the cluster."""
    host, up = end()
    host.handle(Unsubscribe(1, 1), 0)
    host.handle(Subscribe(1, 2, "topic", "quotes", 1), 0)
    assert delivered(arrive(up, here(1, origin=(0, 0, 1, 0)), here(2, origin=(0, 0, 0, 5)))) == [2]


def test_a_client_that_returns_gets_what_it_has_not_had() -> None:
    """Last yard: it shows its last places; others at the same broker are not affected by them."""
    host, up = end()
    reliable = lane(True, 4).number
    host.reader(2, had={("p", 1, reliable): (1, 2)})
    effects = arrive(up, here(1), here(2), here(3))
    assert delivered(effects, session=1) == [1, 2, 3]
    assert delivered(effects, session=2) == [3]


def test_what_a_client_had_is_told_by_stream() -> None:
    """DUP-08: of another incarnation, or in another lane, it has had nothing."""
    host, up = end()
    host.reader(2, had={("p", 1, lane(True, 4).number): (1, 9)})
    effects = arrive(up, here(1), here(2, incarnation=2), here(3, event=replace(QUOTES, priority=9)))
    assert delivered(effects, session=2) == [2, 3]


def test_nobody_wants_it_and_then_somebody_does() -> None:
    """What no client wanted was had by nobody: it does not hide what comes again for a new client."""
    host = Host()
    up = peer(host, 1)
    assert delivered(arrive(up, here(1), here(2))) == []
    host.reader(1)
    assert delivered(arrive(up, here(2))) == [2]


# --- publishers that roam ---


def test_a_repeat_of_what_was_had_is_dropped() -> None:
    """Roaming publisher: it did not hear that e2 was accepted, and publishes it again under its new incarnation."""
    _, up = end()
    effects = arrive(up, here(1), here(2), here(1, incarnation=2, original=(1, 1, 2)), here(2, incarnation=2))
    assert [(e.frame.incarnation, e.frame.sequence) for e in effects if isinstance(e, Deliver)] == [
        (1, 1),
        (1, 2),
        (2, 2),
    ]
    assert sorted(acknowledged(effects, up.link)) == [up.first + at for at in range(4)]


def test_an_original_that_comes_after_its_repeat_is_skipped() -> None:
    """Roaming publisher: the repeat was faster; e3, which nobody repeated, is not hidden by that."""
    _, up = end()
    effects = arrive(up, here(1), here(1, incarnation=2, original=(1, 1, 2)), here(2), here(3))
    assert [(e.frame.incarnation, e.frame.sequence) for e in effects if isinstance(e, Deliver)] == [
        (1, 1),
        (2, 1),
        (1, 3),
    ]


def test_a_skipped_original_that_comes_again() -> None:
    """Rule 4: relays may send e2 again and again; it was had under its second id, so it ends here every time."""
    _, up = end()
    assert delivered(arrive(up, here(1, incarnation=2, original=(1, 1, 2)))) == [1]
    for _ in range(3):
        effects = arrive(up, here(2))
        assert delivered(effects) == []
        assert acknowledged(effects, up.link) == [up.first]


def test_an_event_that_was_repeated_twice() -> None:
    """Roaming publisher: two brokers took it in and could not say so. Both repeats name the first id: one is enough."""
    _, up = end()
    effects = arrive(
        up, here(1, incarnation=2, original=(1, 1, 2)), here(1, incarnation=3, original=(1, 1, 2)), here(2)
    )
    assert [(e.frame.incarnation, e.frame.sequence) for e in effects if isinstance(e, Deliver)] == [(2, 1)]


def test_a_restart_does_not_forget_a_repeat() -> None:
    """I1, I5: the original is still on its way when the end is killed; it must not come a second time."""
    host, up = end()
    assert delivered(arrive(up, here(1, incarnation=2, original=(1, 1, 2)))) == [1]
    _, up = end(disk=host.kept)
    assert delivered(arrive(up, here(2))) == []


def test_a_repeat_reaches_those_who_were_out_of_the_scope_of_its_original() -> None:
    """I1, PRF-04: published far away, it was for the first client only; repeated in the cluster, for the second too."""
    host, up = end()
    host.attach(2, "near")
    host.handle(Subscribe(2, 1, "topic", "quotes", 1), 0)
    far, near = here(2, origin=(0, 0, 1, 0)), here(1, incarnation=2, origin=(0, 0, 0, 5), original=(1, 1, 2))
    effects = arrive(up, far, near, far, near)
    assert delivered(effects, session=1) == [2]
    assert delivered(effects, session=2) == [1]


def test_a_second_repeat_reaches_those_whom_the_first_did_not() -> None:
    """I1: both name the id that it had first; nobody gets two of the three."""
    host, up = end()
    host.attach(2, "near")
    host.handle(Subscribe(2, 1, "topic", "quotes", 1), 0)
    far = here(1, incarnation=2, origin=(0, 0, 1, 0), original=(1, 1, 2))
    near = here(1, incarnation=3, origin=(0, 0, 0, 5), original=(1, 1, 2))
    effects = arrive(up, far, near, here(2))
    assert [(e.frame.incarnation, e.receivers) for e in effects if isinstance(e, Deliver)] == [
        (2, ((1, (1,)),)),
        (3, ((2, (1,)),)),
    ]


def test_a_repeat_reaches_those_who_came_after_its_original() -> None:
    """I1: whoever subscribed before the repeat was accepted is entitled to it, whatever others had before."""
    host, up = end()
    assert delivered(arrive(up, here(2))) == [2]
    host.reader(2)
    effects = arrive(up, here(1, incarnation=2, original=(1, 1, 2)))
    assert (delivered(effects, session=1), delivered(effects, session=2)) == ([], [1])


def test_a_repeat_of_what_nobody_wanted_is_not_hidden_by_later_events() -> None:
    """I1: of the first stream e2 was had, and e1 before it by nobody; now somebody wants e1."""
    host, up = end()
    assert delivered(arrive(up, here(1, event=Event(topic="news")), here(2))) == [2]
    host.reader(2, "news")
    effects = arrive(up, here(1, incarnation=2, original=(1, 1, 1), event=Event(topic="news")))
    assert delivered(effects, session=2) == [1]


def test_a_client_that_had_the_original_elsewhere_gets_no_repeat() -> None:
    """I1: client and publisher both roamed; what the client shows of its last places holds for originals too."""
    host, up = end()
    host.reader(2, had={("p", 1, lane(True, 4).number): (1, 2)})
    effects = arrive(up, here(1, incarnation=2, original=(1, 1, 2)))
    assert (delivered(effects, session=1), delivered(effects, session=2)) == ([1], [])


def test_a_client_that_had_a_repeat_elsewhere_gets_no_other() -> None:
    """I1: it got the event under its second id and shows which one it was at first; here the third id comes."""
    host, up = end()
    host.reader(
        2, had={("p", 2, lane(True, 4).number): (1, 1)}, skips=frozenset({(("p", 1, lane(True, 4).number), (1, 2))})
    )
    effects = arrive(up, here(1, incarnation=3, original=(1, 1, 2)), here(2))
    assert (delivered(effects, session=1), delivered(effects, session=2)) == ([1], [])


# --- backlogs ---


def backlog(sequence: int) -> EventFrame:
    """An event that a member of the cluster logged for this broker while it was absent."""
    frame = here(sequence)
    frame.flags |= BACKLOG
    return frame


def test_a_backlog_that_was_overtaken_is_late() -> None:
    """Hard cases, slow or dead broker: what comes after later ones is delivered marked `late` and counted; once."""
    host, up = end()
    assert delivered(arrive(up, here(1), here(4))) == [1, 4]
    effects = arrive(up, backlog(2), backlog(3), backlog(2), backlog(4), here(3))
    assert [(e.frame.sequence, e.frame.late) for e in effects if isinstance(e, Deliver)] == [(2, True), (3, True)]
    assert delivered(arrive(up, backlog(2), backlog(3), here(5))) == [5]
    assert host.statistics().ends.late == 2


def test_a_backlog_of_an_event_that_is_on_its_way_elsewhere() -> None:
    """I1: this broker carries e1 for another when it comes out of a backlog for itself; it is late all the same."""
    host, up = end()
    peer(host, 2)
    assert delivered(arrive(up, here(2))) == [2]
    assert delivered(arrive(up, event_copy(1, mates(2)))) == []
    effects = arrive(up, backlog(1))
    assert [(e.frame.sequence, e.frame.late) for e in effects if isinstance(e, Deliver)] == [(1, True)]


def test_a_backlog_that_joins_an_event_on_its_way_says_what_it_is() -> None:
    """I1: e1 is on its way to 2; for 3, behind 2, it comes out of a backlog, and 3 has to know."""
    host, up = end()
    down = peer(host, 2)
    down.links_to(3)
    ((_, first),) = copies(arrive(up, event_copy(1, mates(2))), down.link)
    late = event_copy(1, mates(3))
    late.flags |= BACKLOG
    ((_, second),) = copies(arrive(up, late), down.link)
    assert (first.flags & BACKLOG, second.to_serve, second.flags & BACKLOG) == (0, mates(3), BACKLOG)


def test_a_late_repeat_of_what_was_had() -> None:
    """I1: a repeat that comes out of a backlog after later events is an event that its clients have had, too."""
    _, up = end()
    late = here(2, incarnation=2, original=(1, 1, 7))
    late.flags |= BACKLOG
    assert delivered(arrive(up, here(7), here(3, incarnation=2))) == [7, 3]
    assert delivered(arrive(up, late)) == []


def test_a_late_original_of_what_was_had() -> None:
    """I1: and so is an original that comes so after its repeat."""
    _, up = end()
    assert delivered(arrive(up, here(1, incarnation=2, original=(1, 1, 2)), here(3))) == [1, 3]
    assert delivered(arrive(up, backlog(2))) == []


def test_a_late_event_after_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded: who got what is forgotten after a while, and counts as had then; what is later than that is not."""
    monkeypatch.setattr("veena.core.delivery.delivery.MAX_RECENT", 4)
    host, up = end()
    assert delivered(arrive(up, *(here(number) for number in range(1, 10)), here(11))) == [*range(1, 10), 11]
    assert delivered(arrive(up, backlog(2), backlog(10), here(1, incarnation=2, original=(1, 1, 2)))) == [10]
    host.check()


def test_a_backlog_after_a_restart() -> None:
    """I1: e1 was handed over, and this broker killed before it could say so; a backlog brings it again."""
    host, up = end()
    assert delivered(arrive(up, here(1), here(2))) == [1, 2]
    host, up = end(disk=host.kept)
    effects = arrive(up, backlog(1), backlog(2), backlog(3))
    effects += later(host, SECOND_NS)
    assert [(e.frame.sequence, e.frame.late) for e in effects if isinstance(e, Deliver)] == [(3, False)]


def test_a_broker_that_was_dead_waits_for_its_backlog_while_it_comes() -> None:
    """I5: live events come at once, what others kept one by one: all in order, and none of them marked."""
    host, up = end()
    arrive(up, here(1))
    host, up = end(disk=host.kept)
    effects = arrive(up, here(9))
    step_ns = SECOND_NS * 3 // 4
    for count, number in enumerate((4, 3, 2, 5)):
        effects += arrive(up, backlog(number), now_ns=count * step_ns)
        effects += later(host, count * step_ns)
        assert delivered(effects) == []
    effects += later(host, 3 * step_ns + SECOND_NS)
    assert [(e.frame.sequence, e.frame.late) for e in effects if isinstance(e, Deliver)] == [
        (number, False) for number in (2, 3, 4, 5, 9)
    ]


def test_a_backlog_without_end_is_waited_for_so_long_and_no_longer() -> None:
    """I5: whoever never stops sending must not keep clients from everything."""
    host, up = end()
    arrive(up, here(1))
    host, up = end(disk=host.kept)
    effects: list[Effect] = []
    for count in range(2, 2 + 2 * MAX_WAITS):
        effects += arrive(up, backlog(count), now_ns=(count - 2) * SECOND_NS // 2)
    assert delivered(effects) == []
    effects += later(host, MAX_WAITS * SECOND_NS)
    assert delivered(effects) == list(range(2, 2 + 2 * MAX_WAITS))


def test_what_is_held_while_a_backlog_is_waited_for_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veena.core.delivery.delivery.MAX_GATHERED", 3)
    host, up = end()
    arrive(up, here(1))
    host, up = end(disk=host.kept)
    effects = arrive(up, here(5), here(6), here(7))
    effects += later(host, 1)
    assert delivered(effects) == [5, 6, 7]


def test_what_is_published_here_does_not_wait_for_backlogs_of_others() -> None:
    """I5: nobody else can hold an earlier event of its streams."""
    host, up = end()
    incarnation = host.attach(7, "q")
    host.events.ends.gather(SECOND_NS, 0)
    effects = arrive(up, here(9))
    effects += publish(host, 7, publication(1, incarnation, publisher="q"))
    assert delivered(effects) == [1]
    assert delivered(later(host, SECOND_NS)) == [9]


def test_a_unit_that_comes_and_goes_holds_events_up_for_a_part_of_the_time() -> None:
    """I5: whoever lets a broker wait for backlogs again and again does so for a quarter of the time at most."""
    host, _ = end()
    ends = host.events.ends
    waited = 0
    step_ns, steps = SECOND_NS // 4, 2000
    for count in range(steps):
        now_ns = count * step_ns
        ends.gather(SECOND_NS, now_ns)
        ends.tick(now_ns)
        waited += ends.next_wakeup() is not None
    burst = (GATHER_BURST + 1) * MAX_WAITS * SECOND_NS // step_ns
    assert burst // 2 <= waited <= steps // (1 + REST) + burst


# --- bounds ---


def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 incarnations: those that were quiet longest are forgotten first."""
    monkeypatch.setattr("veena.core.delivery.delivery.MAX_STREAMS", 10)
    host, up = end()
    for incarnation in range(1, 31):
        arrive(up, here(1, incarnation=incarnation), here(1, incarnation=1000))
        host.tick(incarnation)
    assert host.statistics().ends.streams == 10
    assert delivered(arrive(up, here(1, incarnation=30), here(1, incarnation=1000))) == []
    host.check()


def test_streams_are_kept_twice_as_long_as_origins_send_again() -> None:
    """§6: an origin never sends again what is older than the retention; after twice that nothing can come."""
    settings = Settings(retention_ns=RETENTION_NS)
    host, up = end(settings)
    arrive(up, here(1))
    arrive(up, here(1, publisher="q"), now_ns=RETENTION_NS)
    host.tick(2 * RETENTION_NS - 1)
    assert host.statistics().ends.streams == 2
    host.tick(2 * RETENTION_NS + 1)
    assert host.statistics().ends.streams == 1


def test_streams_of_a_former_life_are_forgotten_too() -> None:
    """Memory of `last` is bounded by time: what the disk brought back and nobody has used for twice the retention."""
    settings = Settings(retention_ns=RETENTION_NS)
    host, up = end(settings)
    arrive(up, *(here(1, incarnation=number) for number in range(1, 6)))
    host, up = end(settings, disk=host.kept, now_ns=SECOND_NS)
    assert host.statistics().ends.streams == 5
    host.tick(SECOND_NS + 2 * RETENTION_NS + 1)
    assert host.statistics().ends.streams == 0
