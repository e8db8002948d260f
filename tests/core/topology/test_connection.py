"""Connections as they are told: what may be named, how a copy is rewritten, and what two copies make together."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.small_networks import record_at
from veena.address import Address, Unit, link_level
from veena.core.topology.connection import (
    ABSENT,
    NO_COST,
    STEP_COSTS,
    check_record,
    establish,
    is_fine,
    link_cost,
    merged,
    rewritten,
    step,
    with_cost,
)
from veena.core.wire.control import MAX_STEP, ConnectionRecord
from veena.errors import RemoteProtocolError

OWN: Address = (0, 1, 2, 3)


def record(level: int, low: Unit, high: Unit, up: bool = True) -> ConnectionRecord:
    return ConnectionRecord(7, level, low, high, up, NO_COST, NO_COST)


def test_link_cost_matrix() -> None:
    """LCM-01, LCM-02: the printed block, symmetric, 2 l on the diagonal, rising with either level."""
    rows = [[link_cost(x, y) for y in range(4)] for x in range(4)]
    assert rows == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]
    for x in range(8):
        assert link_cost(x, x) == 2 * x
        for y in range(8):
            assert link_cost(x, y) == link_cost(y, x) < link_cost(x + 1, y)


def test_steps_rise_and_the_last_one_is_no_cost() -> None:
    """LCM-03: each announced step is dearer; the wire's highest step means absent."""
    assert all(lower < higher for lower, higher in pairwise(STEP_COSTS))
    assert ABSENT == MAX_STEP
    assert step(ConnectionRecord(1, 0, OWN, (0, 1, 2, 4), True, (3, 1), (1, 2))) == 2
    assert step(ConnectionRecord(1, 0, OWN, (0, 1, 2, 4), True, (1, 3), (9, 0))) == 3


@pytest.mark.parametrize(
    ("own", "far", "low", "high"),
    [
        ((0, 1, 2, 3), (0, 2, 0, 0), (0, 1, 2, 3), (0, 2)),
        ((0, 2, 0, 0), (0, 1, 2, 3), (0, 1), (0, 2, 0, 0)),
    ],
)
def test_each_end_names_itself_and_the_far_unit(own: Address, far: Address, low: Unit, high: Unit) -> None:
    """GPP-05: the own end as a broker, the far end as its level-l unit, under one order of ends for both."""
    told = establish(own, far, 2, 7)
    assert told == record(2, low, high)
    costly = with_cost(told, own, far, (1, 2))
    assert (costly.low_cost if low == own else costly.high_cost) == (1, 2)
    assert (costly.high_cost if low == own else costly.low_cost) == NO_COST
    check_record(told, own)


@pytest.mark.parametrize(
    ("level", "low", "over", "expected"),
    [
        (2, (0, 1, 2, 5), 1, (0, 1, 2)),
        (2, (0, 1, 2), 1, (0, 1, 2)),
        (2, (0, 1, 4), 2, (0, 1)),
        (2, (0, 1, 2, 5), 2, (0, 1)),
        (2, (0, 1, 2, 5), 0, (0, 1, 2, 5)),
        (1, (0, 1, 2, 5), 0, (0, 1, 2, 5)),
        (1, (0, 1, 2, 5), 1, (0, 1, 2)),
    ],
)
def test_rewriting_over_a_link(level: int, low: Unit, over: int, expected: Unit) -> None:
    """GPP-07: an end finer than the link's level and than the connection's becomes the sender's own unit."""
    high = (0, 1, 3) if level == 1 else (0, 2)
    told = record(level, low, high)
    assert rewritten(told, OWN, over) == record(level, expected, high)
    mirrored = record(level, (0, 0) if level == 2 else (0, 1, 0), low)
    assert rewritten(mirrored, OWN, over) == record(level, mirrored.low, expected)


def test_rewriting_keeps_everything_else() -> None:
    """GPP-07: id, level, state and costs cross unchanged."""
    told = ConnectionRecord(9, 2, (0, 1, 2, 5), (0, 2), False, (4, 1), (2, 3))
    assert rewritten(told, OWN, 1) == ConnectionRecord(9, 2, (0, 1, 2), (0, 2), False, (4, 1), (2, 3))


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (record(4, (0,), (1,)), "level 4 in a network of 4 levels"),
        (record(2, (0,), (0, 2, 0, 0)), "an end of level 3 on a link of level 2"),
        (record(1, (0, 1), (0, 1, 3)), "an end of level 2 on a link of level 1"),
        (record(0, (0, 1, 2, 3, 4), (0, 1, 2, 5)), "an end of level -1"),
        (record(1, (0, 1, 2, 4), (0, 2, 1)), "lies outside 0.1"),
        (record(0, (0, 1, 2, 4), (0, 1, 3, 5)), "lies outside 0.1.2"),
        (record(2, (1, 1), (1, 2)), "lies outside 0:"),
        (record(2, (0, 1, 3, 4), (0, 2)), "finer than 0.1.2.3 may see"),
        (record(3, (0, 2, 1), (1,)), "finer than 0.1.2.3 may see"),
        (record(2, (0, 1, 2), (0, 1, 3)), "neither end is a unit of level 2"),
        (record(0, (0, 1, 2, 4), (0, 1, 2, 4)), "must lie in two units"),
        (record(0, (0, 1, 2, 5), (0, 1, 2, 4)), "the lower first"),
        (record(2, (0, 2), (0, 1, 2, 5)), "the lower first"),
    ],
)
def test_what_no_connection_can_be_is_refused(told: ConnectionRecord, reason: str) -> None:
    """GPP-03, GPP-06: each refusal says which connection and why."""
    with pytest.raises(RemoteProtocolError, match="connection 7") as caught:
        check_record(told, OWN)
    assert reason in str(caught.value)
    assert caught.value.reply == str(caught.value)


@pytest.mark.parametrize(
    "told",
    [
        record(2, (0, 1, 2, 5), (0, 2)),
        record(2, (0, 1, 4), (0, 2)),
        record(2, (0, 2), (0, 3)),
        record(2, (0, 1), (0, 2)),
        record(3, (0,), (1,)),
        record(3, (0, 2), (1,)),
        record(0, (0, 1, 2, 3), (0, 1, 2, 4)),
        record(1, (0, 1, 2, 3), (0, 1, 4), up=False),
    ],
)
def test_what_a_connection_can_be_is_taken(told: ConnectionRecord) -> None:
    """GPP-03: (0,2,2), (1,2,2), (2,2,2) and the detour copies of GPP-19."""
    check_record(told, OWN)


@pytest.mark.parametrize(
    ("told", "fine"),
    [
        (record(2, (0, 1), (0, 2)), False),
        (record(2, (0, 1, 2), (0, 2)), False),
        (record(3, (0,), (1,)), False),
        (record(2, (0, 0), (0, 1, 2)), False),
        (record(2, (0, 1, 2, 3), (0, 2)), True),
        (record(2, (0, 1, 4), (0, 2)), True),
        (record(2, (0, 2), (0, 3)), True),
    ],
)
def test_a_copy_that_names_an_own_unit_went_a_detour(told: ConnectionRecord, fine: bool) -> None:
    """GPP-19: the host itself may be named, the units around it may not."""
    assert is_fine(told, OWN) is fine


# --- copies that the rules produce ---

addresses = st.tuples(*(st.integers(0, 2) for _ in range(4)))
costs = st.tuples(st.integers(0, 3), st.integers(0, 0)) | st.tuples(st.integers(1, 3), st.integers(0, 3))


@st.composite
def copies(draw: st.DrawFn) -> tuple[Address, tuple[Address, Address], list[ConnectionRecord]]:
    """Copies of one link that reached one listener on random ways within the link's context."""
    one, other, listener = draw(addresses), draw(addresses), draw(addresses)
    assume(one != other)
    level = link_level(one, other)
    listener = one[: 3 - level] + listener[3 - level :]
    found: list[ConnectionRecord] = []
    for _ in range(3):
        ways = draw(st.lists(addresses, max_size=4))
        own, far = draw(st.sampled_from([(one, other), (other, one)]))
        told = establish(own, far, level, 7)
        at = own
        for to in [*(one[: 3 - level] + way[3 - level :] for way in ways), listener]:
            if to != at:
                told = rewritten(told, at, link_level(at, to))
                check_record(told, to)
                at = to
        low_cost, high_cost, up = draw(costs), draw(costs), draw(st.booleans())
        found.append(ConnectionRecord(7, level, told.low, told.high, up, low_cost, high_cost))
    return listener, (one, other), found


@settings(max_examples=120)
@given(copies())
def test_fine_copies_name_the_ends_as_the_listener_needs_them(
    case: tuple[Address, tuple[Address, Address], list[ConnectionRecord]],
) -> None:
    """GPP-07, GPP-19: whichever way a copy took, it is a detour copy or exactly right."""
    listener, ends, found = case
    expected = record_at(listener, 7, ends)
    assert expected is not None
    for told in found:
        if is_fine(told, listener):
            assert (told.low, told.high) == (expected.low, expected.high)


@settings(max_examples=120)
@given(copies())
def test_merging_is_the_same_in_every_order(
    case: tuple[Address, tuple[Address, Address], list[ConnectionRecord]],
) -> None:
    """GPP-10, GPP-19: idempotent, commutative, associative; down if any copy is, the newest cost of each end."""
    listener, _, found = case
    one, two, three = found
    assert merged(one, one, listener) == one
    results = [merged(merged(a, b, listener), c, listener) for a, b, c in permutations(found)]
    assert results == results[:1] * 6
    assert merged(one, merged(two, three, listener), listener) == results[0]
    assert results[0].up == (one.up and two.up and three.up)
    assert results[0].low_cost == max(told.low_cost for told in found)
    assert results[0].high_cost == max(told.high_cost for told in found)
    assert is_fine(results[0], listener) == any(is_fine(told, listener) for told in found)


def test_of_two_detour_copies_the_finer_counts() -> None:
    """GPP-19: in a cluster that fell apart, `c - SC-2` from outside is what its neighbours need, not `SC-1 - SC-2`."""
    coarse, finer = record(2, (0, 1), (0, 2)), record(2, (0, 1, 2), (0, 2))
    assert merged(coarse, finer, OWN) == merged(finer, coarse, OWN) == finer


def test_a_known_name_is_not_replaced_by_another() -> None:
    """A liar cannot rename a connection that is known."""
    own, lie = record(2, OWN, (0, 2)), record(2, OWN, (0, 3))
    assert merged(own, lie, OWN).high == (0, 2)
