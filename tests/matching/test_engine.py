"""Every engine of the registry is held to one contract, with a plain scan as the judge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from veena import Event, matching
from veena.errors import InvalidConstraint
from veena.matching.base.engine import MATCHES, Constraint, DestinationCounts, Engine
from veena.matching.simple.topic import TopicEngine

NAMES = matching.names()


@dataclass(frozen=True, slots=True)
class Language:
    """What the judge needs to know of an engine."""

    constraints: st.SearchStrategy[Constraint]
    events: st.SearchStrategy[Event]
    holds: Callable[[Constraint, Event], bool]
    #: A constraint that no engine of this name stores.
    refused: Constraint


TAG_VALUES = st.sampled_from(["1", "2", "3", ""])
TAG_NAMES = st.sampled_from("ABCD")
NUMBERS = st.sampled_from([0, 1, 2, 10, 2.5, -1])
PROPERTIES = st.dictionaries(
    st.sampled_from("xyz"), st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["a", "b"])), max_size=3
)


def _tags_text(pairs: dict[str, str]) -> Constraint:
    return ",".join(f"{tag}={value}" for tag, value in pairs.items())


def _tags_hold(constraint: Constraint, event: Event) -> bool:
    for pair in str(constraint).split(","):
        tag, value = pair.split("=")
        if tag not in event.tag_values or value not in ("*", event.tag_values[tag]):
            return False
    return True


def _selector_holds(constraint: Constraint, event: Event) -> bool:
    assert isinstance(constraint, tuple) and isinstance(constraint[1], str)
    return constraint[0] == event.topic and matching.compile_selector(constraint[1]).matches(event.properties)


def _joined(terms: st.SearchStrategy[str], words: tuple[str, str, str]) -> st.SearchStrategy[str]:
    both, either, no = words
    return st.recursive(
        terms,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from([both, either]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            inner.map(lambda text: f"{no} ({text})"),
        ),
        max_leaves=4,
    )


SELECTOR_TERMS = st.one_of(
    st.builds(lambda n, o, v: f"{n} {o} {v}", st.sampled_from("xyz"), st.sampled_from(["=", "<>", "<", ">="]), NUMBERS),
    st.builds(lambda n, v: f"{n} = '{v}'", st.sampled_from("xyz"), st.sampled_from("ab")),
    st.builds(lambda n: f"{n} BETWEEN 1 AND 2.5", st.sampled_from("xyz")),
    st.builds(lambda n: f"{n} IN ('a', 'c')", st.sampled_from("xyz")),
    st.builds(lambda n: f"{n} LIKE 'a%'", st.sampled_from("xyz")),
    st.builds(lambda n: f"{n} IS NULL", st.sampled_from("xyz")),
    st.just(""),
)
TRADER_TERMS = st.one_of(
    st.builds(
        lambda n, o, v: f"{n} {o} {v}", st.sampled_from("xyz"), st.sampled_from(["==", "!=", "<", ">="]), NUMBERS
    ),
    st.builds(lambda n, v: f"{n} == '{v}'", st.sampled_from("xyz"), st.sampled_from("ab")),
    st.builds(lambda n: f"exist {n}", st.sampled_from("xyz")),
)
XPATHS = st.sampled_from(
    [
        "/m/a[b>1]", "/m/a[b>2]", "/m/a[b=1]", "//b", "//b[.='2']", "/m/a[@k='u']/b", "/m/a[b and @k]", "count(//b)>1",
        "not(//b)", "/m/a[2]", "//a[b>1 or @k='w']", "/n", "contains(/m/a/b, '1')",
    ]
)  # fmt: skip
ITEMS = st.lists(
    st.tuples(st.sampled_from(["1", "2", "21", ""]), st.sampled_from([' k="u"', ' k="w"', ""])), max_size=3
)


def _document(items: list[tuple[str, str]]) -> Event:
    return Event(xml="<m>" + "".join(f"<a{key}>{f'<b>{b}</b>' if b else ''}</a>" for b, key in items) + "</m>")


def _xpath_holds(constraint: Constraint, event: Event) -> bool:
    assert isinstance(event.xml, str)
    return bool(etree.XPath(f"boolean({constraint})")(etree.fromstring(event.xml)))


LANGUAGES: dict[str, Language] = {
    "integer": Language(
        st.integers(0, 3) | st.just((1 << 32) - 1),
        st.builds(Event, integer=st.none() | st.integers(0, 3)),
        lambda constraint, event: constraint == event.integer,
        1 << 32,
    ),
    "topic": Language(
        st.sampled_from(["a", "A", "a/b", "é"]),
        st.builds(Event, topic=st.none() | st.sampled_from(["a", "A", "a/b", "é", ""])),
        lambda constraint, event: constraint == event.topic,
        "",
    ),
    "tags": Language(
        st.dictionaries(TAG_NAMES, TAG_VALUES | st.just("*"), min_size=1, max_size=4).map(_tags_text),
        st.builds(Event, tags=st.none() | st.dictionaries(TAG_NAMES, TAG_VALUES | st.just("*"), max_size=4)),
        _tags_hold,
        "A=1,B",
    ),
    "selector": Language(
        st.tuples(
            st.sampled_from("st"),
            _joined(SELECTOR_TERMS.filter(bool), ("AND", "OR", "NOT")) | st.just(""),
        ),
        st.builds(Event, topic=st.sampled_from("stu"), properties=PROPERTIES),
        _selector_holds,
        ("s", "x ="),
    ),
    "constraint": Language(
        _joined(TRADER_TERMS, ("and", "or", "not")),
        st.builds(Event, properties=PROPERTIES),
        lambda constraint, event: matching.compile_constraint(str(constraint)).matches(event.properties),
        "x ==",
    ),
    "xpath": Language(XPATHS, ITEMS.map(_document), _xpath_holds, "/m["),
}

#: Destinations share bits, so that a removal has to know who else leads there.
DESTINATIONS = st.integers(0, 15) | st.sampled_from([1 << 40, 1 << 100])


def _fill(engine: Engine, data: st.DataObject, language: Language) -> dict[int, tuple[Constraint, int]]:
    """Adds, replacements, redirections and removals; what should be in the engine after them."""
    profiles: dict[int, tuple[Constraint, int]] = {}
    _change(engine, profiles, data, language)
    return profiles


def _change(
    engine: Engine, profiles: dict[int, tuple[Constraint, int]], data: st.DataObject, language: Language
) -> None:
    for profile_id in data.draw(st.lists(st.integers(0, 9), max_size=14)):
        what = data.draw(st.sampled_from(("add", "remove", "redirect"))) if profile_id in profiles else "add"
        if what == "remove":
            engine.remove(profile_id)
            del profiles[profile_id]
        elif what == "redirect":
            profiles[profile_id] = profiles[profile_id][0], data.draw(DESTINATIONS)
            engine.redirect(profile_id, *profiles[profile_id])
        else:
            profiles[profile_id] = data.draw(language.constraints), data.draw(DESTINATIONS)
            engine.add(profile_id, *profiles[profile_id])


def _judge(engine: Engine, profiles: dict[int, tuple[Constraint, int]], event: Event, language: Language) -> None:
    expected = [id_ for id_, (constraint, _) in sorted(profiles.items()) if language.holds(constraint, event)]
    destinations = 0
    for profile_id in expected:
        destinations |= profiles[profile_id][1]
    assert engine.match(event) == expected
    assert engine.destinations(event) == destinations
    for profile_id in profiles:
        assert (engine.explain(profile_id, event) == MATCHES) == (profile_id in expected)


def test_every_engine_has_a_language_here() -> None:
    assert set(LANGUAGES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_an_engine_answers_as_a_scan_does(name: str, data: st.DataObject) -> None:
    """MAT-02, MAT-03, DST-04..06, PGR-13: as profiles come, change and go, with a snapshot in between."""
    language = LANGUAGES[name]
    engine = matching.create(name)
    profiles = _fill(engine, data, language)
    events = data.draw(st.lists(language.events, min_size=1, max_size=4))
    for event in events:
        _judge(engine, profiles, event, language)
    assert len(engine) == len(profiles) == engine.statistics().profiles
    restored = matching.from_snapshot(engine.snapshot())
    for event in events:
        _judge(restored, profiles, event, language)
    for profile_id in list(profiles):
        restored.remove(profile_id)
        del profiles[profile_id]
        _judge(restored, profiles, events[0], language)
    assert restored.statistics().constraints == 0


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_covering_is_never_wrongly_true(name: str, data: st.DataObject) -> None:
    language = LANGUAGES[name]
    wide, narrow = data.draw(language.constraints), data.draw(language.constraints)
    assert matching.covers(name, wide, wide) in (True, False)
    if matching.covers(name, wide, narrow):
        for event in data.draw(st.lists(language.events, min_size=5, max_size=10)):
            assert language.holds(wide, event) or not language.holds(narrow, event)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(data=st.data())
def test_a_refused_constraint_changes_nothing(name: str, data: st.DataObject) -> None:
    language = LANGUAGES[name]
    engine = matching.create(name)
    constraint = data.draw(language.constraints)
    engine.add(7, constraint, 1)
    for profile_id in (7, 8):
        with pytest.raises(InvalidConstraint):
            engine.add(profile_id, language.refused, 2)
    assert len(engine) == 1
    _judge(engine, {7: (constraint, 1)}, data.draw(language.events), language)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5)
@given(data=st.data())
def test_bad_ids_and_destinations_are_refused(name: str, data: st.DataObject) -> None:
    engine = matching.create(name)
    constraint = data.draw(LANGUAGES[name].constraints)
    with pytest.raises(KeyError):
        engine.remove(1)
    with pytest.raises(ValueError, match="profile id -1"):
        engine.add(-1, constraint, 1)
    with pytest.raises(ValueError, match="negative"):
        engine.add(1, constraint, -1)
    with pytest.raises(ValueError, match="bits"):
        engine.add(1, constraint, 1 << (1 << 17))
    assert len(engine) == 0


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5)
@given(data=st.data())
def test_identical_constraints_are_stored_once_and_clients_are_many(name: str, data: st.DataObject) -> None:
    """DST-04, DST-08: 100 profiles of one constraint are one evaluation; destinations beyond 64 bits work."""
    language = LANGUAGES[name]
    engine = matching.create(name)
    constraint = data.draw(language.constraints)
    for index in range(100):
        engine.add(index, constraint, 1 << index)
    assert engine.statistics().constraints == 1
    for event in data.draw(st.lists(language.events, max_size=5)):
        holds = language.holds(constraint, event)
        assert engine.match(event) == (list(range(100)) if holds else [])
        assert engine.destinations(event) == ((1 << 100) - 1 if holds else 0)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5)
@given(data=st.data())
def test_a_snapshot_is_plain_columns(name: str, data: st.DataObject) -> None:
    engine = matching.create(name)
    _fill(engine, data, LANGUAGES[name])
    snapshot = engine.snapshot()
    assert snapshot["engine"] == name
    assert isinstance(snapshot["version"], int)
    for column in snapshot.values():
        assert isinstance(column, int | str | bytes | list | np.ndarray)
        if isinstance(column, np.ndarray):
            assert column.dtype != object
        if isinstance(column, list):
            assert all(value is None or isinstance(value, int | str) for value in column)
    with pytest.raises(ValueError, match="snapshot"):
        type(engine).from_snapshot({**snapshot, "version": -1})


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=20, suppress_health_check=[HealthCheck.filter_too_much]
)  # a selector is long, and many are alike
@given(data=st.data())
def test_a_loaded_engine_changes_like_any_other(name: str, data: st.DataObject) -> None:
    """MAT-02, MAT-03, DST-04..06: load, add, replace, remove, and load that again; always what a scan says."""
    language = LANGUAGES[name]
    engine = matching.create(name)
    profiles = _fill(engine, data, language)
    events = data.draw(st.lists(language.events, min_size=1, max_size=3))
    for _ in range(3):
        engine = matching.from_snapshot(engine.snapshot())
        for event in events:
            _judge(engine, profiles, event, language)
        _change(engine, profiles, data, language)
        for event in events:
            _judge(engine, profiles, event, language)
    for profile_id in profiles:
        engine.remove(profile_id)
    assert len(engine) == engine.statistics().constraints == 0


def test_an_unknown_engine_is_named_with_those_that_exist() -> None:
    """MAT-01."""
    with pytest.raises(matching.UnknownEngine, match=r"'regex'.*integer, topic, tags, selector"):
        matching.create("regex")


class LoudTopics(TopicEngine):
    """A seventh engine: topics in capitals."""

    name = "loud"


def covers(wide: Constraint, narrow: Constraint) -> bool:
    return wide == narrow


def test_a_seventh_engine_is_one_module_and_one_line() -> None:
    """MAT-01: the registry is extensible."""
    sys.modules["loud_engine"] = sys.modules[__name__]
    matching.register("loud", "loud_engine:LoudTopics")
    try:
        engine = matching.create("loud")
        engine.add(1, "NEWS", 1)
        assert isinstance(engine, LoudTopics)
        assert engine.match(Event(topic="NEWS")) == [1]
        assert matching.covers("loud", "NEWS", "NEWS")
        with pytest.raises(ValueError, match="choose another name"):
            matching.register("loud", "loud_engine:Other")
        with pytest.raises(ValueError, match=r"package\.module:Class"):
            matching.register("quiet", "loud_engine")
    finally:
        del matching.ENGINES["loud"], sys.modules["loud_engine"]


def test_importing_the_package_loads_no_engine() -> None:
    code = (
        "import sys, veena.matching; names = ('numpy', 'lxml', 'veena.matching.tags.engine'); "
        "print([m for m in names if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=60))
def test_counts_of_destinations_are_those_of_a_dict(steps: list[tuple[bool, int]]) -> None:
    """PGR-09..11, DST-05: counting and taking back in any order, and a whole set at once."""
    counts = DestinationCounts()
    plain: list[int] = []
    for adding, destination in steps:
        if adding:
            counts.count(destination)
            plain.append(destination)
        elif plain:
            counts.discount(plain.pop(destination % len(plain)))
    expected = {1 << bit: sum(destination >> bit & 1 for destination in plain) for bit in range(3)}
    assert dict(counts.items()) == {bit: count for bit, count in expected.items() if count}
    twice = DestinationCounts()
    twice.count_all(counts)
    twice.count_all(counts)
    assert dict(twice.items()) == {bit: 2 * count for bit, count in expected.items() if count}
    twice.discount_all(counts)
    assert dict(twice.items()) == dict(counts.items())
    twice.discount_all(counts)
    assert twice.mask == 0
    at_once = DestinationCounts()
    at_once.count_many(plain)
    assert dict(at_once.items()) == dict(counts.items())
    for destination in plain:
        at_once.discount(destination)
    assert at_once.mask == 0
