"""Staged rows become events: in one write with their removal, with the ids that were given, or not at all (GUA-02)."""

from __future__ import annotations

from random import Random

from veena.core.boundary.clients import Pause
from veena.core.boundary.inputs_effects import (
    Accepted,
    ClientUp,
    Deliver,
    Effect,
    Input,
    Store,
    Stored,
    StoreFailed,
    Subscribe,
)
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.staging import ReleaseStaged, StagedHeld, StagedReleased, Unstaged
from veena.core.boundary.stored import Disk, Entry, Identity
from veena.core.broker import Broker
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId

HOST = (0, 0, 0, 1)
CODEC = EventCodec(4, 32)


class Lone:
    """One broker with a client who wants topic t, and a disk that answers when it is told to."""

    def __init__(self, settings: Settings | None = None) -> None:
        identity = Identity("lone", HOST, 0)
        self.broker = Broker(identity, settings or Settings(), Random(1).getrandbits, 0, disk=Disk(identity))
        self.now_ns = SECOND_NS
        self.unanswered: list[Store] = []
        for given in (ClientUp(1, "reader"), Subscribe(1, 1, "topic", "t", 4)):
            self.give(given)
        self.answer()

    def give(self, given: Input) -> list[Effect]:
        self.now_ns += 1000
        effects = self.broker.handle(given, self.now_ns)
        self.unanswered += [effect for effect in effects if isinstance(effect, Store)]
        self.broker.check()
        return effects

    def answer(self, failed: str | None = None) -> list[Effect]:
        """Let the disk answer all that it was given, also what follows from that."""
        found: list[Effect] = []
        while self.unanswered:
            ticket = self.unanswered.pop(0).ticket
            found += self.give(Stored(ticket) if failed is None else StoreFailed(ticket, failed))
        return found


def row(sequence: int, *, reliable: bool = True, topic: str = "t", xml: str | None = None) -> EventFrame:
    event = Event(topic=topic, body=b"%d" % sequence, xml=xml, event_id=EventId("sink", 7, 9, sequence))
    return CODEC.frame(event, reliable=reliable)


def delivered(effects: list[Effect]) -> list[EventId]:
    return [effect.frame.id for effect in effects if isinstance(effect, Deliver)]


def test_the_log_and_the_removal_are_one_write() -> None:
    lone = Lone()
    effects = lone.give(ReleaseStaged(3, 0, True, (row(0), row(1))))
    assert not delivered(effects), "nobody sees it before it is on disk"
    [store] = lone.unanswered
    entries = [write for write in store.writes if isinstance(write, Entry)]
    assert [write.frame.id for write in entries] == [EventId("sink", 7, 9, 0), EventId("sink", 7, 9, 1)]
    assert [write for write in store.writes if isinstance(write, Unstaged)] == [Unstaged(3, 0, True)]
    effects = lone.answer()
    assert StagedReleased(3, 0, ()) in effects
    assert delivered(effects) == [EventId("sink", 7, 9, 0), EventId("sink", 7, 9, 1)]


def test_what_the_disk_does_not_take_is_held_and_given_again_with_the_same_ids() -> None:
    lone = Lone()
    lone.give(ReleaseStaged(3, 0, True, (row(0),)))
    effects = lone.answer("disk full")
    assert StagedHeld(3, 0, "disk full") in effects and not delivered(effects)
    lone.give(ReleaseStaged(3, 0, True, (row(0),)))
    assert delivered(lone.answer()) == [EventId("sink", 7, 9, 0)]


def test_rows_of_best_effort_go_out_when_they_are_no_longer_staged() -> None:
    lone = Lone()
    best_effort = row(1, reliable=False)
    assert not delivered(lone.give(ReleaseStaged(3, 0, False, (row(0), best_effort))))
    effects = lone.answer()
    assert StagedReleased(3, 0, (best_effort,)) in effects
    assert sorted(each.sequence for each in delivered(effects)) == [0, 1]


def test_a_broker_that_fills_up_holds_rows_as_it_holds_publishers() -> None:
    """QOS-01: at three quarters of what may be open; what is wrong with a row keeps nobody else's."""
    lone = Lone(Settings(max_open=4))
    lone.give(ReleaseStaged(3, 0, False, tuple(row(number) for number in range(3))))
    [held] = [each for each in lone.give(ReleaseStaged(3, 3, True, (row(3),))) if isinstance(each, StagedHeld)]
    assert "filling up" in held.reason
    effects = lone.answer()
    assert not [each for each in effects if isinstance(each, Pause | Accepted) and each.session == 1]
    assert delivered(effects)
    lone.give(ReleaseStaged(4, 0, True, (row(4, xml="<open>"), row(5))))
    assert delivered(lone.answer()) == [EventId("sink", 7, 9, 5)]
