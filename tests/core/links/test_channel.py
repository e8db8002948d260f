"""Order and completeness over a transport that loses, repeats and reorders."""

from __future__ import annotations

import itertools
from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.core.boundary.inputs_effects import Numbered
from veena.core.links import channel
from veena.core.links.channel import MAX_BACKOFF, MAX_BURST, WINDOW, Channel
from veena.core.wire.control import MAX_RANGES, Frame, Goodbye, Received
from veena.errors import LocalProtocolError, RemoteProtocolError

PAUSE_NS = 100


def note(number: int) -> Frame:
    return Goodbye(str(number))


def told(frames: list[Frame]) -> list[int]:
    return [int(frame.reason) for frame in frames if isinstance(frame, Goodbye)]


class Weather:
    """What a bad transport does to the frames of one direction."""

    def __init__(self, chance: Random, loss: float, repeat: float) -> None:
        self.chance, self.loss, self.repeat = chance, loss, repeat
        self.under_way: list[Numbered] = []

    def carry(self, frames: list[Numbered]) -> None:
        for numbered in frames:
            for _ in range(1 + (self.chance.random() < self.repeat)):
                if self.chance.random() >= self.loss:
                    self.under_way.append(numbered)

    def some(self) -> list[Numbered]:
        """A few of what is under way, in any order."""
        self.chance.shuffle(self.under_way)
        count = self.chance.randint(0, len(self.under_way))
        taken, self.under_way = self.under_way[:count], self.under_way[count:]
        return taken


def receive(ours: Channel, came: list[Numbered], back: Weather, now_ns: int) -> list[Frame]:
    ready: list[Frame] = []
    for number, frame in came:
        if number:
            ready += [each for _, each in ours.arrive(number, frame) if isinstance(each, Frame)]
        else:
            assert isinstance(frame, Received)
            back.carry(ours.acknowledged(frame, now_ns))
    owed = ours.acknowledgement()
    if owed is not None:
        back.carry([(0, owed)])
    ours.check()
    return ready


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.floats(0, 0.7), st.floats(0, 0.7), st.integers(1, 60))
def test_everything_arrives_once_and_in_order(seed: int, loss: float, repeat: float, count: int) -> None:
    """TRN-05, DUP-03: whatever is lost, repeated and overtaken on the way, in both directions at once."""
    chance = Random(seed)
    left, right = Channel(ordered=False, retransmit_ns=PAUSE_NS), Channel(ordered=False, retransmit_ns=PAUSE_NS)
    to_left, to_right = Weather(chance, loss, repeat), Weather(chance, loss, repeat)
    at_left: list[Frame] = []
    at_right: list[Frame] = []
    sent, now_ns = 0, 0
    for now_ns in range(0, 400 * MAX_BACKOFF * PAUSE_NS, PAUSE_NS // 2):
        while sent < count and chance.random() < 0.7:
            to_right.carry(left.send(note(sent), now_ns))
            to_left.carry(right.send(note(sent), now_ns))
            sent += 1
        to_right.carry(left.tick(now_ns))
        to_left.carry(right.tick(now_ns))
        at_right += receive(right, to_right.some(), to_left, now_ns)
        at_left += receive(left, to_left.some(), to_right, now_ns)
        assert told(at_right) == list(range(len(at_right))), "no gap, no repeat, no overtaking, at any time"
        if sent == count and left.next_wakeup() is None and right.next_wakeup() is None:
            break
    assert told(at_right) == told(at_left) == list(range(count))
    assert left.statistics().unacknowledged == right.statistics().unacknowledged == 0
    assert left.statistics().sent == right.statistics().received == count


def test_an_early_frame_waits_for_the_one_before_it() -> None:
    """DUP-03: e3 first does not hide e1 and e2."""
    ours = Channel(ordered=False, retransmit_ns=PAUSE_NS)
    assert ours.arrive(3, note(3)) == []
    assert ours.arrive(2, note(2)) == []
    assert ours.arrive(1, note(1)) == [(1, note(1)), (2, note(2)), (3, note(3))]
    assert ours.arrive(2, note(2)) == []
    assert ours.statistics().repeated == 1


def test_the_window_is_bounded_and_what_waits_goes_out_in_order() -> None:
    """TRN-05: never more than WINDOW frames unacknowledged; room is used as soon as it is there."""
    ours = Channel(ordered=False, retransmit_ns=PAUSE_NS)
    out = [numbered for at in range(WINDOW + 10) for numbered in ours.send(note(at), 0)]
    assert [number for number, _ in out] == list(range(1, WINDOW + 1))
    assert ours.statistics().waiting == 10
    assert ours.acknowledged(Received(3), 0) == [(WINDOW + 1 + at, note(WINDOW + at)) for at in range(3)]
    ours.check()
    assert ours.statistics().waiting == 7
    assert ours.statistics().unacknowledged == WINDOW


def test_a_peer_that_takes_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: the sender is told instead of queueing for ever."""
    monkeypatch.setattr(channel, "WINDOW", 4)
    monkeypatch.setattr(channel, "MAX_WAITING", 2)
    ours = Channel(ordered=False, retransmit_ns=PAUSE_NS)
    for at in range(6):
        ours.send(note(at), 0)
    with pytest.raises(LocalProtocolError, match="has not taken 2 waiting frames"):
        ours.send(note(6), 0)
    assert ours.statistics().waiting == 2


def test_frames_beyond_the_window_are_not_kept() -> None:
    """A hostile sender cannot fill memory with early frames."""
    ours = Channel(ordered=False, retransmit_ns=PAUSE_NS)
    assert ours.arrive(WINDOW + 1, note(0)) == []
    assert ours.arrive((1 << 64) - 1, note(0)) == []
    assert ours.acknowledgement() == Received(0)
    assert ours.arrive(WINDOW, note(0)) == []
    assert ours.acknowledgement() == Received(WINDOW, ((1, WINDOW - 1),))


def test_an_ordered_channel_refuses_gaps_and_repeats() -> None:
    """TRN-05: over TCP a number that is not the next one is the peer's fault."""
    ours = Channel(ordered=True, retransmit_ns=PAUSE_NS)
    assert ours.arrive(1, note(1)) == [(1, note(1))]
    for number in (1, 3, 0):
        with pytest.raises(RemoteProtocolError, match=f"frame number {number} .* expected 2"):
            ours.arrive(number, note(number))
    assert ours.arrive(2, note(2)) == [(2, note(2))]
    assert ours.acknowledgement() is None


def test_an_ordered_channel_keeps_nothing() -> None:
    ours = Channel(ordered=True, retransmit_ns=PAUSE_NS)
    assert [ours.send(note(at), 0) for at in range(3)] == [[(1, note(0))], [(2, note(1))], [(3, note(2))]]
    assert (ours.next_wakeup(), ours.tick(10**9), ours.statistics().unacknowledged) == (None, [], 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_what_was_not_sent_cannot_be_acknowledged(ordered: bool) -> None:
    """A peer that acknowledges the future is at fault."""
    ours = Channel(ordered, retransmit_ns=PAUSE_NS)
    ours.send(note(0), 0)
    with pytest.raises(RemoteProtocolError, match="frame 2 acknowledged, but only 1 were sent"):
        ours.acknowledged(Received(2), 0)
    assert ours.acknowledged(Received(1), 0) == []


def test_only_what_is_missing_is_sent_again_later_and_later() -> None:
    """TRN-05: holes are named by ranges; pauses double up to the bound."""
    ours = Channel(ordered=False, retransmit_ns=PAUSE_NS)
    for at in range(6):
        ours.send(note(at), 0)
    ours.acknowledged(Received(5, ((2, 2), (4, 4))), 0)
    again = ours.tick(PAUSE_NS)
    assert [number for number, _ in again] == [2, 4, 6]
    times: list[int] = []
    due = ours.next_wakeup()
    while due is not None and len(times) < 6:
        assert ours.tick(due - 1) == []
        assert len(ours.tick(due)) == 3
        times.append(due)
        due = ours.next_wakeup()
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == [4 * PAUSE_NS, *[MAX_BACKOFF * PAUSE_NS] * 4]
    assert ours.statistics().retransmitted == 7 * 3


def test_retransmission_gives_way_to_new_frames() -> None:
    """At most MAX_BURST old frames a tick, oldest first, none twice before the others."""
    ours = Channel(ordered=False, retransmit_ns=PAUSE_NS)
    for at in range(MAX_BURST + 5):
        ours.send(note(at), 0)
    assert [number for number, _ in ours.tick(PAUSE_NS)] == list(range(1, MAX_BURST + 1))
    assert [number for number, _ in ours.tick(PAUSE_NS)] == list(range(MAX_BURST + 1, MAX_BURST + 6))


def test_an_acknowledgement_names_at_most_so_many_holes() -> None:
    """A frame has a bound; what it leaves out is simply not acknowledged yet."""
    ours = Channel(ordered=False, retransmit_ns=PAUSE_NS)
    for number in range(2, 2 * MAX_RANGES + 20, 2):
        ours.arrive(number, note(number))
    frame = ours.acknowledgement()
    assert frame is not None
    assert len(frame.missing) == MAX_RANGES
    assert frame.up_to == 2 * MAX_RANGES
    assert frame.missing[:2] == ((1, 1), (3, 3))
    assert ours.acknowledgement() is None, "one for everything that came"


def test_waiting_frames_are_first_in_first_out() -> None:
    ours = Channel(ordered=False, retransmit_ns=PAUSE_NS)
    numbers: deque[int] = deque()
    for at in range(WINDOW + 3):
        ours.send(note(at), 0)
    for up_to in (1, 2, 3):
        numbers.extend(told([frame for _, frame in ours.acknowledged(Received(up_to), 0) if isinstance(frame, Frame)]))
    assert list(numbers) == [WINDOW, WINDOW + 1, WINDOW + 2]
