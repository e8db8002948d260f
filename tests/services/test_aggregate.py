"""The aggregate is the disjunction of its members' constraints: exact, incremental, as short as covering allows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena import Event, matching
from veena.errors import InvalidConstraint
from veena.matching.cover import MAX_TEXT
from veena.services.aggregate import Aggregate, Change, within

_NUMBERS = st.sampled_from(["0", "1", "2", "3.5"])
_TEXTS = st.sampled_from(["'a'", "'b'", "'it\\'s'"])

_TYPES = st.sampled_from(["'Monitoring'", "'Steering'"])


@st.composite
def constraints(draw: st.DrawFn, depth: int = 2) -> str:
    name = draw(st.sampled_from(["step", "mean", "site"]))
    kind = draw(st.integers(0, 7 if depth else 4))
    if kind == 0:
        return f"{name} {draw(st.sampled_from(['==', '!=', '<', '<=', '>', '>=']))} {draw(_NUMBERS)}"
    if kind == 1:
        return f"{name} in ({draw(_TEXTS)}, {draw(_TEXTS)})"
    if kind == 2:
        return f"$type_name == {draw(_TYPES)}"
    if kind == 3:
        return draw(st.sampled_from(["", " ", "TRUE", "FALSE", f"exist {name}"]))
    if kind == 4:
        return f"{draw(_TEXTS)} ~ {name}"
    if kind == 5:
        return f"not ({draw(constraints(depth=depth - 1)).strip() or 'TRUE'})"
    joint = "and" if kind == 6 else "or"
    sides = [draw(constraints(depth=depth - 1)).strip() or "TRUE" for _ in range(2)]
    return f"({sides[0]}) {joint} ({sides[1]})"


_values = st.sampled_from([0, 1, 2, 3.5, "a", "b", "it's", True])
_events = st.builds(
    lambda properties, kind, domain: Event(
        properties=properties, headers={"domain_name": domain, "type_name": kind, "event_name": "x"}
    ),
    st.dictionaries(st.sampled_from(["step", "mean", "site"]), _values),
    st.sampled_from(["Monitoring", "Steering"]),
    st.sampled_from(["heat", "heat", "oil"]),
)
_steps = st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), constraints())), max_size=14)


def is_true(text: str, event: Event) -> bool:
    engine = matching.create("constraint")
    engine.add(1, text, 0)
    return bool(engine.match(event))


@settings(max_examples=150, deadline=None)
@given(_steps, st.lists(_events, min_size=1, max_size=5))
def test_it_is_the_disjunction_after_any_history(steps: list[tuple[int, str | None]], events: list[Event]) -> None:
    """AGG-07, AMB-35: no event lost, none relayed that no one wants; and the changes told add up to what stands."""
    aggregate, wanted = Aggregate("heat"), dict[str, str]()
    told: dict[str, None] = {}
    for number, constraint in steps:
        member = f"m{number}"
        if constraint is None:
            wanted.pop(member, None)
            change = aggregate.remove(member)
        else:
            wanted[member] = constraint
            change = aggregate.add(member, constraint)
        if change is not None:
            assert change.added or change.dropped
            told.update(dict.fromkeys(change.added))
            for text in change.dropped:
                del told[text]
        assert sorted(told) == sorted(aggregate.texts)
    for event in events:
        brute = any(is_true(within("heat", constraint), event) for constraint in wanted.values())
        assert any(is_true(text, event) for text in aggregate.texts) is brute


@settings(max_examples=150, deadline=None)
@given(st.lists(constraints(), min_size=1, max_size=6))
def test_brokers_see_that_it_covers_its_members(wanted: list[str]) -> None:
    """AGG-01, DIS-15: so the members' own subscriptions are not told outside; only texts of unusual shape may be."""
    aggregate = Aggregate("heat")
    for number, constraint in enumerate(wanted):
        aggregate.add(f"m{number}", constraint)
    for constraint in wanted:
        narrow = within("heat", constraint)
        assert any(matching.covers("constraint", text, narrow) for text in aggregate.texts), (aggregate.texts, narrow)


def test_what_is_covered_changes_nothing() -> None:
    """AGG-06, DIS-22: adding a consumer costs one change at the remote side, none when it is covered already."""
    aggregate = Aggregate("heat")
    first = aggregate.add("u1", "step > 3")
    assert first == Change(("$domain_name == 'heat' and ((step > 3))",), ())
    assert aggregate.add("u2", "step > 5") is None
    assert aggregate.add("u3", "step > 3") is None
    wider = aggregate.add("u4", "mean < 10")
    assert wider is not None and wider.dropped == first.added and len(wider.added) == 1
    assert aggregate.add("u5", "step in (4, 5)") is None and aggregate.add("u6", "step > 4 or mean < 2") is None
    assert (len(aggregate), aggregate.distinct, aggregate.told, len(aggregate.texts)) == (6, 5, 2, 1)


def test_who_leaves_takes_away_what_was_wanted_for_its_sake() -> None:
    """AGG-07: removal of a consumer shrinks it, and what was covered by it comes back."""
    aggregate = Aggregate("heat")
    aggregate.add("u1", "step > 3")
    aggregate.add("u2", "step > 5")
    aggregate.add("u3", "step > 5 and mean < 1")
    assert aggregate.remove("u3") is None
    assert aggregate.remove("u1") == Change(
        ("$domain_name == 'heat' and ((step > 5))",), ("$domain_name == 'heat' and ((step > 3))",)
    )
    assert aggregate.remove("u1") is None, "it has left already"
    assert aggregate.remove("u2") == Change((), ("$domain_name == 'heat' and ((step > 5))",))
    assert not aggregate.texts and len(aggregate) == 0


def test_a_member_that_wants_everything_is_the_aggregate() -> None:
    aggregate = Aggregate("it's")
    aggregate.add("u1", "step > 3")
    change = aggregate.add("u2", "")
    assert change is not None and aggregate.texts == ("$domain_name == 'it\\'s'",)
    assert aggregate.add("u2", "step > 4") is not None and "step > 3" in aggregate.texts[0]


def test_a_wrong_constraint_changes_nothing() -> None:
    aggregate = Aggregate("heat")
    aggregate.add("u1", "step > 3")
    with pytest.raises(InvalidConstraint) as caught:
        aggregate.add("u1", "step > ")
    assert caught.value.position == 7
    assert aggregate.texts == ("$domain_name == 'heat' and ((step > 3))",)


def test_a_long_one_is_told_in_texts_that_brokers_compare() -> None:
    """AGG-07: beyond the length that covering looks at, each text would cover nobody."""
    aggregate = Aggregate("heat")
    wanted = [f"site == 'site number {number}' and step > {number}" for number in range(120)]
    for number, constraint in enumerate(wanted):
        aggregate.add(f"m{number}", constraint)
    assert 2 < len(aggregate.texts) < 10
    assert all(len(text) <= MAX_TEXT for text in aggregate.texts)
    for constraint in wanted[::7]:
        narrow = within("heat", constraint)
        assert any(matching.covers("constraint", text, narrow) for text in aggregate.texts)
    event = Event(properties={"site": "site number 7", "step": 8}, headers={"domain_name": "heat"})
    assert any(is_true(text, event) for text in aggregate.texts)
    for number in range(120):
        aggregate.remove(f"m{number}")
    assert not aggregate.texts


@pytest.mark.parametrize(
    ("overlap", "copies", "matches"),
    [(0, 300, 1800), (25, 250, 1650), (50, 200, 1500), (75, 150, 1350), (100, 100, 600)],
)
def test_copies_and_matching_by_overlap(overlap: int, copies: int, matches: int) -> None:
    """AGG-04, AGG-05: three users with windows of 100 of 300 values; alone they get 300 copies, for 900 comparisons.

    With the aggregate each event is compared with its parts, and what crosses again with each user's constraint.
    """
    step = 100 - overlap
    wishes = [f"slot >= {user * step} and slot < {user * step + 100}" for user in range(3)]
    aggregate = Aggregate("heat")
    for number, wish in enumerate(wishes):
        aggregate.add(f"u{number}", wish)
    events = [Event(properties={"slot": slot}, headers={"domain_name": "heat"}) for slot in range(300)]
    (text,) = aggregate.texts
    remote, local = matching.create("constraint"), matching.create("constraint")
    remote.add(1, text, 0)
    for number, wish in enumerate(wishes):
        local.add(number, within("heat", wish), 0)
    crossed = [event for event in events if remote.match(event)]
    assert len(crossed) == copies
    assert sum(len(local.match(event)) for event in crossed) == 300, "every user gets all of its own"
    assert len(events) * aggregate.told + len(crossed) * len(wishes) == matches
