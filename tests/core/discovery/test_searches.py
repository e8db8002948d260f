"""Searches in slices: no input and no tick looks at everything, the answer is the same, and nobody is held up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from random import Random
from typing import Literal

import pytest

from tests.core.discovery.advert_cases import HOME, advert
from veena.address import Address
from veena.core.boundary.discovery import Advertise, Advertised, AdvertRefused, Answer, Query, QueryRefused
from veena.core.boundary.inputs_effects import ClientDown, ClientUp, Effect, Stored
from veena.core.boundary.inputs_effects import Store as StoreEffect
from veena.core.boundary.settings import MILLISECOND_NS, Settings
from veena.core.boundary.stored import Identity
from veena.core.boundary.user_shares import UserShare, UserShares
from veena.core.broker import Broker
from veena.core.discovery import open_queries, searches
from veena.core.discovery.gathering import Gathering
from veena.core.discovery.query import AdvertQuery
from veena.core.discovery.searches import Searches
from veena.errors import RefusalCode

HOST: Address = (0, 0, 0, 1)
OTHER: Address = (0, 0, 0, 2)


Language = Literal["sql", "xpath", "constraint"]


def asking(number: int, language: Language, text: str) -> Query:
    return Query(1, number, language, text, 4, deadline_ms=60_000)


def started(count: int) -> Broker:
    """A broker with a client that has so many advertisements."""
    broker = Broker(Identity("host", HOST, 1), Settings(), Random(1).getrandbits, 0)
    settle(broker, broker.tick(0))
    settle(broker, broker.handle(ClientUp(1, "alice", user="anna"), 0))
    for number in range(count):
        xml = f"<r>{'<a><b>1</b></a>' * 10}<n>{number}</n></r>"
        settle(broker, broker.handle(Advertise(1, f"ad{number:04}", 4, {"n": number, "m": number % 7}, xml), 0))
    return broker


def settle(broker: Broker, effects: list[Effect]) -> list[Effect]:
    """The disk takes everything at once."""
    found = list(effects)
    for effect in effects:
        if isinstance(effect, StoreEffect):
            found += settle(broker, broker.handle(Stored(effect.ticket), 0))
    return found


def to_the_end(broker: Broker, effects: list[Effect]) -> tuple[list[Answer], int]:
    """The pieces of the answers, and how many ticks it took until nothing was open."""
    found, ticks, now_ns = list(effects), 0, 0
    while broker.statistics().discovery.open_queries:
        ticks += 1
        now_ns += 4 * MILLISECOND_NS
        found += broker.tick(now_ns)
        assert ticks < 2000
    return [effect for effect in found if isinstance(effect, Answer)], ticks


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sql", "SELECT * FROM adverts WHERE n >= 0 ORDER BY m DESC, n"),
        ("sql", "SELECT n FROM adverts WHERE n > 3 LIMIT 7"),
        ("xpath", "//a/b = 1 and count(//a) > 2"),
        ("constraint", "n >= 0 and m <= 3"),
    ],
)
def test_a_query_in_slices_has_the_same_answer(monkeypatch: pytest.MonkeyPatch, language: Language, text: str) -> None:
    """DSC-04: however small the slices are, and the pieces of the answer."""
    whole, _ = to_the_end(broker := started(60), broker.handle(asking(1, language, text), 0))
    assert len(whole) == 1
    monkeypatch.setattr(searches, "SLICE_WORK", 1)
    monkeypatch.setattr(open_queries, "PIECE", 8)
    settle(broker, broker.tick(0))
    pieces, ticks = to_the_end(broker, broker.handle(asking(2, language, text), 0))
    assert ticks > 20 and [each.more for each in pieces] == [True] * (len(pieces) - 1) + [False]
    rows = [row for piece in pieces for row in piece.rows]
    assert (rows, pieces[-1].matched, pieces[-1].silent) == (list(whole[0].rows), whole[0].matched, whole[0].silent)
    broker.check()


def test_an_input_and_a_tick_do_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many queries at once cost no more in one step than one does, and all are answered."""
    monkeypatch.setattr(searches, "SLICE_WORK", 10_000)
    broker = started(100)
    found: list[Effect] = []
    before = broker.statistics().discovery.evaluated
    for number in range(30):
        found += broker.handle(asking(number, "xpath", "count(//a) > 2"), 0)
        now = broker.statistics().discovery.evaluated
        assert now - before <= 60
        before = now
    answers, ticks = to_the_end(broker, found)
    assert len({each.number for each in answers}) == 30 and all(each.matched == 100 for each in answers)
    assert ticks > 30


def test_a_search_ends_with_its_deadline_or_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "SLICE_WORK", 1)
    broker = started(100)
    broker.handle(Query(1, 1, "sql", "SELECT * FROM adverts WHERE m > 0", 4, deadline_ms=20), 0)
    assert len(broker.discovery._searches)
    answers = [each for now in range(1, 60) for each in broker.tick(now * MILLISECOND_NS) if isinstance(each, Answer)]
    assert [each.number for each in answers] == [1] and not answers[0].complete
    assert not len(broker.discovery._searches)
    broker.handle(ClientUp(2, "bob"), 60 * MILLISECOND_NS)
    broker.handle(Query(2, 1, "sql", "SELECT * FROM adverts WHERE m > 0", 4), 60 * MILLISECOND_NS)
    broker.handle(ClientDown(2), 61 * MILLISECOND_NS)
    for now in range(200, 260):
        broker.tick(now * MILLISECOND_NS)
    assert not len(broker.discovery._searches)
    broker.check()


def test_advertisements_that_change_during_a_search_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "SLICE_WORK", 1)
    broker = started(40)
    found = broker.handle(Query(1, 1, "sql", "SELECT * FROM adverts WHERE m >= 0", 4), 0)
    for number in range(0, 40, 2):
        settle(broker, broker.handle(Advertise(1, f"ad{number:04}", 4, {"n": -1, "m": 0}), 1))
    answers, _ = to_the_end(broker, found)
    names = [row.name for each in answers for row in each.rows]
    assert names == sorted(set(names)) and len(names) >= 20
    broker.check()


def test_what_costs_too_much_on_a_document_is_counted_and_not_taken_for_a_match() -> None:
    """DSC-02: a predicate that compares every element with every other is not finished on a large document."""
    broker = started(3)
    large = f"<r>{'<a/>' * 1500}</r>"
    settle(broker, broker.handle(Advertise(1, "large", 4, {"n": 1}, large), 0))
    effects = broker.handle(Query(1, 1, "xpath", "//*[count(//*[count(//*) > 1]) > 1]", 4), 0)
    (answer,), _ = to_the_end(broker, effects)
    assert answer.undecided >= 1 and not answer.complete
    assert "large" not in [row.name for row in answer.rows]


def test_the_searches_of_one_owner_are_bounded() -> None:
    waiting, one, other = Searches(), (HOST, "anna"), (OTHER, "")
    for _ in range(searches.MAX_OF_ONE):
        assert waiting.has_room(one)
        waiting.begin(one, repeat(1), lambda now_ns: now_ns == 0, 0)
    assert not waiting.has_room(one) and waiting.has_room(other) and waiting.refused == 1
    waiting.check()
    now_ns = 0
    while len(waiting):
        now_ns += searches.PAUSE_NS
        waiting.tick(now_ns)
    assert waiting.has_room(one) and waiting.given_up == searches.MAX_OF_ONE
    waiting.check()


def test_who_searches_little_does_not_wait_for_who_searches_much() -> None:
    waiting = Searches()
    for _ in range(100):
        waiting.begin((HOST, "mallory"), repeat(1000, 10_000), lambda now_ns: True, 0)
    told: list[int] = []

    def short() -> Iterator[int]:
        yield 30_000
        told.append(1)

    waiting.begin((HOST, "anna"), short(), lambda now_ns: True, 0)
    waiting.tick(searches.PAUSE_NS)
    assert told and len(waiting) == 100
    waiting.check()


@pytest.mark.parametrize("order", ["", " ORDER BY n DESC, m", " ORDER BY m, n DESC", " ORDER BY missing DESC LIMIT 5"])
def test_gathered_rows_come_in_the_order_of_a_merge(order: str) -> None:
    query = AdvertQuery(True, f"SELECT * FROM adverts{order}", {}, True)
    chance = Random(3)
    values: list[object] = [1, 2, 2.5, "x", "y", True, False]
    rows = [
        query.row(advert(f"a{chance.randrange(40)}", {"n": chance.choice(values), "m": n % 3}, now_ns=n), HOME)  # type: ignore[dict-item]
        for n in range(200)
    ]
    gathering = Gathering(query)
    for first in range(0, 150, 30):
        gathering.add_all(rows[first : first + 30])
    for row in rows[150:]:
        gathering.add(row)
    assert list(gathering.in_order()) == query.merge(rows)


def test_a_user_has_one_share_of_offers_for_all_of_its_clients() -> None:
    """More client ids give no more advertisements; a renewed one is no other; who withdraws has room again."""
    broker = started(0)
    broker.handle(UserShares(UserShare(offers=3)), 0)
    settle(broker, broker.handle(ClientUp(2, "alice/2", user="anna"), 0))
    settle(broker, broker.handle(ClientUp(3, "bob", user="bob"), 0))

    def offer(session: int, name: str) -> list[Effect]:
        found = settle(broker, broker.handle(Advertise(session, name, 4, {"n": 1}), 0))
        return [each for each in found if isinstance(each, Advertised | AdvertRefused)]

    for session, name in ((1, "a"), (2, "b"), (2, "c"), (2, "c")):
        assert offer(session, name) == [Advertised(session, name)]
    (refused,) = offer(1, "d")
    assert isinstance(refused, AdvertRefused) and refused.why is RefusalCode.LIMIT
    assert "'anna' has 3 advertisements" in refused.reason and "`offers`" in refused.reason
    assert offer(3, "d") == [Advertised(3, "d")]
    settle(broker, broker.handle(ClientDown(2), 0))
    assert offer(1, "d") == [Advertised(1, "d")]
    broker.check()


def test_open_queries_of_a_user_are_bounded_over_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_queries, "MAX_OPEN_OF_USER", 2)
    monkeypatch.setattr(searches, "SLICE_WORK", 0)
    broker = started(20)
    broker.handle(ClientUp(2, "alice/2", user="anna"), 0)
    broker.handle(ClientUp(3, "bob", user="bob"), 0)
    text = "SELECT * FROM adverts WHERE m >= 0"
    for session, number in ((1, 1), (2, 1)):
        assert not [each for each in broker.handle(Query(session, number, "sql", text, 4), 0) if type(each) is Answer]
    (refused,) = [each for each in broker.handle(Query(2, 2, "sql", text, 4), 0) if isinstance(each, QueryRefused)]
    assert refused.why is RefusalCode.LIMIT
    assert not [each for each in broker.handle(Query(3, 1, "sql", text, 4), 0) if isinstance(each, QueryRefused)]
