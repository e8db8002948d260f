"""Places in logs: as checkpoints keep them, shared evenly among brokers, cut into tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veena.spark.source.offsets import LOG, PASSED, Place, Places, Span, decode, encode, limited, pieces, spans

names = st.sampled_from(["a", "b", "c", "d"])
logs: st.SearchStrategy[Place] = st.tuples(names, st.sampled_from([LOG, PASSED]))
starts = st.dictionaries(logs, st.integers(0, 1000), max_size=8)


@st.composite
def journeys(draw: st.DrawFn) -> tuple[Places, Places]:
    """Where a batch begins, and how far it could go; some logs are new."""
    start = draw(starts)
    end = {place: offset + draw(st.integers(0, 200)) for place, offset in start.items()}
    return start, end | {place: offset for place, offset in draw(starts).items() if place not in start}


@given(starts)
def test_a_checkpoint_gives_back_what_was_put_in(places: Places) -> None:
    whole = {(broker, LOG): 0 for broker, _ in places} | places
    assert decode(json.loads(json.dumps(encode(whole)))) == whole


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "an object of brokers"),
        ({"a": "5"}, "whole number from 0, not '5'"),
        ({"a": True}, "whole number"),
        ({"a": 1 << 63}, "whole number"),
        ({"a": {"log": None}}, "whole number"),
    ],
)
def test_what_is_no_place_is_refused(told: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode(told)


@given(journeys(), st.integers(1, 400))
def test_a_limit_is_kept_and_always_moves(journey: tuple[Places, Places], rows: int) -> None:
    start, end = journey
    reached = limited(start, end, rows)
    total, taken = sum(map(len, spans(start, end))), sum(map(len, spans(start, reached)))
    assert taken == min(rows, total)
    assert reached.keys() == end.keys()
    assert all(start.get(place, offset) <= reached[place] <= offset for place, offset in end.items())


def test_a_limit_is_shared_evenly_and_what_one_does_not_need_others_get() -> None:
    start = {(broker, LOG): 0 for broker in "abc"}
    end = {("a", LOG): 10, ("b", LOG): 1000, ("c", LOG): 500}
    assert limited(start, end, 210) == {("a", LOG): 10, ("b", LOG): 100, ("c", LOG): 100}


def test_a_log_that_is_new_begins_where_it_appears() -> None:
    assert spans({("a", LOG): 3}, {("a", LOG): 5, ("b", LOG): 100}) == [Span("a", LOG, 3, 5)]


@given(
    st.lists(st.builds(Span, names, st.just(LOG), st.integers(0, 50), st.integers(51, 300)), max_size=4),
    st.integers(1, 90),
)
def test_pieces_are_the_whole_and_none_is_too_long(whole: list[Span], rows: int) -> None:
    cut = pieces(whole, rows)
    assert all(0 < len(piece) <= rows for piece in cut)
    covered = [(piece.broker, offset) for piece in cut for offset in range(piece.start, piece.end)]
    assert covered == [(span.broker, offset) for span in whole for offset in range(span.start, span.end)]


def test_best_effort_counts_down_in_the_table() -> None:
    """Row number 0 of best effort has offset -1 (`tables`)."""
    assert Span("a", PASSED, 0, 3).bounds == (-3, 0)
    assert Span("a", LOG, 0, 3).bounds == (0, 3)
    assert str(Span("a", PASSED, 0, 3)) == "best-effort offsets 0 to 2 of broker a"
