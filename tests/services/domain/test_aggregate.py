"""The aggregate is the disjunction of its members' constraints: exact, incremental, as short as covering allows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena import Event, matching
from veena.errors import InvalidConstraint
from veena.matching.condition.cover import MAX_TEXT
from veena.matching.condition.lexer import MAX_TEXT_LENGTH
from veena.matching.condition.parser import MAX_ARITHMETIC, MAX_NESTING
from veena.services.domain.aggregate import MAX_TOGETHER, Aggregate, Change, within

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
    st.sampled_from(["heat", "oil", "it's", "gas"]),
)
_applications = st.sampled_from(["heat", "oil", "it's"])
_steps = st.lists(st.tuples(_applications, st.integers(0, 4), st.one_of(st.none(), constraints())), max_size=14)


def is_true(text: str, event: Event) -> bool:
    engine = matching.create("constraint")
    engine.add(1, text, 0)
    return bool(engine.match(event))


@settings(max_examples=150)
@given(_steps, st.lists(_events, min_size=1, max_size=5))
def test_it_is_the_disjunction_after_any_history(steps: list[tuple[str, int, str | None]], events: list[Event]) -> None:
    """AGG-07, AMB-35: no event lost, none relayed that no one wants; and the changes told add up to what stands."""
    aggregate, wanted = Aggregate(), dict[tuple[str, str], str]()
    told: dict[str, None] = {}
    for application, number, constraint in steps:
        member = f"m{number}"
        if constraint is None:
            wanted.pop((application, member), None)
            change = aggregate.remove(application, member)
        else:
            wanted[application, member] = constraint
            change = aggregate.add(application, member, constraint)
        if change is not None:
            assert change.added or change.dropped
            told.update(dict.fromkeys(change.added))
            for text in change.dropped:
                del told[text]
        assert sorted(told) == sorted(aggregate.texts)
        assert len(aggregate) == len(wanted) and set(aggregate.applications) == {each for each, _ in wanted}
    for event in events:
        brute = any(is_true(within(application, each), event) for (application, _), each in wanted.items())
        assert any(is_true(text, event) for text in aggregate.texts) is brute


@settings(max_examples=150)
@given(st.lists(st.tuples(_applications, constraints()), min_size=1, max_size=6))
def test_brokers_see_that_it_covers_its_members(wanted: list[tuple[str, str]]) -> None:
    """AGG-01, DIS-15: so the members' own subscriptions are not told outside; only texts of unusual shape may be."""
    aggregate = Aggregate()
    for number, (application, constraint) in enumerate(wanted):
        aggregate.add(application, f"m{number}", constraint)
    assert len(aggregate.texts) == 1, "one for all applications of the domain"
    for application, constraint in wanted:
        narrow = within(application, constraint)
        assert matching.covers("constraint", aggregate.texts[0], narrow), (aggregate.texts, narrow)


def test_what_is_covered_changes_nothing() -> None:
    """AGG-06, DIS-22: adding a consumer costs one change at the remote side, none when it is covered already."""
    aggregate = Aggregate()
    first = aggregate.add("heat", "u1", "step > 3")
    assert first == Change(("$domain_name == 'heat' and ((step > 3))",), ())
    assert aggregate.add("heat", "u2", "step > 5") is None
    assert aggregate.add("heat", "u3", "step > 3") is None
    wider = aggregate.add("heat", "u4", "mean < 10")
    assert wider is not None and wider.dropped == first.added and len(wider.added) == 1
    assert (
        aggregate.add("heat", "u5", "step in (4, 5)") is None
        and aggregate.add("heat", "u6", "step > 4 or mean < 2") is None
    )
    assert (len(aggregate), aggregate.distinct, aggregate.told, len(aggregate.texts)) == (6, 5, 2, 1)


def test_who_leaves_takes_away_what_was_wanted_for_its_sake() -> None:
    """AGG-07: removal of a consumer shrinks it, and what was covered by it comes back."""
    aggregate = Aggregate()
    aggregate.add("heat", "u1", "step > 3")
    aggregate.add("heat", "u2", "step > 5")
    aggregate.add("heat", "u3", "step > 5 and mean < 1")
    assert aggregate.remove("heat", "u3") is None
    assert aggregate.remove("heat", "u1") == Change(
        ("$domain_name == 'heat' and ((step > 5))",), ("$domain_name == 'heat' and ((step > 3))",)
    )
    assert aggregate.remove("heat", "u1") is None, "it has left already"
    assert aggregate.remove("heat", "u2") == Change((), ("$domain_name == 'heat' and ((step > 5))",))
    assert not aggregate.texts and len(aggregate) == 0


def test_a_member_that_wants_everything_is_the_aggregate() -> None:
    aggregate = Aggregate()
    aggregate.add("it's", "u1", "step > 3")
    change = aggregate.add("it's", "u2", "")
    assert change is not None and aggregate.texts == ("$domain_name == 'it\\'s'",)
    assert aggregate.add("it's", "u2", "step > 4") is not None and "step > 3" in aggregate.texts[0]


def test_a_wrong_constraint_changes_nothing() -> None:
    aggregate = Aggregate()
    aggregate.add("heat", "u1", "step > 3")
    with pytest.raises(InvalidConstraint) as caught:
        aggregate.add("heat", "u1", "step > ")
    assert caught.value.position == 7
    assert aggregate.texts == ("$domain_name == 'heat' and ((step > 3))",)


DEEP = "(" * MAX_NESTING + "step > 3" + ")" * MAX_NESTING
LONG = f"site == '{'x' * (MAX_TEXT_LENGTH - 10)}'"


@pytest.mark.parametrize("constraint", [DEEP, LONG])
def test_a_wish_that_fits_alone_and_not_with_others_changes_nothing(constraint: str) -> None:
    """AGG-07: one member must not make the text of all unreadable."""
    aggregate = Aggregate()
    aggregate.add("heat", "u1", "step > 3")
    matching.create("constraint").add(1, constraint, 0)
    for application in ("heat", "oil"):
        with pytest.raises(InvalidConstraint):
            aggregate.add(application, "eve", constraint)
        assert (application, "eve") not in aggregate
    assert aggregate.texts == ("$domain_name == 'heat' and ((step > 3))",)


@pytest.mark.parametrize("applications", [1, 3])
def test_wishes_with_much_arithmetic_are_told_in_texts_that_brokers_read(applications: int) -> None:
    """AGG-07: a text has so many operators; joined wishes may have more, and are divided as those too long are."""
    aggregate, each = Aggregate(), MAX_ARITHMETIC // 2 - 1
    wanted = [(f"app{n % applications}", f"m{n}", f"step{' + mean' * each} > {n}") for n in range(4)]
    for wish in wanted:
        aggregate.add(*wish)
    assert len(aggregate) == 4 and 1 < len(aggregate.texts) <= 4
    for application, _, constraint in wanted:
        narrow = within(application, constraint)
        assert any(matching.covers("constraint", text, narrow) for text in aggregate.texts)
    for slot in range(5):
        event = Event(properties={"step": slot, "mean": 0}, headers={"domain_name": "app0"})
        brute = any(is_true(within(application, constraint), event) for application, _, constraint in wanted)
        assert any(is_true(text, event) for text in aggregate.texts) is brute
    for application, member, _ in wanted:
        aggregate.remove(application, member)
    assert not aggregate.texts


def test_a_wish_for_another_application_is_a_part_of_the_same_text() -> None:
    """AGG-01, AGG-06: one subscription a remote domain; each application has a part of its own, by its name."""
    aggregate = Aggregate()
    aggregate.add("oil", "u1", "step > 3")
    change = aggregate.add("heat", "u1", "")
    assert change == Change(
        ("($domain_name == 'heat') or ($domain_name == 'oil' and ((step > 3)))",),
        ("$domain_name == 'oil' and ((step > 3))",),
    )
    assert aggregate.add("oil", "u2", "step > 4") is None and aggregate.add("heat", "u2", "step > 4") is None
    assert aggregate.applications == ("heat", "oil") and ("oil", "u2") in aggregate and ("gas", "u2") not in aggregate
    assert aggregate.remove("oil", "u1") is not None and aggregate.remove("oil", "u1") is None
    assert aggregate.texts == ("($domain_name == 'heat') or ($domain_name == 'oil' and ((step > 4)))",)


def many_wishes(count: int) -> list[tuple[str, str, str]]:
    return [(f"app{number % 9}", f"m{number}", f"site == 'site number {number}'") for number in range(count)]


@pytest.mark.parametrize("applications", [1, 9])
def test_a_long_one_is_told_in_texts_that_brokers_compare(applications: int) -> None:
    """AGG-07: beyond the length that covering looks at, each text would cover nobody."""
    aggregate = Aggregate()
    wanted = [(f"app{number % applications}", f"site == 'site number {number}'") for number in range(180)]
    for number, (application, constraint) in enumerate(wanted):
        aggregate.add(application, f"m{number}", constraint)
    assert 2 < len(aggregate.texts) < 10
    assert all(len(text) <= MAX_TEXT for text in aggregate.texts)
    assert sum(map(len, aggregate.texts)) > 0.5 * MAX_TEXT * len(aggregate.texts), "they are not many for their length"
    for application, constraint in wanted[::7]:
        narrow = within(application, constraint)
        assert any(matching.covers("constraint", text, narrow) for text in aggregate.texts)
    event = Event(properties={"site": "site number 7"}, headers={"domain_name": wanted[7][0]})
    assert [is_true(text, event) for text in aggregate.texts].count(True) == 1
    for number, (application, _) in enumerate(wanted):
        aggregate.remove(application, f"m{number}")
    assert not aggregate.texts


def test_a_wish_more_changes_one_text_of_many() -> None:
    """AGG-06: seldom one is divided; and services that heard the same in another order tell the same."""
    one, other = Aggregate(), Aggregate()
    wishes = many_wishes(200)
    changes = [one.add(*wish) for wish in wishes]
    for wish in reversed(wishes):
        other.add(*wish)
    assert one.texts == other.texts and len(one.texts) > 4
    assert all(change is not None and len(change.dropped) <= 1 for change in changes)
    assert sum(len(change.added) > 1 for change in changes if change is not None) < len(one.texts)


def test_a_text_has_as_many_applications_as_indexes_and_digests_tell_apart() -> None:
    aggregate = Aggregate()
    for number in range(MAX_TOGETHER + 1):
        assert len(aggregate.texts) == (1 if number else 0)
        aggregate.add(str(number), "m", "")
    assert len(aggregate.texts) == 2


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
    aggregate = Aggregate()
    for number, wish in enumerate(wishes):
        aggregate.add("heat", f"u{number}", wish)
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
