"""The selector engine against a plain scan: whatever comes, goes and is asked, the answers are those of the texts."""

from __future__ import annotations

import math
from io import BytesIO
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena.errors import InvalidConstraint
from veena.event import Event, EventId
from veena.matching import covers, create, from_snapshot
from veena.matching.base.engine import Snapshot
from veena.matching.condition.like import MAX_LIKE_TEXT
from veena.matching.condition.selector_parser import parse_selector
from veena.matching.condition.tree import evaluate
from veena.matching.engines.selector import SelectorEngine, selector_attributes

BIG = 2**53
NUMBERS = [
    "0", "1", "2", "1.0", "1.5", "3", "-1", "1e300", "0x10", str(BIG), str(BIG + 1), str(-BIG - 1), str(2**64 + 1),
    "1" + "0" * 90, "4.9e-324",
]  # fmt: skip
TEXTS = ["''", "'a'", "'ab'", "'abc'", "'b'", "'1'", "'É'", "'it''s'", "'日本'"]
PATTERNS = ["'a%'", "'%b'", "'a_'", "'%'", "'ab%c'", "'_'", "'a!%%' ESCAPE '!'", "'abcde%'", "''", "'日%'"]
NAMES = ["a", "b", "c", "d"]
VALUES: list[object] = [
    None, True, False, 0, 1, 2, 3, -1, 16, 1.0, 1.5, 0.5, math.nan, math.inf, -math.inf, 1e300, BIG, BIG + 1, BIG + 2,
    -BIG - 1, 2**64, 2**64 + 1, 10**90, 10**400, -(10**400), 5e-324, "", "a", "ab", "abc", "abcdef", "b", "1", "É",
    "it's", "日本", b"a", "a%", "abc".ljust(MAX_LIKE_TEXT, "d"), "abc".ljust(MAX_LIKE_TEXT + 1, "d"),
]  # fmt: skip

names = st.sampled_from(NAMES)
numbers = st.sampled_from(NUMBERS)
texts = st.sampled_from(TEXTS)
literals = numbers | texts
terms = st.one_of(
    st.builds("{} = {}".format, names, literals | st.sampled_from(["TRUE", "FALSE"])),
    st.builds("{} <> {}".format, names, literals),
    st.builds("{} {} {}".format, names, st.sampled_from(["<", "<=", ">", ">="]), numbers),
    st.builds("{} {} {}".format, numbers, st.sampled_from(["<", "<=", ">", ">="]), names),
    st.builds("{} {}BETWEEN {} AND {}".format, names, st.sampled_from(["", "NOT "]), numbers, numbers),
    st.builds("{} IN ({}, {})".format, names, texts, texts),
    st.builds("{} NOT IN ({}, {})".format, names, texts, texts),
    st.builds("{} {}IN ({}, {})".format, names, st.sampled_from(["", "NOT "]), numbers, numbers),
    st.builds("{} {}LIKE {}".format, names, st.sampled_from(["", "NOT "]), st.sampled_from(PATTERNS)),
    st.builds("{} IS {}NULL".format, names, st.sampled_from(["", "NOT "])),
    st.builds("{} {} {} > {}".format, names, st.sampled_from("+-*/"), names, numbers),
    st.builds("{} = {}".format, names, names),
    names,
    st.just("TRUE"),
)
conjunctions = st.lists(terms, min_size=1, max_size=4).map(" AND ".join)
selectors = st.one_of(
    st.just(""),
    conjunctions,
    st.lists(conjunctions, min_size=2, max_size=3).map(" OR ".join),
    st.builds("({}) AND ({} OR {})".format, conjunctions, conjunctions, terms),
    st.builds("NOT ({})".format, conjunctions),
)
topics = st.sampled_from(["t", "u"])
properties = st.dictionaries(names, st.sampled_from(VALUES), max_size=4)
events = st.builds(lambda topic, given: Event(topic=topic, properties=given), topics, properties)
destinations = st.integers(0, 6).map(lambda bit: 1 << bit) | st.just((1 << 100) | 2) | st.just(0)
changes = st.tuples(st.integers(0, 12), topics, selectors, destinations) | st.integers(0, 12)


class Scan:
    """Every profile asked one by one by the reference interpreter."""

    def __init__(self) -> None:
        self.profiles: dict[int, tuple[str, str, int]] = {}

    def match(self, event: Event) -> list[int]:
        attributes = selector_attributes(event)
        return sorted(
            profile_id
            for profile_id, (topic, text, _) in self.profiles.items()
            if topic == event.topic and evaluate(parse_selector(text), attributes) is True
        )

    def destinations(self, event: Event) -> int:
        mask = 0
        for profile_id in self.match(event):
            mask |= self.profiles[profile_id][2]
        return mask


def _agree(engine: SelectorEngine, scan: Scan, asked: list[Event]) -> None:
    for event in asked:
        expected = scan.match(event)
        assert engine.match(event) == expected
        assert engine.destinations(event) == scan.destinations(event)
        for profile_id in scan.profiles:
            assert (engine.explain(profile_id, event) == "matches") == (profile_id in expected)


@settings(max_examples=250)
@given(st.lists(changes, max_size=30), st.lists(events, min_size=1, max_size=6))
def test_always_the_answer_of_a_scan(steps: list[tuple[int, str, str, int] | int], asked: list[Event]) -> None:
    """MAT-02, MAT-03, MAT-22, DST-06: adds, replacements and removals in any order, values of all kinds."""
    engine, scan = SelectorEngine(), Scan()
    for step in steps:
        if isinstance(step, int):
            if step in scan.profiles:
                del scan.profiles[step]
                engine.remove(step)
            else:
                with pytest.raises(KeyError):
                    engine.remove(step)
        else:
            profile_id, topic, text, destination = step
            scan.profiles[profile_id] = (topic, text, destination)
            engine.add(profile_id, (topic, text), destination)
        assert len(engine) == len(scan.profiles)
    _agree(engine, scan, asked)
    again = cast("SelectorEngine", from_snapshot(engine.snapshot()))
    _agree(again, scan, asked)
    for profile_id in list(scan.profiles)[::2]:
        del scan.profiles[profile_id]
        again.remove(profile_id)
    again.add(99, ("t", "a > 0 AND b = 'a' AND c = 'ab'"), 1)
    scan.profiles[99] = ("t", "a > 0 AND b = 'a' AND c = 'ab'", 1)
    _agree(again, scan, asked)
    for profile_id in scan.profiles:
        again.remove(profile_id)
    assert again.statistics().constraints == 0
    assert again.statistics().detail == {"topics": 0, "tables": 0, "bitmaps": 0, "formulas": 0}


def _ranges(count: int, rng: np.random.Generator) -> list[str]:
    lows = rng.integers(0, 80, (count, 3))
    return [
        f"x BETWEEN {a} AND {a + 20} AND y BETWEEN {b} AND {b + 20} AND z >= {c} AND z < {c + 20}"
        for a, b, c in lows.tolist()
    ]


def test_large_segments_with_bitmaps_agree_with_a_scan_while_they_shrink_and_grow() -> None:
    """MAT-02: thousands of ranges under one topic, added, removed at random and added again."""
    rng = np.random.default_rng(5)
    engine = SelectorEngine()
    held: dict[int, str] = dict(enumerate(_ranges(13_000, rng)))
    for profile_id, text in held.items():
        engine.add(profile_id, ("t", text), 1 << profile_id % 7)
    asked = [
        Event(topic="t", properties={"x": x, "y": y, "z": z})
        for x, y, z in [*rng.uniform(0, 100, (12, 3)).tolist(), [50, 50, 50], [20, 20, 20], [0, 0, 0], [99, 99, 99]]
    ]
    assert engine.statistics().detail["bitmaps"] == 1
    for round_of_removals in range(3):
        gone = rng.permutation(list(held))[: len(held) // 2].tolist()
        for profile_id in gone:
            engine.remove(profile_id)
            del held[profile_id]
        for profile_id, text in enumerate(_ranges(1500, rng), 10_000 * (round_of_removals + 1)):
            engine.add(profile_id, ("t", text), 1 << profile_id % 7)
            held[profile_id] = text
        bounds = {
            profile_id: [int(word) for word in text.split() if word.isdigit()] for profile_id, text in held.items()
        }
        for event in asked:
            x, y, z = (cast("float", event.properties[name]) for name in "xyz")
            expected = [
                profile_id
                for profile_id, (a, a2, b, b2, c, c2) in sorted(bounds.items())
                if a <= x <= a2 and b <= y <= b2 and c <= z < c2
            ]
            assert engine.match(event) == expected
            mask = 0
            for profile_id in expected:
                mask |= 1 << profile_id % 7
            assert engine.destinations(event) == mask


def test_many_kinds_of_rows_share_mixed_tables() -> None:
    """MAT-22: when every profile tests other attributes, the number of tables stays small and the answer right."""
    engine, scan = SelectorEngine(), Scan()
    attributes = [f"p{number}" for number in range(14)]
    rng = np.random.default_rng(3)
    for profile_id in range(300):
        chosen = rng.choice(14, int(rng.integers(1, 8)), replace=False).tolist()
        parts = [f"{attributes[at]} >= {int(rng.integers(0, 3))}" for at in chosen]
        if profile_id % 3 == 0:
            parts.append(f"s = 'v{profile_id % 2}' AND r = 'w{profile_id % 5}'")
        if profile_id % 7 == 0:
            parts.append("s LIKE '%0'")
        scan.profiles[profile_id] = ("t", " AND ".join(parts), 1 << profile_id % 5)
        engine.add(profile_id, ("t", " AND ".join(parts)), 1 << profile_id % 5)
    assert engine.statistics().detail["tables"] < 60
    asked = [
        Event(
            topic="t",
            properties={name: int(rng.integers(0, 4)) for name in attributes[skip:]} | {"s": f"v{skip % 2}", "r": "w1"},
        )
        for skip in range(8)
    ]
    assert any(scan.match(event) for event in asked)
    _agree(engine, scan, asked)
    _agree(cast("SelectorEngine", from_snapshot(engine.snapshot())), scan, asked)
    for profile_id in list(scan.profiles):
        engine.remove(profile_id)
        del scan.profiles[profile_id]
        if profile_id % 50 == 0:
            _agree(engine, scan, asked[:2])


def test_the_examples_of_the_papers() -> None:
    """MAT-20, MAT-21: topic first, then the selector; an empty selector is the topic alone."""
    engine = create("selector")
    engine.add(1, ("quotes", "price > 10 AND sym LIKE 'IB%'"), 1)
    engine.add(2, ("quotes", ""), 2)
    engine.add(3, ("orders", "price > 10 AND sym LIKE 'IB%'"), 4)
    event = Event(topic="quotes", properties={"price": 12.5, "sym": "IBM"})
    assert engine.match(event) == [1, 2]
    assert engine.destinations(event) == 3
    assert engine.match(Event(topic="quotes", properties={"price": 12.5, "sym": "SUN"})) == [2]
    assert engine.match(Event(topic="none", properties={"price": 12.5})) == []
    assert engine.match(Event(properties={"price": 12.5, "sym": "IBM"})) == []


def test_selectors_of_other_topics_are_not_evaluated() -> None:
    """MAT-20: the topic is looked up first."""
    engine = create("selector")
    for profile_id in range(100):
        engine.add(profile_id, ("a", f"x + y > {profile_id}"), 1)
    engine.match(Event(topic="b", properties={"x": 1, "y": 2}))
    assert engine.statistics().evaluations == 0
    engine.match(Event(topic="a", properties={"x": 1, "y": 2}))
    assert engine.statistics().evaluations > 0


def test_the_header_is_seen_under_the_names_of_jms() -> None:
    """MAT-22: header fields come from the event, and a property of that name does not hide them."""
    event = Event(
        topic="t",
        properties={"JMSPriority": 0},
        headers={"JMSType": "quote", "JMSCorrelationID": "c1", "JMSDeliveryMode": "PERSISTENT"},
        priority=7,
        event_id=EventId("alice", 0, 5, 1),
        timestamp_ns=1_700_000_000_123_456_789,
    )
    engine = create("selector")
    wanted = [
        "JMSPriority = 7", "JMSType = 'quote'", "JMSCorrelationID LIKE 'c%'", "JMSDeliveryMode = 'PERSISTENT'",
        "JMSTimestamp = 1700000000123", "JMSMessageID = 'ID:alice:0:5:1'",
    ]  # fmt: skip
    for profile_id, text in enumerate(wanted):
        engine.add(profile_id, ("t", text), 1)
    assert engine.match(event) == list(range(len(wanted)))
    assert engine.match(Event(topic="t")) == []


def test_one_evaluation_for_a_hundred_profiles_of_one_destination() -> None:
    """DST-04: what leads to a destination that is set is not matched again."""
    for shape in ("", "x > -{}", "x + {} > 0"):
        engine = create("selector")
        for profile_id in range(100):
            engine.add(profile_id, ("t", shape.format(profile_id)), 8)
        assert engine.destinations(Event(topic="t", properties={"x": 1})) == 8
        assert engine.statistics().evaluations == 1


@pytest.mark.parametrize(("shape", "evaluations"), [("x > -{}", 1), ("x + {} > 0", 32)])
def test_every_destination_costs_at_most_one_evaluation(shape: str, evaluations: int) -> None:
    """DST-05, DST-06: of 3,200 that all match, one for each of 32 destinations is judged, or one run of rows."""
    engine = create("selector")
    for profile_id in range(3200):
        engine.add(profile_id, ("t", shape.format(profile_id)), 1 << profile_id % 32)
    assert engine.destinations(Event(topic="t", properties={"x": 1})) == (1 << 32) - 1
    assert engine.statistics().evaluations == evaluations


def test_matching_stops_when_all_destinations_are_set() -> None:
    """DST-07: formulas behind the last missing destination are not evaluated."""
    engine = create("selector")
    for profile_id in range(4):
        engine.add(profile_id, ("t", ""), 1 << profile_id)
    for profile_id in range(4, 100):
        engine.add(profile_id, ("t", f"x + {profile_id} > 0"), 1 << profile_id % 4)
    event = Event(topic="t", properties={"x": 1})
    assert engine.destinations(event) == 15
    alone = engine.statistics().evaluations
    engine.match(event)
    assert engine.statistics().evaluations - alone >= 96
    assert alone <= 8


def test_more_destinations_than_a_word_has_bits() -> None:
    """DST-08: a broker's clients are matched in the same manner, without a limit on their number."""
    engine = create("selector")
    for client in range(500):
        engine.add(client, ("t", f"x >= {client}"), 1 << client)
    assert engine.destinations(Event(topic="t", properties={"x": 299})) == (1 << 300) - 1


def test_identical_constraints_are_stored_once() -> None:
    engine = create("selector")
    for profile_id in range(50):
        engine.add(profile_id, ("t", "x + y > 3"), 1 << profile_id % 3)
    assert engine.statistics().constraints == 1
    event = Event(topic="t", properties={"x": 2, "y": 2})
    assert engine.match(event) == list(range(50))
    assert engine.statistics().evaluations == 1
    for profile_id in range(1, 50):
        engine.remove(profile_id)
    assert engine.match(event) == [0]
    assert engine.destinations(event) == 1


def test_a_refused_add_changes_nothing() -> None:
    engine = create("selector")
    engine.add(1, ("t", "x > 1"), 1)
    with pytest.raises(InvalidConstraint) as caught:
        engine.add(1, ("t", "x > > 1"), 2)
    assert caught.value.position == 4
    bad: list[object] = ["x > 1", ("", "x > 1"), ("t", 5), 7, ("t",)]
    for constraint in bad:
        with pytest.raises(InvalidConstraint):
            engine.add(2, constraint, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="profile id"):
        engine.add(-1, ("t", ""), 1)
    assert engine.match(Event(topic="t", properties={"x": 2})) == [1]
    assert engine.destinations(Event(topic="t", properties={"x": 2})) == 1


def test_explanations_name_the_topic_or_the_term() -> None:
    engine = create("selector")
    engine.add(1, ("t", "x > 1 AND y = 'a'"), 1)
    assert engine.explain(1, Event(topic="t", properties={"x": 2, "y": "a"})) == "matches"
    assert "'u'" in engine.explain(1, Event(topic="u"))
    assert "no topic" in engine.explain(1, Event())
    assert "y" in engine.explain(1, Event(topic="t", properties={"x": 2}))
    with pytest.raises(KeyError):
        engine.explain(2, Event(topic="t"))


def test_a_snapshot_is_columns_that_numpy_can_store() -> None:
    """Shipping needs no code: arrays without objects, and flat lists of ints and texts."""
    engine = create("selector")
    for profile_id, text in enumerate(
        ["x > 1", "s = 'a'", "f = 1.5", "n = 7", "b = TRUE", "s LIKE 'ab%'", "x + y > 2"]
    ):
        engine.add(profile_id, ("t", text), 1 << (profile_id * 40))
    snapshot = engine.snapshot()
    arrays: dict[str, np.ndarray] = {}
    for name, column in snapshot.items():
        if isinstance(column, np.ndarray):
            assert column.dtype != object, name
            arrays[name] = column
        elif isinstance(column, list):
            assert all(type(item) in {int, str} for item in column), name
    stored = BytesIO()
    np.savez(stored, allow_pickle=False, **arrays)
    stored.seek(0)
    loaded = np.load(stored)
    shipped: Snapshot = {**snapshot, **{name: loaded[name] for name in arrays}}
    event = Event(topic="t", properties={"x": 2, "s": "abc", "f": 1.5, "n": 7, "b": True, "y": 1})
    assert from_snapshot(shipped).match(event) == engine.match(event) == [0, 2, 3, 4, 5, 6]
    assert from_snapshot(shipped).destinations(event) == engine.destinations(event)
    with pytest.raises(ValueError, match="version"):
        SelectorEngine.from_snapshot({**snapshot, "version": 0})


def test_covering_is_by_topic_and_selector() -> None:
    assert covers("selector", ("t", "x > 1"), ("t", "x > 2 AND y = 'a'"))
    assert covers("selector", ("t", ""), ("t", "x > 2"))
    assert not covers("selector", ("t", "x > 2"), ("t", "x > 1"))
    assert not covers("selector", ("t", ""), ("u", ""))
