"""What an engine says of many events at once is what it says of each."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.matching.test_engine import LANGUAGES, NAMES
from veena import Event, matching
from veena.core.interest.recipient_engine import AddresseeEngine
from veena.matching.base.engine import Constraint
from veena.matching.index.engine import FEW_ALONE, MAX_CHECKS


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_batch_is_answered_as_its_events_are(name: str, data: st.DataObject) -> None:
    language = LANGUAGES[name]
    constraints = data.draw(st.lists(language.constraints, max_size=30))
    events = data.draw(st.lists(language.events, max_size=12))
    engine = matching.create(name)
    for number, constraint in enumerate(constraints):
        engine.add(number, constraint, 1 << number % 5)
    for number in data.draw(st.lists(st.integers(0, max(len(constraints) - 1, 0)), unique=True, max_size=8)):
        if number < len(constraints):
            engine.remove(number)
    assert engine.match_batch(events) == [engine.match(event) for event in events]
    assert engine.destinations_batch(events) == [engine.destinations(event) for event in events]


def test_addressees_of_a_batch() -> None:
    engine = AddresseeEngine()
    for number, client_id in enumerate(("ann", "bob", "ann")):
        engine.add(number, client_id, 1 << number)
    events = [Event(to=["ann"]), Event(), Event(to=["bob", "ann", "bob"]), Event(to=["eve"])]
    assert engine.match_batch(events) == [[0, 2], [], [0, 1, 2], []]
    assert engine.destinations_batch(events) == [0b101, 0, 0b111, 0]


def _selector(chance: Random) -> str:
    low = chance.randrange(90)
    term = chance.choice(
        [
            f"price BETWEEN {low} AND {low + 7.5}", f"size > {low * 10}", f"sym = 'S{chance.randrange(40)}'",
            f"sym LIKE 'S{chance.randrange(4)}%'", f"price + size > {low * 10}", "note IS NULL", "ok = TRUE", "ok",
            f"size = {low}", f"sym IN ('S1', 'S2', 'S{chance.randrange(40)}')", f"note <> '{chance.randrange(3)}'",
        ]
    )  # fmt: skip
    return term if chance.random() < 0.4 else f"{term} {chance.choice(('AND', 'OR'))} ({_selector(chance)})"


def _event(chance: Random) -> Event:
    values = {
        "price": chance.choice((chance.random() * 100, chance.randrange(100), None, "dear", float("nan"), 2**60 + 1)),
        "size": chance.choice((chance.randrange(1000), chance.randrange(100), True, float("inf"))),
        "sym": chance.choice((f"S{chance.randrange(40)}", f"S{chance.randrange(40)}", 3, False)),
        "note": chance.choice((None, "1", "2", b"2")),
        "ok": chance.choice((True, False, None, 1)),
    }
    shown = {name: value for name, value in values.items() if chance.random() < 0.85}
    return Event(topic=chance.choice(("a", "a", "a", "b", None)), properties=shown, priority=chance.randrange(10))


@pytest.mark.parametrize("profiles", [1, 3, FEW_ALONE, 40, 700])
@pytest.mark.parametrize("name", ["selector", "constraint"])
def test_many_constraints_against_many_events(name: str, profiles: int) -> None:
    """MAT-22: rows of many kinds under values, prefixes and none, with formulas and without."""
    chance = Random(profiles)
    engine = matching.create(name)
    for number in range(profiles):
        text = _selector(chance)
        constraint: Constraint = (chance.choice("ab"), text)
        if name == "constraint":
            constraint = f"price > {chance.randrange(100)} and size < {chance.randrange(1000)}"
            if number % 3 == 0:
                constraint = f"sym == 'S{chance.randrange(40)}' or $type_name == 'x'"
        elif number % 7 == 0 and profiles > 100:
            constraint = (constraint[0], f"JMSPriority > {chance.randrange(10)} AND {text}")  # type: ignore[index]
        engine.add(number, constraint, 1 << number % 40)
    for number in range(0, profiles, 5):
        if number % 2:
            engine.remove(number)
        else:
            engine.add(number, ("a", "price > 50") if name == "selector" else "price > 50", 1)
    events = [_event(chance) for _ in range(150)]
    assert engine.match_batch(events) == [engine.match(event) for event in events]
    assert engine.destinations_batch(events) == [engine.destinations(event) for event in events]


def test_closures_are_bounded() -> None:
    engine = matching.create("selector")
    topics = MAX_CHECKS // FEW_ALONE + 10
    for number in range(topics):
        engine.add(number, (f"t{number}", "price > 10"), 1)
    for _ in range(2):
        for number in range(0, topics, 7):
            assert engine.match(Event(topic=f"t{number}", properties={"price": 11})) == [number]
    for number in range(topics):
        assert engine.match(Event(topic=f"t{number}", properties={"price": 11})) == [number]
    assert len(engine._compiled) <= MAX_CHECKS // FEW_ALONE  # type: ignore[attr-defined]
