"""Which XPaths are stored and which are refused, with the place of what is wrong (MAT-52)."""

from __future__ import annotations

from typing import cast

import pytest
from lxml import etree

from veena import Event, matching
from veena.errors import InvalidConstraint
from veena.matching.base.engine import Constraint
from veena.matching.xpath.engine import XPathEngine, compile_xpath, covers
from veena.matching.xpath.limits import MAX_NAMESPACES
from veena.matching.xpath.syntax import MAX_XPATH_LENGTH, MAX_XPATH_NESTING, MAX_XPATH_TERMS


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "empty"),
        ("  ", 0, "empty"),
        ("/a[", 3, "ends early"),
        ("/a[b", 4, "']' expected"),
        ("/a]", 2, "not expected"),
        ("/a/", 3, "step is missing"),
        ("//", 2, "step is missing"),
        ("/a//[1]", 4, "step is expected"),
        ("/a[b='x]", 5, "does not end"),
        ("/a[b=$limit]", 5, "variables are refused"),
        ("/a[re:test(b, 'x')]", 3, "extensions are refused"),
        ("/a[matches(b, 'x')]", 3, "no function matches"),
        ("/a[count(1) > 2]", 9, "needs nodes"),
        ("/a[count() > 2]", 3, "takes 1 arguments"),
        ("/a[substring(b)]", 3, "takes 2 to 3"),
        ("/a[concat(b)]", 3, "takes 2 or more"),
        ("/a[1 | b]", 3, "needs nodes"),
        ("'x'/a", 0, "needs nodes"),
        ("/up::a", 1, "no axis 'up'"),
        ("/p:a", 1, "prefix 'p' has no namespace"),
        ("/a[@p:b]", 3, "prefix 'p' has no namespace"),
        ("/a[b > 1e]", 8, "followed by 'e'"),
        ("/a[b > 1e+]", 8, "followed by 'e'"),
        ("/a[b > 3kg]", 8, "followed by 'kg'"),
        ("/a[b > 1.2.3]", 10, "followed by '.3'"),
        ("/a/..[b]", 5, "takes no predicate"),
        ("/a b", 3, "not expected"),
        ("/a[b ! c]", 5, "expected"),
        ("/a[b = \x00]", 7, "cannot be part of XML"),
        ("/a[b = '\ud800']", 8, "cannot be part of XML"),
        ("position() = 1", 0, "outside of a predicate"),
        ("/a[@]", 4, "name is expected"),
        ("/a[()]", 4, "expression is expected"),
        ("a" * (MAX_XPATH_LENGTH + 1), MAX_XPATH_LENGTH, "characters"),
        ("(" * (MAX_XPATH_NESTING + 1) + "a" + ")" * (MAX_XPATH_NESTING + 1), MAX_XPATH_NESTING + 1, "nested"),
        ("a" + "/a" * MAX_XPATH_TERMS, 2 * MAX_XPATH_TERMS, "more than"),
    ],
)
def test_errors_have_their_position(text: str, position: int, reason: str) -> None:
    engine = XPathEngine()
    with pytest.raises(InvalidConstraint, match=reason) as caught:
        engine.add(1, text, 1)
    assert (caught.value.text, caught.value.position) == (text, position)
    assert len(engine) == 0 and not engine.statistics().detail["templates"]


ONCE_REFUSED = (
    "starts-with(//a//b, 'x')",
    "(//a | //b) = 'y'",
    "//a//b = true()",
    "count(/a/*/preceding-sibling::b) > 1",
    "//a[//b[//c]]",
    "//a[following::b[preceding::c]]",
    "//a[.//b[.//c[.//d[1]]]]",
    "/a/b[../b[../b[1]]]",
    "//a[. = //b]",
    "count(//a/following::b) > 3",
    "sum(//a//a//a) > 3",
    "//a[(//b)[//c]]",
    "//a[count(//b[count(//c) > 1]) > 1]",
    "//b[translate(.., '23', '45') = 'q']",
    "//b[substring(.., 3) = 'q']",
    "//b[sum(../b) = 3]",
    "//b[contains(../@c, 'x')]",
    "//b[string-length(/) > 9]",
    "//b[../b = ../c]",
    "//*[namespace::* = //b/@ref]",
    "translate(translate(translate(., 'a', ''), 'b', ''), 'c', '') = 'q'",
    "//b[" + " or ".join(["//c[last()]"] * 5) + "]",
    "//b" + "[//c[last()]]" * 5,
    "//b[//c[" + " + ".join("1" * 40) + " = 0]]",
    "(//b)" + "[//c[last()]]" * 5,
    "translate(concat(" + ", ".join("." * 40) + "), 'a', 'b') = 'q'",
    "contains(., concat(., 'x'))",
    "contains(., string(.//b))",
    "/a[substring-before(b, c) = '']",
    "/a[translate(b, c, '') = 'x']",
    "/a[1][contains(b, '" + "x" * 200 + "')]",
    "/a/" + "/".join(["b/.."] * 45),
    "//a = false()",
    "//nothing = false()",
    "/a/b > 1e-8",
    "/a/b > 1e-08 and /a/b < 1E3",
    "/a/b = 0.000000000000000000000000001",
)
DOCUMENTS = (
    "<a/>",
    "<a><b>x</b><b>y</b><c d='1'><b>1e-9</b></c></a>",
    "<a><a><b>1</b><b>0.5</b><c>2<d/></c></a><b ref='x'><c>x</c></b><c/><b>3</b></a>",
)


@pytest.mark.parametrize("text", ONCE_REFUSED)
def test_no_expression_is_refused_for_its_shape_or_cost(text: str) -> None:
    """MAT-52: each of them is valid, and its verdicts are those of libxml2."""
    compiled = compile_xpath(text)
    for document in DOCUMENTS:
        expected = bool(etree.XPath(f"boolean({text})")(etree.fromstring(document)))
        assert compiled.matches(document) is expected, document


def test_numbers_may_have_exponents_as_programs_print_them() -> None:
    """A client that writes a small number into an expression gets 1e-08 from its language."""
    engine = XPathEngine()
    for number, text in enumerate((f"/a/b > {0.00000001}", f"/a/b < {2.5e20}", "/a/b = 1.5E3", "-/a/b = -1500e0")):
        engine.add(number, text, 1)
    assert engine.statistics().detail["general"] == 0, "comparisons with a constant are in the index"
    assert engine.match(Event(xml="<a><b>1500</b></a>")) == [0, 1, 2, 3]
    assert engine.match(Event(xml="<a><b>1e-9</b></a>")) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "/menu/softdrinks[price>1.80]",
        "//b[c='x']",
        "contains(name, 'x')",
        "/menu/softdrinks[price>1 and year<2004]",
        "count(//b)>3",
        "//b[1][contains(c, 'x') and contains(d, 'y') and starts-with(e, 'z')]",
        "//b[contains(translate(c, 'ABC', 'abc'), 'x')]",
        "//b[contains(translate(c/text(), 'A', 'a'), 'x') and contains(translate(@d, 'A', 'a'), 'y')]",
        "/a[contains('red green', b)]",
        "/a[1][contains(b, 5)]",
        "/a[starts-with(b, c)]",
        "//b[../c = 'x']",
        "//b[../@c > 3]",
        "//b[../@c = ../@d]",
        "//a[@id = //b/@ref]",
        "//*[namespace::* = 'z']",
        "//*[name(//*[last()]) = 'x']",
    ],
)
def test_common_shapes_stay_accepted(text: str) -> None:
    assert compile_xpath(text).matches("<zz/>") is False


@pytest.mark.parametrize(
    "text",
    [
        "//a//b//c//d//e",
        "//a[.//b[.//c]]",
        "//a[//b]",
        "//a/following-sibling::b",
        "//a/following::b[1]",
        "//a[@id = //b/@ref]",
        "//a/../b",
        "count(//a) > count(//b)",
        "//a[position() = last()]",
        "//*[contains(., 'x')]",
        "5and 6",
        "div div div",
        "* * *",
        "a-b.c1",
        "processing-instruction('x')",
        "self::node()[text() | comment()]",
        "id('x')/b",
        "/child::a/attribute::b",
        "namespace::*",
        "translate(normalize-space(concat(a, 'x')), 'x', 'y') = substring-before('a-b', '-')",
        "-a + 3 * 2 div 4 mod 3 - -1",
    ],
)
def test_the_whole_language_is_accepted(text: str) -> None:
    """MAT-52: XPath 1.0 with its axes, operators and functions."""
    engine = XPathEngine()
    engine.add(1, text, 1)
    assert engine.match(Event(xml="<zz/>")) in ([], [1])


@pytest.mark.parametrize(
    "constraint",
    [
        7,
        ("/a", "b"),
        ("/a", {"": "urn:x"}),
        ("/a", {"1p": "urn:x"}),
        ("/a", {"p": ""}),
        ("/a", {"p": "urn:\n"}),
        ("/a", {"xml": "urn:x"}),
        ("/a", {f"p{n}": "urn:x" for n in range(MAX_NAMESPACES + 1)}),
    ],
)
def test_constraints_of_another_form_are_refused(constraint: object) -> None:
    with pytest.raises(InvalidConstraint):
        XPathEngine().add(1, cast("Constraint", constraint), 1)


def test_namespaces_are_part_of_the_question() -> None:
    engine = XPathEngine()
    engine.add(1, ("/p:a", {"p": "urn:one"}), 1)
    engine.add(2, ("/p:a", {"p": "urn:two"}), 2)
    engine.add(3, ("/q:a/@q:b", {"q": "urn:one", "r": "urn:unused"}), 4)
    engine.add(4, "/a", 8)
    engine.add(5, "/*[@xml:lang='en']", 16)
    assert engine.match(Event(xml='<a xmlns="urn:one" b="1"/>')) == [1]
    assert engine.match(Event(xml='<z:a xmlns:z="urn:one" z:b="1"/>')) == [1, 3]
    assert engine.match(Event(xml='<a xml:lang="en"/>')) == [4, 5]


def test_the_context_is_the_root_element() -> None:
    """A relative path starts at the root element, as lxml has it; an absolute one above it."""
    assert compile_xpath("b = 1").matches("<a><b>1</b></a>")
    assert not compile_xpath("a/b = 1").matches("<a><b>1</b></a>")
    assert compile_xpath(".[self::a]".replace(".[", "self::node()[")).matches("<a/>")
    assert compile_xpath("/a/b[. > 1]", namespaces={}).matches("<a><b>2</b></a>")


@pytest.mark.parametrize(
    ("document", "text", "expected"),
    [
        ("<a><b>1</b></a>", "/a/b[. > 1e]", None),
        ("<a><b>5e-9</b></a>", "/a/b[. < 1e-8]", True),
        ("<a><b>1e3</b></a>", "/a/b > 999", True),
        ("<a><b>+5</b></a>", "/a/b > 1", False),
        ("<a><b>\n 5 </b></a>", "/a/b = 5", True),
        ("<a><b>5</b></a>", "/a/b = '5.0'", False),
        ("<a><b>5</b></a>", "/a/b = 5.0", True),
        ("<a><b>x</b></a>", "/a/b != 5", True),
        ("<a><b>1</b><b>9</b></a>", "/a[b > 5 and b < 3]", True),
        ("<a><b>1</b><b>9</b></a>", "/a/b[. > 5 and . < 3]", False),
        ("<a><b>1</b><b>2</b></a>", "/a/b != 1 and /a/b = 1", True),
        ("<a><s><p>9</p><y>9</y></s><s><p>1</p><y>1</y></s></a>", "/a/s[p > 5 and y < 5]", False),
        ("<a><b>1<c>2</c>3</b></a>", "/a/b = 123", True),
        ("<a><b>1<!--9-->2</b></a>", "/a/b = 12 and /a/b/text() = 1", True),
        ("<a/>", "count(/a/b)", False),
        ("<a/>", "0 div 0", False),
        ("<a/>", "string(/a/b)", False),
        ("<a/>", "'x'", True),
        ("<a/>", "-1", True),
        ("<a/>", "/", True),
        ("<a/>", "/a/b != 1", False),
        ("<a/>", "not(/a/b = 1)", True),
        ("<a/>", "/a[contains(b, '')]", True),
        ("<a><b>x</b><b>y</b></a>", "/a[contains(b, 'y')]", False),
    ],
)
def test_the_semantics_of_xpath(document: str, text: str, expected: bool | None) -> None:
    """Node-sets compare existentially, string values are concatenated, the boolean value of the result decides."""
    if expected is None:
        with pytest.raises(InvalidConstraint):
            compile_xpath(text)
    else:
        assert compile_xpath(text).matches(document) is expected


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("/a/b", "/a/b[c > 1]", True),
        ("/a/b[c > 1]", "/a/b", False),
        ("/a/b[c > 1]", "/a/b[c > 2]", True),
        ("/a/b[c > 2]", "/a/b[c > 1]", False),
        ("/a/b[c >= 1]", "/a/b[c > 1]", True),
        ("/a/b[c > 1]", "/a/b[c >= 1]", False),
        ("/a/b[c > 1]", "/a/b[c = 2]", True),
        ("/a/b[c < 5]", "/a/b[c = '4']", True),
        ("/a/b[c > 1]", "/a/b[d < 3 and c > 1]/e", True),
        ("/a/b[c > 1 and d]", "/a/b[c > 2][d < 3]", True),
        ("/a/b[c > 1 and d]", "/a/b[c > 2] and /a/b[d < 3]", False),
        ("//b", "/a/b[@c]", True),
        ("/a//c", "/a/b/c", True),
        ("/a/*/c", "/a/b/c = 'x'", True),
        ("/a/b", "/a/*", False),
        ("/a/c", "/a//c", False),
        ("/a/b = 'x' or /a/b = 'y'", "/a/b = 'y'", True),
        ("/a/b = 'y'", "/a/b = 'x' or /a/b = 'y'", False),
        ("/a[not(b > 2)]", "/a[not(b > 1)]", True),
        ("/a[not(b > 1)]", "/a[not(b)]", True),
        ("/a[contains(b, 'x')]", "/a[contains(b, 'xy')]", True),
        ("count(//a[1]) > 2", "count( //a[1] ) > 3", True),
        ("count(//a[1]) > 2", "count(//a[2]) > 3", False),
        ("//a[2]", " // a [ 2 ]", True),
        ("/a/b != 3", "/a/b > 3", True),
    ],
)
def test_covers(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected
    assert matching.covers("xpath", wide, narrow) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/menu/softdrinks[price > 3]", "/menu/softdrinks exists, but no price > 3: price = 2.90"),
        ("/menu/softdrinks[price>1 and year>2003]", "/menu/softdrinks exists, but no year > 2003: year = 2003"),
        ("/menu/softdrinks[sugar]/price", "/menu/softdrinks exists, but has no sugar"),
        ("/menu/softdrinks/sugar = 1", "/menu/softdrinks exists, but has no sugar"),
        ("/food//price", "there is no /food"),
        ("/menu/softdrinks/price = 3", "no /menu/softdrinks/price = 3: /menu/softdrinks/price = 2.90"),
        ("count(//price) > 2", "no count(//price) > 2: count(//price) = 1"),
        ("not(//price)", "//price holds"),
        ("//price and //sugar", "there is no //sugar"),
        ("//sugar or //salt", "there is no //sugar; and there is no //salt"),
        ("//price[2]", "//price exists, but for none of them holds 2"),
        ("string(//sugar)", "string(//sugar) is ''"),
        ("(//price)[2]/x", "(//price)[2]/x finds nothing"),
        (
            "/menu[softdrinks[price > 2] and softdrinks[price > 3]]",
            "/menu exists, but has no softdrinks[price > 3]",
        ),
    ],
)
def test_explain_names_what_failed(text: str, expected: str) -> None:
    engine = XPathEngine()
    engine.add(1, text, 1)
    event = Event(xml="<menu><softdrinks><price>2.90</price><year>2003</year></softdrinks></menu>")
    assert engine.explain(1, event) == f"failed: {expected}"
    with pytest.raises(KeyError):
        engine.explain(2, event)


def test_conditions_that_no_single_element_has_are_told_apart() -> None:
    engine = XPathEngine()
    engine.add(1, "/m/s[p > 1 and y > 1]", 1)
    told = engine.explain(1, Event(xml="<m><s><p>2</p><y>1</y></s><s><p>1</p><y>2</y></s></m>"))
    assert told == "failed: /m/s exists, but none of them has both p > 1 and y > 1"


def test_replacing_removing_and_counting() -> None:
    engine = XPathEngine()
    engine.add(1, "/a/b[c > 1]", 1)
    engine.add(2, "/a/b[ c>1 ]", 2)
    engine.add(1, "/a[2]", 4)
    assert len(engine) == 2 and engine.match(Event(xml="<a><b><c>2</c></b></a>")) == [2]
    engine.remove(2)
    with pytest.raises(KeyError):
        engine.remove(2)
    assert engine.statistics().detail["general"] == 1 and engine.statistics().detail["indexed"] == 0
