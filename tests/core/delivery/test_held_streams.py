"""Subscriptions that the index leaves undecided: what waits for them, for whom, how long, and what it may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.core.scripted_events import EventPeer, Host, acknowledged, delivered, event_copy, mates, peer
from veena import matching
from veena.core.boundary.clients import SessionClear, SessionClogged, SubscriptionState
from veena.core.boundary.evaluation import Evaluate, Evaluated
from veena.core.boundary.inputs_effects import ClientDown, ClientRefused, Deliver, Effect, Subscribe, Unsubscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.delivery.evaluations import BURST, MAX_RUNNING, MAX_TRIES, SWEEP, WORK_S
from veena.core.delivery.held_streams import DOUBT_BYTES, ENDED_AT_ONCE, HELD_NS, MAX_DOUBTS
from veena.core.delivery.session_queue import OVERHEAD
from veena.core.wire.event import EventFrame
from veena.errors import RefusalCode
from veena.event import Event
from veena.matching.base.verdict import Verdict, evaluate

COSTLY, OTHER, PLAIN = 1, 2, 3
#: Everything that libxml2 has to be asked costs more than this.
TIGHT = Settings(evaluation_work=40, session_bytes=1 << 20)


def here(
    sequence: int, price: int | None = None, *, topic: str | None = "quotes", ttl: float | None = None
) -> EventFrame:
    xml = None if price is None else f"<menu><drink><price>{price}</price></drink></menu>"
    return event_copy(sequence, mates(0), event=Event(topic=topic, xml=xml, ttl=ttl), reliable=True)


class Room:
    """A broker with a client that asks for a lot, and one that asks for a topic; its worker answers when told to."""

    def __init__(self, settings: Settings = TIGHT) -> None:
        self.host = Host(settings)
        self.up: EventPeer = peer(self.host, 1)
        self.host.reader(OTHER)
        self.host.attach(COSTLY, "costly")
        self.ask(1, 3)
        self.host.sync()
        self.asked: list[Evaluate] = []
        self.effects: list[Effect] = []

    def ask(self, number: int, above: int, session: int = COSTLY) -> None:
        """Subscribe to drinks above a price, in a way that no index answers."""
        self.give(Subscribe(session, number, "xpath", (f"//drink[price > {above}][//price]", {}), 4))

    def give(self, given: object, now_ns: int = 0) -> list[Effect]:
        return self.note(self.host.handle(given, now_ns))  # type: ignore[arg-type]

    def note(self, effects: Sequence[Effect]) -> list[Effect]:
        if hasattr(self, "asked"):
            self.asked += [effect for effect in effects if isinstance(effect, Evaluate)]
        return list(effects)

    def hand(self, *frames: EventFrame, now_ns: int = 0) -> list[Effect]:
        return self.note([*self.up.hand(*frames, now_ns=now_ns), *self.host.sync(now_ns)])

    def answer(self, verdict: Verdict | None = None, work: int | None = None, now_ns: int = 0) -> list[Effect]:
        """Let the worker answer what it was asked first: the truth, or this."""
        effect = self.asked.pop(0)
        engine = matching.create(effect.engine)
        engine.add(0, effect.constraint, 1)
        truth, spent = evaluate(engine, Event(xml=effect.document), effect.work)
        given = Evaluated(effect.ticket, verdict or truth, spent if work is None else work)
        return self.give(given, now_ns)

    def answer_all(self) -> list[Effect]:
        effects: list[Effect] = []
        while self.asked:
            effects += self.answer()
        return effects


def states(effects: Sequence[Effect]) -> list[SubscriptionState]:
    return [effect for effect in effects if isinstance(effect, SubscriptionState)]


def test_only_the_session_in_doubt_waits_and_its_order_stays() -> None:
    """I1, I5: others have the events at once, their upstream is answered, and later events wait behind earlier ones."""
    room = Room()
    room.give(Subscribe(COSTLY, 2, "topic", "quotes", 4))
    effects = room.hand(here(1, 5), here(2), here(3, 1))
    assert delivered(effects, OTHER) == [1, 2, 3]
    assert delivered(effects, COSTLY) == []
    assert acknowledged(effects, room.up.link) == [room.up.first + n for n in range(3)]
    assert len(room.asked) == 1, "what is first in its stream is evaluated"
    assert room.host.statistics().held.events == 3
    effects = room.answer_all()
    handed = [(effect.frame.sequence, effect.receivers) for effect in effects if isinstance(effect, Deliver)]
    assert handed == [(1, ((COSTLY, (1, 2)),)), (2, ((COSTLY, (2,)),)), (3, ((COSTLY, (2,)),))]
    assert room.host.statistics().held == type(room.host.statistics().held)(0, 0, 0, 0)


def test_another_stream_does_not_wait() -> None:
    room = Room()
    room.give(Subscribe(COSTLY, 2, "topic", "quotes", 4))
    room.hand(here(1, 5))
    urgent = event_copy(2, mates(0), event=Event(topic="quotes", priority=9), reliable=True)
    assert delivered(room.hand(urgent), COSTLY) == [2]
    costly = event_copy(3, mates(0), event=replace(here(3, 6).event(), priority=9), reliable=True)
    room.hand(costly)
    assert len(room.asked) == MAX_RUNNING
    room.asked.reverse()  # answers come in any order
    assert delivered(room.answer(), COSTLY) == [3]
    assert delivered(room.answer(), COSTLY) == [1]


def test_what_several_ask_of_one_document_is_evaluated_once() -> None:
    room = Room()
    room.host.attach(PLAIN, "other")
    room.ask(1, 3, PLAIN)
    room.hand(here(1, 5))
    assert len(room.asked) == 1
    effects = room.answer_all()
    assert (delivered(effects, COSTLY), delivered(effects, PLAIN)) == ([1], [1])


def test_a_worker_that_fails_is_asked_again() -> None:
    room = Room()
    room.hand(here(1, 5))
    for _ in range(MAX_TRIES - 1):
        assert states(room.answer(Verdict.FAILED)) == []
    assert delivered(room.answer(), COSTLY) == [1]


@pytest.mark.parametrize(("verdict", "times"), [(Verdict.TOO_MUCH, 1), (Verdict.FAILED, MAX_TRIES)])
def test_what_costs_too_much_is_suspended(verdict: Verdict, times: int) -> None:
    """The subscription ends with a code and a remedy; what waited for it is counted, everything else goes on."""
    room = Room()
    room.give(Subscribe(COSTLY, 2, "topic", "news", 4))
    room.hand(here(1, 5), here(2, 6), here(3, topic="news"))
    effects = [effect for _ in range(times) for effect in room.answer(verdict)]
    (state,) = states(effects)
    assert (state.session, state.subscription, state.missed, state.why) == (COSTLY, 1, 2, RefusalCode.WORK)
    assert "cheaper" in state.reason
    assert delivered(effects, COSTLY) == [3], "what waited behind it comes"
    assert delivered(room.hand(here(4, 9)), COSTLY) == []
    assert not any(isinstance(effect, ClientRefused) for effect in room.give(Unsubscribe(COSTLY, 1)))
    room.ask(1, 2)  # its number is free
    room.asked.clear()
    assert room.host.statistics().evaluations.suspended == 1


def test_bytes_that_wait_are_bounded() -> None:
    size = OVERHEAD + DOUBT_BYTES + len(here(1, 5).tail)
    room = Room(Settings(evaluation_work=40, session_bytes=3 * size))
    (state,) = states(room.hand(*(here(n, 5) for n in range(1, 5))))
    assert (state.missed, state.why) == (4, RefusalCode.WORK)
    assert "bytes wait" in state.reason
    assert room.host.statistics().held.bytes == 0


def test_the_time_that_events_wait_is_bounded() -> None:
    room = Room()
    room.give(Subscribe(COSTLY, 2, "topic", "quotes", 4))
    room.hand(here(1, 5))
    assert room.host.events.held.next_wakeup() == HELD_NS
    assert states(room.host.tick(HELD_NS - 1)) == []
    effects = room.host.tick(HELD_NS)
    (state,) = states(effects)
    assert "30 seconds" in state.reason
    assert delivered(effects, COSTLY) == [1], "for its other subscription"
    room.answer()  # too late, and in vain


def test_what_expires_while_it_waits_is_not_handed_over() -> None:
    room = Room()
    room.hand(here(1, 5, ttl=1.0), here(2, 6, ttl=3.0))
    assert delivered(room.answer(now_ns=2 * SECOND_NS), COSTLY) == []
    (handed,) = [effect for effect in room.answer(now_ns=2 * SECOND_NS) if isinstance(effect, Deliver)]
    assert (handed.frame.sequence, handed.frame.ttl_ms) == (2, 1000)


def test_a_session_that_does_not_read_waits_for_its_room_too() -> None:
    room = Room()
    room.hand(here(1, 5))
    room.give(SessionClogged(COSTLY))
    assert delivered(room.answer(), COSTLY) == []
    assert delivered(room.give(SessionClear(COSTLY)), COSTLY) == [1]


def test_a_session_that_leaves_takes_its_questions_along() -> None:
    """Nothing is evaluated for those who have gone, however often they come back."""
    room = Room()
    room.hand(*(here(n, n) for n in range(4, 20)))
    assert room.host.statistics().held.events == 16
    room.give(ClientDown(COSTLY))
    assert room.host.statistics().evaluations.waiting == 1
    assert room.host.statistics().held.events == 0
    assert room.answer() == []
    assert room.asked == []
    assert room.host.statistics().evaluations.waiting == 0


def test_who_unsubscribes_waits_no_more() -> None:
    room = Room()
    room.give(Subscribe(COSTLY, 2, "topic", "quotes", 4))
    room.hand(here(1, 5), here(2))
    assert delivered(room.give(Unsubscribe(COSTLY, 1)), COSTLY) == [1, 2]


def test_many_subscriptions_of_one_session_are_bounded() -> None:
    """Those beyond the bound are suspended at once, and end a few at a time: no input makes many steps."""
    room = Room()
    count = MAX_DOUBTS + 3 * ENDED_AT_ONCE
    for number in range(2, count + 1):
        room.give(Subscribe(COSTLY, number, "xpath", (f"//drink[price > 3][//price][{number}]", {}), 4))
    found = states(room.hand(here(1, 5)))
    assert len(found) == count - MAX_DOUBTS
    assert {(each.why, each.missed) for each in found} == {(RefusalCode.WORK, 1)}
    held = room.host.statistics().profiles.subscriptions
    assert held >= count - ENDED_AT_ONCE * 2
    assert room.host.events.held.next_wakeup() == 0
    room.host.run(0, 0)
    for _ in range(4):
        room.host.tick(0)
    assert room.host.statistics().profiles.subscriptions == MAX_DOUBTS + 1
    assert states(room.hand(here(2, 6))) == []
    room.answer_all()
    assert room.host.statistics().held.events == 0


def test_what_nobody_waits_for_does_not_pile_up() -> None:
    """One who subscribes, asks, and unsubscribes again and again has no more waiting than once."""
    room = Room()
    room.give(Unsubscribe(COSTLY, 1))
    for number in range(1, 5 * SWEEP):
        room.ask(1, number)
        room.hand(here(number, number))
        room.give(Unsubscribe(COSTLY, 1))
        room.asked = room.asked[:MAX_RUNNING]  # the worker is slow
    assert room.host.statistics().evaluations.waiting <= SWEEP + MAX_RUNNING + 1


def test_users_take_turns() -> None:
    """One with a hundred questions keeps nobody waiting for more than those under way."""
    room = Room()
    room.hand(*(here(n, n) for n in range(4, 104)))
    room.host.attach(PLAIN, "honest")
    room.ask(1, 0, PLAIN)
    room.give(Unsubscribe(COSTLY, 1))
    room.ask(1, 3)
    room.hand(here(200, 77))
    for _ in range(2 * MAX_RUNNING + 2):
        effects = room.answer()
        if delivered(effects, PLAIN):
            return
    pytest.fail("the honest client waits for all questions of the other one")


def test_a_budget_that_is_spent_is_paid_back_by_time() -> None:
    room = Room()
    room.hand(*(here(n, n) for n in range(4, 10)))
    room.answer(work=BURST // 4)
    for _ in range(3):
        room.answer(work=BURST // 4)
    room.asked.clear()  # what was given out before it was known what that costs
    waiting = room.host.statistics().evaluations
    assert waiting.spent_users == 1
    due = room.host.events.evaluations.next_wakeup()
    assert due is None or 0 < due <= BURST * SECOND_NS // WORK_S
