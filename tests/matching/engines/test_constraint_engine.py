"""The constraint engine against a plain scan, and what of an event a constraint can see."""

from __future__ import annotations

import math
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.errors import InvalidConstraint
from veena.event import Event
from veena.matching import covers, create, from_snapshot
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.tree import evaluate
from veena.matching.engines.constraint import ConstraintEngine, constraint_attributes

NAMES = ["a", "b", "$type_name"]
LITERALS = ["0", "1", "2.5", "9007199254740993", "'x'", "'xy'", "'é'", "TRUE", "FALSE"]
VALUES: list[object] = [
    None, True, False, 0, 1, 2.5, math.nan, 2**53, 2**53 + 1, 10**400, "x", "xy", "axyb", "é", b"x", (1, 2), ("x", 1),
]  # fmt: skip

names = st.sampled_from(NAMES)
literals = st.sampled_from(LITERALS)
terms = st.one_of(
    st.builds("{} {} {}".format, names, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), literals),
    st.builds("{} ~ {}".format, st.sampled_from(["'x'", "'é'"]), names),
    st.builds("{} in {}".format, st.sampled_from(["1", "'x'"]), names),
    st.builds("exist {}".format, names),
    st.builds("not exist {}".format, names),
    st.builds("{} + {} > {}".format, names, names, st.sampled_from(["0", "1", "3.5"])),
    st.builds("not ({} == {})".format, names, literals),
)
constraints = st.one_of(
    terms,
    st.lists(terms, min_size=2, max_size=4).map(" and ".join),
    st.lists(terms, min_size=2, max_size=4).map(" or ".join),
    st.builds("({} or {}) and {}".format, terms, terms, terms),
    st.just(""),
)


def _parses(text: str) -> bool:
    try:
        parse_constraint(text)
    except InvalidConstraint:
        return False
    return True


properties = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(VALUES), max_size=2)
headers = st.dictionaries(st.just("type_name"), st.sampled_from(["x", "xy"]))
events = st.builds(lambda given, header: Event(properties=given, headers=header), properties, headers)
profiles = st.dictionaries(
    st.integers(0, 20),
    st.tuples(constraints.filter(_parses), st.integers(0, 40).map(lambda bit: 1 << bit)),
    max_size=12,
)


@settings(max_examples=150)
@given(profiles, profiles, st.lists(events, min_size=1, max_size=4))
def test_always_the_answer_of_a_scan(
    first: dict[int, tuple[str, int]], then: dict[int, tuple[str, int]], asked: list[Event]
) -> None:
    """MAT-02, MAT-03, TRD-09: profiles added, replaced and removed, judged as the text says."""
    engine = ConstraintEngine()
    for profile_id, (text, destination) in [*first.items(), *then.items()]:
        engine.add(profile_id, text, destination)
    held = first | then
    for profile_id in list(held)[1::3]:
        engine.remove(profile_id)
        del held[profile_id]
    again = cast("ConstraintEngine", from_snapshot(engine.snapshot()))
    for event in asked:
        attributes = constraint_attributes(event)
        expected = [i for i in sorted(held) if evaluate(parse_constraint(held[i][0]), attributes) is True]
        mask = 0
        for profile_id in expected:
            mask |= held[profile_id][1]
        for either in (engine, again):
            assert either.match(event) == expected
            assert either.destinations(event) == mask


def test_the_fixed_header_and_the_filterable_body_are_seen_and_nothing_else() -> None:
    """DIC-08: a constraint that names something of the remainder body never matches."""
    engine = create("constraint")
    engine.add(1, "$type_name == 'Steering' and load > 0.5", 1)
    engine.add(2, "$domain_name == 'oil' and $event_name == 'e1'", 2)
    engine.add(3, "body == 'secret' or exist body or secret == 1", 4)
    engine.add(4, "not exist other", 8)
    event = Event(
        properties={"load": 0.75},
        headers={"type_name": "Steering", "$domain_name": "oil", "event_name": "e1", "other": 1},
        body=b"secret",
    )
    assert engine.match(event) == [1, 2, 4]
    assert engine.destinations(event) == 11
    assert engine.match(Event(properties={"load": 0.5}, headers={"type_name": "Steering"})) == [4]
    assert "load" in engine.explain(1, Event(headers={"type_name": "Steering"}))


def test_what_is_no_text_is_refused() -> None:
    engine = create("constraint")
    for bad in (5, ("t", "a == 1")):
        with pytest.raises(InvalidConstraint):
            engine.add(1, bad, 1)
    with pytest.raises(InvalidConstraint):
        engine.add(1, "a = 1", 1)
    assert len(engine) == 0


def test_covering() -> None:
    assert covers("constraint", "a > 1", "a > 2 and b == 'x'")
    assert not covers("constraint", "a > 2", "a > 1")
