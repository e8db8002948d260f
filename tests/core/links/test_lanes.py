"""Six lanes on a link: who goes first, who is not starved, what is dropped, and which number a frame has."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.scripted_events import (
    EventPeer,
    Host,
    acknowledged,
    copies,
    event_copy,
    frames,
    mate,
    mates,
    numbers,
    origin,
    publication,
    publish,
    relay,
    sequences,
)
from tests.core.scripted_peer import HOST, hello
from veena.core.boundary.inputs_effects import LinkRoom, Read
from veena.core.boundary.settings import MILLISECOND_NS, SECOND_NS, Settings
from veena.core.links.channel import WINDOW
from veena.core.links.lanes import CREDITS, LANES, QUANTUM, TURNS, Lanes
from veena.core.links.link import Link
from veena.core.wire.control import Done, Heartbeat, Held, Open, Received, Refused
from veena.core.wire.event import EventFrame
from veena.event import Event

PRIORITIES = (0, 4, 9)
#: Bands by priority 0, 4, 9.
LOW, MIDDLE, HIGH = (Event(topic="quotes", priority=priority) for priority in PRIORITIES)


def waiting(lanes: Lanes[int], lane: int, note: int, size: int = 1000, deadline_ns: int | None = None) -> None:
    event = replace(LOW, priority=PRIORITIES[lane % 3])
    lanes.put(event_copy(note, mates(4), event=event, reliable=lane >= 3), size, deadline_ns, note)


def taken(lanes: Lanes[int], count: int = 1 << 30) -> list[tuple[int, int]]:
    """The next ones to go: (lane, note)."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        item = lanes.take()
        if item is None:
            break
        found.append((item.frame.lane_number, item.note))
    return found


# --- turns ---


def test_a_later_event_of_a_higher_band_goes_first() -> None:
    """QOS-03: 3 waiting low ones, then a high one and one in between."""
    lanes: Lanes[int] = Lanes()
    for note in (1, 2, 3):
        waiting(lanes, 3, note)
    waiting(lanes, 5, 4)
    waiting(lanes, 1, 5)
    assert taken(lanes) == [(5, 4), (1, 5), (3, 1), (3, 2), (3, 3)]
    assert lanes.take() is None


def test_the_lanes_share_by_sixteen_four_one() -> None:
    """Lanes cannot starve each other: all six flooded, each gets its weight of the bytes."""
    lanes: Lanes[int] = Lanes()
    for lane in range(LANES):
        for note in range(400):
            waiting(lanes, lane, note, size=QUANTUM // 4)
    found = [lane for lane, _ in taken(lanes, 336)]
    assert [found.count(lane) for lane in range(LANES)] == [8, 32, 128, 8, 32, 128]


def test_turns_go_by_bytes() -> None:
    """A lane of large events does not take the link from a lane of small ones of the same band."""
    lanes: Lanes[int] = Lanes()
    for note in range(20):
        waiting(lanes, 3, note, size=100 * QUANTUM)
    for note in range(5000):
        waiting(lanes, 0, note, size=QUANTUM)
    found = [lane for lane, _ in taken(lanes, 505)]
    assert 4 <= found.count(3) <= 6


def test_a_lane_below_its_share_never_waits_for_a_lower_one() -> None:
    """One high event at a time, each with a low flood waiting: always the next to go."""
    lanes: Lanes[int] = Lanes()
    for note in range(1000):
        waiting(lanes, 0, note, size=50_000)
    for note in range(300):
        waiting(lanes, 5, note, size=2000)
        assert taken(lanes, 1) == [(5, note)]
        assert [lane for lane, _ in taken(lanes, 2)] == [0, 0]


@settings(max_examples=60)
@given(st.integers(0, 10**9), st.integers(1, 120))
def test_order_completeness_and_patience(seed: int, count: int) -> None:
    """Within a lane the order stays; everything goes once; nobody is passed over by more than a round of the others."""
    chance = Random(seed)
    lanes: Lanes[int] = Lanes()
    put: list[tuple[int, int]] = []
    got: list[tuple[int, int]] = []
    passed = [0] * LANES
    largest = 3 * QUANTUM
    while len(put) < count or lanes.events:
        if len(put) < count and chance.random() < 0.6:
            lane = chance.randrange(LANES)
            put.append((lane, len(put)))
            waiting(lanes, lane, len(put) - 1, size=chance.randint(1, largest))
            lanes.check()
            continue
        was_waiting = [bool(queue) for queue in lanes._queues]
        item = lanes.take()
        if item is None:
            continue
        lanes.check()
        got.append((item.frame.lane_number, item.note))
        for lane in range(LANES):
            passed[lane] = passed[lane] + item.size if was_waiting[lane] and lane != got[-1][0] else 0
        # A lane that owes a large event waits some rounds; each of them is at most the others' credit and one event.
        rounds = largest // CREDITS[0] + 2
        assert max(passed) <= rounds * (sum(CREDITS) + LANES * largest)
    assert sorted(got, key=lambda each: each[1]) == put
    for lane in range(LANES):
        notes = [note for each, note in got if each == lane]
        assert all(a < b for a, b in pairwise(notes))


# --- dropping and time ---


def test_the_oldest_of_the_lowest_band_is_dropped() -> None:
    """FLT-09: best effort before reliable within a band, lower bands before higher ones."""
    lanes: Lanes[int] = Lanes()
    for lane in TURNS:
        waiting(lanes, lane, lane)
        waiting(lanes, lane, lane + 10)
    dropped = [lanes.drop_oldest().note for _ in range(12)]
    assert dropped == [0, 10, 3, 13, 1, 11, 4, 14, 2, 12, 5, 15]
    lanes.check()
    assert lanes.bytes == 0


def test_what_is_expired_is_found() -> None:
    """QOS-02: by deadline, in any lane; a look that finds nothing costs nothing."""
    lanes: Lanes[int] = Lanes()
    waiting(lanes, 0, 1, deadline_ns=50)
    waiting(lanes, 0, 2)
    waiting(lanes, 4, 3, deadline_ns=20)
    waiting(lanes, 4, 4, deadline_ns=90)
    assert lanes.expire(19) == []
    assert [item.note for item in lanes.expire(50)] == [1, 3]
    assert lanes.expire(89) == []
    assert [note for _, note in taken(lanes)] == [4, 2]
    lanes.check()


# --- on a link ---


def test_without_a_bound_nothing_waits() -> None:
    """A transport whose driver tells no bound takes everything at once, in the order in which it came."""
    _, up, down = relay(4)
    given = [event_copy(n, mates(4), event=event) for n, event in enumerate((LOW, HIGH, MIDDLE), 1)]
    assert sequences(up.hand(*given), down.link) == [1, 2, 3]


def test_events_wait_for_room_and_control_does_not() -> None:
    """QOS-03: with room for one event at a time they go by lane; heartbeats and acknowledgements always go."""
    host, up, down = relay(4)
    host.handle(LinkRoom(down.link, 1), 0)
    given = [event_copy(n, mates(4), event=event) for n, event in enumerate((LOW, LOW, HIGH, MIDDLE), 1)]
    assert sequences(up.hand(*given), down.link) == [1], "a byte of room is room for one"
    assert host.statistics().links[1].waiting == 3
    assert frames(host.tick(SECOND_NS), down.link, Heartbeat) != []
    out = [sequences(host.handle(LinkRoom(down.link, room), SECOND_NS), down.link) for room in (0, 1, 1, 1, 1)]
    assert out == [[], [3], [4], [2], []]


def test_room_is_counted_in_bytes() -> None:
    """LinkRoom: events go while there is a byte left."""
    host, up, down = relay(4)
    ((_, one),) = copies(up.hand(event_copy(1, mates(4))), down.link)
    size = len(one.tail) + 86
    host.handle(LinkRoom(down.link, 2 * size + 1), 0)
    assert sequences(up.hand(*(event_copy(n, mates(4)) for n in range(2, 9))), down.link) == [2, 3, 4]
    assert sequences(host.handle(LinkRoom(down.link, 2 * size), 0), down.link) == [5, 6]
    assert sequences(host.handle(LinkRoom(down.link, None), 0), down.link) == [7, 8]
    assert sequences(up.hand(event_copy(9, mates(4))), down.link) == [9]


def test_a_frame_is_numbered_when_it_goes() -> None:
    """Numbers have no gaps and no repeats, whatever order lanes have; acknowledgements of them are understood."""
    host, up, down = relay(4)
    host.handle(LinkRoom(down.link, 0), 0)
    up.hand(*(event_copy(n, mates(4), event=event) for n, event in enumerate((LOW, HIGH, LOW, HIGH), 1)))
    sent = copies(host.handle(LinkRoom(down.link, None), 0), down.link)
    assert [frame.sequence for _, frame in sent] == [2, 4, 1, 3]
    first = sent[0][0]
    assert [number for number, _ in sent] == list(range(first, first + 4))
    answers = [acknowledged(down.hand(Done(((number, number),))), up.link) for number, _ in sent]
    assert answers == [[up.first + at] for at in (1, 3, 0, 2)]
    assert len(host.events.router.duties) == 0


def test_what_waits_is_not_sent_behind_held() -> None:
    """Refusals: `Held` is a mark; copies that waited for the refused unit go when it is opened, in order."""
    host, down, incarnation = origin()
    down.links_to(4)
    host.handle(LinkRoom(down.link, 0), 0)
    publish(host, 1, *(publication(n, incarnation, event=event) for n, event in enumerate((LOW, LOW, HIGH), 1)))
    effects = down.hand(Refused((mate(4),), 0))
    assert frames(effects, down.link, Held) == [Held((mate(4),))]
    assert copies(effects, down.link) == []
    sent = copies(host.handle(LinkRoom(down.link, None), 0), down.link)
    assert [(frame.sequence, frame.to_serve) for _, frame in sent] == [(3, mates(2)), (1, mates(2)), (2, mates(2))]
    again = copies(down.hand(Open((mate(4),))), down.link)
    assert [(frame.sequence, frame.to_serve) for _, frame in again] == [(1, mates(4)), (2, mates(4)), (3, mates(4))]
    down.hand(Done(((sent[0][0], sent[-1][0]), (again[0][0], again[-1][0]))))
    assert host.statistics().origin.open == 0


@pytest.mark.parametrize("reliable", [True, False])
def test_the_time_to_live_runs_in_a_lane(reliable: bool) -> None:
    """QOS-02: less when it goes; over, it does not go, is counted, and the duty is done."""
    host, up, down = relay(4)
    host.handle(LinkRoom(down.link, 0), 0)
    lives = (0.1, 1.0)
    up.hand(
        *(
            event_copy(n, mates(4), event=Event(topic="quotes", ttl=ttl), reliable=reliable)
            for n, ttl in enumerate(lives, 1)
        )
    )
    effects = host.handle(LinkRoom(down.link, None), 150 * MILLISECOND_NS)
    assert [(frame.sequence, frame.ttl_ms) for _, frame in copies(effects, down.link)] == [(2, 850)]
    assert acknowledged(effects, up.link) == ([up.first] if reliable else [])
    assert host.statistics().links[1].expired == 1
    assert host.statistics().router.expired == (1 if reliable else 0)


def test_a_flood_of_best_effort_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLT-09: the oldest of the lowest band goes; reliable events are none of them."""
    monkeypatch.setattr("veena.core.links.link.MAX_WAITING_EVENTS", 4)
    host, up, down = relay(4)
    host.handle(LinkRoom(down.link, 0), 0)
    up.hand(*(event_copy(n, mates(4), event=LOW) for n in range(1, 7)))
    up.hand(*(event_copy(n, mates(4), event=HIGH, reliable=False) for n in (11, 12)))
    up.hand(*(event_copy(n, mates(4), event=LOW, reliable=False) for n in range(21, 26)))
    narrow = host.statistics().links[1]
    assert (narrow.waiting, narrow.dropped) == (10, 3)
    assert sequences(host.handle(LinkRoom(down.link, None), 0), down.link) == [11, 12, 1, 2, 3, 4, 5, 6, 24, 25]


def test_bytes_are_bounded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    host, up, down = relay(4)
    host.handle(LinkRoom(down.link, 0), 0)
    up.hand(event_copy(1, mates(4), reliable=False))
    monkeypatch.setattr("veena.core.links.link.MAX_WAITING_BYTES", 2 * host.statistics().links[1].waiting_bytes)
    up.hand(*(event_copy(n, mates(4), reliable=False) for n in (2, 3, 4)))
    assert sequences(host.handle(LinkRoom(down.link, None), 0), down.link) == [3, 4]
    assert host.statistics().links[1].dropped == 2


def test_over_a_transport_that_loses_frames_the_window_is_the_room() -> None:
    """TRN-05, QOS-03: what finds the window full waits in its lane, and a later high event goes first."""
    link = Link(1, False, hello(HOST), Settings(), 0)
    link.greeted(hello(mate(2)))
    numbered: list[tuple[int, int]] = []
    link.on_sent = lambda connection, ticket, number, now_ns: numbered.append((ticket, number))
    flood = [link.send(event_copy(n, mates(2), event=LOW), 0) for n in range(1, WINDOW + 3)]
    assert flood == [*range(2, WINDOW + 1), -1, -2, -3], "the greeting was the first frame"
    assert link.send(event_copy(0, mates(2), event=HIGH), 0) == -4
    link.outbox.clear()
    link.arrive(0, Received(3), 0)
    assert numbered == [(-4, WINDOW + 1), (-1, WINDOW + 2), (-2, WINDOW + 3)]
    assert [(n, frame.sequence) for n, frame in link.outbox if isinstance(frame, EventFrame)] == [
        (WINDOW + 1, 0),
        (WINDOW + 2, WINDOW),
        (WINDOW + 3, WINDOW + 1),
    ]
    link.check()


def test_lanes_of_one_unit_do_not_park_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes cannot starve each other at the origin either: a full window of low events leaves the high ones theirs."""
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 2)
    host, down, incarnation = origin()
    low = [publication(n, incarnation, event=LOW) for n in range(1, 5)]
    effects = publish(host, 1, *low, publication(5, incarnation, event=HIGH))
    assert sequences(effects, down.link) == [1, 2, 5]
    assert host.statistics().origin.parked == 1
    first = numbers(effects, down.link)
    assert sequences(host.read_back(down.hand(Done(((first[0], first[1]),)))), down.link) == [3, 4]


def test_a_restart_finds_every_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """I5: what was parked by lane is sent again after a crash, each lane in order."""
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 2)
    host, _, incarnation = origin()
    given = [publication(n, incarnation, event=HIGH if n % 2 else LOW) for n in range(1, 9)]
    publish(host, 1, *given)
    again = Host(disk=host.kept)
    down = EventPeer(again, 2, mate(2))
    effects, found = down.greet(), list[int]()
    while any(isinstance(effect, Read) for effect in effects) or copies(effects, down.link):
        sent = copies(effects, down.link)
        found += [frame.sequence for _, frame in sent]
        effects = again.read_back(effects)
        for number, _ in sent:
            effects += down.hand(Done(((number, number),)))
    assert [n for n in found if n % 2] == [1, 3, 5, 7]
    assert [n for n in found if not n % 2] == [2, 4, 6, 8]


def test_second_copies_wait_in_their_lane_too() -> None:
    """I5: with two copies an event is accepted when its copy, which had to wait for room, is answered."""
    host, down, incarnation = origin(Settings(copies=2))
    host.handle(LinkRoom(down.link, 0), 0)
    effects = publish(host, 1, publication(1, incarnation, event=LOW), publication(2, incarnation, event=HIGH))
    assert copies(effects, down.link) == []
    sent = copies(host.handle(LinkRoom(down.link, None), 0), down.link)
    assert [frame.sequence for _, frame in sent] == [2, 1]
    assert isinstance(sent[0][1], EventFrame)
    effects = down.hand(Done(((sent[0][0], sent[1][0]),)))
    assert [frame.sequence for _, frame in copies(effects, down.link)] == [1, 2], "and now they are on their way"
