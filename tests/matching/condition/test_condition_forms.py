"""The faster forms of a condition say what the interpreter says: closures, normal form, template, text."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.condition.condition_strategies import attributes, conditions, constraints, selectors
from veena.errors import InvalidConstraint
from veena.matching.condition.closures import compile_condition
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.explain import explain_condition, text_of
from veena.matching.condition.formula import All, Any, EqualTo, Formula, InRange, OneOf, Other, Presence
from veena.matching.condition.formula_merge import kind_of_value
from veena.matching.condition.lexer import lex
from veena.matching.condition.like import MAX_GAPPED_LIKES, MAX_LIKE_TEXT
from veena.matching.condition.normal_form import normal_form
from veena.matching.condition.selector_parser import parse_selector
from veena.matching.condition.tree import (
    Attribute,
    Attributes,
    Comparison,
    Condition,
    Literal,
    Not,
    Scalar,
    attribute_names,
    bound,
    evaluate,
)
from veena.matching.index.plan import plan_of, plan_of_words
from veena.matching.index.rows import formula_of, rows_of
from veena.matching.index.template import CONSTRAINT, SELECTOR, Language, Template, Templates, template

EXAMPLES = settings(max_examples=400)


def holds(formula: Formula, values: Attributes) -> bool:
    """What formula.py says in words, as directly as possible."""
    if isinstance(formula, All):
        return all(holds(part, values) for part in formula.parts)
    if isinstance(formula, Any):
        return any(holds(part, values) for part in formula.parts)
    if isinstance(formula, Other):
        return evaluate(formula.condition, values) is (not formula.negated)
    value = values.get(formula.name)
    if isinstance(formula, Presence):
        return (value is not None) == formula.present
    if not isinstance(value, str | bool | int | float):
        return False
    if isinstance(formula, InRange):
        return not isinstance(value, str | bool) and within(formula, value)
    allowed = (formula.value,) if isinstance(formula, EqualTo) else formula.values
    return any(kind_of_value(value) == kind_of_value(one) and value == one for one in allowed)


def within(leaf: InRange, value: float) -> bool:
    above = leaf.low is None or (value > leaf.low if leaf.low_open else value >= leaf.low)
    below = leaf.high is None or (value < leaf.high if leaf.high_open else value <= leaf.high)
    return above and below


@EXAMPLES
@given(conditions, attributes)
def test_normal_form_is_true_when_the_condition_is(condition: Condition, values: Attributes) -> None:
    """MAT-22: NULL, unlike kinds, NaN and huge numbers included."""
    assert holds(normal_form(condition), values) is (evaluate(condition, values) is True)


@EXAMPLES
@given(conditions, attributes)
def test_closures_answer_as_the_interpreter(condition: Condition, values: Attributes) -> None:
    verdict = evaluate(condition, values)
    assert compile_condition(condition, False)(values) is (verdict is True)
    assert compile_condition(condition, True)(values) is (verdict is False)
    assert evaluate(Not(condition), values) is (None if verdict is None else not verdict)


@EXAMPLES
@given(selectors)
def test_selectors_read_back_what_they_write(condition: Condition) -> None:
    assert parse_selector(text_of(condition)) == condition


@EXAMPLES
@given(constraints)
def test_constraints_read_back_what_they_write(condition: Condition) -> None:
    assert parse_constraint(text_of(condition, trader=True)) == condition


@EXAMPLES
@given(selectors, selectors)
def test_selector_templates_bind_to_what_the_parser_gives(first: Condition, second: Condition) -> None:
    check_templates(SELECTOR, first, second)


@EXAMPLES
@given(constraints, constraints)
def test_constraint_templates_bind_to_what_the_parser_gives(first: Condition, second: Condition) -> None:
    check_templates(CONSTRAINT, first, second)


@pytest.mark.parametrize(
    ("language", "text", "is_straight"),
    [
        (SELECTOR, "x = 'a' AND y BETWEEN 1 AND 2.5 AND (z > 3 OR s IS NULL OR s = 'b')", True),
        (SELECTOR, "x IS NOT NULL and y >= 0x10", True),
        (CONSTRAINT, "x == 'a' and (y <= 5 or y > 7)", True),
        (SELECTOR, "(x = 1)", False),
        (SELECTOR, "x = 1 OR y = 2", False),
        (SELECTOR, "x = 1 AND (y = 2 OR z = 3) AND (u = 4 OR v = 5)", False),
        (SELECTOR, "x > 1 + 2", False),
        (SELECTOR, "x = -1", False),
        (SELECTOR, "x > 'a'", False),
        (SELECTOR, "x BETWEEN 1 AND 'a'", False),
        (SELECTOR, "x BETWEEN 1", False),
        (SELECTOR, "x IS NOT", False),
        (SELECTOR, "x", False),
        (CONSTRAINT, "x < 'a'", False),
    ],
)
def test_straight_texts_are_planned_word_by_word(language: Language, text: str, is_straight: bool) -> None:
    """MAT-22: the plan without a tree is the one of the tree; what is rich, unusual or wrong is left to the parser."""
    constants = template(text, language)[1]
    words = lex(text, language.lexicon, constants)
    plan = plan_of_words(words, len(constants), language.meanings, language.joints)
    assert (plan is not None) is is_straight
    if plan is not None:
        planned = plan_of(language.parse(text), len(constants))
        assert planned is not None
        assert repr(plan.rows(constants)) == repr(planned.rows(constants))
        assert plan.rows(constants) == rows_of(normal_form(language.parse(text)))


def check_templates(language: Language, first: Condition, second: Condition) -> None:
    templates = Templates(language)
    for condition in (first, second, first):
        text = text_of(condition, trader=language is CONSTRAINT)
        assert repr(templates.rows(text)) == repr(rows_of(normal_form(language.parse(text))))


#: Terms as subscribers write them, `n` for a number and `t` for a text; joined, they are the shapes that have plans.
TERMS = (
    *(
        "x = t",
        "y = n",
        "t = z",
        "z = -n",
        "x <> t",
        "b",
        "NOT b",
        "c = TRUE",
        "y IN (n, n)",
        "x IN (t)",
        "y IN (-n, n, -n)",
    ),
    *("y > n", "y <= n", "y >= -n", "z < n", "n < z", "z BETWEEN n AND n", "w BETWEEN -n AND n", "w > n", "w < n"),
    *("x IS NULL", "w IS NOT NULL", "x LIKE t", "x NOT LIKE t", "v LIKE t ESCAPE t", "y + n > z"),
    *("x IN (t, t, t)", "(x = t OR x = t)", "(y = n OR x = t OR y = -n)", "(z > n OR x IS NULL)", "(b OR v IN (n, n))"),
    *("(x LIKE t OR y = n)", "((x = t OR z < n) OR w > n)", "(x = t AND y > n)", "NOT (x = t OR y > n)"),
)
NUMBERS = ("0", "1", "2", "1.0", "1.5", "0.1", "3e300", str(2**53), str(2**53 + 1), str(10**90))
TEXTS = ("'a'", "'b'", "'ab%'", "'%'", "'a_'", "'!%'", "'!'", "''")


@settings(max_examples=500)
@given(st.data())
def test_plans_give_the_rows_of_the_long_way(data: st.DataObject) -> None:
    """MAT-22: whatever the constants of a known shape are, its rows are those of the text read afresh."""
    joint = data.draw(st.sampled_from([" AND ", " AND ", " OR "]))
    shape = joint.join(data.draw(st.lists(st.sampled_from(TERMS), min_size=1, max_size=4)))
    templates = Templates(SELECTOR)
    for _ in range(3):
        text = re.sub(r"\b[nt]\b", lambda hole: data.draw(st.sampled_from(NUMBERS if hole[0] == "n" else TEXTS)), shape)
        assert outcome(templates.rows, text) == outcome(lambda text: rows_of(normal_form(parse_selector(text))), text)


@pytest.mark.parametrize(
    ("shape", "has_plan"),
    [
        ("x = 'a' AND y BETWEEN 1 AND 2", True),
        ("y > -1 AND y <= 5 AND b", True),
        ("(x = 'a' OR x = 'b') AND y > 1 AND z LIKE 'a%'", True),
        ("x IN (1, 2, 3) AND y IS NOT NULL", True),
        ("x IN (-1, +2, -3.5) AND y < -2", True),
        ("x = 'a' AND y IN (1, 2, 3, 4, 5)", False),
        (f"x IN ({', '.join(map(str, range(60)))}) AND {' AND '.join(f'p{at} > 1' for at in range(20))}", False),
        ("y > 1 AND y > 2", False),
        ("(a = 1 OR b = 2) AND (c = 3 OR d = 4)", False),
        ("x = 1 AND (x = 1 OR y = 2)", False),
        ("(x = 1 OR y = 2) AND x = 1", False),
        ("1 = 1", False),
    ],
)
def test_the_usual_shapes_have_plans(shape: str, has_plan: bool) -> None:
    """MAT-22: without this, everything could take the long way unnoticed."""
    condition = parse_selector(shape)
    plan = plan_of(condition, len(template(shape)[1]))
    assert (plan is not None) is has_plan
    if plan is not None:
        assert plan.rows(template(shape)[1]) == rows_of(normal_form(condition))


#: Shapes with holes, and what may stand in them: one parse serves each shape.
SHAPES = (
    "x = {0} AND y > {1}",
    "x BETWEEN {0} AND {1}",
    "x IN ({0}, {1})",
    "x IN (-{0}, +{1}) AND y < {0}",
    "x + {0} < {1} OR NOT y >= -{0}",
    "{0} <> x",
)
LITERALS = (
    "5",
    "0x1F",
    "017",
    "1.5E2",
    ".5",
    "7.",
    "9L",
    "3f",
    "'a'",
    "'it''s'",
    "''",
    "089",
    "1e999",
    "5x",
    "'open",
    "\0n",
)


@settings(max_examples=300)
@given(st.sampled_from(SHAPES), st.lists(st.tuples(st.sampled_from(LITERALS), st.sampled_from(LITERALS)), max_size=4))
def test_a_known_template_accepts_and_refuses_as_the_parser(shape: str, pairs: list[tuple[str, str]]) -> None:
    templates = Templates(SELECTOR)
    for text in [shape.format(*pair) for pair in [("1", "2"), *pairs]]:
        assert outcome(templates.rows, text) == outcome(lambda text: rows_of(normal_form(parse_selector(text))), text)


def outcome(read: Callable[[str], object], text: str) -> tuple[str, int]:
    """What came of it, told apart also where Python's equality does not: 1 and TRUE."""
    try:
        return repr(read(text)), -1
    except InvalidConstraint as error:
        return error.reason, error.position


FRAGMENTS = (
    *(
        "x",
        "y1",
        "$z",
        "é",
        "5",
        "0x1",
        "08",
        "1.5",
        ".5",
        "5x",
        "'a'",
        "''",
        "'",
        '"',
        "\\",
        "'\\''",
        "\0n",
        "\0t",
        "%",
    ),
    *("=", "==", "<>", "!=", "<", ">=", "~", "+", "-", "*", "/", "(", ")", ",", ".", "\u00a0"),
    *("AND", "or", "NOT", "not", "IN", "in", "LIKE", "ESCAPE", "IS", "NULL", "BETWEEN", "TRUE", "exist"),
)


@settings(max_examples=600)
@given(
    st.sampled_from([SELECTOR, CONSTRAINT]),
    st.lists(st.sampled_from(FRAGMENTS), max_size=8),
    st.sampled_from(["", " "]),
)
def test_any_text_is_read_or_refused_within_it(language: Language, fragments: list[str], joint: str) -> None:
    """MAT-22: no other exception, no position outside, and templates change nothing."""
    text = joint.join(fragments)
    position = outcome(language.parse, text)[1]
    assert -1 <= position <= len(text)
    templates = Templates(language)
    for _ in range(2):
        assert outcome(templates.rows, text) == outcome(lambda text: rows_of(normal_form(language.parse(text))), text)


def test_texts_of_one_shape_share_a_template() -> None:
    first = template("sym = 'IBM' AND price > 90")
    second = template("sym = 'it''s' AND price > 0x10")
    assert first == ("sym = \0t AND price > \0n", ("IBM", 90))
    assert second == (first[0], ("it's", 16))
    assert template("x1 = 2 AND $3 = 4")[1] == (2, 4)
    assert template("x = 'a'")[0] != template("x = 1")[0]
    assert template(r"s == 'it\'s'", CONSTRAINT)[1] == ("it's",)


def test_a_known_template_still_checks_its_patterns() -> None:
    templates = Templates(SELECTOR)
    templates.rows("x LIKE 'a!%' ESCAPE '!'")
    for text, position in [("x LIKE 'a!' ESCAPE '!'", 9), ("x LIKE 'a' ESCAPE '!!'", 18)]:
        with pytest.raises(InvalidConstraint) as caught:
            templates.rows(text)
        assert caught.value.position == position
    assert len(templates) == 1


def test_a_known_template_still_counts_its_patterns() -> None:
    """MAT-22: one pattern with a gap too many is refused at its place, whatever stood there before."""
    templates = Templates(SELECTOR)
    shape = " AND ".join(["x LIKE '%'"] * (MAX_GAPPED_LIKES + 1))
    for text in (shape, shape.replace("'%'", "'%a_b%'", MAX_GAPPED_LIKES), shape.replace("'%'", "'%a_b%'")):
        assert outcome(templates.rows, text) == outcome(lambda text: rows_of(normal_form(parse_selector(text))), text)
    assert len(templates) == 1
    assert outcome(templates.rows, shape.replace("'%'", "'%a_b%'"))[1] > 0


LONG_TEXTS = ("a" * MAX_LIKE_TEXT, "a" * (MAX_LIKE_TEXT + 1), "ab" * MAX_LIKE_TEXT, "b" * (MAX_LIKE_TEXT + 2))


@settings(max_examples=100)
@given(selectors, st.dictionaries(st.sampled_from(["a", "b", "$c"]), st.sampled_from(["a", 1, *LONG_TEXTS])))
def test_all_forms_agree_on_long_texts(condition: Condition, values: Attributes) -> None:
    """MAT-22: closures, the normal form and its rows say what the interpreter says where LIKE is unknown."""
    verdict = evaluate(condition, values)
    formula = normal_form(condition)
    assert compile_condition(condition)(values) is (verdict is True)
    assert compile_condition(condition, True)(values) is (verdict is False)
    assert holds(formula, values) is (verdict is True)
    assert any(holds(formula_of(row), values) for row in rows_of(formula)) is (verdict is True)
    assert (explain_condition(condition, values) == "the condition is true") is (verdict is True)


def test_templates_forget_the_oldest() -> None:
    templates = Templates(SELECTOR, capacity=2)
    for name in "abc":
        templates.rows(f"{name} = 1")
    assert len(templates) == 2
    assert templates.rows("a = 7") == rows_of(EqualTo("a", 7))


@pytest.mark.parametrize("shape", ["x > 1 AND y = 'a'", "x > 1 AND (x < 2 OR NOT y LIKE 'a')"])
def test_a_template_is_bound_by_hand(shape: str) -> None:
    """With a plan and without."""
    known = Template.of(parse_selector(shape), len(template(shape)[1]))
    text = shape.replace("1", "5").replace("'a'", "'b'")
    assert known.rows(template(text)[1]) == rows_of(normal_form(parse_selector(text)))


@EXAMPLES
@given(selectors)
def test_binding_a_condition_to_its_own_literals_changes_nothing(condition: Condition) -> None:
    """MAT-22: every kind of node hands its literals on."""
    text = text_of(condition)
    assert bound(parse_selector(text), template(text)[1]) == parse_selector(text)


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("", All(())),
        ("x = 'a'", EqualTo("x", "a")),
        ("5 <= x", InRange("x", 5, None, False, False)),
        ("x > 1 + 2 AND x < 10", InRange("x", 3, 10, True, True)),
        ("x >= 3 AND x <= 3", EqualTo("x", 3)),
        ("x BETWEEN 3 AND 2", Any(())),
        ("x > 3 AND x < 3", Any(())),
        ("x NOT BETWEEN 1 AND 2", Any((InRange("x", None, 1, False, True), InRange("x", 2, None, True, False)))),
        ("x IN ('a', 'b') AND x IN ('b', 'c')", EqualTo("x", "b")),
        ("x = 'a' OR x = 'b' OR x IN ('c', 'a')", OneOf("x", ("a", "b", "c"))),
        ("x = 1 AND x = TRUE", Any(())),
        ("x = 'a' AND x IS NULL", Any(())),
        ("x > 3 AND x IS NOT NULL", InRange("x", 3, None, True, False)),
        ("NOT (x IS NULL OR NOT y)", All((Presence("x", True), EqualTo("y", True)))),
        ("NOT x", EqualTo("x", False)),
        ("x LIKE 'plain'", EqualTo("x", "plain")),
        ("1 = 1 AND x = 2", EqualTo("x", 2)),
        ("1 / 0 = 1 OR NOT 'a' = 'a'", Any(())),
        ("x = 'a' OR TRUE", All(())),
    ],
)
def test_what_an_index_can_use_is_plain(text: str, formula: Formula) -> None:
    """MAT-22: ranges of one property meet, constants fold, NOT disappears."""
    assert normal_form(parse_selector(text)) == formula


def test_not_of_an_equality_is_no_inequality() -> None:
    """MAT-22: NOT (x = 'a') is true for a number, x <> 'a' is not."""
    formula = normal_form(parse_selector("NOT (x = 'a')"))
    assert formula == Other(Comparison("=", Attribute("x"), Literal("a")), True)
    assert holds(formula, {"x": 5})
    assert not holds(normal_form(parse_selector("x <> 'a'")), {"x": 5})
    assert not holds(formula, {})


@pytest.mark.parametrize(
    ("text", "values", "explanation"),
    [
        ("price > 10", {"price": 7}, "price > 10 is false: price = 7"),
        ("price > 10 AND sym = 'a'", {"price": 11}, "sym = 'a' is unknown: sym is missing"),
        ("sym = 'a'", {"sym": None}, "sym = 'a' is unknown: sym is NULL"),
        ("x + y > 3", {"x": 1}, "x + y > 3 is unknown: y is missing"),
        ("1 / x > 3", {"x": 0}, "1 / x > 3 is unknown (no such value): x = 0"),
        ("NOT (a OR b)", {"a": True, "b": False}, "NOT (a OR b) is false: a = TRUE, b = FALSE"),
        ("a = 1 OR b = 2", {"a": 2}, "no alternative holds: a = 1 is false: a = 2; b = 2 is unknown: b is missing"),
        ("a IS NOT NULL", {}, "a IS NOT NULL is false: a is missing"),
        ("FALSE", {}, "FALSE is false"),
        ("a = 1", {"a": 1}, "the condition is true"),
    ],
)
def test_explanations_name_the_first_term_that_failed(text: str, values: Attributes, explanation: str) -> None:
    assert explain_condition(parse_selector(text), values) == explanation


def test_explanations_speak_the_language_of_the_text() -> None:
    condition = parse_constraint("exist a and s == 'it\\'s'")
    assert explain_condition(condition, {"a": 1, "s": "x"}) == "s == 'it\\'s' is false: s = 'x'"


@settings(max_examples=200)
@given(conditions, attributes)
def test_an_explanation_is_bounded_and_tells_matches_apart(condition: Condition, values: Attributes) -> None:
    explanation = explain_condition(condition, values)
    assert (explanation == "the condition is true") is (evaluate(condition, values) is True)
    assert len(explanation) < 20_000


def test_names_come_in_order_and_once() -> None:
    assert attribute_names(parse_selector("b > a + 1 AND NOT (c IN ('x') OR a LIKE 'y')")) == ("b", "a", "c")


def test_literals_of_different_types_differ() -> None:
    values: list[Scalar] = [1, 1.0, True, "1"]
    assert len({Literal(value) for value in values}) == 4
    assert Literal(1, 3) == Literal(1, 4)
