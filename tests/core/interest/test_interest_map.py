"""Wants of units in one engine, each want once, against a plain list of rows (DST-05)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veena import Event
from veena.core.interest.constraint import KINDS, Want, keyed_want, make_want
from veena.core.interest.interest_map import UnitWants
from veena.matching.base.engine import Constraint

WIDTH = 128
BITS = [1 << place for place in (0, 1, 31, 63, 127)]
#: Each want with an event that is for it.
CASES: dict[str, list[tuple[Constraint, Event]]] = {
    "topic": [(name, Event(topic=name)) for name in ("a", "b")],
    "integer": [(number, Event(integer=number)) for number in (1, 2)],
    "selector": [
        (("a", "x = 1"), Event(topic="a", properties={"x": 1})),
        (("a", "x = 2"), Event(topic="a", properties={"x": 2})),
        (("b", "x > 1"), Event(topic="b", properties={"x": 2})),
    ],
    "tags": [(f"make={name}", Event(tags={"make": name})) for name in ("a", "b")],
    "xpath": [(f"/{name}", Event(xml=f"<{name}/>")) for name in ("a", "b")],
}
STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(BITS)), max_size=30)


def packings(engine: str, constraint: Constraint) -> list[Want]:
    """The want, and for a text also the one that somebody else packs at greater length."""
    want = make_want(engine, constraint, 4)
    if not isinstance(constraint, str):
        return [want]
    longer = bytes((0xD9, len(constraint))) + constraint.encode()
    assert msgspec.msgpack.decode(longer) == constraint
    return [want, keyed_want(want.kind, longer, 4)]


@pytest.mark.parametrize("engine", CASES)
@given(steps=STEPS)
def test_an_event_goes_to_every_unit_that_has_a_row(engine: str, steps: list[tuple[int, int]]) -> None:
    """DST-05, PPP-06: through rows that come and go in any order, the same want packed in two ways among them."""
    wants, rows = UnitWants(KINDS.index(engine), WIDTH), dict[tuple[bytes, int], Constraint]()
    known = [(want, constraint) for constraint, _ in CASES[engine] for want in packings(engine, constraint)]
    for at, bit in steps:
        want, constraint = known[at % len(known)]
        if (want.key, bit) in rows:
            del rows[want.key, bit]
            wants.remove(want, bit)
        else:
            rows[want.key, bit] = constraint
            wants.add(want, bit)
        for asked, event in CASES[engine]:
            expected = 0
            for (_, place), held in rows.items():
                expected |= place if held == asked else 0
            assert wants.engine.destinations(event) == expected
