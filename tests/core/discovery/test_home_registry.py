"""A broker's own shelf: what its pages tell, and how long advertisements stand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.discovery.advert_cases import LEVELS, advert
from veena.core.boundary.settings import SECOND_NS
from veena.core.discovery import home_registry as shelf_module
from veena.core.discovery.advertisement import AdvertId, id_of
from veena.core.discovery.home_registry import OwnShelf, weight
from veena.core.wire.codec import encode
from veena.core.wire.discovery import MAX_PAGE_BYTES, Advertisement, Shelf
from veena.errors import LocalProtocolError

Held = dict[AdvertId, Advertisement]


def apply(held: Held, page: Shelf) -> int:
    """What a controller does with a page; the number that it asks from next."""
    if not page.since:
        held.clear()
    for removal in page.removed:
        held.pop((removal.client, removal.name), None)
    held.update({id_of(each): each for each in page.adverts})
    return page.up_to


def caught_up(shelf: OwnShelf, level: int, held: Held, since: int) -> int:
    while since < shelf.latest:
        since = apply(held, shelf.page(level, since))
    return since


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, LEVELS), st.booleans()), max_size=40),
    st.integers(1, LEVELS - 1),
    st.sampled_from([3, 4096]),
)
def test_pages_from_anywhere_give_what_is_on_the_shelf(
    steps: list[tuple[int, int, bool]], level: int, remembered: int
) -> None:
    """DSC-01, DSC-03: for every level what reaches so far; scope 0 stands for a removal here."""
    before = shelf_module.MAX_REMOVALS
    shelf_module.MAX_REMOVALS = remembered
    try:
        shelf = OwnShelf(LEVELS, 100)
        now: Held = {}
        held: Held = {}
        since = 0
        for number, scope, asks in steps:
            name = f"ad{number}"
            if scope:
                now["alice", name] = advert(name, {"n": number, "scope": scope}, scope=scope)
                shelf.put(now["alice", name], 1.0)
            else:
                now.pop(("alice", name), None)
                shelf.remove(("alice", name))
            shelf.check()
            if asks:
                since = caught_up(shelf, level, held, since)
                assert held == {key: each for key, each in now.items() if each.scope >= level}
        since = caught_up(shelf, level, held, since)
        assert held == {key: each for key, each in now.items() if each.scope >= level}
        assert since >= shelf.versions[level - 1]
    finally:
        shelf_module.MAX_REMOVALS = before


def test_a_large_shelf_comes_in_pages_that_fit_a_frame() -> None:
    shelf = OwnShelf(LEVELS, 0)
    for number in range(60):
        shelf.put(advert(f"ad{number}", xml=f"<a>{'x' * 40_000}</a>"), 1.0)
    since, pages = 0, 0
    held: Held = {}
    while since < shelf.latest:
        page = shelf.page(1, since)
        assert page.up_to > since and len(encode(page, 1)) < 2 * MAX_PAGE_BYTES
        since = apply(held, page)
        pages += 1
    assert len(held) == 60 and pages == 20


def test_pages_of_what_went_with_long_names_fit_a_frame_too() -> None:
    """DSC-01: a page that cannot be sent would keep all that is behind it from the controllers."""
    shelf, client = OwnShelf(LEVELS, 0), "\u4e16" * 255
    names = [f"{number:03}" + "\U00020000" * 250 for number in range(200)]
    for name in names:
        shelf.put(advert(name, {"n": 1}, client=client), 60.0)
        shelf.withdraw((client, name), 0)
    shelf.put(advert("offer", {"n": 1}), 60.0)
    for start in (0, 1):
        since, gone = start, list[str]()
        held: Held = {}
        while since < shelf.latest:
            page = shelf.page(1, since)
            assert page.up_to > since and len(encode(page, 1)) < 2 * MAX_PAGE_BYTES
            gone += [each.name for each in page.withdrawn]
            since = apply(held, page)
        assert gone == names and list(held) == [("alice", "offer")]


def test_one_change_is_one_small_page() -> None:
    shelf = OwnShelf(LEVELS, 0)
    for number in range(100):
        shelf.put(advert(f"ad{number}", {"n": number}), 1.0)
    since = shelf.latest
    shelf.put(advert("ad7", {"n": -1}), 1.0)
    shelf.remove(("alice", "ad8"))
    page = shelf.page(1, since)
    assert [each.name for each in page.adverts] == ["ad7"]
    assert [each.name for each in page.removed] == ["ad8"]
    assert page.since == since


def test_who_knows_an_earlier_life_is_given_everything() -> None:
    shelf = OwnShelf(LEVELS, 2 << 32)
    shelf.put(advert("new", {"n": 1}), 1.0)
    page = shelf.page(1, (1 << 32) + 5)
    assert page.since == 0 and [each.name for each in page.adverts] == ["new"]


def test_numbers_of_a_level_move_only_with_what_reaches_it() -> None:
    """DSC-03: a change inside the cluster is nobody's business outside."""
    shelf = OwnShelf(LEVELS, 10)
    shelf.put(advert("far", {"n": 1}, scope=LEVELS), 1.0)
    assert shelf.versions == (11, 11, 11)
    shelf.put(advert("near", {"n": 1}, scope=1), 1.0)
    assert shelf.versions == (12, 11, 11)
    shelf.put(advert("far", {"n": 1}, scope=2), 1.0)
    assert shelf.versions == (13, 13, 13)


def test_advertisements_outlive_a_lost_connection_by_their_lease() -> None:
    """DSC-01: goodbye ends them at once; a lost connection after the lease; who comes back keeps them."""
    shelf = OwnShelf(LEVELS, 0)
    shelf.put(advert("short", {"n": 1}), 1.0)
    shelf.put(advert("long", {"n": 1}), 10.0)
    shelf.put(advert("none", {"n": 1}), 0.0)
    shelf.put(advert("other", {"n": 1}, client="bob"), 1.0)
    assert [each.name for each, _ in shelf.client_left("alice", True, 0)] == ["none"]
    assert shelf.next_wakeup() == SECOND_NS
    assert [each.name for each in shelf.expire(SECOND_NS)] == ["short"]
    shelf.client_came("alice")
    assert shelf.expire(100 * SECOND_NS) == [] and shelf.next_wakeup() is None
    shelf.client_left("alice", True, 100 * SECOND_NS)
    shelf.put(advert("long", {"n": 2}), 10.0)
    assert shelf.expire(200 * SECOND_NS) == []
    assert [each.name for each, _ in shelf.client_left("alice", False, 200 * SECOND_NS)] == ["long"]
    assert [each.name for each in shelf.adverts()] == ["other"]
    shelf.check()


def test_who_comes_and_goes_leaves_no_ends_behind() -> None:
    """DSC-01: the queues of ends are as long as there is something that will end, not as often as something might."""
    shelf = OwnShelf(LEVELS, 0)
    shelf.put(advert("away", {"n": 1}, client="bob"), 100.0)
    shelf.client_left("bob", True, 0)
    shelf.put(advert("stands", {"n": 1}), 100.0)
    for now in range(200):
        shelf.put(advert("taken back", {"n": 1}, client="carol"), 100.0)
        shelf.withdraw(("carol", "taken back"), now)
        shelf.client_left("alice", True, now)
        shelf.client_came("alice")
        shelf.expire(now)
    shelf.client_left("alice", True, 200)
    assert len(shelf._queue) < 100 and len(shelf._withdrawn_ends) < 100
    assert [each.name for each in shelf.page(1, 0).withdrawn] == ["taken back"]
    assert [each.name for each in shelf.expire(100 * SECOND_NS)] == ["away"]
    assert [each.name for each in shelf.expire(100 * SECOND_NS + 200)] == ["stands"]
    assert shelf.next_wakeup() is None and not shelf.page(1, 0).withdrawn
    shelf.check()


def test_a_shelf_has_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = OwnShelf(LEVELS, 0)
    monkeypatch.setattr(shelf_module, "MAX_OF_CLIENT", 2)
    monkeypatch.setattr(shelf_module, "MAX_ON_SHELF", 3)
    for name in ("a", "b"):
        shelf.put(advert(name, {"n": 1}), 1.0)
    with pytest.raises(LocalProtocolError, match="withdraw some"):
        shelf.put(advert("c", {"n": 1}), 1.0)
    shelf.put(advert("b", {"n": 2}), 1.0)
    shelf.put(advert("a", {"n": 1}, client="bob"), 1.0)
    with pytest.raises(LocalProtocolError, match="try another"):
        shelf.put(advert("b", {"n": 1}, client="bob"), 1.0)
    assert len(shelf) == 3 and sum(map(weight, shelf.adverts())) > 0
    shelf.check()
