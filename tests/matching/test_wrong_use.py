"""What a caller may get wrong: each is refused by name, and nothing is stored."""

from __future__ import annotations

import pytest

from veena import Event, InvalidConstraint, matching

CONSTRAINTS = {
    "integer": 5,
    "topic": "t",
    "tags": "a=1",
    "selector": ("t", "x = 1"),
    "constraint": "x == 1",
    "xpath": "/a",
}


@pytest.mark.parametrize("name", matching.names())
@pytest.mark.parametrize(
    ("profile_id", "destination"), [(1.5, 1), (True, 1), (None, 1), ("1", 1), (1, 1.5), (-1, 1), (1, -1)]
)
def test_ids_and_destinations_are_whole_numbers(name: str, profile_id: object, destination: object) -> None:
    """PRF-04: an id that a column cannot hold would come back as another."""
    engine = matching.create(name)
    with pytest.raises(ValueError, match="profile"):
        engine.add(profile_id, CONSTRAINTS[name], destination)  # type: ignore[arg-type]
    assert len(engine) == 0
    assert engine.match(Event(topic="t", integer=5, tags="a=1", properties={"x": 1}, xml="<a/>")) == []


@pytest.mark.parametrize("text", [None, b"x = 1", 5, ("x",)])
def test_compiling_what_is_no_text_is_refused(text: object) -> None:
    for compiled in (matching.compile_selector, matching.compile_constraint):
        with pytest.raises(InvalidConstraint, match="expected a text"):
            compiled(text)  # type: ignore[arg-type]
