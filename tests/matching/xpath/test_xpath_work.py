"""Counted work: what a meter affords is decided as without one, and what it does not afford is said to be open."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from tests.matching.xpath.test_xpath_equivalence import NAMESPACES, make_document, make_xpath, randoms
from veena import Event
from veena.errors import InvalidConstraint
from veena.matching.base.work import EVALUATION_WORK, EVENT_WORK, PYTHON_WORK, STEP_WORK, Meter, unlimited
from veena.matching.xpath.document import MAX_DOCUMENT_NODES, document_size, parse_document
from veena.matching.xpath.engine import XPathEngine
from veena.matching.xpath.limits import Cost

WIDE = "<r>" + "<b><c>x</c></b>" * 1000 + "</r>"


def small_meter(r: Random) -> Meter:
    """A meter that often has too little left."""
    meter = Meter(r.choice((0, 100, 1000, 10_000, EVALUATION_WORK)))
    meter.begin()
    for _ in range(r.choice((0, 0, 1, 2))):
        meter.affords(r.choice((0, 1, EVALUATION_WORK)))
    meter.spent += r.choice((0, EVENT_WORK - 2000, EVENT_WORK - 200, EVENT_WORK))
    return meter


@settings(max_examples=80)
@given(randoms)
def test_a_meter_leaves_open_and_never_changes_a_verdict(r: Random) -> None:
    """SEC: matched is surely matched; what matches is matched or open; destinations are never narrower."""
    engine = XPathEngine()
    for number in range(20):
        try:
            engine.add(number, (make_xpath(r), NAMESPACES), 1 << number)
        except InvalidConstraint:
            continue
    for _ in range(4):
        event = Event(xml=make_document(r))
        expected = engine.match(event)
        matched, undecided = engine.match_within(event, small_meter(r))
        assert set(matched) <= set(expected) <= {*matched, *undecided}
        assert not set(matched) & set(undecided) and undecided == sorted(undecided)
        reached = engine.destinations_within(event, small_meter(r))
        assert reached & engine.destinations(event) == engine.destinations(event)


@settings(max_examples=30)
@given(randoms)
def test_the_same_work_is_counted_everywhere(r: Random) -> None:
    """Budgets count work and not time: an engine that was shipped counts as the one that it was taken of."""
    engine = XPathEngine()
    for number in range(12):
        try:
            engine.add(number, (make_xpath(r), NAMESPACES), 1)
        except InvalidConstraint:
            continue
    again = XPathEngine.from_snapshot(engine.snapshot())
    event = Event(xml=make_document(r))
    engine.match(event)
    again.match(event)  # so that both know the document's states
    counted = []
    for each in (engine, again):
        meter = unlimited()
        each.match_within(event, meter)
        counted.append(meter.spent)
    assert counted[0] == counted[1] > 0


@pytest.mark.parametrize(
    "text", ["//b[//c[//b]]", "//*[//*[//*[last()]]]", "//b[. = //c]", "count(//b/following::c) > 3", "//b[../b > 4]"]
)
def test_what_costs_too_much_is_not_begun(text: str) -> None:
    """SEC: a few searches inside each other on one event of 16 kB are for nobody's loop: they stay open at once."""
    engine, meter = XPathEngine(), Meter()
    for number in range(10):
        engine.add(number, f"{text} or {number}=99", 1 << number)
    meter.begin()
    matched, undecided = engine.match_within(Event(xml=WIDE), meter)
    assert matched == [] and undecided == list(range(10))
    assert meter.spent <= EVENT_WORK + PYTHON_WORK * MAX_DOCUMENT_NODES


def test_an_element_that_is_not_there_decides_what_costs_too_much() -> None:
    engine, meter = XPathEngine(), Meter()
    for number, text in enumerate(
        ("//b[//c[//c]]/nowhere", "//nowhere = //b[//c[//c]]", "//nowhere[//b[//c]] = false()", "//p:b[//c[//c]]")
    ):
        engine.add(number, (text, {"p": "urn:p"}), 1)
    meter.begin()
    assert engine.match_within(Event(xml=WIDE), meter) == ([], [2])


def test_events_and_steps_have_shares() -> None:
    """Many cheap expressions share an event's budget, and many events that of a step; the next step begins anew."""
    engine, meter = XPathEngine(), Meter()
    for number in range(600):
        engine.add(number, f"count(//b[{number + 1}]/c) mod 2 = {number % 2}", 1)
    event = Event(xml=WIDE)
    expected = engine.match(event)
    meter.begin()
    open_ones = []
    for _ in range(6):
        before = meter.spent
        meter.event()
        matched, undecided = engine.match_within(event, meter)
        assert set(matched) == set(expected) - set(undecided)
        assert meter.spent - before <= EVENT_WORK + PYTHON_WORK * MAX_DOCUMENT_NODES
        open_ones.append(len(undecided))
    assert 0 < open_ones[0] < 600 == open_ones[-1], open_ones
    assert meter.spent <= STEP_WORK + 6 * PYTHON_WORK * MAX_DOCUMENT_NODES
    meter.begin()
    assert len(engine.match_within(event, meter)[1]) == open_ones[0]


def test_the_index_has_a_share_as_well() -> None:
    """Thousands of questions at every element of a large document: no walk, look-up or comparison goes on unbounded."""
    engine, meter = XPathEngine(), Meter()
    for number in range(3000):
        engine.add(number, f"//b[not(x{number}) and c != 'x' and c != '{number}']", 1)
    meter.begin()
    matched, undecided = engine.match_within(Event(xml=WIDE), meter)
    assert matched == [] and undecided == list(range(3000))
    assert meter.spent <= EVENT_WORK + PYTHON_WORK * 4 * MAX_DOCUMENT_NODES
    assert engine.destinations_within(Event(xml=WIDE), meter) == 1, "never narrower"


def test_explain_says_that_it_does_not_find_out() -> None:
    engine = XPathEngine()
    engine.add(1, "//b[//c[//c[. = 'y']]]", 1)
    assert "costs more than is spent" in engine.explain(1, Event(xml=WIDE))
    assert engine.explain(1, Event(xml="<r><b/></r>")).startswith("failed: ")


def test_depth_counts_in_small_documents() -> None:
    """What descends from nodes that lie in each other meets a node once for each of its ancestors."""
    deep = parse_document("<a>" * 60 + "</a>" * 60)
    flat = parse_document("<r>" + "<a/>" * 60 + "</r>")
    descending = Cost(5)
    assert descending.work(document_size(deep, 0)) > 100 * descending.work(document_size(flat, 0))
