"""Reliable events that are alike go together: one frame a link, one write, and ranges as answers. Nothing else differs.

Each planted bug breaks one promise of that, and a test shows that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import pytest

from tests.core.routing.simpler_rules import AcknowledgesTheHalf, IgnoresExceptions, SendsRunsBehind
from tests.core.scripted_events import (
    CODEC,
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
    sequences,
)
from veena.core.boundary.inputs_effects import AcceptedRun, Arrived, Close, DeliverBurst, Effect, PublishBatch
from veena.core.boundary.settings import SECOND_NS
from veena.core.boundary.stored import Disk, Entries, LastHad
from veena.core.routing.duties import Duties
from veena.core.routing.sent_runs import SentRuns
from veena.core.wire.burst import EventBurst
from veena.core.wire.codec import Decoder
from veena.core.wire.control import Done, Open, Refused, ReliableBurst
from veena.core.wire.event import EventFrame

SIZE = CODEC.vector_size
ZERO = bytes(SIZE)


class BurstPeer(EventPeer):
    """A neighbour that takes bursts."""

    #: What followed from its greeting.
    greeted: list[Effect]

    def batch(self, events: Sequence[EventFrame], to_serve: int, count: int = 0, now_ns: int = 0) -> list[Effect]:
        """Hand over reliable events as one frame; `first` is the number of the first of them."""
        self.first = self.number + 1
        count = count or len(events)
        self.number += count
        data = b"".join(CODEC.encode(each, 0) for each in events)
        frame = ReliableBurst(to_serve.to_bytes(SIZE, "big"), ZERO, count, data)
        return self.broker.handle(Arrived(self.link, [(self.first, frame)]), now_ns)


def burst_peer(host: Host, link: int, number: int | None = None, nonce: int = 0) -> BurstPeer:
    made = BurstPeer(host, link, mate(number or link), nonce=nonce or 1000 + link)
    made.hello = msgspec.structs.replace(made.hello, bursts=True)
    made.greeted = made.greet()
    return made


def relay(*others: int) -> tuple[Host, BurstPeer, BurstPeer]:
    """A broker between 1 and 2; 3 lies behind 2, and behind these others."""
    host = Host()
    up, down = burst_peer(host, 1), burst_peer(host, 2)
    down.links_to(3)
    for other in others:
        burst_peer(host, other).links_to(3)
    host.sync()
    return host, up, down


def events(first: int, last: int) -> list[EventFrame]:
    return [event_copy(sequence, 0) for sequence in range(first, last + 1)]


def bursts(effects: Iterable[Effect], link: int) -> list[ReliableBurst]:
    return [each for each in frames(list(effects), link, ReliableBurst) if isinstance(each, ReliableBurst)]


def sequences_in(frame: ReliableBurst) -> list[int]:
    return [each.sequence for _, each in Decoder(CODEC).feed(frame.events) if isinstance(each, EventFrame)]


def number_of(effects: Iterable[Effect], link: int) -> int:
    """The number of the first event of the burst that goes out."""
    return next(
        number
        for effect in effects
        if getattr(effect, "link", None) == link and hasattr(effect, "frames")
        for number, frame in effect.frames
        if isinstance(frame, ReliableBurst)
    )


# --- ways ---


def test_a_relay_passes_a_burst_on_as_one_frame_and_answers_with_one_range() -> None:
    """ERP, DUP: the upstream has its answer when everybody below has all of it."""
    host, up, down = relay()
    effects = up.batch(events(1, 20), mates(3))
    (frame,) = bursts(effects, 2)
    assert sequences_in(frame) == list(range(1, 21)) and not copies(effects, 2)
    assert not acknowledged(effects, 1) and len(host.events.router.duties) == 20
    first = number_of(effects, 2)
    effects = down.say(Done(((first, first + 19),)))
    assert [each.ranges for each in frames(effects, 1, Done)] == [((up.first, up.first + 19),)]  # type: ignore[attr-defined]
    assert len(host.events.router.duties) == 0
    effects = up.batch(events(21, 22), mates(3))
    assert number_of(effects, 2) == first + 20, "a burst takes a number for each of its events"


def test_clients_get_a_burst_at_once_and_its_sender_the_answer_when_the_disk_has_it() -> None:
    host, up, _ = relay()
    reader = host.reader(7)
    host.sync()
    effects = up.batch(events(1, 5), mates(0))
    assert [(each.burst.count, each.receivers) for each in effects if isinstance(each, DeliverBurst)] == [
        (5, ((reader, (1,)),))
    ]
    assert not acknowledged(effects, 1)
    assert [each.place for store in host.stores for each in store.writes if isinstance(each, LastHad)] == [(1, 5)]
    assert acknowledged(host.sync(), 1) == list(range(up.first, up.first + 5))


def test_an_event_of_a_burst_that_comes_again_by_itself_is_claimed_by_both() -> None:
    """Rule 4: a duty that is taken gets a second claim."""
    host, up, down = relay()
    other = burst_peer(host, 4)
    first = number_of(up.batch(events(1, 4), mates(3)), 2)
    effects = other.hand(event_copy(2, mates(3)))
    assert not sequences(effects, 2) and not acknowledged(effects, 4)
    effects = down.say(Done(((first, first + 3),)))
    assert acknowledged(effects, 1) == list(range(up.first, up.first + 4))
    assert acknowledged(effects, 4) == [other.first]


def test_a_neighbour_that_takes_no_bursts_gets_events() -> None:
    host = Host()
    up, down = burst_peer(host, 1), peer(host, 2)
    down.links_to(3)
    host.sync()
    effects = up.batch(events(1, 4), mates(3))
    assert sequences(effects, 2) == [1, 2, 3, 4] and not bursts(effects, 2)


def test_a_refused_unit_gets_its_burst_again_in_order() -> None:
    host, down, incarnation = origin()
    published(host, incarnation, 1, 4)
    first = number_of(host.sync(), 2)
    effects = down.say(Refused((mate(2),), since=first + 2))
    effects += down.say(Open((mate(2),)))
    assert sequences(effects, 2) == [1, 2, 3, 4]


# --- planted bugs ---


@pytest.mark.parametrize("rule", [Duties, SendsRunsBehind])
def test_a_burst_is_sent_again_before_what_is_newer(monkeypatch: pytest.MonkeyPatch, rule: type[Duties]) -> None:
    """Rule 5: over another hop all that is open goes first, in order."""
    monkeypatch.setattr("veena.core.routing.router.Duties", rule)
    _, up, down = relay(5)
    up.batch(events(1, 3), mates(3))
    up.hand(event_copy(4, mates(3)))
    up.batch(events(5, 6), mates(3))
    effects = [*down.leave(), *up.batch(events(7, 8), mates(3))]
    found = sequences(effects, 5)
    found += [sequence for frame in bursts(effects, 5) for sequence in sequences_in(frame)]
    assert (found == list(range(1, 9))) is (rule is Duties)


@pytest.mark.parametrize("rule", [SentRuns, IgnoresExceptions])
def test_what_a_range_leaves_out_is_open(monkeypatch: pytest.MonkeyPatch, rule: type[SentRuns]) -> None:
    """Rule 6: an answer names frames; what its vector leaves out is not done."""
    monkeypatch.setattr("veena.core.routing.sent_runs.SentRuns", rule)
    host, up, down = relay(5)
    first = number_of(up.batch(events(1, 8), mates(3)), 2)
    effects = down.say(Done(((first, first + 7),), (b"\x14",)))  # all but the third and the fifth
    here = up.first
    is_right = rule is SentRuns
    left = [here + 2, here + 4]
    assert acknowledged(effects, 1) == [n for n in range(here, here + 8) if n not in left or not is_right]
    assert len(host.events.router.duties) == (2 if is_right else 0)
    assert sequences(down.leave(), 5) == ([3, 5] if is_right else [])


@pytest.mark.parametrize("rule", [Duties, AcknowledgesTheHalf])
def test_a_burst_of_which_half_is_stored_is_not_acknowledged(
    monkeypatch: pytest.MonkeyPatch, rule: type[Duties]
) -> None:
    """I5: it is stored for the clients here, and not yet with those behind the next link."""
    monkeypatch.setattr("veena.core.routing.router.Duties", rule)
    host, up, down = relay()
    host.reader(7)
    host.sync()
    first = number_of(up.batch(events(1, 6), mates(0, 3)), 2)
    effects = host.sync()
    assert bool(acknowledged(effects, 1)) is (rule is not Duties)
    effects += down.say(Done(((first, first + 2),)))
    done = [up.first + at for at in range(6 if rule is not Duties else 3)]
    assert sorted(set(acknowledged(effects, 1))) == done


# --- published here ---


def published(host: Host, incarnation: int, first: int, last: int) -> list[Effect]:
    data = b"".join(CODEC.encode(publication(n, incarnation), 0) for n in range(first, last + 1))
    found = [each for each in Decoder(CODEC).feed_bursts(data) if isinstance(each, EventBurst)]
    return host.handle(PublishBatch(1, found), 0)


def origin(disk: Disk | None = None) -> tuple[Host, BurstPeer, int]:
    """A broker with the publisher p, and the neighbour 2, which wants everything."""
    host = Host(disk=disk)
    down = burst_peer(host, 2)
    incarnation = host.attach(1, "p")
    host.sync()
    return host, down, incarnation


def test_what_is_published_goes_to_the_log_as_one_entry_and_out_as_one_frame() -> None:
    """GUA-02: accepted when all of it is stored, and not sent before."""
    host, down, incarnation = origin()
    effects = published(host, incarnation, 1, 10)
    assert not bursts(effects, 2)
    (entries,) = [each for store in host.stores for each in store.writes if isinstance(each, Entries)]
    assert (entries.offset, entries.burst.count, entries.to_serve) == (0, 10, mates(0, 2))
    effects = host.sync()
    assert [(each.first, each.last) for each in effects if isinstance(each, AcceptedRun)] == [(1, 10)]
    assert [sequences_in(each) for each in bursts(effects, 2)] == [list(range(1, 11))]
    assert host.events.origin.statistics().open == 10
    first = number_of(effects, 2)
    down.say(Done(((first, first + 6),)))
    assert host.events.origin.statistics().open == 3
    down.say(Done(((first + 7, first + 9),)))
    assert host.events.origin.statistics().open == 0


def test_a_crash_before_the_disk_has_it_leaves_nothing_and_one_after_it_everything() -> None:
    """I5: none of a burst is accepted before all of it is on disk."""
    host, _, incarnation = origin()
    effects = published(host, incarnation, 1, 4)
    assert not any(isinstance(each, AcceptedRun) for each in effects) and not host.kept.entries
    host.sync()
    assert [entry.frame.sequence for entry in host.kept.entries] == [1, 2, 3, 4]
    again = Host(disk=host.kept)
    down = burst_peer(again, 2)
    effects = [*down.greeted, *again.run(0, SECOND_NS)]
    effects += again.read_back(effects)
    assert [sequences_in(each) for each in bursts(effects, 2)] == [[1, 2, 3, 4]] and not sequences(effects, 2)


def test_what_is_read_back_goes_together_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What found no room on its way is alike when there is room: read by read it goes as bursts, in order."""
    monkeypatch.setattr("veena.core.publishing.log.WINDOW", 8)
    host, down, incarnation = origin()
    for first in (1, 11, 21):
        published(host, incarnation, first, first + 9)
    effects = host.sync()
    assert [sequences_in(each) for each in bursts(effects, 2)] == [list(range(1, 11))]
    number = number_of(effects, 2)
    effects = down.say(Done(((number, number + 9),)))
    effects = host.read_back(effects)
    assert [n for each in bursts(effects, 2) for n in sequences_in(each)] == list(range(11, 31))
    assert not sequences(effects, 2) and all(ZERO * 2 in each.events for each in bursts(effects, 2))
    down.say(Done(((number + 10, number + 29),)))
    host.sync()
    assert host.events.origin.statistics().open == 0 and host.events.origin.statistics().parked == 0


# --- from a peer that errs ---


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda up: up.batch(events(1, 4), mates(3), count=5), "says it has 5"),
        (lambda up: up.batch([event_copy(n, 0, reliable=False) for n in (1, 2)], mates(3)), "best-effort events"),
        (lambda up: up.batch([event_copy(2, 0), event_copy(1, 0)], mates(3)), "not in order"),
    ],
)
def test_a_peer_that_errs_loses_its_link(wrong: Callable[[BurstPeer], list[Effect]], words: str) -> None:
    _, up, _ = relay()
    (reason,) = [each.reason for each in wrong(up) if isinstance(each, Close)]
    assert words in reason
