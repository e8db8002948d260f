"""The parts of the index, each against the plain meaning of what it holds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from veena.matching.condition.formula import All, Any, EqualTo, Formula, InRange, OneOf, Other, Presence
from veena.matching.condition.formula_merge import admits
from veena.matching.condition.like import MAX_LIKE_TEXT
from veena.matching.condition.normal_form import normal_form
from veena.matching.condition.selector_parser import parse_selector
from veena.matching.condition.tree import Attribute, Like, Literal
from veena.matching.index.bitmap import PIECE, Bitmap
from veena.matching.index.features import Features, doubles_around
from veena.matching.index.index import OWN_TABLES, Index, Scope, access_to
from veena.matching.index.residual import Origin, compile_formula
from veena.matching.index.rows import (
    MAX_ROW_LEAVES,
    MAX_ROWS,
    NUMBER,
    TEXT,
    access_key,
    formula_of,
    like_prefix,
    prefix_key,
    prefix_length,
    range_test,
    rows_of,
)
from veena.matching.index.segments import MAX_SEGMENT, Access, Segment, Table

BIG = 2**53
edges = st.sampled_from(
    [0, 1, -1, BIG, BIG + 1, BIG + 2, BIG + 3, -BIG - 1, -BIG - 3, 2**64, 2**64 + 1, 10**400, -(10**400), 1.5, -0.0,
     5e-324, 1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, float(BIG), float(2**64)]
)  # fmt: skip
numbers = edges | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)


@settings(max_examples=400)
@given(st.none() | numbers, st.none() | numbers, st.booleans(), st.booleans(), numbers)
@example(BIG + 1, None, False, False, BIG + 1)
@example(BIG + 1, None, True, False, BIG + 2)
@example(None, BIG + 1, False, True, float(BIG))
@example(float(BIG), None, True, False, BIG + 1)
@example(None, float(-BIG), False, True, -BIG - 1)
@example(math.inf, None, True, False, math.inf)
@example(10**400, None, False, False, math.inf)
@example(None, 1.7976931348623157e308, False, False, 10**400)
def test_ranges_in_doubles_say_what_the_numbers_say(
    low: float | None, high: float | None, low_open: bool, high_open: bool, value: float
) -> None:
    """MAT-22: exact beyond 2**53 too; a bound that is no double is widened and marked for a second judgement."""
    leaf = InRange("x", low, high, low_open and low is not None, high_open and high is not None)
    test, is_exact = range_test(leaf)
    below, above = doubles_around(value)
    passes = test.low <= below and -test.high <= -above
    if is_exact:
        assert passes == admits(leaf, value)
    else:
        assert passes or not admits(leaf, value)


@given(st.floats() | st.integers())
def test_a_number_lies_between_its_doubles(value: float) -> None:
    below, above = doubles_around(value)
    if not math.isnan(value):
        assert below <= value <= above
        assert below == above or math.nextafter(below, math.inf) == above


leaves: st.SearchStrategy[Formula] = st.one_of(
    st.builds(EqualTo, st.sampled_from("abc"), st.sampled_from([True, 1, 2.0, "x", "y", BIG + 1])),
    st.builds(OneOf, st.sampled_from("abc"), st.sampled_from([("x", "y"), (1, 2), tuple(range(100))])),
    st.builds(
        InRange,
        st.sampled_from("abc"),
        st.sampled_from([None, 0, 1.5]),
        st.sampled_from([None, 1, 3, BIG + 1]),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(Presence, st.sampled_from("abc"), st.booleans()),
    st.builds(
        lambda name, pattern, negated: Other(Like(Attribute(name), Literal(pattern)), negated),
        st.sampled_from("abc"),
        st.sampled_from(["x%", "%y", "_"]),
        st.booleans(),
    ),
)
formulas: st.SearchStrategy[Formula] = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: All(tuple(parts)))
        | st.lists(inner, max_size=4).map(lambda parts: Any(tuple(parts)))
    ),
    max_leaves=12,
)
attributes = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from([None, True, 0, 1, 1.0, 2, 50, BIG + 1, math.nan, "x", "y", "xy", b"x"])
)


@settings(max_examples=300)
@given(formulas, st.lists(attributes, min_size=1, max_size=5))
def test_the_rows_of_a_formula_are_true_when_it_is(formula: Formula, asked: list[Mapping[str, object]]) -> None:
    """MAT-22: by closures, by rows, and by the index that holds the rows."""
    rows = rows_of(formula)
    assert len(rows) <= MAX_ROWS
    index, scope = Index(_no_recall), Scope()
    index.place(0, scope, rows, "")
    check = compile_formula(formula)
    rows_check = compile_formula(Any(tuple(formula_of(row) for row in rows)))
    for given_attributes in asked:
        expected = check(given_attributes)
        assert rows_check(given_attributes) == expected
        assert bool(_found(index, scope, given_attributes)) == expected
    index.withdraw(0, scope)
    assert not index.tables
    assert not scope.access
    assert scope.open.is_empty
    assert len(index.rests) == 0
    assert sum(index.features.counts) == 1


def _no_recall(origin: Origin) -> tuple[Formula, ...]:
    raise AssertionError("nothing was restored from a snapshot")


def _found(index: Index, scope: Scope, given_attributes: Mapping[str, object]) -> list[int]:
    index.see(given_attributes)
    try:
        found = [index.owners(segment, given_attributes) for segment in index.met(scope, given_attributes)]
    finally:
        index.forget()
    return [owner for owners in found if owners is not None for owner in owners.tolist()]


def test_a_formula_that_would_take_too_many_rows_stays_a_formula() -> None:
    """MAT-22: ten times (a OR b) are not a thousand rows."""
    pairs = [Any((EqualTo(f"p{at}", 1), EqualTo(f"q{at}", 1))) for at in range(10)]
    rows = rows_of(All(tuple(pairs)))
    assert len(rows) == MAX_ROWS
    assert all(len(row.rest) == 4 for row in rows)
    assert rows_of(OneOf("x", tuple(range(MAX_ROWS + 1))))[0].rest == (OneOf("x", tuple(range(MAX_ROWS + 1))),)
    assert rows_of(Any(())) == []


def test_many_branches_keep_their_access_where_they_are_not_multiplied_out() -> None:
    """MAT-22, AGG-01: one constraint for many applications is looked up by their names, whatever it says more."""
    inner = Any(tuple(EqualTo("kind", f"k{number}") for number in range(3)))
    rows = rows_of(Any(tuple(All((EqualTo("name", f"n{number}"), inner)) for number in range(MAX_ROWS))))
    assert len(rows) == MAX_ROWS
    assert all(row.equalities for row in rows)


def leaf_count(formula: Formula) -> int:
    return sum(map(leaf_count, formula.parts)) if isinstance(formula, All | Any) else 1


@pytest.mark.parametrize(
    "text",
    [
        "NOT (" + " OR ".join(f"(p{2 * at}=1 AND p{2 * at + 1}=2)" for at in range(240)) + ")",
        " AND ".join(f"(p{2 * at}=1 OR p{2 * at + 1}=2)" for at in range(240)),
        " AND ".join(f"(p{2 * at}=1 OR p{2 * at + 1}>2)" for at in range(40)),
        " OR ".join(
            f"(a{at} > 1 AND " + " AND ".join(f"(p{2 * i}=1 OR p{2 * i + 1}={at})" for i in range(10)) + ")"
            for at in range(20)
        ),
    ],
)
def test_rows_that_were_multiplied_out_have_few_leaves(text: str) -> None:
    """MAT-22: what one text can make an index hold is of the size of the text, not a multiple of it."""
    formula = normal_form(parse_selector(text))
    rows = rows_of(formula)
    total = sum(leaf_count(formula_of(row)) for row in rows)
    assert total <= max(MAX_ROW_LEAVES, leaf_count(formula))


def test_what_no_column_can_test_gets_no_rows_of_its_own() -> None:
    """MAT-22: a NOT of an equality is judged in the rest anyway, so one row does."""
    rows = rows_of(normal_form(parse_selector("NOT (a = 1 AND b = 2) AND NOT (c = 1 AND d = 2)")))
    assert [len(row.rest) for row in rows] == [2]
    assert len(rows_of(normal_form(parse_selector("a > 1 AND (b LIKE 'x%' OR c LIKE 'y%')")))) == 2


def test_a_prefix_gives_no_access_to_a_text_too_long_for_like() -> None:
    """MAT-22: the pattern that nothing but % follows is not asked again, so the lookup must know."""
    index, scope = Index(_no_recall), Scope()
    index.place(0, scope, rows_of(normal_form(parse_selector("x LIKE 'ab%'"))), "")
    assert _found(index, scope, {"x": "ab".ljust(MAX_LIKE_TEXT, "c")}) == [0]
    assert _found(index, scope, {"x": "ab".ljust(MAX_LIKE_TEXT + 1, "c")}) == []


def test_truth_values_are_looked_up_apart_from_numbers() -> None:
    assert access_key(True) != access_key(1)
    assert access_key(1) == access_key(1.0)


@pytest.mark.parametrize(
    ("pattern", "escape", "expected"),
    [
        ("IB%", None, ("IB", True)),
        ("IB%%", None, ("IB", False)),
        ("IB_", None, ("IB", False)),
        ("%", None, ("", True)),
        ("abcde%", None, ("abcd", False)),
        ("a!%%", "!", ("a%", True)),
        ("!_b", "!", ("_b", False)),
        ("", None, ("", False)),
    ],
)
def test_the_beginning_of_a_pattern_gives_access(pattern: str, escape: str | None, expected: tuple[str, bool]) -> None:
    term = Like(Attribute("s"), Literal(pattern), None if escape is None else Literal(escape))
    assert like_prefix(term) == expected


def test_a_row_hangs_under_its_rarest_value() -> None:
    """The access predicate is the one that fewest rows have, so an event with the common value meets few rows."""
    index, scope = Index(_no_recall), Scope()
    for owner in range(100):
        row = rows_of(All((EqualTo("common", "yes"), EqualTo("rare", f"v{owner}"))))
        index.place(owner, scope, row, "")
    assert access_to(scope, "common").rows("yes") <= 1
    assert _found(index, scope, {"common": "yes", "rare": "v57"}) == [57]


def test_kinds_of_rows_under_one_value_are_bounded() -> None:
    index, scope = Index(_no_recall), Scope()
    for owner in range(200):
        index.place(owner, scope, rows_of(All((EqualTo("s", "x"), InRange(f"p{owner}", 0, None, False, False)))), "")
    kinds = [segment.table for segment in access_to(scope, "s").chain("x")]
    assert len(kinds) <= OWN_TABLES + 2
    assert sorted(_found(index, scope, {"s": "x", "p7": 1, "p150": 0, "p151": -1})) == [7, 150]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(0, 300))
def test_bitmap_candidates_hold_every_row_that_passes(seed: int, ranges: int, writes: int) -> None:
    """Whatever is written over, the candidates among covered rows miss no row that passes."""
    rng = np.random.default_rng(seed)
    count = 1000
    bounds = np.round(rng.uniform(-5, 5, (2 * ranges, count)), 1)
    bounds[0, :5] = [-math.inf, math.inf, 0.0, -0.0, 1e308]
    bitmap = Bitmap(bounds, count, count)
    bitmap.cover(bounds, count)
    assert bitmap.covered == count
    for slot in rng.integers(0, count, writes).tolist():
        bounds[:, slot] = np.round(rng.uniform(-9, 9, 2 * ranges), 1)
        bitmap.write(slot, bounds[:, slot])
    for start, end in ((0, count), (64, count), (128, 500), (960, count)):
        values = np.round(rng.uniform(-6, 6, 2 * ranges), 1)
        passing = np.logical_and.reduce(bounds <= values[:, None]).nonzero()[0]
        wanted = [slot for slot in passing.tolist() if start <= slot < end]
        candidates = bitmap.candidates(values.tolist(), start, end).tolist()
        assert candidates == sorted(set(candidates))
        assert all(start <= slot < end for slot in candidates)
        assert not set(wanted) - set(candidates)
    assert bitmap.candidates([math.inf] * (2 * ranges), 0, count).tolist() == list(range(count))


def test_a_bitmap_takes_in_rows_a_piece_at_a_time() -> None:
    """No add pays for more than a piece."""
    bounds = np.zeros((2, 3 * PIECE))
    bitmap = Bitmap(bounds, 3 * PIECE, 3 * PIECE)
    covered = []
    while bitmap.is_behind(3 * PIECE):
        bitmap.cover(bounds, 3 * PIECE)
        covered.append(bitmap.covered)
    assert covered == [PIECE, 2 * PIECE, 3 * PIECE]


KEYS = ["a", "b", 1, prefix_key("a"), prefix_key("ab"), prefix_key("b")]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(KEYS)), max_size=40))
def test_chains_are_found_by_their_keys_whether_one_or_many(steps: list[tuple[bool, object]]) -> None:
    """One key stands in the access itself, several in a dict: nobody sees the difference."""
    table, access = Table((1,), 1, False, False), Access("s")
    chains: dict[object, list[Segment]] = {}
    for comes, key in steps:
        chain = chains.setdefault(key, [])
        if comes:
            chain.insert(0, Segment(table, access, key))
            access.link(chain[0])
        elif chain:
            access.unlink(chain.pop(len(chain) // 2))
        if not chain:
            del chains[key]
        assert access.held() == list(chains)
        assert access.is_empty == (not chains)
        assert [list(access.chain(each)) for each in KEYS] == [chains.get(each, []) for each in KEYS]
        lengths = Counter(filter(None, map(prefix_length, chains)))
        assert (access.lengths or {}) == lengths


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=300))
def test_segments_keep_their_rows_while_they_move(steps: list[int]) -> None:
    """Rows of four segments that share the pages of one table, added and removed in any order."""
    table, access = Table((1,), 1, False, False), Access("s")
    segments = [Segment(table, access, at) for at in range(4)]
    held: list[list[int]] = [[] for _ in segments]
    for owner, at in enumerate(steps):
        segment, rows = segments[at], held[at]
        if len(rows) > 2 and owner % 3 == 0:
            slot = owner % len(rows)
            moved = segment.remove(slot)
            last = rows.pop()
            if slot < len(rows):
                rows[slot] = last
            assert moved == (last if slot < len(rows) else -1)
        else:
            assert segment.append(owner, (float(owner), -float(owner)), -1, ()) == len(rows)
            rows.append(owner)
    for segment, rows in zip(segments, held, strict=True):
        owners = segment.page.owners[segment.start : segment.start + segment.count]
        assert owners.tolist() == rows
        for slot, owner in enumerate(rows):
            assert segment.hits([float(owner), -float(owner)], 0, segment.count).tolist() == [slot]
            assert segment.find(owner) == slot


def test_a_large_segment_shrinks_and_grows_with_its_bitmap() -> None:
    """Rows stay findable while the columns are given back and taken again under a bitmap that stays."""
    table, access = Table((1, 2, 3, 4), 4, False, False), Access("s")
    segment = Segment(table, access, "v")
    rng = np.random.default_rng(11)
    rows: list[list[float]] = []

    def check() -> None:
        for values in rng.uniform(-2, 2, (4, 8)).tolist():
            expected = np.logical_and.reduce(np.array(rows) <= np.array(values), axis=1).nonzero()[0]
            assert segment.hits(values, 0, segment.count).tolist() == expected.tolist()

    for target in (20_000, 4_500, 12_000, 4_200, 30_000, 100):
        while len(rows) < target:
            rows.append(rng.uniform(-3, 3, 8).tolist())
            segment.append(len(rows), rows[-1], -1, ())
        while len(rows) > target:
            slot = len(rows) * 7 // 9
            segment.remove(slot)
            last = rows.pop()
            if slot < len(rows):
                rows[slot] = last
        assert (segment.bitmap is not None) == (target > 100)
        check()


def test_a_segment_never_exceeds_what_may_be_copied_at_once() -> None:
    """Growth copies at most `MAX_SEGMENT` rows; what is more goes to another segment of the chain."""
    index, scope = Index(_no_recall), Scope()
    row = rows_of(All(()))
    for owner in range(MAX_SEGMENT + 3):
        index.place(owner, scope, row, "")
    assert [segment.count for segment in scope.open.chain(None)] == [3, MAX_SEGMENT]
    for owner in (0, MAX_SEGMENT, MAX_SEGMENT + 1, MAX_SEGMENT + 2):
        index.withdraw(owner, scope)
    assert [segment.count for segment in scope.open.chain(None)] == [MAX_SEGMENT - 1]


def test_features_and_codes_are_given_back() -> None:
    features = Features()
    number = features.acquire("x", NUMBER)
    text = features.acquire("s", TEXT)
    code = features.acquire_code(text, "IBM")
    features.see({"x": 5, "s": "IBM", "y": 7})
    assert features.low[number] == features.high[number] == 5.0
    assert features.low[text] == code
    features.forget()
    assert math.isnan(features.low[number])
    features.see({"x": True, "s": "other"})
    assert math.isnan(features.low[number])
    assert math.isnan(features.low[text])
    features.forget()
    features.release_code(text, code)
    features.release(text)
    features.release(number)
    assert features.counts == [1, 0, 0]
    assert features.acquire("z", NUMBER) in {number, text}
