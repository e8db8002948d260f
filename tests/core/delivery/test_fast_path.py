"""A broker does with a burst what it does with each of its events alone: the same deliveries, log, places, answers."""

from __future__ import annotations

from random import Random

import pytest

from veena.address import Address
from veena.core.boundary.clients import CloseSession, SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import (
    Accepted,
    AcceptedRun,
    ClientDown,
    ClientUp,
    Deliver,
    DeliverBurst,
    DeliverMixed,
    Effect,
    Input,
    Publish,
    PublishBatch,
    PublishRefused,
    Store,
    Stored,
    StoreFailed,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.boundary.stored import Disk, Entries, Entry, Identity
from veena.core.broker import Broker
from veena.core.delivery.session_queue import OVERHEAD
from veena.core.wire.burst import EventBurst
from veena.core.wire.codec import Decoder
from veena.core.wire.event import EventCodec, EventFrame
from veena.event import Event, EventId

HOST = (0, 0, 0, 1)
CODEC = EventCodec(4, 32)
READERS = (11, 12, 13)
TOPICS = ("quotes", "orders")


class Lone:
    """One broker without neighbours, with a disk in memory; everything that its clients are told."""

    def __init__(self, disk: Disk | None = None, settings: Settings | None = None) -> None:
        self.disk = disk or Disk(Identity("lone", HOST, 0))
        self.broker = Broker(self.disk.identity, settings or Settings(), Random(3).getrandbits, 0, disk=self.disk)
        self.now_ns = SECOND_NS
        self.delivered: dict[int, list[tuple[EventId, tuple[int, ...], bytes]]] = {}
        #: The same by session and lane: how lanes are mixed depends on the disk.
        self.by_lane: dict[tuple[int, int], list[tuple[EventId, tuple[int, ...], bytes]]] = {}
        self.accepted: dict[tuple[int, int], None] = {}
        self.refused: list[tuple[EventId, str]] = []
        self.kinds: list[type[Effect]] = []
        self.incarnations: dict[int, int] = {}
        self.unsynced: list[Store] = []
        self.holds_disk = False
        #: What the publisher's events are read by, one after the other, and how many of them needed no input.
        self.decoder = Decoder(CODEC)
        self.again = 0
        self.give(ClientUp(1, "p"))
        for session in READERS:
            self.give(ClientUp(session, f"reader-{session}"))

    def give(self, given: Input) -> None:
        self.now_ns += 1000
        self._heed(self.broker.handle(given, self.now_ns))

    def tick(self, later_ns: int) -> None:
        self.now_ns += later_ns
        self._heed(self.broker.tick(self.now_ns))

    def _heed(self, effects: list[Effect]) -> None:
        self.broker.check()
        for effect in effects:
            self.kinds.append(type(effect))
            if isinstance(effect, Welcome):
                self.incarnations[effect.session] = effect.incarnation
            elif isinstance(effect, Deliver):
                self._got([effect.frame], effect.receivers)
            elif isinstance(effect, DeliverBurst):
                self._got(effect.burst.frames(), effect.receivers)
            elif isinstance(effect, DeliverMixed):
                frames = effect.burst.frames()
                for receivers, start, end in effect.pieces:
                    self._got(frames[start:end], receivers)
            elif isinstance(effect, Accepted):
                self.accepted[effect.id.timestamp, effect.id.sequence] = None
            elif isinstance(effect, AcceptedRun):
                for sequence in range(effect.first, effect.last + 1):
                    self.accepted[effect.timestamp, sequence] = None
            elif isinstance(effect, PublishRefused):
                self.refused.append((effect.id, effect.reason))
            elif isinstance(effect, Store):
                self.unsynced.append(effect)
        if not self.holds_disk:
            self.sync()

    def sync(self) -> None:
        while self.unsynced:
            effect = self.unsynced.pop(0)
            for write in effect.writes:
                self.disk.write(write)
            self.give(Stored(effect.ticket))

    def _got(self, frames: list[EventFrame], receivers: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
        for frame in frames:
            assert frame.origin == bytes(HOST)
            for session, numbers in receivers:
                got = (frame.id, numbers, bytes(frame.body))
                self.delivered.setdefault(session, []).append(got)
                self.by_lane.setdefault((session, frame.lane_number), []).append(got)

    def publish(self, frames: list[EventFrame], alone: bool) -> None:
        if alone:
            for frame in frames:
                self.give(Publish(1, frame))
        else:
            self.give(PublishBatch(1, bursts_of(frames)))

    def publish_so(self, how: str, frames: list[EventFrame]) -> None:
        if how == "again":
            self.publish_again(frames)
        else:
            self.publish(frames, how == "alone")

    def publish_again(self, frames: list[EventFrame]) -> None:
        """Each as it would come at a steady pace: by the short form where that takes it."""
        for frame in frames:
            (burst,) = self.decoder.feed_bursts(CODEC.encode(frame, 0))
            assert isinstance(burst, EventBurst)
            self.now_ns += 1000
            before = self.broker.statistics()
            receivers = self.broker.again(1, burst, self.now_ns)
            if receivers is None:
                assert self.broker.statistics() == before, "nothing has changed"
                self.give(PublishBatch(1, [burst]))
            else:
                self.again += 1
                self.broker.check()
                self._got(burst.frames(), receivers)

    def log(self) -> list[tuple[EventId, int, bytes, int]]:
        return [
            (each.frame.id, each.frame.to_serve, bytes(each.frame.tail), each.frame.flags) for each in self.disk.entries
        ]


def bursts_of(frames: list[EventFrame]) -> list[EventBurst]:
    found = Decoder(CODEC).feed_bursts(b"".join(CODEC.encode(frame, 0) for frame in frames))
    return [each for each in found if isinstance(each, EventBurst)]


def frame_of(
    lone: Lone,
    sequence: int,
    topic: str = "quotes",
    *,
    reliable: bool = False,
    now_ns: int = 0,
    origin: Address | None = None,
    **given: object,
) -> EventFrame:
    event_id = EventId("p", lone.incarnations[1], 3, sequence)
    event = Event(topic=topic, event_id=event_id, timestamp_ns=now_ns or sequence, **given)  # type: ignore[arg-type]
    return CODEC.frame(event, reliable=reliable, origin=origin)


def wants(lone: Lone, session: int, number: int, topic: str = "quotes") -> None:
    lone.give(Subscribe(session, number, "topic", topic, 4))


def _some(lone: Lone, chance: Random, sequence: int) -> list[EventFrame]:
    """Some events one after the other: runs of alike ones, holes, steps back, lanes, expired ones, sick ones."""
    frames: list[EventFrame] = []
    while len(frames) < 20:
        topic, reliable, priority = chance.choice(TOPICS), chance.random() < 0.5, chance.choice((1, 5, 9))
        origin = chance.choice((HOST, HOST, HOST, None))
        sequence += 1  # an id is used again within its lane at most
        for _ in range(chance.randrange(1, 8)):
            sequence += chance.choice((1, 1, 1, 1, 1, 2, 0))
            ttl = chance.choice((None, None, None, 5.0))
            frame = frame_of(
                lone, sequence, topic, reliable=reliable, priority=priority, body=b"%d" % sequence, ttl=ttl,
                origin=origin,
            )  # fmt: skip
            if chance.random() < 0.02:
                frame.incarnation += 1
            if chance.random() < 0.02:
                frame.ttl_ms = 0
            frames.append(frame)
    return frames


@pytest.mark.parametrize("seed", range(12))
def test_bursts_and_single_events_come_to_the_same(seed: int) -> None:
    """DUP-03, CLI-03, FLT-09, GUA-02: order, duplicates, slow readers and the log do not depend on how events come."""
    outcomes = []
    for how in ("alone", "in bursts", "again"):
        chance = Random(seed)
        lone = Lone()
        frames: list[EventFrame] = []
        numbers = dict.fromkeys(READERS, 0)
        wants(lone, 11, 9)
        for _ in range(25):
            session = chance.choice(READERS)
            action = chance.randrange(6)
            if action == 0 and numbers[session] < 6:
                numbers[session] += 1
                wants(lone, session, numbers[session], chance.choice(TOPICS))
            elif action == 1 and numbers[session]:
                lone.give(Unsubscribe(session, numbers[session]))
                numbers[session] -= 1
            elif action == 2:
                lone.give(SessionClogged(session))
            elif action == 3:
                lone.give(SessionClear(session))
            frames = _some(lone, chance, frames[-1].sequence if frames else 0)
            lone.publish_so(how, frames)
        for session in READERS:
            lone.give(SessionClear(session))
        lone.publish_so(how, [frame_of(lone, frames[-1].sequence + more, origin=HOST) for more in range(2, 9)])
        lone.tick(3 * SECOND_NS)
        statistics = lone.broker.statistics()
        counts = statistics.origin.accepted, statistics.origin.refused, statistics.ends.delivered
        refused = [each for each, _ in lone.refused]
        outcomes.append((lone.by_lane, lone.log(), lone.disk.had, refused, counts, lone.disk.cursors))
        assert statistics.origin.open == 0
        assert (AcceptedRun in lone.kinds) is (how != "alone")
        assert (lone.again > 0) is (how == "again")
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_a_burst_is_one_effect_and_one_write() -> None:
    lone = Lone()
    wants(lone, 11, 1)
    wants(lone, 12, 4)
    lone.kinds.clear()
    lone.publish([frame_of(lone, number) for number in range(1, 100)], alone=False)
    assert lone.kinds == [DeliverBurst]
    assert len(lone.delivered[11]) == len(lone.delivered[12]) == 99
    assert lone.broker.schedule.took_fast_path
    lone.holds_disk = True
    lone.publish([frame_of(lone, number, reliable=True) for number in range(100, 200)], alone=False)
    (store,) = lone.unsynced
    assert [type(write) for write in store.writes] == [Entries]
    assert len(lone.delivered[11]) == 99, "nothing is handed over, or accepted, before it is synced"
    assert not lone.accepted
    lone.holds_disk = False
    lone.sync()
    assert [len(lone.delivered[session]) for session in (11, 12)] == [199, 199]
    assert list(lone.accepted) == [(3, number) for number in range(100, 200)]
    assert lone.disk.had["p", lone.incarnations[1], 4] == (3, 199)


def test_a_burst_that_the_disk_does_not_take_is_refused_event_by_event() -> None:
    lone = Lone()
    wants(lone, 11, 1)
    lone.holds_disk = True
    lone.publish([frame_of(lone, number, reliable=True) for number in range(1, 6)], alone=False)
    (store,) = lone.unsynced
    lone.unsynced.clear()
    lone.give(StoreFailed(store.ticket, "full"))
    assert [each.sequence for each, _ in lone.refused] == [1, 2, 3, 4, 5]
    assert all("try another broker" in reason for _, reason in lone.refused)
    assert (lone.delivered, lone.accepted) == ({}, {})
    lone.holds_disk = False
    lone.publish([frame_of(lone, number, reliable=True) for number in range(6, 9)], alone=False)
    assert list(lone.accepted) == [(3, 6), (3, 7), (3, 8)]
    assert lone.broker.statistics().origin.open == 0


def test_a_subscription_that_comes_while_a_burst_is_written_gets_it() -> None:
    """I1: who is there when an event is accepted gets it."""
    lone = Lone()
    wants(lone, 11, 1)
    lone.holds_disk = True
    lone.publish([frame_of(lone, number, reliable=True) for number in range(1, 6)], alone=False)
    wants(lone, 12, 1)
    lone.give(ClientDown(11))
    lone.holds_disk = False
    lone.sync()
    assert [each.sequence for each, _, _ in lone.delivered[12]] == [1, 2, 3, 4, 5]
    assert 11 not in lone.delivered


def test_what_was_decided_before_is_decided_anew_when_wants_change() -> None:
    lone = Lone()
    for number, session in enumerate(READERS):
        wants(lone, session, 1)
        lone.publish([frame_of(lone, 2 * number + 1), frame_of(lone, 2 * number + 2)], alone=False)
    lone.give(Unsubscribe(11, 1))
    lone.publish([frame_of(lone, 20)], alone=False)
    assert [len(lone.delivered[session]) for session in READERS] == [6, 5, 3]


def test_the_short_form_leaves_nothing_to_be_told() -> None:
    """FLT-09: who does not read, and asked to be cut off for it, is cut off at once, however events come."""
    lone = Lone(settings=Settings(session_bytes=3 * OVERHEAD))
    lone.give(ClientUp(14, "impatient", slow="disconnect"))
    wants(lone, 14, 1)
    wants(lone, 11, 1)
    lone.publish_again([frame_of(lone, number, origin=HOST) for number in (1, 2)])
    lone.give(SessionClogged(14))
    lone.kinds.clear()
    lone.publish_again([frame_of(lone, number, origin=HOST) for number in range(3, 9)])
    assert CloseSession in lone.kinds
    assert [each.sequence for each, _, _ in lone.delivered[11]] == list(range(1, 9))
    assert lone.broker.tick(lone.now_ns) == []


def test_the_short_form_takes_only_what_was_decided_before() -> None:
    """Whatever may have changed since, somebody's wants among it, is for `handle`; so is what has to be stamped."""
    lone = Lone()
    wants(lone, 11, 1)
    lone.publish_again([frame_of(lone, number, origin=HOST) for number in range(1, 5)])
    assert lone.again == 3
    wants(lone, 12, 1)
    lone.publish_again([frame_of(lone, 5, origin=HOST), frame_of(lone, 6, origin=HOST)])
    assert lone.again == 4
    lone.publish_again([frame_of(lone, number) for number in (7, 8)])
    assert lone.again == 4
    lone.publish_again([frame_of(lone, 8, origin=HOST)])
    assert [each.sequence for each, _ in lone.refused] == [8]
    lone.give(Unsubscribe(11, 1))
    lone.publish_again([frame_of(lone, 9, origin=HOST)])
    assert lone.again == 4
    assert [each.sequence for each, _, _ in lone.delivered[11]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [each.sequence for each, _, _ in lone.delivered[12]] == [5, 6, 7, 8, 9]
    lone.give(ClientDown(1))
    (burst,) = lone.decoder.feed_bursts(CODEC.encode(frame_of(lone, 10, origin=HOST), 0))
    assert isinstance(burst, EventBurst)
    assert lone.broker.again(1, burst, lone.now_ns) is None


@pytest.mark.parametrize("name", ["JMSTimestamp", "JMSMessageID"])
def test_a_selector_may_tell_events_apart_that_are_alike(name: str) -> None:
    """MAT-21: the time of publication and the id are in no key, so nothing is kept while somebody asks for them."""
    lone = Lone()
    condition = "JMSTimestamp > 5" if name == "JMSTimestamp" else f"JMSMessageID LIKE '%{lone.incarnations[1]}:3:2'"
    lone.give(Subscribe(11, 1, "selector", ("quotes", condition), 4))
    frames = [frame_of(lone, 1, now_ns=1_000_000), frame_of(lone, 2, now_ns=9_000_000)]
    for frame in frames:
        lone.publish([frame], alone=False)
    assert [each.sequence for each, _, _ in lone.delivered[11]] == [2]
    later = [frame_of(lone, 3, now_ns=2_000_000), frame_of(lone, 4, now_ns=9_000_000), frame_of(lone, 5, now_ns=1)]
    lone.publish(later, alone=False)
    assert [each.sequence for each, _, _ in lone.delivered[11]] == [2, *([4] if name == "JMSTimestamp" else [])]
    lone.give(Unsubscribe(11, 1))
    assert lone.broker.profiles.clients.untimely == 0


def test_an_event_that_is_repeated_under_a_new_id_is_not_handed_over_twice() -> None:
    """A publisher that lost its connection repeats what it did not hear was accepted; its original was in a burst."""
    lone = Lone()
    wants(lone, 11, 1)
    lone.publish([frame_of(lone, number, reliable=True) for number in range(1, 6)], alone=False)
    before = lone.incarnations[1]
    lone.give(ClientDown(1, True))
    lone.give(ClientUp(1, "p"))
    wants(lone, 12, 1)
    for number in (4, 5, 6):
        event = Event(topic="quotes", event_id=EventId("p", lone.incarnations[1], 3, number))
        lone.give(Publish(1, CODEC.frame(event, reliable=True, original=(before, 3, number))))
    assert [(each.incarnation == before, each.sequence) for each, _, _ in lone.delivered[11]] == [
        *((True, number) for number in range(1, 6)),
        (False, 6),
    ]
    assert [each.sequence for each, _, _ in lone.delivered[12]] == [4, 5, 6]


def test_a_crash_before_the_places_are_on_disk_loses_nothing() -> None:
    """I5: what was accepted is in the log, event by event."""
    lone = Lone()
    wants(lone, 11, 1)
    lone.holds_disk = True
    lone.publish([frame_of(lone, number, reliable=True, body=b"%d" % number) for number in range(1, 6)], alone=False)
    for write in lone.unsynced[0].writes:
        lone.disk.write(write)
    entries = lone.disk.entries
    assert [type(each) for each in entries] == [Entry] * 5
    assert [(each.offset, bytes(each.frame.body)) for each in entries] == [(n, b"%d" % (n + 1)) for n in range(5)]
    again = Lone(lone.disk)
    assert again.broker.statistics().origin.next_offset == 5
