"""The Trader Constraint Language: the OMG's operators and precedence, missing properties, exact complaints."""

from __future__ import annotations

import pytest

from veena.errors import InvalidConstraint
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.tree import Attributes, Comparison, Literal, evaluate
from veena.matching.engines.compiled import compile_constraint

TRUE, FALSE, UNKNOWN = True, False, None


def verdict(text: str, values: Attributes | None = None) -> bool | None:
    return evaluate(parse_constraint(text), values or {})


def test_the_example_of_the_thesis() -> None:
    """TRD-06: a trader's query for an application by name and network."""
    constraint = compile_constraint("name == 'oil' and network == 128")
    assert constraint.matches({"name": "oil", "network": 128})
    assert not constraint.matches({"name": "oil", "network": 129})
    assert not constraint.matches({"name": "oil"})
    assert constraint.explain({"name": "gas"}) == "name == 'oil' is false: name = 'gas'"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"x": 4, "y": "a", "z": 1}, TRUE),
        ({"x": 4, "y": "b"}, TRUE),
        ({"x": 4, "y": "b", "z": 1}, FALSE),
        ({}, TRUE),
        ({"z": 1}, UNKNOWN),
    ],
)
def test_any_logical_subset_can_be_asked_for(values: Attributes, expected: bool | None) -> None:
    """DIS-03."""
    assert verdict("(x > 3 and y == 'a') or not exist z", values) is expected


def test_names_begin_with_a_dollar_for_the_fixed_header() -> None:
    """DIC-08: the fixed header stands beside the filterable body under its own names."""
    constraint = compile_constraint("$type_name == 'Steering' and load > 0.5")
    assert constraint.matches({"$type_name": "Steering", "load": 0.75})
    assert not constraint.matches({"type_name": "Steering", "load": 0.75})


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        # a missing property does not match, under not either, unless exist guards it
        ("x > 3", {}, UNKNOWN),
        ("not (x > 3)", {}, UNKNOWN),
        ("not exist x or x > 3", {}, TRUE),
        ("exist x and x > 3", {}, FALSE),
        ("exist x", {"x": None}, FALSE),
        ("exist x", {"x": False}, TRUE),
        ("'a' ~ x", {}, UNKNOWN),
        ("1 in x", {}, UNKNOWN),
        ("x in y", {"y": (1,)}, UNKNOWN),
        ("x in (1, 2)", {}, UNKNOWN),
        # ~: the left one is contained in the right one
        ("'oil' ~ name", {"name": "black oil field"}, TRUE),
        ("name ~ 'oil'", {"name": "black oil field"}, FALSE),
        ("name ~ 'black oil'", {"name": "oil"}, TRUE),
        ("'' ~ name", {"name": ""}, TRUE),
        ("'a' ~ name", {"name": "A"}, FALSE),
        ("'1' ~ name", {"name": 1}, FALSE),
        ("part ~ whole", {"part": "b", "whole": "abc"}, TRUE),
        # in: an element of a sequence
        ("'b' in tags", {"tags": ["a", "b"]}, TRUE),
        ("'c' in tags", {"tags": ("a", "b")}, FALSE),
        ("1 in tags", {"tags": (True, "1", 2)}, FALSE),
        ("1 in tags", {"tags": (1.0,)}, TRUE),
        ("x + 1 in tags", {"x": 1, "tags": (2,)}, TRUE),
        ("'b' in tags", {"tags": "abc"}, FALSE),
        ("x in ('a', 'b')", {"x": "b"}, TRUE),
        ("x in (-1, 2)", {"x": -1}, TRUE),
        ("not (x in (+1, -2.5))", {"x": -2.5}, FALSE),
        ("not (x in ('a', 'b'))", {"x": 5}, TRUE),
        # comparison; text by code points, FALSE before TRUE
        ("x == 1.0", {"x": 1}, TRUE),
        ("x != 1", {"x": 2}, TRUE),
        ("x != '1'", {"x": 1}, FALSE),
        ("x < 'b'", {"x": "a"}, TRUE),
        ("x >= 'b'", {"x": "a"}, FALSE),
        ("'a' < 'b'", {}, TRUE),
        ("x < TRUE", {"x": False}, TRUE),
        ("x < 'b'", {"x": 1}, FALSE),
        ("not (x < 'b')", {"x": 1}, TRUE),
        ("x > 'Z'", {"x": "a"}, TRUE),
        ("x <= TRUE", {"x": 0}, FALSE),
        ("x == TRUE", {"x": True}, TRUE),
        # truth values alone
        ("x", {"x": True}, TRUE),
        ("not x", {"x": False}, TRUE),
        ("not x", {"x": 0}, UNKNOWN),
        ("TRUE and not FALSE", {}, TRUE),
        # arithmetic
        ("x + 1 == 3", {"x": 2}, TRUE),
        ("x * 2 - 1 > 4 / 2", {"x": 2}, TRUE),
        ("7 / 2 == 3", {}, TRUE),
        ("x == -2.5e1", {"x": -25}, TRUE),
        ("1 / x == 1", {"x": 0}, UNKNOWN),
        ("010 == 10", {}, TRUE),
        ("", {}, TRUE),
        ("  ", {}, TRUE),
    ],
)
def test_verdicts(text: str, values: Attributes, expected: bool | None) -> None:
    """TRD-09: comparison, logic, in, ~, exist and arithmetic."""
    assert verdict(text, values) is expected
    assert compile_constraint(text).matches(values) is (expected is True)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a or b and c", "a or (b and c)"),
        ("not a and b", "(not a) and b"),
        ("not exist a or b", "(not (exist a)) or b"),
        ("a + b * c == d", "(a + (b * c)) == d"),
        ("a - b - c < 0", "((a - b) - c) < 0"),
        ("-a * b < 0", "(-a) * b < 0"),
        ("a ~ b and c in d", "(a ~ b) and (c in d)"),
        ("not not a", "not (not a)"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    """TRD-09: the OMG's: not, then * /, + -, ~, in, comparison, and, or."""
    assert parse_constraint(text) == parse_constraint(same)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'plain'", "plain"),
        (r"'it\'s'", "it's"),
        (r"'back\\slash'", "back\\slash"),
        (r"'\\'", "\\"),
        ("'ü漢'", "ü漢"),
        ("''", ""),
        ("5", 5),
        ("1.", 1.0),
        (".5", 0.5),
        ("2e3", 2000.0),
        ("1.5E-1", 0.15),
        ("TRUE", True),
        ("FALSE", False),
    ],
)
def test_every_form_of_a_literal(written: str, value: object) -> None:
    condition = parse_constraint(f"x == {written}")
    assert isinstance(condition, Comparison)
    assert isinstance(condition.right, Literal)
    assert condition.right.value == value
    assert type(condition.right.value) is type(value)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("x = 5", 2, "write =="),
        ("x ==", 4, "the end of the text"),
        ("x AND y", 2, "this language writes and"),
        ("not x > 3", 6, "write not ( ... )"),
        ("not x ~ 'a'", 6, "write not ( ... )"),
        ("exist 5", 6, "the name of a property"),
        ("exist exist", 6, "the name of a property"),
        ("x in 5", 5, "the name of a property"),
        ("x in ('a', 2)", 11, "one kind"),
        ("x in (-'a')", 7, "- works on numbers"),
        ("x in (1, - -2)", 11, "literals only"),
        ("x + 1 in (2)", 0, "a property's name"),
        ("5", 0, "alone is no condition"),
        ("'a' + 1 == x", 0, "works on numbers"),
        (r"x == 'a\b'", 5, "backslash"),
        (r"x == 'a\'", 5, "not closed"),
        ("a < b < c", 0, "do not chain: write a < b and b < c"),
        ("(a in b) == TRUE", 0, "this is a condition"),
        ("x == 0x1F", 5, "0x1F is no number"),
        ("$.x == 1", 1, "a name has no dots"),
        ("(x == 1", 7, "expected )"),
        ("x ! y", 2, "write !="),
        ("x || y", 2, "write or"),
    ],
)
def test_invalid_texts_are_refused_where_they_go_wrong(text: str, position: int, words: str) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        parse_constraint(text)
    assert (caught.value.position, caught.value.text) == (position, text)
    assert words in caught.value.reason


def test_keywords_in_other_cases_are_names() -> None:
    """TRD-09: the OMG's keywords are case-sensitive, so True is a property."""
    assert verdict("x == True", {"x": 5, "True": 5}) is TRUE
