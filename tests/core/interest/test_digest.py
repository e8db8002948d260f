"""Digests within 128 KiB a broker: folded, merged at different lengths, refused when they are none; never narrower."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veena import Event, RemoteProtocolError, matching
from veena.address import MAX_LEVELS, Address, Unit
from veena.core.boundary.inputs_effects import ClientUp, Subscribe
from veena.core.boundary.settings import SECOND_NS, Settings
from veena.core.interest.constraint import CONSTRAINT, TAGS, TOPIC, make_want
from veena.core.interest.digest import (
    ATOM_BYTES,
    DIGEST_LEVEL,
    MAX_ATOMS,
    MAX_DOCUMENT,
    MAX_ELEMENTS,
    MAX_KEPT_BYTES,
    MAX_WANT_ATOMS,
    MIN_FILTER_BYTES,
    DigestTest,
    check_parts,
    digest_limit,
    event_atoms,
    fitted,
    foldings,
    make_part,
    merge_parts,
    size_of,
)
from veena.core.interest.interest_map import InterestMap
from veena.core.interest.service import Profiles
from veena.core.interest.table import InterestTable
from veena.core.topology.network_map import NetworkMap
from veena.core.wire.interest import MAX_DIGEST_BYTES, Digest, DigestPart, Interest
from veena.event import Value

HOST: Address = (0, 0, 0, 0)
LEVELS, FANOUT = 4, 32


def part(numbers: range, scope: int = LEVELS) -> DigestPart:
    return make_part(scope, [make_want("topic", f"t{number}", scope) for number in numbers])


def lets_through(parts: tuple[DigestPart, ...], number: int) -> bool:
    atoms = event_atoms(Event(topic=f"t{number}"))
    return any(DigestTest(one).may_want(atoms) for one in parts)


def siblings(level: int) -> list[Unit]:
    """All units of a level around the host, its own included, in a network that is full."""
    return [(*HOST[: LEVELS - level - 1], number) for number in range(FANOUT)]


@settings(max_examples=60)
@given(st.integers(0, 1500), st.integers(0, 1500), st.integers(64, 20_000), st.integers(0, 10**9))
def test_a_folded_digest_is_wider_and_within_its_limit(many: int, few: int, limit: int, seed: int) -> None:
    """I2: hashes that become a filter, and filters of any length, let through all that they did before."""
    before = (part(range(few), 3), part(range(2000, 2000 + many)))
    after = fitted(before, limit)
    assert size_of(after) <= limit
    check_parts(after, DIGEST_LEVEL, LEVELS)
    chance = random.Random(seed)
    for numbers in (range(few), range(2000, 2000 + many)):
        for number in chance.sample(numbers, min(20, len(numbers))):
            assert lets_through(after, number)
    assert fitted(before, max(limit, size_of(before))) == before


@settings(max_examples=60)
@given(st.integers(0, 1500), st.integers(0, 1500), st.integers(64, 20_000), st.integers(64, 20_000))
def test_folding_in_steps_is_folding_at_once(many: int, few: int, one: int, other: int) -> None:
    """A speaker and those who keep what it tells fold to the same, whatever the order: nothing is told twice for it."""
    parts = (part(range(few), 3), part(range(2000, 2000 + many)))
    assert fitted(fitted(parts, max(one, other)), min(one, other)) == fitted(parts, min(one, other))


@pytest.mark.parametrize("atoms", [1, 600])
def test_filters_of_different_lengths_merge(atoms: int) -> None:
    """The union lets through what either does, and a short filter does not spoil a long one."""
    long, short = part(range(2000)), fitted((part(range(5000, 5600)),), 2048)[0]
    union = merge_parts(LEVELS, [long, short, part(range(9000, 9000 + atoms))])
    assert len(union.data) == MAX_DIGEST_BYTES
    for number in (*range(0, 2000, 50), *range(5000, 5600, 50), *range(9000, 9000 + atoms, 50)):
        assert lets_through((union,), number)
    assert sum(lets_through((union,), number) for number in range(20_000, 21_000)) < 60
    assert merge_parts(LEVELS, [short, short]) == short


def full_table(atoms: int) -> tuple[InterestTable, int]:
    """Every unit of a full network tells filters of full length in all its scopes; the table, and what was told."""
    table = InterestTable(HOST)
    filters = {scope: part(range(atoms), scope) for scope in range(DIGEST_LEVEL + 1, LEVELS + 1)}
    told = 0
    for level in range(DIGEST_LEVEL, LEVELS):
        parts = tuple(filters[scope] for scope in range(level + 1, LEVELS + 1))
        for number, unit in enumerate(siblings(level)):
            told += size_of(parts)
            assert table.learn_digest(Digest(unit, (1, (*unit, *(0,) * level), number + 1), parts), None)
            table.check()
    return table, told


def test_all_digests_of_a_broker_are_within_their_bound() -> None:
    """I3: fan-out 32, all units telling as much as a frame may have; and what is passed on is what is kept."""
    table, told = full_table(2000)
    units = [unit for level in range(DIGEST_LEVEL, LEVELS) for unit in siblings(level)]
    kept = [table.digest(unit) for unit in units]
    assert told == (2 * FANOUT + FANOUT) * MAX_DIGEST_BYTES
    assert sum(size_of(digest.parts) for digest in kept if digest is not None) <= MAX_KEPT_BYTES < told
    assert [item for item, _ in table.take_news()] == kept
    for digest in kept:
        assert digest is not None
        assert all(lets_through(digest.parts, number) for number in range(0, 2000, 100))


def test_the_shortest_filters_have_room_in_the_largest_network() -> None:
    """Whatever addresses can name, and however many parts a frame may have."""
    units = MAX_LEVELS * 64
    parts = tuple(part(range(2000), scope) for scope in range(1, 9))
    assert units * size_of(fitted(parts, digest_limit(units))) <= MAX_KEPT_BYTES
    assert digest_limit(units) >= len(parts) * MIN_FILTER_BYTES


def test_the_interest_map_folds_with_the_table() -> None:
    """What is asked is what is kept, also of units that spoke before the others made their shares smaller."""
    table = InterestTable(HOST)
    interest = InterestMap(NetworkMap(HOST), table, FANOUT)
    parts = (part(range(2000), 3), part(range(2000, 4000), 4))
    for number in range(1, FANOUT):
        digest = Digest((0, number), (1, (0, number, 0, 0), 1), parts)
        assert table.learn_digest(digest, None)
        interest.heard_digest(digest)
    kept = [test.part for tests in interest._digests.values() for test in tests.values()]
    assert size_of(kept) <= MAX_KEPT_BYTES
    assert all(any(one is other for other in kept) for unit in table.units() for one in table.digest(unit).parts)  # type: ignore[union-attr]
    wanted = interest.destinations(Event(topic="t7"), (0, 0, 0, 1), 0)
    assert wanted == sum(interest.bit((0, number)) for number in range(1, FANOUT))


def test_a_crowded_speaker_tells_a_digest_once() -> None:
    """Its own digest is folded in its own table: that is no reason to tell it again."""
    one = Profiles(NetworkMap(HOST), Settings(), 0)
    one.map_changed(0)
    for number in range(1, FANOUT):
        version = (1, (number, 0, 0, 0), 1)
        one.handle(Interest((), (Digest((number,), version, (part(range(2000)),)),)), 1, 0, 0)
    one.client(ClientUp(1, "alice"), 0)
    for number in range(MAX_ATOMS + 100):
        one.client(Subscribe(1, number, "topic", f"t{number}", LEVELS), 0)
    told = []
    for step in range(20 * 30):  # thirty steps a second, since not all is told in one
        one.tick((step // 30 + 1) * SECOND_NS)
        told += [item for item, _ in one.news() if isinstance(item, Digest) and item.unit == HOST[:2]]
    assert [size_of(digest.parts) for digest in told if digest.parts] == [2048]
    one.check()


@pytest.mark.parametrize(
    ("unit", "parts", "reason"),
    [
        ((0, 1), (DigestPart(4, True, b"abc"),), "power of two"),
        ((0, 1), (DigestPart(4, True, b""),), "power of two"),
        ((0, 1), (DigestPart(4, False, b"x" * (ATOM_BYTES + 1)),), "multiple of 8"),
        ((0, 1), (DigestPart(4, False, b""), DigestPart(4, False, b"")), "ascending"),
        ((0, 1), (DigestPart(2, False, b""),), "3 to 4"),
        ((1,), (DigestPart(5, False, b""),), "4 to 4"),
        ((0, 0, 1), (), "told as rows"),
    ],
)
def test_what_is_no_digest_costs_its_bearer_the_link(unit: Unit, parts: tuple[DigestPart, ...], reason: str) -> None:
    """A filter that cannot be asked must not be found out when an event comes."""
    one = Profiles(NetworkMap(HOST), Settings(), 0)
    speaker = (*unit, *(0,) * (LEVELS - len(unit)))
    with pytest.raises(RemoteProtocolError, match=reason):
        one.handle(Interest((), (Digest(unit, (1, speaker, 1), parts),)), 1, 0, 0)
    assert one.table.digest(unit) is None


def of_application(name: str, **properties: float) -> list[bytes]:
    return event_atoms(Event(properties=dict(properties), headers={"domain_name": name, "type_name": "Monitoring"}))


@pytest.mark.parametrize(
    "constraint",
    [
        "($domain_name == 'heat' and step > 3) or ($domain_name == 'oil' and (mean < 1 or not exist step))",
        "$domain_name in ('heat', 'oil') and step != 3",
        "exist step and ($domain_name == 'heat' or $domain_name == 'oil')",
    ],
)
def test_a_disjunction_is_known_by_the_atoms_of_its_parts(constraint: str) -> None:
    """AGG-01, I2: one want for two applications lets through no more of a third than two wants would."""
    test = DigestTest(make_part(LEVELS, [make_want("constraint", constraint, LEVELS)]))
    assert test.may_want(of_application("heat", step=4)) and test.may_want(of_application("oil"))
    assert not test.may_want(of_application("gas", step=4, mean=0))


def test_a_disjunction_of_too_many_parts_is_known_by_less() -> None:
    """I2: never narrower, and one want does not fill a digest."""
    parts = [f"($domain_name == 'a{number}' and step > {number})" for number in range(MAX_WANT_ATOMS + 1)]
    for count, is_known in ((MAX_WANT_ATOMS, True), (MAX_WANT_ATOMS + 1, False)):
        one = make_part(LEVELS, [make_want("constraint", " or ".join(parts[:count]), LEVELS)])
        assert len(one.data) == (count if is_known else 1) * ATOM_BYTES
        assert (
            DigestTest(one).may_want(of_application("a7")) and DigestTest(one).may_want(of_application("x")) != is_known
        )
    listed = make_want("constraint", f"x in ({', '.join(map(repr, map(str, range(MAX_WANT_ATOMS + 1))))})", LEVELS)
    assert len(make_part(LEVELS, [listed]).data) == ATOM_BYTES, "by the name alone"
    never = make_want("constraint", "FALSE", LEVELS)
    assert not make_part(LEVELS, [never]).data


_LEAVES = (
    "x == 'a'", "x == 'b'", "x in ('a', 'c')", "y > 3", "y == 2", "y in (1, 2)", "exist z", "not exist z", "x != 'a'",
    "'b' ~ x", "z == TRUE", "FALSE", "TRUE",
)  # fmt: skip
_texts = st.recursive(
    st.sampled_from(_LEAVES),
    lambda inner: st.builds(
        lambda parts, joint, is_not: f"{'not ' if is_not else ''}({joint.join(f'({part})' for part in parts)})",
        st.lists(inner, min_size=1, max_size=3), st.sampled_from([" and ", " or "]), st.booleans(),
    ),
    max_leaves=8,
)  # fmt: skip
_properties = st.fixed_dictionaries(
    {},
    optional={
        "x": st.sampled_from(["a", "b", "c", "ab", 1, True]),
        "y": st.sampled_from([1, 2, 2.0, 3.5, 4, "2"]),
        "z": st.sampled_from([True, False, "a", 0]),
    },
)


def test_what_a_constraint_is_true_of_its_atoms_let_through() -> None:
    """I2, AGG-07: whatever is joined by and, or and not; never narrower than the truth."""
    matches = 0

    @settings(max_examples=400)
    @given(_texts, _properties)
    def every_match_passes(text: str, properties: dict[str, Value]) -> None:
        nonlocal matches
        event = Event(properties=properties)
        engine = matching.create("constraint")
        engine.add(1, text, 1)
        if engine.match(event):
            matches += 1
            assert DigestTest(make_part(LEVELS, [make_want("constraint", text, LEVELS)])).may_want(event_atoms(event))

    every_match_passes()
    assert matches > 20, "most of the generated events match nothing: the test shows nothing"


def test_a_digest_tells_what_it_reads() -> None:
    """Kinds and up to 64 names, kept by folding and merging; more stand for any."""
    wants = [make_want("constraint", f"a{number} > 1 or b == 'x'", LEVELS) for number in range(20)]
    wants += [make_want("tags", "make=Ford,model=*", LEVELS), make_want("selector", ("quotes", "price > 1"), LEVELS)]
    one = make_part(LEVELS, wants)
    assert one.names == tuple(sorted(["b", "make", *(f"a{number}" for number in range(20))]))
    assert one.kinds == 1 << CONSTRAINT | 1 << TAGS | 1 << TOPIC
    assert all((each.kinds, each.names) == (one.kinds, one.names) for each in foldings(one))
    other = make_part(LEVELS, [make_want("constraint", f"c{number} > 1", LEVELS) for number in range(50)])
    assert merge_parts(LEVELS, [one, part(range(3))]).names == one.names
    assert merge_parts(LEVELS, [one, other]).names is None
    assert (
        make_part(LEVELS, [make_want("constraint", f"{'n' * 250}{number} > 1", LEVELS) for number in range(5)]).names
        is None
    )
    assert all(DigestTest(one).holds(want) for want in wants)
    assert not DigestTest(one).holds(make_want("constraint", "c1 > 1", LEVELS))
    assert (part(range(3)).kinds, part(range(3)).names) == (1 << TOPIC, ())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_digests_do_not_read_makes_no_difference(data: st.DataObject) -> None:
    """The same digests let an event through whether all of it is looked at or what they say they read, and whether it
    is one or one of many."""
    texts = ["price > 1", "sym == 'IBM'", "exist note or sym == 'SUN'", "$type_name == 'x'"]
    chosen = data.draw(st.lists(st.sampled_from(texts), max_size=3))
    wants = [make_want("constraint", text, LEVELS) for text in chosen]
    wants += [make_want("tags", "make=Ford", LEVELS)] * data.draw(st.integers(0, 1))
    wants += [make_want("topic", "quotes", LEVELS)] * data.draw(st.integers(0, 1))
    interest = InterestMap(NetworkMap(HOST), InterestTable(HOST), FANOUT)
    for number in (1, 2):
        some = [want for at, want in enumerate(wants) if at % 2 == number % 2]
        interest.heard_digest(Digest((0, number), (1, (0, number, 0, 0), 1), (make_part(LEVELS, some),)))
    values = st.sampled_from([None, 1, 2.5, "IBM", "SUN"])
    event = Event(
        topic=data.draw(st.sampled_from([None, "quotes", "news"])),
        properties=data.draw(st.dictionaries(st.sampled_from(["price", "sym", "note", "else"]), values)),
        headers=data.draw(st.dictionaries(st.sampled_from(["type_name", "$type_name", "id"]), st.just("x"))),
        tags=data.draw(
            st.none() | st.dictionaries(st.sampled_from(["make", "model"]), st.sampled_from(["Ford", "VW"]))
        ),
    )
    expected = 0
    for unit, tests in interest._digests.items():
        if any(test.may_want(event_atoms(event)) for test in tests.values()):
            expected |= interest.bit(unit)
    assert interest.destinations(event, HOST, 0) == expected
    many = interest.wanted_batch([event], [event.topic], 0)
    assert interest.certain(event.topic, 0) | (0 if many is None else many[0]) == expected


@pytest.mark.parametrize(
    ("xpath", "let_through", "stopped"),
    [
        ("/order/item[@sku='7']", "<order><item/></order>", "<order><note/></order>"),
        ("//item or //price/item", "<a><item/></a>", "<a><price/></a>"),
        ("count(//item) > 3", "<a/>", None),
        ("not(//item)", "<item/>", None),
    ],
)
def test_an_xpath_is_known_by_an_element_that_it_requires(xpath: str, let_through: str, stopped: str | None) -> None:
    test = DigestTest(make_part(LEVELS, [make_want("xpath", xpath, LEVELS)]))
    assert test.may_want(event_atoms(Event(xml=let_through)))
    assert not test.may_want(event_atoms(Event(topic="item")))
    if stopped is not None:
        assert not test.may_want(event_atoms(Event(xml=stopped)))
    crowded = "<all>" + "".join(f"<e{number}/>" for number in range(MAX_ELEMENTS + 1)) + "</all>"
    long = f"<all>{' ' * MAX_DOCUMENT}</all>"
    assert all(test.may_want(event_atoms(Event(xml=each))) for each in (crowded, long))


def test_elements_have_their_namespace() -> None:
    wanted = make_want("xpath", ("//o:item", {"o": "urn:orders"}), LEVELS)
    test = DigestTest(make_part(LEVELS, [wanted]))
    assert test.may_want(event_atoms(Event(xml="<a xmlns='urn:orders'><item/></a>")))
    assert not test.may_want(event_atoms(Event(xml="<a><item/></a>")))
