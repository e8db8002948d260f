"""Snapshots that lost something on the way are refused, and so are constraints that are no proper text."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import numpy as np
import pytest

from veena import Event, matching
from veena.bench.matching.workloads import WORKLOADS, Workload
from veena.errors import InvalidConstraint
from veena.matching.base.engine import Constraint, Engine, Snapshot

PROFILES = 60
LONE = "\ud800"


def _filled(workload: Workload) -> Engine:
    engine, random = matching.create(workload.engine), Random(5)
    for number in range(PROFILES):
        # Every third constraint is shared by two profiles; some destinations are longer than a word.
        constraint = workload.constraint(random, number)
        engine.add(number, constraint, 1 << number)
        if number % 3 == 0:
            engine.add(PROFILES + number, constraint, 1 << 60_000)
    return engine


def _damaged(column: object) -> list[Any]:
    """The column cut short, repeated, of another type or with one item changed."""
    if isinstance(column, np.ndarray):
        other = np.float32 if column.dtype == np.float64 else np.float64
        changed = [column.astype(other), column.tolist(), None]
        return [column[..., :-1], np.concatenate((column, column), axis=-1), *changed] if column.size else changed
    if isinstance(column, list):
        return [column[:-1], column + column, ["\u0001", *column[1:]], [], None] if column else [["x"], None]
    return [None, [], f"{column!r}!"]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: f"{workload.engine}-{workload.name}")
def test_a_damaged_snapshot_is_refused(workload: Workload) -> None:
    """Each column in turn is missing, short, long, or of another type: ValueError, and never an engine."""
    snapshot = _filled(workload).snapshot()
    for name, column in snapshot.items():
        for damaged in _damaged(column):
            with pytest.raises(ValueError, match=r"snapshot|engine"):
                matching.from_snapshot({**snapshot, name: damaged})
        with pytest.raises(ValueError, match=r"snapshot|engine"):
            matching.from_snapshot({key: value for key, value in snapshot.items() if key != name})
    with pytest.raises(ValueError, match="damaged"):
        matching.from_snapshot({**snapshot, "another": 1})


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: f"{workload.engine}-{workload.name}")
def test_a_shipped_snapshot_is_whole(workload: Workload) -> None:
    """Pickled, and with its columns in another order, it is what it was."""
    engine = _filled(workload)
    snapshot: Snapshot = pickle.loads(pickle.dumps(engine.snapshot()))
    again = matching.from_snapshot(dict(reversed(snapshot.items())))
    event = workload.event(Random(6), PROFILES)
    assert again.match(event) == engine.match(event)
    assert again.destinations(event) == engine.destinations(event)


@pytest.mark.parametrize("wrong", [None, [], "tags", {}, {"engine": "nope"}])
def test_what_is_no_snapshot_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"snapshot|engine"):
        matching.from_snapshot(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "constraint", "position"),
    [
        ("topic", f"ab{LONE}", 2),
        ("tags", f"a={LONE}", 2),
        ("tags", f"{LONE}=*", 0),
        ("selector", ("q", f"x = '{LONE}'"), 5),
        ("selector", ("q", f"{LONE} = 1"), 0),
        ("selector", (f"q{LONE}", ""), 1),
        ("selector", ("q", f"x LIKE 'ü{LONE}%'"), 9),
        ("constraint", f"x == '{LONE}'", 6),
        ("constraint", f"{LONE} == 1", 0),
        ("xpath", f"/a[b='{LONE}']", 6),
    ],
)
def test_half_a_character_is_refused(name: str, constraint: Constraint, position: int) -> None:
    """A lone surrogate cannot be written to any wire or file; it is refused where it comes in, not there."""
    engine = matching.create(name)
    with pytest.raises(InvalidConstraint) as refused:
        engine.add(1, constraint, 1)
    assert refused.value.position == position
    assert len(engine) == 0
    with pytest.raises(InvalidConstraint):
        matching.covers(name, constraint, constraint)


@pytest.mark.parametrize("name", matching.names())
def test_an_event_with_half_a_character_is_judged(name: str) -> None:
    """What a publisher made in the same process matches by what it has, or does not; nothing breaks."""
    constraints: dict[str, Constraint] = {
        "integer": 1, "topic": "q", "tags": "a=b", "selector": ("q", "x LIKE 'a%' OR x <> 'b'"),
        "constraint": "'a' ~ x or x != 'b'", "xpath": "/a[b='c']",
    }  # fmt: skip
    engine = matching.create(name)
    engine.add(1, constraints[name], 1)
    event = Event(topic="q", integer=1, tags={"a": LONE}, properties={"x": LONE}, xml=f"<a><b>{LONE}</b></a>")
    matched = engine.match(event)
    assert matched == ([] if name in {"tags", "xpath"} else [1])
    assert engine.destinations(event) == len(matched)
    assert (engine.explain(1, event) == "matches") is bool(matched)
