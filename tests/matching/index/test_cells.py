"""Cells: what is remembered for a neighbourhood of values never says more than a scan does, whatever comes and goes."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena import Event, matching
from veena.matching.index.cells import FIRST_ASKED, PATIENCE, Cells
from veena.matching.index.segments import SHORTEST_PIECE

#: So many rows under one value that cells are asked.
MANY = SHORTEST_PIECE + 100


def _cells(*ranges: tuple[float, float]) -> Cells:
    return Cells(np.array([[low for low, _ in ranges], [-high for _, high in ranges]]))


def test_every_value_lies_between_the_ends_of_its_cell() -> None:
    """DST-06: rows that hold at both ends hold of the value; a value on a checkpoint has a cell, too."""
    cells = _cells((0.0, 1.0), (0.5, 2.0), (-inf, 3.0), (1.5, inf))
    for value in (-1e308, -0.0, 0.0, 0.25, 0.5, 1.0, 1.75, 2.0, 2.5, 3.0, 1e308, -inf):
        cell = cells.cell(value, value)
        low, negative_high = cells.ends(cell)
        assert low <= value <= -negative_high
    assert cells.cell(inf, inf) == -1, "there is no checkpoint above it"
    assert cells.cell(0.9, 1.1) == -1, "a whole number whose doubles lie in two cells"


def test_segments_without_a_finite_bound_have_one_cell() -> None:
    cells = _cells((-inf, inf), (-inf, inf))
    assert cells.ends(cells.cell(5.0, 5.0)) == [-inf, -inf]


def test_only_cells_that_rest_on_a_row_are_forgotten() -> None:
    cells = _cells((0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0))
    near, far = cells.cell(0.5, 0.5), cells.cell(3.5, 3.5)
    cells.learn(near, 0b01, seen=10, is_all=True)
    cells.learn(far, 0b10, seen=10, is_all=True)
    cells.forget(10, 0.0, 1.0)
    assert cells.mask(near) == 0b01, "nobody has looked at that row"
    cells.forget(9, 0.0, 1.0)
    assert (cells.mask(near), cells.mask(far)) == (None, 0b10)
    assert [cells.cell(0.5, 0.5) for _ in range(PATIENCE)] == [-1] * PATIENCE, "the plain way for a while"
    assert cells.cell(0.5, 0.5) == near
    cells.forget_all()
    assert cells.mask(far) is None


Change = tuple[str, int, int, int]
_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "share", "wide"]), st.integers(0, MANY), st.integers(0, 40), st.integers(0, 9)
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(_CHANGES, st.lists(st.integers(-2, 44), min_size=1, max_size=6))
def test_destinations_are_those_of_the_matches(changes: list[Change], values: list[int]) -> None:
    """DST-07: with changes between events, and events often enough that cells are asked, filled and forgotten."""
    engine = matching.create("selector")
    held: dict[int, int] = {}

    def add(profile_id: int, text: str, destination: int) -> None:
        engine.add(profile_id, ("t", text), destination)
        held[profile_id] = destination

    for number in range(MANY):
        add(number, f"s = 'x' AND a BETWEEN {number % 37} AND {number % 37 + 3 + number % 5}", 1 << number % 3)
    for kind, target, low, bit in [("none", 0, 0, 0), *changes]:
        if kind == "add":
            add(target, f"s = 'x' AND a BETWEEN {low} AND {low + 2}", 1 << bit)
        elif kind == "share":
            add(MANY + bit, "s = 'x' AND a BETWEEN 20 AND 21", 1 << 3 + bit)
        elif kind == "wide":
            add(target, f"s = 'x' AND (a BETWEEN {low} AND {low + 1} OR a BETWEEN 30 AND 31)", 1 << 70 + bit % 2)
        elif kind == "remove" and target in held:
            engine.remove(target)
            del held[target]
        # At first often enough that there are cells.
        for value in values * (1 if kind != "none" else FIRST_ASKED):
            event = Event(topic="t", properties={"s": "x", "a": value + 0.5 if value % 2 else value})
            expected = 0
            for profile_id in engine.match(event):
                expected |= held[profile_id]
            for _ in range(2):
                assert engine.destinations(event) == expected


def test_a_shared_constraint_that_loses_a_holder_is_forgotten() -> None:
    """DST-07: the row stays, its destinations do not, and what a cell knew of them goes."""
    engine = matching.create("selector")
    for number in range(MANY):
        engine.add(number, ("t", f"s = 'x' AND a >= -{number}"), 1)
    engine.add(MANY, ("t", "s = 'x' AND a >= -1"), 2)
    event = Event(topic="t", properties={"s": "x", "a": 5})
    assert [engine.destinations(event) for _ in range(FIRST_ASKED + 2)] == [3] * (FIRST_ASKED + 2)
    engine.remove(MANY)
    assert [engine.destinations(event) for _ in range(PATIENCE + 2)] == [1] * (PATIENCE + 2)


@pytest.mark.parametrize("text", ["a BETWEEN -300 AND 50", "(a BETWEEN -300 AND 50 OR a BETWEEN 80 AND 90)"])
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_row_that_goes_takes_its_destination_along(text: str, is_shared: bool) -> None:
    """DST-07: though others still lead there, with other values; also where only one of two holders goes."""
    engine = matching.create("selector")
    for number in range(MANY):
        engine.add(10 + number, ("t", f"s = 'x' AND a >= -{number}"), 1)
    engine.add(1, ("t", "s = 'x' AND a >= 100"), 2)
    engine.add(2, ("t", f"s = 'x' AND {text}"), 2)
    if is_shared:
        engine.add(3, ("t", f"s = 'x' AND {text}"), 1)
    event = Event(topic="t", properties={"s": "x", "a": -100})
    assert [engine.destinations(event) for _ in range(FIRST_ASKED + 2)] == [3] * (FIRST_ASKED + 2)
    engine.remove(2)
    assert [engine.destinations(event) for _ in range(PATIENCE + 2)] == [1] * (PATIENCE + 2)


def test_looking_in_vain_becomes_rare() -> None:
    """A cell without every destination is no use; the segment waits longer each time before it looks at another."""
    cells = _cells((0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0))

    def waited() -> int:
        return next(count for count in range(1000) if cells.cell(0.5, 0.5) >= 0)

    cell = cells.cell(0.5, 0.5)
    found = []
    for is_all in (False, False, False, True, False):
        cells.learn(cell, 1, seen=4, is_all=is_all)
        found.append(waited())
    assert found == [PATIENCE, 2 * PATIENCE, 4 * PATIENCE, 0, PATIENCE]


def test_a_destination_that_is_new_is_found_where_a_cell_knew_all() -> None:
    engine = matching.create("selector")
    for number in range(MANY):
        engine.add(number, ("t", f"s = 'x' AND a >= -{number}"), 1)
    event = Event(topic="t", properties={"s": "x", "a": 5})
    assert [engine.destinations(event) for _ in range(FIRST_ASKED + 2)] == [1] * (FIRST_ASKED + 2)
    engine.add(MANY, ("t", "s = 'x' AND a >= 4"), 2)
    assert engine.destinations(event) == 3


@pytest.mark.parametrize("value", [None, "5", True, nan, inf, -inf, 2**53 + 1, 10**400])
def test_values_that_have_no_cell(value: str | float | None) -> None:
    engine = matching.create("selector")
    for number in range(MANY):
        engine.add(number, ("t", f"s = 'x' AND a BETWEEN {number} AND 9007199254740993"), 1 << number % 3)
    event = Event(topic="t", properties={"s": "x"} if value is None else {"s": "x", "a": value})
    expected = 0
    for profile_id in engine.match(event):
        expected |= 1 << profile_id % 3
    assert [engine.destinations(event) for _ in range(FIRST_ASKED + 2)] == [expected] * (FIRST_ASKED + 2)
