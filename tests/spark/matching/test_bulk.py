"""Bulk matching says of every pair what a broker's engine says (ORD-04), however the events lie in columns."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from tests.matching.engines import test_constraint_engine, test_selector_engine
from tests.matching.test_engine import LANGUAGES
from tests.matching.xpath import test_xpath_equivalence
from veena import Event, matching
from veena.core.wire.section import encode_section
from veena.errors import InvalidConstraint, InvalidEvent
from veena.event import EventId
from veena.matching.base.engine import Constraint, Engine
from veena.runtime.store.rows import pack_condition
from veena.spark.matching import exact as match_exact
from veena.spark.matching import snapshot as match_snapshot
from veena.spark.matching.bulk import destinations, match
from veena.spark.matching.rows import WrongColumns
from veena.spark.matching.snapshot import InvalidProfile, Profile, profile_set

PROFILE_TABLE = "profile_id bigint, engine string, condition binary, destination bigint"


def _is_sendable(event: Event) -> bool:
    try:
        encode_section(event)
    except InvalidEvent:
        return False
    return True


def _accepted(engine: str, constraint: Constraint) -> bool:
    try:
        matching.create(engine).add(1, constraint, 1)
    except InvalidConstraint:
        return False
    return True


xpaths = test_xpath_equivalence.randoms.map(
    lambda random: (test_xpath_equivalence.make_xpath(random), test_xpath_equivalence.NAMESPACES)
).filter(lambda constraint: _accepted("xpath", constraint))
documents = test_xpath_equivalence.randoms.map(lambda random: Event(xml=test_xpath_equivalence.make_document(random)))
#: The generators that the engines themselves are tested with.
CONSTRAINTS: dict[str, st.SearchStrategy[Any]] = {
    **{name: language.constraints for name, language in LANGUAGES.items()},
    "selector": LANGUAGES["selector"].constraints
    | st.tuples(test_selector_engine.topics, test_selector_engine.selectors).filter(
        lambda constraint: _accepted("selector", constraint)
    ),
    "constraint": LANGUAGES["constraint"].constraints
    | test_constraint_engine.constraints.filter(lambda constraint: _accepted("constraint", constraint)),
    "xpath": LANGUAGES["xpath"].constraints | xpaths,
}
EVENTS = st.one_of(
    *[language.events for language in LANGUAGES.values()],
    test_selector_engine.events,
    test_constraint_engine.events,
    documents,
).filter(_is_sendable)


@st.composite
def profile_lists(draw: st.DrawFn) -> list[Profile]:
    """Some of each engine, ids in no order, destinations that share bits."""
    drawn = [
        (name, constraint)
        for name, constraints in CONSTRAINTS.items()
        for constraint in draw(st.lists(constraints, min_size=8, max_size=20))
    ]
    ids = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=len(drawn), max_size=len(drawn), unique=True))
    bits = draw(st.sampled_from([62, 200]))
    return [
        Profile(number, name, constraint, 1 << number % bits)
        for number, (name, constraint) in zip(ids, drawn, strict=True)
    ]


def frame_of(spark: SparkSession, events: list[Event]) -> DataFrame:
    """As the table `events` has them, as far as matching is concerned."""
    columns = {
        "broker": pa.array([f"b{number % 3}" for number in range(len(events))]),
        "offset": pa.array(range(len(events)), pa.int64()),
        "id": pa.array([None if event.id is None else str(event.id) for event in events], pa.string()),
        "priority": pa.array([event.priority for event in events], pa.int32()),
        "topic": pa.array([event.topic for event in events], pa.string()),
        "integer": pa.array([event.integer for event in events], pa.int64()),
        "to": pa.array([list(event.to) for event in events], pa.list_(pa.string())),
        "section": pa.array([encode_section(event) for event in events], pa.binary()),
    }
    return spark.createDataFrame(pa.table(columns))


def engines_of(profiles: list[Profile]) -> list[Engine]:
    """As a broker has them, numbered in the order of the list."""
    engines = {name: matching.create(name) for name in matching.names()}
    for number, profile in enumerate(profiles):
        assert not isinstance(profile.condition, bytes)
        engines[profile.engine].add(number, profile.condition, profile.destination)
    return list(engines.values())


def expected_pairs(profiles: list[Profile], events: list[Event]) -> set[tuple[int, int]]:
    engines = engines_of(profiles)
    return {
        (at, profiles[found].profile_id)
        for at, event in enumerate(events)
        for engine in engines
        for found in engine.match(event)
    }


def pairs_of(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["offset"], row["profile_id"]) for row in frame.collect())


@settings(max_examples=4, suppress_health_check=list(HealthCheck), database=None)
@given(profile_lists(), st.lists(EVENTS, min_size=40, max_size=80))
def test_every_verdict_is_the_broker_s(spark: SparkSession, profiles: list[Profile], events: list[Event]) -> None:
    """ORD-02, ORD-04, MAT-02, DST-06: profiles and events of all engines in one job, by joins and by engines alone."""
    chosen = profile_set(profiles)
    frame = frame_of(spark, events)
    assert pairs_of(match(frame, chosen)) == sorted(expected_pairs(profiles, events))
    found = destinations(frame.select("broker", "offset", "section"), chosen).collect()
    masks = {
        row["offset"]: int.from_bytes(row["destinations"], "big") if chosen.is_wide else row["destinations"]
        for row in found
    }
    engines = engines_of(profiles)
    assert masks == {
        at: reduce(or_, [engine.destinations(event) for engine in engines]) for at, event in enumerate(events)
    }


def test_arrays_are_ascending_and_of_events_that_match(spark: SparkSession) -> None:
    frame = frame_of(spark, EXAMPLES)
    wanted = {0: [1, 4], 1: [1, 2], 2: [3, 5], 3: [6]}
    for some in (frame, frame.select("broker", "offset", "section")):
        found = match(some, list(reversed(MANY)), as_arrays=True)
        assert {row["offset"]: row["profile_ids"] for row in found.collect()} == wanted


MANY: list[Profile] = [
    Profile(1, "topic", "quotes", 1),
    Profile(2, "integer", 7, 2),
    Profile(3, "tags", "Make=Ford,Model=*", 4),
    Profile(4, "selector", ("quotes", "price > 10"), 8),
    Profile(5, "constraint", "price > 10 and $type_name == 'Steering'", 16),
    Profile(6, "xpath", "/menu/softdrinks[price>1.80]", 32),
]
EXAMPLES = [
    Event(topic="quotes", properties={"price": 12}),
    Event(topic="quotes", integer=7, properties={"price": 9.5}, headers={"type_name": "Steering"}),
    Event(tags={"Make": "Ford", "Model": "Taurus"}, properties={"price": 11.0}, headers={"type_name": "Steering"}),
    Event(xml="<menu><softdrinks><price>2</price></softdrinks></menu>"),
    Event(topic="Quotes"),
]
EXPECTED = [(0, 1), (0, 4), (1, 1), (1, 2), (2, 3), (2, 5), (3, 6)]


def test_plain_columns_are_read_where_there_is_no_section(spark: SparkSession) -> None:
    """Properties as a struct, a map of numbers or a VARIANT; tags as text or as a map; the key by any name."""
    rows = [
        (at, event.topic, event.integer, dict(event.tag_values) or None, event.xml, event.properties.get("price"))
        for at, event in enumerate(EXAMPLES)
    ]
    kinds = [event.headers.get("type_name") for event in EXAMPLES]
    frame = spark.createDataFrame(
        [
            (*row[:5], None if row[5] is None else float(str(row[5])), kind)
            for row, kind in zip(rows, kinds, strict=True)
        ],
        "number int, topic string, integer int, tags map<string,string>, xml string, price double, type_name string",
    )
    text = "array_join(transform(map_entries(tags), e -> concat(e.key, '=', e.value)), ',')"
    forms = [
        ["named_struct('price', price) as properties", "named_struct('type_name', type_name) as headers", "tags"],
        ["map('price', price) as properties", "map('type_name', type_name) as headers", f"{text} as tags"],
        [
            "to_variant_object(named_struct('price', price)) as properties",
            "to_variant_object(named_struct('type_name', type_name)) as headers",
            "tags",
        ],
    ]
    for form in forms:
        events = frame.selectExpr("number", "topic", "integer", "xml", *form)
        found = match(events, MANY, key=["number"])
        assert found.columns == ["number", "profile_id"]
        assert sorted(map(tuple, found.collect())) == EXPECTED
    masks = destinations(events, MANY, key=["number"])
    assert dict(map(tuple, masks.collect())) == {0: 9, 1: 3, 2: 20, 3: 32, 4: 0}


def test_addressees_alone_receive_an_event(spark: SparkSession) -> None:
    """EVT-05: an event with a list of addressees satisfies no profile, by a join or by an engine."""
    events = [Event(topic="quotes", to=("alice",)), Event(topic="quotes")]
    frame = frame_of(spark, events)
    for some in (frame, frame.select("broker", "offset", "section", "topic"), frame.drop("section")):
        assert pairs_of(match(some, MANY)) == [(1, 1)]
        assert sorted(row["destinations"] for row in destinations(some, MANY).collect()) == [0, 1]


def test_a_selector_sees_the_header_of_an_event(spark: SparkSession) -> None:
    """MAT-20: priority, id and time, which no section holds or which stand in it; else the column is asked for."""
    profiles = [
        Profile(1, "selector", ("q", "JMSPriority > 6")),
        Profile(2, "selector", ("q", "JMSMessageID = 'ID:alice:1:2:3'")),
        Profile(3, "selector", ("q", "JMSTimestamp = 5")),
    ]
    events = [
        Event(topic="q", priority=9, event_id=EventId("bob", 1, 2, 3), timestamp_ns=1),
        Event(topic="q", event_id=EventId("alice", 1, 2, 3), timestamp_ns=5_999_999),
    ]
    frame = frame_of(spark, events)
    assert pairs_of(match(frame, profiles)) == [(0, 1), (1, 2), (1, 3)]
    plain = frame.drop("section").selectExpr("*", "timestamp_millis(5) as published")
    assert pairs_of(match(plain, profiles)) == [(0, 1), (0, 3), (1, 2), (1, 3)]
    with pytest.raises(InvalidProfile, match=r"profile 2 .* names JMSMessageID: select the column `id`"):
        match(frame.drop("id"), profiles)


def test_a_hot_topic_is_dealt_to_all_tasks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that very many profiles want: in chunks, each pair once, and no task has all of it."""
    monkeypatch.setattr(match_exact, "CHUNK", 7)
    profiles = [Profile(number, "topic", "hot" if number % 10 else "cold", 1) for number in range(100)]
    profiles += [Profile(number, "integer", 5, 2) for number in range(100, 108)]
    events = [Event(topic="hot"), Event(topic="cold", integer=5), Event(topic="none")] * 3
    frame = frame_of(spark, events).coalesce(1)
    found = match(frame, profiles)
    assert pairs_of(found) == sorted(expected_pairs(profiles, events))
    assert found.selectExpr("spark_partition_id()").distinct().count() > 2
    assert match(frame, profiles, as_arrays=True).selectExpr("max(size(profile_ids))").collect()[0][0] == 90


def test_profiles_come_as_a_table(spark: SparkSession) -> None:
    rows = [(p.profile_id, p.engine, pack_condition(p.condition), p.destination) for p in MANY]  # type: ignore[arg-type]
    table = spark.createDataFrame(rows, PROFILE_TABLE)
    frame = frame_of(spark, EXAMPLES)
    assert pairs_of(match(frame, table)) == EXPECTED
    assert pairs_of(match(frame, table.drop("destination"))) == EXPECTED
    with pytest.raises(InvalidProfile, match="without the column `destination`"):
        destinations(frame, table.drop("destination"))
    with pytest.raises(InvalidProfile, match="expected profile_id bigint"):
        match(frame, table.drop("engine"))
    wide = destinations(
        frame, table.selectExpr("profile_id", "engine", "condition", "unhex('800000000000000001') destination")
    )
    assert {row["destinations"] for row in wide.collect()} == {bytes(9), bytes.fromhex("800000000000000001")}
    assert match(frame, table.where("false")).count() == 0
    assert {row["destinations"] for row in destinations(frame, table.where("false")).collect()} == {0}


def test_wrong_profiles_are_named_or_left_out(spark: SparkSession) -> None:
    good = Profile(1, "topic", "quotes")
    wrong: list[Any] = [
        Profile(2, "selector", ("quotes", "price >")),
        Profile(3, "sql", "x"),
        Profile(4, "topic", b"\xc1"),
        Profile(1, "integer", 7),
        Profile(5, "integer", 7, -1),
        (6, "topic", None),
        {"profile_id": 7, "engine": "topic", "condition": ""},
    ]
    for each in wrong:
        number = each["profile_id"] if isinstance(each, dict) else each[0]
        with pytest.raises(InvalidProfile, match=rf"profile {number} \("):
            profile_set([good, each])
    with pytest.raises(InvalidProfile, match=r"profile 1 .*; and 2 more"):
        profile_set([good, *wrong])
    left = profile_set([good, *wrong], on_error="skip")
    assert len(left) == 1
    assert [each.profile_id for each in left.rejected] == [1, 2, 3, 4, 5, 6, 7]
    table = left.rejected_frame(spark)
    assert table.where("profile_id = 1").collect()[0]["reason"].startswith("this id is there twice")
    assert pairs_of(match(frame_of(spark, EXAMPLES), left)) == [(0, 1), (1, 1)]
    with pytest.raises(InvalidProfile, match="expected"):
        profile_set([(1, "topic")])
    with pytest.raises(ValueError, match="on_error 'maybe'"):
        profile_set([good], on_error="maybe")


def test_frames_that_cannot_be_matched_are_refused(spark: SparkSession) -> None:
    frame = frame_of(spark, EXAMPLES)
    with pytest.raises(WrongColumns, match="no broker; name the columns"):
        match(frame.drop("broker"), MANY)
    with pytest.raises(WrongColumns, match="expected `section`"):
        match(frame.select("broker", "offset"), MANY)
    with pytest.raises(WrongColumns, match=r"properties\[...\] of type array"):
        match(frame.selectExpr("broker", "offset", "map('a', array(1)) as properties"), MANY)
    with pytest.raises(PythonException, match="event at broker b1, offset 1: matching section of 1 bytes"):
        match(frame.selectExpr("broker", "offset", "if(offset = 1, x'00', section) as section"), MANY).collect()


def test_a_worker_keeps_few_sets() -> None:
    """The engines of a set are built once in a worker; older sets make room."""

    class Counted:
        def __init__(self, profiles: match_snapshot.ProfileSet) -> None:
            packed = [("topic", matching.ENGINES["topic"], profiles.snapshots["topic"])]
            self._packed = match_snapshot.Packed(profiles.ids, packed)
            self.reads = 0

        @property
        def value(self) -> Any:
            self.reads += 1
            return self._packed

    chosen = profile_set([Profile(1, "topic", "a")])
    carrier = Counted(chosen)
    engines = match_snapshot.restored("one", ("topic",), carrier)
    assert match_snapshot.restored("one", ("topic",), carrier) is engines
    assert carrier.reads == 1
    for number in range(match_snapshot.KEPT_SETS_MAX):
        match_snapshot.restored(f"other {number}", ("topic",), carrier)
    assert match_snapshot.restored("one", ("topic",), carrier) is not engines
    assert engines.engines[0].match(Event(topic="a")) == [0]
    assert engines.ids.tolist() == [1]
