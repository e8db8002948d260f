"""SQL-92 message selectors as JMS has them: every literal form, precedence, three-valued logic, exact complaints."""

from __future__ import annotations

import inspect
import itertools
import math
import sys

import pytest

from veena.errors import InvalidConstraint
from veena.matching.condition.closures import compile_condition
from veena.matching.condition.explain import explain_condition, text_of
from veena.matching.condition.formula import Any
from veena.matching.condition.lexer import MAX_NUMBER_LENGTH, MAX_TERMS, MAX_TEXT_LENGTH
from veena.matching.condition.like import MAX_GAPPED_LIKES, MAX_LIKE_TEXT, MAX_PATTERN_LENGTH
from veena.matching.condition.normal_form import normal_form
from veena.matching.condition.parser import MAX_ARITHMETIC, MAX_NESTING
from veena.matching.condition.selector_parser import parse_selector
from veena.matching.condition.tree import Attributes, Comparison, Literal, evaluate
from veena.matching.engines.compiled import compile_selector

TRUE, FALSE, UNKNOWN = True, False, None


def verdict(text: str, values: Attributes | None = None) -> bool | None:
    return evaluate(parse_selector(text), values or {})


def complaint(text: str) -> InvalidConstraint:
    with pytest.raises(InvalidConstraint) as caught:
        parse_selector(text)
    return caught.value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0", 0),
        ("7", 7),
        ("62", 62),
        ("7L", 7),
        ("7l", 7),
        ("0x1F", 31),
        ("0XabL", 171),
        ("017", 15),
        ("017L", 15),
        ("00", 0),
        ("9223372036854775807", 2**63 - 1),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("7.", 7.0),
        (".5", 0.5),
        ("95.7", 95.7),
        ("7E3", 7000.0),
        ("57.9e-2", 0.579),
        ("1.5f", 1.5),
        ("2D", 2.0),
        ("7.e2", 700.0),
        ("09.5", 9.5),
        ("1e-400", 0.0),
        ("'literal'", "literal"),
        ("'literal''s'", "literal's"),
        ("''", ""),
        ("''''", "'"),
        ("'ü漢 %_'", "ü漢 %_"),
        ("'a\nb\\n'", "a\nb\\n"),
        ("TRUE", True),
        ("true", True),
        ("False", False),
    ],
)
def test_every_form_of_a_literal(written: str, value: object) -> None:
    """MAT-22: text with doubled quotes, Java's exact and approximate numbers, truth values."""
    condition = parse_selector(f"x = {written}")
    assert isinstance(condition, Comparison)
    assert isinstance(condition.right, Literal)
    assert condition.right.value == value
    assert type(condition.right.value) is type(value)


@pytest.mark.parametrize(
    "name", ["x", "_", "$", "$a_1", "Größe", "变量", "e\u0301", "€uro", "notx", "JMSXGroupID", "JMS_v", "JMSType"]
)
def test_names_are_those_of_java(name: str) -> None:
    assert verdict(f"{name} = 1", {name: 1}) is TRUE
    assert verdict(f"{name} = 1", {name.swapcase() + "x": 1}) is UNKNOWN


AND = {
    (TRUE, TRUE): TRUE, (TRUE, FALSE): FALSE, (TRUE, UNKNOWN): UNKNOWN,
    (FALSE, TRUE): FALSE, (FALSE, FALSE): FALSE, (FALSE, UNKNOWN): FALSE,
    (UNKNOWN, TRUE): UNKNOWN, (UNKNOWN, FALSE): FALSE, (UNKNOWN, UNKNOWN): UNKNOWN,
}  # fmt: skip
OR = {
    (TRUE, TRUE): TRUE, (TRUE, FALSE): TRUE, (TRUE, UNKNOWN): TRUE,
    (FALSE, TRUE): TRUE, (FALSE, FALSE): FALSE, (FALSE, UNKNOWN): UNKNOWN,
    (UNKNOWN, TRUE): TRUE, (UNKNOWN, FALSE): UNKNOWN, (UNKNOWN, UNKNOWN): UNKNOWN,
}  # fmt: skip
NOT = {TRUE: FALSE, FALSE: TRUE, UNKNOWN: UNKNOWN}


@pytest.mark.parametrize(("left", "right"), list(itertools.product([TRUE, FALSE, UNKNOWN], repeat=2)))
def test_truth_tables(left: bool | None, right: bool | None) -> None:
    """MAT-22: SQL's tables for AND, OR and NOT, by hand from the specification."""
    values = {"a": left, "b": right}
    assert verdict("a AND b", values) is AND[left, right]
    assert verdict("a OR b", values) is OR[left, right]
    assert verdict("NOT a", values) is NOT[left]
    assert verdict("NOT (a AND b)", values) is NOT[AND[left, right]]
    assert verdict("NOT (a OR b)", values) is NOT[OR[left, right]]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("NOT x = 5", "NOT (x = 5)"),
        ("NOT a AND b", "(NOT a) AND b"),
        ("a OR b AND c", "a OR (b AND c)"),
        ("NOT NOT a", "NOT (NOT a)"),
        ("a + b * c = d", "(a + (b * c)) = d"),
        ("a - b - c = 0", "((a - b) - c) = 0"),
        ("a / b * c = 0", "((a / b) * c) = 0"),
        ("-a * b = 0", "(-a) * b = 0"),
        ("+a = - - 5", "a = -(-5)"),
        ("a BETWEEN 1 AND 2 AND b", "(a BETWEEN 1 AND 2) AND b"),
        ("a NOT IN ('x') OR b", "(NOT (a IN ('x'))) OR b"),
        ("a is Not null aNd b LIKE 'x'", "(NOT (a IS NULL)) AND (b LIKE 'x')"),
        ("a NOT LIKE 'x'", "NOT a LIKE 'x'"),
        ("((a)) = ((5))", "a = 5"),
        ("\ta\n=\r\f5 ", "a = 5"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    """MAT-22: NOT before AND before OR, all after comparison, that after arithmetic; keywords in any case."""
    assert parse_selector(text) == parse_selector(same)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        # missing and NULL operands are unknown
        ("x = 1", {}, UNKNOWN),
        ("x <> 1", {"x": None}, UNKNOWN),
        ("x + 1 > 0", {}, UNKNOWN),
        ("-x > 0", {}, UNKNOWN),
        ("x BETWEEN 1 AND 2", {}, UNKNOWN),
        ("x NOT BETWEEN 1 AND 2", {}, UNKNOWN),
        ("x IN ('a')", {}, UNKNOWN),
        ("x NOT IN ('a')", {}, UNKNOWN),
        ("x LIKE '%'", {}, UNKNOWN),
        ("x NOT LIKE '%'", {}, UNKNOWN),
        ("x IS NULL", {}, TRUE),
        ("x IS NULL", {"x": None}, TRUE),
        ("x IS NOT NULL", {"x": 0}, TRUE),
        ("x", {}, UNKNOWN),
        ("x BETWEEN y AND 3", {"x": 5}, FALSE),
        ("x NOT BETWEEN y AND 3", {"x": 5}, TRUE),
        # unlike kinds are false, <> included, and the NOT of that is true
        ("x = '5'", {"x": 5}, FALSE),
        ("x <> '5'", {"x": 5}, FALSE),
        ("NOT x = '5'", {"x": 5}, TRUE),
        ("x = 1", {"x": True}, FALSE),
        ("x <> 1", {"x": True}, FALSE),
        ("x = TRUE", {"x": 1}, FALSE),
        ("x > 5", {"x": "6"}, FALSE),
        ("x IN ('a')", {"x": 1}, FALSE),
        ("x NOT IN ('a')", {"x": 1}, TRUE),
        ("x LIKE '%'", {"x": 1}, FALSE),
        ("x NOT LIKE '%'", {"x": 1}, TRUE),
        ("x IN (1, 2.5)", {"x": 1.0}, TRUE),
        ("x IN (1)", {"x": True}, FALSE),
        ("x IN (-1, 2)", {"x": -1.0}, TRUE),
        ("x IN (-1, +2, -.5)", {"x": 2}, TRUE),
        ("x IN (- 1, -2)", {"x": 1}, FALSE),
        ("x NOT IN (-0x10, -017L)", {"x": -16}, FALSE),
        ("x NOT IN (-1)", {}, UNKNOWN),
        ("x NOT BETWEEN 1 AND 2", {"x": "a"}, FALSE),
        ("'5' = 5", {}, FALSE),
        ("x = y", {"x": b"a", "y": b"a"}, FALSE),
        ("x IS NOT NULL", {"x": b"a"}, TRUE),
        # text and truth values have no order
        ("x < y", {"x": "a", "y": "b"}, FALSE),
        ("x < y", {"x": False, "y": True}, FALSE),
        ("x <> y", {"x": "a", "y": "b"}, TRUE),
        # exact and approximate numbers are alike and compared exactly
        ("x = 1", {"x": 1.0}, TRUE),
        ("x = 9007199254740993", {"x": 2.0**53}, FALSE),
        ("x > 9007199254740992.0", {"x": 2**53 + 1}, TRUE),
        ("x = 0", {"x": -0.0}, TRUE),
        ("x = x", {"x": math.nan}, FALSE),
        ("x <> x", {"x": math.nan}, TRUE),
        ("x > 3", {"x": math.nan}, FALSE),
        ("NOT x > 3", {"x": math.nan}, TRUE),
        ("x > 1e300", {"x": math.inf}, TRUE),
        # a truth value alone
        ("x", {"x": True}, TRUE),
        ("NOT x", {"x": False}, TRUE),
        ("x", {"x": 1}, UNKNOWN),
        ("NOT x", {"x": "a"}, UNKNOWN),
        ("TRUE", {}, TRUE),
        ("FALSE OR NOT FALSE", {}, TRUE),
        ("x = TRUE", {"x": True}, TRUE),
        ("x <> TRUE", {"x": False}, TRUE),
        # ranges and sets
        ("x BETWEEN 15 AND 19", {"x": 15}, TRUE),
        ("x BETWEEN 15 AND 19", {"x": 19.5}, FALSE),
        ("x NOT BETWEEN 15 AND 19", {"x": 14}, TRUE),
        ("x BETWEEN 19 AND 15", {"x": 17}, FALSE),
        ("x IN ('UK', 'US')", {"x": "UK"}, TRUE),
        ("x NOT IN ('UK', 'US')", {"x": "FR"}, TRUE),
    ],
)
def test_verdicts(text: str, values: Attributes, expected: bool | None) -> None:
    """MAT-22: the readings that docs/SELECTORS.md writes down."""
    assert verdict(text, values) is expected
    assert compile_selector(text).matches(values) is (expected is True)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("7 / 2.0", 3.5),
        ("7. / 2", 3.5),
        ("2 * 3 + 4", 10),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("1 - 2 - 3", -4),
        ("-(2 - 5)", 3),
        ("9223372036854775807 + 1", 2**63),
        ("0.1 + 0.2", 0.1 + 0.2),
        ("1 + 0.5", 1.5),
    ],
)
def test_arithmetic(expression: str, value: float) -> None:
    """MAT-22: Java's promotion and truncating division; no overflow of exact numbers."""
    assert verdict(f"x = {expression}", {"x": value}) is TRUE
    assert verdict(f"{expression} = x AND y", {"x": value, "y": True}) is TRUE


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1 / x = 1", {"x": 0}),
        ("1 / x = 1", {"x": 0.0}),
        ("x + 1 = 1", {"x": "a"}),
        ("x + 1 = 1", {"x": True}),
        ("-x = 1", {"x": "1"}),
        ("+x = y", {"x": "a", "y": "a"}),
        ("+x = +y", {"x": True, "y": True}),
        ("x * x = 1", {"x": 2**4000}),
        ("x + 0.5 > 0", {"x": 10**400}),
        ("x / 2 > 0", {"x": 2**5000}),
        ("NOT 1 / 0 = 1", {}),
    ],
)
def test_arithmetic_without_a_result_is_unknown(text: str, values: Attributes) -> None:
    """MAT-22: division by zero, operands that are no numbers, results that no number holds."""
    assert verdict(text, values) is UNKNOWN
    assert verdict(f"NOT ({text})", values) is UNKNOWN


@pytest.mark.parametrize("text", ["", "   ", "\n\t\f\r"])
def test_an_empty_selector_is_always_true(text: str) -> None:
    """MAT-21."""
    assert compile_selector(text).matches({})


def test_the_example_of_the_papers() -> None:
    """MAT-20: price and symbol."""
    selector = compile_selector("price > 10 AND sym LIKE 'IB%'")
    assert selector.matches({"price": 12.5, "sym": "IBM"})
    assert not selector.matches({"price": 10, "sym": "IBM"})
    assert not selector.matches({"price": 12.5})
    assert selector.explain({"price": 12.5}) == "sym LIKE 'IB%' is unknown: sym is missing"
    assert selector.text in repr(selector)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("x =", 3, "the end of the text"),
        ("x = = 5", 4, "found ="),
        ("x == 5", 3, "equal is written ="),
        ("x != 5", 2, "write <>"),
        ("x < > 5", 4, "not equal <>"),
        ("x IN (-'a')", 7, "- works on numbers"),
        ("x IN (--1)", 7, "literals only, found -"),
        ("x IN (1, -y)", 10, "literals only, found y"),
        ("x IN ('a', -1)", 11, "this is a number, the first a text"),
        ("x IN (-)", 7, "literals only, found )"),
        ('x = "a"', 4, "single quotes"),
        ("x = 'abc", 4, "not closed"),
        ("x = 'a' 'b'", 8, "not expected"),
        ("x = 5 y", 6, "y was not expected"),
        ("(x = 5", 6, "expected ) to close the group"),
        ("x = 5)", 5, ") was not expected"),
        ("x > 'a'", 4, "works on numbers"),
        ("TRUE < x", 0, "this is a truth value"),
        ("x + 'a' = 1", 4, "+ works on numbers"),
        ("-'a' = 1", 1, "- works on numbers"),
        ("+'a' = x", 1, "+ works on numbers, and this is a text; leave the sign out"),
        ("x = 1 AND +TRUE", 11, "+ works on numbers, and this is a truth value; leave the sign out"),
        ("-FALSE = x", 1, "- works on numbers, and this is a truth value; leave the sign out"),
        ("+city = 'London'", 0, "a sign works on numbers, and this is compared with a text; leave the sign out"),
        ("x > 1 AND 'London' <> -city", 22, "compared with a text; leave the sign out"),
        ("(+city) = 'London'", 0, "compared with a text; leave the sign out"),
        ("+flag = TRUE", 0, "compared with a truth value; leave the sign out"),
        ("+flag", 0, "a number alone is no condition"),
        ("NOT +flag", 4, "a number alone is no condition"),
        ("+city LIKE 'L%'", 0, "LIKE works on a property's name"),
        ("+city IN ('London')", 0, "IN works on a property's name"),
        ("+city IS NULL", 0, "IS works on a property's name"),
        ("5", 0, "a number alone is no condition"),
        ("x AND 'a'", 6, "a text alone is no condition"),
        ("NOT 5", 4, "a number alone"),
        ("x + 1", 0, "alone is no condition"),
        ("1 < x < 3", 0, "do not chain"),
        ("x = (y > 3)", 4, "this is a condition"),
        ("x = NULL", 4, "IS NULL"),
        ("x IS 5", 5, "expected NULL"),
        ("5 IS NULL", 0, "a property's name"),
        ("x + 1 IN (1)", 0, "a property's name"),
        ("x LIKE y", 7, "a pattern in single quotes"),
        ("x LIKE 'a' ESCAPE 'ab'", 18, "exactly one character"),
        ("x LIKE 'it''s!' ESCAPE '!'", 13, "ends in its escape"),
        ("x NOT = 5", 6, "BETWEEN, IN or LIKE"),
        ("x IN ()", 6, "literals only"),
        ("x IN ('a' 'b')", 10, "expected )"),
        ("x IN ('a', 1)", 11, "literals of one kind"),
        ("x IN (y)", 6, "literals only"),
        ("x BETWEEN 1 OR 2", 12, "expected AND"),
        ("x BETWEEN 'a' AND 'b'", 10, "works on numbers"),
        ("x = 089", 4, "octal"),
        ("x = 12abc", 4, "12abc is no number"),
        ("x = 0x", 4, "0x is no number"),
        ("x = 1.2.3", 4, "1.2.3 is no number"),
        ("x = 1e999", 4, "too large"),
        ("x.y = 1", 1, "a name has no dots"),
        ("NOT.5 < x", 3, "stands apart"),
        ("ab\u00a0= 1", 2, "a name cannot hold"),
        ("a and é² = 1", 7, "a name cannot hold"),
        ("x = ٣", 4, "a name cannot hold"),
        ("x ; y", 2, "one condition"),
        ("JMSExpiration > 5", 0, "JMSPriority"),
        ("x = 5 AND", 9, "the end of the text"),
        ("AND", 0, "found AND"),
        ("x & y", 2, "write AND"),
        ("\0", 0, "has no meaning"),
    ],
)
def test_invalid_texts_are_refused_where_they_go_wrong(text: str, position: int, words: str) -> None:
    error = complaint(text)
    assert (error.position, error.text) == (position, text)
    assert words in error.reason


def test_texts_too_large_are_refused() -> None:
    """MAT-22: every bound, one step beyond it, with the place where it was crossed."""
    long = "x = '" + "a" * MAX_TEXT_LENGTH + "'"
    assert complaint(long).position == MAX_TEXT_LENGTH
    terms = "x" + " OR x" * MAX_TERMS
    assert complaint(terms).position == len(terms) - 1
    assert complaint("(" * (MAX_NESTING + 1) + "x").position == MAX_NESTING
    assert complaint("NOT " * (MAX_NESTING + 1) + "x").position == 4 * MAX_NESTING
    assert complaint("0 < " + "-" * (MAX_NESTING + 1) + "x").reason.startswith("nested deeper")
    assert "arithmetic" in complaint("0 < x" + " + x" * (MAX_ARITHMETIC + 1)).reason
    assert complaint("x = " + "1" * (MAX_NUMBER_LENGTH + 1)).position == 4
    assert complaint("x LIKE '" + "a" * (MAX_PATTERN_LENGTH + 1) + "'").position == 8 + MAX_PATTERN_LENGTH
    allowed = " OR ".join(["x LIKE '%a_b%'", "x LIKE 'a_b'"] * MAX_GAPPED_LIKES)
    error = complaint(f"{allowed} OR NOT (x NOT LIKE '%c_d%' OR x LIKE '%e_f%')")
    assert (error.position, str(MAX_GAPPED_LIKES) in error.reason) == (len(allowed) + len(" OR NOT (x NOT LIKE "), True)


def test_texts_at_the_bounds_are_taken() -> None:
    assert verdict("(" * MAX_NESTING + "x" + ")" * MAX_NESTING, {"x": True}) is TRUE
    assert verdict("x" + " AND x" * (MAX_TERMS - 1), {"x": True}) is TRUE
    assert verdict("x" + " + x" * MAX_ARITHMETIC + " > 0", {"x": 1}) is TRUE
    assert verdict(" OR ".join(["x LIKE '%a_b%'"] * MAX_GAPPED_LIKES), {"x": "acb"}) is TRUE


@pytest.mark.parametrize("pattern", ["aa%", "%a_a%", "b%", "%", "a"])
def test_like_is_unknown_of_a_text_too_long(pattern: str) -> None:
    """MAT-22: neither LIKE nor NOT LIKE matches, and the explanation says why."""
    values = {"x": "a" * (MAX_LIKE_TEXT + 1)}
    for text in (f"x LIKE '{pattern}'", f"x NOT LIKE '{pattern}'", f"NOT (x NOT LIKE '{pattern}' OR x IS NULL)"):
        assert verdict(text, values) is None
        assert "is unknown (LIKE takes at most 65,536 characters): x = 'aaa" in compile_selector(text).explain(values)
    assert verdict(f"x LIKE '{pattern}' OR x IS NOT NULL", values) is TRUE
    assert verdict("x NOT LIKE 'a'", {"x": "a" * MAX_LIKE_TEXT}) is TRUE


def test_the_deepest_text_stays_far_from_the_limit_of_recursion() -> None:
    """MAT-22: a few hundred calls for parsing, judging and compiling the deepest tree that the bounds allow."""
    text = "x" + " + x" * MAX_ARITHMETIC + " > 0"
    for _ in range(MAX_NESTING):
        text = f"a OR b AND ({text})"
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(calls_open() + 500)
    try:
        condition = parse_selector(text)
        assert evaluate(condition, {"x": 1, "a": False, "b": True}) is TRUE
        assert compile_condition(condition)({"x": 1, "a": False, "b": True})
        assert isinstance(normal_form(condition), Any)
        assert text_of(condition).count("(") == MAX_NESTING - 1
        assert "no alternative holds" in explain_condition(condition, {"a": False})
    finally:
        sys.setrecursionlimit(limit)


def calls_open() -> int:
    return len(inspect.stack(0))
