"""`covers` is never wrongly true, and exact for conjunctions of plain leaves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.condition.condition_strategies import attributes, conditions
from veena import matching
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.cover import covers
from veena.matching.condition.formula import All, Any, EqualTo, Formula, InRange, OneOf, Presence
from veena.matching.condition.formula_merge import admits
from veena.matching.condition.normal_form import normal_form
from veena.matching.condition.selector_parser import parse_selector
from veena.matching.condition.tree import Attributes, Condition, Conjunction, Disjunction, Number, Scalar, evaluate


def test_never_wrongly_true() -> None:
    """AGG-07: no event that the narrow one wants may miss the wide one."""
    wanted = 0

    @settings(max_examples=300)
    @given(conditions, conditions, st.lists(attributes, min_size=10, max_size=20))
    def no_event_is_missed(wide: Condition, narrow: Condition, events: list[Attributes]) -> None:
        nonlocal wanted
        if covers(normal_form(wide), normal_form(narrow)):
            for event in events:
                if evaluate(narrow, event) is True:
                    wanted += 1
                    assert evaluate(wide, event) is True

    no_event_is_missed()
    assert wanted > 10, "hardly any generated event is wanted by a covered condition: the test shows nothing"


@settings(max_examples=200)
@given(conditions, conditions)
def test_parts_are_covered_by_alternatives_and_cover_conjunctions(first: Condition, second: Condition) -> None:
    """AGG-07: the aggregate, a disjunction, covers each profile in it, and a profile what narrows it further."""
    either, both = Disjunction((first, second)), Conjunction((first, second))
    assert covers(normal_form(first), normal_form(first))
    assert covers(normal_form(either), normal_form(first))
    assert covers(normal_form(first), normal_form(both))


bounds: st.SearchStrategy[Number | None] = st.sampled_from([None, 0, 1, 2, 3])


def plain_leaf(name: str) -> st.SearchStrategy[Formula]:
    return st.one_of(
        st.builds(InRange, st.just(name), bounds, bounds, st.booleans(), st.booleans()).filter(is_bounded),
        st.builds(EqualTo, st.just(name), st.sampled_from([0, 1, 2, 3, "a", "b", True])),
        st.builds(OneOf, st.just(name), st.sampled_from([(0, 1), (1, 3), ("a", "b"), (True, False), (0, 1, 2, 3)])),
        st.builds(Presence, st.just(name), st.booleans()),
    )


def is_bounded(leaf: InRange) -> bool:
    """Ranges as the normal form makes them: some bound, and room between two."""
    if leaf.low is None or leaf.high is None:
        return leaf.low is not None or leaf.high is not None
    return leaf.low < leaf.high


conjunctions = st.lists(st.one_of(plain_leaf("x"), plain_leaf("y")), max_size=4).map(lambda parts: All(tuple(parts)))

#: One value in every cell that bounds at 0 to 3 can tell apart, and one of each other kind.
CELLS: tuple[Scalar | None, ...] = (None, -1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 4, "a", "b", "c", True, False)


def accepted(formula: All, name: str) -> list[int]:
    """The cells, by number, that all leaves on this property take."""
    return [number for number, value in enumerate(CELLS) if all(cell_fits(part, name, value) for part in formula.parts)]


def cell_fits(leaf: Formula, name: str, value: Scalar | None) -> bool:
    assert isinstance(leaf, EqualTo | OneOf | InRange | Presence)
    if leaf.name != name:
        return True
    if isinstance(leaf, Presence):
        return (value is not None) == leaf.present
    return value is not None and admits(leaf, value)


@settings(max_examples=500)
@given(conjunctions, conjunctions)
def test_exact_for_conjunctions(wide: All, narrow: All) -> None:
    """AGG-07: yes if and only if nothing is in the narrow one and out of the wide one."""
    cells = {name: (accepted(narrow, name), accepted(wide, name)) for name in "xy"}
    nothing = any(not wanted for wanted, _ in cells.values())
    expected = nothing or all(cell in taken for wanted, taken in cells.values() for cell in wanted)
    assert covers(wide, narrow) is expected


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("", "x = 1", True),
        ("x = 1", "", False),
        ("x > 10", "x > 20 AND y = 'a'", True),
        ("x > 20", "x > 10", False),
        ("x > 10", "x > 10.0", True),
        ("x >= 9007199254740993", "x > 9007199254740992.0", False),
        ("x > 9007199254740992.0", "x >= 9007199254740993", True),
        ("sym LIKE 'IB%'", "sym = 'IBM'", True),
        ("sym LIKE 'IB%'", "sym IN ('IBM', 'SUN')", False),
        ("x / 2 = 2", "x = 5", False),
        ("x + y > 3", "x + y > 3 AND z", True),
        ("x + y > 3", "x + y > 4", False),
        ("x = 1 OR x = 2", "x = 2", True),
        ("x < 5 OR x > 9", "x IN (1, 10)", True),
        ("x IS NOT NULL", "x LIKE 'a%'", True),
        ("x IS NOT NULL", "NOT x = 3", True),
        ("x IS NOT NULL", "y = 3", False),
        ("x <> 3", "x = 'a'", False),
        ("x = 'a'", "1 = 2", True),
        ("x = 1", "x = TRUE", False),
        ("a OR b", "(a AND c) OR (b AND c)", True),
    ],
)
def test_examples(wide: str, narrow: str, expected: bool) -> None:
    assert covers(normal_form(parse_selector(wide)), normal_form(parse_selector(narrow))) is expected


def test_the_two_languages_meet() -> None:
    """TRD-09: numbers are compared alike in both."""
    assert covers(normal_form(parse_selector("x > 1")), normal_form(parse_constraint("x > 2 and exist y")))


def test_a_question_too_large_is_answered_no() -> None:
    wide = Any(tuple(All((EqualTo(f"a{n}", n), EqualTo("z", n))) for n in range(300)))
    narrow = Any(tuple(All((EqualTo(f"a{n}", n), EqualTo("z", n))) for n in reversed(range(300))))
    assert covers(wide, Any(narrow.parts[-2:]))
    assert not covers(wide, narrow)


def test_a_question_that_is_too_large_is_not_begun() -> None:
    """AGG-07: of two long selectors none is said to cover the other, although one does; short ones are answered."""

    def any_of(count: int) -> tuple[str, str]:
        return "t", " OR ".join(f"p{at} LIKE '%x{at}%'" for at in range(count))

    assert matching.covers("selector", any_of(60), any_of(50))
    assert not matching.covers("selector", any_of(400), any_of(390))
