"""Which conditions of a query brokers test, and which are left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from veena.spark.log.filters import Filter as Compared
from veena.spark.source.pushdown import Pushed, push

AT = datetime(2026, 11, 16, 8, tzinfo=UTC)
ID = "alice:1:2:3"


def test_ranges_and_brokers_are_planned_not_tested() -> None:
    filters: list[Filter] = [
        IsNotNull(("broker",)),
        In(("broker",), ("a", "b")),
        EqualTo(("broker",), "b"),
        GreaterThan(("offset",), 5),
        GreaterThanOrEqual(("offset",), 3),
        LessThanOrEqual(("offset",), 20),
        EqualTo(("reliable",), True),
    ]
    pushed, left = push(filters, "events")
    assert left == []
    assert pushed == Pushed(frozenset({"b"}), 6, 21, True)


def test_comparisons_are_tested_by_brokers() -> None:
    filters: list[Filter] = [
        IsNotNull(("topic",)),
        EqualTo(("topic",), "t1"),
        EqualNullSafe(("publisher",), "alice"),
        In(("priority",), (1, 2)),
        GreaterThanOrEqual(("at",), AT),
        EqualTo(("id",), ID),
    ]
    pushed, left = push(filters, "events")
    assert left == []
    assert pushed.tests == (
        Compared("topic", "=", "t1"),
        Compared("publisher", "=", "alice"),
        Compared("priority", "in", (1, 2)),
        Compared("at", ">=", AT),
        Compared("id", "=", ID),
    )
    assert pushed.at_from == 1_794_816_000 * 10**9


@pytest.mark.parametrize(
    "each",
    [
        Not(EqualTo(("topic",), "t1")),
        IsNull(("topic",)),
        IsNotNull(("topic",)),
        StringStartsWith(("topic",), "t"),
        EqualTo(("properties", "n"), "1"),
        EqualTo(("body",), b"x"),
        EqualTo(("topic",), None),
        In(("topic",), ("t1", None)),
        In(("topic",), ()),
        EqualTo(("topic",), "t" * 5000),
        In(("sequence",), tuple(range(5000))),
        EqualTo(("id",), "alice:01:2:3"),
        EqualTo(("id",), "nonsense"),
        LessThan(("broker",), "b"),
        In(("offset",), (1, 5)),
    ],
    ids=str,
)
def test_what_brokers_cannot_answer_exactly_is_left_to_spark(each: Filter) -> None:
    assert push([each], "events") == (Pushed(), [each])


def test_contradictions_read_nothing() -> None:
    pushed, _ = push([EqualTo(("reliable",), True), EqualTo(("reliable",), False)], "events")
    assert pushed.brokers == frozenset()
    pushed, _ = push([EqualTo(("broker",), "a"), EqualTo(("broker",), "b")], "events")
    assert pushed.brokers == frozenset()


def test_other_tables_have_other_columns() -> None:
    assert push([EqualTo(("client_id",), "bob")], "profiles")[0].tests == (Compared("client_id", "=", "bob"),)
    topic = EqualTo(("topic",), "t1")
    assert push([topic], "hops") == (Pushed(), [topic])


def test_tests_are_bounded() -> None:
    many: list[Filter] = [GreaterThan(("sequence",), number) for number in range(200)]
    pushed, left = push(many, "events")
    assert pushed.tests and left and len(pushed.tests) + len(left) == 200


def test_filters_that_spark_may_add_later_are_left_to_it() -> None:
    known = {EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual}
    others = [getattr(spark_filters, name) for name in ("StringEndsWith", "StringContains", "StringStartsWith")]
    assert not known & set(others)
    assert all(push([kind(("topic",), "t")], "events")[1] for kind in others)
