"""One subscription with `since` from its question to long after: whatever comes out of logs, by itself, out of backlogs
or again under another id, it gets each event once, and what is out of order says so."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.core.scripted_events import CODEC, Host, event_copy, mate, mates, patient, peer
from tests.core.scripted_peer import HOST
from tests.tiers import few
from veena.core.boundary.clients import CaughtUp, SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import (
    ClientRefused,
    Deliver,
    DeliverBurst,
    Effect,
    Input,
    LogRead,
    Read,
    ReadFailed,
    Subscribe,
    Unsubscribe,
)
from veena.core.boundary.settings import SECOND_NS
from veena.core.durable.subscription import Durable, State
from veena.core.messages.addresses import broker_id
from veena.core.messages.kinds import Past, encode_message
from veena.core.wire.event import BACKLOG, EventFrame
from veena.event import Event, EventId

SESSION, FAR = 7, mate(1)
SINCE = Subscribe(SESSION, 1, "topic", "quotes", 4, since_ns=0)
EVENTS = 8
#: The incarnations under which the publisher sent events first, and repeats some of them.
FIRST, SECOND = 1, 2


def frame(number: int, incarnation: int = FIRST) -> EventFrame:
    original = None if incarnation == FIRST else (FIRST, 1, number)
    return event_copy(number, mates(HOST[-1]), incarnation=incarnation, original=original)


class Life:
    """The subscription at its broker, and a far broker that answers for its log when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 0
        #: From when on the logs have everything, as the client is told.
        self.gone_ns: int | None = None
        #: Incarnation, number and mark of what the client was handed.
        self.got: list[tuple[int, int, bool]] = []
        self._host = Host(patient())
        self._up = peer(self._host, FAR[-1])
        self._posts = 0
        self.before = self._host.events.ends.before
        self._host.attach(SESSION, "client")
        self.give(SINCE)

    def _heed(self, effects: list[Effect]) -> None:
        effects = [*effects, *self._host.sync(self.now_ns)]
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, Deliver | DeliverBurst):
                frames = [effect.frame] if isinstance(effect, Deliver) else effect.burst.frames()
                self.got += [(each.incarnation, each.sequence, each.late) for each in frames]
            elif isinstance(effect, Read):
                effects += self._host.handle(self.read(effect), self.now_ns)
            elif isinstance(effect, CaughtUp):
                self.gone_ns = effect.gone_ns
            effects += self._host.sync(self.now_ns)

    def read(self, asked: Read) -> LogRead | ReadFailed:
        """What the disk answers."""
        found = [each for each in self._host.kept.entries if each.offset >= asked.offset]
        found = [each for each in found if not asked.inbox or asked.inbox in each.inboxes]
        return LogRead(asked.ticket, tuple(found[: asked.limit]))

    def wait(self, seconds: int) -> None:
        until_ns = self.now_ns + seconds * SECOND_NS
        while (due_ns := self._host.next_wakeup()) is not None and due_ns <= until_ns:
            self.now_ns = max(self.now_ns + 1, due_ns)
            self._heed(self._host.tick(self.now_ns))
        self.now_ns = until_ns

    @property
    def passing(self) -> Durable | None:
        return next(iter(self._host.events.sessions.durables.all.values()), None)

    @property
    def state(self) -> State | None:
        return None if self.passing is None else self.passing.state

    def give(self, given: Input) -> list[Effect]:
        effects = self._host.handle(given, self.now_ns)
        self._heed(effects)
        return effects

    def come(self, given: EventFrame) -> None:
        """An event comes by itself."""
        self._heed(self._up.hand(given, now_ns=self.now_ns))

    def answer(self, given: EventFrame) -> None:
        """One comes out of the far broker's log."""
        assert self.passing is not None
        self._posts += 1
        message = Past(self.passing.number, CODEC.encode(given, 0))
        post = Event(to=(broker_id(HOST),), headers={"veena": "Past"}, body=encode_message(message))
        stamped = replace(post, event_id=EventId(broker_id(FAR), 1, 1, self._posts), timestamp_ns=1)
        self.come(CODEC.frame(stamped, reliable=True, origin=FAR, to_serve=mates(HOST[-1])))


class WithAFailingDisk(Life):
    """The first answer of the disk to every question is that it cannot be answered."""

    def __init__(self) -> None:
        self.failed: dict[tuple[int, int], Read] = {}
        super().__init__()

    def read(self, asked: Read) -> LogRead | ReadFailed:
        if (asked.inbox, asked.offset) not in self.failed:
            self.failed[asked.inbox, asked.offset] = asked
            return ReadFailed(asked.ticket, "OverflowError: too large")
        return super().read(asked)


def test_a_read_that_fails_is_made_up_for_or_told() -> None:
    """What is kept for a subscription is read again; who asked for the past is told that some of it may be missing."""
    life = WithAFailingDisk()
    life.wait(1)
    life.answer(frame(1))
    life.come(frame(2))
    life.wait(300)
    assert [number for _, number, _ in life.got] == [1, 2]
    assert {bool(inbox) for inbox, _ in life.failed} == {True, False}, "of both kinds"
    assert life.gone_ns is not None and life.gone_ns > 0


@pytest.mark.parametrize("seed", few(range(60), 10))
def test_every_event_once_and_marked_where_it_is_out_of_order(seed: int) -> None:
    """DUP-02, I1, I3: while its past is asked for, after it was told that it has it, and as an ordinary one."""
    chance, life = Random(seed), Life()
    last, came, states = {FIRST: 0, SECOND: 0}, set[int](), list[State | None]()
    for seconds in (11, 11, 40, 1):
        life.wait(seconds)
        states.append(life.state)
        for _ in range(chance.randrange(6)):
            number, incarnation = chance.randint(1, EVENTS), chance.choice((FIRST, SECOND))
            given = frame(number, incarnation)
            came.add(number)
            if life.state and chance.random() < 0.6:
                life.answer(given)
                continue
            given.flags |= BACKLOG if number <= last[incarnation] else 0
            last[incarnation] = max(number, last[incarnation])
            life.come(given)
    life.wait(60)
    assert states == [State.ARRIVING, State.OPEN, None, None]
    assert sorted(number for _, number, _ in life.got) == sorted(came)
    highest = {FIRST: 0, SECOND: 0}
    for incarnation, number, is_late in life.got:
        assert is_late or number > highest[incarnation], life.got
        highest[incarnation] = max(number, highest[incarnation])


def test_what_a_late_answer_overtook_is_marked_long_after() -> None:
    """I3: 3 comes out of a log when the client was told already; 2 is older than the past, and comes by itself."""
    life = Life()
    life.wait(22)
    states = [life.state]
    life.answer(frame(3))
    life.wait(60)
    states.append(life.state)
    assert states == [State.OPEN, None]
    for number in (2, 3, 4):
        life.come(frame(number))
    assert life.got == [(FIRST, 3, False), (FIRST, 2, True), (FIRST, 4, False)]


def test_events_that_come_together_are_looked_at_where_one_was_had_as_a_repetition() -> None:
    """DUP-02: the log had 3 under its second id; as far as that, its first stream is not taken for new."""
    life = Life()
    life.wait(11)
    life.answer(frame(3, SECOND))
    life.wait(60)
    lane = frame(3).lane_number
    found = {
        (incarnation, number)
        for incarnation in (FIRST, SECOND)
        for number in range(1, EVENTS)
        if life.before.concerns(("p", incarnation, lane), (1, number))
    }
    assert found == {(incarnation, number) for incarnation in (FIRST, SECOND) for number in (1, 2, 3)}
    life.come(frame(3))
    assert life.got == [(SECOND, 3, False)]


def test_what_expired_before_its_client_had_it_is_new_when_it_is_repeated() -> None:
    """Its client did not read while 3, with a time to live, and 4 came out of a log; 3 is repeated without one."""
    life = Life()
    life.wait(11)
    life.give(SessionClogged(SESSION))
    mortal = frame(3)
    mortal.ttl_ms = 2000
    life.answer(mortal)
    life.answer(frame(4))
    life.wait(40)
    life.give(SessionClear(SESSION))
    life.wait(1)
    assert life.state is None
    assert life.got == [(FIRST, 4, False)]
    life.come(frame(3, SECOND))
    assert life.got == [(FIRST, 4, False), (SECOND, 3, False)]


def test_ids_that_were_forgotten_are_missed_also_when_there_is_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ids are remembered: those of 4 and 5. 5 expires unread, so that there is room; 3 may have been had."""
    monkeypatch.setattr("veena.core.durable.subscription.MAX_REMEMBERED", 2)
    life = Life()
    life.wait(11)
    life.give(SessionClogged(SESSION))
    mortal = frame(5)
    mortal.ttl_ms = 2000
    for each in (frame(3), frame(4), mortal):
        life.answer(each)
    life.wait(40)
    life.give(SessionClear(SESSION))
    life.wait(1)
    assert life.got == [(FIRST, 3, False), (FIRST, 4, False)]
    ((heir,),) = (estates.values() for estates in life.before.heirs.values())
    assert not heir.is_whole
    for number in (3, 4, 5):
        life.come(frame(number))
    assert life.got[2:] == [(FIRST, 3, True), (FIRST, 5, False)]


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("given", [SINCE, replace(SINCE, since_ns=None), replace(SINCE, since_ns=None, durable="d")])
def test_a_number_is_used_once_while_the_past_is_asked_for_and_after(given: Subscribe, is_over: bool) -> None:
    """Of every kind: it used to be refused when the past was there, and its client got nothing more."""
    life = Life()
    life.wait(80 if is_over else 5)
    (refused,) = life.give(given)
    assert isinstance(refused, ClientRefused)
    assert refused.reason == "subscription 1: the session has one of this number; end that, or use another"
    life.wait(80)
    life.come(frame(1))
    assert life.got == [(FIRST, 1, False)]
    life.give(Unsubscribe(SESSION, 1))
    assert not any(isinstance(effect, ClientRefused) for effect in life.give(given))
