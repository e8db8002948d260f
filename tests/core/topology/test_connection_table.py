"""The connection table: what is learned, what is passed on, and how the table corrects itself."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.small_networks import random_network, record_at
from tests.core.topology.test_network_map import CLUSTER, FAR, HOST, NEAR, record
from veena.address import Address, Unit
from veena.core.topology import connection_table as dissemination
from veena.core.topology.connection_table import ConnectionTable
from veena.core.topology.network_map import EdgeView, NetworkMap
from veena.core.wire.control import ConnectionRecord
from veena.errors import RemoteProtocolError

THIRD: Address = (0, 0, 0, 2)
PATIENCE = 100
FORGET = 1000


def table_at(host: Address = HOST) -> tuple[ConnectionTable, NetworkMap]:
    network = NetworkMap(host)
    return ConnectionTable(network), network


def down(told: ConnectionRecord) -> ConnectionRecord:
    return msgspec.structs.replace(told, up=False)


def ids(news: list[tuple[ConnectionRecord, int | None]]) -> list[tuple[int, int | None]]:
    return [(told.id, source) for told, source in news]


def test_a_repeat_is_recognised() -> None:
    """GPP-10: the same connection twice is one link and one piece of news."""
    table, network = table_at()
    told = record(1, HOST, NEAR)
    assert [table.learn(told, 5, 0), table.learn(told, 6, 0)] == [0, None]
    assert network.edges() == [EdgeView(HOST, NEAR, 0, 0, 1)]
    assert ids(table.take_news()) == [(1, 5)]
    assert table.take_news() == []


def test_connections_between_the_same_units_are_counted() -> None:
    """GPP-11, GPP-12: two make an edge of two; losing one leaves it, losing the second removes it."""
    table, network = table_at()
    for number in (1, 2):
        table.learn(record(number, HOST, CLUSTER), None, 0)
    assert network.edges() == [EdgeView(HOST, CLUSTER, 1, 1, 2)]
    assert table.withdraw(1, 0) == 1
    assert network.edges() == [EdgeView(HOST, CLUSTER, 1, 1, 1)]
    assert table.withdraw(2, 0) == 1
    assert network.vertices() == [HOST]


def test_down_is_for_good() -> None:
    """GPP-10, GPP-17: neither an old copy, nor a newer cost, nor a finer one brings it back."""
    table, network = table_at()
    table.learn(record(1, (0, 0), FAR), 5, 0)
    table.learn(down(record(1, (0, 0), FAR)), 5, 0)
    table.take_news()
    assert table.learn(record(1, (0, 0), FAR), 6, 0) is None
    assert table.take_news() == []
    assert table.learn(record(1, HOST, FAR, step=1), 6, 0) is None
    known = table.record(1)
    assert known is not None
    assert (known.up, known.low) == (False, HOST)
    assert network.vertices() == [HOST]
    assert table.withdraw(1, 0) is None
    table.check()


def test_what_comes_from_two_sides_goes_to_all() -> None:
    """GPP-10: news goes back to its source only if others added to it."""
    table, _ = table_at()
    table.learn(record(1, HOST, NEAR), 5, 0)
    table.learn(record(1, HOST, NEAR, step=1), 6, 0)
    table.learn(record(2, HOST, NEAR), 6, 0)
    table.learn(record(2, HOST, NEAR, step=1), 6, 0)
    assert ids(table.take_news()) == [(1, None), (2, 6)]


@pytest.mark.parametrize("level", range(4))
def test_what_may_cross_a_link(level: int) -> None:
    """GPP-02, GPP-06, GPP-14: connections of the link's level and above, rewritten by GPP-07; the link itself not."""
    table, _ = table_at()
    told = [record(0, HOST, NEAR), record(1, NEAR, CLUSTER), record(2, THIRD, FAR), record(3, CLUSTER, (1,))]
    for item in told:
        table.learn(item, None, 0)
    crossing = table.copies(table.everything(), level, own_id=level)
    assert [item.id for item in crossing] == list(range(level + 1, 4))
    assert all(max(len(item.low), len(item.high)) <= 4 - level or item.level < level for item in crossing)


def test_of_the_link_itself_only_its_cost_crosses() -> None:
    """LCM-03: both ends know that it is there."""
    table, _ = table_at()
    table.learn(record(1, HOST, FAR), None, 0)
    assert table.copies(table.everything(), 2, own_id=1) == []
    table.learn(record(1, HOST, FAR, step=1), None, 0)
    assert [(item.low, item.high_cost) for item in table.copies(table.everything(), 2, own_id=1)] == [((0, 0), (1, 1))]


def test_a_detour_copy_is_kept_but_makes_no_vertex() -> None:
    """GPP-19: it is passed on, does not block the finer copy, and its end counts."""
    table, network = table_at()
    detour, finer = record(1, (0, 0), FAR), record(1, HOST, FAR)
    assert table.learn(detour, 5, 0) is None
    assert network.vertices() == [HOST]
    assert ids(table.take_news()) == [(1, 5)]
    assert table.learn(finer, 6, 0) == 2
    assert network.vertices() == [HOST, FAR]
    assert ids(table.take_news()) == [(1, 6)]
    assert table.learn(down(detour), 5, 0) == 2
    assert network.vertices() == [HOST]


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_the_map_does_not_depend_on_the_order_of_news(seed: int) -> None:
    """GPP-19, GPP-20, BNM-02: all copies of all links, up and down, in two random orders."""
    chance = Random(seed)
    network = random_network(chance, largest=12)
    host = chance.choice(network.brokers).address
    told: list[ConnectionRecord] = []
    for number, link in enumerate(network.links):
        exact = record_at(host, number, (link.a, link.b))
        if exact is None:
            continue
        told.append(exact)
        size = chance.randint(4 - exact.level, 4)
        coarse = [end[:size] if host[:size] == end[:size] else end for end in (exact.low, exact.high)]
        told.append(msgspec.structs.replace(exact, low=coarse[0], high=coarse[1]))
        if chance.random() < 0.3:
            told.append(msgspec.structs.replace(exact, up=False))
        if chance.random() < 0.5:
            told.append(msgspec.structs.replace(exact, low_cost=(chance.randint(1, 3), chance.randint(0, 3))))
    views: list[object] = []
    for _ in range(2):
        table, seen = table_at(host)
        for item in chance.sample(told, len(told)):
            table.learn(item, chance.randint(1, 3), 0)
        table.check()
        seen.check()
        views.append((seen.edges(), sorted(item.id for item in table.everything() if item.up)))
    assert views[0] == views[1]


# --- refusals ---


def test_a_refused_copy_changes_nothing() -> None:
    """GPP-03, GPP-06: not the table, not the map, not the news."""
    table, network = table_at()
    table.learn(record(1, HOST, NEAR), None, 0)
    table.take_news()
    version = network.version
    wrong_level = ConnectionRecord(1, 2, HOST, FAR, True, (0, 0), (0, 0))
    outside = ConnectionRecord(2, 0, (0, 0, 1, 0), (0, 0, 1, 1), True, (0, 0), (0, 0))
    assert table.learn(wrong_level, 5, 0) is None
    with pytest.raises(RemoteProtocolError, match=r"lies outside 0\.0\.0"):
        table.learn(outside, 5, 0)
    assert table.dropped == 1
    assert (len(table), network.version, table.take_news()) == (1, version, [])


def test_the_number_of_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of invented connections ends at a bound; what is known can still change."""
    monkeypatch.setattr(dissemination, "MAX_CONNECTIONS", 2)
    table, _ = table_at()
    table.learn(record(1, HOST, NEAR), None, 0)
    table.learn(record(2, HOST, THIRD), None, 0)
    assert table.learn(record(3, NEAR, THIRD), 5, 0) is None
    assert table.record(3) is None
    assert table.dropped == 1
    assert table.withdraw(2, 0) == 0
    assert len(table) == 2


# --- tombstones ---


def test_what_is_down_is_remembered_and_then_forgotten() -> None:
    """GPP-10: a stale copy meets the memory of its end; after the time it is forgotten, oldest first."""
    table, _ = table_at()
    for number, at in ((1, 10), (2, 20)):
        table.learn(record(number, HOST, NEAR), None, 0)
        table.withdraw(number, at)
    assert table.next_expiry(1000) == 1011
    table.expire(10)
    assert len(table) == 2
    table.expire(11)
    assert [item.id for item in table.everything()] == [2]
    assert table.next_expiry(1000) == 1021
    table.expire(21)
    assert (len(table), table.next_expiry(1000)) == (0, None)
    table.check()


# --- what nobody answers for ---


def reconciled(table: ConnectionTable, held: tuple[int, ...] = ()) -> list[int]:
    """Judge twice, before and after the patience."""
    assert table.reconcile(0, PATIENCE, FORGET, held) == []
    assert table.reconcile(PATIENCE - 1, PATIENCE, FORGET, held) == []
    return table.reconcile(PATIENCE, PATIENCE, FORGET, held)


def test_the_dead_cannot_speak() -> None:
    """GPP-01, BNM-10: a gate of the own cluster that nobody reaches any more is withdrawn on its behalf, and told."""
    table, network = table_at()
    table.learn(record(1, HOST, NEAR), None, 0)
    table.learn(record(2, NEAR, FAR), None, 0)
    table.learn(record(3, HOST, CLUSTER), None, 0)
    table.withdraw(1, 0)
    table.take_news()
    reconciled(table, held=(3,))
    known = table.record(2)
    assert known is not None
    assert not known.up
    assert ids(table.take_news()) == [(2, None)]
    assert network.vertices() == [HOST, CLUSTER]


def test_a_gate_in_reach_is_left_alone() -> None:
    """A second way to the gate, even a suspected one, is enough."""
    table, _ = table_at()
    table.learn(record(1, HOST, THIRD), None, 0)
    table.learn(record(2, NEAR, THIRD, step=3), None, 0)
    table.learn(record(3, NEAR, FAR), None, 0)
    table.take_news()
    assert reconciled(table, held=(1,)) == []
    assert table.take_news() == []
    assert not table.needs_reconciling()


def test_what_lies_beyond_reach_is_forgotten_in_silence() -> None:
    """BNM-10: both ends out of reach: those who can reach them will tell again."""
    table, network = table_at()
    table.learn(record(1, HOST, (0, 0, 1)), None, 0)
    table.learn(record(2, (0, 0, 1), (0, 0, 2)), None, 0)
    table.learn(record(3, (0, 0, 2), (0, 0, 3)), None, 0)
    table.withdraw(2, 0)
    table.take_news()
    assert reconciled(table, held=(1,)) == []
    assert table.reconcile(FORGET - 1, PATIENCE, FORGET, (1,)) == []
    assert table.record(3) is not None
    before = table.has_forgotten
    assert table.reconcile(FORGET, PATIENCE, FORGET, (1,)) == [1]
    assert table.record(3) is None
    assert (before, table.has_forgotten) == (False, True)
    assert table.take_news() == []
    assert network.vertices() == [HOST, (0, 0, 1)]
    network.check()


def test_patience_starts_anew_when_a_unit_comes_back() -> None:
    """Nothing is withdrawn for a gap that ended."""
    table, _ = table_at()
    table.learn(record(1, HOST, NEAR), None, 0)
    table.learn(record(2, NEAR, FAR), None, 0)
    table.withdraw(1, 0)
    table.reconcile(0, PATIENCE, FORGET, ())
    table.learn(record(4, HOST, NEAR), None, 0)
    table.reconcile(PATIENCE // 2, PATIENCE, FORGET, (4,))
    table.withdraw(4, 0)
    table.reconcile(PATIENCE, PATIENCE, FORGET, ())
    known = table.record(2)
    assert known is not None
    assert known.up


@pytest.mark.parametrize(("held", "up"), [((1,), True), ((), False)])
def test_the_risen_disown(held: tuple[int, ...], up: bool) -> None:
    """GPP-01: a connection at the host that it does not have is withdrawn, after the time of a greeting."""
    table, _ = table_at()
    table.learn(record(1, HOST, NEAR), 5, 0)
    table.take_news()
    table.reconcile(0, PATIENCE, FORGET, held)
    table.reconcile(PATIENCE // 4, PATIENCE, FORGET, held)
    known = table.record(1)
    assert known is not None
    assert known.up is up
    assert ids(table.take_news()) == ([] if up else [(1, None)])


@pytest.mark.parametrize(("far", "up"), [((0, 1), True), ((0, 2), False)])
def test_a_detour_copy_whose_far_end_is_gone_is_withdrawn(far: Unit, up: bool) -> None:
    """GPP-19, BNM-10: the end of a detour copy may be all that anybody here hears of it."""
    table, _ = table_at()
    table.learn(record(1, HOST, FAR), None, 0)
    table.learn(record(2, (0, 0), far), 5, 0)
    reconciled(table, held=(1,))
    known = table.record(2)
    assert known is not None
    assert known.up is up


@pytest.mark.parametrize(("speaking", "up"), [((), False), (((0, 0),), True), (((0,),), True), (((0, 0, 0),), False)])
def test_what_nobody_in_the_own_unit_remembers_is_withdrawn(speaking: tuple[Unit, ...], up: bool) -> None:
    """GPP-01, GPP-19: everybody in the unit died and came back; or another part of it lives, and speaks for it, or for
    the unit around it when it is cut off from that too."""
    table, _ = table_at()
    table.others_speak = lambda unit, now_ns: unit in speaking
    table.learn(record(1, HOST, FAR), None, 0)
    table.learn(record(2, (0, 0), FAR), 5, 0)
    table.learn(record(3, (0, 0), (1,)), 5, 0)
    table.learn(record(4, FAR, (1,)), 5, 0)
    table.take_news()
    reconciled(table, held=(1,))
    inner, outer = table.record(2), table.record(3)
    assert inner is not None
    assert outer is not None
    assert inner.up is (up and speaking != ((0,),))
    assert outer.up is up
    table.reconcile(PATIENCE, PATIENCE, FORGET, (1,))
    assert table.needs_reconciling() is up, "that the other part falls silent is seen by looking again"


def test_it_says_when_it_needs_to_judge() -> None:
    """A judgement is due after a change of records, and while one is pending; not otherwise."""
    table, _ = table_at()
    assert not table.needs_reconciling()
    table.learn(record(1, HOST, NEAR), None, 0)
    assert table.needs_reconciling()
    table.reconcile(0, PATIENCE, FORGET, (1,))
    assert not table.needs_reconciling()
    table.reconcile(0, PATIENCE, FORGET, ())
    assert table.needs_reconciling()
