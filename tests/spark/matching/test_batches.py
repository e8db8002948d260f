"""Many events against several engines: each gets what all of them find for it, rows that are no events get nothing."""

from __future__ import annotations

from veena import Event, matching
from veena.matching.base.engine import Engine
from veena.spark.matching.bulk import EVENTS_AT_ONCE, found_by, masks_by


def test_rows_that_are_no_events_find_nothing() -> None:
    topics, selectors = matching.create("topic"), matching.create("selector")
    topics.add(5, "a", 1)
    for number in range(4):
        selectors.add(number, ("a", f"price > {number}"), 2 << number)
    events = [None if at % 3 == 0 else Event(topic="ab"[at % 2], properties={"price": at % 5}) for at in range(700)]
    assert len(events) > 2 * EVENTS_AT_ONCE
    for engines in ((topics,), (topics, selectors)):
        some: tuple[Engine, ...] = engines
        found = [[] if event is None else sorted(id_ for e in some for id_ in e.match(event)) for event in events]
        assert list(found_by(some, iter(events))) == found
        masks = []
        for event in events:
            mask = 0
            for engine in some:
                mask |= 0 if event is None else engine.destinations(event)
            masks.append(mask)
        assert list(masks_by(some, iter(events))) == masks
