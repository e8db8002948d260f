"""The index of covers finds what comparing each with each finds, and never anything else (AGG-07)."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena import matching
from veena.core.interest.constraint import Want, admits, covers, form_of, former_want, lane_of, make_want
from veena.core.interest.cover_set import CoverSet
from veena.matching.covering.blocks import BLOCK, Blocks
from veena.matching.covering.form import RANGE, THERE, VALUE, Plain, plain, plain_covers
from veena.matching.covering.index import MAX_SHAPES, CoverIndex
from veena.matching.covering.table import FEW_GROUPS, FEW_ROWS

NAMES = ("a", "b", "c")


def draw_term(chance: random.Random, quick: bool) -> str:
    name, low = chance.choice(NAMES), chance.randrange(6)
    terms = [
        f"{name} > {low}", f"{name} <= {low}", f"{name} = {low}",
        f"{name} BETWEEN {low} AND {low + chance.randrange(4)}", f"{name} = '{'xyz'[low % 3]}'",
        f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} = TRUE",
    ]  # fmt: skip
    if not quick:
        terms += [f"{name} IN ('x', 'y')", f"{name} IN ('y', 'z')", f"{name} LIKE 'x%'", f"{name} <> {low}",
                  f"{name} + 1 > {low}", f"({name} > {low} OR b = 'x')"]  # fmt: skip
    return chance.choice(terms)


def draw_selector(chance: random.Random, quick: bool = False) -> str:
    return " AND ".join(draw_term(chance, quick) for _ in range(chance.randrange(1, 4)))


def draw_tags(chance: random.Random) -> str:
    names = chance.sample("mcdy", chance.randrange(1, 4))
    return ",".join(f"{name}={chance.choice('*123')}" for name in names)


def draw_xpath(chance: random.Random) -> str:
    test = chance.choice(("", "[c = 1]", "[c > 2]", "[c > 4]", "[@k = 'v']", "[not(c = 1)]", "[c = 'x']", "[c][@k]"))
    tail = chance.choice(("", "", "/d", "//e", " or /z", "/c = 1"))
    return chance.choice(("/a/b", "/a/*", "//b", "/a")) + test + tail


def draw_want(chance: random.Random) -> Want:
    scope = chance.choice((4, 4, 4, 2))
    kind = chance.randrange(8)
    if kind < 3:
        want = make_want("selector", ("q", draw_selector(chance)), scope)
    elif kind < 4:
        want = make_want("topic", "q", scope)
    elif kind < 6:
        want = make_want("tags", draw_tags(chance), scope)
    elif kind < 7:
        want = make_want("xpath", draw_xpath(chance), scope)
    else:
        want = make_want("integer", chance.randrange(4), scope)
    return former_want(want) if chance.random() < 0.1 else want


def is_never(want: Want) -> bool:
    """Whether no event satisfies it, as is seen at once: it is covered by everything, and nobody looks for that."""
    return getattr(form_of(want), "offered", ()) == (("never",),)


def is_possible(want: Want) -> bool:
    """Whether any event satisfies it."""
    if want.engine != "selector":
        return True
    asked = matching.compile_selector(want.constraint[1])  # type: ignore[arg-type,index]
    values = (None, *range(8), 0.5, "x", "xy", "y", "z", True)
    return any(asked.matches(dict(zip(NAMES, each, strict=True))) for each in product(values, repeat=3))


@settings(max_examples=60)
@given(st.integers(0, 10**9))
def test_the_index_finds_what_comparing_each_with_each_finds(seed: int) -> None:
    """The same in both directions, after some have gone; what it calls sure is so."""
    chance = random.Random(seed)
    wants = list({want.key: want for want in (draw_want(chance) for _ in range(40))}.values())
    buckets = {want.bucket: CoverIndex(admits) for want in wants}
    for want in wants:
        buckets[want.bucket].add(want.key, form_of(want), lane_of(want))
    for want in chance.sample(wants, len(wants) // 3):
        buckets[want.bucket].remove(want.key, form_of(want), lane_of(want))
        wants.remove(want)
    known = {want.key: want for want in wants}
    for want in (*wants, *(draw_want(chance) for _ in range(10))):
        index = buckets.get(want.bucket)
        if index is None or is_never(want):
            continue
        index.check()
        wider = list(index.wider(form_of(want), lane_of(want)))
        narrower = [each for each in index.narrower(form_of(want), lane_of(want)) if each is not None]
        for key, is_sure in wider:
            assert not is_sure or covers(known[key], want)
        for key, is_sure in narrower:
            assert not is_sure or covers(want, known[key])
        others = [other for other in wants if other.bucket == want.bucket and not is_never(other)]
        for other in others:
            if covers(other, want):
                assert other.key in dict(wider) or not is_possible(want)
            if covers(want, other):
                assert other.key in dict(narrower) or not is_possible(other)


@settings(max_examples=100)
@given(st.integers(0, 10**9))
def test_a_cover_gets_what_the_other_gets(seed: int) -> None:
    """AGG-07: never wrongly true, whatever the attributes."""
    chance = random.Random(seed)
    one, other = (draw_selector(chance, quick=True) for _ in range(2))
    if not covers(make_want("selector", ("q", one), 4), make_want("selector", ("q", other), 4)):
        other = f"{one} AND {other}"
    asked = [matching.compile_selector(text) for text in (one, other)]
    for _ in range(60):
        event = {name: chance.choice((None, *range(8), 0.5, "x", "y", True)) for name in NAMES}
        assert asked[0].matches(event) or not asked[1].matches(event)


@settings(max_examples=60)
@given(st.integers(0, 10**9))
def test_what_is_told_is_what_comparing_each_with_each_tells(seed: int) -> None:
    """AGG-07: the widest, and of equivalent ones the lowest key, after any coming and going."""
    chance = random.Random(seed)
    cover, counted = CoverSet(), dict[bytes, Want]()
    for _ in range(60):
        want = make_want("selector", ("q", draw_selector(chance, quick=True)), 4)
        if is_never(want):
            continue
        if chance.random() < 0.7 or not counted:
            cover.add(want)
            counted[want.key] = want
            continue
        gone = counted.pop(chance.choice(list(counted)))
        while gone in cover:
            cover.remove(gone)
        while cover.is_busy:
            cover.go_on()
    cover.check()
    widest = {
        want.key
        for want in counted.values()
        if not any(
            covers(other, want) and (not covers(want, other) or other.key < want.key)
            for other in counted.values()
            if other.key != want.key
        )
    }
    assert set(cover.told) == widest


def gone_by_step(cover: CoverSet) -> list[int]:
    """How many wants each step tells no longer, until nothing is left to do."""
    found = []
    while cover.is_busy:
        before = len(cover.told)
        cover.go_on()
        found.append(before - len(cover.told))
    return found


def test_what_a_want_stood_for_is_told_in_steps_before_it_goes() -> None:
    """No step deals with all of a thousand, and at no time is less told than is wanted."""
    cover = CoverSet()
    wide = make_want("selector", ("q", "price > 0"), 4)
    narrow = [make_want("selector", ("q", f"price BETWEEN {number} AND {number + 1}"), 4) for number in range(1, 1500)]
    for want in narrow:
        assert cover.add(want)
    assert cover.add(wide) and cover.is_busy
    assert max(gone_by_step(cover)) < 300
    cover.check()
    assert list(cover.told) == [wide.key] and len(cover) == len(narrow) + 1
    assert cover.remove(wide)
    assert wide not in cover and wide.key in cover.told
    cover.go_on()
    assert not cover.add(narrow[-1]) and not cover.remove(narrow[-1])
    assert cover.add(wide), "it comes back while it leaves"
    gone_by_step(cover)
    cover.check()
    assert list(cover.told) == [wide.key] and cover.count(wide) == 1
    cover.remove(wide)
    steps = gone_by_step(cover)
    assert len(steps) > 5 and all(gone < 0 for gone in steps), "the wide one goes last"
    cover.check()
    assert set(cover.told) == {want.key for want in narrow}


@settings(max_examples=20)
@given(st.integers(0, 10**9))
def test_blocks_of_ranges_answer_like_a_scan(seed: int) -> None:
    chance = random.Random(seed)
    infinite = (float("-inf"), float("inf"))

    def draw() -> tuple[float, ...]:
        return tuple(chance.choice((*infinite, *map(float, range(12)))) for _ in range(4))

    blocks, rows = Blocks(4), dict[bytes, tuple[float, ...]]()
    for number in range(chance.choice((50, 3 * BLOCK))):
        row, key = draw(), b"%d" % number
        blocks.add(row, key)
        rows[key] = row
    for key in chance.sample(list(rows), len(rows) // 2):
        assert blocks.remove(rows.pop(key), key)
    assert not blocks.remove((0.0,) * 4, b"none")
    blocks.check()
    for _ in range(20):
        point = draw()
        wider = {key for key, row in rows.items() if all(one <= other for one, other in zip(row, point, strict=True))}
        assert set(blocks.wider(point)) == wider
        some = {key for key, row in rows.items() if row[1] >= point[0] and row[3] >= point[1]}
        assert set(blocks.narrower(point[:2], (1, 3))) == some


def test_many_groups_are_found_by_their_ranges_or_their_rarest_value() -> None:
    """A wide one that leaves open what the narrow ones name."""
    index = CoverIndex(lambda wide, narrow: True)
    forms: dict[bytes, Plain] = {}
    for number in range(4 * max(FEW_GROUPS, FEW_ROWS)):
        price = ("price", RANGE, (number, number + 5))
        forms[b"%d" % number] = plain([("sym", VALUE, f"s{number % 200}"), ("side", VALUE, "xy"[number % 2]), price])
    for key, form in forms.items():
        index.add(key, form, None)
    index.check()
    asked = [
        plain([("price", RANGE, (100, 200))]), plain([("side", VALUE, "x"), ("price", RANGE, (100, 200))]),
        plain([("side", VALUE, "x")]), plain([("sym", VALUE, "s7")]), plain([("sym", THERE, None)]), plain([]),
    ]  # fmt: skip
    for wide in asked:
        candidates = [each for each in index.narrower(wide, None) if each is not None]
        assert {key for key, _ in candidates if plain_covers(wide, forms[key])} == {
            key for key, form in forms.items() if plain_covers(wide, form)
        }
        assert all(plain_covers(wide, forms[key]) for key, is_sure in candidates if is_sure)


def test_shapes_are_bounded() -> None:
    """What has no room is told by itself, and can go like any other."""
    cover = CoverSet()
    wants = [make_want("tags", f"t{number}=1", 4) for number in range(MAX_SHAPES + 20)]
    for want in wants:
        assert cover.add(want)
    assert not cover.add(make_want("tags", "t3=1,x=2", 4))
    cover.check()
    for want in wants:
        cover.remove(want)
    cover.check()


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("x > 5", "x > 6", True), ("x > 5", "x >= 5", False), ("x >= 5", "x > 5", True), ("x > 5", "x = 6", True),
        ("x = TRUE", "x = 1", False), ("x IS NOT NULL", "x = 'a'", True),
        ("x = 9007199254740993", "x = 9007199254740992", False),
        ("x IN ('a', 'b')", "x = 'a'", True), ("x LIKE 'a%'", "x = 'ab' AND y > 1", True),
        ("x > 5 OR y = 'k'", "y = 'k' AND z = 1", True), ("x > 5", "x > 7 AND y LIKE 'b%'", True),
    ],
)  # fmt: skip
def test_covers_by_forms(wide: str, narrow: str, expected: bool) -> None:
    one, other = make_want("selector", ("q", wide), 4), make_want("selector", ("q", narrow), 4)
    assert covers(one, other) is expected
    index = CoverIndex(admits)
    index.add(one.key, form_of(one), lane_of(one))
    assert (one.key in [key for key, _ in index.wider(form_of(other), lane_of(other))]) >= expected
