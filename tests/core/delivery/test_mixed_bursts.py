"""Events of one read that are not alike: each goes to those who would have got it alone."""

from __future__ import annotations

from random import Random

import pytest

from tests.core.delivery.test_fast_path import CODEC, READERS, Lone, bursts_of
from veena.core.boundary.clients import SessionClear, SessionClogged
from veena.core.boundary.inputs_effects import ClientUp, DeliverMixed, PublishBatch, Subscribe, Unsubscribe
from veena.core.wire.event import EventFrame
from veena.event import Event, EventId, Value
from veena.matching.base.engine import Constraint

WANTS: list[tuple[str, Constraint]] = [
    ("topic", "a"),
    ("topic", "b"),
    ("selector", ("a", "price > 50")),
    ("selector", ("b", "price < 20 AND side = 'buy'")),
    ("selector", ("c", "JMSPriority > 4 AND price > 10")),
    ("selector", ("c", "JMSType = 'x'")),
    ("constraint", "price > 90"),
    ("constraint", "$type_name == 'x' and exist side"),
    ("tags", "Make=Ford"),
    ("tags", "Make=*,Color=red"),
    ("xpath", "//quote"),
    ("integer", 7),
]
CLEARED, PAGER, MUTE = 21, 22, 23


def drawn(lone: Lone, chance: Random, sequence: int) -> EventFrame:
    """An event of any kind, most of them plain."""
    properties: dict[str, Value] = {"price": chance.choice((chance.random() * 100, chance.randrange(100), "dear"))}
    if chance.random() < 0.7:
        properties["side"] = chance.choice(("buy", "sell", None, b"buy", 1 << 70))
    headers: dict[str, Value] = {}
    if chance.random() < 0.2:
        name, value = chance.choice(
            (("type_name", "x"), ("$type_name", "x"), ("JMSType", "x"), ("clearance", "secret"), ("needs", "image"))
        )
        headers[name] = value
    tags = {"Make": chance.choice(("Ford", "VW")), "Color": chance.choice(("red", "blue"))}
    event = Event(
        topic=chance.choice(("a", "b", "c", "d", None)),
        properties=properties,
        headers=headers,
        tags=tags if chance.random() < 0.3 else None,
        xml=chance.choice(("<quote/>", "<other/>", "<broken", b"<quote/>")) if chance.random() < 0.05 else None,
        to=["reader-11"] if chance.random() < 0.03 else (),
        integer=chance.choice((7, 8)) if chance.random() < 0.03 else None,
        priority=5 if chance.random() < 0.97 else 9,
        body=b"%d" % sequence,
        event_id=EventId("p", lone.incarnations[1], 3, sequence),
        timestamp_ns=sequence,
    )
    return CODEC.frame(event, reliable=chance.random() < 0.01)


@pytest.mark.parametrize("seed", range(10))
def test_mixed_bursts_and_single_events_come_to_the_same(seed: int) -> None:
    """MAT-01, PRF-03, EVT-05: rights to an event, order and duplicates do not depend on how events come."""
    outcomes = []
    for alone in (True, False):
        chance, lone = Random(seed), Lone()
        lone.give(ClientUp(CLEARED, "cleared", attributes={"clearances": "secret", "device": "desktop"}))
        lone.give(ClientUp(PAGER, "pager", attributes={"device": "pager"}))
        lone.give(ClientUp(MUTE, "mute", attributes={"device": "none"}))
        lone.give(Subscribe(MUTE, 1, "topic", "a", 4))
        sequence, numbers = 0, dict.fromkeys((*READERS, CLEARED, PAGER), 0)
        for _ in range(30):
            session, action = chance.choice(list(numbers)), chance.randrange(8)
            if action < 4 and numbers[session] < 6:
                numbers[session] += 1
                engine, constraint = chance.choice(WANTS)
                lone.give(Subscribe(session, numbers[session], engine, constraint, chance.randrange(1, 5)))
            elif action == 4 and numbers[session]:
                lone.give(Unsubscribe(session, numbers[session]))
                numbers[session] -= 1
            elif action == 5:
                lone.give(SessionClogged(session))
            elif action >= 6:
                lone.give(SessionClear(session))
            frames = []
            for _ in range(chance.randrange(1, 60)):
                sequence += chance.choice((*[1] * 30, 3, 0))
                frames.append(drawn(lone, chance, sequence))
                frames += frames[-1:] * (chance.random() < 0.02)
            lone.publish(frames, alone)
        for session in numbers:
            lone.give(SessionClear(session))
        statistics = lone.broker.statistics()
        counts = statistics.origin.accepted, statistics.origin.refused, statistics.ends.delivered
        outcomes.append((lone.by_lane, [each for each, _ in lone.refused], counts, lone.disk.had))
        assert (DeliverMixed in lone.kinds) is not alone
    assert outcomes[0] == outcomes[1]


def test_a_read_of_many_topics_is_one_effect() -> None:
    lone = Lone()
    for number in range(50):
        lone.give(Subscribe(11, number + 1, "topic", f"t{number}", 4))
    lone.give(Subscribe(12, 1, "constraint", "price > 25", 4))
    events = [
        Event(topic=f"t{at}", properties={"price": at}, event_id=EventId("p", lone.incarnations[1], 3, at))
        for at in range(50)
    ]
    bursts = bursts_of([CODEC.frame(event) for event in events])
    assert [burst.count for burst in bursts] == [1, 1, 48]
    lone.kinds.clear()
    lone.give(PublishBatch(1, bursts[2:]))
    assert lone.kinds == [DeliverMixed]
    assert lone.broker.schedule.took_fast_path
    assert [(event.sequence, numbers) for event, numbers, _ in lone.delivered[11]] == [
        (at, (at + 1,)) for at in range(2, 50)
    ]
    assert [event.sequence for event, _, _ in lone.delivered[12]] == list(range(26, 50))
