"""Addressees that are places: read as they were written, routed level by level, hostile ids harmless (RTE-04)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from veena.address import Address, Unit, as_seen
from veena.core.messages.addresses import (
    EVERYBODY,
    INTERNAL,
    Place,
    broker_id,
    everybody_id,
    home_id,
    is_here,
    is_internal,
    place_of,
    reply_id,
    vector,
)
from veena.event import MAX_CLIENT_ID_LENGTH

FANOUT, LEVELS = 32, 4
numbers = st.integers(0, 3)
addresses: st.SearchStrategy[Address] = st.tuples(numbers, numbers, numbers, numbers)
units: st.SearchStrategy[Unit] = st.lists(numbers, max_size=LEVELS).map(tuple)


def bit(unit: Unit) -> int:
    """The bit of a unit as a broker sees it: its level's word, its number in it."""
    return 1 << ((LEVELS - len(unit)) * FANOUT + unit[-1])


def around(host: Address, others: list[Address]) -> list[Unit]:
    """The vertices of the host's map: itself, and what it sees the others as."""
    return [host, *dict.fromkeys(as_seen(host, other) for other in others if other != host)]


def of(host: Address, addressees: list[str], others: list[Address]) -> tuple[int, bool]:
    return vector(addressees, host, FANOUT, bit, lambda: around(host, others))


@given(addresses, units, st.text("abc123", min_size=1, max_size=8))
def test_ids_say_what_they_were_made_from(address: Address, unit: Unit, mark: str) -> None:
    assert place_of(broker_id(address)) == Place(address, "")
    assert place_of(everybody_id(unit)) == Place(unit, EVERYBODY)
    assert place_of(reply_id(address, mark)) == Place(address, "!" + mark)
    assert place_of(home_id("alice")) is None
    assert is_internal(broker_id(address))
    assert is_internal(everybody_id(unit))
    assert is_internal(home_id("alice"))
    assert not is_internal(reply_id(address, mark))
    assert not is_internal("alice")


@settings(max_examples=80)
@given(addresses, addresses, st.lists(addresses, max_size=6))
def test_a_broker_is_in_one_unit_and_never_in_the_own(host: Address, to: Address, others: list[Address]) -> None:
    """The invariant: the bit of the unit that the place lies in, as the host sees it; none at the place itself."""
    found, is_more = of(host, [broker_id(to)], others)
    assert not is_more
    assert found == (0 if to == host else bit(as_seen(host, to)))
    assert is_here(Place(to, ""), host) is (to == host)


@settings(max_examples=80)
@given(addresses, units, st.lists(addresses, max_size=8))
def test_everybody_of_a_unit(host: Address, unit: Unit, others: list[Address]) -> None:
    """Inside: every vertex in the unit but the host's own; from outside: the one unit on the way."""
    found, is_more = of(host, [everybody_id(unit)], others)
    assert not is_more
    inside = host[: len(unit)] == unit
    assert is_here(Place(unit, EVERYBODY), host) is inside
    if inside:
        mine = [each for each in around(host, others) if each[: len(unit)] == unit and each != host]
        expected = 0
        for each in mine:
            expected |= bit(each)
        assert found == expected
    else:
        assert found == bit(as_seen(host, unit))


@settings(max_examples=80)
@given(addresses, addresses, st.lists(addresses, min_size=1, max_size=8))
def test_following_the_bits_reaches_everybody_once(host: Address, aim: Address, others: list[Address]) -> None:
    """A letter to the whole system, passed on unit by unit, is read by every broker, by each once."""
    brokers = list(dict.fromkeys([host, aim, *others]))
    read: list[Address] = []

    def carry(at: Address, within: Unit) -> None:
        """Serve what lies in `within` from `at`, which is in it."""
        read.append(at)
        found, _ = of(at, [everybody_id(())], brokers)
        for unit in around(at, brokers)[1:]:
            if found & bit(unit) and unit[: len(within)] == within:
                carry(next(each for each in brokers if each[: len(unit)] == unit), unit)

    carry(host, ())
    assert sorted(read) == sorted(brokers)


@given(addresses, st.lists(st.sampled_from(["alice", "~home/alice", broker_id((1, 1, 1, 1))]), max_size=3))
def test_who_else_is_meant_is_told(host: Address, addressees: list[str]) -> None:
    assert of(host, addressees, [])[1] is any(place_of(each) is None for each in addressees)


@settings(max_examples=200)
@given(addresses, st.text("~0123456789./*!ab-é²", max_size=24).map(lambda text: INTERNAL + text))
def test_hostile_ids_are_harmless(host: Address, addressee: str) -> None:
    """Whatever follows the mark: read or not read, routed within the map or nowhere, and never back to the host."""
    place = place_of(addressee)
    found, is_more = of(host, [addressee], [])
    assert is_more is (place is None)
    if place is None:
        assert found == 0
        return
    assert len(place.unit) <= 8
    assert not found & bit(host)
    if len(place.unit) > LEVELS or (place.unit and max(place.unit) >= FANOUT):
        assert found == 0
        assert not is_here(place, host)


def test_homes_of_clients_with_long_ids() -> None:
    """No two clients have the same home, and every home is an id that an event may name."""
    ids = ["a", "a" * 249, "a" * 250, "a" * 255, "\N{GRINNING FACE}" * 255]
    homes = [home_id(each) for each in ids]
    assert len(set(homes)) == len(ids) and max(map(len, homes)) <= MAX_CLIENT_ID_LENGTH
    assert all(is_internal(each) and place_of(each) is None for each in homes)
