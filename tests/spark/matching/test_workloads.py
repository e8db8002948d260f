"""What the matching engines are measured with gives the same result sets on Spark (EXP-37)."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.spark.matching.test_bulk import engines_of, expected_pairs, frame_of, pairs_of
from veena import matching
from veena.bench.matching import experiment as experiment_matching
from veena.bench.matching.experiment import Scale
from veena.bench.matching.measure import DESTINATIONS
from veena.bench.matching.workloads import find
from veena.bench.matching.xml import menu_document
from veena.event import Event
from veena.matching.base.engine import Constraint
from veena.spark.matching.bulk import destinations, match
from veena.spark.matching.snapshot import Profile, profile_set

#: Of each workload or curve.
PROFILES, EVENTS = 400, 40
Draw = tuple[str, Callable[[Random, int], Constraint], Callable[[Random, int], Event]]


def _drawn(draws: list[Draw]) -> tuple[list[Profile], list[Event]]:
    """Profiles and events of all of them; every event meets every profile, also those of other workloads."""
    profiles: list[Profile] = []
    events: list[Event] = []
    for engine, constraint, event in draws:
        random = Random(37)
        profiles += [
            Profile(len(profiles) + number, engine, constraint(random, number), 1 << number % DESTINATIONS)
            for number in range(PROFILES)
        ]
        events += [event(random, PROFILES) for _ in range(EVENTS)]
    return profiles, events


def _check(spark: SparkSession, profiles: list[Profile], events: list[Event]) -> None:
    """Spark's pairs and masks are those of the plain engine, and there are some."""
    chosen, frame = profile_set(profiles), frame_of(spark, events)
    pairs = sorted(expected_pairs(profiles, events))
    assert pairs and pairs_of(match(frame, chosen)) == pairs
    engines = engines_of(profiles)
    masks = {at: reduce(or_, [engine.destinations(event) for engine in engines]) for at, event in enumerate(events)}
    assert {row["offset"]: row["destinations"] for row in destinations(frame, chosen).collect()} == masks


@pytest.mark.parametrize("engine", matching.names())
def test_the_benchmark_s_workloads_match_on_spark_as_in_the_engine(spark: SparkSession, engine: str) -> None:
    """EXP-37, EXP-30, ORD-02: every workload of `veena bench matching`, pair by pair and destination by destination."""
    draws = [(each.engine, each.constraint, each.event) for each in find(engine, None)]
    _check(spark, *_drawn(draws))


@pytest.mark.parametrize("figure", ["_integer", "_string", "_tags", "_selector_and_xpath", "_destinations"])
def test_the_papers_figures_match_on_spark_as_in_the_engine(
    spark: SparkSession, figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXP-37, EXP-31..34: the profiles and events behind every curve of `veena experiment matching`."""
    draws: list[Draw] = []

    def growing(engine: str, _scale: Scale, *drawing: Callable[[Random, int], object]) -> dict[str, list[float]]:
        draws.append((engine, *drawing))  # type: ignore[arg-type]
        return {"match": [], "destinations": [], "evaluations": []}

    monkeypatch.setattr(experiment_matching, "_growing", growing)
    getattr(experiment_matching, figure)(Scale((PROFILES,), (EVENTS,), EVENTS))
    assert draws
    _check(spark, *_drawn(draws))


def test_a_query_over_stored_documents_finds_as_many_on_spark(spark: SparkSession) -> None:
    """EXP-37, EXP-35: the narrow query and the wide one, over the same stored documents."""
    figure = experiment_matching._stored_documents(Scale((), (50, 200), 0))
    random = Random(11)
    stored = [Event(xml=str(menu_document(random, 0).xml)) for _ in range(200)]
    queries = [name.partition(": ")[2] for name in figure.curves]
    profiles = [Profile(number, "xpath", query, 1) for number, query in enumerate(queries)]
    pairs = pairs_of(match(frame_of(spark, stored), profiles))
    for number, counts in enumerate(figure.counts.values()):
        found = [at for at, profile in pairs if profile == number]
        assert [sum(at < size for at in found) for size in (50, 200)] == counts
        assert found
