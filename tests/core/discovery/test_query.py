"""SELECT over advertisements: read, complained about with positions, and merged from partial answers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.discovery.advert_cases import HOME, OTHER, advert, constraint, properties, sql, xpath
from veena.core.boundary.discovery import DEFAULT_DEADLINE_MS, DEFAULT_LEASE_S, Advertise, FoundAdvert
from veena.core.discovery import advertisement as advert_module
from veena.core.discovery import home_registry as shelf
from veena.core.discovery import index as advert_index
from veena.core.discovery import open_queries as questions
from veena.core.discovery.advertisement import check_advert, make_advert
from veena.core.discovery.query import MAX_LIMIT, parse_select
from veena.core.wire import discovery as discovery_frames
from veena.core.wire.discovery import MAX_QUERY, FoundRow
from veena.errors import InvalidConstraint, LocalProtocolError, RemoteProtocolError


def test_a_select_is_read() -> None:
    """DSC-02: keywords in any case, a condition with the selector's own grammar."""
    found = parse_select("select a, b from Adverts where a > 1 and t = 'ORDER BY x LIMIT 1' order by a desc, b limit 3")
    assert (found.columns, found.order, found.limit) == (("a", "b"), (("a", True), ("b", False)), 3)
    assert parse_select("SELECT * FROM adverts").columns == ("*",)
    assert parse_select("  SELECT a FROM adverts LIMIT 0").limit == 0
    assert parse_select(f"SELECT a FROM adverts LIMIT {'9' * 30}").limit == MAX_LIMIT


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected SELECT"),
        ("FIND a FROM adverts", 0, "expected SELECT"),
        ("SELECT FROM adverts", 7, "the name of a column"),
        ("SELECT a b FROM adverts", 9, "expected FROM"),
        ("SELECT a, FROM adverts", 10, "the name of a column"),
        ("SELECT a, a FROM adverts", 10, "stands there already"),
        ("SELECT count(*) FROM adverts", 12, "no functions"),
        ("SELECT 'a' FROM adverts", 7, "the name of a column"),
        ("SELECT a FROM services", 14, "FROM adverts"),
        ("SELECT a FROM adverts WHERE", 27, "expected a condition"),
        ("SELECT a FROM adverts WHERE LIMIT 3", 28, "expected a condition"),
        ("SELECT a FROM adverts WHERE a == 1", 31, ""),
        ("SELECT a FROM adverts WHERE a > ORDER BY a", 32, ""),
        ("SELECT a FROM adverts WHERE a > 1 ORDER a", 40, "expected BY"),
        ("SELECT a FROM adverts ORDER BY a, a", 34, "stands there already"),
        ("SELECT a FROM adverts ORDER BY 1", 31, "a column to sort by"),
        ("SELECT a FROM adverts LIMIT -1", 28, "whole number"),
        ("SELECT a FROM adverts LIMIT 1.5", 28, "whole number"),
        ("SELECT a FROM adverts LIMIT 1 ORDER BY a", 30, "in this order"),
        ("SELECT a FROM adverts; DROP", 21, "in this order"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, position: int, reason: str) -> None:
    """DSC-02: field, value and remedy, as for a selector."""
    with pytest.raises(InvalidConstraint) as caught:
        parse_select(text)
    assert caught.value.position == position
    assert caught.value.text == text
    assert reason in caught.value.reason


def test_a_constraint_brings_chosen_properties_of_so_many() -> None:
    """TRD-06: `name == 'oil' and network == 128`, with the properties that were asked for and no others."""
    query = constraint("name == 'oil' and network == 128", ("name", "category"), 2)
    oils = [advert(f"ad{number}", {"name": "oil", "network": 128, "category": "senior"}) for number in range(3)]
    assert all(query.matches(each, HOME) for each in oils)
    assert not query.matches(advert("x", {"name": "oil", "network": 129}), HOME)
    found = [query.found(row) for row in query.merge(query.row(each, HOME) for each in oils)]
    assert [(each.name, each.values) for each in found] == [("ad0", ("oil", "senior")), ("ad1", ("oil", "senior"))]
    everything = constraint("exist network")
    assert everything.found(everything.row(oils[0], HOME)).properties == {
        "name": "oil", "network": 128, "category": "senior",
    }  # fmt: skip
    assert constraint("").matches(oils[0], HOME), "an empty constraint is always true"


def test_a_constraint_that_is_wrong_is_refused_with_its_place() -> None:
    """TRD-02, TRD-06: the position of what is wrong; over what is no sequence `in` is false."""
    with pytest.raises(InvalidConstraint) as caught:
        constraint("name = 'oil'")
    assert caught.value.position == 5 and "==" in caught.value.reason
    with pytest.raises(InvalidConstraint, match="each once"):
        constraint("", ("a", "a"))
    assert not constraint("'oil' in name").matches(advert("x", {"name": "oil"}), HOME)
    assert not constraint("not ('oil' in parameters)").matches(advert("x", {"name": "oil"}), HOME)


def test_queries_are_bounded() -> None:
    with pytest.raises(InvalidConstraint, match="at most"):
        sql("SELECT a FROM adverts WHERE a = '" + "x" * MAX_QUERY + "'")
    columns = ", ".join(f"c{number}" for number in range(65))
    with pytest.raises(InvalidConstraint, match="at most 64"):
        parse_select(f"SELECT {columns} FROM adverts")
    with pytest.raises(InvalidConstraint):
        xpath("/a[")


@settings(max_examples=100)
@given(
    st.lists(properties.filter(bool), max_size=12),
    st.sampled_from(["", " ORDER BY p", " ORDER BY p DESC, q", " ORDER BY q LIMIT 3", " LIMIT 2"]),
    st.integers(0, 1000),
)
def test_partial_answers_merge_to_the_answer_of_one(
    items: list[dict[str, str | bool | int | float]], tail: str, seed: int
) -> None:
    """DSC-04: sorted and limited where they stand and again at the asker, with some of them answered twice."""
    query = sql(f"SELECT p, q FROM adverts{tail}")
    rows = [query.row(advert(f"ad{number}", each), HOME) for number, each in enumerate(items)]
    chance = Random(seed)
    parts: list[list[FoundRow]] = [[], [], []]
    for row in rows:
        for part in chance.sample(parts, chance.choice([1, 1, 2])):
            part.append(row)
    assert query.merge(row for part in parts for row in query.merge(part)) == query.merge(rows)


def test_types_have_one_order_and_ties_go_by_id() -> None:
    """NULL, truth values, numbers, text; descending turns it round."""
    values: dict[str, str | bool | int | float] = {"e": "a", "d": 1.5, "c": 1, "b": True, "f": "b"}
    query, reverse = sql("SELECT v FROM adverts ORDER BY v"), sql("SELECT v FROM adverts ORDER BY v DESC")
    adverts = [advert(name, {"v": value}) for name, value in values.items()] + [advert("a", {"w": 1})]
    adverts.append(advert("c2", {"v": 1.0}))
    assert [row.name for row in query.merge(query.row(each, HOME) for each in adverts)] == [
        "a", "b", "c", "c2", "d", "e", "f",
    ]  # fmt: skip
    assert [row.name for row in reverse.merge(reverse.row(each, HOME) for each in adverts)] == [
        "f", "e", "d", "c", "c2", "b", "a",
    ]  # fmt: skip


def test_an_answer_holds_what_was_asked_for() -> None:
    """DSC-05: ids alone, columns, or everything."""
    offer = advert("printer", {"floor": 2, "colour": True}, "<p>ä</p>")

    def answered(text: str, full: bool = True) -> FoundAdvert:
        query = sql(text, full)
        row = query.row(offer, HOME)
        query.check(row)
        return query.found(row)

    assert answered("SELECT floor, size FROM adverts") == FoundAdvert("alice", "printer", HOME, values=(2, None))
    assert answered("SELECT floor FROM adverts ORDER BY colour", full=False) == FoundAdvert("alice", "printer", HOME)
    whole = FoundAdvert("alice", "printer", HOME, properties={"floor": 2, "colour": True}, xml="<p>ä</p>")
    assert answered("SELECT * FROM adverts") == whole
    query = xpath("/p")
    assert query.found(query.row(offer, HOME)) == whole
    small, large = sql("SELECT * FROM adverts", False).row(offer, HOME), sql("SELECT * FROM adverts").row(offer, HOME)
    assert len(msgspec.msgpack.encode(small)) < len(msgspec.msgpack.encode(large))


def test_what_an_answer_says_of_each_row_can_be_asked_for_in_sql() -> None:
    """DSC-04: client, name and home are columns, in every clause; a stated property of such a name stands for it."""
    plain, named = advert("printer", {"ppm": 20}), advert("oil", {"name": "crude", "home": 7})

    def answered(text: str) -> list[tuple[object, ...] | None]:
        query = sql(f"SELECT {text}")
        rows = [query.row(each, HOME) for each in (plain, named) if query.matches(each, HOME)]
        return [query.found(row).values for row in query.merge(rows)]

    assert answered("name, client, home FROM adverts") == [("crude", "alice", 7), ("printer", "alice", "0.0.0.1")]
    assert answered("ppm FROM adverts WHERE name = 'printer' AND home LIKE '0.0.%'") == [(20,)]
    assert answered("client FROM adverts WHERE name = 'oil'") == [], "the property counts"
    assert answered("name FROM adverts ORDER BY name DESC LIMIT 1") == [("printer",)]
    assert answered("name FROM adverts WHERE name IS NULL OR client IS NULL") == []
    everything = sql("SELECT * FROM adverts WHERE name = 'printer'")
    assert everything.found(everything.row(plain, HOME)).properties == {"ppm": 20}, "* is what was stated"


def test_a_constraint_sees_what_was_stated_alone() -> None:
    """TRD-06: an offer that states no name has none."""
    printer = advert("printer", {"ppm": 20})
    assert constraint("not exist name").matches(printer, HOME)
    assert not constraint("name == 'printer' or exist home").matches(printer, HOME)
    query = constraint("ppm == 20", ("name", "ppm"))
    assert query.found(query.row(printer, HOME)).values == (None, 20)


def test_the_latest_of_one_id_is_kept() -> None:
    query = sql("SELECT floor FROM adverts")
    old = query.row(advert("printer", {"floor": 1}, now_ns=1), HOME)
    new = query.row(advert("printer", {"floor": 2}, now_ns=2), OTHER)
    assert query.merge([new, old]) == query.merge([old, new]) == [new]


@pytest.mark.parametrize(
    "changes",
    [
        {"values": b"\xc1"},
        {"values": msgspec.msgpack.encode([1])},
        {"values": msgspec.msgpack.encode([1, [2]])},
        {"keys": b""},
        {"keys": msgspec.msgpack.encode([1, 2])},
    ],
)
def test_a_row_that_answers_something_else_is_refused(changes: dict[str, bytes]) -> None:
    query = sql("SELECT a, b FROM adverts ORDER BY a")
    row = query.row(advert("x", {"a": 1}), HOME)
    query.check(row)
    with pytest.raises(RemoteProtocolError):
        query.check(msgspec.structs.replace(row, **changes))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Advertise(1, "", 1, {"a": 1}), "name"),
        (Advertise(1, "x\n", 1, {"a": 1}), "printable"),
        (Advertise(1, "x", 0, {"a": 1}), "scope 0"),
        (Advertise(1, "x", 5, {"a": 1}), "scope 5"),
        (Advertise(1, "x", 1), "empty"),
        (Advertise(1, "x", 1, {"a": 1}, ""), "leave xml out"),
        (Advertise(1, "x", 1, {"a": float("nan")}), "finite"),
        (Advertise(1, "x", 1, {"a": 1 << 64}), "64"),
        (Advertise(1, "x", 1, {"": 1}), "a name has"),
        (Advertise(1, "x", 1, {"a": None}), "expected text"),  # type: ignore[dict-item]
        (Advertise(1, "x", 1, {"a": "\ud800"}), "surrogate"),
        (Advertise(1, "x", 1, {"a": "x" * 20_000}), "bytes of properties"),
        (Advertise(1, "x", 1, {f"p{number}": 1 for number in range(65)}), "at most 64"),
        (Advertise(1, "x", 1, xml="<a>"), "well-formed"),
        (Advertise(1, "x", 1, xml="<a>" + "x" * 66_000 + "</a>"), "at most 65536"),
        (Advertise(1, "x", 1, xml="<!DOCTYPE a><a/>"), "DOCTYPE"),
        (Advertise(1, "x", 1, {"a": 1}, lease_s=-1), "lease -1"),
        (Advertise(1, "x", 1, {"a": 1}, lease_s=float("nan")), "lease nan"),
    ],
)
def test_what_cannot_be_advertised_is_refused_with_the_reason(given: Advertise, words: str) -> None:
    """DSC-01: bounded, and such that it can be found."""
    with pytest.raises(LocalProtocolError) as caught:
        make_advert(given, "alice", 4, 0)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": 5},
        {"properties": b"\xc1"},
        {"properties": msgspec.msgpack.encode({"a": None})},
        {"properties": msgspec.msgpack.encode({"a": float("inf")})},
        {"properties": msgspec.msgpack.encode({f"p{number}": 1 for number in range(65)})},
        {"xml": b"<a"},
        {"xml": b"\xff", "is_text": True},
        {"properties": msgspec.msgpack.encode({}), "xml": b""},
    ],
)
def test_what_a_frame_brings_is_checked_as_well(changes: dict[str, object]) -> None:
    good = advert("x", {"a": 1}, "<a/>")
    check_advert(good, 4)
    with pytest.raises(RemoteProtocolError):
        check_advert(msgspec.structs.replace(good, **changes), 4)


def test_the_bounds_in_the_document_are_true() -> None:
    """docs/DISCOVERY.md says what the code does."""
    text = " ".join((Path(__file__).parents[3] / "docs" / "DISCOVERY.md").read_text(encoding="utf-8").split())
    for words in (
        f"1 to {discovery_frames.MAX_ADVERT_NAME} printable characters",
        f"| properties | {advert_module.MAX_PROPERTIES};",
        f"{discovery_frames.MAX_ADVERT_PROPERTIES // 1024} KiB together",
        f"| document | {discovery_frames.MAX_ADVERT_XML // 1024} KiB;",
        f"0 to {advert_module.MAX_LEASE_S / 86_400:.0f} days; {DEFAULT_LEASE_S:.0f} seconds unless told",
        f"| of one client at one broker | {shelf.MAX_OF_CLIENT:,} |",
        f"| of one broker | {shelf.MAX_ON_SHELF:,} |",
        f"{DEFAULT_DEADLINE_MS // 1000} seconds unless told, at most {discovery_frames.MAX_DEADLINE_MS // 1000}",
        (
            f"{discovery_frames.MAX_ANSWER_PAGES * discovery_frames.MAX_PAGE_BYTES >> 20} MiB from one unit,"
            f" {questions.MAX_ANSWER_BYTES >> 20} MiB in all"
        ),
        (
            f"Texts beyond {advert_index.MAX_INDEXED_TEXT} characters, and documents with more than"
            f" {advert_index.MAX_INDEXED_VALUES} values"
        ),
    ):
        assert words in text, words


def test_a_document_keeps_its_encoding() -> None:
    """MAT-51: bytes honour their declaration, in a text it says nothing."""
    declared = "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe4</a>"
    query = xpath("/a[. = '\xe4']")
    assert query.matches(advert("text", xml=declared), HOME)
    assert query.matches(advert("bytes", xml=declared.encode("latin-1")), HOME)
