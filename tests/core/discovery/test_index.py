"""The index of advertisements: it finds what a scan finds, and looks at fewer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.discovery.advert_cases import (
    HOME,
    OTHER,
    advert,
    conditions,
    constraint,
    elements,
    names,
    paths,
    properties,
    scanned,
    sql,
    trader_conditions,
    xpath,
)
from veena import matching
from veena.core.discovery import index as advert_index
from veena.core.discovery.store import AdvertStore
from veena.core.wire.discovery import Advertisement
from veena.errors import InvalidConstraint


def stored(adverts: list[Advertisement]) -> AdvertStore:
    store = AdvertStore()
    for each in adverts:
        store.put(HOME, each)
    store.check()
    return store


@settings(max_examples=150)
@given(st.lists(properties.filter(bool), max_size=12), conditions())
def test_sql_through_the_index_is_a_scan(items: list[dict[str, str | bool | int | float]], condition: str) -> None:
    """DSC-04: whatever the condition, with NULLs, mixed types and NOT."""
    adverts = [advert(f"ad{number}", each) for number, each in enumerate(items)]
    query = sql(f"SELECT * FROM adverts WHERE {condition}")
    assert names(stored(adverts), query) == scanned(adverts, query)


@settings(max_examples=150)
@given(st.lists(properties.filter(bool), max_size=12), trader_conditions())
def test_a_constraint_through_the_index_is_a_scan(
    items: list[dict[str, str | bool | int | float]], condition: str
) -> None:
    """TRD-06, DSC-04: the trader's language, ordered text and truth values, `~`, `in` and `exist`; and the engine that
    subscriptions have says the same (TRD-09)."""
    adverts = [advert(f"ad{number}", each) for number, each in enumerate(items)]
    query = constraint(condition)
    assert names(stored(adverts), query) == scanned(adverts, query)
    judge = matching.compile_constraint(condition)
    assert scanned(adverts, query) == sorted(f"ad{number}" for number, each in enumerate(items) if judge.matches(each))


@settings(max_examples=150)
@given(st.lists(elements(), max_size=8), paths())
def test_xpath_through_the_index_is_a_scan(documents: list[str], path: str) -> None:
    """DSC-04: paths, predicates, attributes, unions and what only libxml2 can evaluate."""
    adverts = [advert(f"ad{number}", xml=each) for number, each in enumerate(documents)]
    adverts.append(advert("no document", {"a": 1}))
    try:
        query = xpath(path)
    except InvalidConstraint:
        return  # some of the drawn ones cost too much to be asked at all
    assert names(stored(adverts), query) == scanned(adverts, query)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), properties.filter(bool), st.booleans()), max_size=20), conditions())
def test_what_was_replaced_or_removed_is_not_found(
    steps: list[tuple[int, dict[str, str | bool | int | float], bool]], condition: str
) -> None:
    """DSC-01: the store after any history is the store of what is left."""
    store = AdvertStore()
    left: dict[str, Advertisement] = {}
    for number, values, keeps in steps:
        name = f"ad{number}"
        if keeps:
            left[name] = advert(name, values)
            store.put(HOME, left[name])
        else:
            left.pop(name, None)
            store.remove(HOME, ("alice", name))
        store.check()
    query = sql(f"SELECT * FROM adverts WHERE {condition}")
    assert names(store, query) == scanned(list(left.values()), query)
    store.drop(HOME)
    store.check()
    assert len(store) == store.bytes == 0


THOUSAND = [
    advert(
        f"ad{number}",
        {"price": number / 10, "kind": f"k{number % 50}", **({"rare": True} if number % 100 == 0 else {})},
        f"<offer kind='k{number % 50}'><price>{number / 10}</price><label>l{number % 40}</label></offer>",
    )
    for number in range(1000)
]


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("kind = 'k7'", 20),
        ("kind IN ('k7', 'k8')", 40),
        ("price BETWEEN 10 AND 12 AND kind <> 'k0'", 21),
        ("price > 99", 10),
        ("rare = TRUE", 10),
        ("kind = 'k7' OR price < 1", 30),
        ("rare IS NOT NULL AND price >= 0", 10),
        ("kind = 'k7' AND kind LIKE 'k%'", 20),
        ("kind = 'none'", 0),
        ("kind LIKE 'k4_'", 220),
        ("kind LIKE 'k!%%' ESCAPE '!'", 1000),
        ("kind LIKE 'x%'", 0),
        ("price < 5 AND price > 6", 0),
        ("name = 'ad7'", 1),
        ("name LIKE 'ad99_'", 11),
        ("client = 'bob' AND home = '0.0.0.1'", 0),
    ],
)
def test_sql_looks_at_candidates_only(condition: str, most: int) -> None:
    """DSC-02: found through the index, not by a scan of the thousand."""
    store = stored(THOUSAND)
    query = sql(f"SELECT * FROM adverts WHERE {condition}")
    assert names(store, query) == scanned(THOUSAND, query)
    assert store.evaluated <= most


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/offer[price > 99]", 10),
        ("/offer[label = 'l7']", 25),
        ("/offer[@kind = 'k7']/price", 20),
        ("//price[. = 5]", 1),
        ("/offer[label = 'l7' and @kind = 'k7']", 20),
        ("/offer[label = 'l7'] | /offer[label = 'l8']", 50),
        ("/nowhere//price", 0),
        ("/offer/absent[2]", 0),
        ("/offer[@kind = 'k7']/price[1]", 20),
        ("/offer[price > 99.00000000000000000001][1]", 10),
        ("/offer[label = 'l7']/preceding::x", 0),
    ],
)
def test_xpath_looks_at_candidates_only(path: str, most: int) -> None:
    """DSC-02: values of elements and attributes are in the index as those of properties are."""
    store = stored(THOUSAND)
    query = xpath(path)
    assert names(store, query) == scanned(THOUSAND, query)
    assert store.evaluated <= most


def test_a_condition_that_says_nothing_looks_at_everything_once() -> None:
    store = stored(THOUSAND)
    assert len(names(store, sql("SELECT * FROM adverts"))) == store.evaluated == 1000


def test_long_texts_and_large_documents_are_found_though_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is bounded, the answers are not: such advertisements are looked at."""
    long = "z" * 3000
    many = "".join(f"<v>{number}</v>" for number in range(600))
    adverts = [advert("long", {"t": long}, f"<a><b>{long}</b></a>"), advert("dense", {"t": 1}, f"<a>{many}</a>")]
    store = stored(adverts)
    assert names(store, sql(f"SELECT * FROM adverts WHERE t = '{long}'")) == ["long"]
    assert names(store, xpath(f"/a[b = '{long}']")) == ["long"]
    assert names(store, xpath("/a/v[. = 599]")) == ["dense"]
    assert names(store, sql("SELECT * FROM adverts WHERE t = 1")) == ["dense"]
    store.drop(HOME)
    store.check()
    monkeypatch.setattr(advert_index, "MAX_INDEXED_VALUES", 1)
    assert names(stored(adverts), sql("SELECT * FROM adverts WHERE t = 1")) == ["dense"]


def test_the_later_of_two_homes_counts() -> None:
    """DSC-04: a client that moved has one advertisement of a name, the new one."""
    store = AdvertStore()
    store.put(HOME, advert("printer", {"floor": 1}, now_ns=1))
    store.put(OTHER, advert("printer", {"floor": 2}, now_ns=2))
    everything = sql("SELECT floor FROM adverts")
    assert [home for home, _ in store.find(everything, lambda home, found: True)] == [OTHER]
    assert names(store, sql("SELECT floor FROM adverts WHERE floor = 1")) == []
    store.remove(OTHER, ("alice", "printer"))
    assert [home for home, _ in store.find(everything, lambda home, found: True)] == [HOME]
