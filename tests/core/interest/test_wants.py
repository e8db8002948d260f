"""Wants, covering and digests: what a unit tells of its clients' constraints, never less than the truth."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena import Event, InvalidConstraint, RemoteProtocolError, matching
from veena.core.interest.constraint import (
    FORMER,
    KINDS,
    TO,
    TOPIC,
    Want,
    covers,
    former_want,
    is_kind,
    keyed_want,
    make_want,
    want_of,
)
from veena.core.interest.cover_set import MAX_WORK, CoverSet
from veena.core.interest.digest import (
    MAX_ATOMS,
    DigestTest,
    atoms_of,
    event_atoms,
    make_part,
    merge_digests,
    merge_parts,
)
from veena.core.interest.subscriptions import Clients
from veena.core.wire.interest import Row
from veena.matching.engines import selector
from veena.sim.clients.population import draw_event, draw_subscription


def ranges(low: int, high: int, scope: int = 4) -> Want:
    return make_want("selector", ("q", f"price BETWEEN {low} AND {high}"), scope)


def test_a_want_is_engine_constraint_and_scope() -> None:
    """PRF-01, PRF-04: the same three give the same key, another one another."""
    one = make_want("topic", "quotes", 4)
    assert one == make_want("topic", "quotes", 4)
    others = [
        make_want("topic", "quotes", 1),
        make_want("topic", "Quotes", 4),
        make_want("selector", ("quotes", "a=1"), 4),
    ]
    assert len({one.key, *(other.key for other in others)}) == 4
    assert one.constraint == "quotes"
    assert others[2].constraint == ("quotes", "a=1")
    xpath = make_want("xpath", ("/a:b", {"a": "urn:a"}), 4)
    assert xpath.constraint == ("/a:b", {"a": "urn:a"})


def test_an_empty_selector_is_the_topic() -> None:
    """MAT-21."""
    assert make_want("selector", ("quotes", "  "), 4) == make_want("topic", "quotes", 4)


@pytest.mark.parametrize(
    ("engine", "constraint"),
    [("selector", ("q", "price >")), ("topic", 5), ("nothing", "x"), ("integer", 1 << 40), ("topic", "x" * 30_000)],
)
def test_what_no_broker_would_store_is_refused(engine: str, constraint: object) -> None:
    clients = Clients((0, 0, 0, 0))
    clients.open(1, "alice")
    with pytest.raises(InvalidConstraint):
        clients.subscribe(1, 1, engine, constraint, 4)  # type: ignore[arg-type]
    assert clients.statistics().subscriptions == 0
    clients.check()


def test_a_row_must_be_what_its_key_says() -> None:
    want = make_want("topic", "quotes", 4)
    version = (1, (0, 0, 0, 1), 1)
    row = Row((0, 0, 0, 1), want.key, version, True, want.kind, want.payload, 4)
    assert want_of(row) == want
    for bad in (
        Row(row.unit, want.key, version, True, want.kind, b"\xa1x", 4),
        Row(row.unit, want.key, version, True, 99, want.payload, 4),
        Row(row.unit, want.key, version, True, want.kind, want.payload, 3),
    ):
        with pytest.raises(RemoteProtocolError):
            want_of(bad)


def test_covering() -> None:
    """AGG-07: the topic covers its selectors, a wider range a narrower one, a farther scope a nearer one."""
    topic = make_want("topic", "q", 4)
    assert covers(topic, ranges(1, 2))
    assert not covers(ranges(1, 2), topic)
    assert covers(ranges(0, 9), ranges(1, 2))
    assert not covers(ranges(0, 9, scope=1), ranges(1, 2))
    assert covers(ranges(0, 9), ranges(1, 2, scope=1))
    assert not covers(make_want("topic", "other", 4), ranges(1, 2))


def test_only_transitions_and_only_the_widest_are_told() -> None:
    """PPP-05, AGG-06, AGG-07: counted, covered, and told again when the cover goes."""
    cover = CoverSet()
    assert cover.add(ranges(1, 2))
    assert not cover.add(ranges(1, 2))
    assert cover.add(ranges(0, 9))
    assert list(cover.told) == [ranges(0, 9).key]
    assert not cover.add(ranges(3, 4))
    assert not cover.remove(ranges(1, 2))
    assert not cover.remove(ranges(3, 4))
    assert cover.remove(ranges(0, 9))
    assert list(cover.told) == [ranges(1, 2).key]
    cover.check()
    assert cover.remove(ranges(1, 2))
    assert not cover.told
    assert len(cover) == 0
    with pytest.raises(KeyError):
        cover.remove(ranges(1, 2))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=14), st.randoms())
def test_what_is_told_depends_on_the_wants_alone(bounds: list[tuple[int, int, bool]], chance: random.Random) -> None:
    """Two speakers that know the same wants tell the same, in whatever order they heard them."""
    wants = [make_want("topic", "q", 4) if whole else ranges(low, low + width) for low, width, whole in bounds]
    one, other = CoverSet(), CoverSet()
    for want in wants:
        one.add(want)
    shuffled = list(wants)
    chance.shuffle(shuffled)
    for want in shuffled:
        other.add(want)
        other.add(ranges(0, 100))
    for _ in shuffled:
        other.remove(ranges(0, 100))
    one.check()
    other.check()
    assert set(one.told) == set(other.told)
    assert all(any(covers(told, want) for told in one.told.values()) for want in wants)


@settings(max_examples=300)
@given(st.integers(0, 10**9), st.booleans())
def test_a_digest_is_never_narrower_than_the_truth(seed: int, crowded: bool) -> None:
    """I2: whatever an engine would match, the digest lets through; exact hashes and Bloom filter alike."""
    chance = random.Random(seed)
    engine_name, constraint = draw_subscription(chance)
    event = draw_event(chance)
    engine = matching.create(engine_name)
    engine.add(1, constraint, 1)
    others = [make_want("topic", f"other-{n}", 4) for n in range(MAX_ATOMS + 1)] if crowded else []
    part = make_part(4, [make_want(engine_name, constraint, 4), *others])
    assert part.bloom == crowded
    if engine.match(event):
        assert DigestTest(part).may_want(event_atoms(event))


def test_a_digest_stops_what_nobody_wants() -> None:
    part = make_part(4, [make_want("topic", "quotes", 4), make_want("tags", "make=Ford,colour=*", 4)])
    test = DigestTest(part)
    assert not test.may_want(event_atoms(Event(topic="news")))
    assert not test.may_want(event_atoms(Event(tags="make=Fiat,colour=red")))
    assert test.may_want(event_atoms(Event(tags="make=Ford,colour=red")))


def test_digests_merge_into_their_union() -> None:
    many = [make_want("topic", f"t{n}", 4) for n in range(MAX_ATOMS)]
    one, other = make_part(4, many), make_part(4, [make_want("topic", "quotes", 4)])
    assert not one.bloom
    both = merge_parts(4, [one, other])
    assert both.bloom
    for part in (both, merge_digests([one], [other])[0]):
        assert DigestTest(part).may_want(event_atoms(Event(topic="quotes")))
        assert DigestTest(part).may_want(event_atoms(Event(topic="t17")))
    wrong = sum(DigestTest(both).may_want(event_atoms(Event(topic=f"x{n}"))) for n in range(1000))
    assert wrong < 20
    assert merge_parts(4, [other, other]) == other
    assert [part.scope for part in merge_digests([one], [make_part(3, many[:1])])] == [3, 4]


def test_a_topic_that_was_packed_in_another_way_is_told_on_as_it_came() -> None:
    """Its key is the hash of its bytes, and whoever hears of it compares them."""
    usual, wasteful = b"\xa6quotes", b"\xd9\x06quotes"
    wants = [keyed_want(TOPIC, payload, 4) for payload in (usual, wasteful)]
    assert [want.payload for want in wants] == [usual, wasteful]
    assert [want.constraint for want in wants] == ["quotes", "quotes"]
    assert wants[0].key != wants[1].key
    assert keyed_want(TOPIC, b"\x01", 4).payload == b"\x01"


def test_wants_as_long_as_may_be_are_told_without_being_read() -> None:
    """AGG-07: comparing is bounded by what is compared; telling one too many is never wrong."""
    long = " OR ".join(f"p{at} LIKE '%x{at}%'" for at in range(400))
    read = selector._formula.cache_info()
    cover = CoverSet()
    for number in range(20):
        assert cover.add(make_want("selector", ("wordy", f"{long} OR n = {number}"), 4))
    assert len(cover.told) == 20
    now = selector._formula.cache_info()
    assert (now.hits, now.misses) == (read.hits, read.misses)
    cover.check()


def test_a_want_is_read_once_and_compared_as_long_as_it_takes_little() -> None:
    """AGG-07: of many long ones of one topic a new one is compared with a few, and with no more."""
    terms = " OR ".join(f"p{at} = {at}" for at in range(150))
    read = selector._formula.cache_info()
    cover = CoverSet()
    for number in range(40):
        cover.add(make_want("selector", ("busy", f"{terms} OR number = {number}"), 4))
    now = selector._formula.cache_info()
    size = len(next(iter(cover.told.values())).payload)
    compared = MAX_WORK // size**2 + 1
    assert 0 < now.misses - read.misses <= 40, "each is read once"
    # With so many others when it comes, in both directions, and each question reads two.
    assert now.hits - read.hits <= 40 * compared * 4
    assert not cover.add(make_want("selector", ("busy", "number = 3"), 4)), "a short one is still compared with all"
    cover.check()


def test_a_former_want_is_covered_by_what_it_was_and_covers_no_want() -> None:
    """CLI-05, AGG-07: who gets all events gets the old ones; a digest lets both through alike."""
    topic, narrow, wide = make_want("topic", "q", 4), ranges(2, 3), ranges(1, 4)
    for want in (topic, wide, make_want("tags", "a=b", 4), make_want("xpath", "/a", 4), make_want("integer", 7, 4)):
        old = former_want(want)
        assert (old.engine, old.constraint, old.scope) == (want.engine, want.constraint, 4) and old.key != want.key
        assert covers(want, old) and not covers(old, want) and covers(old, old)
        assert atoms_of(old) == atoms_of(want)
    assert covers(topic, former_want(narrow)) and covers(former_want(topic), former_want(narrow))
    assert covers(former_want(wide), former_want(narrow)) and not covers(former_want(topic), narrow)
    assert not covers(make_want("topic", "q", 1), former_want(topic))


def test_a_former_want_is_told_when_what_covers_it_goes() -> None:
    """CLI-05: at no time less than the truth: it is counted first, then the want goes."""
    for want in (make_want("topic", "q", 4), ranges(1, 4)):
        told, old = CoverSet(4), former_want(want)
        told.add(want)
        assert not told.add(old), "covered"
        assert told.remove(want) and [each.key for each in told.told.values()] == [old.key]
        told.check()
        assert told.add(want) and [each.key for each in told.told.values()] == [want.key]
        told.remove(want)
        assert told.remove(old) and len(told) == 0
        told.check()


def test_kinds_of_wants() -> None:
    """No client's id is former, and no other number is a kind."""
    kinds = [*range(len(KINDS)), *(FORMER | kind for kind in range(TO))]
    assert [kind for kind in range(256) if is_kind(kind)] == kinds
