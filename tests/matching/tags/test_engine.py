"""Tag=value constraints: the papers' cars, errors with positions, and the two indexes behind one engine."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest

from veena import Event, matching
from veena.errors import InvalidConstraint
from veena.matching.base.engine import MATCHES
from veena.matching.tags.engine import SHAPES_MAX, SHAPES_MIN, TagsEngine
from veena.matching.tags.pairs import MAX_PAIRS, MAX_TEXT_LENGTH, PairNumbers, parse_constraint

FORD = "Make=Ford,Model=*,Color=Red"


def test_the_text_is_read_in_order() -> None:
    """MAT-30."""
    assert list(parse_constraint(FORD).items()) == [("Make", "Ford"), ("Model", "*"), ("Color", "Red")]
    assert parse_constraint(" a = b = c , d=") == {"a": "b = c", "d": ""}


@pytest.mark.parametrize(
    ("event", "matches"),
    [
        ("Make=Ford,Model=Taurus,Color=Red", True),
        ("Make=Ford,Model=Mustang,Color=Red", True),
        ("Color=Red,Year=1999,Model=Mustang,Make=Ford", True),
        ("Make=Ford,Model=Taurus,Color=Blue", False),
        ("Make=Fiat,Model=Panda,Color=Red", False),
        ("Make=Ford,Color=Red", False),
    ],
)
def test_the_ford(event: str, matches: bool) -> None:
    """MAT-31, PGR-02: `*` is any value, but the tag must be there; further tags and their order do not matter."""
    engine = matching.create("tags")
    engine.add(1, FORD, 4)
    assert engine.match(Event(tags=event)) == [1] * matches
    assert engine.destinations(Event(tags=event)) == 4 * matches
    assert (engine.explain(1, Event(tags=event)) == MATCHES) == matches


def test_explanations_name_the_first_term_that_fails() -> None:
    engine = matching.create("tags")
    engine.add(1, FORD, 1)
    blue = Event(tags="Make=Ford,Model=Ka,Color=Blue")
    assert engine.explain(1, blue) == "failed: tag 'Color' is 'Blue', the profile wants Color=Red"
    assert engine.explain(1, Event(tags="Make=Ford,Color=Red")) == (
        "unknown: the event has no tag 'Model'; the profile wants Model=*"
    )


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "no tag=value pair"),
        ("Make", 0, "no tag=value pair"),
        ("Make=Ford,Model", 10, "no tag=value pair"),
        ("Make=Ford,,Color=Red", 10, "no tag=value pair"),
        ("Make=Ford, =Red", 10, "no tag=value pair"),
        ("Make=Ford,Make=Fiat", 10, "twice"),
        (",".join(f"t{n:02}=1" for n in range(MAX_PAIRS + 1)), 6 * MAX_PAIRS, "more than 64 pairs"),
        ("t=" + "x" * MAX_TEXT_LENGTH, MAX_TEXT_LENGTH, "at most"),
        (5, 0, "expected text"),
    ],
)
def test_what_is_no_constraint_is_refused_with_its_position(text: str | int, position: int, reason: str) -> None:
    engine = matching.create("tags")
    with pytest.raises(InvalidConstraint, match=reason) as caught:
        engine.add(1, text, 1)
    assert caught.value.position == position
    assert len(engine) == 0


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("A=1", "A=1", True),
        ("A=1", "B=2,A=1", True),
        ("A=*", "A=1", True),
        ("A=*", "A=*,B=1", True),
        ("A=1", "A=*", False),
        ("A=1,B=*", "A=1", False),
        ("A=1", "A=2", False),
        ("A=*", "B=1", False),
    ],
)
def test_covering_is_exact(wide: str, narrow: str, covered: bool) -> None:
    assert matching.covers("tags", wide, narrow) == covered
    values = ("1", "2", "3", None)
    for a, b in product(values, values):
        event = Event(tags={tag: value for tag, value in (("A", a), ("B", b)) if value is not None})
        engine = matching.create("tags")
        engine.add(1, wide, 1)
        engine.add(2, narrow, 2)
        if covered and 2 in engine.match(event):
            assert 1 in engine.match(event)


def _all_shapes() -> list[str]:
    """One constraint for each subset of seven tags: 127 shapes, every fourth pair a `*`."""
    tags = "ABCDEFG"
    return [
        ",".join(f"{tag}={'*' if (number + at) % 4 == 0 else at % 2}" for at, tag in enumerate(subset))
        for number, subset in enumerate(
            subset for size in range(1, len(tags) + 1) for subset in combinations(tags, size)
        )
    ]


def _scan(profiles: dict[int, str], event: Event) -> list[int]:
    return [
        profile_id
        for profile_id, text in sorted(profiles.items())
        if all(event.tag_values.get(tag) in ((value,) if value != "*" else ("0", "1", "2")) for tag, value in
               (pair.split("=") for pair in text.split(",")))
    ]  # fmt: skip


def test_the_engine_moves_between_its_indexes_without_a_wrong_answer() -> None:
    """MAT-32: up over the crossover and down again; at every step both modes say what a scan says."""
    random = Random(3)
    texts = _all_shapes()
    assert len(texts) > SHAPES_MAX
    engine = TagsEngine()
    profiles: dict[int, str] = {}
    seen = []

    def check() -> None:
        event = Event(tags={tag: random.choice("012") for tag in "ABCDEFG" if random.random() < 0.9})
        expected = _scan(profiles, event)
        assert engine.match(event) == expected
        destinations = 0
        for profile_id in expected:
            destinations |= 1 << profile_id % 32
        assert engine.destinations(event) == destinations
        detail = engine.statistics().detail
        seen.append((detail["in_sets"] > 0, detail["in_graph"] > 0))

    for profile_id, text in enumerate(texts * 3):
        engine.add(profile_id, text, 1 << profile_id % 32)
        profiles[profile_id] = text
        check()
    assert engine.statistics().constraints == len(texts)
    assert seen[-1] == (False, True)
    for profile_id in list(profiles):
        engine.remove(profile_id)
        del profiles[profile_id]
        check()
    # In the sets, in both, in the graph alone, and the same way back.
    assert [state for at, state in enumerate(seen) if at == 0 or seen[at - 1] != state] == [
        (True, False), (True, True), (False, True), (True, True), (True, False), (False, False),
    ]  # fmt: skip
    assert SHAPES_MIN < SHAPES_MAX
    assert engine.statistics().detail["pairs"] == 0


def test_numbers_of_pairs_are_given_back() -> None:
    """A profile that comes and goes with new values leaves nothing behind."""
    numbers = PairNumbers()
    for value in range(1_000):
        numbers.release(numbers.acquire({"a": str(value), "b": "*"}))
    assert len(numbers) == 0
    assert len(numbers.tags) == 2


def test_more_tags_in_the_engine_than_in_the_event() -> None:
    """The other way of looking an event up: many tags are known, few are in the event."""
    engine = matching.create("tags")
    for number in range(200):
        engine.add(number, f"t{number}=1,u=*", 1 << number % 32)
    assert engine.match(Event(tags="u=x,t150=1,t7=1")) == [7, 150]
    assert engine.match(Event(tags="t150=1")) == []


def test_an_event_with_very_many_tags() -> None:
    """Beyond 64 satisfied pairs the graph is asked by intersection; the answers stay those of a scan."""
    random = Random(9)
    engine = TagsEngine()
    profiles: dict[int, str] = {}
    for number in range(600):
        tags = random.sample(range(200), random.randint(1, 4))
        profiles[number] = ",".join(f"t{tag}={random.choice('01*')}" for tag in tags)
        engine.add(number, profiles[number], 1 << number % 32)
    assert engine.statistics().detail["in_sets"] == 0
    for _ in range(20):
        event = Event(tags={f"t{tag}": random.choice("01") for tag in range(200)})
        expected = _scan(profiles, event)
        assert engine.match(event) == expected
        assert engine.destinations(event) == sum(1 << bit for bit in sorted({number % 32 for number in expected}))


def test_an_events_own_star_is_a_value() -> None:
    """An event may carry `*` as a value: only `*` takes it."""
    engine = matching.create("tags")
    for number, text in enumerate(["A=*", "A=1", "A=*,B=1"] + [f"z{shape}=1" for shape in range(SHAPES_MAX)]):
        engine.add(number, text, 1)
    assert engine.statistics().detail["in_graph"] > 0
    assert engine.match(Event(tags={"A": "*", "B": "1"})) == [0, 2]


def test_an_engine_is_loaded_at_every_stage_of_moving() -> None:
    """MAT-32, PGR-09..11: in the sets, in both, in the graph; the loaded one goes on, with the same counts."""
    random = Random(5)
    texts = _all_shapes()
    engine = TagsEngine()
    profiles: dict[int, str] = {}
    held = []
    for profile_id in range(3 * len(texts)):
        profiles[profile_id] = texts[profile_id % len(texts)]
        engine.add(profile_id, profiles[profile_id], 1 << profile_id % 70)
        if profile_id % 10 == 0:
            loaded = TagsEngine.from_snapshot(engine.snapshot())
            assert loaded.statistics().detail == engine.statistics().detail
            detail = loaded.statistics().detail
            held.append((detail["in_sets"] > 0, detail["in_graph"] > 0))
            engine = loaded
        event = Event(tags={tag: random.choice("012") for tag in "ABCDEFG" if random.random() < 0.9})
        assert engine.match(event) == _scan(profiles, event)
    assert [state for at, state in enumerate(held) if at == 0 or held[at - 1] != state] == [
        (True, False), (True, True), (False, True),
    ]  # fmt: skip
    for profile_id in random.sample(sorted(profiles), len(profiles)):
        engine.remove(profile_id)
        del profiles[profile_id]
        event = Event(tags={tag: random.choice("01") for tag in "ABCDEFG"})
        expected = _scan(profiles, event)
        assert engine.match(event) == expected
        assert engine.destinations(event) == sum({1 << number % 70 for number in expected})
    assert engine.statistics().detail == {"shapes": 0, "in_sets": 0, "in_graph": 0, "pairs": 0}


def test_a_snapshot_keeps_the_order_of_chains() -> None:
    """PGR-07: after a round trip new constraints still share the edges of old ones."""
    engine = TagsEngine()
    engine.add(0, "gone=1", 1)
    for number, text in enumerate(_all_shapes(), 1):
        engine.add(number, text, 1 << number % 32)
    engine.remove(0)
    restored = TagsEngine.from_snapshot(engine.snapshot())
    for number, text in enumerate(_all_shapes(), 1_000):
        restored.add(number, text, 1)
    assert restored.statistics().constraints == engine.statistics().constraints
    assert restored.match(Event(tags="A=0,B=1")) == [
        profile + shift for shift in (0, 999) for profile in engine.match(Event(tags="A=0,B=1"))
    ]
