"""Events, ids, addresses and vectors."""

from __future__ import annotations

from itertools import pairwise

import pytest

from veena import Event, EventId, InvalidAddress, InvalidEvent, UnrelatedEvents
from veena.address import (
    Labels,
    ancestor,
    bit,
    capacity,
    contains,
    format_address,
    identifiers,
    level_name,
    link_level,
    pack_words,
    parse_address,
    unpack_words,
    words,
)
from veena.event import IdGenerator, Lane, Signature, UuidGenerator, lane


def test_ids_are_unique_and_ascend_on_a_frozen_clock() -> None:
    """UID-01, UID-02, UID-03: a thousand events within one tick are distinct and ordered."""
    generator = IdGenerator("alice")
    made = [generator.next(42) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(later > earlier for earlier, later in pairwise(made))
    assert made[0].timestamp == made[-1].timestamp == 42


def test_ids_of_many_publishers_never_clash() -> None:
    """UID-01 (scaled down): 100 publishers with one clock."""
    generators = [IdGenerator(f"client-{n}") for n in range(100)]
    made = {generator.next(now) for now in range(100) for generator in generators}
    assert len(made) == 10_000


def test_a_crash_resets_the_sequence_but_not_the_order() -> None:
    """UID-04: nothing was persisted, yet what comes after the restart is later."""
    before = IdGenerator("alice")
    last = [before.next(1000) for _ in range(500)][-1]
    after = IdGenerator("alice").next(1001)
    assert after.sequence == 0
    assert after > last


def test_a_new_stamp_after_the_last_sequence_number() -> None:
    """UID-05: with MAX = 3 events 1 to 3 share a stamp, event 4 has a newer one and starts again."""
    generator = IdGenerator("alice", max_sequence=3)
    made = [generator.next(100 + n) for n in range(4)]
    assert [event_id.sequence for event_id in made] == [0, 1, 2, 0]
    assert [event_id.timestamp for event_id in made] == [100, 100, 100, 103]


@pytest.mark.parametrize("clock", [[7, 7, 7, 7, 7, 7, 7], [7, 7, 7, 3, 3, 3, 3]])
def test_roll_over_never_repeats_when_the_clock_stands_or_steps_back(clock: list[int]) -> None:
    """UID-06: a bumped stamp, never a repeat."""
    generator = IdGenerator("alice", max_sequence=3)
    made = [generator.next(now) for now in clock]
    assert all(later > earlier for earlier, later in pairwise(made))


def test_order_is_by_stamp_then_by_sequence() -> None:
    """UID-07."""
    assert EventId("a", 0, 2, 0) > EventId("a", 0, 1, 9)
    assert EventId("a", 0, 2, 1) > EventId("a", 0, 2, 0)
    assert EventId("a", 0, 2, 1) >= EventId("a", 0, 2, 1)
    assert EventId("a", 0, 1, 1) <= EventId("a", 0, 1, 2)


def test_unrelated_events_have_no_order() -> None:
    """UID-09, DUP-08: another publisher, or another incarnation of the same."""
    with pytest.raises(UnrelatedEvents, match="no order"):
        assert EventId("a", 0, 1, 1) < EventId("b", 0, 1, 1)
    with pytest.raises(UnrelatedEvents):
        EventId("a", 0, 1, 1).is_after(EventId("a", 1, 1, 1))


def test_uuids_are_labels_without_order() -> None:
    """UID-08, FUT-11."""
    generator = UuidGenerator()
    assert len({generator.next() for _ in range(1000)}) == 1000


def test_the_text_of_an_id_reads_back() -> None:
    event_id = EventId("site:7:alice", 3, 1000, 5)
    assert str(event_id) == "site:7:alice:3:1000:5"
    assert EventId.parse(str(event_id)) == event_id
    for text in ("alice", "alice:1:2", "alice:1:2:x", ":1:2:3", ""):
        with pytest.raises(InvalidEvent, match="client:incarnation:timestamp:sequence"):
            EventId.parse(text)


@pytest.mark.parametrize("client_id", ["", "x" * 256, "a\nb"])
def test_bad_client_ids_are_named(client_id: str) -> None:
    with pytest.raises(InvalidEvent, match="client id"):
        IdGenerator(client_id)


def test_an_event_always_has_a_timestamp() -> None:
    """EVT-01."""
    assert Event(topic="t").timestamp_ns > 0


def test_one_event_type_carries_every_kind_of_interaction() -> None:
    """EVT-02: transactions, data, conditions, search and sharing differ in content only."""
    kinds = ("transaction", "data", "condition", "search", "sharing")
    events = [Event(topic=kind, properties={"kind": kind}, body=kind.encode()) for kind in kinds]
    assert {type(event) for event in events} == {Event}


def test_properties_keep_their_order_and_are_read_without_the_body() -> None:
    """EVT-04, EVT-07."""
    event = Event(properties={"z": 1, "a": "x", "m": None}, body=memoryview(b"payload"))
    assert list(event.properties) == ["z", "a", "m"]
    assert bytes(event.body) == b"payload"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("body", "hello", "body is a str: expected bytes, such as 'hello'.encode()"),
        ("body", {"a": 1}, "body is a dict: expected bytes"),
        ("integer", "5", "integer '5': an integer topic is 0 to 4294967295"),
        ("tags", ["Make=Ford"], "expected a text such as Make=Ford,Color=Red, or a mapping"),
    ],
)
def test_what_an_event_cannot_hold_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        Event(**{field: value})  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_signature_limits_types_and_gives_the_order() -> None:
    """EVT-04."""
    signature = Signature([("sym", str), ("price", float)])
    assert list(signature.check({"price": 1.5, "sym": "IBM"})) == ["sym", "price"]
    for properties, message in (
        ({"sym": "IBM", "price": "dear"}, "'price' is 'dear', a str; the signature wants a float"),
        ({"sym": "IBM"}, "'price' is missing"),
        ({"sym": "IBM", "price": 1.0, "x": 1}, "'x' is not in the signature"),
        ({"sym": "IBM", "price": True}, "a bool"),
    ):
        with pytest.raises(InvalidEvent, match=message):
            signature.check(properties)  # type: ignore[arg-type]


def test_destinations_can_be_named_in_the_event() -> None:
    """EVT-05: an internal list; without one the system computes it."""
    assert Event(to=["bob", "carol"]).to == ("bob", "carol")
    assert Event(topic="quotes").to == ()
    with pytest.raises(InvalidEvent, match="not one text"):
        Event(to="bob")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("integer", -1, "0 to 4294967295"),
        ("integer", 1 << 32, "four bytes"),
        ("priority", 10, "0 .lowest. to 9"),
        ("ttl", 0, "seconds above 0"),
        ("ttl", float("nan"), "seconds above 0"),
        ("tags", "Make", "no tag=value pair"),
        ("tags", "Make=Ford,Make=Fiat", "twice"),
        ("tags", "", "no tag=value pair"),
    ],
)
def test_bad_fields_are_refused_with_a_remedy(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidEvent, match=message):
        Event(**{field: value})  # type: ignore[arg-type]


def test_tags_are_pairs_in_order() -> None:
    """MAT-30."""
    event = Event(tags="Make=Ford, Model=*,Color=Red")
    assert list(event.tag_values.items()) == [("Make", "Ford"), ("Model", "*"), ("Color", "Red")]
    assert Event().tag_values == {}


def test_lanes() -> None:
    assert [lane(False, p).band for p in range(10)] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert {lane(reliable, p).number for reliable in (False, True) for p in range(10)} == set(range(6))
    assert lane(True, 9) == Lane(True, 2)


# --- addresses ---


def test_addresses_read_back() -> None:
    """CTX-04: dotted, highest unit first."""
    assert parse_address("0.1.2.6") == (0, 1, 2, 6)
    assert format_address((0, 1, 2, 6)) == "0.1.2.6"
    labels = Labels()
    for text in ("D.C.B.a", "SSC-A.SC-1.c.6"):
        assert labels.label(labels.add(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "joined by dots"),
        ("1.x", "joined by dots"),
        ("1..2", "joined by dots"),
        ("0.0.0.32", "numbered 0 to 31"),
        ("0.0.0", "has 3 parts"),
        ("1.1.1.1.1.1.1.1.1", "expected 1 to 8"),
        ("²", "joined by dots"),
    ],
)
def test_bad_addresses_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidAddress, match=message):
        parse_address(text, levels=4)


def test_link_levels() -> None:
    """CTX-05: the highest level at which two addresses differ."""
    labels = Labels()
    names = ("SSC-A.SC-1.c.4", "SSC-A.SC-1.c.6", "SSC-A.SC-1.b.7", "SSC-A.SC-2.d.10", "SSC-B.SC-4.h.1")
    c4, *others = [labels.add(name) for name in names]
    assert [link_level(c4, other) for other in others] == [0, 1, 2, 3]
    with pytest.raises(InvalidAddress, match="no link level with itself"):
        link_level(c4, c4)


def test_contexts_nest_and_identifiers_are_local() -> None:
    """CTX-01, CTX-02, CTX-06: a level-l unit of an N-level system has N - l identifiers."""
    labels = Labels()
    c6, i6 = labels.add("A.1.c.6"), labels.add("A.1.i.6")
    assert c6 != i6
    assert c6[-1] == i6[-1] == 0
    assert [len(ancestor(c6, level)) for level in range(4)] == [4, 3, 2, 1]
    assert contains(labels.unit("A.1"), c6)
    assert not contains(labels.unit("A.1.c"), i6)


def test_capacity() -> None:
    """TOP-08, TOP-09, CLI-10."""
    assert capacity(64, top_level=3) == 2**24 == 16_777_216
    assert capacity(32, top_level=3) == 2**20 == 1_048_576
    assert len(pack_words(words((31, 31, 31, 31)))) == 16


@pytest.mark.parametrize("fanout", [32, 64])
def test_the_sub_unit_beyond_the_fan_out_is_refused(fanout: int) -> None:
    """TOP-07, AMB-1."""
    labels = Labels(fanout=fanout)
    for number in range(fanout):
        labels.add(f"A.1.c.{number}")
    with pytest.raises(InvalidAddress, match=rf"A\.1\.c holds {fanout} brokers already, 'x' is one too many"):
        labels.add("A.1.c.x")
    labels.add("A.1.d.x")


def test_hierarchies_of_other_depths() -> None:
    """TOP-02."""
    for levels in (1, 4, 5):
        labels = Labels(levels)
        label = ".".join("abcde"[:levels])
        assert len(labels.add(label)) == levels
    assert level_name(0) == "broker"
    assert level_name(4) == "super-super-super-cluster"
    with pytest.raises(InvalidAddress, match="levels 9"):
        Labels(9)
    with pytest.raises(InvalidAddress, match="fanout 16"):
        Labels(fanout=16)


@pytest.mark.parametrize("label", ["A.1.c", "A..c.1", "A.1.c.6 ", "A.1.c." + "x" * 65])
def test_bad_labels_are_refused(label: str) -> None:
    with pytest.raises(InvalidAddress, match=r"label|parts"):
        Labels().add(label)


def test_an_unknown_label_says_what_is_there() -> None:
    labels = Labels()
    labels.add("A.1.c.6")
    with pytest.raises(InvalidAddress, match=r"no '7' in A\.1\.c; it holds 6"):
        labels.unit("A.1.c.7")


def test_vectors() -> None:
    """DST-01, DST-02, DST-03: one bit a sub-unit, one word a level, OR for both."""
    labels = Labels()
    for number in range(1, 22):
        labels.add(f"SSC-A.SC-3.n.{number}")
    address = labels.unit("SSC-A.SC-3.n.21")
    vector = words(address)
    assert [word.bit_count() for word in vector] == [1, 1, 1, 1]
    assert unpack_words(pack_words(vector)) == vector
    n19, n20 = (bit(labels.unit(f"SSC-A.SC-3.n.{number}")[-1]) for number in (19, 20))
    assert (n19 | n20).bit_count() == 2
    assert n20 == n19 << 1
    assert list(identifiers(n19 | n20)) == [18, 19]
    assert len(pack_words(words((63, 0, 0, 63), fanout=64), fanout=64)) == 32


def test_bad_vectors_are_refused() -> None:
    with pytest.raises(InvalidAddress, match="32 bits holds 0 to 31"):
        bit(32)
    with pytest.raises(InvalidAddress, match="beyond the fan-out"):
        pack_words((1 << 32,))
    with pytest.raises(InvalidAddress, match="no whole number"):
        unpack_words(b"abc")
